"""Many small C-SVMs at once, one for each neighbourhood of a training set.

Neighbourhood p is the training rows ``indices[indptr[p]:indptr[p + 1]]``. For every pair of classes among them the dual

    minimise 1/2 b'Kb - y'b,  sum b = 0,  0 <= y_i b_i <= C w_i

is solved by sequential minimal optimisation with LIBSVM's choice of pairs, until no pair of rows violates the
optimality conditions by more than `tol`. Kernel values are float32, as in LIBSVM's cache; slopes are float64.

Invariant: what a neighbourhood gets depends on its own rows, C and gamma alone, not on the neighbourhoods beside it,
the number of threads or the instruction level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from svelto import _core
from svelto._options import check_choice, check_positive, check_whole
from svelto._threads import check_n_jobs, thread_count
from svelto._typing import FloatArray, IntArray
from svelto.engines.exact import instruction_level

KERNEL_CODES: Final = {"rbf": 0, "poly": 3, "linear": 5}
# Python looks for Ctrl-C, and tells of progress, between native calls. One call takes about this many pairs of rows a
# thread: some tenths of a second.
PAIRS_PER_CALL: Final = 2e7

# Called with the number of neighbourhoods done and their number in all.
Progress = Callable[[int, int], None]
StartArray = NDArray[np.int64]


@dataclass(frozen=True)
class KernelChoice:
    """A kernel, but for its gamma.

    Attributes
    ----------
    name : {"rbf", "linear", "poly"}
        ``exp(-gamma |x - z|^2)``, ``x.z``, ``(gamma x.z + coef0)^degree``.
    degree : int
        At least 1; of "poly" alone.
    coef0 : float
        0 for the homogeneous polynomial; of "poly" alone. Below 0 the kernel is not positive definite.
    """

    name: str = "rbf"
    degree: int = 3
    coef0: float = 0.0

    def __post_init__(self) -> None:
        check_choice("kernel", self.name, tuple(KERNEL_CODES))
        check_whole("degree", self.degree, 1)
        if not np.isfinite(self.coef0):
            raise ValueError(f"coef0 is {self.coef0!r}; expected a finite number.")


@dataclass(frozen=True, eq=False)
class LocalModels:
    """The machines of all neighbourhoods, in flat arrays.

    Neighbourhood p has the classes ``classes[class_start[p]:class_start[p + 1]]`` and the pairs
    ``pair_start[p]:pair_start[p + 1]``: (0, 1), (0, 2), ..., (1, 2), ... of its m classes, m (m - 1) / 2 of them, so
    none where it has one class (or none, where all its rows have the weight 0). Pair q answers

        sum of coef[s] k(X[support[s]], x) for s in support_start[q]:support_start[q + 1], plus intercept[q]

    which is positive for the first class of the pair (as in LIBSVM; scikit-learn turns the sign of two classes round).

    Attributes
    ----------
    class_start : ndarray of shape (n_problems + 1,), int64
    classes : ndarray of shape (class_start[-1],), int32
        Class codes, ascending within a neighbourhood.
    pair_start : ndarray of shape (n_problems + 1,), int64
    intercept : ndarray of shape (n_pairs,)
    n_iter : ndarray of shape (n_pairs,), int64
        Steps of the solver.
    converged : ndarray of shape (n_pairs,), bool
        False where `max_iter` ended it.
    support_start : ndarray of shape (n_pairs + 1,), int64
    support : ndarray of shape (support_start[-1],), int32
        Row numbers in X. The rows of a pair's first class come first, each class in the order of `indices`.
    coef : ndarray of shape (support_start[-1],)
        Positive for the first class of the pair, negative for the second; never 0.
    """

    class_start: StartArray
    classes: IntArray
    pair_start: StartArray
    intercept: FloatArray
    n_iter: StartArray
    converged: NDArray[np.bool_]
    support_start: StartArray
    support: IntArray
    coef: FloatArray


def fit_local(
    X: Any,
    y_codes: Any,
    indptr: Any,
    indices: Any,
    *,
    kernel: KernelChoice,
    C: Any = 1.0,
    gamma: Any = 1.0,
    sample_weight: Any = None,
    class_weight: Any = None,
    tol: float = 1e-3,
    max_iter: int = -1,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> LocalModels:
    """Train an SVM on each neighbourhood.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
        Training rows, finite; float64 or float32 in C order is used without a copy.
    y_codes : array-like of shape (n_rows,)
        Class codes: whole numbers, of which `class_weight` expects 0, 1, ...
    indptr : array-like of shape (n_problems + 1,)
        Where each neighbourhood begins in `indices`, and where the last ends.
    indices : array-like of shape (indptr[-1],)
        Row numbers. A row that is listed twice counts twice, and so may appear twice in `support`.
    kernel : KernelChoice
        The kernel.
    C, gamma : float or array-like of shape (n_problems,)
        Positive. A linear kernel has no gamma.
    sample_weight : array-like of shape (n_rows,), optional
        Multiplies C. Rows of weight 0 are left out.
    class_weight : array-like of shape (n_classes,), optional
        Multiplies C, by class code.
    tol : float, default=1e-3
        Violation of the optimality conditions that ends the search.
    max_iter : int, default=-1
        Limit of the steps for each pair of classes; -1 for LIBSVM's, ten million.
    n_jobs : int, optional
        Threads, as in scikit-learn; None for all.
    progress : callable, optional
        Called with the number of neighbourhoods done and their number, now and then.

    Returns
    -------
    LocalModels

    Examples
    --------
    >>> import numpy as np
    >>> from svelto.training._local.fits import KernelChoice, fit_local
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> models = fit_local(X, [0, 0, 1, 1], [0, 3, 5], [0, 1, 2, 3, 2], kernel=KernelChoice("linear"), C=10.0)
    >>> models.classes, models.class_start  # the second neighbourhood has one class
    (array([0, 1, 1], dtype=int32), array([0, 2, 3]))
    >>> models.support, models.coef, models.intercept
    (array([1, 2], dtype=int32), array([ 2., -2.]), array([3.]))
    """
    given = _Given.checked(X, y_codes, indptr, indices, sample_weight, class_weight)
    _check_stop(tol, max_iter)
    check_n_jobs(n_jobs)
    cost = _checked_parameter("C", C, (given.n_problems,))
    width = _checked_parameter("gamma", gamma, (given.n_problems,))
    n_threads, level = thread_count(n_jobs), instruction_level()
    parts = []
    for first, last in given.batches(n_threads):
        try:
            part = _core.fit_local(
                *given.arrays(first, last),
                *_kernel_fields(kernel),
                cost[first:last],
                width[first:last],
                float(tol),
                int(max_iter),
                n_threads,
                level,
            )
        except OverflowError:
            raise _overflow(given.X) from None
        parts.append(part)
        if progress is not None:
            progress(last, given.n_problems)
    columns = list(zip(*parts, strict=True))
    return LocalModels(
        class_start=_joined_starts(columns[0]),
        classes=np.concatenate(columns[1]),
        pair_start=_joined_starts(columns[2]),
        intercept=np.concatenate(columns[3]),
        n_iter=np.concatenate(columns[4]),
        converged=np.concatenate(columns[5]).view(np.bool_),
        support_start=_joined_starts(columns[6]),
        support=np.concatenate(columns[7]),
        coef=np.concatenate(columns[8]),
    )


def search_local(
    X: Any,
    y_codes: Any,
    indptr: Any,
    indices: Any,
    *,
    folds: Any,
    kernel: KernelChoice,
    C: Any,
    gamma: Any = (1.0,),
    sample_weight: Any = None,
    class_weight: Any = None,
    tol: float = 1e-3,
    max_iter: int = -1,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> FloatArray:
    """Cross-validate values of C and gamma inside each neighbourhood.

    Distances are computed once for all values of gamma and all folds.

    Parameters
    ----------
    X, y_codes, indptr, indices, kernel, sample_weight, class_weight, tol, max_iter, n_jobs, progress
        As in `fit_local`.
    folds : array-like of shape (indptr[-1],)
        Fold of each element of `indices`: the rows of a neighbourhood that have the same number are held out together.
        A row with a negative number is always trained on.
    C : array-like of shape (n_C,) or (n_problems, n_C)
        Values to try, the same everywhere or for each neighbourhood its own.
    gamma : array-like of shape (n_gamma,) or (n_problems, n_gamma)
        Likewise. A linear kernel has no gamma.

    Returns
    -------
    ndarray of shape (n_problems, n_gamma, n_C)
        Number of held-out rows that were answered rightly over all folds; the sum of their `sample_weight` where given.
        Votes of pairs are counted as LIBSVM does. A class that a fold leaves without training rows gets no vote.
    """
    given = _Given.checked(X, y_codes, indptr, indices, sample_weight, class_weight)
    _check_stop(tol, max_iter)
    check_n_jobs(n_jobs)
    held = np.ascontiguousarray(folds, dtype=np.int32)
    if held.shape != given.indices.shape:
        raise ValueError(f"folds has shape {held.shape}; expected {given.indices.shape}, as indices has.")
    cost, width = (_checked_grid(name, values, given.n_problems) for name, values in (("C", C), ("gamma", gamma)))
    worth = np.empty(0) if sample_weight is None else np.ascontiguousarray(sample_weight, dtype=np.float64)
    n_threads, level = thread_count(n_jobs), instruction_level()
    right = np.empty((given.n_problems, width.shape[1], cost.shape[1]))
    n_models = int(held.max(initial=0)) + 1
    for first, last in given.batches(n_threads, repeats=n_models * width.shape[1] * cost.shape[1]):
        begin, end = given.indptr[first], given.indptr[last]
        try:
            _core.search_local(
                *given.arrays(first, last),
                *_kernel_fields(kernel),
                held[begin:end],
                worth,
                cost[first:last],
                width[first:last],
                float(tol),
                int(max_iter),
                n_threads,
                level,
                right[first:last],
            )
        except OverflowError:
            raise _overflow(given.X) from None
        if progress is not None:
            progress(last, given.n_problems)
    return right


@dataclass(frozen=True, eq=False)
class _Given:
    """Checked training rows and neighbourhoods."""

    X: NDArray[Any]
    y: IntArray
    weight: FloatArray  # (n_rows,) or (0,)
    indptr: StartArray
    indices: StartArray

    @classmethod
    def checked(cls, X: Any, y_codes: Any, indptr: Any, indices: Any, sample_weight: Any, class_weight: Any) -> _Given:
        rows = np.ascontiguousarray(X, dtype=np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64)
        if np.ndim(X) != 2 or rows.size == 0:
            raise ValueError(f"X has shape {np.shape(X)}; expected (n_rows, n_features), at least 1 of each.")
        y = _checked_whole_numbers("y_codes", y_codes, np.int32)
        if y.shape != (len(rows),):
            raise ValueError(f"y_codes has shape {y.shape}; expected one class code for each of {len(rows)} rows.")
        starts = _checked_whole_numbers("indptr", indptr, np.int64)
        numbers = _checked_whole_numbers("indices", indices, np.int64)
        if starts.ndim != 1 or starts.size < 2 or starts[0] != 0 or (np.diff(starts) < 0).any():
            raise ValueError("indptr is no ascending array from 0 on with one element more than there are problems.")
        if numbers.shape != (starts[-1],):
            raise ValueError(f"indices has shape {numbers.shape}; indptr ends at {starts[-1]}.")
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < len(rows):
            wrong = numbers.min() if numbers.min() < 0 else numbers.max()
            raise ValueError(f"indices holds {wrong}; X has {len(rows)} rows.")
        largest = int(np.diff(starts).max())
        if largest > _core.MAX_LOCAL_ROWS:
            raise ValueError(f"A neighbourhood has {largest} rows; at most {_core.MAX_LOCAL_ROWS} can be trained on.")
        weight = _checked_weights("sample_weight", sample_weight, len(rows))
        if class_weight is not None:
            by_class = _checked_weights("class_weight", class_weight, None)
            if not 0 <= y.min() <= y.max() < len(by_class):
                raise ValueError(f"class_weight has {len(by_class)} elements; codes are {y.min()} to {y.max()}.")
            weight = by_class[y] if weight.size == 0 else weight * by_class[y]
        return cls(rows, y, weight, starts, numbers)

    @property
    def n_problems(self) -> int:
        return len(self.indptr) - 1

    def arrays(self, first: int, last: int) -> tuple[NDArray[Any], IntArray, FloatArray, StartArray, StartArray]:
        """What the native functions read of the problems from `first` to before `last`."""
        begin, end = self.indptr[first], self.indptr[last]
        starts = self.indptr[first : last + 1] - begin
        return self.X, self.y, self.weight, starts, self.indices[begin:end]

    def batches(self, n_threads: int, repeats: int = 1) -> Iterator[tuple[int, int]]:
        """Ranges of problems, for one native call each."""
        work = np.cumsum(np.diff(self.indptr).astype(np.float64) ** 2 + 1.0) * repeats
        first, done = 0, 0.0
        while first < self.n_problems:
            last = int(np.searchsorted(work, done + PAIRS_PER_CALL * n_threads, side="right"))
            # Every thread has something to do, however large the problems are.
            last = min(max(last, first + n_threads), self.n_problems)
            yield first, last
            first, done = last, work[last - 1]


def _kernel_fields(kernel: KernelChoice) -> tuple[int, int, float]:
    return KERNEL_CODES[kernel.name], int(kernel.degree), float(kernel.coef0)


def _joined_starts(parts: Any) -> StartArray:
    """Starts of several calls, one behind the other."""
    counts = np.concatenate([np.diff(part) for part in parts])
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _overflow(X: NDArray[Any]) -> ValueError:
    if not np.isfinite(X).all():
        return ValueError(f"X holds {X[~np.isfinite(X)][0]}; expected finite numbers.")
    return ValueError(f"The largest value is {np.abs(X).max():.3g}: kernel values overflow. Scale the features.")


def _check_stop(tol: Any, max_iter: Any) -> None:
    check_positive("tol", tol)
    check_whole("max_iter", max_iter, -1)


def _checked_whole_numbers(name: str, values: Any, dtype: Any) -> NDArray[Any]:
    array = np.asarray(values)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name} has the type {array.dtype}; expected whole numbers.")
    if array.size and not np.iinfo(dtype).min <= array.min() <= array.max() <= np.iinfo(dtype).max:
        raise ValueError(f"{name} has numbers from {array.min()} to {array.max()}; too large for {np.dtype(dtype)}.")
    return np.ascontiguousarray(array, dtype=dtype)


def _checked_weights(name: str, values: Any, n_rows: int | None) -> FloatArray:
    """Weights, or an empty array where there are none."""
    if values is None:
        return np.empty(0)
    array = np.ascontiguousarray(values, dtype=np.float64)
    if array.ndim != 1 or (n_rows is not None and len(array) != n_rows):
        raise ValueError(f"{name} has shape {array.shape}; expected {'one axis' if n_rows is None else (n_rows,)}.")
    if not (np.isfinite(array) & (array >= 0.0)).all():
        raise ValueError(f"{name} holds {array[~(np.isfinite(array) & (array >= 0.0))][0]}; expected at least 0.")
    return array


def _checked_parameter(name: str, values: Any, shape: tuple[int, ...]) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.shape not in ((), shape):
        raise ValueError(f"{name} has shape {array.shape}; expected a number or one for each of {shape[0]} problems.")
    if not ((array > 0.0) & np.isfinite(array)).all():
        raise ValueError(f"{name} holds {array[~((array > 0.0) & np.isfinite(array))].flat[0]}; expected above 0.")
    return np.ascontiguousarray(np.broadcast_to(array, shape))


def _checked_grid(name: str, values: Any, n_problems: int) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim not in (1, 2) or array.size == 0 or (array.ndim == 2 and len(array) != n_problems):
        raise ValueError(f"{name} has shape {array.shape}; expected (n_values,) or ({n_problems}, n_values).")
    return _checked_parameter(
        name, array if array.ndim == 2 else np.tile(array, (n_problems, 1)), (n_problems, array.shape[-1])
    )
