"""The pieces of benchmarks/latency.py on a small machine: what they count and compare. Times are never looked at."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.svm import SVC

import svelto

SMAPS = Path("/proc/self/smaps_rollup")


@pytest.fixture(scope="module")
def fast_and_rows():
    X = np.random.default_rng(0).normal(size=(400, 5))
    svc = SVC(gamma=0.3).fit(X[:150], X[:150, 0] ** 2 + X[:150, 1] > 0.5)
    return svelto.accelerate(svc, method="exact", n_jobs=1), X


def test_percentiles_are_times_that_were_measured(bench):
    taken = np.arange(1, 1001)[::-1] * 1000  # 1 to 1000 us
    found = bench("_latency").percentiles(taken)
    assert found == (500.0, 990.0, 999.0, 1000)
    assert bench("_latency").percentiles([7000]) == (7.0, 7.0, 7.0, 1)
    with pytest.raises(ValueError, match="no times"):
        bench("_latency").percentiles([])


def test_rows_are_asked_in_order_again_and_again(bench):
    asked = []
    taken = bench("_latency").time_calls(asked.append, ["a", "b", "c"], first=2, n_calls=5)
    assert asked == ["c", "a", "b", "c", "a"]
    assert len(taken) == 5
    assert all(isinstance(time, int) and time >= 0 for time in taken)


def test_contenders_take_turns_and_slow_ones_get_fewer_calls(bench):
    latency, order = bench("_latency"), []

    def contender(name):
        def run(first, n_calls):
            order.append(name)
            return [100] * n_calls

        return latency.Contender(name, run)

    both = [contender("one"), contender("two")]
    latency.measure(both, n_calls=200, most_seconds=1e9)
    turns = order[2:]  # the first two are those that tell how many calls fit
    assert all(set(turns[i : i + 2]) == {"one", "two"} for i in range(0, len(turns), 2))
    assert [latency.summary(each) for each in both] == [(0.1, 0.1, 0.1, 200)] * 2
    slow = contender("slow")
    latency.measure([slow], n_calls=10_000, most_seconds=0.0)
    assert latency.summary(slow).calls == latency.LEAST_CALLS


def test_collection_is_off_meanwhile_and_on_again(bench):
    import gc

    with bench("_latency").no_collection():
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.parametrize("size", [1, 30])
def test_threads_give_the_labels_of_one_thread(bench, fast_and_rows, size):
    fast, X = fast_and_rows
    sharing = bench("_latency_sharing")
    batches = sharing.in_batches(X, size, 37)  # more than threads, and no multiple of them
    assert_array_equal(sharing.answered_by(fast.predict, batches, 8), fast.predict(np.concatenate(batches)))
    assert sharing.compare_threads(fast.predict, batches, 1)["same"]


def test_other_labels_are_noticed(bench):
    sharing, count = bench("_latency_sharing"), iter(range(10**6))
    assert not sharing.compare_threads(lambda row: np.array([next(count)]), [None] * 16, 1)["same"]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_the_program_in_c_gives_times_and_labels(bench, fast_and_rows, tmp_path):
    fast, X = fast_and_rows
    X = X.astype(np.float32).astype(np.float64)
    taken, labels = bench("_latency_c").CProgram(fast, X, tmp_path / "c").ask(first=390, n_calls=20, warm_up=3)
    assert_array_equal(labels, fast.predict(X[np.arange(390, 410) % 400]).astype(int))
    assert len(taken) == 20
    assert (taken > 0).all()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12 and later: forking beside other threads
@pytest.mark.skipif(not SMAPS.is_file(), reason="memory is read from /proc")
def test_forked_processes_share_the_file(bench, fast_and_rows, tmp_path):
    fast, X = fast_and_rows
    sharing, path = bench("_latency_sharing"), tmp_path / "fast.svelto"
    fast.save(path)
    line = sharing.process_line("fork", sharing.time_processes("fork", path, X, 10, 2))
    assert line["processes"] == 2
    assert 0 < line["whole"]["Private"] <= line["whole"]["Pss"] <= line["whole"]["Rss"]
    assert 0 < line["file"]["Pss"] < line["file"]["Rss"]
