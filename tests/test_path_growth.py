"""Growing trees with refitted leaves: fits, columns, tests and pruning against plain NumPy, and their edges.

Values are float32 that become float64 without rounding, so the definitions here see the same numbers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from svelto.engines import path_growth, path_tests
from svelto.engines.path_fit import RIDGE, Sample
from svelto.engines.path_growth import MIXED_SCORES, Growth, grow_refitted
from svelto.engines.path_tests import THRESHOLDS, _cuts
from svelto.path_tree import Leaf, Node, flatten

LOOSE = Growth(max_evals=4, min_rows=10)


def sample(n=300, m=12, q=2, n_scores=1, seed=0, *, noise=0.3):
    """Columns that are alike, and scores that depend on them smoothly."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(n, 3))
    mix = np.random.default_rng(99).normal(size=(3, m))
    values = (np.tanh(hidden @ mix) + 0.3 * rng.normal(size=(n, m))).astype(np.float32)
    free = hidden @ np.random.default_rng(98).normal(size=(3, q))
    target = np.sin(hidden @ np.random.default_rng(97).normal(size=(3, n_scores)) * 1.5)
    return Sample(values, free, target + noise * rng.normal(size=target.shape), np.ones(n))


def copy_of(s):
    """Growing reorders the rows of the values."""
    return replace(s, values=s.values.copy())


def grow(s, held=None, growth=LOOSE, seed=0, **options):
    return grow_refitted(copy_of(s), s if held is None else copy_of(held), growth, seed, **options)


def answer(root, s):
    tree = flatten(root, s.target.shape[1])
    walk = tree.walk(lambda rows, column: s.values[rows, column], len(s))
    return tree.scores(walk, s.free), walk


def loss(root, s):
    return float(s.weight @ ((answer(root, s)[0] - s.target) ** 2).sum(axis=1))


def same(a, b, n_scores=1):
    one, other = flatten(a, n_scores), flatten(b, n_scores)
    for name in ("column", "test", "threshold", "children", "coef", "constant", "slope"):
        assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def chain_of(root):
    columns = []
    while isinstance(root, Node):
        assert root.test < 0
        columns.append(root.column)
        root = root.children[0]
    return columns


def design(s, rows, path):
    return np.column_stack([np.ones(len(rows)), s.free[rows], s.values[rows][:, path]]).astype(np.float64)


def least_squares(Z, target, weight, start, like=None, prior_rows=0.0):
    """Least squares with further rows, `like` the parent's (Z, weight), that agree with `start`. Never optimise it."""
    start = np.vstack([start, np.zeros((Z.shape[1] - len(start), target.shape[1]))])
    rows, right = [np.sqrt(weight)[:, None] * Z], [np.sqrt(weight)[:, None] * (target - Z @ start)]
    if like is not None:
        more = np.sqrt(prior_rows / len(like[0]) * like[1])[:, None] * like[0]
        rows.append(np.column_stack([more, np.zeros((len(more), Z.shape[1] - more.shape[1]))]))
        right.append(np.zeros((len(more), target.shape[1])))
    return start + np.linalg.lstsq(np.vstack(rows), np.vstack(right), rcond=None)[0]


def check_leaves(node, s, growth, rows, path, coef, like, *, arrived=True):
    """Each fit of a node starts from the last one on the way, and is held to it by rows like its parent's."""

    def fit():
        Z = design(s, rows, path)
        return least_squares(Z, s.target[rows], s.weight[rows], coef, like, growth.prior_rows)

    if arrived:
        coef = fit()
    if isinstance(node, Leaf):
        q = s.free.shape[1]
        found = np.vstack([node.constant, *([node.slope.T] if q else []), node.coef])
        # The ridge takes a share of RIDGE off a coefficient, times how much alike the features are.
        assert_allclose(found, coef, rtol=0, atol=1000 * RIDGE * np.abs(coef).max())
        return 1
    if node.column >= 0:
        path = [*path, node.column]
        coef = fit()
    if node.test < 0:
        return check_leaves(node.children[0], s, growth, rows, path, coef, like, arrived=False)
    like, second = (design(s, rows, path), s.weight[rows]), s.values[rows, path[node.test]] > node.threshold
    parts = zip(node.children, (rows[~second], rows[second]), strict=True)
    return sum(check_leaves(child, s, growth, part, path, coef, like) for child, part in parts)


@pytest.mark.parametrize("q", [0, 2])
@pytest.mark.parametrize("n_scores", [1, 3])
@pytest.mark.parametrize("max_evals", [1, 3])
def test_leaves_are_fitted_as_the_definition_says(q, n_scores, max_evals):
    for seed, prune, prior_rows in ((0, False, 20.0), (1, True, 20.0), (2, False, 0.5), (3, False, 500.0)):
        s = sample(q=q, n_scores=n_scores, seed=seed)
        s = replace(s, weight=np.random.default_rng(seed).gamma(2.0, size=len(s)))
        growth = Growth(max_evals, min_rows=30, prior_rows=prior_rows, prune=prune)
        root = grow(s, sample(q=q, n_scores=n_scores, seed=seed + 50), growth)
        nothing = np.zeros((1 + q, n_scores))
        n_leaves = check_leaves(root, s, growth, np.arange(len(s)), [], nothing, None)
        assert prune or n_leaves > 3


def test_many_prior_rows_hold_a_leaf_to_its_parent():
    s = sample()
    held = grow(s, growth=Growth(1, min_rows=100, prior_rows=1e12, prune=False))
    below = [np.concatenate([[leaf.constant[0]], leaf.slope[0], leaf.coef[:, 0]]) for leaf in held.children]
    assert_allclose(below[0], below[1], rtol=0, atol=1e-8)
    free = grow(s, growth=Growth(1, min_rows=100, prior_rows=1e-12, prune=False))
    assert loss(free, s) < loss(held, s) * (1 - 1e-3)


# -- columns -----------------------------------------------------------------------------------------------------------


def slow_pursuit(s, n_columns, mix=None):
    """Orthogonal matching pursuit: every column is tried, and all coefficients are fitted anew."""
    root, path = np.sqrt(s.weight)[:, None], []
    target = s.target if mix is None else s.target @ mix
    for _ in range(n_columns):
        left = []
        for column in range(s.values.shape[1]):
            Z = design(s, np.arange(len(s)), [*path, column])
            residuals = root * (target - Z @ np.linalg.lstsq(root * Z, root * target, rcond=None)[0])
            left.append((residuals**2).sum() if column not in path else np.inf)
        path.append(int(np.argmin(left)))
    return path


@pytest.mark.parametrize("q", [0, 2])
@pytest.mark.parametrize("n_scores", [1, 3])
def test_columns_are_those_of_orthogonal_matching_pursuit(q, n_scores):
    chosen = set()
    for seed in range(5):
        s = sample(q=q, n_scores=n_scores, seed=seed)
        s = replace(s, weight=np.random.default_rng(seed).gamma(2.0, size=len(s)))
        root = grow(s, growth=Growth(5, min_rows=len(s)))  # no tests; its own rows profit from every column
        chosen.add(tuple(chain_of(root)))
        assert chain_of(root) == slow_pursuit(s, 5)
    assert len(chosen) > 1


def test_many_scores_choose_columns_by_mixtures_and_are_all_fitted():
    n_scores = MIXED_SCORES + 5
    s = sample(n_scores=n_scores)
    growth = Growth(4, min_rows=len(s))
    root = grow(s, growth=growth, seed=3)
    signs = np.random.default_rng([3, 5]).integers(0, 2, size=(n_scores, MIXED_SCORES))
    assert chain_of(root) == slow_pursuit(s, 4, (2.0 * signs - 1.0) / np.sqrt(MIXED_SCORES))
    best = loss(grow(s, growth=growth, prefixes=[slow_pursuit(s, 4)]), s)
    assert loss(root, s) < 1.05 * best  # mixtures choose nearly as well as all scores
    check_leaves(root, s, growth, np.arange(len(s)), [], np.zeros((3, n_scores)), None)
    assert loss(grow(s, growth=Growth(4, min_rows=40, prune=False)), s) < loss(root, s)


def test_weights_count_like_repeated_rows():
    s = sample(n=200)
    often = np.random.default_rng(0).integers(1, 5, size=200)
    growth = Growth(4, min_rows=10_000)
    weighted = grow(replace(s, weight=often.astype(float)), growth=growth)
    rows = np.repeat(np.arange(200), often)
    repeated = grow(Sample(s.values[rows], s.free[rows], s.target[rows], np.ones(len(rows))), growth=growth)
    assert chain_of(weighted) == chain_of(repeated)
    assert_allclose(answer(weighted, s)[0], answer(repeated, s)[0], rtol=0, atol=1e-9)
    assert chain_of(grow(s, growth=growth)) != chain_of(weighted)


# -- tests -------------------------------------------------------------------------------------------------------------


def slow_tests(s, path, growth):
    """For each position: (loss, threshold, residuals) of the best threshold among the cuts, every side fitted anew."""
    everything = np.arange(len(s))
    Z = design(s, everything, path)
    coef = least_squares(Z, s.target, s.weight, np.zeros((1, s.target.shape[1])))
    found = []
    for column in path:
        v, tried = s.values[:, column].astype(np.float64), []
        ranked = np.sort(v)
        for cut in _cuts(ranked, growth.min_rows):
            threshold, residuals = 0.5 * (ranked[cut - 1] + ranked[cut]), np.empty_like(s.target)
            for side in (v <= threshold, v > threshold):
                fit = least_squares(Z[side], s.target[side], s.weight[side], coef, (Z, s.weight), growth.prior_rows)
                residuals[side] = s.target[side] - Z[side] @ fit
            tried.append((float(s.weight @ (residuals**2).sum(axis=1)), threshold, residuals))
        found.append(min(tried, key=lambda t: t[0]))
    return found


def slow_ahead(s, test, column):
    """What one more column would leave on either side, by its plain projection."""
    total, _, residuals = test
    side = s.values[:, column] > test[1]
    for rows in (side, ~side):
        v, w = s.values[rows].astype(np.float64), s.weight[rows]
        total -= (((w[:, None] * residuals[rows]).T @ v) ** 2).sum(axis=0).__truediv__(w @ v**2).max()
    return total


@pytest.mark.parametrize("look_ahead", [1, 2, 4])
@pytest.mark.parametrize("n_scores", [1, 3])
def test_the_test_is_the_best_of_all(look_ahead, n_scores):
    path, others = [3, 7, 1, 5], 0
    for seed in range(10):
        s = sample(m=30, n_scores=n_scores, seed=seed, noise=0.0)
        s = replace(s, weight=np.random.default_rng(seed).gamma(2.0, size=len(s)))
        # Five values, the last by the tree's own choice, and room for one more on either side.
        growth = Growth(6, min_rows=50, look_ahead=look_ahead, prune=False)
        node = grow(s, growth=growth, prefixes=[path])
        for column in path:
            assert (node.column, node.test) == (column, -1)
            node = node.children[0]
        whole = [*path, node.column]
        tests = slow_tests(s, whole, growth)
        ranked = sorted(range(5), key=lambda position: tests[position][0])
        best = min(ranked[:look_ahead], key=lambda p: slow_ahead(s, tests[p], whole[p]) if look_ahead > 1 else 0)
        assert node.test == best
        assert node.threshold == pytest.approx(tests[best][1], abs=1e-12)
        others += best != ranked[0]
    assert (others > 0) == (look_ahead > 1)


def test_cuts_are_between_distinct_values_near_the_quantiles():
    rng = np.random.default_rng(0)
    for ranked in (
        np.sort(rng.normal(size=500)),
        np.sort(rng.integers(0, 5, size=500)),
        np.repeat([0, 1, 2], [5, 90, 5]),
    ):
        cuts = _cuts(ranked.astype(float), 5)
        n = len(ranked)
        assert 0 < len(cuts) <= THRESHOLDS
        assert cuts == sorted(set(cuts))
        assert all(5 <= cut <= n - 5 and ranked[cut - 1] < ranked[cut] for cut in cuts)
        if len(np.unique(ranked)) <= 5:  # few values: every place between two of them
            assert_array_equal(cuts, np.flatnonzero(np.diff(ranked)) + 1)
        else:
            assert_allclose(cuts, np.arange(1, 9) * n / 9, rtol=0, atol=2)
    assert _cuts(np.repeat([0.0, 1.0], [4, 96]), 5) == []
    assert _cuts(np.zeros(50), 5) == []


def test_a_function_that_is_such_a_tree_is_recovered():
    def function(values):
        v = values.astype(np.float64)
        second = v[:, 4] > edge
        first_leaf = 1.0 + 5.0 * v[:, 4] + 2.0 * v[:, 1]
        return np.where(second, -0.5 + 6.0 * v[:, 4] - 2.5 * v[:, 8], first_leaf)[:, None]

    rng = np.random.default_rng(0)
    values = rng.normal(size=(900, 10)).astype(np.float32)
    ranked = np.sort(values[:, 4].astype(np.float64))
    edge = 0.5 * (ranked[399] + ranked[400])  # a quantile that is tried
    s = Sample(values, np.empty((900, 0)), function(values), np.ones(900))
    new = rng.normal(size=(500, 10)).astype(np.float32)
    held = Sample(new, np.empty((500, 0)), function(new), np.ones(500))
    root = grow(s, held, Growth(2, min_rows=100, prior_rows=1e-9))
    assert (root.column, root.test, root.threshold) == (4, 0, edge)
    assert [child.column for child in root.children] == [1, 8]
    assert_allclose(answer(root, held)[0], held.target, rtol=0, atol=1e-4)  # the ridge takes 1e-6 of a coefficient


# -- what always holds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_evals", [1, 2, 5])
@pytest.mark.parametrize("min_rows", [1, 7, 40])
def test_no_path_is_longer_and_no_side_smaller_than_allowed(max_evals, min_rows, monkeypatch):
    monkeypatch.setattr(path_tests, "SPLIT_ROWS", 40)  # tests are compared on some of the rows
    for seed, prune in ((0, False), (1, True)):
        s, growth = sample(seed=seed), Growth(max_evals, min_rows, prune=prune)
        if seed:  # ties: runs of equal values are never cut
            s = replace(s, values=np.float32(0.25) + np.round(s.values * 2))
        walk = answer(grow(s, sample(seed=9), growth, prefixes=[[], [5, 3, 2, 1, 0, 4, 9]]), s)[1]
        assert 1 <= walk.evaluations.max() <= max_evals
        sizes = np.bincount(walk.leaf)
        assert sizes.min() >= min_rows
        assert prune or len(sizes) > (3 if min_rows > 7 else 8)


@pytest.mark.parametrize("n_scores", [1, 3])
def test_pruning_never_serves_held_out_rows_worse(n_scores):
    fewer = 0
    for seed in range(6):
        s, held = (sample(n_scores=n_scores, seed=seed + k) for k in (0, 100))
        whole, pruned = (grow(s, held, Growth(4, 10, prune=prune)) for prune in (False, True))
        assert loss(pruned, held) <= loss(whole, held) * (1 + 1e-12)
        assert loss(pruned, held) <= loss(grow(s, held, Growth(4, len(s))), held) * (1 + 1e-12)  # no test is needed
        assert loss(whole, s) < loss(pruned, s)  # what pruning is there to see through
        fewer += flatten(pruned, n_scores).n_leaves < flatten(whole, n_scores).n_leaves
    assert fewer == 6


def test_columns_that_held_out_rows_do_not_profit_from_are_left_out():
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(60, 30)).astype(np.float32) for _ in range(2)]
    s, held = (
        Sample(v, np.empty((60, 0)), v[:, :3] @ [[2.0], [2], [2]] + rng.normal(size=(60, 1)), np.ones(60))
        for v in parts
    )
    root = grow(s, held, Growth(10, min_rows=60))
    losses = [loss(grow(s, growth=Growth(k, min_rows=60)), held) for k in range(1, 11)]
    assert 1 < len(chain_of(root)) == 1 + int(np.argmin(losses)) < 10
    assert loss(root, held) == pytest.approx(min(losses))


def test_of_several_beginnings_the_best_is_kept():
    s, held = sample(), sample(seed=100)
    growth = Growth(4, min_rows=60)
    beginnings = [[], slow_pursuit(s, 2), [10, 11], [9, 8]]
    alone = [loss(grow(s, held, growth, prefixes=[prefix]), held) for prefix in beginnings]
    for tried in (beginnings[:1], beginnings[:2], beginnings[2:], beginnings[1:3]):
        best = min(alone[beginnings.index(prefix)] for prefix in tried)
        assert loss(grow(s, held, growth, prefixes=tried), held) == pytest.approx(best, rel=1e-9)
    # Of three and more, the first, and the one of the others whose values alone serve the held-out rows best.
    by_value = [loss(grow(s, growth=Growth(2, min_rows=len(s)), prefixes=[p]), held) for p in beginnings[1:]]
    second = beginnings[1 + int(np.argmin(by_value))]
    same(grow(s, held, growth, prefixes=beginnings), grow(s, held, growth, prefixes=[[], second]))
    tree = flatten(grow(s, held, growth, prefixes=[[6, 2, 0, 7, 1, 3]]), 1)
    assert_array_equal(tree.leaf_columns, np.tile([6, 2, 0, 7], (tree.n_leaves, 1)))  # cut off at max_evals


def test_growing_is_repeatable_with_any_number_of_threads(monkeypatch):
    s, held = sample(n_scores=MIXED_SCORES + 2), sample(n_scores=MIXED_SCORES + 2, seed=100)
    monkeypatch.setattr(path_growth, "SHARED_VALUES", 100)
    monkeypatch.setattr(path_growth, "PIECE_VALUES", 500)
    one, kept = grow(s, held, prefixes=[[], [1, 2]]), copy_of(s)
    for n_threads in (1, 2):
        same(grow(s, held, prefixes=[[], [1, 2]], n_threads=n_threads), one, MIXED_SCORES + 2)
    grow_refitted(kept, copy_of(held), LOOSE, 0)
    # The rows of the values are reordered, and nothing else.
    assert_array_equal(kept.values[np.lexsort(kept.values.T)], s.values[np.lexsort(s.values.T)])


# -- edges -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("constant", [1.0, 1e-20, 1e6])
def test_constant_columns_are_never_chosen(constant):
    s = sample(m=6)
    s.values[:, [0, 2, 5]] = constant
    tree = flatten(grow(s, growth=Growth(6, 40, prune=False)), 1)
    assert set(tree.columns) <= {1, 3, 4}
    root = grow(replace(s, values=np.full((len(s), 4), constant, dtype=np.float32)))
    assert isinstance(root, Leaf)
    Z = design(s, np.arange(len(s)), [])
    assert_allclose(answer(root, s)[0], Z @ np.linalg.lstsq(Z, s.target, rcond=None)[0], rtol=0, atol=1e-5)


def test_of_duplicate_columns_one_is_chosen():
    s = sample(m=5)
    doubled = replace(s, values=np.hstack([s.values, s.values, 2 * s.values, -s.values]))
    root = grow(doubled, growth=Growth(5, len(s)))
    assert [column % 5 for column in chain_of(root)] == chain_of(grow(s, growth=Growth(5, len(s))))
    assert chain_of(grow(doubled, growth=Growth(20, len(s)))) == chain_of(root)  # five, and no more
    assert np.isfinite(answer(grow(doubled, growth=Growth(20, 5, prune=False)), doubled)[0]).all()


def test_a_zero_target_takes_no_values():
    for q in (0, 2):
        s = sample(q=q)
        s = replace(s, target=np.zeros((len(s), 2)))
        scores, walk = answer(grow(s, growth=Growth(4, 10, prune=False)), s)
        assert_array_equal(scores, 0.0)
        assert walk.evaluations.max() == 0


def test_equal_columns_that_vanish_on_one_side():
    s = sample(m=3)
    s.values[:, :2] = np.maximum(s.values[:, 2:], 0.0)
    assert np.isfinite(answer(grow(s, growth=Growth(3, 30), prefixes=[[0, 1, 2]]), s)[0]).all()


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("q", [0, 2])
def test_few_rows(n, q):
    s = sample(n=n, q=q)
    for growth in (LOOSE, Growth(3, 1, prune=False)):
        assert_allclose(
            answer(grow(s, growth=growth), s)[0], s.target, rtol=0, atol=0.5 if n > 2 else 1e-2
        )  # little stands against the ridge
