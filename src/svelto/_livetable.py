"""A table that grows while work goes on: on a terminal line by line, elsewhere all at once at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

# Characters of a line where nobody knows how wide the output is.
FILE_WIDTH: Final = 160


@contextmanager
def live_table(title: str, columns: Sequence[str]) -> Iterator[Callable[[Sequence[str]], None]]:
    """Give a function that adds a row; needs rich."""
    from rich.console import Console
    from rich.live import Live

    table = _empty(title, columns)

    def add(cells: Sequence[str]) -> None:
        table.add_row(*cells)

    if sys.stdout.isatty():
        console = Console()
        with Live(table, console=console, refresh_per_second=4):
            yield add
        return
    yield add
    Console(width=FILE_WIDTH).print(table)


@contextmanager
def told_table(
    title: str, columns: Sequence[str]
) -> Iterator[tuple[Callable[[Sequence[str]], None], Callable[[str], None]]]:
    """The same for work that is timed: also a function that says below the table what is being done.

    The table is drawn when something is told and at no other time, since drawing takes time itself. Where stdout is no
    terminal, what is being done goes to stderr.
    """
    from rich.console import Console
    from rich.live import Live

    table = _empty(title, columns)
    if sys.stdout.isatty():
        with Live(table, console=Console(), auto_refresh=False) as live:

            def add(cells: Sequence[str]) -> None:
                table.add_row(*cells)
                live.refresh()

            def tell(step: str) -> None:
                table.caption = step
                live.refresh()

            yield add, tell
            table.caption = None
        return
    yield lambda cells: table.add_row(*cells), lambda step: print(step, file=sys.stderr, flush=True)
    Console(width=FILE_WIDTH).print(table)


def _empty(title: str, columns: Sequence[str]) -> Any:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        last = i == len(columns) - 1
        table.add_column(column, justify="left" if i < 2 or last else "right", overflow="fold", no_wrap=not last)
    return table
