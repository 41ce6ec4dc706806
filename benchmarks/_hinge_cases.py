"""Machines for benchmarks/hinges.py, which are those of the suite, and the cross-validation that tuned them."""

from __future__ import annotations

from pathlib import Path

from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.svm import SVC

from svelto.suite import machines
from svelto.suite.machines import MACHINES, SEED, SETS, Case, draw, parts_of, setting

__all__ = ["MACHINES", "MODELS", "SETS", "load_machine", "parts_of", "setting", "tune"]

MODELS = Path("bench-results/models")

# Cross-validation of `tune`. Best: the highest mean accuracy; of equal ones the smallest C, then the smallest gamma.
COSTS = (1.0, 10.0, 100.0)
FACTORS = (0.1, 0.3, 1.0, 3.0, 10.0)  # gamma times d
ROWS, FOLDS = 2_000, 5


def load_machine(name: str, kind: str, folder: Path | None = MODELS) -> Case:
    """Case of a pair of `MACHINES`; trained once and kept in `folder`."""
    return machines.load_machine(name, kind, folder)


def tune(name: str) -> tuple[float, float, float]:
    """C, gamma times d, and their mean accuracy in stratified cross-validation on at most `ROWS` training rows."""
    X, y = draw(*parts_of(name)[:2], ROWS)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=SEED)
    best = (0.0, 0.0, -1.0)
    for C in COSTS:
        for factor in FACTORS:
            machine = SVC(C=C, gamma=factor / X.shape[1])
            accuracy = round(float(cross_val_score(machine, X, y, cv=folds).mean()), 12)
            if accuracy > best[2]:
                best = (C, factor, accuracy)
    return best
