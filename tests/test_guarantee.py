"""The statistical promise: bounds against the binomial distribution, thresholds against every possible choice."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.stats import binom, poisson

from svelto.guarantee import (
    LADDER,
    StageTrace,
    allowed,
    certify,
    choose,
    disagreement_bound,
    expected_to_pass,
    rows_needed,
    settled_wrong,
    widened,
)


def chance(n_wrong, n_rows, rate):
    """Probability of at most n_wrong disagreements, term by term."""
    return sum(math.comb(n_rows, k) * rate**k * (1 - rate) ** (n_rows - k) for k in range(n_wrong + 1))


def slow_bound(n_wrong, n_rows, confidence):
    """The largest rate at which so few disagreements still have a chance of 1 - confidence: by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if chance(n_wrong, n_rows, middle) > 1 - confidence else (low, middle)
    return high


def trace(caution, wrong, cost=1.0):
    return StageTrace(np.asarray(caution, dtype=float), np.asarray(wrong, dtype=bool), cost)


def random_traces(rng, n, n_stages, ties):
    """Wrong rows tend to have little caution, as in life; with few distinct values where `ties`."""
    traces = []
    for stage in range(n_stages):
        caution = rng.gamma(2.0, size=n)
        caution = np.round(caution) if ties else caution
        wrong = rng.random(n) < 0.5 * np.exp(-caution)
        traces.append(trace(caution, wrong, 10.0**stage))
    return traces


# -- how many rows show what -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize("n_rows", [1, 2, 10, 57, 300])
def test_bound_inverts_the_binomial_distribution(n_rows, confidence):
    for n_wrong in {0, 1, 2, n_rows // 2, n_rows - 1} & set(range(n_rows)):
        # Sixty halvings of [0, 1]; the sum of terms rounds by about 1e-14 where it is not small.
        assert disagreement_bound(n_wrong, n_rows, confidence) == pytest.approx(
            slow_bound(n_wrong, n_rows, confidence), abs=1e-10
        )
    assert disagreement_bound(n_rows, n_rows, confidence) == 1.0
    bounds = [disagreement_bound(k, n_rows, confidence) for k in range(n_rows + 1)]
    assert bounds == sorted(bounds)


def test_bound_keeps_its_confidence_at_every_rate():
    """Coverage: whatever the true rate, the bound is below it in at most a share 1 - confidence of all samples."""
    for n_rows, confidence in ((30, 0.9), (200, 0.95)):
        bounds = np.array([disagreement_bound(k, n_rows, confidence) for k in range(n_rows + 1)])
        for rate in (0.001, 0.01, 0.1, 0.3, 0.7, 0.99):
            missed = binom.pmf(np.arange(n_rows + 1), n_rows, rate)[bounds < rate].sum()
            assert missed <= 1 - confidence + 1e-12


def test_no_rows_and_full_confidence_show_nothing():
    assert disagreement_bound(0, 0, 0.95) == 1.0
    assert disagreement_bound(0, 1000, 1.0) == 1.0


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("rate", [0.5, 0.1, 0.05, 0.01, 0.001, 1e-5])
def test_rows_needed_is_the_smallest_number(rate, confidence):
    n = rows_needed(rate, confidence)
    assert disagreement_bound(0, n, confidence) <= rate * (1 + 1e-12)
    assert n == 1 or disagreement_bound(0, n - 1, confidence) > rate * (1 - 1e-12)
    if n > 1:
        assert allowed(n + 1, rate, confidence) >= 0
        assert allowed(n - 2, rate, confidence) == -1


@pytest.mark.parametrize("n_allowed", [0, 1, 5, 60])
@pytest.mark.parametrize("probability", [0.5, 0.8, 0.95])
def test_what_is_expected_passes_as_often_as_it_says(n_allowed, probability):
    expected = expected_to_pass(n_allowed, probability)
    assert poisson.cdf(n_allowed, expected) == pytest.approx(probability)


def test_allowed_is_the_largest_number():
    for n_rows, rate, confidence in product((0, 1, 5, 50, 300), (0.5, 0.1, 0.01), (0.8, 0.95)):
        # The bound is at most the rate where so few disagreements would have been too unlikely at that rate.
        good = [k for k in range(n_rows) if chance(k, n_rows, rate) <= 1 - confidence]
        assert allowed(n_rows, rate, confidence) == max(good, default=-1)


# -- thresholds ------------------------------------------------------------------------------------------------------


def slow_walk(traces, thresholds):
    """Wrong rows and total cost of a cascade, row by row."""
    n_wrong, cost, left = 0, 0.0, 0
    for row in range(len(traces[0].wrong)):
        for stage, threshold in zip(traces, thresholds, strict=True):
            cost += stage.cost
            if stage.caution[row] > threshold:
                n_wrong += bool(stage.wrong[row])
                break
        else:
            left += 1
    return n_wrong, cost, left


@pytest.mark.parametrize("n_stages", [1, 2, 3])
def test_settled_wrong_counts_as_a_cascade_works(n_stages):
    rng = np.random.default_rng(n_stages)
    for ties in (False, True):
        traces = random_traces(rng, 80, n_stages, ties)
        for _ in range(20):
            thresholds = rng.choice([0.0, 0.5, 1.0, 2.0, 3.5, math.inf], size=n_stages).tolist()
            n_wrong, cost, left = slow_walk(traces, thresholds)
            got, reach = settled_wrong(traces, thresholds)
            assert got == n_wrong
            assert reach[0] == 1.0
            assert reach[-1] * 80 == pytest.approx(left)
            assert sum(r * t.cost for r, t in zip(reach, traces, strict=False)) * 80 == pytest.approx(cost)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n_stages", [1, 2])
def test_choice_is_the_best_of_all(n_stages, ties):
    rng = np.random.default_rng(10 * n_stages + ties)
    for budget in (0, 1, 2, 5, 100):
        traces = random_traces(rng, 40, n_stages, ties)
        exact_cost = 1000.0
        candidates = [sorted({0.0, *t.caution.tolist()}) for t in traces]
        best = math.inf
        for thresholds in product(*candidates):
            n_wrong, reach = settled_wrong(traces, list(thresholds))
            if n_wrong <= budget:
                costs = [t.cost for t in traces] + [exact_cost]
                best = min(best, sum(r * c for r, c in zip(reach, costs, strict=True)))
        chosen = choose(traces, budget, exact_cost)
        n_wrong, reach = settled_wrong(traces, chosen)
        assert n_wrong <= budget
        got = sum(r * c for r, c in zip(reach, [*(t.cost for t in traces), exact_cost], strict=True))
        assert got == pytest.approx(best)


def test_large_budgets_are_respected():
    rng = np.random.default_rng(0)
    for n_stages in (1, 2, 3):
        traces = random_traces(rng, 3000, n_stages, ties=False)
        for budget in (11, 12, 50, 299):
            n_wrong, reach = settled_wrong(traces, choose(traces, budget, 1e3))
            assert n_wrong <= budget
            assert reach[-1] < 1.0
    everything = trace([1.0, 2.0], [False, False])
    assert choose([everything], 0, 1.0) == [0.0]
    assert choose([everything, everything], 0, 1.0) == [0.0, 0.0]
    nothing = trace([0.0, 3.0], [True, True])
    assert settled_wrong([nothing], choose([nothing], 0, 1.0)) == (0, [1.0, 1.0])


def test_widened_thresholds_grow_and_keep_their_order():
    assert widened([0.0, 1.0, 5.0], 1.0) == [0.0, 1.0, 5.0]
    assert widened([0.0, 1.0], 2.0) == [1.0, 3.0]
    assert widened([math.inf], 2.0) == [math.inf]
    assert LADDER[0] == 16.0
    assert LADDER[-1] == 1.0
    assert list(LADDER) == sorted(LADDER, reverse=True)


# -- the certificate -------------------------------------------------------------------------------------------------


def slow_certify(traces, thresholds, agreement, confidence):
    """The rule: from the most careful rung down, every rung so far must show the agreement."""
    n, last = len(traces[0].wrong), None
    for factor in LADDER:
        scaled = [factor * (t + 1.0) - 1.0 for t in thresholds]
        n_wrong = slow_walk(traces, scaled)[0]
        if n_wrong > allowed(n, 1 - agreement, confidence):
            break
        last = scaled
    return last


@pytest.mark.parametrize("n_stages", [1, 2])
def test_certificate_is_the_last_rung_of_an_unbroken_row(n_stages):
    rng = np.random.default_rng(n_stages)
    retreats = 0
    for run in range(40):
        traces = random_traces(rng, 400, n_stages, ties=run % 2 == 1)
        thresholds = rng.gamma(2.0, size=n_stages).tolist()
        certificate = certify(traces, thresholds, 0.97, 0.9)
        expected = slow_certify(traces, thresholds, 0.97, 0.9)
        assert certificate.kept
        assert certificate.n_rows == 400
        if expected is None:
            assert certificate.thresholds == [math.inf] * n_stages
            assert certificate.bound == 1.0
            continue
        assert_array_equal(certificate.thresholds, expected)
        retreats += expected != thresholds
        assert certificate.n_wrong == slow_walk(traces, expected)[0]
        assert certificate.bound == pytest.approx(1 - slow_bound(certificate.n_wrong, 400, 0.9), abs=1e-10)
        assert certificate.bound >= 0.97
    assert 5 < retreats < 40


def test_a_wrong_row_behind_a_gap_is_not_jumped_over():
    """A rung that fails ends the descent, though less careful rungs might pass (possible with two stages)."""
    n = 100
    # The first stage is right about row 0 and settles it at thresholds below 3; the second is wrong about it.
    first = trace([3.0] + [0.0] * (n - 1), [False] * n)
    second = trace([100.0] + [0.0] * (n - 1), [True] + [False] * (n - 1))
    assert allowed(n, 0.03, 0.9) == 0
    assert settled_wrong([first, second], [1.0, 1.0])[0] == 0
    certificate = certify([first, second], [1.0, 1.0], 0.97, 0.9)
    assert certificate.thresholds == [math.inf, math.inf]


@given(
    seed=st.integers(0, 2**31),
    n=st.integers(1, 500),
    n_stages=st.integers(1, 2),
    agreement=st.floats(0.5, 0.999),
    confidence=st.floats(0.5, 0.99),
    start=st.floats(0.0, 5.0),
)
def test_kept_means_kept(seed, n, n_stages, agreement, confidence, start):
    traces = random_traces(np.random.default_rng(seed), n, n_stages, ties=False)
    certificate = certify(traces, [start] * n_stages, agreement, confidence)
    n_wrong, _ = settled_wrong(traces, certificate.thresholds)
    assert n_wrong == certificate.n_wrong
    if all(t == math.inf for t in certificate.thresholds):
        assert certificate.bound == 1.0
        assert certificate.kept
        return
    assert certificate.bound == pytest.approx(1 - disagreement_bound(n_wrong, n, confidence))
    assert certificate.kept == (certificate.bound >= agreement)
    if not certificate.kept:
        assert n < rows_needed(1 - agreement, confidence)
        assert n_wrong == 0


def test_too_few_rows():
    n = rows_needed(0.01, 0.95)
    flawless = trace(np.full(n, 1e9), [False] * n)
    assert certify([flawless], [1.0], 0.99, 0.95).kept
    fewer = trace(np.full(n - 1, 1e9), [False] * (n - 1))
    certificate = certify([fewer], [1.0], 0.99, 0.95)
    assert not certificate.kept
    assert certificate.bound < 0.99
    assert certificate.thresholds == [1.0]
    # One wrong row that every rung would settle: nothing is left but the exact engine.
    wrong = trace(np.full(n - 1, 1e9), [True] + [False] * (n - 2))
    certificate = certify([wrong], [1.0], 0.99, 0.95)
    assert certificate.thresholds == [math.inf]
    assert certificate.bound == 1.0
    # One wrong row of little caution: the thresholds step above it.
    caution = np.r_[4.0, np.full(n - 2, 1e9)]
    certificate = certify([trace(caution, [True] + [False] * (n - 2))], [1.0], 0.99, 0.95)
    assert not certificate.kept
    assert 4.0 <= certificate.thresholds[0] < 32.0
    assert certificate.n_wrong == 0


@pytest.mark.parametrize("n_stages", [1, 2])
@pytest.mark.parametrize("start", [0.0, 0.5])
def test_certified_thresholds_keep_the_promise_in_repeated_sampling(n_stages, start):
    """Fixed-sequence testing: over many samples, thresholds that break the promise are rare enough."""
    rng = np.random.default_rng(n_stages)
    agreement, confidence, runs, broken = 0.98, 0.9, 400, 0
    world = random_traces(rng, 200_000, n_stages, ties=False)
    for _ in range(runs):
        rows = rng.integers(200_000, size=300)
        sample = [trace(t.caution[rows], t.wrong[rows], t.cost) for t in world]
        certificate = certify(sample, [start] * n_stages, agreement, confidence)
        assert certificate.kept
        n_wrong, reach = settled_wrong(world, certificate.thresholds)
        broken += n_wrong / 200_000 > 1 - agreement
    assert reach[-1] < 1.0
    # More than this many would happen once in a thousand test runs if the promise held with nothing to spare.
    assert broken <= binom.ppf(0.999, runs, 1 - confidence)
