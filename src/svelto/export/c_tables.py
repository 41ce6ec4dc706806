"""Arrays as C text, and the grids on which numbers are rounded to 8 or 16 bits.

Two kinds of matrices are rounded, each as its use asks for:

    vectors   v[i][k] = step[k] q[i][k]                a step for each feature: what distances need
    rows      w[i][k] = row[i] column[k] q[i][k]       weights of dot products: the column's step goes to the input
                                                       once, the row's to the product once, the loop has neither

With ``dtype="float32"`` numbers are single floats and there are no steps. Every kind comes with its `rounded` values,
in float64: exactly what the C code computes with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from svelto._typing import FloatArray

Dtype: TypeAlias = Literal["float32", "int16", "int8"]
DTYPES: Final = ("float32", "int16", "int8")
LARGEST: Final = {"int16": 32767, "int8": 127}
C_TYPES: Final = {
    "float32": "float",
    "float64": "double",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
}
# Stands for infinity: C code compares with it, and no score of a machine in single precision reaches it.
HUGE: Final = 3.0e38
LINE: Final = 110


@dataclass(frozen=True)
class Table:
    """One ``static const`` array.

    Attributes
    ----------
    name : str
        Its name in C.
    values : ndarray
        Numbers of one of `C_TYPES`, any shape.
    comment : str
        What it holds.
    """

    name: str
    values: np.ndarray[Any, Any]
    comment: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes in flash."""
        return int(self.values.nbytes)

    def text(self) -> str:
        """The definition in C."""
        kind = C_TYPES[str(self.values.dtype)]
        numbers = _texts(self.values.ravel())
        comment = f"/* {self.comment} */\n" if self.comment else ""
        return f"{comment}static const {kind} {self.name}[{len(numbers)}] = {{\n{_lines(numbers)}\n}};\n"


@dataclass(frozen=True)
class Matrix:
    """A matrix in C: its tables, how code gets at it, and the numbers that it stands for.

    Attributes
    ----------
    tables : list of Table
        Arrays.
    macro : str
        Definition of ``name_AT(i, k)``, an element (vectors), or of ``name_DOT(i, t)``, a product (rows).
    rounded : ndarray
        Its values in float64.
    column : str or None
        Of rows: the table that an input is multiplied with first.
    """

    tables: list[Table]
    macro: str
    rounded: FloatArray
    column: str | None = None


def floats(name: str, values: Any, comment: str = "") -> Table:
    """A table of single floats; infinite numbers become `HUGE`."""
    values = np.clip(np.asarray(values, dtype=np.float64), -HUGE, HUGE)
    return Table(name, values.astype(np.float32), comment)


def whole(name: str, values: Any, comment: str = "", *, signed: bool = True) -> Table:
    """A table of whole numbers in the smallest type that holds them."""
    values = np.asarray(values)
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    kinds = (np.int8, np.int16, np.int32) if signed or low < 0 else (np.uint8, np.uint16, np.int32)
    kind = next(k for k in kinds if np.iinfo(k).min <= low and high <= np.iinfo(k).max)
    return Table(name, values.astype(kind), comment)


def single(values: Any) -> FloatArray:
    """What is left of numbers in single precision, as float64."""
    return np.clip(np.asarray(values, dtype=np.float64), -HUGE, HUGE).astype(np.float32).astype(np.float64)


def vectors(real: str, name: str, values: FloatArray, dtype: Dtype, comment: str = "") -> Matrix:
    """A matrix (n, d) whose elements code asks for one by one, with a step for each column."""
    d = values.shape[1]
    access = f"{name}[(i) * {d} + (k)]"
    head = f"#define {name}_AT(i, k)"
    if dtype == "float32":
        return Matrix([floats(name, values, comment)], f"{head} (({real}){access})\n", single(values))
    numbers, step = _on_grid(values, np.abs(values).max(axis=0), dtype)
    tables = [Table(name, numbers, comment), floats(f"{name}_step", step)]
    macro = f"{head} (({real}){name}_step[k] * ({real}){access})\n"
    return Matrix(tables, macro, numbers.astype(np.float64) * step)


def rows(real: str, name: str, values: FloatArray, dtype: Dtype, comment: str = "") -> Matrix:
    """A matrix (n, d) whose rows are multiplied with inputs; the macro gives the product of row i with t."""
    d = values.shape[1]
    dot = real.removesuffix("REAL") + "dot"
    head = f"#define {name}_DOT(i, t) "
    product = f"{dot}(t, {name} + (i) * {d}, {d})"
    if dtype == "float32":
        return Matrix([floats(name, values, comment)], f"{head}{product}\n", single(values))
    column = _positive(np.abs(values).max(axis=0))
    relative = values / column
    numbers, row = _on_grid(relative.T, np.abs(relative).max(axis=1), dtype)
    numbers = np.ascontiguousarray(numbers.T)
    tables = [Table(name, numbers, comment), floats(f"{name}_row", row), floats(f"{name}_column", column)]
    macro = f"{head}(({real}){name}_row[i] * {product})\n"
    return Matrix(tables, macro, numbers * row[:, None] * column, f"{name}_column")


def _on_grid(values: FloatArray, size: FloatArray, dtype: Dtype) -> tuple[np.ndarray[Any, Any], FloatArray]:
    """Whole numbers of (n, d) values and the step of each of the d columns, whose largest number is `size`."""
    step = _positive(size / LARGEST[dtype])
    numbers = np.clip(np.rint(values / step), -LARGEST[dtype], LARGEST[dtype])
    return numbers.astype(dtype), step


def _positive(size: FloatArray) -> FloatArray:
    """Steps as single floats; 1 where there is nothing to measure."""
    step = single(size)
    return np.where(step > 0.0, step, 1.0)


def _texts(values: np.ndarray[Any, Any]) -> list[str]:
    if values.dtype.kind != "f":
        return [str(v) for v in values.tolist()]
    # Tables of a million numbers often hold few different ones.
    distinct, place = np.unique(values, return_inverse=True)
    suffix = "f" if values.dtype == np.float32 else ""
    texts = np.array([_float_text(v) + suffix for v in distinct], dtype=object)
    return list(texts[place])


def _float_text(value: Any) -> str:
    """The shortest digits that are read back as the same number."""
    text = str(value)
    if text.endswith(".0"):
        return text[:-1]
    return text if "." in text or "e" in text else text + "."


def _lines(numbers: list[str]) -> str:
    lines, line, length = [], list[str](), 0
    for number in numbers:
        if length + len(number) + 1 > LINE and line:
            lines.append(",".join(line))
            line, length = [], 0
        line.append(number)
        length += len(number) + 1
    lines.append(",".join(line))
    return ",\n".join(lines)
