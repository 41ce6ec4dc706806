"""method="bounded" beside the exact engine: time, kernel evaluations saved, a dear kernel, and bounds that were tried.

    python benchmarks/bounded.py --markdown docs/benchmarks/bounded.md

    time          wall time in turns with method="exact", on one and on two threads
    evaluations   kernel evaluations saved on machines tuned for accuracy, beside the paper's bound
    callable      a kernel function that takes 50 microseconds a value: time follows the evaluations
    tried         bounds that were tried, by the evaluations they save when their own cost is counted

`--only` measures some of the parts; the others are taken from the file of results. C and gamma come from
cross-validation on training rows, or from _cases.py. The exit status is 1 where a label differs from the machine's.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

import _bounds
import svelto
from _bounds_cases import KERNELS, MODELS, SMALL_SETS, drawn, small_case, spirals
from _bounds_tables import markdown
from _cases import Case, load_case
from _environment import describe
from _timing import interleave, spread, thread_count, timed
from svelto._inputs import make_query
from svelto.kernels import Kernel
from svelto.reproduce._common import OtherLoad

THREADS = (1, 2)
# Values of C beside the tuned one: the ends of the grid that it was tuned on.
SPIRAL_COSTS = (1.0, 64.0)
# Data set, and whether its parameters are the tuned ones.
TIMED = (
    ("ijcnn1", False),
    ("ijcnn1", True),
    ("a9a", False),
    ("letter.scale", False),
    ("letter.scale", True),
    ("usps", False),
    ("pendigits", False),
    ("pendigits", True),
    ("satimage.scale", False),
    ("satimage.scale", True),
)

COUNTED = {
    "paper, as built": {"bound": "paper"},
    "paper, machines apart": {"bound": "paper", "shared": False},
    "references": {"bound": "references"},
    "projection": {"bound": "projection"},
    "auto": {"save": "evaluations"},
}
# Test rows that evaluations are counted on, where all of them would take more than a minute.
COUNTED_ROWS = {"letter.scale": 500}
# Kernel values in memory at a time.
PIECE_VALUES = 2_000_000

CALLABLE_SETS = ("segmentation", "ida_banana")
CALLABLE_ROWS, CALLABLE_REPEATS = 400, 3
VALUE_SECONDS = 50e-6

TRIED_ROWS = {"segmentation": 300, "optdigits": 150, "letter.scale": 40, "2SPIRAL": 100}


# -- time ------------------------------------------------------------------------------------------------------------


def timed_cases(names: list[str] | None) -> Iterator[Case]:
    if not names or "2SPIRAL" in names:
        tuned = spirals()
        yield tuned
        yield from (spirals(C) for C in SPIRAL_COSTS if tuned.parameters["C"] != C)
    for name, is_tuned in TIMED:
        if not names or name in names:
            yield load_case(name, tuned=is_tuned, folder=MODELS)


def measure_time(case: Case, n_rows: int | None, repeats: int) -> dict[str, Any]:
    """Both engines on all test rows in one call, in turns."""
    rows = drawn(case, n_rows)
    X, labels = case.X_test[rows], case.labels[rows]
    started = perf_counter()
    fast = svelto.accelerate(case.svc, case.X_train, method="bounded", random_state=0, n_jobs=2)
    build = perf_counter() - started
    exact = svelto.accelerate(case.svc, method="exact", n_jobs=2)
    details, work = fast.report.details, fast.work(X)
    line = {
        **about(case, rows),
        "lists": details.get("lists", 0),
        "lists_in_use": details["lists in use"] if "lists" in details else 0,
        "saved": 1.0 - work["kernel_evaluations_per_row"] / case.machine.n_sv,
        "settled": work["stages"].get("bounded", 0.0),
        "differences": int(np.count_nonzero(fast.predict(X) != labels)),
        "build_seconds": build,
        "bytes": fast.nbytes,
        "other_load": {},
    }
    for threads in THREADS:
        fast.n_jobs = exact.n_jobs = threads
        load = OtherLoad()
        with thread_count(threads):
            sides = {"exact": timed(lambda: exact.predict(X)), "bounded": timed(lambda: fast.predict(X))}
            seconds = interleave(sides, repeats)
        line["other_load"][str(threads)] = load.cores()
        line[f"ratio_{threads}"] = spread(seconds["exact"][1] / seconds["bounded"][1])
        line[f"exact_us_{threads}"] = spread(seconds["exact"][1] / len(rows) * 1e6)
        line[f"bounded_us_{threads}"] = spread(seconds["bounded"][1] / len(rows) * 1e6)
    return line


def about(case: Case, rows: np.ndarray) -> dict[str, Any]:
    """What a line of every table begins with."""
    return {
        "dataset": case.name,
        "kernel": case.machine.kernel.name,
        **case.parameters,
        "n_sv": case.machine.n_sv,
        "n_features": case.machine.n_features,
        "n_rows": len(rows),
        "n_test": int(case.X_test.shape[0]),
        "accuracy": float(np.mean(case.labels == case.y_test)),
    }


# -- evaluations -----------------------------------------------------------------------------------------------------


def measure_evaluations(case: Case, n_rows: int | None) -> dict[str, Any]:
    """Share of kernel evaluations that each bound saves."""
    rows = drawn(case, n_rows)
    X, labels = case.X_test[rows], case.labels[rows]
    line = {**about(case, rows), "bounds": {}, "differences": 0}
    for name, options in COUNTED.items():
        started = perf_counter()
        fast = svelto.accelerate(case.svc, case.X_train, method="bounded", random_state=0, n_jobs=2, **options)
        built = perf_counter()
        found, evaluations = count(fast, X)
        engine = fast._engine
        line["bounds"][name] = {
            "saved": 1.0 - evaluations / engine.method.classical_evaluations,
            "evaluations": evaluations,
            "classical": engine.method.classical_evaluations,
            "chosen": fast.report.details["bound"],
            "n_references": fast.report.details.get("references"),
            "build_seconds": built - started,
            "seconds": perf_counter() - built,
            "differences": int(np.count_nonzero(found != labels)),
        }
        line["differences"] += line["bounds"][name]["differences"]
        if name == "paper, as built":
            line["bounds"]["paper"] = count_paper(case, engine.method, rows)
            line["differences"] += line["bounds"]["paper"]["differences"]
    return line


def count_paper(case: Case, lists: Any, rows: np.ndarray) -> dict[str, Any]:
    """The same lists by definition: looked at after every vector, where the engine looks less often."""
    started, machine = perf_counter(), case.machine
    evaluations, differences = 0.0, 0
    for part in np.array_split(rows, max(1, len(rows) * machine.n_sv // PIECE_VALUES)):
        counts, found = _bounds.paper(_bounds.Machine(machine, case.X_test[part]), lists)
        evaluations += float(counts.sum()) / len(rows)
        differences += int(np.count_nonzero(machine.classes[machine.vote_order[found]] != case.labels[part]))
    return {
        "saved": 1.0 - evaluations / machine.n_sv,
        "evaluations": evaluations,
        "build_seconds": 0.0,
        "seconds": perf_counter() - started,
        "differences": differences,
    }


def count(fast: Any, X: Any) -> tuple[np.ndarray, float]:
    """Labels and kernel evaluations a row, from one pass over the rows."""
    machine = fast.machine
    found, tally = fast._engine.labels(make_query(machine, X), fast.n_jobs)
    return machine.classes[machine.vote_order[found]], tally.work()["kernel_evaluations_per_row"]


# -- callable --------------------------------------------------------------------------------------------------------


class DearKernel:
    """A Gaussian kernel whose every value takes `seconds`."""

    def __init__(self, gamma: float, seconds: float) -> None:
        self.gamma, self.seconds = gamma, seconds
        svelto.register_bound(
            self,
            profile=lambda t: np.exp(-gamma * np.square(t)),
            inverse=lambda v: np.sqrt(np.maximum(-np.log(v), 0.0) / gamma),
        )

    def __call__(self, X: Any, S: Any) -> np.ndarray:
        """Values of all pairs; busy until their time is over."""
        started = perf_counter()
        values = np.exp(-self.gamma * cdist(X, S, "sqeuclidean"))
        while perf_counter() < started + self.seconds * values.size:
            pass
        return values


def measure_callable(case: Case, n_rows: int | None, repeats: int, seconds: float) -> dict[str, Any]:
    """Time of the whole sum over that of the bounded one, beside the evaluations."""
    rows = drawn(case, n_rows)
    X, labels = case.X_test[rows], case.labels[rows]
    kernel = DearKernel(case.machine.kernel.gamma, seconds)
    machine = replace(case.machine, kernel=Kernel("callable", function=kernel))
    started = perf_counter()
    fast = svelto.accelerate(machine, case.X_train, method="bounded", random_state=0, n_jobs=1)
    build = perf_counter() - started
    exact = svelto.accelerate(machine, method="exact", n_jobs=1)
    found, evaluations = count(fast, X)
    load = OtherLoad()
    with thread_count(1):
        sides = {"exact": timed(lambda: exact.predict(X)), "bounded": timed(lambda: fast.predict(X))}
        times = interleave(sides, repeats)
    whole, own = times["exact"][1], times["bounded"][1]
    return {
        **about(case, rows),
        "value_us": seconds * 1e6,
        "bound": fast.report.details["bound"],
        "evaluations": evaluations,
        "evaluations_left": evaluations / machine.n_sv,
        "time_left": spread(own / whole),
        "ratio": spread(whole / own),
        "exact_ms": spread(whole / len(rows) * 1e3),
        "bounded_ms": spread(own / len(rows) * 1e3),
        "besides_us": spread(own / len(rows) * 1e6 - evaluations * seconds * 1e6),
        "build_evaluations": fast.report.details["kernel evaluations to build"],
        "build_seconds": build,
        "differences": int(np.count_nonzero(found != labels) + np.count_nonzero(exact.predict(X) != labels)),
        "other_load": {"1": load.cores()},
    }


# -- tried -----------------------------------------------------------------------------------------------------------


def measure_tried(case: Case, n_rows: int | None) -> dict[str, Any]:
    """Share of evaluations saved by every bound, its own cost counted."""
    rows = drawn(case, n_rows)
    X, labels = np.asarray(case.X_test[rows], dtype=np.float64), case.labels[rows]
    n_sv, n_features = case.machine.n_sv, case.machine.n_features
    line = {**about(case, rows), "bounds": {}, "differences": 0}

    def note(name: str, found: np.ndarray, evaluations: float) -> None:
        differences = int(np.count_nonzero(found != labels))
        line["bounds"][name] = {"saved": 1.0 - evaluations / n_sv, "differences": differences}
        line["differences"] += differences

    def build(bound: str) -> Any:
        return svelto.accelerate(case.svc, case.X_train, method="bounded", bound=bound, random_state=0, n_jobs=2)

    lists, references = build("paper")._engine.method, build("references")
    tried: dict[str, Callable[[_bounds.Machine], tuple[np.ndarray, np.ndarray]]] = {
        "paper": lambda m: _bounds.paper(m, lists),
        "triangle": lambda m: _bounds.triangle(m, lists),
        "best reference": lambda m: _bounds.best_reference(m, references._engine.method._method.references),
        **{f"balls of {n}": lambda m, n=n: _bounds.balls(m, n) for n in _bounds.BALL_SIZES},
        **{f"chords of {n}": lambda m, n=n: _bounds.chords(m, n) for n in _bounds.CHORD_SIZES},
        **{f"components {n}": lambda m, n=n: _bounds.subspace(m, n) for n in _bounds.COMPONENTS if n < n_features},
    }
    m = _bounds.Machine(case.machine, X)
    for name, bound in tried.items():
        counts, found = bound(m)
        note(name, case.machine.classes[case.machine.vote_order[found]], float(counts.mean()))
    blocks = build("blocks")
    work = blocks.work(X)
    note("blocks", blocks.predict(X), work["kernel_evaluations_per_row"] + work["dot_products_per_row"])
    note("projection", *count(build("projection"), X))
    note("references", *count(references, X))
    return line


# -- all parts -------------------------------------------------------------------------------------------------------


def fewer(rows: int | None, limit: int | None) -> int | None:
    """The smaller of two numbers of rows; None: all."""
    return min((n for n in (rows, limit) if n is not None), default=None)


def run_time(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for case in timed_cases(arguments.data):
        line = measure_time(case, arguments.rows, arguments.repeats)
        print(
            f"time: {case.name}, C {line['C']:g}, gamma {line['gamma']:.3g}: {line['lists_in_use']} of {line['lists']} "
            f"lists, {line['saved']:.1%} saved, exact / bounded {line['ratio_1']['median']:.2f} and "
            f"{line['ratio_2']['median']:.2f} (1, 2 threads), {line['differences']} labels differ",
            flush=True,
        )
        yield line


def run_evaluations(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for kernel in KERNELS:
        for name in SMALL_SETS:
            if arguments.data and name not in arguments.data:
                continue
            case = small_case(name, kernel)
            line = measure_evaluations(case, fewer(arguments.rows, COUNTED_ROWS.get(name)))
            shares = ", ".join(f"{key} {found['saved']:.1%}" for key, found in line["bounds"].items())
            seconds = sum(found["seconds"] + found["build_seconds"] for found in line["bounds"].values())
            print(
                f"evaluations: {name}, {kernel}: {shares}; {line['differences']} labels differ ({seconds:.0f} s)",
                flush=True,
            )
            yield line


def run_callable(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for name in CALLABLE_SETS:
        if arguments.data and name not in arguments.data:
            continue
        case = small_case(name, "rbf")
        rows = fewer(arguments.rows, CALLABLE_ROWS)
        line = measure_callable(case, rows, min(arguments.repeats, CALLABLE_REPEATS), VALUE_SECONDS)
        print(
            f"callable: {name}: {line['evaluations_left']:.1%} of the evaluations, {line['time_left']['median']:.1%} "
            f"of the time, {line['besides_us']['median']:.0f} us a row besides, {line['differences']} labels differ",
            flush=True,
        )
        yield line


def run_tried(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for name, rows in TRIED_ROWS.items():
        if arguments.data and name not in arguments.data:
            continue
        started = perf_counter()
        case = spirals() if name == "2SPIRAL" else small_case(name, "rbf")
        line = measure_tried(case, fewer(arguments.rows, rows))
        shares = ", ".join(f"{key} {found['saved']:.1%}" for key, found in line["bounds"].items())
        seconds = perf_counter() - started
        print(f"tried: {name}: {shares}; {line['differences']} labels differ ({seconds:.0f} s)", flush=True)
        yield line


PARTS = {"time": run_time, "evaluations": run_evaluations, "callable": run_callable, "tried": run_tried}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(PARTS), help="parts to measure; default: all")
    parser.add_argument("--data", action="append", help="data sets; default: all of each part")
    parser.add_argument("--rows", type=int, help="at most so many test rows, for a trial; default: each part's own")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--results", type=Path, default=Path("bench-results/bounded.json"))
    parser.add_argument("--markdown", type=Path)
    return parser.parse_args(arguments)


def read(path: Path) -> dict[str, Any]:
    """Results of earlier runs, by part."""
    return json.loads(path.read_text()) if path.is_file() else {}


def main(arguments: list[str]) -> int:
    chosen = parse(arguments)
    command = " ".join(["python benchmarks/bounded.py", *arguments])
    document = read(chosen.results)
    measured = chosen.only or list(PARTS)
    for part, run in PARTS.items():
        if part not in measured:
            continue
        started, load, place = perf_counter(), OtherLoad(), describe()
        lines = list(run(chosen))
        document = read(chosen.results)  # another run may have written its part meanwhile
        document[part] = {
            "environment": place,
            "command": command,
            "repeats": chosen.repeats,
            "seconds": perf_counter() - started,
            "other_load": load.cores(),
            "lines": lines,
        }
        chosen.results.parent.mkdir(parents=True, exist_ok=True)
        chosen.results.write_text(json.dumps(document, indent=1))
    if chosen.markdown:
        chosen.markdown.write_text(markdown({part: document[part] for part in PARTS if part in document}))
    return int(any(line["differences"] for part in measured for line in document[part]["lines"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
