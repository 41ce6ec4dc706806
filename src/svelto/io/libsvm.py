"""LIBSVM model files, read and written.

A model file is a header of ``key value ...`` lines, a line ``SV``, and one line for each support vector:

    coef_1 ... coef_(k-1)  index:value index:value ...

with k classes (2 for regression and one-class), indices counted from 1, ascending, zeros left out. The labels stand in
LIBSVM's own class order, which is the machine's vote order; ``rho`` is minus the intercept. A precomputed kernel has
``0:serial`` instead of features: the number of a training row, counted from 1.

ThunderSVM writes the same layout with the keys in another order, spaces at line ends and, for the linear kernel, one
key more: ``coef``, whose numbers (the weight vector, which the rest implies) stand on the next line.

What always holds: numbers are read as `float` reads them (correctly rounded) and written as the shortest text that
reads back to the same bits. A file that was cut short or contradicts itself is refused with its name and line. Memory
follows the bytes that are in the file, never a number that the file merely claims.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from svelto._typing import IntArray
from svelto.io._libsvm_text import AGAIN, MAX_INT, Header, Lines, read_header, read_vectors
from svelto.kernels import Kernel
from svelto.machine import N_DENSITY_MARKS, KernelMachine, Task
from svelto.probability import PlattPairs

_TASKS: Final[dict[str, Task]] = {
    "c_svc": "classification",
    "nu_svc": "classification",
    "one_class": "outlier",
    "epsilon_svr": "regression",
    "nu_svr": "regression",
}
# LIBSVM's name: our name, and the parameters that the kernel uses, in the order of the file.
_KERNELS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "linear": ("linear", ()),
    "polynomial": ("poly", ("degree", "gamma", "coef0")),
    "rbf": ("rbf", ("gamma",)),
    "sigmoid": ("sigmoid", ("gamma", "coef0")),
    "precomputed": ("precomputed", ()),
}
# Keys that contradict the svm_type. ("probA" alone does belong to regression: the scale of its noise.)
_MISPLACED: Final[dict[Task, tuple[str, ...]]] = {
    "classification": ("prob_density_marks",),
    "regression": ("label", "nr_sv", "probB", "prob_density_marks"),
    "outlier": ("label", "nr_sv", "probA", "probB"),
}


# -- reading -----------------------------------------------------------------------------------------------------


def read_model(path: str | os.PathLike[str]) -> KernelMachine:
    """Read a model file written by LIBSVM's ``svm-train`` or by ThunderSVM.

    Parameters
    ----------
    path : str or path-like
        The model file, with LF or CRLF line ends.

    Returns
    -------
    KernelMachine
        ``n_features`` is the largest index in the file, None for a precomputed kernel.

    Raises
    ------
    OSError
        The file cannot be opened.
    ValueError
        The file is damaged, contradicts itself or has no support vectors; the message names file and line.
    """
    with open(path, "rb") as file:
        lines: Lines = enumerate(file, start=1)
        header = read_header(str(os.fspath(path)), lines)
        svm_type = header.choice("svm_type", _TASKS)
        task = _TASKS[svm_type]
        labels, n_support = _read_classes(header, svm_type)
        n_rows = 1 if labels is None else len(labels) - 1
        n_scores = n_rows * (n_rows + 1) // 2
        kernel = _read_kernel(header)
        intercept = -np.array(header.numbers("rho", n_scores))
        platt = _read_platt(header, task, n_scores)
        noise_scale = header.numbers("probA", 1)[0] if task == "regression" and "probA" in header.entries else None
        marks = None
        if "prob_density_marks" in header.entries:
            marks = np.array(header.numbers("prob_density_marks", N_DENSITY_MARKS))
        dual_coef, vectors = read_vectors(header, lines, n_rows, precomputed=kernel.name == "precomputed")
    classes = vote_order = None
    if labels is not None:
        classes = np.unique(labels)
        vote_order = np.searchsorted(classes, labels).astype(np.int32)
    return KernelMachine(
        kernel=kernel,
        support_vectors=vectors,
        dual_coef=dual_coef,
        intercept=intercept,
        task=task,
        rule="value" if labels is None else "pairs",
        classes=classes,
        vote_order=vote_order,
        n_support=n_support,
        n_features=None if kernel.name == "precomputed" else int(vectors.shape[1]),
        platt=platt,
        density_marks=marks,
        noise_scale=noise_scale,
        svm_type=svm_type,
        source="libsvm",
    )


def _read_classes(header: Header, svm_type: str) -> tuple[NDArray[np.int64] | None, IntArray | None]:
    """Labels in file order and support vectors of each class; None for both without classes."""
    (n_classes,) = header.whole("nr_class", 1, least=1)
    (total,) = header.whole("total_sv", 1, least=0)
    for key in _MISPLACED[_TASKS[svm_type]]:
        if key in header.entries:
            header.fail(key, f"{key} does not belong to svm_type {svm_type}; the file is damaged. {AGAIN}")
    if _TASKS[svm_type] != "classification":
        if n_classes != 2:
            header.fail("nr_class", f"nr_class is {n_classes}; expected 2 for svm_type {svm_type}.")
        return None, None
    if n_classes == 1:
        header.fail("nr_class", "nr_class is 1; expected 2 or more. Train on rows of at least two classes.")
    labels = header.whole("label", n_classes, least=-MAX_INT - 1)
    if len(set(labels)) < n_classes:
        twice = Counter(labels).most_common(1)[0][0]
        header.fail("label", f"label {twice} is there twice; expected {n_classes} different labels.")
    counts = header.whole("nr_sv", n_classes, least=0)
    if sum(counts) != total:
        line = header.entries["total_sv"][0]
        header.fail("nr_sv", f"nr_sv adds up to {sum(counts)}, but total_sv is {total} (line {line}).")
    if total and 0 in counts:
        label = labels[counts.index(0)]
        header.fail("nr_sv", f"class {label} has no support vectors; the model is damaged. {AGAIN}")
    return np.array(labels, dtype=np.int64), np.array(counts, dtype=np.int32)


def _read_kernel(header: Header) -> Kernel:
    """Read the kernel and the parameters it uses; others may be there and must be numbers all the same."""
    name, used = _KERNELS[header.choice("kernel_type", _KERNELS)]
    given: dict[str, Any] = {}
    for key in ("degree", "gamma", "coef0"):
        if key in used or key in header.entries:
            (given[key],) = header.whole(key, 1, least=0) if key == "degree" else header.numbers(key, 1)
    if name == "rbf" and given["gamma"] < 0:
        header.fail("gamma", f"gamma is {given['gamma']}; the rbf kernel needs gamma >= 0.")
    return Kernel(name, **{key: given[key] for key in used})


def _read_platt(header: Header, task: Task, n_scores: int) -> PlattPairs | None:
    if task == "regression" or ("probA" not in header.entries and "probB" not in header.entries):
        return None
    a = np.array(header.numbers("probA", n_scores))
    return PlattPairs(a=a, b=np.array(header.numbers("probB", n_scores)))


# -- writing -----------------------------------------------------------------------------------------------------


def write_model(machine: KernelMachine, path: str | os.PathLike[str]) -> None:
    """Write a model file that LIBSVM's ``svm-predict`` reads, with the same answers.

    The file appears under its name when it is complete, not before.

    Parameters
    ----------
    machine : KernelMachine
        A one-vs-one classifier with whole-number labels, a regressor with one output, or an outlier detector.
    path : str or path-like
        Where to write; an existing file is replaced.

    Raises
    ------
    NotImplementedError
        The machine has something that a LIBSVM file cannot hold; the message names it.
    ValueError
        A label is not a whole number.
    OSError
        The file cannot be written; a file of that name is still what it was.

    Notes
    -----
    `read_model` gives the same bits back, zeros without sign, and a machine without `n_support` gets one (`_counts`).
    LIBSVM 3.24 and older refuse files with ``prob_density_marks``, which only one-class models with probabilities have.
    """
    _check_writable(machine)
    target = os.path.realpath(path)  # write through a symbolic link, do not replace it
    temporary = f"{target}.{secrets.token_hex(6)}.tmp"
    try:
        # Mode "x" applies the user's umask to the new file; the tempfile module would not.
        with open(temporary, "x", encoding="ascii", newline="\n") as file:
            file.writelines(line + "\n" for line in _lines(machine))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        raise


def _check_writable(machine: KernelMachine) -> None:
    """Refuse what the format cannot express, before any file is touched."""
    kernel, n_rows = machine.kernel.name, machine.dual_coef.shape[0]
    outside = "Transform the rows before LIBSVM sees them, and convert the last step of the pipeline alone."
    save = "Keep the machine in svelto's own file."
    obstacles = [
        (kernel not in (name for name, _ in _KERNELS.values()), f"the {kernel} kernel", save),
        (bool(machine.front), f"the transformer {type((*machine.front, None)[0]).__name__} in front", outside),
        (machine.scaling is not None, "the scaler in front", outside),
        (machine.calibration is not None, "a calibration", "Convert the classifier inside CalibratedClassifierCV."),
        (machine.rule == "argmax", "the rule 'argmax' (one score for each class)", save),
        (machine.rule == "value" and n_rows > 1, f"{n_rows} outputs", "Write one machine for each output."),
        (machine.break_ties and machine.n_classes > 2, "break_ties=True", "Train with break_ties=False."),
    ]
    for there, what, advice in obstacles:
        if there:
            raise NotImplementedError(f"A LIBSVM model file cannot hold {what}. {advice}")
    if machine.classes is not None:
        _labels(machine)


def _labels(machine: KernelMachine) -> list[int]:
    """Class labels in vote order, as the whole numbers LIBSVM can read."""
    assert machine.classes is not None
    labels: list[Any] = machine.classes[machine.vote_order].tolist()
    for label in labels:
        # A bool would come back as a number, so it is no number here either.
        number = isinstance(label, int | float) and not isinstance(label, bool)
        if not number or not -MAX_INT <= label <= MAX_INT or label != int(label):
            raise ValueError(
                f"Class label {label!r} cannot be written; a LIBSVM model file holds whole numbers up to {MAX_INT}. "
                "Encode the classes as whole numbers before training."
            )
    return [int(label) for label in labels]


def _counts(machine: KernelMachine) -> list[int]:
    """Support vectors of each class.

    LIBSVM adds up the two classes of a pair one after the other, so for two classes any split gives the same sum in the
    same order, and none needs the vectors moved. The number of positive coefficients is the split that LIBSVM's own
    layout would have. Both classes must have one vector; a single vector is written a second time, with coefficient 0.
    """
    if machine.n_support is not None:
        return [int(count) for count in machine.n_support]
    n_sv, n_positive = machine.n_sv, int(np.count_nonzero(machine.dual_coef > 0))
    first = min(max(n_positive, 1), max(n_sv - 1, 1))
    return [first, max(n_sv - first, 1)]


def _lines(machine: KernelMachine) -> Iterator[str]:
    """Give the lines of the file, in the order of LIBSVM's own writer."""
    svm_type = machine.svm_type
    if _TASKS.get(svm_type) != machine.task:  # another kind of machine, such as kernel ridge regression
        svm_type = next(name for name in ("c_svc", "epsilon_svr", "one_class") if _TASKS[name] == machine.task)
    kernel_type = next(name for name, (ours, _) in _KERNELS.items() if ours == machine.kernel.name)
    classifies = machine.task == "classification"
    counts = _counts(machine) if classifies else [machine.n_sv]
    yield f"svm_type {svm_type}"
    yield f"kernel_type {kernel_type}"
    for key in _KERNELS[kernel_type][1]:
        value = getattr(machine.kernel, key)
        yield f"{key} {int(value) if key == 'degree' else repr(float(value))}"
    yield f"nr_class {machine.n_classes if classifies else 2}"
    yield f"total_sv {sum(counts)}"
    yield _join("rho", (-machine.intercept).tolist())
    if classifies:
        yield _join("label", _labels(machine))
    if classifies and machine.platt is not None:
        yield _join("probA", machine.platt.a.tolist())
        yield _join("probB", machine.platt.b.tolist())
    if machine.noise_scale is not None:
        yield f"probA {machine.noise_scale!r}"
    if machine.task == "outlier" and machine.density_marks is not None:
        yield _join("prob_density_marks", machine.density_marks.tolist())
    if classifies:
        yield _join("nr_sv", counts)
    yield "SV"
    vector = ""
    for coef, vector in zip(machine.dual_coef.T.tolist(), _vectors(machine), strict=True):
        yield " ".join(map(repr, coef)) + vector
    if sum(counts) > machine.n_sv:
        yield "0" + vector


def _vectors(machine: KernelMachine) -> Iterator[str]:
    """Give the index:value part of each support vector, with a space in front."""
    if machine.kernel.name == "precomputed":
        yield from (f" 0:{column + 1}" for column in machine.support_vectors.tolist())
        return
    matrix = sparse.csr_matrix(machine.support_vectors, copy=True)
    matrix.eliminate_zeros()
    starts, columns, values = matrix.indptr.tolist(), matrix.indices, matrix.data
    width = matrix.shape[1]
    for row, (start, stop) in enumerate(pairwise(starts)):
        pairs = zip(columns[start:stop].tolist(), values[start:stop].tolist(), strict=True)
        line = "".join(f" {column + 1}:{value!r}" for column, value in pairs)
        if row == 0 and (len(columns) == 0 or int(columns.max()) + 1 < width):
            line += f" {width}:0"  # no vector reaches the last feature: a zero says once how wide a row is
        yield line


def _join(key: str, values: Iterable[float]) -> str:
    return " ".join([key, *map(repr, values)])
