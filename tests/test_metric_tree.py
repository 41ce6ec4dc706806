"""The metric tree against its definition: farthest pair, hyperplane half-way between the two, again on either side."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from svelto import _core
from svelto.engines.arrays import aligned_zeros, padded_rows, padded_width

LEVELS = _core.available_levels()
MIDPOINT, BALANCED, MEDIAN = 0.0, 0.25, 0.5


def build(X, *, leaf_size=1, max_leaves=0, max_depth=0, pairs=10**6, share=MIDPOINT, seed=0, threads=1, level=None):
    level = level or LEVELS[-1]
    return _core.build_tree(padded_rows(X), leaf_size, max_leaves, max_depth, pairs, share, seed, threads, level)


def slow_leaves(X, members):
    """The definition: rows of the leaves below a node, from left to right. Never optimise this one."""
    best, pair = 0.0, None
    for at, i in enumerate(members):
        for j in members[at + 1 :]:
            sq_dist = ((X[i] - X[j]) ** 2).sum()
            if sq_dist > best:  # of equally distant pairs, the first in the order of the rows
                best, pair = sq_dist, (i, j)
    if pair is None:
        return [members]
    u, v = X[pair[0]], X[pair[1]]
    h = X[members] @ (u - v) + 0.5 * (v @ v - u @ u)
    left = [m for m, side in zip(members, h, strict=True) if side < 0]
    right = [m for m, side in zip(members, h, strict=True) if side >= 0]
    return slow_leaves(X, left) + slow_leaves(X, right)


def leaves_of(tree):
    return [rows.tolist() for rows in np.split(tree["order"], tree["leaf_start"][1:-1])]


def nodes_of(tree):
    """(node, rows on its left, rows on its right, its depth) of every inner node."""
    leaves, found = leaves_of(tree), []

    def below(child, depth):
        if child < 0:
            return leaves[~child]
        sides = [below(c, depth + 1) for c in tree["children"][child]]
        found.append((child, *sides, depth))
        return sides[0] + sides[1]

    if len(tree["offsets"]):
        below(0, 0)
    return found


def slow_walk(tree, X):
    """Leaf and number of steps of every row, with the tree's own hyperplanes."""
    where = []
    for x in np.asarray(padded_rows(X), dtype=np.float64):
        child, steps = 0 if len(tree["offsets"]) else -1, 0
        while child >= 0:
            side = tree["normals"][child].astype(np.float64) @ x + float(tree["offsets"][child])
            child, steps = int(tree["children"][child, int(side >= 0)]), steps + 1
        where.append((~child, steps))
    return where


def stage_fields(tree, d):
    """A stage of this tree whose leaves all say the same."""
    n_inner, stride = tree["normals"].shape[0], padded_width(d)
    normals = aligned_zeros((n_inner, stride), np.float32)
    normals[...] = tree["normals"]
    fields = {"d": d, "stride": stride, "n_inner": n_inner, "n_leaves": n_inner + 1, "normals": normals}
    fields |= {"offsets": tree["offsets"], "children": tree["children"], "rule": 0, "n_scores": 1, "n_classes": 2}
    for name in ("values", "base", "growth"):
        fields[name] = aligned_zeros((n_inner + 1,), np.float32)
    for name in ("centres", "weights"):
        fields[name] = aligned_zeros((n_inner + 1, stride), np.float32)
    reach = np.full(n_inner + 1, np.inf, dtype=np.float32)
    fields |= {"break_ties": False, "padded": 0, "reach": reach, "shift": np.zeros(d), "scaling_form": 0}
    return fields | {"stored": False}


def for_stored_rows(fields):
    """The same stage for rows that walk by their stored features."""
    n_leaves = fields["n_leaves"]
    bias = aligned_zeros((n_leaves,), np.float32)
    return fields | {"stored": True, "bias": bias, "centre_sq_norm": np.zeros(n_leaves, dtype=np.float32)}


def walk(fields, X, *, level=None, threads=1):
    n = X.shape[0]
    leaf, depth = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    stage, out = _core.TreeStage(fields, level or LEVELS[-1]), (np.empty((n, 1)), np.empty((n, 1)), np.empty(n))
    if sparse.issparse(X):
        stage.scores_csr(X.data, X.indices, X.indptr, *out, leaf, depth, threads)
    else:
        stage.scores_dense(X, *out, leaf, depth, False, threads)
    return list(zip(leaf.tolist(), depth.tolist(), strict=True))


def integers(n, d, seed=0, size=20):
    # Small whole numbers: products, sums and halves are exact in float32, so == may be asked of everything.
    return np.random.default_rng(seed).integers(-size, size + 1, size=(n, d)).astype(np.float64)


def normal(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


@pytest.mark.parametrize("d", [1, 2, 5, 15, 16, 17, 33])  # around the 16 lanes
@pytest.mark.parametrize("n", [1, 2, 3, 8, 60])
def test_tree_is_that_of_the_definition(n, d):
    for seed in range(3):
        X = integers(n, d, seed)
        assert leaves_of(build(X)) == slow_leaves(X, list(range(n)))


@pytest.mark.parametrize(("size", "some_on_cuts"), [(20, False), (3, True)])
def test_every_hyperplane_stands_half_way_between_the_farthest_pair(size, some_on_cuts):
    X = integers(80, 3, size=size)
    tree = build(X)
    n_moved = 0
    for node, left, right, _ in nodes_of(tree):
        points = X[left + right]
        sq_dist = ((points[:, None] - points[None]) ** 2).sum(axis=-1)
        normal_, offset = tree["normals"][node, :3].astype(float), float(tree["offsets"][node])
        assert (normal_**2).sum() == sq_dist.max()
        ends = [(i, j) for i, j in np.argwhere(sq_dist == sq_dist.max()) if (points[i] - points[j] == normal_).all()]
        half_way = [-0.5 * (points[i] + points[j]) @ normal_ for i, j in ends]
        if offset not in half_way:
            # A point on the cut stays on the right, and the cut is moved into the gap on its left.
            below, above = (X[left] @ normal_).max(), (X[right] @ normal_).min()
            assert_allclose(offset, 0.381966 * (above - below) - above, rtol=1e-6, atol=1e-5)
            assert any((X[right] @ normal_ + cut == 0).any() for cut in half_way)
            n_moved += 1
        assert (X[left] @ normal_ + offset < 0).all()
        assert (X[right] @ normal_ + offset > 0).all()
    assert (n_moved > 0) == some_on_cuts
    assert n_moved < len(tree["offsets"])
    assert_array_equal(tree["normals"][:, 3:], 0)  # padding


@pytest.mark.parametrize("n", [2, 3, 4, 5, 50, 333])
def test_median_cuts_leave_half_the_rows_on_either_side(n):
    X = normal(n, 4)  # continuous: no two projections are equal
    nodes = nodes_of(build(X, share=MEDIAN))
    assert len(nodes) == n - 1
    for _, left, right, depth in nodes:
        assert abs(len(left) - len(right)) <= 1
        assert depth < np.ceil(np.log2(n))


@pytest.mark.parametrize("n", [4, 7, 50, 333])
def test_balanced_cuts_leave_a_quarter_of_the_rows_on_either_side(n):
    X = np.exp(2 * normal(n, 3))  # far outliers, where half-way cuts split off single rows
    uneven = [min(len(a), len(b)) < (len(a) + len(b)) // 4 for _, a, b, _ in nodes_of(build(X))]
    assert n < 50 or any(uneven)
    tree = build(X, share=BALANCED)
    rows = padded_rows(X).astype(np.float64)
    moved = 0
    for node, left, right, _ in nodes_of(tree):
        size = len(left) + len(right)
        assert min(len(left), len(right)) >= size // 4
        # Where half-way leaves a quarter on either side, half-way it is.
        side = rows[left + right] @ tree["normals"][node].astype(np.float64)
        half_way = 0.5 * (side.max() + side.min())  # the two ends of the pair have the extreme projections
        counts = (side < half_way).sum(), (side >= half_way).sum()
        if min(counts) > size // 4:
            assert sorted(counts) == sorted((len(left), len(right)))
        else:
            moved += 1
    assert n < 50 or moved


def test_leaf_size():
    X = normal(300, 3)
    for size in (1, 2, 10, 299, 300, 1000):
        tree = build(X, leaf_size=size)
        assert max(map(len, leaves_of(tree))) <= size
        assert all(len(left) + len(right) > size for _, left, right, _ in nodes_of(tree))
        assert len(tree["leaf_start"]) == len(tree["offsets"]) + 2


def test_max_leaves():
    X = normal(200, 3)
    for most in (1, 2, 3, 17, 64, 199, 200, 500):
        assert len(leaves_of(build(X, max_leaves=most))) == min(most, 200)
    # Three leaves for two groups: the wider one is split again, wherever it stands.
    near, wide = normal(50, 3, 1) * 0.1, normal(50, 3, 2) + 30.0
    for groups in ((near, wide), (wide, near)):
        leaves = leaves_of(build(np.vstack(groups), max_leaves=3))
        whole = [leaf for leaf in leaves if len(leaf) == 50]
        assert [sorted(leaf)[0] for leaf in whole] == [0 if groups[0] is near else 50]


def test_max_depth():
    X = normal(500, 2)
    deepest = max(depth for *_, depth in nodes_of(build(X))) + 1
    for most in (1, 2, 5, deepest + 3):
        nodes = nodes_of(build(X, max_depth=most))
        assert max(depth for *_, depth in nodes) + 1 == min(most, deepest)
        if most <= 5:
            assert len(nodes) == 2**most - 1  # 500 rows fill these levels


@pytest.mark.parametrize("share", [MIDPOINT, BALANCED, MEDIAN])
@pytest.mark.parametrize("pairs", [1, 10**6], ids=["linear", "exact"])
def test_order_is_a_permutation_and_every_row_walks_into_its_own_leaf(share, pairs):
    for d, leaf_size in ((1, 1), (2, 5), (16, 1), (40, 20)):
        for X in (normal(400, d), integers(400, d, size=3)):
            tree = build(X, share=share, pairs=pairs, leaf_size=leaf_size)
            assert_array_equal(np.sort(tree["order"]), np.arange(400))
            start = tree["leaf_start"]
            assert start[0] == 0
            assert start[-1] == 400
            assert (np.diff(start) > 0).all()
            own = np.empty(400, dtype=int)
            own[tree["order"]] = np.repeat(np.arange(len(start) - 1), np.diff(start))
            for threads in (1, 2):
                assert [leaf for leaf, _ in walk(stage_fields(tree, d), X, threads=threads)] == own.tolist()


def test_walk_of_other_rows():
    X, other = integers(150, 6), integers(500, 6, seed=1)
    fields = stage_fields(tree := build(X), 6)
    expected = slow_walk(tree, other)
    for level in LEVELS:
        for n in (1, 7, 8, 9, 64, 65, 500):  # around the rows that walk together, and the rows of a block
            assert walk(fields, other[:n], level=level) == expected[:n]
    assert walk(fields, np.asfortranarray(other).astype(np.float32)) == expected


def test_walk_of_sparse_rows_by_their_stored_features():
    rng = np.random.default_rng(0)
    X, other = (np.where(rng.random((n, 40)) < 0.1, integers(n, 40, n), 0.0) for n in (150, 500))
    other[7] = 0.0
    tree = build(X)
    fields = for_stored_rows(stage_fields(tree, 40))
    expected = slow_walk(tree, other)
    for level in LEVELS:
        for n in (1, 8, 9, 65, 500):
            assert walk(fields, other[:n], level=level) == expected[:n]
            assert walk(fields, sparse.csr_matrix(other[:n]), level=level) == expected[:n]
    assert walk(stage_fields(tree, 40), sparse.csr_matrix(other)) == expected
    with pytest.raises(ValueError, match="not shifted"):
        _core.TreeStage(fields | {"shift": np.ones(40)}, LEVELS[-1])


def test_duplicates_end():
    same = np.full((50, 3), 2.5)
    tree = build(same)
    assert len(tree["offsets"]) == 0
    assert leaves_of(tree) == [list(range(50))]
    assert walk(stage_fields(tree, 3), same) == [(0, 0)] * 50
    assert leaves_of(build(same, pairs=1)) == [list(range(50))]
    for share in (MIDPOINT, BALANCED, MEDIAN):
        for pairs in (1, 10**6):
            X = np.repeat(integers(12, 3), 10, axis=0)
            tree = build(X, share=share, pairs=pairs)
            assert len(leaves_of(tree)) == len(np.unique(X, axis=0))
            assert all((X[leaf] == X[leaf[0]]).all() for leaf in leaves_of(tree))


@pytest.mark.parametrize("share", [MIDPOINT, BALANCED, MEDIAN])
@pytest.mark.parametrize("first", [True, False])
def test_many_copies_of_one_row_do_not_hide_the_others(share, first):
    others, copies = integers(20, 3, size=50) + 60, np.zeros((80, 3))
    X = np.vstack([copies, others] if first else [others, copies])
    tree = build(X, share=share)
    assert len(leaves_of(tree)) == len(np.unique(X, axis=0))


@pytest.mark.parametrize("pairs", [1, 100, 10**6])
@pytest.mark.parametrize("share", [MIDPOINT, BALANCED])
def test_same_tree_for_any_threads_and_level(pairs, share):
    X = normal(1500, 19)
    expected = build(X, pairs=pairs, share=share, level="baseline")
    for level in LEVELS:
        for threads in (1, 2):
            tree = build(X, pairs=pairs, share=share, level=level, threads=threads)
            assert tree.keys() == expected.keys()
            for name in tree:
                assert_array_equal(tree[name], expected[name])


def test_sweeps_find_a_pair_at_least_half_as_far_apart_as_the_farthest():
    seeds = []
    for seed in range(5):
        X = normal(300, 2, seed) ** 3
        tree = build(X, pairs=1, seed=seed, leaf_size=20)
        for node, left, right, _ in nodes_of(tree):
            points = X[left + right]
            widest = ((points[:, None] - points[None]) ** 2).sum(axis=-1).max()
            found = (tree["normals"][node].astype(float) ** 2).sum()
            assert found >= 0.25 * widest * (1 - 1e-5)  # float32 rows
        seeds.append(build(normal(300, 2) ** 3, pairs=1, seed=seed)["order"].tolist())
    assert build(normal(300, 2) ** 3, pairs=1, seed=4)["order"].tolist() == seeds[4]


def _put(array, at, value):
    array = array.copy()
    array[at] = value
    return array


def _shifted(array):
    memory = aligned_zeros((array.size + 1,), np.float32)
    memory[1:] = array.ravel()
    return memory[1:].reshape(array.shape)


BROKEN = {
    "a child that leads back": ("children", lambda c: _put(c, (3, 0), 1), "does not follow"),
    "a child that is its own parent": ("children", lambda c: _put(c, (2, 1), 2), "does not follow"),
    "an inner node that does not exist": ("children", lambda c: _put(c, (0, 1), len(c)), "does not exist"),
    "a leaf that does not exist": ("children", lambda c: _put(c, (-1, 1), ~(len(c) + 1)), "does not exist"),
    "a leaf with two parents": ("children", lambda c: _put(c, (-1, 0), c[-1, 1]), "two parents"),
    "too few children": ("children", lambda c: c[:-1].copy(), "children has"),
    "too few hyperplanes": ("normals", lambda a: a[:-1], "normals has"),
    "too few offsets": ("offsets", lambda a: a[:-1], "offsets has"),
    "too few centres": ("centres", lambda a: a[:-1], "centres has"),
    "too few weights": ("weights", lambda a: a[:-1], "weights has"),
    "too few values": ("values", lambda a: a[:-1], "values has"),
    "too few reaches": ("reach", lambda a: a[:-1], "reach has"),
    "too few features to shift": ("shift", lambda a: a[:-1], "shift has"),
    "hyperplanes off their place": ("normals", _shifted, "aligned"),
    "no features": ("d", lambda d: 0, "stride and d"),
    "more features than a row is wide": ("d", lambda d: 17, "stride and d"),
    "no leaves": ("n_leaves", lambda n: 0, "empty"),
    "negative nodes": ("n_inner", lambda n: -1, "empty"),
    "more leaves than nodes allow": ("n_inner", lambda n: n + 1, "has"),
    "no scores": ("n_scores", lambda n: 0, "at least one"),
    "padding for a single score": ("padded", lambda n: 16, "padded and n_scores"),
    "more pairs than scores": ("n_classes", lambda n: 50, "."),
    "a rule that does not exist": ("rule", lambda n: 9, "."),
    "children as int64": ("children", lambda c: c.astype(np.int64), "."),
    "children in Fortran order": ("children", np.asfortranarray, "."),
}


@pytest.mark.parametrize("case", BROKEN)
def test_malformed_arrays_are_refused(case):
    fields = stage_fields(build(normal(30, 5)), 5)
    name, damage, message = BROKEN[case]
    fields[name] = damage(fields[name])
    with pytest.raises((ValueError, TypeError), match=message):
        _core.TreeStage(fields, LEVELS[-1])


def test_missing_arrays_and_wrong_outputs_are_refused():
    fields = stage_fields(build(normal(30, 5)), 5)
    for name in fields:
        with pytest.raises(KeyError, match=name):
            _core.TreeStage({k: v for k, v in fields.items() if k != name}, LEVELS[-1])
    with pytest.raises(ValueError, match="not available"):
        _core.TreeStage(fields, "mmx")
    stage, X = _core.TreeStage(fields, LEVELS[-1]), normal(4, 5)
    with pytest.raises(ValueError, match="out and rows"):
        stage.labels_dense(X, np.empty(3, dtype=np.int32), 0.0, False, 1)
    with pytest.raises(ValueError, match="caution"):
        stage.labels_dense(X, np.empty(4, dtype=np.int32), np.nan, False, 1)
    with pytest.raises(ValueError, match="width"):
        stage.labels_dense(X[:, :4].copy(), np.empty(4, dtype=np.int32), 0.0, False, 1)
    with pytest.raises(ValueError, match="no certified leaves"):
        stage.certified_dense(X, np.empty(4, dtype=np.int32), np.empty((0, 0)), np.empty((0, 0)), False, 1)


def test_bad_limits_and_rows_are_refused():
    for limits in ({"leaf_size": 0}, {"max_leaves": -1}, {"max_depth": -1}, {"pairs": -1}):
        with pytest.raises(ValueError, match="limits must not be negative"):
            build(normal(5, 2), **limits)
    for share in (-0.1, 0.6, np.nan):
        with pytest.raises(ValueError, match=r"between 0 and 0\.5"):
            build(normal(5, 2), share=share)
    with pytest.raises(ValueError, match="number of rows"):
        build(np.empty((0, 2)))
    with pytest.raises(ValueError, match="padded"):
        _core.build_tree(np.zeros((3, 5), dtype=np.float32), 1, 0, 0, 1, 0.0, 0, 1, LEVELS[-1])
    with pytest.raises(ValueError, match="aligned"):
        _core.build_tree(_shifted(padded_rows(normal(3, 5))), 1, 0, 0, 1, 0.0, 0, 1, LEVELS[-1])
