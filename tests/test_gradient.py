"""Scores and gradients of a machine against the slow scores and their finite differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from machines import random_machine
from oracle import slow_scores
from svelto.engines import gradient
from svelto.engines.gradient import DIFFERENTIABLE, values_and_gradients
from svelto.kernels import Kernel

TASKS = (
    {"n_classes": 2},
    {"n_classes": 3},
    {"n_classes": 5},
    {"n_classes": 4, "rule": "argmax"},
    {"task": "regression"},
    {"task": "regression", "n_outputs": 3},
    {"task": "outlier"},
)
STEP = 1e-3


def slow_gradients(machine, points):
    """Central differences of five points: gradients (n, n_scores, d). The slow definition; never optimise it."""
    columns = []
    for k in range(points.shape[1]):
        e = np.zeros(points.shape[1])
        e[k] = STEP
        f = [slow_scores(machine, points + m * e) for m in (-2, -1, 1, 2)]
        columns.append((f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * STEP))
    return np.stack(columns, axis=-1)


def size(machine, points):
    """What an error of a score or a difference is a part of: the sum of the absolute terms."""
    K = np.abs(machine.kernel(points, machine.support_vectors)).max()
    return 1.0 + K * np.abs(machine.dual_coef).sum()


def check(machine, points):
    values, gradients = values_and_gradients(machine, points, n_jobs=1)
    assert values.shape == (len(points), machine.n_scores)
    assert gradients.shape == (len(points), machine.n_scores, points.shape[1])
    terms = size(machine, points)
    assert_allclose(values, slow_scores(machine, points), rtol=0, atol=1e-13 * terms)
    # The formula is off by STEP^4 / 30 times the fifth derivative, which for these kernels and data is at most some
    # hundred times the terms; the differences round by 1e-16 / STEP of the terms.
    assert_allclose(gradients, slow_gradients(machine, points), rtol=0, atol=1e-10 * terms)


def rows(n, d, seed=1):
    return np.random.default_rng(seed).normal(size=(n, d))


@pytest.mark.parametrize("as_csr", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("task", TASKS, ids=str)
@pytest.mark.parametrize("kernel", DIFFERENTIABLE)
def test_every_kernel_and_task(kernel, task, as_csr):
    for d, n_sv in ((1, 6), (4, 30), (17, 50)):
        # The exponential kernel has a kink at every support vector; in one dimension none may lie within two steps.
        check(random_machine(kernel, n_sv=n_sv, d=d, as_csr=as_csr, seed=d, **task), rows(12, d, seed=d + 1))


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("coef0", [0.0, -0.7])
def test_every_degree(degree, coef0):
    for task in ({"n_classes": 2}, {"n_classes": 3}):
        machine = random_machine("poly", n_sv=20, d=3, **task)
        machine = replace(machine, kernel=Kernel("poly", gamma=0.4, coef0=coef0, degree=degree))
        check(machine, rows(12, 3))
        if degree == 0:
            assert_array_equal(values_and_gradients(machine, rows(12, 3))[1], 0.0)


def test_zero_inner_product_to_a_power():
    machine = replace(random_machine("poly", n_sv=9, d=3), kernel=Kernel("poly", gamma=0.4, coef0=0.0, degree=1))
    points = np.zeros((2, 3))  # 0 ** 0 is 1: the slope of degree 1 is gamma s everywhere
    check(machine, points)
    slope = 0.4 * machine.dual_coef @ machine.support_vectors
    assert_allclose(values_and_gradients(machine, points)[1][0], slope, rtol=1e-13)


def test_linear_gradient_is_the_weight_vector():
    machine = random_machine("linear", n_sv=20, d=4)
    weight = machine.dual_coef @ machine.support_vectors
    for got in values_and_gradients(machine, rows(5, 4))[1]:
        assert_allclose(got, weight, rtol=1e-13)


def test_support_vectors_as_points():
    for kernel in DIFFERENTIABLE:
        machine = random_machine(kernel, n_sv=15, d=3)
        points = machine.support_vectors.copy()
        gradients = values_and_gradients(machine, points)[1]
        assert np.isfinite(gradients).all()
        if kernel != "exponential":
            check(machine, points)
            continue
        # At its own place a term has a kink, whose symmetric derivative is zero: as if that vector were not there.
        for i, point in enumerate(points):
            others = np.arange(len(points)) != i
            rest = replace(
                machine,
                support_vectors=points[others],
                dual_coef=machine.dual_coef[:, others],
                n_support=None,
            )
            expected = slow_gradients(rest, point[None, :])[0]
            assert_allclose(gradients[i], expected, rtol=0, atol=1e-10 * size(machine, points))


def test_blocks_change_nothing(monkeypatch):
    points = rows(50, 4)
    for kernel in DIFFERENTIABLE:
        machine = random_machine(kernel, n_sv=30, d=4, n_classes=3)
        whole = values_and_gradients(machine, points)
        with monkeypatch.context() as patch:
            patch.setattr(gradient, "BLOCK_VALUES", 100)
            for got, expected in zip(values_and_gradients(machine, points), whole, strict=True):
                # Another shape of the same product: BLAS may sum in another order.
                assert_allclose(got, expected, rtol=0, atol=1e-14 * size(machine, points))


def test_far_from_the_origin():
    """Differences x - s keep their digits where the rows stand far from zero and close together."""
    machine = random_machine("rbf", n_sv=30, d=4)
    moved = replace(machine, support_vectors=machine.support_vectors + 1e4)
    points = rows(10, 4)
    near, far = values_and_gradients(machine, points), values_and_gradients(moved, points + 1e4)
    for a, b in zip(near, far, strict=True):
        # The rows themselves are rounded by 1e4 * 2^-53, about 1e-12.
        assert_allclose(b, a, rtol=0, atol=1e-11 * size(machine, points))


def test_sharp_and_flat_kernels():
    for gamma in (1e-6, 1e-2, 1.0, 1e2, 1e4):
        machine = random_machine("rbf", n_sv=30, d=3, gamma=gamma)
        points = rows(10, 3)
        _, gradients = values_and_gradients(machine, points)
        S, a = machine.support_vectors, machine.dual_coef[0]
        K = machine.kernel(points, S)
        expected = -2 * gamma * np.einsum("i,ni,nid->nd", a, K, points[:, None, :] - S[None, :, :])
        # Two sums of terms a k s and a k x are subtracted; each is rounded as a part of its absolute terms. Kernel
        # values that underflow may come out as the smallest normal number, 1e-308, instead.
        terms = 2 * gamma * ((np.abs(a) * K).sum(axis=1, keepdims=True) * 10 + 1e-290)
        assert (np.abs(gradients[:, 0] - expected) <= 1e-12 * terms).all()


def test_input_is_unchanged_and_read_only_input_is_taken():
    points = rows(10, 4)
    before = points.copy()
    points.flags.writeable = False
    for kernel in DIFFERENTIABLE:
        values_and_gradients(random_machine(kernel, d=4), points)
    assert_array_equal(points, before)
