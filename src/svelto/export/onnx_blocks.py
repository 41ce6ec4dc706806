"""Rows in blocks: a loop over some rows at a time, whatever the number of rows that a session is given.

The kernel values of all rows with all support vectors would be a matrix of gigabytes. A block's stay in the
processor's caches, which is faster too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from svelto.export.onnx_graph import Graph, Typed


def by_blocks(
    graph: Graph, rows: str, answers_of: Callable[[Graph, str], Sequence[Typed]], most_rows: int
) -> list[str]:
    """Answers for rows, block by block.

    All blocks have one length, as a loop demands. The last one therefore begins a little earlier, and the rows that it
    has in common with the one before it are dropped. No rows at all are one block without rows.

    Parameters
    ----------
    graph : Graph
        Where the loop stands.
    rows : str
        A matrix.
    answers_of : callable
        Writes the operators of a block; returns results with a first axis of as many, each with its type.
    most_rows : int
        Of a block.
    """
    one, most = graph.whole([1]), graph.whole([most_rows])
    n = graph.n_rows(rows)
    length = graph.node("Min", _parts(graph, n, _parts(graph, n, most)), n)
    n_blocks = _parts(graph, n, graph.node("Max", length, one))
    inner = graph.body()
    trip, given = graph.new_name("trip"), graph.new_name("given")
    start = inner.node("Min", inner.node("Mul", trip, length), inner.node("Sub", n, length))
    block = inner.rows_from(rows, start, inner.node("Add", start, length))
    answers = list(answers_of(inner, block))
    whole = graph.node("Mul", graph.node("Sub", n_blocks, one), length)
    end = graph.node("Mul", n_blocks, length)
    again = graph.node("Add", whole, graph.node("Sub", end, n))
    results = []
    for found in graph.loop(graph.node("Squeeze", n_blocks), inner, trip, given, answers):
        shape = graph.node("Concat", graph.whole([-1]), graph.node("Shape", found, start=2), axis=0)
        flat = graph.node("Reshape", found, shape)
        first = graph.rows_from(flat, graph.whole([0]), whole)
        results.append(graph.node("Concat", first, graph.rows_from(flat, again, end), axis=0))
    return results


def _parts(graph: Graph, total: str, size: str) -> str:
    """Total over size, rounded up, and at least 1."""
    one = graph.whole([1])
    up = graph.node("Sub", graph.node("Add", total, size), one)
    return graph.node("Max", graph.node("Div", up, size), one)
