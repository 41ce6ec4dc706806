"""For the tests of the patch: small fitted SVMs, their answers with and without it, and what it did."""

import warnings

import numpy as np
import sklearn
from scipy import sparse
from sklearn.datasets import make_blobs
from sklearn.svm import SVC

import svelto
from svelto.patching import counts

METHODS = ("predict", "decision_function", "score_samples")


def data(n_classes=4, n_rows=240):
    X, y = make_blobs(n_rows, centers=n_classes, n_features=5, cluster_std=4.0, random_state=0)
    return X / 4, y


def fitted(estimator=None, n_classes=4, as_csr=False):
    X, y = data(n_classes)
    if as_csr:
        X = sparse.csr_matrix(np.where(np.abs(X) > 0.5, X, 0.0))
    estimator = sklearn.clone(SVC() if estimator is None else estimator)
    return estimator.fit(X[:150], y[:150]), X[150:]


def answers(estimator, X):
    return {name: getattr(estimator, name)(X) for name in METHODS if hasattr(estimator, name)}


def served(call):
    """Answer under the patch, and how many calls were compiled, served and passed."""
    before = counts()
    with svelto.patched():
        result = call()
    after = counts()
    return result, (after.compiled - before.compiled, after.served - before.served, after.passed - before.passed)


def assert_same_answers(got, expected):
    assert list(got) == list(expected)
    for name, values in expected.items():
        assert (got[name].dtype, got[name].shape) == (values.dtype, values.shape)
        if values.dtype.kind == "f":
            # Sums of some hundred terms of size C = 1.
            np.testing.assert_allclose(got[name], values, rtol=1e-9, atol=1e-11)
        else:
            np.testing.assert_array_equal(got[name], values)


def outcome(call):
    """Type and text of the error that a call raises, and its warnings."""
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        try:
            call()
            error = None
        except Exception as raised:
            error = (type(raised), str(raised))
    return error, [(note.category, str(note.message)) for note in noted]
