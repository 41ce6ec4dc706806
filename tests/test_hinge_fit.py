"""Hinges fitted to scores."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from svelto.engines import hinge_fit, hinge_training
from svelto.engines.hinge_fit import fit_class_hinges, fit_hinges
from svelto.engines.hinge_training import Adam, Hinges
from svelto.voting import pairs, predict_pairs

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6000, 3)) * 4.0 + 7.0
BENT = np.abs(X[:, :1] - 7.0) - 2.0 + 0.5 * X[:, 1:2]


def fitted(rows, scores, n_hinges=16, signs=False, epochs=15, seed=0) -> Hinges:
    return fit_hinges(rows, scores, n_hinges, signs=signs, epochs=epochs, rng=np.random.default_rng(seed))


def test_scores_are_what_the_formula_says():
    hinges = fitted(X, BENT, epochs=1)
    row = X[0].astype(np.float32)
    ((weight,), (bias,), mix) = hinges
    expected = sum(
        v * max(0.0, float(w @ row + c)) for w, c, v in zip(weight[:, 1:].T, bias[1:], mix[:, 0], strict=True)
    )
    assert_allclose(hinges.scores(X[:1])[0, 0], expected + weight[:, 0] @ row + bias[0], rtol=1e-4)


def test_two_layers_are_what_the_formula_says():
    hinges = fitted(X, np.hstack([BENT, -BENT]), n_hinges=(5, 3), epochs=1)
    assert (hinges.n_scores, hinges.sizes) == (2, (5, 3))
    expected = []
    for x in X[:20]:
        first, second = hinges.weights[0].T @ x + hinges.biases[0], hinges.biases[1].astype(float)
        second = second + sum(max(0.0, h) * w for h, w in zip(first[2:], hinges.weights[1], strict=True))
        last = sum(max(0.0, h) * v for h, v in zip(second[2:], hinges.mix, strict=True))
        expected.append(first[:2] + second[:2] + last)
    assert_allclose(hinges.scores(X[:20]), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sizes", [(4,), (4, 3)])
def test_slopes_are_those_of_the_loss(sizes):
    """Against differences of the loss, 0.5 |outputs - target|^2, weight by weight."""
    rng = np.random.default_rng(0)
    shapes = [(3, 2 + sizes[0]), *((a, 2 + b) for a, b in pairwise(sizes))]
    weights, biases = [rng.normal(size=shape) for shape in shapes], [rng.normal(size=2 + size) for size in sizes]
    hinges = Hinges(tuple(weights), tuple(biases), rng.normal(size=(sizes[-1], 2)))
    slopes = Hinges(*(tuple(map(np.zeros_like, parts)) for parts in hinges[:2]), np.zeros_like(hinges.mix))
    x, target = rng.normal(size=(6, 3)), rng.normal(size=(6, 2))

    def loss() -> float:
        inputs, outputs = x, 0.0
        for weight, bias in zip(hinges.weights, hinges.biases, strict=True):
            columns = inputs @ weight + bias
            outputs, inputs = outputs + columns[:, :2], np.maximum(columns[:, 2:], 0.0)
        return 0.5 * float(((outputs + inputs @ hinges.mix - target) ** 2).sum())

    hinge_training._slopes(hinges, slopes, x, lambda outputs: outputs - target)
    for part, slope in zip(hinges.arrays, slopes.arrays, strict=True):
        for at in np.ndindex(part.shape):
            kept, change = part[at], 1e-6
            part[at] = kept + change
            above = loss()
            part[at] = kept - change
            below = loss()
            part[at] = kept
            assert_allclose(slope[at], (above - below) / (2.0 * change), rtol=1e-5, atol=1e-7)


def test_steps_are_those_of_adam():
    """Against the rule as it was published, with a rate along a cosine."""
    rng = np.random.default_rng(0)
    adam = Adam(np.ones(5, dtype=np.float32), steps=8)
    values, first, second = np.ones(5), np.zeros(5), np.zeros(5)
    for step in range(1, 8):
        slope = rng.normal(size=5)
        adam.slope[:] = slope
        adam.step()
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        rate = 0.5 * hinge_training.RATE * (1.0 + np.cos(np.pi * step / 8))
        values -= rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        assert_allclose(adam.values, values, rtol=1e-5)


def test_a_bend_is_found():
    error = fitted(X[:5000], BENT[:5000]).scores(X[5000:]) - BENT[5000:]
    assert np.sqrt((error**2).mean()) < 0.05 * BENT.std()


def test_a_plane_needs_no_hinge():
    plane = X @ np.array([[1.0], [-2.0], [0.5]]) + 3.0
    error = fitted(X, plane, n_hinges=1).scores(X) - plane
    assert np.sqrt((error**2).mean()) < 0.02 * plane.std()


def test_signs_count():
    """Scores far from zero are clipped, and the sign is right nearly everywhere."""
    wild = BENT * (1.0 + np.abs(BENT))
    hinges = fitted(X[:5000], wild[:5000], signs=True)
    assert ((hinges.scores(X[5000:]) > 0) == (wild[5000:] > 0)).mean() > 0.98


def test_several_scores_in_their_own_units():
    both = np.hstack([BENT, 1e6 * np.abs(X[:, 2:] - 7.0)])
    error = fitted(X, both, n_hinges=32).scores(X) - both
    assert (np.sqrt((error**2).mean(axis=0)) < 0.1 * both.std(axis=0)).all()


def test_the_same_seed_gives_the_same_hinges():
    one, again, other = (fitted(X[:1000], BENT[:1000], epochs=2, seed=seed) for seed in (0, 0, 1))
    for first, second in zip(one.arrays, again.arrays, strict=True):
        assert_array_equal(first, second)
    assert not np.array_equal(one.weights[0], other.weights[0])


def test_units_do_not_matter():
    tiny = fitted(X * 1e-6, BENT * 1e3, epochs=3).scores(X * 1e-6)
    assert_allclose(tiny, 1e3 * fitted(X, BENT, epochs=3).scores(X), atol=5.0)


@pytest.mark.parametrize("n", [2, 20])
def test_few_rows(n):
    assert np.isfinite(fitted(X[:n], BENT[:n]).scores(X)).all()
    assert np.isfinite(fitted(np.ones((n, 2)), np.zeros((n, 1)), signs=True).scores(np.ones((3, 2)))).all()


def test_told_to_stop():
    shares = []
    fit_hinges(
        X, BENT, 4, signs=False, epochs=9, rng=np.random.default_rng(0), progress=lambda s: shares.append(s) or s > 0.3
    )
    assert_allclose(shares, [1 / 9, 2 / 9, 3 / 9])


def test_a_look_is_enough():
    """The hinges that are looked at are those in the rows' own units, after every pass."""
    seen = []
    hinges = fit_hinges(
        X,
        BENT,
        8,
        signs=False,
        epochs=9,
        rng=np.random.default_rng(0),
        enough=lambda now: seen.append(np.abs(now.scores(X) - BENT).mean()) or len(seen) == 4,
    )
    assert len(seen) == 4
    assert seen[3] < seen[0]
    assert_allclose(np.abs(hinges.scores(X) - BENT).mean(), seen[3])


def test_a_second_layer_bends_where_one_cannot():
    """| |a| + |b| - 4 |: hinges of hinges; one layer of as many comes nowhere near."""
    wide = np.random.default_rng(1).normal(size=(12_000, 2)) * 3.0
    ring = np.abs(np.abs(wide).sum(axis=1, keepdims=True) - 4.0)
    one, two = (
        float(np.sqrt(((fitted(wide, ring, n_hinges=size, epochs=30).scores(wide) - ring) ** 2).mean()))
        for size in (24, (16, 8))
    )
    assert two < 0.05 * ring.std()
    assert two < 0.2 * one


def test_far_scores_bend_nothing():
    """A plane is found as it is: that its far scores are clipped, and its own may be larger, must not flatten it."""
    plane = X[:, :1] - 7.0
    size = np.median(np.abs(plane))
    near = np.abs(plane[:, 0]) < size
    assert (np.abs(plane) > hinge_fit.CLIPPED * size).mean() > 0.2
    error = (fitted(X, plane, n_hinges=1, signs=True).scores(X) - plane)[near]
    assert np.sqrt((error**2).mean()) < 0.002 * size


def test_rows_near_the_boundary_come_more_often_and_weigh_as_before():
    weight = hinge_fit.decisive_weights(X[:, :1], 0)
    chance = hinge_fit._chances(weight.mean(axis=1))
    assert_allclose(chance.mean(), hinge_fit.SEEN, rtol=0.02)
    assert chance.max() <= 1.0
    assert chance.min() >= 0.5 * hinge_fit.LEAST_CHANCE * hinge_fit.SEEN
    order = np.argsort(weight[:, 0], kind="stable")
    assert (np.diff(chance[order]) >= -1e-6).all()
    assert chance[order[-1]] > 3.0 * chance[order[0]]


def test_pairs_without_the_winner_hardly_count():
    """Three classes, scores (0, 1), (0, 2), (1, 2), equally near to zero: the winner has part in two of them."""
    target = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, -1.0], [-1.0, 1.0, 1.0], [1.0, -1.0, -1.0], [1.0, -1.0, 1.0]])
    weight = hinge_fit.decisive_weights(target, 3)
    counts = weight > 0.5 * weight.max(axis=1, keepdims=True)
    # 0 wins, 0 wins, 1 wins, 2 wins, and a tie of all three
    assert_array_equal(counts, [[1, 1, 0], [1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 1, 1]])
    assert_allclose(weight[0, 2] / weight[0, 0], hinge_fit.BYSTANDERS, rtol=1e-5)


def test_pairs_without_the_winner_take_no_hinges():
    """Scores of the winner are distances to its borders; all others are waves, which no label depends on."""
    rng = np.random.default_rng(3)
    rows, borders = rng.normal(size=(16_000, 4)), np.linspace(-1.2, 1.2, 5)
    label = np.digitize(rows[:, 0], borders)
    above, below = borders[np.minimum(label, 4)] - rows[:, 0], rows[:, 0] - borders[np.maximum(label - 1, 0)]
    scores = np.stack(
        [
            np.where(label == i, above, np.where(label == j, -below, np.sin(6.0 * rows[:, 1] + i + 7 * j)))
            for i, j in pairs(6)
        ],
        axis=1,
    )
    assert_array_equal(predict_pairs(scores, 6), label)
    fit, new = slice(12_000), slice(12_000, None)
    wrong = []
    for n_classes in (0, 6):
        rng = np.random.default_rng(0)
        hinges = fit_hinges(rows[fit], scores[fit], 8, signs=True, epochs=10, rng=rng, n_classes=n_classes)
        wrong.append((predict_pairs(hinges.scores(rows[new]), 6) != label[new]).mean())
    assert wrong[1] < 0.5 * wrong[0]


@pytest.mark.parametrize("sizes", [12, (12, 6)])
def test_labels_are_learnt(sizes):
    labels = np.digitize(BENT[:, 0], [-1.0, 2.0])
    hinges = fit_class_hinges(X[:5000], labels[:5000], 3, sizes, epochs=40, rng=np.random.default_rng(0))
    assert (hinges.scores(X[5000:]).argmax(axis=1) == labels[5000:]).mean() > 0.97
