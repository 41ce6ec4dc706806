"""`svelto bench`: every method on a user's model and rows."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file, make_moons
from sklearn.svm import SVC, SVR

import svelto
from svelto.bench import ALL_METHODS, bench
from svelto.cli import main

X, Y = make_moons(1200, noise=0.3, random_state=0)
SVM = SVC(C=10.0).fit(X[:800], Y[:800])
MACHINE = svelto.KernelMachine.from_sklearn(SVM)


@pytest.fixture
def files(tmp_path):
    svelto.KernelMachine.from_sklearn(SVM).to_libsvm(tmp_path / "moons.model")
    dump_svmlight_file(X, Y, str(tmp_path / "moons.txt"), zero_based=False)
    return str(tmp_path / "moons.model"), str(tmp_path / "moons.txt")


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as left:
        main(["bench", *arguments])
    told = capsys.readouterr()
    return left.value.code or 0, told.out, told.err


def test_figures_are_measured_on_rows_that_nothing_was_built_on(monkeypatch):
    monkeypatch.setattr("svelto.stage_search.PAYS", 1e9)  # stages of so small a machine would not pay
    told = []
    lines, report = bench(
        MACHINE, X, methods=("exact", "taylor_tree", "auto"), agreement=0.9, n_jobs=1, tell=told.append
    )
    assert lines == told
    assert report is not None
    exact, tree, auto = lines
    assert exact.promise == "exact"
    assert exact.agreement == 1.0
    assert tree.promise == "statistical"
    assert 0.9 <= tree.agreement <= 1.0
    assert auto.method == f"auto: {report.method}"
    for line in lines:
        assert line.microseconds > 0.0
        assert line.build_seconds > 0.0
        assert line.nbytes > 0
        assert line.speedup > 0.0


def test_what_cannot_be_built_says_why():
    linear = svelto.KernelMachine.from_sklearn(SVC(kernel="linear").fit(X, Y))
    lines, _ = bench(linear, X, methods=("exact", "hinges"), n_jobs=1)
    assert lines[1].promise == ""
    assert "already one product" in lines[1].note
    assert lines[1].facts()["microseconds"] is None
    values = svelto.KernelMachine.from_sklearn(SVR().fit(X, X[:, 0]))
    (line,), _ = bench(values, X, methods=("taylor_tree",), agreement=0.9, n_jobs=1)
    assert "needs a tolerance" in line.note
    (line,), _ = bench(values, X, methods=("taylor_tree",), agreement=0.9, tolerance=0.2, n_jobs=1)
    assert line.agreement >= 0.9


def test_a_table_of_all_methods(capsys, files):
    code, out, _ = run(capsys, *files, "--agreement", "0.9", "-j", "1")
    assert code == 0
    for method in ALL_METHODS:
        assert method in out
    assert "times exact" in out


def test_json_and_a_page(capsys, files, tmp_path):
    page = tmp_path / "report.html"
    asked = ("-m", "exact", "-m", "auto", "--json", "--html", str(page), "--batch-size", "1", "-j", "1")
    code, out, err = run(capsys, *files, *asked)
    assert code == 0
    found = json.loads(out)
    assert found["rows"] == 1200
    assert [line["method"].split(":")[0] for line in found["methods"]] == ["exact", "auto"]
    assert str(page) in err
    assert "svelto" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-m", "magic"), "Unknown method 'magic'"),
        (("-m", "exact", "--html", "page.html"), "Add -m auto"),
        (("--agreement", "1.5"), "agreement is 1.5"),
    ],
)
def test_bad_requests(capsys, files, arguments, message):
    code, out, err = run(capsys, *files, *arguments)
    assert code == 1
    assert message in err
    assert out == "" or "moons" in out


def test_info_as_json(capsys, files):
    with pytest.raises(SystemExit) as left:
        main(["info", files[0], "--json"])
    found = json.loads(capsys.readouterr().out)
    assert not left.value.code
    assert (found["support vectors"], found["features"]) == (MACHINE.n_sv, 2)
    assert found["kernel"].startswith("rbf")


def test_completion_is_offered(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "--install-completion" in capsys.readouterr().out


def test_missing_files_and_few_rows(capsys, files, tmp_path):
    assert run(capsys, files[0], str(tmp_path / "no.txt"))[0] == 1
    assert run(capsys, str(tmp_path / "no.model"), files[1])[0] == 1
    dump_svmlight_file(X[:5], Y[:5], str(tmp_path / "few.txt"), zero_based=False)
    code, _, err = run(capsys, files[0], str(tmp_path / "few.txt"), "--json")
    assert code == 1
    assert "There are 5 rows" in err
    assert np.isfinite(SVM.intercept_).all()
