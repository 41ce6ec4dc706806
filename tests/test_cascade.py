"""The cascade: who answers which row, what a threshold means, and what `accelerate` says about bad requests."""

from __future__ import annotations

import math
import warnings
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import svelto
from machines import random_machine
from oracle import class_pairs, slow_scores
from sklearn_cases import data
from sklearn_cases import product as dot_products
from svelto import _core
from svelto._inputs import Query
from svelto.calibrate import GRID, trace_stage
from svelto.cascade import Cascade, settled_labels
from svelto.engines.exact import build_exact
from svelto.guarantee import disagreement_bound, rows_needed, settled_wrong

FAST = {"method": "taylor_tree", "random_state": 0, "n_jobs": 1}


@pytest.fixture(autouse=True)
def trees_pay(monkeypatch):
    """Small machines keep tests fast, but against them no tree pays, and none would be used: here every tree pays."""
    monkeypatch.setattr("svelto.stage_search.PAYS", 1e9)


def rows(n, d=3, seed=1):
    return np.random.default_rng(seed).normal(size=(n, d))


class FakeStage:
    """Scores that are wrong where `lies` says so, with error scales of its own choice."""

    nbytes = 7

    def __init__(self, machine, errors=1.0, lies=lambda X: np.zeros(len(X), dtype=bool), name="fake"):
        self.machine, self.errors, self.lies, self.name = machine, errors, lies, name
        self.asked = []

    def scores(self, query, n_jobs=None):
        X = query.rows.toarray() if sparse.issparse(query.rows) else np.asarray(query.rows)
        self.asked.append(X)
        scores = slow_scores(self.machine, X)
        scores[self.lies(X)] *= -1.0
        errors = self.errors(X) if callable(self.errors) else self.errors
        return scores, np.broadcast_to(np.reshape(errors, (-1, 1)), scores.shape).copy()

    def settle(self, query, caution, n_jobs=None):
        scores, errors = self.scores(query, n_jobs)
        return settled_labels(self.machine, scores, caution * errors if caution > 0 else np.zeros_like(errors))

    def operations(self):
        return 1.0

    def cost(self, query, n_jobs=None):
        return {"dot_products_per_row": 1.0}


def cascade(machine, stages, thresholds, **options):
    return Cascade(machine, stages, thresholds, build_exact(machine), **options)


def always(X):
    return np.ones(len(X), dtype=bool)


# -- who answers -----------------------------------------------------------------------------------------------------


def test_zero_settles_everything_and_infinity_nothing():
    machine, X = random_machine(d=3), rows(200)
    exact = build_exact(machine).labels(Query(X))[0]
    liar = FakeStage(machine, errors=np.inf, lies=always)
    labels, settled = cascade(machine, [liar], [0.0]).labels(Query(X))
    assert settled == [200, 0]
    assert_array_equal(labels, 1 - exact)
    labels, settled = cascade(machine, [liar], [math.inf]).labels(Query(X))
    assert settled == [0, 200]
    assert_array_equal(labels, exact)
    assert len(liar.asked) == 1  # and it was not even asked
    for threshold, sign in ((0.0, -1.0), (math.inf, 1.0)):
        scores = cascade(machine, [liar], [threshold]).scores(Query(X))
        assert_allclose(scores, sign * slow_scores(machine, X), rtol=0, atol=1e-4)  # float32 scores


def test_each_row_is_settled_where_its_score_exceeds_its_error_scale():
    machine, X = random_machine(d=3), rows(300)
    size, exact = np.abs(slow_scores(machine, X)[:, 0]), build_exact(machine).labels(Query(X))[0]
    first, second = FakeStage(machine, 1.0, lies=always), FakeStage(machine, 0.1, name="second")
    engine = cascade(machine, [first, second], [2.0, 3.0])
    labels, settled = engine.labels(Query(X))
    by_first, by_second = size > 2.0, (size <= 2.0) & (size > 0.3)
    assert settled == [by_first.sum(), by_second.sum(), 300 - by_first.sum() - by_second.sum()]
    assert min(settled) > 0
    assert_array_equal(labels, np.where(by_first, 1 - exact, exact))
    assert_array_equal(second.asked[0], X[~by_first])  # only what the first left open
    work = engine.work(Query(X))
    assert list(work["stages"].values()) == [s / 300 for s in settled]
    assert engine.nbytes == build_exact(machine).nbytes + 14
    for part in (X[:1], X[:16], X[100:]):  # the short way answers alike
        assert_array_equal(engine.predict_one_block(part), engine.labels(Query(part))[0])


@pytest.mark.parametrize("threshold", [0.0, 1.0, math.inf])
def test_guarded_rows_go_to_the_exact_engine(threshold):
    machine, X = random_machine(d=3), rows(300)
    exact = build_exact(machine).labels(Query(X))[0]
    for marked in (X[:, 0] > 0.5, X[:, 0] > 99, X[:, 0] > -99):
        stage = FakeStage(machine, errors=1e-6, lies=always)
        engine = cascade(machine, [stage], [threshold], guard=lambda q, m=marked: m[: q.rows.shape[0]])
        labels, settled = engine.labels(Query(X))
        left = marked | (threshold == math.inf)
        assert_array_equal(labels, np.where(left, exact, 1 - exact))
        assert settled == [300 - left.sum(), left.sum()]
        assert_allclose(engine.scores(Query(X))[left], slow_scores(machine, X)[left], rtol=0, atol=1e-4)
        assert_allclose(engine.scores(Query(X))[~left], -slow_scores(machine, X)[~left], rtol=0, atol=1e-12)
        assert engine.work(Query(X))["stages"] == {"fake": settled[0] / 300, "exact": settled[1] / 300}
        assert all(not len(asked) or len(asked) == (~marked).sum() for asked in stage.asked)
        few = engine.predict_one_block(X[:4])  # the short way gives no other answer
        assert few is None or few.tolist() == labels[:4].tolist()


@pytest.mark.parametrize("n_classes", [3, 4, 5])
def test_many_classes_are_settled_exactly_where_no_undecided_pair_can_change_the_vote(n_classes):
    rng = np.random.default_rng(n_classes)
    pairs = class_pairs(n_classes)
    machine = random_machine(n_sv=20, d=3, n_classes=n_classes)
    scores = rng.normal(size=(400, len(pairs)))
    bounds = rng.gamma(1.0, 0.5, size=scores.shape)
    bounds[::7] = 0.0
    scores[::5, 0] = 0.0  # a zero is never decided
    bounds[3, 1], scores[4, 2] = np.inf, np.nan
    expected = []
    for row, bound in zip(scores, bounds, strict=True):
        choices = [(v > 0,) if abs(v) > b else (True, False) for v, b in zip(row, bound, strict=True)]
        winners = set()
        for pattern in product(*choices):
            votes = [0] * n_classes
            for (i, j), for_i in zip(pairs, pattern, strict=True):
                votes[i if for_i else j] += 1
            winners.add(votes.index(max(votes)))
        expected.append(winners.pop() if len(winners) == 1 else -1)
    assert_array_equal(settled_labels(machine, scores, bounds), expected)
    assert 0.1 < np.mean(np.array(expected) < 0) < 0.9


def test_argmax_and_outliers_are_settled_where_no_error_can_change_them():
    rng = np.random.default_rng(0)
    scores, bounds = rng.normal(size=(500, 3)), rng.gamma(1.0, 0.3, size=(500, 3))
    got = settled_labels(random_machine(n_classes=3, rule="argmax"), scores, bounds)
    for row, bound, label in zip(scores, bounds, got, strict=True):
        least = row - bound
        sure = [c for c in range(3) if all(least[c] > row[o] + bound[o] for o in range(3) if o != c)]
        assert label == (sure[0] if sure else -1)
    got = settled_labels(random_machine(task="outlier"), scores[:, :1].copy(), bounds[:, :1].copy())
    expected = np.where(np.abs(scores[:, 0]) > bounds[:, 0], (scores[:, 0] > 0).astype(int), -1)
    assert_array_equal(got, expected)
    with pytest.raises(ValueError, match="scores and classes disagree"):
        _core.settle(scores, bounds, 0, 4, False, np.empty(500, dtype=np.int32))


# -- thresholds mean the same in calibration and in use --------------------------------------------------------------

KINDS = {
    "two classes": {"n_classes": 2},
    "outlier": {"task": "outlier"},
    "four classes": {"n_classes": 4},
    "argmax": {"n_classes": 3, "rule": "argmax"},
    "values": {"task": "regression"},
    "several values": {"task": "regression", "n_outputs": 3},
}


def traced(kind, X, errors, lies=always):
    machine = random_machine(n_sv=40, d=3, **KINDS[kind])
    tolerance = 0.3 if machine.task == "regression" else None
    stage, exact = FakeStage(machine, errors, lies), build_exact(machine)
    values = exact.scores(Query(X)) if tolerance else np.empty((0, 0))
    trace = trace_stage(stage, machine, X, values, exact.labels(Query(X))[0], tolerance, 1)
    return trace, cascade(machine, [stage], [0.0], tolerance=tolerance)


def settled_at(engine, X, threshold):
    scores, errors = engine.stages[0].scores(Query(X))
    return engine._settled(scores, errors, threshold)


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_rows_that_a_trace_holds_back_are_held_back_in_use(kind):
    """At any threshold, also at the caution of a row itself, use settles no wrong row that the trace did not."""
    X = rows(300)
    trace, engine = traced(kind, X, lambda X: np.exp(X[:, 0]), lies=lambda X: X[:, 1] > 0)
    assert 0.1 < trace.wrong.mean() < 0.9
    for threshold in [*trace.caution[trace.wrong][:60].tolist(), 1e-6, 0.5, 1.0, 3.0, 50.0]:
        held_back = trace.wrong & ~(trace.caution > threshold)
        assert not (settled_at(engine, X, threshold) & held_back).any()


@pytest.mark.parametrize("kind", KINDS)
def test_a_trace_holds_back_little_that_use_would_settle(kind):
    X = rows(300)
    trace, engine = traced(kind, X, lambda X: np.exp(X[:, 0]), lies=lambda X: X[:, 1] > 0)
    rung = GRID[2] / GRID[1]  # many classes are tried at rungs
    for threshold in (0.01, 0.1, 0.5, 1.0, 3.0):
        lost = settled_at(engine, X, threshold * rung) & ~(trace.caution > threshold)
        assert lost.mean() <= 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_error_scales_that_are_far_too_small(kind):
    """A stage that is wrong and far too sure of itself: no threshold may be believed to hold its rows back."""
    X = rows(200)
    trace, engine = traced(kind, X, 1e-9)
    for threshold in (1e3, 1e4, 1e6):
        wrong = int((settled_at(engine, X, threshold) & trace.wrong).sum())
        assert wrong > 50
        assert settled_wrong([trace], [threshold])[0] >= wrong


# -- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [{}, {"n_outputs": 3}], ids=str)
def test_values_are_within_the_tolerance_for_the_promised_share(task):
    machine = random_machine(n_sv=60, d=3, task="regression", **task)
    new = rows(20_000, seed=9)
    truth = slow_scores(machine, new)
    for tolerance in (0.05, 0.3):
        fast = svelto.accelerate(
            machine, rows(3000), **FAST, agreement=0.98, confidence=0.95, tolerance=tolerance, oracle_rows=2000
        )
        error = np.abs(fast.predict(new).reshape(truth.shape) - truth).max(axis=1)
        assert (error <= tolerance).mean() >= 0.98
        assert fast.report.agreement_bound >= 0.98
        assert fast.report.details["tolerance"] == tolerance
    assert fast.work(new)["stages"]["taylor_tree"] > 0.1


# -- requests that cannot be met -------------------------------------------------------------------------------------


def refused(error, model, X, **options):
    with pytest.raises(error) as caught:
        svelto.accelerate(model, X, **{**FAST, **options})
    return str(caught.value)


def test_machines_that_cannot_be_approximated():
    X = rows(100)
    text = refused(NotImplementedError, random_machine("laplacian", d=3), X)
    assert text.startswith(
        "method='taylor_tree' needs a kernel with a gradient (rbf, exponential, poly, sigmoid, linear)"
    )
    assert "this machine has laplacian(gamma=0.333333). Use method='exact'." in text
    A, y, _ = data(2)
    for kernel, fit_on, name in ((dot_products, A, "callable(product)"), ("precomputed", A @ A.T, "precomputed")):
        text = refused(NotImplementedError, SVC(kernel=kernel).fit(fit_on, y), fit_on)
        assert f"this machine has {name}. Use method='exact'." in text
    calibrated = CalibratedClassifierCV(SVC(), ensemble=False, cv=2).fit(A, y)
    text = refused(NotImplementedError, calibrated, A)
    assert "a CalibratedClassifierCV answers with the most probable class" in text
    assert text.endswith("Accelerate its inner estimator, or use method='exact'.")


def test_rows_that_nothing_can_be_built_on():
    machine, X = random_machine(d=3), rows(100)
    assert refused(ValueError, machine, None).startswith(
        "method='taylor_tree' learns from rows: pass X, unlabelled rows"
    )
    assert "The model was trained on 3 features; X has 5." in refused(ValueError, machine, rows(100, 5))
    bad = X.copy()
    bad[17, 2] = np.nan
    for form in (bad, sparse.csr_matrix(bad), bad.astype(np.float32)):
        assert "X contains nan (row 17, column 2)" in refused(ValueError, machine, form)
        text = refused(ValueError, machine, X, X_calibration=form)
        assert text.startswith("X_calibration: ")
        assert "(row 17, column 2)" in text
    bad[17, 2] = -np.inf
    assert "X contains -inf (row 17, column 2)" in refused(ValueError, machine, bad)
    assert "X has no rows" in refused(ValueError, machine, X[:0])
    for agreement in (None, 0.9, 1.0):
        assert refused(ValueError, machine, X[:1], agreement=agreement).startswith("X has 1 row(s); expected at least")
    assert "All 40 rows of X are identical" in refused(ValueError, machine, np.repeat(X[:1], 40, axis=0))
    assert "X_calibration has 1 row" in refused(ValueError, machine, X, X_calibration=X[:1])
    scaled = make_pipeline(StandardScaler(), SVC()).fit(X, X[:, 0] > 0)
    assert "(row 17, column 2)" in refused(ValueError, scaled, bad)
    pipe = make_pipeline(PCA(2), SVC()).fit(X, X[:, 0] > 0)
    assert "has 5 features" in refused(ValueError, pipe, rows(100, 5))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"leaves": 3}, TypeError, "method='taylor_tree' has no option 'leaves'; it has: leaf_size, fit, oracle_rows"),
        ({"precision": "float64"}, TypeError, "has no option 'precision'"),
        ({"leaf_size": 0}, ValueError, "leaf_size is 0; expected a whole number of at least 1."),
        ({"leaf_size": 2.5}, ValueError, "leaf_size is 2.5; expected"),
        ({"leaf_size": None}, ValueError, "leaf_size is None; expected"),
        ({"max_leaves": 0}, ValueError, "max_leaves is 0; expected a whole number of at least 1."),
        ({"max_depth": True}, ValueError, "max_depth is True; expected"),
        ({"max_bytes": -1}, ValueError, "max_bytes is -1; expected"),
        ({"oracle_rows": -1}, ValueError, "oracle_rows is -1; expected a whole number of at least 0 or 'auto'."),
        ({"oracle_rows": "many"}, ValueError, "oracle_rows is 'many'; expected"),
        ({"fit": "cubic"}, ValueError, "fit is 'cubic'; expected one of 'ridge', 'taylor'."),
        ({"split": "mean"}, ValueError, "split is 'mean'; expected one of 'balanced', 'midpoint', 'median'."),
        ({"farthest": 1}, ValueError, "farthest is 1; expected one of 'auto', 'exact', 'linear'."),
        ({"tolerance": 0.1}, ValueError, "tolerance is 0.1, but the machine answers with labels; use agreement."),
        ({"agreement": 1.5}, ValueError, "agreement is 1.5; expected"),
    ],
    ids=str,
)
def test_bad_options(options, error, message):
    assert message in refused(error, random_machine(d=3), rows(100), **options)


def test_values_need_a_tolerance():
    machine, X = random_machine(d=3, task="regression"), rows(400)
    for agreement in (0.9, 1.0):
        text = refused(ValueError, machine, X, agreement=agreement)
        assert text.startswith("A regressor answers with values, so agreement needs a tolerance")
        spread = slow_scores(machine, X).std()
        assert f"(on X the values have a standard deviation of {spread:.3g})" in text
        assert text.endswith("agreement=None for no promise.")
    for bad in (0.0, -1.0, np.nan, np.inf, "much", True):
        assert f"tolerance is {bad!r}; expected a positive number." in refused(ValueError, machine, X, tolerance=bad)
    assert svelto.accelerate(machine, X, **FAST, agreement=None).report.promise == "none"


def test_full_confidence_is_no_arithmetic_error():
    """Certainty cannot be had from a sample: either a clear refusal, or every row to the exact engine."""
    machine, X = random_machine(d=3), rows(1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            fast = svelto.accelerate(machine, X, **FAST, agreement=0.9, confidence=1.0)
        except ValueError as error:
            assert "confidence" in str(error)  # noqa: PT017 - one of two good answers
            return
    assert fast.work(X)["stages"]["exact"] == 1.0


def test_a_tree_that_does_not_pay_is_not_asked(monkeypatch):
    monkeypatch.setattr("svelto.stage_search.PAYS", 1.0)
    machine, X = random_machine(n_sv=5, d=3), rows(1000)
    fast = svelto.accelerate(machine, X, **FAST, agreement=0.9, oracle_rows=500)
    assert fast.report.promise == "exact"
    assert fast.report.agreement_bound == 1.0
    assert fast.report.details["note"].endswith("the exact engine answers every row")
    assert fast.work(X)["stages"] == {"taylor_tree": 0.0, "exact": 1.0}
    assert_array_equal(fast.predict(X), svelto.accelerate(machine).predict(X))
    assert_array_equal(fast.predict(X[:3]), fast.predict(X)[:3])
    # All rows go to the exact engine: few rows are no reason to warn (warnings are errors here).
    assert svelto.accelerate(machine, X[:200], **FAST, agreement=0.999, oracle_rows=500).report.promise == "exact"


def test_too_few_rows_are_said_to_be_too_few():
    machine, X = random_machine(d=3, gamma=0.1), rows(600)
    needed = rows_needed(1 - 0.999, 0.95)
    with pytest.warns(UserWarning, match="needs at least") as caught:
        fast = svelto.accelerate(machine, X, **FAST, agreement=0.999, confidence=0.95, oracle_rows=500)
    text = str(caught[0].message)
    assert f"agreement=0.999 at confidence=0.95 needs at least {needed} rows to check it on" in text
    assert text.endswith("Give more rows as X_calibration, or ask for less.")
    report = fast.report
    checked = int(report.details["calibration rows"].split(", ")[1].split(" ")[0])
    assert checked < needed
    assert f"there are {checked} to check on" in text
    assert report.agreement_bound < 0.999
    assert report.agreement_bound == pytest.approx(1 - disagreement_bound(0, checked, 0.95))
    assert f"{report.agreement_bound:.4f} can be shown" in text
    assert caught[0].filename == __file__  # the warning points at the caller
    # More rows as X_calibration answer the complaint.
    enough = svelto.accelerate(
        machine, X, **FAST, agreement=0.999, confidence=0.95, X_calibration=rows(2 * needed, seed=4), oracle_rows=500
    )
    assert enough.report.agreement_bound >= 0.999
