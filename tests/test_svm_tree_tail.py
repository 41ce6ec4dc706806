"""The tail of SVMTreeClassifier: which machine it is, where it takes over, and what it answers."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_blobs, make_classification, make_moons
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import SVC

from svelto import SVMTreeClassifier
from svelto.training._svm_tree import train
from svelto.training._svm_tree.rows import fold_numbers, merged_rows
from svelto.training._svm_tree.tail import COSTS, GAMMA_FACTORS
from svm_tree_cases import digits, moons, quick, scaled

# -- where it takes over -----------------------------------------------------------------------------------------------


def test_the_tail_takes_the_hard_rows_and_keeps_the_accuracy():
    X, y = make_moons(4000, noise=0.2, random_state=3)
    tree = quick(n_folds=3).fit(X[:2000], y[:2000])
    alone = SVC(C=10.0, gamma=1.0).fit(scaled(tree, X[:2000]), y[:2000])
    accuracy = alone.score(scaled(tree, X[2000:]), y[2000:])
    assert tree.work(X[2000:])["settled"] > 0.3
    assert tree.score(X[2000:], y[2000:]) > accuracy - 0.004
    assert tree.cv_accuracy_ >= tree.cv_tail_accuracy_ - tree.tail_loss
    # Trees of the folds know fewer rows: they settle less, never much more.
    assert -0.05 < tree.cv_open_share_ - tree.work(X[2000:])["tail_rows"] < 0.25


def test_more_loss_means_fewer_rows_at_the_tail():
    X, y = make_moons(1200, noise=0.25, random_state=1)
    losses = (0.001, 0.01, 0.05)
    shares = [quick(tail_loss=loss, max_nodes=4, n_folds=3).fit(X, y).work(X)["tail_rows"] for loss in losses]
    assert shares[0] >= shares[1] >= shares[2]
    assert shares[0] > shares[2]


def test_few_rows_cannot_be_trusted_and_go_to_the_tail():
    X, y = make_moons(200, noise=0.15, random_state=0)
    assert quick(tail_loss=0.001).fit(X, y).work(X)["tail_rows"] == 1.0
    assert quick(tail_loss=0.05).fit(X, y).work(X)["tail_rows"] < 1.0


def test_tail_at_a_depth_cuts_every_chain():
    X, y = digits()
    tree = quick(tail_at=0, tail=SVC()).fit(X[:500], y[:500])
    assert tree.n_nodes_ == 0
    assert tree.work(X)["settled"] == 0.0
    numbers = tree.tail_.predict(scaled(tree, X))
    np.testing.assert_array_equal(tree.predict(X), tree.classes_[numbers])
    assert quick(tail_at=2, tail=SVC()).fit(X[:500], y[:500]).depths_.max() <= 2


# -- which machine it is -----------------------------------------------------------------------------------------------

TAILS = [
    KNeighborsClassifier(5),
    GaussianNB(),
    RandomForestClassifier(20, random_state=0),
    RidgeClassifier(),
    SVC(),
    make_pipeline(StandardScaler(), SVC(C=3.0)),
    make_pipeline(PolynomialFeatures(2), LogisticRegression(max_iter=1000)),
]


def name_of(tail):
    return "-".join(type(step).__name__ for step in getattr(tail, "named_steps", {"": tail}).values())


@pytest.mark.parametrize("tail", TAILS, ids=name_of)
@pytest.mark.parametrize("names", [("yes", "no"), ("cat", "ant", "bee")], ids=str)
def test_the_tail_may_be_any_classifier(tail, names):
    if len(names) == 2:
        X, y = moons()
    else:
        X, y = make_blobs(1500, centers=[[0, 0], [4, 0], [0, 4]], cluster_std=1.3, random_state=0)
    y = np.array(names)[y]
    rows = X[500:]
    tree = quick(tail=tail, tail_at=2, max_nodes=2, probability=True, n_folds=2).fit(X[:500], y[:500])
    assert type(tree.tail_) is type(tail)
    assert tree.tail_ is not tail
    np.testing.assert_array_equal(tree.classes_, sorted(names))
    is_open = tree._tree.chains.labels(rows) < 0
    assert 0.1 < is_open.mean() < 0.9
    labels, chances, scores = tree.predict(rows), tree.predict_proba(rows), tree.decision_function(rows)
    numbers = tree.tail_.predict(scaled(tree, rows))
    np.testing.assert_array_equal(labels[is_open], tree.classes_[numbers[is_open]])
    assert tree.score(rows, y[500:]) > 0.85
    assert chances.shape == (len(rows), len(names))
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    np.testing.assert_array_equal(tree.classes_[chances.argmax(axis=1)], labels)
    largest = scores > 0 if len(names) == 2 else scores.argmax(axis=1)
    np.testing.assert_array_equal(tree.classes_[np.asarray(largest, dtype=int)], labels)
    if not hasattr(tail, "decision_function"):  # then its own probabilities are all there is
        own = tree.tail_.predict_proba(scaled(tree, rows))
        np.testing.assert_allclose(chances[is_open], own[is_open], rtol=0, atol=1e-12)
        chosen = np.eye(3)[numbers] if len(names) == 3 else 2.0 * numbers - 1.0
        np.testing.assert_array_equal(scores[is_open], chosen[is_open])


def test_the_tail_may_be_accelerated_further():
    X, y = make_moons(1000, noise=0.3, random_state=0)
    tree = quick(tail_method="taylor_tree", tail_options={"agreement": None, "random_state": 0}, tail_at=1).fit(X, y)
    assert tree._tree.tail.answers.report.method == "taylor_tree"
    assert (tree.predict(X) == quick(tail_at=1).fit(X, y).predict(X)).mean() > 0.97


def waves(n, seed=0):
    """Stripes that only a narrow kernel tells apart."""
    X = np.random.default_rng(seed).uniform(-1, 1, (n, 2))
    return X, (np.sin(9.0 * X[:, 0]) > 0).astype(int)


def noisy_line(n, seed=0):
    """Two classes with a straight border and a fifth of the labels wrong: a wide kernel is best."""
    X, y = make_classification(n, 5, n_informative=3, flip_y=0.2, class_sep=1.0, random_state=seed)
    return X, y


def held_out_errors(X, y, n_folds):
    """Rows that each machine of the grid gets wrong when their fold is held out, costs before widths."""
    rows = merged_rows(X, y, np.ones(len(y)))
    Z = StandardScaler().fit_transform(rows.X)
    folds = PredefinedSplit(fold_numbers(rows.y, n_folds, np.random.RandomState(0)))
    width = 1.0 / (Z.shape[1] * Z.var())  # gamma="scale"
    grid = [(C, factor * width) for C in COSTS for factor in GAMMA_FACTORS]
    machines = [SVC(C=C, gamma=gamma) for C, gamma in grid]
    return grid, [int((cross_val_predict(machine, Z, rows.y, cv=folds) != rows.y).sum()) for machine in machines]


def test_rbf_chooses_its_parameters_by_cross_validation():
    chosen = {}
    for make in (waves, noisy_line, lambda n: make_moons(n, noise=0.05, random_state=0)):
        X, y = make(300)
        grid, errors = held_out_errors(X, y, n_folds=4)
        tree = SVMTreeClassifier(tail_at=1, n_folds=4, random_state=0).fit(X, y)
        assert isinstance(tree.tail_, SVC)
        C, gamma = grid[int(np.argmin(errors))]  # the first of equals is the smoothest
        assert (tree.tail_.C, tree.tail_.gamma) == (C, pytest.approx(gamma, rel=1e-12))
        assert max(errors) > min(errors)
        chosen[make.__name__] = C, gamma, errors.count(min(errors))
    assert chosen["waves"][1] > 2.0 * chosen["noisy_line"][1]
    assert chosen["<lambda>"][2] > 1  # where several machines are as good
    X, y = make_moons(600, noise=0.1, random_state=0)
    assert SVMTreeClassifier(random_state=0).fit(X, y).score(X, y) > 0.98


def test_a_method_that_cannot_serve_the_tail_is_refused_before_training(monkeypatch):
    X, y = moons()
    monkeypatch.setattr(train, "cross_validate", lambda *arguments: pytest.fail("trained before it was refused"))
    for options in ({"tail_method": "taylor_tree"}, {"tail_options": {"agreement": None}}):
        with pytest.raises(ValueError, match=r"GaussianNB is no kernel machine that svelto reads"):
            quick(tail=GaussianNB(), **options).fit(X, y)
