"""The text of a LIBSVM model file, checked and turned into numbers.

Knows lines, words and counts; what they mean for a machine is `libsvm.py`. A file that was cut short or cannot be read
is refused with its name and line. Memory follows the bytes that are in the file, never a number that it merely claims.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterator
from typing import Final, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from svelto._typing import FloatArray, Rows

Lines: TypeAlias = Iterator[tuple[int, bytes]]

KEYS: Final = (
    *("svm_type", "kernel_type", "degree", "gamma", "coef0", "nr_class", "total_sv", "rho", "label", "probA", "probB"),
    *("prob_density_marks", "nr_sv", "coef"),
)
MAX_INT: Final = 2**31 - 1  # LIBSVM and ThunderSVM keep every whole number in a C int
AGAIN: Final = "Copy it or train again."
_SMALL_BYTES: Final = 8 << 20


class Header:
    """The header lines by key, and errors that name the file and the line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.entries: dict[str, tuple[int, list[str]]] = {}
        self.end = 0  # the last line read; the "SV" line once the header is complete

    def fail(self, where: int | str, text: str) -> NoReturn:
        line = self.entries[where][0] if isinstance(where, str) else where
        raise ValueError(f"{self.name}, line {line}: {text}")

    def words(self, key: str, count: int) -> list[str]:
        """Give the values of a key that must be there and must have that many of them."""
        if key not in self.entries:
            self.fail(self.end, f"the header ends without {key!r}; the file is damaged. {AGAIN}")
        words = self.entries[key][1]
        if len(words) != count:
            self.fail(key, f"{key} has {len(words)} value(s); expected {count}.")
        return words

    def choice(self, key: str, names: Collection[str]) -> str:
        (word,) = self.words(key, 1)
        if word not in names:
            self.fail(key, f"{key} is {_short(word)}; expected one of {', '.join(names)}.")
        return word

    def numbers(self, key: str, count: int) -> list[float]:
        words = self.words(key, count)
        for word in words:
            if not _is_number(word):
                self.fail(key, f"{key} holds {_short(word)}; expected a finite number.")
        return [float(word) for word in words]

    def whole(self, key: str, count: int, least: int) -> list[int]:
        """Whole numbers from `least` up that fit a C int; "3.0" counts as whole."""
        numbers = self.numbers(key, count)
        for number, word in zip(numbers, self.words(key, count), strict=True):
            if not number.is_integer() or not least <= number <= MAX_INT:
                self.fail(key, f"{key} holds {_short(word)}; expected a whole number from {least} to {MAX_INT}.")
        return [int(number) for number in numbers]


def _text(word: bytes) -> str:
    return word.decode("ascii", "backslashreplace")


def _short(word: str) -> str:
    """Quote a word in an error message; those of a binary file can be very long."""
    return repr(word if len(word) <= 40 else word[:40] + "...")


def _is_number(word: str) -> bool:
    try:
        return math.isfinite(float(word)) and "_" not in word  # 1_000 is a number to Python, not to LIBSVM
    except ValueError:
        return False


def read_header(name: str, lines: Lines) -> Header:
    """Read up to and including the "SV" line; the keys may come in any order."""
    header = Header(name)
    for number, line in lines:
        header.end = number
        words = [_text(word) for word in line.split()]
        if not words:
            continue
        key, values = words[0], words[1:]
        cut = not line.endswith(b"\n")
        if key not in KEYS and key != "SV" and not (cut and any(known.startswith(key) for known in KEYS)):
            known = ", ".join(KEYS)
            header.fail(number, f"unknown key {_short(key)}; this is no LIBSVM model. Expected one of {known}, SV.")
        if cut:
            break
        if key == "SV":
            if values:
                header.fail(number, f"{_short(values[0])} stands after 'SV'; expected the end of the line.")
            return header
        if key in header.entries:
            header.fail(number, f"{key} was already given on line {header.entries[key][0]}; expected it once.")
        if key == "coef" and not values:  # ThunderSVM's weight vector, on the next line
            values = [_text(word) for word in next(lines, (0, b""))[1].split()]
        header.entries[key] = (number, values)
        if key == "coef":
            header.numbers(key, len(values))
    if header.end == 0:
        raise ValueError(f"{name} is empty; expected a LIBSVM model.")
    raise ValueError(f"{name}, line {header.end}: the file ends before the 'SV' line; it was cut short. {AGAIN}")


def read_vectors(header: Header, lines: Lines, n_rows: int, *, precomputed: bool) -> tuple[FloatArray, Rows]:
    """Coefficients of shape (n_rows, n_sv), and the support vectors as the machine keeps them."""
    # Buffers that grow with the file, and C loops inside a line: 70 MB with 5 million pairs take 2 to 3 seconds.
    coef, values, indices, counts = array("d"), array("d"), array("q"), array("q")
    empty = 0
    for number, line in lines:
        words = line.replace(b":", b" : ").split()
        if not words:
            empty = empty or number  # harmless at the end of the file
            continue
        if empty:
            header.fail(empty, "the line is empty; expected a support vector.")
        if not line.endswith(b"\n"):
            # Without its line end the last number may have lost digits: 0.75 cut to 0.7 still looks right.
            header.fail(number, f"the line has no line end; the file was cut short. {AGAIN}")
        n_pairs, rest = divmod(len(words) - n_rows, 3)
        try:
            if rest or b"_" in line or words[n_rows + 1 :: 3].count(b":") != n_pairs:
                raise ValueError
            coef.extend(map(float, words[:n_rows]))
            indices.extend(map(int, words[n_rows::3]))
            values.extend(map(float, words[n_rows + 2 :: 3]))
        except (ValueError, OverflowError):
            header.fail(number, _explain(line, n_rows))
        counts.append(n_pairs)
    (total,) = header.whole("total_sv", 1, least=0)
    if len(counts) != total:
        header.fail("total_sv", f"total_sv is {total}, but {len(counts)} support vectors follow.")
    if total == 0:
        header.fail("total_sv", "total_sv is 0: the model has one answer for all. Train with other parameters.")
    dual_coef = np.frombuffer(coef).reshape(total, n_rows)
    for row, column in np.argwhere(~np.isfinite(dual_coef))[:1]:
        number = header.end + 1 + int(row)
        header.fail(number, f"the coefficient {dual_coef[row, column]} is not finite; expected finite numbers.")
    pairs = _Pairs(header, np.frombuffer(counts, np.int64), np.frombuffer(indices, np.int64), np.frombuffer(values))
    pairs.refuse(~np.isfinite(pairs.values), "expected a finite number.")
    return np.ascontiguousarray(dual_coef.T), pairs.columns() if precomputed else pairs.features()


def _explain(line: bytes, n_rows: int) -> str:
    """Say which word of a support vector's line cannot be read."""
    words = [_text(word) for word in line.split()]
    for word in (words + ["the end of the line"] * n_rows)[:n_rows]:
        if not _is_number(word):
            return f"found {_short(word)}; expected {n_rows} coefficient(s), finite numbers, first."
    for word in words[n_rows:]:
        index, _, value = word.partition(":")
        if not index.lstrip("+-").isdigit() or not _is_number(value):
            return f"found {_short(word)}; expected index:value."
        if len(index) > len(str(MAX_INT)):
            return f"found {_short(word)}; expected an index from 1 to {MAX_INT}."
    return f"expected {n_rows} coefficient(s) and index:value pairs, separated by spaces."


class _Pairs:
    """The index:value pairs of all support vectors, checked before an array of their width is made."""

    def __init__(
        self, header: Header, counts: NDArray[np.int64], indices: NDArray[np.int64], values: FloatArray
    ) -> None:
        self.header, self.counts, self.indices, self.values = header, counts, indices, values
        self.row = np.repeat(np.arange(len(counts)), counts)

    def refuse(self, bad: NDArray[np.bool_], text: str) -> None:
        """Fail at the first bad pair. Its line follows from its row: the rows stand on consecutive lines."""
        if bad.any():
            at = int(np.argmax(bad))
            pair = f"{self.indices[at]}:{self.values[at]:.17g}"
            self.header.fail(self.header.end + 1 + int(self.row[at]), f"found {pair}; {text}")

    def columns(self) -> NDArray[np.int64]:
        """Column numbers of a precomputed kernel."""
        for row in np.flatnonzero(self.counts != 1)[:1]:
            text = f"{self.counts[row]} index:value pairs; a precomputed kernel has one, '0:serial', on each line."
            self.header.fail(self.header.end + 1 + int(row), text)
        serial = self.values
        bad = (self.indices != 0) | (serial != np.floor(serial)) | (serial < 1) | (serial > MAX_INT)
        self.refuse(bad, f"a precomputed kernel has '0:serial' with a serial from 1 to {MAX_INT}.")
        return serial.astype(np.int64) - 1

    def features(self) -> Rows:
        """Feature rows, dense or CSR."""
        indices, row = self.indices, self.row
        self.refuse((indices < 1) | (indices > MAX_INT), f"expected an index from 1 to {MAX_INT}.")
        falls = np.diff(indices, prepend=0) <= 0
        self.refuse(falls & (np.diff(row, prepend=-1) == 0), "expected an index larger than the one before it.")
        if len(indices) == 0:
            self.header.fail(self.header.end + 1, "no support vector has a feature. Train on rows that have some.")
        shape = (len(self.counts), int(indices.max()))
        # Dense rows suit the engines best, so CSR must pay for itself: an array below 8 MiB is no burden, and CSR (12
        # bytes an entry) of a quarter filled array is not even 3 times smaller. The rule also bounds the dense array by
        # a small multiple of the file, whatever index the file claims.
        cells, filled = shape[0] * shape[1], int(np.count_nonzero(self.values))
        if 8 * cells > _SMALL_BYTES and 4 * filled < cells:
            matrix = sparse.csr_matrix((self.values, (row, indices - 1)), shape=shape)
            matrix.eliminate_zeros()
            return matrix
        dense = np.zeros(shape)
        dense[row, indices - 1] = self.values
        return dense
