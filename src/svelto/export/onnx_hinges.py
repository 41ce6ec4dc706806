"""Hinges as operators: a product and a Relu a layer (`engines.hinge_training`).

The linear part l of a score is a difference of two hinges, max(0, l) - max(0, -l), without any rounding. Written like
that it takes part in the product of its layer, and nothing has to be cut out of a matrix.
"""

from __future__ import annotations

import numpy as np

from svelto._typing import FloatArray
from svelto.engines.hinge_training import Hinges
from svelto.export.onnx_graph import Graph


def hinge_scores(graph: Graph, hinges: Hinges, rows: str, centre: FloatArray) -> str:
    """Outputs (n_rows, n_scores) of scaled rows; `centre` is taken off them first."""
    rows = graph.less(rows, centre)
    p = hinges.n_scores
    both = np.hstack([np.eye(p), -np.eye(p)])
    for layer, (single_weight, single_bias) in enumerate(zip(hinges.weights, hinges.biases, strict=True)):
        weight, bias = single_weight.astype(np.float64), single_bias.astype(np.float64)
        if layer == 0:
            bias = bias + centre @ weight
        else:  # the linear parts so far are handed on
            weight = np.vstack([weight, np.hstack([both.T, np.zeros((2 * p, weight.shape[1] - p))])])
        left, right = np.hstack([weight[:, p:], weight[:, :p] @ both]), np.concatenate([bias[p:], bias[:p] @ both])
        rows = graph.node("Relu", graph.node("Gemm", rows, graph.floats(left), graph.floats(right)))
    return graph.node("MatMul", rows, graph.floats(np.vstack([hinges.mix.astype(np.float64), both.T])))
