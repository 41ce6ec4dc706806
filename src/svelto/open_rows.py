"""Rows of a query that are still to be answered: fewer after every stage of a cascade.

They are copied together when the next stage reads them, out of the last copy, which is small; a guard that looks at
them before the stage does reads the same copy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import _safe_indexing

from svelto._inputs import Query, n_rows_of
from svelto._typing import IndexArray, Rows


class OpenRows:
    """Some rows of a query, and their numbers in it.

    Attributes
    ----------
    numbers : ndarray of int
        Numbers of the rows, in their order.
    """

    def __init__(self, query: Query, numbers: IndexArray | None = None) -> None:
        self.numbers: IndexArray = np.arange(n_rows_of(query.rows)) if numbers is None else numbers
        # Rows of `_source` at `_places`; None: all of them, in their order.
        self._source = query
        self._places = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def query(self) -> Query:
        """The rows themselves."""
        if self._places is not None:
            self._source = Query(take_rows(self._source.rows, self._places), self._source.scale)
            self._places = None
        return self._source

    def where(self, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> OpenRows:
        """Those of the rows that are marked; itself where all are."""
        if chosen.all():
            return self
        places = np.flatnonzero(chosen)
        part = OpenRows(self._source, places if self._places is None else self._places[places])
        part.numbers = self.numbers[places]
        return part


def take_rows(rows: Rows, numbers: IndexArray) -> Rows:
    """Rows by their numbers; matrices directly, because scikit-learn's checks take longer than some stages."""
    if isinstance(rows, np.ndarray):
        part: Rows = rows[numbers]
        return part
    if sparse.issparse(rows) and rows.format == "csr":
        return _take_csr(rows, numbers)
    return _safe_indexing(rows, numbers)


def _take_csr(rows: Any, numbers: IndexArray) -> Any:
    """SciPy's own indexing takes twice as long for a few rows."""
    start = rows.indptr[numbers]
    counts = rows.indptr[numbers + 1] - start
    indptr = np.zeros(len(numbers) + 1, dtype=rows.indptr.dtype)
    np.cumsum(counts, out=indptr[1:])
    places = np.arange(indptr[-1]) + np.repeat(start - indptr[:-1], counts)
    parts = (rows.data[places], rows.indices[places], indptr)
    return type(rows)(parts, shape=(len(numbers), rows.shape[1]))
