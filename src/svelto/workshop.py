"""Where the stages of one machine are made: the rows, their calibration, and what all builders share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, Final, Literal

import numpy as np

from svelto._inputs import Query, n_rows_of
from svelto._typing import Rows
from svelto.calibrate import Calibrator
from svelto.calibration_rows import CalibrationRows, gather_objects, gather_rows
from svelto.cascade import Cascade
from svelto.engines.certified import certify_leaves, tree_share
from svelto.engines.exact import ExactEngine, ValueEngine
from svelto.engines.hinges import HingeOptions, build_hinges
from svelto.engines.reduced_stage import ReducedSetOptions, build_reduced_set
from svelto.engines.sv_tree import SVTreeOptions
from svelto.engines.sv_tree_build import build_sv_tree
from svelto.engines.taylor_tree import TaylorTree, TreeOptions, build_taylor_tree
from svelto.guarantee import Certificate
from svelto.guard import Guard
from svelto.machine import KernelMachine
from svelto.open_rows import take_rows
from svelto.oracle import FOR_HINGES, FOR_LEAVES, Neighbourhoods, OracleNeeds, oracle_rows
from svelto.stage_search import Options, Priced, cheapest_stages
from svelto.strangers import passing_strangers

# Rows unlike the given ones among those that hinges learn from, as a share of the others, at most.
STRANGE_SHARE: Final = 0.02
BUILDERS: Final[dict[type, Any]] = {
    TreeOptions: build_taylor_tree,
    SVTreeOptions: build_sv_tree,
}


class Workshop:
    """Makes cascades of one machine.

    Parameters
    ----------
    machine : KernelMachine
        The machine.
    exact : ExactEngine or ValueEngine
        Its exact engine, which answers oracle rows and stands behind all stages.
    rows : ndarray or sequence
        Rows to build on: dense float64, behind the machine's scaling; or objects.
    agreement : float or None
        Promised share of equal labels; 1.0 is proven, None is nothing. Others need `calibrate`.
    tolerance : float or None
        |error| of a regressor that counts as agreement.
    seed : int
        Of all draws.
    n_jobs : int, optional
        Threads.
    progress : callable
        Told what is being done.

    Attributes
    ----------
    calibrator : Calibrator or None
        Sets thresholds; None before `calibrate`.
    """

    def __init__(
        self,
        machine: KernelMachine,
        exact: ExactEngine | ValueEngine,
        rows: Rows,
        agreement: float | None,
        tolerance: float | None,
        seed: int,
        n_jobs: int | None = None,
        progress: Callable[[str], None] = lambda step: None,
    ) -> None:
        self.machine = machine
        self.exact = exact
        self.rows = rows
        self.agreement = agreement
        self.tolerance = tolerance
        self.seed = seed
        self.n_jobs = n_jobs
        self.progress = progress
        self.calibrator: Calibrator | None = None
        self.near: Neighbourhoods | None = None
        self.guard: Guard | None = None
        self._oracle = cache(self._ask_oracle)
        self._built = cache(self._build)

    def calibrate(self, given: Rows | None, confidence: float) -> None:
        """Find calibration rows, given ones or others, for a statistical promise."""
        assert self.agreement is not None
        self.progress("calibration rows")
        rate = 1.0 - self.agreement
        self.use(
            gather_rows(self.machine, self.rows, given, rate, confidence, self.seed, self.n_jobs)
            if self.machine.kernel.has_native_code
            else gather_objects(self.machine, self.rows, given, rate, confidence, self.seed),
            confidence,
        )

    def use(self, calibration: CalibrationRows, confidence: float) -> None:
        """Take these calibration rows."""
        assert self.agreement is not None
        self.rows, self.near, self.guard = calibration.build, calibration.near, calibration.guard
        self.calibrator = Calibrator(
            self.machine, self.exact, calibration, self.agreement, confidence, self.tolerance, self.n_jobs
        )

    def sampled(self, n_rows: int) -> Workshop:
        """The same on few rows, for trials: calibrated on some of the same rows.

        To find stages is to look at the rows to choose on alone; those to check on stay unseen.
        """
        rng = np.random.default_rng([self.seed, 11])
        chosen = np.sort(rng.choice(n_rows_of(self.rows), size=n_rows, replace=False))
        rows = take_rows(self.rows, chosen)
        small = Workshop(
            self.machine, self.exact, rows, self.agreement, self.tolerance, self.seed, self.n_jobs, self.progress
        )
        if self.calibrator is not None:
            whole = self.calibrator.rows
            most = 2 * max(n_rows, self.calibrator.needed)
            parts = replace(whole, build=rows, choose=whole.choose[:most], check=whole.check[:most], near=None)
            small.use(parts, self.calibrator.confidence)
        return small

    def cascade(self, options: Options, next_stage: str | None) -> tuple[Cascade, Certificate | None]:
        """Stages of a method in front of the exact engine, and what shows their promise if it is a statistical one."""
        if self.calibrator is not None:
            return self.certified(self.find(options, next_stage))
        if self.agreement == 1.0 and isinstance(options, TreeOptions):
            options = replace(
                options, max_bytes=tree_share(options.max_bytes, self.rows.shape[1], self.machine.n_scores)
            )
        stage = self.build(options)
        if self.agreement != 1.0:
            return self._in_front([stage], [0.0]), None
        self.progress("proven bounds of the leaves")
        return self._in_front([certify_leaves(stage, self.rows, self.seed, self.n_jobs)], [1.0]), None

    def find(self, options: Options, next_stage: str | None, behind: ReducedSetOptions | None = None) -> Priced:
        """The cheapest stages of a method for a statistical promise; the rows to check on are not looked at."""
        assert self.calibrator is not None
        return cheapest_stages(self.calibrator, options, next_stage, self.build, behind)

    def uncertified(self, found: Priced) -> Cascade:
        """Stages with the thresholds that were chosen: what they would do, before anything is promised."""
        return self._in_front(found.stages, found.thresholds)

    def certified(self, found: Priced) -> tuple[Cascade, Certificate]:
        """The same with thresholds that were checked, and the proof."""
        assert self.calibrator is not None
        certificate = self.calibrator.certify(found.traces, found.thresholds)
        return self._in_front(found.stages, certificate.thresholds), certificate

    def _in_front(self, stages: list[Any], thresholds: list[float]) -> Cascade:
        guard = (
            None if all(t == math.inf for t in thresholds) else self.guard
        )  # where no stage is asked, none is needed
        return Cascade(self.machine, stages, thresholds, self.exact, self.tolerance, guard)

    def build(self, options: Options) -> Any:
        """One stage; that of the same options again is the same."""
        return self._built(options)

    def _build(self, options: Options) -> Any:
        if isinstance(options, HingeOptions):
            return build_hinges(
                self.machine,
                self.rows,
                options,
                *self._oracle(options.oracle_rows, FOR_HINGES),
                with_errors=self.calibrator is not None,
                seed=self.seed,
                agreement=self.agreement,
                progress=self.progress,
                guard=self.guard,
            )
        if isinstance(options, ReducedSetOptions):
            return build_reduced_set(
                self.machine,
                self.rows,
                options,
                *self._oracle(options.oracle_rows, FOR_LEAVES),
                with_errors=self.calibrator is not None,
                seed=self.seed,
                n_jobs=self.n_jobs,
                progress=self.progress,
            ).guarded_by(self.guard)
        stage = BUILDERS[type(options)](
            self.machine,
            self.rows,
            options,
            lambda points: self.exact.scores(Query(points), self.n_jobs),
            with_errors=self.calibrator is not None,
            seed=self.seed,
            n_jobs=self.n_jobs,
            progress=self.progress,
            **({} if isinstance(options, SVTreeOptions) else {"near": self.near}),
        )
        return stage if self.guard is None or not isinstance(stage, TaylorTree) else replace(stage, guard=self.guard)

    def _ask_oracle(self, wanted: int | Literal["auto"], needs: OracleNeeds) -> tuple[Any, Any]:
        """Rows that stages of all sizes are fitted to, and their scores."""
        self.progress("scores of oracle rows")
        rng = np.random.default_rng([self.seed, 7 if needs is FOR_HINGES else 3])
        made = oracle_rows(self.machine, self.rows, wanted, self.seed, rng, self.n_jobs, needs, self.near)
        if needs is FOR_HINGES and self.guard is not None:
            n_strange = int(STRANGE_SHARE * len(made))
            made = np.concatenate([made, passing_strangers(self.rows, self.guard, n_strange, rng, self.n_jobs)])
        return made, self.exact.scores(Query(made), self.n_jobs)
