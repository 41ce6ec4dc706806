"""method="bounded": every bound gives the exact labels; options, refusals and reports."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, QuantileTransformer, StandardScaler
from sklearn.svm import SVC, SVR, OneClassSVM

import svelto
from machines import random_machine
from oracle import slow_predict
from sklearn_cases import data, read
from svelto.datasets import two_spirals
from svelto.engines.blocked_sum import BlockedSum
from svelto.engines.bounded import BOUNDS

ALL = ("blocks", "paper", "references", "projection")
# References are found by trial, which takes seconds; some of the similar cases are left to `make test-slow`.
SLOW_REFERENCES = [pytest.param(bound, marks=pytest.mark.slow if bound == "references" else ()) for bound in BOUNDS]
KERNELS = ("rbf", "exponential", "laplacian")


def bounded(model, X=None, **options):
    return svelto.accelerate(model, X, method="bounded", random_state=0, **options)


@pytest.fixture(scope="module")
def sharp():
    """Two spirals and a machine with more than sixteen panels, as the blocks ask for."""
    X, y = two_spirals(1400, noise=0.02, random_state=0)
    Z = two_spirals(800, noise=0.05, random_state=1)[0]
    return SVC(C=0.05, gamma=200.0 / np.var(X)).fit(X, y), X, Z


def some(Z, bound):
    """Fewer rows for the bounds that save evaluations and not time."""
    return Z if bound in ("auto", "blocks", "paper") else Z[:100]


def laplace(X, S):
    return np.exp(-0.5 * cdist(X, S, "cityblock"))


# -- labels ------------------------------------------------------------------------------------------------------------


def test_every_bound_is_tested():
    assert set(ALL) == set(BOUNDS) - {"auto"}


@pytest.mark.parametrize("bound", SLOW_REFERENCES)
@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("with_rows", [False, True])
def test_labels_of_svc(bound, n_classes, with_rows):
    X, y, Z = data(n_classes, n_rows=150)
    Z = Z[:60]
    for gamma in (0.05, 2.0):
        svc = SVC(gamma=gamma).fit(X, y)
        fast = bounded(svc, X if with_rows else None, bound=bound)
        assert fast.report.promise == "exact"
        assert fast.report.method == "bounded"
        for rows in (Z, Z.astype(np.float32), Z[::2, :], Z[:1]):
            assert_array_equal(fast.predict(rows), svc.predict(rows))
        assert_array_equal(fast.predict(sparse.csr_matrix(Z)), svc.predict(Z))


@pytest.mark.parametrize("bound", BOUNDS)
def test_labels_of_other_machines(bound):
    X, y, Z = data(3, n_rows=150)
    Z = some(Z, bound)
    one_class = OneClassSVM(gamma=0.3, nu=0.3).fit(X)
    assert_array_equal(bounded(one_class, X, bound=bound).predict(Z), one_class.predict(Z))
    ties = SVC(gamma=1.0, break_ties=True, decision_function_shape="ovr").fit(X, y)
    assert_array_equal(bounded(ties, X, bound=bound).predict(Z), ties.predict(Z))
    rng = np.random.default_rng(0)
    argmax = svelto.KernelMachine.from_arrays(
        kernel="laplacian", gamma=0.4, support_vectors=X, dual_coef=rng.normal(size=(3, 150)), classes=["a", "b", "c"]
    )
    assert_array_equal(bounded(argmax, X, bound=bound).predict(Z), slow_predict(argmax, Z))


@pytest.mark.parametrize("bound", ALL)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_labels_of_exponential_svc(bound, n_classes):
    X, y, Z = data(n_classes, n_rows=250)
    Z = some(Z, bound)
    model = svelto.ExponentialSVC(gamma=0.7, C=4.0).fit(X, y)
    fast = bounded(model, X, bound=bound)
    assert_array_equal(fast.predict(Z), model.predict(Z))
    assert_array_equal(fast.predict(Z), slow_predict(fast.machine, Z))


@pytest.mark.parametrize("bound", SLOW_REFERENCES)
@pytest.mark.parametrize(
    "steps",
    [
        [StandardScaler()],
        [MinMaxScaler(clip=True)],
        [MaxAbsScaler()],
        [PCA(3)],
        [QuantileTransformer(n_quantiles=50)],
        [StandardScaler(), PCA(4), StandardScaler()],
    ],
    ids=str,
)
def test_pipelines(bound, steps):
    X, y, Z = data(3, n_rows=120)
    X, Z = X * 30 + 5, Z[:50] * 30 + 5
    model = make_pipeline(*steps, SVC(gamma=1.0)).fit(X, y)
    for options in ({}, {"save": "evaluations"}):
        for rows in (X, None):
            fast = bounded(model, rows, bound=bound, **options)
            assert_array_equal(fast.predict(Z), model.predict(Z))
            assert_array_equal(fast.predict(Z[:4]), model.predict(Z[:4]))


@pytest.mark.parametrize("bound", ALL)
def test_a_sharp_machine_is_answered_from_parts_of_its_sums(bound, sharp):
    svc, X, Z = sharp
    Z = some(Z, bound)
    # A number of lists is asked for: without one the blocks are also timed, and a clock is not for tests.
    fast = bounded(svc, X, bound=bound, n_lists=64 if bound == "blocks" else None)
    assert_array_equal(fast.predict(Z), svc.predict(Z))
    n_sv = len(svc.support_vectors_)
    work = fast.work(Z)
    assert work["rows"] == len(Z)
    assert sum(work["stages"].values()) == pytest.approx(1.0)
    assert work["stages"]["bounded"] > 0.3
    assert work["kernel_evaluations_per_row"] < (0.9 if bound in ("blocks", "references") else 1.0) * n_sv
    assert fast.nbytes > 0


@pytest.mark.parametrize("bound", SLOW_REFERENCES)
def test_threads_batches_pickles_and_seeds_change_no_label(bound, sharp):
    svc, X, Z = sharp
    Z = some(Z, bound)
    expected = svc.predict(Z)
    for n_jobs in (1, 2):
        fast = bounded(svc, X, bound=bound, n_jobs=n_jobs)
        assert_array_equal(fast.predict(Z), expected)
    parts = [fast.predict(Z[start : start + 37]) for start in range(0, len(Z), 37)]
    assert_array_equal(np.concatenate(parts), expected)
    assert_array_equal(np.concatenate([fast.predict(z[None]) for z in Z[:20]]), expected[:20])
    assert_array_equal(pickle.loads(pickle.dumps(fast)).predict(Z), expected)
    for seed in (1, np.random.RandomState(3), None):
        again = svelto.accelerate(svc, X[:300], method="bounded", bound=bound, random_state=seed)
        assert_array_equal(again.predict(Z), expected)


def test_a_seed_makes_the_same_lists(sharp):
    svc, X, _ = sharp
    first, second = (svelto.accelerate(svc, X, method="bounded", n_lists=8, random_state=5)._engine for _ in range(2))
    assert_array_equal(first.lists["centres"], second.lists["centres"])
    assert_array_equal(first.enabled, second.enabled)
    other = svelto.accelerate(svc, X, method="bounded", n_lists=8, random_state=6)._engine
    assert not np.array_equal(first.lists["centres"], other.lists["centres"])


@pytest.mark.parametrize("bound", BOUNDS)
def test_scores_are_the_exact_engines(bound, sharp):
    svc, X, Z = sharp
    fast = bounded(svc, X, bound=bound)
    error = np.abs(fast.decision_function(Z) - svc.decision_function(Z))
    assert (error <= fast.score_bounds(Z)[:, 0] + 1e-12).all()
    X, y, Z = data(3)
    several = SVC(gamma=0.5).fit(X, y)
    assert_allclose(bounded(several, X, bound=bound).decision_function(Z), several.decision_function(Z), atol=1e-3)


# -- which bound -------------------------------------------------------------------------------------------------------


def test_auto_saves_time_or_evaluations(sharp):
    svc, X, _ = sharp
    for options in ({}, {"save": "time"}, {"save": None}, {"bound": "blocks", "save": "evaluations"}):
        assert isinstance(bounded(svc, X, **options)._engine, BlockedSum)
    fewest = bounded(svc, X, save="evaluations")
    assert fewest.report.details["bound"] in ("references", "projection")
    both = [bounded(svc, X, bound=b).work(X[::20])["kernel_evaluations_per_row"] for b in ("references", "projection")]
    assert fewest.work(X[::20])["kernel_evaluations_per_row"] <= 1.2 * min(both)
    assert bounded(svc, X, bound="paper", save="evaluations").report.details["bound"] == "paper"


@pytest.mark.slow
def test_kernel_functions_save_evaluations():
    X, y, Z = data(3, n_rows=120)
    svc = SVC(kernel=laplace, C=10.0).fit(X, y)
    with pytest.raises(NotImplementedError, match=r"rbf, exponential, laplacian, or a callable registered"):
        bounded(svc)
    svelto.register_bound(laplace, profile=lambda t: np.exp(-0.5 * t), inverse=lambda v: -2 * np.log(v))
    for options in ({}, {"save": "time"}, {"bound": "references"}, {"bound": "projection"}):
        fast = bounded(svc, X, **options)
        assert_array_equal(fast.predict(Z), svc.predict(Z))
        assert fast.report.details["bound"] in ("references", "projection")
        assert fast.report.promise == "exact"
        assert fast.report.details["kernel evaluations to build"] > 0
    for bound in ("blocks", "paper"):
        message = (
            rf"bound='{bound}' needs vectors and the rbf, exponential or laplacian kernel; this machine has "
            r"callable\(laplace\)\. Use bound='auto', 'references' or 'projection'\."
        )
        with pytest.raises(ValueError, match=message):
            bounded(svc, bound=bound)


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"bound": "ball"}, ValueError, r"bound is 'ball'; expected one of 'auto', 'blocks', 'paper', 'references', '"),
        ({"bound": None}, ValueError, r"bound is None; expected one of"),
        ({"save": "space"}, ValueError, r"save is 'space'; expected one of 'time', 'evaluations', None\."),
        ({"n_lists": 0}, ValueError, r"n_lists is 0; expected a whole number of at least 1 or None\."),
        ({"n_lists": 2.5}, ValueError, r"n_lists is 2\.5; expected a whole number of at least 1 or None\."),
        ({"n_lists": True}, ValueError, r"n_lists is True; expected"),
        ({"n_references": -3}, ValueError, r"n_references is -3; expected a whole number of at least 1 or None\."),
        ({"shared": 1}, ValueError, r"shared is 1; expected True or False\."),
        ({"leaf_size": 3}, TypeError, r"'bounded' has no option 'leaf_size'; it has: bound, save, n_lists, n_refer"),
        ({"precision": "float32"}, TypeError, r"method='bounded' has no option 'precision'"),
    ],
    ids=str,
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=message):
        bounded(random_machine(), **options)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("kernel", ["poly", "linear", "sigmoid"])
def test_kernels_without_a_distance_are_refused(kernel, bound):
    with pytest.raises(NotImplementedError, match=rf"rbf, exponential, laplacian.*{kernel}.*method='exact'"):
        bounded(random_machine(kernel), bound=bound)


@pytest.mark.parametrize("bound", BOUNDS)
def test_machines_without_labels_of_their_own_are_refused(bound):
    X, y, _ = data()
    with pytest.raises(NotImplementedError, match=r"is a regressor and has no labels\. Use method='exact'\."):
        bounded(SVR().fit(X, y), bound=bound)
    calibrated = CalibratedClassifierCV(SVC(), ensemble=False).fit(X, y)
    with pytest.raises(
        NotImplementedError, match=r"CalibratedClassifierCV predicts from probabilities.*accelerate the classifier"
    ):
        bounded(calibrated, bound=bound)


@pytest.mark.parametrize("bound", BOUNDS)
def test_bad_rows_are_refused_as_by_the_exact_method(bound, sharp):
    svc, X, Z = sharp
    fast, exact = bounded(svc, X, bound=bound), svelto.accelerate(svc)
    bad = Z.copy()
    bad[456, 1] = np.nan
    for rows in (bad, bad[440:460], bad[450:460].astype(np.float32), Z[:, :1], Z[:0], sparse.csr_matrix(bad), "rows"):
        with pytest.raises((ValueError, TypeError)) as expected:
            exact.predict(rows)
        with pytest.raises(type(expected.value)) as got:
            fast.predict(rows)
        assert str(got.value) == str(expected.value)
    with pytest.raises(ValueError, match="row 6"):
        bounded(svc, bad[450:], bound=bound)
    with pytest.raises(ValueError, match="trained on 2 features; X has 1"):
        bounded(svc, X[:, :1], bound=bound)


# -- reports -----------------------------------------------------------------------------------------------------------


def test_report_of_blocks(sharp):
    svc, X, _ = sharp
    report = bounded(svc, X, n_lists=32).report
    n_sv = len(svc.support_vectors_)
    details, work = report.details, report.work
    assert details["bound"] == "blocks"
    assert 1 <= details["lists in use"] <= details["lists"] <= 32
    assert 0.0 < details["expected share of the whole sum's cost"] < 1.0
    assert details["support vectors"] == work["kernel evaluations a row, whole sum"] == n_sv
    assert 0 < work["kernel evaluations a row, on rows of X"] < n_sv
    assert report.build_seconds > 0
    assert "exact: the label of every row equals" in str(report)
    assert "lists in use" in report._repr_html_()
    assert "kernel evaluations a row, on rows of X" not in bounded(svc).report.work
    small = bounded(random_machine(n_sv=40)).report.details
    assert small["lists in use"].startswith("none: they would settle too little")


def test_reports_of_the_other_bounds(sharp):
    svc, X, _ = sharp
    details = bounded(svc, X, bound="paper", n_lists=7).report.details
    assert (details["bound"], details["lists"]) == ("paper", 7)
    assert details["kernel evaluations a row, classical"] == len(svc.support_vectors_)
    details = bounded(svc, X, bound="references", n_references=9).report.details
    assert (details["bound"], details["references"]) == ("references", 9)
    assert "basis vectors" not in details
    details = bounded(svc, X, bound="projection").report.details
    assert details["basis vectors"] <= len(svc.support_vectors_)
    assert details["kernel evaluations to build"] > 0
    X, y, Z = data(4, n_rows=200)
    several = SVC(gamma=0.5).fit(X, y)
    for shared, word in ((True, "yes"), (False, "no")):
        fast = bounded(several, X, bound="paper", shared=shared)
        assert fast.report.details["kernel values shared by the binary machines"] == word
        assert_array_equal(fast.predict(Z), several.predict(Z))
    # One by one: every machine evaluates the vectors that have a weight in it.
    assert fast.report.details["kernel evaluations a row, classical"] == np.count_nonzero(several.dual_coef_)


def test_machines_and_model_files(tmp_path):
    X, y, Z = data(3)
    svc = SVC(gamma=0.5).fit(X, y)
    machine = read(svc)
    machine.to_libsvm(tmp_path / "model")
    for bound in ALL:
        assert_array_equal(bounded(machine, bound=bound).predict(Z), svc.predict(Z))
        assert_array_equal(bounded(str(tmp_path / "model"), bound=bound).predict(Z), svc.predict(Z))
