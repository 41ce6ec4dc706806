"""Hinges beside our exact engine, a Taylor tree and SVC.predict: whether promises are kept, then ratios.

    python benchmarks/hinges.py --markdown docs/benchmarks/hinges.md

measures what bench-results/hinges.json does not hold yet, machine by machine: an interrupted run goes on where it was,
and machines measured by other code are measured again. `--only a9a`, `--kind tuned` and `--part guard` choose; `--page`
measures nothing and writes the page; `--train` trains all machines, `--tune` finds the tuned parameters.

Every method is built on the training rows (two threads) and asked about all test rows: agreement, and who settled what.
Times: the test set in one batch, repeated where it is small (`BATCH_ROWS`), on one and on two threads, in turns with
the exact engine and with SVC.predict, which knows one thread and gets a sample. One-row calls are timed apart. Part
"guard" asks about rows unlike the calibration data (_hinge_guard.py); data and parameters are in _hinge_cases.py.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from scipy import sparse

import svelto
from _cases import SEED, Case
from _environment import describe
from _hinge_cases import MACHINES, MODELS, SETS, load_machine, setting, tune
from _hinge_guard import GUARDED, measure_guard
from _hinge_tables import page, summary
from _tables import table
from _timing import interleave, spread, thread_count, timed
from approximate import one_row_latency
from svelto import _core
from svelto.reproduce._common import OtherLoad

METHODS: dict[str, dict[str, Any]] = {
    "hinges 0.999": {"method": "hinges", "agreement": 0.999},
    "hinges 0.9999": {"method": "hinges", "agreement": 0.9999},
    "taylor_tree 0.999": {"method": "taylor_tree", "agreement": 0.999},
}
PARTS = ("speed", "guard")
KINDS = ("default", "tuned", "sharp")
SVC_ROWS = 500
# Fewer test rows are repeated to about as many, so that a batch takes milliseconds.
BATCH_ROWS = 20_000
RESULTS = Path("bench-results/hinges.json")


def build_all(case: Case, methods: list[str]) -> tuple[dict[str, Any], dict[str, dict[str, Any]], dict[str, str]]:
    """Predictors by method; what building them was like; and why others could not be built."""
    built, facts, failed = {}, {}, {}
    for name in methods:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            started = perf_counter()
            try:
                fast = svelto.accelerate(case.svc, case.X_train, random_state=0, n_jobs=2, **METHODS[name])
            except Exception as error:  # one machine must not stop the others; the page and the exit status tell
                failed[name] = f"{type(error).__name__}: {error}"
                print(f"  {name}: {failed[name]}", file=sys.stderr, flush=True)
                continue
            seconds = perf_counter() - started
        details = fast.report.details
        fit = [value for key, value in details.items() if "seconds" in key and isinstance(value, float)]
        built[name] = fast
        facts[name] = {
            "method": name,
            "asked": METHODS[name]["agreement"],
            "promise": fast.report.promise,
            "bound": fast.report.agreement_bound,
            "hinges": details.get("hinges"),
            "details": {key: str(value) for key, value in details.items()},
            "warned": [str(warning.message) for warning in caught],
            "build_seconds": seconds,
            "fit_seconds": sum(fit) if fit else None,
            "bytes": fast.nbytes,
        }
    return built, facts, failed


def measure_speed(case: Case, built: dict[str, Any], repeats: int) -> dict[str, Any]:
    """Agreement, shares, times and ratios of every method, and what the exact engine and SVC.predict took."""
    n_test = case.X_test.shape[0]
    exact = svelto.accelerate(case.svc, method="exact")
    lines: dict[str, dict[str, Any]] = {}
    for name, fast in built.items():
        work = fast.work(case.X_test)
        wrong = int(np.sum(fast.predict(case.X_test) != case.labels))
        lines[name] = {
            "wrong": wrong,
            "agreement": 1.0 - wrong / n_test,
            "stages": work["stages"],
            "guarded": work.get("guarded"),
            "rim": work.get("rim"),
        }
    sample = np.sort(np.random.default_rng(SEED).choice(n_test, size=min(SVC_ROWS, n_test), replace=False))
    some, batch = case.X_test[sample], repeated(case.X_test)
    sides: dict[str, Callable[[], object]] = {"SVC.predict": lambda: case.svc.predict(some)}
    for name, predictor in {"exact": exact, **built}.items():
        for threads in (1, 2):
            own = copy.copy(predictor)
            own.n_jobs = threads
            sides[f"{name}, {threads}"] = lambda own=own: own.predict(batch)
    with thread_count(2):
        seconds = interleave({name: timed(call) for name, call in sides.items()}, repeats)
    svc = seconds["SVC.predict"][1] / len(sample)
    whole = {threads: seconds[f"exact, {threads}"][1] / batch.shape[0] for threads in (1, 2)}
    for name, line in lines.items():
        for threads in (1, 2):
            own_seconds = seconds[f"{name}, {threads}"][1] / batch.shape[0]
            line[f"us_row_{threads}"] = spread(own_seconds * 1e6)
            line[f"vs_exact_{threads}"] = spread(whole[threads] / own_seconds)
            line[f"vs_svc_{threads}"] = spread(svc / own_seconds)
    one = case.X_test[:256]
    one = np.ascontiguousarray(one.toarray() if sparse.issparse(one) else one, dtype=np.float64)
    latency = one_row_latency({**{name: fast.predict for name, fast in built.items()}, "exact": exact.predict}, one)
    for name, line in lines.items():
        line["one_row_us"] = spread(latency[name] * 1e6)
    return {
        "n_test": n_test,
        "batch": int(batch.shape[0]),
        "svc_us_row": spread(svc * 1e6),
        "exact_us_row": {str(threads): spread(whole[threads] * 1e6) for threads in (1, 2)},
        "exact_one_row_us": spread(latency["exact"] * 1e6),
        "exact_wrong": int(np.sum(exact.predict(case.X_test) != case.labels)),
        "lines": lines,
    }


def repeated(X: Any) -> Any:
    """The rows, as often as makes about `BATCH_ROWS`."""
    times = max(1, round(BATCH_ROWS / X.shape[0]))
    if times == 1:
        return X
    return sparse.vstack([X] * times, format="csr") if sparse.issparse(X) else np.tile(X, (times, 1))


@cache
def code_stamp() -> str:
    """Hash of the library that is measured: its Python files and native code."""
    files = sorted(Path(svelto.__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in [*files, Path(_core.__file__)])).hexdigest()[:12]


def missing_parts(record: dict[str, Any] | None, name: str, kind: str, given: argparse.Namespace) -> list[str]:
    """Parts asked for that are not measured yet, or with other code, parameters, methods or fewer repeats."""
    parts = [part for part in given.part or PARTS if part != "guard" or name in GUARDED]
    if record is None or given.again or record["setting"] != list(setting(name, kind)):
        return parts

    def is_there(part: str) -> bool:
        old = record.get(part)
        if old is None or old["code"] != code_stamp():
            return False
        wanted = set(given.methods) if part == "speed" else {m for m in given.methods if m.startswith("hinges")}
        refused = {method for method, reason in old["failed"].items() if reason.startswith("NotImplementedError")}
        return wanted <= {*old["methods"], *refused} and (part == "guard" or old["repeats"] >= given.repeats)

    return [part for part in parts if not is_there(part)]


def measure(
    name: str, kind: str, parts: list[str], record: dict[str, Any] | None, repeats: int, methods: list[str]
) -> Any:
    """The machine's record with these parts measured anew."""
    case = load_machine(name, kind)
    load, machine = OtherLoad(), case.machine
    if record is None or record["setting"] != list(setting(name, kind)):
        record = {"dataset": name, "kind": kind, "setting": list(setting(name, kind))}
    record |= {"n_sv": machine.n_sv, "d": machine.n_features, "n_scores": machine.n_scores, **case.parameters}
    built, facts, failed = build_all(case, methods if "speed" in parts else [m for m in methods if "hinges" in m])
    about = {"code": code_stamp(), "methods": list(built), "failed": failed, "environment": describe()}
    if "speed" in parts and built:
        speed = measure_speed(case, built, repeats)
        speed["lines"] = [facts[method] | speed["lines"][method] for method in built]
        record["speed"] = {**about, **speed, "repeats": repeats, "other_load": load.cores()}
    if "guard" in parts:
        hinges = {method: fast for method, fast in built.items() if "hinges" in method}
        record["guard"] = {**about, "methods": list(hinges), "lines": measure_guard(case, hinges)}
    return record


def say(record: dict[str, Any], parts: list[str]) -> None:
    """Print a line for each method."""
    for line in record["speed"]["lines"] if "speed" in parts and "speed" in record else ():
        shares = ", ".join(f"{stage} {share:.2%}" for stage, share in line["stages"].items())
        guarded = "" if line["guarded"] is None else f", guarded {line['guarded']:.2%}"
        print(
            f"  {line['method']}: {line['promise']}, {line['hinges'] or 'no'} hinges, agreement "
            f"{line['agreement']:.5f}; {shares}{guarded}; vs exact {line['vs_exact_1']['median']:.1f}x, "
            f"{line['vs_exact_2']['median']:.1f}x, vs SVC {line['vs_svc_1']['median']:,.0f}x, "
            f"{line['vs_svc_2']['median']:,.0f}x (1, 2 threads); one row {line['one_row_us']['median']:.1f} us; build "
            f"{line['build_seconds']:.1f} s",
            flush=True,
        )
    for line in record["guard"]["lines"] if "guard" in parts else ():
        print(
            f"  {line['method']}, {line['rows']}: {line['different']} of {line['n']} labels differ, guarded "
            f"{line['guarded'] or 0:.1%}, exact {line['exact']:.1%}",
            flush=True,
        )


def train_all(chosen: list[tuple[str, str]]) -> None:
    """Train what is not kept yet."""
    for name, kind in chosen:
        before, started = set(MODELS.glob("*.joblib")), perf_counter()
        case = load_machine(name, kind)
        how = "trained and asked for its labels" if set(MODELS.glob("*.joblib")) - before else "was kept"
        print(
            f"{name} {kind}: C={case.parameters['C']:g}, gamma={case.parameters['gamma']:.6g}, {case.machine.n_sv} SVs "
            f"of {case.X_train.shape[0]} rows, {case.X_test.shape[0]} test rows; {how}, "
            f"{perf_counter() - started:.0f} s",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=SETS, help="data sets; default: all")
    parser.add_argument("--kind", action="append", choices=KINDS, help="default: all")
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all")
    parser.add_argument(
        "--methods", action="append", choices=list(METHODS), help="default: all; a full run measures again"
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--again", action="store_true", help="measure anew what is there already")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--page", action="store_true", help="measure nothing")
    parser.add_argument("--train", action="store_true", help="only train the machines, and keep them")
    parser.add_argument("--tune", action="store_true", help="only print parameters from cross-validation")
    given = parser.parse_args()
    given.methods = given.methods or list(METHODS)
    chosen = [
        (name, kind)
        for name, kind in MACHINES
        if (not given.only or name in given.only) and (not given.kind or kind in given.kind)
    ]
    if given.tune:
        for name in given.only or SETS:
            C, factor, accuracy = tune(name)
            print(f'    "{name}": ({C}, {factor}),  # {accuracy:.4f}', flush=True)
        return 0
    if given.train:
        train_all(chosen)
        return 0
    results = json.loads(given.results.read_text()) if given.results.is_file() else {}
    for name, kind in [] if given.page else chosen:
        key = f"{name} {kind}"
        parts = missing_parts(results.get(key), name, kind, given)
        if not parts:
            print(f"{key}: measured before", flush=True)
            continue
        print(f"{key}: {', '.join(parts)}", flush=True)
        results[key] = measure(name, kind, parts, results.get(key), given.repeats, given.methods)
        say(results[key], parts)
        given.results.parent.mkdir(exist_ok=True)
        unfinished = given.results.with_suffix(".part")  # an interruption must not cost what was measured before
        unfinished.write_text(json.dumps(results, indent=1))
        unfinished.replace(given.results)
    records = [results[f"{name} {kind}"] for name, kind in MACHINES if f"{name} {kind}" in results]
    print(table(["", "measured", "target", ""], summary(records)))
    if given.markdown:
        only = "" if len(given.methods) == len(METHODS) else "".join(f' --methods "{m}"' for m in given.methods)
        command = f"python benchmarks/hinges.py{only} --markdown docs/benchmarks/hinges.md"
        given.markdown.write_text(page(records, len(MACHINES), command))
    failures = [m for r in records for part in PARTS for m in r.get(part, {}).get("failed", {}) if "hinges" in m]
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
