"""Cross-validation of a tree: what chains, linear SVMs and the tail say about rows that they did not learn from.

Everything that is chosen (where a chain ends, where the tail begins, how probable a decision is) is chosen on these
records. Trees of different folds have different nodes; what they have in common is the position of a node in its chain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from svelto._progress import Tell
from svelto._typing import FloatArray, IndexArray
from svelto.training._svm_tree.duels import Duel, GrowthOptions, grow_duels
from svelto.training._svm_tree.growth import Chain, decide, side_of
from svelto.training._svm_tree.rows import TrainingRows
from svelto.training._svm_tree.tail import Tail

# Trees are grown for cross-validation on at most this many rows.
HELD_OUT_ROWS: Final = 20_000
# How far beyond a node's threshold a row may have to lie, in deviations of the node's scores.
NODE_MARGINS: Final = (0.0, 0.1, 0.3)


@dataclass(frozen=True, eq=False)
class ChainRecord:
    """A chain on every held-out row (of any class), with one of the `NODE_MARGINS`.

    Attributes
    ----------
    node : ndarray of shape (n_rows,)
        Position of the node that decides; the length of the fold's chain for rows that pass it.
    at_end : ndarray of shape (n_rows,)
        Whether the row passes the whole chain.
    outcome : ndarray of shape (n_rows,)
        -1 or +1, also at the end of the chain.
    margin : ndarray of shape (n_rows,)
        Distance from the deciding threshold in units of the node's spread.
    settled : ndarray of shape (n_rows,)
        Weight of the training rows that the deciding node (or the end) answers.
    """

    node: np.ndarray[Any, np.dtype[np.int16]]
    at_end: np.ndarray[Any, np.dtype[np.bool_]]
    outcome: np.ndarray[Any, np.dtype[np.int8]]
    margin: np.ndarray[Any, np.dtype[np.float32]]
    settled: np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True, eq=False)
class DuelRecord:
    """A duel on every held-out row: its chain with each of the `NODE_MARGINS`, and its linear SVMs.

    `planes` (n_rows, n_costs) holds the scores of the linear SVMs that may end the chain.
    """

    chains: tuple[ChainRecord, ...]
    planes: np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out rows, and what was said about them."""

    y: IndexArray
    weight: FloatArray
    records: list[DuelRecord]
    tail_labels: IndexArray | None
    tail_decision: FloatArray | None


def cross_validate(
    rows: TrainingRows,
    folds: IndexArray,
    duels: Sequence[Duel],
    options: GrowthOptions,
    make_tail: Callable[[TrainingRows], Tail] | None,
    n_threads: int,
    progress: Tell,
) -> HeldOut | None:
    """Grow everything on all folds but one, ask it about that one; None where no row can be held out.

    Parameters
    ----------
    rows : TrainingRows
        Scaled rows; labels are class numbers.
    folds : ndarray of shape (n_rows,)
        The fold that holds each row out; -1 for none.
    duels, options, n_threads
        As in `grow_duels`.
    make_tail : callable, optional
        Trains a tail.
    progress : callable
        Told what is being done. May raise to stop.

    Returns
    -------
    HeldOut or None
    """
    n_folds = int(folds.max(initial=-1)) + 1
    work = len(duels) + (make_tail is not None)  # of a fold
    parts: list[tuple[IndexArray, list[DuelRecord], IndexArray | None, FloatArray | None]] = []
    for fold in range(n_folds):
        held = np.flatnonzero(folds == fold)
        if len(held) == 0:
            continue
        known = rows.part(folds != fold)

        def say(done: int, nodes: int, left: int, fold: int = fold) -> None:
            step = f"fold {fold + 1} of {n_folds}, chain {done + 1} of {len(duels)}, node {nodes + 1}, {left:,} rows"
            progress(step, (fold + done / work) / n_folds)

        grown = grow_duels(known, duels, options, n_threads, say)
        X = rows.X[held]
        records = [
            _record(one.chain, known, duel, X, one.plane_scores(X)) for one, duel in zip(grown, duels, strict=True)
        ]
        labels = decision = None
        if make_tail is not None:
            progress(f"fold {fold + 1} of {n_folds}, tail", (fold + len(duels) / work) / n_folds)
            tail = make_tail(known)
            labels, decision = tail.labels(X, tail.n_jobs), tail.decision(X, tail.n_jobs)
        parts.append((held, records, labels, decision))
    if not parts:
        return None
    held = np.concatenate([part[0] for part in parts])
    return HeldOut(
        rows.y[held],
        rows.weight[held],
        [_joined([part[1][k] for part in parts]) for k in range(len(duels))],
        _together([part[2] for part in parts]),
        _together([part[3] for part in parts]),
    )


def _together(parts: list[Any]) -> Any:
    return None if any(part is None for part in parts) else np.concatenate(parts)


def _joined(parts: list[DuelRecord]) -> DuelRecord:
    names = ChainRecord.__dataclass_fields__
    chains = tuple(
        ChainRecord(**{name: np.concatenate([getattr(part.chains[k], name) for part in parts]) for name in names})
        for k in range(len(NODE_MARGINS))
    )
    return DuelRecord(chains, np.concatenate([part.planes for part in parts]))


def _record(chain: Chain, known: TrainingRows, duel: Duel, X: FloatArray, planes: FloatArray) -> DuelRecord:
    own = known.part(duel.rows_of(known.y))
    scores, own_scores = chain.scores(X), chain.scores(own.X)
    chains = []
    for node_margin in NODE_MARGINS:
        nodes = tuple(node.moved_back(node_margin) for node in chain.nodes)
        outcome, node = decide(side_of(nodes, scores), chain.end)
        _, own_node = decide(side_of(nodes, own_scores), chain.end)
        settled = np.bincount(own_node, weights=own.weight, minlength=len(nodes) + 1)
        margin = np.zeros(len(X))
        if nodes:
            deciding = np.minimum(node, len(nodes) - 1)
            low, high, spread = (np.array([getattr(n, name) for n in nodes]) for name in ("low", "high", "spread"))
            margin = margins(scores[np.arange(len(X)), deciding], low[deciding], high[deciding], spread[deciding])
        chains.append(
            ChainRecord(
                node.astype(np.int16),
                node == len(nodes),
                outcome.astype(np.int8),
                margin.astype(np.float32),
                settled[node].astype(np.float32),
            )
        )
    return DuelRecord(tuple(chains), planes.astype(np.float32))


def margins(score: FloatArray, low: FloatArray, high: FloatArray, spread: FloatArray) -> FloatArray:
    """Distance from the nearer finite threshold, in units of the spread; 0 where a node has none."""
    distance: FloatArray = np.minimum(np.abs(score - low), np.abs(score - high)) / spread
    return np.where(np.isfinite(distance), distance, 0.0)
