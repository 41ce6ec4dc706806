"""scikit-learn's SVMs under the patch: the same labels, values, types and errors, and every alteration noticed.

scikit-learn without the patch is the judge. Labels must be equal; values may differ by rounding. On sparse data
scikit-learn sums in LIBSVM's own order, which defines the label, so there labels and signs are compared on rows that
no double separates from the next label.
"""

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, NuSVC, NuSVR, OneClassSVM

import svelto
from patch_cases import answers, assert_same_answers, data, fitted, outcome, served
from svelto import compiled

KERNELS = ("rbf", "linear", "poly", "sigmoid")
ESTIMATORS = {
    "SVC": SVC(),
    "SVC ovo": SVC(decision_function_shape="ovo"),
    "SVC break_ties": SVC(break_ties=True),
    "NuSVC": NuSVC(nu=0.2),
    "SVR": SVR(),
    "NuSVR": NuSVR(),
    "OneClassSVM": OneClassSVM(nu=0.3),
}


@pytest.fixture(autouse=True)
def _unpatched():
    yield
    svelto.unpatch_sklearn()


# -- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_csr", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_answers_are_those_of_scikit_learn(name, kernel, as_csr):
    estimator, X = fitted(sklearn.clone(ESTIMATORS[name]).set_params(kernel=kernel), as_csr=as_csr)
    expected = answers(estimator, X)
    got, (n_compiled, n_served, n_passed) = served(lambda: answers(estimator, X))
    assert_same_answers(got, expected)
    assert (n_compiled, n_served, n_passed) == (1, len(expected), 0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_rows_of_any_kind(n_classes, dtype):
    estimator, X = fitted(n_classes=n_classes)
    X = (X * 3).astype(dtype)
    for rows in (X, np.asfortranarray(X), X[::-2], X[:1], X.tolist()):
        got, (_, n_served, _) = served(lambda rows=rows: answers(estimator, rows))
        assert_same_answers(got, answers(estimator, rows))
        assert n_served == 2


@pytest.mark.parametrize("labels", [["b", "a", "c"], [2.0, -1.0, 7.0], [np.int8(3), np.int8(1), np.int8(2)]])
def test_labels_keep_their_type(labels):
    X, y = data(3)
    svc = SVC().fit(X, np.array(labels)[y])
    got, _ = served(lambda: svc.predict(X))
    np.testing.assert_array_equal(got, svc.predict(X))
    assert got.dtype == svc.predict(X).dtype


@pytest.mark.parametrize("as_csr", [False, True])
def test_a_model_fitted_on_sparse_rows_takes_dense_ones(as_csr):
    svc, X = fitted(as_csr=True)
    rows = X if as_csr else X.toarray()
    got, (_, n_served, _) = served(lambda: answers(svc, rows))
    assert_same_answers(got, answers(svc, rows))
    assert n_served == 2


@pytest.mark.filterwarnings("ignore:The `probability`:FutureWarning")
@pytest.mark.parametrize("as_csr", [False, True])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_probabilities(n_classes, as_csr):
    svc, X = fitted(SVC(probability=True, random_state=0), n_classes, as_csr)
    got, (_, n_served, _) = served(lambda: (svc.predict_proba(X), svc.predict_log_proba(X)))
    np.testing.assert_allclose(got[0], svc.predict_proba(X), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(got[1], svc.predict_log_proba(X), rtol=1e-9)
    assert n_served == 2
    svc._probA[:] *= 2  # LIBSVM reads it in every call
    got, (n_compiled, _, _) = served(lambda: svc.predict_proba(X))
    np.testing.assert_allclose(got, svc.predict_proba(X), rtol=1e-9, atol=1e-12)
    assert n_compiled == 1


def nearest_rows(predict, a, b):
    """Two rows between a and b with different labels and no double between them, in the feature that still differs."""
    at_a = predict(a)
    for _ in range(2000):
        middle = 0.5 * a + 0.5 * b
        if np.array_equal(middle, a) or np.array_equal(middle, b):
            break
        if predict(middle) == at_a:
            a = middle
        else:
            b = middle
    return a, b


@pytest.mark.parametrize("break_ties", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_on_the_boundary_get_the_labels_of_libsvm(kernel, break_ties):
    svc, X = fitted(SVC(kernel=kernel, break_ties=break_ties, C=3.0), n_classes=3, as_csr=True)
    X, y = X.toarray(), svc.predict(X)
    ends = [(i, j) for i in range(12) for j in range(12) if y[i] < y[j]]
    rows = np.vstack([nearest_rows(lambda row: svc.predict(row[None])[0], X[i], X[j]) for i, j in ends])
    rows = np.vstack([rows, np.nextafter(rows, np.inf), np.nextafter(rows, -np.inf)])
    expected, scores = svc.predict(rows), svc.decision_function(rows)
    assert len(rows) > 100
    got, (_, n_served, _) = served(lambda: (svc.predict(rows), svc.decision_function(rows)))
    np.testing.assert_array_equal(got[0], expected)
    np.testing.assert_array_equal(np.rint(got[1]), np.rint(scores))  # votes
    assert n_served == 2
    if break_ties:
        np.testing.assert_array_equal(got[1].argmax(axis=1), scores.argmax(axis=1))


def test_the_float32_tier_comes_later_and_changes_nothing(monkeypatch):
    X, y = data(3, n_rows=3000)
    svc = SVC().fit(X[:1000], y[:1000])
    expected = svc.predict(X)
    monkeypatch.setattr(compiled, "SINGLE_AFTER_ROWS", 4000)
    with svelto.patched():
        first, scores = svc.predict(X), svc.decision_function(X)
        (entry,) = svelto.patching._patch.store._entries.values()
        assert entry.compiled._engine.first_tier == "float64"
        second = svc.predict(X)
        assert entry.compiled._engine.first_tier == "float32"
        np.testing.assert_array_equal(svc.decision_function(X), scores)  # to the last bit
    for labels in (first, second):
        np.testing.assert_array_equal(labels, expected)


def test_inside_pipelines_searches_and_calibrators():
    X, y = data()
    search = GridSearchCV(make_pipeline(StandardScaler(), SVC()), {"svc__C": [0.1, 1.0]}, cv=2)
    expected = search.fit(X, y).cv_results_["mean_test_score"]
    (got, labels), (n_compiled, _, n_passed) = served(
        lambda: (search.fit(X, y).cv_results_["mean_test_score"], search.predict(X))
    )
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(labels, search.predict(X))
    assert (n_compiled, n_passed) == (2 * 2 + 1, 0)

    calibrated = CalibratedClassifierCV(SVC(), cv=2).fit(X, y)
    got, (_, n_served, _) = served(lambda: calibrated.predict_proba(X))
    np.testing.assert_allclose(got, calibrated.predict_proba(X), rtol=1e-9)
    assert n_served == 2


class Plain(SVC):
    """Overrides nothing of prediction, and cannot be hashed."""

    def __eq__(self, other):
        return self is other

    __hash__ = None


class Shifted(SVR):
    def predict(self, X):
        return super().predict(X) + 1.0


class Own(SVR):
    def _dense_predict(self, X):
        return np.full(len(X), 7.0)


@pytest.mark.parametrize(("kind", "n_served"), [(Plain, 1), (Shifted, 1), (Own, 0)])
def test_subclasses(kind, n_served):
    X, y = data()
    estimator = kind().fit(X, y)
    got, (_, n, n_passed) = served(lambda: estimator.predict(X))
    np.testing.assert_allclose(got, estimator.predict(X), rtol=1e-9)
    assert (n, n_passed) == (n_served, 0)


# -- what is left to scikit-learn ------------------------------------------------------------------------------------


def product(A, B):
    return A @ B.T


def unserved(case):
    X, y = data()
    if case == "callable":
        return SVC(kernel=product).fit(X, y), X
    if case == "precomputed":
        return SVC(kernel="precomputed").fit(X @ X.T, y), X @ X.T
    if case == "no support vectors":
        return SVR(epsilon=100.0).fit(X, y), X
    assert case == "columns twice"
    svc, rows = fitted(as_csr=True)
    twice = [np.repeat(rows.data, 2) / 3, np.repeat(rows.indices, 2), rows.indptr * 2]
    return svc, sparse.csr_matrix(tuple(twice), shape=rows.shape)


@pytest.mark.parametrize("case", ["callable", "precomputed", "no support vectors", "columns twice"])
def test_what_svelto_does_not_serve_is_scikit_learns(case):
    estimator, X = unserved(case)
    got, (_, n_served, n_passed) = served(lambda: answers(estimator, X))
    for name, values in answers(estimator, X).items():
        np.testing.assert_array_equal(got[name], values)
    assert (n_served, n_passed) == (0, len(got))


def test_nan_that_scikit_learn_lets_in_is_scikit_learns():
    svr, X = fitted(SVR())
    X[3, 2] = np.nan
    with sklearn.config_context(assume_finite=True):
        expected = svr.predict(X)
        got, (_, n_served, n_passed) = served(lambda: svr.predict(X))
    np.testing.assert_array_equal(got, expected)
    assert (n_served, n_passed) == (0, 1)


# -- errors and warnings ---------------------------------------------------------------------------------------------


BAD_ROWS = {
    "nan": lambda X: np.where(np.eye(len(X), X.shape[1]) > 0, np.nan, X),
    "infinity": lambda X: X / 0.0,
    "too wide": lambda X: np.hstack([X, X]),
    "one dimension": lambda X: X[0],
    "three dimensions": lambda X: X[None],
    "complex": lambda X: X.astype(complex),
    "no rows": lambda X: X[:0],
    "text": lambda X: np.full(X.shape, "a"),
    "sparse": sparse.csr_matrix,
    "none": lambda X: None,
}


@pytest.mark.parametrize("bad", BAD_ROWS)
@pytest.mark.parametrize("name", ["SVC", "SVR", "OneClassSVM"])
@np.errstate(divide="ignore", invalid="ignore")
def test_errors_are_scikit_learns(name, bad):
    estimator, X = fitted(ESTIMATORS[name])
    estimator.predict(X)
    for method in answers(estimator, X):
        rows = BAD_ROWS[bad](X)
        expected = outcome(lambda method=method, rows=rows: getattr(estimator, method)(rows))
        assert expected[0] is not None
        with svelto.patched():
            assert outcome(lambda method=method, rows=rows: getattr(estimator, method)(rows)) == expected


def test_an_unfitted_estimator_and_contradicting_parameters():
    with svelto.patched():
        with pytest.raises(NotFittedError, match="This SVC instance is not fitted yet"):
            SVC().predict([[1.0]])
        svc, X = fitted(SVC(break_ties=True, decision_function_shape="ovo"))
        with pytest.raises(ValueError, match="break_ties must be False when decision_function_shape is 'ovo'"):
            svc.predict(X)


def test_warnings_about_feature_names_are_scikit_learns():
    X, y = data()
    frame = pd.DataFrame(X, columns=list("abcde"))
    svc = SVC().fit(frame, y)
    for rows in (frame, X, frame[list("edcba")], frame.rename(columns={"a": "z"})):
        expected = outcome(lambda rows=rows: svc.predict(rows))
        with svelto.patched():
            assert outcome(lambda rows=rows: svc.predict(rows)) == expected
    assert outcome(lambda: svc.predict(X))[1]  # there is a warning to compare
