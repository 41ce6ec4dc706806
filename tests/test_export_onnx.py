"""export_onnx: graphs answer as the predictor does, for every kernel, task and stage, in both types of numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import svelto
from machines import random_machine
from svelto.cascade import settled_labels
from svelto.export.c_vote import Voting
from svelto.export.onnx_graph import IR_VERSION, OPSET, Graph, value_info
from svelto.export.onnx_vote import settle
from svelto.voting import votes

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

DTYPES = ("float32", "float64")
KERNELS = ("rbf", "exponential", "laplacian", "poly", "sigmoid", "linear")
TASKS = {
    "two": {},
    "reversed": {"vote_order": np.array([1, 0])},
    "four": {"n_classes": 4},
    "pairs": {"n_classes": 4, "decision_function_shape": "ovo", "vote_order": np.array([2, 0, 3, 1])},
    "moved": {"n_classes": 4, "vote_order": np.array([2, 0, 3, 1])},
    "ties": {"n_classes": 4, "break_ties": True},
    "argmax": {"n_classes": 3, "rule": "argmax", "vote_order": np.array([1, 2, 0])},
    "value": {"task": "regression"},
    "values": {"task": "regression", "n_outputs": 3, "single_output": False},
    "outlier": {"task": "outlier"},
}
STAGES = {
    "hinges": {"n_hinges": 8, "oracle_rows": 400, "max_epochs": 2},
    "layers": {"method": "hinges", "n_hinges": (6, 5), "oracle_rows": 400, "max_epochs": 2},
    "classes": {"method": "hinges", "n_hinges": 8, "answers": "classes", "oracle_rows": 400, "max_epochs": 2},
    "taylor_tree": {"leaf_size": 20, "oracle_rows": 200},
    "reduced_set": {"n_basis": 10, "oracle_rows": 200, "max_iter": 5},
}
SERVED = {
    "hinges": ("two", "pairs", "ties", "argmax", "value", "outlier"),
    "layers": ("two", "four"),
    "classes": ("four",),
    "taylor_tree": ("two", "pairs", "argmax", "value", "outlier"),
    "reduced_set": ("two", "four", "argmax", "value", "outlier"),
}
CASES = [
    *(f"exact-{kernel}-{task}" for kernel in KERNELS for task in TASKS),
    *(f"{stage}-rbf-{task}" for stage, tasks in SERVED.items() for task in tasks),
    *(f"{stage}-poly-{'four' if stage == 'classes' else 'two'}" for stage in STAGES),
    "reduced_set-laplacian-two",
]


def rows(d=6, n=400, seed=5):
    """Rows that are single floats."""
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32).astype(np.float64)


def predictor_of(case):
    stage, kernel, task = case.split("-")
    if stage == "exact":
        return svelto.accelerate(random_machine(kernel, **TASKS[task]), method="exact")
    options = {"method": stage, **STAGES[stage]}
    machine = random_machine(kernel, n_sv=60, **TASKS[task])
    return svelto.accelerate(machine, rows(n=300, seed=1), agreement=None, random_state=0, n_jobs=1, **options)


def ask(path, X):
    """Outputs of a graph by name, for rows in its own type."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    dtype = {"tensor(float)": np.float32, "tensor(double)": np.float64}[session.get_inputs()[0].type]
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": X.astype(dtype)}), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_graphs_answer_as_the_predictor(case, tmp_path):
    predictor, Z = predictor_of(case), rows()
    for dtype in DTYPES:
        written = predictor.export_onnx(tmp_path / "m.onnx", dtype=dtype, X=Z)
        found = ask(written.path, Z)
        assert tuple(found) == written.outputs
        expected = predictor.predict(Z)
        if predictor.machine.task == "regression":
            assert written.outputs == ("variable",)
            assert found["variable"].shape == (len(Z), predictor.machine.n_scores)
            values = found["variable"].reshape(expected.shape)
            # Kernel sums of the predictor's own are in double precision here, those of stages in single.
            assert np.abs(values - expected).max() < 1e-5 * (1.0 + np.abs(expected).max())
            continue
        assert found["label"].dtype == np.int64
        assert found["label"].shape == (len(Z),)
        assert (found["label"] == expected).all()
        assert written.agreement.predictor == 1.0
        if not case.startswith("classes"):
            decision = predictor.decision_function(Z)
            assert found["scores"].shape == decision.shape
            # The predictor's scores are in single precision too.
            assert np.abs(found["scores"] - decision).max() < 2e-6 * (10.0 + np.abs(decision).max())


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_any_number_of_rows_is_answered(kernel, tmp_path, monkeypatch):
    """Blocks of a few rows and vectors: whole blocks, a short last one, fewer rows than a block, none at all."""
    monkeypatch.setattr("svelto.export.onnx_kernels.BLOCK_ROWS", 5)
    monkeypatch.setattr("svelto.export.onnx_kernels.BLOCK_VECTORS", 7)
    Z = rows(n=61)
    for fields in ({}, {"n_classes": 3}):
        predictor = svelto.accelerate(random_machine(kernel, **fields), method="exact")
        path = predictor.export_onnx(tmp_path / "m.onnx", dtype="float64").path
        expected = predictor.predict(Z)
        for n in (0, 1, 2, 4, 5, 6, 9, 10, 11, 26, 49, 61):
            found = ask(path, Z[:n])
            assert (found["label"] == expected[:n]).all(), n
            assert len(found["scores"]) == n


def test_pairs_with_a_zero_score_and_tied_votes_are_decided_as_by_the_machine(tmp_path):
    """Of three classes whose pairs contradict each other the first wins; a score of zero votes for the second."""
    machine = svelto.KernelMachine.from_arrays(
        kernel="linear",
        support_vectors=np.eye(3),
        dual_coef=np.array([[1.0, -1.0, 1.0], [-1.0, 1.0, -1.0]]),
        intercept=np.zeros(3),
        classes=[5, 7, 9],
        n_support=[1, 1, 1],
    )
    Z = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [1.0, 2.0, 1.5], [3.0, 1.0, 2.0], [0.0, 1.0, 1.0], [2.0, 2.0, 0.0]])
    for ties in (False, True):
        predictor = svelto.accelerate(replace(machine, break_ties=ties), method="exact")
        for dtype in DTYPES:
            found = ask(predictor.export_onnx(tmp_path / "m.onnx", dtype=dtype).path, Z)
            assert (found["label"] == predictor.predict(Z)).all()
            assert np.abs(found["scores"] - predictor.decision_function(Z)).max() < 1e-6


@pytest.mark.parametrize(("d", "share"), [(20, 0.5), (70, 0.5), (100, 0.5), (200, 0.3)])
def test_rows_on_a_cut_take_the_side_of_the_native_walk(tmp_path, d, share):
    """Rows of zeros and ones often lie half-way between two others."""
    X = (np.random.default_rng(0).random((1200, d)) < share).astype(np.float64)
    machine = random_machine("rbf", n_sv=30, d=d, gamma=1.0 / d)
    options = {"leaf_size": 4, "fit": "taylor", "oracle_rows": 0, "split": "midpoint"}
    fast = svelto.accelerate(machine, X, method="taylor_tree", agreement=None, random_state=0, n_jobs=1, **options)
    tree = fast._engine.stages[0]
    normals, offsets, _ = tree.tree
    assert (np.abs(X @ normals.T.astype(np.float64) + offsets) < 1e-5).any()
    for dtype in DTYPES:
        found = ask(fast.export_onnx(tmp_path / "tree.onnx", dtype=dtype).path, X)
        assert np.abs(found["scores"] - fast.decision_function(X)).max() < 1e-5
        assert (found["label"] == fast.predict(X)).all()


def test_rows_that_are_mostly_zeros_may_take_the_other_side_of_a_cut(tmp_path):
    X = (np.random.default_rng(0).random((1200, 150)) < 0.04).astype(np.float64)
    machine = random_machine("rbf", n_sv=30, d=150, gamma=1.0 / 150)
    options = {"leaf_size": 4, "fit": "taylor", "oracle_rows": 0, "split": "midpoint"}
    fast = svelto.accelerate(machine, X, method="taylor_tree", agreement=None, random_state=0, n_jobs=1, **options)
    assert fast._engine.stages[0].arrays["stored"]
    found = ask(fast.export_onnx(tmp_path / "tree.onnx").path, X)
    assert np.mean(np.abs(found["scores"] - fast.decision_function(X)) < 1e-5) > 0.9
    assert np.mean(found["label"] == fast.predict(X)) > 0.95


def test_sums_of_many_terms_stay_close_in_single_precision(tmp_path):
    """Thousands of terms of each sign: they are added in turn, so that little is lost."""
    rng = np.random.default_rng(0)
    machine = svelto.KernelMachine.from_arrays(
        kernel="rbf",
        gamma=1e-3,
        support_vectors=rng.normal(size=(6000, 4)),
        dual_coef=np.repeat([1.0, -1.0], 3000),
        intercept=0.0,
        classes=[0, 1],
    )
    Z = rows(d=4, n=100)
    fast = svelto.accelerate(machine, method="exact", precision="float64")
    found = ask(fast.export_onnx(tmp_path / "m.onnx", X=Z).path, Z)
    assert np.abs(found["scores"] - fast.decision_function(Z)).max() < 2e-4


@pytest.mark.parametrize("task", ["two", "four", "pairs", "ties", "argmax", "outlier"])
def test_rows_are_settled_as_by_the_native_test(task):
    """Small whole numbers as scores and bounds, so that equal votes and equal sums are common."""
    from onnx import helper

    machine, rng = random_machine(**TASKS[task]), np.random.default_rng(0)
    scores = rng.integers(-3, 4, size=(4000, machine.n_scores)).astype(np.float64)
    for bounds in (np.zeros_like(scores), rng.integers(0, 3, size=scores.shape).astype(np.float64)):
        expected = settled_labels(machine, scores, bounds)
        assert 0.05 < np.mean(expected >= 0) < 0.95
        graph = Graph("float64")
        labels, settled = settle(graph, Voting.of(machine), "S", "B")
        inputs = [value_info(name, np.float64, ["rows", machine.n_scores]) for name in "SB"]
        outputs = [value_info(labels, np.int64, ["rows"]), value_info(settled, np.bool_, ["rows"])]
        made = helper.make_graph(graph.nodes, "settle", inputs, outputs, graph.constants)
        model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        session = onnxruntime.InferenceSession(model.SerializeToString())
        found, sure = session.run(None, {"S": scores, "B": bounds})
        if task == "ties":  # native code weighs the scores of a tie; a graph leaves the row to the next stage
            ranked = np.sort(votes(scores, machine.n_classes), axis=1)
            expected = np.where((ranked[:, -1] == ranked[:, -2]) & (expected >= 0), -1, expected)
        assert (np.where(sure, found, -1) == expected).all()
