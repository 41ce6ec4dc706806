"""Reading scikit-learn's kernel machines: what was read gives scikit-learn's own answers.

Labels must be equal on random rows; scores agree to rounding (scikit-learn sums in another order). Pipelines and
calibrated models have a file of their own.
"""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process.kernels import RBF
from sklearn.kernel_ridge import KernelRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, NuSVC, NuSVR, OneClassSVM

from oracle import slow_predict, slow_probabilities, slow_scores
from sklearn_cases import check_same, data, product, read, thin

KERNELS = ["linear", "poly", "rbf", "sigmoid"]


# -- classifiers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("model", [SVC, NuSVC])
def test_classifiers(model, kernel, n_classes):
    X, y, Z = data(n_classes)
    numbers = {"nu": 0.3} if model is NuSVC else {}
    fitted = model(kernel=kernel, coef0=0.5, degree=2, gamma=0.1, **numbers).fit(X, y)
    machine = check_same(fitted, Z)
    assert (machine.task, machine.rule, machine.svm_type) == ("classification", "pairs", fitted._impl)
    assert machine.vote_order.tolist() == list(range(n_classes))
    assert machine.n_support.tolist() == fitted.n_support_.tolist()
    assert machine.n_features == 5
    assert machine.source == f"scikit-learn {model.__name__}"


@pytest.mark.parametrize("gamma", ["scale", "auto", 0.7])
def test_gamma(gamma):
    X, y, Z = data(3)
    machine = check_same(SVC(gamma=gamma).fit(X, y), Z)
    assert machine.kernel.gamma == {"scale": 1 / (5 * X.var()), "auto": 1 / 5, 0.7: 0.7}[gamma]


@pytest.mark.parametrize("shape", ["ovr", "ovo"])
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_decision_function_shape(shape, n_classes):
    X, y, Z = data(n_classes)
    check_same(SVC(decision_function_shape=shape).fit(X, y), Z)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_break_ties(n_classes):
    X, y, Z = data(n_classes)
    y = np.random.default_rng(1).permutation(y)  # nothing to learn: the votes go round in circles
    broken = SVC(break_ties=True).fit(X, y)
    assert check_same(broken, Z).break_ties
    assert (broken.predict(Z) != SVC().fit(X, y).predict(Z)).any() == (n_classes > 2)  # there were ties to break


@pytest.mark.parametrize(
    "labels",
    [
        np.array([-7, 3, 40]),
        np.array(["no", "maybe", "yes"]),
        np.array([0.0, 1.0, 2.0]),
        np.array([False, True]),
        np.array(["b", "a", "c"], dtype=object),
        np.array([3, 1, 2], dtype=np.int8),
    ],
    ids=lambda labels: str(labels.dtype),
)
def test_label_types(labels):
    X, y, Z = data(len(labels))
    machine = check_same(SVC().fit(X, labels[y]), Z)
    assert_array_equal(machine.classes, np.unique(labels))


@pytest.mark.parametrize("class_weight", ["balanced", {0: 1.0, 1: 9.0, 2: 0.2}])
def test_class_weight(class_weight):
    X, y, Z = data(3)
    check_same(SVC(class_weight=class_weight).fit(X, y), Z)


def test_subclass_is_read():
    class Mine(SVC):
        pass

    X, y, Z = data()
    check_same(Mine().fit(X, y), Z)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("model", [SVC, NuSVC])
def test_sparse_classifiers(model, kernel, n_classes):
    X, y, Z = data(n_classes)
    fitted = model(kernel=kernel, gamma=0.2, **({"nu": 0.4} if model is NuSVC else {})).fit(thin(X), y)
    machine = check_same(fitted, thin(Z))
    assert machine.has_sparse_vectors
    assert_array_equal(slow_predict(machine, thin(Z).toarray()), fitted.predict(thin(Z)))


def test_sparse_models_with_few_zeros_become_dense():
    X, y, Z = data(3)
    machine = check_same(SVC().fit(sparse.csr_array(X), y), sparse.csr_array(Z))
    assert not machine.has_sparse_vectors


# -- regression and outliers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("model", [SVR, NuSVR, OneClassSVM])
def test_regressors_and_outliers(model, kernel, as_sparse):
    X, _, Z = data()
    X, Z = (thin(X), thin(Z)) if as_sparse else (X, Z)
    fitted = model(kernel=kernel, gamma=0.1)
    fitted.fit(X) if model is OneClassSVM else fitted.fit(X, np.sin(np.asarray(X.sum(axis=1)).ravel()))
    machine = check_same(fitted, Z)
    assert machine.svm_type == fitted._impl
    assert machine.rule == "value"
    if model is OneClassSVM:
        assert_array_equal(machine.intercept, -fitted.offset_)
        assert_allclose(slow_scores(machine, Z)[:, 0] + fitted.offset_, fitted.score_samples(Z), atol=1e-10)


@pytest.mark.parametrize("kernel", ["rbf", "precomputed", lambda A, B: A @ B.T])
def test_a_regressor_without_support_vectors_is_a_constant(kernel):
    X, y, _ = data()
    X = X @ X.T if kernel == "precomputed" else X
    fitted = SVR(kernel=kernel, epsilon=10.0).fit(X, y)
    assert len(fitted.support_) == 0
    assert_array_equal(slow_predict(read(fitted), X), np.full(len(X), 0.5))


# -- kernels without native code -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_precomputed(n_classes):
    X, y, Z = data(n_classes)
    fitted = SVC(kernel="precomputed").fit(X @ X.T, y)
    machine = check_same(fitted, Z @ X.T)
    assert machine.n_features == len(X)
    assert_array_equal(machine.support_vectors, fitted.support_)


def relative_product(A, B):
    """Not a function of two rows: it looks at all of B."""
    return (A @ B.T) / np.abs(B).max()


def only_all_rows(A, B):
    if len(B) != 150:
        raise RuntimeError("I want all 150 training rows")
    return A @ B.T


@pytest.mark.parametrize("kernel", [product, relative_product, only_all_rows])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_callable_kernels(kernel, n_classes):
    X, y, Z = data(n_classes)
    X[y == 0] *= 0.01
    fitted = SVC(kernel=kernel).fit(X, y)
    machine = pickle.loads(pickle.dumps(read(fitted)))
    check_same(fitted, Z, machine)
    assert machine.n_features == 5
    assert str(machine.kernel) == f"callable({kernel.__name__})"
    assert (machine.support_vectors.ndim == 2) == (kernel is product)  # else the column numbers in all training rows


def test_callable_kernel_with_sparse_values():
    X, y, Z = data()
    check_same(SVC(kernel=product).fit(thin(X), y), thin(Z))


def shared_letters(A, B):
    return np.array([[len(set(a) & set(b)) for b in B] for a in A], dtype=float)


def test_callable_kernel_on_strings():
    words = ["abc", "abd", "bcd", "xyz", "xyw", "yzw"] * 3
    fitted = SVC(kernel=shared_letters).fit(words, [0, 0, 0, 1, 1, 1] * 3)
    machine = read(fitted)
    assert machine.n_features is None
    queries = ["ab", "xz", "aw", "cdy"]
    assert_array_equal(slow_predict(machine, queries), fitted.predict(queries))


# -- KernelRidge -----------------------------------------------------------------------------------------------------


def row_kernel(a, b, power=2.0):
    return float(a @ b + 1.0) ** power


@pytest.mark.parametrize("shape", [(150,), (150, 1), (150, 3)])
@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"kernel": "linear"}, "linear"),
        ({"kernel": "poly"}, "poly"),
        ({"kernel": "polynomial", "degree": 2.0, "coef0": 0.5, "gamma": 0.3}, "poly"),
        ({"kernel": "rbf"}, "rbf"),
        ({"kernel": "rbf", "gamma": 0.4}, "rbf"),
        ({"kernel": "laplacian"}, "laplacian"),
        ({"kernel": "sigmoid", "gamma": 0.05}, "sigmoid"),
        ({"kernel": "cosine"}, "callable"),
        ({"kernel": row_kernel, "kernel_params": {"power": 3.0}}, "callable"),
        ({"kernel": RBF(2.0)}, "callable"),
    ],
    ids=lambda value: str(value).split(" at 0x")[0],  # the same in every process
)
def test_kernel_ridge(options, name, shape):
    X, _, Z = data()
    Y = np.random.default_rng(1).normal(size=shape)
    fitted = KernelRidge(**options).fit(X, Y)
    machine = pickle.loads(pickle.dumps(read(fitted)))
    check_same(fitted, Z, machine)
    assert machine.kernel.name == name
    assert machine.single_output == (len(shape) == 1)
    assert machine.n_features == 5


@pytest.mark.parametrize("options", [{"kernel": "chi2", "gamma": 0.3}, {"kernel": "poly", "degree": 1.5}], ids=str)
def test_kernel_ridge_on_positive_rows(options):
    X, y, Z = data()
    X, Z = np.abs(X), np.abs(Z)
    assert str(check_same(KernelRidge(**options).fit(X, y), Z).kernel) == f"callable({options['kernel']})"


@pytest.mark.parametrize("kernel", ["linear", "rbf", "laplacian", "cosine"])
def test_kernel_ridge_sparse_and_precomputed(kernel):
    X, y, Z = data()
    check_same(KernelRidge(kernel=kernel).fit(thin(X), y), thin(Z))
    machine = check_same(KernelRidge(kernel="precomputed").fit(X @ X.T, y), Z @ X.T)
    assert machine.n_features == len(X)


# -- probability=True -------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The `probability` parameter:FutureWarning")
@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3, 10])
@pytest.mark.parametrize("model", [SVC, NuSVC])
def test_probability_models(model, n_classes, as_sparse):
    X, y, Z = data(n_classes, n_rows=200)
    X, Z = (sparse.csr_matrix(X), sparse.csr_matrix(Z)) if as_sparse else (X, Z)
    options = {"nu": 0.1} if model is NuSVC else {}
    fitted = model(probability=True, random_state=0, **options).fit(X, y)
    machine = check_same(fitted, Z)
    assert_allclose(slow_probabilities(machine, Z), fitted.predict_proba(Z), rtol=0, atol=1e-10)
    assert read(SVC().fit(X, y)).platt is None


# -- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [SVC(), NuSVC(), SVR(), NuSVR(), OneClassSVM(), KernelRidge()], ids=str)
def test_unfitted_models(model):
    for unfitted in (model, make_pipeline(StandardScaler(), model), FrozenEstimator(model)):
        with pytest.raises(
            NotFittedError, match=f"This {type(model).__name__} is not fitted.*Call its fit method first"
        ):
            read(unfitted)


def test_unsupported_models_are_named():
    X, y, _ = data()
    with pytest.raises(TypeError, match=r"LinearSVC is already one dot product .* svelto reads SVC, NuSVC"):
        read(LinearSVC().fit(X, y))
    with pytest.raises(
        TypeError, match=r"from RandomForestClassifier\. svelto reads SVC, NuSVC, .*CalibratedClassifierCV"
    ):
        read(make_pipeline(StandardScaler(), RandomForestClassifier(2)).fit(X, y))
    with pytest.raises(TypeError, match="Cannot read a kernel machine from str"):
        read("model.txt")
    with pytest.raises(TypeError, match="Got the class SVC; expected a fitted model"):
        read(SVC)
    with pytest.raises(TypeError, match="The Pipeline does not end in a model"):
        read(make_pipeline(StandardScaler(), "passthrough").fit(X))


def test_damaged_models():
    X, y, _ = data()
    model = SVC().fit(X, y)
    model._dual_coef_ = model._dual_coef_ * np.nan
    with pytest.raises(ValueError, match="dual_coef contains nan"):
        read(model)
    scaled = make_pipeline(StandardScaler(), SVC()).fit(X, y)
    scaled[0].scale_[2] = np.inf
    with pytest.raises(ValueError, match="The scaler's factor contains inf; expected finite"):
        read(scaled)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns that training ended early
        empty = SVC(max_iter=0).fit(X, y)
    with pytest.raises(ValueError, match=r"SVC has no support vectors.*max_iter=0.*smaller tol or more iterations"):
        read(empty)
