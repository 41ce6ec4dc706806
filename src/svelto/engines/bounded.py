"""method="bounded": sums that stop when the rest cannot change the label (promise: exact; paper S3).

    bound           how the rest is bounded                                                 file
    "blocks"        distances from a region's centre; in blocks of support vectors          blocked_sum.py
    "paper"         S3 as printed: (10)-(11), (16)-(17), vector by vector                   distance_lists.py
    "references"    distances from several references at once; each row its own order       references.py
    "projection"    the part of the machine outside the span of the vectors evaluated       projection.py

"blocks" saves time and is meant for machines with thousands of support vectors and few features; where it does not
pay, it is the exact engine. The last two save kernel evaluations and are meant for kernels whose values are dear;
"auto" is one of them, whichever evaluates less on some probe rows, where evaluations are to be saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from time import perf_counter
from typing import Any, Final

import numpy as np
from sklearn.utils import check_random_state

from svelto._inputs import Query, checked_rows, dense_sample, make_query
from svelto._options import check_choice, check_whole
from svelto._progress import steps
from svelto.distance_bounds import bound_of
from svelto.engines.blocked_sum import BlockedSum
from svelto.engines.distance_lists import DistanceLists
from svelto.engines.exact import build_exact, prefers_postings
from svelto.engines.fewest import FewestEvaluations
from svelto.engines.stopped_sum import StoppedSum, StoppingMethod
from svelto.machine import KernelMachine
from svelto.report import Report

BOUNDS: Final = ("auto", "blocks", "paper", "references", "projection")
# Rows of X that the report counts kernel evaluations on.
COUNTED_ROWS: Final = 256


@dataclass(frozen=True)
class BoundedOptions:
    """Options of method="bounded".

    Attributes
    ----------
    bound : {"auto", "blocks", "paper", "references", "projection"}
        How the rest of the sum is bounded. "auto" is "blocks" where time is to be saved, and the better of "references"
        and "projection" where kernel evaluations are.
    save : {"time", "evaluations"} or None
        What "auto" saves. Default: time; evaluations for kernels that are Python functions.
    n_lists : int or None
        "paper": lists, default the number of classes. "blocks": regions, default by the number of support vectors.
    n_references : int or None
        "references": reference vectors; default by trial on probe rows.
    shared : bool
        "paper": whether the binary machines of a multi-class machine share their kernel values. False is the paper's
        way: each stops by itself, and evaluations are counted for each.
    """

    bound: str = "auto"
    save: str | None = None
    n_lists: int | None = None
    n_references: int | None = None
    shared: bool = True

    def __post_init__(self) -> None:
        check_choice("bound", self.bound, BOUNDS)
        check_choice("save", self.save, ("time", "evaluations", None))
        for name in ("n_lists", "n_references"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1, " or None")
        if not isinstance(self.shared, bool):
            raise ValueError(f"shared is {self.shared!r}; expected True or False.")


OPTION_NAMES: Final = tuple(field.name for field in fields(BoundedOptions))


def read_bounded_options(options: Mapping[str, Any]) -> BoundedOptions:
    """The options, checked."""
    for name in options:
        if name not in OPTION_NAMES:
            raise TypeError(f"method='bounded' has no option {name!r}; it has: {', '.join(OPTION_NAMES)}.")
    return BoundedOptions(**options)


def build_bounded(
    machine: KernelMachine, X: Any, options: Mapping[str, Any], n_jobs: int | None, random_state: Any
) -> tuple[BlockedSum | StoppedSum, Report]:
    """The engine and its report."""
    started = perf_counter()
    chosen = read_bounded_options(options)
    check_bounded(machine)
    bound = _which_bound(machine, chosen)
    seed = int(check_random_state(random_state).randint(2**31))
    rows = checked_rows(machine, X, "X") if X is not None and machine.kernel.has_native_code else None
    with steps("svelto bounded") as progress:
        progress(f"bounds: {bound}")
        engine: BlockedSum | StoppedSum
        if bound == "blocks":
            wanted = rows is not None and not prefers_postings(machine)  # very wide rows stay as they are
            dense = dense_sample(rows, seed) if wanted else None
            engine = BlockedSum(machine, dense, chosen.n_lists, seed)
        else:
            method: StoppingMethod
            if bound == "paper":
                method = DistanceLists(machine, chosen.n_lists, seed, shared=chosen.shared)
            else:
                method = FewestEvaluations(
                    machine, bound=bound, n_references=chosen.n_references, X=X, random_state=seed
                )
            engine = StoppedSum(method, build_exact(machine))
    return engine, _report(engine, machine, X, n_jobs, perf_counter() - started)


def check_bounded(machine: KernelMachine) -> None:
    """Refuse machines whose answer is not decided by the signs of sums over a kernel that decreases with distance."""
    if machine.task == "regression":
        raise NotImplementedError(
            "method='bounded' stops when the label is certain; this machine is a regressor and has no labels. Use "
            "method='exact'."
        )
    if machine.calibration is not None:
        raise NotImplementedError(
            "method='bounded' stops before the scores are known, but a CalibratedClassifierCV predicts from "
            "probabilities, which need them. Use method='exact', or accelerate the classifier inside."
        )
    width = int(machine.support_vectors.shape[1]) if machine.kernel.has_native_code else 0
    bound_of(machine.kernel, width)


def _which_bound(machine: KernelMachine, options: BoundedOptions) -> str:
    native = machine.kernel.has_native_code
    if options.bound in ("blocks", "paper") and not native:
        raise ValueError(
            f"bound={options.bound!r} needs vectors and the rbf, exponential or laplacian kernel; this machine has "
            f"{machine.kernel}. Use bound='auto', 'references' or 'projection'."
        )
    if options.bound != "auto":
        return options.bound
    save = options.save or ("time" if native else "evaluations")
    return "blocks" if save == "time" and native else "auto"


def _report(
    engine: BlockedSum | StoppedSum, machine: KernelMachine, X: Any, n_jobs: int | None, seconds: float
) -> Report:
    work: dict[str, Any] = {"kernel evaluations a row, whole sum": machine.n_sv}
    details: dict[str, Any] = {
        "kernel": str(machine.kernel),
        "support vectors": machine.n_sv,
        "features": machine.n_features,
    }
    if isinstance(engine, BlockedSum):
        details["bound"] = "blocks"
        if engine.is_bounding:
            details["lists"] = len(engine.enabled)
            details["lists in use"] = int(np.count_nonzero(engine.enabled))
            details["expected share of the whole sum's cost"] = engine.share
        else:
            details["lists in use"] = "none: they would settle too little, so the whole sum is taken at once"
    else:
        _describe_method(engine.method, details)
    if X is not None:
        query = make_query(machine, X)
        n = query.rows.shape[0] if hasattr(query.rows, "shape") else len(query.rows)
        sample = Query(query.rows[:COUNTED_ROWS] if n > COUNTED_ROWS else query.rows, query.scale)
        measured = engine.work(sample, n_jobs)
        work["kernel evaluations a row, on rows of X"] = measured["kernel_evaluations_per_row"]
    details["labels start in"] = engine.first_tier
    details["scores in"] = engine.score_tier
    details["instruction level"] = engine.level
    details["bytes"] = engine.nbytes
    return Report(
        method="bounded",
        promise="exact",
        work=work,
        score_error_bound=engine.score_bound if engine.score_tier == "float32" else 0.0,
        build_seconds=seconds,
        details=details,
    )


def _describe_method(method: Any, details: dict[str, Any]) -> None:
    if isinstance(method, DistanceLists):
        details["bound"] = "paper"
        details["lists"] = method.n_lists_
        details["kernel values shared by the binary machines"] = "yes" if method.shared else "no"
        details["kernel evaluations a row, classical"] = method.classical_evaluations
        return
    details["bound"] = method.bound_
    for name, value in (("references", method.n_references_), ("basis vectors", method.n_basis_)):
        if value is not None:
            details[name] = value
    details["kernel evaluations to build"] = method.build_evaluations_
