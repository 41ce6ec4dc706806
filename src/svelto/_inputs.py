"""Query rows: what the caller passes in, checked and brought into a form the engines read.

Dense rows come out as float32 or float64 arrays with any strides, sparse ones as canonical CSR. Nothing is copied that
can be used as it is. NaN and infinity are found by the native code on its way through the rows, not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
from scipy import sparse

from svelto._typing import FloatArray, Rows
from svelto.machine import KernelMachine

# Dense float64 rows that a method is built on; more are sampled down to this many bytes.
MOST_BUILD_BYTES: Final = 2 * 2**30


class BadRowError(ValueError):
    """A row that cannot be read: the message is for people, the number of the row for who asked about a part of rows.

    Attributes
    ----------
    row : int
        Its number in the rows that were given.
    fault : int
        1: not finite; 2: damaged indices.
    """

    def __init__(self, message: str, row: int, fault: int) -> None:
        super().__init__(message)
        self.row = row
        self.fault = fault

    def __reduce__(self) -> tuple[Any, ...]:
        return BadRowError, (self.args[0], self.row, self.fault)


class Query(NamedTuple):
    """Checked rows, and whether the machine's scaling is still to be applied to them."""

    rows: Rows
    scale: bool = False


def make_query(machine: KernelMachine, X: Any) -> Query:
    """Check rows and bring them to where the machine's kernel, or its scaling, takes over."""
    check_feature_names(X, machine)
    for step in machine.front:
        X = step.transform(X)
    if machine.kernel.name == "callable":
        return Query(check_objects(X))
    width = machine.n_features if not machine.front else None
    if machine.kernel.has_native_code and machine.front:
        width = machine.support_vectors.shape[1]
    rows = check_rows(X, width)
    if machine.kernel.name == "precomputed" and rows.shape[1] <= machine.support_vectors.max():
        needed = int(machine.support_vectors.max()) + 1
        raise ValueError(f"X has {rows.shape[1]} kernel values a row; the model needs {needed}.")
    if machine.scaling is None:
        return Query(rows)
    if machine.scaling.folds(rows):
        return Query(rows, scale=True)
    check_finite(rows, rows)
    # The scaler checks column names, which only a DataFrame still has.
    scaled = check_rows(machine.scaling.apply(X if hasattr(X, "columns") else rows), width)
    check_finite(scaled, rows)
    return Query(scaled)


def checked_rows(machine: KernelMachine, X: Any, name: str) -> Rows:
    """Checked rows with the machine's front and scaling applied."""
    try:
        query = make_query(machine, X)
        rows = query.rows
        check_finite(rows, rows)
        if query.scale:
            assert machine.scaling is not None
            scaled = machine.scaling(np.asarray(rows, dtype=np.float64))
            check_finite(scaled, rows)
            return scaled
    except ValueError as error:
        if name == "X":
            raise
        raise ValueError(f"{name}: {error}") from None
    return rows


def dense_sample(rows: Rows, seed: int) -> FloatArray:
    """Rows as dense float64, at random only as many as memory should hold."""
    most = max(2, MOST_BUILD_BYTES // (8 * rows.shape[1]))
    if rows.shape[0] > most:
        rows = rows[np.sort(np.random.default_rng(seed).choice(rows.shape[0], size=most, replace=False))]
    return np.ascontiguousarray(rows.toarray() if sparse.issparse(rows) else rows, dtype=np.float64)


def n_rows_of(rows: Rows) -> int:
    """Number of rows of a matrix, or of a sequence of objects."""
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)


def check_rows(X: Any, n_features: int | None) -> Rows:
    """Rows as a dense matrix of real numbers or a CSR matrix, of the right width.

    Raises
    ------
    ValueError, TypeError
        With the value that was wrong, what was expected, and what to do.
    """
    rows = _check_sparse(X) if sparse.issparse(X) else _check_dense(X)
    if rows.shape[0] == 0:
        raise ValueError(f"X has no rows (shape {rows.shape}); expected at least one row to predict.")
    if n_features is not None and rows.shape[1] != n_features:
        raise ValueError(f"The model was trained on {n_features} features; X has {rows.shape[1]}.")
    return rows


def check_objects(X: Any) -> Any:
    """Objects of any kind: only the kernel function knows what is right. They must be countable, and rows of slices."""
    if isinstance(X, (str, bytes)) or not (hasattr(X, "shape") or hasattr(X, "__len__")):
        raise TypeError(f"X is a {type(X).__name__}; expected a sequence of objects. Use [X] for a single one.")
    if sparse.issparse(X):
        X = X.tocsr()
    n = n_rows_of(X)
    if n == 0:
        raise ValueError("X has no rows; expected at least one to predict.")
    return X


def _check_sparse(X: Any) -> Any:
    if X.ndim != 2:
        raise ValueError(f"X is sparse with {X.ndim} dimension(s); expected 2, (n_rows, n_features).")
    _check_real(X.dtype)
    _check_structure(X)
    rows = X.tocsr() if X.format != "csr" else X
    rows = as_floats(rows)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    plain = all(array.flags.c_contiguous and array.flags.aligned for array in (rows.data, rows.indices, rows.indptr))
    if not plain or rows.indices.dtype != rows.indptr.dtype:
        rows = rows.copy()  # arrays put in by hand; those of a new matrix are contiguous, aligned and of one type
    return rows


def _check_structure(X: Any) -> None:
    """Refuse damaged index arrays before SciPy follows them: its conversions and sorts would write outside memory."""
    sound = True
    if X.format in ("csr", "csc", "bsr"):
        n_rows, n_columns = (n // b for n, b in zip(X.shape, getattr(X, "blocksize", (1, 1)), strict=True))
        n_lists, size = (n_columns, n_rows) if X.format == "csc" else (n_rows, n_columns)
        start = X.indptr
        sound = len(X.indices) == len(X.data) and len(start) == n_lists + 1 and start[0] == 0
        sound = (
            sound and bool((start[1:] >= start[:-1]).all()) and start[-1] <= len(X.data) and _inside(X.indices, size)
        )
    elif X.format == "coo":
        sound = all(_inside(at, size) for at, size in zip(X.coords, X.shape, strict=True))
    if not sound:
        raise ValueError(
            f"The sparse matrix X is damaged: its index arrays do not fit its shape {X.shape}. Build it again."
        )


def _inside(numbers: np.ndarray[Any, Any], size: int) -> bool:
    return len(numbers) == 0 or bool(numbers.min() >= 0 and numbers.max() < size)


def _check_real(dtype: np.dtype[Any]) -> None:
    if dtype.kind == "c":
        raise ValueError(f"X has dtype {dtype}; complex data is not supported. Pass real numbers.")
    if dtype.kind not in "fiub":
        raise ValueError(f"X has dtype {dtype}; expected real numbers. Encode text and dates before prediction.")


def _check_dense(X: Any) -> np.ndarray[Any, Any]:
    if isinstance(X, (str, bytes)):
        raise TypeError(f"X is a {type(X).__name__}; expected a matrix of numbers.")
    try:
        rows = np.asarray(X)
    except ValueError as error:
        raise ValueError(f"X cannot be read as a matrix: {error}") from None
    if rows.dtype.kind == "O":
        rows = _numbers_from_objects(rows)
    _check_real(rows.dtype)
    if rows.ndim == 1:
        raise ValueError(
            f"X is one-dimensional with {rows.shape[0]} values; expected 2 dimensions. "
            "Use X.reshape(1, -1) for a single row, X.reshape(-1, 1) for a single feature."
        )
    if rows.ndim != 2:
        raise ValueError(f"X has {rows.ndim} dimension(s); expected 2, (n_rows, n_features).")
    if not rows.dtype.isnative:
        rows = rows.astype(rows.dtype.newbyteorder("="))
    if rows.dtype.kind == "f" and not _strides_fit(rows):
        rows = rows.copy()  # not ascontiguousarray: that keeps rows that are contiguous but not aligned
    return rows


def _strides_fit(rows: np.ndarray[Any, Any]) -> bool:
    """Whether every stride is a whole number of elements, as the native code counts them."""
    return rows.flags.aligned and all(stride % rows.itemsize == 0 for stride in rows.strides)


def _numbers_from_objects(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    try:
        return rows.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"X has dtype object and an element that is no number ({error}). Encode text, dates and "
            "missing values before prediction."
        ) from None


def as_floats(rows: Rows) -> Rows:
    """float32 and float64 as they are, everything else as float64."""
    if rows.dtype in (np.float32, np.float64):
        return rows
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is named by `raise_bad_row`
        return rows.astype(np.float64)


def check_finite(rows: Rows, made_of: Rows) -> None:
    """Refuse rows with NaN or infinity; `made_of` are the rows they were computed from, which the message is about."""
    finite = np.isfinite(rows.data if sparse.issparse(rows) else rows)
    if not finite.all():
        at = int(np.flatnonzero(~finite)[0])
        row = int(np.searchsorted(rows.indptr, at, side="right")) - 1 if sparse.issparse(rows) else at // rows.shape[1]
        raise_bad_row(made_of, row, 1)


def check_feature_names(X: Any, machine: KernelMachine) -> None:
    """Refuse a DataFrame whose columns are not those of the training data, in their order."""
    expected, columns = machine.feature_names, getattr(X, "columns", None)
    if expected is None or columns is None:
        return
    names = np.asarray(columns, dtype=object)
    if not all(isinstance(name, str) for name in names) or np.array_equal(names, expected):
        return
    missing = [name for name in expected if name not in set(names)]
    unknown = [name for name in names if name not in set(expected)]
    if missing or unknown:
        detail = f"missing: {_some(missing)}; not seen in training: {_some(unknown)}"
    else:
        detail = "the same names in another order; pass X[list(model.feature_names_in_)]"
    raise ValueError(f"The columns of X are not those of the training data ({detail}).")


def _some(names: Sequence[str]) -> str:
    return (", ".join(names[:5]) + (", ..." if len(names) > 5 else "")) or "none"


def bad_row_error(rows: Rows, row: int, fault: int) -> BadRowError:
    """The first element of a row that the native code could not accept, by its name."""
    if fault == 2:
        return BadRowError(
            f"Row {row} of the sparse matrix X has column numbers out of order or outside 0..{rows.shape[1] - 1}. "
            "Build it again.",
            row,
            fault,
        )
    values = rows[[row]].toarray().ravel() if sparse.issparse(rows) else np.asarray(rows[row]).ravel()
    bad = np.flatnonzero(~np.isfinite(as_floats(values)))
    if len(bad):
        return BadRowError(
            f"X contains {values[bad[0]]!s} (row {row}, column {bad[0]}); expected finite float64 numbers. "
            "Impute or drop rows with NaN or infinity before prediction.",
            row,
            fault,
        )
    return BadRowError(f"Row {row} of X is not finite after the model's scaler.", row, fault)


def raise_bad_row(rows: Rows, row: int, fault: int) -> NoReturn:
    """Name the first element that the native code could not accept."""
    raise bad_row_error(rows, row, fault)
