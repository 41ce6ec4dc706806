"""Dask: local SVMs trained by a cluster of processes, one of them killed; machines that answer Dask collections."""

from __future__ import annotations

import gc
import os
import signal
import time
from contextlib import contextmanager

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.distributed import Client, LocalCluster
from joblib import parallel_config, register_parallel_backend
from joblib._parallel_backends import LokyBackend
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, SVR, OneClassSVM

import svelto
from svelto import _collections, _crew
from svelto._crew import DaskCrew, find_crew
from svelto.training import local as local_module
from svelto.training._local import spread_training

RNG = np.random.default_rng(0)
X = np.column_stack([RNG.normal(size=(3000, 3)), RNG.integers(0, 2, size=(3000, 2))])
X[::11] = X[0]
Y = np.array(["no", "yes", "maybe"])[(np.sin(3 * X[:, 0]) + X[:, 1] > 0).astype(int) + (X[:, 3] * X[:, 2] > 0.5)]
COLUMNS = list("abcde")
# Sockets and files of processes that were killed are no concern of these tests.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        yield client


def assert_same(one, other):
    """Every number of two trained machines, and their answers."""
    assert one.k_ == other.k_
    for name in ("classes_", "centres_", "gamma_", "C_", "feature_weights_"):
        assert_array_equal(getattr(one, name), getattr(other, name))
    for name in ("class_start", "classes", "pair_start", "intercept", "n_iter", "support_start", "support", "coef"):
        assert_array_equal(getattr(one._machines.models, name), getattr(other._machines.models, name), name)
    assert_array_equal(one._cover.centre_of_row, other._cover.centre_of_row)
    assert_array_equal(one.decision_function(X), other.decision_function(X))


# -- training ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kernel": "linear", "class_weight": "balanced"},
        {"kernel": "poly", "degree": 2, "coef0": 1.0},
        {"k": 40, "local_search": True},
        {"metric": "learned", "gamma": "scale"},
        {"probability": True},
        {"k": "auto"},
        {"k": 1000, "neighbors": "brute"},
    ],
    ids=str,
)
def test_workers_train_the_same_machine(client, options):
    local = svelto.LocalSVC(**{"k": 60, "n_jobs": 1, "random_state": 0, **options})
    alone, together = clone(local).fit(X, Y), clone(local).fit(X, Y, client=client)
    assert_same(alone, together)
    if local.probability:
        assert_array_equal(alone.predict_proba(X), together.predict_proba(X))


def test_weights_and_collections(client):
    local = svelto.LocalSVC(k=60, n_jobs=1, random_state=0)
    weight = RNG.integers(0, 3, size=len(X)).astype(float)
    alone = clone(local).fit(X, Y, weight)
    rows, labels, weights = (da.from_array(part, chunks=700) for part in (X, Y, weight))
    assert_same(alone, clone(local).fit(rows, labels, weights))
    frame = dd.from_pandas(pd.DataFrame(X, columns=COLUMNS), npartitions=3)
    together = clone(local).fit(frame, dd.from_pandas(pd.Series(Y), npartitions=3), weight)
    assert list(together.feature_names_in_) == COLUMNS
    with pytest.warns(UserWarning, match="valid feature names"):
        assert_same(alone, together)


def test_collections_without_a_cluster():
    local = svelto.LocalSVC(k=60, n_jobs=1, random_state=0)
    rows, labels = da.from_array(X, chunks=(700, 2)), da.from_array(Y, chunks=700)
    together = clone(local).fit(rows, labels)
    assert_same(clone(local).fit(X, Y), together)
    assert_array_equal(together.predict(rows).compute(), together.predict(X))


def test_later_rows_join_a_machine_that_workers_trained(client):
    local = svelto.LocalSVC(k=60, n_jobs=1, random_state=0)
    alone = clone(local).fit(X[:2000], Y[:2000]).partial_fit(X[2000:], Y[2000:])
    together = clone(local).fit(X[:2000], Y[:2000], client=client)
    assert_same(alone, together.partial_fit(da.from_array(X[2000:], chunks=500), Y[2000:]))


# -- workers that die ----------------------------------------------------------------------------------------


def kill_one(client):
    """Kill the worker that holds most."""
    has = client.has_what()
    worst = max(has, key=lambda worker: len(has[worker]))
    os.kill(client.run(os.getpid, workers=[worst])[worst], signal.SIGKILL)


@pytest.mark.parametrize("phase", ["_nearest_of_part", "_train_part"])
def test_a_worker_killed_in_mid_training(client, monkeypatch, phase):
    local = svelto.LocalSVC(k=60, n_jobs=1, random_state=0, local_search=True)
    expected = clone(local).fit(X, Y)
    killed = []
    submit = DaskCrew._submit

    def submit_and_kill(self, function, call, **options):
        future = submit(self, function, call, **options)
        if function.__name__ == phase and not killed:
            killed.append(phase)
            kill_one(client)
        return future

    monkeypatch.setattr(DaskCrew, "_submit", submit_and_kill)
    assert_same(expected, clone(local).fit(X, Y, client=client))
    assert killed == [phase]
    client.wait_for_workers(4, timeout=60)


def test_what_was_held_is_sent_again(client):
    crew = DaskCrew(client)
    held = crew.hold([lambda: np.arange(5.0)])
    (worker,) = next(iter(client.who_has([held[0].future]).values()))
    os.kill(client.run(os.getpid, workers=[worker])[worker], signal.SIGKILL)
    assert crew.run(np.sum, [(held[0],), (held[0],)]) == [10.0, 10.0]
    client.wait_for_workers(4, timeout=60)


def test_a_task_that_kills_its_workers_is_given_up(client):
    with pytest.raises(RuntimeError, match="One task lost its worker again and again"):
        DaskCrew(client).run(os._exit, [(1,)])
    client.wait_for_workers(4, timeout=60)


def test_errors_and_interrupts_leave_nothing_behind(client, monkeypatch):
    local = svelto.LocalSVC(k=60, n_jobs=1, random_state=0)
    with pytest.raises(ZeroDivisionError):
        DaskCrew(client).run(divmod, [(1, 1), (1, 0)])

    def stop(*_):
        raise KeyboardInterrupt

    @contextmanager
    def interrupted(title):
        yield lambda step, share=0.0: stop() if "trained" in step else None

    monkeypatch.setattr(local_module, "bar", interrupted)
    with pytest.raises(KeyboardInterrupt):
        local.fit(X, Y, client=client)
    assert not hasattr(local, "classes_")
    assert not hasattr(local, "n_features_in_")
    for _ in range(100):  # what the workers were doing is no longer wanted
        if not any(client.processing().values()):
            break
        time.sleep(0.1)
    assert not any(client.processing().values())
    monkeypatch.undo()
    assert_same(clone(local).fit(X, Y), local.fit(X, Y, client=client))


def test_what_is_no_client():
    with pytest.raises(ValueError, match=r"client is 'tcp://x'; expected a dask\.distributed\.Client"):
        svelto.LocalSVC(k=60).fit(X, Y, client="tcp://x")


# -- answers -------------------------------------------------------------------------------------------------

BLOCKS = da.from_array(X, chunks=(700, 2))
KNN_ROWS = 200


@pytest.fixture(params=["cluster", "threads"])
def where(request):
    """Workers, or Dask's own threads."""
    if request.param == "cluster":
        request.getfixturevalue("client")
        yield request.param
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_crew, "active_client", lambda: None)
        with dask.config.set(scheduler="threads"):
            yield request.param


MACHINES = {
    "two classes": lambda: svelto.accelerate(SVC().fit(X, X[:, 0] > 0.0)),
    "three classes": lambda: svelto.accelerate(SVC().fit(X, Y)),
    "regression": lambda: svelto.accelerate(SVR().fit(X, X[:, 0])),
    "outliers": lambda: svelto.accelerate(OneClassSVM(nu=0.1).fit(X)),
    "tree": lambda: svelto.accelerate(SVC().fit(X, X[:, 0] > 0.0), X, method="taylor_tree", random_state=0),
    "local": lambda: svelto.LocalSVC(k=60, probability=True, random_state=0).fit(X, Y),
    "neighbours": lambda: svelto.KNNSVC(k=30).fit(X[:KNN_ROWS], Y[:KNN_ROWS]),
}


@pytest.mark.parametrize("name", MACHINES)
def test_answers_are_those_for_arrays(where, name):
    machine = MACHINES[name]()
    for method in ("predict", "decision_function", "predict_proba", "score_samples"):
        try:
            ask = getattr(machine, method)
        except AttributeError:
            continue
        lazy, expected = ask(BLOCKS), ask(X)
        assert isinstance(lazy, da.Array)
        assert (lazy.shape, lazy.dtype, lazy.chunks[0]) == (expected.shape, expected.dtype, BLOCKS.chunks[0])
        assert_array_equal(lazy.compute(), expected)


def test_frames_and_blocks_of_unknown_size(where):
    frame = pd.DataFrame(X, columns=COLUMNS)
    machine = svelto.accelerate(make_pipeline(StandardScaler(), SVC()).fit(frame, Y))
    local = svelto.LocalSVC(k=60, random_state=0).fit(frame, Y)
    parts = dd.from_pandas(frame, npartitions=4)
    for each in (machine, local):
        assert_array_equal(each.predict(parts).compute(), each.predict(frame))
        kept = parts[parts.a > 0.5]  # sizes are not known, and a block may be empty
        assert_array_equal(each.predict(kept).compute(), each.predict(frame[frame.a > 0.5]))
        assert each.decision_function(parts[parts.a > 99.0]).compute().shape == (0, 3)


def test_wrong_rows_are_refused(where):
    local = svelto.LocalSVC(k=60, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="X has 4 features, but LocalSVC is expecting 5"):
        local.predict(da.ones((10, 4)))
    with pytest.raises(ValueError, match="X has 1 dimensions; expected a Dask array of shape"):
        local.predict(da.ones(10))
    with pytest.raises(NotFittedError):
        svelto.LocalSVC().predict(BLOCKS)
    with pytest.raises(ValueError, match="NaN"):
        local.predict(da.full((10, 5), np.nan)).compute()


def test_a_machine_is_sent_once_until_it_changes(client):
    local = svelto.LocalSVC(k=60, random_state=0).fit(X, Y)
    futures = []
    for change in (lambda: None, lambda: None, lambda: local.set_params(vote=3), lambda: local.fit(X[:999], Y[:999])):
        change()
        assert_array_equal(local.predict(BLOCKS).compute(), local.predict(X))
        futures.append(_collections._sent[local][2].key)
    assert futures[0] == futures[1]
    assert len(set(futures)) == 3


def test_workers_in_this_process_keep_the_machine_they_were_sent():
    with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0") as inside:
        local = svelto.LocalSVC(k=60, random_state=0).fit(X, Y)
        expected = local.predict(X)
        lazy = local.predict(BLOCKS, client=inside)
        local.fit(X, Y[::-1])
        assert_array_equal(lazy.compute(), expected)
        before = len(_collections._sent)
        del local, lazy
        gc.collect()
        assert len(_collections._sent) < before


def test_a_client_that_is_given_is_used(client):
    local = svelto.LocalSVC(k=60, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="client is 'nonsense'"):
        local.predict(BLOCKS, client="nonsense")
    with pytest.raises(TypeError, match=r"X is a Delayed.* of Dask; expected a Dask array or dataframe"):
        local.predict(dask.delayed(X))


def test_columns_of_words(where):
    frame = pd.DataFrame({"a": X[:, 0], "word": np.where(X[:, 3] > 0, "on", "off")})
    front = make_column_transformer((OneHotEncoder(), ["word"]), (StandardScaler(), ["a"]))
    model = make_pipeline(front, SVC()).fit(frame, Y)
    fast = svelto.accelerate(model)
    parts = dd.from_pandas(frame, npartitions=3)
    for method in ("predict", "decision_function"):
        assert_array_equal(getattr(fast, method)(parts).compute(), getattr(fast, method)(frame))


def test_a_grid_search_on_the_cluster(client):
    """Fits inside of joblib's tasks stay where they are."""
    local = svelto.LocalSVC(k=60, random_state=0)
    with parallel_config("dask"):
        search = GridSearchCV(local, {"C": [0.1, 1.0]}, cv=2, refit=False).fit(X[:1000], Y[:1000])
    plain = GridSearchCV(local, {"C": [0.1, 1.0]}, cv=2, refit=False).fit(X[:1000], Y[:1000])
    assert_array_equal(search.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"])


def test_rows_that_are_here_are_answered_by_workers(client, monkeypatch):
    local = svelto.LocalSVC(k=60, probability=True, random_state=0).fit(pd.DataFrame(X, columns=COLUMNS), Y)
    monkeypatch.setattr(_collections, "BLOCK_BYTES", 700 * 5 * 8)
    frame = pd.DataFrame(X, columns=COLUMNS)
    for method in ("predict", "decision_function", "predict_proba"):
        assert_array_equal(getattr(local, method)(frame, client=client), getattr(local, method)(frame))


# -- joblib --------------------------------------------------------------------------------------------------


class Elsewhere(LokyBackend):
    """Processes that stand for those of another machine."""


register_parallel_backend("elsewhere", Elsewhere)


def test_joblib_backends(client, monkeypatch):
    local = svelto.LocalSVC(k=60, n_jobs=1, random_state=0)
    expected = clone(local).fit(X, Y)
    used = []
    for name in ("JoblibCrew", "DaskCrew"):
        crew = getattr(_crew, name)
        run = crew.run
        monkeypatch.setattr(crew, "run", lambda *args, run=run, name=name: (used.append(name), run(*args))[1])
    with parallel_config("elsewhere", n_jobs=2):
        assert_same(expected, clone(local).fit(X, Y))
        assert_same(
            clone(local).set_params(kernel="poly", degree=2).fit(X[:500], Y[:500]),
            clone(local).set_params(kernel="poly", degree=2, n_jobs=2).fit(X[:500], Y[:500]),
        )
    assert set(used) == {"JoblibCrew"}
    used.clear()
    with parallel_config("dask"):
        assert_same(expected, clone(local).fit(X, Y))
        assert_array_equal(expected.predict(X), clone(local).fit(X, Y).predict(X))
    assert set(used) == {"DaskCrew"}
    used.clear()
    with parallel_config("loky", n_jobs=2):  # this machine's processes: threads serve as well
        assert find_crew() is None
    assert find_crew() is None
    assert find_crew(dask_rows=True).client is client


def test_neighbourhoods_that_no_worker_has_take_their_rows_along(client):
    """Trained by a crew that holds nothing."""
    data = svelto.LocalSVC(k=30, n_jobs=1, random_state=0).fit(X, Y)
    options = data._checked()
    train = spread_training.SpreadTraining(DaskCrew(client))
    trained = train(options, data._data, data._cover.neighbours, None, lambda step, share=0.0: None)
    for name in ("support", "coef", "intercept"):
        assert_array_equal(getattr(trained.models, name), getattr(data._machines.models, name))
