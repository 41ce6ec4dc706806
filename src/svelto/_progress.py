"""Progress of long work: one line that changes on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def steps(title: str) -> Iterator[Callable[[str], None]]:
    """Give a function that says what is being done; quiet where stderr is no terminal or rich is not installed."""
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    try:
        from rich.console import Console
    except ImportError:
        yield lambda step: None
        return
    with Console(stderr=True).status(title) as status:
        yield lambda step: status.update(f"{title}: {step}")
