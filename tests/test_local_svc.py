"""LocalSVC: the paper's algorithm word by word, what is beyond it, and adding rows."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import make_blobs, make_moons
from sklearn.svm import SVC

import svelto
from svelto.kernels import Kernel
from svelto.training._local.fits import fit_local

X2, Y2 = make_moons(700, noise=0.2, random_state=0)
X3, Y3 = make_blobs(700, centers=4, n_features=3, cluster_std=3.0, random_state=1)
SETS = {"two": (X2, Y2), "four": (X3, Y3)}


def slow_cover(X, order, k, k_prime, kernel):
    """Algorithm 1: centres in random order, neighbours in feature space, the first centre that covers a row has it."""
    values = kernel(X, X)
    sq_dist = np.diag(values)[:, None] + np.diag(values) - 2 * values
    nearest = np.argsort(sq_dist, axis=1, kind="stable")
    model_of_row, centres = np.full(len(X), -1), []
    for row in order:
        if model_of_row[row] < 0:
            model_of_row[row] = len(centres)
            covered = nearest[row, :k_prime]
            model_of_row[covered[model_of_row[covered] < 0]] = len(centres)
            centres.append(row)
    return np.array(centres), nearest[centres, :k], model_of_row, sq_dist


def slow_decision(X, y, rows, Z, **svc):
    """What scikit-learn's SVC on these rows says; one class wins by 1."""
    classes = np.unique(y)
    if len(np.unique(y[rows])) == 1:
        return np.full(len(Z), 1.0 if y[rows[0]] == classes[1] else -1.0)
    return SVC(**svc).fit(X[rows], y[rows]).decision_function(Z)


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        ("rbf", {"gamma": 2.0}),
        ("linear", {"gamma": 1.0}),
        ("poly", {"gamma": 0.5, "degree": 2, "coef0": 1.0}),
        ("poly", {"gamma": 0.5, "degree": 3, "coef0": 0.0}),
    ],
)
def test_the_paper_word_by_word(kernel, options):
    X, y, Z = X2[:300], Y2[:300], X2[300:]
    local = svelto.LocalSVC(k=60, k_prime=15, kernel=kernel, C=5.0, tol=1e-6, random_state=3, **options).fit(X, y)
    order = np.random.RandomState(3).permutation(len(X))
    space = Kernel(kernel, gamma=options["gamma"], degree=options.get("degree", 3), coef0=options.get("coef0", 0.0))
    centres, neighbours, model_of_row, _ = slow_cover(X, order, 60, 15, space)
    assert_array_equal(local.centres_, centres)
    assert_array_equal(np.sort(local._cover.neighbours, axis=1), np.sort(neighbours, axis=1))
    assert_array_equal(local._cover.centre_of_row, model_of_row)
    assert 5 < local.n_svms_ < local.n_models_ == len(centres)  # some neighbourhoods have one class
    values = space(Z, X)
    to_rows = np.array([space(z[None], z[None])[0, 0] for z in Z])[:, None] - 2 * values
    nearest = (to_rows + np.array([space(x[None], x[None])[0, 0] for x in X])).argmin(axis=1)
    model = model_of_row[nearest]
    expected = np.empty(len(Z))
    for m in np.unique(model):
        svc = {"kernel": kernel, "C": 5.0, "tol": 1e-6, **options}
        expected[model == m] = slow_decision(X, y, neighbours[m], Z[model == m], **svc)
    assert_allclose(local.decision_function(Z), expected, rtol=1e-3, atol=1e-3)
    sure = np.abs(expected) > 1e-3
    assert_array_equal(local.predict(Z)[sure], np.where(expected > 0, 1, 0)[sure])


@pytest.mark.parametrize("name", SETS)
def test_one_neighbourhood_of_all_rows_is_svc(name):
    X, y = SETS[name]
    local = svelto.LocalSVC(k=400, k_prime=400, C=3.0, gamma="scale", tol=1e-5).fit(X[:400], y[:400])
    svc = SVC(C=3.0, tol=1e-5).fit(X[:400], y[:400])
    assert local.n_models_ == 1
    assert_allclose(local.decision_function(X), svc.decision_function(X), atol=1e-3)
    assert (local.predict(X) == svc.predict(X)).mean() > 0.998


def test_local_width_is_svc_scale_of_the_neighbourhood():
    X = X3 + 1e4  # far from zero
    local = svelto.LocalSVC(k=40, random_state=0).fit(X, Y3)
    expected = [1.0 / (X.shape[1] * X[rows].var(axis=0).mean()) for rows in local._cover.neighbours]
    assert_allclose(local.gamma_, expected, rtol=1e-6)
    assert np.ptp(local.gamma_) > 0
    for gamma, width in (("scale", 1.0 / (X.shape[1] * X.var())), ("auto", 1.0 / X.shape[1]), (0.7, 0.7)):
        assert_allclose(svelto.LocalSVC(k=40, gamma=gamma, random_state=0).fit(X, Y3).gamma_, width)


def test_nearest_centres_and_several_models():
    train, Z = slice(0, 500), X3[500:]
    local = svelto.LocalSVC(k=50, random_state=0).fit(X3[train], Y3[train])
    sq_dist = ((Z[:, None] - X3[train][None]) ** 2).sum(axis=2)
    nearest = np.argsort(sq_dist, axis=1, kind="stable")[:, :3]
    machines = local._cover.centre_of_row[nearest]
    scores = [local._machines.scores(Z, column) for column in machines.T]
    assert_array_equal(local.set_params(vote=1).decision_function(Z), scores[0])
    assert_array_equal(local.set_params(vote=3).decision_function(Z), np.mean(scores, axis=0))
    by_centre = np.argsort(sq_dist[:, local.centres_], axis=1, kind="stable")[:, :2]
    scores = [local._machines.scores(Z, column) for column in by_centre.T]
    assert_array_equal(local.set_params(assign="centre", vote=2).decision_function(Z), np.mean(scores, axis=0))
    assert local.set_params(vote=10**6).predict(Z).shape == (200,)  # all models


def test_local_search_takes_the_best_of_the_grid_on_held_out_rows():
    rng = np.random.default_rng(0)
    X, y = make_moons(400, noise=0.1, random_state=0)
    y = np.where(rng.random(400) < 0.1, 1 - y, y)
    plain = svelto.LocalSVC(k=100, C=0.01, gamma=0.01, random_state=0).fit(X[:300], y[:300])
    searched = clone(plain).set_params(local_search=True).fit(X[:300], y[:300])
    assert set(np.round(searched.C_ / 0.01, 6)) <= {0.1, 1.0, 10.0, 100.0}
    assert set(np.round(searched.gamma_ / 0.01, 6)) <= {0.25, 1.0, 4.0}
    assert len(set(searched.C_)) > 1
    assert searched.score(X[300:], y[300:]) > plain.score(X[300:], y[300:])
    again = fit_local(
        X[:300],
        y[:300],
        np.arange(searched.n_models_ + 1) * 100,
        searched._cover.neighbours.ravel(),
        kernel=searched._machines.kernel,
        C=searched.C_,
        gamma=searched.gamma_,
    )
    assert_array_equal(searched._machines.models.coef, again.coef)


def test_k_is_chosen_by_cross_validation():
    X, y = make_moons(1200, noise=0.1, random_state=0)
    local = svelto.LocalSVC(kernel="linear", C=10.0, random_state=0).fit(X, y)
    assert local.cv_accuracy_[local.k_] == max(local.cv_accuracy_.values())
    assert local.k_ < 300  # a straight line through all rows is far worse
    assert local.cv_accuracy_[1200] < 0.95 < local.cv_accuracy_[local.k_]
    assert local.k_prime_ == local.k_ // 4
    given = svelto.LocalSVC(k_prime=30, random_state=0).fit(X, y)
    assert min(given.cv_accuracy_) >= 30
    assert given.k_prime_ == 30
    assert not hasattr(given.set_params(k=50).fit(X, y), "cv_accuracy_")


@pytest.mark.parametrize("name", SETS)
def test_probabilities(name):
    X, y = SETS[name]
    local = svelto.LocalSVC(k=80, probability=True, random_state=0).fit(X[:500], y[:500])
    proba = local.predict_proba(X[500:])
    assert_allclose(proba.sum(axis=1), 1.0)
    assert_array_equal(local.classes_[proba.argmax(axis=1)], local.predict(X[500:]))
    # As often right as it says, within what 200 rows can show.
    assert abs(proba.max(axis=1).mean() - local.score(X[500:], y[500:])) < 0.06
    assert not hasattr(svelto.LocalSVC(), "predict_proba")
    unlearned = svelto.LocalSVC(k=80, random_state=0).fit(X, y).set_params(probability=True)
    with pytest.raises(ValueError, match="trained with probability=False; fit again"):
        unlearned.predict_proba(X)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("weighted", [False, True])
def test_added_rows_give_what_their_neighbourhoods_give(name, weighted):
    X, y = SETS[name]
    weight = np.random.default_rng(0).uniform(0.2, 2.0, size=len(X)) if weighted else None

    def part(rows):
        return None if weight is None else weight[rows]

    local = svelto.LocalSVC(k=60, gamma=0.5, random_state=0)
    local.partial_fit(X[:300], y[:300], classes=np.unique(y), sample_weight=part(slice(0, 300)))
    fitted = svelto.LocalSVC(k=60, gamma=0.5, random_state=0).fit(X[:300], y[:300], part(slice(0, 300)))
    assert_array_equal(local.decision_function(X), fitted.decision_function(X))
    before, n_before = local.centres_.copy(), local.n_models_
    local.partial_fit(X[300:305], y[300:305], sample_weight=part(slice(300, 305)))
    local.partial_fit(X[305:], y[305:], sample_weight=part(slice(305, None)))
    assert local.n_models_ > n_before
    assert_array_equal(local.centres_[:n_before], before)
    assert (local._cover.centre_of_row >= 0).all()
    # Each model is that of its centre's nearest rows among all.
    codes = np.searchsorted(np.unique(y), y)
    sq_dist = ((X[local.centres_][:, None] - X[None]) ** 2).sum(axis=2)
    nearest = np.argsort(sq_dist, axis=1, kind="stable")[:, :60]
    start = np.arange(len(nearest) + 1) * 60
    rbf = local._machines.kernel
    expected = fit_local(X, codes, start, nearest.ravel(), kernel=rbf, gamma=0.5, sample_weight=weight)
    for field in ("classes", "class_start", "pair_start", "intercept", "support_start", "support", "coef"):
        assert_array_equal(getattr(local._machines.models, field), getattr(expected, field), err_msg=field)
    assert local.score(X, y) > 0.75


def test_the_same_for_any_threads_search_and_process():
    X, y = X3, Y3
    local = svelto.LocalSVC(k=40, random_state=0, n_jobs=1).fit(X[:500], y[:500])
    expected = local.decision_function(X[500:])
    for other in ({"n_jobs": 2}, {"neighbors": "kd_tree"}, {"neighbors": "brute"}, {"neighbors": "ball_tree"}):
        again = clone(local).set_params(**other).fit(X[:500], y[:500])
        assert_array_equal(again.decision_function(X[500:]), expected)
    assert_array_equal(pickle.loads(pickle.dumps(local)).decision_function(X[500:]), expected)
    order = clone(local).set_params(random_state=1).fit(X[:500], y[:500])
    assert not np.array_equal(order.centres_, local.centres_)


def test_work_counts_what_a_row_meets():
    local = svelto.LocalSVC(k=60, random_state=0, vote=2).fit(X2[:500], Y2[:500])
    work = local.work(X2[500:])
    machines = local._machines_of(X2[500:])
    models = local._machines.models
    assert machines.shape == (200, 2)
    assert work["svms"] == np.mean([[len(range(*models.pair_start[m : m + 2])) for m in row] for row in machines]) * 2
    met = [
        sum(models.support_start[models.pair_start[m + 1]] - models.support_start[models.pair_start[m]] for m in row)
        for row in machines
    ]
    assert_allclose(work["kernel_values"], np.mean(met))
    assert 0.0 < work["one_class"] < 1.0
