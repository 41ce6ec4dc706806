"""Local machines over shared support vectors: native code against the definition."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from svelto import _core
from svelto.kernels import Kernel
from svelto.training._local.fits import KernelChoice, fit_local
from svelto.training._local.flat import joined, taken
from svelto.training._local.machines import LocalMachines

KERNELS = [KernelChoice("rbf"), KernelChoice("linear"), KernelChoice("poly", 3, 1.0), KernelChoice("poly", 2, 0.0)]
LEVELS = _core.available_levels()


def make(n_classes, kernel, d=5, n_machines=30, k=25, seed=0, n=200):
    """Machines on random neighbourhoods, some of one class, and rows to ask about."""
    rng = np.random.default_rng([seed, n_classes, d])
    X, y = rng.normal(size=(n, d)), np.sort(rng.integers(n_classes, size=n))
    first = np.sort(rng.integers(n - k, size=n_machines))  # rows of one class stand together
    rows = np.concatenate([np.arange(f, f + k) for f in first])
    gamma = rng.uniform(0.05, 0.5, size=n_machines)
    models = fit_local(X, y, np.arange(n_machines + 1) * k, rows, kernel=kernel, C=2.0, gamma=gamma)
    return (
        LocalMachines(models, X, kernel, gamma, n_classes),
        rng.normal(size=(150, d)),
        rng.integers(n_machines, size=150),
    )


def slow_scores(machines, X, machine):
    """The definition, written to be read."""
    m, n = machines.models, machines.n_classes
    scores = []
    for x, p in zip(X, machine, strict=True):
        kernel = machines.kernel
        k = Kernel(kernel.name, gamma=machines.gamma[p], degree=kernel.degree, coef0=kernel.coef0)
        known = list(m.classes[m.class_start[p] : m.class_start[p + 1]])
        value = {}
        for q, (a, b) in enumerate(itertools.combinations(known, 2), m.pair_start[p]):
            part = slice(m.support_start[q], m.support_start[q + 1])
            values = k(x[None], machines.vectors[m.support[part]])[0] if part.start < part.stop else np.empty(0)
            value[a, b] = m.coef[part] @ values + m.intercept[q]
        for a, b in itertools.product(known, set(range(n)) - set(known)):
            value[a, b] = 1.0
        if n == 2:
            scores.append([-value[0, 1] if (0, 1) in value else value[1, 0]])
            continue
        votes, sums = np.zeros(n), np.zeros(n)
        for (a, b), v in value.items():
            votes[a if v > 0 else b] += 1
            sums[a] += v
            sums[b] -= v
        scores.append(votes + sums / (3 * (np.abs(sums) + 1)))
    return np.array(scores)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: f"{kernel.name}{kernel.degree}")
@pytest.mark.parametrize("n_classes", [2, 3, 6])
@pytest.mark.parametrize("d", [1, 5, 70])
def test_scores_match_the_definition(d, n_classes, kernel):
    machines, X, machine = make(n_classes, kernel, d)
    n_known = np.diff(machines.models.class_start)
    assert (n_known == 1).any()
    assert (n_known > 1).any()
    expected = slow_scores(machines, X, machine)
    for level in LEVELS:
        again = replace(machines)
        again._native = _core.LocalStage(again.fields(), level)
        assert_allclose(again.scores(X, machine), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_scores_do_not_depend_on_threads_batch_or_form(n_classes):
    machines, X, machine = make(n_classes, KERNELS[0])
    X = np.where(np.random.default_rng(1).random(X.shape) < 0.3, 0.0, X)
    X, machine = np.tile(X, (8, 1)), np.tile(machine, 8)
    expected = machines.scores(X, machine, 1)
    for n_jobs in (2, 5):
        assert_array_equal(machines.scores(X, machine, n_jobs), expected)
    assert_array_equal(machines.scores(sparse.csr_matrix(X), machine), expected)
    assert_array_equal(machines.scores(np.asfortranarray(X), machine), expected)
    assert_array_equal(machines.scores(X[::-1], machine[::-1]), expected[::-1])
    for i in (0, 7, 149):
        assert_array_equal(machines.scores(X[i : i + 1], machine[i : i + 1]), expected[i : i + 1])
    assert_array_equal(pickle.loads(pickle.dumps(machines)).scores(X, machine), expected)
    assert machines.scores(X[:0], machine[:0]).shape == (0, expected.shape[1])


def test_many_queries_of_one_machine():
    machines, X, _ = make(3, KERNELS[0])
    several = int(np.flatnonzero(np.diff(machines.models.class_start) > 1)[0])
    rows = np.tile(X, (3, 1))
    expected = slow_scores(machines, X, np.full(len(X), several))
    assert_allclose(machines.scores(rows, np.full(len(rows), several)), np.tile(expected, (3, 1)), rtol=1e-9, atol=1e-9)


def test_machines_joined_and_taken():
    machines, X, _ = make(4, KERNELS[0])
    other = make(4, KERNELS[0], seed=5)[0]
    n = machines.n_machines
    order = np.random.default_rng(0).permutation(2 * n)[:40]
    both = joined([machines.models, replace(other.models, support=other.models.support + 200)])
    picked = LocalMachines(
        taken(both, order),
        np.concatenate([machines.vectors, other.vectors]),
        machines.kernel,
        np.concatenate([machines.gamma, other.gamma])[order],
        4,
    )
    place = np.random.default_rng(1).integers(40, size=len(X))
    scores = picked.scores(X, place)
    for i, p in enumerate(order[place]):
        source = machines if p < n else other
        assert_array_equal(scores[i], source.scores(X[i : i + 1], np.array([p % n]))[0])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("d", lambda a: 0, "a number is out of range"),
        ("n_machines", lambda a: 0, "a number is out of range"),
        ("kernel", lambda a: 2, "the kernel is not served"),
        ("degree", lambda a: -1, "coef0 or degree is out of range"),
        ("coef0", lambda a: np.inf, "coef0 or degree is out of range"),
        ("vectors", lambda a: a[:-1], "vectors has 999 elements; expected 1000"),
        ("vectors", lambda a: np.full_like(a, np.nan), "a vector is not finite"),
        ("gamma", lambda a: a * np.nan, "gamma, an intercept or a coefficient is not finite"),
        ("intercept", lambda a: a + np.inf, "gamma, an intercept or a coefficient is not finite"),
        ("coef", lambda a: a * np.nan, "gamma, an intercept or a coefficient is not finite"),
        ("class_start", lambda a: a[::-1].copy(), "a list of starts does not begin at 0"),
        ("class_start", lambda a: np.concatenate([a[:1], a[-1:], a[1:-1]]), "a list of starts decreases"),
        ("class_start", lambda a: np.where(np.arange(len(a)) == 1, 0, a), "a machine knows no class"),
        ("classes", lambda a: a + 3, "a class does not exist|do not ascend"),
        ("classes", lambda a: -a, "a class does not exist|do not ascend"),
        ("classes", lambda a: a * 0, "the classes of a machine do not ascend"),
        ("entries", lambda a: a + 200, "a vector of a machine does not exist"),
        ("entries", lambda a: a - 200, "a vector of a machine does not exist"),
        ("entry_start", lambda a: a[:-1], "entry_start has 30 elements; expected 31"),
        ("support_start", lambda a: a[:-1], "support_start has"),
        ("place", lambda a: a + 1000, "a coefficient has no vector"),
        ("place", lambda a: a - 1000, "a coefficient has no vector"),
    ],
)
def test_damaged_fields_are_refused(name, change, message):
    machines = make(3, KERNELS[0])[0]
    fields = machines.fields()
    _core.LocalStage(fields, LEVELS[0])
    fields[name] = change(fields[name])
    with pytest.raises((ValueError, TypeError), match=message):
        _core.LocalStage(fields, LEVELS[0])


def test_wrong_queries_are_refused():
    machines, X, _ = make(3, KERNELS[0])
    stage, out = machines.native, np.empty((2, 3))
    row, machine = np.array([0, 1]), np.array([0, 1])
    for wrong, message in (
        ((X[:, :4], row, machine, out), "rows and machines disagree in width"),
        ((X, row[:1], machine, out), "rows and machines disagree in number"),
        ((X, row, machine, out[:1]), "out has a wrong shape"),
        ((X, row, machine, np.empty((2, 1))), "out has a wrong shape"),
        ((X, row + 149, machine, out), "a row does not exist"),
        ((X, row - 1, machine, out), "a row does not exist"),
        ((X, row, machine + 29, out), "a machine does not exist"),
        ((X, row, machine - 1, out), "a machine does not exist"),
        ((X, row, machine[::-1].copy(), out), "the machines do not ascend"),
    ):
        with pytest.raises(ValueError, match=message):
            stage.scores_dense(*wrong, 1)
    X[70, 2] = np.nan
    with pytest.raises(ValueError, match=r"X contains nan \(row 70, column 2\)"):
        machines.scores(X, np.zeros(len(X), dtype=np.int64))
