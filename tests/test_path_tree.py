"""Path trees: walking, scores and arrays against a recursive definition, and what is said about bad terms."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import svelto
from svelto.path_tree import Leaf, Node, PathTree, as_they_are, flatten

ARRAYS = ("column", "test", "threshold", "children", "coef", "constant")


def slow_walk(node, terms, x, values=()):
    """Score and values of one row, by recursion over linked nodes. Never optimise this one."""
    if isinstance(node, Leaf):
        linear = 0.0 if node.slope is None else node.slope @ x
        return node.constant + sum((v * c for v, c in zip(values, node.coef, strict=True)), 0.0) + linear, values, node
    if node.column >= 0:
        values = (*values, terms[node.column])
    second = node.test >= 0 and values[node.test] > node.threshold
    return slow_walk(node.children[int(second)], terms, x, values)


def random_root(rng, n_columns, depth, n_scores=1, d=0, n_values=0):
    """Nodes of all kinds: with and without a value of their own, tests of any value on the path, chains, leaves."""
    if depth == 0 or (n_values and rng.random() < 0.15):
        slope = rng.integers(-3, 4, size=(n_scores, d)).astype(float) if d else None
        return Leaf(
            rng.integers(-3, 4, size=(n_values, n_scores)).astype(float),
            rng.integers(-3, 4, size=n_scores).astype(float),
            slope,
        )
    column = int(rng.integers(n_columns)) if rng.random() < 0.8 else -1
    n_values += column >= 0
    below = (rng, n_columns, depth - 1, n_scores, d, n_values)
    if n_values and rng.random() < 0.7:
        # Thresholds are values too: a value equal to its threshold goes to the first child.
        children = random_root(*below), random_root(*below)
        return Node(column, children, int(rng.integers(n_values)), float(rng.integers(-2, 3)))
    return Node(column, (random_root(*below),))


def whole_numbers(rng, *shape):
    """Small whole numbers: every sum is exact, so all comparisons are equalities."""
    return rng.integers(-4, 5, size=shape).astype(float)


def ask(terms):
    return lambda rows, column: terms[rows, column]


@pytest.mark.parametrize("n_scores", [1, 3])
@pytest.mark.parametrize("d", [0, 2])
def test_walk_and_scores_match_the_definition(n_scores, d):
    seen = set()
    for seed in range(30):
        rng = np.random.default_rng(seed)
        root = random_root(rng, 6, depth=int(rng.integers(0, 7)), n_scores=n_scores, d=d)
        terms, X = whole_numbers(rng, 50, 6), whole_numbers(rng, 50, d)
        tree = flatten(root, n_scores)
        walk = tree.walk(ask(terms), 50)
        scores = tree.scores(walk, X if d else None)
        paths = tree.leaf_columns[walk.leaf]
        for row in range(50):
            expected, values, leaf = slow_walk(root, terms[row], X[row])
            n = len(values)
            assert_array_equal(scores[row], expected)
            assert walk.evaluations[row] == n
            assert_array_equal(walk.values[row, :n], values)
            assert not walk.values[row, n:].any()
            assert_array_equal(tree.constant[walk.leaf[row]], leaf.constant)
            assert_array_equal(tree.coef[walk.leaf[row]][:n], leaf.coef)
            assert not tree.coef[walk.leaf[row]][n:].any()
            assert_array_equal(terms[row, paths[row, :n]], values)  # leaf_columns names the columns of the values
            assert (paths[row, n:] == -1).all()
            seen.add((n, n < tree.height))
    assert len(seen) > 6  # paths of many lengths, also shorter than the tree is high


def test_only_terms_on_a_rows_path_are_asked_for():
    rng = np.random.default_rng(3)
    root, terms = random_root(rng, 6, depth=6), whole_numbers(rng, 40, 6)
    tree, asked = flatten(root, 1), [set() for _ in range(40)]
    calls = []

    def remember(rows, column):
        assert type(column) is int
        assert (np.diff(rows) > 0).all()
        assert len(rows)
        calls.append(column)
        for row in rows:
            asked[row].add(column)
        return terms[rows, column]

    expected = np.array([slow_walk(root, row, [])[0][0] for row in terms])
    assert_array_equal(tree.predict(remember, 40), expected)
    assert len(calls) <= (tree.column >= 0).sum()  # once a node
    assert set(calls) <= set(tree.columns.tolist())
    paths = tree.leaf_columns[tree.walk(ask(terms), 40).leaf]
    assert [sorted(a) for a in asked] == [sorted(set(p[p >= 0].tolist())) for p in paths]
    # The function may return a list, and the rows it is asked for do not depend on the other rows.
    assert_array_equal(tree.predict(lambda rows, j: terms[rows, j].tolist(), 40), expected)
    for row in range(40):
        assert tree.predict(terms[row : row + 1])[0] == expected[row]
    assert_array_equal(tree.evaluations(terms), [(p >= 0).sum() for p in paths])
    assert_array_equal(tree.evaluations(ask(terms), 40), tree.evaluations(terms))


@pytest.mark.parametrize("n_scores", [1, 3])
def test_predict_takes_a_matrix_or_a_function(n_scores):
    rng = np.random.default_rng(n_scores)
    tree = flatten(random_root(rng, 5, depth=5, n_scores=n_scores), n_scores)
    terms = whole_numbers(rng, 20, 5)
    found = tree.predict(terms)
    assert found.shape == ((20,) if n_scores == 1 else (20, n_scores))
    wider = np.column_stack([terms, np.full((20, 2), np.nan)])  # further terms are never looked at
    for form in (terms.tolist(), terms.astype(np.float32), terms.astype(int), np.asfortranarray(terms), wider):
        assert_array_equal(tree.predict(form), found)
    assert_array_equal(tree.predict(ask(terms), n_rows=20), found)
    assert tree.predict(terms[:0]).shape == found[:0].shape
    assert tree.predict(lambda rows, j: pytest.fail("nothing to ask for"), 0).shape == found[:0].shape


def test_arrays_of_a_small_tree():
    """A root that tests, a chain without a test on one side, and a leaf at once on the other."""
    first, second = Leaf(np.array([[2.0], [3.0]]), np.array([1.0])), Leaf(np.array([[5.0]]), np.array([-1.0]))
    tree = flatten(Node(7, (Node(4, (first,)), second), test=0, threshold=0.5), 1)
    assert (tree.n_leaves, tree.n_scores, tree.height) == (2, 1, 2)
    assert tree.column.tolist() == [7, 4]
    assert tree.test.tolist() == [0, -1]
    assert tree.threshold.tolist() == [0.5, 0.0]
    assert tree.children.tolist() == [[1, ~0], [~1, ~1]]
    assert tree.coef[:, :, 0].tolist() == [[5.0, 0.0], [2.0, 3.0]]  # leaves are numbered level by level
    assert tree.constant.tolist() == [[-1.0], [1.0]]
    assert tree.columns.tolist() == [4, 7]
    assert tree.leaf_columns.tolist() == [[7, -1], [7, 4]]
    assert tree.nbytes == 2 * (4 + 4 + 8 + 2 * 4) + 4 * 8 + 2 * 8
    terms = np.zeros((3, 8))
    terms[:, 7], terms[:, 4] = [0.5, 0.5 + 1e-9, -1.0], 10.0  # at the threshold: the first child
    assert_allclose(tree.predict(terms), [1 + 1 + 30, -1 + 2.5 + 5e-9, 1 - 2 + 30], rtol=0, atol=1e-13)
    assert tree.evaluations(terms).tolist() == [2, 1, 2]


def test_children_have_larger_numbers_than_their_parents():
    for seed in range(20):
        tree = flatten(random_root(np.random.default_rng(seed), 4, depth=6), 1)
        for node, children in enumerate(tree.children):
            assert all(child < 0 or child > node for child in children)
            assert tree.test[node] >= 0 or children[0] == children[1]
        leaves = np.unique(tree.children[tree.children < 0])
        assert_array_equal(np.sort(~leaves), np.arange(tree.n_leaves))


@pytest.mark.parametrize("n_scores", [1, 2])
def test_a_tree_of_one_leaf_asks_for_nothing(n_scores):
    constant = np.arange(n_scores) + 4.0
    tree = flatten(Leaf(np.empty((0, n_scores)), constant), n_scores)
    assert (tree.n_leaves, tree.height, tree.columns.tolist()) == (1, 0, [])
    assert tree.leaf_columns.shape == (1, 0)
    for terms in (np.empty((3, 0)), np.full((3, 2), np.nan)):
        assert_array_equal(tree.predict(terms).reshape(3, n_scores), np.tile(constant, (3, 1)))
        assert tree.evaluations(terms).tolist() == [0, 0, 0]


def test_a_column_may_be_on_a_path_twice():
    leaf = Leaf(np.array([[1.0], [10.0]]), np.array([0.0]))
    tree = flatten(Node(0, (Node(0, (leaf,)),)), 1)
    assert tree.predict([[2.0], [3.0]]).tolist() == [22.0, 33.0]
    assert tree.columns.tolist() == [0]


def test_slopes_need_the_rows():
    rng = np.random.default_rng(0)
    root = random_root(rng, 3, depth=3, d=2)
    tree, terms = flatten(root, 1), whole_numbers(rng, 10, 3)
    assert tree.slope.shape == (tree.n_leaves, 1, 2)
    assert tree.nbytes == sum(getattr(tree, name).nbytes for name in (*ARRAYS, "slope"))
    for asking in (tree.predict, tree.evaluations):
        with pytest.raises(ValueError, match=r"This tree has linear terms; it answers through the predictor it was"):
            asking(terms)


def test_pickle():
    rng = np.random.default_rng(1)
    tree, terms = flatten(random_root(rng, 4, depth=5), 1), whole_numbers(rng, 30, 4)
    again = pickle.loads(pickle.dumps(tree))
    assert isinstance(again, PathTree)
    for name in ARRAYS:
        assert_array_equal(getattr(again, name), getattr(tree, name))
    assert_array_equal(again.predict(terms), tree.predict(terms))


@pytest.mark.parametrize("d", [0, 2])
def test_a_tree_for_centred_values_becomes_one_for_plain_values(d):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        root, mean = random_root(rng, 5, depth=5, n_scores=2, d=d), whole_numbers(rng, 5)
        mu, sd = whole_numbers(rng, d), 2.0 ** rng.integers(-1, 3, size=d)  # divisions stay exact
        terms, X = whole_numbers(rng, 40, 5), whole_numbers(rng, 40, d)
        plain = as_they_are(flatten(root, 2), mean, 1.0, mu, sd)
        found = plain.scores(plain.walk(ask(terms), 40), X if d else None)
        expected = [slow_walk(root, t, (x - mu) / sd)[0] for t, x in zip(terms - mean, X, strict=True)]
        assert_array_equal(found, expected)


# -- trees of any terms ------------------------------------------------------------------------------------------------


def votes(n, seed):
    """An ensemble: members that mostly say the same, and are sure of different parts of the line."""
    rng = np.random.default_rng(seed)
    return np.sign(rng.normal(size=(n, 1)) + 0.5 * rng.normal(size=(n, 40)))


@pytest.mark.parametrize("tree", ["refitted", "paper"])
def test_a_tree_of_any_terms(tree):
    terms, new = votes(1000, 0), votes(500, 1)
    fast = svelto.path_tree(terms, tree=tree, max_evals=6, random_state=0, n_jobs=1)
    assert 1 < fast.evaluations(new).max() <= 6
    sums = new.sum(axis=1)
    assert ((fast.predict(new) - sums) ** 2).mean() < (0.2 if tree == "refitted" else 0.4) * sums.var()
    again = svelto.path_tree(terms.tolist(), terms.sum(axis=1), tree=tree, max_evals=6, random_state=0, n_jobs=2)
    assert_array_equal(again.predict(new), fast.predict(new))
    several = np.column_stack([terms.sum(axis=1), terms[:, :20].sum(axis=1)])
    both = svelto.path_tree(terms, several, tree=tree, random_state=0)
    assert both.predict(new).shape == (500, 2)
    assert ((both.predict(new)[:, 1] - new[:, :20].sum(axis=1)) ** 2).mean() < 0.5 * new[:, :20].sum(axis=1).var()
    assert svelto.path_tree(terms[:2], tree=tree).predict(terms[:2]).shape == (2,)


@pytest.mark.parametrize(
    ("terms", "options", "message"),
    [
        (np.zeros(5), {}, "terms has shape (5,); expected (n_rows, n_terms), at least 2 rows"),
        (np.zeros((1, 5)), {}, "terms has shape (1, 5); expected (n_rows, n_terms), at least 2 rows"),
        (np.zeros((5, 0)), {}, "terms has shape (5, 0); expected"),
        (np.zeros((5, 2)), {"r": np.zeros(4)}, "r has shape (4,); expected (5,) or (5, n_scores)."),
        (np.full((5, 2), np.inf), {}, "Row 0 of terms is not finite; expected finite numbers."),
        (np.eye(5), {"r": [0, 0, np.nan, 0, 0]}, "Row 2 of r is not finite; expected finite numbers."),
        (np.eye(5), {"tree": "oak"}, "tree is 'oak'; expected one of 'refitted', 'paper'."),
        (np.eye(5), {"max_evals": 0}, "max_evals is 0; expected a whole number of at least 1 or None."),
        (np.eye(5), {"held_out": 1.0}, "held_out is 1.0; expected a share between 0 and 1."),
        (np.eye(5), {"look_ahead": 0}, "look_ahead is 0; expected a whole number of at least 1."),
        (np.eye(5), {"prior_rows": -1}, "prior_rows is -1; expected a positive number."),
    ],
    ids=str,
)
def test_bad_terms_and_options(terms, options, message):
    with pytest.raises(ValueError, match="expected") as caught:
        svelto.path_tree(terms, **options)
    assert message in str(caught.value)


# -- terms that cannot be read -----------------------------------------------------------------------------------------


def small_tree():
    leaf = Leaf(np.array([[1.0], [1.0]]), np.array([0.0]))
    return flatten(Node(1, (Node(3, (leaf,)),)), 1)


@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 4, 1), ()], ids=str)
def test_terms_of_a_wrong_shape(shape):
    with pytest.raises(ValueError, match="terms has shape") as caught:
        small_tree().predict(np.zeros(shape))
    assert str(caught.value) == f"terms has shape {shape}; expected (n_rows, n_terms) with n_terms >= 4."


def test_a_function_needs_the_number_of_rows():
    with pytest.raises(ValueError, match=r"^With a function for the terms, pass n_rows, the number of rows\.$"):
        small_tree().predict(lambda rows, column: np.zeros(len(rows)))


@pytest.mark.parametrize("returned", [0.0, np.zeros(4), np.zeros((5, 1)), np.zeros((1, 5)), []], ids=np.shape)
def test_a_function_that_returns_a_wrong_shape(returned):
    with pytest.raises(ValueError, match="The function for the terms returned") as caught:
        small_tree().predict(lambda rows, column: returned, 5)
    shape = np.shape(returned)
    assert str(caught.value).endswith(f"returned an array of shape {shape} for 5 rows; expected (5,).")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_terms_that_are_not_finite(bad):
    terms = np.zeros((5, 4))
    terms[3, 3] = bad
    for form, more in ((terms, ()), (ask(terms), (5,))):
        with pytest.raises(ValueError, match=r"^Term 3 of row 3 is not finite; expected finite numbers\.$"):
            small_tree().predict(form, *more)
    terms[3, 3], terms[3, 2] = 1.0, bad  # a term that the tree does not have is not looked at
    assert small_tree().predict(terms).tolist() == [0.0, 0.0, 0.0, 1.0, 0.0]
