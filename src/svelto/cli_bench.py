"""`svelto bench`: a model file and rows in, a table out."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from svelto._livetable import live_table
from svelto._progress import steps
from svelto.bench import ALL_METHODS, COLUMNS, bench
from svelto.machine import KernelMachine
from svelto.model_rows import rows_for


def bench_file(
    model: Path,
    data: Path,
    *,
    methods: Sequence[str] | None,
    file_format: str | None,
    as_json: bool,
    html: Path | None,
    **options: Any,
) -> None:
    """Read, build, measure, print; see `svelto bench --help`."""
    chosen = tuple(methods) if methods else ALL_METHODS
    if html is not None and "auto" not in chosen:
        raise ValueError("--html writes the report of method 'auto', which is not among the methods. Add -m auto.")
    with steps("reading"):
        machine, X, _ = rows_for(KernelMachine.from_libsvm(model), data, file_format)
    if as_json:
        lines, report = bench(machine, X, methods=chosen, **options)
        print(json.dumps({"model": str(model), "rows": int(X.shape[0]), "methods": [line.facts() for line in lines]}))
    else:
        title = f"{model.name}: {machine.n_sv:,} support vectors, {X.shape[0]:,} rows"
        with live_table(title, COLUMNS) as add:
            _, report = bench(machine, X, methods=chosen, tell=lambda line: add(line.cells()), **options)
    if html is not None:
        if report is None:
            raise ValueError(f"{html} was not written: method 'auto' could not be built, see the table.")
        print(report.to_html(html), file=sys.stderr)
