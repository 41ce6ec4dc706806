"""Trees of linear SVMs for tests: parameters, rows, trees that several tests ask, and their answers by definition."""

from __future__ import annotations

import functools

import numpy as np
from sklearn.datasets import load_digits, make_moons
from sklearn.svm import SVC

from svelto import SVMTreeClassifier

PAPER = {"tail": None, "last": "class", "prefer": "rows", "greedy": 0, "min_peeled": 0.0}
# Rows of the digits that `digits_tree` learns from.
N_KNOWN = 600


def quick(**parameters):
    """A tree with a fixed tail, so that nothing is searched for."""
    return SVMTreeClassifier(**{"tail": SVC(C=10.0, gamma=1.0), "random_state": 0, **parameters})


def scaled(tree, X):
    return (X - tree.scale_shift_) / tree.scale_factor_


@functools.cache
def moons():
    """Two classes, 1,500 rows; nobody can change them."""
    return _frozen(*make_moons(1500, noise=0.15, random_state=0))


@functools.cache
def digits():
    """Ten classes with letters for names, 1,797 rows."""
    X, y = load_digits(return_X_y=True)
    return _frozen(X, np.array(list("abcdefghij"))[y])


def _frozen(X, y):
    X.flags.writeable = y.flags.writeable = False
    return X, y


@functools.cache
def moons_tree():
    """A tree that knows 1,000 of the moons; about half of the rows reach the tail."""
    X, y = moons()
    return quick(probability=True, n_folds=3).fit(X[:1000], y[:1000])


def digits_tree(has_tail=True, multi_class="ovo"):
    """A tree that knows `N_KNOWN` of the digits."""
    return _digits_tree(has_tail, multi_class)


@functools.cache
def _digits_tree(has_tail, multi_class):
    X, y = digits()
    tail = SVC(C=10.0) if has_tail else None
    return quick(tail=tail, multi_class=multi_class, n_folds=3, probability=True).fit(X[:N_KNOWN], y[:N_KNOWN])


def outcomes_by_definition(tree, X):
    """Every chain of every row in float64, one node after the other: outcomes and nodes met, (n_rows, n_chains)."""
    chains = tree._tree.chains
    outcome = np.empty((len(X), chains.n_chains), dtype=int)
    depth = np.empty_like(outcome)
    for c in range(chains.n_chains):
        nodes = range(chains.chain_start[c], chains.chain_start[c + 1])
        for r, x in enumerate(X):
            outcome[r, c], depth[r, c] = chains.end[c], len(nodes)
            for position, h in enumerate(nodes):
                score = chains.planes[h] @ x
                if score < chains.low[h] or score > chains.high[h]:
                    outcome[r, c], depth[r, c] = (-1 if score < chains.low[h] else 1), position + 1
                    break
    return outcome, depth


def votes_by_definition(tree, outcome):
    """Duels won by every class."""
    won = np.zeros((len(outcome), len(tree.classes_)), dtype=int)
    for c, (negative, positive) in enumerate(tree._tree.chains.classes_of_chain):
        won[:, negative] += outcome[:, c] == -1
        won[:, positive] += outcome[:, c] == 1
    return won


def assert_same_tree(one, other):
    """Equal to the last bit, in every array that answers."""
    for name in ("planes", "low", "high", "chain_start", "end", "classes_of_chain", "order"):
        np.testing.assert_array_equal(getattr(one._tree.chains, name), getattr(other._tree.chains, name))
    np.testing.assert_array_equal(one.classes_, other.classes_)
    assert one.describe() == other.describe()
