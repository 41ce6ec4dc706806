"""How wide a guard is made: ordinary rows pass it, strangers do not.

Grids are asked about every row, so a guard has them only where it needs them: where rows that are drawn at random from
its box, the plainest strangers, would pass it without.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from svelto._inputs import Query
from svelto._typing import FloatArray
from svelto.guard import LEAST_DIRECTION_LIMIT, Core, Guard
from svelto.machine import KernelMachine
from svelto.oracle import Neighbourhoods

# Rows that are held back from a first guard, to see how far ordinary rows are from it: a share of all, at most so many.
GUARD_SHARE: Final = 0.2
GUARD_ROWS: Final = 10_000
# ... and the share of them that its limits are raised for: nearly all, but wild ones among many are left out.
GUARD_QUANTILE: Final = 0.9999
# Share of them that keeps to each limit of its core, and how many times the error scales of hinges count on the rim:
# these extrapolate, and few rows have shown how well.
CORE_QUANTILE: Final = 0.999
RIM_FACTOR: Final = 3.0
# The core's balls have at least this share of the radii that hold all rows: copies say nothing about others.
LEAST_RATIO: Final = 0.5
# Rows on an edge of the box are ordinary (categories are nowhere else), and in single precision they look the same as
# rows beyond it. So this share of the box's diagonal, eight units in the last place, is never too far.
GUARD_EDGE: Final = 2.0**-20
# Stand-ins lie about as far from the rows as these from each other, and the promise is checked on them: so the box may
# be left by this quantile of the distances between neighbours, among at most so many rows. In many dimensions that is
# more than the whole box, so it may not be more than this share of a typical feature's range.
MARGIN_QUANTILE: Final = 0.9
MARGIN_ROWS: Final = 20_000
MARGIN_SHARE: Final = 0.2
# Data drift a little between training and use. A score hardly bends within this share of the kernel's width, so box and
# balls may be left by as much, balls by no more than this share of their radius; directions have such room as well.
SMOOTH_SHARE: Final = 0.07
MOST_STRETCH: Final = 0.25
DIRECTION_ROOM: Final = 1.5
# Rows drawn from the box, and the share of them that a guard without grids keeps out if it needs none.
PROBES: Final = 1000
PROBES_OUTSIDE: Final = 0.999


def guard_for(
    machine: KernelMachine,
    build: FloatArray,
    seed: int,
    n_jobs: int | None = None,
    near: Neighbourhoods | None = None,
) -> Guard:
    """The guard of the stages that are built on these rows; `near` is their neighbourhoods, where they are known.

    How far ordinary rows are from a guard is seen on a fifth of the rows, which a first one is made without: the box is
    left by so much, the radii are stretched and the limit along the directions is raised so far, that nearly all of
    them are inside. The box may be left by as much as stand-ins do. Smaller limits, each of which all but a thousandth
    of them keep to, make the core. Features get the grids that made-up rows keep to (`near`), if all rows do.
    """
    n = len(build)
    held = np.zeros(n, dtype=bool)
    size = min(max(int(GUARD_SHARE * n), 1), GUARD_ROWS)
    held[np.random.default_rng([seed, 4]).choice(n, size=size, replace=False)] = True
    first = Guard.around(machine, [build[~held]], seed, n_jobs)
    new = build[held]
    edge = GUARD_EDGE**2 * float(((first.high - first.low) ** 2).sum())
    smooth = SMOOTH_SHARE / math.sqrt(machine.kernel.gamma) if machine.kernel.name == "rbf" else 0.0
    near = near or Neighbourhoods(build, seed, n_jobs)
    margin = max(_stand_in_margin(near, seed), smooth)
    box_limit = max(_nearly_all(first.box_distances(new)), edge, margin * margin)
    stretch = _nearly_all(np.maximum(first.ball_ratios(new), 1.0))
    if not np.isfinite(stretch):
        stretch = 1.0  # all balls are points: copies of a few rows
    radii = np.sqrt(first.sq_radii) * stretch
    core = _core_of(first, new, edge)
    guard = replace(
        first,
        box_limit=min(box_limit, float(np.finfo(np.float64).max)),
        sq_radii=(radii + np.minimum(MOST_STRETCH * radii, smooth)) ** 2,
        direction_limit=DIRECTION_ROOM * max(first.direction_limit, _nearly_all(first.direction_sums(new))),
    ).including([new])
    guard = replace(guard, core=_at_most(core, guard))
    if near.blocks.grids is None or _shuts_out_noise(guard, seed, n_jobs):
        return guard
    # They were found on a sample of the rows: including all of them drops what others leave.
    return replace(guard, grids=near.blocks.grids).including([build])


def _shuts_out_noise(guard: Guard, seed: int, n_jobs: int | None) -> bool:
    """Whether hardly a row that is drawn at random from the box is inside."""
    rng = np.random.default_rng([seed, 6])
    probes = guard.low + rng.random((PROBES, len(guard.low))) * (guard.high - guard.low)
    return bool(guard(Query(probes), n_jobs).mean() >= PROBES_OUTSIDE)


def _stand_in_margin(near: Neighbourhoods, seed: int) -> float:
    """How far stand-ins may leave the box: a distance between neighbours, but a small part of the box."""
    X = near.X
    n = len(X)
    low, high = X.min(axis=0), X.max(axis=0)
    widths = (high - low)[high > low]
    size = float(widths.max(initial=0.0))
    if n < 2 or not 0.0 < size < np.inf:
        return 0.0
    rows = np.random.default_rng([seed, 5]).permutation(n)[:MARGIN_ROWS]
    apart = (X[rows] - X[near.neighbours[rows, 0]]) / size  # in a unit whose squares are finite
    to_nearest = np.sqrt(np.einsum("ij,ij->i", apart, apart))
    return min(float(np.quantile(to_nearest, MARGIN_QUANTILE)) * size, MARGIN_SHARE * float(np.median(widths)))


def _core_of(first: Guard, new: FloatArray, edge: float) -> Core:
    """Limits that all but a thousandth of the new rows keep to, each of them; none too small for single precision."""
    ratio = max(_nearly_all(first.ball_ratios(new), CORE_QUANTILE), LEAST_RATIO)
    along = _nearly_all(first.direction_sums(new), CORE_QUANTILE)
    return Core(
        max(_nearly_all(first.box_distances(new), CORE_QUANTILE), edge),
        first.sq_radii * ratio**2 if np.isfinite(ratio) else np.full(len(first.sq_radii), np.inf),
        max(along, LEAST_DIRECTION_LIMIT) if len(first.directions) else np.inf,
        RIM_FACTOR,
    )


def _at_most(core: Core, guard: Guard) -> Core:
    """The core without what is outside the guard."""
    return Core(
        min(core.box_limit, guard.box_limit),
        np.minimum(core.sq_radii, guard.sq_radii),
        min(core.direction_limit, guard.direction_limit),
        core.factor,
    )


def _nearly_all(values: FloatArray, share: float = GUARD_QUANTILE) -> float:
    return float(np.quantile(values, share, method="higher"))
