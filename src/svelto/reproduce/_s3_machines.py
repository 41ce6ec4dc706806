"""Machines of paper S3: one against the rest and one against one, with the Gaussian or the exponential kernel.

All machines of a data set are trained from one Gram matrix for each gamma: LIBSVM then only reads kernel values, and
the machines are those that `SVC(kernel="rbf")` and `ExponentialSVC` find. gamma is counted from the data: step s means
2^s over the median of ||x - x'||^2 (Gaussian) or of ||x - x'|| (exponential) of training rows, so that a step means the
same for raw and scaled features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

import joblib
import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.svm import SVC

import svelto
from svelto._typing import FloatArray
from svelto.reproduce._s0_data import SEED

KernelName: TypeAlias = Literal["rbf", "exponential"]
Strategy: TypeAlias = Literal["rest", "pairs"]
Labels: TypeAlias = NDArray[np.int64]

KERNELS: Final[tuple[KernelName, ...]] = ("rbf", "exponential")
STRATEGIES: Final[tuple[Strategy, ...]] = ("rest", "pairs")
METRIC: Final = {"rbf": "sqeuclidean", "exponential": "euclidean"}
MEDIAN_ROWS: Final = 2_000
BLOCK_ROWS: Final = 500
CACHE_MEGABYTES: Final = 500


class Trainer:
    """Training rows and a kernel; Gram matrices by gamma, machines by C."""

    def __init__(self, X: FloatArray, y: Labels, kernel: KernelName, n_jobs: int) -> None:
        self.X, self.y, self.kernel, self.n_jobs = X, y, kernel, n_jobs
        self.classes = np.unique(y)
        some = X[draw(len(y), MEDIAN_ROWS)]
        self.unit = float(np.median(cdist(some, some, METRIC[kernel])[np.triu_indices(len(some), 1)]))

    def gamma(self, step: float) -> float:
        """Value of gamma at a step."""
        return float(2.0**step / self.unit)

    def gram(self, gamma: float, rows: NDArray[np.intp] | None = None) -> FloatArray:
        """Kernel values between training rows: all, or those given."""
        X = self.X if rows is None else self.X[rows]
        values = np.empty((len(X), len(X)))

        def fill(start: int) -> None:
            part = values[start : start + BLOCK_ROWS]
            cdist(X[start : start + BLOCK_ROWS], X, METRIC[self.kernel], out=part)
            part *= -gamma
            np.exp(part, out=part)

        self._all(fill, range(0, len(X), BLOCK_ROWS))
        return values

    def fit(self, strategy: Strategy, gram: FloatArray, C: float, gamma: float) -> svelto.KernelMachine:
        """Train on all rows; `gram` holds the kernel values of this gamma."""
        return self._fit_rest(gram, C, gamma) if strategy == "rest" else self._fit_pairs(gram, C, gamma)

    def _fit_pairs(self, gram: FloatArray, C: float, gamma: float) -> svelto.KernelMachine:
        svc = _solver(C).fit(gram, self.y)
        return self._machine(svc.support_, gamma, svc.dual_coef_, svc.intercept_, n_support=svc.n_support_)

    def _fit_rest(self, gram: FloatArray, C: float, gamma: float) -> svelto.KernelMachine:
        """One machine for each class against all others, the largest score wins; support vectors are the union."""
        found = self._all(lambda label: _solver(C).fit(gram, self.y == label), self.classes)
        support = np.unique(np.concatenate([svc.support_ for svc in found]))
        dual_coef = np.zeros((len(found), len(support)))
        for row, svc in zip(dual_coef, found, strict=True):
            row[np.searchsorted(support, svc.support_)] = svc.dual_coef_[0]
        return self._machine(support, gamma, dual_coef, np.array([svc.intercept_[0] for svc in found]))

    def _machine(self, support: Any, gamma: float, dual_coef: Any, intercept: Any, **more: Any) -> svelto.KernelMachine:
        return svelto.KernelMachine.from_arrays(
            kernel=self.kernel,
            gamma=gamma,
            support_vectors=self.X[support],
            dual_coef=dual_coef,
            intercept=intercept,
            classes=self.classes,
            **more,
        )

    def cross_validate(self, gamma: float, all_C: Sequence[float], n_rows: int, n_folds: int) -> list[float]:
        """Accuracy in percent for each C, one against one, on at most `n_rows` training rows drawn at random."""
        rows = draw(len(self.y), n_rows)
        gram, y = self.gram(gamma, rows), self.y[rows]
        fold_of = deal(y, n_folds)
        right = np.zeros(len(all_C), dtype=np.int64)
        for fold in range(n_folds):
            train, test = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
            inner, outer = gram[np.ix_(train, train)], gram[np.ix_(test, train)]

            def count(C: float, data: tuple[Any, ...] = (inner, y[train], outer, y[test])) -> int:
                return int(np.count_nonzero(_solver(C).fit(data[0], data[1]).predict(data[2]) == data[3]))

            right += self._all(count, all_C)
        return [float(share) for share in 100.0 * right / len(y)]

    def _all(self, task: Any, items: Any) -> list[Any]:
        """Run a task on every item in threads: LIBSVM and SciPy work without the interpreter's lock."""
        results: list[Any] = joblib.Parallel(self.n_jobs, backend="threading")(
            joblib.delayed(task)(item) for item in items
        )
        return results


def _solver(C: float) -> Any:
    return SVC(kernel="precomputed", C=C, cache_size=CACHE_MEGABYTES)


def draw(n_rows: int, n_drawn: int) -> NDArray[np.intp]:
    """At most `n_drawn` row numbers, drawn at random, ascending; the same in every run."""
    return np.sort(np.random.default_rng(SEED).permutation(n_rows)[:n_drawn])


def deal(y: Labels, n_folds: int) -> NDArray[np.intp]:
    """Fold of every row: rows of a class are dealt out evenly, also where it has fewer rows than there are folds."""
    order = np.random.default_rng(SEED).permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    fold_of = np.empty(len(y), dtype=np.intp)
    fold_of[order] = np.arange(len(y)) % n_folds
    return fold_of
