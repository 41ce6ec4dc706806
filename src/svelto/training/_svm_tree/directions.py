"""Where a node's hyperplane may point: the node problems of paper S2, and what is tried when they are of no use.

Labels are -1 and +1. A class is *hard* where no row of it may lie on the side that is peeled off. Directions have any
length and point towards +1. Every function gives None where its problem has the zero solution only.

- `h1_direction`: Problem 4.3. The soft class's weights are fixed, so w runs from the soft class's centroid to the
  nearest point of the hard class's convex hull (`hull_projection.py`). With the centroid inside the hull that point is
  the centroid itself (Corollary 1); then the hull is reduced (section 4.3.2).
- `c_svm_direction`: Problem 4.2, a linear SVM with a large cost on the hard class, lowered until w is not zero.
- `perpendiculars`: section 4.3.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from sklearn.svm import SVC, LinearSVC

from svelto._typing import FloatArray, IndexArray
from svelto.training.hull_projection import project_onto_hull

# The soft class has cost 1, the hard class this much.
HARD_COST: Final = 1000.0
# The paper's f: what the hard class's bound is divided by as long as the solution is zero.
HULL_SHRINKING: Final = 2.0
COST_SHRINKING: Final = 10.0
# Scores of an SVM are in units of the margin: a spread below this is the zero solution.
ZERO_SPREAD: Final = 1e-3
# LIBSVM solves the problem itself, with a bias that costs nothing; its time grows with the square of the rows. Beyond
# this many liblinear solves it with squared slacks, in the primal: no random order, and a fraction of the time.
LIBSVM_ROWS: Final = 2000
LIBSVM_STEPS: Final = 20_000
LIBLINEAR_STEPS: Final = 100
N_PRINCIPAL: Final = 3
SUBSPACE_ROUNDS: Final = 4


def h1_direction(
    X: FloatArray, y: IndexArray, weight: FloatArray, hard: int, start: FloatArray | None, n_threads: int = 1
) -> tuple[FloatArray | None, FloatArray | None]:
    """From the soft class's centroid towards the hull of the hard class, or the other way for hard = -1.

    Parameters
    ----------
    X, y, weight : ndarray
        The rows a node has to do with.
    hard : {-1, 1}
        The hard class.
    start : ndarray, optional
        Weights of the hard rows in the parent's solution.
    n_threads : int
        Threads of the solver.

    Returns
    -------
    direction : ndarray or None
    weights : ndarray or None
        Of the hard rows; where the next node may start. None after the hull was reduced.
    """
    is_hard = y == hard
    points = X[is_hard]
    centroid = np.average(X[~is_hard], axis=0, weights=weight[~is_hard])
    found = project_onto_hull(points, centroid, start=start, n_threads=n_threads)
    if found.direction is not None:
        return hard * found.direction, found.weights
    # The centroid is a mean of hard rows. Rows with smaller and smaller bounds give it up in the end: with the smallest
    # bounds there is nothing left but the hard class's own centroid.
    share = weight[is_hard] / weight[is_hard].sum()
    largest = float((found.weights / share).max())
    while largest / HULL_SHRINKING > 1.0:
        largest /= HULL_SHRINKING
        found = project_onto_hull(points, centroid, upper=np.minimum(largest * share, 1.0), n_threads=n_threads)
        if found.direction is not None:
            return hard * found.direction, None
    direction = share @ points - centroid
    spread = np.abs(points - centroid).max(initial=0.0)
    return (hard * direction if np.abs(direction).max(initial=0.0) > 1e-9 * spread else None), None


def c_svm_direction(X: FloatArray, y: IndexArray, weight: FloatArray, hard: int) -> FloatArray | None:
    """The linear SVM that pays `HARD_COST` for a mistake in the hard class."""
    cost = HARD_COST
    while cost >= 1.0:
        costs = weight * np.where(y == hard, cost, 1.0)
        direction, _ = linear_svm(X, y, costs, 1.0, hinge=len(X) <= LIBSVM_ROWS)
        if np.ptp(X @ direction) > ZERO_SPREAD:
            return direction
        cost /= COST_SHRINKING
    return None


def linear_svm(X: FloatArray, y: IndexArray, weight: FloatArray, C: float, hinge: bool) -> tuple[FloatArray, float]:
    """Plane and constant of LIBSVM's linear SVM, or of liblinear's with squared slacks; positive towards +1."""
    if hinge:
        machine = SVC(kernel="linear", C=C, max_iter=LIBSVM_STEPS).fit(X, y, weight)
        return np.asarray(machine.dual_coef_[0] @ machine.support_vectors_), float(machine.intercept_[0])
    machine = LinearSVC(C=C, dual=False, max_iter=LIBLINEAR_STEPS).fit(X, y, weight)
    return np.asarray(machine.coef_[0]), float(machine.intercept_[0])


def perpendiculars(X: FloatArray, y: IndexArray, weight: FloatArray, direction: FloatArray) -> Iterator[FloatArray]:
    """Directions at right angles to one: between the classes' centroids, and along the widest spreads of all rows."""
    length = np.linalg.norm(direction)
    if X.shape[1] == 1 or length == 0.0:
        return
    unit = direction / length
    share = weight / weight.sum()
    wide = (X - share @ X) * np.sqrt(share)[:, None]
    scale = float(np.linalg.norm(wide))
    ahead, behind = y == 1, y == -1
    between = np.average(X[ahead], axis=0, weights=weight[ahead]) - np.average(
        X[behind], axis=0, weights=weight[behind]
    )
    between -= unit * (unit @ between)
    if np.linalg.norm(between) > 1e-9 * scale:
        yield between
    yield from _principal(wide, unit, 1e-6 * scale)


def _principal(wide: FloatArray, unit: FloatArray, least: float) -> Iterator[FloatArray]:
    """About the directions of the widest spreads across `unit`, by subspace iteration; those above `least`."""
    basis = np.random.default_rng(0).normal(size=(wide.shape[1], min(2 * N_PRINCIPAL, wide.shape[1] - 1)))
    # Not the basis but the rows lose `unit`: a basis that has more directions than the rows is filled up with anything.
    across = wide - np.outer(wide @ unit, unit)
    for _ in range(SUBSPACE_ROUNDS):
        basis, _ = np.linalg.qr(across.T @ (across @ basis))
    _, spreads, turns = np.linalg.svd(across @ basis, full_matrices=False)
    for spread, turn in zip(spreads[:N_PRINCIPAL], turns[:N_PRINCIPAL], strict=True):
        if spread > least:
            yield basis @ turn
