"""`svelto export`: a model file in, a C header or an ONNX graph out."""

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

# What is written under a name with such a suffix.
KINDS: Final = {".h": "c", ".onnx": "onnx"}
# What --size sets.
SIZES: Final = {"hinges": "n_hinges", "taylor_tree": "max_leaves", "reduced_set": "n_basis"}


def export_file(
    model: Path,
    data: Path | None,
    output: Path | None,
    header: Path | None,
    *,
    name: str | None,
    dtype: str,
    max_bytes: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Read, accelerate, write, print; see `svelto export --help`."""
    target, kind = _target(output, header)
    given = {"--name": name, "--max-bytes": max_bytes}
    wrong = [option for option, value in given.items() if value is not None and kind == "onnx"]
    if wrong:
        raise ValueError(f"{wrong[0]} belongs to C headers; {target} is an ONNX graph.")
    predictor, X = read_predictor(model, data, kind=kind, **options)
    if kind == "onnx":
        written = predictor.export_onnx(target, dtype=dtype, X=X)
    else:
        written = predictor.export_c(target, name=name, dtype=dtype, max_bytes=max_bytes, X=X)
    if as_json:
        print(json.dumps({**asdict(written), "path": str(written.path)}))
    else:
        print(written)


def _target(output: Path | None, header: Path | None) -> tuple[Path, str]:
    """The file to write, and whether it is "c" or "onnx"."""
    if (output is None) == (header is None):
        found = "neither" if output is None else "both"
        raise ValueError(f"Name one file to write, -o OUT or --c OUT.h; there is {found}.")
    if header is not None:
        return header, "c"
    assert output is not None
    kind = KINDS.get(output.suffix.lower())
    if kind is None:
        expected = " or ".join(KINDS)
        raise ValueError(f"-o is {output}; expected a name that ends in {expected}, which says what to write.")
    return output, kind


def read_predictor(
    model: Path,
    data: Path | None,
    *,
    kind: str,
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
        if not hasattr(found, f"export_{kind}"):
            expected = "a predictor or a SVMTreeClassifier" if kind == "c" else "a predictor"
            raise ValueError(f"{model} holds a {type(found).__name__}; expected {expected}.")
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
