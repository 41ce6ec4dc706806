"""One predictor, asked by many: threads of a process, forked processes, processes that open the same file.

Threads: the same calls by one thread and by several, in turns; labels must be the same. Processes: each times its own
calls while the others do the same, and then, while all are still there, reads what the system says of its memory.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import svelto
from _latency import WARM_UP, Percentiles, no_collection, percentiles, time_calls

N_THREADS, N_PROCESSES = 8, 4
MEMORY = ("Rss", "Pss", "Private")
# A process that hangs must not hang the benchmark.
PATIENCE = 120.0


# -- threads ---------------------------------------------------------------------------------------------------------


def answered_by(predict: Callable[[Any], Any], batches: Sequence[Any], n_threads: int) -> np.ndarray:
    """Labels of all batches, in their order; thread t answers the batches t, t + n_threads, ..."""

    def share(thread: int) -> list[Any]:
        return [predict(batch) for batch in batches[thread::n_threads]]

    if n_threads == 1:
        return np.concatenate(share(0))
    with ThreadPoolExecutor(n_threads) as pool:
        parts = list(pool.map(share, range(n_threads)))
    found: list[Any] = [None] * len(batches)
    for thread, part in enumerate(parts):
        found[thread::n_threads] = part
    return np.concatenate(found)


def compare_threads(predict: Callable[[Any], Any], batches: Sequence[Any], repeats: int) -> dict[str, Any]:
    """Whether several threads give one thread's labels, and how many times as many rows a second."""
    expected = answered_by(predict, batches, 1)
    same = bool((answered_by(predict, batches, N_THREADS) == expected).all())
    gains, microseconds = [], []
    with no_collection():
        for turn in range(repeats):
            seconds = {}
            for n_threads in (1, N_THREADS) if turn % 2 else (N_THREADS, 1):
                begin = perf_counter()
                answered_by(predict, batches, n_threads)
                seconds[n_threads] = perf_counter() - begin
            gains.append(seconds[1] / seconds[N_THREADS])
            microseconds.append(1e6 * seconds[1] / len(batches))
    return {"same": same, "gain": float(np.median(gains)), "us_call": float(np.median(microseconds))}


def in_batches(X: np.ndarray, size: int, n_batches: int) -> list[np.ndarray]:
    """So many batches of rows, taken in order, again and again."""
    starts = range(0, len(X) - size + 1, size)
    return [X[starts[i % len(starts)] :][:size] for i in range(n_batches)]


# -- processes -------------------------------------------------------------------------------------------------------


def memory_of_this_process() -> dict[str, int]:
    """Bytes in memory: all, those of shared pages divided among their users, and those that nobody shares."""
    found: dict[str, int] = {}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        found[name] = 1024 * int(rest.split()[0])
    private = found["Private_Clean"] + found["Private_Dirty"]
    return {"Rss": found["Rss"], "Pss": found["Pss"], "Private": private}


def memory_of_file(path: Path) -> dict[str, int]:
    """The same for the pages of one mapped file."""
    found, inside = dict.fromkeys(MEMORY, 0), False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(":")
        if "-" in line.split(" ")[0]:  # a line that begins a mapping
            inside = line.endswith(str(path))
        elif inside and name.split("_")[0] in MEMORY and name != "Private_Hugetlb":
            found[name.split("_")[0]] += 1024 * int(rest.split()[0])
    return found


def _work(fast: Any, path: Path, X: np.ndarray, n_calls: int, barrier: Any, answers: Any) -> None:
    fast = svelto.load(path, n_jobs=1) if fast is None else fast
    rows = [X[i : i + 1] for i in range(len(X))]
    time_calls(fast.predict, rows, 0, WARM_UP)
    barrier.wait(PATIENCE)
    with no_collection():
        taken = time_calls(fast.predict, rows, 0, n_calls)
    barrier.wait(PATIENCE)  # all have asked, and all are still there
    found = (percentiles(taken), memory_of_this_process(), memory_of_file(path))
    barrier.wait(PATIENCE)
    answers.put(found)


def time_processes(way: str, path: Path, X: np.ndarray, n_calls: int, n_processes: int) -> list[Any]:
    """Percentiles, memory and the file's memory of each process.

    Parameters
    ----------
    way : {"fork", "spawn"}
        "fork": opened here, before the processes are made. "spawn": each opens the file.
    """
    context = multiprocessing.get_context(way)
    fast = svelto.load(path, n_jobs=1) if way == "fork" else None
    barrier, answers = context.Barrier(n_processes), context.SimpleQueue()
    arguments = (fast, path, X, n_calls, barrier, answers)
    processes = [context.Process(target=_work, args=arguments, daemon=True) for _ in range(n_processes)]
    # A collection would write to every object, and so copy its page into each forked process.
    gc.collect()
    gc.freeze()
    for process in processes:
        process.start()
    gc.unfreeze()
    for process in processes:
        process.join(PATIENCE)
        if process.exitcode != 0:
            raise RuntimeError(f"A process ({way}) ended with {process.exitcode}; expected 0. Its message is above.")
    return [answers.get() for _ in processes]


def process_line(way: str, found: list[Any]) -> dict[str, Any]:
    """The slowest process, and the mean memory of one."""
    times: list[Percentiles] = [each[0] for each in found]
    whole, file = ({name: float(np.mean([each[at][name] for each in found])) for name in MEMORY} for at in (1, 2))
    return {
        "way": way,
        "processes": len(found),
        "p50": max(time.p50 for time in times),
        "p99": max(time.p99 for time in times),
        "whole": whole,
        "file": file,
    }
