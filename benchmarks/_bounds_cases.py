"""Machines for benchmarks/bounded.py: two spirals, and small sets tuned for accuracy.

C and gamma come from cross-validation on training rows alone. Searches and machines are kept beside those of
_cases.py, under names that hold what they depend on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import sklearn
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.svm import SVC

import svelto
from _cases import SEED, Case, kept, load_case, make_case, split_dataset
from svelto.datasets import two_spirals
from svelto.reproduce._s3_data import load_parts
from svelto.reproduce._s3_machines import deal

MODELS = Path("bench-results/models")

SPIRAL_TRAIN, SPIRAL_TEST = 20_000, 60_000
SPIRAL_SEARCH = {"C": (1.0, 8.0, 64.0), "gamma": (1.0, 4.0, 16.0, 64.0)}
SPIRAL_ROWS, SPIRAL_FOLDS = 6_000, 3

# Sets of paper S3 (features scaled to [-1, 1] over the training rows), and others.
PAPER_SETS = ("segmentation", "optdigits", "arrhythmia")
SMALL_SETS = ("letter.scale", *PAPER_SETS, "satimage.scale", "usps", "pendigits", "ida_banana")
KERNELS = ("rbf", "exponential")
COSTS = (1.0, 8.0, 64.0)
# Times what scikit-learn's gamma="scale" stands for, rounded to a power of two.
FACTORS = {"rbf": (0.25, 1.0, 4.0, 16.0), "exponential": (0.03125, 0.125, 0.5, 2.0)}
SEARCH_ROWS, SEARCH_FOLDS = 1_500, 5


def spirals(C: float | None = None, folder: Path | None = MODELS) -> Case:
    """2SPIRAL with the C and gamma that cross-validation prefers, or with another C; test rows are drawn anew."""
    X, y = two_spirals(SPIRAL_TRAIN, random_state=0)
    X_test, y_test = two_spirals(SPIRAL_TEST, random_state=1)
    found = search("2SPIRAL", SVC(cache_size=500), SPIRAL_SEARCH, X, y, SPIRAL_ROWS, SPIRAL_FOLDS, folder)
    found |= {} if C is None else {"C": C}
    return make_case("2SPIRAL", X, y, X_test, y_test, **found, folder=folder)


def small_case(name: str, kernel: str, folder: Path | None = MODELS) -> Case:
    """A set of `SMALL_SETS` with the parameters that cross-validation on its training rows prefers."""
    if name == "letter.scale" and kernel == "rbf":
        return load_case(name, tuned=True, folder=folder)
    X_train, y_train, X_test, y_test = load_parts(name, "scaled") if name in PAPER_SETS else split_dataset(name)
    variance = float(X_train.var())
    scale = 1.0 / (X_train.shape[1] * variance)
    middle = 2.0 ** np.round(np.log2(scale if kernel == "rbf" else np.sqrt(scale)))
    grid = {"C": COSTS, "gamma": tuple(float(middle * factor) for factor in FACTORS[kernel])}
    start = SVC(cache_size=500) if kernel == "rbf" else svelto.ExponentialSVC(n_jobs=1)
    found = search(name, start, grid, X_train, y_train, SEARCH_ROWS, SEARCH_FOLDS, folder)
    if kernel == "rbf":
        return make_case(name, X_train, y_train, X_test, y_test, **found, folder=folder)
    return exponential_case(name, X_train, y_train, X_test, y_test, **found, folder=folder)


def exponential_case(
    name: str, X_train: Any, y_train: Any, X_test: Any, y_test: Any, *, C: float, gamma: float, folder: Path | None
) -> Case:
    """As `make_case`, with the exponential kernel; right are the labels of the exact engine in float64."""
    key = f"{name}-exponential-C{C:g}-gamma{gamma:.6g}-{joblib.hash((X_train, y_train, X_test))[:10]}"

    def train() -> tuple[Any, np.ndarray]:
        model = svelto.ExponentialSVC(C=C, gamma=gamma).fit(X_train, y_train)
        return model, model.predict(X_test)

    model, labels = kept(folder, f"{key}-sklearn{sklearn.__version__}", train)
    machine = svelto.KernelMachine.from_sklearn(model)
    parameters = {"C": C, "gamma": gamma}
    return Case(name, parameters, model, machine, X_train, y_train, X_test, y_test, labels, key, folder)


def search(
    name: str,
    model: Any,
    grid: Mapping[str, Sequence[float]],
    X: Any,
    y: np.ndarray,
    n_rows: int,
    n_folds: int,
    folder: Path | None,
) -> dict[str, float]:
    """Parameters of the grid with the best accuracy in cross-validation on at most `n_rows` training rows."""
    some = np.sort(np.random.default_rng(SEED).permutation(len(y))[:n_rows])
    X, y = X[some], np.asarray(y)[some]
    key = f"{name}-search-{type(model).__name__}-{joblib.hash((X, y, dict(grid), n_folds))[:10]}"

    def run() -> dict[str, float]:
        with joblib.parallel_config("threading", n_jobs=2):
            found = GridSearchCV(model, grid, cv=PredefinedSplit(deal(y, n_folds)), refit=False).fit(X, y)
        return {parameter: float(value) for parameter, value in found.best_params_.items()}

    return kept(folder, f"{key}-sklearn{sklearn.__version__}", run)


def drawn(case: Case, n_rows: int | None) -> np.ndarray:
    """Numbers of at most `n_rows` test rows, drawn at random; None: all."""
    n = case.X_test.shape[0]
    if n_rows is None or n_rows >= n:
        return np.arange(n)
    return np.sort(np.random.default_rng(SEED).permutation(n)[:n_rows])
