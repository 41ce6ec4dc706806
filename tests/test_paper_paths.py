"""Trees of paper S1 against Algorithms 2 to 5 by brute force, and the edges of their input."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from svelto.engines import paper_paths
from svelto.engines.paper_paths import Columns, Part, Split, cut_after, find_split, grow_paper, sides, threshold_costs
from svelto.path_tree import Leaf, Node, flatten

# Columns are chosen by float32 sums: a choice may miss the best by this share of the sum of the squares it works on.
CHOICE = 2e-6


def slow_column_sums(values, first, last, side, weight, residuals, norms, products, n_threads):
    """The definition of `column_sums`, in double. Never optimise this one."""
    v = values[first:last].astype(np.float64)
    for s in (0, 1):
        w = weight * (side == s)
        norms[s] = w @ v**2
        products[s] = (w[:, None] * residuals).T @ v


def slow_partition_rows(values, order, first, last, side):
    rows = first + np.argsort(side, kind="stable")
    values[first:last], order[first:last] = values[rows], order[rows]
    return int((side == 0).sum())


def slow_cost(X, r, rows, j, scale):
    """Cost of column j on some rows: |X_j - r|^2, with the best factor of each score where columns are scaled."""
    x, r = X[:, rows, j], r[rows].T  # (P, rows)
    if scale:
        v = x[np.abs(x).sum(axis=1).argmax()]  # all scores have multiples of one value
        x = np.outer(r @ v / (v @ v), v) if v @ v else np.zeros_like(x)
    return float(((x - r) ** 2).sum())


def slow_optimize_columns(X, r, left, scale):
    """Algorithm 4: costs of all pairs (left column, right column)."""
    m = X.shape[2]
    costs = [[slow_cost(X, r, rows, j, scale) for j in range(m)] for rows in (left, ~left)]
    return np.add.outer(*costs)


def slow_optimize_threshold(v, errors):
    """Algorithm 5: (threshold, cost) of the best threshold among the values, both sides nonempty."""
    tried = [(errors[0, v <= t].sum() + errors[1, v > t].sum(), t) for t in np.unique(v)[:-1]]
    cost, t = min(tried)
    return t, cost


def some_input(seed, n=40, m=7, n_scores=1, ties=False):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, m)).astype(np.float32)
    if ties:
        values = np.round(values * 1.5).astype(np.float32)
    coef = rng.normal(size=(n_scores, m))
    return values, coef, values.astype(np.float64) @ coef.T


def terms_of(values, coef):
    """X (P, n, m)."""
    return coef[:, None, :] * values.astype(np.float64)


def grow(values, coef, target, seed=0, **options):
    """A tree grown on a copy, so that the values of a test stay in order."""
    return grow_paper(values.copy(), coef, target, rng=np.random.default_rng(seed), **options)


def tree_of(values, coef, target, **options):
    return flatten(grow(values, coef, target, **options), len(coef))


def same_trees(a, b):
    for name in ("column", "test", "threshold", "children", "coef", "constant"):
        assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def part_of(values, target):
    return Part(0, len(values), np.ascontiguousarray(target))


def order_of(v):
    by = v.argsort(kind="stable")
    return by, np.flatnonzero(v[by[:-1]] < v[by[1:]])


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("n_scores", [1, 3])
def test_optimize_columns_tries_all_columns(scale, n_scores):
    for seed in range(20):
        values, coef, target = some_input(seed, n_scores=n_scores)
        left = np.random.default_rng(seed).random(len(values)) < 0.4
        choice = Columns(values, coef, scale, 1).optimize_columns(part_of(values, target), (~left).astype(np.uint8))
        costs = slow_optimize_columns(terms_of(values, coef), target, left, scale)
        assert costs[choice.columns] <= costs.min() + CHOICE * (target**2).sum()
        assert_allclose(choice.errors[0, left].sum() + choice.errors[1, ~left].sum(), costs[choice.columns], rtol=1e-9)


@pytest.mark.parametrize("ties", [False, True])
def test_optimize_threshold_tries_all_thresholds(ties):
    for seed in range(30):
        rng = np.random.default_rng(seed)
        v = some_input(seed, ties=ties)[0][:, 0].astype(np.float64)
        errors = rng.random((2, len(v)))
        by, cuts = order_of(v)
        costs = threshold_costs(errors[:, by])
        best = cuts[costs[cuts].argmin()]
        t, cost = slow_optimize_threshold(v, errors)
        assert v[by[best]] == t
        assert_allclose(costs[best], cost, rtol=1e-12)
        assert_array_equal(v <= cut_after(v[by], best), v <= t)
        assert_array_equal(sides(by, best + 1), v > t)


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("n_scores", [1, 2])
def test_alternation_ends_where_neither_step_improves(scale, n_scores):
    for seed in range(30):
        values, coef, target = some_input(seed, n_scores=n_scores, ties=seed % 2 == 1)
        columns, part = Columns(values, coef, scale, 1), part_of(values, target)
        v = columns.column(part, 0)
        by, cuts = order_of(v)
        split = find_split(columns, part, by, cuts, 3, np.random.default_rng(seed))
        assert split.size - 1 in cuts
        slack = CHOICE * (target**2).sum()
        _, best_threshold = slow_optimize_threshold(v, split.choice.errors)
        assert split.cost <= best_threshold * (1 + 1e-9)
        left = v <= cut_after(v[by], split.size - 1)
        assert left.sum() == split.size
        costs = slow_optimize_columns(terms_of(values, coef), target, left, scale)
        assert split.cost <= costs.min() + slack


def test_cost_never_rises_during_the_alternation(monkeypatch):
    costs = []
    original = paper_paths.threshold_costs
    monkeypatch.setattr(paper_paths, "threshold_costs", lambda errors: costs.append(original(errors)) or costs[-1])
    steps = 0
    for seed in range(30):
        values, coef, target = some_input(seed)
        columns, part = Columns(values, coef, True, 1), part_of(values, target)
        by, cuts = order_of(columns.column(part, 0))
        costs.clear()
        split = find_split(columns, part, by, cuts, 1, np.random.default_rng(seed))
        steps += len(costs)
        # The threshold of the next step is the cheapest of this one; new columns for it cost no more.
        reached = [c[cuts].min() for c in costs]
        assert (np.diff(reached) <= CHOICE * (target**2).sum()).all()
        assert split.cost <= reached[0]
    assert steps > 60  # the alternation alternates


def test_more_starts_cost_no_more():
    values, coef, target = some_input(0, n=200)
    columns, part = Columns(values, coef, True, 1), part_of(values, target)
    by, cuts = order_of(columns.column(part, 3))
    costs = [find_split(columns, part, by, cuts, k, np.random.default_rng(5)).cost for k in (1, 2, 4, 8, 16)]
    assert (np.diff(costs) <= 0).all()
    every = [find_split(columns, part, by, cuts[k : k + 1], 1, np.random.default_rng(0)).cost for k in range(len(cuts))]
    assert min(every) <= costs[-1] < np.median(every)


def test_a_threshold_is_tried_once(monkeypatch):
    values, coef, target = some_input(16, n=12)
    columns, part = Columns(values, coef, True, 1), part_of(values, target)
    by, cuts = order_of(columns.column(part, 0))
    tried = []
    monkeypatch.setattr(paper_paths, "sides", lambda by, size: tried.append(size) or sides(by, size))
    find_split(columns, part, by, cuts, 100, np.random.default_rng(0))
    assert sorted(tried) == list(range(1, 12))


def test_of_equal_columns_the_first_and_of_nearly_equal_ones_the_best():
    rng = np.random.default_rng(17)
    target = rng.normal(size=(50, 1))
    noise = rng.normal(size=(50, 3))
    noise -= target * (target.T @ noise) / (target.T @ target)  # a column's cost is then the share of its noise
    for size, first in (([0.03, 0.02, 0.01], 2), ([0.3, 0.3, 0.3 - 1e-8], 0)):
        noise *= np.array(size) * np.linalg.norm(target) / np.linalg.norm(noise, axis=0)
        values = (target + noise).astype(np.float32)
        assert grow(values, np.ones((1, 3)), target, max_evals=1).column == first
    one_row = rng.normal(size=(1, 30)).astype(np.float32)  # any column can be scaled to fit it
    assert grow(one_row, np.ones((1, 30)), np.ones((1, 1))).column == 0


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("n_scores", [1, 3])
@pytest.mark.parametrize("balanced", [False, True])
def test_a_tree_is_what_algorithm_2_says(scale, n_scores, balanced):
    """Every node again from its rows: rest of the target, coefficients, columns of the children, stopping rule."""
    values, coef, target = some_input(3, n=120, m=9, n_scores=n_scores)
    X = terms_of(values, coef)
    root = grow(values, coef, target, scale=scale, min_rows=4, balanced=balanced)
    waiting = [(root, np.ones(len(values), dtype=bool), target, [])]
    leaves = 0
    while waiting:
        node, rows, rest, path = waiting.pop()
        v = values[:, node.column].astype(np.float64)
        costs = [slow_cost(X, rest, rows, j, scale) for j in range(len(coef.T))]
        assert costs[node.column] <= min(costs) + CHOICE * (rest[rows] ** 2).sum()
        factor = v[rows] @ rest[rows] / (v[rows] @ v[rows]) if scale else coef[:, node.column]
        path, rest = [*path, factor], rest - v[:, None] * factor
        if len(node.children) == 2:
            assert rows.sum() > 4
            assert node.test == len(path) - 1
            left = v <= node.threshold
            if balanced:
                assert (rows & left).sum() == (rows.sum() + 1) // 2
            assert (rows & left).any()
            assert (rows & ~left).any()
            waiting += [(node.children[0], rows & left, rest, path), (node.children[1], rows & ~left, rest, path)]
        else:
            leaves += 1
            assert node.test == -1
            assert rows.sum() <= 4
            assert_allclose(node.children[0].coef, path, rtol=1e-9, atol=1e-12)
            assert_array_equal(node.children[0].constant, np.zeros(n_scores))
    assert leaves >= 30


@pytest.mark.parametrize("scale", [True, False])
def test_scores_are_the_sums_on_the_paths(scale):
    values, coef, target = some_input(1, n=200, m=12, n_scores=3)
    tree = tree_of(values, coef, target, scale=scale, max_evals=6)
    walk = tree.walk(lambda rows, column: values[rows, column].astype(np.float64), len(values))
    columns = tree.leaf_columns[walk.leaf]
    predicted = tree.predict(values)
    for i in range(len(values)):
        used = columns[i][columns[i] >= 0]
        assert len(used) == walk.evaluations[i] <= 6
        factors = tree.coef[walk.leaf[i], : len(used)]
        if not scale:
            assert_array_equal(factors, coef[:, used].T)
        assert_allclose(predicted[i], values[i, used].astype(np.float64) @ factors, rtol=1e-12, atol=1e-12)


def test_scaling_never_costs_more_than_fewer_columns():
    values, coef, target = some_input(2, n=300, m=20)
    errors = []
    for height in (1, 2, 3, 5, 8):
        tree = tree_of(values, coef, target, max_evals=height, min_rows=1)
        errors.append(((tree.predict(values) - target[:, 0]) ** 2).sum())
        assert tree.height == height
    assert (np.diff(errors) < 0).all()  # the same tree, cut lower down: each column takes something away
    assert errors[-1] < 0.2 * errors[0]


@pytest.mark.parametrize("n_scores", [1, 3])
def test_native_sums_give_the_tree_of_the_definition(monkeypatch, n_scores):
    values, coef, target = some_input(4, n=300, m=10, n_scores=n_scores)
    fast = tree_of(values, coef, target)
    slow_core = SimpleNamespace(column_sums=slow_column_sums, partition_rows=slow_partition_rows)
    monkeypatch.setattr(paper_paths, "_core", slow_core)
    slow = tree_of(values, coef, target)
    assert_array_equal(fast.column, slow.column)
    assert_array_equal(fast.threshold, slow.threshold)
    assert_allclose(fast.coef, slow.coef, rtol=1e-8, atol=1e-12)


def test_rows_are_permuted_and_nothing_else():
    values, coef, target = some_input(5, n=64, m=5)
    own, kept = values.copy(), target.copy()
    grow_paper(own, coef, target, rng=np.random.default_rng(0))
    assert_array_equal(target, kept)
    assert not np.array_equal(own, values)
    assert_array_equal(own[np.lexsort(own.T)], values[np.lexsort(values.T)])


def test_permuted_rows_give_the_same_balanced_tree():
    values, coef, target = some_input(6, n=90, m=6)
    order = np.random.default_rng(1).permutation(len(values))
    a = tree_of(values, coef, target, balanced=True)
    b = tree_of(values[order], coef, target[order], balanced=True)
    assert_array_equal(a.column, b.column)
    assert_array_equal(a.threshold, b.threshold)
    assert_allclose(a.coef, b.coef, rtol=1e-9)


def test_threads_and_seeds(monkeypatch):
    monkeypatch.setattr(paper_paths, "LEAST_SHARED", 0)
    values, coef, target = some_input(7, n=500, m=150, n_scores=2)
    one = tree_of(values, coef, target, seed=3)
    for n_threads in (1, 2, 5):
        same_trees(one, tree_of(values, coef, target, seed=3, n_threads=n_threads))
    other = tree_of(values, coef, target, seed=4)
    assert not np.array_equal(one.threshold[:10], other.threshold[:10])


def test_one_row():
    values, coef, target = np.array([[2.0, 4.0]], dtype=np.float32), np.array([[1.0, 0.5]]), np.array([[3.0]])
    root = grow(values, coef, target)
    assert root.column == 0  # both fit it: the first
    assert_allclose(root.children[0].coef, [[1.5]])
    assert flatten(grow(values, coef, target, scale=False), 1).predict(values)[0] == 2.0


def test_no_columns_and_no_rows():
    for shape in ((3, 0), (0, 3)):
        leaf = grow(np.empty(shape, dtype=np.float32), np.ones((2, shape[1])), np.ones((shape[0], 2)))
        assert isinstance(leaf, Leaf)
        assert_array_equal(flatten(leaf, 2).predict(np.ones((4, 3))), np.zeros((4, 2)))


def test_constant_columns_do_not_split():
    values = np.ones((50, 3), dtype=np.float32)
    target = np.random.default_rng(0).normal(size=(50, 1))
    for balanced in (False, True):
        root = grow(values, np.ones((1, 3)), target, balanced=balanced)
        assert root.column == 0
        assert isinstance(root.children[0], Leaf)
        assert_allclose(root.children[0].coef, [[target.mean()]])


def test_a_constant_column_ends_a_path_only_where_it_is_chosen():
    values, coef, target = some_input(8, n=60, m=4)
    values[:, 2] = 1.0
    target = target + 1.0
    tree = tree_of(values, coef, target, max_evals=3)
    parents = np.flatnonzero(tree.column == 2)
    assert len(parents)
    assert (tree.test[parents] == -1).all()


@pytest.mark.parametrize("scale", [True, False])
def test_zero_target_and_zero_columns(scale):
    values, coef, _ = some_input(9)
    tree = tree_of(values, coef, np.zeros((len(values), 1)), scale=scale)
    if scale:
        assert_array_equal(tree.predict(values), np.zeros(len(values)))
    assert np.isfinite(tree.coef).all()
    nothing = np.zeros_like(values)
    assert_array_equal(tree_of(nothing, coef, values[:, :1] + 1.0, scale=scale).predict(nothing), np.zeros(len(values)))


@pytest.mark.parametrize("large", [1e25, 3e38])
def test_values_that_vanish_or_overflow_in_float32_are_not_used(large):
    values, coef, target = some_input(11)
    values[:, 0] = target[:, 0] * 1e-20  # the perfect column, but for its size
    values[:, 1] = large
    tree = tree_of(values, coef, target)
    assert set(tree.columns) <= set(range(2, 7))
    assert np.isfinite(tree.coef).all()


def test_duplicate_columns_and_rows():
    values, coef, target = some_input(12)
    doubled = np.concatenate([values, values], axis=1)
    same_trees(tree_of(values, coef, target), tree_of(doubled, np.tile(coef, 2), target))  # of equal ones the first
    rows = np.repeat(values[:4], 20, axis=0)
    tree = tree_of(rows, coef, np.repeat(target[:4], 20, axis=0), min_rows=1)
    leaf = tree.walk(lambda rows_, j: rows[rows_, j], len(rows)).leaf.reshape(4, 20)
    assert (leaf == leaf[:, :1]).all()


def test_few_rows_and_few_values():
    values, coef, target = some_input(13, n=5)
    assert isinstance(grow(values, coef, target).children[0], Leaf)
    assert isinstance(grow(values, coef, target, min_rows=4).children[0], Node)
    root = grow(*some_input(14), max_evals=1)
    assert isinstance(root.children[0], Leaf)
    assert tree_of(*some_input(14), max_evals=4).height == 4


def test_a_score_may_use_a_column_it_does_not_have():
    values, coef, target = some_input(15, m=3, n_scores=2)
    coef[1] = [0.0, 0.0, 1.0]
    target = np.column_stack([values[:, 0], values[:, 0]]).astype(np.float64)
    root = grow(values, coef, target, max_evals=1)
    assert root.column == 0
    assert_allclose(root.children[0].coef, [[1.0, 1.0]])
    root = grow(values, np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]), target, max_evals=1, scale=False)
    assert_array_equal(root.children[0].coef, [[1.0, 0.0]])


def test_odd_number_of_rows_has_its_middle_row_left():
    values = np.array([[1.0], [2.0], [4.0]], dtype=np.float32)
    root = grow(values, np.ones((1, 1)), values.astype(np.float64) + 1, min_rows=1, max_evals=2, balanced=True)
    assert root.threshold == 3.0
    values[1] = 4.0
    root = grow(values, np.ones((1, 1)), values.astype(np.float64) + 1, min_rows=1, max_evals=2, balanced=True)
    assert isinstance(root.children[0], Leaf)


def test_paths_longer_than_the_recursion_limit(monkeypatch):
    def peel(columns, part, by, *_):
        return Split(1, columns.optimize_columns(part, sides(by, 1)), 0.0)

    monkeypatch.setattr(paper_paths, "find_split", peel)  # one row at a time: the longest paths there are
    n = sys.getrecursionlimit() + 100
    tree = tree_of(*some_input(18, n=n, m=2), min_rows=1)
    assert tree.height == n
