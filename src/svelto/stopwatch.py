"""Times of engines on the same rows, in turns."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Final

import numpy as np

from svelto._inputs import Query, n_rows_of
from svelto._typing import Rows
from svelto.cascade import Cascade
from svelto.predictor import SHORT_ROWS
from svelto.sparse_block import CSR, spread_few

# Rows that are timed, and how often; one call takes at most so many rows of them.
TIMED_ROWS: Final = 8192
REPEATS: Final = 5
# Calls of a small batch: enough that a clock can see them.
LEAST_CALLS: Final = 64
# A pass that takes longer than this many seconds counts even if it is the first, and much longer ones are not repeated.
LONGEST_PASS: Final = 0.25
# Kernels in Python: rows that show how long a row takes, before a pass is made as long as that.
FIRST_OBJECTS: Final = 2


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
    short_way : bool
        Whether a predictor would ask engines about small batches without a query (`predict_one_block`).
    """

    def __init__(
        self,
        rows: Rows,
        batch_size: int | None,
        n_jobs: int | None,
        *,
        values: bool = False,
        short_way: bool = False,
    ) -> None:
        n = n_rows_of(rows)
        self.short_way = short_way
        size = min(batch_size or TIMED_ROWS, n)
        self.n_jobs = n_jobs
        self.values = values
        self.query = Query(rows[: min(max(TIMED_ROWS, size), n)])
        n_calls = max(1, min(n // size, LEAST_CALLS if size * LEAST_CALLS <= TIMED_ROWS else TIMED_ROWS // size))
        self.batches = [rows[i * size : (i + 1) * size] for i in range(n_calls)]
        self.n_rows = sum(n_rows_of(batch) for batch in self.batches)

    def shorten(self, engine: Any) -> None:
        """Take as many rows as an engine answers in a pass; for kernels in Python, which may take long."""
        begin = perf_counter()
        self._ask(engine, self.batches[0][:FIRST_OBJECTS])
        row = (perf_counter() - begin) / FIRST_OBJECTS
        most = max(int(LONGEST_PASS / max(row, 1e-9)), FIRST_OBJECTS)
        rows = self.query.rows[: min(most, self.n_rows)]
        size = min(n_rows_of(self.batches[0]), n_rows_of(rows))
        self.batches = [rows[start : start + size] for start in range(0, n_rows_of(rows), size)]
        self.query = Query(rows)
        self.n_rows = n_rows_of(rows)

    def times(self, engines: list[Any], repeats: int = REPEATS) -> list[float]:
        """Seconds of a row for each engine: medians of so many interleaved passes."""
        seconds: list[list[float]] = [[] for _ in engines]
        n_passes = repeats
        for turn in range(repeats + 1):
            if turn > n_passes and all(seconds):
                break
            for engine, taken in zip(engines, seconds, strict=True):
                begin = perf_counter()
                for batch in self.batches:
                    self._ask(engine, batch)
                spent = perf_counter() - begin
                if turn > 0 or spent > LONGEST_PASS:  # the first pass warms up, but a long one counts
                    taken.append(spent / self.n_rows)
                if spent > 4.0 * LONGEST_PASS:
                    n_passes = 0
        return [float(np.median(taken)) for taken in seconds]

    def _ask(self, engine: Any, batch: Rows) -> None:
        if self.values:
            engine.scores(Query(batch), self.n_jobs)
        elif self.short_way and n_rows_of(batch) <= SHORT_ROWS and isinstance(batch, np.ndarray):
            engine.predict_one_block(batch)
        elif (
            self.short_way
            and isinstance(batch, CSR)
            and isinstance(engine, Cascade)
            and (block := spread_few(batch, SHORT_ROWS, batch.shape[1])) is not None
        ):
            engine.predict_one_block(block)
        else:
            engine.labels(Query(batch), self.n_jobs)
