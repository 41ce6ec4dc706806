"""Building support vector trees: growth, one tree or several, and what is known about the leaves.

What they are grown from is in `sv_tree_rows`; how, in `path_growth` (ours) and `paper_paths`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from sklearn.utils import _safe_indexing

from svelto._inputs import n_rows_of
from svelto._threads import thread_count
from svelto._typing import FloatArray, IndexArray, IntArray
from svelto.cascade import settled_labels
from svelto.engines.leaf_models import sign_weights
from svelto.engines.packing import expand_rows
from svelto.engines.paper_paths import grow_paper
from svelto.engines.path_fit import Sample
from svelto.engines.path_growth import Growth, grow_refitted
from svelto.engines.sv_tree import DEFAULT_EVALS, SVTree, SVTreeOptions, Trust, ValueTree
from svelto.engines.sv_tree_rows import Material, Values, from_objects, from_vectors
from svelto.engines.taylor_tree import Progress, Scorer
from svelto.machine import KernelMachine
from svelto.path_tree import PathTree, as_they_are, flatten, unit_of

# linear="auto": with more features than this the fits take too long.
LINEAR_FEATURES: Final = 128
# Rows on a side of a test where oracle rows are to be had, and where not; rows of the paper's leaves.
MIN_ROWS, MIN_GIVEN_ROWS, PAPER_ROWS = 40, 10, 5
# A leaf's own errors count from this many rows on; the error of all leaves fills in.
PRIOR_ROWS: Final = 3.0


def build_sv_tree(
    machine: KernelMachine,
    X: Any,
    options: SVTreeOptions,
    score: Scorer,
    *,
    with_errors: bool,
    seed: int,
    n_jobs: int | None = None,
    progress: Progress = lambda step: None,
) -> SVTree:
    """Build the stage on dense rows that the machine's scaling was already applied to, or on objects."""
    progress("kernel values")
    gather = from_vectors if machine.kernel.has_native_code else from_objects
    material = gather(machine, X, options, score, with_errors, seed, n_jobs)
    n_scores = machine.n_scores
    progress("growing the tree")
    if n_scores == 1 or options.shared is True:
        return _grown(material, options, [list(range(n_scores))], seed, n_jobs)
    apart = [[p] for p in range(n_scores)]
    if options.shared is False:
        return _grown(material, options, apart, seed, n_jobs)
    limit = options.max_evals or (None if options.tree == "paper" else DEFAULT_EVALS)
    share = None if limit is None else max(1, limit // n_scores)
    one = _grown(material, replace(options, max_evals=limit), [list(range(n_scores))], seed, n_jobs, keep=True)
    several = _grown(material, replace(options, max_evals=share), apart, seed, n_jobs)
    return min((one, several), key=lambda stage: _disagreement(stage, material, n_jobs))


def _disagreement(stage: SVTree, material: Material, n_jobs: int | None) -> float:
    """Share of other labels than the machine's on rows that nothing was fitted to; for regressors the mean square."""
    machine, exact = material.machine, material.show_scores
    found = stage.scores(material.show, n_jobs)[0]
    if machine.task == "regression":
        return float(((found - exact) ** 2).mean())
    nothing = np.zeros_like(exact)
    return float((settled_labels(machine, found, nothing) != settled_labels(machine, exact, nothing)).mean())


def _grown(
    material: Material,
    options: SVTreeOptions,
    groups: list[list[int]],
    seed: int,
    n_jobs: int | None,
    *,
    keep: bool = False,
) -> SVTree:
    """A tree for each group of scores; `keep`: the material is still needed."""
    trees = []
    for number, scores in enumerate(groups):
        # Growing reorders the rows of the values; the next tree needs them as they are.
        is_last = number == len(groups) - 1 and not keep
        values = material.grow.values if is_last else material.grow.values.copy()
        trees.append(_grow(material, values, options, scores, seed, n_jobs))
    machine, show = material.machine, material.show
    used = np.unique(np.concatenate([tree.columns for tree in trees]))
    vectors = _safe_indexing(material.vectors, used) if len(used) else material.vectors[:1]
    parts = []
    for grown, scores in zip(trees, groups, strict=True):
        tree = replace(grown, column=_renumbered(grown.column, used))
        own = machine if len(scores) == machine.n_scores else score_machine(machine, vectors)
        bare = Trust(*(np.full(tree.constant.shape, v) for v in (1.0, -np.inf, np.inf)))
        part = ValueTree(own, vectors, tree, bare, material.shift, material.stored)
        trust = _trust(part, material, scores, n_jobs)
        parts.append(ValueTree(own, vectors, tree, trust, material.shift, material.stored, material.reach))
    stage = SVTree(machine, parts, 0.0)
    stage.mean_evals = float(stage.evaluations(show, n_jobs).mean())
    return stage


def _renumbered(column: IntArray, used: IndexArray) -> IntArray:
    """Columns by their place among those in use; -1 stays."""
    if not len(used):
        return column
    return np.where(column >= 0, np.searchsorted(used, column), -1).astype(np.int32)


def _grow(
    material: Material, values: Values, options: SVTreeOptions, scores: list[int], seed: int, n_jobs: int | None
) -> PathTree:
    machine, rows, prune = material.machine, material.grow, material.prune
    threads, size = thread_count(n_jobs), unit_of(rows.scores[:, scores] - machine.intercept[scores])
    if options.tree == "paper":
        coef = np.array(expand_rows(machine, machine.dual_coef))[scores]
        # The tree of one pair has the support vectors of that pair.
        own = np.flatnonzero((coef != 0.0).any(axis=0))
        root = grow_paper(
            values if len(own) == machine.n_sv else np.ascontiguousarray(values[:, own]),
            material.unit / size * coef[:, own],
            (rows.scores[:, scores] - machine.intercept[scores]) / size,
            max_evals=options.max_evals,
            min_rows=options.min_rows or PAPER_ROWS,
            n_starts=options.n_starts,
            scale=options.scale,
            rng=np.random.default_rng([seed, 7]),
            n_threads=threads,
        )
        tree = flatten(root, len(scores))
        if len(own):
            tree = replace(tree, column=np.where(tree.column >= 0, own[tree.column], -1).astype(np.int32))
        tree = as_they_are(tree, material.mean, material.unit, np.empty(0), np.empty(0), size)
        return replace(tree, constant=tree.constant + machine.intercept[scores])
    default_rows = MIN_ROWS if machine.kernel.has_native_code else MIN_GIVEN_ROWS
    growth = Growth(
        options.max_evals or DEFAULT_EVALS,
        options.min_rows or default_rows,
        options.prior_rows,
        options.look_ahead,
        options.prune,
    )
    linear = _is_linear(options, rows.features.shape[1])
    mu, sd = _standard(rows.features[:, : rows.features.shape[1] if linear else 0])
    samples = [
        Sample(v, (r.features[:, : len(mu)] - mu) / sd, r.scores[:, scores] / size, r.weight)
        for v, r in ((values, rows), (prune.values, prune))
    ]
    root = grow_refitted(samples[0], samples[1], growth, seed, threads, material.prefixes)
    return as_they_are(flatten(root, len(scores)), material.mean, material.unit, mu, sd, size)


def _is_linear(options: SVTreeOptions, n_features: int) -> bool:
    return n_features > 0 and (options.linear is True or (options.linear == "auto" and n_features <= LINEAR_FEATURES))


def _standard(features: FloatArray) -> tuple[FloatArray, FloatArray]:
    sd = features.std(axis=0)
    return features.mean(axis=0), np.where(sd > 0.0, sd, 1.0)


def score_machine(machine: KernelMachine, vectors: Any) -> KernelMachine:
    """The kernel and scaling of a machine, with one score that is a value."""
    n = n_rows_of(vectors)
    return KernelMachine(
        kernel=machine.kernel,
        support_vectors=vectors,
        dual_coef=np.zeros((1, n)),
        intercept=np.zeros(1),
        task="regression",
        rule="value",
        n_features=machine.n_features,
        scaling=machine.scaling,
        front=machine.front,
    )


def _trust(part: ValueTree, material: Material, scores: list[int], n_jobs: int | None) -> Trust:
    """Error scales of the leaves, and the range of the machine's scores in them."""
    trace = part.trace(material.show, n_jobs)
    exact, leaf, n_leaves = material.show_scores[:, scores], trace.leaf, part.tree.n_leaves
    weight = sign_weights(exact, material.machine.task != "regression")
    squares = weight * (exact - trace.scores) ** 2
    overall = squares.sum(axis=0) / weight.sum(axis=0)
    total = np.column_stack([np.bincount(leaf, w, minlength=n_leaves) for w in weight.T])
    sums = np.column_stack([np.bincount(leaf, s, minlength=n_leaves) for s in squares.T])
    error = np.sqrt((sums + PRIOR_ROWS * overall) / (total + PRIOR_ROWS))
    error = np.maximum(error, 1e-7 * np.maximum(np.abs(exact).max(axis=0), 1e-30))
    low, high = np.full(error.shape, np.inf), np.full(error.shape, -np.inf)
    np.minimum.at(low, leaf, exact)
    np.maximum.at(high, leaf, exact)
    empty = low > high
    low, high = np.where(empty, exact.min(axis=0), low), np.where(empty, exact.max(axis=0), high)
    margin = 0.5 * (high - low) + 3.0 * error
    return Trust(error, low - margin, high + margin)
