"""Times of engines on the same rows, in turns."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Final

import numpy as np

from svelto._inputs import Query, n_rows_of
from svelto._typing import Rows

# Rows that are timed, and how often; one call takes at most so many rows of them.
TIMED_ROWS: Final = 8192
REPEATS: Final = 5
# Calls of a small batch: enough that a clock can see them.
LEAST_CALLS: Final = 64
# A slow engine is timed on fewer rows: at most about this many seconds for a pass.
LONGEST_PASS: Final = 0.25


class Stopwatch:
    """Asks engines about rows in batches of one size.

    Parameters
    ----------
    rows : Rows
        Rows as the engines read them.
    batch_size : int, optional
        Rows of a call; default: all at once.
    n_jobs : int, optional
        Threads.
    values : bool
        Whether values are asked for; else labels are.
    """

    def __init__(self, rows: Rows, batch_size: int | None, n_jobs: int | None, *, values: bool = False) -> None:
        n = n_rows_of(rows)
        size = min(batch_size or TIMED_ROWS, n)
        self.n_jobs = n_jobs
        self.values = values
        self.query = Query(rows[: min(max(TIMED_ROWS, size), n)])
        n_calls = max(1, min(n // size, LEAST_CALLS if size * LEAST_CALLS <= TIMED_ROWS else TIMED_ROWS // size))
        self.batches = [rows[i * size : (i + 1) * size] for i in range(n_calls)]
        self.n_rows = sum(n_rows_of(batch) for batch in self.batches)

    def times(self, engines: list[Any]) -> list[float]:
        """Seconds of a row for each engine: medians of interleaved passes."""
        seconds: list[list[float]] = [[] for _ in engines]
        n_passes = REPEATS
        for turn in range(REPEATS + 1):
            if turn > n_passes:
                break
            for engine, taken in zip(engines, seconds, strict=True):
                begin = perf_counter()
                for batch in self.batches:
                    self._ask(engine, batch)
                spent = perf_counter() - begin
                if turn > 0 or spent > LONGEST_PASS:  # the first pass warms up, but a long one counts
                    taken.append(spent / self.n_rows)
                if spent > 4.0 * LONGEST_PASS:
                    n_passes = 1
        return [float(np.median(taken)) for taken in seconds]

    def _ask(self, engine: Any, batch: Rows) -> None:
        if self.values:
            engine.scores(Query(batch), self.n_jobs)
        elif n_rows_of(batch) == 1 and isinstance(batch, np.ndarray) and hasattr(engine, "predict_one_block"):
            engine.predict_one_block(batch)
        else:
            engine.labels(Query(batch), self.n_jobs)
