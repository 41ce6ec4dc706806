"""Rows that wait for the next stage of a cascade: the right ones, copied no more often than needed."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from svelto._inputs import Query
from svelto.open_rows import OpenRows, take_rows

X = np.arange(24.0).reshape(8, 3)
FORMS = {"dense": X, "columns first": np.asfortranarray(X), "csr": sparse.csr_array(X), "objects": list("abcdefgh")}


def plain(rows):
    return rows.toarray() if sparse.issparse(rows) else np.asarray(rows)


@pytest.mark.parametrize("form", FORMS)
def test_rows_by_number(form):
    numbers = np.array([1, 4, 5])
    assert_array_equal(plain(take_rows(FORMS[form], numbers)), plain(FORMS[form])[numbers])


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("numbers", [[], [0], [1, 2], [3, 0, 3], [0, 1, 2, 3]])
def test_rows_of_any_length(numbers, index):
    rows = sparse.csr_matrix(np.array([[1.0, 0, 2], [0, 0, 0], [0, 3, 0], [4, 5, 6]]))
    rows.indptr, rows.indices = rows.indptr.astype(index), rows.indices.astype(index)
    part = take_rows(rows, np.array(numbers, dtype=np.intp))
    assert type(part) is type(rows)
    assert_array_equal(part.toarray(), rows.toarray()[numbers])


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_fewer_and_fewer(form, read):
    """Whether rows were read in between makes no difference."""
    waiting = OpenRows(Query(FORMS[form], scale=True))
    expected = np.arange(8)
    for chosen in ([1, 1, 0, 1, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1], [0, 1, 0, 1, 1, 1], [0, 0, 0, 0]):
        if read:
            assert_array_equal(plain(waiting.query.rows), plain(FORMS[form])[expected])
        waiting = waiting.where(np.array(chosen, dtype=bool))
        expected = expected[np.array(chosen, dtype=bool)]
        assert_array_equal(waiting.numbers, expected)
        assert len(waiting) == len(expected)
        assert waiting.query.scale
    assert len(waiting) == 0


def test_nothing_is_copied_twice():
    query = Query(X)
    assert OpenRows(query).query is query
    waiting = OpenRows(query, np.array([2, 3]))
    assert waiting.query is waiting.query
    assert waiting.where(np.array([True, True])) is waiting
