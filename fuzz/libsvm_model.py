"""Fuzz target: a LIBSVM model file is refused with its name and a reason, or becomes a machine that predicts.

A machine that loads is written and read again, which must give the same machine, bit by bit.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

import svelto
from _common import Blind, insist, mutate_text, written
from svelto.io._libsvm_text import KEYS
from svelto.io.libsvm import _KERNELS, _TASKS

WORDS = tuple(word.encode() for word in (*KEYS, *_KERNELS, *_TASKS, "SV", "1:1", "0:1", "2:0.5", "7:-1e-3"))
# Rows wider than this are asked in sparse form only.
DENSE_WIDTH = 1000


def mutate(data: bytes, max_size: int, seed: int, blind: Blind) -> bytes:
    """Change some words of a model file."""
    return mutate_text(data, max_size, seed, blind, WORDS)


def check(data: bytes) -> None:
    """Read, predict, write, read."""
    path = written(data, "model")
    try:
        machine = svelto.KernelMachine.from_libsvm(path)
    except ValueError as error:
        insist(str(path) in str(error), f"the message does not name the file: {error}")
        return
    fast = compiled(machine)
    if fast is None:
        return
    for X in rows_for(machine):
        ask(fast, X)
    _check_again(machine)


def compiled(machine: svelto.KernelMachine) -> svelto.Predictor | None:
    """The machine's predictor; None where it was refused because it is almost nothing but width."""
    try:
        return svelto.accelerate(machine, method="exact", n_jobs=1)
    except ValueError as error:
        insist("Number the features without gaps" in str(error), f"a machine was read, and then refused: {error}")
        return None


def rows_for(machine: svelto.KernelMachine) -> list:
    """A few rows that the machine can be asked about, dense and sparse."""
    width = machine.n_features
    if machine.kernel.name == "precomputed":
        width = int(np.max(machine.support_vectors, initial=0)) + 1
        return [np.linspace(-1, 2, 3 * width).reshape(3, width)] if width <= DENSE_WIDTH else []
    columns = np.unique([0, width // 2, width - 1])
    values = np.array([0.0, 1.0, -1e3, 0.25])[: len(columns)]
    X = sparse.csr_matrix((values, columns, [0, 0, len(columns), len(columns)]), shape=(3, width))
    return [X, X.toarray()] if width <= DENSE_WIDTH else [X]


def ask(fast: svelto.Predictor, X: object) -> list:
    """Every answer that the predictor has, one for each row."""
    found = []
    with np.errstate(all="ignore"):  # numbers near the largest ones overflow; that is an answer too
        for name in ("predict", "decision_function", "predict_proba", "score_samples"):
            if hasattr(fast, name):
                found.append(getattr(fast, name)(X))
                insist(len(found[-1]) == X.shape[0], f"{name} has {len(found[-1])} answers for {X.shape[0]} rows")
    if getattr(fast, "classes_", None) is not None:
        insist(np.isin(found[0], fast.classes_).all(), f"predict answers {found[0]}, classes are {fast.classes_}")
    return found


def _check_again(machine: svelto.KernelMachine) -> None:
    path = written(b"", "model-again")
    machine.to_libsvm(path)
    again = svelto.KernelMachine.from_libsvm(path)
    insist(again.kernel == machine.kernel, f"the kernel {machine.kernel} came back as {again.kernel}")
    for name in ("dual_coef", "intercept", "classes", "vote_order", "n_support"):
        before, after = getattr(machine, name), getattr(again, name)
        insist(np.array_equal(before, after), f"{name} was {before} and came back as {after}")
    difference = machine.support_vectors - again.support_vectors
    insist(not (abs(difference) > 0).sum(), "support vectors came back as others")
