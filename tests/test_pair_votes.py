"""The vote of a stage that knows all pair scores with errors: native code against counting sure and possible votes."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from hinge_cases import LEVELS, Layer, Net, ask, slow_labels


def stage_of_rows(n_classes, error):
    """A stage whose scores are its rows."""
    n = n_classes * (n_classes - 1) // 2
    layer = Layer(np.empty((n, 0)), np.empty(0), np.eye(n))
    return Net((layer,), np.empty((0, n)), np.zeros(n), np.asarray(error, dtype=float), "pairs", np.zeros(n))


def duels(n_classes, n_rows, noise, most=3):
    """Pair scores of classes that are more or less strong, small whole numbers: many are as large as their errors."""
    rng = np.random.default_rng(0)
    strength = rng.integers(-most, most + 1, size=(n_rows, n_classes))
    scores = np.array([strength[:, i] - strength[:, j] for i, j in combinations(range(n_classes), 2)], dtype=float).T
    return scores + rng.integers(-noise, noise + 1, size=scores.shape)


def winners_of_votes(scores, bounds, n_classes):
    """The definition, written to be read. Never optimise this one."""
    labels = np.full(len(scores), -1)
    for row, score in enumerate(scores):
        sure, possible = np.zeros(n_classes), np.zeros(n_classes)
        for p, (i, j) in enumerate(combinations(range(n_classes), 2)):
            sure[i] += score[p] > bounds[p]
            sure[j] += -score[p] > bounds[p]
            possible[i] += not -score[p] > bounds[p]
            possible[j] += not score[p] > bounds[p]
        best = sure.argmax()
        rivals = [c for c in range(n_classes) if c != best]
        if all(sure[best] >= possible[c] + (c < best) for c in rivals):  # the first wins a tie
            labels[row] = best
    return labels


@pytest.mark.parametrize("n_classes", [3, 4, 5, 10, 16, 17, 26])
@pytest.mark.parametrize("noise", [0, 1, 3])
def test_votes_are_those_that_counting_finds(n_classes, noise):
    scores = duels(n_classes, 500, noise)
    net = stage_of_rows(n_classes, np.random.default_rng(1).integers(0, 3, size=scores.shape[1]))
    for caution in (0.0, 0.5, 1.0, 2.0):
        expected = winners_of_votes(scores, caution * net.error, n_classes)
        np.testing.assert_array_equal(expected, slow_labels(net, scores, caution))
        for level in LEVELS:
            for n in (1, 15, 500):
                np.testing.assert_array_equal(ask(net, scores[:n], level, caution=caution)[0], expected[:n])


def test_every_way_to_decide_is_asked():
    """Some rows have a class that beats all others, some are settled without one, and some are left open."""
    scores, n = duels(10, 2000, 3, most=9), 10
    net = stage_of_rows(n, np.ones(scores.shape[1]))
    labels = ask(net, scores, LEVELS[-1])[0]
    beaten = np.zeros((len(scores), n))
    for p, (i, j) in enumerate(combinations(range(n), 2)):
        beaten[:, i] += scores[:, p] > 1
        beaten[:, j] += -scores[:, p] > 1
    beats_all = beaten.max(axis=1) == n - 1
    assert (labels[beats_all] == beaten.argmax(axis=1)[beats_all]).all()
    shares = [np.mean(beats_all), np.mean((labels >= 0) & ~beats_all), np.mean(labels < 0)]
    assert min(shares) > 0.01


def test_a_score_that_is_no_number_may_go_either_way():
    """A pair that nobody needs does not matter; one of the winner's leaves the row open."""
    net = stage_of_rows(4, np.full(6, 0.5))
    row = np.array([[2.0, 2.0, 2.0, 9.0, 3.0, 3.0]])  # class 0 beats all; the fourth score is that of classes 1 and 2
    for level in LEVELS:
        for pair, label in ((3, 0), (0, -1)):
            net.layers[0].to_scores[:] = np.eye(6)
            net.layers[0].to_scores[3, pair] = 3e38
            assert ask(net, row, level)[0][0] == label
