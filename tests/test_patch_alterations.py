"""Whatever changes scikit-learn's answers changes the answers under the patch, at the next call."""

import numpy as np
import pytest
from sklearn.svm import SVC, SVR, OneClassSVM

import svelto
from patch_cases import answers, assert_same_answers, data, fitted, outcome, served


@pytest.fixture(autouse=True)
def _unpatched():
    yield
    svelto.unpatch_sklearn()


def replace_dual_coef(svc):
    svc._dual_coef_ = svc._dual_coef_ * 0.5


def change_one_dual_coef(svc):
    svc._dual_coef_[0, 3] += 0.75


def change_one_support_vector(svc):
    svc.support_vectors_[-1, -1] += 3.0


def exchange_support_vectors(svc):
    svc.support_vectors_[[0, -1]] = svc.support_vectors_[[-1, 0]]


def negate_support_vectors(svc):
    svc.support_vectors_ *= -1


def change_intercept(svc):
    svc._intercept_[1] += 0.5


def change_gamma(svc):
    svc._gamma *= 3


def change_coef0(svc):
    svc.set_params(kernel="poly", coef0=0.5)


def change_degree(svc):
    svc.set_params(kernel="poly", degree=2)


def change_kernel(svc):
    svc.set_params(kernel="linear")


def move_a_support_vector_to_the_next_class(svc):
    svc._n_support += np.array([-1, 1, 0, 0], dtype=np.int32)


def fit_again(svc):
    X, y = data()
    svc.fit(X[:100], y[:100] % 3)


def fit_again_with_another_shape(svc):
    X, y = data()
    svc.fit(np.hstack([X, X])[:100, :5] * 2, y[:100])


def become_another(svc):
    other, _ = fitted(SVC(C=0.01, gamma=3.0))
    svc.__dict__.update(other.__dict__)


DENSE = [
    replace_dual_coef,
    change_one_dual_coef,
    change_one_support_vector,
    exchange_support_vectors,
    negate_support_vectors,
    change_intercept,
    change_gamma,
    change_coef0,
    change_degree,
    change_kernel,
    move_a_support_vector_to_the_next_class,
    fit_again,
    fit_again_with_another_shape,
    become_another,
]


def assert_noticed(svc, X, alter):
    """The answers under the patch follow an alteration that changes scikit-learn's, by one new machine."""
    before = answers(svc, X)
    assert_same_answers(served(lambda: answers(svc, X))[0], before)
    alter(svc)
    expected = answers(svc, X)
    changed = before["decision_function"], expected["decision_function"]
    assert changed[0].shape != changed[1].shape or np.abs(changed[0] - changed[1]).max() > 1e-6
    got, (n_compiled, n_served, _) = served(lambda: answers(svc, X))
    assert_same_answers(got, expected)
    assert (n_compiled, n_served) == (1, 2)
    _, (n_compiled, _, _) = served(lambda: answers(svc, X))
    assert n_compiled == 0


@pytest.mark.parametrize("alter", DENSE, ids=lambda alter: alter.__name__)
def test_alterations(alter):
    svc, X = fitted(SVC(decision_function_shape="ovo"))
    assert_noticed(svc, X, alter)


def change_a_value(svc):
    svc.support_vectors_.data[-1] *= 3


def change_a_column(svc):
    row = np.flatnonzero(np.diff(svc.support_vectors_.indptr) == 1)[0]
    at = svc.support_vectors_.indptr[row]
    svc.support_vectors_.indices[at] = (svc.support_vectors_.indices[at] + 1) % 5


def change_a_sparse_dual_coef(svc):
    svc._dual_coef_.data[5] -= 0.5


@pytest.mark.parametrize(
    "alter", [change_a_value, change_a_column, change_a_sparse_dual_coef, change_intercept, change_gamma, change_coef0]
)
def test_alterations_of_a_model_fitted_on_sparse_rows(alter):
    svc, X = fitted(SVC(decision_function_shape="ovo"), as_csr=True)
    assert_noticed(svc, X, alter)


@pytest.mark.parametrize("estimator", [SVR(), OneClassSVM()])
def test_alterations_of_other_estimators(estimator):
    svm, X = fitted(estimator)
    served(lambda: svm.predict(X))
    svm._intercept_ -= 0.25
    svm.support_vectors_[0] += 1.0
    got, (n_compiled, _, _) = served(lambda: answers(svm, X))
    assert_same_answers(got, answers(svm, X))
    assert n_compiled == 1


def set_gamma(svc):
    svc.set_params(gamma=77.0)  # read by fit alone


def set_public_arrays(svc):
    svc.intercept_[:] = 99.0  # of several classes a copy, which predict does not read
    svc.C, svc.tol, svc.cache_size = 1e-9, 0.5, 1


def set_shape(svc):
    svc.set_params(decision_function_shape="ovr", break_ties=True)  # scikit-learn's own part


def set_classes(svc):
    svc.classes_ = np.array(["w", "z", "y", "x"])  # unsorted: numbers of classes are looked up, no more


def set_unused_numbers(svc):
    svc.set_params(coef0=5.0, degree=7)  # the rbf kernel has none


@pytest.mark.parametrize("alter", [set_gamma, set_public_arrays, set_shape, set_classes, set_unused_numbers])
def test_what_libsvm_does_not_read_needs_no_new_machine(alter):
    svc, X = fitted(SVC(decision_function_shape="ovo"))
    served(lambda: answers(svc, X))
    alter(svc)
    got, (n_compiled, n_served, _) = served(lambda: answers(svc, X))
    assert_same_answers(got, answers(svc, X))
    assert (n_compiled, n_served) == (0, 2)


def float32_coefficients(svc):
    svc._dual_coef_ = svc._dual_coef_.astype(np.float32)


def wrong_counts(svc):
    svc._n_support[0] += 1


def no_intercept(svc):
    del svc._intercept_


def unknown_kernel(svc):
    svc.kernel = "unknown"


def no_number(svc):
    svc.degree = "three"


@pytest.mark.parametrize("damage", [float32_coefficients, wrong_counts, no_intercept, unknown_kernel, no_number])
def test_damage_gets_scikit_learns_own_error(damage):
    svc, X = fitted()
    served(lambda: svc.predict(X))
    damage(svc)
    expected = outcome(lambda: svc.predict(X))
    assert expected[0] is not None
    with svelto.patched():
        assert outcome(lambda: svc.predict(X)) == expected


def nan_in_a_support_vector(svr):
    svr.support_vectors_[0, 0] = np.nan


def half_a_degree(svr):
    svr.set_params(kernel="poly", degree=2.5)  # cut off on its way to LIBSVM


def negative_gamma(svr):
    svr._gamma = -0.01


@pytest.mark.parametrize("alter", [nan_in_a_support_vector, half_a_degree, negative_gamma])
def test_what_only_libsvm_takes_is_scikit_learns_to_answer(alter):
    svr, X = fitted(SVR())
    alter(svr)
    got, (n_compiled, n_served, n_passed) = served(lambda: svr.predict(X))
    np.testing.assert_array_equal(got, svr.predict(X))
    assert (n_compiled, n_served, n_passed) == (0, 0, 1)


def test_counts_that_do_not_add_up_are_scikit_learns_to_answer():
    svc, X = fitted(n_classes=2, as_csr=True)
    expected = svc.decision_function(X)
    svc._n_support[1] -= 1  # of a sparse model scikit-learn does not check them: LIBSVM leaves the last vector out
    got, (n_compiled, n_served, n_passed) = served(lambda: svc.decision_function(X))
    np.testing.assert_array_equal(got, svc.decision_function(X))
    assert np.abs(got - expected).max() > 1e-6
    assert (n_compiled, n_served, n_passed) == (0, 0, 1)
