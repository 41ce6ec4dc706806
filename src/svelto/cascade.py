"""A cascade: stages answer what they are sure about, cheapest first, and the exact engine answers the rest.

A stage gives a score and an error scale for each row. The row is settled there if every score that could still change
the answer exceeds its error scale times the stage's threshold; otherwise it goes on. Thresholds are chosen and
checked in `calibrate`; a threshold of zero settles everything, an infinite one nothing. Rows that a guard marks are
settled by no stage. First stages may leave them open by themselves (`guards_itself`); the guard then looks only at what
these leave open.

Invariant: the answer for a row depends on the row alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np

from svelto import _core
from svelto._inputs import Query, n_rows_of
from svelto._threads import Counted, thread_count
from svelto._typing import FloatArray, IndexArray, IntArray
from svelto.engines.exact import ExactEngine, Precision, ValueEngine
from svelto.engines.packing import RULE_CODES, breaks_ties
from svelto.guard import Guard
from svelto.machine import KernelMachine
from svelto.native_cascade import NativeCascade, native_cascade
from svelto.open_rows import OpenRows

# Where the guard keeps no more than this share of the rows, the first stage reads all of them where they are, and its
# answers for those few are thrown away: copying the others would cost more (a tenth of a Taylor tree's time).
FEW_GUARDED: Final = 0.1

# Marks rows that must go straight to the exact engine, because no calibration row was like them.
Marker = Callable[[Query], np.ndarray[Any, np.dtype[np.bool_]]]


class Stage(Protocol):
    """An approximation that knows how wrong it may be."""

    name: str

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""

    def settle(self, query: Query, caution: float, n_jobs: int | None = None) -> IntArray:
        """Labels in vote order where it is sure, -1 elsewhere."""

    def scores(self, query: Query, n_jobs: int | None = None) -> tuple[FloatArray, FloatArray]:
        """Scores and error scales, each (n_rows, n_scores)."""

    def operations(self) -> float:
        """Cost of a row, in multiply-adds."""

    def cost(self, query: Query, n_jobs: int | None = None) -> dict[str, float]:
        """Operations a row by name: kernel evaluations, dot products, depth."""


def answers_by_class(stage: Any) -> bool:
    """Whether a stage knows labels and how sure it is of them, but not the machine's scores."""
    return bool(getattr(stage, "by_class", False))


def guards_itself(stage: Any) -> bool:
    """Whether a stage leaves every row open that the guard would mark."""
    return bool(getattr(stage, "guards_itself", False))


def settled_labels(machine: KernelMachine, scores: FloatArray, bounds: FloatArray) -> IntArray:
    """Labels in vote order where no error within the bounds can change them, -1 elsewhere."""
    out: IntArray = np.empty(len(scores), dtype=np.int32)
    rule = RULE_CODES["sign" if machine.task == "outlier" else machine.rule]
    _core.settle(scores, bounds, rule, machine.n_classes, breaks_ties(machine), out)
    return out


class Cascade:
    """Stages in front of the exact engine, behind the interface of an engine.

    Parameters
    ----------
    machine : KernelMachine
        The machine it answers for.
    stages : list of Stage
        Cheapest first.
    thresholds : list of float
        One for each stage.
    exact : ExactEngine or ValueEngine
        Answers what is left.
    tolerance : float, optional
        Regression: a value is settled where its error scale times the threshold is within this.
    guard : Guard or callable, optional
        Marks rows that no stage may answer.
    """

    def __init__(
        self,
        machine: KernelMachine,
        stages: list[Any],
        thresholds: list[float],
        exact: ExactEngine | ValueEngine,
        tolerance: float | None = None,
        guard: Guard | Marker | None = None,
    ) -> None:
        self.machine = machine
        self.stages = stages
        self.thresholds = thresholds
        self.exact = exact
        self.tolerance = tolerance
        self.guard = guard

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__.pop("_native", None)  # made of the parts before
        super().__setattr__(name, value)

    @cached_property
    def _native(self) -> NativeCascade | None:
        return native_cascade(self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_native"}

    @property
    def nbytes(self) -> int:
        """Bytes of all stages, of the exact engine and of the guard."""
        own = self.guard.nbytes if isinstance(self.guard, Guard) else 0
        return int(self.exact.nbytes + sum(stage.nbytes for stage in self.stages) + own)

    def labels(self, query: Query, n_jobs: int | None = None) -> tuple[IntArray, list[int]]:
        """Label of each row in vote order, and how many rows each stage and the exact engine settled."""
        if self._native is not None:
            return self._native.labels(query, n_jobs)
        return self.labels_by_stages(query, n_jobs)

    def labels_by_stages(self, query: Query, n_jobs: int | None = None) -> tuple[IntArray, list[int]]:
        """The same, whatever the parts are: the definition."""
        n = n_rows_of(query.rows)
        n_jobs = Counted(thread_count(n_jobs))
        out: IntArray | None = None
        gate = _Gate(self.guard, query, n_jobs)
        waiting = OpenRows(query)
        settled = []
        for stage, threshold in zip(self.stages, self.thresholds, strict=True):
            if len(waiting) and threshold < math.inf:
                waiting = gate.before(stage, waiting)
            before = len(waiting)
            if before and threshold < math.inf:
                if out is None and len(gate.kept) <= FEW_GUARDED * n:
                    out = stage.settle(query, threshold, n_jobs)
                    out[gate.kept] = -2  # neither settled nor waiting for the next stage
                    waiting = OpenRows(query, np.flatnonzero(out == -1))
                else:
                    found = stage.settle(waiting.query, threshold, n_jobs)
                    out = np.full(n, -1, dtype=np.int32) if out is None else out
                    out[waiting.numbers] = found
                    waiting = waiting.where(found < 0)
            settled.append(before - len(waiting))
        rest = gate.rest(waiting)
        if len(rest) == n:
            return self.exact.labels(query, n_jobs)[0], [*settled, n]
        assert out is not None
        if len(rest):
            out[rest.numbers] = self.exact.labels(rest.query, n_jobs)[0]
        return out, [*settled, len(rest)]

    def scores(self, query: Query, n_jobs: int | None = None, precision: Precision = "auto") -> FloatArray:
        """Scores (n_rows, n_scores): a stage's own where it settles the row, else the exact engine's.

        A `precision` other than "auto" asks for exact scores of all rows.
        """
        if precision != "auto":
            return self.exact.scores(query, n_jobs, precision)
        n_jobs = Counted(thread_count(n_jobs))
        out = np.empty((n_rows_of(query.rows), self.machine.n_scores))
        gate = _Gate(self.guard, query, n_jobs)
        waiting = OpenRows(query)
        for stage, threshold in zip(self.stages, self.thresholds, strict=True):
            if not len(waiting) or threshold == math.inf or answers_by_class(stage):
                continue
            waiting = gate.before(stage, waiting)
            if not len(waiting):
                break
            scores, errors = stage.scores(waiting.query, n_jobs)
            settled = self._settled_by(stage, scores, errors, threshold)
            out[waiting.numbers[settled]] = scores[settled]
            waiting = waiting.where(~settled)
        rest = gate.rest(waiting)
        if len(rest):
            out[rest.numbers] = self.exact.scores(rest.query, n_jobs)
        return out

    def predict_one_block(self, X: np.ndarray[Any, Any]) -> IntArray | None:
        """Labels of a small, already checked float array on this thread; None where a row cannot be read."""
        if self._native is not None:
            return self._native.predict_one_block(X)
        if not np.isfinite(X).all():
            return None
        return self.labels(Query(X, self.machine.scaling is not None), 1)[0]

    def predict_one_row(self, X: np.ndarray[Any, Any]) -> int:
        """The same for a single row, as a number; -1 where it cannot be read."""
        if self._native is not None:
            return self._native.answer_row(X)  # type: ignore[no-any-return]
        labels = self.predict_one_block(X)
        return -1 if labels is None else int(labels[0])

    def work(self, query: Query, n_jobs: int | None = None) -> dict[str, Any]:
        """Share of rows settled by each stage and by the exact engine, operations a row.

        Rows that the guard sends on are the exact engine's; "guarded" says how large their share is, and "rim" that of
        rows on its rim, where there is a stage that makes a difference.
        """
        n = n_rows_of(query.rows)
        gate = _Gate(self.guard, query, n_jobs)
        waiting = OpenRows(query)
        result: dict[str, Any] = {
            "rows": n,
            "stages": {},
            "guarded": 0.0,
            "kernel_evaluations_per_row": 0.0,
            "dot_products_per_row": 0.0,
        }
        for stage, threshold in zip(self.stages, self.thresholds, strict=True):
            if len(waiting) and threshold < math.inf:
                waiting = gate.before(stage, waiting)
            before = len(waiting)
            if before and threshold < math.inf:
                part = waiting.query
                if answers_by_class(stage):
                    waiting = waiting.where(stage.settle(part, threshold, n_jobs) < 0)
                else:
                    scores, errors = stage.scores(part, n_jobs)
                    waiting = waiting.where(~self._settled_by(stage, scores, errors, threshold))
                for name, value in stage.cost(part, n_jobs).items():
                    result[name] = result.get(name, 0.0) + before / n * value
            result["stages"][stage.name] = (before - len(waiting)) / n
        waiting = gate.close(waiting)
        result["guarded"] = len(gate.kept) / n
        asked = [s for s, t in zip(self.stages, self.thresholds, strict=True) if t < math.inf and hasattr(s, "on_rim")]
        if asked:
            result["rim"] = float(asked[0].on_rim(query, n_jobs).mean())
        left = (len(waiting) + len(gate.kept)) / n
        result["stages"]["exact"] = left
        if self.machine.kernel.name != "linear":
            result["kernel_evaluations_per_row"] += left * self.machine.n_sv
        return result

    def _settled_by(
        self, stage: Any, scores: FloatArray, errors: FloatArray, threshold: float
    ) -> np.ndarray[Any, np.dtype[np.bool_]]:
        settled = self._settled(scores, errors, threshold)
        # Rows that a stage does not know are open at every threshold.
        return settled & np.isfinite(errors).all(axis=1) if guards_itself(stage) else settled

    def _settled(self, scores: FloatArray, errors: FloatArray, threshold: float) -> np.ndarray[Any, np.dtype[np.bool_]]:
        bounds = threshold * errors if threshold > 0.0 else np.zeros_like(errors)
        if self.machine.task == "regression":
            limit = math.inf if self.tolerance is None else self.tolerance
            return np.asarray((bounds <= limit).all(axis=1) & np.isfinite(scores).all(axis=1))
        return np.asarray(settled_labels(self.machine, scores, bounds) >= 0)


class _Gate:
    """Lets the guard look at the rows of a query once: before the first stage that does not guard itself.

    Attributes
    ----------
    kept : ndarray of int
        Numbers of the rows that it keeps for the exact engine.
    """

    def __init__(self, guard: Guard | Marker | None, query: Query, n_jobs: int | None) -> None:
        self.guard = guard
        self.query = query
        self.n_jobs = n_jobs
        self.kept: IndexArray = np.empty(0, dtype=np.intp)

    def before(self, stage: Any, waiting: OpenRows) -> OpenRows:
        """Rows that the stage may be asked about."""
        skips = isinstance(self.guard, Guard) and guards_itself(stage)
        return waiting if skips else self.close(waiting)

    def close(self, waiting: OpenRows) -> OpenRows:
        """The same behind the last stage."""
        if self.guard is None or not len(waiting):
            return waiting
        part = waiting.query
        marked = self.guard(part, self.n_jobs) if isinstance(self.guard, Guard) else self.guard(part)
        self.guard = None
        self.kept = waiting.numbers[marked]
        return waiting.where(~marked)

    def rest(self, waiting: OpenRows) -> OpenRows:
        """Rows for the exact engine: those that no stage settled, and those kept for it."""
        if not len(self.kept):
            return waiting
        return OpenRows(self.query, np.sort(np.concatenate([waiting.numbers, self.kept])))
