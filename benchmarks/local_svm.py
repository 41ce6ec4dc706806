"""Local SVMs measured: CoverType from 10,000 to 556,000 rows, 2SPIRAL, and the solver beside scikit-learn's.

    python benchmarks/local_svm.py --markdown docs/benchmarks/local-svm.md --plot docs/benchmarks/local-growth.png
    python benchmarks/local_svm.py --only spirals

CoverType: 25,000 random rows test, the others train (rows 0 to 24,999 and the rest of one permutation); smaller
training sets are the first rows of the rest. k and C are those that `svelto reproduce s4-table3` chooses on training
rows for weighed features. 2SPIRAL: as in `svelto reproduce s4-table2`, with its noise; test rows are a second draw.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.svm import SVC

import svelto
from _environment import describe
from _parts import command_of, measured, parser_of, write_page
from svelto import datasets
from svelto.reproduce.s4 import SPIRAL_NOISE
from svelto.training._local.fits import KernelChoice, fit_local
from svelto.training._local.neighbours import NeighbourIndex

Lines = Iterator[list[str]]
SIZES = (10_000, 20_000, 50_000, 100_000, 200_000, 400_000, 556_012)
SVC_SIZES = (10_000, 20_000)
N_TEST = 25_000
LOCAL = {"k": 200, "C": 10.0, "random_state": 0}
KINDS = {
    "as the paper, gamma by neighbourhood": {},
    "features weighed": {"metric": "learned"},
    "features weighed, 5 votes": {"metric": "learned", "vote": 5},
}
METRIC_SETS = ("ijcnn1", "letter.scale", "segment.scale", "pendigits", "svmguide1", "satimage.scale", "a9a", "usps")
GROWTH: dict[str, list[tuple[int, float]]] = {}


def covertype() -> Lines:
    """Accuracy on 25,000 rows, seconds of training and of predicting them, with 2 threads."""
    bunch = datasets.load("covtype.libsvm.binary.scale", part="whole", dense=True)
    order = np.random.default_rng(0).permutation(len(bunch.y_train))
    test, rest = order[:N_TEST], order[N_TEST:]
    X_test, y_test = bunch.X_train[test], bunch.y_train[test]
    for n in SIZES:
        X, y = bunch.X_train[rest[:n]], bunch.y_train[rest[:n]]
        for name, options in KINDS.items():
            local, training = timed(svelto.LocalSVC(n_jobs=2, **LOCAL, **options).fit, X, y)
            labels, asking = timed(local.predict, X_test)
            GROWTH.setdefault(name, []).append((n, training))
            yield [
                f"{n:,}",
                f"LocalSVC, {name}",
                f"{100 * (labels == y_test).mean():.2f}",
                f"{training:.1f}",
                f"{asking:.2f}",
                f"{local.n_models_:,}",
                f"{local.n_svms_:,}",
                f"{local.work(X_test)['kernel_values']:.0f}",
                f"{peak_gb():.1f}",
            ]
        if n in SVC_SIZES:
            svc, training = timed(SVC(C=10.0, gamma=10.0).fit, X, y)
            labels, asking = timed(svc.predict, X_test)
            accuracy = f"{100 * (labels == y_test).mean():.2f}"
            own = f"{len(svc.support_):,}"
            yield [f"{n:,}", "SVC", accuracy, f"{training:.1f}", f"{asking:.2f}", "1", "1", own, ""]


def against_svc() -> Lines:
    """CoverType, 100,000 rows: training by scikit-learn's SVC (one thread by nature) and here, with 1 and 2 threads."""
    bunch = datasets.load("covtype.libsvm.binary.scale", part="whole", dense=True)
    order = np.random.default_rng(0).permutation(len(bunch.y_train))
    test, train = order[:N_TEST], order[N_TEST : N_TEST + 100_000]
    X, y, X_test, y_test = bunch.X_train[train], bunch.y_train[train], bunch.X_train[test], bunch.y_train[test]
    svc, longest = timed(SVC(C=10.0, gamma=10.0).fit, X, y)
    labels, asking = timed(svc.predict, X_test)
    yield [
        "SVC, C = 10, gamma = 10",
        "1",
        f"{100 * (labels == y_test).mean():.2f}",
        f"{longest:.1f}",
        "1",
        f"{asking:.2f}",
    ]
    for name, options in list(KINDS.items())[:2]:
        for n_jobs in (1, 2):
            local, training = timed(svelto.LocalSVC(n_jobs=n_jobs, **LOCAL, **options).fit, X, y)
            labels, asking = timed(local.predict, X_test)
            accuracy = f"{100 * (labels == y_test).mean():.2f}"
            ratio = f"{longest / training:.0f}"
            yield [f"LocalSVC, {name}", str(n_jobs), accuracy, f"{training:.2f}", ratio, f"{asking:.2f}"]


def spirals() -> Lines:
    """2SPIRAL, 100,000 rows to train on and as many to ask, with 1 and 2 threads."""
    (X, y), (X_test, y_test) = (datasets.two_spirals(100_000, noise=SPIRAL_NOISE, random_state=seed) for seed in (0, 1))
    for name, options in (
        ("linear, the paper's k and C", {"k": 250, "k_prime": 62, "kernel": "linear", "C": 2.0**10}),
        ("rbf, the paper's k, C and sigma", {"k": 1000, "k_prime": 250, "C": 2.0**8, "gamma": 2.0**5}),
        ("rbf, C = 1, gamma by neighbourhood", {"k": 1000, "k_prime": 250}),
    ):
        for n_jobs in (1, 2):
            local, training = timed(svelto.LocalSVC(random_state=0, n_jobs=n_jobs, **options).fit, X, y)
            labels, asking = timed(local.predict, X_test)
            accuracy = f"{100 * (labels == y_test).mean():.2f}"
            yield [name, str(n_jobs), accuracy, f"{training:.2f}", f"{asking:.2f}", f"{local.n_svms_:,}"]


def metrics() -> Lines:
    """Accuracy in % by three-fold cross-validation on training rows, at most 6,000 of them; k = 200, C = 10."""
    for name in METRIC_SETS:
        bunch = datasets.load(name, dense=True)
        X, y = bunch.X_train[:6_000], bunch.y_train[:6_000]
        found = []
        for metric in ("euclidean", "learned"):
            local = svelto.LocalSVC(metric=metric, **LOCAL)
            folds = StratifiedKFold(3, shuffle=True, random_state=0)
            found.append(100 * cross_val_score(local, X, y, cv=folds).mean())
        yield [name, f"{X.shape[0]:,} x {X.shape[1]}", *(f"{accuracy:.2f}" for accuracy in found)]


def solver() -> Lines:
    """Milliseconds of processor time for an SVM of a neighbourhood of CoverType, one thread."""
    bunch = datasets.load("covtype.libsvm.binary.scale", part="whole", dense=True)
    X, y = bunch.X_train[:200_000], (bunch.y_train[:200_000] == bunch.y_train.max()).astype(np.int32)
    centres = np.random.default_rng(0).permutation(len(X))[:400]
    index = NeighbourIndex(X)
    for k, cost, gamma in ((200, 16.0, 1.0), (200, 32.0, 32.0), (500, 16.0, 1.0), (500, 32.0, 32.0)):
        rows = index.query(X[centres], k)[0]
        mixed = rows[[len(set(y[part])) == 2 for part in rows]][:100]
        start = np.arange(len(mixed) + 1) * k
        given = (X, y, start, mixed.ravel())
        ours = fastest(lambda g=given, c=cost, w=gamma: fit_local(*g, kernel=KernelChoice(), C=c, gamma=w, n_jobs=1))
        svc = SVC(C=cost, gamma=gamma)
        theirs = fastest(lambda s=svc, m=mixed: [s.fit(X[part], y[part]) for part in m])
        each = [1e3 * seconds / len(mixed) for seconds in (ours, theirs)]
        yield [f"{k}", f"{cost:g}", f"{gamma:g}", f"{each[0]:.3f}", f"{each[1]:.3f}", f"{each[1] / each[0]:.1f}"]


def timed(call, *arguments):
    started = time.perf_counter()
    result = call(*arguments)
    return result, time.perf_counter() - started


def fastest(call, repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        started = time.process_time()
        call()
        times.append(time.process_time() - started)
    return min(times)


def peak_gb() -> float:
    """Most memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


PARTS = {
    "covertype": (
        "CoverType",
        covertype,
        ["rows", "", "accuracy %", "training s", "25,000 rows s", "models", "SVMs", "kernel values a row", "peak GB"],
    ),
    "svc": (
        "Beside SVC",
        against_svc,
        ["", "threads", "accuracy %", "training s", "times faster", "25,000 rows s"],
    ),
    "spirals": ("2SPIRAL", spirals, ["", "threads", "accuracy %", "training s", "100,000 rows s", "SVMs"]),
    "metrics": ("What weighing features does elsewhere", metrics, ["data set", "rows", "euclidean", "learned"]),
    "solver": (
        "The solver beside scikit-learn's",
        solver,
        ["k", "C", "gamma", "ms an SVM", "SVC.fit, ms", "ratio"],
    ),
}


def plot_growth(path: Path) -> None:
    """Training time by rows, and n log n through the last point of each line."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    for name, points in GROWTH.items():
        n, seconds = (np.array(column) for column in zip(*points, strict=True))
        (line,) = axes.loglog(n, seconds, "o-", label=name)
        axes.loglog(n, seconds[-1] * n * np.log(n) / (n[-1] * np.log(n[-1])), ":", color=line.get_color(), linewidth=1)
    axes.set_xlabel("training rows (CoverType)")
    axes.set_ylabel("training, s")
    axes.set_title("dotted: n log n", fontsize=9)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120, bbox_inches="tight")


def main() -> None:
    parser = parser_of(__doc__, PARTS)
    parser.add_argument("--plot", type=Path, help="write the growth of training time to this picture")
    given = parser.parse_args()
    facts = describe()
    command = command_of("local_svm.py", given)
    text = [f"# Local SVMs\n\nWritten by `{command}`. {facts['cpu']}, commit {facts['commit']}."]
    for name, section in measured(PARTS, given):
        text.append(section)
        if name == "covertype" and given.plot is not None:
            plot_growth(given.plot)
            text[-1] += f"\n\n![Training time by rows]({given.plot.name})"
    write_page(text, given)


if __name__ == "__main__":
    main()
