"""The fit of a node: least squares on the values of a path, held to the parent's coefficients.

Penalties on single coefficients are tiny, and only there for features that repeat others; what keeps a node with few
rows from following their noise is the prior, a matrix that counts a change of the coefficients as some of the parent's
rows would.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from svelto._typing import FloatArray, IndexArray

# Penalty of a coefficient, as a share of its feature's variance: only against features that repeat others.
RIDGE: Final = 1e-6


@dataclass(frozen=True)
class Sample:
    """Rows to learn from.

    Attributes
    ----------
    values : ndarray of float32 of shape (n, m)
        Values of all columns; rows are reordered in place while a tree grows.
    free : ndarray of shape (n, q)
        Features that cost nothing; q may be 0.
    target : ndarray of shape (n, n_scores)
        Scores to approximate.
    weight : ndarray of shape (n,)
        Weights of the rows.
    """

    values: NDArray[np.float32]
    free: FloatArray
    target: FloatArray
    weight: FloatArray

    def __len__(self) -> int:
        return len(self.target)


class Fit:
    """Least squares of the target on constant, free features and the values of a path, for some rows.

    Features stand in the order constant, free features, path: a column that joins the path comes last.
    """

    def __init__(self, sample: Sample, rows: IndexArray, block: slice | IndexArray, path: list[int]) -> None:
        self.sample, self.block = sample, block
        values = sample.values[block][:, path] if path else np.empty((len(rows), 0))
        self.Z: FloatArray = np.column_stack([np.ones(len(rows)), sample.free[rows], values]).astype(np.float64)
        self.target, self.weight = sample.target[rows], sample.weight[rows]

    def extend(self, column: int) -> None:
        """One more column on the path."""
        self.Z = np.column_stack([self.Z, self.sample.values[self.block, column]])

    def solve(self, start: FloatArray, prior: FloatArray) -> FloatArray:
        """Coefficients (f, P), held by `prior` (g, g) to `start`, zeros for features that are new."""
        weighted = self.Z * self.weight[:, None]
        self.gram = weighted.T @ self.Z
        start = np.vstack([start, np.zeros((len(self.gram) - len(start), start.shape[1]))])
        self.penalised = self.gram.copy()
        self.penalised[: len(prior), : len(prior)] += prior
        self.penalised += np.diag(penalty(self.penalised))
        change = np.linalg.solve(self.penalised, weighted.T @ self.target - self.gram @ start)
        result: FloatArray = start + change
        return result

    def residuals(self, coef: FloatArray) -> FloatArray:
        """What the coefficients leave."""
        return np.asarray(self.target - self.Z @ coef)

    def loss(self, coef: FloatArray) -> float:
        """Weighted sum of squares that the coefficients leave."""
        return float(self.weight @ (self.residuals(coef) ** 2).sum(axis=1))


def penalty(gram: FloatArray) -> FloatArray:
    """Diagonal of the penalty, for one matrix or a stack of them; feature 0 is the constant."""
    diagonal = np.diagonal(gram, axis1=-2, axis2=-1)
    total = np.maximum(gram[..., :1, 0], np.finfo(np.float64).tiny)
    variance = np.maximum(diagonal - gram[..., 0, :] ** 2 / total, 1e-9 * diagonal)
    return np.asarray(RIDGE * variance + 1e-9 * diagonal + 1e-30 * total)
