"""A cascade as operators: the first stage sees all rows, each following one those that are still open.

    all rows -> first stage and guard -> labels, and which rows are settled
             -> open rows are gathered -> next stage -> its labels are scattered back among the others
             -> what is left, and what the guard marks -> the whole sum -> scattered back

So the graph answers every row as the predictor does, and in as little time: the whole sum is computed for the few rows
that need it. Stages and sum run in blocks of rows (`onnx_blocks`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from svelto.cascade import answers_by_class
from svelto.engines.hinges import HingeStage
from svelto.engines.reduced_stage import ReducedSet
from svelto.engines.taylor_tree import TaylorTree
from svelto.export.c_plan import Plan
from svelto.export.c_vote import Voting
from svelto.export.onnx_blocks import by_blocks
from svelto.export.onnx_graph import Graph, Typed
from svelto.export.onnx_guard import in_core, inside
from svelto.export.onnx_hinges import hinge_scores
from svelto.export.onnx_kernels import LENGTHS, block_rows, centre_of, kernel_sums
from svelto.export.onnx_trees import tree_scores
from svelto.export.onnx_vote import settle, settle_class, settle_value, vote
from svelto.guard import Guard
from svelto.machine import KernelMachine

# Values of a block of rows that a stage looks at: 1 MB of single floats.
STAGE_VALUES: Final = 2**18
STAGE_ROWS: Final = (64, 4096)


@dataclass(frozen=True)
class Found:
    """Names of what is known of rows so far.

    Attributes
    ----------
    labels : str
        Numbers of the labels; empty for regressors.
    scores : str
        (n_rows, n_scores); empty where nobody asks for them.
    """

    labels: str
    scores: str


def answers(graph: Graph, plan: Plan, voting: Voting, rows: str, *, scores: bool) -> Found:
    """Labels of scaled rows; scores too where they are asked for (regressors: these alone)."""
    if not plan.stages:
        return _whole_sum(graph, plan=plan, voting=voting, rows=rows, scores=scores)
    first, *others = [
        partial(_asked, plan=plan, voting=voting, stage=stage, threshold=threshold, scores=scores)
        for stage, threshold in zip(plan.stages, plan.thresholds, strict=True)
    ]
    found, flags = first(graph, rows=rows, guard=plan.guard)
    if not plan.exact:
        return found
    settled = flags[0]
    for ask in others:
        # Rows that the guard does not know are for the whole sum alone.
        at = _numbers(graph, graph.all_of(graph.node("Not", settled), *flags[1:]))
        found, settled = _for_open(graph, rows, at, found, settled, ask)
    at = _numbers(graph, graph.node("Not", settled))
    sums = partial(_whole_sum, plan=plan, voting=voting, scores=scores)
    return _for_open(graph, rows, at, found, "", lambda inner, rows: (sums(inner, rows=rows), []))[0]


def _for_open(
    graph: Graph,
    rows: str,
    at: str,
    found: Found,
    settled: str,
    ask: Callable[..., tuple[Found, list[str]]],
) -> tuple[Found, str]:
    """What `ask` says about the rows of some numbers, put among what is known; nothing is done where there are none."""
    inner = graph.body()
    more, settles = ask(inner, rows=inner.node("GatherND", rows, at))
    known: list[tuple[str, str, Any]] = [
        (found.labels, more.labels, np.int64),
        (found.scores, more.scores, graph.floating),
    ]
    known += [(settled, settles[0], np.bool_)] if settled else []
    known = [one for one in known if one[0]]
    results = [(inner.node("ScatterND", old, at, new), dtype) for old, new, dtype in known]
    some = graph.node("Greater", graph.node("Squeeze", graph.n_rows(at)), graph.whole(0))
    names = graph.when(some, inner, results, [old for old, _, _ in known])
    by_old = dict(zip((old for old, _, _ in known), names, strict=True))
    return Found(by_old.get(found.labels, ""), by_old.get(found.scores, "")), by_old.get(settled, "")


def _numbers(graph: Graph, flags: str) -> str:
    """Numbers of the rows whose flag is set, one column."""
    return graph.node("Transpose", graph.node("NonZero", flags), perm=[1, 0])


def _whole_sum(graph: Graph, *, plan: Plan, voting: Voting, rows: str, scores: bool) -> Found:
    def block(inner: Graph, some: str) -> list[Typed]:
        found = kernel_sums(inner, plan.machine, some)
        return _typed(inner, vote(inner, voting, found) if voting.task != "regression" else "", found, scores)

    if plan.machine.kernel.name == "linear":  # one product
        return _named([name for name, _ in block(graph, rows)], voting, scores)
    return _named(by_blocks(graph, rows, block, block_rows(plan.machine)), voting, scores)


def _asked(
    graph: Graph,
    *,
    plan: Plan,
    voting: Voting,
    stage: Any,
    threshold: float,
    rows: str,
    scores: bool,
    guard: Guard | None = None,
) -> tuple[Found, list[str]]:
    """A stage's answers; which rows they settle, and which ones the guard knows, where there is one."""

    def block(inner: Graph, some: str) -> list[Typed]:
        labels, found, settled = _stage(inner, plan, voting, stage, threshold, some)
        results = _typed(inner, labels, found, scores)
        if settled and guard is not None:
            known = inside(inner, guard, some, centre_of(plan.machine))
            return [*results, (inner.all_of(settled, known), np.bool_), (known, np.bool_)]
        return [*results, (settled, np.bool_)] if settled else results

    names = by_blocks(graph, rows, block, _stage_rows(stage, plan.machine))
    n_found = (voting.task != "regression") + scores
    return _named(names[:n_found], voting, scores), names[n_found:]


def _stage_rows(stage: Any, machine: KernelMachine) -> int:
    """Rows of a block for a stage."""
    width = int(machine.support_vectors.shape[1])
    if isinstance(stage, TaylorTree):  # each row has slopes of its own for every score
        width *= machine.n_scores
    most = int(np.clip(STAGE_VALUES // width, *STAGE_ROWS))
    if isinstance(stage, ReducedSet) and machine.kernel.name in LENGTHS:
        return block_rows(stage.reduced)
    return most


def _typed(graph: Graph, labels: str, scores: str, wanted: bool) -> list[Typed]:
    results: list[Typed] = [(labels, np.int64)] if labels else []
    return [*results, (scores, graph.floating)] if wanted else results


def _named(names: list[str], voting: Voting, scores: bool) -> Found:
    labels = "" if voting.task == "regression" else names[0]
    return Found(labels, names[-1] if scores else "")


def _stage(graph: Graph, plan: Plan, voting: Voting, stage: Any, threshold: float, rows: str) -> tuple[str, str, str]:
    """Labels, scores, and which rows are settled; the last is empty where nobody stands behind the stage."""
    by_class = plan.exact and answers_by_class(stage)
    scores, errors = _stage_scores(graph, stage, rows, errors=plan.exact and threshold > 0.0 and not by_class)
    factor = _rim_factors(graph, stage, rows) if plan.exact and threshold > 0.0 else ""
    if by_class:
        margin = graph.floats(threshold * float(stage.error[0]))
        margin = graph.node("Mul", graph.flat(factor), margin) if factor else margin
        labels, settled = settle_class(graph, scores, voting.n_classes, margin)
    elif not plan.exact:
        labels, settled = "" if voting.task == "regression" else vote(graph, voting, scores), ""
    else:
        bounds = graph.node("Mul", errors, graph.floats(threshold)) if errors else graph.floats(np.zeros((1, 1)))
        bounds = graph.node("Mul", factor, bounds) if factor else bounds
        if voting.task == "regression":
            labels, settled = "", settle_value(graph, scores, bounds, plan.tolerance)
        else:
            labels, settled = settle(graph, voting, scores, bounds)
    return labels, scores, settled


def _rim_factors(graph: Graph, stage: Any, rows: str) -> str:
    """How many times the error scales of each row count, one column; empty where that is once for all."""
    guard = stage.guard if isinstance(stage, HingeStage | ReducedSet) else None
    if guard is None or guard.core is None:
        return ""
    ordinary = graph.column(in_core(graph, guard, rows, centre_of(stage.machine)))
    return graph.node("Where", ordinary, graph.floats(1.0), graph.floats(guard.core.factor))


def _stage_scores(graph: Graph, stage: Any, rows: str, *, errors: bool) -> tuple[str, str]:
    """Scores and error scales; the latter may be one row for all."""
    if isinstance(stage, HingeStage):
        scores = hinge_scores(graph, stage.hinges, rows, centre_of(stage.machine))
        return scores, graph.floats(stage.error) if errors else ""
    if isinstance(stage, ReducedSet):
        scores = kernel_sums(graph, stage.reduced, rows)
        if not errors:
            return scores, ""
        unit = graph.floats(stage.unit)
        if stage.error_map is None:
            return scores, unit
        _, size = tree_scores(graph, stage.error_map, rows, scores=False, errors=True)
        return scores, graph.node("Mul", size, unit)
    return tree_scores(graph, stage, rows, scores=True, errors=errors)
