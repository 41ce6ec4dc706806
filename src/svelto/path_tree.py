"""Path trees: a sum of many expensive terms, approximated by the few terms on one path of a binary tree (paper S1).

A tree stands for the scores  f(x) = sum_j term_j(x)  of rows x (a kernel machine: term_j = alpha_j k(x, s_j)). At a
node one more term is evaluated, then a value that is already on the path is compared with a threshold; at leaf l

    f(x) ~ constant[l] + sum_h coef[l, h] value_h + slope[l] . x

where value_h are the terms evaluated on the way, and the slope belongs to trees on vectors that ask for it.

Invariants: a child's number is larger than its parent's, so a walk ends; a row's answer depends on the row alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from sklearn.utils import check_random_state

from svelto._options import check_choice, check_positive, check_whole
from svelto._threads import check_n_jobs, thread_count
from svelto._typing import FloatArray, IndexArray, IntArray

# Coefficients of the leaves, in bytes.
MOST_BYTES: Final = 2**30
# fetch(rows, column) -> values of that column for these rows; rows are positions in ascending order.
Fetch: TypeAlias = Callable[[IndexArray, int], Any]


@dataclass
class Leaf:
    """A leaf while a tree grows: coefficients (h, P) of the values on its path, constant (P,), slope (P, q) or None."""

    coef: FloatArray
    constant: FloatArray
    slope: FloatArray | None = None


@dataclass
class Node:
    """An inner node while a tree grows.

    Attributes
    ----------
    column : int
        Term that is evaluated on arrival, -1 for none.
    test, threshold : int, float
        Position on the path (0 is the root's value) whose value decides: `children[0]` where it is at most the
        threshold. -1: no test, and a single child.
    """

    column: int
    children: tuple[Node | Leaf, ...]
    test: int = -1
    threshold: float = 0.0


class Walk(NamedTuple):
    """Where rows went: values (n, height), zeros beyond the end of a path; leaf and number of values of each row."""

    values: FloatArray
    leaf: IntArray
    evaluations: IntArray


@dataclass(frozen=True, eq=False)
class PathTree:
    """A tree as arrays: node 0 is the root, leaf l stands as the child ~l.

    Attributes
    ----------
    column, test : ndarray of int of shape (n_nodes,)
        Term evaluated at the node (-1: none), and position on the path that is tested (-1: no test).
    threshold : ndarray of shape (n_nodes,)
        A value of at most this goes to the first child.
    children : ndarray of int of shape (n_nodes, 2)
        Nodes, or leaves as ~l; both alike where there is no test.
    coef : ndarray of shape (n_leaves, height, n_scores)
        Coefficients of the values on the path, zero beyond its end.
    constant : ndarray of shape (n_leaves, n_scores)
        Added to the score.
    slope : ndarray of shape (n_leaves, n_scores, n_features) or None
        Linear term of each leaf.
    """

    column: IntArray
    test: IntArray
    threshold: FloatArray
    children: IntArray
    coef: FloatArray
    constant: FloatArray
    slope: FloatArray | None = None

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return len(self.constant)

    @property
    def n_scores(self) -> int:
        """Number of scores a row gets."""
        return int(self.constant.shape[1])

    @property
    def height(self) -> int:
        """Largest number of values on a path."""
        return int(self.coef.shape[1])

    @property
    def columns(self) -> IndexArray:
        """The terms that occur in the tree, ascending: no other is ever asked for."""
        return np.unique(self.column[self.column >= 0])

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(v.nbytes for v in vars(self).values() if isinstance(v, np.ndarray))

    @property
    def leaf_columns(self) -> IntArray:
        """Terms on the path to each leaf (n_leaves, height), -1 beyond its end."""
        result: IntArray = np.full((self.n_leaves, self.height), -1, dtype=np.int32)
        for node, path in self._nodes():
            if node < 0:
                result[~node, : len(path)] = path
        return result

    def _nodes(self) -> Iterator[tuple[int, list[int]]]:
        """Nodes and leaves (as ~l) with the terms on the way, their own included."""
        waiting: list[tuple[int, list[int]]] = [(0, [])]
        while waiting:
            node, path = waiting.pop()
            if node >= 0:
                path = [*path, int(self.column[node])] if self.column[node] >= 0 else path
                waiting += [(child, path) for child in {int(c) for c in self.children[node]}]
            yield node, path

    def walk(self, fetch: Fetch, n_rows: int) -> Walk:
        """Send rows down the tree; `fetch` is asked for the values of a node's rows, node by node."""
        values = np.zeros((n_rows, self.height))
        leaf: IntArray = np.full(n_rows, -1, dtype=np.int32)
        evaluations: IntArray = np.zeros(n_rows, dtype=np.int32)
        if n_rows == 0:
            return Walk(values, leaf, evaluations)
        waiting: list[tuple[int, IndexArray]] = [(0, np.arange(n_rows))]
        while waiting:
            node, rows = waiting.pop()
            if node < 0:
                leaf[rows] = ~node
                continue
            if self.column[node] >= 0:
                values[rows, evaluations[rows[0]]] = fetch(rows, int(self.column[node]))
                evaluations[rows] += 1
            below, above = (int(child) for child in self.children[node])
            if self.test[node] < 0:
                waiting.append((below, rows))
                continue
            left = values[rows, self.test[node]] <= self.threshold[node]
            for child, some in ((below, rows[left]), (above, rows[~left])):
                if len(some):
                    waiting.append((child, some))
        return Walk(values, leaf, evaluations)

    def scores(self, walk: Walk, X: FloatArray | None = None) -> FloatArray:
        """Scores (n, n_scores) of rows that have walked; X are the rows themselves, for trees with a slope."""
        result: FloatArray = self.constant[walk.leaf]
        order = np.argsort(walk.leaf, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(walk.leaf[order])) + 1):
            if len(rows):
                leaf = walk.leaf[rows[0]]
                result[rows] += walk.values[rows] @ self.coef[leaf]
                if self.slope is not None:
                    assert X is not None
                    result[rows] += X[rows] @ self.slope[leaf].T
        return result

    def predict(self, terms: Any, n_rows: int | None = None) -> FloatArray:
        """Approximate sums.

        Parameters
        ----------
        terms : ndarray of shape (n_rows, n_terms) or callable
            All terms; or ``terms(rows, column)``, which is asked for the terms on the rows' paths only and returns an
            array of ``len(rows)`` values.
        n_rows : int, optional
            Number of rows, with a callable.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_scores)
        """
        walk = self._walk_terms(terms, n_rows)
        result = self.scores(walk)
        return result[:, 0] if self.n_scores == 1 else result

    def evaluations(self, terms: Any, n_rows: int | None = None) -> IntArray:
        """Terms that `predict` evaluates for each row."""
        return self._walk_terms(terms, n_rows).evaluations

    def _walk_terms(self, terms: Any, n_rows: int | None) -> Walk:
        if self.slope is not None:
            raise ValueError("This tree has linear terms; it answers through the predictor it was built for.")
        if callable(terms):
            if n_rows is None:
                raise ValueError("With a function for the terms, pass n_rows, the number of rows.")
            return self.walk(_checked_fetch(terms), n_rows)
        matrix = np.asarray(terms, dtype=np.float64)
        needed = int(self.columns[-1]) + 1 if len(self.columns) else 0
        if matrix.ndim != 2 or matrix.shape[1] < needed:
            raise ValueError(f"terms has shape {matrix.shape}; expected (n_rows, n_terms) with n_terms >= {needed}.")
        return self.walk(_checked_fetch(lambda rows, column: matrix[rows, column]), len(matrix))


def _checked_fetch(terms: Fetch) -> Fetch:
    def fetch(rows: IndexArray, column: int) -> FloatArray:
        values = np.asarray(terms(rows, column), dtype=np.float64)
        if values.shape != (len(rows),):
            raise ValueError(
                f"The function for the terms returned an array of shape {values.shape} for {len(rows)} rows; expected "
                f"({len(rows)},)."
            )
        if not np.isfinite(values).all():
            row = int(rows[np.flatnonzero(~np.isfinite(values))[0]])
            raise ValueError(f"Term {column} of row {row} is not finite; expected finite numbers.")
        return values

    return fetch


def flatten(root: Node | Leaf, n_scores: int) -> PathTree:
    """Arrays from linked nodes, numbered level by level."""
    top = Node(-1, (root,)) if isinstance(root, Leaf) else root
    nodes, leaves = [top], list[Leaf]()
    children: list[tuple[int, int]] = []
    for node in nodes:  # grows while it is read
        numbers = []
        for child in node.children:
            if isinstance(child, Leaf):
                leaves.append(child)
                numbers.append(~(len(leaves) - 1))
            else:
                nodes.append(child)
                numbers.append(len(nodes) - 1)
        children.append((numbers[0], numbers[-1]))
    height = max(len(leaf.coef) for leaf in leaves)
    size = 8 * len(leaves) * height * n_scores
    if size > MOST_BYTES:
        raise ValueError(
            f"The tree has {len(leaves)} leaves, paths of up to {height} values and {n_scores} score(s): its "
            f"coefficients would take {size / 2**30:.1f} GiB. Limit it with max_evals."
        )
    coef = np.zeros((len(leaves), height, n_scores))
    for number, leaf in enumerate(leaves):
        coef[number, : len(leaf.coef)] = leaf.coef
    slopes = [leaf.slope for leaf in leaves if leaf.slope is not None]
    return PathTree(
        column=np.array([node.column for node in nodes], dtype=np.int32),
        test=np.array([node.test for node in nodes], dtype=np.int32),
        threshold=np.array([node.threshold for node in nodes], dtype=np.float64),
        children=np.array(children, dtype=np.int32),
        coef=coef,
        constant=np.array([leaf.constant for leaf in leaves], dtype=np.float64),
        slope=np.array(slopes) if slopes else None,
    )


def as_they_are(
    tree: PathTree, mean: FloatArray, unit: float, mu: FloatArray, sd: FloatArray, size: float = 1.0
) -> PathTree:
    """A tree of scores f / size, values (v - mean) / unit and features (x - mu) / sd, for plain ones."""
    columns = tree.leaf_columns
    means = np.where(columns >= 0, mean[columns], 0.0)  # beyond the end of a path the coefficients are zero
    coef = tree.coef * (size / unit)
    constant = tree.constant * size - np.einsum("lh,lhp->lp", means, coef)
    slope = tree.slope
    if slope is not None:
        slope = slope * size / sd
        constant = constant - slope @ mu
    tested = np.zeros(len(tree.column))
    for node, path in tree._nodes():
        if node >= 0 and tree.test[node] >= 0:
            tested[node] = mean[path[tree.test[node]]]
    return replace(tree, threshold=tree.threshold * unit + tested, coef=coef, constant=constant, slope=slope)


def path_tree(
    terms: Any,
    r: Any = None,
    *,
    tree: Literal["refitted", "paper"] = "refitted",
    max_evals: int | None = None,
    min_rows: int | None = None,
    held_out: float = 0.25,
    prior_rows: float = 20.0,
    look_ahead: int = 4,
    prune: bool = True,
    n_starts: int = 3,
    scale: bool = True,
    random_state: Any = None,
    n_jobs: int | None = None,
) -> PathTree:
    """Approximate a sum of many terms by the few on one path of a tree.

    For ensembles, and whatever else adds up many answers that take long: `terms[i, j]` is what member j says about
    row i, its weight included. The tree then asks some ten members about a new row instead of all of them.

    Parameters
    ----------
    terms : array-like of shape (n_rows, n_terms)
        All terms of rows like those to come.
    r : array-like of shape (n_rows,) or (n_rows, n_scores), optional
        What to approximate. Default: the sums of the rows.
    tree : {"refitted", "paper"}, default="refitted"
        "refitted": every leaf has its own coefficients for all terms on its path. "paper": the greedy tree of paper S1.
    max_evals : int, optional
        Largest number of terms on a path. Default: 10; for "paper" no limit.
    min_rows : int, optional
        "refitted": least number of rows on either side of a test, default 10. "paper": nodes with no more rows are
        leaves, default 5.
    held_out : float, default=0.25
        "refitted": share of the rows that prune the tree.
    prior_rows, look_ahead, prune, n_starts, scale
        As for ``method="sv_tree"``.
    random_state : int, RandomState instance or None
        For the rows held out and for random starts.
    n_jobs : int, optional
        Threads.

    Returns
    -------
    PathTree
        ``predict(terms)``, or ``predict(function, n_rows)`` with ``function(rows, column)`` that is asked for the terms
        on the rows' paths only.

    Examples
    --------
    >>> import numpy as np
    >>> import svelto
    >>> rng = np.random.default_rng(0)
    >>> terms = np.sign(rng.normal(size=(2000, 1)) + 0.3 * rng.normal(size=(2000, 100)))
    >>> fast = svelto.path_tree(terms, max_evals=8, random_state=0)
    >>> int(fast.evaluations(terms).max())
    8
    """
    # The growers build on this module.
    from svelto.engines.paper_paths import grow_paper
    from svelto.engines.path_fit import Sample
    from svelto.engines.path_growth import Growth, grow_refitted

    matrix, target = _checked_terms(terms, r)
    for name, value in (("max_evals", max_evals), ("min_rows", min_rows)):
        if value is not None:
            check_whole(name, value, 1, " or None")
    check_choice("tree", tree, ("refitted", "paper"))
    check_whole("look_ahead", look_ahead, 1)
    check_whole("n_starts", n_starts, 1)
    check_positive("prior_rows", prior_rows)
    for name, value in (("prune", prune), ("scale", scale)):
        if not isinstance(value, bool):
            raise ValueError(f"{name} is {value!r}; expected True or False.")
    if isinstance(held_out, bool) or not isinstance(held_out, Real) or not 0.0 < float(held_out) < 1.0:
        raise ValueError(f"held_out is {held_out!r}; expected a share between 0 and 1.")
    check_n_jobs(n_jobs)
    threads, seed = thread_count(n_jobs), int(check_random_state(random_state).randint(2**31))
    n_scores, nothing = target.shape[1], np.empty(0)
    unit, size = unit_of(matrix), unit_of(target)
    target = target / size
    if tree == "paper":
        coef = np.ones((n_scores, matrix.shape[1]))
        rng = np.random.default_rng(seed)
        limits = {"max_evals": max_evals, "min_rows": min_rows or 5, "n_starts": n_starts, "scale": scale}
        values = np.ascontiguousarray(matrix / unit, dtype=np.float32)
        grown = flatten(
            grow_paper(values, coef * (unit / size), target, **limits, rng=rng, n_threads=threads), n_scores
        )
        return as_they_are(grown, np.zeros(matrix.shape[1]), unit, nothing, nothing, size)
    order = np.random.default_rng(seed).permutation(len(matrix))
    n_held = min(max(int(float(held_out) * len(matrix)), 1), len(matrix) - 1)
    mean = matrix.mean(axis=0)

    def sample(rows: IndexArray) -> Sample:
        values = np.ascontiguousarray((matrix[rows] - mean) / unit, dtype=np.float32)
        return Sample(values, np.empty((len(rows), 0)), target[rows], np.ones(len(rows)))

    growth = Growth(max_evals or 10, min_rows or 10, float(prior_rows), look_ahead, prune)
    root = grow_refitted(sample(np.sort(order[n_held:])), sample(np.sort(order[:n_held])), growth, seed, threads)
    return as_they_are(flatten(root, n_scores), mean, unit, nothing, nothing, size)


def unit_of(values: FloatArray) -> float:
    """What values are divided by before they become float32, whose squares must neither overflow nor vanish."""
    size = float(np.abs(values).max(initial=0.0))
    return 1.0 if size == 0.0 or 1e-4 <= size <= 1e4 else size


def _checked_terms(terms: Any, r: Any) -> tuple[FloatArray, FloatArray]:
    matrix = np.asarray(terms, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] < 2 or matrix.shape[1] < 1:
        raise ValueError(
            f"terms has shape {matrix.shape}; expected (n_rows, n_terms), at least 2 rows, and thousands are better."
        )
    target = matrix.sum(axis=1) if r is None else np.asarray(r, dtype=np.float64)
    if target.ndim not in (1, 2) or len(target) != len(matrix):
        raise ValueError(f"r has shape {target.shape}; expected ({len(matrix)},) or ({len(matrix)}, n_scores).")
    for name, array in (("terms", matrix), ("r", target)):
        if not np.isfinite(array).all():
            row = int(np.argwhere(~np.isfinite(array))[0][0])
            raise ValueError(f"Row {row} of {name} is not finite; expected finite numbers.")
    return matrix, target.reshape(len(matrix), -1)
