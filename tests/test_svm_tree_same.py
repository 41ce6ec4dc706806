"""The same rows give the same tree and the same answers: in any order, layout, type, batch, and number of threads."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.svm import SVC

from svm_tree_cases import N_KNOWN, PAPER, assert_same_tree, digits, digits_tree, moons, moons_tree, quick

# -- the same tree -----------------------------------------------------------------------------------------------------

FEW = [{"tail": None}, PAPER, {"tail": SVC(), "tail_loss": 0.02}]


@pytest.mark.parametrize("parameters", FEW, ids=str)
def test_weights_are_repetition_and_order_does_not_matter(parameters):
    X, y = make_moons(150, noise=0.2, random_state=0)
    times = np.random.default_rng(0).integers(0, 4, len(y))
    weighted = quick(**parameters).fit(X, y, sample_weight=times)
    shuffled = np.random.default_rng(1).permutation(np.repeat(np.arange(len(y)), times))
    repeated = quick(**parameters).fit(X[shuffled], y[shuffled])
    assert_same_tree(weighted, repeated)
    np.testing.assert_array_equal(weighted.predict(X), repeated.predict(X))


@pytest.mark.parametrize("class_weight", [None, "balanced", {"inner": 3.0}], ids=str)
@pytest.mark.parametrize("parameters", FEW, ids=str)
def test_rows_of_weight_zero_are_left_out(parameters, class_weight):
    X, y = make_moons(100, noise=0.2, random_state=0)
    kept = (y == 0) | (np.arange(len(y)) % 3 == 0)  # one class has more rows than the other
    X, y = X[kept], np.where(y[kept] == 1, "outer", "inner")
    tree = quick(**parameters, n_folds=2, class_weight=class_weight).fit(X, y)
    # Rows that would change everything: far away, and copies with the other label.
    far, other = np.array([[1e6, -1e6], [-300.0, 5.0]]), np.where(y == "outer", "inner", "outer")
    X_all, y_all = np.vstack([far, X, X]), np.concatenate([["inner", "outer"], y, other])
    weight = np.concatenate([[0.0, 0.0], np.ones(len(y)), np.zeros(len(y))])
    same = quick(**parameters, n_folds=2, class_weight=class_weight).fit(X_all, y_all, sample_weight=weight)
    assert_same_tree(tree, same)
    np.testing.assert_array_equal(same.scale_shift_, tree.scale_shift_)
    np.testing.assert_array_equal(same.scale_factor_, tree.scale_factor_)
    np.testing.assert_array_equal(same.decision_function(X), tree.decision_function(X))


def layouts(X):
    """The same numbers in other arrays, none of which is C-contiguous, writeable float64."""
    wide = np.full((2 * len(X), 2 * X.shape[1] + 1), -7.0)
    wide[::2, 1::2] = X
    frozen = X.copy()
    frozen.flags.writeable = False
    unaligned = np.zeros(X.nbytes + 1, dtype=np.uint8)[1:].view(X.dtype).reshape(X.shape)
    unaligned[:] = X
    return {
        "Fortran": np.asfortranarray(X),
        "strided": wide[::2, 1::2],
        "backwards": X[::-1].copy()[::-1],
        "read-only": frozen,
        "unaligned": unaligned,
        "big-endian": X.astype(">f8"),
        "float32": X.astype(np.float32),
        "integers": X.astype(np.int64),
        "list": X.tolist(),
        "DataFrame": pd.DataFrame(X).to_numpy(),
    }


@pytest.mark.parametrize("layout", layouts(np.ones((1, 1))))
def test_any_layout_of_the_rows(layout):
    X, y = digits()  # whole numbers: every type holds them
    tree = digits_tree()
    for n_rows in (1, 5, 16, 17, 200):  # a few rows take a way of their own
        rows = layouts(X[N_KNOWN : N_KNOWN + n_rows])[layout]
        before = np.array(rows)
        np.testing.assert_array_equal(tree.predict(rows), tree.predict(X[N_KNOWN : N_KNOWN + n_rows]))
        np.testing.assert_array_equal(rows, before)
    rows = layouts(X[N_KNOWN : N_KNOWN + 100])[layout]
    np.testing.assert_array_equal(tree.decision_function(rows), tree.decision_function(X[N_KNOWN : N_KNOWN + 100]))
    np.testing.assert_array_equal(
        tree.decision_path(rows).toarray(), tree.decision_path(X[N_KNOWN : N_KNOWN + 100]).toarray()
    )
    few = np.flatnonzero(y < "d")[:90]
    trained = quick(**PAPER).fit(layouts(X[few])[layout], y[few])
    assert_same_tree(trained, quick(**PAPER).fit(X[few], y[few]))


def test_float32_rows_are_rows_of_float64():
    X, y = make_moons(300, noise=0.15, random_state=0)
    thin = X.astype(np.float32)
    assert (thin != X).any()
    tree, same = quick(tail_loss=0.01).fit(thin, y), quick(tail_loss=0.01).fit(thin.astype(np.float64), y)
    assert_same_tree(tree, same)
    np.testing.assert_array_equal(tree.predict(thin), tree.predict(thin.astype(np.float64)))


def test_threads_do_not_change_the_tree():
    X, y = digits()
    few = np.flatnonzero(y < "g")[:300]
    one, two = (quick(n_jobs=n, tail=SVC(C=10), tail_loss=0.02, n_folds=3).fit(X[few], y[few]) for n in (1, 2))
    assert one.n_nodes_ > 0
    assert_same_tree(one, two)
    np.testing.assert_array_equal(one.predict(X), two.predict(X))
    np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))


@pytest.mark.parametrize("multi_class", ["ovo", "ovr"])
@pytest.mark.parametrize("has_tail", [True, False], ids=["tail", "no tail"])
def test_batches_and_single_rows_agree(has_tail, multi_class):
    rows = digits()[0][N_KNOWN : N_KNOWN + 200]
    tree = digits_tree(has_tail, multi_class)
    whole, scores, chances = tree.predict(rows), tree.decision_function(rows), tree.predict_proba(rows)
    path = tree.decision_path(rows).toarray()
    for i in range(len(rows)):
        one = rows[i : i + 1]
        assert tree.predict(one)[0] == whole[i]
        np.testing.assert_array_equal(tree.decision_path(one).toarray()[0], path[i])
        np.testing.assert_array_equal(tree.predict_proba(one)[0], chances[i])
        # Votes and margins of a row alone may be added in another order than those of a batch.
        np.testing.assert_allclose(tree.decision_function(one)[0], scores[i], rtol=0, atol=1e-14)


def test_sparse_rows():
    X, y = digits()
    X, y = X[y < "f"], y[y < "f"]
    dense = quick(tail=None, n_folds=2).fit(X[:300], y[:300])
    from_sparse = quick(tail=None, n_folds=2).fit(sparse.csr_matrix(X[:300]), y[:300])
    np.testing.assert_array_equal(dense.predict(X), from_sparse.predict(sparse.csr_array(X)))
    thin = np.where(np.random.default_rng(0).random(X.shape) < 0.1, X, 0.0)
    tree = quick(tail=SVC(), tail_at=4).fit(sparse.csr_matrix(thin[:300]), y[:300])
    assert tree._tree.chains.stored
    np.testing.assert_array_equal(tree.predict(thin), tree.predict(sparse.csr_matrix(thin)))
    np.testing.assert_array_equal(tree.predict(sparse.coo_matrix(thin[:3])), tree.predict(thin[:3]))
    np.testing.assert_array_equal(tree.predict(sparse.csr_matrix(thin[:3])), tree.predict(thin[:3]))
    unsorted = sparse.csr_matrix(thin[:5])
    unsorted.indices, unsorted.data = unsorted.indices.copy(), unsorted.data.copy()
    for row in range(5):
        part = slice(unsorted.indptr[row], unsorted.indptr[row + 1])
        unsorted.indices[part], unsorted.data[part] = unsorted.indices[part][::-1], unsorted.data[part][::-1]
    unsorted.has_sorted_indices = False
    np.testing.assert_array_equal(tree.predict(unsorted), tree.predict(thin[:5]))


# -- the same answers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_tail", [True, False], ids=["tail", "no tail"])
def test_a_pickled_tree_answers_the_same(has_tail):
    X, _ = digits()
    tree = digits_tree(has_tail)
    tree.predict(X)  # anything that is made at the first answer travels, or is made again
    again = pickle.loads(pickle.dumps(tree))
    assert_same_tree(tree, again)
    np.testing.assert_array_equal(again.predict(X), tree.predict(X))
    np.testing.assert_array_equal(again.predict(X[:1]), tree.predict(X[:1]))
    np.testing.assert_array_equal(again.decision_function(X), tree.decision_function(X))
    np.testing.assert_array_equal(again.predict_proba(X), tree.predict_proba(X))
    np.testing.assert_array_equal(again.decision_path(X).toarray(), tree.decision_path(X).toarray())
    assert again.work(X) == tree.work(X)
    assert repr(again) == repr(tree)


def test_a_clone_is_not_fitted_and_learns_the_same():
    X, y = moons()
    tree = moons_tree()
    bare = clone(tree)
    assert not hasattr(bare, "classes_")
    assert bare.get_params().keys() == tree.get_params().keys()
    again = bare.fit(X[:1000], y[:1000])
    assert_same_tree(tree, again)
    np.testing.assert_array_equal(again.predict(X), tree.predict(X))
    np.testing.assert_array_equal(again.predict_proba(X), tree.predict_proba(X))
    np.testing.assert_array_equal(again.decision_path(X).toarray(), tree.decision_path(X).toarray())


# -- labels and names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "dtype"),
    [
        (np.array([False, True]), np.bool_),
        (np.array(["no", "yes"], dtype=object), object),
        (np.array([-1.0, 1.0]), np.float64),
        (np.array([3, 250], dtype=np.uint8), np.uint8),
    ],
    ids=str,
)
def test_labels_keep_their_type(labels, dtype):
    X, y = moons()
    tree, numbered = (
        quick(tail_at=2, max_nodes=2, probability=True, n_folds=2).fit(X[:150], names[y[:150]])
        for names in (labels, np.arange(2))
    )
    assert tree.classes_.dtype == dtype
    np.testing.assert_array_equal(tree.classes_, labels)
    for rows in (X, X[:1], X[:0:-200]):
        answers = tree.predict(rows)
        assert answers.dtype == dtype
        np.testing.assert_array_equal(answers, labels[numbered.predict(rows)])
    np.testing.assert_array_equal(tree.decision_function(X), numbered.decision_function(X))
    np.testing.assert_array_equal(tree.predict_proba(X), numbered.predict_proba(X))
    assert {node.hard_class for node in tree.nodes_} <= set(labels.tolist())


def test_names_of_features():
    X, y = moons()
    table = pd.DataFrame(X, columns=["width", "height"])
    tree = quick(tail_at=2, max_nodes=2, probability=True, n_folds=2).fit(table[:300], y[:300])
    bare = quick(tail_at=2, max_nodes=2, probability=True, n_folds=2).fit(X[:300], y[:300])
    assert tree.feature_names_in_.tolist() == ["width", "height"]
    assert not hasattr(bare, "feature_names_in_")
    assert_same_tree(tree, bare)
    for method in ("predict", "decision_function", "predict_proba", "average_depth", "work"):
        for rows in (slice(None), slice(0, 3)):
            ask, expected = getattr(tree, method), getattr(bare, method)(X[rows])
            np.testing.assert_equal(ask(table[rows]), expected)
            for wrong in (table[["height", "width"]], table.rename(columns={"width": "breadth"})):
                with pytest.raises(ValueError, match="feature names should match those that were passed during fit"):
                    ask(wrong[rows])
            with pytest.warns(UserWarning, match="X does not have valid feature names"):
                np.testing.assert_equal(ask(X[rows]), expected)
            with pytest.warns(UserWarning, match="X has feature names, but SVMTreeClassifier was fitted without"):
                getattr(bare, method)(table[rows])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tree.fit(X[:300], y[:300])  # forgets them
        tree.predict(X)
    assert not hasattr(tree, "feature_names_in_")
