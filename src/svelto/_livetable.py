"""A table that grows while work goes on: on a terminal line by line, elsewhere all at once at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

# Characters of a line where nobody knows how wide the output is.
FILE_WIDTH: Final = 160


@contextmanager
def live_table(title: str, columns: Sequence[str]) -> Iterator[Callable[[Sequence[str]], None]]:
    """Give a function that adds a row; needs rich."""
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        last = i == len(columns) - 1
        table.add_column(column, justify="left" if i < 2 or last else "right", overflow="fold", no_wrap=not last)

    def add(cells: Sequence[str]) -> None:
        table.add_row(*cells)

    if sys.stdout.isatty():
        console = Console()
        with Live(table, console=console, refresh_per_second=4):
            yield add
        return
    yield add
    Console(width=FILE_WIDTH).print(table)
