"""Compare predictors of one trained SVC: labels first, then times.

Times are taken in one run, all sides in turn in an order drawn anew for each repeat, so that a slow moment of the
machine hits every side; ratios are formed within a repeat and their median is reported. The same way as
svelto/suite/timing.py, less what only the benchmarks need.

The baseline is `SVC.predict` in the form of the rows, dense or CSR, in which it is faster (`fastest_form`).
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.svm import SVC

import svelto
from svelto._typing import Rows
from svelto.predictor import Predictor
from svelto.reproduce._common import OtherLoad, Record
from svelto.reproduce._s0_data import SEED, Parts

Form: TypeAlias = Literal["dense", "csr"]
Labels: TypeAlias = NDArray[np.int64]
Result = TypeVar("Result")

BASELINE: Final = "SVC.predict"
# SVC.predict takes up to a millisecond a row; more rows would only take longer.
BASELINE_ROWS: Final = 2_000
CACHE_MEGABYTES: Final = 1_000
# The form is chosen on a small machine: the ratio of the two depends on the rows, not on the number of vectors.
TRIAL_TRAIN, TRIAL_TEST, TRIAL_TIMES = 2_000, 500, 3
# Short calls are repeated until they last this long together.
LEAST_SECONDS: Final = 0.02
# A thread that runs on another core is charged with its time at the kernel's ticks only, every 1 to 10 ms: a look must
# last longer than two of them.
QUIET_SHARE, QUIET_SECONDS, QUIET_PATIENCE = 0.1, 0.025, 0.5


class Built(NamedTuple):
    """A predictor and what was said while it was built."""

    predictor: Predictor
    warnings: list[str]


def build(svc: Any, X: Rows = None, **options: Any) -> Built:
    """`svelto.accelerate`, with its warnings kept instead of shown."""
    return Built(*with_warnings(lambda: svelto.accelerate(svc, X, random_state=SEED, **options)))


def with_warnings(call: Callable[[], Result]) -> tuple[Result, list[str]]:
    """What a call returns, and the texts of its warnings, which are not shown."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        result = call()
    return result, [str(warning.message) for warning in caught]


def as_form(X: Rows, form: Form) -> Rows:
    """Same rows as an array or as a CSR matrix."""
    if form == "csr":
        return sparse.csr_matrix(X)
    return X.toarray() if sparse.issparse(X) else X


def fastest_form(parts: Parts, gamma: float) -> Form:
    """Form of the rows in which `SVC.predict` is faster: best of a few times, taken in turns on a small machine."""
    order = np.random.default_rng(SEED).permutation(len(parts.y_train))
    train = order[:TRIAL_TRAIN]
    if len(np.unique(parts.y_train[train])) < 2:
        train = order
    forms: tuple[Form, Form] = ("dense", "csr")
    machines, best = {}, dict.fromkeys(forms, math.inf)
    for form in forms:
        machine = SVC(C=1.0, gamma=gamma).fit(as_form(parts.X_train[train], form), parts.y_train[train])
        machines[form] = machine, as_form(parts.X_test[:TRIAL_TEST], form)
    for _ in range(TRIAL_TIMES):
        for form, (machine, rows) in machines.items():
            best[form] = min(best[form], _seconds(lambda m=machine, r=rows: m.predict(r)))  # type: ignore[misc]
    return min(forms, key=best.__getitem__)


def compare(svc: SVC, form: Form, parts: Parts, sides: Mapping[str, Built], *, repeats: int) -> Record:
    """Accuracy, agreement, work and time of `sides`; the side "exact" must be among them.

    The exact engine's labels stand for the machine's on all test rows; on the rows timed they are compared with those
    of `SVC.predict`.
    """
    labels: Labels = sides["exact"].predictor.predict(parts.X_test)
    n_test = len(parts.y_test)
    chosen = np.sort(np.random.default_rng(SEED).choice(n_test, min(n_test, BASELINE_ROWS), replace=False))
    baseline_rows = as_form(parts.X_test[chosen], form)
    differences = int(np.count_nonzero(svc.predict(baseline_rows) != labels[chosen]))

    calls: dict[str, tuple[Callable[[], object], int]] = {BASELINE: (lambda: svc.predict(baseline_rows), len(chosen))}
    for name, side in sides.items():
        calls[name] = (lambda p=side.predictor: p.predict(parts.X_test), n_test)  # type: ignore[misc]
    load = OtherLoad()
    seconds = per_row_seconds(calls, repeats)
    other_cores = load.cores()
    return {
        "n_features": int(parts.X_train.shape[1]),
        "n_train": len(parts.y_train),
        "n_test": n_test,
        "n_sv": len(svc.support_),
        "C": float(svc.C),
        "gamma": float(svc.gamma),
        "accuracy": _percent(labels, parts.y_test),
        "form": "csr" if sparse.issparse(parts.X_test) else "dense",
        "baseline": {
            "form": form,
            "rows": len(chosen),
            "differences": differences,
            "seconds_per_row": float(np.median(seconds[BASELINE])),
        },
        "other_cores": other_cores,
        "sides": {name: _side(side, parts, labels, seconds, name) for name, side in sides.items()},
    }


def _side(side: Built, parts: Parts, labels: Labels, seconds: Mapping[str, Any], name: str) -> Record:
    predictor, report = side.predictor, side.predictor.report
    answers = predictor.predict(parts.X_test)
    work = predictor.work(parts.X_test)
    return {
        "accuracy": _percent(answers, parts.y_test),
        "agreement": float(np.mean(answers == labels)),
        "promise": report.promise,
        "calibrated_agreement": report.agreement,
        "agreement_bound": report.agreement_bound,
        "build_seconds": report.build_seconds,
        "stages": {stage: float(share) for stage, share in work["stages"].items()},
        "inner_nodes": None if work.get("depth_per_row") is None else float(work["depth_per_row"]),
        "seconds_per_row": float(np.median(seconds[name])),
        "gain": float(np.median(seconds[BASELINE] / seconds[name])),
        "gain_over_exact": float(np.median(seconds["exact"] / seconds[name])),
        "warnings": side.warnings,
    }


def _percent(answers: Labels, y: Labels) -> float:
    return 100.0 * float(np.mean(answers == y))


# -- time --------------------------------------------------------------------------------------------------------


def per_row_seconds(calls: Mapping[str, tuple[Callable[[], object], int]], repeats: int) -> dict[str, Any]:
    """Seconds a row of each call, one value for each repeat; calls come with their number of rows."""
    rng = np.random.default_rng(SEED)
    names = list(calls)
    loops = {name: _loops(call) for name, (call, _) in calls.items()}
    seconds = {name: np.empty(repeats) for name in names}
    for repeat in range(repeats):
        for position in rng.permutation(len(names)):
            name = names[position]
            call, n_rows = calls[name]
            wait_until_quiet()
            if loops[name] > 1:
                call()  # after a pause threads must be started or woken; a long call does not notice
            seconds[name][repeat] = _seconds(call, loops[name]) / n_rows
    return seconds


def _loops(call: Callable[[], object]) -> int:
    call()  # warm-up
    return math.ceil(LEAST_SECONDS / max(_seconds(call), 1e-7))


def _seconds(call: Callable[[], object], loops: int = 1) -> float:
    started = perf_counter()
    for _ in range(loops):
        call()
    return (perf_counter() - started) / loops


def wait_until_quiet() -> None:
    """Sleep until no thread of this process is spinning: some pools go on after their last call."""
    give_up = perf_counter() + QUIET_PATIENCE
    while perf_counter() < give_up:
        before = time.process_time()
        time.sleep(QUIET_SECONDS)
        if time.process_time() - before < QUIET_SHARE * QUIET_SECONDS:
            return
