"""Timing: before a side has its turn, threads that others left spinning have stopped."""

from __future__ import annotations

import hashlib
import threading
from time import perf_counter

from svelto.reproduce._measure import wait_until_quiet


def test_waits_for_threads_that_go_on_spinning():
    """Like the pools of a BLAS, which keep a core busy for a tenth of a second behind their last call."""
    block = bytes(1 << 20)
    end = perf_counter() + 0.15

    def spin():
        while perf_counter() < end:
            hashlib.sha256(block)  # lets the interpreter go

    thread = threading.Thread(target=spin)
    thread.start()
    wait_until_quiet()
    assert perf_counter() >= end
    thread.join()
