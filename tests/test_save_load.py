"""save and load: every kind of model comes back with the same answers, bit for bit; what cannot be saved says so."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, OneClassSVM

import svelto
from file_cases import CASES, CORPUS, NAMES, QUERIES, THREE, X, Y, answers, queries_of
from machines import random_machine
from svelto._inputs import Query
from svelto.cascade import Cascade
from svelto.engines.blocked_sum import BlockedSum
from svelto.io.file import VERSION, read_file
from svelto.io.plain import from_plain, labels_from_plain, labels_to_plain, to_plain
from svelto.io.saved import KINDS


def same(first, second):
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        assert_array_equal(a, b)
        assert a.dtype.kind == b.dtype.kind


def loaded(model, tmp_path, **options):
    model.save(tmp_path / "model.svelto")
    return svelto.load(tmp_path / "model.svelto", **options)


@pytest.mark.parametrize("case", CASES)
def test_answers_are_the_same_bits(case, tmp_path):
    model = CASES[case]()
    expected = answers(model)
    for verify in (True, False):
        again = loaded(model, tmp_path, verify=verify)
        assert type(again) is type(model)
        same(answers(again), expected)
        if isinstance(model, svelto.Predictor):
            assert again.report == model.report
            assert str(again.report) == str(model.report)
            assert again.nbytes == model.nbytes
            rows = queries_of(model)
            assert again.work(rows) == model.work(rows)
            assert type(again._engine) is type(model._engine)
        # What was loaded can be saved and pickled again.
        same(answers(loaded(again, tmp_path)), expected)
        same(answers(pickle.loads(pickle.dumps(again))), expected)
    (tmp_path / "model.svelto").unlink()
    assert not os.listdir(tmp_path)


def test_the_cases_are_what_they_are_for():
    """A case that lost its point would test nothing."""
    made = {name: CASES[name]() for name in ("exact_postings", "blocks", "promised", "exact_many_classes", "pipeline")}
    assert made["exact_postings"]._engine.uses_postings
    assert isinstance(made["blocks"]._engine, BlockedSum)
    assert made["blocks"]._engine.lists is not None
    assert isinstance(made["promised"]._engine, Cascade)
    assert made["promised"]._engine.guard is made["promised"]._engine.stages[0].guard
    assert not made["exact_many_classes"]._engine._fields["by_column_f64"]
    assert len(made["pipeline"].machine.front) == 2
    assert {KINDS[kind][0] for kind in KINDS} == {
        type(CASES[name]()) for name in ("exact", "machine", "svm_tree", "local")
    }


@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_older_files_load(version):
    """Files that were written when this version of the format was new, and what their models answered then."""
    files = sorted((CORPUS / f"v{version}").glob("*.svelto"))
    assert len(files) >= 25
    for path in files:
        assert path.stat().st_size < 20_000
        with np.load(path.with_suffix(".npz"), allow_pickle=False) as kept:
            expected = [kept[name] for name in kept.files]
        found = answers(svelto.load(path))
        for now, then in zip(found, expected, strict=True):
            if then.dtype.kind == "f":  # scores in single precision differ a little between processors
                assert_allclose(now, then, rtol=1e-3, atol=1e-4, err_msg=path.name)
            else:
                assert_array_equal(now, then, err_msg=path.name)


def test_the_corpus_has_every_kind_and_stage():
    kinds, stages = set(), set()
    for path in (CORPUS / f"v{VERSION}").glob("*.svelto"):
        file = read_file(path)
        kinds.add(file.kind)
        engine = file.content.get("engine", {})
        stages |= {stage["kind"] for stage in engine.get("stages", [])}
    from svelto.io.saved_stages import STAGES

    assert kinds == set(KINDS)
    assert stages == set(STAGES)


# -- parts of machines ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [
        np.array([3, -7]),
        np.array([3, 7], dtype=np.uint8),
        np.array([-1.0, 2.0]),
        np.array([1.0, 2.0], dtype=np.float32),
        np.array([False, True]),
        np.array(["ja", "no"]),
        np.array(["ä", "日本語", "z\n\"'"]),
        np.array(["a", "b"], dtype="U30"),
        np.array(["one", "two"], dtype=object),
        np.array([2**62, -(2**62)]),
    ],
    ids=lambda labels: f"{labels.dtype}-{len(labels)}",
)
def test_labels_keep_their_type(labels, tmp_path):
    y = labels[np.arange(len(X)) % len(labels)]
    fast = svelto.accelerate(SVC(gamma=3.0).fit(X, y), method="exact")
    again = loaded(fast, tmp_path)
    assert_array_equal(again.predict(QUERIES), fast.predict(QUERIES))
    assert again.classes_.dtype.kind == fast.classes_.dtype.kind
    if labels.dtype.kind in "iufb":
        assert again.classes_.dtype == fast.classes_.dtype


@pytest.mark.parametrize("labels", [np.array([b"a", b"b"]), np.array(["2020", "2021"], dtype="M8[Y]")], ids=str)
def test_labels_that_files_do_not_hold(labels, tmp_path):
    machine = random_machine(d=2, classes=labels)
    with pytest.raises(NotImplementedError, match="as classes"):
        machine.save(tmp_path / "f")
    assert os.listdir(tmp_path) == []


def test_objects_as_labels_are_text_or_nothing():
    with pytest.raises(NotImplementedError, match="The class 1 is a int"):
        labels_to_plain(np.array([1, "a"], dtype=object))
    for damaged in (
        {"dtype": "U9999999999", "values": ["a"]},
        {"dtype": "U2", "values": ["a"]},
        {"dtype": "U1", "values": ["ab"]},
        {"dtype": "U1", "values": [1]},
        {"dtype": "object", "values": [[1]]},
        {"dtype": "int64", "values": [1.5]},
        {"dtype": "int64", "values": [True]},
        {"dtype": "V8", "values": []},
        {"dtype": ["int64"], "values": []},
        {"values": []},
        [],
    ):
        with pytest.raises(ValueError, match="classes"):
            labels_from_plain(damaged)


def test_plain_values_come_back_as_they_were():
    value = {"a": [1, 2.5, (3, None)], 7: {"inf": float("inf")}, "t": True, "": "text", (1, 2): -0.0}
    again = from_plain(to_plain(value, "x"))
    assert again == value
    assert repr(again) == repr(value)
    assert np.isnan(from_plain(to_plain(float("nan"), "x")))
    assert from_plain(to_plain([np.int64(3), np.float32(0.5), np.bool_(True)], "x")) == [3, 0.5, True]
    with pytest.raises(NotImplementedError, match="details holds a object"):
        to_plain([object()], "details")
    for damaged in (
        {"float": "1e400"},
        {"tuple": 1},
        {"dict": [[1]]},
        {"eval": "1"},
        {"float": "inf", "tuple": []},
        {},
    ):
        with pytest.raises(ValueError, match="a value is"):
            from_plain(damaged)


@pytest.mark.parametrize(
    "scaler", [StandardScaler(), MinMaxScaler(clip=True), StandardScaler(with_mean=False)], ids=str
)
def test_a_scaler_treats_all_kinds_of_rows_as_before(scaler, tmp_path):
    """Single precision and sparse rows go through scikit-learn's own code, which a file must bring back."""
    model = make_pipeline(scaler, SVC(gamma=2.0)).fit(X, Y)
    fast = svelto.accelerate(model, method="exact")
    again = loaded(fast, tmp_path)
    rows = [QUERIES, QUERIES.astype(np.float32), QUERIES[:5], (QUERIES * 3).astype(int)]
    if not getattr(scaler, "with_mean", isinstance(scaler, MinMaxScaler)):
        rows.append(sparse.csr_matrix(QUERIES))
    for some in rows:
        same(answers(again, some), answers(fast, some))
    assert repr(again.machine.scaling.transformer) == repr(fast.machine.scaling.transformer)


def test_column_names(tmp_path):
    frame = pd.DataFrame(X, columns=["height", "width"])
    fast = svelto.accelerate(make_pipeline(StandardScaler(), SVC()).fit(frame, Y), method="exact")
    again = loaded(fast, tmp_path)
    queries = pd.DataFrame(QUERIES, columns=["height", "width"])
    same(answers(again, queries), answers(fast, queries))
    with pytest.raises(ValueError, match="another order"):
        again.predict(queries[["width", "height"]])
    tree = svelto.SVMTreeClassifier(random_state=0, tail=None).fit(frame, Y)
    assert_array_equal(loaded(tree, tmp_path).feature_names_in_, ["height", "width"])


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("y", [Y, THREE], ids=["two", "three"])
def test_calibrated_probabilities(method, y, tmp_path):
    model = CalibratedClassifierCV(SVC(gamma=2.0), ensemble=False, method=method, cv=2).fit(X, y)
    fast = svelto.accelerate(model, method="exact")
    same(answers(loaded(fast, tmp_path)), answers(fast))


def test_libsvm_probabilities_and_vote_order(tmp_path):
    from svelto.probability import PlattPairs

    machine = random_machine(n_classes=3, d=2, platt=PlattPairs(np.array([-1.0, -2.0, -1.5]), np.zeros(3)))
    turned = svelto.accelerate(replace(machine, vote_order=[2, 0, 1]), method="exact")
    same(answers(loaded(turned, tmp_path)), answers(turned))
    marks = random_machine(task="outlier", d=2, density_marks=np.linspace(-1.0, 1.0, 10))
    fast = svelto.accelerate(marks, method="exact")
    same(answers(loaded(fast, tmp_path)), answers(fast))


SMALL = {
    "hinges": {"n_hinges": 8, "oracle_rows": 300, "max_epochs": 2},
    "taylor_tree": {"oracle_rows": 300},
    "sv_tree": {"oracle_rows": 300, "max_evals": 4},
    "reduced_set": {"n_basis": 16, "oracle_rows": 300},
    "auto": {"time_budget": 1.0},
}
QUICK = [("hinges", "classes"), ("hinges", "sparse"), ("taylor_tree", "scaled"), ("taylor_tree", "sparse")]
QUICK += [("sv_tree", "regression"), ("reduced_set", "outlier")]
SLOW = [(method, what) for method in SMALL for what in ("classes", "regression", "outlier", "scaled", "sparse")]
SLOW = [pytest.param(*one, marks=pytest.mark.slow) for one in SLOW if one not in QUICK]


@pytest.mark.parametrize(("method", "what"), [*QUICK, *SLOW])
def test_promised_cascades(method, what, tmp_path):
    """As `accelerate` makes them: with thresholds, a guard, several stages."""
    rng = np.random.default_rng(0)
    options = {"agreement": 0.9, "random_state": 0, **SMALL[method]}
    rows, queries = rng.uniform(-1.5, 2.5, size=(300, 2)), QUERIES
    if what == "sparse":
        rows = np.where(rng.random((400, 40)) < 0.05, 1.0, 0.0)
        rows = queries = sparse.csr_matrix(rows[rows.any(axis=1)])
        model = random_machine(n_sv=60, d=40, as_csr=True)
    elif what == "regression":
        model, options["tolerance"] = random_machine(task="regression", n_sv=80, d=2, gamma=2.0), 0.5
    elif what == "outlier":
        model = OneClassSVM(gamma=2.0, nu=0.3).fit(X)
    elif what == "scaled":
        model = make_pipeline(MinMaxScaler(), SVC(gamma=8.0)).fit(X, NAMES[THREE])
    else:
        model = SVC(gamma=3.0).fit(X, NAMES[THREE])
    fast = svelto.accelerate(model, rows, method=method, **options)
    same(answers(loaded(fast, tmp_path), queries), answers(fast, queries))


def _uses_of_the_rim(fast):
    """Rows on the rim, and whether their answers differ from those of a guard without one."""
    engine = fast._engine
    rng = np.random.default_rng(1)
    rows = rng.uniform(-1.5, 2.5, size=(2000, 2))
    rows = rows[~engine.guard(Query(rows)) & engine.guard.outside_core(rows)]
    guard = replace(engine.guard, core=None)
    first = replace(engine.stages[0], guard=guard)
    plain = Cascade(engine.machine, [first, *engine.stages[1:]], engine.thresholds, engine.exact, guard=guard)
    return rows, engine.labels(Query(rows))[0] != plain.labels(Query(rows))[0]


def test_the_core_of_a_guard_is_kept(tmp_path):
    fast = CASES["promised_rim"]()
    rows, differ = _uses_of_the_rim(fast)
    assert differ.sum() > 5
    again = loaded(fast, tmp_path)
    core, kept = fast._engine.guard.core, again._engine.guard.core
    assert (kept.box_limit, kept.direction_limit, kept.factor) == (core.box_limit, core.direction_limit, core.factor)
    assert_array_equal(kept.sq_radii, core.sq_radii)
    assert again._engine.stages[0].guard is again._engine.guard
    same(answers(again, rows), answers(fast, rows))


def test_guards_of_older_files_have_no_core(tmp_path):
    older = svelto.load(CORPUS / "v1" / "promised.svelto")
    assert older._engine.guard.core is None
    assert loaded(older, tmp_path)._engine.guard.core is None
    assert svelto.load(CORPUS / "v1" / "promised_rim.svelto")._engine.guard.core is not None


def test_a_core_without_directions(tmp_path):
    """Its limit along them is infinite, as that of the guard."""
    fast = CASES["promised_rim"]()
    engine = fast._engine
    given = {"directions": np.empty((0, 2)), "offset": np.empty(0), "direction_limit": np.inf}
    guard = replace(engine.guard, **given, core=engine.guard.core._replace(direction_limit=np.inf))
    engine.stages, engine.guard = [replace(engine.stages[0], guard=guard), *engine.stages[1:]], guard
    again = loaded(fast, tmp_path)
    assert again._engine.guard.core.direction_limit == np.inf
    same(answers(again), answers(fast))


# -- use -----------------------------------------------------------------------------------------------------------


def test_threads_are_given_when_it_is_loaded(tmp_path):
    fast = svelto.accelerate(SVC().fit(X, Y), method="exact", n_jobs=2)
    fast.save(tmp_path / "f")
    assert svelto.load(tmp_path / "f").n_jobs is None
    assert svelto.load(tmp_path / "f", n_jobs=1).n_jobs == 1
    with pytest.raises(ValueError, match="n_jobs"):
        svelto.load(tmp_path / "f", n_jobs=0)
    local = svelto.LocalSVC(k=30, random_state=0, n_jobs=2).fit(X, Y)
    assert loaded(local, tmp_path).n_jobs == 2
    assert loaded(local, tmp_path, n_jobs=1).n_jobs == 1


def test_local_machines_go_on_learning(tmp_path):
    local = svelto.LocalSVC(k=30, metric="learned", class_weight="balanced", random_state=0).fit(X[:100], Y[:100])
    again = loaded(local, tmp_path)
    assert again.get_params() == local.get_params()
    assert_array_equal(again.feature_weights_, local.feature_weights_)
    for one in (local, again):
        one.partial_fit(X[100:], Y[100:])
    same(answers(again), answers(local))
    assert again.n_models_ == local.n_models_ > 1


def test_svm_trees_know_their_nodes(tmp_path):
    tree = svelto.SVMTreeClassifier(tail=SVC(C=3.0, gamma=2.0), tail_at=2, random_state=0).fit(X, NAMES[THREE])
    again = loaded(tree, tmp_path)
    assert again.describe() == tree.describe()
    assert again.nodes_ == tree.nodes_
    assert again.work(QUERIES) == tree.work(QUERIES)
    assert repr(again.tail) == repr(tree.tail)
    assert isinstance(again.tail_, svelto.Predictor)
    assert_array_equal(again.decision_path(QUERIES).toarray(), tree.decision_path(QUERIES).toarray())
    for name in ("depths_", "n_grown_", "scale_shift_", "scale_factor_"):
        assert_array_equal(getattr(again, name), getattr(tree, name))
    assert again.ended_ == tree.ended_
    for one in (tree, again):
        one.fit(X[:150], Y[:150])
    same(answers(again), answers(tree))


def test_arrays_stay_in_the_file(tmp_path):
    """What native code reads are the mapped bytes themselves: processes share them."""
    fast = svelto.accelerate(random_machine(n_sv=300, d=40), method="exact")
    again = loaded(fast, tmp_path)
    memory = again.machine.support_vectors.base
    for name, array in again._engine._fields.items():
        large = isinstance(array, np.ndarray) and array.nbytes >= 1000
        assert not large or array.base is memory, name
    assert not again.machine.support_vectors.flags.writeable


def test_a_file_may_be_replaced_while_it_is_in_use(tmp_path):
    first = svelto.accelerate(random_machine(d=2, seed=1), method="exact")
    again = loaded(first, tmp_path)
    svelto.accelerate(random_machine(d=2, seed=2, n_sv=90), method="exact").save(tmp_path / "model.svelto")
    same(answers(again), answers(first))


def test_another_process_answers_the_same(tmp_path):
    fast = CASES["promised"]()
    fast.save(tmp_path / "f.svelto")
    np.save(tmp_path / "rows.npy", QUERIES)
    script = (
        "import sys, numpy as np, svelto\n"
        "fast = svelto.load(sys.argv[1], verify=False)\n"
        "np.save(sys.argv[3], fast.decision_function(np.load(sys.argv[2])))\n"
    )
    names = [str(tmp_path / name) for name in ("f.svelto", "rows.npy", "out.npy")]
    subprocess.run([sys.executable, "-c", script, *names], check=True, timeout=300)
    assert_array_equal(np.load(tmp_path / "out.npy"), fast.decision_function(QUERIES))


# -- what cannot be saved ------------------------------------------------------------------------------------------


def kernel(A, B):
    return A @ B.T


def _marked():
    fast = CASES["hinges"]()
    fast._engine.guard = lambda query: np.zeros(len(query.rows), dtype=bool)
    return fast


REFUSED = {
    "callable": (lambda: svelto.accelerate(SVC(kernel=kernel).fit(X, Y), method="exact"), "Python function"),
    "callable machine": (lambda: svelto.KernelMachine.from_sklearn(SVC(kernel=kernel).fit(X, Y)), "Python function"),
    "front": (lambda: svelto.accelerate(make_pipeline(PCA(), SVC()).fit(X, Y), method="exact"), "The PCA in front"),
    "guard": (_marked, "guard of the cascade is a Python function"),
    "tail": (
        lambda: svelto.SVMTreeClassifier(tail=SVC(kernel=kernel), tail_at=1, random_state=0).fit(X, Y),
        "holds a function",
    ),
    "tail that is no machine": (
        lambda: svelto.SVMTreeClassifier(tail=LogisticRegression(), tail_at=1, random_state=0).fit(X, Y),
        "The parameter tail is a LogisticRegression",
    ),
    "random state": (
        lambda: svelto.LocalSVC(k=30, random_state=np.random.RandomState(0)).fit(X, Y),
        "parameter_random_state holds a RandomState",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_saved_says_so_before_anything_is_written(case, tmp_path):
    make, match = REFUSED[case]
    with pytest.raises(NotImplementedError, match=match) as error:
        make().save(tmp_path / "f")
    assert "Pickle the model" in str(error.value)
    assert os.listdir(tmp_path) == []


def test_estimators_are_fitted_first(tmp_path):
    for estimator in (svelto.LocalSVC(), svelto.SVMTreeClassifier()):
        with pytest.raises(NotFittedError):
            estimator.save(tmp_path / "f")


def test_other_objects(tmp_path):
    from svelto.io.saved import save

    with pytest.raises(TypeError, match="Cannot save a SVC"):
        save(SVC(), tmp_path / "f")


def test_folders_that_are_not_there(tmp_path):
    fast = CASES["exact"]()
    with pytest.raises(FileNotFoundError, match="does not exist"):
        fast.save(tmp_path / "no" / "f")
    with pytest.raises(IsADirectoryError):
        fast.save(tmp_path)


def test_rows_are_not_written_to(tmp_path):
    """A scaler that works in place would change the caller's rows."""
    model = make_pipeline(StandardScaler(copy=False), MinMaxScaler(copy=False), SVC()).fit(X.copy(), Y)
    fast = loaded(svelto.accelerate(model, method="exact"), tmp_path)
    rows = QUERIES.copy()
    labels = fast.predict(rows)
    assert_array_equal(rows, QUERIES)
    assert_array_equal(labels, model.predict(QUERIES.copy()))
