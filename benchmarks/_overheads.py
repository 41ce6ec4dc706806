"""What prediction costs besides arithmetic: time of a call with one row, and memory beyond input and output.

Time: a machine with 50 support vectors. The marginal cost of a row (from 16 rows against one, the same path through
the code) is its arithmetic; one row's call less that is overhead.

Memory: a fresh process predicts a million rows; the peak of its resident memory during predict, less what was
resident before and the labels themselves, is extra. This file is the script of that process.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import svelto
from _timing import interleave, spread, timed

N_FEATURES = 22


def make_machine(n_sv: int) -> svelto.KernelMachine:
    """Make a two-class machine with random support vectors, as wide as ijcnn1."""
    rng = np.random.default_rng(0)
    return svelto.KernelMachine.from_arrays(
        kernel="rbf",
        gamma=1.0 / N_FEATURES,
        support_vectors=rng.normal(size=(n_sv, N_FEATURES)),
        dual_coef=rng.normal(size=n_sv),
        intercept=0.1,
        classes=[-1, 1],
    )


def one_row_latency(repeats: int, n_sv: int = 50) -> dict[str, Any]:
    """Microseconds of predict with one row, and without the row's arithmetic."""
    fast = svelto.accelerate(make_machine(n_sv), method="exact", n_jobs=1)
    rows = np.random.default_rng(1).normal(size=(16, N_FEATURES))
    one = rows[:1].copy()
    seconds = interleave({"one": timed(lambda: fast.predict(one)), "many": timed(lambda: fast.predict(rows))}, repeats)
    (first, one_row), (_, many_rows) = seconds["one"], seconds["many"]
    marginal = (many_rows - one_row) / (len(rows) - 1)
    return {
        "n_sv": n_sv,
        "n_features": N_FEATURES,
        "us_per_call": spread(1e6 * one_row),
        "us_first_call_after_a_pause": spread(1e6 * first),
        "us_per_call_without_arithmetic": spread(1e6 * (one_row - marginal)),
        "us_arithmetic_per_row": spread(1e6 * marginal),
    }


def extra_memory(n_rows: int = 1_000_000, n_sv: int = 500) -> dict[str, Any]:
    """Bytes beyond input and output while predicting, measured in a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), str(n_rows), str(n_sv)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _resident() -> tuple[int, int]:
    """Resident bytes now, and their peak."""
    status = Path("/proc/self/status")
    if not status.is_file():
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return peak, peak
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(lines["VmRSS"].split()[0]) * 1024, int(lines["VmHWM"].split()[0]) * 1024


def _forget_peak() -> None:
    # Where that is not allowed, memory that was freed before predict hides as much of what predict takes.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _measure(n_rows: int, n_sv: int) -> dict[str, Any]:
    fast = svelto.accelerate(make_machine(n_sv), method="exact")
    X = np.random.default_rng(1).normal(size=(n_rows, N_FEATURES))
    fast.predict(X[:1000])  # threads and lazily loaded code are there for good, whatever is predicted
    _forget_peak()
    before, _ = _resident()
    labels = fast.predict(X)
    _, peak = _resident()
    return {
        "n_rows": n_rows,
        "n_sv": n_sv,
        "threads": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "input_bytes": X.nbytes,
        "output_bytes": labels.nbytes,
        "extra_bytes": max(0, peak - before - labels.nbytes),
    }


if __name__ == "__main__":
    print(json.dumps(_measure(int(sys.argv[1]), int(sys.argv[2]))))
