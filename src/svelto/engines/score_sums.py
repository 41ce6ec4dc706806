"""Weighted sums over support vectors, one for each score, from LIBSVM's compact layout as it stands.

A one-vs-one machine of k classes has k (k - 1) / 2 scores, but a vector takes part in only k - 1 of them. So sums are
made by *cell*, one for each class and row of `dual_coef`; the score of the pair (i, j) is cell (i, j - 1) plus
cell (j, i). Other machines have one class of all vectors and a cell for each score.

`relevant_scores` says which scores still have to become narrower for a label to be certain.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from svelto._typing import FloatArray, IndexArray
from svelto.engines.packing import breaks_ties
from svelto.machine import KernelMachine


class ScoreSums:
    """Sums ``sum_i a_pi y_i`` of every score p, and sums of the sizes of the weights.

    Attributes
    ----------
    coef, sizes : ndarray of shape (n_rows, n_sv)
        `dual_coef` and its absolute values.
    class_of : ndarray of shape (n_sv,)
        The class of each vector; 0 for all where there is one score a row.
    """

    def __init__(self, machine: KernelMachine) -> None:
        self.machine = machine
        self.coef = np.ascontiguousarray(machine.dual_coef)
        self.sizes = np.abs(self.coef)
        self.n_rows = len(self.coef)
        if machine.is_grouped:
            assert machine.n_support is not None
            counts = machine.n_support.astype(np.int64)
            first, second = np.triu_indices(machine.n_classes, 1)
            self._first = first * self.n_rows + second - 1
            self._second: IndexArray | None = second * self.n_rows + first
            self.pairs: tuple[IndexArray, IndexArray] | None = (first, second)
        else:
            counts = np.array([machine.n_sv])
            self._first, self._second, self.pairs = np.arange(self.n_rows), None, None
        stop = np.cumsum(counts)
        self.ranges = [slice(int(b - n), int(b)) for b, n in zip(stop, counts, strict=True)]
        self.class_of = np.repeat(np.arange(len(counts)), counts)

    @property
    def nbytes(self) -> int:
        """Bytes of the weights."""
        return int(self.coef.nbytes + self.sizes.nbytes)

    def sums(self, values: FloatArray, *, sizes: bool = False) -> FloatArray:
        """Scores without intercept (n, n_scores) of values (n, n_sv); with `sizes` the weights' absolute values."""
        weights = self.sizes if sizes else self.coef
        cells = np.empty((len(values), len(self.ranges), self.n_rows))
        for c, members in enumerate(self.ranges):
            np.matmul(values[:, members], weights[:, members].T, out=cells[:, c])
        return self._fold(cells.reshape(len(values), -1))

    def part(self, vectors: IndexArray, values: FloatArray, *, sizes: bool = False) -> FloatArray:
        """Scores (n_scores,) of a few vectors alone, values (len(vectors),)."""
        weights = self.sizes if sizes else self.coef
        terms = weights[:, vectors] * values
        if self._second is None:
            return np.asarray(terms.sum(axis=1))
        cells = np.zeros((len(self.ranges), self.n_rows))
        np.add.at(cells, self.class_of[vectors], terms.T)
        return np.asarray(self._fold(cells.reshape(1, -1))[0])

    def importance(self, of_score: FloatArray) -> FloatArray:
        """``sum_p |a_pi| of_score[p]`` for every vector i."""
        if self._second is None:
            return np.asarray(of_score @ self.sizes)
        cells = np.zeros(len(self.ranges) * self.n_rows)
        cells[self._first] = of_score
        cells[self._second] = of_score
        rows = cells.reshape(len(self.ranges), self.n_rows)
        result = np.zeros(self.coef.shape[1])
        for c in np.flatnonzero(rows.any(axis=1)):
            members = self.ranges[c]
            np.matmul(rows[c], self.sizes[:, members], out=result[members])
        return result

    def _fold(self, cells: FloatArray) -> FloatArray:
        if self._second is None:
            return cells
        return np.asarray(cells.take(self._first, axis=1) + cells.take(self._second, axis=1))


def relevant_scores(sums: ScoreSums, low: FloatArray, high: FloatArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which scores of one row, known to lie between `low` and `high`, can still change its label."""
    machine = sums.machine
    everything = np.ones(len(low), dtype=bool)
    if machine.rule == "argmax":
        relevant = high >= low.max()
        return relevant if relevant.sum() > 1 else everything
    if sums.pairs is None:
        return everything
    first, second = sums.pairs
    is_open = ~((low > 0.0) | (high < 0.0))
    winner = np.where(low > 0.0, first, second)[~is_open]
    sure = np.bincount(winner, minlength=machine.n_classes)
    possible = sure + np.bincount(first[is_open], minlength=machine.n_classes)
    possible += np.bincount(second[is_open], minlength=machine.n_classes)
    candidate = possible >= sure.max()
    relevant = is_open & (candidate[first] | candidate[second])
    # No open pair matters and still there is no label: equal votes, decided by the size of the scores.
    return relevant if relevant.any() or not breaks_ties(machine) else everything
