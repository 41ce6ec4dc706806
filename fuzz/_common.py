"""What all fuzz targets share: a file with given bytes, a limit on memory, and changes to text that keep its shape.

A target is a module with two functions: `check(data)`, which returns quietly or raises (that is a finding), and
`mutate(data, max_size, seed, blind)`, which makes a new input; `blind` is libFuzzer's own mutation of bytes.
"""

from __future__ import annotations

import atexit
import os
import random
import re
import resource
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
TARGETS = ("libsvm_model", "svelto_file", "svmlight_rows", "csv_rows")
# Where kept inputs are. Files of every kind are kept for the tests already.
SEEDS = {name: [FOLDER / "corpus" / name] for name in TARGETS}
SEEDS["svelto_file"].append(FOLDER.parent / "tests" / "files" / "v1")
# Address space beyond what the process has after its imports. Tables of a wide machine may take half of it
# (svelto.engines.table_width); no input of a few kilobytes deserves more.
MOST_MORE_BYTES = 2 << 30

Blind = Callable[[bytes, int], bytes]

_scratch = tempfile.TemporaryDirectory(prefix="svelto-fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
atexit.register(_scratch.cleanup)


class FindingError(AssertionError):
    """Something that must not happen, whatever the input."""


def written(data: bytes, name: str) -> Path:
    """A new file with these bytes; one of this name that is still mapped somewhere stays as it is."""
    path = Path(_scratch.name) / name
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    return path


def insist(condition: object, what: str) -> None:
    """Raise a finding unless the condition holds."""
    if not condition:
        raise FindingError(what)


def limit_memory() -> None:
    """From now on an allocation that is too large fails, as MemoryError, instead of succeeding on a large computer."""
    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        return  # its shadow is terabytes of address space; max_allocation_size_mb stands in (see README.md)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MOST_MORE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


# -- text ----------------------------------------------------------------------------------------------------------

NUMBERS = (
    *b"0 1 2 3 -1 -0 1.0 0.5 -2.5 1e-3 1e5 1e308 -1e308 1e309 1e-320 1e400 nan inf -inf infinity 1_0 0x10 1e".split(),
    *b"00 +1 .5 5. 127 128 255 256 65535 65536 2147483646 2147483647 2147483648 4294967296 9223372036854775807".split(),
    *b"9223372036854775808 18446744073709551616 3.0 1e16 \xd9\xa1 \xc2\xb2".split(),
    *(b"9" * 400, b"1" * 5000, b""),
)
_WORD = re.compile(rb"[^\s:,]+|[\s:,]")


def mutate_text(data: bytes, max_size: int, seed: int, blind: Blind, words: Sequence[bytes]) -> bytes:
    """Change words or lines, or leave it to libFuzzer; `words` are those that mean something in this format."""
    rng = random.Random(seed)
    if rng.random() < 0.4 or not data:
        return blind(data, max_size)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = _change_lines(data, rng) if rng.random() < 0.3 else _change_words(data, rng, words)
    return data[:max_size]


def _change_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True) or [b""]
    here, there = rng.randrange(len(lines)), rng.randrange(len(lines))
    what = rng.randrange(5)
    if what == 0:
        del lines[here]
    elif what == 1:
        lines.insert(here, lines[there])
    elif what == 2:
        lines[here], lines[there] = lines[there], lines[here]
    elif what == 3:
        lines[here] = lines[here].rstrip(b"\r\n") + rng.choice((b"", b"\r\n", b" \n", b"\n\n", b"\r", b"#\n"))
    else:
        lines[here : here + 1] = [lines[here]] * rng.choice((2, 5, 30))
    return b"".join(lines)


def _change_words(data: bytes, rng: random.Random, words: Sequence[bytes]) -> bytes:
    found = _WORD.findall(data) or [b""]
    here, there = rng.randrange(len(found)), rng.randrange(len(found))
    what = rng.randrange(9)
    if what in (0, 6, 7, 8):
        found[here] = rng.choice(NUMBERS)
    elif what == 1:
        found[here] = rng.choice((*words, b" ", b":", b",", b"\t", b"\n"))
    elif what == 2:
        found[here] = found[there]
    elif what == 3:
        del found[here : here + rng.choice((1, 1, 2, 3))]
    elif what == 4:
        found.insert(here, rng.choice((found[there], *words)))
    else:
        found[here] = _next_number(found[here], rng)
    return b"".join(found)


def _next_number(word: bytes, rng: random.Random) -> bytes:
    """A number close by: counts and indices that are wrong by one are the interesting ones."""
    try:
        return b"%d" % (int(word) + rng.choice((-2, -1, 1, 2)))
    except ValueError:
        return word + rng.choice((b"0", b"e", b".", b"-"))
