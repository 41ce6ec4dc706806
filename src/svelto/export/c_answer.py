"""The parts of a plan put together: one function that takes a prepared row to its scores and its answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from svelto._typing import FloatArray
from svelto.cascade import Cascade, answers_by_class
from svelto.engines.exact import ExactEngine
from svelto.engines.hinges import HingeStage
from svelto.engines.reduced_stage import ReducedSet
from svelto.engines.sv_tree import SVTree
from svelto.export.c_exact import kernel_part
from svelto.export.c_guard import guard_part
from svelto.export.c_hinges import hinge_part
from svelto.export.c_names import PartNames
from svelto.export.c_parts import Part, Setting, render
from svelto.export.c_paths import path_part
from svelto.export.c_plan import Plan
from svelto.export.c_tables import floats
from svelto.export.c_tree import tree_part
from svelto.export.c_vote import Voting, vote_part
from svelto.machine import KernelMachine

ANSWER = """
/* Scores of a prepared row, and its answer numbered as the machine votes. */
static inline int ${p}_answer(const float *u, $real *s$flag) {
$locals$stages$last}
"""
STAGE = """
    $call;
    label = $test;
    if (label >= 0) return label;
"""
BY_CLASS = """
    if (labels_only) {
        $call;
        label = $test;
        if (label >= 0) return label;
    }
"""
MAPPED = """
static inline void ${q}_bounded(const float *u, $real *s, $real *e) {
    $real size;
    int j;
    ${q}_scores(u, s);
    ${map}_errors(u, ${map}_leaf(u), &size);
    for (j = 0; j < $n_scores; ++j) e[j] = size * ($real)${q}_unit[j];
}
"""
UNIFORM = """
static inline void ${q}_bounded(const float *u, $real *s, $real *e) {
    int j;
    ${q}_scores(u, s);
    for (j = 0; j < $n_scores; ++j) e[j] = ($real)${q}_unit[j];
}
"""
PREFIXES: Final = {"taylor_tree": "tree", "reduced_set": "reduced", "sv_tree": "paths"}


@dataclass(frozen=True)
class Answer:
    """Parts of a plan.

    Attributes
    ----------
    parts : list of Part
        In the order in which they must stand.
    voting : Voting
        What its scores mean.
    labels_only : bool
        Whether ``p_answer`` takes a last argument: 1 lets stages answer that know labels and no scores.
    engine : ExactEngine or Cascade
        Answers in Python with the numbers of the tables.
    """

    parts: list[Part]
    voting: Voting
    labels_only: bool
    engine: Any


def answer(setting: Setting, plan: Plan, centre: FloatArray, names: PartNames, behind: Any) -> Answer:
    """Parts and code of a plan, in tables around a centre.

    `behind` answers in Python for a single stage, where its score decides nothing (it is zero, or no number).
    """
    machine, real, name = plan.machine, setting.real, setting.name
    voting = Voting.of(machine, by_class=plan.by_class)
    # A threshold of zero asks for no error scales: the stage's vote is the answer.
    stages = [
        stage_part(setting, names, stage, centre, errors=threshold > 0.0)
        for stage, threshold in zip(plan.stages, plan.thresholds, strict=True)
    ]
    parts = [part for stage in stages for part in stage.parts]
    labels_only = plan.exact and any(map(answers_by_class, plan.stages))
    settles = any(stage.has_errors for stage in stages)
    lines = _stage_lines(setting, plan, stages, voting)
    rim = any(_knows_rim(plan, stage, threshold) for stage, threshold in zip(plan.stages, plan.thresholds, strict=True))
    exact_machine, last = machine, ""
    if plan.guard is not None:
        guard = guard_part(setting, names.new("guard"), plan.guard, centre, rim=rim)
        parts.append(guard)
        inner = "".join(f"    {line}\n" for line in lines.splitlines())
        known = f"{guard.prefix}_knows(u)"
        place = f"    const int place = {known};\n" if rim else ""
        lines = f"{place}    if ({'place' if rim else known}) {{\n{inner}    }}\n"
    if plan.exact:
        exact = kernel_part(setting, names.new("exact"), machine, centre)
        parts.append(exact)
        exact_machine = exact.rounded
        last = f"    {exact.prefix}_scores(u, s);\n    return {_vote(setting, voting)};\n"
    parts.append(vote_part(setting, voting, settles=settles, by_class=labels_only, tolerance=plan.tolerance))
    declared = f"    {real} e[{voting.n_scores}];\n" if settles else ""
    declared += f"    {real} c[{machine.n_classes}];\n" if labels_only else ""
    declared += "    int label;\n" if settles or labels_only else ""
    flag = ", int labels_only" if labels_only else ""
    code = render(ANSWER, setting, flag=flag, locals=declared, stages=lines, last=last)
    engine = _rounded_engine(plan, [stage.rounded for stage in stages], exact_machine, behind)
    return Answer([*parts, Part(name, [], code)], voting, labels_only, engine)


def _stage_lines(setting: Setting, plan: Plan, stages: list[StageParts], voting: Voting) -> str:
    """Statements that ask one stage after the other."""
    name, real, lines = setting.name, setting.real, ""
    for stage, source, threshold in zip(stages, plan.stages, plan.thresholds, strict=True):
        factor = source.guard.core.factor if _knows_rim(plan, source, threshold) else 1.0
        if plan.exact and answers_by_class(source):
            margin = _caution(threshold * source.error[0], factor)
            lines += render(BY_CLASS, setting, call=stage.call("c"), test=f"{name}_best(c, ({real}){margin})")
        elif stage.has_errors:
            test = f"{name}_settle(s, e, ({real}){_caution(threshold, factor)})"
            lines += render(STAGE, setting, call=stage.call("s"), test=test)
        else:
            lines += f"    {stage.call('s')};\n    return {_vote(setting, voting)};\n"
    return lines


def _knows_rim(plan: Plan, stage: Any, threshold: float) -> bool:
    """Whether a stage takes more caution on the rim of the plan's guard."""
    known = isinstance(stage, HingeStage | ReducedSet) and stage.guard is not None and stage.guard is plan.guard
    return known and stage.guard.core is not None and threshold > 0.0


def _caution(inner: float, factor: float) -> str:
    """C expression: a number in the core, and so many times as much on the rim."""
    return repr(float(inner)) if factor == 1.0 else f"(place < 2 ? {float(factor * inner)!r} : {float(inner)!r})"


@dataclass(frozen=True)
class StageParts:
    """Parts of one stage, its function, whether that gives error scales, and the stage with rounded numbers."""

    parts: list[Part]
    function: str
    has_errors: bool
    rounded: Any

    def call(self, scores: str) -> str:
        """The call that fills in scores, and e."""
        return f"{self.function}(u, {scores}{', e' if self.has_errors else ''})"


def stage_part(setting: Setting, names: PartNames, stage: Any, centre: FloatArray, *, errors: bool) -> StageParts:
    """One stage of a cascade."""
    prefix = names.new(PREFIXES.get(stage.name, stage.name))
    if isinstance(stage, ReducedSet):
        return _reduced(setting, prefix, stage, centre, errors)
    # One margin decides between classes: it is part of the test.
    errors = errors and not answers_by_class(stage)
    build: Any = tree_part
    if isinstance(stage, HingeStage):
        build = hinge_part
    elif isinstance(stage, SVTree):
        build = path_part
    part = build(setting, prefix, stage, centre, errors=errors)
    return StageParts([part], f"{prefix}_scores", errors, part.rounded)


def _reduced(setting: Setting, prefix: str, stage: ReducedSet, centre: FloatArray, errors: bool) -> StageParts:
    sums = kernel_part(setting, prefix, stage.reduced, centre)
    if not errors:
        return StageParts([sums], f"{prefix}_scores", False, ReducedSet(stage.machine, sums.rounded, stage.unit))
    given = {"n_scores": len(stage.unit), "map": f"{prefix}_map"}
    template, parts, error_map = UNIFORM, [sums], stage.error_map
    if error_map is not None:
        place = tree_part(setting, f"{prefix}_map", error_map, centre, errors=True, scores=False)
        template, parts, error_map = MAPPED, [sums, place], place.rounded
    parts.append(Part(prefix, [floats(f"{prefix}_unit", stage.unit)], render(template, setting, prefix, **given)))
    return StageParts(parts, f"{prefix}_bounded", True, replace(stage, reduced=sums.rounded, error_map=error_map))


def _vote(setting: Setting, voting: Voting) -> str:
    return "0" if voting.task == "regression" else f"{setting.name}_vote(s)"


def _rounded_engine(plan: Plan, stages: list[Any], machine: KernelMachine, behind: Any) -> Any:
    if not plan.stages:
        return ExactEngine(machine)
    exact = ExactEngine(machine) if plan.exact else behind
    return Cascade(plan.machine, stages, plan.thresholds, exact, plan.tolerance, plan.guard)
