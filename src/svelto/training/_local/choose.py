"""The size of a neighbourhood, chosen by cross-validation on a sample of the rows."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from sklearn.base import clone

from svelto._progress import Tell, span
from svelto._typing import FloatArray, IntArray
from svelto.training._local.base import PLAIN, codes_of

SAMPLE_ROWS: Final = 10_000
SIZES: Final = (8, 16, 32, 64, 128, 256, 512, 1024)
# Up to here one SVM on all rows is tried as well.
MOST_FOR_ALL: Final = 1_500
N_FOLDS: Final = 3


def choose_k(
    estimator: Any,
    X: FloatArray,
    codes: IntArray,
    weight: FloatArray | None,
    factors: FloatArray | None,
    draws: Any,
    tell: Tell,
) -> dict[int, float]:
    """Accuracy on held-out rows by k.

    Parameters
    ----------
    estimator : LocalSVC
        With the parameters to use; it is not changed.
    X, codes, weight, factors
        Rows, class codes, weights and factors of classes, if any.
    draws : RandomState
        Draws the sample and the folds.
    tell : Tell
        Told what is being tried.

    Returns
    -------
    dict
        From k to the (weighted) share of right answers.
    """
    seed = int(draws.randint(2**31 - 1))
    sample = np.sort(draws.permutation(len(X))[:SAMPLE_ROWS])
    X, codes = X[sample], codes[sample]
    weight = None if weight is None else weight[sample]
    worth = np.ones(len(X)) if weight is None else weight
    folds = draws.permutation(len(X)) % N_FOLDS
    n_known = len(X) - int(np.bincount(folds).max())
    sizes = [k for k in SIZES if (estimator.k_prime or 1) <= k < n_known]
    if len(X) <= MOST_FOR_ALL or not sizes:
        sizes.append(len(X))
    n_classes = int(codes.max()) + 1 if factors is None else len(factors)
    right = dict.fromkeys(sizes, 0.0)
    if n_known < 1:
        return right
    for done, (k, fold) in enumerate((k, fold) for k in sizes for fold in range(N_FOLDS)):
        share = done / (len(sizes) * N_FOLDS)
        tell(f"k={k}, fold {fold + 1} of {N_FOLDS}", share)
        held = folds == fold
        if not held.any():
            continue
        size = min(k, int((~held).sum()))
        k_prime = None if estimator.k_prime is None else min(estimator.k_prime, size)
        trial = clone(estimator).set_params(k=size, k_prime=k_prime, **PLAIN, random_state=seed)
        part = None if weight is None else weight[~held]
        quiet = span(lambda step, share=0.0: None, 0.0, 1.0)
        trial._begin(trial._checked(), X[~held], codes[~held], part, factors, np.arange(n_classes), quiet)
        right[k] += float(worth[held][codes_of(trial._scores(X[held])) == codes[held]].sum())
    return {k: total / float(worth.sum()) for k, total in right.items()}
