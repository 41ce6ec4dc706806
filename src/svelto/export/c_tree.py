"""A metric tree with linear leaves in C (`engines.taylor_tree`).

A leaf's model is written as  value + slope.u , with the value such that the model is right at the leaf's centre,
however its slope is rounded. Centres are needed only for error scales.

Many rows of whole numbers lie exactly on a cut, half-way between two others. Which side they take then depends on the
order in which single floats are added up, so with ``dtype="float32"`` the walk adds them up as the native code does:
in 16 sums (64 for long rows), halves added until one is left; rows that are mostly zeros in four sums.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from svelto._typing import FloatArray
from svelto.engines.arrays import padded_rows, padded_width
from svelto.engines.taylor_tree import TaylorTree
from svelto.export.c_parts import Part, Setting, render, weighed
from svelto.export.c_tables import Matrix, floats, rows, single, vectors, whole

# Sums of a row whose padded width is `stride`; those beyond 16 belong to rows of 64 and more features.
SIDE_BY_LANES = """
/* u.w in single precision: halves of $lanes sums are added until one is left. */
static inline float ${q}_side(const float *u, const float *w) {
    float sum[$lanes] = {0.0f};
    int k, n;
    for (k = 0; k < $d; ++k) sum[k < $whole ? k % $lanes : k % 16] += u[k] * w[k];
$chains    for (n = 8; n > 0; n /= 2)
        for (k = 0; k < n; ++k) sum[k] += sum[k + n];
    return sum[0];
}
"""
CHAINS = "    for (k = 0; k < 16; ++k) sum[k] = (sum[k] + sum[k + 32]) + (sum[k + 16] + sum[k + 48]);\n"
SIDE_BY_STORED = """
/* u.w in single precision over the features that are not zero, in four sums. */
static inline float ${q}_side(const float *u, const float *w) {
    float sum[4] = {0.0f};
    int k, n = 0;
    for (k = 0; k < $d; ++k)
        if (u[k] != 0.0f) sum[n++ % 4] += u[k] * w[k];
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}
"""
WALK = """
/* The leaf of a row. */
static inline int ${q}_leaf(const float *u) {
    int at = 0;
    $weigh
    while (at >= 0) at = ${q}_child[2 * at + ($side + $cast${q}_offset[at] >= 0)];
    return ~at;
}
"""
ONE_LEAF = """
static inline int ${q}_leaf(const float *u) {
    (void)u;
    return 0;
}
"""
SCORES = """
static inline void ${q}_scores(const float *u, $real *s$errors) {
    const int leaf = ${q}_leaf(u);
    int j;
    $weigh
    for (j = 0; j < $n_scores; ++j)
        s[j] = ($real)${q}_value[leaf * $n_scores + j] + ${q}_slope_DOT(leaf * $n_scores + j, t);
$tail}
"""
ERRORS = """
/* Error scales: they grow with the distance from the leaf's centre, and end where no known row was. */
static inline void ${q}_errors(const float *u, int leaf, $real *e) {
    $real sq_dist = 0;
    int k;
    for (k = 0; k < $d; ++k) {
        const $real t = ($real)u[k] - ${q}_centre_AT(leaf, k);
        sq_dist += t * t;
    }
    for (k = 0; k < $n_scores; ++k)
        e[k] = sq_dist > ($real)${q}_reach[leaf]
                   ? ($real)1e30
                   : ($real)${q}_base[leaf * $n_scores + k] + ($real)${q}_growth[leaf * $n_scores + k] * sq_dist;
}
"""


def tree_part(
    setting: Setting, prefix: str, stage: TaylorTree, centre: FloatArray, *, errors: bool, scores: bool = True
) -> Part:
    """Scores of a tree, its error scales, or (a map of errors) these alone."""
    a, d = stage.arrays, setting.n_features
    n_leaves, n_scores = int(a["n_leaves"]), int(a["n_scores"])
    moved = centre - a["shift"]  # rows of the tree lose `shift`, rows here lose `centre`
    arrays, tables, code = dict(a), [], ""
    if n_leaves > 1:
        part = _walk(setting, prefix, a, moved)
        tables, code = part.tables, part.code
        arrays.update(part.rounded)
    else:
        code = render(ONE_LEAF, setting, prefix)
    centres = np.asarray(a["centres"][:, :d], dtype=np.float64) - moved
    sizes: dict[str, Any] = {"n_scores": n_scores}
    if errors:
        place = vectors(setting.real, f"{prefix}_centre", centres, setting.dtype)
        by_score = {key: _by_score(a[key], n_leaves, n_scores) for key in ("base", "growth")}
        tables += [*place.tables, floats(f"{prefix}_reach", a["reach"])]
        tables += [floats(f"{prefix}_{key}", values) for key, values in by_score.items()]
        code += place.macro + render(ERRORS, setting, prefix, **sizes)
    if scores:
        slope, values = _slopes(setting, prefix, a, n_leaves, n_scores)
        flat = np.repeat(centres, n_scores, axis=0)
        constant = single(values.ravel() - np.einsum("ij,ij->i", slope.rounded, flat))
        tables += [*slope.tables, floats(f"{prefix}_value", constant)]
        code += slope.macro + render(
            SCORES,
            setting,
            prefix,
            **sizes,
            errors=f", {setting.real} *e" if errors else "",
            weigh=weighed(slope, setting),
            tail=f"    {prefix}_errors(u, leaf, e);\n" if errors else "",
        )
        arrays["weights"] = _packed(slope.rounded.reshape(n_leaves, n_scores, d), n_scores)
    return Part(prefix, tables, code, replace(stage, arrays=arrays))


def _walk(setting: Setting, prefix: str, a: dict[str, Any], moved: FloatArray) -> Part:
    """``q_leaf``; `rounded` are the arrays that changed."""
    d = setting.n_features
    normals = np.asarray(a["normals"][:, :d], dtype=np.float64)
    cut = rows(setting.real, f"{prefix}_normal", normals, setting.dtype)
    offsets = np.asarray(a["offsets"], dtype=np.float64)
    as_native = setting.dtype == "float32" and not moved.any()
    if as_native:
        stride = padded_width(d)
        lanes = 64 if stride >= 64 else 16
        template = SIDE_BY_STORED if a["stored"] else SIDE_BY_LANES
        chains = CHAINS if lanes == 64 else ""
        side = render(template, setting, prefix, lanes=lanes, whole=stride // lanes * lanes, chains=chains)
        macro, call, cast = side, f"{prefix}_side(t, {prefix}_normal + at * {d})", ""
    else:
        macro, call, cast = cut.macro, f"{prefix}_normal_DOT(at, t)", f"({setting.real})"
    tables = [
        *cut.tables,
        floats(f"{prefix}_offset", offsets + normals @ moved),
        whole(f"{prefix}_child", a["children"], "below and above the cut; ~leaf"),
    ]
    code = macro + render(WALK, setting, prefix, weigh=weighed(cut, setting), side=call, cast=cast)
    return Part(prefix, tables, code, {"normals": padded_rows(cut.rounded)})


def _by_score(values: Any, n_leaves: int, n_scores: int) -> FloatArray:
    return np.asarray(values, dtype=np.float64).reshape(n_leaves, -1)[:, :n_scores]


def _slopes(
    setting: Setting, prefix: str, a: dict[str, Any], n_leaves: int, n_scores: int
) -> tuple[Matrix, FloatArray]:
    """Slopes (n_leaves n_scores, d) and values (n_leaves, n_scores) at the centres."""
    d, weights = setting.n_features, np.asarray(a["weights"], dtype=np.float64)
    slopes = weights[:, None, :d] if n_scores == 1 else np.swapaxes(weights[:, :, :n_scores], 1, 2)
    matrix = rows(setting.real, f"{prefix}_slope", slopes.reshape(-1, d), setting.dtype)
    return matrix, _by_score(a["values"], n_leaves, n_scores)


def _packed(slopes: FloatArray, n_scores: int) -> Any:
    """Slopes (L, P, d) in the layout of native code."""
    if n_scores == 1:
        return padded_rows(slopes[:, 0])
    packed = np.zeros((len(slopes), slopes.shape[2], padded_width(n_scores)), dtype=np.float32)
    packed[:, :, :n_scores] = np.swapaxes(slopes, 1, 2)
    return packed
