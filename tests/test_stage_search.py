"""Which stages are chosen, and in which order."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from sklearn.datasets import make_moons
from sklearn.svm import SVC

import svelto
from machines import random_machine
from svelto import calibrate, stage_search
from svelto._inputs import Query
from svelto.calibration_rows import CalibrationRows
from svelto.engines.exact import build_exact
from svelto.engines.hinges import HingeOptions
from svelto.engines.reduced_stage import ReducedSetOptions
from svelto.guarantee import StageTrace, allowed, expected_to_pass, settled_wrong

N = 4000


@dataclass
class Stage:
    """Stands for hinges: the larger, the dearer and the less often unsure."""

    n_hinges: int
    answers: str
    cost: float
    open_share: float
    name: str = "hinges"

    def operations(self):
        return self.cost

    def without_map(self):
        return replace(self, answers="plain", cost=0.8 * self.cost)


class Calibrator:
    """Stands for one that knows what stages do: open rows are random, and settled ones are right."""

    few = False

    def __init__(self, machine, exact_cost=10_000.0):
        self.machine, self.exact_cost = machine, exact_cost
        self.draws = np.random.default_rng(0).random(N)

    def traces(self, stage):
        caution = np.where(self.draws < stage.open_share, 0.0, 10.0)
        trace = StageTrace(caution, np.zeros(N, dtype=bool), stage.cost)
        return {"choose": trace, "check": trace}

    def choose(self, traces):
        thresholds = [1.0] * len(traces)
        own = [t["choose"] for t in traces]
        _, reach = settled_wrong(own, thresholds)
        return thresholds, sum(r * t.cost for r, t in zip(reach, own, strict=False)) + reach[-1] * self.exact_cost

    def rest_cost(self, share):
        return share * self.exact_cost

    def certify(self, traces, thresholds):
        return thresholds


def chosen(world, machine=None, options=None, exact_cost=10_000.0, next_stage=None, reduced=None, redrawn=None):
    """Stages that are found in a world that gives (cost, open share) for a size and what hinges learn.

    `redrawn` is the world of another draw, the same if it is not given; who is asked about it does not count as asked.
    """
    asked = []

    def build(options):
        if isinstance(options, ReducedSetOptions):
            return Stage(options.n_basis, "mapped", *reduced[options.n_basis], name="reduced_set")
        size = 1 << (options.n_hinges + 15).bit_length() - 1  # they fill vectors, so their number is a little smaller
        if options.draw == 1:
            return Stage(options.n_hinges, options.answers, *(redrawn or world)(size, options.answers))
        asked.append((size, options.answers))
        return Stage(options.n_hinges, options.answers, *world(size, options.answers))

    calibrator = Calibrator(machine or random_machine(n_sv=50, d=3), exact_cost)
    stages, thresholds = stage_search.find_stages(calibrator, options or HingeOptions(), next_stage, build)
    return stages, thresholds, asked


def test_hinges_grow_while_that_pays():
    stages, _, asked = chosen(lambda size, _: (10.0 + size, {32: 0.95, 64: 0.9, 128: 0.01, 256: 0.009}.get(size, 1.0)))
    assert asked == [(32, "scores"), (64, "scores"), (128, "scores"), (256, "scores"), (16, "scores")]
    assert [s.n_hinges for s in stages] == [127]


def test_hinges_shrink_where_growing_does_not_pay():
    stages, _, asked = chosen(lambda size, _: (size, 0.0005))
    assert asked == [(32, "scores"), (64, "scores"), (16, "scores")]
    assert [s.n_hinges for s in stages] == [15]


def test_small_hinges_stand_before_large_ones():
    def world(size, _):
        return {16: (5.0, 0.2), 32: (50.0, 0.1), 64: (150.0, 0.01), 128: (3000.0, 0.0)}.get(size, (9000.0, 0.0))

    stages, thresholds, _ = chosen(world)
    assert [(s.name, s.n_hinges) for s in stages] == [("small hinges", 15), ("hinges", 63)]
    assert thresholds == [1.0, 1.0]


def growing(size, _):
    """Every doubling leaves fewer rows open, and none pays for all rows but the first."""
    return {16: (20.0, 0.3), 32: (40.0, 0.1), 64: (800.0, 0.09), 512: (400.0, 0.04), 1024: (1800.0, 0.01)}[size]


def test_hinges_too_large_for_all_rows_stand_behind_others():
    stages, thresholds, asked = chosen(growing)
    assert [size for size, _ in asked] == [32, 64, 16, 512, 1024]
    assert [s.n_hinges for s in stages] == [31, 511, 1023]
    assert [s.name for s in stages] == ["small hinges", "more hinges", "hinges"]
    assert thresholds == [1.0, 1.0, 1.0]
    # Names differ: reports know stages by them.
    hinges = [Stage(size, "scores", 1.0, 0.0) for size in (15, 31, 511, 1023)]
    four = stage_search._named(stage_search.Priced(hinges, [], [], 1.0)).stages
    assert [s.n_hinges for s in four] == [15, 31, 511, 1023]
    assert len({s.name for s in four}) == 4
    # The last size is tried only while the one before it pays.
    stages, _, asked = chosen(lambda size, _: growing(size, _) if size < 512 else (900.0, 0.099))
    assert [size for size, _ in asked] == [32, 64, 16, 512]
    assert [s.n_hinges for s in stages] == [31]


def test_hinges_too_large_for_all_rows_are_left_out_where_they_cannot_pay():
    def sizes(world, **given):
        return [size for size, _ in chosen(world, **given)[2]]

    assert max(sizes(growing, machine=random_machine(n_sv=50, d=130))) == 64  # 512 of them have too many weights
    assert max(sizes(growing, machine=random_machine(n_sv=50, d=100))) == 512
    assert max(sizes(lambda size, _: (growing(size, _)[0], 0.0005))) == 64  # few rows are left
    assert max(sizes(lambda size, _: (size, 0.9), exact_cost=100.0)) == 64  # no stage pays
    assert sizes(growing, options=replace(HingeOptions(), n_hinges=20)) == [32]


def test_hinges_that_are_taken_are_fitted_once_more():
    def world(size, _):
        return {16: (5.0, 0.2), 32: (50.0, 0.1), 64: (150.0, 0.01), 128: (3000.0, 0.0)}.get(size, (9000.0, 0.0))

    refitted = []

    def other(size, answers):
        refitted.append(size)
        cost, share = world(size, answers)
        return cost, share * (0.5 if size == 16 else 2.0)

    stages, *_ = chosen(world, redrawn=other)
    assert sorted(refitted) == [16, 64]  # not those that are not taken
    assert [(s.n_hinges, s.open_share) for s in stages] == [(15, 0.1), (63, 0.01)]  # the better one of each
    refitted.clear()
    chosen(world, options=replace(HingeOptions(), n_hinges=20), redrawn=other)
    assert refitted == []  # what is asked for is built once
    chosen(lambda size, _: (size, 0.9), exact_cost=10.0, redrawn=other)
    assert refitted == []  # nor is what does not pay
    chosen(lambda size, _: (size, 1.0), redrawn=other)
    assert refitted == []  # nor what settles nothing


@pytest.mark.parametrize("better", ["scores", "classes"])
def test_what_hinges_learn_is_decided_at_the_first_size(better):
    machine = random_machine(n_sv=50, d=3, n_classes=4)
    stages, _, asked = chosen(lambda size, answers: (size, 0.01 if answers == better else 0.5), machine)
    assert [answers for _, answers in asked[:2]] == ["scores", "classes"]
    assert {answers for _, answers in asked[2:]} == {better}
    assert {s.answers for s in stages} == {better}
    only = HingeOptions(answers="classes")
    assert {answers for _, answers in chosen(lambda size, _: (size, 0.1), machine, only)[2]} == {"classes"}


def test_a_number_of_hinges_is_the_only_size():
    stages, _, asked = chosen(lambda size, _: (size, 0.1), options=replace(HingeOptions(), n_hinges=50))
    assert len(asked) == 1
    assert [s.n_hinges for s in stages] == [50]


def test_stages_that_do_not_pay_settle_nothing():
    _, thresholds, _ = chosen(lambda size, _: (size, 0.9), exact_cost=100.0)
    assert thresholds == [np.inf]


def ended(world, reduced, n_sv=700, next_stage="auto", **given):
    """What is found where reduced sets cost this and leave this open, by their sizes."""
    machine = given.pop("machine", None) or random_machine(n_sv=n_sv, d=3)
    stages, _, asked = chosen(world, machine, next_stage=next_stage, reduced=reduced, **given)
    return [(stage.name, stage.n_hinges, stage.answers) for stage in stages], [size for size, _ in asked]


def test_in_front_of_a_reduced_set_less_has_to_be_settled():
    """64 hinges are needed before the exact engine, and 16 before a reduced set: sequences are compared whole."""

    def world(size, _):
        return {16: (20.0, 0.3), 32: (90.0, 0.2), 64: (300.0, 0.01), 128: (700.0, 0.008)}[size]

    found, asked = ended(world, None, next_stage=None)
    assert found == [("small hinges", 15, "scores"), ("hinges", 63, "scores")]
    assert asked == [32, 64, 128, 16]
    found, _ = ended(world, {64: (100.0, 0.004), 192: (300.0, 0.001)})
    assert found == [("hinges", 15, "scores"), ("reduced_set", 64, "plain")]
    # The larger one where the smaller leaves too much.
    found, _ = ended(world, {64: (100.0, 0.1), 192: (300.0, 0.001)})
    assert found == [("hinges", 15, "scores"), ("reduced_set", 192, "plain")]
    # One more stage must be worth it.
    found, _ = ended(world, {64: (100.0, 0.3), 192: (3000.0, 0.0099)})
    assert [name for name, *_ in found] == ["small hinges", "hinges"]


def test_smaller_hinges_of_either_kind_are_tried_before_a_reduced_set():
    machine = random_machine(n_sv=700, d=3, n_classes=4)

    def world(size, answers):
        if answers == "scores":
            return {64: (400.0, 0.02), 128: (900.0, 0.02), 32: (390.0, 0.05)}[size]
        return {64: (100.0, 0.2), 32: (40.0, 0.21)}[size]

    found, _ = ended(world, {64: (100.0, 0.001), 192: (200.0, 0.001)}, machine=machine)
    assert found == [("hinges", 44, "classes"), ("reduced_set", 64, "plain")]


def test_when_reduced_sets_are_tried():
    def world(size, _):
        return (10.0 * size, 0.05)

    both, best = {64: (100.0, 0.0), 192: (90.0, 0.0)}, ("hinges", 15, "scores")
    assert ended(world, both)[0] == [best, ("reduced_set", 192, "plain")]
    least = stage_search.LEAST_REDUCTION
    assert ended(world, {64: both[64]}, n_sv=least * 192)[0] == [best, ("reduced_set", 64, "plain")]  # no larger one
    assert ended(world, {}, n_sv=least * 64)[0] == [best]
    assert ended(lambda size, _: (size, 1e-4), {})[0] == [best]  # few rows are left: none is built
    assert ended(lambda size, _: (size, 0.01), both, next_stage="reduced_set")[0][1:] == [("reduced_set", 192, "plain")]
    assert ended(world, {50: (1.0, 0.0)}, n_sv=50, next_stage="reduced_set")[0][1:] == [("reduced_set", 50, "plain")]


def test_a_large_reduced_set_is_tried_where_the_exact_engine_keeps_most_of_the_cost():
    def world(size, _):
        return (10.0 * size, 0.3)

    best = ("hinges", 15, "scores")
    hopeless, good = {64: (100.0, 0.1), 192: (300.0, 0.09)}, {64: (100.0, 0.1), 192: (300.0, 0.001)}
    assert ended(world, hopeless)[0] == [best, ("reduced_set", 192, "plain")]
    assert ended(world, hopeless | {384: (600.0, 0.01)}, n_sv=1000)[0] == [best, ("reduced_set", 384, "plain")]
    assert ended(world, good, n_sv=1000)[0] == [best, ("reduced_set", 192, "plain")]  # another is not built
    forced = ended(world, hopeless | {384: (600.0, 0.01)}, n_sv=1000, next_stage="reduced_set")[0]
    assert forced == [best, ("reduced_set", 384, "plain")]


def test_sizes_of_a_reduced_set():
    def found(machine, sets, n_basis="auto"):
        asked = []

        def build(options):
            asked.append(options.n_basis)
            return Stage(options.n_basis, "mapped", *sets[options.n_basis], name="reduced_set")

        options = ReducedSetOptions(n_basis=n_basis)
        stages, _ = stage_search.find_stages(Calibrator(machine), options, None, build)
        return [(stage.n_hinges, stage.answers) for stage in stages], asked

    large = random_machine(n_sv=1000, d=3)
    sets = {64: (100.0, 0.1), 192: (300.0, 0.09), 384: (600.0, 0.01)}
    assert found(large, sets) == ([(384, "plain")], [64, 192, 384])
    assert found(large, sets | {192: (300.0, 0.001)}) == ([(192, "plain")], [64, 192])
    assert found(random_machine(n_sv=700, d=3), sets) == ([(64, "plain")], [64, 192])
    assert found(random_machine(n_sv=50, d=3), sets) == ([(64, "plain")], [64])
    assert found(large, {100: (1.0, 0.1)}, 100) == ([(100, "plain")], [100])


def test_two_sizes_of_hinges_before_a_reduced_set():
    def world(size, _):
        return {16: (5.0, 0.2), 32: (50.0, 0.1), 64: (150.0, 0.02)}.get(size, (9000.0, 0.0))

    found, _ = ended(world, {64: (1500.0, 0.001), 192: (3000.0, 0.0)})
    assert found == [("small hinges", 15, "scores"), ("hinges", 63, "scores"), ("reduced_set", 64, "plain")]


def test_what_reaches_the_exact_engine_last_are_close_calls():
    """Rows that take its float64 tier cost more, and are counted on the rows to choose on."""
    X, y = make_moons(4000, noise=0.3, random_state=0)
    machine = svelto.KernelMachine.from_sklearn(SVC(C=100.0, gamma=1.0).fit(X[:1000], y[:1000]))
    exact = build_exact(machine)
    rows = CalibrationRows(X[:1000], X[1000:2500], X[2500:], "given", 0.0)
    own = calibrate.Calibrator(machine, exact, rows, 0.99, 0.95)
    tally = exact.labels(Query(X[1000:2500]))[1]
    close = (tally.float64 + tally.reference) / 1500
    assert 0.0 < close < 0.5
    assert own.close_share == close
    factor = calibrate.EXACT_FACTOR
    assert own.exact_cost == factor * own.whole_cost
    assert own.rest_cost(1.0) == pytest.approx(own.whole_cost * (1.0 + (factor - 1.0) * close))
    assert own.rest_cost(close / 2) == pytest.approx(factor * own.whole_cost * close / 2)  # none but close calls
    assert own.rest_cost(0.0) == 0.0


def test_three_stages_keep_the_promise():
    """Sharp enough that sizes differ; everything is counted, and the promise holds on new rows."""
    X, y = make_moons(14_000, noise=0.25, random_state=0)
    svc = SVC(C=50.0, gamma=30.0).fit(X[:4000], y[:4000])
    fast = svelto.accelerate(svc, X[:4000], method="hinges", next_stage="reduced_set", random_state=0, n_jobs=2)
    new = X[4000:]
    work = fast.work(new)
    assert list(work["stages"])[-2:] == ["reduced_set", "exact"]
    assert sum(work["stages"].values()) == pytest.approx(1.0)
    assert (fast.predict(new) == svc.predict(new)).mean() >= 0.999
    assert fast.report.promise in ("statistical", "exact")


@pytest.mark.parametrize("source", ["given", "stand-ins"])
def test_thresholds_are_chosen_so_that_the_check_will_pass(source):
    """With few rows to check on, fewer of the rows to choose on may be wrong; with many, as many as can be shown."""
    rng = np.random.default_rng(0)
    n_choose, agreement, confidence = 50_000, 0.999, 0.95
    caution = rng.exponential(size=n_choose)
    trace = {"choose": StageTrace(caution, rng.random(n_choose) < 0.02 * np.exp(-caution), 1.0)}

    def n_wrong(n_check):
        own = calibrate.Calibrator.__new__(calibrate.Calibrator)
        own.rows = CalibrationRows(None, np.zeros((n_choose, 1)), np.zeros((n_check, 1)), source, 0.0)
        own.agreement, own.confidence, own.whole_cost, own.close_share = agreement, confidence, 1000.0, 0.0
        own.needed = 2995
        thresholds, _ = own.choose([trace])
        return settled_wrong([trace["choose"]], thresholds)[0]

    few, many = n_wrong(4000), n_wrong(500_000)
    passing = expected_to_pass(allowed(4000, 1 - agreement, confidence), calibrate.PASSING) * n_choose / 4000
    assert 0 < few <= passing < allowed(n_choose, 1 - agreement, confidence)
    assert few < many or source == "stand-ins"
    if source == "given":
        assert few == int(passing)  # no budget is left unused
        assert many == allowed(n_choose, 1 - agreement, confidence)
