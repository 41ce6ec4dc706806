"""method="auto": the fastest predictor that keeps the promise, found by trying (`method_search`)."""

from __future__ import annotations

from typing import Any

from sklearn.utils import check_random_state

from svelto._progress import steps
from svelto.assemble import check_tolerance
from svelto.auto_options import AutoOptions
from svelto.machine import KernelMachine
from svelto.method_search import Search
from svelto.report import Report


def choose_engine(
    machine: KernelMachine,
    X: Any,
    *,
    agreement: float | None,
    confidence: float,
    X_calibration: Any,
    n_jobs: int | None,
    random_state: Any,
    options: AutoOptions,
) -> tuple[Any, Report]:
    """The engine of the fastest candidate, and its report."""
    search = Search(machine, options, agreement, confidence, n_jobs)
    if options.tolerance is not None:
        check_tolerance(machine, options.tolerance, agreement, search.exact, X)
    reason = _no_search(machine, X, options)
    if reason is None:
        seed = int(check_random_state(random_state).randint(2**31))
        with steps("svelto auto") as progress:
            try:
                reason = search.run(X, X_calibration, seed, progress)
            except KeyboardInterrupt:
                reason = "interrupted: the best of what had been tried"
    return search.result(reason)


def _no_search(machine: KernelMachine, X: Any, options: AutoOptions) -> str | None:
    """Why nothing but the exact engine comes into question, if so."""
    if machine.kernel.name == "linear":
        return "a linear machine is one product a score; nothing is faster"
    if machine.calibration is not None:
        return "a CalibratedClassifierCV answers with probabilities, which need exact scores"
    if X is None:
        return "no rows were given; pass X, rows like those to come, and faster methods are tried"
    if machine.task == "regression" and options.tolerance is None:
        return "a regressor answers with values; pass tolerance, the largest |error| that counts as agreement"
    return None
