"""Rows of a file, brought to what a machine from a LIBSVM model file expects."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
from scipy import sparse

from svelto._rowfiles import RowFile, compact_extra, fit_width, read_rows
from svelto._typing import Rows
from svelto.machine import KernelMachine


def rows_for(
    machine: KernelMachine, data: Path, file_format: str | None, *, strict_width: bool = False
) -> tuple[KernelMachine, Rows, RowFile]:
    """The machine, wider where LIBSVM text has features that it does not know; its rows; and the file's."""
    precomputed = machine.kernel.name == "precomputed"
    rows = read_rows(data, file_format, zero_based=precomputed)
    if precomputed:
        return machine, _kernel_columns(rows, machine), rows
    assert machine.n_features is not None
    if rows.format == "libsvm" and not strict_width:
        rows = rows._replace(X=compact_extra(rows.X, machine.n_features))
        machine = _widen(machine, rows.X.shape[1])
    assert machine.n_features is not None
    return machine, fit_width(rows, machine.n_features), rows


def _widen(machine: KernelMachine, n_features: int) -> KernelMachine:
    """Make the same machine for wider rows: its support vectors are zero in the further features."""
    assert machine.n_features is not None
    if n_features <= machine.n_features:
        return machine
    vectors = sparse.csr_matrix(machine.support_vectors, copy=True)
    vectors.resize((machine.n_sv, n_features))
    wide = vectors if machine.has_sparse_vectors else vectors.toarray()
    return dataclasses.replace(machine, support_vectors=wide, n_features=n_features)


def _kernel_columns(rows: RowFile, machine: KernelMachine) -> Rows:
    """Kernel values with the training rows; LIBSVM text has the row's serial number in front (``0:serial``)."""
    X, first = rows.X, int(rows.format == "libsvm")
    found, needed = X.shape[1] - first, int(np.max(machine.support_vectors)) + 1
    # A LIBSVM model does not say how many training rows there were: what stands behind the needed ones is not read.
    wanted = needed if machine.n_features is None else machine.n_features
    if found < needed or (machine.n_features is not None and found > wanted):
        raise ValueError(
            f"{rows.name} has {found} kernel values a row; this precomputed kernel needs {wanted}, one for each "
            "training row."
        )
    # Sliced before it is an array: a value with a number in the billions would make one of gigabytes.
    return X[:, 1 : 1 + wanted].toarray() if first else X
