"""Reduced sets against slow definitions: coefficients, choice of vectors, gradients, every kernel and task."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from machines import random_machine
from oracle import slow_scores
from svelto._inputs import Query
from svelto.engines import _basis, reduced_set
from svelto.engines._basis import Target
from svelto.engines.exact import ExactEngine
from svelto.engines.packing import expand_rows
from svelto.engines.reduced_set import reduce_machine
from svelto.kernels import Kernel
from svelto.machine import KernelMachine
from svelto.scaling import Scaling

KERNELS = ("rbf", "exponential", "laplacian", "poly", "sigmoid")
TASKS = (
    {"n_classes": 2},
    {"n_classes": 4},
    {"n_classes": 3, "rule": "argmax"},
    {"task": "regression"},
    {"task": "regression", "n_outputs": 3},
    {"task": "outlier"},
)


def rows_for(machine, n=600, seed=1):
    return np.random.default_rng(seed).normal(size=(n, machine.n_features))


def reduce(machine, rows, **options):
    """One thread: quick on a busy computer too."""
    return reduce_machine(machine, rows, **{"random_state": 0, "n_jobs": 1, **options})


def target_for(machine, rows, *, penalty, weights=None):
    coef = np.column_stack(expand_rows(machine, machine.dual_coef))
    if rows is None:
        return Target(machine.kernel, machine.support_vectors, coef, None, np.empty((0, 1)), np.empty(0), penalty)
    weights = np.ones(len(rows)) if weights is None else weights
    return Target(machine.kernel, machine.support_vectors, coef, rows, slow_scores(machine, rows), weights, penalty)


def slow_error(target, T, beta, intercept):
    """E, written to be read. Never optimise this one."""
    kernel, S, alpha = target.kernel, target.vectors, target.coef
    error = 0.0
    if target.rows is not None:
        residual = kernel(target.rows, T) @ beta + intercept - target.scores
        error += (target.weights[:, None] * residual**2).sum() / target.weights.sum()
    in_space = beta.T @ kernel(T, T) @ beta - 2 * beta.T @ kernel(T, S) @ alpha + alpha.T @ kernel(S, S) @ alpha
    return error + target.penalty * np.trace(in_space)


def slow_least_squares(X, scores, T, kernel, weights):
    """Weighted least squares with an intercept, by the SVD of the whole design matrix."""
    design = np.column_stack([kernel(X, T), np.ones(len(X))]) * np.sqrt(weights)[:, None]
    solution = np.linalg.lstsq(design, scores * np.sqrt(weights)[:, None], rcond=None)[0]
    return solution[:-1], solution[-1]


def slow_projection(machine, T):
    """K_tt beta = K_ts alpha for each score."""
    alpha = np.column_stack(expand_rows(machine, machine.dual_coef))
    return np.linalg.lstsq(machine.kernel(T, T), machine.kernel(T, machine.support_vectors) @ alpha, rcond=None)[0]


# -- coefficients --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("task", TASKS, ids=str)
def test_least_squares_matches_definition(kernel, task):
    machine = random_machine(kernel, n_sv=60, d=4, **task)
    X = rows_for(machine)
    reduced = reduce(machine, X, n_basis=8, basis="kmeans", ridge=0, weighting="uniform")
    scores = slow_scores(machine, X)
    beta, intercept = slow_least_squares(X, scores, reduced.support_vectors, machine.kernel, np.ones(len(X)))
    expected = machine.kernel(X, reduced.support_vectors) @ beta + intercept
    # The solutions agree as functions; the raised diagonal (1e-13) times a condition number of 1e5 bounds how well.
    assert_allclose(slow_scores(reduced, X), expected, rtol=0, atol=1e-6 * np.abs(scores).max())
    assert np.mean((slow_scores(reduced, X) - scores) ** 2) < np.mean((scores - scores.mean(axis=0)) ** 2)


@pytest.mark.parametrize("task", [{"n_classes": 2}, {"task": "outlier"}], ids=str)
def test_margin_weights_are_those_of_the_definition(task):
    machine = random_machine(n_sv=60, d=4, **task)
    X = rows_for(machine)
    scores = slow_scores(machine, X)
    scale = reduced_set.MARGIN**2 * np.median(scores**2)
    weights = scale / (scale + scores[:, 0] ** 2)
    for weighting in ("auto", "margin"):
        reduced = reduce(machine, X, n_basis=8, basis="kmeans", ridge=0, weighting=weighting)
        beta, intercept = slow_least_squares(X, scores, reduced.support_vectors, machine.kernel, weights)
        expected = machine.kernel(X, reduced.support_vectors) @ beta + intercept
        assert_allclose(slow_scores(reduced, X), expected, rtol=0, atol=1e-6 * np.abs(scores).max())


@pytest.mark.parametrize("kernel", ["rbf", "exponential", "laplacian", "poly"])
@pytest.mark.parametrize("task", TASKS, ids=str)
def test_projection_matches_definition(kernel, task):
    machine = random_machine(kernel, n_sv=60, d=4, **task)
    X = rows_for(machine)
    reduced = reduce(machine, X, n_basis=8, basis="kmeans", coefficients="projection")
    beta = slow_projection(machine, reduced.support_vectors)
    expected = machine.kernel(X, reduced.support_vectors) @ beta + machine.intercept
    assert_allclose(slow_scores(reduced, X), expected, rtol=0, atol=1e-6 * (1 + np.abs(expected).max()))
    assert_array_equal(reduced.intercept, machine.intercept)


@pytest.mark.parametrize("kernel", ["rbf", "exponential", "laplacian", "poly"])
def test_system_has_its_solution_at_the_minimum_of_the_error(kernel):
    machine = random_machine(kernel, n_sv=30, d=3, n_classes=3)
    rng = np.random.default_rng(2)
    X, T = rng.normal(size=(200, 3)), rng.normal(size=(6, 3))
    target = target_for(machine, X, penalty=0.05, weights=rng.random(200) + 0.1)
    A, B, mean_values, mean_scores = target.system(T)
    beta = _basis.solve(A, B)
    intercept = mean_scores - mean_values @ beta
    least = slow_error(target, T, beta, intercept)
    for _ in range(20):
        step, aside = 1e-3 * rng.normal(size=beta.shape), 1e-3 * rng.normal(size=intercept.shape)
        assert slow_error(target, T, beta + step, intercept + aside) > least
    # A quadratic function is its second difference: both sides of the minimum are equally high.
    ahead, behind = (slow_error(target, T, beta + s * step, intercept) for s in (1, -1))
    assert abs(ahead - behind) < 1e-4 * (ahead - least) + 1e-12 * abs(least)


@pytest.mark.parametrize("kernel", KERNELS)
def test_projection_on_the_support_vectors_is_the_machine(kernel):
    machine = random_machine(kernel, n_sv=25, d=4, n_classes=3)
    target = target_for(machine, None, penalty=1.0)
    A, B, mean_values, mean_scores = target.system(machine.support_vectors)
    assert not mean_values.any()
    assert not mean_scores.any()
    X = rows_for(machine, 50)
    scores = slow_scores(machine, X)
    found = machine.kernel(X, machine.support_vectors) @ _basis.solve(A, B) + machine.intercept
    assert_allclose(found, scores, rtol=0, atol=1e-5 * np.abs(scores).max())


@pytest.mark.parametrize("basis", ["kmeans", "greedy", "preimage"])
@pytest.mark.parametrize("n_basis", [40, 1000])
def test_as_many_vectors_as_the_machine_has_give_the_machine_itself(basis, n_basis):
    machine = random_machine(n_sv=40, n_classes=3)
    X = rows_for(machine, 50)
    reduced = reduce(machine, X, n_basis=n_basis, basis=basis)
    assert_allclose(slow_scores(reduced, X), slow_scores(machine, X), rtol=0, atol=1e-12)


def test_solve_raises_the_diagonal_of_a_singular_matrix():
    A = np.ones((5, 5))
    found = _basis.solve(A, np.ones((5, 2)))
    assert_allclose(A @ found, np.ones((5, 2)), atol=1e-6)
    assert not _basis.solve(np.zeros((3, 3)), np.zeros((3, 1))).any()
    indefinite = np.diag([1.0, -0.5])
    assert np.isfinite(_basis.solve(indefinite, np.ones((2, 1)))).all()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("forms", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=str)
def test_kernel_values_match_definition(kernel, forms):
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(40, 5)), rng.normal(size=(7, 5))
    T[0] = X[0]
    function = Kernel(kernel, gamma=0.4, coef0=0.5)
    given = [sparse.csr_matrix(rows) if form else rows for rows, form in zip((X, T), forms, strict=True)]
    # The square root of a squared distance of 1e-15 instead of 0 is 3e-8.
    atol = 1e-7 if kernel == "exponential" else 1e-13
    assert_allclose(_basis.kernel_values(function, *given), function(X, T), rtol=1e-12, atol=atol)
    if kernel in ("rbf", "exponential") and forms == (0, 0):  # at 1e6, products alone would leave errors of 1e-4
        assert_allclose(_basis.kernel_values(function, X + 1e6, T + 1e6), function(X, T), rtol=0, atol=1e-7)


# -- vectors -------------------------------------------------------------------------------------------------------


def slow_best(A, B, chosen):
    """The least of beta A beta - 2 beta B over the chosen columns."""
    return -np.trace(B[chosen].T @ np.linalg.solve(A[np.ix_(chosen, chosen)], B[chosen]))


@pytest.mark.parametrize("n_scores", [1, 3])
def test_forward_takes_the_best_column_at_every_step(n_scores):
    rng = np.random.default_rng(0)
    design, scores = rng.normal(size=(60, 15)), rng.normal(size=(60, n_scores))
    A, B = design.T @ design, design.T @ scores
    expected: list[int] = []
    for _ in range(10):
        rest = [j for j in range(15) if j not in expected]
        expected.append(min(rest, key=lambda j: slow_best(A, B, [*expected, j])))
    assert_array_equal(_basis.forward(A, B, 10), expected)


@pytest.mark.parametrize("n_scores", [1, 3])
def test_backward_drops_the_least_useful_column_at_every_step(n_scores):
    rng = np.random.default_rng(0)
    design, scores = rng.normal(size=(60, 15)), rng.normal(size=(60, n_scores))
    A, B = design.T @ design, design.T @ scores
    expected = list(range(15))
    for _ in range(9):
        drop = min(expected, key=lambda j: slow_best(A, B, [i for i in expected if i != j]))
        expected.remove(drop)
    assert_array_equal(_basis.backward(A, B, 6), expected)


def test_forward_stops_where_the_candidates_are_used_up():
    rng = np.random.default_rng(0)
    design = rng.normal(size=(50, 4))[:, [0, 1, 2, 3, 0, 1, 2, 3]]
    chosen = _basis.forward(design.T @ design, design.T @ rng.normal(size=(50, 1)), 8)
    assert sorted(chosen % 4) == [0, 1, 2, 3]
    assert_array_equal(_basis.forward(np.eye(3), np.zeros((3, 1)), 2), [0])


@pytest.mark.parametrize("n_scores", [1, 3])
@pytest.mark.parametrize("with_rows", [True, False])
@pytest.mark.parametrize("as_csr", [True, False])
def test_gradient_of_preimage_matches_differences_of_the_error(n_scores, with_rows, as_csr, monkeypatch):
    monkeypatch.setattr(_basis, "BLOCK_ROWS", 64)
    machine = random_machine(n_sv=100, d=3, task="regression", n_outputs=n_scores)
    rng = np.random.default_rng(3)
    X, T = rng.normal(size=(150, 3)), rng.normal(size=(5, 3))
    target = target_for(machine, X if with_rows else None, penalty=0.02, weights=rng.random(150) + 0.1)

    def slow_value(T):
        A, B, mean_values, mean_scores = target.system(T)
        beta = np.linalg.solve(A, B)
        return slow_error(target, T, beta, mean_scores - mean_values @ beta)

    given = target
    if as_csr:
        given = replace(target, vectors=sparse.csr_matrix(target.vectors))
        given = replace(given, rows=sparse.csr_matrix(X)) if with_rows else given
    with ThreadPoolExecutor(2) as pool:
        valley = _basis._Valley(given, pool)
        value, slope = valley(T)
        elsewhere = valley(T + 0.1)[0]
    assert_allclose(elsewhere - value, slow_value(T + 0.1) - slow_value(T), rtol=1e-8)
    for _ in range(5):
        direction = rng.normal(size=T.shape)
        difference = (slow_value(T + 1e-5 * direction) - slow_value(T - 1e-5 * direction)) / 2e-5
        assert_allclose(np.vdot(slope, direction), difference, rtol=1e-5)


def test_preimage_lowers_the_error_of_greedy_which_lowers_that_of_kmeans():
    machine = random_machine(n_sv=300, d=5, gamma=0.3)
    X, held_out = rows_for(machine, 1500), rows_for(machine, 500, seed=5)
    scores = slow_scores(machine, held_out)
    error = {}
    for basis in ("kmeans", "greedy", "preimage"):
        reduced = reduce(machine, X, n_basis=24, basis=basis)
        assert reduced.n_sv == 24
        error[basis] = np.mean((slow_scores(reduced, held_out) - scores) ** 2)
    assert error["preimage"] < 0.5 * error["greedy"]
    assert error["greedy"] < 0.8 * error["kmeans"]


def test_preimage_moves_a_single_vector_onto_the_only_one_that_counts():
    centre = np.array([[1.0, -2.0]])
    S = np.vstack([centre, centre + 0.7])
    machine = KernelMachine.from_arrays(kernel="rbf", gamma=0.5, support_vectors=S, dual_coef=[[2.0, 1e-9]])
    X = centre + np.random.default_rng(0).normal(size=(300, 2))
    for coefficients in ("least_squares", "projection"):
        reduced = reduce(machine, X, n_basis=1, coefficients=coefficients)
        assert_allclose(reduced.support_vectors, centre, atol=1e-3)
        assert_allclose(reduced.dual_coef, [[2.0]], atol=1e-3)


def test_many_vectors_and_many_scores_take_the_short_cuts(monkeypatch):
    """More scores than directions, more support vectors than the stand-in has: the result hardly changes."""
    machine = random_machine(n_sv=200, d=3, n_classes=6)
    X = rows_for(machine, 800)
    scores = slow_scores(machine, X)
    full = reduce(machine, X, n_basis=20)
    monkeypatch.setattr(_basis, "DIRECTIONS", 6)
    monkeypatch.setattr(_basis, "STAND_IN_VECTORS", 60)
    short = reduce(machine, X, n_basis=20)
    error = [np.mean((slow_scores(r, X) - scores) ** 2) for r in (full, short)]
    assert not np.array_equal(full.support_vectors, short.support_vectors)
    assert error[1] < 2 * error[0] < 0.02 * scores.var()


def test_rotation_of_scores_leaves_their_distances():
    machine = random_machine(n_sv=50, d=3, n_classes=10)
    target = target_for(machine, rows_for(machine, 100), penalty=0.1)
    short = target.compressed()
    assert short.coef.shape[1] == short.scores.shape[1] == _basis.DIRECTIONS < machine.n_scores
    kept = short.scores.var(axis=0).sum() / target.scores.var(axis=0).sum()
    assert 0.99 < kept <= 1 + 1e-12
    # Weights and scores are still those of one machine: they differ by an intercept.
    intercept = short.scores - short.sums(short.rows)
    assert_allclose(intercept, np.broadcast_to(intercept[0], intercept.shape), rtol=0, atol=1e-12)


def test_stand_in_is_the_same_machine_with_fewer_vectors(monkeypatch):
    machine = random_machine(n_sv=300, d=2, n_classes=3)
    target = target_for(machine, None, penalty=1.0)
    rng = np.random.RandomState(0)
    assert _basis._stand_in(target, rng) is target
    monkeypatch.setattr(_basis, "STAND_IN_VECTORS", 100)
    short = _basis._stand_in(target, rng)
    assert short.vectors.shape == (100, 2)
    X = rows_for(machine, 50)
    assert_allclose(short.sums(X), target.sums(X), rtol=0, atol=1e-2 * np.abs(target.sums(X)).max())


# -- what goes in and comes out ------------------------------------------------------------------------------------


@pytest.mark.parametrize("coefficients", ["least_squares", "projection"])
@pytest.mark.parametrize("basis", ["auto", "kmeans", "greedy"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("task", TASKS, ids=str)
def test_every_kernel_and_task_gives_a_machine_that_follows(kernel, task, basis, coefficients):
    machine = random_machine(kernel, n_sv=80, d=3, gamma=0.1, **task)
    X = rows_for(machine, 400)
    reduced = reduce(
        machine,
        X,
        n_basis=20,
        basis=basis,
        coefficients=coefficients,
        max_iter=20,
    )
    assert (reduced.task, reduced.rule, reduced.kernel) == ("regression", "value", machine.kernel)
    assert reduced.dual_coef.shape == (machine.n_scores, reduced.n_sv)
    assert reduced.n_sv <= 20
    found = ExactEngine(reduced, precision="float32").scores(Query(X))
    scores = slow_scores(machine, X)
    left = np.mean((found - scores) ** 2) / np.mean((scores - scores.mean(axis=0)) ** 2)
    assert left < (0.2 if kernel in ("exponential", "laplacian") else 0.01)


@pytest.mark.parametrize("basis", ["auto", "greedy"])
@pytest.mark.parametrize("sparse_rows", [True, False])
def test_csr_rows_and_vectors_count_like_dense_ones(basis, sparse_rows):
    machine = random_machine(n_sv=120, d=12, as_csr=True)
    plain = replace(machine, support_vectors=machine.support_vectors.toarray())
    X = rows_for(machine, 500) * (np.random.default_rng(2).random((500, 12)) < 0.3)
    options = {"n_basis": 16, "basis": basis, "max_iter": 10}
    expected = slow_scores(reduce(plain, X, **options), X)
    found = reduce(machine, sparse.csr_matrix(X) if sparse_rows else X, **options)
    # Greedy choices are the same; L-BFGS lets rounding grow, and cluster centres come from other code.
    scores = slow_scores(machine, X)
    if basis == "greedy":
        assert_allclose(slow_scores(found, X), expected, rtol=0, atol=1e-6)
    errors = [np.mean((s - scores) ** 2) for s in (expected, slow_scores(found, X))]
    assert max(errors) < 1.5 * min(errors) + 1e-9


@pytest.mark.parametrize("basis", ["kmeans", "greedy", "preimage"])
def test_same_seed_same_machine(basis):
    machine = random_machine(n_sv=150, d=4)
    X = rows_for(machine, 800)
    first, second, other = (
        reduce(machine, X, n_basis=12, basis=basis, max_iter=15, random_state=seed, n_jobs=2) for seed in (7, 7, 8)
    )
    for name in ("support_vectors", "dual_coef", "intercept"):
        assert_array_equal(getattr(first, name), getattr(second, name))
    assert basis == "greedy" or not np.array_equal(first.support_vectors, other.support_vectors)


def test_preimage_does_not_depend_on_the_number_of_threads(monkeypatch):
    monkeypatch.setattr(_basis, "BLOCK_ROWS", 100)
    machine = random_machine(n_sv=150, d=4)
    target = target_for(machine, rows_for(machine, 500), penalty=0.01)
    start = machine.support_vectors[:10]
    one, two = (_basis.preimage(target, start, 20, np.random.RandomState(0), n) for n in (1, 2))
    assert_array_equal(one, two)


def test_default_oracle_is_the_machine_on_the_rows(monkeypatch):
    machine = random_machine(n_sv=100, d=4, n_classes=3)
    X = rows_for(machine)
    options = {"n_basis": 10, "basis": "kmeans"}
    alone = reduce(machine, X, **options)
    given = reduce(machine, X, oracle=(X, slow_scores(machine, X)), **options)
    assert_allclose(slow_scores(alone, X), slow_scores(given, X), rtol=0, atol=1e-8)
    other = reduce(machine, X, oracle=(X[:50], slow_scores(machine, X[:50])), **options)
    assert np.abs(slow_scores(other, X) - slow_scores(given, X)).max() > 1e-4
    monkeypatch.setattr(reduced_set, "ORACLE_ROWS", 200)
    assert np.isfinite(reduce(machine, X, **options).dual_coef).all()


def test_front_and_scaling_are_left_to_the_caller():
    machine = random_machine(n_sv=60, d=4)
    scaled = replace(machine, scaling=Scaling(form="divide", shift=np.ones(4), factor=np.full(4, 0.5)))
    X = rows_for(machine)
    plain, with_scaling = (reduce(m, X, n_basis=10) for m in (machine, scaled))
    assert with_scaling.scaling is None
    assert_array_equal(plain.dual_coef, with_scaling.dual_coef)


@pytest.mark.parametrize("basis", ["kmeans", "greedy", "preimage"])
def test_no_more_vectors_than_distinct_points(basis):
    machine = random_machine(n_sv=90, d=2)
    few = machine.support_vectors[:7]
    machine = replace(machine, support_vectors=np.tile(few, (13, 1))[:90])
    for rows in (few[[0, 1, 2] * 5], sparse.csr_matrix(few[[0, 1, 2] * 5])):
        vectors = sparse.csr_matrix(machine.support_vectors) if sparse.issparse(rows) else machine.support_vectors
        reduced = reduce(replace(machine, support_vectors=vectors), rows, n_basis=50, basis=basis)
        assert reduced.n_sv <= 7
        assert_allclose(slow_scores(reduced, few[:3]), slow_scores(machine, few[:3]), atol=1e-2)


@pytest.mark.parametrize("basis", ["kmeans", "greedy", "preimage"])
def test_rows_far_from_the_origin(basis):
    """Squared distances from products would lose every digit at 1e6."""
    machine = random_machine(n_sv=150, d=3)
    X = rows_for(machine, 500)
    moved = replace(machine, support_vectors=machine.support_vectors + 1e6)
    here, there = (reduce(m, rows, n_basis=20, basis=basis) for m, rows in ((machine, X), (moved, X + 1e6)))
    scores = slow_scores(machine, X)
    errors = [np.mean((slow_scores(r, rows) - scores) ** 2) for r, rows in ((here, X), (there, X + 1e6))]
    assert errors[1] < 3 * errors[0] + 1e-8


@pytest.mark.parametrize("basis", ["kmeans", "greedy", "preimage"])
@pytest.mark.parametrize("coefficients", ["least_squares", "projection"])
def test_constant_machine_and_flat_kernel(basis, coefficients):
    machine = random_machine(n_sv=40, d=3)
    X = rows_for(machine, 100)
    options = {"n_basis": 5, "basis": basis, "coefficients": coefficients}
    zero = reduce(replace(machine, dual_coef=np.zeros((1, 40))), X, **options)
    assert_allclose(slow_scores(zero, X), np.full((100, 1), machine.intercept[0]), atol=1e-12)
    flat = replace(machine, kernel=Kernel("rbf", gamma=0.0))
    assert_allclose(slow_scores(reduce(flat, X, **options), X), slow_scores(flat, X), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_input_of_any_number_type_stays_as_it_was(dtype):
    machine = random_machine(n_sv=60, d=4)
    X = (rows_for(machine, 200) * 3).astype(dtype)
    before = X.copy()
    X.flags.writeable = False
    for basis in ("greedy", "preimage"):
        assert np.isfinite(reduce(machine, np.asfortranarray(X), n_basis=6, basis=basis).dual_coef).all()
        reduce(machine, X, n_basis=6, basis=basis)
    assert_array_equal(X, before)


def test_one_row_and_one_vector():
    machine = random_machine(n_sv=30, d=3)
    for basis in ("kmeans", "greedy", "preimage"):
        reduced = reduce(machine, rows_for(machine, 1), n_basis=1, basis=basis)
        assert reduced.n_sv == 1


# -- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_basis": 0}, "n_basis is 0; expected a whole number of at least 1"),
        ({"n_basis": -3}, "n_basis is -3; expected a whole number"),
        ({"n_basis": True}, "n_basis is True; expected a whole number"),
        ({"n_basis": 2.5}, "n_basis is 2.5; expected a whole number"),
        ({"max_iter": 0}, "max_iter is 0; expected a whole number"),
        ({"basis": "random"}, "basis is 'random'; expected one of auto, kmeans, greedy, preimage"),
        ({"coefficients": "ols"}, "coefficients is 'ols'; expected one of least_squares, projection"),
        ({"weighting": "near"}, "weighting is 'near'; expected one of auto, margin, uniform"),
        ({"ridge": -1.0}, "ridge is -1.0; expected a finite number of at least 0"),
        ({"ridge": np.nan}, "ridge is nan; expected a finite number"),
        ({"ridge": "big"}, "ridge is 'big'; expected a finite number"),
        ({"n_jobs": 0}, "n_jobs is 0"),
        ({"oracle": np.zeros(3)}, "oracle is a ndarray; expected a pair"),
        ({"oracle": (np.zeros((5, 6)), np.zeros(5))}, r"shape \(5,\); expected \(5, 1\)"),
        ({"oracle": (np.zeros((5, 6)), np.full((5, 1), np.nan))}, "scores of row 0 are not finite"),
        ({"oracle": (np.zeros((5, 4)), np.zeros((5, 1)))}, "trained on 6 features; X has 4"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_bad_options_are_named(options, message):
    machine = random_machine()
    with pytest.raises(ValueError, match=message):
        reduce_machine(machine, rows_for(machine, 20), **{"n_basis": 5, **options})


def test_bad_rows_are_named():
    machine = random_machine()
    with pytest.raises(ValueError, match="trained on 6 features; X has 5"):
        reduce_machine(machine, np.zeros((3, 5)), n_basis=5)
    X = rows_for(machine, 20)
    X[3, 2] = np.inf
    for coefficients in ("least_squares", "projection"):
        with pytest.raises(ValueError, match="X contains inf"):
            reduce_machine(machine, X, n_basis=5, coefficients=coefficients, basis="greedy")
    with pytest.raises(ValueError, match="no rows"):
        reduce_machine(machine, np.zeros((0, 6)), n_basis=5)


def test_kernels_without_a_reduced_set_are_named():
    with pytest.raises(ValueError, match="linear machine is already one product"):
        reduce_machine(random_machine("linear"), np.zeros((3, 6)))
    with pytest.raises(NotImplementedError, match=r"preimage' needs an RBF kernel, got 'poly'. Use basis='greedy'"):
        reduce_machine(random_machine("poly"), np.zeros((3, 6)), basis="preimage")
    own = KernelMachine.from_arrays(kernel=lambda X, S: X @ S.T, support_vectors=np.eye(3), dual_coef=[[1, 2, 3]])
    with pytest.raises(NotImplementedError, match=r"kernel on vectors .*got 'callable'"):
        reduce_machine(own, np.zeros((3, 3)))
    given = KernelMachine.from_arrays(kernel="precomputed", support_vectors=[0, 1], dual_coef=[[1.0, 2.0]])
    with pytest.raises(NotImplementedError, match="got 'precomputed'"):
        reduce_machine(given, np.zeros((3, 2)))


@pytest.mark.parametrize("task", [{"n_classes": 3}, {"task": "regression"}], ids=str)
def test_margin_weights_need_a_sign_that_decides(task):
    with pytest.raises(ValueError, match="weighting='margin' needs one score whose sign decides"):
        reduce_machine(random_machine(**task), np.zeros((3, 6)), weighting="margin")


def test_kernel_values_beyond_float64_are_named():
    machine = random_machine("poly", n_sv=40, spread=1e60)
    with pytest.raises(ValueError, match="too large to sum; scale the data"):
        reduce_machine(machine, rows_for(machine, 20) * 1e60, n_basis=5)
