"""Reading pipelines, calibrated classifiers and other wrappers around a scikit-learn kernel machine."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, NuSVC, OneClassSVM

from oracle import slow_predict, slow_probabilities, transformed
from sklearn_cases import check_same, data, product, read, thin

# -- pipelines -------------------------------------------------------------------------------------------------------

SCALERS = [
    StandardScaler(),
    StandardScaler(with_mean=False),
    StandardScaler(with_std=False),
    StandardScaler(with_mean=False, with_std=False),
    MinMaxScaler(),
    MinMaxScaler((-1, 3), clip=True),
    MaxAbsScaler(),
]
if "clip" in MaxAbsScaler().get_params():
    SCALERS.append(MaxAbsScaler(clip=True))


@pytest.mark.parametrize("scaler", SCALERS, ids=str)
def test_a_folded_scaler_gives_the_same_bits(scaler):
    X, y, Z = data(3)
    X[:, 3] = 7.0  # a constant column: scikit-learn divides by 1
    model = make_pipeline(scaler, SVC()).fit(X * 3 + 1, y)
    fitted = model[0]
    machine = check_same(model, Z)
    assert machine.front == ()
    assert machine.scaling.transformer is fitted
    Z[0] = -0.0
    assert_array_equal(machine.scaling(Z).view(np.int64), fitted.transform(Z).view(np.int64))
    whole = np.arange(-10, 15).reshape(5, 5)
    assert_array_equal(machine.scaling.apply(whole), fitted.transform(whole))
    # Other rows go through the scaler itself, which rounds to float32.
    Z32 = Z.astype(np.float32)
    assert machine.scaling.apply(Z32).dtype == np.float32
    assert_array_equal(slow_predict(machine, Z32), model.predict(Z32))


def test_sparse_rows_behind_a_folded_scaler():
    X, y, Z = data()
    model = make_pipeline(MaxAbsScaler(), SVC()).fit(thin(X), y)
    machine = check_same(model, thin(Z))
    check_same(model, thin(Z).toarray(), machine)


def test_only_the_last_known_scaler_is_folded():
    class MyScaler(StandardScaler):
        def transform(self, X, copy=None):
            return super().transform(X) * 2

    X, y, Z = data()
    for steps, n_front in [
        ([StandardScaler(), PCA(3)], 2),
        ([PCA(3), StandardScaler()], 1),
        ([RobustScaler()], 1),
        ([MyScaler()], 1),
    ]:
        machine = check_same(make_pipeline(*steps, SVC()).fit(X, y), Z)
        assert len(machine.front) == n_front
        assert machine.n_features == 5


def test_nested_pipelines_and_passthrough():
    X, y, Z = data(3)
    model = Pipeline(
        [
            ("nothing", "passthrough"),
            ("first", make_pipeline(PCA(4), "passthrough", StandardScaler())),
            ("none", None),
            ("last", make_pipeline(FrozenEstimator(MinMaxScaler().fit(np.eye(4))), SVC())),
        ]
    ).fit(X, y)
    machine = check_same(model, Z)
    assert [type(step) for step in machine.front] == [PCA, StandardScaler]
    assert isinstance(machine.scaling.transformer, MinMaxScaler)
    assert machine.n_features == 5


def test_steps_that_act_in_fit_only_are_skipped():
    class Sampler(BaseEstimator):
        """As imbalanced-learn's: it changes the training rows and is not asked at prediction."""

        def fit_resample(self, X, y):
            return X, y

    X, y, Z = data()
    svc = SVC().fit(X, y)
    machine = read(Pipeline([("sample", Sampler()), ("svc", svc)]))
    assert machine.front == ()
    check_same(svc, Z, machine)


def test_regressors_and_kernels_behind_a_pipeline():
    X, y, Z = data()
    for last in (SVR(), KernelRidge(kernel="rbf"), OneClassSVM(), SVC(kernel=product)):
        machine = check_same(make_pipeline(StandardScaler(), last).fit(X, y), Z)
        assert (machine.scaling is None) == (machine.kernel.name == "callable")


class Gram(TransformerMixin, BaseEstimator):
    """Rows to kernel values: the precomputed kernel's columns are more than the features of a query."""

    def fit(self, X, y=None):
        self.X_ = X
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X):
        return X @ self.X_.T


def test_precomputed_kernel_made_by_a_pipeline():
    X, y, Z = data()
    assert check_same(make_pipeline(Gram(), SVC(kernel="precomputed")).fit(X, y), Z).n_features == 5


def test_feature_names_and_columns():
    X, y, Z = data()
    names = list("abcde")
    train, query = pd.DataFrame(X, columns=names), pd.DataFrame(Z, columns=names)
    columns = ColumnTransformer([("scale", StandardScaler(), ["a", "b"]), ("keep", "passthrough", ["e"])])
    for model in (SVC(), make_pipeline(StandardScaler(), SVC()), make_pipeline(columns, SVC())):
        machine = check_same(model.fit(train, y), query)
        assert machine.feature_names.tolist() == names
        assert machine.n_features == 5
    assert read(SVC().fit(X, y)).feature_names is None


def test_text_pipeline_has_no_width():
    texts = ["good film", "bad film", "very good", "very bad", "good good", "bad bad"] * 3
    model = make_pipeline(TfidfVectorizer(), SVC()).fit(texts, ["+", "-"] * 9)
    machine = check_same(model, ["good", "bad", "film", "very very bad film"])
    assert machine.n_features is None


def test_search_and_frozen_wrappers():
    X, y, Z = data()
    search = GridSearchCV(make_pipeline(StandardScaler(), SVC()), {"svc__C": [0.1, 1]}, cv=2).fit(X, y)
    check_same(search, Z)
    check_same(FrozenEstimator(search), Z)
    with pytest.raises(NotFittedError, match=r"GridSearchCV is not fitted: it has no best_estimator_.*refit=True"):
        read(GridSearchCV(SVC(), {"C": [1]}))


# -- probabilities ---------------------------------------------------------------------------------------------------

METHODS = ["sigmoid", "isotonic"]
try:  # younger than scikit-learn 1.6
    CalibratedClassifierCV(SVC(), method="temperature", ensemble=False).fit(np.arange(20)[:, None], [0, 1] * 10)
    METHODS.append("temperature")
except ValueError:
    pass


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("method", METHODS)
def test_calibrated(method, n_classes):
    X, y, Z = data(n_classes)
    labels = np.array(list("edcba"))
    inner = [SVC(), make_pipeline(StandardScaler(), NuSVC(nu=0.2))]
    for estimator in inner:
        model = CalibratedClassifierCV(estimator, method=method, ensemble=False, cv=3).fit(X, labels[y])
        machine = pickle.loads(pickle.dumps(read(model)))
        check_same(model, Z, machine)
        assert_allclose(slow_probabilities(machine, Z), model.predict_proba(Z), rtol=0, atol=1e-10)
        # The same decision function gives the same bits.
        decision = model.calibrated_classifiers_[0].estimator.decision_function(Z)
        assert_array_equal(machine.calibration.probabilities(decision, n_classes), model.predict_proba(Z))
        assert machine.calibration.method == method
        assert machine.platt is None


@pytest.mark.parametrize("method", METHODS[:2])
def test_calibrated_wrappers(method):
    X, y, Z = data(4)
    frozen = FrozenEstimator(make_pipeline(StandardScaler(), SVC()).fit(X, y))
    model = CalibratedClassifierCV(frozen, method=method).fit(X, y)
    machine = check_same(model, Z)
    assert machine.scaling is not None
    assert_allclose(slow_probabilities(machine, Z), model.predict_proba(Z), rtol=0, atol=1e-10)
    outside = make_pipeline(PCA(4), CalibratedClassifierCV(SVC(), method=method, ensemble=False, cv=2)).fit(X, y)
    assert len(check_same(outside, Z).front) == 1
    pairs = CalibratedClassifierCV(SVC(decision_function_shape="ovo"), method=method, ensemble=False, cv=2).fit(X, y)
    assert_allclose(slow_probabilities(check_same(pairs, Z), Z), pairs.predict_proba(Z), rtol=0, atol=1e-10)


# -- messages ---------------------------------------------------------------------------------------------------------


def test_other_unfitted_parts():
    X, y, _ = data()
    with pytest.raises(NotFittedError, match="CalibratedClassifierCV is not fitted"):
        read(CalibratedClassifierCV(SVC(), ensemble=False))
    for scaler in (StandardScaler(), MinMaxScaler(), MaxAbsScaler()):
        with pytest.raises(NotFittedError, match=f"This {type(scaler).__name__} is not fitted: it has no scale_"):
            read(make_pipeline(scaler, SVC().fit(X, y)))


def test_calibrations_that_cannot_be_read():
    X, y, _ = data(3)
    with pytest.raises(
        ValueError, match=r"averages 3 classifiers; svelto reads one\. Fit it again with ensemble=False"
    ):
        read(CalibratedClassifierCV(SVC(), ensemble=True, cv=3).fit(X, y))
    once = CalibratedClassifierCV(SVC(), ensemble=False, cv=2).fit(X, y)
    with pytest.raises(TypeError, match="CalibratedClassifierCV inside another"):
        read(CalibratedClassifierCV(FrozenEstimator(once), ensemble=False).fit(X, y))
    with pytest.raises(TypeError, match="already one dot product"):
        read(CalibratedClassifierCV(LinearSVC(), ensemble=False, cv=2).fit(X, y))
    once.calibrated_classifiers_[0].classes = np.arange(4)
    with pytest.raises(ValueError, match=r"know the classes .*Calibrate on rows of every class"):
        read(once)
    once.calibrated_classifiers_[0].classes = np.arange(3)
    once.calibrated_classifiers_[0].method = "magic"
    with pytest.raises(ValueError, match="Unknown calibration method 'magic'; expected sigmoid"):
        read(once)


@pytest.mark.skipif("temperature" not in METHODS, reason="this scikit-learn has no temperature scaling")
def test_temperature_over_pairs_is_refused():
    X, y, _ = data(3)
    model = CalibratedClassifierCV(SVC(decision_function_shape="ovo"), method="temperature", ensemble=False, cv=2)
    with pytest.raises(ValueError, match=r"Temperature calibration needs one score for each class.*'ovr'"):
        read(model.fit(X, y))


def test_ties_cannot_be_broken_between_pairs():
    X, y, Z = data(3)
    model = SVC(break_ties=True, decision_function_shape="ovo").fit(X, y)
    with pytest.raises(ValueError, match="break_ties is True with decision_function_shape='ovo'"):
        read(model)
    # Calibrated, the labels come from the probabilities, and scikit-learn does answer.
    check_same(CalibratedClassifierCV(FrozenEstimator(model), ensemble=False).fit(X, y), Z)


def test_reading_copies_and_leaves_the_model_alone():
    X, y, Z = data(3)
    model = make_pipeline(StandardScaler(), SVC()).fit(X, y)
    before = pickle.dumps(model)
    machine = read(model)
    transformed(machine, Z)
    assert pickle.dumps(model) == before
    labels = slow_predict(machine, Z)
    model[-1]._dual_coef_[:] = 0
    assert_array_equal(slow_predict(machine, Z), labels)
