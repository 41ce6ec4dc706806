"""Weights of features: their definition, what they are good for, and what they must not break."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_blobs, make_moons
from sklearn.svm import SVC

import svelto
from svelto.training._local import metric
from svelto.training._local.metric import learn_weights


def noisy_moons(n, seed=0):
    """Two features that matter, and six that say nothing, louder."""
    X, y = make_moons(n, noise=0.15, random_state=seed)
    return np.hstack([X, np.random.default_rng(seed).normal(scale=1.5, size=(n, 6))]), y


def quiet(step, share=0.0):
    pass


def test_weights_are_the_size_of_local_normals(monkeypatch):
    X, y = noisy_moons(300)
    monkeypatch.setattr(metric, "ROUNDS", 1)
    monkeypatch.setattr(metric, "ROWS", 40)
    monkeypatch.setattr(metric, "NEIGHBOURHOODS", 50)
    weights = learn_weights(X, y.astype(np.int32), None, None, np.random.RandomState(0), 1, quiet)
    normals = []
    for centre in np.random.RandomState(0).permutation(300)[:50]:
        rows = np.argsort(((X - X[centre]) ** 2).sum(axis=1), kind="stable")[:40]
        if len(set(y[rows])) == 2:
            cost = 1.0 / X[rows].var(axis=0).sum()
            normals.append(SVC(kernel="linear", C=cost).fit(X[rows], y[rows]).coef_[0])
    size = np.sqrt(np.mean(np.square(normals), axis=0))
    assert_allclose(weights, size / size.max(), rtol=0.02)


def test_features_that_say_nothing_lose_their_voice():
    X, y = noisy_moons(4000)
    plain = svelto.LocalSVC(k=100, C=10.0, random_state=0).fit(X[:2000], y[:2000])
    learned = svelto.LocalSVC(k=100, C=10.0, metric="learned", random_state=0).fit(X[:2000], y[:2000])
    assert_array_equal(plain.feature_weights_, np.ones(8))
    assert learned.feature_weights_.max() == 1.0
    assert learned.feature_weights_[:2].min() > 5 * learned.feature_weights_[2:].max()
    assert learned.score(X[2000:], y[2000:]) > plain.score(X[2000:], y[2000:]) + 0.02


def test_it_is_the_same_as_weighing_the_rows_before():
    X, y = noisy_moons(900)
    learned = svelto.LocalSVC(k=60, metric="learned", probability=True, random_state=0).fit(X[:600], y[:600])
    draws = np.random.RandomState(0)
    weights = learn_weights(X[:600], y[:600].astype(np.int32), None, None, draws, None, quiet)
    assert_array_equal(learned.feature_weights_, weights)
    by_hand = svelto.LocalSVC(k=60, probability=True, random_state=draws).fit(X[:600] * weights, y[:600])
    assert_array_equal(learned.decision_function(X), by_hand.decision_function(X * weights))
    assert_array_equal(learned.predict_proba(X), by_hand.predict_proba(X * weights))
    assert learned.work(X) == by_hand.work(X * weights)
    # New rows are weighed as the first ones were.
    learned.set_params(random_state=1).partial_fit(X[600:], y[600:])
    by_hand.set_params(random_state=1).partial_fit(X[600:] * weights, y[600:])
    assert_array_equal(learned.decision_function(X), by_hand.decision_function(X * weights))
    assert_array_equal(learned.feature_weights_, weights)


@pytest.mark.parametrize("unit", [1e-4, 1e4])
def test_units_of_all_features_do_not_matter(unit):
    X, y = noisy_moons(600)
    weights = [
        learn_weights(rows, y.astype(np.int32), None, None, np.random.RandomState(0), 1, quiet)
        for rows in (X, X * unit)
    ]
    assert_allclose(weights[0], weights[1], rtol=0.05, atol=0.01)


def test_several_classes_weights_and_threads():
    X, y = make_blobs(600, centers=4, n_features=2, cluster_std=1.5, random_state=0)
    X = np.hstack([X, np.random.default_rng(0).normal(scale=5.0, size=(600, 3))])
    args = (X, y.astype(np.int32), np.ones(600), np.ones(4))
    weights = learn_weights(*args, np.random.RandomState(0), 1, quiet)
    assert weights[:2].min() > 3 * weights[2:].max()
    assert_array_equal(learn_weights(*args, np.random.RandomState(0), 2, quiet), weights)
    heavy = np.where(X[:, 4] > 0, 1.0, 1e-3)  # what half of the rows say counts little
    assert not np.array_equal(learn_weights(X, args[1], heavy, None, np.random.RandomState(0), 1, quiet), weights)


def test_where_no_neighbourhood_has_two_classes():
    X = np.vstack([np.zeros((300, 2)), np.full((300, 2), 9.0)]) + np.random.default_rng(0).normal(size=(600, 2))
    local = svelto.LocalSVC(k=50, metric="learned", random_state=0).fit(X, np.repeat([0, 1], 300))
    assert_array_equal(local.feature_weights_, np.ones(2))
    assert local.score(X, np.repeat([0, 1], 300)) == 1.0
