"""Paper S2, run again: its printed numbers, splits, machines and trees, the chain of Table 4.1, the figures.

Small made-up sets go through the same code as the papers' data; tables of chapter 5 are in test_reproduce_s2_tables.py.
"""

import bz2
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file
from sklearn.svm import SVC

import svelto
from svelto import datasets, reproduce
from svelto.reproduce import _paper_s2, _s2_chain, _s2_data, _s2_figure, _s2_machines, _s2_render
from svelto.reproduce._s0_data import Parts
from svelto.reproduce._s2_lines import TREES
from test_reproduce import table_rows
from test_reproduce_s1 import rings
from test_reproduce_s3 import read

GRID = {"C_powers": [0, 4], "steps": [0, 3]}
SETTINGS = {
    "seed": 0,
    "splits": 1,
    "repeats": 1,
    "n_jobs": 2,
    "baseline_rows": 20,
    "grids": {"rbf": GRID},
    "cv_rows": 40,
    "cv_folds": 2,
}


def bands(n_rows=120, seed=0):
    """Three stripes, labels -1, 1, -1, with gaps between them: one hyperplane cannot part the classes, two can."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n_rows, 2))
    stripe = np.arange(n_rows) % 3
    X[:, 1] = 0.25 * X[:, 1] + 0.7 * (stripe - 1)
    return X, np.where(stripe == 1, 1, -1)


def blobs(n_rows, n_features, seed=0):
    """Three classes around three corners."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_rows) % 3 + 1
    return 0.2 * rng.normal(size=(n_rows, n_features)) + np.eye(n_features)[y], y


def small_parts(seed=0):
    X, y = bands(seed=seed)
    return Parts(X[:60], y[:60], X[60:], y[60:])


# -- the paper -----------------------------------------------------------------------------------------------------


def test_paper_table41():
    lines = _paper_s2.TABLE41
    assert [line.number for line in lines] == list(range(1, 13))
    assert "".join(line.solver for line in lines) == "hchhhhchhhcc"
    assert [line.hard_class for line in lines] == [-1, 1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1]
    assert {line.sign for line in lines} == {1}  # "The sign of w was never changed"
    assert [line.number for line in lines if line.perpendicular] == [4, 6, 10]
    assert len(lines) - len(_paper_s2.PRUNED) == 10


def test_paper_tables():
    tables = _paper_s2.TABLES
    assert [table.number for table in tables.values()] == [f"5.{i}" for i in range(1, 12)]
    for table in tables.values():
        for side in (table.rbf, table.greedy0, table.greedy1):
            assert round(100 * side.right / table.n_test, 2) == side.accuracy
    # The last columns of the paper: support vectors, training time, classification time, each over the tree's.
    ratios = {
        "5.1": (266, 266, 1.28, 0.63, 3.6, 3.7),
        "5.2": (293.67, 293.67, 1.24, 0.69, 3.66, 3.96),
        "5.3": (211.33, 211.33, 0.72, 0.67, 13.71, 12.8),
        "5.4": (551.5, 551.5, 1.37, 1.04, 13.14, 13.23),
        "5.5": (19.29, 27, 3.33, 2.73, 3.6, 2.57),
        "5.6": (9.38, 18.75, 0.56, 0.91, 1.6, 1.6),
        "5.7": (102.73, 102.73, 0.38, 0.11, 5.54, 5),
        "5.8": (70.56, 70.56, 2.05, 0.24, 4.92, 8.07),
        "5.9": (44.33, 45.68, 0.78, 0.17, 4.28, 7.39),
        "5.10": (73.41, 73.41, 1.97, 0.35, 5.93, 5.91),
        "5.11": (8.03, 11.4, 0.32, 0.4, 2.63, 3.54),
    }
    for table in tables.values():
        found = [
            getattr(table.rbf, field) / getattr(side, field)
            for field in ("size", "train_seconds", "seconds")
            for side in (table.greedy0, table.greedy1)
        ]
        np.testing.assert_allclose(found, ratios[table.number], rtol=0, atol=0.0051)
    usps = tables["usps", "standard"]
    assert (usps.n_features, usps.n_train, usps.n_test) == (256, 9 * 2007, 7291)
    assert usps.rbf == (4522, 27.52, 7030, 127.23, 96.42)
    assert tables["isolet", "standard"].greedy1.train_seconds == 3600 + 4 * 60 + 11.3
    assert tables["isolet", "minmax"].n_train == 25 * 6238
    assert tables["dna", "minmax"].n_train == 2 * 665
    assert tables["nuclei", "standard"].greedy1.right == 62541


def test_paper_table513():
    rbf, linear, tail = _paper_s2.TABLE513.values()
    nuclei = _paper_s2.TABLES["nuclei", "standard"]
    assert (rbf.size, rbf.accuracy, rbf.depth) == (nuclei.rbf.size, nuclei.rbf.accuracy, None)
    assert (linear.size, linear.accuracy, linear.depth) == (nuclei.greedy1.size, nuclei.greedy1.accuracy, 7.3)
    assert (tail.size, tail.accuracy, tail.depth) == (86, 97.5, 8.6)


# -- data ----------------------------------------------------------------------------------------------------------


def test_sources_are_known_sets_of_the_papers_sizes():
    for name, source in _s2_data.SOURCES.items():
        assert source.file in datasets.names()
        assert name in _s2_render.TITLES
        if source.paper is not None:
            assert (source.paper, "standard") in _paper_s2.TABLES
    papers = {table.name for table in _paper_s2.TABLES.values()}
    assert papers - {source.paper for source in _s2_data.SOURCES.values()} == set(_s2_render.NOT_PUBLIC)
    dna, table = _s2_data.SOURCES["dna-paper"], _paper_s2.TABLES["dna", "standard"]
    assert (2 * dna.n_train, dna.n_test) == (table.n_train, table.n_test)
    assert _s2_data.SOURCES["fourclass"].n_train == _paper_s2.TABLES["fourclass", "standard"].n_train
    counts = [_s2_data.n_splits(name, None) for name in ("fourclass", "dna", "dna-paper", "covtype")]
    assert counts == [10, 1, 5, 1]
    assert [_s2_data.n_splits(name, 3) for name in ("fourclass", "dna", "covtype")] == [3, 1, 3]


def small_folder(monkeypatch, tmp_path):
    """Make a folder of small sets under the names of the files, with small sizes for the sets that are drawn."""
    folder = tmp_path / "data"
    folder.mkdir()
    files = {"fourclass_scale": bands(), "dna.scale": blobs(60, 180), "dna.scale.t": blobs(45, 180, seed=1)}
    for name, (X, y) in files.items():
        with bz2.open(folder / f"{name}.bz2", "wb") as file:
            dump_svmlight_file(X, y, file, zero_based=False)
    monkeypatch.setenv("SVELTO_DATA", str(folder))
    monkeypatch.setenv("SVELTO_CACHE", str(tmp_path / "cache"))
    sources = _s2_data.SOURCES
    monkeypatch.setitem(sources, "fourclass", sources["fourclass"]._replace(n_train=60, n_test=45, splits=2))
    monkeypatch.setitem(sources, "dna-paper", sources["dna-paper"]._replace(n_train=30, n_test=60))
    monkeypatch.setitem(sources, "usps-paper", sources["usps-paper"]._replace(file="dna.scale"))


@pytest.fixture
def folder(monkeypatch, tmp_path):
    small_folder(monkeypatch, tmp_path)


def test_drawn_splits_keep_the_shares_of_the_classes(folder):
    rows = _s2_data.PaperSet("dna-paper")
    parts = rows.parts(3)
    assert (len(parts.y_train), len(parts.y_test)) == (30, 60)
    assert np.bincount(parts.y_train).tolist() == [0, 10, 10, 10]
    assert not set(map(bytes, parts.X_train)) & set(map(bytes, parts.X_test))
    np.testing.assert_array_equal(parts.X_train, _s2_data.PaperSet("dna-paper").parts(3).X_train)
    assert (parts.X_train != rows.parts(4).X_train).any()


def test_given_and_swapped_parts(folder):
    given, swapped = _s2_data.PaperSet("dna").parts(0), _s2_data.PaperSet("usps-paper").parts(0)
    assert (given.X_train.shape, given.X_test.shape) == ((60, 180), (45, 180))
    np.testing.assert_array_equal(swapped.X_train, given.X_test)
    np.testing.assert_array_equal(swapped.y_test, given.y_train)


# -- machines and trees --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["standard", "minmax"])
def test_rows_are_scaled_by_the_training_rows(scale):
    parts = small_parts()
    scaler, scaled = _s2_machines.scaled(parts, scale)
    if scale == "standard":
        np.testing.assert_allclose(scaled.X_train.mean(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(scaled.X_train.std(axis=0), 1)
    else:
        np.testing.assert_allclose([scaled.X_train.min(axis=0), scaled.X_train.max(axis=0)], [[0, 0], [1, 1]])
    np.testing.assert_array_equal(scaled.X_test, scaler.transform(parts.X_test))
    assert scaled.y_test is parts.y_test


def test_tuning_finds_the_curved_border():
    X, y = rings(200)
    said = []
    tuned = _s2_machines.tune(X, y, {**SETTINGS, "cv_rows": 150}, said.append)
    assert set(tuned) == {"C", "gamma", "cv_accuracy", "tune_seconds"}
    assert tuned["C"] in (1.0, 16.0)
    assert tuned["cv_accuracy"] > 80
    assert len(said) == len(GRID["steps"])


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_an_rbf_machine_is_counted_as_the_paper_does(form):
    X, y = blobs(90, 5)
    parts = Parts(X[:60], y[:60], X[60:], y[60:])
    scaler, scaled = _s2_machines.scaled(parts, "standard")
    rbf = _s2_machines.train_rbf(parts, scaler, scaled, form, {"C": 2.0, "gamma": 0.3}, SETTINGS)
    svc = SVC(C=2.0, gamma=0.3).fit(scaled.X_train, parts.y_train)
    record = rbf.record
    assert record["n_sv"] == len(svc.support_)
    # A machine of three classes has two coefficients for a support vector; those of pairs it does not serve are zero.
    assert record["n_sv"] <= record["size"] == np.count_nonzero(svc.dual_coef_) <= 2 * record["n_sv"]
    assert record["right"] == np.count_nonzero(svc.predict(scaled.X_test) == parts.y_test)
    assert (record["differences"], record["baseline_rows"], record["warnings"]) == (0, 20, [])
    assert (rbf.baseline_rows.shape, record["form"]) == ((20, 5), form)
    assert sparse.issparse(rbf.baseline_rows) == (form == "csr")
    np.testing.assert_array_equal(rbf.exact.predict(parts.X_test), svc.predict(scaled.X_test))


def test_plans_of_the_trees():
    tuned = {"C": 4.0, "gamma": 0.5}
    plans = _s2_machines.tree_plans("standard", tuned)
    assert list(plans) == list(TREES)
    assert plans["paper1"] == {**_s2_machines.PAPER_TREE, "greedy": 1, "scale": "standard"}
    assert plans["linear"] == {"tail": None, "scale": "standard"}
    tail = plans["tail"]["tail"]
    assert (tail.C, tail.gamma, tail.kernel) == (4.0, 0.5, "rbf")
    assert list(_s2_machines.tree_plans("minmax", tuned)) == ["paper0", "paper1", "linear"]


def test_a_tree_is_measured_on_test_rows():
    parts = small_parts()
    plans = _s2_machines.tree_plans("standard", {"C": 16.0, "gamma": 1.0})
    tree, record = _s2_machines.train_tree(parts, plans["paper0"], n_jobs=1)
    assert record["right"] == np.count_nonzero(tree.predict(parts.X_test) == parts.y_test)
    assert record["size"] == tree.n_nodes_ >= 2
    assert (record["tail_size"], record["kernel_values"], record["settled"]) == (0, 0.0, 1.0)
    assert record["ended"] == {"one class": 1}
    tree, record = _s2_machines.train_tree(parts, plans["tail"], n_jobs=1)
    assert record["tail_size"] == len(tree.tail_.support_) > 0
    json.dumps(record, allow_nan=False)


# -- the fourclass chain -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["standard", "minmax"])
def test_the_chain_is_the_estimators(scale):
    X, y = rings(150)
    found = _s2_chain.grow(X, y, scale, greedy=0, max_nodes=100)
    tree = svelto.SVMTreeClassifier(**_s2_machines.PAPER_TREE, scale=scale).fit(X, y)
    assert (len(found.grown.nodes), len(found.pruned.nodes)) == (tree.n_grown_[0], tree.n_nodes_)
    assert [(n.solver, n.hard, n.sign, n.perpendicular) for n in found.pruned.nodes] == [
        (n.solver, n.hard_class, n.sign, n.perpendicular) for n in tree.nodes_
    ]
    kept = [node.plane for node, kept in zip(found.grown.nodes, found.kept, strict=True) if kept]
    assert all(a is b.plane for a, b in zip(kept, found.pruned.nodes, strict=True))
    assert found.right(found.pruned) == np.count_nonzero(tree.predict(X) == y)


def test_table41_and_its_page(folder, tmp_path):
    files = reproduce.run("s2-table4.1", output=tmp_path, n_jobs=1)
    assert files == [tmp_path / "s2-table4.1.json", tmp_path / "s2-table4.1.md"]
    records, page = read(files[0])["results"], files[1].read_text()
    assert list(records) == ["standard", "minmax"]
    record = records["standard"]
    n_lines, n_kept = len(record["lines"]), sum(line["kept"] for line in record["lines"])
    assert 2 <= n_kept <= n_lines
    assert (record["n_rows"], record["right"], record["ended"]) == (120, 120, "one class")
    (first,) = table_rows(page, "1")
    line = record["lines"][0]
    assert first[1:6] == ["h", "-1", "1", "no", ""]
    assert first[6:10] == [line["solver"], str(line["hard_class"]), str(line["sign"]), "no"]
    assert first[10] == f"{line['removed']:g}"
    (ninth,) = table_rows(page, "9")
    assert ninth[5] == "yes"  # pruned
    assert table_rows(page, "hyperplanes grown")[0][1:3] == ["12", str(n_lines)]
    assert table_rows(page, "after pruning")[0][1:3] == ["10", str(n_kept)]
    assert table_rows(page, "perpendicular")[0][1] == "3"


# -- figures -------------------------------------------------------------------------------------------------------


def test_regions_are_the_trees_labels():
    X, y = bands()
    tree = svelto.SVMTreeClassifier(**_s2_machines.PAPER_TREE).fit(X, y)
    cuts = _s2_figure.cuts_of(tree)
    grid = np.random.default_rng(1).uniform(-1.2, 1.2, size=(500, 2))
    number, label = cuts.place(grid)
    np.testing.assert_array_equal(label, tree.predict(grid))
    assert number.max() <= tree.n_nodes_
    scores = grid @ cuts.planes[0]
    np.testing.assert_array_equal(number == 0, (scores > cuts.high[0]) | (scores < cuts.low[0]))
    assert np.isfinite(cuts.thresholds()).all()


def test_titles_of_planes():
    plane = {"solver": "h", "hard_class": 1, "sign": 1, "perpendicular": False, "reached": 30, "labelled": 7}
    assert _s2_figure.plane_title(0, plane) == "Plane 1: H1-SVM\n7 of 30 rows become -1"
    plane |= {"solver": "c", "hard_class": -1, "sign": -1, "perpendicular": True}
    assert _s2_figure.plane_title(4, plane) == "Plane 5: C-SVM, turned, perpendicular\n7 of 30 rows become +1"


def test_figures_and_their_page(folder, run, tmp_path):
    pytest.importorskip("matplotlib")
    code, out, err = run("reproduce", "s2-figures", "-o", tmp_path)
    assert (code, err) == (0, "")
    files = [Path(line) for line in out.decode().splitlines()]
    assert [file.name for file in files] == ["s2-figures.png", "s2-figures.json", "s2-figures.md"]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    facts = read(files[1])
    assert facts["right"] == facts["drawn_right"] == facts["n_rows"] == 120
    assert facts["planes"][0]["reached"] == 120
    for before, after in zip(facts["planes"], facts["planes"][1:], strict=False):
        assert after["reached"] == before["reached"] - before["labelled"]
    page = files[2].read_text()
    assert "![" in page
    assert f"{facts['n_sv']} support vectors" in page
    assert len(table_rows(page, "1")) == 1


@pytest.mark.parametrize("n_planes", [1, 2, 9])
def test_one_panel_for_each_plane(n_planes):
    pytest.importorskip("matplotlib")
    X, y = bands()
    rbf = SimpleNamespace()
    plane = {"solver": "h", "hard_class": 1, "sign": 1, "perpendicular": False, "reached": 30, "labelled": 7}
    facts = {"n_rows": 120, "n_sv": 9, "right": 120, "planes": [plane] * n_planes}
    cuts = _s2_figure.Cuts(
        np.tile([0.0, 1.0], (n_planes, 1)), -0.4 - np.arange(n_planes), np.full(n_planes, np.inf), end=1
    )

    class Machine(SimpleNamespace):
        def __getitem__(self, i):
            return SimpleNamespace(support_=np.arange(9))

    rbf = Machine(decision_function=lambda rows: rows[:, 1])
    figure = _s2_figure.draw(X, y, rbf, cuts, facts)
    shown = [panel for panel in figure.axes if panel.axison]
    assert len(shown) == n_planes + 3
    titles = [panel.get_title().splitlines()[0] for panel in shown]
    assert (titles[0], titles[1]) == ("Data: 120 rows", "RBF SVM: 9 support")
    assert titles[2:-1] == [f"Plane {i + 1}: H1-SVM" for i in range(n_planes)]
    assert titles[-1] == f"Final partition: {n_planes} planes,"


def test_figures_without_matplotlib_are_one_line(run, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, out, err = run("reproduce", "s2-figures", "-o", tmp_path / "new")
    assert (code, out, err) == (1, b"", 'svelto: The figure needs matplotlib: pip install "svelto[plot]"\n')
    assert not (tmp_path / "new").exists()
