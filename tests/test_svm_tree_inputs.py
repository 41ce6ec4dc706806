"""SVMTreeClassifier: its texts, and what it does with degenerate and bad input."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_classification, make_moons
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from svelto import SVMTreeClassifier
from svm_tree_cases import PAPER, moons, quick

# -- tables and texts --------------------------------------------------------------------------------------------------


def test_describe_says_what_each_node_is():
    X, y = moons()
    tree = SVMTreeClassifier(**PAPER).fit(X, y)
    lines = tree.describe().splitlines()
    assert lines[0].split() == ["chain", "node", "solver", "hard", "class", "sign", "perpendicular", "settled"]
    assert len(lines) == tree.n_nodes_ + 1 == len(tree.nodes_) + 1
    first = tree.nodes_[0]
    assert lines[1].split()[:5] == ["0", "0", first.solver, str(first.hard_class), str(first.sign)]
    assert {node.hard_class for node in tree.nodes_} <= {0, 1}
    assert sum(node.settled for node in tree.nodes_) <= len(y)
    assert tree.n_grown_[0] >= tree.depths_[0] == tree.n_nodes_
    assert tree.ended_ == ["one class"]
    rest = SVMTreeClassifier(**PAPER, multi_class="ovr").fit(*load_iris(return_X_y=True))
    assert "rest" in rest.describe()


# -- degenerate and bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parameters", [{}, {"tail": None}, PAPER, {"probability": False, "tail": "rbf"}], ids=str)
def test_two_rows(parameters):
    tree = quick(**parameters).fit([[0.0, 1.0], [1.0, 0.0]], ["no", "yes"])
    np.testing.assert_array_equal(tree.predict([[0.0, 1.0], [1.0, 0.0]]), ["no", "yes"])


@pytest.mark.parametrize("parameters", [{}, {"tail": None}, PAPER], ids=str)
def test_equal_rows_with_both_labels(parameters):
    X, y = [[0.0], [0.0], [0.0], [1.0], [1.0]], [0, 1, 1, 0, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tree = quick(**parameters).fit(X, y)
        same = quick(**parameters).fit(np.zeros((4, 2)), [0, 1, 1, 1])
    np.testing.assert_array_equal(tree.predict([[0.0], [1.0]]), [1, 0])
    assert same.predict([[0.0, 0.0]])[0] == 1


def test_a_chain_that_is_stuck_says_so():
    with pytest.warns(ConvergenceWarning, match=r"1 of 1 chains ended .*no hyperplane removed a row.*A tail would"):
        tree = SVMTreeClassifier(**PAPER).fit([[0.0], [0.0], [1.0], [1.0]], [0, 1, 0, 1])
    assert tree.ended_ == ["stuck"]
    X, y = make_moons(300, noise=0.2, random_state=0)
    with pytest.warns(ConvergenceWarning, match="max_nodes was reached"):
        SVMTreeClassifier(**PAPER, max_nodes=1).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="as min_peeled asks for"):
        SVMTreeClassifier(tail=None, last="class", min_peeled=0.3).fit(X, y)


def test_a_centroid_inside_the_hull_of_the_other_class():
    rng = np.random.default_rng(0)
    ring = rng.normal(size=(200, 2))
    ring /= np.linalg.norm(ring, axis=1, keepdims=True)
    X, y = np.vstack([ring, 0.3 * rng.normal(size=(100, 2))]), np.repeat([0, 1], [200, 100])
    tree = SVMTreeClassifier(**PAPER).fit(X, y)
    assert tree.score(X, y) > 0.98


def test_a_class_with_one_row():
    X, y = make_moons(300, noise=0.1, random_state=0)
    X, y = np.vstack([X, [[5.0, 5.0]]]), np.append(y, 2)
    for parameters in ({}, {"tail": None}, PAPER, {"multi_class": "ovr"}):
        tree = quick(**{"tail_loss": 0.02, "n_folds": 3, **parameters}).fit(X, y)
        assert tree.predict([[5.0, 5.0]])[0] == 2


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"multi_class": "all"}, "multi_class is 'all'; expected one of 'ovo', 'ovr'"),
        ({"scale": "robust"}, "scale is 'robust'; expected one of 'standard', 'minmax', None"),
        ({"last": "plane"}, "last is 'plane'"),
        ({"prefer": "width"}, "prefer is 'width'; expected one of 'margin', 'rows'"),
        ({"greedy": 2}, "greedy is 2; expected 0 or 1"),
        ({"greedy": True}, "greedy is True"),
        ({"max_nodes": 0}, "max_nodes is 0; expected a whole number of at least 1"),
        ({"n_folds": 1}, "n_folds is 1; expected a whole number of at least 2"),
        ({"tail_loss": -0.1}, "tail_loss is -0.1; expected a share"),
        ({"min_peeled": 1.0}, "min_peeled is 1.0; expected a share"),
        ({"allowed_error": "no"}, "allowed_error is 'no'"),
        ({"tail": "linear"}, "tail is 'linear'; expected one of 'rbf'"),
        ({"tail": SVR()}, "expected 'rbf', a classifier that can be fitted, or None"),
        ({"tail": KNeighborsClassifier(), "tail_method": "taylor_tree"}, "no kernel machine that svelto reads"),
        ({"tail": 3}, "tail is 3; expected 'rbf', a classifier that can be fitted, or None"),
        ({"tail_at": -1}, "tail_at is -1; expected 'auto' or a whole number"),
        ({"tail_at": "end"}, "tail_at is 'end'"),
        ({"tail_method": "fast"}, "tail_method is 'fast'"),
        ({"tail_options": 3}, "tail_options is 3"),
        ({"probability": 1}, "probability is 1; expected True or False"),
        ({"n_jobs": 0}, "n_jobs is 0"),
    ],
)
def test_parameters_are_checked(parameters, message):
    X, y = moons()
    with pytest.raises(ValueError, match=message):
        SVMTreeClassifier(**parameters).fit(X[:200], y[:200])


def test_rows_and_labels_are_checked():
    X, y = moons()
    with pytest.raises(ValueError, match="y holds 1 class"):
        quick().fit(X, np.zeros(len(y)))
    with pytest.raises(ValueError, match="NaN"):
        quick().fit(np.where(X > 1, np.nan, X), y)
    with pytest.raises(ValueError, match="Feature 0 ranges from"):
        quick().fit(np.array([[-1e308], [1.7e308], [1.6e308]]), [0, 1, 1])
    with pytest.raises(ValueError, match="No row of class 1 has a positive weight"):
        quick().fit(X, y, sample_weight=y == 0)
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        quick().fit(X, y, sample_weight=-np.ones(len(y)))
    with pytest.raises(ValueError, match="takes no sample_weight"):
        quick(tail=KNeighborsClassifier()).fit(X, y, sample_weight=np.full(len(y), 0.5))
    with pytest.raises(NotFittedError):
        quick().predict(X)
    tree = quick(tail_at=1).fit(X, y)
    for rows in (np.zeros((2, 3)), np.zeros((200, 3))):
        with pytest.raises(ValueError, match="3 features"):
            tree.predict(rows)
    for rows in (np.array([[0.0, np.nan]]), np.full((100, 2), np.inf)):
        with pytest.raises(ValueError, match=r"NaN|infinity|inf"):
            tree.predict(rows)
    with pytest.raises(ValueError, match="no class has two different rows"):
        quick(probability=True).fit([[0.0], [1.0]], [0, 1])


@pytest.mark.filterwarnings("ignore:.*max_nodes was reached:sklearn.exceptions.ConvergenceWarning")
def test_class_weight_moves_the_boundary():
    X, y = make_classification(400, 4, n_informative=3, n_redundant=0, class_sep=0.5, random_state=1)

    def small(**parameters):
        return quick(max_nodes=5, n_folds=2, **parameters)

    for tail in (None, SVC()):
        shares = [small(tail=tail, class_weight=w).fit(X, y).predict(X).mean() for w in (None, {0: 1.0, 1: 5.0})]
        assert shares[1] > shares[0] + 0.05
    few = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:40]])
    plain, balanced = (small(tail=None, class_weight=w).fit(X[few], y[few]) for w in (None, "balanced"))
    assert balanced.predict(X).mean() > plain.predict(X).mean() + 0.1
    halves = np.where(y[few] == 1, 1.0, 0.5)
    factor = {k: halves.sum() / 2 / halves[y[few] == k].sum() for k in (0, 1)}
    by_hand = small(tail=None, class_weight=factor).fit(X[few], y[few], sample_weight=halves)
    with_weights = small(tail=None, class_weight="balanced").fit(X[few], y[few], sample_weight=halves)
    np.testing.assert_array_equal(by_hand.predict(X), with_weights.predict(X))
    pipe = make_pipeline(StandardScaler(), SVC())
    assert quick(tail=pipe, tail_at=1, class_weight="balanced").fit(X[few], y[few]).score(X, y) > 0.5


def test_interrupt_ends_training(monkeypatch):
    from svelto.training._svm_tree import growth

    calls = []

    def stop(*arguments):
        calls.append(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(growth, "_best_node", stop)
    tree = quick(n_jobs=2)
    with pytest.raises(KeyboardInterrupt):
        tree.fit(*load_iris(return_X_y=True))
    assert calls
    assert not hasattr(tree, "classes_")
