"""The best balanced support vector tree (Algorithm 1 of paper S1), by trying all: what the greedy tree is judged by.

The class of trees the optimum is taken over, exactly:

- every node evaluates one column, a leaf too, and a path holds at most `height` columns;
- an inner node is split at the median of its own column, between two different values. Of an odd number of rows the
  middle one goes left. A column that ties across its median does not split those rows;
- a node of at most `min_rows` rows is a leaf, and any other node may be one (equation (4): where splitting costs more);
- the coefficient of a column is 1, or with `scale` the factor that brings it nearest to what the path has left of the
  target, on the rows of the node that evaluates it. It stays as it is further down, as in section 4.3. Coefficients of
  a whole path that are fitted together, or thresholds elsewhere, can cost less: they are outside the class.

`grow_paper(..., balanced=True)` grows its tree inside this class, so it never costs less. Its free thresholds leave the
class, and may.

Time: 2 m calls inside each call, (2 m)^(height - 1) at the bottom. For small inputs only.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from svelto._typing import FloatArray
from svelto.engines.paper_paths import LEAST_NORM, cut_after
from svelto.path_tree import Leaf, Node

# Some 20 seconds: 17 s for a million calls with 64 rows and 9 columns.
MOST_CALLS: Final = 1_000_000


def balanced_optimum(
    terms: FloatArray, target: FloatArray, *, height: int, min_rows: int = 2, scale: bool = False
) -> tuple[float, Node | Leaf]:
    """The cheapest tree of the class above, and its cost.

    Parameters
    ----------
    terms : ndarray of shape (n, m)
        The paper's X.
    target : ndarray of shape (n,)
        Sums to come near to; the paper's r.
    height : int
        Most columns on a path.
    min_rows : int
        A node of so many rows or fewer is not split.
    scale : bool
        Multiply each column by its best factor where it is evaluated.

    Returns
    -------
    cost : float
        Sum of squares of what the tree leaves over.
    tree : Node or Leaf
        For `flatten`. Of equally cheap trees one without a split, else the first column.
    """
    X, r = np.asarray(terms, dtype=np.float64), np.asarray(target, dtype=np.float64)
    if X.ndim != 2 or not X.size or r.shape != (len(X),):
        raise ValueError(
            f"terms has shape {X.shape} and target {r.shape}; expected (n, m) with n and m at least 1, and (n,)."
        )
    if not (np.isfinite(X).all() and np.isfinite(r).all()):
        raise ValueError("terms or target has a value that is not finite; expected finite numbers.")
    if height < 1 or min_rows < 1:
        raise ValueError(f"height is {height} and min_rows is {min_rows}; expected at least 1.")
    n, m = X.shape
    calls = count_calls(n, m, height, min_rows)
    if calls > MOST_CALLS:
        fits = max(h for h in range(1, height) if count_calls(n, m, h, min_rows) <= MOST_CALLS)
        raise ValueError(
            f"The exact tree of height {height} over {n} rows and {m} columns takes up to {calls:.3g} calls; "
            f"expected at most {MOST_CALLS}. Use height={fits}, fewer columns, or the greedy tree."
        )
    return _optimum(X, r, height, min_rows, scale, [])


def count_calls(n_rows: int, n_columns: int, height: int, min_rows: int) -> int:
    """Calls of Algorithm 1 where no column ties: 2 m from each call whose rows may be split."""
    calls, level = 1, 1
    for _ in range(height - 1):
        if n_rows <= min_rows:
            break
        level *= 2 * n_columns
        calls += level
        n_rows = (n_rows + 1) // 2
    return calls


def _optimum(
    X: FloatArray, r: FloatArray, height: int, min_rows: int, scale: bool, path: list[float]
) -> tuple[float, Node]:
    """Equation (4) for rows X, what the path has left of their target, and as many columns as are still allowed."""
    factors = np.ones(X.shape[1])
    if scale:
        norms = (X**2).sum(axis=0)
        usable = norms >= LEAST_NORM  # as in the greedy tree
        factors = np.where(usable, r @ X / np.where(usable, norms, 1.0), 0.0)
    left_over = r[:, None] - factors * X
    costs = (left_over**2).sum(axis=0)
    j = int(costs.argmin())
    cost, best = float(costs[j]), Node(j, (_leaf([*path, factors[j]]),))
    if height == 1 or len(X) <= min_rows:
        return cost, best
    size = (len(X) + 1) // 2
    order = X.argsort(axis=0, kind="stable")
    for j in range(X.shape[1]):
        by, v = order[:, j], X[order[:, j], j]
        if v[size - 1] == v[size]:
            continue
        below = [*path, float(factors[j])]
        halves = [
            _optimum(X[rows], left_over[rows, j], height - 1, min_rows, scale, below) for rows in (by[:size], by[size:])
        ]
        split_cost = halves[0][0] + halves[1][0]
        if split_cost < cost:
            cost, best = split_cost, Node(j, (halves[0][1], halves[1][1]), len(path), cut_after(v, size - 1))
    return cost, best


def _leaf(path: list[float]) -> Leaf:
    return Leaf(np.array(path, dtype=np.float64)[:, None], np.zeros(1))
