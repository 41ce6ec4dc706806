"""Fuzz target: rows in LIBSVM's text format, given to `svelto predict` with models of three kinds."""

from __future__ import annotations

from _common import Blind, mutate_text
from _predict import check_rows

WORDS = (b"#", b"qid:1", b"1:0.5", b"2:-1", b"0:1", b"+1", b"-1", b"1,2", b"\n1 1:1\n", b"\0", b"\xef\xbb\xbf")


def mutate(data: bytes, max_size: int, seed: int, blind: Blind) -> bytes:
    """Change some words of a file of rows."""
    return mutate_text(data, max_size, seed, blind, WORDS)


def check(data: bytes) -> None:
    """Predict with every model."""
    check_rows(data, "rows.txt")
