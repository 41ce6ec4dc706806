"""The test of a node: which value on its path, and which threshold, make two sides that are easy to fit.

For every value on the path the rows are sorted by it and cut at some quantiles; sums over the ranges between cuts give
both sides' normal equations at every cut, hence their losses, without looking at a row twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from svelto._typing import FloatArray
from svelto.engines.path_fit import Fit, penalty

# Thresholds tried for each value on the path, and rows that they are compared on.
THRESHOLDS: Final = 8
SPLIT_ROWS: Final = 4096
# Free features that tests are compared with; more make the search slow, and are fitted afterwards.
SPLIT_FEATURES: Final = 8


@dataclass(frozen=True)
class Test:
    """A test: where, the loss after both sides are fitted, and the change of the coefficients on either side."""

    position: int
    threshold: float
    loss: float
    change: tuple[FloatArray, FloatArray]


def compare_tests(fit: Fit, coef: FloatArray, n_values: int, q: int, min_rows: int, prior_rows: float) -> list[Test]:
    """The best test for each value on the path, best first."""
    n = len(fit.Z)
    step = -(-n // SPLIT_ROWS)
    some = slice(None, None, step)
    used = np.arange(fit.Z.shape[1])
    if q > SPLIT_FEATURES:
        used = np.concatenate([[0], used[1 + q :]])  # the slope stays what it is while tests are compared
    Z, weight = fit.Z[some][:, used], fit.weight[some] * step
    residuals = fit.target[some] - fit.Z[some] @ coef
    prior = prior_rows / n * fit.gram[np.ix_(used, used)]
    least = max(2, min_rows // step)
    found = []
    for position in range(n_values):
        values = fit.Z[:, 1 + q + position]
        test = _best_threshold(Z, weight, residuals, values[some], least, prior)
        if test is None:
            continue
        threshold, loss, changes = test
        above = int(np.count_nonzero(values > threshold))
        if min(above, n - above) < min_rows:
            continue
        full = np.zeros((2, *coef.shape))
        full[:, used] = changes
        found.append(Test(position, threshold, loss, (full[0], full[1])))
    return sorted(found, key=lambda test: (test.loss, test.position))


def _best_threshold(
    Z: FloatArray, weight: FloatArray, residuals: FloatArray, values: FloatArray, least: int, prior: FloatArray
) -> tuple[float, float, FloatArray] | None:
    """Threshold, loss and both sides' changes of coefficients (2, f, P), from sums over ranges of sorted rows."""
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    cuts = _cuts(ranked, least)
    if not cuts:
        return None
    Z, weight, residuals = Z[order], weight[order], residuals[order]
    weighted = Z * weight[:, None]
    bounds = [0, *cuts, len(ranked)]
    ranges = [slice(a, b) for a, b in pairwise(bounds)]
    A = np.cumsum([weighted[r].T @ Z[r] for r in ranges], axis=0)
    b = np.cumsum([weighted[r].T @ residuals[r] for r in ranges], axis=0)
    grams = np.stack([A[:-1], A[-1] - A[:-1]], axis=1)
    sides = np.stack([b[:-1], b[-1] - b[:-1]], axis=1)
    penalised = grams + prior + penalty(grams)[..., None] * np.eye(Z.shape[1])
    change = np.linalg.solve(penalised, sides)
    total = float(weight @ (residuals**2).sum(axis=1))
    # |r - Z c|^2 = |r|^2 - 2 c.b + c.A c
    loss = total - 2.0 * (change * sides).sum(axis=(1, 2, 3)) + (change * (grams @ change)).sum(axis=(1, 2, 3))
    at = int(np.argmin(loss))
    cut = cuts[at]
    return 0.5 * float(ranked[cut - 1] + ranked[cut]), float(loss[at]), change[at]


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
