"""Few sparse rows as a dense block: SciPy's own checks and conversions take longer than the answer to one row."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from scipy import sparse

from svelto import _core

CSR: Final = (sparse.csr_array, sparse.csr_matrix)
# Wider rows would take longer to write out than that saves.
MOST_FEATURES: Final = 4096

_FLOAT32, _FLOAT64, _INT32 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int32)


def spread_few(X: Any, most_rows: int, width: int | None) -> Any:
    """A few plain CSR rows, written out; None for any others, for which somebody else says what is wrong, if anything.

    Plain: `width` columns, at most `most_rows` rows, floats, 32-bit indices that are sorted and differ within a row.
    """
    if X.ndim != 2 or X.shape[1] != width or X.shape[1] > MOST_FEATURES or not 0 < X.shape[0] <= most_rows:
        return None
    data, indices, row_start = X.data, X.indices, X.indptr
    if (
        (data.dtype is not _FLOAT64 and data.dtype is not _FLOAT32)
        or indices.dtype is not _INT32
        or row_start.dtype is not _INT32
    ):
        return None
    for array in (data, indices, row_start):
        if array.ndim != 1 or not (array.flags.c_contiguous and array.flags.aligned):
            return None
    block = np.empty(X.shape, dtype=data.dtype)
    return block if _core.spread_rows(data, indices, row_start, block) else None
