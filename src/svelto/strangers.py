"""Rows unlike the given ones that a guard lets pass all the same.

A guard of a box, a few balls and directions has empty corners, between clusters of rows and behind them. Whatever was
learned near the rows alone may be sure of anything there, and the exact machine knows what is right.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from svelto._inputs import Query
from svelto._typing import FloatArray
from svelto.guard import Guard

# Data come out different most plainly by another zero point, a share of every feature's range up or down, and by
# another unit, up to so many times. Less than the least shift is a drift, not a stranger.
LEAST_SHIFT, MOST_SHIFT = 0.2, 1.0
MOST_GAIN: Final = 2.0
# Rows that are tried for each that is wanted: most are too far away to pass.
TRIED: Final = 8


def passing_strangers(
    X: FloatArray, guard: Guard, n: int, rng: np.random.Generator, n_jobs: int | None = None
) -> FloatArray:
    """At most n rows made of others by another zero point and another unit, all of which pass the guard.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
        Given rows, behind the machine's scaling.
    guard : Guard
        Says which of them pass.
    n : int
        Rows that are wanted.
    rng : Generator
        Draws.

    Returns
    -------
    ndarray of shape (n_found, n_features)
        Where features have grids, values on them; no row twice then, and none that is the row it was made of.
    """
    low, high = X.min(axis=0), X.max(axis=0)
    found = [X[:0]]
    for _ in range(TRIED):
        gain = MOST_GAIN ** rng.uniform(-1.0, 1.0, size=(n, 1))
        shift = rng.uniform(LEAST_SHIFT, MOST_SHIFT, size=(n, 1)) * rng.choice((-1.0, 1.0), size=(n, 1))
        begun = X[rng.integers(len(X), size=n)]
        rows = begun * gain + shift * (high - low)
        if guard.grids is not None:  # a step may be wider than a shift
            rows = guard.grids.nearest(rows)
            rows = rows[(rows != begun).any(axis=1)]
        found.append(rows[~guard(Query(rows), n_jobs)])
    passed = np.concatenate(found)
    if guard.grids is not None:
        passed = passed[np.sort(np.unique(passed, axis=0, return_index=True)[1])]
    return passed[:n]
