"""What of a predictor becomes a graph; the same as becomes a header (`c_plan`), but for what operators cannot say."""

from __future__ import annotations

from typing import Any

from svelto.cascade import Cascade
from svelto.engines.sv_tree import SVTree
from svelto.export.c_plan import Plan, check_exportable, plans


def plan_of(predictor: Any) -> Plan:
    """Stages, thresholds, guard and whole sum of a predictor.

    Raises
    ------
    NotImplementedError
        With what cannot be written, and what to do instead.
    """
    engine = predictor._engine
    check_exportable(predictor.machine, "export_onnx")
    if isinstance(engine, Cascade):
        for stage in engine.stages:
            if isinstance(stage, SVTree):
                raise NotImplementedError(
                    "export_onnx cannot write method='sv_tree': every row would take a path of its own through kernel "
                    "values. Use method='hinges', 'reduced_set', 'taylor_tree' or 'exact', or export_c."
                )
    return plans(predictor)[0]
