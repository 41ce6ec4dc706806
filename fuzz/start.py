"""Fuzz one target under Atheris: python fuzz/start.py TARGET [libFuzzer's options and corpus folders].

Only svelto is instrumented: what NumPy does with bad input is not ours to explore.
"""

from __future__ import annotations

import importlib
import sys

import atheris

from _common import TARGETS, limit_memory
from _plain_imports import import_plainly


def main() -> None:
    """Run until libFuzzer ends the process."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in TARGETS:
        sys.exit(f"The target is {name!r}; expected one of {', '.join(TARGETS)}.")
    import_plainly()
    with atheris.instrument_imports(include=["svelto"]):
        target = importlib.import_module(name)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        return target.mutate(data, max_size, seed, atheris.Mutate)

    options = {"custom_mutator": mutate}
    if hasattr(target, "cross"):
        options["custom_crossover"] = target.cross
    program = f"{sys.executable} {__file__} {name}"  # -merge=1 starts it again, by the shell
    atheris.Setup([program, *sys.argv[2:]], target.check, **options)
    limit_memory()
    atheris.Fuzz()


if __name__ == "__main__":
    main()
