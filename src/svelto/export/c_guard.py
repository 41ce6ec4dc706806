"""The guard of a statistical promise in C (`guard`): box, grids, balls, directions. A row outside goes to the sum.

Where hinges take more caution on its rim, it also says whether a row is in its core.
"""

from __future__ import annotations

import math

import numpy as np

from svelto._typing import FloatArray
from svelto.export.c_parts import Part, Setting, render
from svelto.export.c_tables import floats
from svelto.guard import Guard
from svelto.guard_grid import TOLERANCE

CODE = """
/* Whether a row is like those that the stages were made for. */
static inline int ${q}_knows(const float *u) {
    $real sum = 0, t;
    int k, j;
    for (k = 0; k < $d; ++k) {
        t = ($real)u[k] < ($real)${q}_low[k] ? ($real)${q}_low[k] - ($real)u[k] : ($real)u[k] - ($real)${q}_high[k];
        if (!(t <= 0)) sum += t * t;
    }
    if (!(sum <= ($real)$box_limit)) return 0;
$grids$directions    for (j = 0; j < $n_balls; ++j) {
        for (k = 0, sum = 0; k < $d; ++k) {
            t = ($real)u[k] - ($real)${q}_ball[j * $d + k];
            sum += t * t;
        }
        if (sum <= ($real)${q}_limit[j]) return 1;
    }
    return 0;
}
"""
WITH_CORE = """
/* Whether a row is like those that the stages were made for: 2 if it is where most of them are, 1 if farther out. */
static inline int ${q}_knows(const float *u) {
    $real sum = 0, t;
    int k, j, most = 2, found = 0;
    for (k = 0; k < $d; ++k) {
        t = ($real)u[k] < ($real)${q}_low[k] ? ($real)${q}_low[k] - ($real)u[k] : ($real)u[k] - ($real)${q}_high[k];
        if (!(t <= 0)) sum += t * t;
    }
    if (!(sum <= ($real)$box_limit)) return 0;
    if (!(sum <= ($real)$core_box_limit)) most = 1;
$grids$directions    for (j = 0; j < $n_balls; ++j) {
        for (k = 0, sum = 0; k < $d; ++k) {
            t = ($real)u[k] - ($real)${q}_ball[j * $d + k];
            sum += t * t;
        }
        if (sum <= ($real)${q}_limit[j]) found = sum <= ($real)${q}_core[j] ? most : 1;
        if (found == most) break;
    }
    return found;
}
"""
# Rows near the box have places on the grids that a long holds.
GRIDS = """
    for (k = 0; k < $d; ++k) {
        t = ($real)u[k] * ($real)${q}_scale[k] + ($real)${q}_start[k];
        t -= ($real)(long)(t < 0 ? t - ($real)0.5 : t + ($real)0.5);
        if (t > ($real)$tolerance || t < -($real)$tolerance) return 0;
    }
"""
DIRECTIONS = """
    for (j = 0, sum = 0; j < $n_directions; ++j) {
        t = -($real)${q}_offset[j] + ${p}_along(u, ${q}_direction + j * $d);
        sum += t * t;
    }
    if (!(sum <= ($real)$direction_limit)) return 0;
"""
CORE_DIRECTIONS = """
    if (!(sum <= ($real)$core_direction_limit)) most = 1;
"""
ALONG = """
static inline $real ${p}_along(const float *u, const float *w) {
    $real sum = 0;
    int k;
    for (k = 0; k < $d; ++k) sum += ($real)u[k] * ($real)w[k];
    return sum;
}
"""
# Tables are single floats; rows that the guard was made of shall stay inside. Nobody has a right to its core, which is
# drawn in by as much: what is in doubt is on the rim.
ROOM = 2.0**-20


def guard_part(setting: Setting, prefix: str, guard: Guard, centre: FloatArray, *, rim: bool = False) -> Part:
    """``q_knows``; with `rim` it is told apart from the core."""
    low, high = guard.low - centre, guard.high - centre
    balls = guard.centres - centre
    size = np.linalg.norm(balls, axis=1) + np.sqrt(guard.sq_radii)
    tables = [
        floats(f"{prefix}_low", low - ROOM * np.abs(low)),
        floats(f"{prefix}_high", high + ROOM * np.abs(high)),
        floats(f"{prefix}_ball", balls),
        floats(f"{prefix}_limit", (np.sqrt(guard.sq_radii) + ROOM * size) ** 2),
    ]
    code, grids, directions = "", "", ""
    core = guard.core if rim else None
    core_limits: dict[str, str] = {}
    if core is not None:
        tables.append(floats(f"{prefix}_core", np.maximum(np.sqrt(core.sq_radii) - ROOM * size, 0.0) ** 2))
        # The edges of the box have room too.
        doubt = 2.0 * ROOM * float(np.linalg.norm(np.maximum(np.abs(low), np.abs(high))))
        core_limits["core_box_limit"] = repr(max(math.sqrt(core.box_limit) - doubt, 0.0) ** 2)
    if guard.grids is not None:
        tables += [
            floats(f"{prefix}_scale", guard.grids.scale),
            floats(f"{prefix}_start", (centre - guard.grids.origin) * guard.grids.scale),
        ]
        grids = render(GRIDS, setting, prefix, tolerance=repr(TOLERANCE))
    if len(guard.directions):
        tables += [
            floats(f"{prefix}_direction", guard.directions),
            floats(f"{prefix}_offset", guard.offset - guard.directions @ centre),
        ]
        code = render(ALONG, setting)
        directions = render(
            DIRECTIONS,
            setting,
            prefix,
            n_directions=len(guard.directions),
            direction_limit=repr(float(guard.direction_limit * (1.0 + ROOM))),
        )
        if core is not None:
            inner = repr(float(guard.in_single_precision(centre, rim=True)["direction_limit"]))
            directions += render(CORE_DIRECTIONS, setting, core_direction_limit=inner)
    code += render(
        CODE if core is None else WITH_CORE,
        setting,
        prefix,
        grids=grids,
        directions=directions,
        n_balls=len(balls),
        box_limit=repr(float(guard.box_limit * (1.0 + ROOM))),
        **core_limits,
    )
    return Part(prefix, tables, code, guard)
