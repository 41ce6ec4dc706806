"""Rows unlike the given ones that a guard lets pass: they pass it, keep to grids, and teach hinges what is there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.svm import SVC

import svelto
from svelto import workshop
from svelto._inputs import Query
from svelto.guard import Guard
from svelto.guard_fit import guard_for
from svelto.guard_grid import Grids
from svelto.machine import KernelMachine
from svelto.strangers import passing_strangers


def clusters(n=3000, seed=0):
    """Four clusters far from each other, and what class each is of."""
    rng = np.random.default_rng(seed)
    number = rng.integers(4, size=n)
    centres = np.array([[0.0, 0.0, 0.0], [4.0, 0.0, 4.0], [0.0, 4.0, 4.0], [4.0, 4.0, 0.0]])
    return centres[number] + rng.normal(scale=0.5, size=(n, 3)), number % 2


def machine_and_guard(X, y):
    svc = SVC(C=10, gamma=0.5).fit(X, y)
    machine = KernelMachine.from_sklearn(svc)
    return svc, machine, guard_for(machine, X, seed=0)


def test_strangers_pass_the_guard_and_are_far_from_rows():
    X, y = clusters()
    _, _, guard = machine_and_guard(X, y)
    rows = passing_strangers(X, guard, 500, np.random.default_rng(0))
    assert 0 < len(rows) <= 500
    assert not guard(Query(rows)).any()
    distance = np.sqrt(((rows[:, None] - X[None, ::3]) ** 2).sum(axis=-1)).min(axis=1)
    usual = np.sqrt(((X[1::30, None] - X[None, ::3]) ** 2).sum(axis=-1)).min(axis=1)
    assert np.median(distance) > 2.0 * np.median(usual)
    np.testing.assert_array_equal(rows, passing_strangers(X, guard, 500, np.random.default_rng(0)))


def test_strangers_keep_to_grids():
    X, y = clusters()
    X = np.rint(2.0 * X)  # every feature is a count
    _, _, guard = machine_and_guard(X, y)
    assert guard.grids is not None
    assert guard.grids.features.all()
    rows = passing_strangers(X, guard, 300, np.random.default_rng(0))
    assert len(rows) > 0
    np.testing.assert_array_equal(rows, np.rint(rows))
    assert len(np.unique(rows, axis=0)) == len(rows)
    moved = guard.grids.nearest(X + 0.3)
    np.testing.assert_array_equal(moved, X)


def test_no_stranger_is_there_twice_where_values_are_few():
    """Of yes and no a fifth of the range is the same value again, and more of it makes all rows alike."""
    X = (np.random.default_rng(0).random((3000, 12)) < 0.3).astype(float)
    _, _, guard = machine_and_guard(X, X[:, 0] + X[:, 1] > X[:, 2])
    guard = replace(guard, grids=Grids(np.ones(12), np.zeros(12)))
    rows = passing_strangers(X, guard, 400, np.random.default_rng(0))
    assert len(rows) > 0
    assert len(np.unique(rows, axis=0)) == len(rows)
    of_one = passing_strangers(X[:1], guard, 400, np.random.default_rng(0))
    assert not (of_one == X[0]).all(axis=1).any()  # none is the row that it was made of


def test_where_no_stranger_passes_there_is_none():
    X = np.random.default_rng(0).normal(size=(400, 3)) * 1e-3
    X[:, 0] = 1.0  # a guard around a plane: whatever is shifted leaves it
    machine = KernelMachine.from_sklearn(SVC(gamma=1.0).fit(X, X[:, 1] > 0))
    guard = Guard.around(machine, [X], 0)
    rows = passing_strangers(X + 1e3, guard, 100, np.random.default_rng(0))
    assert rows.shape == (0, 3)


def test_hinges_learn_what_is_true_of_strangers(monkeypatch):
    X, y = clusters()
    svc, _, guard = machine_and_guard(X, y)
    rows = passing_strangers(clusters(seed=1)[0], guard, 3000, np.random.default_rng(1))

    def share_of_wrong():
        options = {"n_hinges": 7, "oracle_rows": 20_000, "next_stage": None, "agreement": 0.9}
        fast = svelto.accelerate(svc, X, method="hinges", random_state=0, **options)
        scores = fast._engine.stages[0].scores(Query(rows))[0][:, 0]
        return np.mean(svc.classes_[(scores < 0).astype(int)] != svc.predict(rows))

    knowing = share_of_wrong()
    monkeypatch.setattr(workshop, "STRANGE_SHARE", 0.0)
    assert 2.0 * knowing < share_of_wrong()


@pytest.mark.parametrize("draw", [0, 3])
def test_a_draw_is_the_same_again_and_unlike_others(draw):
    X, y = clusters(n=1500)
    svc = SVC(C=10, gamma=0.5).fit(X, y)
    options = {"method": "hinges", "agreement": None, "n_hinges": 15, "oracle_rows": 2000, "max_epochs": 2}

    def scores(number):
        fast = svelto.accelerate(svc, X, random_state=0, draw=number, **options)
        return fast._engine.stages[0].scores(Query(X))[0]

    np.testing.assert_array_equal(scores(draw), scores(draw))
    assert np.abs(scores(draw) - scores(draw + 1)).max() > 0.0


def test_a_draw_is_a_whole_number():
    X, y = clusters(n=300)
    with pytest.raises(ValueError, match="draw is -1; expected a whole number of at least 0"):
        svelto.accelerate(SVC().fit(X, y), X, method="hinges", draw=-1)
