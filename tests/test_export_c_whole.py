"""export_c of what users have: promises with guard and exact tail, pipelines, trees; sizes, errors, the command."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import dump_svmlight_file, load_iris, make_moons
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler
from sklearn.svm import SVC, SVR, OneClassSVM

import svelto
from c_headers import WARNINGS, CLibrary
from machines import random_machine
from svelto.cli import main

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
TREE = {"tail_at": 1, "random_state": 0, "n_folds": 2}


def single(X):
    return np.asarray(X, dtype=np.float32).astype(np.float64)


MOONS, SIDES = make_moons(3000, noise=0.25, random_state=0)
MOONS = single(MOONS)
FAR = single(np.vstack([MOONS[:400], 4.0 * MOONS[:200]]))  # also rows that no guard knows
THREE = np.where(MOONS[:, 0] > 1.2, 2, SIDES)
NAMES = np.array(["left", 'say "hi"\\', "ça"])[THREE]


def promised(method, y=SIDES, model=None, **options):
    """A statistical promise on a small machine, with stages in use."""
    model = SVC(C=3.0, gamma=1.0).fit(MOONS[::3], y[::3]) if model is None else model
    return svelto.accelerate(model, MOONS, method=method, agreement=0.95, random_state=0, n_jobs=1, **options)


def pipeline(scaler, svm, offset=1000.0):
    rows = MOONS * [1.0, 30.0] + offset
    return svelto.accelerate(make_pipeline(scaler, svm).fit(rows[::4], SIDES[::4]), method="exact")


MOVED = single(FAR * [1.0, 30.0] + 1000.0)
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
    "sv_tree": lambda: promised("sv_tree", oracle_rows=2000),
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
    "named": lambda: svelto.accelerate(SVC().fit(MOONS[::9], NAMES[::9]), method="exact"),
    "fractions": lambda: svelto.accelerate(random_machine(d=2, classes=np.array([0.5, 1.5])), method="exact"),
}
PIPELINES = {
    "standard": lambda: pipeline(StandardScaler(), SVC()),
    "standard_poly": lambda: pipeline(StandardScaler(), SVC(kernel="poly", coef0=1.0)),
    "standard_linear": lambda: pipeline(StandardScaler(), SVC(kernel="linear")),
    "clipped": lambda: pipeline(MinMaxScaler(clip=True), SVC(gamma=5.0)),
    "minmax": lambda: pipeline(MinMaxScaler(), SVC(gamma=5.0)),
    "maxabs": lambda: pipeline(MaxAbsScaler(), SVC(gamma=5.0, C=100.0), offset=1.0),
    "unscaled": lambda: svelto.accelerate(SVC(gamma=0.1).fit(MOVED[:400], SIDES[:400]), method="exact"),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder, found = tmp_path_factory.mktemp("headers"), {}
    with pytest.MonkeyPatch.context() as patch:
        # Against machines that train in a moment no stage pays, and none would be used: here every stage pays.
        patch.setattr("svelto.stage_search.PAYS", 1e9)
        predictors = {name: make() for name, make in {**PROMISED, **WHOLE, **PIPELINES}.items()}
    for name, predictor in predictors.items():
        Z = MOVED if name in PIPELINES else FAR
        for dtype in ("float32", "int8"):
            found[f"{name}_{dtype}"] = predictor, Z, predictor.export_c(folder / f"{name}_{dtype}.h", dtype=dtype, X=Z)
    return found, CLibrary(folder, found, ["values_float32", "values_int8"]), folder


def share_equal(built, name):
    found, library, _ = built
    predictor, Z, result = found[name]
    # The header of proven leaves holds the machine itself: labels are the same, scores are the machine's.
    predictor = svelto.accelerate(predictor.machine, method="exact") if name.startswith("proven") else predictor
    expected = predictor.decision_function(Z) if predictor.machine.task != "regression" else predictor.predict(Z)
    decisions, labels = library.ask(result.name, Z, expected.reshape(len(Z), -1).shape[1])
    if predictor.machine.task == "regression":
        return float(np.mean(np.abs(decisions[:, 0] - expected) < 1e-3)), result, decisions, expected
    if name.startswith(("named", "fractions")):
        labels = predictor.classes_[labels]
    return float(np.mean(labels == predictor.predict(Z))), result, decisions, expected


@needs_gcc
@pytest.mark.parametrize("case", PROMISED)
def test_a_promise_is_exported_with_guard_and_exact_sum(built, case):
    equal, result, _, _ = share_equal(built, f"{case}_float32")
    assert result.promise == "statistical"
    assert result.method.endswith("-> exact")
    text = built[0][f"{case}_float32"][2].path.read_text()
    assert "_guard_knows" in text
    knows_rim = "hinges" in result.method or "reduced_set" in result.method  # trees do not
    assert ("place" in text) == knows_rim
    assert equal == 1.0
    rounded, int8, _, _ = share_equal(built, f"{case}_int8")
    assert int8.promise == "none"
    assert int8.table_bytes < result.table_bytes
    assert rounded > 0.9
    if int8.agreement.predictor is not None:
        assert abs(rounded - int8.agreement.predictor) < 0.006


@needs_gcc
@pytest.mark.parametrize("case", [*WHOLE, *PIPELINES])
def test_whole_sums_have_all_labels_and_scores(built, case):
    equal, result, decisions, expected = share_equal(built, f"{case}_float32")
    assert equal == 1.0
    assert result.promise == "exact"
    assert np.abs(decisions - expected.reshape(decisions.shape)).max() < 1e-4 * np.abs(expected).max() + 2e-5
    rounded, int8, _, _ = share_equal(built, f"{case}_int8")
    assert abs(rounded - int8.agreement.predictor) < 0.006


@needs_gcc
@pytest.mark.parametrize("compiler", ["g++", "clang"])
def test_other_compilers_take_every_header(built, compiler):
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    found, _, folder = built
    flags = [*WARNINGS, "-std=c++11" if compiler == "g++" else "-std=c99"]
    source = folder / ("all.cpp" if compiler == "g++" else "again.c")
    source.write_text("".join(f'#include "{name}.h"\n' for name in found))
    done = subprocess.run(
        [compiler, *flags, "-fsyntax-only", source.name], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:3000]


@needs_gcc
def test_sums_may_be_single_floats(built, tmp_path):
    found = built[0]
    predictor, Z, result = found["hinges_float32"]
    shutil.copy(result.path, tmp_path)
    library = CLibrary(tmp_path, ["hinges_float32"], flags=["-Dhinges_float32_REAL=float"])
    labels = library.ask("hinges_float32", Z, 1)[1]
    assert np.mean(labels == predictor.predict(Z)) > 0.995


# -- trees of hyperplanes ----------------------------------------------------------------------------------------------


@needs_gcc
def test_trees_with_and_without_a_tail(tmp_path):
    X, y = load_iris(return_X_y=True)
    X = single(X)
    trees = {
        "two": svelto.SVMTreeClassifier(**TREE).fit(MOONS[::3], SIDES[::3]),
        "three": svelto.SVMTreeClassifier(tail=SVC(decision_function_shape="ovo"), **TREE).fit(X, y),
        "rest": svelto.SVMTreeClassifier(multi_class="ovr", scale=None, **TREE).fit(X, y),
        "linear": svelto.SVMTreeClassifier(tail=None, last="class", min_peeled=0, random_state=0).fit(X, y),
        "named": svelto.SVMTreeClassifier(tail=None, last="class", min_peeled=0, multi_class="ovr", random_state=0).fit(
            X, np.array(["a", "b", "c"])[y]
        ),
    }
    written = {}
    for name, tree in trees.items():
        for dtype in ("float32", "int8"):
            rows = MOONS[:600] if name == "two" else X
            written[f"{name}_{dtype}"] = tree.export_c(tmp_path / f"{name}_{dtype}.h", dtype=dtype, X=rows), tree, rows
    assert trees["two"].work(MOONS)["tail_rows"] > 0.1
    library = CLibrary(tmp_path, written)
    for name, (result, tree, rows) in written.items():
        expected = tree.decision_function(rows).reshape(len(rows), -1)
        decisions, labels = library.ask(name, rows, expected.shape[1])
        labels = tree.classes_[labels] if name.startswith("named") else labels
        equal = float(np.mean(labels == tree.predict(rows)))
        assert equal == pytest.approx(result.agreement.predictor, abs=0.004), name
        if name.endswith("float32"):
            assert equal == 1.0, name
            # A tail's vote may be tied; `decision_function` then lifts the label's score above the others by a hair.
            assert np.abs(decisions - expected).max() < 1e-4, name
    assert result.promise == "none"


def test_a_tree_that_must_be_small_loses_its_tail(tmp_path):
    tree = svelto.SVMTreeClassifier(**TREE).fit(MOONS[::3], SIDES[::3])
    whole = tree.export_c(tmp_path / "tree.h")
    assert whole.agreement.rows.startswith("support vectors")
    small = tree.export_c(tmp_path / "tree.h", max_bytes=whole.table_bytes - 1, X=MOONS)
    assert small.method == "hyperplanes (votes answer what they leave open)"
    assert 0.5 < small.agreement.predictor < 1.0
    with pytest.raises(ValueError, match=r"max_bytes is 10; the tables of this tree need [\d,]+ bytes as float32"):
        tree.export_c(tmp_path / "tree.h", max_bytes=10)


def test_tails_that_are_no_kernel_machine_are_refused(tmp_path):
    tree = svelto.SVMTreeClassifier(tail=KNeighborsClassifier(), **TREE).fit(MOONS[::9], SIDES[::9])
    with pytest.raises(NotImplementedError, match="The tail is a KNeighborsClassifier"):
        tree.export_c(tmp_path / "tree.h")
    tree = svelto.SVMTreeClassifier(tail=make_pipeline(StandardScaler(), SVC()), **TREE).fit(MOONS[::9], SIDES[::9])
    with pytest.raises(NotImplementedError, match="The tail scales its rows itself"):
        tree.export_c(tmp_path / "tree.h")
    assert list(tmp_path.iterdir()) == []


# -- sizes and text ----------------------------------------------------------------------------------------------------


@needs_gcc
@pytest.mark.skipif(shutil.which("size") is None, reason="there is no program `size`")
def test_an_ordinary_machine_fits_a_small_microcontroller(tmp_path):
    fast = svelto.accelerate(random_machine("rbf", n_sv=327, d=10), method="exact")
    written = fast.export_c(tmp_path / "small.h")
    assert written.table_bytes <= 16_000
    source = '#include "small.h"\nint f(const float *x) { return small_predict(x); }\n'
    (tmp_path / "small.c").write_text(source)
    subprocess.run(["gcc", "-std=c99", "-Os", "-c", "small.c"], cwd=tmp_path, check=True)
    told = subprocess.run(["size", "small.o"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    text, data, bss = map(int, told.splitlines()[1].split()[:3])
    assert text - written.table_bytes <= 4096
    assert data == bss == 0
    assert fast.export_c(tmp_path / "tiny.h", dtype="int8").table_bytes <= 4_200


def test_the_same_predictor_makes_the_same_header(tmp_path):
    fast = svelto.accelerate(SVC().fit(MOONS[::9], SIDES[::9]), method="exact")
    fast.export_c(tmp_path / "a.h", name="m", X=MOONS)
    fast.export_c(tmp_path / "b.h", name="m", X=MOONS)
    text = (tmp_path / "a.h").read_text()
    assert text == (tmp_path / "b.h").read_text()
    assert re.findall(r"#include <(.*)>", text) == ["math.h", "stdint.h"]
    top = text[: text.index("*/")]
    for fact in (
        "rbf(gamma=",
        "method    exact",
        "promise   exact",
        "3000 rows given",
        "bytes, float32",
        f"svelto {svelto.__version__}",
        "-lm",
    ):
        assert fact in top


def test_the_largest_stage_that_fits_is_measured(tmp_path):
    machine = svelto.KernelMachine.from_sklearn(SVC(C=3.0, gamma=1.0).fit(MOONS, SIDES))
    fast = svelto.accelerate(machine, MOONS, method="hinges", n_hinges=10, agreement=None, max_epochs=2, random_state=0)
    assert fast.export_c(tmp_path / "h.h", X=MOONS).promise == "none"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("svelto.stage_search.PAYS", 1e9)
        fast = promised("hinges", n_hinges=10, max_epochs=3)
    whole = fast.export_c(tmp_path / "h.h", X=MOONS)
    small = fast.export_c(tmp_path / "h.h", max_bytes=1000, X=MOONS)
    assert whole.table_bytes > 1000 >= small.table_bytes
    assert (small.method, small.promise) == ("hinges", "none")
    assert small.agreement.n_rows == len(MOONS)
    assert 0.8 < small.agreement.machine <= 1.0
    assert "this stage answers every row" in small.path.read_text()
    with pytest.raises(
        ValueError, match=r"max_bytes is 50; as float32 .* need more bytes \(hinges -> exact [\d,]+, hinges"
    ):
        fast.export_c(tmp_path / "h.h", max_bytes=50)


def test_names_come_from_the_file_or_must_be_identifiers(tmp_path):
    fast = svelto.accelerate(random_machine(), method="exact")
    for file, name in {"iris-v2.h": "iris_v2", "2nd.h": "model_2nd", "int.h": "model_int"}.items():
        assert fast.export_c(tmp_path / file).name == name
    for name, words in {
        "9a": "expected a C identifier",
        "a-b": "expected a C identifier",
        "_x": "expected a C identifier",
        "": "expected a C identifier",
        "é": "expected a C identifier",
        "while": "a keyword of C or C",
        "x" * 41: "has 41 characters",
    }.items():
        with pytest.raises(ValueError, match=words):
            fast.export_c(tmp_path / "bad.h", name=name)
    assert not (tmp_path / "bad.h").exists()


def test_what_cannot_be_exported_is_said_before_anything_is_written(tmp_path):
    y = SIDES[::9]
    refused = {
        "the kernel callable": SVC(kernel=lambda A, B: A @ B.T).fit(MOONS[::9], y),
        "does not know: PCA": make_pipeline(PCA(2), SVC()).fit(MOONS[::9], y),
        "CalibratedClassifierCV": CalibratedClassifierCV(SVC(), ensemble=False).fit(MOONS[::9], y),
    }
    for words, model in refused.items():
        with pytest.raises(NotImplementedError, match=words):
            svelto.accelerate(model, method="exact").export_c(tmp_path / "no.h")
    fast = svelto.accelerate(random_machine(), method="exact")
    for options, words in (
        ({"dtype": "float16"}, "dtype is 'float16'"),
        ({"max_bytes": 0}, "max_bytes is 0"),
        ({"X": np.zeros((3, 5))}, "6 features; X has 5"),
        ({"X": np.full((1, 6), 1e300)}, "Row 0|row 0"),
    ):
        with pytest.raises(ValueError, match=words):
            fast.export_c(tmp_path / "no.h", **options)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError, match="does not exist"):
        fast.export_c(tmp_path / "nowhere" / "m.h")


def test_sparse_machines_and_rows(tmp_path):
    machine = random_machine("rbf", d=20, as_csr=True)
    Z = sparse.random(50, 20, density=0.3, format="csr", random_state=0)
    written = svelto.accelerate(machine, method="exact").export_c(tmp_path / "m.h", X=Z)
    assert written.agreement.predictor == 1.0


# -- the command -------------------------------------------------------------------------------------------------------


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as left:
        main(["export", *map(str, arguments)])
    told = capsys.readouterr()
    return left.value.code or 0, told.out, told.err


def test_the_command_writes_a_header(tmp_path, capsys):
    model, data, header = tmp_path / "moons.model", tmp_path / "moons.txt", tmp_path / "moons.h"
    svelto.KernelMachine.from_sklearn(SVC().fit(MOONS[::9], SIDES[::9])).to_libsvm(model)
    dump_svmlight_file(MOONS, SIDES, str(data), zero_based=False)
    code, out, _ = run(capsys, model, "--c", header)
    assert code == 0
    assert "100.0000% of the labels" in out
    assert "int moons_predict(const float *x)" in header.read_text()
    code, out, _ = run(
        capsys,
        model,
        data,
        "--c",
        header,
        "-m",
        "hinges",
        "--agreement",
        "none",
        "--dtype",
        "int8",
        "--name",
        "m",
        "--json",
        "--size",
        "9",
    )
    facts = json.loads(out)
    assert code == 0
    assert (facts["method"], facts["dtype"], facts["name"], facts["promise"]) == ("hinges", "int8", "m", "none")
    assert facts["agreement"]["n_rows"] == len(MOONS)
    assert "m_hinges_bias0[10]" in header.read_text()
    before = header.read_text()
    for arguments, words in (
        ((model, "--c", header, "-m", "hinges"), "add DATA"),
        ((model, "--c", header, "--name", "4"), "expected a C identifier"),
        ((model, "--c", header, "--size", "9"), "--size belongs to --method hinges"),
        ((model, "--c", header, "--agreement", "much"), "--agreement is 'much'"),
        ((model, data, "--c", header, "--max-bytes", "40"), "max_bytes is 40"),
        ((tmp_path / "none.model", "--c", header), "none.model"),
    ):
        code, _, err = run(capsys, *arguments)
        assert code == 1
        assert words in err
        assert len(err.strip().splitlines()) == 1
    assert header.read_text() == before


def test_the_command_reads_svelto_files(tmp_path, capsys):
    """A predictor is written as it is; a machine, and a predictor with --method, as a LIBSVM model would be."""
    svc = SVC().fit(MOONS[::9], SIDES[::9])
    fast = svelto.accelerate(svc, MOONS, method="hinges", agreement=None, n_hinges=9, random_state=0)
    saved, machine, header = tmp_path / "fast.svelto", tmp_path / "machine.svelto", tmp_path / "moons.h"
    fast.save(saved)
    fast.machine.save(machine)
    data = tmp_path / "moons.txt"
    dump_svmlight_file(MOONS, SIDES, str(data), zero_based=False)
    for arguments, method in (((saved,), "hinges"), ((saved, data), "hinges"), ((machine,), "exact")):
        code, out, err = run(capsys, *arguments, "--c", header, "--json")
        assert (code, err) == (0, "")
        assert json.loads(out)["method"] == method
    code, out, _ = run(capsys, saved, "--c", header, "--json", "-m", "exact")
    assert (code, json.loads(out)["method"]) == (0, "exact")
    local = tmp_path / "local.svelto"
    svelto.LocalSVC(k=20).fit(MOONS[::9], SIDES[::9]).save(local)
    code, _, err = run(capsys, local, "--c", header)
    assert code == 1
    assert "holds a LocalSVC; expected a predictor or a SVMTreeClassifier" in err
