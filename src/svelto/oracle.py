"""Rows to ask the exact machine about: the machine is a free oracle, so there can be as many as a method needs.

Two kinds, both made from a row and others near it (near: in the same small cell of a metric tree):

    between   x + u (a - x), u in (0, 1): interpolation, inside the data
    shifted   x + s (a - b): the row moved as its neighbours differ from each other

*Stand-ins* are shifted rows for a special purpose. A machine's own training rows are no sample of what it will be
asked: every support vector pulls the score at its own place towards its label, so near it the score is larger, and
changes faster, than at new rows. A method calibrated on training rows would promise too much, the more so the sharper
the kernel. The step s of stand-ins is set so that their distance to the nearest training row is that of a new row,
which for training rows is the distance to the nearest *other* row. Tests and `docs/guarantee.md` compare them with
new rows.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
from scipy import sparse

from svelto import _core
from svelto._threads import thread_count
from svelto._typing import FloatArray, IndexArray, Rows
from svelto.engines.arrays import padded_rows
from svelto.engines.exact import instruction_level
from svelto.machine import KernelMachine

# Rows of a cell of neighbours; a difference of two of them is a typical small step.
CELL_ROWS: Final = 8
# Probe rows and steps of the search for the stand-ins' step.
PROBE_ROWS: Final = 256
BISECTIONS: Final = 7


class Neighbourhoods:
    """Rows in the order of the cells of a metric tree, so that neighbours stand together.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Dense float64 rows.
    seed : int
        Of the tree's random starts.
    n_jobs : int, optional
        Threads.
    """

    def __init__(self, X: FloatArray, seed: int, n_jobs: int | None = None) -> None:
        rows = padded_rows(X - X.mean(axis=0))
        level, threads = instruction_level(), thread_count(n_jobs)
        tree = _core.build_tree(rows, CELL_ROWS, 0, 0, 256, 0.0, seed, threads, level)
        self.X: FloatArray = X[tree["order"]]

    def between(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Rows between a row and a neighbour."""
        i, a, _ = self._draw(n, rng)
        rows: FloatArray = self.X[i] + rng.random((n, 1)) * (self.X[a] - self.X[i])
        return rows

    def shifted(self, n: int, step: float, rng: np.random.Generator, of: IndexArray | None = None) -> FloatArray:
        """Rows moved by `step` times the difference of two neighbours; `of` says which rows, else they are drawn."""
        i, a, b = self._draw(n, rng, of)
        rows: FloatArray = self.X[i] + step * (self.X[a] - self.X[b])
        return rows

    def stand_in_step(self, rng: np.random.Generator) -> float:
        """The step at which shifted rows are as far from the nearest row as the rows are from each other."""
        n = len(self.X)
        probe = rng.choice(n, size=min(n, PROBE_ROWS), replace=False)
        norms = np.einsum("ij,ij->i", self.X, self.X)

        def nearest(rows: FloatArray, skip: IndexArray | None) -> FloatArray:
            sq = np.einsum("ij,ij->i", rows, rows)[:, None] + norms[None, :] - 2.0 * (rows @ self.X.T)
            if skip is not None:
                sq[np.arange(len(rows)), skip] = np.inf
            # Copies of a row would make the distance to "another" row zero, and the stand-in a copy as well.
            sq[sq <= 1e-9 * (1.0 + norms[None, :])] = np.inf if skip is not None else 0.0
            distances: FloatArray = np.sqrt(np.maximum(sq.min(axis=1), 0.0))
            return distances

        own = nearest(self.X[probe], probe)
        own = own[np.isfinite(own)]
        if len(own) == 0:
            return 0.0
        wanted = float(np.median(own))
        low, high = 0.0, 2.0
        i, a, b = self._draw(len(probe), rng, probe)
        difference = self.X[a] - self.X[b]
        for _ in range(BISECTIONS):
            step = 0.5 * (low + high)
            if float(np.median(nearest(self.X[i] + step * difference, None))) < wanted:
                low = step
            else:
                high = step
        return high

    def _draw(
        self, n: int, rng: np.random.Generator, of: IndexArray | None = None
    ) -> tuple[IndexArray, IndexArray, IndexArray]:
        size = len(self.X)
        i = rng.integers(size, size=n) if of is None else of
        near = [np.clip(i + rng.integers(-CELL_ROWS, CELL_ROWS + 1, size=n), 0, size - 1) for _ in range(2)]
        return i, near[0], near[1]


def support_share(machine: KernelMachine, X: Rows) -> float:
    """Share of the support vectors that are found among the rows: near 1 for training rows, 0 for others.

    Compared in float32, which survives a trip through a text file of nine digits.
    """
    vectors = _row_keys(machine.support_vectors)
    return len(vectors & _row_keys(X)) / len(vectors)


def _row_keys(X: Rows) -> set[bytes]:
    """Every distinct row as bytes: its columns and values that are not zero."""
    rows = sparse.csr_matrix(X, dtype=np.float32, copy=True)
    rows.eliminate_zeros()
    rows.sort_indices()
    columns, values, start = rows.indices, rows.data, rows.indptr
    return {columns[a:b].tobytes() + values[a:b].tobytes() for a, b in pairwise(start)}
