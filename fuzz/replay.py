"""Give inputs to a fuzz target again, without Atheris: python fuzz/replay.py TARGET [--mutations N] [files or folders].

Without files, all kept inputs of the target. With mutations, each input is changed that many times as the fuzzer would,
without its knowledge of which code is reached: this is how the core built with sanitizers is fuzzed (README.md). Ends
with 1 if there is a finding, and goes through all inputs first; inputs made here that are findings go to build/fuzz.
"""

from __future__ import annotations

import argparse
import importlib
import random
import signal
import sys
import traceback
import zlib
from collections.abc import Iterator
from pathlib import Path

from _common import FOLDER, SEEDS, TARGETS, limit_memory

MOST_SECONDS = 20
MOST_BYTES = 20_000


def inputs(places: list[Path]) -> Iterator[Path]:
    """Files, and the files of folders."""
    for place in places:
        yield from sorted(path for path in place.iterdir() if path.is_file()) if place.is_dir() else [place]


def blind(data: bytes, max_size: int) -> bytes:
    """Some bytes changed, put in or taken out; the same change for the same bytes."""
    rng, made = random.Random(zlib.crc32(data)), bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        place = rng.randrange(len(made) + 1)
        what = rng.randrange(3)
        made[place : place + (what != 0)] = rng.randbytes(0 if what == 1 else rng.choice((1, 1, 4)))
    return bytes(made[:max_size])


def replay(name: str, places: list[Path], mutations: int = 0) -> tuple[int, list[Path]]:
    """How many inputs there were, and those that are findings; their tracebacks are printed."""
    target = importlib.import_module(name)
    count, found = 0, []
    for path in inputs(places):
        data = path.read_bytes()
        for number in range(1 + mutations):
            tried = data if number == 0 else target.mutate(data, MOST_BYTES, number, blind)
            count += 1
            if number:
                _kept(name, tried, "last")  # should it end the process, it can still be found
            if not _passes(target, tried):
                found.append(path if number == 0 else _kept(name, tried, f"{zlib.crc32(tried):08x}"))
                print(f"{found[-1]}: a finding", file=sys.stderr)
    return count, found


def _passes(target: object, data: bytes) -> bool:
    signal.alarm(MOST_SECONDS)  # a hang is told where it was
    try:
        target.check(data)
    except Exception:  # whatever it is, it is a finding
        traceback.print_exc()
        return False
    finally:
        signal.alarm(0)
    return True


def _kept(name: str, data: bytes, which: str) -> Path:
    path = FOLDER.parent / "build" / "fuzz" / f"{name}-replay-{which}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def main() -> None:
    """Replay what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("places", nargs="*", type=Path, help="files and folders; default: the kept inputs")
    parser.add_argument("--mutations", type=int, default=0, help="changed inputs to try for each one")
    options = parser.parse_intermixed_args()

    def hang(*_: object) -> None:
        raise TimeoutError(f"no answer within {MOST_SECONDS} s")

    signal.signal(signal.SIGALRM, hang)
    importlib.import_module(options.target)
    limit_memory()
    count, found = replay(options.target, options.places or SEEDS[options.target], options.mutations)
    print(f"{options.target}: {count} inputs, {len(found)} findings")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
