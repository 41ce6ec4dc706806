"""Few sparse rows are written out and answered at once: the same answers, and the same words for wrong rows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.svm import SVC

import svelto
from svelto.cascade import Cascade
from svelto.sparse_block import MOST_FEATURES, spread_few

WIDTH = 30
X = sparse.random_array((1500, WIDTH), density=0.3, format="csr", rng=np.random.default_rng(0))
Y = (X @ np.linspace(-1.0, 1.0, WIDTH) > 0.05).astype(int) + (X.sum(axis=1) > 5.0)
SVM = SVC(C=10.0).fit(sparse.csr_matrix(X), Y)
NEW = sparse.random_array((200, WIDTH), density=0.3, format="csr", rng=np.random.default_rng(1))


@pytest.fixture(scope="module", params=["hinges", "taylor_tree", "reduced_set"])
def fast(request):
    own = {"hinges": {"n_hinges": 31}, "taylor_tree": {}, "reduced_set": {"n_basis": 32, "max_iter": 20}}[request.param]
    return svelto.accelerate(
        SVM, X, method=request.param, agreement=0.97, random_state=0, n_jobs=1, oracle_rows=4000, **own
    )


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_answers_are_those_of_many_rows(fast, kind, dtype, monkeypatch):
    rows = kind(NEW.astype(dtype))
    expected = fast.predict(rows)
    monkeypatch.setattr(Cascade, "labels", None)  # the long way is closed, but to rows that no stage settles
    n_short = 0
    for i in range(rows.shape[0]):
        try:
            answer = fast.predict(rows[i : i + 1])
        except TypeError:
            continue
        n_short += 1
        assert_array_equal(answer, expected[i : i + 1])
    assert n_short > 150


def test_a_few_rows(fast):
    assert_array_equal(np.concatenate([fast.predict(NEW[i : i + 8]) for i in range(0, 200, 8)]), fast.predict(NEW))


def row(data, indices, row_start=None, width=WIDTH, **options):
    """A matrix of one row, or of what is given, whose arrays nobody has checked."""
    made = sparse.csr_array((1 if row_start is None else len(row_start) - 1, width))
    made.data = np.asarray(data, dtype=options.get("dtype", np.float64))
    made.indices = np.asarray(indices, dtype=options.get("index", np.int32))
    made.indptr = np.asarray([0, len(data)] if row_start is None else row_start, dtype=options.get("index", np.int32))
    return made


def test_plain_rows_are_written_out():
    block = spread_few(row([1.0, 2.0, 3.0], [4, 7, 0], [0, 2, 2, 3]), 16, WIDTH)
    expected = np.zeros((3, WIDTH))
    expected[[0, 0, 2], [4, 7, 0]] = 1.0, 2.0, 3.0
    assert_array_equal(block, expected)
    assert spread_few(row([1.5], [0], dtype=np.float32), 16, WIDTH).dtype == np.float32


@pytest.mark.parametrize(
    "rows",
    [
        row([1.0, 2.0], [5, 3]),
        row([1.0, 2.0], [5, 5]),
        row([1.0], [WIDTH]),
        row([1.0], [-1]),
        row([1.0, 2.0], [3, 4], [0, 3]),
        row([1.0, 2.0], [3, 4], [0, 2, 1]),
        row([1.0, 2.0], [3, 4], [1, 2]),
        row([1.0, 2.0], [3]),
        row([1], [3], dtype=np.int64),
        row([1.0], [3], index=np.int64),
        row([1.0, 9.0, 2.0, 9.0], [3, 0, 4, 0])[:, ::2],
        sparse.csr_array((17, WIDTH)),
        sparse.csr_array((1, WIDTH + 1)),
        sparse.csr_array(np.ones(WIDTH)),
    ],
    ids=[
        "unsorted",
        "doubled",
        "index too large",
        "negative index",
        "row ends behind the data",
        "row ends before it starts",
        "first row starts late",
        "fewer indices",
        "whole numbers",
        "long indices",
        "narrower",
        "many rows",
        "wide",
        "one dimension",
    ],
)
def test_others_are_left_to_the_long_way(rows):
    assert spread_few(rows, 16, WIDTH) is None


def test_very_wide_rows_are_left_to_the_long_way():
    assert spread_few(sparse.csr_array((1, MOST_FEATURES)), 16, MOST_FEATURES) is not None
    assert spread_few(sparse.csr_array((1, MOST_FEATURES + 1)), 16, MOST_FEATURES + 1) is None


def test_views_with_gaps_are_left_to_the_long_way():
    rows = row([1.0, 2.0], [3, 4])
    rows.data = np.arange(4.0)[::2]
    assert spread_few(rows, 16, WIDTH) is None


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (row([1.0], [WIDTH]), "damaged"),
        (row([np.nan], [0]), "NaN"),
        (row([np.inf], [0]), "infinity"),
        (sparse.csr_array((1, WIDTH + 1)), f"trained on {WIDTH} features; X has {WIDTH + 1}"),
        (sparse.csr_array((0, WIDTH)), "no rows"),
        (sparse.csr_array(np.ones(WIDTH)), "dimension"),
    ],
    ids=["damaged", "nan", "infinity", "wide", "empty", "one dimension"],
)
def test_wrong_rows_get_the_same_words(fast, rows, message):
    with pytest.raises(ValueError, match=message):
        fast.predict(rows)


def test_doubled_entries_are_added_up(fast):
    doubled = row([0.25, 0.5], [3, 3])
    assert_array_equal(fast.predict(doubled), fast.predict(row([0.75], [3])))
