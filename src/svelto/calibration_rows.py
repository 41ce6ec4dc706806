"""Which rows speak for the data to come.

Three sources of calibration rows, in this order:

    given      `X_calibration`, rows like those to come that the machine was not trained on
    held out   part of X, where X does not hold the machine's training rows
    stand-ins  made of X, where it does (see `oracle`): the usual case, X is the training set

Each source gives two sets: one that thresholds are chosen on and one that they are checked on and that nothing else
has seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy import sparse
from sklearn.utils import _safe_indexing

from svelto._inputs import Query, n_rows_of
from svelto._typing import FloatArray, IndexArray, Rows
from svelto._warnings import warn_caller
from svelto.guarantee import rows_needed
from svelto.guard import Guard
from svelto.guard_fit import guard_for
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
# ... and neither set takes more memory than this.
MOST_BYTES: Final = 2**30
# A stand-in that the guard marks breaks a rule of the data and is made again, at most so often.
REDRAWS: Final = 6
# Stand-ins of given calibration rows that are looked at before: whether they keep to the grids of the rows built on.
TRUST_ROWS: Final = 2_000


@dataclass
class CalibrationRows:
    """Rows to build on, to choose on and to check on: scaled as the machine sees them, or objects.

    Attributes
    ----------
    source : str
        "given", "held out" or "stand-ins".
    support_share : float or None
        Share of the machine's support vectors found among the rows; None: nobody can tell.
    step : float
        Of stand-ins.
    near : Neighbourhoods or None
        Of the rows to build on.
    guard : Guard or None
        Knows the rows to build on; None for objects.
    """

    build: Any
    choose: Rows
    check: Rows
    source: str
    support_share: float | None
    step: float = 0.0
    near: Neighbourhoods | None = None
    guard: Guard | None = None


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
    most = min(most, max(MOST_BYTES // (8 * X.shape[1]), 1))
    if share > TRAINING_SHARE:
        near = Neighbourhoods(X, seed, n_jobs)
        guard = guard_for(machine, X, seed, n_jobs, near)
        of = near if X_calibration is None else Neighbourhoods(_as_dense(given), seed, n_jobs)
        step = of.stand_in_step(rng)
        if X_calibration is not None:  # other rows, perhaps too few to show what grids they are on
            guard = guard.trusting(of.shifted(TRUST_ROWS, step, np.random.default_rng([seed, 7])))
        n_choose = min(max(2 * len(of.X), STAND_INS), most)
        first, second = rng.integers(len(of.X), size=n_choose), rng.permutation(len(of.X))[:most]
        return CalibrationRows(
            X,
            _stand_ins(of, first, step, rng, guard, n_jobs),
            _stand_ins(of, second, step, rng, guard, n_jobs),
            "stand-ins",
            share,
            step,
            near,
            guard,
        )
    n = given.shape[0]
    order = rng.permutation(n)
    if X_calibration is not None:
        half = n // 2
        build, choose, check, source = X, given[order[:half][:most]], given[order[half:][:most]], "given"
    else:
        wanted = HELD_OUT_NEEDS * rows_needed(rate, confidence)
        held = int(min(HELD_OUT_SHARE * n, max(0.2 * n, wanted), 2 * most))
        half = held // 2
        build, choose, check, source = X[order[held:]], X[order[:half]], X[order[half:held]], "held out"
    near = Neighbourhoods(build, seed, n_jobs)
    guard = guard_for(machine, build, seed, n_jobs, near).trusting(choose)
    return CalibrationRows(build, choose, check, source, share, near=near, guard=guard)


def _stand_ins(
    near: Neighbourhoods, of: IndexArray, step: float, rng: np.random.Generator, guard: Guard, n_jobs: int | None
) -> FloatArray:
    """Stand-ins of some rows.

    Where features depend on each other, shifting them one by one may break what all rows obey, and the guard marks the
    result. Such rows will not come; counted as sent on, they would thin out the disagreements.
    """
    rows = near.shifted(len(of), step, rng, of)
    strange = np.flatnonzero(guard(Query(rows), n_jobs))
    for _ in range(REDRAWS):
        if not len(strange):
            break
        rows[strange] = near.shifted(len(strange), step, rng, of[strange])
        strange = strange[guard(Query(rows[strange]), n_jobs)]
    return rows


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
        warn_caller(
            f"{share:.0%} of X_calibration are among the support vectors, or these among them. If the machine was "
            "trained on those objects, the promise is worth less than it says; where new objects often equal old ones, "
            "all is well."
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


def _as_dense(X: Rows) -> FloatArray:
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)
