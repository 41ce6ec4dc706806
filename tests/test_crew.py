"""Threads that wait between calls: few, quiet, and the same ones again."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

TASKS = "/proc/self/task"

pytestmark = pytest.mark.skipif(not os.path.isdir(TASKS), reason="needs Linux's list of threads")

PRELUDE = """
    import os, threading
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

    def threads():
        return set(os.listdir("/proc/self/task"))

    def ask(n_jobs):
        return svelto.accelerate(machine, method="exact", n_jobs=n_jobs).predict(X)

    one = ask(1)
    before = threads()
"""


# Signals that each waiting thread has blocked, when all of them have begun to live.
MASKS = """
    import time
    ask(3)
    for _ in range(200):
        texts = [open(f"/proc/self/task/{task}/status").read() for task in threads() - before]
        masks = [text.split("SigBlk:")[1].split()[0] for text in texts]
        if not any(int(mask, 16) & 1 << 10 for mask in masks): break  # a thread is born with SIGSEGV blocked
        time.sleep(0.05)
    print(*masks)
"""


def run(code: str) -> list[str]:
    """Lines that a fresh Python prints: threads that others started would be counted too."""
    script = textwrap.dedent(PRELUDE) + textwrap.dedent(code)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_calls_use_the_same_threads_again():
    counts = run("""
        assert (ask(3) == one).all()
        first = threads() - before
        for _ in range(20):
            assert (ask(3) == one).all()
        print(len(first), len(threads() - before - first))
    """)
    assert counts == ["2", "0"]


def test_one_thread_starts_none():
    assert run("ask(1); print(len(threads() - before))") == ["0"]


def test_calls_at_the_same_time_have_threads_of_their_own():
    """And at most as many as work at once are ever there."""
    (count,) = run("""
        def many():
            for _ in range(20):
                assert (ask(2) == one).all()
        workers = [threading.Thread(target=many) for _ in range(4)]
        for worker in workers: worker.start()
        for worker in workers: worker.join()
        print(len(threads() - before))
    """)
    assert 1 <= int(count) <= 4


def test_waiting_threads_hear_no_signals():
    """Python's handlers wait for the main thread; a signal that goes elsewhere would not wake it."""
    masks = run(MASKS)
    sigint = 1 << (2 - 1)
    assert len(masks) == 2
    assert all(int(mask, 16) & sigint for mask in masks)


def test_a_forked_child_starts_its_own():
    counts = run("""
        ask(3)
        child = os.fork()
        if child == 0:
            right = (ask(3) == one).all()
            os._exit(len(threads()) if right else 99)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), (ask(3) == one).all())
    """)
    assert counts == ["3", "True"]


def test_threads_of_a_crowd_go_again():
    """What many callers needed at once does not wait for ever."""
    (most, left) = run("""
        import time
        gate = threading.Barrier(16)
        def many():
            gate.wait()
            for _ in range(5):
                assert (ask(4) == one).all()
        workers = [threading.Thread(target=many) for _ in range(16)]
        for worker in workers: worker.start()
        for worker in workers: worker.join()
        kept = max(os.cpu_count(), 4)
        for _ in range(100):
            if len(threads() - before) <= kept: break
            time.sleep(0.05)
        print(kept, len(threads() - before))
    """)
    assert int(left) <= int(most)


def test_a_fault_is_not_silent():
    """A handler of the process runs for faults of a waiting thread: blocked, they would kill it without a word."""
    masks = run(MASKS)
    assert not any(int(mask, 16) & (1 << (signal.SIGSEGV - 1)) for mask in masks)


def test_a_process_ends_while_threads_wait():
    assert run("ask(4); print('end')") == ["end"]
