"""Build the stages of an approximating method, set their thresholds, and put them in front of the exact engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from time import perf_counter
from typing import Any, Final

from sklearn.utils import check_random_state

from svelto._inputs import Query
from svelto._options import check_choice, check_positive
from svelto._progress import steps
from svelto._typing import Rows
from svelto.cascade import Cascade
from svelto.engine_reports import cascade_report
from svelto.engines.certified import check_certifiable
from svelto.engines.exact import ExactEngine, ValueEngine, build_exact
from svelto.engines.hinges import HingeOptions, check_hinged
from svelto.engines.reduced_set import check_reducible
from svelto.engines.reduced_stage import ReducedSetOptions
from svelto.engines.sv_tree import SVTreeOptions, check_served
from svelto.engines.taylor_tree import TreeOptions, check_kernel
from svelto.given_rows import read_rows
from svelto.machine import KernelMachine
from svelto.report import Report
from svelto.stage_search import Options
from svelto.workshop import Workshop

# Methods that a reduced set may follow.
FOLLOWED: Final = ("hinges", "taylor_tree")
OPTIONS: Final[dict[str, Any]] = {
    "taylor_tree": TreeOptions,
    "reduced_set": ReducedSetOptions,
    "sv_tree": SVTreeOptions,
    "hinges": HingeOptions,
}


def assemble(
    machine: KernelMachine,
    X: Any,
    *,
    method: str,
    agreement: float | None,
    confidence: float,
    X_calibration: Any,
    n_jobs: int | None,
    random_state: Any,
    options: Mapping[str, Any],
) -> tuple[Cascade, Report]:
    """The engine and its report for an approximating method."""
    started = perf_counter()
    own, tolerance, next_stage = read_options(method, options)
    check_machine(machine, own, agreement)
    if agreement is not None and agreement < 1.0 and confidence == 1.0:
        raise ValueError(
            "confidence is 1.0; a statistical promise needs a number below 1 (0.95, 0.99). For certainty use "
            "agreement=1.0 or method='exact'."
        )
    if X is None:
        raise ValueError(
            f"method={method!r} learns from rows: pass X, unlabelled rows like those to come (of vectors the training "
            "rows will do)."
        )
    seed = int(check_random_state(random_state).randint(2**31))
    rows, given = read_rows(machine, X, X_calibration, method, seed, least=5 if agreement is not None else 2)
    exact = build_exact(machine)
    check_tolerance(machine, tolerance, agreement, exact, rows)
    with steps(f"svelto {method}") as progress:
        workshop = Workshop(machine, exact, rows, agreement, tolerance, seed, n_jobs, progress)
        if agreement is not None and agreement < 1.0:
            workshop.calibrate(given, confidence)
        engine, certificate = workshop.cascade(own, next_stage)
    return engine, cascade_report(engine, method, certificate, workshop.calibrator, workshop.rows, n_jobs, started)


def read_options(method: str, options: Mapping[str, Any]) -> tuple[Options, Any, str | None]:
    """A method's own options, checked; the tolerance, which only the machine can say more about; and what follows."""
    kind = OPTIONS[method]
    names = tuple(field.name for field in fields(kind))
    further = ("next_stage", "tolerance") if method in FOLLOWED else ("tolerance",)
    for name in options:
        if name not in (*names, *further):
            raise TypeError(f"method={method!r} has no option {name!r}; it has: {', '.join((*names, *further))}.")
    next_stage = options.get("next_stage", "auto") if method in FOLLOWED else None
    check_choice("next_stage", next_stage, ("auto", "reduced_set", None))
    own: Options = kind(**{name: value for name, value in options.items() if name in names})
    return own, options.get("tolerance"), next_stage


def check_machine(machine: KernelMachine, options: Options, agreement: float | None) -> None:
    """Refuse a machine that the method of these options cannot serve at this agreement."""
    method = next(name for name, kind in OPTIONS.items() if isinstance(options, kind))
    if machine.calibration is not None:
        raise NotImplementedError(
            f"method={method!r} answers with the machine's own labels; a CalibratedClassifierCV answers with the most "
            "probable class. Accelerate its inner estimator, or use method='exact'."
        )
    if isinstance(options, TreeOptions):
        check_kernel(machine)
        if agreement == 1.0:
            check_certifiable(machine)
        return
    if isinstance(options, SVTreeOptions):
        check_served(machine, options)
    elif isinstance(options, HingeOptions):
        check_hinged(machine, options)
    else:
        check_reducible(machine)
    if agreement == 1.0:
        raise NotImplementedError(
            f"agreement=1.0 needs a proven bound, which method={method!r} does not have. Use method='taylor_tree' (rbf "
            "kernel), method='exact', or agreement=0.9999."
        )


def check_tolerance(
    machine: KernelMachine, tolerance: Any, agreement: float | None, exact: ExactEngine | ValueEngine, X: Rows
) -> None:
    """Refuse a tolerance that makes no sense for the machine, or none where it is needed."""
    if tolerance is not None:
        check_positive("tolerance", tolerance)
        if machine.task != "regression":
            raise ValueError(f"tolerance is {tolerance!r}, but the machine answers with labels; use agreement.")
    elif machine.task == "regression" and agreement is not None:
        spread = float(exact.scores(Query(X[:1000])).std())
        raise ValueError(
            "A regressor answers with values, so agreement needs a tolerance: the largest |error| that counts as "
            f"agreement. Pass tolerance=... (on X the values have a standard deviation of {spread:.3g}), or "
            "agreement=None for no promise."
        )
