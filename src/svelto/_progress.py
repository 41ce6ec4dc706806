"""Progress of long work: one line that changes on a terminal, or a bar where it is known how much there is to do.

Nothing is shown where stderr is no terminal, or where rich is not installed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Tell(Protocol):
    """Told what is being done, and how much of all work is behind; may raise to stop the work."""

    def __call__(self, step: str, share: float = ...) -> None: ...


@contextmanager
def steps(title: str) -> Iterator[Callable[[str], None]]:
    """Give a function that says what is being done."""
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


@contextmanager
def bar(title: str) -> Iterator[Tell]:
    """Give a function that moves a bar, with the time left beside it; the bar is gone when the work is done."""

    def quiet(step: str, share: float = 0.0) -> None:
        pass

    if not sys.stderr.isatty():
        yield quiet
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
    except ImportError:
        yield quiet
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[step]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=1.0, step="")
        yield lambda step, share=0.0: progress.update(task, completed=share, step=step)


def span(tell: Tell, first: float, last: float) -> Tell:
    """The part from `first` to `last` of all work, told as work of its own."""
    return lambda step, share=0.0: tell(step, first + (last - first) * share)
