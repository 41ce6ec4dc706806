"""Space cut into boxes with about as many rows each: who trains where, when several machines train together.

Boxes are halved across a feature, where few rows are near the cut, until there are enough of them. Equal rows are in
one box. A box lends rows from the boxes around it, all within its reach, so that most neighbourhoods of its rows are
complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from svelto._typing import FloatArray, IndexArray
from svelto.training._local.neighbours import NeighbourIndex

# Rows that cuts are chosen from, and cuts that are tried for a feature.
CUT_ROWS: Final = 50_000
CUTS_TRIED: Final = 64
# How far the share of the rows below a cut may be from the wanted one.
MOST_UNEVEN: Final = 0.15
# Rows whose k-th neighbour is looked for in a sample, and how many of the k neighbours the sample shall have.
REACH_ROWS: Final = 2_000
SAMPLED_NEIGHBOURS: Final = 8
SMALLEST_SAMPLE: Final = 4_000
# Share of the rows whose neighbourhoods shall be complete; more would lend out many rows for the sake of a few.
COMPLETE_SHARE: Final = 0.9


@dataclass(frozen=True, eq=False)
class Regions:
    """Boxes.

    Attributes
    ----------
    lower, upper : ndarray of shape (n_regions, n_features)
        Sides: box r has the points with lower[r] <= x < upper[r]; infinite where nothing cuts.
    """

    lower: FloatArray
    upper: FloatArray

    @classmethod
    def cut(cls, X: FloatArray, n_regions: int, width: float = 0.0) -> Regions:
        """At most so many boxes (fewer where rows are equal), each with about as many of the rows.

        Cuts lie where few rows are within `width` of them.
        """
        rows = X[:: -(-len(X) // CUT_ROWS)]
        d = X.shape[1]
        open_boxes = [(np.full(d, -np.inf), np.full(d, np.inf), rows, n_regions)]
        lower, upper = [], []
        while open_boxes:
            low, high, rows, share = open_boxes.pop()
            found = _cut_of(rows, (share // 2) / share, width) if share > 1 else None
            if found is None:
                lower.append(low)
                upper.append(high)
                continue
            feature, value = found
            below = rows[:, feature] < value
            middle_high, middle_low = high.copy(), low.copy()
            middle_high[feature] = middle_low[feature] = value
            open_boxes.append((middle_low, high, rows[~below], share - share // 2))
            open_boxes.append((low, middle_high, rows[below], share // 2))
        return cls(np.array(lower), np.array(upper))

    def __len__(self) -> int:
        return len(self.lower)

    def region_of(self, Q: FloatArray) -> IndexArray:
        """The box of every row."""
        result: IndexArray = np.full(len(Q), -1, dtype=np.intp)
        for r in range(len(self)):
            inside = np.ones(len(Q), dtype=bool)
            for feature, low, high in self._sides(r):
                inside &= (Q[:, feature] >= low) & (Q[:, feature] < high)
            result[inside] = r
        return result

    def margin(self, Q: FloatArray, r: int) -> FloatArray:
        """How far rows inside a box are from leaving it."""
        result: FloatArray = np.full(len(Q), np.inf)
        for feature, low, high in self._sides(r):
            np.minimum(result, np.minimum(Q[:, feature] - low, high - Q[:, feature]), out=result)
        return result

    def lent(self, X: FloatArray, r: int, reach: float) -> IndexArray:
        """Rows within `reach` of a box, those inside included, ascending."""
        sq_dist = np.zeros(len(X))
        for feature, low, high in self._sides(r):
            value = X[:, feature]
            sq_dist += np.maximum(np.maximum(low - value, value - high), 0.0) ** 2
        return np.flatnonzero(sq_dist <= reach * reach * (1.0 + 1e-9))

    def _sides(self, r: int) -> list[tuple[int, float, float]]:
        low, high = self.lower[r], self.upper[r]
        cut = np.flatnonzero(np.isfinite(low) | np.isfinite(high))
        return [(int(f), float(low[f]), float(high[f])) for f in cut]


def _cut_of(rows: FloatArray, share: float, width: float) -> tuple[int, float] | None:
    """A feature and a value below which about so many rows are, and which few rows are near; None: all are equal."""
    best: tuple[float, int, float] | None = None
    for feature in np.flatnonzero(rows.min(axis=0) < rows.max(axis=0)).tolist():
        values = np.sort(rows[:, feature])
        below = 1 + np.flatnonzero(values[1:] > values[:-1])  # rows below each possible cut
        uneven = np.abs(below / len(rows) - share)
        even = below[uneven <= max(MOST_UNEVEN, uneven.min())]
        even = even[:: -(-len(even) // CUTS_TRIED)]
        cuts = 0.5 * (values[even - 1] + values[even])
        lent = np.searchsorted(values, cuts + width, "right") - np.searchsorted(values, cuts - width)
        cost = lent / len(rows) + np.abs(even / len(rows) - share)
        at = int(cost.argmin())
        if values[even[at] - 1] < cuts[at] and (best is None or cost[at] < best[0]):
            best = (float(cost[at]), feature, float(cuts[at]))
    return None if best is None else best[1:]


def radii(X: FloatArray, k: int, n_jobs: int | None) -> tuple[FloatArray, FloatArray]:
    """Some rows, and about how far away their k-th neighbours are.

    These are looked for in a sample, thinned out so much that the k-th neighbour is one of the first few.
    """
    n = len(X)
    size = min(n, max(SMALLEST_SAMPLE, -(-n * SAMPLED_NEIGHBOURS // k)))
    sample = np.ascontiguousarray(X[np.linspace(0, n - 1, size).astype(np.intp)])
    nearest = min(len(sample), max(1, round(k * len(sample) / n)) + 1)
    asked = sample[:: -(-len(sample) // REACH_ROWS)]
    return asked, np.sqrt(NeighbourIndex(sample, n_jobs=n_jobs).query(asked, nearest)[1][:, -1])


def reaches(regions: Regions, rows: FloatArray, radius: FloatArray) -> FloatArray:
    """How far around each box rows must be lent for most of these rows to have all neighbours within their radius."""
    region, result = regions.region_of(rows), np.zeros(len(regions))
    for r in np.unique(region).tolist():
        own = region == r
        missing = np.maximum(radius[own] - regions.margin(rows[own], r), 0.0)
        result[r] = np.quantile(missing, COMPLETE_SHARE)
    return result
