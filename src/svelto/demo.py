"""The demonstration: train, accelerate, compare labels and time."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

import svelto
from svelto._progress import steps

COLUMNS: Final = (
    "data set",
    "method",
    "promise",
    "SVs",
    "features",
    "rows",
    "labels equal",
    "SVC.predict",
    "svelto",
    "ratio",
)
AGREEMENT: Final = 0.999


@dataclass(frozen=True)
class Line:
    """One method on one data set; seconds are of all rows."""

    data_set: str
    method: str
    promise: str
    n_sv: int
    n_features: int
    n_rows: int
    n_equal: int
    sklearn_seconds: float
    svelto_seconds: float

    def cells(self) -> list[str]:
        """What stands in `COLUMNS`."""
        return [
            self.data_set,
            self.method,
            self.promise,
            f"{self.n_sv:,}",
            f"{self.n_features}",
            f"{self.n_rows:,}",
            f"{self.n_equal}/{self.n_rows}",
            _seconds(self.sklearn_seconds),
            _seconds(self.svelto_seconds),
            f"{self.sklearn_seconds / self.svelto_seconds:.0f}x",
        ]


def run_demo(n_rows: int, seed: int, *, as_json: bool = False) -> None:
    """Compare methods with scikit-learn, and print a table or one JSON object."""
    lines = list(measure(n_rows, seed))
    if as_json:
        facts = {"agreement": AGREEMENT, "rows": n_rows, "seed": seed, "lines": [asdict(line) for line in lines]}
        print(json.dumps(facts, allow_nan=False))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Same labels, less time", caption=f"agreement={AGREEMENT}. Median of 3 runs each.")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in COLUMNS[:3] else "right")
    for line in lines:
        table.add_row(*line.cells())
    # In a file or a pipe the width is unknown, and a squeezed table helps nobody.
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def measure(n_rows: int, seed: int) -> Iterator[Line]:
    """One line for each data set and method."""
    from sklearn.datasets import load_digits, make_classification, make_moons
    from sklearn.model_selection import train_test_split
    from sklearn.svm import SVC

    digits = load_digits()
    generated = make_classification(
        3 * n_rows, 20, n_informative=10, n_clusters_per_class=8, flip_y=0.05, class_sep=0.8, random_state=seed
    )
    moons = make_moons(3 * n_rows, noise=0.3, random_state=seed)
    sets: dict[str, tuple[Any, Any, Any, float, tuple[str, ...]]] = {
        "digits, 10 classes": (SVC(gamma=0.001, C=10), digits.data, digits.target, 0.5, ("exact",)),
        "generated, 2 classes": (SVC(gamma=0.05, C=1), *generated, 2 / 3, ("exact",)),
        "moons, 2 classes": (
            SVC(gamma=1, C=10),
            *moons,
            2 / 3,
            ("exact", "hinges", "taylor_tree", "sv_tree", "reduced_set"),
        ),
    }
    for name, (svc, rows, labels, test_share, methods) in sets.items():
        with steps(name) as progress:
            progress("training")
            train, test, target, _ = train_test_split(rows, labels, test_size=test_share, random_state=seed)
            svc.fit(train, target)
        for method in methods:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # few rows, few promises: the table shows what is left
                fast = svelto.accelerate(svc, train, method=method, agreement=AGREEMENT, random_state=seed)
            with steps(name) as progress:
                progress(f"{method} predicts {len(test):,} rows")
                n_equal = int(np.count_nonzero(svc.predict(test) == fast.predict(test)))  # also the warm-up
                slow_s, fast_s = _median_seconds([svc.predict, fast.predict], test)
            yield Line(
                data_set=name,
                method=method,
                promise=fast.report.promise,
                n_sv=len(svc.support_),
                n_features=test.shape[1],
                n_rows=len(test),
                n_equal=n_equal,
                sklearn_seconds=slow_s,
                svelto_seconds=fast_s,
            )


def _median_seconds(functions: Sequence[Any], rows: Any, repeats: int = 3) -> list[float]:
    """Median time of each function; interleaved, so that a slow moment hits all of them."""
    seconds = np.empty((repeats, len(functions)))
    for repeat in range(repeats):
        for i, function in enumerate(functions):
            start = time.perf_counter()
            function(rows)
            seconds[repeat, i] = time.perf_counter() - start
    return [float(s) for s in np.median(seconds, axis=0)]


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.2f} ms"
