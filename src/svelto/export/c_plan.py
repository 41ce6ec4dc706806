"""What of a predictor goes into a header.

exact engine, "bounded", proven leaves    the whole sum: these all have its labels
stages behind a promise                   stages and thresholds, the guard, and the whole sum for what they leave
stages without one (agreement=None)       the stage
any of these, where bytes are limited     what fits: the above, or else the largest single stage, which then answers
                                          every row and promises nothing
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from svelto._typing import FloatArray
from svelto.cascade import Cascade
from svelto.engines.certified import CertifiedTree
from svelto.engines.exact import ExactEngine
from svelto.engines.hinges import HingeStage
from svelto.engines.reduced_stage import ReducedSet
from svelto.engines.stopped_sum import StoppedSum
from svelto.engines.sv_tree import SVTree
from svelto.engines.taylor_tree import TaylorTree
from svelto.export.c_exact import OF_PRODUCTS, dense
from svelto.export.c_paths import path_centre
from svelto.export.c_tables import Dtype
from svelto.guard import Guard
from svelto.machine import KernelMachine

# A mean this many standard deviations from zero costs single floats three bits of the differences.
FAR_FROM_ZERO = 8.0


@dataclass(frozen=True)
class Plan:
    """Stages, guard and exact sum of a header.

    Attributes
    ----------
    method : str
        In words.
    machine : KernelMachine
        The machine it answers for.
    stages : list
        Cheapest first.
    thresholds : list of float
        One for each; 0 settles everything.
    guard : Guard or None
        Marks rows that no stage answers.
    exact : bool
        Whether the whole sum stands behind the stages.
    tolerance : float or None
        Of a regressor's values.
    whole : bool
        Whether this is all of the predictor, and not a single stage of it.
    """

    method: str
    machine: KernelMachine
    stages: list[Any]
    thresholds: list[float]
    guard: Guard | None = None
    exact: bool = True
    tolerance: float | None = None
    whole: bool = True

    @property
    def by_class(self) -> bool:
        """Whether the only scores are those of classes."""
        return not self.exact and bool(getattr(self.stages[0], "by_class", False))

    def centre(self, dtype: Dtype) -> tuple[FloatArray, bool]:
        """Centre of the tables, and whether another one nearby will do."""
        machine = self.machine
        width = int(machine.support_vectors.shape[1])
        sums = self.exact or any(isinstance(stage, ReducedSet | SVTree) for stage in self.stages)
        if machine.kernel.name in OF_PRODUCTS and sums:
            return np.zeros(width), False
        for stage in self.stages:
            if isinstance(stage, HingeStage):
                return np.asarray(stage.shift, dtype=np.float64), True
            if isinstance(stage, TaylorTree):
                return np.asarray(stage.arrays["shift"], dtype=np.float64), dtype != "float32"
            if isinstance(stage, SVTree):
                return path_centre(stage), True
        vectors = dense(machine.support_vectors)
        if dtype != "float32":  # steps are smallest around the middle
            return 0.5 * (vectors.min(axis=0) + vectors.max(axis=0)), True
        mean, spread = vectors.mean(axis=0), vectors.std(axis=0)
        return (mean if bool((np.abs(mean) > FAR_FROM_ZERO * spread).any()) else np.zeros(width)), True


def plans(predictor: Any) -> list[Plan]:
    """What may be written of a predictor: all of it, then single stages."""
    machine, engine = predictor.machine, predictor._engine
    check_exportable(machine, "export_c")
    exact = Plan("exact", machine, [], [])
    if isinstance(engine, ExactEngine | StoppedSum):
        return [exact]
    if not isinstance(engine, Cascade):
        raise NotImplementedError(f"export_c cannot write a predictor of {type(engine).__name__}. Use method='exact'.")
    for stage in engine.stages:
        if not isinstance(stage, HingeStage | TaylorTree | SVTree | ReducedSet):
            raise NotImplementedError(f"export_c cannot write a stage of {type(stage).__name__}. Use method='exact'.")
    alone = [_alone(engine, stage) for stage in engine.stages]
    if any(isinstance(stage, CertifiedTree) for stage in engine.stages) or min(engine.thresholds) == math.inf:
        return [exact, *alone]
    if engine.thresholds[0] == 0.0 and engine.guard is None:
        return [replace(alone[0], whole=True)]
    return [_cascade(engine), *alone]


def _cascade(engine: Cascade) -> Plan:
    stages, thresholds = [], []
    for stage, threshold in zip(engine.stages, engine.thresholds, strict=True):
        if threshold < math.inf:
            stages.append(stage)
            thresholds.append(threshold)
        if threshold == 0.0:  # nothing is left for those behind it
            break
    guard = engine.guard if isinstance(engine.guard, Guard) else None
    method = " -> ".join([*(stage.name for stage in stages), "exact"])
    return Plan(method, engine.machine, stages, thresholds, guard, tolerance=engine.tolerance)


def _alone(engine: Cascade, stage: Any) -> Plan:
    if isinstance(stage, CertifiedTree):
        kept = {key: value for key, value in stage.arrays.items() if not key.startswith("certified")}
        stage = TaylorTree(stage.machine, kept)
    elif isinstance(stage, HingeStage | TaylorTree):
        stage = replace(stage, guard=None)
    elif isinstance(stage, ReducedSet):
        stage = replace(stage, error_map=None, guard=None)
    return Plan(stage.name, engine.machine, [stage], [0.0], exact=False, whole=False)


def check_exportable(machine: KernelMachine, writer: str) -> None:
    """Refuse a machine whose answers need what neither C code nor a graph has; `writer` is the method to name."""
    if not machine.kernel.has_native_code:
        raise NotImplementedError(
            f"{writer} writes kernels on vectors (rbf, exponential, laplacian, poly, sigmoid, linear); this machine "
            f"has the kernel {machine.kernel}, which it cannot write."
        )
    if machine.front:
        steps = ", ".join(type(step).__name__ for step in machine.front)
        raise NotImplementedError(
            f"The model has steps in front of the machine that {writer} does not know: {steps}. Standard, min-max and "
            "max-abs scalers can be exported; apply other steps yourself, and export the last step of the Pipeline."
        )
    if machine.calibration is not None:
        raise NotImplementedError(
            f"A CalibratedClassifierCV answers with its most probable class, which {writer} does not write. Export its "
            "inner estimator."
        )
