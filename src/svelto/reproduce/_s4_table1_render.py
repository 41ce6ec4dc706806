"""Markdown of paper S4's Table 1, from the JSON document alone; and the t-test behind its marks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from scipy import stats

from svelto.reproduce import _paper_s4
from svelto.reproduce._common import Record
from svelto.reproduce._paper_s4 import PAPER
from svelto.reproduce._tables import busy, origin, table

KERNELS: Final = ("LIN", "RBF", "HPOL", "IPOL")
LOCAL_MACHINES: Final = ("KNNSVC", "LocalSVC")
# LocalSVC again, with the one-standard-error rule.
CAUTIOUS: Final = "LocalSVC, cautious"
ALPHA: Final = 0.05
MARKS: Final = {1: " +", 0: "", -1: " -"}
LEAST_BETTER: Final = 10


def paired_p(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The p-value of the two-tailed paired t-test.

    Differences that are all 0 say nothing: 1. Differences that are all the same, and not 0, leave no doubt: 0.
    """
    difference = np.asarray(ours) - np.asarray(theirs)
    mean, deviation = float(difference.mean()), float(difference.std(ddof=1))
    # Shares of rows are rounded: what is below this is no spread.
    if deviation <= 1e-12:
        return 1.0 if abs(mean) <= 1e-12 else 0.0
    n = len(difference)
    return float(2.0 * stats.t.sf(abs(mean) * np.sqrt(n) / deviation, n - 1))


def verdict(ours: Sequence[float], theirs: Sequence[float]) -> int:
    """1: significantly better, -1: significantly worse, 0: neither."""
    return int(np.sign(np.mean(ours) - np.mean(theirs))) if paired_p(ours, theirs) < ALPHA else 0


def fold_accuracies(record: Record, kernel: str, machine: str) -> list[float]:
    """Accuracy in every outer fold."""
    by_machine: dict[str, list[float]] = record["accuracy"][kernel]
    if machine != CAUTIOUS:
        return by_machine[machine]
    # k of all rows is the SVM, so nothing is trained for this.
    return [
        svm if stays else local
        for svm, local, stays in zip(
            by_machine["SVM"], by_machine["LocalSVC"], _stays_global(record, kernel), strict=True
        )
    ]


def _stays_global(record: Record, kernel: str) -> list[bool]:
    """Fold by fold, whether the best k is within one standard error of k = all rows, on the training rows alone."""
    n_rows, n_outer, chosen = record["n_rows"], record["settings"]["n_outer"], record["chosen"][kernel]
    stays = []
    for fold, (best, svm) in enumerate(zip(chosen["LocalSVC"], chosen["SVM"], strict=True)):
        n_train = n_rows - len(range(fold, n_rows, n_outer))
        error = np.sqrt(best["errors"] * (n_train - best["errors"]) / n_train)
        stays.append(bool(svm["errors"] <= best["errors"] + error))
    return stays


def _verdict(record: Record, kernel: str, machine: str) -> int:
    return verdict(fold_accuracies(record, kernel, machine), record["accuracy"][kernel]["SVM"])


def _cells(document: Record) -> Iterator[tuple[str, str, Record]]:
    """Data set, kernel and record of every cell."""
    for name, record in document["results"].items():
        for kernel in KERNELS:
            yield name, kernel, record


def render_table1(document: Record) -> str:
    """Whole page."""
    quick = document["experiment"].endswith("-quick")
    command = "svelto reproduce s4-table1" + (" --quick" if quick else "")
    parts = [
        "# S4, Table 1: local SVMs on 13 small sets" + (", coarse grid" if quick else ""),
        f"The experiment of {PAPER}, Table 1, run again with `svelto.KNNSVC` (the paper's kNNSVM) and "
        "`svelto.LocalSVC` (FastLSVM). Local SVMs are classifiers of their own: **nothing is promised** about another "
        "machine.",
        origin(document, command) + ("" if quick else " `--quick` tries a coarser grid, within minutes."),
        "Mean accuracy over the same ten outer folds. Bold, as in the paper: significantly different from SVM by the "
        "two-tailed paired t-test at 5 %; + better, - worse.",
    ]
    for kernel in KERNELS:
        parts += [f"## {kernel} kernel", _kernel_table(document, kernel)]
    parts += [
        "## Significantly better, equal, worse than SVM",
        _counts_table(document),
        _chance(document),
        "## Targets",
        table("method;ours;target;paper;reached", _targets(document)),
        "## Where LocalSVC differs",
        _differences_table(document),
        "## What was chosen",
        _chosen_table(document),
        "## How it was done",
        _method(document),
    ]
    return "\n\n".join(parts) + "\n"


def _kernel_table(document: Record, kernel: str) -> str:
    rows = []
    for name, record in document["results"].items():
        paper, ours = _paper_s4.TABLE1[name][kernel], record["accuracy"][kernel]
        cells = [name, f"{paper.svm:.2f}", f"{np.mean(ours['SVM']):.3f}"]
        for machine, given, better in (
            ("KNNSVC", paper.knn, paper.knn_better),
            ("LocalSVC", paper.local, paper.local_better),
        ):
            mark = _verdict(record, kernel, machine)
            cells += [_marked(f"{given:.2f}", int(better)), _marked(f"{np.mean(ours[machine]):.3f}", mark)]
        rows.append(cells)
    return table("data set;SVM, paper;ours;KNNSVC, paper;ours;LocalSVC, paper;ours", rows)


def _marked(text: str, mark: int) -> str:
    return f"**{text}{MARKS[mark]}**" if mark else text


def _counts(document: Record, machine: str) -> dict[str, Counter[int]]:
    """Verdicts by kernel."""
    found: dict[str, Counter[int]] = {kernel: Counter() for kernel in KERNELS}
    for _, kernel, record in _cells(document):
        found[kernel][_verdict(record, kernel, machine)] += 1
    return found


def _paper_counts(document: Record, machine: str) -> dict[str, Counter[int]]:
    """The same in the paper, which found none worse."""
    found: dict[str, Counter[int]] = {kernel: Counter() for kernel in KERNELS}
    for name, kernel, _ in _cells(document):
        cell = _paper_s4.TABLE1[name][kernel]
        found[kernel][int(cell.knn_better if machine == "KNNSVC" else cell.local_better)] += 1
    return found


def _counts_table(document: Record) -> str:
    sides = [
        _paper_counts(document, "KNNSVC"),
        _counts(document, "KNNSVC"),
        _paper_counts(document, "LocalSVC"),
        _counts(document, "LocalSVC"),
        _counts(document, CAUTIOUS),
    ]
    rows = []
    for kernel in (*KERNELS, "all"):
        counts = [_total(side) if kernel == "all" else side[kernel] for side in sides]
        rows.append([kernel, *(" / ".join(str(count[mark]) for mark in (1, 0, -1)) for count in counts)])
    return table(f"kernel;KNNSVC, paper;ours;LocalSVC, paper;ours;{CAUTIOUS}", rows)


def _total(by_kernel: dict[str, Counter[int]]) -> Counter[int]:
    return sum(by_kernel.values(), Counter())


def _chance(document: Record) -> str:
    n = sum(1 for _ in _cells(document))
    return (
        f"{n} tests at 5 % call about {n * ALPHA / 2:.1f} cells better and as many worse by chance alone, where "
        "nothing differs."
    )


def _targets(document: Record) -> list[list[str]]:
    paper = _total(_paper_counts(document, "LocalSVC"))
    complete = len(document["results"]) == len(_paper_s4.TABLE1)
    lines = []
    for machine in ("LocalSVC", CAUTIOUS):
        counts = _total(_counts(document, machine))
        for what, mark, target, reached in (
            ("worse", -1, "0", counts[-1] == 0),
            ("better", 1, f"at least {LEAST_BETTER}", counts[1] >= LEAST_BETTER),
        ):
            said = "not measured" if not complete else "yes" if reached else "no"
            name = f"{machine}: significantly {what} than SVM"
            lines.append([name, str(counts[mark]), target, str(paper[mark]), said])
    return lines


def _differences_table(document: Record) -> str:
    """Cells that are significant here or in the paper."""
    rows = []
    for name, kernel, record in _cells(document):
        paper, svm = _paper_s4.TABLE1[name][kernel], record["accuracy"][kernel]["SVM"]
        if not (paper.local_better or any(_verdict(record, kernel, m) for m in ("LocalSVC", CAUTIOUS))):
            continue
        cells = [f"{name}, {kernel}", f"{paper.local - paper.svm:+.2f}" + (" (significant)" * paper.local_better)]
        for machine in ("LocalSVC", CAUTIOUS):
            ours = fold_accuracies(record, kernel, machine)
            cells += [f"{np.mean(ours) - np.mean(svm):+.3f}", f"{paired_p(ours, svm):.3f}"]
        rows.append(cells)
    return table("data set;LocalSVC - SVM, paper;ours;p;cautious;p", rows)


def _chosen_table(document: Record) -> str:
    """Parameters by set and kernel: the k of LocalSVC most often, and how often all rows."""
    rows = []
    for name, record in document["results"].items():
        cells = [name]
        for kernel in KERNELS:
            cells += [_sizes(record["chosen"][kernel][machine]) for machine in LOCAL_MACHINES]
        rows.append(cells)
    head = "data set;" + ";".join(f"{kernel}: k of {machine}" for kernel in KERNELS for machine in LOCAL_MACHINES)
    return (
        table(head, rows)
        + "\n\nMedian k of the folds that chose fewer than all rows, and the number of folds that did."
    )


def _sizes(chosen: list[Record]) -> str:
    sizes = [point["k"] for point in chosen if point["k"] is not None]
    return f"{np.median(sizes):g} ({len(sizes)})" if sizes else "all"


def _method(document: Record) -> str:
    records = list(document["results"].values())
    settings = records[0]["settings"]
    grids = settings["grids"]
    files = "; ".join(
        f"{name}: `{record['settings']['file']}`, {record['n_rows']} x {record['n_features']}, "
        f"{record['n_classes']} classes"
        for name, record in document["results"].items()
    )
    minutes = sum(record["seconds"] for record in records) / 60
    stopped = sum("stopped at" in text for record in records for text in record["warnings"])
    lines = [
        f"Files of the LIBSVM data page (rows x features). {files}. The paper prints no row counts; where a set has "
        "two parts the training part is taken: the paper's 0.71 of RBF-SVM on leukemia is the larger class's share of "
        "its 38 training rows.",
        "Features are scaled as in those files (to [-1, 1]; leukemia to mean 0 and variance 1), with the numbers of "
        "the training rows of the fold.",
        f"{settings['n_outer']} stratified outer folds, the same for all. In each, parameters are chosen by "
        f"{settings['n_inner']}-fold cross-validation of its training rows, as in the paper; the held-out rows take no "
        "part. Fewest errors win; of equal points the larger k (all rows first), then the lower degree, the larger "
        "sigma, the smaller C.",
        f"SVM (`sklearn.svm.SVC`) and LocalSVC choose from C in {_listed(grids['SVM']['C'])}, sigma in "
        f"{_powers(grids['SVM']['sigma'])}, degree in {_listed(grids['SVM']['degree'])}; LocalSVC also k in "
        f"{_listed(grids['LocalSVC']['k'])} or all rows, k' = k / 4. KNNSVC, which needs an SVM for every row asked: "
        f"C in {_listed(grids['KNNSVC']['C'])}, sigma in {_powers(grids['KNNSVC']['sigma'])}, k in "
        f"{_listed(grids['KNNSVC']['k'])} or all rows (then SVM's choice). RBF is exp(-|x - z|^2 / sigma), so gamma = "
        "1 / sigma; HPOL is (x.z)^degree, IPOL (x.z + 1)^degree, of degree 1 the linear kernel.",
        "Cautious: the one-standard-error rule, beside the paper's. k stays at all rows (the SVM) unless the best "
        "smaller k has fewer errors in the cross-validation of the training rows by more than a standard error, the "
        "root of errors x (1 - error rate). On so few rows the best of a dozen sizes is often best by luck.",
        f"SVMs of neighbourhoods stop after {settings['steps']:,} steps of the solver, in the selection and in "
        f"LocalSVC, those of all rows after {settings['steps_of_all']:,} in the selection and 1,000,000 when they are "
        f"asked; {stopped} of {_n_machines(document)} chosen machines met a limit.",
        f"In all {minutes:.0f} minutes, with {settings['n_jobs']} thread{'s' if settings['n_jobs'] > 1 else ''}."
        + busy([(record["other_cores"], name) for name, record in document["results"].items()]),
    ]
    return "\n".join(f"- {line}" for line in lines)


def _n_machines(document: Record) -> int:
    return sum(len(folds) for _, kernel, record in _cells(document) for folds in record["accuracy"][kernel].values())


def _listed(values: Sequence[Any]) -> str:
    return "{" + ", ".join(f"{value:g}" for value in values) + "}"


def _powers(values: Sequence[float]) -> str:
    return "{" + ", ".join(f"2^{round(np.log2(value))}" for value in values) + "}"
