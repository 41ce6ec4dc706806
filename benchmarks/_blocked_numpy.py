"""The strongest NumPy we can write: blocks of rows, float32, everything in place, one block a thread.

The exponent -gamma |x - s|^2 = 2 gamma x.s - gamma |s|^2 - gamma |x|^2 comes out of one matrix product, because rows
and support vectors carry two more columns for the norms: [x, 1, -gamma |x|^2] and [2 gamma s, -gamma |s|^2, 1]. Then
exp in place, and a product with the coefficients: for many classes one small product for each class's block of
support vectors, and the vote as a product of 0/1 matrices.

np.exp uses one thread, so blocks are handed to a pool of threads (BLAS itself at one thread) instead of leaving only
the product to BLAS's threads. Block length, and for CSR rows the form of the product, are measured and the best is
kept.
"""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from scipy import sparse

from _timing import fastest
from svelto import KernelMachine
from svelto.suite.pair_vote import BLOCKS, TRIAL_ROWS, PairVote, useful_blocks

# Kernel values from which a second thread is worth waking up.
VALUES_PER_THREAD = 200_000


class BlockedNumpy:
    """predict(rows) for float32 rows, dense or CSR."""

    def __init__(self, machine: KernelMachine, n_threads: int, rows: Any) -> None:
        vectors = machine.support_vectors
        vectors = vectors.toarray() if sparse.issparse(vectors) else vectors
        self.gamma = np.float32(machine.kernel.gamma)
        norms = machine.kernel.gamma * (vectors**2).sum(axis=1)
        self.right = np.vstack([2 * machine.kernel.gamma * vectors.T, -norms, np.ones_like(norms)]).astype(np.float32)
        self.vote = PairVote(machine)
        self.n_sv = machine.n_sv
        self.n_threads = n_threads
        self.pool = ThreadPoolExecutor(n_threads)
        self.local = threading.local()
        self.block, self.densify = self._best_form(rows)

    def close(self) -> None:
        """End the pool's threads."""
        self.pool.shutdown()

    def predict(self, X: Any) -> np.ndarray:
        n_rows, block = X.shape[0], self.block
        if n_rows <= min(
            block, 2 * VALUES_PER_THREAD // self.n_sv
        ):  # slicing CSR rows takes longer than predicting one
            return self._labels(X)
        if self.n_threads == 1 or n_rows * self.n_sv < 2 * VALUES_PER_THREAD:
            starts = range(0, n_rows, block)
            parts = [self._labels(X[start : start + block]) for start in starts]
        else:
            block = min(block, -(-n_rows // self.n_threads))
            parts = list(self.pool.map(lambda a: self._labels(X[a : a + block]), range(0, n_rows, block)))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _labels(self, X: Any) -> np.ndarray:
        if sparse.issparse(X):
            if not self.densify:
                return self._labels_csr(X)
            X = X.toarray()
        n_rows, d = X.shape
        left = np.empty((n_rows, d + 2), np.float32)
        left[:, :d] = X
        left[:, d] = 1.0
        np.multiply(np.einsum("ij,ij->i", X, X), -self.gamma, out=left[:, d + 1])
        values = np.matmul(left, self.right, out=self._buffer(n_rows))
        np.exp(values, out=values)
        return self.vote(values)

    def _labels_csr(self, X: Any) -> np.ndarray:
        d = X.shape[1]
        values = X @ self.right[:d]
        values += self.right[d]
        values -= self.gamma * np.asarray(X.multiply(X).sum(axis=1), dtype=np.float32).reshape(-1, 1)
        np.exp(values, out=values)
        return self.vote(values)

    def _buffer(self, n_rows: int) -> np.ndarray:
        """Room for a block of kernel values, kept for each thread: fresh pages cost more than the exponentials."""
        room = getattr(self.local, "room", None)
        if room is None or len(room) < n_rows:
            room = self.local.room = np.empty((n_rows, self.n_sv), np.float32)
        return room[:n_rows]

    def _best_form(self, rows: Any) -> tuple[int, bool]:
        trial = rows[:TRIAL_ROWS]

        def run(form: tuple[int, bool]) -> None:
            self.block, self.densify = form
            self.predict(trial)

        forms = (True, False) if sparse.issparse(rows) else (True,)
        best = fastest(itertools.product(useful_blocks(trial.shape[0], self.n_sv), forms), run)
        self.local = threading.local()  # the largest block's room is not the best one's
        return best


class PlainNumpy:
    """Blocked NumPy as it is usually written: the product left to BLAS's threads, everything else on one thread."""

    def __init__(self, machine: KernelMachine, rows: Any) -> None:
        vectors = machine.support_vectors
        self.vectors = (vectors.toarray() if sparse.issparse(vectors) else vectors).astype(np.float32)
        self.norms = (self.vectors**2).sum(axis=1)
        self.gamma = np.float32(machine.kernel.gamma)
        self.vote = PairVote(machine)
        self.block = BLOCKS[0]
        trial = rows[:TRIAL_ROWS]

        def run(block: int) -> None:
            self.block = block
            self.predict(trial)

        self.block = fastest(useful_blocks(trial.shape[0], machine.n_sv), run)

    def predict(self, X: Any) -> np.ndarray:
        starts = range(0, X.shape[0], self.block)
        return np.concatenate([self._labels(X[start : start + self.block]) for start in starts])

    def _labels(self, X: Any) -> np.ndarray:
        X = X.toarray() if sparse.issparse(X) else X
        sq_dist = (X**2).sum(axis=1)[:, None] + self.norms - 2 * (X @ self.vectors.T)
        return self.vote(np.exp(-self.gamma * sq_dist))
