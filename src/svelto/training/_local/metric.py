"""How much each feature counts in a distance, learned from the labels.

A linear SVM on a neighbourhood has a normal w: the direction in which the label changes there. The root mean square of
w over many neighbourhoods says how much the label depends on each feature. Features are multiplied by it, neighbours
are searched again, and so once more; then features that never matter no longer push apart rows that belong together.
(The mean of w w' is known as the expected gradient outer product; this is the root of its diagonal.)
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from svelto._progress import Tell
from svelto._typing import FloatArray, IntArray
from svelto.training._local.fits import KernelChoice, fit_local
from svelto.training._local.machines import LocalMachines
from svelto.training._local.neighbours import NeighbourIndex
from svelto.training._local.options import LARGEST, spread_of_rows

ROUNDS: Final = 2
NEIGHBOURHOODS: Final = 1_000
ROWS: Final = 200
# Times one over the neighbourhood's spread: the same whatever the units of the features.
COST: Final = 1.0
# A normal need not be exact, and unscaled features must not take forever.
MOST_STEPS: Final = 20_000
# Of the largest weight: a feature that seems useless may still tell rows apart that nothing else does.
LEAST: Final = 1e-3


def learn_weights(
    X: FloatArray,
    codes: IntArray,
    weight: FloatArray | None,
    factors: FloatArray | None,
    draws: Any,
    n_jobs: int | None,
    tell: Tell,
) -> FloatArray:
    """Weights of features, the largest 1.

    Parameters
    ----------
    X, codes, weight, factors
        Rows, class codes, weights of rows and classes, if any.
    draws : RandomState
        Draws neighbourhoods.
    n_jobs : int or None
        Threads.
    tell : Tell
        Told what is being done. May raise to stop.

    Returns
    -------
    ndarray of shape (n_features,)
        Ones, where no neighbourhood has two classes.
    """
    result = np.ones(X.shape[1])
    k = min(ROWS, len(X))
    for number in range(ROUNDS):
        tell(f"weighing features, round {number + 1} of {ROUNDS}", number / ROUNDS)
        scaled = X * result
        centres = draws.permutation(len(X))[:NEIGHBOURHOODS]
        neighbours = NeighbourIndex(scaled, n_jobs=n_jobs).query(scaled[centres], k)[0].astype(np.int64)
        start, rows = np.arange(len(centres) + 1) * k, neighbours.ravel()
        spread = spread_of_rows(scaled, start, rows, n_jobs)
        kernel = KernelChoice("linear")
        models = fit_local(
            scaled,
            codes,
            start,
            rows,
            kernel=kernel,
            C=np.where(spread > 0.0, COST / np.maximum(spread, 1.0 / LARGEST), COST),
            sample_weight=weight,
            class_weight=factors,
            max_iter=MOST_STEPS,
            n_jobs=n_jobs,
        )
        normals = LocalMachines(models, scaled, kernel, np.ones(len(centres)), int(codes.max()) + 1).normals()
        size = np.sqrt((normals**2).mean(axis=0)) if len(normals) else np.zeros(X.shape[1])
        if not 0.0 < size.max() < np.inf:
            break
        result = result * np.maximum(size / size.max(), LEAST)
        result /= result.max()
    return result
