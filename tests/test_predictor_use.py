"""A predictor in use: what it says about itself, how it travels, and what threads, processes and Ctrl-C do to it."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
from joblib.externals.loky import get_reusable_executor
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, OneClassSVM
from threadpoolctl import threadpool_limits

import svelto
from machines import random_machine
from sklearn_cases import data, product
from svelto import _core, _threads
from svelto._inputs import make_query
from svelto._threads import thread_count


def trained(n_classes=3, **options):
    X, y, Z = data(n_classes)
    return svelto.accelerate(SVC().fit(X, y), **options), Z


# -- what it says about itself ---------------------------------------------------------------------------------------


def test_report():
    fast, _ = trained()
    report = fast.report
    assert (report.method, report.promise) == ("exact", "exact")
    assert report.agreement is None
    assert report.work == {"kernel evaluations a row": fast.machine.n_sv}
    assert report.details["support vectors"] == fast.machine.n_sv
    assert report.details["features"] == 5
    assert report.details["labels start in"] == "float32"
    assert report.details["bytes"] == fast.nbytes
    assert 0 < report.score_error_bound < 1e-2
    assert 0 < report.build_seconds < 10
    text = str(report).splitlines()
    assert text[0].split() == ["method", "exact"]
    assert "promise" in text[1]
    assert "the label of every row equals the float64 machine's" in text[1]
    assert len({line.index(value) for line, (_, value) in zip(text, report.rows(), strict=True)}) == 1  # aligned
    html = report._repr_html_()
    assert "<h1>svelto: exact</h1>" in html
    assert "<tr><th>labels start in</th><td>float32</td></tr>" in html
    assert fast._repr_html_() == html
    exact = trained(precision="float64")[0].report
    assert exact.score_error_bound == 0.0
    assert exact.details["scores in"] == "float64"
    regressor = svelto.accelerate(random_machine(task="regression")).report
    assert regressor.details["labels start in"] == "float32"
    assert regressor.score_error_bound == 0.0  # its scores are double all the same


def test_report_of_other_promises():
    measured = {
        "agreement": 0.99951,
        "agreement_bound": 0.99902,
        "speedups": {"SVC <old>": 123.4},
        "work": {"dots": 2.5},
    }
    report = svelto.Report("hinges", "statistical", **measured)
    assert ("agreement measured", "0.99951") in report.rows()
    assert ("agreement bound", "0.99902") in report.rows()
    assert ("speedup over SVC <old>", "123x") in report.rows()
    assert ("dots", "2.5") in report.rows()
    assert "labels agree at the stated rate" in str(report)
    assert "SVC &lt;old&gt;" in report._repr_html_()
    assert "nothing promised" in str(svelto.Report("raw", "none"))


def test_repr():
    fast, _ = trained()
    assert repr(fast) == f"Predictor(method='exact', promise='exact', {fast.machine!r})"
    assert repr(fast.machine).startswith("KernelMachine(rbf(gamma=")
    assert repr(fast.machine).endswith("n_features=5, 3 classes, from scikit-learn SVC)")


def test_nbytes():
    small, large = (svelto.accelerate(random_machine(n_sv=n, d=20)) for n in (500, 5000))
    raw = large.machine.support_vectors.nbytes
    assert raw < large.nbytes < 6 * raw  # originals, double and single panels, weights
    assert 8 < large.nbytes / small.nbytes < 11
    words = svelto.KernelMachine.from_arrays(kernel=product, support_vectors=np.eye(3), dual_coef=[1, 2, 3])
    assert svelto.accelerate(words).nbytes == 9 * 8 + 3 * 8


@pytest.mark.parametrize("precision", ["auto", "float64"])
def test_work(precision):
    S = np.random.default_rng(0).normal(size=(20, 4))
    machine = svelto.KernelMachine.from_arrays(
        kernel="rbf", support_vectors=np.vstack([S, -S]), dual_coef=np.repeat([1.0, -1.0], 20), classes=[0, 1]
    )
    fast = svelto.accelerate(machine, precision=precision)
    X = np.random.default_rng(1).normal(size=(90, 4))
    X[:10] = 0.0  # f(-x) = -f(x), so the score is zero here and only the reference sum can tell
    work = fast.work(X)
    shares = work["stages"]
    assert work["rows"] == 90
    assert list(shares) == ["float32", "float64", "reference"]
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["reference"] == pytest.approx(10 / 90)
    # A row that a tier cannot settle is computed again by the next one.
    passes = {"auto": (1, 2, 3), "float64": (0, 1, 2)}[precision]
    expected = 40 * sum(n * share for n, share in zip(passes, shares.values(), strict=True))
    assert work["kernel_evaluations_per_row"] == pytest.approx(expected)
    assert work["dot_products_per_row"] == 0


def test_work_of_a_linear_machine():
    work = svelto.accelerate(random_machine("linear", n_classes=4)).work(np.ones((5, 6)))
    assert (work["kernel_evaluations_per_row"], work["dot_products_per_row"]) == (0, 6)


# -- travelling ------------------------------------------------------------------------------------------------------


def through_joblib(fast, tmp_path):
    joblib.dump(fast, tmp_path / "fast.joblib", compress=1)
    return joblib.load(tmp_path / "fast.joblib")


COPIES = {
    "pickle": lambda fast, tmp_path: pickle.loads(pickle.dumps(fast)),
    "joblib": through_joblib,
    "deepcopy": lambda fast, tmp_path: copy.deepcopy(fast),
    "copy": lambda fast, tmp_path: copy.copy(fast),
}


@pytest.mark.parametrize("how", COPIES)
def test_copies_answer_alike(how, tmp_path):
    X, y, Z = data(3)
    for model in (SVC(), make_pipeline(StandardScaler(), SVC()), OneClassSVM(), SVC(kernel=product)):
        for precision in ("auto", "float64"):
            fast = svelto.accelerate(model.fit(X, y), n_jobs=1, precision=precision)
            copied = COPIES[how](fast, tmp_path)
            assert copied is not fast
            assert_array_equal(copied.predict(Z), fast.predict(Z))
            assert_array_equal(copied.predict(Z[:1]), fast.predict(Z[:1]))
            assert_array_equal(copied.decision_function(Z), fast.decision_function(Z))
            assert copied.report == fast.report
            assert (copied.n_jobs, copied.nbytes, repr(copied)) == (1, fast.nbytes, repr(fast))
            assert not copied.machine.dual_coef.flags.writeable


def test_a_pickle_holds_the_machine_and_no_native_object():
    fast = svelto.accelerate(random_machine(n_sv=1000, d=30))
    size = len(pickle.dumps(fast))
    assert size < 1.2 * (fast.machine.support_vectors.nbytes + fast.machine.dual_coef.nbytes) + 5000


# -- threads and processes -------------------------------------------------------------------------------------------


def enough_rows(d=6, n=20_000):
    """Enough work for more than one thread with 200 support vectors."""
    return np.random.default_rng(0).normal(size=(n, d))


class Spy:
    """A native engine that remembers the number of threads it was asked for, always the last argument."""

    def __init__(self, native):
        self.native, self.threads = native, []

    def __getattr__(self, name):
        def call(*args):
            self.threads.append(args[-1])
            return getattr(self.native, name)(*args)

        return call


def threads_used(fast, X):
    spy = Spy(fast._engine._native)
    fast._engine._native = spy
    for ask in (fast.predict, fast.decision_function, fast.score_bounds, fast.work):
        ask(X)
        ask(sparse.csr_matrix(X))
    assert len(spy.threads) == 8
    assert len(set(spy.threads)) == 1
    return spy.threads[0]


def test_n_jobs_and_limits_reach_the_native_code(monkeypatch):
    machine, X = random_machine(n_sv=200), enough_rows()
    limit = _threads._openmp_limit()
    assert threads_used(svelto.accelerate(machine), X) == limit
    with threadpool_limits(1):
        assert threads_used(svelto.accelerate(machine), X) == 1
        assert threads_used(svelto.accelerate(machine, n_jobs=2), X) == 1
    assert threads_used(svelto.accelerate(machine), X) == limit
    monkeypatch.setattr(_threads, "_openmp_limit", lambda: 4)
    assert threads_used(svelto.accelerate(machine), X) == 4
    for n_jobs, expected in ((1, 1), (2, 2), (3, 3), (4, 4), (99, 4)):
        assert threads_used(svelto.accelerate(machine, n_jobs=n_jobs), X) == expected
    assert threads_used(svelto.accelerate(machine, n_jobs=4), X[:20]) == 1  # too little work for a second thread


def test_joblib_settings(monkeypatch):
    monkeypatch.setattr(_threads, "_openmp_limit", lambda: 4)
    monkeypatch.setattr(
        joblib.parallel.LokyBackend,
        "effective_n_jobs",
        lambda self, n_jobs: n_jobs if n_jobs > 0 else max(5 + n_jobs, 1),
    )
    expected = {None: 4, 2: 2, 3: 3, 8: 4, -1: 4, -2: 3, -3: 2, -9: 1}
    for n_jobs, threads in expected.items():
        with joblib.parallel_config(n_jobs=n_jobs):
            assert thread_count(None) == threads
            assert thread_count(1) == 1
        assert thread_count(n_jobs) == threads


def test_many_python_threads_share_one_predictor():
    fast = svelto.accelerate(random_machine(n_sv=200, n_classes=3), n_jobs=2)
    X = enough_rows(n=3000)
    kinds = [X, X.astype(np.float32), sparse.csr_matrix(X), X[:5], np.asfortranarray(X), X[:1]]
    jobs = [(ask, kind) for kind in kinds for ask in (fast.predict, fast.decision_function, fast.score_bounds)] * 3
    expected = [ask(kind) for ask, kind in jobs]
    with ThreadPoolExecutor(8) as pool:
        for got, want in zip(pool.map(lambda job: job[0](job[1]), jobs), expected, strict=True):
            assert_array_equal(got, want)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_predicts_with_threads(monkeypatch):
    monkeypatch.setattr("svelto.engines.exact.thread_count", lambda n_jobs: 2)
    fast, X = svelto.accelerate(random_machine(n_sv=200)), enough_rows()
    expected = fast.predict(X)  # threads have run before the fork
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later: forking beside other threads
        child = os.fork()
    if child == 0:
        try:
            os._exit(0 if threads_used(fast, X) == 2 and (fast.predict(X) == expected).all() else 1)
        finally:
            os._exit(2)  # an exception: do not run pytest twice
    for _ in range(300):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        time.sleep(0.1)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the child hangs")
    assert os.waitstatus_to_exitcode(status) == 0
    assert_array_equal(fast.predict(X), expected)


def answer(fast, X):
    return fast.predict(X), thread_count(None), thread_count(2)


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_joblib_workers(backend):
    fast = svelto.accelerate(random_machine(n_sv=200, n_classes=3))
    parts = np.array_split(enough_rows(), 4)
    with joblib.parallel_config(backend=backend, n_jobs=2, inner_max_num_threads=1 if backend == "loky" else None):
        results = joblib.Parallel()(joblib.delayed(answer)(fast, part) for part in parts)
    assert_array_equal(np.concatenate([labels for labels, _, _ in results]), fast.predict(enough_rows()))
    assert {(default, asked) for _, default, asked in results} == {(1, 1)}  # siblings have the other cores
    if backend == "loky":
        get_reusable_executor().shutdown(wait=True)


# -- memory and interruption -----------------------------------------------------------------------------------------

PEAK = """
import numpy as np
from scipy import sparse
import svelto

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024

rng = np.random.default_rng(0)
machine = svelto.KernelMachine.from_arrays(
    kernel="rbf", support_vectors=rng.normal(size=(N_SV, 6)), dual_coef=rng.normal(size=N_SV), classes=[0, 1]
)
fast = svelto.accelerate(machine, n_jobs=2)
X = rng.integers(-3, 4, size=(N_ROWS, 6), dtype=np.int8)
rows = X if KIND == "int8" else X.astype(np.float32) if KIND == "float32" else sparse.csr_matrix(X.astype(float))
fast.predict(rows[:2000])
before = peak()
fast.predict(rows)
fast.decision_function(rows)
print(peak() - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux's /proc")
@pytest.mark.parametrize(
    ("kind", "n_rows", "n_sv"), [("float32", 200_000, 1500), ("csr", 200_000, 1500), ("int8", 1_500_000, 60)]
)
def test_memory_does_not_grow_with_rows_times_vectors(kind, n_rows, n_sv):
    """Kernel values would be 1.2 GB in single precision; whole numbers as doubles, all at once, 72 MB."""
    code = f"KIND, N_ROWS, N_SV = {kind!r}, {n_rows}, {n_sv}\n{PEAK}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 48  # MB; labels and scores of the most rows are 30 MB of them


@pytest.mark.parametrize("method", ["predict", "decision_function"])
def test_an_interrupt_between_parts_leaves_nothing_broken(method, monkeypatch):
    fast, X = svelto.accelerate(random_machine(n_sv=50)), enough_rows(n=5000)
    expected = getattr(fast, method)(X)
    monkeypatch.setattr("svelto.engines.exact.OPERATIONS_PER_CALL", 1.0)
    assert_array_equal(getattr(fast, method)(X), expected)  # parts of 1,024 rows give the same
    seen = []

    def stop_at_the_third(rows):
        seen.append(len(rows))
        if len(seen) == 3:
            signal.raise_signal(signal.SIGINT)
        return rows

    with monkeypatch.context() as patch:
        patch.setattr("svelto.engines.exact.as_floats", stop_at_the_third)
        with pytest.raises(KeyboardInterrupt):
            getattr(fast, method)(X)
    assert seen == [1024, 1024, 1024]
    assert_array_equal(getattr(fast, method)(X), expected)


@pytest.mark.parametrize("classes", [[1, 7, 9], [0.0, 1.0, 2.0], ["a", "b", "c"], [True, False], list("xyz")])
@pytest.mark.parametrize("dtype", [None, np.int32, ">i8"])
def test_batches_on_one_thread_take_the_short_way_to_the_same_labels(classes, dtype):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(900, 4))
    names = np.array(classes) if dtype is None or isinstance(classes[0], str) else np.array(classes).astype(dtype)
    y = names[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5) * (len(names) > 2)]
    fast = svelto.accelerate(SVC(C=5.0).fit(X, y), X, method="taylor_tree", agreement=0.9, random_state=0, n_jobs=1)
    rows = rng.normal(size=(700, 4))
    expected = fast.machine.classes[fast.machine.vote_order].take(
        fast._engine.labels(make_query(fast.machine, rows))[0]
    )
    for X_ in (rows, rows.astype(np.float32), rows[:17], np.asfortranarray(rows)):
        labels = fast.predict(X_)
        assert labels.dtype == expected.dtype
        if X_.dtype == np.float64:
            assert_array_equal(labels, expected[: len(X_)])
    bad = rows.copy()
    bad[600, 2] = np.inf
    with pytest.raises(ValueError, match=r"X contains inf \(row 600, column 2\)"):
        fast.predict(bad)


@pytest.mark.parametrize("n_table", [1, 2, 3, 7, 8, 9, 15, 16, 17, 26, 1000])  # around what two registers hold
@pytest.mark.parametrize("level", _core.available_levels())
def test_answers_are_those_that_numpy_takes(n_table, level):
    rng = np.random.default_rng(n_table)
    table = rng.integers(-(2**62), 2**62, n_table)
    for n in (0, 1, 7, 8, 9, 64, 1001):
        index = rng.integers(0, n_table, n).astype(np.int32)
        out = np.zeros(n, dtype=np.int64)
        _core.take(table, index, out, level)
        assert_array_equal(out, table[index])
        if n:
            index[-1] = n_table
            before = out.copy()
            with pytest.raises(ValueError, match="outside the table"):
                _core.take(table, index, out, level)
            assert_array_equal(out, before)


@pytest.mark.parametrize("level", _core.available_levels())
def test_answers_are_taken_from_the_table_alone(level):
    table, out = np.array([3, 4]), np.empty(3, dtype=np.int64)
    _core.take(table, np.array([1, 0, 1], dtype=np.int32), out, level)
    assert out.tolist() == [4, 3, 4]
    for index in ([0, 2, 0], [0, -1, 0], [0, 2**31 - 1, 0], [0, -(2**31), 0]):
        with pytest.raises(ValueError, match="outside the table"):
            _core.take(table, np.array(index, dtype=np.int32), out, level)
    with pytest.raises(ValueError, match="outside the table"):
        _core.take(table[:0], np.zeros(3, dtype=np.int32), out, level)
    _core.take(table[:0], np.zeros(0, dtype=np.int32), out[:0], level)
    with pytest.raises(ValueError, match="disagree in length"):
        _core.take(table, np.zeros(2, dtype=np.int32), out, level)
