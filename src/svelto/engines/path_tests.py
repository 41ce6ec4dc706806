"""The test of a node: which value on its path, and which threshold, make two sides that are easy to fit.

Every value on the path has a few thresholds, at quantiles of the node's rows, and every row is in one of the ranges
between them. One product of those indicators with the products of features gives the normal equations of all ranges of
all values at once; sums of ranges are sides, and a batch of small systems gives their losses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from svelto._typing import FloatArray, IndexArray
from svelto.engines.path_fit import penalty

# Thresholds tried for each value on the path, and rows that they are compared on.
THRESHOLDS: Final = 8
SPLIT_ROWS: Final = 1024
# Free features that tests are compared with; more make the search slow, and are fitted afterwards.
SPLIT_FEATURES: Final = 8


@dataclass(frozen=True)
class Test:
    """A test: which value, its threshold, the loss after both sides are fitted, and how their coefficients change.

    `change` (2, f, P) belongs to the features `used`.
    """

    position: int
    threshold: float
    loss: float
    change: FloatArray
    used: IndexArray


def compare_tests(
    Z: FloatArray,
    weight: FloatArray,
    residuals: FloatArray,
    gram: FloatArray,
    n_values: int,
    min_rows: int,
    prior_rows: float,
) -> list[Test]:
    """The best test for each of the last `n_values` features, best first.

    Parameters
    ----------
    Z : ndarray of shape (n, f)
        Constant, free features, values on the path.
    weight, residuals : ndarrays of shape (n,) and (n, P)
        Weights of the rows, and what the node's coefficients leave.
    gram : ndarray of shape (f, f)
        Z' diag(weight) Z; the prior of the sides is `prior_rows` of its rows.
    """
    n, f = Z.shape
    q = f - 1 - n_values
    # The slope stays what it is while tests are compared, where it has many features.
    used = np.arange(f) if q <= SPLIT_FEATURES else np.concatenate([[0], np.arange(1 + q, f)])
    step = -(-n // SPLIT_ROWS)
    least = max(2, min_rows // step)
    some, values = Z[::step], Z[::step, f - n_values :]
    places, thresholds = _ranges(values, least)
    if not len(thresholds):
        return []
    A, b, total = _range_sums(some[:, used], step * weight[::step], residuals[::step], places)
    # A side of a threshold is the sum of the ranges below it; ranges of a value stand together.
    grams, sides = _sides(A, thresholds), _sides(b, thresholds)
    prior = prior_rows / n * gram[np.ix_(used, used)]
    held = grams + prior
    change = np.linalg.solve(held + penalty(held)[..., None] * np.eye(len(used)), sides)
    # |r - Z c|^2 = |r|^2 - 2 c.b + c.A c
    loss = total - 2.0 * (change * sides).sum(axis=(1, 2, 3)) + (change * (grams @ change)).sum(axis=(1, 2, 3))
    found = []
    for position in range(n_values):
        own = np.flatnonzero(thresholds["position"] == position)
        if not len(own):
            continue
        at = own[np.argmin(loss[own])]
        threshold = float(thresholds["value"][at])
        above = int(np.count_nonzero(Z[:, f - n_values + position] > threshold))
        if min(above, n - above) >= min_rows:
            found.append(Test(position, threshold, float(loss[at]), change[at], used))
    return sorted(found, key=lambda test: (test.loss, test.position))


def _ranges(values: FloatArray, least: int) -> tuple[IndexArray, np.ndarray[tuple[int], np.dtype[np.void]]]:
    """Range of each row for each value (n, h), as numbers over all values; and the thresholds between ranges.

    A threshold has its value's `position`, the numbers `first` of that value's first range and `last` of the range
    below it, `end` behind the value's last range, and its `value`.
    """
    places = np.empty(values.shape, dtype=np.intp)
    thresholds: list[tuple[int, int, int, int, float]] = []
    start = 0
    ranked = np.sort(values, axis=0)
    for position in range(values.shape[1]):
        column = ranked[:, position]
        own = [0.5 * float(column[cut - 1] + column[cut]) for cut in _cuts(column, least)]
        places[:, position] = start + np.searchsorted(own, values[:, position], side="left")
        end = start + len(own) + 1
        thresholds += [(position, start, start + k, end, value) for k, value in enumerate(own)]
        start = end
    kinds = [(name, np.intp) for name in ("position", "first", "last", "end")]
    return places, np.array(thresholds, dtype=[*kinds, ("value", np.float64)])


def _range_sums(
    Z: FloatArray, weight: FloatArray, residuals: FloatArray, places: IndexArray
) -> tuple[FloatArray, FloatArray, float]:
    """Sums over ranges of z z' (ranges, f, f) and z r' (ranges, f, P); and the sum of squares of all rows."""
    n, f = Z.shape
    inside = np.zeros((n, int(places.max()) + 1))
    inside[np.arange(n)[:, None], places] = weight[:, None]
    both = np.concatenate([Z, residuals], axis=1)
    products = (Z[:, :, None] * both[:, None, :]).reshape(n, -1)
    sums = (inside.T @ products).reshape(-1, f, both.shape[1])
    return sums[:, :, :f], sums[:, :, f:], float(weight @ (residuals**2).sum(axis=1))


def _sides(sums: FloatArray, thresholds: np.ndarray[tuple[int], np.dtype[np.void]]) -> FloatArray:
    """Sums below and above each threshold (thresholds, 2, ...) from those of the ranges."""
    running = np.concatenate([np.zeros((1, *sums.shape[1:])), np.cumsum(sums, axis=0)])
    first, middle, end = (running[thresholds[name] + more] for name, more in (("first", 0), ("last", 1), ("end", 0)))
    return np.stack([middle - first, end - middle], axis=1)


def _cuts(ranked: FloatArray, least: int) -> list[int]:
    """Positions between distinct neighbours near the quantiles, with at least `least` rows on either side."""
    n = len(ranked)
    wanted = np.linspace(0, n, THRESHOLDS + 2)[1:-1].astype(int)
    at = ranked[np.clip(wanted, 0, n - 1)]
    # A run of equal values is never cut: before it or behind it.
    cuts = np.unique(np.concatenate([np.searchsorted(ranked, at, side=side) for side in ("left", "right")]))
    cuts = cuts[(cuts >= least) & (cuts <= n - least)]
    if len(cuts) > THRESHOLDS:
        cuts = cuts[np.linspace(0, len(cuts) - 1, THRESHOLDS).astype(int)]
    return [int(c) for c in cuts]
