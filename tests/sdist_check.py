"""The source archive has everything that a build reads, byte for byte. Run by `make wheel-test`; needs no package."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("native", "src")
FILES = ("CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE")
NOT_SOURCE = (".pyc", ".so", ".pyd")


def main(archive: str) -> None:
    """Compare the archive with the working tree."""
    wanted = {ROOT / name for name in FILES}
    for part in PARTS:
        wanted |= {path for path in (ROOT / part).rglob("*") if path.is_file() and path.suffix not in NOT_SOURCE}
    with tarfile.open(archive) as held:
        members = {member.name.partition("/")[2]: member for member in held if member.isfile()}
        for path in sorted(wanted):
            name = path.relative_to(ROOT).as_posix()
            if name not in members:
                raise SystemExit(f"{archive} lacks {name}.")
            stored = held.extractfile(members[name])
            assert stored is not None
            if stored.read() != path.read_bytes():
                raise SystemExit(f"{archive} has another {name} than the working tree.")
    print(f"{Path(archive).name}: {len(wanted)} files that a build reads are there, {len(members)} in all")


if __name__ == "__main__":
    main(*sys.argv[1:])
