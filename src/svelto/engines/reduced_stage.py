"""The reduced set as a stage of a cascade: few kernel values for a score, and a map of how wrong it is where.

The scores come from the machine that `reduced_set` makes, in float32: of an rbf machine as `bumps`, else by the exact
engine's fused kernel.
Their errors differ from place to place, so a metric tree (`build_error_map`) holds an error scale for every cell,
learned on oracle rows that had no part in the fit. With several scores the map holds one number a cell, and each
score its own unit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal, Self

import numpy as np

from svelto import _core
from svelto._inputs import Query
from svelto._options import check_whole
from svelto._typing import FloatArray, IntArray
from svelto.engines.arrays import padded_width
from svelto.engines.bumps import bump_fields
from svelto.engines.exact import OPERATIONS_PER_THREAD, PRECISION_CODES, ExactEngine, instruction_level
from svelto.engines.leaf_models import error_scales, reaches, sign_weights
from svelto.engines.native_stage import stage_labels, stage_scores
from svelto.engines.packing import RULE_CODES, breaks_ties
from svelto.engines.reduced_set import reduce_machine
from svelto.engines.stage_costs import (
    BUMP_COST,
    ENGINE_ROW_COST,
    ENGINE_SCORE_COST,
    KERNEL_COST,
    answer_cost,
    inputs_read,
    layer_cost,
    mix_cost,
)
from svelto.engines.taylor_tree import Progress, TaylorTree, TreeOptions, build_taylor_tree
from svelto.guard import Guard
from svelto.kernels import Kernel
from svelto.machine import KernelMachine
from svelto.scaling import Scaling

# Share of the oracle rows that coefficients are fitted to; the others show the error.
FIT_SHARE: Final = 0.67
# n_basis="auto": sizes that are tried, and the size where nothing tells which is best.
SIZES: Final = (64, 192)
UNCALIBRATED_SIZE: Final = 256
# ... and a size that is tried where those leave the exact engine most of the work.
LARGE_SIZE: Final = 384
# Rows in a cell of the map of errors.
MAP_LEAF_SIZE: Final = 128


@dataclass(frozen=True)
class ReducedSetOptions:
    """Options of ``method="reduced_set"``; those of `reduce_machine`, and the number of oracle rows.

    ``n_basis="auto"`` tries a few sizes and takes the one whose rows cost least, rows sent on included; without a
    promise to calibrate for, it is 256.
    """

    n_basis: int | Literal["auto"] = "auto"
    basis: Literal["auto", "kmeans", "greedy", "preimage"] = "auto"
    coefficients: Literal["least_squares", "projection"] = "least_squares"
    weighting: Literal["auto", "margin", "uniform"] = "auto"
    ridge: float = 1e-3
    max_iter: int = 150
    oracle_rows: int | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        if self.n_basis != "auto":
            check_whole("n_basis", self.n_basis, 1, " or 'auto'")
        if self.oracle_rows != "auto":
            check_whole("oracle_rows", self.oracle_rows, 0, " or 'auto'")


@dataclass
class ReducedSet:
    """A reduced machine and the map of its errors.

    Attributes
    ----------
    machine : KernelMachine
        The machine it answers for.
    reduced : KernelMachine
        Its scores, approximately, from few vectors; with the machine's scaling.
    unit : ndarray of shape (n_scores,)
        Size of each score's error.
    error_map : TaylorTree or None
        Error scales in those units; None: nothing is known, and every error scale is the unit itself.
    guard : Guard, optional
        Rows that it may not know stay open, and those on its rim take more caution; bumps only.
    n_read : float, optional
        Features of a dense row that cost as much as those of a usual row; None: all. Files do not keep it.
    """

    machine: KernelMachine
    reduced: KernelMachine
    unit: FloatArray
    error_map: TaylorTree | None = None
    guard: Guard | None = None
    name: str = "reduced_set"
    n_read: float | None = None

    @classmethod
    def on(
        cls,
        machine: KernelMachine,
        engine: ExactEngine,
        unit: FloatArray,
        error_map: TaylorTree | None,
        guard: Guard | None = None,
    ) -> Self:
        """The stage on an engine that was packed before."""
        stage = cls(machine, engine.machine, unit, error_map, guard)
        if stage._bumps is None:
            stage.engine = engine
        return stage

    @cached_property
    def engine(self) -> ExactEngine:
        """The exact engine of the reduced machine, for those that bumps do not serve."""
        return self.packed_engine()

    def packed_engine(self) -> ExactEngine:
        """The same made anew; files keep it, whoever evaluates the sum."""
        return ExactEngine(self.reduced, "float32")

    @cached_property
    def _bumps(self) -> dict[str, Any] | None:
        return bump_fields(self.machine, self.reduced, self.unit, self.guard)

    def guarded_by(self, guard: Guard | None) -> ReducedSet:
        """The same with a guard of its own, where it can have one."""
        return self if self._bumps is None else replace(self, guard=guard)

    @property
    def guards_itself(self) -> bool:
        """Whether rows that the guard does not know are left open."""
        return self.guard is not None and self._bumps is not None

    @cached_property
    def native_part(self) -> Any:
        """Itself as a part of a native cascade."""
        error_map = None if self.error_map is None else self.error_map.native_part
        if self._bumps is not None:
            return _core.HingeStage(self._bumps, instruction_level(), error_map)
        machine, engine = self.machine, self.engine
        fields = {
            "n_scores": machine.n_scores,
            "n_classes": machine.n_classes,
            "rule": RULE_CODES["sign" if machine.task == "outlier" else machine.rule],
            "break_ties": breaks_ties(machine),
            "unit": np.array(self.unit, dtype=np.float64),
            "precision": PRECISION_CODES[engine.score_tier],
            "rows_per_thread": OPERATIONS_PER_THREAD / max(engine.operations(1), 1.0),
        }
        return _core.ReducedStage(engine.native_part, error_map, fields)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("native_part", "_bumps")}

    @property
    def n_basis(self) -> int:
        """Number of vectors."""
        return self.reduced.n_sv

    @property
    def nbytes(self) -> int:
        """Bytes of the packed arrays and of the map."""
        fields = self._bumps or {}
        fields = {**fields, **fields.get("guard", {})}
        own = sum(part.nbytes for part in fields.values() if isinstance(part, np.ndarray)) or self.engine.nbytes
        return int(own) + (0 if self.error_map is None else self.error_map.nbytes)

    def without_map(self) -> ReducedSet:
        """The same stage with one error scale for all places: cheaper, where errors are much alike."""
        return replace(self, error_map=None)

    def settle(self, query: Query, caution: float, n_jobs: int | None = None) -> IntArray:
        """Labels in vote order where the score exceeds `caution` times its error scale, -1 elsewhere."""
        return stage_labels(self.native_part, query, caution, n_jobs)

    def scores(self, query: Query, n_jobs: int | None = None) -> tuple[FloatArray, FloatArray]:
        """Scores and error scales, each (n_rows, n_scores)."""
        if self._bumps is None:
            scores = self.engine.scores(query, n_jobs)
            errors = np.broadcast_to(self.unit, scores.shape).copy()
        else:
            shape = (query.rows.shape[0], self.machine.n_scores)
            scores, errors = np.empty(shape), np.empty(shape)
            stage_scores(self.native_part, query, (scores, errors), n_jobs)
        if self.error_map is not None:
            errors *= self.error_map.scores(query, n_jobs)[1]
        return scores, errors

    def on_rim(self, query: Query, n_jobs: int | None = None) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether each row is on the rim of the guard, where error scales count several times."""
        errors = self.without_map().scores(query, n_jobs)[1]
        return np.asarray((errors > self.unit).any(axis=1) & np.isfinite(errors).all(axis=1))

    def cost(self, query: Query, n_jobs: int | None = None) -> dict[str, float]:
        """Kernel evaluations a row, and dot products of the map of errors."""
        found = {} if self.error_map is None else self.error_map.cost(query, n_jobs)
        return {
            "kernel_evaluations_per_row": float(self.n_basis),
            "dot_products_per_row": found.get("dot_products_per_row", 0.0),
        }

    def operations(self) -> float:
        """Cost of one row, in multiply-adds of the exact engine's inner loop."""
        p = self.machine.n_scores
        n_inputs = float(self.reduced.support_vectors.shape[1]) if self.n_read is None else self.n_read
        if self._bumps is not None:
            own = answer_cost(self.machine, n_inputs, p) + layer_cost(n_inputs, self.n_basis)
            own += BUMP_COST * padded_width(self.n_basis) + mix_cost(self.n_basis, p)
        else:
            own = ENGINE_ROW_COST + ENGINE_SCORE_COST * p + self.n_basis * (n_inputs + KERNEL_COST + p)
        return own + (0.0 if self.error_map is None else self.error_map.operations())


def build_reduced_set(
    machine: KernelMachine,
    X: FloatArray,
    options: ReducedSetOptions,
    rows: FloatArray,
    exact: FloatArray,
    *,
    with_errors: bool,
    seed: int,
    n_jobs: int | None = None,
    progress: Progress = lambda step: None,
) -> ReducedSet:
    """Build the stage on dense rows that the machine's scaling was already applied to.

    `rows` are those that coefficients are fitted to, `exact` the machine's scores there.
    """
    rng = np.random.default_rng([seed, 12])  # another stream than the oracle rows have
    fitted = rng.random(len(rows)) < FIT_SHARE if with_errors and len(rows) > 10 else np.ones(len(rows), dtype=bool)
    progress("basis vectors and coefficients")
    reduced = reduce_machine(
        machine,
        X,
        n_basis=UNCALIBRATED_SIZE if options.n_basis == "auto" else options.n_basis,
        basis=options.basis,
        coefficients=options.coefficients,
        weighting=options.weighting,
        ridge=options.ridge,
        max_iter=options.max_iter,
        oracle=(rows[fitted], exact[fitted]),
        random_state=seed,
        n_jobs=n_jobs,
    )
    reduced = replace(reduced, scaling=machine.scaling)
    stage = ReducedSet(machine, reduced, np.ones(machine.n_scores), n_read=inputs_read(machine, X))
    if not with_errors:
        return stage
    held = ~fitted if (~fitted).any() else fitted
    progress("map of errors")
    residuals = exact[held] - stage.scores(Query(rows[held]), n_jobs)[0]
    importance = sign_weights(exact[held], machine.task != "regression")
    unit = np.sqrt(np.average(residuals**2, axis=0, weights=importance.mean(axis=1)))
    unit = np.maximum(unit, 1e-7 * np.maximum(np.abs(exact).max(axis=0), 1e-30))
    relative = np.sqrt(np.mean((residuals / unit) ** 2, axis=1))
    error_map = _scaled(build_error_map(X, rows[held], relative, seed, n_jobs), machine)
    return replace(stage, unit=unit, error_map=error_map)


def build_error_map(X: FloatArray, rows: FloatArray, relative: FloatArray, seed: int, n_jobs: int | None) -> TaylorTree:
    """A tree whose only answer is an error scale, for a stage that has none of its own.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows to cut into cells.
    rows : ndarray of shape (m, d)
        Rows where the other stage's error is known.
    relative : ndarray of shape (m,)
        Size of the error there, in any unit; `TaylorTree.scores` gives error scales in the same.
    """
    machine = map_machine(X.shape[1])
    options = TreeOptions(leaf_size=MAP_LEAF_SIZE, fit="taylor")
    tree = build_taylor_tree(
        machine, X, options, lambda points: np.zeros((len(points), 1)), with_errors=False, seed=seed, n_jobs=n_jobs
    )
    trace = tree.trace(Query(rows), n_jobs)
    ones = np.ones((len(rows), 1))
    base, growth = error_scales(relative[:, None], ones, trace.sq_dist, trace.leaf, tree.n_leaves)
    reach = reaches(trace.sq_dist, trace.leaf, tree.n_leaves).astype(np.float32)
    return TaylorTree(machine, {**tree.arrays, "base": base, "growth": growth, "reach": reach})


def map_machine(d: int, scaling: Scaling | None = None) -> KernelMachine:
    """The machine of a map: it has no score of its own, only the scaling of rows."""
    return KernelMachine(
        kernel=Kernel("linear"),
        support_vectors=np.zeros((1, d)),
        dual_coef=np.zeros((1, 1)),
        intercept=np.zeros(1),
        task="regression",
        rule="value",
        n_features=d,
        scaling=scaling,
    )


def _scaled(error_map: TaylorTree, machine: KernelMachine) -> TaylorTree:
    """The map for rows that still need the machine's scaling."""
    if machine.scaling is None:
        return error_map
    return TaylorTree(replace(error_map.machine, scaling=machine.scaling), error_map.arrays)
