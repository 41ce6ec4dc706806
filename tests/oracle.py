"""The slow definitions that every fast path is compared with. Written to be read; never optimise them.

Everything is float64 NumPy on a `KernelMachine`, one formula after the other: transform, kernel matrix, weighted sum,
vote. Nothing here imports the code under test except the machine's own kernel, scaling and calibration objects.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.multiclass import _ovr_decision_function

from svelto.machine import KernelMachine


def class_pairs(n_classes: int) -> list[tuple[int, int]]:
    """The pairs (i, j), i < j, in the order of LIBSVM's scores."""
    return [(i, j) for i in range(n_classes) for j in range(i + 1, n_classes)]


def transformed(machine: KernelMachine, X: Any) -> Any:
    """The rows the kernel sees: `front` in order, then `scaling`."""
    for step in machine.front:
        X = step.transform(X)
    if machine.scaling is not None:
        X = machine.scaling.apply(X)
    if machine.kernel.name != "callable" and not sparse.issparse(X):
        X = np.asarray(X, dtype=np.float64)
    return X


def slow_scores(machine: KernelMachine, X: Any) -> np.ndarray:
    """Scores (n_samples, n_scores) with LIBSVM's signs, in vote order."""
    K = machine.kernel(transformed(machine, X), machine.support_vectors)
    if not machine.is_grouped:
        return K @ machine.dual_coef.T + machine.intercept
    # Support vectors stand class by class. For the pair (i, j), those of class i have their coefficients in row j - 1
    # and those of class j in row i; the others take no part.
    stop = np.cumsum(machine.n_support)
    start = stop - machine.n_support
    scores = []
    for pair, (i, j) in enumerate(class_pairs(machine.n_classes)):
        of_i, of_j = slice(start[i], stop[i]), slice(start[j], stop[j])
        part_i = K[:, of_i] @ machine.dual_coef[j - 1, of_i]
        part_j = K[:, of_j] @ machine.dual_coef[i, of_j]
        scores.append(part_i + part_j + machine.intercept[pair])
    return np.column_stack(scores)


def _vote(machine: KernelMachine, scores: np.ndarray) -> np.ndarray:
    """Number, in vote order, of the class with most votes; ties go to the earlier one."""
    winners = []
    for row in scores:
        votes = [0] * machine.n_classes
        for score, (i, j) in zip(row, class_pairs(machine.n_classes), strict=True):
            votes[i if score > 0 else j] += 1
        winners.append(votes.index(max(votes)))
    return np.array(winners, dtype=int)


def _sorted_class_scores(machine: KernelMachine, scores: np.ndarray) -> np.ndarray:
    """Pair scores in the order and with the signs of the sorted classes."""
    result = np.empty_like(scores)
    pairs = class_pairs(machine.n_classes)
    for column, (i, j) in enumerate(pairs):
        a, b = machine.vote_order[i], machine.vote_order[j]
        sign = 1 if a < b else -1
        result[:, pairs.index((min(a, b), max(a, b)))] = sign * scores[:, column]
    return result


def slow_decision_function(machine: KernelMachine, X: Any) -> np.ndarray:
    """The decision function by scikit-learn's conventions.

    Two classes: one value a row, positive towards ``classes[1]``. More: "ovo" gives the pair scores of the sorted
    classes, positive towards the first of the pair; "ovr" one column a class. Outliers: one value, positive inside.
    """
    scores = slow_scores(machine, X)
    if machine.rule == "pairs":
        ordered = _sorted_class_scores(machine, scores)
        if machine.n_classes == 2:
            return -ordered[:, 0]
        if machine.decision_function_shape == "ovo":
            return ordered
        return _ovr_decision_function(ordered < 0, -ordered, machine.n_classes)
    if machine.rule == "argmax":
        result = np.empty_like(scores)
        result[:, machine.vote_order] = scores
        return result
    return scores[:, 0] if machine.n_scores == 1 and machine.single_output else scores


def slow_probabilities(machine: KernelMachine, X: Any) -> np.ndarray:
    """Class probabilities, columns in the order of the sorted classes."""
    if machine.calibration is not None:
        return machine.calibration.probabilities(slow_decision_function(machine, X), machine.n_classes)
    assert machine.platt is not None
    proba = machine.platt.probabilities(slow_scores(machine, X), machine.n_classes)
    result = np.empty_like(proba)
    result[:, machine.vote_order] = proba
    return result


def slow_predict(machine: KernelMachine, X: Any) -> np.ndarray:
    """Labels, values, or +1 / -1 for outlier machines."""
    if machine.calibration is not None:
        return machine.classes[slow_probabilities(machine, X).argmax(axis=1)]
    if machine.break_ties and machine.n_classes > 2:
        return machine.classes[slow_decision_function(machine, X).argmax(axis=1)]
    scores = slow_scores(machine, X)
    if machine.rule == "pairs":
        return machine.classes[machine.vote_order[_vote(machine, scores)]]
    if machine.rule == "argmax":
        return machine.classes[machine.vote_order[scores.argmax(axis=1)]]
    values = scores[:, 0] if machine.n_scores == 1 and machine.single_output else scores
    return np.where(values > 0, 1, -1) if machine.task == "outlier" else values


def libsvm_order_scores(machine: KernelMachine, x: np.ndarray) -> list[float]:
    """Scores of one row with LIBSVM's order of operations: plain Python floats, one rounding an operation.

    Features ascending, support vectors in the machine's order, for a pair first those of class i, then those of class
    j. This is the definition of the label where rounding decides.
    """
    kernel, vectors = machine.kernel, machine.support_vectors
    S = vectors.toarray() if sparse.issparse(vectors) else np.asarray(vectors)
    values = []
    for s in S:
        total = 0.0
        for a, b in zip(x.tolist(), s.tolist(), strict=True):
            if kernel.name in ("rbf", "exponential"):
                total += (a - b) * (a - b)
            elif kernel.name == "laplacian":
                total += abs(a - b)
            else:
                total += a * b
        if kernel.name in ("rbf", "laplacian"):
            total = math.exp(-kernel.gamma * total)
        elif kernel.name == "exponential":
            total = math.exp(-kernel.gamma * math.sqrt(total))
        elif kernel.name == "poly":
            base, result, times = kernel.gamma * total + kernel.coef0, 1.0, kernel.degree
            while times > 0:
                if times % 2 == 1:
                    result *= base
                base, times = base * base, times // 2
            total = result
        elif kernel.name == "sigmoid":
            total = math.tanh(kernel.gamma * total + kernel.coef0)
        values.append(total)
    coef = machine.dual_coef
    if not machine.is_grouped:
        ranges = [[(row, range(machine.n_sv))] for row in range(machine.n_scores)]
    else:
        stop = np.cumsum(machine.n_support)
        of = [range(int(b - n), int(b)) for b, n in zip(stop, machine.n_support, strict=True)]
        ranges = [[(j - 1, of[i]), (i, of[j])] for i, j in class_pairs(machine.n_classes)]
    scores = []
    for parts, intercept in zip(ranges, machine.intercept, strict=True):
        total = 0.0
        for row, members in parts:
            for k in members:
                total += float(coef[row, k]) * values[k]
        scores.append(total + float(intercept))
    return scores


def libsvm_order_label(machine: KernelMachine, x: np.ndarray) -> Any:
    """The label of one row by `libsvm_order_scores`."""
    scores = libsvm_order_scores(machine, x)
    if machine.task == "outlier":
        return 1 if scores[0] > 0 else -1
    if machine.rule == "argmax":
        return machine.classes[machine.vote_order[int(np.argmax(scores))]]
    return machine.classes[machine.vote_order[_vote(machine, np.array([scores]))[0]]]
