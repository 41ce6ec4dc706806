"""How the projection onto a hull is used: threads, starts, interrupts, any array, and what is refused."""

from __future__ import annotations

import signal
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hull_cases import INF, check_promises
from svelto import _core
from svelto.training import hull_projection
from svelto.training.hull_projection import project_onto_hull

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
