"""Threads that wait between calls: few, quiet, and the same ones again."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs Linux's list of threads")

# One process for all tests, which begins to live without threads that others started.
SCRIPT = """
    import json, os, threading, time
    import numpy as np
    import svelto
    from svelto.engines import exact
    exact.thread_count = lambda n_jobs: n_jobs
    exact.OPERATIONS_PER_THREAD = 1.0
    rng = np.random.default_rng(0)
    machine = svelto.KernelMachine.from_arrays(
        kernel="rbf", gamma=0.5, support_vectors=rng.normal(size=(50, 3)), dual_coef=rng.normal(size=50),
        intercept=0.1, classes=[0, 1])
    X = rng.normal(size=(2000, 3))
    facts = {}

    def threads():
        return set(os.listdir("/proc/self/task"))

    def new():
        return threads() - before

    def ask(n_jobs):
        return svelto.accelerate(machine, method="exact", n_jobs=n_jobs).predict(X)

    def right(n_jobs):
        return bool((ask(n_jobs) == one).all())

    def at_once(n_callers, n_jobs, calls):
        def many():
            gate.wait()
            answers.extend(right(n_jobs) for _ in range(calls))
        gate, answers = threading.Barrier(n_callers), []
        callers = [threading.Thread(target=many) for _ in range(n_callers)]
        for caller in callers: caller.start()
        for caller in callers: caller.join()
        return all(answers)

    def soon(condition):
        for _ in range(200):
            if condition(): return True
            time.sleep(0.05)
        return False

    def masks():
        texts = [open(f"/proc/self/task/{task}/status").read() for task in new()]
        return [int(text.split("SigBlk:")[1].split()[0], 16) for text in texts]

    before = threads()
    one = ask(1)
    facts["one thread"] = len(new())
    facts["right"] = right(3)
    first = new()
    facts["three threads"] = len(first)
    facts["twenty calls"] = all(right(3) for _ in range(20)), len(new() - first)
    soon(lambda: not any(mask & 1 << 10 for mask in masks()))  # a thread is born with SIGSEGV blocked
    facts["masks"] = masks()
    child = os.fork()
    if child == 0:
        os._exit(len(threads()) if right(3) else 99)
    facts["threads of a child"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    facts["after a fork"] = right(3)
    facts["four callers"] = at_once(4, 2, 20), len(new())
    facts["a crowd"] = at_once(16, 4, 5), soon(lambda: len(new()) <= max(os.cpu_count(), 4))
    print(json.dumps(facts))
"""


@pytest.fixture(scope="module")
def facts():
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stderr  # it ends although threads wait
    return json.loads(done.stdout)


def test_one_thread_starts_none(facts):
    assert facts["one thread"] == 0


def test_calls_use_the_same_threads_again(facts):
    assert facts["right"]
    assert facts["three threads"] == 2
    assert facts["twenty calls"] == [True, 0]


def test_waiting_threads_hear_no_signals(facts):
    """Python's handlers wait for the main thread; a signal that goes elsewhere would not wake it."""
    assert len(facts["masks"]) == 2
    assert all(mask & 1 << signal.SIGINT - 1 for mask in facts["masks"])


def test_a_fault_is_not_silent(facts):
    """A handler of the process runs for faults of a waiting thread: blocked, they would kill it without a word."""
    for fault in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE):
        assert not any(mask & 1 << fault - 1 for mask in facts["masks"])


def test_a_forked_child_starts_its_own(facts):
    assert facts["threads of a child"] == 3
    assert facts["after a fork"]


def test_calls_at_the_same_time_have_threads_of_their_own(facts):
    """And at most as many as work at once are ever there."""
    all_right, count = facts["four callers"]
    assert all_right
    assert 2 <= count <= 5


def test_threads_of_a_crowd_go_again(facts):
    """What many callers needed at once does not wait for ever."""
    assert facts["a crowd"] == [True, True]
