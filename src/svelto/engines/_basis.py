"""Vectors for a reduced set: what is approximated, how far off a basis leaves it, and three ways to choose one.

A machine f is approximated by g(x) = sum_j beta_j k(x, t_j) + c. A `Target` measures the distance between them by

    E(g) = sum_i w_i |g(x_i) - f(x_i)|^2  +  penalty |g - f|^2

over rows x_i with weights that add up to one, and in the kernel's feature space, which needs no rows. The second term
is the ridge: it pulls towards the machine instead of towards zero, so that g stays close to f where no row was. For
given vectors, E is quadratic in beta; `Target.system` gives its normal equations.

    k-means    centres of support vectors and rows
    greedy     one candidate after the other, each the one that lowers E most; twice as many as wanted, then those that
               raise E least leave again (orthogonal least squares, forward and backward)
    preimage   the k-means centres moved freely: E as a function of the vectors alone, beta being solved for at every
               step (variable projection), by L-BFGS; for the RBF kernel

Invariant: float64 throughout. Gram matrices of smooth kernels have condition numbers that float32 does not survive.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
from scipy import linalg, sparse
from scipy.optimize import minimize
from sklearn.cluster import MiniBatchKMeans
from threadpoolctl import threadpool_limits

from svelto._typing import FloatArray, Rows
from svelto.kernels import Kernel

RandomState = np.random.RandomState
Indices = np.ndarray[Any, np.dtype[np.intp]]
Equations = tuple[FloatArray, FloatArray, FloatArray, FloatArray]

BLOCK_ROWS: Final = 2048
FULL_VALUES: Final = 2**24  # 128 MB
# ijcnn1 (3,273 support vectors, 256 to 384 kept): 2,000 to 4,000 candidates and 3,000 to 10,000 rows settle the same
# share of the test rows within 0.5 points; support vectors and rows together do as well as either alone or better.
CANDIDATES: Final = 3000
FORWARD_ROWS: Final = 4000
BACKWARD_ROWS: Final = 20_000
# Going forward to n, 2 n, 3 n and 4 n and back to n = 256: 0.934, 0.982, 0.980 and 0.974 of the rows settled.
FORWARD_FACTOR: Final = 2
# A candidate is in the span of those chosen once this share of its own square is left.
SPAN_TOLERANCE: Final = 1e-10
# Enough for centres that are a start.
KMEANS_POINTS: Final = 20_000
# 5,000, 10,000 and 20,000 rows, 128 vectors: 0.992 of the rows settled every time.
MOVE_ROWS: Final = 5000
# About as many kernel values a step for the feature space as for the rows.
STAND_IN_VECTORS: Final = 3000
# Vectors are chosen for the 32 largest principal directions of the scores: one-vs-one machines have hundreds of scores.
DIRECTIONS: Final = 32
LANDMARKS: Final = 1000


def take(rows: Rows, which: Any) -> Rows:
    """Those rows in float64, dense or CSR as they were."""
    return rows[which].astype(np.float64)


def stack(first: Rows, second: Rows) -> Rows:
    """Rows below each other: CSR if both are, dense otherwise."""
    if sparse.issparse(first) and sparse.issparse(second):
        return sparse.vstack([first, second], format="csr")
    return np.vstack([dense(first), dense(second)])


def dense(rows: Rows) -> FloatArray:
    """The rows as a float64 array."""
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows, dtype=np.float64)


def kernel_values(kernel: Kernel, X: Rows, T: Rows) -> FloatArray:
    """`kernel(X, T)`, with squared distances from a matrix product where that is possible."""
    if sparse.issparse(X) and sparse.issparse(T) and T.shape[0] * T.shape[1] <= FULL_VALUES:
        T = T.toarray()  # a product of two sparse matrices that is full takes longest
    if kernel.name not in ("rbf", "exponential"):
        return kernel(X, T)
    if not sparse.issparse(X) and not sparse.issparse(T):
        centre = T.mean(axis=0)  # products of rows far from the origin would cancel
        X, T = X - centre, T - centre
    scale = kernel.gamma if kernel.name == "rbf" else 1.0
    product = X @ (2.0 * scale * T).T
    values = np.asarray(product.toarray() if sparse.issparse(product) else product)
    values -= scale * _sq_norms(X)[:, None]
    values -= scale * _sq_norms(T)
    np.minimum(values, 0.0, out=values)  # minus the (scaled) squared distance
    if kernel.name == "exponential":
        np.negative(values, out=values)
        np.sqrt(values, out=values)
        values *= -kernel.gamma
    np.exp(values, out=values)
    return values


def is_definite(kernel: Kernel) -> bool:
    """Whether the kernel has a feature space, so that distances in it are never negative."""
    is_power_series = kernel.name == "poly" and kernel.gamma >= 0 and kernel.coef0 >= 0
    return is_power_series or kernel.name in ("rbf", "exponential", "laplacian")


def some(rows: Rows, n: int, rng: RandomState) -> Rows:
    """At most n of the rows, in their order."""
    if rows.shape[0] <= n:
        return take(rows, slice(None))
    return take(rows, np.sort(rng.choice(rows.shape[0], n, replace=False)))


def _sq_norms(X: Rows) -> FloatArray:
    if sparse.issparse(X):
        return np.asarray(X.multiply(X).sum(axis=1)).ravel()
    norms: FloatArray = np.einsum("ij,ij->i", X, X)
    return norms


@dataclass(frozen=True)
class Target:
    """What a reduced set approximates.

    Attributes
    ----------
    kernel : Kernel
        The kernel of both machines.
    vectors, coef : (n_sv, n_features) and (n_sv, n_scores)
        The machine's sum, one column of weights for each score.
    rows, scores, weights : (n_rows, n_features), (n_rows, n_scores) and (n_rows,)
        Where the scores are compared, the scores there, and positive weights (made to add up to one); rows is None for
        a pure projection.
    penalty : float
        Weight of the distance in feature space.
    """

    kernel: Kernel
    vectors: Rows
    coef: FloatArray
    rows: Rows
    scores: FloatArray
    weights: FloatArray
    penalty: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", self.weights / self.weights.sum())

    def sampled(self, rng: RandomState, n_rows: int) -> Target:
        """The same with at most so many rows, drawn without replacement."""
        if self.rows is None or self.rows.shape[0] <= n_rows:
            return self
        which = np.sort(rng.choice(self.rows.shape[0], n_rows, replace=False))
        return replace(self, rows=self.rows[which], scores=self.scores[which], weights=self.weights[which])

    def compressed(self) -> Target:
        """The same for the main directions of many scores; E is a sum over scores, so a rotation leaves it as it is."""
        n_scores = self.coef.shape[1]
        if n_scores <= DIRECTIONS:
            return self
        spread = self.scores - self.scores.mean(axis=0) if self.rows is not None else self.coef
        main = linalg.eigh(spread.T @ spread, subset_by_index=(n_scores - DIRECTIONS, n_scores - 1))[1]
        return replace(self, coef=self.coef @ main, scores=self.scores @ main)

    @cached_property
    def landmarks(self) -> tuple[Rows, FloatArray]:
        """Support vectors whose scores stand in for the feature space of an indefinite kernel, and these scores."""
        Z = self.vectors[:: -(-self.vectors.shape[0] // LANDMARKS)]
        return Z, self.sums(Z)

    def sums(self, T: Rows) -> FloatArray:
        """Scores of the machine at T, intercept left out."""
        parts = _parts(T.shape[0])
        return np.vstack([kernel_values(self.kernel, take(T, part), self.vectors) @ self.coef for part in parts])

    def distance(self, T: Rows) -> tuple[FloatArray, FloatArray]:
        """R and Q of |g - f|^2 = beta R beta - 2 beta Q + constant."""
        if is_definite(self.kernel):
            return kernel_values(self.kernel, T, T), self.sums(T)
        Z, sums = self.landmarks
        values = kernel_values(self.kernel, T, Z)
        return values @ values.T / Z.shape[0], values @ sums / Z.shape[0]

    def system(self, T: Rows) -> Equations:
        """Normal equations A beta = B of E, and the means of c = mean_scores - mean_values beta."""
        R, Q = self.distance(T) if self.penalty > 0 else (0.0, 0.0)
        return self.assemble((self.compare(part, T) for part in self.parts), T.shape[0], R, Q)

    @property
    def parts(self) -> list[slice]:
        """Blocks of rows."""
        return [] if self.rows is None else _parts(self.rows.shape[0])

    def compare(self, part: slice, T: Rows) -> tuple[FloatArray, ...]:
        """Kernel values of a block of rows, and its share of A, B and the means."""
        values = kernel_values(self.kernel, take(self.rows, part), T)
        scores, weights = self.scores[part], self.weights[part]
        scaled = values * np.sqrt(weights)[:, None]  # NumPy computes half of a product with its own transpose
        return values, scaled.T @ scaled, values.T @ (scores * weights[:, None]), weights @ values, weights @ scores

    def assemble(self, compared: Iterable[tuple[FloatArray, ...]], m: int, R: Any, Q: Any) -> Equations:
        """Add up the blocks.

        Kernel values and scores count from their weighted means, which is what solving for the intercept too amounts
        to. A pure projection keeps the machine's intercept: its means are zero.
        """
        n_scores = self.coef.shape[1]
        A, B = np.zeros((m, m)) + self.penalty * R, np.zeros((m, n_scores)) + self.penalty * Q
        mean_values, mean_scores = np.zeros(m), np.zeros(n_scores)
        for _, a, b, of_values, of_scores in compared:
            A += a
            B += b
            mean_values += of_values
            mean_scores += of_scores
        A -= np.outer(mean_values, mean_values)
        B -= np.outer(mean_values, mean_scores)
        if not (np.isfinite(A).all() and np.isfinite(B).all()):
            raise ValueError(f"Values of the kernel {self.kernel} are too large to sum; scale the data or lower gamma.")
        return A, B, mean_values, mean_scores


def _parts(n: int) -> list[slice]:
    return [slice(start, start + BLOCK_ROWS) for start in range(0, n, BLOCK_ROWS)]


def solve(A: FloatArray, B: FloatArray) -> FloatArray:
    """A^-1 B for a matrix that is positive up to rounding: the diagonal is raised until Cholesky succeeds."""
    size = float(np.abs(A.diagonal()).mean()) or 1.0
    for exponent in range(-13, 13):
        raised = A.copy()
        raised.flat[:: len(A) + 1] += 10.0**exponent * size
        try:
            result: FloatArray = linalg.cho_solve(linalg.cho_factor(raised, lower=True), B)
        except linalg.LinAlgError:
            continue
        if np.isfinite(result).all():
            return result
    raise AssertionError("a finite matrix with a raised diagonal has a Cholesky factor")


# -- k-means -------------------------------------------------------------------------------------------------------


def kmeans(vectors: Rows, rows: Rows, n_basis: int, rng: RandomState) -> FloatArray:
    """Centres of the support vectors and as many rows, at most one for each distinct point."""
    n = min(vectors.shape[0], KMEANS_POINTS // 2)
    points = stack(some(vectors, n, rng), some(rows, n, rng))
    n_clusters = min(n_basis, _count_distinct(points))
    # Mini-batches: on several threads full k-means adds up in an order that is not the same every time.
    seed = rng.randint(2**31 - 1)
    clusters = MiniBatchKMeans(n_clusters, n_init=1, max_iter=10, batch_size=2048, random_state=seed)
    return np.asarray(clusters.fit(points).cluster_centers_, dtype=np.float64)


def _count_distinct(points: Rows) -> int:
    if not sparse.issparse(points):
        return len({point.tobytes() for point in points})
    parts = [slice(*ends) for ends in pairwise(points.indptr)]
    return len({points.indices[part].tobytes() + points.data[part].tobytes() for part in parts})


# -- greedy --------------------------------------------------------------------------------------------------------


def greedy(target: Target, rows: Rows, n_basis: int, rng: RandomState) -> Rows:
    """Support vectors and rows, chosen forward and backward."""
    target = target.compressed()
    candidates = _candidates(target.vectors, rows, max(CANDIDATES, 3 * n_basis), rng)
    A, B, *_ = target.sampled(rng, FORWARD_ROWS).system(candidates)
    chosen = take(candidates, forward(A, B, FORWARD_FACTOR * n_basis))
    if chosen.shape[0] <= n_basis:
        return chosen
    A, B, *_ = target.sampled(rng, BACKWARD_ROWS).system(chosen)
    return chosen[backward(A, B, n_basis)]


def _candidates(vectors: Rows, rows: Rows, n: int, rng: RandomState) -> Rows:
    """As many support vectors as rows, where there are enough of both."""
    n_vectors, n_rows = vectors.shape[0], rows.shape[0]
    from_vectors = min(n_vectors, max(n // 2, n - n_rows))
    return stack(some(vectors, from_vectors, rng), some(rows, n - from_vectors, rng))


def forward(A: FloatArray, B: FloatArray, n_chosen: int) -> Indices:
    """Columns in the order in which each lowers E most, given those before: a pivoted Cholesky factor of A, row by row.

    Chosen columns are factored out of all the others: `left` is what remains of A's diagonal, `slope` of B.
    """
    n_chosen = min(n_chosen, len(A))
    factor = np.empty((n_chosen, len(A)))
    left, slope = A.diagonal().copy(), B.copy()
    least = SPAN_TOLERANCE * left
    chosen: list[int] = []
    for k in range(n_chosen):
        gain = np.where(left > least, np.einsum("ij,ij->i", slope, slope) / np.where(left > least, left, 1.0), 0.0)
        j = int(gain.argmax())
        if gain[j] <= 0.0:
            break
        factor[k] = (A[j] - factor[:k, j] @ factor[:k]) / np.sqrt(left[j])
        slope -= np.outer(factor[k], slope[j] / factor[k, j])
        left -= factor[k] ** 2
        left[j] = 0.0
        chosen.append(j)
    # All scores zero: nothing lowers E. One vector makes a machine.
    return np.array(chosen or [0], dtype=np.intp)


def backward(A: FloatArray, B: FloatArray, n_kept: int) -> Indices:
    """Columns that stay when, one at a time, the one leaves whose loss raises E least."""
    inverse = np.asfortranarray(solve(A, np.eye(len(A))))
    beta = inverse @ B
    kept = np.ones(len(A), dtype=bool)
    for _ in range(len(A) - n_kept):
        own = inverse.diagonal()
        rise = np.where(kept, np.einsum("ij,ij->i", beta, beta) / np.where(kept, np.maximum(own, 1e-300), 1.0), np.inf)
        j = int(rise.argmin())
        column = inverse[:, j].copy()
        beta -= np.outer(column, beta[j] / column[j])
        inverse = linalg.blas.dger(-1.0 / column[j], column, column, a=inverse, overwrite_a=True)
        kept[j] = False
    return np.flatnonzero(kept)


# -- preimage ------------------------------------------------------------------------------------------------------


def preimage(target: Target, start: FloatArray, max_iter: int, rng: RandomState, n_threads: int) -> FloatArray:
    """Vectors near a minimum of E, from those given; RBF kernel."""
    few = _stand_in(target.compressed().sampled(rng, MOVE_ROWS), rng)
    is_sparse = sparse.issparse(few.vectors) or sparse.issparse(few.rows)
    centre = np.zeros(start.shape[1]) if is_sparse else start.mean(axis=0)  # a shifted sparse matrix would be full
    few = replace(few, vectors=_shift(few.vectors, centre), rows=None if few.rows is None else _shift(few.rows, centre))
    with ThreadPoolExecutor(n_threads) as pool, threadpool_limits(1):
        valley = _Valley(few, pool)

        def value_and_slope(flat: FloatArray) -> tuple[float, FloatArray]:
            value, slope = valley(flat.reshape(start.shape))
            return value, slope.ravel()

        # Twenty pairs of L-BFGS vectors; fewer where they would take more than 1 GB.
        memory = int(np.clip(2**30 / (16 * start.size), 3, 20))
        options = {"maxiter": max_iter, "maxcor": memory, "ftol": 1e-10, "gtol": 0.0}
        result = minimize(value_and_slope, (start - centre).ravel(), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(result.x, dtype=np.float64).reshape(start.shape) + centre


def _shift(rows: Rows, centre: FloatArray) -> Rows:
    return take(rows, slice(None)) if sparse.issparse(rows) else np.asarray(rows, dtype=np.float64) - centre


def _stand_in(target: Target, rng: RandomState) -> Target:
    """A machine of many vectors projected onto some of them: every step costs a kernel value for each."""
    if target.vectors.shape[0] <= 2 * STAND_IN_VECTORS or target.penalty == 0:
        return target
    vectors = some(target.vectors, STAND_IN_VECTORS, rng)
    return replace(target, vectors=vectors, coef=solve(*target.distance(vectors)))


class _Valley:
    """E at its best beta as a function of the vectors T, with its gradient.

    At the best beta the derivative by beta vanishes, so that T's own share is the whole gradient. Blocks go to threads
    and are added in their order: the sums do not depend on the number of threads.
    """

    def __init__(self, target: Target, pool: ThreadPoolExecutor) -> None:
        self.target = target
        self.pool = pool

    def __call__(self, T: FloatArray) -> tuple[float, FloatArray]:
        target, kernel, penalty = self.target, self.target.kernel, self.target.penalty
        vector_parts = _parts(target.vectors.shape[0]) if penalty > 0 else []
        compared = list(self.pool.map(lambda part: target.compare(part, T), target.parts))
        to_vectors = list(
            self.pool.map(lambda part: kernel_values(kernel, take(target.vectors, part), T), vector_parts)
        )
        R = kernel_values(kernel, T, T)
        Q = np.zeros((len(T), target.coef.shape[1]))
        for values, part in zip(to_vectors, vector_parts, strict=True):
            Q += values.T @ target.coef[part]
        A, B, mean_values, mean_scores = target.assemble(compared, len(T), R, Q)
        beta = solve(A, B)
        intercept = mean_scores - mean_values @ beta

        def pull_rows(part: slice, block: tuple[FloatArray, ...]) -> tuple[float, FloatArray]:
            residual = block[0] @ beta + intercept - target.scores[part]
            weighted = residual * target.weights[part, None]
            return float(np.vdot(weighted, residual)), _pull(block[0], weighted, beta, target.rows[part], T)

        def pull_vectors(part: slice, values: FloatArray) -> FloatArray:
            return _pull(values, -penalty * target.coef[part], beta, target.vectors[part], T)

        value = penalty * float(np.vdot(beta, R @ beta) - 2.0 * np.vdot(beta, Q))
        slope = _pull(R, penalty * beta, beta, T, T)
        for share, by_rows in self.pool.map(pull_rows, target.parts, compared):
            value += share
            slope += by_rows
        for by_vectors in self.pool.map(pull_vectors, vector_parts, to_vectors):
            slope += by_vectors
        return value, 4.0 * kernel.gamma * slope


def _pull(values: FloatArray, left: FloatArray, beta: FloatArray, X: Rows, T: FloatArray) -> FloatArray:
    """sum_i left_i.beta_j k(x_i, t_j) (x_i - t_j) for every j: half of gamma's share of a derivative by t_j."""
    if left.shape[1] == 1:  # no matrix of the size of `values` is needed
        weighted = X.multiply(left).tocsr() if sparse.issparse(X) else X * left
        return np.asarray(beta * ((weighted.T @ values).T - (values.T @ left) * T))
    by_value = left @ beta.T
    by_value *= values
    return np.asarray((X.T @ by_value).T - by_value.sum(axis=0)[:, None] * T)
