"""Rows that are equal, number by number.

Rows are put in order of a 64-bit sum over their bits; rows with one sum are compared.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from scipy import sparse

from svelto._typing import IndexArray, Rows

# Rows whose bits are summed at a time.
BLOCK_ROWS: Final = 16_384


class Copies:
    """The copies of any row among float64 rows, dense or canonical CSR; sums are made when they are first needed."""

    def __init__(self, X: Rows):
        self.X = X
        self._sums: Any = None
        self._order: Any = None

    def of(self, row: int) -> IndexArray:
        """Numbers of the rows equal to a row, itself among them, ascending."""
        if self._order is None:
            self._sums = _bit_sums(self.X)
            self._order = np.argsort(self._sums, kind="stable")
        own = self._sums[row]
        first, last = (np.searchsorted(self._sums, own, side, sorter=self._order) for side in ("left", "right"))
        rows: IndexArray = self._order[first:last]
        if sparse.issparse(self.X):
            difference = abs(self.X[rows] - self.X[np.full(len(rows), row)])
            equal = np.asarray(difference.max(axis=1).todense()).ravel() == 0.0
        else:
            equal = (self.X[rows] == self.X[row]).all(axis=1)
        same: IndexArray = rows[equal]
        return same


def _bit_sums(X: Rows) -> Any:
    weights = np.random.default_rng(0).integers(1, 2**63, size=X.shape[1], dtype=np.uint64) | np.uint64(1)
    if sparse.issparse(X):
        terms = (X.data + 0.0).view(np.uint64) * weights[X.indices]
        running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
        return running[X.indptr[1:]] - running[X.indptr[:-1]]
    sums = np.empty(X.shape[0], dtype=np.uint64)
    for start in range(0, X.shape[0], BLOCK_ROWS):
        block = X[start : start + BLOCK_ROWS] + 0.0  # -0.0 becomes 0.0
        sums[start : start + BLOCK_ROWS] = (block.view(np.uint64) * weights).sum(axis=1, dtype=np.uint64)
    return sums
