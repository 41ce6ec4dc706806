"""What a predictor is and what it promises, as text and as HTML."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any


@dataclass(frozen=True)
class Trial:
    """One configuration that ``method="auto"`` built and timed.

    Attributes
    ----------
    method : str
        Its method.
    setting : str
        Its main knobs, and what stands behind it.
    n_rows : int
        Rows that it was built on: a sample first, all of them where it may be the best.
    microseconds : float
        Time of a row, at the batch size that was asked for.
    agreement : float
        Share of equal labels on rows that were not used to choose its thresholds.
    promise : {"exact", "statistical", "none"}
        What it could promise.
    nbytes : int
        Bytes of its arrays.
    build_seconds : float
        Time that building it took.
    stages : dict
        Share of the rows that each stage settles.
    chosen : bool
        Whether it is the predictor.
    """

    method: str
    setting: str
    n_rows: int
    microseconds: float
    agreement: float
    promise: str
    nbytes: int
    build_seconds: float
    stages: dict[str, float] = field(default_factory=dict)
    chosen: bool = False


@dataclass(frozen=True)
class Report:
    """Facts about one accelerated machine.

    Attributes
    ----------
    method : str
        The method that answers.
    promise : {"exact", "statistical", "none"}
        What the labels are worth; see the README.
    agreement : float or None
        Measured share of equal labels, where it was measured; an exact method needs no measurement.
    agreement_bound : float or None
        Lower confidence bound of the agreement.
    speedups : dict
        Measured ratios, by rival; empty where nothing was timed.
    work : dict
        What a row costs.
    score_error_bound : float
        Bound on |decision_function - float64 value|, the largest over probe rows near the machine's support vectors.
    build_seconds : float
        Time that `accelerate` took.
    details : dict
        Everything else worth knowing, by name.
    tried : tuple of Trial
        What ``method="auto"`` chose from.
    """

    method: str
    promise: str
    agreement: float | None = None
    agreement_bound: float | None = None
    speedups: dict[str, float] = field(default_factory=dict)
    work: dict[str, Any] = field(default_factory=dict)
    score_error_bound: float = 0.0
    build_seconds: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)
    tried: tuple[Trial, ...] = ()

    def rows(self) -> list[tuple[str, str]]:
        """Name and value of every fact, in reading order."""
        rows = [("method", self.method), ("promise", f"{self.promise}: {_PROMISES[self.promise]}")]
        if self.agreement is not None:
            rows.append(("agreement measured", f"{self.agreement:.5f}"))
        if self.agreement_bound is not None:
            rows.append(("agreement bound", f"{self.agreement_bound:.5f}"))
        rows += [(f"speedup over {rival}", f"{ratio:.3g}x") for rival, ratio in self.speedups.items()]
        rows += [(name, _text(value)) for name, value in self.work.items()]
        rows.append(("score error bound", f"{self.score_error_bound:.2g}"))
        rows += [(name, _text(value)) for name, value in self.details.items()]
        rows.append(("build seconds", f"{self.build_seconds:.3g}"))
        for trial in self.tried:
            chosen = ", chosen" if trial.chosen else ""
            rows.append(
                (
                    f"tried: {trial.method}",
                    f"{trial.microseconds:.3g} us a row, agreement {trial.agreement:.5f}, {trial.setting}{chosen}",
                )
            )
        return rows

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)

    def _repr_html_(self) -> str:
        body = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in self.rows())
        return f"<table>{body}</table>"


_PROMISES = {
    "exact": "the label of every row equals the float64 machine's",
    "statistical": "labels agree at the stated rate on data like the calibration rows",
    "none": "measured, nothing promised",
}


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
