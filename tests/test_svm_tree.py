"""SVMTreeClassifier as a user meets it: scikit-learn's checks, what it learns, scales, searches and pipelines."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import svelto.training.hull_projection
import svelto.training.svm_tree
from svelto import SVMTreeClassifier
from svm_tree_cases import PAPER, moons, moons_tree, quick, scaled

# Checks that train ten times, on the same rows in ten sparse formats.
TEN_FORMATS = ("check_estimator_sparse_matrix", "check_estimator_sparse_array")
SMALL = {"n_folds": 2, "max_nodes": 2}
SMALLER = {"n_folds": 2, "max_nodes": 1, "greedy": 0, "tail_at": 1, "last": "class"}


@pytest.mark.filterwarnings(
    "ignore:.*chains ended with rows of both classes left:sklearn.exceptions.ConvergenceWarning"
)
@parametrize_with_checks(
    [
        SVMTreeClassifier(**SMALL),
        SVMTreeClassifier(tail=None, multi_class="ovr", probability=True, **SMALL),
    ]
)
def test_scikit_learns_checks(estimator, check):
    if check.func.__name__ in TEN_FORMATS:
        estimator = clone(estimator).set_params(**SMALLER)
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:.*chains ended with rows of both classes left:sklearn.exceptions.ConvergenceWarning"
)
@parametrize_with_checks([SVMTreeClassifier()])
def test_scikit_learns_checks_with_default_parameters(estimator, check):
    check(estimator)


# -- learning ----------------------------------------------------------------------------------------------------------


def test_a_linear_svm_ends_chains_where_it_is_better():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 60))
    y = (X[:, :20].sum(axis=1) + rng.normal(scale=2.0, size=2000) > 0).astype(int)
    paper = SVMTreeClassifier(**PAPER, random_state=0).fit(X[:400], y[:400])
    ours = SVMTreeClassifier(tail=None, random_state=0).fit(X[:400], y[:400])
    assert [node.solver for node in ours.nodes_] == ["l"]
    assert ours.score(X[400:], y[400:]) > paper.score(X[400:], y[400:])


def test_nodes_stay_where_no_plane_will_do():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (800, 2))
    y = (np.hypot(*X.T) < 0.6).astype(int)
    tree = SVMTreeClassifier(tail=None, random_state=0).fit(X[:500], y[:500])
    assert {"h", "c"} & {node.solver for node in tree.nodes_}
    assert tree.score(X[500:], y[500:]) > 0.9
    plain = SVC(kernel="linear").fit(X[:500], y[:500])
    assert tree.score(X[500:], y[500:]) > plain.score(X[500:], y[500:]) + 0.1


@pytest.mark.parametrize("scale", ["standard", "minmax"])
def test_scale_is_part_of_the_planes(scale):
    X, y = (part[:400] for part in moons())
    tree = quick(scale=scale, tail_loss=0.01).fit(X, y)
    stretched = quick(scale=scale, tail_loss=0.01).fit(X * [1024.0, 2.0**-7], y)  # powers of two change no digit
    assert tree.work(X)["settled"] > 0.1
    np.testing.assert_array_equal(tree.predict(X), stretched.predict(X * [1024.0, 2.0**-7]))
    np.testing.assert_allclose(scaled(tree, X), scaled(stretched, X * [1024.0, 2.0**-7]))
    if scale == "minmax":
        assert scaled(tree, X).min(axis=0).tolist() == [0.0, 0.0]
        assert scaled(tree, X).max(axis=0).tolist() == [1.0, 1.0]
    else:
        np.testing.assert_allclose(scaled(tree, X).std(axis=0), 1.0)
        np.testing.assert_allclose(scaled(tree, X).mean(axis=0), 0.0, atol=1e-12)


def test_rows_may_stay_as_they_are():
    X, y = (part[:600] for part in moons())
    tree = quick(scale=None).fit(X, y)
    np.testing.assert_array_equal(scaled(tree, X), X)
    assert tree.score(X, y) > 0.98


def test_constant_features_do_no_harm():
    X, y = (part[:500] for part in moons())
    padded = np.column_stack([X, np.full(len(X), 7.0), np.full(len(X), 1e-300)])
    for scale in ("standard", "minmax", None):
        np.testing.assert_array_equal(
            quick(scale=scale, tail_at=2).fit(padded, y).predict(padded),
            quick(scale=scale, tail_at=2).fit(X, y).predict(X),
        )


# -- beside other estimators -------------------------------------------------------------------------------------------


def test_searches_and_pipelines():
    X, y = (part[:600] for part in moons())
    search = GridSearchCV(quick(tail_at=2), {"greedy": [0, 1], "tail__C": [1.0, 10.0]}, cv=2).fit(X[:300], y[:300])
    assert search.best_score_ > 0.9
    pipe = make_pipeline(PolynomialFeatures(2), StandardScaler(), quick(tail=None))
    assert cross_val_score(pipe, X, y, cv=3).min() > 0.9


def test_fitting_again_forgets_the_first_tree():
    X, y = moons()
    tree = clone(moons_tree()).fit(X[:300], y[:300])
    assert hasattr(tree, "cv_open_share_")
    tree.set_params(tail=None).fit(*load_iris(return_X_y=True))
    assert not hasattr(tree, "cv_open_share_")
    assert tree.tail_ is None
    assert tree.n_features_in_ == 4


@pytest.mark.parametrize("module", [svelto.training.svm_tree, svelto.training.hull_projection])
def test_the_docstring_tells_the_truth(module):
    tested = doctest.testmod(module)
    assert tested.attempted > 0
    assert tested.failed == 0
