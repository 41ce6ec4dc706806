"""The predictor answers as the scikit-learn model it was made of: names, shapes, dtypes, signs, values.

Labels are equal. Scores of the default precision are within `score_bounds` of scikit-learn's; with precision="float64"
they agree to rounding, which grows with the sum of |dual_coef| because terms cancel.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.kernel_ridge import KernelRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler
from sklearn.svm import SVC, SVR, NuSVC, NuSVR, OneClassSVM

import svelto
from machines import random_machine, slack
from oracle import slow_decision_function, slow_predict, slow_probabilities, slow_scores
from sklearn_cases import data, product, thin
from svelto.probability import PlattPairs


def rounding(machine):
    return 1e-12 * (1 + np.abs(machine.dual_coef).sum())


def check_scores(fast, expected, got, Z):
    """Within the bounds that the predictor states; "ovr" has none of its own, being made of votes."""
    assert got.shape == expected.shape
    assert got.dtype == np.float64
    bounds = fast.score_bounds(Z)
    assert bounds.shape == (len(expected), fast.machine.n_scores)
    ovr = fast.machine.n_classes > 2 and fast.machine.decision_function_shape == "ovr" and fast.machine.rule == "pairs"
    if not ovr:
        assert (np.abs(got - expected).reshape(bounds.shape) <= bounds + rounding(fast.machine)).all()
    assert_allclose(got, expected, rtol=0, atol=1e-4)


# -- classifiers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["ovr", "ovo"])
@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("model", [SVC(), SVC(kernel="poly", coef0=1.0), SVC(kernel="linear"), NuSVC(nu=0.2)], ids=str)
def test_classifiers(model, n_classes, shape):
    X, y, Z = data(n_classes)
    model = model.set_params(decision_function_shape=shape).fit(X, y)
    fast = svelto.accelerate(model, method="exact")
    expected = model.predict(Z)
    assert len(np.unique(expected)) == n_classes
    assert_array_equal(fast.predict(Z), expected)
    assert fast.predict(Z).dtype == expected.dtype
    check_scores(fast, model.decision_function(Z), fast.decision_function(Z), Z)
    assert_array_equal(fast.classes_, model.classes_)
    assert fast.n_features_in_ == model.n_features_in_ == 5
    full = svelto.accelerate(model, precision="float64")
    assert_array_equal(full.predict(Z), expected)
    assert_allclose(full.decision_function(Z), model.decision_function(Z), rtol=1e-10, atol=rounding(full.machine))


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["no", "maybe", "yes"]),
        np.array([False, True]),
        np.array([0.5, -1.5, 2.25]),
        np.array(["b", "a"], dtype=object),
        np.array([3, 1, 2], dtype=np.int8),
    ],
    ids=lambda labels: str(labels.dtype),
)
def test_labels_of_any_type(labels):
    X, y, Z = data(len(labels))
    # Half numbers are no classes to scikit-learn; a machine takes any.
    model = SVC().fit(X, labels[y] if labels.dtype.kind != "f" else y)
    machine = svelto.KernelMachine.from_sklearn(model)
    expected = model.predict(Z)
    if labels.dtype.kind == "f":
        machine, expected = replace(machine, classes=np.sort(labels)), np.sort(labels)[expected]
    fast = svelto.accelerate(machine)
    for given in (fast.predict(Z), np.concatenate([fast.predict(z[None]) for z in Z])):  # the long way and the short
        assert_array_equal(given, expected)
        assert given.dtype == labels.dtype
    assert_array_equal(fast.classes_, np.sort(labels))


@pytest.mark.parametrize("n_classes", [2, 4])
def test_calibrated_classifiers(n_classes):
    X, y, Z = data(n_classes)
    labels = np.array(["d", "c", "b", "a"])[y]
    for method in ("sigmoid", "isotonic"):
        model = CalibratedClassifierCV(SVC(), method=method, ensemble=False, cv=3).fit(X, labels)
        fast = svelto.accelerate(model)
        assert_array_equal(fast.predict(Z), model.predict(Z))
        assert_array_equal(np.concatenate([fast.predict(z[None]) for z in Z[:30]]), model.predict(Z[:30]))
        assert_allclose(fast.predict_proba(Z), model.predict_proba(Z), rtol=0, atol=1e-9)


def test_close_calls_of_calibrated_classifiers_are_decided_on_reference_scores(monkeypatch):
    """Every row is made a close call; objects of each kind must then be taken apart row by row."""
    monkeypatch.setattr("svelto.predictor.CLOSE_PROBABILITIES", 2.0)
    X, y, Z = data(3)
    for kernel, rows in (("rbf", Z), ("rbf", sparse.csr_matrix(Z)), (product, Z), (product, pd.DataFrame(Z))):
        model = CalibratedClassifierCV(SVC(kernel=kernel), ensemble=False, cv=2).fit(X, y)
        expected = model.predict(Z)
        asked = []
        fast = svelto.accelerate(model)
        scores = fast._engine.scores
        monkeypatch.setattr(
            fast._engine, "scores", lambda *a, scores=scores, asked=asked: asked.append(a[2]) or scores(*a)
        )
        assert_array_equal(fast.predict(rows), expected)
        assert asked == ["float64", "reference"]


@pytest.mark.filterwarnings("ignore:The `probability` parameter:FutureWarning")
@pytest.mark.parametrize("n_classes", [2, 4])
def test_probability_models(n_classes):
    X, y, Z = data(n_classes)
    model = SVC(probability=True, random_state=0).fit(X, y)
    fast = svelto.accelerate(model)
    assert_array_equal(fast.predict(Z), model.predict(Z))
    assert_allclose(fast.predict_proba(Z), model.predict_proba(Z), rtol=0, atol=1e-10)


# -- regressors and outlier detectors --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model", [SVR(), NuSVR(kernel="poly"), SVR(kernel="linear"), KernelRidge(kernel="rbf")], ids=str
)
def test_regressors(model):
    X, _, Z = data()
    model = model.fit(X, X[:, 0] + np.sin(X[:, 1]))
    fast = svelto.accelerate(model)
    assert fast.report.details["scores in"] == "float64"  # a regressor's answer is its score
    expected = model.predict(Z)
    assert fast.predict(Z).shape == expected.shape
    assert_allclose(fast.predict(Z), expected, rtol=1e-10, atol=rounding(fast.machine))
    assert_allclose(fast.predict(Z[:1]), expected[:1], rtol=1e-10, atol=rounding(fast.machine))
    single = svelto.accelerate(model, precision="float32")
    assert (np.abs(single.predict(Z) - expected) <= single.score_bounds(Z)[:, 0] + rounding(fast.machine)).all()


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "linear", "cosine", "precomputed"])
@pytest.mark.parametrize("shape", [(150,), (150, 1), (150, 3)])
def test_kernel_ridge(kernel, shape):
    X, _, Z = data()
    X, Z = (X @ X.T, Z @ X.T) if kernel == "precomputed" else (X, Z)
    model = KernelRidge(kernel=kernel).fit(X, np.random.default_rng(0).normal(size=shape))
    fast = svelto.accelerate(model)
    expected = model.predict(Z)
    for rows in (Z, pd.DataFrame(Z), sparse.coo_matrix(Z)):
        assert fast.predict(rows).shape == expected.shape
        assert_allclose(fast.predict(rows), expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())


def test_outlier_detectors():
    X, _, Z = data()
    model = OneClassSVM(nu=0.3).fit(X)
    fast = svelto.accelerate(model)
    assert_array_equal(fast.predict(Z), model.predict(Z))
    assert set(fast.predict(Z)) == {-1, 1}
    check_scores(fast, model.decision_function(Z), fast.decision_function(Z), Z)
    full = svelto.accelerate(model, precision="float64")
    assert_allclose(full.score_samples(Z), model.score_samples(Z), rtol=1e-12, atol=rounding(full.machine))
    assert_allclose(fast.score_samples(Z), model.score_samples(Z), rtol=0, atol=1e-4)


def test_density_of_outlier_detectors():
    machine = random_machine(task="outlier", density_marks=np.linspace(-1, 1, 10))
    Z = np.random.default_rng(0).normal(size=(100, 6))
    inside = svelto.accelerate(machine).predict_proba(Z)
    assert inside.shape == (100, 2)
    assert_allclose(inside.sum(axis=1), 1)
    order = np.argsort(slow_scores(machine, Z)[:, 0])
    assert (np.diff(inside[order, 0]) >= 0).all()  # the higher the score, the more normal
    assert inside[order[0], 0] < inside[order[-1], 0]


# -- pipelines -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler((-1, 1), clip=True), MaxAbsScaler()], ids=str)
@pytest.mark.parametrize("last", [SVC(), SVC(kernel="poly"), OneClassSVM(nu=0.2), SVR()], ids=str)
def test_folded_scalers(scaler, last):
    X, y, Z = data(3)
    model = make_pipeline(scaler, last).fit(X * 3 + 1, y)
    fast = svelto.accelerate(model)
    assert fast.machine.scaling is not None
    whole = np.round(Z).astype(np.int64)
    for rows in (Z, Z[:1], np.asfortranarray(Z), whole, pd.DataFrame(Z)):
        if isinstance(last, SVR):
            assert_allclose(fast.predict(rows), model.predict(rows), rtol=1e-10, atol=rounding(fast.machine))
        else:
            assert_array_equal(fast.predict(rows), model.predict(rows))
            assert_allclose(fast.decision_function(rows), model.decision_function(rows), rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.longdouble])
@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler(), MaxAbsScaler()], ids=str)
def test_scalers_treat_single_precision_rows_in_single_precision(scaler, dtype):
    X, y, Z = data(3)
    names = list("abcde")
    model = make_pipeline(scaler, SVC()).fit(X * 3 + 1, y)
    fast = svelto.accelerate(model)
    rows = Z.astype(dtype)
    expected = model.predict(rows)
    assert_array_equal(fast.predict(rows), expected)
    assert_array_equal(np.concatenate([fast.predict(z[None]) for z in rows]), expected)
    assert_allclose(fast.decision_function(rows), model.decision_function(rows), rtol=0, atol=1e-4)
    # A DataFrame keeps its column names up to the scaler, which would warn without them.
    named = svelto.accelerate(make_pipeline(clone(scaler), SVC()).fit(pd.DataFrame(X * 3 + 1, columns=names), y))
    assert_array_equal(named.predict(pd.DataFrame(rows, columns=names)), expected)


def test_single_precision_rows_between_which_the_label_changes():
    """Bisection down to neighbouring float32 rows: there the rounding of the scaler decides the label."""
    X, y, Z = data()
    model = make_pipeline(StandardScaler(), SVC()).fit(X * 3 + 1, y)
    labels = model.predict(Z)
    a, b = (Z[labels == label][:100].astype(np.float32) for label in (0, 1))
    n = min(len(a), len(b))
    a, b = a[:n], b[:n]
    for _ in range(40):
        middle = (a + b) / 2
        same = (model.predict(middle) == 0)[:, None]
        a, b = np.where(same, middle, a), np.where(same, b, middle)
    rows = np.vstack([a, b])
    assert rows.dtype == np.float32
    expected = model.predict(rows)
    assert (model.predict(rows.astype(np.float64)) != expected).any()  # scaled in double, some labels would differ
    fast = svelto.accelerate(model)
    assert_array_equal(fast.predict(rows), expected)
    assert_array_equal(np.concatenate([fast.predict(row[None]) for row in rows]), expected)


def test_scalers_on_sparse_rows():
    X, y, Z = data(3)
    model = make_pipeline(MaxAbsScaler(), SVC()).fit(thin(X), y)
    fast = svelto.accelerate(model)
    assert fast.machine.scaling is not None
    for rows in (thin(Z), thin(Z).astype(np.float32), thin(Z).tocsc(), thin(Z)[:1]):
        assert_array_equal(fast.predict(rows), model.predict(rows))
        assert_allclose(fast.decision_function(rows), model.decision_function(rows), rtol=0, atol=1e-4)
    centred = svelto.accelerate(make_pipeline(StandardScaler(), SVC()).fit(X, y))
    with pytest.raises(ValueError, match="Cannot center sparse matrices"):
        centred.predict(thin(Z))


def test_transformers_in_front():
    X, y, Z = data(3)
    names = list("abcde")
    frame = pd.DataFrame(Z, columns=names)
    for steps in ([PCA(3)], [StandardScaler(), PCA(3)], [PCA(3), StandardScaler()]):
        model = make_pipeline(*steps, SVC()).fit(pd.DataFrame(X, columns=names), y)
        fast = svelto.accelerate(model)
        assert len(fast.machine.front) == len(steps) - isinstance(steps[-1], StandardScaler)
        assert_array_equal(fast.predict(frame), model.predict(frame))
        assert fast.n_features_in_ == 5


# -- kernels without native code -------------------------------------------------------------------------------------


def shared_letters(A, B):
    return np.array([[len(set(a) & set(b)) for b in B] for a in A], dtype=float)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_precomputed_and_callable_kernels(n_classes):
    X, y, Z = data(n_classes)
    words = np.array(["".join("abcdefg"[int(i) % 7] for i in np.round(x * 2)) for x in np.vstack([X, Z])])
    cases = [("precomputed", X @ X.T, Z @ X.T), (product, X, Z), (shared_letters, list(words[:150]), list(words[150:]))]
    for kernel, train, rows in cases:
        model = SVC(kernel=kernel).fit(train, y)
        fast = svelto.accelerate(model)
        assert_array_equal(fast.predict(rows), model.predict(rows))
        assert_array_equal(fast.predict(rows[:1]), model.predict(rows[:1]))
        expected = model.decision_function(rows)
        assert_allclose(
            fast.decision_function(rows), expected, rtol=1e-9, atol=rounding(fast.machine) * np.abs(X).max() ** 2
        )
        assert_array_equal(fast.score_bounds(rows), np.zeros((len(rows), fast.machine.n_scores)))
        assert fast.work(rows)["stages"] == {"float32": 0.0, "float64": 0.0, "reference": 1.0}


# -- classes that vote in another order than they sort ---------------------------------------------------------------


@pytest.mark.parametrize("shape", ["ovr", "ovo"])
@pytest.mark.parametrize("order", [[1, 0], [2, 0, 1], [3, 1, 0, 2], [0, 1, 2]], ids=str)
def test_vote_order(order, shape):
    n_classes = len(order)
    n_pairs = n_classes * (n_classes - 1) // 2
    rng = np.random.default_rng(1)
    platt = PlattPairs(-1 - rng.random(n_pairs), rng.normal(size=n_pairs) * 0.1)
    machine = random_machine(n_classes=n_classes, vote_order=order, decision_function_shape=shape, platt=platt)
    machine = replace(machine, intercept=-np.median(slow_scores(machine, rng.normal(size=(99, 6))), axis=0))
    Z = rng.normal(size=(300, 6))
    fast = svelto.accelerate(machine)
    assert set(fast.predict(Z)) == set(machine.classes)
    assert_array_equal(fast.predict(Z), slow_predict(machine, Z))
    assert_array_equal(np.concatenate([fast.predict(z[None]) for z in Z[:50]]), slow_predict(machine, Z[:50]))
    check_scores(fast, slow_decision_function(machine, Z), fast.decision_function(Z), Z)
    assert_allclose(fast.predict_proba(Z), slow_probabilities(machine, Z), rtol=0, atol=1e-10)
    assert_array_equal(fast.classes_, np.sort(fast.classes_))


def test_bounds_stand_in_the_columns_of_the_decision_function():
    machine = random_machine("rbf", n_classes=3, vote_order=[2, 0, 1], decision_function_shape="ovo", seed=2)
    uneven = machine.dual_coef * np.array([1e-3, 1e3])[:, None]  # pairs of very different size
    machine = replace(machine, dual_coef=uneven)
    fast = svelto.accelerate(machine, precision="float32")
    Z = np.random.default_rng(0).normal(size=(200, 6))
    check = np.abs(fast.decision_function(Z) - slow_decision_function(machine, Z))
    assert (check <= fast.score_bounds(Z) + slack(machine)).all()
    plain = svelto.accelerate(replace(machine, vote_order=[0, 1, 2]), precision="float32").score_bounds(Z)
    assert_array_equal(fast.score_bounds(Z), plain[:, [2, 0, 1]])  # (0,1), (0,2), (1,2) are pairs (1,2), (0,1)', (0,2)'


def test_argmax_machines():
    machine = random_machine(n_classes=4, rule="argmax", vote_order=[3, 0, 2, 1])
    Z = np.random.default_rng(0).normal(size=(300, 6))
    fast = svelto.accelerate(machine)
    assert_array_equal(fast.predict(Z), slow_predict(machine, Z))
    check_scores(fast, slow_decision_function(machine, Z), fast.decision_function(Z), Z)
    assert_array_equal(fast.classes_[fast.decision_function(Z).argmax(axis=1)], fast.predict(Z))


# -- what is not there -----------------------------------------------------------------------------------------------


def test_methods_exist_where_they_mean_something():
    X, y, _ = data(3)
    classifier = svelto.accelerate(SVC().fit(X, y))
    calibrated = svelto.accelerate(CalibratedClassifierCV(SVC(), ensemble=False, cv=2).fit(X, y))
    outliers = svelto.accelerate(OneClassSVM().fit(X))
    regressor = svelto.accelerate(SVR().fit(X, y))
    words = svelto.accelerate(SVC(kernel=shared_letters).fit(["ab", "cd", "ac", "bd"], [0, 1, 0, 1]))
    offered = {"decision_function", "score_samples", "predict_proba", "classes_", "n_features_in_"}
    for fast, expected in [
        (classifier, {"decision_function", "classes_", "n_features_in_"}),
        (calibrated, {"decision_function", "classes_", "n_features_in_", "predict_proba"}),
        (outliers, {"decision_function", "score_samples", "n_features_in_"}),
        (regressor, {"n_features_in_"}),
        (words, {"decision_function", "classes_"}),
    ]:
        assert {name for name in offered if hasattr(fast, name)} == expected
    for fast, name, message in [
        (regressor, "decision_function", "A regressor has no decision_function; use predict."),
        (regressor, "classes_", "A machine for regression has no classes."),
        (outliers, "classes_", "A machine for outlier has no classes."),
        (classifier, "score_samples", "score_samples belongs to outlier detectors (OneClassSVM)."),
        (classifier, "predict_proba", "The model has no probabilities. Train it inside CalibratedClassifierCV(..., "),
        (words, "n_features_in_", "A machine on objects has no number of features."),
    ]:
        with pytest.raises(AttributeError, match=re.escape(message)):
            getattr(fast, name)
    assert "scikit-learn's conventions" in svelto.Predictor.decision_function.__doc__
    assert_array_equal(svelto.Predictor.decision_function(classifier, X), classifier.decision_function(X))
