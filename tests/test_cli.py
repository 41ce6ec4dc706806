"""The command line: svm-predict's bytes, files of every format in and out, and each message. No network.

Models are written by hand with random numbers, so that no trainer is needed; labels stand in an unsorted order and
several kernels occur. Where `svm-predict` is installed, it is the judge; the definition is checked in any case.
"""

import bz2
import errno
import gzip
import io
import json
import lzma
import os
import shutil
import stat
import subprocess
import sys
from dataclasses import asdict

import numpy as np
import pytest
from scipy import sparse

import svelto
from svelto import cli
from svelto._rowfiles import fit_width, read_rows, read_svmlight, write_atomically, write_results
from svelto.demo import Line

SVM_PREDICT = shutil.which("svm-predict")
needs_svm_predict = pytest.mark.skipif(SVM_PREDICT is None, reason="LIBSVM's svm-predict is not installed")
N_FEATURES = 6
NOISE = np.random.default_rng(0).bytes(999)  # does not compress
NPY = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (99, 6), }".ljust(127) + b"\n"
KERNELS = {
    "rbf": "rbf\ngamma 0.35",
    "linear": "linear",
    "poly": "polynomial\ndegree 3\ngamma 0.5\ncoef0 1",
    "sigmoid": "sigmoid\ngamma 0.1\ncoef0 -0.25",
}


def svmlight(X, labels=None):
    """LIBSVM text of a dense matrix, zeros left out."""
    lines = []
    for row, label in zip(X, np.ones(len(X), int) if labels is None else labels, strict=True):
        lines.append(" ".join([f"{label:g}", *(f"{j + 1}:{float(v)!r}" for j, v in enumerate(row) if v != 0)]))
    return "".join(line + "\n" for line in lines)


def write_model(path, *, svm_type="c_svc", kernel="rbf", labels=(3, -1, 2), probability=True, seed=0):
    rng = np.random.default_rng(seed)
    classifies = svm_type.endswith("svc")
    k = len(labels) if classifies else 2
    counts = rng.integers(4, 9, size=k if classifies else 1)
    n_sv, n_pairs = int(counts.sum()), k * (k - 1) // 2
    vectors = np.round(rng.normal(size=(n_sv, N_FEATURES)), 3) * (rng.random((n_sv, N_FEATURES)) < 0.8)
    vectors[0, -1] = 0.5
    coef = np.round(rng.normal(size=(n_sv, k - 1)), 6)
    words = [f"svm_type {svm_type}", f"kernel_type {KERNELS[kernel]}", f"nr_class {k}", f"total_sv {n_sv}"]
    words.append("rho " + " ".join(f"{v:.6f}" for v in rng.normal(scale=0.3, size=n_pairs)))
    if classifies:
        words.append("label " + " ".join(map(str, labels)))
        if probability:
            words.append("probA " + " ".join(f"{v:.6f}" for v in -1 - rng.random(n_pairs)))
            words.append("probB " + " ".join(f"{v:.6f}" for v in rng.normal(scale=0.2, size=n_pairs)))
        words.append("nr_sv " + " ".join(map(str, counts)))
    rows = svmlight(vectors).splitlines()
    body = [f"{' '.join(repr(float(c)) for c in coef[i])} {rows[i].partition(' ')[2]}" for i in range(n_sv)]
    path.write_text("\n".join([*words, "SV", *body]) + "\n")
    return path


@pytest.fixture
def rows():
    rng = np.random.default_rng(7)
    return np.round(rng.normal(size=(60, N_FEATURES)), 4) * (rng.random((60, N_FEATURES)) < 0.7)


@pytest.fixture
def files(tmp_path, rows):
    """A folder with `model` (three classes) and `data`."""
    write_model(tmp_path / "model")
    (tmp_path / "data").write_text(svmlight(rows, np.resize([3, -1, 2, 2], len(rows))))
    return tmp_path


def fails(run, *args):
    """Run a command that must fail: exit code 1, nothing on stdout, one line on stderr, which is returned."""
    code, out, err = run(*args)
    assert code == 1
    assert out == b""
    assert "Traceback" not in err
    (line,) = err.splitlines()
    assert line.startswith("svelto: ")
    return line


def svm_predict(*args):
    done = subprocess.run([SVM_PREDICT, *map(str, args)], capture_output=True, check=True)
    return done.stdout.decode()


# -- predict against svm-predict -----------------------------------------------------------------------------------


@needs_svm_predict
@pytest.mark.parametrize("probability", [0, 1])
@pytest.mark.parametrize("labels", [(1, -1), (-1, 1), (3, -1, 2), (7, 5, 1234567, -2)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_classes_and_probabilities_are_svm_predicts_bytes(files, run, kernel, labels, probability):
    model = write_model(files / "model", kernel=kernel, labels=labels, seed=len(labels))
    code, out, _ = run("predict", model, files / "data", "-b", probability, "-o", files / "ours")
    said = svm_predict("-b", probability, files / "data", model, files / "theirs")
    assert code == 0
    assert (files / "ours").read_bytes() == (files / "theirs").read_bytes()
    assert out.decode() == said.removeprefix("Model supports probability estimates, but disabled in prediction.\n")


@needs_svm_predict
@pytest.mark.parametrize("svm_type", ["nu_svc", "one_class"])
def test_other_types_are_svm_predicts_bytes(files, run, svm_type):
    model = write_model(files / "model", svm_type=svm_type, probability=False)
    code, out, _ = run("predict", model, files / "data", "-o", files / "ours")
    said = svm_predict(files / "data", model, files / "theirs")
    assert (code, out.decode()) == (0, said)
    assert (files / "ours").read_bytes() == (files / "theirs").read_bytes()


@needs_svm_predict
@pytest.mark.parametrize("svm_type", ["epsilon_svr", "nu_svr"])
def test_regression_is_svm_predicts_text(files, run, svm_type):
    model = write_model(files / "model", svm_type=svm_type)
    code, out, _ = run("predict", model, files / "data", "-o", files / "ours")
    said = svm_predict(files / "data", model, files / "theirs")
    assert (code, out.decode()) == (0, said)
    ours, theirs = (files / "ours").read_text(), (files / "theirs").read_text()
    # 17 digits show the order of summation, so the numbers agree to rounding and the text is the same function of them.
    np.testing.assert_allclose(np.array(ours.split(), float), np.array(theirs.split(), float), rtol=1e-9, atol=1e-12)
    assert ours == "".join(f"{float(word):.17g}\n" for word in ours.split())
    again = io.BytesIO()
    write_results(again, "libsvm", np.array(theirs.split(), float))
    assert again.getvalue().decode() == theirs


@needs_svm_predict
def test_precomputed_kernel(tmp_path, run):
    rng = np.random.default_rng(1)
    model = "svm_type c_svc\nkernel_type precomputed\nnr_class 2\ntotal_sv 3\nrho 0.1\nlabel 1 -1\nnr_sv 2 1\nSV\n"
    (tmp_path / "model").write_text(model + "0.5 0:1 \n0.25 0:4 \n-0.75 0:2 \n")
    K = rng.normal(size=(20, 4))
    lines = ["1 0:1 " + " ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row)) for row in K.tolist()]
    (tmp_path / "data").write_text("\n".join(lines) + "\n")
    code, out, _ = run("predict", tmp_path / "model", tmp_path / "data", "-o", tmp_path / "ours")
    assert (code, out.decode()) == (0, svm_predict(tmp_path / "data", tmp_path / "model", tmp_path / "theirs"))
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    np.save(tmp_path / "K.npy", K)
    assert run("predict", tmp_path / "model", tmp_path / "K.npy")[1] == (tmp_path / "theirs").read_bytes()
    np.save(tmp_path / "K.npy", K[:, :3])
    message = fails(run, "predict", tmp_path / "model", tmp_path / "K.npy")
    assert "K.npy has 3 kernel values a row; this precomputed kernel needs 4, one for each training row." in message


@needs_svm_predict
@pytest.mark.parametrize("kernel", KERNELS)
def test_wider_rows_count_as_in_svm_predict(files, run, rows, kernel):
    model = write_model(files / "model", kernel=kernel, probability=False)
    wide = np.hstack([rows, np.random.default_rng(0).random((len(rows), 2))])
    (files / "data").write_text(svmlight(wide))
    code, out, _ = run("predict", model, files / "data", "-o", files / "ours")
    assert (code, out.decode()) == (0, svm_predict(files / "data", model, files / "theirs"))
    assert (files / "ours").read_bytes() == (files / "theirs").read_bytes()


# -- predict, in any case ------------------------------------------------------------------------------------------


def definition(path, X):
    """Scores of a model file with one score, written to be read."""
    machine = svelto.KernelMachine.from_libsvm(path)
    return machine.kernel(X, machine.support_vectors) @ machine.dual_coef[0] + machine.intercept[0]


def test_two_classes_follow_the_definition(files, run, rows):
    model = write_model(files / "model", labels=(5, 8), probability=False)
    code, out, err = run("predict", model, files / "data")
    want = np.where(definition(model, rows) > 0, 5, 8)
    assert code == 0
    assert out.decode().split() == [str(label) for label in want]
    assert err == "Accuracy = 0% (0/60) (classification)\n"


def test_regression_follows_the_definition(files, run, rows):
    model = write_model(files / "model", svm_type="epsilon_svr")
    code, out, err = run("predict", model, files / "data")
    want = definition(model, rows)
    np.testing.assert_allclose(np.array(out.split(), float), want, rtol=1e-9, atol=1e-12)
    y = read_rows(files / "data").y
    assert code == 0
    assert err.splitlines() == [
        f"Mean squared error = {np.mean((want - y) ** 2):g} (regression)",
        f"Squared correlation coefficient = {np.corrcoef(want, y)[0, 1] ** 2:g} (regression)",
    ]


def test_messages_and_quiet(files, run):
    code, quiet_out, err = run("predict", files / "model", files / "data", "-q")
    assert (code, err) == (0, "")
    assert len(quiet_out.splitlines()) == 60
    code, out, err = run("predict", files / "model", files / "data")
    assert out == quiet_out
    assert err.startswith("The model can give probabilities; -b 1 writes them.\nAccuracy = ")
    code, out, err = run("predict", files / "model", files / "data", "-q", "-o", files / "out")
    assert (code, out, err) == (0, b"", "")
    assert (files / "out").read_bytes() == quiet_out


def test_labels_with_probabilities_are_the_likeliest(files, run):
    _, out, _ = run("predict", files / "model", files / "data", "-b", "1", "-q")
    header, *lines = out.decode().splitlines()
    table = np.array([line.split() for line in lines], float)
    assert header == "labels 3 -1 2"
    assert table.shape == (60, 4)
    assert (np.array([3, -1, 2])[table[:, 1:].argmax(axis=1)] == table[:, 0]).all()
    np.testing.assert_allclose(table[:, 1:].sum(axis=1), 1, atol=2e-6)  # 6 digits each


def test_every_format_in_gives_the_same_answer(files, run, rows):
    _, want, _ = run("predict", files / "model", files / "data", "-q")
    np.save(files / "rows.npy", rows)
    np.save(files / "fortran32.npy", np.asfortranarray(rows, dtype=np.float32))
    np.savez(files / "rows.npz", X=rows)
    sparse.save_npz(files / "sparse.npz", sparse.coo_matrix(rows))
    np.savetxt(files / "rows.csv", rows, delimiter=",", fmt="%.17g")
    np.savetxt(files / "header.csv", rows, delimiter=",", fmt="%.17g", header="a,b,c,d,e,f", comments="")
    (files / "data.bz2").write_bytes(bz2.compress((files / "data").read_bytes()))
    (files / "data.xz").write_bytes(lzma.compress((files / "data").read_bytes()))
    (files / "rows.csv.gz").write_bytes(gzip.compress((files / "rows.csv").read_bytes()))
    for name in ("rows.npy", "rows.npz", "sparse.npz", "rows.csv", "header.csv", "data.bz2", "data.xz", "rows.csv.gz"):
        assert run("predict", files / "model", files / name)[:2] == (0, want), name
    shutil.copy(files / "rows.csv", files / "rows.txt")
    assert run("predict", files / "model", files / "rows.txt", "--format", "csv")[1] == want
    assert run("predict", files / "model", files / "fortran32.npy")[0] == 0


def test_npz_labels_give_the_accuracy(files, run, rows):
    machine_says = np.array(run("predict", files / "model", files / "data", "-q")[1].split(), int)
    np.savez(files / "rows.npz", X=rows, y=machine_says)
    assert run("predict", files / "model", files / "rows.npz")[2].endswith("Accuracy = 100% (60/60) (classification)\n")


def test_formats_out(files, run):
    text = np.array(run("predict", files / "model", files / "data", "-q")[1].split(), int)
    run("predict", files / "model", files / "data", "-q", "-o", files / "out.npy")
    saved = np.load(files / "out.npy")
    assert saved.dtype.kind == "i"
    assert (saved == text).all()
    run("predict", files / "model", files / "data", "-q", "-b", "1", "-o", files / "p.npy")
    run("predict", files / "model", files / "data", "-q", "-b", "1", "-o", files / "p.csv")
    assert (files / "p.csv").read_text().startswith("label,3,-1,2\n")
    table = np.loadtxt(files / "p.csv", delimiter=",", skiprows=1)
    assert table.shape == (60, 4)
    assert (table == np.load(files / "p.npy")).all()


def test_strict_width_refuses_further_features(files, run):
    (files / "data").write_text("3 1:1\n3 1:1 8:2\n")
    message = fails(run, "predict", files / "model", files / "data", "--strict-width", "-o", files / "out")
    assert "The model was trained on 6 features; " in message
    assert (
        "data, row 2, has feature number 8. Use the data that belong to this model, or leave out --strict-width"
        in message
    )
    assert not (files / "out").exists()


def test_a_feature_number_in_the_billions_costs_one_column(files, run):
    (files / "far").write_text("3 1:1 8:2\n-1 2:1 2000000000:0.5\n2 8:1 2000000000:1\n")
    (files / "near").write_text("3 1:1 7:2\n-1 2:1 8:0.5\n2 7:1 8:1\n")
    want = run("predict", files / "model", files / "near", "-q")[1]
    assert run("predict", files / "model", files / "far", "-q") == (0, want, "")


def test_narrow_text_and_zero_extra_columns_are_fine(files, run, rows):
    narrow = rows.copy()
    narrow[:, -2:] = 0
    (files / "narrow").write_text(svmlight(narrow))
    np.save(files / "full.npy", narrow)
    want = run("predict", files / "model", files / "full.npy", "-q")[1]
    assert run("predict", files / "model", files / "narrow", "-q")[1] == want
    (files / "zeros").write_text("".join(line + " 9:0\n" for line in (files / "narrow").read_text().splitlines()))
    assert run("predict", files / "model", files / "zeros", "-q")[1] == want


def test_no_rows(files, run):
    (files / "data").write_text("")
    assert run("predict", files / "model", files / "data", "-q") == (0, b"", "")
    assert run("predict", files / "model", files / "data")[2].endswith("No rows, nothing predicted.\n")
    assert run("predict", files / "model", files / "data", "-q", "-b", "1") == (0, b"labels 3 -1 2\n", "")
    (files / "rows.csv").write_text("a,b,c,d,e,f\n")
    assert run("predict", files / "model", files / "rows.csv", "-q") == (0, b"", "")


def test_rows_of_zeros_and_comments(files, run):
    (files / "data").write_text("# two rows\n3 # nothing but zeros\n\n-1 2:0.5 # one value\n")
    np.save(files / "rows.npy", [[0.0] * 6, [0, 0.5, 0, 0, 0, 0]])
    assert (
        run("predict", files / "model", files / "data", "-q")[1]
        == run("predict", files / "model", files / "rows.npy", "-q")[1]
    )


# -- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "3 1:1\nx 1:2\n",
            "data, line 2: the label is 'x'; expected 'label index:value index:value ...' with a number",
        ),
        ("3 1:1\n1:2 2:2\n", "data, line 2: the label is '1:2'; expected"),
        ("3 1:1 2\n", "data, line 1: '2' is not a feature; expected 'label index:value index:value ...'."),
        ("3 1:1 2:abc\n", "data, line 1: '2:abc' is not a feature"),
        ("3 -1:1\n", "data, line 1: '-1:1' is not a feature"),
        ("3 0:1\n", "data, line 1: feature number 0 occurs; feature numbers start at 1."),
        ("3 2:1 1:1\n", "data, line 1: feature 1 follows feature 2; feature numbers must increase."),
        ("3 1:1 1:1\n", "data, line 1: feature 1 follows feature 1; feature numbers must increase."),
        ("3 99999999999:1\n", "data, line 1: feature number 99999999999 is too large; expected less than 2147483647."),
        ("3 1:" + "x" * 99, "data, line 1: '1:" + "x" * 38 + "...' is not a feature"),
        ("3 1:1\n3 2:nan\n", "data, row 2, column 2: the value is nan; every value must be a finite number. Fill in"),
        ("3 1:1\n3 2:1 5:-inf\n", "data, row 2, column 5: the value is -inf; every value must be"),
    ],
)
def test_bad_text_is_told_with_its_place(files, run, content, message):
    (files / "data").write_text(content)
    assert message in fails(run, "predict", files / "model", files / "data", "-q", "-o", files / "out")
    assert not (files / "out").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", b"1,2,3,4,5,6\n1,2,3,4,five,6\n", "x.csv: not a table of numbers (could not convert string 'five'"),
        (
            "x.csv",
            b"1,2,3,4,5,6\n1,2\n",
            "x.csv: not a table of numbers (the number of columns changed from 6 to 2 at row 2). Expected",
        ),
        ("x.csv", b"", "x.csv: the first line is empty; expected comma-separated numbers."),
        ("x.csv", b"1,2,3,4,5,nan\n", "x.csv, row 1, column 6: the value is nan; every value must be a finite number."),
        ("x.csv", b"1,2,3\n", "The model was trained on 6 features; "),
        ("x.csv", b"3,1,2,3,4,5,6\n", "x.csv has 7 columns. If one column holds the labels, remove it."),
        ("x.npy", b"not numpy", "x.npy: not a readable NPY file ("),
        ("x.npz", b"not a zip", "x.npz: not a readable NPZ file ("),
        ("x.npz", b"PK\x03\x04 cut", "x.npz: not a readable NPZ file ("),
        ("x.bz2", b"not bz2", "x.bz2: the compressed data are damaged or cut short (Invalid data stream). Replace"),
        (
            "x.xz",
            lzma.compress(b"3 1:1\n" * 99)[:-9],
            "x.xz: the compressed data are damaged or cut short",
        ),
        ("x.csv.gz", gzip.compress(NOISE)[:-9], "x.csv.gz: the compressed data are damaged or cut short"),
        ("x.npy.bz2", bz2.compress(NPY + NOISE)[:-9], "x.npy.bz2: the compressed data are damaged or cut short"),
    ],
)
def test_bad_files_are_told_by_name(files, run, name, content, message):
    (files / name).write_bytes(content)
    assert message in fails(run, "predict", files / "model", files / name, "-q")


@pytest.mark.parametrize(
    ("name", "arrays", "message"),
    [
        ("x.npy", np.ones(6), "x.npy: the array has shape (6,); expected rows and columns, (n_samples, n_features)."),
        ("x.npy", np.array([["a"] * 6]), "x.npy: the array has dtype <U1; expected real numbers."),
        ("x.npy", np.ones((2, 6), complex), "x.npy: the array has dtype complex128; expected real numbers."),
        ("x.npy", np.array([[None] * 6]), "x.npy: not a readable NPY file (Object arrays cannot be loaded"),
        (
            "x.npz",
            {"a": np.ones((2, 6)), "b": np.ones(2)},
            "x.npz holds a, b; expected an array named 'X', or a matrix",
        ),
        (
            "x.npz",
            {"X": np.ones((2, 6)), "y": np.ones(3)},
            "x.npz: 'y' has shape (3,); expected one label for each of the 2",
        ),
        ("x.npz", {"X": np.array([[None] * 6])}, "x.npz: not a readable NPZ file (Object arrays cannot be loaded"),
        (
            "x.npz",
            {
                "format": np.array(b"csr"),
                "shape": np.array([1, 6]),
                "data": np.ones(1),
                "indices": np.array([77]),
                "indptr": np.array([0, 1]),
            },
            "x.npz: the sparse matrix is not valid (",
        ),
    ],
)
def test_bad_arrays_are_told(files, run, name, arrays, message):
    if isinstance(arrays, dict):
        np.savez(files / name, **arrays)
    else:
        np.save(files / name, arrays)
    assert message in fails(run, "predict", files / "model", files / name, "-q")


def test_files_that_are_not_there(files, run):
    assert fails(run, "predict", files / "model", files / "none").endswith("none: No such file or directory.")
    assert fails(run, "predict", files / "none", files / "data").endswith("none: No such file or directory.")
    assert fails(run, "info", files).endswith(": Is a directory.")
    message = fails(run, "predict", files / "model", files / "data", "-q", "-o", files / "no" / "out")
    assert f"The folder {files / 'no'} does not exist. Create it, or write somewhere else." in message
    message = fails(run, "predict", files / "model", files / "data", "-q", "-o", files)
    assert f"{files} is a folder; expected the name of a file to write." in message


def test_cut_model_is_told(files, run):
    text = (files / "model").read_text()
    (files / "model").write_text(text[: len(text) * 2 // 3].rsplit("\n", 1)[0] + "\n")
    assert str(files / "model") in fails(run, "predict", files / "model", files / "data")
    assert str(files / "model") in fails(run, "info", files / "model")


def test_probabilities_a_model_does_not_have(files, run):
    write_model(files / "model", probability=False)
    message = fails(run, "predict", files / "model", files / "data", "-b", "1")
    assert message.endswith("model holds no probabilities. Use -b 0, or train with svm-train -b 1.")
    write_model(files / "model", svm_type="epsilon_svr")
    message = fails(run, "predict", files / "model", files / "data", "-b", "1")
    assert message.endswith("model holds no probabilities. Use -b 0, or train with svm-train -b 1.")


@needs_svm_predict
def test_regression_with_noise_scale_speaks_as_svm_predict_does(files, run):
    model = write_model(files / "model", svm_type="epsilon_svr")
    model.write_text(model.read_text().replace("SV\n", "probA 0.25\nSV\n", 1))
    code, out, _ = run("predict", model, files / "data", "-b", "1", "-o", files / "ours")
    theirs = svm_predict("-b", "1", files / "data", model, files / "theirs")
    assert code == 0
    assert out.decode().splitlines()[:2] == theirs.splitlines()[:2]
    assert "sigma=0.25" in theirs
    np.testing.assert_allclose(np.loadtxt(files / "ours"), np.loadtxt(files / "theirs"), rtol=1e-12)


def test_outlier_probabilities_are_named(files, run, rows):
    model = write_model(files / "model", svm_type="one_class")
    marks = " ".join(str(v) for v in np.linspace(-1, 1, 10))
    model.write_text(model.read_text().replace("SV\n", f"prob_density_marks {marks}\nSV\n", 1))
    code, out, _ = run("predict", model, files / "data", "-b", "1", "-q")
    lines = out.decode().splitlines()
    assert (code, lines[0], len(lines)) == (0, "labels normal outlier", len(rows) + 1)
    values = np.array([line.split() for line in lines[1:]], dtype=float)
    assert set(values[:, 0]) <= {-1.0, 1.0}
    np.testing.assert_allclose(values[:, 1] + values[:, 2], 1.0, atol=1e-5)


def test_wrong_arguments_exit_with_2(files, run):
    for args in (["predict"], ["predict", "m", "d", "-b", "2"], ["nonsense"], ["predict", "m", "d", "--format", "xls"]):
        code, out, err = run(*args)
        assert code == 2
        assert out == b""
        assert "Traceback" not in err
        assert err
    with pytest.raises(ValueError, match=r"Unknown format 'xls'. Expected one of libsvm, csv, npy, npz\."):
        read_rows(files / "data", "xls")


# -- writing -------------------------------------------------------------------------------------------------------


def test_ctrl_c_leaves_nothing_and_keeps_what_was(files, run, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    (files / "out").write_text("older")
    before = sorted(os.listdir(files))
    monkeypatch.setattr(cli, "_answers", interrupt)
    code, out, err = run("predict", files / "model", files / "data", "-q", "-o", files / "out")
    assert (code, out, err) == (130, b"", "svelto: interrupted, nothing was written.\n")
    assert sorted(os.listdir(files)) == before
    assert (files / "out").read_text() == "older"


def test_closed_pipe_ends_quietly(files, run, monkeypatch):
    def closed(*args):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(cli, "write_results", closed)
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # the framework replaces both
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    code, out, err = run("predict", files / "model", files / "data", "-q")
    assert code != 0
    assert (out, err) == (b"", "")


def test_write_atomically(tmp_path):
    target = tmp_path / "out"
    with write_atomically(target) as file:
        file.write(b"half")
        assert not target.exists()
    umask = os.umask(0)
    os.umask(umask)
    assert target.read_bytes() == b"half"
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~umask
    target.chmod(0o640)
    (tmp_path / "link").symlink_to(target)
    with write_atomically(tmp_path / "link") as file:
        file.write(b"new")
    assert target.read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640

    def break_off():
        with write_atomically(target) as file:
            file.write(b"broken")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        break_off()
    assert target.read_bytes() == b"new"
    assert sorted(os.listdir(tmp_path)) == ["link", "out"]
    with write_atomically(os.devnull) as file:
        file.write(b"gone")
    assert not os.path.isfile(os.devnull)


def test_fit_width_leaves_its_input_alone(tmp_path):
    (tmp_path / "x").write_text("1 2:3 4:0\n")
    given = read_rows(tmp_path / "x")
    assert fit_width(given, 3).shape == (1, 3)
    assert fit_width(given, 9).shape == (1, 9)
    assert given.X.shape == (1, 4)
    assert given.X.nnz == 2


def test_read_svmlight_keeps_the_width(tmp_path):
    (tmp_path / "x").write_text("1 2:3\n-1\n")
    X, y = read_svmlight(tmp_path / "x", n_features=5)
    assert X.shape == (2, 5)
    assert X[0, 1] == 3
    assert y.tolist() == [1, -1]
    assert X.indices.dtype == np.int32
    with pytest.raises(ValueError, match=r"x: feature number 2 occurs, but 1 features were expected\."):
        read_svmlight(tmp_path / "x", n_features=1)


# -- the other commands --------------------------------------------------------------------------------------------


def test_info(files, run):
    code, out, err = run("info", files / "model")
    facts = dict(line.split("  ", 1) for line in out.decode().splitlines())
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    machine = svelto.KernelMachine.from_libsvm(files / "model")
    counts = machine.n_support
    assert (code, err) == (0, "")
    assert facts["type"] == "c_svc (classification)"
    assert facts["kernel"] == "rbf(gamma=0.35)"
    assert facts["support vectors"] == str(machine.n_sv)
    assert facts["features"] == "6"
    assert facts["classes"] == f"3: 3 ({counts[0]} SVs), -1 ({counts[1]} SVs), 2 ({counts[2]} SVs)"
    assert facts["probabilities"] == "yes (predict -b 1)"
    assert facts["scores a row"] == "3"
    assert facts["file"].endswith(f"model ({(files / 'model').stat().st_size:,} bytes)")
    assert facts["stored as"].startswith(("dense, ", "sparse, "))
    assert facts["bytes in memory"].replace(",", "").isdigit()
    write_model(files / "model", svm_type="one_class")
    out = run("info", files / "model")[1].decode()
    assert "one_class (outlier)" in out
    assert "classes" not in out
    assert "probabilities" not in out


def test_demo(run):
    code, out, err = run("demo", "--rows", "200", "--seed", "1")
    text = out.decode()
    assert (code, err) == (0, "")
    assert "digits, 10 classes" in text
    assert "899/899" in text
    assert "generated, 2 classes" in text
    assert "400/400" in text


def test_demo_in_json(run, monkeypatch):
    line = Line("moons", "hinges", "statistical", 100, 2, 400, 399, 0.5, 0.25)
    monkeypatch.setattr("svelto.demo.measure", lambda n_rows, seed: iter([line]))
    code, out, err = run("demo", "--rows", "200", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"agreement": 0.999, "rows": 200, "seed": 0, "lines": [asdict(line)]}


def test_help_and_version(run):
    code, out, _ = run("--help")
    assert code == 0
    assert all(command in out.decode() for command in ("demo", "info", "predict"))
    code, out, _ = run("predict", "--help")
    assert code == 0
    assert "--strict-width" in out.decode()
    code, out, _ = run("--version")
    assert code == 0
    assert out.startswith(b"svelto ")


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_missing_extra_is_one_line(run, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    assert run("--help") == (2, b"", 'The command line needs typer and rich: pip install "svelto[cli]"\n')


def test_module_runs(files):
    done = subprocess.run([sys.executable, "-m", "svelto", "info", files / "model"], capture_output=True, check=False)
    assert done.returncode == 0
    assert b"rbf(gamma=0.35)" in done.stdout
    done = subprocess.run([sys.executable, "-m", "svelto", "info", files / "none"], capture_output=True, check=False)
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
