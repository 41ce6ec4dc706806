"""What the nodes of a tree are, in a table like Table 4.1 of paper S2, and why chains ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from svelto.training._svm_tree.duels import Duel
from svelto.training._svm_tree.growth import Chain, Node
from svelto.training._svm_tree.placement import NO_PLANE, End

REASONS: Final = {
    "stuck": "no hyperplane removed a row",
    "min_peeled": "no hyperplane removed as many rows as min_peeled asks for",
    "max_nodes": "max_nodes was reached",
}


class TreeNode(NamedTuple):
    """A line of the tree's table, as in Table 4.1 of paper S2.

    Attributes
    ----------
    chain : int
        Number of the chain.
    position : int
        Place in the chain, from 0.
    solver : {"h", "c", "l"}
        H1-SVM, C-SVM, or the linear SVM of all rows that may end a chain.
    hard_class : object
        The label no training row of which is peeled off (one-vs-rest: None stands for all other classes together);
        None for a linear SVM, which decides both sides.
    sign : {-1, 1}
        -1 where the solver's direction was turned round.
    perpendicular : bool
        Whether the plane is at right angles to the solver's.
    settled : float
        Weight of the training rows that end here.
    """

    chain: int
    position: int
    solver: str
    hard_class: Any
    sign: int
    perpendicular: bool
    settled: float


def node_table(
    classes: np.ndarray[Any, Any], duels: Sequence[Duel], chains: Sequence[Sequence[Node]]
) -> list[TreeNode]:
    """One line for each node, chain after chain."""
    return [
        TreeNode(
            number,
            position,
            node.solver,
            _hard_class(classes, duels[number], node.hard),
            node.sign,
            node.perpendicular,
            node.removed,
        )
        for number, chain in enumerate(chains)
        for position, node in enumerate(chain)
    ]


def _hard_class(classes: np.ndarray[Any, Any], duel: Duel, hard: int) -> Any:
    number = -1 if hard == 0 else duel.positive if hard == 1 else duel.negative
    return classes[number] if number >= 0 else None


def as_text(nodes: Sequence[TreeNode]) -> str:
    """The table in columns."""
    lines = ["chain  node  solver  hard class  sign  perpendicular  settled"]
    for node in nodes:
        hard = "-" if node.solver == "l" else "rest" if node.hard_class is None else str(node.hard_class)
        across = "yes" if node.perpendicular else "no"
        lines.append(
            f"{node.chain:5d}  {node.position:4d}  {node.solver:>6}  {hard:>10}  {node.sign:4d}  {across:>13}  "
            f"{node.settled:7g}"
        )
    return "\n".join(lines)


def mixed_ends(chains: Sequence[Chain], ends: Sequence[End]) -> str | None:
    """Say how many chains end with rows of both classes that get one label, and why; None if there are none."""
    reasons = Counter(
        chain.ended
        for chain, end in zip(chains, ends, strict=True)
        if not end.open and end.plane == NO_PLANE and chain.ended != "one class"
    )
    if not reasons:
        return None
    why = ", ".join(f"{count}: {REASONS[reason]}" for reason, count in sorted(reasons.items()))
    return (
        f"{reasons.total()} of {len(chains)} chains ended with rows of both classes left ({why}); these rows get the "
        "more frequent label. A tail would answer them."
    )
