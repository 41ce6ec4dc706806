"""LocalSVC and KNNSVC: scikit-learn's checks, labels and rows of every kind, bad input, Ctrl-C."""

from __future__ import annotations

import warnings
from contextlib import contextmanager

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import svelto
from svelto.training import local as local_module

X, Y = make_blobs(300, centers=3, n_features=4, cluster_std=3.0, random_state=0)
LOCAL = svelto.LocalSVC(k=40, random_state=0)
BOTH = [LOCAL, svelto.KNNSVC(k=40)]


def expected_failures(estimator):
    """As for SVC, where a weight multiplies C; besides, k counts rows, whatever they weigh."""
    why = "a weight multiplies C, and a neighbourhood has k rows whatever they weigh"
    return {f"check_sample_weight_equivalence_on_{kind}_data": why for kind in ("dense", "sparse")}


@parametrize_with_checks(
    [svelto.LocalSVC(), svelto.LocalSVC(k=20, probability=True, vote=2, random_state=0), svelto.KNNSVC(k=20)],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="k is .*, but there are .* rows")
        check(estimator)


@pytest.mark.parametrize("estimator", BOTH, ids=lambda estimator: type(estimator).__name__)
def test_rows_and_labels_of_every_kind(estimator):
    expected = clone(estimator).fit(X, Y).decision_function(X)
    read_only = X.copy()
    read_only.setflags(write=False)
    names = np.array(["zero", "one", "two"])
    for rows in (X.tolist(), np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2], read_only, sparse.csc_matrix(X)):
        assert_array_equal(clone(estimator).fit(rows, Y).decision_function(rows), expected)
    shuffled = sparse.csr_matrix(X)
    for row in range(len(X)):  # unsorted CSR
        part = slice(*shuffled.indptr[row : row + 2])
        shuffled.indices[part], shuffled.data[part] = shuffled.indices[part][::-1], shuffled.data[part][::-1]
    shuffled.has_sorted_indices = False
    assert_array_equal(clone(estimator).fit(shuffled, Y).decision_function(shuffled), expected)
    words = clone(estimator).fit(X, np.array(["a", "b", "c"])[Y])
    assert_array_equal(words.predict(X), np.array(["a", "b", "c"])[expected.argmax(axis=1)])
    boolean = clone(estimator).fit(X, Y > 0)
    assert boolean.predict(X).dtype == bool
    assert boolean.decision_function(X).shape == (300,)
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    named = clone(estimator).fit(frame, names[Y])
    assert_array_equal(named.feature_names_in_, ["a", "b", "c", "d"])
    with pytest.raises(ValueError, match="feature names should match"):
        named.predict(frame.rename(columns={"a": "other"}))
    single = np.concatenate([clone(estimator).fit(X, Y).decision_function(X[i : i + 1]) for i in range(20)])
    assert_array_equal(single, expected[:20])


@pytest.mark.parametrize("estimator", BOTH, ids=lambda estimator: type(estimator).__name__)
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"k": 0}, ValueError, "k is 0; expected a whole number of at least 1"),
        ({"k": 2.5}, ValueError, "k is 2.5; expected a whole number"),
        ({"C": 0.0}, ValueError, "C is 0.0; expected"),
        ({"C": "1"}, ValueError, "C is '1'; expected"),
        ({"gamma": -1.0}, ValueError, "gamma is -1.0; expected"),
        ({"gamma": "wide"}, ValueError, "gamma is 'wide'; expected one of 'local', 'scale', 'auto'"),
        ({"kernel": "sigmoid"}, ValueError, "kernel is 'sigmoid'; expected one of 'rbf', 'linear', 'poly'"),
        ({"degree": 0}, ValueError, "degree is 0; expected"),
        ({"coef0": np.inf}, ValueError, "coef0 is inf; expected a finite number"),
        ({"neighbors": "nearby"}, ValueError, "neighbors is 'nearby'; expected one of"),
        ({"tol": 0.0}, ValueError, "tol is 0.0; expected"),
        ({"n_jobs": "all"}, (ValueError, TypeError), "n_jobs is 'all'"),
        ({"kernel": "poly", "neighbors": "kd_tree"}, ValueError, "needs a kernel of Euclidean order"),
    ],
)
def test_wrong_parameters(estimator, change, error, message):
    machine = clone(estimator).set_params(**change)
    with pytest.raises(error, match=message):
        machine.fit(X, Y)
    assert not hasattr(machine, "classes_")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": "all"}, "k is 'all'; expected a whole number of at least 1, or 'auto'"),
        ({"k_prime": 0}, "k_prime is 0; expected a whole number of at least 1"),
        ({"k_prime": 41}, "k_prime is 41 and k is 40; a centre covers rows of its own k"),
        ({"vote": 0}, "vote is 0; expected a whole number of at least 1"),
        ({"assign": "far"}, "assign is 'far'; expected one of 'neighbour', 'centre'"),
        ({"local_search": 1}, "local_search is 1; expected True or False"),
        ({"probability": "yes"}, "probability is 'yes'; expected True or False"),
        ({"max_iter": -2}, "max_iter is -2; expected a whole number of at least -1"),
    ],
)
def test_wrong_parameters_of_local_svc(change, message):
    with pytest.raises(ValueError, match=message):
        clone(LOCAL).set_params(**change).fit(X, Y)


@pytest.mark.parametrize("estimator", BOTH, ids=lambda estimator: type(estimator).__name__)
def test_bad_rows_and_labels(estimator):
    bad = X.copy()
    bad[7, 2] = np.nan
    for rows in (bad, sparse.csr_matrix(bad)):
        with pytest.raises(ValueError, match="NaN"):
            clone(estimator).fit(rows, Y)
    machine = clone(estimator).fit(X, Y)
    for rows in (bad, np.full((2, 4), np.inf)):
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            machine.predict(rows)
    with pytest.raises(ValueError, match=r"X has 3 features, but .* is expecting 4"):
        machine.predict(X[:, :3])
    with pytest.raises(ValueError, match="minimum of 1 is required"):
        machine.predict(X[:0])
    with pytest.raises(ValueError, match=r"y holds 1 class \(5\); expected at least two classes"):
        clone(estimator).fit(X, np.full(300, 5))
    with pytest.raises(ValueError, match=r"(weights are zero|non-zero number)"):
        clone(estimator).fit(X, Y, np.zeros(300))
    with pytest.raises(ValueError, match="Negative values in data passed to `sample_weight`"):
        clone(estimator).fit(X, Y, np.full(300, -1.0))
    with pytest.raises(NotFittedError):
        clone(estimator).predict(X)
    wide = sparse.csr_matrix((300, 10**8))
    with pytest.raises(ValueError, match=r"X is sparse with shape \(300, 100000000\).*Reduce the features"):
        clone(estimator).fit(wide, Y)
    with pytest.raises(ValueError, match=r"largest value is 1.53e\+161.*Scale the features"):
        clone(estimator).fit(X * 1e160, Y)


@pytest.mark.parametrize("estimator", BOTH, ids=lambda estimator: type(estimator).__name__)
def test_more_neighbours_than_rows(estimator):
    with pytest.warns(UserWarning, match="k is 1000, but there are 300 rows; every neighbourhood has them all"):
        machine = clone(estimator).set_params(k=1000).fit(X, Y)
    assert machine.k_ == 300
    assert_array_equal(machine.predict(X), clone(estimator).set_params(k=300).fit(X, Y).predict(X))


@pytest.mark.parametrize("estimator", BOTH, ids=lambda estimator: type(estimator).__name__)
def test_rows_of_weight_zero_are_left_out(estimator):
    weight = np.where(np.arange(300) % 3 == 0, 0.0, 1.0)
    weighted = clone(estimator).fit(X, Y, weight)
    assert_array_equal(
        weighted.decision_function(X), clone(estimator).fit(X[weight > 0], Y[weight > 0]).decision_function(X)
    )


@pytest.mark.parametrize("k", [5, 40])
def test_copies_by_the_thousand(k):
    rng = np.random.default_rng(0)
    rows = np.repeat([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], 2000, axis=0)
    labels = np.repeat([0, 1, 1], 2000)
    labels[rng.random(6000) < 0.1] ^= 1  # both labels on one point
    local = svelto.LocalSVC(k=k, C=1.0, random_state=0).fit(rows, labels)
    queries = np.array([[0.0, 0.0], [1.0, 0.0], [0.1, 0.9]])
    assert local.n_models_ == 3  # a centre covers its copies
    assert_array_equal(local.predict(queries), [0, 1, 1])  # the label that most of its copies have
    apart = svelto.LocalSVC(k=2500, C=1.0, random_state=0).fit(rows, labels)
    assert_array_equal(apart.predict(queries), [0, 1, 1])
    constant = svelto.LocalSVC(k=20, random_state=0).fit(np.zeros((100, 2)), np.arange(100) % 4 > 0)
    assert constant.predict(np.ones((1, 2))).tolist() == [True]


def test_two_rows():
    machine = svelto.LocalSVC(random_state=0).fit([[0.0], [1.0]], ["a", "b"])
    assert machine.predict([[-1.0], [2.0]]).tolist() == ["a", "b"]


def test_partial_fit_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="classes is None; the first call to partial_fit needs all labels"):
        clone(LOCAL).partial_fit(X, Y)
    with pytest.raises(ValueError, match=r"y holds 2, which is not among the classes \[0, 1\]"):
        clone(LOCAL).partial_fit(X, Y, classes=[0, 1])
    machine = clone(LOCAL).partial_fit(X[Y < 2], Y[Y < 2], classes=[0, 1, 2])
    assert machine.decision_function(X).shape == (300, 3)
    assert set(machine.predict(X)) <= {0, 1}
    expected = machine.decision_function(X)
    with pytest.raises(ValueError, match=r"classes is \[0, 1\]; earlier calls had \[0, 1, 2\]"):
        machine.partial_fit(X, Y, classes=[0, 1])
    with pytest.raises(ValueError, match=r"y holds [789], which is not among the classes"):
        machine.partial_fit(X, Y + 7)
    with pytest.raises(ValueError, match="X has 3 features"):
        machine.partial_fit(X[:, :3], Y)
    assert_array_equal(machine.decision_function(X), expected)  # nothing was half done
    assert set(machine.partial_fit(X[Y == 2], Y[Y == 2]).predict(X)) == {0, 1, 2}


def test_a_limit_of_steps_is_reported():
    with pytest.warns(ConvergenceWarning, match=r"\d+ of \d+ local SVMs stopped at max_iter=1; scale the"):
        clone(LOCAL).set_params(max_iter=1).fit(X, Y)


def test_ctrl_c_leaves_the_machine_as_it_was(monkeypatch):
    machine = clone(LOCAL).fit(X, Y)
    expected = machine.decision_function(X)
    told = []

    @contextmanager
    def interrupting(title):
        def tell(step, share=0.0):
            told.append(step)
            if "models trained" in step:
                raise KeyboardInterrupt

        yield tell

    monkeypatch.setattr(local_module, "bar", interrupting)
    with pytest.raises(KeyboardInterrupt):
        machine.fit(X[:200], Y[:200])
    assert any("rows covered" in step for step in told)
    assert_array_equal(machine.decision_function(X), expected)
    with pytest.raises(KeyboardInterrupt):
        machine.partial_fit(X, Y)
    assert_array_equal(machine.decision_function(X), expected)


def test_in_a_pipeline_a_search_and_a_file(tmp_path):
    search = GridSearchCV(make_pipeline(StandardScaler(), clone(LOCAL)), {"localsvc__k": [20, 60]}, cv=3).fit(X, Y)
    assert search.best_score_ > 0.8
    joblib.dump(search, tmp_path / "search.joblib")
    assert_array_equal(joblib.load(tmp_path / "search.joblib").predict(X), search.predict(X))
