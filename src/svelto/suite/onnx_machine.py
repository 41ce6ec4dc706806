"""The machine as an ONNX graph of primitive operations, run by onnxruntime in float32.

For each class's block of support vectors (two classes: one block): Gemm gives the exponents (|s|^2 as its bias,
|x|^2 as one more column of the rows), Exp, MatMul with the coefficients. Many classes: the parts are concatenated, a
0/1 matrix adds them up to pair scores, the vote is a second one, ArgMax takes the first of equals as LIBSVM does.
onnxruntime has no sparse products: CSR rows are made dense beforehand, outside of the timing.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from svelto.machine import KernelMachine
from svelto.suite.pair_vote import TRIAL_ROWS, PairVote, useful_blocks
from svelto.suite.timing import fastest

OPSET, IR_VERSION = 17, 8


def write_model(machine: KernelMachine) -> Any:
    """onnx.ModelProto with input X (rows, d) and output `label`: the position of the class in the vote order."""
    from onnx import TensorProto, checker, helper, numpy_helper

    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(name: str, value: NDArray[Any]) -> str:
        constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    vote, gamma = PairVote(machine), machine.kernel.gamma
    vectors = machine.support_vectors
    vectors = vectors.toarray() if sparse.issparse(vectors) else vectors
    norm = node("ReduceSumSquare", ["X"], "norm", axes=[1], keepdims=1)
    scaled = node("Mul", [norm, constant("minus_gamma", np.array(-gamma, np.float32))], "scaled_norm")
    rows = node("Concat", ["X", scaled], "rows", axis=1)
    start = vote.start if vote.n_classes > 2 else np.array([0, machine.n_sv])
    parts = []
    for c, (a, b) in enumerate(pairwise(start)):
        right = np.vstack([2 * gamma * vectors[a:b].T, np.ones(b - a)]).astype(np.float32)
        bias = (-gamma * (vectors[a:b] ** 2).sum(axis=1)).astype(np.float32)[None]
        inputs = [rows, constant(f"vectors{c}", right), constant(f"bias{c}", bias)]
        values = node("Exp", [node("Gemm", inputs, f"exponent{c}")], f"values{c}")
        parts.append(node("MatMul", [values, constant(f"coef{c}", vote.coef[:, a:b].T)], f"part{c}"))
    if vote.n_classes == 2:
        score = node("Add", [parts[0], constant("intercept", vote.intercept)], "score")
        positive = node("Greater", [score, constant("zero", np.zeros(1, np.float32))], "positive")
        other = node("Not", [positive], "other")
        flat = node("Reshape", [other, constant("flat", np.array([-1]))], "flat_other")
        node("Cast", [flat], "label", to=TensorProto.INT64)
    else:
        k = vote.n_classes
        adds = np.zeros(
            (k * (k - 1), len(vote.first)), np.float32
        )  # columns of the parts: class c, row r at c (k-1) + r
        pairs = np.arange(len(vote.first))
        adds[vote.first * (k - 1) + vote.second - 1, pairs] = 1.0
        adds[vote.second * (k - 1) + vote.first, pairs] = 1.0
        together = node("Concat", parts, "parts", axis=1)
        score = node("Gemm", [together, constant("adds", adds), constant("intercept", vote.intercept[None])], "score")
        positive = node("Greater", [score, constant("zero", np.zeros(1, np.float32))], "positive")
        counted = node("Cast", [positive], "counted", to=TensorProto.FLOAT)
        votes = node("Gemm", [counted, constant("gain", vote.gain), constant("base", vote.base[None])], "votes")
        node("ArgMax", [votes], "label", axis=1, keepdims=0)
    graph = helper.make_graph(
        nodes,
        "kernel_machine",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, vectors.shape[1]])],
        [helper.make_tensor_value_info("label", TensorProto.INT64, [None])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    checker.check_model(model)
    return model


class OnnxMachine:
    """predict(rows) for dense float32 rows, in blocks of the length that was fastest."""

    def __init__(self, machine: KernelMachine, n_threads: int, rows: NDArray[Any]) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = n_threads
        options.inter_op_num_threads = 1
        model = write_model(machine).SerializeToString()
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        assert machine.classes is not None
        self.answers = machine.classes[machine.vote_order]
        self.block = self._best_block(rows[:TRIAL_ROWS], machine.n_sv)

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """Labels of rows."""
        run, block = self.session.run, self.block
        labels: NDArray[Any]
        if len(X) <= block:
            labels = self.answers[run(None, {"X": X})[0]]
        else:
            found = [run(None, {"X": X[a : a + block]})[0] for a in range(0, len(X), block)]
            labels = self.answers[np.concatenate(found)]
        return labels

    def _best_block(self, trial: NDArray[Any], n_sv: int) -> int:
        def run(block: int) -> None:
            self.block = block
            self.predict(trial)

        return int(fastest(useful_blocks(len(trial), n_sv), run))
