"""Arrays in the form that native code reads: contiguous, 64-byte aligned, padded to whole vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from svelto import _core


def aligned_zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """An array of zeros that starts at a multiple of 64 bytes."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, dtype=np.uint8)
    start = -memory.ctypes.data % 64
    zeros: np.ndarray[Any, Any] = memory[start : start + size].view(dtype).reshape(shape)
    return zeros


def aligned(values: Any, dtype: Any = None) -> np.ndarray[Any, Any]:
    """A C-contiguous copy that starts at a multiple of 64 bytes."""
    values = np.asarray(values)
    result = aligned_zeros(values.shape, values.dtype if dtype is None else dtype)
    with np.errstate(over="ignore", under="ignore"):
        result[...] = values
    return result


def as_aligned(values: np.ndarray[Any, Any], dtype: Any) -> np.ndarray[Any, Any]:
    """The array itself where native code can read it as it is, otherwise an aligned copy."""
    ready = values.dtype == dtype and values.flags.c_contiguous and values.ctypes.data % 64 == 0
    return values if ready else aligned(values, dtype)


def padded_width(d: int) -> int:
    """Width of a row of d floats, rounded up to whole lanes."""
    return -(-d // _core.TREE_LANES) * _core.TREE_LANES


def padded_rows(X: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Rows, or one row, as float32, padded with zeros."""
    result = aligned_zeros((*X.shape[:-1], padded_width(X.shape[-1])), np.float32)
    with np.errstate(over="ignore", under="ignore"):
        result[..., : X.shape[-1]] = X
    return result
