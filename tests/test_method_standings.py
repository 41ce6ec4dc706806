"""Which candidate is the best: ties, finalists, and the last round in turns."""

from __future__ import annotations

import pytest

from svelto.method_candidates import Candidate
from svelto.method_standings import CLOSE, PLAY_OFF_PASSES, TIE, Standings
from svelto.report import Trial
from svelto.stopwatch import REPEATS


def candidate(method, microseconds, *, share=1.0, n_rows=5000, nbytes=100, agreement=1.0):
    kind = "exact" if method in ("exact", "bounded") else "statistical"
    trial = Trial(method, "", n_rows, microseconds, agreement, kind, nbytes, 0.0)
    return Candidate(method, trial, lambda: None, f"engine of {method}", share)


def standings(*found, agreement=0.99, exact=10.0, max_bytes=None):
    result = Standings(candidate("exact", exact, n_rows=0), agreement, max_bytes)
    for one in found:
        result.add(one)
    return result


class Clock:
    """Says what it was told, and remembers who was asked."""

    def __init__(self, n_rows=1000, **microseconds):
        self.n_rows, self.microseconds, self.asked = n_rows, microseconds, []

    def times(self, engines, repeats):
        self.asked = [engine.removeprefix("engine of ") for engine in engines]
        self.repeats = repeats
        return [1e-6 * self.microseconds[name] for name in self.asked]


def test_a_tenth_decides_nothing():
    assert standings(candidate("hinges", 9.5)).best.method == "exact"
    assert standings(candidate("hinges", 9.0)).best.method == "hinges"
    assert standings(candidate("hinges", 1.0), candidate("taylor_tree", 0.95)).best.method == "hinges"
    assert standings(candidate("hinges", 1.0), candidate("taylor_tree", 0.9)).best.method == "taylor_tree"


def test_what_is_too_large_is_not_chosen():
    result = standings(candidate("hinges", 1.0, nbytes=300), max_bytes=200)
    assert result.best.method == "exact"
    assert result.left_out == {"hinges": "300 bytes, more than max_bytes"}


def test_an_exact_method_that_is_faster_is_taken_without_a_promise_too():
    assert standings(candidate("bounded", 2.0), agreement=None).best.method == "bounded"


def test_what_was_built_on_the_sample_only_stands_in():
    result = standings(candidate("hinges", 1.0, n_rows=1000), candidate("hinges", 2.0))
    assert result.best.trial.n_rows == 5000
    result = standings(candidate("hinges", 1.0, n_rows=1000), candidate("hinges", 12.0))
    assert result.best.trial.n_rows == 1000  # slower than the exact engine: the sample's stays


def test_giving_up_leads_to_the_best_exact_method():
    result = standings(candidate("bounded", 5.0), candidate("hinges", 1.0))
    result.give_up("not shown")
    assert (result.best.method, result.left_out) == ("bounded", {"hinges": "not shown"})


# -- finalists ---------------------------------------------------------------------------------------------------------


def finalists(**sample):
    """Methods that would be built on all rows, by microseconds on the sample and share of the first stage in them."""
    found = [candidate(method, microseconds, share=share) for method, (microseconds, share) in sample.items()]
    return [one.method for one in standings().hopeful(found)]


def test_only_what_is_close_is_built_on_all_rows():
    assert finalists(hinges=(1.0, 1.0), taylor_tree=(1.4, 1.0), reduced_set=(5.0, 1.0)) == ["hinges", "taylor_tree"]
    assert finalists(hinges=(1.0, 1.0), taylor_tree=(1.6, 1.0), reduced_set=(5.0, 1.0)) == ["hinges"]
    everyone = finalists(reduced_set=(2.1, 1.0), hinges=(3.0, 1.0), taylor_tree=(2.5, 1.0))
    assert everyone == ["hinges", "taylor_tree", "reduced_set"]
    assert finalists(hinges=(16.0, 1.0), taylor_tree=(17.0, 0.1)) == []  # even the sample shows that it will not pay


def test_on_all_rows_fewer_are_left_to_what_is_behind_the_first_stage():
    """Hinges in 0.1 us, with 0.9 us behind them for rows that are left, beat 0.8 us for every row."""
    assert finalists(hinges=(1.0, 0.1), reduced_set=(0.8, 1.0)) == ["hinges"]
    assert finalists(hinges=(1.0, 0.9), reduced_set=(0.8, 1.0)) == ["hinges", "reduced_set"]


# -- the last round ----------------------------------------------------------------------------------------------------


def test_those_that_are_close_take_turns_and_the_first_times_are_forgotten():
    hinges, tree, reduced = candidate("hinges", 1.4), candidate("taylor_tree", 1.0), candidate("reduced_set", 1.6)
    result = standings(hinges, tree, reduced)
    assert result.best is tree
    clock = Clock(hinges=0.8, taylor_tree=1.5)
    result.play_off([hinges, tree, reduced], clock)
    assert clock.asked == ["hinges", "taylor_tree"]  # the third is not close
    assert result.best is hinges
    assert {trial.method: trial.microseconds for trial in result.trials} == pytest.approx(
        {"exact": 10.0, "hinges": 0.8, "taylor_tree": 1.5, "reduced_set": 1.6}
    )
    assert result.best.trial in result.trials


@pytest.mark.parametrize(("tree", "winner"), [(1.0 / TIE + 0.01, "hinges"), (1.0 / TIE - 0.01, "taylor_tree")])
def test_equally_fast_ones_are_decided_by_their_order(tree, winner):
    found = [candidate("hinges", 1.4), candidate("taylor_tree", 1.0)]
    result = standings(*found)
    result.play_off(found, Clock(hinges=1.0, taylor_tree=tree))
    assert result.best.method == winner


def test_the_exact_method_takes_part_where_it_is_close():
    found = [candidate("hinges", 8.0)]
    result = standings(*found)
    result.play_off(found, Clock(exact=7.5, hinges=8.5))
    assert result.best.method == "exact"
    assert [trial.microseconds for trial in result.trials] == pytest.approx([7.5, 8.5])
    far = standings(*found, exact=8.0 * CLOSE + 1.0)
    clock = Clock()
    far.play_off(found, clock)
    assert clock.asked == []
    assert far.best.method == "hinges"


def test_there_is_no_last_round_without_a_promise_or_of_the_sample():
    clock = Clock()
    found = [candidate("hinges", 1.0), candidate("taylor_tree", 1.2)]
    standings(*found, agreement=None).play_off(found, clock)
    sample = candidate("hinges", 1.0, n_rows=1000)
    standings(sample).play_off([], clock)
    assert clock.asked == []


@pytest.mark.parametrize(("n_rows", "passes"), [(10, PLAY_OFF_PASSES), (60_000, 8), (10_000_000, REPEATS)])
def test_the_last_round_takes_about_a_second(n_rows, passes):
    found = [candidate("hinges", 1.0), candidate("taylor_tree", 1.0)]
    clock = Clock(n_rows, hinges=1.0, taylor_tree=1.0)
    standings(*found).play_off(found, clock)
    assert clock.repeats == passes
