"""Numbers printed in paper S2: Tables 4.1, 5.1 to 5.11 and 5.13, and what the text says about pruning.

Seconds are for the whole test set on a Pentium 4 at 2.8 GHz. Training rows are counted in every pair of classes that
they belong to, and so are support vectors: DNA's 1330 are 665 rows in two pairs each, USPS' 18063 are 9 times 2007,
isolet's 155950 are 25 times 6238. Test rows are counted once.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SCALES: Final = {"standard": "Std-Dev", "minmax": "Min-Max"}


class Hyperplane(NamedTuple):
    """One line of Table 4.1: solver "h" is the H1-SVM, "c" the C-SVM."""

    number: int
    solver: str
    hard_class: int
    sign: int
    perpendicular: bool


_TABLE41: Final = """
 1 h -1 1 no
 2 c  1 1 no
 3 h  1 1 no
 4 h  1 1 yes
 5 h  1 1 no
 6 h -1 1 yes
 7 c -1 1 no
 8 h -1 1 no
 9 h -1 1 no
10 h  1 1 yes
11 c  1 1 no
12 c  1 1 no
"""
# "After the pruning process, line number 9 and 5 were removed, thus, the final tree had depth 10."
PRUNED: Final = (5, 9)


class Side(NamedTuple):
    """A column of a table of chapter 5; `size` counts support vectors or hyperplanes."""

    size: int
    train_seconds: float
    right: int
    seconds: float
    accuracy: float


class Table(NamedTuple):
    """A table of chapter 5: the RBF machine and the paper's trees with greedy level 0 and 1."""

    number: str
    name: str
    scale: str
    n_features: int
    n_train: int
    n_test: int
    rbf: Side
    greedy0: Side
    greedy1: Side


# Number of the table, data set, scaling, features, training and test rows; then for each of the three columns support
# vectors or hyperplanes, training time, test rows that are right, classification time, and their share in percent.
_TABLES: Final = """
5.1  dna       minmax   180   1330  1446
       798    02.35  1354    06.70 93.64      3    01.84  1305    01.86 90.25      3    03.74  1305    01.81 90.25
5.2  dna       standard 180   1330  1446
       881    02.62  1351    06.78 93.43      3    02.11  1315    01.85 90.94      3    03.82  1315    01.71 90.94
5.3  faces     standard 576   9172  4262
      1902 31:53.67  4148 03:05.80 97.33      9 43:59.77  3926    13.55 92.12      9 47:46.43  3926    14.51 92.12
5.4  faces     minmax   576   9172  4262
      2206 14:55.23  4082 03:13.60 95.78      4 10:55.70  3879    14.73 91.01      4 14:21.99  3879    14.63 91.01
5.5  fourclass standard   2    287   618
       135    00.30   538    00.18 87.06      7    00.09   600    00.05 97.09      5    00.11   593    00.07 95.95
5.6  fourclass minmax     2    287   618
       150    00.10   498    00.08 80.58     16    00.18   573    00.05 92.72      8    00.11   596    00.05 96.44
5.7  isolet    standard 617 155950  1559
     35340 07:13.75  1499 03:01.99 96.15    344 18:51.98  1472    32.85 94.42  344 1:04:11.3  1472    36.43 94.42
5.8  isolet    minmax   617 155950  1559
     22932 12:46.70  1493 03:16.56 95.77    325 06:14.40  1496    39.92 95.96    325 52:47.43  1496    24.37 95.96
5.9  usps      standard 256  18063  7291
      4522    27.52  7030 02:07.23 96.42    102    35.26  6798    29.75 93.24     99 02:37.48  6816    17.22 93.49
5.10 usps      minmax   256  18063  7291
      3597    44.74  6986 01:58.59 95.82     49    22.70  6836    19.99 93.76     49 02:09.58  6836    20.07 93.76
5.11 nuclei    standard  32   3372 65536
       980    00.98 64021 01:01.70 97.69    122    03.03 61480    23.44 93.81     86    02.43 62541    17.41 95.43
"""


class Extension(NamedTuple):
    """A column of Table 5.13, on the cell nuclei: "about" so many seconds; no depth for the RBF machine."""

    train_seconds: float
    size: int
    depth: float | None
    seconds: float
    accuracy: float


TABLE513: Final = {
    "rbf": Extension(1, 980, None, 1.5 * 3600, 97.69),
    "linear": Extension(3, 86, 7.3, 2 * 60, 95.43),
    "tail": Extension(5, 86, 8.6, 2 * 60, 97.5),
}


def _seconds(text: str) -> float:
    total = 0.0
    for part in text.split(":"):
        total = 60.0 * total + float(part)
    return round(total, 2)


def _read_table41(text: str) -> tuple[Hyperplane, ...]:
    lines = (line.split() for line in text.strip().splitlines())
    return tuple(
        Hyperplane(int(number), solver, int(hard), int(sign), across == "yes")
        for number, solver, hard, sign, across in lines
    )


def _read_tables(text: str) -> dict[tuple[str, str], Table]:
    lines = [line.split() for line in text.strip().splitlines()]
    tables = {}
    for (number, name, scale, *sizes), numbers in zip(lines[::2], lines[1::2], strict=True):
        n_features, n_train, n_test = (int(size) for size in sizes)
        sides = [
            Side(int(size), _seconds(train), int(right), _seconds(test), float(percent))
            for size, train, right, test, percent in (numbers[i : i + 5] for i in (0, 5, 10))
        ]
        tables[name, scale] = Table(number, name, scale, n_features, n_train, n_test, *sides)
    return tables


TABLE41: Final = _read_table41(_TABLE41)
TABLES: Final = _read_tables(_TABLES)
