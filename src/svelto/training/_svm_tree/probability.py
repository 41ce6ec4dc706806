"""How probable a decision of the tree is, learned from held-out rows.

The node that decides a row gives a margin. What a margin is worth is learned by one logistic regression for all chains:
the log-odds that the decision is right are linear in the margin (of the linear SVM that may end a chain, as in Platt's
sigmoid) or in log(1 + margin) and log(1 + weight of the training rows that the node answers) (of peeling nodes, and of
the class that is left at the end). Nodes that were not there in cross-validation are served too.

The tail's own scores go through a sigmoid (two classes) or a softmax with a temperature, mixed with a little of the
uniform distribution: scores that are mostly votes say nothing about how sure the tail is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.linear_model import LogisticRegression

from svelto._typing import FloatArray, IndexArray
from svelto.probability import PlattPairs, Sigmoid, Temperature
from svelto.training._svm_tree.duels import REST, Duel
from svelto.training._svm_tree.held_out import HeldOut
from svelto.training._svm_tree.placement import NO_PLANE, End, outcomes_of

PEELED, PLANE, LEFT = 0, 1, 2
N_KINDS: Final = 3
# Log-odds beyond this are not to be had from any number of held-out rows.
MOST_LOG_ODDS: Final = 12.0
# Shares of the uniform distribution to choose from.
DOUBTS: Final = (0.001, 0.003, 0.01, 0.03, 0.1)


@dataclass(frozen=True, eq=False)
class DecisionOdds:
    """Log-odds that a decision is right: one row of (constant, margin, settled weight) for each kind of node."""

    coef: FloatArray

    def log_odds(self, kind: IndexArray, margin: FloatArray, settled: FloatArray) -> FloatArray:
        """One number for each decision; never below 0, as the decision is what was decided for."""
        c = self.coef[kind]
        odds = c[..., 0] + c[..., 1] * np.where(kind == PLANE, margin, np.log1p(margin)) + c[..., 2] * np.log1p(settled)
        result: FloatArray = np.clip(odds, 1e-3, MOST_LOG_ODDS)
        return result


def learn_odds(held: HeldOut, duels: Sequence[Duel], ends: Sequence[End]) -> DecisionOdds:
    """Learn from all decisions about held-out rows that are right or wrong."""
    kinds, features, right, weights = [], [], [], []
    for record, duel, end in zip(held.records, duels, ends, strict=True):
        rows = duel.rows_of(held.y)
        outcome = outcomes_of(record, end)[rows]
        chain = record.chains[end.node_margin]
        by_node = ((chain.node < end.depth) & ~chain.at_end)[rows]
        margin, settled = chain.margin[rows].astype(np.float64), chain.settled[rows].astype(np.float64)
        kind = np.where(by_node, PEELED, LEFT)
        if end.plane != NO_PLANE:
            score = record.planes[rows, end.plane].astype(np.float64)
            kind = np.where(by_node, PEELED, PLANE)
            margin = np.where(by_node, margin, np.abs(np.abs(score) - end.band))
            settled = np.where(by_node, settled, 0.0)
        decided = outcome != 0
        kinds.append(kind[decided])
        features.append(
            np.column_stack([np.where(kind == PLANE, margin, np.log1p(margin)), np.log1p(settled)])[decided]
        )
        right.append((outcome == duel.sides(held.y[rows]))[decided])
        weights.append(held.weight[rows][decided])
    kind, X = np.concatenate(kinds), np.concatenate(features)
    is_right, weight = np.concatenate(right), np.concatenate(weights)
    return DecisionOdds(
        np.array([_odds_of(X[kind == k], is_right[kind == k], weight[kind == k]) for k in range(N_KINDS)])
    )


def _odds_of(X: FloatArray, right: IndexArray, weight: FloatArray) -> FloatArray:
    wrong_weight, right_weight = float(weight[~right].sum()), float(weight[right].sum())
    if wrong_weight == 0.0 or right_weight == 0.0:  # nothing to tell apart: Laplace's rule of succession
        return np.array([np.log((right_weight + 1.0) / (wrong_weight + 1.0)), 0.0, 0.0])
    model = LogisticRegression(C=1.0).fit(X, right, sample_weight=weight)
    # A larger margin or a larger node never makes a decision less certain.
    slopes = np.maximum(model.coef_[0], 0.0)
    if (slopes == model.coef_[0]).all():
        return np.concatenate([model.intercept_, slopes])
    mean = np.average(X @ slopes, weights=weight)
    return np.array([np.log(right_weight / wrong_weight) - mean, *slopes])


def class_probabilities(log_odds: FloatArray, duels: Sequence[Duel], n_classes: int) -> FloatArray:
    """Probabilities of all classes from signed log-odds of the duels, positive towards +1.

    One-vs-one by Wu, Lin and Weng's coupling, as LIBSVM does; one-vs-rest normalised.
    """
    if duels[0].negative == REST:
        chance = Sigmoid(-1.0, 0.0)(log_odds)
        result: FloatArray = chance / chance.sum(axis=1, keepdims=True)
        return result
    n_pairs = len(duels)
    return PlattPairs(np.full(n_pairs, -1.0), np.zeros(n_pairs)).probabilities(-log_odds, n_classes)


@dataclass(frozen=True)
class TailOdds:
    """What turns the tail's scores into probabilities; `doubt` is the share of the uniform distribution."""

    learned: Sigmoid | Temperature
    doubt: float

    def probabilities(self, scores: FloatArray) -> FloatArray:
        """Probabilities of all classes from the tail's scores."""
        certain = _certain(scores, self.learned)
        mixed: FloatArray = (1.0 - self.doubt) * certain + self.doubt / certain.shape[1]
        return mixed


def learn_tail(held: HeldOut) -> TailOdds | None:
    """Learn from the tail's scores of held-out rows; None where it has none."""
    learned = _sigmoid_or_temperature(held)
    if learned is None or held.tail_decision is None:
        return None
    right = _certain(held.tail_decision, learned)
    chance = right[np.arange(len(right)), held.y]

    def loss(doubt: float) -> float:
        mixed = (1.0 - doubt) * chance + doubt / right.shape[1]
        return -float(np.average(np.log(mixed), weights=held.weight))

    return TailOdds(learned, min(DOUBTS, key=loss))


def _sigmoid_or_temperature(held: HeldOut) -> Sigmoid | Temperature | None:
    scores = held.tail_decision
    if scores is None:
        return None
    if scores.shape[1] == 1:
        if len(np.unique(held.y)) < 2:
            return Sigmoid(-1.0, 0.0)
        model = LogisticRegression(C=1.0).fit(scores, held.y, sample_weight=held.weight)
        return Sigmoid(-max(float(model.coef_[0, 0]), 1e-3), -float(model.intercept_[0]))

    def loss(log_beta: float) -> float:
        chance = Temperature(float(np.exp(log_beta))).softmax(scores)[np.arange(len(scores)), held.y]
        return -float(np.average(np.log(np.maximum(chance, 1e-12)), weights=held.weight))

    return Temperature(float(np.exp(minimize_scalar(loss, bounds=(-4.0, 4.0), method="bounded").x)))


def _certain(scores: FloatArray, learned: Sigmoid | Temperature) -> FloatArray:
    if isinstance(learned, Temperature):
        return learned.softmax(scores)
    positive = learned(scores[:, 0])
    return np.column_stack([1.0 - positive, positive])


def with_label_first(probabilities: FloatArray, labels: IndexArray) -> FloatArray:
    """The predicted class is the most probable one: where it is not, the two change places."""
    rows = np.arange(len(labels))
    largest = probabilities.argmax(axis=1)
    result = probabilities.copy()
    result[rows, largest] = probabilities[rows, labels]
    result[rows, labels] = probabilities[rows, largest]
    others = result.copy()
    others[rows, labels] = -np.inf
    result[rows, labels] = np.maximum(result[rows, labels], np.nextafter(others.max(axis=1), np.inf))  # of equals
    return result
