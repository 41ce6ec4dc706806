"""Native stages of a cascade, asked piece by piece: dense or CSR rows, threads where they pay, bad rows named.

A native stage has `labels_dense`, `labels_csr`, `scores_dense` and `scores_csr`, which report how many rows were
settled, the first row that cannot be read (or -1), and what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from scipy import sparse

from svelto import _core
from svelto._inputs import Query, as_floats, raise_bad_row
from svelto._threads import thread_count
from svelto._typing import IntArray, Rows

# One native call answers at most this many rows, so that Ctrl-C is heard.
ROWS_PER_CALL: Final = 262_144
# Below this many rows a second thread costs more than it brings.
ROWS_PER_THREAD: Final = _core.STAGE_ROWS_PER_THREAD


def pieces(X: Rows, n_jobs: int | None, rows_per_thread: int = ROWS_PER_THREAD) -> Iterator[tuple[int, Rows, int]]:
    """First row, rows as floats, and threads of each call."""
    for start in range(0, X.shape[0], ROWS_PER_CALL):
        part = X if X.shape[0] <= ROWS_PER_CALL else X[start : start + ROWS_PER_CALL]
        useful = part.shape[0] // rows_per_thread + 1
        yield start, as_floats(part), 1 if useful == 1 else min(thread_count(n_jobs), useful)


def check_outcome(outcome: tuple[int, int, int], X: Rows, start: int) -> None:
    """Name the first row that could not be read."""
    if outcome[1] >= 0:
        raise_bad_row(X, start + outcome[1], outcome[2])


def stage_labels(native: Any, query: Query, caution: float, n_jobs: int | None) -> IntArray:
    """Labels in vote order where the score exceeds `caution` times its error scale, -1 elsewhere."""
    out: IntArray = np.empty(query.rows.shape[0], dtype=np.int32)
    for start, part, threads in pieces(query.rows, n_jobs):
        to = out[start : start + part.shape[0]]
        if sparse.issparse(part):
            outcome = native.labels_csr(part.data, part.indices, part.indptr, to, caution, threads)
        else:
            outcome = native.labels_dense(part, to, caution, query.scale, threads)
        check_outcome(outcome, query.rows, start)
    return out


def stage_scores(native: Any, query: Query, outputs: Sequence[Any], n_jobs: int | None) -> None:
    """Fill arrays, one entry a row, with everything the stage knows about the rows."""
    for start, part, threads in pieces(query.rows, n_jobs):
        to = [array[start : start + part.shape[0]] for array in outputs]
        if sparse.issparse(part):
            outcome = native.scores_csr(part.data, part.indices, part.indptr, *to, threads)
        else:
            outcome = native.scores_dense(part, *to, query.scale, threads)
        check_outcome(outcome, query.rows, start)


def stage_cautions(native: Any, query: Query, labels: IntArray, cautions: Any, n_jobs: int | None) -> None:
    """Fill in labels, and the caution below which each is given."""
    for start, part, threads in pieces(query.rows, n_jobs):
        to = [array[start : start + part.shape[0]] for array in (labels, cautions)]
        if sparse.issparse(part):
            outcome = native.caution_csr(part.data, part.indices, part.indptr, *to, threads)
        else:
            outcome = native.caution_dense(part, *to, query.scale, threads)
        check_outcome(outcome, query.rows, start)
