"""Grids of the guard: rows with a value that its feature cannot have go to the exact engine, in every form."""

from __future__ import annotations

import pickle
import shutil
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler
from sklearn.svm import SVC

import svelto
from c_headers import CLibrary
from hinge_cases import LEVELS, fields_of
from machines import random_machine
from svelto import _core
from svelto._inputs import Query, make_query
from svelto._rowfiles import UnreadableFileError
from svelto.calibration_rows import gather_rows
from svelto.feature_blocks import FeatureBlocks
from svelto.guard import Guard
from svelto.guard_fit import guard_for
from svelto.guard_grid import MOST_REACH, Grids, find_grid
from svelto.machine import KernelMachine
from svelto.oracle import Neighbourhoods
from test_guard import clusters, forms, slow_gaps, slow_outside
from test_hinge_guard import WIDTHS, open_rows, some_net


@pytest.fixture(autouse=True)
def stages_pay(monkeypatch):
    """Small machines keep tests fast, but against them no stage pays, and none would be used: here every stage pays."""
    monkeypatch.setattr("svelto.stage_search.PAYS", 1e9)


def slow_off_grid(guard, X, tolerance=1 / 8):
    """The definition, written to be read: a value of a feature with a grid, and no grid point near it."""
    off = np.zeros(len(X), dtype=bool)
    for k, (scale, origin) in enumerate(zip(guard.grids.scale, guard.grids.origin, strict=True)):
        if scale > 0:
            place = (X[:, k] - origin) * scale
            off |= np.abs(place - np.round(place)) > tolerance
    return off


def slow_unknown(guard, X, tolerance=1 / 8):
    return slow_outside(guard, X) | slow_off_grid(guard, X, tolerance)


def on_grid(n, d, seed, steps=15):
    """Rows of whole numbers, 0 to `steps`, in an interval that holds zero but no grid point there; as letter.scale."""
    middle = np.random.default_rng(77).integers(3, steps - 2, size=(5, d))
    rng = np.random.default_rng(seed)
    places = np.rint(middle[rng.integers(5, size=n)] + rng.normal(size=(n, d)) * 1.7)
    return np.clip(places, 0, steps) * (2.0 / steps) - 1.0


def wide(guard):
    """Box, balls and directions that hold all rows of a test: grids alone decide."""
    return replace(guard, sq_radii=np.full(len(guard.sq_radii), 1e6), box_limit=4.0, direction_limit=np.inf)


def gridded(X, **changes):
    """A guard around rows with all grids that they have, needed or not."""
    guard = guard_for(random_machine(d=X.shape[1]), X, 0)
    return replace(guard, grids=FeatureBlocks.of(X).grids, **changes).including([X])


def mixed(d, seed, n=600):
    """Features in turns on a grid without zero, on one with zero, and on none."""
    X = on_grid(n, d, seed)
    X[:, 1::3] = np.rint(X[:, 1::3] * 6.0) * 0.25
    X[:, 2::3] += np.random.default_rng(seed).normal(size=X[:, 2::3].shape) * 0.1
    return X


@cache
def guard_and_rows(d, how):
    make = {"all": lambda seed, n=600: on_grid(n, d, seed), "some": lambda seed, n=600: mixed(d, seed, n)}[how]
    guard = gridded(make(1, 3000))
    rng = np.random.default_rng(3)
    step = np.where(guard.grids.features, 1.0 / np.where(guard.grids.features, guard.grids.scale, 1.0), 0.1)
    Z = [make(2)]
    for share in (0.05, 0.12, 0.13, 0.3, 0.5, 1.0, 2.0):  # one feature of each row is off by so many steps
        which = np.eye(d)[rng.integers(d, size=200)]
        Z.append(make(4, 200) + which * share * step * rng.choice([-1, 1], size=(200, 1)))
    holes = make(5, 300)
    holes[rng.random(holes.shape) < 1.0 / d] = 0.0
    return guard, np.concatenate([*Z, holes, make(6, 50) * 30.0, np.zeros((3, d))])


def grid_of(values, rows=2000):
    return find_grid(values, np.full(len(values), rows))


# -- finding them ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [1e-12, 0.1, 1.0, 1 / 3, 1e9])
@pytest.mark.parametrize("places", [[0, 1], [0, 1, 2], [-3, -2, 5], list(range(129)), [0, 128, 33, 34]])
def test_values_on_a_grid(places, unit):
    places = np.sort(np.array(places, dtype=float))
    scale, origin = grid_of(places * unit - 7 * unit)
    assert scale == pytest.approx(1 / unit if len(places) > 2 else 1 / unit / np.ptp(places))
    assert origin == pytest.approx((places[0] - 7) * unit)


def test_values_that_files_and_scalers_have_moved():
    letters = np.array([float(f"{value:.6g}") for value in np.linspace(-1, 1, 16)])
    assert grid_of(letters)[0] == pytest.approx(7.5)
    whole = np.arange(30.0)
    assert grid_of((whole - whole.mean()) / whole.std())[0] == pytest.approx(whole.std())
    twice = np.unique([0.1 + 0.2, 0.3, 0.6, 0.9, 1.2])  # two values are one
    assert len(twice) == 5
    assert grid_of(twice)[0] == pytest.approx(1 / 0.3)


@pytest.mark.parametrize(
    "values",
    [[], [3.0], [0, 1, 2.3], [0, 2, 5], np.arange(130.0), [0, 1e-9, 1, 1.07, 2], [-1e308, 1e308], [0, 1e-300, 2e-300]],
    ids=str,
)
def test_values_on_none(values):
    assert grid_of(np.array(values, dtype=float)) is None


def test_few_rows_show_no_grid():
    few, many = on_grid(100, 4, 1), on_grid(3000, 4, 1)
    assert FeatureBlocks.of(few).grids is None
    assert FeatureBlocks.of(many).grids.features.all()
    rare = many * [1, 1, 1, 0]  # a pixel that is nearly always dark
    rare[:9, 3] = 1.0
    assert FeatureBlocks.of(rare).grids.features.tolist() == [True, True, True, False]
    rare[9, 3] = 1.0
    assert FeatureBlocks.of(rare).grids.features.all()
    rare[9, 3] = 0.5
    assert not FeatureBlocks.of(rare).grids.features.all()
    assert FeatureBlocks.of(clusters(3000, 4)).grids is None


def test_only_guards_that_noise_would_pass_have_grids():
    X = on_grid(4000, 6, 1)
    guard = guard_for(random_machine(d=6), X, 0)
    assert guard.grids.features.all()
    noise = np.random.default_rng(0).uniform(-1, 1, size=(2000, 6))
    assert replace(guard, grids=None)(Query(noise)).mean() < 0.9
    assert guard(Query(noise)).mean() > 0.999
    on_a_plane = np.column_stack([X, X.sum(axis=1)])  # noise is not on it
    assert FeatureBlocks.of(on_a_plane).grids is not None
    assert guard_for(random_machine(d=7), on_a_plane, 0).grids is None
    assert guard_for(random_machine(d=4), clusters(3000, 4), 0).grids is None


def test_ordinary_rows_keep_to_the_grid():
    guard = guard_for(random_machine(d=6), on_grid(4000, 6, 1), 0)
    for rows in forms(on_grid(3000, 6, 2)):
        assert_array_equal(guard(Query(rows)), replace(guard, grids=None)(Query(rows)))
    assert guard(Query(on_grid(3000, 6, 2))).mean() < 0.01
    unseen = on_grid(4000, 6, 1)[0] + np.eye(6)[:3] * (2.0 / 15.0)  # another value, a step away
    assert not guard(Query(unseen)).any()


def test_a_grid_that_one_row_leaves_is_none():
    X = on_grid(8000, 6, 1)
    X[1 + np.flatnonzero(np.arange(7999) % 2)[100], 2] += 0.05  # not among the sample of rows that shows the grids
    blocks = FeatureBlocks.of(X)
    guard = guard_for(random_machine(d=6), X, 0)
    assert guard.grids.features.tolist() == [True, True, False, True, True, True]
    assert not guard(Query(X)).any()
    assert blocks.grids is not None


def test_including_rows_drops_the_grids_that_they_leave():
    guard = gridded(mixed(5, 1, 3000))
    assert guard.grids.features.tolist() == [True, True, False, True, True]
    more = mixed(5, 2)
    assert_array_equal(guard.including([more]).grids.scale, guard.grids.scale)
    more[7, 1] += 0.1
    for rows in (more, sparse.csr_matrix(more)):
        wider = guard.including([mixed(5, 3), rows])
        assert wider.grids.features.tolist() == [True, False, False, True, True]
        assert not wider.grids.origin[1]
        for form in forms(more):
            assert not wider(Query(form)).any()
    assert guard.including([more + 0.03]).grids is None


def test_grids_too_fine_for_the_numbers_of_the_box_are_left_out():
    X = on_grid(3000, 4, 1)
    guard = gridded(X)
    away = np.array([0.0, 2000.0, 500.0, 0.0])
    far = gridded(X + away)
    assert far.grids.features.tolist() == [True, False, True, True]
    assert replace(guard, box_limit=(MOST_REACH / 7.5 + 1.0) ** 2).grids is None
    assert not far(Query(X + away)).any()


# -- which rows are outside --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["all", "some"])
@pytest.mark.parametrize("d", [1, 2, 7, 8, 9, 16, 22, 41])  # around the groups of eight
def test_marks_follow_the_definition(d, how):
    guard, Z = guard_and_rows(d, how)
    for one in (guard, wide(guard)):
        expected = slow_unknown(one, Z)
        assert_array_equal(np.isinf(one.box_distances(Z)), slow_off_grid(one, Z))
        assert_array_equal(
            one.box_distances(Z) <= 4.0, ((slow_gaps(one, Z) ** 2).sum(axis=1) <= 4.0) & ~slow_off_grid(one, Z)
        )
        for level in LEVELS:
            native, out = _core.Guard(one._fields, level), np.empty(len(Z), dtype=bool)
            native.mark_dense(Z, out, False, 1)
            assert_array_equal(out, expected)
        for rows in forms(Z):
            assert_array_equal(one(Query(rows)), expected)
        single = Z.astype(np.float32)
        expected = slow_unknown(one, single.astype(np.float64))
        for rows in forms(single):
            assert_array_equal(one(Query(rows)), expected)
    off = slow_off_grid(guard, Z)
    assert 0.15 < off.mean() < 0.9
    assert (off & ~slow_outside(wide(guard), Z)).any()


def test_absent_features_are_zeros():
    guard, _ = guard_and_rows(7, "some")
    X = mixed(7, 1, 3000)
    Z = np.repeat(X[:1], 8, axis=0)
    Z[np.arange(7), np.arange(7)] = 0.0
    zero_is_off = [True, False, False, True, False, False, True, False]  # 15 steps have no middle
    stored = sparse.csr_matrix(Z)
    explicit = sparse.csr_matrix((Z.ravel(), np.tile(np.arange(7), 8), np.arange(0, 57, 7)), shape=Z.shape)
    assert stored.nnz < explicit.nnz
    for one in (guard, wide(guard)):
        for rows in (Z, stored, explicit):
            assert one(Query(rows)).tolist() == zero_is_off
            for level in LEVELS:
                assert open_rows(some_net(7, 0.0), one, rows, level).tolist() == zero_is_off
    assert wide(guard)(Query(sparse.csr_matrix((2, 7)))).all()


SCALERS = {
    "StandardScaler": StandardScaler(),
    "MinMaxScaler": MinMaxScaler((-1, 2)),
    "clipped": MinMaxScaler((1, 3), clip=True),
    "MaxAbsScaler": MaxAbsScaler(),
}


@pytest.mark.parametrize("name", SCALERS)
def test_scaling_is_applied_on_the_way(name):
    X = np.rint((on_grid(3000, 11, 1) + 1.0) * 7.5) + np.arange(11.0)
    model = make_pipeline(SCALERS[name], SVC()).fit(X[:300], X[:300, 0] > np.median(X[:300, 0]))
    machine, Z = KernelMachine.from_sklearn(model), np.rint((on_grid(600, 11, 2) + 1.0) * 7.5) + np.arange(11.0)
    scaled = model[0].transform(X)
    guard = replace(guard_for(machine, scaled, 0), grids=FeatureBlocks.of(scaled).grids).including([scaled])
    assert guard.grids.features.all()
    Z = np.concatenate([X, Z, Z + 0.25, Z + 0.1, Z[:5] + 2.0**40, np.zeros((1, 11))])
    expected = slow_unknown(guard, model[0].transform(Z))
    expected[:3000] = False  # the definition has no room for rounding
    assert expected[3600:4200].all()
    for rows in (Z, np.asfortranarray(Z)):
        assert_array_equal(guard(Query(rows, scale=True)), expected)
    for rows in (Z.astype(np.float32), sparse.csr_matrix(Z)):
        if not sparse.issparse(rows) or name == "MaxAbsScaler":  # scikit-learn does not centre sparse rows
            assert_array_equal(guard(make_query(machine, rows))[:4200], expected[:4200])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_bad_rows_are_named(value):
    guard, Z = guard_and_rows(9, "all")
    bad = Z.copy()
    bad[50:, 4] = value
    for rows in (bad, sparse.csr_matrix(bad)):
        with pytest.raises(ValueError, match=rf"X contains {value!s} \(row 50, column 4\)"):
            guard(Query(rows), 2)


def test_arrays_that_do_not_fit_are_refused():
    guard, _ = guard_and_rows(9, "some")
    good = guard.in_single_precision(np.zeros(9))
    net = fields_of(some_net(9, 0.0))
    for tolerance in (-1.0, np.nan):
        with pytest.raises(ValueError, match="grid_tolerance is negative or no number"):
            _core.Guard(guard._fields | {"grid_tolerance": tolerance}, LEVELS[0])
    for name in ("grid_scale", "grid_origin"):
        for change in (guard._fields[name][:-1].copy(), np.full(16, np.nan), np.ones(16)):
            with pytest.raises(ValueError, match=r"elements|not finite|aligned|padding"):
                _core.Guard(guard._fields | {name: change}, LEVELS[0])
        with pytest.raises(KeyError, match=name):
            _core.Guard({k: v for k, v in guard._fields.items() if k != name}, LEVELS[0])
    for name in ("grid_scale", "grid_start"):
        with pytest.raises(KeyError, match=name):
            _core.HingeStage({**net, "guard": {k: v for k, v in good.items() if k != name}}, LEVELS[0])
        for place, value, message in ((0, np.nan, "not finite"), (1, 9.0, "columns and grids"), (9, 1.0, "padding")):
            before = good[name][place]
            good[name][place] = value
            with pytest.raises(ValueError, match=message):
                _core.HingeStage({**net, "guard": good}, LEVELS[0])
            good[name][place] = before
    with pytest.raises(ValueError, match="tolerances are out of order"):
        _core.HingeStage({**net, "guard": good | {"sure_tolerance": 0.25}}, LEVELS[0])


# -- in single precision -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["all", "some"])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("d", WIDTHS)
def test_open_rows_are_those_that_the_guard_marks(d, level, how):
    guard, Z = guard_and_rows(d, how)
    for one in (guard, wide(guard)):
        marked = one(Query(Z))
        for shift in (0.0, one.centres.mean(axis=0)):
            net = some_net(d, shift)
            is_open = open_rows(net, one, Z, level)
            assert is_open[marked].all()
            if one.box_limit == 4.0:  # and no others: no row is near an edge of anything but the grids
                assert_array_equal(is_open, slow_unknown(one, Z))
            if np.isscalar(shift):
                for rows in (sparse.csr_matrix(Z), np.asfortranarray(Z)):
                    assert_array_equal(open_rows(net, one, rows, level), is_open)
            for size in (1, 3, 65):
                assert_array_equal(open_rows(net, one, Z[-size:], level), is_open[-size:])
        assert 0.0 < marked.mean() < 1.0


@pytest.mark.parametrize("offset", [0.0, 30.0, 1000.0])
@pytest.mark.parametrize("level", LEVELS)
def test_the_edges_of_the_tolerance(level, offset):
    """Rows all around an eighth of a step: one verdict in every form, and never wider than the guard's."""
    X = on_grid(3000, 5, 1) + offset
    guard = wide(gridded(X))
    assert guard.grids.features.all()
    rng, step = np.random.default_rng(0), 2.0 / 15.0
    Z = X[:1200].copy()
    shares = np.linspace(0.125 - 0.03, 0.125 + 0.002, 1200) * rng.choice([-1, 1], size=1200)
    Z[np.arange(1200), rng.integers(5, size=1200)] += shares * step
    marked = guard(Query(Z))
    assert 0.01 < marked.mean() < 0.5
    for shift in (0.0, offset, X.mean(axis=0)):
        net = some_net(5, shift)
        is_open = open_rows(net, guard, Z, level)
        assert is_open[marked].all()
        assert not open_rows(net, guard, X, level).any()
        close = offset == 0.0 or not np.isscalar(shift) or shift > 0.0
        assert is_open.mean() < marked.mean() + (0.01 if close else 0.6)
        if np.isscalar(shift):
            assert_array_equal(open_rows(net, guard, sparse.csr_matrix(Z), level), is_open)
        alone = [open_rows(net, guard, Z[i : i + 1], level)[0] for i in range(0, 1200, 40)]
        assert_array_equal(alone, is_open[::40])


def test_where_floats_cannot_tell_all_rows_are_open():
    X = on_grid(3000, 5, 1)
    guard = gridded(X)
    fields = guard.in_single_precision(np.full(5, 1e6))
    assert fields["box_limit"] == -1.0
    assert "grid_scale" not in fields
    for level in LEVELS:
        assert open_rows(some_net(5, 1e6), guard, X[:100], level).all()


def test_huge_numbers_are_open():
    guard, _ = guard_and_rows(22, "all")
    Z = np.repeat(on_grid(1, 22, 1), 8, axis=0)
    for row, value in enumerate((1e20, -1e20, 1e39, -1e39, 1e300, -1e300)):
        Z[row, 3 * row] = value
    for level in LEVELS:
        for rows in (Z, sparse.csr_matrix(Z)):
            assert open_rows(some_net(22, 0.0), wide(guard), rows, level).tolist() == [True] * 6 + [False] * 2
            assert wide(guard)(Query(rows)).tolist() == [True] * 6 + [False] * 2


# -- made-up rows ------------------------------------------------------------------------------------------------------


def test_made_up_rows_keep_to_grids():
    X = on_grid(4000, 6, 1)
    near, rng = Neighbourhoods(X, 0), np.random.default_rng(0)
    guard = guard_for(random_machine(d=6), X, 0, near=near)
    for rows in (near.between(2000, rng), near.shifted(2000, 0.7, rng)):
        assert not guard.grids.off(rows).any()
        assert len(np.unique(rows, axis=0)) > 1000
    moved = near.shifted(4000, 0.7, rng, np.arange(4000)) - near.X
    assert abs(moved.mean()) < 0.01  # to both sides
    assert 0.3 < (moved != 0.0).mean() < 0.95


def test_a_common_value_on_a_grid_is_there_or_not():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(20, 41, size=3000) * (rng.random(3000) < 0.5), 1e4 * rng.normal(size=3000)])
    X[:19, 0] = np.arange(1, 20)  # values between are on the grid, and rare
    blocks = FeatureBlocks.of(X)
    assert blocks.grids.features.tolist() == [True, False]
    assert blocks.common[0] == 0.0
    rows = Neighbourhoods(X, 0).shifted(3000, 0.5, rng)[:, 0]
    assert_array_equal(rows, np.rint(rows))
    assert ((rows > 0) & (rows < 20)).mean() < 0.03


def calibrated(machine, X, X_calibration=None):
    return gather_rows(machine, X, X_calibration, 0.1, 0.9, 0, 1)


def test_calibration_rows_are_inside():
    X, rng = on_grid(4000, 6, 1), np.random.default_rng(1)
    own = svelto.KernelMachine.from_sklearn(SVC(gamma=0.5).fit(X[:400], X[:400, 0] > 0))
    for machine, source in ((own, "stand-ins"), (random_machine(d=6), "held out")):
        rows = calibrated(machine, X if source == "held out" else X[:400])
        assert rows.source == source
        rows = calibrated(machine, X if source == "held out" else np.concatenate([X[:400], on_grid(300, 6, 9)]))
        assert rows.guard.grids is not None
        for part in (rows.choose, rows.check):
            assert not rows.guard.grids.off(part).any()
    # Calibration rows say what is to come; few of them, moved, are on no grid, and new ones may lie between.
    new = on_grid(1000, 6, 2)
    new[:, 3] += rng.uniform(-0.05, 0.05, size=1000)
    for given in (new, sparse.csr_matrix(new)):
        rows = calibrated(random_machine(d=6), X, given)
        assert rows.source == "given"
        assert rows.guard.grids.features.tolist() == [True, True, True, False, True, True]
        assert rows.guard(Query(rows.check)).mean() < 0.02
    rows = calibrated(own, X, X[:100])
    assert rows.source == "stand-ins"
    assert rows.guard.grids is None
    assert rows.guard(Query(rows.check)).mean() < 0.05


# -- whole predictors --------------------------------------------------------------------------------------------------

METHODS = {
    "hinges": {"oracle_rows": 3000, "max_epochs": 4, "n_hinges": 15, "next_stage": None},
    "taylor_tree": {"oracle_rows": 1000, "next_stage": None},
    "reduced_set": {"n_basis": 16},
}
D = 6


def single(X):
    return np.asarray(X, dtype=np.float32).astype(np.float64)


@cache
def fast_one(method):
    machine = random_machine(n_sv=60, d=D, gamma=0.2)
    promise = {"agreement": 0.9, "confidence": 0.9, "random_state": 0, "n_jobs": 1}
    return svelto.accelerate(machine, single(on_grid(4000, D, 1)), method=method, **promise, **METHODS[method])


def strangers():
    rng = np.random.default_rng(5)
    usual, noise = on_grid(300, D, 2), rng.uniform(-1, 1, size=(300, D))
    holes = usual.copy()
    holes[:, :2] = 0.0
    return {
        "noise": noise[~np.isclose(noise * 7.5 % 1.0, 0.5, atol=0.13).all(axis=1)],  # by chance some are on all grids
        "holes": holes,
        "half a step": usual + np.eye(D)[rng.integers(D, size=300)] / 15.0,
        "zeros": np.zeros((5, D)),
    }


@pytest.mark.parametrize("method", METHODS)
def test_strangers_get_the_exact_label_and_ordinary_rows_the_stages_one(method):
    fast = fast_one(method)
    assert fast.report.promise == "statistical"
    assert fast._engine.guard.grids.features.all()
    exact = svelto.accelerate(fast.machine)
    for Z in strangers().values():
        assert slow_off_grid(fast._engine.guard, Z).all()
        for rows in (Z, sparse.csr_matrix(Z), Z.astype(np.float32)):
            assert fast.work(rows)["guarded"] == 1.0
            assert_array_equal(fast.predict(rows), exact.predict(rows))
        assert [fast.predict(Z[i : i + 1])[0] for i in range(5)] == exact.predict(Z[:5]).tolist()
    usual = on_grid(3000, D, 6)
    assert fast.work(usual)["guarded"] < 0.01
    assert fast.work(usual)["stages"]["exact"] < 0.6
    assert fast.report.work["share sent on by the guard"] < 0.02
    again = pickle.loads(pickle.dumps(fast))
    for Z in (usual, *strangers().values()):
        assert_array_equal(again.predict(Z), fast.predict(Z))
        assert again.work(Z) == fast.work(Z)
    assert fast._engine.guard.nbytes > replace(fast._engine.guard, grids=None).nbytes


@pytest.mark.parametrize("method", METHODS)
def test_files_keep_grids(method, tmp_path):
    fast, path = fast_one(method), tmp_path / "m.svelto"
    fast.save(path)
    for verify in (True, False):
        again = svelto.load(path, verify=verify, n_jobs=1)
        for name in ("scale", "origin"):
            assert_array_equal(getattr(again._engine.guard.grids, name), getattr(fast._engine.guard.grids, name))
        for Z in (on_grid(500, D, 6), *strangers().values()):
            assert_array_equal(again.predict(Z), fast.predict(Z))
            assert again.work(Z) == fast.work(Z)


FORGED = {
    "nan": ({"scale": np.nan}, "not finite"),
    "infinite": ({"origin": np.inf}, "not finite"),
    "below zero": ({"scale": -1.0}, "not between 0 and"),
    "too large": ({"scale": 1e300}, "not between 0 and"),
    "none": ({"scale": 0.0, "all": True}, "not between 0 and"),
    "too fine": ({"scale": 1e9}, "too fine for its box"),
    "far off": ({"origin": 1e9}, "too fine for its box"),
}


@pytest.mark.parametrize("case", FORGED)
def test_forged_grids_are_refused(case, tmp_path):
    changes, message = FORGED[case]
    fast = pickle.loads(pickle.dumps(fast_one("hinges")))
    grids = fast._engine.guard.grids
    parts = {"scale": grids.scale.copy(), "origin": grids.origin.copy()}
    for name in ("scale", "origin"):
        if name in changes:
            parts[name][slice(None) if "all" in changes else 2] = changes[name]
    fast._engine.guard.grids = Grids(**parts)
    fast.save(tmp_path / "m.svelto")
    with pytest.raises(UnreadableFileError, match=message):
        svelto.load(tmp_path / "m.svelto")


def asked_rows():
    """Rows that floats hold, ordinary and strange; none where rounding decides."""
    return single(np.concatenate([on_grid(500, D, 6), *strangers().values()]))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_c_headers_keep_grids(dtype, tmp_path):
    Z, found = asked_rows(), {}
    for method in METHODS:
        fast = fast_one(method)
        found[method] = fast, Z, fast.export_c(tmp_path / f"{method}.h", name=method, dtype=dtype, X=Z)
        text = (tmp_path / f"{method}.h").read_text()
        assert "_guard_scale[" in text
    library = CLibrary(tmp_path, found, [])
    for method, (fast, _, result) in found.items():
        _, labels = library.ask(result.name, Z, 1)
        if dtype == "float32":
            assert_array_equal(labels, fast.predict(Z))
            continue
        marked = fast._engine.guard(Query(Z))
        assert (labels == fast.predict(Z))[marked].mean() > 0.97, method


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", METHODS)
def test_onnx_graphs_keep_grids(method, dtype, tmp_path):
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    fast, Z = fast_one(method), asked_rows()
    written = fast.export_onnx(tmp_path / "m.onnx", dtype=dtype, X=Z)
    session = onnxruntime.InferenceSession(written.path, providers=["CPUExecutionProvider"])
    label = session.run(["label"], {"X": Z.astype(dtype)})[0]
    assert_array_equal(label, fast.predict(Z))
    assert {"Round", "ReduceMax"} <= set(_operators(written.path))


def _operators(path):
    import onnx

    def walk(graph):
        for node in graph.node:
            yield node.op_type
            for attribute in node.attribute:
                yield from walk(attribute.g)

    return walk(onnx.load(path).graph)


def test_guards_without_grids_are_asked_nothing():
    guard = Guard.around(random_machine(d=4), [clusters(400, 4)], 0)
    assert guard.grids is None
    assert guard._fields["grid_tolerance"] == 0.5
    assert "grid_scale" not in guard._fields
    assert "grid_scale" not in guard.in_single_precision(np.zeros(4))
