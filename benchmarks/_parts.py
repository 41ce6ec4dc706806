"""Benchmarks made of parts: each measures line by line, prints as it goes, and is a table of one page."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

from _tables import table

# Title, what gives the lines, names of the columns.
Parts = dict[str, tuple[str, Callable[[], Iterator[list[str]]], list[str]]]


def parser_of(doc: str, parts: Parts) -> argparse.ArgumentParser:
    """Read --only and --markdown; a script adds what else it has."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(parts), help="only this part; may be repeated")
    parser.add_argument("--markdown", type=Path, help="write the tables to this page")
    return parser


def command_of(script: str, given: argparse.Namespace) -> str:
    """The command that a page was written by."""
    return f"python benchmarks/{script}" + "".join(f" --only {part}" for part in given.only or ())


def measured(parts: Parts, given: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Name and section of every part that is asked for."""
    for name in given.only or parts:
        title, measure, columns = parts[name]
        lines = []
        for line in measure():
            print(" | ".join(line), flush=True)
            lines.append(line)
        yield name, f"## {title}\n\n{measure.__doc__}\n\n" + table(columns, lines)


def write_page(sections: list[str], given: argparse.Namespace) -> None:
    """Write the page, where one is wanted."""
    if given.markdown is not None:
        given.markdown.write_text("\n\n".join(sections) + "\n")
