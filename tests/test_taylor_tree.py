"""method="taylor_tree": the paper's approximation against its definition, and what every predictor of a tree keeps."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, SVR

import svelto
from machines import random_machine
from oracle import _vote, slow_scores
from sklearn_cases import data
from svelto import _core
from svelto._inputs import Query
from svelto.cascade import settled_labels
from svelto.engines.gradient import DIFFERENTIABLE
from svelto.probability import PlattPairs
from test_gradient import TASKS, slow_gradients

LEVELS = _core.available_levels()
PAPER = {"agreement": None, "leaf_size": 1, "fit": "taylor", "split": "midpoint", "farthest": "exact"}
PROMISES = {
    "paper": PAPER,
    "fitted": {"agreement": None, "oracle_rows": 500, "leaf_size": 20},
    "statistical": {"agreement": 0.9, "confidence": 0.9, "oracle_rows": 500, "leaf_size": 20},
    "certified": {"agreement": 1.0, "leaf_size": 5},
}
MACHINES = {
    "two classes": {"n_classes": 2},
    "four classes": {"n_classes": 4, "decision_function_shape": "ovo"},
    "argmax": {"n_classes": 3, "rule": "argmax"},
    "outlier": {"task": "outlier"},
    "values": {"task": "regression", "n_outputs": 2},
}


@pytest.fixture(autouse=True)
def trees_pay(monkeypatch):
    """Small machines keep tests fast, but against them no tree pays, and none would be used: here every tree pays."""
    monkeypatch.setattr("svelto.stage_search.PAYS", 1e9)


def rows(n, d, seed=1):
    return np.random.default_rng(seed).normal(size=(n, d))


def accelerate(machine, X, **options):
    return svelto.accelerate(machine, X, method="taylor_tree", random_state=0, n_jobs=1, **options)


def stage_of(fast):
    return fast._engine.stages[0]


def slow_leaf(X, members, Z, asked, leaf):
    """Put the number of the row that is alone in the leaf of each query into `leaf`: the paper's tree, read from it."""
    if len(members) == 1:
        leaf[asked] = members[0]
        return
    far = cdist(X[members], X[members])
    i, j = np.unravel_index(far.argmax(), far.shape)
    u, v = X[members[i]], X[members[j]]
    for side in (np.less, np.greater_equal):
        parts = [at[side(A[at] @ (u - v) + 0.5 * (v @ v - u @ u), 0.0)] for A, at in ((X, members), (Z, asked))]
        slow_leaf(X, parts[0], Z, parts[1], leaf)


def expansion(machine, points, at, Z):
    """f(x0) + f'(x0).(x - x0), and how far float32 arithmetic may be from it: 2^-24 for each of some d + 4 operations.

    What is rounded is as large as the terms, and the coordinates of row and centre before they are subtracted.
    """
    values, gradients = slow_scores(machine, points)[at], slow_gradients(machine, points)[at]
    scores = values + np.einsum("npd,nd->np", gradients, Z - points[at])
    terms = np.abs(values) + np.einsum("npd,nd->np", np.abs(gradients), np.abs(Z) + np.abs(points[at]))
    return scores, 2.0**-24 * (Z.shape[1] + 4) * terms + 1e-9  # 1e-9: of the finite differences


@pytest.mark.parametrize("task", TASKS, ids=str)
@pytest.mark.parametrize("kernel", DIFFERENTIABLE)
def test_paper_mode_is_the_papers_definition(kernel, task):
    # On a line, finite differences would step over the kinks of the exponential kernel.
    for d, n in ((2 if kernel == "exponential" else 1, 12), (4, 60), (17, 40)):
        machine = random_machine(kernel, n_sv=30, d=d, seed=d, **task)
        X, Z = rows(n, d), rows(150, d, seed=2) * 1.2
        fast, leaf = accelerate(machine, X, **PAPER), np.empty(150, dtype=int)
        slow_leaf(X, np.arange(n), Z, np.arange(150), leaf)
        expected, atol = expansion(machine, X, leaf, Z)
        scores = stage_of(fast).scores(Query(Z))[0]
        assert (np.abs(scores - expected) <= atol).all()
        if machine.task == "regression":
            assert_array_equal(fast.predict(Z), scores if machine.n_scores > 1 else scores[:, 0])
        elif machine.rule == "pairs":
            clear = (np.abs(expected) > atol).all(axis=1)
            assert_array_equal(fast.predict(Z)[clear], machine.classes[_vote(machine, expected)][clear])
        elif machine.rule == "argmax":
            assert_array_equal(fast.predict(Z), machine.classes[expected.argmax(axis=1)])
        else:
            assert_array_equal(fast.predict(Z), np.where(expected[:, 0] > 0, 1, -1))
        assert fast.report.promise == "none"
        assert stage_of(fast).n_leaves == n


@pytest.mark.parametrize("split", ["balanced", "midpoint", "median"])
def test_larger_leaves_expand_at_their_centroid(split):
    machine, X, Z = random_machine(n_sv=30, d=3, n_classes=3), rows(200, 3), rows(300, 3, seed=2)
    stage = stage_of(accelerate(machine, X, agreement=None, fit="taylor", leaf_size=6, split=split))
    normals, offsets, children = stage.tree

    def leaf_of(x):
        node = 0
        while node >= 0:
            node = children[node, int(normals[node].astype(float) @ x + offsets[node] >= 0)]
        return ~node

    of_X, of_Z = np.array([leaf_of(x) for x in X]), np.array([leaf_of(z) for z in Z])
    trace = stage.trace(Query(Z))
    assert_array_equal(trace.leaf, of_Z)
    centroids = np.array([X[of_X == leaf].mean(axis=0) for leaf in range(stage.n_leaves)])
    expected, atol = expansion(machine, centroids, of_Z, Z)
    assert (np.abs(trace.scores - expected) <= atol).all()
    assert_allclose(trace.sq_dist, ((Z - centroids[of_Z]) ** 2).sum(axis=1), rtol=1e-4, atol=1e-6)  # float32


@pytest.mark.parametrize("task", [t for t in TASKS if t.get("task") != "regression"], ids=str)
@pytest.mark.parametrize("kernel", DIFFERENTIABLE)
def test_labels_at_the_trees_own_points_are_the_exact_machines(kernel, task):
    machine, X = random_machine(kernel, n_sv=40, d=5, **task), rows(300, 5)
    for split in ("balanced", "midpoint"):
        fast = accelerate(machine, X, agreement=None, leaf_size=1, fit="taylor", split=split)
        assert_array_equal(fast.predict(X), svelto.accelerate(machine).predict(X))


@cache
def case(promise, name):
    machine = random_machine(n_sv=40, d=4, gamma=0.1, **MACHINES[name])
    options = dict(PROMISES[promise])
    if machine.task == "regression" and promise in ("statistical", "certified"):
        options["tolerance"] = 0.2
    return accelerate(machine, rows(400, 4), **options), options


def answers(fast, Z):
    """Everything a predictor says about rows, as bits."""
    return [fast.predict(Z)] + ([] if fast.machine.task == "regression" else [fast.decision_function(Z)])


def same(a, b):
    for one, other in zip(a, b, strict=True):
        assert_array_equal(one, other)


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("promise", PROMISES)
class TestEveryTree:
    def test_rows_and_batches(self, promise, name):
        fast, Z = case(promise, name)[0], rows(130, 4, seed=3) * 2
        whole = answers(fast, Z)
        for step in (1, 7, 16, 17, 64, 65):  # 16 rows take the short way, 64 are a block
            parts = [answers(fast, Z[i : i + step]) for i in range(0, len(Z), step)]
            same([np.concatenate(p) for p in zip(*parts, strict=True)], whole)

    def test_threads(self, promise, name):
        fast, Z = pickle.loads(pickle.dumps(case(promise, name)[0])), rows(3000, 4, seed=3)
        one = answers(fast, Z)
        fast.n_jobs = 2
        same(answers(fast, Z), one)

    def test_levels(self, promise, name, monkeypatch):
        fast, Z = case(promise, name)[0], rows(200, 4, seed=3)
        expected, scores = fast.predict(Z), stage_of(fast).scores(Query(Z))
        for level in LEVELS:
            monkeypatch.setenv("SVELTO_ISA", level)
            other = pickle.loads(pickle.dumps(fast))
            same(stage_of(other).scores(Query(Z)), scores)
            if fast.machine.task == "regression":  # values of the exact engine may differ in their last bits
                assert_allclose(other.predict(Z), expected, rtol=1e-12, atol=1e-12)
            else:
                assert_array_equal(other.predict(Z), expected)

    def test_memory_orders_types_and_csr(self, promise, name):
        fast = case(promise, name)[0]
        Z = np.round(rows(100, 4, seed=3) * 8) / 8  # exact in float32
        Z[Z < 0] = 0.0
        expected = answers(fast, Z)
        for form in (np.asfortranarray(Z), Z.astype(np.float32), np.repeat(Z, 2, axis=1)[:, ::2], Z.tolist()):
            same(answers(fast, form), expected)
        # Sparse rows meet the support vectors in another order, where the exact engine answers.
        for form in (sparse.csr_matrix(Z), sparse.csc_matrix(Z.astype(np.float32))):
            for got, want in zip(answers(fast, form), expected, strict=True):
                if want.dtype.kind == "f":
                    assert_allclose(got, want, rtol=0, atol=1e-4)
                else:
                    assert_array_equal(got, want)
        same(stage_of(fast).scores(Query(sparse.csr_matrix(Z))), stage_of(fast).scores(Query(Z)))

    def test_pickle_keeps_answers_and_report(self, promise, name):
        fast, Z = case(promise, name)[0], rows(100, 4, seed=3)
        again = pickle.loads(pickle.dumps(fast))
        same(answers(again, Z), answers(fast, Z))
        assert again.report == fast.report
        assert again.nbytes == fast.nbytes
        assert again.work(Z) == fast.work(Z)

    def test_input_is_unchanged(self, promise, name):
        fast, options = case(promise, name)
        X, Z = rows(400, 4), rows(100, 4, seed=3)
        before = X.copy(), Z.copy()
        X.flags.writeable = Z.flags.writeable = False
        again = accelerate(fast.machine, X, **options)
        same(answers(again, Z), answers(fast, Z))  # built twice with one random_state: the same predictor
        assert_array_equal(X, before[0])
        assert_array_equal(Z, before[1])
        for key, array in stage_of(fast).arrays.items():
            assert_array_equal(stage_of(again).arrays[key], array)
        assert again.report.agreement_bound == fast.report.agreement_bound

    def test_work(self, promise, name):
        fast, Z = case(promise, name)[0], rows(500, 4, seed=3)
        work, stage = fast.work(Z), stage_of(fast)
        assert work["rows"] == 500
        assert list(work["stages"]) == ["taylor_tree", "exact"]
        assert sum(work["stages"].values()) == pytest.approx(1.0, abs=1e-12)
        assert work["kernel_evaluations_per_row"] == pytest.approx(40 * work["stages"]["exact"])
        guard = fast._engine.guard
        assert (guard is not None) == (promise == "statistical")
        assert work["guarded"] == (0.0 if guard is None else guard(Query(Z)).mean())
        depth = stage.trace(Query(Z)).depth.mean()  # the tree asks its guard itself, about every row
        assert work["depth_per_row"] == pytest.approx(depth)
        assert work["dot_products_per_row"] == pytest.approx(depth + fast.machine.n_scores)
        assert fast.nbytes == fast._engine.exact.nbytes + stage.nbytes + (0 if guard is None else guard.nbytes)
        assert stage.nbytes >= sum(stage.arrays[k].nbytes for k in ("normals", "centres", "weights"))
        assert fast.report.details["leaves"] == stage.n_leaves

    def test_settled_labels_are_what_scores_and_error_scales_say(self, promise, name):
        fast, Z = case(promise, name)[0], rows(500, 4, seed=3) * 2
        stage = replace(stage_of(fast), guard=None)  # which leaves rows open at every caution
        scores, errors = stage.scores(Query(Z))
        # Proven bounds know no other threshold than 1.
        for caution in (1.0,) if promise == "certified" else (0.0, 1e-6, 0.3, 1.0, 2.5, 1e6):
            bounds = caution * errors if caution > 0.0 else np.zeros_like(errors)
            expected = settled_labels(fast.machine, scores, bounds)
            assert_array_equal(stage.settle(Query(Z), caution), expected)
            assert_array_equal(stage.settle(Query(sparse.csr_matrix(Z)), caution), expected)
        assert promise == "fitted" or (errors[:, 0] != errors[0, 0]).any() == (promise != "paper")

    def test_decision_function_agrees_with_predict(self, promise, name):
        fast, Z = case(promise, name)[0], rows(2000, 4, seed=3)
        machine = fast.machine
        if machine.task == "regression":
            with pytest.raises(AttributeError, match="A regressor has no decision_function"):
                fast.decision_function(Z)
            return
        decision, labels = fast.decision_function(Z), fast.predict(Z)
        # Scores of the exact engine are float32 here, their labels those of float64: ties are left out.
        clear = (np.abs(decision) > 1e-4).reshape(len(Z), -1).all(axis=1)
        assert clear.mean() > 0.99
        if machine.rule == "pairs":
            if machine.n_classes == 2:
                expected = machine.classes[(decision > 0).astype(int)]
            else:
                expected = machine.classes[_vote(machine, decision)]
        elif machine.rule == "argmax":
            expected = machine.classes[decision.argmax(axis=1)]
        else:
            expected = np.where(decision > 0, 1, -1)
        assert_array_equal(labels[clear], expected[clear])


@pytest.mark.parametrize("task", [{"n_classes": 2}, {"n_classes": 4}], ids=str)
def test_sparse_rows_walk_by_their_stored_features(task, monkeypatch):
    def thin(n, seed):
        return np.where(np.random.default_rng(seed).random((n, 60)) < 0.05, rows(n, 60, seed), 0.0)

    machine, X, Z = random_machine(n_sv=40, d=60, as_csr=True, **task), thin(300, 1), thin(900, 2)
    X = X[(X != 0).any(axis=1)]
    exact = svelto.accelerate(machine)
    for options in PROMISES.values():
        fast = accelerate(machine, sparse.csr_matrix(X), **options)
        stage = stage_of(fast)
        assert stage.arrays["stored"]
        same(answers(accelerate(machine, X, **options), Z), answers(fast, Z))
        whole = stage.scores(Query(Z))
        same(stage.scores(Query(sparse.csr_matrix(Z))), whole)
        same(stage.scores(Query(Z), 2), whole)
        same(stage.scores(Query(sparse.csr_matrix(Z)[:7])), [a[:7] for a in whole])
        for level in LEVELS:
            monkeypatch.setenv("SVELTO_ISA", level)
            same(stage_of(pickle.loads(pickle.dumps(fast))).scores(Query(Z)), whole)
        monkeypatch.delenv("SVELTO_ISA")
        if options is PAPER:
            leaf = np.empty(len(Z), dtype=int)
            slow_leaf(X, np.arange(len(X)), Z, np.arange(len(Z)), leaf)
            expected, atol = expansion(machine, X, leaf, Z)
            assert (np.abs(whole[0] - expected) <= atol).all()
            size = (Z**2).sum(axis=1) + (X[leaf] ** 2).sum(axis=1)  # what the float32 sums of a distance round by
            sq_dist = ((Z - X[leaf]) ** 2).sum(axis=1)
            assert (np.abs(stage.trace(Query(Z)).sq_dist - sq_dist) <= 1e-6 * size).all()
            assert_array_equal(fast.predict(X), exact.predict(X))
        if options["agreement"] == 1.0:
            assert_array_equal(fast.predict(Z), exact.predict(Z))


def test_rows_far_from_the_data_go_to_the_exact_engine():
    for name in MACHINES:
        fast, _ = case("statistical", name)
        assert fast.work(rows(200, 4))["stages"]["exact"] < 1.0  # the tree answers where the data is
        for far in (rows(200, 4) * 1e3, rows(200, 4) + 1e6, np.full((3, 4), 1e30), -np.full((3, 4), 1e300)):
            with np.errstate(all="ignore"):
                assert (stage_of(fast).scores(Query(far))[1] == np.inf).all()
                assert fast.work(far)["stages"]["exact"] == 1.0
                assert_array_equal(fast.predict(far), svelto.accelerate(fast.machine).predict(far))


def test_limits():
    X = rows(500, 3)
    for task in ({"n_classes": 2}, {"n_classes": 3}, {"n_classes": 6}, {"task": "regression", "n_outputs": 17}):
        machine = random_machine(n_sv=30, d=3, **task)
        for most in (2, 3, 100):
            fast = accelerate(machine, X, agreement=None, leaf_size=1, fit="taylor", max_leaves=most)
            assert stage_of(fast).n_leaves == most
        for depth in (1, 4):
            fast = accelerate(machine, X, agreement=None, leaf_size=1, fit="taylor", max_depth=depth)
            assert stage_of(fast).trace(Query(X)).depth.max() == depth
        for most in (5_000, 50_000):
            fast = accelerate(machine, X, agreement=None, leaf_size=1, fit="taylor", max_bytes=most)
            assert 0.5 * most < stage_of(fast).nbytes <= most
    certified = accelerate(random_machine(n_sv=30, d=3), X, agreement=1.0, leaf_size=1, max_bytes=50_000)
    assert stage_of(certified).nbytes <= 50_000


@pytest.mark.parametrize("limit", [{"max_leaves": 1}, {"leaf_size": 1000}, {"max_bytes": 1}], ids=str)
def test_a_tree_of_one_leaf(limit):
    machine, X = random_machine(n_sv=30, d=3), rows(100, 3)
    scores, atol = expansion(machine, X.mean(axis=0)[None, :], np.zeros(100, dtype=int), X)
    for _ in range(5):  # without inner nodes their arrays are empty, and stand wherever memory was free
        stage = stage_of(accelerate(machine, X, agreement=None, fit="taylor", **limit))
        assert stage.n_leaves == 1
        assert (np.abs(stage.scores(Query(X))[0] - scores) <= atol).all()


def test_probabilities_are_the_exact_machines():
    Z = rows(300, 4, seed=3)
    for n_classes in (2, 4):
        n_pairs = n_classes * (n_classes - 1) // 2
        platt = PlattPairs(np.full(n_pairs, -1.5), np.linspace(-0.2, 0.2, n_pairs))
        machine = random_machine(n_sv=40, d=4, n_classes=n_classes, platt=platt)
        expected = svelto.accelerate(machine).predict_proba(Z)
        for options in PROMISES.values():
            assert_array_equal(accelerate(machine, rows(400, 4), **options).predict_proba(Z), expected)
    with pytest.raises(AttributeError, match=r"Scores of an approximation have no proven bound"):
        case("fitted", "two classes")[0].score_bounds(Z)


@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler((-1, 1))], ids=str)
def test_folded_scalers(scaler):
    X, y, Z = data(3, n_rows=400)
    X, Z = X * [1, 10, 100, 0.1, 0.01] + 3, Z * [1, 10, 100, 0.1, 0.01] + 3
    pipe = make_pipeline(scaler, SVC(decision_function_shape="ovo")).fit(X, y)
    for name, options in PROMISES.items():
        folded = accelerate(pipe, X, **options)
        assert folded.machine.scaling is not None
        plain = accelerate(pipe[-1], pipe[0].transform(X), **options)
        same(answers(folded, Z), answers(plain, pipe[0].transform(Z)))
        assert_array_equal(folded.predict(Z[:3]), folded.predict(Z)[:3])
        assert folded.report.agreement_bound == plain.report.agreement_bound
        if name == "paper":
            assert_array_equal(folded.predict(X), pipe.predict(X))
        if name == "certified":
            assert_array_equal(folded.predict(Z), pipe.predict(Z))


def test_steps_that_cannot_be_folded_and_regressors():
    X, y, Z = data(2, n_rows=400)
    pipe = make_pipeline(PCA(3, random_state=0), SVC()).fit(X, y)
    paper, certified = accelerate(pipe, X, **PAPER), accelerate(pipe, X, agreement=1.0)
    assert stage_of(paper).arrays["d"] == 3
    assert_array_equal(paper.predict(X), pipe.predict(X))
    assert_array_equal(certified.predict(Z), pipe.predict(Z))
    plain = accelerate(pipe[-1], pipe[0].transform(X), **PAPER)
    same(answers(paper, Z), answers(plain, pipe[0].transform(Z)))
    svr = make_pipeline(StandardScaler(), SVR()).fit(X, X[:, 0])
    # At its own points the tangent is the value itself; all that is left is float32.
    assert_allclose(accelerate(svr, X, **PAPER).predict(X), svr.predict(X), rtol=0, atol=1e-5)
