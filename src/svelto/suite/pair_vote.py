"""What rivals made of matrix products need to answer for a LIBSVM machine: its vote, and blocks of a good length."""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from svelto.machine import KernelMachine

BLOCKS: Final = (32, 128, 512, 2048)
# Rows for choosing the block.
TRIAL_ROWS: Final = 4096
# Kernel values a block may hold (1 GB of float32).
MOST_VALUES: Final = 2**28


class PairVote:
    """Labels from a block of kernel values, for one-vs-one machines in LIBSVM's layout."""

    def __init__(self, machine: KernelMachine) -> None:
        assert machine.classes is not None  # rivals answer for classifiers
        assert machine.n_support is not None
        self.answers: NDArray[Any] = machine.classes[machine.vote_order]
        self.coef = machine.dual_coef.astype(np.float32)
        self.intercept = machine.intercept.astype(np.float32)
        self.n_classes = k = len(self.answers)
        if k > 2:
            self.start = np.concatenate([[0], np.cumsum(machine.n_support)])
            self.first, self.second = np.triu_indices(k, 1)
            # votes = gain.T @ (score > 0) + base: a positive score votes for the first of the pair, else the second.
            self.gain, self.base = np.zeros((len(self.first), k), np.float32), np.zeros(k, np.float32)
            for pair, (i, j) in enumerate(zip(self.first, self.second, strict=True)):
                self.gain[pair, i], self.gain[pair, j] = 1.0, -1.0
                self.base[j] += 1.0

    def __call__(self, values: NDArray[Any]) -> NDArray[Any]:
        """Labels of rows, from the kernel values of each with all support vectors."""
        labels: NDArray[Any]
        if self.n_classes == 2:
            labels = self.answers[(values @ self.coef[0] + self.intercept[0] <= 0).astype(np.intp)]
            return labels
        parts = np.stack([values[:, a:b] @ self.coef[:, a:b].T for a, b in itertools.pairwise(self.start)])
        scores = parts[self.first, :, self.second - 1] + parts[self.second, :, self.first] + self.intercept[:, None]
        votes = self.gain.T @ (scores > 0).astype(np.float32) + self.base[:, None]
        labels = self.answers[votes.argmax(axis=0)]
        return labels


def useful_blocks(n_rows: int, n_sv: int) -> list[int]:
    """Block lengths worth trying: not much longer than the rows at hand, not beyond the memory for kernel values."""
    return [b for b in BLOCKS if b == BLOCKS[0] or (b * n_sv <= MOST_VALUES and b <= 2 * n_rows)]
