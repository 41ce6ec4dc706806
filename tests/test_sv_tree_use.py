"""Predictors of method="sv_tree" in use: promises kept, the same answer in every form, and bad requests."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, SVR, OneClassSVM

import svelto
from machines import random_machine
from oracle import slow_scores
from sklearn_cases import data
from svelto._inputs import Query
from svelto.kernels import Kernel
from test_sv_tree import (
    MACHINES,
    OPTIONS,
    QUICK,
    accelerate,
    case,
    letters,
    objects,
    rbf_function,
    rows,
    stage_of,
    words,
)
from test_taylor_tree import answers, same


@pytest.fixture(autouse=True)
def trees_pay(monkeypatch):
    """Small machines keep tests fast, but against them no tree pays, and none would be used: here every tree pays."""
    monkeypatch.setattr("svelto.stage_search.PAYS", 1e9)


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("how", OPTIONS)
class TestEveryTree:
    def test_rows_and_batches(self, how, name):
        fast, Z = case(how, name)[0], rows(130, seed=3) * 2
        whole = answers(fast, Z)
        for step in (1, 16, 17, 65):  # 16 rows take the short way
            parts = [answers(fast, Z[i : i + step]) for i in range(0, len(Z), step)]
            same([np.concatenate(p) for p in zip(*parts, strict=True)], whole)

    def test_threads_and_pickle(self, how, name):
        fast, Z = case(how, name)[0], rows(3000, seed=3)
        again = pickle.loads(pickle.dumps(fast))
        same(answers(again, Z), answers(fast, Z))
        assert (again.report, again.nbytes, again.work(Z)) == (fast.report, fast.nbytes, fast.work(Z))
        again.n_jobs = 2
        same(answers(again, Z), answers(fast, Z))

    def test_memory_orders_types_and_csr(self, how, name):
        fast = case(how, name)[0]
        Z = np.round(rows(100, seed=3) * 8) / 8  # exact in float32
        Z[Z < 0] = 0.0
        expected = answers(fast, Z)
        for form in (np.asfortranarray(Z), Z.astype(np.float32), np.repeat(Z, 2, axis=1)[:, ::2], Z.tolist()):
            same(answers(fast, form), expected)
        same(stage_of(fast).scores(Query(sparse.csr_matrix(Z))), stage_of(fast).scores(Query(Z)))
        for form in (sparse.csr_matrix(Z), sparse.csc_matrix(Z.astype(np.float32))):
            if fast.machine.task == "regression":  # the exact engine sums in another order
                assert_allclose(fast.predict(form), expected[0], rtol=0, atol=1e-4)
            else:
                assert_array_equal(fast.predict(form), expected[0])

    def test_built_again_it_is_the_same(self, how, name):
        fast, options = case(how, name)
        X, Z = rows(400), rows(100, seed=3)
        before, X.flags.writeable = X.copy(), False
        same(answers(accelerate(fast.machine, X, n_jobs=2, **options), Z), answers(fast, Z))
        assert_array_equal(X, before)

    def test_work_and_report(self, how, name):
        fast, Z = case(how, name)[0], rows(500, seed=3)
        work, stage, report = fast.work(Z), stage_of(fast), fast.report
        assert work["rows"] == 500
        assert list(work["stages"]) == ["sv_tree", "exact"]
        assert sum(work["stages"].values()) == pytest.approx(1.0, abs=1e-12)
        guard = fast._engine.guard
        assert (guard is not None) == (how == "statistical")
        asked = np.ones(500, dtype=bool) if guard is None else ~guard(Query(Z))
        assert work["guarded"] == pytest.approx(1.0 - asked.mean())
        evaluations = stage.evaluations(Query(Z))[asked].sum() / 500
        assert work["kernel_evaluations_per_row"] == pytest.approx(evaluations + 40 * work["stages"]["exact"])
        assert work["dot_products_per_row"] == (
            0 if how == "paper" else pytest.approx(asked.mean() * fast.machine.n_scores)
        )
        assert work["stages"]["exact"] < 1.0 if how == "statistical" else work["stages"]["exact"] == 0.0
        assert report.method == "sv_tree"
        assert report.promise == ("statistical" if how == "statistical" else "none")
        assert report.details["leaves"] == stage.n_leaves == sum(part.tree.n_leaves for part in stage.parts)
        assert report.details["bytes"] == fast.nbytes == fast._engine.nbytes
        guard_bytes = 0 if guard is None else guard.nbytes
        assert fast.nbytes == fast._engine.exact.nbytes + stage.nbytes + guard_bytes
        assert list(report.work) == [
            "share settled by sv_tree",
            "share settled by exact",
            *(["share sent on by the guard"] if how == "statistical" else []),
            "dot products a row",
            "kernel evaluations a row",
        ]
        assert (report.agreement is None) == (report.agreement_bound is None) == (how != "statistical")


# -- promises ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "source"), [*((name, "held out") for name in MACHINES), ("two classes", "given"), ("argmax", "stand-ins")]
)
def test_a_promise_holds_on_fresh_rows(name, source):
    machine = random_machine(n_sv=150 if source == "stand-ins" else 60, d=3, gamma=0.5, **MACHINES[name])
    new = rows(10_000, 3, seed=9)
    options = {"agreement": 0.98, "confidence": 0.95, **QUICK}
    tolerance = 0.3 if machine.task == "regression" else None
    if tolerance:
        options["tolerance"] = tolerance
    if source == "given":
        options["X_calibration"] = rows(1500, 3, seed=5)
    X = rows(2500, 3)
    if source == "stand-ins":  # X holds the support vectors, as training rows do
        X[: machine.n_sv] = machine.support_vectors
    fast = accelerate(machine, X, **options)
    assert fast.report.details["calibration rows"].startswith(source)
    assert ("100%" in fast.report.details["calibration rows"]) == (source == "stand-ins")
    assert fast.report.promise == "statistical"
    assert fast.report.agreement_bound >= 0.98
    assert fast.report.agreement >= 0.98
    assert fast.work(new)["stages"]["sv_tree"] > 0.2  # the promise is not kept by doing nothing
    if tolerance:
        agreed = np.abs(fast.predict(new) - slow_scores(machine, new)).max(axis=1) <= tolerance
    else:
        agreed = fast.predict(new) == svelto.accelerate(machine).predict(new)
    assert agreed.mean() >= 0.98


@pytest.mark.parametrize("kind", ["function", "words", "precomputed"])
def test_a_promise_about_objects_holds_on_fresh_ones(kind):
    machine, make = objects(kind, "two classes")
    new = make(3000, 9)
    given = {"X_calibration": make(1000, 5)} if kind == "precomputed" else {}
    X = [word + "x" for word in make(2000, 1)] if kind == "words" else make(1000, 1)
    new = [word + "x" for word in new] if kind == "words" else new  # no word is a support vector
    fast = accelerate(machine, X, agreement=0.95, confidence=0.95, **given)
    assert fast.report.details["calibration rows"].startswith("given" if given else "held out")
    assert fast.report.promise == "statistical"
    assert fast.work(new)["stages"]["sv_tree"] > 0.2
    assert (fast.predict(new) == svelto.accelerate(machine).predict(new)).mean() >= 0.95


def test_training_objects_are_recognised():
    machine, make = objects("words", "two classes")
    X = [*machine.support_vectors, *make(300, 1)]
    with pytest.raises(ValueError, match="X holds objects that the machine was trained on") as caught:
        accelerate(machine, X, agreement=0.9)
    assert "(100% are among its support vectors, or these among them)" in str(caught.value)
    assert str(caught.value).endswith("as X_calibration, or agreement=None for no promise.")
    with pytest.raises(ValueError, match=r"^X_calibration holds objects that the machine was trained on"):
        accelerate(machine, make(300, 2), agreement=0.9, X_calibration=X)
    assert accelerate(machine, X, agreement=None).report.promise == "none"
    machine, make = objects("precomputed", "two classes")
    with pytest.raises(ValueError, match="Rows of a precomputed kernel do not tell whether the machine") as caught:
        accelerate(machine, make(200, 1), agreement=0.9)
    assert "Pass objects that the machine was not trained on as X_calibration" in str(caught.value)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly"])
def test_rows_very_far_from_the_data_are_not_settled(kernel):
    for task in MACHINES.values():
        machine = random_machine(kernel, n_sv=40, d=4, gamma=0.1, **task)
        limit = {"tolerance": 0.5} if machine.task == "regression" else {}
        fast = accelerate(machine, rows(400), agreement=0.9, confidence=0.9, **QUICK, **limit)
        if kernel == "rbf":
            assert fast.work(rows(200))["stages"]["exact"] < 1.0  # the tree answers where the data is
        beyond = np.full((3, 4), 1e30)
        for far, share in ((rows(200) * 1e5, 0.95), (rows(200) + 1e6, 0.95), (beyond, 1.0), (beyond * -1e200, 1.0)):
            errors = stage_of(fast).scores(Query(far))[1]
            assert (errors == np.inf).mean() >= share  # linear terms that cancel may hide a row
        assert fast.work(beyond)["stages"]["exact"] == 1.0


def test_rows_far_from_the_data_are_not_settled():
    machine = random_machine(n_sv=60, d=4, gamma=0.3)
    fast = accelerate(machine, rows(1000), agreement=0.95, **QUICK)
    far = rows(500, seed=7)
    far *= 100.0 / np.linalg.norm(far, axis=1, keepdims=True)  # no row of the data is longer than 5
    assert fast.work(far)["stages"]["sv_tree"] < 0.05


# -- models ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler((-1, 1))], ids=str)
def test_folded_scalers(scaler):
    X, y, Z = data(3, n_rows=400)
    X, Z = X * [1, 10, 100, 0.1, 0.01] + 3, Z * [1, 10, 100, 0.1, 0.01] + 3
    pipe = make_pipeline(scaler, SVC(decision_function_shape="ovo")).fit(X, y)
    for how in OPTIONS:
        folded = accelerate(pipe, X, **OPTIONS[how])
        assert folded.machine.scaling is not None
        plain = accelerate(pipe[-1], pipe[0].transform(X), **OPTIONS[how])
        same(answers(folded, Z), answers(plain, pipe[0].transform(Z)))
        assert_array_equal(folded.predict(Z[:3]), folded.predict(Z)[:3])
        assert folded.report.agreement_bound == plain.report.agreement_bound


def test_scikit_learn_models():
    X, y, Z = data(3, n_rows=400)
    few = {"agreement": None, **QUICK}
    for model in (SVC().fit(X, y), SVC(kernel="poly").fit(X, y), make_pipeline(PCA(3), SVC()).fit(X, y)):
        assert (accelerate(model, X, **few).predict(X) == model.predict(X)).mean() > 0.9
    outliers = OneClassSVM(nu=0.2).fit(X)
    assert (accelerate(outliers, X, **few).predict(X) == outliers.predict(X)).mean() > 0.9
    values = make_pipeline(StandardScaler(), SVR()).fit(X, X[:, 0] + np.sin(X[:, 1]))
    found, exact = accelerate(values, X, **few).predict(Z), values.predict(Z)
    assert np.corrcoef(found, exact)[0, 1] > 0.95
    gram = SVC(kernel="precomputed").fit(rbf_function(X, X), y)
    assert (accelerate(gram, rbf_function(X, X), agreement=None).predict(rbf_function(X, X)) == y).mean() > 0.5
    function = SVC(kernel=rbf_function).fit(X, y)
    fast = accelerate(function, X, agreement=None)
    assert (fast.predict(X) == function.predict(X)).mean() > 0.8
    assert_array_equal(fast.predict(X[:1]), fast.predict(X)[:1])
    assert_array_equal(pickle.loads(pickle.dumps(fast)).predict(X), fast.predict(X))


def test_sparse_rows_walk_by_their_stored_features():
    def thin(n, seed):
        return np.where(np.random.default_rng(seed).random((n, 60)) < 0.08, rows(n, 60, seed), 0.0)

    machine, X, Z = random_machine(n_sv=40, d=60, as_csr=True), thin(300, 1), thin(500, 2)
    fast = accelerate(machine, sparse.csr_matrix(X), agreement=None, **QUICK)
    assert stage_of(fast).parts[0].stored
    same(stage_of(fast).scores(Query(sparse.csr_matrix(Z))), stage_of(fast).scores(Query(Z)))
    same(answers(accelerate(machine, X, agreement=None, **QUICK), Z), answers(fast, Z))
    assert (fast.predict(Z) == svelto.accelerate(machine).predict(Z)).mean() > 0.8


@pytest.mark.parametrize("tree", ["refitted", "paper"])
@pytest.mark.parametrize("n_sv", [1, 2, 5])
def test_few_vectors_few_rows_and_one_feature(n_sv, tree):
    for d in (1, 3):
        machine = random_machine(n_sv=n_sv, d=d, task="regression")
        for n in (2, 6, 300):
            fast = accelerate(machine, rows(n, d), agreement=None, tree=tree, **QUICK)
            assert np.isfinite(fast.predict(rows(50, d, seed=3))).all()
    text = [objects("words", "two classes")[0], words(2, 1)]
    assert accelerate(text[0], text[1], agreement=None, tree=tree).predict(words(5, 3)).shape == (5,)


# -- requests that cannot be met ---------------------------------------------------------------------------------------


def refused(error, machine=None, X=None, **options):
    machine, X = random_machine(d=4) if machine is None else machine, rows(100) if X is None else X
    with pytest.raises(error) as caught:
        accelerate(machine, None if isinstance(X, str) else X, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"leaves": 3},
            TypeError,
            "method='sv_tree' has no option 'leaves'; it has: tree, max_evals, min_rows, linear",
        ),
        ({"next_stage": None}, TypeError, "method='sv_tree' has no option 'next_stage'; it has: tree,"),
        ({"tree": "oak"}, ValueError, "tree is 'oak'; expected one of 'refitted', 'paper'."),
        ({"candidates": "all"}, ValueError, "candidates is 'all'; expected one of 'auto', 'support_vectors'."),
        ({"max_evals": 0}, ValueError, "max_evals is 0; expected a whole number of at least 1 or None."),
        ({"max_evals": 2.5}, ValueError, "max_evals is 2.5; expected a whole number"),
        ({"min_rows": True}, ValueError, "min_rows is True; expected a whole number of at least 1 or None."),
        ({"look_ahead": 0}, ValueError, "look_ahead is 0; expected a whole number of at least 1."),
        ({"n_starts": None}, ValueError, "n_starts is None; expected a whole number of at least 1."),
        ({"prior_rows": 0.0}, ValueError, "prior_rows is 0.0; expected a positive number."),
        ({"linear": "yes"}, ValueError, "linear is 'yes'; expected True, False or 'auto'."),
        ({"shared": 1}, ValueError, "shared is 1; expected True, False or 'auto'."),
        ({"prune": "auto"}, ValueError, "prune is 'auto'; expected True or False."),
        ({"scale": None}, ValueError, "scale is None; expected True or False."),
        ({"oracle_rows": -1}, ValueError, "oracle_rows is -1; expected a whole number of at least 0 or 'auto'."),
        ({"tolerance": 0.1}, ValueError, "tolerance is 0.1, but the machine answers with labels; use agreement."),
        ({"tree": "paper", "linear": True}, ValueError, "linear=True belongs to tree='refitted'; the paper's tree has"),
        ({"agreement": 0.9, "confidence": 1.0}, ValueError, "a statistical promise needs a number below 1"),
        ({"X": "none"}, ValueError, "method='sv_tree' learns from rows: pass X, unlabelled rows like those to come"),
    ],
    ids=str,
)
def test_bad_options(options, error, message):
    assert message in refused(error, **options)


def test_machines_and_promises_that_cannot_be_had():
    text = refused(NotImplementedError, random_machine("linear", d=4))
    assert text.startswith("method='sv_tree' saves kernel values; a linear machine needs none")
    assert text.endswith("Use method='exact'.")
    text = refused(NotImplementedError, agreement=1.0)
    assert text.startswith("agreement=1.0 needs a proven bound, which method='sv_tree' does not have.")
    machine, make = objects("words", "two classes")
    text = refused(ValueError, machine, make(50, 1), linear=True)
    assert text == "linear=True needs rows of features; a callable kernel has none. Use linear='auto'."
    A, y, _ = data(2)
    calibrated = CalibratedClassifierCV(SVC(), ensemble=False, cv=2).fit(A, y)
    assert "method='sv_tree' answers with the machine's own labels; a Calibr" in refused(
        NotImplementedError, calibrated, A
    )
    text = refused(ValueError, random_machine(d=4, task="regression"), agreement=0.9)
    assert text.startswith("A regressor answers with values, so agreement needs a tolerance")
    assert refused(ValueError, X=rows(1)).startswith("X has 1 row(s); expected at least 5")
    assert "The model was trained on 4 features; X has 5." in refused(ValueError, X=rows(50, 5))
    assert "All 9 rows of X are identical" in refused(ValueError, X=np.ones((9, 4)))


def test_kernel_functions_that_return_nonsense():
    machine, make = objects("words", "two classes")
    fast, Z = accelerate(machine, make(100, 1), agreement=None), make(30, 3)
    for function, message in (
        (lambda A, B: letters(A, B)[:, 0], "returned an array of shape (30,) for 30 rows and 1 support vector"),
        (lambda A, B: letters(A, B) * np.nan, "The kernel value of row 0 is not finite; expected finite numbers."),
    ):
        part = stage_of(fast).parts[0]
        part.machine = replace(machine, kernel=Kernel("callable", function=function))
        with pytest.raises(ValueError, match="kernel") as caught:
            fast.predict(Z)
        assert message in str(caught.value)


# -- what must not be ignored or miscounted ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "options"),
    [
        ("paper", {"prune": False}),
        ("paper", {"look_ahead": 2}),
        ("refitted", {"n_starts": 5}),
        ("refitted", {"scale": False}),
    ],
)
def test_options_of_the_other_tree_are_refused(tree, options):
    (name, value), machine = next(iter(options.items())), random_machine(n_sv=10, d=4)
    with pytest.raises(ValueError, match=f"{name} is {value!r}, but tree='{tree}' has no such option"):
        accelerate(machine, rows(50), agreement=None, tree=tree, **options)


def test_trees_apart_ask_for_a_value_once():
    machine, make = objects("function", "four classes")
    asked = []

    def counting(A, B):
        asked.append(len(A) * len(B))
        return machine.kernel.function(A, B)

    counted = replace(machine, kernel=replace(machine.kernel, function=counting))
    fast = accelerate(counted, make(200, 1), agreement=None, shared=False, max_evals=3, random_state=0)
    Z = make(50, 3)
    asked.clear()
    fast.predict(Z)
    assert sum(asked) == int(stage_of(fast).evaluations(Query(Z)).sum())


def test_a_machine_whose_vectors_are_all_zero():
    machine = replace(random_machine(n_sv=5, d=4, task="regression"), dual_coef=np.zeros((1, 5)))
    for tree in ("paper", "refitted"):
        fast = accelerate(machine, rows(100), agreement=None, tree=tree)
        np.testing.assert_allclose(fast.predict(rows(20)), machine.intercept[0], atol=1e-6)


def test_building_evaluates_the_kernel_matrix_once():
    machine, make = objects("function", "two classes")
    asked = []

    def counting(A, B):
        asked.append((len(A), len(B)))
        return machine.kernel.function(A, B)

    counted = replace(machine, kernel=replace(machine.kernel, function=counting))
    accelerate(counted, make(300, 1), agreement=None, random_state=0)
    # The report times the exact machine on some rows once; everything else is single columns.
    assert sum(n for n, m in asked if m == machine.n_sv) == 300 + 64
