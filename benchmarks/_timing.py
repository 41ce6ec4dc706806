"""Interleaved timing; it lives in the package, for `svelto bench --suite`."""

from svelto.reproduce._measure import wait_until_quiet
from svelto.suite.timing import (
    Measure,
    batch_call,
    fastest,
    interleave,
    spread,
    thread_count,
    timed,
)

__all__ = [
    "Measure",
    "batch_call",
    "fastest",
    "interleave",
    "spread",
    "thread_count",
    "timed",
    "wait_until_quiet",
]
