"""Figures 3.4 to 3.13 of paper S2 in one picture: how hyperplanes cut fourclass, one after the other.

The paper's tree (greedy level 0, standardised features, pruned) on all rows. Each panel has the rows that reach a
hyperplane, the hyperplane, and the regions labelled so far: cyan for the negative class, yellow for the positive one,
the region that the hyperplane adds in a stronger tone. A region keeps the label of the first hyperplane that cut it
off; the last panel has the class that is left over as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import svelto
from svelto import datasets
from svelto._typing import FloatArray
from svelto.reproduce._common import (
    FORMAT,
    Experiment,
    Interrupted,
    Record,
    Request,
    environment,
    environment_text,
    need_matplotlib,
    new_figure,
    progress,
    save_figure_page,
)
from svelto.reproduce._s2_chain import FILE
from svelto.reproduce._s2_machines import PAPER_TREE
from svelto.reproduce._s2_render import PAPER
from svelto.reproduce._tables import table

COLUMNS: Final = 5
PANEL_INCHES: Final = (2.9, 3.15)
PIXELS: Final = 401
MARGIN: Final = 0.06
MARKS: Final = {-1: ("o", "#1f4e9c"), 1: ("^", "#2a7d2e")}
# Regions: (labelled before, labelled in this panel).
TONES: Final = {-1: ("#d6f5f7", "#6fdbe4"), 1: ("#fff8cf", "#ffe14d")}
RED: Final = "#c62828"
SOLVERS: Final = {"h": "H1-SVM", "c": "C-SVM"}


class Cuts(NamedTuple):
    """Hyperplanes of one chain in the plane of the rows, and the outcome of what is left."""

    planes: FloatArray
    low: FloatArray
    high: FloatArray
    end: int

    def place(self, X: FloatArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The hyperplane that labels each point (their number: the end), and the label."""
        scores = X @ self.planes.T
        side = (scores > self.high).astype(np.int64) - (scores < self.low)
        decided = np.column_stack([side != 0, np.ones(len(X), dtype=bool)])
        number = decided.argmax(axis=1)
        label = np.column_stack([side, np.full(len(X), self.end)])[np.arange(len(X)), number]
        return number, label

    def thresholds(self) -> FloatArray:
        """The finite threshold of each hyperplane; it peels off one side."""
        return np.where(np.isfinite(self.low), self.low, self.high)


def cuts_of(tree: Any) -> Cuts:
    """The one chain of a linear tree of two classes."""
    chains = tree._tree.chains
    return Cuts(chains.planes, chains.low, chains.high, int(chains.end[0]))


def run_figures(request: Request) -> list[Path]:
    """Fit, draw, write the picture, its facts and a page."""
    need_matplotlib()
    bunch = datasets.load(FILE, dense=True)
    X, y = bunch.X_train, bunch.y_train
    request.output.mkdir(parents=True, exist_ok=True)
    try:
        with progress(3) as steps:
            steps.say("RBF machine")
            rbf = make_pipeline(StandardScaler(), SVC(C=1.0, gamma=1.0 / X.shape[1])).fit(X, y)
            steps.advance()
            steps.say("tree")
            tree = svelto.SVMTreeClassifier(**PAPER_TREE, n_jobs=request.n_jobs).fit(X, y)
            facts = facts_of(X, y, rbf, tree)
            steps.advance()
            steps.say("drawing")
            figure = draw(X, y, rbf, cuts_of(tree), facts)
            files = save_figure_page(request.output, figure, facts, render_figures(facts))
            steps.advance()
    except KeyboardInterrupt:
        raise Interrupted("interrupted. No file was left half-written.") from None
    return files


def facts_of(X: FloatArray, y: Any, rbf: Any, tree: Any) -> Record:
    """What the page and the titles say."""
    number, label = cuts_of(tree).place(X)
    planes = [
        {
            "solver": node.solver,
            "hard_class": int(node.hard_class),
            "sign": node.sign,
            "perpendicular": node.perpendicular,
            "reached": int(np.count_nonzero(number >= i)),
            "labelled": int(np.count_nonzero(number == i)),
        }
        for i, node in enumerate(tree.nodes_)
    ]
    return {
        "format": FORMAT,
        "experiment": "s2-figures",
        "environment": environment(),
        "settings": {"data": FILE, "scale": tree.scale, "greedy": tree.greedy, "C": 1.0, "gamma": 1.0 / X.shape[1]},
        "n_rows": len(y),
        "n_sv": len(rbf[-1].support_),
        "rbf_right": int(np.count_nonzero(rbf.predict(X) == y)),
        "right": int(np.count_nonzero(tree.predict(X) == y)),
        "drawn_right": int(np.count_nonzero(label == y)),
        "planes": planes,
    }


# -- picture -----------------------------------------------------------------------------------------------------


def draw(X: FloatArray, y: NDArray[np.int64], rbf: Any, cuts: Cuts, facts: Record) -> Any:
    """All panels: the rows, the RBF machine, every hyperplane, the final partition."""
    n_planes = len(facts["planes"])
    n_rows = -(-(n_planes + 3) // COLUMNS)
    figure = new_figure((COLUMNS * PANEL_INCHES[0], n_rows * PANEL_INCHES[1]))
    panels = list(figure.subplots(n_rows, COLUMNS, squeeze=False).ravel())
    square = _square(X)
    grid = _grid(square)
    number, label = cuts.place(grid)
    reached, _ = cuts.place(X)

    _rows(panels[0], X, y, size=7)
    panels[0].set_title(f"Data: {facts['n_rows']} rows\n▲ class 1   ● class -1", fontsize=9)
    _rbf(panels[1], X, y, rbf, grid, square)
    panels[1].set_title(f"RBF SVM: {facts['n_sv']} support\nvectors (ringed)", fontsize=9)
    for i, plane in enumerate(facts["planes"]):
        panel = panels[2 + i]
        _regions(panel, square, np.where(number <= i, label, 0), np.where(number == i, label, 0))
        left = reached >= i
        _rows(panel, X[left], y[left], size=7)
        _line(panel, cuts.planes[i], cuts.thresholds()[i], square)
        panel.set_title(plane_title(i, plane), fontsize=9)
    last = panels[2 + n_planes]
    _regions(last, square, np.zeros(len(grid), dtype=np.int64), label)
    _rows(last, X, y, size=4)
    last.set_title(f"Final partition: {n_planes} planes,\n{facts['right']} of {facts['n_rows']} rows right", fontsize=9)
    for panel in panels[3 + n_planes :]:
        panel.set_axis_off()
    for panel in panels[: 3 + n_planes]:
        panel.set(xlim=square[:2], ylim=square[2:], aspect="equal", xticks=(), yticks=())
    return figure


def plane_title(i: int, plane: Record) -> str:
    """Two short lines above a panel."""
    how = SOLVERS[plane["solver"]]
    how += ", turned" if plane["sign"] == -1 else ""
    how += ", perpendicular" if plane["perpendicular"] else ""
    soft = -plane["hard_class"]
    return f"Plane {i + 1}: {how}\n{plane['labelled']} of {plane['reached']} rows become {soft:+d}"


def _square(X: FloatArray) -> tuple[float, float, float, float]:
    low, high = X.min(axis=0), X.max(axis=0)
    edge = MARGIN * float((high - low).max())
    return float(low[0]) - edge, float(high[0]) + edge, float(low[1]) - edge, float(high[1]) + edge


def _grid(square: Sequence[float]) -> FloatArray:
    left, right, bottom, top = square
    axes = np.meshgrid(np.linspace(left, right, PIXELS), np.linspace(bottom, top, PIXELS))
    return np.column_stack([part.ravel() for part in axes])


def _rows(panel: Any, X: FloatArray, y: NDArray[np.int64], size: float) -> None:
    for label, (mark, colour) in MARKS.items():
        own = X[y == label]
        panel.scatter(own[:, 0], own[:, 1], s=size, marker=mark, color=colour, linewidths=0, zorder=3)


def _rbf(panel: Any, X: FloatArray, y: NDArray[np.int64], rbf: Any, grid: FloatArray, square: Sequence[float]) -> None:
    scores = rbf.decision_function(grid).reshape(PIXELS, PIXELS)
    panel.contour(scores, [-1.0, 0.0, 1.0], colors=RED, linewidths=1.1, linestyles=(":", "-", ":"), extent=square)
    _rows(panel, X, y, size=4)
    vectors = X[rbf[-1].support_]
    panel.scatter(vectors[:, 0], vectors[:, 1], s=15, facecolors="none", edgecolors="#333333", linewidths=0.4, zorder=4)


def _regions(panel: Any, square: Sequence[float], before: NDArray[np.int64], now: NDArray[np.int64]) -> None:
    """Paint what has a label (-1 or +1; 0: none); `now` on top of `before`."""
    colour_of = np.ones((PIXELS * PIXELS, 3))
    for tone, labels in enumerate((before, now)):
        for label, colours in TONES.items():
            colour_of[labels == label] = [int(colours[tone][k : k + 2], 16) / 255 for k in (1, 3, 5)]
    picture = colour_of.reshape(PIXELS, PIXELS, 3)
    panel.imshow(picture, origin="lower", extent=square, interpolation="antialiased", aspect="equal")


def _line(panel: Any, plane: FloatArray, threshold: float, square: Sequence[float]) -> None:
    """The line plane . x = threshold, through its point nearest to the middle and beyond the square at both ends."""
    middle = np.array([square[0] + square[1], square[2] + square[3]]) / 2
    nearest = middle + plane * (threshold - plane @ middle) / (plane @ plane)
    along = np.array([-plane[1], plane[0]]) / np.linalg.norm(plane)
    reach = square[1] - square[0] + square[3] - square[2]
    ends = np.array([nearest - reach * along, nearest + reach * along])
    panel.plot(ends[:, 0], ends[:, 1], color=RED, linewidth=1.4, zorder=5)


# -- page --------------------------------------------------------------------------------------------------------


def render_figures(facts: Record) -> str:
    """Whole page of the figures."""
    n_rows, settings = facts["n_rows"], facts["settings"]
    rows = [
        [
            str(i + 1),
            SOLVERS[plane["solver"]],
            f"{plane['hard_class']:+d}",
            str(plane["sign"]),
            "yes" if plane["perpendicular"] else "no",
            f"{plane['reached']:,}",
            f"{plane['labelled']:,}",
        ]
        for i, plane in enumerate(facts["planes"])
    ]
    left = n_rows - sum(plane["labelled"] for plane in facts["planes"])
    return "\n\n".join(
        [
            "# S2, Figures 3.4 to 3.13: hyperplanes that cut fourclass",
            f"After {PAPER}, Figures 3.4 to 3.13. Command: `svelto reproduce s2-figures`. "
            f"Machine: {environment_text(facts['environment'])}.",
            "![The rows, the RBF machine, one panel for each hyperplane, the final partition](s2-figures.png)",
            f"- All {n_rows} rows of {settings['data']} train. RBF SVM (C = {settings['C']:g}, gamma = "
            f"{settings['gamma']:g}, Std-Dev): {facts['n_sv']} support vectors, {facts['rbf_right']} rows right; its "
            "boundary is the solid line, its margins are dotted.\n"
            '- Tree: `SVMTreeClassifier(tail=None, last="class", prefer="rows", greedy=0, min_peeled=0, '
            f'scale="standard")`, pruned: {len(facts["planes"])} hyperplanes, {facts["right"]} rows right. '
            "Cyan: labelled -1, yellow: labelled +1; the stronger tone is what a panel's hyperplane adds. "
            "Nothing is promised about rows that were not trained on.\n"
            f"- {left} rows pass all hyperplanes and get the class that is left.",
            table("plane;solver;hard class;sign;perpendicular;rows that reach it;rows labelled", rows),
            "",
        ]
    )


FIGURES: Final = Experiment("s2-figures", frozenset(), run_figures)
