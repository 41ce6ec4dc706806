"""Build the stages of an approximating method, set their thresholds, and put them in front of the exact engine."""

from __future__ import annotations

import math
from time import perf_counter
from typing import Any, Final

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from svelto._inputs import Query, check_finite, make_query
from svelto._progress import steps
from svelto._typing import FloatArray, Rows
from svelto.calibrate import CalibrationRows, gather_rows, set_thresholds
from svelto.cascade import Cascade
from svelto.engines.certified import CertifiedTree, certify_leaves, check_certifiable
from svelto.engines.exact import ExactEngine, build_exact
from svelto.engines.taylor_tree import OPTION_NAMES, TreeOptions, build_taylor_tree, check_kernel, check_positive
from svelto.guarantee import Certificate
from svelto.machine import KernelMachine
from svelto.report import Report

# Dense float64 rows that a method is built on; more are sampled down to this many bytes.
MOST_BUILD_BYTES: Final = 2 * 2**30
# Rows that cascade and exact engine are timed on for the report, and how often.
TIMED_ROWS: Final = 4096
TIMED_REPEATS: Final = 3


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
    _check_machine(machine, method)
    tree_options = _tree_options(options)
    check_kernel(machine)
    if agreement == 1.0:
        check_certifiable(machine)
    if X is None:
        raise ValueError(
            f"method={method!r} learns from rows: pass X, unlabelled rows like those to come (the training rows will "
            "do)."
        )
    rows = _rows(machine, X, "X")
    given = None if X_calibration is None else _rows(machine, X_calibration, "X_calibration")
    _check_enough("X", rows, 5 if agreement is not None else 2)
    if given is not None:
        _check_enough("X_calibration", given, 2)
    seed = int(check_random_state(random_state).randint(2**31))
    dense = _dense_sample(rows, seed)
    if (dense == dense[0]).all():
        raise ValueError(f"All {len(dense)} rows of X are identical; expected rows like those to come.")
    exact = build_exact(machine)
    assert isinstance(exact, ExactEngine)
    _check_tolerance(machine, tolerance, agreement, exact, dense)
    with steps(f"svelto {method}") as progress:
        calibration: CalibrationRows | None = None
        certified = agreement == 1.0
        if agreement is not None and not certified:
            progress("calibration rows")
            calibration = gather_rows(machine, dense, given, 1.0 - agreement, confidence, seed, n_jobs)
        stage = build_taylor_tree(
            machine,
            dense if calibration is None else calibration.build,
            tree_options,
            lambda points: exact.scores(Query(points), n_jobs),
            with_errors=calibration is not None,
            seed=seed,
            n_jobs=n_jobs,
            progress=progress,
        )
        if certified:
            progress("proven bounds of the leaves")
            stage = certify_leaves(stage, dense, n_jobs)
        certificate: Certificate | None = None
        if calibration is not None:
            assert agreement is not None
            progress("thresholds")
            certificate = set_thresholds(machine, [stage], exact, calibration, agreement, confidence, tolerance, n_jobs)
    thresholds = [1.0 if certified else 0.0] if certificate is None else certificate.thresholds
    engine = Cascade(machine, [stage], thresholds, exact, tolerance)
    checked = dense if calibration is None else calibration.check
    report = _report(engine, method, certificate, calibration, checked, n_jobs, started, tolerance)
    return engine, report


def _report(
    engine: Cascade,
    method: str,
    certificate: Certificate | None,
    calibration: CalibrationRows | None,
    checked: Rows,
    n_jobs: int | None,
    started: float,
    tolerance: float | None,
) -> Report:
    machine, sample = engine.machine, checked[:TIMED_ROWS]
    work = engine.work(Query(sample), n_jobs)
    details: dict[str, Any] = {
        "kernel": str(machine.kernel),
        "support vectors": machine.n_sv,
        "features": machine.n_features,
        "leaves": engine.stages[0].n_leaves,
        "bytes": engine.nbytes,
    }
    if calibration is not None and certificate is not None:
        found = f"{calibration.support_share:.1%} of the support vectors found among them"
        details["calibration rows"] = f"{calibration.source}, {calibration.check.shape[0]} checked ({found})"
        details["disagreements among them"] = certificate.n_wrong
        details["thresholds"] = ", ".join(f"{t:.3g}" for t in certificate.thresholds)
        if tolerance is not None:
            details["tolerance"] = tolerance
    promise = "exact" if isinstance(engine.stages[0], CertifiedTree) else "none"
    if certificate is not None:
        promise = "exact" if all(t == math.inf for t in certificate.thresholds) else "statistical"
    return Report(
        method=method,
        promise=promise,
        agreement=None if certificate is None else 1.0 - certificate.n_wrong / certificate.n_rows,
        agreement_bound=None if certificate is None else certificate.bound,
        speedups={"exact engine": _speedup(engine, sample, n_jobs)},
        work={
            **{f"share settled by {name}": share for name, share in work["stages"].items()},
            "depth": work.get("depth_per_row", 0.0),
            "kernel evaluations a row": work["kernel_evaluations_per_row"],
        },
        build_seconds=perf_counter() - started,
        details=details,
    )


def _speedup(engine: Cascade, rows: Rows, n_jobs: int | None) -> float:
    """Time of the exact engine over time of the cascade on the same rows, interleaved."""
    query, ratios = Query(rows), []
    values = engine.machine.task == "regression"
    for _ in range(TIMED_REPEATS):
        begin = perf_counter()
        engine.exact.scores(query, n_jobs) if values else engine.exact.labels(query, n_jobs)
        middle = perf_counter()
        engine.scores(query, n_jobs) if values else engine.labels(query, n_jobs)
        ratios.append((middle - begin) / (perf_counter() - middle))
    return float(np.median(ratios))


def _tree_options(options: dict[str, Any]) -> TreeOptions:
    for name in options:
        if name not in OPTION_NAMES:
            raise TypeError(
                f"method='taylor_tree' has no option {name!r}; it has: {', '.join((*OPTION_NAMES, 'tolerance'))}."
            )
    return TreeOptions(**options)


def _check_machine(machine: KernelMachine, method: str) -> None:
    if machine.calibration is not None:
        raise NotImplementedError(
            f"method={method!r} answers with the machine's own labels; a CalibratedClassifierCV answers with the most "
            "probable class. Accelerate its inner estimator, or use method='exact'."
        )


def _check_enough(name: str, rows: Rows, least: int) -> None:
    if rows.shape[0] < least:
        raise ValueError(f"{name} has {rows.shape[0]} row(s); expected at least {least}, and thousands are better.")


def _check_tolerance(
    machine: KernelMachine, tolerance: Any, agreement: float | None, exact: ExactEngine, X: FloatArray
) -> None:
    if tolerance is not None:
        check_positive("tolerance", tolerance)
        if machine.task != "regression":
            raise ValueError(f"tolerance is {tolerance!r}, but the machine answers with labels; use agreement.")
    elif machine.task == "regression" and agreement is not None:
        spread = float(exact.scores(Query(np.ascontiguousarray(X[:1000]))).std())
        raise ValueError(
            "A regressor answers with values, so agreement needs a tolerance: the largest |error| that counts as "
            f"agreement. Pass tolerance=... (on X the values have a standard deviation of {spread:.3g}), or "
            "agreement=None for no promise."
        )


def _rows(machine: KernelMachine, X: Any, name: str) -> Rows:
    """Checked rows with the machine's front and scaling applied."""
    try:
        query = make_query(machine, X)
        rows = query.rows
        check_finite(rows, rows)
        if query.scale:
            assert machine.scaling is not None
            scaled = machine.scaling(np.asarray(rows, dtype=np.float64))
            check_finite(scaled, rows)
            return scaled
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None if name == "X" else error
    return rows


def _dense_sample(rows: Rows, seed: int) -> FloatArray:
    """Rows as dense float64, at random only as many as memory should hold."""
    most = max(2, MOST_BUILD_BYTES // (8 * rows.shape[1]))
    if rows.shape[0] > most:
        rows = rows[np.sort(np.random.default_rng(seed).choice(rows.shape[0], size=most, replace=False))]
    return np.ascontiguousarray(rows.toarray() if sparse.issparse(rows) else rows, dtype=np.float64)
