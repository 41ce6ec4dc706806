"""What a predictor is and what it promises, as text and as HTML."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final


def _environment() -> dict[str, str]:
    found = {"computer": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}"}
    found["python"] = platform.python_version()
    for package in ("svelto", "numpy", "scipy", "scikit-learn"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


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
        Share of equal labels on the rows that its thresholds were chosen on; of the predictor itself the report has
        what was measured on others.
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
    asked : float or None
        Agreement that was asked for, where it had to be shown.
    agreement : float or None
        Measured share of equal labels, where it was measured; an exact method needs no measurement.
    agreement_bound : float or None
        Lower confidence bound of the agreement.
    speedups : dict
        Measured ratios, by rival; empty where nothing was timed.
    work : dict
        What a row costs.
    score_error_bound : float
        Bound on ``|decision_function - float64 value|``: the largest over probe rows near the support vectors.
    build_seconds : float
        Time that `accelerate` took.
    details : dict
        Everything else worth knowing, by name.
    tried : tuple of Trial
        What ``method="auto"`` chose from.
    environment : dict
        Computer and versions that it was made with.
    """

    method: str
    promise: str
    asked: float | None = None
    agreement: float | None = None
    agreement_bound: float | None = None
    speedups: dict[str, float] = field(default_factory=dict)
    work: dict[str, Any] = field(default_factory=dict)
    score_error_bound: float = 0.0
    build_seconds: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)
    tried: tuple[Trial, ...] = ()
    environment: dict[str, str] = field(default_factory=_environment)

    def rows(self) -> list[tuple[str, str]]:
        """Name and value of every fact, in reading order."""
        rows = [("method", self.method), ("promise", f"{self.promise}: {PROMISES[self.promise]}")]
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
        from svelto.report_page import fragment

        return fragment(self)

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write a page that needs no network: promise and evidence, the flow of rows, and what was tried.

        Parameters
        ----------
        path : str or path
            File to write; an older one is replaced at once, when the new one is complete.

        Returns
        -------
        Path
            The file.
        """
        from svelto._rowfiles import write_atomically
        from svelto.report_page import page

        target = Path(path)
        text = page(self)
        with write_atomically(target) as file:
            file.write(text.encode())
        return target


PROMISES: Final = {
    "exact": "the label of every row equals the float64 machine's",
    "statistical": "labels agree at the stated rate on data like the calibration rows",
    "none": "measured, nothing promised",
}


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
