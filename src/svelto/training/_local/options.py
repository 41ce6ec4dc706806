"""The parameters that LocalSVC and KNNSVC share, checked."""

from __future__ import annotations

import warnings
from numbers import Real
from typing import Any, Final, NamedTuple

import numpy as np
from sklearn.utils.class_weight import compute_class_weight

from svelto import _core
from svelto._options import check_choice, check_positive, check_whole
from svelto._threads import check_n_jobs, thread_count
from svelto._typing import FloatArray, IntArray
from svelto.kernels import Kernel
from svelto.training._local.fits import KernelChoice
from svelto.training._local.neighbours import METHODS

KERNELS: Final = ("rbf", "linear", "poly")
# Widths and costs beyond this would overflow in products.
LARGEST: Final = 1e300


class LocalOptions(NamedTuple):
    """What every neighbourhood is trained with."""

    kernel: KernelChoice
    C: float
    gamma: str | float
    tol: float
    max_iter: int
    n_jobs: int | None


def checked_options(estimator: Any) -> LocalOptions:
    """Read the parameters of an estimator, or say which one is wrong."""
    check_choice("kernel", estimator.kernel, KERNELS)
    check_choice("neighbors", estimator.neighbors, METHODS)
    check_positive("C", estimator.C)
    gamma = estimator.gamma
    if isinstance(gamma, str):
        check_choice("gamma", gamma, ("local", "scale", "auto"))
    else:
        check_positive("gamma", gamma)
    check_whole("degree", estimator.degree, 1)
    coef0 = estimator.coef0
    if isinstance(coef0, bool) or not isinstance(coef0, Real) or not np.isfinite(float(coef0)):
        raise ValueError(f"coef0 is {coef0!r}; expected a finite number.")
    check_positive("tol", estimator.tol)
    max_iter = getattr(estimator, "max_iter", -1)
    check_whole("max_iter", max_iter, -1)
    if max_iter == 0:
        raise ValueError("max_iter is 0; expected -1, for no limit that matters, or at least 1.")
    check_n_jobs(estimator.n_jobs)
    kernel = KernelChoice(estimator.kernel, int(estimator.degree), float(coef0))
    return LocalOptions(
        kernel, float(estimator.C), gamma, float(estimator.tol), min(int(max_iter), 2**62), estimator.n_jobs
    )


def clipped_k(k: Any, n_rows: int) -> int:
    """Neighbours that there are: all rows where `k` is more, with a warning."""
    check_whole("k", k, 1)
    if k > n_rows:
        warnings.warn(f"k is {k}, but there are {n_rows} rows; every neighbourhood has them all.", stacklevel=4)
    clipped = min(int(k), n_rows)
    if clipped > _core.MAX_LOCAL_ROWS:
        raise ValueError(f"k is {k}; expected at most {_core.MAX_LOCAL_ROWS}.")
    return clipped


def global_gamma(options: LocalOptions, X: FloatArray) -> float:
    """The width that all neighbourhoods share, and that tells neighbours of a polynomial kernel: as in SVC."""
    if not isinstance(options.gamma, str):
        return float(options.gamma)
    if options.gamma == "auto":
        return 1.0 / float(X.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):  # rows that are too large are refused by who reads them next
        variance = float(X.var())
    return min(1.0 / (float(X.shape[1]) * max(variance, 1e-300)), LARGEST) if 0.0 < variance < np.inf else 1.0


def spread_of_rows(X: FloatArray, start: Any, rows: Any, n_jobs: int | None) -> FloatArray:
    """Variance of the rows of each neighbourhood, summed over features."""
    result = np.empty(len(start) - 1)
    _core.local_spread(X, start, rows, thread_count(n_jobs), result)
    return result


def local_gamma(options: LocalOptions, X: FloatArray, start: Any, rows: Any, shared: float) -> FloatArray:
    """Width of each neighbourhood's kernel: with "local" and rbf, SVC's "scale" of its own rows."""
    if options.gamma != "local" or options.kernel.name != "rbf":
        return np.full(len(start) - 1, shared)
    spread = spread_of_rows(X, start, rows, options.n_jobs)
    return np.where(spread > 0.0, 1.0 / np.maximum(spread, 1.0 / LARGEST), 1.0)


def kernel_of(options: LocalOptions, gamma: float) -> Kernel:
    """The kernel whose feature space has the neighbours."""
    kernel = options.kernel
    return Kernel(kernel.name, gamma=gamma, degree=kernel.degree, coef0=kernel.coef0)


def class_factors(class_weight: Any, classes: np.ndarray[Any, Any], codes: IntArray) -> FloatArray | None:
    """Factors of C by class, or None; "balanced" counts all rows, not those of a neighbourhood.

    A class that has no row yet has the factor 1 then.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str) and class_weight == "balanced":
        counts = np.bincount(codes, minlength=len(classes))
        return np.where(counts > 0, len(codes) / (np.count_nonzero(counts) * np.maximum(counts, 1)), 1.0)
    factors = compute_class_weight(class_weight, classes=classes, y=classes[codes])
    return np.asarray(factors, dtype=np.float64)
