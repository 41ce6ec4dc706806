"""A cascade whose parts are all native: one call from the first stage to the last row.

`cascade.Cascade` is the definition, stage by stage in Python. Between its stages it takes the interpreter's lock back,
which costs small batches more than their stages do, and threads that share a predictor wait for each other there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from svelto import _core
from svelto._inputs import Query, raise_bad_row
from svelto._typing import IntArray
from svelto.engines.exact import OPERATIONS_PER_CALL, OPERATIONS_PER_THREAD, PRECISION_CODES, ExactEngine
from svelto.engines.native_stage import pieces
from svelto.guard import Guard

if TYPE_CHECKING:
    from svelto.cascade import Cascade


class NativeCascade:
    """The labels of a cascade.

    Parameters
    ----------
    native : _core.Cascade
        The parts, put together.
    n_parts : int
        Number of stages, and one for the exact engine.
    """

    def __init__(self, native: Any, n_parts: int) -> None:
        self._native = native
        self._n_parts = n_parts
        # Label of an already checked float array of one row, on this thread; -1 where it cannot be read.
        self.answer_row = native.answer_row

    def labels(self, query: Query, n_jobs: int | None = None) -> tuple[IntArray, list[int]]:
        """Label of each row in vote order, and how many rows each stage and the exact engine settled."""
        out: IntArray = np.empty(query.rows.shape[0], dtype=np.int32)
        settled = np.zeros(self._n_parts, dtype=np.int64)
        for start, part, threads in pieces(query.rows, n_jobs, rows_per_thread=1):
            to = out[start : start + part.shape[0]]
            if sparse.issparse(part):
                found = self._native.labels_csr(part.data, part.indices, part.indptr, to, settled, threads)
            else:
                found = self._native.labels_dense(part, to, settled, query.scale, threads)
            if found[0] >= 0:
                raise_bad_row(query.rows, start + found[0], found[1])
        return out, settled.tolist()

    def predict_one_block(self, X: np.ndarray[Any, Any]) -> IntArray | None:
        """Labels of a small, already checked float array on this thread; None where a row cannot be read."""
        out: IntArray = np.empty(X.shape[0], dtype=np.int32)
        return out if self._native.answer_block(X, out) else None


def native_cascade(cascade: Cascade) -> NativeCascade | None:
    """The cascade in one piece; None where a part of it is Python's."""
    exact, guard = cascade.exact, cascade.guard
    parts: list[Any] = [getattr(stage, "native_part", None) for stage in cascade.stages]
    if type(exact) is not ExactEngine or not (guard is None or isinstance(guard, Guard)) or None in parts:
        return None
    operations = max(exact.operations(1), 1.0)
    native = _core.Cascade(
        parts,
        [float(t) for t in cascade.thresholds],
        [guard is not None and bool(getattr(stage, "guards_itself", False)) for stage in cascade.stages],
        None if guard is None else guard.native_part,
        exact.native_part,
        PRECISION_CODES[exact.first_tier],
        OPERATIONS_PER_THREAD / operations,
        max(OPERATIONS_PER_CALL / operations, 1024.0),
    )
    return NativeCascade(native, len(parts) + 1)
