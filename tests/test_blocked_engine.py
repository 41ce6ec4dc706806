"""Sums in blocks: which lists are kept, what is counted, pickles, damaged lists, and rounding at its worst."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.svm import SVC

from blocked_cases import both_ways, boundary_rows, forced, named, oracle_labels, rows, short_lists
from machines import random_machine
from oracle import libsvm_order_label, libsvm_order_scores, slow_scores
from sklearn_cases import read
from svelto import KernelMachine, _core
from svelto._inputs import Query
from svelto.datasets import two_spirals
from svelto.engines import blocked_sum, exact
from svelto.engines.blocked_sum import BlockedSum
from svelto.engines.exact import ExactEngine
from svelto.engines.packing import pack_machine

LEVELS = _core.available_levels()


@pytest.fixture(scope="module")
def spirals():
    """A machine that lists are made for: two features, a sharp kernel, hundreds of support vectors a turn."""
    X, y = two_spirals(2000, noise=0.02, random_state=0)
    # Packed by differences, numbers are multiplied by 8; by products, by 0.51 * 8 * sqrt(2): units that differ a lot.
    svc = SVC(C=0.05, gamma=(0.51 * 8.0) ** 2 / np.log2(np.e)).fit(X, y)
    Z = two_spirals(3000, noise=0.05, random_state=1)[0]
    return read(svc), X, Z, svc.predict(Z)


def test_an_easy_machine_takes_few_kernel_values(spirals):
    machine, X, Z, expected = spirals
    engine = BlockedSum(machine, X, 64)
    assert engine.is_bounding
    assert 0.0 < engine.share < 0.8
    labels, tally = engine.labels(Query(Z), 1)
    assert_array_equal(named(machine, labels), expected)
    work = tally.work(machine)
    assert work == engine.work(Query(Z), 1)
    assert work["rows"] == len(Z)
    assert sum(work["stages"].values()) == pytest.approx(1.0)
    assert work["stages"]["bounded"] > 0.5
    assert work["kernel_evaluations_per_row"] < 0.7 * machine.n_sv
    assert work["dot_products_per_row"] == len(engine.enabled)
    assert engine.nbytes > ExactEngine(machine).nbytes
    # Without rows of the data, support vectors and their surroundings have to do.
    assert_array_equal(named(machine, BlockedSum(machine).labels(Query(Z))[0]), expected)


def test_work_counts_what_lists_and_tiers_did(spirals):
    machine, X, Z, _ = spirals
    engine = BlockedSum(machine, X, 16)
    for way in both_ways(engine):
        counts = np.zeros((len(way.enabled), _core.LIST_COUNTS), dtype=np.int64)
        settled, panels, outcome = way._bounded(Z, np.empty(len(Z), dtype=np.int32), counts, False, 1)
        assert counts[:, 1].sum() == settled
        assert counts[:, 2:4].sum() == panels
        assert (counts[:, 1] <= counts[:, 0]).all()
        assert counts[:, 0].sum() <= len(Z)
        assert settled + sum(outcome[:3]) == len(Z)
        evaluations = way.work(Query(Z), 1)["kernel_evaluations_per_row"]
        assert evaluations == pytest.approx((panels * 32 + machine.n_sv * outcome[5]) / len(Z))
        if way.enabled[0] == 2:
            assert counts[:, 2].sum() == 0
            assert counts[:, 4].sum() == counts[:, 0].sum()


def test_lists_that_settle_nothing_are_not_built():
    machine = random_machine(n_sv=700, d=30, gamma=0.02)  # flat: every vector matters everywhere
    machine = replace(machine, intercept=machine.intercept - np.median(slow_scores(machine, rows(99, 30)), axis=0))
    engine = BlockedSum(machine, rows(300, 30))
    assert engine.lists is None
    assert not engine.is_bounding
    assert engine.share == 1.0
    labels, tally = engine.labels(Query(rows(50, 30)))
    assert_array_equal(named(machine, labels), oracle_labels(machine, rows(50, 30)))
    assert tally.float32 + tally.float64 + tally.reference == 50
    # Asked for, they are built, found out and left alone.
    engine = BlockedSum(machine, rows(300, 30), 8)
    assert engine.lists is not None
    assert not engine.is_bounding
    assert set(engine.work(Query(rows(50, 30)))["stages"]) == {"float32", "float64", "reference"}


def test_a_list_that_stops_paying_is_left_alone_within_a_call():
    machine = random_machine(n_sv=700, d=30, gamma=0.02)
    machine = replace(machine, intercept=machine.intercept - np.median(slow_scores(machine, rows(99, 30)), axis=0))
    engine = BlockedSum(machine, rows(300, 30), 1)
    engine.enabled[:] = 1
    X = rows(20_000, 30, seed=4)  # several steps
    counts = np.zeros((1, _core.LIST_COUNTS), dtype=np.int64)
    engine._bounded(X, np.empty(len(X), dtype=np.int32), counts, False, 1)
    assert counts[0, 0] < len(X)
    assert_array_equal(engine.labels(Query(X))[0], ExactEngine(machine).labels(Query(X))[0])


def test_small_machines_and_machines_in_double_have_no_lists():
    assert BlockedSum(random_machine(n_sv=300, d=2), rows(300, 2), 4).lists is None
    assert BlockedSum(random_machine(n_sv=900, d=2), rows(300, 2), 4, precision="float64").lists is None
    text = sparse.random(700, 50_000, density=0.001, format="csr", random_state=0)
    coef = np.random.default_rng(0).normal(size=700)
    machine = KernelMachine.from_arrays(kernel="rbf", gamma=0.5, support_vectors=text, dual_coef=coef, classes=[0, 1])
    engine = BlockedSum(machine)
    assert engine.uses_postings
    assert engine.lists is None
    X = sparse.random(40, 50_000, density=0.001, format="csr", random_state=1)
    assert_array_equal(engine.labels(Query(X))[0], ExactEngine(machine).labels(Query(X))[0])


def test_pickles_keep_lists_and_labels(spirals):
    machine, X, Z, expected = spirals
    engine = BlockedSum(machine, X, 16)
    engine.enabled[3] = 2
    again = pickle.loads(pickle.dumps(engine))
    assert_array_equal(again.enabled, engine.enabled)
    assert again.share == engine.share
    assert again.lists.keys() == engine.lists.keys()
    for name, value in engine.lists.items():
        assert_array_equal(again.lists[name], value)
    assert again.work(Query(Z), 1) == engine.work(Query(Z), 1)
    for way in (again, *both_ways(again)):
        assert_array_equal(named(machine, way.labels(Query(Z))[0]), expected)
    whole = pickle.loads(pickle.dumps(BlockedSum(machine, X[:1])))
    assert_array_equal(named(machine, whole.labels(Query(Z))[0]), expected)


def test_pickles_answer_alike_where_float32_is_judged_differently(spirals, monkeypatch):
    """Its bounds depend on the width of registers: elsewhere it may take another form, or settle too little."""
    machine, X, Z, expected = spirals
    engine = BlockedSum(machine, X, 16)
    stored, form = pickle.dumps(engine), engine._fields["pair_f32"]
    monkeypatch.setattr(blocked_sum, "FEW_FEATURES", 0)
    assert ExactEngine(machine)._fields["pair_f32"] != form
    for way in both_ways(pickle.loads(stored)):
        assert_array_equal(named(machine, way.labels(Query(Z))[0]), expected)
        assert way.work(Query(Z))["stages"]["bounded"] > 0.5
    monkeypatch.setattr(exact, "_try_single", lambda *_: (0.1, 1.0, 1.0))
    again = pickle.loads(stored)
    assert again.first_tier == "float64"
    assert not again.is_bounding
    assert_array_equal(named(machine, again.labels(Query(Z))[0]), expected)
    assert_array_equal(named(machine, pickle.loads(pickle.dumps(again)).labels(Query(Z))[0]), expected)


# -- damaged lists -----------------------------------------------------------------------------------------------------


def swapped(order):
    order[0, [0, 1]] = order[0, [1, 0]]


def twice(order):
    order[1, -1] = order[1, 0]


def outside(order):
    order[0, order.shape[1] - 1] = 10**6


def negative(order):
    order[0, 0] = -1


@pytest.mark.parametrize(
    ("damage", "message"),
    [(swapped, "does not ascend"), (twice, "listed twice|ascend"), (outside, "not exist"), (negative, "not exist")],
)
def test_damaged_orders_are_refused(damage, message):
    machine = random_machine(n_sv=300, d=2)
    engine = forced(machine, rows(40, 2), 2, longest=1.0, chunks=(3, 3, 3))
    lists = {**engine.lists, "order": engine.lists["order"].copy()}
    damage(lists["order"])
    with pytest.raises(ValueError, match=message):
        engine._native.set_lists(lists)


def test_a_panel_in_two_chunks_is_refused():
    engine = forced(random_machine(n_sv=300, d=2), rows(40, 2), 2, longest=1.0, chunks=(1, 1, 1))
    order = engine.lists["order"].copy()
    order[1, 2] = order[1, 0]
    with pytest.raises(ValueError, match="listed twice"):
        engine._native.set_lists({**engine.lists, "order": order})


def test_damaged_lists_are_refused():
    engine = forced(random_machine(n_sv=300, d=2), rows(40, 2), 2)
    lists, native = engine.lists, engine._native
    for name in ("centres", "centre_panels", "centre_const", "chunk_start", "order", "reach", "exponent", "rest"):
        flat = lists[name].ravel()
        for wrong in (flat[:-1].copy(), flat.astype(np.float16), np.append(flat, flat[:1])):
            with pytest.raises((ValueError, TypeError)):
                native.set_lists({**lists, name: wrong})
        with pytest.raises((ValueError, TypeError, KeyError)):
            native.set_lists({key: value for key, value in lists.items() if key != name})
    for name in ("n_lists", "n_chunks", "n_levels"):
        for wrong in (0, -1, lists[name] + 1, 2**20):
            with pytest.raises(ValueError, match=r"no lists|length|size|shape|elements"):
                native.set_lists({**lists, name: wrong})
    starts = lists["chunk_start"]
    for wrong in (starts + 1, starts[::-1].copy(), np.minimum(starts, starts[1]), starts * 100):
        with pytest.raises(ValueError, match=r"chunk|longer|order"):
            native.set_lists({**lists, "chunk_start": wrong.astype(np.int32)})
    # The engine still has the lists it had.
    X = rows(50, 2)
    for way in both_ways(engine):
        assert_array_equal(way.labels(Query(X))[0], ExactEngine(engine.machine).labels(Query(X))[0])


def test_calls_that_do_not_fit_the_lists_are_refused():
    machine = random_machine(n_sv=300, d=2)
    engine = forced(machine, rows(40, 2), 2)
    X, out, on = rows(9, 2), np.empty(9, dtype=np.int32), np.ones(2, dtype=np.uint8)
    used = np.zeros((2, _core.LIST_COUNTS), dtype=np.int64)
    good = [X, out, on, used, 0, False, 1]
    engine._native.bounded_dense(*good)
    for place, wrong in ((0, rows(9, 3)), (0, rows(8, 2)), (1, out[:3]), (2, on[:1]), (3, used[:1]), (6, 0)):
        with pytest.raises(ValueError, match=r"disagree|shape|positive|width"):
            engine._native.bounded_dense(*good[:place], wrong, *good[place + 1 :])
    with pytest.raises(ValueError, match="no lists"):
        ExactEngine(machine)._native.bounded_dense(*good)
    linear = random_machine("linear", n_sv=300, d=2)
    with pytest.raises(ValueError, match="float32 panels"):
        ExactEngine(linear)._native.set_lists(engine.lists)


# -- rounding ----------------------------------------------------------------------------------------------------------


def float32_scores(machine, X, form="sq_diff", level=LEVELS[-1]):
    engine = _core.Engine(pack_machine(machine, single_pair=form, use_postings=False), level)
    scores, bounds = np.empty((len(X), machine.n_scores)), np.empty((len(X), machine.n_scores))
    engine.scores_dense(X, scores, bounds, 0, False, 1)
    return scores, bounds


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("kernel", "form"), [("rbf", "dot"), ("rbf", "sq_diff"), ("exponential", "sq_diff")])
def test_float32_bounds_hold_with_many_far_vectors_and_large_weights(kernel, form, level):
    """Far vectors are counted as absolute error, up to an exponent that depends on the weights."""
    rng = np.random.default_rng(0)
    for weight, reach, n_classes in ((1.0, 5.0, 2), (1e4, 20.0, 2), (1e8, 50.0, 3), (1e-6, 8.0, 3), (1e8, 500.0, 2)):
        machine = random_machine(kernel, n_sv=400, d=3, gamma=1.0, n_classes=n_classes)
        S = machine.support_vectors + reach * rng.integers(-2, 3, size=(400, 3))  # islands
        coef = machine.dual_coef * weight * 10.0 ** rng.uniform(-3, 0, size=machine.dual_coef.shape)
        machine = replace(machine, support_vectors=S, dual_coef=coef)
        X = np.vstack([S[:40] + 0.3 * rng.normal(size=(40, 3)), rng.normal(size=(40, 3)) * reach])
        scores, bounds = float32_scores(machine, X, form, level)
        reference = np.array([libsvm_order_scores(machine, x) for x in X])
        assert (np.abs(scores - reference) <= bounds).all()
        if form == "sq_diff" and reach < 100:
            # Few vectors are near a row: what it is good to must not depend on how far the others are.
            size = np.abs(coef).sum()
            assert np.median(bounds) < 2e-6 * size


def adverse_case(sign, away):
    """A machine and rows for which float32 is nearly as wrong as its bound allows, and its errors over the bounds.

    One feature, two vectors far from each other and so from their mean: float32 rounds rows and vectors by half a unit
    of a large number, here in opposite directions.
    """
    s = 2048.0 * (1 + 2.0**-11) + 0.999 * 2.0**-13
    machine = KernelMachine.from_arrays(
        kernel="rbf",
        gamma=np.log(2.0),
        support_vectors=[[s], [-s]],
        dual_coef=[sign, -1e-9 * sign],
        intercept=0.0,
        classes=[0, 1],
    )
    X = s + np.random.default_rng(1).uniform(away, 1.03 * away, size=(20_000, 1))
    scores, bounds = float32_scores(machine, X)
    return machine, X, (scores - slow_scores(machine, X))[:, 0] / bounds[:, 0]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_float32_bound_is_no_larger_than_it_must_be(sign):
    """A bound that is nearly attained cannot be halved unnoticed."""
    ratio = np.abs(adverse_case(sign, 10.0)[2])
    assert 0.7 < ratio.max() <= 1.0


@pytest.mark.parametrize("away", [1.0, 3.0, 9.0])
def test_lists_trust_no_more_digits_than_float32_has(away, monkeypatch):
    """The same rows on machines whose score is zero there: the sum of a list must leave them open."""
    for level in LEVELS:
        monkeypatch.setenv("SVELTO_ISA", level)
        for sign in (1.0, -1.0):
            machine, X, ratio = adverse_case(sign, away)
            for row in X[np.argsort(ratio)[[0, 1, -2, -1]]]:
                zero = replace(machine, intercept=-np.array(libsvm_order_scores(machine, row)))
                engine = forced(zero, np.array([row, row]), 1, longest=1.0, precision="float32")
                for way in both_ways(engine):
                    assert named(zero, way.labels(Query(row[None]))[0])[0] == libsvm_order_label(zero, row)


def test_distances_whose_squares_underflow():
    """LIBSVM's own squares lose their digits here, so its labels are not those of the true distances."""
    for seed in range(4):
        machine = random_machine("exponential", n_sv=100, d=1, gamma=1e200, seed=seed)
        machine = replace(machine, support_vectors=machine.support_vectors * 1e-200)
        coef = machine.dual_coef * 10.0 ** np.random.default_rng(seed).uniform(-8, 0, size=machine.dual_coef.shape)
        machine = replace(machine, dual_coef=coef, intercept=-coef.sum(axis=1) * (1 - 1e-9))
        X = rows(30, 1) * 1e-200
        expected = oracle_labels(machine, X)
        for precision in ("auto", "float32"):
            engine = forced(machine, X, 2, precision=precision)
            for way in both_ways(engine):
                assert_array_equal(named(machine, way.labels(Query(X))[0]), expected)
    # And where only the last digits are lost: a row on the boundary, with a region of its own.
    machine = random_machine("exponential", n_sv=600, d=1, gamma=3e158, spread=1e-158, seed=25)
    X = np.random.default_rng(25).normal(size=(60, 1)) * 1e-158
    machine = replace(machine, intercept=machine.intercept - np.median(slow_scores(machine, X), axis=0))
    for edge in boundary_rows(machine, X).reshape(2, -1, 1).swapaxes(0, 1)[:10]:
        with short_lists():
            engine = BlockedSum(machine, np.repeat(edge, 4, axis=0), 1)
        for way in both_ways(engine):
            assert_array_equal(named(machine, way.labels(Query(edge))[0]), oracle_labels(machine, edge))
