"""Interleaved timing: every side in turn, again and again, so that a slow moment of the machine hits all of them.

A *measure* does the work and returns two times of one call: that of the first call after a pause, and the mean of the
calls that follow at once. `interleave` takes the measures of all sides once in each repeat, in an order drawn anew;
ratios are formed within a repeat.

Before each measure the process must be quiet: thread pools go on spinning after their last call (seen here:
onnxruntime for 36 ms, OpenBLAS for more than 100 ms), and on a small machine the next side would pay for that. The
pause has a price of its own, since threads must be started or woken; hence the two times.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from svelto.reproduce._measure import wait_until_quiet

Measure: TypeAlias = Callable[[], tuple[float, float]]

# The calls after the first last at least this long together: the clock's grain and cold caches stop to matter.
LEAST_SECONDS = 0.02
# A call this long is its own warm-up: it is made once, and stands for both times.
LONG_CALL = 0.1
# Small batches take turns on this many pieces of the test rows: the same row again and again would be a special case.
PIECES = 64


def timed(call: Callable[[], object], least_seconds: float = LEAST_SECONDS) -> Measure:
    """Measure of a call. Calls it twice for warming up and for choosing the number of loops."""
    call()
    started = perf_counter()
    call()
    once = perf_counter() - started
    loops = math.ceil(least_seconds / max(once, 1e-7))

    def measure() -> tuple[float, float]:
        started = perf_counter()
        call()
        first = perf_counter() - started
        if once > LONG_CALL:
            return first, first
        started = perf_counter()
        for _ in range(loops):
            call()
        return first, (perf_counter() - started) / loops

    return measure


def batch_call(predict: Callable[[Any], object], rows: Any, batch: int) -> Callable[[], object]:
    """Make a call that predicts one batch; batches smaller than `rows` take turns."""
    n_rows = rows.shape[0]
    if batch >= n_rows:
        return lambda: predict(rows)
    pieces = [rows[start : start + batch] for start in range(0, n_rows - batch + 1, batch)[:PIECES]]
    turns = itertools.cycle(pieces)
    return lambda: predict(next(turns))


def interleave(measures: Mapping[str, Measure], repeats: int, seed: int = 0) -> dict[str, NDArray[np.float64]]:
    """Seconds of every measure in every repeat, shape (2, repeats): first call after a pause, calls that follow."""
    rng = np.random.default_rng(seed)
    names = list(measures)
    seconds = {name: np.empty((2, repeats)) for name in names}
    for repeat in range(repeats):
        for position in rng.permutation(len(names)):
            name = names[position]
            wait_until_quiet()
            seconds[name][:, repeat] = measures[name]()
    return seconds


def fastest(candidates: Iterable[Any], run: Callable[[Any], object], tries: int = 3) -> Any:
    """Return the candidate whose run is the shortest, best of several tries taken in turns after one for warming up."""
    candidates = list(candidates)
    best = dict.fromkeys(candidates, math.inf)
    for attempt in range(tries + 1):
        for candidate in candidates:
            started = perf_counter()
            run(candidate)
            if attempt:
                best[candidate] = min(best[candidate], perf_counter() - started)
    return min(candidates, key=best.__getitem__)


def spread(values: NDArray[np.float64]) -> dict[str, float]:
    """Median and [10 %, 90 %] of repeated values."""
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
    return {"median": float(middle), "q10": float(low), "q90": float(high)}


@contextmanager
def thread_count(n_threads: int, blas_threads: int = 1) -> Iterator[None]:
    """Give every side `n_threads`: OpenMP and oneDAL here; svelto, NumPy's blocks and onnxruntime are told when built.

    BLAS has one thread, for sides that call it from `n_threads` threads of their own, unless more are given.
    """
    daal = sys.modules.get("daal4py")
    before = daal.num_threads() if daal else None
    with threadpool_limits(n_threads, "openmp"), threadpool_limits(blas_threads, "blas"):
        if daal:
            daal.daalinit(n_threads)
        try:
            yield
        finally:
            if daal:
                daal.daalinit(before)
