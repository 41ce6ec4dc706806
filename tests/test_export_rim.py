"""export_c and export_onnx: on the rim of the guard hinges take as much more caution as the predictor's do."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import make_moons
from sklearn.svm import SVC, SVR

import svelto
from c_headers import CLibrary
from svelto._inputs import Query
from svelto.cascade import Cascade
from svelto.guard_fit import RIM_FACTOR
from svelto.predictor import Predictor

X, SIDES = make_moons(3000, noise=0.25, random_state=0)
X = X.astype(np.float32).astype(np.float64)
THREE = np.where(X[:, 0] > 1.2, 2, SIDES)
CASES = {
    "two": (SVC(C=3.0, gamma=1.0), SIDES, {}),
    "scores": (SVC(C=3.0, gamma=1.0), THREE, {"answers": "scores"}),
    "classes": (SVC(C=3.0, gamma=1.0), THREE, {"answers": "classes"}),
    "values": (SVR(C=3.0, gamma=1.0), SIDES * 1.0, {"tolerance": 0.2}),
}
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")


def moved_outwards():
    """Rows in the core, on the rim and outside."""
    rng = np.random.default_rng(0)
    rows = np.tile(X, (8, 1))
    moved = X.mean(axis=0) + (rows - X.mean(axis=0)) * rng.uniform(0.9, 1.6, size=(len(rows), 1))
    return moved.astype(np.float32).astype(np.float64)


ROWS = moved_outwards()


def cascade_of(fast, factor, guard):
    """The predictor's hinges twice: first with more caution, then with less, both a share of what was calibrated."""
    engine = fast._engine
    stage, threshold = replace(engine.stages[0], guard=guard), factor * engine.thresholds[0]
    stages = [replace(stage, name="small hinges"), stage]
    # Of values all or none are settled: on the rim none, in the core all.
    thresholds = [2.0 * threshold, threshold]
    if fast.machine.task == "regression":
        thresholds = [at * engine.tolerance / float(stage.error.max()) for at in (1.5, 0.5)]
    cascade = Cascade(engine.machine, stages, thresholds, engine.exact, engine.tolerance, guard)
    return Predictor(fast.machine, cascade, fast.report, 1)


@pytest.fixture(scope="module")
def predictors():
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        # Against machines that train in a moment no stage pays, and none would be used: here every stage pays.
        patch.setattr("svelto.stage_search.PAYS", 1e9)
        for name, (model, y, more) in CASES.items():
            options = {"n_hinges": 6, "oracle_rows": 2000, "max_epochs": 2, "next_stage": None, **more}
            fast = svelto.accelerate(
                model.fit(X[::3], y[::3]), X, method="hinges", agreement=0.95, random_state=0, n_jobs=1, **options
            )
            found[name] = cascade_of(fast, 0.27, fast._engine.guard)
    return found


def without_rim(fast):
    """The same predictor with a guard that is all core."""
    engine = fast._engine
    guard = replace(engine.guard, core=None)
    stages = [replace(stage, guard=guard) for stage in engine.stages]
    cascade = Cascade(engine.machine, stages, engine.thresholds, engine.exact, engine.tolerance, guard)
    return Predictor(fast.machine, cascade, fast.report, 1)


def rows_and_rim(fast):
    """Rows, and which of them are on the rim; those are left out that single precision has elsewhere."""
    guard, stage = fast._engine.guard, fast._engine.stages[0]
    errors = stage.scores(Query(ROWS))[1][:, 0] / stage.error[0]
    outside, beyond_core = guard(Query(ROWS)), guard.outside_core(ROWS)
    expected = np.where(outside, np.inf, np.where(beyond_core, RIM_FACTOR, 1.0))
    same = np.isclose(errors, expected)
    assert np.mean(same) > 0.999
    return ROWS[same], (beyond_core & ~outside)[same]


@pytest.mark.parametrize("case", CASES)
def test_the_rim_decides_answers(predictors, case):
    """Otherwise the tests below would show nothing."""
    fast = predictors[case]
    rows, rim = rows_and_rim(fast)
    expected = fast.predict(rows)
    guard = fast._engine.guard
    assert rim.sum() > 100
    assert guard(Query(rows)).sum() > 100
    assert (~guard.outside_core(rows)).sum() > 1000
    other = without_rim(fast).predict(rows)
    assert_array_equal(other[~rim], expected[~rim])
    assert (other != expected)[rim].sum() >= 6
    if case != "values":  # of which none is settled there
        assert fast.work(rows[rim])["stages"]["exact"] < 0.9


@needs_gcc
@pytest.mark.parametrize("case", CASES)
def test_headers_take_more_caution_on_the_rim(predictors, case, tmp_path):
    fast = predictors[case]
    rows, _ = rows_and_rim(fast)
    written = fast.export_c(tmp_path / "m.h", X=rows)
    assert written.method == "small hinges -> hinges -> exact"
    assert "const int place = m_guard_knows(u);" in written.path.read_text()
    expected = fast.predict(rows) if case == "values" else fast.decision_function(rows)
    n_outputs = expected.reshape(len(rows), -1).shape[1]
    library = CLibrary(tmp_path, ["m"], ["m"] if case == "values" else [])
    decisions, labels = library.ask("m", rows, n_outputs)
    # A value of another stage differs by much more.
    assert np.abs(decisions - expected.reshape(decisions.shape)).max() < 1e-3
    if case != "values":
        assert_array_equal(labels, fast.predict(rows))


@pytest.mark.parametrize("case", ["two", "classes"])
def test_headers_without_a_rim_do_not_ask_about_it(predictors, case, tmp_path):
    """Nor does a stage alone, which has no guard."""
    fast = predictors[case]
    rows, _ = rows_and_rim(fast)
    text = without_rim(fast).export_c(tmp_path / "m.h", X=rows).path.read_text()
    assert "if (m_guard_knows(u)) {" in text
    assert "place" not in text
    assert "_core" not in text
    whole = fast.export_c(tmp_path / "m.h", X=rows)
    small = fast.export_c(tmp_path / "m.h", X=rows, max_bytes=whole.table_bytes // 4)
    assert small.method.endswith("hinges")
    assert "_knows" not in small.path.read_text()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_graphs_take_more_caution_on_the_rim(predictors, case, dtype, tmp_path):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    fast = predictors[case]
    rows, _ = rows_and_rim(fast)
    written = fast.export_onnx(tmp_path / "m.onnx", dtype=dtype, X=rows)
    assert written.method == "small hinges -> hinges -> exact"
    session = runtime.InferenceSession(written.path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"X": rows.astype(dtype)}), strict=True))
    if case == "values":
        assert np.abs(found["variable"][:, 0] - fast.predict(rows)).max() < 1e-3
        return
    assert_array_equal(found["label"], fast.predict(rows))
    if case != "classes":
        assert np.abs(found["scores"] - fast.decision_function(rows)).max() < 1e-3
