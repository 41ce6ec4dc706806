"""Exact neighbours by other people's indexes: SciPy's kd-tree, scikit-learn's ball tree, faiss.

Libraries round in their own ways and break ties as they like, so they are asked for candidates only. The k-th smallest
exact distance of what they name bounds the k-th nearest from above, and the last distance they report bounds everything
they did not name from below. Where the two are not apart by more than rounding (ties, duplicates), a tree is asked for
everything within the bound, and a query of faiss looks at every row.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from scipy.spatial import cKDTree
from sklearn.neighbors import BallTree

from svelto._typing import FloatArray, IndexArray
from svelto.training._local.blocked_search import Candidates, Settle

# Room for the rounding of distances: a share of them, and of the largest numbers in play (a ball tree takes a radius
# off the distance of a centre).
SHARE: Final = 1e-9
SCALE_SHARE: Final = 1e-12
# Rows closer together may be at the exact distance 0: squares underflow.
UNDERFLOW: Final = 1e-150
# More rows than asked for that are worth their cost, so that few queries are left unsettled.
SPARE: Final = 1
FAISS_SPARE: Final = 16
# Queries answered between two looks for Ctrl-C.
QUERIES_PER_CALL: Final = 2_048


class LibraryTree:
    """SciPy's or scikit-learn's tree over dense rows."""

    def __init__(self, X: FloatArray, method: str):
        self.n_rows = len(X)
        self.centre = X.mean(axis=0)
        largest = float(np.abs(X - self.centre).max())
        # A power of two, where the library's squares would overflow or underflow.
        self.factor = 1.0 if 1e-100 < largest < 1e100 or largest == 0.0 else float(np.ldexp(1.0, -np.frexp(largest)[1]))
        self.scale = self.factor * largest * np.sqrt(X.shape[1])
        if self.factor != 1.0:
            X = X * self.factor
        # Cuts at the middle: ten times faster than at the median on rows that fill few of their dimensions.
        self.tree: Any = cKDTree(X, balanced_tree=False) if method == "kd_tree" else BallTree(X)

    def candidates(self, Q: FloatArray, k: int, n_threads: int, settle: Settle) -> None:
        """As `BlockedSearch.candidates`."""
        for start in range(0, len(Q), QUERIES_PER_CALL):
            stop = min(start + QUERIES_PER_CALL, len(Q))
            settle(start, stop, *self._block(Q[start:stop], k, n_threads))

    def _block(self, Q: FloatArray, k: int, n_threads: int) -> Candidates:
        Q = Q * self.factor
        size = min(self.n_rows, k + SPARE)
        workers = {"workers": n_threads} if isinstance(self.tree, cKDTree) else {}
        distance, row = self.tree.query(Q, k=size, **workers)
        distance, row = distance.reshape(len(Q), size), row.reshape(len(Q), size)
        query = np.repeat(np.arange(len(Q)), size)
        if size == self.n_rows:
            return query, row.ravel()
        scale = self.scale + np.sqrt(((Q - self.factor * self.centre) ** 2).sum(axis=1))
        radius = distance[:, k - 1] * (1.0 + SHARE) + SCALE_SHARE * scale + UNDERFLOW * self.factor
        settled = distance[:, -1] > radius
        if settled.all():
            return query, row.ravel()
        open_ = np.flatnonzero(~settled)
        if isinstance(self.tree, cKDTree):
            within = self.tree.query_ball_point(Q[open_], radius[open_], workers=n_threads)
        else:
            within = self.tree.query_radius(Q[open_], radius[open_])
        keep = settled[query]
        queries = [query[keep], np.repeat(open_, [len(rows) for rows in within])]
        return np.concatenate(queries), np.concatenate([row.ravel()[keep], *(np.asarray(r, np.intp) for r in within)])


class FaissSearch:
    """A flat index of faiss: every float32 distance, then exact ones for the nearest."""

    def __init__(self, X: FloatArray):
        try:
            import faiss
        except ImportError:
            raise ImportError(
                "neighbors='faiss' needs the package faiss, which is not installed. "
                "Run `pip install faiss-cpu`, or use neighbors='auto'."
            ) from None
        self.faiss = faiss
        self.n_rows = len(X)
        self.centre = X.mean(axis=0)
        rows = X - self.centre
        largest = float(np.abs(rows).max())
        # A power of two: float32 squares of rows around 1 neither overflow nor underflow.
        self.factor = float(np.ldexp(1.0, -np.frexp(largest)[1])) if largest > 0.0 else 1.0
        rows *= self.factor
        self.largest = float(np.einsum("ij,ij->i", rows, rows).max())
        self.index = faiss.IndexFlatL2(X.shape[1])
        self.index.add(np.ascontiguousarray(rows, dtype=np.float32))

    def candidates(self, Q: FloatArray, k: int, n_threads: int) -> tuple[IndexArray, FloatArray]:
        """Candidates of every query (one row each), and what the squared distance of all other rows is above."""
        size = min(self.n_rows, k + FAISS_SPARE)
        row = np.empty((len(Q), size), dtype=np.intp)
        rest = np.full(len(Q), np.inf)
        before = self.faiss.omp_get_max_threads()
        self.faiss.omp_set_num_threads(n_threads)
        try:
            for start in range(0, len(Q), QUERIES_PER_CALL):
                part = slice(start, start + QUERIES_PER_CALL)
                queries = (Q[part] - self.centre) * self.factor
                sq_norm = np.einsum("ij,ij->i", queries, queries)
                with np.errstate(over="ignore"):
                    sq_dist, row[part] = self.index.search(np.ascontiguousarray(queries, dtype=np.float32), size)
                if size < self.n_rows:
                    error = 2.0 * (Q.shape[1] + 16) * np.finfo(np.float32).eps * (self.largest + sq_norm)
                    rest[part] = (sq_dist[:, -1] - error - 1e-30) / self.factor / self.factor
        finally:
            self.faiss.omp_set_num_threads(before)
        # A query beyond float32 gets no rows, or ones at no distance.
        lost = (row < 0).any(axis=1) | np.isnan(rest)
        row[lost], rest[lost] = np.arange(size), -np.inf
        return row, rest
