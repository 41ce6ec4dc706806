"""A trained tree as it answers: chains in arrays, the tail behind them, and what is known about every node.

Rows are the user's; the scale of the features is folded into the planes. A row is settled where one class wins all its
duels; all others go to the tail, or, without a tail, to the vote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from svelto._typing import FloatArray, IndexArray, IntArray, Rows
from svelto.engines.chains import Chains, ChainTrace
from svelto.training._svm_tree.duels import Duel
from svelto.training._svm_tree.growth import Node
from svelto.training._svm_tree.held_out import margins
from svelto.training._svm_tree.probability import (
    LEFT,
    PEELED,
    PLANE,
    DecisionOdds,
    TailOdds,
    class_probabilities,
    with_label_first,
)
from svelto.training._svm_tree.tail import Tail

# Rows whose chains are all traced at once: bounds the memory of (rows, chains) arrays.
TRACED_ENTRIES = 1 << 23


class NodeFacts(NamedTuple):
    """What is known of each node, all chains in one row; `left` has one entry for each chain's end."""

    settled: FloatArray
    kind: IndexArray
    left: FloatArray


class Probability(NamedTuple):
    """What was learned about decisions and about the tail's scores; `right` is the tail's held-out accuracy."""

    odds: DecisionOdds
    tail: TailOdds | None
    right: float


@dataclass(frozen=True, eq=False)
class TreeAnswers:
    """A trained tree; class numbers stand for classes."""

    chains: Chains
    duels: tuple[Duel, ...]
    facts: NodeFacts
    tail: Tail | None
    probability: Probability | None
    n_classes: int

    # -- labels ----------------------------------------------------------------------------------------------

    def labels(self, X: Rows, n_jobs: int | None) -> IntArray:
        """Class number of each row."""
        if self.tail is None:
            return self.chains.labels(X, n_jobs, vote=True)
        return self.with_tail(X, self.chains.labels(X, n_jobs), n_jobs)

    def block_labels(self, X: np.ndarray[Any, Any], n_jobs: int | None) -> IntArray | None:
        """`labels` of a few rows that are checked already; None where a row cannot be read."""
        labels, n_open = self.chains.block_labels(X, vote=self.tail is None)
        if n_open > 0:
            return self.with_tail(X, labels, n_jobs)
        return labels if n_open == 0 else None

    def with_tail(self, X: Rows, labels: IntArray, n_jobs: int | None) -> IntArray:
        """Let the tail fill in the rows that no class has won."""
        assert self.tail is not None
        is_open = np.flatnonzero(labels < 0)
        if len(is_open):
            rows = X if len(is_open) == X.shape[0] else X[is_open]
            labels[is_open] = self.tail.labels(rows, n_jobs)
        return labels

    # -- scores ----------------------------------------------------------------------------------------------

    def decision(self, X: Rows, n_jobs: int | None) -> FloatArray:
        """A score for each class, for two classes one score; the label's is the largest (or has its sign)."""
        columns = self.chains.scores(X, n_jobs)
        is_open = np.flatnonzero(self.chains.labels(X, n_jobs) < 0) if self.tail is not None else ()
        if self.tail is None or len(is_open) == 0:
            return columns[:, 0] if self.n_classes == 2 else columns
        rows = X[is_open]
        answers, scores = self.tail.labels(rows, n_jobs), self.tail.decision(rows, n_jobs)
        if self.n_classes == 2:
            side = np.where(answers == 1, 1.0, -1.0)
            size = np.ones(len(is_open)) if scores is None else np.abs(scores[:, 0])
            columns[is_open, 0] = side * np.maximum(size, np.finfo(np.float64).tiny)
            return columns[:, 0]
        at = np.arange(len(is_open))
        if scores is None:
            scores = np.zeros((len(is_open), self.n_classes))
            scores[at, answers] = 1.0
        # A vote may be tied, and then the label is not the class of the largest score.
        others = scores.copy()
        others[at, answers] = -np.inf
        scores[at, answers] = np.maximum(scores[at, answers], np.nextafter(others.max(axis=1), np.inf))
        columns[is_open] = scores
        return columns

    def _by_pieces(self, X: Rows, n_jobs: int | None, what: object) -> FloatArray:
        step = max(1, TRACED_ENTRIES // self.chains.n_chains)
        parts = [
            what(self.chains.trace(X[first : first + step], n_jobs))  # type: ignore[operator]
            for first in range(0, X.shape[0], step)
        ]
        return np.concatenate(parts) if parts else np.empty((0, self.chains.n_chains))

    def _deciding(self, trace: ChainTrace) -> IndexArray:
        """Number of the node whose score a trace holds; -1 for a chain without nodes."""
        start = self.chains.chain_start
        length = np.diff(start)
        return np.where(length == 0, -1, start[:-1] + np.minimum(trace.node, np.maximum(length - 1, 0)))

    def _margin(self, trace: ChainTrace) -> FloatArray:
        node = self._deciding(trace)
        if self.chains.n_nodes == 0:
            return np.zeros(trace.outcome.shape)
        low, high, spread = self.chains.low, self.chains.high, self.chains.spread
        assert spread is not None
        margin = margins(trace.score, low[node], high[node], spread[node])
        return np.where(node < 0, 0.0, margin)

    # -- probabilities ---------------------------------------------------------------------------------------

    def probabilities(self, X: Rows, n_jobs: int | None) -> FloatArray:
        """Probability of each class."""
        assert self.probability is not None
        settled = self.chains.labels(X, n_jobs, vote=self.tail is None)
        labels = settled if self.tail is None else self.with_tail(X, settled.copy(), n_jobs)
        odds = self._by_pieces(X, n_jobs, self._signed_odds)
        result = class_probabilities(odds, self.duels, self.n_classes)
        is_open = np.flatnonzero(settled < 0)
        if self.tail is not None and len(is_open):
            result[is_open] = self._tail_probabilities(X[is_open], labels[is_open], n_jobs)
        return with_label_first(result, labels)

    def _signed_odds(self, trace: ChainTrace) -> FloatArray:
        assert self.probability is not None
        node, facts = self._deciding(trace), self.facts
        at_end = trace.node == np.diff(self.chains.chain_start)
        kind = np.where(at_end, LEFT, facts.kind[node] if self.chains.n_nodes else LEFT)
        settled = np.where(at_end, facts.left, facts.settled[node] if self.chains.n_nodes else 0.0)
        signed: FloatArray = trace.outcome * self.probability.odds.log_odds(kind, self._margin(trace), settled)
        return signed

    def _tail_probabilities(self, rows: Rows, labels: IntArray, n_jobs: int | None) -> FloatArray:
        assert self.tail is not None
        assert self.probability is not None
        scores = self.tail.decision(rows, n_jobs)
        if scores is not None and self.probability.tail is not None:
            return self.probability.tail.probabilities(scores)
        own = self.tail.probabilities(rows, n_jobs)
        if own is not None:
            return own
        result = np.full((len(labels), self.n_classes), (1.0 - self.probability.right) / (self.n_classes - 1))
        result[np.arange(len(labels)), labels] = self.probability.right
        return result

    # -- what it costs ---------------------------------------------------------------------------------------

    def path(self, X: Rows, n_jobs: int | None) -> sparse.csr_matrix:
        """Which nodes each row meets, in all chains; with a tail a last column for it."""
        start = self.chains.chain_start
        has_tail = self.tail is not None
        n_columns = self.chains.n_nodes + has_tail
        trace = self.chains.trace(X, n_jobs)
        met = np.minimum(trace.node + 1, np.diff(start))  # nodes of each chain that a row meets
        tail_rows = self.chains.labels(X, n_jobs) < 0 if has_tail else np.zeros(X.shape[0], dtype=bool)
        per_row = met.sum(axis=1) + tail_rows
        indptr = np.concatenate([[0], np.cumsum(per_row)])
        lengths = np.column_stack([met, tail_rows]).ravel()
        firsts = np.tile(np.append(start[:-1], self.chains.n_nodes), X.shape[0])
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        indices = np.repeat(firsts, lengths) + within
        return sparse.csr_matrix((np.ones(len(indices), dtype=np.int8), indices, indptr), (X.shape[0], n_columns))


def node_facts(chains: Sequence[Sequence[Node]], left: Sequence[float]) -> NodeFacts:
    """Facts of all nodes, chain after chain."""
    nodes = [node for chain in chains for node in chain]
    return NodeFacts(
        np.array([node.removed for node in nodes]),
        np.array([PLANE if node.solver == "l" else PEELED for node in nodes], dtype=np.intp),
        np.array(left, dtype=np.float64),
    )
