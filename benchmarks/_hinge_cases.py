"""Machines for benchmarks/hinges.py: data sets, their parts, and parameters from cross-validation.

Parts are those of _cases.split_dataset, but for these:

- mnist: 10,000 training rows (stratified, fixed seed), pixels divided by 255.
- pendigits, svmguide1: features scaled to [-1, 1] with the ranges of the training rows, as LIBSVM's guide says; with
  gamma = 1/d the raw values would be nonsense.
- image, ringnorm, waveform (IDA): all rows, cut in two halves at random with a fixed seed. The benchmark's own splits
  train on 400 rows (ringnorm, waveform), too few for machines of some size.

`MACHINES` has each set with LIBSVM's default parameters (C=1, gamma=1/d) and with tuned ones, and a sharp ijcnn1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.model_selection import StratifiedKFold, cross_val_score, train_test_split
from sklearn.svm import SVC

import _cases
from _cases import SEED, Case, make_case, split_dataset
from svelto import datasets

MODELS = Path("bench-results/models")
SETS = (
    "a9a",
    "w8a",
    "ijcnn1",
    "covtype.libsvm.binary.scale",
    "letter.scale",
    "usps",
    "satimage.scale",
    "pendigits",
    "mnist",
    "mushrooms",
    "svmguide1",
    "ida_image",
    "ida_ringnorm",
    "ida_waveform",
)
SCALED = ("pendigits", "svmguide1")
MNIST_ROWS = 10_000
SHARP = _cases.TUNED["ijcnn1"]

# Cross-validation of `tune`. Best: the highest mean accuracy; of equal ones the smallest C, then the smallest gamma.
COSTS = (1.0, 10.0, 100.0)
FACTORS = (0.1, 0.3, 1.0, 3.0, 10.0)  # gamma times d
ROWS, FOLDS = 2_000, 5

# C, and gamma times d; `python benchmarks/hinges.py --tune` prints this, with the mean accuracy. No test row was used.
TUNED = {
    "a9a": (100.0, 0.1),  # 0.8400
    "w8a": (100.0, 3.0),  # 0.9785
    "ijcnn1": (100.0, 10.0),  # 0.9620
    "covtype.libsvm.binary.scale": (100.0, 10.0),  # 0.7705
    "letter.scale": (10.0, 10.0),  # 0.8685
    "usps": (10.0, 3.0),  # 0.9630
    "satimage.scale": (10.0, 10.0),  # 0.9040
    "pendigits": (10.0, 3.0),  # 0.9960
    "mnist": (10.0, 10.0),  # 0.9235
    "mushrooms": (10.0, 3.0),  # 1.0000
    "svmguide1": (10.0, 3.0),  # 0.9720
    "ida_image": (100.0, 3.0),  # 0.9706
    "ida_ringnorm": (1.0, 3.0),  # 0.9890
    "ida_waveform": (1.0, 1.0),  # 0.9140
}
DEFAULT = (1.0, 1.0)
# Where cross-validation prefers the default parameters, the machine is there once.
MACHINES = (
    *((name, kind) for name in SETS for kind in ("default", "tuned") if kind == "default" or TUNED[name] != DEFAULT),
    ("ijcnn1", "sharp"),
)


def parts_of(name: str) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """Training rows and labels, test rows and labels, as the benchmark uses them."""
    if name.startswith("ida_"):
        bunch = datasets.load(name, part="whole")
        order = np.random.default_rng(SEED).permutation(len(bunch.y_train))
        train, test = order[: len(order) // 2], order[len(order) // 2 :]
        return bunch.X_train[train], bunch.y_train[train], bunch.X_train[test], bunch.y_train[test]
    X_train, y_train, X_test, y_test = split_dataset(name)
    if name == "mnist":
        X_train, y_train = draw(X_train, y_train, MNIST_ROWS)
        assert X_train.max() > 1.0  # the files hold bytes
        X_train, X_test = X_train / 255.0, X_test / 255.0
    if name in SCALED:
        X_train, X_test = (X.toarray() if sparse.issparse(X) else X for X in (X_train, X_test))
        low, high = X_train.min(axis=0), X_train.max(axis=0)
        width = np.where(high > low, high - low, 1.0)
        X_train, X_test = (2.0 * (X - low) / width - 1.0 for X in (X_train, X_test))
    return X_train, y_train, X_test, y_test


def draw(X: Any, y: np.ndarray, n_rows: int) -> tuple[Any, np.ndarray]:
    """At most so many rows, each class with its share."""
    if n_rows >= len(y):
        return X, y
    X, _, y, _ = train_test_split(X, y, train_size=n_rows, stratify=y, random_state=SEED)
    return X, y


def setting(name: str, kind: str) -> tuple[float, float, bool]:
    """C, gamma, and whether gamma is still to be divided by the number of features."""
    if kind == "sharp":
        return (*SHARP, False)
    if kind == "tuned":
        return (*TUNED[name], True)
    return (*DEFAULT, True)


def load_machine(name: str, kind: str, folder: Path | None = MODELS) -> Case:
    """Case of a pair of `MACHINES`; trained once and kept in `folder`."""
    X_train, y_train, X_test, y_test = parts_of(name)
    C, gamma, by_width = setting(name, kind)
    gamma = gamma / X_train.shape[1] if by_width else gamma
    return make_case(name, X_train, y_train, X_test, y_test, C=C, gamma=gamma, folder=folder)


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
