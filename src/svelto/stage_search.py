"""Which stages, in which order: the sequence that answers a row at the least expected cost.

The expected cost of a sequence is what its stages and the exact engine behind them cost, each for the share of rows
that reaches it, with thresholds that are chosen jointly (`guarantee.choose`). Candidates of a method come in several
sizes where the size is left open. Hinges grow while that pays; sizes of them may follow each other, the small ones for
most rows and the large ones for those that are left, some too large for all rows; and a reduced set may stand behind
hinges or a tree. What stands behind decides how much those in front have to settle, so sequences are compared whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from svelto.calibrate import Calibrator
from svelto.engines.hinges import LAST_SIZES, HingeOptions, whole_vectors
from svelto.engines.hinges import SIZES as HINGES
from svelto.engines.reduced_stage import LARGE_SIZE, SIZES, ReducedSetOptions
from svelto.engines.sv_tree import SVTreeOptions
from svelto.engines.taylor_tree import TreeOptions
from svelto.guarantee import Certificate, StageTrace, settled_wrong
from svelto.machine import KernelMachine

# A reduced set is tried behind other stages where the machine has this many times its vectors.
LEAST_REDUCTION: Final = 2
# ... and only where a row costs more than the cheapest first stage alone by this share.
OPEN_SHARE: Final = 0.2
# One more stage has to lower the cost to this: rows that are sent on are copied, and thresholds share the errors.
WORTH: Final = 0.9
# What ends a sequence of two sizes of hinges is one of so many that are best behind one size.
BEST_ENDS: Final = 2
# A large reduced set is tried where the exact engine's rows make up this share of the cost.
LARGE_SHARE: Final = 0.4
# Hinges too large for all rows are tried behind others where they make up this share, and where such hinges have no
# more weights than this: more take long to train, and leave the fast caches.
LAST_SHARE: Final = 0.5
LAST_WEIGHTS: Final = 65_536
# Size of hinges that the search starts from, for two classes or values, and for more.
FIRST_SIZE: Final = 32
FIRST_OF_MANY: Final = 64
# Stages are asked where they cost no more than so many times what the exact engine alone does.
PAYS: Final = 1.0
# Hinges of a sequence, the last apart: work and reports know stages by their names.
NAMES: Final = ("small hinges", "more hinges", "still more hinges")

Options: TypeAlias = TreeOptions | ReducedSetOptions | SVTreeOptions | HingeOptions
Build: TypeAlias = Callable[[Any], Any]


class Priced(NamedTuple):
    """Stages, what they would do with the calibration rows, their thresholds, and the expected cost of a row."""

    stages: list[Any]
    traces: list[dict[str, StageTrace]]
    thresholds: list[float]
    cost: float

    @property
    def is_idle(self) -> bool:
        """Whether no stage settles anything."""
        return all(t == math.inf for t in self.thresholds)

    @property
    def left(self) -> float:
        """Share of the rows to choose on that the exact engine answers."""
        return settled_wrong([trace["choose"] for trace in self.traces], self.thresholds)[1][-1]


def find_stages(
    calibrator: Calibrator, options: Options, next_stage: str | None, build: Build
) -> tuple[list[Any], Certificate]:
    """The cheapest sequence, with certified thresholds."""
    best = cheapest_stages(calibrator, options, next_stage, build)
    return best.stages, calibrator.certify(best.traces, best.thresholds)


def cheapest_stages(
    calibrator: Calibrator,
    options: Options,
    next_stage: str | None,
    build: Build,
    behind: ReducedSetOptions | None = None,
) -> Priced:
    """The cheapest sequence; a reduced set (`behind`: its options) ends it where that is asked for, or pays.

    All thresholds are infinite where the exact engine alone is cheaper. The rows to check on are not looked at.
    """
    prices = _Prices(calibrator)
    ends = _Ends(calibrator.machine, next_stage, build, behind)
    if isinstance(options, HingeOptions):
        best = _HingeSearch(prices, options, build).run(ends)
    elif isinstance(options, ReducedSetOptions):
        best = _cheapest_sum(prices, options, build)
    else:
        best = alone = prices([build(options)])
        for found in ends.tried(alone.cost, alone.stages[0].operations()):
            ended = [prices([*alone.stages, *end]) for end in found]
            best = _best(ended if ends.forced else [alone, *ended])
            if prices.exact_share(best) < LARGE_SHARE:
                break
    if not prices.pays(best):
        # What the stages settle does not pay for asking them: the exact engine alone is faster.
        best = best._replace(thresholds=[math.inf] * len(best.stages))
    return best


class _Prices:
    """Prices of sequences. What a stage does with the calibration rows is looked at once, and so is a sequence."""

    def __init__(self, calibrator: Calibrator) -> None:
        self.calibrator = calibrator
        # By the identities of stages, which are kept.
        self._known: dict[int, tuple[Any, dict[str, StageTrace]]] = {}
        self._priced: dict[tuple[int, ...], Priced] = {}

    def __call__(self, stages: list[Any]) -> Priced:
        key = tuple(id(stage) for stage in stages)
        if key not in self._priced:
            traces = [self._traces(stage) for stage in stages]
            self._priced[key] = Priced(stages, traces, *self.calibrator.choose(traces))
        return self._priced[key]

    def exact_share(self, priced: Priced) -> float:
        """Share of the exact engine's rows in the cost."""
        return self.calibrator.rest_cost(priced.left) / priced.cost

    def pays(self, priced: Priced) -> bool:
        """Whether it costs less than the exact engine alone."""
        return priced.cost <= PAYS * self.calibrator.rest_cost(1.0)

    def _traces(self, stage: Any) -> dict[str, StageTrace]:
        if id(stage) not in self._known:
            self._known[id(stage)] = stage, self.calibrator.traces(stage)
        return self._known[id(stage)][1]


def _best(sequences: Iterable[Priced]) -> Priced:
    """The cheapest, where every stage has to be worth it."""
    return min(sequences, key=lambda one: one.cost / WORTH ** len(one.stages))


def _cheapest_sum(prices: _Prices, options: ReducedSetOptions, build: Build) -> Priced:
    """A reduced set; of several sizes where the size is left open."""

    def tried(size: Any) -> list[Priced]:
        stage = build(replace(options, n_basis=size))
        return [prices([stage]), prices([stage.without_map()])]

    n_sv = prices.calibrator.machine.n_sv
    if options.n_basis != "auto":
        return _best(tried(options.n_basis))
    best = _best(one for size in SIZES if size == SIZES[0] or size < n_sv for one in tried(size))
    if n_sv > LEAST_REDUCTION * LARGE_SIZE and prices.exact_share(best) >= LARGE_SHARE:
        best = _best([best, *tried(LARGE_SIZE)])
    return best


class _Ends:
    """Reduced sets that may end a sequence.

    Parameters
    ----------
    machine : KernelMachine
        The machine.
    next_stage : {"auto", "reduced_set", None}
        Whether there shall be one.
    build : callable
        Builds a stage.
    behind : ReducedSetOptions, optional
        The only one.
    """

    def __init__(
        self, machine: KernelMachine, next_stage: str | None, build: Build, behind: ReducedSetOptions | None
    ) -> None:
        self.build = build
        self.forced = next_stage == "reduced_set"
        serves = next_stage is not None and (self.forced or machine.kernel.name != "linear")
        self.sizes = [n for n in (*SIZES, LARGE_SIZE) if serves and machine.n_sv > LEAST_REDUCTION * n]
        self.only = behind
        if behind is not None and not self.forced:
            few = behind.n_basis == "auto" or machine.n_sv > LEAST_REDUCTION * behind.n_basis
            self.sizes = self.sizes if few else []
        if self.forced and not self.sizes:
            self.sizes = [min(SIZES[0], machine.n_sv)]

    def tried(self, cost: float, least: float) -> Iterator[list[list[Any]]]:
        """Those to try where a row costs this, and could cost little less than `least`; then a larger one as well."""
        if not self.forced and cost <= (1.0 + OPEN_SHARE) * least:
            return
        if not self.sizes:
            return
        if self.only is not None:
            yield self._built([self.only])
            return
        small = self._built([ReducedSetOptions(n_basis=n) for n in self.sizes if n != LARGE_SIZE])
        yield small
        if LARGE_SIZE in self.sizes:
            yield [*small, *self._built([ReducedSetOptions(n_basis=LARGE_SIZE)])]

    def _built(self, options: list[ReducedSetOptions]) -> list[list[Any]]:
        built = [self.build(one) for one in options]
        return [[stage] for one in built for stage in (one, one.without_map())]


class _HingeSearch:
    """Hinges of one size, or small ones before large ones, and what ends the sequence.

    What the hinges of a machine of several classes learn is decided at the first size. Sizes are doubled while that
    lowers the cost, else halved while that does. Where a reduced set may end the sequence, less has to be settled in
    front of it: smaller hinges are tried then, of either kind. Where most of the cost is still the exact engine's,
    larger ones are tried for what the others leave open, and doubled while that pays. Those that are taken are fitted
    once more from another draw, and the better ones stay.
    """

    def __init__(self, prices: _Prices, options: HingeOptions, build: Build) -> None:
        self.prices, self.options, self.build = prices, options, build
        machine = prices.calibrator.machine
        self.many = machine.task == "classification" and machine.n_classes > 2
        self.first = HINGES.index(FIRST_OF_MANY if self.many else FIRST_SIZE)
        self.n_outputs = {"scores": machine.n_scores, "classes": machine.n_classes}
        self.width = machine.support_vectors.shape[1]
        self.tried: dict[tuple[str, int], Any] = {}

    def run(self, ends: _Ends) -> Priced:
        """The cheapest sequence, with its stages named."""
        kinds: tuple[Literal["scores", "classes"], ...] = ("scores", "classes") if self.many else ("scores",)
        if self.options.answers != "auto":
            kinds = (self.options.answers,)
        sizes = HINGES if self.options.n_hinges == "auto" else (HINGES[self.first],)
        start = {kind: self.alone(kind, HINGES[self.first]) for kind in kinds}
        answers, best = min(start.items(), key=lambda item: item[1].cost)
        if len(sizes) > 1:
            best = self.grown(answers, best)
            best = _best([best, *(self.prices(pair) for pair in self.pairs())])
        useful: list[list[Any]] = []
        for found in ends.tried(best.cost, min(stage.operations() for stage in self.tried.values())):
            best, useful = self.ended([] if ends.forced and not useful else [best], found, kinds, sizes)
            if self.prices.exact_share(best) < LARGE_SHARE:
                break
        if len(sizes) > 1:
            best = self.with_last(answers, best, useful if ends.forced and useful else [[], *useful])
            best = self.redrawn(best)
        return _named(best)

    def hinges(self, answers: Any, size: int) -> Any:
        """Of a kind and a size; those of one size are the same again."""
        if (answers, size) not in self.tried:
            self.tried[answers, size] = self.build(self.fixed(answers, size))
        return self.tried[answers, size]

    def fixed(self, answers: Any, size: int) -> HingeOptions:
        """Options with nothing left to choose."""
        n_hinges = self.options.n_hinges
        n_hinges = whole_vectors(size, self.n_outputs[answers]) if n_hinges == "auto" else n_hinges
        return replace(self.options, n_hinges=n_hinges, answers=answers)

    def alone(self, answers: Any, size: int) -> Priced:
        """Hinges and the exact engine."""
        return self.prices([self.hinges(answers, size)])

    def grown(self, answers: Any, best: Priced) -> Priced:
        """Sizes doubled while that pays, else halved."""
        for sizes in (HINGES[self.first + 1 :], HINGES[self.first - 1 :: -1]):
            for size in sizes:
                other = self.alone(answers, size)
                if other.cost >= best.cost:
                    break
                best = other
        return best

    def pairs(self) -> list[list[Any]]:
        """Two sizes of a kind, the small one first."""
        places = sorted(self.tried)
        return [[self.tried[a], self.tried[b]] for a, b in combinations(places, 2) if a[0] == b[0]]

    def ended(
        self, candidates: list[Priced], found: list[list[Any]], kinds: Iterable[Any], sizes: tuple[int, ...]
    ) -> tuple[Priced, list[list[Any]]]:
        """The cheapest of some sequences and of those that one of these ends; and the best ends."""

        def closed(stages: list[Any]) -> Priced:
            return _best(self.prices([*stages, *end]) for end in found)

        for kind in kinds:  # smaller ones are built while that pays; all that are built are compared below
            cheapest = closed([self.hinges(kind, HINGES[self.first])])
            for size in sizes[: self.first][::-1]:
                other = closed([self.hinges(kind, size)])
                if other.cost >= cheapest.cost:
                    break
                cheapest = other
        single = sorted((closed([stage]) for stage in self.tried.values()), key=lambda one: one.cost)
        found = [[stage] for stage in {id(one.stages[-1]): one.stages[-1] for one in single}.values()][:BEST_ENDS]
        return _best([*candidates, *single, *(closed(pair) for pair in self.pairs())]), found

    def with_last(self, answers: Any, best: Priced, ends: list[list[Any]]) -> Priced:
        """The same with hinges that are too large for all rows."""
        before = [[stage] for (kind, _), stage in sorted(self.tried.items()) if kind == answers]
        for size in LAST_SIZES:
            small = size * (self.width + self.n_outputs[answers]) <= LAST_WEIGHTS
            if not small or not self.prices.pays(best) or self.prices.exact_share(best) < LAST_SHARE:
                break
            large = self.hinges(answers, size)
            own = [stage for stage in best.stages if any(stage is one for one in self.tried.values())]
            longer = _best(self.prices([*one, large, *end]) for one in (own, *before) for end in ends)
            if longer.cost >= WORTH * best.cost:
                break
            best = longer
        return best

    def redrawn(self, best: Priced) -> Priced:
        """The same with hinges of another draw, where these leave less open: fits differ by several hundredths."""
        if not self.prices.pays(best):
            return best
        for (answers, size), stage in sorted(self.tried.items(), key=lambda item: item[0]):
            if not any(stage is one for one in best.stages):
                continue
            other = self.build(replace(self.fixed(answers, size), draw=self.options.draw + 1))
            best = min(
                best, self.prices([other if one is stage else one for one in best.stages]), key=lambda one: one.cost
            )
        return best


def _named(best: Priced) -> Priced:
    """The same, hinges that stand before others with names of their own."""
    hinges = [stage for stage in best.stages if stage.name == "hinges"]
    names = iter(NAMES[: len(hinges) - 1])
    stages = [replace(stage, name=next(names, "hinges")) if stage.name == "hinges" else stage for stage in best.stages]
    return best._replace(stages=stages)
