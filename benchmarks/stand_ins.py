"""Are stand-ins like new rows? Disagreement of a Taylor tree with its machine on three kinds of rows.

    python benchmarks/stand_ins.py --markdown docs/benchmarks/stand-ins.md

A machine is trained on part of a data set and accelerated with that part as X, as users do. For a range of thresholds,
the share of rows that would be settled with a wrong label is counted on (a) the training rows themselves, (b) stand-ins
made of them, (c) rows of the data set that neither machine nor tree has seen. Calibration on (a) is too hopeful where
the kernel is sharp; (b) is what `accelerate` uses.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.svm import SVC

import svelto
from svelto import datasets
from svelto._inputs import Query
from svelto.calibrate import trace_stage
from svelto.calibration_rows import gather_rows

# name, C, gamma; from smooth to sharp. Multi-class sets: the first half of the classes against the second.
MACHINES = (
    ("ijcnn1", 1.0, 1 / 22),
    ("ijcnn1", 16.0, 0.5),
    ("ijcnn1", 100.0, 2.0),
    ("a9a", 1.0, 1 / 123),
    ("a9a", 8.0, 0.03),
    ("letter.scale", 16.0, 4.0),
)
THRESHOLDS = (0.0, 1.0, 2.0, 4.0, 6.0, 8.0)
MOST_ROWS = 50_000


def halves(name: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training rows, their signs, and new rows from the same file."""
    bunch = datasets.load(name)
    X, y = bunch.X_train, np.asarray(bunch.y_train)
    X = np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)[:MOST_ROWS]
    positive = y[:MOST_ROWS] >= np.median(np.unique(y))
    order = np.random.default_rng(seed).permutation(len(X))
    train, new = order[: int(0.6 * len(X))], order[int(0.6 * len(X)) :]
    return X[train], positive[train], X[new]


def measure(name: str, C: float, gamma: float, seed: int = 0) -> list[dict[str, float]]:
    X, y, new = halves(name, seed)
    svc = SVC(C=C, gamma=gamma, cache_size=1000).fit(X, y)
    fast = svelto.accelerate(svc, X, method="taylor_tree", agreement=0.99, random_state=seed)
    machine, stage, exact = fast.machine, fast._engine.stages[0], fast._engine.exact
    stand_ins = gather_rows(machine, X, None, 0.01, 0.95, seed + 1, None).check[: len(new)]
    kinds = {"training rows": X, "stand-ins": stand_ins, "new rows": new}
    traces = {}
    for kind, rows in kinds.items():
        labels = exact.labels(Query(rows))[0]
        traces[kind] = trace_stage(stage, machine, rows, np.empty((0, 0)), labels, None, None)
    return [
        {
            "threshold": t,
            **{kind: float(np.mean(trace.wrong & (trace.caution > t))) for kind, trace in traces.items()},
            **{f"open, {kind}": float(np.mean(trace.caution <= t)) for kind, trace in traces.items()},
        }
        for t in THRESHOLDS
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    lines = [
        "# Stand-ins beside new rows",
        "",
        "Share of rows that a Taylor tree would settle with a label that is not its machine's, in brackets the share "
        "it would send on, by threshold. The machine was trained on the training rows; the tree was built on them.",
        "",
        "| data, C, gamma | threshold | training rows | stand-ins | new rows |",
        "|---|---|---|---|---|",
    ]
    for name, C, gamma in MACHINES:
        for row in measure(name, C, gamma):
            cells = " | ".join(
                f"{row[kind]:.5f} ({row['open, ' + kind]:.1%})" for kind in ("training rows", "stand-ins", "new rows")
            )
            lines.append(f"| {name}, {C:g}, {gamma:.3g} | {row['threshold']:g} | {cells} |")
            print(lines[-1], flush=True)
    lines += ["", "Written by `python benchmarks/stand_ins.py`.", ""]
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
