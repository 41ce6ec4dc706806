"""A chain of hyperplanes for two classes: every node peels off rows of one class (paper S2, sections 3.2 and 4).

At each node both problems (C-SVM, H1-SVM) are solved with either class as the hard one. The plane that removes most
rows stays (4.3.1; of equals the one with the widest margin), or the one with the best product of rows removed and root
of its margin (``prefer="margin"``, ours: a plane that squeezes through the training rows does not hold for new ones).
The rest of the rows make the next node, until one class is left. A direction that removes nothing is turned round
(4.3.3); where that does not help either, or always with ``greedy=1``, directions at right angles are tried (4.3.4).
Where nothing removes a row the chain ends as it is, and says so (`ended`).

Invariant: on the training rows no peeled-off side holds a row of the hard class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from svelto._typing import FloatArray, IndexArray
from svelto.training._svm_tree.directions import c_svm_direction, h1_direction, perpendiculars
from svelto.training._svm_tree.rows import TrainingRows

# A row is peeled off only if it keeps this distance from the hard class, as a share of the rows' radius: prediction
# works in float32, and equal rows may get scores that differ in the last bits.
CLEAR_SHARE: Final = 1e-6


@dataclass(frozen=True, eq=False)
class Node:
    """A hyperplane: ``plane . x < low`` is class -1, ``> high`` is class +1, all else goes on.

    Attributes
    ----------
    plane : ndarray of shape (n_features,)
        Of length one, in scaled features.
    low, high : float
        One of them is infinite in a node that peels off one class.
    spread : float
        Deviation of the scores of the rows that reach the node: the unit of margins.
    solver : {"h", "c", "l"}
        H1-SVM, C-SVM, or a linear SVM that ends the chain.
    hard : {-1, 0, 1}
        The class no row of which is peeled off; 0 where both sides are decided.
    sign : {-1, 1}
        -1 where the solver's direction was turned round.
    perpendicular : bool
        Whether the direction is at right angles to the solver's.
    removed : float
        Weight of the training rows that it peels off.
    """

    plane: FloatArray
    low: float
    high: float
    spread: float
    solver: str
    hard: int
    sign: int
    perpendicular: bool
    removed: float

    def moved_back(self, margin: float) -> Node:
        """The node with its thresholds moved away from the other class, by so many spreads."""
        return replace(self, low=self.low - margin * self.spread, high=self.high + margin * self.spread)


@dataclass(frozen=True, eq=False)
class Chain:
    """Nodes in their order, the class of the rows that pass them all, and why there are no more nodes.

    `ended` is "one class" (left), "stuck" (no hyperplane removes a row), "min_peeled" (none removes enough) or
    "max_nodes".
    """

    nodes: tuple[Node, ...]
    end: int
    ended: str = "one class"

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of every row at every node."""
        if not self.nodes:
            return np.empty((len(X), 0))
        return X @ np.column_stack([node.plane for node in self.nodes])

    def trace(self, X: FloatArray) -> tuple[IndexArray, IndexArray]:
        """Outcome (-1, +1) of every row, and the node that decided it (the number of nodes for the end)."""
        return decide(side_of(self.nodes, self.scores(X)), self.end)


def side_of(nodes: tuple[Node, ...], scores: FloatArray) -> IndexArray:
    """-1 or +1 where a node decides a row by itself, else 0."""
    low, high = np.array([node.low for node in nodes]), np.array([node.high for node in nodes])
    sides: IndexArray = (scores > high).astype(np.int8) - (scores < low).astype(np.int8)
    return sides


def decide(sides: IndexArray, end: int) -> tuple[IndexArray, IndexArray]:
    """Outcomes and deciding nodes: the first node that decides, or the end."""
    n, n_nodes = sides.shape
    decided = sides != 0
    node = np.where(decided.any(axis=1), decided.argmax(axis=1) if n_nodes else 0, n_nodes)
    outcome = np.full(n, end, dtype=np.int8)
    passed = node < n_nodes
    outcome[passed] = sides[passed, node[passed]]
    return outcome, node


class Peeled(NamedTuple):
    """A candidate for a node: what it is, which of the rows it removes, and its margin in units of the spread."""

    node: Node
    rows: IndexArray
    margin: float


def grow_chain(
    rows: TrainingRows,
    greedy: int,
    max_nodes: int,
    min_peeled: float = 0.0,
    prefer: str = "rows",
    progress: Callable[[int, int], None] = lambda done, left: None,
    n_threads: int = 1,
) -> Chain:
    """Build a chain until one class is left.

    Parameters
    ----------
    rows : TrainingRows
        Labels -1 and +1.
    greedy : {0, 1}
        1: directions at right angles are tried at every node.
    max_nodes : int
        The chain ends here at the latest.
    min_peeled : float
        Weight that a node has to remove, as a share of all rows; the chain ends where none does.
    prefer : {"rows", "margin"}
        What the best plane is: see the module's text.
    progress : callable
        Told the number of nodes and of rows left, before each node. May raise to stop.
    n_threads : int
        Threads of the H1 solver.

    Returns
    -------
    Chain
    """
    live = np.arange(len(rows.y))
    nodes: list[Node] = []
    start: dict[int, FloatArray] = {}  # weights of all rows in the last H1 solution, for each hard class
    clear = clear_distance(rows.X, rows.weight)
    least = min_peeled * float(rows.weight.sum()) * (1.0 - 1e-12)  # a share times a sum may end a hair above it
    ended = "one class"
    while len(np.unique(rows.y[live])) == 2:
        if len(nodes) == max_nodes:
            ended = "max_nodes"
            break
        progress(len(nodes), len(live))
        best = _best_node(rows.part(live), live, greedy, prefer, start, len(rows.y), n_threads, clear)
        if best is None or best.node.removed < least:
            ended = "stuck" if best is None else "min_peeled"
            break
        nodes.append(best.node)
        live = np.delete(live, best.rows)
    return Chain(tuple(nodes), _majority(rows.part(live)), ended)


def _majority(rows: TrainingRows) -> int:
    return 1 if rows.weight[rows.y == 1].sum() > rows.weight[rows.y == -1].sum() else -1


def _best_node(
    rows: TrainingRows,
    live: IndexArray,
    greedy: int,
    prefer: str,
    start: dict[int, FloatArray],
    n_all: int,
    n_threads: int,
    clear: float,
) -> Peeled | None:
    best: Peeled | None = None
    solved: list[tuple[FloatArray, str, int]] = []
    for hard in (1, -1):
        for solver in ("h", "c"):
            direction = _solve(solver, rows, live, hard, start, n_all, n_threads)
            if direction is None:
                continue
            solved.append((direction, solver, hard))
            found = peel(rows, direction, hard, solver=solver, clear=clear) or peel(
                rows, -direction, hard, solver=solver, sign=-1, clear=clear
            )
            best = _better(best, found, prefer)
    if best is not None and (greedy == 0 or _cannot_be_beaten(best, rows, prefer)):
        return best
    for direction, solver, hard in solved:
        for across in perpendiculars(rows.X, rows.y, rows.weight, direction):
            for sign in (1, -1):
                found = peel(rows, sign * across, hard, solver=solver, sign=sign, perpendicular=True, clear=clear)
                best = _better(best, found, prefer)
    return best


def _cannot_be_beaten(best: Peeled, rows: TrainingRows, prefer: str) -> bool:
    """Whether a node ends the chain, or removes as many rows as any could."""
    sizes = [float(rows.weight[rows.y == side].sum()) for side in (-1, 1)]
    return best.node.removed >= (max(sizes) if prefer == "rows" else sizes[best.node.hard == -1]) * (1.0 - 1e-12)


def _better(best: Peeled | None, found: Peeled | None, prefer: str) -> Peeled | None:
    if best is None or found is None:
        return found if best is None else best
    if prefer == "rows":  # the paper leaves ties open; where classes are separable nearly every choice is one
        return found if (found.node.removed, found.margin) > (best.node.removed, best.margin) else best
    values = [one.node.removed * np.sqrt(one.margin) for one in (best, found)]
    return found if values[1] > values[0] else best


def _solve(
    solver: str,
    rows: TrainingRows,
    live: IndexArray,
    hard: int,
    start: dict[int, FloatArray],
    n_all: int,
    n_threads: int,
) -> FloatArray | None:
    if solver == "c":
        return c_svm_direction(rows.X, rows.y, rows.weight, hard)
    is_hard = rows.y == hard
    before = start[hard][live[is_hard]] if hard in start else None
    if before is not None:  # the parent's solution, as far as its rows are still here
        before = before / before.sum() if before.sum() > 0 else None
    direction, weights = h1_direction(rows.X, rows.y, rows.weight, hard, before, n_threads)
    start.pop(hard, None)
    if weights is not None:
        start[hard] = np.zeros(n_all)
        start[hard][live[is_hard]] = weights
    return direction


def peel(
    rows: TrainingRows,
    direction: FloatArray,
    hard: int,
    *,
    solver: str,
    sign: int = 1,
    perpendicular: bool = False,
    clear: float | None = None,
) -> Peeled | None:
    """The threshold of section 4.2.2: half-way between the hard class and the soft rows beyond it.

    Soft rows have to keep the distance `clear` from the hard class, which is that of these rows where none is given.
    Returns None where no soft row lies beyond the hard class.
    """
    length = float(np.linalg.norm(direction))
    if not 0.0 < length < np.inf:
        return None
    plane = direction / length
    scores = rows.X @ plane
    is_hard = rows.y == hard
    away = -hard * scores  # grows towards the soft class's side
    edge = away[is_hard].max()
    beyond = ~is_hard & (away > edge + (clear_distance(rows.X, rows.weight) if clear is None else clear))
    if not beyond.any():
        return None
    nearest = away[beyond].min()
    threshold = -hard * 0.5 * (edge + nearest)
    spread = spread_of(scores, rows.weight)
    node = Node(
        plane,
        threshold if hard == 1 else -np.inf,
        np.inf if hard == 1 else threshold,
        spread,
        solver,
        hard,
        sign,
        perpendicular,
        float(rows.weight[beyond].sum()),
    )
    return Peeled(node, np.flatnonzero(beyond), float(nearest - edge) / spread)


def clear_distance(X: FloatArray, weight: FloatArray) -> float:
    """What rows must keep from each other to be told apart when they are predicted, about their mean in float32."""
    centred = X - np.average(X, axis=0, weights=weight)
    return CLEAR_SHARE * float(np.sqrt(np.einsum("ij,ij->i", centred, centred).max()))


def spread_of(scores: FloatArray, weight: FloatArray) -> float:
    """Deviation of scores; 1 where they are all equal."""
    mean = np.average(scores, weights=weight)
    spread = float(np.sqrt(np.average((scores - mean) ** 2, weights=weight)))
    return spread if spread > 0 else 1.0


def prune_chain(chain: Chain, rows: TrainingRows, allowed: float) -> Chain:
    """Leave out nodes that later ones make useless (section 4.3.5), from the last to the first.

    Parameters
    ----------
    chain : Chain
        As grown.
    rows : TrainingRows
        What it was grown on.
    allowed : float
        Weight of training rows that may be answered wrongly beyond those that the whole chain answers wrongly.

    Returns
    -------
    Chain
    """
    sides = side_of(chain.nodes, chain.scores(rows.X))

    def outcome_of(kept: list[int]) -> tuple[float, int]:
        outcome, node = decide(sides[:, kept], 0)
        end = _majority(rows.part(node == len(kept)))
        outcome[node == len(kept)] = end
        return float(rows.weight[outcome != rows.y].sum()), end

    kept = list(range(len(chain.nodes)))
    errors, end = outcome_of(kept)
    limit = errors + allowed
    for position in reversed(range(len(chain.nodes))):
        if len(kept) == 1:
            break
        without = [node for node in kept if node != position]
        errors, end_without = outcome_of(without)
        if errors <= limit:
            kept, end = without, end_without
    removed = _removed_by(sides[:, kept], rows)
    nodes = tuple(replace(chain.nodes[node], removed=float(removed[k])) for k, node in enumerate(kept))
    return Chain(nodes, end, chain.ended)


def _removed_by(sides: IndexArray, rows: TrainingRows) -> FloatArray:
    _, node = decide(sides, 0)
    return np.bincount(node, weights=rows.weight, minlength=sides.shape[1] + 1).astype(np.float64)
