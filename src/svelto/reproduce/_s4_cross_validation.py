"""Table 1 of paper S4, run again: SVM, KNNSVC and LocalSVC on 13 small sets with four kernels.

Ten outer folds, the same for every machine and kernel, give ten accuracies. Parameters are chosen anew in each of them,
by 10-fold cross-validation of its nine tenths of training rows (`_s4_selection`); the rows held out are seen once, by
the chosen machine. Scaling is learned on the nine tenths as well.

The RBF kernel is exp(-|x - z|^2 / sigma), so gamma = 1 / sigma; HPOL is (x.z)^degree and IPOL (x.z + 1)^degree.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from sklearn.svm import SVC

from svelto._typing import FloatArray, IntArray
from svelto.reproduce import _s4_table1_render
from svelto.reproduce._common import Experiment, OtherLoad, Record, Request
from svelto.reproduce._measure import with_warnings
from svelto.reproduce._s0_data import SEED
from svelto.reproduce._s4_selection import SEARCH, Grid, Point, Race, Selection, kernel_of_point
from svelto.reproduce._s4_small_sets import SMALL_SETS, scaled, small_rows, stratified_folds
from svelto.reproduce._tables import Say, run_table
from svelto.training.knn_svc import KNNSVC
from svelto.training.local import LocalSVC

KERNELS: Final = ("LIN", "RBF", "HPOL", "IPOL")
N_OUTER: Final = 10

PAPER_GRID: Final = Grid(
    k=(1, 3, 5, 7, 9, 11, 15, 23, 39, 71, 135, 263, 519),
    C=(1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 150.0, 300.0, 500.0),
    sigma=tuple(2.0**e for e in range(-10, 11)),
    degree=(1, 2, 3, 4, 5),
)
# KNNSVC has an SVM for every held-out row: the paper's grid would take several times the time of all the rest.
LAZY_GRID: Final = PAPER_GRID._replace(
    k=PAPER_GRID.k[:-2], C=(1.0, 10.0, 100.0), sigma=tuple(2.0**e for e in range(-10, 11, 2))
)
QUICK_GRID: Final = Grid(
    k=(5, 15, 39, 135), C=(1.0, 10.0, 100.0), sigma=tuple(2.0**e for e in range(-9, 10, 3)), degree=(1, 2, 3)
)
N_INNER, N_INNER_QUICK = 10, 5
# Most steps of the solver for the SVM of a neighbourhood, in the selection and in LocalSVC itself: some problems of the
# grid would take millions. SVMs on all rows are few: more in the selection, and no limit that matters when chosen.
STEPS: Final = 5_000
STEPS_OF_ALL: Final = 50_000
STEPS_OF_CHOSEN: Final = 1_000_000


def run_table1(request: Request) -> list[Path]:
    """All sets; the files of --quick bear another name, so that they do not replace those of the paper's grid."""
    lazy, grid, n_inner = (QUICK_GRID, QUICK_GRID, N_INNER_QUICK) if request.quick else (LAZY_GRID, PAPER_GRID, N_INNER)
    shared: Record = {
        "seed": SEED,
        "n_jobs": request.n_jobs,
        "n_outer": N_OUTER,
        "n_inner": n_inner,
        "steps": STEPS,
        "steps_of_all": STEPS_OF_ALL,
        "grids": {name: _as_lists(g) for name, g in (("SVM", grid), ("KNNSVC", lazy), ("LocalSVC", grid))},
    }

    def settings(name: str) -> Record:
        return {"file": SMALL_SETS[name].file, "scaling": SMALL_SETS[name].scaling, **shared}

    experiment = "s4-table1-quick" if request.quick else "s4-table1"
    return run_table(request, experiment, list(SMALL_SETS), settings, measure_set, _s4_table1_render.render_table1)


def _as_lists(grid: Grid) -> Record:
    """A grid as JSON gives it back, so that settings can be compared."""
    return {name: list(values) for name, values in grid._asdict().items()}


def measure_set(name: str, settings: Record, say: Say) -> Record:
    """Choose, train and ask all machines in all folds."""
    X, codes = small_rows(name)
    load, started = OtherLoad(), time.perf_counter()
    outer = stratified_folds(codes, settings["n_outer"], np.random.RandomState(settings["seed"]))
    grids = {machine: Grid(**values) for machine, values in settings["grids"].items()}
    accuracy: dict[str, dict[str, list[float]]] = {kernel: {m: [] for m in grids} for kernel in KERNELS}
    chosen: dict[str, dict[str, list[Record]]] = {kernel: {m: [] for m in grids} for kernel in KERNELS}
    said: list[str] = []
    for fold in range(settings["n_outer"]):
        train, test = scaled(X[outer != fold], X[outer == fold], settings["scaling"])
        y_train, y_test = codes[outer != fold], codes[outer == fold]
        inner = stratified_folds(y_train, settings["n_inner"], np.random.RandomState(settings["seed"] + 1 + fold))
        limits = settings["steps"], settings["steps_of_all"]
        selection = Selection(train, y_train, inner, settings["seed"], *limits, settings["n_jobs"])
        linear: dict[str, Race] = {}
        for kernel in KERNELS:
            say(f"fold {fold + 1} of {settings['n_outer']}, {kernel}")
            races = selection.choose(kernel, grids, linear)
            linear = races if kernel == "LIN" else linear
            for machine, race in races.items():
                assert race.point is not None
                model = machine_of(machine, kernel, race.point, len(train), settings)
                labels, warned = with_warnings(partial(_labels, model, train, y_train, test))
                accuracy[kernel][machine].append(float((labels == y_test).mean()))
                chosen[kernel][machine].append({**race.point._asdict(), "errors": race.errors})
                said += [f"{kernel}, {machine}: {text}" for text in warned]
    return {
        "n_rows": len(X),
        "n_features": X.shape[1],
        "n_classes": int(codes.max()) + 1,
        "accuracy": accuracy,
        "chosen": chosen,
        "seconds": time.perf_counter() - started,
        "warnings": said,
        "other_cores": load.cores(),
    }


def _labels(model: Any, train: FloatArray, y_train: IntArray, test: FloatArray) -> Any:
    return model.fit(train, y_train).predict(test)


def machine_of(machine: str, kernel: str, point: Point, n_train: int, settings: Record) -> Any:
    """The public class, with the parameters that were chosen."""
    values = {"C": point.C, **kernel_of_point(kernel, point.degree, point.sigma)}
    if machine == "SVM":
        return SVC(max_iter=STEPS_OF_CHOSEN, **values)
    values |= {"k": n_train if point.k is None else point.k, "neighbors": SEARCH, "n_jobs": settings["n_jobs"]}
    if machine == "KNNSVC":
        return KNNSVC(**values)
    most_steps = STEPS_OF_CHOSEN if point.k is None else settings["steps"]
    return LocalSVC(random_state=settings["seed"], max_iter=most_steps, **values)


TABLE1: Final = Experiment("s4-table1", frozenset({"only", "resume", "quick"}), run_table1)
