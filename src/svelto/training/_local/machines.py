"""Local machines ready to answer: the support vectors of all of them in one array, each stored once.

Queries name their machines. They are answered machine by machine in native code, with the tiles of the exact engine
in float64; nothing runs over machines in Python.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from scipy import sparse

from svelto import _core
from svelto._typing import FloatArray, IndexArray, IntArray, Rows
from svelto.engines.exact import instruction_level
from svelto.engines.native_stage import check_outcome, pieces
from svelto.training._local.fits import KERNEL_CODES, KernelChoice, LocalModels

# Support vectors that a row meets are worth a thread from here on.
ROWS_PER_THREAD: Final = 128


@dataclass(eq=False)
class LocalMachines:
    """Machines of neighbourhoods, and the vectors they share.

    Attributes
    ----------
    models : LocalModels
        Who they are. `support` numbers `vectors`.
    vectors : ndarray of shape (n_vectors, n_features)
        Support vectors, each once.
    kernel : KernelChoice
        The kernel of all machines.
    gamma : ndarray of shape (n_machines,)
        Its width, machine by machine.
    n_classes : int
        Classes of all machines together.
    """

    models: LocalModels
    vectors: FloatArray
    kernel: KernelChoice
    gamma: FloatArray
    n_classes: int
    _native: Any = field(default=None, init=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_native": None}

    @property
    def n_machines(self) -> int:
        """Number of machines, those included that know one class and need no vector."""
        return len(self.gamma)

    @property
    def width(self) -> int:
        """Scores of a query: 1 for two classes, else one for each class."""
        return 1 if self.n_classes <= 2 else self.n_classes

    def fields(self) -> dict[str, Any]:
        """What `_core.LocalStage` reads."""
        models, linear = self.models, self.kernel.name == "linear"
        vectors = self.vectors
        entry_start, entries, place = _by_machine(models, self.n_classes)
        support_start, coef = models.support_start, models.coef
        if linear:
            vectors, entry_start, entries = self.normals(), models.pair_start, np.arange(len(models.intercept))
            support_start, place, coef = np.zeros_like(support_start), np.empty(0, dtype=np.int32), np.empty(0)
        return {
            "d": self.vectors.shape[1],
            "n_classes": self.n_classes,
            "n_machines": self.n_machines,
            "n_vectors": len(vectors),
            "kernel": KERNEL_CODES[self.kernel.name],
            "coef0": float(self.kernel.coef0),
            "degree": int(self.kernel.degree),
            "vectors": np.ascontiguousarray(vectors).ravel(),
            "gamma": self.gamma,
            "class_start": models.class_start,
            "classes": models.classes,
            "pair_start": models.pair_start,
            "intercept": models.intercept,
            "entry_start": entry_start,
            "entries": entries,
            "support_start": support_start,
            "place": place,
            "coef": coef,
        }

    def normals(self) -> FloatArray:
        """What every pair's support vectors add up to: (n_pairs, n_features), the normals of a linear kernel."""
        models = self.models
        weights = sparse.csr_matrix(
            (models.coef, models.support, models.support_start), shape=(len(models.intercept), len(self.vectors))
        )
        return np.asarray(weights @ self.vectors, dtype=np.float64)

    @property
    def native(self) -> Any:
        """The native machines, made when they are first asked."""
        if self._native is None:
            self._native = _core.LocalStage(self.fields(), instruction_level())
        return self._native

    def scores(self, X: Rows, machine: IndexArray, n_jobs: int | None = None) -> FloatArray:
        """What each row's machine says about it.

        Parameters
        ----------
        X : ndarray or CSR matrix of shape (n_rows, n_features)
            Rows that `svelto._inputs.check_rows` would accept; there may be none.
        machine : ndarray of shape (n_rows,)
            The machine of each row.
        n_jobs : int, optional
            Threads, as elsewhere.

        Returns
        -------
        ndarray of shape (n_rows, width)
            Two classes: positive for class 1. More: votes, and a squashed sum of values that decides between equal
            ones, as scikit-learn's; a class that the machine never saw has lost against all that it knows.
        """
        out: FloatArray = np.empty((X.shape[0], self.width))
        for start, part, threads in pieces(X, n_jobs, ROWS_PER_THREAD):
            order = np.argsort(machine[start : start + part.shape[0]], kind="stable")
            named = machine[start : start + part.shape[0]][order].astype(np.int64, copy=False)
            scores: FloatArray = np.empty((len(order), self.width))
            if sparse.issparse(part):
                rows = (part.data, part.indices, part.indptr)
                outcome = self.native.scores_csr(*rows, order, named, scores, threads)
            else:
                outcome = self.native.scores_dense(part, order, named, scores, threads)
            check_outcome(outcome, X, start)
            out[start + order] = scores
        return out


def _by_machine(models: LocalModels, n_classes: int) -> tuple[IndexArray, IndexArray, IntArray]:
    """Vectors of whole machines: one that serves several pairs is there once.

    Returns entry_start and entries, the vectors of each machine, and for every element of ``models.support`` its place
    among the vectors of its machine.
    """
    n_pairs = np.diff(models.pair_start)
    if n_classes <= 2:  # one pair; the order of vectors must not depend on what other machines know
        entry_start = models.support_start[models.pair_start]
        place = np.arange(len(models.support)) - np.repeat(entry_start[:-1], np.diff(entry_start))
        return entry_start, models.support.astype(np.int64), place.astype(np.int32)
    machine = np.repeat(np.repeat(np.arange(len(n_pairs)), n_pairs), np.diff(models.support_start))
    stride = int(models.support.max(initial=0)) + 1
    keys, found = np.unique(machine * stride + models.support, return_inverse=True)
    entry_start = np.concatenate([[0], np.cumsum(np.bincount(keys // stride, minlength=len(n_pairs)))]).astype(np.int64)
    return entry_start, keys % stride, (found - entry_start[machine]).astype(np.int32)
