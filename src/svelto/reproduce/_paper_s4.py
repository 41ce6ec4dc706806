"""Numbers printed in N. Segata and E. Blanzieri, "Fast Local Support Vector Machines for Large Datasets" (2008)."""

from __future__ import annotations

from typing import Final, NamedTuple

PAPER: Final = 'N. Segata and E. Blanzieri, "Fast Local Support Vector Machines for Large Datasets" (DISI-08-063, 2008)'


class SmallCell(NamedTuple):
    """A cell of Table 1: mean accuracies of SVM, kNNSVM and FastLSVM; whether the last two are significantly better."""

    svm: float
    knn: float
    local: float
    knn_better: bool = False
    local_better: bool = False


# By kernel LIN, RBF, HPOL, IPOL: accuracies of SVM, kNNSVM and FastLSVM; * stands behind what is printed in bold.
_TABLE1: Final = """
iris        0.97  0.96  0.95    0.95  0.96  0.95    0.97  0.96  0.96    0.97  0.97  0.97
wine        0.97  0.98  0.97    0.99  0.99  0.99    0.97  0.99* 0.98    0.97  0.99* 0.97
leukemia    0.95  0.93  0.93    0.71  0.93* 0.88*   0.95  0.93  0.93    0.95  0.93  0.93
liver       0.68  0.74* 0.73*   0.72  0.73  0.72    0.71  0.74* 0.74*   0.70  0.73* 0.72
svmguide2   0.82  0.86* 0.84    0.84  0.84  0.84    0.82  0.84  0.82    0.83  0.86* 0.85*
vehicle     0.80  0.86* 0.85*   0.85  0.84  0.85    0.84  0.86* 0.86*   0.85  0.85  0.86
vowel       0.84  1.00* 0.99*   0.99  1.00  1.00    0.98  1.00* 1.00*   0.99  1.00* 1.00*
breast      0.97  0.97  0.96    0.97  0.97  0.97    0.97  0.96  0.96    0.97  0.96  0.96
fourclass   0.77  1.00* 1.00*   1.00  1.00  1.00    0.81  1.00* 1.00*   1.00  1.00  1.00
glass       0.62  0.69* 0.69*   0.69  0.67  0.70    0.72  0.72  0.72    0.70  0.71  0.70
heart       0.83  0.82  0.83    0.83  0.82  0.81    0.82  0.82  0.82    0.82  0.82  0.82
ionosphere  0.87  0.93* 0.88    0.94  0.93  0.94    0.89  0.93* 0.91    0.91  0.93  0.92
sonar       0.78  0.88* 0.85    0.89  0.90  0.89    0.88  0.89  0.88    0.88  0.89  0.88
"""


def _read_table1(text: str) -> dict[str, dict[str, SmallCell]]:
    """Cells by data set and kernel."""
    cells: dict[str, dict[str, SmallCell]] = {}
    for line in text.strip().splitlines():
        name, *numbers = line.split()
        values, bold = [float(number.rstrip("*")) for number in numbers], [number.endswith("*") for number in numbers]
        cells[name] = {
            kernel: SmallCell(values[at], values[at + 1], values[at + 2], bold[at + 1], bold[at + 2])
            for kernel, at in zip(("LIN", "RBF", "HPOL", "IPOL"), range(0, 12, 3), strict=True)
        }
    return cells


TABLE1: Final = _read_table1(_TABLE1)


class SpiralLine(NamedTuple):
    """A line of Table 2: sizes, parameters (sigma: of exp(-|x - z|^2 / sigma)), accuracies in %, seconds."""

    k: int | None
    k_prime: int | None
    C: float
    sigma: float | None
    validation: float
    test: float
    n_svms: int
    training: float
    testing: float


TABLE2: Final = {
    "RBF-SVM": SpiralLine(None, None, 2.0**6, 2.0**-10, 81.30, 81.39, 1, 6185, 392),
    "LIN-FastLSVM": SpiralLine(250, 62, 2.0**10, None, 88.37, 88.46, 3202, 222, 484),
    "RBF-FastLSVM": SpiralLine(1000, 250, 2.0**8, 2.0**-5, 88.48, 88.43, 853, 165, 492),
    "IPOL-FastLSVM": SpiralLine(500, 125, 2.0**10, None, 88.32, 88.41, 1657, 240, 3415),
}


class CoverLine(NamedTuple):
    """A line of Table 3: accuracy in %, seconds of training and of asking 25,000 rows; SVM's where it ended."""

    svm: tuple[float, float, float] | None
    local: tuple[float, float, float]


TABLE3: Final = {
    1_000: CoverLine((74.32, 0, 2), (74.77, 0, 5)),
    2_000: CoverLine((76.25, 1, 3), (76.28, 0, 10)),
    3_000: CoverLine((77.83, 1, 6), (77.84, 1, 14)),
    4_000: CoverLine((78.83, 3, 9), (79.34, 2, 20)),
    5_000: CoverLine((80.19, 4, 10), (80.35, 10, 26)),
    7_500: CoverLine((82.36, 11, 16), (82.47, 43, 42)),
    10_000: CoverLine((83.48, 34, 19), (83.64, 10, 29)),
    15_000: CoverLine((85.56, 148, 32), (85.78, 15, 73)),
    20_000: CoverLine((86.45, 138, 32), (86.69, 20, 97)),
    30_000: CoverLine((88.14, 588, 51), (88.25, 59, 146)),
    40_000: CoverLine((89.44, 933, 64), (89.48, 78, 193)),
    50_000: CoverLine((90.22, 1814, 71), (90.32, 103, 238)),
    75_000: CoverLine((91.78, 4862, 128), (91.84, 391, 361)),
    100_000: CoverLine((92.81, 7583, 152), (92.84, 439, 476)),
    150_000: CoverLine(None, (94.07, 505, 716)),
    200_000: CoverLine(None, (94.63, 813, 952)),
    250_000: CoverLine(None, (95.35, 1196, 1188)),
    300_000: CoverLine(None, (95.52, 1663, 1427)),
    350_000: CoverLine(None, (95.83, 3573, 1663)),
    400_000: CoverLine(None, (95.95, 2879, 1980)),
    450_000: CoverLine(None, (96.18, 3600, 2140)),
    500_000: CoverLine(None, (96.36, 4431, 2370)),
    556_000: CoverLine(None, (96.47, 5436, 2633)),
}
