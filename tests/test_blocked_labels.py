"""Sums in blocks: the label of every row is that of LIBSVM's order of operations, whatever list it walked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, OneClassSVM

import svelto
from blocked_cases import KERNELS, TASKS, balanced, both_ways, boundary_rows, forced, named, oracle_labels, rows
from machines import random_machine
from sklearn_cases import data, read
from svelto import _core
from svelto._inputs import Query, make_query
from svelto.engines import exact
from svelto.engines.exact import ExactEngine

LEVELS = _core.available_levels()


def check(engine, X, expected, n_jobs=1):
    got = named(engine.machine, engine.labels(Query(X), n_jobs)[0])
    wrong = np.flatnonzero(got != expected)
    assert not len(wrong), f"{len(wrong)} labels differ, first row {wrong[0]}: {got[wrong[0]]}"


ANY_MACHINE = {
    "kernel": st.sampled_from(KERNELS),
    "task": st.sampled_from(TASKS),
    "d": st.integers(1, 40),
    "n_sv": st.integers(33, 200),
    "log_gamma": st.floats(-6, 6) | st.sampled_from([-300.0, -40.0, 40.0, 300.0]),
    "spread": st.sampled_from([1.0, 1.0, 1e-200, 1e-30, 1e-3, 1e3, 1e18]),
    "shift": st.sampled_from([0.0, 1.0, 1e6]),
    "log_weight": st.sampled_from([0.0, 8.0, -8.0]) | st.floats(-8, 8),
    "uneven": st.booleans(),
    "longest": st.sampled_from([0.3, 0.8, 1.0]),
    "n_lists": st.integers(1, 5),
    "precision": st.sampled_from(["auto", "float32"]),
    "seed": st.integers(0, 2**16),
}


@np.errstate(all="ignore")
def check_machine(
    kernel, task, d, n_sv, log_gamma, spread, shift, log_weight, uneven, longest, n_lists, precision, seed
):
    # A gamma of 10^log_gamma at the scale of the data, so that most machines are neither flat nor empty.
    scale = np.divide(1.0, spread * spread * d if kernel == "rbf" else spread * d) if abs(log_gamma) <= 6 else 1.0
    machine = random_machine(kernel, n_sv=n_sv, d=d, gamma=10.0**log_gamma * min(scale, 1e290), seed=seed, **task)
    rng = np.random.default_rng(seed + 1)
    S = machine.support_vectors * spread + shift * spread
    S[::7], S[3::11] = S[0], 0.0  # copies and zeros
    coef = machine.dual_coef * 10.0**log_weight
    if uneven:
        coef = coef * 10.0 ** rng.uniform(-8, 0, size=coef.shape)
    X = rng.normal(size=(16, d)) * spread + shift * spread
    machine = balanced(replace(machine, support_vectors=S, dual_coef=coef), X)
    edge = boundary_rows(machine, np.vstack([X, S[:20]]))[::2][:12]
    engine = forced(machine, np.vstack([X, S[:20]]), n_lists, longest=longest, precision=precision)
    if engine.lists is None:
        return
    own = engine.lists["centres"].astype(np.float64) / engine._fields["row_scale_f32"] + engine._fields["centre"]
    own = own[np.isfinite(own).all(axis=1)]
    far = [X[:1] * 1e3, X[:1] + 1e30 * spread, np.full((1, d), 5e-324), np.zeros((1, d)), np.full((1, d), 1e200)]
    Z = np.vstack([X, S[:8], edge, own, *far])
    expected = oracle_labels(machine, Z)
    for way in both_ways(engine):
        check(way, Z, expected)


@given(**ANY_MACHINE)
@settings(max_examples=50)
def test_labels_of_any_machine(**case):
    check_machine(**case)


@pytest.mark.slow
@given(**ANY_MACHINE)
@settings(max_examples=1500)
def test_labels_of_many_machines(**case):
    check_machine(**case)


@pytest.mark.parametrize("task", [*TASKS, {"n_classes": 4, "break_ties": True}], ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_on_the_boundary(kernel, task, monkeypatch):
    """For every instruction level, one and two threads, in any order and any batches."""
    monkeypatch.setattr(exact, "OPERATIONS_PER_THREAD", 1.0)
    settled = 0.0
    for d, gamma in ((1, 3.0), (2, 1.0), (9, 0.1)):
        machine = random_machine(kernel, n_sv=180, d=d, gamma=gamma, seed=d, **task)
        X = rows(60, d)
        machine = balanced(machine, X)
        Z = np.vstack([boundary_rows(machine, X)[:40], X[:30], machine.support_vectors[:9], X[:2] + 1e3])
        if task.get("break_ties"):
            expected = named(machine, ExactEngine(machine).labels(Query(Z))[0])
        else:
            expected = oracle_labels(machine, Z)
        assert len(set(expected.tolist())) > 1
        order = np.random.default_rng(0).permutation(len(Z))
        for level in LEVELS:
            monkeypatch.setenv("SVELTO_ISA", level)
            engine = forced(machine, X, longest=0.8 if d > 1 else 1.0)
            for way in both_ways(engine):
                for n_jobs in (1, 2):
                    check(way, Z, expected, n_jobs)
                check(way, Z[order], expected[order])
                if level == LEVELS[-1]:
                    for start in range(0, len(Z), 5):
                        check(way, Z[start : start + 5], expected[start : start + 5])
                settled = max(settled, way.work(Query(Z))["stages"]["bounded"])
    assert settled > 0.3


def test_many_rows_in_many_steps_and_parts(monkeypatch):
    """More rows than a step of one thread, and more than a part of one call."""
    machine = balanced(random_machine(n_sv=300, d=2, gamma=3.0), rows(60, 2))
    X = rows(40_000, 2)
    expected = ExactEngine(machine).labels(Query(X))[0]
    monkeypatch.setattr(exact, "OPERATIONS_PER_THREAD", 1.0)
    monkeypatch.setattr(exact, "OPERATIONS_PER_CALL", 1.0)  # parts of 1024 rows
    engine = forced(machine, X[:2000], 40)
    for way in both_ways(engine):
        assert_array_equal(way.labels(Query(X), 2)[0], expected)
    monkeypatch.undo()
    for way in both_ways(engine):
        labels, tally = way.labels(Query(X), 1)
        assert_array_equal(labels, expected)
        assert tally.bounded > 0.3 * len(X)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("as_csr", [False, True])
def test_rows_of_every_form(kernel, as_csr):
    machine = random_machine(kernel, n_sv=200, d=6, gamma=0.3, as_csr=as_csr)
    X = np.round(rows(120, 6) * 4) / 4  # exact in float32
    X[rows(120, 6, seed=2) < 0.5] = 0.0
    machine = balanced(machine, X)
    expected = oracle_labels(machine, X)
    wide = np.zeros((240, 12))
    wide[::2, ::2] = X
    read_only = X.copy()
    read_only.flags.writeable = False
    engine = forced(machine, X)
    assert engine.lists is not None
    csr = sparse.csr_matrix(X)
    long = csr.copy()
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    for way in both_ways(engine):
        for form in (X, X.astype(np.float32), np.asfortranarray(X), wide[::2, ::2], X[::-1][::-1], read_only):
            check(way, form, expected)
        for form in (csr, csr.astype(np.float32), long):
            check(way, form, expected)
            assert way.labels(Query(form))[1].bounded > 0
        way.share = 1.0  # nearly empty rows are cheaper as they are stored: the exact engine takes them
        check(way, csr, expected)
        assert not hasattr(way.labels(Query(sparse.csr_matrix(np.eye(6))))[1], "bounded")


@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler(), MinMaxScaler((-1, 1), clip=True)], ids=str)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_trained_machines_behind_a_scaler(scaler, n_classes):
    X, y, Z = data(n_classes, n_rows=900, n_features=2)
    X, Z = X * 50 + 7, Z * 50 + 7
    model = make_pipeline(scaler, SVC(gamma=20.0)).fit(X, y)
    machine = read(model)
    engine = forced(machine, machine.scaling(X), 16)
    assert machine.scaling is not None
    for way in both_ways(engine):
        for form in (Z, Z.astype(np.float32)):
            labels = way.labels(make_query(machine, form))[0]
            assert_array_equal(named(machine, labels), model.predict(form))
        assert way.work(make_query(machine, Z))["stages"]["bounded"] > 0.01
    fast = svelto.accelerate(model, X, method="bounded", random_state=0)
    assert_array_equal(fast.predict(Z), model.predict(Z))
    assert_array_equal(fast.predict(Z[:3]), model.predict(Z[:3]))


def test_one_class_machines():
    X = rows(900, 2)
    model = OneClassSVM(nu=0.4, gamma=2.0).fit(X)
    engine = forced(read(model), X, 6)
    Z = rows(500, 2, seed=4) * 1.5
    for way in both_ways(engine):
        assert_array_equal(named(way.machine, way.labels(Query(Z))[0]), model.predict(Z))


# -- rows that cannot be read ------------------------------------------------------------------------------------------


def message_of(engine, X, n_jobs=1):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is what is compared
        engine.labels(Query(X), n_jobs)
    return str(caught.value)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bad_rows_are_named_as_by_the_exact_engine(bad, dtype, monkeypatch):
    monkeypatch.setattr(exact, "OPERATIONS_PER_THREAD", 1.0)
    machine = random_machine(n_sv=300, d=4, gamma=0.5)
    X = rows(3000, 4).astype(dtype)
    engine = forced(machine, rows(100, 4))
    X[2990, 1] = X[1234, 2] = bad
    expected = message_of(ExactEngine(machine), X)
    assert "row 1234" in expected
    for way in both_ways(engine):
        for form in (X, np.asfortranarray(X), sparse.csr_matrix(X)):
            assert message_of(way, form, 1) == expected
            assert message_of(way, form, 2) == expected
        assert way.predict_one_block(np.ascontiguousarray(X[1230:1240], dtype=np.float64)) is None


def test_columns_outside_the_machine_are_named_as_by_the_exact_engine():
    machine = random_machine(n_sv=300, d=4, gamma=0.5)
    X = sparse.csr_matrix(rows(50, 4))
    X.indices[4 * 33 + 2] = 9
    engine = forced(machine, rows(100, 4))
    expected = message_of(ExactEngine(machine), X)
    for way in both_ways(engine):
        assert message_of(way, X) == expected
