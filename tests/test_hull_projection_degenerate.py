"""Projections onto a hull at their limits: a target on or inside it, few, equal, constant and far points."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hull_cases import check_promises, slab
from svelto.training.hull_projection import project_onto_hull

# -- zero, and close to it --------------------------------------------------------------------------------------------


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
