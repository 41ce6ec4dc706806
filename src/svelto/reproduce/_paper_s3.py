"""Numbers printed in paper S3: Tables 1, 2 and 3.

Kernel evaluations are sums over all test samples. Data sets bear the names that `_s3_data` gives them; the paper calls
optdigits "Optical letter" and segmentation "Image segmentation".
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Line(NamedTuple):
    """One line of Table 2 or 3."""

    name: str
    n_features: int
    n_test: int
    classical: float
    bounded: float
    saved: float
    saved_vs_rbf: float | None = None

    @property
    def classical_per_row(self) -> float:
        """Kernel evaluations of the classical method for one test sample."""
        return self.classical / self.n_test


class TraceRow(NamedTuple):
    """One line of Table 1; None: an empty cell."""

    coefficient: float | None
    distance: float | None  # d(x, sv_i)
    list_distance: float | None  # d(sv_1, sv_i)
    partial: float  # f_n(x)
    low: float | None
    high: float | None
    remaining: float | None
    bound: float | None  # of the remaining positive (f_n < 0) or negative contribution


# Name, features, test samples, then of both tables: classical, bounded, saved %; of Table 3 also saved vs. RBF %.
_TABLES: Final = """
letter            16 4000  96.1e6  41.56e6  56.74  90.65e6 22.35e6 75.34 46.22
optdigits         64 1797  1.09e6  7.32e5   33.27  1.92e6  7.12e5  62.91  2.73
arrhythmia       279  200  105e3   81.39e3  22.48  185.2e3 21.5e3  88.39 73.58
segmentation      16 2100  3.043e6 4.16e5   86.32  2.95e6  3.56e5  87.93 14.47
red-circular     709 5913  1.28e6  9.96e5   22.52  2.05e6  1.02e6  50.24 -2.41
blue-rectangular 961 1091  2.95e6  1.21e6   58.80  3.52e6  1.11e6  68.47  8.26
blue-circular    709  867  1.11e6  2.67e5   76.06  1.46e6  1.89e5  87.05 29.21
red-triangular   511 4067  2.58e6  2.014e6  22.99  2.26e6  1.90e6  15.92  5.47
"""


def _read(tables: str) -> tuple[dict[str, Line], dict[str, Line]]:
    gaussian, exponential = {}, {}
    for text in tables.strip().splitlines():
        name, d, n, *cells = text.split()
        numbers = [float(cell) for cell in cells]
        gaussian[name] = Line(name, int(d), int(n), *numbers[:3])
        exponential[name] = Line(name, int(d), int(n), *numbers[3:])
    return gaussian, exponential


TABLE2, TABLE3 = _read(_TABLES)
TRAFFIC_SIGNS: Final = ("red-circular", "blue-rectangular", "blue-circular", "red-triangular")

TABLE1: Final = (
    TraceRow(None, None, None, -1.39, None, None, 3.54, 9.82),
    TraceRow(5.23, 0.171, 0.00, 3.54, 0.00, 0.84, -1.26, -16.67),
    TraceRow(-9.91, 0.427, 0.28, -3.34, 0.00, 0.84, 5.62, 11.25),
    TraceRow(13.41, 0.387, 0.35, 6.59, 0.18, 0.84, -4.32, -9.21),
    TraceRow(-2.45, 0.422, 0.37, 4.87, 0.19, 0.84, -2.59, -4.79),
    TraceRow(-7.93, 0.66, 0.63, 1.55, 0.46, 0.84, 0.72, 0.39),
    TraceRow(1.31, 0.62, 0.67, 2.15, 0.50, 0.84, 0.121, 0.08),
    TraceRow(0.342, 0.72, 0.89, 2.27, 0.72, 0.84, None, None),
)
TABLE1_SIGMA2: Final = 0.5
TABLE1_STOP: Final = 4
