"""A tree of kernel values as the arrays that `_core.PathStage` reads.

Rows lose `shift` before they become float32, so the vectors do too, and the leaves' constants take up what their slopes
lose by it. Kernels of products need rows as they are, and stored rows must keep their zeros: those are not shifted.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from scipy import sparse

from svelto._typing import FloatArray, IntArray
from svelto.engines.arrays import aligned, aligned_zeros, padded_rows, padded_width
from svelto.engines.packing import KERNEL_CODES, RULE_CODES, add_scaling, breaks_ties
from svelto.machine import KernelMachine

# Kernels of the product x.s, which a shift of both would change.
OF_PRODUCTS: Final = ("poly", "sigmoid", "linear")


def pack_paths(
    machine: KernelMachine,
    columns: IntArray,
    test: IntArray,
    threshold: FloatArray,
    children: IntArray,
    coef: FloatArray,
    constant: FloatArray,
    slope: FloatArray | None,
    error: FloatArray,
    low: FloatArray,
    high: FloatArray,
    shift: FloatArray,
    stored: bool,
    vectors: Any = None,
    reach: float = np.inf,
) -> dict[str, Any]:
    """Fields of `_core.PathStage`; native code checks them.

    Parameters
    ----------
    columns : ndarray of shape (n_nodes,)
        Number of the vector whose kernel value the node evaluates; -1: none.
    test : ndarray of shape (n_nodes,)
        Position on the row's path of the value to compare with `threshold` (n_nodes,); -1: no test.
    children : ndarray of shape (n_nodes, 2)
        Where values at most the threshold go, and where others go: a node, or ~l for leaf l.
    coef : ndarray of shape (n_leaves, height, n_scores)
        What the values on the path are multiplied with, zeros beyond the leaf's path.
    constant, error, low, high : ndarrays of shape (n_leaves, n_scores)
        Constant of the scores, their error scale, and the range in which they are trusted.
    slope : ndarray of shape (n_leaves, n_scores, n_features) or None
        What the row's features are multiplied with, for rows as the kernel sees them.
    shift : ndarray of shape (n_features,)
        Taken off rows where the kernel and `stored` allow it.
    stored : bool
        Whether rows walk by their stored features.
    vectors : array or CSR matrix, optional
        What the columns number; default: the support vectors.
    reach : float
        Largest squared distance from `shift` (from zero where rows are not shifted) of a row that is trusted.
    """
    kernel = machine.kernel
    n_leaves, height, n_scores = coef.shape
    vectors = machine.support_vectors if vectors is None else vectors
    d = vectors.shape[1]
    width = 0 if n_scores == 1 else padded_width(n_scores)
    shift = np.zeros(d) if stored or kernel.name in OF_PRODUCTS else np.array(shift, dtype=np.float64)
    used, place = np.unique(columns[columns >= 0], return_inverse=True)
    vector = np.full(len(columns), -1, dtype=np.int32)
    vector[columns >= 0] = place
    vectors = vectors[used]
    packed = padded_rows((vectors.toarray() if sparse.issparse(vectors) else np.asarray(vectors)) - shift)
    if slope is not None:
        constant = constant + slope @ shift

    def by_score(values: FloatArray) -> np.ndarray[Any, Any]:
        return padded_rows(values) if width else aligned(values, np.float32)

    fields: dict[str, Any] = {
        "d": d,
        "stride": padded_width(d),
        "n_nodes": len(columns),
        "n_leaves": n_leaves,
        "height": height,
        "n_vectors": len(used),
        "kernel": KERNEL_CODES[kernel.name],
        "gamma": float(kernel.gamma),
        "coef0": float(kernel.coef0),
        "degree": int(kernel.degree),
        "stored": bool(stored),
        "shift": shift,
        "vectors": packed,
        "vector_sq_norm": (packed.astype(np.float64) ** 2).sum(axis=1).astype(np.float32),
        "vector_abs_sum": np.abs(packed.astype(np.float64)).sum(axis=1).astype(np.float32),
        "vector": vector,
        "test": np.array(test, dtype=np.int32),
        "threshold": np.array(threshold, dtype=np.float32),
        "children": np.array(children, dtype=np.int32, order="C"),
        "rule": RULE_CODES["sign" if machine.task == "outlier" else machine.rule],
        "n_scores": n_scores,
        "n_classes": machine.n_classes,
        "break_ties": breaks_ties(machine),
        "padded": width,
        "coef": by_score(coef.reshape(-1, n_scores)),
        "constant": by_score(constant),
        "has_slope": slope is not None,
        "error": by_score(error),
        "low": by_score(low),
        "high": by_score(high),
        "reach": float(np.float32(min(reach, float(np.finfo(np.float32).max)))),
    }
    if slope is not None and not width:
        fields["slope"] = padded_rows(slope[:, 0])
    elif slope is not None:
        fields["slope"] = aligned_zeros((n_leaves, d, width), np.float32)
        fields["slope"][:, :, :n_scores] = np.swapaxes(slope, 1, 2)
    add_scaling(fields, machine)
    return fields
