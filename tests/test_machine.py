"""KernelMachine and its kernels: definitions, what cannot be changed afterwards, what cannot be built at all."""

from __future__ import annotations

import copy
import pickle
import re
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.metrics import pairwise

import svelto
from machines import NATIVE, random_machine
from oracle import slow_predict
from svelto import KernelMachine
from svelto.kernels import KERNEL_NAMES, Kernel
from svelto.probability import Calibration, Isotonic, PlattPairs, Sigmoid
from svelto.scaling import Scaling

# -- kernels ---------------------------------------------------------------------------------------------------------

DEFINITIONS = {
    "rbf": lambda X, S: pairwise.rbf_kernel(X, S, gamma=0.3),
    "exponential": lambda X, S: np.exp(-0.3 * pairwise.euclidean_distances(X, S)),
    "laplacian": lambda X, S: pairwise.laplacian_kernel(X, S, gamma=0.3),
    "poly": lambda X, S: pairwise.polynomial_kernel(X, S, gamma=0.3, coef0=0.7, degree=2),
    "sigmoid": lambda X, S: pairwise.sigmoid_kernel(X, S, gamma=0.3, coef0=0.7),
    "linear": pairwise.linear_kernel,
}


@pytest.mark.parametrize("name", NATIVE)
def test_kernels_are_those_of_scikit_learn(name):
    rng = np.random.default_rng(0)
    X, S = rng.normal(size=(20, 4)), rng.normal(size=(7, 4))
    kernel = Kernel(name, gamma=0.3, coef0=0.7, degree=2)
    expected = DEFINITIONS[name](X, S)
    assert kernel.has_native_code
    assert_allclose(kernel(X, S), expected, rtol=1e-12, atol=1e-14)
    for A, B in ((sparse.csr_matrix(X), S), (X, sparse.csr_matrix(S)), (sparse.csr_array(X), sparse.csr_array(S))):
        values = kernel(A, B)
        assert isinstance(values, np.ndarray)
        assert_allclose(values, expected, rtol=1e-12, atol=1e-14)


def test_kernels_without_native_code():
    X = np.random.default_rng(0).normal(size=(5, 9))
    assert_array_equal(Kernel("precomputed")(X, np.array([4, 0])), X[:, [4, 0]])
    assert_array_equal(Kernel("precomputed")(sparse.csr_matrix(X), np.array([4, 0])), X[:, [4, 0]])
    lengths = Kernel("callable", function=lambda A, B: [[len(a) * len(b) for b in B] for a in A])
    assert_array_equal(lengths(["a", "bb"], ["cc", "ddd"]), [[2.0, 3.0], [4.0, 6.0]])
    assert not lengths.has_native_code
    assert set(KERNEL_NAMES) == {*NATIVE, "precomputed", "callable"}


def test_kernels_print_the_numbers_they_use():
    shown = {name: str(Kernel(name, gamma=0.25, coef0=0.5, degree=2)) for name in NATIVE}
    assert shown == {
        "rbf": "rbf(gamma=0.25)",
        "exponential": "exponential(gamma=0.25)",
        "laplacian": "laplacian(gamma=0.25)",
        "poly": "poly(gamma=0.25, coef0=0.5, degree=2)",
        "sigmoid": "sigmoid(gamma=0.25, coef0=0.5)",
        "linear": "linear",
    }
    assert str(Kernel("callable", function=slow_predict)) == "callable(slow_predict)"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"name": "gauss"},
            "Unknown kernel 'gauss'. Expected one of rbf, exponential, laplacian, poly, sigmoid, linear",
        ),
        ({"name": "rbf", "gamma": np.nan}, "gamma is nan; expected a finite number."),
        ({"name": "poly", "coef0": np.inf}, "coef0 is inf; expected a finite number."),
        ({"name": "rbf", "gamma": -1.0}, "gamma is -1.0; the rbf kernel needs gamma >= 0."),
        ({"name": "exponential", "gamma": -1.0}, "gamma is -1.0; the exponential kernel needs gamma >= 0."),
        ({"name": "laplacian", "gamma": -1.0}, "gamma is -1.0; the laplacian kernel needs gamma >= 0."),
        ({"name": "poly", "degree": -1}, "degree is -1; the poly kernel needs a whole number >= 0."),
        ({"name": "poly", "degree": 1.5}, "degree is 1.5; the poly kernel needs a whole number >= 0."),
        ({"name": "callable"}, "A kernel function goes with name='callable', and only with it."),
        ({"name": "rbf", "function": print}, "A kernel function goes with name='callable', and only with it."),
    ],
)
def test_bad_kernels(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Kernel(**options)


# -- a machine does not change ---------------------------------------------------------------------------------------


def full_machine():
    """Every optional array is there."""
    return random_machine(
        n_classes=3,
        platt=PlattPairs([1.0, 2.0, 3.0], [0.0, 0.0, 0.0]),
        calibration=Calibration("isotonic", (Isotonic([0.0, 1.0], [0.0, 1.0]), Sigmoid(1.0, 0.0), Sigmoid(1.0, 0.0))),
        scaling=Scaling("divide", np.zeros(6), np.ones(6)),
        feature_names=list("abcdef"),
    )


def arrays_of(machine):
    yield from (value for f in fields(machine) if isinstance(value := getattr(machine, f.name), np.ndarray))
    if machine.has_sparse_vectors:
        yield from (machine.support_vectors.data, machine.support_vectors.indices, machine.support_vectors.indptr)
    yield from () if machine.platt is None else (machine.platt.a, machine.platt.b)
    yield from () if machine.scaling is None else (machine.scaling.shift, machine.scaling.factor)
    yield from () if machine.calibration is None else (machine.calibration.calibrators[0].x,)


@pytest.mark.parametrize("travel", [lambda m: m, lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy, replace])
def test_nothing_can_be_written(travel):
    machines = [
        full_machine(),
        random_machine(as_csr=True),
        random_machine(task="outlier", density_marks=np.arange(10.0)),
    ]
    machines.append(
        KernelMachine.from_arrays(kernel=pairwise.rbf_kernel, support_vectors=np.eye(3), dual_coef=[1, 2, 3])
    )
    machines.append(KernelMachine.from_arrays(kernel="precomputed", support_vectors=[0, 2], dual_coef=[1, 2]))
    counts = []
    for machine in map(travel, machines):
        for name in ("dual_coef", "task", "kernel"):
            with pytest.raises(FrozenInstanceError):
                setattr(machine, name, None)
        arrays = list(arrays_of(machine))
        counts.append(len(arrays))
        for array in arrays:
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
        assert machine.dual_coef.flags.c_contiguous
    assert counts == [12, 8, 4, 3, 3]


def test_later_edits_of_the_callers_arrays_do_not_matter():
    rng = np.random.default_rng(0)
    S, coef = rng.normal(size=(9, 2)), rng.normal(size=(3, 9))
    intercept, classes = -coef.sum(axis=1) / 4, np.array([5, 6, 7])
    Z = rng.normal(size=(200, 2))
    for vectors in (S, sparse.csr_matrix(S)):
        given = [vectors.copy(), coef.copy(), intercept.copy(), classes.copy()]
        machine = KernelMachine.from_arrays(
            kernel="rbf", support_vectors=given[0], dual_coef=given[1], intercept=given[2], classes=given[3]
        )
        fast = svelto.accelerate(machine)
        before, labels = fast.decision_function(Z), slow_predict(machine, Z)
        assert len(set(labels)) == 3
        for array in given:
            (array.data if sparse.issparse(array) else array)[:] = 0
        for predictor in (fast, svelto.accelerate(machine)):
            assert_array_equal(predictor.decision_function(Z), before)
            assert_array_equal(predictor.predict(Z), labels)


@pytest.mark.parametrize("wrap", [list, np.array, pd.DataFrame, sparse.csr_matrix], ids=str)
def test_objects_of_a_callable_kernel_are_copied(wrap):
    given = wrap([[1.0, 2.0], [3.0, 4.0]])
    machine = KernelMachine.from_arrays(kernel=pairwise.linear_kernel, support_vectors=given, dual_coef=[1.0, 2.0])
    if isinstance(given, list):
        given[0] = [99.0, 99.0]
    elif isinstance(given, pd.DataFrame):
        given.iloc[0, 0] = 99.0
    else:
        given[0, 0] = 99.0
    assert_array_equal(svelto.accelerate(machine).predict(np.array([[1.0, 1.0]])), [3.0 + 2 * 7.0])


def test_repr_and_shape():
    machine = random_machine("poly", n_sv=12, d=3, n_classes=4)
    assert repr(machine) == (
        "KernelMachine(poly(gamma=0.333333, coef0=0.5, degree=3), n_sv=12, n_features=3, 4 classes, from arrays)"
    )
    assert (machine.n_sv, machine.n_scores, machine.n_classes, machine.is_grouped) == (12, 6, 4, True)
    regressor = random_machine(task="regression", n_outputs=2)
    assert "regression" in repr(regressor)
    assert (regressor.n_scores, regressor.n_classes, regressor.is_grouped) == (2, 0, False)


# -- machines that contradict themselves -----------------------------------------------------------------------------

PAIR = {"n_sv": 4, "d": 3}
CONTRADICTIONS = [
    (PAIR, {"dual_coef": np.ones((1, 3))}, "dual_coef covers 3 support vectors, but 4 support vectors are given."),
    (PAIR, {"dual_coef": np.ones((1, 1, 4))}, "dual_coef has 3 dimensions and intercept 1; expected 2 and 1."),
    (PAIR, {"intercept": np.ones((1, 1))}, "dual_coef has 2 dimensions and intercept 2; expected 2 and 1."),
    (PAIR, {"dual_coef": np.ones((1, 0))}, "The machine has no support vectors; a trained machine has at least one."),
    (PAIR, {"dual_coef": [[1, 2, np.inf, 4]]}, "dual_coef contains inf; every number of a kernel machine must"),
    (PAIR, {"intercept": [np.nan]}, "intercept contains nan; every number of a kernel machine must be finite."),
    (PAIR, {"support_vectors": np.full((4, 3), np.nan)}, "support_vectors contains nan; every number"),
    (PAIR, {"support_vectors": sparse.csr_matrix(np.full((4, 3), np.inf))}, "support_vectors contains inf; every"),
    (PAIR, {"support_vectors": np.ones((4, 0))}, "support_vectors has shape (4, 0); expected (n_sv, n_features)."),
    (PAIR, {"support_vectors": np.ones((4, 3, 2))}, "support_vectors has shape (4, 3, 2); expected (n_sv, n_"),
    (PAIR, {"n_features": 4}, "n_features is 4, but the support vectors have 3 features."),
    (PAIR, {"n_features": None}, "n_features is None, but the support vectors have 3 features."),
    (PAIR, {"scaling": Scaling("divide", np.zeros(2), np.ones(2))}, "The scaler has 2 features, but the support"),
    (PAIR, {"task": "clustering"}, "task is 'clustering'; expected one of classification, regression, outlier."),
    (PAIR, {"rule": "sum"}, "rule is 'sum'; expected one of pairs, argmax, value."),
    (PAIR, {"decision_function_shape": "ova"}, "decision_function_shape is 'ova'; expected one of ovr, ovo."),
    (PAIR, {"task": "regression"}, "task is 'regression'; classes belong to classification, and only to it."),
    (PAIR, {"classes": None}, "task is 'classification'; classes belong to classification, and only to it."),
    (PAIR, {"rule": "value"}, "task 'classification' and rule 'value' contradict each other."),
    (PAIR, {"classes": [1]}, "The machine has 1 class; a classifier needs at least two."),
    (PAIR, {"classes": [7, 7]}, "classes contains a label twice: [7, 7]."),
    (PAIR, {"classes": ["b", "a"]}, "classes must be sorted, got ['b', 'a']; vote_order says which votes first."),
    (PAIR, {"vote_order": [0, 2]}, "vote_order must be a permutation of 2 class numbers, got [0 2]."),
    (PAIR, {"vote_order": None}, "vote_order must be a permutation of 2 class numbers, got None."),
    (PAIR, {"dual_coef": np.ones((2, 4))}, "dual_coef has 2 rows; expected 1."),
    (PAIR, {"intercept": [0.0, 1.0]}, "intercept has 2 values; expected 1."),
    (PAIR, {"n_support": [1, 1, 2]}, "n_support needs one count for each of the 2 classes, got [1 1 2]."),
    (PAIR, {"n_support": [1, 2]}, "n_support adds up to 3, but there are 4 support vectors."),
    (PAIR, {"n_support": [4, 0]}, "Class 2 has no support vectors; the model is damaged. Train it again."),
    ({"n_classes": 3}, {"n_support": None}, "n_support needs one count for each of the 3 classes, got None."),
    ({"n_classes": 3}, {"intercept": [1.0]}, "intercept has 1 values; expected 3."),
    ({"n_classes": 3, "rule": "argmax"}, {"dual_coef": np.ones((2, 40))}, "dual_coef has 2 rows; expected 3."),
    ({"task": "outlier"}, {"dual_coef": np.ones((2, 40))}, "dual_coef has 2 rows; expected 1."),
    ({"task": "regression"}, {"intercept": [1.0, 2.0]}, "intercept has 2 values; expected 1."),
    ({"n_classes": 3}, {"platt": PlattPairs([1.0], [0.0])}, "There are 1 sigmoids (probA, probB) for 3 pairs of"),
    ({"task": "regression"}, {"platt": PlattPairs([1.0], [0.0])}, "There are 1 sigmoids (probA, probB) for 0 pairs"),
    ({"task": "outlier"}, {"density_marks": np.arange(9.0)}, "density_marks has shape (9,); expected 10 marks."),
    ({"task": "outlier"}, {"density_marks": np.arange(10.0)[::-1]}, "density_marks must rise, got [9.0, 8.0"),
    ({"task": "outlier"}, {"density_marks": np.full(10, np.nan)}, "density_marks contains nan; every number"),
    (PAIR, {"density_marks": np.arange(10.0)}, "density_marks belong to outlier detectors; task is 'classification'."),
]  # fmt: skip


@pytest.mark.parametrize(("base", "change", "message"), CONTRADICTIONS, ids=[m[:40] for _, _, m in CONTRADICTIONS])
def test_contradictions(base, change, message):
    machine = random_machine(**base)
    with pytest.raises(ValueError, match=re.escape(message)):
        replace(machine, **change)


def test_columns_of_a_precomputed_kernel():
    common = {"dual_coef": [[1.0, -1.0]], "intercept": [0.0], "task": "regression", "rule": "value"}
    kernel = Kernel("precomputed")
    assert KernelMachine(kernel=kernel, support_vectors=[3, 8], **common).n_features is None
    for columns, width, message in [
        ([3, 8], 8, "The precomputed kernel uses columns 3 to 8; rows have 8 columns."),
        ([-1, 8], None, "The precomputed kernel uses columns -1 to 8; rows have None columns."),
        ([[3, 8], [1, 2]], 9, "support_vectors has shape (2, 2); a precomputed kernel needs column numbers, (n_sv,)."),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            KernelMachine(kernel=kernel, support_vectors=columns, n_features=width, **common)
    with pytest.raises(ValueError, match=r"The precomputed kernel takes no scaling; put the scaler into front\."):
        KernelMachine(kernel=kernel, support_vectors=[3, 8], scaling=Scaling("divide", [0.0], [1.0]), **common)
