"""Chains of hyperplanes: thresholds, greedy choice, heuristics and pruning, against the paper's pseudo-code."""

from __future__ import annotations

import numpy as np
import pytest

from svelto.training._svm_tree.directions import c_svm_direction, h1_direction, perpendiculars
from svelto.training._svm_tree.growth import Chain, Node, decide, grow_chain, peel, prune_chain, side_of
from svelto.training._svm_tree.rows import TrainingRows


def weighted(X, y, weight=None):
    return TrainingRows(np.asarray(X, dtype=float), np.asarray(y), np.ones(len(y)) if weight is None else weight)


def paper_threshold(X, y, hard, w):
    """Section 4.2.2, line by line; None where no row of the soft class is on the right side."""
    scores = X @ w
    r1 = min(scores[y == hard]) if hard == 1 else max(scores[y == hard])
    beyond = [s for s, label in zip(scores, y, strict=True) if label != hard and label * (s - r1) > 0]
    if not beyond:
        return None
    r2 = max(beyond) if hard == 1 else min(beyond)
    return (r1 + r2) / 2


def paper_classify(nodes, end, x):
    """Section 4.2.1: the first node with the row on its safe side."""
    for node in nodes:
        score = node.plane @ x
        if score < node.low:
            return -1
        if score > node.high:
            return 1
    return end


def two_rings(n=300, seed=0):
    """One class around the other: no half-space holds the inner one alone."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, n)
    radius = np.where(np.arange(n) % 2, 2.0, 0.5) + 0.1 * rng.normal(size=n)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), np.where(np.arange(n) % 2, 1, -1)


def blobs(n=200, d=3, seed=0, gap=2.0):
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < 0.4, 1, -1)
    return rng.normal(size=(n, d)) + gap * (y[:, None] > 0), y


@pytest.mark.parametrize("hard", [-1, 1])
@pytest.mark.parametrize("seed", range(20))
def test_threshold_is_the_papers(hard, seed):
    rng = np.random.default_rng(seed)
    X, y = blobs(60, 2, seed, gap=rng.uniform(0, 3))
    w = rng.normal(size=2)
    w /= np.linalg.norm(w)
    found, expected = peel(weighted(X, y), w, hard, solver="h"), paper_threshold(X, y, hard, w)
    if expected is None:
        assert found is None
        return
    threshold = found.node.low if hard == 1 else found.node.high
    assert threshold == pytest.approx(expected, abs=1e-12)
    scores = X @ w
    removed = np.flatnonzero((y != hard) & (scores < expected if hard == 1 else scores > expected))
    np.testing.assert_array_equal(found.rows, removed)
    assert found.node.removed == len(removed)
    assert (found.node.high if hard == 1 else found.node.low) == (np.inf if hard == 1 else -np.inf)


def test_rows_within_rounding_of_the_hard_class_stay():
    X = np.array([[1.0], [1.0 - 1e-9], [-1.0]])
    found = peel(weighted(X, [1, -1, -1]), np.array([1.0]), 1, solver="h")
    np.testing.assert_array_equal(found.rows, [2])
    assert peel(weighted(X[:2], [1, -1]), np.array([1.0]), 1, solver="h", clear=1e-6) is None
    far = peel(weighted(np.array([[0.0], [1.0], [5.0]]) + 1e9, np.array([-1, 1, 1])), np.array([1.0]), 1, solver="h")
    np.testing.assert_array_equal(far.rows, [0])  # distances count, not how far away the rows are


@pytest.mark.parametrize("length", [0.0, np.inf, np.nan])
def test_a_direction_without_length_is_no_node(length):
    X, y = blobs()
    assert peel(weighted(X, y), np.array([length, 0.0, 0.0]), 1, solver="c") is None


@pytest.mark.parametrize("greedy", [0, 1])
@pytest.mark.parametrize("make", [two_rings, blobs])
def test_peeled_sides_are_pure_and_training_rows_are_right(make, greedy):
    X, y = make()
    rows = weighted(X, y)
    chain = grow_chain(rows, greedy, 100)
    assert chain.ended == "one class"
    live = np.arange(len(y))
    for node in chain.nodes:
        side = side_of((node,), (X[live] @ node.plane)[:, None])[:, 0]
        assert (y[live][side != 0] == side[side != 0]).all()
        assert (side[side != 0] == -node.hard).all()
        assert node.removed == np.count_nonzero(side)
        live = live[side == 0]
    np.testing.assert_array_equal(chain.trace(X)[0], y)
    np.testing.assert_array_equal([paper_classify(chain.nodes, chain.end, x) for x in X], y)


def test_the_first_node_removes_most_of_all_four_solutions():
    X, y = two_rings(200, seed=3)
    rows = weighted(X, y)
    candidates = []
    for hard in (1, -1):
        for direction in (h1_direction(X, y, rows.weight, hard, None)[0], c_svm_direction(X, y, rows.weight, hard)):
            if direction is None:
                continue
            found = peel(rows, direction, hard, solver="h") or peel(rows, -direction, hard, solver="h")
            candidates.append(0 if found is None else found.node.removed)
    assert grow_chain(rows, 0, 1).nodes[0].removed == max(candidates)


def test_margin_decides_where_it_is_preferred():
    differ = 0
    for seed in range(8):
        X, y = two_rings(120, seed)
        found = {}
        for prefer in ("rows", "margin"):
            node = grow_chain(weighted(X, y), 1, 1, prefer=prefer).nodes[0]
            threshold = node.low if node.hard == 1 else node.high
            margin = 2 * np.abs(X @ node.plane - threshold).min() / node.spread
            found[prefer] = (node.removed, node.removed * np.sqrt(margin))
        assert found["rows"][0] >= found["margin"][0]
        assert found["margin"][1] >= found["rows"][1] * (1 - 1e-9)
        differ += found["margin"] != found["rows"]
    assert differ > 0


def test_greedy_one_never_removes_fewer_at_the_first_node():
    for seed in range(6):
        rows = weighted(*two_rings(120, seed))
        plain, greedy = (grow_chain(rows, level, 1).nodes[0].removed for level in (0, 1))
        assert greedy >= plain


def test_a_direction_that_removes_nothing_is_turned_round():
    # The -1 rows' centroid lies to the left of the +1 rows, so with hard +1 every solver points to the right, where no
    # -1 row lies beyond them; the other way round the one far -1 row is peeled off.
    X = np.array([[0.5], [0.9], [1.0], [0.6], [0.7], [5.0]])
    y = np.array([1, 1, 1, -1, -1, -1])
    right = np.array([1.0])
    assert peel(weighted(X, y), right, 1, solver="h") is None
    np.testing.assert_array_equal(peel(weighted(X, y), -right, 1, solver="h", sign=-1).rows, [5])
    rng = np.random.default_rng(0)
    wild = [weighted(rng.uniform(-1, 1, (80, 2)), rng.choice([-1, 1], 80)) for _ in range(3)]
    turned = [node for rows in wild for node in grow_chain(rows, 0, 100).nodes if node.sign == -1]
    assert turned


def walled_in():
    """A line of +1, a line of -1, both labels on each of four corners around them, and three -1 above and below.

    The lines decide where the solvers point: along the first feature, where the corners of both classes lie furthest.
    """
    line = np.column_stack([np.linspace(1.0, 3.0, 20), np.zeros(20)])
    corners = np.array([[-5.0, -3.0], [-5.0, 3.0], [5.0, -3.0], [5.0, 3.0]])
    beyond = np.array([[x, side] for side in (-4.0, 4.0) for x in (-0.2, 0.0, 0.2)])
    X = np.concatenate([line, corners, -line, corners, beyond])
    y = np.repeat([1, -1], [24, 30])
    return weighted(X, y, np.where(X[:, 1] == 0.0, 10.0, 1.0)), np.flatnonzero(np.abs(X[:, 1]) == 4.0)


@pytest.mark.parametrize("prefer", ["rows", "margin"])
@pytest.mark.parametrize("greedy", [0, 1])
def test_right_angles_help_where_the_solvers_are_stuck(greedy, prefer):
    rows, removable = walled_in()
    for hard in (1, -1):
        for direction in (h1_direction(*rows, hard, None)[0], c_svm_direction(*rows, hard)):
            assert direction is not None
            for sign in (1.0, -1.0):
                assert peel(rows, sign * direction, hard, solver="h") is None
            found = [
                peel(rows, sign * across, hard, solver="h")
                for across in perpendiculars(*rows, direction)
                for sign in (1.0, -1.0)
            ]
            assert any(found) == (hard == 1)
    chain = grow_chain(rows, greedy, 100, prefer=prefer)
    assert [node.perpendicular for node in chain.nodes] == [True, True]
    assert [node.hard for node in chain.nodes] == [1, 1]
    assert [node.removed for node in chain.nodes] == [3.0, 3.0]
    assert chain.ended == "stuck"  # each corner has both labels
    np.testing.assert_array_equal(np.flatnonzero(chain.trace(rows.X)[1] < 2), removable)


def test_right_angles_are_left_alone_unless_greedy_or_stuck():
    """Without greed they serve where nothing else removes a row; with it, where they are better."""
    used = {0: 0, 1: 0}
    for seed in range(8):
        rows = weighted(*two_rings(120, seed))
        for greedy in (0, 1):
            chain = grow_chain(rows, greedy, 100)
            live = np.arange(len(rows.y))
            for node in chain.nodes:
                part = rows.part(live)
                if node.perpendicular:
                    plain = [
                        peel(part, sign * direction, hard, solver="h")
                        for hard in (1, -1)
                        for direction in (h1_direction(*part, hard, None)[0], c_svm_direction(*part, hard))
                        if direction is not None
                        for sign in (1.0, -1.0)
                    ]
                    most = max((one.node.removed for one in plain if one is not None), default=0.0)
                    assert node.removed >= most if greedy else most == 0.0
                used[greedy] += node.perpendicular
                live = live[side_of((node,), (part.X @ node.plane)[:, None])[:, 0] == 0]
    assert used[1] > used[0]


def test_right_angles_are_at_right_angles():
    rows, _ = walled_in()
    X, y = rows.X, rows.y
    for axis in ([1.0, 0.0], [0.6, -0.8]):
        directions = list(perpendiculars(*rows, 5.0 * np.array(axis)))
        assert directions
        for direction in directions:
            assert abs(direction @ axis) < 1e-9 * np.linalg.norm(direction)
    # Features that are constant leave fewer directions than there are features.
    padded = np.column_stack([X, np.full(len(X), 7.0), np.full(len(X), 3.0)])
    axis = np.array([0.6, 0.8, 0.0, 0.0])
    directions = list(perpendiculars(padded, y, rows.weight, axis))
    assert directions
    for direction in directions:
        assert abs(direction @ axis) < 1e-9 * np.linalg.norm(direction)
    assert list(perpendiculars(X[:, :1], y, rows.weight, np.array([1.0]))) == []
    assert list(perpendiculars(X, y, rows.weight, np.zeros(2))) == []


def test_equal_rows_of_both_classes_end_the_chain():
    X = np.repeat([[0.0, 0.0], [1.0, 1.0]], 3, axis=0)
    y = np.array([1, -1, 1, 1, -1, -1])
    chain = grow_chain(weighted(X, y), 1, 100)
    assert chain.ended == "stuck"
    assert chain.nodes == ()
    assert chain.end == -1  # three against three: a tie goes to -1


def test_chains_end_at_max_nodes_and_at_min_peeled():
    rows = weighted(*two_rings())
    whole = grow_chain(rows, 0, 100)
    short = grow_chain(rows, 0, 2)
    assert short.ended == "max_nodes"
    assert len(short.nodes) == 2 < len(whole.nodes)
    removed = [node.removed for node in whole.nodes]
    least = sorted(removed)[1] / len(rows.y)  # all but the weakest node pass
    early = grow_chain(rows, 0, 100, least)
    assert early.ended == "min_peeled"
    assert len(early.nodes) == int(np.argmin(removed))


def test_weights_count_as_rows():
    X, y = two_rings(80, seed=5)
    times = np.random.default_rng(0).integers(1, 4, len(y))
    for hard in (1, -1):
        heavy, _ = h1_direction(X, y, times.astype(float), hard, None)
        repeated, _ = h1_direction(np.repeat(X, times, axis=0), np.repeat(y, times), np.ones(times.sum()), hard, None)
        np.testing.assert_allclose(heavy, repeated, rtol=1e-4, atol=1e-6)
    heavy = peel(weighted(X, y, times.astype(float)), np.array([1.0, 0.2]), -1, solver="h")
    assert heavy.node.removed == times[heavy.rows].sum() > len(heavy.rows)


def test_a_centroid_inside_the_hull_is_served_by_a_reduced_hull():
    rng = np.random.default_rng(1)
    around = rng.normal(size=(60, 2))
    X = np.concatenate([around, 0.1 * rng.normal(size=(20, 2)) + around.mean(axis=0) + [0.05, 0.0]])
    y = np.repeat([1, -1], [60, 20])
    direction, weights = h1_direction(X, y, np.ones(80), 1, None)
    assert direction is not None
    assert np.linalg.norm(direction) > 0
    assert weights is None
    same = np.concatenate([around, around])
    assert h1_direction(same, np.repeat([1, -1], 60), np.ones(120), 1, None)[0] is None


def random_chain(rng, n_nodes, d):
    nodes = []
    for _ in range(n_nodes):
        plane, threshold, hard = rng.normal(size=d), rng.normal(), int(rng.choice([-1, 1]))
        low, high = (threshold, np.inf) if hard == 1 else (-np.inf, threshold)
        nodes.append(Node(plane / np.linalg.norm(plane), low, high, 1.0, "h", hard, 1, False, 0.0))
    return Chain(tuple(nodes), int(rng.choice([-1, 1])))


def slow_prune(nodes, rows, allowed):
    """Algorithm of section 4.3.5, with the end of the chain decided by what is left."""

    def errors(kept):
        answers = np.array([paper_classify(kept, 0, x) for x in rows.X])
        left = answers == 0
        end = 1 if rows.weight[left & (rows.y == 1)].sum() > rows.weight[left & (rows.y == -1)].sum() else -1
        answers[left] = end
        return rows.weight[answers != rows.y].sum(), end

    kept = list(nodes)
    reached, end = errors(kept)
    for node in reversed(nodes):
        if len(kept) == 1:
            break
        without = [other for other in kept if other is not node]
        wrong, new_end = errors(without)
        if wrong <= reached + allowed:
            kept, end = without, new_end
    return kept, end


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("allowed", [0.0, 3.0])
def test_pruning_is_the_papers(seed, allowed):
    rng = np.random.default_rng(seed)
    X, y = blobs(80, 2, seed, gap=1.0)
    rows = weighted(X, y, rng.integers(1, 3, 80).astype(float))
    chain = random_chain(rng, 8, 2)
    pruned = prune_chain(chain, rows, allowed)
    kept, end = slow_prune(chain.nodes, rows, allowed)
    assert [node.plane.tolist() for node in pruned.nodes] == [node.plane.tolist() for node in kept]
    assert pruned.end == end
    node_of = pruned.trace(X)[1]
    for k, node in enumerate(pruned.nodes):
        assert node.removed == rows.weight[node_of == k].sum()


def test_allowed_error_saves_nodes():
    rows = weighted(*two_rings(400, seed=2))
    chain = grow_chain(rows, 0, 100)
    sizes = [len(prune_chain(chain, rows, allowed).nodes) for allowed in (0.0, 10.0, 60.0)]
    assert sizes[0] >= sizes[1] >= sizes[2]
    assert sizes[0] > sizes[2] >= 1


def test_decide_takes_the_first_node():
    sides = np.array([[0, 1, -1], [-1, 1, 0], [0, 0, 0]])
    outcome, node = decide(sides, 1)
    np.testing.assert_array_equal(outcome, [1, -1, 1])
    np.testing.assert_array_equal(node, [1, 0, 3])
    outcome, node = decide(np.empty((2, 0), dtype=np.int8), -1)
    np.testing.assert_array_equal(outcome, [-1, -1])
    np.testing.assert_array_equal(node, [0, 0])


def test_progress_may_stop_growth():
    told = []

    def progress(nodes, left):
        told.append((nodes, left))
        if nodes == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grow_chain(weighted(*two_rings()), 0, 100, progress=progress)
    assert [nodes for nodes, _ in told] == [0, 1, 2]
    assert told[0][1] > told[1][1] > told[2][1]
