"""What SVMTreeClassifier answers: labels and paths by definition, scores and probabilities that agree with them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_classification
from sklearn.svm import SVC

from svelto.training._svm_tree.probability import with_label_first
from svm_tree_cases import (
    N_KNOWN,
    PAPER,
    digits,
    digits_tree,
    moons,
    moons_tree,
    outcomes_by_definition,
    quick,
    scaled,
    votes_by_definition,
)

# -- labels by definition ----------------------------------------------------------------------------------------------


def digits_with(**parameters):
    X, y = digits()
    return quick(**({"tail": SVC(C=10.0)} | parameters)).fit(X[:N_KNOWN], y[:N_KNOWN])


@pytest.mark.parametrize(
    "grow",
    [digits_tree, lambda: digits_tree(has_tail=False), lambda: digits_with(**PAPER), lambda: digits_with(tail_at=1)],
    ids=["tail", "no tail", "paper", "tail_at=1"],
)
def test_labels_of_digits_by_definition(grow):
    tree = grow()
    rows = digits()[0][N_KNOWN : N_KNOWN + 200]
    outcome, depth = outcomes_by_definition(tree, rows)
    won = votes_by_definition(tree, outcome)
    labels = tree.predict(rows)
    settled = won.max(axis=1) == 9
    assert (labels[settled] == tree.classes_[won.argmax(axis=1)][settled]).all()
    if tree.tail is None:
        for label, counts in zip(labels, won, strict=True):  # most votes; margins decide between equal votes
            assert counts[tree.classes_ == label] == counts.max()
    else:
        numbers = tree.tail_.predict(scaled(tree, rows))
        assert (labels[~settled] == tree.classes_[numbers[~settled]]).all()
        assert tree.work(rows)["settled"] == pytest.approx(settled.mean())
    assert tree.average_depth(rows) == pytest.approx(depth.mean() + (0 if tree.tail is None else (~settled).mean()))


def test_two_classes_by_definition():
    X, _ = moons()
    tree = moons_tree()
    outcome, depth = outcomes_by_definition(tree, X[1000:])
    labels, settled = tree.predict(X[1000:]), outcome[:, 0] != 0
    assert 0.3 < settled.mean() < 1.0
    np.testing.assert_array_equal(labels[settled], (outcome[settled, 0] + 1) // 2)
    numbers = tree.tail_.predict(scaled(tree, X[1000:]))
    np.testing.assert_array_equal(labels[~settled], numbers[~settled])
    work = tree.work(X[1000:])
    assert work["planes"] == pytest.approx(depth.mean())
    assert work["tail_rows"] == pytest.approx(1 - settled.mean())
    assert work["kernel_values"] == pytest.approx((1 - settled.mean()) * len(tree.tail_.support_))


def test_one_vs_rest_by_definition():
    X, _ = digits()
    tree = digits_tree(multi_class="ovr")
    X = X[: N_KNOWN + 400]
    outcome, _ = outcomes_by_definition(tree, X[N_KNOWN:])
    settled = ((outcome == 1).sum(axis=1) == 1) & ((outcome == -1).sum(axis=1) == 9)
    labels = tree.predict(X[N_KNOWN:])
    assert (labels[settled] == tree.classes_[outcome.argmax(axis=1)][settled]).all()
    numbers = tree.tail_.predict(scaled(tree, X[N_KNOWN:]))
    assert (labels[~settled] == tree.classes_[numbers[~settled]]).all()


def test_decision_path_holds_the_nodes_that_are_met():
    X, _ = moons()
    tree = moons_tree()
    path = tree.decision_path(X[1000:]).toarray()
    outcome, depth = outcomes_by_definition(tree, X[1000:])
    assert path.shape == (500, tree.n_nodes_ + 1)
    for row, met, is_open in zip(path, depth[:, 0], outcome[:, 0] == 0, strict=True):
        np.testing.assert_array_equal(row, [1] * met + [0] * (tree.n_nodes_ - met) + [is_open])


def test_classes_in_any_words():
    X, y = digits()
    tree = digits_tree(has_tail=False)
    assert set(tree.predict(X)) <= set("abcdefghij")
    assert tree.score(X[N_KNOWN:], y[N_KNOWN:]) > 0.88


# -- scores and probabilities ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("multi_class", ["ovo", "ovr"])
@pytest.mark.parametrize("has_tail", [False, True], ids=["no tail", "tail"])
def test_the_label_has_the_largest_score_and_probability(multi_class, has_tail):
    X, y = digits()
    tree = digits_tree(has_tail, multi_class)
    labels, scores, chances = tree.predict(X), tree.decision_function(X), tree.predict_proba(X)
    assert scores.shape == chances.shape == (len(X), 10)
    assert (tree.classes_[scores.argmax(axis=1)] == labels).all()
    assert (tree.classes_[chances.argmax(axis=1)] == labels).all()
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, atol=1e-12)
    assert chances.min() >= 0.0
    number = np.searchsorted(tree.classes_, y)
    loss = -np.log(chances[np.arange(len(y)), number][N_KNOWN:]).mean()
    assert loss < 0.6  # guessing has 2.3


@pytest.mark.parametrize(
    ("parameters", "n_rows"),
    [
        ({"tail": None, "max_nodes": 4}, 1000),
        ({"tail": None, "last": "class", "max_nodes": 20}, 600),
        ({"tail": SVC(C=1.0), "max_nodes": 4}, 1000),
    ],
    ids=["linear SVM", "peeling nodes", "tail"],
)
@pytest.mark.filterwarnings("ignore:.*max_nodes was reached:sklearn.exceptions.ConvergenceWarning")
def test_probabilities_of_two_classes_are_about_right(parameters, n_rows):
    X, y = make_classification(4500, 8, n_informative=5, flip_y=0.1, class_sep=0.8, random_state=1)
    tree = quick(**parameters, n_folds=3, probability=True).fit(X[:n_rows], y[:n_rows])
    chance = tree.predict_proba(X[1000:])[:, 1]
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        inside = (chance >= low) & (chance < low + 0.2)
        if inside.sum() > 100:
            assert abs(y[1000:][inside].mean() - chance[inside].mean()) < 0.1


def test_pair_scores_of_a_tail_are_not_class_scores():
    X, y = load_iris(return_X_y=True)
    trees = [
        quick(tail=SVC(decision_function_shape=shape), tail_at=0, probability=True).fit(X, y)
        for shape in ("ovr", "ovo")
    ]
    np.testing.assert_allclose(trees[0].decision_function(X), trees[1].decision_function(X))
    np.testing.assert_allclose(trees[0].predict_proba(X), trees[1].predict_proba(X))


def test_equal_probabilities_still_have_a_first():
    chances = with_label_first(np.full((3, 3), 1 / 3), np.array([0, 1, 2]))
    np.testing.assert_array_equal(chances.argmax(axis=1), [0, 1, 2])
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)


def test_margins_survive_a_far_mean():
    X, y = digits()
    near, far = (quick(tail=None, n_folds=2).fit(X[:300] + shift, y[:300]) for shift in (0.0, 2.0**27))
    a, b = near.decision_function(X), far.decision_function(X + 2.0**27)
    assert np.abs(a - b).max() < 1.1  # a vote may differ where a score is next to its threshold
    assert np.median(np.abs(a - b)) < 1e-3


def test_probability_has_to_be_asked_for():
    X, y = moons()
    tree = quick(tail_at=1).fit(X, y)
    assert not hasattr(tree, "predict_proba")
    with pytest.raises(AttributeError, match="predict_proba"):
        tree.predict_proba(X)
    tree.probability = True
    with pytest.raises(ValueError, match="trained with probability=False"):
        tree.predict_proba(X)
