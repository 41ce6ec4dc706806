"""Rows to ask the exact machine about: the machine is a free oracle, so there can be as many as a method needs.

Two kinds, both made from a row and others near it:

    between   x + u (a - x), u in (0, 1): interpolation, inside the data
    shifted   x + s (a - b): the row moved as its neighbours differ from each other

Features that are no numbers like any other (`feature_blocks`) are not moved: they take the value of the row or of one
of its neighbours, whole categories at once.

*Stand-ins* are shifted rows for a special purpose. A machine's own training rows are no sample of what it will be
asked: every support vector pulls the score at its own place towards its label, so near it the score is larger, and
changes faster, than at new rows. A method calibrated on training rows would promise too much, the more so the sharper
the kernel. The step s of stand-ins is set so that their distance to the nearest training row is that of a new row,
which for training rows is the distance to the nearest *other* row. Tests and `docs/guarantee.md` compare them with
new rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from svelto import _core
from svelto._threads import thread_count
from svelto._typing import FloatArray, IndexArray, Rows
from svelto.engines.arrays import padded_rows
from svelto.engines.exact import instruction_level
from svelto.feature_blocks import FeatureBlocks, Flags
from svelto.machine import KernelMachine

# Rows of a tree's cell; cells beside each other in the tree's order are mostly, but not always, near each other.
CELL_ROWS: Final = 8
# So a row's neighbours are the nearest of those that stand this close to it in the order, before and after it.
WINDOW: Final = 16
NEIGHBOURS: Final = 8
BAND_ROWS: Final = 128
# A copy of a row is its neighbour only where there are not enough others.
COPY: Final = 1e300
# Categories of a shifted row that come from its neighbours, at most.
MOST_SWAPPED: Final = 2.0 / 3.0
# Probe rows and steps of the search for the stand-ins' step.
PROBE_ROWS: Final = 256
BISECTIONS: Final = 7
# What the exact engine answers within about a second or two.
ORACLE_OPERATIONS: Final = 1.5e11
ORACLE_SCORES: Final = 20_000_000
# Of wide rows fewer are made, as far as this many values go, for memory; but no fewer than so many rows for that.
LEAST_VALUES: Final = 40_000_000
LEAST_OF_WIDE: Final = 100_000
# A step that goes a little beyond what new rows take.
SHIFT_STEP: Final = 1.0
# Rows closer than this, in units of a typical row's distance from the mean, are copies.
SAME: Final = 1e-5
# Rows and support vectors that are looked for among each other.
SHARE_ROWS: Final = 500
# Values of rows that are made together.
PART_VALUES: Final = 1_000_000

# Rows, and two neighbours of each.
Drawn: TypeAlias = tuple[IndexArray, IndexArray, IndexArray]


class Neighbourhoods:
    """Rows with neighbours: the nearest among those that stand close in the order of a metric tree's cells.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Dense float64 rows.
    seed : int
        Of the tree's random starts.
    n_jobs : int, optional
        Threads.

    Attributes
    ----------
    X : ndarray of shape (n, d)
        The rows in the tree's order.
    neighbours : ndarray of shape (n, k)
        Numbers of each row's neighbours in that order, nearest first.
    blocks : FeatureBlocks
        Which features are categories, and which of these change together.
    """

    def __init__(self, X: FloatArray, seed: int, n_jobs: int | None = None) -> None:
        centred = _in_single_range(X - X.mean(axis=0))
        rows = padded_rows(centred)
        level, threads = instruction_level(), thread_count(n_jobs)
        tree = _core.build_tree(rows, CELL_ROWS, 0, 0, 256, 0.0, seed, threads, level)
        self.X: FloatArray = X[tree["order"]]
        self.neighbours: IndexArray = _nearest_in_order(centred[tree["order"]])
        self.blocks = FeatureBlocks.of(self.X)

    def between(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Rows between a row and a neighbour; their categories are the one's or the other's."""

        def made(drawn: Drawn) -> FloatArray:
            row, other = self.X[drawn[0]], self.X[drawn[1]]
            share = rng.random((len(row), 1))
            moved = row + share * (other - row)
            if self.blocks.all_smooth:
                return moved
            mine = rng.random((len(row), self.blocks.n_blocks))[:, self.blocks.block] >= share
            return self.blocks.likely(row, moved, other, choice=np.where(mine, row, other), rng=rng)

        return self._in_parts(self._draw(n, rng), made)

    def shifted(self, n: int, step: float, rng: np.random.Generator, of: IndexArray | None = None) -> FloatArray:
        """Rows moved by `step` times the difference of two neighbours; `of` says which rows, else they are drawn.

        Categories cannot be moved a little: a share of them, step^2 up to two thirds, is taken from neighbours, so that
        the expected squared distance grows as that of the other features does.
        """
        return self._in_parts(self._draw(n, rng, of), lambda drawn: self._moved(drawn, step, rng))

    def _in_parts(self, drawn: Drawn, make: Callable[[Drawn], FloatArray]) -> FloatArray:
        """Make rows part by part: on the way each takes several times its memory."""
        n, d = len(drawn[0]), self.X.shape[1]
        rows: FloatArray = np.empty((n, d))
        size = max(PART_VALUES // d, 1)
        for start in range(0, n, size):
            part = slice(start, start + size)
            rows[part] = make((drawn[0][part], drawn[1][part], drawn[2][part]))
        return rows

    def _moved(self, drawn: Drawn, step: float, rng: np.random.Generator) -> FloatArray:
        row, one, other = (self.X[which] for which in drawn)
        moved = row + step * (one - other)
        if self.blocks.all_smooth:
            return moved
        choice = np.where(self._swapped(len(row), step, rng), self._from_neighbours(drawn[0], rng), row)
        return self.blocks.likely(row, moved, one, other, choice=choice, rng=rng)

    def _swapped(self, n: int, step: float, rng: np.random.Generator) -> Flags:
        """Which features of n rows come from a neighbour, whole blocks at once."""
        return (rng.random((n, self.blocks.n_blocks)) < min(step * step, MOST_SWAPPED))[:, self.blocks.block]

    def _from_neighbours(self, i: IndexArray, rng: np.random.Generator) -> FloatArray:
        """Rows whose blocks come from neighbours, each from its own: one neighbour for all would be the result."""
        drawn = rng.integers(self.neighbours.shape[1], size=(len(i), self.blocks.n_blocks))
        source = np.take_along_axis(self.neighbours[i], drawn, axis=1)[:, self.blocks.block]
        rows: FloatArray = self.X[source, np.arange(self.X.shape[1])]
        return rows

    def stand_in_step(self, rng: np.random.Generator) -> float:
        """The step at which shifted rows are as far from the nearest row as the rows are from each other."""
        n = len(self.X)
        probe = rng.choice(n, size=min(n, PROBE_ROWS), replace=False)
        centre = np.median(self.X, axis=0)
        X = self.X - centre  # distances stay, and digits are not lost to a common offset
        norms = np.einsum("ij,ij->i", X, X)
        # Copies of a row would make the distance to "another" row zero, and the stand-in a copy as well.
        same = SAME**2 * float(np.median(norms))

        def nearest(rows: FloatArray, skip: IndexArray | None) -> FloatArray:
            sq = np.einsum("ij,ij->i", rows, rows)[:, None] + norms[None, :] - 2.0 * (rows @ X.T)
            if skip is not None:
                sq[np.arange(len(rows)), skip] = np.inf
                sq[sq <= same] = np.inf
            distances: FloatArray = np.sqrt(np.maximum(sq.min(axis=1), 0.0))
            return distances

        own = nearest(X[probe], probe)
        own = own[np.isfinite(own)]
        if len(own) == 0:
            return 0.0
        wanted = float(np.median(own))
        low, high = 0.0, 2.0
        drawn, seed = self._draw(len(probe), rng, probe), int(rng.integers(2**31))
        for _ in range(BISECTIONS):
            step = 0.5 * (low + high)
            moved = self._moved(drawn, step, np.random.default_rng(seed)) - centre
            if float(np.median(nearest(moved, None))) < wanted:
                low = step
            else:
                high = step
        return high

    def _draw(self, n: int, rng: np.random.Generator, of: IndexArray | None = None) -> Drawn:
        i = rng.integers(len(self.X), size=n) if of is None else of
        k = self.neighbours.shape[1]
        # Two different neighbours: a difference of zero would give the row itself.
        one = rng.integers(k, size=n)
        other = (one + 1 + rng.integers(max(k - 1, 1), size=n)) % k
        return i, self.neighbours[i, one], self.neighbours[i, other]


def _in_single_range(X: FloatArray) -> FloatArray:
    """Rows in a unit that single precision can square: a power of two, so that nothing else changes."""
    largest = float(np.abs(X).max(initial=0.0))
    return np.ldexp(X, -math.frexp(largest)[1]) if 0.0 < largest < np.inf else X


def _nearest_in_order(centred: FloatArray) -> IndexArray:
    """The nearest rows to each among those up to `WINDOW` before and after it; copies of it come last."""
    n, window = len(centred), min(WINDOW, len(centred) - 1)
    k = min(NEIGHBOURS, max(n - 1, 1))
    norms = np.einsum("ij,ij->i", centred, centred)
    same = SAME**2 * float(np.median(norms))
    found: IndexArray = np.zeros((n, k), dtype=np.intp)
    with threadpool_limits(limits=1, user_api="blas"):  # products too small to share
        for start in range(0, n, BAND_ROWS):
            rows = slice(start, min(start + BAND_ROWS, n))
            first, last = max(start - window, 0), min(rows.stop + window, n)
            sq = norms[rows, None] + norms[None, first:last] - 2.0 * (centred[rows] @ centred[first:last].T)
            away = np.abs(np.arange(first, last)[None, :] - np.arange(start, rows.stop)[:, None])
            sq[sq <= same] = COPY
            sq[(away > window) | (away == 0)] = np.inf
            found[rows] = first + _smallest_first(sq, k)
    return found


def _smallest_first(values: FloatArray, k: int) -> IndexArray:
    """Places of the k smallest values of each row, in their order; of equal ones the first."""
    if k < values.shape[1]:
        places = np.sort(np.argpartition(values, k - 1, axis=1)[:, :k], axis=1)
    else:
        places = np.broadcast_to(np.arange(values.shape[1]), values.shape)
    order = np.argsort(np.take_along_axis(values, places, axis=1), axis=1, kind="stable")
    found: IndexArray = np.take_along_axis(places, order, axis=1)
    return found


def support_share(machine: KernelMachine, X: Rows) -> float:
    """How much X looks like training rows: 0 where it holds no support vector, near 1 where it holds all of them.

    The larger of two shares, each from a sample: support vectors that are found among the rows, and rows that are found
    among the support vectors (so that a part of the training rows is recognised too). A row counts as found if another
    is within a hundred-thousandth of a typical row's size: files keep few digits, and scalers may round to float32.
    """
    vectors = machine.support_vectors
    rng = np.random.default_rng(0)
    # Medians, here and below: one wild value must not decide what is close.
    centre = np.zeros(vectors.shape[1]) if sparse.issparse(vectors) else np.median(vectors, axis=0)
    return max(_found(_sample(vectors, rng), X, centre), _found(_sample(X, rng), vectors, centre))


def _sample(X: Rows, rng: np.random.Generator) -> FloatArray:
    n = X.shape[0]
    rows = X[np.sort(rng.choice(n, size=min(n, SHARE_ROWS), replace=False))]
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows, dtype=np.float64)


def _found(sample: FloatArray, among: Rows, centre: FloatArray) -> float:
    """Share of the rows of a sample that have a copy, up to rounding."""
    sample = sample - centre
    own = np.einsum("ij,ij->i", sample, sample)
    limit = SAME**2 * max(float(np.median(own)), np.finfo(np.float64).tiny)
    found = np.zeros(len(sample), dtype=bool)
    step = max(1, 8_000_000 // max(among.shape[1], len(sample)))
    for start in range(0, among.shape[0], step):
        part = among[start : start + step]
        part = np.asarray(part.toarray() if sparse.issparse(part) else part, dtype=np.float64) - centre
        sq = own[:, None] + np.einsum("ij,ij->i", part, part)[None, :] - 2.0 * (sample @ part.T)
        found |= sq.min(axis=1) <= limit
    return float(found.mean())


@dataclass(frozen=True)
class OracleNeeds:
    """How many oracle rows a method wants, where that is left to it, and of which kind.

    Attributes
    ----------
    per_row, least, per_feature : int
        Rows made up for each given one, at least, and for each feature; the largest of the three counts.
    between : float
        Share of them that is between neighbours; the others are shifted.
    step : float
        Step of those that are shifted.
    """

    per_row: int
    least: int
    per_feature: int
    between: float
    step: float


# Few rows of many features leave every leaf of a tree thin, so these ask for some rows for each feature.
FOR_LEAVES: Final = OracleNeeds(per_row=4, least=20_000, per_feature=800, between=0.5, step=SHIFT_STEP)
# Hinges see every row several times, and learn what they see: rows between others are too easy for them. More of them
# leave fewer rows open (a fifth of the cost for pendigits and satimage with 400,000 instead of 100,000).
FOR_HINGES: Final = OracleNeeds(per_row=8, least=400_000, per_feature=0, between=0.0, step=0.7)


def oracle_rows(
    machine: KernelMachine,
    X: FloatArray,
    wanted: int | Literal["auto"],
    seed: int,
    rng: np.random.Generator,
    n_jobs: int | None,
    needs: OracleNeeds = FOR_LEAVES,
    near: Neighbourhoods | None = None,
) -> FloatArray:
    """The given rows and rows made of them; "auto": as needed, as far as the exact engine answers them in seconds.

    `near` is the neighbourhoods of the rows, where they are known.
    """
    n, d = X.shape
    if wanted == "auto":
        most = affordable_rows(machine, d)
        least = min(needs.least, max(LEAST_OF_WIDE, LEAST_VALUES // d))
        extra = min(max(needs.per_row * n, least, needs.per_feature * d), max(most - n, 0))
        if n > most:
            X = X[rng.choice(n, size=most, replace=False)]
    else:
        extra = int(wanted)
    if extra == 0 or n < 2:
        return X
    near = near or Neighbourhoods(X, seed, n_jobs)
    n_between = int(needs.between * extra)
    return np.concatenate([X, near.between(n_between, rng), near.shifted(extra - n_between, needs.step, rng)])


def affordable_rows(machine: KernelMachine, n_features: int) -> int:
    """Rows whose scores the exact engine gives within about a second or two, and memory holds."""
    per_row = machine.n_sv * (n_features + 16.0 + machine.dual_coef.shape[0])
    return max(int(min(ORACLE_OPERATIONS / per_row, ORACLE_SCORES / machine.n_scores)), 1)
