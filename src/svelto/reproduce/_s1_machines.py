"""Machines of paper S1: a linear and an RBF SVM for every split, their parameters by cross-validation.

The paper has "a grid-search to find good values", LIBSVM's habit: powers of two of C and gamma, 5 folds. Only training
rows of the split are looked at, and nothing is drawn anew: the same rows give the same parameters.

Rule of choice: the setting that gets most held-out rows right. Where several get the same number right (whole rows are
counted, so rounding cannot tell them apart), the one whose machines of the folds have the fewest support vectors
together; then the smaller C, then the smaller gamma.

Folds share one Gram matrix for each gamma, from which LIBSVM only reads; the machines that are measured are plain
`SVC(kernel="linear")` and `SVC(kernel="rbf")`, trained on all training rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import joblib
import numpy as np
from scipy.spatial.distance import cdist
from sklearn.svm import SVC

from svelto._typing import FloatArray
from svelto.reproduce._common import Record
from svelto.reproduce._s3_machines import CACHE_MEGABYTES, Labels, deal


class Point(NamedTuple):
    """A setting and what cross-validation says about it; `gamma_power` None: linear."""

    C_power: int
    gamma_power: int | None
    n_right: int
    n_sv: int  # of the machines of all folds together


def tune(X: FloatArray, y: Labels, settings: Record, n_jobs: int) -> Record:
    """Parameters of the linear and of the RBF machine for these training rows, ready for JSON.

    `settings` has `cv_folds` and the powers of two: `linear_C_powers`, `C_powers`, `gamma_powers`.
    """
    fold_of = deal(y, settings["cv_folds"])
    linear = cross_validate(X @ X.T, y, fold_of, settings["linear_C_powers"], None, n_jobs)
    sq_dist, rbf = cdist(X, X, "sqeuclidean"), []
    for power in settings["gamma_powers"]:
        rbf += cross_validate(np.exp(-(2.0**power) * sq_dist), y, fold_of, settings["C_powers"], power, n_jobs)
    return {"linear": _as_record(choose(linear), len(y)), "rbf": _as_record(choose(rbf), len(y))}


def cross_validate(
    gram: FloatArray, y: Labels, fold_of: Any, C_powers: Sequence[int], gamma_power: int | None, n_jobs: int
) -> list[Point]:
    """Try each C on a Gram matrix: held-out rows that are right, and support vectors, summed over the folds."""

    def parts() -> Iterator[tuple[Any, ...]]:
        for fold in np.unique(fold_of):
            train, test = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
            yield gram[np.ix_(train, train)], y[train], gram[np.ix_(test, train)], y[test]

    folds = list(parts())

    def attempt(C_power: int) -> Point:
        n_right = n_sv = 0
        for inner, y_train, outer, y_test in folds:
            svc = SVC(kernel="precomputed", C=2.0**C_power, cache_size=CACHE_MEGABYTES).fit(inner, y_train)
            n_right += int(np.count_nonzero(svc.predict(outer) == y_test))
            n_sv += len(svc.support_)
        return Point(C_power, gamma_power, n_right, n_sv)

    # Threads do: LIBSVM works without the interpreter's lock.
    points: list[Point] = joblib.Parallel(n_jobs, backend="threading")(joblib.delayed(attempt)(p) for p in C_powers)
    return points


def choose(points: Sequence[Point]) -> Point:
    """The rule of choice: most rows right, then fewest support vectors, then the smaller C and gamma."""
    return min(points, key=lambda p: (-p.n_right, p.n_sv, p.C_power, p.gamma_power or 0))


def _as_record(point: Point, n_rows: int) -> Record:
    record: Record = {"C": 2.0**point.C_power, "cv_accuracy": point.n_right / n_rows}
    if point.gamma_power is not None:
        record["gamma"] = 2.0**point.gamma_power
    return record


def fit(X: FloatArray, y: Labels, tuned: Record) -> tuple[SVC, SVC]:
    """The linear and the RBF machine of the parameters that `tune` found."""
    linear, rbf = tuned["linear"], tuned["rbf"]
    return (
        SVC(kernel="linear", C=linear["C"], cache_size=CACHE_MEGABYTES).fit(X, y),
        SVC(kernel="rbf", C=rbf["C"], gamma=rbf["gamma"], cache_size=CACHE_MEGABYTES).fit(X, y),
    )
