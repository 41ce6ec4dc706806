"""What of a predictor becomes a graph; the same as becomes a header (`c_plan`), but for what operators cannot say."""

from __future__ import annotations

from typing import Any

from svelto.cascade import Cascade
from svelto.engines.sv_tree import SVTree
from svelto.export.c_plan import Plan, plans
from svelto.machine import KernelMachine


def plan_of(predictor: Any) -> Plan:
    """Stages, thresholds, guard and whole sum of a predictor.

    Raises
    ------
    NotImplementedError
        With what cannot be written, and what to do instead.
    """
    machine, engine = predictor.machine, predictor._engine
    _check_machine(machine)
    if isinstance(engine, Cascade):
        for stage in engine.stages:
            if isinstance(stage, SVTree):
                raise NotImplementedError(
                    "export_onnx cannot write method='sv_tree': every row would take a path of its own through kernel "
                    "values. Use method='hinges', 'reduced_set', 'taylor_tree' or 'exact', or export_c."
                )
    return plans(predictor)[0]


def _check_machine(machine: KernelMachine) -> None:
    if not machine.kernel.has_native_code:
        raise NotImplementedError(
            "export_onnx writes kernels on vectors (rbf, exponential, laplacian, poly, sigmoid, linear); this machine "
            f"has the kernel {machine.kernel}, which is not made of operators."
        )
    if machine.front:
        steps = ", ".join(type(step).__name__ for step in machine.front)
        raise NotImplementedError(
            f"The model has steps in front of the machine that export_onnx does not know: {steps}. Standard, min-max "
            "and max-abs scalers can be exported; export other steps yourself, and the last step of the Pipeline here."
        )
    if machine.calibration is not None:
        raise NotImplementedError(
            "A CalibratedClassifierCV answers with its most probable class, which export_onnx does not write. Export "
            "its inner estimator."
        )
