"""Chains of hyperplanes in C (`engines.chains`): who wins all duels, and scores of classes from all chains.

Chains stand in the order of pairs (0, 1), (0, 2), ..., (1, 2), ..., outcome -1 speaks for the first of a pair; one
against the rest: chain k speaks for class k with outcome +1.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from svelto._typing import FloatArray
from svelto.engines.chains import CLEAR_MARGIN, Chains
from svelto.export.c_parts import Part, Setting, render, weighed
from svelto.export.c_tables import floats, rows, single, whole
from svelto.scaling import Scaling

MEET = """
/* Outcome of a chain: -1, +1, or 0 where it leaves the row open; and the margin of the node that decided. */
static inline int ${q}_meet(const float *t, int chain, $real *margin) {
    const int last = ${q}_start[chain + 1];
    int h, side = 0;
    *margin = 0;
    for (h = ${q}_start[chain]; h < last && side == 0; ++h) {
        const $real z = ${q}_plane_DOT(h, t);
        const $real below = ($real)${q}_low[h] - z, above = z - ($real)${q}_high[h];
        side = below > 0 ? -1 : above > 0 ? 1 : 0;
        *margin = side < 0 ? below : side > 0 ? above : below > above ? -below : -above;
        *margin = *margin < ($real)1e37 ? *margin / ($real)${q}_spread[h] : 0; /* no threshold is finite */
    }
    return side != 0 ? side : ${q}_end[chain];
}
"""
PAIRS = """
/* The class that wins all its duels; -1 where none does. */
static inline int ${q}_winner(const float *u) {
    $real margin;
    int c = 0, o;
    $weigh
    for (o = 1; o < $n; ++o)
        if (${q}_meet(t, c * (2 * $n - c - 1) / 2 + o - c - 1, &margin) != -1) c = o;
    for (o = 0; o < c; ++o)
        if (${q}_meet(t, o * (2 * $n - o - 1) / 2 + c - o - 1, &margin) != 1) return -1;
    return c;
}
/* Votes, and a squashed sum of margins that decides between equal votes. */
static inline void ${q}_scores(const float *u, $real *s) {
    $real sum[$n] = {0}, margin;
    int i, j, chain = 0;
    $weigh
    for (i = 0; i < $n; ++i) s[i] = 0;
    for (i = 0; i < $n; ++i)
        for (j = i + 1; j < $n; ++j) {
            const int side = ${q}_meet(t, chain++, &margin);
            if (margin > ($real)$clear) margin = ($real)$clear;
            if (side != 0) s[side < 0 ? i : j] += 1;
            sum[i] -= side * margin;
            sum[j] += side * margin;
        }
    for (i = 0; i < $n; ++i) s[i] += sum[i] / (3 * ((sum[i] < 0 ? -sum[i] : sum[i]) + 1));
}
"""
AGAINST_REST = """
/* The class whose chain alone speaks for it, where all others speak against theirs; -1 where there is none. */
static inline int ${q}_winner(const float *u) {
    $real margin;
    int c, found = -1;
    $weigh
    for (c = 0; c < $n; ++c) {
        const int side = ${q}_meet(t, c, &margin);
        if (side == 0 || (side > 0 && found >= 0)) return -1;
        if (side > 0) found = c;
    }
    return found;
}
/* Margins of the chains, positive for their classes. */
static inline void ${q}_scores(const float *u, $real *s) {
    $real margin;
    int c, side;
    $weigh
    for (c = 0; c < $n; ++c) {
        side = ${q}_meet(t, c, &margin);
        s[c] = side * (margin > 0 ? margin : ($real)1e-38);
    }
}
"""
TWO = """
/* The class of the row; -1 where the chain leaves it open. */
static inline int ${q}_winner(const float *u) {
    $real margin;
    int side;
    $weigh
    side = ${q}_meet(t, 0, &margin);
    return side < 0 ? 0 : side > 0 ? 1 : -1;
}
/* The margin, positive towards the second class. */
static inline void ${q}_scores(const float *u, $real *s) {
    $real margin;
    int side;
    $weigh
    side = ${q}_meet(t, 0, &margin);
    s[0] = side * (margin > 0 ? margin : ($real)1e-38);
}
"""


def chain_part(setting: Setting, prefix: str, chains: Chains, scaling: Scaling | None, centre: FloatArray) -> Part:
    """``q_winner`` and ``q_scores`` for rows u = (x - shift) / factor - centre."""
    d = setting.n_features
    shift, factor = (np.zeros(d), np.ones(d)) if scaling is None else (scaling.shift, scaling.factor)
    origin = shift + factor * centre  # the row whose u is zero
    # A chain need not have a node, but a table must have a number.
    own = chains.planes if chains.n_nodes else np.zeros((1, d))
    plane = rows(setting.real, f"{prefix}_plane", own * factor, setting.dtype)
    at_origin = chains.planes @ origin
    low, high = single(chains.low - at_origin), single(chains.high - at_origin)
    nothing = np.zeros(1)
    spread = chains.spread if chains.n_nodes else np.ones(1)
    tables = [
        *plane.tables,
        floats(f"{prefix}_low", low if chains.n_nodes else nothing),
        floats(f"{prefix}_high", high if chains.n_nodes else nothing),
        floats(f"{prefix}_spread", spread),
        whole(f"{prefix}_start", chains.chain_start, "nodes of each chain", signed=False),
        whole(f"{prefix}_end", chains.end, "outcome past the last node"),
    ]
    template = AGAINST_REST if chains.rule == "one_vs_rest" else PAIRS if chains.n_classes > 2 else TWO
    given = {"n": chains.n_classes, "clear": repr(CLEAR_MARGIN)}
    code = plane.macro + render(MEET, setting, prefix)
    code += render(template, setting, prefix, weigh=weighed(plane, setting), **given)
    if not chains.n_nodes:
        return Part(prefix, tables, code, chains)
    planes = plane.rounded / factor
    moved = planes @ origin
    rounded = replace(
        chains,
        planes=planes,
        low=np.where(np.isinf(chains.low), chains.low, low + moved),
        high=np.where(np.isinf(chains.high), chains.high, high + moved),
    )
    return Part(prefix, tables, code, rounded)
