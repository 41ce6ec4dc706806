"""Grids: features that know only the values origin + whole number * step.

Counts, grades and quantised measurements lie on a grid of few steps, also behind a scaler. A value between two grid
points is no such number: noise, a mean that fills a gap, a zero where zero does not occur, another feature's values. By
box, balls and directions such a row may look like any other.

    u = (x - origin) * scale,  scale = 1 / step
    x is on its grid where |u - round(u)| <= TOLERANCE

A scale of 0 stands for a feature without a grid: every value is on it. Known values are within `KNOWN` of a grid point,
so that no form of a row, single precision or scaling leaves the grid by rounding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from svelto._typing import FloatArray, IndexArray

# Steps from a grid point up to which a value is on the grid, and up to which known ones must be.
TOLERANCE: Final = 1.0 / 8.0
KNOWN: Final = 1.0 / 16.0
# A grid has at most so many steps between its smallest and its largest value: a finer one is hardly a rule. Fewer than
# this many rows for each step, those at the commonest value apart, show none: rare values are on some grid by chance.
MOST_STEPS: Final = 128
ROWS_PER_STEP: Final = 10
# All numbers around a grid are at most so many steps: single precision knows these to a small part of the tolerance.
MOST_REACH: Final = 2.0**13
# Scales beyond it, and below its inverse, belong to numbers that single precision cannot square.
MOST_SCALE: Final = 2.0**60


@dataclass(frozen=True, eq=False)
class Grids:
    """The grids of all features.

    Attributes
    ----------
    scale : ndarray of shape (n_features,)
        One over the step; 0 where a feature has no grid.
    origin : ndarray of shape (n_features,)
        A point of the grid; 0 where there is none.
    """

    scale: FloatArray
    origin: FloatArray

    @property
    def features(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which features have a grid."""
        return self.scale > 0.0

    def off(self, rows: FloatArray, tolerance: float = TOLERANCE) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which values are off their grid; NaN is."""
        with np.errstate(over="ignore", invalid="ignore"):
            steps = (rows - self.origin) * self.scale
            return ~(np.abs(steps - np.rint(steps)) <= tolerance)

    def nearest(self, rows: FloatArray) -> FloatArray:
        """The rows with every value moved to the nearest point of its grid."""
        known = self.features
        moved = np.array(rows, dtype=np.float64)
        moved[:, known] = self.origin[known] + np.rint((moved - self.origin) * self.scale)[:, known] / self.scale[known]
        return moved

    def only(self, kept: np.ndarray[Any, np.dtype[np.bool_]]) -> Grids | None:
        """Grids of these features; None where no feature is left."""
        if not (self.features & kept).any():
            return None
        return Grids(np.where(kept, self.scale, 0.0), np.where(kept, self.origin, 0.0))

    def kept_by(self, blocks: Iterable[FloatArray], exceptions: float = 0.0) -> Grids | None:
        """Those that known rows keep to, all but a share of them."""
        n, counts = 0, np.zeros(len(self.scale))
        for rows in blocks:
            n += len(rows)
            counts += self.off(rows, KNOWN).sum(axis=0)
        return self.only(counts <= exceptions * n)

    def reaches(self, low: FloatArray, high: FloatArray, margin: float) -> FloatArray:
        """The largest number that is met, in steps, where values may leave [low, high] by a margin."""
        edges = np.maximum(np.maximum(np.abs(low), np.abs(high)) + margin, np.abs(self.origin))
        with np.errstate(over="ignore"):
            return np.asarray(edges * self.scale)

    def within_reach(self, low: FloatArray, high: FloatArray, margin: float) -> Grids | None:
        """Those whose numbers single precision knows well enough."""
        return self.only(self.reaches(low, high, margin) <= MOST_REACH)


def find_grid(values: FloatArray, counts: IndexArray) -> tuple[float, float] | None:
    """Scale and origin of the grid that distinct values, in order, lie on; None where rows, by value, show none.

    The step is the smallest difference. Values that a scaler or a file with six digits has moved apart are one value:
    a difference that no grid of so many steps can have is no step.
    """
    most_steps = min(MOST_STEPS, int(counts.sum() - counts.max(initial=0)) // ROWS_PER_STEP)
    if len(values) < 2 or most_steps < 1:
        return None
    width = float(values[-1]) - float(values[0])
    if not 0.0 < width < np.inf:
        return None
    differences = np.diff(values)
    smallest = float(np.min(differences, where=differences > width / (2 * most_steps), initial=np.inf))
    if not 1.0 / MOST_SCALE < smallest < np.inf:
        return None
    n_steps = round(width / smallest)
    scale, origin = n_steps / width, float(values[0])
    if n_steps > most_steps or scale > MOST_SCALE:
        return None
    found = Grids(np.array([scale]), np.array([origin]))
    return None if found.off(values[:, None], KNOWN).any() else (scale, origin)


def find_grids(features: Iterable[tuple[FloatArray, IndexArray]]) -> Grids | None:
    """Grids of features by their distinct values and the rows that have each; None where no feature has one."""
    found = [find_grid(values, counts) for values, counts in features]
    grids = Grids(*(np.array([0.0 if one is None else one[i] for one in found]) for i in (0, 1)))
    return grids.only(grids.features)
