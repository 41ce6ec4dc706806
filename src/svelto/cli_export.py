"""`svelto export`: a model file in, a C header out."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from svelto._progress import steps
from svelto._typing import Rows
from svelto.accelerate import accelerate
from svelto.cli_saved import open_machine, open_saved, saved_rows
from svelto.io.file import is_svelto_file
from svelto.model_rows import rows_for

# What --size sets.
SIZES: Final = {"hinges": "n_hinges", "taylor_tree": "max_leaves", "reduced_set": "n_basis"}


def export_file(
    model: Path,
    data: Path | None,
    header: Path,
    *,
    name: str | None,
    dtype: str,
    max_bytes: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Read, accelerate, write, print; see `svelto export --help`."""
    predictor, X = read_predictor(model, data, **options)
    written = predictor.export_c(header, name=name, dtype=dtype, max_bytes=max_bytes, X=X)
    if as_json:
        print(json.dumps({**asdict(written), "path": str(written.path)}))
    else:
        print(written)


def read_predictor(
    model: Path,
    data: Path | None,
    *,
    method: str | None,
    agreement: str,
    size: int | None,
    file_format: str | None,
    seed: int,
    n_jobs: int | None,
) -> tuple[Any, Rows | None]:
    """The one place where a model path becomes what can be exported; and the rows of DATA, if there are any."""
    share = _share(agreement)
    if size is not None and method not in SIZES:
        raise ValueError(f"--size belongs to --method {', '.join(SIZES)}; the method is {method or 'exact'!r}.")
    if method is None and is_svelto_file(model):
        found = open_saved(model, n_jobs)
        if not hasattr(found, "export_c"):
            raise ValueError(f"{model} holds a {type(found).__name__}; expected a predictor or a SVMTreeClassifier.")
        return found, None if data is None else saved_rows(found, data, file_format)[0]
    method = method or "exact"
    if data is None and method != "exact":
        raise ValueError(f"--method {method} learns from rows: add DATA, a file of rows like those to come.")
    with steps("reading"):
        machine, X = open_machine(model), None
        if data is not None:
            machine, X, _ = rows_for(machine, data, file_format)
    if method == "exact":
        return accelerate(machine, method="exact", n_jobs=n_jobs), X
    options = {} if size is None else {SIZES[method]: size}
    return accelerate(machine, X, method=method, agreement=share, random_state=seed, n_jobs=n_jobs, **options), X


def _share(text: str) -> float | None:
    """A number, or None for "none"."""
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--agreement is {text!r}; expected a number in (0, 1], or 'none'.") from None
