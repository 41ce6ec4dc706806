"""Linear models in the leaves of a tree, and how wrong they are.

In a leaf with centre c the model of a score is  v + w.(x - c).  It starts as the first-order Taylor expansion at c
and is then moved towards the exact machine's scores on the leaf's rows by ridge regression: the penalty is on the
*change* of the slope, so a leaf with few rows keeps the Taylor model and a leaf with many is fitted.

The error scale of a row is  base + growth |x - c|^2.  Both come from rows that took no part in the fit: the leaf's
own mean square residual (shrunk to that of all leaves, by the weight of `PRIOR_ROWS` rows) sets the size, and one
line fitted over all leaves, residual against squared distance, says how much of it is due to the distance (the Taylor
remainder's part).

Rows whose score is small decide labels, rows whose score is large need no precision: both fits weight a row by
1 / (1 + (score / s)^2) with s the median |score|.
"""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing.pool import ThreadPool
from typing import Final

import numpy as np
from threadpoolctl import threadpool_limits

from svelto._threads import thread_count
from svelto._typing import FloatArray, IndexArray

# Share of the rows in a leaf that its model is fitted to; the others show its error.
FIT_SHARE: Final = 0.67
# Penalty on a change of the slope, as a multiple of the mean square of a coordinate in the leaf.
RIDGE: Final = 0.3
# Rows of a leaf differ if the sum of their squares around the mean is more than this share of that around the centre.
LEAST_SPREAD: Final = 1e-20
PRIOR_ROWS: Final = 3.0
# s of the weights, in units of the median |score|.
SCORE_SCALE: Final = 1.0
# The distance's and the constant's part of the error are at least this share of it.
LEAST_PART: Final = 0.05
# Beyond this multiple of the largest squared distance seen in a leaf, the leaf is not asked.
REACH: Final = 4.0


def sign_weights(scores: FloatArray, weighted: bool) -> FloatArray:
    """Weights (n, n_scores) that grow where the sign is decided; ones where values matter, not signs."""
    if not weighted:
        return np.ones_like(scores)
    scale = SCORE_SCALE * np.median(np.abs(scores), axis=0)
    scale[scale == 0.0] = 1.0
    return 1.0 / (1.0 + (scores / scale) ** 2)


def leaf_ranges(leaf: IndexArray, n_leaves: int) -> tuple[IndexArray, IndexArray]:
    """Rows sorted by leaf: (order, start) with the rows of leaf l at order[start[l] : start[l + 1]]."""
    order = np.argsort(leaf, kind="stable")
    start = np.searchsorted(leaf[order], np.arange(n_leaves + 1))
    return order, start


def refine(
    weights: FloatArray,
    values: FloatArray,
    centres: FloatArray,
    rows: FloatArray,
    residuals: FloatArray,
    row_weights: FloatArray,
    leaf: IndexArray,
    ridge: float,
    n_jobs: int | None,
) -> None:
    """Move the models (weights (L, P, d) and values (L, P), in place) towards the residuals of the rows."""
    order, start = leaf_ranges(leaf, len(centres))

    def fit(number: int) -> None:
        own = order[start[number] : start[number + 1]]
        if len(own) < 2:
            return
        difference = rows[own] - centres[number]
        for p in _distinct_weights(row_weights, own):
            columns = slice(None) if p is None else slice(p, p + 1)
            weight = row_weights[own, 0 if p is None else p]
            slope, value = _ridge(difference, residuals[own][:, columns], weight, ridge)
            weights[number, columns] += slope
            values[number, columns] += value

    # One thread a leaf: the systems are small, and BLAS threads would only wait for each other.
    with threadpool_limits(1, user_api="blas"), ThreadPool(thread_count(n_jobs)) as pool:
        pool.map(fit, range(len(centres)), chunksize=16)


def _distinct_weights(row_weights: FloatArray, own: IndexArray) -> Iterator[int | None]:
    """Each score by itself where the weights differ between scores, all of them at once (None) where they do not."""
    several = row_weights.shape[1] > 1
    if several and not (row_weights[own] == row_weights[own, :1]).all():
        yield from range(row_weights.shape[1])
    else:
        yield None


def _ridge(D: FloatArray, residuals: FloatArray, weight: FloatArray, ridge: float) -> tuple[FloatArray, FloatArray]:
    """Change of slope (P, d) and value (P,) by weighted ridge regression; the value is shrunk like one more row."""
    total = weight.sum()
    mean_D, mean_r = (weight @ D) / total, (weight @ residuals) / total
    root = np.sqrt(weight)[:, None]
    A, b = (D - mean_D) * root, (residuals - mean_r) * root
    n, d = A.shape
    spread, size = float(np.einsum("ij,ij->", A, A)), float(np.einsum("i,ij,ij->", weight, D, D))
    penalty = ridge * spread / d
    if spread <= LEAST_SPREAD * size:  # copies of one row: what is left is rounding, and its slopes would be anything
        slope = np.zeros((d, residuals.shape[1]))
    elif n >= d:
        slope = np.linalg.solve(A.T @ A + penalty * np.eye(d), A.T @ b)
    else:
        slope = A.T @ np.linalg.solve(A @ A.T + penalty * np.eye(n), b)
    value = (mean_r - mean_D @ slope) * (total / (total + 1.0))
    return slope.T, value


def error_scales(
    residuals: FloatArray, row_weights: FloatArray, sq_dist: FloatArray, leaf: IndexArray, n_leaves: int
) -> tuple[FloatArray, FloatArray]:
    """(base, growth), each (n_leaves, n_scores), from residuals of rows that no model was fitted to."""
    n_scores = residuals.shape[1]
    count = np.bincount(leaf, minlength=n_leaves)
    mean_sq = np.bincount(leaf, sq_dist, minlength=n_leaves) / np.maximum(count, 1)
    typical = float(np.median(mean_sq[count > 0])) if (count > 0).any() else 1.0
    mean_sq = np.where((count > 0) & (mean_sq > 0.0), mean_sq, typical if typical > 0.0 else 1.0)
    base, growth = np.empty((n_leaves, n_scores)), np.empty((n_leaves, n_scores))
    relative = sq_dist / mean_sq[leaf]
    line = np.column_stack([np.ones_like(relative), relative])
    for p in range(n_scores):
        w, r = row_weights[:, p], residuals[:, p]
        overall = float(np.average(r**2, weights=w))
        squares = np.bincount(leaf, w * r**2, minlength=n_leaves) + PRIOR_ROWS * overall
        scale = np.sqrt(squares / (np.bincount(leaf, w, minlength=n_leaves) + PRIOR_ROWS))
        scale = np.maximum(scale, np.finfo(np.float32).eps * max(float(np.abs(r).max()), 1e-30))
        part = np.linalg.lstsq(line, np.abs(r) / scale[leaf], rcond=None)[0]
        part = np.maximum(part, LEAST_PART)
        base[:, p] = part[0] * scale
        growth[:, p] = part[1] * scale / mean_sq
    return base, growth


def reaches(sq_dist: FloatArray, leaf: IndexArray, n_leaves: int) -> FloatArray:
    """Largest squared distance (n_leaves,) at which a leaf still answers."""
    largest = np.zeros(n_leaves)
    np.maximum.at(largest, leaf, sq_dist)
    typical = float(np.median(largest))
    result: FloatArray = REACH * np.maximum(largest, typical)
    return result
