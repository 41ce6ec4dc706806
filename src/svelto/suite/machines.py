"""What is measured: data sets, their parts, parameters, and machines trained once and kept.

A *case* is a trained SVC, its test rows in a fixed random order, and the labels SVC.predict gives for all of them,
which are the definition of right here. Training and those labels take minutes on the larger sets, so they are kept
(joblib) under a name that holds everything they depend on: data set, parameters, scikit-learn's version and a hash
of the data itself.

Parts are those of the LIBSVM page (sets without a test part are cut at random, `split_dataset`), but for these:

- mnist: 10,000 training rows (stratified, fixed seed), pixels divided by 255.
- pendigits, svmguide1: features scaled to [-1, 1] with the ranges of the training rows, as LIBSVM's guide says; with
  gamma = 1/d the raw values would be nonsense.
- image, ringnorm, waveform (IDA): all rows, cut in two halves at random with a fixed seed. The benchmark's own splits
  train on 400 rows (ringnorm, waveform), too few for machines of some size.

`MACHINES` has each set with LIBSVM's default parameters (C=1, gamma=1/d) and with tuned ones, and a sharp ijcnn1.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Final, TypeVar

import joblib
import numpy as np
import sklearn
from numpy.typing import NDArray
from scipy import sparse
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from svelto import datasets
from svelto._typing import Rows
from svelto.datasets import _SETS, SUFFIXES
from svelto.machine import KernelMachine
from svelto.reproduce._common import write_text

Made = TypeVar("Made")
Parts = tuple[Rows, NDArray[Any], Rows, NDArray[Any]]

# Sets without a test part are split at random: at most this many rows to train on, at most this many to test on.
SPLIT_TRAIN, SPLIT_TEST = 20_000, 20_000
SEED: Final = 0
SETS: Final = (
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
SCALED: Final = ("pendigits", "svmguide1")
MNIST_ROWS: Final = 10_000
# The machine that the project's other pages use where bounds and expansions have a hard time: C, gamma.
SHARP: Final = (16.0, 0.5)
# C, and gamma times d; `python benchmarks/hinges.py --tune` prints this, with the mean accuracy. No test row was used.
TUNED: Final = {
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
DEFAULT: Final = (1.0, 1.0)
# Where cross-validation prefers the default parameters, the machine is there once.
MACHINES: Final = (
    *((name, kind) for name in SETS for kind in ("default", "tuned") if kind == "default" or TUNED[name] != DEFAULT),
    ("ijcnn1", "sharp"),
)


@dataclass(frozen=True)
class Case:
    """One machine and the rows it is asked about."""

    name: str
    parameters: dict[str, float]
    svc: SVC
    machine: KernelMachine
    X_train: Rows
    y_train: NDArray[Any]
    X_test: Rows
    y_test: NDArray[Any]
    labels: NDArray[Any]  # svc.predict(X_test)
    key: str
    folder: Path | None
    fit_seconds: float | None = None  # None where the machine was kept by somebody who did not look at the clock

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are CSR."""
        return bool(sparse.issparse(self.X_test))


# -- data ----------------------------------------------------------------------------------------------------------


def files_of(name: str) -> tuple[str, ...]:
    """Names of the files that a data set needs, without the suffixes of compression."""
    known = _SETS[name]
    more = (f"{name}.splits.npz",) if name.startswith("ida_") else () if known.test is None else (known.test,)
    return (known.train, *more)


def lies_in(folder: Path, name: str) -> bool:
    """Whether a folder has all files of a data set."""
    return all(any((folder / (file + suffix)).is_file() for suffix in SUFFIXES) for file in files_of(name))


def file_marks(folder: Path, name: str) -> dict[str, list[int]]:
    """Size and time of change of each file of a data set: they tell that data has changed without reading it."""
    found = {}
    for file in files_of(name):
        path = next(path for suffix in SUFFIXES if (path := folder / (file + suffix)).is_file())
        about = path.stat()
        found[path.name] = [about.st_size, about.st_mtime_ns]
    return found


def split_dataset(name: str) -> Parts:
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


def parts_of(name: str) -> Parts:
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


def draw(X: Rows, y: NDArray[Any], n_rows: int) -> tuple[Rows, NDArray[Any]]:
    """At most so many rows, each class with its share."""
    if n_rows >= len(y):
        return X, y
    X, _, y, _ = train_test_split(X, y, train_size=n_rows, stratify=y, random_state=SEED)
    return X, y


# -- machines ------------------------------------------------------------------------------------------------------


def setting(name: str, kind: str) -> tuple[float, float, bool]:
    """C, gamma, and whether gamma is still to be divided by the number of features."""
    if kind == "sharp":
        return (*SHARP, False)
    if kind == "tuned":
        return (*TUNED[name], True)
    return (*DEFAULT, True)


def load_machine(
    name: str, kind: str, folder: Path | None, *, most_train: int | None = None, most_test: int | None = None
) -> Case:
    """Case of a pair of `MACHINES`, on at most so many rows; trained once and kept in `folder`."""
    X_train, y_train, X_test, y_test = parts_of(name)
    if most_train is not None:
        X_train, y_train = draw(X_train, y_train, most_train)
    X_test, y_test = X_test[:most_test], y_test[:most_test]
    C, gamma, by_width = setting(name, kind)
    gamma = gamma / X_train.shape[1] if by_width else gamma
    return make_case(name, X_train, y_train, X_test, y_test, C=C, gamma=gamma, folder=folder)


def make_case(
    name: str,
    X_train: Rows,
    y_train: NDArray[Any],
    X_test: Rows,
    y_test: NDArray[Any],
    *,
    C: float,
    gamma: float,
    folder: Path | None = None,
) -> Case:
    """Train, or read what was trained before; `folder` None keeps nothing."""
    data = joblib.hash((X_train, y_train, X_test))[:10]
    key = f"{name}-C{C:g}-gamma{gamma:.6g}-{data}"
    full = f"{key}-sklearn{sklearn.__version__}"
    clock = None if folder is None else folder / f"{full}.seconds.json"
    seconds: list[float] = []

    def train() -> tuple[SVC, NDArray[Any]]:
        started = perf_counter()
        svc = SVC(C=C, gamma=gamma, cache_size=1000).fit(X_train, y_train)
        seconds.append(perf_counter() - started)
        return svc, svc.predict(X_test)

    svc, labels = kept(folder, full, train)
    if seconds and clock is not None:
        write_text(clock, json.dumps(seconds[0]))
    elif clock is not None and clock.is_file():
        seconds.append(json.loads(clock.read_text()))
    machine = KernelMachine.from_sklearn(svc)
    parameters = {"C": C, "gamma": gamma}
    took = seconds[0] if seconds else None
    return Case(name, parameters, svc, machine, X_train, y_train, X_test, y_test, labels, key, folder, took)


def kept(folder: Path | None, name: str, make: Callable[[], Made]) -> Made:
    """`make()`, or what it returned when it was last called for this name."""
    if folder is None:
        return make()
    path = folder / f"{name}.joblib"
    if path.is_file():
        found: Made = joblib.load(path)
        return found
    value = make()
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")  # an interrupted run must not leave half a file under the final name
    joblib.dump(value, unfinished)
    unfinished.replace(path)
    return value
