"""Kernel sums in C: the exact machine and the reduced set; a linear machine is one product a score."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from scipy import sparse

from svelto._typing import FloatArray
from svelto.engines.packing import expand_rows
from svelto.export.c_parts import Part, Setting, render, weighed
from svelto.export.c_tables import LARGEST, Dtype, Matrix, floats, rows, single, vectors, whole
from svelto.kernels import Kernel
from svelto.machine import KernelMachine

# Kernels of the product x.s, which a shift of both would change.
OF_PRODUCTS: Final = ("poly", "sigmoid", "linear")
# Coefficients of 16 bits may move a score by this share of the scores' spread; else they stay single floats.
COEF_SHARE: Final = {"int16": 1e-4, "int8": 1e-3}
PROBE_VECTORS: Final = 256

TERMS: Final = {
    "rbf": "const $real t = ($real)u[k] - ${q}_vector_AT(i, k);\n        sum += t * t;",
    "laplacian": "const $real t = ($real)u[k] - ${q}_vector_AT(i, k);\n        sum += t < 0 ? -t : t;",
    "poly": "sum += ($real)u[k] * ${q}_vector_AT(i, k);",
}
TERM_OF: Final = {"exponential": "rbf", "sigmoid": "poly"}
VALUES: Final = {
    "rbf": "return ${p}_exp(-($real)$gamma * sum);",
    "laplacian": "return ${p}_exp(-($real)$gamma * sum);",
    "exponential": "return ${p}_exp(-($real)$gamma * ${p}_sqrt(sum));",
    "sigmoid": "return ${p}_tanh(($real)$gamma * sum + ($real)$coef0);",
    "poly": """sum = ($real)$gamma * sum + ($real)$coef0;
    for (k = 0; k < $degree; ++k) power *= sum;
    return power;""",
}
KERNEL = """
/* Kernel value of the row with vector i. */
static inline $real ${q}_kernel(const float *u, int i) {
    $real sum = 0$power;
    int k;
    for (k = 0; k < $d; ++k) {
        $term
    }
    $value
}
"""
PLAIN_SUM = """
static inline void ${q}_scores(const float *u, $real *s) {
    int i, j;
    for (j = 0; j < $n_scores; ++j) s[j] = ($real)${q}_intercept[j];
    for (i = 0; i < $n; ++i) {
        const $real value = ${q}_kernel(u, i);
        for (j = 0; j < $n_scores; ++j) s[j] += value * ${q}_coef_AT(i, j);
    }
}
"""
# A vector of class c takes part in the pairs of c with every other class o, with coefficient o - 1 or o of its own.
PAIR_SUM = """
static inline void ${q}_scores(const float *u, $real *s) {
    int i, c, o;
    for (i = 0; i < $n_scores; ++i) s[i] = ($real)${q}_intercept[i];
    for (i = 0, c = 0; i < $n; ++i) {
        const $real value = ${q}_kernel(u, i);
        while (i >= ${q}_class_end[c]) ++c;
        for (o = 0; o < $n_classes; ++o) {
            if (o < c) s[o * (2 * $n_classes - o - 1) / 2 + c - o - 1] += value * ${q}_coef_AT(i, o);
            if (o > c) s[c * (2 * $n_classes - c - 1) / 2 + o - c - 1] += value * ${q}_coef_AT(i, o - 1);
        }
    }
}
"""
LINEAR = """
static inline void ${q}_scores(const float *u, $real *s) {
    int j;
    $weigh
    for (j = 0; j < $n_scores; ++j) s[j] = ($real)${q}_intercept[j] + ${q}_weight_DOT(j, t);
}
"""


def dense(values: Any) -> FloatArray:
    """Vectors as a dense float64 matrix."""
    return np.asarray(values.toarray() if sparse.issparse(values) else values, dtype=np.float64)


def kernel_code(setting: Setting, prefix: str, kernel: Kernel) -> str:
    """``q_kernel(u, i)``: the kernel value of a row with a vector of the table ``q_vector``."""
    numbers = {"gamma": repr(float(kernel.gamma)), "coef0": repr(float(kernel.coef0)), "degree": int(kernel.degree)}
    term = render(TERMS[TERM_OF.get(kernel.name, kernel.name)], setting, prefix)
    value = render(VALUES[kernel.name], setting, prefix, **numbers)
    power = ", power = 1" if kernel.name == "poly" else ""
    return render(KERNEL, setting, prefix, term=term, value=value, power=power)


def vector_matrix(setting: Setting, prefix: str, kernel: Kernel, values: FloatArray, centre: FloatArray) -> Matrix:
    """The table ``q_vector``; `rounded` are the vectors as they are, without the centre taken off."""
    if kernel.name in OF_PRODUCTS:
        assert not centre.any()
    found = vectors(setting.real, f"{prefix}_vector", values - centre, setting.dtype)
    return replace(found, rounded=found.rounded + centre)


def kernel_part(setting: Setting, prefix: str, machine: KernelMachine, centre: FloatArray) -> Part:
    """Scores of a machine: the whole sum."""
    if machine.kernel.name == "linear":
        return _linear_part(setting, prefix, machine, centre)
    vector = vector_matrix(setting, prefix, machine.kernel, dense(machine.support_vectors), centre)
    coef = vectors(setting.real, f"{prefix}_coef", machine.dual_coef.T, _coef_dtype(setting, machine))
    tables = [*vector.tables, *coef.tables, floats(f"{prefix}_intercept", machine.intercept)]
    if machine.is_grouped:
        assert machine.n_support is not None
        tables.append(whole(f"{prefix}_class_end", np.cumsum(machine.n_support), signed=False))
    sizes = {"n": machine.n_sv, "n_scores": machine.n_scores, "n_classes": machine.n_classes}
    code = vector.macro + coef.macro + kernel_code(setting, prefix, machine.kernel)
    code += render(PAIR_SUM if machine.is_grouped else PLAIN_SUM, setting, prefix, **sizes)
    rounded = replace(
        machine,
        support_vectors=vector.rounded,
        dual_coef=np.ascontiguousarray(coef.rounded.T),
        intercept=single(machine.intercept),
    )
    return Part(prefix, tables, code, rounded)


def _coef_dtype(setting: Setting, machine: KernelMachine) -> Dtype:
    """16 bits, also beside vectors of 8: they are few. Single floats where large ones cancel, as in a reduced set."""
    if setting.dtype == "float32":
        return "float32"
    if machine.is_grouped:  # an SVC's, whose coefficients are bounded and have one sign in a class
        return "int16"
    S = dense(machine.support_vectors)
    spread = (machine.kernel(S[:PROBE_VECTORS], S) @ machine.dual_coef.T).std(axis=0)
    lost = np.abs(machine.dual_coef).max(axis=1) * np.sqrt(machine.n_sv) / (2.0 * LARGEST["int16"])
    return "int16" if bool((lost <= COEF_SHARE[setting.dtype] * spread).all()) else "float32"


def _linear_part(setting: Setting, prefix: str, machine: KernelMachine, centre: FloatArray) -> Part:
    S = dense(machine.support_vectors)
    W = np.vstack([row @ S for row in expand_rows(machine, machine.dual_coef)])
    weight = rows(setting.real, f"{prefix}_weight", W, setting.dtype)
    constant = single(machine.intercept + weight.rounded @ centre)
    code = weight.macro + render(LINEAR, setting, prefix, n_scores=machine.n_scores, weigh=weighed(weight, setting))
    tables = [*weight.tables, floats(f"{prefix}_intercept", constant)]
    return Part(prefix, tables, code, _linear_machine(machine, weight.rounded, constant - weight.rounded @ centre))


def _linear_machine(machine: KernelMachine, W: FloatArray, intercept: FloatArray) -> KernelMachine:
    """A machine with these products as its scores: one vector a score, or of each pair a vector of its first class."""
    if not machine.is_grouped:
        return replace(machine, support_vectors=W, dual_coef=np.eye(len(W)), intercept=intercept, n_support=None)
    n = machine.n_classes
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    # The vectors of class i serve its pairs with later classes; the last class has none of its own, and gets a zero.
    dual, first = np.zeros((n - 1, len(pairs) + 1)), np.zeros(n, dtype=np.int32)
    for column, (i, j) in enumerate(pairs):
        dual[j - 1, column] = 1.0
        first[i] += 1
    first[n - 1] = 1
    vectors_of = np.vstack([W, np.zeros((1, W.shape[1]))])
    return replace(machine, support_vectors=vectors_of, dual_coef=dual, intercept=intercept, n_support=first)
