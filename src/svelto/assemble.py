"""Build the stages of an approximating method, set their thresholds, and put them in front of the exact engine."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from time import perf_counter
from typing import Any, Final, Literal

import numpy as np
from sklearn.utils import check_random_state

from svelto._inputs import Query, n_rows_of
from svelto._options import check_choice, check_positive
from svelto._progress import steps
from svelto._typing import Rows
from svelto.calibrate import Calibrator
from svelto.calibration_rows import gather_objects, gather_rows
from svelto.cascade import Cascade
from svelto.engines.certified import CertifiedTree, certify_leaves, check_certifiable, tree_share
from svelto.engines.exact import ExactEngine, ValueEngine, build_exact
from svelto.engines.hinges import HingeOptions, HingeStage, build_hinges, check_hinged
from svelto.engines.reduced_set import check_reducible
from svelto.engines.reduced_stage import ReducedSetOptions, build_reduced_set
from svelto.engines.sv_tree import SVTree, SVTreeOptions, check_served
from svelto.engines.sv_tree_build import build_sv_tree
from svelto.engines.taylor_tree import TaylorTree, TreeOptions, build_taylor_tree, check_kernel
from svelto.given_rows import read_rows
from svelto.guarantee import Certificate
from svelto.guard import Guard
from svelto.machine import KernelMachine
from svelto.oracle import FOR_HINGES, Neighbourhoods, oracle_rows
from svelto.report import Report
from svelto.stage_search import Options, find_stages

# Rows that cascade and exact engine are timed on for the report, and how often.
TIMED_ROWS: Final = 4096
TIMED_REPEATS: Final = 3
# A Python kernel may take long: fewer rows, once.
TIMED_OBJECTS: Final = 64
# Methods that a reduced set may follow.
FOLLOWED: Final = ("hinges", "taylor_tree")
OPTIONS: Final[dict[str, Any]] = {
    "taylor_tree": TreeOptions,
    "reduced_set": ReducedSetOptions,
    "sv_tree": SVTreeOptions,
    "hinges": HingeOptions,
}
BUILDERS: Final[dict[type, Any]] = {
    TreeOptions: build_taylor_tree,
    ReducedSetOptions: build_reduced_set,
    SVTreeOptions: build_sv_tree,
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
    options: dict[str, Any],
) -> tuple[Cascade, Report]:
    """The engine and its report for an approximating method."""
    started = perf_counter()
    tolerance = options.pop("tolerance", None)
    next_stage = options.pop("next_stage", "auto") if method in FOLLOWED else None
    check_choice("next_stage", next_stage, ("auto", "reduced_set", None))
    own = read_options(method, options)
    _check_machine(machine, own, agreement)
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
    _check_tolerance(machine, tolerance, agreement, exact, rows)
    if agreement == 1.0 and isinstance(own, TreeOptions):
        own = replace(own, max_bytes=tree_share(own.max_bytes, rows.shape[1], machine.n_scores))
    with steps(f"svelto {method}") as progress:
        calibrator: Calibrator | None = None
        guard: Guard | None = None
        near: Neighbourhoods | None = None
        if agreement is not None and agreement < 1.0:
            progress("calibration rows")
            calibration = (
                gather_rows(machine, rows, given, 1.0 - agreement, confidence, seed, n_jobs)
                if machine.kernel.has_native_code
                else gather_objects(machine, rows, given, 1.0 - agreement, confidence, seed)
            )
            rows, near, guard = calibration.build, calibration.near, calibration.guard
            calibrator = Calibrator(machine, exact, calibration, agreement, confidence, tolerance, n_jobs)

        @cache
        def oracle(wanted: int | Literal["auto"]) -> tuple[Any, Any]:
            """Rows that hinges of all sizes are fitted to, and their scores."""
            progress("scores of oracle rows")
            made = oracle_rows(machine, rows, wanted, seed, np.random.default_rng([seed, 7]), n_jobs, FOR_HINGES, near)
            return made, exact.scores(Query(made), n_jobs)

        def build(options: Options) -> Any:
            if isinstance(options, HingeOptions):
                known = oracle(options.oracle_rows)
                return build_hinges(
                    machine,
                    rows,
                    options,
                    *known,
                    with_errors=calibrator is not None,
                    seed=seed,
                    agreement=agreement,
                    progress=progress,
                    guard=guard,
                )
            stage = BUILDERS[type(options)](
                machine,
                rows,
                options,
                lambda points: exact.scores(Query(points), n_jobs),
                with_errors=calibrator is not None,
                seed=seed,
                n_jobs=n_jobs,
                progress=progress,
                **({} if isinstance(options, SVTreeOptions) else {"near": near}),
            )
            return stage if guard is None or not isinstance(stage, TaylorTree) else replace(stage, guard=guard)

        certificate = None
        if calibrator is not None:
            stages, certificate = find_stages(calibrator, own, next_stage, build)
        else:
            stages = [build(own)]
        if agreement == 1.0:
            progress("proven bounds of the leaves")
            stages = [certify_leaves(stages[0], rows, seed, n_jobs)]
    thresholds = [1.0 if agreement == 1.0 else 0.0] if certificate is None else certificate.thresholds
    if certificate is not None and certificate.is_exact:
        guard = None  # no stage is asked
    engine = Cascade(machine, stages, thresholds, exact, tolerance, guard)
    report = _report(engine, method, certificate, calibrator, rows, n_jobs, started)
    return engine, report


def read_options(method: str, options: dict[str, Any]) -> Options:
    """The options of a method, checked."""
    kind = OPTIONS[method]
    names = tuple(field.name for field in fields(kind))
    further = ("next_stage", "tolerance") if method in FOLLOWED else ("tolerance",)
    for name in options:
        if name not in names:
            raise TypeError(f"method={method!r} has no option {name!r}; it has: {', '.join((*names, *further))}.")
    checked: Options = kind(**options)
    return checked


def _report(
    engine: Cascade,
    method: str,
    certificate: Certificate | None,
    calibrator: Calibrator | None,
    built_on: Rows,
    n_jobs: int | None,
    started: float,
) -> Report:
    machine = engine.machine
    sample = (built_on if calibrator is None else calibrator.rows.check)[:TIMED_ROWS]
    work = engine.work(Query(sample), n_jobs)
    objects = not machine.kernel.has_native_code
    details: dict[str, Any] = {
        "kernel": str(machine.kernel),
        "support vectors": machine.n_sv,
    }
    if machine.n_features is not None:
        details["features"] = machine.n_features
    for stage in engine.stages:
        if isinstance(stage, TaylorTree | SVTree):
            details["leaves"] = stage.n_leaves
        elif isinstance(stage, HingeStage):
            details[stage.name] = stage.n_hinges
            if machine.n_classes > 2:
                details["hinges learned"] = "classes" if stage.by_class else "pair scores"
        else:
            details["basis vectors"] = stage.n_basis
    details["bytes"] = engine.nbytes
    promise = "exact" if isinstance(engine.stages[0], CertifiedTree) else "none"
    if calibrator is not None and certificate is not None:
        promise = "exact" if certificate.is_exact else "statistical"
        rows = calibrator.rows
        likeness = "unknown" if rows.support_share is None else f"{rows.support_share:.0%}"
        found = f"likeness of the rows to training rows {likeness}"
        details["calibration rows"] = f"{rows.source}, {n_rows_of(rows.check)} checked; {found}"
        details["disagreements among them"] = certificate.n_wrong
        if promise == "exact":
            details["note"] = (
                "the stages settle too little to pay, or no threshold could be shown to keep the promise; the exact "
                "engine answers every row"
            )
        details["thresholds"] = ", ".join(f"{t:.3g}" for t in certificate.thresholds)
        if engine.tolerance is not None:
            details["tolerance"] = engine.tolerance
    return Report(
        method=method,
        promise=promise,
        agreement=None if certificate is None else 1.0 - certificate.n_wrong / certificate.n_rows,
        agreement_bound=None if certificate is None else certificate.bound,
        speedups={"exact engine": _speedup(engine, sample[:TIMED_OBJECTS] if objects else sample, n_jobs)},
        work={
            **{f"share settled by {name}": share for name, share in work["stages"].items()},
            **({} if engine.guard is None else {"share sent on by the guard": work["guarded"]}),
            "dot products a row": work["dot_products_per_row"],
            "kernel evaluations a row": work["kernel_evaluations_per_row"],
        },
        build_seconds=perf_counter() - started,
        details=details,
    )


def _speedup(engine: Cascade, rows: Rows, n_jobs: int | None) -> float:
    """Time of the exact engine over time of the cascade on the same rows, interleaved."""
    query, ratios = Query(rows), []
    values = engine.machine.task == "regression"
    for _ in range(TIMED_REPEATS if engine.machine.kernel.has_native_code else 1):
        begin = perf_counter()
        engine.exact.scores(query, n_jobs) if values else engine.exact.labels(query, n_jobs)
        middle = perf_counter()
        engine.scores(query, n_jobs) if values else engine.labels(query, n_jobs)
        ratios.append((middle - begin) / (perf_counter() - middle))
    return float(np.median(ratios))


def _check_machine(machine: KernelMachine, options: Options, agreement: float | None) -> None:
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


def _check_tolerance(
    machine: KernelMachine, tolerance: Any, agreement: float | None, exact: ExactEngine | ValueEngine, X: Rows
) -> None:
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
