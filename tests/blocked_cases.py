"""Machines with lists, however small, and rows where a wrong bound shows; shared by the tests of sums in blocks."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from oracle import libsvm_order_label, slow_scores
from svelto._inputs import Query
from svelto.engines import blocked_sum, panel_lists
from svelto.engines.blocked_sum import BlockedSum
from svelto.engines.exact import ExactEngine

KERNELS = ("rbf", "exponential", "laplacian")
TASKS = ({}, {"n_classes": 4}, {"n_classes": 3, "rule": "argmax"}, {"task": "outlier"})


@contextmanager
def short_lists(longest=1.0, chunks=(1, 1, 2, 1)):
    """Lists for machines of a few panels, in chunks of one or two of them; over all panels or a share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocked_sum, "LEAST_PANELS", 1)
        patch.setattr(panel_lists, "FIRST_CHUNKS", chunks)
        patch.setattr(panel_lists, "CHUNK_TO_CHECK", 0.0)
        patch.setattr(panel_lists, "CHUNK_TO_CHECK", 0.0)
        patch.setattr(panel_lists, "LONGEST_SHARE", longest)
        yield


def forced(machine, X=None, n_lists=3, *, longest=0.8, chunks=(1, 1, 2, 1), precision="auto"):
    """An engine with lists; `both_ways` has them all walked."""
    with short_lists(longest, chunks):
        return BlockedSum(machine, X, n_lists, 0, precision)


def both_ways(engine):
    """The engine with every list walked in float32 first, then with every list walked in float64."""
    for how in (1, 2):
        engine.enabled[:] = how
        engine.share = 0.0  # CSR rows walk the lists, too
        yield engine


def rows(n, d, seed=1):
    return np.random.default_rng(seed).normal(size=(n, d))


def named(machine, labels):
    """Labels in vote order as the oracle names them."""
    if machine.task == "outlier":
        return np.where(labels == 1, 1, -1)
    return machine.classes[machine.vote_order[labels]]


def oracle_labels(machine, X):
    return np.array([libsvm_order_label(machine, x) for x in X])


def balanced(machine, X):
    """The same machine with intercepts that let every score take both signs on the rows."""
    return replace(machine, intercept=machine.intercept - np.median(slow_scores(machine, X), axis=0))


def boundary_rows(machine, X):
    """Rows on the decision boundary: bisection between rows of different labels until no double lies between.

    Scores there are zero but for rounding, so an interval that misses the score says the wrong label for one of two
    neighbours.
    """
    engine = ExactEngine(machine)
    labels = engine.labels(Query(X))[0]
    order = np.random.default_rng(0).permutation(len(X))
    apart = labels != labels[order]
    a, b, of_a = X[apart], X[order][apart], labels[apart]
    for _ in range(200 if len(a) else 0):
        middle = 0.5 * a + 0.5 * b
        if ((middle == a) | (middle == b)).all(axis=1).all():
            break
        on_a = (engine.labels(Query(middle))[0] == of_a)[:, None]
        a, b = np.where(on_a, middle, a), np.where(on_a, b, middle)
    return np.vstack([a, b])
