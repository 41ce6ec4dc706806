"""Figures out of records: who took how long, and how many times as long as another in the same round."""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.stats import binomtest

from svelto.suite.measure import Record
from svelto.suite.own import SINGLES

# "Many" support vectors, for medians and for the README.
MANY: Final = 1_000
# The test of a broken promise: how seldom chance alone may call it broken.
LEVEL: Final = 0.01


def title(record: Record) -> str:
    """Name of a machine."""
    return f"{record['dataset']} {record['kind']}"


def line_of(record: Record, name: str) -> Record | None:
    """What was measured of a contender."""
    return next((line for line in record["lines"] if line["name"] == name), None)


def cell_of(record: Record, name: str, batch: str = "all", threads: int = 2) -> Record | None:
    """Its times."""
    line = line_of(record, name)
    cells = () if line is None else line["cells"]
    return next((cell for cell in cells if (cell["batch"], cell["threads"]) == (batch, threads)), None)


def ratio(record: Record, name: str, other: str, batch: str = "all", threads: int = 2) -> float | None:
    """How many times as long as `other` a contender takes: median of the ratios within rounds."""
    above, below = cell_of(record, name, batch, threads), cell_of(record, other, batch, threads)
    if above is None or below is None:
        return None
    return float(np.median(np.array(above["us_rounds"]) / np.array(below["us_rounds"])))


def shows_promise(line: Record) -> bool:
    """Whether a predictor could show the agreement that was asked for; with few rows only exact ones can."""
    if line["promise"] == "exact":
        return True
    return line["promise"] == "statistical" and line["bound"] is not None and line["bound"] >= line["asked"]


def best_single(record: Record, threads: int = 2) -> str | None:
    """The fastest of svelto's methods that shows the promise, all rows in one call."""
    times = {}
    for name in SINGLES:
        line, cell = line_of(record, name), cell_of(record, name, "all", threads)
        if line is not None and cell is not None and shows_promise(line):
            times[name] = cell["us_row"]
    return min(times, key=times.__getitem__) if times else None


def over_best(record: Record, threads: int = 2) -> float | None:
    """Time of "auto" over that of the best single method."""
    best = best_single(record, threads)
    return None if best is None else ratio(record, "auto", best, "all", threads)


def is_below(record: Record) -> bool:
    """Whether "auto" disagrees on more test rows than it promised."""
    line = line_of(record, "auto")
    if line is None:
        return False
    allowed = 0.0 if line["promise"] == "exact" else (1.0 - line["asked"]) * record["n_test"]
    return bool(line["wrong"] > allowed)


def is_surely_below(record: Record) -> bool:
    """Whether that can hardly be chance; an exact promise leaves nothing to chance."""
    line = line_of(record, "auto")
    if line is None or not is_below(record):
        return False
    if line["promise"] == "exact":
        return True
    test = binomtest(line["wrong"], record["n_test"], 1.0 - line["asked"], alternative="greater")
    return bool(test.pvalue < LEVEL)


def number(value: float | None) -> str:
    """Three digits, without exponents; a dash for nothing."""
    if value is None:
        return "-"
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}" if value >= 0.095 else f"{value:.2g}"


def percent(value: float | None, digits: int = 2) -> str:
    """A share; a dash for nothing."""
    return "-" if value is None else f"{100.0 * value:.{digits}f} %"


def size(value: int) -> str:
    """Bytes, for people."""
    return f"{value / 1e6:.3g} MB" if value >= 1e6 else f"{value / 1e3:.3g} kB"
