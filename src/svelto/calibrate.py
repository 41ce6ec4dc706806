"""From stages to a promise: which rows speak for the data to come, which thresholds they allow, what they show.

Three sources of calibration rows, in this order:

    given      `X_calibration`, rows like those to come that the machine was not trained on
    held out   part of X, where X does not hold the machine's training rows
    stand-ins  made of X, where it does (see `oracle`): the usual case, X is the training set

Each source gives two sets: one that thresholds are chosen on and one that they are checked on and that nothing else
has seen.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from scipy import sparse
from sklearn.utils import _safe_indexing

from svelto._inputs import Query, n_rows_of
from svelto._typing import FloatArray, IndexArray, IntArray, Rows
from svelto.cascade import answers_by_class, settled_labels
from svelto.engines.exact import ExactEngine, ValueEngine
from svelto.feature_blocks import features_read
from svelto.guarantee import (
    Certificate,
    StageTrace,
    allowed,
    certify,
    choose,
    rows_needed,
    settled_wrong,
    widened,
)
from svelto.guard import Guard
from svelto.machine import KernelMachine
from svelto.oracle import Neighbourhoods, support_share
from svelto.same_objects import object_share

# X counts as training rows if it holds more than this share of the support vectors.
TRAINING_SHARE: Final = 0.02
# Objects given for calibration are refused beyond this share; below there may just be few different ones.
TRAINED_OBJECTS: Final = 0.5
# Of rows to be held out: at most this share of X, and about this multiple of the rows that a flawless check needs.
HELD_OUT_SHARE: Final = 0.4
HELD_OUT_NEEDS: Final = 8.0
# Stand-ins to choose thresholds on: at least this many. Neither set is larger than MOST_ROWS.
STAND_INS: Final = 20_000
MOST_ROWS: Final = 50_000
# The exact engine answers the calibration rows within about this much arithmetic each (a second or two).
MOST_OPERATIONS: Final = 1e11
# Thresholds are never quite zero: a row beyond a leaf's reach has an infinite error scale, and stays unsettled.
LEAST_THRESHOLD: Final = 1e-6
# Stand-ins are a model of new rows, not new rows: thresholds chosen on them are widened as if by this rung of the
# ladder.
WIDEN: Final = 1.5
# Where too few rows can show nothing, thresholds start from at least this many error scales.
CAREFUL: Final = 3.0
# Rows that are held back from a first guard, to see how far ordinary rows are from it: a share of all, at most so many.
GUARD_SHARE: Final = 0.2
GUARD_ROWS: Final = 10_000
# ... and the share of them that its limits are raised for: nearly all, but wild ones among many are left out.
GUARD_QUANTILE: Final = 0.9999
# Rows on an edge of the box are ordinary (categories are nowhere else), and in single precision they look the same as
# rows beyond it. So this share of the box's diagonal, eight units in the last place, is never too far.
GUARD_EDGE: Final = 2.0**-20
# Stand-ins lie about as far from the rows as these from each other, and the promise is checked on them: so the box may
# be left by this quantile of the distances between neighbours, among at most so many rows. In many dimensions that is
# more than the whole box, so it may not be more than this share of a typical feature's range.
MARGIN_QUANTILE: Final = 0.9
MARGIN_ROWS: Final = 20_000
MARGIN_SHARE: Final = 0.2
# Data drift a little between training and use. A score hardly bends within this share of the kernel's width, so box and
# balls may be left by as much, balls by no more than this share of their radius; directions have such room as well.
SMOOTH_SHARE: Final = 0.07
MOST_STRETCH: Final = 0.25
DIRECTION_ROOM: Final = 1.5
# Rows that reach the exact engine are close calls: about a third of them take its float64 tier too.
EXACT_FACTOR: Final = 2.0
# Thresholds that a multi-class row is tried at.
GRID: Final = np.concatenate([[0.0], np.geomspace(1e-2, 1e3, 61)])


@dataclass
class CalibrationRows:
    """Rows to build on, to choose on and to check on: scaled as the machine sees them, or objects.

    Attributes
    ----------
    source : str
        "given", "held out" or "stand-ins".
    support_share : float or None
        Share of the machine's support vectors found among the rows; None: nobody can tell.
    """

    build: Any
    choose: Rows
    check: Rows
    source: str
    support_share: float | None
    step: float = 0.0


def gather_rows(
    machine: KernelMachine,
    X: FloatArray,
    X_calibration: Rows | None,
    rate: float,
    confidence: float,
    seed: int,
    n_jobs: int | None,
) -> CalibrationRows:
    """Decide which rows calibrate; X is dense, `rate` is the share of rows that may disagree."""
    rng = np.random.default_rng([seed, 1])
    given = X if X_calibration is None else X_calibration
    share = support_share(machine, given)
    most = int(np.clip(MOST_OPERATIONS / (machine.n_sv * (X.shape[1] + 16.0)), 2_000, MOST_ROWS))
    if share > TRAINING_SHARE:
        dense = _as_dense(given)
        near = Neighbourhoods(dense, seed, n_jobs)
        step = near.stand_in_step(rng)
        n_choose = min(max(2 * len(dense), STAND_INS), most)
        of = rng.permutation(len(dense))[:most]
        return CalibrationRows(
            X,
            near.shifted(n_choose, step, rng),
            near.shifted(len(of), step, rng, of),
            "stand-ins",
            share,
            step,
        )
    n = given.shape[0]
    order = rng.permutation(n)
    if X_calibration is not None:
        half = n // 2
        return CalibrationRows(X, given[order[:half][:most]], given[order[half:][:most]], "given", share)
    wanted = HELD_OUT_NEEDS * rows_needed(rate, confidence)
    held = int(min(HELD_OUT_SHARE * n, max(0.2 * n, wanted), 2 * most))
    half = held // 2
    return CalibrationRows(X[order[held:]], X[order[:half]], X[order[half:held]], "held out", share)


def gather_objects(
    machine: KernelMachine, X: Any, X_calibration: Any, rate: float, confidence: float, seed: int
) -> CalibrationRows:
    """The same for objects, of which no stand-ins can be made: given, or held out of X."""
    given = X if X_calibration is None else X_calibration
    advice = "Pass objects that the machine was not trained on as X_calibration, or agreement=None for no promise."
    unknown = machine.kernel.name == "precomputed"
    if unknown and X_calibration is None:
        raise ValueError(
            "Rows of a precomputed kernel do not tell whether the machine was trained on them, and a promise can only "
            f"be checked on new ones. {advice}"
        )
    share = 0.0 if unknown else object_share(machine, given)
    if share > (TRAINING_SHARE if X_calibration is None else TRAINED_OBJECTS):
        name = "X" if X_calibration is None else "X_calibration"
        raise ValueError(
            f"{name} holds objects that the machine was trained on ({share:.0%} are among its support vectors, or "
            f"these among them), and a promise can only be checked on new ones. {advice}"
        )
    if share > TRAINING_SHARE:
        warnings.warn(
            f"{share:.0%} of X_calibration are among the support vectors, or these among them. If the machine was "
            "trained on those objects, the promise is worth less than it says; where new objects often equal old ones, "
            "all is well.",
            UserWarning,
            stacklevel=5,
        )
    n = n_rows_of(given)
    order = np.random.default_rng([seed, 1]).permutation(n)
    if X_calibration is not None:
        choose_rows, check_rows, build, source = order[: n // 2], order[n // 2 :], X, "given"
    else:
        held = int(min(HELD_OUT_SHARE * n, max(0.2 * n, HELD_OUT_NEEDS * rows_needed(rate, confidence))))
        choose_rows, check_rows = order[: held // 2], order[held // 2 : held]
        build, source = _safe_indexing(X, np.sort(order[held:])), "held out"
    first, second = (_safe_indexing(given, np.sort(part)) for part in (choose_rows, check_rows))
    return CalibrationRows(build, first, second, source, None if unknown else share)


def guard_for(machine: KernelMachine, build: FloatArray, seed: int, n_jobs: int | None = None) -> Guard:
    """The guard of the stages that are built on these rows.

    How far ordinary rows are from a guard is seen on a fifth of the rows, which a first one is made without: the box is
    left by so much, the radii are stretched and the limit along the directions is raised so far, that nearly all of
    them are inside. The box may be left by as much as stand-ins do.
    """
    n = len(build)
    held = np.zeros(n, dtype=bool)
    size = min(max(int(GUARD_SHARE * n), 1), GUARD_ROWS)
    held[np.random.default_rng([seed, 4]).choice(n, size=size, replace=False)] = True
    first = Guard.around(machine, [build[~held]], seed, n_jobs)
    new = build[held]
    edge = GUARD_EDGE**2 * float(((first.high - first.low) ** 2).sum())
    smooth = SMOOTH_SHARE / math.sqrt(machine.kernel.gamma) if machine.kernel.name == "rbf" else 0.0
    margin = max(_stand_in_margin(build, seed, n_jobs), smooth)
    box_limit = max(_nearly_all(first.box_distances(new)), edge, margin * margin)
    stretch = _nearly_all(np.maximum(first.ball_ratios(new), 1.0))
    if not np.isfinite(stretch):
        stretch = 1.0  # all balls are points: copies of a few rows
    radii = np.sqrt(first.sq_radii) * stretch
    return replace(
        first,
        box_limit=min(box_limit, float(np.finfo(np.float64).max)),
        sq_radii=(radii + np.minimum(MOST_STRETCH * radii, smooth)) ** 2,
        direction_limit=DIRECTION_ROOM * max(first.direction_limit, _nearly_all(first.direction_sums(new))),
    ).including([new])


def _stand_in_margin(build: FloatArray, seed: int, n_jobs: int | None) -> float:
    """How far stand-ins may leave the box: a distance between neighbours, but a small part of the box."""
    n = len(build)
    low, high = build.min(axis=0), build.max(axis=0)
    widths = (high - low)[high > low]
    size = float(widths.max(initial=0.0))
    if n < 2 or not 0.0 < size < np.inf:
        return 0.0
    rows = build[np.random.default_rng([seed, 5]).permutation(n)[:MARGIN_ROWS]]
    near = Neighbourhoods((rows - low) / size, seed, n_jobs)  # in a unit that single precision can square
    to_nearest = np.linalg.norm(near.X - near.X[near.neighbours[:, 0]], axis=1)
    return min(float(np.quantile(to_nearest, MARGIN_QUANTILE)) * size, MARGIN_SHARE * float(np.median(widths)))


def _nearly_all(values: FloatArray) -> float:
    return float(np.quantile(values, GUARD_QUANTILE, method="higher"))


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
        last = _last_rungs(machine, scores, errors)
        rungs = np.concatenate([GRID, [np.inf]])  # settled at the last rung: no threshold is known to hold the row back
        at_last = last == len(GRID) - 1
        # Wrong rows get the next rung, so that rounding to rungs never lets one through.
        caution = rungs[np.where(wrong | at_last, last + 1, last)]
    caution[plain < 0] = 0.0  # a tie in the stage's own scores settles nothing
    wrong = wrong & (plain >= 0)
    return StageTrace(_held_back(caution, wrong), wrong, stage.operations())


def _last_rungs(machine: KernelMachine, scores: FloatArray, errors: FloatArray) -> IndexArray:
    """The last rung of the grid that settles each row.

    Settled at a threshold means settled at every smaller one, so the rung is found by bisection.
    """
    low, high = np.zeros(len(scores), dtype=np.intp), np.full(len(scores), len(GRID) - 1)
    while len(rows := np.flatnonzero(low < high)):
        middle = (low[rows] + high[rows] + 1) // 2
        settled = settled_labels(machine, scores[rows], GRID[middle][:, None] * errors[rows]) >= 0
        low[rows], high[rows] = np.where(settled, middle, low[rows]), np.where(settled, high[rows], middle - 1)
    return low


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
        The two sets.
    agreement, confidence : float
        The promise.
    tolerance : float, optional
        |error| that counts as agreement, for regressors.
    guard : Guard, optional
        Marks rows that no stage will be asked about.
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
        guard: Guard | None = None,
    ) -> None:
        self.machine = machine
        self.rows = rows
        self.agreement = agreement
        self.confidence = confidence
        self.tolerance = tolerance
        self.n_jobs = n_jobs
        self.needed = rows_needed(1.0 - agreement, confidence)
        # In the unit of `Stage.operations`: multiply-adds, or kernel values where those are all that counts.
        self.exact_cost = float(machine.n_sv)
        if machine.kernel.has_native_code:
            self.exact_cost *= EXACT_FACTOR * (features_read(rows.check) + 16.0 + machine.dual_coef.shape[0])
        self._truth = {}
        self._guarded: dict[str, Any] = {}
        for name, X in (("choose", rows.choose), ("check", rows.check)):
            labels = exact.labels(Query(X), n_jobs)[0]
            # Exact scores are only looked at where values count.
            values = exact.scores(Query(X), n_jobs) if machine.task == "regression" else np.empty((0, 0))
            self._truth[name] = values, labels
            self._guarded[name] = np.zeros(len(labels), dtype=bool) if guard is None else guard(Query(X), n_jobs)

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
        n_allowed = allowed(len(choosing[0].wrong), 1.0 - self.agreement, self.confidence)
        thresholds = choose(choosing, 0 if self.few else max(n_allowed, 0), self.exact_cost)
        thresholds = [max(t, CAREFUL if self.few else LEAST_THRESHOLD) for t in thresholds]
        if self.rows.source == "stand-ins":
            thresholds = widened(thresholds, WIDEN)
        _, reach = settled_wrong(choosing, thresholds)
        cost = sum(share * trace.cost for share, trace in zip(reach, choosing, strict=False))
        return thresholds, cost + reach[-1] * self.exact_cost

    def certify(self, traces: list[dict[str, StageTrace]], thresholds: list[float]) -> Certificate:
        """What the second set of rows shows about the thresholds; warns where it is too small to show anything."""
        certificate = certify([t["check"] for t in traces], thresholds, self.agreement, self.confidence)
        if self.few and not certificate.is_exact:
            warnings.warn(
                f"agreement={self.agreement} at confidence={self.confidence} needs at least {self.needed} rows to "
                f"check it on, and as many to choose thresholds; there are {n_rows_of(self.rows.check)} to check on. "
                f"The thresholds are set carefully, but only {certificate.bound:.4f} can be shown. Give more rows as "
                "X_calibration, or ask for less.",
                UserWarning,
                stacklevel=5,
            )
        return certificate


def _as_dense(X: Rows) -> FloatArray:
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)
