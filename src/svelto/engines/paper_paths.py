"""Support vector trees, grown as paper S1 grows them (approximate): one column after another, from the root down.

Column j holds the values g(x_i, s_j) of all rows, and coef[p, j] times it is a term of score p: the paper's X_ij with
one score. A node has one column. Its rows are split by that column's value, and each side gets the column that comes
nearest to what the path has left over of the target, r (Algorithm 2). Threshold and columns are found in turns, each
given the others, until the cost stops falling (Algorithm 3), from `n_starts` random thresholds. The cost is the sum of
the squares of what is left over, summed over the scores: one tree serves them all.

`scale` (section 4.3) multiplies a column by the number that brings it nearest to r, for each score apart. With it only
the product of number and coef matters, so a column may serve a score that does not have it.

Columns are chosen by sums in float32 (see `column_sums`), to about 1e-6 of the sum of r^2, and of equal ones the first
is taken; the coefficients of chosen columns and the costs of splits are float64.

Know that a factor fitted to tiny values is huge. With sharp kernels, where few rows of a node lie near any vector, new
rows then get wild scores, many times what the machine gives. The paper names no remedy.

Invariants: the same seed gives the same tree, whatever the number of threads; coefficients of a path are fixed where
their column is chosen, as in the paper; no split leaves a side empty.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svelto import _core
from svelto._typing import FloatArray, IndexArray
from svelto.path_tree import Leaf, Node

# A column whose squares sum to less (values near 1e-15) is not scaled: float32 squares lose their digits below, and a
# factor fitted to such values would blow up the first new row that has an ordinary one.
LEAST_NORM: Final = 1e-30
# Columns whose costs differ by less than this share of the sum of r^2 are equal: their sums are made in float32, and
# the errors measured (RBF and Gaussian columns, 3 to 10,000 rows) reach 3e-7.
CHOICE: Final = 1e-6
# Costs that differ by less than this share are equal: cumulated sums of 10,000 squares may carry that much rounding.
RESOLUTION: Final = 1e-12
# Values in a node from which on threads share the work. Measured on two busy cores only: a second thread costs 20 us, a
# million values 100 us on one thread, so less is not worth it; with more, memory may be the limit.
LEAST_SHARED: Final = 2_000_000


class Choice(NamedTuple):
    """Columns of the two sides, their coefficients (2, P), and for every row of the node the cost on either side."""

    columns: tuple[int, int]
    coef: FloatArray
    errors: FloatArray  # (2, n)


class Split(NamedTuple):
    """Rows of side 0 are the first `size` in the order `by` of the column's values; cost as in equation (6)."""

    size: int
    choice: Choice
    cost: float


@dataclass
class Part:
    """The rows of one node: rows [first, last) of the matrix as it lies, and what is left of their target (n, P)."""

    first: int
    last: int
    residual: FloatArray

    def __len__(self) -> int:
        return self.last - self.first


@dataclass
class Columns:
    """The matrix, and Algorithm 4 on any range of its rows."""

    values: NDArray[np.float32]
    coef: FloatArray
    scale: bool
    n_threads: int
    norms: FloatArray = field(init=False)
    products: FloatArray = field(init=False)
    weight: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        n_scores, m = self.coef.shape
        self.norms, self.products = np.empty((2, m)), np.empty((2, n_scores, m))
        self.weight = np.ones(len(self.values))

    def column(self, part: Part, j: int) -> FloatArray:
        """Values of one column on the rows of a part."""
        return self.values[part.first : part.last, j].astype(np.float64)

    def gains(self, part: Part, side: NDArray[np.uint8]) -> FloatArray:
        """By how much each column lowers the sum of r^2 on either side (2, m)."""
        threads = self.n_threads if len(part) * self.values.shape[1] >= LEAST_SHARED else 1
        weight = self.weight[: len(part)]
        _core.column_sums(
            self.values, part.first, part.last, side, weight, part.residual, self.norms, self.products, threads
        )
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # such columns are left out below
            if self.scale:  # |r|^2 - min_c |c X_j - r|^2, which is at least zero
                gain: FloatArray = np.einsum("spj,spj->sj", self.products, self.products) / self.norms
                gain[self.norms < LEAST_NORM] = 0.0
            else:
                gain = 2 * np.einsum("pj,spj->sj", self.coef, self.products) - (self.coef**2).sum(axis=0) * self.norms
        gain[~np.isfinite(gain)] = -np.inf
        return gain

    def fit(self, part: Part, rows: NDArray[np.bool_], j: int) -> tuple[FloatArray, FloatArray]:
        """Coefficients of column j, fitted to some rows where columns are scaled, and the cost of every row."""
        v = self.column(part, j)
        coef = self.coef[:, j]
        if self.scale:
            norm = float(v[rows] @ v[rows])
            coef = v[rows] @ part.residual[rows] / norm if norm >= LEAST_NORM else np.zeros(len(coef))
        return coef, ((part.residual - v[:, None] * coef) ** 2).sum(axis=1)

    def optimize_columns(self, part: Part, side: NDArray[np.uint8]) -> Choice:
        """Algorithm 4: the best column of each side."""
        gain = self.gains(part, side)
        power = np.bincount(side, weights=(part.residual**2).sum(axis=1), minlength=2)
        # The first of those that float32 cannot tell from the best: on a side of one row all of them, where scaled.
        near = gain >= (gain.max(axis=1) - CHOICE * power)[:, None]
        columns = int(near[0].argmax()), int(near[1].argmax())
        fits = [self.fit(part, side == s, j) for s, j in enumerate(columns)]
        return Choice(columns, np.array([coef for coef, _ in fits]), np.array([errors for _, errors in fits]))


def threshold_costs(errors: FloatArray) -> FloatArray:
    """Costs of all thresholds (Algorithm 5): entry k where the first k + 1 rows are on side 0; errors (2, n) sorted."""
    left, right = np.cumsum(errors[0]), np.cumsum(errors[1, ::-1])[::-1]
    costs: FloatArray = left[:-1] + right[1:]
    return costs


def cut_after(v: FloatArray, k: int) -> float:
    """The threshold half-way between the neighbours v[k] < v[k + 1], never rounded up to the second."""
    middle = float(v[k] / 2 + v[k + 1] / 2)
    return middle if v[k] <= middle < v[k + 1] else float(v[k])


def find_split(
    columns: Columns, part: Part, by: IndexArray, cuts: IndexArray, n_starts: int, rng: np.random.Generator
) -> Split:
    """Algorithm 3 from several random thresholds.

    Parameters
    ----------
    by : ndarray of shape (n,)
        Rows of the part in the order of the node's column.
    cuts : ndarray
        Positions k in that order whose value is smaller than the next one's; not empty.

    Returns
    -------
    Split
        The cheapest that was met; neither columns nor threshold alone can improve it.
    """
    best: Split | None = None
    seen: set[int] = set()
    # A random element of the column other than its greatest, beyond which nothing would be left.
    for start in rng.integers(cuts[-1] + 1, size=n_starts):
        k, before = int(cuts[np.searchsorted(cuts, start)]), np.inf
        while k not in seen:  # the columns depend on the threshold alone: from here on another start has been before
            seen.add(k)
            choice = columns.optimize_columns(part, sides(by, k + 1))
            costs = threshold_costs(choice.errors[:, by])
            cost = float(costs[k])
            if best is None or cost < best.cost:
                best = Split(k + 1, choice, cost)
            if cost >= before:
                break
            k, before = int(cuts[costs[cuts].argmin()]), cost
            if costs[k] >= cost * (1 - RESOLUTION):
                break
    assert best is not None
    return best


def median_split(columns: Columns, part: Part, by: IndexArray) -> Split:
    """The split at the median; of an odd number of rows the middle one is on side 0."""
    size = (len(part) + 1) // 2
    choice = columns.optimize_columns(part, sides(by, size))
    return Split(size, choice, float(threshold_costs(choice.errors[:, by])[size - 1]))


def sides(by: IndexArray, size: int) -> NDArray[np.uint8]:
    """0 for the first `size` rows in the order `by`, 1 for the others."""
    side = np.zeros(len(by), dtype=np.uint8)
    side[by[size:]] = 1
    return side


def grow_paper(
    values: NDArray[np.float32],
    coef: FloatArray,
    target: FloatArray,
    *,
    max_evals: int | None = None,
    min_rows: int = 5,
    n_starts: int = 3,
    scale: bool = True,
    balanced: bool = False,
    rng: np.random.Generator,
    n_threads: int = 1,
) -> Node | Leaf:
    """Build a support vector tree (Algorithm 2).

    Branching is on the column's value, not on alpha times it: a factor changes the order of the rows at most to its
    reverse, so the two sides are the same sets, and there is one value for several scores.

    Parameters
    ----------
    values : ndarray of float32 of shape (n, m), C-contiguous
        Values of the columns. Rows are permuted in place; beside them memory is needed for a few vectors only.
    coef : ndarray of shape (P, m)
        coef[p, j] values[i, j] is term j of score p.
    target : ndarray of shape (n, P)
        Sums to come near to.
    max_evals : int, optional
        Most values on a path; no limit by default.
    min_rows : int
        A node of so many rows or fewer is not split.
    n_starts : int
        Random thresholds to start from, at every node.
    scale : bool
        Fit a factor for every chosen column and score (section 4.3).
    balanced : bool
        Split at the median instead of searching; a column that ties across its median does not split. This is the class
        of trees of `balanced_optimum`.
    rng : numpy Generator
        Draws the random thresholds.
    n_threads : int
        Threads for the sums over columns; the tree does not depend on it.

    Returns
    -------
    Node or Leaf
        For `flatten`. A leaf of the paper is a node without test, above a `Leaf`. Without any value, a bare `Leaf`.
    """
    assert values.dtype == np.float32
    assert values.flags.c_contiguous
    assert coef.shape == (target.shape[1], values.shape[1])
    assert target.shape[0] == values.shape[0]
    assert min(max_evals or 1, min_rows, n_starts) >= 1
    n_scores = len(coef)
    if not values.size:
        return Leaf(np.zeros((0, n_scores)), np.zeros(n_scores))
    columns = Columns(values, np.ascontiguousarray(coef, dtype=np.float64), scale, n_threads)
    order = np.arange(len(values), dtype=np.int64)
    residual = np.array(target, dtype=np.float64, order="C")

    whole = Part(0, len(values), residual)
    choice = columns.optimize_columns(whole, np.zeros(len(values), dtype=np.uint8))
    root = Node(choice.columns[0], ())
    # Rows of the node, the node, the coefficients on the path to it and its own. A stack: paths may be long.
    waiting = [(0, len(values), root, [choice.coef[0]])]
    while waiting:
        first, last, node, path = waiting.pop()
        part = Part(first, last, residual[order[first:last]])
        v = columns.column(part, node.column)
        part.residual -= v[:, None] * path[-1]
        by = v.argsort(kind="stable")
        cuts = np.flatnonzero(v[by[:-1]] < v[by[1:]])
        if balanced:
            cuts = cuts[cuts == (len(v) + 1) // 2 - 1]
        if len(v) <= min_rows or len(path) == max_evals or not len(cuts):
            node.children = (Leaf(np.array(path), np.zeros(n_scores)),)
            continue
        residual[order[first:last]] = part.residual
        split = median_split(columns, part, by) if balanced else find_split(columns, part, by, cuts, n_starts, rng)
        left, right = (Node(j, ()) for j in split.choice.columns)
        node.test, node.threshold = len(path) - 1, cut_after(v[by], split.size - 1)
        node.children = (left, right)
        middle = first + _core.partition_rows(values, order, first, last, sides(by, split.size))
        waiting.append((middle, last, right, [*path, split.choice.coef[1]]))
        waiting.append((first, middle, left, [*path, split.choice.coef[0]]))
    return root
