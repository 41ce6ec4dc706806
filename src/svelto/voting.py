"""From pair scores to a class: LIBSVM's vote, and scikit-learn's one-vs-rest form of the decision function.

`pair_scores` is float64 of shape (n_samples, n_classes * (n_classes - 1) / 2), one column for each pair (i, j), i < j,
in the order (0, 1), (0, 2), ..., (1, 2), ...; classes are numbered in the machine's vote order and a positive score of
the pair (i, j) speaks for i (LIBSVM's sign). These are the definitions; native code repeats them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from svelto._typing import FloatArray, IntArray


def pairs(n_classes: int) -> Iterator[tuple[int, int]]:
    """List the pairs of classes in the order of the score columns."""
    return ((i, j) for i in range(n_classes) for j in range(i + 1, n_classes))


def votes(pair_scores: FloatArray, n_classes: int) -> IntArray:
    """Votes of every class: a score > 0 votes for i, everything else (zero too) for j."""
    counts = np.zeros((len(pair_scores), n_classes), dtype=np.int32)
    for column, (i, j) in enumerate(pairs(n_classes)):
        for_i = pair_scores[:, column] > 0
        counts[:, i] += for_i
        counts[:, j] += ~for_i
    return counts


def predict_pairs(pair_scores: FloatArray, n_classes: int) -> np.ndarray[Any, np.dtype[np.intp]]:
    """LIBSVM's answer: the class with most votes; a tie goes to the earlier class of the vote order."""
    winner: np.ndarray[Any, np.dtype[np.intp]] = votes(pair_scores, n_classes).argmax(axis=1)
    return winner  # argmax keeps the first of equals, as LIBSVM does


def ovr_decision(pair_scores: FloatArray, n_classes: int) -> FloatArray:
    """scikit-learn's ``decision_function_shape="ovr"``: votes plus a squashed sum of scores, bit for bit.

    Not the vote of `votes`: here a zero score counts for i. scikit-learn has the same difference.
    """
    counts = np.zeros((len(pair_scores), n_classes))
    confidence = np.zeros((len(pair_scores), n_classes))
    for column, (i, j) in enumerate(pairs(n_classes)):
        score = pair_scores[:, column]
        confidence[:, i] += score
        confidence[:, j] -= score
        counts[:, i] += ~(score < 0)
        counts[:, j] += score < 0
    # Squashed into (-1/3, 1/3), so that confidence decides between equal votes and never against one vote.
    result: FloatArray = counts + confidence / (3 * (np.abs(confidence) + 1))
    return result


def sorted_pairs(pair_scores: FloatArray, vote_order: IntArray) -> FloatArray:
    """Pair scores with columns and signs of the sorted classes, from those of the vote order."""
    n_classes = len(vote_order)
    column_of = {pair: column for column, pair in enumerate(pairs(n_classes))}
    result = np.empty_like(pair_scores)
    for column, (i, j) in enumerate(pairs(n_classes)):
        a, b = int(vote_order[i]), int(vote_order[j])
        result[:, column_of[min(a, b), max(a, b)]] = pair_scores[:, column] if a < b else -pair_scores[:, column]
    return result
