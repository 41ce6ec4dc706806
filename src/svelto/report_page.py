"""A report as HTML: a fragment for notebooks, and a page of its own that needs no network."""

from __future__ import annotations

import hashlib
from html import escape
from typing import Final

from svelto.report import PROMISES, Report
from svelto.report_pictures import flow, pareto

STYLE: Final = """
.svelto{--ink:#1d1f21;--paper:#ffffff;--faint:#d8dadd;--soft:#5f6670;--box:#f3f4f6;color:var(--ink);
background:var(--paper);font:14px/1.45 system-ui,sans-serif;max-width:860px;padding:12px 16px}
@media(prefers-color-scheme:dark){.svelto{--ink:#e8e9eb;--paper:#17181a;--faint:#3a3d42;--soft:#a3a9b2;--box:#24262a}}
.svelto h1{font-size:22px;margin:4px 0 2px}.svelto h2{font-size:15px;margin:22px 0 6px}
.svelto .lead{color:var(--soft);margin:0 0 10px}
.svelto .badge{display:inline-block;padding:1px 9px;border-radius:10px;color:#fff;font-weight:600}
.svelto .exact{background:#2a7d46}.svelto .statistical{background:#1f6f9c}.svelto .none{background:#8a5a00}
.svelto table{border-collapse:collapse}.svelto th,.svelto td{text-align:left;padding:3px 14px 3px 0;vertical-align:top;
border-bottom:1px solid var(--faint);background:none;color:inherit}.svelto th{font-weight:500;color:var(--soft)}
.svelto td.number{text-align:right;font-variant-numeric:tabular-nums}.svelto tr.chosen td{font-weight:650}
.svelto svg{max-width:100%;height:auto;overflow:visible}.svelto svg text{fill:var(--ink);font:13px system-ui,sans-serif}
.svelto svg text.small{fill:var(--soft);font-size:12px}.svelto svg text.name{font-weight:600}
.svelto .box{fill:var(--box);stroke:var(--faint)}.svelto .grid{stroke:var(--faint)}
.svelto .asked{stroke:#c0392b;stroke-dasharray:5 4}
.svelto .arrow{stroke:var(--soft);stroke-width:1.5}.svelto .head{fill:var(--soft)}
.svelto .point{outline:none;cursor:pointer}.svelto .dot{fill:currentColor;stroke:currentColor;stroke-width:2}
.svelto .hollow .dot{fill:var(--paper)}.svelto .ring{fill:none;stroke:currentColor;stroke-width:2}
.svelto .tip{display:none;pointer-events:none}.svelto .tip rect{fill:var(--paper);stroke:var(--soft)}
.svelto .legend span{margin-right:16px;color:var(--soft)}
.svelto .legend i{display:inline-block;width:10px;height:10px;border-radius:5px;margin-right:5px}
"""


def fragment(report: Report) -> str:
    """What a notebook shows."""
    key = "s" + hashlib.sha256(str(report).encode()).hexdigest()[:10]
    parts = [
        f"<h1>svelto: {escape(report.method)}</h1>",
        f'<p class="lead"><span class="badge {report.promise}">{report.promise}</span> '
        f"{escape(PROMISES[report.promise])}</p>",
        _table(_evidence(report)),
    ]
    drawn = flow(report)
    if drawn:
        parts += ["<h2>What answers a row</h2>", drawn]
    if report.tried:
        parts += ["<h2>What was tried</h2>", pareto(report, key), _tried(report)]
    parts += ["<h2>Work, time and memory</h2>", _table(_costs(report))]
    parts += ["<h2>Details</h2>", _table([(name, _plain(value)) for name, value in report.details.items()])]
    parts += ["<h2>Made on</h2>", _table(list(report.environment.items()))]
    return f'<style>{STYLE}</style><div class="svelto" id="{key}">{"".join(parts)}</div>'


def page(report: Report) -> str:
    """A document of its own."""
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>svelto: {escape(report.method)}, {escape(report.promise)}</title>"
        "<style>body{margin:0}@media(prefers-color-scheme:dark){body{background:#17181a}}</style></head>"
        f"<body>{fragment(report)}</body></html>\n"
    )


def _evidence(report: Report) -> list[tuple[str, str]]:
    rows = []
    if report.asked is not None:
        rows.append(("agreement asked for", f"{report.asked:g}"))
    if report.agreement is not None:
        rows.append(("agreement measured", f"{report.agreement:.5f}"))
    if report.agreement_bound is not None:
        rows.append(("lower confidence bound", f"{report.agreement_bound:.5f}"))
    for name in ("calibration rows", "disagreements among them", "chosen by"):
        if name in report.details:
            rows.append((name, _plain(report.details[name])))
    rows += [(f"speed, times that of the {rival}", f"{ratio:.3g}") for rival, ratio in report.speedups.items()]
    return rows


def _costs(report: Report) -> list[tuple[str, str]]:
    rows = [(name, _plain(value)) for name, value in report.work.items() if not name.startswith("share settled")]
    if "bytes" in report.details:
        rows.append(("memory", f"{report.details['bytes']:,} bytes"))
    rows.append(("score error bound", f"{report.score_error_bound:.2g}"))
    rows.append(("build seconds", f"{report.build_seconds:.3g}"))
    return rows


def _tried(report: Report) -> str:
    names = ("method", "setting", "us a row", "agreement", "bytes", "build s")
    head = "".join(f"<th>{name}</th>" for name in names)
    body = []
    for trial in report.tried:
        numbers = (
            f"{trial.microseconds:.3g}",
            f"{trial.agreement:.5f}",
            f"{trial.nbytes:,}",
            f"{trial.build_seconds:.2g}",
        )
        cells = "".join(f'<td class="number">{value}</td>' for value in numbers)
        kind = ' class="chosen"' if trial.chosen else ""
        body.append(f"<tr{kind}><td>{escape(trial.method)}</td><td>{escape(trial.setting)}</td>{cells}</tr>")
    return f"<table><tr>{head}</tr>{''.join(body)}</table>"


def _table(rows: list[tuple[str, str]]) -> str:
    body = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table>{body}</table>"


def _plain(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
