"""Data and the comparison shared by the tests that read scikit-learn models."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from oracle import slow_decision_function, slow_predict
from svelto.machine import KernelMachine

read = KernelMachine.from_sklearn


def data(n_classes=2, n_rows=150, n_features=5, seed=0):
    """Overlapping clouds, so that many rows are support vectors and many scores are small."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_rows) % n_classes
    X = rng.normal(size=(n_rows, n_features))
    X[:, 0] += y
    X[:, 1] += y % 2
    return X, y, rng.normal(size=(400, n_features)) * 1.5


def thin(X):
    """The same rows as CSR with most entries zero."""
    return sparse.csr_matrix(np.where(X > 1.5, X, 0.0))


def check_same(model, Z, machine=None):
    """Oracle on the machine against scikit-learn: labels equal, scores close, input unchanged."""
    machine = machine or read(model)
    expected, got = model.predict(Z), slow_predict(machine, Z)
    # Terms cancel, so rounding grows with the sum of |coef|, not with the score.
    atol = 1e-12 * (1 + np.abs(machine.dual_coef).sum())
    if machine.task == "regression":
        assert got.shape == expected.shape
        assert_allclose(got, expected, rtol=1e-10, atol=atol)
        return machine
    assert got.dtype == expected.dtype
    assert_array_equal(got, expected)
    if hasattr(model, "decision_function"):
        assert_allclose(slow_decision_function(machine, Z), model.decision_function(Z), rtol=1e-10, atol=atol)
    return machine


def product(A, B):
    """A kernel function of matrices that can be pickled."""
    return A @ B.T
