"""The support vector tree measured: growing, the budget of kernel values, several classes, the cascade, ensembles.

    python benchmarks/sv_tree.py --markdown docs/benchmarks/sv-tree.md
    python benchmarks/sv_tree.py --only growing --only classes

Agreement is always with the machine's own labels, on test rows that had no part in anything.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

import svelto
from _environment import describe
from _tables import table
from svelto import datasets
from svelto._inputs import Query
from svelto.engines.paper_paths import grow_paper
from svelto.engines.path_fit import Sample
from svelto.engines.path_growth import Growth, grow_refitted
from svelto.path_tree import flatten

Lines = Iterator[list[str]]
REPEATS = 3
# Tuned by cross-validation on the training rows of the first split (`svelto reproduce s1-table1`).
IDA = {"banana": (0.5, 2.0), "ringnorm": (0.5, 0.125), "image": (8.0, 0.5), "thyroid": (128.0, 0.125)}
CLASSES = (
    ("iris.scale", 10.0, 0.5),
    ("vowel.scale", 16.0, 1.0),
    ("segment.scale", 16.0, 1.0),
    ("dna.scale", 4.0, 0.03),
)
CASCADES = (("ida_banana", 0.5, 2.0), ("ijcnn1", 1.0, 1 / 22), ("ijcnn1", 16.0, 0.5), ("a9a", 1.0, 1 / 123))


def growing() -> Lines:
    """Seconds to grow a tree on 10,000 rows x 2,000 columns, and memory beside that matrix."""
    n, m, d = 10_000, 2_000, 20
    rng = np.random.default_rng(0)
    X, new, coef = rng.normal(size=(n, d)), rng.normal(size=(n // 4, d)), rng.normal(size=m)
    kernel = {"grow": rbf_kernel(X, X[:m], gamma=0.05), "new": rbf_kernel(new, X[:m], gamma=0.05)}
    mean = kernel["grow"].mean(axis=0)
    scores = {name: (K @ coef)[:, None] for name, K in kernel.items()}
    centred = {name: (K - mean).astype(np.float32) for name, K in kernel.items()}
    plain = {name: K.astype(np.float32) for name, K in kernel.items()}
    del kernel

    def refitted(linear: bool, threads: int) -> float:
        q = d if linear else 0
        values = centred["grow"].copy()
        grow = Sample(values, X[:, :q], scores["grow"], np.ones(n))
        check = Sample(centred["new"], new[:, :q], scores["new"], np.ones(len(new)))
        tree = flatten(grow_refitted(grow, check, Growth(10, 40), 0, threads), 1)
        walk = tree.walk(lambda rows, column: centred["new"][rows, column], len(new))
        return error(tree.scores(walk, new if linear else None))

    def paper(threads: int) -> float:
        root = grow_paper(
            plain["grow"].copy(), coef[None], scores["grow"], rng=np.random.default_rng(0), n_threads=threads
        )
        return error(flatten(root, 1).predict(plain["new"])[:, None])

    def error(found: np.ndarray) -> float:
        return float(((found - scores["new"]) ** 2).mean() / scores["new"].var())

    sides: dict[str, Callable[[int], float]] = {
        "refitted, kernel values alone": lambda threads: refitted(False, threads),
        "refitted, with a linear term": lambda threads: refitted(True, threads),
        "paper": paper,
    }
    yield [
        "tree",
        "seconds, 1 thread",
        "2 threads",
        "peak memory beside the matrix, MB",
        "relative square error, new rows",
    ]
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(REPEATS):
        for name, grow in sides.items():
            for threads in (1, 2):
                started = time.perf_counter()
                grow(threads)
                times.setdefault((name, threads), []).append(time.perf_counter() - started)
    for name, grow in sides.items():
        tracemalloc.start()
        found = grow(1)
        peak = (tracemalloc.get_traced_memory()[1] - centred["grow"].nbytes) / 2**20
        tracemalloc.stop()
        yield [name, *(f"{np.median(times[name, t]):.1f}" for t in (1, 2)), f"{peak:.0f}", f"{found:.3g}"]


def budget() -> Lines:
    """Agreement by the largest number of kernel values, and what the paper's tree and a reduced set reach."""
    sizes = (4, 8, 12, 16, 24, 32)
    yield ["data", "SVs", *(f"{size} values" for size in sizes), "paper's tree (values)", "reduced set of 12"]
    for name, (C, gamma) in IDA.items():
        rows = datasets.load(f"ida_{name}", split=0, dense=True)
        svc = SVC(C=C, gamma=gamma).fit(rows.X_train, rows.y_train)
        labels = svc.predict(rows.X_test)

        def build(method: str, **options: object) -> svelto.Predictor:
            return svelto.accelerate(svc, rows.X_train, method=method, agreement=None, random_state=0, **options)  # noqa: B023

        found = [build("sv_tree", max_evals=size) for size in sizes]
        paper, reduced = build("sv_tree", tree="paper"), build("reduced_set", n_basis=12)
        agree = [float((fast.predict(rows.X_test) == labels).mean()) for fast in (*found, paper, reduced)]
        values = paper.work(rows.X_test)["kernel_evaluations_per_row"]
        yield [
            name,
            str(len(svc.support_)),
            *(f"{a:.4f}" for a in agree[: len(sizes)]),
            f"{agree[-2]:.4f} ({values:.1f})",
            f"{agree[-1]:.4f}",
        ]


def classes() -> Lines:
    """One tree for all pairs of classes beside a tree for each: kernel values a row, and agreement."""
    yield ["data", "classes", "SVs", "trees", "limit a tree", "kernel values a row", "agreement", "seconds to build"]
    for name, C, gamma in CLASSES:
        X, y, test = parts(name)
        svc = SVC(C=C, gamma=gamma).fit(X, y)
        labels = svc.predict(test)
        for shared, limit in ((True, 6), (True, 12), (True, 24), (False, 2), (False, 4)):
            started = time.perf_counter()
            fast = svelto.accelerate(
                svc, X, method="sv_tree", agreement=None, random_state=0, shared=shared, max_evals=limit
            )
            seconds = time.perf_counter() - started
            n_trees = "1" if shared else str(fast.machine.n_scores)
            values = fast.work(test)["kernel_evaluations_per_row"]
            agreement = float((fast.predict(test) == labels).mean())
            sizes = [str(len(svc.classes_)), str(len(svc.support_))]
            yield [name, *sizes, n_trees, str(limit), f"{values:.1f}", f"{agreement:.4f}", f"{seconds:.1f}"]


def cascade() -> Lines:
    """The stage in a cascade with a promise of 0.999: what it settles, and time beside the exact engine."""
    yield [
        "data, C, gamma",
        "method",
        "promise",
        "agreement",
        "settled",
        "kernel values a row",
        "over exact, 1 thread",
        "2",
    ]
    for name, C, gamma in CASCADES:
        X, y, test = parts(name)
        svc = SVC(C=C, gamma=gamma, cache_size=1000).fit(X, y)
        exact = svelto.accelerate(svc, method="exact")
        labels = exact.predict(test)
        for method, options in (
            ("sv_tree", {}),
            ("sv_tree", {"max_evals": 32}),
            ("reduced_set", {}),
            ("taylor_tree", {}),
        ):
            fast = svelto.accelerate(svc, X, method=method, agreement=0.999, random_state=0, **options)
            work = fast.work(test)
            ratios = [ratio(exact, fast, test, threads) for threads in (1, 2)]
            what = method + "".join(f", {key}={value}" for key, value in options.items())
            yield [
                f"{name}, {C:g}, {gamma:.3g}",
                what,
                fast.report.promise,
                f"{(fast.predict(test) == labels).mean():.5f}",
                f"{1.0 - work['stages']['exact']:.3f}",
                f"{work['kernel_evaluations_per_row']:.1f}",
                *(f"{r:.2f}" for r in ratios),
            ]


def ensembles() -> Lines:
    """`svelto.path_tree` on the members of ensembles: members asked a row, and agreement with the whole ensemble."""
    rows = datasets.load("ida_image", split=0, dense=True)
    X, y = rows.X_train, (rows.y_train > 0).astype(int)
    boosted = GradientBoostingClassifier(n_estimators=500, max_depth=3, random_state=0).fit(X, y)
    forest = RandomForestClassifier(n_estimators=500, random_state=0).fit(X, y)

    def boosted_terms(part: np.ndarray) -> np.ndarray:
        return boosted.learning_rate * np.column_stack([tree.predict(part) for tree in boosted.estimators_[:, 0]])

    def forest_terms(part: np.ndarray) -> np.ndarray:
        votes = [tree.predict_proba(part)[:, 1] - 0.5 for tree in forest.estimators_]
        return np.column_stack(votes) / len(votes)

    yield ["ensemble", "members", "tree", "members asked", "agreement", "correlation of scores"]
    # Rows between training rows: members fit the training rows themselves too well.
    rng = np.random.default_rng(0)
    a, b = rng.integers(len(X), size=(2, 20_000))
    between = X[a] + rng.random((len(a), 1)) * (X[b] - X[a])
    for name, terms_of in (("boosted trees", boosted_terms), ("forest", forest_terms)):
        terms, new = terms_of(between), terms_of(rows.X_test)
        # What boosting starts from is no member's answer.
        start = boosted.decision_function(X[:1])[0] - boosted_terms(X[:1]).sum() if terms_of is boosted_terms else 0.0
        exact = new.sum(axis=1) + start
        for kind, options in (
            ("paper", {"tree": "paper"}),
            ("refitted", {"max_evals": 10}),
            ("refitted", {"max_evals": 20}),
        ):
            tree = svelto.path_tree(terms, random_state=0, **options)
            found = tree.predict(new) + start
            asked = tree.evaluations(new).mean()
            agree = ((found > 0) == (exact > 0)).mean()
            yield [
                name,
                str(terms.shape[1]),
                kind,
                f"{asked:.1f}",
                f"{agree:.4f}",
                f"{np.corrcoef(found, exact)[0, 1]:.4f}",
            ]


def ratio(exact: svelto.Predictor, fast: svelto.Predictor, rows: np.ndarray, threads: int) -> float:
    """Time of the exact engine over that of the cascade, interleaved, median."""
    query, found = Query(np.ascontiguousarray(rows)), []
    for _ in range(2 * REPEATS + 1):
        started = time.perf_counter()
        exact._engine.labels(query, threads)
        middle = time.perf_counter()
        fast._engine.labels(query, threads)
        found.append((middle - started) / (time.perf_counter() - middle))
    return float(np.median(found))


def parts(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training rows, labels and test rows, dense; a random third where the set has no test part."""
    bunch = datasets.load(name, split=0) if name.startswith("ida_") else datasets.load(name)
    dense = [None if part is None else _dense(part) for part in (bunch.X_train, bunch.X_test)]
    X, y = dense[0], np.asarray(bunch.y_train)
    if dense[1] is not None:
        return X, y, dense[1]
    order = np.random.default_rng(0).permutation(len(X))
    train, test = order[len(X) // 3 :], order[: len(X) // 3]
    return X[train], y[train], X[test]


def _dense(part: object) -> np.ndarray:
    return np.asarray(part.toarray() if sparse.issparse(part) else part, dtype=np.float64)


PARTS: dict[str, tuple[str, Callable[[], Lines]]] = {
    part.__name__: (part.__doc__ or "", part) for part in (growing, budget, classes, cascade, ensembles)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(PARTS))
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    facts = describe()
    command = "python benchmarks/sv_tree.py" + "".join(f" --only {name}" for name in arguments.only or ())
    sections = ["# The support vector tree", f"Written by `{command}`. {facts['cpu']}, commit {facts['commit']}."]
    for name in arguments.only or PARTS:
        text, part = PARTS[name]
        titles, *lines = _shown(part())
        sections += [f"## {name.capitalize()}", text, table(titles, lines)]
    if arguments.markdown:
        arguments.markdown.write_text("\n\n".join(sections) + "\n")


def _shown(lines: Lines) -> Lines:
    for line in lines:
        print(" | ".join(line), flush=True)
        yield line


if __name__ == "__main__":
    main()
