"""Bounds from a projection: the part of a score that lies in the span of a few vectors is known (promise: exact).

A positive definite kernel is an inner product, k(x, s) = <phi(x), phi(s)>, and a score is <phi(x), w_p> + b_p with
w_p = sum_i a_pi phi(s_i). With P the projection on the span of n support vectors, Cauchy and Schwarz give

    <phi(x), w_p>  =  <P phi(x), P w_p>  +-  ||phi(x) - P phi(x)|| ||w_p - P w_p||.

Support vectors are put in one order for all rows: next is the one that takes most off the w_p, each in units of its
own length (a Cholesky factorisation T T' = G of their kernel matrix, with that choice of pivots). Rows are evaluated
along it, all open rows together, a block of vectors at a time, until their labels are certain. With E the vectors so
far, z = T^-1 k(E, x) are the coordinates of a row, c_p those of w_p, and ||phi(x) - P phi(x)||^2 = k(x, x) - z.z.

Rounding. T, z and c are what the computer holds, whatever errors they have; psi = T^-1 phi(E) is exact and nearly
orthonormal. Let D = <psi, psi'> - I, e = <psi, phi(x)> - z, h = <psi, w> - c. Then, without approximation,

    <phi(x), w>              =  z.c + z.h + c.e - z'D c + <phi(x) - sum z psi, w - sum c psi>
    ||phi(x) - sum z psi||^2 =  k(x, x) - z.z - 2 z.e + z'D z
    ||w - sum c psi||^2      =  ||w||^2 - c.c - 2 c.h + c'D c

    ||D||  <=  ||T^-1||^2 ||G - T T'||
    ||e||  <=  ||T^-1|| ||k(E, x) - T z||
    ||h||  <=  ||T^-1|| ||k(E, S) a - T c||.

The three residuals are computed; what they may be off by is added: the errors of the kernel values, element by element,
and ``n 2^-53`` of the norms of the factors of each product, twice and more. ||T^-1|| comes from the computed inverse,
which is checked. The basis ends where a pivot falls below 1e-6, so that ||T^-1|| stays moderate. All of it holds for
every leading part of the basis, because T is triangular. At last comes the distance between LIBSVM's sum and the true
score.

Anything that is not finite settles nothing.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from scipy.linalg import eigvalsh, solve_triangular
from threadpoolctl import threadpool_limits

from svelto._typing import FloatArray, IndexArray, IntArray
from svelto.distance_bounds import SMALLEST, UNIT, Bound
from svelto.engines.references import Evaluate
from svelto.engines.score_sums import ScoreSums
from svelto.machine import KernelMachine

# A pivot below this share of k(x, x) ends the basis.
LEAST_PIVOT: Final = 1e-6
# Multiply-adds that choosing the basis may take (some five seconds), and numbers in the table of coordinates (400 MB).
BASIS_OPERATIONS: Final = 5e9
TABLE_NUMBERS: Final = 5e7
# Up to this many vectors their kernel matrix is kept while building (128 MB); beyond, its columns are evaluated again.
KEPT_VECTORS: Final = 4000
# Vectors between two looks at the bounds: this share of those before, and at least so many.
BLOCK_SHARE: Final = 0.02
LEAST_BLOCK: Final = 2


class NotPositiveDefiniteError(ValueError):
    """The kernel matrix of the support vectors shows that the kernel is no inner product."""


class ProjectionBounds:
    """Labels from projections on the span of the first vectors of one order.

    Parameters
    ----------
    machine : KernelMachine
        The machine.
    bound : Bound
        Of its kernel, which must be positive definite.
    evaluate : callable
        Kernel values of support vectors with support vectors, both by number.
    """

    name: Final = "projection"

    def __init__(self, machine: KernelMachine, bound: Bound, evaluate: Evaluate) -> None:
        self.machine = machine
        self.bound = bound
        sums = ScoreSums(machine)
        inner, errors, kept = _inner_products(sums, bound, evaluate)
        if machine.kernel.name == "callable" and kept is not None:
            _check_definite(machine, bound, kept)
        most = basis_limit(machine)
        with threadpool_limits(1, user_api="blas"):  # many short products: threads would mostly wait for each other
            self.basis, factor = _choose_basis(sums, bound, inner, kept, most, evaluate)
        rest = kept[np.ix_(self.basis, self.basis)] if kept is not None else evaluate(self.basis, self.basis)
        coef_total = sums.sums(np.ones((1, machine.n_sv)), sizes=True)[0]
        n_sv = machine.n_sv
        # LIBSVM's sum against the true score, every value taken as large as it can be.
        self._margin = (
            (2.0 * bound.largest_error + 8.0 * (n_sv + 16) * UNIT * bound.top) * coef_total
            + 8.0 * UNIT * np.abs(machine.intercept)
            + SMALLEST * (1.0 + coef_total)
        )
        self._margin[~(coef_total * bound.top < 1e290)] = np.inf
        self._factor = factor
        self._prepare(sums, inner, errors, rest)

    @property
    def nbytes(self) -> int:
        """Bytes of the factor and of the tables."""
        arrays = [self.basis, self._factor, self._coordinates, self._rest, self._length, self._off]
        return int(sum(array.nbytes for array in (*arrays, *self._inverses)))

    def settle(self, values: FloatArray, evaluate: Evaluate) -> IntArray:
        """Labels in vote order, -1 where the basis ends before the label is certain; `values` as for references."""
        from svelto.cascade import settled_labels

        n = len(values)
        labels: IntArray = np.full(n, -1, dtype=np.int32)
        rows = np.arange(n)
        state = _Rows.start(n, len(self.basis), self.machine)
        for step in range(len(self._stops)):
            first, stop = self._starts[step], self._stops[step]
            numbers = self.basis[first:stop]
            new = evaluate(rows, numbers)
            values[np.ix_(rows, numbers)] = new
            scores, bounds = self._advance(state, step, new)
            found = settled_labels(self.machine, scores, bounds)
            labels[rows] = found
            is_open = found < 0
            if not is_open.all():
                rows = rows[is_open]
                state.keep(is_open)
            if not len(rows):
                break
        return labels

    def score_intervals(self, values: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        """Middles and half widths (n, n_scores) after each block, from rows (n, n_sv) of kernel values."""
        state = _Rows.start(len(values), len(self.basis), self.machine)
        return [
            self._advance(state, step, values[:, self.basis[first:stop]])
            for step, (first, stop) in enumerate(zip(self._starts, self._stops, strict=True))
        ]

    def _advance(self, rows: _Rows, step: int, new: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Take the next block of kernel values in; scores and their bounds."""
        first, stop = self._starts[step], self._stops[step]
        T, C = self._factor, self._coordinates
        left = new - rows.z[:, :first] @ T[first:stop, :first].T
        z = left @ self._inverses[step].T
        residual = left - z @ T[first:stop, first:stop].T
        rows.z[:, first:stop] = z
        rows.scores += z @ C[first:stop]
        rows.sq_length += np.einsum("ij,ij->i", z, z)
        rows.sq_residual += np.einsum("ij,ij->i", residual, residual)
        error = self.bound.error(new) * new + SMALLEST
        rows.sq_error += np.einsum("ij,ij->i", error, error)
        rows.sq_values += np.einsum("ij,ij->i", new, new)
        length, e, rest = self._row_lengths(rows, step)
        bounds = rest[:, None] * self._rest[step]
        bounds += length[:, None] * self._off[step]
        bounds += (e + (self._deviation[step] + 4.0 * (stop + 8) * UNIT) * length)[:, None] * self._length[step]
        bounds *= 1.0 + 16.0 * UNIT
        bounds += self._margin
        return rows.scores + self.machine.intercept, bounds

    def _row_lengths(self, rows: _Rows, step: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Upper bounds on ||z||, ||e|| and ||phi(x) - sum z psi|| of each row."""
        stop = self._stops[step]
        # Names as in the module's text; norms are taken a little larger than computed.
        more = 1.0 + 4.0 * (stop + 8) * UNIT
        length = np.sqrt(rows.sq_length) * more
        rounding = 2.0 * (stop + 8) * UNIT * (self._factor_norm[step] * length + np.sqrt(rows.sq_values))
        e = self._inverse_norm[step] * (np.sqrt(rows.sq_residual) + np.sqrt(rows.sq_error) + rounding) * more
        deviation = self._deviation[step]
        sq_rest = self.bound.top * (1.0 + 4.0 * self.bound.constant) - rows.sq_length
        sq_rest = sq_rest + 2.0 * length * e + (deviation + 8.0 * (stop + 8) * UNIT) * length**2
        return length, e, _root(sq_rest) * more

    def _prepare(self, sums: ScoreSums, inner: FloatArray, errors: FloatArray, gram: FloatArray) -> None:
        """Tables for each stop: the lengths of what is left of the w_p, and how far everything may be off."""
        T, n_sv, r = self._factor, self.machine.n_sv, len(self.basis)
        stops = looks(r)
        self._starts, self._stops = [0, *stops[:-1]], stops
        at = np.array(stops) - 1
        rounding = 4.0 * (r + 8) * UNIT
        # The inverse: T X = I + defect, so ||T^-1|| <= ||X|| / (1 - ||defect||), for every leading part.
        X = solve_triangular(T, np.eye(r), lower=True)
        factor_norm = np.sqrt(_leading(T**2))
        inverse_frobenius = np.sqrt(_leading(X**2))
        by_rows = np.maximum.accumulate(np.abs(X).sum(axis=1))
        by_columns = np.cumsum(np.abs(X), axis=0).max(axis=1)
        inverse_norm = np.minimum(inverse_frobenius, np.sqrt(by_rows * by_columns))
        defect = np.sqrt(_leading((T @ X - np.eye(r)) ** 2)) + rounding * factor_norm * inverse_frobenius
        inverse_norm = np.where(defect < 0.5, inverse_norm / np.maximum(1.0 - defect, 0.5), np.inf) * (1.0 + rounding)
        # D: the residual of the factorisation, its rounding, and the errors of the kernel values.
        residual = np.sqrt(_leading((gram - T @ T.T) ** 2)) + rounding * factor_norm**2
        of_values = np.sqrt(_leading((self.bound.error(gram) * gram + SMALLEST) ** 2))
        deviation = inverse_norm**2 * (residual + of_values) * (1.0 + rounding)
        # c and h.
        target = inner[:, self.basis].T
        C = solve_triangular(T, target, lower=True)
        sq_c = np.cumsum(C**2, axis=0)
        missed = np.sqrt(np.cumsum((target - T @ C) ** 2, axis=0))
        missed += np.sqrt(np.cumsum(errors[:, self.basis].T ** 2, axis=0))
        missed += rounding * (factor_norm[:, None] * np.sqrt(sq_c) + np.sqrt(np.cumsum(target**2, axis=0)))
        off = inverse_norm[:, None] * missed * (1.0 + rounding)
        # ||w - sum c psi||.
        rows = np.arange(self.machine.n_scores)
        sq_w = _own(sums, inner)
        w_error = _own(sums, errors, sizes=True) + 4.0 * (n_sv + 8) * UNIT * _own(sums, np.abs(inner), sizes=True)
        sq_rest = (sq_w + w_error)[rows] - sq_c + 2.0 * np.sqrt(sq_c) * off
        sq_rest += (deviation[:, None] + rounding) * sq_c
        self._rest = _root(sq_rest)[at] * (1.0 + rounding)
        self._length = np.sqrt(sq_c)[at] * (1.0 + rounding)
        self._off = off[at]
        self._coordinates = np.ascontiguousarray(C)
        self._deviation, self._inverse_norm, self._factor_norm = deviation[at], inverse_norm[at], factor_norm[at]
        self._inverses = [np.ascontiguousarray(X[a:b, a:b]) for a, b in zip(self._starts, self._stops, strict=True)]


class _Rows:
    """What is known of the open rows of a piece."""

    def __init__(self, arrays: dict[str, FloatArray]) -> None:
        self.z, self.scores = arrays["z"], arrays["scores"]
        self.sq_length, self.sq_residual = arrays["sq_length"], arrays["sq_residual"]
        self.sq_error, self.sq_values = arrays["sq_error"], arrays["sq_values"]

    @classmethod
    def start(cls, n: int, r: int, machine: KernelMachine) -> _Rows:
        sums = {name: np.zeros(n) for name in ("sq_length", "sq_residual", "sq_error", "sq_values")}
        return cls({"z": np.empty((n, r)), "scores": np.zeros((n, machine.n_scores)), **sums})

    def keep(self, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        for name, array in vars(self).items():
            setattr(self, name, array[chosen])


def looks(n_basis: int) -> list[int]:
    """Numbers of vectors after which the bounds are looked at."""
    stops = [min(LEAST_BLOCK, n_basis)]
    while stops[-1] < n_basis:
        stops.append(min(stops[-1] + max(LEAST_BLOCK, int(BLOCK_SHARE * stops[-1])), n_basis))
    return stops


def basis_limit(machine: KernelMachine) -> int:
    """Largest number of basis vectors that choosing and storing them allows: r n_sv (n_scores + r) operations."""
    n_sv, n_scores = machine.n_sv, machine.n_scores
    by_time = 0.5 * (math.sqrt(n_scores**2 + 4.0 * BASIS_OPERATIONS / n_sv) - n_scores)
    by_space = min(TABLE_NUMBERS / n_scores / 4.0, math.sqrt(TABLE_NUMBERS))
    return max(1, min(n_sv, int(by_time), int(by_space)))


def _root(squares: FloatArray) -> FloatArray:
    """Square roots; infinite where an upper bound is negative, which shows that the kernel is no inner product."""
    return np.where(squares >= 0.0, np.sqrt(np.maximum(squares, 0.0)), np.inf)


def _leading(squares: FloatArray) -> FloatArray:
    """Sum of each leading square part of a matrix of squares."""
    below, right = np.tril(squares).sum(axis=1), np.triu(squares, 1).sum(axis=0)
    return np.asarray(np.cumsum(below + right))


def _own(sums: ScoreSums, values: FloatArray, *, sizes: bool = False) -> FloatArray:
    """``sum_i a_pi values[p, i]`` for each score p."""
    from svelto.engines.packing import expand_rows

    rows = expand_rows(sums.machine, sums.sizes if sizes else sums.coef)
    return np.array([float(row @ of) for row, of in zip(rows, values, strict=True)])


def _inner_products(
    sums: ScoreSums, bound: Bound, evaluate: Evaluate
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """<w_p, phi(s_i)>, how far each may be off, and the kernel matrix where it is small enough to keep."""
    n_sv = sums.machine.n_sv
    inner, errors = np.empty((sums.machine.n_scores, n_sv)), np.empty((sums.machine.n_scores, n_sv))
    kept = np.empty((n_sv, n_sv)) if n_sv <= KEPT_VECTORS else None
    step = max(1, min(2_000_000 // n_sv, n_sv // 16))  # 16 blocks: nearly half of the matrix is mirrored
    numbers = np.arange(n_sv)
    for start in range(0, n_sv, step):
        block = numbers[start : start + step]
        if kept is None:
            values = evaluate(block, numbers)
        else:  # symmetric: what an earlier block has seen is copied
            kept[start:, block] = evaluate(block, numbers[start:]).T
            kept[block, start:] = kept[start:, block].T
            values = kept[block]
        inner[:, block] = sums.sums(values).T
        off = values * (bound.error(values) + 4.0 * (n_sv + 8) * UNIT) + SMALLEST
        errors[:, block] = sums.sums(off, sizes=True).T
    return inner, errors, kept


def _check_definite(machine: KernelMachine, bound: Bound, gram: FloatArray) -> None:
    """Refuse a function that is called positive definite and is not, as far as the support vectors show it."""
    lowest = float(eigvalsh(gram, subset_by_index=[0, 0])[0])
    if lowest < -4.0 * len(gram) * (bound.largest_error + len(gram) * UNIT * bound.top):
        raise NotPositiveDefiniteError(
            f"{machine.kernel} is not positive definite: the kernel matrix of the support vectors has the eigenvalue "
            f"{lowest:.3g}. Use bound='references', or register it with positive_definite=False."
        )


def _choose_basis(
    sums: ScoreSums,
    bound: Bound,
    inner: FloatArray,
    kept: FloatArray | None,
    most: int,
    evaluate: Evaluate,
) -> tuple[IndexArray, FloatArray]:
    """The order of the vectors, and the Cholesky factor of their kernel matrix."""
    n_sv = inner.shape[1]
    everything = np.arange(n_sv)
    pivots = np.full(n_sv, bound.top)
    columns = np.zeros((most, n_sv))  # of the factor, one a row
    coordinates = np.zeros((most, len(inner)))
    sq_w = np.maximum(_own(sums, inner), 0.0)
    unit = np.where(sq_w > 0.0, 1.0 / np.maximum(sq_w, 1e-300), 0.0)
    gain = unit @ inner**2
    left = sq_w.copy()
    order: list[int] = []
    while len(order) < most:
        t = len(order)
        score = np.where(pivots > LEAST_PIVOT * bound.top, gain / np.maximum(pivots, LEAST_PIVOT * bound.top), -1.0)
        if t:
            score[order] = -1.0
        j = int(score.argmax())
        if not score[j] > 0.0 or not (left * unit).sum() > 1e-13:
            break
        values = kept[j] if kept is not None else evaluate(np.array([j]), everything)[0]
        root = math.sqrt(pivots[j])
        c = (inner[:, j] - columns[:t, j] @ coordinates[:t]) / root
        weights = unit * c
        column = (values - columns[:t, j] @ columns[:t]) / root
        # Inner products of the rests of the w_p with all vectors shrink by c times the new column.
        along = weights @ inner - (coordinates[:t] @ weights) @ columns[:t]
        gain = np.maximum(gain - 2.0 * along * column + float(weights @ c) * column**2, 0.0)
        columns[t], coordinates[t] = column, c
        pivots = pivots - column**2
        left = np.maximum(left - c**2, 0.0)
        order.append(j)
    if not order:
        order = [int(np.abs(sums.coef).sum(axis=0).argmax())]
        columns[0] = (kept[order[0]] if kept is not None else evaluate(np.array(order), everything)[0]) / math.sqrt(
            bound.top
        )
    basis = np.array(order)
    factor = np.tril(columns[: len(order)][:, basis].T)
    np.fill_diagonal(factor, np.maximum(np.diag(factor), math.sqrt(LEAST_PIVOT * bound.top)))
    return basis, np.ascontiguousarray(factor)
