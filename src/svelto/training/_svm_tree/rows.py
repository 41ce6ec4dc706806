"""Rows as the tree trains on them: scaled, each different row once, in an order of its own.

Equal rows with equal labels are merged and their weights added, and rows are sorted. So a row of weight two is the same
as the row twice, a row of weight zero the same as no row, the order of the rows does not matter, and no copy of a row
is ever held out from a machine that learned from another copy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from svelto._typing import FloatArray, IndexArray


class TrainingRows(NamedTuple):
    """Rows, the number of each one's class, and positive weights."""

    X: FloatArray
    y: IndexArray
    weight: FloatArray

    def part(self, rows: Any) -> TrainingRows:
        """Some of the rows, by number or mask."""
        return TrainingRows(self.X[rows], self.y[rows], self.weight[rows])


class FeatureScale(NamedTuple):
    """Scaled rows are ``(x - shift) / factor``; a constant feature has the factor 1."""

    shift: FloatArray
    factor: FloatArray

    def apply(self, X: FloatArray) -> FloatArray:
        """Scale dense rows."""
        return (X - self.shift) / self.factor


def merged_rows(X: FloatArray, y: IndexArray, weight: FloatArray) -> TrainingRows:
    """Each different (row, label) once, sorted, with the sum of its weights; rows of weight zero are left out."""
    used = weight > 0
    X, y, weight = X[used], y[used], weight[used]
    keyed = np.column_stack([y.astype(np.float64), X]) + 0.0  # one zero: -0.0 + 0.0 is 0.0
    bytes_of = np.ascontiguousarray(keyed).view(np.dtype((np.void, keyed.shape[1] * keyed.itemsize))).ravel()
    _, first, number = np.unique(bytes_of, return_index=True, return_inverse=True)
    return TrainingRows(
        np.ascontiguousarray(keyed[first, 1:]), y[first], np.bincount(number.ravel(), weights=weight).astype(np.float64)
    )


def feature_scale(rows: TrainingRows, how: str | None) -> FeatureScale:
    """What brings every feature to mean 0 and deviation 1 ("standard"), or to [0, 1] ("minmax").

    Raises
    ------
    ValueError
        A feature's spread is beyond float64.
    """
    X, weight = rows.X, rows.weight
    if how is None:
        return FeatureScale(np.zeros(X.shape[1]), np.ones(X.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):
        if how == "minmax":
            shift, factor = X.min(axis=0), np.ptp(X, axis=0)
        else:
            shift = np.average(X, axis=0, weights=weight)
            factor = np.sqrt(np.average((X - shift) ** 2, axis=0, weights=weight))
    beyond = ~(np.isfinite(shift) & np.isfinite(factor))
    if beyond.any():
        feature = int(beyond.argmax())
        raise ValueError(
            f"Feature {feature} ranges from {X[:, feature].min():.3g} to {X[:, feature].max():.3g}, more than "
            f"scale={how!r} can hold in float64. Divide it by a constant first."
        )
    # A deviation that is nothing but rounding of the mean would blow rounding up to features.
    constant = factor <= 1e-12 * np.maximum(np.abs(shift), np.finfo(np.float64).tiny)
    return FeatureScale(shift, np.where(constant, 1.0, factor))


def fold_numbers(y: IndexArray, n_folds: int, random_state: Any) -> IndexArray:
    """A fold for each row, classes spread evenly; -1 (never held out) for a class with a single row."""
    folds = np.full(len(y), -1)
    turn = 0
    for label in np.unique(y):
        rows = random_state.permutation(np.flatnonzero(y == label))
        if len(rows) > 1:
            folds[rows] = (turn + np.arange(len(rows))) % n_folds
            turn += len(rows)  # small classes do not all begin with fold 0
    return folds


def held_out_sample(rows: TrainingRows, most: int, n_folds: int, random_state: Any) -> tuple[TrainingRows, IndexArray]:
    """At most about `most` rows with every class among them, and the fold of each."""
    if len(rows.y) > most:
        kept = []
        for label in np.unique(rows.y):
            of_class = np.flatnonzero(rows.y == label)
            share = max(2 * n_folds, round(most * len(of_class) / len(rows.y)))
            kept.append(random_state.permutation(of_class)[:share])
        rows = rows.part(np.sort(np.concatenate(kept)))
    return rows, fold_numbers(rows.y, n_folds, random_state)
