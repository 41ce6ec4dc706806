"""Exact nearest neighbours in a kernel's feature space, in one order whatever the search.

Neighbours are ordered by (squared distance, number of the training row). The distance is that of `feature_space`, whose
value depends on the two rows and the kernel alone, so that duplicates, grids and rows with both labels have one answer.

    tree        svelto's tree of boxes: dense rows; for polynomial kernels, over their features where these are few
    kd_tree     SciPy's cKDTree, rescored      ball_tree   scikit-learn's BallTree, rescored
    brute       every row, by matrix products: CSR rows, polynomial kernels with many features, many dimensions
    faiss       a flat index of faiss, rescored
    auto        the tree where it leaves out most rows, otherwise brute

Invariant: row numbers and distances do not depend on the method, the batch, the threads or the instruction set.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from scipy import sparse

from svelto._inputs import as_floats
from svelto._options import check_choice, check_whole
from svelto._threads import thread_count
from svelto._typing import FloatArray, IndexArray, IntArray, Rows
from svelto.kernels import Kernel
from svelto.training._local.blocked_search import BlockedSearch
from svelto.training._local.feature_space import FeatureSpace
from svelto.training._local.library_search import FaissSearch, LibraryTree
from svelto.training._local.mapped_search import MappedSearch, mapped_width
from svelto.training._local.tree_search import TreeSearch

METHODS: Final = ("auto", "tree", "kd_tree", "ball_tree", "brute", "faiss")
DENSE_ONLY: Final = ("tree", "kd_tree", "ball_tree", "faiss")
# Nanoseconds (AVX-512, one thread; only their ratios matter): the tree's for a number of an image and for a row that it
# measures, with so much more for a feature; those of a matrix product and what follows for a row and for a feature.
TREE_NUMBER, TREE_ROW, TREE_FEATURE = 0.2, 30.0, 0.3
BRUTE_ROW, BRUTE_FEATURE = 12.0, 0.025
# Rows that are asked to find out what the tree leaves out, for this many neighbours.
PROBE_ROWS: Final = 64
PROBE_NEIGHBOURS: Final = 50
# Squares of larger numbers may overflow.
MOST_VALUE: Final = 1e150
# Few rows need no probe: a tree of them is never far behind.
SMALL: Final = 2_000
# Answers made at a time where candidates are rescored, in numbers.
BLOCK_NUMBERS: Final = 1_000_000


class NeighbourIndex:
    """Training rows, ready to be asked for the nearest.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_rows, n_features)
        Finite rows. float64 in C order is kept without a copy.
    kernel : Kernel, optional
        Whose feature space: rbf, linear, poly. None is Euclidean.
    method : str, default="auto"
        See the module's text.
    n_jobs : int, optional
        Threads for building and, unless a call says otherwise, for searching.
    build : bool, default=True
        Whether to build the search now; otherwise the first query does.

    Attributes
    ----------
    method : str
        The search in use; "auto" until it is built.
    X : ndarray or CSR matrix of float64
        The rows.
    """

    # Of rows that are asked about in batches, the share whose answers may turn out not to be needed.
    waste = 0.05

    def __init__(
        self,
        X: Rows,
        kernel: Kernel | None = None,
        *,
        method: str = "auto",
        n_jobs: int | None = None,
        build: bool = True,
    ):
        check_choice("neighbors", method, METHODS)
        self.X = _as_rows(X)
        self.space = FeatureSpace.of(kernel)
        self.n_jobs = n_jobs
        if self.n_rows == 0 or self.n_features == 0:
            raise ValueError(f"X has shape {self.X.shape}; expected at least one row and one feature.")
        if self.n_rows >= 2**30:
            raise ValueError(f"X has {self.n_rows} rows; one index holds fewer than {2**30}.")
        _check_size("X", self.X)
        if method in DENSE_ONLY and sparse.issparse(self.X):
            raise ValueError(f"neighbors={method!r} needs dense rows; use neighbors='brute' for sparse ones.")
        has_tree = method == "tree" and mapped_width(self.space, self.n_features, self.n_rows) is not None
        if method in DENSE_ONLY and not self.space.euclidean and not has_tree:
            few = "" if method != "tree" else " or a polynomial one with few monomials"
            raise ValueError(f"neighbors={method!r} needs a kernel of Euclidean order{few}; use neighbors='brute'.")
        self._brute: BlockedSearch | None = None
        self._search: Any = None
        self.method = method
        if build:
            self._build()

    @property
    def n_rows(self) -> int:
        """Training rows."""
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """Width of the rows."""
        return int(self.X.shape[1])

    def __getstate__(self) -> dict[str, Any]:
        # Searches are made of the rows again, in a second or two; a pickle would hold them several times.
        return {**self.__dict__, "_search": None, "_brute": None}

    @classmethod
    def like(cls, other: NeighbourIndex, X: Rows) -> NeighbourIndex:
        """An index of other rows in the same feature space."""
        made = cls.__new__(cls)
        made.X, made.space, made.n_jobs, made.method = _as_rows(X), other.space, other.n_jobs, other.method
        made._brute = made._search = None
        return made

    def _build(self) -> None:
        # The search is put in place when it is ready: threads that ask at one time may build it twice, no more.
        method, search = self._choose() if self.method == "auto" else (self.method, None)
        if search is None:
            if method == "tree":
                search = self._tree()
            elif method in ("kd_tree", "ball_tree"):
                search = LibraryTree(self.X, method)
            elif method == "faiss":
                search = FaissSearch(self.X)
            else:
                search = self._blocked()
        self.method, self._search = method, search

    def _tree(self) -> TreeSearch | MappedSearch:
        threads = thread_count(self.n_jobs)
        return TreeSearch(self.X, threads) if self.space.euclidean else MappedSearch(self.X, self.space, threads)

    def _blocked(self) -> BlockedSearch:
        if self._brute is None:
            self._brute = BlockedSearch(self.X, self.space)
        return self._brute

    def _choose(self) -> tuple[str, Any]:
        """The tree, unless it looks at so many rows that a matrix product over all of them is cheaper."""
        width = self.n_features if self.space.euclidean else mapped_width(self.space, self.n_features, self.n_rows)
        if sparse.issparse(self.X) or width is None:
            return "brute", None
        search = self._tree()
        if self.n_rows <= SMALL:
            return "tree", search
        tree, images = (search.tree, search.rows) if isinstance(search, MappedSearch) else (search, self.X)
        probe = images[:: -(-self.n_rows // PROBE_ROWS)]
        numbers, rows = tree.search(probe, PROBE_NEIGHBOURS, 1)[2]
        tree_cost = TREE_NUMBER * numbers + (TREE_ROW + TREE_FEATURE * width) * rows
        brute_cost = (BRUTE_ROW + BRUTE_FEATURE * self.n_features) * self.n_rows * len(probe)
        return ("tree", search) if tree_cost <= brute_cost else ("brute", None)

    def query(self, Q: Rows, k: int, *, n_jobs: int | None = None) -> tuple[IntArray, FloatArray]:
        """The k nearest training rows of every query.

        Parameters
        ----------
        Q : ndarray or CSR matrix of shape (n_queries, n_features)
            Finite rows; dense queries may ask CSR rows and the other way round.
        k : int
            At most the number of training rows.
        n_jobs : int, optional
            Threads; the index's own where not given.

        Returns
        -------
        index : ndarray of int32, shape (n_queries, k)
            Numbers of training rows, nearest first.
        sq_dist : ndarray of float64, shape (n_queries, k)
            Squared distances in the feature space.
        """
        check_whole("k", k, 1)
        if k > self.n_rows:
            raise ValueError(f"k is {k}; the index has {self.n_rows} rows.")
        rows = self._queries(Q)
        if self._search is None:
            self._build()
        threads = thread_count(self.n_jobs if n_jobs is None else n_jobs)
        k = int(k)
        if isinstance(self._search, TreeSearch):
            nearest: tuple[IntArray, FloatArray, Any] = self._search.search(rows, k, threads)
            return nearest[:2]
        index = np.empty((rows.shape[0], k), dtype=np.int32)
        sq_dist = np.empty((rows.shape[0], k))
        step = max(1, BLOCK_NUMBERS // max(k, 1))
        for start in range(0, rows.shape[0], step):
            part = slice(start, start + step)
            self._query_block(rows[part], k, threads, index[part], sq_dist[part])
        return index, sq_dist

    def nearest(self, Q: Rows, *, n_jobs: int | None = None) -> IntArray:
        """The nearest training row of every query."""
        index: IntArray = self.query(Q, 1, n_jobs=n_jobs)[0][:, 0]
        return index

    def _query_block(self, Q: Rows, k: int, threads: int, index: IntArray, sq_dist: FloatArray) -> None:
        if not isinstance(self._search, FaissSearch | MappedSearch):
            self._rescore(self._search, Q, k, threads, index, sq_dist)
            return
        row, rest = self._search.candidates(Q, k, threads)
        self._settle(Q, np.repeat(np.arange(len(Q)), row.shape[1]), row.ravel(), index, sq_dist)
        # Rows that were not named may be as near as the k-th: these queries look at every row.
        unsettled = np.flatnonzero(~(rest > sq_dist[:, -1] * (1.0 + 1e-9)))
        if row.shape[1] < self.n_rows and len(unsettled):
            found, distance = np.empty((len(unsettled), k), np.int32), np.empty((len(unsettled), k))
            self._rescore(self._blocked(), Q[unsettled], k, threads, found, distance)
            index[unsettled], sq_dist[unsettled] = found, distance

    def _rescore(self, search: Any, Q: Rows, k: int, threads: int, index: IntArray, sq_dist: FloatArray) -> None:
        """Fill in the nearest of what a search names."""

        def settle(start: int, stop: int, query: IndexArray, row: IndexArray) -> None:
            self._settle(Q[start:stop], query, row, index[start:stop], sq_dist[start:stop])

        search.candidates(Q, k, threads, settle)

    def _settle(self, Q: Rows, query: IndexArray, row: IndexArray, index: IntArray, sq_dist: FloatArray) -> None:
        """Fill in the k nearest of the candidates, by (distance, row); every query has at least k."""
        distance = self.space.pair_distances(self.X, Q, row, query)
        order = np.lexsort((row, distance, query))
        start = np.searchsorted(query[order], np.arange(len(index)))
        chosen = order[start[:, None] + np.arange(index.shape[1])]
        index[...], sq_dist[...] = row[chosen], distance[chosen]

    def _queries(self, Q: Rows) -> Rows:
        if Q.shape[1] != self.n_features:
            raise ValueError(f"The index has {self.n_features} features; the queries have {Q.shape[1]}.")
        if sparse.issparse(self.X):
            rows = _as_rows(Q if sparse.issparse(Q) else sparse.csr_matrix(Q))
        else:
            rows = _as_rows(Q.toarray() if sparse.issparse(Q) else Q)
        _check_size("The query rows", rows)
        return rows


def _check_size(name: str, rows: Rows) -> None:
    """Refuse what has no distances: squares that overflow, NaN."""
    values = rows.data if sparse.issparse(rows) else rows
    largest = max(values.max(initial=0.0), -values.min(initial=0.0))
    if not largest <= MOST_VALUE:
        raise ValueError(f"{name}: the largest value is {largest:.3g}: squared distances overflow. Scale the features.")


def _as_rows(X: Rows) -> Rows:
    """float64 rows, in C order or as canonical CSR."""
    if not sparse.issparse(X):
        return np.ascontiguousarray(as_floats(np.asarray(X)), dtype=np.float64)
    rows = sparse.csr_matrix(X, dtype=np.float64)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows
