"""From stages to a promise: which thresholds the calibration rows allow, and what they show."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from svelto import _core
from svelto._inputs import Query, n_rows_of
from svelto._threads import thread_count
from svelto._typing import FloatArray, IntArray, Rows
from svelto._warnings import warn_caller
from svelto.calibration_rows import CalibrationRows
from svelto.cascade import answers_by_class, settled_labels
from svelto.engines.exact import ExactEngine, ValueEngine
from svelto.engines.packing import RULE_CODES, breaks_ties
from svelto.engines.stage_costs import whole_sum_cost
from svelto.guarantee import (
    Certificate,
    StageTrace,
    allowed,
    certify,
    choose,
    expected_to_pass,
    rows_needed,
    settled_wrong,
    widened,
)
from svelto.machine import KernelMachine

# Thresholds are never quite zero: a row beyond a leaf's reach has an infinite error scale, and stays unsettled.
LEAST_THRESHOLD: Final = 1e-6
# Stand-ins are a model of new rows, not new rows: thresholds chosen on them are widened as if by this rung of the
# ladder.
WIDEN: Final = 1.5
# Where too few rows can show nothing, thresholds start from at least this many error scales.
CAREFUL: Final = 3.0
# A row whose float32 scores do not decide takes the exact engine's float64 tier too, and costs so many usual rows.
EXACT_FACTOR: Final = 3.5
# Thresholds are chosen so that the check will pass with about this probability.
PASSING: Final = 0.65
# Thresholds that a multi-class row is tried at.
GRID: Final = np.concatenate([[0.0], np.geomspace(1e-2, 1e3, 61)])


def trace_stage(
    stage: Any,
    machine: KernelMachine,
    rows: Rows,
    exact_scores: FloatArray,
    exact_labels: IntArray,
    tolerance: float | None,
    n_jobs: int | None,
) -> StageTrace:
    """At which threshold each row would leave this stage, and whether its answer would be wrong."""
    if answers_by_class(stage):
        plain, caution = stage.cautions(Query(rows), n_jobs)
        wrong = (plain != exact_labels) & (plain >= 0)
        return StageTrace(_held_back(caution, wrong), wrong, stage.operations())
    scores, errors = stage.scores(Query(rows), n_jobs)
    if machine.task == "regression":
        assert tolerance is not None
        largest = errors.max(axis=1)
        caution = np.divide(tolerance, largest, out=np.full(len(largest), np.inf), where=largest > 0.0)
        wrong = ~(np.abs(scores - exact_scores).max(axis=1) <= tolerance)
        return StageTrace(_held_back(caution, wrong), wrong, stage.operations())
    plain = settled_labels(machine, scores, np.zeros_like(errors))
    wrong = plain != exact_labels
    if machine.n_scores == 1:
        with np.errstate(divide="ignore", invalid="ignore"):
            caution = np.nan_to_num(np.abs(scores[:, 0]) / errors[:, 0], nan=0.0, posinf=np.inf)
    else:
        last = _last_rungs(machine, scores, errors, n_jobs)
        rungs = np.concatenate([GRID, [np.inf]])  # settled at the last rung: no threshold is known to hold the row back
        at_last = last == len(GRID) - 1
        # Wrong rows get the next rung, so that rounding to rungs never lets one through.
        caution = rungs[np.where(wrong | at_last, last + 1, last)]
    caution[plain < 0] = 0.0  # a tie in the stage's own scores settles nothing
    wrong = wrong & (plain >= 0)
    return StageTrace(_held_back(caution, wrong), wrong, stage.operations())


def _last_rungs(machine: KernelMachine, scores: FloatArray, errors: FloatArray, n_jobs: int | None) -> IntArray:
    """The last rung of the grid that settles each row."""
    out: IntArray = np.empty(len(scores), dtype=np.int32)
    rule, threads = RULE_CODES[machine.rule], thread_count(n_jobs)
    _core.last_rungs(scores, errors, GRID, rule, machine.n_classes, breaks_ties(machine), threads, out)
    return out


def _held_back(caution: FloatArray, wrong: np.ndarray[Any, np.dtype[np.bool_]]) -> FloatArray:
    """Cautions of wrong rows a little larger, so that no rounding of threshold times error lets one through."""
    return np.where(wrong, caution * (1.0 + 1e-9), caution)


class Calibrator:
    """Sets the thresholds of stages: chosen on one set of rows, certified on the other.

    Parameters
    ----------
    machine : KernelMachine
        The machine the stages stand for.
    exact : ExactEngine or ValueEngine
        Says what is right.
    rows : CalibrationRows
        The two sets; what their guard marks, no stage will be asked about.
    agreement, confidence : float
        The promise.
    tolerance : float, optional
        |error| that counts as agreement, for regressors.
    """

    def __init__(
        self,
        machine: KernelMachine,
        exact: ExactEngine | ValueEngine,
        rows: CalibrationRows,
        agreement: float,
        confidence: float,
        tolerance: float | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.machine = machine
        self.rows = rows
        self.agreement = agreement
        self.confidence = confidence
        self.tolerance = tolerance
        self.n_jobs = n_jobs
        self.needed = rows_needed(1.0 - agreement, confidence)
        # In the unit of `Stage.operations`: multiply-adds, or kernel values where those are all that counts.
        native = machine.kernel.has_native_code
        self.whole_cost = whole_sum_cost(machine, rows.choose) if native else float(machine.n_sv)
        self.close_share = 0.0
        self._truth = {}
        self._guarded: dict[str, Any] = {}
        for name, X in (("choose", rows.choose), ("check", rows.check)):
            labels, tally = exact.labels(Query(X), n_jobs)
            if native and name == "choose":
                self.close_share = (tally.float64 + tally.reference) / max(len(labels), 1)
            # Exact scores are only looked at where values count.
            values = exact.scores(Query(X), n_jobs) if machine.task == "regression" else np.empty((0, 0))
            self._truth[name] = values, labels
            self._guarded[name] = (
                np.zeros(len(labels), dtype=bool) if rows.guard is None else rows.guard(Query(X), n_jobs)
            )

    @property
    def exact_cost(self) -> float:
        """What the exact engine costs for a row that is sent on to it last: a close call."""
        return self.whole_cost * (EXACT_FACTOR if self.close_share > 0.0 else 1.0)

    def rest_cost(self, share: float) -> float:
        """What it costs a row where so large a share of them reaches it, all close calls among them."""
        return self.whole_cost * (share + (EXACT_FACTOR - 1.0) * min(share, self.close_share))

    @property
    def few(self) -> bool:
        """Whether even a flawless check could not show the agreement."""
        return bool(n_rows_of(self.rows.check) < self.needed)

    def traces(self, stage: Any) -> dict[str, StageTrace]:
        """What a stage would do with the rows of both sets; those that the guard marks are settled by none."""
        found = {}
        for name, guarded in self._guarded.items():
            rows, truth = getattr(self.rows, name), self._truth[name]
            trace = trace_stage(stage, self.machine, rows, *truth, self.tolerance, self.n_jobs)
            found[name] = StageTrace(np.where(guarded, 0.0, trace.caution), trace.wrong & ~guarded, trace.cost)
        return found

    def choose(self, traces: list[dict[str, StageTrace]]) -> tuple[list[float], float]:
        """Thresholds of a sequence of stages, and the expected cost of a row."""
        choosing = [t["choose"] for t in traces]
        n_choose, n_check, rate = len(choosing[0].wrong), n_rows_of(self.rows.check), 1.0 - self.agreement
        budget = 0 if self.few else max(allowed(n_choose, rate, self.confidence), 0)
        # Where there are few rows to check on, a rate that many rows would show is likely to fail there. All thresholds
        # would then retreat together, which costs more than choosing each with that in mind.
        n_passing = expected_to_pass(max(allowed(n_check, rate, self.confidence), 0), PASSING) * n_choose / n_check
        thresholds, n_wrong, cost = self._with_budget(choosing, budget)
        if n_wrong > n_passing:
            low, high = min(budget, int(n_passing)), budget
            thresholds, _, cost = self._with_budget(choosing, low)
            while high - low > 1:  # the largest budget whose thresholds, widened as they are, keep to it
                middle = (low + high) // 2
                tried, n_wrong, tried_cost = self._with_budget(choosing, middle)
                if n_wrong > n_passing:
                    high = middle
                else:
                    low, thresholds, cost = middle, tried, tried_cost
        return thresholds, cost

    def _with_budget(self, choosing: list[StageTrace], budget: int) -> tuple[list[float], int, float]:
        """Thresholds for so many disagreements, those that are left when they are widened, and the cost of a row."""
        thresholds = choose(choosing, budget, self.exact_cost)
        thresholds = [max(t, CAREFUL if self.few else LEAST_THRESHOLD) for t in thresholds]
        if self.rows.source == "stand-ins":
            thresholds = widened(thresholds, WIDEN)
        n_wrong, reach = settled_wrong(choosing, thresholds)
        cost = sum(share * trace.cost for share, trace in zip(reach, choosing, strict=False))
        return thresholds, n_wrong, cost + self.rest_cost(reach[-1])

    def chosen_agreement(self, traces: list[dict[str, StageTrace]], thresholds: list[float]) -> float:
        """Share of the rows to choose on whose labels agree: a little better than on others."""
        choosing = [t["choose"] for t in traces]
        return 1.0 - settled_wrong(choosing, thresholds)[0] / len(choosing[0].wrong)

    def certify(self, traces: list[dict[str, StageTrace]], thresholds: list[float]) -> Certificate:
        """What the second set of rows shows about the thresholds; warns where it is too small to show anything."""
        certificate = certify([t["check"] for t in traces], thresholds, self.agreement, self.confidence)
        if self.few and not certificate.is_exact:
            warn_caller(
                f"agreement={self.agreement} at confidence={self.confidence} needs at least {self.needed} rows to "
                f"check it on, and as many to choose thresholds; there are {n_rows_of(self.rows.check)} to check on. "
                f"The thresholds are set carefully, but only {certificate.bound:.4f} can be shown. Give more rows as "
                "X_calibration, or ask for less."
            )
        return certificate
