"""KNNSVC: an SVM on the neighbours of every query."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_blobs, make_moons
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

import svelto
from svelto.kernels import Kernel
from svelto.training import knn_svc

X, Y = make_moons(500, noise=0.25, random_state=0)


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        ("rbf", {"gamma": 2.0}),
        ("linear", {"gamma": 1.0}),
        ("poly", {"gamma": 0.7, "degree": 2, "coef0": 1.0}),
        ("poly", {"gamma": 0.7, "degree": 3, "coef0": 0.0}),
    ],
)
def test_the_definition(kernel, options):
    """Equation 1: neighbours in feature space, an SVM on them, its answer."""
    train, labels, Z = X[:400], Y[:400], X[400:]
    machine = svelto.KNNSVC(k=40, kernel=kernel, C=4.0, tol=1e-6, **options).fit(train, labels)
    space = Kernel(kernel, gamma=options["gamma"], degree=options.get("degree", 3), coef0=options.get("coef0", 0.0))
    own = np.array([space(x[None], x[None])[0, 0] for x in train])
    expected = []
    for z in Z:
        rows = np.argsort(own - 2 * space(z[None], train)[0], kind="stable")[:40]
        if len(np.unique(labels[rows])) == 1:
            expected.append(2.0 * labels[rows[0]] - 1.0)
        else:
            svc = SVC(kernel=kernel, C=4.0, tol=1e-6, **options).fit(train[rows], labels[rows])
            expected.append(svc.decision_function(z[None])[0])
    assert_allclose(machine.decision_function(Z), expected, rtol=1e-3, atol=1e-3)


def test_all_rows_are_a_global_svm():
    blobs, labels = make_blobs(300, centers=4, cluster_std=3.0, random_state=0)
    machine = svelto.KNNSVC(k=200, gamma="scale", tol=1e-5).fit(blobs[:200], labels[:200])
    svc = SVC(tol=1e-5).fit(blobs[:200], labels[:200])
    assert_allclose(machine.decision_function(blobs[200:]), svc.decision_function(blobs[200:]), atol=1e-3)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_two_neighbours_are_the_nearest_neighbour(kernel):
    """With LIN or RBF kernels, k = 2 is the nearest-neighbour classifier (section 1.3)."""
    nearest = KNeighborsClassifier(1).fit(X[:400], Y[:400])
    machine = svelto.KNNSVC(k=2, kernel=kernel, C=1e6).fit(X[:400], Y[:400])
    assert_array_equal(machine.predict(X[400:]), nearest.predict(X[400:]))


def test_answers_do_not_depend_on_blocks_or_threads(monkeypatch):
    machine = svelto.KNNSVC(k=30).fit(X[:400], Y[:400])
    expected = machine.decision_function(X[400:])
    assert_array_equal(machine.set_params(n_jobs=1).decision_function(X[400:]), expected)
    monkeypatch.setattr(knn_svc, "BLOCK_NEIGHBOURS", 200)
    assert_array_equal(machine.decision_function(X[400:]), expected)


def test_weights_multiply_the_cost():
    weight = np.where(Y[:400] == 1, 10.0, 1.0)
    heavy = svelto.KNNSVC(k=60, C=0.1).fit(X[:400], Y[:400], weight)
    by_class = svelto.KNNSVC(k=60, C=0.1, class_weight={1: 10.0}).fit(X[:400], Y[:400])
    plain = svelto.KNNSVC(k=60, C=0.1).fit(X[:400], Y[:400])
    assert_array_equal(heavy.decision_function(X[400:]), by_class.decision_function(X[400:]))
    assert (heavy.predict(X[400:]) == 1).sum() > (plain.predict(X[400:]) == 1).sum()
