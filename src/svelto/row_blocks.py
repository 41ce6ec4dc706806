"""Arrays that are too large to work on at once: a memory-mapped file may be larger than the memory.

Stages copy the rows that they leave open, scalers copy all rows, and numbers of rows take as much as narrow rows. All
that is small for a block of rows. Answers are those of one call, for they depend on the row alone; so are messages,
which name rows by their numbers in the whole array.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from svelto._collections import is_dask, map_rows
from svelto._inputs import BadRowError, bad_row_error
from svelto.machine import KernelMachine

# Bytes of a block as float64. Smaller arrays are answered in one call; larger blocks are not faster. Very wide rows
# make larger ones: so many rows keep two threads busy.
BLOCK_BYTES: Final = 64 * 2**20
LEAST_ROWS: Final = 512


def rows_of_a_block(n_features: int) -> int:
    """Rows that take `BLOCK_BYTES` as float64, at least `LEAST_ROWS`."""
    return max(LEAST_ROWS, BLOCK_BYTES // (8 * max(n_features, 1)))


def in_parts(machine: KernelMachine, X: Any) -> bool:
    """Whether rows are answered part by part: Dask collections, and large arrays.

    Transformers in front of a machine see all rows at once: what they make of one may depend on the others.
    """
    if is_dask(X):
        return True
    if not isinstance(X, np.ndarray) or X.ndim != 2 or machine.front or machine.kernel.name == "callable":
        return False
    return len(X) > rows_of_a_block(X.shape[1])


def answer_parts(predictor: Any, method: str, X: Any) -> Any:
    """Answers of one of a predictor's methods for rows that are `in_parts`."""
    if is_dask(X):
        return map_rows(predictor, method, X)
    ask, step = getattr(predictor, method), rows_of_a_block(X.shape[1])
    out: np.ndarray[Any, Any] | None = None
    for start in range(0, len(X), step):
        try:
            part = ask(X[start : start + step])
        except BadRowError as error:
            raise bad_row_error(X, start + error.row, error.fault) from None
        if out is None:
            out = np.empty((len(X), *part.shape[1:]), dtype=part.dtype)
        out[start : start + step] = part
    return out
