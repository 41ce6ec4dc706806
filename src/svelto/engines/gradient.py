"""Scores of a machine and their gradients at many points: two blocked products.

For a kernel with value k(x, s) the gradient of one term is

    rbf          -2 gamma k (x - s)
    exponential  -gamma k (x - s) / ||x - s||      (0 where x = s: the kink's symmetric derivative)
    poly         gamma degree (gamma x.s + coef0)^(degree - 1) s
    sigmoid      gamma (1 - k^2) s
    linear       s

so the gradient of the sum is a product of the matrix of factors with the support vectors. For rbf the fused exact
engine computes both products at once: the features of the support vectors are further columns of weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

from svelto._inputs import Query
from svelto._typing import FloatArray
from svelto.engines.exact import ExactEngine
from svelto.kernels import Kernel
from svelto.machine import KernelMachine
from svelto.voting import pairs

DIFFERENTIABLE: Final = ("rbf", "exponential", "poly", "sigmoid", "linear")
# Kernel values held at a time (float64): 32 MB.
BLOCK_VALUES: Final = 4_000_000

Parts = tuple[FloatArray, FloatArray]


def values_and_gradients(machine: KernelMachine, points: FloatArray, n_jobs: int | None = None) -> Parts:
    """Scores (n, n_scores) and gradients (n, n_scores, d) at points in the space of the support vectors.

    Parameters
    ----------
    machine : KernelMachine
        With a kernel of `DIFFERENTIABLE`; its scaling and front are not applied.
    points : ndarray of shape (n, d)
        Dense rows.
    n_jobs : int, optional
        Threads of the native part.
    """
    vectors = machine.support_vectors
    S = vectors.toarray() if sparse.issparse(vectors) else np.asarray(vectors)
    if not machine.is_grouped:
        values, gradients = _sums(machine.kernel, S, machine.dual_coef, points, n_jobs)
        return values + machine.intercept, gradients
    # One-vs-one: the vectors of class i take part in its pairs only, each with a row of its own (LIBSVM's layout).
    assert machine.n_support is not None
    stop = np.cumsum(machine.n_support)
    parts = [
        _sums(machine.kernel, S[last - n : last], machine.dual_coef[:, last - n : last], points, n_jobs)
        for n, last in zip(machine.n_support, stop, strict=True)
    ]
    values = np.empty((len(points), machine.n_scores))
    gradients = np.empty((len(points), machine.n_scores, points.shape[1]))
    for p, (i, j) in enumerate(pairs(machine.n_classes)):
        values[:, p] = parts[i][0][:, j - 1] + parts[j][0][:, i] + machine.intercept[p]
        gradients[:, p] = parts[i][1][:, j - 1] + parts[j][1][:, i]
    return values, gradients


def _sums(kernel: Kernel, S: FloatArray, coef: FloatArray, points: FloatArray, n_jobs: int | None) -> Parts:
    if len(S) == 0:
        n, d = points.shape
        return np.zeros((n, len(coef))), np.zeros((n, len(coef), d))
    if kernel.name == "rbf":
        return _rbf_sums(kernel, S, coef, points, n_jobs)
    n, d = points.shape
    values, gradients = np.empty((n, len(coef))), np.empty((n, len(coef), d))
    step = max(1, BLOCK_VALUES // len(S))
    for start in range(0, n, step):
        block = slice(start, start + step)
        K, F, centred = FACTORS[kernel.name](kernel, points[block], S)
        values[block] = K @ coef.T
        for r, row in enumerate(coef):
            weighted = F * row
            gradients[block, r] = weighted @ S
            if centred:
                gradients[block, r] = weighted.sum(axis=1)[:, None] * points[block] - gradients[block, r]
    return values, gradients


def _rbf_sums(kernel: Kernel, S: FloatArray, coef: FloatArray, points: FloatArray, n_jobs: int | None) -> Parts:
    """Sum a_i k and sum a_i k s_i as the columns of one machine; gradient = 2 gamma (sum a k s - x sum a k)."""
    n, d = points.shape
    centre = S.mean(axis=0)  # distances do not change, and the two sums cancel less
    S, points = S - centre, points - centre
    columns = np.concatenate([np.vstack([row, row * S.T]) for row in coef])
    machine = KernelMachine(
        kernel=kernel,
        support_vectors=S,
        dual_coef=columns,
        intercept=np.zeros(len(columns)),
        task="regression",
        rule="value",
        n_features=d,
    )
    engine = ExactEngine(machine, "float64")
    values, gradients = np.empty((n, len(coef))), np.empty((n, len(coef), d))
    step = max(1, BLOCK_VALUES // len(columns))
    for start in range(0, n, step):
        block = slice(start, start + step)
        sums = engine.scores(Query(np.ascontiguousarray(points[block])), n_jobs, "float64")
        sums = sums.reshape(len(sums), len(coef), d + 1)
        values[block] = sums[:, :, 0]
        gradients[block] = 2.0 * kernel.gamma * (sums[:, :, 1:] - sums[:, :, :1] * points[block, None, :])
    return values, gradients


def _exponential(kernel: Kernel, X: FloatArray, S: FloatArray) -> tuple[FloatArray, FloatArray, bool]:
    dist = cdist(X, S)
    K = np.exp(-kernel.gamma * dist)
    factor = np.divide(-kernel.gamma * K, dist, out=np.zeros_like(K), where=dist > 0)
    return K, factor, True


def _poly(kernel: Kernel, X: FloatArray, S: FloatArray) -> tuple[FloatArray, FloatArray, bool]:
    inner = kernel.gamma * (X @ S.T) + kernel.coef0
    if kernel.degree == 0:
        return np.ones_like(inner), np.zeros_like(inner), False
    below = inner ** (kernel.degree - 1)
    return below * inner, kernel.gamma * kernel.degree * below, False


def _sigmoid(kernel: Kernel, X: FloatArray, S: FloatArray) -> tuple[FloatArray, FloatArray, bool]:
    K = np.tanh(kernel.gamma * (X @ S.T) + kernel.coef0)
    return K, kernel.gamma * (1.0 - K * K), False


def _linear(kernel: Kernel, X: FloatArray, S: FloatArray) -> tuple[FloatArray, FloatArray, bool]:
    K = X @ S.T
    return K, np.ones_like(K), False


# Kernel values, the factor of the gradient, and whether that is to be multiplied with x - s (else with s).
FACTORS: Final[dict[str, Callable[[Kernel, FloatArray, FloatArray], tuple[FloatArray, FloatArray, bool]]]] = {
    "exponential": _exponential,
    "poly": _poly,
    "sigmoid": _sigmoid,
    "linear": _linear,
}
