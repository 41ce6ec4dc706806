"""The promise: the label of every row equals the float64 machine's, whatever the path to it."""

from __future__ import annotations

import ctypes
import platform
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.svm import SVC, NuSVC, OneClassSVM

import svelto
from machines import NATIVE, random_machine
from oracle import libsvm_order_label, libsvm_order_scores, slow_scores
from svelto import _core
from svelto.voting import ovr_decision

LEVELS = _core.available_levels()


def balanced(machine):
    """The same machine with intercepts that let every score take both signs."""
    rows = np.random.default_rng(9).normal(size=(200, machine.n_features)) * 1.5
    return replace(machine, intercept=machine.intercept - np.median(slow_scores(machine, rows), axis=0))


def boundary_rows(machine, n, seed=0):
    """Rows on the decision boundary: bisection between two rows of different labels until no double lies between.

    The score there is a few units in the last place of its terms, far below what float32 or a different order of
    summation can tell from zero.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(50 * n):
        if len(rows) >= n:
            break
        a, b = rng.normal(size=(2, machine.n_features)) * 1.5
        label = libsvm_order_label(machine, a)
        if label == libsvm_order_label(machine, b):
            continue
        for _ in range(70):
            middle = 0.5 * (a + b)
            if (middle == a).all() or (middle == b).all():
                break
            if libsvm_order_label(machine, middle) == label:
                a = middle
            else:
                b = middle
        rows += [a, b]
    assert len(rows) >= n, "the machine gives one label nearly everywhere"
    return np.array(rows[:n])


@pytest.mark.parametrize("kernel", NATIVE)
@pytest.mark.parametrize(
    "task", [{}, {"n_classes": 3}, {"n_classes": 3, "rule": "argmax"}, {"task": "outlier"}], ids=str
)
def test_rows_on_the_boundary_get_the_float64_label(kernel, task, monkeypatch):
    machine = balanced(random_machine(kernel, n_sv=25, d=3, seed=5, **task))
    X = boundary_rows(machine, 24)
    expected = np.array([libsvm_order_label(machine, x) for x in X])
    smallest = min(np.abs(libsvm_order_scores(machine, x)).min() for x in X)
    if task.get("rule") != "argmax":
        assert smallest < 1e-13  # far below float32: the rows are what they claim to be
    for level in LEVELS:
        monkeypatch.setenv("SVELTO_ISA", level)
        fast = svelto.accelerate(machine, method="exact")
        assert_array_equal(fast.predict(X), expected)
        assert_array_equal(fast.predict(sparse.csr_matrix(X)), expected)
        assert_array_equal(np.concatenate([fast.predict(x[None]) for x in X]), expected)
    assert fast.work(X)["stages"]["reference"] > 0.2


def test_boundary_rows_of_a_trained_machine_match_scikit_learns_csr_path():
    """scikit-learn sums CSR rows in LIBSVM's order, so even there the labels are comparable bit by bit."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 4)), rng.integers(0, 2, 200)
    svc = SVC(gamma=0.3).fit(sparse.csr_matrix(X), y)
    fast = svelto.accelerate(svc, method="exact")
    rows = boundary_rows(fast.machine, 40)
    assert_array_equal(fast.predict(rows), svc.predict(sparse.csr_matrix(rows)))
    assert fast.work(rows)["stages"]["reference"] > 0.5


@pytest.mark.parametrize("n_classes", [3, 5])
def test_broken_ties_match_scikit_learn(n_classes):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(300, 3)), rng.integers(0, n_classes, 300)
    svc = SVC(gamma=1.0, break_ties=True, decision_function_shape="ovr").fit(X, y)
    Z = rng.normal(size=(2000, 3))
    fast = svelto.accelerate(svc, method="exact")
    assert_array_equal(fast.predict(Z), svc.predict(Z))
    votes_only = SVC(gamma=1.0).fit(X, y)
    assert (votes_only.predict(Z) != svc.predict(Z)).any()  # there are ties to break


kernels = st.sampled_from(NATIVE)
# Around the widths of vectors (4, 8, 16), blocks and panels (16, 32).
sizes = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 65])


@given(
    kernel=kernels,
    d=sizes,
    n_sv=sizes,
    n_rows=st.integers(1, 40),
    n_classes=st.integers(2, 5),
    log_gamma=st.floats(-12, 12) | st.sampled_from([-300.0, -90.0, 90.0, 300.0]),
    spread=st.sampled_from([1e-200, 1e-160, 1e-30, 1e-3, 1.0, 1e3, 1e18, 1e150]),
    dtype=st.sampled_from([np.float32, np.float64, np.int8, np.int64]),
    order=st.sampled_from(["C", "F", "strided", "csr"]),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=600)
def test_labels_of_any_machine_on_any_rows(kernel, d, n_sv, n_rows, n_classes, log_gamma, spread, dtype, order, seed):
    machine = random_machine(
        kernel, n_sv=n_sv, d=d, n_classes=n_classes, gamma=10.0**log_gamma, spread=spread, seed=seed
    )
    rng = np.random.default_rng(seed + 1)
    rows = rng.normal(size=(n_rows, d)) * spread
    S = np.asarray(machine.support_vectors)
    rows[::3] = S[rng.integers(len(S), size=len(rows[::3]))]  # queries on support vectors
    rows[1::5] = 0.0
    rows[2::7] = 5e-324  # denormals
    rows[n_rows // 2] = rows[0]  # duplicates
    with np.errstate(over="ignore", invalid="ignore"):
        X = np.clip(rows, -100, 100).astype(dtype) if np.issubdtype(dtype, np.integer) else rows.astype(dtype)
    X[~np.isfinite(X)] = 1.0  # float32 cannot hold every spread
    expected = [libsvm_order_label(machine, x.astype(np.float64)) for x in X]
    if order == "F":
        X = np.asfortranarray(X)
    elif order == "strided":
        wide = np.zeros((2 * n_rows, 3 * d), dtype=dtype)
        wide[::2, ::3] = X
        X = wide[::2, ::3]
    elif order == "csr":
        X = sparse.csr_matrix(X)
    fast = svelto.accelerate(machine, method="exact")
    assert_array_equal(fast.predict(X), np.array(expected))
    cut = n_rows // 3
    if cut:
        assert_array_equal(np.concatenate([fast.predict(X[:cut]), fast.predict(X[cut:])]), np.array(expected))


@given(kernel=kernels, n_classes=st.integers(2, 4), seed=st.integers(0, 100), postings=st.booleans())
@settings(max_examples=40)
def test_sparse_machines_and_sparse_rows(kernel, n_classes, seed, postings):
    machine = random_machine(kernel, n_sv=30, d=40, n_classes=n_classes, as_csr=True, seed=seed)
    rng = np.random.default_rng(seed)
    rows = np.where(rng.random((20, 40)) < rng.random((20, 1)), rng.normal(size=(20, 40)), 0.0)
    expected = np.array([libsvm_order_label(machine, x) for x in rows])
    fast = svelto.accelerate(machine, method="exact")
    for X in (rows, sparse.csr_matrix(rows), sparse.csc_matrix(rows), sparse.coo_array(rows)):
        assert_array_equal(fast.predict(X), expected)


@pytest.mark.parametrize("model", [SVC(), SVC(kernel="poly"), NuSVC(nu=0.2), OneClassSVM(nu=0.3)], ids=str)
def test_same_label_for_any_split_order_thread_count_and_level(model, monkeypatch):
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(400, 11)), rng.integers(0, 4, 400)
    model = model.fit(X, y)
    Z = rng.normal(size=(1500, 11))
    expected = model.predict(Z)
    order = rng.permutation(len(Z))
    for level in LEVELS:
        monkeypatch.setenv("SVELTO_ISA", level)
        for n_jobs in (1, 2, None):
            fast = svelto.accelerate(model, method="exact", n_jobs=n_jobs)
            assert_array_equal(fast.predict(Z), expected)
            assert_array_equal(fast.predict(Z[order]), expected[order])
            for size in (1, 7, 100):
                parts = [fast.predict(Z[i : i + size]) for i in range(0, 300, size)]
                assert_array_equal(np.concatenate(parts)[:300], expected[:300])


def test_decision_values_do_not_depend_on_the_rows_beside_them():
    machine = random_machine("rbf", n_sv=300, d=11, n_classes=4)
    fast = svelto.accelerate(machine, method="exact")
    Z = np.random.default_rng(0).normal(size=(200, 11))
    whole = fast.decision_function(Z)
    assert_array_equal(np.vstack([fast.decision_function(z[None]) for z in Z]), whole)


@pytest.mark.parametrize("kernel", NATIVE)
def test_decision_values_of_csr_rows_do_not_depend_on_the_rows_beside_them(kernel):
    machine = random_machine(kernel, n_sv=60, d=30, n_classes=2)
    fast = svelto.accelerate(machine, method="exact")
    rng = np.random.default_rng(0)
    # From nearly empty to nearly full rows: some are visited element by element, others as dense tiles.
    Z = sparse.csr_matrix(
        np.where(rng.random((60, 30)) < np.linspace(0, 1, 60)[:, None], rng.normal(size=(60, 30)), 0.0)
    )
    whole = fast.decision_function(Z)
    assert_array_equal(np.concatenate([fast.decision_function(Z[[i]]) for i in range(60)]), whole)
    if kernel != "exponential":  # whose CSR rows skip the float32 tier
        assert_array_equal(fast.decision_function(Z.toarray()), whole)  # zeros cost nothing in a dense row either


def test_votes_in_the_ovr_decision_function_are_the_float64_machines():
    machine = balanced(random_machine("rbf", n_sv=25, d=3, n_classes=3, seed=5))
    X = boundary_rows(machine, 60)
    fast = svelto.accelerate(machine, method="exact", precision="float32")
    exact = np.array([libsvm_order_scores(machine, x) for x in X])
    # A vote for the wrong class would move two columns by one.
    np.testing.assert_allclose(fast.decision_function(X), ovr_decision(exact, 3), atol=1e-4)


def test_dense_rows_behind_a_scaler_on_a_machine_kept_as_an_inverted_index():
    X = sparse.random(200, 20_000, density=0.005, format="csr", random_state=0)
    y = np.random.default_rng(0).integers(0, 2, 200)
    model = make_pipeline(MaxAbsScaler(), SVC(gamma=0.05)).fit(X * 7.0, y)
    fast = svelto.accelerate(model, method="exact")
    assert fast._engine.uses_postings
    for rows in (X * 7.0, (X * 7.0).toarray(), (X * 7.0).toarray().astype(np.float32)):
        assert_array_equal(fast.predict(rows), model.predict(rows))


def test_classes_with_zero_weights_against_one_class_and_mixed_signs_against_another():
    """All-zero weights have both signs; they must not hide that others have none."""
    machine = random_machine("rbf", n_sv=60, d=4, n_classes=3)
    coef = machine.dual_coef.copy()
    coef[0, :20] = 0.0
    coef[1, :20] *= np.where(np.arange(20) % 2, 1.0, -1.0)
    machine = balanced(replace(machine, dual_coef=coef))
    X = boundary_rows(machine, 40)
    expected = np.array([libsvm_order_label(machine, x) for x in X])
    assert_array_equal(svelto.accelerate(machine, method="exact").predict(X), expected)


@pytest.fixture
def flushed_denormals():
    """A thread as libraries built with -ffast-math leave it: denormals flushed to zero (x86, glibc)."""
    libm = ctypes.CDLL("libm.so.6")
    saved = (ctypes.c_char * 32)()
    if platform.machine() != "x86_64" or libm.fegetenv(saved) != 0:
        pytest.skip("knows how to set the mode on x86-64 with glibc only")
    changed = (ctypes.c_char * 32).from_buffer_copy(saved)
    control = int.from_bytes(changed[28:32], "little") | 0x8040
    changed[28:32] = control.to_bytes(4, "little")
    libm.fesetenv(changed)
    yield
    libm.fesetenv(saved)


@pytest.fixture
def denormal_case():
    """A machine whose scores are denormal numbers, rows, and their labels in plain arithmetic."""
    machine = replace(random_machine("linear", n_sv=5, d=3, spread=1e-158), intercept=[0.0])
    X = np.random.default_rng(0).normal(size=(50, 3)) * 1e-158
    return machine, X, np.array([libsvm_order_label(machine, x) for x in X])


def test_labels_where_a_library_has_turned_denormals_off(denormal_case, flushed_denormals):
    machine, X, expected = denormal_case
    assert len(set(expected)) == 2
    assert_array_equal(svelto.accelerate(machine, method="exact").predict(X), expected)
