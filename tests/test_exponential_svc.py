"""ExponentialSVC: the machine that SVC learns from the exponential kernel's Gram matrix, pair by pair."""

from __future__ import annotations

import doctest
import os
import pickle
import re
import signal
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import check_estimator

import svelto
from oracle import slow_predict
from sklearn_cases import check_same, data, read, thin
from svelto import ExponentialSVC
from svelto.training import _pairs, exponential

GAMMA = 0.7


def slow_kernel(A, B, gamma=GAMMA):
    """The definition, written to be read."""
    return np.exp(-gamma * np.sqrt(((A[:, None, :] - B[None, :, :]) ** 2).sum(axis=-1)))


def assert_same_machine(ours, svc, rtol=1e-10, kept=slice(None)):
    assert_array_equal(ours.classes_, svc.classes_)
    # SVC numbers the rows without those of weight 0; X[svc.support_] is wrong then.
    assert_array_equal(ours.support_, np.arange(100_000)[kept][svc.support_])
    for name in ("n_support_", "n_iter_"):
        assert_array_equal(getattr(ours, name), getattr(svc, name), err_msg=name)
    for name in ("support_", "n_support_", "n_iter_", "dual_coef_", "intercept_"):
        assert getattr(ours, name).dtype == getattr(svc, name).dtype
    assert_array_equal(ours.class_weight_, svc.class_weight_)
    assert ours.fit_status_ == svc.fit_status_
    # The Gram matrices differ in the last bit at most, and LIBSVM rounds them to float32.
    assert_allclose(ours.dual_coef_, svc.dual_coef_, rtol=rtol, atol=1e-12)
    assert_allclose(ours.intercept_, svc.intercept_, rtol=rtol, atol=1e-12)


def weights(kind, y):
    if kind == "some zero":
        w = np.random.default_rng(1).uniform(0.2, 3.0, len(y))
        w[::7] = 0.0
        w[::11] = -1.0  # SVC leaves such rows out too
        return w
    return None


# -- the machine -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample_weight", [None, "some zero"])
@pytest.mark.parametrize("class_weight", [None, "balanced", {1: 5.0}])
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_the_machine_is_that_of_svc_on_the_whole_gram_matrix(n_classes, class_weight, sample_weight):
    X, y, _ = data(n_classes, n_rows=151)  # classes of different sizes
    w = weights(sample_weight, y)
    ours = ExponentialSVC(C=3.0, gamma=GAMMA, class_weight=class_weight).fit(X, y, w)
    svc = SVC(kernel="precomputed", C=3.0, class_weight=class_weight).fit(slow_kernel(X, X), y, w)
    assert_same_machine(ours, svc, kept=slice(None) if w is None else np.flatnonzero(w > 0))
    assert_array_equal(ours.support_vectors_, X[ours.support_])


@pytest.mark.parametrize("break_ties", [False, True])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_answers_are_those_of_svc_with_a_python_kernel(n_classes, break_ties):
    X, y, Z = data(n_classes)
    y = np.random.default_rng(0).permutation(y)  # nothing to learn, so votes are often equal
    labels = np.array(["pear", "apple", "fig", "quince", "plum"])[y]
    ours = ExponentialSVC(gamma=GAMMA, break_ties=break_ties).fit(X, labels)
    svc = SVC(kernel=slow_kernel, break_ties=break_ties).fit(X, labels)
    assert_same_machine(ours, svc)
    assert_array_equal(ours.predict(Z), svc.predict(Z))
    votes = SVC(kernel=slow_kernel).fit(X, labels).predict(Z)
    assert (votes != svc.predict(Z)).any() == (break_ties and n_classes > 2)  # there are ties to break
    assert_allclose(ours.decision_function(Z), svc.decision_function(Z), rtol=0, atol=1e-12 * ours.support_.size)
    if not break_ties:
        ours.set_params(decision_function_shape="ovo")  # answers follow the present parameters, as those of SVC do
        svc.set_params(decision_function_shape="ovo")
        assert_allclose(ours.decision_function(Z), svc.decision_function(Z), rtol=0, atol=1e-12 * ours.support_.size)


def test_the_public_arrays_are_the_decision_function():
    X, y, Z = data(2)
    model = ExponentialSVC(gamma=GAMMA).fit(X, y)
    scores = slow_kernel(Z, model.support_vectors_) @ model.dual_coef_[0] + model.intercept_[0]
    assert_allclose(model.decision_function(Z), scores, rtol=0, atol=1e-12 * model.support_.size)
    assert_array_equal(model.predict(Z), (scores > 0).astype(int))
    assert_allclose(model.dual_coef_.sum(), 0.0, atol=1e-9)  # LIBSVM's constraint
    assert np.abs(model.dual_coef_).max() <= model.C


@pytest.mark.parametrize("as_rows", [np.asarray, sparse.csr_matrix])
def test_what_gamma_stands_for(as_rows):
    X, y, _ = data(2)
    X = np.where(X > 0.5, X + 3.0, 0.0)
    assert ExponentialSVC().fit(as_rows(X), y).gamma_ == pytest.approx(1.0 / np.sqrt(5 * X.var()), rel=1e-14)
    assert ExponentialSVC(gamma="auto").fit(as_rows(X), y).gamma_ == 1.0 / 5
    assert ExponentialSVC(gamma=2).fit(as_rows(X), y).gamma_ == 2.0
    assert ExponentialSVC().fit(as_rows(np.ones((4, 2))), [0, 1, 0, 1]).gamma_ == 1.0


def test_weights_are_repetitions():
    X, y, Z = data(3, n_rows=60)
    w = np.random.default_rng(0).integers(0, 4, 60)
    options = {"gamma": GAMMA, "tol": 1e-10, "decision_function_shape": "ovo"}
    weighted = ExponentialSVC(**options).fit(X, y, w)
    repeated = ExponentialSVC(**options).fit(np.repeat(X, w, axis=0), np.repeat(y, w))
    # LIBSVM keeps kernel values in float32.
    assert_allclose(weighted.decision_function(Z), repeated.decision_function(Z), rtol=0, atol=1e-6)


# -- sparse rows -----------------------------------------------------------------------------------------------------


def test_sparse_rows_give_the_machine_of_dense_rows():
    X, y, Z = data(3, n_features=40)
    S = thin(X)
    assert S.nnz < exponential.DENSE_FROM * X.size  # the products' way
    ours, dense = ExponentialSVC().fit(S, y), ExponentialSVC().fit(S.toarray(), y)
    assert sparse.issparse(ours.support_vectors_)
    assert_array_equal(ours.support_vectors_.toarray(), dense.support_vectors_)
    assert_array_equal(ours.support_, dense.support_)
    assert_allclose(ours.dual_coef_, dense.dual_coef_, atol=1e-6)
    assert_array_equal(ours.predict(thin(Z)), dense.predict(thin(Z)))
    assert read(ours).has_sparse_vectors


def test_full_sparse_rows_are_trained_as_dense_ones():
    X, y, Z = data(3)
    ours, dense = ExponentialSVC().fit(sparse.csc_matrix(X), y), ExponentialSVC(gamma="scale").fit(X, y)
    assert sparse.issparse(ours.support_vectors_)
    assert_allclose(ours.dual_coef_, dense.dual_coef_, rtol=1e-9)
    assert_array_equal(ours.predict(Z), dense.predict(Z))


def test_sparse_distances_survive_cancellation(monkeypatch):
    """Rows far from the origin and close to each other, some equal: products alone would be wrong by 1e-4."""
    monkeypatch.setattr(_pairs, "ROW_BLOCK", 7)
    monkeypatch.setattr(_pairs, "DIFFERENCE_BLOCK", 5)
    rng = np.random.default_rng(0)
    X = np.zeros((30, 50))
    X[:, 3] = 1e6
    X[np.arange(30), rng.integers(4, 50, 30)] = rng.normal(size=30) * 1e-3
    X[5] = X[20]
    X[:3] = 0.0
    X[0, 0] = 1.0
    got = _pairs.exponential_gram(sparse.csr_matrix(X), 2.0)
    assert_allclose(got, slow_kernel(X, X, 2.0), rtol=1e-12)
    assert (np.diag(got) == 1.0).all()
    assert got[5, 20] == 1.0
    assert_array_equal(got, got.T)


def test_a_sparse_matrix_with_repeated_entries_is_added_up_in_a_copy():
    S = sparse.csr_matrix((np.ones(8), np.array([0, 0, 1, 1, 2, 2, 3, 3]), np.array([0, 2, 4, 6, 8])), shape=(4, 40))
    y = [0, 0, 1, 1]
    model = ExponentialSVC().fit(S, y)
    assert S.nnz == 8
    other = ExponentialSVC().fit(S.toarray(), y)
    assert model.gamma_ == pytest.approx(other.gamma_, rel=1e-14)
    assert_allclose(model.dual_coef_, other.dual_coef_)


# -- threads, memory, stopping ---------------------------------------------------------------------------------------


def test_any_number_of_threads_gives_the_same_bits():
    X, y, Z = data(5)
    one, two = (ExponentialSVC(n_jobs=n).fit(X, y) for n in (1, 2))
    for name in ("support_", "dual_coef_", "intercept_"):
        assert_array_equal(getattr(one, name), getattr(two, name))
    assert_array_equal(one.decision_function(Z), two.decision_function(Z))


def test_memory_is_bounded(monkeypatch):
    X, y, _ = data(3)  # 50 rows a class: 8 * 100^2 bytes a pair
    seen = []
    train = exponential.train_pairs
    monkeypatch.setattr(exponential, "thread_count", lambda n_jobs: 16)
    monkeypatch.setattr(exponential, "train_pairs", lambda *args: seen.append(args[-1]) or train(*args))
    for max_bytes in (80_000, 239_999, 2**40):
        ExponentialSVC(max_bytes=max_bytes).fit(X, y)
    assert seen == [1, 2, 16]
    with pytest.raises(
        ValueError,
        match=r"Classes 1 and 2 have 100 rows together; their Gram matrix takes 7\.45e-05 GiB, more than max_bytes "
        r"\(7\.45e-05 GiB\)\. Raise max_bytes where memory allows, or train on fewer rows of these classes",
    ):
        ExponentialSVC(max_bytes=79_999).fit(X, y)


def test_ctrl_c_starts_no_further_pair(monkeypatch):
    X, y, _ = data(8)
    started = []

    def slow_pair(*args):
        started.append(args)
        if len(started) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        return train(*args)

    train = _pairs.train_pair
    monkeypatch.setattr(_pairs, "train_pair", slow_pair)
    before = threading.active_count()
    model = ExponentialSVC(n_jobs=1)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert 3 <= len(started) < 8  # of 28
    assert threading.active_count() == before
    assert not hasattr(model, "dual_coef_")


def test_a_failing_pair_stops_the_others(monkeypatch):
    X, y, _ = data(8)
    started = []

    def broken_pair(*args):
        started.append(args)
        time.sleep(0.01)
        raise MemoryError

    monkeypatch.setattr(_pairs, "train_pair", broken_pair)
    with pytest.raises(MemoryError):
        ExponentialSVC(n_jobs=1).fit(X, y)
    assert len(started) < 8


def test_long_work_says_how_far_it_is(monkeypatch):
    X, y, _ = data(3)
    said = []

    @contextmanager
    def recorder(title):
        yield lambda step: said.append(f"{title}: {step}")

    monkeypatch.setattr(_pairs, "steps", recorder)
    ExponentialSVC().fit(X, y)
    assert said == []
    monkeypatch.setattr(_pairs, "LONG_WORK", 30_000)
    ExponentialSVC().fit(X, y)
    assert said == [f"svelto ExponentialSVC: {n} of 3 pairs of classes" for n in (1, 2, 3)]


def test_one_warning_for_all_pairs():
    X, y, _ = data(4)
    with pytest.warns(ConvergenceWarning, match=r"stopped early \(max_iter=3\)") as caught:
        model = ExponentialSVC(max_iter=3).fit(X, y)
    assert len(caught) == 1
    assert model.fit_status_ == 1
    assert (model.n_iter_ == 3).all()
    assert caught[0].filename == __file__


# -- with the rest of svelto -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["exact", "taylor_tree", "sv_tree", "reduced_set"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_accelerate_reads_it(method, n_classes):
    X, y, Z = data(n_classes, n_rows=300)
    model = ExponentialSVC(gamma=GAMMA).fit(X, y)
    options = {} if method == "exact" else {"X": X, "agreement": 0.9, "random_state": 0, "oracle_rows": 2000}
    fast = svelto.accelerate(model, method=method, **options)
    assert fast.report.method == method
    assert fast.machine.source == "svelto ExponentialSVC"
    agreed = (fast.predict(Z) == model.predict(Z)).mean()
    assert agreed == 1.0 if method == "exact" else agreed >= 0.9


@pytest.mark.parametrize("n_classes", [2, 3])
def test_wrappers_are_read(n_classes):
    X, y, Z = data(n_classes)
    frame = pd.DataFrame(X, columns=list("abcde"))
    pipeline = make_pipeline(StandardScaler(), ExponentialSVC()).fit(frame, y)
    machine = check_same(pipeline, pd.DataFrame(Z, columns=list("abcde")))
    assert machine.scaling is not None
    assert list(machine.feature_names) == list("abcde")
    assert_array_equal(ExponentialSVC().fit(frame, y).feature_names_in_, list("abcde"))
    check_same(FrozenEstimator(ExponentialSVC().fit(X, y)), Z)
    calibrated = CalibratedClassifierCV(ExponentialSVC(), ensemble=False, cv=3).fit(X, y)
    fast = svelto.accelerate(calibrated, method="exact")
    assert_allclose(fast.predict_proba(Z), calibrated.predict_proba(Z), rtol=0, atol=1e-10)
    assert_array_equal(fast.predict(Z), calibrated.predict(Z))


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_grid_search(n_jobs):
    X, y, Z = data(3)
    grid = {"C": [0.1, 10.0], "gamma": ["scale", 5.0]}
    search = GridSearchCV(ExponentialSVC(n_jobs=1), grid, cv=3, n_jobs=n_jobs).fit(X, y)
    fast = svelto.accelerate(search, method="exact")
    assert_array_equal(fast.predict(Z), search.predict(Z))
    best = ExponentialSVC(**search.best_params_).fit(X, y)
    assert_array_equal(fast.machine.dual_coef, read(best).dual_coef)


def test_pickles_without_the_engine():
    X, y, Z = data(3)
    model = ExponentialSVC().fit(X, y)
    fresh = len(pickle.dumps(model))
    expected = model.decision_function(Z)
    assert len(pickle.dumps(model)) == fresh
    copy = pickle.loads(pickle.dumps(model))
    assert_array_equal(copy.decision_function(Z), expected)
    assert len(model._predictors) == 1  # dumping took nothing from the original
    assert not hasattr(clone(model), "classes_")
    pickle.loads(pickle.dumps(ExponentialSVC(C=2.0)))


def test_a_second_fit_forgets_the_first():
    X, y, Z = data(3)
    model = ExponentialSVC().fit(X, y)
    model.predict(Z)
    model.fit(X[:, :4], y == 0)
    assert_array_equal(model.predict(Z[:, :4]), slow_predict(read(model), Z[:, :4]))
    assert model.predict(Z[:, :4]).dtype == bool


# -- conventions -----------------------------------------------------------------------------------------------------

# SVC shares both reasons; the test below takes them away and lets every check pass.
_NOT_EQUIVALENT = "gamma='scale' looks at all rows of X, also those of weight 0, and the solver stops at tol=1e-3"


@pytest.mark.parametrize("model", [ExponentialSVC(), ExponentialSVC(gamma=1.0, tol=1e-12)], ids=str)
def test_scikit_learns_checks(model):
    expected = {}
    if model.gamma == "scale":
        names = ("dense", "sparse")
        expected = {f"check_sample_weight_equivalence_on_{name}_data": _NOT_EQUIVALENT for name in names}
    results = check_estimator(model, expected_failed_checks=expected, on_skip=None)
    odd = {result["check_name"]: result["status"] for result in results if result["status"] != "passed"}
    # Array API input is checked only where the environment variable SCIPY_ARRAY_API is set.
    odd.pop("check_array_api_input", None)
    assert odd == dict.fromkeys(expected, "xfail")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"C": 0}, "C is 0; expected a positive number."),
        ({"tol": -1.0}, "tol is -1.0; expected a positive number."),
        ({"gamma": "wide"}, "gamma is 'wide'; expected 'scale', 'auto' or a number >= 0."),
        ({"gamma": -0.5}, "gamma is -0.5; expected 'scale', 'auto' or a number >= 0."),
        ({"gamma": np.nan}, "gamma is nan; expected 'scale', 'auto' or a number >= 0."),
        ({"gamma": None}, "gamma is None; expected 'scale', 'auto' or a number >= 0."),
        ({"decision_function_shape": "ovx"}, "decision_function_shape is 'ovx'; expected one of 'ovr', 'ovo'."),
        ({"break_ties": 1}, "break_ties is 1; expected True or False."),
        ({"break_ties": True, "decision_function_shape": "ovo"}, "ties are broken in shape 'ovr' only."),
        ({"max_iter": 0}, "max_iter is 0; expected a whole number of at least 1, or -1 for no limit."),
        ({"max_bytes": 1.5}, "max_bytes is 1.5; expected a whole number of at least 1."),
        ({"n_jobs": 0}, "n_jobs is 0; expected None, a positive number, or -1 for all threads."),
        ({"tol": 2.5}, "no support vectors: training stopped before its first step (tol=2.5, max_iter=-1)."),
        ({"class_weight": {0: 0.0}}, "class_weight is 0.0 for class 0; expected a positive number."),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    X, y, _ = data(3)
    model = ExponentialSVC(**parameters)
    assert {name: model.get_params()[name] for name in parameters} == parameters  # stored untouched
    with pytest.raises(ValueError, match=re.escape(message)):
        model.fit(X, y)


def test_bad_rows_are_named():
    X, y, Z = data(3)
    model = ExponentialSVC()
    with pytest.raises(NotFittedError, match="ExponentialSVC instance is not fitted yet"):
        model.predict(Z)
    with pytest.raises(NotFittedError, match=r"ExponentialSVC is not fitted: it has no dual_coef_"):
        svelto.accelerate(model, method="exact")
    with pytest.raises(ValueError, match=r"y holds 1 class \(0\); expected at least two classes"):
        model.fit(X, np.zeros(len(X), dtype=int))
    with pytest.raises(ValueError, match="No row of class 1 has a positive sample_weight"):
        model.fit(X, y, sample_weight=(y != 1).astype(float))
    with pytest.raises(ValueError, match=r"which overflows; scale the features first"):
        model.fit(X * 1e200, y)
    model.fit(X, y)
    with pytest.raises(ValueError, match="X has 3 features, but ExponentialSVC is expecting 5 features"):
        model.predict(Z[:, :3])
    Z[2, 1] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        model.decision_function(Z)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        model.fit(Z[:150], y)


def test_the_example_runs():
    results = doctest.testmod(exponential)
    assert results.attempted == 7
    assert results.failed == 0


# -- the papers' letters ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(
    not Path(os.environ.get("SVELTO_DATA", "")).joinpath("letter.scale.bz2").exists(), reason="SVELTO_DATA is not set"
)
def test_letter():
    """C and gamma by 3-fold cross-validation on 5,000 training rows (C 1 to 64, gamma 0.25 to 2)."""
    letter = svelto.datasets.load("letter.scale")
    model = ExponentialSVC(C=16.0, gamma=0.5, max_bytes=2**26).fit(letter.X_train, letter.y_train)
    assert model.fit_status_ == 0
    assert len(model.intercept_) == 325
    assert model.score(letter.X_test, letter.y_test) > 0.97
    assert_array_equal(model.predict(letter.X_test), slow_predict(read(model), letter.X_test))
    part = np.random.default_rng(0).choice(len(letter.y_train), 3000, replace=False)
    X, y = letter.X_train[part], letter.y_train[part]
    svc = SVC(kernel="precomputed", C=16.0).fit(np.exp(-0.5 * np.sqrt(_sq_distances(X))), y)
    assert_same_machine(ExponentialSVC(C=16.0, gamma=0.5).fit(X, y), svc, rtol=1e-6)


def _sq_distances(X):
    """Feature by feature: rows minus rows at once would take gigabytes."""
    total = np.zeros((len(X), len(X)))
    for column in X.T:
        total += (column[:, None] - column) ** 2
    return total
