"""Write tests/files/v1: one file of every kind, with answers to compare. Run once for a version of the format:

python tests/make_file_corpus.py

Files of an older version are never written again: later versions of svelto must go on reading them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from file_cases import CASES, answers
from svelto.io.file import VERSION

FOLDER = Path(__file__).parent / "files" / f"v{VERSION}"
MOST_BYTES = 20_000


def main() -> None:
    """Write what is not there yet."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, make in CASES.items():
        path = FOLDER / f"{name}.svelto"
        if path.exists():
            continue
        model = make()
        model.save(path)
        size = path.stat().st_size
        if size > MOST_BYTES:
            path.unlink()
            print(f"{name}: {size} bytes, left out")
            continue
        # Labels and numbers as text or arrays, never as objects: reading them runs nothing.
        np.savez_compressed(FOLDER / f"{name}.npz", *answers(model))
        print(f"{name}: {size} bytes")


if __name__ == "__main__":
    main()
