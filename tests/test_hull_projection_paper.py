"""The projection onto a convex hull is the H1-SVM of paper S2: its algorithm, its dual problem, its theorems.

Algorithm 1 stands first, as printed.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hull_cases import INF
from svelto.training.hull_projection import project_onto_hull

# -- the paper's algorithm --------------------------------------------------------------------------------------------


def algorithm_1(Q, G, alpha, i, j, L, C):
    """S2, section 4.1, Algorithm 1 for y_i = y_j, letter by letter; only the divisor is kept above 0, not at 0."""
    delta = (G[i] - G[j]) / max(Q[i, i] + Q[j, j] - 2 * Q[i, j], 1e-300)
    total = alpha[i] + alpha[j]
    alpha[i] -= delta
    alpha[j] += delta
    if total > C[i]:
        if alpha[i] > C[i]:
            alpha[i] = C[i]
            alpha[j] = total - C[i]
    elif alpha[j] < L[j]:
        alpha[j] = L[j]
        alpha[i] = total - L[j]
    if total > C[j]:
        if alpha[j] > C[j]:
            alpha[j] = C[j]
            alpha[i] = total - C[j]
    elif alpha[i] < L[i]:
        alpha[i] = L[i]
        alpha[j] = total - L[i]


def paper_solution(points, target, upper, tol=1e-8, max_steps=100_000):
    """SMO as the paper has it: Algorithm 1 on the pair of largest violation."""
    Y = points - target
    Q, lower = Y @ Y.T, np.zeros(len(points))
    alpha, rest = np.zeros(len(points)), 1.0
    for i in range(len(points)):  # any feasible start
        alpha[i] = min(upper[i], rest)
        rest -= alpha[i]
    for _ in range(max_steps):
        G = Q @ alpha
        i = np.argmin(np.where(alpha < upper, G, INF))
        j = np.argmax(np.where(alpha > lower, G, -INF))
        if G[j] - G[i] <= tol * (alpha @ G):
            return alpha, alpha @ Y
        algorithm_1(Q, G, alpha, i, j, lower, upper)
    raise AssertionError("Algorithm 1 did not converge")


# -- what the paper says of it -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_algorithm_1_of_the_paper_gives_the_same(seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 40)), int(rng.integers(1, 6))
    points, target = rng.normal(size=(n, d)), 4.0 * np.ones(d)
    upper = np.full(n, INF if seed % 2 else 1.0 / n + 2.0 * rng.random() / n)
    alpha, w = paper_solution(points, target, upper)
    found = project_onto_hull(points, target, upper=upper, tol=1e-12)
    assert_allclose(found.direction, w, rtol=0, atol=1e-4 * np.linalg.norm(w))
    if d > 1 and seed % 2:  # few points on a face in general position: the weights are unique, too
        assert_allclose(found.weights, alpha, rtol=0, atol=1e-3)


def test_algorithm_1_as_printed_can_leave_positive_lower_bounds():
    """It compares the sum with C_i where C_i + L_j decides; for the H1-SVM, where L = 0, that is the same."""
    Q, G = np.eye(2), np.array([0.0, 0.6])
    lower, upper, alpha = np.array([0.0, 0.4]), np.array([0.5, 1.0]), np.array([0.3, 0.5])
    algorithm_1(Q, G, alpha, 0, 1, lower, upper)
    assert alpha[1] < lower[1]
    # Ours, with the same two weights of a third: the first stays at its upper bound, the second at its lower.
    points = np.array([[1.0, 0.0], [5.0, 0.0], [3.0, 0.0]])
    found = project_onto_hull(points, [0.0, 0.0], lower=[0.0, 0.4, 0.0], upper=[0.5, 1.0, 1.0])
    assert_allclose(found.weights, [0.5, 0.4, 0.1], rtol=1e-15)


def test_primal_and_dual_of_the_h1_svm_agree():
    """Problem 1 (equations 3.1, 3.2; its sum is over the soft class) has the value m - |w|^2 / 2 of its dual."""
    rng = np.random.default_rng(5)
    hard, soft = rng.normal(size=(300, 6)), rng.normal(size=(40, 6)) + np.r_[4.0, np.zeros(5)]
    m = len(soft)
    found = project_onto_hull(hard, soft.mean(axis=0), tol=1e-13)
    alpha, w = m * found.weights, m * found.direction  # the hard class has y = 1
    assert_allclose(w, alpha @ hard - soft.sum(axis=0), rtol=0, atol=1e-11)
    assert_allclose(alpha.sum(), m, rtol=1e-14)  # sum of alpha y
    b = 1.0 - (hard @ w).min()
    assert (hard @ w + b >= 1.0 - 1e-12).all()
    primal = 0.5 * w @ w + (soft @ w + b).sum()
    assert_allclose(primal, m - 0.5 * w @ w, rtol=1e-9)


def test_theorem_1_hulls_that_meet_have_the_zero_solution():
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=(60, 4)), rng.normal(size=(50, 4)) + 0.5
    p = 0.3 * first.mean(axis=0) + 0.7 * second.mean(axis=0)  # a point of both hulls
    ours, theirs = project_onto_hull(first, p), project_onto_hull(second, p)
    assert ours.status == theirs.status == "zero"
    # The proof's dual solution for D_1 = 2 and the smallest D_2 allowed by the second class's weights.
    alpha_1, alpha_2 = 2.0 * ours.weights, 2.0 * theirs.weights
    assert alpha_2.max() <= theirs.weights.max() * 2.0
    assert abs(alpha_1.sum() - alpha_2.sum()) <= 1e-14
    assert np.linalg.norm(alpha_1 @ first - alpha_2 @ second) <= 2.0 * (ours.distance + theirs.distance) + 1e-14


def test_corollary_1_a_centre_of_gravity_inside_gives_the_zero_solution():
    rng = np.random.default_rng(2)
    hard, soft = rng.normal(size=(200, 5)), 0.1 * rng.normal(size=(30, 5)) + 0.2
    centre, m = soft.mean(axis=0), len(soft)
    found = project_onto_hull(hard, centre)
    assert found.status == "zero"
    assert found.direction is None
    D_2 = 0.7
    alpha = found.weights * D_2 * m
    assert found.distance <= 1e-7 * np.median(np.linalg.norm(hard - centre, axis=1))
    assert np.linalg.norm(alpha @ hard - D_2 * soft.sum(axis=0)) <= D_2 * m * found.distance + 1e-13
    # D_1 >= lambda_max D_2 m is enough; a hull reduced further and further no longer holds the centre.
    assert project_onto_hull(hard, centre, upper=found.weights.max()).status == "zero"
    reduced = project_onto_hull(hard, centre, upper=1.05 / len(hard))
    assert reduced.status == "optimal"
    assert reduced.lower_bound > 0.1
    # "Any reduced convex hull will still contain the gravity center of the class."
    for share in (1.0, 1.05, 2.0, 100.0, INF):
        assert project_onto_hull(hard, hard.mean(axis=0), upper=share / len(hard)).status == "zero"


def test_the_smallest_upper_bound_leaves_the_mean():
    rng = np.random.default_rng(0)
    for n in (1, 3, 49, 1000):
        points = rng.normal(size=(n, 3))
        found = project_onto_hull(points, [5.0, 5.0, 5.0], upper=1 / n)
        assert_allclose(found.direction, points.mean(axis=0) - 5.0, rtol=1e-12)
        assert_allclose(found.weights, 1 / n, rtol=1e-12)
        assert found.status == "optimal"
