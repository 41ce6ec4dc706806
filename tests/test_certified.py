"""agreement=1.0: intervals that contain the float64 score, and labels that are always the exact machine's."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.svm import SVC

import svelto
from machines import random_machine
from oracle import libsvm_order_scores, slow_scores
from sklearn_cases import data
from svelto._inputs import Query
from svelto.engines.certified import CertifiedTree

TASKS = (
    {"n_classes": 2},
    {"n_classes": 3},
    {"n_classes": 5},
    {"n_classes": 4, "rule": "argmax"},
    {"n_classes": 4, "break_ties": True},
    {"task": "outlier"},
)


def certified(machine, X, **options):
    return svelto.accelerate(machine, X, method="taylor_tree", agreement=1.0, random_state=0, n_jobs=1, **options)


def rows(n, d, seed=1):
    return np.random.default_rng(seed).normal(size=(n, d))


def around(X, scale, seed=2):
    """Queries: the rows themselves, rows a little and a lot beside them, and rows between two of them."""
    rng = np.random.default_rng(seed)
    steps = 10.0 ** rng.uniform(-6, 1, size=(len(X), 1)) * scale
    share = rng.random((len(X), 1))
    between = share * X + (1 - share) * X[rng.permutation(len(X))]
    return np.vstack([X, X + steps * rng.normal(size=X.shape), between, X * (1 + 2.0**-40)])


def check(machine, X, Z, **options):
    """Intervals against the sum in LIBSVM's order, which defines the machine's score; returns the share it settles."""
    fast = certified(machine, X, **options)
    stage = fast._engine.stages[0]
    assert isinstance(stage, CertifiedTree)
    scores, bounds = stage.scores(Query(Z))
    with np.errstate(over="ignore", invalid="ignore"):
        reference = fast._engine.exact.scores(Query(Z), 1, "reference")
        # Where no bound is known it is infinite, or NaN where infinities met: both settle nothing.
        outside = np.abs(scores - reference) > bounds
    at = np.argwhere(outside)
    assert not len(at), f"row {at[0]}: {scores[*at[0]]} +- {bounds[*at[0]]} misses {reference[*at[0]]}"
    if machine.task == "regression":
        return np.isfinite(bounds).mean()
    labels = svelto.accelerate(machine).predict(Z)
    assert_array_equal(fast.predict(Z), labels)
    assert_array_equal(fast.predict(Z[:5]), labels[:5])  # the short way
    assert fast.report.promise == "exact"
    return (stage.settle(Query(Z), 1.0) >= 0).mean()


@pytest.mark.parametrize("task", TASKS, ids=str)
@pytest.mark.parametrize("gamma", [1e-3, 1e-2, 0.1, 1.0, 10.0])
def test_intervals_contain_the_score_and_labels_are_exact(gamma, task):
    shares = []
    for d, n_sv, leaf_size in ((1, 5, 1), (2, 40, 4), (5, 100, 30), (17, 30, 8)):
        machine, X = random_machine(n_sv=n_sv, d=d, gamma=gamma, seed=d, **task), rows(90, d)
        X[:20] = machine.support_vectors[np.arange(20) % machine.n_sv]
        shares.append(check(machine, X, around(X, 1.0), leaf_size=leaf_size))
    # Intervals must also be worth something: small leaves of flat kernels are settled nearly everywhere.
    if gamma <= 0.01:
        assert shares[1] > 0.7


def test_reference_is_the_machines_score():
    machine, X = random_machine(n_sv=30, d=4, n_classes=3), rows(40, 4)
    fast = certified(machine, X, leaf_size=8)
    reference = fast._engine.exact.scores(Query(X), 1, "reference")
    assert_array_equal(reference, [libsvm_order_scores(machine, x) for x in X])


def test_bounds_are_tight_where_the_expansion_is():
    """Near the centre of a leaf only rounding is left, and far from it the bound is infinite, not wrong."""
    machine, X = random_machine(n_sv=40, d=3, gamma=0.3), rows(60, 3)
    stage = certified(machine, X, leaf_size=4)._engine.stages[0]
    centres = stage.arrays["certified_centres"]
    scores, bounds = stage.scores(Query(np.ascontiguousarray(centres)))
    # Some hundred units in the last place of the terms' absolute sum.
    assert bounds.max() < 1e-11 * np.abs(machine.dual_coef).sum()
    assert_allclose(scores, slow_scores(machine, centres), rtol=0, atol=1e-11)
    assert (stage.scores(Query(X + 100.0))[1] == np.inf).all()
    # To first order the score is the tangent: the bound falls with the square of the distance.
    step = np.array([1.0, 0.0, 0.0])
    small, large = (stage.scores(Query(centres + h * step))[1] for h in (1e-4, 1e-2))
    finite = np.isfinite(large)
    assert finite.any()
    assert (large[finite] > 1e3 * small[finite]).all()


ADVERSARY = {
    "seed": st.integers(0, 2**31),
    "d": st.integers(1, 6),
    "n_sv": st.integers(1, 120),
    "log_scale": st.floats(-3, 3),
    "log_gamma": st.floats(-3, 1),
    "relative": st.booleans(),
    "log_weight": st.floats(-2, 6),
    "uneven": st.booleans(),
    "log_offset": st.floats(-3, 4),
    "moved": st.booleans(),
    "leaf_size": st.sampled_from([1, 2, 8, 64]),
    "task": st.sampled_from([*TASKS, {"task": "regression"}]),
}


def check_adversary(
    seed, d, n_sv, log_scale, log_gamma, relative, log_weight, uneven, log_offset, moved, leaf_size, task
):
    """Any scale of the data, any number and size of weights, kernels from flat to a spike at every vector."""
    rng = np.random.default_rng(seed)
    scale = 10.0**log_scale
    gamma = 10.0**log_gamma / (scale**2 if relative else 1.0)
    machine = random_machine(n_sv=n_sv, d=d, gamma=gamma, seed=seed, spread=scale, **task)
    weight = 10.0**log_weight * (10.0 ** rng.uniform(-6, 0, size=machine.n_sv) if uneven else 1.0)
    offset = 10.0**log_offset * rng.normal(size=d) if moved else 0.0
    machine = replace(
        machine,
        dual_coef=machine.dual_coef * weight,
        intercept=machine.intercept * 10.0 ** rng.uniform(-3, 6),
        support_vectors=machine.support_vectors + offset,
    )
    X = rng.normal(size=(80, d)) * scale * 10.0 ** rng.uniform(-1, 0.5) + offset
    X[:20] = machine.support_vectors[np.arange(20) % machine.n_sv]
    options = {"tolerance": 1.0} if machine.task == "regression" else {}
    check(machine, X, around(X, scale, seed), leaf_size=leaf_size, **options)


@settings(max_examples=60)
@given(**ADVERSARY)
def test_adversarial_machines(**case):
    check_adversary(**case)


@pytest.mark.slow
@settings(max_examples=2000, derandomize=False)
@given(**ADVERSARY)
def test_many_adversarial_machines(**case):
    check_adversary(**case)


def test_near_ties_are_left_to_the_exact_engine():
    """Rows whose score is zero but for rounding: bisection between two classes down to neighbouring numbers."""
    machine, X = random_machine(n_sv=40, d=2, gamma=0.5), rows(400, 2)
    exact, fast = svelto.accelerate(machine), certified(machine, X, leaf_size=4)
    labels = exact.predict(X)
    low, high = X[labels == labels[0]][:60], X[labels != labels[0]][:60]
    n = min(len(low), len(high))
    low, high = low[:n].copy(), high[:n].copy()
    for _ in range(60):
        middle = 0.5 * (low + high)
        as_low = exact.predict(middle) == labels[0]
        low[as_low], high[~as_low] = middle[as_low], middle[~as_low]
    for Z in (low, high, 0.5 * (low + high)):
        assert_array_equal(fast.predict(Z), exact.predict(Z))
        assert (fast._engine.stages[0].settle(Query(Z), 1.0) < 0).mean() > 0.9


def test_equal_and_opposite_weights():
    """Scores that are zero in exact arithmetic: every term has its opposite."""
    machine = random_machine(n_sv=20, d=3, task="outlier")
    S = np.repeat(machine.support_vectors[:10], 2, axis=0)
    coef = np.tile([1e6, -1e6], 10)[None, :]
    X = rows(100, 3)
    for intercept in (0.0, 1e-12, -1e-9):
        balanced = replace(machine, support_vectors=S, dual_coef=coef, intercept=[intercept])
        check(balanced, X, around(X, 1.0))


def test_one_vector_is_expanded_exactly_as_stated():
    """The interval of a single term, recomputed with exact rational arithmetic around the exponentials."""
    machine = random_machine(n_sv=1, d=2, gamma=0.7, task="outlier")
    X = rows(30, 2)
    stage = certified(machine, X, leaf_size=5)._engine.stages[0]
    Z = X + 1e-3
    scores, bounds = stage.scores(Query(Z))
    leaf, a = stage.trace(Query(Z)).leaf, stage.arrays
    s, w = machine.support_vectors[0], float(machine.dual_coef[0, 0])
    for z, at, score, bound in zip(Z, leaf, scores[:, 0], bounds[:, 0], strict=True):
        centre = a["certified_centres"][at]
        delta = [Fraction(float(v)) - Fraction(float(c)) for v, c in zip(z, centre, strict=True)]
        D = [Fraction(float(v)) - Fraction(float(c)) for v, c in zip(s, centre, strict=True)]
        q, t = float(sum(v * v for v in delta)), 2 * 0.7 * float(sum(u * v for u, v in zip(delta, D, strict=True)))
        k = np.exp(-0.7 * float(sum(v * v for v in D)))
        low, high = sorted([0.0, (2 * 0.7**2) * w * k * float(sum(v * v for v in D)) * q])  # eigenvalues of D D^T
        middle = float(machine.intercept[0]) + np.exp(-0.7 * q) * (w * k * (1 + t) + 0.5 * (low + high))
        assert score == pytest.approx(middle, rel=1e-12, abs=1e-14)
        assert bound >= np.exp(-0.7 * q) * 0.5 * (high - low)


def test_regression_keeps_its_tolerance_for_every_row():
    machine, X = random_machine(n_sv=60, d=3, gamma=0.05, task="regression", n_outputs=2), rows(300, 3)
    Z = around(X, 1.0)
    for tolerance in (1e-6, 1e-2, 1.0):
        fast = certified(machine, X, tolerance=tolerance)
        error = np.abs(fast.predict(Z) - slow_scores(machine, Z)).max()
        assert error <= tolerance + 1e-11  # rounding of the slow scores
    assert fast.work(Z)["stages"]["taylor_tree"] > 0.2
    assert fast.report.promise == "exact"


@pytest.mark.parametrize("kernel", ["exponential", "poly", "sigmoid", "linear"])
def test_other_kernels_are_refused(kernel):
    with pytest.raises(NotImplementedError) as caught:
        certified(random_machine(kernel, d=3), rows(100, 3))
    text = str(caught.value)
    assert text.startswith("agreement=1.0 needs leaves with a proven bound, which exists for the rbf kernel; this ")
    assert f"this machine has {kernel}" in text
    assert text.endswith("Use method='exact', or agreement=0.9999.")


def test_rows_of_every_form_and_trained_machines():
    X, y, Z = data(3, n_rows=300)
    svc = SVC(gamma=0.05, C=2.0).fit(X, y)
    fast = certified(svc, X, leaf_size=4)
    expected = svc.predict(Z)
    assert fast.work(Z)["stages"]["taylor_tree"] > 0.05
    Z32 = Z.astype(np.float32)
    assert_array_equal(fast.predict(Z32), svc.predict(Z32.astype(np.float64)))
    for form in (Z, np.asfortranarray(Z), sparse.csr_matrix(Z), sparse.csc_matrix(Z)):
        assert_array_equal(fast.predict(form), expected)
    with pytest.raises(ValueError, match=r"X contains nan \(row 7, column 2\)"):
        fast.predict(np.where(np.arange(Z.size).reshape(Z.shape) == 7 * 5 + 2, np.nan, Z))


def test_a_tie_rule_that_scikit_learn_has_only_for_ovr():
    """With pair scores ("ovo") `break_ties` has no meaning, and the vote stays LIBSVM's."""
    for shape in ("ovr", "ovo"):
        machine = random_machine(
            n_classes=5, n_sv=60, d=3, gamma=0.05, seed=7, break_ties=True, decision_function_shape=shape
        )
        assert check(machine, rows(1000, 3), rows(1000, 3, seed=3), leaf_size=8) > 0.5
