"""Pictures of the suite as SVG, without scripts: hovering over a point says what it is.

`overview` has every contender on every machine: how many times faster than SVC.predict, against disagreement with it.
`one_machine` has time of a row against accuracy on the test rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Final, NamedTuple

from svelto.report_pictures import BOTTOM, COLOURS, HEIGHT, LEFT, NONE_ROOM, RIGHT, TOP, WIDTH
from svelto.report_pictures import _rule as rule
from svelto.report_pictures import _Scale as LogScale
from svelto.report_pictures import _svg_head as svg_head
from svelto.report_pictures import _text as text
from svelto.suite.figures import cell_of, number, percent, ratio, title
from svelto.suite.measure import CONTENDERS, Record

COLOUR: Final = {
    **COLOURS,
    "auto": "#c2185b",
    "exact": "#555b66",
    "SVC.predict": "#000000",
    "intelex": "#0071c5",
    "onnxruntime": "#7a7a00",
    "Nystroem + LinearSVC": "#00897b",
    "LightGBM": "#f39c12",
}
# For a file of its own; on a page the page's style does this.
FILE_STYLE: Final = """
svg{background:#fff}text{fill:#1d1f21;font:13px system-ui,sans-serif}text.small{fill:#5f6670;font-size:12px}
.grid{stroke:#d8dadd}.asked{stroke:#c0392b;stroke-dasharray:5 4}.dot{fill:currentColor;fill-opacity:.75}
"""
LEGEND_LINE, LEGEND_COLUMNS = 20, 3


class Point(NamedTuple):
    """A contender on a machine."""

    name: str
    x: float
    y: float
    tip: str


def overview(records: Sequence[Record], *, alone: bool = False) -> str:
    """All machines and contenders; `alone`: as a file of its own, with the legend in the picture."""
    points = []
    for record in records:
        for line in record["lines"]:
            faster = ratio(record, "SVC.predict", line["name"])
            if faster is not None and line["name"] != "SVC.predict":
                points.append(Point(line["name"], faster, line["wrong"] / record["n_test"], _tip(record, line)))
    if not points:
        return ""
    asked = max((line["asked"] for record in records for line in record["lines"] if "asked" in line), default=None)
    across = LogScale([point.x for point in points], LEFT, WIDTH - RIGHT)
    wrong = [point.y for point in points if point.y > 0.0]
    allowed = None if asked is None else 1.0 - asked
    up = LogScale([*wrong, allowed or 1e-3], HEIGHT - BOTTOM - NONE_ROOM, TOP)
    none_at = HEIGHT - BOTTOM - NONE_ROOM / 3
    parts = _frame(across, "times as fast as SVC.predict, two threads, all rows in one call", "labels that differ")
    parts += [rule(LEFT, up.at(t), WIDTH - RIGHT, up.at(t), "grid") for t in up.ticks]
    parts += [text(LEFT - 8, up.at(t) + 4, f"{t:g}", "small", "end") for t in up.ticks]
    parts += [rule(LEFT, none_at, WIDTH - RIGHT, none_at, "grid")]
    parts += [text(LEFT - 8, none_at + 4, "none", "small", "end")]
    if allowed is not None:
        parts.append(rule(LEFT, up.at(allowed), WIDTH - RIGHT, up.at(allowed), "asked"))
        parts.append(text(LEFT + 4, up.at(allowed) - 5, "allowed", "small", "start"))
    dots = [_dot(point, across.at(point.x), up.at(point.y) if point.y > 0.0 else none_at) for point in points]
    label = "Every contender on every machine: speed against labels that differ"
    return _drawing(label, [*parts, *dots], [point.name for point in points], alone)


def one_machine(record: Record) -> str:
    """One machine: microseconds of a row against accuracy."""
    points = [
        Point(line["name"], cell["us_row"], line["accuracy"], _tip(record, line))
        for line in record["lines"]
        if (cell := cell_of(record, line["name"])) is not None
    ]
    if not points:
        return ""
    across = LogScale([point.x for point in points], LEFT, WIDTH - RIGHT)
    at, ticks = _linear([point.y for point in points], HEIGHT - BOTTOM, TOP)
    parts = _frame(across, "microseconds a row, two threads, all rows in one call", "accuracy on the test rows")
    parts += [rule(LEFT, at(t), WIDTH - RIGHT, at(t), "grid") for t in ticks]
    parts += [text(LEFT - 8, at(t) + 4, f"{100 * t:.1f} %", "small", "end") for t in ticks]
    dots = [_dot(point, across.at(point.x), at(point.y)) for point in points]
    label = f"{title(record)}: time against accuracy"
    return _drawing(label, [*parts, *dots], [point.name for point in points], alone=False)


def _tip(record: Record, line: Record) -> str:
    cell = cell_of(record, line["name"])
    time = "" if cell is None else f"{number(cell['us_row'])} us a row, "
    chosen = f" ({line['method']})" if line["name"] == "auto" else ""
    return (
        f"{title(record)}, {line['name']}{chosen}: {time}{line['wrong']} of {record['n_test']:,} labels differ from "
        f"SVC.predict's, accuracy {percent(line['accuracy'])}"
    )


def _frame(across: LogScale, below: str, beside: str) -> list[str]:
    parts = [rule(across.at(t), TOP, across.at(t), HEIGHT - BOTTOM, "grid") for t in across.ticks]
    parts += [text(across.at(t), HEIGHT - BOTTOM + 18, f"{t:,g}", "small") for t in across.ticks]
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, below, "small"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    turned = f'transform="translate(16 {middle}) rotate(-90)" text-anchor="middle"'
    return [*parts, f'<text class="small" {turned}>{escape(beside)}</text>']


def _dot(point: Point, x: float, y: float) -> str:
    colour, radius = COLOUR[point.name], 6 if point.name == "auto" else 4.5
    return (
        f'<g class="point" style="color:{colour}"><circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>'
        f"<title>{escape(point.tip)}</title></g>"
    )


def _drawing(label: str, parts: list[str], names: Sequence[str], alone: bool) -> str:
    known = [name for name in CONTENDERS if name in names]
    if not alone:
        items = "".join(f'<span><i style="background:{COLOUR[name]}"></i>{escape(name)}</span>' for name in known)
        return "".join([svg_head(WIDTH, HEIGHT, label), *parts, "</svg>", f'<p class="legend">{items}</p>'])
    for i, name in enumerate(known):
        x = LEFT + (i % LEGEND_COLUMNS) * (WIDTH - LEFT) / LEGEND_COLUMNS
        y = HEIGHT + LEGEND_LINE * (0.5 + i // LEGEND_COLUMNS)
        parts.append(f'<circle class="dot" style="color:{COLOUR[name]}" cx="{x:.1f}" cy="{y - 4:.1f}" r="5"/>')
        parts.append(text(x + 10, y, name, "small", "start"))
    head = svg_head(WIDTH, HEIGHT + math.ceil(len(known) / LEGEND_COLUMNS) * LEGEND_LINE, label)
    return "".join([head, f"<style>{FILE_STYLE}</style>", *parts, "</svg>\n"])


def _linear(values: Sequence[float], start: float, stop: float) -> tuple[Callable[[float], float], list[float]]:
    """A scale with round ticks around some shares."""
    low, high = min(values), max(values)
    step = next(s for s in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0) if high - low <= 5 * s)
    first, last = math.floor(low / step), math.ceil(high / step)
    if first == last:
        last += 1

    def at(value: float) -> float:
        return start + (value / step - first) / (last - first) * (stop - start)

    return at, [i * step for i in range(first, last + 1)]
