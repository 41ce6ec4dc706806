"""Hinges fitted to scores: a linear part, and max(0, w.x + c) of some directions, in one layer or two.

    g(x) = sum_h v_h max(0, w_h.x + c_h) + w_0.x + c_0

The linear part starts as a ridge regression; then all of it is trained (`hinge_training`). Rows are in one unit for all
features, as the kernel sees them: a rare category stays small.

Where signs are what counts, precision goes where they are decided:
- scores beyond `CLIPPED` are all alike, whether they are the machine's or the hinges' own;
- a residual pulls no harder than `STEEPEST`;
- small scores weigh more, and rows with small scores are looked at more often, instead of weighing as much more;
- of pair scores only those of the winner of the vote count, nearly: the others do not change a label.

`fit_class_hinges` learns labels instead, with one score a class and the logistic loss.

Invariant: the same rows and seed give the same hinges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from svelto._typing import FloatArray
from svelto.engines.hinge_training import Hinges, Single, start, trained
from svelto.voting import pairs, votes

# In units of the median |score|: where scores are clipped, and where a score's weight has fallen to a half.
CLIPPED: Final = 1.5
HALF_WEIGHT: Final = 0.5
# Residuals beyond this pull no harder.
STEEPEST: Final = 0.5
# Weight of a pair score that the winner of the vote has no part in.
BYSTANDERS: Final = 0.02
# Share of the rows that take part in a pass, where some matter more than others; the least chance, relative to it.
SEEN: Final = 0.4
LEAST_CHANCE: Final = 0.05
# Fewer rows all take part.
FEW_ROWS: Final = 4096
RIDGE: Final = 1e-3
MEDIAN_ROWS: Final = 5000

# Told the share of the work that is done; and the hinges as they are. True: enough.
Told = Callable[[float], bool]
Enough = Callable[[Hinges], bool]


def fit_hinges(
    X: Any,
    scores: FloatArray,
    n_hinges: int | tuple[int, ...],
    *,
    signs: bool,
    epochs: int,
    rng: np.random.Generator,
    n_classes: int = 0,
    progress: Told | None = None,
    enough: Enough | None = None,
) -> Hinges:
    """Fit hinges to scores.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    scores : ndarray of shape (n, n_scores)
        What they shall be given.
    n_hinges : int or tuple of int
        Hinges, shared by all scores; of each layer.
    signs : bool
        Whether the signs of the scores are what counts.
    epochs : int
        Times that rows are seen, on average.
    rng : Generator
        Draws.
    n_classes : int, default=0
        Classes that the scores are pairs of, and vote on; 0: each score counts for itself.
    progress : callable, optional
        Told the share of the work that is done after each pass; ends it where it returns True.
    enough : callable, optional
        Shown the hinges after each pass; ends it where it returns True.

    Returns
    -------
    Hinges
        For rows and scores in their own units.
    """
    rows, centre, unit = _in_one_unit(X)
    size = _median_size(scores) if signs else np.where(scores.std(axis=0) > 0.0, scores.std(axis=0), 1.0)
    middle = np.zeros(scores.shape[1]) if signs else scores.mean(axis=0)
    target = ((scores - middle) / size).astype(np.float32)
    limit = np.float32(CLIPPED if signs else np.inf)
    weight, chance = np.ones((len(rows), 1), dtype=np.float32), None
    if signs:
        weight = decisive_weights(scores, n_classes)
        chance = _chances(weight.mean(axis=1)) if len(rows) > FEW_ROWS else None
        np.clip(target, -limit, limit, out=target)
    linear = _ridge(rows, target, weight.mean(axis=1))
    if chance is not None:
        weight /= chance[:, None]

    def pull(outputs: Single, chosen: Any) -> Single:
        force: Single = np.clip(outputs, -limit, limit)
        force -= target[chosen]
        np.clip(force, -STEEPEST, STEEPEST, out=force)
        force *= weight[chosen]
        return force

    def own(hinges: Hinges) -> Hinges:
        return hinges.in_units(centre, unit, size, middle)

    begin = start(rows, linear, _sizes(n_hinges), rng)
    told = _callback(progress, enough, own)
    return own(trained(begin, rows, pull, epochs, rng, chance=chance, progress=told))


def fit_class_hinges(
    X: Any,
    labels: Any,
    n_classes: int,
    n_hinges: int | tuple[int, ...],
    *,
    epochs: int,
    rng: np.random.Generator,
    progress: Told | None = None,
    enough: Enough | None = None,
) -> Hinges:
    """Fit hinges with one score a class, the largest for the row's label; other arguments as for `fit_hinges`.

    Parameters
    ----------
    labels : ndarray of shape (n,)
        Number of each row's class, from 0 on.
    n_classes : int
        Number of classes.
    """
    rows, centre, unit = _in_one_unit(X)

    def pull(outputs: Single, chosen: Any) -> Single:
        chances: Single = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        chances[np.arange(len(chosen)), labels[chosen]] -= 1.0
        return chances

    def own(hinges: Hinges) -> Hinges:
        return hinges.in_units(centre, unit, np.ones(n_classes), np.zeros(n_classes))

    begin = start(rows, np.zeros((rows.shape[1] + 1, n_classes)), _sizes(n_hinges), rng)
    return own(trained(begin, rows, pull, epochs, rng, progress=_callback(progress, enough, own)))


def _sizes(n_hinges: int | tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n_hinges) if isinstance(n_hinges, tuple) else (n_hinges,)


def _in_one_unit(X: Any) -> tuple[Single, FloatArray, float]:
    """Rows around zero and of about unit size, their centre, and their unit."""
    centre, unit = X.mean(axis=0), float(np.sqrt(X.var(axis=0).mean())) or 1.0
    rows: Single = ((X - centre) / unit).astype(np.float32)
    return rows, centre, unit


def _callback(
    progress: Told | None, enough: Enough | None, own: Callable[[Hinges], Hinges]
) -> Callable[[float, Hinges], bool]:
    def told(share: float, hinges: Hinges) -> bool:
        stopped = progress is not None and progress(share)
        return stopped or (enough is not None and enough(own(hinges)))

    return told


def _median_size(scores: FloatArray) -> FloatArray:
    """Median |score|, of rows all over the place: with hundreds of pairs the medians of all rows would take seconds."""
    size = np.median(np.abs(scores[:: max(len(scores) // MEDIAN_ROWS, 1)]), axis=0)
    return np.where(size > 0.0, size, 1.0)


def decisive_weights(scores: FloatArray, n_classes: int) -> Single:
    """Weight of every score, with a mean of 1: large where its sign is decided, and where that decides a vote."""
    target = (scores / _median_size(scores)).astype(np.float32)
    weight: Single = 1.0 / (1.0 + np.square(target / np.float32(HALF_WEIGHT)))
    if n_classes > 2:
        counts = votes(scores, n_classes)
        most = counts.max(axis=1)
        for column, (i, j) in enumerate(pairs(n_classes)):
            weight[np.maximum(counts[:, i], counts[:, j]) < most, column] *= BYSTANDERS
    weight /= weight.mean()
    return weight


def _chances(weight: Single) -> Single:
    """Chance of rows to take part in a pass: as their weights, none too small or beyond 1, `SEEN` on average."""
    chance: Single = weight * np.float32(SEEN / weight.mean())
    for _ in range(5):  # what is cut off at 1 goes to the others
        np.clip(chance, LEAST_CHANCE * SEEN, 1.0, out=chance)
        chance *= np.float32(SEEN) / chance.mean()
    np.minimum(chance, 1.0, out=chance)
    return chance


def _ridge(rows: Single, target: Single, weight: Single) -> FloatArray:
    """Coefficients and constants of a weighted ridge regression."""
    n, d = rows.shape
    with_one = np.hstack([rows, np.ones((n, 1), dtype=np.float32)])
    weighted = with_one * weight[:, None]
    system = weighted.T @ with_one + RIDGE * n * np.eye(d + 1, dtype=np.float32)
    return np.asarray(np.linalg.solve(system, weighted.T @ target))
