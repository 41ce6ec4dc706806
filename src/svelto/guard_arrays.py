"""The guard's arrays as native code reads them: limits with the allowance for rounding, or drawn in by it.

The guard itself (`guard`) has room for rounding, so that rows it was made of are inside. Its twin for rows in single
precision is drawn in by more than rounding can move a row: what that calls inside is inside. Its limits are those of
the core, with those of the guard beside them (`outer_*`); rows between the two are on the rim.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from svelto import _core
from svelto._typing import FloatArray
from svelto.engines.arrays import aligned, aligned_zeros, padded_rows
from svelto.engines.packing import add_scaling
from svelto.guard_grid import KNOWN, TOLERANCE

if TYPE_CHECKING:
    from svelto.guard import Guard

# Rounding: a scaled feature is within a few units in the last place (native code multiplies by 1 / scale, sparse
# scalers too), a sum of d terms within d of them. Relative to the numbers themselves, never to the spread of the data.
ROUNDING: Final = 2.0**-50
# The same in single precision, four units in the last place, and what may get lost where numbers or their squares are
# too small for it.
SINGLE_ROUNDING: Final = 2.0**-22
LEAST_SINGLE: Final = 2.0**-70
# Numbers beyond it are not looked at in single precision: their squares may be too large.
MOST_SINGLE: Final = 2.0**60
# What floats may lose of a place on a grid, in steps: known values must keep to it for sure.
MOST_GRID_LOSS: Final = (TOLERANCE - KNOWN) / 3.0
# A tolerance that every value keeps to: no grid is asked about.
NO_GRID: Final = 0.5
# What one operation in single precision may lose.
SINGLE_UNIT: Final = 2.0**-24


def native_fields(guard: Guard) -> dict[str, Any]:
    """Arrays as native code reads them, with the allowance for rounding."""
    lanes, (n_balls, d) = _core.GUARD_LANES, guard.centres.shape
    width = -(-d // lanes) * lanes

    def padded(values: Any, fill: float) -> FloatArray:
        array = aligned_zeros((width,), np.float64)
        array[:d], array[d:] = values, fill
        return array

    centres = aligned_zeros((n_balls, width), np.float64)
    centres[:, :d] = guard.centres
    columns = np.zeros((d, lanes))
    columns[:, :n_balls] = guard.centres.T
    rounding = ROUNDING * (d + 16)
    norms, radii = np.linalg.norm(guard.centres, axis=1), np.sqrt(guard.sq_radii)
    size = norms + radii  # no row of the ball is longer
    limit = (radii + rounding * size) ** 2
    # |x|^2 - 2 x.c loses digits where rows are longer than the ball is wide.
    shifted = np.full(lanes, -np.inf)
    shifted[:n_balls] = limit - norms**2 + 4.0 * rounding * size**2
    low, high = guard.low - ROUNDING * np.abs(guard.low), guard.high + ROUNDING * np.abs(guard.high)
    fields: dict[str, Any] = {
        "d": d,
        "n_balls": n_balls,
        "box_limit": float(guard.box_limit),
        "low": padded(low, -np.inf),
        "high": padded(high, np.inf),
        "centres": centres,
        "limit": limit,
        "columns": aligned(columns),
        "shifted_limit": shifted,
        "directions": _by_feature(guard.directions, np.float64),
        "offset": _lanes(guard.offset, np.float64),
        "direction_limit": _direction_limit(guard),
        "grid_tolerance": NO_GRID if guard.grids is None else TOLERANCE,
    }
    if guard.grids is not None:
        fields |= {"grid_scale": padded(guard.grids.scale, 0.0), "grid_origin": padded(guard.grids.origin, 0.0)}
    add_scaling(fields, guard.machine)
    scaling = guard.machine.scaling
    if scaling is not None:
        divides = scaling.form == "divide"
        with np.errstate(divide="ignore", over="ignore"):
            fields["factor"] = padded(1.0 / scaling.factor if divides else scaling.factor, 0.0)
        fields["before"] = padded(scaling.shift if divides else 0.0, 0.0)
        fields["after"] = padded(0.0 if divides else scaling.shift, 0.0)
    return fields


def single_fields(guard: Guard, shift: FloatArray) -> dict[str, Any]:
    """Box, grids, balls and directions for rows z = float32(x - shift), drawn in by more than rounding can move a row.

    A number is known to 2^-24 of itself, so edges move by a little of their own size, radii by a little of the longest
    row of the ball, and sums of d terms are compared with a little less than the limit. Most rows are in the first ball
    and nowhere far from the box; limits for these two are so small that no order of a sum finds otherwise.
    """
    d, lanes = len(guard.low), _core.GUARD_LANES
    rounding = SINGLE_ROUNDING * (d + 16)
    low, high, box_limit, outer_box = _single_box(guard, shift, rounding)
    columns, bias, slack, first_limit = _single_balls(guard, shift, rounding)
    directions, offset, direction_limit, outer_directions = _single_directions(guard, shift)
    scale, start, lost = _single_grids(guard, shift)
    if not lost <= MOST_GRID_LOSS:
        box_limit = outer_box = -1.0
    step = (1.0 - rounding) * math.sqrt(max(box_limit, 0.0) / d)  # if no feature is farther, the row is not too far
    sure_low, sure_high = _floats_above(low - step), -_floats_above(-high - step)
    columns[:, lanes], columns[:, lanes + 1] = sure_low, -sure_high
    gridded = guard.grids is not None and outer_box >= 0.0
    if gridded:
        # Edges and start plus x times these: how far x is beyond the edges, and its place on the grid.
        columns[:, lanes + 2], columns[:, lanes + 4 : lanes + 6], columns[:, lanes + 6] = start, (-1.0, 1.0), scale

    def padded(values: Any) -> Any:
        return padded_rows(values[None, :])[0]

    fields = {
        "low": padded(low),
        "high": padded(high),
        "box_limit": _float_below(box_limit),
        "outer_box_limit": _float_below(outer_box),
        "columns": aligned(columns, np.float32),
        "bias": aligned(bias, np.float32),
        "outer_slack": aligned(slack, np.float32),
        "sure_low": padded(sure_low),
        "sure_high": padded(sure_high),
        "first": padded(-0.5 * columns[:, 0]),
        "first_limit": _float_below(first_limit) if box_limit >= 0.0 else -1.0,
        "directions": _by_feature(directions, np.float32),
        "offset": _lanes(offset, np.float32),
        "direction_limit": _float_below(direction_limit),
        "outer_direction_limit": _float_below(outer_directions),
        "grid_tolerance": _float_below(TOLERANCE - lost) if gridded else NO_GRID,
        "sure_tolerance": _float_below(TOLERANCE - 2.0 * lost) if gridded else NO_GRID,
    }
    return fields | {"grid_scale": padded(scale), "grid_start": padded(start)} if gridded else fields


def _single_box(guard: Guard, shift: FloatArray, rounding: float) -> tuple[FloatArray, FloatArray, float, float]:
    """Edges of the box and its limits, of the core and of the guard, drawn in.

    Absent features of sparse rows are to cost nothing, so an interval that holds zero still does afterwards.
    Differences from zero whose squares vanish are then allowed for in the limit. A limit of zero has nothing to allow
    them from: there all edges are drawn in, and rows on one are not inside.
    """
    low, high = guard.low - shift, guard.high - shift
    if not max(np.abs(low).max(), np.abs(high).max()) < MOST_SINGLE:
        return np.zeros(len(low)), np.zeros(len(low)), -1.0, -1.0
    keeps_zero = (low <= 0.0) & (high >= 0.0) & (guard.box_limit > 0.0)
    low = low + SINGLE_ROUNDING * np.abs(low) + LEAST_SINGLE
    high = high - SINGLE_ROUNDING * np.abs(high) - LEAST_SINGLE
    low, high = np.where(keeps_zero, np.minimum(low, 0.0), low), np.where(keeps_zero, np.maximum(high, 0.0), high)
    outer = guard.box_limit
    limits = [outer if guard.core is None else guard.core.box_limit, outer]
    if outer > 0.0:
        limits = [min(at, MOST_SINGLE**2) * (1.0 - 2.0 * rounding) - len(low) * LEAST_SINGLE**2 for at in limits]
    return _floats_above(low), -_floats_above(-high), max(limits[0], 0.0), limits[1]


def _single_grids(guard: Guard, shift: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Scales, places of zero, and what floats may lose of a row's place, in steps: u = scale z + start."""
    d = len(shift)
    if guard.grids is None:
        return np.zeros(d), np.zeros(d), 0.0
    scale, margin = guard.grids.scale, math.sqrt(guard.box_limit)
    start = (shift - guard.grids.origin) * scale
    edges = np.maximum(np.abs(guard.low - shift), np.abs(guard.high - shift)) + margin
    lost = SINGLE_ROUNDING * 2.0 * (edges * scale + np.abs(start)) + LEAST_SINGLE * scale
    lost += ROUNDING * 16.0 * np.abs(shift) * scale
    return scale, start, float(lost.max())


def _single_balls(guard: Guard, shift: FloatArray, rounding: float) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """Columns -2c, constants |c|^2 - r^2 and slacks of the balls, and the limit of |z - c|^2 for the core's first.

    The constants are those of the core's balls, drawn in; the guard's reach as far beyond as the slack says. A row is
    in ball c where the constant + z.(z - 2c) <= 0, on its rim where that is no more than the slack. This loses digits
    where rows are longer than the ball is wide; a ball that the loss would swallow holds no row.
    """
    centres = (guard.centres - shift).astype(np.float32).astype(np.float64)
    n_balls, d = centres.shape
    columns, bias = np.zeros((d, _core.GUARD_COLUMNS)), np.full(_core.GUARD_LANES, np.inf)
    norms, radii = np.linalg.norm(centres, axis=1), np.sqrt(guard.sq_radii)
    size = norms + radii  # no row of the ball is longer
    sq_radii = np.maximum(radii - SINGLE_ROUNDING * size, 0.0) ** 2
    inner = sq_radii
    if guard.core is not None:
        inner = np.maximum(np.sqrt(guard.core.sq_radii) - SINGLE_ROUNDING * size, 0.0) ** 2
    allowance = rounding * (size**2 + LEAST_SINGLE)
    usable = (sq_radii > allowance) & (size < MOST_SINGLE)
    columns[:, :n_balls] = np.where(usable, -2.0 * centres.T, 0.0)
    bias[:n_balls] = np.where(usable, _floats_above(norms**2 - inner + allowance), np.inf)
    slack = np.zeros(_core.GUARD_LANES)
    slack[:n_balls] = np.where(usable, -_floats_above(inner - sq_radii), 0.0)
    return columns, bias, slack, float(inner[0] - 3.0 * allowance[0]) if usable[0] else -1.0


def _by_feature(directions: FloatArray, dtype: Any) -> np.ndarray[Any, Any]:
    """The directions side by side for each feature; nothing where there are none."""
    columns = aligned_zeros((directions.shape[1] if len(directions) else 0, _core.GUARD_LANES), dtype)
    columns[:, : len(directions)] = directions.T[: len(columns)]
    return columns


def _lanes(values: FloatArray, dtype: Any) -> np.ndarray[Any, Any]:
    lanes = aligned_zeros((_core.GUARD_LANES,), dtype)
    lanes[: len(values)] = values
    return lanes


def _direction_limit(guard: Guard) -> float:
    """The limit along the directions, with room for rounding here, in native code and in the scaling."""
    radius = math.sqrt(guard.direction_limit) + 4.0 * float(np.linalg.norm(_direction_rounding(guard)))
    return radius * radius * (1.0 + 16.0 * ROUNDING)


def _direction_rounding(guard: Guard) -> FloatArray:
    """What float64 may lose of a row inside box and balls along each direction."""
    d = len(guard.low)
    reach = _longest_steps(guard, np.zeros(d)) + np.abs(guard.offset)
    return np.asarray(ROUNDING * (d + 16) * reach)


def _longest_steps(guard: Guard, shift: FloatArray) -> FloatArray:
    """Bound of sum_k |p_jk (x_k - shift_k)| for rows inside: by the box, or by length as no row leaves all balls."""
    edges = np.maximum(np.abs(guard.low - shift), np.abs(guard.high - shift)) + math.sqrt(guard.box_limit)
    longest = float((np.linalg.norm(guard.centres - shift, axis=1) + np.sqrt(guard.sq_radii)).max())
    by_length = np.linalg.norm(guard.directions, axis=1) * longest
    return np.asarray(np.minimum(np.abs(guard.directions) @ edges, by_length))


def _single_directions(guard: Guard, shift: FloatArray) -> tuple[FloatArray, FloatArray, float, float]:
    """Directions, offsets of rows that `shift` is taken off, and the limits of the core and of the guard, drawn in.

    Limits are below 0 where floats cannot tell.

    A dot product is known to a little of the sum of its absolute terms, which box and balls bound.
    """
    directions, d = guard.directions, len(shift)
    if not guard.direction_limit < np.inf:
        most = float(np.finfo(np.float32).max)
        return directions[:0], guard.offset[:0], most, most
    offset = guard.offset - directions @ shift
    steps = _longest_steps(guard, shift) + np.abs(offset)
    lost = SINGLE_UNIT * (d + 16) * (steps + LEAST_SINGLE) + 4.0 * _direction_rounding(guard)
    lost += ROUNDING * (d + 16) * (np.abs(directions) @ np.abs(shift))
    outer = guard.direction_limit
    inner = outer if guard.core is None else guard.core.direction_limit
    radii = [min(math.sqrt(limit) - float(np.linalg.norm(lost)), MOST_SINGLE) for limit in (inner, outer)]
    if not (radii[1] > 0.0 and max(np.abs(directions).max(), np.abs(offset).max()) < MOST_SINGLE):
        return np.zeros_like(directions), np.zeros_like(offset), -1.0, -1.0
    limits = [radius * radius * (1.0 - SINGLE_ROUNDING) if radius > 0.0 else -1.0 for radius in radii]
    return directions, offset, limits[0], limits[1]


def _floats_above(values: FloatArray) -> FloatArray:
    """The smallest float32 numbers at or above the values."""
    floats = values.astype(np.float32)
    above: FloatArray = np.where(floats < values, np.nextafter(floats, np.float32(np.inf)), floats)
    return above.astype(np.float64)


def _float_below(value: float) -> float:
    """The largest float32 number at or below the value."""
    return -float(_floats_above(np.array([-value]))[0])
