"""The benchmark's parts on tiny generated data: fields, labels, missing rivals. Times are never looked at."""

import importlib
import json
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.svm import SVC


def make_case(bench, *, n_classes, csr=False, folder=None):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(360, 5)) * (rng.random((360, 5)) < 0.7)
    y = (np.abs(X[:, 0]) > 0.5).astype(int) if n_classes == 2 else np.digitize(X[:, 0] + X[:, 1] ** 2, [-0.5, 0.5, 1.5])
    X = sparse.csr_matrix(X) if csr else X
    make = bench("_cases").make_case
    return make("generated", X[:160], y[:160], X[160:], y[160:], C=1.0, gamma=0.2, folder=folder)


def run(bench, case, **options):
    settings = {
        "rivals": ["SVC.predict", "NumPy"],
        "threads": (1,),
        "repeats": 1,
        "max_rows": 20,
        "peak_seconds": 0.02,
    }
    bench("_peak").SHAPES = ((64, 64, 64),)  # the rate is not looked at
    return bench("exact").run_case(case, **{**settings, **options})


@pytest.mark.parametrize(("n_classes", "csr"), [(2, False), (4, False), (2, True)])
def test_every_side_gives_the_labels_of_svc(bench, n_classes, csr):
    result = run(bench, make_case(bench, n_classes=n_classes, csr=csr))
    assert result["label_differences"] == {
        "svelto": {"differences": 0, "rows": 200},
        "SVC.predict": {"differences": 0, "rows": 20},
        "NumPy": {"differences": 0, "rows": 200},
    }
    assert result["form"] == ("csr" if csr else "dense")
    assert (result["n_classes"], result["n_features"], result["n_test"]) == (n_classes, 5, 200)


def test_results_have_every_cell_and_survive_json(bench):
    result = json.loads(json.dumps(run(bench, make_case(bench, n_classes=2), threads=(1, 2))))
    cells = {(cell["side"], cell["batch"], cell["threads"]) for cell in result["cells"]}
    assert cells == {
        (side, batch, threads)
        for side in ("svelto", "SVC.predict", "NumPy")
        for batch in ("1", "100", "all")
        for threads in (1, 2)
    }
    for cell in result["cells"]:
        for field in ("us_per_row", "ratio", "us_per_row_after_a_pause", "ratio_after_a_pause"):
            assert set(cell[field]) == {"median", "q10", "q90"}
        assert cell["rows_timed"] == {"1": 1, "100": 100, "all": 200}[cell["batch"]] or cell["side"] == "SVC.predict"
    assert set(result["share_of_peak"]) == set(result["peak"]) == set(result["other_load"]) == {"1", "2"}


def test_sparse_rows_have_no_share_of_peak(bench):
    assert run(bench, make_case(bench, n_classes=2, csr=True))["share_of_peak"] == {}


def test_a_rival_that_is_not_installed_is_a_line_of_the_table(bench, monkeypatch):
    for name in ("sklearnex.svm", "onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None)  # import raises ModuleNotFoundError
    monkeypatch.setenv("PATH", "")
    rivals = ["SVC.predict", "intelex", "onnxruntime", "svm-predict"]
    result = run(bench, make_case(bench, n_classes=2), rivals=rivals)
    assert result["unavailable"]["intelex"] == result["unavailable"]["onnxruntime"] == "not installed"
    assert result["unavailable"]["svm-predict"] == "not available: svm-predict is not on the path"
    options = {"threads": [1], "repeats": 1, "max_rows": 20, "command": "test"}
    results = {"environment": bench("_environment").describe(), "options": options, "cases": [result]}
    text = bench("_tables").markdown(results)
    assert "| generated |" in text
    assert text.count("not installed") == 4  # in the compact table and in the one of all cells


@pytest.mark.parametrize("n_classes", [2, 4])
def test_onnx_graph_gives_the_labels_of_svc(bench, n_classes):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    case = make_case(bench, n_classes=n_classes)
    machine = importlib.import_module("svelto.suite.onnx_machine").OnnxMachine(
        case.machine, 1, case.X_test.astype(np.float32)
    )
    np.testing.assert_array_equal(machine.predict(case.X_test.astype(np.float32)), case.labels)


def test_trained_machines_are_kept(bench, tmp_path, monkeypatch):
    first = make_case(bench, n_classes=2, folder=tmp_path)
    assert len(list(tmp_path.glob("generated-C1-gamma0.2-*-sklearn*.joblib"))) == 1
    monkeypatch.setattr("svelto.suite.machines.SVC", None)  # training again would fail
    again = make_case(bench, n_classes=2, folder=tmp_path)
    np.testing.assert_array_equal(first.labels, again.labels)


def test_overheads(bench):
    overheads = bench("_overheads")
    latency = overheads.one_row_latency(repeats=1)
    assert latency["us_per_call"]["median"] > 0
    memory = overheads.extra_memory(n_rows=2000, n_sv=20)
    assert (memory["n_rows"], memory["output_bytes"]) == (2000, 16000)
    assert memory["extra_bytes"] >= 0


def test_unknown_tuned_set_is_refused(bench, capsys):
    with pytest.raises(SystemExit, match="2"):
        bench("exact").parse(["--tuned", "--datasets", "a1a"])
    assert "--tuned: no parameters for a1a" in capsys.readouterr().err


def test_the_patch_is_measured_batch_by_batch(bench):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    svc = SVC().fit(X[:100], X[:100, 0] > 0)
    script = bench("patch_sklearn")
    lines = script.run_case("generated", svc, X, 1)
    assert lines[0] == "generated: 0 of 200 labels differ"
    assert [line.split()[:5] for line in lines[1:]] == [
        ["generated", str(len(svc.support_)), "3", threads, batch] for threads in "12" for batch in ("1", "100", "200")
    ]
