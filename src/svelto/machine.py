"""KernelMachine: the one neutral, immutable form of a trained kernel machine.

Every source (scikit-learn, a LIBSVM file, plain arrays) is read into a `KernelMachine`; every method
reads one. It holds arrays and rules, no algorithm. The scores of a query x are

    s_j(x) = sum_i dual_coef[j, i] k(x, support_vectors[i]) + intercept[j]

with one row of `dual_coef` for each score, except for one-vs-one machines of more than two classes, which
use LIBSVM's compact layout: support vectors grouped by class, `dual_coef` of shape (n_classes - 1, n_sv), and
one score for each pair of classes (see `rule`).

Signs are LIBSVM's: a positive score of the pair (i, j) is a vote for the i-th class of the *vote order*; zero is a
vote for the j-th. `classes` is sorted, `vote_order` says where each voting class stands in it. scikit-learn's
opposite sign for two classes is applied by the predictor, at the very end.

Invariant: a `KernelMachine` that exists is consistent: lengths agree, every number is finite, arrays are read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from scipy import sparse

from svelto._typing import FloatArray, IntArray, Rows
from svelto.kernels import Kernel
from svelto.probability import Calibration, PlattPairs
from svelto.scaling import Scaling

Task: TypeAlias = Literal["classification", "regression", "outlier"]
Rule: TypeAlias = Literal["pairs", "argmax", "value"]

# LIBSVM's estimate of the density of one-class scores has this many steps.
N_DENSITY_MARKS: Final = 10
_CHOICES: Final = {
    "task": ("classification", "regression", "outlier"),
    "rule": ("pairs", "argmax", "value"),
    "decision_function_shape": ("ovr", "ovo"),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelMachine:
    """A trained kernel machine as arrays, kernel and voting rule.

    Use `from_sklearn`, `from_libsvm` or `from_arrays`; the constructor itself expects arrays in the
    internal layout and only checks them.

    Attributes
    ----------
    kernel : Kernel
        The kernel function.
    support_vectors : ndarray or csr_matrix of shape (n_sv, n_features), or sequence
        float64; for kernel "precomputed" the column numbers (n_sv,) of the kernel values in a query row; for a
        callable kernel whatever objects it takes.
    dual_coef : ndarray of shape (n_rows, n_sv)
        LIBSVM's layout and signs.
    intercept : ndarray of shape (n_scores,)
        Added to the scores (LIBSVM's ``-rho``).
    task : {"classification", "regression", "outlier"}
        What the scores mean.
    rule : {"pairs", "argmax", "value"}
        ``"pairs"``: one score for each pair of classes, the class with most votes wins, ties go to the earlier
        class of the vote order. ``"argmax"``: one score for each class, the largest wins. ``"value"``: the score is
        the answer (regression), or its sign is (outlier).
    classes : ndarray of shape (n_classes,) or None
        Sorted class labels of any dtype.
    vote_order : ndarray of shape (n_classes,) or None
        ``classes[vote_order[i]]`` is the i-th class of the machine's own numbering.
    n_support : ndarray of shape (n_classes,) or None
        Support vectors of each class in vote order; needed for ``"pairs"`` with more than two classes.
    noise_scale : float or None
        Scale of a regressor's Laplace noise, as LIBSVM's ``svm-train -b 1`` estimates it; no prediction uses it.
    n_features : int or None
        Width of a query row in front of `front` and `scaling`; None for a callable kernel on objects.
    single_output : bool
        Whether a regressor with one score answers with a vector; False for a KernelRidge that was fitted on a
        two-dimensional `y` and so answers with a matrix, of one column too.
    """

    kernel: Kernel
    support_vectors: Rows
    dual_coef: FloatArray
    intercept: FloatArray
    task: Task
    rule: Rule
    classes: np.ndarray[Any, Any] | None = None
    vote_order: IntArray | None = None
    n_support: IntArray | None = None
    n_features: int | None = None
    single_output: bool = True
    decision_function_shape: Literal["ovr", "ovo"] = "ovr"
    break_ties: bool = False
    platt: PlattPairs | None = None
    calibration: Calibration | None = None
    density_marks: FloatArray | None = None
    noise_scale: float | None = None
    scaling: Scaling | None = None
    front: tuple[Any, ...] = ()
    feature_names: np.ndarray[Any, Any] | None = None
    svm_type: str = "c_svc"
    source: str = "arrays"

    def __post_init__(self) -> None:
        _freeze(self)
        _check(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _freeze(self)  # a pickle forgets that its arrays were read-only

    @classmethod
    def _on(cls, parts: dict[str, Any], *, read_values: bool) -> KernelMachine:
        """A machine on read-only arrays of the internal dtypes, which are neither copied nor (all of them) read."""
        machine = object.__new__(cls)
        for part in fields(cls):
            object.__setattr__(machine, part.name, parts.get(part.name, part.default))
        _check(machine, read_values=read_values)
        return machine

    # -- sources ---------------------------------------------------------------------------------------------

    @classmethod
    def from_sklearn(cls, estimator: Any) -> KernelMachine:
        """Read a fitted scikit-learn model.

        Parameters
        ----------
        estimator : SVC, NuSVC, SVR, NuSVR, OneClassSVM, KernelRidge, ExponentialSVC, Pipeline or CalibratedClassifierCV
            A fitted model (ExponentialSVC is svelto's own); a Pipeline must end in one of the others, a
            CalibratedClassifierCV must have been made with ``ensemble=False`` and hold one of the classifiers.

        Returns
        -------
        KernelMachine
        """
        from svelto.io.sklearn import read_estimator

        return read_estimator(estimator)

    @classmethod
    def from_libsvm(cls, path: str | PathLike[str]) -> KernelMachine:
        """Read a model file written by LIBSVM's ``svm-train`` or by ThunderSVM."""
        from svelto.io.libsvm import read_model

        return read_model(path)

    @classmethod
    def from_arrays(
        cls,
        *,
        kernel: str | Callable[[Any, Any], Any],
        support_vectors: Rows,
        dual_coef: Any,
        intercept: Any = 0.0,
        classes: Sequence[Any] | np.ndarray[Any, Any] | None = None,
        gamma: float = 1.0,
        coef0: float = 0.0,
        degree: int = 3,
        n_support: Any = None,
        task: Task | None = None,
    ) -> KernelMachine:
        """Build a machine from plain arrays (LS-SVM, relevance vector machine, kernel logistic regression, ...).

        Parameters
        ----------
        kernel : str or callable
            Kernel name, or ``function(X, S)`` that returns the matrix of kernel values.
        support_vectors : array-like, sparse matrix or sequence of objects
            The vectors the sum runs over.
        dual_coef : array-like of shape (n_sv,) or (n_rows, n_sv)
            With two classes one row, positive towards ``classes[1]``. With K > 2 classes K rows (one score a class, the
            largest wins), or, together with `n_support`, LIBSVM's compact one-vs-one layout of K - 1 rows. Without
            classes one row for each output.
        intercept : float or array-like
            One number for each score, or one for all of them.
        classes : array-like, optional
            Class labels in the order of the rows of `dual_coef`. None makes a regressor.
        gamma, coef0, degree
            Parameters of the kernel.
        n_support : array-like, optional
            Support vectors of each class, for the one-vs-one layout.
        task : {"classification", "regression", "outlier"}, optional
            Default: classification where classes are given, otherwise regression.

        Returns
        -------
        KernelMachine
        """
        from svelto.io.arrays import read_arrays

        return read_arrays(
            kernel=kernel,
            support_vectors=support_vectors,
            dual_coef=dual_coef,
            intercept=intercept,
            classes=classes,
            gamma=gamma,
            coef0=coef0,
            degree=degree,
            n_support=n_support,
            task=task,
        )

    def to_libsvm(self, path: str | PathLike[str]) -> None:
        """Write a model file that LIBSVM's ``svm-predict`` reads."""
        from svelto.io.libsvm import write_model

        write_model(self, path)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a svelto file, which `svelto.load` reads; see `docs/file-format.md`."""
        from svelto.io.saved import save

        save(self, path)

    # -- shape -----------------------------------------------------------------------------------------------

    @property
    def n_sv(self) -> int:
        """Number of support vectors."""
        return int(self.dual_coef.shape[1])

    @property
    def n_scores(self) -> int:
        """Number of scores a row gets: pairs of classes, classes, or outputs."""
        return int(self.intercept.shape[0])

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 without classes."""
        return 0 if self.classes is None else len(self.classes)

    @property
    def is_grouped(self) -> bool:
        """Whether `dual_coef` is LIBSVM's compact one-vs-one layout (more than two classes)."""
        return self.rule == "pairs" and self.n_classes > 2

    @property
    def has_sparse_vectors(self) -> bool:
        """Whether the support vectors are kept as a sparse matrix."""
        return bool(sparse.issparse(self.support_vectors))

    def __repr__(self) -> str:
        what = f"{self.n_classes} classes" if self.classes is not None else self.task
        return (
            f"KernelMachine({self.kernel}, n_sv={self.n_sv}, n_features={self.n_features}, {what}, from {self.source})"
        )


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def _freeze(machine: KernelMachine) -> None:
    """Copy what the caller may still change, convert to the internal dtypes, forbid writing."""

    def put(name: str, value: Any) -> None:
        object.__setattr__(machine, name, value)

    put("dual_coef", _read_only(np.array(machine.dual_coef, dtype=np.float64, order="C", ndmin=2)))
    put("intercept", _read_only(np.array(machine.intercept, dtype=np.float64, order="C", ndmin=1)))
    for name in ("n_support", "vote_order"):
        if getattr(machine, name) is not None:
            put(name, _read_only(np.array(getattr(machine, name), dtype=np.int32, ndmin=1)))
    if machine.classes is not None:
        put("classes", _read_only(np.array(machine.classes, ndmin=1)))
    if machine.density_marks is not None:
        put("density_marks", _read_only(np.array(machine.density_marks, dtype=np.float64, ndmin=1)))
    if machine.feature_names is not None:
        put("feature_names", _read_only(np.array(machine.feature_names, dtype=object)))
    for name in ("platt", "scaling"):
        if getattr(machine, name) is not None:
            put(name, replace(getattr(machine, name)))  # made again, they copy and freeze their own arrays
    if machine.calibration is not None:
        put(
            "calibration",
            replace(machine.calibration, calibrators=tuple(map(replace, machine.calibration.calibrators))),
        )
    vectors = machine.support_vectors
    if machine.kernel.name == "callable":
        if isinstance(vectors, np.ndarray):
            put("support_vectors", _read_only(vectors.copy()))
        else:
            put("support_vectors", vectors.copy() if hasattr(vectors, "copy") else list(vectors))
    elif machine.kernel.name == "precomputed":
        put("support_vectors", _read_only(np.array(vectors, dtype=np.int64, ndmin=1)))
    elif sparse.issparse(vectors):
        frozen = sparse.csr_matrix(vectors, dtype=np.float64, copy=True)
        frozen.sum_duplicates()
        frozen.sort_indices()
        for array in (frozen.data, frozen.indices, frozen.indptr):
            array.flags.writeable = False
        put("support_vectors", frozen)
    else:
        put("support_vectors", _read_only(np.array(vectors, dtype=np.float64, order="C", ndmin=2)))


def _check(machine: KernelMachine, *, read_values: bool = True) -> None:
    """Refuse arrays that contradict each other, naming both numbers."""
    dual_coef, intercept = machine.dual_coef, machine.intercept
    if dual_coef.ndim != 2 or intercept.ndim != 1:
        raise ValueError(f"dual_coef has {dual_coef.ndim} dimensions and intercept {intercept.ndim}; expected 2 and 1.")
    n_sv = dual_coef.shape[1]
    if n_sv == 0:
        raise ValueError("The machine has no support vectors; a trained machine has at least one.")
    vectors = machine.support_vectors
    n_vectors = vectors.shape[0] if hasattr(vectors, "shape") else len(vectors)
    if n_vectors != n_sv:
        raise ValueError(f"dual_coef covers {n_sv} support vectors, but {n_vectors} support vectors are given.")
    if read_values:
        _check_finite("dual_coef", dual_coef)
    _check_finite("intercept", intercept)
    if machine.kernel.has_native_code:
        if read_values:
            _check_finite("support_vectors", vectors.data if sparse.issparse(vectors) else vectors)
        if vectors.ndim != 2 or vectors.shape[1] == 0:
            raise ValueError(f"support_vectors has shape {vectors.shape}; expected (n_sv, n_features).")
        _check_width(machine, int(vectors.shape[1]))
    elif machine.scaling is not None:
        raise ValueError(f"The {machine.kernel.name} kernel takes no scaling; put the scaler into front.")
    if machine.kernel.name == "precomputed":
        _check_columns(machine)
    _check_rule(machine)
    _check_probability(machine)


def _check_width(machine: KernelMachine, width: int) -> None:
    """The row that a query becomes is as wide as the support vectors; behind a front only the front knows how."""
    if machine.n_features != width and not machine.front:
        raise ValueError(f"n_features is {machine.n_features}, but the support vectors have {width} features.")
    if machine.scaling is not None and len(machine.scaling.shift) != width:
        raise ValueError(
            f"The scaler has {len(machine.scaling.shift)} features, but the support vectors have {width} features."
        )


def _check_columns(machine: KernelMachine) -> None:
    columns, width = machine.support_vectors, machine.n_features
    if columns.ndim != 1:
        raise ValueError(
            f"support_vectors has shape {columns.shape}; a precomputed kernel needs column numbers, (n_sv,)."
        )
    low, high = int(columns.min()), int(columns.max())
    # Behind a front the query row is not yet the row of kernel values, so its width says nothing about the columns.
    if low < 0 or (width is not None and high >= width and not machine.front):
        raise ValueError(f"The precomputed kernel uses columns {low} to {high}; rows have {width} columns.")


def _check_probability(machine: KernelMachine) -> None:
    if machine.platt is not None:
        n_pairs = machine.n_scores if machine.rule == "pairs" else 0
        if len(machine.platt.a) != n_pairs:
            raise ValueError(
                f"There are {len(machine.platt.a)} sigmoids (probA, probB) for {n_pairs} pairs of classes."
            )
    marks = machine.density_marks
    if marks is None:
        return
    if machine.task != "outlier":
        raise ValueError(f"density_marks belong to outlier detectors; task is {machine.task!r}.")
    if marks.shape != (N_DENSITY_MARKS,):
        raise ValueError(f"density_marks has shape {marks.shape}; expected {N_DENSITY_MARKS} marks.")
    _check_finite("density_marks", marks)
    if (np.diff(marks) < 0).any():
        raise ValueError(f"density_marks must rise, got {marks.tolist()}.")


def _check_finite(name: str, values: FloatArray) -> None:
    if not np.isfinite(values).all():
        bad = values[~np.isfinite(values)][0]
        raise ValueError(f"{name} contains {bad}; every number of a kernel machine must be finite.")


def _check_rule(machine: KernelMachine) -> None:
    n_classes, n_rows = machine.n_classes, machine.dual_coef.shape[0]
    for name, choices in _CHOICES.items():
        if getattr(machine, name) not in choices:
            raise ValueError(f"{name} is {getattr(machine, name)!r}; expected one of {', '.join(choices)}.")
    if (machine.task == "classification") != (machine.classes is not None):
        raise ValueError(f"task is {machine.task!r}; classes belong to classification, and only to it.")
    if (machine.task == "classification") == (machine.rule == "value"):
        raise ValueError(f"task {machine.task!r} and rule {machine.rule!r} contradict each other.")
    if machine.rule == "pairs":
        want_rows, want_scores = n_classes - 1, n_classes * (n_classes - 1) // 2
    elif machine.rule == "argmax":
        want_rows = want_scores = n_classes
    else:
        want_rows = want_scores = 1 if machine.task == "outlier" else n_rows
    if machine.classes is not None:
        if n_classes < 2:
            raise ValueError(f"The machine has {n_classes} class; a classifier needs at least two.")
        known = np.unique(machine.classes)
        if len(known) != n_classes:
            raise ValueError(f"classes contains a label twice: {machine.classes.tolist()}.")
        if (known != machine.classes).any():
            raise ValueError(
                f"classes must be sorted, got {machine.classes.tolist()}; vote_order says which votes first."
            )
        order = machine.vote_order
        if order is None or sorted(order.tolist()) != list(range(n_classes)):
            raise ValueError(f"vote_order must be a permutation of {n_classes} class numbers, got {order}.")
    if n_rows != want_rows:
        raise ValueError(f"dual_coef has {n_rows} rows; expected {want_rows}.")
    if len(machine.intercept) != want_scores:
        raise ValueError(f"intercept has {len(machine.intercept)} values; expected {want_scores}.")
    if machine.is_grouped or machine.n_support is not None:
        counts = machine.n_support
        if counts is None or len(counts) != n_classes:
            raise ValueError(f"n_support needs one count for each of the {n_classes} classes, got {counts}.")
        if machine.vote_order is not None and machine.classes is not None and (counts <= 0).any():
            empty = machine.classes.tolist()[machine.vote_order[int(np.argmin(counts))]]
            raise ValueError(f"Class {empty!r} has no support vectors; the model is damaged. Train it again.")
        if int(counts.sum()) != machine.n_sv:
            raise ValueError(f"n_support adds up to {int(counts.sum())}, but there are {machine.n_sv} support vectors.")
