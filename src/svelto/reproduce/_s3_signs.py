"""Kernel evaluations until the sign of every binary machine is certain: what the paper counts.

A vote of pairs needs signs alone, and `DistanceLists(shared=False)` counts them. For one against the rest the label is
the largest score, which takes more than signs where none or several are positive, and `DistanceLists` goes on until the
label is certain. The paper stops at the signs. So they are counted here, along the same lists, by conditions (10) and
(11), or (16) and (17), in plain float64: a count, not a promise.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import joblib
import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from svelto._typing import FloatArray
from svelto.engines.distance_lists import DistanceLists

Counts: TypeAlias = NDArray[np.int64]

BLOCK_ROWS: Final = 128


def sign_evaluations(lists: DistanceLists, X: FloatArray, n_jobs: int) -> tuple[Counts, Counts]:
    """Evaluations of every row, added up over the machine's scores; one row of `dual_coef` a score.

    The lists' first vectors count once a row in the first result, as `DistanceLists` has it: choosing the list takes
    their distances. In the second they count once more for every score that adds them, which leaves the binary
    machines nothing in common but the choice of the list.
    """
    vectors = lists.machine.support_vectors
    nearest = cdist(X, vectors[lists.firsts_])
    chosen = nearest.argmin(axis=1)
    found = np.full((2, len(X)), lists.n_lists_, dtype=np.int64)

    def walk(at: int, rows: NDArray[np.intp]) -> None:
        distance = cdist(X[rows], vectors[lists.order_[at]])
        with np.errstate(over="ignore", invalid="ignore"):  # a bound that overflows settles nothing
            found[:, rows] += _walk_list(lists, at, distance, nearest[rows, at])

    tasks = []
    for at in range(lists.n_lists_):
        rows = np.flatnonzero(chosen == at)
        tasks += [(at, rows[start : start + BLOCK_ROWS]) for start in range(0, len(rows), BLOCK_ROWS)]
    joblib.Parallel(n_jobs, backend="threading")(joblib.delayed(walk)(*task) for task in tasks)
    return found[0], found[1]


def _walk_list(lists: DistanceLists, at: int, distance: FloatArray, near: FloatArray) -> Counts:
    """Evaluations of some rows along one list; `distance` to its vectors in order, `near` to the first of them."""
    machine = lists.machine
    gamma, squared = machine.kernel.gamma, machine.kernel.name == "rbf"
    values = np.exp(-gamma * (distance**2 if squared else distance))
    is_first = np.isin(lists.order_[at], lists.firsts_)
    found = np.zeros((2, len(distance)), dtype=np.int64)
    for weights, intercept in zip(machine.dual_coef[:, lists.order_[at]], machine.intercept, strict=True):
        own = np.flatnonzero(weights)
        if len(own) == 0:
            continue
        weight, apart = weights[own], lists.distance_[at][own]
        scaled = weight if squared else weight * np.exp(-gamma * apart)
        plus, minus = _left(np.maximum(scaled, 0.0)), _left(np.maximum(-scaled, 0.0))
        if squared:
            upper = np.exp(-gamma * np.maximum(0.0, apart - near[:, None]) ** 2)
            lower = np.exp(-gamma * (apart[-1] + near[:, None]) ** 2)
        else:
            upper, lower = np.exp(gamma * near[:, None]), np.exp(-gamma * near[:, None])
        # Column n: n vectors have been added, those from n on are left.
        partial = np.full((len(distance), len(own)), intercept)
        partial[:, 1:] += np.cumsum(values[:, own[:-1]] * weight[:-1], axis=1)
        least, most = partial + lower * plus - upper * minus, partial + upper * plus - lower * minus
        # The paper also wants the partial sum itself on that side.
        certain = ((least > 0.0) & (partial >= 0.0)) | ((most < 0.0) & (partial <= 0.0))
        steps = np.where(certain.any(axis=1), certain.argmax(axis=1), len(own))
        found[0] += np.append(0, np.cumsum(~is_first[own]))[steps]
        found[1] += steps
    return found


def _left(terms: FloatArray) -> FloatArray:
    """Sums of the terms from each position to the end."""
    sums: FloatArray = np.cumsum(terms[::-1])[::-1]
    return sums
