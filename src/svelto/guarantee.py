"""The statistical promise: how far measured agreement carries.

Disagreements among n independent rows are binomial, so the one-sided Clopper-Pearson bound holds at its confidence for
every n and every rate:

    upper bound of the rate after k disagreements in n rows = the q-quantile of Beta(k + 1, n - k), q = confidence.

Thresholds are chosen on one set of rows and checked on another. Where the check fails, the thresholds retreat along a
ladder that was fixed before, from the most careful rung down, and stop above the first rung whose bound is not good
enough: a sequence of tests in a fixed order keeps the confidence of a single one (fixed-sequence testing; Bauer 1991,
Angelopoulos et al. 2021), because the first false acceptance must happen at the first rung that does not deserve it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.stats import beta, gamma

from svelto._typing import FloatArray

# Factors on the thresholds, most careful first. The last rung is the choice of the calibration rows itself.
LADDER: Final = tuple(float(f) for f in np.geomspace(16.0, 1.0, 25))

# Ways to share a budget of wrong rows between a stage and those behind it; of four stages and more.
MOST_WAYS: Final = 12
MOST_WAYS_OF_MANY: Final = 4


def disagreement_bound(n_wrong: int, n_rows: int, confidence: float) -> float:
    """Upper confidence bound of a rate (Clopper-Pearson, one-sided).

    Examples
    --------
    >>> round(disagreement_bound(0, 2995, 0.95), 6)
    0.001
    """
    if n_wrong >= n_rows or confidence >= 1.0:
        return 1.0
    return float(beta.ppf(confidence, n_wrong + 1, n_rows - n_wrong))


def rows_needed(rate: float, confidence: float) -> int:
    """Rows without a single disagreement that are needed to show that the rate is at most `rate`.

    Examples
    --------
    >>> rows_needed(0.001, 0.95)
    2995
    """
    return math.ceil(math.log(1.0 - confidence) / math.log1p(-rate))


def allowed(n_rows: int, rate: float, confidence: float) -> int:
    """Largest number of disagreements in n rows that still shows the rate; -1 where even none would not."""
    low, high = -1, n_rows
    while high - low > 1:  # the bound grows with the number of disagreements
        middle = (low + high) // 2
        if disagreement_bound(middle, n_rows, confidence) <= rate:
            low = middle
        else:
            high = middle
    return low


def expected_to_pass(n_allowed: int, probability: float) -> float:
    """Largest expected number of disagreements at which at most `n_allowed` happen with this probability (Poisson).

    Examples
    --------
    >>> round(expected_to_pass(0, 0.8), 3)
    0.223
    """
    return float(gamma.ppf(1.0 - probability, n_allowed + 1))


@dataclass(frozen=True)
class StageTrace:
    """What one stage would do with each row of a set.

    Attributes
    ----------
    caution : ndarray of shape (n_rows,)
        The row is settled by this stage where the threshold is below this number.
    wrong : ndarray of bool
        Whether the label it would be settled with differs from the exact machine's.
    cost : float
        Cost of asking this stage about a row; any unit, the same for all stages.
    """

    caution: FloatArray
    wrong: np.ndarray[tuple[int], np.dtype[np.bool_]]
    cost: float


def settled_wrong(traces: list[StageTrace], thresholds: list[float]) -> tuple[int, list[float]]:
    """Wrong rows of the whole cascade, and the share of rows that reach each stage and the exact engine."""
    waiting = np.ones(len(traces[0].wrong), dtype=bool)
    n_wrong, reach = 0, []
    for trace, threshold in zip(traces, thresholds, strict=True):
        reach.append(float(waiting.mean()))
        settled = waiting & (trace.caution > threshold)
        n_wrong += int((settled & trace.wrong).sum())
        waiting &= ~settled
    return n_wrong, [*reach, float(waiting.mean())]


def choose(traces: list[StageTrace], n_wrong: int, exact_cost: float) -> list[float]:
    """The thresholds of least expected cost with at most `n_wrong` wrong rows.

    The budget of wrong rows is shared between a stage and those behind it in every possible way, or in some ways where
    that would be many; what one stage leaves open is all that the next one sees.
    """
    first = traces[0]
    best: tuple[float, list[float]] | None = None
    budgets = _few(n_wrong, MOST_WAYS if len(traces) < 4 else MOST_WAYS_OF_MANY) if len(traces) > 1 else [n_wrong]
    for budget in budgets:
        threshold = _smallest(first, budget)
        if len(traces) == 1:
            return [threshold]
        open_rows = ~(first.caution > threshold)
        rest = [StageTrace(t.caution[open_rows], t.wrong[open_rows], t.cost) for t in traces[1:]]
        spent, _ = settled_wrong([first], [threshold])
        tail = choose(rest, n_wrong - spent, exact_cost) if open_rows.any() else [0.0] * len(rest)
        thresholds = [threshold, *tail]
        _, reach = settled_wrong(traces, thresholds)
        cost = sum(share * trace.cost for share, trace in zip(reach, traces, strict=False)) + reach[-1] * exact_cost
        if best is None or cost < best[0]:
            best = (cost, thresholds)
    assert best is not None
    return best[1]


def _few(n: int, most: int) -> list[int]:
    return list(range(n + 1)) if n < most else sorted({int(v) for v in np.linspace(0, n, most)})


def _smallest(trace: StageTrace, n_wrong: int) -> float:
    """The smallest threshold that lets at most `n_wrong` wrong rows through."""
    wrong = np.sort(trace.caution[trace.wrong])[::-1]
    return float(wrong[n_wrong]) if len(wrong) > n_wrong else 0.0


@dataclass(frozen=True)
class Certificate:
    """Thresholds, and what the check rows show about them.

    Attributes
    ----------
    thresholds : list of float
        For each stage; infinite where no threshold could be certified and every row goes to the exact engine.
    n_rows, n_wrong : int
        Rows of the check, and disagreements among them.
    bound : float
        Lower confidence bound of the agreement.
    kept : bool
        Whether the bound reaches the agreement that was asked for.
    """

    thresholds: list[float]
    n_rows: int
    n_wrong: int
    bound: float
    kept: bool

    @property
    def is_exact(self) -> bool:
        """Whether no stage settles anything, so that the exact engine answers every row."""
        return all(t == math.inf for t in self.thresholds)


def widened(thresholds: list[float], factor: float) -> list[float]:
    """More careful thresholds; a threshold of zero grows too."""
    return [factor * (t + 1.0) - 1.0 for t in thresholds]


def certify(traces: list[StageTrace], thresholds: list[float], agreement: float, confidence: float) -> Certificate:
    """Check thresholds on rows that had no part in choosing them; retreat along the ladder where they fail."""
    n, rate = len(traces[0].wrong), 1.0 - agreement
    if all(t == math.inf for t in thresholds):
        return Certificate(thresholds, n, 0, 1.0, True)
    kept: Certificate | None = None
    for factor in LADDER:
        scaled = widened(thresholds, factor)
        n_wrong, _ = settled_wrong(traces, scaled)
        bound = disagreement_bound(n_wrong, n, confidence)
        if bound > rate:
            break
        kept = Certificate(scaled, n, n_wrong, 1.0 - bound, True)
    if kept is not None:
        return kept
    if n < rows_needed(rate, confidence):
        # Nothing could have been shown with so few rows: down the ladder while no row is wrong, and the bound for that.
        for factor in LADDER:
            scaled = widened(thresholds, factor)
            if settled_wrong(traces, scaled)[0] > 0:
                break
            kept = Certificate(scaled, n, 0, 1.0 - disagreement_bound(0, n, confidence), False)
        if kept is not None:
            return kept
    return Certificate([math.inf] * len(thresholds), n, 0, 1.0, True)
