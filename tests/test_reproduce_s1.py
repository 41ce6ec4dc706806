"""Paper S1, run again: its printed numbers, parameters and their file, approximations, targets, pages, messages.

`accelerate` is replaced by a stand-in wherever the tree itself is not the matter; only the run at the end uses data.
"""

import bz2
import math
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.svm import SVC

from svelto import datasets, reproduce
from svelto.reproduce import _measure, _paper_s1, _s1_machines, _s1_render, s1
from svelto.reproduce._common import Results
from svelto.reproduce._s0_data import Parts
from svelto.reproduce._s3_machines import deal
from test_reproduce import FACTS
from test_reproduce_s3 import cells, read

DATA = Path(os.environ.get("SVELTO_DATA", "nowhere"))
needs_data = pytest.mark.skipif(not (DATA / "ida_thyroid.bz2").is_file(), reason="the data sets are not here")

SMALL = {**s1.TUNING, "cv_folds": 3, "linear_C_powers": [-3, 1], "C_powers": [-1, 3], "gamma_powers": [-5, -1]}


def rings(n_rows=90, seed=0):
    """A disc of label 1 inside a ring of label -1, with some overlap."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 2))
    return X, np.where((X**2).sum(axis=1) + 0.3 * rng.normal(size=n_rows) < 1.2, 1, -1)


def small_parts(seed=0):
    X, y = rings(seed=seed)
    return Parts(X[:60], y[:60], X[60:], y[60:])


# -- the paper -----------------------------------------------------------------------------------------------------


def test_paper_table1():
    table = _paper_s1.TABLE1
    assert len(table) == 11
    assert table["splice"] == ("splice", 0.51, 0.83, 0.89, 0.68, 0.86, 0.77, 588, 11.4, 12)
    assert table["heart"][1:] == (0.56, 0.82, 0.82, 0.75, 0.84, 0.84, 60, 8.2, 9)
    assert table["german"].evaluations == 10.9  # "109" in the text
    for line in table.values():
        assert line.sv_tree <= line.svm
        assert line.n_basis in (math.ceil(line.evaluations), math.ceil(line.evaluations) + 1)
        assert line.budget <= line.evaluations < line.budget + 1
        assert f"ida_{line.name}" in datasets.names()
    assert {name for name, line in table.items() if line.sv_tree > max(line.linear, line.cpsp_tr)} == {
        "thyroid",
        "image",
        "ringnorm",  # and banana, which only draws with cpsp(tr) in two digits
    }


# -- parameters ----------------------------------------------------------------------------------------------------


def test_the_rule_of_choice():
    point = _s1_machines.Point
    points = [
        point(1, -1, 50, 90),
        point(3, -3, 52, 80),
        point(5, -3, 52, 70),
        point(1, 1, 52, 70),
        point(1, -5, 52, 70),
    ]
    assert _s1_machines.choose(points) == point(1, -5, 52, 70)
    assert _s1_machines.choose(points[:4]) == point(1, 1, 52, 70)
    assert _s1_machines.choose(points[:3]) == point(5, -3, 52, 70)
    assert _s1_machines.choose(points[:2]) == point(3, -3, 52, 80)
    linear = [point(3, None, 7, 5), point(1, None, 7, 5)]
    assert _s1_machines.choose(linear).C_power == 1


@pytest.mark.parametrize("gamma_power", [None, -1])
def test_cross_validation_is_that_of_its_folds(gamma_power):
    X, y = rings()
    fold_of = deal(y, 3)
    if gamma_power is None:
        gram, svc = X @ X.T, SVC(kernel="linear", C=2.0)
    else:
        gram = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=-1))
        svc = SVC(C=2.0, gamma=0.5)
    points = _s1_machines.cross_validate(gram, y, fold_of, [-3, 1], gamma_power, n_jobs=2)
    assert [point[:2] for point in points] == [(-3, gamma_power), (1, gamma_power)]
    answers = cross_val_predict(svc, X, y, cv=PredefinedSplit(fold_of))
    assert points[1].n_right == np.count_nonzero(answers == y)
    assert points[1].n_sv == sum(len(svc.fit(X[fold_of != k], y[fold_of != k]).support_) for k in range(3))


def test_tuning_finds_the_curved_border_and_repeats_itself():
    X, y = rings(200)
    tuned = _s1_machines.tune(X, y, SMALL, n_jobs=1)
    assert tuned == _s1_machines.tune(X, y, SMALL, n_jobs=2)
    assert set(tuned["linear"]) == {"C", "cv_accuracy"}
    assert tuned["rbf"]["gamma"] in (2.0**-5, 2.0**-1)
    assert tuned["rbf"]["cv_accuracy"] > tuned["linear"]["cv_accuracy"] + 0.1
    linear, svc = _s1_machines.fit(X, y, tuned)
    assert (linear.kernel, linear.C) == ("linear", tuned["linear"]["C"])
    assert (svc.kernel, svc.C, svc.gamma) == ("rbf", tuned["rbf"]["C"], tuned["rbf"]["gamma"])


def test_parameters_are_kept_split_by_split(tmp_path, monkeypatch):
    calls = []

    def tune(X, y, settings, n_jobs):
        calls.append(len(y))
        return {"linear": {"C": float(len(calls))}}

    monkeypatch.setattr(_s1_machines, "tune", tune)
    parts = small_parts()
    first = s1.TunedFile(tmp_path, reuse=False)
    for split in (0, 1):
        first.tune("heart", split, parts, SMALL, 1)
        assert len(read(tmp_path / "s1-tuned.json")["results"]["heart"]["splits"]) == split + 1
    again = s1.TunedFile(tmp_path, reuse=True)
    assert [again.tune("heart", split, parts, SMALL, 1)["linear"]["C"] for split in (0, 1, 2)] == [1, 2, 3]
    assert len(calls) == 3  # the third split is new
    again.tune("banana", 0, parts, SMALL, 1)
    assert list(read(tmp_path / "s1-tuned.json")["results"]) == ["heart", "banana"]
    other = s1.TunedFile(tmp_path, reuse=True)
    assert other.tune("heart", 0, parts, {**SMALL, "cv_folds": 4}, 1)["linear"]["C"] == 5
    fresh = s1.TunedFile(tmp_path, reuse=False)
    assert fresh.tune("banana", 0, parts, SMALL, 1)["linear"]["C"] == 6


# -- machines and approximations -----------------------------------------------------------------------------------


def test_machines_are_measured_on_test_rows():
    parts = small_parts()
    tuned = {"linear": {"C": 2.0}, "rbf": {"C": 4.0, "gamma": 0.5}}
    record, svc = s1.measure_machines(parts, tuned)
    frequent = 1 if (parts.y_train == 1).sum() >= 30 else -1
    assert record["dummy"] == np.mean(parts.y_test == frequent)
    assert record["linear"] == SVC(kernel="linear", C=2.0).fit(*parts[:2]).score(*parts[2:])
    assert record["svm"] == SVC(C=4.0, gamma=0.5).fit(*parts[:2]).score(*parts[2:]) == svc.score(*parts[2:])
    assert record["n_sv"] == len(svc.support_)


def stand_in(seen=None, wrong=0):
    """Something like `accelerate`: the SVC's labels, the first `wrong` of them turned round."""

    def accelerate(svc, X, **options):
        if seen is not None:
            seen.append((options, len(X)))

        def predict(rows):
            labels = svc.predict(rows)
            labels[:wrong] *= -1
            return labels

        evaluations = options.get("max_evals", options.get("n_basis", 9.5))
        return SimpleNamespace(predict=predict, work=lambda rows: {"kernel_evaluations_per_row": evaluations})

    return accelerate


def test_approximations_and_their_options(monkeypatch):
    seen, parts = [], small_parts()
    monkeypatch.setattr(_measure.svelto, "accelerate", stand_in(seen, wrong=3))
    svc = SVC(C=4.0, gamma=0.5).fit(parts.X_train, parts.y_train)
    record = s1.measure_approximations(svc, parts, 8, n_jobs=1)
    common = {"agreement": None, "n_jobs": 1, "random_state": s1.SEED}
    assert seen == [
        ({**common, "method": "sv_tree", "tree": "paper"}, 60),
        ({**common, "method": "sv_tree", "max_evals": 8}, 60),
        ({**common, "method": "sv_tree", "max_evals": 8, "candidates": "support_vectors"}, 60),
        ({**common, "method": "reduced_set", "n_basis": 8}, 60),
    ]
    assert list(record) == list(_s1_render.SIDES)
    assert [side["evaluations"] for side in record.values()] == [9.5, 8, 8, 8]
    labels = svc.predict(parts.X_test)
    labels[:3] *= -1
    for side in record.values():
        assert side["agreement"] == pytest.approx(27 / 30)
        assert side["accuracy"] == np.mean(labels == parts.y_test)


def test_the_reduced_set_keeps_to_its_size():
    parts = small_parts()
    svc = SVC(C=4.0, gamma=0.5).fit(parts.X_train, parts.y_train)
    options = s1.plans(8)["reduced_set"]
    fast, _ = _measure.build(svc, parts.X_train, agreement=None, n_jobs=1, **options)
    assert fast.work(parts.X_test)["kernel_evaluations_per_row"] == 8


# -- targets -------------------------------------------------------------------------------------------------------


def record_of(name, *, tree, paper_tree=None, agreement=0.95, evaluations=9.0, n_splits=2, warned=False):
    """A record whose mean accuracies are those given; they vary by 0.01 between splits."""
    line = _paper_s1.TABLE1[name]

    def side(accuracy, step):
        return {
            "accuracy": accuracy + step,
            "agreement": agreement,
            "evaluations": evaluations,
            "warnings": ["few rows"] if warned else [],
        }

    splits = []
    for i in range(n_splits):
        step = 0.01 * (i - (n_splits - 1) / 2)
        paper = line.sv_tree if paper_tree is None else paper_tree
        sides = {"paper_tree": side(paper, step), "tree": side(tree, step)}
        sides |= {"chosen_tree": side(tree - 0.02, step), "reduced_set": side(0.6, step)}
        machines = {"dummy": 0.5, "linear": 0.7, "svm": 0.9, "n_sv": 100 + i}
        splits.append({"official": name != "splice", "tuned": {}, **machines, "sides": sides})
    settings = {"seed": 0, "splits": None, "tuning": s1.TUNING, "budget": line.budget}
    return {"settings": settings, "n_train": 400, "n_test": 4900, "n_features": 2, "splits": splits}


def targets_of(records):
    lines = [_s1_render.Line(_paper_s1.TABLE1[name], record) for name, record in records.items()]
    return _s1_render.targets(lines)


def test_all_targets_met():
    records = {name: record_of(name, tree=0.995, agreement=0.995) for name in _paper_s1.TABLE1}
    found = targets_of(records)
    assert [(target.n_reached, target.n_all, target.wanted) for target in found] == [
        (11, 11, 9),
        *2 * [(11, 11, 11), (11, 11, 6), (11, 11, 8), (4, 4, 4)],
    ]
    assert all(target.missed == [] for target in found)
    assert [target.cells()[3] for target in found] == ["yes"] * 9


def test_targets_name_what_is_missed():
    records = {name: record_of(name, tree=0.99, agreement=0.995) for name in _paper_s1.TABLE1}
    # 0.88 is the paper's sv-tree and cpsp(tr): not above, but at least 0.88 - 0.01.
    records["banana"] = record_of("banana", tree=0.88, paper_tree=0.9101, agreement=0.9899)
    # The better of 0.85 (linear) and 0.87 (cpsp(tr)), less 0.01, is 0.86; agreement is good, evaluations are not.
    records["image"] = record_of("image", tree=0.8599, paper_tree=0.92, agreement=0.995, evaluations=12.1)
    records["heart"] = record_of("heart", tree=0.83)  # 0.84 - 0.01: reached
    found = targets_of(records)
    assert found[0].missed == ["banana (0.910, 0.88 ± 0.03)"]  # image: exactly 0.03 away
    assert found[1].missed == ["image (0.860, 0.890)", "banana (0.880, 0.880)"]
    assert [name.split()[0] for name in found[2].missed] == ["heart", "image", "banana"]
    assert found[3].missed == ["image (0.860, 0.860)"]
    assert [name.split()[0] for name in found[4].missed] == ["image", "banana"]
    assert found[1].cells()[1:4] == ["9 of 11", "11", "no"]
    assert found[2].cells()[1:4] == ["8 of 11", "6", "yes"]
    assert found[4].cells()[1:4] == ["2 of 4", "4", "no"]
    # The tree of support vectors alone is 0.02 worse.
    assert found[5].missed == ["image (0.840, 0.890)", "banana (0.860, 0.880)"]
    assert found[7].missed == ["heart (0.810, 0.830)", "image (0.840, 0.860)", "banana (0.860, 0.870)"]


def test_few_sets_cannot_meet_what_all_should():
    found = targets_of({"banana": record_of("banana", tree=0.99, agreement=0.999)})
    assert [target.cells()[1:4] for target in found] == [
        ["1 of 1", "9", "no"],
        *2 * [["1 of 1", "11", "no"], ["1 of 1", "6", "no"], ["1 of 1", "8", "no"], ["1 of 1", "4", "no"]],
    ]


# -- pages, one data set after the other ---------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch, tmp_path):
    """A folder of small sets, a small grid, and no trees."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name, n_splits in (("heart", 3), ("splice", 2)):
        width = datasets._SETS[f"ida_{name}"].n_features
        X, y = rings(seed=n_splits)
        X = np.hstack([X, np.ones((len(y), width - 2))])
        with bz2.open(folder / f"ida_{name}.bz2", "wb") as file:
            dump_svmlight_file(X, y, file, zero_based=False)
        order = np.array([np.random.default_rng(i).permutation(len(y)) for i in range(n_splits)], dtype=np.uint16)
        official = np.full(n_splits, name != "splice")
        np.savez(folder / f"ida_{name}.splits.npz", train=order[:, :60], test=order[:, 60:], official=official)
    monkeypatch.setenv("SVELTO_DATA", str(folder))
    monkeypatch.setenv("SVELTO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(s1, "TUNING", SMALL)
    seen = []
    monkeypatch.setattr(_measure.svelto, "accelerate", stand_in(seen, wrong=1))
    return seen


def test_a_table_and_its_page(small, tmp_path):
    output = tmp_path / "out"
    files = reproduce.run("s1-table1", output=output, only=["splice", "heart"], n_jobs=1)
    assert files == [output / "s1-table1.json", output / "s1-table1.md"]
    records, page = read(files[0])["results"], files[1].read_text()
    assert list(records) == ["heart", "splice"]
    record = records["heart"]
    assert len(record["splits"]) == 3
    assert (record["n_train"], record["n_test"], record["n_features"]) == (60, 30, 13)
    tuned = read(output / "s1-tuned.json")["results"]
    assert [split["tuned"] for split in record["splits"]] == tuned["heart"]["splits"]
    assert [options["max_evals"] for options, _ in small if "max_evals" in options] == [8] * 6 + [11] * 4

    machines, accuracy, agreement = cells(page, "heart")
    found = [split["svm"] for split in record["splits"]]
    mean = f"{np.mean(found):.3f} ± {np.std(found, ddof=1):.3f}"
    assert machines[1:6] == ["13", "60", "30", "3", "0.56"]
    assert machines[9:12] == ["0.82", mean, "60"]
    assert machines[12] == f"{np.mean([split['n_sv'] for split in record['splits']]):.0f}"
    assert (accuracy[1:3], accuracy[7:]) == ([mean, "0.75"], ["0.84", "0.84"])
    assert agreement[2:5] == ["8.2", "9", "8"]
    assert agreement[5:] == ["9.5", f"{29 / 30:.4f}", *3 * ["8.0", f"{29 / 30:.4f}"]]
    assert "not the benchmark's own: splice 2 of 2." in page
    assert "gamma from 2^-5, 2^-1; linear" in page
    assert "gave a warning" not in page


def test_resuming_and_tuning_anew(small, tmp_path, monkeypatch):
    tuned, tune = [], _s1_machines.tune

    def counted(*args):
        tuned.append(1)
        return tune(*args)

    monkeypatch.setattr(_s1_machines, "tune", counted)

    def run(**options):
        tuned.clear()
        small.clear()
        reproduce.run("s1-table1", output=tmp_path, n_jobs=1, **options)
        return len(tuned), len(small) // 4

    assert run(only=["heart"], splits=2) == (2, 2)
    assert run(only=["heart"], splits=2, resume=True) == (0, 0)
    assert run(only=["heart"], resume=True) == (1, 3)  # all three splits, two of them are tuned
    (tmp_path / "s1-table1.json").unlink()
    assert run(only=["heart"], splits=50, resume=True) == (0, 3)
    assert run(only=["heart"]) == (3, 3)
    # Without --only: what has no file is left out, and said.
    assert run(resume=True) == (2, 2)
    assert "Not available: banana, breast_cancer" in (tmp_path / "s1-table1.md").read_text()


def test_ctrl_c_keeps_what_is_finished(small, monkeypatch, tmp_path):
    measure = s1.measure_approximations

    def stop(svc, parts, budget, n_jobs):
        if budget == 11:
            raise KeyboardInterrupt
        return measure(svc, parts, budget, n_jobs)

    monkeypatch.setattr(s1, "measure_approximations", stop)
    with pytest.raises(reproduce.Interrupted, match=r"1 of 2 data sets finished.*--resume"):
        reproduce.run("s1-table1", output=tmp_path, only=["heart", "splice"], n_jobs=1)
    assert list(read(tmp_path / "s1-table1.json")["results"]) == ["heart"]
    assert len(read(tmp_path / "s1-tuned.json")["results"]["splice"]["splits"]) == 1


def test_warnings_and_single_splits_on_the_page():
    record = record_of("banana", tree=0.9, n_splits=1, warned=True)
    document = {"unavailable": [], "results": {"banana": {**record, "environment": FACTS}}}
    page = _s1_render.render_table1(document)
    expected = "warning (texts are in the JSON file): paper's tree 1, svelto's tree 1, svelto's tree, "
    assert expected + "support vectors only 1, reduced set 1." in page
    assert cells(page, "banana")[0][10] == "0.900"  # one split has no standard deviation
    assert "benchmark's own" not in page
    assert "C from 2^-3, 2^-1, ..., 2^11, gamma from 2^-11, 2^-9, ..., 2^3; linear: C from 2^-9" in page


# -- messages ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--only", "iris"], "Unknown data set 'iris' in s1-table1. Expected one of heart, thyroid, breast_cancer"),
        (["--repeats", "2"], "s1-table1 has no option --repeats."),
    ],
)
def test_wrong_names_and_options(run, tmp_path, args, message):
    code, out, err = run("reproduce", "s1-table1", *args, "-o", tmp_path / "new")
    assert (code, out) == (1, b"")
    assert err.startswith(f"svelto: {message}")
    assert not (tmp_path / "new").exists()


def test_missing_data_are_one_line(run, tmp_path, monkeypatch):
    def load(name, split):
        raise datasets.DatasetNotFoundError(f"{name} is nowhere")

    monkeypatch.setattr(s1, "load_split", load)
    code, out, err = run("reproduce", "s1-table1", "-o", tmp_path)
    assert (code, out) == (1, b"")
    assert err.endswith("is nowhere\n")
    assert err.count("\n") == 1
    assert os.listdir(tmp_path) == []


def test_a_damaged_file_of_parameters(run, tmp_path):
    (tmp_path / "s1-tuned.json").write_text("{}")
    code, out, err = run("reproduce", "s1-table1", "--resume", "-o", tmp_path)
    assert (code, out) == (1, b"")
    assert "s1-tuned.json: not a file of results (KeyError('format'))" in err


# -- whole runs ----------------------------------------------------------------------------------------------------


@needs_data
def test_machines_of_thyroid(tmp_path):
    rows = s1.load_split("thyroid", 0)
    assert (rows.n_splits, rows.official, rows.parts.X_train.shape) == (19, True, (140, 5))
    tuned = s1.TunedFile(tmp_path, reuse=False).tune("thyroid", 0, rows.parts, s1.TUNING, 1)
    record, svc = s1.measure_machines(rows.parts, tuned)
    assert record["svm"] > 0.9 > record["dummy"]
    assert len(svc.support_) < 80
    assert Results(tmp_path / "s1-tuned.json", "s1-tuned").has("thyroid", s1.TUNING)
