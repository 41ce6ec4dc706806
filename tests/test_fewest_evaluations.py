"""Sums that stop early: intervals contain what they must, labels are the float64 machine's, values are counted."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.datasets import make_blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, SVR, OneClassSVM

import svelto
from machines import random_machine
from oracle import class_pairs, libsvm_order_label, libsvm_order_scores, slow_scores
from svelto._inputs import Query, make_query
from svelto.distance_bounds import bound_of, register_bound
from svelto.engines import fewest
from svelto.engines.exact import ValueEngine, build_exact
from svelto.engines.fewest import FewestEvaluations
from svelto.engines.packing import expand_rows
from svelto.engines.projection import _Rows
from svelto.engines.score_sums import ScoreSums, relevant_scores
from svelto.kernels import Kernel
from svelto.machine import KernelMachine

KERNELS = ("rbf", "exponential", "laplacian")
BOUNDS = ("references", "projection")
TASKS = [{}, {"n_classes": 4}, {"n_classes": 3, "rule": "argmax"}, {"task": "outlier"}]


def named(machine, labels):
    """Labels in vote order as the oracle names them."""
    if machine.task == "outlier":
        return np.where(labels == 1, 1, -1)
    return machine.classes[machine.vote_order[labels]]


def check_labels(machine, X, labels):
    """Every label that is given is the definition's; returns the share of rows that got one."""
    given_label = labels >= 0
    expected = np.array([libsvm_order_label(machine, x) for x in X[given_label]])
    got = named(machine, labels[given_label])
    wrong = np.flatnonzero(got != expected)
    assert not len(wrong), f"row {np.flatnonzero(given_label)[wrong[0]]}: {got[wrong[0]]}, not {expected[wrong[0]]}"
    return given_label.mean()


def true_distance(kernel, x, s):
    """The distance in the kernel's own unit, to 50 digits."""
    difference = [abs(Decimal(float(a)) - Decimal(float(b))) for a, b in zip(x, s, strict=True)]
    gamma = Decimal(float(kernel.gamma))
    if kernel.name == "laplacian":
        return gamma * sum(difference)
    square = sum(d * d for d in difference)
    return (gamma * square).sqrt() if kernel.name == "rbf" else gamma * square.sqrt()


def true_value(kernel, t):
    return (-t * t).exp() if kernel.name == "rbf" else (-t).exp()


# -- what is known of a kernel --------------------------------------------------------------------------------------


@given(
    name=st.sampled_from(KERNELS),
    d=st.integers(1, 40),
    log_gamma=st.floats(-8, 6),
    log_spread=st.floats(-6, 3),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=60, deadline=None)
def test_a_value_gives_its_distance_and_a_distance_its_value(name, d, log_gamma, log_spread, seed):
    rng = np.random.default_rng(seed)
    kernel = Kernel(name, gamma=10.0**log_gamma)
    X = rng.normal(size=(2, d)) * 10.0**log_spread
    S = np.vstack([rng.normal(size=(2, d)) * 10.0**log_spread, X[0], X[0] * (1 + 1e-15), X[0] + 1e-9])
    bound, values = bound_of(kernel, d), kernel(X, S)
    low, high = bound.distances(values)
    around = bound.around(values)
    with localcontext() as context:
        context.prec, context.Emin = 50, -999999
        for i, x in enumerate(X):
            reference = libsvm_values(kernel, S)
            libsvm = [float(v) for v in reference(x)]
            for j, s in enumerate(S):
                t = true_distance(kernel, x, s)
                assert Decimal(low[i, j]) <= t
                assert math.isinf(high[i, j]) or t <= Decimal(high[i, j])
                assert around[0][i, j] <= libsvm[j] <= around[1][i, j]
                # From an interval of distances that contains t.
                least, most = bound.values(np.array(float(t) * (1 - 1e-15)), np.array(float(t) * (1 + 1e-15)))
                assert least <= libsvm[j] <= most
                assert Decimal(float(least)) <= true_value(kernel, t) <= Decimal(float(most))


def libsvm_values(kernel, S):
    """Kernel values in LIBSVM's order, from the definition of a machine with one weight at a time."""

    def values(x):
        machine = KernelMachine.from_arrays(
            kernel=kernel.name, gamma=kernel.gamma, support_vectors=S, dual_coef=np.eye(len(S)), classes=None
        )
        return libsvm_order_scores(machine, x)

    return values


@pytest.mark.parametrize("name", KERNELS)
def test_many_features_widen_the_intervals(name):
    """Three thousand differences, one after the other: the sum has lost four digits, and the exponent enlarges that."""
    rng = np.random.default_rng(0)
    X, S = rng.random((1, 3000)), rng.random((6, 3000))
    scale = {"rbf": 500.0, "exponential": math.sqrt(500.0), "laplacian": 1000.0}[name]
    kernel = Kernel(name, gamma=100.0 / scale)
    low, high = bound_of(kernel, 3000).around(kernel(X, S))
    with localcontext() as context:
        context.prec = 50
        true = [true_value(kernel, true_distance(kernel, X[0], s)) for s in S]
        assert all(Decimal(a) <= t <= Decimal(b) for a, t, b in zip(low[0], true, high[0], strict=True))
    assert (low > 0.0).all()
    assert (high < low * (1 + 1e-9)).all()


def test_a_value_that_underflows_says_little():
    bound = bound_of(Kernel("rbf", gamma=1.0), 2)
    low, high = bound.distances(np.array([0.0, 1e-300, 1e-289]))
    assert (low < 26.0).all()  # exp(-26^2) is below 1e-290
    assert (low > 25.0).all()
    assert np.isinf(high[:2]).all()
    assert bound.values(np.array(40.0), np.array(np.inf))[0] == 0.0


def one_over(X, S):
    return 1.0 / (1.0 + cdist(X, S))


@pytest.mark.parametrize(
    ("profile", "inverse", "options", "message"),
    [
        (lambda t: np.exp(-t), lambda v: -2 * np.log(v), {}, "inverse does not invert profile"),
        (lambda t: np.exp(-t), lambda v: v, {}, "inverse must rise from 0"),
        (lambda t: -np.exp(-t), lambda v: -np.log(-v), {}, r"profile\(0\) is -1"),
        (lambda t: 1.0, lambda v: v, {}, r"shape \(\) for 1 numbers"),
        (lambda t: np.exp(-t), lambda v: 0.0, {}, r"inverse returned an array of shape \(\)"),
        (lambda t: np.exp(-t), lambda v: np.nan * v, {}, "expected a distance"),
        (
            # A wave upon the decay, which the inverse does not know of: it returns where the decay alone would be.
            lambda t: np.where((t > 0.4) & (t < 0.6), 0.99, np.exp(-t)),
            lambda v: -np.log(v),
            {},
            "profile rises from",
        ),
        (
            lambda t: np.where((t > 0.12) & (t < 0.3), 0.85, np.exp(-t)),
            lambda v: -np.log(v),
            {},
            "profile is flat around",
        ),
        (lambda t: np.exp(-t), lambda v: -np.log(v), {"precision": 0.1}, "precision is 0.1"),
        (lambda t: np.exp(-t), lambda v: -np.log(v), {"precision": -1.0}, "precision is -1.0"),
    ],
)
def test_a_wrong_profile_is_refused(profile, inverse, options, message):
    with pytest.raises(ValueError, match=message):
        register_bound(one_over, profile=profile, inverse=inverse, **options)


def test_what_is_no_function_is_refused():
    decay = {"profile": lambda t: np.exp(-t), "inverse": lambda v: -np.log(v)}
    with pytest.raises(TypeError, match="needs a kernel function, got 'rbf'"):
        register_bound("rbf", **decay)

    class Unhashable(list):
        def __call__(self, X, S):
            return one_over(X, S)

    with pytest.raises(TypeError, match="not hashable"):
        register_bound(Unhashable(), **decay)


@pytest.mark.parametrize("kernel", [Kernel("poly"), Kernel("linear"), Kernel("callable", function=len)])
def test_kernels_without_a_bound_are_refused(kernel):
    with pytest.raises(
        NotImplementedError, match=r"rbf, exponential, laplacian, or a callable registered.*this machine"
    ):
        bound_of(kernel, 3)


def test_a_function_that_wants_all_training_rows_is_refused():
    def relative(A, B):
        return np.exp(-cdist(A, B) / np.abs(B).max())

    rng = np.random.default_rng(0)
    X = np.concatenate([[[50.0, 50.0]] * 9, rng.normal(size=(60, 2))])  # the largest row is no support vector
    y = (X[:, 0] > 0).astype(int)
    machine = KernelMachine.from_sklearn(SVC(kernel=relative, C=100.0).fit(X, y))
    register_bound(relative, profile=lambda t: np.exp(-t), inverse=lambda v: -np.log(v))
    if machine.support_vectors.ndim == 1:
        with pytest.raises(NotImplementedError, match="wants all training rows"):
            FewestEvaluations(machine)
    else:
        pytest.fail("the function was meant to need all rows")


# -- intervals of values and scores ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("task", TASKS, ids=str)
@pytest.mark.parametrize("gamma", [1e-3, 0.1, 3.0])
def test_intervals_contain_values_and_scores(kernel, task, gamma):
    machine = random_machine(kernel, n_sv=40, d=3, gamma=gamma, seed=2, **task)
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(8, 3)), np.asarray(machine.support_vectors)[:4], np.zeros((1, 3)), [[30.0] * 3]])
    values = machine.kernel(X, machine.support_vectors)
    scores = np.array([libsvm_order_scores(machine, x) for x in X])
    engine = FewestEvaluations(machine, bound="references", n_references=6)
    low, high = engine._method.intervals(values)
    assert (low <= values).all()
    assert (values <= high).all()
    middle, half = engine._method.score_intervals(low, high)
    assert (np.abs(scores - middle) <= half).all()
    steps = FewestEvaluations(machine, bound="projection")._method.score_intervals(values)
    for middle, half in steps:
        assert (np.abs(scores - middle) <= half).all()
    # They are no empty words: the last step, with all of the basis, is far narrower than the first.
    assert np.median(steps[-1][1]) < 0.6 * np.median(steps[0][1])


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_intervals_hold_where_rounding_matters(scale):
    """Copies and near copies: the factor is nearly singular, weights nearly cancel, and bounds are mostly rounding."""
    rng = np.random.default_rng(1)
    S = np.repeat(rng.normal(size=(6, 4)), 4, axis=0) + 1e-7 * rng.normal(size=(24, 4))
    S[3], S[7] = S[2], S[6]
    coef = np.tile([1.0, -1.0, 0.5, -0.5], 6) * (1 + 1e-6 * rng.normal(size=24)) * scale
    machine = KernelMachine.from_arrays(
        kernel="rbf", gamma=0.3, support_vectors=S, dual_coef=coef, intercept=1e-9 * scale, classes=[0, 1]
    )
    X = np.vstack([rng.normal(size=(20, 4)), S[:4]])
    scores = np.array([libsvm_order_scores(machine, x) for x in X])
    values = machine.kernel(X, S)
    for middle, half in FewestEvaluations(machine, bound="projection")._method.score_intervals(values):
        assert (np.abs(scores - middle) <= half).all()
    references = FewestEvaluations(machine, bound="references")._method
    middle, half = references.score_intervals(*references.bound.around(values))
    assert (np.abs(scores - middle) <= half).all()
    assert half.max() < 1e-9 * scale


@pytest.mark.parametrize("sign", [-1.0, 1.0, 0.0])
@pytest.mark.parametrize("gamma", [0.5, 5.0])
def test_every_part_of_the_projection_bound_holds(sign, gamma):
    """A function that is right to three digits only makes each error large enough to be seen beside rounding.

    The true kernel is known, so each quantity of the module's text can be computed from its definition.
    """
    rng = np.random.default_rng(3)
    off = 1e-4

    def true(X, S):
        return np.exp(-gamma * cdist(X, S, "sqeuclidean"))

    def rough(X, S):
        wobble = sign if sign else np.where(np.sin(1e4 * cdist(X, S)) > 0, 1.0, -1.0)
        return true(X, S) * (1 + 0.999 * off * np.where(X[:, :1] == S[:, :1].T, 0.0, wobble))

    register_bound(
        rough, profile=lambda t: np.exp(-gamma * t * t), inverse=lambda v: np.sqrt(-np.log(v) / gamma), precision=off
    )
    native = random_machine(n_classes=3, n_sv=30, d=2, seed=1)
    machine = replace(native, kernel=Kernel("callable", function=rough))
    method = FewestEvaluations(machine, bound="projection")._method
    S, a = np.asarray(machine.support_vectors), np.array(expand_rows(machine, machine.dual_coef))
    X = np.vstack([rng.normal(size=(12, 2)), S[:3]])
    G, K, rough_K = true(S, S), true(X, S), rough(X, S)
    sq_w = np.einsum("pi,ij,pj->p", a, G, a)
    assert (np.abs((rough_K - K) @ a.T) <= method._margin).all()
    state = _Rows.start(len(X), len(method.basis), machine)
    for step, (first, stop) in enumerate(zip(method._starts, method._stops, strict=True)):
        E = method.basis[:stop]
        middle, half = method._advance(state, step, rough_K[:, method.basis[first:stop]])
        inverse = np.linalg.inv(method._factor[:stop, :stop])
        z, c = state.z[:, :stop], method._coordinates[:stop]
        D = inverse @ G[np.ix_(E, E)] @ inverse.T - np.eye(stop)
        e = K[:, E] @ inverse.T - z
        h = inverse @ (G[E] @ a.T) - c
        deviation, tiny = method._deviation[step], 1e-12
        assert np.linalg.norm(D, 2) <= deviation
        assert (np.linalg.norm(h, axis=0) <= method._off[step]).all()
        sq_rest = sq_w - (c * c).sum(axis=0) - 2 * (c * h).sum(axis=0) + np.einsum("kp,kl,lp->p", c, D, c)
        assert (sq_rest <= method._rest[step] ** 2 + tiny).all()
        length, e_bound, rest = method._row_lengths(state, step)
        assert (np.linalg.norm(e, axis=1) <= e_bound).all()
        sq_row = 1 - (z * z).sum(axis=1) - 2 * (z * e).sum(axis=1) + np.einsum("nk,kl,nl->n", z, D, z)
        assert (sq_row <= rest**2 + tiny).all()
        # The identity of the module's text, and its bound put together from the parts.
        parts = z @ c + z @ h + e @ c - z @ D @ c
        left_over = K @ a.T - parts
        assert (np.abs(left_over) <= np.sqrt(np.maximum(np.outer(sq_row, sq_rest), 0.0)) + 1e-9).all()
        whole = np.outer(rest, method._rest[step]) + np.outer(length, method._off[step]) + method._margin
        whole += np.outer(e_bound + deviation * length, method._length[step])
        assert (half >= whole * (1 - 1e-12)).all()
        scores = np.array([libsvm_sum(machine, row) for row in rough_K])
        assert (np.abs(scores - middle) <= half).all()


def libsvm_sum(machine, values):
    """Scores of one row of kernel values in LIBSVM's order."""
    scores = []
    for row, intercept in zip(expand_rows(machine, machine.dual_coef), machine.intercept, strict=True):
        total = 0.0
        for weight, value in zip(row.tolist(), values.tolist(), strict=True):
            total += weight * value
        scores.append(total + float(intercept))
    return scores


@pytest.mark.parametrize("sign", [-1.0, 1.0, 0.0])
def test_intervals_of_a_rough_function_contain_its_values(sign):
    """The same for references: on a line, where the triangle inequality is an equality, nothing is to spare."""
    off = 1e-4

    def rough(X, S):
        wobble = sign if sign else np.where(np.sin(1e4 * cdist(X, S)) > 0, 1.0, -1.0)
        return np.exp(-cdist(X, S)) * (1 + 0.999 * off * np.where(X == S.T, 0.0, wobble))

    register_bound(rough, profile=lambda t: np.exp(-t), inverse=lambda v: -np.log(v), precision=off)
    machine = replace(random_machine(n_sv=30, d=1), kernel=Kernel("callable", function=rough))
    method = FewestEvaluations(machine, bound="references", n_references=5)._method
    X = np.random.default_rng(0).normal(size=(40, 1))
    values = rough(X, machine.support_vectors)
    low, high = method.intervals(values)
    assert (low <= values).all()
    assert (values <= high).all()
    assert (high < 1.01 * low).mean() > 0.5


def test_the_rounding_of_the_sum_is_counted():
    """Intervals of width zero leave nothing but the rounding of two sums of large terms that cancel."""
    rng = np.random.default_rng(0)
    machine = random_machine(n_sv=400, n_classes=2, d=1)
    machine = replace(machine, dual_coef=1e6 * rng.normal(size=(1, 400)))
    values = rng.random((50, 400))
    method = FewestEvaluations(machine, bound="references")._method
    middle, half = method.score_intervals(values, values)
    scores = np.array([libsvm_sum(machine, row) for row in values])
    assert (scores != middle).mean() > 0.5
    assert (np.abs(scores - middle) <= half).all()
    assert (half < 1e-4).all()


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_sums_are_those_of_the_definition(task):
    machine = random_machine(n_sv=17, seed=3, **task)
    sums, rng = ScoreSums(machine), np.random.default_rng(0)
    X = rng.normal(size=(5, machine.n_features))
    values = machine.kernel(X, machine.support_vectors)
    expected = slow_scores(machine, X) - machine.intercept
    np.testing.assert_allclose(sums.sums(values), expected, rtol=0, atol=1e-12)
    some = np.array([16, 0, 3, 9])
    alone = np.zeros((1, 17))
    alone[0, some] = values[0, some]
    np.testing.assert_allclose(sums.part(some, values[0, some]), sums.sums(alone)[0], rtol=0, atol=1e-12)
    of_score = rng.random(machine.n_scores)
    by_sums = [float(of_score @ sums.sums(row[None], sizes=True)[0]) for row in np.eye(17)]
    np.testing.assert_allclose(sums.importance(of_score), by_sums, rtol=0, atol=1e-12)


def test_scores_that_cannot_change_the_label_are_left_alone():
    machine = random_machine(n_classes=4, n_sv=8)
    pairs = class_pairs(4)
    low, high = np.full(6, 1.0), np.full(6, 2.0)  # class 0 beats all, 1 beats 2 and 3, 2 beats 3
    sums = ScoreSums(machine)
    low[pairs.index((2, 3))] = -1.0
    assert not relevant_scores(sums, low, high).any()
    low[pairs.index((0, 1))] = -1.0  # 1 may reach three votes now
    assert_array_equal(np.flatnonzero(relevant_scores(sums, low, high)), [0])


@given(signs=st.lists(st.sampled_from([-1, 0, 1]), min_size=10, max_size=10))
@settings(max_examples=100, deadline=None)
def test_relevant_pairs_are_open_and_touch_a_class_that_can_win(signs):
    """1: the pair's first class has won, -1: the second, 0: open."""
    sure, possible = [0] * 5, [0] * 5
    for sign, (i, j) in zip(signs, class_pairs(5), strict=True):
        for c in (i, j):
            sure[c] += sign == (1 if c == i else -1)
            possible[c] += sign == 0
    candidates = [c for c in range(5) if sure[c] + possible[c] >= max(sure)]
    expected = [
        sign == 0 and (i in candidates or j in candidates) for sign, (i, j) in zip(signs, class_pairs(5), strict=True)
    ]
    sums = ScoreSums(random_machine(n_classes=5, n_sv=10))
    low, high = np.array(signs) - 0.5, np.array(signs) + 0.5
    assert_array_equal(relevant_scores(sums, low, high), expected)


# -- labels ---------------------------------------------------------------------------------------------------------


@given(
    kernel=st.sampled_from(KERNELS),
    bound=st.sampled_from(("references", "few references", "projection")),
    task=st.sampled_from(TASKS),
    d=st.integers(1, 40),
    n_sv=st.integers(1, 60),
    log_gamma=st.floats(-6, 4) | st.sampled_from([-300.0, -20.0, 20.0, 300.0]),
    spread=st.sampled_from([1e-160, 1e-3, 1.0, 1e3, 1e100, 1e155]),
    weight=st.sampled_from([1e-8, 1.0, 1e8, 1e300]),
    copies=st.booleans(),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=150, deadline=None)
def test_labels_are_the_definitions(kernel, bound, task, d, n_sv, log_gamma, spread, weight, copies, seed):
    rng = np.random.default_rng(seed)
    gamma = 10.0**log_gamma / spread if abs(log_gamma) < 100 else 10.0**log_gamma
    machine = random_machine(kernel, n_sv=n_sv, d=d, gamma=min(gamma, 1e300), spread=spread, seed=seed, **task)
    S = np.array(machine.support_vectors)
    if copies:
        S[rng.integers(len(S), size=len(S) // 2)] = S[0]
    machine = replace(machine, support_vectors=S, dual_coef=machine.dual_coef * weight)
    near = S[rng.integers(len(S), size=4)]
    X = np.vstack([rng.normal(size=(6, d)) * spread, near, near * (1 + 1e-12), 0.5 * (near[:2] + near[2:])])
    with pytest.MonkeyPatch.context() as patch:
        if bound == "few references":  # as where there are too many vectors for every one to be a reference
            patch.setattr(fewest, "ALL_REFERENCES", 0)
        engine = FewestEvaluations(machine, bound=bound.split()[-1])
    labels, evaluations = engine.labels(Query(X))
    check_labels(machine, X, labels)
    assert ((evaluations >= 1) & (evaluations <= machine.n_sv)).all()
    assert (evaluations[labels < 0] == machine.n_sv).all()


def boundary_rows(machine, n, seed=0):
    """Pairs of neighbouring doubles on both sides of the decision boundary."""
    rng, rows = np.random.default_rng(seed), []
    while len(rows) < n:
        a, b = rng.normal(size=(2, machine.n_features)) * 1.5
        label = libsvm_order_label(machine, a)
        if label == libsvm_order_label(machine, b):
            continue
        for _ in range(70):
            middle = 0.5 * (a + b)
            if libsvm_order_label(machine, middle) == label:
                a = middle
            else:
                b = middle
        rows += [a, b]
    return np.array(rows[:n])


def balanced(machine):
    rows = np.random.default_rng(9).normal(size=(200, machine.n_features)) * 1.5
    return replace(machine, intercept=machine.intercept - np.median(slow_scores(machine, rows), axis=0))


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("task", TASKS, ids=str)
def test_rows_on_the_boundary_are_left_open(bound, kernel, task):
    machine = balanced(random_machine(kernel, n_sv=25, d=3, seed=5, **task))
    X = boundary_rows(machine, 12)
    labels, evaluations = FewestEvaluations(machine, bound=bound).labels(Query(X))
    settled = check_labels(machine, X, labels)
    if task.get("rule") != "argmax":
        assert settled < 0.5
    assert (evaluations[labels < 0] == 25).all()


@pytest.mark.parametrize("bound", BOUNDS)
def test_broken_ties_are_the_exact_engines(bound):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(120, 3)), rng.integers(0, 4, 120)
    machine = KernelMachine.from_sklearn(SVC(gamma=1.0, break_ties=True).fit(X, y))
    query = Query(rng.normal(size=(150, 3)))
    labels, _ = FewestEvaluations(machine, bound=bound).labels(query)
    expected = build_exact(machine).labels(query)[0]
    votes = build_exact(replace(machine, break_ties=False)).labels(query)[0]
    assert (votes != expected).any()  # there are ties to break
    assert_array_equal(labels[labels >= 0], expected[labels >= 0])
    assert (labels >= 0).mean() > 0.9


def blobs():
    """Five classes that overlap, so that the machine has many support vectors and a smooth boundary."""
    X, y = make_blobs(600, centers=5, n_features=3, cluster_std=3.0, random_state=0)
    return X[:400], y[:400], X[400:]


@pytest.mark.parametrize("bound", BOUNDS)
def test_an_easy_machine_needs_few_values(bound):
    X, y, Z = blobs()
    machine = KernelMachine.from_sklearn(SVC(gamma=0.02).fit(X, y))
    engine = FewestEvaluations(machine, bound=bound, random_state=0)
    labels, evaluations = engine.labels(Query(Z))
    assert check_labels(machine, Z, labels) > 0.99
    share = evaluations.mean() / engine.classical_evaluations
    assert engine.bound_ == bound
    assert share < {"references": 0.5, "projection": 0.12}[bound], share
    assert engine.nbytes > machine.support_vectors.nbytes


def test_auto_takes_the_better_bound():
    X, y, _ = blobs()
    smooth = KernelMachine.from_sklearn(SVC(gamma=0.02).fit(X, y))
    assert FewestEvaluations(smooth, X=X, random_state=0).bound_ == "projection"
    rng = np.random.default_rng(0)
    A = rng.random((900, 2))
    sharp = KernelMachine.from_sklearn(SVC(gamma=3000.0).fit(A, (A * 8).astype(int).sum(axis=1) % 2))
    engine = FewestEvaluations(sharp, X=rng.random((60, 2)), random_state=0)
    assert engine.bound_ == "references"
    assert engine.n_references_ is not None
    assert engine.n_basis_ is None
    labels, evaluations = engine.labels(Query(rng.random((100, 2))))
    assert evaluations.mean() < 0.4 * sharp.n_sv
    assert (labels >= 0).all()


@pytest.mark.parametrize("bound", [pytest.param("references", marks=pytest.mark.slow), "projection"])
def test_batches_scaling_and_sparse_rows_change_nothing(bound):
    X, y, Z = blobs()
    for scaler in (StandardScaler(), MinMaxScaler(clip=True)):
        machine = KernelMachine.from_sklearn(make_pipeline(scaler, SVC(gamma=0.5)).fit(X, y))
        engine = FewestEvaluations(machine, bound=bound, X=X, random_state=0)
        query = make_query(machine, Z)
        assert query.scale
        labels, evaluations = engine.labels(query)
        expected = build_exact(machine).labels(query)[0]
        assert_array_equal(labels[labels >= 0], expected[labels >= 0])
        one_by_one = np.concatenate([engine.labels(make_query(machine, z[None]))[0] for z in Z])
        assert_array_equal(one_by_one, labels)
        again = pickle.loads(pickle.dumps(engine)).labels(query)
        assert_array_equal(again[0], labels)
        assert_array_equal(again[1], evaluations)
    plain = KernelMachine.from_sklearn(SVC(gamma=0.05).fit(X, y))
    engine = FewestEvaluations(plain, bound=bound)
    expected = engine.labels(Query(Z))
    for rows in (sparse.csr_matrix(Z), np.asfortranarray(Z)):
        assert_array_equal(engine.labels(make_query(plain, rows))[0], expected[0])
    vectors = replace(plain, support_vectors=sparse.csr_matrix(plain.support_vectors))
    assert_array_equal(FewestEvaluations(vectors, bound=bound).labels(Query(Z))[0], expected[0])
    single = Z.astype(np.float32)
    of_single = engine.labels(Query(single))[0]
    assert_array_equal(of_single, engine.labels(Query(single.astype(np.float64)))[0])


@pytest.mark.parametrize("bound", BOUNDS)
def test_numbers_near_overflow_are_left_to_the_whole_sum(bound):
    machine = random_machine(n_sv=20, gamma=1e-308)
    X = np.vstack([np.full((1, 6), 1e153), np.zeros((1, 6))])
    labels, evaluations = FewestEvaluations(machine, bound=bound).labels(Query(X))
    assert labels[0] == -1
    assert evaluations[0] == 20
    far = replace(machine, support_vectors=np.asarray(machine.support_vectors) * 1e153)
    assert (FewestEvaluations(far, bound=bound).labels(Query(X))[0] == -1).all()


def test_rows_that_are_no_numbers_are_refused():
    engine = FewestEvaluations(random_machine(n_sv=20), bound="references")
    X = np.zeros((3, 6))
    X[1, 2] = np.nan
    with pytest.raises(ValueError, match=r"X contains nan \(row 1, column 2\)"):
        engine.labels(Query(X))


def test_what_cannot_be_done_is_refused():
    machine = random_machine(n_sv=20)
    with pytest.raises(ValueError, match=r"bound is 'best'; expected one of 'auto', 'references', 'projection'"):
        FewestEvaluations(machine, bound="best")
    with pytest.raises(ValueError, match="n_references is 0"):
        FewestEvaluations(machine, n_references=0)
    X = np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(NotImplementedError, match=r"a regressor and has no labels.*Use method='exact'"):
        FewestEvaluations(KernelMachine.from_sklearn(SVR().fit(X, X[:, 0])))
    with pytest.raises(NotImplementedError, match=r"this machine has poly\(.*Use method='exact'"):
        FewestEvaluations(random_machine("poly"))


# -- Python functions -----------------------------------------------------------------------------------------------


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (letter != other))
    return row[-1]


class Counted:
    """A kernel on strings that notes every pair it is asked for."""

    __name__ = "edits"

    def __init__(self, rate=0.7):
        self.rate, self.asked = rate, []

    def __call__(self, X, S):
        self.asked += [(x, s) for x in X for s in S]
        return np.array([[math.exp(-self.rate * edit_distance(x, s)) for s in S] for x in X]).reshape(len(X), len(S))


def words(n, seed):
    """Three families of words, each a stem with a few changed letters."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(n):
        letters = list(("prediction", "kernelised", "triangular")[i % 3])
        for at in rng.integers(len(letters), size=3):
            letters[at] = "abcdefgh"[rng.integers(8)]
        found.append("".join(letters))
    return found, np.arange(n) % 3


def test_a_kernel_on_strings():
    kernel = Counted()
    register_bound(
        kernel, profile=lambda t: np.exp(-0.7 * t), inverse=lambda v: -np.log(v) / 0.7, positive_definite=False
    )
    train, y = words(90, 0)
    machine = KernelMachine.from_sklearn(SVC(kernel=kernel, C=10.0).fit(train, y))
    queries = sorted(set(words(60, 1)[0]))
    expected = ValueEngine(machine).labels(Query(queries))[0]
    engine = FewestEvaluations(machine, random_state=0)
    assert engine.bound_ == "references"  # nothing else for a kernel that need not be positive definite
    kernel.asked.clear()
    labels, evaluations = engine.labels(Query(queries))
    assert_array_equal(labels, expected)
    assert len(kernel.asked) == evaluations.sum()
    assert evaluations.mean() < 0.5 * machine.n_sv
    with pytest.raises(ValueError, match=r"callable\(edits\) was registered with positive_definite=False"):
        FewestEvaluations(machine, bound="projection")
    given_rows = FewestEvaluations(machine, X=train[:20], random_state=0)
    assert_array_equal(given_rows.labels(Query(queries))[0], expected)
    assert given_rows.build_evaluations_ > machine.n_sv


def gauss(X, S):
    return np.exp(-0.2 * cdist(X, S, "sqeuclidean"))


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("task", TASKS, ids=str)
def test_functions_of_vectors_get_a_label_for_every_row(bound, task):
    calls = []

    def counted(X, S):
        calls.append(len(X) * len(S))
        return gauss(X, S)

    register_bound(counted, profile=lambda t: np.exp(-0.2 * t * t), inverse=lambda v: np.sqrt(np.log(v) / -0.2))
    native = balanced(random_machine("rbf", gamma=0.2, n_sv=25, d=3, seed=5, **task))
    machine = replace(native, kernel=Kernel("callable", function=counted))
    # Rows on the boundary too: there the sum has to be finished, with the values that are already known.
    X = np.vstack([np.random.default_rng(0).normal(size=(20, 3)), boundary_rows(native, 6)])
    engine = FewestEvaluations(machine, bound=bound)
    assert sum(calls) == engine.build_evaluations_
    if bound == "projection":
        assert sum(calls) < 0.6 * 25**2  # the matrix is symmetric
    calls.clear()
    labels, evaluations = engine.labels(Query(X))
    assert sum(calls) == evaluations.sum()
    assert_array_equal(labels, ValueEngine(machine).labels(Query(X))[0])
    if task.get("rule") != "argmax":
        assert (evaluations == 25).any()


def test_a_one_class_machine_from_scikit_learn():
    rng = np.random.default_rng(0)
    register_bound(gauss, profile=lambda t: np.exp(-0.2 * t * t), inverse=lambda v: np.sqrt(np.log(v) / -0.2))
    svm = OneClassSVM(kernel=gauss, nu=0.4).fit(rng.normal(size=(100, 2)))
    X = rng.normal(size=(50, 2)) * 2
    engine = FewestEvaluations(KernelMachine.from_sklearn(svm), random_state=0)
    labels, evaluations = engine.labels(Query(X))
    assert_array_equal(np.where(labels == 1, 1, -1), svm.predict(X))
    assert evaluations.mean() < 0.5 * engine.classical_evaluations


def test_a_kernel_that_is_not_positive_definite_is_found_out():
    def graph(X, S):
        """Path lengths in the complete bipartite graph of 2 and 4 points: exp(-0.1 d) of it is indefinite."""
        side = np.array([0, 0, 1, 1, 1, 1])
        a, b = X[:, 0].astype(int)[:, None], S[:, 0].astype(int)[None, :]
        d = np.where(a == b, 0.0, np.where(side[a] == side[b], 2.0, 1.0))
        return np.exp(-0.1 * d)

    points = np.arange(6.0)[:, None]
    lowest = np.linalg.eigvalsh(graph(points, points))[0]
    assert lowest < -1e-4
    register_bound(graph, profile=lambda t: np.exp(-0.1 * t), inverse=lambda v: np.log(v) / -0.1)
    machine = KernelMachine.from_arrays(
        kernel=graph, support_vectors=points, dual_coef=[1, -2, 1, 2, -1, 1.5], classes=["a", "b"]
    )
    with pytest.raises(ValueError, match=r"not positive definite: .* eigenvalue -.*Use bound='references'"):
        FewestEvaluations(machine, bound="projection")
    engine = FewestEvaluations(machine, random_state=0)
    assert engine.bound_ == "references"
    assert_array_equal(engine.labels(Query(points))[0], ValueEngine(machine).labels(Query(points))[0])


def test_values_outside_the_profile_are_refused():
    def doubled(X, S):
        return 2.0 * gauss(X, S)

    register_bound(doubled, profile=lambda t: np.exp(-0.2 * t * t), inverse=lambda v: np.sqrt(np.log(v) / -0.2))
    machine = replace(random_machine(n_sv=10, d=2), kernel=Kernel("callable", function=doubled))
    with pytest.raises(ValueError, match=r"support vector \d+ is 2; the profile it was registered with .* to 1\."):
        FewestEvaluations(machine)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("factor", [0.3, 3.0])
def test_a_wrong_rate_that_shows_is_not_trusted(bound, factor):
    """Numbers that are no distances break the triangle inequality; where that shows, the whole sum answers."""

    def narrow(X, S):
        return np.exp(-factor * cdist(X, S) ** 2)

    register_bound(narrow, profile=lambda t: np.exp(-t), inverse=lambda v: -np.log(v))  # squares are no metric
    machine = replace(
        balanced(random_machine("rbf", gamma=factor, n_sv=25, d=1, seed=5)), kernel=Kernel("callable", function=narrow)
    )
    X = np.random.default_rng(0).normal(size=(30, 1))
    assert_array_equal(
        FewestEvaluations(machine, bound=bound).labels(Query(X))[0], ValueEngine(machine).labels(Query(X))[0]
    )


def test_a_value_outside_its_interval_sends_the_row_to_the_whole_sum():
    bent = {"by": 1.0}

    def gauss_with_a_dent(X, S):
        return gauss(X, S) * np.where(np.isin(S[:, 0], bent.get("at", [])), bent["by"], 1.0)

    profile, inverse = (lambda t: np.exp(-0.2 * t * t)), (lambda v: np.sqrt(np.log(v) / -0.2))
    register_bound(gauss_with_a_dent, profile=profile, inverse=inverse)
    machine = balanced(random_machine("rbf", gamma=0.2, n_sv=25, d=3, seed=5))
    machine = replace(machine, kernel=Kernel("callable", function=gauss_with_a_dent))
    engine = FewestEvaluations(machine, bound="references", n_references=3)
    X = np.random.default_rng(0).normal(size=(40, 3))
    before = engine.labels(Query(X))[1]
    others = np.setdiff1d(np.arange(25), engine._method.references)
    bent.update(by=1e-3, at=np.asarray(machine.support_vectors)[others, 0])
    labels, after = engine.labels(Query(X))
    assert_array_equal(labels, ValueEngine(machine).labels(Query(X))[0])
    narrowed = before > 3
    assert narrowed.sum() > 10
    assert (after[narrowed] == 25).all()


def test_functions_that_misbehave_are_named():
    behaviour = {}

    def unsteady(X, S):
        return behaviour["of"](gauss(X, S))

    register_bound(unsteady, profile=lambda t: np.exp(-0.2 * t * t), inverse=lambda v: np.sqrt(np.log(v) / -0.2))
    machine = replace(random_machine(n_sv=10, d=2), kernel=Kernel("callable", function=unsteady))
    behaviour["of"] = lambda values: values
    engine = FewestEvaluations(machine, bound="references", n_references=4)
    behaviour["of"] = lambda values: values[:, :1]
    with pytest.raises(ValueError, match=r"returned an array of shape \(3, 1\) for 3 rows"):
        engine.labels(Query(np.zeros((3, 2))))
    behaviour["of"] = lambda values: values * np.array([[1.0], [np.nan], [1.0]])
    with pytest.raises(ValueError, match="The kernel value of row 1 is not finite"):
        engine.labels(Query(np.zeros((3, 2))))


def test_register_bound_is_public():
    assert svelto.register_bound is register_bound
