"""Cascades in one native call give the labels of the definition, stage by stage, and count the same rows."""

from __future__ import annotations

import math
import pickle
import signal
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.datasets import make_blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.svm import SVC, OneClassSVM

import svelto
from machines import random_machine
from svelto import _core
from svelto._inputs import Query, make_query
from svelto._threads import Counted
from svelto.cascade import Cascade
from svelto.engines.blocked_sum import BlockedSum
from svelto.engines.exact import build_exact
from svelto.guard import Guard
from svelto.machine import KernelMachine

RNG = np.random.default_rng(7)
X, Y = make_blobs(900, 5, centers=9, cluster_std=2.5, random_state=3)
MODELS = {
    "two classes": SVC(gamma=0.05, C=3.0).fit(X, Y % 2),
    "four classes": SVC(gamma=0.05, C=3.0).fit(X, Y % 4),
    "ties broken": SVC(gamma=0.05, C=3.0, break_ties=True, decision_function_shape="ovr").fit(X, Y % 4),
    "outliers": OneClassSVM(gamma=0.02, nu=0.2).fit(X),
    "scaled": make_pipeline(MinMaxScaler(clip=True), SVC(gamma=2.0, C=3.0)).fit(X, Y % 2),
}
OPTIONS = {
    "hinges": {"n_hinges": 16, "oracle_rows": 2000, "max_epochs": 20},
    "taylor_tree": {"leaf_size": 64, "oracle_rows": 2000},
    "reduced_set": {"n_basis": 24, "oracle_rows": 2000, "max_iter": 5},
    "sv_tree": {"oracle_rows": 1000, "max_evals": 6, "look_ahead": 1},
}
# Near the rows the stages know, around them, and far away.
ROWS = np.concatenate([X, X + RNG.normal(scale=0.5, size=X.shape), RNG.normal(scale=30.0, size=(300, 5)), 1e3 * X[:40]])


def stages_of(model, methods):
    """Stages as `accelerate` builds them, with error scales and a guard."""
    engines = [
        svelto.accelerate(model, X, method=method, agreement=0.9, random_state=0, n_jobs=1, **OPTIONS[method])._engine
        for method in methods
    ]
    return [engine.stages[-1] for engine in engines], engines[0].guard


@pytest.fixture(scope="module", params=MODELS)
def built(request):
    """A machine, a stage of every method that serves it, and a guard."""
    model = MODELS[request.param]
    stages, guard = stages_of(model, OPTIONS)
    machine = KernelMachine.from_sklearn(model)
    return machine, dict(zip(OPTIONS, stages, strict=True)), guard


ORDERS = (
    ["hinges"],
    ["taylor_tree"],
    ["reduced_set"],
    ["sv_tree"],
    ["hinges", "reduced_set"],
    ["reduced_set", "hinges"],
    ["taylor_tree", "reduced_set", "sv_tree"],
    ["sv_tree", "hinges", "taylor_tree"],
)


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
@pytest.mark.parametrize("guarded", [True, False])
def test_labels_and_counts_are_those_of_the_definition(built, order, guarded):
    machine, stages, guard = built
    exact = build_exact(machine)
    for three in ([0.5] * 3, [3.0, 1.0, 0.2], [math.inf, 1.0, 1.0], [0.0, 0.0, 0.0], [math.inf] * 3):
        cautions = three[: len(order)]
        chosen = [stages[name] if guarded else _unguarded(stages[name]) for name in order]
        engine = Cascade(machine, chosen, cautions, exact, guard=guard if guarded else None)
        for n in (1, 16, 700, len(ROWS)):
            query = Query(ROWS[:n], scale=machine.scaling is not None)
            expected, counts = engine.labels_by_stages(query, 1)
            for n_jobs in (1, Counted(2), Counted(5)):
                labels, settled = engine.labels(query, n_jobs)
                assert_array_equal(labels, expected)
                assert settled == counts
                assert sum(settled) == n
            assert engine._native is not None
        for start in range(0, len(ROWS), 301):
            few = ROWS[start : start + 16]
            expected = engine.labels_by_stages(Query(few, scale=machine.scaling is not None), 1)[0]
            assert_array_equal(engine.predict_one_block(few), expected)
            assert_array_equal(engine.predict_one_block(few[:1]), expected[:1])
            assert [engine.predict_one_row(row[None, :]) for row in few] == expected.tolist()


def _unguarded(stage):
    return replace(stage, guard=None) if getattr(stage, "guard", None) is not None else stage


def test_every_form_of_rows(built):
    machine, stages, guard = built
    order = [stages[name] for name in ("hinges", "reduced_set")]
    engine = Cascade(machine, order, [1.0, 1.0], build_exact(machine), guard=guard)
    single = ROWS.astype(np.float32)
    wide = sparse.csr_matrix(ROWS)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    forms = (
        ROWS,
        single,
        np.asfortranarray(ROWS),
        ROWS[::-2],
        sparse.csr_matrix(ROWS),
        sparse.csr_matrix(single),
        wide,
    )
    for rows in forms:
        if sparse.issparse(rows) and machine.scaling is not None:
            continue  # scikit-learn does not centre sparse rows
        query = make_query(machine, rows)
        expected, counts = engine.labels_by_stages(query, 1)
        for n_jobs in (1, Counted(3)):
            labels, settled = engine.labels(query, n_jobs)
            assert_array_equal(labels, expected)
            assert settled == counts
        assert all(counts)


@pytest.mark.parametrize("order", [["hinges", "reduced_set"], ["reduced_set", "hinges"], ["sv_tree"]], ids="-".join)
def test_rows_that_cannot_be_read_are_named(built, order):
    machine, stages, guard = built
    engine = Cascade(machine, [stages[name] for name in order], [1.0] * len(order), build_exact(machine), guard=guard)
    for row in (0, 17, 1999):
        bad = ROWS.copy()
        bad[row:, 3] = np.nan
        for n_jobs in (1, Counted(3)):
            with pytest.raises(ValueError, match=rf"X contains nan \(row {row}, column 3\)"):
                engine.labels(Query(bad, scale=machine.scaling is not None), n_jobs)
        few = bad[row : row + 3]
        assert engine.predict_one_block(few) is None
        assert engine.predict_one_row(few[:1]) == -1


def test_proven_leaves_settle_by_their_intervals():
    smooth = SVC(gamma=0.002).fit(X, Y % 2)
    fast = svelto.accelerate(smooth, X, method="taylor_tree", agreement=1.0, random_state=0)
    engine = fast._engine
    assert engine._native is not None
    expected, counts = engine.labels_by_stages(Query(ROWS))
    labels, settled = engine.labels(Query(ROWS))
    assert_array_equal(labels, expected)
    assert_array_equal(labels, engine.exact.labels(Query(ROWS))[0])
    assert settled == counts
    assert settled[0] > 0


def test_parts_of_python_keep_the_cascade_there():
    model = MODELS["two classes"]
    (stage,), guard = stages_of(model, ["hinges"])
    machine = stage.machine
    for engine in (
        Cascade(machine, [stage], [1.0], BlockedSum(machine, X), guard=guard),
        Cascade(machine, [stage], [1.0], build_exact(machine), guard=guard.__call__),
        Cascade(machine, [_Other(stage)], [1.0], build_exact(machine), guard=guard),
    ):
        assert engine._native is None
        whole = engine.labels(Query(ROWS))[0]
        assert_array_equal(engine.predict_one_block(ROWS[:9]), whole[:9])
        assert engine.predict_one_row(ROWS[:1]) == whole[0]
        assert engine.predict_one_row(np.full((1, 5), np.nan)) == -1


class _Other:
    """A stage without native code."""

    name = "other"

    def __init__(self, stage):
        self.settle = stage.settle


def test_pickles_are_built_anew(built):
    machine, stages, guard = built
    engine = Cascade(machine, [stages["reduced_set"]], [1.0], build_exact(machine), guard=guard)
    query = Query(ROWS, scale=machine.scaling is not None)
    expected = engine.labels(query)[0]
    again = pickle.loads(pickle.dumps(engine))
    assert_array_equal(again.labels(query)[0], expected)
    assert again._native is not engine._native


def test_the_sum_over_what_is_left_hears_signals(monkeypatch):
    monkeypatch.setattr("svelto.native_cascade.OPERATIONS_PER_CALL", 1.0)
    machine = random_machine(n_sv=3000, d=60)
    engine = Cascade(machine, [], [], build_exact(machine))
    rows = RNG.normal(size=(60_000, 60))
    out, settled = np.full(len(rows), -7, dtype=np.int32), np.zeros(1, dtype=np.int64)

    def stop(number, frame):
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        with pytest.raises(InterruptedError):
            engine._native._native.labels_dense(rows, out, settled, False, 1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert (out[-1024:] == -7).all()  # it ended before the sum did


def test_parts_that_do_not_fit_are_refused():
    small, large = build_exact(random_machine(d=3)), build_exact(random_machine(d=4))
    (stage,), _ = stages_of(MODELS["two classes"], ["hinges"])
    exact = build_exact(stage.machine)

    def put_together(stages=(stage.native_part,), cautions=(1.0,), flags=(False,), guard=None, exact=exact, code=0):
        return _core.Cascade(list(stages), list(cautions), list(flags), guard, exact.native_part, code, 10.0, 10.0)

    put_together()
    for wrong, message in (
        ({"exact": small}, "stage and machine disagree"),
        ({"guard": Guard.around(large.machine, [np.eye(4)], 0).native_part}, "guard and machine disagree"),
        ({"cautions": (-1.0,)}, "caution must not be negative"),
        ({"cautions": ()}, "disagree in length"),
        ({"code": 3}, "precision must be"),
    ):
        with pytest.raises(ValueError, match=message):
            put_together(**wrong)
    with pytest.raises((TypeError, RuntimeError)):
        put_together(stages=(exact.native_part,))
    fields = {"n_scores": 1, "n_classes": 2, "rule": 0, "break_ties": False, "precision": 0, "rows_per_thread": 1.0}
    for unit, message in ((np.array([np.nan]), "a unit is"), (np.ones(2), "unit has 2 elements")):
        with pytest.raises(ValueError, match=message):
            _core.ReducedStage(exact.native_part, None, {**fields, "unit": unit})
