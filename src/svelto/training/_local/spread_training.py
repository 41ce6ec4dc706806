"""Training neighbourhoods on workers.

A neighbourhood is trained where its rows are, if a worker holds all of them; the rows of the others are sent along, in
lists of neighbourhoods that lie together and so share most rows. An SVM depends on its own rows and their order alone:
whoever trains it, it is the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from svelto._crew import Crew, DaskCrew
from svelto._progress import Tell
from svelto._typing import FloatArray, IndexArray, IntArray
from svelto.kernels import Kernel
from svelto.training._local.flat import joined, taken
from svelto.training._local.neighbours import NeighbourIndex
from svelto.training._local.options import LocalOptions
from svelto.training._local.regions import Regions
from svelto.training._local.spread_search import MOST_CALL_BYTES, Part, SpreadIndex
from svelto.training._local.train import TrainedSVMs, TrainingData, counting, train_here

# Calls for each thread of the workers, so that they finish together; and neighbourhoods of one, at least.
CALLS_PER_THREAD: Final = 4
FEWEST: Final = 16


class SpreadTraining:
    """A `Trainer` that has workers.

    Parameters
    ----------
    crew : Crew
        The workers.
    index : SpreadIndex, optional
        What they hold.
    """

    def __init__(self, crew: Crew, index: SpreadIndex | None = None) -> None:
        self.crew, self.index = crew, index

    def __call__(
        self, options: LocalOptions, data: TrainingData, neighbours: IntArray, folds: IntArray | None, tell: Tell
    ) -> TrainedSVMs:
        """Train all neighbourhoods."""
        there = options._replace(n_jobs=1)  # a worker's other threads have calls of their own
        most = max(1, MOST_CALL_BYTES // (8 * neighbours.shape[1]))
        size = min(most, max(FEWEST, -(-len(neighbours) // (self.crew.n_threads * CALLS_PER_THREAD))))
        lists: list[IndexArray] = []
        calls: list[tuple[Any, ...]] = []
        left = np.ones(len(neighbours), dtype=bool)
        for part, complete in self._where(data.X[neighbours[:, 0]], neighbours):
            left[complete] = False
            for some in _pieces(complete, size):
                lists.append(some)
                calls.append((part, there, neighbours[some], None if folds is None else folds[some]))
        for some in _together(data.X[neighbours[:, 0]], np.flatnonzero(left), size):
            numbers = np.unique(neighbours[some]).astype(np.int32)
            rows: Any = partial(_loose_rows, numbers, data)
            rows = self.crew.hold([rows])[0] if isinstance(self.crew, DaskCrew) else rows()
            lists.append(some)
            calls.append((rows, there, neighbours[some], None if folds is None else folds[some]))
        progress = counting(tell, "trained")
        sizes = len(neighbours) / max(len(calls), 1)
        parts = self.crew.run(_train_part, calls, lambda done, n: progress(round(done * sizes), len(neighbours)))
        back = np.argsort(np.concatenate(lists), kind="stable")
        return TrainedSVMs(
            taken(joined([part.models for part in parts]), back),
            np.concatenate([part.cost for part in parts])[back],
            np.concatenate([part.gamma for part in parts])[back],
        )

    def _where(self, centres: FloatArray, neighbours: IntArray) -> Iterator[tuple[Any, IndexArray]]:
        """What each worker holds, and the neighbourhoods around its own rows of which it has all."""
        if self.index is None:
            return
        own = self.index.regions.region_of(centres)
        is_held = np.zeros(self.index.n_rows, dtype=bool)
        for r, (part, numbers) in enumerate(zip(self.index.parts, self.index.numbers, strict=True)):
            is_held[:] = False
            is_held[numbers] = True
            of_region = np.flatnonzero(own == r)
            yield part, of_region[is_held[neighbours[of_region]].all(axis=1)]


def spread(
    crew: Crew, data: TrainingData, index: NeighbourIndex, kernel: Kernel, method: str, k: int
) -> tuple[Any, SpreadTraining]:
    """Who finds neighbours and who trains: workers that hold rows do both; others train what is found here."""
    if not isinstance(crew, DaskCrew):
        return index, SpreadTraining(crew)
    among_workers = SpreadIndex(crew, data, kernel, method, k, index.n_jobs)
    return among_workers, SpreadTraining(crew, among_workers)


def _train_part(
    held: Part | tuple[IntArray, TrainingData], options: LocalOptions, neighbours: IntArray, folds: IntArray | None
) -> TrainedSVMs:
    """Train neighbourhoods of rows that are here; names of rows are those among all rows, before and after."""
    numbers, data = (held.numbers, held.data) if isinstance(held, Part) else held
    here = np.searchsorted(numbers, neighbours).astype(np.int32)
    trained = train_here(options, data, here, folds, lambda step, share=0.0: None)
    return replace(trained, models=replace(trained.models, support=numbers[trained.models.support]))


def _loose_rows(numbers: IntArray, data: TrainingData) -> tuple[IntArray, TrainingData]:
    return numbers, data.rows(numbers)


def _pieces(numbers: IndexArray, size: int) -> list[IndexArray]:
    return [numbers[at : at + size] for at in range(0, len(numbers), size)]


def _together(centres: FloatArray, numbers: IndexArray, size: int) -> list[IndexArray]:
    """Lists of neighbourhoods whose centres lie together."""
    if len(numbers) == 0:
        return []
    regions = Regions.cut(centres[numbers], -(-len(numbers) // size))
    region = regions.region_of(centres[numbers])
    return [piece for r in range(len(regions)) for piece in _pieces(numbers[region == r], size) if len(piece)]
