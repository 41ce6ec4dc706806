"""Support vector trees in a svelto file: their vectors, nodes and leaves.

Nodes are checked here as strictly as by native code, because trees on precomputed kernel values are walked in Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from svelto.engines.sv_tree import SVTree, Trust, ValueTree
from svelto.engines.sv_tree_build import score_machine
from svelto.io.parts import MOST, In, Out
from svelto.io.saved_machine import read_csr, write_csr
from svelto.path_tree import PathTree


def write_sv_tree(out: Out, stage: SVTree, shared: Any) -> None:
    """One tree for all scores, or a tree for each; they have their vectors in common."""
    vectors = stage.parts[0].vectors
    native = stage.machine.kernel.has_native_code
    out.set(mean_evals=stage.mean_evals)
    if native and sparse.issparse(vectors):
        matrix = sparse.csr_matrix(vectors)
        out.set(n_vectors=int(matrix.shape[0]))
        write_csr(out, "vectors", matrix)
    else:
        out.put("vectors", vectors, "<f8" if native else "<i8")
    for part, tree in zip(out.parts("trees", len(stage.parts)), stage.parts, strict=True):
        _write_tree(part, tree)


def _write_tree(out: Out, part: ValueTree) -> None:
    out.set(stored=bool(part.stored), reach=part.reach)
    tree = part.tree
    for name in ("column", "test", "children"):
        out.put(name, getattr(tree, name), "<i4")
    for name in ("threshold", "coef", "constant"):
        out.put(name, getattr(tree, name), "<f8")
    if tree.slope is not None:
        out.put("slope", tree.slope, "<f8")
    if part.shift is not None:
        out.put("shift", part.shift, "<f8")
    for name, array in part.trust._asdict().items():
        out.put(name, array, "<f8")


def read_sv_tree(part: In, shared: Any) -> SVTree:
    """The stage of a machine."""
    machine = shared.machine
    below = part.parts("trees")
    if machine.kernel.name == "linear" or len(below) not in (1, machine.n_scores):
        part.fail(f"there are {len(below)} trees for {machine.n_scores} scores")
    vectors = _read_vectors(part, machine)
    n_vectors = vectors.shape[0]
    each = 1 if len(below) == machine.n_scores else machine.n_scores
    own = machine if each == machine.n_scores else score_machine(machine, vectors)
    trees = [_read_tree(one, own, vectors, n_vectors, each) for one in below]
    return SVTree(machine, trees, part.finite("mean_evals"))


def _read_vectors(part: In, machine: Any) -> Any:
    if not machine.kernel.has_native_code:
        # Where nothing says how wide rows are, they are known to reach the machine's own columns.
        most = int(machine.support_vectors.max(initial=0)) if machine.n_features is None else machine.n_features - 1
        vectors = part.whole("vectors", (None,), 0, most, dtype="<i8")
    elif part.has_array("vectors"):
        vectors = part.floats("vectors", (None, machine.support_vectors.shape[1]), always=True)
    else:
        vectors = read_csr(part, "vectors", part.count("n_vectors", 1), machine.support_vectors.shape[1])
    if vectors.shape[0] < 1:
        part.fail("a tree has no vectors")
    return vectors


def _read_tree(part: In, machine: Any, vectors: Any, n_vectors: int, n_scores: int) -> ValueTree:
    native = machine.kernel.has_native_code
    width = int(vectors.shape[1]) if native else 0
    column = part.whole("column", (None,), -1, n_vectors - 1)
    n_nodes = len(column)
    coef = part.floats("coef", (None, None, n_scores), always=True)
    n_leaves, height = coef.shape[:2]
    if not 1 <= n_nodes <= MOST or not 1 <= n_leaves <= MOST or height > MOST:
        part.fail(f"a tree has {n_nodes} nodes and {n_leaves} leaves")
    by_leaf = (n_leaves, n_scores)
    has_slope = native and part.has_array("slope")
    tree = PathTree(
        column,
        part.whole("test", (n_nodes,), -1, height - 1),
        part.floats("threshold", (n_nodes,), always=True),
        part.whole("children", (n_nodes, 2), -n_leaves, n_nodes - 1),
        coef,
        part.floats("constant", by_leaf, always=True),
        part.floats("slope", (n_leaves, n_scores, width), always=True) if has_slope else None,
    )
    _check_nodes(part, tree)
    reach = part.number("reach")
    if not reach >= 0.0:
        part.fail(f"a tree reaches {reach}")
    return ValueTree(
        machine,
        vectors,
        tree,
        Trust(*(part.numbers(name, by_leaf) for name in Trust._fields)),
        part.floats("shift", (width,), always=True) if native and part.has_array("shift") else None,
        part.flag("stored"),
        reach,
    )


def _check_nodes(part: In, tree: PathTree) -> None:
    """Every node and leaf has one parent, which comes before it, and tests look at values that are there."""
    n_nodes, n_leaves = len(tree.column), tree.n_leaves
    known = np.full(n_nodes, -1)  # values on the path before the node; -1: not reached
    known[0] = 0
    leaves = np.zeros(n_leaves, dtype=np.int64)
    for node, (column, test, children) in enumerate(
        zip(tree.column.tolist(), tree.test.tolist(), tree.children.tolist(), strict=True)
    ):
        values = known[node] + (column >= 0)
        if known[node] < 0 or values > tree.height or test >= values:
            part.fail(f"node {node} of a tree is not reached, or tests a value that is not there")
        if test < 0 and children[0] != children[1]:
            part.fail(f"node {node} of a tree has no test and two children")
        for child in children[: 1 + (test >= 0)]:
            if child < 0:
                leaves[~child] += 1
            elif child <= node or known[child] >= 0:
                part.fail(f"node {child} of a tree does not follow its parent, or has two")
            else:
                known[child] = values
    if (leaves != 1).any():
        part.fail("a leaf of a tree has no parent, or two")
