"""The guard of a promise as operators (`guard`): box, grids, balls and directions. A row outside goes to the sum.

In single precision these are the limits that the predictor's own first stage has, drawn in by more than rounding can
move a row: what they call inside is inside. In double precision they are the guard's own. The core, where hinges need
not take more caution, has the limits that belong to it in the same way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from svelto.export.onnx_graph import Graph
from svelto.guard import Guard
from svelto.guard_arrays import NO_GRID

# Constant of a ball that holds no row.
NEVER: Final = 1e30


def inside(graph: Graph, guard: Guard, rows: str, centre: Any) -> str:
    """Whether each scaled row is like those that the stages were made for."""
    return _within(graph, guard, rows, centre, core=False)


def in_core(graph: Graph, guard: Guard, rows: str, centre: Any) -> str:
    """Whether each scaled row that is inside is not on the rim."""
    return _within(graph, guard, rows, centre, core=True)


def _within(graph: Graph, guard: Guard, rows: str, centre: Any, *, core: bool) -> str:
    d, n_balls, n_directions = len(guard.low), len(guard.centres), len(guard.directions)
    if graph.dtype == "float32":
        fields = guard.in_single_precision(centre, rim=core)
        rows = graph.less(rows, centre)
        columns, bias = fields["columns"][:, :n_balls], fields["bias"][:n_balls]
    else:
        fields = (_core_alone(guard) if core else guard)._fields
        columns, bias = -2.0 * fields["columns"][:, :n_balls], -fields["shifted_limit"][:n_balls]
    within = graph.node(
        "Min", graph.node("Max", rows, graph.floats(fields["low"][:d])), graph.floats(fields["high"][:d])
    )
    beyond = graph.squares(graph.node("Sub", rows, within))
    found = _at_most(graph, beyond, fields["box_limit"])
    if fields["grid_tolerance"] < NO_GRID and not core:  # rows inside are on the grids
        found = graph.node("And", found, _on_grids(graph, fields, rows, d))
    products = graph.node("Gemm", rows, graph.floats(columns), graph.floats(np.minimum(bias, NEVER)))
    nearest = graph.node("ReduceMin", products, axes=[1], keepdims=1)
    found = graph.node("And", found, _at_most(graph, graph.node("Add", nearest, graph.squares(rows)), 0.0))
    if n_directions:
        directions = fields["directions"][:d, :n_directions]
        along = graph.node("Gemm", rows, graph.floats(directions), graph.floats(-fields["offset"][:n_directions]))
        found = graph.node("And", found, _at_most(graph, graph.squares(along), fields["direction_limit"]))
    return graph.flat(found)


def _core_alone(guard: Guard) -> Guard:
    """A guard whose limits are those of the core."""
    core = guard.core
    if core is None:
        return guard
    box, balls, directions, _ = core
    return replace(guard, box_limit=box, sq_radii=balls, direction_limit=directions, core=None)


def _on_grids(graph: Graph, fields: dict[str, Any], rows: str, d: int) -> str:
    scale = fields["grid_scale"][:d]
    start = fields["grid_start"][:d] if "grid_start" in fields else -fields["grid_origin"][:d] * scale
    place = graph.node("Add", graph.node("Mul", rows, graph.floats(scale)), graph.floats(start))
    off = graph.node("Abs", graph.node("Sub", place, graph.node("Round", place)))
    farthest = graph.node("ReduceMax", off, axes=[1], keepdims=1)
    return _at_most(graph, farthest, fields["grid_tolerance"])


def _at_most(graph: Graph, value: str, limit: float) -> str:
    return graph.node("LessOrEqual", value, graph.floats(limit))
