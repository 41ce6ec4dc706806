"""Pictures of paper S3, from the JSON documents alone: Figures 1 to 4."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import numpy as np

from svelto.reproduce._common import Record, need_matplotlib, new_figure, save_figure

__all__ = ["draw_bounds", "draw_evaluations", "draw_lists", "need_matplotlib"]

BLUE, RED, GREY = "#2f6d9c", "#b5543c", "#777777"
SET_COLOURS: Final = {"letter": BLUE, "optdigits": RED, "arrhythmia": "#4f8a4c", "segmentation": "#8a6bb0"}
TITLES: Final = {"rbf": "Gaussian kernel", "exponential": "exponential kernel"}


def draw_bounds(trace: Record, path: Path) -> list[Path]:
    """Figure 1: bounds less the rest that they bound, along the list, in units of the widest."""
    figure = new_figure((7.0, 4.4))
    panel = figure.subplots()
    remaining = np.asarray(trace["remaining"])
    unit = trace["widest"]
    for names, colour, label in (
        (("most", "least"), RED, "(10), (11)"),
        (("tight_most", "tight_least"), BLUE, "(16), (17)"),
    ):
        for name in names:
            panel.plot(
                (np.asarray(trace[name]) - remaining) / unit, color=colour, label=label if name == names[0] else None
            )
    panel.axhline(0.0, color="black", linewidth=0.8)
    panel.axvline(trace["stop"], color=GREY, linewidth=0.8, linestyle=":", label="(16), (17) stop")
    panel.axvline(trace["loose_stop"], color=GREY, linewidth=0.8, linestyle="--", label="(10), (11) would stop")
    panel.set(
        xlabel="support vectors added", ylabel="bound less remaining value, normalised", xlim=(0, len(remaining) - 1)
    )
    panel.legend(frameon=False)
    return save_figure(figure, path)


def draw_evaluations(document: Path, path: Path) -> list[Path]:
    """Figures 2 and 3: evaluations of some rows, sorted; nothing where the set of the figure was not measured."""
    records: dict[str, Record] = json.loads(document.read_text(encoding="utf-8"))["results"]
    found = [(unit, record) for unit, record in records.items() if "figure" in record]
    if not found:
        return []
    unit, record = found[0]
    bounded, classical = np.asarray(record["figure"]["bounded"]), record["figure"]["classical"]
    figure = new_figure((7.0, 4.4))
    panel = figure.subplots()
    panel.plot(bounded, color=BLUE, label="until all signs are certain")
    panel.axhline(bounded.mean(), color=BLUE, linestyle="--", linewidth=0.9, label=f"mean: {bounded.mean():,.0f}")
    panel.axhline(classical, color=RED, label=f"classical: {classical:,}")
    panel.set(xlabel=f"{len(bounded)} test rows, sorted", ylabel="kernel evaluations", ylim=(0, None))
    panel.set_title(f"{unit}, {TITLES[record['settings']['kernel']]}", fontsize=11)
    panel.legend(frameon=False, loc="lower right")
    return save_figure(figure, path)


def draw_lists(document: Path, path: Path) -> list[Path]:
    """Figure 4: saved share against the number of lists, first vectors counted in every machine or once (dots)."""
    records: dict[str, Record] = json.loads(document.read_text(encoding="utf-8"))["results"]
    figure = new_figure((11.0, 4.4))
    panels = dict(zip(TITLES, figure.subplots(1, len(TITLES)), strict=True))
    for kernel, panel in panels.items():
        for name, record in records.items():
            counts = record["kernels"][kernel]["counts"]
            x, y = [one["n_lists"] for one in counts], [one["saved_apart"] for one in counts]
            panel.plot(x, y, color=SET_COLOURS[name], label=name, marker=".")
            panel.plot(x, [one["saved"] for one in counts], color=SET_COLOURS[name], linestyle=":", linewidth=1)
            n_classes = record["n_classes"]
            panel.plot(
                [n_classes], [np.interp(n_classes, x, y)], "o", markersize=9, fillstyle="none", color=SET_COLOURS[name]
            )
        panel.set(xlabel="lists", ylabel="saved kernel evaluations, %", xlim=(0, None))
        panel.set_title(TITLES[kernel], fontsize=11)
        panel.legend(frameon=False)
    return save_figure(figure, path)
