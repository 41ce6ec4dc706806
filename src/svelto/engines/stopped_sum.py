"""A method that stops sums early, with the exact engine behind it: labels from the one, scores from the other.

The method gives a label or -1, and the kernel values it evaluated, for each row. Rows it leaves open go to the exact
engine, so every label is the float64 machine's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

from svelto._inputs import Query
from svelto._typing import FloatArray, IntArray
from svelto.engines.exact import ExactEngine, Precision, ValueEngine
from svelto.machine import KernelMachine


class StoppingMethod(Protocol):
    """What `StoppedSum` asks of a method."""

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""

    @property
    def classical_evaluations(self) -> int:
        """Kernel values a row when nothing stops."""

    def labels(self, query: Query, n_jobs: int | None = None) -> tuple[IntArray, NDArray[np.int64]]:
        """Labels in vote order, -1 where open, and the kernel values of each row."""


@dataclass
class StoppedTally:
    """Rows that the method settled, rows that the exact engine had to, and kernel values over all rows."""

    settled: int
    exact: int
    evaluations: int

    def work(self) -> dict[str, Any]:
        """What the rows cost."""
        n = self.settled + self.exact
        return {
            "rows": n,
            "stages": {"bounded": self.settled / n, "exact": self.exact / n},
            "kernel_evaluations_per_row": self.evaluations / n,
            "dot_products_per_row": 0.0,
        }


class StoppedSum:
    """An engine whose labels come from a method that stops early, and everything else from the exact engine."""

    def __init__(self, method: StoppingMethod, exact: ExactEngine | ValueEngine) -> None:
        self.method = method
        self.exact = exact

    machine = property(lambda self: self.exact.machine, doc="The machine it answers for.")
    level = property(lambda self: self.exact.level, doc="Instruction level of the exact engine.")
    first_tier = property(lambda self: self.exact.first_tier, doc="First tier of the exact engine.")
    score_tier = property(lambda self: self.exact.score_tier, doc="Precision of scores.")
    score_bound = property(lambda self: self.exact.score_bound, doc="Bound on the error of scores.")

    @property
    def nbytes(self) -> int:
        """Bytes of the method and of the exact engine."""
        return int(self.method.nbytes + self.exact.nbytes)

    def labels(self, query: Query, n_jobs: int | None = None) -> tuple[IntArray, StoppedTally]:
        """Label of each row in vote order (outliers: 1 or 0), and what it took."""
        labels, evaluations = self.method.labels(query, n_jobs)
        is_open = np.flatnonzero(labels < 0)
        machine: KernelMachine = self.machine
        if len(is_open):
            part = Query(_safe_indexing(query.rows, is_open), query.scale)
            labels[is_open] = self.exact.labels(part, n_jobs)[0]
            # What was evaluated before is in vain, so the row costs at least the whole sum.
            evaluations[is_open] = np.maximum(evaluations[is_open], machine.n_sv)
        return labels, StoppedTally(len(labels) - len(is_open), len(is_open), int(evaluations.sum()))

    def scores(self, query: Query, n_jobs: int | None = None, precision: Precision = "auto") -> FloatArray:
        """Scores (n_rows, n_scores) of the exact engine: a score needs the whole sum."""
        return self.exact.scores(query, n_jobs, precision)

    def bounded_scores(
        self, query: Query, n_jobs: int | None = None, precision: Precision = "auto"
    ) -> tuple[FloatArray, FloatArray]:
        """Scores of the exact engine, and the bound on the distance of each to the float64 machine's."""
        return self.exact.bounded_scores(query, n_jobs, precision)

    def work(self, query: Query, n_jobs: int | None = None) -> dict[str, Any]:
        """Share of rows settled early, and kernel values a row."""
        return self.labels(query, n_jobs)[1].work()
