"""What `svelto.patch_sklearn` brings, and what its checks cost: SVC.predict with and without it, batch by batch.

    python benchmarks/patch_sklearn.py [--only NAME] [--repeats N] [--rows N]

Machines have scikit-learn's defaults and are trained on at most 10,000 rows. A patched call still validates its rows as
scikit-learn does and compares the estimator with what was compiled; `accelerate` does neither, so the distance between
the two ratios is the price of not touching the calling code. Labels are compared before anything is timed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import numpy as np
from scipy import sparse
from sklearn.svm import SVC

import svelto
from _environment import describe
from _timing import Measure, batch_call, interleave, spread, thread_count, timed

DATA_SETS = ("a9a", "ijcnn1")
BATCHES = (1, 100, 5000)
MOST_ROWS = 10_000
HEAD = f"{'data':<8}{'SVs':>7}{'d':>5}{'threads':>9}{'batch':>7}{'SVC ms':>10}{'patched ms':>12}"
HEAD += f"{'SVC / patched [10 %, 90 %]':>29}{'SVC / accelerate':>18}"


def dense(X: object) -> np.ndarray:
    return X.toarray() if sparse.issparse(X) else np.asarray(X)


def with_patch(measure: Callable[[], object]) -> Callable[[], object]:
    """Do the whole measure under the patch, so that switching it on and off is not part of a call."""

    def run() -> object:
        with svelto.patched():
            return measure()

    return run


def measures(svc: SVC, fast: svelto.Predictor, rows: np.ndarray, batch: int) -> dict[str, Measure]:
    predict = {"SVC": svc.predict, "patched": svc.predict, "accelerate": fast.predict}
    calls = {name: batch_call(function, rows, batch) for name, function in predict.items()}
    make = {name: partial(timed, call) for name, call in calls.items()}
    make["patched"] = with_patch(make["patched"])  # warming up is part of making it
    made = {name: function() for name, function in make.items()}
    made["patched"] = with_patch(made["patched"])
    return made


def run_case(name: str, svc: SVC, rows: np.ndarray, repeats: int) -> list[str]:
    expected = svc.predict(rows)
    with svelto.patched():
        differ = int((svc.predict(rows) != expected).sum())
    lines = [f"{name}: {differ} of {len(rows)} labels differ"]
    for threads in (1, 2):
        fast = svelto.accelerate(svc, method="exact", n_jobs=threads)
        with thread_count(threads):
            for batch in BATCHES:
                seconds = {k: v[1] for k, v in interleave(measures(svc, fast, rows, batch), repeats).items()}
                ratio, bare = (
                    spread(seconds["SVC"] / seconds["patched"]),
                    spread(seconds["SVC"] / seconds["accelerate"]),
                )
                milliseconds = [1e3 * float(np.median(seconds[side])) for side in ("SVC", "patched")]
                interval = f"{ratio['median']:.1f} [{ratio['q10']:.1f}, {ratio['q90']:.1f}]"
                lines.append(
                    f"{name:<8} {len(svc.support_):>6}{rows.shape[1]:>5}{threads:>9}{min(batch, len(rows)):>7}"
                    f"{milliseconds[0]:>10.3f}{milliseconds[1]:>12.3f}{interval:>29}{bare['median']:>18.1f}"
                )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=DATA_SETS, help="one data set")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", type=int, default=MOST_ROWS, help="training rows")
    arguments = parser.parse_args()
    for fact, value in describe().items():
        print(f"{fact}: {value}")
    print("\n" + HEAD)
    for name in (arguments.only,) if arguments.only else DATA_SETS:
        data = svelto.datasets.load(name)
        n_rows = min(arguments.rows, MOST_ROWS)
        svc = SVC().fit(dense(data.X_train[:n_rows]), data.y_train[:n_rows])
        for line in run_case(name, svc, dense(data.X_test[: max(BATCHES)]), arguments.repeats):
            print(line, flush=True)


if __name__ == "__main__":
    main()
