"""The guard: which rows it knows, and that strangers get the exact machine's label from every statistical cascade."""

from __future__ import annotations

import pickle
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
from machines import random_machine
from oracle import slow_scores
from svelto import _core
from svelto._inputs import Query, make_query
from svelto.cascade import guards_itself
from svelto.guard import Guard
from svelto.guard_fit import guard_for
from svelto.machine import KernelMachine

LEVELS = _core.available_levels()
METHODS = {
    "taylor_tree": {"oracle_rows": 1000, "next_stage": None},
    "taylor_tree and reduced set": {"oracle_rows": 1000, "next_stage": "reduced_set"},
    "reduced_set": {"n_basis": 16},
    "sv_tree": {"oracle_rows": 1000, "candidates": "support_vectors", "max_evals": 4},
    "hinges": {"oracle_rows": 3000, "max_epochs": 4, "n_hinges": 15, "next_stage": None},
}


@pytest.fixture(autouse=True)
def stages_pay(monkeypatch):
    """Small machines keep tests fast, but against them no stage pays, and none would be used: here every stage pays."""
    monkeypatch.setattr("svelto.stage_search.PAYS", 1e9)


def slow_gaps(guard, X):
    return np.maximum(np.maximum(guard.low - X, X - guard.high), 0.0)


def slow_outside(guard, X):
    """The definition, written to be read. Rows are scaled already."""
    near_box = (slow_gaps(guard, X) ** 2).sum(axis=1) <= guard.box_limit
    sq_dist = ((X[:, None, :] - guard.centres[None, :, :]) ** 2).sum(axis=-1)
    in_a_ball = (sq_dist <= guard.sq_radii).any(axis=1)
    return ~(near_box & in_a_ball & (slow_direction_sums(guard, X) <= guard.direction_limit))


def slow_direction_sums(guard, X):
    along = (X[:, None, :] * guard.directions[None, :, :]).sum(axis=-1) - guard.offset
    return (along**2).sum(axis=1)


def clusters(n, d, seed=0, centres=3):
    rng = np.random.default_rng(seed)
    middle = np.random.default_rng(77).normal(size=(centres, d)) * 3.0
    return middle[rng.integers(centres, size=n)] + rng.normal(size=(n, d))


def around(X, machine=None, **options):
    machine = random_machine(d=X.shape[1]) if machine is None else machine
    return Guard.around(machine, [X], 0, **options)


def forms(X):
    """The same rows in every form that native code reads."""
    yield X
    yield np.asfortranarray(X)
    yield np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3]
    yield X[::-1].copy()[::-1]
    yield sparse.csr_matrix(X)
    wide = sparse.csr_matrix(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    yield wide


# -- which rows it knows -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("box_limit", [0.0, 0.3, 40.0])
@pytest.mark.parametrize("d", [1, 2, 7, 8, 9, 16, 22, 41])  # around the groups of eight
def test_marks_follow_the_definition(d, box_limit):
    guard = replace(around(clusters(400, d)), box_limit=box_limit)
    Z = np.concatenate([clusters(300, d, seed=1), clusters(300, d, seed=2) * 1.3, clusters(50, d, seed=3) * 0.0])
    Z[np.random.default_rng(4).random(Z.shape) < 0.2] = 0.0
    expected = slow_outside(guard, Z)
    assert 0.02 < expected.mean() < 1.0 or d <= 2
    assert_array_equal(guard.box_distances(Z) <= box_limit, (slow_gaps(guard, Z) ** 2).sum(axis=1) <= box_limit)
    for rows in forms(Z):
        assert_array_equal(guard(Query(rows)), expected)
    single = Z.astype(np.float32)
    expected = slow_outside(guard, single.astype(np.float64))
    for rows in forms(single):
        assert_array_equal(guard(Query(rows)), expected)


@pytest.mark.parametrize("level", LEVELS)
def test_every_instruction_level_marks_the_same_rows(level):
    guard, Z = around(clusters(400, 13)), clusters(1000, 13, seed=1) * 1.2
    native, out = _core.Guard(guard._fields, level), np.empty(1000, dtype=bool)
    assert native.mark_dense(Z, out, False, 1) == (out.sum(), -1, 0)
    assert_array_equal(out, slow_outside(guard, Z))
    data = sparse.csr_matrix(Z)
    assert native.mark_csr(data.data, data.indices, data.indptr, out, 1) == (out.sum(), -1, 0)
    assert_array_equal(out, slow_outside(guard, Z))


@pytest.mark.parametrize("offset", [0.0, -5.0, 1e6])
@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_rows_it_was_made_of_are_inside_in_every_form(unit, offset):
    rng = np.random.default_rng(0)
    first, second = (clusters(300, 5, seed=seed) * unit + offset * unit for seed in (1, 2))
    second[:3] *= 40.0  # wild rows get balls of their own
    sparse_rows = sparse.random(200, 5, density=0.3, format="csr", rng=rng) * unit
    guard = Guard.around(random_machine(d=5), [first, second, sparse_rows], 0)
    for X in (first, second, sparse_rows.toarray()):
        for rows in forms(X):
            assert not guard(Query(rows)).any()
    more = clusters(50, 5, seed=3) * 7.0 * unit
    assert guard(Query(more)).any()
    wider = guard.including([more])
    assert not wider(Query(more)).any()
    assert not wider(Query(first)).any()
    assert_array_equal(wider.centres, guard.centres)
    assert_array_equal(wider.directions, guard.directions)
    assert wider.direction_limit == max(guard.direction_limit, guard.direction_sums(more).max())


def test_the_box_is_not_widened():
    X = np.random.default_rng(0).uniform(1.0, 2.0, size=(2000, 3))
    guard = around(X)
    assert_array_equal(guard.low, X.min(axis=0))
    assert_array_equal(guard.high, X.max(axis=0))
    middle = np.tile(X.mean(axis=0), (6, 1))
    for k in range(3):
        middle[2 * k, k], middle[2 * k + 1, k] = guard.low[k] * (1 - 1e-13), guard.high[k] * (1 + 1e-13)
    assert guard(Query(middle)).all()
    assert not guard(Query(X.mean(axis=0)[None, :])).any()


def test_the_box_may_be_left_by_a_distance_and_no_more():
    X = np.random.default_rng(0).uniform(1.0, 2.0, size=(2000, 3))
    radii = np.full(len(around(X).sq_radii), 100.0)
    guard = replace(around(X), box_limit=0.25, sq_radii=radii, direction_limit=np.inf)
    steps = np.array([[0.5, 0, 0], [0, 0.3, 0.4], [0.288, 0.288, 0.288], [0, 0, 0.5]])  # half of one in length
    for rows in (*forms(guard.high + 0.99 * steps), *forms(guard.low - 0.99 * steps)):
        assert not guard(Query(rows)).any()
    for rows in (*forms(guard.high + 1.01 * steps), *forms(guard.low - 1.01 * steps)):
        assert guard(Query(rows)).all()
    assert guard.including([X * 2.0]).box_limit == 0.25


def test_ratios_say_how_far_rows_are_from_the_nearest_ball():
    guard, Z = around(clusters(400, 6)), clusters(300, 6, seed=1) * 1.2
    ratios = guard.ball_ratios(Z)
    assert 0.1 < (ratios > 1.0).mean() < 0.9
    assert_array_equal(ratios <= 1.0, ~slow_outside(replace(guard, box_limit=1e9, direction_limit=np.inf), Z))
    wider = replace(guard, sq_radii=guard.sq_radii * 1.2**2)
    np.testing.assert_allclose(wider.ball_ratios(Z), ratios / 1.2)
    points = around(np.arange(6.0).reshape(2, 3))
    assert points.ball_ratios(np.array([[0.0, 1, 2], [0, 1, 3]])).tolist() == [0.0, np.inf]


def test_balls_see_what_the_box_cannot():
    rng = np.random.default_rng(0)
    along = rng.uniform(-1, 1, size=(3000, 1)) + 0.02 * rng.normal(size=(3000, 2))  # two features that always agree
    guard = around(along)
    assert guard(Query(np.array([[0.9, -0.9], [-0.9, 0.9], [0.7, -0.5]]))).all()
    assert guard(Query(rng.uniform(-0.9, 0.9, size=(1000, 1)) * np.ones(2))).mean() < 0.01
    apart = np.concatenate([rng.normal(size=(1500, 4)) - 20, rng.normal(size=(1500, 4)) + 20])  # a gap
    assert around(apart)(Query(np.zeros((1, 4)))).all()
    wild = np.concatenate([rng.normal(size=(3000, 4)), np.full((1, 4), 1e6)])  # one row from nowhere
    guard = around(wild)
    assert guard(Query(np.array([[10.0] * 4, [1e3] * 4, [1e6 - 1e3] * 4]))).all()
    assert guard(Query(rng.normal(size=(1000, 4)))).mean() < 0.05


def on_a_plane(n, seed, spread=0.0):
    """Rows of five features that depend on two numbers each."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(np.random.default_rng(5).normal(size=(5, 5)))[0]
    return 3.0 + rng.uniform(-2, 2, size=(n, 2)) @ axes[:2] + spread * rng.normal(size=(n, 3)) @ axes[2:], axes[2:]


def correlated(n, d, seed):
    mixing = np.random.default_rng(8).normal(size=(d // 2, d))
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d // 2)) @ mixing + 0.1 * rng.normal(size=(n, d))


@pytest.mark.parametrize("spread", [0.0, 1e-9, 0.01])
def test_directions_see_rows_off_the_plane(spread):
    X, off = on_a_plane(3000, 1, spread)
    for guard in (around(X), guard_for(random_machine(d=5), X, 0)):
        new = on_a_plane(2000, 2, spread)[0] * 0.5 + 1.5  # well inside
        for step in (*off, off.sum(axis=0)):
            strangers = new + 0.15 * step
            assert replace(guard, direction_limit=np.inf)(Query(strangers)).mean() < 0.1
            for rows in (strangers, sparse.csr_matrix(strangers)):
                assert guard(Query(rows)).all()
        for rows in (new, sparse.csr_matrix(new)):
            assert guard(Query(rows)).mean() < 0.01


def test_directions_see_broken_dependencies():
    X, new = correlated(4000, 16, 1), correlated(2000, 16, 2)
    guard, rng = guard_for(random_machine(d=16), X, 0), np.random.default_rng(3)
    without = replace(guard, direction_limit=np.inf)
    low, high = X.min(axis=0), X.max(axis=0)
    shuffled = np.stack([rng.permutation(column) for column in new.T], axis=1)
    noise = rng.uniform(low / 2, high / 2, size=(2000, 16))
    for strangers in (shuffled, noise, new[:, ::-1]):
        assert without(Query(strangers)).mean() < 0.5
        assert guard(Query(strangers)).mean() > 0.99
    assert guard(Query(new)).mean() < 0.005


@pytest.mark.parametrize("d", [1, 3, 8, 9, 20])
def test_directions_are_those_of_the_least_variance(d):
    X = correlated(2000, 2 * d, 1)[:, :d] * np.geomspace(0.1, 5.0, d) - 2.0
    guard, Z = around(X), clusters(200, d)
    k = min(d, 8)
    centred = X - X.mean(axis=0)
    _, values, axes = np.linalg.svd(centred, full_matrices=False)
    expected = ((((Z - X.mean(axis=0)) @ axes.T) / (values / np.sqrt(len(X)))) ** 2)[:, -k:].sum(axis=1)
    assert guard.directions.shape == (k, d)
    np.testing.assert_allclose(guard.direction_sums(Z), expected, rtol=1e-6)
    np.testing.assert_allclose(guard.direction_sums(sparse.csr_matrix(Z)), expected, rtol=1e-6)
    np.testing.assert_allclose((X @ guard.directions.T - guard.offset).std(axis=0), 1.0, rtol=1e-6)
    assert guard.direction_limit == guard.direction_sums(X).max()


def test_directions_without_variance_are_in_units_of_the_largest():
    X = on_a_plane(3000, 1)[0]
    guard = around(X)
    deviation = np.sqrt(np.linalg.eigvalsh(np.cov(X.T)).max())
    np.testing.assert_allclose(np.linalg.norm(guard.directions, axis=1)[:3], 1e3 / deviation, rtol=1e-2)
    assert (np.abs(guard.directions[:3] @ X.T - guard.offset[:3, None]) < 1e-6).all()
    far = X + 1e6  # float64 itself is that wrong here, and it must not be taken for a stranger
    assert not around(far)(Query(far)).any()


def test_where_there_are_no_directions():
    rng = np.random.default_rng(0)
    wide, few, same = rng.normal(size=(1100, 1001)), rng.normal(size=(6, 6)), np.ones((30, 3))
    tiny = rng.normal(size=(20, 3)) * 1e-320
    for X in (wide, few, same, tiny):
        guard = guard_for(random_machine(d=X.shape[1]), X, 0)
        assert guard.directions.shape == (0, X.shape[1])
        assert guard.direction_limit == guard.including([X]).direction_limit == np.inf
        assert not guard(Query(X)).any()
        assert not guard.direction_sums(X).any()
        expected = slow_outside(guard, X * 1.5)
        for rows in forms(X * 1.5):
            assert_array_equal(guard(Query(rows)), expected)
        assert not pickle.loads(pickle.dumps(guard))(Query(X)).any()


def test_absent_features_are_zeros():
    X = np.random.default_rng(0).uniform(1.0, 2.0, size=(500, 6))
    X[:, :3] -= 1.5  # zero is usual for three features, far from the others
    guard = around(X)
    Z = np.tile(X.mean(axis=0), (5, 1))
    Z[1, 0] = Z[2, 4] = 0.0
    Z[3] = 0.0
    Z[4, :3] = 0.0
    expected = [False, False, True, True, False]
    stored = sparse.csr_matrix(Z)
    explicit = sparse.csr_matrix((Z.ravel(), np.tile(np.arange(6), 5), np.arange(0, 31, 6)), shape=(5, 6))
    assert stored.nnz < explicit.nnz
    for rows in (Z, stored, explicit):
        assert guard(Query(rows)).tolist() == expected
    assert guard(Query(sparse.csr_matrix((2, 6)))).all()


SCALERS = {
    "StandardScaler": StandardScaler(),
    "only centred": StandardScaler(with_std=False),
    "MinMaxScaler": MinMaxScaler((-1, 2)),
    "clipped": MinMaxScaler((1, 3), clip=True),
    "MaxAbsScaler": MaxAbsScaler(),
}


@cache
def scaled_machine(name):
    X = clusters(300, 11) * np.geomspace(1e-3, 1e3, 11) + 5.0
    model = make_pipeline(SCALERS[name], SVC()).fit(X, X[:, 0] > np.median(X[:, 0]))
    return model, KernelMachine.from_sklearn(model), X


@pytest.mark.parametrize("name", SCALERS)
def test_scaling_is_applied_on_the_way(name):
    model, machine, X = scaled_machine(name)
    guard = around(model[0].transform(X), machine)
    Z = np.concatenate([X, X * 1.2, X + 30.0, clusters(300, 11, seed=5) * np.geomspace(1e-3, 1e3, 11) + 5.0])
    expected = slow_outside(guard, model[0].transform(Z))
    assert 0.1 < expected.mean() < 0.9
    expected[:300] = False  # the definition has no room for rounding
    query = make_query(machine, Z)
    assert query.scale
    before = Z.copy()
    for rows in (Z, np.asfortranarray(Z)):
        assert_array_equal(guard(Query(rows, scale=True)), expected)
    assert_array_equal(Z, before)
    for start in range(0, 1200, 7):
        assert_array_equal(guard(Query(Z[start : start + 7], scale=True)), expected[start : start + 7])
    for other in (Z.astype(np.float32), sparse.csr_matrix(Z)):
        if sparse.issparse(other) and name != "MaxAbsScaler":
            continue  # scikit-learn does not centre sparse rows
        query = make_query(machine, other)
        assert not query.scale
        scaled = query.rows.toarray() if sparse.issparse(query.rows) else query.rows
        got, expected_here = guard(query), slow_outside(guard, scaled.astype(np.float64))
        assert_array_equal(got[300:], expected_here[300:])  # the first rows lie on the edges


def test_threads_and_batches_do_not_matter():
    guard, Z = around(clusters(500, 6)), clusters(20_000, 6, seed=1)
    expected = guard(Query(Z), 1)
    assert 0 < expected.mean() < 0.2
    for rows in (Z, sparse.csr_matrix(Z), np.asfortranarray(Z)):
        for n_jobs in (1, 2, 5):
            assert_array_equal(guard(Query(rows), n_jobs), expected)
    for size in (1, 3, 64, 1000):
        parts = [guard(Query(Z[start : start + size])) for start in range(0, 2000, size)]
        assert_array_equal(np.concatenate(parts)[:2000], expected[:2000])
    again = pickle.loads(pickle.dumps(guard))
    assert_array_equal(again(Query(Z)), expected)
    assert again.nbytes == guard.nbytes > guard.low.nbytes + guard.high.nbytes + guard.centres.nbytes


def test_few_rows_and_copies():
    for X in (np.arange(6.0).reshape(2, 3), np.repeat(np.arange(6.0).reshape(2, 3), 30, axis=0)):
        guard = around(X)
        assert not guard(Query(X)).any()
        assert guard(Query(X + 1e-9)).all()
        assert guard(Query(np.array([[1.5, 2.5, 3.5]]))).all()  # between the two balls of radius zero


# -- rows that cannot be read ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [None, "StandardScaler", "clipped"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_bad_rows_are_named(name, value):
    if name is None:
        machine, X = random_machine(d=11), clusters(300, 11)
        guard = around(X, machine)
    else:
        model, machine, X = scaled_machine(name)
        guard = around(model[0].transform(X), machine)
    Z = np.concatenate([X[:100], X[:100] + 1e5, X[:100]])
    for row in (0, 50, 150, 299):
        bad = Z.copy()
        bad[row:, 10] = value
        for rows in (bad, np.asfortranarray(bad)):
            with pytest.raises(ValueError, match=rf"X contains {value!s} \(row {row}, column 10\)"):
                guard(Query(rows, name is not None), 2)
        with pytest.raises(ValueError, match=rf"\(row {row}, column 10\)"):
            guard(Query(sparse.csr_matrix(bad)), 2)


def test_damaged_columns_are_named():
    guard, Z = around(clusters(100, 4)), sparse.csr_matrix(clusters(60, 4, seed=1))
    for column in (-1, 4, 2**30):
        bad = Z.copy()
        bad.indices[4 * 40 + 3] = column
        with pytest.raises(ValueError, match="Row 40 of the sparse matrix X has column numbers out of order"):
            guard(Query(bad))
    bad = Z.copy()
    bad.indices[[20, 21]] = bad.indices[[21, 20]]
    with pytest.raises(ValueError, match="Row 5 of the sparse"):
        guard(Query(bad))


def test_arrays_that_do_not_fit_are_refused():
    guard, Z = around(clusters(100, 4)), clusters(5, 4)
    out = np.empty(5, dtype=bool)
    with pytest.raises(ValueError, match="rows and guard disagree in width"):
        guard._native.mark_dense(Z[:, :3].copy(), out, False, 1)
    with pytest.raises(ValueError, match="out and rows disagree in length"):
        guard._native.mark_dense(Z, out[:3], False, 1)
    changes = {"d": 5}, {"n_balls": 9}, {"n_balls": 0}, {"low": np.zeros(3)}, {"limit": np.zeros(1)}
    limits = tuple({"box_limit": value} for value in (-1.0, np.inf, np.nan))
    directions = {"direction_limit": -1.0}, {"direction_limit": np.nan}, {"directions": np.zeros((3, 8))}
    for change in (*changes, *limits, *directions, {"offset": np.zeros(7)}):
        with pytest.raises(ValueError, match=r"elements|balls|aligned|not finite|no number"):
            _core.Guard(guard._fields | change, LEVELS[0])
    unbounded = guard._fields["high"].copy()
    unbounded[0] = np.inf
    with pytest.raises(ValueError, match=r"not finite|aligned"):
        _core.Guard(guard._fields | {"high": unbounded}, LEVELS[0])


# -- how far ordinary rows are from the guard --------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(3000, 6), (3000, 22), (300, 400)])
def test_ordinary_rows_are_inside_and_strangers_are_not(n, d):
    X, new = clusters(n, d, seed=1), clusters(2000, d, seed=9)
    guard = guard_for(random_machine(d=d), X, 0)
    assert not guard(Query(X)).any()
    assert guard(Query(new)).mean() < (0.02 if n == 300 else 0.005)  # 60 rows show no more
    assert (guard.box_distances(new) > 0.0).mean() > (0.5 if d == 400 else 0.002)  # the box itself sends on more
    for stranger in (new * 10.0, new + 20.0, new[:, ::-1] + 4.0):
        assert guard(Query(stranger)).all()


def test_a_fifth_of_the_rows_says_how_far():
    X = clusters(2000, 12, seed=1)
    guard = guard_for(random_machine(d=12), X, 0)
    held = np.zeros(2000, dtype=bool)
    held[np.random.default_rng([0, 4]).choice(2000, size=400, replace=False)] = True
    first = Guard.around(guard.machine, [X[~held]], 0)
    widths = X.max(axis=0) - X.min(axis=0)
    assert guard.box_limit == max(first.box_distances(X[held]).max(), (0.2 * np.median(widths)) ** 2)  # of 400 rows all
    assert guard.direction_limit == 1.5 * max(first.direction_limit, first.direction_sums(X[held]).max())
    stretch = first.ball_ratios(X[held]).max()
    assert stretch > 1.0
    assert (guard.sq_radii >= first.sq_radii * stretch**2 * (1 - 1e-12)).all()
    assert_array_equal(guard.low, X.min(axis=0))
    assert_array_equal(guard.high, X.max(axis=0))


def test_the_box_may_be_left_as_far_as_neighbours_are_apart():
    X = np.random.default_rng(0).uniform(size=(2000, 2)) * [1.0, 2.0]
    distances = np.linalg.norm(X[:, None, :] - X[None, :, :], axis=-1)
    np.fill_diagonal(distances, np.inf)
    nearest = np.quantile(distances.min(axis=1), 0.9)
    guard = guard_for(random_machine(d=2, gamma=1e6), X, 0)
    assert 0.9 * nearest < np.sqrt(guard.box_limit) < 1.3 * nearest  # neighbours are looked for nearby only
    # One feature in another unit, and one that never changes: a typical one says what is much.
    X = np.random.default_rng(0).uniform(size=(500, 5)) * [1.0, 1.0, 1.0, 1e6, 0.0]
    guard = guard_for(random_machine(d=5), X, 0)
    beyond = np.array([[0.9, 1.5, 0.5, 5e5, 0.0], [0.9, 0.5, 0.5, 5e5, 0.5]])
    wide = replace(guard, direction_limit=np.inf, box_limit=0.2**2)
    assert guard.box_limit >= (0.2 * 0.98) ** 2
    assert wide(Query(beyond)).all()
    for n in (1, 2):
        assert guard_for(random_machine(d=3), np.arange(9.0).reshape(3, 3)[: n + 1], 0).box_limit < 50.0


def test_wide_kernels_allow_for_drift():
    """Within a small part of the kernel's width a score hardly bends: box and balls may be left by as much."""
    X = clusters(2000, 12, seed=1)
    sharp, wide = (guard_for(random_machine(d=12, gamma=gamma), X, 0) for gamma in (1e6, 1e-4))
    assert wide.box_limit == pytest.approx((0.07 / 0.01) ** 2)
    assert sharp.box_limit < wide.box_limit
    np.testing.assert_allclose(wide.sq_radii, sharp.sq_radii * 1.25**2, rtol=1e-3)
    other = guard_for(random_machine("poly", d=12, gamma=1e-4), X, 0)
    assert other.box_limit == sharp.box_limit


def test_edges_that_rows_are_often_on_belong_to_the_box():
    X = np.eye(6)[np.random.default_rng(0).integers(6, size=1000)]
    guard = guard_for(random_machine(d=6), X, 0)
    assert guard.box_limit == pytest.approx(0.2**2)
    assert not guard(Query(X)).any()
    assert guard(Query(X * 1.21)).all()
    copies = guard_for(random_machine(d=3), np.repeat(np.arange(6.0).reshape(2, 3), 30, axis=0), 0)
    assert (copies.sq_radii < 1e-20).all()


# -- every statistical cascade -----------------------------------------------------------------------------------------

WIDTH = 4
MACHINES = {
    "two classes": {},
    "three classes": {"n_classes": 3},
    "outlier": {"task": "outlier"},
}


def usual(n, seed=1):
    return np.random.default_rng(seed).normal(size=(n, WIDTH)) + 4.0


def accelerated(machine, X, method, **options):
    promise = {"agreement": 0.9, "confidence": 0.9, "random_state": 0, "n_jobs": 1}
    return svelto.accelerate(machine, X, method=method.split(" ")[0], **promise | METHODS[method] | options)


@cache
def fast_one(method, name="two classes", kernel="rbf"):
    machine = random_machine(kernel, n_sv=60, d=WIDTH, gamma=0.2, **MACHINES[name])
    machine = svelto.KernelMachine(
        **{field: getattr(machine, field) for field in machine.__dataclass_fields__}
        | {"support_vectors": machine.support_vectors + 4.0}
    )
    return accelerated(machine, usual(3000), method)


STRANGERS = {
    "shifted": usual(300, 2) + 9.0,
    "shifted in one feature": usual(300, 2) + 12.0 * np.eye(WIDTH)[np.arange(300) % WIDTH],
    "ten times": usual(300, 3) * 10.0,
    "mirrored": -usual(300, 4),
    "far away": usual(300, 5) * 1e3,
    "zeros": np.zeros((20, WIDTH)),
    "other data": np.random.default_rng(6).poisson(0.3, size=(300, WIDTH)).astype(float),
    "tiny": usual(300, 7) * 1e-300,
    "huge": usual(300, 7) * 1e300,
}


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("method", METHODS)
def test_strangers_get_the_exact_label(method, name, kernel):
    fast = fast_one(method, name, kernel)
    if fast.report.promise == "exact":
        assert fast._engine.guard is None
        return
    exact = svelto.accelerate(fast.machine)
    for X in STRANGERS.values():
        with np.errstate(all="ignore"):
            marked = fast._engine.guard(Query(X))
            assert marked.all()
            truth = exact.predict(X)
            for rows in (X, sparse.csr_matrix(X)):
                assert_array_equal(fast.predict(rows), truth)
                assert fast.work(rows)["guarded"] == fast.work(rows)["stages"]["exact"] == 1.0
            assert [fast.predict(X[i : i + 1])[0] for i in range(20)] == truth[:20].tolist()
            assert_array_equal(fast._engine.scores(Query(X), 1), fast._engine.exact.scores(Query(X), 1))


@pytest.mark.parametrize("method", ["hinges", "reduced_set", "sv_tree"])
def test_without_a_guard_strangers_get_wrong_labels(method):
    """There is something to guard against: stages are sure of themselves where no row was checked.

    A Taylor tree knows the reach of its leaves, which is enough here and not everywhere.
    """
    fast = pickle.loads(pickle.dumps(fast_one(method)))
    X = STRANGERS["other data"]
    truth = svelto.accelerate(fast.machine).predict(X)
    assert_array_equal(fast.predict(X), truth)
    fast._engine.guard = None
    fast._engine.stages = [replace(s, guard=None) if guards_itself(s) else s for s in fast._engine.stages]
    assert (fast.predict(X) != truth).mean() > 0.02


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("method", METHODS)
def test_ordinary_rows(method, name):
    fast, Z = fast_one(method, name), usual(5000, 8)
    work, marked = fast.work(Z), fast._engine.guard(Query(Z))
    assert 0.0 < work["guarded"] == marked.mean() < 0.03  # 8 edges, of 3000 rows
    assert work["guarded"] <= work["stages"]["exact"]
    assert sum(work["stages"].values()) == pytest.approx(1.0)
    assert fast._engine.guard(Query(usual(3000))).mean() < 0.01  # most of them it was built on
    exact = svelto.accelerate(fast.machine)
    labels = fast.predict(Z)
    assert_array_equal(labels[marked], exact.predict(Z[marked]))
    for rows in (Z, sparse.csr_matrix(Z)):
        assert_array_equal(pickle.loads(pickle.dumps(fast)).predict(rows), fast.predict(rows))
    for n_jobs in (1, 2, 3):
        again = pickle.loads(pickle.dumps(fast))
        again.n_jobs = n_jobs
        assert_array_equal(again.predict(Z), labels)
        assert again.work(Z) == work
    chosen = np.concatenate([np.flatnonzero(marked)[:30], np.arange(200)])
    for size in (1, 2, 16, 17):
        parts = [fast.predict(Z[chosen[i : i + size]]) for i in range(0, len(chosen), size)]
        assert_array_equal(np.concatenate(parts), labels[chosen])


def test_few_marked_rows_are_read_in_place_and_many_are_left_out():
    """Two ways through the first stage, by the share of marked rows: the same answers."""
    fast = fast_one("taylor_tree and reduced set")
    exact = svelto.accelerate(fast.machine)
    for share in (0.02, 0.08, 0.12, 0.9):
        Z = usual(400, 9)
        n = int(share * 400)
        Z[:n] += 20.0
        Z = Z[np.random.default_rng(0).permutation(400)]
        marked = fast._engine.guard(Query(Z))
        labels, settled = fast._engine.labels(Query(Z), 1)
        assert sum(settled) == 400
        assert settled[-1] >= marked.sum() >= n
        alone = [fast._engine.labels(Query(Z[i : i + 1]), 1)[0][0] for i in range(400)]
        assert_array_equal(labels, alone)
        assert_array_equal(fast.predict(Z)[marked], exact.predict(Z[marked]))
        assert settled == [round(share * 400) for share in fast.work(Z)["stages"].values()]


@pytest.mark.parametrize("method", METHODS)
def test_single_rows_take_the_short_way(method, monkeypatch):
    fast, Z = fast_one(method), usual(50, 8)
    inside = Z[~fast._engine.guard(Query(Z))]
    expected = fast.predict(inside)
    monkeypatch.setattr(Guard, "__call__", None)  # the long way would need it
    assert [fast.predict(row[None, :])[0] for row in inside] == expected.tolist()
    monkeypatch.undo()
    bad = np.where(np.arange(8).reshape(2, 4) == 6, np.nan, Z[:2])
    with pytest.raises(ValueError, match=r"X contains nan \(row 1, column 2\)"):
        fast.predict(bad)


@pytest.mark.parametrize("method", METHODS)
def test_bad_rows_are_named_by_the_cascade(method):
    fast = fast_one(method)
    Z = np.concatenate([usual(200, 8), STRANGERS["shifted"]])
    for row in (3, 250):
        for value in (np.nan, np.inf):
            bad = Z.copy()
            bad[row, 1] = value
            for rows in (bad, sparse.csr_matrix(bad), bad.astype(np.float32)):
                for ask in (fast.predict, fast.decision_function, fast.work):
                    with pytest.raises(ValueError, match=rf"X contains {value!s} \(row {row}, column 1\)"):
                        ask(rows)


@pytest.mark.parametrize("method", ["taylor_tree", "reduced_set", "sv_tree"])
def test_values(method):
    machine = random_machine(n_sv=60, d=WIDTH, gamma=0.2, task="regression")
    X = usual(2000) - 4.0
    fast = accelerated(machine, X, method, tolerance=0.5)
    for Z in STRANGERS.values():
        if np.abs(Z).max() < 1e3:
            assert fast._engine.guard(Query(Z + 8.0)).all()
            assert np.abs(fast.predict(Z + 8.0) - slow_scores(machine, Z + 8.0)[:, 0]).max() < 1e-4  # float32 sums


@pytest.mark.parametrize("scaler", ["StandardScaler", "clipped", "MaxAbsScaler"])
@pytest.mark.parametrize("method", ["taylor_tree", "reduced_set", "sv_tree"])
def test_pipelines(method, scaler):
    X = usual(1500) * [1, 10, 100, 1e-3]
    y = (np.sin(2 * X[:, 0]) + X[:, 1] / 10 > 4) ^ (np.random.default_rng(0).random(1500) < 0.1)
    model = make_pipeline(SCALERS[scaler], SVC(gamma="scale")).fit(X, y)
    given = {"X_calibration": usual(800, 12) * [1, 10, 100, 1e-3]}
    for fast in (accelerated(model, X, method), accelerated(model, X, method, **given)):
        assert fast.report.promise == "statistical"
        exact, guard = svelto.accelerate(model), fast._engine.guard
        assert fast.work(X)["guarded"] == 0.0  # built on them
        for Z in (X * 10, X + np.array([9, 90, 900, 9e-3]), -X, np.zeros((20, 4)), X * 1e3):
            for rows in (Z, Z.astype(np.float32), np.asfortranarray(Z)):
                if scaler != "clipped":
                    assert fast.work(rows)["guarded"] == 1.0
                truth, marked = exact.predict(rows), guard(make_query(fast.machine, rows))
                assert_array_equal(fast.predict(rows)[marked], truth[marked])
            assert [fast.predict(Z[i : i + 1])[0] for i in range(20)] == fast.predict(Z)[:20].tolist()
        assert fast.work(usual(3000, 13) * [1, 10, 100, 1e-3])["guarded"] < 0.03
        if scaler == "MaxAbsScaler":
            stored = sparse.csr_matrix(X * 10)
            assert_array_equal(fast.predict(stored), exact.predict(stored))
            assert fast.work(stored)["guarded"] == 1.0


def test_sparse_rows():
    rng = np.random.default_rng(0)

    def switches(n):
        return sparse.csr_matrix((rng.random((n, 40)) < 0.1).astype(float))

    machine = random_machine(n_sv=60, d=40, gamma=0.05)
    fast = accelerated(machine, switches(3000), "taylor_tree")
    exact, guard = svelto.accelerate(machine), fast._engine.guard
    assert fast.work(switches(3000))["guarded"] < 0.01
    some = switches(200)
    some = some[np.diff(some.indptr) > 0]
    for Z in (some * 3.0, some * -1.0, sparse.csr_matrix(np.ones((2, 40)))):
        assert guard(Query(Z)).all()
        assert_array_equal(fast.predict(Z), exact.predict(Z))
        assert_array_equal(fast.predict(Z.toarray()), exact.predict(Z))


# -- who has one -------------------------------------------------------------------------------------------------------


def test_only_statistical_promises_on_vectors_have_a_guard():
    machine, X = random_machine(n_sv=60, d=WIDTH, gamma=0.2), usual(1000) - 4.0
    for agreement in (None, 1.0):
        fast = accelerated(machine, X, "taylor_tree", agreement=agreement)
        assert fast._engine.guard is None
        assert fast.work(X * 100)["guarded"] == 0.0
        assert "share sent on by the guard" not in fast.report.work
    y = X[:, 0] > 0
    model = SVC(kernel=lambda A, B: A @ B.T).fit(X[:100], y[:100])
    objects = svelto.accelerate(model, X[100:], method="sv_tree", agreement=0.9, confidence=0.9, random_state=0)
    assert objects.report.promise == "statistical"
    assert objects._engine.guard is None
    assert objects.work(X)["guarded"] == 0.0


def test_no_guard_where_the_exact_engine_answers_everything(monkeypatch):
    monkeypatch.setattr("svelto.stage_search.PAYS", 1.0)
    fast = accelerated(random_machine(n_sv=5, d=WIDTH), usual(1000) - 4.0, "taylor_tree")
    assert fast.report.promise == "exact"
    assert fast._engine.guard is None


@pytest.mark.parametrize("method", METHODS)
def test_report(method):
    fast = fast_one(method)
    share = fast.report.work["share sent on by the guard"]
    assert 0.0 <= share < 0.05
    assert ("share sent on by the guard", f"{share:.4g}") in fast.report.rows()
    assert "share sent on by the guard" in str(fast.report)
    engine = fast._engine
    assert fast.nbytes == engine.exact.nbytes + sum(s.nbytes for s in engine.stages) + engine.guard.nbytes
    assert fast.report.details["bytes"] == fast.nbytes


def test_calibration_rows_outside_are_sent_on():
    """The guard knows the rows that stages are built on; wild calibration rows are the exact engine's, and counted."""
    wild = usual(2000, 8)
    wild[::20] = 4.0 + (wild[::20] - 4.0) * np.random.default_rng(0).uniform(3, 30, size=(100, 1))
    machine = fast_one("reduced_set").machine
    fast = accelerated(machine, usual(1000), "reduced_set", X_calibration=wild)
    assert 0.02 < fast.report.work["share sent on by the guard"] < 0.1
    assert 0.02 < fast.work(wild)["guarded"] < 0.1
    plain = accelerated(machine, usual(1000), "reduced_set", X_calibration=np.delete(wild, np.s_[::20], axis=0))
    assert fast._engine.thresholds[0] < 3.0 * plain._engine.thresholds[0] + 1.0  # not set by the wild ones
