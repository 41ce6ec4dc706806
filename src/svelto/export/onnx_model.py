"""The model around a graph: its input, and outputs with the names and shapes that converters of scikit-learn have.

X          (rows, features)  the input, float32 or float64
label      (rows,)           classes as int64, float64 or string; +1 and -1 of outlier detectors
scores     (rows,) or (rows, columns)   as `decision_function` returns them
variable   (rows, targets)   values of regressors, instead of the two
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from svelto.cascade import answers_by_class
from svelto.export.c_plan import Plan
from svelto.export.c_vote import Voting
from svelto.export.onnx_cascade import Found, answers
from svelto.export.onnx_graph import IR_VERSION, OPSET, Graph, value_info
from svelto.export.onnx_rows import scaled_rows
from svelto.export.onnx_vote import answer_table, decides_by_sign, decision_values

# No file of this format can be larger: 2 GiB, with room for operators and names.
MOST_BYTES: Final = 2**31 - 2**22


def wants_scores(plan: Plan, scores: bool | None) -> bool:
    """Whether there is an output of scores: as asked, or by itself where it costs nothing."""
    if plan.machine.task == "regression":
        if scores is not None:
            raise ValueError(f"scores is {scores}; a regressor has one output, its values. Leave the option out.")
        return True
    if scores and plan.by_class:
        raise ValueError(
            "scores is True, but this predictor's stage knows labels and no scores. Leave the option out, or "
            "accelerate with answers='scores', or with an agreement."
        )
    free = not any(map(answers_by_class, plan.stages))
    return free if scores is None else scores


def make_model(plan: Plan, dtype: str, scores: bool) -> Any:
    """An onnx.ModelProto, checked."""
    from onnx import checker, helper

    machine = plan.machine
    graph = Graph(dtype)
    rows = scaled_rows(graph, machine.scaling, "X")
    voting = Voting.of(machine, by_class=plan.by_class)
    if machine.task == "regression":
        outputs = [_value(graph, answers(graph, plan, voting, rows, scores=True).scores, machine.n_scores)]
    else:
        outputs = _classifier(graph, plan, voting, rows, scores)
    size = sum(tensor.ByteSize() for tensor in graph.constants)
    if size > MOST_BYTES:
        raise ValueError(
            f"The numbers of this predictor take {size:,} bytes as {dtype}, with zeros of sparse support vectors "
            f"written out; an ONNX file has room for {MOST_BYTES:,}. Use "
            + ("dtype='float32', or " if dtype == "float64" else "")
            + "a machine of fewer support vectors or features."
        )
    made = helper.make_graph(
        graph.nodes, "kernel_machine", [value_info("X", graph.floating, ["rows", machine.n_features])], outputs
    )
    made.initializer.extend(graph.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    model.producer_name = "svelto"
    checker.check_model(model, full_check=True)
    return model


def _value(graph: Graph, values: str, n_values: int) -> Any:
    graph.named(values, "variable")
    return value_info("variable", graph.floating, ["rows", n_values])


def _classifier(graph: Graph, plan: Plan, voting: Voting, rows: str, scores: bool) -> list[Any]:
    found = _found(graph, plan, voting, rows, scores)
    table = answer_table(plan.machine)
    graph.named(graph.node("Gather", graph.constant(table), found.labels, axis=0), "label")
    outputs = [value_info("label", table.dtype, ["rows"])]
    if scores:
        graph.named(decision_values(graph, voting, found.scores), "scores")
        shape = ["rows"] if decides_by_sign(voting) else ["rows", voting.n_outputs]
        outputs.append(value_info("scores", graph.floating, shape))
    return outputs


def _found(graph: Graph, plan: Plan, voting: Voting, rows: str, scores: bool) -> Found:
    """Labels and scores; of a stage that knows labels alone, scores come from what stands behind it."""
    if not scores or not any(map(answers_by_class, plan.stages)):
        return answers(graph, plan, voting, rows, scores=scores)
    labels = answers(graph, plan, voting, rows, scores=False).labels
    kept = [at for at, stage in enumerate(plan.stages) if not answers_by_class(stage)]
    behind = replace(plan, stages=[plan.stages[at] for at in kept], thresholds=[plan.thresholds[at] for at in kept])
    return Found(labels, answers(graph, behind, voting, rows, scores=True).scores)
