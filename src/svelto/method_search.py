"""The search of method="auto": candidates are built, timed, and the best is kept.

1. Where the whole sum costs no more than asking a stage, that is said at once.
2. Candidates are built on a sample of the rows, with little effort, and their thresholds are chosen there. They are
   timed in turns with the exact engine, at the caller's batch size, on rows of the caller's kind (dense or sparse).
3. The best, and those that are close to it (`method_standings`), are built on all rows and timed again; what is close
   then takes turns, because each had its own moment before. The fastest is certified, on rows that no choice has seen.
   Where that fails, an exact method answers: to ask one candidate after the other until one passes would promise more
   than its confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, Final

import numpy as np
from scipy import sparse
from sklearn.utils import _safe_indexing

from svelto._inputs import Query, make_query, n_rows_of
from svelto._typing import Rows
from svelto.assemble import check_machine, read_options
from svelto.auto_options import AutoOptions
from svelto.cascade import Cascade
from svelto.engine_reports import cascade_report, exact_report
from svelto.engines.bounded import build_bounded, check_bounded
from svelto.engines.exact import build_exact
from svelto.engines.reduced_stage import ReducedSetOptions
from svelto.engines.stage_costs import ROW_COST, whole_sum_cost
from svelto.given_rows import UnfitRowsError, read_rows
from svelto.guarantee import rows_needed
from svelto.machine import KernelMachine
from svelto.method_candidates import (
    EXACT,
    SAMPLE_BEHIND,
    SAMPLE_OPTIONS,
    SAMPLE_ROWS,
    STATISTICAL,
    Candidate,
    setting_of,
)
from svelto.method_standings import Standings
from svelto.report import Report, Trial
from svelto.stage_search import Priced
from svelto.stopwatch import TIMED_ROWS, Stopwatch
from svelto.workshop import Workshop

# A Python kernel may take long: so many objects are timed.
TIMED_OBJECTS: Final = 64
# Bounds on distances settle something early where features are few.
BOUNDED_FEATURES: Final = 32


class Search:
    """Builds candidates, times them, and keeps the best."""

    def __init__(
        self,
        machine: KernelMachine,
        options: AutoOptions,
        agreement: float | None,
        confidence: float,
        n_jobs: int | None,
    ) -> None:
        self.machine = machine
        self.options = options
        self.agreement = agreement
        self.confidence = confidence
        self.n_jobs = n_jobs
        self.started = perf_counter()
        self.exact = build_exact(machine, options.precision)
        self.standings = Standings(self._exact_candidate(), agreement, options.max_bytes)

    # -- the search --------------------------------------------------------------------------------------------------

    def run(self, X: Any, X_calibration: Any, seed: int, progress: Callable[[str], None]) -> str | None:
        """Look for something better than the exact engine; says why there is nothing, or None."""
        least = 5 if self.agreement is not None else 2
        try:
            rows, given = read_rows(self.machine, X, X_calibration, "auto", seed, least=least)
        except UnfitRowsError as error:
            return str(error)
        if self._is_tiny(rows):
            return "the machine is so small that asking a stage takes as long"
        workshop = Workshop(
            self.machine, self.exact, rows, self.agreement, self.options.tolerance, seed, self.n_jobs, progress
        )
        candidates = self._methods()
        if self._is_statistical and candidates and not self._calibrate(workshop, given):
            candidates = []
        watch = self._watch(workshop, X)
        (seconds,) = watch.times([self.exact])
        self.standings.note_exact(seconds)
        if not self._is_late():
            self._try_bounded(X, watch, seed, progress)
        if not candidates:
            return None if self.standings.best.method != "exact" else self._why_exact()
        small = workshop if n_rows_of(workshop.rows) <= 1.5 * SAMPLE_ROWS else workshop.sampled(SAMPLE_ROWS)
        whole = small is workshop
        hopes: list[Candidate] = []
        for method in candidates:
            if self._is_late():
                return "the time budget was used up: the best of what had been tried"
            progress(f"{method}, on {n_rows_of(small.rows)} rows")
            found = (
                self._build(workshop, method, {}, watch)
                if whole
                else self._build(small, method, SAMPLE_OPTIONS[method], watch, SAMPLE_BEHIND)
            )
            if found is not None:
                hopes.append(found)
        finalists = hopes if whole else []
        for hope in [] if whole else self.standings.hopeful(hopes):
            if self._is_late():
                return "the time budget was used up: the best of what had been tried"
            progress(f"{hope.method}, on all rows")
            found = self._build(workshop, hope.method, {}, watch)
            if found is not None:
                finalists.append(found)
        self.standings.play_off(finalists, watch)
        return None if self.standings.best.method != "exact" else self._why_exact()

    @property
    def _is_statistical(self) -> bool:
        return self.agreement is not None and self.agreement < 1.0

    def _is_late(self) -> bool:
        budget = self.options.time_budget
        return budget is not None and perf_counter() - self.started > budget

    def _is_tiny(self, rows: Rows) -> bool:
        """Whether the whole sum costs no more than asking a stage about a row."""
        machine = self.machine
        if not machine.kernel.has_native_code:
            return False
        return bool(whole_sum_cost(machine, rows) < ROW_COST)

    def _calibrate(self, workshop: Workshop, given: Rows | None) -> bool:
        """Find calibration rows; where these could show nothing, say why."""
        assert self.agreement is not None
        why = None
        if self.confidence == 1.0:
            why = "confidence is 1.0; a statistical promise needs a number below 1 (0.95, 0.99)"
        else:
            needed = rows_needed(1.0 - self.agreement, self.confidence)
            n = n_rows_of(workshop.rows if given is None else given)
            if n >= needed:  # else nobody needs to look
                try:
                    workshop.calibrate(given, self.confidence)
                except ValueError as error:  # objects that the machine was trained on can show nothing
                    if self.machine.kernel.has_native_code:
                        raise
                    why = str(error)
                else:
                    assert workshop.calibrator is not None
                    n = n_rows_of(workshop.calibrator.rows.check)
            if why is None and n < needed:
                why = (
                    f"agreement={self.agreement} at confidence={self.confidence} needs {needed} rows to check it on; "
                    f"there are {n}. Give more rows, as X or X_calibration, or ask for less"
                )
        if why is not None:
            self.standings.left_out["statistical methods"] = why
        return why is None

    def _watch(self, workshop: Workshop, X: Any) -> Stopwatch:
        """Times on rows that thresholds are chosen on, or else on those to build on; sparse where queries will be."""
        machine = self.machine
        rows = workshop.rows if workshop.calibrator is None else workshop.calibrator.rows.choose
        native = machine.kernel.has_native_code
        if not native:
            rows = rows[:TIMED_OBJECTS]
        else:
            rows = rows[:TIMED_ROWS]
            # Not every sparse format has rows.
            first = X.tocsr()[:1] if sparse.issparse(X) else _safe_indexing(X, [0])
            wanted = sparse.issparse(make_query(machine, first).rows)
            if wanted != sparse.issparse(rows):
                rows = sparse.csr_array(rows) if wanted else rows.toarray()
        watch = Stopwatch(
            rows,
            self.options.batch_size,
            self.n_jobs,
            values=machine.task == "regression",
            short_way=native and machine.scaling is None and not machine.front,
        )
        if not native:
            watch.shorten(self.exact)
        return watch

    def _methods(self) -> list[str]:
        """Methods that serve the machine; why others do not is noted."""
        served: list[str] = []
        for method in STATISTICAL:
            try:
                check_machine(self.machine, read_options(method, {})[0], self.agreement)
            except (ValueError, NotImplementedError) as error:
                self.standings.left_out[method] = str(error)
                continue
            if method == "sv_tree" and self.machine.kernel.has_native_code:
                self.standings.left_out[method] = "kernel values are cheap here; it is for kernels that take long"
                continue
            served.append(method)
        return served

    def _build(
        self,
        workshop: Workshop,
        method: str,
        given: dict[str, Any],
        watch: Stopwatch,
        behind: ReducedSetOptions | None = None,
    ) -> Candidate | None:
        """Build one candidate, time it beside the exact engine, and keep it where it is the best."""
        begun = perf_counter()
        own, _, next_stage = read_options(method, self._within_bytes(workshop, method, given))
        finish: Callable[[], tuple[Any, Report] | None]
        first_share = 1.0
        if workshop.calibrator is not None:
            found = workshop.find(own, next_stage, behind)
            if found.is_idle:
                self.standings.left_out[method] = "it settles too little to pay"
                return None
            engine = workshop.uncertified(found)
            asked = (stage for stage, t in zip(found.stages, found.thresholds, strict=True) if t < math.inf)
            first_share = next(asked).operations() / found.cost
            agreement = workshop.calibrator.chosen_agreement(found.traces, found.thresholds)
            finish = partial(self._certified, workshop, found, method)
        else:
            engine, _ = workshop.cascade(own, next_stage)
            agreement = 1.0 if self.agreement == 1.0 else self._agreement(engine, watch.query)
            finish = partial(self._reported, workshop, engine, method)
        seconds = perf_counter() - begun
        exact_seconds, own_seconds = watch.times([self.exact, engine])
        trial = Trial(
            method=method,
            setting=setting_of(engine, n_rows_of(workshop.rows)),
            n_rows=n_rows_of(workshop.rows),
            microseconds=1e6 * own_seconds,
            agreement=agreement,
            promise="none" if self.agreement is None else "exact" if self.agreement == 1.0 else "statistical",
            nbytes=engine.nbytes if self.agreement is not None else sum(stage.nbytes for stage in engine.stages),
            build_seconds=seconds,
            stages=dict(engine.work(watch.query, self.n_jobs)["stages"]),
        )
        self.standings.note_exact(exact_seconds)
        candidate = Candidate(method, trial, finish, engine, first_share)
        self.standings.add(candidate)
        return candidate

    def _certified(self, workshop: Workshop, found: Priced, method: str) -> tuple[Any, Report] | None:
        """Show the promise on rows that had no part in any choice."""
        engine, certificate = workshop.certified(found)
        if certificate.is_exact or not certificate.kept:
            return None
        calibrator = workshop.calibrator
        return engine, cascade_report(engine, method, certificate, calibrator, workshop.rows, self.n_jobs, self.started)

    def _reported(self, workshop: Workshop, engine: Cascade, method: str) -> tuple[Any, Report]:
        return engine, cascade_report(engine, method, None, None, workshop.rows, self.n_jobs, self.started)

    def _within_bytes(self, workshop: Workshop, method: str, given: dict[str, Any]) -> dict[str, Any]:
        """Options of a tree that leaves room for what stands beside it."""
        most = self.options.max_bytes
        if most is None or method != "taylor_tree":
            return given
        beside = 0 if self.agreement is None else self.exact.nbytes
        beside += 0 if workshop.guard is None else workshop.guard.nbytes
        return {**given, "max_bytes": max(most - beside, 1), "next_stage": None}

    def _agreement(self, engine: Cascade, query: Query) -> float:
        """Measured on the rows that are shown, for stages that nobody checks."""
        if self.machine.task == "regression":
            error = np.abs(engine.scores(query, self.n_jobs) - self.exact.scores(query, self.n_jobs)).max(axis=1)
            return float(np.mean(error <= (self.options.tolerance or 0.0)))
        return float(np.mean(engine.labels(query, self.n_jobs)[0] == self.exact.labels(query, self.n_jobs)[0]))

    def _try_bounded(self, X: Any, watch: Stopwatch, seed: int, progress: Callable[[str], None]) -> None:
        """Sums that stop early: exact, for few features or for kernels in Python."""
        try:
            check_bounded(self.machine)
        except (ValueError, NotImplementedError) as error:
            self.standings.left_out["bounded"] = str(error)
            return
        native = self.machine.kernel.has_native_code
        if self.options.precision != "auto":
            self.standings.left_out["bounded"] = "it chooses the precision of its scores itself"
            return
        if native and self.machine.support_vectors.shape[1] > BOUNDED_FEATURES:
            self.standings.left_out["bounded"] = f"more than {BOUNDED_FEATURES} features: bounds on distances are loose"
            return
        progress("bounded")
        begun = perf_counter()
        engine, report = build_bounded(self.machine, X, {}, self.n_jobs, seed)
        seconds = perf_counter() - begun
        if native and not getattr(engine, "is_bounding", True):
            self.standings.left_out["bounded"] = "no bound settles enough rows"
            return
        exact_seconds, own_seconds = watch.times([self.exact, engine])
        self.standings.note_exact(exact_seconds)
        setting = str(report.details.get("bound", ""))
        trial = Trial("bounded", setting, 0, 1e6 * own_seconds, 1.0, "exact", engine.nbytes, seconds)
        self.standings.add(Candidate("bounded", trial, lambda: (engine, report), engine))

    # -- the result --------------------------------------------------------------------------------------------------

    def _exact_candidate(self) -> Candidate:
        def finish() -> tuple[Any, Report]:
            return self.exact, exact_report(self.machine, self.exact, self.started)

        setting = f"{self.machine.n_sv} support vectors"
        trial = Trial("exact", setting, 0, np.inf, 1.0, "exact", self.exact.nbytes, 0.0, {"exact": 1.0})
        return Candidate("exact", trial, finish, self.exact)

    def _why_exact(self) -> str:
        tried = ", ".join(dict.fromkeys(t.method for t in self.standings.trials if t.method != "exact"))
        if tried:
            return f"nothing that was tried is faster ({tried})"
        return self.standings.left_out.get("statistical methods", "no other method serves this machine")

    def result(self, reason: str | None) -> tuple[Any, Report]:
        """The best engine, and a report that says what else there was."""
        finished = self._finish()
        best = self.standings.best
        if finished is None:
            finished = best.finish()
            unproved = "the promise of the fastest could not be shown; an exact method answers"
            reason = f"{reason}; {unproved}" if reason else unproved  # an interrupted search stays one
        assert finished is not None  # exact methods need no proof
        engine, report = finished
        if best.method in EXACT and not self.standings.fits(best.trial):
            advice = "pass agreement=None for a stage alone" if self.agreement is not None else "no stage is smaller"
            raise ValueError(
                f"No predictor fits into max_bytes={self.options.max_bytes}: the exact engine, which answers what "
                f"others leave open, has {self.exact.nbytes} bytes. Allow more; {advice}."
            )
        details: dict[str, Any] = {"chosen by": f"auto: {reason}" if reason else "auto: the fastest of those tried"}
        if self.options.batch_size is not None:
            details["batch size"] = self.options.batch_size
        details |= {f"not chosen, {name}": why for name, why in self.standings.left_out.items() if name != best.method}
        trials = (
            self.standings.trials
            if any(t.method == "exact" for t in self.standings.trials)
            else [best.trial, *self.standings.trials]
        )
        trials = [replace(trial, chosen=trial is best.trial) for trial in trials]
        return engine, replace(
            report,
            details={**report.details, **details},
            build_seconds=perf_counter() - self.started,
            tried=tuple(trial for trial in trials if np.isfinite(trial.microseconds)),
        )

    def _finish(self) -> tuple[Any, Report] | None:
        """The best with its report; None where its promise could not be shown, and an exact method is the best."""
        finished = self.standings.best.finish()
        if finished is None:
            self.standings.give_up("no threshold could be shown to keep the promise")
        return finished
