"""Rows of a wrong shape or type, with wrong column names, or spoilt on their way: what the caller is told."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from sklearn.svm import SVC

import svelto
from machines import random_machine
from sklearn_cases import data, product, thin

FAST = svelto.accelerate(random_machine("rbf", n_sv=60, d=6, n_classes=3))

# -- shapes and types --------------------------------------------------------------------------------------------------

MESSAGES = [
    (np.zeros((40, 4)), ValueError, r"The model was trained on 6 features; X has 4\."),
    (np.zeros((1, 5)), ValueError, r"The model was trained on 6 features; X has 5\."),
    (np.zeros((3, 7)), ValueError, r"The model was trained on 6 features; X has 7\."),
    (sparse.csr_matrix((3, 7)), ValueError, r"The model was trained on 6 features; X has 7\."),
    (pd.DataFrame(np.zeros((3, 5))), ValueError, r"The model was trained on 6 features; X has 5\."),
    (np.zeros((3, 0)), ValueError, r"The model was trained on 6 features; X has 0\."),
    (np.zeros((0, 6)), ValueError, r"X has no rows \(shape \(0, 6\)\); expected at least one row"),
    (sparse.csr_matrix((0, 6)), ValueError, r"X has no rows \(shape \(0, 6\)\)"),
    (pd.DataFrame(np.zeros((0, 6))), ValueError, r"X has no rows"),
    ([], ValueError, r"X is one-dimensional with 0 values; expected 2 dimensions\."),
    (
        np.zeros(6),
        ValueError,
        r"one-dimensional with 6 values; .* Use X\.reshape\(1, -1\) for a single row, X\.reshape",
    ),
    ([1.0, 2.0], ValueError, r"X is one-dimensional with 2 values"),
    (pd.Series(np.zeros(6)), ValueError, r"X is one-dimensional with 6 values"),
    (
        sparse.coo_array(np.ones(6)),
        ValueError,
        r"X is sparse with 1 dimension\(s\); expected 2, \(n_rows, n_features\)",
    ),
    (np.zeros((2, 3, 6)), ValueError, r"X has 3 dimension\(s\); expected 2, \(n_rows, n_features\)\."),
    (np.float64(3.0), ValueError, r"X has 0 dimension\(s\); expected 2"),
    (None, ValueError, r"X has 0 dimension\(s\); expected 2"),
    (
        np.zeros((2, 6), complex),
        ValueError,
        r"X has dtype complex128; complex data is not supported\. Pass real numbers",
    ),
    (sparse.csr_matrix((2, 6), dtype=complex), ValueError, r"X has dtype complex128; complex data is not supported"),
    (np.full((2, 6), 1j, dtype=object), ValueError, r"X has dtype object and an element that is no number \(.*complex"),
    (np.full((2, 6), "a"), ValueError, r"X has dtype <U1; expected real numbers\. Encode text and dates before"),
    (np.full((2, 6), "2020-01-01", dtype="M8[D]"), ValueError, r"X has dtype datetime64\[D\]; expected real numbers"),
    ([["1", "2"]], ValueError, r"X has dtype <U1; expected real numbers"),
    (
        np.full((2, 6), "a", dtype=object),
        ValueError,
        r"dtype object and an element that is no number \(could not convert",
    ),
    (pd.DataFrame([[1.0, "red"]]), ValueError, r"no number \(could not convert string to float: 'red'\)\. Encode text"),
    (
        pd.DataFrame([[1, None]] * 2, dtype="Int64"),
        ValueError,
        r"no number \(.*NAType.*missing values before prediction",
    ),
    (np.full((2, 6), None), ValueError, r"X contains nan \(row 0, column 0\)"),
    ("rows.csv", TypeError, r"X is a str; expected a matrix of numbers\."),
    (b"rows", TypeError, r"X is a bytes; expected a matrix of numbers\."),
    ([[1.0, 2.0], [3.0]], ValueError, r"X cannot be read as a matrix: .*inhomogeneous"),
    ({"a": 1.0}, ValueError, r"X has dtype object and an element that is no number"),
]


@pytest.mark.parametrize(("X", "error", "message"), MESSAGES, ids=[f"{i}" for i in range(len(MESSAGES))])
def test_messages(X, error, message):
    for ask in (FAST.predict, FAST.decision_function, FAST.score_bounds, FAST.work):
        with pytest.raises(error, match=message):
            ask(X)


# -- column names ----------------------------------------------------------------------------------------------------


def test_column_names():
    X, y, Z = data(3)
    names = list("abcde")
    model = SVC().fit(pd.DataFrame(X, columns=names), y)
    fast = svelto.accelerate(model)
    frame = pd.DataFrame(Z, columns=names)
    expected = model.predict(frame)
    assert_array_equal(fast.predict(frame), expected)
    assert_array_equal(fast.predict(Z), expected)  # no names, nothing to compare
    assert_array_equal(fast.predict(pd.DataFrame(Z)), expected)  # column numbers are no names
    with pytest.raises(ValueError, match=r"not those of the training data \(the same names in another order; pass X\["):
        fast.predict(frame[names[::-1]])
    with pytest.raises(ValueError, match=r"\(missing: e; not seen in training: z\)"):
        fast.predict(frame.rename(columns={"e": "z"}))
    with pytest.raises(ValueError, match=r"\(missing: a, b; not seen in training: none\)"):
        fast.predict(frame[names[2:]])
    with pytest.raises(ValueError, match=r"not seen in training: a0, a1, a2, a3, a4, \.\.\.\)"):
        fast.predict(frame.assign(**{f"a{i}": 0.0 for i in range(7)}))


# -- behind a scaler -------------------------------------------------------------------------------------------------


def test_a_row_that_the_scaler_makes_infinite():
    X, y, Z = data()
    model = make_pipeline(MaxAbsScaler(), SVC()).fit(thin(X) * 1e-9, y)
    fast = svelto.accelerate(model)
    assert fast.machine.scaling is not None
    for n, at in ((1, 0), (400, 123)):
        whole = Z[:n].copy()
        whole[at, 3] = 1e305
        for given in (whole, sparse.csr_matrix(whole)):
            with (
                np.errstate(over="ignore"),
                pytest.raises(ValueError, match=rf"Row {at} of X is not finite after the model's"),
            ):
                fast.predict(given)
        single = Z[:n].astype(np.float32)
        single[at, 3] = 1e35
        with (
            np.errstate(over="ignore"),
            pytest.raises(ValueError, match=rf"Row {at} of X is not finite after the model's"),
        ):
            fast.predict(single)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_bad_row_in_front_of_the_scaler(dtype, bad):
    X, y, Z = data()
    dense = svelto.accelerate(make_pipeline(StandardScaler(), SVC()).fit(X, y))
    thinned = svelto.accelerate(make_pipeline(MaxAbsScaler(), SVC()).fit(thin(X), y))
    Z = Z.astype(dtype)
    Z[6] = 0.0
    Z[7, 0] = bad
    for fast, given in ((dense, Z), (thinned, sparse.csr_matrix(Z))):
        with pytest.raises(ValueError, match=rf"X contains {bad} \(row 7, column 0\)"):
            fast.predict(given)


class Narrow(TransformerMixin, BaseEstimator):
    """A transformer that forgets columns after training."""

    keep = 5

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X[:, : self.keep]


def test_transformers_that_change_their_width(monkeypatch):
    X, y, Z = data()
    fast = svelto.accelerate(make_pipeline(Narrow(), SVC()).fit(X, y))
    fast.predict(Z)
    monkeypatch.setattr(Narrow, "keep", 3)
    with pytest.raises(ValueError, match=r"The model was trained on 5 features; X has 3\."):
        fast.predict(Z)


# -- kernels without native code -------------------------------------------------------------------------------------


def test_kernel_values_are_checked():
    X, y, Z = data()
    K = Z @ X.T
    fast = svelto.accelerate(SVC(kernel="precomputed").fit(X @ X.T, y))
    with pytest.raises(ValueError, match=r"The model was trained on 150 features; X has 149\."):
        fast.predict(K[:, 1:])
    K[5, fast.machine.support_vectors[0]] = np.nan
    with pytest.raises(ValueError, match=r"The kernel value of row 5 is not finite; expected finite numbers\."):
        fast.predict(K)
    columns = svelto.KernelMachine.from_arrays(kernel="precomputed", support_vectors=[3, 8], dual_coef=[1.0, -1.0])
    with pytest.raises(ValueError, match=r"X has 8 kernel values a row; the model needs 9\."):
        svelto.accelerate(columns).predict(np.zeros((2, 8)))


def test_objects_are_the_kernel_functions_business():
    X, y, Z = data()
    fast = svelto.accelerate(SVC(kernel=product).fit(X, y))
    with pytest.raises(ValueError, match=r"X has no rows; expected at least one to predict\."):
        fast.work(Z[:0])
    broken = svelto.KernelMachine.from_arrays(
        kernel=lambda A, B: np.ones((1, 1)), support_vectors=["a", "b"], dual_coef=[1, 2]
    )
    with pytest.raises(
        ValueError, match=r"returned an array of shape \(1, 1\) for 3 rows and 2 support vectors; expected \(3, 2\)"
    ):
        svelto.accelerate(broken).predict(["x", "y", "z"])
