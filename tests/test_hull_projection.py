"""The projection onto a (reduced) convex hull, against an independent solver and the conditions of an optimum."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hull_cases import INF, KINDS, check_promises, quadratic_program, random_problem
from svelto.training.hull_projection import project_onto_hull


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
    points, target = rng.normal(size=(1000, 120)), np.r_[7.0, np.zeros(119)]
    found = project_onto_hull(points, target, upper=upper, tol=1e-10)
    check_promises(found, points, target, upper=upper, tol=1e-10)
    _, w = quadratic_program(points, target, np.zeros(1000), np.full(1000, upper))
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
