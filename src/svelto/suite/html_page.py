"""The suite as one HTML file that needs no network: summary, pictures, tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Final

from svelto.report_page import STYLE
from svelto.suite.figures import title
from svelto.suite.markdown import LINE_COLUMNS, MACHINE_COLUMNS, line_rows, machine_row, method, origin
from svelto.suite.measure import Record
from svelto.suite.picture import one_machine, overview
from svelto.suite.summary import RIVAL_COLUMNS, SUMMARY_COLUMNS, against, summary

# Cells that stand at the right of their column.
NUMBER: Final = re.compile(r"[-+]?[\d.,]+( (%|s|MB|kB|points|\(busy\)|of [\d,]+))*|-")
MORE_STYLE: Final = """
.svelto{max-width:1180px}.svelto .wide{overflow-x:auto}.svelto td,.svelto th{white-space:nowrap}
.svelto td.text{white-space:normal;min-width:14em}.svelto summary{cursor:pointer;font-weight:600;margin:10px 0}
.svelto .met{color:#2a7d46;font-weight:600}.svelto .missed{color:#c0392b;font-weight:600}.svelto .dot{fill-opacity:.75}
"""


def html_page(records: Sequence[Record], command: str, missing: Sequence[str], *, quick: bool) -> str:
    """A document of its own."""
    trial = "<p><b>A trial on few rows: for seeing that it works, not for judging.</b></p>" if quick else ""
    parts = [
        "<h1>The suite: svelto beside what one would pick instead</h1>",
        trial,
        _prose(origin(records, command)),
        "<h2>Summary</h2>",
        _table(SUMMARY_COLUMNS, [target.cells() for target in summary(records)]),
        f"<p>Not measured: {escape(', '.join(missing))}.</p>" if missing else "",
        "<h2>Against whom</h2><p class='lead'>Medians over machines, two threads; above 1, auto is faster.</p>",
        _table(RIVAL_COLUMNS, against(records)),
        "<h2>Every contender on every machine</h2><p class='lead'>Right is faster, down is closer to SVC.predict; "
        "point at a dot to see what it is.</p>",
        overview(records),
        "<h2>Machines</h2>",
        _table(MACHINE_COLUMNS, [machine_row(record) for record in records]),
        "<h2>Every contender</h2>",
        *(_machine(record) for record in records),
        "<h2>How it is measured</h2>",
        _prose(method()),
    ]
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><title>svelto: the suite</title>'
        "<style>body{margin:0}@media(prefers-color-scheme:dark){body{background:#17181a}}"
        f'{STYLE}{MORE_STYLE}</style></head><body><div class="svelto">{"".join(parts)}</div></body></html>\n'
    )


def _machine(record: Record) -> str:
    return (
        f"<details><summary>{escape(title(record))}: {record['n_sv']:,} support vectors</summary>"
        f"{one_machine(record)}{_table(LINE_COLUMNS, line_rows(record))}</details>"
    )


def _prose(text: str) -> str:
    """Paragraphs of the Markdown page; its marks of code and emphasis are dropped."""
    plain = text.replace("`", "").replace("**", "").replace("*", "")
    return "".join(f'<p class="lead">{escape(paragraph)}</p>' for paragraph in plain.split("\n\n"))


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in titles)
    body = "".join(f"<tr>{''.join(_cell(cell) for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'


def _cell(cell: str) -> str:
    if cell in ("met", "**missed**"):
        plain = cell.strip("*")
        return f'<td class="{plain}">{plain}</td>'
    kind = ' class="number"' if NUMBER.fullmatch(cell) else ' class="text"' if len(cell) > 40 else ""
    return f"<td{kind}>{escape(cell)}</td>"
