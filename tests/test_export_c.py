"""export_c: headers compile without a warning and answer as the predictor does."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import svelto
from c_headers import CLibrary
from machines import random_machine
from svelto.engines.taylor_tree import TaylorTree
from svelto.export.c import export_predictor

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
DTYPES = ("float32", "int16", "int8")
KERNELS = ("rbf", "exponential", "laplacian", "poly", "sigmoid", "linear")
TASKS = {
    "two": {},
    "four": {"n_classes": 4},
    "pairs": {"n_classes": 4, "decision_function_shape": "ovo", "vote_order": np.array([2, 0, 3, 1])},
    "ties": {"n_classes": 4, "break_ties": True},
    "argmax": {"n_classes": 3, "rule": "argmax", "vote_order": np.array([1, 2, 0])},
    "value": {"task": "regression"},
    "outlier": {"task": "outlier"},
}


def rows(d=6, n=400, seed=5):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32).astype(np.float64)


def exact_cases():
    for kernel in KERNELS:
        for task, fields in TASKS.items():
            yield (
                f"exact_{kernel}_{task}",
                lambda k=kernel, f=fields: svelto.accelerate(random_machine(k, **f), method="exact"),
            )


STAGES = {
    "hinges": {"n_hinges": 8, "oracle_rows": 400, "max_epochs": 2},
    "layers": {"method": "hinges", "n_hinges": (6, 5), "oracle_rows": 400, "max_epochs": 2},
    "classes": {"method": "hinges", "n_hinges": 8, "answers": "classes", "oracle_rows": 400, "max_epochs": 2},
    "taylor_tree": {"leaf_size": 20, "oracle_rows": 200},
    "reduced_set": {"n_basis": 10, "oracle_rows": 200, "max_iter": 5},
    "sv_tree": {"oracle_rows": 400, "max_evals": 4},
    "trees": {"method": "sv_tree", "oracle_rows": 400, "max_evals": 4, "shared": False},
}
SERVED = {
    "hinges": ("two", "pairs", "ties", "argmax", "value", "outlier"),
    "layers": ("two", "four"),
    "classes": ("four",),
    "taylor_tree": ("two", "pairs", "argmax", "value", "outlier"),
    "reduced_set": ("two", "four", "argmax", "value", "outlier"),
    "sv_tree": ("two", "four", "value", "outlier"),
    "trees": ("four",),
}


def stage_of(stage, kernel, fields, agreement=None, **more):
    machine = random_machine(kernel, n_sv=60, **fields)
    options = {"method": stage, **STAGES[stage], **more}
    if machine.task == "regression" and agreement is not None:
        options["tolerance"] = 0.3
    return svelto.accelerate(machine, rows(n=300, seed=1), agreement=agreement, random_state=0, n_jobs=1, **options)


def stage_cases():
    for stage, tasks in SERVED.items():
        for task in tasks:
            yield f"{stage}_{task}", lambda s=stage, t=task: stage_of(s, "rbf", TASKS[t])
        yield (
            f"{stage}_poly",
            lambda s=stage: stage_of(s, "poly", TASKS["four" if s in ("classes", "trees") else "two"]),
        )
    for kernel in ("exponential", "laplacian", "sigmoid"):
        yield f"sv_tree_{kernel}", lambda k=kernel: stage_of("sv_tree", k, {})


CASES = {**dict(exact_cases()), **dict(stage_cases())}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Every case in every dtype, in one library."""
    folder = tmp_path_factory.mktemp("headers")
    Z, found = rows(), {}
    for case, make in CASES.items():
        predictor = make()
        for dtype in DTYPES:
            name = f"{case}_{dtype}"
            found[name] = predictor, export_predictor(predictor, folder / f"{name}.h", dtype=dtype, X=Z)
    regressors = [name for name, (predictor, _) in found.items() if predictor.machine.task == "regression"]
    return found, CLibrary(folder, found, regressors), Z


def decision_of(predictor, X):
    values = predictor.predict(X) if predictor.machine.task == "regression" else predictor.decision_function(X)
    return values.reshape(len(X), -1)


@needs_gcc
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_c_answers_as_the_predictor(built, case, dtype):
    found, library, Z = built
    predictor, result = found[f"{case}_{dtype}"]
    expected = decision_of(predictor, Z)
    by_class = case.startswith("classes")
    decisions, labels = library.ask(result.name, Z, 4 if by_class else expected.shape[1])
    size = float(np.abs(expected).max())
    if dtype == "float32" and not by_class:
        # Tables and rows are single floats; sums cancel.
        assert np.abs(decisions - expected).max() < 1e-4 * size + 1e-5
    if predictor.machine.task == "regression":
        assert (labels == 1).all()
        share = np.sqrt(np.mean((decisions - expected) ** 2)) / expected.std()
        assert share < {"float32": 1e-5, "int16": 1e-3, "int8": 0.2}[dtype]
        return
    equal = int((labels == predictor.predict(Z)).sum())
    if dtype == "float32":
        assert equal == len(Z)
    # What the header says of itself was measured without C: a row or two may be within rounding.
    assert abs(equal - result.agreement.predictor * len(Z)) <= 2
    assert equal >= {"float32": 1.0, "int16": 0.99, "int8": 0.8}[dtype] * len(Z)


@needs_gcc
@pytest.mark.parametrize(("d", "share"), [(20, 0.5), (40, 0.5), (100, 0.5), (150, 0.04)])
def test_rows_on_a_cut_take_the_side_of_the_native_walk(tmp_path, d, share):
    # Cuts keep off the rows they were made of; others may lie on them. 0.04: rows that walk by what is not zero.
    X = (np.random.default_rng(0).random((1500, d)) < share).astype(np.float64)
    machine = random_machine("rbf", n_sv=30, d=d, gamma=1.0 / d)
    options = {"leaf_size": 4, "fit": "taylor", "oracle_rows": 0, "split": "midpoint"}
    fast = svelto.accelerate(machine, X, method="taylor_tree", agreement=None, random_state=0, n_jobs=1, **options)
    tree = fast._engine.stages[0]
    assert tree.arrays["stored"] == (share < 0.08)
    offsets = tree.arrays["offsets"].copy()
    side = (X - tree.arrays["shift"]) @ tree.arrays["normals"][0, :d].astype(np.float64) + offsets[0]
    assert np.abs(side).min() > 0.01
    offsets[0] -= side[np.abs(side).argmin()]  # a plane through some of them
    tree = TaylorTree(tree.machine, {**tree.arrays, "offsets": offsets})
    fast._engine.stages = [tree]
    library = CLibrary(tmp_path, [fast.export_c(tmp_path / "tree.h").name])
    assert (np.abs(X @ tree.tree.normals[0].astype(np.float64) + tree.tree.offsets[0]) < 1e-5).sum() > 1
    decisions, labels = library.ask("tree", X, 1)
    assert np.abs(decisions[:, 0] - fast.decision_function(X)).max() < 1e-5
    assert (labels == fast.predict(X)).all()
