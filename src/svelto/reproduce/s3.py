"""Tables 2 and 3 and Figures 2 and 3 of paper S3, run again: sums that stop when the label is certain.

The method of the paper is `DistanceLists(shared=False)`: each binary machine walks along the list by itself, and the
evaluations are added up. Beside it stand the same bound with kernel values shared by all binary machines, and svelto's
own bounds (`method="bounded", save="evaluations"`).

The paper gives neither C nor sigma, neither scaling nor strategy, and the saving depends on all of them. So each data
set is measured on a grid, the map: every C and gamma, one against the rest and one against one, raw and scaled
features. The "tuned" machine of a map is the one that cross-validation on the training rows chooses. Test rows choose
nothing; where the paper's figures lie on the map is looked up afterwards.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

import svelto
from svelto import accelerate
from svelto._inputs import Query
from svelto.engines.distance_lists import DistanceLists
from svelto.reproduce import _paper_s3, _s3_figure, _s3_render
from svelto.reproduce._common import Experiment, Record, Request, choose
from svelto.reproduce._s0_data import SEED, Parts
from svelto.reproduce._s3_data import SOURCES, load_parts
from svelto.reproduce._s3_machines import KERNELS, STRATEGIES, KernelName, Trainer, draw
from svelto.reproduce._s3_signs import sign_evaluations
from svelto.reproduce._tables import Say, run_table


class Grid(NamedTuple):
    """Powers of two: C itself, gamma counted from the typical distance (`Trainer.gamma`)."""

    C_powers: tuple[int, ...]
    steps: tuple[int, ...]


# Wide enough for the paper's shares, as far as they can be reached. Sharp kernels take time: up to ten seconds a point
# with optdigits, two minutes with letter, where C matters little (30.7 % saved with C = 1 and 28.9 % with C = 16 at the
# third step).
DEFAULT_GRID: Final[dict[KernelName, Grid]] = {
    "rbf": Grid((0, 4, 8, 12), (-4, -2, 0, 2, 4, 6, 8, 10)),
    "exponential": Grid((0, 4, 8, 12), (-4, -2, 0, 2, 3, 4, 5, 6)),
}
GRIDS: Final[dict[tuple[str, KernelName], Grid]] = {
    ("optdigits", "rbf"): Grid((0, 4, 8), (-4, -2, 0, 2, 3, 4, 5, 6)),
    ("optdigits", "exponential"): Grid((0, 4, 8), (-4, -2, 0, 1, 2, 3, 4, 5)),
    ("letter", "rbf"): Grid((4,), (1, 2, 3, 4, 5)),
    ("letter", "exponential"): Grid((4,), (0, 1, 2, 3, 4)),
}
CV_ROWS: Final = 6_000
CV_FOLDS: Final = 3
# svelto's bounds choose each row's own order of vectors, which takes milliseconds a row; machines of more than ten
# thousand vectors take minutes to build.
BOUNDS_ROWS: Final = 500
TUNED_BOUNDS_ONLY: Final = ("letter",)
# Figures 2 and 3 show "a reduced set" of test samples of this set.
FIGURE_SET: Final = ("optdigits", "raw")
FIGURE_ROWS: Final = 200

# A unit of measurement: a data set in one form of its features.
UNITS: Final = {
    f"{name} ({features})": (name, features) for name, source in SOURCES.items() for features in source.features
}


# -- Tables 2 and 3 ----------------------------------------------------------------------------------------------


def run_table2(request: Request) -> list[Path]:
    """Gaussian kernel."""
    return _run_map(request, "s3-table2", "rbf", "s3-figure2.png")


def run_table3(request: Request) -> list[Path]:
    """Exponential kernel."""
    return _run_map(request, "s3-table3", "exponential", "s3-figure3.png")


def _run_map(request: Request, experiment: str, kernel: KernelName, picture: str) -> list[Path]:
    _s3_figure.need_matplotlib()
    names = choose(experiment, list(SOURCES), request.only)

    def settings(unit: str) -> Record:
        return {**grid_settings(request, UNITS[unit][0]), "kernel": kernel, "bounds_rows": BOUNDS_ROWS}

    asked = tuple(unit for unit, (name, _) in UNITS.items() if name in names) if request.only else ()
    request = dataclasses.replace(request, only=asked)
    files = run_table(request, experiment, list(UNITS), settings, measure_map, _s3_render.render_map)
    return files + _s3_figure.draw_evaluations(files[0], request.output / picture)


def grid_settings(request: Request, name: str) -> Record:
    """Settings that every measurement of a data set has."""
    grids = {kernel: GRIDS.get((name, kernel), DEFAULT_GRID[kernel]) for kernel in KERNELS}
    return {
        "seed": SEED,
        "n_jobs": request.n_jobs,
        "grids": {
            kernel: {"C_powers": list(grid.C_powers), "steps": list(grid.steps)} for kernel, grid in grids.items()
        },
        "cv_rows": CV_ROWS,
        "cv_folds": CV_FOLDS,
    }


def measure_map(unit: str, settings: Record, say: Say) -> Record:
    """Measure a data set: cross-validation, the map, and more about the machines that the page shows."""
    name, features = UNITS[unit]
    parts = load_parts(name, features)
    kernel: KernelName = settings["kernel"]
    trainer = Trainer(parts.X_train, parts.y_train, kernel, settings["n_jobs"])
    cv = tune(trainer, settings, say)
    points: list[Record] = []
    machines: list[svelto.KernelMachine] = []
    grid = settings["grids"][kernel]
    for step in grid["steps"]:
        gamma = trainer.gamma(step)
        say(f"kernel values, gamma = 2^{step} / typical distance")
        gram = trainer.gram(gamma)
        for strategy in STRATEGIES:
            machine, limit = None, 0.0
            for power in grid["C_powers"]:
                say(f"C = 2^{power}, gamma = 2^{step} / typical distance, {_s3_render.MACHINES[strategy]}")
                if machine is None or is_limited(machine, limit):
                    machine = trainer.fit(strategy, gram, 2.0**power, gamma)
                    measured = measure_point(machine, parts, settings)
                limit = 2.0**power
                place = {"strategy": strategy, "C_power": power, "step": step, "gamma": gamma}
                points.append({**place, "cv_accuracy": cv[power, step], **measured})
                machines.append(machine)
        del gram
    paper = (_paper_s3.TABLE2 if kernel == "rbf" else _paper_s3.TABLE3)[name]
    shown: Record = {}
    for strategy in STRATEGIES:
        own = [i for i, point in enumerate(points) if point["strategy"] == strategy]
        at = {"tuned": own[best([points[i] for i in own])], "nearest": own[nearest([points[i] for i in own], paper)]}
        for which, i in at.items():
            shown[f"{strategy} {which}"] = {"point": i}
            if which == "tuned" or name not in TUNED_BOUNDS_ONLY:
                say(f"other bounds, {_s3_render.MACHINES[strategy]}, {which}")
                shown[f"{strategy} {which}"] |= measure_bounds(machines[i], parts, settings)
    record: Record = {
        "name": name,
        "features": features,
        "n_train": len(parts.y_train),
        "n_test": len(parts.y_test),
        "n_features": int(parts.X_train.shape[1]),
        "n_classes": len(trainer.classes),
        "unit": trainer.unit,
        "majority": majority(parts),
        "points": points,
        "shown": shown,
    }
    if kernel != "rbf":
        record["rbf"] = measure_rbf(parts, settings, say)
    if (name, features) == FIGURE_SET:
        record["figure"] = measure_figure(machines[shown["rest tuned"]["point"]], parts, settings)
    return record


def majority(parts: Parts) -> float:
    """Accuracy of a machine that always gives the most frequent label of the training rows."""
    labels, counts = np.unique(parts.y_train, return_counts=True)
    return 100.0 * float(np.mean(parts.y_test == labels[counts.argmax()]))


def is_limited(machine: svelto.KernelMachine, C: float) -> bool:
    """Whether a weight has reached C. Where none has, a larger C gives the same machine, within the solver's tolerance.

    (Weights are multipliers of the training rows with the sign of their class.)
    """
    return bool(np.abs(machine.dual_coef).max() >= C)


def tune(trainer: Trainer, settings: Record, say: Say) -> dict[tuple[int, int], float]:
    """Accuracy by cross-validation at every point of the grid, from training rows alone."""
    grid = settings["grids"][trainer.kernel]
    powers, found = grid["C_powers"], {}
    for step in grid["steps"]:
        say(f"cross-validation, {trainer.kernel} kernel, gamma = 2^{step} / typical distance")
        all_C = [2.0**power for power in powers]
        shares = trainer.cross_validate(trainer.gamma(step), all_C, settings["cv_rows"], settings["cv_folds"])
        found.update({(power, step): share for power, share in zip(powers, shares, strict=True)})
    return found


def best(points: list[Record]) -> int:
    """Index of the point that cross-validation chooses: of equal ones the smaller C, then the smaller gamma."""
    return max(
        range(len(points)),
        key=lambda i: (points[i]["cv_accuracy"], -points[i]["C_power"], -points[i]["step"]),
    )


def nearest(points: list[Record], paper: _paper_s3.Line) -> int:
    """Index of the point most like the paper's: evaluations of the classical method, among points of its saved share.

    A point has the paper's share within `SHARE_SLACK`; where none has, the point of the nearest share is taken.
    """
    near = [i for i, point in enumerate(points) if abs(point["saved"] - paper.saved) <= _s3_render.SHARE_SLACK]
    if not near:
        return min(range(len(points)), key=lambda i: abs(points[i]["saved"] - paper.saved))
    return min(near, key=lambda i: abs(np.log(points[i]["classical"] / paper.classical_per_row)))


def measure_point(machine: svelto.KernelMachine, parts: Parts, settings: Record) -> Record:
    """Accuracy, and the evaluations a row that the paper's method needs."""
    labels = exact_labels(machine, parts, settings)
    counted, _ = count(machine, parts, labels, settings, shared=False)
    return {"n_sv": machine.n_sv, "accuracy": 100.0 * float(np.mean(labels == parts.y_test)), **counted}


def exact_labels(machine: svelto.KernelMachine, parts: Parts, settings: Record) -> Any:
    """Labels of the float64 machine."""
    return accelerate(machine, method="exact", n_jobs=settings["n_jobs"]).predict(parts.X_test)


def count(
    machine: svelto.KernelMachine,
    parts: Parts,
    labels: Any,
    settings: Record,
    *,
    shared: bool,
    n_lists: int | None = None,
) -> tuple[Record, Any]:
    """Kernel evaluations a row of the distance lists, and labels that differ from the machine's.

    "signs": until the sign of every binary machine is certain, the paper's count, row by row in the second result.
    "saved_apart": the same, with the lists' first vectors counted for every machine. "labels": until the label is
    certain. Rows that rounding leaves open go to the exact engine: they
    count as evaluated twice, in the list and in full.
    """
    assert machine.classes is not None
    assert machine.vote_order is not None
    lists = DistanceLists(machine, n_lists=n_lists, random_state=SEED, shared=shared)
    found, evaluations = lists.labels(Query(parts.X_test), settings["n_jobs"])
    is_open, classical = found < 0, lists.classical_evaluations
    answers = np.where(is_open, labels, machine.classes[machine.vote_order[found]])
    evaluations = evaluations + is_open * classical
    record = {
        "n_lists": lists.n_lists_,
        "classical": classical,
        "labels": float(evaluations.mean()),
        "saved_labels": saved(evaluations, classical),
        "open": int(np.count_nonzero(is_open)),
        "differences": int(np.count_nonzero(answers != labels)),
    }
    if not shared:
        if machine.rule == "argmax":
            evaluations, apart = sign_evaluations(lists, parts.X_test, settings["n_jobs"])
            record["saved_apart"] = saved(apart, classical)
        record |= {"signs": float(evaluations.mean()), "saved": saved(evaluations, classical)}
    return record, evaluations


def saved(evaluations: Any, classical: float) -> float:
    """Share of evaluations that was not needed, in percent."""
    return float(100.0 * (1.0 - np.mean(evaluations) / classical))


def measure_bounds(machine: svelto.KernelMachine, parts: Parts, settings: Record) -> Record:
    """Kernel values shared by all binary machines, on some test rows: the paper's bound, and svelto's."""
    rows = draw(len(parts.y_test), settings["bounds_rows"])
    parts = parts._replace(X_test=parts.X_test[rows], y_test=parts.y_test[rows])
    labels = exact_labels(machine, parts, settings)
    fast = accelerate(
        machine, parts.X_train, method="bounded", save="evaluations", n_jobs=settings["n_jobs"], random_state=SEED
    )
    evaluations = float(fast.work(parts.X_test)["kernel_evaluations_per_row"])
    return {
        "rows": len(rows),
        "shared": count(machine, parts, labels, settings, shared=True)[0],
        "svelto": {
            "bound": str(fast.report.details["bound"]),
            "labels": evaluations,
            "saved_labels": saved(evaluations, machine.n_sv),
            "differences": int(np.count_nonzero(fast.predict(parts.X_test) != labels)),
        },
    }


def measure_rbf(parts: Parts, settings: Record, say: Say) -> Record:
    """Evaluations a row of the tuned machine with the Gaussian kernel, for "saved vs. RBF"."""
    trainer = Trainer(parts.X_train, parts.y_train, "rbf", settings["n_jobs"])
    power, gamma, _ = chosen(trainer, settings, say)
    gram = trainer.gram(gamma)
    record: Record = {}
    for strategy in STRATEGIES:
        machine = trainer.fit(strategy, gram, 2.0**power, gamma)
        record[strategy] = measure_point(machine, parts, settings)
    return record


def chosen(trainer: Trainer, settings: Record, say: Say) -> tuple[int, float, float]:
    """Power of C, gamma and accuracy of the point that cross-validation chooses."""
    cv = tune(trainer, settings, say)
    points: list[Record] = [
        {"C_power": power, "step": step, "cv_accuracy": share} for (power, step), share in cv.items()
    ]
    point = points[best(points)]
    return point["C_power"], trainer.gamma(point["step"]), point["cv_accuracy"]


def measure_figure(machine: svelto.KernelMachine, parts: Parts, settings: Record) -> Record:
    """Evaluations of some test rows, fewest first, for Figures 2 and 3."""
    labels = exact_labels(machine, parts, settings)
    record, evaluations = count(machine, parts, labels, settings, shared=False)
    rows = draw(len(evaluations), FIGURE_ROWS)
    return {"classical": record["classical"], "bounded": np.sort(evaluations[rows]).tolist()}


TABLE2: Final = Experiment("s3-table2", frozenset({"only", "resume"}), run_table2)
TABLE3: Final = Experiment("s3-table3", frozenset({"only", "resume"}), run_table3)
