"""Bounds from a few reference vectors: every kernel value lies in an interval before it is evaluated (promise: exact).

K of the support vectors are references r_j, taken farthest first. Their kernel values with all support vectors are
known, hence their distances d_ji. A row x is evaluated with the references; by the triangle inequality

    max_j |d(x, r_j) - d_ji|  <=  d(x, s_i)  <=  min_j (d(x, r_j) + d_ji)

which bounds every k(x, s_i), and so every score. Then vectors are evaluated, those first that promise most: weight
times width of the interval, added up over the scores that can still change the label, each in units of its own width.
When the label is certain the rest is left out. Where the kernel values among all support vectors are at hand, every
vector that is evaluated becomes a further reference.

Farthest-first references need nothing but kernel values, and any number of them is a prefix of one list.

Invariant: the interval of a score contains LIBSVM's float64 sum. The intervals of values contain what any code of the
stated accuracy computes; on top come ``8 (n_sv + 16) 2^-53 sum_i |a_i| high_i`` for the rounding of LIBSVM's sum and of
ours. Sums that are updated batch by batch only say when to look: a label is given after sums made from scratch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from svelto._typing import FloatArray, IndexArray, IntArray
from svelto.distance_bounds import SMALLEST, UNIT, Bound
from svelto.engines.score_sums import ScoreSums, relevant_scores
from svelto.machine import KernelMachine

# Kernel values of some rows (by number in the piece) with some support vectors.
Evaluate = Callable[[IndexArray, IndexArray], FloatArray]

# Vectors evaluated between two looks at the bounds: this share of those evaluated so far, and at least so many. A look
# costs some 100 microseconds, as much as two or three values of an expensive kernel.
BATCH_SHARE: Final = 0.08
LEAST_BATCH: Final = 2
# Intervals of this many values are worked on at a time: they stay in the cache.
BLOCK_VALUES: Final = 100_000


class ReferenceBounds:
    """Labels from intervals of kernel values.

    Parameters
    ----------
    machine : KernelMachine
        The machine.
    bound : Bound
        Of its kernel.
    references : ndarray of shape (K,)
        Numbers of the reference vectors.
    values : ndarray of shape (K, n_sv)
        Their kernel values with all support vectors.
    among : pair of ndarray of shape (n_sv, n_sv), optional
        Least and largest distances among the support vectors: every vector evaluated is then a further reference.
    """

    name: Final = "references"

    def __init__(
        self,
        machine: KernelMachine,
        bound: Bound,
        references: IndexArray,
        values: FloatArray,
        among: tuple[FloatArray, FloatArray] | None = None,
    ) -> None:
        self.machine = machine
        self.bound = bound
        self.references = references
        self.sums = ScoreSums(machine)
        self._near, self._far = bound.distances(values)
        self._among = among

    @property
    def nbytes(self) -> int:
        """Bytes of the distances and weights."""
        among = () if self._among is None else self._among
        return int(self._near.nbytes + self._far.nbytes + self.sums.nbytes + sum(part.nbytes for part in among))

    def settle(self, values: FloatArray, evaluate: Evaluate) -> IntArray:
        """Labels in vote order, -1 where even all values leave it open.

        Parameters
        ----------
        values : ndarray of shape (n, n_sv)
            NaN where a kernel value is not known; filled in as values are evaluated.
        evaluate : callable
            Gives kernel values of rows with vectors.
        """
        n, n_sv = values.shape
        labels: IntArray = np.full(n, -1, dtype=np.int32)
        step = max(1, BLOCK_VALUES // n_sv)
        for start in range(0, n, step):
            rows = np.arange(start, min(start + step, n))
            values[np.ix_(rows, self.references)] = evaluate(rows, self.references)
            low, high = self.intervals(values[rows])
            labels[rows], middle, half, margin = self._look(low, high)
            # Where no value fits, the metric or the profile is not the one registered: the whole sum has to tell.
            contradicts = (low > high).any(axis=1)
            labels[rows[contradicts]] = -1
            for at in np.flatnonzero((labels[rows] < 0) & ~contradicts):
                row = rows[at : at + 1]
                labels[row] = self._narrow(row, values, low[at], high[at], middle[at], half[at], margin[at], evaluate)
        return labels

    def intervals(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Least and largest kernel value of each row with each vector, from the values with the references."""
        low, high = self._triangles(values[:, self.references], self._near, self._far)
        low[:, self.references], high[:, self.references] = self.bound.around(values[:, self.references])
        return low, high

    def _triangles(self, known: FloatArray, near_all: FloatArray, far_all: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Intervals of all values of some rows from their values with some references, whose distances are given."""
        near, far = self.bound.distances(known)
        shape = (len(known), near_all.shape[1])
        least, most, scratch = np.zeros(shape), np.full(shape, np.inf), np.empty(shape)
        for j in range(known.shape[1]):
            np.maximum(least, np.subtract(near[:, j, None], far_all[j], out=scratch), out=least)
            np.maximum(least, np.subtract(near_all[j], far[:, j, None], out=scratch), out=least)
            np.minimum(most, np.add(far[:, j, None], far_all[j], out=scratch), out=most)
        return self.bound.values(least, most)

    def score_intervals(self, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Middles and half widths (n, n_scores) of the intervals of LIBSVM's scores."""
        middle, half, margin = self._sums(low, high)
        return middle, half + margin

    def _sums(self, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        intercept = self.machine.intercept
        middle = self.sums.sums(0.5 * (low + high)) + intercept
        half = self.sums.sums(0.5 * (high - low), sizes=True)
        size = self.sums.sums(high, sizes=True)
        margin = 8.0 * (low.shape[1] + 16) * UNIT * size + 8.0 * UNIT * np.abs(intercept) + SMALLEST
        margin[~(size < 1e290)] = np.inf  # LIBSVM's own sum may overflow
        return middle, half, margin

    def _look(self, low: FloatArray, high: FloatArray) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
        from svelto.cascade import settled_labels

        middle, half, margin = self._sums(low, high)
        return settled_labels(self.machine, middle, half + margin), middle, half, margin

    def _narrow(
        self,
        row: IndexArray,
        values: FloatArray,
        low: FloatArray,
        high: FloatArray,
        middle: FloatArray,
        half: FloatArray,
        margin: FloatArray,
        evaluate: Evaluate,
    ) -> int:
        """Evaluate vectors of one row until its label is certain."""
        from svelto.cascade import settled_labels

        known = values[row[0]]
        n_known = int(np.isfinite(known).sum())
        width = np.where(np.isnan(known), high - low, 0.0)
        while True:
            bound = half + margin
            relevant = relevant_scores(self.sums, middle - bound, middle + bound)
            promise = self.sums.importance(np.where(relevant, 1.0 / np.maximum(bound, 1e-300), 0.0)) * width
            promise[~(promise > 0.0)] = 0.0  # what overflowed cannot help
            n_useful = int(np.count_nonzero(promise))
            if n_useful == 0:
                return -1
            size = min(max(LEAST_BATCH, int(BATCH_SHARE * n_known)), n_useful)
            batch = np.argpartition(promise, len(promise) - size)[-size:]
            known[batch] = evaluate(row, batch)[0]
            n_known += size
            new_low, new_high = self.bound.around(known[batch])
            if (new_low > high[batch]).any() or (new_high < low[batch]).any():
                return -1  # as above
            if self._among is not None:
                low[batch], high[batch] = new_low, new_high
                near, far = self._among[0][batch], self._among[1][batch]
                more_low, more_high = self._triangles(known[None, batch], near, far)
                is_open = np.isnan(known)
                low[is_open] = np.maximum(low[is_open], more_low[0, is_open])
                high[is_open] = np.minimum(high[is_open], more_high[0, is_open])
                if (low > high).any():
                    return -1
                width = np.where(is_open, high - low, 0.0)
                label, fresh, wide, margins = self._look(low[None], high[None])
                if label[0] >= 0:
                    return int(label[0])
                middle, half, margin = fresh[0], wide[0], margins[0]
                continue
            shift = 0.5 * ((new_low + new_high) - (low[batch] + high[batch]))
            less = 0.5 * ((new_high - new_low) - (high[batch] - low[batch]))
            middle = middle + self.sums.part(batch, shift)
            half = np.maximum(half + self.sums.part(batch, less, sizes=True), 0.0)
            low[batch], high[batch], width[batch] = new_low, new_high, 0.0
            if settled_labels(self.machine, middle[None], (half + margin)[None])[0] >= 0:
                label, fresh, wide, margins = self._look(low[None], high[None])
                if label[0] >= 0:
                    return int(label[0])
                middle, half, margin = fresh[0], wide[0], margins[0]


def farthest_first(
    machine: KernelMachine, bound: Bound, n: int, kernel_rows: Callable[[IndexArray], FloatArray]
) -> tuple[IndexArray, FloatArray]:
    """Numbers of `n` vectors, each as far as possible from those before it, and their kernel values with all of them.

    The first is the one with the largest weights. Copies of a vector are not taken twice, so there may be fewer.
    """
    numbers = [int(np.abs(machine.dual_coef).sum(axis=0).argmax())]
    values = [kernel_rows(np.array(numbers))[0]]
    nearest = values[0].copy()
    while len(numbers) < min(n, machine.n_sv):
        nearest[numbers[-1]] = np.inf  # the largest value is the shortest distance
        following = int(nearest.argmin())
        if not nearest[following] < bound.top * (1.0 - 4.0 * bound.constant):
            break
        numbers.append(following)
        values.append(kernel_rows(np.array([following]))[0])
        nearest = np.maximum(nearest, values[-1])
    return np.array(numbers), np.array(values)
