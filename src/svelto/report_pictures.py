"""Pictures of a report as SVG: the cascade as a flow of rows, and what was tried by time and disagreement.

Both are text, without scripts: a picture in a notebook or on a page works offline. Hovering over a point, or reaching
it by the tab key, shows its configuration.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final

from svelto.report import Report, Trial

# One colour for each method; readable on white and on black.
COLOURS: Final = {
    "exact": "#888888",
    "bounded": "#8c6bb1",
    "hinges": "#e4572e",
    "taylor_tree": "#2e86ab",
    "sv_tree": "#d1a000",
    "reduced_set": "#3a9d5d",
}
# The drawing of what was tried: its size, and the room around the axes.
WIDTH, HEIGHT = 680, 380
LEFT, RIGHT, TOP, BOTTOM = 76, 20, 16, 52
# Configurations without a disagreement lie on a line of their own, below the smallest that can be told apart.
NONE_ROOM: Final = 34
# The drawing of the flow.
BOX_WIDTH, BOX_HEIGHT, GAP = 132, 54, 64
LINE: Final = 15


def flow(report: Report) -> str:
    """The stages that rows pass, with the share that each settles; empty where the report has no shares."""
    prefix = "share settled by "
    stages = [(name[len(prefix) :], share) for name, share in report.work.items() if name.startswith(prefix)]
    if not stages:
        return ""
    guarded = report.work.get("share sent on by the guard")
    width = len(stages) * (BOX_WIDTH + GAP) + 20
    height = BOX_HEIGHT + 96
    parts = [_svg_head(width, height, "The cascade: share of the rows that each stage settles")]
    left = 1.0
    for i, (name, share) in enumerate(stages):
        x = 14 + i * (BOX_WIDTH + GAP)
        middle = x + BOX_WIDTH / 2
        parts.append(f'<rect class="box" x="{x}" y="10" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>')
        parts.append(_text(middle, 33, name, "name"))
        parts.append(_text(middle, 52, f"{left:.2%} of the rows", "small"))
        parts.append(_arrow(middle, BOX_HEIGHT + 10, middle, BOX_HEIGHT + 52))
        parts.append(_text(middle, BOX_HEIGHT + 72, f"{share:.2%} settled", "name"))
        left = max(left - share, 0.0)
        if i + 1 < len(stages):
            parts.append(_arrow(x + BOX_WIDTH, 37, x + BOX_WIDTH + GAP, 37))
            parts.append(_text(x + BOX_WIDTH + GAP / 2, 28, f"{left:.2%}", "small"))
    if guarded is not None:
        text = f"{guarded:.2%} of the rows are unlike those known: the guard sends them to the exact engine"
        parts.append(f'<text class="small" x="14" y="{height - 6}">{escape(text)}</text>')
    return "".join([*parts, "</svg>"])


def pareto(report: Report, key: str) -> str:
    """Everything that was tried: time of a row against disagreement, both on logarithmic scales.

    Parameters
    ----------
    report : Report
        With `tried`.
    key : str
        Prefix of the ids in the drawing; unique on the page.
    """
    trials = report.tried
    if not trials:
        return ""
    asked = None if report.asked is None or report.asked >= 1.0 else 1.0 - report.asked
    across = _Scale([trial.microseconds for trial in trials], LEFT, WIDTH - RIGHT)
    wrong = [1.0 - trial.agreement for trial in trials if trial.agreement < 1.0]
    up = _Scale([*wrong, *([asked] if asked else []), *([] if wrong else [1e-3])], HEIGHT - BOTTOM - NONE_ROOM, TOP)
    none_at = HEIGHT - BOTTOM - NONE_ROOM / 3
    parts = [_svg_head(WIDTH, HEIGHT, "What was tried: microseconds a row against disagreement")]
    parts += [_rule(across.at(t), TOP, across.at(t), HEIGHT - BOTTOM, "grid") for t in across.ticks]
    parts += [_text(across.at(t), HEIGHT - BOTTOM + 18, f"{t:g}", "small") for t in across.ticks]
    parts += [_rule(LEFT, up.at(t), WIDTH - RIGHT, up.at(t), "grid") for t in up.ticks]
    parts += [_text(LEFT - 8, up.at(t) + 4, f"{t:g}", "small", "end") for t in up.ticks]
    parts.append(_rule(LEFT, none_at, WIDTH - RIGHT, none_at, "grid"))
    parts.append(_text(LEFT - 8, none_at + 4, "none", "small", "end"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "microseconds a row", "small"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(
        f'<text class="small" transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">disagreement</text>'
    )
    if asked is not None:
        parts.append(_rule(LEFT, up.at(asked), WIDTH - RIGHT, up.at(asked), "asked"))
        parts.append(_text(WIDTH - RIGHT - 4, up.at(asked) - 5, "allowed", "small", "end"))
    most_rows = max(trial.n_rows for trial in trials)
    tips, rules = [], []
    for i, trial in enumerate(trials):
        x = across.at(trial.microseconds)
        y = none_at if trial.agreement >= 1.0 else up.at(1.0 - trial.agreement)
        # What was built on a sample is hollow; what was chosen has a ring.
        hollow = " hollow" if 0 < trial.n_rows < most_rows else ""
        colour = COLOURS.get(trial.method, "#888888")
        ring = f'<circle class="ring" cx="{x:.1f}" cy="{y:.1f}" r="11"/>' if trial.chosen else ""
        parts.append(
            f'<g id="{key}-p{i}" class="point{hollow}" tabindex="0" style="color:{colour}">{ring}'
            f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="6"/><title>{escape(trial.method)}</title></g>'
        )
        tips.append(_tip(f"{key}-t{i}", x, y, _describe(trial)))
        rules.append(f"svg:has(#{key}-p{i}:hover) #{key}-t{i},svg:has(#{key}-p{i}:focus) #{key}-t{i}{{display:block}}")
    return "".join([*parts, *tips, "</svg>", f"<style>{''.join(rules)}</style>", _legend(trials)])


def _describe(trial: Trial) -> list[str]:
    return [
        f"{trial.method}{', chosen' if trial.chosen else ''}",
        *trial.setting.split(", "),
        f"{trial.microseconds:.3g} us a row, agreement {trial.agreement:.5f}",
        f"{trial.nbytes:,} bytes, built in {trial.build_seconds:.2g} s",
    ]


def _tip(name: str, x: float, y: float, lines: Sequence[str]) -> str:
    width = 7.0 * max(len(line) for line in lines) + 16
    height = LINE * len(lines) + 10
    x = min(max(x + 12, 2), WIDTH - width - 2)
    y = min(max(y - height - 8, 2), HEIGHT - height - 2)
    text = "".join(
        f'<tspan x="{x + 8:.1f}" y="{y + LINE * (i + 1):.1f}">{escape(line)}</tspan>' for i, line in enumerate(lines)
    )
    return (
        f'<g id="{name}" class="tip"><rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" rx="4"/>'
        f"<text>{text}</text></g>"
    )


def _legend(trials: Sequence[Trial]) -> str:
    known = dict.fromkeys(trial.method for trial in trials)
    items = "".join(
        f'<span><i style="background:{COLOURS.get(name, "#888888")}"></i>{escape(name)}</span>' for name in known
    )
    return f'<p class="legend">{items}<span>hollow: built on a sample</span><span>ring: chosen</span></p>'


class _Scale:
    """A logarithmic scale whose ends are round numbers around some values."""

    def __init__(self, values: Sequence[float], start: float, stop: float) -> None:
        low, high = min(values), max(values)
        self.first, self.last = math.floor(math.log10(low) - 0.05), math.ceil(math.log10(high) + 0.05)
        self.start, self.stop = start, stop
        self.ticks = [10.0**e for e in range(self.first, self.last + 1)]

    def at(self, value: float) -> float:
        """Where a value is drawn."""
        share = (math.log10(value) - self.first) / (self.last - self.first)
        return self.start + share * (self.stop - self.start)


def _svg_head(width: float, height: float, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="{escape(label)}" '
        'xmlns="http://www.w3.org/2000/svg"><defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" '
        'markerWidth="7" markerHeight="7" orient="auto"><path class="head" d="M0 0L8 4L0 8z"/></marker></defs>'
    )


def _text(x: float, y: float, text: str, kind: str, anchor: str = "middle") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _rule(x: float, y: float, to_x: float, to_y: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"/>'


def _arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<line class="arrow" x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" marker-end="url(#arrow)"/>'
