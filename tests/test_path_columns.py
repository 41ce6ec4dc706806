"""The two native functions that grow trees of kernel values: sums of columns, and rows sorted into children."""

from __future__ import annotations

import numpy as np
import pytest

from svelto import _core


@pytest.mark.parametrize(
    ("n", "m", "p"), [(0, 3, 1), (1, 1, 1), (2, 16, 2), (127, 17, 3), (1000, 100, 10), (3001, 1500, 4), (9, 5, 0)]
)
def test_column_sums_match_the_definition(n, m, p):
    rng = np.random.default_rng(n)
    values = rng.random((n + 7, m), dtype=np.float32)
    rows = values[3 : 3 + n].astype(np.float64)
    side = rng.integers(0, 3, n).astype(np.uint8)
    weight, residuals = rng.random(n), rng.normal(size=(n, p))
    results = []
    for n_threads in (1, 2, 5):
        norms, products = np.full((2, m), np.nan), np.full((2, p, m), np.nan)
        _core.column_sums(values, 3, 3 + n, side, weight, residuals, norms, products, n_threads)
        results.append((norms, products))
    for other in results:
        np.testing.assert_array_equal(other[0], results[0][0])
        np.testing.assert_array_equal(other[1], results[0][1])
    for s in (0, 1):
        own = np.where(side == s, weight, 0.0)[:, None]
        # Terms are rounded to float32, and added in float32 within runs.
        np.testing.assert_allclose(norms[s], (own * rows**2).sum(axis=0), rtol=1e-5)
        terms = np.abs(own * residuals).T @ rows
        assert (np.abs(products[s] - (own * residuals).T @ rows) <= 1e-6 * terms).all()


def test_column_sums_of_many_rows_stay_accurate():
    n = 1_000_000
    values = np.full((n, 1), 0.7, dtype=np.float32)
    norms, products = np.empty((2, 1)), np.empty((2, 1, 1))
    side, weight, ones = np.zeros(n, dtype=np.uint8), np.ones(n), np.ones((n, 1))
    _core.column_sums(values, 0, n, side, weight, ones, norms, products, 1)
    value = float(values[0, 0])
    np.testing.assert_allclose([norms[0, 0], products[0, 0, 0]], [n * value**2, n * value], rtol=1e-6)
    np.testing.assert_array_equal([norms[1, 0], products[1, 0, 0]], 0.0)


def test_column_sums_refuse_wrong_shapes():
    good = {
        "values": np.zeros((5, 3), dtype=np.float32),
        "first": 1,
        "last": 5,
        "side": np.zeros(4, dtype=np.uint8),
        "weight": np.zeros(4),
        "residuals": np.zeros((4, 2)),
        "norms": np.zeros((2, 3)),
        "products": np.zeros((2, 2, 3)),
        "n_threads": 1,
    }
    _core.column_sums(**good)
    for name, value, message in (
        ("last", 6, "rows are out of range"),
        ("first", -1, "rows are out of range"),
        ("first", 2, "side and rows disagree"),
        ("weight", np.zeros(5), "weight, residuals and rows disagree"),
        ("residuals", np.zeros((3, 2)), "weight, residuals and rows disagree"),
        ("norms", np.zeros((2, 4)), "norms or products has a wrong shape"),
        ("products", np.zeros((2, 1, 3)), "norms or products has a wrong shape"),
    ):
        with pytest.raises(ValueError, match=message):
            _core.column_sums(**{**good, name: value})
    for name, value in (("values", np.zeros((5, 3))), ("values", np.zeros((5, 6), dtype=np.float32)[:, ::2])):
        with pytest.raises(TypeError):
            _core.column_sums(**{**good, name: value})


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("n", [0, 1, 2, 100])
def test_partition_moves_rows_and_their_numbers(n, share):
    rng = np.random.default_rng(n)
    values = rng.random((n + 5, 9), dtype=np.float32)
    side = (rng.random(n) < share).astype(np.uint8)
    moved, order = values.copy(), np.arange(n + 5)
    assert _core.partition_rows(moved, order, 2, 2 + n, side) == (side == 0).sum()
    np.testing.assert_array_equal(np.sort(order), np.arange(n + 5))
    np.testing.assert_array_equal(moved, values[order])
    np.testing.assert_array_equal(side[order[2 : 2 + n] - 2], np.sort(side))
    np.testing.assert_array_equal(order[[0, 1, -3, -2, -1]], np.arange(n + 5)[[0, 1, -3, -2, -1]])


def test_partition_refuses_wrong_arguments():
    values, order = np.zeros((4, 2), dtype=np.float32), np.arange(4)
    with pytest.raises(ValueError, match="a side is neither 0 nor 1"):
        _core.partition_rows(values, order, 0, 4, np.full(4, 2, dtype=np.uint8))
    with pytest.raises(ValueError, match="rows are out of range"):
        _core.partition_rows(values, order, 0, 5, np.zeros(5, dtype=np.uint8))
    with pytest.raises(ValueError, match="rows_order and values disagree"):
        _core.partition_rows(values, order[:3], 0, 4, np.zeros(4, dtype=np.uint8))
    values.flags.writeable = False
    with pytest.raises(TypeError):
        _core.partition_rows(values, order, 0, 4, np.zeros(4, dtype=np.uint8))
