"""Accelerated: scikit-learn's checks, whose answers it gives, what it promises, and what it refuses."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_moons
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, SVR, NuSVC, NuSVR, OneClassSVM
from sklearn.utils.estimator_checks import check_dataframe_column_names_consistency, parametrize_with_checks

import svelto
import svelto.estimator
from sklearn_cases import data
from svelto import Accelerated

SMALL_HINGES = {"n_hinges": 8, "max_epochs": 1, "oracle_rows": 200, "next_stage": None}

# -- scikit-learn's checks -------------------------------------------------------------------------------------------


def expected_failures(model):
    """Checks that fail, and why; a check that passes all the same is reported."""
    inner, expected = model.estimator, {}
    if hasattr(inner, "class_weight"):
        # As for scikit-learn's own searches: the check takes a fit(**params) for one that knows no weights.
        expected["check_classifiers_one_label_sample_weights"] = "SVC's message about weights has other words"
    if getattr(inner, "kernel", None) == "precomputed":
        expected["check_estimators_nan_inf"] = "kernel values with rows that are no support vectors are not read"
    if model.method == "taylor_tree":
        expected["check_fit2d_1sample"] = "the message speaks of rows: X has 1 row(s); expected at least 5"
    return expected


# check_array_api_input is skipped where the environment variable SCIPY_ARRAY_API is not set: nothing is claimed for it.
@pytest.mark.filterwarnings("ignore:agreement=.* needs at least .* rows to check it on:UserWarning")
@parametrize_with_checks(
    [
        Accelerated(SVC()),
        Accelerated(SVR()),
        Accelerated(OneClassSVM()),
        Accelerated(KernelRidge()),
        Accelerated(make_pipeline(StandardScaler(), SVC())),
        Accelerated(SVC(kernel="precomputed")),
        Accelerated(SVC(), method="bounded"),
        Accelerated(SVC(), method="hinges", method_options=SMALL_HINGES, random_state=0),
        Accelerated(OneClassSVM(), method="taylor_tree", random_state=0),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("inner", [SVC(), SVR(), OneClassSVM(), make_pipeline(StandardScaler(), SVC())], ids=str)
def test_scikit_learns_check_of_column_names(inner):
    check_dataframe_column_names_consistency("Accelerated", Accelerated(inner))  # not among the checks above


def test_the_docstring_is_right():
    tested = doctest.testmod(svelto.estimator)
    assert tested.attempted > 5
    assert tested.failed == 0


# -- whose answers ---------------------------------------------------------------------------------------------------

ROWS = data(3)
CLASSIFIERS = [
    SVC(),
    SVC(decision_function_shape="ovo"),
    NuSVC(nu=0.3),
    svelto.ExponentialSVC(),
    make_pipeline(PolynomialFeatures(2), StandardScaler(), SVC(kernel="poly")),
    CalibratedClassifierCV(SVC(), ensemble=False, cv=3),
    GridSearchCV(SVC(), {"C": [0.1, 1.0]}, cv=3),
]
REGRESSORS = [SVR(), NuSVR(C=3.0), KernelRidge(kernel="rbf"), make_pipeline(StandardScaler(), SVR())]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("inner", CLASSIFIERS, ids=str)
def test_labels_are_those_of_the_classifier(inner, n_classes):
    X, y, Z = data(n_classes)
    names = np.array(["none", "some", "more"])[y]
    model = Accelerated(inner).fit(X, names)
    alone = clone(inner).fit(X, names)
    assert_array_equal(model.predict(Z), alone.predict(Z))
    assert model.predict(Z).dtype == alone.predict(Z).dtype
    assert_array_equal(model.classes_, alone.classes_)
    assert model.n_features_in_ == 5
    assert model.score(X, names) == accuracy_score(names, alone.predict(X))
    for method in ("decision_function", "predict_proba"):
        assert hasattr(model, method) == hasattr(alone, method)
        if hasattr(alone, method):
            got = getattr(model, method)(Z)
            assert_allclose(got, getattr(alone, method)(Z), rtol=0, atol=1e-3)
            assert_array_equal(got, getattr(svelto.accelerate(model.estimator_), method)(Z))


@pytest.mark.parametrize("inner", REGRESSORS, ids=str)
def test_values_are_those_of_the_regressor(inner):
    X, _, Z = ROWS
    y = np.sin(X[:, 0]) + X[:, 1]
    model, alone = Accelerated(inner).fit(X, y), clone(inner).fit(X, y)
    assert_allclose(model.predict(Z), alone.predict(Z), rtol=1e-9, atol=1e-9)
    assert model.score(Z, Z[:, 0]) == pytest.approx(r2_score(Z[:, 0], alone.predict(Z)))
    weight = np.arange(len(Z))
    expected = r2_score(Z[:, 0], alone.predict(Z), sample_weight=weight)
    assert model.score(Z, Z[:, 0], sample_weight=weight) == pytest.approx(expected)
    assert expected != pytest.approx(model.score(Z, Z[:, 0]))


def test_several_outputs():
    X, _, Z = ROWS
    Y = np.column_stack([X[:, 0], X[:, 1] ** 2])
    ridge = KernelRidge(kernel="rbf", gamma=0.1)
    model = Accelerated(ridge).fit(X, Y)
    assert_allclose(model.predict(Z), clone(ridge).fit(X, Y).predict(Z), rtol=1e-9, atol=1e-9)
    assert model.score(X, Y) == pytest.approx(clone(ridge).fit(X, Y).score(X, Y))


def test_outliers():
    X, _, Z = ROWS
    inner = OneClassSVM(nu=0.2)
    model, alone = Accelerated(inner), clone(inner).fit(X)
    assert_array_equal(model.fit_predict(X), alone.predict(X))
    assert_array_equal(model.fit(X).predict(Z), alone.predict(Z))
    assert model.offset_ == alone.offset_
    assert_allclose(model.decision_function(Z), alone.decision_function(Z), rtol=0, atol=1e-4)
    assert_allclose(model.score_samples(Z), model.decision_function(Z) + model.offset_, rtol=1e-6)
    weight = np.where(X[:, 0] > 0, 1.0, 0.1)
    weighted = clone(inner).fit_predict(X, sample_weight=weight)
    assert_array_equal(model.fit_predict(X, sample_weight=weight), weighted)
    assert (weighted != alone.predict(X)).any()


@pytest.mark.filterwarnings("ignore:The `probability` parameter:FutureWarning")
def test_log_probabilities():
    X, y, Z = ROWS
    inner = SVC(probability=True, random_state=0)
    model = Accelerated(inner).fit(X, y)
    expected = clone(inner).fit(X, y).predict_log_proba(Z)
    assert_allclose(model.predict_log_proba(Z), expected, rtol=0, atol=1e-8)
    assert_array_equal(model.predict_log_proba(Z), np.log(model.predict_proba(Z)))


OPTIONAL = ("decision_function", "predict_proba", "predict_log_proba", "score_samples", "score", "fit_predict")


@pytest.mark.filterwarnings("ignore:The `probability` parameter:FutureWarning")
@pytest.mark.parametrize(
    ("inner", "offered"),
    [
        (SVC(), {"decision_function", "score"}),
        (SVC(probability=True), {"decision_function", "score", "predict_proba", "predict_log_proba"}),
        # Its labels are those of the most probable class, which the machine's scores may contradict.
        (CalibratedClassifierCV(SVC(), ensemble=False, cv=2), {"predict_proba", "score"}),
        (SVR(), {"score"}),
        (KernelRidge(), {"score"}),
        (OneClassSVM(), {"decision_function", "score_samples", "fit_predict"}),
        (make_pipeline(StandardScaler(), OneClassSVM()), {"decision_function", "score_samples", "fit_predict"}),
    ],
    ids=lambda value: " ".join(sorted(value)) if isinstance(value, set) else str(value),  # the same in every process
)
def test_methods_that_the_estimator_has(inner, offered):
    X, y, _ = data(2)
    model = Accelerated(inner)
    assert {name for name in OPTIONAL if hasattr(model, name)} == offered
    model.fit(X, y)
    assert {name for name in OPTIONAL if hasattr(model, name)} == offered
    assert not any(hasattr(model, name) for name in ("transform", "set_output", "partial_fit"))


# -- promises --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def moons():
    return make_moons(6000, noise=0.3, random_state=0)


@pytest.mark.parametrize(
    ("method", "options"), [("taylor_tree", None), ("hinges", {"n_hinges": 16, "next_stage": None})]
)
def test_labels_agree_as_often_as_promised(moons, method, options):
    X, y = moons
    model = Accelerated(SVC(C=10), method=method, agreement=0.99, method_options=options, random_state=0, n_jobs=1)
    model.fit(X[:3000], y[:3000])
    expected = model.estimator_.predict(X[3000:])
    assert np.count_nonzero(model.predict(X[3000:]) == expected) >= 0.99 * 3000
    report = model.report_
    assert (report.method, report.promise) == (method, "statistical")
    assert report is model.predictor_.report
    assert report.agreement_bound >= 0.99
    assert model.predictor_.work(X[3000:])["stages"]["exact"] < 0.2  # or all would agree whatever is built
    assert model.predictor_.n_jobs == 1
    by_hand = svelto.accelerate(
        model.estimator_, X[:3000], method=method, agreement=0.99, random_state=0, n_jobs=1, **(options or {})
    )
    assert_array_equal(model.decision_function(X[3000:]), by_hand.decision_function(X[3000:]))


def test_values_within_the_tolerance(moons):
    X = moons[0]
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    inner = SVR(gamma=0.1, epsilon=0.02)
    model = Accelerated(inner, method="taylor_tree", agreement=0.99, tolerance=0.1, random_state=0)
    model.fit(X[:2000], y[:2000])
    errors = np.abs(model.predict(X[3000:]) - model.estimator_.predict(X[3000:]))
    assert model.report_.promise == "statistical"
    assert model.report_.details["tolerance"] == 0.1
    assert np.count_nonzero(errors <= 0.1) >= 0.99 * 3000
    assert errors.max() > 1e-9  # it is the tree that answers
    exact = clone(model).set_params(method="exact").fit(X[:2000], y[:2000])  # meets every tolerance
    assert exact.report_.promise == "exact"


def test_calibration_rows(moons):
    X, y = moons
    model = Accelerated(SVC(), method="taylor_tree", agreement=0.9, confidence=0.9, random_state=0)
    assert model.fit(X[:500], y[:500]).report_.details["calibration rows"].startswith("stand-ins, 500 checked")
    model.fit(X[:500], y[:500], X_calibration=X[500:900])
    assert model.report_.details["calibration rows"].startswith("given, 200 checked")


# -- frozen estimators -----------------------------------------------------------------------------------------------


def test_frozen_estimators_are_not_trained_again(moons):
    X, y = moons
    svc = SVC().fit(X[:500], y[:500])
    vectors = svc.support_vectors_
    model = Accelerated(FrozenEstimator(svc), method="taylor_tree", agreement=0.9, random_state=0)
    model.fit(X[500:1500])  # unlabelled rows like those to come
    assert model.estimator_.estimator is svc
    assert svc.support_vectors_ is vectors
    assert model.report_.details["calibration rows"].startswith("held out")
    assert_array_equal(model.classes_, [0, 1])
    assert (model.predict(X) == svc.predict(X)).mean() >= 0.9
    assert clone(model).fit(X[500:1500]).estimator_.estimator is svc
    with pytest.raises(NotFittedError):
        Accelerated(FrozenEstimator(SVC())).fit(X[:500], y[:500])


# -- what is refused -------------------------------------------------------------------------------------------------


class Untrained(SVC):
    """Fails where it is trained."""

    def fit(self, X, y, sample_weight=None):
        raise AssertionError("trained")


@pytest.mark.parametrize(
    ("parameters", "kind", "message"),
    [
        ({"method": "fast"}, ValueError, "Unknown method 'fast'. Expected one of auto, exact,"),
        ({"agreement": 1.5}, ValueError, r"agreement is 1.5; expected a number in \(0, 1\] or None"),
        ({"confidence": None}, ValueError, r"confidence is None; expected a number in \(0, 1\]"),
        ({"n_jobs": 0}, ValueError, "n_jobs is 0; expected None"),
        ({"random_state": "now"}, ValueError, "'now' cannot be used to seed"),
        ({"tolerance": 0.1}, ValueError, "tolerance is 0.1, but the estimator answers with labels; use agreement"),
        ({"tolerance": -1}, ValueError, "tolerance is -1; expected a positive number"),
        ({"method_options": 3}, TypeError, "method_options is 3; expected a dict, or None"),
        (
            {"method_options": {"leaf_size": 8}},
            TypeError,
            "method='auto' has no option 'leaf_size'; it has: batch_size",
        ),
        ({"method_options": {"precision": 16}}, ValueError, "precision is 16; expected one of 'auto'"),
        ({"method_options": {"agreement": 0.9}}, TypeError, "method_options has 'agreement'; pass it to Accelerated"),
        ({"method_options": {"X_calibration": 0}}, TypeError, "has 'X_calibration'; pass it to Accelerated, or to its"),
        ({"method_options": {"tolerance": 0.1}}, TypeError, "method_options has 'tolerance'; pass it to Accelerated"),
        ({"method": "bounded", "method_options": {"bound": "no"}}, ValueError, "bound is 'no'"),
        ({"method": "hinges", "method_options": {"n_hinges": 0}}, ValueError, "n_hinges is 0"),
        ({"method": "hinges", "method_options": {"next_stage": "no"}}, ValueError, "next_stage is 'no'"),
        ({"method": "sv_tree", "method_options": {"n": 1}}, TypeError, "method='sv_tree' has no option 'n'; it has"),
    ],
    ids=str,
)
def test_parameters_are_refused_before_training(parameters, kind, message):
    X, y, _ = ROWS
    model = Accelerated(Untrained(), **parameters)  # the constructor only stores
    with pytest.raises(kind, match=message):
        model.fit(X, y)
    with pytest.raises(AssertionError, match="trained"):
        Accelerated(Untrained()).fit(X, y)


@pytest.mark.parametrize(
    ("inner", "parameters", "kind", "message"),
    [
        (SVC(kernel="linear"), {"method": "hinges"}, ValueError, "A linear machine is already one product a score"),
        (SVR(), {"method": "taylor_tree"}, ValueError, "agreement needs a tolerance"),
        (SVC(), {"method": "hinges", "agreement": 1.0}, NotImplementedError, "agreement=1.0 needs a proven bound"),
        (SVC(), {"method": "taylor_tree", "confidence": 1.0}, ValueError, "confidence is 1.0; a statistical promise"),
        (RandomForestClassifier(n_estimators=2), {}, TypeError, "Cannot read a kernel machine from RandomForest"),
    ],
    ids=str,
)
def test_a_failure_after_training_says_so_and_leaves_nothing(inner, parameters, kind, message):
    X, y, Z = data(2)
    model = Accelerated(inner, **parameters)
    with pytest.raises(kind, match=message) as failure:
        model.fit(X, y)
    (note,) = failure.value.__notes__
    assert note.startswith(f"The estimator is trained; what failed is to make it fast with method={model.method!r}.")
    assert vars(model) == vars(Accelerated(inner, **parameters))
    with pytest.raises(NotFittedError):
        model.predict(Z)
    for name in ("classes_", "offset_", "n_features_in_", "feature_names_in_"):
        assert not hasattr(model, name)


def test_a_failed_fit_keeps_an_earlier_one():
    X, y, Z = data(2)
    model = Accelerated(SVC()).fit(X, y)
    expected, before = model.predict(Z), dict(vars(model))
    with pytest.raises(ValueError, match="X has 4 row") as failure:
        model.set_params(method="taylor_tree").fit(X[:4, :3], y[:4])
    assert failure.value.__notes__
    with pytest.raises(ValueError, match="NaN") as failure:
        model.fit(np.full_like(X, np.nan), y)
    assert not hasattr(failure.value, "__notes__")  # this time it was the training
    assert vars(model) == before | {"method": "taylor_tree"}
    assert_array_equal(model.predict(Z), expected)


@pytest.mark.parametrize(
    ("inner", "message"),
    [(SVC, "instance of scikit-learn estimator instead of a class"), ("svc", "does not seem to be a scikit-learn est")],
)
def test_what_is_no_estimator(inner, message):
    X, y, _ = ROWS
    with pytest.raises(TypeError, match=message):
        Accelerated(inner).fit(X, y)
