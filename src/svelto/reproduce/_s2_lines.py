"""What was measured on a data set of paper S2, over its splits, as the page and its targets read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from svelto.reproduce import _paper_s2
from svelto.reproduce._common import Record
from svelto.reproduce._s2_data import SOURCES

MACHINES: Final = {"default": "RBF SVM, C = 1, gamma = 1/d", "tuned": "RBF SVM, tuned"}
TREES: Final = {
    "paper0": "paper's tree, greedy 0",
    "paper1": "paper's tree, greedy 1",
    "linear": "svelto's linear tree",
    "tail": "svelto's tree, tuned RBF SVM as tail",
}
ENGINES: Final = {"svc": "SVC.predict", "exact": "exact engine"}
# Columns of the paper's tables.
_COLUMNS: Final = {"default": "rbf", "paper0": "greedy0", "paper1": "greedy1"}


@dataclass(frozen=True)
class Line:
    """One data set: its record, and the paper's tables."""

    name: str
    record: Record

    def paper_table(self, scale: str) -> _paper_s2.Table | None:
        """The paper's table; None for a set that the paper does not have."""
        return _paper_s2.TABLES.get((SOURCES[self.name].paper or "", scale))

    def paper_side(self, scale: str, side: str) -> _paper_s2.Side | None:
        """A column of the paper's table."""
        printed = self.paper_table(scale)
        if printed is None or side not in _COLUMNS:
            return None
        column: _paper_s2.Side = getattr(printed, _COLUMNS[side])
        return column

    @property
    def threads(self) -> list[str]:
        """Numbers of threads that were timed."""
        return list(self.record["splits"][0]["standard"]["times"])

    def sides(self) -> Iterator[tuple[str, str]]:
        """Every way of scaling with every machine and tree that was measured there."""
        for scale in _paper_s2.SCALES:
            for side in [*MACHINES, *TREES]:
                if side in self.record["splits"][0][scale]["sides"]:
                    yield scale, side

    def values(self, scale: str, side: str, field: str) -> list[float]:
        """A number of every split."""
        return [float(split[scale]["sides"][side][field]) for split in self.record["splits"]]

    def mean(self, scale: str, side: str, field: str) -> float:
        """Mean over the splits."""
        return float(np.mean(self.values(scale, side, field)))

    def accuracies(self, scale: str, side: str) -> list[float]:
        """Percent of the test rows that are right, in every split."""
        return [100.0 * right / self.record["n_test"] for right in self.values(scale, side, "right")]

    def accuracy(self, scale: str, side: str) -> float:
        """Mean percent of the test rows that are right."""
        return float(np.mean(self.accuracies(scale, side)))

    def seconds(self, scale: str, call: str, threads: str) -> float:
        """Seconds a row, median over the splits."""
        return float(np.median([s[scale]["times"][threads][call]["seconds_per_row"] for s in self.record["splits"]]))

    def gain(self, scale: str, call: str, rival: str, threads: str) -> float | None:
        """How many times longer the rival takes, median over the splits; None for the rival itself."""
        if call == rival:
            return None
        return float(np.median([s[scale]["times"][threads][call]["over"][rival] for s in self.record["splits"]]))


def lines_of(document: Record) -> list[Line]:
    """All data sets of a document."""
    return [Line(name, record) for name, record in document["results"].items()]
