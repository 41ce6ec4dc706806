"""Objects and rows that are given twice, or that the machine was trained on, and what a promise makes of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.svm import SVC

import svelto
from svelto.same_objects import keys_of, object_share, without


def letters(n, length, seed):
    rng = np.random.default_rng(seed)
    return ["".join(word) for word in rng.choice(list("ab"), size=(n, length))]


def common(A, B):
    """Letters that two words have in the same place."""
    return np.array([[sum(x == y for x, y in zip(a, b, strict=True)) for b in B] for a in A], dtype=float)


def machine_of(words, kernel=common):
    gram = kernel(words, words)
    y = np.array([getattr(word, "text", word).count("a") > 5 for word in words])
    svc = SVC(kernel="precomputed", C=0.1).fit(gram, y)
    return svelto.KernelMachine.from_arrays(
        kernel=kernel,
        support_vectors=[words[i] for i in svc.support_],
        dual_coef=svc.dual_coef_,
        intercept=svc.intercept_,
        classes=[False, True],
    )


class Thing:
    """An object that is equal to nothing but itself."""

    def __init__(self, text):
        self.text = text


def of_things(A, B):
    return common([a.text for a in A], [b.text for b in B])


@pytest.mark.parametrize(
    "rows",
    [
        ["a", "b", "a"],
        [(1, "x"), (2, "y"), (1, "x")],
        [[1, 2], [3], [1, 2]],
        np.array([[0.0, 1.0], [2.0, 3.0], [-0.0, 1.0]]),
        sparse.csr_matrix([[0.0, 1.0], [2.0, 3.0], [0.0, 1.0]]),
        [np.array([1, 2]), np.array([1, 2, 3]), np.array([1.0, 2.0])],
        [frozenset("ab"), frozenset("c"), frozenset("ba")],
    ],
    ids=["strings", "tuples", "lists", "matrix", "csr", "arrays", "sets"],
)
def test_equal_objects_have_equal_keys(rows):
    first, second, third = keys_of(rows)
    assert first == third
    assert first != second
    left = without(rows, rows[1:2])
    assert (left.shape[0] if hasattr(left, "shape") else len(left)) == 2


def test_objects_without_values_are_compared_by_the_kernel():
    words = letters(120, 10, 0)
    machine = machine_of([Thing(word) for word in words], of_things)
    assert None in set(keys_of([Thing("a")]))
    again = [Thing(word) for word in words]  # others, but the same to the kernel
    assert object_share(machine, again) == 1.0
    assert object_share(machine, again[:12]) > 0.1  # a part of them is recognised too
    assert object_share(machine, [Thing(word) for word in letters(60, 10, 1)]) < 0.5


def test_a_part_of_the_training_objects_is_recognised():
    words = letters(400, 14, 0)
    machine = machine_of(words)
    assert object_share(machine, words[:20]) > 0.3
    with pytest.raises(ValueError, match="X holds objects that the machine was trained on"):
        svelto.accelerate(machine, words[:60], method="sv_tree", agreement=0.9)


def test_new_objects_that_equal_old_ones_are_taken_with_a_word():
    machine = machine_of(letters(100, 8, 0))  # 256 words in all
    X, calibration = letters(300, 8, 1), letters(100, 8, 2)
    share = object_share(machine, calibration)
    assert 0.02 < share < 0.5
    with pytest.warns(UserWarning, match=f"{share:.0%} of X_calibration are among the support vectors"):
        fast = svelto.accelerate(
            machine, X, method="sv_tree", agreement=0.8, confidence=0.8, X_calibration=calibration, random_state=0
        )
    assert fast.report.promise in ("statistical", "exact")


def test_rows_to_calibrate_on_are_never_built_on():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 2))
    svc = SVC(C=100, gamma=2.0).fit(X[:300], X[:300, 0] * X[:300, 1] > 0)
    new = X[300:]
    with pytest.raises(ValueError, match="All but 0 of the 1200 rows of X are in X_calibration too"):
        svelto.accelerate(svc, new, method="sv_tree", agreement=0.9, X_calibration=new)
    # Half of them are in both: what is left of X is built on.
    options = {"method": "taylor_tree", "agreement": 0.9, "confidence": 0.9, "random_state": 0}
    both = svelto.accelerate(svc, new, X_calibration=new[:600], **options)
    apart = svelto.accelerate(svc, new[600:], X_calibration=new[:600], **options)
    np.testing.assert_array_equal(both.decision_function(X), apart.decision_function(X))


@pytest.mark.parametrize("bad", ["abab", b"abab", 5])
def test_a_single_object_is_refused(bad):
    machine = machine_of(letters(60, 10, 0))
    with pytest.raises(TypeError, match=r"expected a sequence of objects. Use \[X\] for a single one"):
        svelto.accelerate(machine).predict(bad)


def test_bad_rows_are_named():
    gram = common(letters(50, 10, 0), letters(50, 10, 0))
    svc = SVC(kernel="precomputed").fit(gram, np.arange(50) % 2)
    rows = gram.copy()
    rows[17, 3] = np.nan
    with pytest.raises(ValueError, match=r"^X: X contains nan \(row 17, column 3\)"):
        svelto.accelerate(svc, rows, method="sv_tree", agreement=None)
    with pytest.raises(ValueError, match=r"^X_calibration: X contains nan \(row 17"):
        svelto.accelerate(svc, gram, method="sv_tree", agreement=0.9, X_calibration=rows)
    words = letters(80, 10, 1)

    def broken(A, B):
        return np.where([[a == words[17]] for a in A], np.nan, common(A, B))

    machine = machine_of(letters(60, 10, 0))
    machine = svelto.KernelMachine.from_arrays(
        kernel=broken,
        support_vectors=machine.support_vectors,
        dual_coef=machine.dual_coef,
        intercept=machine.intercept,
        classes=[False, True],
    )
    with pytest.raises(ValueError, match="The kernel value of row 17 is not finite"):
        svelto.accelerate(machine, words, method="sv_tree", agreement=None)
