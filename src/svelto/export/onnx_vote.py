"""From scores to an answer as operators: the machine's vote, the test that settles a row, and the decision values.

Classes are numbered as the machine votes, until `answer_table` gives their labels. Of a pair (i, j) a positive score
votes for i. Two 0/1 matrices say which pairs a class is the first and the second of: votes are products with these.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from svelto._typing import FloatArray
from svelto.export.c_vote import Voting
from svelto.export.onnx_graph import Graph
from svelto.machine import KernelMachine
from svelto.voting import pairs

# Labels beyond it are no int64.
LARGEST: Final = 2**63
# Below every score, in single precision too.
LEAST: Final = -1e38


class Pairs(NamedTuple):
    """(n_pairs, n_classes): whether a class is the first, the second of a pair."""

    first: FloatArray
    second: FloatArray

    @classmethod
    def of(cls, n_classes: int) -> Pairs:
        """Those of so many classes."""
        numbers = np.array(list(pairs(n_classes)))
        return cls(np.eye(n_classes)[numbers[:, 0]], np.eye(n_classes)[numbers[:, 1]])


def decides_by_sign(voting: Voting) -> bool:
    """Whether the sign of one score is the answer."""
    return voting.task == "outlier" or (voting.rule == "pairs" and voting.n_classes == 2)


def answer_table(machine: KernelMachine) -> np.ndarray[Any, Any]:
    """Answers by the number of the label: whole numbers as int64, other numbers as float64, the rest as text."""
    if machine.classes is None:
        return np.array([-1, 1], dtype=np.int64)
    classes = machine.classes[machine.vote_order]
    if classes.dtype.kind in "iub":
        if classes.dtype.kind == "u" and int(classes.max()) > np.iinfo(np.int64).max:
            raise ValueError(
                f"The class label {classes.max()} is larger than an int64, which labels of an ONNX graph are. Train "
                "with smaller labels."
            )
        return np.asarray(classes.astype(np.int64))
    if classes.dtype.kind == "f":
        whole = bool((classes == np.rint(classes)).all()) and float(np.abs(classes).max()) < LARGEST
        return np.asarray(classes.astype(np.int64 if whole else np.float64))
    return np.array([str(label) for label in classes.tolist()], dtype=object)


# -- votes -------------------------------------------------------------------------------------------------------------


def vote(graph: Graph, voting: Voting, scores: str) -> str:
    """The winner of each row."""
    if decides_by_sign(voting):
        return _sign_label(graph, voting, scores)
    if voting.rule == "argmax":
        return _largest(graph, scores)
    if voting.ties:
        return _largest(graph, ovr_values(graph, scores, voting.n_classes))
    first, second = Pairs.of(voting.n_classes)
    wins = graph.cast_floats(_positive(graph, scores))
    votes = graph.node("Gemm", wins, graph.floats(first - second), graph.floats(second.sum(axis=0)))
    return _largest(graph, votes)


def ovr_values(graph: Graph, scores: str, n_classes: int) -> str:
    """Votes, and a squashed sum of scores that decides between equal votes: scikit-learn's "ovr"."""
    first, second = Pairs.of(n_classes)
    lost = graph.cast_floats(graph.node("Less", scores, graph.floats(0.0)))
    votes = graph.node("Gemm", lost, graph.floats(second - first), graph.floats(first.sum(axis=0)))
    sums = graph.node("MatMul", scores, graph.floats(first - second))
    size = graph.node("Add", graph.node("Abs", sums), graph.floats(1.0))
    return graph.node("Add", votes, graph.node("Div", sums, graph.node("Mul", size, graph.floats(3.0))))


def _positive(graph: Graph, scores: str) -> str:
    return graph.node("Greater", scores, graph.floats(0.0))


def _sign_label(graph: Graph, voting: Voting, scores: str) -> str:
    inside = voting.task == "outlier"
    positive = graph.flat(_positive(graph, scores))
    return graph.node("Where", positive, graph.whole(int(inside)), graph.whole(int(not inside)))


def _largest(graph: Graph, values: str) -> str:
    """The first of the largest."""
    return graph.node("ArgMax", values, axis=1, keepdims=0)


# -- tests that settle a row -------------------------------------------------------------------------------------------


def settle(graph: Graph, voting: Voting, scores: str, bounds: str) -> tuple[str, str]:
    """Winners, and whether no error within the bounds can change them.

    Where scores break ties, a row with equal votes is not settled: the next stage answers it.
    """
    if decides_by_sign(voting):
        beyond = graph.node("Greater", graph.node("Abs", scores), bounds)
        return _sign_label(graph, voting, scores), graph.flat(beyond)
    if voting.rule == "argmax":
        best = _largest(graph, scores)
        lower, upper = graph.node("Sub", scores, bounds), graph.node("Add", scores, bounds)
        return best, _ahead(graph, voting, best, lower, upper)
    first, second = Pairs.of(voting.n_classes)
    wins = graph.cast_floats(graph.node("Greater", scores, bounds))
    loses = graph.cast_floats(graph.node("Greater", graph.node("Neg", scores), bounds))
    both = graph.node("Concat", wins, loses, axis=1)
    # Of equal votes the first wins: each later class has a hair less. Where scores break ties, equal is not enough.
    hair = (0.0 if voting.ties else 0.5 / voting.n_classes) * np.arange(voting.n_classes)
    sure = graph.node("Gemm", both, graph.floats(np.vstack([first, second])), graph.floats(-hair))
    possible = graph.node(
        "Gemm", both, graph.floats(-np.vstack([second, first])), graph.floats(voting.n_classes - 1.0 - hair)
    )
    best = _largest(graph, sure)
    return best, _ahead(graph, voting, best, sure, possible)


def _ahead(graph: Graph, voting: Voting, best: str, sure: str, possible: str) -> str:
    """Whether what is sure of the best is more than what is possible for every other."""
    own = _own(graph, best, voting.n_classes)
    others = graph.node("Where", own, graph.floats(LEAST), possible)
    best_value = graph.node("Where", own, sure, graph.floats(LEAST))
    largest, second = (graph.node("ReduceMax", values, axes=[1], keepdims=0) for values in (best_value, others))
    return graph.node("Greater", largest, second)


def _own(graph: Graph, best: str, n_classes: int) -> str:
    """Which column is that of the best."""
    return graph.node("Equal", graph.column(best), graph.whole(np.arange(n_classes)))


def settle_class(graph: Graph, scores: str, n_classes: int, margin: str) -> tuple[str, str]:
    """The class of the largest score, and whether the next is farther below it than a margin (one, or one a row)."""
    best = _largest(graph, scores)
    own = _own(graph, best, n_classes)
    others = graph.node("Where", own, graph.floats(LEAST), scores)
    largest, second = (graph.node("ReduceMax", values, axes=[1], keepdims=0) for values in (scores, others))
    return best, graph.node("Greater", graph.node("Sub", largest, second), margin)


def settle_value(graph: Graph, scores: str, bounds: str, tolerance: float | None) -> str:
    """Whether no value's bound exceeds the tolerance; every value of a row is a number."""
    limit = graph.floats(np.finfo(np.float32).max if tolerance is None else tolerance)
    fits = graph.node("And", graph.node("LessOrEqual", bounds, limit), graph.node("Equal", scores, scores))
    counts = graph.node("ReduceMin", graph.cast(fits, np.int32), axes=[1], keepdims=0)
    return graph.cast(counts, np.bool_)


# -- decision values ---------------------------------------------------------------------------------------------------


def decision_values(graph: Graph, voting: Voting, scores: str) -> str:
    """Scores in the form of `decision_function`."""
    if voting.task == "outlier":
        return graph.flat(scores)
    order = voting.vote_order
    assert order is not None
    if voting.rule == "argmax":
        if voting.is_sorted:
            return scores
        return graph.node("Gather", scores, graph.whole(np.argsort(order)), axis=1)
    if voting.n_classes == 2:
        return graph.flat(scores if order[0] == 1 else graph.node("Neg", scores))
    if not voting.is_sorted:
        scores = _sorted_pairs(graph, scores, order)
    return ovr_values(graph, scores, voting.n_classes) if voting.shape == "ovr" else scores


def _sorted_pairs(graph: Graph, scores: str, order: Any) -> str:
    """Pair scores with columns and signs of the sorted classes."""
    n_classes = len(order)
    column_of = {pair: column for column, pair in enumerate(pairs(n_classes))}
    source, sign = np.empty(len(column_of), dtype=np.int64), np.ones(len(column_of))
    for (i, j), column in column_of.items():
        a, b = int(order[i]), int(order[j])
        target = column_of[min(a, b), max(a, b)]
        source[target], sign[target] = column, 1.0 if a < b else -1.0
    return graph.node("Mul", graph.node("Gather", scores, graph.whole(source), axis=1), graph.floats(sign))
