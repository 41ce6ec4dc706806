"""Fuzz target: a svelto file is refused with its name and a reason, or is a model that answers.

Files that are only mapped (verify=False) are asked as well: a file that somebody made to do harm may give wrong
answers, and no more than that.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

import svelto
from _common import insist, written
from _forge import cross, forge
from libsvm_model import compiled
from svelto._rowfiles import UnreadableFileError

__all__ = ["check", "cross", "mutate"]

mutate = forge
# Errors that a model may answer with. A parameter may ask for what was not learned, as after set_params; and numbers of
# a scaler or of a kernel may be so large that what is made of rows overflows.
REFUSALS = ("again with probability=True", "overflow", "finite", "infinity")
N_ROWS = 5
DENSE_WIDTH = 1000


def check(data: bytes) -> None:
    """Load and ask where only what could do harm was looked at; load once more with all checks."""
    path = written(data, "model.svelto")
    loose = _loaded(path, verify=False)
    if loose is None:
        return
    _ask(loose)
    _loaded(path, verify=True)


def _loaded(path, verify):
    try:
        model = svelto.load(path, verify=verify)
    except UnreadableFileError as error:
        insist(str(path) in str(error), f"the message does not name the file: {error}")
        return None
    if isinstance(model, svelto.KernelMachine):
        return compiled(model)
    return model


def _rows(model):
    machine = getattr(model, "machine", None)
    width = getattr(model, "n_features_in_", None)  # a precomputed kernel may have none
    if machine is not None and machine.kernel.name == "precomputed":
        needed = int(np.max(machine.support_vectors, initial=0)) + 1
        width = needed if width is None else max(width, needed)
        return [np.linspace(-1, 2, N_ROWS * width).reshape(N_ROWS, width)] if width <= DENSE_WIDTH else []
    found = []
    if machine is None or (not machine.front and machine.scaling is None):  # most scalers refuse sparse rows
        columns = np.unique([0, width - 1])
        values = np.array([0.25, -1.5])[: len(columns)]
        starts = [0, 0, *[len(columns)] * (N_ROWS - 1)]
        found.append(sparse.csr_matrix((values, columns, starts), shape=(N_ROWS, width)))
    if width <= DENSE_WIDTH:
        dense = np.linspace(-1.5, 2.5, N_ROWS * width).reshape(N_ROWS, width)
        found += [dense, dense[:1].astype(np.float32)]
    return found


def _ask(model):
    """Every answer to a few rows, one for each row."""
    for X in _rows(model):
        for name in ("predict", "decision_function", "predict_proba", "score_samples"):
            if not hasattr(model, name):
                continue
            try:
                with np.errstate(all="ignore"):
                    answer = getattr(model, name)(X)
            except ValueError as error:
                insist(any(text in str(error) for text in REFUSALS), f"{name} refuses a row: {error}")
                continue
            insist(isinstance(answer, np.ndarray), f"{name} answers with a {type(answer).__name__}")
            insist(len(answer) == X.shape[0], f"{name} has {len(answer)} answers for {X.shape[0]} rows")
    if hasattr(model, "report"):
        insist(str(model.report), "the report is empty")
