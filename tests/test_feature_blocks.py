"""Which features are discrete, and which are one category."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_array_equal

from svelto.feature_blocks import FeatureBlocks
from svelto.oracle import Neighbourhoods

RNG = np.random.default_rng(0)


def one_hot(n: int, n_values: int, low: float = 0.0, high: float = 1.0) -> np.ndarray:
    return np.where(np.eye(n_values, dtype=bool)[RNG.integers(n_values, size=n)], high, low)


def test_numbers_categories_and_flags():
    n = 2000
    flags = RNG.integers(0, 2, size=(n, 2)).astype(float)  # often set together: two blocks
    X = np.hstack(
        [RNG.normal(size=(n, 2)), one_hot(n, 4), flags, one_hot(n, 3, -1.0, 1.0), RNG.integers(6, size=(n, 1))]
    )
    found = FeatureBlocks.of(X)
    assert_array_equal(found.discrete, [False] * 2 + [True] * 10)
    assert_array_equal(found.block, [0, 1, 2, 2, 2, 2, 3, 4, 5, 5, 5, 6])
    assert found.n_blocks == 7


def test_categories_side_by_side_are_two_blocks():
    X = np.hstack([one_hot(3000, 5), one_hot(3000, 6)])
    assert_array_equal(FeatureBlocks.of(X).block, [0] * 5 + [1] * 6)


def test_blocks_that_tell_each_other_are_one():
    """A grade as a category and again as a number; a category and its coarser form, not side by side."""
    n = 3000
    grade, colour, loose = RNG.integers(6, size=(3, n))
    told = np.where(RNG.random(n) < 0.001, 0, grade)  # a slip of the pen is no other rule
    X = np.hstack(
        [
            np.eye(6)[grade],
            np.eye(4)[colour % 4],
            told[:, None],
            np.eye(2)[colour % 4 // 2],
            np.eye(6)[np.where(RNG.random(n) < 0.1, loose, grade)],  # often told, but not always
            RNG.normal(size=(n, 1)),
        ]
    )
    assert_array_equal(FeatureBlocks.of(X).block, [0] * 6 + [1] * 4 + [0] + [1] * 2 + [2] * 6 + [3])


def test_a_number_moves_with_the_block_that_tells_it():
    n = 2000
    grade = RNG.integers(5, size=n)
    X = np.column_stack([np.eye(5)[grade], grade, RNG.normal(size=n)])
    near = Neighbourhoods(X, 0)
    for made in (near.shifted(500, 0.9, RNG), near.between(500, RNG)):
        assert_array_equal(made[:, :5].argmax(axis=1), made[:, 5])
        assert_array_equal(made[:, :5].sum(axis=1), 1.0)


def test_rare_flags_tell_nothing():
    """The mostly absent is mostly absent, whatever else is: no rule."""
    X = (RNG.random((3000, 6)) < [0.001, 0.004, 0.01, 0.03, 0.1, 0.5]).astype(float)
    X[:, 1] = np.maximum(X[:, 1], X[:, 2] * (RNG.random(3000) < 0.3))  # not one block
    assert FeatureBlocks.of(X[:, 2:]).n_blocks == 4


def test_few_rows_and_constants():
    assert not FeatureBlocks.of(RNG.normal(size=(5, 3))).discrete.any()
    constant = FeatureBlocks.of(np.ones((500, 3)))
    assert_array_equal(constant.block, [0, 1, 2])
    assert FeatureBlocks.of(RNG.integers(2, size=(500, 1)).astype(float)).n_blocks == 1


def test_common_values():
    n = 2000
    often = np.where(RNG.random(n) < 0.3, -1.0, RNG.normal(size=n))
    rare = np.where(RNG.random(n) < 0.05, 0.0, RNG.normal(size=n))
    found = FeatureBlocks.of(np.column_stack([often, rare, RNG.integers(3, size=n), RNG.normal(size=n)]))
    assert_array_equal(found.common, [-1.0, np.nan, np.nan, np.nan])
    assert not found.all_smooth
    assert FeatureBlocks.of(RNG.normal(size=(n, 2))).all_smooth


def test_common_values_are_there_or_not():
    blocks = FeatureBlocks(
        np.array([False, True]), np.array([0.0, np.nan]), np.arange(2), np.full(2, -np.inf), np.full(2, np.inf), {}
    )
    rows, one = np.array([[0.0, 1.0], [2.0, 1.0], [0.0, 1.0]]), np.array([[3.0, 2.0], [3.0, 2.0], [0.0, 1.0]])
    moved, choice = 0.5 * (rows + one), np.array([[3.0, 2.0], [2.0, 1.0], [0.0, 1.0]])
    made = blocks.likely(rows, moved, one, choice=choice, rng=RNG)
    assert_array_equal(made, [[3.0, 2.0], [2.5, 1.0], [0.0, 1.0]])


def test_counts_move_to_the_next_value():
    counts = RNG.choice([0.0, 1.0, 4.0], size=(500, 1))
    blocks = FeatureBlocks.of(counts)
    assert_array_equal(blocks.steps[0], [0.0, 1.0, 4.0])
    for moved, low, high, share in (
        (0.3, 0.0, 1.0, 0.3),
        (2.5, 1.0, 4.0, 0.5),
        (9.0, 4.0, 4.0, 1.0),
        (-2.0, 0.0, 0.0, 1.0),
    ):
        rows = np.ones((4000, 1))
        made = blocks.likely(rows, np.full_like(rows, moved), rows, choice=rows, rng=RNG)
        assert set(np.unique(made)) == {low, high}
        assert abs(np.mean(made == high) - share) < 0.05


def test_bounds_that_rows_share_are_not_left():
    X = np.column_stack([np.clip(RNG.normal(size=2000), -1.0, np.inf), RNG.normal(size=2000)])
    found = FeatureBlocks.of(X)
    assert_array_equal(found.low, [-1.0, -np.inf])
    assert_array_equal(found.high, np.inf)
    assert not found.all_smooth
    moved = np.full((3, 2), -7.0)
    made = found.likely(moved + 9.0, moved, moved + 9.0, choice=moved, rng=RNG)
    assert_array_equal(made, [[-1.0, -7.0]] * 3)
