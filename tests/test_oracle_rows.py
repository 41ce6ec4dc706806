"""Rows made of rows: where they lie, how far from the data, and which rows calibrate a promise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import svelto
from machines import random_machine
from svelto._inputs import Query
from svelto.calibration_rows import gather_rows
from svelto.engines.exact import build_exact
from svelto.oracle import NEIGHBOURS, WINDOW, Neighbourhoods, support_share


def rows(n, d, seed=11):
    return np.random.default_rng(seed).normal(size=(n, d))


def rng(seed=1):
    return np.random.default_rng(seed)


def nearest_other(X):
    """Distance of every row to the nearest that is no copy of it."""
    far = cdist(X, X)
    far[far <= 1e-12 * np.abs(X).max()] = np.inf
    return far.min(axis=1)


def sorted_rows(X):
    return X[np.lexsort(X.T)]


# -- rows between and around others ----------------------------------------------------------------------------------


def test_neighbours_are_the_nearest_rows_that_stand_close_in_the_order():
    X = rows(500, 3)
    near = Neighbourhoods(X, 0)
    assert_array_equal(sorted_rows(near.X), sorted_rows(X))
    far = cdist(near.X, near.X)
    places = np.arange(500)
    far[np.abs(places[:, None] - places) > WINDOW] = np.inf
    np.fill_diagonal(far, np.inf)
    assert_array_equal(near.neighbours, far.argsort(axis=1)[:, :NEIGHBOURS])
    nearest = cdist(X, X)
    np.fill_diagonal(nearest, np.inf)
    assert far.min(axis=1).mean() < 1.5 * nearest.min(axis=1).mean()


@pytest.mark.parametrize("n", [1, 2, 3, 9, 20])
def test_few_rows_have_few_neighbours(n):
    near = Neighbourhoods(rows(n, 3), 0)
    assert near.neighbours.shape == (n, min(NEIGHBOURS, max(n - 1, 1)))
    if n > 1:
        assert (near.neighbours != np.arange(n)[:, None]).all()


def test_copies_are_neighbours_only_where_there_is_nothing_else():
    near = Neighbourhoods(np.repeat(rows(40, 3), 4, axis=0), 0)
    assert (np.abs(near.X[:, None] - near.X[near.neighbours]).max(axis=-1) > 0).all()
    assert_array_equal(Neighbourhoods(np.ones((50, 3)), 0).shifted(9, 0.7, rng()), np.ones((9, 3)))


def test_rows_between_lie_on_the_way_to_a_neighbour():
    near = Neighbourhoods(rows(60, 3), 0)
    far = cdist(near.X, near.X)
    for row in near.between(100, rng()):
        to = np.linalg.norm(near.X - row, axis=1)
        detour = to[:, None] + to[None, :] - far
        i, j = np.nonzero(detour < 1e-9)  # rounding; other pairs are off by far more
        assert any(b in near.neighbours[a] for a, b in zip(i, j, strict=True))


def test_shifted_rows_are_moved_by_the_difference_of_two_neighbours():
    near = Neighbourhoods(rows(60, 3), 0)
    of = np.arange(60)[::-1].copy()
    for step in (0.0, 0.7, 2.0):
        moved = near.shifted(60, step, rng(), of)
        for i, row in zip(of, moved, strict=True):
            around = near.X[near.neighbours[i]]
            moves = step * (around[:, None] - around[None, :])
            assert np.abs(moves - (row - near.X[i])).max(axis=-1).min() < 1e-14
    assert_array_equal(near.shifted(60, 0.0, rng(), of), near.X[of])
    # Drawn at random, every row has its turn.
    origin = cdist(near.shifted(5000, 1e-9, rng()), near.X).argmin(axis=1)
    assert len(np.unique(origin)) == 60


def with_categories(n, seed=4):
    """Two numbers, a category of four values as flags, a small count, and a number that is mostly zero."""
    draw = rng(seed)
    often_zero = np.where(draw.random(n) < 0.6, 0.0, draw.gamma(3.0, size=n))
    flags = np.eye(4)[draw.integers(4, size=n)]
    return np.column_stack([draw.normal(size=(n, 2)), flags, draw.integers(6, size=n), often_zero])


@pytest.mark.parametrize("kind", ["between", "small step", "large step"])
def test_rows_that_are_made_up_have_categories_that_exist(kind):
    X = with_categories(2000)
    near = Neighbourhoods(X, 0)
    steps = {"small step": 0.3, "large step": 2.0}
    made = near.between(3000, rng()) if kind == "between" else near.shifted(3000, steps[kind], rng())
    assert_array_equal(made[:, 2:6].sum(axis=1), 1.0)  # exactly one flag of the four
    assert set(np.unique(made[:, 2:6])) == {0.0, 1.0}
    assert set(np.unique(made[:, 6])) <= set(range(6))
    assert abs(np.mean(made[:, 7] == 0.0) - np.mean(X[:, 7] == 0.0)) < 0.05  # zero is as common as it was
    assert len(np.unique(made[:, 0])) > 2500  # numbers do move
    assert len(np.setdiff1d(made[:, 7], X[:, 7])) > 200


def test_categories_change_with_the_step():
    near = Neighbourhoods(with_categories(4000), 0)
    of, category = np.arange(4000), near.X[:, 2:6].argmax(axis=1)
    steps = (0.0, 0.3, 0.7, 2.0)
    made = [near.shifted(4000, step, rng(), of) for step in steps]
    shares = [(rows[:, 2:6].argmax(axis=1) != category).mean() for rows in made]
    others = (category[near.neighbours] != category[:, None]).mean()
    assert_allclose(shares, others * np.minimum(np.square(steps), 2 / 3), rtol=0.3)
    assert shares[0] == 0.0
    counts = [(rows[:, 6] != near.X[:, 6]).mean() for rows in made]
    assert counts[0] == 0.0 < counts[1] < counts[2] < counts[3]


def test_same_seed_same_rows():
    X = rows(400, 5)
    for make in (
        lambda near, seed: near.between(100, rng(seed)),
        lambda near, seed: near.shifted(100, 0.5, rng(seed)),
        lambda near, seed: near.stand_in_step(rng(seed)),
    ):
        first = make(Neighbourhoods(X, 3, 1), 1)
        assert_array_equal(make(Neighbourhoods(X, 3, 2), 1), first)
    assert (Neighbourhoods(X, 3).between(100, rng(2)) != Neighbourhoods(X, 3).between(100, rng(1))).any()


# -- stand-ins -------------------------------------------------------------------------------------------------------

SHAPES = {
    "cloud": rows,
    "clusters": lambda n, d: 0.1 * rows(n, d) + rng().integers(0, 5, size=(n, 1)),
    "wide and narrow features": lambda n, d: rows(n, d) * np.geomspace(1e-2, 1e2, d),
    "every row twice": lambda n, d: np.repeat(rows(n // 2, d), 2, axis=0),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("n", "d"), [(200, 1), (200, 2), (1000, 5), (500, 20)])
def test_stand_ins_are_as_far_from_the_rows_as_the_rows_from_each_other(n, d, shape):
    X = SHAPES[shape](n, d)
    near = Neighbourhoods(X, 0)
    made = near.shifted(2000, near.stand_in_step(rng()), rng(2))
    wanted, got = np.median(nearest_other(X)), np.median(cdist(made, X).min(axis=1))
    # 256 rows are probed: a median of distances is known to some 10 %, and so is the other one.
    assert 0.75 * wanted < got < 1.35 * wanted


@pytest.mark.parametrize("scale", [1e-8, 1e-6, 1e-4, 1.0, 1e4, 1e8])
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
def test_the_step_does_not_depend_on_units(scale, offset):
    """Features may come in any unit and far from zero: neighbours stay neighbours."""
    X = rows(600, 3)
    expected = Neighbourhoods(X, 0).stand_in_step(rng())
    step = Neighbourhoods(scale * (X + offset), 0).stand_in_step(rng())
    # Rounding may put a row into another cell, and change which differences are drawn.
    assert_allclose(step, expected, rtol=0.3)


@pytest.mark.parametrize("size", [1e3, 1e5, 1e6])
def test_one_wild_row_changes_nothing(size):
    """A number that stands for "unknown" in one row must not make all other rows look alike."""
    X, other = rows(600, 3), rows(600, 3, seed=12)
    expected = Neighbourhoods(X, 0).stand_in_step(rng())
    wild = X.copy()
    wild[17, 1] = size
    assert_allclose(Neighbourhoods(wild, 0).stand_in_step(rng()), expected, rtol=0.3)
    machine = random_machine(n_sv=50, d=3)
    other[3, 2] = size
    assert support_share(machine, other) < 0.02
    assert support_share(machine, np.vstack([machine.support_vectors, other])) == 1.0
    vectors = np.array(machine.support_vectors)
    vectors[7, 0] = size
    assert support_share(replace(machine, support_vectors=vectors), rows(600, 3)) < 0.02


def test_identical_rows_have_no_step():
    assert Neighbourhoods(np.ones((50, 3)), 0).stand_in_step(rng()) == 0.0


def test_stand_ins_err_like_new_rows_and_training_rows_do_not():
    """What they are for: a tree built on training rows is as often wrong about stand-ins as about new rows."""
    X, new = rows(1500, 2), rows(20_000, 2, seed=5)
    y = (np.sin(2 * X[:, 0]) + X[:, 1] > 0) ^ (rng().random(1500) < 0.3)
    svc = SVC(gamma=50.0, C=10.0).fit(X, y)
    fast = svelto.accelerate(
        svc, X, method="taylor_tree", agreement=None, fit="taylor", leaf_size=2, random_state=0, n_jobs=1
    )
    exact, stage = build_exact(fast.machine), fast._engine.stages[0]
    near = Neighbourhoods(X, 0)
    made = near.shifted(20_000, near.stand_in_step(rng()), rng(2))

    def wrong(Z):
        return (stage.settle(Query(Z), 0.0) != exact.labels(Query(Z), 1)[0]).mean()

    assert wrong(new) > 0.03
    assert wrong(X) < 0.5 * wrong(new)
    assert 0.7 * wrong(new) < wrong(made) < 1.5 * wrong(new)


# -- support_share ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_csr", [False, True], ids=["dense machine", "csr machine"])
def test_support_share_of_training_rows(as_csr):
    machine = random_machine(n_sv=50, d=6, as_csr=as_csr, n_classes=3)
    S = machine.support_vectors.toarray() if as_csr else np.array(machine.support_vectors)
    wide = sparse.csr_matrix(S)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    with_zeros = sparse.csr_matrix((S.ravel(), np.tile(np.arange(6), 50), np.arange(0, 301, 6)), shape=S.shape)
    forms = [
        S,
        np.asfortranarray(S),
        S.astype(np.float32),
        np.where(S == 0.0, -0.0, S),
        np.vstack([rows(70, 6), S[::-1], S]),
        sparse.csr_matrix(S),
        sparse.csr_matrix(S.astype(np.float32)),
        wide,
        with_zeros,
    ]
    for form in forms:
        assert support_share(machine, form) == 1.0
    assert support_share(machine, S[:1]) == 1.0  # few rows, but all of them support vectors
    if not as_csr:  # thinned rows may be equal to each other
        assert support_share(machine, np.vstack([S[:20], rows(1000, 6)])) == 0.4
        assert support_share(machine, np.vstack([S[:20], rows(20, 6)])) == 0.5


@pytest.mark.parametrize("d", [5, 50, 500])
def test_support_share_after_a_trip_through_a_text_file(d):
    machine = random_machine(n_sv=50, d=d)
    written = np.array([[float(f"{v:.9g}") for v in row] for row in np.asarray(machine.support_vectors)])
    assert support_share(machine, written) > 0.5


def test_support_share_of_other_rows():
    machine = random_machine(n_sv=50, d=6)
    S = np.array(machine.support_vectors)
    for other in (rows(1000, 6), S * (1 + 1e-3), S[:, ::-1], S + 1.0, sparse.csr_matrix(rows(1000, 6))):
        assert support_share(machine, other) == 0.0
    # The same numbers in other columns are another row.
    text = sparse.csr_matrix(np.eye(6)[:3] * 2.0)
    moved = sparse.csr_matrix(np.eye(6)[3:] * 2.0)
    assert support_share(random_machine(n_sv=3, d=6, spread=0.0), moved) == 0.0
    machine = svelto.KernelMachine.from_arrays(kernel="rbf", support_vectors=text, dual_coef=[1, 2, 3], classes=[0, 1])
    assert support_share(machine, moved) == 0.0
    assert support_share(machine, text) == 1.0


@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1e3, 1e8])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_support_share_does_not_depend_on_units(scale, offset):
    machine = random_machine(n_sv=50, d=4)
    moved = replace(machine, support_vectors=scale * (machine.support_vectors + offset))
    new, copies = scale * (rows(1000, 4) + offset), np.array(moved.support_vectors)
    assert support_share(moved, new) == 0.0
    assert support_share(moved, copies) == 1.0
    assert support_share(moved, np.vstack([new, copies])) == 1.0


MAKERS = (lambda near: near.between(300, rng()), lambda near: near.shifted(300, 0.7, rng()))


# -- which rows calibrate --------------------------------------------------------------------------------------------


def gather(machine, X, given=None, rate=0.01, confidence=0.9, seed=0):
    return gather_rows(machine, X, given, rate, confidence, seed, 1)


def as_set(X):
    return {row.tobytes() for row in np.ascontiguousarray(X)}


def test_new_rows_are_held_out():
    machine, X = random_machine(n_sv=50, d=4), rows(2000, 4)
    parts = gather(machine, X)
    assert parts.source == "held out"
    assert parts.support_share == 0.0
    sets = [as_set(part) for part in (parts.build, parts.choose, parts.check)]
    assert sum(map(len, sets)) == 2000
    assert set.union(*sets) == as_set(X)  # no row in two of them, none lost
    assert len(sets[0]) >= 0.6 * 2000
    assert abs(len(sets[1]) - len(sets[2])) <= 1
    again = gather(machine, X)
    for name in ("build", "choose", "check"):
        assert_array_equal(getattr(again, name), getattr(parts, name))
    assert as_set(gather(machine, X, seed=1).check) != sets[2]


def test_given_rows_are_halved_and_nothing_is_built_on_them():
    machine, X = random_machine(n_sv=50, d=4), rows(300, 4)
    given = rows(401, 4, seed=5)
    for form in (given, sparse.csr_matrix(given)):
        parts = gather(machine, X, form)
        assert parts.source == "given"
        assert_array_equal(parts.build, X)
        halves = [part.toarray() if sparse.issparse(part) else part for part in (parts.choose, parts.check)]
        assert [len(half) for half in halves] == [200, 201]
        assert as_set(np.vstack(halves)) == as_set(given)


def test_training_rows_are_replaced_by_stand_ins():
    machine, X = random_machine(n_sv=100, d=4), rows(300, 4)
    X[:100] = machine.support_vectors
    for parts in (gather(machine, X), gather(machine, rows(50, 4, seed=9), X)):
        assert parts.source == "stand-ins"
        assert parts.support_share == 1.0
        assert parts.step > 0
        assert len(parts.check) == 300
        # Now and then a row is moved by nothing; mostly it is moved.
        assert len(as_set(parts.check) & as_set(X)) < 30
    assert_array_equal(gather(machine, X).build, X)


def test_stand_ins_that_break_a_rule_are_made_again():
    """Rows on a plane, one feature rounded: rounding moves rows off the plane now and then, and the guard sees it."""
    X = rows(4000, 3)
    X = np.column_stack([X, np.round(2.0 * X.sum(axis=1)).clip(-5, 5)])
    machine = replace(random_machine(n_sv=100, d=4), support_vectors=X[:100].copy())
    parts = gather(machine, X)
    marked = parts.guard(Query(parts.check))
    made_once = parts.near.shifted(4000, parts.step, rng(), np.arange(4000))
    assert parts.guard(Query(made_once)).mean() > 5 * marked.mean()
    assert marked.mean() < 0.01


def test_rows_are_made_part_by_part(monkeypatch):
    X = with_categories(500)
    whole = [make(Neighbourhoods(X, 0, 1)) for make in MAKERS]
    monkeypatch.setattr("svelto.oracle.PART_VALUES", 100)
    near = Neighbourhoods(X, 0, 1)
    for expected, make in zip(whole, MAKERS, strict=True):
        made = make(near)
        assert made.shape == expected.shape
        assert np.unique(made[:, near.blocks.discrete]).tolist() == np.unique(X[:, near.blocks.discrete]).tolist()
        assert_allclose(made.mean(axis=0), expected.mean(axis=0), atol=0.3)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_neighbours_do_not_depend_on_units(scale):
    X = rows(500, 3)
    assert_array_equal(Neighbourhoods(scale * X, 0).neighbours, Neighbourhoods(X, 0).neighbours)


def test_a_few_training_rows_of_many_are_training_rows():
    """All given rows are support vectors, but so few of a large machine's that their share of it is small."""
    machine = random_machine(n_sv=20_000, d=3)
    X = np.array(machine.support_vectors[::60])
    assert gather(machine, X).source == "stand-ins"
    assert gather(machine, rows(1000, 3), X).source == "stand-ins"


def test_scaled_training_rows_in_single_precision_are_training_rows():
    X = rows(400, 4) * [1, 10, 100, 0.1] + 3
    pipe = make_pipeline(StandardScaler(), SVC(gamma=2.0)).fit(X, rng().random(400) < 0.5)
    options = {"method": "taylor_tree", "agreement": 0.8, "confidence": 0.8, "oracle_rows": 500, "random_state": 0}
    for form in (X, X.astype(np.float32), np.asfortranarray(X)):
        report = svelto.accelerate(pipe, form, **options).report
        assert "stand-ins" in report.details["calibration rows"]
