"""What the machine could do: rates of its two building blocks, and the time a prediction would take at these rates.

    ideal = 2 n m d / sgemm + n m / exp   (+ 2 n m columns / sgemm for the coefficients of many classes)

sgemm: the best float32 matrix product of NumPy's BLAS among several shapes, at the same number of threads. exp:
svelto's own vectorised 2^x on arrays that fit the first-level cache, one thread, times the number of threads. Best
of many, measured in the same run. The sum assumes no overlap of the two and counts neither memory nor the rounding
bounds; with few features a fused loop can overlap them, so a share above 1 is possible.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np
from threadpoolctl import threadpool_limits

from _timing import wait_until_quiet
from svelto import KernelMachine, _core

SHAPES = ((1024, 1024, 1024), (2048, 2048, 512), (4096, 2048, 256), (512, 4096, 1024))
# Values and results of the longer array take 24 KB; the difference to the shorter one takes off the cost of the call.
SHORT, LONG = 1024, 3072
# Few calls between two looks at the clock: one undisturbed spell of some 20 microseconds is enough.
CALLS = 50


def rates(n_threads: int, level: str, seconds: float = 0.25) -> dict[str, float]:
    """Measure float32 operations a second of sgemm and exponentials a second."""
    return {"sgemm": _sgemm_rate(n_threads, seconds), "exp": n_threads * _exp_rate(level, seconds / 2)}


def ideal_seconds(machine: KernelMachine, n_rows: int, rate: dict[str, float]) -> float:
    """Time for predicting dense rows at the peak rates."""
    columns = machine.dual_coef.shape[0] if machine.n_classes > 2 else 0
    values = n_rows * machine.n_sv
    return 2.0 * values * (machine.n_features + columns) / rate["sgemm"] + values / rate["exp"]


def _sgemm_rate(n_threads: int, seconds: float) -> float:
    rng = np.random.default_rng(0)
    best = 0.0
    with threadpool_limits(n_threads, "blas"):
        for n, m, k in SHAPES:
            A, B = rng.random((n, k), dtype=np.float32), rng.random((k, m), dtype=np.float32)
            out = np.empty((n, m), np.float32)
            np.matmul(A, B, out=out)
            stop = perf_counter() + seconds / len(SHAPES)
            while (started := perf_counter()) < stop:
                np.matmul(A, B, out=out)
                best = max(best, 2.0 * n * m * k / (perf_counter() - started))
    wait_until_quiet()
    return best


def _exp_rate(level: str, seconds: float) -> float:
    rng = np.random.default_rng(0)
    values = rng.uniform(-20.0, 0.0, LONG).astype(np.float32)
    out = np.empty_like(values)
    sides = [(length, values[:length], out[:length]) for length in (SHORT, LONG)]
    best = {SHORT: np.inf, LONG: np.inf}
    stop = perf_counter() + seconds
    while perf_counter() < stop:
        for length, part, to in sides:  # in turns: a slow spell on one length alone would spoil the difference
            started = perf_counter()
            for _ in range(CALLS):
                _core.exp2_f32(level, part, to)
            best[length] = min(best[length], (perf_counter() - started) / CALLS)
    difference = best[LONG] - best[SHORT]
    return (LONG - SHORT) / difference if difference > 0 else LONG / best[LONG]
