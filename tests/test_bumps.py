"""Reduced sets that are evaluated as hinges are: kernel values of a few vectors, in single precision."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import make_blobs
from sklearn.svm import SVC, SVR

import svelto
from hinge_cases import LEVELS, call
from svelto import _core
from svelto._inputs import Query
from svelto.cascade import settled_labels
from svelto.engines.arrays import aligned
from svelto.engines.bumps import MOST_COLUMNS, MOST_EXPONENT, bump_fields
from svelto.engines.reduced_stage import ReducedSet, build_error_map
from svelto.engines.stage_costs import BUMP_COST, READ_COST, ROW_COST, VOTE_COST
from svelto.guard_fit import guard_for
from svelto.kernels import Kernel
from svelto.machine import KernelMachine
from svelto.oracle import Neighbourhoods
from svelto.scaling import Scaling


def slow_scores(reduced, X):
    """The definition, written to be read. Never optimise this one."""
    sq_dist = ((X[:, None, :] - reduced.support_vectors[None, :, :]) ** 2).sum(axis=-1)
    return np.exp(-reduced.kernel.gamma * sq_dist) @ reduced.dual_coef.T + reduced.intercept


def values(n_scores, d, n_bumps, gamma=0.3, seed=0, kernel="rbf"):
    """A reduced machine, as `reduce_machine` makes them."""
    rng = np.random.default_rng(seed)
    return KernelMachine(
        kernel=Kernel(kernel, gamma=gamma),
        support_vectors=rng.normal(size=(n_bumps, d)),
        dual_coef=rng.normal(size=(n_scores, n_bumps)),
        intercept=rng.normal(size=n_scores) / 4,
        task="regression",
        rule="value",
        n_features=d,
        svm_type="epsilon_svr",
    )


def voter(n_classes, d, sparse_vectors=False):
    """A machine of so many classes: what decides labels."""
    X = np.random.default_rng(1).normal(size=(20 * n_classes, d))
    y = np.arange(len(X)) % n_classes
    return KernelMachine.from_sklearn(SVC().fit(sparse.csr_matrix(X) if sparse_vectors else X, y))


def stage_of(n_classes=2, d=5, n_bumps=40, sparse_vectors=False, **options):
    machine = voter(n_classes, d, sparse_vectors)
    reduced = values(machine.n_scores, d, n_bumps, **options)
    stage = ReducedSet(machine, reduced, np.random.default_rng(2).uniform(0.1, 0.3, size=machine.n_scores))
    assert stage._bumps is not None
    return stage


def rows_of(n, d, seed=3):
    return np.random.default_rng(seed).normal(size=(n, d))


def tolerance(reduced):
    # Rounding of exponents and of weights; terms cancel, so it grows with the coefficients and not with the score.
    return 3e-6 * (1.0 + np.abs(reduced.dual_coef).sum(axis=1))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("d", [1, 2, 15, 16, 17, 40])  # around the lanes of a vector
@pytest.mark.parametrize("n_bumps", [1, 16, 17, 100])
@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_scores_are_those_of_the_definition(level, d, n_bumps, n_classes):
    stage = stage_of(n_classes, d, n_bumps)
    native = _core.HingeStage(stage._bumps, level)
    X = rows_of(67, d)
    scores, errors = np.empty((67, stage.machine.n_scores)), np.empty((67, stage.machine.n_scores))
    call((native, "scores"), X, scores, errors)
    assert (np.abs(scores - slow_scores(stage.reduced, X)) <= tolerance(stage.reduced)).all()
    assert_array_equal(errors, np.tile(stage.unit, (67, 1)))


@pytest.mark.parametrize("n_classes", [2, 4])
def test_a_row_has_its_scores_whatever_stands_beside_it(n_classes):
    stage = stage_of(n_classes, sparse_vectors=True)
    X = rows_of(200, 5) * (np.random.default_rng(4).random((200, 5)) < 0.5)
    expected = stage.scores(Query(X), 1)[0]
    assert_array_equal(stage.scores(Query(X), 2)[0], expected)
    assert_array_equal(stage.scores(Query(sparse.csr_matrix(X)), 1)[0], expected)
    assert_array_equal(np.vstack([stage.scores(Query(X[i : i + 1]), 1)[0] for i in range(70)]), expected[:70])
    single = X.astype(np.float32)
    assert_array_equal(stage.scores(Query(single), 1)[0], stage.scores(Query(single.astype(np.float64)), 1)[0])
    assert_array_equal(stage.scores(Query(np.asfortranarray(X)), 1)[0], expected)


@pytest.mark.parametrize("n_classes", [2, 3, 6])
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("caution", [0.0, 0.7, 2.0])
def test_labels_are_those_of_scores_and_error_scales(n_classes, mapped, caution):
    stage, X = stage_of(n_classes), rows_of(9000, 5)  # more than are looked up on the map at a time
    if mapped:
        relative = np.random.default_rng(5).uniform(0.2, 3.0, size=2000)
        stage = replace(stage, error_map=build_error_map(X[:2000], X[:2000], relative, 0, 1))
    scores, errors = stage.scores(Query(X), 1)
    assert mapped == (np.ptp(errors, axis=0) > 0.0).any()
    expected = settled_labels(stage.machine, scores, caution * errors)
    assert_array_equal(stage.settle(Query(X), caution, 1), expected)
    assert_array_equal(stage.settle(Query(X), caution, 2), expected)
    assert caution == 0.0 or (0 < np.count_nonzero(expected < 0) < len(X))


@pytest.mark.parametrize("mapped", [False, True])
def test_thresholds_that_stand_on_single_rows(mapped):
    """Calibration holds a wrong row back by a billionth of its caution; rounding must not let it through."""
    stage, X = stage_of(2), rows_of(300, 5)
    if mapped:
        relative = np.random.default_rng(5).uniform(0.2, 3.0, size=300)
        stage = replace(stage, error_map=build_error_map(X, X, relative, 0, 1))
    scores, errors = stage.scores(Query(X), 1)
    for row in range(len(X)):
        caution = abs(scores[row, 0]) / errors[row, 0]
        query = Query(X[row : row + 1])
        assert stage.settle(query, caution * (1 + 1e-9), 1)[0] == -1
        assert stage.settle(query, caution * (1 - 1e-6), 1)[0] >= 0


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("mapped", [False, True])
def test_rows_on_the_rim_take_more_caution_and_strange_ones_stay_open(n_classes, mapped):
    plain, known = stage_of(n_classes), rows_of(3000, 5)
    guard = guard_for(plain.machine, known, 0, 1, Neighbourhoods(known, 0, 1))
    assert guard.core is not None
    if mapped:
        relative = np.random.default_rng(5).uniform(0.2, 3.0, size=3000)
        plain = replace(plain, error_map=build_error_map(known, known, relative, 0, 1))
    stage = plain.guarded_by(guard)
    assert stage.guards_itself
    X = np.vstack([known[:500], 1.5 * rows_of(3000, 5, seed=6)])
    rim, outside = stage.on_rim(Query(X), 1), guard(Query(X), 1)
    assert min(rim.sum(), outside.sum(), (~rim & ~outside).sum()) > 20
    scores, errors = plain.scores(Query(X), 1)
    times = np.where(outside, np.inf, np.where(rim, guard.core.factor, 1.0))[:, None]
    with np.errstate(invalid="ignore"):
        assert_allclose(stage.scores(Query(X), 1)[1], errors * times, rtol=1e-12)
    assert_array_equal(stage.scores(Query(X), 1)[0], scores)
    bounds = np.where(np.isfinite(errors * times), 0.7 * errors * times, 1e300)
    expected = settled_labels(stage.machine, scores, bounds)
    assert_array_equal(stage.settle(Query(X), 0.7, 1), expected)
    assert (stage.settle(Query(X), 0.0, 1)[outside] == -1).all()
    assert (settled_labels(stage.machine, scores, 0.7 * errors)[rim] >= 0).sum() > (expected[rim] >= 0).sum()


def test_a_row_beyond_the_map_is_open():
    stage = stage_of(3)
    known = rows_of(500, 5)
    stage = replace(stage, error_map=build_error_map(known, known, np.ones(500), 0, 1))
    far = known + 50.0
    assert not np.isfinite(stage.scores(Query(far), 1)[1]).any()
    assert (stage.settle(Query(far), 1e-3, 1) == -1).all()
    assert (stage.settle(Query(far), 0.0, 1) >= 0).all()  # no caution asks for no map


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("size", [1e3, 1e15, 1e30, 1e300])
def test_far_rows_have_the_intercepts_for_scores(n_classes, size):
    stage = stage_of(n_classes)
    scores = stage.scores(Query(size * np.sign(rows_of(100, 5))), 1)[0]
    assert_allclose(scores, np.tile(stage.reduced.intercept, (100, 1)), rtol=1e-6)


def test_a_large_mean_costs_no_digits():
    plain = stage_of(3)
    far = replace(plain.reduced, support_vectors=plain.reduced.support_vectors + 1e5)
    moved = ReducedSet(plain.machine, far, plain.unit)
    X = np.round(rows_of(300, 5), 3)
    assert (np.abs(moved.scores(Query(X + 1e5))[0] - plain.scores(Query(X))[0]) <= 2 * tolerance(plain.reduced)).all()


def test_the_scaling_of_the_machine_is_applied():
    plain, X = stage_of(3), rows_of(50, 5)
    scaling = Scaling("divide", np.full(5, 2.0), np.full(5, 4.0), -np.inf, np.inf)
    scaled = ReducedSet(replace(plain.machine, scaling=scaling), replace(plain.reduced, scaling=scaling), plain.unit)
    expected = plain.scores(Query((X - 2.0) / 4.0), 1)[0]
    assert_allclose(scaled.scores(Query(X, scale=True), 1)[0], expected, atol=1e-5)


def test_what_bumps_cannot_serve_is_left_to_the_exact_engine():
    X = rows_of(100, 5)
    machine, unit = voter(3, 5), np.ones(3)
    vectors = values(3, 5, 40).support_vectors
    sharp = MOST_EXPONENT * np.log(2.0) / ((vectors - vectors.mean(axis=0)) ** 2).sum(axis=1).max()
    others = {
        "laplacian": values(3, 5, 40, kernel="laplacian"),
        "sharp": values(3, 5, 40, gamma=1.001 * sharp),
        "large weights": replace(values(3, 5, 40), dual_coef=np.full((3, 40), 1e39)),
        "tiny gamma": replace(values(3, 5, 40, gamma=1e-41), support_vectors=1e20 * vectors),
        "huge gamma": values(3, 5, 1, gamma=1e39),
        "large vectors": replace(values(3, 5, 40), support_vectors=np.full((40, 5), 1e300) * np.arange(40)[:, None]),
    }
    for name, reduced in others.items():
        stage = ReducedSet(machine, reduced, unit)
        assert stage._bumps is None, name
        assert_array_equal(stage.scores(Query(X), 1)[0], stage.engine.scores(Query(X), 1))
        assert stage.nbytes == stage.engine.nbytes
        assert type(stage.native_part) is _core.ReducedStage
    assert bump_fields(machine, values(3, 5, 40, gamma=0.999 * sharp), unit) is not None
    assert bump_fields(voter(2, 5), values(1, MOST_COLUMNS, 1), unit[:1]) is not None
    assert bump_fields(voter(2, 5), values(1, MOST_COLUMNS + 1, 1), unit[:1]) is None
    ties = SVC(break_ties=True, decision_function_shape="ovr").fit(X, np.arange(100) % 3)
    assert bump_fields(KernelMachine.from_sklearn(ties), values(3, 5, 40), unit) is None


def test_values_of_a_regressor():
    X = rows_of(300, 2)
    svr = SVR(gamma=0.5).fit(X, np.sin(X[:, 0]))
    machine = KernelMachine.from_sklearn(svr)
    stage = ReducedSet(machine, values(1, 2, 20), np.ones(1))
    assert_allclose(stage.scores(Query(X))[0], slow_scores(stage.reduced, X), atol=1e-5)


def test_pickled_and_restored():
    stage, X = stage_of(3), rows_of(100, 5)
    again = pickle.loads(pickle.dumps(stage))
    assert_array_equal(again.scores(Query(X))[0], stage.scores(Query(X))[0])
    assert again.nbytes == stage.nbytes


def test_what_bumps_cost():
    stage = stage_of(4, d=5, n_bumps=40)
    assert stage.operations() == (5 + 2 + BUMP_COST) * 48 + 40 * 16 + READ_COST * 5 + ROW_COST + VOTE_COST * 4
    assert stage_of(2, n_bumps=40).operations() == (5 + 2 + BUMP_COST) * 48 + READ_COST * 5 + ROW_COST


BAD = {
    "n_bumps": [0, -1, 2**21],
    "row_weight": [-1.0, np.nan, np.inf, 1e39],
    "weights_0": [np.nan, "short"],
    "bias_0": [np.inf, "short"],
    "mix": [np.nan, "short"],
    "intercept": [np.nan, "short"],
    "shift": [np.nan, "short"],
    "error": [-1.0, "short"],
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_native_code_refuses_fields_that_do_not_fit(name, n_classes):
    good = stage_of(n_classes)._bumps
    for value in BAD[name]:
        wrong = value
        if isinstance(good[name], np.ndarray):
            wrong = aligned(good[name] if value != "short" else good[name][:-1])
            if value != "short":
                wrong.flat[0] = value
        with pytest.raises((ValueError, TypeError), match=r"^(?!.*64-byte)"):
            _core.HingeStage({**good, name: wrong}, LEVELS[0])


def test_native_code_refuses_a_map_that_does_not_fit():
    stage, X = stage_of(2), rows_of(100, 4)
    narrow = build_error_map(X, X, np.ones(100), 0, 1)
    with pytest.raises(ValueError, match="map of errors does not fit"):
        _core.HingeStage(stage._bumps, LEVELS[0], narrow.native_part)
    fitting = build_error_map(rows_of(100, 5), rows_of(100, 5), np.ones(100), 0, 1)
    with pytest.raises(ValueError, match="plain vote"):
        _core.HingeStage({**stage._bumps, "break_ties": True}, LEVELS[0], fitting.native_part)

    with pytest.raises(ValueError, match="plain vote"):
        _core.HingeStage({**stage_of(3)._bumps, "rule": _core.DISTILLED_RULE}, LEVELS[0], fitting.native_part)
    native = _core.HingeStage(stage._bumps, LEVELS[0], fitting.native_part)
    with pytest.raises(ValueError, match="cautions know no map"):
        native.caution_dense(X[:, :1].repeat(5, axis=1), np.empty(100, dtype=np.int32), np.empty(100), False, 1)


def test_weights_of_no_bump_must_be_zero():
    good = stage_of(2, n_bumps=40)._bumps
    wrong = aligned(good["mix"])
    wrong[40] = 1.0
    with pytest.raises(ValueError, match="end with zeros"):
        _core.HingeStage({**good, "mix": wrong}, LEVELS[0])


def test_a_reduced_set_of_a_trained_machine_answers_as_its_engine():
    X, y = make_blobs(3000, centers=5, n_features=4, cluster_std=2.0, random_state=0)
    fast = svelto.accelerate(SVC().fit(X, y), X, method="reduced_set", n_basis=50, agreement=None, random_state=0)
    (stage,) = fast._engine.stages
    assert stage._bumps is not None
    exact = stage.engine.scores(Query(X), 1)
    assert (np.abs(stage.scores(Query(X), 1)[0] - exact) <= tolerance(stage.reduced)).all()
