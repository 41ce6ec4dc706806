"""Help for the tests of LIBSVM files: sample texts, random machines, LIBSVM's own programs, the slow definition."""

from __future__ import annotations

import bz2
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from svelto.kernels import Kernel
from svelto.machine import KernelMachine
from svelto.probability import PlattPairs

DATA = Path(os.environ.get("SVELTO_DATA", Path(__file__).parents[2] / "shared" / "data"))
PROGRAMS = shutil.which("svm-train") and shutil.which("svm-predict")
needs_programs = pytest.mark.skipif(not PROGRAMS, reason="svm-train and svm-predict are not installed (libsvm-tools)")

SVM_TYPES = ("c_svc", "nu_svc", "one_class", "epsilon_svr", "nu_svr")  # in the order of svm-train's -s
KERNELS = ("linear", "poly", "rbf", "sigmoid", "precomputed")  # in the order of svm-train's -t

THREE_CLASSES = """\
svm_type c_svc
kernel_type rbf
gamma 0.5
nr_class 3
total_sv 4
rho 0.25 -0.5 0.125
label 3 -1 7
nr_sv 2 1 1
SV
1 0.5 1:0.25 3:-1.5
0 0.1 2:1e-3
-1 0.5
-0.5 -0.5 1:1 2:2 3:3
"""
PRECOMPUTED = """\
svm_type epsilon_svr
kernel_type precomputed
nr_class 2
total_sv 2
rho -1
SV
0.5 0:3
-0.5 0:1
"""


def regression(*vectors, total=None, header=""):
    total = len(vectors) if total is None else total
    head = f"svm_type epsilon_svr\nkernel_type linear\nnr_class 2\ntotal_sv {total}\nrho 1\n{header}SV\n"
    return head + "".join(line + "\n" for line in vectors)


def slow_scores(machine, X):
    """The definition, written to be read. Never optimise this one."""
    K = machine.kernel(X, machine.support_vectors)
    if not machine.is_grouped:
        return K @ machine.dual_coef.T + machine.intercept
    owner = np.repeat(np.arange(machine.n_classes), machine.n_support)
    pairs = [(i, j) for i in range(machine.n_classes) for j in range(i + 1, machine.n_classes)]
    scores = [
        K[:, owner == i] @ machine.dual_coef[j - 1, owner == i] + K[:, owner == j] @ machine.dual_coef[i, owner == j]
        for i, j in pairs
    ]
    return np.column_stack(scores) + machine.intercept


def slow_answers(machine, X):
    """What svm-predict prints: label, value, or +1 and -1."""
    scores = slow_scores(machine, X)
    if machine.task == "regression":
        return scores[:, 0]
    if machine.task == "outlier":
        return np.where(scores[:, 0] > 0, 1, -1)
    votes = np.zeros((len(scores), machine.n_classes), dtype=int)
    pairs = [(i, j) for i in range(machine.n_classes) for j in range(i + 1, machine.n_classes)]
    for score, (i, j) in zip(scores.T, pairs, strict=True):
        votes[:, i] += score > 0
        votes[:, j] += score <= 0
    return machine.classes[machine.vote_order[votes.argmax(axis=1)]]


def assert_same_machine(got, want):
    """Every bit that a model file holds."""
    used = {"poly": ("degree", "gamma", "coef0"), "rbf": ("gamma",), "sigmoid": ("gamma", "coef0")}
    assert got.kernel.name == want.kernel.name
    for name in used.get(want.kernel.name, ()):
        assert getattr(got.kernel, name) == getattr(want.kernel, name)
    for name in ("task", "rule", "svm_type", "n_sv"):
        assert getattr(got, name) == getattr(want, name)
    if want.kernel.name != "precomputed":
        assert got.n_features == want.n_features
    for name in ("dual_coef", "intercept", "classes", "vote_order", "density_marks"):
        assert (getattr(got, name) is None) == (getattr(want, name) is None), name
        if getattr(want, name) is not None:
            assert_array_equal(getattr(got, name), getattr(want, name), err_msg=name)
    if want.n_support is not None:
        assert_array_equal(got.n_support, want.n_support)
    assert (got.platt is None) == (want.platt is None)
    if want.platt is not None:
        assert_array_equal(got.platt.a, want.platt.a)
        assert_array_equal(got.platt.b, want.platt.b)
    dense = [m.support_vectors.toarray() if m.has_sparse_vectors else m.support_vectors for m in (got, want)]
    assert_array_equal(dense[0], dense[1])


def machine_of(kernel="rbf", n_classes=2, n_sv=12, n_features=5, seed=0, **changes):
    """A machine of random numbers with all the digits a double has; 0 classes make a regressor."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n_sv, n_features)) * (rng.random((n_sv, n_features)) < 0.6)
    if kernel == "precomputed":
        vectors = rng.permutation(3 * n_sv)[:n_sv]
    n_scores = max(n_classes * (n_classes - 1) // 2, 1)
    values = {
        "kernel": Kernel(kernel, gamma=rng.random(), coef0=rng.normal(), degree=2),
        "support_vectors": vectors,
        "dual_coef": rng.normal(size=(max(n_classes - 1, 1), n_sv)),
        "intercept": rng.normal(size=n_scores),
        "task": "classification" if n_classes else "regression",
        "rule": "pairs" if n_classes else "value",
        "n_features": None if kernel == "precomputed" else n_features,
        "svm_type": "c_svc" if n_classes else "epsilon_svr",
    }
    if n_classes:
        values["classes"] = np.sort(rng.permutation(100)[:n_classes] - 50)
        values["vote_order"] = rng.permutation(n_classes)
        values["n_support"] = np.bincount(np.arange(n_sv) % n_classes, minlength=n_classes)
        values["platt"] = PlattPairs(a=rng.normal(size=n_scores), b=rng.normal(size=n_scores))
    return KernelMachine(**values | changes)


def write_rows(path, X, y, precomputed=False):
    """Rows in LIBSVM's data format, with all digits."""
    with open(path, "w") as file:
        for serial, (row, target) in enumerate(zip(np.asarray(X).tolist(), y, strict=True), start=1):
            first = f" 0:{serial}" if precomputed else ""
            pairs = "".join(f" {i}:{value!r}" for i, value in enumerate(row, start=1) if value or precomputed)
            file.write(f"{target}{first}{pairs}\n")


def svm_train(tmp_path, X, y, *options, precomputed=False):
    write_rows(tmp_path / "rows", X, y, precomputed)
    command = ["svm-train", "-q", *map(str, options), tmp_path / "rows", tmp_path / "model"]
    subprocess.run(command, check=True, timeout=60)
    return tmp_path / "model"


def svm_predict(model, X, *options, precomputed=False):
    """The text that svm-predict prints for the rows, all digits of it."""
    rows, answers = model.with_name(model.name + ".rows"), model.with_name(model.name + ".answers")
    write_rows(rows, X, np.zeros(len(X), dtype=int), precomputed)
    subprocess.run(["svm-predict", "-q", *options, rows, model, answers], check=True, timeout=60)
    return answers.read_text()


def clouds(n_rows=90, n_classes=3, n_features=4, seed=0):
    """Overlapping clouds; labels are not sorted by first appearance, so file order and sorted order differ."""
    rng = np.random.default_rng(seed)
    y = np.array([5, -2, 3, 11])[np.arange(n_rows) % n_classes]
    return rng.normal(size=(n_rows, n_features)) + 0.3 * y[:, None] * rng.normal(size=n_features), y


def load(name):
    """A file of the benchmark data as (X, y) without depending on svelto."""
    path = DATA / f"{name}.bz2"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    rows = [line.split() for line in bz2.decompress(path.read_bytes()).decode().splitlines()]
    pairs = [[pair.split(":") for pair in row[1:]] for row in rows]
    X = np.zeros((len(rows), max(int(i) for row in pairs for i, _ in row)))
    for k, row in enumerate(pairs):
        X[k, [int(i) - 1 for i, _ in row]] = [float(value) for _, value in row]
    return X, np.array([int(float(row[0])) for row in rows])
