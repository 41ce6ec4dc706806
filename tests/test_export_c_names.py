"""export_c: names of stages become names of C, whatever they are called in reports."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import make_moons
from sklearn.svm import SVC

import svelto
from c_headers import CLibrary
from svelto.cascade import Cascade
from svelto.export.c_names import PartNames
from svelto.predictor import Predictor


def test_parts_have_identifiers_each_used_once():
    names = PartNames("m")
    assert [names.new(kind) for kind in ("small hinges", "hinges", "small hinges")] == [
        "m_small_hinges",
        "m_hinges",
        "m_small_hinges2",
    ]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_small_hinges_before_large_ones_compile(tmp_path):
    X, y = make_moons(3000, noise=0.25, random_state=0)
    X = X.astype(np.float32).astype(np.float64)
    svc = SVC(C=3.0, gamma=1.0).fit(X[::3], y[::3])
    options = {"n_hinges": 12, "oracle_rows": 3000, "max_epochs": 4, "next_stage": None}
    fast = svelto.accelerate(svc, X, method="hinges", agreement=0.95, random_state=0, n_jobs=1, **options)
    one = fast._engine
    small = replace(one.stages[0], name="small hinges")
    both = Cascade(
        one.machine, [small, *one.stages], [2 * one.thresholds[0], *one.thresholds], one.exact, None, one.guard
    )
    fast = Predictor(fast.machine, both, fast.report, 1)
    assert list(fast.work(X)["stages"]) == ["small hinges", "hinges", "exact"]
    written = fast.export_c(tmp_path / "m.h", X=X)
    labels = CLibrary(tmp_path, ["m"]).ask("m", X, 1)[1]
    assert written.method == "small hinges -> hinges -> exact"
    assert_array_equal(labels, fast.predict(X))
