"""Hinges in one layer or two: their definition, where they start, and their training.

The columns of a layer are the scores, as far as they are known after it, and then its hinges (`native/hinges.hpp`):

    first layer    [scores | z] = x A + a        z' = max(0, z)
    second layer   [scores | z] += z' A + a      z' = max(0, z)       (with two layers)
    at the end     scores += z' mix

so every layer adds its linear part to the scores, and a layer is one product, in training as in prediction. Training is
Adam (Kingma & Ba 2015) on batches, on all weights as one vector, with a rate that falls to zero along a cosine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from svelto._typing import FloatArray

Single = NDArray[np.float32]

BATCH_ROWS: Final = 256
RATE: Final = 1e-2
MEANS: Final = (0.9, 0.999)
# Rows that show how far hinges reach when they start.
START_ROWS: Final = 4 * BATCH_ROWS


class Pull(Protocol):
    """Slope of the loss of some rows by their outputs."""

    def __call__(self, outputs: Single, chosen: Any) -> Single:
        """`chosen` are the numbers of the rows."""


class Hinges(NamedTuple):
    """Weights and biases of each layer, and what the last hinges add to the scores."""

    weights: tuple[Single, ...]
    biases: tuple[Single, ...]
    mix: Single

    @property
    def n_scores(self) -> int:
        """Number of scores."""
        return int(self.mix.shape[1])

    @property
    def sizes(self) -> tuple[int, ...]:
        """Hinges of each layer."""
        return tuple(len(bias) - self.n_scores for bias in self.biases)

    @property
    def arrays(self) -> tuple[Single, ...]:
        """All of it."""
        return (*self.weights, *self.biases, self.mix)

    def scores(self, X: Any) -> Single:
        """Scores of rows, as they are defined."""
        inputs: Single = np.asarray(X, dtype=np.float32)
        scores: Single = np.zeros((len(inputs), self.n_scores), dtype=np.float32)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            columns = inputs @ weight + bias
            scores += columns[:, : self.n_scores]
            inputs = np.maximum(columns[:, self.n_scores :], 0.0)
        scores += inputs @ self.mix
        return scores

    def in_units(self, centre: FloatArray, unit: float, size: FloatArray, middle: FloatArray) -> Hinges:
        """Hinges of rows (x - centre) / unit and scores (s - middle) / size, for rows and scores as they are."""
        p = self.n_scores
        weights, biases = ([np.array(part, dtype=np.float64) for part in parts] for parts in self[:2])
        weights[0] /= unit
        biases[0] -= centre @ weights[0]
        for weight, bias in zip(weights, biases, strict=True):
            weight[:, :p] *= size
            bias[:p] *= size
        biases[0][:p] += middle
        return Hinges(tuple(map(_single, weights)), tuple(map(_single, biases)), _single(self.mix * size))


def _single(values: Any) -> Single:
    return np.ascontiguousarray(values, dtype=np.float32)


def start(rows: Single, linear: FloatArray, sizes: tuple[int, ...], rng: np.random.Generator) -> Hinges:
    """Hinges half-way between pairs of rows, across the line between them, with next to no weight.

    `linear` holds coefficients and, in its last row, constants of the scores. Hinges of a second layer stand between
    rows too, as the first layer sees them.
    """
    n_scores, inputs = linear.shape[1], rows
    own, constant = linear[:-1], linear[-1]
    weights, biases = [], []
    for size in sizes:
        direction, offset = _between_pairs(inputs, size, rng)
        weights.append(_single(np.hstack([own, direction])))
        biases.append(_single(np.concatenate([constant, offset])))
        inputs = np.maximum(inputs @ direction + offset, 0.0) if len(weights) < len(sizes) else inputs
        own, constant = rng.normal(size=(size, n_scores)) * (0.1 / np.sqrt(size)), np.zeros(n_scores)
    return Hinges(tuple(weights), tuple(biases), _single(own))


def _between_pairs(rows: Single, size: int, rng: np.random.Generator) -> tuple[Single, Single]:
    one, other = rng.integers(len(rows), size=(2, size))
    direction = rows[one] - rows[other]
    direction /= np.linalg.norm(direction, axis=1, keepdims=True) + 1e-6
    offset = -0.5 * np.einsum("ij,ij->i", rows[one] + rows[other], direction)
    spread = (rows[:START_ROWS] @ direction.T + offset).std(axis=0) + 1e-6
    return _single(direction.T / spread), _single(offset / spread)


class Adam:
    """Adam on one vector, in place.

    Parameters
    ----------
    values : ndarray
        What is trained.
    steps : int
        Steps until the rate is zero.
    """

    def __init__(self, values: Single, steps: int) -> None:
        self.values = values
        self.slope = np.zeros_like(values)
        self._first, self._second, self._change = (np.zeros_like(values) for _ in range(3))
        self._steps, self._step = steps, 0

    def step(self) -> None:
        """One step against `slope`, which it overwrites."""
        self._step += 1
        # Passes differ a little in length: the rate does not rise again beyond its end.
        rate = 0.5 * RATE * (1.0 + np.cos(np.pi * min(self._step / self._steps, 1.0)))
        rate *= np.sqrt(1.0 - MEANS[1] ** self._step) / (1.0 - MEANS[0] ** self._step)
        slope, first, second, change = self.slope, self._first, self._second, self._change
        np.multiply(slope, 1.0 - MEANS[0], out=change)
        first *= MEANS[0]
        first += change
        slope *= slope
        slope *= 1.0 - MEANS[1]
        second *= MEANS[1]
        second += slope
        np.sqrt(second, out=change)
        change += 1e-8
        np.divide(first, change, out=change)
        change *= rate
        self.values -= change


def trained(
    begin: Hinges,
    rows: Single,
    pull: Pull,
    epochs: int,
    rng: np.random.Generator,
    *,
    chance: Single | None = None,
    progress: Callable[[float, Hinges], bool] | None = None,
) -> Hinges:
    """Train hinges.

    Parameters
    ----------
    begin : Hinges
        Where to start.
    rows : ndarray of shape (n, d)
        Rows.
    pull : callable
        The loss.
    epochs : int
        The work: as many rows are looked at as `epochs` times all of them.
    rng : Generator
        Order of the rows.
    chance : ndarray of shape (n,), optional
        Chance of each row to take part in a pass; there are the more passes.
    progress : callable, optional
        Told the share of the work that is done and the hinges as they are, after each pass; ends it by True.
    """
    flat = np.concatenate([part.ravel() for part in begin.arrays])
    n, batch = len(rows), min(BATCH_ROWS, len(rows))
    passes = epochs if chance is None else max(round(epochs * n / float(chance.sum())), 1)
    adam = Adam(flat, max(epochs * n // batch, 1))
    hinges, slopes = (_views(values, begin) for values in (flat, adam.slope))
    # Products of a batch are too small to share: threads would spend their time waiting for each other.
    with threadpool_limits(limits=1, user_api="blas"):
        for number in range(passes):
            order = rng.permutation(n if chance is None else np.flatnonzero(rng.random(n) < chance))
            for at in range(0, len(order) - batch + 1, batch):
                chosen = order[at : at + batch]
                _slopes(hinges, slopes, rows[chosen], partial(pull, chosen=chosen))
                adam.slope /= np.float32(batch)
                adam.step()
            if progress is not None and progress((number + 1) / passes, hinges):
                break
    return hinges


def _views(flat: Single, like: Hinges) -> Hinges:
    """Hinges of the same shapes that lie in one vector."""
    shapes = [part.shape for part in like.arrays]
    ends = np.cumsum([prod(shape) for shape in shapes])[:-1]
    parts = [part.reshape(shape) for part, shape in zip(np.split(flat, ends), shapes, strict=True)]
    n = len(like.weights)
    return Hinges(tuple(parts[:n]), tuple(parts[n : 2 * n]), parts[-1])


def _slopes(hinges: Hinges, slopes: Hinges, x: Single, pull: Callable[[Single], Single]) -> None:
    """Slopes of the loss, summed over rows, by every weight."""
    p = hinges.n_scores
    inputs, is_open = [x], []
    outputs: Any = np.float32(0.0)
    for weight, bias in zip(hinges.weights, hinges.biases, strict=True):
        columns = inputs[-1] @ weight
        columns += bias
        outputs = outputs + columns[:, :p]
        is_open.append(columns[:, p:] > 0.0)
        inputs.append(columns[:, p:] * is_open[-1])
    force = pull(outputs + inputs[-1] @ hinges.mix)
    np.matmul(inputs[-1].T, force, out=slopes.mix)
    back = force @ hinges.mix.T
    for layer in reversed(range(len(is_open))):
        back *= is_open[layer]
        columns = np.concatenate([force, back], axis=1)
        np.matmul(inputs[layer].T, columns, out=slopes.weights[layer])
        np.sum(columns, axis=0, out=slopes.biases[layer])
        if layer > 0:
            back = columns @ hinges.weights[layer].T
