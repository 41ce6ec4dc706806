"""Data of paper S3 as far as it is public: which file, which rows, raw or scaled features.

The four UCI sets are here; the traffic sign sets were never published. What the paper leaves open:

* letter: 16,000 training and 4,000 test rows are the first and the last rows of the file, as its authors have it. Every
  raw feature runs from 0 to 15, so scaling to [-1, 1] multiplies all distances by 2/15: one form is enough.
* optdigits, segmentation: the training and test parts of the UCI files. The paper has 16 features for segmentation, the
  files 19; it does not say which were left out, and none is here.
* arrhythmia: no parts are given; 200 test rows are drawn at random with a fixed seed, the other 252 train.
* Scaling: the paper says nothing, so both are tried. Scaled features lie in [-1, 1] over the training rows; features
  that are constant there are dropped.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from svelto import datasets
from svelto.reproduce import _paper_s3
from svelto.reproduce._s0_data import Parts, scale, split_rows


class Source(NamedTuple):
    """Where a set of the paper comes from; `n_train` None: the file's own parts."""

    file: str
    features: tuple[str, ...]
    n_train: int | None = None
    drawn: bool = False


SOURCES: Final[dict[str, Source]] = {
    "letter": Source("letter.scale", ("scaled",), 16_000),
    "optdigits": Source("optdigits", ("raw", "scaled")),
    "arrhythmia": Source("arrhythmia", ("raw", "scaled"), 252, drawn=True),
    "segmentation": Source("segmentation", ("raw", "scaled")),
}


def load_parts(name: str, features: str) -> Parts:
    """Training and test rows of a set, dense, with features "raw" (as in the file) or "scaled"."""
    source = SOURCES[name]
    if source.n_train is None:
        bunch = datasets.load(source.file, dense=True)
        parts = Parts(bunch.X_train, bunch.y_train, bunch.X_test, bunch.y_test)
    else:
        bunch = datasets.load(source.file, part="whole", dense=True)
        X, y = bunch.X_train, bunch.y_train
        if source.drawn:
            train, test = split_rows(len(y), source.n_train, 0)
        else:
            train, test = np.arange(source.n_train), np.arange(source.n_train, len(y))
        parts = Parts(X[train], y[train], X[test], y[test])
    n_test = _paper_s3.TABLE2[name].n_test
    if len(parts.y_test) != n_test:
        raise ValueError(
            f"{name} has {len(parts.y_test)} test rows; the paper has {n_test}. Replace the file {source.file} by a "
            "fresh copy."
        )
    if features == "scaled" and name != "letter":  # letter.scale is scaled
        X_train, X_test = scale(parts.X_train, parts.X_test)
        parts = Parts(X_train, parts.y_train, X_test, parts.y_test)
    return parts
