"""Hinges that guard themselves: which rows they leave open, against the guard's definition."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from hinge_cases import LEVELS, call, fields_of, random_net
from machines import random_machine
from svelto import _core
from svelto._inputs import Query
from svelto.cascade import Cascade
from svelto.engines.exact import build_exact
from svelto.engines.hinge_training import Hinges
from svelto.engines.hinges import HingeStage
from svelto.guard import Guard
from svelto.guard_fit import guard_for
from test_guard import clusters, on_a_plane, slow_outside

# Around the lanes of every level, and beyond the vectors that are held in registers.
WIDTHS = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 22, 31, 33, 63, 64, 65, 123]


def drawn_in(guard, by):
    """The same guard a little smaller, relative to the box and to the rows of each ball."""
    edge = by * (np.abs(guard.low) + np.abs(guard.high) + 1e-9)
    size = np.linalg.norm(guard.centres, axis=1) + np.sqrt(guard.sq_radii)
    radii = np.maximum(np.sqrt(guard.sq_radii) - by * size, 0.0)
    limit = guard.box_limit * (1 - by)
    steps = np.linalg.norm(guard.directions, axis=1).max(initial=0.0) * size.max()
    along = np.maximum(np.sqrt(guard.direction_limit) - by * steps, 0.0) ** 2
    return replace(
        guard,
        low=guard.low + edge,
        high=guard.high - edge,
        box_limit=limit,
        sq_radii=radii**2,
        direction_limit=along,
    )


def open_rows(net, guard, X, level=LEVELS[-1], n_threads=1):
    """Rows that a guarded stage leaves open, which all its answers must agree about."""
    plain = _core.HingeStage(fields_of(net), level)
    stage = _core.HingeStage({**fields_of(net), "guard": guard.in_single_precision(net.shift)}, level)
    n, p = X.shape[0], net.n_scores
    labels, cautions = np.empty((2, n), dtype=np.int32), np.empty((2, n))
    scores, errors = np.empty((2, n, p)), np.empty((2, n, p))
    for i, one in enumerate((plain, stage)):
        call((one, "scores"), X, scores[i], errors[i], n_threads=n_threads)
    is_open = np.isinf(errors[1]).any(axis=1)
    assert_array_equal(scores[1], scores[0])
    assert_array_equal(errors[1], np.where(is_open[:, None], np.inf, errors[0]))
    for caution in (0.0, 1.0):
        settled = [
            call((one, "labels"), X, labels[i], caution, n_threads=n_threads) for i, one in enumerate((plain, stage))
        ]
        assert_array_equal(labels[1], np.where(is_open, -1, labels[0]))
        assert settled[1] == settled[0] - (is_open & (labels[0] >= 0)).sum()
    if net.rule in ("sign", "argmax", "distilled"):
        for i, one in enumerate((plain, stage)):
            call((one, "caution"), X, labels[i], cautions[i], n_threads=n_threads)
        assert_array_equal(labels[1], np.where(is_open, -1, labels[0]))
        assert_array_equal(cautions[1], np.where(is_open, 0.0, cautions[0]))
    return is_open


def some_net(d, shift, rule="sign", n_scores=1):
    return replace(random_net(rule, n_scores, d, (9,))[0], shift=np.broadcast_to(shift, (d,)).astype(float))


@cache
def guard_and_rows(d, how="clusters"):
    made = {
        "clusters": lambda seed, n=600: clusters(n, d, seed=seed),
        "far away": lambda seed, n=600: clusters(n, d, seed=seed) + 1e4,
        "sparse": lambda seed, n=600: sparse.random(n, d, density=0.3, random_state=seed).toarray() * 3.0,
        "switches": lambda seed, n=600: (np.random.default_rng(seed).random((n, d)) < 0.2).astype(float),
    }[how]
    known, Z = made(1, 2000), made(2)
    guard = guard_for(random_machine(d=d), known, 0)
    middle = known.mean(axis=0)
    zeros = 0.0 * Z[:3]
    return guard, np.concatenate([Z, known[:200], middle + (made(3) - middle) * 1.4, made(4) * 30.0, zeros])


def check_verdicts(guard, Z, shift, level):
    """Open wherever the guard marks the row, and nowhere else but close to the edges."""
    is_open = open_rows(some_net(Z.shape[1], shift), guard, Z, level)
    assert is_open[guard(Query(Z))].all()
    assert is_open[slow_outside(guard, Z)].all()
    return is_open


@pytest.mark.parametrize("box_limit", [None, 0.0, 5.0])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("d", WIDTHS)
def test_open_rows_are_those_that_the_guard_marks(d, level, box_limit):
    guard, Z = guard_and_rows(d)
    guard = guard if box_limit is None else replace(guard, box_limit=box_limit)
    for shift in (0.0, guard.centres.mean(axis=0)):
        is_open = check_verdicts(guard, Z, shift, level)
        assert not is_open[~slow_outside(drawn_in(guard, 1e-4), Z)].any()
        assert 0.1 < is_open.mean() < 0.9


@pytest.mark.parametrize("how", ["far away", "sparse", "switches"])
@pytest.mark.parametrize("level", LEVELS)
def test_rows_far_from_zero_and_rows_of_zeros(how, level):
    guard, Z = guard_and_rows(22, how)
    shift = guard.centres.mean(axis=0) if how == "far away" else 0.0
    is_open = check_verdicts(guard, Z, shift, level)
    assert is_open[:600].mean() < 0.02
    assert is_open[-200:].mean() > 0.9
    if how != "far away":
        assert not is_open[600:800].any()  # the guard was made of them, and many are on an edge of the box


@pytest.mark.parametrize("how", ["clusters", "sparse", "switches"])
@pytest.mark.parametrize("d", [3, 22, 123])
def test_verdicts_depend_on_the_row_alone(d, how):
    guard, Z = guard_and_rows(d, how)
    # Copies on and around the edges, where the order of a sum would show.
    edge = np.repeat(guard.centres[:1], 400, axis=0)
    towards = np.random.default_rng(0).normal(size=edge.shape) * (np.random.default_rng(1).random(edge.shape) < 0.5)
    towards /= np.maximum(np.linalg.norm(towards, axis=1, keepdims=True), 1e-9)
    edge += towards * np.sqrt(guard.sq_radii[0]) * np.linspace(1 - 1e-4, 1 + 1e-5, 400)[:, None]
    one_ball = replace(guard, box_limit=1e6, centres=guard.centres[:1], sq_radii=guard.sq_radii[:1])
    for level in LEVELS:
        assert check_verdicts(one_ball, edge, 0.0, level).any()
    Z = np.where(np.random.default_rng(2).random(Z.shape) < 0.3, 0.0, Z)
    Z = np.concatenate([Z, edge])
    net = some_net(d, 0.0)
    for level in LEVELS:
        expected = open_rows(net, guard, Z, level)
        for rows in (np.asfortranarray(Z), sparse.csr_matrix(Z)):
            assert_array_equal(open_rows(net, guard, rows, level, n_threads=3), expected)
        explicit = sparse.csr_matrix((Z.ravel(), np.tile(np.arange(d), len(Z)), np.arange(0, Z.size + 1, d)), Z.shape)
        assert_array_equal(open_rows(net, guard, explicit, level), expected)
        for size in (1, 2, 3, 5, 63, 65):
            assert_array_equal(open_rows(net, guard, Z[:size], level), expected[:size])
            assert_array_equal(open_rows(net, guard, Z[-size:], level), expected[-size:])
            assert_array_equal(open_rows(net, guard, sparse.csr_matrix(Z[-size:]), level), expected[-size:])


@pytest.mark.parametrize("d", [1, 3, 8, 22, 123])
def test_edges_of_the_directions(d):
    """Rows around the limit along the directions, where box and balls have no say: one verdict in every form."""
    guard = guard_and_rows(d)[0]
    rng = np.random.default_rng(0)
    towards = rng.normal(size=(600, len(guard.directions)))
    towards /= np.linalg.norm(towards, axis=1, keepdims=True)
    radius = np.sqrt(guard.direction_limit) * np.linspace(1 - 3e-3, 1 + 1e-5, 600)[:, None]
    Z = (guard.offset + radius * towards) @ np.linalg.pinv(guard.directions).T
    free = replace(guard, box_limit=1e4, sq_radii=np.full(len(guard.sq_radii), 1e4))
    for level in LEVELS:
        is_open = check_verdicts(free, Z, 0.0, level)
        assert 0.0 < is_open.mean() < 1.0
        net = some_net(d, 0.0)
        for rows in (sparse.csr_matrix(Z), np.asfortranarray(Z)):
            assert_array_equal(open_rows(net, free, rows, level), is_open)
        assert_array_equal(
            np.concatenate([open_rows(net, free, row[None, :], level) for row in Z[::20]]), is_open[::20]
        )


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
@pytest.mark.parametrize("level", LEVELS)
def test_rows_off_the_plane_are_open(level, offset):
    X, off = on_a_plane(3000, 1)
    guard, shift = guard_for(random_machine(d=5), X + offset, 0), offset + X.mean(axis=0)
    inside, net = on_a_plane(2000, 2)[0] * 0.5 + 1.5 + offset, some_net(5, shift)
    for rows in (inside, sparse.csr_matrix(inside)):
        assert open_rows(net, guard, rows, level).mean() < 0.01
    for step in off:
        for rows in (inside + 0.15 * step, sparse.csr_matrix(inside + 0.15 * step)):
            assert open_rows(net, guard, rows, level).all()


def test_without_directions():
    """Nothing along the directions is asked, and no arrays for them are needed."""
    guard, Z = guard_and_rows(22)
    free = replace(guard, direction_limit=np.inf)
    none = replace(free, directions=guard.directions[:0], offset=guard.offset[:0])
    for level in LEVELS:
        expected = check_verdicts(free, Z, 0.0, level)
        assert expected.mean() <= open_rows(some_net(22, 0.0), guard, Z, level).mean()
        for rows in (Z, sparse.csr_matrix(Z)):
            assert_array_equal(open_rows(some_net(22, 0.0), none, rows, level), expected)
        strict = replace(guard, direction_limit=1e-12)  # floats cannot tell, so nobody is inside
        assert open_rows(some_net(22, 0.0), strict, Z, level).all()


@pytest.mark.parametrize("level", LEVELS)
def test_zeros_outside_of_the_box(level):
    """Features that are never zero: an absent one is far away, a stored one is not."""
    rng = np.random.default_rng(0)
    X = np.hstack([rng.uniform(1.0, 2.0, size=(900, 3)), rng.uniform(-1.0, 1.0, size=(900, 4))])[
        :, [0, 3, 1, 4, 5, 2, 6]
    ]
    guard = guard_for(random_machine(d=7), X, 0)
    Z = np.tile(X.mean(axis=0), (9, 1))
    for row, features in enumerate(([], [0], [1], [2], [5], [1, 3, 4, 6], [0, 2, 5], [5, 6], range(7))):
        Z[row, list(features)] = 0.0
    expected = [False, True, False, True, True, False, True, True, True]
    for rows in (Z, sparse.csr_matrix(Z)):
        assert open_rows(some_net(7, 0.0), guard, rows, level).tolist() == expected


@pytest.mark.parametrize(
    ("rule", "n_scores"), [("value", 1), ("pairs", 1), ("pairs", 3), ("argmax", 4), ("distilled", 5)]
)
def test_every_rule(rule, n_scores):
    guard, Z = guard_and_rows(9)
    net = some_net(9, 0.0, rule, n_scores)
    for rows in (Z, sparse.csr_matrix(Z)):
        assert_array_equal(open_rows(net, guard, rows), open_rows(some_net(9, 0.0), guard, Z))


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_numbers_that_floats_cannot_hold_are_open(shift):
    guard, _ = guard_and_rows(22)
    Z = np.tile(guard.centres[0], (8, 1))
    for row, value in enumerate((1e20, -1e20, 1e39, -1e39, 1e300, -1e300)):
        Z[row, 3 * row] = value
    for level in LEVELS:
        for rows in (Z, sparse.csr_matrix(Z)):
            assert open_rows(some_net(22, shift), guard, rows, level).tolist() == [True] * 6 + [False] * 2


@pytest.mark.parametrize("unit", [1e-40, 1e-25, 1e-12, 1e12, 1e25, 1e100])
def test_units_that_floats_cannot_square(unit):
    """Too small or too large: then rows may be open that the guard knows, never the other way round."""
    X, Z = clusters(400, 6, seed=1) * unit, clusters(400, 6, seed=2) * unit * 1.2
    guard = guard_for(random_machine(d=6), X, 0)
    for level in LEVELS:
        is_open = open_rows(some_net(6, 0.0), guard, Z, level)
        assert is_open[guard(Query(Z))].all()
        if 1e-15 < unit < 1e15:
            assert_array_equal(is_open, guard(Query(Z)))


def test_a_strict_box_is_strict():
    """Whatever is beyond its edges by a float64 is open, differences too small for float32 included."""
    X = np.random.default_rng(0).uniform(0.0, 1.0, size=(500, 3))
    X[0] = 0.0
    guard = Guard.around(random_machine(d=3), [X], 0)
    Z = np.tile(np.full(3, 0.5), (6, 1))
    Z[1, 0], Z[2, 1], Z[3, 2] = -1e-30, -1e-300, -1e-12
    Z[4, 0], Z[5, 1] = guard.high[0] * (1 + 1e-13), guard.high[1] * (1 + 1e-7)
    for level in LEVELS:
        for rows in (Z, sparse.csr_matrix(Z)):
            assert open_rows(some_net(3, 0.0), guard, rows, level).tolist() == [False] + [True] * 5


def test_damaged_guards_are_refused():
    guard, _ = guard_and_rows(9)
    net = some_net(9, 0.0)
    good = guard.in_single_precision(net.shift)
    for name in good:
        with pytest.raises(KeyError, match=name):
            _core.HingeStage({**fields_of(net), "guard": {k: v for k, v in good.items() if k != name}}, LEVELS[0])
    for name, array in good.items():
        if isinstance(array, float):
            with pytest.raises(ValueError, match="a limit is no float"):
                _core.HingeStage({**fields_of(net), "guard": {**good, name: np.nan}}, LEVELS[0])
            continue
        with pytest.raises(ValueError, match="elements"):
            _core.HingeStage({**fields_of(net), "guard": {**good, name: array[:-1]}}, LEVELS[0])
        if name != "bias":
            before = array.flat[0]
            array.flat[0] = np.nan
            with pytest.raises(ValueError, match="not finite"):
                _core.HingeStage({**fields_of(net), "guard": good}, LEVELS[0])
            array.flat[0] = before
    good["sure_low"][0] += 1
    with pytest.raises(ValueError, match="columns and box disagree"):
        _core.HingeStage({**fields_of(net), "guard": good}, LEVELS[0])


# -- in a cascade ------------------------------------------------------------------------------------------------------


def stage_of(machine, guard, name="hinges", seed=0, asks=True):
    d, rng = guard.centres.shape[1], np.random.default_rng(seed)
    hinges = Hinges((rng.normal(size=(d, 13)),), (rng.normal(size=13),), rng.normal(size=(12, 1)))
    own = guard if asks else None
    return HingeStage(machine, hinges, np.full(1, 0.5), guard.centres.mean(axis=0), guard=own, name=name)


class Counting:
    """A guard that tells which rows it was asked about."""

    def __init__(self, monkeypatch):
        self.rows = 0
        original = Guard.__call__

        def counted(guard, query, n_jobs=None):
            self.rows += query.rows.shape[0]
            return original(guard, query, n_jobs)

        monkeypatch.setattr(Guard, "__call__", counted)


@pytest.mark.parametrize("threshold", [0.0, 1.0])
@pytest.mark.parametrize("asking", [(True,), (True, True), (True, False), (False, True)])
def test_marked_rows_are_answered_by_the_exact_engine_only(asking, threshold, monkeypatch):
    guard, Z = guard_and_rows(9)
    machine, n_stages = random_machine(d=9), len(asking)
    stages = [stage_of(machine, guard, str(seed), seed, asks) for seed, asks in enumerate(asking)]
    engine = Cascade(machine, stages, [threshold] * n_stages, build_exact(machine), guard=guard)
    marked = guard(Query(Z))
    alone = [np.where(marked, -1, stage.settle(Query(Z), threshold)) for stage in stages]
    expected = engine.exact.labels(Query(Z))[0]
    for labels in alone[::-1]:
        expected = np.where(labels >= 0, labels, expected)
    left = [len(Z), *(np.all([one < 0 for one in alone[:k]], axis=0).sum() for k in range(1, n_stages + 1))]
    asked = Counting(monkeypatch)
    for labels, settled in (engine.labels_by_stages(Query(Z)), engine.labels(Query(Z))):
        assert_array_equal(labels, expected)
        assert settled == [*(-np.diff(left)), left[-1]]
    # Only what is open before the first stage that does not ask by itself.
    assert asked.rows == (0 if all(asking) else left[asking.index(False)])
    work = engine.work(Query(Z))
    assert work["guarded"] == marked.mean()
    assert [round(share * len(Z)) for share in work["stages"].values()] == settled
    scores, exact = engine.scores(Query(Z)), engine.exact.scores(Query(Z))
    assert_array_equal(scores[marked], exact[marked])
    assert_array_equal((scores != exact).any(axis=1), ~np.all([one < 0 for one in alone], axis=0))
    for start in range(0, 1500, 7):
        assert_array_equal(engine.predict_one_block(Z[start : start + 7]), expected[start : start + 7])
    bad = Z[:7].copy()
    bad[3, 2] = np.nan
    assert engine.predict_one_block(bad) is None


def test_a_stage_that_does_not_guard_itself_is_asked_behind_the_guard(monkeypatch):
    guard, Z = guard_and_rows(9)
    machine = random_machine(d=9)
    bare, own = replace(stage_of(machine, guard), guard=None), stage_of(machine, guard)
    marked, exact = guard(Query(Z)), build_exact(machine)
    for stages in ([bare], [bare, own], [own, bare]):
        labels = Cascade(machine, stages, [0.0] * len(stages), exact, guard=guard).labels(Query(Z))[0]
        assert_array_equal(labels, np.where(marked, exact.labels(Query(Z))[0], bare.settle(Query(Z), 0.0)))
    # A first stage that is never asked leaves the guard to the next.
    asked = Counting(monkeypatch)
    late = Cascade(machine, [bare, own], [np.inf, 0.0], exact, guard=guard)
    labels, settled = late.labels_by_stages(Query(Z))
    assert (settled[0], asked.rows) == (0, 0)
    assert_array_equal(late.labels(Query(Z))[0], labels)
    # Any other marker goes first, whatever the stage says about itself.
    none = Cascade(machine, [own], [0.0], exact, guard=lambda query: np.ones(query.rows.shape[0], dtype=bool))
    assert none.labels(Query(Z))[1] == [0, len(Z)]


def test_a_guarded_stage_can_be_pickled_and_counts_its_bytes():
    guard, Z = guard_and_rows(9)
    stage = stage_of(random_machine(d=9), guard)
    again = pickle.loads(pickle.dumps(stage))
    assert again.guards_itself
    assert_array_equal(again.settle(Query(Z), 0.0), stage.settle(Query(Z), 0.0))
    bare = replace(stage, guard=None)
    assert not bare.guards_itself
    arrays = guard.in_single_precision(stage.shift).values()
    assert again.nbytes == bare.nbytes + sum(a.nbytes for a in arrays if isinstance(a, np.ndarray))
