"""The core of a guard and its rim: where it is, and what hinges make of rows on it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.svm import SVC, SVR

import svelto
from hinge_cases import LEVELS, call, fields_of, random_net, slow_scores
from machines import random_machine
from svelto import _core
from svelto._inputs import Query
from svelto.engines.arrays import aligned
from svelto.guard import Core, Guard
from svelto.guard_fit import RIM_FACTOR, guard_for
from test_guard import clusters, slow_direction_sums, slow_gaps, slow_outside
from test_hinge_guard import drawn_in

RULES = [("sign", 1), ("pairs", 1), ("pairs", 6), ("argmax", 4), ("distilled", 4), ("value", 2)]


def slow_outside_core(guard, X):
    """The definition, written to be read. Never optimise this one."""
    near_box = (slow_gaps(guard, X) ** 2).sum(axis=1) <= guard.core.box_limit
    sq_dist = ((X[:, None, :] - guard.centres[None, :, :]) ** 2).sum(axis=-1)
    in_a_ball = (sq_dist <= guard.core.sq_radii).any(axis=1)
    return ~(near_box & in_a_ball & (slow_direction_sums(guard, X) <= guard.core.direction_limit))


@cache
def guard_and_rows(d, spread=1.0):
    """A guard, and rows in its core, on its rim and outside."""
    known = clusters(2000, d, seed=1)
    guard = guard_for(random_machine(d=d), known, 0)
    middle = known.mean(axis=0)
    moved = [middle + (clusters(500, d, seed=2 + i) - middle) * by for i, by in enumerate((1.0, 1.1, 1.3, 3.0))]
    rows = np.concatenate([*moved, known[:200], np.zeros((3, d))]) * spread
    return guard, rows


def shares(guard, rows):
    outside = guard(Query(rows))
    rim = guard.outside_core(rows) & ~outside
    return outside, rim


@pytest.mark.parametrize("d", [5, 22, 123])
def test_the_core_is_inside_the_guard_and_holds_ordinary_rows(d):
    guard, rows = guard_and_rows(d)
    core = guard.core
    assert core.box_limit <= guard.box_limit
    assert (core.sq_radii <= guard.sq_radii).all()
    assert core.direction_limit <= guard.direction_limit
    assert_array_equal(guard.outside_core(rows), slow_outside_core(guard, rows))
    new = clusters(4000, d, seed=77)
    outside, rim = shares(guard, new)
    assert 0.0 < (outside | rim).mean() < 0.03
    assert shares(guard, rows)[1].mean() > 0.02
    assert guard.outside_core(sparse.csr_matrix(rows)).mean() == guard.outside_core(rows).mean()


def test_a_fifth_of_the_rows_says_where_the_core_is():
    X = clusters(10_000, 6, seed=1)
    guard = guard_for(random_machine(d=6), X, 0)
    held = np.zeros(len(X), dtype=bool)
    held[np.random.default_rng([0, 4]).choice(len(X), size=2000, replace=False)] = True
    first, new = Guard.around(guard.machine, [X[~held]], 0), X[held]
    sums = np.sort(first.direction_sums(new))
    assert guard.core.direction_limit == sums[-2]  # all of 2000 but one or two
    ratio = np.sort(first.ball_ratios(new))[-2]
    np.testing.assert_allclose(guard.core.sq_radii, first.sq_radii * ratio**2)
    # Rows beyond belong to the guard all the same, and do not move the core.
    assert guard.including([X * 1.5]).core is guard.core


def test_copies_and_few_rows_have_a_core():
    copies = guard_for(random_machine(d=3), np.repeat(np.arange(6.0).reshape(2, 3), 30, axis=0), 0)
    assert_array_equal(copies.core.sq_radii, np.minimum(copies.core.sq_radii, copies.sq_radii))
    for n in (2, 3, 6):
        guard = guard_for(random_machine(d=3), np.arange(3.0 * n).reshape(n, 3), 0)
        assert np.isfinite(guard.core.sq_radii).all()
        assert guard.core.box_limit >= 0.0
        if not len(guard.directions):
            assert guard.core.direction_limit == np.inf


@pytest.mark.parametrize("level", LEVELS)
def test_rows_on_planes_are_in_the_core(level):
    """Categories depend on each other exactly: along such directions ordinary rows differ by rounding alone."""
    rng = np.random.default_rng(0)
    groups = [np.eye(4)[rng.integers(4, size=4000)] for _ in range(10)]
    X = np.hstack([*groups, rng.normal(size=(4000, 3)), np.ones((4000, 2))])
    guard = guard_for(random_machine(d=X.shape[1]), X[:3000], 0)
    assert guard.core.direction_limit == 1.0
    for rows in (X[3000:], sparse.csr_matrix(X[3000:])):
        for shift in (0.0, X.mean(axis=0)):
            assert np.mean(places(guard, rows, level, shift=shift) > 0) < 0.01
    copies = np.repeat(np.random.default_rng(1).normal(size=(5, 3)), 100, axis=0)
    guard = guard_for(random_machine(d=3), copies, 0)
    assert not guard.outside_core(copies).any()


@pytest.mark.parametrize("level", LEVELS)
def test_a_core_without_room_is_one_in_every_form(level):
    guard, Z = guard_and_rows(22)
    for box_limit in (0.0, 1e-60):
        tight = replace(guard, core=guard.core._replace(box_limit=box_limit))
        expected = places(tight, Z, level)
        assert_array_equal(places(tight, sparse.csr_matrix(Z), level), expected)
        assert (expected == 0).any()
    with np.errstate(all="ignore"):
        nobody = {
            **guard.in_single_precision(np.zeros(22)),
            "box_limit": -1.0,
            "outer_box_limit": -1.0,
            "first_limit": -1.0,
        }
    net = random_net("sign", 1, 22, (9,))[0]
    stage = _core.HingeStage({**fields_of(net), "guard": nobody}, level)
    for rows in (Z, sparse.csr_matrix(Z)):
        labels = np.empty(len(Z), dtype=np.int32)
        call((stage, "labels"), rows, labels, 0.0)
        assert (labels == -1).all()


def test_without_a_core_nobody_is_on_the_rim():
    guard, rows = guard_and_rows(5)
    free = replace(guard, core=None)
    assert not free.outside_core(rows).any()
    plain, rim = (free.in_single_precision(np.zeros(5), rim=rim) for rim in (False, True))
    for name, value in plain.items():
        assert_array_equal(value, rim[name])
    assert plain["outer_box_limit"] == plain["box_limit"]
    assert not plain["outer_slack"].any()


def places(guard, rows, level, n_threads=1, shift=0.0):
    """0 in the core, 1 on the rim, 2 outside, by the error scales of hinges."""
    d = rows.shape[1]
    net = replace(random_net("sign", 1, d, (9,))[0], shift=np.broadcast_to(shift, (d,)).astype(float))
    fields = {**fields_of(net), "guard": guard.in_single_precision(net.shift, rim=True), "rim_factor": 4.0}
    n = rows.shape[0]
    scores, errors = np.empty((n, 1)), np.empty((n, 1))
    call((_core.HingeStage(fields, level), "scores"), rows, scores, errors, n_threads=n_threads)
    found = errors[:, 0] / net.error[0]
    assert np.isin(found, (1.0, 4.0, np.inf)).all()
    return np.where(np.isinf(found), 2, np.where(found == 4.0, 1, 0))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("d", [1, 2, 5, 8, 15, 16, 17, 22, 33, 64, 65, 123])
def test_native_places_follow_the_definition(d, level):
    guard, Z = guard_and_rows(d)
    for shift in (0.0, guard.centres.mean(axis=0)):
        found = places(guard, Z, level, shift=shift)
        assert (found[slow_outside(guard, Z)] == 2).all()
        assert (found[slow_outside_core(guard, Z)] >= 1).all()
        inner = drawn_in(guard, 1e-4)
        assert (found[~slow_outside(inner, Z)] <= 1).all()
        core = drawn_in(
            replace(
                guard,
                box_limit=guard.core.box_limit,
                sq_radii=guard.core.sq_radii,
                direction_limit=guard.core.direction_limit,
            ),
            1e-4,
        )
        assert (found[~slow_outside(core, Z)] == 0).all()
        assert len(np.unique(found)) == 3


@pytest.mark.parametrize("d", [3, 22, 123])
def test_places_depend_on_the_row_alone(d):
    guard, Z = guard_and_rows(d)
    rng = np.random.default_rng(0)
    Z = np.where(rng.random(Z.shape) < 0.2, 0.0, Z)
    # Copies around the edge of the core's first ball and of its directions.
    towards = rng.normal(size=(400, d))
    towards /= np.linalg.norm(towards, axis=1, keepdims=True)
    ball = guard.centres[0] + towards * np.sqrt(guard.core.sq_radii[0]) * np.linspace(1 - 1e-4, 1 + 1e-5, 400)[:, None]
    along = rng.normal(size=(400, len(guard.directions)))
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    radius = np.sqrt(guard.core.direction_limit) * np.linspace(1 - 3e-3, 1 + 1e-5, 400)[:, None]
    Z = np.concatenate([Z, ball, (guard.offset + radius * along) @ np.linalg.pinv(guard.directions).T])
    one_ball = replace(
        guard,
        box_limit=1e6,
        centres=guard.centres[:1],
        sq_radii=guard.sq_radii[:1],
        core=Core(1e5, guard.core.sq_radii[:1], guard.core.direction_limit, 3.0),
    )
    for one in (guard, one_ball):
        for level in LEVELS:
            expected = places(one, Z, level)
            for rows in (np.asfortranarray(Z), sparse.csr_matrix(Z)):
                assert_array_equal(places(one, rows, level, n_threads=3), expected)
            for size in (1, 2, 3, 5, 63, 65):
                assert_array_equal(places(one, Z[-size:], level), expected[-size:])
                assert_array_equal(places(one, sparse.csr_matrix(Z[-size:]), level), expected[-size:])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("rule", "n_scores"), RULES)
def test_rows_on_the_rim_take_more_caution(rule, n_scores, level):
    factor, net = 2.5, random_net(rule, n_scores, 5, (9,))[0]
    guard, X = guard_and_rows(5)
    order = np.sort(np.abs(slow_scores(net, X)), axis=1)  # at caution 1 some rows are settled and some are not
    net = replace(net, error=net.error * np.median(order[:, -1] - order[:, 0] if n_scores > 1 else order[:, 0]) / 5.0)
    fields = {**fields_of(net), "guard": guard.in_single_precision(net.shift, rim=True)}
    stage = _core.HingeStage({**fields, "rim_factor": factor}, level)
    plain = _core.HingeStage(fields_of(net), level)
    n = len(X)
    scores, errors = np.empty((2, n, n_scores)), np.empty((2, n, n_scores))
    for i, one in enumerate((plain, stage)):
        call((one, "scores"), X, scores[i], errors[i])
    assert_array_equal(scores[0], scores[1])
    ratio = errors[1] / errors[0]
    rim, outside = ratio[:, 0] == factor, np.isinf(ratio[:, 0])
    assert_array_equal(ratio, np.where(outside, np.inf, np.where(rim, factor, 1.0))[:, None].repeat(n_scores, axis=1))
    assert min(rim.sum(), outside.sum(), (~rim & ~outside).sum()) > 20
    labels, differs = np.empty((3, n), dtype=np.int32), False
    for caution in (0.0, 0.3, 1.0, 3.0, 10.0):
        call((plain, "labels"), X, labels[0], caution)
        call((plain, "labels"), X, labels[1], caution * factor)
        settled = call((stage, "labels"), X, labels[2], caution)
        assert_array_equal(labels[2], np.where(outside, -1, np.where(rim, labels[1], labels[0])))
        assert settled == (labels[2] >= 0).sum()
        differs |= bool((labels[2] != labels[0])[rim].any())
    assert differs == (rule != "value")
    if rule == "value" or (rule == "pairs" and n_scores > 1):
        return
    cautions = np.empty(n)
    call((stage, "caution"), X, labels[0], cautions)
    some = np.flatnonzero(rim & (labels[0] >= 0))[:40]
    for i in some:  # the label is given at every caution below, and at none from there on
        for caution, expected in ((np.nextafter(cautions[i], 0.0), labels[0, i]), (cautions[i], -1)):
            call((stage, "labels"), X[i : i + 1], labels[1, :1], caution)
            assert labels[1, 0] == expected


@pytest.mark.parametrize("value", [0.5, 0.0, -1.0, np.nan, np.inf])
def test_factors_below_one_are_refused(value):
    guard, _ = guard_and_rows(5)
    net, _ = random_net("sign", 1, 5, (9,))
    fields = {**fields_of(net), "guard": guard.in_single_precision(net.shift, rim=True)}
    with pytest.raises(ValueError, match="rim_factor"):
        _core.HingeStage({**fields, "rim_factor": value}, LEVELS[0])


@pytest.mark.parametrize("name", ["outer_box_limit", "outer_direction_limit", "outer_slack"])
def test_cores_outside_their_guard_are_refused(name):
    guard, _ = guard_and_rows(5)
    net, _ = random_net("sign", 1, 5, (9,))
    good = guard.in_single_precision(net.shift, rim=True)
    bad = aligned(-np.abs(good[name]) - 1.0, np.float32) if name == "outer_slack" else 0.0
    missing = aligned(np.nan * good[name], np.float32) if name == "outer_slack" else np.nan
    for wrong in (bad, missing):
        with pytest.raises(ValueError, match=r"core of the guard|is no float|not finite"):
            _core.HingeStage({**fields_of(net), "guard": {**good, name: wrong}}, LEVELS[0])


def drifted(X, by):
    """The same rows, a little farther from their middle, without noise of their own."""
    return X.mean(axis=0) + (X - X.mean(axis=0)) * by


def test_hinges_of_a_promise_know_the_rim():
    """Rows that have drifted onto the rim reach the exact engine more often, and with fewer other labels."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 8))
    y = np.sin(X[:, 0] * 1.5) + X[:, 1] * X[:, 2] > 0.2
    svc = SVC(C=10.0, gamma=0.1).fit(X[:2500], y[:2500])
    given = {"method": "hinges", "n_hinges": 16, "next_stage": None, "agreement": 0.99}
    fast = svelto.accelerate(svc, X[:2500], random_state=0, **given)
    engine = fast._engine
    rows = drifted(X[2500:], 1.15)
    assert shares(engine.guard, rows)[1].sum() > 50
    stage, threshold = engine.stages[0], engine.thresholds[0]
    errors = stage.scores(Query(rows))[1]
    known = ~np.isinf(errors[:, 0])
    assert_array_equal(errors[known, 0] / stage.error[0], np.where(stage_rim(stage, rows), RIM_FACTOR, 1.0)[known])
    with_rim = engine.labels(Query(rows))[0]
    free = replace(stage, guard=replace(stage.guard, core=None))
    left = [np.flatnonzero(one.settle(Query(rows), threshold) < 0) for one in (stage, free)]
    assert set(left[0]) > set(left[1])
    exact = engine.exact.labels(Query(rows))[0]
    without = np.where(free.settle(Query(rows), threshold) < 0, exact, free.settle(Query(rows), threshold))
    assert (with_rim != exact).sum() <= (without != exact).sum()


def test_work_and_report_count_the_rim():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9000, 3))
    svc = SVC(C=10.0).fit(X[:3500], np.sin(3.0 * X[:3500]).sum(axis=1) > 0.0)
    fast = svelto.accelerate(svc, X[:3500], method="hinges", n_hinges=64, random_state=0)
    assert fast.report.promise == "statistical"
    rows = drifted(X[3500:], 1.2)
    work, stage = fast.work(rows), fast._engine.stages[0]
    assert work["rim"] == stage_rim(stage, rows).mean() > fast.work(X[3500:])["rim"]
    assert 0.0 <= fast.report.work["share on the guard's rim"] < work["rim"]
    tree = svelto.accelerate(svc, X[:3500], method="taylor_tree", next_stage=None, random_state=0)
    assert "rim" not in tree.work(rows)


def stage_rim(stage, rows):
    """Rows on the rim, as the stage sees them: by its single precision."""
    return places(stage.guard, rows, LEVELS[-1], shift=stage.shift) == 1


def test_regressors_on_the_rim():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 4))
    svr = SVR(C=10.0).fit(X[:2000], np.sin(X[:2000]).sum(axis=1))
    fast = svelto.accelerate(svr, X[:2000], method="hinges", tolerance=0.5, agreement=0.99, n_hinges=32, random_state=0)
    rows = drifted(X[2000:], 1.2)
    stage, threshold = fast._engine.stages[0], fast._engine.thresholds[0]
    errors, rim = stage.scores(Query(rows))[1][:, 0], stage_rim(stage, rows)
    assert rim.any()
    assert_array_equal(errors[rim], RIM_FACTOR * stage.error[0])
    work = fast.work(rows)["stages"]
    assert work["exact"] == np.mean(~(threshold * errors <= 0.5))
    assert np.mean(np.abs(fast.predict(rows) - svr.predict(rows)) <= 0.5) >= 0.99
