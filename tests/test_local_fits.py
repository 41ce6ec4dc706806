"""Many small SVMs at once: the dual's optimum, scikit-learn's SVC, and the promises about threads and batches.

The slow definitions stand first: kernels, the quadratic program as given to an independent solver, and the
cross-validation as a loop over scikit-learn's machines.
"""

from __future__ import annotations

from itertools import pairwise

import clarabel
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.svm import SVC

from svelto import _core
from svelto.training._local import fits
from svelto.training._local.fits import KernelChoice, fit_local, search_local

EPS32 = float(np.finfo(np.float32).eps)
KERNELS = [KernelChoice("rbf"), KernelChoice("linear"), KernelChoice("poly", 2, 1.0), KernelChoice("poly", 3, 0.0)]


# -- the definitions, written to be read ------------------------------------------------------------------------------


def kernel_values(kernel, gamma, A, B):
    if kernel.name == "rbf":
        return np.exp(-gamma * ((A[:, None] - B[None]) ** 2).sum(axis=-1))
    return A @ B.T if kernel.name == "linear" else (gamma * A @ B.T + kernel.coef0) ** kernel.degree


def dual_optimum(K, sign, bounds):
    """Smallest 1/2 b'Kb - sign'b with sum b = 0 and 0 <= sign b <= bounds, by Clarabel, an interior-point method."""
    n, scale = len(K), np.abs(K).max()  # solved for b * scale: numbers near 1
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    settings.tol_infeas_abs = settings.tol_infeas_rel = 1e-16  # bounds of 1e7 are no sign that there is no optimum
    signed = sparse.diags(sign)
    A = sparse.vstack([sparse.csc_matrix(np.ones((1, n))), -signed, signed]).tocsc()
    b = np.concatenate([np.zeros(1 + n), bounds * scale])
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(2 * n)]
    solution = clarabel.DefaultSolver(sparse.triu(K / scale).tocsc(), -sign, A, b, cones, settings).solve()
    assert str(solution.status) in ("Solved", "AlmostSolved")
    return solution.obj_val / scale


def slow_search(X, y, folds, kernel, C, gamma, weight=None):
    """Right held-out rows, and rows whose score is too close to zero to be counted on."""
    weight = np.ones(len(X)) if weight is None else weight
    right, close = 0.0, 0.0
    for fold in np.unique(folds[folds >= 0]):
        train, held = (folds != fold) & (weight > 0), (folds == fold) & (weight > 0)
        if not train.any() or not held.any():
            continue
        if len(np.unique(y[train])) == 1:
            right += weight[held] @ (y[held] == y[train][0])
            continue
        svc = sklearn_svc(kernel, C, gamma).set_params(decision_function_shape="ovo")
        svc.fit(X[train], y[train], sample_weight=weight[train])
        scores = svc.decision_function(X[held]).reshape(held.sum(), -1)
        right += weight[held] @ (svc.predict(X[held]) == y[held])
        close += weight[held] @ (np.abs(scores).min(axis=1) < 0.005)
    return right, close


def sklearn_svc(kernel, C, gamma, tol=1e-3):
    return SVC(C=C, kernel=kernel.name, gamma=gamma, degree=kernel.degree, coef0=kernel.coef0, tol=tol)


def pair_scores(models, problem, X, kernel, gamma, queries):
    """One column for each pair of the problem's classes, positive for the first."""
    columns = []
    for q in range(models.pair_start[problem], models.pair_start[problem + 1]):
        at = slice(models.support_start[q], models.support_start[q + 1])
        values = kernel_values(kernel, gamma, queries, X[models.support[at]].astype(float))
        columns.append(values @ models.coef[at] + models.intercept[q])
    return np.array(columns).T.reshape(len(queries), -1)


# -- what always holds ------------------------------------------------------------------------------------------------


def check_optimal(models, X, y, kernel, C, gamma, tol=1e-3, weight=None):
    """Every pair of the first problem, which has all rows: feasible, optimal to tol, near the dual's optimum."""
    X, bounds = X.astype(float), C * (np.ones(len(X)) if weight is None else weight)
    classes = models.classes[models.class_start[0] : models.class_start[1]]
    assert_array_equal(classes, np.unique(y[bounds > 0]))
    pairs = [(a, b) for i, a in enumerate(classes) for b in classes[i + 1 :]]
    assert models.pair_start[1] - models.pair_start[0] == len(pairs)
    for q, (first, second) in enumerate(pairs):
        at = slice(models.support_start[q], models.support_start[q + 1])
        weights = np.zeros(len(X))
        weights[models.support[at]] = models.coef[at]
        assert models.converged[q]
        assert (models.coef[at] != 0.0).all()
        rows = np.flatnonzero(((y == first) | (y == second)) & (bounds > 0))
        assert set(models.support[at]) <= set(rows)
        sign, high, b = np.where(y[rows] == first, 1.0, -1.0), bounds[rows], weights[rows]
        assert (sign * b >= 0.0).all()
        assert (sign * b <= high * (1 + 1e-12)).all()
        assert abs(b.sum()) <= 1e-10 * np.abs(b).sum()
        K = kernel_values(kernel, gamma, X[rows], X[rows])
        slope = sign - K @ b
        rises = np.where(sign > 0, sign * b < high, sign * b > 0)
        falls = np.where(sign > 0, sign * b > 0, sign * b < high)
        # Kernel values are float32, a few roundings of the largest; so is what a slope can be off by.
        noise = 4 * EPS32 * (K.diagonal().max() * np.abs(b).sum() + 1)
        violation = slope[rises].max() - slope[falls].min()
        assert violation <= tol + noise
        ends = slope[rises].max(), slope[falls].min()
        assert min(ends) - tol - noise <= models.intercept[q] <= max(ends) + tol + noise
        # By convexity the objective is above the optimum by at most half the violation times all that weights move.
        objective, optimum = 0.5 * b @ K @ b - sign @ b, dual_optimum(K, sign, high)
        allowed = (max(violation, 0.0) + noise) * high.sum() + 1e-7 * abs(optimum)
        assert -1e-7 * abs(optimum) - noise * np.abs(b).sum() <= objective - optimum <= allowed


def whole(X, y, **options):
    """One problem of all rows."""
    return fit_local(X, y, [0, len(X)], np.arange(len(X)), n_jobs=1, **options)


def blobs(seed, n, n_features, n_classes):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    y[:n_classes] = np.arange(n_classes)
    return rng.normal(size=(n, n_features)) + 0.8 * rng.normal(size=(n_classes, n_features))[y], y


# -- against the optimum and against scikit-learn ---------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.name}{k.degree}")
@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize(("n", "n_features"), [(12, 1), (31, 2), (33, 7), (90, 20)])  # around a block of 32
def test_pairs_are_optimal(kernel, n_classes, n, n_features):
    X, y = blobs(n, n, n_features, n_classes)
    weight = np.random.default_rng(1).choice([0.0, 0.3, 1.0, 4.0], n)
    weight[:n_classes] = 1.0
    for C, weights in ((0.05, None), (2.0, None), (2.0, weight), (50.0, None)):
        gamma = 0.5 / n_features
        models = whole(X, y, kernel=kernel, C=C, gamma=gamma, sample_weight=weights)
        check_optimal(models, X, y, kernel, C, gamma, weight=weights)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.name}{k.degree}")
@pytest.mark.parametrize("n_classes", [2, 4])
def test_scores_are_those_of_svc(kernel, n_classes):
    X, y = blobs(7, 160, 4, n_classes)
    rng = np.random.default_rng(2)
    queries, weight = rng.normal(size=(200, 4)), rng.choice([0.0, 0.5, 2.0], 160)
    by_class = np.array([1.0, 3.0, 0.2, 1.5])[:n_classes]
    for C, gamma in ((0.1, 0.02), (1.0, 0.3), (20.0, 0.1)):
        svc = sklearn_svc(kernel, C, gamma, tol=1e-5).set_params(
            decision_function_shape="ovo", class_weight=dict(enumerate(by_class))
        )
        svc.fit(X, y, sample_weight=weight)
        expected = svc.decision_function(queries).reshape(200, -1) * (-1 if n_classes == 2 else 1)
        models = whole(X, y, kernel=kernel, C=C, gamma=gamma, sample_weight=weight, class_weight=by_class, tol=1e-5)
        scores = pair_scores(models, 0, X, kernel, gamma, queries)
        # Both stop within tol of the optimum; far from the rows polynomials make more of it.
        assert_allclose(scores, expected, rtol=2e-3, atol=2e-3)
        # With four features only rbf has a single solution: others share the weight of a vector in many ways.
        most = 2 if kernel.name == "rbf" else 5
        assert abs(len(np.unique(models.support)) - len(svc.support_)) <= most


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.name}{k.degree}")
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_scale_of_the_features_does_not_matter(kernel, scale):
    X, y = blobs(3, 60, 3, 2)
    gamma, C = (1.0, 1.0 / scale**2) if kernel.name == "linear" else (0.3 / scale**2, 1.0)
    check_optimal(whole(X * scale, y, kernel=kernel, C=C, gamma=gamma), X * scale, y, kernel, C, gamma)


def test_polynomials_beyond_the_range_of_float32():
    X, y = blobs(3, 40, 3, 2)
    kernel = KernelChoice("poly", 5)
    C = 1e-70 * 1e-3  # kernel values are 1e70 and more
    models = whole(X * 1e7, y, kernel=kernel, C=C, gamma=1.0)
    check_optimal(models, X * 1e7, y, kernel, C, 1.0)


def test_rows_far_from_the_origin_keep_their_digits():
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(80, 3)) * 2**10) / 2**10  # exact with the offset, too
    y = (X[:, 0] + 0.3 * rng.normal(size=80) > 0).astype(int)
    for kernel in KERNELS[:2]:
        near = whole(X, y, kernel=kernel, C=10.0, gamma=0.5)
        far = whole(X + 2.0**20, y, kernel=kernel, C=10.0, gamma=0.5)
        assert_array_equal(far.support, near.support)
        assert_array_equal(far.coef, near.coef)
    # The plane moves with the rows.
    assert_allclose(far.intercept, near.intercept - far.coef @ np.full((len(far.coef), 3), 2.0**20).sum(1)
                    - 2.0**20 * (far.coef @ X[far.support]).sum(), rtol=1e-9)  # fmt: skip


@pytest.mark.parametrize("C", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("kernel", [KERNELS[0], KERNELS[2]], ids=["rbf", "poly"])
def test_small_and_large_cost(C, kernel):
    X, y = blobs(5, 50, 2, 2)
    X[10:30] = X[:20]  # duplicates
    if kernel.name == "rbf":
        y[10:20] = 1 - y[:10]  # some of the other class
    else:
        y = (X[:, 0] ** 2 + X[:, 1] > 0.7).astype(int)  # separable: large C has no part in it
    check_optimal(whole(X, y, kernel=kernel, C=C, gamma=1.0), X, y, kernel, C, 1.0)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.name}{k.degree}")
def test_rows_that_are_all_equal(kernel):
    X, y = np.ones((9, 4)), np.array([0, 1, 0, 0, 1, 0, 0, 1, 0])
    check_optimal(whole(X, y, kernel=kernel, C=3.0, gamma=0.5), X, y, kernel, 3.0, 0.5)
    zeros = np.zeros((9, 4))
    models = whole(zeros, y, kernel=kernel, C=3.0, gamma=0.5)
    assert models.intercept[0] == 1.0  # six of nine are of the first class


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.name}{k.degree}")
def test_two_rows(kernel):
    X, y = np.array([[0.5, 1.0], [2.0, 1.5]]), np.array([1, 0])
    for C in (1e-3, 1e9):
        check_optimal(whole(X, y, kernel=kernel, C=C, gamma=0.5), X, y, kernel, C, 0.5)


def test_neighbourhoods_without_a_machine():
    X, y = blobs(0, 20, 2, 3)
    weight = np.ones(20)
    weight[y == 2] = 0.0
    one = np.flatnonzero(y == 1)
    none = np.flatnonzero(y == 2)
    indices = np.concatenate([one, none, [], none, one, np.arange(20)]).astype(int)
    sizes = [len(one), len(none), 0, len(none) + len(one), 20]
    models = fit_local(X, y, np.r_[0, np.cumsum(sizes)], indices, kernel=KERNELS[0], sample_weight=weight)
    assert_array_equal(models.class_start, [0, 1, 1, 1, 2, 4])
    assert_array_equal(models.classes, [1, 1, 0, 1])
    assert_array_equal(models.pair_start, [0, 0, 0, 0, 0, 1])
    assert len(models.support_start) == 2
    nothing = fit_local(X, y, [0, len(one)], one, kernel=KERNELS[0])
    assert nothing.intercept.shape == nothing.coef.shape == (0,)
    assert_array_equal(nothing.support_start, [0])


def test_steps_are_limited():
    X, y = blobs(0, 100, 2, 2)
    models = whole(X, y, kernel=KERNELS[0], C=100.0, max_iter=7)
    assert_array_equal(models.n_iter, [7])
    assert_array_equal(models.converged, [False])
    b = models.coef
    assert abs(b.sum()) < 1e-9  # what it has so far is feasible
    free = whole(X, y, kernel=KERNELS[0], C=100.0)
    assert free.converged.all()
    assert free.n_iter[0] > 100  # and so variables were set aside and taken back
    check_optimal(free, X, y, KERNELS[0], 100.0, 1.0)
    stopped = whole(X, y, kernel=KERNELS[0], C=100.0, max_iter=int(free.n_iter[0]) - 1)
    assert not stopped.converged.any()
    assert abs(stopped.coef.sum()) < 1e-9


def test_steps_are_as_few_as_those_of_libsvm():
    # The same choice of pairs: what differs is rounding, and when variables are set aside.
    X, y = blobs(0, 600, 2, 2)
    for C, gamma in ((1.0, 1.0), (30.0, 1.0), (100.0, 5.0)):
        svc = sklearn_svc(KERNELS[0], C, gamma).fit(X, y)
        models = whole(X, y, kernel=KERNELS[0], C=C, gamma=gamma)
        assert models.n_iter[0] <= 1.25 * svc.n_iter_[0]


# -- many neighbourhoods ----------------------------------------------------------------------------------------------


def many(seed=0, n_problems=40):
    rng = np.random.default_rng(seed)
    X, y = blobs(seed, 400, 5, 4)
    sizes = rng.integers(1, 120, n_problems)
    indices = np.concatenate([rng.choice(400, size, replace=False) for size in sizes])
    options = {"C": rng.choice([0.5, 5.0, 50.0], n_problems), "gamma": rng.choice([0.05, 0.2, 1.0], n_problems)}
    return X, y, np.r_[0, np.cumsum(sizes)], indices, options


def assert_same(a, b):
    for name in fits.LocalModels.__dataclass_fields__:
        assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
        assert getattr(a, name).dtype == getattr(b, name).dtype


def joined_alone(X, y, indptr, indices, kernel, options):
    """Problem by problem: support, coefficients and intercepts of each."""
    for p, (first, last) in enumerate(pairwise(indptr)):
        yield fit_local(
            X, y, [0, last - first], indices[first:last], kernel=kernel, C=options["C"][p], gamma=options["gamma"][p]
        )


@pytest.mark.parametrize("kernel", KERNELS[:3], ids=lambda k: k.name)
def test_neighbourhoods_do_not_depend_on_each_other(kernel, monkeypatch):
    X, y, indptr, indices, options = many()
    together = fit_local(X, y, indptr, indices, kernel=kernel, n_jobs=1, **options)
    assert together.converged.all()
    alone = list(joined_alone(X, y, indptr, indices, kernel, options))
    for name in ("classes", "intercept", "n_iter", "support", "coef"):
        assert_array_equal(getattr(together, name), np.concatenate([getattr(a, name) for a in alone]))
    assert_array_equal(np.diff(together.class_start), [len(a.classes) for a in alone])
    assert_array_equal(np.diff(together.pair_start), [len(a.intercept) for a in alone])
    for n_jobs in (1, 2):
        for pairs in (1, 50_000):
            monkeypatch.setattr(fits, "PAIRS_PER_CALL", pairs)
            assert_same(fit_local(X, y, indptr, indices, kernel=kernel, n_jobs=n_jobs, **options), together)


@pytest.mark.parametrize("kernel", KERNELS[:3], ids=lambda k: k.name)
def test_every_level_and_thread_gives_the_same_bits(kernel):
    X, y, indptr, indices, options = many(1)
    arrays = (X, y.astype(np.int32), np.empty(0), indptr, indices, *fits._kernel_fields(kernel))
    folds = (np.arange(len(indices)) % 3).astype(np.int32)
    grid = (np.tile([1.0, 20.0], (40, 1)), np.tile([0.1, 1.0], (40, 1)))
    found = []
    for level in _core.available_levels():
        for n_threads in (1, 5):
            models = _core.fit_local(*arrays, options["C"], options["gamma"], 1e-3, -1, n_threads, level)
            right = np.empty((40, 2, 2))
            _core.search_local(*arrays, folds, np.empty(0), *grid, 1e-3, -1, n_threads, level, right)
            found.append((*models, right))
    for other in found[1:]:
        for ours, theirs in zip(found[0], other, strict=True):
            assert_array_equal(ours, theirs)


def test_any_array_is_read_and_none_is_changed():
    X, y, indptr, indices, options = many(2)
    X = np.round(X * 256) / 256  # exact in float32
    expected = fit_local(X, y, indptr, indices, kernel=KERNELS[0], **options)
    frozen = X.copy()
    frozen.flags.writeable = False
    for rows in (X.astype(np.float32), np.asfortranarray(X), frozen, X.tolist(), X[::-1][::-1]):
        models = fit_local(rows, y.tolist(), indptr.astype(np.int32), indices.tolist(), kernel=KERNELS[0], **options)
        assert_same(models, expected)
    assert_array_equal(frozen, X)


def test_constant_features_change_nothing():
    X, y, indptr, indices, options = many(3)
    expected = fit_local(X, y, indptr, indices, kernel=KERNELS[0], **options)
    wide = np.insert(X, [0, 2, 5], [7.0, 0.0, -1e5], axis=1)
    assert_same(fit_local(wide, y, indptr, indices, kernel=KERNELS[0], **options), expected)


def test_progress_and_interruption(monkeypatch):
    X, y, indptr, indices, options = many()
    monkeypatch.setattr(fits, "PAIRS_PER_CALL", 1)
    heard = []
    fit_local(X, y, indptr, indices, kernel=KERNELS[0], n_jobs=1, progress=lambda *done: heard.append(done), **options)
    assert heard == [(p + 1, 40) for p in range(40)]

    def interrupt(done, _):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_local(X, y, indptr, indices, kernel=KERNELS[0], n_jobs=1, progress=interrupt, **options)


# -- cross-validation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.name}{k.degree}")
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_search_counts_what_svc_gets_right(kernel, n_classes, weighted):
    X, y = blobs(11, 70, 3, n_classes)
    rng = np.random.default_rng(3)
    weight = rng.choice([0.0, 1.0, 2.0], 70) if weighted else None
    parts = [rng.permutation(70)[:size] for size in (70, 50, 25)]
    folds = rng.integers(-1, 4, 145)
    C, gamma = np.array([[0.2, 5.0], [1.0, 10.0], [0.5, 2.0]]), np.array([0.05, 0.3, 1.0])
    indptr = [0, 70, 120, 145]
    right = search_local(
        X, y, indptr, np.concatenate(parts), folds=folds, kernel=kernel, C=C, gamma=gamma, sample_weight=weight
    )
    assert right.shape == (3, 3, 2)
    doubtful = 0.0
    for p, rows in enumerate(parts):
        own = folds[indptr[p] : indptr[p + 1]]
        for g, c in np.ndindex(3, 2):
            part = None if weight is None else weight[rows]
            expected, close = slow_search(X[rows], y[rows], own, kernel, C[p, c], gamma[g], part)
            assert abs(right[p, g, c] - expected) <= close
            doubtful += close
    assert doubtful < 0.05 * right.sum()  # the comparison says something


def test_search_where_classes_are_missing():
    X, y = blobs(0, 12, 2, 3)
    y = np.array([0, 0, 0, 0, 1, 1, 0, 0, 2, 2, 2, 2])
    options = {"kernel": KERNELS[0], "C": [1.0], "gamma": [1.0]}

    def right(rows, folds, **more):
        return search_local(X, y, [0, len(rows)], rows, folds=folds, **options, **more)[0, 0, 0]

    assert right([0, 1, 2, 3], [0, 0, 1, 1]) == 4  # one class
    assert right([0, 1, 2, 3], [0, 0, -1, -1]) == 2
    assert right([0, 1], [5, 5]) == 0  # nothing to learn from
    assert right([0, 1, 4, 5], [0, 0, 0, 0]) == 0
    assert right([0, 1, 4, 5], [0, 0, 1, 1]) == 0  # held-out classes that training never saw
    assert right([0, 1, 2, 4, 5], [0, -1, -1, 0, 0]) == 1
    assert right([], []) == 0
    weight = np.arange(12.0)
    assert right([0, 1, 2, 3], [0, 0, 1, 1], sample_weight=weight) == 6  # row 0 has no weight
    assert right([0, 1, 2, 3], [0, 0, 1, 1], class_weight=[5.0, 1.0, 1.0]) == 4  # a cost, no worth


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.name}{k.degree}")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_search_of_many_costs_is_that_of_each(kernel, n_classes):
    """From the C on that no weight meets, machines are the same and are not trained again."""
    X, y = blobs(5, 60, 3, n_classes)
    rows, folds = np.arange(60), np.arange(60) % 4
    options = {
        "folds": folds,
        "kernel": kernel,
        "gamma": [0.3, 3.0],
        "sample_weight": 1.0 + rows % 3,
        "max_iter": 3_000,
    }
    costs = np.array([0.01, 1e4, 0.3, 3.0, 30.0, 1e3, 1e5, 1.0])  # in no order
    together = search_local(X, y, [0, 60], rows, C=costs, **options)
    one_by_one = [search_local(X, y, [0, 60], rows, C=[C], **options) for C in costs]
    assert_array_equal(together, np.concatenate(one_by_one, axis=2))
    assert len(np.unique(together)) > 3


def test_search_does_not_depend_on_batches(monkeypatch):
    X, y, indptr, indices, _ = many(4)
    folds = np.arange(len(indices)) % 4
    options = {"folds": folds, "kernel": KERNELS[0], "C": [1.0, 30.0], "gamma": [0.1, 0.5, 2.0]}
    expected = search_local(X, y, indptr, indices, n_jobs=2, **options)
    monkeypatch.setattr(fits, "PAIRS_PER_CALL", 1)
    heard = []
    found = search_local(X, y, indptr, indices, n_jobs=1, progress=lambda *done: heard.append(done), **options)
    assert_array_equal(found, expected)
    assert heard[-1] == (40, 40)
    assert expected.max() > 20


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.zeros(4)}, r"X has shape \(4,\); expected \(n_rows, n_features\)"),
        ({"X": np.zeros((4, 0))}, r"X has shape \(4, 0\); expected"),
        ({"X": np.array([[0.0], [np.nan], [1.0], [2.0]])}, "X holds nan; expected finite numbers"),
        ({"X": np.array([[0.0], [np.inf], [1.0], [2.0]])}, "X holds inf; expected finite numbers"),
        ({"X": np.array([[0.0], [1e160], [1.0], [2.0]])}, r"The largest value is 1e\+160: kernel values overflow"),
        ({"y_codes": [0, 1, 0]}, r"y_codes has shape \(3,\); expected one class code for each of 4 rows"),
        ({"y_codes": [0.0, 1.0, 0.0, 1.0]}, "y_codes has the type float64; expected whole numbers"),
        ({"y_codes": [0, 1, 0, 2**40]}, "y_codes has numbers from 0 to 1099511627776; too large for int32"),
        ({"indptr": [0]}, "indptr is no ascending array from 0 on"),
        ({"indptr": [1, 4]}, "indptr is no ascending array from 0 on"),
        ({"indptr": [0, 3, 2, 4]}, "indptr is no ascending array from 0 on"),
        ({"indptr": [0, 5]}, r"indices has shape \(4,\); indptr ends at 5"),
        ({"indices": [0, 1, 2, 4]}, "indices holds 4; X has 4 rows"),
        ({"indices": [0, -1, 2, 3]}, "indices holds -1; X has 4 rows"),
        ({"C": 0.0}, "C holds 0.0; expected above 0"),
        ({"C": [1.0, 2.0]}, r"C has shape \(2,\); expected a number or one for each of 1 problems"),
        ({"gamma": np.inf}, "gamma holds inf; expected above 0"),
        ({"sample_weight": [1, 1, 1]}, r"sample_weight has shape \(3,\); expected \(4,\)"),
        ({"sample_weight": [1, 1, -1, 1]}, "sample_weight holds -1.0; expected at least 0"),
        ({"sample_weight": [1, 1, np.nan, 1]}, "sample_weight holds nan; expected at least 0"),
        ({"class_weight": [1.0]}, "class_weight has 1 elements; codes are 0 to 1"),
        ({"tol": 0.0}, "tol is 0.0; expected a positive number"),
        ({"max_iter": -2}, "max_iter is -2; expected a whole number of at least -1"),
        ({"n_jobs": 0}, "n_jobs is 0; expected None"),
    ],
)
def test_messages_name_the_value(change, message):
    good = {
        "X": np.arange(4.0)[:, None],
        "y_codes": [0, 1, 0, 1],
        "indptr": [0, 4],
        "indices": [0, 1, 2, 3],
        "kernel": KernelChoice("rbf"),
    }
    with pytest.raises(ValueError, match=message):
        fit_local(**{**good, **change})
    if not {"C", "gamma"} & set(change):
        with pytest.raises(ValueError, match=message):
            search_local(**{**good, "C": [1.0], "folds": [0, 1, 0, 1], **change})


def test_other_messages():
    with pytest.raises(ValueError, match="kernel is 'sigmoid'; expected one of"):
        KernelChoice("sigmoid")
    with pytest.raises(ValueError, match="degree is 0; expected a whole number of at least 1"):
        KernelChoice("poly", 0)
    with pytest.raises(ValueError, match="coef0 is nan; expected a finite number"):
        KernelChoice("poly", 2, float("nan"))
    X, y = np.arange(4.0)[:, None], [0, 1, 0, 1]
    options = {"kernel": KERNELS[0], "folds": [0, 1, 0, 1], "C": [1.0]}
    with pytest.raises(ValueError, match=r"folds has shape \(2,\); expected \(4,\), as indices has"):
        search_local(X, y, [0, 4], range(4), **{**options, "folds": [0, 1]})
    with pytest.raises(ValueError, match=r"C has shape \(2, 1\); expected \(n_values,\) or \(1, n_values\)"):
        search_local(X, y, [0, 4], range(4), **{**options, "C": [[1.0], [1.0]]})
    with pytest.raises(ValueError, match=r"gamma holds -1\.0; expected above 0"):
        search_local(X, y, [0, 4], range(4), gamma=[1.0, -1.0], **options)
    with pytest.raises(ValueError, match=r"The largest value is 1e\+50: kernel values overflow"):
        fit_local(X / 3 * 1e50, y, [0, 4], range(4), kernel=KernelChoice("poly", 4))
    many_rows = np.zeros(_core.MAX_LOCAL_ROWS + 1, dtype=int)
    with pytest.raises(ValueError, match="A neighbourhood has 65537 rows; at most 65536 can be trained on"):
        fit_local(X, y, [0, len(many_rows)], many_rows, kernel=KERNELS[0])


def native_arguments():
    return {
        "X": np.arange(4.0)[:, None],
        "y": np.array([0, 1, 0, 1], dtype=np.int32),
        "weight": np.empty(0),
        "start": np.array([0, 4]),
        "numbers": np.arange(4),
        "kernel": 0,
        "degree": 3,
        "coef0": 0.0,
        "C": np.ones(1),
        "gamma": np.ones(1),
        "tol": 1e-3,
        "max_steps": -1,
        "n_threads": 1,
        "level": "baseline",
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.zeros((4, 1), dtype=int)}, "rows must be float32 or float64"),
        ({"X": np.zeros((4, 0))}, "there are no rows"),
        ({"X": np.zeros((4, 2))[:, ::2]}, "rows must be C-contiguous"),
        ({"y": np.zeros(3, dtype=np.int32)}, "y and rows disagree"),
        ({"weight": np.zeros(3)}, "weights and rows disagree"),
        ({"weight": np.full(4, -1.0)}, "a weight is negative"),
        ({"start": np.empty(0, dtype=np.int64)}, "indptr does not begin with 0"),
        ({"start": np.array([1, 4])}, "indptr does not begin with 0"),
        ({"start": np.array([0, 3, 2, 4])}, "indptr falls"),
        ({"start": np.array([0, 3])}, "indptr does not cover"),
        ({"start": np.array([0, 70_000])}, "a neighbourhood has too many rows"),
        ({"numbers": np.array([0, 1, 2, 4])}, "a row number is out of range"),
        ({"numbers": np.array([0, 1, 2, -1])}, "a row number is out of range"),
        ({"kernel": 4}, "the kernel must be"),
        ({"degree": 0}, "degree must be positive"),
        ({"coef0": float("nan")}, "coef0 must be finite"),
        ({"C": np.ones(2)}, "C, gamma and problems disagree"),
        ({"gamma": np.zeros(1)}, "C and gamma must be positive"),
        ({"tol": float("nan")}, "tol must be positive"),
        ({"n_threads": 0}, "n_threads must be positive"),
        ({"level": "sse9"}, "instruction level 'sse9' is not available"),
    ],
)
def test_native_solver_refuses_what_does_not_fit(change, message):
    good = native_arguments()
    assert len(_core.fit_local(**good)) == 9
    with pytest.raises(ValueError, match=message):
        _core.fit_local(**{**good, **change})
    grids = {"C": np.ones((1, 2)), "gamma": np.ones((1, 3)), "fold": np.zeros(4, dtype=np.int32), "worth": np.empty(0)}
    search = {**good, **grids, "right": np.empty((1, 3, 2))}
    _core.search_local(**search)
    if not {"C", "gamma"} & set(change):
        with pytest.raises(ValueError, match=message):
            _core.search_local(**{**search, **change})
    for more, words in (
        ({"fold": np.zeros(3, dtype=np.int32)}, "folds and row numbers disagree"),
        ({"worth": np.zeros(3)}, "worth and rows disagree"),
        ({"right": np.empty((1, 2, 3))}, "right has a wrong shape"),
        ({"C": np.ones((1, 0))}, "the grid is empty"),
        ({"C": np.ones((2, 2))}, "C, gamma and problems disagree"),
        ({"gamma": np.full((1, 3), np.inf)}, "C and gamma must be positive"),
    ):
        with pytest.raises(ValueError, match=words):
            _core.search_local(**{**search, **more})
