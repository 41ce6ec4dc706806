"""Rows in, results out: the files the command line and the data sets are made of.

Reading: LIBSVM/svmlight text, CSV, NPY and NPZ (a dense array 'X', or a matrix saved by `scipy.sparse.save_npz`), each
of them plain or compressed with bz2, xz or gzip. What is returned is float64 and finite, as a CSR matrix where the file
is sparse. A file that cannot be read raises `ValueError` or `OSError` with its name, the place and what to do.

Writing: always to a temporary file beside the target, renamed at the end, so neither a reader nor Ctrl-C ever leaves
anyone with half a file.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import math
import os
import secrets
import shutil
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias, cast

import numpy as np
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from svelto._typing import FloatArray, Rows

PathName: TypeAlias = str | os.PathLike[str]

FORMATS = ("libsvm", "csv", "npy", "npz")
# Larger NPY files are mapped: float64 rows in C order are then read where they lie.
MAPPED_BYTES = 64 * 2**20
# Values that are checked at a time.
CHECKED_VALUES = 2**22
_OPENERS: dict[str, Callable[..., Any]] = {".bz2": bz2.open, ".xz": lzma.open, ".gz": gzip.open}
_DAMAGED = (EOFError, lzma.LZMAError, zlib.error)


class RowFile(NamedTuple):
    """Rows of one file; `y` is None where the file holds no labels."""

    X: Rows
    y: FloatArray | None
    name: str
    format: str


def read_rows(path: PathName, file_format: str | None = None, *, zero_based: bool = False) -> RowFile:
    """Read the rows of a file.

    Parameters
    ----------
    path : path
        The file.
    file_format : {"libsvm", "csv", "npy", "npz"}, optional
        Default: by suffix; a file with any other suffix, or none, is LIBSVM text.
    zero_based : bool, default=False
        LIBSVM text: keep feature numbers as column numbers. LIBSVM's precomputed kernels need it (``0:serial``).

    Returns
    -------
    RowFile
        LIBSVM text carries its labels, an NPZ file may carry them as 'y'.
    """
    path = Path(path)
    if file_format is None:
        file_format = format_of(path)
    elif file_format not in FORMATS:
        raise ValueError(f"Unknown format {file_format!r}. Expected one of {', '.join(FORMATS)}.")
    y: FloatArray | None = None
    if file_format == "libsvm":
        X, y = read_svmlight(path, zero_based=zero_based)
    elif file_format == "csv":
        X = _read_csv(path)
    elif file_format == "npy":
        X = _read_npy(path)
    else:
        X, y = _read_npz(path)
    if not sparse.issparse(X) and X.ndim != 2:
        raise ValueError(f"{path}: the array has shape {X.shape}; expected rows and columns, (n_samples, n_features).")
    if y is not None and y.shape != (X.shape[0],):
        raise ValueError(f"{path}: 'y' has shape {y.shape}; expected one label for each of the {X.shape[0]} rows.")
    _check_finite(path, X)
    return RowFile(X, y, str(path), file_format)


def format_of(path: PathName) -> str:
    """Say which format a file name stands for, a compressor's suffix aside."""
    path = Path(path)
    suffix = Path(path.stem).suffix if path.suffix in _OPENERS else path.suffix
    return suffix[1:] if suffix in (".csv", ".npy", ".npz") else "libsvm"


def read_svmlight(
    path: PathName, *, n_features: int | None = None, zero_based: bool = False
) -> tuple[sparse.csr_matrix, FloatArray]:
    """Read LIBSVM text, ``label index:value ...`` on each line.

    Blank lines and ``#`` comments are skipped. `n_features` widens the matrix; an index beyond it is an error.

    Returns
    -------
    X : csr_matrix of float64
    y : ndarray
    """
    path = Path(path)
    try:
        with open_bytes(path) as file:
            X, y = load_svmlight_file(file, zero_based=zero_based)
    except (ValueError, OverflowError) as error:
        if isinstance(error, UnreadableFileError):
            raise
        raise UnreadableFileError(_explain(path, zero_based, str(error))) from None
    # An empty line list has no width of its own; scikit-learn reports one column.
    width = int(X.shape[1]) if X.nnz else 0
    if n_features is not None:
        if width > n_features:
            raise ValueError(
                f"{path}: feature number {width} occurs, but {n_features} features were expected. "
                "Is this another version of the file?"
            )
        width = n_features
    X = sparse.csr_matrix((X.data, X.indices, X.indptr), shape=(X.shape[0], max(width, 1)))
    return X, np.asarray(y, dtype=np.float64)


class UnreadableFileError(ValueError):
    """The contents of a file are damaged or not in the expected format."""


@contextlib.contextmanager
def open_bytes(path: PathName) -> Iterator[BinaryIO]:
    """Open a plain or compressed file for reading; damage found while reading names the file."""
    path = Path(path)
    opener = _OPENERS.get(path.suffix)
    if opener is None:
        with open(path, "rb") as plain:
            yield plain
        return
    try:
        with opener(path, "rb") as file:
            yield cast(BinaryIO, file)
    except (*_DAMAGED, OSError) as error:
        # bz2 and gzip report bad data as a bare OSError; a real one (missing, forbidden) has an errno.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise UnreadableFileError(
            f"{path}: the compressed data are damaged or cut short ({error}). Replace the file by a fresh copy."
        ) from None


def _explain(path: Path, zero_based: bool, reason: str) -> str:
    """Find the first bad line of LIBSVM text. Slow, and only used once the fast parser has given up."""
    expected = "expected 'label index:value index:value ...'"
    with open_bytes(path) as file:
        for number, raw in enumerate(file, start=1):
            words = raw.split(b"#", 1)[0].split()
            if not words:
                continue
            where, first = f"{path}, line {number}", 0 if zero_based else 1
            previous = first - 1
            if not _is_number(words[0]):
                return f"{where}: the label is {_shown(words[0])}; {expected} with a number as label."
            for word in words[1:]:
                index, colon, value = word.partition(b":")
                if index == b"qid":
                    continue
                if not colon or not index.isdigit() or not _is_number(value):
                    return f"{where}: {_shown(word)} is not a feature; {expected}."
                if int(index) < first:
                    return f"{where}: feature number {int(index)} occurs; feature numbers start at {first}."
                if int(index) <= previous:
                    return f"{where}: feature {int(index)} follows feature {previous}; feature numbers must increase."
                if int(index) >= 2**31 - 1:
                    return f"{where}: feature number {int(index)} is too large; expected less than {2**31 - 1}."
                previous = int(index)
    return f"{path}: not LIBSVM text ({reason}); {expected} on each line."


def _is_number(word: bytes) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _shown(word: bytes) -> str:
    """Quote a word of the file, even when the file is binary or one endless line."""
    text = word[:40].decode("utf-8", errors="replace")
    return repr(text + ("..." if len(word) > 40 else ""))


def _read_csv(path: Path) -> FloatArray:
    with open_bytes(path) as file:
        lines = file.read().decode("utf-8-sig", errors="replace").splitlines()
    if not lines or not lines[0].strip():
        raise UnreadableFileError(f"{path}: the first line is empty; expected comma-separated numbers.")
    first = lines[0].split(",")
    # A first line without a single number is a header.
    if not any(_is_number(word.strip().encode()) for word in first):
        lines = lines[1:]
    if not any(line.strip() for line in lines):
        return np.empty((0, len(first)))
    try:
        X = np.loadtxt(lines, delimiter=",", ndmin=2, comments=None, dtype=np.float64)
    except ValueError as error:
        reason = str(error).rstrip(".").split("; use")[0]  # NumPy goes on with advice on its own arguments
        raise UnreadableFileError(
            f"{path}: not a table of numbers ({reason}). Expected comma-separated numbers."
        ) from None
    return np.asarray(X, dtype=np.float64)


def _read_npy(path: Path) -> FloatArray:
    with open_bytes(path) as file:
        try:
            # Object arrays are pickles: reading one would run code from the file.
            if path.suffix not in _OPENERS and path.stat().st_size > MAPPED_BYTES:
                array: np.ndarray[Any, Any] = np.lib.format.open_memmap(path, mode="r")  # refuses object arrays too
            else:
                array = np.lib.format.read_array(file, allow_pickle=False)
        except ValueError as error:
            raise UnreadableFileError(f"{path}: not a readable NPY file ({error}).") from None
    return _as_floats(path, "the array", array)


def _read_npz(path: Path) -> tuple[Rows, FloatArray | None]:
    with open_bytes(path) as file:
        try:
            # A zip archive is read from its end; a compressed stream cannot seek there cheaply.
            with np.load(io.BytesIO(file.read()), allow_pickle=False) as archive:
                arrays = {key: archive[key] for key in archive.files} if hasattr(archive, "files") else {}
        except (ValueError, zipfile.BadZipFile, EOFError, zlib.error, TypeError) as error:
            raise UnreadableFileError(f"{path}: not a readable NPZ file ({error}).") from None
    y = _as_floats(path, "'y'", arrays["y"]) if "y" in arrays else None
    if "X" in arrays:
        return _as_floats(path, "'X'", arrays["X"]), y
    if "format" in arrays and "shape" in arrays:
        with open_bytes(path) as file:
            try:
                matrix = sparse.csr_matrix(sparse.load_npz(io.BytesIO(file.read())), dtype=np.float64)
                matrix.check_format(full_check=True)
            except (ValueError, KeyError, IndexError, NotImplementedError) as error:
                raise UnreadableFileError(f"{path}: the sparse matrix is not valid ({error}).") from None
        matrix.sum_duplicates()
        return matrix, y
    found = ", ".join(sorted(arrays)) or "nothing"
    raise UnreadableFileError(
        f"{path} holds {found}; expected an array named 'X', or a matrix saved by scipy.sparse.save_npz."
    )


def _as_floats(path: Path, what: str, array: np.ndarray[Any, Any]) -> FloatArray:
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{path}: {what} has dtype {array.dtype}; expected real numbers.")
    return np.ascontiguousarray(array, dtype=np.float64)


def _check_finite(path: Path, X: Rows) -> None:
    values = X.data if sparse.issparse(X) else X
    step = max(1, CHECKED_VALUES // max(1, math.prod(values.shape[1:])))
    for start in range(0, values.shape[0], step):
        finite = np.isfinite(values[start : start + step])
        if finite.all():
            continue
        if sparse.issparse(X):
            place = start + int(np.argmin(finite))
            row, column = int(np.searchsorted(X.indptr, place, side="right")) - 1, int(X.indices[place])
        else:
            row, column = (int(i) for i in np.unravel_index(int(np.argmin(finite)), finite.shape))
            row += start
        raise ValueError(
            f"{path}, row {row + 1}, column {column + 1}: the value is {X[row, column]}; "
            "every value must be a finite number. Fill in or drop missing values first."
        )


def fit_width(rows: RowFile, n_features: int) -> Rows:
    """Give rows exactly `n_features` columns.

    LIBSVM text leaves out zeros, so missing columns at the end are zeros, and further columns are dropped where they
    hold nothing else. Other formats state their width, and it must be the right one.
    """
    X, width = rows.X, rows.X.shape[1]
    if width == n_features:
        return X
    if rows.format != "libsvm":
        hint = " If one column holds the labels, remove it." if width == n_features + 1 else ""
        raise ValueError(f"The model was trained on {n_features} features; {rows.name} has {width} columns.{hint}")
    extra = np.flatnonzero((X.indices >= n_features) & (X.data != 0))
    if len(extra):
        row = int(np.searchsorted(X.indptr, extra[0], side="right"))
        raise ValueError(
            f"The model was trained on {n_features} features; {rows.name}, row {row}, has feature number "
            f"{int(X.indices[extra[0]]) + 1}. Use the data that belong to this model, or leave out "
            "--strict-width to count further features as svm-predict does (zero in every support vector)."
        )
    fitted = X.copy()
    fitted.resize((X.shape[0], n_features))
    return fitted


def compact_extra(X: Rows, n_features: int) -> Rows:
    """Close the gaps between the columns from `n_features` on, in their order.

    Such columns are zero in every support vector, so only their values count, not their numbers. A single feature with
    a number in the billions then costs one column, not billions.
    """
    if X.shape[1] <= n_features:
        return X
    extra, place = np.unique(X.indices[X.indices >= n_features], return_inverse=True)
    compact = X.copy()
    compact.indices[X.indices >= n_features] = n_features + place
    compact.resize((X.shape[0], n_features + len(extra)))
    return compact


@contextlib.contextmanager
def write_atomically(path: PathName, *, durable: bool = False) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` that takes its place when the block ends without an error.

    With `durable` its bytes are on the disk before it does, so that not even a power cut leaves half of it.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not stat.S_ISREG(target.stat().st_mode) and not target.is_dir():
        # A pipe or a device such as /dev/null cannot be replaced, and there is nothing to protect.
        with open(target, "wb") as device:
            yield device
        return
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder; expected the name of a file to write.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"The folder {target.parent} does not exist. Create it, or write somewhere else.")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        # Not tempfile: its files are private (0600), results should follow the user's umask.
        with open(temporary, "xb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
        if durable:
            _sync_folder(target.parent)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def _sync_folder(folder: Path) -> None:
    """Make the new name in a folder lasting; where a system has no such thing, the name is there all the same."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def write_results(
    file: BinaryIO, file_format: str, predictions: Any, probabilities: Any = None, labels: Any = None
) -> None:
    """Write predictions, one row of the input a line.

    With probabilities, the first column is the label and the others follow `labels`, in every format; LIBSVM text and
    CSV name them in a first line. LIBSVM text is what ``svm-predict`` writes, byte for byte: 17 digits without
    probabilities, 6 with them.
    """
    predictions = np.asarray(predictions)
    columns = None if probabilities is None else np.column_stack([predictions, probabilities])
    if columns is not None and file_format == "npy" and columns.dtype.kind != "f":
        raise ValueError("An NPY file holds no text beside numbers, and the labels are text. Write .csv, or use -b 0.")
    if file_format == "npy":
        np.save(file, predictions if columns is None else columns, allow_pickle=False)
        return
    comma, header = ("," if file_format == "csv" else " "), ""
    if columns is None:
        # A regressor may have several outputs.
        rows = (predictions[:, None] if predictions.ndim == 1 else predictions).tolist()
        body = "".join([comma.join([_word(value, ".17g") for value in row]) + "\n" for row in rows])
    else:
        names = [_word(label, ".17g") for label in np.asarray(labels).tolist()]
        header = ("label," if file_format == "csv" else "labels ") + comma.join(names) + "\n"
        digits = ".17g" if file_format == "csv" else "g"
        body = "".join(
            [
                comma.join([_word(label, digits), *(format(value, digits) for value in row)]) + "\n"
                for label, row in zip(predictions.tolist(), np.asarray(probabilities).tolist(), strict=True)
            ]
        )
    file.write((header + body).encode())


def _word(label: Any, digits: str) -> str:
    """A label in text: a number, or a word with quotes where it needs them."""
    if not isinstance(label, str):
        return format(float(label) if isinstance(label, bool) else label, digits)
    return f'"{label.replace(chr(34), chr(34) * 2)}"' if any(c in label for c in ' ,"\n\r') else label
