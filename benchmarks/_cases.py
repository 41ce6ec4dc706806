"""What is predicted: data sets, parameters, and machines trained once and kept.

A *case* is a trained SVC, its test rows in a fixed random order, and the labels SVC.predict gives for all of them,
which are the definition of right here. Training and those labels take minutes on the larger sets, so they are kept
(joblib) under a name that holds everything they depend on: data set, parameters, scikit-learn's version and a hash
of the data itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import sklearn
from scipy import sparse
from sklearn.svm import SVC

import svelto
from svelto import datasets

DATASETS = (
    "ijcnn1",
    "a9a",
    "w8a",
    "letter.scale",
    "usps",
    "dna.scale",
    "satimage.scale",
    "pendigits",
    "covtype.libsvm.binary.scale",
)
# Sets without a test part are split at random: at most this many rows to train on, at most this many to test on.
SPLIT_TRAIN, SPLIT_TEST = 20_000, 20_000
SEED = 0

# (C, gamma); no test row was used to choose them. dna, letter and satimage: from memory of Hsu & Lin, "A comparison of
# methods for multiclass support vector machines" (2002), not checked against the paper. ijcnn1: the sharp machine that
# the project's other pages use. The others: `python benchmarks/tune.py` (cross-validation on 1,500
# training rows).
TUNED = {
    "ijcnn1": (16.0, 0.5),
    "a9a": (8.0, 2.0**-6),
    "w8a": (32.0, 2.0**-5),
    "letter.scale": (16.0, 4.0),
    "usps": (1.0, 2.0**-7),
    "dna.scale": (8.0, 2.0**-6),
    "satimage.scale": (16.0, 1.0),
    "pendigits": (8.0, 2.0**-14),
    "covtype.libsvm.binary.scale": (32.0, 2.0**-2),
}


@dataclass(frozen=True)
class Case:
    """One machine and the rows it is asked about."""

    name: str
    parameters: dict[str, float]
    svc: SVC
    machine: svelto.KernelMachine
    X_train: Any
    y_train: np.ndarray
    X_test: Any
    y_test: np.ndarray
    labels: np.ndarray  # svc.predict(X_test)
    key: str
    folder: Path | None

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are CSR."""
        return sparse.issparse(self.X_test)


def split_dataset(name: str) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """Training and test part, in the set's natural form (CSR where fewer than a fifth of the values are stored)."""
    bunch = datasets.load(name)
    rng = np.random.default_rng(SEED)
    if bunch.X_test is None:
        order = rng.permutation(bunch.X_train.shape[0])
        n_train = min(SPLIT_TRAIN, int(0.7 * len(order)))
        train, test = order[:n_train], order[n_train : n_train + SPLIT_TEST]
        return bunch.X_train[train], bunch.y_train[train], bunch.X_train[test], bunch.y_train[test]
    # Parts of the test rows are timed alone, so they must not be sorted by class.
    order = rng.permutation(bunch.X_test.shape[0])
    return bunch.X_train, bunch.y_train, bunch.X_test[order], bunch.y_test[order]


def load_case(name: str, *, tuned: bool, folder: Path | None) -> Case:
    """Case of a named data set: LIBSVM's default parameters (C=1, gamma=1/d) or the tuned ones."""
    X_train, y_train, X_test, y_test = split_dataset(name)
    C, gamma = 1.0, 1.0 / X_train.shape[1]
    if tuned:
        if name not in TUNED:
            raise ValueError(f"No tuned parameters for {name!r}; there are some for {', '.join(TUNED)}.")
        C, gamma = TUNED[name]
    return make_case(name, X_train, y_train, X_test, y_test, C=C, gamma=gamma, folder=folder)


def make_case(
    name: str,
    X_train: Any,
    y_train: np.ndarray,
    X_test: Any,
    y_test: np.ndarray,
    *,
    C: float,
    gamma: float,
    folder: Path | None = None,
) -> Case:
    """Train, or read what was trained before; `folder` None keeps nothing."""
    data = joblib.hash((X_train, y_train, X_test))[:10]
    key = f"{name}-C{C:g}-gamma{gamma:.6g}-{data}"

    def train() -> tuple[SVC, np.ndarray]:
        svc = SVC(C=C, gamma=gamma, cache_size=1000).fit(X_train, y_train)
        return svc, svc.predict(X_test)

    svc, labels = kept(folder, f"{key}-sklearn{sklearn.__version__}", train)
    machine = svelto.KernelMachine.from_sklearn(svc)
    parameters = {"C": C, "gamma": gamma}
    return Case(name, parameters, svc, machine, X_train, y_train, X_test, y_test, labels, key, folder)


def kept(folder: Path | None, name: str, make: Any) -> Any:
    """`make()`, or what it returned when it was last called for this name."""
    if folder is None:
        return make()
    path = folder / f"{name}.joblib"
    if path.is_file():
        return joblib.load(path)
    value = make()
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")  # an interrupted run must not leave half a file under the final name
    joblib.dump(value, unfinished)
    unfinished.replace(path)
    return value
