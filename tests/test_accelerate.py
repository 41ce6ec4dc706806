"""accelerate(): which models and options it takes, and what it says about the others."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.svm import SVC, LinearSVC

import svelto
from machines import NATIVE, random_machine
from sklearn_cases import data
from svelto._threads import check_n_jobs


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"method": "magic"}, ValueError, r"Unknown method 'magic'\. Expected one of auto, exact, bounded, hin"),
        ({"method": None}, ValueError, r"Unknown method None\."),
        ({"agreement": 0.0}, ValueError, r"agreement is 0\.0; expected a number in \(0, 1\] or None\."),
        ({"agreement": 1.5}, ValueError, r"agreement is 1\.5; expected"),
        ({"agreement": np.nan}, ValueError, r"agreement is nan; expected"),
        ({"agreement": "high"}, ValueError, r"agreement is 'high'; expected a number in \(0, 1\] or None\."),
        ({"agreement": True}, ValueError, r"agreement is True; expected"),
        ({"confidence": None}, ValueError, r"confidence is None; expected a number in \(0, 1\]\."),
        ({"confidence": -0.5}, ValueError, r"confidence is -0\.5; expected a number in \(0, 1\]\."),
        ({"precision": "half"}, ValueError, r"precision is 'half'; expected one of 'auto', 'float32', 'float64'\."),
        (
            {"method": "exact", "precision": "half"},
            ValueError,
            r"precision is 'half'; expected one of 'auto', 'float32', 'float64'\.",
        ),
        ({"leaf_size": 3}, TypeError, r"method='auto' has no option 'leaf_size'; it has: batch_size, max_bytes, "),
        (
            {"method": "exact", "leaf_size": 3},
            TypeError,
            r"method='exact' has no option 'leaf_size'; it has: precision\.",
        ),
    ],
    ids=str,
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=message):
        svelto.accelerate(random_machine(), **options)


@pytest.mark.parametrize("bad", [0, 1.5, "2", True, [2]])
def test_bad_n_jobs(bad):
    with pytest.raises(ValueError, match=r"n_jobs is .*; expected None, a positive number, or -1 for all threads\."):
        svelto.accelerate(random_machine(), n_jobs=bad)
    check_n_jobs(np.int64(2))


def test_good_options():
    for options in (
        {"agreement": None},
        {"agreement": 1.0},
        {"agreement": np.float32(0.5), "confidence": 1},
        {"n_jobs": -1},
    ):
        assert svelto.accelerate(random_machine(), **options).report.promise == "exact"


def test_bad_models(tmp_path):
    X, y, _ = data()
    with pytest.raises(NotFittedError, match=r"This SVC is not fitted.*Call its fit method first"):
        svelto.accelerate(SVC())
    with pytest.raises(TypeError, match=r"LinearSVC is already one dot product"):
        svelto.accelerate(LinearSVC().fit(X, y))
    for model in (None, 3, X, object()):
        with pytest.raises(
            TypeError, match=rf"Cannot read a kernel machine from {type(model).__name__}\. svelto reads SVC"
        ):
            svelto.accelerate(model)
    for path in (tmp_path / "missing.model", str(tmp_path / "missing.model")):
        with pytest.raises(FileNotFoundError, match=r"missing\.model"):
            svelto.accelerate(path)


@pytest.mark.parametrize("kernel", NATIVE)
def test_paths_and_machines(kernel, tmp_path):
    machine, X = random_machine(kernel), np.random.default_rng(0).normal(size=(50, 6))
    expected = svelto.accelerate(machine).predict(X)
    if kernel in ("rbf", "poly", "sigmoid", "linear"):  # LIBSVM has no others
        machine.to_libsvm(tmp_path / "model")
        for path in (tmp_path / "model", str(tmp_path / "model")):
            assert_array_equal(svelto.accelerate(path).predict(X), expected)
    assert svelto.accelerate(machine).machine is machine
