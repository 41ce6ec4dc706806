"""Table 1 of paper S1, run again: support vector trees on the IDA benchmarks.

Three steps for each split. `tune` chooses the parameters of a linear and an RBF SVM (`_s1_machines` has the rule) and
keeps them in s1-tuned.json, after every split: with `resume` they are not looked for again, even where s1-table1.json
was moved away so that all the rest is measured anew. `measure_machines` has the accuracy of the dummy and of both SVMs.
`measure_approximations` has that of four stand-ins for the RBF SVM, how often they give its label, and the kernel
evaluations they need (promise "none" for all of them: no row is sent on to the exact engine):

* the paper's tree: ``method="sv_tree", tree="paper"``, split until five rows are left;
* svelto's tree with a budget: no row may need more evaluations than the paper's tree needs on average, rounded down;
* the same with support vectors as its only candidates, as the paper's tree and cpsp(tr) have them;
* a reduced set of as many vectors as that budget.

Features are those of the files. Ten sets are standardised; splice has the codes 1 to 4 in every column.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from sklearn.svm import SVC

from svelto import datasets
from svelto.reproduce import _paper_s1, _s1_machines, _s1_render
from svelto.reproduce._common import Experiment, Record, Request, Results, write_text
from svelto.reproduce._measure import build
from svelto.reproduce._s0_data import SEED, Parts
from svelto.reproduce._tables import Say, run_table

NAMES: Final = list(_paper_s1.TABLE1)
# LIBSVM's own grid goes further at both ends. Left out are machines that guess, and large C, with which training time
# grows: five folds of splice's linear machine take 0.7 s with C = 2 and 2.8 s with C = 8.
TUNING: Final[Record] = {
    "seed": SEED,
    "cv_folds": 5,
    "linear_C_powers": list(range(-9, 4, 2)),
    "C_powers": list(range(-3, 12, 2)),
    "gamma_powers": list(range(-11, 4, 2)),
}


class Split(NamedTuple):
    """Rows of a split, and what the file says about it."""

    parts: Parts
    n_splits: int
    official: bool


def load_split(name: str, split: int) -> Split:
    """Split number `split` of a set, dense."""
    bunch = datasets.load(f"ida_{name}", split=split, dense=True)
    return Split(Parts(bunch.X_train, bunch.y_train, bunch.X_test, bunch.y_test), bunch.n_splits, bunch.official)


def run_table1(request: Request) -> list[Path]:
    """All eleven sets, all splits of their files."""
    tuned = TunedFile(request.output, reuse=request.resume)

    def settings(name: str) -> Record:
        budget = _paper_s1.TABLE1[name].budget
        return {"seed": SEED, "splits": request.splits, "tuning": TUNING, "budget": budget}

    def measure(name: str, settings: Record, say: Say) -> Record:
        return measure_set(name, settings, tuned, request.n_jobs, say)

    return run_table(request, "s1-table1", NAMES, settings, measure, _s1_render.render_table1)


def measure_set(name: str, settings: Record, tuned: TunedFile, n_jobs: int, say: Say) -> Record:
    """Measure one line of Table 1: all splits, or the first ``settings["splits"]``."""
    splits: list[Record] = []
    n_splits = 1
    while len(splits) < n_splits:
        number = len(splits)
        rows = load_split(name, number)
        n_splits = min(rows.n_splits, settings["splits"] or rows.n_splits)
        of = f"split {number + 1} of {n_splits}, "
        say(of + "cross-validation")
        chosen = tuned.tune(name, number, rows.parts, settings["tuning"], n_jobs)
        say(of + "training")
        machines, svc = measure_machines(rows.parts, chosen)
        say(of + "accelerating")
        sides = measure_approximations(svc, rows.parts, settings["budget"], n_jobs)
        splits.append({"official": rows.official, "tuned": chosen, **machines, "sides": sides})
    n_train, n_features = rows.parts.X_train.shape
    sizes = {"n_train": n_train, "n_test": len(rows.parts.y_test), "n_features": n_features}
    return {**sizes, "splits": splits}


# -- first step: parameters --------------------------------------------------------------------------------------


class TunedFile:
    """s1-tuned.json: parameters by data set and split, written after each split.

    What the file holds is taken where `reuse` is set and it was found with the same settings; else it is replaced.
    """

    def __init__(self, folder: Path, *, reuse: bool) -> None:
        self._results = Results(folder / "s1-tuned.json", "s1-tuned")
        self._found: dict[str, list[Record]] = {}
        self._reuse = reuse

    def tune(self, name: str, split: int, parts: Parts, settings: Record, n_jobs: int) -> Record:
        """Parameters of a split: from the file, or by cross-validation on its training rows. Splits come in order."""
        if name not in self._found:
            has = self._reuse and self._results.has(name, settings)
            self._found[name] = list(self._results.records[name]["splits"]) if has else []
        found = self._found[name]
        if split < len(found):
            return found[split]
        found.append(_s1_machines.tune(parts.X_train, parts.y_train, settings, n_jobs))
        self._results.set(name, {"settings": settings, "splits": found}, NAMES)
        write_text(self._results.path, json.dumps(self._results.document, indent=1, allow_nan=False) + "\n")
        return found[split]


# -- second step: machines ---------------------------------------------------------------------------------------


def measure_machines(parts: Parts, tuned: Record) -> tuple[Record, SVC]:
    """Accuracy of the dummy and of both SVMs on test rows; the RBF SVM itself."""
    labels, counts = np.unique(parts.y_train, return_counts=True)
    linear, svc = _s1_machines.fit(parts.X_train, parts.y_train, tuned)
    record = {
        "dummy": _share(parts.y_test, labels[counts.argmax()]),
        "linear": _share(parts.y_test, linear.predict(parts.X_test)),
        "svm": _share(parts.y_test, svc.predict(parts.X_test)),
        "n_sv": len(svc.support_),
    }
    return record, svc


# -- third step: approximations ----------------------------------------------------------------------------------


def plans(budget: int) -> dict[str, Record]:
    """Options of the approximations."""
    return {
        "paper_tree": {"method": "sv_tree", "tree": "paper"},
        "tree": {"method": "sv_tree", "max_evals": budget},
        "chosen_tree": {"method": "sv_tree", "max_evals": budget, "candidates": "support_vectors"},
        "reduced_set": {"method": "reduced_set", "n_basis": budget},
    }


def measure_approximations(svc: SVC, parts: Parts, budget: int, n_jobs: int) -> Record:
    """Accuracy, agreement with the SVM's labels, and kernel evaluations a row, on test rows."""
    labels, record = svc.predict(parts.X_test), {}
    for side, options in plans(budget).items():
        fast, said = build(svc, parts.X_train, agreement=None, n_jobs=n_jobs, **options)
        answers = fast.predict(parts.X_test)
        record[side] = {
            "accuracy": _share(parts.y_test, answers),
            "agreement": _share(labels, answers),
            "evaluations": float(fast.work(parts.X_test)["kernel_evaluations_per_row"]),
            "warnings": said,
        }
    return record


def _share(labels: Any, answers: Any) -> float:
    return float(np.mean(labels == answers))


TABLE1: Final = Experiment("s1-table1", frozenset({"only", "splits", "resume"}), run_table1)
