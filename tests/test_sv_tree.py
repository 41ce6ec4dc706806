"""method="sv_tree": scores against the NumPy definition for every kernel and task, promises, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import svelto
import test_native_paths as native
from machines import random_machine
from oracle import slow_scores
from svelto._inputs import Query
from svelto.cascade import settled_labels
from svelto.engines.sv_tree import SVTreeOptions, kernel_column
from svelto.engines.sv_tree_build import build_sv_tree
from svelto.kernels import Kernel

KERNELS = ("rbf", "exponential", "laplacian", "poly", "sigmoid")
MACHINES = {
    "two classes": {"n_classes": 2},
    "four classes": {"n_classes": 4, "decision_function_shape": "ovo"},
    "argmax": {"n_classes": 3, "rule": "argmax"},
    "outlier": {"task": "outlier"},
    "values": {"task": "regression", "n_outputs": 2},
}
# Reduced sets take most of the time that a small tree takes to build.
QUICK = {"oracle_rows": 800, "candidates": "support_vectors"}
OPTIONS = {
    "refitted": {"agreement": None, "oracle_rows": 800},
    "paper": {"agreement": None, "tree": "paper", "max_evals": 6},
    "trees apart": {"agreement": None, "shared": False, "max_evals": 4, **QUICK},
    "statistical": {"agreement": 0.9, "confidence": 0.9, **QUICK},
}


@pytest.fixture(autouse=True)
def trees_pay(monkeypatch):
    """Small machines keep tests fast, but against them no tree pays, and none would be used: here every tree pays."""
    monkeypatch.setattr("svelto.stage_search.PAYS", 1e9)


def rows(n, d=4, seed=1):
    """Rows that are float32 already."""
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32).astype(np.float64)


def accelerate(machine, X, **options):
    return svelto.accelerate(machine, X, method="sv_tree", **{"random_state": 0, "n_jobs": 1, **options})


def stage_of(fast):
    return fast._engine.stages[0]


def rbf_function(X, S):
    """A Python kernel of vectors."""
    return np.exp(-0.3 * ((np.asarray(X)[:, None, :] - np.asarray(S)[None, :, :]) ** 2).sum(axis=-1))


def letters(A, B):
    """A Python kernel of strings: how many letters two words share."""
    return np.array([[len(set(a) & set(b)) / np.sqrt(len(set(a)) * len(set(b))) for b in B] for a in A])


def words(n, seed):
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(list("abcdefgh"), size=rng.integers(2, 7))) for _ in range(n)]


def objects(kind, name, n_sv=40):
    """A machine without native code, and a function that makes rows for it: rows(n, seed)."""
    machine = random_machine(n_sv=n_sv, d=4, gamma=0.3, **MACHINES[name])
    if kind == "function":
        return replace(machine, kernel=Kernel("callable", function=rbf_function)), rows_like(lambda X: X)
    if kind == "words":
        known = {"kernel": Kernel("callable", function=letters), "support_vectors": words(n_sv, 0), "n_features": None}
        return replace(machine, **known), words
    # Precomputed: rows are kernel values with all 60 training rows, of which 40 are support vectors.
    training = np.vstack([machine.support_vectors, rows(60 - n_sv, seed=77)])
    known = {"kernel": Kernel("precomputed"), "support_vectors": np.arange(n_sv), "n_features": 60}
    return replace(machine, **known), rows_like(lambda X: rbf_function(X, training))


def rows_like(function):
    return lambda n, seed: function(rows(n, 4, seed))


@cache
def case(how, name):
    machine = random_machine(n_sv=40, d=4, gamma=0.1, **MACHINES[name])
    options = dict(OPTIONS[how])
    if machine.task == "regression" and how == "statistical":
        options["tolerance"] = 0.3
    return accelerate(machine, rows(400), **options), options


# -- scores are what the tree says -------------------------------------------------------------------------------------


def check_native(part, Z, query):
    """Native scores, error scales, leaves and counts of one tree against the definitions."""
    tree, X = part.tree, Z if part.machine.scaling is None else part.machine.scaling.transform(Z)
    vectors = part.vectors
    fields = {name: getattr(tree, name) for name in ("test", "threshold", "children", "coef", "constant", "slope")}
    machine = replace_vectors(part.machine, vectors)
    K = machine.kernel(X, vectors)
    c = SimpleNamespace(machine=machine, X=X, K=K)
    c.tree = SimpleNamespace(columns=tree.column, shift=part.shift, **fields, **part.trust._asdict())
    trace = part.trace(query)
    native.compare(c, trace)
    walk = tree.walk(kernel_column(machine, X, vectors), len(X))
    same_leaf = walk.leaf == trace.leaf
    assert same_leaf.mean() > 0.97  # others are within float32 rounding of a threshold
    off = np.abs(tree.scores(walk, X) - trace.scores)[same_leaf]
    # Every value on the path is rounded, and what cancels is as large as the leaf's coefficients and slopes.
    size = np.abs(tree.coef).sum(axis=1).max() * np.abs(K).max()
    size += 0.0 if tree.slope is None else np.abs(tree.slope).sum(axis=2).max() * np.abs(X).max()
    assert off.max() <= 2.0**-24 * 200 * size


def replace_vectors(machine, vectors):
    return SimpleNamespace(kernel=machine.kernel, support_vectors=vectors)


@pytest.mark.parametrize("tree", ["refitted", "paper"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_scores_of_every_kernel_match_the_definition(kernel, tree):
    # Narrow kernels, so that trees have something to test; poly is tame with a small gamma.
    machine = random_machine(kernel, n_sv=40, d=4, gamma=0.1 if kernel == "poly" else 0.3)
    fast = accelerate(machine, rows(400), agreement=None, tree=tree, oracle_rows=800)
    (part,), Z = stage_of(fast).parts, rows(500, seed=3)
    assert part.tree.n_leaves > 3
    assert (part.tree.slope is None) == (tree == "paper")
    check_native(part, Z, Query(Z))
    scores = stage_of(fast).scores(Query(Z))[0]
    assert_array_equal(fast.predict(Z), machine.classes[(scores[:, 0] <= 0).astype(int)])
    assert (fast.predict(Z) == svelto.accelerate(machine).predict(Z)).mean() > (0.9 if tree == "refitted" else 0.75)


@pytest.mark.parametrize("how", OPTIONS)
@pytest.mark.parametrize("name", MACHINES)
def test_scores_of_every_task_match_the_definition(name, how):
    fast, Z = case(how, name)[0], rows(300, seed=3)
    stage, machine = stage_of(fast), fast.machine
    assert len(stage.parts) == (machine.n_scores if how == "trees apart" and machine.n_scores > 1 else 1)
    for part in stage.parts:
        assert part.tree.n_scores == (1 if len(stage.parts) > 1 else machine.n_scores)
        check_native(part, Z, Query(Z))
    scores, errors = stage.scores(Query(Z))
    assert_array_equal(scores, np.hstack([part.trace(Query(Z)).scores for part in stage.parts]))
    if machine.task == "regression":
        exact = slow_scores(machine, Z)
        assert ((fast.predict(Z) - exact) ** 2).mean() < (0.5 if how == "paper" else 0.1) * exact.var()
        return
    for caution in (0.0, 1e-6, 0.5, 2.0):
        bounds = caution * errors if caution else np.zeros_like(errors)
        assert_array_equal(stage.settle(Query(Z), caution), settled_labels(machine, scores, bounds))


@pytest.mark.parametrize("tree", ["refitted", "paper"])
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("kind", ["function", "words", "precomputed"])
def test_objects_match_the_definition(kind, name, tree):
    machine, make = objects(kind, name)
    fast = accelerate(machine, make(200, 1), agreement=None, tree=tree)
    (part,), Z = stage_of(fast).parts, make(100, 3)
    assert part.tree.slope is None
    K = machine.kernel(Z, part.vectors)
    scores, leaves, evaluations = native.slow_walk(
        SimpleNamespace(**{**vars(part.tree), "columns": part.tree.column}), K, np.empty((100, 0)), np.zeros_like(K)
    )[:3]
    trace = part.trace(Query(Z))
    assert_array_equal(trace.leaf, leaves)
    assert_array_equal(trace.evaluations, evaluations)
    assert_allclose(trace.scores, scores, rtol=0, atol=1e-12 * (1 + np.abs(part.tree.coef).sum(axis=1).max()))
    outside = (scores < part.trust.low[leaves]) | (scores > part.trust.high[leaves])
    assert_array_equal(trace.errors, np.where(outside, np.inf, part.trust.error[leaves]))
    assert fast.report.promise == "none"
    assert fast.predict(Z).shape == ((100, 2) if name == "values" else (100,))
    if machine.task == "classification" and tree == "refitted":
        assert (fast.predict(Z) == svelto.accelerate(machine).predict(Z)).mean() > 0.7


def test_a_kernel_function_is_called_for_the_values_on_the_path_only():
    machine, make = objects("words", "two classes")
    counted = []

    def count(A, B):
        counted.append(len(A) * len(B))
        return letters(A, B)

    fast = accelerate(machine, make(200, 1), agreement=None, max_evals=5)
    Z = make(100, 3)
    asked = stage_of(fast).evaluations(Query(Z))
    object.__setattr__(machine.kernel, "function", count)
    fast.predict(Z)
    assert sum(counted) == asked.sum() <= 500


# -- how many values ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", ["refitted", "paper"])
@pytest.mark.parametrize("max_evals", [1, 3, 8])
def test_no_row_costs_more_than_max_evals(max_evals, tree):
    Z = np.vstack([rows(500, seed=3), rows(20, seed=4) * 1e3])
    for task in MACHINES.values():
        machine = random_machine(n_sv=40, d=4, **task)
        options = {"agreement": None, "tree": tree, **QUICK, "max_evals": max_evals}
        stage = stage_of(accelerate(machine, rows(300), **options))
        assert 1 <= stage.evaluations(Query(Z)).max() <= max_evals
        assert stage.mean_evals <= max_evals
    machine, make = objects("words", "two classes")
    fast = accelerate(machine, make(200, 1), agreement=None, tree=tree, max_evals=max_evals)
    assert stage_of(fast).evaluations(Query(make(200, 3))).max() <= max_evals


def test_defaults_and_min_rows():
    machine, X = random_machine(n_sv=60, d=4), rows(400)
    assert stage_of(accelerate(machine, X, agreement=None, oracle_rows=800)).evaluations(Query(X)).max() == 10
    paper = {"agreement": None, "tree": "paper"}
    leaves = [stage_of(accelerate(machine, X, **paper, min_rows=n)).n_leaves for n in (None, 5, 50, 399, 400)]
    assert leaves[0] == leaves[1] > leaves[2] > leaves[4] == 1
    assert stage_of(accelerate(machine, X, **paper)).evaluations(Query(X)).max() > 5
    part = stage_of(accelerate(machine, X, **paper, min_rows=50)).parts[0]
    assert_array_equal(part.tree.constant, np.full((part.tree.n_leaves, 1), machine.intercept[0]))
    # The paper's tree is grown on X itself: tests are only where more than min_rows rows arrive.
    count = list(np.bincount(part.trace(Query(X)).leaf, minlength=part.tree.n_leaves))
    arrived = np.zeros(len(part.tree.test), dtype=int)
    for node in reversed(range(len(arrived))):
        arrived[node] = sum(count[~c] if c < 0 else arrived[c] for c in {int(c) for c in part.tree.children[node]})
    assert arrived[0] == 400
    assert arrived[part.tree.test >= 0].min() > 50
    few, many = (stage_of(accelerate(machine, X, agreement=None, **QUICK, min_rows=n)) for n in (20, 200))
    assert few.n_leaves > many.n_leaves
    assert stage_of(accelerate(machine, X, agreement=None, **QUICK, min_rows=10**6)).n_leaves == 1


def test_shared_values_are_counted_once(monkeypatch):
    machine, X, Z = random_machine(n_sv=40, d=4, n_classes=4), rows(400), rows(200, seed=3)
    options = {"agreement": None, "max_evals": 6, **QUICK}
    apart = stage_of(accelerate(machine, X, **options, shared=False))
    assert len(apart.parts) == 6
    expected = [set() for _ in Z]
    for part in apart.parts:
        for row, leaf in enumerate(part.trace(Query(Z)).leaf):
            path = part.tree.leaf_columns[leaf]
            expected[row] |= set(path[path >= 0].tolist())
    assert_array_equal(apart.evaluations(Query(Z)), [len(e) for e in expected])
    assert apart.evaluations(Query(Z)).max() <= 36
    one = stage_of(accelerate(machine, X, **options, shared=True))
    assert len(one.parts) == 1
    for liked in (1, -1):  # six trees of one value, or one of six
        monkeypatch.setattr(
            "svelto.engines.sv_tree_build._disagreement", lambda s, *_, liked=liked: liked * len(s.parts)
        )
        auto = stage_of(accelerate(machine, X, **options, shared="auto"))
        assert len(auto.parts) == (1 if liked == 1 else 6)
        assert auto.evaluations(Query(Z)).max() <= 6


def test_trees_that_auto_compares_are_those_of_their_own(monkeypatch):
    machine, X, options = random_machine(n_sv=40, d=4, n_classes=3), rows(400), {"agreement": None, **QUICK}
    monkeypatch.setattr("svelto.engines.sv_tree_build._disagreement", lambda s, *_: -len(s.parts))
    auto = stage_of(accelerate(machine, X, **options, shared="auto", max_evals=9)).parts
    apart = stage_of(accelerate(machine, X, **options, shared=False, max_evals=3)).parts
    for one, other in zip(auto, apart, strict=True):
        assert_array_equal(one.tree.leaf_columns, other.tree.leaf_columns)


def test_trees_apart_are_grown_on_the_same_rows():
    one = random_machine(n_sv=40, d=4, task="regression")
    twice = replace(one, dual_coef=np.tile(one.dual_coef, (2, 1)), intercept=np.tile(one.intercept, 2))
    first, second = stage_of(accelerate(twice, rows(400), agreement=None, shared=False, **QUICK)).parts
    assert_array_equal(first.tree.leaf_columns, second.tree.leaf_columns)
    assert_allclose(first.tree.coef, second.tree.coef, rtol=0, atol=1e-9 * np.abs(first.tree.coef).max())


def test_few_objects_are_summed_nearly_exactly():
    machine, make = objects("function", "values", n_sv=4)
    fast, Z = accelerate(machine, make(300, 1), agreement=None), make(100, 3)
    exact = machine.kernel(Z, machine.support_vectors) @ machine.dual_coef.T + machine.intercept
    assert np.abs(fast.predict(Z) - exact).max() < 1e-3 * exact.std()  # all four values are on the path


def test_candidates_linear_and_oracle_rows():
    machine, X = random_machine(n_sv=40, d=4), rows(400)

    def part(machine=machine, X=X, **options):
        return stage_of(accelerate(machine, X, agreement=None, **{"oracle_rows": 500, **options})).parts[0]

    known = {tuple(vector) for vector in machine.support_vectors}
    chosen = part(candidates="support_vectors")
    assert {tuple(vector) for vector in chosen.vectors} <= known
    assert set(chosen.tree.columns) == set(range(len(chosen.vectors)))  # no vector is kept that no node asks for
    more = {tuple(vector) for vector in part(max_evals=6).vectors}
    assert 0 < len(more - known) <= 6 + 3  # reduced sets of the whole and of half the budget
    assert part(linear=False).tree.slope is None
    assert part(linear=True).tree.slope.shape[2] == 4
    wide, few = random_machine(n_sv=30, d=130), {"oracle_rows": 200, "max_evals": 2}
    assert part(wide, rows(200, 130), **few).tree.slope is None
    assert part(wide, rows(200, 130), **few, linear=True).tree.slope.shape[2] == 130
    assert part(oracle_rows=0).tree.n_leaves >= 1
    assert part(prune=False).tree.n_leaves >= part().tree.n_leaves


def test_without_oracle_rows_nothing_is_made_up(monkeypatch):
    machine, X = random_machine(n_sv=40, d=4), rows(400)
    scored = []

    def score(points):
        scored.append(points)
        return slow_scores(machine, points)

    options = SVTreeOptions(oracle_rows=0, candidates="support_vectors")
    build_sv_tree(machine, X, options, score, with_errors=True, seed=0)
    known = {tuple(row) for row in X}
    assert all(tuple(row) in known for points in scored for row in points)


def test_auto_keeps_to_the_limit_either_way(monkeypatch):
    machine, X, Z = random_machine(n_sv=40, d=4, n_classes=3), rows(400), rows(200, seed=3)
    for sign, n_trees in ((1, 1), (-1, 3)):
        monkeypatch.setattr("svelto.engines.sv_tree_build._disagreement", lambda s, *_, sign=sign: sign * len(s.parts))
        stage = stage_of(accelerate(machine, X, agreement=None, **QUICK, shared="auto", max_evals=9))
        assert len(stage.parts) == n_trees
        assert 3 < stage.evaluations(Query(Z)).max() <= 9
        assert max(part.tree.height for part in stage.parts) == 9 // n_trees
