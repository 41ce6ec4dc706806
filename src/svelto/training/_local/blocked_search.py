"""Exact neighbours by looking at every row: matrix products first, exact distances for what can be among the nearest.

A block of queries meets the rows chunk by chunk. A product P of rows gives each squared distance to within
a_row + b_query (the error bounds below), so
    P - a_row - b_query <= distance <= P + a_row + b_query,
and a row is a candidate unless its lower bound is above the k-th smallest upper bound so far. Candidates get the
distance that `feature_space` defines. float32 products are tried first; where rows lie too close for them (more
candidates than `MOST_CANDIDATES` for each that is needed), float64 ones follow.

Error bounds. A product of d features with unit rounding u is off by at most (d + 2) u |x||q| <= (d + 2) u
(|x|^2 + |q|^2) / 2. A power of base b, |b| <= B = |gamma||x||q| + |coef0|, turns an error e of its base into at most
degree B^(degree - 1) e, and B^degree is at most the mean of those of (x, x) and (q, q). Twice that and some more is
left for rounding elsewhere, the exact distance's own included.

Invariant: no row that belongs to the k nearest is missing among the candidates.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from svelto._typing import FloatArray, IndexArray, Rows
from svelto.training._local.feature_space import FeatureSpace

# Queries and rows that meet at a time: a megabyte or two of products, which stay in the cache while they are searched.
BLOCK_QUERIES: Final = 128
CHUNK_NUMBERS: Final = 1 << 19
# Queries of CSR blocks are made dense; no more numbers than this at a time.
DENSE_NUMBERS: Final = 1 << 22
MOST_CANDIDATES: Final = 8
# Squared lengths of rows that float32 products are right for.
LEAST_SINGLE: Final = 1e-10
MOST_SINGLE: Final = 1e30
Candidates = tuple[IndexArray, IndexArray]
Settle = Callable[[int, int, IndexArray, IndexArray], None]


class BlockedSearch:
    """Candidates by matrix products.

    Parameters
    ----------
    X : ndarray or CSR matrix of float64
        The rows.
    space : FeatureSpace
        Which distance.
    """

    def __init__(self, X: Rows, space: FeatureSpace):
        self.X = X
        self.space = space
        self.is_sparse = sparse.issparse(X)
        # Poly has no centre; CSR rows would fill up.
        self.centre = np.zeros(X.shape[1]) if self.is_sparse or not space.euclidean else X.mean(axis=0)
        rows = X if self.is_sparse else X - self.centre
        self.floor = 1e-290
        self.constant, self.bound = self._bounds(rows)
        # Products that underflow are off by far less than this, in float32 as in float64.
        self.floor += 1e-20 * float(self.bound.max())
        self.bound += self.floor
        # float32 products of smaller or larger rows would underflow or overflow.
        self.use_single = space.euclidean and bool(LEAST_SINGLE < self.constant.max() < MOST_SINGLE)
        self.single: Any = rows.astype(np.float32) if self.use_single else None
        self.double: Any = None if self.use_single and not self.is_sparse else rows

    def _bounds(self, rows: Rows) -> tuple[FloatArray, FloatArray]:
        """Each row's own part of its distances, and of the error bound in units of the rounding."""
        norm = rows.multiply(rows).sum(axis=1) if sparse.issparse(rows) else np.einsum("ij,ij->i", rows, rows)
        sq_norm = np.asarray(norm, dtype=np.float64).ravel()
        factor = 2.0 * (rows.shape[1] + 16)
        if self.space.euclidean:
            return sq_norm, factor * sq_norm + self.floor
        space = self.space
        with np.errstate(over="ignore"):
            largest = (abs(space.gamma) * sq_norm + abs(space.coef0)) ** space.degree
        if not np.isfinite(largest).all():
            raise ValueError(
                f"Values of the poly kernel of degree {space.degree} overflow (|x|^2 is up to {sq_norm.max():.3g}). "
                "Scale the features."
            )
        return space.kernel_of_products(sq_norm), factor * max(1, space.degree) * largest + self.floor

    def candidates(self, Q: Rows, k: int, n_threads: int, settle: Settle) -> None:
        """Call settle(first query, last query, query of each candidate, row of each candidate) for blocks of queries.

        Queries are numbered within their block. Blocks are settled one by one, so that the copies of a row, which are
        all candidates, do not fill the memory.
        """
        most = BLOCK_QUERIES
        if self.is_sparse:
            most = int(np.clip(DENSE_NUMBERS // Q.shape[1], 1, BLOCK_QUERIES))
        starts = range(0, Q.shape[0], most)

        def block(start: int) -> None:
            stop = min(start + most, Q.shape[0])
            settle(start, stop, *self._block(Q[start:stop], k))

        with threadpool_limits(limits=1, user_api="blas"):
            if n_threads == 1 or len(starts) <= 1:
                for start in starts:
                    block(start)
                return
            with ThreadPoolExecutor(n_threads) as pool:
                list(pool.map(block, starts))

    def _block(self, Q: Rows, k: int) -> Candidates:
        queries = Q if self.is_sparse else Q - self.centre
        constant, bound = self._bounds(queries)
        if self.is_sparse:
            queries = queries.toarray()
        if self.use_single and constant.max(initial=0.0) < MOST_SINGLE:
            found = self._scan(queries, constant, bound, k, np.float32)
            if len(found[0]) <= MOST_CANDIDATES * (k + 16) * len(queries):
                return found
        return self._scan(queries, constant, bound, k, np.float64)

    def _scan(self, queries: FloatArray, constant: FloatArray, bound: FloatArray, k: int, dtype: Any) -> Candidates:
        unit = float(np.finfo(dtype).eps)
        n = self.X.shape[0]
        row_bound = unit * self.bound
        # Everything that depends on the query alone is left out of the comparison, but for its share of the error.
        width = (2.0 * unit * bound)[:, None]
        step = max(k, CHUNK_NUMBERS // max(1, len(queries)), 256)
        left = (queries * (-2.0 if self.space.euclidean else 1.0)).astype(dtype)
        nearest = np.empty((len(queries), 0), dtype=dtype)
        limit = np.full((len(queries), 1), np.inf)
        found: list[tuple[IndexArray, IndexArray, Any]] = []
        for start in range(0, n, step):
            part = slice(start, min(n, start + step))
            upper = self._values(left, part, dtype)
            upper += (self.constant[part] + row_bound[part]).astype(dtype)
            nearest = np.concatenate([nearest, upper], axis=1) if nearest.shape[1] else upper.copy()
            if nearest.shape[1] > k:
                nearest = np.partition(nearest, k - 1, axis=1)[:, :k] if k > 1 else nearest.min(axis=1, keepdims=True)
            if nearest.shape[1] == k:
                # Rounded up: the bounds were added in `dtype` themselves.
                limit = nearest.max(axis=1, keepdims=True).astype(np.float64)
            upper -= (2.0 * row_bound[part]).astype(dtype)
            query, row = np.nonzero(upper <= (limit + width).astype(dtype))
            found.append((query, row + start, upper[query, row]))
        query, row, lower = (np.concatenate(parts) for parts in zip(*found, strict=True))
        left_in = lower <= (limit + width).astype(dtype)[query, 0]
        return query[left_in], row[left_in]

    def _values(self, queries: Any, part: slice, dtype: Any) -> Any:
        """Distances of the queries from a chunk of rows, less the parts that depend on one of them alone."""
        if self.is_sparse:
            rows = (self.single if dtype is np.float32 else self.double)[part]
            products = np.ascontiguousarray((rows @ queries.T).T)
        elif dtype is np.float32:
            products = queries @ self.single[part].T
        else:
            rows = self.double[part] if self.double is not None else self.X[part] - self.centre
            products = queries @ rows.T
        return products if self.space.euclidean else -2.0 * self.space.kernel_of_products(products)
