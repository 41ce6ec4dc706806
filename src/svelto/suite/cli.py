"""`svelto bench --suite`: run, show, write the pages."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from svelto._livetable import told_table
from svelto.reproduce._common import Interrupted, write_text
from svelto.suite.figures import line_of, number, over_best, ratio, title
from svelto.suite.html_page import html_page
from svelto.suite.markdown import page
from svelto.suite.measure import Record
from svelto.suite.picture import overview
from svelto.suite.readme import into_readme
from svelto.suite.run import Outcome, Request, command_of, run
from svelto.suite.store import code_stamp
from svelto.suite.summary import summary

FORMAT: Final = 1
COLUMNS: Final = (
    *("machine", "auto chose", "SVs", "labels that differ", "decides s", "SVC.predict / auto", "exact / auto"),
    *("auto / best", "missing"),
)


@dataclass(frozen=True)
class Files:
    """Where results go; None: nowhere."""

    markdown: Path | None = None
    html: Path | None = None
    readme: Path | None = None
    json_file: Path | None = None


def bench_suite(request: Request, files: Files, *, as_json: bool) -> None:
    """Measure, print, write; see `svelto bench --help`."""
    code_stamp()  # it is kept: what is hashed is the code at the start, whatever is written while this runs
    named = {"markdown": files.markdown, "html": files.html, "readme": files.readme}
    for file in (*named.values(), files.json_file):  # told before the work, not after it
        if file is not None and not file.parent.is_dir():
            raise ValueError(f"{file}: the folder {file.parent} does not exist. Create it, or write somewhere else.")
    if files.readme is not None and request.quick:
        raise ValueError("--readme takes the figures of a whole run, not those of a trial. Leave out --quick.")
    if files.readme is not None:
        into_readme(files.readme.read_text(encoding="utf-8"), [], "", None, None)
    if as_json or request.prepare:
        outcome = run(request, lambda step: print(step, file=sys.stderr, flush=True), lambda record: None)
    else:
        with told_table("The suite", COLUMNS) as (add, tell):
            outcome = run(request, tell, lambda record: add(cells(record)))
    if request.prepare:
        if outcome.interrupted:
            raise Interrupted("interrupted; what was trained and built by then is kept.")
        return
    if outcome.records:
        _write(outcome, command_of(request, named), files, as_json=as_json, quick=request.quick)
    if outcome.interrupted:
        n = len(outcome.records)
        raise Interrupted(f"interrupted; {n} machine{'s' * (n != 1)} measured. The same command goes on from there.")
    if not outcome.records:
        raise ValueError(f"{request.results} holds no results yet. Run the suite without --pages first.")


def cells(record: Record) -> list[str]:
    """The machine's row of the table on the terminal."""
    auto, over = line_of(record, "auto"), over_best(record)
    return [
        title(record),
        auto["method"] if auto else "-",
        f"{record['n_sv']:,}",
        f"{auto['wrong']} of {record['n_test']:,}" if auto else "-",
        number(auto["build_seconds"] if auto else None),
        number(ratio(record, "SVC.predict", "auto")),
        number(ratio(record, "exact", "auto")),
        number(over),
        ", ".join(f"{name}: {reason}" for name, reason in record["gaps"].items()),
    ]


def document(outcome: Outcome, command: str) -> dict[str, Any]:
    """All figures, for JSON."""
    return {
        "format": FORMAT,
        "command": command,
        "code": code_stamp(),
        "summary": [target._asdict() for target in summary(outcome.records)],
        "missing": outcome.missing,
        "records": outcome.records,
    }


def _write(outcome: Outcome, command: str, files: Files, *, as_json: bool, quick: bool) -> None:
    records, missing = outcome.records, outcome.missing
    written = []
    picture = None if files.markdown is None else files.markdown.with_suffix(".svg")
    if files.markdown is not None and picture is not None:
        write_text(picture, overview(records, alone=True))
        write_text(files.markdown, page(records, command, missing, picture=picture.name, quick=quick))
        written += [files.markdown, picture]
    if files.html is not None:
        write_text(files.html, html_page(records, command, missing, quick=quick))
        written.append(files.html)
    whole = document(outcome, command)
    if files.json_file is not None:
        write_text(files.json_file, json.dumps(whole, indent=1, allow_nan=False) + "\n")
        written.append(files.json_file)
    if files.readme is not None:
        seen = [None if file is None else _from(files.readme, file) for file in (files.markdown, picture)]
        text = files.readme.read_text(encoding="utf-8")  # only now: somebody may have edited it during the run
        write_text(files.readme, into_readme(text, records, command, *seen))
        written.append(files.readme)
    if as_json:
        print(json.dumps(whole, allow_nan=False))
    else:
        for target in summary(records):
            what, measured, aim, verdict = target.cells()
            print(f"{what}: {measured}" + (f" (target {aim}: {verdict.strip('*')})" if aim else ""))
    for file in written:
        print(file, file=sys.stderr)


def _from(readme: Path, file: Path) -> str:
    return Path(os.path.relpath(file, readme.parent)).as_posix()
