"""A support vector tree in C (`engines.sv_tree`): kernel values on one path, and a leaf that makes scores of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from svelto._typing import FloatArray
from svelto.engines.sv_tree import SVTree, ValueTree
from svelto.export.c_exact import OF_PRODUCTS, dense, kernel_code, vector_matrix
from svelto.export.c_parts import Part, Setting, render, weighed
from svelto.export.c_tables import floats, rows, single, vectors, whole
from svelto.path_tree import PathTree

WALK = """
/* Adds the tree's $n_scores score(s). */
static inline void ${q}_scores(const float *u, $real *s$errors) {
    $real path[$height] = {0}, sum;
    int at = 0, n = 0, j, h;
    $weigh
    while (at >= 0) {
        if (${q}_column[at] >= 0) path[n++] = ${q}_kernel(u, ${q}_column[at]);
        at = ${q}_child[2 * at + !(path[${q}_test[at]] <= ($real)${q}_threshold[at])];
    }
    at = ~at;
    for (j = 0; j < $n_scores; ++j) {
        sum = ($real)${q}_constant[at * $n_scores + j]$slope;
        for (h = 0; h < n; ++h) sum += path[h] * ${q}_coef_AT(at * $height + h, j);
        s[j] = sum;
    }
$tail}
"""
ERRORS = """
    for (h = 0, sum = 0; h < $d; ++h) sum += ($real)u[h] * ($real)u[h];
    for (j = 0; j < $n_scores; ++j) {
        h = at * $n_scores + j;
        e[j] = sum > ($real)$reach || s[j] < ($real)${q}_low[h] || s[j] > ($real)${q}_high[h] ? ($real)1e30
                                                                                        : ($real)${q}_error[h];
    }
"""
ALL = """
static inline void ${q}_scores(const float *u, $real *s$errors) {
$calls}
"""


def path_centre(stage: SVTree) -> FloatArray:
    """What the trees take off their rows."""
    part = stage.parts[0]
    width = part.vectors.shape[1]
    shifted = part.shift is not None and not part.stored and stage.machine.kernel.name not in OF_PRODUCTS
    return np.asarray(part.shift, dtype=np.float64) if shifted else np.zeros(width)


def path_part(setting: Setting, prefix: str, stage: SVTree, centre: FloatArray, *, errors: bool) -> Part:
    """Scores of one tree for all of them, or of a tree for each."""
    if len(stage.parts) == 1:
        part = _tree(setting, prefix, stage.parts[0], centre, errors)
        return replace(part, rounded=replace(stage, parts=[part.rounded]))
    parts = [_tree(setting, f"{prefix}_{j}", tree, centre, errors) for j, tree in enumerate(stage.parts)]
    calls = "".join(
        f"    {part.prefix}_scores(u, s + {j}{f', e + {j}' if errors else ''});\n" for j, part in enumerate(parts)
    )
    code = "".join(part.code for part in parts)
    code += render(ALL, setting, prefix, calls=calls, errors=f", {setting.real} *e" if errors else "")
    tables = [table for part in parts for table in part.tables]
    return Part(prefix, tables, code, replace(stage, parts=[part.rounded for part in parts]))


def _tree(setting: Setting, prefix: str, part: ValueTree, centre: FloatArray, errors: bool) -> Part:
    tree, kernel = part.tree, part.machine.kernel
    n_leaves, height, n_scores = tree.coef.shape
    used, place = np.unique(tree.column[tree.column >= 0], return_inverse=True)
    if not len(used):  # one leaf, without a kernel value
        used = np.zeros(1, dtype=np.intp)
    column = np.full(len(tree.column), -1)
    column[tree.column >= 0] = place
    vector = vector_matrix(setting, prefix, kernel, dense(part.vectors[used]), centre)
    height = max(height, 1)
    values = np.zeros((n_leaves, height, n_scores))
    values[:, : tree.coef.shape[1]] = tree.coef
    coef = vectors(setting.real, f"{prefix}_coef", values.reshape(-1, n_scores), setting.dtype)
    constant, slope, code = tree.constant, tree.slope, vector.macro + coef.macro
    tables = [*vector.tables, *coef.tables]
    weigh, term = "", ""
    if slope is not None:
        matrix = rows(setting.real, f"{prefix}_slope", slope.reshape(n_leaves * n_scores, -1), setting.dtype)
        slope = matrix.rounded.reshape(slope.shape)
        constant = constant + slope @ centre
        weigh, term = weighed(matrix, setting), f" + {prefix}_slope_DOT(at * {n_scores} + j, t)"
        code += matrix.macro
        tables += matrix.tables
    tables += [
        floats(f"{prefix}_constant", constant),
        floats(f"{prefix}_threshold", tree.threshold),
        whole(f"{prefix}_column", column, "vector of each node, -1: none"),
        whole(f"{prefix}_test", np.maximum(tree.test, 0), "value on the path that is compared", signed=False),
        whole(f"{prefix}_child", tree.children, "~leaf"),
    ]
    tail = ""
    if errors:
        tables += [floats(f"{prefix}_{key}", getattr(part.trust, key)) for key in ("error", "low", "high")]
        reach = repr(float(np.float32(min(part.reach, 3.0e38))))
        tail = render(ERRORS, setting, prefix, reach=reach, n_scores=n_scores)
    code += kernel_code(setting, prefix, kernel)
    code += render(
        WALK,
        setting,
        prefix,
        height=height,
        n_scores=n_scores,
        weigh=weigh,
        slope=term,
        errors=f", {setting.real} *e" if errors else "",
        tail=tail,
    )
    return Part(prefix, tables, code, _rounded(part, tree, used, vector.rounded, coef.rounded, slope))


def _rounded(
    part: ValueTree, tree: PathTree, used: Any, vector: FloatArray, coef: FloatArray, slope: FloatArray | None
) -> ValueTree:
    """The tree with the numbers of its tables; vectors that no node asks for stay as they are."""
    n_leaves, height, n_scores = tree.coef.shape
    known = dense(part.vectors).copy()
    known[used] = vector
    values = coef.reshape(n_leaves, -1, n_scores)[:, :height]
    rounded = replace(tree, coef=values, constant=single(tree.constant), slope=slope)
    return replace(part, vectors=known, tree=rounded)
