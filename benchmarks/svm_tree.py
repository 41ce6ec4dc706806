"""The decision tree of linear SVMs measured: the H1 solver, training on many rows, prediction beside the exact engine.

    python benchmarks/svm_tree.py --markdown docs/benchmarks/svm-tree.md
    python benchmarks/svm_tree.py --only solver --only training

Accuracy on the papers' data sets is in docs/reproduction/s2-tables5.md (`svelto reproduce s2-tables5`).
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

import svelto
from _environment import describe
from _tables import table
from _timing import batch_call, interleave, thread_count, timed
from svelto import datasets
from svelto.reproduce._s2_machines import PAPER_TREE
from svelto.training.hull_projection import project_onto_hull

Lines = Iterator[list[str]]
REPEATS = 5
HULLS = ((1_000, 10), (5_000, 200), (20_000, 617), (100_000, 50))
SETS = (("usps", 10.0, 0.01), ("dna.scale", 4.0, 0.03), ("satimage.scale", 16.0, 1.0), ("ijcnn1", 16.0, 0.5))


def solver() -> Lines:
    """One H1 problem: the nearest point of the hull of n rows to a point outside, on the edge of doubt, inside."""
    for n, d in HULLS:
        rng = np.random.default_rng(0)
        points = rng.normal(size=(n, d)) * np.geomspace(1.0, 0.1, d)
        away = rng.normal(size=d)
        away /= np.linalg.norm(away)
        edge = float((points @ away).max())
        for place, target in (
            ("far", 3.0 * edge * away),
            ("near", 1.01 * edge * away),
            ("inside", points.mean(axis=0)),
        ):
            for threads in (1, 2):
                started = time.perf_counter()
                found = project_onto_hull(points, target, n_threads=threads)
                seconds = time.perf_counter() - started
                support = int((found.weights > 0).sum())
                yield [
                    f"{n:,} x {d}",
                    place,
                    str(threads),
                    f"{seconds:.3f}",
                    found.status,
                    f"{found.gap:.0e}" if found.status != "zero" else "-",
                    str(found.n_passes),
                    f"{found.n_steps:,}",
                    str(support),
                ]


def training() -> Lines:
    """Trees of 100,000 rows x 50 features, with and without overlap; 2 threads."""
    for name, options in (
        ("separable", {"class_sep": 3.0, "n_clusters_per_class": 1, "flip_y": 0.0}),
        ("8 clusters", {"class_sep": 2.0, "n_clusters_per_class": 4, "flip_y": 0.0}),
        ("8 clusters, 5 % of the labels wrong", {"class_sep": 2.0, "n_clusters_per_class": 4, "flip_y": 0.1}),
    ):
        X, y = make_classification(120_000, 50, n_informative=20, random_state=0, **options)
        kinds = {"linear": {"tail": None}, "linear, the paper's": PAPER_TREE}
        if name == "separable":  # elsewhere LIBSVM on all rows, which is the tail, takes far longer than the tree
            kinds["with RBF tail"] = {}
        for kind, parameters in kinds.items():
            started = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                tree = svelto.SVMTreeClassifier(random_state=0, **parameters).fit(X[:100_000], y[:100_000])
            seconds = time.perf_counter() - started
            accuracy = tree.score(X[100_000:], y[100_000:])
            yield [
                name,
                kind,
                f"{seconds:.0f}",
                str(tree.n_grown_[0]),
                str(tree.n_nodes_),
                tree.ended_[0],
                f"{accuracy:.4f}",
            ]


def prediction() -> Lines:
    """All test rows in one call and single rows, beside the exact engine on the tail's own machine."""
    for name, cost, gamma in SETS:
        data = datasets.load(name)
        X, y, X_test, y_test = data.X_train, data.y_train, data.X_test, data.y_test
        if len(y) > 20_000:
            X, y = X[:20_000], y[:20_000]
        X, X_test = (rows.toarray() if hasattr(rows, "toarray") else rows for rows in (X, X_test))
        machine = SVC(C=cost, gamma=gamma)
        trees = {
            "tail": svelto.SVMTreeClassifier(tail=machine, scale=None, random_state=0).fit(X, y),
            "linear": svelto.SVMTreeClassifier(tail=None, scale=None, random_state=0).fit(X, y),
        }
        svc = machine.fit(X, y)
        exact = svelto.accelerate(svc, method="exact")
        for threads in (1, 2):
            for batch in (X_test.shape[0], 1):
                sides = {"exact": exact, **trees}
                with thread_count(threads):
                    measures = {key: timed(batch_call(side.predict, X_test, batch)) for key, side in sides.items()}
                    seconds = {key: times[1] for key, times in interleave(measures, REPEATS).items()}
                for key, tree in trees.items():
                    ratio = np.median(seconds["exact"] / seconds[key])
                    work = tree.work(X_test)
                    yield [
                        name,
                        str(len(svc.support_)),
                        key,
                        str(threads),
                        "all" if batch > 1 else "1",
                        f"{100 * tree.score(X_test, y_test):.2f} ({100 * exact_score(exact, X_test, y_test):.2f})",
                        str(tree.n_nodes_),
                        f"{work['planes']:.1f}",
                        f"{100 * work['settled']:.1f} %",
                        f"{1e6 * np.median(seconds[key]) / batch:.2f}",
                        f"{ratio:.1f}",
                    ]


def exact_score(fast: svelto.Predictor, X: np.ndarray, y: np.ndarray) -> float:
    return float((fast.predict(X) == y).mean())


PARTS = {
    "solver": (
        "The H1 solver",
        solver,
        ["rows x features", "target", "threads", "s", "status", "relative gap", "passes", "steps", "support"],
    ),
    "training": (
        "Training on 100,000 rows x 50 features, 2 threads",
        training,
        ["data", "tree", "s", "hyperplanes grown", "kept", "ended by", "accuracy on 20,000 new rows"],
    ),
    "prediction": (
        "Prediction; how many times longer the exact engine takes on the RBF machine that is the tail",
        prediction,
        [
            "data set",
            "SVs",
            "tree",
            "threads",
            "batch",
            "accuracy % (RBF)",
            "hyperplanes",
            "met a row",
            "settled",
            "us a row",
            "exact over tree",
        ],
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=tuple(PARTS))
    parser.add_argument("--markdown", type=Path, help="write the page here")
    arguments = parser.parse_args()
    facts = describe()
    command = "python benchmarks/svm_tree.py" + "".join(f" --only {name}" for name in arguments.only or ())
    page = ["# The decision tree of linear SVMs", f"Written by `{command}`. {facts['cpu']}, commit {facts['commit']}."]
    for name, (title, measure, columns) in PARTS.items():
        if arguments.only and name not in arguments.only:
            continue
        lines = []
        print(f"\n{title}\n{' | '.join(columns)}", flush=True)
        for line in measure():
            print(" | ".join(line), flush=True)
            lines.append(line)
        page += [f"## {title}", table(columns, lines)]
    if arguments.markdown is not None:
        arguments.markdown.write_text("\n\n".join(page) + "\n")


if __name__ == "__main__":
    main()
