"""A metric tree with a linear model in every leaf: one dot product a level, one for the score (Pham & Smeulders).

The tree cuts the rows at the hyperplane half-way between the two that are farthest apart, again and again. A leaf
holds the first-order Taylor expansion of the machine's scores at its centroid; with ``leaf_size=1`` that is the
paper's method. Leaves of many rows are cheaper to reach, and their models, fitted to the exact machine's own scores
on the leaf's rows and on rows made up between them, are better than a tangent at one point (`leaf_models`).

Invariant: a row's leaf, score and error scale do not depend on the batch, the threads or the instruction set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from svelto import _core
from svelto._inputs import Query
from svelto._options import check_choice, check_whole
from svelto._threads import thread_count
from svelto._typing import FloatArray, IntArray
from svelto.engines.arrays import aligned, aligned_zeros, as_aligned, padded_rows, padded_width
from svelto.engines.exact import instruction_level
from svelto.engines.gradient import DIFFERENTIABLE, values_and_gradients
from svelto.engines.leaf_models import FIT_SHARE, RIDGE, error_scales, reaches, refine, sign_weights
from svelto.engines.native_stage import stage_labels, stage_scores
from svelto.engines.packing import RULE_CODES, add_scaling, breaks_ties
from svelto.guard import Guard
from svelto.machine import KernelMachine
from svelto.oracle import Neighbourhoods, oracle_rows

# Gradients held at a time while a tree is built (float64): 160 MB.
GRADIENT_VALUES: Final = 20_000_000
DEFAULT_BYTES: Final = 256 * 2**20
# Nodes of at most this many rows look at all pairs.
EXACT_PAIRS: Final = 1024
# Least share of a node's rows on either side of its hyperplane.
LEAST_SHARE: Final = {"balanced": 0.25, "midpoint": 0.0, "median": 0.5}
# Rows walk by their stored features where at most this share of the features is not zero. Measured: d = 300 with 4 %
# gains a third, d = 123 with 11 % nothing.
STORED_SHARE: Final = 0.08
# Arrays that native code reads by whole vectors.
PACKED: Final = ("normals", "centres", "weights", "values", "base", "growth", "bias")

Progress = Callable[[str], None]
Scorer = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class TreeOptions:
    """Options of ``method="taylor_tree"``.

    Attributes
    ----------
    leaf_size : int, default=64
        Nodes with no more rows stay leaves; 1 is the paper's tree.
    fit : {"ridge", "taylor"}, default="ridge"
        "taylor": the expansion at the leaf's centroid. "ridge": fitted to the exact machine's scores around it.
    oracle_rows : int or "auto", default="auto"
        Rows made up between and around the given ones, for fitting leaves and measuring their errors.
    max_leaves, max_depth : int, optional
        Limits of the tree; where not all nodes may be split, the widest and fullest are.
    max_bytes : int, default=256 MiB
        Limit of the tree's arrays, leaves included.
    split : {"balanced", "midpoint", "median"}, default="balanced"
        Where the hyperplane stands between the two farthest rows: half-way ("midpoint", the paper's), at the median
        of the rows, or half-way but with at least a quarter of the rows on either side: shallower, nearly as tight.
    farthest : {"auto", "exact", "linear"}, default="auto"
        How the two are found: among all pairs, in a few sweeps, or by the size of the node.
    """

    leaf_size: int = 64
    fit: Literal["ridge", "taylor"] = "ridge"
    oracle_rows: int | Literal["auto"] = "auto"
    max_leaves: int | None = None
    max_depth: int | None = None
    max_bytes: int = DEFAULT_BYTES
    split: Literal["balanced", "midpoint", "median"] = "balanced"
    farthest: Literal["auto", "exact", "linear"] = "auto"

    def __post_init__(self) -> None:
        for name, smallest in (("leaf_size", 1), ("max_leaves", 1), ("max_depth", 1), ("max_bytes", 1)):
            value = getattr(self, name)
            if not (value is None and name in ("max_leaves", "max_depth")):
                check_whole(name, value, smallest)
        if self.oracle_rows != "auto":
            check_whole("oracle_rows", self.oracle_rows, 0, " or 'auto'")
        check_choice("fit", self.fit, ("ridge", "taylor"))
        check_choice("split", self.split, tuple(LEAST_SHARE))
        check_choice("farthest", self.farthest, ("auto", "exact", "linear"))


class Tree(NamedTuple):
    """A metric tree as arrays: node 0 is the root, leaf l stands as the child ~l."""

    normals: np.ndarray[Any, np.dtype[np.float32]]
    offsets: np.ndarray[Any, np.dtype[np.float32]]
    children: IntArray


class Trace(NamedTuple):
    """Everything a stage knows about rows: scores and error scales (n, n_scores), and for trees where the row went."""

    scores: FloatArray
    errors: FloatArray
    sq_dist: FloatArray
    leaf: IntArray
    depth: IntArray


@dataclass
class TaylorTree:
    """A built tree: answers with scores and error scales, or with labels where it is sure.

    Attributes
    ----------
    machine : KernelMachine
        The machine it answers for.
    arrays : dict
        What native code reads.
    guard : Guard, optional
        Rows that it does not know are left open.
    """

    machine: KernelMachine
    arrays: dict[str, Any]
    name: str = "taylor_tree"
    guard: Guard | None = None
    _native: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for key in self.arrays.keys() & PACKED:
            self.arrays[key] = as_aligned(self.arrays[key], np.float32)
        if self.arrays["stored"] and "bias" not in self.arrays:
            self.arrays |= _for_stored_rows(self.arrays)
        shape = dict(self.arrays)
        add_scaling(shape, self.machine)
        if self.guard is not None:
            shape["guard"] = self.guard.in_single_precision(self.arrays["shift"])
        self._native = _core.TreeStage(shape, instruction_level())

    def __getstate__(self) -> dict[str, Any]:
        return {"machine": self.machine, "arrays": self.arrays, "name": self.name, "guard": self.guard}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.machine, self.arrays, self.name = state["machine"], dict(state["arrays"]), state["name"]
        self.guard = state["guard"]
        self.__post_init__()

    @property
    def tree(self) -> Tree:
        """The tree without its leaves, on the rows that the machine's scaling was applied to."""
        a, d = self.arrays, self.arrays["d"]
        normals = a["normals"][:, :d]
        # Rows are shifted before they are walked; the offsets here are for rows as they are.
        offsets = a["offsets"] - (normals.astype(np.float64) @ a["shift"]).astype(np.float32)
        return Tree(normals, offsets, a["children"])

    @property
    def native_part(self) -> Any:
        """Itself as a part of a native cascade."""
        return self._native

    @property
    def guards_itself(self) -> bool:
        """Whether rows that the guard does not know are left open."""
        return self.guard is not None

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return int(self.arrays["n_leaves"])

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(v.nbytes for v in self.arrays.values() if isinstance(v, np.ndarray))

    def settle(self, query: Query, caution: float, n_jobs: int | None = None) -> IntArray:
        """Labels in vote order where the score exceeds `caution` times its error scale, -1 elsewhere."""
        return stage_labels(self._native, query, caution, n_jobs)

    def trace(self, query: Query, n_jobs: int | None = None) -> Trace:
        """Scores, error scales, and where the rows went."""
        n, p = query.rows.shape[0], self.arrays["n_scores"]
        result = Trace(
            np.empty((n, p)), np.empty((n, p)), np.empty(n), np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
        )
        stage_scores(self._native, query, result, n_jobs)
        return result

    def scores(self, query: Query, n_jobs: int | None = None) -> tuple[FloatArray, FloatArray]:
        """Scores and error scales, each (n_rows, n_scores)."""
        trace = self.trace(query, n_jobs)
        return trace.scores, trace.errors

    def cost(self, query: Query, n_jobs: int | None = None) -> dict[str, float]:
        """Average depth of the rows' leaves, and dot products a row."""
        depth = float(self.trace(query, n_jobs).depth.mean())
        return {"depth_per_row": depth, "dot_products_per_row": depth + self.machine.n_scores}

    def operations(self) -> float:
        """Cost of one row, in multiply-adds of the exact engine's inner loop.

        Fitted to times on one core: a step of the walk costs about 500 of them (its sum is a chain of additions, and
        the next node is not known before it ends), reading and packing a row 2,000 and 20 a feature.
        """
        a = self.arrays
        depth = 1.2 * np.log2(max(self.n_leaves, 2))
        return float(500.0 * depth + 20.0 * a["stride"] + 2000.0 + a["d"] * a["padded"])


def _for_stored_rows(arrays: dict[str, Any]) -> dict[str, Any]:
    """What rows that walk by their stored features need: models that do not ask for x - c."""
    d, n_scores = arrays["d"], arrays["n_scores"]
    centres = arrays["centres"][:, :d].astype(np.float64)
    weights = arrays["weights"].astype(np.float64)
    if n_scores == 1:
        products = np.einsum("lk,lk->l", centres, weights[:, :d])[:, None]
    else:
        products = np.einsum("lk,lkp->lp", centres, weights)
    bias = arrays["values"].reshape(len(centres), -1) - products
    return {"bias": aligned(bias, np.float32), "centre_sq_norm": (centres**2).sum(axis=1).astype(np.float32)}


def check_kernel(machine: KernelMachine) -> None:
    """Refuse a kernel without a gradient."""
    if machine.kernel.name not in DIFFERENTIABLE:
        raise NotImplementedError(
            f"method='taylor_tree' needs a kernel with a gradient ({', '.join(DIFFERENTIABLE)}); this machine has "
            f"{machine.kernel}. Use method='exact'."
        )


def leaf_bytes(d: int, n_scores: int) -> int:
    """Bytes that one more leaf costs, its inner node included."""
    stride = padded_width(d)
    width = 1 if n_scores == 1 else padded_width(n_scores)
    models = stride if n_scores == 1 else d * width
    # Normal, centre and models; value, base and growth of each score; reach, offset and two children.
    return 4 * (2 * stride + models + 3 * width + 4)


def build_taylor_tree(
    machine: KernelMachine,
    X: FloatArray,
    options: TreeOptions,
    score: Scorer,
    *,
    with_errors: bool,
    seed: int,
    n_jobs: int | None = None,
    progress: Progress = lambda step: None,
    near: Neighbourhoods | None = None,
) -> TaylorTree:
    """Build the tree on dense rows that the machine's scaling was already applied to.

    Parameters
    ----------
    score : callable
        The exact machine's scores (n, n_scores) of dense rows.
    with_errors : bool
        Whether error scales are wanted; without them and with ``fit="taylor"`` no oracle row is needed.
    """
    d, n_scores = X.shape[1], machine.n_scores
    stored = bool(np.count_nonzero(X) <= STORED_SHARE * X.size)
    shift = np.zeros(d) if stored else X.mean(axis=0)
    centred = X - shift
    progress("metric tree")
    built = _grow(centred, options, n_scores, seed, n_jobs)
    start = built["leaf_start"]
    n_leaves = len(start) - 1
    ordered = centred[built["order"]]
    centres = np.add.reduceat(ordered, start[:-1], axis=0) / np.diff(start)[:, None]
    progress("scores and gradients at the leaves")
    values, weights = _expand(machine, centres + shift, n_jobs)
    arrays: dict[str, Any] = {
        **tree_numbers(machine, d, n_leaves),
        "normals": built["normals"],
        "offsets": built["offsets"],
        "children": built["children"],
        "shift": shift,
        "stored": stored,
        "reach": np.full(n_leaves, np.inf, dtype=np.float32),
    }

    def put(base: FloatArray, growth: FloatArray) -> TaylorTree:
        return TaylorTree(machine, {**arrays, **_pack(centres, weights, values, base, growth)})

    ones, zeros = np.ones((n_leaves, n_scores)), np.zeros((n_leaves, n_scores))
    if options.fit == "taylor" and not with_errors:
        return put(ones, zeros)
    rng = np.random.default_rng(seed)
    progress("scores of oracle rows")
    rows = oracle_rows(machine, X, options.oracle_rows, seed, rng, n_jobs, near=near)
    exact = score(rows)
    taylor = put(ones, zeros).trace(Query(rows), n_jobs)
    importance = sign_weights(exact, machine.task != "regression")
    fitted = rng.random(len(rows)) < FIT_SHARE
    residuals = exact - taylor.scores
    if options.fit == "ridge":
        progress("leaf models")
        refine(
            weights,
            values,
            centres,
            rows[fitted] - shift,
            residuals[fitted],
            importance[fitted] if n_scores == 1 else np.ones((int(fitted.sum()), 1)),
            taylor.leaf[fitted],
            RIDGE,
            n_jobs,
        )
        residuals = exact - put(ones, zeros).trace(Query(rows), n_jobs).scores
    held = ~fitted if (~fitted).any() else fitted
    base, growth = error_scales(residuals[held], importance[held], taylor.sq_dist[held], taylor.leaf[held], n_leaves)
    arrays["reach"] = reaches(taylor.sq_dist, taylor.leaf, n_leaves).astype(np.float32)
    return put(base, growth)


def tree_numbers(machine: KernelMachine, d: int, n_leaves: int) -> dict[str, Any]:
    """Sizes of a tree, and the rule of its machine, as native code reads them."""
    return {
        "d": d,
        "stride": padded_width(d),
        "n_inner": n_leaves - 1,
        "n_leaves": n_leaves,
        "rule": RULE_CODES["sign" if machine.task == "outlier" else machine.rule],
        "n_scores": machine.n_scores,
        "n_classes": machine.n_classes,
        "break_ties": breaks_ties(machine),
        "padded": 0 if machine.n_scores == 1 else padded_width(machine.n_scores),
    }


def _grow(centred: FloatArray, options: TreeOptions, n_scores: int, seed: int, n_jobs: int | None) -> dict[str, Any]:
    n, d = centred.shape
    affordable = max(1, (options.max_bytes - 8 * d) // leaf_bytes(d, n_scores))
    max_leaves = min(affordable, n if options.max_leaves is None else options.max_leaves)
    exact_pairs = {"auto": EXACT_PAIRS, "exact": n, "linear": 1}[options.farthest]
    return _core.build_tree(
        padded_rows(centred),
        options.leaf_size,
        max_leaves,
        options.max_depth or 0,
        exact_pairs,
        LEAST_SHARE[options.split],
        seed,
        thread_count(n_jobs),
        instruction_level(),
    )


def _expand(machine: KernelMachine, centres: FloatArray, n_jobs: int | None) -> tuple[FloatArray, FloatArray]:
    """Values (L, P) and gradients (L, P, d) at the leaves, the gradients in float32 where float64 would be large."""
    n, d = centres.shape
    values = np.empty((n, machine.n_scores))
    many = n * machine.n_scores * d > GRADIENT_VALUES
    weights = np.empty((n, machine.n_scores, d), dtype=np.float32 if many else np.float64)
    step = max(1, GRADIENT_VALUES // (machine.n_scores * d))
    for start in range(0, n, step):
        block = slice(start, start + step)
        values[block], weights[block] = values_and_gradients(machine, centres[block], n_jobs)
    return values, weights


def _pack(
    centres: FloatArray, weights: FloatArray, values: FloatArray, base: FloatArray, growth: FloatArray
) -> dict[str, Any]:
    n_leaves, n_scores, d = weights.shape
    if n_scores == 1:
        packed = {"weights": padded_rows(weights[:, 0]), "values": values, "base": base, "growth": growth}
    else:
        width = padded_width(n_scores)
        columns = aligned_zeros((n_leaves, d, width), np.float32)
        columns[:, :, :n_scores] = np.swapaxes(weights, 1, 2)
        packed = {"weights": columns}
        for name, array in (("values", values), ("base", base), ("growth", growth)):
            packed[name] = padded_rows(array)
    return {"centres": padded_rows(centres), **packed}
