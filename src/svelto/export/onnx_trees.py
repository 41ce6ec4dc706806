"""A metric tree with linear leaves as operators (`engines.taylor_tree`): one step of the walk after the other.

A step gathers each row's hyperplane, takes the product, and gathers the child on that side. Leaves are their own
children, so all rows take as many steps as the longest path has.

Many rows of whole numbers lie exactly on a cut, half-way between two others. Which side they take then depends on the
order in which single floats are added up, so the walk is in single precision in every graph and adds up as the native
code does: in 16 sums (64 for long rows), halves added until one is left. Rows that are mostly zeros walk otherwise
there; here their products are added up in any order, and a row on a cut may take the other side.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from svelto.engines.arrays import padded_width
from svelto.engines.taylor_tree import TaylorTree
from svelto.export.onnx_graph import Graph

# Error scale of rows where no known row was.
UNKNOWN: Final = 1e30
# Sums that native code has side by side; beyond 64 features it has four times as many.
LANES: Final = 16
LONG_LANES: Final = 64


def tree_scores(graph: Graph, tree: TaylorTree, rows: str, *, scores: bool, errors: bool) -> tuple[str, str]:
    """Scores and error scales (n_rows, n_scores) of scaled rows; an empty name for what is not asked for."""
    a = tree.arrays
    d, n_leaves, n_scores = int(a["d"]), int(a["n_leaves"]), int(a["n_scores"])
    single = _single_rows(graph, rows, a["shift"])
    leaf = _leaf(graph, a, single)
    rows = graph.cast_floats(single) if graph.dtype != "float32" else single
    found, scale = "", ""
    if scores:
        slopes = np.asarray(a["weights"], dtype=np.float64)
        slopes = slopes[:, None, :d] if n_scores == 1 else np.swapaxes(slopes[:, :, :n_scores], 1, 2)
        centres = np.asarray(a["centres"], dtype=np.float64)[:, :d]
        constant = _by_score(a["values"], n_leaves, n_scores) - np.einsum("lpd,ld->lp", slopes, centres)
        models = graph.node("Gather", graph.floats(slopes), leaf, axis=0)
        products = graph.node("MatMul", models, graph.node("Unsqueeze", rows, graph.whole([2])))
        products = graph.node("Reshape", products, graph.whole([-1, n_scores]))
        found = graph.node("Add", products, graph.node("Gather", graph.floats(constant), leaf, axis=0))
    if errors:
        own = graph.node("Gather", graph.floats(np.asarray(a["centres"])[:, :d]), leaf, axis=0)
        sq_dist = graph.squares(graph.node("Sub", rows, own))
        base, growth = (
            graph.node("Gather", graph.floats(_by_score(a[key], n_leaves, n_scores)), leaf, axis=0)
            for key in ("base", "growth")
        )
        reach = graph.node("Gather", graph.floats(np.reshape(a["reach"], (n_leaves, 1))), leaf, axis=0)
        known = graph.node("Add", base, graph.node("Mul", growth, sq_dist))
        scale = graph.node("Where", graph.node("Greater", sq_dist, reach), graph.floats(UNKNOWN), known)
    return found, scale


def _by_score(values: Any, n_leaves: int, n_scores: int) -> Any:
    return np.asarray(values, dtype=np.float64).reshape(n_leaves, -1)[:, :n_scores]


def _single_rows(graph: Graph, rows: str, shift: Any) -> str:
    """Rows as the walk knows them: the shift is taken off in double precision before they become single."""
    if not np.any(shift):
        return rows if graph.dtype == "float32" else graph.cast(rows, np.float32)
    precise = rows if graph.dtype == "float64" else graph.cast(rows, np.float64)
    return graph.cast(graph.node("Sub", precise, graph.constant(np.asarray(shift, dtype=np.float64))), np.float32)


def _leaf(graph: Graph, a: dict[str, Any], rows: str) -> str:
    """The leaf of each row."""
    n, n_leaves = graph.n_rows(rows), int(a["n_leaves"])
    at = graph.node("Expand", graph.whole([0]), n)
    if n_leaves == 1:
        return at
    n_inner = len(a["offsets"])
    stride = padded_width(int(a["d"]))
    normals = np.zeros((n_inner, stride), dtype=np.float32)
    normals[:, : int(a["d"])] = np.asarray(a["normals"])[:, : int(a["d"])]
    children = np.asarray(a["children"], dtype=np.int64).reshape(n_inner, 2)
    children = np.where(children < 0, n_inner + ~children, children)
    own = n_inner + np.arange(n_leaves)
    table = graph.whole(np.concatenate([children.ravel(), np.repeat(own, 2)]))
    if stride > int(a["d"]):
        widths = graph.whole([0, 0, 0, stride - int(a["d"])])
        rows = graph.node("Pad", rows, widths, graph.constant(np.zeros((), dtype=np.float32)))
    for _ in range(_depth(children, n_inner)):
        cut = graph.node("Min", at, graph.whole(n_inner - 1))  # leaves have none; any will do
        products = graph.node("Mul", rows, graph.node("Gather", graph.constant(normals), cut, axis=0))
        side = graph.sum(products, 1) if a["stored"] else _as_native(graph, products, stride)
        offset = graph.node("Gather", graph.constant(np.asarray(a["offsets"], dtype=np.float32)), cut, axis=0)
        above = graph.node("GreaterOrEqual", graph.node("Add", side, offset), graph.constant(np.float32(0.0)))
        doubled = graph.node("Mul", at, graph.whole(2))
        at = graph.node("Gather", table, graph.node("Add", doubled, graph.cast(above, np.int64)), axis=0)
    return graph.node("Sub", at, graph.whole(n_inner))


def _depth(children: Any, n_inner: int) -> int:
    """Steps of the longest path."""
    level, depth = children[0], 1
    level = level[level < n_inner]
    while len(level):
        level = children[level].ravel()
        level, depth = level[level < n_inner], depth + 1
    return depth


def _as_native(graph: Graph, products: str, stride: int) -> str:
    """Sums of the products of each row, added up in the order of native code."""
    lanes = LONG_LANES if stride >= LONG_LANES else LANES
    whole = stride // lanes * lanes
    sums = products
    if whole < stride:
        sums = _columns(graph, products, 0, whole)
    if whole > lanes:
        pieces = [_columns(graph, sums, start, start + lanes) for start in range(0, whole, lanes)]
        sums = pieces[0]
        for piece in pieces[1:]:
            sums = graph.node("Add", sums, piece)
    for start in range(whole, stride, LANES):  # the rest goes to the first sums
        piece = _columns(graph, products, start, start + LANES)
        fill = graph.whole([0, 0, 0, lanes - LANES])
        sums = graph.node("Add", sums, graph.node("Pad", piece, fill, graph.constant(np.float32(0.0))))
    while lanes > 1:
        lanes //= 2
        sums = graph.node("Add", _columns(graph, sums, 0, lanes), _columns(graph, sums, lanes, 2 * lanes))
    return graph.flat(sums)


def _columns(graph: Graph, matrix: str, start: int, stop: int) -> str:
    return graph.node("Slice", matrix, graph.whole([start]), graph.whole([stop]), graph.whole([1]))
