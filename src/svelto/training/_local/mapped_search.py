"""Neighbours in the feature space of a polynomial kernel, by a tree over the features themselves.

(gamma x.q + coef0)^degree is a product of features: the monomials of x up to that degree, each times the root of its
coefficient. Where there are few of them, rows are mapped and searched by the tree; the nearest and a few more are then
measured by the kernel's own formula, which decides.
"""

from __future__ import annotations

from itertools import combinations_with_replacement
from math import comb, factorial, prod
from typing import Final

import numpy as np

from svelto._typing import FloatArray, IndexArray
from svelto.training._local.feature_space import FeatureSpace, lane_sums
from svelto.training._local.tree_search import TreeSearch

# Features of the map, at most.
MOST_MAPPED: Final = 256
# Numbers of all mapped rows, at most: 2 GB.
MOST_NUMBERS: Final = 250_000_000
# Rows that are named beside the k nearest.
SPARE: Final = 8
# Rows mapped at a time.
BLOCK_ROWS: Final = 16_384


def mapped_width(space: FeatureSpace, n_features: int, n_rows: int = 0) -> int | None:
    """Monomials of a polynomial kernel; None where it has no such map, or a large one."""
    if space.euclidean or space.degree < 2 or space.gamma <= 0.0 or space.coef0 < 0.0:
        return None
    width = comb(n_features + space.degree - (space.coef0 == 0.0), space.degree) - (space.coef0 > 0.0)
    return width if width <= MOST_MAPPED and n_rows * width <= MOST_NUMBERS else None


class MappedSearch:
    """A tree over mapped rows.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
        Dense rows.
    space : FeatureSpace
        For which `mapped_width` is a number.
    n_threads : int
        Threads that build the tree.
    """

    def __init__(self, X: FloatArray, space: FeatureSpace, n_threads: int = 1):
        self.space, self.n_rows = space, len(X)
        least = space.degree if space.coef0 == 0.0 else 1
        self.monomials = [
            monomial
            for degree in range(least, space.degree + 1)
            for monomial in combinations_with_replacement(range(X.shape[1]), degree)
        ]
        # Before the coefficients: where these overflow, values of the kernel do, and this says so.
        self.largest = max(float(self._norms(X[at : at + BLOCK_ROWS]).max()) for at in range(0, len(X), BLOCK_ROWS))
        self.roots = np.sqrt([self._coefficient(monomial) for monomial in self.monomials])
        self.rows = self._map(X)
        self.tree = TreeSearch(self.rows, n_threads)

    def _coefficient(self, monomial: tuple[int, ...]) -> float:
        space, left = self.space, self.space.degree - len(monomial)
        powers = [factorial(monomial.count(f)) for f in set(monomial)]
        ways = factorial(space.degree) // (factorial(left) * prod(powers))
        return float(ways * space.coef0**left)

    def _map(self, X: FloatArray) -> FloatArray:
        X = np.sqrt(self.space.gamma) * X  # no product is then larger than the root of the kernel's value
        mapped = np.empty((len(X), len(self.monomials)))
        for j, (monomial, root) in enumerate(zip(self.monomials, self.roots, strict=True)):
            mapped[:, j] = root * X[:, monomial].prod(axis=1)
        return mapped

    def _norms(self, X: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            norms = self.space.kernel_of_products(lane_sums(X * X))
        if not np.isfinite(norms.max(initial=0.0)):
            raise ValueError(
                f"Values of the poly kernel of degree {self.space.degree} overflow (the largest feature is "
                f"{np.abs(X).max():.3g}, coef0 is {self.space.coef0:.3g}). Scale the features, or take a smaller coef0."
            )
        return norms

    def candidates(self, Q: FloatArray, k: int, n_threads: int) -> tuple[IndexArray, FloatArray]:
        """Candidates of every query (one row each), and what the squared distance of all other rows is above."""
        size = min(self.n_rows, k + SPARE)
        norms = self._norms(Q)
        row, sq_dist, _ = self.tree.search(self._map(Q), size, n_threads)
        # Both formulas round terms no larger than the kernel's values of the two rows with themselves.
        terms = 8 * (len(self.monomials) + Q.shape[1] + 16 * self.space.degree)
        error = terms * np.finfo(np.float64).eps * (self.largest + norms)
        rest = sq_dist[:, -1] - error if size < self.n_rows else np.full(len(Q), np.inf)
        return row.astype(np.intp), rest
