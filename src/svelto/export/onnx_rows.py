"""From rows as the caller has them to scaled rows: the scaler of a Pipeline as operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from svelto.export.onnx_graph import Graph
from svelto.export.onnx_kernels import FAR_FROM_ZERO
from svelto.scaling import Scaling


def scaled_rows(graph: Graph, scaling: Scaling | None, rows: str) -> str:
    """Rows as the kernel sees them, with the scaler's own operations in their order.

    A float32 graph scales in double precision where features are far from zero against their spread: single floats of
    the shift would move all rows.
    """
    if scaling is None:
        return rows
    size = np.abs(scaling.shift / scaling.factor if scaling.form == "divide" else scaling.shift)
    precise = graph.dtype == "float32" and bool((size > FAR_FROM_ZERO).any())
    if precise:
        rows = graph.cast(rows, np.float64)
    number: Any = np.float64 if precise else graph.floating

    def constant(values: Any) -> str:
        return graph.constant(np.asarray(values, dtype=number))

    if scaling.form == "divide":
        rows = graph.node("Div", graph.node("Sub", rows, constant(scaling.shift)), constant(scaling.factor))
    else:
        rows = graph.node("Add", graph.node("Mul", rows, constant(scaling.factor)), constant(scaling.shift))
    if np.isfinite(scaling.low):
        rows = graph.node("Max", rows, constant(scaling.low))
    if np.isfinite(scaling.high):
        rows = graph.node("Min", rows, constant(scaling.high))
    return graph.cast_floats(rows) if precise else rows
