"""Kernel sums as operators: products, an elementwise function, and products again.

    rbf          exp(2 gamma x.s - gamma |s|^2 - gamma |x|^2): one product, with gamma |x|^2 as a further column of x
    poly         (gamma x.s + coef0)^degree
    sigmoid      tanh(gamma x.s + coef0)
    exponential  exp(-gamma |x - s|), and laplacian with the sum of absolute differences: no product gives these without
                 a loss of digits, so all differences are formed, which is far slower
    linear       one vector of weights a score

The first form loses digits where rows are far longer than they are apart, so a centre may be taken off rows and vectors
(`centre_of`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np

from svelto._typing import FloatArray
from svelto.engines.packing import expand_rows
from svelto.export.c_exact import dense
from svelto.export.onnx_graph import Graph
from svelto.kernels import Kernel
from svelto.machine import KernelMachine
from svelto.voting import pairs

# Lengths of differences, by kernel.
LENGTHS: Final = {"exponential": "ReduceL2", "laplacian": "ReduceL1"}
# Rows of a block, and vectors that are looked at together: their kernel values take 1 MB as single floats. Measured
# with onnxruntime on ijcnn1 (8,969 vectors): 14 microseconds a row, 24 with all vectors at once, 40 with 1,024 rows.
BLOCK_ROWS: Final = 128
BLOCK_VECTORS: Final = 2048
# Differences of all features that are held at a time.
BLOCK_DIFFERENCES: Final = 2**20
# Vectors this many times longer than they are apart cost three bits of the distances.
FAR_FROM_ZERO: Final = 8.0


def centre_of(machine: KernelMachine) -> FloatArray:
    """The mean of the support vectors where they are far from zero, else zero."""
    vectors = dense(machine.support_vectors)
    mean = vectors.mean(axis=0)
    far = mean @ mean > FAR_FROM_ZERO**2 * float(vectors.var(axis=0).sum())
    # Single floats: they are taken off rows without a rounding of their own.
    return mean.astype(np.float32).astype(np.float64) if far else np.zeros_like(mean)


def block_rows(machine: KernelMachine) -> int:
    """Rows of a block for the sums of a machine."""
    if machine.kernel.name not in LENGTHS:
        return BLOCK_ROWS
    values = min(BLOCK_VECTORS, machine.n_sv) * int(machine.support_vectors.shape[1])
    return max(1, min(BLOCK_ROWS, BLOCK_DIFFERENCES // values))


def kernel_sums(graph: Graph, machine: KernelMachine, rows: str) -> str:
    """Scores (n_rows, n_scores) of scaled rows; for some rows at a time."""
    if machine.kernel.name == "linear":
        S = dense(machine.support_vectors)
        weights, centre = np.vstack([row @ S for row in expand_rows(machine, machine.dual_coef)]), centre_of(machine)
        offsets = graph.floats(machine.intercept + weights @ centre)
        return graph.node("Gemm", graph.less(rows, centre), graph.floats(weights.T), offsets)
    kernel = machine.kernel
    far = kernel.name == "rbf" or kernel.name in LENGTHS  # a shift changes nothing
    centre = centre_of(machine) if far else np.zeros(machine.support_vectors.shape[1])
    order = slice(None) if len(machine.dual_coef) > 1 else _signs_in_turn(machine.dual_coef[0])
    vectors, coef = dense(machine.support_vectors)[order] - centre, machine.dual_coef[:, order].T
    rows = graph.less(rows, centre)
    if kernel.name in LENGTHS:
        rows = graph.node("Unsqueeze", rows, graph.whole([1]))
        right, offset = vectors, np.empty(0)
    elif kernel.name == "rbf":
        rows = graph.node("Concat", rows, graph.node("Mul", graph.squares(rows), graph.floats(-kernel.gamma)), axis=1)
        right = np.column_stack([2.0 * kernel.gamma * vectors, np.ones(len(vectors))])
        offset = -kernel.gamma * np.einsum("ij,ij->i", vectors, vectors)
    else:
        right, offset = kernel.gamma * vectors, np.full(len(vectors), kernel.coef0)

    def part(start: int, stop: int) -> str:
        """What the vectors from `start` on add to the scores, or to those of their class."""
        terms = []
        for a, b in pairwise([*range(start, stop, BLOCK_VECTORS), stop]):
            if kernel.name in LENGTHS:
                apart = graph.node("Sub", rows, graph.floats(right[a:b]))
                inner = graph.node(LENGTHS[kernel.name], apart, axes=[2], keepdims=0)
            else:
                inner = graph.node("Gemm", rows, graph.floats(right[a:b].T), graph.floats(offset[a:b]))
            terms.append(graph.node("MatMul", _values(graph, kernel, inner), graph.floats(coef[a:b])))
        return graph.node("Sum", *terms) if len(terms) > 1 else terms[0]

    if not machine.is_grouped:
        return graph.node("Add", part(0, machine.n_sv), graph.floats(machine.intercept))
    assert machine.n_support is not None
    ends = [0, *np.cumsum(machine.n_support).tolist()]
    together = graph.node("Concat", *(part(a, b) for a, b in pairwise(ends)), axis=1)
    return graph.node("Gemm", together, graph.floats(_pair_sums(machine)), graph.floats(machine.intercept))


def _signs_in_turn(coef: FloatArray) -> Any:
    """An order of the vectors in which sums stay small on the way: what single precision loses falls with them.

    Support vectors stand class by class. The terms of one class of thousands add up to thousands before those of the
    other take them away again.
    """
    positive = coef > 0
    place = np.empty(len(coef))
    for side in (positive, ~positive):
        place[side] = (np.arange(side.sum()) + 0.5) / max(side.sum(), 1)
    return np.argsort(place, kind="stable")


def _values(graph: Graph, kernel: Kernel, inner: str) -> str:
    """Kernel values, from what stands inside the kernel's function."""
    if kernel.name == "rbf":
        return graph.node("Exp", inner)
    if kernel.name in LENGTHS:
        return graph.node("Exp", graph.node("Mul", inner, graph.floats(-kernel.gamma)))
    if kernel.name == "sigmoid":
        return graph.node("Tanh", inner)
    if kernel.degree == 0:
        return graph.node("Exp", graph.node("Mul", inner, graph.floats(0.0)))
    power = inner
    for _ in range(1, kernel.degree):  # faster than Pow
        power = graph.node("Mul", power, inner)
    return power


def _pair_sums(machine: KernelMachine) -> Any:
    """What each (class, coefficient) adds to each pair's score: class i has coefficient j - 1 of the pair (i, j)."""
    k = machine.n_classes
    sums = np.zeros((k * (k - 1), machine.n_scores))
    for column, (i, j) in enumerate(pairs(k)):
        sums[i * (k - 1) + j - 1, column] = 1.0
        sums[j * (k - 1) + i, column] = 1.0
    return sums
