"""Accelerated in use: pipelines and searches, metadata routing, rows of every kind, copies, tags and diagrams."""

from __future__ import annotations

import copy
import pickle

import dask.array as da
import dask.dataframe as dd
import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn import config_context
from sklearn.base import BaseEstimator, clone, is_classifier, is_outlier_detector, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.exceptions import NotFittedError, UnsetMetadataPassedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, cross_val_predict, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, SVR, OneClassSVM
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from sklearn_cases import data, product
from svelto import Accelerated

X, Y, Z = data(3)
TREE = {"method": "taylor_tree", "agreement": 0.9, "random_state": 0}

# -- pipelines and searches ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", [SVC(), make_pipeline(StandardScaler(), SVC())], ids=str)
def test_cross_validation(inner):
    assert_array_equal(cross_val_score(Accelerated(inner), X, Y), cross_val_score(inner, X, Y))
    scores = cross_val_predict(Accelerated(inner), X, Y, method="decision_function")
    assert_allclose(scores, cross_val_predict(inner, X, Y, method="decision_function"), rtol=0, atol=1e-3)


def test_cross_validation_of_a_precomputed_kernel():
    """Folds are cut out of rows and columns, which a tag asks for."""
    gram = X @ X.T
    svc = SVC(kernel="precomputed")
    assert_array_equal(cross_val_score(Accelerated(svc), gram, Y), cross_val_score(svc, gram, Y))


def test_grid_search_over_the_estimator():
    plain = GridSearchCV(SVC(), {"C": [0.01, 1.0, 100.0]}, cv=3).fit(X, Y)
    search = GridSearchCV(Accelerated(SVC()), {"estimator__C": [0.01, 1.0, 100.0]}, cv=3, n_jobs=2).fit(X, Y)
    assert search.best_params_ == {"estimator__C": plain.best_params_["C"]}
    assert_array_equal(search.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"])
    assert_array_equal(search.predict(Z), plain.predict(Z))
    assert search.best_estimator_.estimator.C == search.best_estimator_.estimator_.C == plain.best_params_["C"]


def test_searches_over_the_method():
    grid = {"method": ["exact", "taylor_tree"], "agreement": [0.9, None]}
    search = GridSearchCV(Accelerated(SVC(), random_state=0), grid, cv=2, refit=False, error_score="raise").fit(X, Y)
    scores = search.cv_results_["mean_test_score"]
    assert scores[0] == scores[2] == cross_val_score(SVC(), X, Y, cv=2).mean()
    assert (scores > 0.4).all()
    chance = {"estimator__svc__gamma": [1e3, 0.1], "agreement": [0.8, 0.9]}  # 1e3: every row is far from all others
    inner = make_pipeline(StandardScaler(), SVC())
    found = RandomizedSearchCV(Accelerated(inner, **TREE), chance, n_iter=3, cv=2, random_state=0, error_score="raise")
    assert found.fit(X, Y).best_params_["estimator__svc__gamma"] == 0.1
    assert found.best_estimator_.report_.method == "taylor_tree"


def test_inside_a_pipeline():
    outside = make_pipeline(StandardScaler(), Accelerated(SVC())).set_output(transform="pandas").fit(X, Y)
    expected = make_pipeline(StandardScaler(), SVC()).fit(X, Y)
    assert_array_equal(outside.predict(Z), expected.predict(Z))
    assert_array_equal(outside[-1].feature_names_in_, [f"x{i}" for i in range(5)])
    assert outside.score(X, Y) == expected.score(X, Y)
    outside.set_params(accelerated__estimator__C=0.01).fit(X, Y)
    assert_array_equal(outside.predict(Z), expected.set_params(svc__C=0.01).fit(X, Y).predict(Z))


@pytest.mark.parametrize(
    "around",
    [
        lambda model: CalibratedClassifierCV(model, cv=3),
        OneVsRestClassifier,
        lambda model: VotingClassifier([("a", model), ("b", model)]),
        lambda model: BaggingClassifier(model, n_estimators=3, random_state=0),
    ],
)
@pytest.mark.parametrize("inner", [SVC(), make_pipeline(StandardScaler(), SVC())], ids=str)
def test_inside_other_estimators(around, inner):
    model = Accelerated(inner)
    assert_array_equal(around(model).fit(X, Y).predict(Z), around(inner).fit(X, Y).predict(Z))


def test_parameters_and_clones():
    model = Accelerated(SVC(C=3.0), method="hinges", method_options={"n_hinges": 8}, tolerance=None, n_jobs=1)
    assert model.get_params()["estimator__C"] == 3.0
    fitted = Accelerated(SVC()).fit(X, Y).set_params(estimator__C=5.0, agreement=0.9)
    assert (fitted.estimator.C, fitted.estimator_.C, fitted.agreement) == (5.0, 1.0, 0.9)
    for one in (model, fitted):
        again = clone(one)
        assert again.estimator is not one.estimator
        assert repr(again) == repr(one)
        assert not hasattr(again, "predictor_")


# -- sample weights and metadata routing -----------------------------------------------------------------------------

WEIGHT = np.where(Y == 0, 5.0, 1.0)
WEIGHTED = SVC().fit(X, Y, sample_weight=WEIGHT).predict(Z)


def test_sample_weights_reach_the_estimator():
    assert (SVC().fit(X, Y).predict(Z) != WEIGHTED).any()
    assert_array_equal(Accelerated(SVC()).fit(X, Y, sample_weight=WEIGHT).predict(Z), WEIGHTED)
    pipe = Accelerated(make_pipeline("passthrough", SVC())).fit(X, Y, svc__sample_weight=WEIGHT)
    assert_array_equal(pipe.predict(Z), WEIGHTED)
    with pytest.raises(TypeError, match="'colour'"):
        Accelerated(SVC()).fit(X, Y, colour=1)


def test_metadata_is_routed():
    with config_context(enable_metadata_routing=True):
        asks = Accelerated(SVC().set_fit_request(sample_weight=True))
        assert_array_equal(asks.fit(X, Y, sample_weight=WEIGHT).predict(Z), WEIGHTED)
        assert_array_equal(asks.fit(X, Y).predict(Z), SVC().fit(X, Y).predict(Z))
        renamed = Accelerated(SVC().set_fit_request(sample_weight="w"))
        assert_array_equal(renamed.fit(X, Y, w=WEIGHT).predict(Z), WEIGHTED)
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            Accelerated(SVC()).fit(X, Y, sample_weight=WEIGHT)
        with pytest.raises(TypeError, match="unexpected argument"):
            asks.fit(X, Y, colour=1)
        with pytest.raises(TypeError, match="unexpected argument"):
            Accelerated(FrozenEstimator(SVC().fit(X, Y))).fit(X, Y, sample_weight=WEIGHT)
        inside = Accelerated(make_pipeline(StandardScaler(), SVC().set_fit_request(sample_weight=True)))
        inside.set_params(estimator__standardscaler=StandardScaler().set_fit_request(sample_weight=False))
        expected = make_pipeline(StandardScaler(), SVC())
        inside.fit(X, Y, sample_weight=WEIGHT)
    expected.fit(X, Y, svc__sample_weight=WEIGHT)
    assert_array_equal(inside.predict(Z), expected.predict(Z))


def test_metadata_is_routed_through_searches():
    with config_context(enable_metadata_routing=True):
        svc = SVC().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        fast = Accelerated(SVC().set_fit_request(sample_weight=True)).set_score_request(sample_weight=True)
        plain = GridSearchCV(svc, {"C": [0.1, 1.0]}, cv=3).fit(X, Y, sample_weight=WEIGHT)
        search = GridSearchCV(fast, {"estimator__C": [0.1, 1.0]}, cv=3).fit(X, Y, sample_weight=WEIGHT)
    assert_array_equal(search.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"])
    unweighted = GridSearchCV(SVC(), {"C": [0.1, 1.0]}, cv=3).fit(X, Y)
    assert (plain.cv_results_["mean_test_score"] != unweighted.cv_results_["mean_test_score"]).any()


def test_calibration_rows_are_routed():
    """Through a pipeline, which has to transform them as well."""
    with config_context(enable_metadata_routing=True):
        last = Accelerated(SVC(), **TREE).set_fit_request(X_calibration=True)
        steps = [("scale", StandardScaler()), ("svc", last)]
        Pipeline(steps, transform_input=["X_calibration"]).fit(X, Y, X_calibration=Z)
        assert last.report_.details["calibration rows"].startswith("given, 200 checked")
        scaled = steps[0][1].transform(Z)
        direct = clone(last).fit(steps[0][1].transform(X), Y, X_calibration=scaled)
        assert_array_equal(last.decision_function(scaled), direct.decision_function(scaled))


# -- rows of every kind ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parameters", [{}, TREE], ids=["exact", "taylor_tree"])
def test_rows_of_every_kind(parameters):
    rounded = np.round(X)
    model = Accelerated(SVC(gamma=0.2), **parameters)
    expected = clone(model).fit(rounded, Y).decision_function(rounded)
    read_only = rounded.copy()
    read_only.setflags(write=False)
    kinds = [rounded.tolist(), np.asfortranarray(rounded), rounded.astype(np.float32), rounded.astype(int), read_only]
    for rows in [*kinds, sparse.csr_matrix(rounded), sparse.csc_array(rounded), pd.DataFrame(rounded)]:
        assert_allclose(clone(model).fit(rows, Y).decision_function(rows), expected, rtol=0, atol=1e-5)


def test_labels_of_every_kind():
    for labels in (Y == 1, Y - 7, np.array(["b", "a", "c"])[Y], pd.Series(Y).map({0: "x", 1: "y", 2: "z"})):
        model = Accelerated(SVC()).fit(X, labels)
        assert model.predict(Z).dtype == model.classes_.dtype
        assert_array_equal(model.predict(Z), SVC().fit(X, labels).predict(Z))


def test_column_names():
    names = list("abcde")
    frame, queries = pd.DataFrame(X, columns=names), pd.DataFrame(Z, columns=names)
    model = Accelerated(make_pipeline(StandardScaler(), SVC())).fit(frame, Y)
    assert_array_equal(model.feature_names_in_, names)
    assert_array_equal(model.predict(queries), model.estimator_.predict(queries))
    with pytest.raises(ValueError, match=r"feature names should match[\s\S]*must be in the same order"):
        model.predict(queries[names[::-1]])
    with pytest.raises(ValueError, match=r"feature names should match[\s\S]*unseen at fit time:\n- other"):
        model.decision_function(queries.rename(columns={"a": "other"}))
    with pytest.warns(UserWarning, match="X does not have valid feature names, but Accelerated was fitted"):
        assert_array_equal(model.predict(Z), model.predict(queries))
    model.fit(X, Y)
    assert not hasattr(model, "feature_names_in_")
    with pytest.warns(UserWarning, match="X has feature names, but Accelerated was fitted without"):
        model.predict(queries)


@pytest.mark.parametrize("width", [4, 6])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, pd.DataFrame, list], ids=lambda kind: kind.__name__)
def test_rows_of_another_width(width, kind):
    model = Accelerated(SVC()).fit(X, Y)
    with pytest.raises(ValueError, match=f"X has {width} features, but Accelerated is expecting 5 features as input"):
        model.predict(kind(np.zeros((2, width))))


@pytest.mark.parametrize("row", [X[0], X[0].tolist(), pd.Series(X[0])], ids=lambda row: type(row).__name__)
def test_a_row_that_is_no_matrix(row):
    with pytest.raises(ValueError, match="Reshape your data"):
        Accelerated(SVC()).fit(X, Y).predict(row)


def test_text_and_tables():
    words = ["good food", "bad food", "good night", "bad luck", "good luck", "bad night"] * 3
    text = Accelerated(make_pipeline(TfidfVectorizer(), SVC(kernel="linear")))
    assert_array_equal(text.fit(words, [1, 0] * 9).predict(["good day", "bad day"]), [1, 0])
    assert not hasattr(text, "n_features_in_")
    frame = pd.DataFrame({"size": X[:, 0], "kind": np.array(["u", "v", "w"])[Y]})
    columns = make_column_transformer((OneHotEncoder(), ["kind"]), (StandardScaler(), ["size"]))
    table = Accelerated(make_pipeline(columns, SVC())).fit(frame, Y)
    assert_array_equal(table.predict(frame), table.estimator_.predict(frame))
    assert_array_equal(table.feature_names_in_, ["size", "kind"])


def test_python_kernels():
    model = Accelerated(SVC(kernel=product)).fit(X, Y)
    assert_array_equal(model.predict(Z), SVC(kernel=product).fit(X, Y).predict(Z))
    with pytest.raises(ValueError, match="a promise can only be checked on new ones"):
        Accelerated(SVC(kernel=product), method="sv_tree").fit(X, Y)


def test_dask_collections():
    names = list("abcde")
    model = Accelerated(SVC()).fit(X, Y)
    assert_array_equal(model.predict(da.from_array(Z, chunks=(150, 2))).compute(), model.predict(Z))
    frame = pd.DataFrame(Z, columns=names)
    named = Accelerated(SVC()).fit(pd.DataFrame(X, columns=names), Y)
    lazy = named.decision_function(dd.from_pandas(frame, npartitions=3))
    assert_allclose(lazy.compute(), named.decision_function(frame), rtol=0, atol=1e-6)


# -- copies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inner", "parameters"),
    [
        (SVC(), {}),
        (SVC(), {"method": "bounded"}),
        (make_pipeline(StandardScaler(), SVC()), TREE),
        (SVC(), TREE | {"method": "hinges", "method_options": {"n_hinges": 8, "max_epochs": 1, "next_stage": None}}),
        (FrozenEstimator(SVC().fit(X, Y)), {}),
        (OneClassSVM(), {}),
    ],
    ids=str,
)
def test_copies_answer_the_same(inner, parameters, tmp_path):
    model = Accelerated(inner, **parameters).fit(X, Y)
    joblib.dump(model, tmp_path / "model.joblib", compress=3)
    again = joblib.load(tmp_path / "model.joblib")
    for other in (again, pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        assert_array_equal(other.decision_function(Z), model.decision_function(Z))
        assert str(other.report_) == str(model.report_)
        assert other.n_features_in_ == 5
    untouched = pickle.loads(pickle.dumps(Accelerated(inner, **parameters)))
    with pytest.raises(NotFittedError):
        untouched.predict(Z)


def test_answers_of_another_process():
    model = Accelerated(SVC()).fit(X, Y)
    with joblib.parallel_config("loky", n_jobs=2):
        parts = joblib.Parallel()(joblib.delayed(model.predict)(rows) for rows in (Z[:200], Z[200:]))
    assert_array_equal(np.concatenate(parts), model.predict(Z))


# -- what it says about itself ---------------------------------------------------------------------------------------


def test_tags_are_those_of_the_estimator():
    for inner, check in ((SVC(), is_classifier), (SVR(), is_regressor), (OneClassSVM(), is_outlier_detector)):
        for model in (Accelerated(inner), Accelerated(make_pipeline(StandardScaler(), inner))):
            assert [ask(model) for ask in (is_classifier, is_regressor, is_outlier_detector)].count(True) == 1
            assert check(model)
    for inner in (SVC(), SVC(kernel="precomputed"), KernelRidge(), make_pipeline(StandardScaler(), SVR())):
        got, expected = get_tags(Accelerated(inner)), get_tags(inner)
        for name in ("input_tags", "target_tags", "classifier_tags", "regressor_tags", "non_deterministic"):
            assert getattr(got, name) == getattr(expected, name)
        assert not got.array_api_support
    assert get_tags(Accelerated(SVC(kernel="precomputed"))).input_tags.pairwise
    assert not get_tags(Accelerated(SVC(kernel="precomputed"))).input_tags.sparse
    assert get_tags(Accelerated(KernelRidge())).target_tags.multi_output


def test_is_fitted():
    model = Accelerated(SVC())
    with pytest.raises(NotFittedError, match="This Accelerated instance is not fitted yet"):
        check_is_fitted(model)
    check_is_fitted(model.fit(X, Y))


@pytest.mark.skipif(not hasattr(BaseEstimator, "_html_repr"), reason="scikit-learn 1.6 shows the diagram alone")
def test_diagram():
    model = Accelerated(make_pipeline(StandardScaler(), SVC()))
    before = model._repr_html_()
    assert "Accelerated" in before
    assert "StandardScaler" in before
    assert "svelto: method" not in before
    after = model.fit(X, Y)._repr_html_()
    assert "<summary>svelto: method exact, promise exact</summary>" in after
    assert model.report_._repr_html_() in after
    assert model._repr_mimebundle_()["text/html"].endswith("</div></details>")
    assert "Accelerated" in make_pipeline(model)._repr_html_()
    with config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert list(model._repr_mimebundle_()) == ["text/plain"]
