"""method="auto": what it chooses, what it says about it, and what it does when it is stopped."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_moons
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, OneClassSVM

import svelto
from machines import random_machine
from svelto.auto_options import AutoOptions
from svelto.method_search import Search
from svelto.oracle import FOR_HINGES
from svelto.stopwatch import Stopwatch
from svelto.workshop import Workshop

X, Y = make_moons(3000, noise=0.3, random_state=0)
NEW = make_moons(4000, noise=0.3, random_state=1)[0]
SVM = SVC(C=10.0).fit(X, Y)


@pytest.fixture
def small_sample(monkeypatch):
    """Two rounds on few rows."""
    monkeypatch.setattr("svelto.method_search.SAMPLE_ROWS", 1000)


@pytest.fixture(autouse=True)
def little_effort(monkeypatch):
    monkeypatch.setattr("svelto.workshop.FOR_HINGES", replace(FOR_HINGES, least=6000, per_row=2))


@pytest.fixture
def clock(monkeypatch):
    """Times by name of the first stage instead of a real clock: a dict to be filled."""
    told = {"exact": 10.0}

    def times(self, engines, repeats=5):
        def name(engine):
            return engine.stages[0].name.replace("small ", "") if hasattr(engine, "stages") else "exact"

        return [1e-6 * told.get(name(engine), 1000.0) for engine in engines]

    monkeypatch.setattr(Stopwatch, "times", times)
    return told


def chosen(fast):
    (trial,) = [trial for trial in fast.report.tried if trial.chosen]
    return trial


def test_the_fastest_is_taken_and_keeps_the_promise(small_sample):
    fast = svelto.accelerate(SVM, X, agreement=0.99, random_state=0, n_jobs=1)
    report = fast.report
    assert report.promise == "statistical"
    assert (fast.predict(NEW) == SVM.predict(NEW)).mean() >= 0.99
    assert chosen(fast).method == report.method
    assert {trial.method for trial in report.tried} >= {"exact", "hinges"}
    assert chosen(fast).n_rows == len(X)  # built on all rows in the end
    assert min(trial.n_rows for trial in report.tried if trial.method != "exact") == 1000
    assert "tried: hinges" in str(report)
    assert "auto: the fastest of those tried" in str(report)


def test_rows_of_the_final_check_are_seen_by_no_choice(small_sample, monkeypatch):
    used = []
    find = Workshop.find

    def watched(self, *given):
        used.append(self)
        return find(self, *given)

    monkeypatch.setattr(Workshop, "find", watched)
    others = make_moons(8000, noise=0.3, random_state=2)[0]  # not trained on: rows are held out
    svelto.accelerate(SVM, others, agreement=0.99, random_state=0, n_jobs=1)
    sample, whole = (parts.calibrator.rows for parts in (used[0], used[-1]))
    assert len(sample.build) == 1000
    assert len(whole.build) > 0.5 * len(others)

    def as_set(rows):
        return {row.tobytes() for row in rows}

    assert not as_set(sample.choose) & as_set(whole.check)
    assert not as_set(whole.choose) & as_set(whole.check)
    assert not as_set(sample.choose) & as_set(sample.check)
    assert not as_set(sample.build) & as_set(whole.check)


@pytest.mark.parametrize(
    ("model", "given", "why"),
    [
        (SVM, None, "no rows were given"),
        (SVC(kernel="linear").fit(X[:200], Y[:200]), X, "a linear machine"),
        (SVR().fit(X[:500], X[:500, 0]), X, "pass tolerance"),
        (random_machine(n_sv=8, d=2), NEW, "so small"),
        (CalibratedClassifierCV(SVC(), ensemble=False).fit(X[:300], Y[:300]), X, "probabilities"),
    ],
    ids=["no rows", "linear", "regressor", "tiny", "calibrated"],
)
def test_where_nothing_else_can_be_better(model, given, why):
    fast = svelto.accelerate(model, given, random_state=0)
    assert fast.report.method == fast.report.promise == "exact"
    assert why in fast.report.details["chosen by"]


@pytest.mark.parametrize(
    ("rows", "why"),
    [(X[:1], "X has 1 row"), (np.ones((50, 2)), "50 rows of X are identical"), (X * 1e20, "differ by up to")],
    ids=["one", "equal", "large"],
)
def test_rows_that_nothing_can_be_built_on(rows, why):
    fast = svelto.accelerate(SVM, rows, random_state=0)
    assert fast.report.method == "exact"
    assert why in fast.report.details["chosen by"]


@pytest.mark.parametrize("bad", [np.full((9, 2), np.nan), np.ones((9, 3)), np.ones(9), "text"])
def test_rows_that_are_no_rows(bad):
    with pytest.raises((ValueError, TypeError)):
        svelto.accelerate(SVM, bad, random_state=0)


def test_a_hostile_machine_is_left_to_the_exact_engine(clock, small_sample):
    clock.update(hinges=11.0, taylor_tree=9.5, reduced_set=40.0)  # 9.5 is no better than 10 within noise
    fast = svelto.accelerate(SVM, X, agreement=0.99, random_state=0, n_jobs=1)
    assert fast.report.method == "exact"
    assert "nothing that was tried is faster" in fast.report.details["chosen by"]
    assert chosen(fast).microseconds == pytest.approx(10.0)
    assert_array_equal(fast.predict(NEW), SVM.predict(NEW))


def test_ties_do_not_hinge_on_noise(clock, small_sample):
    choices = set()
    for hinges, tree in ((1.0, 1.05), (1.05, 1.0), (1.0, 0.95)):
        clock.update(hinges=hinges, taylor_tree=tree, reduced_set=5.0)
        choices.add(svelto.accelerate(SVM, X, agreement=0.99, random_state=0, n_jobs=1).report.method)
    assert choices == {"hinges"}
    clock.update(hinges=1.0, taylor_tree=0.5)
    fast = svelto.accelerate(SVM, X, agreement=0.99, random_state=0, n_jobs=1)
    assert fast.report.method == "taylor_tree"
    again = svelto.accelerate(SVM, X, agreement=0.99, random_state=0, n_jobs=1)
    assert_array_equal(again.predict(NEW), fast.predict(NEW))
    assert again.report.tried[-1].setting == fast.report.tried[-1].setting


def test_what_is_close_is_built_on_all_rows_and_the_faster_one_taken(clock, small_sample):
    clock.update(hinges=1.0, taylor_tree=1.0, reduced_set=50.0)
    fast = svelto.accelerate(SVM, X, agreement=0.99, random_state=0, n_jobs=1)
    assert [t.method for t in fast.report.tried if t.n_rows == len(X)] == ["hinges", "taylor_tree"]
    assert fast.report.method == "hinges"


def test_rows_that_a_trial_leaves_open_are_answered_by_the_reduced_set_of_the_sample(clock, small_sample, monkeypatch):
    """With the exact engine behind it, a stage that will win on all rows may look hopeless on few."""
    clock.update(hinges=1.0, taylor_tree=20.0, reduced_set=20.0)
    built = []
    build = Workshop._build

    def watched(self, options):
        built.append((len(self.rows), type(options).__name__))
        return build(self, options)

    monkeypatch.setattr(Workshop, "_build", watched)
    sharp = SVC(C=10.0, gamma=50.0).fit(X, Y)
    fast = svelto.accelerate(sharp, X, agreement=0.99, random_state=0, n_jobs=1)
    trial = next(t for t in fast.report.tried if t.method == "hinges" and t.n_rows == 1000)
    assert sharp.support_vectors_.shape[0] > 4 * 192  # else nothing stands behind
    assert trial.stages["reduced_set"] > 0.0
    assert trial.setting == "hinges (63), reduced_set (128), built on 1000 rows"
    assert built.count((1000, "ReducedSetOptions")) == 1  # its own trial uses the same one


def test_where_a_promise_cannot_be_shown_an_exact_method_answers(clock, small_sample, monkeypatch):
    """Asking one candidate after the other until one passes would promise more than the confidence says."""
    clock.update(hinges=1.0, taylor_tree=0.5, reduced_set=5.0)
    certified, asked = Workshop.certified, []

    def strict(self, found):
        asked.append(found.stages[0].name)
        cascade, certificate = certified(self, found)
        return cascade, replace(certificate, kept=False)

    monkeypatch.setattr(Workshop, "certified", strict)
    fast = svelto.accelerate(SVM, X, agreement=0.99, random_state=0, n_jobs=1)
    assert asked == ["taylor_tree"]  # nothing is checked before it is chosen, and nothing afterwards
    assert fast.report.method == chosen(fast).method == "exact"
    assert "could not be shown" in fast.report.details["chosen by"]
    assert "no threshold could be shown" in fast.report.details["not chosen, taylor_tree"]


def test_certainty():
    fast = svelto.accelerate(SVM, X, agreement=1.0, random_state=0, n_jobs=1)
    assert fast.report.promise == "exact"
    assert_array_equal(fast.predict(NEW), SVM.predict(NEW))
    assert {trial.promise for trial in fast.report.tried} == {"exact"}


def test_little_memory(small_sample):
    with pytest.raises(ValueError, match=r"fits into max_bytes=3000: the exact engine.*agreement=None"):
        svelto.accelerate(SVM, X, max_bytes=3000, agreement=0.99, random_state=0, n_jobs=1)
    fast = svelto.accelerate(SVM, X, max_bytes=3000, agreement=None, random_state=0, n_jobs=1)
    assert fast.report.promise == "none"
    assert chosen(fast).nbytes <= 3000
    assert (fast.predict(NEW) == SVM.predict(NEW)).mean() > 0.9
    needed = svelto.accelerate(SVM).nbytes
    fast = svelto.accelerate(SVM, X, max_bytes=needed, agreement=0.99, random_state=0, n_jobs=1)
    assert fast.report.method == "exact"
    assert any("max_bytes" in str(why) for why in fast.report.details.values())


def test_without_a_promise_stages_answer_alone(clock):
    clock.update(hinges=2.0, taylor_tree=1.0, reduced_set=3.0)
    fast = svelto.accelerate(SVM, X, agreement=None, random_state=0, n_jobs=1)
    assert fast.report.promise == "none"
    assert fast.work(NEW)["stages"]["exact"] == 0.0
    good = [trial for trial in fast.report.tried if trial.agreement >= 0.99 and trial.method != "exact"]
    assert chosen(fast).microseconds == min(trial.microseconds for trial in good)


def test_stages_alone_are_faster_than_the_exact_engine_or_not_taken(clock):
    clock.update(hinges=20.0, taylor_tree=30.0, reduced_set=40.0)
    assert svelto.accelerate(SVM, X, agreement=None, random_state=0, n_jobs=1).report.method == "exact"


def test_certainty_is_no_statistical_confidence():
    fast = svelto.accelerate(SVM, X, confidence=1.0, random_state=0)
    assert fast.report.promise == "exact"
    assert "confidence is 1.0" in fast.report.details["chosen by"]


def test_scaled_rows_are_not_scaled_again(small_sample):
    """Single rows are timed behind the scaler: nearly all of them must be settled by the stage."""
    pipe = make_pipeline(StandardScaler(), SVC(C=10.0)).fit(10.0 * X + 100.0, Y)
    seen = []
    ask = Stopwatch._ask

    def watched(self, engine, batch):
        seen.append((self.short_way, np.abs(batch).max()))
        ask(self, engine, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stopwatch, "_ask", watched)
        svelto.accelerate(pipe, 10.0 * X + 100.0, agreement=0.99, batch_size=1, random_state=0, n_jobs=1)
    assert not any(short for short, _ in seen)
    assert max(size for _, size in seen) < 20.0


def test_a_budget_of_time_ends_the_search():
    fast = svelto.accelerate(SVM, X, time_budget=1e-9, random_state=0)
    assert fast.report.method == "exact"
    assert "time budget" in fast.report.details["chosen by"]


def test_ctrl_c_returns_the_best_so_far(clock, small_sample, monkeypatch):
    clock.update(hinges=2.0)
    find, calls = Workshop.find, []

    def interrupted(self, options, *given):
        calls.append(options)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return find(self, options, *given)

    monkeypatch.setattr(Workshop, "find", interrupted)
    fast = svelto.accelerate(SVM, X, agreement=0.99, random_state=0, n_jobs=1)
    assert fast.report.method == "hinges"
    assert "interrupted" in fast.report.details["chosen by"]
    assert (fast.predict(NEW) == SVM.predict(NEW)).mean() >= 0.99
    calls[:] = [None]  # interrupted at the first candidate
    assert svelto.accelerate(SVM, X, agreement=0.99, random_state=0, n_jobs=1).report.method == "exact"


def test_an_interrupted_search_says_so_where_its_promise_fails_too(clock, small_sample, monkeypatch):
    clock.update(hinges=2.0)
    find, calls = Workshop.find, []

    def interrupted(self, options, *given):
        calls.append(options)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return find(self, options, *given)

    monkeypatch.setattr(Workshop, "find", interrupted)
    monkeypatch.setattr(Search, "_certified", lambda self, workshop, found, method: None)
    report = svelto.accelerate(SVM, X, agreement=0.99, random_state=0, n_jobs=1).report
    assert report.method == "exact"
    assert "interrupted" in report.details["chosen by"]
    assert "the promise of the fastest could not be shown" in report.details["chosen by"]


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_batches(batch_size, small_sample):
    fast = svelto.accelerate(SVM, X, agreement=0.99, batch_size=batch_size, random_state=0, n_jobs=1)
    assert fast.report.details["batch size"] == batch_size
    assert (fast.predict(NEW) == SVM.predict(NEW)).mean() >= 0.99


def test_rows_are_timed_as_they_come(small_sample, monkeypatch):
    """Sparse rows are read in another way than dense ones."""
    seen = []
    made = Stopwatch.__init__

    def watched(self, rows, *rest, **named):
        seen.append(rows)
        made(self, rows, *rest, **named)

    monkeypatch.setattr(Stopwatch, "__init__", watched)
    wide = sparse.random_array((1500, 40), density=0.1, format="csr", random_state=0)
    svm = SVC(C=5.0).fit(wide, wide[:, :20].sum(axis=1) > wide[:, 20:].sum(axis=1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for rows in (wide, wide.toarray()):
            svelto.accelerate(svm, rows, agreement=0.95, time_budget=1e-9, random_state=0)
    assert [sparse.issparse(rows) for rows in seen] == [True, False]


def test_other_machines():
    values = SVR(C=5.0).fit(X, np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1])
    fast = svelto.accelerate(values, X, tolerance=0.1, agreement=0.99, random_state=0, n_jobs=1)
    assert (np.abs(fast.predict(NEW) - values.predict(NEW)) <= 0.1).mean() >= 0.99
    outliers = OneClassSVM(nu=0.1, gamma=1.0).fit(X)
    fast = svelto.accelerate(outliers, X, agreement=0.99, random_state=0, n_jobs=1)
    assert (fast.predict(NEW) == outliers.predict(NEW)).mean() >= 0.99
    pipe = make_pipeline(StandardScaler(), SVC(C=5.0)).fit(X * [1.0, 100.0], Y)
    fast = svelto.accelerate(pipe, X * [1.0, 100.0], agreement=0.99, random_state=0, n_jobs=1)
    assert (fast.predict(NEW * [1.0, 100.0]) == pipe.predict(NEW * [1.0, 100.0])).mean() >= 0.99


def overlap(A, B):
    """A kernel in Python, on strings."""
    return np.array([[len(set(a) & set(b)) / len(set(a) | set(b)) for b in B] for a in A])


def test_objects():
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefghij"), size=rng.integers(2, 7))) for _ in range(900)]
    gram = overlap(words[:300], words[:300])
    svm = SVC(kernel="precomputed").fit(gram, [("a" in word) != ("b" in word) for word in words[:300]])
    machine = svelto.KernelMachine.from_arrays(
        kernel=overlap,
        support_vectors=[words[i] for i in svm.support_],
        dual_coef=svm.dual_coef_,
        intercept=svm.intercept_,
        classes=svm.classes_,
    )
    expected = svm.predict(overlap(words[600:], words[:300]))
    # The machine's own objects can show nothing; others can.
    for given, least in ((words[:300], 1.0), (words[300:600], 0.9)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            fast = svelto.accelerate(machine, given, agreement=0.9, random_state=0)
            single = svelto.accelerate(machine, given, agreement=0.9, random_state=0, batch_size=1)
        assert (fast.predict(words[600:]) == expected).mean() >= least
        assert (single.predict(words[600:]) == expected).mean() >= least
        if least == 1.0:
            assert fast.report.promise == "exact"


def test_what_few_rows_cannot_show_is_not_promised():
    fast = svelto.accelerate(SVM, X, agreement=0.9999, random_state=0, n_jobs=1)  # and no warning
    assert fast.report.promise == "exact"
    assert "needs 29956 rows to check it on; there are 3000" in fast.report.details["chosen by"]


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"batch_size": 0}, ValueError, "batch_size is 0"),
        ({"max_bytes": 1.5}, ValueError, "max_bytes is 1.5"),
        ({"time_budget": -1}, ValueError, "time_budget is -1"),
        ({"precision": "half"}, ValueError, "precision is 'half'"),
        ({"n_hinges": 5}, TypeError, "method='auto' has no option 'n_hinges'; it has: batch_size"),
        ({"tolerance": 0.1}, ValueError, "tolerance is 0.1, but the machine answers with labels"),
    ],
)
def test_requests_that_make_no_sense(options, error, match):
    with pytest.raises(error, match=match):
        svelto.accelerate(SVM, X, **options)


def test_before_anything_is_tried_the_exact_engine_is_the_best():
    search = Search(svelto.KernelMachine.from_sklearn(SVM), AutoOptions(), 0.99, 0.95, 1)
    engine, report = search.result("because")
    assert engine is search.exact
    assert report.tried == ()  # nothing was timed
    assert report.details["chosen by"] == "auto: because"


@pytest.mark.parametrize("form", ["coo", "bsr", "csc"])
def test_rows_in_any_sparse_form(form):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6)) * (rng.random((400, 6)) < 0.4)
    svc = SVC(gamma=2.0).fit(sparse.csr_matrix(X), rng.integers(2, size=400))
    fast = svelto.accelerate(svc, sparse.csr_array(X).asformat(form), random_state=0)
    assert (fast.predict(sparse.csr_matrix(X)) == svc.predict(sparse.csr_matrix(X))).all()
