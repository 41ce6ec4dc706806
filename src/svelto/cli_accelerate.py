"""`svelto accelerate`: a model file and rows in, a svelto file and a report out."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any, Final

import svelto
from svelto._progress import steps
from svelto.cli_saved import open_machine
from svelto.model_rows import rows_for
from svelto.report import Report

ACCELERATE_HELP: Final = """Make a fast predictor of a trained machine and write it to FAST.

MODEL is a LIBSVM model file or a svelto file. DATA holds rows like those to come; labels are not looked at. FAST is a
svelto file for `svelto predict` and `svelto.load`; it appears when it is complete. What was built, what it promises and
what shows it is printed; --json prints the same as one JSON object.
"""


def accelerate_file(
    model: Path,
    data: Path,
    output: Path,
    *,
    file_format: str | None,
    as_json: bool,
    seed: int,
    options: dict[str, Any],
    **promise: Any,
) -> None:
    """Read, build, write, print; see `svelto accelerate --help`."""
    _check_target(output)
    with steps("reading"):
        machine, X, _ = rows_for(open_machine(model), data, file_format)
    given = {name: value for name, value in options.items() if value is not None}
    fast = svelto.accelerate(machine, X, random_state=seed, **promise, **given)
    fast.save(output)
    size = output.stat().st_size
    if as_json:
        facts = {"file": str(output), "bytes": size, "rows": int(X.shape[0]), "report": report_facts(fast.report)}
        print(json.dumps(facts, allow_nan=False))
        return
    print(fast.report)
    print(f"\n{output}: {size:,} bytes")


def _check_target(output: Path) -> None:
    """Say before the work, not after it, that there is nowhere to write."""
    if output.is_dir():
        raise IsADirectoryError(f"{output} is a folder; expected the name of a file to write.")
    if not output.resolve().parent.is_dir():
        raise FileNotFoundError(
            f"The folder {output.resolve().parent} does not exist. Create it, or write somewhere else."
        )


def report_facts(report: Report) -> dict[str, Any]:
    """A report as JSON knows it; null stands for what is no number."""
    facts: dict[str, Any] = _known(dataclasses.asdict(report))
    return facts


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _known(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_known(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return value.item() if hasattr(value, "item") else str(value)
