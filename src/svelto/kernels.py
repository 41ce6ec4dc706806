"""The kernels, one definition each.

A `Kernel` is a name and its numbers. Calling it on two sets of rows gives the float64 matrix of
kernel values: the readable definition that every fast path is tested against, and the working
path for kernels that have no native code (precomputed values and Python callables).

    rbf          exp(-gamma ||x - s||^2)
    exponential  exp(-gamma ||x - s||)
    laplacian    exp(-gamma ||x - s||_1)
    poly         (gamma x.s + coef0) ^ degree
    sigmoid      tanh(gamma x.s + coef0)
    linear       x.s
    precomputed  the query row already holds the kernel values
    callable     function(X, S) -> matrix, on any objects
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

from svelto._typing import FloatArray, Rows

KERNEL_NAMES: Final = (
    "rbf",
    "exponential",
    "laplacian",
    "poly",
    "sigmoid",
    "linear",
    "precomputed",
    "callable",
)
NATIVE_KERNELS: Final = frozenset(("rbf", "exponential", "laplacian", "poly", "sigmoid", "linear"))
# The numbers that each of LIBSVM's kernels on vectors takes.
LIBSVM_NUMBERS: Final = {
    "linear": (),
    "rbf": ("gamma",),
    "sigmoid": ("gamma", "coef0"),
    "poly": ("gamma", "coef0", "degree"),
}


@dataclass(frozen=True)
class Kernel:
    """A kernel function: its name and its parameters.

    Parameters
    ----------
    name : str
        One of ``KERNEL_NAMES``.
    gamma : float
        Positive for the kernels that decrease with distance, any finite number for poly and sigmoid.
    coef0 : float
        The constant of poly and sigmoid.
    degree : int
        The power of poly.
    function : callable, optional
        ``function(X, S)`` returns the matrix of kernel values; only for ``name="callable"``.
    """

    name: str
    gamma: float = 1.0
    coef0: float = 0.0
    degree: int = 3
    function: Callable[[Any, Any], Any] | None = None

    def __post_init__(self) -> None:
        if self.name not in KERNEL_NAMES:
            raise ValueError(f"Unknown kernel {self.name!r}. Expected one of {', '.join(KERNEL_NAMES)}, or a callable.")
        for label, value in (("gamma", self.gamma), ("coef0", self.coef0)):
            if not math.isfinite(value):
                raise ValueError(f"{label} is {value}; expected a finite number.")
        if self.name in ("rbf", "exponential", "laplacian") and self.gamma < 0:
            raise ValueError(f"gamma is {self.gamma}; the {self.name} kernel needs gamma >= 0.")
        if self.name == "poly" and (self.degree < 0 or self.degree != int(self.degree)):
            raise ValueError(f"degree is {self.degree}; the poly kernel needs a whole number >= 0.")
        if (self.name == "callable") != (self.function is not None):
            raise ValueError("A kernel function goes with name='callable', and only with it.")

    @property
    def has_native_code(self) -> bool:
        """Whether the native core evaluates this kernel on vectors."""
        return self.name in NATIVE_KERNELS

    def __call__(self, X: Rows, S: Rows) -> FloatArray:
        """Kernel values of every row of X with every row of S, in float64."""
        if self.name == "callable":
            assert self.function is not None
            return np.asarray(self.function(X, S), dtype=np.float64)
        if self.name == "precomputed":
            return np.asarray(_dense(X)[:, np.asarray(S)], dtype=np.float64)
        if self.name in ("poly", "sigmoid", "linear"):
            product = _product(X, S)
            if self.name == "linear":
                return product
            inner = self.gamma * product + self.coef0
            return inner**self.degree if self.name == "poly" else np.tanh(inner)
        metric = {"rbf": "sqeuclidean", "exponential": "euclidean", "laplacian": "cityblock"}[self.name]
        distance: FloatArray = cdist(_dense(X), _dense(S), metric)
        return np.exp(-self.gamma * distance)

    def __str__(self) -> str:
        if self.name in ("rbf", "exponential", "laplacian"):
            return f"{self.name}(gamma={self.gamma:.6g})"
        if self.name == "poly":
            return f"poly(gamma={self.gamma:.6g}, coef0={self.coef0:.6g}, degree={self.degree})"
        if self.name == "sigmoid":
            return f"sigmoid(gamma={self.gamma:.6g}, coef0={self.coef0:.6g})"
        if self.name == "callable":
            return f"callable({getattr(self.function, '__name__', repr(self.function))})"
        return self.name


def _dense(X: Rows) -> FloatArray:
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)


def _product(X: Rows, S: Rows) -> FloatArray:
    product = X @ S.T
    return np.asarray(product.toarray() if sparse.issparse(product) else product, dtype=np.float64)
