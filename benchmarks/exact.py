"""The exact engine against everything else that can answer for the same machine (exact: the same labels, always).

For each data set: labels first, on all test rows, against SVC.predict; then all sides in one interleaved run, for
batches of 1 row, 100 rows and all test rows, at each number of threads. Reported are time a row, the ratio of every
rival's time to svelto's (median and [10 %, 90 %] over repeats) and the share of the machine's peak. Nothing is left
out where svelto loses.

    python benchmarks/exact.py                    # all sets, LIBSVM's default parameters
    python benchmarks/exact.py --tuned --datasets ijcnn1 letter.scale
    python benchmarks/exact.py --quick            # one small set, seconds

Results: JSON (bench-results/exact.json) and, with --markdown, tables. Data sets come from $SVELTO_DATA or the LIBSVM
page.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from _cases import DATASETS, TUNED, Case, load_case
from _environment import describe
from _overheads import extra_memory, one_row_latency
from _peak import ideal_seconds, rates
from _rivals import BUILDERS, Side, build
from _tables import compact, into_readme, markdown
from _timing import Measure, interleave, spread, thread_count
from svelto.datasets import DatasetNotFoundError
from svelto.engines.exact import instruction_level
from svelto.reproduce._common import OtherLoad

RESULTS = Path(__file__).resolve().parent.parent / "bench-results"
QUICK_DATASETS = ["satimage.scale"]
BATCHES = {"1": 1, "100": 100, "all": sys.maxsize}
# Fewer repeats give no quantiles worth the name; more hardly narrow them.
REPEATS, QUICK_REPEATS = 15, 3
MAX_ROWS, QUICK_MAX_ROWS = 2000, 300


def run_case(
    case: Case,
    *,
    rivals: Sequence[str] = tuple(BUILDERS),
    threads: Sequence[int] = (1, 2),
    repeats: int = REPEATS,
    max_rows: int = MAX_ROWS,
    peak_seconds: float = 0.25,
    tick: Callable[[str], object] = lambda text: None,
) -> dict[str, Any]:
    """Compare all sides on one case.

    Parameters
    ----------
    case : Case
        Machine, test rows and SVC's labels.
    rivals : sequence of str
        Names from `BUILDERS`; svelto is always there.
    threads : sequence of int
        Thread counts.
    repeats : int
        Interleaved repeats.
    max_rows : int
        Rows that slow rivals are timed on.
    peak_seconds : float
        Time for measuring the peak rates at each thread count.
    tick : callable
        Told what begins.

    Returns
    -------
    dict
        For JSON.
    """
    machine = case.machine
    result: dict[str, Any] = {
        "dataset": case.name,
        "parameters": case.parameters,
        "form": "csr" if case.is_sparse else "dense",
        "n_sv": machine.n_sv,
        "n_features": machine.n_features,
        "n_classes": machine.n_classes,
        "n_train": case.X_train.shape[0],
        "n_test": case.X_test.shape[0],
        "accuracy": float(np.mean(case.labels == case.y_test)),
        "label_differences": {},
        "unavailable": {},
        "cells": [],
        "peak": {},
        "other_load": {},
        "share_of_peak": {},
    }
    for n_threads in threads:
        # Twice: oneDAL's threads can be set once the first build has loaded it.
        with thread_count(n_threads):
            tick(f"{case.name}: threads {n_threads}, labels")
            sides, missing = build(list(rivals), case, n_threads, max_rows)
        with thread_count(n_threads):
            result["unavailable"].update(missing)
            result["svelto"] = sides["svelto"].facts
            try:
                _compare_labels(result["label_differences"], sides, case)
                peak = rates(n_threads, instruction_level(), peak_seconds)
                result["peak"][str(n_threads)] = peak
                others = OtherLoad()
                for name, batch in BATCHES.items():
                    tick(f"{case.name}: threads {n_threads}, batch {name}")
                    n_rows = min(batch, case.X_test.shape[0])
                    cells, failures = _time_batch(sides, n_threads, name, n_rows, repeats)
                    result["cells"] += cells
                    result["unavailable"].update(failures)
                result["other_load"][str(n_threads)] = others.cores()
            finally:
                for side in sides.values():
                    side.close()
        if not case.is_sparse:
            ours = cells[0]["us_per_row"]["median"] * 1e-6 * case.X_test.shape[0]  # svelto on all rows
            result["share_of_peak"][str(n_threads)] = ideal_seconds(machine, case.X_test.shape[0], peak) / ours
    return result


def _compare_labels(differences: dict[str, Any], sides: dict[str, Side], case: Case) -> None:
    """Count the rows of which a side's label is not SVC's; the larger count of all thread counts is kept."""
    for name, side in sides.items():
        count = int(np.count_nonzero(side.labels() != case.labels[: side.n_rows]))
        before = differences.get(name, {"differences": 0})
        differences[name] = {"differences": max(count, before["differences"]), "rows": side.n_rows}


def _guarded(key: str, measure: Measure, failures: dict[str, str]) -> Measure:
    """A measure that notes a rival's failure and goes on: some rivals cannot take every row (such as an empty one)."""

    def guarded() -> tuple[float, float]:
        try:
            return measure()
        except Exception as error:
            if key == "svelto":
                raise
            failures[key] = f"failed: {type(error).__name__}: {error}"
            return np.nan, np.nan

    return guarded


def _time_batch(
    sides: dict[str, Side], n_threads: int, name: str, batch: int, repeats: int
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Cells of one batch size, and what went wrong with rivals that have none."""
    # svm-predict has one thread and starts processes: once is enough.
    timed_sides = {key: side for key, side in sides.items() if not side.only_all or (name == "all" and n_threads == 1)}
    failures: dict[str, str] = {}
    measures = {}
    for key, side in timed_sides.items():
        try:
            measures[key] = _guarded(key, side.measure(batch), failures)
        except Exception as error:
            if key == "svelto":
                raise
            failures[key] = f"failed: {type(error).__name__}: {error}"
    seconds = interleave(measures, repeats)
    timed_sides = {key: side for key, side in timed_sides.items() if key not in failures}
    per_row = {key: seconds[key] / min(batch, side.n_rows) for key, side in timed_sides.items()}
    cells = [
        {
            "side": key,
            "batch": name,
            "threads": n_threads,
            "own_threads": side.n_threads,
            "rows_timed": min(batch, side.n_rows),
            "us_per_row": spread(1e6 * per_row[key][1]),
            "ratio": spread(per_row[key][1] / per_row["svelto"][1]),
            "us_per_row_after_a_pause": spread(1e6 * per_row[key][0]),
            "ratio_after_a_pause": spread(per_row[key][0] / per_row["svelto"][0]),
            "note": side.note,
        }
        for key, side in timed_sides.items()
    ]
    return cells, failures


@contextlib.contextmanager
def progress(total: int) -> Iterator[Callable[[str], object]]:
    """Show what is going on, on stderr: a bar on a terminal, lines elsewhere."""
    try:
        if not sys.stderr.isatty():
            raise ImportError("no terminal, no bar")
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        yield lambda text: print(text, file=sys.stderr, flush=True)
        return
    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda text: bar.update(task, advance=1, description=text)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", metavar="NAME", help=f"default: {' '.join(DATASETS)}")
    parser.add_argument("--rivals", nargs="*", choices=list(BUILDERS), default=list(BUILDERS), help="default: all")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], metavar="N", help="default: 1 2")
    parser.add_argument("--tuned", action="store_true", help="tuned C and gamma instead of LIBSVM's defaults")
    parser.add_argument("--quick", action="store_true", help="one small data set, few repeats, no second process")
    parser.add_argument("--repeats", type=int, help=f"interleaved repeats (default {REPEATS}; quick: {QUICK_REPEATS})")
    parser.add_argument(
        "--max-rows", type=int, help=f"rows that slow rivals are timed on (default {MAX_ROWS}; quick: {QUICK_MAX_ROWS})"
    )
    parser.add_argument(
        "--json", type=Path, metavar="PATH", help="default: bench-results/exact.json (or exact-tuned.json)"
    )
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="write the tables there")
    parser.add_argument("--readme", type=Path, metavar="PATH", help="put the main table between this file's marks")
    options = parser.parse_args(arguments)
    options.datasets = options.datasets or (QUICK_DATASETS if options.quick else list(DATASETS))
    options.repeats = options.repeats or (QUICK_REPEATS if options.quick else REPEATS)
    options.max_rows = options.max_rows or (QUICK_MAX_ROWS if options.quick else MAX_ROWS)
    name = "exact" + ("-tuned" if options.tuned else "") + ("-quick" if options.quick else "")
    options.json = options.json or RESULTS / f"{name}.json"
    if min(options.threads) < 1 or options.repeats < 1 or options.max_rows < 2:
        parser.error("--threads and --repeats start at 1, --max-rows at 2.")
    if options.tuned and (unknown := [name for name in options.datasets if name not in TUNED]):
        parser.error(f"--tuned: no parameters for {', '.join(unknown)}; there are some for {', '.join(TUNED)}.")
    options.threads = sorted(set(options.threads))
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the compact table goes to stdout."""
    options = parse(arguments)
    command = "python benchmarks/exact.py " + " ".join(sys.argv[1:] if arguments is None else arguments)
    results: dict[str, Any] = {
        "environment": describe(),
        "options": {
            "command": command.strip(),
            "tuned": options.tuned,
            "threads": options.threads,
            "repeats": options.repeats,
            "max_rows": options.max_rows,
        },
        "cases": [],
        "skipped": {},
    }
    # Written after each data set: a run of many minutes that is stopped keeps what it has.
    options.json.parent.mkdir(parents=True, exist_ok=True)
    steps = len(options.datasets) * (1 + 4 * len(options.threads)) + 1
    with progress(steps) as tick:
        for name in options.datasets:
            tick(f"{name}: data and machine")
            try:
                case = load_case(name, tuned=options.tuned, folder=RESULTS / "models")
            except (DatasetNotFoundError, ValueError) as error:
                results["skipped"][name] = str(error)
                print(f"{name} is left out: {error}", file=sys.stderr)
                continue
            results["cases"].append(
                run_case(
                    case,
                    rivals=options.rivals,
                    threads=options.threads,
                    repeats=options.repeats,
                    max_rows=options.max_rows,
                    tick=tick,
                )
            )
            options.json.write_text(json.dumps(results, indent=1) + "\n")
        tick("overheads")
        results["one_row_latency"] = one_row_latency(max(options.repeats, REPEATS))
        results["extra_memory"] = extra_memory()
    options.json.write_text(json.dumps(results, indent=1) + "\n")
    if options.markdown:
        options.markdown.parent.mkdir(parents=True, exist_ok=True)
        options.markdown.write_text(markdown(results))
    if options.readme:
        options.readme.write_text(into_readme(options.readme.read_text(), results))
    print(report(results))
    return 0 if results["cases"] else 2


def report(results: dict[str, Any]) -> str:
    """Text for the terminal."""
    from _tables import head, overheads

    return "\n\n".join([head(results), compact(results), overheads(results)])


if __name__ == "__main__":
    sys.exit(main())
