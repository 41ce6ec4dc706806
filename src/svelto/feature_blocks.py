"""Features that belong together, and features that know only a few values.

Rows that are made up must be rows that could come: a category is there or not, never at 0.37. A feature with few values
is discrete and takes no others; of more than two it takes one beside the place where it would have been moved, and so
does a feature with some dozens of values on a grid (`guard_grid`). Binary features of which at most one is set in any
row are one block (a category after one-hot encoding), and change together. Blocks of which one says what the other is
(a grade as a category and again as a number) are one block too. Of other features one value may be common (zero where
rows are sparse, the background of an image): it is there or not as well. And where several rows share a feature's
smallest or largest value, there is nothing beyond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from svelto._typing import FloatArray, IndexArray
from svelto.guard_grid import Grids, find_grids

Flags = np.ndarray[Any, np.dtype[np.bool_]]

# Rows are read by their stored features where at least this share of the features is zero.
ZERO_SHARE: Final = 0.5
# Rows that are looked at, and values up to which a feature is discrete.
SAMPLE_ROWS: Final = 5_000
MOST_VALUES: Final = 12
# Fewer rows than this for each value show nothing.
ROWS_PER_VALUE: Final = 10
# Rows that share an extreme value, from which on it is a bound.
AT_BOUND: Final = 5
# Share of the rows from which on a value is common.
COMMON_SHARE: Final = 0.1
# One block tells another if it makes no more than this share of the errors of guessing without it, and these are many.
RULE_ERRORS: Final = 0.01
RULE_ROWS: Final = 50
# Categories of all blocks up to which such rules are looked for: counting pairs takes their square.
MOST_CATEGORIES: Final = 3000


@dataclass(frozen=True, eq=False)
class FeatureBlocks:
    """What the features of some rows are.

    Attributes
    ----------
    discrete : ndarray of bool, shape (n_features,)
        Features with few values.
    common : ndarray of shape (n_features,)
        The common value of a feature that is not discrete; NaN where there is none.
    block : ndarray of shape (n_features,)
        Number of the block of each feature; a feature alone is a block of its own.
    low, high : ndarray of shape (n_features,)
        Bounds; infinite where there is none.
    steps : dict of int to ndarray
        The values, in order, of each feature that is discrete or on a grid, has more than two and is alone in its
        block.
    grids : Grids or None
        Of features whose values lie on one, shown by enough rows.
    """

    discrete: Flags
    common: FloatArray
    block: IndexArray
    low: FloatArray
    high: FloatArray
    steps: dict[int, FloatArray]
    grids: Grids | None = None

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return int(self.block.max()) + 1

    @property
    def all_smooth(self) -> bool:
        """Whether every feature is a number like any other, without bounds."""
        bounded = np.isfinite(self.low) | np.isfinite(self.high)
        return not (self.discrete.any() or bounded.any() or self.steps) and bool(np.isnan(self.common).all())

    @classmethod
    def of(cls, X: FloatArray) -> FeatureBlocks:
        """Look at dense rows."""
        rows = X[:: -(-len(X) // SAMPLE_ROWS)]
        n, d = rows.shape
        most = min(MOST_VALUES, n // ROWS_PER_VALUE)
        discrete, common = np.zeros(d, dtype=bool), np.full(d, np.nan)
        low, high = np.full(d, -np.inf), np.full(d, np.inf)
        block, number = np.zeros(d, dtype=np.intp), 0
        taken = np.zeros(n, dtype=bool)  # rows with a category of the present block
        steps, open_block = {}, False
        distinct: list[tuple[FloatArray, IndexArray]] = []
        for f in range(d):
            values, counts = np.unique(rows[:, f], return_counts=True)
            discrete[f] = len(values) <= most
            distinct.append((values, counts))
            if not discrete[f] and counts.max() >= max(COMMON_SHARE * n, ROWS_PER_VALUE):
                common[f] = values[counts.argmax()]
            if discrete[f] and len(values) > 2:
                steps[f] = values
            low[f] = values[0] if counts[0] >= AT_BOUND else -np.inf
            high[f] = values[-1] if counts[-1] >= AT_BOUND else np.inf
            # Set and not set: the smaller of two values is the usual one of a category that is absent.
            is_binary = bool(discrete[f]) and len(values) == 2
            present = rows[:, f] > values[0]
            joins = is_binary and open_block and not (taken & present).any()
            number += f > 0 and not joins
            taken = taken | present if joins else present
            open_block = is_binary
            block[f] = number
        grids = find_grids(distinct)
        if grids is not None:
            steps |= {int(f): distinct[f][0] for f in np.flatnonzero(grids.features & ~discrete)}
        joined = _joined(rows, block, discrete, steps)
        # A number that another block tells moves with that block, not by itself.
        steps = {f: values for f, values in steps.items() if np.count_nonzero(joined == joined[f]) == 1}
        return cls(discrete, common, joined, low, high, steps, grids)

    def likely(
        self, rows: FloatArray, moved: FloatArray, *others: FloatArray, choice: FloatArray, rng: np.random.Generator
    ) -> FloatArray:
        """Moved rows whose discrete features and those on grids have values that exist; common ones are there or not.

        Parameters
        ----------
        rows, moved : ndarray of shape (n, d)
            Rows, and what they become where features are numbers like any other.
        *others : ndarray of shape (n, d)
            Rows that they were moved by.
        choice : ndarray of shape (n, d)
            Value from an existing row for each feature.
        rng : Generator
            Draws between two values that lie on both sides of where a feature was moved to.
        """
        if self.all_smooth:
            return moved
        at_common = [part == self.common for part in (rows, *others)]
        mixed = np.logical_or.reduce(at_common) & ~np.logical_and.reduce(at_common)
        result: FloatArray = np.where(self.discrete | mixed, choice, np.clip(moved, self.low, self.high))
        for f, values in self.steps.items():
            place = np.interp(moved[:, f], values, np.arange(len(values)))
            beside = values[np.minimum(place + rng.random(len(place)), len(values) - 1).astype(np.intp)]
            result[:, f] = np.where(mixed[:, f], result[:, f], beside)
        return result


def _joined(rows: FloatArray, block: IndexArray, discrete: Flags, steps: dict[int, FloatArray]) -> IndexArray:
    """Blocks again, one number for those of which one tells the other.

    A block tells another if guessing the other's most frequent category for each of its own leaves hardly an error of
    those that are made by guessing the most frequent category of all.
    """
    features = np.flatnonzero(discrete)
    names, places = np.unique(block[features], return_index=True)
    groups = np.split(features, places[1:])
    n_categories = sum(len(steps.get(int(f), (0, 1))) for f in features) + len(groups)
    if len(groups) < 2 or n_categories > MOST_CATEGORIES:
        return block
    present = [_indicators(rows[:, group]) for group in groups]
    starts = np.cumsum([0, *(part.shape[1] for part in present[:-1])])
    together = np.concatenate(present, axis=1)
    counts = together.T @ together
    right = np.add.reduceat(np.maximum.reduceat(counts, starts, axis=1), starts, axis=0)
    guessed = len(rows) - np.maximum.reduceat(np.diagonal(counts), starts)
    tells = (len(rows) - right <= RULE_ERRORS * guessed) & (guessed >= RULE_ROWS)
    _, rule = connected_components(tells, directed=False)
    joined = block.copy()
    for name, group in zip(names[np.unique(rule, return_index=True)[1]][rule], groups, strict=True):
        joined[group] = name
    result: IndexArray = np.unique(joined, return_inverse=True)[1].astype(np.intp)
    return result


def _indicators(rows: FloatArray) -> FloatArray:
    """One column for each category of a block: for each row one is 1."""
    if rows.shape[1] == 1:
        column: FloatArray = (rows == np.unique(rows)).astype(np.float32)
        return column
    present = rows > rows.min(axis=0)
    columns: FloatArray = np.column_stack([present, ~present.any(axis=1)]).astype(np.float32)
    return columns


def features_read(rows: Any) -> float:
    """Features of a row that cost time: those that are not zero, where most are."""
    n, d = rows.shape
    stored = rows.nnz if sparse.issparse(rows) else np.count_nonzero(rows)
    return float(stored / max(n, 1)) if stored <= (1.0 - ZERO_SHARE) * n * d else float(d)
