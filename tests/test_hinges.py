"""Hinges as a stage: every kind of machine, rows of every kind, and requests that make no sense."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import make_blobs, make_moons
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, SVR, OneClassSVM

import svelto
from svelto._inputs import Query
from svelto.engines.exact import build_exact
from svelto.engines.hinges import HingeOptions, HingeStage, build_hinges
from svelto.engines.stage_costs import READ_COST, ROW_COST, VOTE_COST
from svelto.oracle import Neighbourhoods
from svelto.voting import pairs, votes

FAST = {"method": "hinges", "random_state": 0, "n_jobs": 1, "oracle_rows": 4000, "max_epochs": 4}
X, Y = make_moons(4000, noise=0.2, random_state=0)
NEW = make_moons(3000, noise=0.2, random_state=1)[0]
BLOBS, COLOURS = make_blobs(4000, centers=5, n_features=4, cluster_std=2.0, random_state=0)
NEW_BLOBS = make_blobs(4000, centers=5, n_features=4, cluster_std=2.0, random_state=0)[0] + 0.05
FAR, FAR_COLOURS = make_blobs(3000, centers=[[-4.0, 0.0], [4.0, 0.0]], random_state=0)


@pytest.fixture(autouse=True)
def stages_pay(monkeypatch):
    """Small machines keep tests fast, but against them no stage pays, and none would be used: here every one does."""
    monkeypatch.setattr("svelto.stage_search.PAYS", 1e9)


def stage_of(fast) -> HingeStage:
    (stage,) = fast._engine.stages
    assert isinstance(stage, HingeStage)
    return stage


def test_native_scores_are_the_formula():
    stage = stage_of(svelto.accelerate(SVC().fit(X, Y), X, n_hinges=20, agreement=None, **FAST))
    scores, errors = stage.scores(Query(NEW), 1)
    assert stage.n_hinges == 20
    assert_allclose(scores, stage.hinges.scores(NEW), rtol=1e-4, atol=1e-4)
    assert_array_equal(errors, np.broadcast_to(stage.error, scores.shape))


@pytest.mark.parametrize("n_hinges", [(9,), (9, 5), (16, 31)])
def test_native_scores_of_layers_are_the_formula(n_hinges):
    """One score, pair scores, and classes."""
    svc, colours = SVC().fit(X, Y), SVC().fit(BLOBS, COLOURS)
    given = {"n_hinges": n_hinges, "agreement": None, **FAST}
    for model, rows, new, answers in (
        (svc, X, NEW, "scores"),
        (colours, BLOBS, NEW_BLOBS, "scores"),
        (colours, BLOBS, NEW_BLOBS, "classes"),
    ):
        stage = stage_of(svelto.accelerate(model, rows, answers=answers, **given))
        assert stage.n_hinges == (n_hinges if len(n_hinges) == 2 else n_hinges[0])
        assert stage.hinges.sizes == n_hinges
        assert_allclose(stage.scores(Query(new), 1)[0], stage.hinges.scores(new), rtol=1e-3, atol=1e-3)
        assert_array_equal(pickle.loads(pickle.dumps(stage)).scores(Query(new), 1)[0], stage.scores(Query(new), 1)[0])


def test_error_scales_are_those_of_rows_that_were_held_back():
    """By the definition: residuals weigh by how near the score is to zero, and by the winner's part in it."""
    colours = SVC().fit(BLOBS, COLOURS)
    machine = svelto.accelerate(colours, method="exact")._engine.machine
    exact = build_exact(machine).scores(Query(BLOBS), 1)
    options = HingeOptions(n_hinges=8, answers="scores", max_epochs=2)
    stage = build_hinges(machine, BLOBS, options, BLOBS, exact, with_errors=True, seed=3)
    held = np.random.default_rng([3, 8]).random(len(BLOBS)) >= 0.85
    counts = votes(exact[held], 5)
    for column, (i, j) in enumerate(pairs(5)):
        score = exact[held, column]
        weight = 1.0 / (1.0 + (score / (0.5 * np.median(np.abs(score)))) ** 2)
        weight[(counts[:, i] < counts.max(axis=1)) & (counts[:, j] < counts.max(axis=1))] *= 0.02
        residual = score - stage.hinges.scores(BLOBS[held])[:, column]
        expected = np.sqrt((weight * residual**2).sum() / weight.sum())
        assert_allclose(stage.error[column], expected, rtol=1e-4)


def test_what_layers_cost():
    """Multiply-adds of padded columns; bytes of all weights."""
    stage = stage_of(svelto.accelerate(SVC().fit(X, Y), X, n_hinges=(20, 40), agreement=None, **FAST))
    assert stage.operations() == (2 + 2) * 32 + (20 + 2) * 48 + READ_COST * 2 + ROW_COST
    assert stage.nbytes == 4 * (2 * 21 + 21 + 20 * 41 + 41 + 40) + 8 * (1 + 2)
    assert stage.cost(Query(NEW)) == {"dot_products_per_row": 61.0}
    several = stage_of(
        svelto.accelerate(SVC().fit(BLOBS, COLOURS), BLOBS, n_hinges=(20, 40), answers="scores", agreement=None, **FAST)
    )
    assert several.operations() == (
        (4 + 2) * 32 + (20 + 2) * 64 + 40 * 16 + READ_COST * 4 + ROW_COST + VOTE_COST * len(set(COLOURS))
    )


def test_two_layers_keep_the_promise():
    svc = SVC(C=5.0).fit(X, Y)
    fast = svelto.accelerate(svc, X, n_hinges=(31, 15), next_stage=None, **FAST)
    assert fast.report.promise == "statistical"
    assert fast.report.details["hinges"] == (31, 15)
    assert (fast.predict(NEW) == svc.predict(NEW)).mean() >= 0.997
    assert fast.work(NEW)["stages"]["hinges"] > 0.3


def test_the_fit_ends_where_nothing_is_left_to_gain():
    """Two classes far apart: hinges agree after the first pass; without a wanted agreement all passes are made."""
    machine = svelto.accelerate(SVC(gamma=0.2).fit(FAR, FAR_COLOURS), method="exact")._engine.machine
    exact = build_exact(machine).scores(Query(FAR), 1)
    passes = {}
    for agreement in (None, 0.99):
        told = []
        stage = build_hinges(
            machine,
            FAR,
            HingeOptions(n_hinges=8, answers="scores"),
            FAR,
            exact,
            with_errors=True,
            seed=0,
            agreement=agreement,
            progress=told.append,
        )
        passes[agreement] = len(told)
        assert ((stage.hinges.scores(FAR) > 0) == (exact > 0)).mean() > 0.999
    assert passes == {None: 10, 0.99: 1}


@pytest.mark.parametrize("answers", ["scores", "classes", "auto"])
def test_several_classes(answers):
    svc = SVC(C=5.0).fit(BLOBS, COLOURS)
    fast = svelto.accelerate(svc, BLOBS, answers=answers, n_hinges=32, next_stage=None, **FAST)
    assert fast.report.promise == "statistical"
    assert (fast.predict(NEW_BLOBS) == svc.predict(NEW_BLOBS)).mean() >= 0.997
    assert fast.work(NEW_BLOBS)["stages"]["hinges"] > 0.1
    if answers != "auto":
        assert stage_of(fast).by_class == (answers == "classes")
    if stage_of(fast).by_class:  # scores are those of the exact engine
        assert_allclose(fast.decision_function(NEW_BLOBS), svc.decision_function(NEW_BLOBS), atol=1e-4)


def test_two_classes_outliers_and_values():
    svc, outliers, values = SVC().fit(X, Y), OneClassSVM(nu=0.2, gamma=1.0).fit(X), SVR(C=5.0).fit(X, np.sin(X[:, 0]))
    longer = {**FAST, "oracle_rows": 20_000, "max_epochs": 12, "n_hinges": 63, "next_stage": None}
    for model in (svc, outliers):
        fast = svelto.accelerate(model, X, **longer)
        assert (fast.predict(NEW) == model.predict(NEW)).mean() >= 0.997
        assert fast.work(NEW)["stages"]["hinges"] > 0.3
    fast = svelto.accelerate(values, X, tolerance=0.1, **{**longer, "max_epochs": 40})
    assert (np.abs(fast.predict(NEW) - values.predict(NEW)) <= 0.1).mean() >= 0.997
    assert fast.work(NEW)["stages"]["hinges"] > 0.3


def test_rows_of_every_kind_get_the_same_labels():
    fast = svelto.accelerate(SVC().fit(X, Y), X, n_hinges=16, **FAST)
    expected = fast.predict(NEW)
    for rows in (np.asfortranarray(NEW), sparse.csr_matrix(NEW), sparse.csr_array(NEW), NEW.tolist()):
        assert_array_equal(fast.predict(rows), expected)
    assert_array_equal(np.concatenate([fast.predict(row[None]) for row in NEW[:50]]), expected[:50])
    assert_array_equal(np.concatenate([fast.predict(NEW[at : at + 7]) for at in range(0, 700, 7)]), expected[:700])
    assert_array_equal(pickle.loads(pickle.dumps(fast)).predict(NEW), expected)


@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler(clip=True)], ids=str)
def test_scalers_in_front(scaler):
    wide = X * [100.0, 0.01] + [5.0, -3.0]
    model = make_pipeline(scaler, SVC()).fit(wide, Y)
    new = NEW * [100.0, 0.01] + [5.0, -3.0]
    fast = svelto.accelerate(model, wide, **FAST)
    assert (fast.predict(new) == model.predict(new)).mean() >= 0.997


def test_the_same_seed_gives_the_same_predictor():
    svc = SVC().fit(X, Y)
    one, again = (svelto.accelerate(svc, X, next_stage=None, **FAST) for _ in range(2))
    assert_array_equal(stage_of(one).hinges.weights[0], stage_of(again).hinges.weights[0])
    assert one._engine.thresholds == again._engine.thresholds


def test_the_same_seed_gives_the_same_sequence():
    svc = SVC(C=10.0, gamma=20.0).fit(X, Y)
    one, again = (svelto.accelerate(svc, X, next_stage="reduced_set", **FAST)._engine for _ in range(2))
    assert [stage.name for stage in one.stages] == [stage.name for stage in again.stages]
    assert one.thresholds == again.thresholds
    assert_array_equal(one.stages[-1].reduced.support_vectors, again.stages[-1].reduced.support_vectors)


def test_a_reduced_set_may_follow():
    svc = SVC(C=10.0, gamma=20.0).fit(X, Y)
    fast = svelto.accelerate(svc, X, n_hinges=8, next_stage="reduced_set", **FAST)
    assert list(fast.work(NEW)["stages"]) == ["hinges", "reduced_set", "exact"]
    assert (fast.predict(NEW) == svc.predict(NEW)).mean() >= 0.997


def test_the_report_names_the_hinges():
    fast = svelto.accelerate(SVC().fit(X, Y), X, n_hinges=24, **FAST)
    assert fast.report.details["hinges"] == 24
    assert "hinges" in str(fast.report)


def test_categories_are_never_invented():
    """Made rows of one-hot features are one-hot; numbers beside them are moved."""
    rng = np.random.default_rng(0)
    rows = np.hstack([np.eye(4)[rng.integers(4, size=3000)], rng.normal(size=(3000, 2))])
    made = Neighbourhoods(rows, 0, 1).shifted(2000, 0.7, rng)
    assert set(np.unique(made[:, :4])) == {0.0, 1.0}
    assert_array_equal(made[:, :4].sum(axis=1), 1.0)
    assert len(np.unique(made[:, 4])) > 1900


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_hinges": 0}, ValueError, "n_hinges is 0; expected a whole number of at least 1 or 'auto'"),
        ({"n_hinges": ()}, ValueError, r"n_hinges is \(\); expected .* or a tuple of one or two such numbers"),
        ({"n_hinges": (4, 4, 4)}, ValueError, r"n_hinges is \(4, 4, 4\); expected"),
        ({"n_hinges": (16, 0)}, ValueError, r"n_hinges\[1\] is 0; expected a whole number of at least 1"),
        ({"n_hinges": (2.5,)}, ValueError, r"n_hinges\[0\] is 2.5; expected"),
        ({"n_hinges": "many"}, ValueError, "n_hinges is 'many'; expected"),
        ({"max_epochs": 0}, ValueError, "max_epochs is 0"),
        ({"answers": "votes"}, ValueError, "answers is 'votes'; expected one of"),
        ({"answers": "classes"}, ValueError, "answers='classes' is for machines of three classes"),
        ({"leaf_size": 3}, TypeError, "method='hinges' has no option 'leaf_size'; it has: n_hinges, answers"),
        ({"agreement": 1.0}, NotImplementedError, "agreement=1.0 needs a proven bound"),
    ],
)
def test_requests_that_make_no_sense(options, error, message):
    with pytest.raises(error, match=message):
        svelto.accelerate(SVC().fit(X, Y), X, **{"method": "hinges", **options})


def test_kernels_that_have_no_use_for_hinges():
    with pytest.raises(ValueError, match="A linear machine is already one product a score"):
        svelto.accelerate(SVC(kernel="linear").fit(X, Y), X, method="hinges")
    with pytest.raises(NotImplementedError, match="Hinges need a kernel on vectors"):
        svelto.accelerate(SVC(kernel=lambda A, B: A @ B.T).fit(X, Y), X, method="hinges")
    with pytest.raises(ValueError, match="method='hinges' learns from rows: pass X"):
        svelto.accelerate(SVC().fit(X, Y), method="hinges")
