"""The exact engine with lists in front: rows stop early where the rest of the sum cannot change their label.

Invariant: labels are those of the exact engine, whichever list a row walked and wherever it stopped.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any, Final

import numpy as np
from scipy import sparse

from svelto import _core
from svelto._inputs import Query
from svelto._typing import FloatArray, IntArray
from svelto.cascade import settled_labels
from svelto.engines.arrays import aligned
from svelto.engines.exact import PRECISION_CODES, ExactEngine, Precision, Tally, _check_outcome, prefers_postings
from svelto.engines.packing import PAIR_CODES, Grouping
from svelto.engines.panel_lists import (
    LARGEST_REFERENCE_ERROR,
    WIDTH,
    build_lists,
    end_widths,
    neighbouring_groups,
    reference_error,
    to_packed,
)
from svelto.machine import KernelMachine
from svelto.oracle import SHIFT_STEP, Neighbourhoods

# One list for this many panels' worth of vectors, and never more than so many: finding a row's region must stay cheap.
VECTORS_PER_LIST: Final = 32
MOST_LISTS: Final = 256
# Rows that place the centres, and rows that each list is tried on.
PLACING_ROWS: Final = 20_000
TRIAL_ROWS: Final = 4_000
# Lists are built if on this many rows this share could be settled at their end.
PILOT_ROWS: Final = 24
PROMISING: Final = 0.1
# A list is walked if it costs less than this share of the whole sum, found on the trial rows.
WORTHWHILE: Final = 0.8
# ... and all of them together if they take less than this share of its time, in so many runs each.
FASTER: Final = 0.95
TRIAL_RUNS: Final = 3
# Where more of a list's rows than this end in float64, they all start there.
IN_DOUBLE: Final = 0.6
# Up to so many features a difference costs little more than a product.
FEW_FEATURES: Final = 8
LARGEST_NUMBER: Final = 1e15
# What a pickle keeps beside the machine.
KEPT: Final = ("_order", "_form", "lists", "enabled", "share")
# Of the lists, what is a number.
LISTS_NUMBERS: Final = ("n_lists", "n_chunks", "n_levels", "check_cost")
PAIR_NAMES: Final = {code: name for name, code in PAIR_CODES.items()}
# Fewer panels than this leave nothing to stop early.
LEAST_PANELS: Final = 16


class BlockedSum(ExactEngine):
    """Exact labels from partial sums in blocks.

    Parameters
    ----------
    machine : KernelMachine
        With an rbf, exponential or laplacian kernel.
    X : ndarray, optional
        Dense rows like those to come, as the machine sees them; default: made of the support vectors.
    n_lists : int, optional
        Regions with a list of their own.
    seed : int
        For clustering and made-up rows.
    precision : {"auto", "float32", "float64"}
        See `ExactEngine`.
    """

    def __init__(
        self,
        machine: KernelMachine,
        X: FloatArray | None = None,
        n_lists: int | None = None,
        seed: int = 0,
        precision: Precision = "auto",
    ) -> None:
        self._order: Grouping | None = None
        self._form: str | None = None
        if not prefers_postings(machine):
            # What overflows here makes a bad order, which costs time and nothing else.
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                self._order = neighbouring_groups(machine)
        super().__init__(machine, precision)
        self.lists: dict[str, Any] | None = None
        self.enabled: np.ndarray[Any, np.dtype[np.uint8]] = np.zeros(0, dtype=np.uint8)
        self.share = 1.0  # of the panels that rows are expected to sum
        if self.first_tier == "float32" and self._fields["n_panels_f32"] >= LEAST_PANELS:
            self._build_lists(X, n_lists, seed)

    def _single_pairs(self) -> tuple[str, ...]:
        """Differences first where features are few: they cost little more there and round far less near a row."""
        if self._form is not None:
            return (self._form,)
        forms = super()._single_pairs()
        return forms[::-1] if self.machine.support_vectors.shape[1] <= FEW_FEATURES else forms

    def _grouping(self) -> Grouping | None:
        return self._order

    @np.errstate(over="ignore", under="ignore", invalid="ignore")
    def _build_lists(self, X: FloatArray | None, n_lists: int | None, seed: int) -> None:
        machine, rng = self.machine, np.random.default_rng(seed)
        rows = _made_rows(machine, seed, rng) if X is None else X
        # Rows whose squares would overflow say nothing about where rows are; no list will answer for them.
        rows = rows[np.abs(to_packed(self._fields, rows)).max(axis=1) < LARGEST_NUMBER]
        if len(rows) < 2 or reference_error(machine) > LARGEST_REFERENCE_ERROR:
            return
        placing = rows[rng.permutation(len(rows))[:PLACING_ROWS]]
        wanted = int(np.clip(machine.n_sv // VECTORS_PER_LIST, 1, MOST_LISTS)) if n_lists is None else n_lists
        assert self._order is not None
        if n_lists is None and not self._is_promising(placing, wanted):
            return
        self._form = PAIR_NAMES[self._fields["pair_f32"]]
        self.lists = build_lists(machine, self._fields, self._order, placing, wanted, seed)
        self._native.set_lists(self.lists)
        self.enabled = np.ones(self.lists["n_lists"], dtype=np.uint8)
        # Training rows are nearer to centres and support vectors than rows to come: trial rows are moved a little.
        trial = rows if X is None else Neighbourhoods(placing, seed).shifted(TRIAL_ROWS, SHIFT_STEP, rng)
        trial = np.ascontiguousarray(trial[:TRIAL_ROWS])
        self._try_lists(trial)
        # A number of lists that somebody asked for is only judged by count, which does not depend on the day.
        if self.share > WORTHWHILE or (n_lists is None and not self._is_faster(trial)):
            self.enabled[:] = 0
            self.share = 1.0

    def _is_promising(self, rows: FloatArray, n_lists: int) -> bool:
        """Whether lists would settle any rows to speak of; a look at a few rows, long before lists are built."""
        assert self._order is not None
        samples = np.arange(min(PILOT_ROWS, max(len(rows) - 1, 0)))
        if len(samples) == 0:
            return False
        widths = end_widths(self.machine, self._fields, self._order, rows, n_lists, samples)
        scores = self.scores(Query(np.ascontiguousarray(rows[samples])))
        return bool((settled_labels(self.machine, scores, widths) >= 0).mean() >= PROMISING)

    def _try_lists(self, rows: FloatArray) -> None:
        """Keep the lists that pay on the trial rows."""
        counts = self._counts()
        self._bounded(rows, np.empty(len(rows), dtype=np.int32), counts, False, None)
        n_panels = int(self._fields["n_panels_f32"])
        n, settled, single, double, in_double, checks = counts.T
        assert self.lists is not None
        panels = single + _core.DOUBLE_COST * double + self.lists["check_cost"] * checks
        whole = np.maximum((n + _core.DOUBLE_COST * in_double) * n_panels, 1.0)
        cost = panels / whole + (n - settled) / np.maximum(n, 1)
        self.enabled = (cost < WORTHWHILE).astype(np.uint8)
        self.enabled[(cost < WORTHWHILE) & (in_double > IN_DOUBLE * n)] = 2  # float32 first would be in vain
        on = self.enabled > 0
        self.share = float((whole * np.where(on, cost, 1.0)).sum() / whole.sum())

    def _is_faster(self, rows: FloatArray) -> bool:
        """Whether lists pay in time as well as by count: the least of a few runs each, in turn, on one thread."""
        query, times = Query(rows), np.empty((TRIAL_RUNS, 2))
        for run in times:
            started = perf_counter()
            super().labels(query, 1)
            between = perf_counter()
            self.labels(query, 1)
            run[:] = between - started, perf_counter() - between
        whole, bounded = times.min(axis=0)
        return bool(bounded < FASTER * whole)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), **{name: self.__dict__[name] for name in KEPT}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name in KEPT:
            self.__dict__[name] = state[name]
        super().__setstate__(state)  # with the form that the lists were made for: their distances are in its units
        if self.first_tier != "float32":
            # On this processor float32 settles too little of this machine.
            self.lists, self.enabled, self.share = None, np.zeros(0, dtype=np.uint8), 1.0
        if self.lists is not None:
            # A pickle forgets how its arrays were aligned.
            self.lists |= {name: aligned(self.lists[name]) for name in ("centre_panels", "centre_const")}
            self._native.set_lists(self.lists)

    @property
    def is_bounding(self) -> bool:
        """Whether any list is worth walking."""
        return bool(self.enabled.any())

    @property
    def nbytes(self) -> int:
        """Bytes of the packed arrays and of the lists."""
        lists = {} if self.lists is None else self.lists
        return super().nbytes + sum(v.nbytes for v in lists.values() if isinstance(v, np.ndarray))

    def predict_one_block(self, X: np.ndarray[Any, Any]) -> IntArray | None:
        """Labels of a small, already checked float array on this thread; None where a row cannot be read."""
        if not self.is_bounding:
            return super().predict_one_block(X)
        out: IntArray = np.empty(X.shape[0], dtype=np.int32)
        outcome = self._bounded(X, out, self._counts(), True, 1)[2]
        return out if outcome[3] < 0 else None

    def labels(self, query: Query, n_jobs: int | None = None) -> tuple[IntArray, Tally]:
        """Label of each row in vote order (outliers: 1 or 0), and which tiers it took."""
        X, scale = query
        if not self.is_bounding or (sparse.issparse(X) and self.share > _stored_cost(X)):
            return super().labels(query, n_jobs)
        out: IntArray = np.empty(X.shape[0], dtype=np.int32)
        tally, counts = BoundedTally(), self._counts()
        for start, part in self._parts(X):
            to = out[start : start + part.shape[0]]
            settled, panels, outcome = self._bounded(part, to, counts, scale, n_jobs)
            _check_outcome(outcome, X, start)
            tally.add(outcome)
            tally.bounded += settled
            tally.vectors += panels * WIDTH
        tally.centres = float(len(self.enabled))
        return out, tally

    def _counts(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.zeros((len(self.enabled), _core.LIST_COUNTS), dtype=np.int64)

    def _bounded(self, part: Any, out: IntArray, counts: Any, scale: bool, n_jobs: int | None) -> Any:
        code, threads = PRECISION_CODES[self.first_tier], self._threads(part, n_jobs)
        if sparse.issparse(part):
            arrays = part.data, part.indices, part.indptr
            return self._native.bounded_csr(*arrays, out, self.enabled, counts, code, threads)
        return self._native.bounded_dense(part, out, self.enabled, counts, code, scale, threads)


class BoundedTally(Tally):
    """Also rows that a bound settled, and the support vectors (padding included) that rows in lists summed."""

    bounded: int = 0
    vectors: int = 0
    centres: float = 0.0  # distances a row to find its region

    def work(self, machine: KernelMachine) -> dict[str, Any]:
        """What the rows cost."""
        n = self.bounded + self.float32 + self.float64 + self.reference
        stages = {name: getattr(self, name) / n for name in ("bounded", "float32", "float64", "reference")}
        evaluations = (self.vectors + machine.n_sv * self.passes) / n
        return {
            "rows": n,
            "stages": stages,
            "kernel_evaluations_per_row": evaluations,
            "dot_products_per_row": self.centres,
        }


def _made_rows(machine: KernelMachine, seed: int, rng: np.random.Generator) -> FloatArray:
    """Support vectors, moved as they differ from their neighbours: the rows that a machine alone can tell of."""
    vectors = machine.support_vectors
    dense = vectors.toarray() if sparse.issparse(vectors) else np.asarray(vectors)
    if len(dense) < 3:
        return np.array(dense)
    return Neighbourhoods(np.ascontiguousarray(dense), seed).shifted(max(2 * len(dense), 4000), SHIFT_STEP, rng)


def _stored_cost(X: Any) -> float:
    """What the exact engine's sum over stored features costs, as a share of one over all features."""
    filled = X.nnz / max(X.shape[0] * X.shape[1], 1)
    return 1.0 if filled >= 0.5 else (filled * X.shape[1] + 16.0) / (X.shape[1] + 16.0)
