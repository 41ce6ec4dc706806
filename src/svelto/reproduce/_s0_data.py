"""Data of paper S0 as the paper used it: which file, which rows, which scaling.

What the paper leaves open was settled by its numbers of support vectors, which the choices below meet:

* LIBSVM's default gamma is one over the highest feature number *of the training file* (a1a: 119 of 123 features), and
  `highest_feature` says the same.
* svmguide1, svmguide3 and covtype are scaled to [-1, 1], the default of LIBSVM's svm-scale, by the ranges of the file
  that the training rows come from; features that are constant there are dropped (svmguide3: 21 of 22 are left).
* Sets of one file are split at random into the paper's sizes. Split s of a set is the same in every run.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from svelto import datasets
from svelto._typing import Rows
from svelto.reproduce import _paper_s0

SEED: Final = 0
DEFAULT_SPLITS: Final = 10


class Source(NamedTuple):
    """Where a set of the paper comes from; `splits` None: training and test part are given."""

    file: str
    splits: int | None = None
    scaled: bool = False


class Parts(NamedTuple):
    """Training and test part of one split."""

    X_train: Rows
    y_train: NDArray[np.int64]
    X_test: Rows
    y_test: NDArray[np.int64]


SOURCES: Final[dict[str, Source]] = {
    "fourclass": Source("fourclass_scale", DEFAULT_SPLITS),
    "svmguide1": Source("svmguide1", scaled=True),
    "diabetes": Source("diabetes_scale", DEFAULT_SPLITS),
    "breast-cancer": Source("breast-cancer_scale", DEFAULT_SPLITS),
    "australian": Source("australian_scale", DEFAULT_SPLITS),
    "heart": Source("heart_scale", DEFAULT_SPLITS),
    "svmguide3": Source("svmguide3", scaled=True),
    "ijcnn1": Source("ijcnn1"),
    "german": Source("german.numer_scale", DEFAULT_SPLITS),
    "ionosphere": Source("ionosphere_scale", DEFAULT_SPLITS),
    # Half a million test rows and ten thousand support vectors: one split takes minutes.
    "covtype": Source("covtype.libsvm.binary.scale", 1, scaled=True),
    "sonar": Source("sonar_scale", DEFAULT_SPLITS),
    "mushrooms": Source("mushrooms", DEFAULT_SPLITS),
    **{f"a{i}a": Source(f"a{i}a") for i in range(1, 10)},
    **{f"w{i}a": Source(f"w{i}a") for i in range(1, 9)},
}


def n_splits(name: str, asked: int | None) -> int:
    """Splits of a set: 1 where the parts are given, else what was asked for or the set's default."""
    default = SOURCES[name].splits
    return 1 if default is None else asked or default


class PaperSet:
    """A data set in memory; `parts(s)` makes its split number s.

    Rows are as `svelto.datasets.load` gives them: arrays where at least a fifth of the values are stored, else CSR.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        source = SOURCES[name]
        bunch = datasets.load(source.file)
        self._given = source.splits is None
        self._X, self._y, self._X_test, self._y_test = bunch.X_train, bunch.y_train, bunch.X_test, bunch.y_test
        if source.scaled:
            self._X, self._X_test = scale(self._X, self._X_test)

    def parts(self, split: int) -> Parts:
        """Rows of a split, with the sizes of the paper."""
        paper = _paper_s0.TABLE1[self.name]
        if self._given:
            parts = Parts(self._X, self._y, self._X_test, self._y_test)
        else:
            train, test = split_rows(len(self._y), paper.n_train, split)
            parts = Parts(self._X[train], self._y[train], self._X[test], self._y[test])
        found, expected = (len(parts.y_train), len(parts.y_test)), (paper.n_train, paper.n_test)
        if found != expected:
            raise ValueError(
                f"{self.name} has {found[0]} training and {found[1]} test rows; the paper has {expected[0]} and "
                f"{expected[1]}. Replace the file by the LIBSVM data page's."
            )
        return parts


def split_rows(n_rows: int, n_train: int, split: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row numbers of the training and the test part of a random split; together all rows, each once."""
    order = np.random.default_rng([SEED, split]).permutation(n_rows)
    return order[:n_train], order[n_train:]


def scale(X: Rows, X_test: Rows) -> tuple[Rows, Rows]:
    """Scale dense rows to [-1, 1] by the ranges of `X`, features that are constant in `X` dropped."""
    low, high = X.min(axis=0), X.max(axis=0)
    kept = high > low
    factor = 2.0 / (high - low)[kept]

    def apply(rows: Rows) -> Rows:
        return (rows[:, kept] - low[kept]) * factor - 1.0

    return apply(X), None if X_test is None else apply(X_test)


def highest_feature(X: Rows) -> int:
    """Highest feature number, from 1, that is not zero throughout: what LIBSVM takes for d in gamma = 1/d."""
    columns = X.nonzero()[1] if sparse.issparse(X) else np.flatnonzero((X != 0).any(axis=0))
    return int(columns.max()) + 1
