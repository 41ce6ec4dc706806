"""Methods that stop sums early (`StoppedSum`) in a svelto file: their lists and tables.

Tables of distances and projections are kept, not made again: with them comes the choice of the probe rows that they
were built with, so that a loaded predictor evaluates what the saved one did.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from svelto import _core
from svelto.distance_bounds import bound_of
from svelto.engines.bounded import check_bounded
from svelto.engines.distance_lists import DistanceLists
from svelto.engines.fewest import FewestEvaluations
from svelto.engines.packing import expand_rows
from svelto.engines.projection import ProjectionBounds, looks
from svelto.engines.references import ReferenceBounds
from svelto.engines.score_sums import ScoreSums
from svelto.engines.stopped_sum import StoppedSum
from svelto.io.parts import MOST, In, Out
from svelto.io.saved_exact import read_exact, write_exact
from svelto.machine import KernelMachine

# Tables of a projection, one row for each look, with a column for each score.
BY_SCORE: Final = ("_rest", "_length", "_off")
BY_LOOK: Final = ("_deviation", "_inverse_norm", "_factor_norm")


def write_stopped(out: Out, engine: StoppedSum) -> None:
    """The method, and the exact engine behind it."""
    method = engine.method
    write_exact(out.part("exact"), engine.exact)
    part = out.part("method")
    if isinstance(method, DistanceLists):
        part.set(method="lists", shared=method.shared)
        part.put("firsts", method.firsts_, "<i4")
        part.put("order", method.order_, "<i4")
        part.put("distance", method.distance_, "<f8")
        for name, dtype in (("rest", "<f8"), ("total", "<f8"), ("last", "<i4")):
            part.put(name, method._fields[name], dtype)
    elif isinstance(method, FewestEvaluations):
        part.set(build_evaluations=method.build_evaluations_)
        _write_bounds(part, method._method)
    else:
        raise NotImplementedError(f"A {type(method).__name__} cannot be saved in a svelto file.")


def _write_bounds(part: Out, bounds: ReferenceBounds | ProjectionBounds) -> None:
    part.set(method=bounds.name)
    if isinstance(bounds, ReferenceBounds):
        part.put("references", bounds.references, "<i8")
        part.put("near", bounds._near, "<f8")
        part.put("far", bounds._far, "<f8")
        if bounds._among is not None:
            part.put("among_near", bounds._among[0], "<f8")
            part.put("among_far", bounds._among[1], "<f8")
        return
    part.put("basis", bounds.basis, "<i8")
    for name in ("_margin", "_factor", "_coordinates", *BY_SCORE, *BY_LOOK):
        part.put(name[1:], getattr(bounds, name), "<f8")
    part.put("inverses", np.concatenate([block.ravel() for block in bounds._inverses]), "<f8")


def read_stopped(part: In, machine: KernelMachine) -> StoppedSum:
    """The engine of a machine."""
    if not machine.kernel.has_native_code:
        part.fail("a sum that stops needs a kernel of a distance")
    check_bounded(machine)
    exact = read_exact(part.part("exact"), machine)
    below = part.part("method")
    name = below.choice("method", ("lists", "references", "projection"))
    if name == "lists":
        return StoppedSum(_read_lists(below, machine), exact)
    fewest = FewestEvaluations.on(machine)
    fewest.build_evaluations_ = below.count("build_evaluations", 0, 2**62)
    bound = bound_of(machine.kernel, int(machine.support_vectors.shape[1]))
    fewest._method = (_read_references if name == "references" else _read_projection)(below, machine, bound)
    return StoppedSum(fewest, exact)


def _read_lists(part: In, machine: KernelMachine) -> DistanceLists:
    n_sv, n_rows, n_scores = machine.n_sv, machine.dual_coef.shape[0], machine.n_scores
    lists = DistanceLists.__new__(DistanceLists)
    lists.machine, lists.shared = machine, part.flag("shared")
    lists.firsts_ = part.whole("firsts", (None,), 0, n_sv - 1)
    n = lists.n_lists_ = len(lists.firsts_)
    lists.order_ = part.whole("order", (n, n_sv), 0, n_sv - 1)
    lists.distance_ = part.array("distance", "<f8", (n, n_sv))
    if n == 0 or (np.diff(lists.firsts_) <= 0).any() or (lists.order_[:, 0] != lists.firsts_).any():
        part.fail("a list does not start with its first vector")
    if not all((np.bincount(order, minlength=n_sv) == 1).all() for order in lists.order_):
        part.fail("a list does not have every vector once")
    lists._weights = np.array(expand_rows(machine, machine.dual_coef))
    sums = {
        "rest": part.array("rest", "<f8", (n, n_sv, n_rows, 2)),
        "total": part.array("total", "<f8", (n, n_scores, 2)),
        "last": part.whole("last", (n, n_scores), -1, n_sv - 1),
    }
    lists._fields = {**lists._pack(), **sums}
    lists._native = _core.DistanceLists(lists._fields)
    return lists


def _read_references(part: In, machine: KernelMachine, bound: Any) -> ReferenceBounds:
    bounds = ReferenceBounds.__new__(ReferenceBounds)
    bounds.machine, bounds.bound, bounds.sums = machine, bound, ScoreSums(machine)
    n_sv = machine.n_sv
    bounds.references = part.whole("references", (None,), 0, n_sv - 1, dtype="<i8")
    n = len(bounds.references)
    if not 1 <= n <= n_sv or len(np.unique(bounds.references)) != n:
        part.fail(f"there are {n} reference vectors, or one twice")
    bounds._near, bounds._far = part.array("near", "<f8", (n, n_sv)), part.array("far", "<f8", (n, n_sv))
    bounds._among = None
    if part.has_array("among_near"):
        square = (n_sv, n_sv)
        bounds._among = part.array("among_near", "<f8", square), part.array("among_far", "<f8", square)
    return bounds


def _read_projection(part: In, machine: KernelMachine, bound: Any) -> ProjectionBounds:
    bounds = ProjectionBounds.__new__(ProjectionBounds)
    bounds.machine, bounds.bound = machine, bound
    bounds.basis = part.whole("basis", (None,), 0, machine.n_sv - 1, dtype="<i8")
    n, n_scores = len(bounds.basis), machine.n_scores
    if not 1 <= n <= MOST or len(np.unique(bounds.basis)) != n:
        part.fail(f"the projection has {n} vectors, or one twice")
    stops = looks(n)
    bounds._starts, bounds._stops = [0, *stops[:-1]], stops
    bounds._margin = part.array("margin", "<f8", (n_scores,))
    bounds._factor = part.array("factor", "<f8", (n, n))
    bounds._coordinates = part.array("coordinates", "<f8", (n, n_scores))
    for name in BY_SCORE:
        setattr(bounds, name, part.array(name[1:], "<f8", (len(stops), n_scores)))
    for name in BY_LOOK:
        setattr(bounds, name, part.array(name[1:], "<f8", (len(stops),)))
    sizes = np.diff([0, *stops])
    packed = part.array("inverses", "<f8", (int((sizes**2).sum()),))
    blocks = np.split(packed, np.cumsum(sizes**2)[:-1])
    bounds._inverses = [block.reshape(size, size) for block, size in zip(blocks, sizes, strict=True)]
    return bounds
