"""from_arrays: machines of other origin, in their own layout and signs, and what it refuses."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC, OneClassSVM

import svelto
from oracle import slow_decision_function, slow_predict
from sklearn_cases import data
from svelto import KernelMachine

build = KernelMachine.from_arrays


def rbf(X, S, gamma):
    return np.exp(-gamma * ((X[:, None, :] - S[None, :, :]) ** 2).sum(axis=-1))


def least_squares(K, Y, ridge=0.1):
    """LS-SVM: the linear system [[0, 1'], [1, K + ridge I]] (b, alpha) = (0, Y)."""
    n = len(K)
    system = np.block([[np.zeros((1, 1)), np.ones((1, n))], [np.ones((n, 1)), K + ridge * np.eye(n)]])
    solution = np.linalg.solve(system, np.vstack([np.zeros((1, Y.shape[1])), Y]))
    return solution[1:].T, solution[0]


@pytest.mark.parametrize("classes", [[-1, 1], [1, -1], ["yes", "no"], [0.5, 0.25], [True, False]], ids=str)
def test_two_classes_are_positive_towards_the_second(classes):
    X, y, Z = data()
    coef, intercept = least_squares(rbf(X, X, 0.3), np.where(y == 1, 1.0, -1.0)[:, None])
    score = rbf(Z, X, 0.3) @ coef[0] + intercept[0]
    expected = np.where(score > 0, classes[1], classes[0])
    assert len(set(expected)) == 2
    machine = build(
        kernel="rbf", gamma=0.3, support_vectors=X, dual_coef=coef[0], intercept=intercept[0], classes=classes
    )
    fast = svelto.accelerate(machine, precision="float64")
    assert_array_equal(fast.predict(Z), expected)
    assert_array_equal(np.concatenate([fast.predict(z[None]) for z in Z]), expected)
    assert fast.predict(Z).dtype == np.array(classes).dtype
    # scikit-learn's decision function is positive towards the class that sorts last.
    sign = 1 if classes[1] == max(classes) else -1
    assert_allclose(fast.decision_function(Z), sign * score, rtol=0, atol=1e-12 * np.abs(coef).sum())
    assert_array_equal(fast.classes_, np.sort(classes))
    assert (machine.task, machine.rule, machine.svm_type, machine.source) == (
        "classification",
        "pairs",
        "c_svc",
        "arrays",
    )


def test_one_score_a_class():
    X, y, Z = data(4)
    classes = np.array(["d", "b", "a", "c"])
    coef, intercept = least_squares(rbf(X, X, 0.3), 2.0 * np.eye(4)[y] - 1)
    scores = rbf(Z, X, 0.3) @ coef.T + intercept
    machine = build(kernel="rbf", gamma=0.3, support_vectors=X, dual_coef=coef, intercept=intercept, classes=classes)
    fast = svelto.accelerate(machine, precision="float64")
    assert_array_equal(fast.predict(Z), classes[scores.argmax(axis=1)])
    assert set(fast.predict(Z)) == set("abcd")
    assert_allclose(fast.decision_function(Z), scores[:, [2, 1, 3, 0]], rtol=0, atol=1e-12 * np.abs(coef).sum())


def test_one_against_one():
    X, y, Z = data(4)
    svc = SVC(gamma=0.3).fit(X, y)
    arrays = {"support_vectors": svc.support_vectors_, "dual_coef": svc.dual_coef_, "intercept": svc.intercept_}
    machine = build(kernel="rbf", gamma=0.3, classes=svc.classes_, n_support=svc.n_support_, **arrays)
    assert machine.is_grouped
    assert_array_equal(svelto.accelerate(machine).predict(Z), svc.predict(Z))
    # The same votes for classes that come in another order.
    names = np.array(["z", "m", "a", "k"])
    renamed = build(kernel="rbf", gamma=0.3, classes=names, n_support=svc.n_support_, **arrays)
    fast = svelto.accelerate(renamed)
    assert_array_equal(fast.predict(Z), names[svc.predict(Z)])
    assert_allclose(fast.decision_function(Z), slow_decision_function(renamed, Z), rtol=0, atol=1e-4)


def test_regression_and_outliers():
    X, y, Z = data()
    ridge = KernelRidge(kernel="laplacian", gamma=0.2).fit(X, np.column_stack([y, X[:, 0]]))
    machine = build(kernel="laplacian", gamma=0.2, support_vectors=X, dual_coef=ridge.dual_coef_.T)
    assert (machine.task, machine.svm_type) == ("regression", "epsilon_svr")
    assert_array_equal(machine.intercept, [0.0, 0.0])
    assert_allclose(svelto.accelerate(machine).predict(Z), ridge.predict(Z), rtol=1e-9, atol=1e-10)
    one = build(kernel="laplacian", gamma=0.2, support_vectors=X, dual_coef=ridge.dual_coef_[:, 0], intercept=2)
    assert_allclose(svelto.accelerate(one).predict(Z), ridge.predict(Z)[:, 0] + 2, rtol=1e-9, atol=1e-10)
    svm = OneClassSVM(gamma=0.2).fit(X)
    machine = build(
        kernel="rbf", gamma=0.2, support_vectors=svm.support_vectors_, dual_coef=svm.dual_coef_,
        intercept=svm.intercept_, task="outlier",
    )  # fmt: skip
    assert machine.svm_type == "one_class"
    assert_array_equal(svelto.accelerate(machine).predict(Z), svm.predict(Z))


def test_one_intercept_for_all_scores():
    S = np.random.default_rng(0).normal(size=(6, 2))
    for coef, options, n in [
        (np.ones((3, 6)), {"classes": [1, 2, 3]}, 3),
        (np.ones((3, 6)), {"classes": [1, 2, 3, 4], "n_support": [1, 1, 2, 2]}, 6),
        (np.ones((2, 6)), {}, 2),
        (np.ones(6), {"classes": [1, 2], "n_support": [3, 3]}, 1),
    ]:
        coef[..., 0] = 2.0
        if n == 3:
            machine = build(kernel="rbf", support_vectors=S, dual_coef=coef, intercept=0.5, **options)
        else:
            machine = build(kernel="rbf", support_vectors=S, dual_coef=coef, intercept=np.array(0.5), **options)
        assert_array_equal(machine.intercept, np.full(n, 0.5))


def common_letters(A, B):
    return np.array([[len(set(a) & set(b)) for b in B] for a in A])


def test_kernel_functions_on_objects():
    machine = build(kernel=common_letters, support_vectors=("abc", "xyz"), dual_coef=[-1, 1], classes=["low", "high"])
    assert machine.n_features is None
    fast = svelto.accelerate(machine)
    assert_array_equal(fast.predict(["ab", "xq", "cz", ""]), ["low", "high", "low", "low"])  # a tie is not positive
    assert_array_equal(fast.decision_function(["ab", "xq"]), [2.0, -1.0])  # "low" sorts last
    rows = build(kernel=lambda A, B: A @ B.T, support_vectors=np.eye(3), dual_coef=[1, 2, 3])
    assert rows.n_features == 3
    assert_array_equal(svelto.accelerate(rows).predict(np.eye(3)), [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    "wrap", [np.ndarray.tolist, np.asfortranarray, np.float32, sparse.csc_array, sparse.coo_matrix]
)
def test_array_likes(wrap):
    rng = np.random.default_rng(0)
    S, coef, Z = np.round(rng.normal(size=(9, 3)) * 8) / 8, np.round(rng.normal(size=9) * 8), rng.normal(size=(50, 3))
    expected = slow_predict(build(kernel="poly", support_vectors=S, dual_coef=coef, classes=[0, 1]), Z)
    machine = build(kernel="poly", support_vectors=wrap(S), dual_coef=coef.astype(int).tolist(), classes=(0, 1))
    assert machine.support_vectors.dtype == machine.dual_coef.dtype == np.float64
    assert machine.has_sparse_vectors == sparse.issparse(wrap(S))
    assert_array_equal(svelto.accelerate(machine).predict(Z), expected)


def test_numbers_of_any_type():
    rng = np.random.default_rng(0)
    S, coef, Z = rng.normal(size=(9, 3)), rng.normal(size=9), rng.normal(size=(50, 3))
    plain = build(kernel="poly", degree=2, gamma=1.0, coef0=3.0, support_vectors=S, dual_coef=coef)
    other = build(kernel="poly", degree=2.0, gamma=1, coef0=np.array(3), support_vectors=S, dual_coef=coef)
    assert isinstance(other.kernel.degree, int)
    assert_array_equal(svelto.accelerate(other).predict(Z), svelto.accelerate(plain).predict(Z))


GOOD = {"kernel": "rbf", "support_vectors": np.eye(4), "dual_coef": np.ones(4)}
REFUSED = [
    ({"kernel": "gauss"}, ValueError, "Unknown kernel 'gauss'. Expected one of rbf, "),
    ({"gamma": "scale"}, TypeError, "gamma is 'scale'; expected a number."),
    ({"gamma": None}, TypeError, "gamma is None; expected a number."),
    ({"gamma": -0.5}, ValueError, "gamma is -0.5; the rbf kernel needs gamma >= 0."),
    ({"gamma": np.inf}, ValueError, "gamma is inf; expected a finite number."),
    ({"coef0": "a"}, TypeError, "coef0 is 'a'; expected a number."),
    ({"kernel": "poly", "degree": 2.5}, ValueError, "degree is 2.5; the poly kernel needs a whole number >= 0."),
    ({"kernel": "poly", "degree": np.nan}, ValueError, "degree is nan; expected a finite number."),
    ({"kernel": "poly", "degree": "3"}, TypeError, "degree is '3'; expected a number."),
    ({"task": "clustering"}, ValueError, "task is 'clustering'; expected one of classification, regression, outlier."),
    ({"task": "classification"}, ValueError, "task is 'classification'; classes belong to classification, and only"),
    ({"task": "outlier", "classes": [0, 1]}, ValueError, "task is 'outlier'; classes belong to classification"),
    ({"dual_coef": np.ones(4) * 1j}, TypeError, "dual_coef has dtype complex128; expected real numbers."),
    ({"dual_coef": ["a"] * 4}, TypeError, "dual_coef has dtype <U1; expected real numbers."),
    ({"dual_coef": [None] * 4}, TypeError, "dual_coef has dtype object; expected real numbers."),
    ({"dual_coef": [[1.0, 2.0], [3.0]]}, ValueError, "dual_coef cannot be read as an array: "),
    ({"dual_coef": np.ones(3)}, ValueError, "dual_coef covers 3 support vectors, but 4 support vectors are given."),
    ({"dual_coef": np.full(4, np.nan)}, ValueError, "dual_coef contains nan; every number"),
    ({"intercept": 1j}, TypeError, "intercept has dtype complex128; expected real numbers."),
    ({"intercept": np.inf}, ValueError, "intercept contains inf; every number"),
    ({"intercept": [1.0, 2.0]}, ValueError, "intercept has 2 values; expected 1."),
    ({"support_vectors": np.ones(4)}, ValueError, "support_vectors has 1 dimension(s); expected 2, (n_sv"),
    ({"support_vectors": np.eye(4, dtype=complex)}, TypeError, "support_vectors has dtype complex128; expected real"),
    ({"support_vectors": sparse.csr_matrix(np.eye(4) * 1j)}, TypeError, "support_vectors has dtype complex128"),
    ({"support_vectors": [["a"]] * 4}, TypeError, "support_vectors has dtype <U1; expected real numbers."),
    ({"support_vectors": np.full((4, 2), np.inf)}, ValueError, "support_vectors contains inf; every number"),
    ({"classes": [1, 1]}, ValueError, "classes contains a label twice: [1, 1]."),
    ({"classes": [1]}, ValueError, "The machine has 1 class; a classifier needs at least two."),
    ({"classes": [[0, 1]]}, ValueError, "classes has 2 dimension(s); expected 1, a label for each class."),
    ({"classes": np.array([None, 1])}, TypeError, "classes cannot be put in order ("),
    ({"classes": [1, 2, 3]}, ValueError, "dual_coef has 1 rows; expected 3."),
    ({"classes": [1, 2, 3], "n_support": [1, 3]}, ValueError, "dual_coef has 1 rows; expected 2."),
    ({"n_support": [2, 2]}, ValueError, "n_support needs one count for each of the 0 classes, got [2 2]."),
    ({"kernel": "precomputed"}, TypeError, "support_vectors is 2-dimensional of dtype float64; a precomputed"),
    ({"kernel": "precomputed", "support_vectors": np.ones(4)}, TypeError, "support_vectors is 1-dimensional of dtype"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "error", "message"), REFUSED, ids=[m[:40] for _, _, m in REFUSED])
def test_refused(change, error, message):
    assert build(**GOOD).n_sv == 4
    with pytest.raises(error, match=re.escape(message)):
        build(**{**GOOD, **change})


def test_a_class_without_support_vectors_is_named():
    for classes, name in (([30, 10, 20], "10"), (["c", "a", "b"], "'a'")):
        with pytest.raises(
            ValueError, match=rf"Class {name} has no support vectors; the model is damaged\. Train it again"
        ):
            build(
                kernel="rbf", support_vectors=np.eye(4), dual_coef=np.ones((2, 4)), classes=classes, n_support=[2, 0, 2]
            )
