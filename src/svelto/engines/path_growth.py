"""Growing path trees whose leaves are fitted anew (approximate): better than the paper at the same number of values.

Where the paper fixes a coefficient when its column is chosen, here every node fits all values on its path again, by
least squares towards the scores of its own rows. Features that cost no kernel value (a constant, and for vectors the
features themselves) take part in the fit. A node with few rows stays close to its parent: it is fitted as if
`prior_rows` more rows, spread like the parent's, agreed with the fit before it, the first of which is the parent's.

    column    the one whose part outside the span of the path explains most of the residual (orthogonal matching
              pursuit)
    test      a value on the path against a quantile of it; the best few candidates are compared by what one more
              column would leave on either side (look-ahead)
    pruning   from the leaves up: where rows that had no part in the fit are served better without further tests, the
              node goes on with columns alone, and with no more of them than those rows profit from

Values of a smooth kernel are much alike, and what tells rows apart is in their small differences: columns are centred
before they are stored in float32, and sums are float64.

Invariant: no path holds more than `max_evals` values, and no test leaves fewer than `min_rows` rows on a side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from threadpoolctl import threadpool_limits

from svelto import _core
from svelto._typing import FloatArray, IndexArray
from svelto.engines.path_fit import Fit, Sample
from svelto.engines.path_tests import Test, compare_tests
from svelto.path_tree import Leaf, Node

# Scores whose residuals choose columns; more are mixed at random into this many.
MIXED_SCORES: Final = 8
# Tests on a path; a bound on recursion, far above what rows allow.
MOST_TESTS: Final = 100
# A column whose part outside the span of the path is below this share of it is in that span, as far as float32 tells.
INDEPENDENT: Final = 1e-6
# A node whose rows have a mean square error below this share of the mean square score is not split further.
NEGLIGIBLE: Final = 1e-6
# A column must lower the held-out loss by this share to be worth its evaluation.
LEAST_GAIN: Final = 1e-3
# Values of columns that are made float64 at a time (4 MB), and from how many on threads share the work.
PIECE_VALUES: Final = 500_000
SHARED_VALUES: Final = 2_000_000


@dataclass(frozen=True)
class Growth:
    """Limits of a tree: see `SVTreeOptions`."""

    max_evals: int
    min_rows: int
    prior_rows: float = 20.0
    look_ahead: int = 4
    prune: bool = True


def grow_refitted(
    sample: Sample,
    held_out: Sample,
    growth: Growth,
    seed: int,
    n_threads: int = 1,
    prefixes: Sequence[Sequence[int]] = ((),),
) -> Node | Leaf:
    """Grow a tree on one sample and prune it on another.

    `prefixes` are columns that every path begins with, each a beginning to try; the tree that serves the held-out rows
    best is returned.
    """
    # One thread in BLAS: most products are small, and its threads would only wait for each other.
    with threadpool_limits(1, user_api="blas"), ThreadPool(n_threads) as pool:
        grower = _Grower(sample, held_out, growth, seed, n_threads, pool)
        beginnings = [list(prefix)[: growth.max_evals] for prefix in prefixes]
        return min((grower.run(prefix) for prefix in grower.best_two(beginnings)), key=_first)[1]


class _Grower:
    def __init__(
        self, sample: Sample, held_out: Sample, growth: Growth, seed: int, n_threads: int, pool: ThreadPool
    ) -> None:
        self.sample, self.held_out, self.growth, self.n_threads, self.pool = sample, held_out, growth, n_threads, pool
        self.order = np.arange(len(sample), dtype=np.int64)
        self.q = sample.free.shape[1]
        n_scores = sample.target.shape[1]
        squares = sample.weight @ (sample.target**2).sum(axis=1)
        self.negligible = NEGLIGIBLE * float(squares) / max(float(sample.weight.sum()), 1e-300)
        self.mix: FloatArray | None = None
        if n_scores > MIXED_SCORES:
            signs = np.random.default_rng([seed, 5]).integers(0, 2, size=(n_scores, MIXED_SCORES))
            self.mix = (2.0 * signs - 1.0) / np.sqrt(MIXED_SCORES)

    def best_two(self, prefixes: list[list[int]]) -> list[list[int]]:
        """The first beginning, and of the others the one whose values alone serve the held-out rows best."""
        if len(prefixes) <= 2:
            return prefixes
        everything, held = slice(0, len(self.sample)), np.arange(len(self.held_out))

        def loss(prefix: list[int]) -> float:
            fit = Fit(self.sample, self.order, everything, prefix)
            coef = fit.solve(self._nothing(), np.empty((0, 0)))
            return Fit(self.held_out, held, held, prefix).loss(coef)

        return [prefixes[0], min(prefixes[1:], key=loss)]

    def _nothing(self) -> FloatArray:
        return np.zeros((1 + self.q, self.sample.target.shape[1]))

    def run(self, prefix: list[int]) -> tuple[float, Node | Leaf]:
        """The tree whose paths begin with these columns, and its loss on the held-out rows."""
        held = np.arange(len(self.held_out))
        loss, root = self._grow(0, len(self.sample), held, prefix, self._nothing(), np.empty((0, 0)), 0)
        for column in reversed(prefix):
            root = Node(column, (root,))
        return loss, root

    def _grow(
        self,
        first: int,
        last: int,
        held: IndexArray,
        path: list[int],
        start: FloatArray,
        prior: FloatArray,
        n_tests: int,
    ) -> tuple[float, Node | Leaf]:
        """The subtree for rows first..last, one column longer than `path`, and its loss on the held-out rows."""
        growth = self.growth
        fit = Fit(self.sample, self.order[first:last], slice(first, last), path)
        check = Fit(self.held_out, held, held, path)
        coef = fit.solve(start, prior)
        best: tuple[float, Node | Leaf] = check.loss(coef), self._leaf(coef)
        column, search = -1, None
        if len(path) < growth.max_evals:
            search = _ColumnSearch(self, fit, first, last, path)
            column = search.best(fit, coef)
            if column >= 0:
                path = [*path, column]
                coef = _join(fit, check, search, column, coef, prior)
                best = min(best, (check.loss(coef), Node(column, (self._leaf(coef),))), key=_first)
        split = self._split(fit, coef, len(path), first, last) if n_tests < MOST_TESTS else None
        below_prior = growth.prior_rows / len(fit.Z) * fit.gram
        side, held_left = _sides(fit, check, split, self.q)
        if search is not None and column >= 0:
            best = min(best, self._chain(fit, check, search, path, coef, prior), key=_first)
        del fit, check, search  # their rows are about to be reordered, and memory is for the children
        if split is None:
            return best
        position, threshold = split
        middle = first + _core.partition_rows(self.sample.values, self.order, first, last, side)
        below = self._grow(first, middle, held[held_left], path, coef, below_prior, n_tests + 1)
        above = self._grow(middle, last, held[~held_left], path, coef, below_prior, n_tests + 1)
        grown = below[0] + above[0], Node(column, (below[1], above[1]), position, threshold)
        return best if growth.prune and best[0] <= grown[0] else grown

    def _chain(
        self,
        fit: Fit,
        check: Fit,
        search: _ColumnSearch,
        path: list[int],
        coef: FloatArray,
        prior: FloatArray,
    ) -> tuple[float, Node | Leaf]:
        """Columns without further tests, from the node's own on, as many as the held-out rows profit from."""
        taken = [path[-1]]
        best, columns, best_coef = check.loss(coef), list(taken), coef
        while len(path) < self.growth.max_evals:
            column = search.best(fit, coef)
            if column < 0:
                break
            path, taken = [*path, column], [*taken, column]
            coef = _join(fit, check, search if len(path) < self.growth.max_evals else None, column, coef, prior)
            loss = check.loss(coef)
            if loss < (1.0 - LEAST_GAIN) * best:
                best, columns, best_coef = loss, list(taken), coef
        subtree: Node | Leaf = self._leaf(best_coef)
        for column in reversed(columns):
            subtree = Node(column, (subtree,))
        return best, subtree

    def _leaf(self, coef: FloatArray) -> Leaf:
        slope = coef[1 : 1 + self.q].T if self.q else None
        return Leaf(coef[1 + self.q :], coef[0], slope)

    # -- tests ---------------------------------------------------------------------------------------------------

    def _split(self, fit: Fit, coef: FloatArray, n_values: int, first: int, last: int) -> tuple[int, float] | None:
        """The position on the path and the threshold that the best test compares; None where rows are too few."""
        min_rows = self.growth.min_rows
        if last - first < 2 * min_rows or n_values == 0 or fit.loss(coef) <= self.negligible * float(fit.weight.sum()):
            return None
        residuals = self.mixed(fit.residuals(coef))
        found = compare_tests(fit.Z, fit.weight, residuals, fit.gram, n_values, min_rows, self.growth.prior_rows)
        if len(found) > 1 and self.growth.look_ahead > 1 and n_values < self.growth.max_evals:
            several = found[: self.growth.look_ahead]
            found = [min(several, key=lambda test: self._ahead(fit, residuals, test, first, last))]
        return (found[0].position, found[0].threshold) if found else None

    def _ahead(self, fit: Fit, residuals: FloatArray, test: Test, first: int, last: int) -> float:
        """Loss of a test after one more column on either side, estimated."""
        side = np.ascontiguousarray(fit.Z[:, 1 + self.q + test.position] > test.threshold, dtype=np.uint8)
        left = residuals.copy()
        for number in (0, 1):
            rows = side == number
            left[rows] -= fit.Z[np.ix_(rows, test.used)] @ test.change[number]
        m = self.sample.values.shape[1]
        norms, products = np.empty((2, m)), np.empty((2, left.shape[1], m))
        threads = self.n_threads if (last - first) * m > SHARED_VALUES else 1
        _core.column_sums(self.sample.values, first, last, side, fit.weight, left, norms, products, threads)
        gain = (products**2).sum(axis=1) / np.maximum(norms, np.finfo(np.float64).tiny)
        return test.loss - float(gain.max(axis=1).sum())

    def mixed(self, residuals: FloatArray) -> FloatArray:
        """Residuals of a few scores: the machine's own, or random mixtures that keep sums of squares on average."""
        return residuals if self.mix is None else residuals @ self.mix


class _ColumnSearch:
    """The column that explains most of the residual, given those on the path.

    Of a column only the part outside the span of the features counts: its norm is the column's norm less that of its
    projection, which takes one product of the column with each feature.
    """

    def __init__(self, grower: _Grower, fit: Fit, first: int, last: int, path: list[int]) -> None:
        self.grower, self.first, self.last, self.weight = grower, first, last, fit.weight
        self.taken = list(path)
        self.norms = np.empty(grower.sample.values.shape[1])
        self.G = self._products(fit.Z, with_norms=True)

    def _products(self, features: FloatArray, *, with_norms: bool = False) -> FloatArray:
        """Products (k, m) of the features (n, k) with all columns; columns become float64 some at a time."""
        block = self.grower.sample.values[self.first : self.last]
        n, m = block.shape
        weighted = np.ascontiguousarray((features * self.weight[:, None]).T)
        products = np.empty((features.shape[1], m))

        def fill(start: int) -> None:
            part = slice(start, start + step)
            values = block[:, part].astype(np.float64)
            products[:, part] = weighted @ values
            if with_norms:
                self.norms[part] = self.weight @ np.square(values, out=values)

        step = max(16, PIECE_VALUES // max(n, 1))
        starts = range(0, m, step)
        if n * m > SHARED_VALUES:
            self.grower.pool.map(fill, starts, chunksize=1)
        else:
            for start in starts:
                fill(start)
        return products

    def extend(self, column: int) -> None:
        """One more column on the path."""
        self.taken.append(column)
        values = self.grower.sample.values[self.first : self.last, column]
        self.G = np.vstack([self.G, self._products(values[:, None].astype(np.float64))])

    def _inside(self, gram: FloatArray) -> FloatArray:
        """Squared lengths of the columns' parts in the span of the features, in the metric of `gram`."""
        # With features of unit length rounding cannot make the matrix indefinite.
        length = np.sqrt(np.diagonal(gram))
        length[length == 0.0] = 1.0
        unit = gram / np.outer(length, length) + 1e-9 * np.eye(len(length))
        inside = solve_triangular(np.linalg.cholesky(unit), self.G / length[:, None], lower=True)
        return np.asarray(np.einsum("fm,fm->m", inside, inside))

    def best(self, fit: Fit, coef: FloatArray) -> int:
        """The next column; -1 where none explains anything."""
        products = self._products(self.grower.mixed(fit.residuals(coef)))
        # What the fit may make of the span is held by the prior; what repeats the span brings nothing, prior or not.
        outside = self.norms - self._inside(fit.penalised)
        usable = self.norms - self._inside(fit.gram) > INDEPENDENT * self.norms
        gain = np.zeros(len(outside))
        np.divide((products**2).sum(axis=0), outside, out=gain, where=usable)
        gain[self.taken] = 0.0
        column = int(np.argmax(gain))
        return column if gain[column] > 0.0 else -1


def _join(
    fit: Fit, check: Fit, search: _ColumnSearch | None, column: int, coef: FloatArray, prior: FloatArray
) -> FloatArray:
    """Put a column on the path and fit again."""
    fit.extend(column)
    check.extend(column)
    if search is not None:
        search.extend(column)
    return fit.solve(coef, prior)


def _sides(
    fit: Fit, check: Fit, split: tuple[int, float] | None, q: int
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Side of each row (1: above the threshold), and which held-out rows are on side 0."""
    if split is None:
        return np.zeros(0, dtype=np.uint8), np.zeros(0, dtype=bool)
    feature, threshold = 1 + q + split[0], split[1]
    return np.ascontiguousarray(fit.Z[:, feature] > threshold, dtype=np.uint8), check.Z[:, feature] <= threshold


def _first(item: tuple[float, Any]) -> float:
    return item[0]
