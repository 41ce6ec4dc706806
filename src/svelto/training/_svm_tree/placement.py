"""Where chains end and what takes over: the trade-off of paper S2, section 3.3, on held-out rows.

A chain may be cut after any number of its nodes. What takes over is

- without a tail: the class that is left (only at the chain's own end, as in the paper), or a linear SVM of all rows;
- with a tail: a linear SVM for rows outside a band around its plane, then the tail for what is still open.

What is chosen for all chains together is few numbers: the cost of the linear SVMs, and with a tail the depth, the width
of the band and how far rows must lie beyond a node's threshold. Chosen for every chain by itself they fit the held-out
rows and fail on others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from svelto._typing import FloatArray, IndexArray
from svelto.training._svm_tree.duels import Duel, winners
from svelto.training._svm_tree.held_out import NODE_MARGINS, DuelRecord, HeldOut

NO_PLANE: Final = -1
ALL_NODES: Final = 1 << 30
# Half widths of the band around a linear SVM's plane, in units of its margin.
BANDS: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0)
# Depths at which a tail may take over, and those in front of a linear SVM.
DEPTHS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
DEPTHS_BEFORE_PLANE: Final = (0, 1, 2, 4)


class End(NamedTuple):
    """Nodes that are kept, then a linear SVM, then the class that is left or the tail.

    Attributes
    ----------
    depth : int
        Nodes that are kept.
    plane : int
        Which linear SVM follows, or `NO_PLANE`.
    band : float
        Half width of the band in which it decides nothing, in units of its margin.
    node_margin : int
        How far beyond a node's threshold a row must lie: which of the `NODE_MARGINS`.
    open : bool
        Whether rows that pass everything are left to the tail; else they get the class that is left.
    """

    depth: int
    plane: int = NO_PLANE
    band: float = 0.0
    node_margin: int = 0
    open: bool = False


class Placement(NamedTuple):
    """The end of all chains, and what held-out rows say about it."""

    end: End
    accuracy: float
    tail_accuracy: float
    open_share: float


def outcomes_of(record: DuelRecord, end: End) -> IndexArray:
    """Outcome of each row: -1, +1, or 0 for the tail."""
    chain = record.chains[end.node_margin]
    settled = (chain.node < end.depth) & ~chain.at_end
    if end.plane != NO_PLANE:
        score = record.planes[:, end.plane]
        return np.where(settled, chain.outcome, (score > end.band).astype(np.int8) - (score < -end.band))
    return np.where(settled, chain.outcome, 0 if end.open else chain.outcome)


# -- without a tail --------------------------------------------------------------------------------------------------


def ends_without_tail(held: HeldOut, duels: Sequence[Duel]) -> list[End]:
    """The end of each chain: a linear SVM, unless the nodes are better by more than a standard error."""
    n_planes = held.records[0].planes.shape[1]
    errors = [
        sum(_errors(held, record, duel, End(0, plane)) for record, duel in zip(held.records, duels, strict=True))
        for plane in range(n_planes)
    ]
    plane = int(np.argmin(errors))  # among equals the smoothest
    return [_chain_end(held, record, duel, plane) for record, duel in zip(held.records, duels, strict=True)]


def _errors(held: HeldOut, record: DuelRecord, duel: Duel, end: End) -> float:
    rows = duel.rows_of(held.y)
    wrong = outcomes_of(record, end)[rows] != duel.sides(held.y[rows])
    return float(held.weight[rows][wrong].sum())


def _chain_end(held: HeldOut, record: DuelRecord, duel: Duel, plane: int) -> End:
    alone = _errors(held, record, duel, End(0, plane))
    deepest = int(record.chains[0].node.max(initial=0))
    choices = [End(ALL_NODES), *(End(depth, plane) for depth in _depths(DEPTHS, deepest))]
    errors = [_errors(held, record, duel, end) for end in choices]
    best = int(np.argmin(errors))
    mean_weight = held.weight.mean()
    return choices[best] if alone - errors[best] > np.sqrt(alone * mean_weight) else End(0, plane)


# -- with a tail -----------------------------------------------------------------------------------------------------


def place_tail(held: HeldOut, duels: Sequence[Duel], n_classes: int, loss: float) -> Placement:
    """Choose an end for all chains that leaves the fewest rows to the tail.

    What the tree loses against the tail alone, plus one standard error of that, must stay within `loss`. The error is
    that of one row more than were seen to differ: where none differs, rows that do may still come.

    Parameters
    ----------
    held : HeldOut
        With the tail's labels.
    duels : sequence of Duel
        In the order of the records.
    n_classes : int
        Number of classes.
    loss : float
        Accuracy that may be lost against the tail alone.

    Returns
    -------
    Placement
        Every row goes to the tail where no end is good enough.
    """
    assert held.tail_labels is not None
    weight = held.weight / held.weight.sum()
    tail_right = held.tail_labels == held.y
    tail_accuracy = float(weight[tail_right].sum())
    best = Placement(End(0, open=True), tail_accuracy, tail_accuracy, 1.0)

    def judged(end: End) -> Placement | None:
        assert held.tail_labels is not None
        labels = winners(np.column_stack([outcomes_of(record, end) for record in held.records]), duels, n_classes)
        is_open = labels < 0
        labels[is_open] = held.tail_labels[is_open]
        lost: FloatArray = tail_right.astype(np.float64) - (labels == held.y)
        mean = float(weight @ lost)
        error = float(np.sqrt(weight**2 @ (lost - mean) ** 2 + 1.0 / len(weight) ** 2))
        if max(mean, 0.0) + error > loss:  # rows won by luck pay for nothing
            return None
        return Placement(end, tail_accuracy - mean, tail_accuracy, float(weight[is_open].sum()))

    for family in _families(held):
        # A wider band or margin leaves more rows to the tail and loses less: the first that is good enough is the best.
        for end in family:
            found = judged(end)
            if found is not None:
                best = found if found.open_share < best.open_share else best
                break
    return best


def _depths(listed: Sequence[int], deepest: int) -> list[int]:
    """Those that a chain has, and the whole chain."""
    return [*(depth for depth in listed if depth < deepest), ALL_NODES] if deepest else []


def _families(held: HeldOut) -> Iterator[list[End]]:
    """Ends in rows that begin with the boldest."""
    deepest = max(int(record.chains[0].node.max(initial=0)) for record in held.records)
    for plane in range(held.records[0].planes.shape[1]):
        for depth in DEPTHS_BEFORE_PLANE:
            if depth <= deepest:
                yield [End(depth, plane, band, open=True) for band in BANDS]
    for depth in _depths(DEPTHS, deepest):
        yield [End(depth, node_margin=number, open=True) for number in range(len(NODE_MARGINS))]
