"""Eight Python threads share one predictor of every kind: the same answers as from one thread, bit by bit.

Native code lets the interpreter go, so calls really run at the same time; with n_jobs=2 each of them has a helper
thread besides. `make sanitize-threads` runs this file on a core that reports data races.
"""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import svelto
from file_cases import CORPUS, QUERIES, X
from machines import random_machine
from svelto import _core
from svelto._threads import Counted

N_CALLERS = 8
METHODS = ("predict", "decision_function", "predict_proba")
FILES = {path.stem: path for path in sorted((CORPUS / "v1").glob("*.svelto"))}
# A single row, a batch that one block holds, one that several threads share.
BATCHES = (1, 17, 300)


@pytest.fixture(autouse=True)
def every_call_uses_its_threads(monkeypatch):
    """Small models would be answered by one thread, whatever n_jobs says."""
    monkeypatch.setattr("svelto.engines.exact.OPERATIONS_PER_THREAD", 1.0)
    monkeypatch.setattr("svelto.engines.reduced_stage.OPERATIONS_PER_THREAD", 1.0)
    monkeypatch.setattr("svelto.native_cascade.OPERATIONS_PER_THREAD", 1.0)
    monkeypatch.setattr("svelto.engines.distance_lists.OPERATIONS_PER_THREAD", 1.0)


def test_thread_sanitizer_run_uses_its_core():
    assert ("SVELTO_SANITIZED" in os.environ) == _core.SANITIZED


def opened(name, n_jobs):
    """A model of the kept files; `Counted` is taken as it is, on a computer with one core too."""
    model = svelto.load(FILES[name])
    if isinstance(model, svelto.KernelMachine):
        model = svelto.accelerate(model, method="exact")
    model.n_jobs = Counted(n_jobs)
    return model


def rows_of(model, n):
    rows = np.resize(QUERIES, (n, 2))
    machine = getattr(model, "machine", None)
    if machine is not None and machine.kernel.name == "precomputed":
        return rows @ X.T + 1.0
    return rows


def ask_at_once(jobs):
    """Every caller does all jobs, each beginning with another one; what they got, caller by caller."""
    gate, found, errors = threading.Barrier(N_CALLERS), [None] * N_CALLERS, []

    def call(number):
        try:
            gate.wait()
            order = [(number + i) % len(jobs) for i in range(len(jobs))]
            found[number] = {place: jobs[place]() for place in order}
        except BaseException as error:  # raised again below, where pytest sees it
            errors.append(error)

    callers = [threading.Thread(target=call, args=(number,)) for number in range(N_CALLERS)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    if errors:
        raise errors[0]
    return found


def jobs_of(model):
    methods = [name for name in METHODS if hasattr(model, name)]
    batches = [rows_of(model, n) for n in BATCHES]
    return [lambda name=name, rows=rows: getattr(model, name)(rows) for name in methods for rows in batches]


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("name", FILES)
def test_shared_predictors(name, n_jobs):
    expected = [job() for job in jobs_of(opened(name, 1))]
    # Opened anew: what is made at the first query is made while all of them ask.
    for found in ask_at_once(jobs_of(opened(name, n_jobs))):
        for place, wanted in enumerate(expected):
            assert_array_equal(found[place], wanted)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_shared_predictor_with_many_vectors(n_jobs):
    """Several blocks of rows and of support vectors, so that helpers have something to share."""
    rows = np.random.default_rng(1).normal(size=(1500, 6))
    machine = random_machine(n_sv=300, n_classes=3)
    fast = svelto.accelerate(machine, method="exact", n_jobs=1)
    expected = [fast.predict(rows), fast.decision_function(rows)]
    fast.n_jobs = Counted(n_jobs)
    for found in ask_at_once([lambda: fast.predict(rows), lambda: fast.decision_function(rows)]):
        for place, wanted in enumerate(expected):
            assert_array_equal(found[place], wanted)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_forks_while_threads_wait():
    """A child has no helpers of its parent, and gets its own; the parent's go on."""
    fast = opened("exact_classes", 2)
    rows = rows_of(fast, 600)
    expected = fast.predict(rows)
    assert all((found[0] == expected).all() for found in ask_at_once([lambda: fast.predict(rows)]))
    for _ in range(3):
        child = os.fork()
        if child == 0:
            right = False
            try:
                right = bool((fast.predict(rows) == expected).all())
            finally:
                os._exit(0 if right else 1)
        assert_array_equal(fast.predict(rows), expected)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
