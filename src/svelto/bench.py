"""All methods on one machine and one set of rows: who keeps which promise, how fast, at what cost.

Half of the rows, drawn at random, is what methods are built on; the others are asked about. Times are medians of
passes in turns with the exact engine, which everything is compared with.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any, Final

import numpy as np

from svelto._typing import Rows
from svelto.accelerate import METHODS, accelerate, check_request
from svelto.machine import KernelMachine
from svelto.predictor import Predictor
from svelto.report import Report
from svelto.stopwatch import Stopwatch

# "auto" last: the others show what it had to choose from.
ALL_METHODS: Final = (*(method for method in METHODS if method != "auto"), "auto")
LEAST_ROWS: Final = 20
CONFIDENCE: Final = 0.95
COLUMNS: Final = ("method", "promise", "agreement", "us a row", "times exact", "MB", "build s", "")


@dataclass(frozen=True)
class Line:
    """One method's figures.

    Attributes
    ----------
    method : str
        The method; for "auto" with the one it chose.
    promise : str
        What its labels are worth; empty where it could not be built.
    agreement : float
        Share of labels that are the exact machine's, on rows that it was not built on (values: within the tolerance).
    microseconds : float
        Time of a row.
    speedup : float
        Time of the exact engine over its own.
    nbytes : int
        Bytes of its arrays.
    build_seconds : float
        Time of `accelerate`.
    note : str
        Why it could not be built, or what it warned of.
    """

    method: str
    promise: str = ""
    agreement: float = float("nan")
    microseconds: float = float("nan")
    speedup: float = float("nan")
    nbytes: int = 0
    build_seconds: float = float("nan")
    note: str = ""

    def cells(self) -> tuple[str, ...]:
        """Texts of a table's row."""
        if not self.promise:
            return (self.method, *[""] * 6, self.note)
        return (
            self.method,
            self.promise,
            f"{self.agreement:.5f}",
            f"{self.microseconds:.3g}",
            f"{self.speedup:.3g}",
            f"{self.nbytes / 1e6:.3g}",
            f"{self.build_seconds:.3g}",
            self.note,
        )

    def facts(self) -> dict[str, Any]:
        """For JSON, which knows no NaN."""
        facts = asdict(self).items()
        return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in facts}


class _Asked:
    """A predictor behind the interface that a stopwatch asks."""

    def __init__(self, predictor: Predictor) -> None:
        self.labels = self.scores = lambda query, n_jobs: predictor.predict(query.rows)


def bench(
    machine: KernelMachine,
    X: Rows,
    *,
    methods: Sequence[str] = ALL_METHODS,
    agreement: float | None = 0.999,
    tolerance: float | None = None,
    batch_size: int | None = None,
    n_jobs: int | None = None,
    seed: int = 0,
    tell: Callable[[Line], None] = lambda line: None,
) -> tuple[list[Line], Report | None]:
    """Build and measure methods one after the other; `tell` gets each line. Also the report of "auto", if it is there.

    Parameters
    ----------
    machine : KernelMachine
        The machine.
    X : array or CSR matrix
        Rows like those to come.
    methods : sequence of str
        Methods, in the order of the table.
    agreement, tolerance, n_jobs
        As for `accelerate`.
    batch_size : int, optional
        Rows of a call; default: all at once.
    seed : int
        Of the halves, and of methods that draw.
    tell : callable
        Called with every line as soon as it is known.

    Returns
    -------
    lines : list of Line
    report : Report or None
    """
    n = X.shape[0]
    if n < LEAST_ROWS:
        raise ValueError(f"There are {n} rows; expected at least {LEAST_ROWS}, and thousands are better.")
    if tolerance is not None and machine.task != "regression":
        raise ValueError(f"tolerance is {tolerance!r}, but the machine answers with labels; use agreement.")
    for method in methods:
        check_request(method, agreement, CONFIDENCE, n_jobs, {})
    order = np.random.default_rng(seed).permutation(n)
    known, new = X[np.sort(order[: n // 2])], X[np.sort(order[n // 2 :])]
    values = machine.task == "regression"
    exact = accelerate(machine, method="exact", n_jobs=n_jobs)
    truth = exact.predict(new)
    watch = Stopwatch(new, batch_size, n_jobs, values=values)
    lines, report = [], None
    for method in methods:
        options: dict[str, Any] = {}
        if values and tolerance is not None and method not in ("exact", "bounded"):
            options["tolerance"] = tolerance
        if method == "auto":
            options["batch_size"] = batch_size
        begun = perf_counter()
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                fast = accelerate(
                    machine,
                    known,
                    method=method,
                    agreement=agreement,
                    confidence=CONFIDENCE,
                    n_jobs=n_jobs,
                    random_state=seed,
                    **options,
                )
        except (ValueError, NotImplementedError) as error:
            lines.append(Line(method, note=str(error)))
            tell(lines[-1])
            continue
        seconds = perf_counter() - begun
        whole, own = watch.times([_Asked(exact), _Asked(fast)])
        found = fast.predict(new)
        if values:
            right = float(np.mean(np.abs(found - truth) <= (tolerance or 0.0)))
        else:
            right = float(np.mean(found == truth))
        if method == "auto":
            report = fast.report
        lines.append(
            Line(
                method=method if method != "auto" else f"auto: {fast.report.method}",
                promise=fast.report.promise,
                agreement=right,
                microseconds=1e6 * own,
                speedup=whole / own,
                nbytes=fast.nbytes,
                build_seconds=seconds,
                note=str(caught[0].message) if caught else "",
            )
        )
        tell(lines[-1])
    return lines, report
