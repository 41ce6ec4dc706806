"""The k'-neighbourhood cover of paper S4: which rows become centres of local models, and which model a row belongs to.

Rows are visited in a given (random) order. A row that no centre covers yet becomes the next centre (equation 2), and
each row belongs to the first centre that covers it (equation 3). A centre covers its k' nearest rows and all copies of
itself: neighbourhoods are sets of points, and with more than k' copies of a point some would not be among their own k'
nearest (ties go to the row that comes first), and each would become a centre with the same neighbours as the others.
Algorithm 1's line 11 likewise points a centre to its own model.

Rows are asked for their neighbours in batches, and accepted one after the other: one that a centre of its own batch
covers is dropped.

Invariant: centres, neighbours and assignment are those of the sequential rule, whatever the batches and the threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from svelto._options import check_whole
from svelto._typing import FloatArray, IndexArray, IntArray
from svelto.training._local.copies import Copies
from svelto.training._local.neighbours import NeighbourIndex

# Rows of a batch, at least and at most. How many of them its own centres may cover before their turn is a matter of
# the index (`waste`). Rows are asked for k neighbours at once: to ask for k' first, and for k where a centre results,
# costs more than that.
SMALLEST_BATCH: Final = 32
LARGEST_BATCH: Final = 4096

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Cover:
    """Centres, their neighbours, and the centre of every row.

    Attributes
    ----------
    centres : ndarray of int32, shape (n_centres,)
        Row numbers, in the order in which they became centres.
    neighbours : ndarray of int32, shape (n_centres, k)
        The k nearest rows of each centre by (distance, row number).
    centre_of_row : ndarray of int32, shape (n_rows,)
        Number of the first centre (a place in `centres`) that covers the row.
    k_prime : int
        Nearest rows that a centre covers.
    n_asked : int
        Rows that were asked for their neighbours: the centres, and what was dropped.
    """

    centres: IntArray
    neighbours: IntArray
    centre_of_row: IntArray
    k_prime: int
    n_asked: int

    @property
    def k(self) -> int:
        """Rows of a neighbourhood."""
        return int(self.neighbours.shape[1])


@dataclass(frozen=True, eq=False)
class ExtendedCover:
    """A cover that took in new rows.

    Attributes
    ----------
    cover : Cover
        Of all rows; the centres it had before stand first, with their numbers.
    changed : ndarray of int32
        Numbers of those earlier centres whose neighbours are no longer the same, ascending.
    """

    cover: Cover
    changed: IntArray


def find_cover(
    index: NeighbourIndex,
    order: IndexArray,
    k: int,
    k_prime: int,
    *,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Cover:
    """Cover all rows of an index.

    Parameters
    ----------
    index : NeighbourIndex
        The rows.
    order : ndarray of shape (n_rows,)
        A permutation of the rows: who is asked first.
    k, k_prime : int
        Rows of a neighbourhood, and how many of them its centre covers; k_prime <= k <= n_rows.
    n_jobs : int, optional
        Threads of the search.
    progress : callable, optional
        Called between batches with the rows covered so far and all rows. What it raises ends the search.

    Returns
    -------
    Cover
    """
    _check_sizes(index, k, k_prime)
    order = np.asarray(order)
    if not np.array_equal(np.sort(order), np.arange(index.n_rows)):
        raise ValueError(f"order must name each of the {index.n_rows} rows once.")
    growth = _Growth(index, int(k), int(k_prime), n_jobs)
    growth.visit(order, progress)
    return growth.cover()


def extend_cover(
    cover: Cover,
    index: NeighbourIndex,
    order: IndexArray,
    *,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> ExtendedCover:
    """Take in rows that were appended to those of a cover.

    Earlier rows keep their centres. A new row that an earlier centre covers, among all rows, belongs to the first such
    centre; the others are visited in the given order, as in `find_cover`.

    Parameters
    ----------
    cover : Cover
        Of the first rows of the index.
    index : NeighbourIndex
        Earlier rows, in their places, and new ones after them.
    order : ndarray of shape (n_new,)
        A permutation of the new rows' numbers.
    n_jobs, progress
        As for `find_cover`.

    Returns
    -------
    ExtendedCover
    """
    n_before = len(cover.centre_of_row)
    order = np.asarray(order)
    if not np.array_equal(np.sort(order), np.arange(n_before, index.n_rows)):
        raise ValueError(f"order must name each row from {n_before} to {index.n_rows - 1}, the new ones, once.")
    growth = _Growth(index, cover.k, cover.k_prime, n_jobs, cover)
    changed: IntArray = np.empty(0, dtype=np.int32)
    if len(order):
        changed = growth.meet_new_rows(n_before)
    growth.visit(order, progress)
    return ExtendedCover(growth.cover(), changed)


class _Growth:
    """A cover in the making."""

    def __init__(self, index: NeighbourIndex, k: int, k_prime: int, n_jobs: int | None, start: Cover | None = None):
        self.index, self.k, self.k_prime, self.n_jobs = index, k, k_prime, n_jobs
        self.copies = Copies(index.X)
        self.centre_of_row: IntArray = np.full(index.n_rows, -1, dtype=np.int32)
        self.centres: list[int] = []
        self.neighbours: list[IntArray] = []  # blocks of rows
        self.n_asked = 0
        if start is not None:
            self.centre_of_row[: len(start.centre_of_row)] = start.centre_of_row
            self.centres = start.centres.tolist()
            self.neighbours = [start.neighbours.copy()]
            self.n_asked = start.n_asked

    def cover(self) -> Cover:
        empty = np.empty((0, self.k), dtype=np.int32)
        return Cover(
            centres=np.array(self.centres, dtype=np.int32),
            neighbours=np.concatenate([empty, *self.neighbours]),
            centre_of_row=self.centre_of_row,
            k_prime=self.k_prime,
            n_asked=self.n_asked,
        )

    def visit(self, order: IndexArray, progress: Progress | None) -> None:
        """Make centres of the rows that are left, in order."""
        n = len(self.centre_of_row)
        left = int((self.centre_of_row < 0).sum())
        gain = float(self.k_prime)  # rows that the last batch's centres took in, each
        place = 0
        while left:
            # Each of b centres finds gain / left of the others in its way: b gain / (2 left) of a batch are dropped.
            size = int(np.clip(2.0 * self.index.waste * left / gain, SMALLEST_BATCH, LARGEST_BATCH))
            batch, place = self._next_open(order, place, size)
            accepted, taken = self._accept(batch)
            left -= taken
            gain = max(1.0, taken / accepted)
            if progress is not None:
                progress(n - left, n)

    def _next_open(self, order: IndexArray, place: int, size: int) -> tuple[IndexArray, int]:
        """The next rows without a centre, and the place behind the last of them."""
        found: list[IndexArray] = []
        missing, window = size, 4 * size
        while missing and place < len(order):
            part = order[place : place + window]
            at = np.flatnonzero(self.centre_of_row[part] < 0)[:missing]
            found.append(part[at])
            missing -= len(at)
            place += int(at[-1]) + 1 if len(at) and not missing else len(part)
            window *= 2
        return np.concatenate(found), place

    def _accept(self, batch: IndexArray) -> tuple[int, int]:
        """Make centres of a batch's rows that no centre before them covers; how many, and how many rows they take."""
        nearest, sq_dist = self.index.query(self.index.X[batch], self.k, n_jobs=self.n_jobs)
        self.n_asked += len(batch)
        taken, chosen = 0, []
        for i, row in enumerate(batch.tolist()):
            if self.centre_of_row[row] >= 0:
                continue
            number = len(self.centres)
            self.centres.append(row)
            chosen.append(i)
            taken += self._take(number, nearest[i, : self.k_prime])
            # Copies are at distance 0: where the last of the k' nearest is not, all are among them.
            if sq_dist[i, self.k_prime - 1] == 0.0:
                taken += self._take(number, self.copies.of(row))
        self.neighbours.append(nearest[chosen])
        return len(chosen), taken

    def _take(self, number: int, rows: Any) -> int:
        """Assign those rows to a centre that have none."""
        free = rows[self.centre_of_row[rows] < 0]
        self.centre_of_row[free] = number
        return len(free)

    def meet_new_rows(self, n_before: int) -> IntArray:
        """Neighbours of earlier centres among all rows; assigns new rows to them, and says whose are others now."""
        index, X = self.index, self.index.X
        centres, (neighbours,) = np.array(self.centres), self.neighbours
        number = np.arange(len(centres))
        of_furthest, of_last = (
            self._distances(X[centres], neighbours[:, j], number) for j in (self.k - 1, self.k_prime - 1)
        )
        # New rows come last, so one that is as far as the k-th neighbour does not take its place.
        new = NeighbourIndex.like(index, X[n_before:])
        to_new = new.query(X[centres], 1, n_jobs=self.n_jobs)[1][:, 0]
        changed = np.flatnonzero(to_new < of_furthest)
        if len(changed):
            neighbours[changed] = index.query(X[centres[changed]], self.k, n_jobs=self.n_jobs)[0]
        is_changed = np.zeros(len(centres), dtype=bool)
        is_changed[changed] = True
        for c in np.flatnonzero(is_changed | ((of_last == 0.0) & (to_new == 0.0))).tolist():
            if is_changed[c]:
                self._take(c, neighbours[c, : self.k_prime])
            if to_new[c] == 0.0:
                self._take(c, self.copies.of(int(centres[c])))
        return changed.astype(np.int32)

    def _distances(self, Q: Any, row_of: Any, query_of: Any) -> FloatArray:
        return self.index.space.pair_distances(self.index.X, Q, row_of, query_of)


def _check_sizes(index: NeighbourIndex, k: int, k_prime: int) -> None:
    check_whole("k", k, 1)
    check_whole("k_prime", k_prime, 1)
    if k > index.n_rows:
        raise ValueError(f"k is {k}; there are {index.n_rows} rows.")
    if k_prime > k:
        raise ValueError(f"k_prime is {k_prime}, above k, {k}; a centre covers at most its own neighbours.")
