"""Native trees of kernel values: the walk against its definition, and its checks."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from machines import NATIVE, random_machine
from svelto import _core
from svelto.engines.packing import RULE_CODES
from svelto.engines.path_arrays import pack_paths
from svelto.scaling import Scaling

LEVELS = _core.available_levels()
OUTPUTS = {1: {"n_classes": 2}, 3: {"n_classes": 3, "rule": "argmax"}, 6: {"n_classes": 4}}
# Roundings of a kernel value or a score, in units of 2^-24 of the terms' size: a few a feature and a term, most of
# which cancel.
ROUNDINGS = 16 * 2.0**-24


def slow_walk(tree, K, X, slack):
    """The definition, written to be read. Scores, leaf, evaluations, and whether all tests are beyond rounding."""
    scores, leaves, evaluations, certain = [], [], [], []
    for row, x in enumerate(X):
        node, path, margins = 0, [], []
        while node >= 0:
            if tree.columns[node] >= 0:
                path.append(tree.columns[node])
            side = 0
            if tree.test[node] >= 0:
                tested = path[tree.test[node]]
                side = 0 if K[row, tested] <= tree.threshold[node] else 1
                margins.append(abs(K[row, tested] - tree.threshold[node]) - slack[row, tested])
            node = tree.children[node, side]
        linear = 0.0 if tree.slope is None else tree.slope[~node] @ x
        scores.append(tree.constant[~node] + K[row][np.array(path, dtype=int)] @ tree.coef[~node, : len(path)] + linear)
        leaves.append(~node)
        evaluations.append(len(path))
        certain.append(min(margins, default=1.0) > 0)
    return np.array(scores), np.array(leaves), np.array(evaluations), np.array(certain)


def middle_gap(values):
    """The middle of the widest gap in the middle half, so that few values are within rounding of it."""
    values = np.sort(values)
    start, stop = len(values) // 4, len(values) - len(values) // 4
    gaps = np.diff(values[start:stop])
    if not gaps.any():
        return float(values[-1]) + 1.0
    at = start + int(np.argmax(gaps))
    return float(values[at] + values[at + 1]) / 2


def random_tree(K, depth, rng):
    """Nodes of every kind: with and without a value of their own, testing it, an earlier one, or none."""
    columns, test, threshold, children, lengths = [], [], [], [], []

    def grow(path, rows, depth):
        if depth == 0:
            lengths.append(len(path))
            return -len(lengths)
        node = len(columns)
        evaluates, tests = rng.random() < 0.8, rng.random() < 0.7
        if evaluates:
            path = [*path, int(rng.integers(K.shape[1]))]
        tests = tests and bool(path)
        columns.append(path[-1] if evaluates else -1)
        test.append(int(rng.integers(len(path))) if tests else -1)
        values = K[rows, path[test[-1]]] if tests else np.zeros(0)
        threshold.append(middle_gap(values) if len(values) else 0.0)
        children.append((0, 0))
        if tests:
            right = values > threshold[node]
            children[node] = (grow(path, rows[~right], depth - 1), grow(path, rows[right], depth - 1))
        else:
            children[node] = (grow(path, rows, depth - 1),) * 2
        return node

    grow([], np.arange(len(K)), depth)
    return columns, test, threshold, children, lengths


def case(kernel="rbf", *, d=6, n_scores=1, slope=True, stored=False, depth=8, n=150, seed=0, **machine):
    """A machine, rows that are float32 already, a random tree on them, and its fields."""
    rng = np.random.default_rng(seed)
    machine = random_machine(kernel, d=d, as_csr=stored, seed=seed, **OUTPUTS[n_scores], **machine)
    X = rng.normal(size=(n, d)).astype(np.float32).astype(np.float64)
    X = np.where(rng.random(X.shape) < (0.3 if stored else 0.8), X, 0.0)
    K = machine.kernel(X, machine.support_vectors)
    columns, test, threshold, children, lengths = random_tree(K, depth, rng)
    n_leaves, height = len(lengths), max(*lengths, 1)
    coef = rng.normal(size=(n_leaves, height, n_scores))
    coef[np.arange(height) >= np.array(lengths)[:, None]] = 0.0
    tree = SimpleNamespace(
        columns=np.array(columns, dtype=np.int64),
        test=np.array(test),
        threshold=np.array(threshold),
        children=np.array(children),
        coef=coef,
        constant=rng.normal(size=(n_leaves, n_scores)),
        slope=rng.normal(size=(n_leaves, n_scores, d)) / d if slope else None,
        error=rng.random((n_leaves, n_scores)),
        low=-rng.random((n_leaves, n_scores)) * 4,
        high=rng.random((n_leaves, n_scores)) * 4,
        shift=X.mean(axis=0),
        stored=stored,
    )
    return SimpleNamespace(machine=machine, X=X, K=K, tree=tree, fields=pack_paths(machine, **vars(tree)))


def run(fields, X, level=LEVELS[-1], n_threads=1, scale=False):
    """Scores, errors, leaf, evaluations."""
    n, p = X.shape[0], fields["n_scores"]
    out = np.empty((n, p)), np.empty((n, p)), np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    stage = _core.PathStage(fields, level)
    if sparse.issparse(X):
        outcome = stage.scores_csr(X.data, X.indices, X.indptr, *out, n_threads)
    else:
        outcome = stage.scores_dense(X, *out, scale, n_threads)
    assert outcome == (0, -1, 0)
    return out


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def value_slack(kernel, X, S):
    """Rounding of each kernel value: the sum over features is off by so much of its largest terms."""
    x, s = np.linalg.norm(X, axis=1)[:, None], np.linalg.norm(S, axis=1)
    x1, s1 = np.abs(X).sum(axis=1)[:, None], np.abs(S).sum(axis=1)
    inner = abs(kernel.gamma) * x * s + abs(kernel.coef0)
    size = {
        "rbf": kernel.gamma * (x + s) ** 2,
        # The root of a sum that cancels with stored rows: enough for distances beyond 0.1 (x + s).
        "exponential": 10 * kernel.gamma * (x + s),
        "laplacian": kernel.gamma * (x1 + s1),
        "poly": kernel.degree * inner**kernel.degree,
        "sigmoid": inner,
        "linear": x * s,
    }[kernel.name]
    return ROUNDINGS * (1 + size)


def compare(c, got):
    """Native results against the definition, but for rows whose tests are within rounding."""
    tree, S = c.tree, c.machine.support_vectors
    S = S.toarray() if sparse.issparse(S) else S
    slack = value_slack(c.machine.kernel, c.X, S)
    scores, leaf, evaluations, certain = slow_walk(tree, c.K, c.X, slack)
    assert certain.mean() > 0.9
    np.testing.assert_array_equal(got[2][certain], leaf[certain])
    np.testing.assert_array_equal(got[3][certain], evaluations[certain])
    # Every value on the path is off by its slack, every sum by the size of its terms.
    weights = np.abs(tree.coef[leaf]).sum(axis=1)
    terms = weights * np.abs(c.K).max() + np.abs(tree.constant[leaf])
    if tree.slope is not None:
        terms += np.abs(tree.slope[leaf]) @ (np.abs(c.X) + np.abs(tree.shift)).max(axis=0)
    atol = weights * slack.max(axis=1, keepdims=True) + ROUNDINGS * terms
    off = np.abs(got[0] - scores)
    assert (off <= atol)[certain].all(), (off / atol)[certain].max()
    low, high = tree.low[leaf], tree.high[leaf]
    clear = certain[:, None] & (np.minimum(np.abs(scores - low), np.abs(scores - high)) > atol)
    errors = np.where((scores >= low) & (scores <= high), tree.error[leaf], np.inf)
    np.testing.assert_allclose(got[1][clear], errors[clear], rtol=2.0**-24)


@pytest.mark.parametrize("kernel", NATIVE)
@pytest.mark.parametrize("n_scores", OUTPUTS)
@pytest.mark.parametrize("d", [1, 2, 15, 16, 17, 64, 130])  # around the lanes, and beyond the unrolled widths
def test_walk_matches_the_definition(kernel, n_scores, d):
    c = case(kernel, d=d, n_scores=n_scores, slope=d % 2 == 0)
    expected = run(c.fields, c.X)
    compare(c, expected)
    assert np.isinf(expected[1]).any()
    assert np.isfinite(expected[1]).any()
    # The rows are float32 already: however they arrive, the same bits come out.
    for rows in (c.X.astype(np.float32), np.asfortranarray(c.X), c.X[::-1][::-1], sparse.csr_matrix(c.X)):
        assert same(run(c.fields, rows), expected)


@pytest.mark.parametrize("kernel", NATIVE)
@pytest.mark.parametrize("n_scores", OUTPUTS)
@pytest.mark.parametrize("d", [1, 16, 130])
def test_stored_rows_match_the_definition(kernel, n_scores, d):
    c = case(kernel, d=d, n_scores=n_scores, slope=d > 1, stored=True, seed=1)
    expected = run(c.fields, sparse.csr_matrix(c.X))
    compare(c, expected)
    assert same(run(c.fields, c.X), expected)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("n_scores", OUTPUTS)
@pytest.mark.parametrize("kernel", NATIVE)
def test_answers_do_not_depend_on_level_threads_or_batch(kernel, n_scores, stored):
    c = case(kernel, d=37, n_scores=n_scores, stored=stored, n=700)
    expected = run(c.fields, c.X)
    for level in LEVELS:
        assert same(run(c.fields, c.X, level), expected)
        assert same(run(c.fields, c.X, level, n_threads=2), expected)
    rows = [run(c.fields, c.X[i : i + 1]) for i in range(100)]
    assert same([np.concatenate(parts) for parts in zip(*rows, strict=True)], [a[:100] for a in expected])


@pytest.mark.parametrize("evaluates", [False, True])
def test_a_tree_of_one_leaf(evaluates):
    c = case(depth=1)
    c.tree.columns, c.tree.test = np.array([3 if evaluates else -1]), np.array([-1])
    c.tree.threshold, c.tree.children = np.zeros(1), np.array([[-1, -1]])
    for name in ("coef", "constant", "slope", "error", "low", "high"):
        setattr(c.tree, name, getattr(c.tree, name)[:1])
    c.tree.coef = np.full((1, int(evaluates), 1), 2.0)
    got = run(pack_paths(c.machine, **vars(c.tree)), c.X)
    scores, leaf, evaluations, _ = slow_walk(c.tree, c.K, c.X, 0 * c.K)
    np.testing.assert_allclose(got[0], scores, atol=1e-5)
    np.testing.assert_array_equal(got[2], leaf)
    np.testing.assert_array_equal(got[3], evaluations)
    assert set(evaluations) == {int(evaluates)}


def test_a_value_at_the_threshold_goes_left_and_no_number_goes_right():
    machine = replace(random_machine("linear", d=1, n_sv=2), support_vectors=np.array([[3.0], [0.0]]))
    one, zero = np.ones((4, 1)), np.zeros((4, 1))
    # Node 0 tests 3 x against 6, nodes 1 and 2 test 0 x.
    tree = [np.array([0, 1, 1]), np.array([0, 1, 1]), np.array([6.0, 0.0, 0.0]), np.array([[1, 2], [-1, -2], [-3, -4]])]
    leaf_models = [np.zeros((4, 2, 1)), zero, None, one, -one, one]
    fields = pack_paths(machine, *tree, *leaf_models, shift=np.zeros(1), stored=False)
    rows = np.array([[2.0], [np.nextafter(np.float32(2.0), np.float32(3.0))], [1e300], [-1e300]])
    _, errors, leaf, _ = run(fields, rows)
    assert list(leaf) == [0, 2, 3, 1]
    assert list(np.isinf(errors[:, 0])) == [False, False, True, True]


@pytest.mark.parametrize("n_scores", OUTPUTS)
@pytest.mark.parametrize("caution", [0.0, 0.5, 2.0])
def test_labels_follow_from_scores_and_errors(n_scores, caution):
    c = case(n_scores=n_scores, d=17)
    scores, errors, _, _ = run(c.fields, c.X)
    expected, out = np.empty(len(c.X), dtype=np.int32), np.empty(len(c.X), dtype=np.int32)
    bounds = caution * errors if caution else np.zeros_like(errors)
    _core.settle(scores, bounds, RULE_CODES[c.machine.rule], c.machine.n_classes, False, expected)
    stage, rows = _core.PathStage(c.fields, LEVELS[-1]), sparse.csr_matrix(c.X)
    outcomes = [
        stage.labels_dense(c.X, out, caution, False, 1),
        stage.labels_csr(rows.data, rows.indices, rows.indptr, out, caution, 2),
    ]
    np.testing.assert_array_equal(out, expected)
    assert outcomes == [((expected >= 0).sum(), -1, 0)] * 2
    assert (expected >= 0).all() == (caution == 0.0)


def test_scaling_in_front_of_the_machine():
    scaling = Scaling("divide", np.linspace(-1, 1, 6), np.linspace(0.5, 2, 6))
    c = case(scaling=scaling)
    raw = c.X * scaling.factor + scaling.shift
    scaled = (raw - scaling.shift) / scaling.factor
    assert same(run(c.fields, raw, scale=True), run(c.fields, scaled))


def test_rows_that_cannot_be_read_are_reported():
    c = case(n=300)
    stage, out = _core.PathStage(c.fields, "baseline"), np.empty(300, dtype=np.int32)
    for bad in (np.nan, np.inf):
        c.X[[205, 270], 3] = bad
        assert stage.labels_dense(c.X, out, 0.0, False, 1)[1:] == (205, 1)
        assert stage.labels_dense(c.X, out, 0.0, False, 2)[1:] == (205, 1)
    indices, start = np.array([0, 6], dtype=np.int32), np.array([0, 1, 2], dtype=np.int32)
    assert stage.labels_csr(np.ones(2), indices, start, out[:2], 0.0, 1)[1:] == (1, 2)


@pytest.mark.parametrize(("kernel", "stored"), [("linear", False), ("poly", False), ("rbf", True)])
def test_rows_beyond_float32_are_not_trusted(kernel, stored):
    c = case(kernel, stored=stored, slope=False)
    c.X[7] = 1e300
    for level in LEVELS:
        _, errors, _, evaluations = run(c.fields, c.X, level)
        assert np.isinf(errors[7]).all() == (evaluations[7] > 0)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("d", 7, "shift has 6 elements; expected 7"),
        ("stride", 24, "stride and d disagree"),
        ("n_nodes", 0, "the tree is empty"),
        ("n_leaves", 10_000, "more leaves than nodes can have"),
        ("n_vectors", -1, "a number is negative"),
        ("kernel", 6, "the kernel does not exist"),
        ("gamma", -1.0, "gamma must not be negative"),
        ("shift", np.zeros(6, dtype=np.float32), "shift is no contiguous array"),
        ("padded", 16, "padded and n_scores disagree"),
        ("rule", 1, "scores and classes disagree"),
        ("coef", np.zeros(3, dtype=np.float32), "coef has 3 elements"),
        ("slope", np.zeros(3, dtype=np.float32), "slope has 3 elements"),
        ("low", np.zeros(3, dtype=np.float32), "low has 3 elements"),
        ("vector_sq_norm", np.zeros(3, dtype=np.float32), "vector_sq_norm has 3 elements"),
        ("stored", True, "these rows are not shifted"),
        ("height", 1, "a path is longer than height"),
    ],
)
def test_damaged_fields_are_refused(name, value, message):
    fields = case().fields
    _core.PathStage(fields, "baseline")
    fields[name] = value
    with pytest.raises((ValueError, TypeError), match=message):
        _core.PathStage(fields, "baseline")


# Node 0 evaluates and tests vector 0; node 1 evaluates vector 1 and tests the first value; node 2 does nothing.
SMALL = {
    "vector": [0, 1, -1],
    "test": [0, 0, -1],
    "children": [[1, 2], [-1, -2], [-3, -3]],
}


@pytest.mark.parametrize(
    ("name", "node", "value", "message"),
    [
        ("vector", 0, 2, "a vector does not exist"),
        ("vector", 0, -2, "a vector does not exist"),
        ("test", 0, 1, "a tested value does not exist"),
        ("test", 1, -2, "a tested value does not exist"),
        ("test", 1, -1, "a node without a test has two children"),
        ("children", 1, [0, -2], "a child does not follow its parent"),
        ("children", 1, [1, -2], "a child does not follow its parent"),
        ("children", 1, [3, -2], "a child does not exist"),
        ("children", 1, [-1, -4], "a child does not exist"),
        ("children", 1, [2, -2], "a node has two parents"),
        ("children", 1, [-1, -1], "a leaf has two parents"),
        ("children", 0, [1, -3], "a node has no parent"),
        ("children", 2, [-2, -2], "a leaf has two parents"),
    ],
)
def test_damaged_trees_are_refused(name, node, value, message):
    base = case().fields
    fields = {
        **base,
        "n_nodes": 3,
        "n_leaves": 3,
        "n_vectors": 2,
        "height": 2,
        "has_slope": False,
        "vectors": base["vectors"][:2],
        "threshold": np.zeros(3, dtype=np.float32),
        **{key: np.zeros(2, dtype=np.float32) for key in ("vector_sq_norm", "vector_abs_sum")},
        **dict.fromkeys(("constant", "error", "low", "high"), base["constant"][:3]),
        "coef": base["vectors"].ravel()[:6],
    }
    tree = {key: np.array(values, dtype=np.int32) for key, values in SMALL.items()}
    _core.PathStage({**fields, **tree}, "baseline")
    tree[name][node] = value
    with pytest.raises(ValueError, match=message):
        _core.PathStage({**fields, **tree}, "baseline")


def test_a_leaf_without_a_parent_is_refused():
    c = case(depth=1)
    c.tree.columns, c.tree.test = np.array([0]), np.array([-1])
    c.tree.threshold, c.tree.children = np.zeros(1), np.array([[-2, -2]])
    for name in ("coef", "constant", "slope", "error", "low", "high"):
        setattr(c.tree, name, np.repeat(getattr(c.tree, name)[:1], 2, axis=0))
    with pytest.raises(ValueError, match="a leaf has no parent"):
        _core.PathStage(pack_paths(c.machine, **vars(c.tree)), "baseline")


def test_calls_of_a_wrong_shape_are_refused():
    c = case()
    stage, out = _core.PathStage(c.fields, "baseline"), np.empty(150, dtype=np.int32)
    with pytest.raises(ValueError, match="rows and tree disagree in width"):
        stage.labels_dense(np.zeros((150, 5)), out, 0.0, False, 1)
    with pytest.raises(ValueError, match="out and rows disagree in length"):
        stage.labels_dense(c.X[:9], out, 0.0, False, 1)
    with pytest.raises(ValueError, match="caution must not be negative"):
        stage.labels_dense(c.X, out, -1.0, False, 1)
    with pytest.raises(ValueError, match="an output has a wrong shape"):
        stage.scores_dense(c.X, np.empty((150, 2)), np.empty((150, 1)), out, out.copy(), False, 1)
    with pytest.raises(ValueError, match="instruction level 'mmx' is not available"):
        _core.PathStage(c.fields, "mmx")
