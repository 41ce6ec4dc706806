"""Fuzz target: rows as comma-separated numbers, given to `svelto predict` with models of three kinds."""

from __future__ import annotations

from _common import Blind, mutate_text
from _predict import check_rows

WORDS = (
    b"x,y",
    b"1,2\n",
    b"\r\n",
    b'"1"',
    b"#",
    b";",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\0",
    b"\x0c",
    b"\xe2\x80\xa8",
    b"1j",
)


def mutate(data: bytes, max_size: int, seed: int, blind: Blind) -> bytes:
    """Change some words of a table."""
    return mutate_text(data, max_size, seed, blind, WORDS)


def check(data: bytes) -> None:
    """Predict with every model."""
    check_rows(data, "rows.csv")
