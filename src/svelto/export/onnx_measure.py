"""What a graph answers beside the predictor and the float64 machine, on rows: the graph itself is run.

onnxruntime runs it where it is installed, else the evaluator that comes with onnx, which takes longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from svelto._inputs import check_feature_names, check_finite, check_rows
from svelto.engines.exact import ExactEngine
from svelto.export.c_exact import dense
from svelto.export.measure import Agreement, stand_ins
from svelto.export.onnx_graph import DTYPES
from svelto.machine import KernelMachine


def runner(model: bytes) -> Callable[[Any], list[Any]]:
    """A function from rows to the outputs of a model."""
    try:
        import onnxruntime
    except ImportError:
        import onnx
        from onnx.reference import ReferenceEvaluator

        slow = ReferenceEvaluator(onnx.load_from_string(model))
        return lambda rows: list(slow.run(None, {"X": rows}))
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return lambda rows: list(session.run(None, {"X": rows}))


def measuring_rows(machine: KernelMachine, X: Any, dtype: str) -> tuple[Any, str]:
    """Rows in the type of a graph's input: those given, or support vectors as they were before the scaler."""
    if X is None:
        rows, what = stand_ins(machine), "support vectors (no rows were given)"
        scaling = machine.scaling
        if scaling is not None and scaling.form == "divide":
            rows = rows * scaling.factor + scaling.shift
        elif scaling is not None:
            rows = (rows - scaling.shift) / scaling.factor
    else:
        check_feature_names(X, machine)
        rows, what = dense(check_rows(X, machine.n_features)), "rows given"
    with np.errstate(over="ignore"):
        found = np.ascontiguousarray(rows, dtype=DTYPES[dtype])
    check_finite(found, rows)
    return found, what


def measure(predictor: Any, model: bytes, X: Any, dtype: str) -> Agreement:
    """Compare a graph with the predictor it was made of, and with the machine behind that."""
    machine, engine = predictor.machine, predictor._engine
    rows, what = measuring_rows(machine, X, dtype)
    found = runner(model)(rows)[0]
    precise = rows.astype(np.float64)
    exact = engine if isinstance(engine, ExactEngine) else engine.exact
    true = type(predictor)(machine, exact, predictor.report, predictor.n_jobs).predict(precise)
    if machine.task == "regression":
        spread = float(true.std()) or 1.0
        error = float(np.sqrt(np.mean((found.reshape(true.shape) - true) ** 2))) / spread
        return Agreement(what, len(rows), error=error)
    own = predictor.predict(precise)
    if found.dtype.kind in "OU":
        own, true = own.astype(str), true.astype(str)
    return Agreement(what, len(rows), float(np.mean(found == own)), float(np.mean(found == true)))
