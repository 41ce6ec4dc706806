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

from typing import Final, Literal

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
# Oracle rows for each row, as far as the exact engine answers them within about a second or two.
ORACLE_FACTOR: Final = 4
# Few rows of many features leave every leaf thin: at least this many for each feature.
ORACLE_PER_FEATURE: Final = 800
ORACLE_OPERATIONS: Final = 1.5e11
ORACLE_SCORES: Final = 20_000_000
# Step of shifted oracle rows; half of the rows made up are between neighbours, half are shifted.
SHIFT_STEP: Final = 0.7
# Rows closer than this, in units of a typical row's distance from the mean, are copies.
SAME: Final = 1e-5
# Rows and support vectors that are looked for among each other.
SHARE_ROWS: Final = 500


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
        X = self.X - np.median(self.X, axis=0)  # distances stay, and digits are not lost to a common offset
        norms = np.einsum("ij,ij->i", X, X)
        # Copies of a row would make the distance to "another" row zero, and the stand-in a copy as well.
        same = SAME**2 * float(np.median(norms))

        def nearest(rows: FloatArray, skip: IndexArray | None) -> FloatArray:
            sq = np.einsum("ij,ij->i", rows, rows)[:, None] + norms[None, :] - 2.0 * (rows @ X.T)
            if skip is not None:
                sq[np.arange(len(rows)), skip] = np.inf
                sq[sq <= same] = np.inf
            distances: FloatArray = np.sqrt(np.maximum(sq.min(axis=1), 0.0))
            return distances

        own = nearest(X[probe], probe)
        own = own[np.isfinite(own)]
        if len(own) == 0:
            return 0.0
        wanted = float(np.median(own))
        low, high = 0.0, 2.0
        i, a, b = self._draw(len(probe), rng, probe)
        difference = X[a] - X[b]
        for _ in range(BISECTIONS):
            step = 0.5 * (low + high)
            if float(np.median(nearest(X[i] + step * difference, None))) < wanted:
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
        # Two different neighbours: a difference of zero would give the row itself.
        other = np.where(near[1] == near[0], np.where(near[0] > 0, near[0] - 1, near[0] + 1), near[1])
        return i, near[0], np.minimum(other, size - 1)


def support_share(machine: KernelMachine, X: Rows) -> float:
    """How much X looks like training rows: 0 where it holds no support vector, near 1 where it holds all of them.

    The larger of two shares, each from a sample: support vectors that are found among the rows, and rows that are found
    among the support vectors (so that a part of the training rows is recognised too). A row counts as found if another
    is within a hundred-thousandth of a typical row's size: files keep few digits, and scalers may round to float32.
    """
    vectors = machine.support_vectors
    rng = np.random.default_rng(0)
    # Medians, here and below: one wild value must not decide what is close.
    centre = np.zeros(vectors.shape[1]) if sparse.issparse(vectors) else np.median(vectors, axis=0)
    return max(_found(_sample(vectors, rng), X, centre), _found(_sample(X, rng), vectors, centre))


def _sample(X: Rows, rng: np.random.Generator) -> FloatArray:
    n = X.shape[0]
    rows = X[np.sort(rng.choice(n, size=min(n, SHARE_ROWS), replace=False))]
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows, dtype=np.float64)


def _found(sample: FloatArray, among: Rows, centre: FloatArray) -> float:
    """Share of the rows of a sample that have a copy, up to rounding."""
    sample = sample - centre
    own = np.einsum("ij,ij->i", sample, sample)
    limit = SAME**2 * max(float(np.median(own)), np.finfo(np.float64).tiny)
    found = np.zeros(len(sample), dtype=bool)
    step = max(1, 8_000_000 // max(among.shape[1], len(sample)))
    for start in range(0, among.shape[0], step):
        part = among[start : start + step]
        part = np.asarray(part.toarray() if sparse.issparse(part) else part, dtype=np.float64) - centre
        sq = own[:, None] + np.einsum("ij,ij->i", part, part)[None, :] - 2.0 * (sample @ part.T)
        found |= sq.min(axis=1) <= limit
    return float(found.mean())


def oracle_rows(
    machine: KernelMachine,
    X: FloatArray,
    wanted: int | Literal["auto"],
    seed: int,
    rng: np.random.Generator,
    n_jobs: int | None,
) -> FloatArray:
    """The given rows and rows made of them, half between neighbours and half around them."""
    n = len(X)
    if wanted == "auto":
        per_row = machine.n_sv * (X.shape[1] + 16.0 + machine.dual_coef.shape[0])
        most = min(ORACLE_OPERATIONS / per_row, ORACLE_SCORES / machine.n_scores)
        extra = int(min(max(ORACLE_FACTOR * n, 20_000, ORACLE_PER_FEATURE * X.shape[1]), max(most - n, 0)))
        if n > most:
            X = X[rng.choice(n, size=max(int(most), 1), replace=False)]
    else:
        extra = int(wanted)
    if extra == 0 or n < 2:
        return X
    near = Neighbourhoods(X, seed, n_jobs)
    half = extra // 2
    return np.concatenate([X, near.between(half, rng), near.shifted(extra - half, SHIFT_STEP, rng)])
