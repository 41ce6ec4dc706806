"""Several chains together: which classes each one tells apart, how all are grown, and who wins.

Two classes make one chain, one-vs-one a chain for each pair of classes, one-vs-rest a chain for each class. A chain
speaks of two sides, -1 and +1; `Duel` says which classes they are.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from svelto._typing import FloatArray, IndexArray
from svelto.training._svm_tree.directions import linear_svm
from svelto.training._svm_tree.growth import Chain, Node, grow_chain, prune_chain
from svelto.training._svm_tree.rows import TrainingRows
from svelto.voting import pairs

# Costs of the linear SVMs that may end a chain, for rows of mean squared length 1.
PLANE_COSTS: Final = (0.5, 2.0, 8.0, 32.0, 128.0)
# LIBSVM trains them in duels of up to this many rows: its slacks are not squared, and its planes are a little better.
HINGE_ROWS: Final = 5000
REST: Final = -1


class Duel(NamedTuple):
    """Numbers of the classes on the two sides; `REST` stands for all other classes."""

    negative: int
    positive: int

    def rows_of(self, y: IndexArray) -> IndexArray:
        """Numbers of the rows that a chain of this duel learns from."""
        if self.negative == REST:
            return np.arange(len(y))
        return np.flatnonzero((y == self.negative) | (y == self.positive))

    def sides(self, y: IndexArray) -> IndexArray:
        """-1 or +1 for each row; rows of other classes are on no side and get -1."""
        return np.where(y == self.positive, 1, -1)


class GrowthOptions(NamedTuple):
    """How chains are grown."""

    greedy: int
    max_nodes: int
    min_peeled: float
    prefer: str
    allowed_error: float
    planes: bool  # whether linear SVMs that may end a chain are trained
    hinge: bool  # by LIBSVM; scores of the two solvers have different units, so all folds use the same one


@dataclass(frozen=True, eq=False)
class GrownDuel:
    """A duel's pruned chain, and linear SVMs of all its rows: weights (n_costs, n_features) and constants."""

    chain: Chain
    n_grown: int
    planes: FloatArray
    constants: FloatArray

    def plane_scores(self, X: FloatArray) -> FloatArray:
        """Scores of rows, one column for each cost."""
        return X @ self.planes.T + self.constants

    def plane_node(self, number: int, band: float) -> Node:
        """A linear SVM as the last node, which decides nothing within `band` margins of its plane."""
        plane, constant = self.planes[number], float(self.constants[number])
        length = float(np.linalg.norm(plane))
        if length > 0.0:
            low, high = (-band - constant) / length, (band - constant) / length
            return Node(plane / length, low, high, 1.0 / length, "l", 0, 1, False, 0.0)
        # The zero solution: its score is its constant, everywhere.
        low, high = -np.inf, np.inf
        if constant < -band:
            low = high = 1.0
        elif constant > band:
            low = high = -1.0
        return Node(np.zeros_like(plane), low, high, 1.0, "l", 0, 1, False, 0.0)


def list_duels(n_classes: int, multi_class: str) -> tuple[Duel, ...]:
    """The duels of a problem, in the order of scikit-learn's columns."""
    if n_classes == 2:
        return (Duel(0, 1),)
    if multi_class == "ovr":
        return tuple(Duel(REST, k) for k in range(n_classes))
    return tuple(Duel(i, j) for i, j in pairs(n_classes))


def grow_duels(
    rows: TrainingRows,
    duels: Sequence[Duel],
    options: GrowthOptions,
    n_threads: int,
    progress: Callable[[int, int, int], None],
) -> list[GrownDuel]:
    """Grow the chain of every duel; the same for any number of threads.

    Parameters
    ----------
    rows : TrainingRows
        Labels are class numbers; every class of a duel has a row.
    duels : sequence of Duel
        What to tell apart.
    options : GrowthOptions
        How.
    n_threads : int
        Duels grown at once.
    progress : callable
        Told the number of duels done, of nodes of a present one, and of its rows left. May raise to stop.

    Returns
    -------
    list of GrownDuel
    """
    done = 0
    solver_threads = n_threads if len(duels) == 1 else 1
    stopping = threading.Event()

    def say(nodes: int, left: int) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        progress(done, nodes, left)

    def grow(duel: Duel) -> GrownDuel:
        nonlocal done
        numbers = duel.rows_of(rows.y)
        part = rows.part(numbers)
        part = TrainingRows(part.X, duel.sides(part.y), part.weight)
        grown = grow_chain(
            part, options.greedy, options.max_nodes, options.min_peeled, options.prefer, say, solver_threads
        )
        pruned = prune_chain(grown, part, options.allowed_error * float(part.weight.sum()))
        planes = _planes(part, options.hinge) if options.planes else (np.empty((0, rows.X.shape[1])), np.empty(0))
        done += 1
        return GrownDuel(pruned, len(grown.nodes), *planes)

    with warnings.catch_warnings():  # here, because filters are the process's, not the thread's
        # Any plane is a candidate; what it is worth is counted afterwards.
        warnings.simplefilter("ignore", ConvergenceWarning)
        # Threads of the BLAS inside these threads would fight over the same cores, and sums of many threads run in
        # another order than those of one.
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(min(n_threads, len(duels))) as pool:
            if n_threads == 1 or len(duels) == 1:
                return [grow(duel) for duel in duels]
            pending = [pool.submit(grow, duel) for duel in duels]
            try:
                return [one.result() for one in pending]
            except BaseException:
                stopping.set()  # chains that are being grown end before their next node
                pool.shutdown(cancel_futures=True)
                raise


def _planes(rows: TrainingRows, hinge: bool) -> tuple[FloatArray, FloatArray]:
    centred = rows.X - np.average(rows.X, axis=0, weights=rows.weight)
    size = float(np.average(np.einsum("ij,ij->i", centred, centred), weights=rows.weight))
    found = [linear_svm(rows.X, rows.y, rows.weight, cost / size if size > 0 else cost, hinge) for cost in PLANE_COSTS]
    return np.array([plane for plane, _ in found]), np.array([constant for _, constant in found])


def winners(outcomes: IndexArray, duels: Sequence[Duel], n_classes: int) -> IndexArray:
    """The class that wins every duel it has a part in, by settled outcomes; -1 where there is none.

    One-vs-rest: the class whose chain says +1 where every other chain says -1.
    """
    n = len(outcomes)
    if duels[0].negative == REST:
        alone = ((outcomes == 1).sum(axis=1) == 1) & (outcomes != 0).all(axis=1)
        return np.where(alone, (outcomes == 1).argmax(axis=1), -1)
    won = np.zeros((n, n_classes), dtype=np.int32)
    for column, duel in enumerate(duels):
        won[:, duel.negative] += outcomes[:, column] == -1
        won[:, duel.positive] += outcomes[:, column] == 1
    best: IndexArray = won.argmax(axis=1)
    return np.where(won[np.arange(n), best] == n_classes - 1, best, -1)
