"""Cascades in a svelto file: stages, thresholds, the guard, and the exact engine behind them.

One pair of functions for each kind of stage, in `STAGES`; a name that is not there is an error. Metric trees and the
exact engine's panels are kept packed and used where they lie; hinges, guards and trees of kernel values are small, and
are packed again when they are read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from svelto import _core
from svelto.cascade import Cascade
from svelto.engines.certified import CertifiedTree
from svelto.engines.exact import ExactEngine
from svelto.engines.hinge_training import Hinges
from svelto.engines.hinges import MOST_LAYERS, HingeStage
from svelto.engines.reduced_stage import ReducedSet, map_machine
from svelto.engines.sv_tree import SVTree
from svelto.engines.taylor_tree import TaylorTree, tree_numbers
from svelto.guard import Core, Guard
from svelto.guard_grid import MOST_SCALE, Grids
from svelto.io.parts import MOST, In, Out
from svelto.io.plain import ADVICE
from svelto.io.saved_exact import read_exact, write_exact
from svelto.io.saved_machine import read_machine, write_machine
from svelto.io.saved_paths import read_sv_tree, write_sv_tree
from svelto.machine import KernelMachine

# A larger factor of a guard's core cannot be meant.
MOST_FACTOR: Final = 1e6


class Shared(NamedTuple):
    """What the stages of a cascade have in common."""

    machine: KernelMachine
    guards: list[Guard]


def write_cascade(out: Out, cascade: Cascade) -> None:
    """A cascade; its machine is written elsewhere."""
    guards = _guards_of(cascade)
    if cascade.guard is not None and not isinstance(cascade.guard, Guard):
        raise NotImplementedError(
            f"The guard of the cascade is a Python function ({cascade.guard!r:.60}); files hold no code. {ADVICE}"
        )
    out.set(thresholds=[float(t) for t in cascade.thresholds], tolerance=cascade.tolerance)
    out.set(guard=None if cascade.guard is None else _place(cascade.guard, guards))
    for part, guard in zip(out.parts("guards", len(guards)), guards, strict=True):
        _write_guard(part, guard)
    shared = Shared(cascade.machine, guards)
    for part, stage in zip(out.parts("stages", len(cascade.stages)), cascade.stages, strict=True):
        kind = next((name for name, (known, _, _) in STAGES.items() if type(stage) is known), None)
        if kind is None:
            raise NotImplementedError(f"A {type(stage).__name__} cannot be saved in a svelto file. {ADVICE}")
        part.set(kind=kind, name=stage.name)
        STAGES[kind][1](part, stage, shared)
    write_exact(out.part("exact"), cascade.exact)


def read_cascade(part: In, machine: KernelMachine) -> Cascade:
    """The cascade of a machine."""
    guards = [_read_guard(one, machine) for one in part.parts("guards")]
    shared = Shared(machine, guards)
    stages = []
    for one in part.parts("stages"):
        kind = one.choice("kind", tuple(STAGES))
        if not machine.kernel.has_native_code and kind != "sv_tree":
            one.fail(f"the stage {kind} needs rows of features, and the kernel is {machine.kernel}")
        name = one.text("name")
        stages.append(STAGES[kind][2](one, shared))
        stages[-1].name = name
    thresholds = part.plain("thresholds")
    known = isinstance(thresholds, list) and all(type(t) is float and t >= 0.0 for t in thresholds)
    if not known or len(thresholds) != len(stages) or not stages:
        part.fail(f"there are {len(stages)} stages, and the thresholds {str(thresholds)[:60]}")
    tolerance = None if part.json("tolerance") is None else part.finite("tolerance")
    guard = _read_place(part, guards)
    return Cascade(machine, stages, thresholds, read_exact(part.part("exact"), machine), tolerance, guard)


# -- guards --------------------------------------------------------------------------------------------------------


def _guards_of(cascade: Cascade) -> list[Guard]:
    """Every guard once: stages and cascade mostly have the same."""
    found = [cascade.guard, *(getattr(stage, "guard", None) for stage in cascade.stages)]
    return list({id(guard): guard for guard in found if isinstance(guard, Guard)}.values())


def _place(guard: Guard | None, guards: list[Guard]) -> int | None:
    return next((i for i, other in enumerate(guards) if other is guard), None)


def _read_place(part: In, guards: list[Guard]) -> Guard | None:
    return None if part.json("guard") is None else guards[part.count("guard", 0, len(guards) - 1)]


def _write_guard(out: Out, guard: Guard) -> None:
    out.set(box_limit=guard.box_limit, direction_limit=guard.direction_limit)
    for name in ("low", "high", "centres", "sq_radii", "directions", "offset"):
        out.put(name, getattr(guard, name), "<f8")
    if guard.grids is not None:
        out.put("grid_scale", guard.grids.scale, "<f8")
        out.put("grid_origin", guard.grids.origin, "<f8")
    if guard.core is not None:
        out.set(core_box_limit=guard.core.box_limit, core_direction_limit=guard.core.direction_limit)
        out.set(core_factor=guard.core.factor)
        out.put("core_sq_radii", guard.core.sq_radii, "<f8")


def _read_guard(part: In, machine: KernelMachine) -> Guard:
    d, most = width_of(part, machine), _core.GUARD_LANES
    centres = part.floats("centres", (None, d), always=True)
    directions = part.floats("directions", (None, d), always=True)
    if not 1 <= len(centres) <= most or len(directions) > most:
        part.fail(f"a guard has {len(centres)} balls and {len(directions)} directions")
    low, high = part.floats("low", (d,), always=True), part.floats("high", (d,), always=True)
    sq_radii = part.floats("sq_radii", (len(centres),), always=True)
    box_limit, direction_limit = part.finite("box_limit"), part.number("direction_limit")
    if (low > high).any() or (sq_radii < 0.0).any() or box_limit < 0.0 or not direction_limit >= 0.0:
        part.fail("a guard has an empty box, or a limit below 0")
    if direction_limit < np.inf and not len(directions):
        part.fail("a guard limits directions that it does not have")
    offset = part.floats("offset", (len(directions),), always=True)
    grids = _read_grids(part, d) if part.has_array("grid_scale") else None
    own = Core(box_limit, sq_radii, direction_limit, MOST_FACTOR)
    core = _read_core(part, own) if part.has_array("core_sq_radii") else None
    guard = Guard(machine, low, high, centres, sq_radii, directions, offset, box_limit, direction_limit, grids, core)
    if grids is not None and (guard.grids is None or (guard.grids.scale != grids.scale).any()):
        part.fail("a guard has a grid that is too fine for its box")
    return guard


def _read_core(part: In, own: Core) -> Core:
    """The core of a guard that has these limits itself."""
    sq_radii = part.floats("core_sq_radii", own.sq_radii.shape, always=True)
    limits = part.finite("core_box_limit"), sq_radii, part.number("core_direction_limit")
    core = Core(*limits, part.finite("core_factor"))
    if not 1.0 <= core.factor <= own.factor:
        part.fail(f"the factor of a guard's core is {core.factor!r}, not between 1 and {own.factor:g}")
    inner, outer = ([one.box_limit, one.direction_limit, *one.sq_radii] for one in (core, own))
    # NaN is not between; infinity is where there are no directions, for both.
    if not all(0.0 <= limit <= most for limit, most in zip(inner, outer, strict=True)):
        part.fail("the core of a guard has a limit that is not between 0 and the guard's own")
    return core


def _read_grids(part: In, d: int) -> Grids:
    scale = part.floats("grid_scale", (d,), always=True)
    origin = part.floats("grid_origin", (d,), always=True)
    if (scale < 0.0).any() or (scale > MOST_SCALE).any() or not scale.any():
        part.fail(f"the scales of a guard's grids are not between 0 and {MOST_SCALE:g}, or all 0")
    return Grids(scale, origin)


def width_of(part: In, machine: KernelMachine) -> int:
    """Features of a row as the kernel sees it."""
    if not machine.kernel.has_native_code:
        part.fail(f"rows of features are needed, and the kernel is {machine.kernel}")
    return int(machine.support_vectors.shape[1])


# -- trees with linear leaves --------------------------------------------------------------------------------------


def _write_tree(out: Out, tree: TaylorTree, shared: Shared) -> None:
    arrays = tree.arrays
    out.set(guard=_place(tree.guard, shared.guards), stored=bool(arrays["stored"]))
    out.put("children", arrays["children"], "<i4")
    out.put("shift", arrays["shift"], "<f8")
    for name in (*TREE_FLOATS, *(STORED_FLOATS if arrays["stored"] else ())):
        out.put(name, arrays[name], "<f4")


TREE_FLOATS: Final = ("normals", "offsets", "centres", "weights", "values", "base", "growth", "reach")
STORED_FLOATS: Final = ("bias", "centre_sq_norm")


def _read_tree(part: In, shared: Shared, machine: KernelMachine | None = None) -> TaylorTree:
    machine = shared.machine if machine is None else machine
    arrays = _tree_arrays(part, machine)
    return TaylorTree(machine, arrays, guard=_read_place(part, shared.guards))


def _tree_arrays(part: In, machine: KernelMachine) -> dict[str, Any]:
    d = width_of(part, machine)
    children = part.array("children", "<i4", (None, 2))  # native code checks that they make a tree
    n_inner = len(children)
    if n_inner >= MOST:
        part.fail(f"a tree has {n_inner} nodes")
    numbers = tree_numbers(machine, d, n_inner + 1)
    n_leaves, stride, width = n_inner + 1, numbers["stride"], max(numbers["padded"], 1)
    one_score = machine.n_scores == 1
    by_leaf = (n_leaves, width)
    shapes: dict[str, tuple[int, ...]] = {
        "normals": (n_inner, stride),
        "offsets": (n_inner,),
        "centres": (n_leaves, stride),
        "weights": (n_leaves, stride) if one_score else (n_leaves, d, width),
        "values": by_leaf,
        "base": by_leaf,
        "growth": by_leaf,
        "reach": (n_leaves,),
        "bias": by_leaf,
        "centre_sq_norm": (n_leaves,),
    }
    stored = part.flag("stored")
    arrays: dict[str, Any] = {**numbers, "children": children, "stored": stored}
    arrays["shift"] = part.floats("shift", (d,), always=True)
    for name in (*TREE_FLOATS, *(STORED_FLOATS if stored else ())):
        # Leaves without rows of their own have infinite reaches and errors.
        arrays[name] = part.numbers(name, shapes[name], dtype="<f4")
    return arrays


CERTIFIED: Final = ("value", "low", "high", "cubic", "slack")


def _write_certified(out: Out, tree: CertifiedTree, shared: Shared) -> None:
    _write_tree(out, tree, shared)
    for name in ("centres", "sq_radius", "slope", *CERTIFIED):
        out.put(f"certified_{name}", tree.arrays[f"certified_{name}"], "<f8")


def _read_certified(part: In, shared: Shared) -> CertifiedTree:
    machine = shared.machine
    if machine.kernel.name != "rbf":
        part.fail(f"certified leaves belong to the rbf kernel, not to {machine.kernel}")
    arrays = _tree_arrays(part, machine)
    n_leaves, d, scores = arrays["n_leaves"], arrays["d"], machine.n_scores
    arrays["certified_gamma"] = machine.kernel.gamma
    arrays["certified_intercept"] = np.array(machine.intercept)
    arrays["certified_centres"] = part.floats("certified_centres", (n_leaves, d))
    arrays["certified_sq_radius"] = part.numbers("certified_sq_radius", (n_leaves,))
    arrays["certified_slope"] = part.array("certified_slope", "<f8", (n_leaves, scores, d))
    for name in CERTIFIED:  # NaN and infinity settle nothing
        arrays[f"certified_{name}"] = part.array(f"certified_{name}", "<f8", (n_leaves, scores))
    return CertifiedTree(machine, arrays, guard=_read_place(part, shared.guards))


# -- hinges --------------------------------------------------------------------------------------------------------


def _write_hinges(out: Out, stage: HingeStage, shared: Shared) -> None:
    out.set(guard=_place(stage.guard, shared.guards), by_class=bool(stage.by_class), n_read=stage.n_read)
    out.set(layers=len(stage.hinges.weights))
    for layer, (weights, bias) in enumerate(zip(stage.hinges.weights, stage.hinges.biases, strict=True)):
        out.put(f"weights_{layer}", weights, "<f4")
        out.put(f"bias_{layer}", bias, "<f4")
    out.put("mix", stage.hinges.mix, "<f4")
    out.put("error", stage.error, "<f8")
    out.put("shift", stage.shift, "<f8")


def _read_hinges(part: In, shared: Shared) -> HingeStage:
    machine = shared.machine
    by_class = part.flag("by_class")
    if by_class and machine.n_classes < 2:
        part.fail("hinges learned classes of a machine that has none")
    p = machine.n_classes if by_class else machine.n_scores
    n_inputs = d = width_of(part, machine)
    weights, biases = [], []
    for layer in range(part.count("layers", 1, MOST_LAYERS)):
        bias = part.floats(f"bias_{layer}", (None,), dtype="<f4", always=True)
        if len(bias) < p:
            part.fail(f"a layer of hinges has {len(bias)} columns for {p} scores")
        weights.append(part.floats(f"weights_{layer}", (n_inputs, len(bias)), dtype="<f4", always=True))
        biases.append(bias)
        n_inputs = len(bias) - p
    mix = part.floats("mix", (n_inputs, p), dtype="<f4", always=True)
    n_read = None if part.json("n_read") is None else part.finite("n_read")
    return HingeStage(
        machine,
        Hinges(tuple(weights), tuple(biases), mix),
        part.floats("error", (p,), always=True),
        part.floats("shift", (d,), always=True),
        by_class,
        _read_place(part, shared.guards),
        n_read=n_read,
    )


# -- reduced sets --------------------------------------------------------------------------------------------------


def _write_reduced(out: Out, stage: ReducedSet, shared: Shared) -> None:
    # The scaling is that of the machine itself.
    write_machine(out.part("machine"), replace(stage.reduced, scaling=None))
    write_exact(out.part("engine"), stage.packed_engine())
    out.put("unit", stage.unit, "<f8")
    out.set(mapped=stage.error_map is not None, guard=_place(stage.guard, shared.guards))
    if stage.error_map is not None:
        _write_tree(out.part("map"), stage.error_map, shared)


def _read_reduced(part: In, shared: Shared) -> ReducedSet:
    machine, d = shared.machine, width_of(part, shared.machine)
    reduced = read_machine(part.part("machine"))
    fits = reduced.kernel.has_native_code and reduced.support_vectors.shape[1] == d and not reduced.front
    if not fits or reduced.n_scores != machine.n_scores:
        part.fail("a reduced set is for another machine")
    engine = read_exact(part.part("engine"), replace(reduced, scaling=machine.scaling))
    assert isinstance(engine, ExactEngine)
    error_map = _read_tree(part.part("map"), shared, map_machine(d, machine.scaling)) if part.flag("mapped") else None
    unit = part.floats("unit", (machine.n_scores,), always=True)
    guard = _read_place(part, shared.guards) if part.has("guard") else None  # files of before have none
    stage = ReducedSet.on(machine, engine, unit, error_map, guard)
    if guard is not None and not stage.guards_itself:
        part.fail("a reduced set has a guard that it cannot ask")
    return stage


Writer = Callable[[Out, Any, Shared], None]
Reader = Callable[[In, Shared], Any]
STAGES: Final[dict[str, tuple[type, Writer, Reader]]] = {
    "hinges": (HingeStage, _write_hinges, _read_hinges),
    "taylor_tree": (TaylorTree, _write_tree, _read_tree),
    "certified_tree": (CertifiedTree, _write_certified, _read_certified),
    "sv_tree": (SVTree, write_sv_tree, read_sv_tree),
    "reduced_set": (ReducedSet, _write_reduced, _read_reduced),
}
