"""Every kind of query row gives the labels of its float64 values, and a row that cannot be read is named.

Rows are multiples of 1/8, which every dtype here holds exactly, so that labels and scores can be compared bit by bit.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

import svelto
from machines import random_machine, slack
from oracle import slow_decision_function, slow_predict
from svelto._inputs import check_rows, raise_bad_row

D = 6
MACHINE = random_machine("rbf", n_sv=60, d=D, n_classes=3, seed=3, decision_function_shape="ovo")
FAST = svelto.accelerate(MACHINE)


def rows(n=40, seed=0):
    return np.round(np.random.default_rng(seed).normal(size=(n, D)) * 12) / 8


def misaligned(X, offset=1):
    """The same numbers at an odd address, as a field of packed records is."""
    packed = np.zeros(
        len(X), dtype=np.dtype([("flag", np.uint8, (offset,)), ("x", X.dtype, (X.shape[1],))], align=False)
    )
    packed["x"] = X
    assert not packed["x"].flags.aligned or offset % X.itemsize == 0
    return packed["x"]


def strided(X):
    wide = np.full((2 * len(X), 3 * X.shape[1]), np.nan)
    wide[::2, ::3] = X
    return wide[::2, ::3]


def read_only(X):
    X = X.copy()
    X.flags.writeable = False
    return X


DENSE = {
    "float64": lambda X: X.copy(),
    "float32": lambda X: X.astype(np.float32),
    "float16": lambda X: X.astype(np.float16),
    "longdouble": lambda X: X.astype(np.longdouble),
    "big endian": lambda X: X.astype(">f8"),
    "big endian float32": lambda X: X.astype(">f4"),
    "Fortran": np.asfortranarray,
    "Fortran float32": lambda X: np.asfortranarray(X.astype(np.float32)),
    "strided": strided,
    "negative strides": lambda X: X[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": read_only,
    "misaligned": misaligned,
    "misaligned float32": lambda X: misaligned(X.astype(np.float32)),
    "odd row stride": lambda X: misaligned(X, offset=4),
    "matrix": np.matrix,
    "masked": np.ma.masked_array,
    "objects": lambda X: X.astype(object),
    "list": lambda X: X.tolist(),
    "list of arrays": list,
    "tuple of tuples": lambda X: tuple(map(tuple, X.tolist())),
    "DataFrame": pd.DataFrame,
    "DataFrame float32": lambda X: pd.DataFrame(X.astype(np.float32)),
    "DataFrame mixed": lambda X: pd.DataFrame(X).astype({0: np.float32, 3: object}),
    "DataFrame nullable": lambda X: pd.DataFrame(X).astype("Float64"),
}


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("n", [1, 40])  # the short way, and the full one
@pytest.mark.parametrize("kind", DENSE)
def test_dense_rows(kind, n):
    X = rows(n)
    given = DENSE[kind](X)
    before = np.array(given, dtype=np.float64)
    assert_array_equal(FAST.predict(given), slow_predict(MACHINE, X))
    assert_array_equal(FAST.decision_function(given), FAST.decision_function(X))
    assert_array_equal(np.array(given, dtype=np.float64), before)  # and the caller's rows are as they were


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "uint64", ">i4", "bool"])
@pytest.mark.parametrize("wrap", [np.asarray, pd.DataFrame, sparse.csr_matrix], ids=["array", "DataFrame", "csr"])
def test_whole_numbers(dtype, wrap):
    X = np.abs(np.round(rows() * 2)).astype(dtype)
    given = wrap(X if wrap is not sparse.csr_matrix else X.astype(np.dtype(dtype).newbyteorder("=")))
    expected = slow_predict(MACHINE, X.astype(np.float64))
    assert len(set(expected)) > 1
    assert_array_equal(FAST.predict(given), expected)
    assert given.shape == X.shape


def test_a_row_repeated_by_broadcasting():
    X = rows(1)
    for repeated in (np.broadcast_to(X, (500, D)), np.broadcast_to(X[:, :1], (500, D))):
        assert 0 in repeated.strides
        assert_array_equal(FAST.predict(repeated), slow_predict(MACHINE, repeated))


def test_rows_are_used_where_they_lie():
    for X in (rows(), rows().astype(np.float32), np.asfortranarray(rows()), strided(rows()), rows()[::-1]):
        assert np.shares_memory(check_rows(X, D), X)
    X = sparse.csr_matrix(rows())
    assert check_rows(X, D) is X


# -- sparse rows -----------------------------------------------------------------------------------------------------


def with_empty_rows(n=40):
    X = np.where(np.abs(rows(n)) > 1, rows(n), 0.0)
    X[::7] = 0.0
    return X


def duplicates(X):
    """Each stored element twice, at half its value: the sum counts, as everywhere in SciPy."""
    csr = sparse.csr_matrix(X)
    result = sparse.csr_matrix(X.shape)
    result.data, result.indices, result.indptr = np.repeat(csr.data / 2, 2), np.repeat(csr.indices, 2), csr.indptr * 2
    return result


def unsorted(X):
    csr = sparse.csr_matrix(X)
    for start, stop in zip(csr.indptr[:-1], csr.indptr[1:], strict=True):
        csr.data[start:stop], csr.indices[start:stop] = csr.data[start:stop][::-1], csr.indices[start:stop][::-1]
    result = sparse.csr_matrix((csr.data, csr.indices, csr.indptr), shape=X.shape)
    assert not result.has_sorted_indices
    return result


def wide_indices(X):
    csr = sparse.csr_matrix(X)
    csr.indices, csr.indptr = csr.indices.astype(np.int64), csr.indptr.astype(np.int64)
    return csr


def mixed_indices(X):
    csr = sparse.csr_matrix(X)
    csr.indptr = csr.indptr.astype(np.int64)
    return csr


def explicit_zeros(X):
    csr = sparse.csr_matrix(np.where(X == 0, 99.0, X))
    csr.data[csr.data == 99.0] = 0.0
    assert csr.nnz == X.size
    return csr


def strided_values(X):
    csr = sparse.csr_matrix(X)
    csr.data = np.repeat(csr.data, 2)[::2]
    return csr


SPARSE = {
    "csr": sparse.csr_matrix,
    "csr array": sparse.csr_array,
    "csr float32": lambda X: sparse.csr_matrix(X.astype(np.float32)),
    "csr longdouble": lambda X: sparse.csr_matrix(X.astype(np.longdouble)),
    "csc": sparse.csc_matrix,
    "csc array": sparse.csc_array,
    "coo": sparse.coo_matrix,
    "coo array": sparse.coo_array,
    "lil": sparse.lil_matrix,
    "dok": sparse.dok_array,
    "bsr": lambda X: sparse.bsr_matrix(X, blocksize=(1, 2)),
    "dia": sparse.dia_matrix,
    "duplicates": duplicates,
    "unsorted": unsorted,
    "int64 indices": wide_indices,
    "mixed indices": mixed_indices,
    "explicit zeros": explicit_zeros,
    "strided values": strided_values,
}
TEXT = random_machine("rbf", n_sv=60, d=D, n_classes=3, seed=3, as_csr=True, decision_function_shape="ovo")


@pytest.mark.parametrize("n", [1, 40])
@pytest.mark.parametrize("kind", SPARSE)
def test_sparse_rows(kind, n):
    X = with_empty_rows(n) if n > 1 else np.array([[0.0, 1.5, 0.0, -2.0, 0.25, 0.0]])
    given = SPARSE[kind](X)
    before = given.copy()
    for machine in (MACHINE, TEXT):
        fast = svelto.accelerate(machine)
        assert_array_equal(fast.predict(given), slow_predict(machine, X))
        error = np.abs(fast.decision_function(given) - slow_decision_function(machine, X))
        assert (error <= fast.score_bounds(given) + slack(machine)).all()
    for name in ("data", "indices", "indptr", "row", "col"):
        if hasattr(before, name):
            assert_array_equal(getattr(given, name), getattr(before, name))


# -- numbers that are not finite ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("wrap", [np.asarray, np.asfortranarray, sparse.csr_matrix, sparse.csc_array, pd.DataFrame])
def test_the_first_bad_row_is_named(wrap, dtype, bad):
    for n, at in ((1, 0), (16, 9), (17, 16), (3000, 1234)):
        X = rows(n).astype(dtype)
        X[at, 4] = bad
        X[at:, 5] = np.nan  # further ones, later
        X[at + 1 :, 0] = np.inf
        message = (
            rf"X contains {bad} \(row {at}, column 4\); expected finite float64 numbers\. "
            r"Impute or drop rows with NaN or infinity before prediction\."
        )
        for ask in (FAST.predict, FAST.decision_function, FAST.score_bounds, FAST.work):
            with pytest.raises(ValueError, match=message):
                ask(wrap(X))


@pytest.mark.parametrize("wrap", [np.asarray, sparse.csr_matrix])
def test_the_first_bad_row_is_named_by_many_threads_and_parts(wrap, monkeypatch):
    monkeypatch.setattr("svelto.engines.exact.thread_count", lambda n_jobs: 8)
    monkeypatch.setattr("svelto.engines.exact.OPERATIONS_PER_THREAD", 1.0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, D))
    for per_call in (4e10, 1.0):  # all rows in one call, then 1,024 at a time
        monkeypatch.setattr("svelto.engines.exact.OPERATIONS_PER_CALL", per_call)
        for _ in range(10):
            bad = np.sort(1500 + rng.choice(2500, size=30, replace=False))
            Z = X.copy()
            Z[bad, 2] = np.nan
            with pytest.raises(ValueError, match=rf"X contains nan \(row {bad[0]}, column 2\)"):
                FAST.predict(wrap(Z))
            with pytest.raises(ValueError, match=rf"X contains nan \(row {bad[0]}, column 2\)"):
                FAST.decision_function(wrap(Z))


def test_numbers_beyond_float64():
    X = rows().astype(np.longdouble)
    X[3, 2] = np.longdouble("1e400")
    with pytest.raises(ValueError, match=r"X contains 1e\+400 \(row 3, column 2\); expected finite float64 numbers"):
        FAST.predict(X)


# -- damaged matrices --------------------------------------------------------------------------------------------------


def damaged(kind, name, at, value):
    X = kind(with_empty_rows())
    array = getattr(X, name).copy()
    array[at] = value
    setattr(X, name, array)
    return X


DAMAGES = [(kind, name, value) for kind in (sparse.csr_matrix, sparse.csc_matrix) for name in ("indptr", "indices")
           for value in (-1, 10_000)]  # fmt: skip
DAMAGES += [(sparse.coo_matrix, name, value) for name in ("row", "col") for value in (-1, 10_000)]
DAMAGES += [(sparse.bsr_matrix, name, value) for name in ("indptr", "indices") for value in (-1, 10_000)]


@pytest.mark.parametrize(("kind", "name", "value"), DAMAGES)
def test_damaged_sparse_matrices_do_not_reach_scipy(kind, name, value):
    for at in (0, 2, -1):
        with pytest.raises(
            ValueError, match=r"The sparse matrix X is damaged: its index arrays do not fit its shape \(40"
        ):
            FAST.predict(damaged(kind, name, at, value))


def test_index_arrays_of_wrong_length():
    X = sparse.csr_matrix(with_empty_rows())
    for name in ("indptr", "indices", "data"):
        short = X.copy()
        setattr(short, name, getattr(X, name)[:-1])
        with pytest.raises(ValueError, match=r"The sparse matrix X is damaged"):
            FAST.predict(short)


def test_columns_that_only_claim_to_be_sorted():
    """SciPy remembers that a matrix was sorted; whoever edits it afterwards is told by the native code."""
    X = sparse.csr_matrix(np.array([[1.0, 0, 0, 0, 0, 0], [1.0, 0, 0, 2.0, 0, 0]]))
    assert X.has_canonical_format
    X.indices[1:] = X.indices[1:][::-1].copy()
    with pytest.raises(
        ValueError, match=r"Row 1 of the sparse matrix X has column numbers out of order or outside 0\.\.5"
    ):
        FAST.predict(X)
    with pytest.raises(ValueError, match=r"Row 7 of the sparse matrix X has column numbers out of order"):
        raise_bad_row(X, 7, 2)
