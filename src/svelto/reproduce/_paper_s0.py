"""Numbers printed in paper S0: Tables 1 and 2, and what the text says about Figure 2.

Accuracies are in percent, seconds are for the whole test set on a Pentium 4 at 2.40 GHz. Data sets bear the names of
the LIBSVM data page without "_scale".
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Table1Row(NamedTuple):
    """One line of Table 1."""

    name: str
    n_features: int
    n_train: int
    n_test: int
    n_sv: int
    svm_accuracy: float
    svm_seconds: float
    depth: float
    tree_accuracy: float
    tree_seconds: float | None  # None: printed as "about 0"
    difference: float
    gain: float


class Table2Row(NamedTuple):
    """One line of Table 2; `gain` is the tree's over the reduced set methods."""

    name: str
    n_sv: int
    svm_accuracy: float
    n_basis: int
    reduced_accuracies: tuple[float, float, float, float]  # M1 to M4
    reduced_seconds: float
    depth: float
    tree_accuracy: float
    tree_seconds: float
    gain: float


# Name, d, train, test, support vectors, accuracy and seconds of the SVM, average depth, accuracy and seconds of the
# tree, absolute difference of the accuracies, speed gain; "~": about 0.
_TABLE1: Final = """
fourclass        2   431    431   192 76.8     0.05  9.73 77.0    ~ 0.2  110
svmguide1        4  3089   4000   630 96.2     3.14 14.04 96.1 0.01 0.0  290
diabetes         8   384    384   237 75.3     0.16 11.33 75.3    ~ 0.0  230
breast-cancer   10   341    342    46 97.4     0.02 12.41 97.1    ~ 0.3   40
australian      12   345    345   137 87.3     0.09 10.48 87.5    ~ 0.3  120
heart           13   135    135    72 82.2     0.01  8.86 80.0    ~ 2.2   40
svmguide3       21  1243     41   605 12.2     0.06 12.46 12.2    ~ 0.0  260
ijcnn1          22 49990  91701  8971 92.8  1452.74 23.19 92.8 0.97 0.0 1500
german          24   500    500   317 75.4     0.38 10.70 74.2    ~ 1.2  290
ionosphere      34   175    176    88 92.1     0.05 11.25 85.8    ~ 6.3   70
covtype         54 20000 561012 12410 75.6 30776.00 18.25 75.6 9.18 0.0 3350
sonar           60   104    104    88 77.9     0.04  8.74 71.2    ~ 6.7   60
mushrooms      112  4062   4062   487 99.8     7.00 15.30 99.7 0.05 0.0  140
a1a            123  1605  30956   754 83.6    55.49 12.72 83.6 0.34 0.0  160
a2a            123  2265  30296  1067 84.0    72.43 13.46 83.9 0.30 0.1  240
a3a            123  3185  29376  1388 83.8    94.01 14.23 83.9 0.37 0.1  250
a4a            123  4781  27780  2000 84.0   127.12 15.02 84.0 0.30 0.1  420
a5a            123  6414  26147  2606 84.2   159.37 15.40 84.2 0.34 0.0  470
a6a            123 11220  21341  4341 84.2   227.88 16.31 84.2 0.37 0.0  620
a7a            123 16100  16461  6158 84.6   235.40 17.02 84.5 0.18 0.1 1310
a8a            123 22696   9865  8545 85.0   196.56 17.78 84.9 0.14 0.1 1400
a9a            123 32561  16281 11954 84.8   452.07 18.59 84.8 0.27 0.0 1670
w1a            300  2477  47272   208 97.0    23.38 22.53 97.0 0.45 0.0   50
w2a            300  3470  46279   275 97.0    30.02 21.72 97.0 0.48 0.0   60
w3a            300  4912  44837   354 97.0    35.17 23.72 97.0 0.33 0.0  110
w4a            300  7366  42383   499 97.0    49.06 25.82 97.0 0.52 0.0   90
w5a            300  9888  39861   625 97.1    52.86 26.20 97.1 0.48 0.0  110
w6a            300 17188  32561  1131 97.2    79.62 26.37 97.2 0.52 0.0  150
w7a            300 24692  25057  1564 97.4    93.21 27.65 97.3 0.59 0.0  160
w8a            300 49749  14951  2958 97.4   105.50 30.66 97.4 0.42 0.0  250
pedestrian    3780 38868  19788  5026 94.5  1421.03 19.23 94.5 6.69 0.0  210
"""


def _read_table1(table: str) -> dict[str, Table1Row]:
    rows: dict[str, Table1Row] = {}
    for line in table.strip().splitlines():
        name, d, train, test, n_sv, svm, svm_s, depth, tree, tree_s, difference, gain = line.split()
        rows[name] = Table1Row(
            name,
            n_features=int(d),
            n_train=int(train),
            n_test=int(test),
            n_sv=int(n_sv),
            svm_accuracy=float(svm),
            svm_seconds=float(svm_s),
            depth=float(depth),
            tree_accuracy=float(tree),
            tree_seconds=None if tree_s == "~" else float(tree_s),
            difference=float(difference),
            gain=float(gain),
        )
    return rows


TABLE1: Final = _read_table1(_TABLE1)

TABLE2: Final = {
    row.name: row
    for row in (
        Table2Row("a1a", 642, 84.2, 160, (84.1, 84.2, 83.7, 84.2), 12.21, 12.72, 84.2, 0.15, 80),
        Table2Row("ijcnn1", 4555, 99.0, 200, (92.2, 97.1, 93.3, 96.5), 32.60, 23.19, 98.1, 0.50, 70),
    )
}

FIGURE2_POINTS: Final = 512
FIGURE2_MAX_DEPTH: Final = 14
FIGURE2_SHOWN_DEPTH: Final = 6
