"""A string-kernel SVM on DNA, and a tree that gives its labels for a few kernel values each.

    SVELTO_DATA=... python examples/string_kernel.py

Objects are strings of A, C, G and T, 60 letters around a place where a gene may be spliced; the label says whether it
is (data set "splice", which `svelto.datasets` looks for and downloads). scikit-learn trains on the Gram matrix, the
machine on strings is made with `KernelMachine.from_arrays`, and `accelerate(method="sv_tree")` needs nothing but more
strings and the kernel function. Takes less than a minute.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import joblib
import numpy as np
import string_kernels
from sklearn.svm import SVC

import svelto

# What the whole numbers of the file stand for: introns begin with GT and end with AG.
LETTERS = {1: "A", 2: "G", 3: "C", 4: "T"}
# Strings for training, for the tree (no labels needed), for choosing and checking thresholds, and for the table.
TRAIN, BUILD, CALIBRATION, TEST = 400, 600, 300, 500
# Strings that are timed in one call and one by one, and how often.
BATCH, SINGLE, REPEATS = 200, 20, 3
# name of the row, options of accelerate
TREES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("10 values", {"agreement": None}),
    ("30 values", {"agreement": None, "max_evals": 30}),
    ("30 values, agreement=0.95", {"agreement": 0.95, "max_evals": 30}),
)

# What a process does that has never seen the data: load, predict, write.
LATER = """
import sys, joblib
predictors, strings = joblib.load(sys.argv[1])
joblib.dump([predictor.predict(strings) for predictor in predictors], sys.argv[2])
"""


def load_strings() -> tuple[list[str], np.ndarray]:
    """All different strings of the two files in random order, and their labels."""
    data = svelto.datasets.load("splice")
    rows = np.vstack([data.X_train, data.X_test]).astype(int)
    labels = np.concatenate([data.y_train, data.y_test])
    label_of = {"".join(LETTERS[code] for code in row): label for row, label in zip(rows.tolist(), labels, strict=True)}
    strings = list(label_of)
    order = np.random.default_rng(0).permutation(len(strings))
    return [strings[i] for i in order], np.array([label_of[strings[i]] for i in order])


def train(kernel: Callable[..., np.ndarray], strings: list[str], y: np.ndarray) -> svelto.KernelMachine:
    """An SVC on the Gram matrix, as a machine on strings."""
    gram = kernel(strings, strings)
    svc = SVC(kernel="precomputed", C=1.0 / np.diagonal(gram).mean()).fit(gram, y)
    return svelto.KernelMachine.from_arrays(
        kernel=kernel,
        support_vectors=[strings[i] for i in svc.support_],
        dual_coef=svc.dual_coef_,
        intercept=svc.intercept_,
        classes=svc.classes_,
    )


def seconds(call: Callable[[], object]) -> float:
    """Time of a call in a process that knows no string yet."""
    string_kernels.forget()
    started = perf_counter()
    call()
    return perf_counter() - started


def time_ratios(predictors: list[svelto.Predictor], strings: list[str]) -> np.ndarray:
    """Time of the first predictor over that of each, shape (n, 2): strings in one call, and one by one; interleaved."""

    def one_by_one(predictor: svelto.Predictor) -> None:
        for string in strings[:SINGLE]:
            predictor.predict([string])

    times = np.empty((REPEATS, len(predictors), 2))
    for repeat in range(REPEATS):
        for number, predictor in enumerate(predictors):
            times[repeat, number, 0] = seconds(partial(predictor.predict, strings[:BATCH]))
            times[repeat, number, 1] = seconds(partial(one_by_one, predictor))
    return np.asarray(np.median(times[:, :1] / times, axis=0))


def answers_of_a_new_process(predictors: list[svelto.Predictor], strings: list[str]) -> list[np.ndarray]:
    """Save predictors, load them in another Python and ask them there. The kernel's module must be importable."""
    with tempfile.TemporaryDirectory() as folder:
        saved, answers = Path(folder) / "predictors.joblib", Path(folder) / "answers.joblib"
        joblib.dump((predictors, strings), saved)
        subprocess.run([sys.executable, "-c", LATER, saved, answers], check=True, cwd=Path(__file__).parent)
        return list(joblib.load(answers))


def compare(kernel: Callable[..., np.ndarray], parts: list[list[str]], labels: list[np.ndarray]) -> None:
    """Train and accelerate with one kernel, and print its lines of the table."""
    learn, build, calibration, test = parts
    machine = train(kernel, learn, labels[0])
    predictors = [svelto.accelerate(machine, method="exact")]
    for _, options in TREES:
        given = {} if options["agreement"] is None else {"X_calibration": calibration}
        predictors.append(svelto.accelerate(machine, build, method="sv_tree", random_state=0, **options, **given))
    answers = [predictor.predict(test) for predictor in predictors]
    for here, there in zip(answers, answers_of_a_new_process(predictors, test[:SINGLE]), strict=True):
        assert (here[:SINGLE] == there).all()
    microseconds = 1e6 * seconds(lambda: kernel(test[:50], machine.support_vectors)) / (50 * machine.n_sv)
    names = ("all support vectors", *(name for name, _ in TREES))
    ratios = time_ratios(predictors, test)
    for name, predictor, answer, (batch, single) in zip(names, predictors, answers, ratios, strict=True):
        is_tree = predictor.report.method == "sv_tree"
        values = predictor.work(test)["kernel_evaluations_per_row"] if is_tree else machine.n_sv
        cells = [f"{kernel.__name__}, {microseconds:.0f} us", name, predictor.report.promise]
        cells += [f"{np.mean(answer == other):.1%}" for other in (labels[3], answers[0])]
        cells += [f"{number:.1f}" for number in (values, machine.n_sv / values, batch, single)]
        print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Compare a cheap and a dear kernel."""
    strings, y = load_strings()
    cuts = np.cumsum([TRAIN, BUILD, CALIBRATION, TEST])
    starts = [0, *cuts[:-1]]
    parts = [strings[a:b] for a, b in zip(starts, cuts, strict=True)]
    labels = [y[a:b] for a, b in zip(starts, cuts, strict=True)]
    print(f"{TRAIN} strings to train on, {BUILD} to build trees on, {CALIBRATION} to calibrate, {TEST} new ones\n")
    print("| kernel, cost of a value | machine | promise | accuracy | same labels ", end="")
    print("| values a row | SVs / values | times as fast | ... one by one |")
    print("|---|---|---|---:|---:|---:|---:|---:|---:|")
    for kernel in (string_kernels.spectrum, string_kernels.subsequences):
        compare(kernel, parts, labels)
    print("\nSaved, loaded in a new process: the same labels.")


if __name__ == "__main__":
    main()
