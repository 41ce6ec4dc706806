"""Projections onto (reduced) convex hulls for tests: the slow definitions, what always holds, and random problems.

The definitions are the duality gap, and the quadratic program as given to an independent solver.
"""

from __future__ import annotations

import clarabel
import numpy as np
from numpy.testing import assert_allclose
from scipy import sparse

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


# -- problems ---------------------------------------------------------------------------------------------------------


KINDS = ["gauss", "binary", "grid", "low rank", "cond 1e3", "cond 1e6", "offset", "duplicates", "constant", "clusters"]
TARGETS = ["far", "outside", "edge", "inside", "face"]


def random_problem(kind, seed):
    """Points, target and bounds: up to 1,200 points, up to 100 features."""
    rng = np.random.default_rng([KINDS.index(kind), seed])
    d = int(rng.choice([1, 2, 3, 5, 10, 20, 50, 100]))
    # The interior-point method takes seconds for thousands of points of 100 features.
    n = int(np.exp(rng.uniform(np.log([1, 300][seed % 2]), np.log(1200 if d <= 20 else 600))))
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


def slab(n, d, seed=0):
    """Points with first feature 0 around the origin, more above: the hull's face below is known."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n, d))
    points[: n // 2, 0] = 0.0
    points[n // 2 :, 0] = np.abs(points[n // 2 :, 0])
    return points
