"""Votes and probabilities, compared with LIBSVM: scikit-learn's copy of it and the installed tools."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.svm import SVC
from sklearn.utils.multiclass import _ovr_decision_function

from oracle import class_pairs
from svelto.probability import Calibration, Isotonic, PlattPairs, Sigmoid, Temperature, one_class_probability
from svelto.voting import ovr_decision, pairs, predict_pairs, sorted_pairs, votes

CLASSES = [2, 3, 5, 10]


def random_scores(n_classes: int, n_rows: int = 500) -> np.ndarray:
    rng = np.random.default_rng(n_classes)
    scores = rng.normal(size=(n_rows, n_classes * (n_classes - 1) // 2)) * rng.choice([0.01, 1, 100], size=(n_rows, 1))
    scores[rng.random(scores.shape) < 0.1] = 0.0  # a zero is a vote for the second class of the pair
    return scores


# -- votes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", CLASSES)
def test_votes_and_winner_match_the_definition(n_classes):
    scores = random_scores(n_classes)
    counts = votes(scores, n_classes)
    winner = predict_pairs(scores, n_classes)
    for row, count, won in zip(scores, counts, winner, strict=True):
        expected = [0] * n_classes
        for score, (i, j) in zip(row, class_pairs(n_classes), strict=True):
            expected[i if score > 0 else j] += 1
        assert count.tolist() == expected
        assert won == expected.index(max(expected))  # ties: the earlier class


@pytest.mark.parametrize("n_classes", CLASSES[1:])
def test_ovr_decision_repeats_scikit_learn_bit_for_bit(n_classes):
    scores = random_scores(n_classes)
    assert_array_equal(ovr_decision(scores, n_classes), _ovr_decision_function(scores < 0, -scores, n_classes))


def test_sorted_pairs_moves_columns_and_flips_signs():
    # Vote order c, a, b: the pairs are (c, a), (c, b), (a, b); sorted they are (a, b), (a, c), (b, c).
    scores = np.array([[1.0, 2.0, 3.0]])
    assert_array_equal(sorted_pairs(scores, np.array([2, 0, 1])), [[3.0, -1.0, -2.0]])
    assert_array_equal(sorted_pairs(scores, np.arange(3)), scores)
    assert list(pairs(3)) == [(0, 1), (0, 2), (1, 2)]


# -- LIBSVM's probabilities ------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The `probability` parameter:FutureWarning")
@pytest.mark.parametrize("n_classes", CLASSES)
def test_platt_pairs_match_scikit_learn(n_classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30 * n_classes, 4))
    y = np.arange(len(X)) % n_classes
    X[np.arange(len(X)), y % 4] += 1.0 + y / 4
    svc = SVC(probability=True, decision_function_shape="ovo", random_state=0).fit(X, y)
    Z = np.vstack([rng.normal(size=(2000, 4)) * 3, 50 * rng.normal(size=(50, 4))])
    decision = svc.decision_function(Z)
    scores = -decision[:, None] if n_classes == 2 else decision
    platt = PlattPairs(svc._probA, svc._probB, iterate_two=True)
    # Same operations in the same order; only exp may differ in its last bit.
    assert_allclose(platt.probabilities(scores, n_classes), svc.predict_proba(Z), rtol=0, atol=1e-12)


def slow_coupling(chance: np.ndarray, k: int) -> np.ndarray:
    """Minimise p' Q p over the simplex for one row by solving the linear system of Wu, Lin and Weng's equation (21)."""
    r = np.zeros((k, k))
    for value, (i, j) in zip(chance, class_pairs(k), strict=True):
        r[i, j], r[j, i] = value, 1 - value
    Q = -r * r.T
    np.fill_diagonal(Q, (r**2).sum(axis=0))
    system = np.block([[Q, np.ones((k, 1))], [np.ones((1, k)), np.zeros((1, 1))]])
    return np.linalg.solve(system, np.append(np.zeros(k), 1.0))[:k]


@pytest.mark.parametrize("n_classes", CLASSES[1:])
def test_coupling_is_near_the_exact_minimum_and_independent_of_neighbours(n_classes):
    scores = np.random.default_rng(1).normal(size=(300, n_classes * (n_classes - 1) // 2))
    platt = PlattPairs(np.full(scores.shape[1], -1.5), np.full(scores.shape[1], 0.1))
    got = platt.probabilities(scores, n_classes)
    exact = [slow_coupling(1 / (1 + np.exp(-1.5 * row + 0.1)), n_classes) for row in scores]
    assert_allclose(got, exact, atol=0.02)  # LIBSVM stops early, at 0.005 / n_classes in the gradient
    assert_allclose(got.sum(axis=1), 1.0, rtol=1e-12)
    one_by_one = np.vstack([platt.probabilities(row[None], n_classes) for row in scores])
    assert_array_equal(got, one_by_one)


def test_blocks_of_rows_do_not_change_the_answer(monkeypatch):
    scores = random_scores(5, 100)
    platt = PlattPairs(np.full(10, -1.0), np.zeros(10))
    whole = platt.probabilities(scores, 5)
    monkeypatch.setattr("svelto.probability._BLOCK_ENTRIES", 7 * 25)
    assert_array_equal(platt.probabilities(scores, 5), whole)
    assert platt.probabilities(scores[:0], 5).shape == (0, 5)


def test_two_classes_directly_or_by_iteration():
    scores = np.linspace(-5, 5, 101)[:, None]
    direct = PlattPairs([-1.0], [0.25]).probabilities(scores, 2)
    assert_allclose(direct[:, 0], 1 / (1 + np.exp(-scores[:, 0] + 0.25)), rtol=1e-14)
    iterated = PlattPairs([-1.0], [0.25], iterate_two=True).probabilities(scores, 2)
    assert 1e-4 < np.abs(direct - iterated).max() < 0.02


def test_far_scores_are_clipped_as_in_libsvm():
    far = np.array([[1e6], [-1e6]])
    assert_allclose(PlattPairs([-1.0], [0.0]).probabilities(far, 2)[:, 0], [1 - 1e-7, 1e-7], rtol=1e-14)


@pytest.mark.skipif(shutil.which("svm-predict") is None, reason="LIBSVM's tools are not installed")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_platt_pairs_match_svm_predict(tmp_path, n_classes):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(120, 2)).round(2)
    y = np.arange(120) % n_classes
    X[:, 0] += y
    lines = [f"{label} 1:{a!r} 2:{b!r}\n" for label, (a, b) in zip(y.tolist(), X.tolist(), strict=True)]
    (tmp_path / "train").write_text("".join(lines))
    for command in (
        ["svm-train", "-q", "-b", "1", "train", "model"],
        ["svm-predict", "-b", "1", "train", "model", "out"],
    ):
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    header, _, body = (tmp_path / "model").read_text().partition("SV\n")
    values = {line.split()[0]: np.array(line.split()[1:], dtype=float) for line in header.splitlines()[2:]}
    rows = [line.split() for line in body.splitlines()]
    coef = np.array([row[: n_classes - 1] for row in rows], dtype=float).T
    vectors = np.zeros((len(rows), 2))
    for vector, row in zip(vectors, rows, strict=True):
        for cell in row[n_classes - 1 :]:
            vector[int(cell.split(":")[0]) - 1] = float(cell.split(":")[1])
    K = np.exp(-values["gamma"] * ((X[:, None] - vectors[None]) ** 2).sum(axis=-1))
    stop = np.cumsum(values["nr_sv"].astype(int))
    start = np.append(0, stop[:-1])
    scores = np.column_stack(
        [
            K[:, start[i] : stop[i]] @ coef[j - 1, start[i] : stop[i]]
            + K[:, start[j] : stop[j]] @ coef[i, start[j] : stop[j]]
            - values["rho"][pair]
            for pair, (i, j) in enumerate(class_pairs(n_classes))
        ]
    )
    printed = np.loadtxt(tmp_path / "out", skiprows=1)[:, 1:]  # the model's own class order, as ours
    got = PlattPairs(values["probA"], values["probB"]).probabilities(scores, n_classes)
    assert_allclose(got, printed, atol=2e-6)  # six digits are printed


def test_one_class_probability_repeats_libsvm():
    marks = np.linspace(-1, 1, 10)
    between = (marks[:-1] + marks[1:]) / 2
    assert_allclose(one_class_probability(between, marks), np.arange(1, 10) / 10)
    edges = np.array([-2.0, marks[0], marks[3], marks[9], 2.0])
    assert_allclose(one_class_probability(edges, marks), [0.001, 0.1, 0.4, 0.0, 0.999])


# -- messages --------------------------------------------------------------------------------------------------------


def test_wrong_numbers_are_named():
    with pytest.raises(ValueError, match="probA contains nan; expected finite"):
        PlattPairs([np.nan], [0.0])
    with pytest.raises(ValueError, match="probA has 1 values and probB 2"):
        PlattPairs([1.0], [0.0, 1.0])
    with pytest.raises(ValueError, match="3 classes need 3 pairs; there are 1 sigmoids and 3 scores"):
        PlattPairs([1.0], [0.0]).probabilities(np.zeros((2, 3)), 3)
    with pytest.raises(ValueError, match=r"a=inf, b=0\.0; expected finite"):
        Sigmoid(np.inf, 0.0)
    with pytest.raises(ValueError, match="isotonic calibrator has y = nan"):
        Isotonic([0.0], [np.nan])
    with pytest.raises(ValueError, match="has 2 x and 2 y; expected as many, at least one, and x in rising order"):
        Isotonic([1.0, 0.0], [0.0, 1.0])
    with pytest.raises(ValueError, match="beta=nan; expected a finite number"):
        Temperature(np.nan)


def test_all_zero_calibrators_give_equal_probabilities():
    zero = Isotonic([0.0], [0.0])
    proba = Calibration("isotonic", (zero, zero, zero)).probabilities(np.zeros((2, 3)), 3)
    assert_array_equal(proba, np.full((2, 3), 1 / 3))
