"""Progress of long work: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
from sklearn.datasets import make_blobs

from svelto._progress import bar, span
from svelto.training import svm_tree

WORK = """
import time
from svelto._progress import bar
with bar("Training") as tell:
    for done in range(5):
        tell(f"chain {done} of 5", done / 5)
        time.sleep(0.15)
print("done")
"""


def on_a_terminal(code):
    """Standard output of a program, and what it writes to a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=theirs, text=True) as program:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:  # how a terminal says that nobody is left to write
            pass
        output, _ = program.communicate()
    os.close(ours)
    assert program.returncode == 0
    return output, shown.decode()


def test_a_terminal_sees_a_bar_with_the_step_and_the_share():
    output, shown = on_a_terminal(WORK)
    assert output == "done\n"
    assert "Training" in shown
    assert "chain 4 of 5" in shown
    assert "80%" in shown


def test_quiet_where_there_is_no_terminal():
    result = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, check=True)
    assert (result.stdout, result.stderr) == ("done\n", "")


def test_quiet_without_rich(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with bar("Training") as tell:
        tell("one", 0.5)


def test_a_span_is_a_part_of_all_work():
    told = []
    part = span(span(lambda step, share=0.0: told.append((step, share)), 0.5, 1.0), 0.0, 0.5)
    part("first", 0.0)
    part("last", 1.0)
    assert told == [("first", 0.5), ("last", 0.75)]


def test_training_a_tree_tells_how_far_it_is(monkeypatch):
    told = []

    @contextmanager
    def listening(title):
        yield lambda step, share=0.0: told.append((step, share))

    monkeypatch.setattr(svm_tree, "bar", listening)
    X, y = make_blobs(120, centers=3, cluster_std=3.0, random_state=0)
    svm_tree.SVMTreeClassifier(random_state=0, n_folds=2, n_jobs=1).fit(X, y)
    steps, shares = zip(*told, strict=True)
    assert steps[0].startswith("choosing the tail")
    assert steps[-1] == "training the tail"
    assert any(step.startswith("fold 2 of 2, chain 3 of 3") for step in steps)
    assert shares[0] == 0.0
    assert np.diff(shares).min() >= 0.0
    assert 0.9 < shares[-1] < 1.0
