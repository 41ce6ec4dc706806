"""The guard of a statistical promise in C (`guard`): box, grids, balls, directions. A row outside goes to the sum."""

from __future__ import annotations

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
ALONG = """
static inline $real ${p}_along(const float *u, const float *w) {
    $real sum = 0;
    int k;
    for (k = 0; k < $d; ++k) sum += ($real)u[k] * ($real)w[k];
    return sum;
}
"""
# Tables are single floats; rows that the guard was made of shall stay inside.
ROOM = 2.0**-20


def guard_part(setting: Setting, prefix: str, guard: Guard, centre: FloatArray) -> Part:
    """``q_knows``."""
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
    code += render(
        CODE,
        setting,
        prefix,
        grids=grids,
        directions=directions,
        n_balls=len(balls),
        box_limit=repr(float(guard.box_limit * (1.0 + ROOM))),
    )
    return Part(prefix, tables, code, guard)
