"""What could be the predictor: methods in a fixed order, their trials on few rows, and which comes before which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from svelto.cascade import Cascade
from svelto.engines.reduced_stage import ReducedSetOptions
from svelto.report import Report, Trial

# In the order that ties are broken in.
STATISTICAL: Final = ("hinges", "taylor_tree", "reduced_set", "sv_tree")
EXACT: Final = ("exact", "bounded")
# Rows of the sample, and how little effort is spent on it.
SAMPLE_ROWS: Final = 4000
SAMPLE_ORACLE: Final = 20_000
# Hinges and trees leave more rows open on the sample than they will on all rows. With the sample's reduced set behind
# them these cost what they will cost; with the exact engine behind them a stage that will win looks hopeless.
SAMPLE_REDUCED: Final[dict[str, Any]] = {"n_basis": 128, "oracle_rows": SAMPLE_ORACLE // 2, "max_iter": 40}
SAMPLE_BEHIND: Final = ReducedSetOptions(**SAMPLE_REDUCED)
SAMPLE_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "hinges": {"n_hinges": 63, "oracle_rows": SAMPLE_ORACLE},
    "taylor_tree": {"oracle_rows": SAMPLE_ORACLE},
    "reduced_set": SAMPLE_REDUCED,
    "sv_tree": {},
}
# A stage that is built on all rows, with all effort, leaves about so many times fewer rows open than on the sample.
FEWER_LEFT: Final = 4.0
# Fast stages alone, without a promise: those that agree in this share of the rows are good enough to be chosen by time.
RAW_AGREEMENT: Final = 0.99


@dataclass(eq=False)
class Candidate:
    """What could be the predictor.

    Attributes
    ----------
    method : str
        Its method.
    trial : Trial
        What it was like.
    finish : callable
        Gives the engine and its report; None where the promise could not be shown.
    engine : object
        What answers, as long as no promise is shown.
    first_share : float
        Share of its first stage, which every row is asked, in the expected cost of a row.
    """

    method: str
    trial: Trial
    finish: Callable[[], tuple[Any, Report] | None]
    engine: Any
    first_share: float = 1.0

    @property
    def forecast(self) -> float:
        """Microseconds of a row if it were built on all rows: fewer are left to what stands behind the first stage."""
        return self.trial.microseconds * (self.first_share + (1.0 - self.first_share) / FEWER_LEFT)


def raw_rank(trial: Trial) -> tuple[float, float]:
    """Of stages without a promise: those that agree nearly always by time, others by agreement."""
    return (0.0, trial.microseconds) if trial.agreement >= RAW_AGREEMENT else (1.0 - trial.agreement, 0.0)


def setting_of(engine: Cascade, n_rows: int) -> str:
    """What distinguishes a cascade from others of its method."""
    parts = []
    for stage in engine.stages:
        for name in ("n_hinges", "n_leaves", "n_basis"):
            if hasattr(stage, name):
                parts.append(f"{stage.name} ({getattr(stage, name)})")
    return f"{', '.join(parts)}, built on {n_rows} rows"
