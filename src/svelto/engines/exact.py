"""The exact engine: the whole sum, at the speed of the hardware, with the labels of the float64 machine.

Three tiers answer a row. The first is float32 arithmetic with a proven bound on its rounding; where the bound leaves
the label open, the row is done again in float64; where even that is within its own rounding of a tie, the sum is
repeated in LIBSVM's order of operations, which is the definition of the label. `docs/exactness.md` derives the bounds.

Invariant: a label never depends on the tier that gave it, hence not on batch size, row order, threads or instruction
set.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

import numpy as np
from scipy import sparse

from svelto import _core
from svelto._inputs import Query, as_floats, n_rows_of, raise_bad_row
from svelto._threads import thread_count
from svelto._typing import FloatArray, IndexArray, IntArray, Rows
from svelto.engines.packing import RULE_CODES, Grouping, breaks_ties, pack_machine
from svelto.engines.table_width import check_width
from svelto.machine import KernelMachine

# What a native call reports; see _core.pyi.
Outcome = tuple[int, int, int, int, int, int]
Precision = Literal["auto", "float32", "float64", "reference"]
PRECISION_CODES: Final = {"float32": 0, "float64": 1, "reference": 2}
LEVEL_VARIABLE: Final = "SVELTO_ISA"

# Python looks for Ctrl-C between native calls; one call does at most about this many operations (a second or two).
OPERATIONS_PER_CALL: Final = 4e10
# Below this many operations (some 50 to 200 microseconds) a second thread costs more than it brings.
OPERATIONS_PER_THREAD: Final = 2e6
# The float32 tier is kept if it settles at least this share of the probe rows.
USEFUL_SHARE: Final = 0.5
# Probe rows have at most this many numbers.
PROBE_NUMBERS: Final = 1 << 23
# float32 scores are good enough for decision_function if their error bound is below this share of the scores' spread.
SCORE_TOLERANCE: Final = 0.01


def instruction_level() -> str:
    """The instruction level in use: the best the CPU has, or the one that the variable SVELTO_ISA names."""
    levels: list[str] = _core.available_levels()
    asked = os.environ.get(LEVEL_VARIABLE)
    if not asked:
        return levels[-1]
    if asked not in levels:
        raise ValueError(f"{LEVEL_VARIABLE} is {asked!r}; this CPU and build offer {', '.join(levels)}.")
    return asked


@dataclass
class Tally:
    """Rows settled by each tier, and how often a whole row was evaluated."""

    float32: int = 0
    float64: int = 0
    reference: int = 0
    passes: int = 0

    def add(self, outcome: Outcome) -> None:
        """Add what one native call reports."""
        self.float32 += outcome[0]
        self.float64 += outcome[1]
        self.reference += outcome[2]
        self.passes += outcome[5]

    def work(self, machine: KernelMachine) -> dict[str, Any]:
        """What the rows cost."""
        n = self.float32 + self.float64 + self.reference
        linear = machine.kernel.name == "linear"
        return {
            "rows": n,
            "stages": {name: getattr(self, name) / n for name in ("float32", "float64", "reference")},
            # A tier that cannot settle a row has evaluated all its kernel values in vain.
            "kernel_evaluations_per_row": 0.0 if linear else machine.n_sv * self.passes / n,
            "dot_products_per_row": machine.n_scores * self.passes / n if linear else 0.0,
        }


class ExactEngine:
    """Vote indices and scores of a machine whose kernel has native code.

    Parameters
    ----------
    machine : KernelMachine
        The machine.
    precision : {"auto", "float32", "float64"}
        "auto": labels by tiers; scores in float32 for classifiers and outlier detectors where their bound is small
        against their spread, in float64 otherwise and for regressors. "float32" and "float64" fix the precision of
        scores; labels are the same in every case.
    """

    def __init__(self, machine: KernelMachine, precision: Precision = "auto") -> None:
        self.machine = machine
        self.precision = precision
        self.level = instruction_level()
        with _core.PlainArithmetic():
            self._build()

    # What overflows while packing has an infinite bound afterwards and is left to the next tier: nothing to warn of.
    @np.errstate(over="ignore", under="ignore", invalid="ignore")
    def _build(self) -> None:
        machine = self.machine
        check_width(machine)
        self.uses_postings = prefers_postings(machine)
        self.score_bound = 0.0  # largest bound on |float32 score - float64 score| among the probe rows
        self.first_tier: str = "float64"
        self.score_tier: str = "float64"
        grouping = self._grouping()
        self._fields = pack_machine(machine, single_pair=None, use_postings=self.uses_postings, grouping=grouping)
        self._native = _core.Engine(self._fields, self.level)
        if machine.kernel.name == "linear" or self.uses_postings or self.precision == "float64":
            return
        probe = _probe_rows(machine)
        best_share = 0.0
        for pair in self._single_pairs():
            fields = pack_machine(machine, single_pair=pair, use_postings=False, grouping=grouping)
            native = _core.Engine(fields, self.level)
            share, bound, spread = _try_single(native, probe, machine.n_scores)
            if share <= best_share and best_share > 0:
                continue
            if share >= USEFUL_SHARE or self.precision == "float32":
                best_share = share
                self._fields, self._native, self.score_bound = fields, native, bound
                self.first_tier = "float32"
                accurate = machine.rule != "value" or machine.task == "outlier"
                if self.precision == "float32" or (accurate and bound <= SCORE_TOLERANCE * spread):
                    self.score_tier = "float32"
            if share > 0.95:
                break  # the next form costs more for each feature and has little left to settle

    def _single_pairs(self) -> tuple[str, ...]:
        """Forms of the float32 tier, cheapest first."""
        return single_pairs(self.machine.kernel.name)

    def _grouping(self) -> Grouping | None:
        """Another order of the packed vectors; None for the usual one."""
        return None

    @classmethod
    def from_packed(
        cls, machine: KernelMachine, precision: Precision, fields: dict[str, Any], tiers: tuple[str, str], bound: float
    ) -> Self:
        """An engine on arrays that were packed before, as a file has them: nothing is tried, nothing copied."""
        engine = cls.__new__(cls)
        engine.machine, engine.precision, engine.level = machine, precision, instruction_level()
        engine.uses_postings = fields["use_postings"]
        engine.first_tier, engine.score_tier = tiers
        engine.score_bound = bound
        engine._fields, engine._native = fields, _core.Engine(fields, engine.level)
        return engine

    # Native objects are made again from the machine: nothing but the machine needs to be stored.
    def __getstate__(self) -> dict[str, Any]:
        return {"machine": self.machine, "precision": self.precision}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.machine, self.precision = state["machine"], state["precision"]
        self.level = instruction_level()
        with _core.PlainArithmetic():
            self._build()

    @property
    def native_part(self) -> Any:
        """Itself as a part of a native cascade or stage."""
        return self._native

    @property
    def nbytes(self) -> int:
        """Bytes of the packed arrays, float64 originals included."""
        distinct = {id(v): v.nbytes for v in self._fields.values() if isinstance(v, np.ndarray)}
        return sum(distinct.values())

    def predict_one_block(self, X: np.ndarray[Any, Any]) -> IntArray | None:
        """Labels of a small, already checked float array on this thread; None where a row cannot be read."""
        out: IntArray = np.empty(X.shape[0], dtype=np.int32)
        outcome = self._native.predict_dense(X, out, PRECISION_CODES[self.first_tier], True, 1)
        return out if outcome[3] < 0 else None

    def labels(self, query: Query, n_jobs: int | None = None) -> tuple[IntArray, Tally]:
        """Label of each row in vote order (outliers: 1 or 0), and which tiers it took."""
        X, scale = query
        out: IntArray = np.empty(X.shape[0], dtype=np.int32)
        tally = Tally()
        code = PRECISION_CODES[self.first_tier]
        for start, part in self._parts(X):
            to, threads = out[start : start + part.shape[0]], self._threads(part, n_jobs)
            if sparse.issparse(part):
                outcome = self._native.predict_csr(part.data, part.indices, part.indptr, to, code, threads)
            else:
                outcome = self._native.predict_dense(part, to, code, scale, threads)
            _check_outcome(outcome, X, start)
            tally.add(outcome)
        return out, tally

    def scores(self, query: Query, n_jobs: int | None = None, precision: Precision = "auto") -> FloatArray:
        """Scores (n_rows, n_scores) with LIBSVM's signs, in vote order."""
        return self._scores(query, n_jobs, precision, with_bounds=False)[0]

    def bounded_scores(
        self, query: Query, n_jobs: int | None = None, precision: Precision = "auto"
    ) -> tuple[FloatArray, FloatArray]:
        """Scores, and the bound on the distance of each to the float64 machine's."""
        return self._scores(query, n_jobs, precision, with_bounds=True)

    def _scores(
        self, query: Query, n_jobs: int | None, precision: Precision, *, with_bounds: bool
    ) -> tuple[FloatArray, FloatArray]:
        X, scale = query
        shape = (X.shape[0], self.machine.n_scores)
        out = np.empty(shape)
        bounds = np.empty(shape if with_bounds else (0, 0))
        code = PRECISION_CODES[self.score_tier if precision == "auto" else precision]
        for start, part in self._parts(X):
            stop = start + part.shape[0]
            to, to_bounds = out[start:stop], bounds[start:stop] if with_bounds else bounds
            threads = self._threads(part, n_jobs)
            if sparse.issparse(part):
                outcome = self._native.scores_csr(part.data, part.indices, part.indptr, to, to_bounds, code, threads)
            else:
                outcome = self._native.scores_dense(part, to, to_bounds, code, scale, threads)
            _check_outcome(outcome, X, start)
        return out, bounds

    def work(self, query: Query, n_jobs: int | None = None) -> dict[str, Any]:
        """Share of rows settled by each tier, and operations a row."""
        return self.labels(query, n_jobs)[1].work(self.machine)

    def operations(self, n_rows: int) -> float:
        """Cost of so many rows, in multiply-adds of the inner loop."""
        machine = self.machine
        width = float(self._fields["d"])
        if machine.kernel.name == "linear":
            return n_rows * machine.n_scores * 2.0 * width
        return float(n_rows * machine.n_sv * (width + 16.0 + machine.dual_coef.shape[0]))

    def _threads(self, part: Rows, n_jobs: int | None) -> int:
        useful = int(self.operations(part.shape[0]) / OPERATIONS_PER_THREAD) + 1
        return 1 if useful == 1 else min(thread_count(n_jobs), useful)

    def _parts(self, X: Rows) -> Iterator[tuple[int, Rows]]:
        """X in pieces of bounded work, converted to floats piece by piece."""
        step = int(np.clip(OPERATIONS_PER_CALL / max(self.operations(1), 1.0), 1024, 131_072))
        for start in range(0, X.shape[0], step):
            part = X if X.shape[0] <= step else X[start : start + step]
            yield start, as_floats(part)


def single_pairs(kernel: str) -> tuple[str, ...]:
    """Forms in which a kernel's float32 tier may compute distances, cheapest first."""
    forms = {"rbf": ("dot", "sq_diff"), "exponential": ("sq_diff",), "laplacian": ("abs_diff",)}
    return forms.get(kernel, ("dot",))


def _check_outcome(outcome: Outcome, X: Rows, start: int) -> None:
    bad_row, fault = outcome[3], outcome[4]
    if bad_row >= 0:
        raise_bad_row(X, start + bad_row, fault)


def prefers_postings(machine: KernelMachine) -> bool:
    """Whether an inverted index beats panels, by counting what each visits for a query like the support vectors.

    Cycles a support vector, measured on one core: panels 1/12 for each stored element of the query plus 1 for the
    kernel value; the index 3 for each shared feature plus 3 (its kernel values are float64).
    """
    if not machine.has_sparse_vectors or machine.kernel.name == "linear":
        return False
    vectors, n_sv = machine.support_vectors, machine.n_sv
    per_feature = np.bincount(vectors.indices, minlength=1).astype(np.float64)
    shared = float((per_feature**2).sum()) / n_sv**2
    panels = vectors.nnz / n_sv / 12.0 + 1.0
    # Panels are never narrower than their width, in both precisions, and there are copies while they are packed.
    panel_bytes = 12.0 * max(n_sv, 4 * _core.PANEL_WIDTH_F32) * vectors.shape[1]
    return bool(3.0 * shared + 3.0 < panels or panel_bytes > 2**30)


def _probe_rows(machine: KernelMachine) -> FloatArray:
    """Rows where the score is large (support vectors) and where it is not (midpoints between them)."""
    rng = np.random.default_rng(0)
    vectors = machine.support_vectors
    # Fewer rows where they are very wide: these are dense.
    a, b = rng.integers(machine.n_sv, size=(2, min(128, max(4, PROBE_NUMBERS // vectors.shape[1]))))
    first = vectors[a].toarray() if sparse.issparse(vectors) else vectors[a]
    second = vectors[b].toarray() if sparse.issparse(vectors) else vectors[b]
    return np.vstack([first, 0.5 * first + 0.5 * second])


def _try_single(native: Any, probe: FloatArray, n_scores: int) -> tuple[float, float, float]:
    """Share of probe rows that float32 settles, the largest score bound, and the spread of the scores."""
    labels = np.empty(len(probe), dtype=np.int32)
    scores, bounds = np.empty((len(probe), n_scores)), np.empty((len(probe), n_scores))
    settled = native.predict_dense(probe, labels, 0, False, 1)[0]
    native.scores_dense(probe, scores, bounds, 0, False, 1)
    return settled / len(probe), float(bounds.max()), float(scores.std(axis=0).min()) or 1.0


class ValueEngine:
    """The same interface for kernels without native code: kernel values come from Python, sums and votes are LIBSVM's.

    Serves precomputed kernels (the query row holds the kernel values) and Python callables on any objects.
    """

    first_tier = score_tier = "reference"
    score_bound = 0.0
    uses_postings = False

    def __init__(self, machine: KernelMachine) -> None:
        self.machine = machine
        self.level = "python"
        self._class_start: IntArray = np.empty(0, dtype=np.int32)
        if machine.is_grouped:
            assert machine.n_support is not None
            self._class_start = np.concatenate([[0], np.cumsum(machine.n_support)]).astype(np.int32)
        self._rule = RULE_CODES["sign" if machine.task == "outlier" else machine.rule]
        self._break_ties = breaks_ties(machine)

    @property
    def nbytes(self) -> int:
        """Bytes of the coefficients and, where they are arrays, of the support vectors."""
        return int(self.machine.dual_coef.nbytes) + int(getattr(self.machine.support_vectors, "nbytes", 0))

    def labels(self, query: Query, n_jobs: int | None = None) -> tuple[IntArray, Tally]:
        """Label of each row in vote order; every row is settled by the reference sum."""
        labels, _ = self._evaluate(query.rows)
        return labels, Tally(reference=len(labels), passes=len(labels))

    def work(self, query: Query, n_jobs: int | None = None) -> dict[str, Any]:
        """Operations a row."""
        return self.labels(query, n_jobs)[1].work(self.machine)

    def scores(self, query: Query, n_jobs: int | None = None, precision: Precision = "auto") -> FloatArray:
        """Scores (n_rows, n_scores) with LIBSVM's signs, in vote order."""
        return self._evaluate(query.rows)[1]

    def bounded_scores(
        self, query: Query, n_jobs: int | None = None, precision: Precision = "auto"
    ) -> tuple[FloatArray, FloatArray]:
        """Scores, and zeros: these are the float64 scores themselves."""
        scores = self._evaluate(query.rows)[1]
        return scores, np.zeros_like(scores)

    def _evaluate(self, X: Rows) -> tuple[IntArray, FloatArray]:
        machine, n = self.machine, n_rows_of(X)
        labels: IntArray = np.empty(n, dtype=np.int32)
        scores = np.empty((n, machine.n_scores))
        step = max(1, 4_000_000 // machine.n_sv)  # 32 MB of kernel values at a time
        for start in range(0, n, step):
            part = slice(start, start + step)
            labels[part], scores[part] = self.vote(self.kernel_values(X[part], np.arange(n)[part]))
        return labels, scores

    def vote(self, values: FloatArray) -> tuple[IntArray, FloatArray]:
        """Labels and scores of rows whose kernel values (n_rows, n_sv) are known, in LIBSVM's order of operations."""
        machine = self.machine
        labels: IntArray = np.empty(len(values), dtype=np.int32)
        scores = np.empty((len(values), machine.n_scores))
        _core.vote_values(
            values,
            machine.dual_coef,
            machine.intercept,
            self._class_start,
            self._rule,
            machine.n_classes,
            self._break_ties,
            labels,
            scores,
        )
        return labels, scores

    def kernel_values(self, X: Rows, numbers: IndexArray) -> FloatArray:
        """Kernel values (n_rows, n_sv), checked; `numbers` are those of the rows, for messages."""
        values = np.ascontiguousarray(self.machine.kernel(X, self.machine.support_vectors))
        expected = (n_rows_of(X), self.machine.n_sv)
        if values.shape != expected:
            raise ValueError(
                f"The kernel function returned an array of shape {values.shape} for {expected[0]} rows and "
                f"{expected[1]} support vectors; expected {expected}."
            )
        if not np.isfinite(values).all():
            row = int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
            raise ValueError(f"The kernel value of row {numbers[row]} is not finite; expected finite numbers.")
        return values


def build_exact(machine: KernelMachine, precision: Precision = "auto") -> ExactEngine | ValueEngine:
    """The exact engine for this machine's kernel."""
    return ExactEngine(machine, precision) if machine.kernel.has_native_code else ValueEngine(machine)
