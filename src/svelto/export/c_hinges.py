"""Hinges in C: one layer or two, each a product (`engines.hinge_training`).

A layer's rows are the scores' linear parts and then its hinges. Hinges may be measured in any positive unit, so the
column steps of a second layer and of the mix are folded into the rows of the layer before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from svelto._typing import FloatArray
from svelto.engines.hinge_training import Hinges
from svelto.engines.hinges import HingeStage
from svelto.export.c_parts import Part, Setting, render, weighed
from svelto.export.c_tables import Table, floats, rows, single

HEAD = """
static inline void ${q}_scores(const float *u, $real *s$errors) {
    int h;
    float $hinges;
    $weigh
    for (h = 0; h < $n_scores; ++h) s[h] = 0;
"""
LAYER = """
    for (h = 0; h < $n_rows; ++h) {
        const $real z = ($real)${q}_bias$layer[h] + ${q}_w${layer}_DOT(h, $input);
        if (h < $n_scores) s[h] += z;
        else z$layer[h - $n_scores] = z > 0 ? (float)z : 0.0f;
    }
"""
MIX = """
    for (h = 0; h < $n_scores; ++h) s[h] += ${q}_mix_DOT(h, $input);
"""
ERRORS = """
    for (h = 0; h < $n_scores; ++h) e[h] = ($real)${q}_error[h];
"""


def hinge_part(setting: Setting, prefix: str, stage: HingeStage, centre: FloatArray, *, errors: bool) -> Part:
    """Scores of hinges."""
    hinges, n_scores = stage.hinges, stage.hinges.n_scores
    weights = [np.asarray(w, dtype=np.float64).T for w in hinges.weights]
    biases = [np.asarray(b, dtype=np.float64) for b in hinges.biases]
    matrices = [
        rows(setting.real, f"{prefix}_w{layer}", weight, setting.dtype, "layer by layer: linear parts, then hinges")
        for layer, weight in enumerate(weights)
    ]
    mix = rows(setting.real, f"{prefix}_mix", np.asarray(hinges.mix, dtype=np.float64).T, setting.dtype)
    rounded_biases = [single(b) for b in biases]
    constants = [single(biases[0] + matrices[0].rounded @ centre), *rounded_biases[1:]]
    rounded_biases[0] = constants[0] - matrices[0].rounded @ centre
    parts, layers = [*matrices, mix], len(matrices)
    tables: list[Table] = []
    for layer, matrix in enumerate(matrices):
        own, constant = list(matrix.tables), constants[layer]
        column = _column(parts[layer + 1].tables)
        if column is not None:  # hinges in the units that the next layer asks for
            factor = np.concatenate([np.ones(n_scores), column])
            own[1] = floats(own[1].name, own[1].values * factor)
            constant = constant * factor
        tables += [*(own if layer == 0 else own[:2]), floats(f"{prefix}_bias{layer}", constant)]
    tables += mix.tables[:2]
    code = "".join(matrix.macro for matrix in parts)
    sizes = hinges.sizes
    given: dict[str, Any] = {"n_scores": n_scores}
    code += render(
        HEAD,
        setting,
        prefix,
        **given,
        errors=f", {setting.real} *e" if errors else "",
        hinges=", ".join(f"z{layer}[{size}]" for layer, size in enumerate(sizes)),
        weigh=weighed(matrices[0], setting),
    )
    for layer, size in enumerate(sizes):
        source = "t" if layer == 0 else f"z{layer - 1}"
        code += render(LAYER, setting, prefix, **given, layer=layer, input=source, n_rows=n_scores + size)
    code += render(MIX, setting, prefix, **given, input=f"z{layers - 1}")
    if errors:
        tables.append(floats(f"{prefix}_error", stage.error))
        code += render(ERRORS, setting, prefix, **given)
    rounded = Hinges(
        tuple(_single(matrix.rounded.T) for matrix in matrices),
        tuple(_single(b) for b in rounded_biases),
        _single(mix.rounded.T),
    )
    return Part(prefix, tables, code + "}\n", replace(stage, hinges=rounded))


def _column(tables: list[Table]) -> FloatArray | None:
    """Steps of the columns, where there are any."""
    return None if len(tables) < 3 else tables[2].values.astype(np.float64)


def _single(values: FloatArray) -> Any:
    return np.ascontiguousarray(values, dtype=np.float32)
