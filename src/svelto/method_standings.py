"""Which of the candidates of method="auto" is the best so far.

Times are noisy. Of candidates that are equally fast within a tenth, the first in a fixed order is taken, the exact
engine before all others: a choice only changes from one call to the next where two are about a tenth apart.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from svelto.method_candidates import EXACT, STATISTICAL, Candidate, raw_rank
from svelto.report import Trial
from svelto.stopwatch import REPEATS, Stopwatch

# Equally fast within noise.
TIE: Final = 1.1
# A candidate may still be the best on all rows if its forecast is no more than this many times the best one's, or its
# time on the sample than the exact engine's: with more rows and effort it will be faster.
CLOSE: Final = 1.5
HOPEFUL: Final = 1.5
# Stages without a promise, of which no exact engine takes the rest: so many are built on all rows.
FINALISTS: Final = 2
# Passes over the timed rows in which candidates that are built on all rows take turns at last; fewer where they take
# longer than this many seconds.
PLAY_OFF_PASSES: Final = 25
PLAY_OFF_SECONDS: Final = 1.0


class Standings:
    """Everything that was tried, and the best of it.

    Parameters
    ----------
    exact : Candidate
        The exact engine, which is the best as long as nothing is faster.
    agreement : float or None
        What is promised; None: stages alone, without a promise.
    max_bytes : int, optional
        What a predictor may have.

    Attributes
    ----------
    trials : list of Trial
        In the order in which they were made; the exact engine's once something is better.
    left_out : dict of str
        Why a method is not chosen, by its name.
    best : Candidate
        The best so far.
    fallback : Candidate
        The best exact method.
    """

    def __init__(self, exact: Candidate, agreement: float | None, max_bytes: int | None) -> None:
        self.agreement = agreement
        self.max_bytes = max_bytes
        self.trials: list[Trial] = []
        self.left_out: dict[str, str] = {}
        self.best = self.fallback = exact

    def note_exact(self, seconds: float) -> None:
        """The exact engine is timed beside every candidate; the shortest of these times is its own."""
        if self.best.method == "exact":
            self.best.trial = replace(self.best.trial, microseconds=min(1e6 * seconds, self.best.trial.microseconds))

    def fits(self, trial: Trial) -> bool:
        """Whether it has no more than the allowed bytes."""
        return self.max_bytes is None or trial.nbytes <= self.max_bytes

    def add(self, found: Candidate) -> None:
        """Take a candidate into account; keep it where it is better than the best so far."""
        self.trials.append(found.trial)
        if not self.fits(found.trial):
            self.left_out[found.method] = f"{found.trial.nbytes} bytes, more than max_bytes"
            return
        if self.agreement is None and found.method not in EXACT:
            # A stage alone is for those who want more speed, or have less room, than the exact engine.
            faster = TIE * found.trial.microseconds < self._exact_time()
            better = faster or not self.fits(self._exact_trial())
            better = better and (self.best.method in EXACT or raw_rank(found.trial) < raw_rank(self.best.trial))
        else:
            # What was built on the sample only stands in until something is built on all rows.
            stands_in = self.best.trial.n_rows < found.trial.n_rows and self.best.method not in EXACT
            better = TIE * found.trial.microseconds < (
                self._exact_time() if stands_in else self.best.trial.microseconds
            )
        if better:
            if self.best.method == "exact":
                self.trials.insert(0, self.best.trial)
            if self.best.method in EXACT:
                self.fallback = self.best
            self.best = found

    def hopeful(self, found: list[Candidate]) -> list[Candidate]:
        """Candidates to be built on all rows: the best on the sample, and those that are close to it."""
        fitting = [c for c in found if self.fits(c.trial)]
        if self.agreement is None:
            return sorted(fitting, key=lambda c: raw_rank(c.trial))[:FINALISTS]
        hopes = [c for c in fitting if c.trial.microseconds <= HOPEFUL * self._exact_time()]
        nearest = min((c.forecast for c in hopes), default=0.0)
        close = [c for c in hopes if c.forecast <= CLOSE * nearest]
        return sorted(close, key=lambda c: STATISTICAL.index(c.method))  # of equally fast ones the first is kept

    def play_off(self, finalists: list[Candidate], watch: Stopwatch) -> None:
        """Let those that are close to the best take turns: each was timed at another moment before."""
        if self.agreement is None or self.best not in finalists:
            return
        limit = CLOSE * self.best.trial.microseconds
        close = [c for c in finalists if self.fits(c.trial) and c.trial.microseconds <= limit]
        if self.fallback.trial.microseconds <= limit:
            close.insert(0, self.fallback)
        if len(close) < 2:
            return
        one_pass = 1e-6 * watch.n_rows * sum(c.trial.microseconds for c in close)
        passes = max(REPEATS, min(PLAY_OFF_PASSES, int(PLAY_OFF_SECONDS / one_pass)))
        for candidate, seconds in zip(close, watch.times([c.engine for c in close], passes), strict=True):
            retimed = replace(candidate.trial, microseconds=1e6 * seconds)
            self.trials = [retimed if trial is candidate.trial else trial for trial in self.trials]
            candidate.trial = retimed
        self.best = close[0]
        for candidate in close[1:]:
            if TIE * candidate.trial.microseconds < self.best.trial.microseconds:
                self.best = candidate

    def give_up(self, why: str) -> None:
        """Leave the best out, and take the best exact method."""
        self.left_out[self.best.method] = why
        self.best = self.fallback

    def _exact_trial(self) -> Trial:
        """The exact engine's own."""
        return next((trial for trial in self.trials if trial.method == "exact"), self.fallback.trial)

    def _exact_time(self) -> float:
        """Microseconds of a row of the faster exact method."""
        known = [self.best.trial] if self.best.method in EXACT else []
        return min(trial.microseconds for trial in (*known, *self.trials) if trial.method in EXACT)
