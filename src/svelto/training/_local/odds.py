"""Probabilities from the scores of local SVMs: one factor, learned on rows that were held out.

    P(class) is proportional to exp(factor * score)

so the label's probability is always the largest. Two classes have the scores -s and s.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from sklearn.base import clone

from svelto._crew import Crew
from svelto._progress import Tell
from svelto._typing import FloatArray, IntArray
from svelto.probability import Temperature

HELD_OUT_SHARE: Final = 0.2
HELD_OUT_ROWS: Final = 20_000
# Of the factor's logarithm to base 2.
RANGE: Final = (-20.0, 10.0)


def learn_odds(
    estimator: Any,
    k: int,
    k_prime: int,
    X: FloatArray,
    codes: IntArray,
    weight: FloatArray | None,
    factors: FloatArray | None,
    n_classes: int,
    draws: Any,
    tell: Tell,
    crew: Crew | None = None,
) -> Temperature:
    """Hold rows out, train on the others, and find the factor that makes the held-out labels most probable.

    Parameters
    ----------
    estimator : LocalSVC
        With the parameters to use; it is not changed.
    k, k_prime : int
        Sizes to use.
    X, codes, weight, factors, n_classes
        Rows, class codes, weights and factors of classes, if any.
    draws : RandomState
        Draws the rows that are held out.
    tell : Tell
        Told what is being done.
    crew : Crew, optional
        Workers that train.

    Returns
    -------
    Temperature
    """
    order = draws.permutation(len(X))
    n_held = min(max(1, int(HELD_OUT_SHARE * len(X))), HELD_OUT_ROWS)
    held, known = order[:n_held], np.sort(order[n_held:])
    if len(known) == 0:
        return Temperature(1.0)
    size = min(k, len(known))
    trial = clone(estimator).set_params(
        k=size,
        k_prime=min(k_prime, size),
        probability=False,
        metric="euclidean",
        random_state=int(draws.randint(2**31 - 1)),
    )
    part = None if weight is None else weight[known]
    trial._begin(trial._checked(), X[known], codes[known], part, factors, np.arange(n_classes), tell, crew)
    return best_odds(trial._scores(X[held]), codes[held], None if weight is None else weight[held])


def best_odds(scores: FloatArray, codes: IntArray, weight: FloatArray | None) -> Temperature:
    """The factor with the smallest log loss."""
    columns = np.hstack([-scores, scores]) if scores.shape[1] == 1 else scores
    worth = np.ones(len(codes)) if weight is None else weight

    def loss(exponent: float) -> float:
        logits = 2.0**exponent * columns
        return float(worth @ (logsumexp(logits, axis=1) - logits[np.arange(len(codes)), codes]))

    found = minimize_scalar(loss, bounds=RANGE, method="bounded")
    return Temperature(float(2.0**found.x))
