"""Reports of engines: what they promise, what shows it, and what their rows cost."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Final

import numpy as np

from svelto._inputs import Query, n_rows_of
from svelto._typing import Rows
from svelto.calibrate import Calibrator
from svelto.cascade import Cascade
from svelto.engines.certified import CertifiedTree
from svelto.engines.exact import ExactEngine, ValueEngine
from svelto.engines.hinges import HingeStage
from svelto.engines.sv_tree import SVTree
from svelto.engines.taylor_tree import TaylorTree
from svelto.guarantee import Certificate
from svelto.machine import KernelMachine
from svelto.report import Report

# Rows that cascade and exact engine are timed on for the report, and how often.
TIMED_ROWS: Final = 4096
TIMED_REPEATS: Final = 3
# A Python kernel may take long: fewer rows, once.
TIMED_OBJECTS: Final = 64


def exact_report(machine: KernelMachine, engine: ExactEngine | ValueEngine, started: float) -> Report:
    """Facts about the exact engine."""
    return Report(
        method="exact",
        promise="exact",
        work={"kernel evaluations a row": 0 if machine.kernel.name == "linear" else machine.n_sv},
        score_error_bound=engine.score_bound if engine.score_tier == "float32" else 0.0,
        build_seconds=perf_counter() - started,
        details={
            "kernel": str(machine.kernel),
            "support vectors": machine.n_sv,
            "features": machine.n_features,
            "labels start in": engine.first_tier,
            "scores in": engine.score_tier,
            "instruction level": engine.level,
            "bytes": engine.nbytes,
        },
    )


def cascade_report(
    engine: Cascade,
    method: str,
    certificate: Certificate | None,
    calibrator: Calibrator | None,
    built_on: Rows,
    n_jobs: int | None,
    started: float,
) -> Report:
    """Facts about a cascade that was built on some rows; `started` is when its making began."""
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
            if stage.fit_seconds is not None:
                details[f"{stage.name}, seconds of training"] = round(stage.fit_seconds, 3)
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
        asked=None if calibrator is None else calibrator.agreement,
        agreement=None if certificate is None else 1.0 - certificate.n_wrong / certificate.n_rows,
        agreement_bound=None if certificate is None else certificate.bound,
        speedups={"exact engine": _speedup(engine, sample[:TIMED_OBJECTS] if objects else sample, n_jobs)},
        work={
            **{f"share settled by {name}": share for name, share in work["stages"].items()},
            **({} if engine.guard is None else {"share sent on by the guard": work["guarded"]}),
            **({"share on the guard's rim": work["rim"]} if "rim" in work else {}),
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
