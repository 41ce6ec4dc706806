"""`svelto accelerate`, and what `predict` and `info` make of its files."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from sklearn.svm import SVC, SVR

import svelto
from file_cases import CASES, NAMES, QUERIES, THREE, X, Y
from svelto import cli_accelerate


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A LIBSVM model file, its training rows, and rows to predict."""
    folder = tmp_path_factory.mktemp("models")
    svelto.KernelMachine.from_sklearn(SVC(gamma=2.0, C=5.0).fit(X, Y)).to_libsvm(folder / "some.model")
    np.save(folder / "train.npy", X)
    np.save(folder / "rows.npy", QUERIES)
    lines = [f"{label} 1:{float(a)!r} 2:{float(b)!r}\n" for label, (a, b) in zip(Y, X, strict=True)]
    (folder / "train.txt").write_text("".join(lines))
    return folder


@pytest.fixture
def labels(files):
    return svelto.accelerate(files / "some.model", method="exact").predict(QUERIES)


def test_a_model_becomes_a_fast_file(run, files, tmp_path, labels):
    code, out, err = run("accelerate", files / "some.model", files / "train.npy", "-o", tmp_path / "f", "-m", "exact")
    assert (code, err) == (0, "")
    text = out.decode()
    assert "promise" in text
    assert f"{tmp_path / 'f'}: {(tmp_path / 'f').stat().st_size:,} bytes" in text
    fast = svelto.load(tmp_path / "f")
    assert fast.report.method == "exact"
    np.testing.assert_array_equal(fast.predict(QUERIES), labels)


def test_auto_with_a_budget(run, files, tmp_path):
    options = ["--agreement", "0.9", "--confidence", "0.9", "--time-budget", "1", "--batch-size", "64"]
    options += ["--max-bytes", "10000000", "--random-state", "3", "-j", "1", "--json"]
    code, out, _ = run("accelerate", files / "some.model", files / "train.txt", "-o", tmp_path / "f", *options)
    assert code == 0
    facts = json.loads(out)
    assert facts["file"] == str(tmp_path / "f")
    assert facts["bytes"] == (tmp_path / "f").stat().st_size
    assert facts["rows"] == len(X)
    assert facts["report"]["promise"] in ("exact", "statistical")
    assert svelto.load(tmp_path / "f").report.method == facts["report"]["method"]


def test_none_promises_nothing(run, files, tmp_path):
    arguments = [files / "some.model", files / "train.npy", "-o", tmp_path / "f", "-m", "taylor_tree"]
    code, out, _ = run("accelerate", *arguments, "--agreement", "none", "--max-bytes", "100000", "--json")
    assert code == 0
    assert json.loads(out)["report"]["promise"] == "none"


def test_a_fast_file_can_be_accelerated_again(run, files, tmp_path):
    arguments = ["-o", tmp_path / "a", "-m", "exact"]
    assert run("accelerate", files / "some.model", files / "train.npy", *arguments)[0] == 0
    assert run("accelerate", tmp_path / "a", files / "train.npy", "-o", tmp_path / "a", "-m", "bounded")[0] == 0
    assert svelto.load(tmp_path / "a").report.method == "bounded"
    CASES["local_linear"]().save(tmp_path / "local")
    code, _, err = run("accelerate", tmp_path / "local", files / "train.npy", *arguments)
    assert code == 1
    assert "holds a LocalSVC, which is fast already" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-m", "magic"], "'magic' is no method"),
        (["-m", "exact", "--batch-size", "5"], "--batch-size belongs to --method auto"),
        (["-m", "hinges", "--max-bytes", "5"], "--max-bytes belongs to --method auto or taylor_tree"),
        (["-m", "exact", "--tolerance", "0.1"], "--tolerance is of no use"),
        (["--agreement", "most"], "expected a share or 'none'"),
        (["--batch-size", "0"], "--batch-size"),
        (["--unknown"], "--unknown"),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value),
)
def test_wrong_usage(run, files, tmp_path, options, message):
    code, out, err = run("accelerate", files / "some.model", files / "train.npy", "-o", tmp_path / "f", *options)
    assert (code, out) == (2, b"")
    assert message in " ".join(err.replace("│", " ").split())
    assert os.listdir(tmp_path) == []


def test_wrong_files_and_values(run, files, tmp_path, monkeypatch):
    model, rows, target = files / "some.model", files / "train.npy", tmp_path / "f"
    for arguments, message in (
        ([tmp_path / "no", rows, "-o", target], "No such file"),
        ([model, tmp_path / "no.npy", "-o", target], "No such file"),
        ([rows, rows, "-o", target], "train.npy"),
        ([model, rows, "-o", tmp_path / "no" / "f"], "does not exist"),
        ([model, rows, "-o", tmp_path], "is a folder"),
        ([model, rows, "-o", target, "--agreement", "1.5"], "agreement is 1.5"),
        ([model, rows, "-o", target, "--confidence", "0"], "confidence is 0"),
    ):
        code, out, err = run("accelerate", *arguments)
        assert (code, out) == (1, b"")
        assert message in err
        assert err.startswith("svelto: ")
        assert err.count("\n") == 1
    assert os.listdir(tmp_path) == []

    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_accelerate.svelto, "accelerate", interrupt)
    assert run("accelerate", model, rows, "-o", target)[0] == 130
    assert os.listdir(tmp_path) == []


# -- predict -------------------------------------------------------------------------------------------------------


def test_predict_with_a_svelto_file_writes_what_it_writes_with_the_model(run, files, tmp_path):
    run("accelerate", files / "some.model", files / "train.npy", "-o", tmp_path / "f", "-m", "exact")
    for rows in ("train.txt", "rows.npy"):
        for suffix in ("out", "csv"):
            assert run("predict", files / "some.model", files / rows, "-o", tmp_path / f"a.{suffix}")[0] == 0
            assert run("predict", tmp_path / "f", files / rows, "-o", tmp_path / f"b.{suffix}")[0] == 0
            assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()
    code, out, err = run("predict", tmp_path / "f", files / "train.txt")
    assert (code, out) == run("predict", files / "some.model", files / "train.txt")[:2]
    assert err.startswith("Accuracy = ")


def test_predict_in_json(run, files, tmp_path, labels):
    code, out, _ = run("predict", files / "some.model", files / "rows.npy", "--json")
    assert code == 0
    assert json.loads(out) == {"rows": len(QUERIES), "predictions": labels.tolist()}
    code, out, err = run("predict", files / "some.model", files / "train.txt", "--json", "-o", tmp_path / "out")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert facts.keys() == {"rows", "accuracy"}
    found = np.loadtxt(tmp_path / "out")
    assert facts["accuracy"] == np.mean(found == Y)


def test_labels_that_are_text(run, tmp_path):
    fast = svelto.accelerate(SVC(gamma=1.0).fit(X, NAMES[THREE]), method="exact")
    fast.save(tmp_path / "f")
    np.save(tmp_path / "rows.npy", QUERIES)
    code, out, _ = run("predict", tmp_path / "f", tmp_path / "rows.npy")
    assert (code, out.decode().split()) == (0, fast.predict(QUERIES).tolist())


def test_probabilities_of_a_saved_model(run, tmp_path):
    tree = CASES["svm_tree"]()
    tree.save(tmp_path / "tree")
    np.save(tmp_path / "rows.npy", QUERIES)
    code, out, _ = run("predict", tmp_path / "tree", tmp_path / "rows.npy", "-b", "1", "--json")
    facts = json.loads(out)
    assert (code, facts["labels"]) == (0, tree.classes_.tolist())
    np.testing.assert_array_equal(facts["probabilities"], tree.predict_proba(QUERIES))
    assert run("predict", tmp_path / "tree", tmp_path / "rows.npy", "-b", "1", "-o", tmp_path / "p.csv")[0] == 0
    first, second = (tmp_path / "p.csv").read_text().splitlines()[:2]
    assert first == "label,no,perhaps,yes"
    assert second.split(",")[0] == tree.predict(QUERIES)[0]
    code, _, err = run("predict", tmp_path / "tree", tmp_path / "rows.npy", "-b", "1", "-o", tmp_path / "p.npy")
    assert code == 1
    assert "no text beside numbers" in err
    CASES["exact"]().save(tmp_path / "f")
    code, _, err = run("predict", tmp_path / "f", tmp_path / "rows.npy", "-b", "1")
    assert (code, "holds no probabilities" in err) == (1, True)


def test_values_of_a_saved_regressor(run, tmp_path):
    fast = svelto.accelerate(SVR(gamma=1.0).fit(X, X[:, 0]), method="exact")
    fast.save(tmp_path / "f")
    lines = [f"{a} 1:{float(a)!r} 2:{float(b)!r}\n" for a, b in QUERIES]
    (tmp_path / "rows.txt").write_text("".join(lines))
    code, out, _ = run("predict", tmp_path / "f", tmp_path / "rows.txt", "--json")
    facts = json.loads(out)
    assert code == 0
    np.testing.assert_array_equal(facts["predictions"], fast.predict(QUERIES))
    assert facts["mean_squared_error"] == np.mean((fast.predict(QUERIES) - QUERIES[:, 0]) ** 2)


def test_rows_that_do_not_fit(run, tmp_path):
    CASES["exact"]().save(tmp_path / "f")
    np.save(tmp_path / "wide.npy", np.zeros((3, 5)))
    (tmp_path / "wide.txt").write_text("1 1:1 5:2\n")
    for name in ("wide.npy", "wide.txt"):
        code, out, err = run("predict", tmp_path / "f", tmp_path / name)
        assert (code, out) == (1, b"")
        assert "The model was trained on 2 features" in err


def test_damaged_files_are_told_in_one_line(run, tmp_path):
    CASES["exact"]().save(tmp_path / "f")
    data = bytearray((tmp_path / "f").read_bytes())
    data[-1] ^= 1
    (tmp_path / "f").write_bytes(data)
    np.save(tmp_path / "rows.npy", QUERIES)
    for arguments in (["info", tmp_path / "f"], ["predict", tmp_path / "f", tmp_path / "rows.npy"]):
        code, out, err = run(*arguments)
        assert (code, out) == (1, b"")
        assert "damaged" in err
        assert err.count("\n") == 1


# -- info ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["exact", "promised", "machine", "svm_tree", "local", "precomputed", "regression"])
def test_info_says_what_is_in_a_file(run, case, tmp_path):
    model = CASES[case]()
    model.save(tmp_path / "f")
    code, out, err = run("info", tmp_path / "f")
    assert (code, err) == (0, "")
    lines = dict(line.split("  ", 1) for line in out.decode().splitlines())
    assert lines["holds"].strip() == type(model).__name__
    assert f"by svelto {svelto.__version__}" in lines["format"]
    if isinstance(model, svelto.Predictor):
        assert lines["promise"].strip().startswith(model.report.promise)
    facts = json.loads(run("info", tmp_path / "f", "--json")[1])
    assert facts["holds"] == type(model).__name__
