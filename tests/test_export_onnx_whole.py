"""export_onnx of what users have: cascades with their guard, pipelines, any labels; errors and the command."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import dump_svmlight_file, load_iris, load_wine, make_moons
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler
from sklearn.svm import SVC, SVR, OneClassSVM

import svelto
from machines import random_machine
from svelto._inputs import Query
from svelto.cascade import Cascade
from svelto.cli import main
from svelto.engines.reduced_stage import ReducedSet
from svelto.export.onnx_measure import runner
from svelto.predictor import Predictor

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def single(X):
    return np.asarray(X, dtype=np.float32).astype(np.float64)


MOONS, SIDES = make_moons(3000, noise=0.25, random_state=0)
MOONS = single(MOONS)
FAR = single(np.vstack([MOONS[:400], 4.0 * MOONS[:200]]))  # also rows that no guard knows
THREE = np.where(MOONS[:, 0] > 1.2, 2, SIDES)
NAMES = np.array(["left", 'say "hi"\\', "ça"])[THREE]
MOVED = single(FAR * [1.0, 30.0] + 1000.0)


def promised(method, y=SIDES, model=None, **options):
    """A statistical promise on a small machine, with stages in use."""
    model = SVC(C=3.0, gamma=1.0).fit(MOONS[::3], y[::3]) if model is None else model
    return svelto.accelerate(model, MOONS, method=method, agreement=0.95, random_state=0, n_jobs=1, **options)


def pipeline(scaler, svm, offset=1000.0):
    rows = MOONS * [1.0, 30.0] + offset
    return svelto.accelerate(make_pipeline(scaler, svm).fit(rows[::4], SIDES[::4]), method="exact")


PROMISED = {
    "hinges": lambda: promised("hinges", n_hinges=12, oracle_rows=3000, max_epochs=4),
    "hinges_then_basis": lambda: promised(
        "hinges", n_hinges=6, oracle_rows=2000, max_epochs=2, next_stage="reduced_set"
    ),
    "hinge_classes": lambda: promised("hinges", THREE, n_hinges=12, answers="classes", oracle_rows=3000, max_epochs=4),
    "classes_then_basis": lambda: promised(
        "hinges", THREE, n_hinges=6, answers="classes", oracle_rows=2000, max_epochs=2, next_stage="reduced_set"
    ),
    "taylor_tree": lambda: promised("taylor_tree", leaf_size=64),
    "taylor_tree_three": lambda: promised("taylor_tree", THREE, leaf_size=64, next_stage=None),
    "reduced_set": lambda: promised("reduced_set", n_basis=24, max_iter=20),
    "scaled_tree": lambda: promised(
        "taylor_tree", model=make_pipeline(StandardScaler(), SVC(C=3.0)).fit(MOONS[::3], SIDES[::3]), leaf_size=64
    ),
    "values": lambda: promised(
        "taylor_tree", model=SVR(C=3.0, gamma=1.0).fit(MOONS[::3], SIDES[::3] * 1.0), tolerance=0.1, next_stage=None
    ),
    "inside": lambda: promised(
        "hinges", model=OneClassSVM(nu=0.2, gamma=1.0).fit(MOONS[::3]), n_hinges=12, max_epochs=3
    ),
}
WHOLE = {
    "proven": lambda: svelto.accelerate(
        SVC(C=3.0).fit(MOONS[::3], SIDES[::3]), MOONS, method="taylor_tree", agreement=1.0
    ),
    "bounded": lambda: svelto.accelerate(SVC(C=3.0).fit(MOONS[::3], SIDES[::3]), method="bounded"),
    "sparse": lambda: svelto.accelerate(SVC().fit(sparse.csr_matrix(MOONS[::9]), SIDES[::9]), method="exact"),
    "unscaled": lambda: svelto.accelerate(SVC(gamma=0.1).fit(MOVED[:400], SIDES[:400]), method="exact"),
    "standard": lambda: pipeline(StandardScaler(), SVC()),
    "standard_poly": lambda: pipeline(StandardScaler(), SVC(kernel="poly", coef0=1.0)),
    "standard_linear": lambda: pipeline(StandardScaler(), SVC(kernel="linear")),
    "near": lambda: pipeline(StandardScaler(), SVC(), offset=1.0),
    "clipped": lambda: pipeline(MinMaxScaler(clip=True), SVC(gamma=5.0)),
    "minmax": lambda: pipeline(MinMaxScaler(), SVC(gamma=5.0)),
    "maxabs": lambda: pipeline(MaxAbsScaler(), SVC(gamma=5.0, C=100.0), offset=1.0),
}


@pytest.fixture(scope="module")
def predictors():
    with pytest.MonkeyPatch.context() as patch:
        # Against machines that train in a moment no stage pays, and none would be used: here every stage pays.
        patch.setattr("svelto.stage_search.PAYS", 1e9)
        return {name: make() for name, make in {**PROMISED, **WHOLE}.items()}


def ask(path, X, dtype="float32"):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": X.astype(dtype)}), strict=True))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", PROMISED)
def test_a_cascade_answers_every_row_as_the_predictor(predictors, case, dtype, tmp_path):
    fast = predictors[case]
    work = fast.work(FAR)
    assert 0.2 < work["guarded"] < 0.4
    assert 0.2 < work["stages"]["exact"] < 0.6
    written = fast.export_onnx(tmp_path / "m.onnx", dtype=dtype, X=FAR)
    assert written.promise == "statistical"
    assert written.method.endswith("-> exact")
    found = ask(written.path, FAR, dtype)
    if case == "values":
        assert np.abs(found["variable"][:, 0] - fast.predict(FAR)).max() < 1e-4
        return
    assert (found["label"] == fast.predict(FAR)).all()
    assert written.agreement.predictor == 1.0
    assert ("scores" in found) == ("classes" not in case)
    with_scores = ask(fast.export_onnx(tmp_path / "m.onnx", dtype=dtype, scores=True).path, FAR, dtype)
    assert (with_scores["label"] == found["label"]).all()
    assert np.abs(with_scores["scores"] - fast.decision_function(FAR)).max() < 2e-4
    assert fast.export_onnx(tmp_path / "m.onnx", dtype=dtype, scores=False).outputs == ("label",)


def test_rows_that_the_guard_does_not_know_are_asked_of_no_later_stage(predictors, tmp_path):
    """A second stage that answers anything, and wrongly: far off, without a map of errors, with hardly a threshold."""
    fast = predictors["hinges_then_basis"]
    engine = fast._engine
    basis = engine.stages[1]
    wrong = replace(basis.reduced, intercept=basis.reduced.intercept + 5.0)
    stages = [engine.stages[0], ReducedSet(fast.machine, wrong, basis.unit)]
    cascade = Cascade(fast.machine, stages, [engine.thresholds[0], 1e-9], engine.exact, guard=engine.guard)
    bold = Predictor(fast.machine, cascade, fast.report)
    decision, unknown = bold.decision_function(FAR), engine.guard(Query(FAR))
    exact = svelto.accelerate(fast.machine, method="exact").decision_function(FAR)
    assert (np.abs(decision - exact) > 1.0).any()
    found = ask(bold.export_onnx(tmp_path / "m.onnx", dtype="float64", X=FAR).path, FAR, "float64")
    assert np.abs(found["scores"] - decision).max() < 2e-4
    assert np.abs(found["scores"] - exact)[unknown].max() < 2e-4


def test_rows_one_by_one_and_none_at_all(predictors, tmp_path):
    fast = predictors["hinges_then_basis"]
    session = onnxruntime.InferenceSession(fast.export_onnx(tmp_path / "m.onnx").path)
    rows, expected = FAR[::20].astype(np.float32), fast.predict(FAR[::20])
    for at in range(len(rows)):
        assert session.run(["label"], {"X": rows[at : at + 1]})[0] == expected[at]
    assert session.run(["label"], {"X": rows[:0]})[0].shape == (0,)
    inside = MOONS[fast._engine.stages[0].settle(Query(MOONS), fast._engine.thresholds[0]) >= 0][:50]
    assert (session.run(["label"], {"X": inside.astype(np.float32)})[0] == fast.predict(inside)).all()


@pytest.mark.parametrize("case", WHOLE)
def test_whole_sums_have_all_labels_and_scores(predictors, case, tmp_path):
    fast = predictors[case]
    Z = (
        FAR
        if case in ("proven", "bounded", "sparse")
        else single(MOVED - 999.0)
        if case in ("near", "maxabs")
        else MOVED
    )
    exact = svelto.accelerate(fast.machine, method="exact")
    for dtype in ("float32", "float64"):
        written = fast.export_onnx(tmp_path / "m.onnx", dtype=dtype, X=Z)
        found = ask(written.path, Z, dtype)
        assert (written.method, written.promise) == ("exact", "exact")
        assert (found["label"] == fast.predict(Z)).all()
        decision = exact.decision_function(Z)
        assert np.abs(found["scores"] - decision).max() < 1e-4 * np.abs(decision).max() + 2e-5
        # Support vectors stand for rows where none are given, as they were before the scaler.
        assert fast.export_onnx(tmp_path / "m.onnx", dtype=dtype).agreement.predictor > 0.99


@pytest.mark.parametrize(
    ("classes", "dtype"),
    [
        (np.array([3, 8]), np.int64),
        (np.array([False, True]), np.int64),
        (np.array([-1.0, 1.0]), np.int64),
        (np.array([0.5, 1.5]), np.float64),
        (np.array(["no", "yes"]), object),
    ],
    ids=["whole", "flags", "whole_floats", "fractions", "names"],
)
def test_labels_keep_their_kind(classes, dtype, tmp_path):
    fast = svelto.accelerate(random_machine(d=2, classes=classes), method="exact")
    found = ask(fast.export_onnx(tmp_path / "m.onnx", X=FAR).path, FAR)["label"]
    assert found.dtype == dtype
    assert (found == fast.predict(FAR)).all()
    assert set(found) == set(classes)


def test_labels_may_be_any_text(tmp_path):
    fast = svelto.accelerate(SVC().fit(MOONS[::9], NAMES[::9]), method="exact")
    assert (ask(fast.export_onnx(tmp_path / "m.onnx", X=FAR).path, FAR)["label"] == fast.predict(FAR)).all()


def test_the_model_says_what_it_is_and_is_the_same_each_time(predictors, tmp_path):
    fast = predictors["hinges"]
    first = fast.export_onnx(tmp_path / "a.onnx", X=FAR)
    fast.export_onnx(tmp_path / "b.onnx", X=FAR)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert first.file_bytes == (tmp_path / "a.onnx").stat().st_size
    model = onnx.load(tmp_path / "a.onnx")
    onnx.checker.check_model(model, full_check=True)
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert facts["svelto method"] == " -> ".join([*(stage.name for stage in fast._engine.stages), "exact"])
    assert facts["svelto promise"].startswith("statistical: ")
    assert facts["svelto measured"].startswith("100.0000% of the labels are those of the Python predictor on 600 rows")
    assert facts["svelto written by"] == f"svelto {svelto.__version__}"
    assert all(words in model.doc_string for words in facts.values())
    for line in ("promise  statistical", "outputs  label, scores", "bytes, float32"):
        assert line in str(first)


def test_only_standard_operators_are_used(predictors, tmp_path):
    def kinds(graph):
        for node in graph.node:
            yield node.domain, node.op_type
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    yield from kinds(attribute.g)

    fast = predictors["hinges_then_basis"]
    model = onnx.load(fast.export_onnx(tmp_path / "m.onnx", X=FAR).path)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 17)]
    found = set(kinds(model.graph))
    assert {domain for domain, _ in found} == {""}
    assert {"Gemm", "Relu", "Exp", "Loop", "NonZero", "ScatterND"} <= {kind for _, kind in found}


def test_without_onnxruntime_the_evaluator_of_onnx_measures(predictors, tmp_path, monkeypatch):
    fast = predictors["hinges_then_basis"]
    expected = fast.export_onnx(tmp_path / "m.onnx", X=FAR)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert fast.export_onnx(tmp_path / "m.onnx", X=FAR) == expected
    found = runner((tmp_path / "m.onnx").read_bytes())(FAR.astype(np.float32))
    assert (found[0] == fast.predict(FAR)).all()


def test_what_is_measured_is_the_graph_itself(predictors, tmp_path, monkeypatch):
    """A wrong number in the graph, and not in the predictor, shows in the agreement."""
    monkeypatch.setattr("svelto.export.onnx_model.answer_table", lambda machine: np.array([1, 0]))
    with pytest.warns(UserWarning, match=r"0\.0000% of the graph's labels"):
        written = predictors["bounded"].export_onnx(tmp_path / "m.onnx", X=FAR)
    assert (written.agreement.predictor, written.promise) == (0.0, "none")


# -- what cannot be written --------------------------------------------------------------------------------------------


def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch):
    fast = svelto.accelerate(random_machine(), method="exact")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"needs the package onnx, .* pip install 'svelto\[onnx\]'"):
        fast.export_onnx(tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_exported_is_said_before_anything_is_written(tmp_path):
    y = SIDES[::9]
    refused = {
        "the kernel callable": SVC(kernel=lambda A, B: A @ B.T).fit(MOONS[::9], y),
        "does not know: PCA": make_pipeline(PCA(2), SVC()).fit(MOONS[::9], y),
        "CalibratedClassifierCV": CalibratedClassifierCV(SVC(), ensemble=False).fit(MOONS[::9], y),
    }
    for words, model in refused.items():
        with pytest.raises(NotImplementedError, match=words):
            svelto.accelerate(model, method="exact").export_onnx(tmp_path / "no.onnx")
    options = {"method": "sv_tree", "oracle_rows": 400, "max_evals": 4}
    paths = svelto.accelerate(SVC().fit(MOONS[::9], y), MOONS, agreement=None, random_state=0, **options)
    with pytest.raises(NotImplementedError, match=r"cannot write method='sv_tree'.* Use method='hinges'"):
        paths.export_onnx(tmp_path / "no.onnx")
    fast = svelto.accelerate(random_machine(), method="exact")
    for given, words in (
        ({"dtype": "float16"}, "dtype is 'float16'; expected one of 'float32', 'float64'"),
        ({"scores": 1}, "scores is 1; expected True, False or None"),
        ({"X": np.zeros((3, 5))}, "6 features; X has 5"),
        ({"X": np.full((1, 6), 1e300)}, "Row 0|row 0"),
    ):
        with pytest.raises(ValueError, match=words):
            fast.export_onnx(tmp_path / "no.onnx", **given)
    with pytest.raises(ValueError, match="a regressor has one output"):
        svelto.accelerate(random_machine(task="regression"), method="exact").export_onnx(
            tmp_path / "no.onnx", scores=True
        )
    options = {"method": "hinges", "answers": "classes", "n_hinges": 4, "oracle_rows": 100, "max_epochs": 1}
    labels = svelto.accelerate(random_machine(n_classes=3, d=2), MOONS, agreement=None, random_state=0, **options)
    with pytest.raises(ValueError, match="knows labels and no scores"):
        labels.export_onnx(tmp_path / "no.onnx", scores=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("svelto.export.onnx_model.MOST_BYTES", 100)
        with pytest.raises(
            ValueError, match=r"bytes as float32, .*; an ONNX file has room for 100\. Use a machine of fewer"
        ):
            fast.export_onnx(tmp_path / "no.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    fast = svelto.accelerate(random_machine(), method="exact")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        fast.export_onnx(tmp_path / "nowhere" / "m.onnx")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        fast.export_onnx(tmp_path)
    before = fast.export_onnx(tmp_path / "m.onnx").path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("svelto._rowfiles.os.replace", full)
    with pytest.raises(OSError, match="No space left"):
        fast.export_onnx(tmp_path / "m.onnx", dtype="float64")
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
    assert (tmp_path / "m.onnx").read_bytes() == before


# -- the command -------------------------------------------------------------------------------------------------------


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as left:
        main(["export", *map(str, arguments)])
    told = capsys.readouterr()
    return left.value.code or 0, told.out, told.err


def test_the_command_writes_what_the_suffix_says(tmp_path, capsys):
    model, data, graph = tmp_path / "moons.model", tmp_path / "moons.txt", tmp_path / "moons.onnx"
    svc = SVC().fit(MOONS[::9], SIDES[::9])
    svelto.KernelMachine.from_sklearn(svc).to_libsvm(model)
    dump_svmlight_file(MOONS, SIDES, str(data), zero_based=False)
    code, out, _ = run(capsys, model, "-o", graph)
    assert code == 0
    assert "100.0000% of the labels" in out
    assert (ask(graph, FAR)["label"] == svc.predict(FAR)).all()
    options = ("-m", "hinges", "--agreement", "none", "--dtype", "float64", "--json", "--size", "9")
    code, out, _ = run(capsys, model, data, "-o", graph, *options)
    facts = json.loads(out)
    assert code == 0
    assert (facts["method"], facts["dtype"], facts["promise"]) == ("hinges", "float64", "none")
    assert facts["outputs"] == ["label", "scores"]
    assert facts["agreement"]["n_rows"] == len(MOONS)
    assert ask(graph, FAR, "float64")["label"].shape == (len(FAR),)
    assert run(capsys, model, "-o", tmp_path / "moons.h")[0] == 0
    assert "int moons_predict(const float *x)" in (tmp_path / "moons.h").read_text()
    before = graph.read_bytes()
    for arguments, words in (
        ((model,), "-o OUT or --c OUT.h; there is neither"),
        ((model, "-o", graph, "--c", tmp_path / "m.h"), "there is both"),
        ((model, "-o", tmp_path / "m.bin"), "expected a name that ends in .h or .onnx"),
        ((model, "-o", graph, "--name", "m"), "--name belongs to C headers"),
        ((model, "-o", graph, "--max-bytes", "40"), "--max-bytes belongs to C headers"),
        ((model, "-o", graph, "--dtype", "int8"), "dtype is 'int8'"),
    ):
        code, _, err = run(capsys, *arguments)
        assert code == 1
        assert words in err
        assert len(err.strip().splitlines()) == 1
    assert graph.read_bytes() == before


def test_the_command_reads_svelto_files(tmp_path, capsys):
    fast = svelto.accelerate(SVC().fit(MOONS[::9], SIDES[::9]), method="exact")
    fast.save(tmp_path / "fast.svelto")
    assert run(capsys, tmp_path / "fast.svelto", "-o", tmp_path / "m.onnx")[0] == 0
    assert (ask(tmp_path / "m.onnx", FAR)["label"] == fast.predict(FAR)).all()
    tree = svelto.SVMTreeClassifier(tail_at=1, random_state=0, n_folds=2).fit(MOONS[::9], SIDES[::9])
    tree.save(tmp_path / "tree.svelto")
    code, _, err = run(capsys, tmp_path / "tree.svelto", "-o", tmp_path / "tree.onnx")
    assert code == 1
    assert "holds a SVMTreeClassifier; expected a predictor" in err


# -- what single precision cannot do -----------------------------------------------------------------------------------


def test_a_graph_that_was_measured_to_differ_promises_nothing(tmp_path):
    """Tiny gamma: all kernel values are close to 1, and large coefficients multiply what single floats lose."""
    A, b = load_wine(return_X_y=True)
    rng = np.random.default_rng(0)
    between = 0.5 * A[rng.integers(len(A), size=2000)] + 0.5 * A[rng.integers(len(A), size=2000)]
    fast = svelto.accelerate(SVC(C=1e4, gamma=1e-6).fit(A, b), method="exact")
    with pytest.warns(UserWarning, match=r"99\.\d+% of the graph's labels on 2000 rows given.*dtype='float64'"):
        coarse = fast.export_onnx(tmp_path / "coarse.onnx", X=between)
    assert coarse.promise == "none"
    facts = {entry.key: entry.value for entry in onnx.load(coarse.path).metadata_props}
    assert facts["svelto promise"].startswith("none: labels measured are not those")
    fine = fast.export_onnx(tmp_path / "fine.onnx", X=between, dtype="float64")
    assert (fine.promise, fine.agreement.predictor) == ("exact", 1.0)


@pytest.mark.parametrize("kernel", ["rbf", "linear", "exponential"])
def test_features_far_from_zero(tmp_path, kernel):
    A, b = load_iris(return_X_y=True)
    far = np.random.default_rng(0).normal(size=(3000, 4)) + A.mean(axis=0) + 10_000.0
    svc = svelto.ExponentialSVC(gamma=0.25) if kernel == "exponential" else SVC(kernel=kernel, gamma=0.25)
    fast = svelto.accelerate(svc.fit(A + 10_000.0, b), method="exact")
    far = far.astype(np.float32).astype(np.float64)
    written = fast.export_onnx(tmp_path / "far.onnx", X=far)
    assert (written.promise, written.agreement.predictor) == ("exact", 1.0)


def test_labels_that_are_too_large(tmp_path):
    A, b = load_iris(return_X_y=True)
    labels = np.array([2**63, 5, 6], dtype=np.uint64)[b]
    fast = svelto.accelerate(SVC().fit(A, labels), method="exact")
    with pytest.raises(ValueError, match=r"class label 9223372036854775808 is larger than an int64"):
        fast.export_onnx(tmp_path / "large.onnx")
    assert not list(tmp_path.iterdir())
