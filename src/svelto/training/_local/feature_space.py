"""Squared distances in a kernel's feature space: the one formula that decides who is nearest.

    rbf, exponential, linear, poly of degree 1   ||x - q||^2   (a monotone function of it orders the feature space)
    poly of any other degree                     K(x, x) + K(q, q) - 2 K(x, q)

Sums over features are float64 sums in eight lanes: feature f goes to lane f % 8, each lane adds its terms in the order
of features, and the lanes are added in a fixed order at the end. A feature that is 0 in both rows adds nothing, so
dense and CSR rows agree to the last bit, and so does native code. Powers are products from the left.

Invariant: the value for a pair of rows depends on these two rows and the kernel alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy import sparse

from svelto import _core
from svelto._typing import FloatArray, IndexArray, Rows
from svelto.engines.exact import instruction_level
from svelto.kernels import Kernel

LANES: Final = _core.EXACT_LANES
# Pairs of rows that are brought together at a time, in numbers: 16 MB.
PAIR_NUMBERS: Final = 2_000_000
EUCLIDEAN: Final = ("rbf", "exponential", "linear")


@dataclass(frozen=True)
class FeatureSpace:
    """Distances of a kernel.

    Attributes
    ----------
    euclidean : bool
        Whether rows are compared where they are; otherwise by poly, with the numbers below.
    gamma, coef0 : float
        (gamma x.q + coef0) ^ degree.
    degree : int
        Not 1.
    """

    euclidean: bool = True
    gamma: float = 1.0
    coef0: float = 0.0
    degree: int = 2

    @classmethod
    def of(cls, kernel: Kernel | None) -> FeatureSpace:
        """The space of a kernel; Euclidean for None."""
        if kernel is None or kernel.name in EUCLIDEAN:
            return cls()
        if kernel.name != "poly":
            raise NotImplementedError(
                f"Neighbours in the feature space of the {kernel.name} kernel are not supported. "
                "Use rbf, linear or poly."
            )
        if kernel.degree == 1 and kernel.gamma > 0.0:
            return cls()
        return cls(False, float(kernel.gamma), float(kernel.coef0), int(kernel.degree))

    def kernel_of_products(self, products: Any) -> FloatArray:
        """Poly from x.q."""
        base = self.gamma * np.asarray(products, dtype=np.float64) + self.coef0
        values: FloatArray = np.ones_like(base)
        for _ in range(self.degree):
            values = values * base
        return values

    def pair_distances(self, X: Rows, Q: Rows, row_of: IndexArray, query_of: IndexArray) -> FloatArray:
        """Squared distance of X[row_of[i]] and Q[query_of[i]] for every i; X and Q float64, both dense or both CSR."""
        out = np.empty(len(row_of))
        if self.euclidean and not sparse.issparse(X):
            rows, queries = (np.ascontiguousarray(numbers, dtype=np.int32) for numbers in (row_of, query_of))
            _core.pair_distances(instruction_level(), X, whole_lanes(Q), rows, queries, out)
            return out
        width = X.nnz // max(1, X.shape[0]) + 1 if sparse.issparse(X) else X.shape[1]
        step = max(1, PAIR_NUMBERS // width)
        for start in range(0, len(row_of), step):
            part = slice(start, start + step)
            out[part] = self._aligned(X[row_of[part]], Q[query_of[part]])
        return out

    def _aligned(self, A: Rows, B: Rows) -> FloatArray:
        """Distances of rows that stand side by side."""
        if self.euclidean:
            difference = A - B
            return lane_sums(difference.multiply(difference) if sparse.issparse(A) else difference * difference)
        products = [lane_sums(P.multiply(R) if sparse.issparse(P) else P * R) for P, R in ((A, A), (B, B), (A, B))]
        aa, bb, ab = (self.kernel_of_products(values) for values in products)
        return np.maximum((aa + bb) - 2.0 * ab, 0.0)


def lane_sums(terms: Rows) -> FloatArray:
    """Sums of rows, in lanes."""
    n, d = terms.shape
    if sparse.issparse(terms):
        terms = terms.tocsr()
        terms.sort_indices()
        slot = np.repeat(np.arange(n) * LANES, np.diff(terms.indptr)) + terms.indices % LANES
        lane = np.bincount(slot, weights=terms.data, minlength=n * LANES).reshape(n, LANES)  # adds in order
    else:
        lane = np.zeros((n, LANES))
        for f in range(0, d, LANES):
            lane[:, : min(LANES, d - f)] += terms[:, f : f + LANES]
    halves = lane[:, :4] + lane[:, 4:]
    sums: FloatArray = (halves[:, 0] + halves[:, 2]) + (halves[:, 1] + halves[:, 3])
    return sums


def whole_lanes(Q: FloatArray) -> FloatArray:
    """Dense rows, padded with zeros to whole lanes."""
    n, d = Q.shape
    if d % LANES == 0:
        return np.ascontiguousarray(Q)
    padded = np.zeros((n, -(-d // LANES) * LANES))
    padded[:, :d] = Q
    return padded
