"""The nearest point of a (reduced) convex hull: the H1-SVM of paper S2, solved as a projection.

The H1-SVM (S2, Problem 4.3) separates a hard class, none of whose rows may be on the wrong side, from a soft class. In
its dual every soft row has the multiplier 1, so with m soft rows and lambda_i = alpha_i / m what is left is

    minimise 1/2 ||w||^2,  w = sum_i lambda_i x_i - target,  sum lambda = 1,  lower_i <= lambda_i <= upper_i

over the hard rows x_i, with the soft class's centre of gravity as target: its projection onto the hard class's convex
hull, reduced where upper bounds are below 1 (C_i / m for the paper's C_i). The paper's w is m times ours.

Invariant: `lower_bound` <= distance of the target from the hull <= `distance`, up to rounding. "optimal" means that the
two are close, and bounds the error of the direction itself: ||w - w_exact||^2 <= gap ||w||^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final

import numpy as np

from svelto import _core
from svelto._options import check_positive, check_whole
from svelto._typing import FloatArray

# Bounds that miss a feasible sum by less than this do so by rounding: n times 1 / n is rarely 1.
SUM_ROUNDING: Final = 1e-10
# Python looks for Ctrl-C between native calls; one call starts no pass after this many seconds.
CALL_SECONDS: Final = 0.1
RUNNING: Final = 0
STATUS: Final = {RUNNING: "stopped", 1: "optimal", 2: "zero", 3: "stopped"}


@dataclass(frozen=True, eq=False)
class HullProjection:
    """What `project_onto_hull` found.

    Attributes
    ----------
    weights : ndarray of shape (n_points,)
        Feasible weights of the points; they sum to 1 up to rounding.
    direction : ndarray of shape (n_features,) or None
        From the target to its projection. None if the status is "zero": what is left of it then is rounding.
    distance : float
        Length of that vector: at least the distance of the target from the hull.
    gap : float
        Relative duality gap: what the squared distance may be too large by, as a share of it. At most `tol` if the
        status is "optimal", and without meaning if it is "zero".
    lower_bound : float
        At most the distance of the target from the hull; where positive, proof that the target lies outside.
    n_steps, n_passes : int
        Steps of the solver, and passes over all points.
    status : {"optimal", "zero", "stopped"}
        "zero": the target lies in the hull, or so close to it that no direction can be told. "stopped": `max_passes`
        or rounding ended the search above `tol`; `gap` says how far it came.
    """

    weights: FloatArray
    direction: FloatArray | None
    distance: float
    gap: float
    lower_bound: float
    n_steps: int
    n_passes: int
    status: str


def project_onto_hull(
    points: Any,
    target: Any,
    *,
    lower: Any = None,
    upper: Any = None,
    start: Any = None,
    tol: float = 1e-6,
    zero_tol: float = 1e-7,
    max_passes: int = 2000,
    n_threads: int = 1,
) -> HullProjection:
    """Project a target onto the (reduced) convex hull of some points.

    A decomposition method: a pass over all points finds those that violate the optimality conditions, and the problem
    is solved in the weights of a few hundred of them, first by steps of two weights (S2, section 4.1), then, where the
    points are ill-conditioned, exactly by an active-set method. The result does not depend on `n_threads`.

    Parameters
    ----------
    points : array-like of shape (n_points, n_features)
        Points of the hull, finite; float64 in C order is used without a copy.
    target : array-like of shape (n_features,)
        What is projected, finite.
    lower, upper : float or array-like of shape (n_points,), optional
        Bounds of the weights; 0 and no bound where not given. ``upper=1 / n_points`` leaves the mean alone.
    start : array-like of shape (n_points,), optional
        Weights to start from, those of a similar problem. Where they are not feasible, what they have above `lower` is
        scaled to the right sum and cut at `upper`; what is missing then goes to the points that lie furthest towards
        the target, as much as each may take. (The nearest feasible weights would give a little to every point.)
    tol : float, default=1e-6
        Relative gap that ends the search. The direction then is exact to sqrt(tol), relative to its length, at worst.
    zero_tol : float, default=1e-7
        Distances up to this share of the points' median distance from the target count as zero. So do distances
        within the rounding of the target, 64 units in its last place.
    max_passes : int, default=2000
        Limit of the passes.
    n_threads : int, default=1
        Threads for the passes.

    Returns
    -------
    HullProjection

    Raises
    ------
    ValueError
        No weights can satisfy the bounds, or an argument has a wrong shape or value.

    Examples
    --------
    >>> from svelto.training.hull_projection import project_onto_hull
    >>> found = project_onto_hull([[1.0, -1.0], [1.0, 3.0], [4.0, 0.0]], [0.0, 0.0])
    >>> found.status, found.weights, found.direction
    ('optimal', array([0.75, 0.25, 0.  ]), array([1., 0.]))
    >>> project_onto_hull([[1.0, -1.0], [1.0, 3.0], [4.0, 0.0]], [2.0, 0.5]).status
    'zero'
    """
    points = _checked_array("points", points, 2)
    target = _checked_array("target", target, 1)
    n_points, n_features = points.shape
    if n_points == 0 or n_features == 0:
        raise ValueError(f"points has shape {points.shape}; expected at least one point and one feature.")
    if len(target) != n_features:
        raise ValueError(f"target has {len(target)} features; the points have {n_features}.")
    low = _checked_bound("lower", lower, 0.0, n_points)
    high = _checked_bound("upper", upper, math.inf, n_points)
    _check_box(low, high)
    check_positive("tol", tol)
    if isinstance(zero_tol, bool) or not isinstance(zero_tol, Real) or not 0.0 <= float(zero_tol) < math.inf:
        raise ValueError(f"zero_tol is {zero_tol!r}; expected a number of at least 0.")
    check_whole("max_passes", max_passes, 1)
    check_whole("n_threads", n_threads, 1)

    weights = None if start is None else _checked_start(start, points, target, low, high)
    has_start = weights is not None
    if weights is None:
        weights = np.empty(n_points)
    try:
        solver = _core.HullSolver(
            points, target, low, high, weights, has_start, float(tol), float(zero_tol), int(n_threads)
        )
    except OverflowError:
        largest = float(max(np.abs(points).max(), np.abs(target).max()))
        raise ValueError(
            f"The largest value is {largest:.3g}: squared distances overflow. Scale the features."
        ) from None
    status, n_passes = RUNNING, 0
    while status == RUNNING and n_passes < max_passes:
        status, sq_norm, gap, n_steps, n_passes = solver.advance(max_passes - n_passes, CALL_SECONDS, int(n_threads))
    direction = np.empty(n_features)
    solver.direction(direction)
    distance = math.sqrt(sq_norm)
    share = max(gap, 0.0) / sq_norm if sq_norm > 0.0 else math.inf
    return HullProjection(
        weights=weights,
        direction=None if STATUS[status] == "zero" else direction,
        distance=distance,
        gap=share,
        lower_bound=distance * (1.0 - min(share, 1.0)),
        n_steps=n_steps,
        n_passes=n_passes,
        status=STATUS[status],
    )


def _checked_array(name: str, values: Any, ndim: int) -> FloatArray:
    array = np.ascontiguousarray(values, dtype=np.float64)
    if np.ndim(values) != ndim:
        expected = "(n_points, n_features)" if ndim == 2 else "(n_features,)"
        raise ValueError(f"{name} has shape {np.shape(values)}; expected {expected}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds {array[~np.isfinite(array)][0]}; expected finite numbers.")
    return array


def _checked_bound(name: str, values: Any, default: float, n_points: int) -> FloatArray:
    array = np.asarray(default if values is None else values, dtype=np.float64)
    if array.shape not in ((), (n_points,)):
        raise ValueError(f"{name} has shape {array.shape}; expected a number, or one for each of {n_points} points.")
    if np.isnan(array).any() or (name == "lower" and np.isinf(array).any()):
        raise ValueError(f"{name} holds {array[~np.isfinite(array)].flat[0]}; expected numbers.")
    return np.ascontiguousarray(np.broadcast_to(array, n_points))


def _check_box(lower: FloatArray, upper: FloatArray) -> None:
    if (lower > upper).any():
        i = int(np.argmax(lower > upper))
        raise ValueError(f"lower[{i}] is {lower[i]:.6g}, above upper[{i}], {upper[i]:.6g}.")
    if lower.sum() > 1.0 + SUM_ROUNDING:
        raise ValueError(f"lower sums to {lower.sum():.6g}; weights that sum to 1 cannot all be above it.")
    if upper.sum() < 1.0 - SUM_ROUNDING:
        raise ValueError(
            f"upper sums to {upper.sum():.6g}; weights that sum to 1 cannot all be below it. The mean alone is left "
            f"at upper = {1 / len(upper):.6g}."
        )


def _checked_start(
    start: Any, points: FloatArray, target: FloatArray, lower: FloatArray, upper: FloatArray
) -> FloatArray | None:
    """Feasible weights from those given; None where they say nothing."""
    weights: FloatArray = np.array(start, dtype=np.float64)
    if weights.shape != lower.shape:
        raise ValueError(f"start has shape {weights.shape}; expected one weight for each of {len(lower)} points.")
    if not np.isfinite(weights).all():
        raise ValueError(f"start holds {weights[~np.isfinite(weights)][0]}; expected finite numbers.")
    weights = np.clip(weights, lower, upper)
    above = weights - lower
    if abs(weights.sum() - 1.0) <= SUM_ROUNDING * 1e-3:
        return weights
    if not above.sum() > 0.0:
        return None
    weights = np.clip(lower + above * ((1.0 - lower.sum()) / above.sum()), lower, upper)
    missing = 1.0 - weights.sum()
    if missing > 0.0:
        w = (weights / weights.sum()) @ points - target
        order = np.argsort(points @ w, kind="stable")
        room = (upper - weights)[order]
        before = np.concatenate([[0.0], np.cumsum(np.minimum(room, missing))[:-1]])
        weights[order] += np.clip(missing - before, 0.0, room)
        weights = np.clip(weights, lower, upper)
    return weights
