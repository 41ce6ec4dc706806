"""`svelto bench --suite` on a tiny folder of data: one real run, and many with a measurement that is made up."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file
from sklearn.svm import SVC

from svelto.cli import main
from svelto.suite import measure as suite_measure
from svelto.suite import own, rivals, row_form
from svelto.suite import run as suite_run
from svelto.suite.contender import Contender
from svelto.suite.figures import best_single, is_below, is_surely_below, over_best, ratio
from svelto.suite.machines import MACHINES, SETS, files_of, load_machine, make_case
from svelto.suite.markdown import table
from svelto.suite.measure import CONTENDERS
from svelto.suite.readme import into_readme
from svelto.suite.summary import summary

N_TRAIN, N_TEST = 300, 240
README = "# Name\n\nbefore\n<!-- suite: begin -->\nold\n<!-- suite: end -->\nafter\n"


def make_rows(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 50.0, size=(n, 4)).round(3)
    return X, (np.hypot(X[:, 0] - 25, X[:, 1] - 25) < 18).astype(int)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    dump_svmlight_file(*make_rows(N_TRAIN, 0), str(folder / "svmguide1"), zero_based=False)
    dump_svmlight_file(*make_rows(N_TEST, 1), str(folder / "svmguide1.t"), zero_based=False)
    return folder


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as left:
        main(["bench", "--suite", *(str(argument) for argument in arguments)])
    told = capsys.readouterr()
    return left.value.code or 0, told.out, told.err


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("SVELTO_CACHE", str(tmp_path_factory.mktemp("cache")))


def no_rivals(monkeypatch):
    for name in ("sklearnex.svm", "onnx", "onnxruntime", "lightgbm"):
        monkeypatch.setitem(sys.modules, name, None)  # import raises ModuleNotFoundError


# -- one real run --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(data, tmp_path_factory):
    """Everything a run writes, with the rivals that are not scikit-learn's missing."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "README.md").write_text(README)
    names = {"markdown": "suite.md", "html": "suite.html", "readme": "README.md", "json-file": "suite.json"}
    arguments = [part for option, name in names.items() for part in (f"--{option}", str(folder / name))]
    with pytest.MonkeyPatch.context() as patch:
        no_rivals(patch)
        patch.setenv("SVELTO_CACHE", str(folder / "cache"))
        given = ["--data", str(data), "--results", str(folder / "results"), "--rounds", "2", "--only", "svmguide1"]
        with pytest.raises(SystemExit) as left:
            main(["bench", "--suite", *given, *arguments])
    assert not left.value.code
    text = {name: (folder / name).read_text() for name in names.values()}
    return SimpleNamespace(folder=folder, given=given, found=json.loads(text["suite.json"]), text=text)


def test_labels_and_accuracy_are_those_of_the_definition(real, data):
    X_train, y_train = make_rows(N_TRAIN, 0)
    X_test, y_test = make_rows(N_TEST, 1)
    low, width = X_train.min(axis=0), np.ptp(X_train, axis=0)
    svc = SVC(C=1.0, gamma=0.25).fit(2 * (X_train - low) / width - 1, y_train)
    labels = svc.predict(2 * (X_test - low) / width - 1)
    record = real.found["records"][0]
    assert (record["dataset"], record["kind"]) == ("svmguide1", "default")
    assert (record["n_sv"], record["n_train"], record["n_test"]) == (svc.support_.size, N_TRAIN, N_TEST)
    lines = {line["name"]: line for line in record["lines"]}
    assert lines["SVC.predict"]["accuracy"] == pytest.approx(np.mean(labels == y_test))
    for name in ("SVC.predict", "exact", "bounded"):
        assert lines[name]["wrong"] == 0
    for line in lines.values():
        assert line["agreement"] == 1.0 - line["wrong"] / N_TEST
        assert line["bytes"] > 0
        cells = {(cell["batch"], cell["threads"]) for cell in line["cells"]}
        assert cells == {("all", 1), ("1", 2), ("100", 2), ("all", 2)}
        for cell in line["cells"]:
            assert len(cell["us_rounds"]) == 2
            assert cell["us_row"] == pytest.approx(np.median(cell["us_rounds"]))
            assert cell["rows"] == {"1": 1, "100": 100, "all": N_TEST}[cell["batch"]]
    assert lines["auto"]["promise"] == "exact"  # so few rows can show nothing else
    assert "needs 2995 rows" in lines["auto"]["chosen_by"]


def tables(text):
    """Tables of a Markdown page: their rows by the first cell."""
    found = []
    for block in re.split(r"\n\n+", text):
        lines = [line[2:-2].split(" | ") for line in block.splitlines() if line.startswith("| ")]
        if len(lines) > 2:
            found.append([dict(zip(lines[0], line, strict=True)) for line in lines[2:]])
    return found


def close(cell, value):
    return float(cell.replace(",", "")) == pytest.approx(value, rel=0.006, abs=0.006)


def test_numbers_of_the_page_are_those_of_the_json(real):
    page = real.text["suite.md"]
    for record in real.found["records"]:
        head = f"### svmguide1 {record['kind']}\n"
        (rows,) = tables(page[page.index(head) :].split("\n### ", 1)[0])
        by_name = {row["contender"]: row for row in rows}
        svc = next(line for line in record["lines"] if line["name"] == "SVC.predict")
        for line in record["lines"]:
            row = by_name[line["name"]]
            times = {(cell["batch"], cell["threads"]): cell for cell in line["cells"]}
            assert row["labels that differ"] == str(line["wrong"])
            assert close(row["accuracy"].removesuffix(" %"), 100 * line["accuracy"])
            assert close(row["us/row: 1 row"], np.median(times["1", 2]["us_rounds"]))
            assert close(row["all, 1 thread"], np.median(times["all", 1]["us_rounds"]))
            assert close(row["all, 2 threads"], np.median(times["all", 2]["us_rounds"]))
            base = next(cell for cell in svc["cells"] if (cell["batch"], cell["threads"]) == ("all", 2))
            over = np.median(np.array(base["us_rounds"]) / np.array(times["all", 2]["us_rounds"]))
            assert close(row["over SVC.predict"], over)
        large = next(t for t in tables(page) if "auto / best single" in t[0])
        row = next(row for row in large if row["machine"] == f"svmguide1 {record['kind']}")
        assert row["SVs"] == f"{record['n_sv']:,}"
        assert close(row["exact"], ratio(record, "exact", "auto"))
        assert close(row["auto / best single"].split()[0], over_best(record))
    measured = {row[""]: row["measured"] for row in _summary_rows(page)}
    for target in real.found["summary"]:
        assert measured[target["what"]] == target["measured"]


def _summary_rows(page):
    rows = re.findall(r"^\| (.+?) \| (.*?) \| .*\|$", page[page.index("## Summary") :].split("\n## ", 1)[0], re.M)
    return [{"": what, "measured": measured} for what, measured in rows]


def test_missing_rivals_are_gaps(real):
    gone = {"intelex": "not installed", "onnxruntime": "not installed", "LightGBM": "not installed"}
    for record in real.found["records"]:
        assert record["gaps"] == gone
        assert [line["name"] for line in record["lines"]] == [name for name in CONTENDERS if name not in gone]
    assert "| LightGBM | - |" in real.text["suite.md"]
    assert real.text["suite.md"].count("not installed") >= 6
    missing = real.found["missing"]
    assert len(missing) == len(MACHINES) - 2
    assert "a9a tuned (its data is not in the folder)" in missing


class _Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags = []
        self.links = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]


def test_pages_need_no_network_and_pictures_have_a_title_for_each_point(real):
    parser = _Tags()
    parser.feed(real.text["suite.html"])
    assert "script" not in parser.tags
    assert parser.links == []
    assert parser.tags.count("details") == 2
    picture = ElementTree.parse(real.folder / "suite.svg").getroot()
    titles = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}title")]
    n_lines = sum(len(record["lines"]) - 1 for record in real.found["records"])  # SVC.predict is the measure
    assert len(titles) == n_lines
    assert sum(", auto (exact)" in text for text in titles) == 2
    assert "![Every contender on every machine](suite.svg)" in real.text["suite.md"]


def test_readme_changes_between_the_marks_only(real):
    text = real.text["README.md"]
    assert text.startswith("# Name\n\nbefore\n<!-- suite: begin -->\n")
    assert text.endswith("\n<!-- suite: end -->\nafter\n")
    assert "old" not in text
    assert "[suite.md](suite.md)" in text
    assert "![Speed against labels that differ](suite.svg)" in text
    assert str(real.folder) not in text  # places of one computer mean nothing elsewhere


def test_a_second_run_measures_nothing(real, capsys, monkeypatch):
    no_rivals(monkeypatch)
    monkeypatch.setattr(suite_run, "measure", None)
    monkeypatch.setattr(suite_run, "load_machine", None)
    code, out, _ = call(capsys, *real.given, "--json")
    assert code == 0
    assert json.loads(out)["records"] == real.found["records"]


def test_trained_models_and_built_methods_are_kept(real, data, monkeypatch):
    models = {path.name.split("-C")[0] for path in (real.folder / "results" / "models").glob("*.joblib")}
    assert models == {"svmguide1"}
    monkeypatch.setenv("SVELTO_DATA", str(data))
    monkeypatch.setattr("svelto.suite.machines.SVC", None)  # training again would fail
    case = load_machine("svmguide1", "tuned", real.folder / "results" / "models")
    assert case.fit_seconds > 0.0
    monkeypatch.setattr(rivals, "LinearSVC", None)
    assert rivals.build_nystroem(case).seconds > 0.0
    built = sorted(path.name for path in (real.folder / "results" / "suite" / "built").glob(f"{case.key}-*"))
    assert [name.removesuffix(".joblib").rsplit("-", 1)[1] for name in built] == [
        "hinges",
        "reduced_set",
        "taylor_tree",
    ]


# -- runs with a measurement that is made up ------------------------------------------------------------------------


def line(name, us, *, wrong=0, promise="exact", bound=None, method=None):
    cells = [
        {"batch": batch, "threads": threads, "rows": 100, "us_row": float(np.median(us)), "us_rounds": list(us)}
        for batch, threads in (("all", 1), ("1", 2), ("100", 2), ("all", 2))
    ]
    facts = {"asked": 0.999, "promise": promise, "bound": bound, "method": method or name}
    if name in ("SVC.predict", "Nystroem + LinearSVC"):
        facts = {}
    common = {"accuracy": 0.9, "wrong": wrong, "agreement": 1 - wrong / 10_000, "bytes": 1000, "build_seconds": 2.0}
    return {"name": name, **common, "note": "", **facts, "cells": cells}


def made_up(wrong=3, auto=(2.0, 3.0, 2.5)):
    lines = [
        line("SVC.predict", (100.0, 110.0, 120.0)),
        line("exact", (10.0, 11.0, 12.0)),
        line("hinges", (1.0, 2.0, 2.0), promise="statistical", bound=0.9991),
        line("reduced_set", (0.1, 0.1, 0.1), promise="statistical", bound=0.9989),
        line("auto", auto, wrong=wrong, promise="statistical", bound=0.9991, method="hinges"),
    ]
    facts = {"C": 1.0, "gamma": 0.25, "n_sv": 2000, "n_features": 4, "n_classes": 2, "n_train": 300, "n_test": 10_000}
    loads = {"other_load": 0.0, "other_load_while_timing": 0.0, "seconds": 1.0}
    return {**facts, "form": "dense", "rounds": 7, "lines": lines, "gaps": {"LightGBM": "not installed"}, **loads}


@pytest.fixture
def quick_measure(monkeypatch):
    """Count machines that are measured, without measuring."""
    seen = []

    def measure(case, rounds, built, key, tell):
        seen.append(key)
        return {**made_up(), "rounds": rounds}

    monkeypatch.setattr(suite_run, "measure", measure)
    monkeypatch.setattr(suite_run, "load_machine", lambda *names, **options: SimpleNamespace(key="-".join(names[:2])))
    return seen


@pytest.fixture
def given(data, tmp_path):
    return ("--data", data, "--results", tmp_path / "results")


def test_what_other_code_packages_or_settings_measured_is_measured_again(given, capsys, quick_measure, monkeypatch):
    assert call(capsys, *given)[0] == 0
    assert len(quick_measure) == 2
    call(capsys, *given)
    call(capsys, *given, "--rounds", "5")  # fewer than there are
    assert len(quick_measure) == 2
    call(capsys, *given, "--rounds", "9")
    assert len(quick_measure) == 4
    call(capsys, *given, "--rounds", "9", "--again")
    assert len(quick_measure) == 6
    monkeypatch.setattr("svelto.suite.store._version", lambda name: "1.2.3")
    call(capsys, *given, "--rounds", "9")
    assert len(quick_measure) == 8
    for module in ("svelto.suite.store", "svelto.suite.run", "svelto.suite.cli"):
        monkeypatch.setattr(f"{module}.code_stamp", lambda: "0123456789ab")
    call(capsys, *given, "--rounds", "9")
    assert len(quick_measure) == 10


def test_other_data_or_another_computer_is_measured_again(given, capsys, quick_measure, monkeypatch, tmp_path):
    folder = tmp_path / "own data"
    folder.mkdir()
    for file in given[1].iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    given = ("--data", folder, *given[2:])
    call(capsys, *given)
    call(capsys, *given)
    assert len(quick_measure) == 2
    with (folder / "svmguide1.t").open("a") as file:
        file.write("1 1:20 2:30\n")
    call(capsys, *given)
    assert len(quick_measure) == 4
    here = suite_run.surroundings()
    for i, (fact, other) in enumerate((("cpu", "another"), ("cores", 1000), ("instruction_level", "none"))):
        monkeypatch.setattr(suite_run, "surroundings", lambda fact=fact, other=other: {**here, fact: other})
        call(capsys, *given)
        assert len(quick_measure) == 6 + 2 * i
    monkeypatch.setattr(suite_run, "surroundings", lambda: {**here, "instruction_level": "none", "commit": "other"})
    call(capsys, *given)  # what a commit changes is told by the code's stamp
    assert len(quick_measure) == 10


def test_what_is_written_into_the_readme_meanwhile_stays(given, capsys, quick_measure, monkeypatch, tmp_path):
    readme, counted = tmp_path / "README.md", suite_run.measure
    readme.write_text(README)

    def measure(*args):
        readme.write_text(README.replace("before", "edited"))
        return counted(*args)

    monkeypatch.setattr(suite_run, "measure", measure)
    assert call(capsys, *given, "--readme", readme)[0] == 0
    assert readme.read_text().startswith("# Name\n\nedited\n")
    assert "old" not in readme.read_text()


def test_interruption_leaves_a_page_of_what_is_done(given, capsys, quick_measure, monkeypatch, tmp_path):
    counted = suite_run.measure

    def stops(*args):
        if quick_measure:
            raise KeyboardInterrupt
        return counted(*args)

    monkeypatch.setattr(suite_run, "measure", stops)
    page = tmp_path / "page.md"
    code, _, err = call(capsys, *given, "--markdown", page)
    assert code == 130
    assert "interrupted; 1 machine measured" in err
    text = page.read_text()
    assert "### svmguide1 default" in text
    assert "### svmguide1 tuned" not in text
    assert "svmguide1 tuned (not reached)" in text
    monkeypatch.setattr(suite_run, "measure", counted)
    assert call(capsys, *given, "--markdown", page)[0] == 0
    assert len(quick_measure) == 2
    assert "### svmguide1 tuned" in page.read_text()


def test_time_limit(given, capsys, quick_measure, monkeypatch):
    clock = iter([0.0, 1.0, 99.0])
    monkeypatch.setattr(suite_run, "perf_counter", lambda: next(clock))
    code, out, _ = call(capsys, *given, "--time-limit", "60", "--json")
    assert code == 0
    assert len(quick_measure) == 1
    found = json.loads(out)
    assert [record["kind"] for record in found["records"]] == ["default"]
    assert "svmguide1 tuned (not reached)" in found["missing"]
    assert found["command"] == "svelto bench --suite --time-limit 60"


def test_preparing_measures_and_writes_nothing(given, capsys, quick_measure, monkeypatch, tmp_path):
    prepared = []
    monkeypatch.setattr(suite_run, "prepare", lambda case, built, key, tell: prepared.append(key))
    code, out, err = call(capsys, *given, "--prepare", "--markdown", tmp_path / "page.md")
    assert (code, out) == (0, "")
    assert "svmguide1 tuned (2 of 2)" in err
    assert [key.split("-sklearn")[0] for key in prepared] == ["svmguide1-default", "svmguide1-tuned"]
    assert quick_measure == []
    assert not (tmp_path / "page.md").exists()


def test_preparing_says_who_is_missing(data, capsys, monkeypatch, tmp_path):
    def build(case, name, built, key):
        return "not installed" if name == "LightGBM" else SimpleNamespace()

    monkeypatch.setattr(suite_measure, "_build", build)
    code, _, err = call(capsys, "--data", data, "--results", tmp_path, "--only", "svmguide1 default", "--prepare")
    assert code == 0
    assert "LightGBM: not installed" in err
    assert err.count("not installed") == 1


def test_pages_alone_and_a_trial_of_its_own(given, capsys, quick_measure, tmp_path):
    page = tmp_path / "page.md"
    code, out, err = call(capsys, *given, "--pages")
    assert (code, out.count("svmguide1")) == (1, 0)
    assert "holds no results yet" in err
    assert call(capsys, *given, "--only", "svmguide1 tuned")[0] == 0
    assert call(capsys, "--results", given[3], "--pages", "--markdown", page)[0] == 0
    assert "### svmguide1 tuned" in page.read_text()
    assert "### svmguide1 default" not in page.read_text()
    assert call(capsys, *given, "--quick", "--markdown", page)[0] == 0
    assert "A trial on few rows" in page.read_text()
    assert len(quick_measure) == 2
    assert sorted(path.name for path in Path(given[3]).iterdir()) == ["suite", "suite-quick"]


def test_terminal_table(given, capsys, quick_measure):
    code, out, err = call(capsys, *given, "--only", "svmguide1 default")
    assert code == 0
    assert re.search(r"svmguide1 default .* hinges .* 2,000 .* 3 of 10,000 .* 2\.00 .*48\.0 .*4\.80 .*1\.50", out)
    assert "LightGBM: not" in out
    assert "(target <= 1.3: missed)" in out
    assert "svmguide1 default (1 of 1): reading" in err


# -- figures by hand ------------------------------------------------------------------------------------------------


def record_of(**options):
    return {"dataset": "svmguide1", "kind": "default", **made_up(**options)}


def test_ratios_are_formed_within_rounds():
    record = record_of(auto=(2.0, 3.0, 2.5))
    assert ratio(record, "SVC.predict", "auto") == pytest.approx(48.0)  # of 50, 36.7, 48
    assert ratio(record, "auto", "LightGBM") is None


def test_the_best_single_method_must_show_its_promise():
    record = record_of(auto=(2.0, 3.0, 2.5))
    assert best_single(record) == "hinges"  # reduced_set is faster, but its bound is below what was asked
    assert over_best(record) == pytest.approx(1.5)  # of 2, 1.5, 1.25
    lines = {target.what: target for target in summary([record, record_of(auto=(1.0, 2.0, 2.0))])}
    found = next(target for what, target in lines.items() if "worst machine, 2 threads" in what)
    assert found.measured.startswith("1.50 (svmguide1 default); median 1.25; above 1.3: 1 of 2")
    assert found.met is False


@pytest.mark.parametrize(
    ("wrong", "below", "surely"),
    [(10, False, False), (11, True, False), (18, True, False), (19, True, True), (40, True, True)],
)
def test_a_broken_promise_is_told_from_chance(wrong, below, surely):
    # Of 10,000 rows about 10 may differ; P(19 or more) is 0.007, P(18 or more) is 0.014.
    record = record_of(wrong=wrong)
    assert (is_below(record), is_surely_below(record)) == (below, surely)
    record["lines"][-1]["promise"] = "exact"
    assert (is_below(record), is_surely_below(record)) == (True, True)


def test_only_the_significant_count_has_a_target():
    plain, sure, *_ = summary([record_of(wrong=11) for _ in range(4)])
    assert plain.measured.startswith("4 of 4")
    assert (plain.target, plain.met) == ("", None)
    assert sure.measured == "0 of 4"
    assert sure.target == "by chance at most about 0.2; with probability 95% at most 1"
    assert sure.met is True
    assert summary([record_of(wrong=40) for _ in range(4)])[1].met is False


def origin_of(**facts):
    place = {"cpu": "one", "cores": 2, "instruction_level": "avx2", "system": "Linux", "python": "3.12", "versions": {}}
    return {"environment": {**place, "commit": "aaaa", **facts}, "code": "0123", "data": {}}


def test_the_readme_tells_all_computers_and_how_many_machines_are_missing():
    records = [{**record_of(), "dataset": name, "kind": kind, **origin_of()} for name, kind in MACHINES]
    text = into_readme(README, records, "the command", None, None)
    assert "one, 2 threads, avx2, commit aaaa; `the command`" in text
    assert "Measured:" not in text
    records = [*records[:1], {**records[1], **origin_of(cpu="two", commit="bbbb")}, {**records[2], "n_sv": 10}]
    text = into_readme(README, records, "the command", None, None)
    first, second, third = (f"{record['dataset']} {record['kind']}" for record in records)
    assert re.search(f"^- {first}, {third}: one, .*commit aaaa, code 0123", text, re.M)
    assert re.search(f"^- {second}: two, .*commit bbbb, code 0123", text, re.M)
    assert f"Measured: 3 of the suite's {len(MACHINES)} machines; 2 of them have 1,000 support vectors" in text


def test_reasons_of_many_lines_stay_in_their_cell():
    reason = suite_measure._failure("intelex", RuntimeError("first\n\n  second | third\n" + 50 * "and so on "))
    assert reason.startswith("failed: RuntimeError: first second | third and so on")
    assert len(reason) <= suite_measure.REASON_LETTERS
    assert reason.endswith("...")
    assert table(("a", "b"), [["x", "first\nsecond | third"]]).splitlines()[2:] == ["| x | first second / third |"]


# -- contenders -----------------------------------------------------------------------------------------------------


def test_as_few_components_as_are_good_enough():
    class Model:
        def __init__(self, n):
            self.n = n

        def fit(self, X, y):
            self.fitted_on = set(X[:, 0])
            return self

        def score(self, X, y):
            assert len(X) * 3 == len(self.fitted_on)
            assert self.fitted_on.isdisjoint(X[:, 0])
            return {100: 0.9, 300: 0.9495, 1000: 0.95}[self.n]

    y = np.arange(4000) % 2
    X = np.arange(4000.0)[:, None]
    assert rivals._enough_components(Model, X, y) == 300
    assert rivals._enough_components(Model, X[:400], y[:400]) == 100  # no more than half of the rows


def case_of(n_classes, form, tmp_path):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(500, 6)) * (rng.random((500, 6)) < [1.0, 1.0, 0.3, 0.3, 0.3, 0.3])
    y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.1) * (n_classes > 2)
    X = sparse.csr_matrix(X) if form == "csr" else X
    return make_case("made", X[:300], y[:300], X[300:], y[300:], C=1.0, gamma=0.3, folder=tmp_path)


@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_machine_is_the_same_in_both_forms(n_classes, form, tmp_path):
    case = case_of(n_classes, form, tmp_path)
    for other in ("dense", "csr"):
        model = row_form.svc_in_form(case.svc, other)
        assert (model is case.svc) == (form == other)
        rows = row_form.asked_rows(case, other)
        assert sparse.issparse(rows) == (other == "csr")
        np.testing.assert_array_equal(model.predict(rows), case.labels)
        np.testing.assert_allclose(
            model.decision_function(rows), case.svc.decision_function(case.X_test), rtol=0, atol=1e-9
        )


@pytest.mark.parametrize("wanted", ["dense", "csr"])
@pytest.mark.parametrize("name", ["SVC.predict", "intelex", "Nystroem + LinearSVC"])
def test_rivals_get_the_faster_form_chosen_on_training_rows(name, wanted, monkeypatch, tmp_path):
    if name == "intelex":
        pytest.importorskip("sklearnex")
    case = case_of(2, "csr", tmp_path)
    as_form, shown, before_choice = row_form.as_form, [], []

    def seen(X, form):
        shown.append(X)
        return as_form(X, form)

    def faster(forms, ask):
        for form in forms:
            ask(form)
        before_choice.extend(shown)
        return wanted

    monkeypatch.setattr(row_form, "fastest", faster)
    monkeypatch.setattr(row_form, "as_form", seen)
    found = rivals.RIVALS[name](case)
    assert {"dense": "dense rows", "csr": "CSR rows"}[wanted] in found.note
    assert sparse.issparse(found.rows) == (wanted == "csr")
    assert np.mean(found.with_threads(1)(found.rows) == case.labels) > 0.9
    assert before_choice
    train, test = (rows_of(X) for X in (case.X_train, case.X_test))
    assert train.isdisjoint(test)
    for X in before_choice:  # support vectors and Nystroem's sample are training rows too
        assert rows_of(X) <= train


def rows_of(X):
    X = X.toarray() if sparse.issparse(X) else X
    return {row.tobytes() for row in X.astype(np.float32)}


def test_rows_that_would_be_too_large_stay_sparse(monkeypatch, tmp_path):
    case = case_of(2, "csr", tmp_path)
    monkeypatch.setattr(row_form, "MOST_DENSE_BYTES", 8 * 300 * 6 - 1)
    assert row_form.faster_form(case, None) == "csr"  # nobody is asked
    assert "CSR rows" in rivals.build_svc(case).note


def test_models_of_other_settings_are_not_taken(monkeypatch, tmp_path):
    case = case_of(2, "dense", tmp_path)
    monkeypatch.setattr(rivals, "COMPONENTS", (20,))
    assert rivals.build_nystroem(case).note.startswith("20 components")
    monkeypatch.setattr(rivals, "COMPONENTS", (30,))
    assert rivals.build_nystroem(case).note.startswith("30 components")
    assert len(list(tmp_path.glob("made-*-nystroem-*.joblib"))) == 2


@pytest.mark.parametrize("calls", [0, 1, 4, 12])  # labels, and times: the first call, a further one, within rounds
def test_a_rival_that_fails_while_it_predicts_is_a_gap(calls, monkeypatch, tmp_path):
    case, left = case_of(2, "dense", tmp_path), [calls]

    def fails(rows):
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("out of\nluck")
        return np.zeros(rows.shape[0], int)

    def build(case, name, built, key):
        if name in ("SVC.predict", "exact"):
            return Contender(name, case.X_test, lambda n_threads: case.svc.predict, 1, 0.0)
        return Contender(name, case.X_test, lambda n_threads: fails, 1, 0.0) if name == "intelex" else "left out"

    monkeypatch.setattr(suite_measure, "_build", build)
    record = suite_measure.measure(case, 2, tmp_path, "key", lambda step: None)
    assert record["gaps"]["intelex"] == "failed: RuntimeError: out of luck"
    assert [line["name"] for line in record["lines"]] == ["SVC.predict", "exact"]
    assert all(len(line["cells"]) == 4 for line in record["lines"])
    json.dumps(record, allow_nan=False)


def test_a_method_of_our_own_that_fails_is_no_gap():
    with pytest.raises(RuntimeError, match="own mistake"):
        suite_measure._failure("exact", RuntimeError("own mistake"))


def test_lightgbm_answers_with_labels(data, monkeypatch, tmp_path):
    pytest.importorskip("lightgbm")
    monkeypatch.setenv("SVELTO_DATA", str(data))
    monkeypatch.setattr(rivals, "TREES", 5)
    case = load_machine("svmguide1", "default", tmp_path)
    found = rivals.build_lightgbm(case)
    labels = found.with_threads(1)(found.rows)
    assert set(labels) <= set(case.y_train)
    assert np.mean(labels == case.y_test) > 0.8
    assert len(list(tmp_path.glob("svmguide1-*-lightgbm*.joblib"))) == 1


def test_ctrl_c_during_the_search_of_auto_ends_the_run(data, monkeypatch, tmp_path):
    report = SimpleNamespace(details={"chosen by": "auto: interrupted: the best of what had been tried"})
    monkeypatch.setattr(own, "accelerate", lambda *args, **options: SimpleNamespace(report=report))
    case = SimpleNamespace(machine=None, X_train=None)
    with pytest.raises(KeyboardInterrupt):
        own.build_own(case, "auto", tmp_path, "key")


def test_files_that_a_set_needs():
    assert files_of("a9a") == ("a9a", "a9a.t")
    assert files_of("mushrooms") == ("mushrooms",)
    assert files_of("ida_image") == ("ida_image", "ida_image.splits.npz")
    assert {name for name, _ in MACHINES} == set(SETS)


# -- errors ----------------------------------------------------------------------------------------------------------


def test_folders_of_data_that_are_none(capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("SVELTO_DATA", raising=False)
    code, _, err = call(capsys)
    assert code == 1
    assert "SVELTO_DATA is not set" in err
    monkeypatch.setenv("SVELTO_DATA", str(tmp_path / "no"))
    assert "no such folder. Set SVELTO_DATA" in call(capsys)[2]
    code, _, err = call(capsys, "--data", tmp_path / "nowhere")
    assert code == 1
    assert "--data is" in err
    assert "holds none of the suite's data sets (a9a" in call(capsys, "--data", tmp_path)[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--only", "a9b"), "--only is 'a9b'; expected a data set of the suite (a9a"),
        (("--only", "a9a tuned"), "does not hold a9a. Set SVELTO_DATA"),
        (("model", "rows"), "--suite has machines of its own, but model is named too"),
        (("--agreement", "0.99"), "--agreement is for MODEL and DATA"),
        (("-m", "exact"), "--method is for MODEL and DATA"),
        (("--prepare", "--pages"), "exclude each other"),
        (("--quick", "--readme", "README.md"), "not those of a trial"),
        (("--markdown", "no/such/page.md"), "the folder no/such does not exist"),
    ],
)
def test_bad_requests(given, capsys, quick_measure, arguments, message):
    code, _, err = call(capsys, *given, *arguments)
    assert code == 1
    assert message in err
    assert quick_measure == []


def test_options_of_the_suite_need_it(capsys):
    for arguments, message in (
        (("model", "rows", "--quick"), "--quick is for --suite"),
        (("model",), "Missing argument 'DATA'"),
        ((), "Missing argument 'MODEL'"),
    ):
        with pytest.raises(SystemExit) as left:
            main(["bench", *arguments])
        assert left.value.code == 1
        assert message in capsys.readouterr().err


def test_a_readme_without_marks_is_told_before_the_work(given, capsys, quick_measure, tmp_path):
    (tmp_path / "README.md").write_text("# nothing to write between\n")
    code, _, err = call(capsys, *given, "--readme", tmp_path / "README.md")
    assert code == 1
    assert "<!-- suite: begin -->" in err
    assert quick_measure == []


def test_damaged_results_are_named(given, capsys, quick_measure):
    call(capsys, *given)
    file = Path(given[3]) / "suite" / "svmguide1-tuned.json"
    for text in ("{", "{}"):
        file.write_text(text)
        code, _, err = call(capsys, *given)
        assert code == 1
        assert "svmguide1-tuned.json: not a file of results" in err
