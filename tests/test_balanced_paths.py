"""The best balanced tree against all trees of its class, and against the greedy one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from svelto.engines import balanced_paths
from svelto.engines.balanced_paths import balanced_optimum, count_calls
from svelto.engines.paper_paths import cut_after, grow_paper
from svelto.path_tree import Leaf, Node, flatten


def all_trees(n_columns, height):
    """Every tree as nested tuples (column, left, right), leaves as (column,). Never optimise this one."""
    for j in range(n_columns):
        yield (j,)
        if height > 1:
            below = list(all_trees(n_columns, height - 1))
            for left, right in product(below, below):
                yield (j, left, right)


def cost_of(tree, X, r, min_rows, scale):
    """Cost of one tree by the rules of the class; infinite where it breaks one of them."""
    x = X[:, tree[0]]
    factor = (x @ r / (x @ x) if x @ x else 0.0) if scale else 1.0
    rest = r - factor * x
    if len(tree) == 1:
        return float(rest @ rest)
    order = np.argsort(x, kind="stable")
    half = (len(x) + 1) // 2
    if len(x) <= min_rows or x[order[half - 1]] == x[order[half]]:
        return np.inf
    parts = order[:half], order[half:]
    return sum(cost_of(t, X[rows], rest[rows], min_rows, scale) for t, rows in zip(tree[1:], parts, strict=True))


def some_terms(seed, n, m, ties=False):
    """Terms that float32 holds, so that both trees see the same numbers; the target is their sum."""
    X = np.random.default_rng(seed).normal(size=(n, m))
    X = (np.round(X * 2) if ties else X).astype(np.float32).astype(np.float64)
    return X, X.sum(axis=1)


def greedy(X, r, *, height, min_rows, scale, balanced=True, seed=0):
    values = X.astype(np.float32)
    rng = np.random.default_rng(seed)
    root = grow_paper(
        values,
        np.ones((1, X.shape[1])),
        r[:, None],
        max_evals=height,
        min_rows=min_rows,
        scale=scale,
        balanced=balanced,
        rng=rng,
    )
    return flatten(root, 1)


def squares(tree, X, r):
    return float(((tree.predict(X) - r) ** 2).sum())


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("m", "height", "min_rows"), [(1, 3, 1), (3, 2, 1), (2, 3, 1), (2, 3, 3), (4, 1, 1)])
def test_optimum_of_all_trees(scale, ties, m, height, min_rows):
    for seed in range(12):
        X, r = some_terms(seed, 4 + seed % 5, m, ties)
        cost, root = balanced_optimum(X, r, height=height, min_rows=min_rows, scale=scale)
        every = [cost_of(t, X, r, min_rows, scale) for t in all_trees(m, height)]
        assert_allclose(cost, min(every), rtol=1e-9, atol=1e-12)
        assert_allclose(squares(flatten(root, 1), X, r), cost, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("ties", [False, True])
def test_greedy_is_never_better_than_the_optimum_of_its_class(scale, ties):
    rng = np.random.default_rng(scale)
    worse = 0
    for seed in range(150):
        n, m, height, min_rows = rng.integers(4, 17), rng.integers(2, 7), rng.integers(1, 4), rng.integers(1, 4)
        X, r = some_terms(seed, n, m, ties)
        best, root = balanced_optimum(X, r, height=height, min_rows=min_rows, scale=scale)
        tree = greedy(X, r, height=height, min_rows=min_rows, scale=scale)
        assert tree.height <= height
        assert_allclose(squares(flatten(root, 1), X, r), best, rtol=1e-9, atol=1e-9)
        cost, slack = squares(tree, X, r), 1e-12 * (r @ r)
        assert cost >= best - slack, f"seed {seed}: n {n}, m {m}, height {height}: greedy {cost}, optimum {best}"
        worse += cost > best + slack
        if height == 1:  # one column for all: both try them all
            assert_allclose(cost, best, rtol=1e-5, atol=1e-12)
    assert worse > 30  # the comparison means something


def test_more_height_costs_no_more():
    for seed in range(10):
        X, r = some_terms(seed, 12, 4)
        for scale in (False, True):
            costs = [balanced_optimum(X, r, height=h, scale=scale)[0] for h in (1, 2, 3)]
            assert (np.diff(costs) <= 0).all()


def test_a_node_stays_whole_where_a_split_costs_more():
    X = np.array([[1.0, 5.0], [2.0, 5.5], [3.0, -7.0], [4.0, 8.0]])
    cost, root = balanced_optimum(X, X[:, 0], height=2)  # column 0 is the target: any second column spoils it
    assert cost == 0.0
    assert root.column == 0
    assert isinstance(root.children[0], Leaf)
    assert isinstance(grow_paper_root(X, X[:, 0]).children[0], Node)  # Algorithm 2 does not look


def grow_paper_root(X, r):
    values, coef = X.astype(np.float32), np.ones((1, X.shape[1]))
    return grow_paper(
        values, coef, r[:, None], max_evals=2, min_rows=2, scale=False, balanced=True, rng=np.random.default_rng(0)
    )


def test_free_thresholds_may_be_better():
    """One row apart from all others: a balanced split cannot cut it off."""
    X = np.zeros((8, 2))
    X[:, 0] = [1, 1.125, 1.25, 1.375, 1.5, 1.625, 1.75, 64]
    X[:, 1] = [0, 0, 0, 0, 0, 0, 0, 1]
    r = 2 * X[:, 0]
    r[7] = 1.0
    best, _ = balanced_optimum(X, r, height=2, scale=True)
    assert squares(greedy(X, r, height=2, min_rows=2, scale=True, balanced=False), X, r) < 0.1 * best


def test_middle_row_goes_left_and_ties_do_not_split():
    X = np.array([[1.0, 9.0], [2.0, 9.0], [4.0, 9.0]])
    _, root = balanced_optimum(X, np.array([0.0, 0.0, 7.0]), height=2, scale=True)
    tree = flatten(root, 1)
    assert set(tree.column[tree.test >= 0]) <= {0}
    assert_array_equal(tree.threshold[tree.test >= 0], [3.0])


def test_one_row_and_zero_columns():
    cost, root = balanced_optimum(np.array([[3.0]]), np.array([6.0]), height=5, min_rows=1, scale=True)
    assert cost == 0.0
    assert_array_equal(root.children[0].coef, [[2.0]])
    cost, root = balanced_optimum(np.zeros((4, 2)), np.ones(4), height=3, min_rows=1, scale=True)
    assert cost == 4.0
    assert isinstance(root.children[0], Leaf)


def test_thresholds_between_neighbours_of_double():
    for low in (1.0, np.nextafter(1.0, 2.0), -1e308):
        high = np.nextafter(low, np.inf) if abs(low) < 2 else 1e308
        assert low <= cut_after(np.array([low, high]), 0) < high


def test_calls_are_counted(monkeypatch):
    calls = 0
    original = balanced_paths._optimum

    def counted(*arguments):
        nonlocal calls
        calls += 1
        return original(*arguments)

    monkeypatch.setattr(balanced_paths, "_optimum", counted)
    for n, m, height, min_rows in ((16, 3, 3, 2), (16, 2, 9, 2), (3, 3, 2, 3), (9, 2, 4, 1)):
        calls = 0
        balanced_optimum(*some_terms(0, n, m), height=height, min_rows=min_rows)
        assert 0.5 * count_calls(n, m, height, min_rows) < calls <= count_calls(n, m, height, min_rows)


def test_absurd_inputs_are_refused():
    X, r = some_terms(0, 500, 60)
    with pytest.raises(
        ValueError, match=r"height 6 over 500 rows and 60 columns takes up to 2\.51e\+10 calls.*height=3"
    ):
        balanced_optimum(X, r, height=6)
    with pytest.raises(ValueError, match=r"terms has shape \(500, 60\) and target \(499,\)"):
        balanced_optimum(X, r[1:], height=2)
    with pytest.raises(ValueError, match=r"height is 0 and min_rows is 2"):
        balanced_optimum(X, r, height=0)
    with pytest.raises(ValueError, match=r"not finite"):
        balanced_optimum(X * np.inf, r, height=1)
