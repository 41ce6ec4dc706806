"""The support vector tree (paper S1, approximate): some ten kernel values a row, chosen by the row itself.

A row walks a binary tree. At a node one kernel value is evaluated, a value on the path decides where to go on, and the
leaf makes a score of all values on the path (`path_tree`). Only kernel values are used, so the rows may be anything
that the kernel takes: vectors, strings, graphs. Trees are grown in `sv_tree_build`.

The error scale of a score is the root mean square error of its leaf, seen on rows that had no part in fitting it; it
is infinite for scores far outside the range that the machine has in that leaf, and for vectors far outside the data.

Invariant: no row costs more than `max_evals` kernel values for each tree, and its answer depends on the row alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from sklearn.utils import _safe_indexing

from svelto import _core
from svelto._inputs import Query, n_rows_of
from svelto._options import check_choice, check_positive, check_whole
from svelto._typing import FloatArray, IndexArray, IntArray, Rows
from svelto.engines.exact import instruction_level
from svelto.engines.native_stage import stage_labels, stage_scores
from svelto.engines.path_arrays import pack_paths
from svelto.machine import KernelMachine
from svelto.path_tree import Fetch, PathTree

DEFAULT_EVALS: Final = 10
# Scores of a tree as the paper grows it, beyond which its sums would not fit the caches.
MOST_SHARED: Final = 1024


@dataclass(frozen=True)
class SVTreeOptions:
    """Options of ``method="sv_tree"``.

    Attributes
    ----------
    tree : {"refitted", "paper"}, default="refitted"
        "refitted": every leaf has its own coefficients for all values on its path. "paper": the greedy tree of the
        paper, whose coefficients are fixed when a column is chosen.
    max_evals : int, optional
        Largest number of kernel values on a path. Default: 10; for "paper" no limit.
    min_rows : int, optional
        "refitted": least number of rows on either side of a test; default 40, or 10 for rows that none can be made of
        (a Python kernel). "paper": nodes with no more rows are leaves; default 5.
    linear : {"auto", True, False}, default="auto"
        Whether leaves add a linear term in the features. "auto": for kernels on vectors, up to 128 features.
    candidates : {"auto", "support_vectors"}, default="auto"
        Vectors to evaluate the kernel with. "auto" adds, for the rbf kernel, the vectors of a reduced set.
    shared : {"auto", True, False}, default=True
        Machines with several scores: one tree for all of them, a tree for each, or what disagrees less with the
        machine within the same number of kernel values.
    prior_rows : float, default=20.0
        "refitted": rows that a parent's coefficients count for in its children.
    look_ahead : int, default=4
        "refitted": tests that are compared by what the next column would leave.
    prune : bool, default=True
        "refitted": whether subtrees that held-out rows do not profit from are cut off.
    n_starts : int, default=3
        "paper": random thresholds that the search for a split starts from.
    scale : bool, default=True
        "paper": whether columns are scaled (section 4.3).
    oracle_rows : int or "auto", default="auto"
        "refitted": rows made up between and around the given ones, for kernels on vectors.
    """

    tree: Literal["refitted", "paper"] = "refitted"
    max_evals: int | None = None
    min_rows: int | None = None
    linear: bool | Literal["auto"] = "auto"
    candidates: Literal["auto", "support_vectors"] = "auto"
    shared: bool | Literal["auto"] = True
    prior_rows: float = 20.0
    look_ahead: int = 4
    prune: bool = True
    n_starts: int = 3
    scale: bool = True
    oracle_rows: int | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        check_choice("tree", self.tree, ("refitted", "paper"))
        check_choice("candidates", self.candidates, ("auto", "support_vectors"))
        for name in ("max_evals", "min_rows"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1, " or None")
        for name in ("look_ahead", "n_starts"):
            check_whole(name, getattr(self, name), 1)
        check_positive("prior_rows", self.prior_rows)
        for name in ("linear", "shared"):
            if not isinstance(getattr(self, name), bool) and getattr(self, name) != "auto":
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected True, False or 'auto'.")
        for name in ("prune", "scale"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected True or False.")
        if self.oracle_rows != "auto":
            check_whole("oracle_rows", self.oracle_rows, 0, " or 'auto'")
        self._check_belonging()

    def _check_belonging(self) -> None:
        """Refuse options of the other kind of tree: they would be ignored."""
        others = {"paper": ("prior_rows", "look_ahead", "prune"), "refitted": ("n_starts", "scale")}
        defaults = {field.name: field.default for field in fields(self)}
        for name in others[self.tree]:
            if getattr(self, name) != defaults[name]:
                raise ValueError(f"{name} is {getattr(self, name)!r}, but tree={self.tree!r} has no such option.")


class Trust(NamedTuple):
    """What is known about the scores of a tree's leaves; each (n_leaves, n_scores).

    Attributes
    ----------
    error : ndarray
        Error scale.
    low, high : ndarray
        Scores outside are unlike those of the leaf.
    """

    error: FloatArray
    low: FloatArray
    high: FloatArray


class TreeTrace(NamedTuple):
    """Everything a tree knows about rows: scores and error scales (n, n_scores), leaf and kernel values of each row."""

    scores: FloatArray
    errors: FloatArray
    leaf: IntArray
    evaluations: IntArray


@dataclass
class ValueTree:
    """One tree of kernel values, on vectors (native code) or on any objects.

    Attributes
    ----------
    machine : KernelMachine
        The machine whose kernel and scaling it uses; its rule too, where the tree has all scores.
    vectors : array or sequence
        What the columns of the tree stand for; of a precomputed kernel the column numbers.
    tree : PathTree
        The tree; slopes are for rows as the kernel sees them.
    trust : Trust
        Error scales of its leaves.
    shift : ndarray of shape (n_features,) or None
        Taken off rows before they become float32.
    reach : float
        Largest squared distance from `shift` of a row that is like those of the leaves (vectors).
    """

    machine: KernelMachine
    vectors: Any
    tree: PathTree
    trust: Trust
    shift: FloatArray | None = None
    stored: bool = False
    reach: float = np.inf
    native: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.native = None
        if self.machine.kernel.has_native_code:
            t = self.tree
            packed = pack_paths(
                self.machine,
                t.column,
                t.test,
                t.threshold,
                t.children,
                t.coef,
                t.constant,
                t.slope,
                *self.trust,
                np.zeros(self.vectors.shape[1]) if self.shift is None else self.shift,
                self.stored,
                self.vectors,
                self.reach,
            )
            self.native = _core.PathStage(packed, instruction_level())

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "native"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    @property
    def nbytes(self) -> int:
        """Bytes of tree and vectors."""
        return self.tree.nbytes + sum(a.nbytes for a in self.trust) + int(getattr(self.vectors, "nbytes", 0))

    def trace(self, query: Query, n_jobs: int | None = None, fetch: Fetch | None = None) -> TreeTrace:
        """Scores, error scales, and where the rows went; `fetch` gives kernel values of objects, shared by trees."""
        if self.native is None:
            return self._trace_objects(query.rows, fetch)
        n, p = query.rows.shape[0], self.tree.n_scores
        result = TreeTrace(np.empty((n, p)), np.empty((n, p)), np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32))
        stage_scores(self.native, query, result, n_jobs)
        return result

    def _trace_objects(self, rows: Rows, fetch: Fetch | None) -> TreeTrace:
        walk = self.tree.walk(fetch or kernel_column(self.machine, rows, self.vectors), n_rows_of(rows))
        scores = self.tree.scores(walk)
        errors = self.trust.error[walk.leaf].copy()
        inside = (scores >= self.trust.low[walk.leaf]) & (scores <= self.trust.high[walk.leaf])
        errors[~inside] = np.inf
        return TreeTrace(scores, errors, walk.leaf, walk.evaluations)


def kernel_column(machine: KernelMachine, rows: Rows, vectors: Any) -> Fetch:
    """fetch(rows, column) for any kernel: values of some rows with one vector."""
    whole = np.arange(n_rows_of(rows))

    def fetch(which: IndexArray, column: int) -> FloatArray:
        part = rows if len(which) == len(whole) else _safe_indexing(rows, which)
        one = vectors[column : column + 1]
        values = np.asarray(machine.kernel(part, one), dtype=np.float64)
        if values.shape != (len(which), 1):
            raise ValueError(
                f"The kernel function returned an array of shape {values.shape} for {len(which)} rows and 1 support "
                f"vector; expected {(len(which), 1)}."
            )
        if not np.isfinite(values).all():
            row = int(which[np.flatnonzero(~np.isfinite(values))[0]])
            raise ValueError(f"The kernel value of row {row} is not finite; expected finite numbers.")
        return values[:, 0]

    return fetch


def remembered(fetch: Fetch, n_rows: int) -> Fetch:
    """The same values, each asked for once: trees of several scores may meet the same columns."""
    known: dict[int, FloatArray] = {}

    def ask(which: IndexArray, column: int) -> FloatArray:
        values = known.setdefault(column, np.full(n_rows, np.nan))
        new = which[np.isnan(values[which])]
        if len(new):
            values[new] = fetch(new, column)
        return values[which]

    return ask


@dataclass
class SVTree:
    """The stage: one tree for all scores, or a tree for each.

    Attributes
    ----------
    machine : KernelMachine
        The machine it answers for.
    parts : list of ValueTree
        One, or one for each score.
    mean_evals : float
        Kernel values a row, measured while building.
    """

    machine: KernelMachine
    parts: list[ValueTree]
    mean_evals: float
    name: str = "sv_tree"

    @property
    def nbytes(self) -> int:
        """Bytes of the trees."""
        return sum(part.nbytes for part in self.parts)

    @property
    def n_leaves(self) -> int:
        """Leaves of all trees."""
        return sum(part.tree.n_leaves for part in self.parts)

    def settle(self, query: Query, caution: float, n_jobs: int | None = None) -> IntArray:
        """Labels in vote order where the score exceeds `caution` times its error scale, -1 elsewhere."""
        from svelto.cascade import settled_labels

        if self._is_native:
            return stage_labels(self.parts[0].native, query, caution, n_jobs)
        scores, errors = self.scores(query, n_jobs)
        return settled_labels(self.machine, scores, caution * errors if caution > 0.0 else np.zeros_like(errors))

    def scores(self, query: Query, n_jobs: int | None = None) -> tuple[FloatArray, FloatArray]:
        """Scores and error scales, each (n_rows, n_scores)."""
        traces = self._traces(query, n_jobs)
        return np.hstack([t.scores for t in traces]), np.hstack([t.errors for t in traces])

    def _traces(self, query: Query, n_jobs: int | None) -> list[TreeTrace]:
        fetch = None
        if len(self.parts) > 1 and not self.machine.kernel.has_native_code:
            fetch = kernel_column(self.machine, query.rows, self.parts[0].vectors)
            fetch = remembered(fetch, n_rows_of(query.rows))
        return [part.trace(query, n_jobs, fetch) for part in self.parts]

    def evaluations(self, query: Query, n_jobs: int | None = None) -> IntArray:
        """Different kernel values that each row needs; a value that several trees ask for is counted once."""
        traces = self._traces(query, n_jobs)
        if len(traces) == 1:
            return traces[0].evaluations
        asked = np.hstack([part.tree.leaf_columns[trace.leaf] for part, trace in zip(self.parts, traces, strict=True)])
        asked.sort(axis=1)
        new = np.diff(asked, axis=1, prepend=-1) > 0
        return np.asarray((new & (asked >= 0)).sum(axis=1), dtype=np.int32)

    def cost(self, query: Query, n_jobs: int | None = None) -> dict[str, float]:
        """Kernel evaluations and dot products a row."""
        linear = sum(part.tree.slope is not None for part in self.parts) * self.parts[0].tree.n_scores
        return {
            "kernel_evaluations_per_row": float(self.evaluations(query, n_jobs).mean()),
            "dot_products_per_row": float(linear),
        }

    def operations(self) -> float:
        """Cost of one row, in multiply-adds of the exact engine's inner loop; in kernel values for other kernels.

        A step and the reading of a row cost what they cost in the metric tree.
        """
        if not self.machine.kernel.has_native_code:
            return self.mean_evals
        width = self.machine.support_vectors.shape[1]
        return float(self.mean_evals * (500.0 + width) + 2000.0 + 20.0 * width)

    @property
    def native_part(self) -> Any:
        """Itself as a part of a native cascade; None where kernel values or votes are Python's."""
        return self.parts[0].native if self._is_native else None

    @property
    def _is_native(self) -> bool:
        return len(self.parts) == 1 and self.machine.kernel.has_native_code


def check_served(machine: KernelMachine, options: SVTreeOptions) -> None:
    """Refuse machines and options that the method cannot serve."""
    kernel = machine.kernel
    if kernel.name == "linear":
        raise NotImplementedError(
            "method='sv_tree' saves kernel values; a linear machine needs none, one product a score is its answer. Use "
            "method='exact'."
        )
    if options.linear is True and not kernel.has_native_code:
        raise ValueError(f"linear=True needs rows of features; a {kernel.name} kernel has none. Use linear='auto'.")
    if options.tree == "paper" and options.shared is not False and machine.n_scores > MOST_SHARED:
        raise NotImplementedError(
            f"tree='paper' shares one tree among at most {MOST_SHARED} scores; this machine has {machine.n_scores}. "
            "Use shared=False or tree='refitted'."
        )
    if options.tree == "paper" and options.linear is True:
        raise ValueError("linear=True belongs to tree='refitted'; the paper's tree has kernel values alone.")
