"""The exact engine against the slow definition, for every kernel, task, path and instruction level."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from machines import NATIVE, random_machine, slack
from oracle import libsvm_order_scores, slow_scores
from svelto import KernelMachine, _core
from svelto._inputs import Query
from svelto.engines.exact import ExactEngine
from svelto.engines.packing import pack_machine

LEVELS = _core.available_levels()
FORMS = {"rbf": ("dot", "sq_diff"), "exponential": ("sq_diff",), "laplacian": ("abs_diff",), "linear": (None,)}
TASKS = (
    {"n_classes": 2},
    {"n_classes": 3},
    {"n_classes": 7},
    {"n_classes": 4, "rule": "argmax"},
    {"task": "regression"},
    {"task": "regression", "n_outputs": 3},
    {"task": "outlier"},
)


def rows_for(machine, n, seed=1):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, machine.n_features)) * 1.5


def run(machine, X, *, precision, level=None, form="default", postings=False, threads=1):
    """Scores and bounds straight from the native engine."""
    if form == "default":
        form = FORMS.get(machine.kernel.name, ("dot",))[0]
    fields = pack_machine(machine, single_pair=form, use_postings=postings)
    engine = _core.Engine(fields, level or LEVELS[-1])
    scores, bounds = np.empty((X.shape[0], machine.n_scores)), np.empty((X.shape[0], machine.n_scores))
    if sparse.issparse(X):
        engine.scores_csr(X.data, X.indices, X.indptr, scores, bounds, precision, threads)
    else:
        engine.scores_dense(X, scores, bounds, precision, False, threads)
    return scores, bounds


@pytest.mark.parametrize("precision", [0, 1, 2], ids=["float32", "float64", "reference"])
@pytest.mark.parametrize("kernel", NATIVE)
@pytest.mark.parametrize("task", TASKS, ids=str)
def test_scores_match_definition_within_their_bounds(kernel, task, precision):
    for d, n_sv in ((1, 1), (2, 3), (7, 31), (16, 33), (33, 300), (64, 5)):
        machine = random_machine(kernel, n_sv=n_sv, d=d, seed=d, **task)
        X = rows_for(machine, 23)
        expected = slow_scores(machine, X)
        for form in FORMS.get(kernel, ("dot",)):
            scores, bounds = run(machine, X, precision=precision, form=form)
            if precision == 2:
                assert_allclose(scores, expected, rtol=1e-11, atol=slack(machine))
                continue
            error = np.abs(scores - expected)
            assert (error <= bounds + slack(machine)).all()
            # The bound must also be worth something: float32 scores are good to some 1e-3 of the weights' sum.
            size = np.abs(machine.dual_coef).sum() * (1 if kernel not in ("poly", "linear") else (3 * d) ** 3)
            assert bounds.max() < (1e-3 if precision == 0 else 1e-9) * (1 + size)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kernel", NATIVE)
def test_every_level_and_every_row_count(kernel, level):
    machine = random_machine(kernel, n_sv=70, d=5, n_classes=3)
    X = rows_for(machine, 40)
    expected = slow_scores(machine, X)
    whole = {p: run(machine, X, precision=p, level=level)[0] for p in (0, 1)}
    for precision, scores in whole.items():
        assert_allclose(
            scores, expected, rtol=1e-3 if precision == 0 else 1e-10, atol=1e-3 if precision == 0 else 1e-10
        )
        for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 15, 17):
            # Not only close: the same bits, whatever the rows beside it.
            assert_array_equal(run(machine, X[:n], precision=precision, level=level)[0], scores[:n])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kernel", NATIVE)
@pytest.mark.parametrize("n_classes", [2, 5])
def test_csr_rows(kernel, level, n_classes):
    machine = random_machine(kernel, n_sv=90, d=24, n_classes=n_classes, gamma=0.2)
    rng = np.random.default_rng(3)
    dense = np.where(rng.random((50, 24)) < 0.2, rows_for(machine, 50), 0.0)
    dense[7] = 0.0
    expected = slow_scores(machine, dense)
    for X in (sparse.csr_matrix(dense), sparse.csr_matrix(dense.astype(np.float32)), _wide(sparse.csr_matrix(dense))):
        reference = slow_scores(machine, X.toarray().astype(np.float64)) if X.dtype == np.float32 else expected
        for precision in (0, 1, 2):
            scores, bounds = run(machine, X, precision=precision, level=level)
            assert (np.abs(scores - reference) <= bounds + slack(machine)).all()


def _wide(X):
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


@pytest.mark.parametrize("kernel", [k for k in NATIVE if k != "linear"])
@pytest.mark.parametrize("task", TASKS, ids=str)
def test_inverted_index(kernel, task):
    machine = random_machine(kernel, n_sv=60, d=30, as_csr=True, **task)
    rng = np.random.default_rng(4)
    dense = np.where(rng.random((21, 30)) < 0.3, rng.normal(size=(21, 30)), 0.0)
    expected = slow_scores(machine, dense)
    for X in (dense, sparse.csr_matrix(dense)):
        for precision in (0, 1, 2):
            scores, bounds = run(machine, X, precision=precision, postings=True)
            assert (np.abs(scores - expected) <= bounds + slack(machine)).all()
            assert bounds.max() < 1e-6 * (1 + np.abs(machine.dual_coef).sum())


def test_inverted_index_is_chosen_for_text_like_machines_only():
    rng = np.random.default_rng(0)
    text = sparse.random(300, 50_000, density=0.002, format="csr", random_state=0)
    machine = _with_vectors(text)
    engine = ExactEngine(machine)
    assert engine.uses_postings
    assert engine.nbytes < 3_000_000  # 300 x 50,000 doubles would be 120 MB
    X = sparse.random(40, 50_000, density=0.002, format="csr", random_state=1)
    assert_allclose(engine.scores(Query(X)), slow_scores(machine, X), rtol=1e-9, atol=1e-11)
    binary = _with_vectors(sparse.csr_matrix((rng.random((300, 100)) < 0.1).astype(float)))
    assert not ExactEngine(binary).uses_postings


def _with_vectors(S):
    coef = np.random.default_rng(0).normal(size=S.shape[0])
    return KernelMachine.from_arrays(kernel="rbf", gamma=0.5, support_vectors=S, dual_coef=coef, classes=[0, 1])


@pytest.mark.parametrize("kernel", NATIVE)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_reference_tier_repeats_libsvms_order_bit_for_bit(kernel, n_classes):
    machine = random_machine(kernel, n_sv=37, d=9, n_classes=n_classes)
    X = rows_for(machine, 12)
    expected = [libsvm_order_scores(machine, x) for x in X]
    assert_array_equal(run(machine, X, precision=2)[0], np.array(expected))
    sparse_machine = random_machine(kernel, n_sv=37, d=9, n_classes=n_classes, as_csr=True)
    rows = np.where(np.abs(X) > 1.0, X, 0.0)
    expected = [libsvm_order_scores(sparse_machine, x) for x in rows]
    assert_array_equal(run(sparse_machine, rows, precision=2)[0], np.array(expected))
    if kernel != "linear":
        csr = sparse.csr_matrix(rows)
        assert_array_equal(run(sparse_machine, csr, precision=2, postings=True)[0], np.array(expected))


@pytest.mark.parametrize("kernel", NATIVE)
def test_memory_orders_and_types(kernel):
    machine = random_machine(kernel, n_sv=50, d=6)
    X = np.round(rows_for(machine, 30) * 8) / 8  # exact in float32
    expected = run(machine, X, precision=1)[0]
    wide = np.zeros((60, 12))
    wide[::2, ::2] = X
    read_only = X.copy()
    read_only.flags.writeable = False
    for form in (np.asfortranarray(X), X.astype(np.float32), wide[::2, ::2], X[::-1][::-1], read_only):
        assert_array_equal(run(machine, form, precision=1)[0], expected)


def test_mixed_signs_inside_a_class_get_columns_of_magnitudes():
    machine = random_machine("rbf", n_sv=60, d=4, n_classes=4)
    mixed = machine.dual_coef * np.random.default_rng(0).choice([-1.0, 1.0], size=machine.dual_coef.shape)
    machine = replace(machine, dual_coef=mixed)
    assert pack_machine(machine, single_pair="dot", use_postings=False)["abs_cols"] == 3
    X = rows_for(machine, 30)
    scores, bounds = run(machine, X, precision=0)
    assert (np.abs(scores - slow_scores(machine, X)) <= bounds).all()


def test_overflow_in_single_precision_falls_back_to_double():
    machine = random_machine("poly", n_sv=20, d=4, spread=1e7)
    X = rows_for(machine, 10) * 1e7
    scores, _ = run(machine, X, precision=0)
    assert_allclose(scores, slow_scores(machine, X), rtol=1e-9)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly"])
def test_work_is_split_over_threads_without_changing_a_bit(kernel):
    machine = random_machine(kernel, n_sv=200, d=8, n_classes=3)
    X = rows_for(machine, 1000)
    one = run(machine, X, precision=0)[0]
    for threads in (2, 3, 8):
        assert_array_equal(run(machine, X, precision=0, threads=threads)[0], one)


EXTREMES = {
    "linear, every feature's product underflows": ("linear", 1, 2000, 1e-161, 1e-161, 1e300),
    "poly, vectors tiny and rows huge": ("poly", 5, 3, 1e-300, 1e290, 1.0),
    "sigmoid, vectors tiny and rows huge": ("sigmoid", 5, 3, 1e-300, 1e290, 1.0),
    "poly, powers overflow": ("poly", 5, 3, 1e100, 1e100, 1.0),
}


@pytest.mark.parametrize("case", EXTREMES)
def test_bounds_hold_where_numbers_underflow_or_overflow(case):
    kernel, n_sv, d, size, reach, weight = EXTREMES[case]
    machine = random_machine(kernel, n_sv=n_sv, d=d, spread=size, gamma=1.0, task="regression")
    machine = replace(machine, dual_coef=machine.dual_coef * weight, intercept=[0.0])
    X = np.random.default_rng(2).normal(size=(50, d)) * reach
    reference, _ = run(machine, X, precision=2)
    for precision in (0, 1):
        with np.errstate(invalid="ignore", over="ignore"):
            scores, bounds = run(machine, X, precision=precision)
            # An overflowed score comes from the reference itself: infinities and NaN must then be the very same.
            same = (scores == reference) | (np.isnan(scores) & np.isnan(reference))
            assert (same | (np.abs(scores - reference) <= bounds)).all()
