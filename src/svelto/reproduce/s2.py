"""Tables 5.1 to 5.11 of paper S2, run again: decision trees of linear SVMs beside RBF machines.

For every data set and both ways of scaling (`SCALES`): an RBF machine with LIBSVM's default parameters and a tuned one,
each asked through SVC.predict and through svelto's exact engine; the paper's tree with greedy level 0 and 1
(`PAPER_TREE`); svelto's linear tree (``tail=None``); and, on standardised rows,
svelto's tree with the tuned machine as its tail. Trees promise nothing about another machine: what they reach is
measured.

Times of all of these are taken in turns, with one thread and with ``n_jobs``; SVC.predict has one by nature.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from threadpoolctl import threadpool_limits

from svelto.reproduce import _s2_render
from svelto.reproduce._common import Experiment, OtherLoad, Record, Request
from svelto.reproduce._measure import BASELINE_ROWS, fastest_form, per_row_seconds
from svelto.reproduce._paper_s2 import SCALES
from svelto.reproduce._s0_data import SEED, Parts
from svelto.reproduce._s2_data import SOURCES, PaperSet, n_splits
from svelto.reproduce._s2_lines import TREES
from svelto.reproduce._s2_machines import Rbf, scaled, train_rbf, train_tree, tree_plans, tune
from svelto.reproduce._tables import Say, run_table

REPEATS: Final = 5
# Powers of two: C itself, gamma counted from the typical distance (`_s3_machines.Trainer.gamma`).
GRID: Final[Record] = {"C_powers": [0, 2, 4, 6, 8], "steps": [-2, 0, 1, 2, 3, 4, 6]}
# Training time grows with C: 20,000 rows are trained on eight times, a tree's cross-validation included.
GRIDS: Final[dict[str, Record]] = {"covtype": {**GRID, "C_powers": [0, 2, 4]}}
CV_ROWS: Final = 3_000
CV_FOLDS: Final = 5
# Who is timed against whom: SVC.predict and the exact engine, each with both machines.
RIVALS: Final = tuple(f"{engine} {name}" for engine in ("svc", "exact") for name in ("default", "tuned"))

Calls = dict[str, tuple[Callable[[], object], int]]


def run_tables5(request: Request) -> list[Path]:
    """All data sets that are public, and those that stand in for the others."""

    def settings(name: str) -> Record:
        return {
            "seed": SEED,
            "splits": n_splits(name, request.splits),
            "repeats": request.repeats or REPEATS,
            "n_jobs": request.n_jobs,
            "baseline_rows": BASELINE_ROWS,
            "grids": {"rbf": GRIDS.get(name, GRID)},
            "cv_rows": CV_ROWS,
            "cv_folds": CV_FOLDS,
        }

    return run_table(request, "s2-tables5", list(SOURCES), settings, measure_set, _s2_render.render_tables5)


def measure_set(name: str, settings: Record, say: Say) -> Record:
    """Measure one data set, all splits, both ways of scaling."""
    paper_set = PaperSet(name)
    splits: list[Record] = []
    for split in range(settings["splits"]):
        parts = paper_set.parts(split)
        record = {}
        for scale, title in SCALES.items():
            of = f"split {split + 1} of {settings['splits']}, {title}, "
            record[scale] = measure_split(parts, scale, settings, lambda text, of=of: say(of + text))  # type: ignore[misc]
        splits.append(record)
    n_train, n_features = parts.X_train.shape
    return {
        "n_features": n_features,
        "n_train": n_train,
        "n_test": len(parts.y_test),
        "n_classes": len(np.unique(parts.y_train)),
        "splits": splits,
    }


def measure_split(parts: Parts, scale: str, settings: Record, say: Say) -> Record:
    """Train and measure everything on one split with one way of scaling."""
    scaler, scaled_parts = scaled(parts, scale)
    say("cross-validation")
    parameters = {
        "default": {"C": 1.0, "gamma": 1.0 / parts.X_train.shape[1]},
        "tuned": tune(scaled_parts.X_train, parts.y_train, settings, say),
    }
    say("choosing dense or sparse rows for SVC.predict")
    form = fastest_form(scaled_parts, parameters["default"]["gamma"])
    calls: Calls = {}
    sides: Record = {}
    for name, chosen in parameters.items():
        say(f"training the RBF machine with C = {chosen['C']:g}, gamma = {chosen['gamma']:.3g}")
        rbf = train_rbf(parts, scaler, scaled_parts, form, chosen, settings)
        sides[name] = rbf.record
        calls |= _rbf_calls(name, rbf, parts)
    for name, options in tree_plans(scale, parameters["tuned"]).items():
        say(f"training: {TREES[name]}")
        tree, sides[name] = train_tree(parts, options, settings["n_jobs"])
        calls[name] = (lambda tree=tree: tree.predict(parts.X_test), len(parts.y_test))  # type: ignore[misc]
    load = OtherLoad()
    times = {}
    for n_threads in sorted({1, settings["n_jobs"]}):
        say(f"predicting with {n_threads} threads")
        times[str(n_threads)] = timed(calls, n_threads, settings["repeats"])
    return {"sides": sides, "times": times, "other_cores": load.cores()}


def _rbf_calls(name: str, rbf: Rbf, parts: Parts) -> Calls:
    return {
        f"svc {name}": (lambda: rbf.svc.predict(rbf.baseline_rows), rbf.baseline_rows.shape[0]),
        f"exact {name}": (lambda: rbf.exact.predict(parts.X_test), len(parts.y_test)),
    }


def timed(calls: Mapping[str, Any], n_threads: int, repeats: int) -> Record:
    """Seconds a row of every call, and how many times longer each rival takes."""
    # The limit holds for the tail of a tree too, which has its threads from `fit`.
    with threadpool_limits(n_threads, user_api="openmp"):
        seconds = per_row_seconds(calls, repeats)
    return {
        name: {
            "seconds_per_row": float(np.median(own)),
            "over": {rival: float(np.median(seconds[rival] / own)) for rival in RIVALS if rival != name},
        }
        for name, own in seconds.items()
    }


TABLES5: Final = Experiment("s2-tables5", frozenset({"only", "splits", "repeats", "resume"}), run_tables5)
