"""What `svelto predict` does with a file of rows: an answer for each row, or an error that names the file.

Models are opened once, and most inputs take the way of the command from there on. Every sixteenth takes the whole
command, results written and counted, which is some twenty times slower.
"""

from __future__ import annotations

import contextlib
import io
import json
import warnings
import zlib
from pathlib import Path

import svelto
from _common import FOLDER, FindingError, insist, written
from svelto.cli import predict_file
from svelto.cli_saved import open_saved, saved_answers, saved_rows
from svelto.model_rows import rows_for

WHOLE_COMMAND = 16
# Two classes, a precomputed kernel (whose rows are read in another way), and a svelto file.
MODELS = (
    FOLDER / "corpus" / "libsvm_model" / "two_classes",
    FOLDER / "corpus" / "libsvm_model" / "precomputed",
    FOLDER.parent / "tests" / "files" / "v1" / "regression.svelto",
)
MACHINES = [svelto.KernelMachine.from_libsvm(model) for model in MODELS[:2]]
FAST = [svelto.accelerate(machine, method="exact", n_jobs=1) for machine in MACHINES]
SAVED = open_saved(MODELS[2], 1)


def check_rows(data: bytes, name: str) -> None:
    """Predict with every model; where that is refused, the reason must be about the file of rows."""
    rows = written(data, name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a command that answers has nothing to warn of
        _predict(data, rows)


def _predict(data: bytes, rows: Path) -> None:
    if zlib.crc32(data) % WHOLE_COMMAND == 0:
        for model in MODELS:
            with _refused(rows):
                _whole_command(model, rows)
        return
    for machine, fast in zip(MACHINES, FAST, strict=True):
        with _refused(rows):
            wide, X, _ = rows_for(machine, rows, None)
            if wide is not machine:
                fast = svelto.accelerate(wide, method="exact", n_jobs=1)  # noqa: PLW2901
            insist(X.shape[0] == 0 or len(fast.predict(X)) == X.shape[0], "not one answer for each row")
    with _refused(rows):
        X, _ = saved_rows(SAVED, rows, None)
        insist(len(saved_answers(SAVED, X, False)[0]) == X.shape[0], "not one answer for each row")


@contextlib.contextmanager
def _refused(rows: Path):
    try:
        yield
    except ValueError as error:
        insist(str(rows) in str(error), f"the message does not name the file: {error}")


def _whole_command(model: Path, rows: Path) -> None:
    answers, out = written(b"", "answers.csv"), io.StringIO()
    with contextlib.redirect_stdout(out):
        predict_file(model, rows, answers, quiet=True, as_json=True, n_jobs=1)
    n_rows, n_lines = json.loads(out.getvalue(), parse_constant=_no_json)["rows"], answers.read_bytes().count(b"\n")
    insist(n_lines == n_rows, f"{n_lines} answers for {n_rows} rows")


def _no_json(name: str) -> None:
    raise FindingError(f"{name} is no JSON")
