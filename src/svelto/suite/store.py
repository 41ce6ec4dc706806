"""Results on disk: one JSON file for each machine, so that an interrupted run goes on where it was.

A record counts as long as code, packages, settings, data files and computer are those it was measured with. The code's
stamp leaves out what only reads arguments or writes pages: a better sentence on a page asks for no new measurement.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any, Final

import sklearn

import svelto
from svelto import _core
from svelto.reproduce._common import _version, environment, write_text
from svelto.suite.measure import Record

PACKAGES: Final = ("numpy", "scipy", "scikit-learn", "scikit-learn-intelex", "onnx", "onnxruntime", "lightgbm")
# What must be the same for times to be comparable.
SAME_COMPUTER: Final = ("cpu", "cores", "instruction_level", "versions")
NOT_MEASURED: Final = (
    *("bench.py", "bench_command.py", "cli.py", "cli_accelerate.py", "cli_bench.py", "cli_export.py", "cli_saved.py"),
    *("accelerate_command.py", "export_command.py", "demo.py", "run_script.py"),
    *("_livetable.py", "report_page.py", "report_pictures.py"),
    *("suite/cli.py", "suite/figures.py", "suite/html_page.py", "suite/markdown.py", "suite/picture.py"),
    *("suite/readme.py", "suite/run.py", "suite/store.py", "suite/summary.py"),
)
NOT_MEASURED_FOLDERS: Final = ("export", "reproduce", "training")


@cache
def code_stamp() -> str:
    """Hash of the library that is measured: its Python files and native code."""
    package = Path(svelto.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        name = file.relative_to(package)
        if name.as_posix() not in NOT_MEASURED and name.parts[0] not in NOT_MEASURED_FOLDERS:
            digest.update(file.read_bytes())
    digest.update(Path(_core.__file__).read_bytes())
    return digest.hexdigest()[:12]


def surroundings() -> Record:
    """Processor, versions, commit: what a reader needs to judge the times."""
    facts = environment()
    return {**facts, "versions": {**facts["versions"], **{name: _version(name) for name in PACKAGES}}}


class Store:
    """The folder of results.

    Parameters
    ----------
    folder : Path
        Created when something is written; ``models`` in it holds what was trained.
    quick : bool
        Whether records are those of a trial run, which have names of their own.
    """

    def __init__(self, folder: Path, *, quick: bool) -> None:
        self.models = folder / "models"
        self.folder = folder / ("suite-quick" if quick else "suite")
        self.built = self.folder / "built"

    def path(self, name: str, kind: str) -> Path:
        """File of a machine."""
        return self.folder / f"{name}-{kind}.json"

    def key(self, case_key: str) -> str:
        """Name of what this code builds for a case, whose own key holds data and parameters."""
        return f"{case_key}-sklearn{sklearn.__version__}-{code_stamp()}"

    def read(self, name: str, kind: str) -> Record | None:
        """What is there, whoever measured it."""
        path = self.path(name, kind)
        if not path.is_file():
            return None
        try:
            record: Record = json.loads(path.read_text(encoding="utf-8"))
            complete = all(part in record for part in ("code", "setting", "lines", "gaps", "environment", "rounds"))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}: not a file of results ({error}). Remove it; it is measured again.") from None
        if not complete:
            raise ValueError(f"{path}: not a file of results. Remove it; it is measured again.")
        return record

    def is_current(
        self, record: Record | None, setting: Any, rounds: int, facts: Record, data: dict[str, list[int]]
    ) -> bool:
        """Whether a record was measured by this code, here, on this data, with these settings, in no fewer rounds."""
        return (
            record is not None
            and record["code"] == code_stamp()
            and record["setting"] == list(setting)
            and record["rounds"] >= rounds
            and record.get("data") == data
            and all(record["environment"].get(fact) == facts[fact] for fact in SAME_COMPUTER)
        )

    def write(self, record: Record) -> None:
        """Keep a record, and remove what was built for it by other code."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name, kind = record["dataset"], record["kind"]
        write_text(self.path(name, kind), json.dumps(record, indent=1, allow_nan=False) + "\n")
        for file in self.built.glob(f"{record['key']}-*.joblib"):
            if not file.name.startswith(self.key(record["key"])):
                file.unlink(missing_ok=True)
