"""Models of single leaves, where rows are few or all alike."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from svelto.engines.leaf_models import refine

RNG = np.random.default_rng(3)


def refined(rows, residuals, centre):
    """Change of slope and value of the only leaf."""
    slope, value = np.zeros((1, 1, rows.shape[1])), np.zeros((1, 1))
    ones, leaf = np.ones((len(rows), 1)), np.zeros(len(rows), dtype=np.intp)
    refine(slope, value, centre[None, :], rows, residuals[:, None], ones, leaf, 0.3, 1)
    return slope[0, 0], value[0, 0]


@pytest.mark.parametrize("n", [2, 7, 50])
@pytest.mark.parametrize("d", [3, 20])
def test_copies_of_one_row_say_nothing_about_slopes(n, d):
    """Their mean is not quite the row, and the difference is no direction."""
    row = RNG.random(d)
    slope, value = refined(np.tile(row, (n, 1)), np.full(n, 0.25) + 1e-9 * RNG.normal(size=n), row + 0.1)
    assert_array_equal(slope, 0.0)
    assert value == pytest.approx(0.25 * n / (n + 1))


def test_rows_that_differ_by_little_still_do():
    rows = RNG.random(4) + 1e-6 * RNG.normal(size=(500, 4))
    centre = rows.mean(axis=0)
    true = np.array([1.0, -2.0, 0.5, 0.0])
    slope, _ = refined(rows, (rows - centre) @ true, centre)
    assert_allclose(slope, true, rtol=0.3, atol=0.3)
    assert np.abs(slope).max() < 2.0
