"""Neighbours among rows that are spread over workers.

Every worker has the rows of a region and those that it lends from around it. A query is asked where its region is. Its
k nearest there are its neighbours, unless a ball with the k-th on its surface leaves what the worker holds: then the
workers whose rows lie within the ball are asked too. Distances are those of `feature_space`, and equal ones are ordered
by the number of the row, so the answer is that of one index of all rows, to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from svelto._crew import DaskCrew, Held
from svelto._options import check_whole
from svelto._typing import FloatArray, IndexArray, IntArray
from svelto.kernels import Kernel
from svelto.training._local.feature_space import FeatureSpace
from svelto.training._local.neighbours import NeighbourIndex
from svelto.training._local.regions import Regions, radii, reaches
from svelto.training._local.train import TrainingData

# Comparisons of distances leave room for their rounding.
SLACK: Final = 1.0 + 1e-9
# Queries of one call, at least: a call costs about a millisecond.
FEWEST_QUERIES: Final = 64
# ... and bytes that go with a call at most, for they pass through the scheduler.
MOST_CALL_BYTES: Final = 4_000_000


@dataclass(eq=False)
class Part:
    """What a worker holds: some of the rows, and an index of them.

    Attributes
    ----------
    numbers : ndarray of shape (n_rows,)
        Their numbers among all rows, ascending: ties are settled here as they are among all rows.
    data : TrainingData
        The rows.
    index : NeighbourIndex
        Of the same rows.
    """

    numbers: IntArray
    data: TrainingData
    index: NeighbourIndex

    @classmethod
    def of(cls, numbers: IntArray, data: TrainingData, kernel: Kernel, method: str) -> Part:
        """Some of the rows; the index is built where it is first asked."""
        rows = data.rows(numbers)
        return cls(numbers, rows, NeighbourIndex(rows.X, kernel, method=method, n_jobs=1, build=False))


class SpreadIndex:
    """All training rows, asked as a `NeighbourIndex` is.

    Parameters
    ----------
    crew : DaskCrew
        The workers.
    data : TrainingData
        The rows.
    kernel : Kernel
        Whose feature space. Regions serve those of Euclidean order; for others every worker is asked.
    method : str
        How a worker searches; see `NeighbourIndex`.
    k : int
        Neighbours that will be asked for.
    n_jobs : int or None
        Threads, for what is done here.
    """

    # More than on one machine: asking takes tens of milliseconds, however few are asked about.
    waste = 0.15

    def __init__(
        self, crew: DaskCrew, data: TrainingData, kernel: Kernel, method: str, k: int, n_jobs: int | None
    ) -> None:
        self.crew, self.X, self.space = crew, data.X, FeatureSpace.of(kernel)
        some, radius = radii(self.X, k, n_jobs)
        self.regions = Regions.cut(self.X, crew.n_workers, float(np.median(radius)))
        self.reach = reaches(self.regions, some, radius)
        if not self.space.euclidean:
            self.reach[:] = 0.0
        own = self.regions.region_of(self.X)
        self.numbers = [self.regions.lent(self.X, r, self.reach[r]).astype(np.int32) for r in range(len(self.regions))]
        bounds = [(self.X[own == r].min(axis=0), self.X[own == r].max(axis=0)) for r in range(len(self.regions))]
        self.lowest, self.highest = (np.array(sides) for sides in zip(*bounds, strict=True))
        self.parts: list[Held] = crew.hold(
            [partial(Part.of, numbers, data, kernel, method) for numbers in self.numbers]
        )

    @property
    def n_rows(self) -> int:
        """Training rows."""
        return int(self.X.shape[0])

    def query(self, Q: FloatArray, k: int, *, n_jobs: int | None = None) -> tuple[IntArray, FloatArray]:
        """The k nearest training rows of every query, and their squared distances; see `NeighbourIndex.query`."""
        check_whole("k", k, 1)
        own = self.regions.region_of(Q)
        asked = [np.flatnonzero(own == r) for r in range(len(self.regions))]
        nearest, sq_dist = np.zeros((len(Q), k), dtype=np.int32), np.full((len(Q), k), np.inf)
        for queries, (row, distance) in zip(asked, self._ask(Q, asked, k), strict=True):
            nearest[queries, : row.shape[1]], sq_dist[queries, : row.shape[1]] = row, distance
        radius = sq_dist[:, -1] * SLACK
        doubtful = np.flatnonzero(radius >= self._certain(Q, own) ** 2)
        if len(doubtful):
            self._ask_around(Q, own, doubtful, radius, nearest, sq_dist)
        return nearest, sq_dist

    def _certain(self, Q: FloatArray, own: IndexArray) -> FloatArray:
        """How far around each query all rows are held by the worker of its region."""
        distance = np.zeros(len(Q))
        if self.space.euclidean:
            for r in range(len(self.regions)):
                queries = np.flatnonzero(own == r)
                distance[queries] = self.reach[r] + self.regions.margin(Q[queries], r)
        return distance

    def _ask_around(
        self,
        Q: FloatArray,
        own: IndexArray,
        doubtful: IndexArray,
        radius: FloatArray,
        nearest: IntArray,
        sq_dist: FloatArray,
    ) -> None:
        """Ask the other workers whose rows may be as near as the k-th, and put in what they have."""
        k = nearest.shape[1]
        asked = []
        for r in range(len(self.regions)):
            away = np.maximum(np.maximum(self.lowest[r] - Q[doubtful], Q[doubtful] - self.highest[r]), 0.0)
            near = (away**2).sum(axis=1) <= radius[doubtful] if self.space.euclidean else np.ones(len(doubtful), bool)
            asked.append(doubtful[near & (own[doubtful] != r)])
        answers = self._ask(Q, asked, k)
        query = np.concatenate(
            [np.repeat(doubtful, k), *(np.repeat(q, a[0].shape[1]) for q, a in zip(asked, answers, strict=True))]
        )
        row = np.concatenate([nearest[doubtful].ravel(), *(a[0].ravel() for a in answers)])
        distance = np.concatenate([sq_dist[doubtful].ravel(), *(a[1].ravel() for a in answers)])
        order = np.lexsort((row, distance, query))
        query, row, distance = query[order], row[order], distance[order]
        # A row that several workers hold is found several times, at one distance.
        again = (query[1:] == query[:-1]) & (row[1:] == row[:-1]) & np.isfinite(distance[1:])
        first = np.concatenate([[True], ~again])
        query, row, distance = query[first], row[first], distance[first]
        chosen = np.searchsorted(query, doubtful)[:, None] + np.arange(k)
        nearest[doubtful], sq_dist[doubtful] = row[chosen], distance[chosen]

    def _ask(self, Q: FloatArray, asked: list[IndexArray], k: int) -> list[tuple[IntArray, FloatArray]]:
        """What each worker has for its list of queries."""
        most = max(1, MOST_CALL_BYTES // (8 * Q.shape[1]))
        step = min(most, max(FEWEST_QUERIES, -(-len(Q) // self.crew.n_threads)))
        pieces = [
            (r, queries[at : at + step]) for r, queries in enumerate(asked) for at in range(0, len(queries), step)
        ]
        calls = [(self.parts[r], Q[queries], min(k, len(self.numbers[r]))) for r, queries in pieces]
        answers = self.crew.run(_nearest_of_part, calls)
        found: list[tuple[IntArray, FloatArray]] = []
        for r in range(len(asked)):
            own = [answer for (region, _), answer in zip(pieces, answers, strict=True) if region == r]
            if own:
                found.append((np.concatenate([row for row, _ in own]), np.concatenate([away for _, away in own])))
            else:
                found.append((np.zeros((0, 0), dtype=np.int32), np.zeros((0, 0))))
        return found


def _nearest_of_part(part: Part, Q: FloatArray, k: int) -> tuple[Any, FloatArray]:
    nearest, sq_dist = part.index.query(Q, k, n_jobs=1)
    return part.numbers[nearest], sq_dist
