"""Predict the rows of a memory-mapped file, and watch this process's own memory meanwhile; a program for the tests.

    python huge_array.py ROWS.bin N_FEATURES METHOD...

prints a line of JSON for each method: the most that memory which belongs to no file (RssAnon) grew by, seconds, how
many rows have which label, and whether the first and the last rows have the labels that they have by themselves.
"""

import json
import sys
import threading
from pathlib import Path
from time import perf_counter

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import svelto

ENDS = 100


def spread(n_features):
    """Standard deviations of the features: four count, and stages find their way."""
    return np.where(np.arange(n_features) < 4, 1.0, 0.02)


def anonymous_bytes():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    raise OSError("/proc/self/status has no RssAnon")


class Watch:
    """The most anonymous memory that was seen, looked at every few milliseconds."""

    def __enter__(self):
        self.before = self.most = anonymous_bytes()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def look(self):
        while not self.done.wait(0.005):
            self.most = max(self.most, anonymous_bytes())

    def __exit__(self, *error):
        self.done.set()
        self.thread.join()
        self.growth = max(self.most, anonymous_bytes()) - self.before


def build(method, n_features):
    """A predictor for rows around zero; the machine of an exact one has a handful of support vectors."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4_000, n_features)) * spread(n_features)
    y = X[:, :4].sum(axis=1) > 0.0
    svc = SVC(gamma=0.1)
    if method == "scaled":  # float32 rows: the scaler works in float32, in Python
        model = make_pipeline(StandardScaler(), SVC()).fit(X[:200], y[:200])
        return svelto.accelerate(model, method="exact")
    if method == "exact":
        return svelto.accelerate(svc.fit(X[:40], y[:40]), method="exact")
    few = {"n_hinges": 15} if method == "hinges" else {}  # quick to build
    return svelto.accelerate(svc.fit(X[:1000], y[:1000]), X, method=method, agreement=0.9, random_state=0, **few)


def measure(rows, method):
    fast = build(method, rows.shape[1])
    ends = np.concatenate([rows[:ENDS], rows[-ENDS:]])
    expected = fast.predict(ends)  # also starts the threads, and what they need
    with Watch() as watch:
        begin = perf_counter()
        labels = fast.predict(rows)
        seconds = perf_counter() - begin
    found = np.concatenate([labels[:ENDS], labels[-ENDS:]])
    return {
        "method": method,
        "growth": watch.growth,
        "answer_bytes": labels.nbytes,
        "seconds": round(seconds, 1),
        "rows": len(labels),
        "positive": int(labels.sum()),
        "same_ends": bool((found == expected).all()),
        "settled": fast.work(ends)["stages"],
    }


def main():
    rows = np.memmap(sys.argv[1], dtype=np.float32, mode="r").reshape(-1, int(sys.argv[2]))
    for method in sys.argv[3:]:
        print(json.dumps(measure(rows, method)), flush=True)


if __name__ == "__main__":
    main()
