"""How large are the wheels in a folder? Ends with an error where one is too large, or where there is none.

python tests/wheel_size.py dist
"""

from __future__ import annotations

import sys
from pathlib import Path

MOST_BYTES = 5_000_000


def check(folder: Path) -> list[str]:
    """One line for each wheel."""
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise SystemExit(f"{folder} has no wheel; expected at least one. Build it with `make wheel-test`.")
    for wheel in wheels:
        size = wheel.stat().st_size
        if size > MOST_BYTES:
            raise SystemExit(f"{wheel.name} has {size:,} bytes; expected at most {MOST_BYTES:,}.")
    return [f"{wheel.name}: {wheel.stat().st_size:,} bytes of at most {MOST_BYTES:,}" for wheel in wheels]


if __name__ == "__main__":
    print(*check(Path(sys.argv[1])), sep="\n")
