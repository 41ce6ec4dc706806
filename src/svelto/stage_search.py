"""Which stages, in which order: the sequence that answers a row at the least expected cost.

The expected cost of a sequence is what its stages and the exact engine behind them cost, each for the share of rows
that reaches it, with thresholds that are chosen jointly (`guarantee.choose`). Candidates of a method come in several
sizes where the size is left open. Hinges grow while that pays; sizes of them may follow each other, the small ones for
most rows and the large ones for those that are left, some too large for all rows; and a reduced set may stand behind
hinges or a tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from svelto.calibrate import EXACT_FACTOR, Calibrator
from svelto.engines.hinges import LAST_SIZES, HingeOptions, whole_vectors
from svelto.engines.hinges import SIZES as HINGES
from svelto.engines.reduced_stage import SIZES, ReducedSetOptions
from svelto.engines.sv_tree import SVTreeOptions
from svelto.engines.taylor_tree import TreeOptions
from svelto.guarantee import Certificate, StageTrace, settled_wrong
from svelto.machine import KernelMachine

# A second stage is tried where the machine has this many times its vectors, and kept where it lowers the cost to this.
LEAST_REDUCTION: Final = 4
NEXT_SIZE: Final = 192
WORTH: Final = 0.9
# ... and tried only where rows that are sent on make up this share of the cost.
OPEN_SHARE: Final = 0.2
# Hinges too large for all rows are tried behind others where the exact engine's rows make up this share of the cost,
# and where they have no more weights than this: more take long to train, and leave the fast caches.
LAST_SHARE: Final = 0.5
LAST_WEIGHTS: Final = 65_536
# Size of hinges that the search starts from, for two classes or values, and for more.
FIRST_SIZE: Final = 32
FIRST_OF_MANY: Final = 64

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
    machine = calibrator.machine
    behind = behind or ReducedSetOptions(n_basis=min(NEXT_SIZE, machine.n_sv))
    best = _cheapest_hinges(calibrator, options, build) if isinstance(options, HingeOptions) else None
    if best is None:
        best = min((_priced(calibrator, [stage]) for stage in _sizes(options, machine, build)), key=_cost)
    useful = machine.kernel.name != "linear" and machine.n_sv > LEAST_REDUCTION * NEXT_SIZE
    open_cost = best.cost - best.stages[0].operations()
    if next_stage == "reduced_set" or (next_stage == "auto" and useful and open_cost > OPEN_SHARE * best.cost):
        second = build(behind)
        longer = min((_followed(calibrator, best, after) for after in (second, second.without_map())), key=_cost)
        if next_stage == "reduced_set" or longer.cost < WORTH * best.cost:
            best = longer
    if best.cost > calibrator.exact_cost / EXACT_FACTOR:
        # What the stages settle does not pay for asking them: the exact engine alone is faster.
        best = best._replace(thresholds=[math.inf] * len(best.stages))
    return best


def _cost(priced: Priced) -> float:
    return priced.cost


def _priced(calibrator: Calibrator, stages: list[Any], known: list[dict[str, StageTrace]] | None = None) -> Priced:
    traces = known or [calibrator.traces(stage) for stage in stages]
    return Priced(stages, traces, *calibrator.choose(traces))


def _followed(calibrator: Calibrator, before: Priced, stage: Any) -> Priced:
    """A sequence with one more stage."""
    return _priced(calibrator, [*before.stages, stage], [*before.traces, calibrator.traces(stage)])


def _sizes(options: Options, machine: KernelMachine, build: Build) -> list[Any]:
    """Stages to choose from: of several sizes where the size of a reduced set is left open."""
    if not isinstance(options, ReducedSetOptions):
        return [build(options)]
    sizes = [size for size in SIZES if size == SIZES[0] or size < machine.n_sv]
    tried = [build(replace(options, n_basis=size)) for size in sizes] if options.n_basis == "auto" else [build(options)]
    return tried + [stage.without_map() for stage in tried]


def _cheapest_hinges(calibrator: Calibrator, options: HingeOptions, build: Build) -> Priced:
    """Hinges of one size, or small ones before large ones.

    What the hinges of a machine of several classes learn is decided at the first size. Sizes are doubled while that
    lowers the cost, else halved while that does. Where most of the cost is still the exact engine's, larger ones are
    tried for what the others leave open, and doubled while that pays.
    """
    machine = calibrator.machine
    many = machine.task == "classification" and machine.n_classes > 2
    kinds: tuple[Literal["scores", "classes"], ...] = ("scores", "classes") if many else ("scores",)
    first = HINGES.index(FIRST_OF_MANY if many else FIRST_SIZE)

    n_outputs = {"scores": machine.n_scores, "classes": machine.n_classes}

    def hinges(answers: Any, size: int) -> Any:
        n_hinges = whole_vectors(size, n_outputs[answers]) if options.n_hinges == "auto" else options.n_hinges
        return build(replace(options, n_hinges=n_hinges, answers=answers))

    def priced(answers: Any, place: int) -> Priced:
        return _priced(calibrator, [hinges(answers, HINGES[place])])

    start = {kind: priced(kind, first) for kind in (kinds if options.answers == "auto" else (options.answers,))}
    answers, best = min(start.items(), key=lambda item: item[1].cost)
    if options.n_hinges != "auto":
        return best
    tried = {first: best}
    for places in (range(first + 1, len(HINGES)), range(first - 1, -1, -1)):
        for place in places:
            tried[place] = priced(answers, place)
            if tried[place].cost >= best.cost:
                break
            best = tried[place]
    small_first = [tried[place] for place in sorted(tried)]
    for i, small in enumerate(small_first):
        for large in small_first[i + 1 :]:
            stages = [replace(small.stages[0], name="small hinges"), large.stages[0]]
            both = _priced(calibrator, stages, [*small.traces, *large.traces])
            if both.cost < WORTH * best.cost:
                best = both
    width = machine.support_vectors.shape[1] + n_outputs[answers]
    for size in LAST_SIZES:
        paid = best.cost <= calibrator.exact_cost / EXACT_FACTOR and size * width <= LAST_WEIGHTS
        if not paid or best.left * calibrator.exact_cost < LAST_SHARE * best.cost:
            break
        last = hinges(answers, size)
        traces = calibrator.traces(last)
        longer = min((_with_last(calibrator, one, last, traces) for one in (best, *small_first)), key=_cost)
        if longer.cost >= WORTH * best.cost:
            break
        best = longer
    return best


def _with_last(calibrator: Calibrator, before: Priced, last: Any, traces: dict[str, StageTrace]) -> Priced:
    """Hinges with larger ones behind them."""
    names = ("small hinges", "more hinges", "still more hinges")  # work and reports know stages by their names
    small = [replace(stage, name=name) for stage, name in zip(before.stages, names, strict=False)]
    return _priced(calibrator, [*small, last], [*before.traces, traces])
