"""The guard of a statistical promise: rows unlike those it was checked on go straight to the exact engine.

What the calibration rows show says nothing about rows elsewhere. Far from its support vectors an RBF machine falls back
to its bias, while an approximation may extrapolate. The guard knows the rows that the stages were built on, as the
kernel sees them (behind the machine's scaling); calibration rows outside are sent on as well, and count as such:

    box     sum_k max(low_k - x_k, x_k - high_k, 0)^2 <= box_limit, with the smallest and the largest value of each
            feature: the squared distance to the box that these span. It is infinite where a feature whose values all
            lie on a grid (`guard_grid`) has a value between grid points
    balls   |x - c|^2 <= r_c^2 for one of at most eight centres: the rows are cut into cells by a metric tree, and each
            cell has a ball around its mean that holds all rows nearest to it
    directions
            sum_j (p_j.(x - m))^2 <= direction_limit, with the mean m of the rows and the at most eight directions in
            which they vary least, each in units of its standard deviation

A row is inside if it passes all three. The balls see what the box cannot: values that are each usual but never occur
together, gaps between clusters, and rows around a single wild one, which gets a ball of its own. The directions see
what is broken where features depend on each other: noise, shuffled columns and rows of other data keep to box and
balls, which are wide in many dimensions, but not to the planes that the known rows are close to.

New rows leave the box of the old ones by a hair, with many features nearly always, and are no strangers for it. How
far ordinary rows are from a guard that was made without them sets `box_limit`, stretches the radii and raises
`direction_limit` (`guard_fit.guard_for`).

That leaves a rim: the guard has room for data that drift a little, and hardly an ordinary row is there. Its *core* is
where ordinary rows are, the same tests with smaller limits. What was calibrated says less about rows on the rim, so
hinges take their errors to be larger there (`Core.factor`): such rows are answered where it is not close.

Invariant: rows that the guard was made of are inside, rounding included: a grid that they leave is none. Nothing else
widens it.

A stage that reads rows in single precision may ask about them on the way (`Guard.in_single_precision`). It then knows
fewer rows, never others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple

import numpy as np
from scipy import sparse

from svelto import _core
from svelto._inputs import Query
from svelto._threads import thread_count
from svelto._typing import FloatArray, Rows
from svelto.engines.arrays import padded_rows
from svelto.engines.exact import instruction_level
from svelto.engines.native_stage import check_outcome, pieces
from svelto.guard_arrays import SINGLE_UNIT, native_fields, single_fields
from svelto.guard_grid import Grids
from svelto.machine import KernelMachine

# Rows that cells are found on.
CELL_ROWS: Final = 20_000
# Marking a row takes tens of nanoseconds, waking a thread some five microseconds.
ROWS_PER_THREAD: Final = _core.GUARD_ROWS_PER_THREAD
# Values looked at together.
BLOCK_VALUES: Final = 4_000_000
# Directions are left out beyond this many features: finding them takes features^3 steps, asking about them eight
# multiply-adds a feature.
DIRECTED_FEATURES: Final = 1000
# Smallest variance of a direction, as a share of the largest: rows that lie on a plane may be off it by a little.
LEAST_VARIANCE: Final = 1e-6
# ... and single precision must know where a row is, to this share of the direction's standard deviation.
SINGLE_SHARE: Final = 0.01
# Limit for rows that lie on a plane: one standard deviation of the least variance.
LEAST_DIRECTION_LIMIT: Final = 1.0
# Share of calibration rows that may be off a grid: more, and off it is where rows to come are.
GRID_EXCEPTIONS: Final = 0.001


class Core(NamedTuple):
    """Limits of the part of a guard where ordinary rows are; none is larger than the guard's own.

    The error scales of hinges count `factor` times for rows on the rim.
    """

    box_limit: float
    sq_radii: FloatArray
    direction_limit: float
    factor: float


@dataclass
class Guard:
    """Marks rows that are unlike the rows it was made of.

    Attributes
    ----------
    machine : KernelMachine
        The machine whose scaling is applied to rows that still need it.
    low, high : ndarray of shape (n_features,)
        The box.
    centres : ndarray of shape (n_balls, n_features)
        Centres of the balls; the first holds most rows, the next most of the others, and so on.
    sq_radii : ndarray of shape (n_balls,)
        Squared radii.
    directions : ndarray of shape (n_directions, n_features)
        In which the rows vary least, divided by their standard deviations; there may be none.
    offset : ndarray of shape (n_directions,)
        The mean of the rows along the directions.
    box_limit : float
        Largest squared distance to the box; 0 is the box itself.
    direction_limit : float
        Largest sum of squares along the directions.
    grids : Grids or None
        What the values of some features lie on; those that are too fine for the numbers of the box are left out.
    core : Core or None
        Where ordinary rows are; what is inside the guard and not in its core is on its rim. None: there is no rim.
    """

    machine: KernelMachine
    low: FloatArray
    high: FloatArray
    centres: FloatArray
    sq_radii: FloatArray
    directions: FloatArray
    offset: FloatArray
    box_limit: float = 0.0
    direction_limit: float = np.inf
    grids: Grids | None = None
    core: Core | None = None
    _fields: dict[str, Any] = field(init=False, repr=False)
    _native: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.grids is not None:
            self.grids = self.grids.within_reach(self.low, self.high, math.sqrt(self.box_limit))
        self._fields = native_fields(self)
        self._native = _core.Guard(self._fields, instruction_level())

    def __reduce__(self) -> tuple[Any, ...]:
        return Guard, tuple(getattr(self, part.name) for part in fields(self) if part.init)

    @classmethod
    def around(cls, machine: KernelMachine, sets: Sequence[Rows], seed: int, n_jobs: int | None = None) -> Guard:
        """The guard that knows these rows: scaled as the machine sees them, dense or sparse."""
        sample = _sample(sets, np.random.default_rng([seed, 3]))
        centres = _cell_means(sample, seed, n_jobs)
        low, high, sq_radii = _grown(sample[0], sample[0], centres, np.zeros(len(centres)), sets)
        order = _by_cover(sample, centres, sq_radii)
        directions, offset = _least_directions(sample)
        guard = cls(machine, low, high, centres[order], sq_radii[order], directions, offset)
        return replace(guard, direction_limit=guard._direction_limit(LEAST_DIRECTION_LIMIT, sets))

    def including(self, sets: Sequence[Rows]) -> Guard:
        """The same guard with more rows inside: centres, directions and box_limit stay, the rest grows.

        A grid that the rows leave is dropped.
        """
        low, high, sq_radii = _grown(self.low, self.high, self.centres, self.sq_radii, sets)
        limit = self._direction_limit(self.direction_limit, sets)
        grids = None if self.grids is None else self.grids.kept_by(_blocks(sets))
        return replace(self, low=low, high=high, sq_radii=sq_radii, direction_limit=limit, grids=grids)

    def trusting(self, rows: Rows) -> Guard:
        """The same guard without the grids that more than a few of these rows leave: they say what is to come."""
        if self.grids is None or not rows.shape[0]:
            return self
        return replace(self, grids=self.grids.kept_by(_blocks([rows]), GRID_EXCEPTIONS))

    def _direction_limit(self, least: float, sets: Sequence[Rows]) -> float:
        """What holds further rows; infinite where there are no directions."""
        if not len(self.directions):
            return np.inf
        return max([least, *(float(self._direction_sums(block).max()) for block in _blocks(sets))])

    def __call__(self, query: Query, n_jobs: int | None = None) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether each row is outside; a row that cannot be read is named, as by the engines."""
        out = np.empty(query.rows.shape[0], dtype=np.bool_)
        for start, part, threads in pieces(query.rows, n_jobs, ROWS_PER_THREAD):
            to = out[start : start + part.shape[0]]
            if sparse.issparse(part):
                outcome = self._native.mark_csr(part.data, part.indices, part.indptr, to, threads)
            else:
                outcome = self._native.mark_dense(part, to, query.scale, threads)
            check_outcome(outcome, query.rows, start)
        return out

    @property
    def native_part(self) -> Any:
        """Itself as a part of a native cascade."""
        return self._native

    def outside_core(self, rows: Rows) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether each scaled row is on the rim or beyond; nobody is where there is no core."""
        if self.core is None:
            return np.zeros(rows.shape[0], dtype=bool)
        inner = replace(self, sq_radii=self.core.sq_radii, core=None)
        near = (self.box_distances(rows) <= self.core.box_limit) & (inner.ball_ratios(rows) <= 1.0)
        return np.asarray(~(near & (self.direction_sums(rows) <= self.core.direction_limit)))

    def box_distances(self, rows: Rows) -> FloatArray:
        """Squared distance of each scaled row to the box; infinite where a value is off its grid."""
        return np.concatenate([np.empty(0), *map(self._box_distances, _blocks([rows]))])

    def _box_distances(self, rows: FloatArray) -> FloatArray:
        gap = rows - np.clip(rows, self.low, self.high)
        distances: FloatArray = np.einsum("ij,ij->i", gap, gap)
        if self.grids is not None:
            distances[self.grids.off(rows).any(axis=1)] = np.inf
        return distances

    def ball_ratios(self, rows: Rows) -> FloatArray:
        """|x - c| / r of each scaled row, for the ball where this is smallest; up to 1 the row is in a ball."""
        return np.concatenate([np.empty(0), *map(self._ball_ratios, _blocks([rows]))])

    def _ball_ratios(self, rows: FloatArray) -> FloatArray:
        smallest = np.full(len(rows), np.inf)
        for centre, sq_radius in zip(self.centres, self.sq_radii, strict=True):
            difference = rows - centre
            sq_dist = np.einsum("ij,ij->i", difference, difference)
            beyond = np.where(sq_dist > 0.0, np.inf, 0.0)  # of a ball that is a point
            ratio = np.divide(sq_dist, sq_radius, out=beyond, where=sq_radius > 0.0)
            np.minimum(smallest, ratio, out=smallest)
        return np.asarray(np.sqrt(smallest))

    def direction_sums(self, rows: Rows) -> FloatArray:
        """Sum of squares of each scaled row along the directions; zero where there are none."""
        return np.concatenate([np.empty(0), *map(self._direction_sums, _blocks([rows]))])

    def _direction_sums(self, rows: FloatArray) -> FloatArray:
        along = rows @ self.directions.T - self.offset
        return np.asarray(np.einsum("ij,ij->i", along, along))

    def in_single_precision(self, shift: FloatArray, *, rim: bool = False) -> dict[str, Any]:
        """Arrays for native code that reads rows as float32, `shift` taken off: what it calls inside is inside.

        With `rim` it is told apart from the core; else all that is inside is one.
        """
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return single_fields(self if rim else replace(self, core=None), shift)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(v.nbytes for v in self._fields.values() if isinstance(v, np.ndarray))


def _blocks(sets: Sequence[Rows]) -> Iterator[FloatArray]:
    """The rows as dense float64, some at a time."""
    for rows in sets:
        step = max(1, BLOCK_VALUES // rows.shape[1])
        for start in range(0, rows.shape[0], step):
            part = rows[start : start + step]
            yield np.asarray(part.toarray() if sparse.issparse(part) else part, dtype=np.float64)


def _grown(
    low: FloatArray, high: FloatArray, centres: FloatArray, sq_radii: FloatArray, sets: Sequence[Rows]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Box and squared radii that hold further rows, each in the ball of the centre nearest to it."""
    sq_radii = sq_radii.copy()
    for rows in _blocks(sets):
        low, high = np.minimum(low, rows.min(axis=0)), np.maximum(high, rows.max(axis=0))
        nearest = _sq_distances(rows, centres).argmin(axis=1)
        difference = rows - centres[nearest]
        np.maximum.at(sq_radii, nearest, np.einsum("ij,ij->i", difference, difference))
    return low, high, sq_radii


def _sample(sets: Sequence[Rows], rng: np.random.Generator) -> FloatArray:
    total = sum(rows.shape[0] for rows in sets)
    parts = []
    for rows in sets:
        n = rows.shape[0]
        size = min(n, -(-CELL_ROWS * n // total))
        parts.append(rows[np.sort(rng.choice(n, size=size, replace=False))])
    return np.concatenate(list(_blocks(parts)))


def _cell_means(sample: FloatArray, seed: int, n_jobs: int | None) -> FloatArray:
    """Means of the cells of a metric tree; cuts are half-way between the farthest rows, so wild ones stand alone."""
    centred = sample - sample.mean(axis=0)
    size = float(np.abs(centred).max())
    rows = padded_rows(centred / size if size > 0.0 else centred)
    tree = _core.build_tree(rows, 1, _core.GUARD_LANES, 0, 256, 0.0, seed, thread_count(n_jobs), instruction_level())
    start = tree["leaf_start"]
    means: FloatArray = np.add.reduceat(sample[tree["order"]], start[:-1], axis=0) / np.diff(start)[:, None]
    return means


def _sq_distances(rows: FloatArray, centres: FloatArray) -> FloatArray:
    """Squared distances, good enough to compare: digits that a common offset takes are put back first."""
    offset = centres.mean(axis=0)
    rows, centres = rows - offset, centres - offset
    norms: FloatArray = np.einsum("ij,ij->i", rows, rows)[:, None] + np.einsum("ij,ij->i", centres, centres)
    return norms - 2.0 * (rows @ centres.T)


def _by_cover(sample: FloatArray, centres: FloatArray, sq_radii: FloatArray) -> list[int]:
    """Balls in an order that finds one for most rows early."""
    held = np.concatenate([_sq_distances(rows, centres) <= sq_radii for rows in _blocks([sample])])
    order: list[int] = []
    while len(order) < len(centres):
        counts = held.sum(axis=0)
        counts[order] = -1
        order.append(int(counts.argmax()))
        held[held[:, order[-1]]] = False
    return order


def _least_directions(sample: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Directions of the smallest variances, in units of their standard deviations, and the mean along them."""
    n, d = sample.shape
    mean = sample.mean(axis=0)
    centred = sample - mean
    size = float(np.abs(centred).max())  # of a unit in which squares are numbers
    none = np.empty((0, d)), np.empty(0)
    if d > DIRECTED_FEATURES or n <= d or not 0.0 < size < np.inf:
        return none
    centred /= size
    variances, vectors = np.linalg.eigh(centred.T @ centred / n)
    vectors = vectors[:, : _core.GUARD_LANES].T
    longest = float(np.sqrt(np.einsum("ij,ij->i", centred, centred).max()))
    reach = np.minimum(np.abs(vectors) @ np.abs(centred).max(axis=0), longest)
    lost = SINGLE_UNIT * (d + 16) * reach  # of a dot product in single precision
    deviations = np.sqrt(np.maximum(variances[: len(vectors)], LEAST_VARIANCE * variances[-1]))
    with np.errstate(over="ignore", invalid="ignore"):
        directions = vectors / (np.maximum(deviations, lost / SINGLE_SHARE) * size)[:, None]
        offset = directions @ mean
    return (directions, offset) if np.isfinite(directions).all() and np.isfinite(offset).all() else none
