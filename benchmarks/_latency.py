"""Times of single calls: every call by itself, contenders in turns, the collector of garbage off.

A mean hides what a service waits for. So each call has a time of its own, and what is told of them are percentiles. A
clock reads its own time too: the contender `clock` calls a function that does nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

# Contenders take turns this often.
# Calls that show a p99.
LEAST_CALLS = 1_000
ROUNDS = 20
# Calls before the first that counts, in every round: caches are another contender's when a turn begins.
WARM_UP = 50


class Percentiles(NamedTuple):
    """Microseconds of a call."""

    p50: float
    p99: float
    p999: float
    calls: int


def percentiles(nanoseconds: Any) -> Percentiles:
    """50 %, 99 % and 99.9 % of the calls took at most so long: times that were measured, none in between."""
    taken = np.asarray(nanoseconds)
    if not len(taken):
        raise ValueError("There are no times to take percentiles of; expected those of at least one call.")
    found = np.quantile(taken, [0.5, 0.99, 0.999], method="inverted_cdf") / 1e3
    return Percentiles(*(float(value) for value in found), len(taken))


@contextmanager
def no_collection() -> Iterator[None]:
    """Collect garbage before, not meanwhile."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def single_rows(X: Any) -> list[Any]:
    """Every row as a matrix of its own, in the form of the rows."""
    if sparse.issparse(X):
        return [X[i] for i in range(X.shape[0])]
    return [X[i : i + 1] for i in range(len(X))]


def time_calls(predict: Callable[[Any], object], rows: Sequence[Any], first: int, n_calls: int) -> list[int]:
    """Nanoseconds of each call; rows are taken in their order, again and again, from the one numbered `first` on."""
    taken = []
    n_rows, clock = len(rows), perf_counter_ns
    for i in range(first, first + n_calls):
        row = rows[i % n_rows]
        begin = clock()
        predict(row)
        taken.append(clock() - begin)
    return taken


@dataclass
class Contender:
    """Who is asked, about rows in the form that it reads; `run(first, n)` gives the nanoseconds of n calls."""

    name: str
    run: Callable[[int, int], Sequence[int]]
    note: str = ""
    n_calls: int = 0
    taken: list[Sequence[int]] = field(default_factory=list)


def python_contender(name: str, predict: Callable[[Any], object], rows: Sequence[Any], note: str = "") -> Contender:
    """A function of Python, called in this process."""

    def run(first: int, n_calls: int) -> Sequence[int]:
        time_calls(predict, rows, first - WARM_UP, WARM_UP)  # other rows than those that count
        return time_calls(predict, rows, first, n_calls)

    return Contender(name, run, note)


def affordable_calls(contender: Contender, n_calls: int, most_seconds: float) -> int:
    """As many calls as fit into the time, but no fewer than a p99 needs, and at most all of them."""
    seconds = float(np.median(contender.run(0, ROUNDS))) / 1e9
    return min(n_calls, max(LEAST_CALLS, int(most_seconds / max(seconds, 1e-9))))


def measure(contenders: Sequence[Contender], n_calls: int, most_seconds: float, seed: int = 0) -> None:
    """Fill in the times of all contenders, in turns, in an order drawn anew for each round."""
    rng = np.random.default_rng(seed)
    with no_collection():
        for contender in contenders:
            contender.n_calls = affordable_calls(contender, n_calls, most_seconds) // ROUNDS * ROUNDS
        for turn in range(ROUNDS):
            for place in rng.permutation(len(contenders)):
                contender = contenders[place]
                n = contender.n_calls // ROUNDS
                contender.taken.append(contender.run(turn * n, n))


def summary(contender: Contender) -> Percentiles:
    """Percentiles of all its calls."""
    return percentiles(np.concatenate([np.asarray(taken) for taken in contender.taken]))
