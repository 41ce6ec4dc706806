"""Chains of hyperplanes: native code against the definition."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from chain_cases import LEVELS, RULES, ask, definition, random_chains, same, slow_labels, slow_trace, slow_work
from svelto.engines.chains import Chains

# Around the lanes, the widths that have code of their own, and beyond them.
WIDTHS = [1, 2, 3, 5, 8, 9, 15, 16, 17, 22, 33, 64, 65, 256]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n_classes", [1, 2, 3, 4, 12])
@pytest.mark.parametrize("d", WIDTHS)
def test_answers_match_the_definition(d, n_classes, rule):
    chains, X = random_chains(n_classes, rule, d)
    expected = definition(chains, X)
    for level in LEVELS:
        same(ask(chains, X, level), expected)
    # However the rows arrive, the same comes out.
    read_only = X.copy()
    read_only.setflags(write=False)
    wide = np.full((len(X), d + 5), np.nan)
    wide[:, 2 : d + 2] = X
    arrivals = [X.astype(np.float32), np.asfortranarray(X), read_only, X[::-1][::-1], wide[:, 2 : d + 2]]
    for rows in (*arrivals, sparse.csr_matrix(X), sparse.csr_matrix(X.astype(np.float32))):
        same(ask(chains, rows), expected)
    same(ask(replace(chains, stored=True, centre=None), sparse.csr_matrix(X)), expected)
    same(ask(replace(chains, stored=True, centre=None), X), expected)


@pytest.mark.parametrize("rule", RULES)
def test_many_small_games(rule):
    """Every number of classes, many times over: all kinds of games are played to the end."""
    settled, open_ends, seeds = 0, 0, range(40)
    for n_classes, seed in itertools.product(range(1, 13), seeds):
        chains, X = random_chains(n_classes, rule, 6, seed, n_nodes=2, n=25)
        expected = definition(chains, X)
        same(ask(chains, X, LEVELS[seed % len(LEVELS)]), expected)
        settled += (expected[0] >= 0).mean() / len(seeds) / 12
        open_ends += (expected[2] == 0).any() / len(seeds) / 12
    assert 0.2 < settled < 0.8
    assert open_ends > 0.3


@pytest.mark.parametrize("rule", RULES)
def test_labels_do_not_depend_on_the_order(rule):
    chains, X = random_chains(7, rule, 6, seed=1)
    expected = ask(chains, X)[0]
    assert len(np.unique(expected)) > 3
    assert 0.1 < (expected < 0).mean() < 0.9
    works = set()
    for seed in range(5):
        other = replace(chains, order=np.random.default_rng(seed).permutation(7))
        labels, work, *_ = ask(other, X)
        np.testing.assert_array_equal(labels, expected)
        works.add(int(work.sum()))
    assert len(works) > 1
    assert max(works) < len(X) * chains.n_nodes


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("d", [3, 7, 12, 37, 130])
def test_answers_do_not_depend_on_level_threads_or_batch(d, n_classes, rule, stored):
    """Numbers that round: the bits are the same all the same."""
    chains, X = random_chains(n_classes, rule, d, n=700)
    rng = np.random.default_rng(0)
    X = X + rng.normal(size=X.shape) * (X != 0)
    chains = replace(
        chains,
        planes=chains.planes + rng.normal(size=chains.planes.shape) / 8,
        centre=None if stored else X.mean(axis=0),
        stored=stored,
    )
    expected = ask(chains, X)
    for level, n_threads in itertools.product(LEVELS, (1, 2, 5)):
        same(ask(chains, X, level, n_threads), expected)
    same(ask(chains, sparse.csr_matrix(X)), expected)
    rows = [ask(chains, X[i : i + 1]) for i in range(80)]
    same([np.concatenate(parts) for parts in zip(*rows, strict=True)], [a[:80] for a in expected])
    for n in (15, 16, 17, 63, 64, 65, 129):
        same(ask(chains, X[:n]), [a[:n] for a in expected])
    # What labels are made of is what the trace shows.
    np.testing.assert_array_equal(expected[0], slow_labels(chains, expected[2]))
    np.testing.assert_array_equal(expected[1], slow_work(chains, expected[2], expected[3]))
    # Short rows are turned to columns, longer ones are not: features that are zero change nothing.
    if d < 17 and not stored:
        more = (0, 17 - d)
        wider = replace(chains, planes=np.pad(chains.planes, ((0, 0), more)), centre=np.pad(chains.centre, more))
        *decisions, score, scores, _ = ask(wider, np.pad(X, ((0, 0), more)))
        same(decisions, expected[:4])
        for a, b in ((score, expected[4]), (scores, expected[5])):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)  # the centre's share is NumPy's product


@pytest.mark.parametrize("threshold", [0.1, 0.7, -0.1, -0.7])  # float32 rounds them up, down, down and up
def test_products_are_compared_with_the_thresholds_as_they_are(threshold):
    """Not with their rounding to float32, and a product at a threshold goes on."""
    near, one = np.float32(threshold), np.float32(1)
    below, above = (np.nextafter(near, -one), near) if float(near) > threshold else (near, np.nextafter(near, one))
    assert float(below) < threshold < float(above)
    rows = np.array([[below], [above]], dtype=np.float64)
    chains = Chains([[1.0]], [threshold], [threshold], [0, 1], [0], [[0, 1]], 2)
    for level in LEVELS:
        assert ask(chains, rows, level)[2].tolist() == [[-1], [1]]
    wide = replace(chains, low=[below], high=[above])
    beyond = np.array([[np.nextafter(below, -one)], [np.nextafter(above, one)]], dtype=np.float64)
    for level in LEVELS:
        assert ask(wide, rows, level)[2].tolist() == [[0], [0]]
        assert ask(wide, beyond, level)[2].tolist() == [[-1], [1]]


def test_thresholds_beyond_float32_and_none_at_all():
    far = Chains(np.ones((2, 1)), [-1e300, -np.inf], [1e300, np.inf], [0, 2], [1], [[0, 1]], 2)
    nothing, everything = replace(far, low=[1e300, 0]), replace(far, high=[-1e300, 0], low=[-1e301, 0])
    for level in LEVELS:
        assert ask(far, np.array([[1e30]]), level)[1:4] == [[2], [[1]], [[2]]]
        assert ask(nothing, np.array([[1e30]]), level)[1:4] == [[1], [[-1]], [[0]]]
        assert ask(everything, np.array([[1e30]]), level)[1:4] == [[1], [[1]], [[0]]]


@pytest.mark.parametrize("d", [2, 16, 20, 70])
@pytest.mark.parametrize("stored", [False, True])
def test_a_product_that_is_no_number_goes_on(d, stored):
    """Features beyond float32 become infinite; their differences are NaN, their multiples are not."""
    planes = np.zeros((2, d))
    planes[0, :2], planes[1, :2] = (1, -1), 1
    chains = Chains(planes, [-1.0, -1.0], [1.0, 1.0], [0, 2], [0], [[0, 1]], 2, stored=stored)
    three = [np.concatenate([a] * 3) for a in (planes, chains.low, chains.high)]
    duels = Chains(*three, [0, 2, 4, 6], [0] * 3, [[0, 1], [0, 2], [1, 2]], 3, stored=stored)
    X = np.zeros((3, d))
    X[0, :2], X[1, 0], X[2, :2] = 1e300, -1e300, (1e300, -1e300)
    for level in LEVELS:
        same(ask(chains, X, level)[:4], [[1, 0, 1], [2, 1, 1], [[1], [-1], [1]], [[1], [0], [0]]])
        same(ask(duels, X, level)[:2], [[2, 0, 2], [6, 2, 3]])


def test_a_centre_keeps_the_digits_of_rows_far_from_zero():
    chains, X = random_chains(4, "one_vs_one", 20)
    far = 2.0**28 * np.arange(1, 21)
    offset = chains.planes @ far
    moved = replace(chains, low=chains.low + offset, high=chains.high + offset, centre=far)
    expected, got = definition(chains, X), ask(moved, X + far)
    same(got[:4], expected[:4])
    np.testing.assert_array_equal(got[4], slow_trace(moved, X + far)[2])
    without = ask(replace(moved, centre=None), X + far)
    assert (without[0] != expected[0]).any()


@pytest.mark.parametrize("exponent", [-600, -140, 100, 900])
def test_planes_of_any_scale(exponent):
    chains, X = random_chains(3, "one_vs_one", 18)
    factor = 2.0**exponent
    scaled = replace(chains, planes=chains.planes * factor, low=chains.low * factor, high=chains.high * factor)
    expected, got = ask(chains, X), ask(scaled, X)
    same(got[:4], expected[:4])
    with np.errstate(over="ignore", under="ignore"):
        np.testing.assert_array_equal(got[4], expected[4] * factor)


@pytest.mark.parametrize("end", [-1, 0, 1])
def test_chains_without_nodes(end):
    X = np.zeros((70, 3))
    two = Chains(np.zeros((0, 3)), [], [], [0, 0], [end], [[1, 0]], 2)
    tiny = np.finfo(float).tiny  # a margin of 0 has a side as well
    same(
        ask(two, X),
        [
            [{-1: 1, 0: -1, 1: 0}[end]] * 70,
            [0] * 70,
            [[end]] * 70,
            [[0]] * 70,
            [[0.0]] * 70,
            [[end * tiny]] * 70,
            [{-1: 1, 0: 1, 1: 0}[end]] * 70,
        ],
    )
    pairs = [[0, 1], [0, 2], [1, 2]]
    three = Chains(np.zeros((0, 3)), [], [], [0] * 4, [end] * 3, pairs, 3)
    same(ask(three, X)[:2], [[{-1: 0, 0: -1, 1: 2}[end]] * 70, [0] * 70])
    rest = Chains(np.zeros((0, 3)), [], [], [0] * 3, [end, -1], [[-1, 1], [-1, 0]], 2, "one_vs_rest")
    same(ask(rest, X)[:2], [[{-1: -1, 0: -1, 1: 1}[end]] * 70, [0] * 70])
    alone = Chains(np.zeros((0, 3)), [], [], [0], np.zeros(0, dtype=int), np.zeros((0, 2), dtype=int), 1)
    same(ask(alone, X)[:2], [[0] * 70, [0] * 70])


@pytest.mark.parametrize("stored", [False, True])
def test_many_planes_beyond_the_fast_memory(stored):
    """Enough planes that the next one is asked for ahead of time."""
    chains, X = random_chains(12, "one_vs_one", 2000, n_nodes=3, n=40)
    assert chains.planes.nbytes / 2 > 2**19
    if stored:
        chains, X = replace(chains, stored=True, centre=None), X * (np.arange(2000) % 7 == 0)
    same(ask(chains, X), definition(chains, X))
