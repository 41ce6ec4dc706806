"""Switching the patch on and off, and what it keeps: one machine for a living estimator, nothing on the estimator."""

import copy
import gc
import inspect
import pickle
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
import sklearn
from sklearn.svm import SVC, SVR, NuSVC, NuSVR, OneClassSVM
from sklearn.svm._base import BaseLibSVM, BaseSVC

import svelto
from patch_cases import fitted, served
from svelto import patching
from svelto.patching import counts

TARGETS = [(owner, name) for owner, name, _ in patching._TARGETS]
ORIGINALS = [vars(owner)[name] for owner, name in TARGETS]
PUBLIC = [
    (kind, name, inspect.getattr_static(kind, name))
    for kind in (SVC, NuSVC, SVR, NuSVR, OneClassSVM)
    for name in ("predict", "decision_function", "predict_proba", "score_samples", "fit")
    if inspect.getattr_static(kind, name, None) is not None
]


def is_patched():
    """Whether all functions are replaced; False: all are the originals."""
    replaced = {vars(owner)[name] is not original for (owner, name), original in zip(TARGETS, ORIGINALS, strict=True)}
    assert len(replaced) == 1
    return replaced.pop()


@pytest.fixture(autouse=True)
def _unpatched():
    yield
    svelto.unpatch_sklearn()
    assert not is_patched()


# -- on and off ------------------------------------------------------------------------------------------------------


def test_patch_and_unpatch_once_or_twice():
    assert not is_patched()
    svelto.unpatch_sklearn()
    for _ in range(2):
        svelto.patch_sklearn()
        assert is_patched()
    svelto.unpatch_sklearn()
    assert not is_patched()


def test_methods_keep_their_signatures_and_docstrings():
    svelto.patch_sklearn()
    for kind, name, method in PUBLIC:
        assert inspect.getattr_static(kind, name) is method
    for (owner, name), original in zip(TARGETS, ORIGINALS, strict=True):
        replacement = vars(owner)[name]
        assert inspect.signature(replacement) == inspect.signature(original)
        assert (replacement.__doc__, replacement.__qualname__) == (original.__doc__, original.__qualname__)


def test_blocks_nest_and_end_with_an_exception():
    def fail():
        with svelto.patched():
            with svelto.patched():
                assert is_patched()
            assert is_patched()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert not is_patched()
    svelto.patch_sklearn()
    with svelto.patched():
        pass
    assert is_patched()


def test_unpatch_ends_open_blocks_too():
    with svelto.patched():
        svelto.unpatch_sklearn()
        assert not is_patched()
        with svelto.patched():
            assert is_patched()
        assert not is_patched()
    assert not is_patched()


def test_blocks_that_overlap_in_two_threads():
    entered, leave = threading.Event(), threading.Event()

    def hold():
        with svelto.patched():
            entered.set()
            assert leave.wait(30)

    with ThreadPoolExecutor(1) as pool:
        with svelto.patched():
            other = pool.submit(hold)
            assert entered.wait(30)
        assert is_patched()  # the other block is still open
        leave.set()
        other.result(30)
    assert not is_patched()


def test_somebody_elses_wrapper_stays_and_the_patch_inside_it_sleeps():
    svc, X = fitted()
    svelto.patch_sklearn()
    ours, calls = BaseLibSVM._dense_predict, []

    def theirs(self, X):
        calls.append(len(X))
        return ours(self, X)

    BaseLibSVM._dense_predict = theirs
    try:
        _, (_, n_served, _) = served(lambda: svc.predict(X))
        assert n_served == 1
        svelto.unpatch_sklearn()
        assert BaseLibSVM._dense_predict is theirs
        before = counts()
        svc.predict(X)
        assert counts() == before
        assert calls == [len(X)] * 2
    finally:
        BaseLibSVM._dense_predict = ORIGINALS[0]


def test_a_scikit_learn_without_one_of_the_methods(monkeypatch):
    monkeypatch.delattr(BaseSVC, "_sparse_predict_proba")
    with pytest.raises(RuntimeError, match=r"scikit-learn .* has no BaseSVC._sparse_predict_proba.*svelto.accelerate"):
        svelto.patch_sklearn()
    monkeypatch.undo()
    assert not is_patched()


def test_a_wrong_instruction_level_is_told_at_once(monkeypatch):
    monkeypatch.setenv("SVELTO_ISA", "mmx")
    with pytest.raises(ValueError, match="SVELTO_ISA is 'mmx'"):
        svelto.patch_sklearn()
    assert not is_patched()


# -- what is kept ----------------------------------------------------------------------------------------------------


def test_one_machine_for_an_estimator_until_it_dies():
    svc, X = fitted()
    store, before = patching._patch.store, counts()
    assert len(store) == 0
    for _ in range(2):  # another block, the same machine
        with svelto.patched():
            for rows in (X, X[:1]):
                svc.predict(rows)
                svc.decision_function(rows)
    assert (counts().compiled - before.compiled, counts().served - before.served, len(store)) == (1, 8, 1)
    machine = weakref.ref(next(iter(store._entries.values())).compiled.machine)
    assert machine() is not None
    del svc
    gc.collect()
    assert (len(store), machine()) == (0, None)


def test_unpatch_forgets_the_machines():
    svc, X = fitted()
    svelto.patch_sklearn()
    svc.predict(X)
    assert len(patching._patch.store) == 1
    svelto.unpatch_sklearn()
    assert len(patching._patch.store) == 0


def test_the_old_machine_goes_when_the_estimator_is_fitted_again():
    svc, X = fitted()
    served(lambda: svc.predict(X))
    (entry,) = patching._patch.store._entries.values()
    old = weakref.ref(entry.compiled)
    served(lambda: svc.set_params(C=0.1).fit(X, np.arange(len(X)) % 2).predict(X))
    gc.collect()
    assert (old(), len(patching._patch.store)) == (None, 1)


def test_nothing_is_put_on_the_estimator():
    svc, X = fitted()
    before, state = dict(vars(svc)), pickle.dumps(svc)
    served(lambda: [svc.predict(X), svc.decision_function(X)])
    assert list(vars(svc)) == list(before)
    assert all(vars(svc)[name] is value for name, value in before.items())
    assert pickle.dumps(svc) == state


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda svc: pickle.loads(pickle.dumps(svc))])
def test_copies_have_machines_of_their_own(duplicate):
    svc, X = fitted()
    expected = svc.decision_function(X)
    with svelto.patched():
        svc.predict(X)
        other = duplicate(svc)
        np.testing.assert_allclose(other.decision_function(X), expected, rtol=1e-9)
        other._intercept_ = other._intercept_ + 1.0
        assert (other.decision_function(X) != svc.decision_function(X)).any()
        np.testing.assert_allclose(svc.decision_function(X), expected, rtol=1e-9)
        assert sklearn.clone(svc).fit(X, np.arange(len(X)) % 2).predict(X).shape == (len(X),)


def test_a_model_used_under_the_patch_loads_where_there_is_no_svelto(tmp_path):
    svc, X = fitted()
    expected = svc.predict(X)
    with svelto.patched():
        svc.predict(X)
        joblib.dump((svc, X, expected), tmp_path / "model")
    script = (
        "import sys; sys.modules['svelto'] = None\n"
        "import joblib\n"
        "svc, X, expected = joblib.load(sys.argv[1])\n"
        "assert (svc.predict(X) == expected).all()\n"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path / "model"], check=True)


# -- threads and processes -------------------------------------------------------------------------------------------


def test_threads_share_one_machine():
    svc, X = fitted()
    expected = svc.predict(X)
    start = threading.Barrier(8)

    def ask(_):
        start.wait(30)
        return svc.predict(X)

    with ThreadPoolExecutor(8) as pool:
        results, (n_compiled, n_served, _) = served(lambda: list(pool.map(ask, range(8))))
    for labels in results:
        np.testing.assert_array_equal(labels, expected)
    assert (n_compiled, n_served) == (1, 8)


def test_threads_with_estimators_that_come_and_go():
    def work(seed):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(40, 3))
        for _ in range(10):
            svr = SVR().fit(X, rng.normal(size=40))
            np.testing.assert_allclose(svr.predict(X), ORIGINALS[0](svr, X), rtol=1e-9)

    with ThreadPoolExecutor(4) as pool, svelto.patched():
        list(pool.map(work, range(8)))
    gc.collect()
    assert len(patching._patch.store) == 0


def test_a_child_made_by_fork_does_not_wait_for_its_parents_locks():
    script = """
import os, signal
import numpy as np
from sklearn.svm import SVR
import svelto
from svelto import patching

X = np.arange(20.0)[:, None]
svr = SVR().fit(X, X[:, 0])
svelto.patch_sklearn()
expected = svr.predict(X)
(entry,) = patching._patch.store._entries.values()
with patching._patch._lock, patching._patch.store._lock, entry.lock:  # as other threads might hold them
    child = os.fork()
if child == 0:
    signal.alarm(30)
    svr._intercept_ += 1.0
    os._exit(0 if np.allclose(svr.predict(X), expected + 1.0) else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_workers_of_joblib_are_given_models_that_work():
    svc, X = fitted()
    expected = svc.predict(X)
    with svelto.patched():
        svc.predict(X)
        parts = joblib.Parallel(n_jobs=2)(joblib.delayed(svc.predict)(part) for part in (X[:40], X[40:]))
    np.testing.assert_array_equal(np.concatenate(parts), expected)
