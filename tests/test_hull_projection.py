"""The projection onto a (reduced) convex hull: paper S2's H1-SVM.

The slow definitions stand first: the duality gap, the paper's Algorithm 1, and the quadratic program as given to an
independent solver.
"""

from __future__ import annotations

import signal
from dataclasses import FrozenInstanceError

import clarabel
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from svelto import _core
from svelto.training import hull_projection
from svelto.training.hull_projection import project_onto_hull

INF = float("inf")


# -- the definitions, written to be read ------------------------------------------------------------------------------


def smallest_product(values, lower, upper):
    """Minimum of weights.values over the feasible weights: from the lower bounds on, the smallest are filled first."""
    weights, rest = lower.copy(), 1.0 - lower.sum()
    for i in np.argsort(values, kind="stable"):
        amount = min(rest, upper[i] - lower[i])
        weights[i] += amount
        rest -= amount
    return weights @ values


def slow_gap(points, target, w, lower, upper):
    """|w|^2 less the smallest <w, x - target> in the hull, as a share of |w|^2."""
    return 1.0 - smallest_product((points - target) @ w, lower, upper) / (w @ w)


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


def quadratic_program(points, target, lower, upper):
    """Weights and w from Clarabel, an interior-point method, to ten digits."""
    n, d = points.shape
    capped = np.flatnonzero(np.isfinite(upper))
    nothing = sparse.csc_matrix((n, d))
    A = sparse.vstack(
        [
            sparse.hstack([sparse.csc_matrix((points - target).T), -sparse.eye(d)]),
            sparse.csc_matrix(np.r_[np.ones(n), np.zeros(d)][None]),
            sparse.hstack([-sparse.eye(n), nothing]),
            sparse.hstack([sparse.eye(n), nothing]).tocsr()[capped],
        ]
    )
    b = np.concatenate([np.zeros(d), [1.0], -lower, upper[capped]])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    solver = clarabel.DefaultSolver(
        sparse.diags(np.r_[np.zeros(n), np.ones(d)]).tocsc(),
        np.zeros(n + d),
        A.tocsc(),
        b,
        [clarabel.ZeroConeT(d + 1), clarabel.NonnegativeConeT(n + len(capped))],
        settings,
    )
    solution = solver.solve()
    assert str(solution.status) in ("Solved", "AlmostSolved")
    return np.array(solution.x)[:n], np.array(solution.x)[n:]


# -- what always holds ------------------------------------------------------------------------------------------------


def check_promises(found, points, target, lower=None, upper=None, tol=1e-6):
    n, d = points.shape
    lower = np.broadcast_to(0.0 if lower is None else lower, n).astype(float)
    upper = np.broadcast_to(INF if upper is None else upper, n).astype(float)
    assert (found.weights >= lower).all()
    assert (found.weights <= upper).all()
    # Moves of weight keep the sum to its last digits; filling n bounds of 1 / n rounds n times.
    assert abs(found.weights.sum() - 1.0) <= 1e-15 * max(n, 100)
    w = found.weights @ (points - target)
    rounding = 1e-14 * np.sqrt(d) * np.abs(points - target).max()
    assert 0.0 <= found.lower_bound <= found.distance
    if found.direction is None:
        assert found.status == "zero"
        assert np.linalg.norm(w) <= found.distance + rounding
        return
    assert_allclose(found.direction, w, rtol=0, atol=rounding)
    assert_allclose(found.distance, np.linalg.norm(found.direction), rtol=1e-12)
    # The gradients round with |w| |x - target|, their sum over n rows with n, and the gap is a share of |w|^2.
    noise = 1e-16 * max(n, 100) * np.linalg.norm(points - target, axis=1).max() / found.distance
    gap = slow_gap(points, target, found.direction, lower, upper)
    assert abs(gap - found.gap) <= 1e-6 * found.gap + noise
    assert_allclose(found.lower_bound, found.distance * (1.0 - min(found.gap, 1.0)), rtol=1e-9)
    if found.status == "optimal":
        assert found.gap <= tol


KINDS = ["gauss", "binary", "grid", "low rank", "cond 1e3", "cond 1e6", "offset", "duplicates", "constant", "clusters"]
TARGETS = ["far", "outside", "edge", "inside", "face"]


def random_problem(kind, seed):
    """Points, target and bounds: up to 5,000 points, up to 100 features."""
    rng = np.random.default_rng([KINDS.index(kind), seed])
    d = int(rng.choice([1, 2, 3, 5, 10, 20, 50, 100]))
    # The interior-point method takes seconds for 5,000 points of 100 features.
    n = int(np.exp(rng.uniform(np.log([1, 300][seed % 2]), np.log(5000 if d <= 20 else 1500))))
    points = rng.normal(size=(n, d))
    if kind == "binary":
        points = (rng.random((n, d)) < 0.3).astype(float)
    elif kind == "grid":
        points = rng.integers(-3, 4, (n, d)).astype(float)
    elif kind == "low rank":
        rank = max(1, d // 3)
        points = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, d))
    elif kind.startswith("cond"):
        points *= np.geomspace(1.0, 1.0 / float(kind.split()[1]), d)
        points = points @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    elif kind == "offset":
        points += 1000.0 * rng.normal(size=d)
    elif kind == "duplicates":
        points = points[rng.integers(0, max(1, n // 10), n)]
    elif kind == "constant":
        points[:, rng.random(d) < 0.5] = 3.0
    elif kind == "clusters":
        points += 5.0 * rng.normal(size=(3, d))[rng.integers(0, 3, n)]

    mean, normal = points.mean(axis=0), rng.normal(size=d)
    normal /= np.linalg.norm(normal)
    reach = ((points - mean) @ normal).max() + 1e-3
    where = TARGETS[seed % len(TARGETS)]
    if where == "inside":
        target = 0.8 * mean + 0.2 * points[0]
    else:
        target = mean + normal * reach * {"far": 10.0, "outside": 1.3, "edge": 1.0, "face": 2.0}[where]
    if where == "face":  # in the hull's surface, up to rounding
        target = project_onto_hull(points, target, tol=1e-12).weights @ points

    lower, upper = np.zeros(n), np.full(n, INF)
    if seed % 4 == 1:
        upper[:] = min(1.0, 1.01 / n * 10 ** rng.uniform(0, 2))
    elif seed % 4 == 2:
        upper = rng.random(n) + 1e-3
        upper *= 10 ** rng.uniform(0.05, 1.5) / upper.sum()
    if seed % 3 == 1:
        lower = np.minimum(rng.random(n) * rng.choice([0.1, 0.5, 0.9]) / n, 0.9 * upper)
    return points, target, lower, upper


@pytest.mark.parametrize("kind", KINDS)
def test_twenty_random_problems_against_a_quadratic_program(kind):
    statuses = []
    for seed in range(20):
        points, target, lower, upper = random_problem(kind, seed)
        found = project_onto_hull(points, target, lower=lower, upper=upper, max_passes=500)
        assert found.status in ("optimal", "zero"), seed
        statuses.append(found.status)
        check_promises(found, points, target, lower, upper)
        _, w = quadratic_program(points, target, lower, upper)
        # The program is solved to 1e-10 in the objective, the square of a length.
        atol = 1e-5 * max(1.0, np.linalg.norm(points - target, axis=1).max())
        assert found.lower_bound - atol <= np.linalg.norm(w) <= found.distance + atol, seed
        if found.status == "optimal":
            # |w - w_exact|^2 <= gap |w|^2
            assert np.linalg.norm(found.direction - w) <= np.sqrt(found.gap) * found.distance + atol, seed
    assert {"optimal", "zero"} == set(statuses)


@pytest.mark.parametrize("upper", [INF, 0.005])
def test_many_features(upper):
    rng = np.random.default_rng(3)
    points, target = rng.normal(size=(3000, 120)), np.r_[7.0, np.zeros(119)]
    found = project_onto_hull(points, target, upper=upper, tol=1e-10)
    check_promises(found, points, target, upper=upper, tol=1e-10)
    _, w = quadratic_program(points, target, np.zeros(3000), np.full(3000, upper))
    assert_allclose(found.direction, w, rtol=0, atol=1e-5 * found.distance)


@pytest.mark.parametrize("seed", range(10))
def test_kkt_conditions(seed):
    """At the optimum all weights between their bounds have one gradient, those below it are at the upper bound."""
    rng = np.random.default_rng(seed)
    n, d = 400, 10
    points, target = rng.normal(size=(n, d)), np.r_[2.0, np.zeros(d - 1)]
    lower, upper = rng.random(n) / n * 0.5, (1.0 + 5.0 * rng.random(n)) / n
    found = project_onto_hull(points, target, lower=lower, upper=upper, tol=1e-13)
    assert found.status == "optimal"
    gradient = (points - target) @ found.direction
    between = (found.weights > lower) & (found.weights < upper)
    assert 1 <= between.sum() <= d + 1  # more are possible only where points happen to lie in one plane
    level, slack = gradient[between].mean(), 1e-9 * found.distance**2
    assert np.ptp(gradient[between]) <= slack
    assert_array_equal(found.weights[gradient < level - slack], upper[gradient < level - slack])
    assert_array_equal(found.weights[gradient > level + slack], lower[gradient > level + slack])
    assert (gradient < level - slack).any()
    assert (gradient > level + slack).any()


def test_weights_may_be_negative():
    """A lower bound below 0 enlarges the hull: by 0.5 each, the triangle to one twice and a half as large."""
    triangle = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    larger = triangle.mean(axis=0) + 2.5 * (triangle - triangle.mean(axis=0))
    for target in ([5.0, 4.0], [-3.0, 0.5], [1.0, -7.0]):
        found = project_onto_hull(triangle, target, lower=-0.5, tol=1e-12)
        expected = project_onto_hull(larger, target, tol=1e-12)
        check_promises(found, triangle, np.array(target), lower=-0.5)
        assert_allclose(found.direction, expected.direction, rtol=0, atol=1e-12)
    assert project_onto_hull(triangle, [-0.5, 1.0]).status == "optimal"
    assert project_onto_hull(triangle, [-0.5, 1.0], lower=-0.5).status == "zero"


def test_ill_conditioned_points_take_passes_not_millions_of_steps():
    """Steps of two weights alone take 60 million steps here, and do not arrive (measured)."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(5000, 50)) * np.geomspace(1.0, 1e-6, 50)
    for height in (1.0, 2.0, 20.0):
        target = np.r_[np.zeros(49), height * points[:, 49].max()]
        found = project_onto_hull(points, target, max_passes=200)
        assert found.status == "optimal"
        check_promises(found, points, target)


def test_bounds_of_a_few_nths_move_many_rows_in_few_passes():
    rng = np.random.default_rng(0)
    points, target = rng.normal(size=(20_000, 10)), np.r_[1.0, np.zeros(9)]
    for share in (1.1, 2.0, 10.0):
        found = project_onto_hull(points, target, upper=share / 20_000)
        assert found.status == ("optimal" if share < 2.5 else "zero")
        assert found.n_passes <= 12
        check_promises(found, points, target, upper=share / 20_000)


# -- the paper --------------------------------------------------------------------------------------------------------


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


# -- zero, and close to it --------------------------------------------------------------------------------------------


def slab(n, d, seed=0):
    """Points with first feature 0 around the origin, more above: the hull's face below is known."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n, d))
    points[: n // 2, 0] = 0.0
    points[n // 2 :, 0] = np.abs(points[n // 2 :, 0])
    return points


@pytest.mark.parametrize("scale", [1e-3, 1.0])  # of the second half of the features
@pytest.mark.parametrize("d", [2, 3, 10, 40])
def test_targets_just_outside_on_and_just_inside_a_face(d, scale):
    points = slab(2000, d)
    points[:, d // 2 + 1 :] *= scale
    inside_face = np.r_[0.0, np.full(d - 1, 0.05 * scale)]
    for distance in 10.0 ** np.arange(0, -7, -1):
        target = inside_face - np.r_[distance, np.zeros(d - 1)]
        found = project_onto_hull(points, target)
        assert found.status == "optimal", distance
        check_promises(found, points, target)
        assert found.lower_bound <= distance * (1 + 1e-9)
        assert distance <= found.distance * (1 + 1e-9)
        # |w - w_exact|^2 <= gap |w|^2
        error = np.linalg.norm(found.direction - np.r_[distance, np.zeros(d - 1)])
        assert error <= (np.sqrt(found.gap) + 1e-6) * distance
    for depth in (0.0, 1e-12, 1e-9, 1e-6, 1e-3, 0.1):  # on the face, and inside
        found = project_onto_hull(points, inside_face + np.r_[depth, np.zeros(d - 1)])
        assert found.status == "zero"
        assert found.direction is None
        assert found.lower_bound == 0.0


def test_zero_tol_is_a_share_of_the_median_distance():
    points = np.array([[1.0, 1.0], [1.0, -1.0], [1.0, 3.0], [1.0, -3.0], [1e6, 0.0]])
    below = points - [1.0, 0.0]
    assert np.median(np.linalg.norm(below, axis=1)) == 3.0
    for target, zero_tol, status in (
        ([-2.9e-3, 0.0], 1e-3, "zero"),
        ([-3.1e-3, 0.0], 1e-3, "optimal"),
        ([-1e-9, 0.0], 0.0, "optimal"),
        ([0.0, 0.0], 0.0, "zero"),
    ):
        assert project_onto_hull(below, target, zero_tol=zero_tol).status == status


def test_the_rounding_of_a_target_is_no_direction():
    """A soft class of equal rows that is a hard row: its mean may be off by a last digit."""
    row = np.array([0.1, 1000.3, -7.7])
    target = row * (1.0 + 4e-16)
    assert (target != row).any()
    for points in (row[None], np.stack([row, row + 1.0])):
        assert project_onto_hull(points, target).status == "zero"


def test_one_point():
    found = project_onto_hull([[3.0, 4.0]], [0.0, 0.0])
    assert (found.status, found.distance, found.lower_bound, found.gap) == ("optimal", 5.0, 5.0, 0.0)
    assert_array_equal(found.direction, [3.0, 4.0])
    assert_array_equal(found.weights, [1.0])
    found = project_onto_hull([[3.0, 4.0]], [3.0, 4.0])
    assert (found.status, found.distance, found.lower_bound) == ("zero", 0.0, 0.0)


def test_target_is_a_point_of_the_hull():
    points = np.random.default_rng(0).normal(size=(100, 5))
    for i in range(0, 100, 9):
        assert project_onto_hull(points, points[i]).status == "zero"
        assert project_onto_hull(points, 0.25 * points[i] + 0.75 * points[i - 1]).status == "zero"


def test_duplicates_share_one_answer():
    rng = np.random.default_rng(4)
    points, target = rng.normal(size=(50, 4)), np.array([3.0, 0.0, 0.0, 0.0])
    alone = project_onto_hull(points, target, tol=1e-12)
    many = np.repeat(points, 40, axis=0)
    found = project_onto_hull(many, target, tol=1e-12)
    assert_allclose(found.direction, alone.direction, rtol=0, atol=1e-6)
    # Forty copies that may take 0.01 each are one point that may take 0.4.
    capped = project_onto_hull(points, target, upper=0.4, tol=1e-12)
    found = project_onto_hull(many, target, upper=0.01, tol=1e-12)
    assert_allclose(found.direction, capped.direction, rtol=0, atol=1e-6)
    same = project_onto_hull(np.ones((30, 3)), [1.0, 1.0, 3.0], upper=0.05)
    assert_allclose(same.direction, [0.0, 0.0, -2.0], rtol=1e-15)
    assert project_onto_hull(np.ones((30, 3)), [1.0, 1.0, 1.0], upper=0.05).status == "zero"


def test_constant_features_and_one_feature():
    points = np.c_[np.linspace(-1.0, 1.0, 21), np.full(21, 7.0)]
    found = project_onto_hull(points, [0.25, 5.0], tol=1e-12)
    assert_allclose(found.direction, [0.0, 2.0], rtol=0, atol=1e-6)
    assert project_onto_hull(points, [0.25, 7.0]).status == "zero"
    line = np.array([[2.0], [9.0], [4.0]])
    assert_array_equal(project_onto_hull(line, [1.0]).direction, [1.0])
    assert_array_equal(project_onto_hull(line, [10.0]).direction, [-1.0])
    assert project_onto_hull(line, [3.0]).status == "zero"


def test_far_rows_keep_the_sum_of_the_weights():
    """Rows a million times as far as the others, and the hull close by: elements of a step cancel."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        points = rng.normal(size=(2000, 10))
        points[rng.integers(0, 2000, 20)] *= 1e6
        beyond = 20.0 * points[0] / np.linalg.norm(points[0])
        surface = project_onto_hull(points, beyond, tol=1e-12)
        target = (
            beyond if surface.direction is None else beyond + surface.direction * (1.0 - 10.0 ** rng.uniform(-6, -1))
        )
        check_promises(project_onto_hull(points, target), points, target)


def test_a_far_row_does_not_spoil_the_others():
    rng = np.random.default_rng(0)
    points = slab(500, 6)
    points[-1] = 1e7 * np.abs(rng.normal(size=6))
    target = np.r_[-1e-2, np.full(5, 0.05)]
    found = project_onto_hull(points, target)
    assert found.status == "optimal"
    assert_allclose(found.direction, [1e-2, 0, 0, 0, 0, 0], rtol=0, atol=1e-5)


def test_rows_far_from_the_origin():
    rng = np.random.default_rng(0)
    points, target = rng.normal(size=(500, 6)), np.r_[3.0, np.zeros(5)]
    near = project_onto_hull(points, target, tol=1e-12)
    far = project_onto_hull(points + 2.0**20, target + 2.0**20, tol=1e-12)
    assert_allclose(far.direction, near.direction, rtol=0, atol=1e-6)
    factor = 2.0**100
    scaled = project_onto_hull(points * factor, target * factor, tol=1e-12)
    assert_array_equal(scaled.direction, near.direction * factor)


# -- how it is used ---------------------------------------------------------------------------------------------------


def test_same_bits_for_any_number_of_threads_and_any_division_into_calls(monkeypatch):
    rng = np.random.default_rng(0)
    points, target = rng.normal(size=(6000, 30)) * np.geomspace(1.0, 0.03, 30), np.r_[np.zeros(29), 0.2]
    for bounds in ({}, {"upper": 3.0 / 6000, "lower": 0.1 / 6000}):
        one = project_onto_hull(points, target, **bounds)
        assert one.n_passes > 5
        for n_threads in (2, 3, 16):
            more = project_onto_hull(points, target, n_threads=n_threads, **bounds)
            assert_array_equal(more.weights, one.weights)
            assert_array_equal(more.direction, one.direction)
            assert (more.n_steps, more.n_passes, more.gap) == (one.n_steps, one.n_passes, one.gap)
        with monkeypatch.context() as patch:
            patch.setattr(hull_projection, "CALL_SECONDS", 0.0)  # one pass a call
            calls = project_onto_hull(points, target, **bounds)
        assert_array_equal(calls.weights, one.weights)
        assert (calls.n_steps, calls.n_passes, calls.gap) == (one.n_steps, one.n_passes, one.gap)


def test_max_passes_stops_with_an_honest_gap():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(3000, 30)) * np.geomspace(1.0, 1e-4, 30)
    target = np.r_[0.5, np.zeros(28), 0.01]
    exact = project_onto_hull(points, target, tol=1e-12)
    assert exact.n_passes > 8
    distances, gaps = [], []
    for max_passes in range(1, exact.n_passes):
        found = project_onto_hull(points, target, max_passes=max_passes, tol=1e-12)
        assert (found.status, found.n_passes) == ("stopped", max_passes)
        check_promises(found, points, target)
        assert found.lower_bound <= exact.distance * (1 + 1e-12)
        distances.append(found.distance)
        gaps.append(found.gap)
    assert (np.diff(distances) <= 1e-12).all()  # every pass helps
    assert min(gaps) > 1e-12


def test_rounding_stops_what_cannot_be_reached():
    """No double is exact to 1e-30: the search ends, and says so. (Now and then a gap rounds to 0.)"""
    statuses = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        points, target = rng.normal(size=(60, 200)), 0.5 * rng.normal(size=200)
        found = project_onto_hull(points, target, tol=1e-30)
        assert found.n_passes <= 200
        assert found.gap <= 1e-13
        statuses.append(found.status)
    assert "stopped" in statuses


def test_warm_starts_give_the_same_answer_in_fewer_passes():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(5000, 40)) * np.geomspace(1.0, 1e-2, 40)
    target = np.r_[1.0, np.zeros(38), 0.1]
    cold = project_onto_hull(points, target)
    again = project_onto_hull(points, target, start=cold.weights)
    assert again.n_passes == 1
    assert_array_equal(again.weights, cold.weights)
    # A target nearby; rows that left; bounds that came.
    kept = np.delete(np.arange(5000), np.flatnonzero(cold.weights)[:2])
    for rows, goal, upper in (
        (slice(None), target * 1.01, None),
        (kept, target, None),
        (slice(None), target, 0.9 * cold.weights.max()),
    ):
        fresh = project_onto_hull(points[rows], goal, upper=upper, tol=1e-8)
        warm = project_onto_hull(points[rows], goal, upper=upper, start=cold.weights[rows], tol=1e-8)
        assert warm.status == fresh.status == "optimal"
        assert warm.n_passes < fresh.n_passes
        assert_allclose(warm.direction, fresh.direction, rtol=0, atol=2e-4 * fresh.distance)
        check_promises(warm, points[rows], goal, upper=upper, tol=1e-8)


def test_any_start_is_made_feasible_and_leads_to_the_answer():
    rng = np.random.default_rng(0)
    n = 2000
    points, target = rng.normal(size=(n, 8)), np.r_[3.0, np.zeros(7)]
    lower, upper = np.full(n, 0.1 / n), np.full(n, 20.0 / n)
    exact = project_onto_hull(points, target, lower=lower, upper=upper, tol=1e-10)
    starts = [np.zeros(n), np.ones(n), rng.random(n), -rng.random(n), np.eye(n)[3], 1e-9 * np.eye(n)[3], upper, lower]
    for start in starts:
        given = start.copy()
        first = project_onto_hull(points, target, lower=lower, upper=upper, start=start, max_passes=1)
        check_promises(first, points, target, lower, upper)
        found = project_onto_hull(points, target, lower=lower, upper=upper, start=start, tol=1e-10)
        assert_allclose(found.direction, exact.direction, rtol=0, atol=2e-5 * exact.distance)
        assert_array_equal(start, given)
    # All 100,000 rows may carry weight at first.
    points = rng.normal(size=(100_000, 5))
    found = project_onto_hull(points, [7.0, 0, 0, 0, 0], start=np.full(100_000, 1e-5))
    assert found.status == "optimal"
    assert found.n_passes < 100


def test_how_a_start_is_repaired():
    points, target = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]]), np.zeros(2)
    repair = hull_projection._checked_start
    zero, none = np.zeros(4), np.full(4, INF)
    assert_allclose(repair([0, 0.2, 0.6, 0], points, target, zero, none), [0, 0.25, 0.75, 0])  # rows were removed
    assert_allclose(repair([0, 1.0, 3.0, 0], points, target, zero, none), [0, 0.25, 0.75, 0])
    assert_array_equal(repair([0, 0.5, 0.5, 0], points, target, zero, none), [0, 0.5, 0.5, 0])
    # A cap of 0.4: both are cut, and what is missing goes to the row nearest to the target's side.
    assert_allclose(repair([0, 0.5, 0.5, 0], points, target, zero, np.full(4, 0.4)), [0.2, 0.4, 0.4, 0])
    assert_allclose(repair([0, 0, 0, 1.0], points, target, zero, np.full(4, 0.3)), [0.3, 0.3, 0.1, 0.3])
    assert_allclose(repair([0, 0, 0, 1.0], points, target, np.full(4, 0.1), none), [0.1, 0.1, 0.1, 0.7])
    assert repair(zero, points, target, zero, none) is None


def test_ctrl_c_is_heard(monkeypatch):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(5000, 400)) * np.geomspace(1.0, 1e-6, 400)
    target = np.r_[np.zeros(399), points[:, 399].max()]  # some seconds of work
    heard = []

    class Listening(_core.HullSolver):
        def advance(self, *arguments):
            report = super().advance(*arguments)
            heard.append(report[0])
            return report

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_core, "HullSolver", Listening)
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            project_onto_hull(points, target)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert heard  # the work is done in several calls
    assert set(heard) == {hull_projection.RUNNING}  # and was not finished


def test_any_array_is_read_and_none_is_changed():
    rng = np.random.default_rng(0)
    points, target = rng.integers(-4, 5, (200, 7)).astype(np.float32), np.r_[9.0, np.zeros(6)]
    exact = project_onto_hull(points.astype(np.float64), target)
    frozen = points.astype(np.float64)
    frozen.flags.writeable = False
    wide = np.zeros((200, 14))
    wide[:, ::2] = points
    for other in (points, points.tolist(), np.asfortranarray(points), frozen, wide[:, ::2], points.astype(int)):
        found = project_onto_hull(other, target.tolist())
        assert_array_equal(found.weights, exact.weights)
    assert_array_equal(frozen, points)
    with pytest.raises(FrozenInstanceError):
        exact.status = "zero"


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"upper": 0.15},
            "upper sums to 0.75; weights that sum to 1 cannot all be below it. The mean alone is left at",
        ),
        ({"lower": [0.3, 0.3, 0.3, 0.3, 0.0]}, "lower sums to 1.2; weights that sum to 1 cannot all be above it"),
        ({"lower": 0.1, "upper": [1, 1, 0.05, 1, 1]}, r"lower\[2\] is 0.1, above upper\[2\], 0.05"),
        ({"upper": [1.0, 1.0]}, r"upper has shape \(2,\); expected a number, or one for each of 5 points"),
        ({"upper": float("nan")}, "upper holds nan; expected numbers"),
        ({"lower": [0, 0, 0, -INF, 0]}, "lower holds -inf; expected numbers"),
        ({"points": np.zeros(5)}, r"points has shape \(5,\); expected \(n_points, n_features\)"),
        ({"points": np.zeros((0, 2))}, r"points has shape \(0, 2\); expected at least one point"),
        ({"points": np.full((5, 2), np.nan)}, "points holds nan; expected finite numbers"),
        ({"points": np.full((5, 2), 1e160)}, r"The largest value is 1e\+160: squared distances overflow. Scale the"),
        ({"target": [1.0, 2.0, 3.0]}, "target has 3 features; the points have 2"),
        ({"target": [[1.0, 2.0]]}, r"target has shape \(1, 2\); expected \(n_features,\)"),
        ({"target": [1.0, INF]}, "target holds inf; expected finite numbers"),
        ({"start": [0.5, 0.5]}, r"start has shape \(2,\); expected one weight for each of 5 points"),
        ({"start": [0.5, 0.5, np.nan, 0, 0]}, "start holds nan; expected finite numbers"),
        ({"tol": 0.0}, "tol is 0.0; expected a positive number"),
        ({"zero_tol": -1.0}, "zero_tol is -1.0; expected a number of at least 0"),
        ({"max_passes": 0}, "max_passes is 0; expected a whole number of at least 1"),
        ({"n_threads": 1.5}, "n_threads is 1.5; expected a whole number of at least 1"),
    ],
)
def test_messages_name_the_value(change, message):
    arguments = {"points": np.arange(10.0).reshape(5, 2), "target": [-1.0, 0.0], **change}
    with pytest.raises(ValueError, match=message):
        project_onto_hull(**arguments)


def test_native_solver_refuses_wrong_shapes():
    good = {
        "points": np.zeros((5, 3)),
        "target": np.zeros(3),
        "lower": np.zeros(5),
        "upper": np.ones(5),
        "weights": np.zeros(5),
        "has_start": False,
        "tol": 1e-6,
        "zero_tol": 1e-7,
        "n_threads": 1,
    }
    solver = _core.HullSolver(**good)
    with pytest.raises(ValueError, match="out and target disagree"):
        solver.direction(np.zeros(4))
    for name, value, message in (
        ("points", np.zeros((0, 3)), "there are no points"),
        ("points", np.zeros((5, 0)), "there are no points"),
        ("target", np.zeros(4), "points and target disagree"),
        ("lower", np.zeros(4), "points, bounds and weights disagree"),
        ("upper", np.zeros(6), "points, bounds and weights disagree"),
        ("weights", np.zeros(6), "points, bounds and weights disagree"),
    ):
        with pytest.raises(ValueError, match=message):
            _core.HullSolver(**{**good, name: value})
    frozen = np.zeros(5)
    frozen.flags.writeable = False
    for name, value in (
        ("weights", frozen),
        ("points", np.zeros((5, 3), dtype=np.float32)),
        ("target", np.zeros(6)[::2]),
    ):
        with pytest.raises(TypeError):
            _core.HullSolver(**{**good, name: value})
