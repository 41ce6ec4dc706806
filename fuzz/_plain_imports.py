"""svelto without the import hook of an editable installation, which hides its code from Atheris.

Under the hook modules are found, but what they are compiled to is not what Atheris has instrumented: the fuzzer sees no
edge, believes that no input is interesting, and tries single bytes for as long as it is let.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path


class _NativeCore:
    """Finds svelto._core, which an editable installation keeps apart from the source."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_file_location(name, self.path) if name == "svelto._core" else None


def import_plainly() -> None:
    """Let svelto be found by Python's own finder; nothing changes where it is already."""
    spec = importlib.util.find_spec("svelto")
    if spec is None or spec.origin is None:
        sys.exit("svelto is not installed for this Python.")
    if isinstance(spec.loader, importlib.machinery.SourceFileLoader):
        return
    ends = tuple(importlib.machinery.EXTENSION_SUFFIXES)
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    core = [
        path for folder in folders if folder.is_dir() for path in folder.glob("_core.*") if path.name.endswith(ends)
    ]
    if not core:
        sys.exit(f"There is no svelto._core in {', '.join(map(str, folders))}. Install svelto again.")
    sys.meta_path[:] = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
    sys.meta_path.insert(0, _NativeCore(core[0]))
    sys.path.insert(0, str(Path(spec.origin).parents[1]))
