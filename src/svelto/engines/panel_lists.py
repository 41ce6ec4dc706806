"""Lists of panels: the paper's lists of support vectors (S3), in the blocks that the tile loop works on.

Space is cut into regions, the cells of some centres. A region's list holds the panels (32 neighbouring support vectors
of one group each) in the order in which they matter there, and after every chunk of panels an interval for what is
left, for rows up to several distances from the centre. For a vector at distance D from the centre, a row at distance r
from it is no nearer than D - r and no farther than D + r, so its kernel value lies between those of the two: the
paper's (14), but summed vector by vector for every kernel that falls with distance, where the paper's (10)-(11) takes
one distance for all that is left of a Gaussian machine.

All distances are in the units of the float32 packing (shifted by the vectors' mean, scaled), where a centre is a
float32 vector exactly and k = 2^(-t) with t = distance^2 / 2, or -scale times distance or its square.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.cluster import MiniBatchKMeans

from svelto import _core
from svelto._typing import FloatArray, IndexArray
from svelto.engines.arrays import aligned
from svelto.engines.packing import (
    Fields,
    Grouping,
    group_vectors,
    panel_array,
    positions_of,
)
from svelto.machine import KernelMachine

WIDTH: Final = _core.PANEL_WIDTH_F32
# Steps of the power iteration for a principal axis.
AXIS_STEPS: Final = 6
# Lists end here: a row that needs more of the panels than this is better off with the whole sum.
LONGEST_SHARE: Final = 0.6
# Panels of the first chunks; the others are as long as the last of these, and where checks are dear grow by a factor.
FIRST_CHUNKS: Final = (8, 8, 8, 8)
GROWTH: Final = 1.6
# Looking for a label takes some operations a score; chunks are at least so many times longer than that takes.
OPERATIONS_PER_SCORE: Final = 12.0
CHUNK_TO_CHECK: Final = 5.0
# Distances from the centre at which the rest is tabulated: quantiles over typical rows, and this much farther out.
LEVELS: Final = (0.2, 0.4, 0.6, 0.8, 0.95)
FAR_OUT: Final = 1.5
# Size of the tables that are worth their place in memory, in numbers.
MOST_REST_NUMBERS: Final = 16_000_000
# Everything in the tables is a sum of float64 terms off by far less than this (rounding of distances, exponents, sums).
RELATIVE_SLACK: Final = 1e-7
UNIT: Final = 2.0**-53
LARGEST_REFERENCE_ERROR: Final = 1e-3
ABSOLUTE_SLACK: Final = 1e-290
DISTANCE_SLACK: Final = 1e-12


def neighbouring_groups(machine: KernelMachine) -> Grouping:
    """The usual groups, members in an order that puts neighbours into the same panel."""
    grouping = group_vectors(machine)
    vectors = machine.support_vectors
    if sparse.issparse(vectors):
        vectors = vectors.toarray()
    return replace(grouping, members=[_in_neighbour_order(vectors, members) for members in grouping.members])


def _in_neighbour_order(vectors: FloatArray, members: IndexArray) -> IndexArray:
    """Halve along the principal axis, at whole panels, until panels are left."""
    if len(members) <= WIDTH:
        return members
    along = _along_principal_axis(vectors[members] - vectors[members].mean(axis=0))
    order = members[np.argsort(along, kind="stable")]
    half = -(-len(members) // WIDTH) // 2 * WIDTH
    return np.concatenate([_in_neighbour_order(vectors, order[:half]), _in_neighbour_order(vectors, order[half:])])


def _along_principal_axis(rows: FloatArray) -> FloatArray:
    """Where rows stand along the direction of their largest spread, roughly: any split is right, some are faster."""
    along: FloatArray = rows @ rows[int(np.einsum("ij,ij->i", rows, rows).argmax())]
    for _ in range(AXIS_STEPS):
        axis = along @ rows
        length = float(np.linalg.norm(axis))
        if not 0.0 < length < np.inf:
            break
        along = rows @ (axis / length)
    return along


def to_packed(fields: Fields, X: FloatArray) -> FloatArray:
    """Rows in the units of the float32 packing."""
    packed: FloatArray = (X - fields["centre"]) * fields["row_scale_f32"]
    return packed


class _Region:
    """What is needed of every vector to bound it in one region after the other."""

    def __init__(self, machine: KernelMachine, fields: Fields, grouping: Grouping) -> None:
        vectors = machine.support_vectors
        dense = vectors.toarray() if sparse.issparse(vectors) else np.asarray(vectors)
        positions, group_start, n_panels = positions_of(grouping.members, WIDTH)
        self.n_panels, self.group_start = n_panels, group_start
        self.is_rbf = machine.kernel.name == "rbf"
        self.metric = "cityblock" if machine.kernel.name == "laplacian" else "euclidean"
        self.scale = -0.5 if fields["pair_f32"] == 0 else float(fields["scale_f32"])
        self.vectors = np.zeros((n_panels * WIDTH, dense.shape[1]))
        self.vectors[positions] = to_packed(fields, dense)
        # LIBSVM's columns, without those that only hold magnitudes.
        self.n_cols = grouping.abs_cols or len(grouping.columns)
        self.weights = np.zeros((n_panels * WIDTH, self.n_cols))
        self.weights[positions] = grouping.columns[: self.n_cols].T
        self.is_vector = np.zeros(n_panels * WIDTH, dtype=bool)
        self.is_vector[positions] = True
        self.size = float(np.linalg.norm(self.vectors, axis=1).max()) * (
            np.sqrt(dense.shape[1]) if self.metric == "cityblock" else 1.0
        )

    def exponents(self, distance: FloatArray) -> FloatArray:
        """The exponent t of the kernel value 2^-t at a distance."""
        return -self.scale * (distance * distance if self.is_rbf else distance)

    def values(self, distance: FloatArray) -> FloatArray:
        """The kernel at a distance."""
        result: FloatArray = np.exp2(-self.exponents(distance))
        return result

    def sums(self, centre: FloatArray, reach: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Least, largest and largest absolute contribution of each panel, and how far from the centre it reaches.

        The first three have the shape (n_levels, n_panels, n_cols), the last (n_panels,).
        """
        distance = cdist(centre[None, :], self.vectors, self.metric)[0]
        slack = DISTANCE_SLACK * (distance + self.size + float(np.abs(centre).sum()))
        low = self.values(distance + slack + reach[:, None])
        high = self.values(np.maximum(distance - slack - reach[:, None], 0.0))
        positive, negative = np.maximum(self.weights, 0.0), np.minimum(self.weights, 0.0)

        def by_panel(for_positive: FloatArray, for_negative: FloatArray) -> FloatArray:
            shape = (len(reach), self.n_panels, WIDTH)
            a = np.einsum("lpw,pwc->lpc", for_positive.reshape(shape), positive.reshape(self.n_panels, WIDTH, -1))
            b = np.einsum("lpw,pwc->lpc", for_negative.reshape(shape), negative.reshape(self.n_panels, WIDTH, -1))
            return np.stack([a, b])

        least, most = by_panel(low, high), by_panel(high, low)
        largest = most[0] - least[1]
        # Padding has no weight, so it does not matter how far away it is.
        farthest = np.where(self.is_vector, distance + slack, 0.0).reshape(self.n_panels, WIDTH).max(axis=1)
        return least.sum(axis=0), most.sum(axis=0), largest, farthest


def rest_at(region: _Region, machine: KernelMachine, centre: FloatArray, away: float) -> tuple[FloatArray, FloatArray]:
    """Interval of what is left at the end of a list, for rows `away` from its centre: (n_scores,) each."""
    least, most, _, _ = region.sums(centre, np.array([away]))
    left = np.argsort(-(most - least)[0].sum(axis=1), kind="stable")[_longest(region.n_panels) :]
    sums = np.zeros((2, 1, len(region.group_start) - 1, region.n_cols))
    for which, part in enumerate((least, most)):
        _add_by_group(sums[which], part[:, left], left, region.group_start)
    low, high = (scores_of(machine, total)[0] for total in sums)
    return low, high


def end_widths(
    machine: KernelMachine, fields: Fields, grouping: Grouping, rows: FloatArray, n_lists: int, samples: IndexArray
) -> FloatArray:
    """Half-widths (n_samples, n_scores) of the intervals that lists would end with, without building the lists.

    Rows stand in for the centres: a sampled row would be about as far from its centre as from the nearest of them.
    """
    region = _Region(machine, fields, grouping)
    packed = to_packed(fields, rows)
    others = np.delete(packed, samples, axis=0)[:n_lists]
    widths = np.empty((len(samples), machine.n_scores))
    for at, row in enumerate(packed[samples]):
        away = cdist(row[None, :], others, region.metric)[0]
        low, high = rest_at(region, machine, others[int(away.argmin())], float(away.min()))
        widths[at] = 0.5 * (high - low)
    return widths


def build_lists(
    machine: KernelMachine, fields: Fields, grouping: Grouping, rows: FloatArray, n_lists: int, seed: int
) -> dict[str, Any]:
    """Arrays for `_core.Engine.set_lists`.

    Parameters
    ----------
    machine : KernelMachine
        With an rbf, exponential or laplacian kernel.
    fields, grouping
        What the engine was packed from.
    rows : ndarray
        Rows like those to come, as the machine sees them: they place the centres and say how far from them rows are.
    n_lists : int
        Regions wanted; there may be fewer.
    seed : int
        Of the clustering.
    """
    region = _Region(machine, fields, grouping)
    packed = to_packed(fields, rows)
    centres = _place_centres(packed, n_lists, seed)
    n_lists = len(centres)
    reach = _reaches(packed, centres, region.metric)
    chunk_start = _chunks(machine, region.n_panels, n_lists, reach.shape[1])
    n_chunks, n_levels, length = len(chunk_start) - 1, reach.shape[1], int(chunk_start[-1])
    relative_slack = RELATIVE_SLACK + 4.0 * reference_error(machine)
    order = np.empty((n_lists, length), dtype=np.int32)
    exponent = np.empty((n_lists, n_chunks, n_levels), dtype=np.float32)
    rest = np.empty((n_lists, n_chunks + 1, n_levels, 2, machine.n_scores), dtype=np.float32)
    for number, centre in enumerate(centres.astype(np.float64)):
        least, most, largest, farthest = region.sums(centre, reach[number])
        # Most uncertain first, judged where half of the region's rows are.
        uncertain = (most - least)[n_levels // 2].sum(axis=1)
        walk = np.argsort(-uncertain, kind="stable")
        for first, last in pairwise(chunk_start):
            order[number, first:last] = np.sort(walk[first:last])
            away = farthest[walk[first:last]].max() + reach[number]
            exponent[number, np.searchsorted(chunk_start, first)] = _outward(region.exponents(away), np.inf)
        remaining = [walk[first:last] for first, last in pairwise(chunk_start)]
        sums = np.zeros((3, n_levels, len(region.group_start) - 1, region.n_cols))
        for chunk in range(n_chunks, -1, -1):
            panels = walk[length:] if chunk == n_chunks else remaining[chunk]
            for which, part in enumerate((least, most, largest)):
                _add_by_group(sums[which], part[:, panels], panels, region.group_start)
            low, high, magnitude = (scores_of(machine, total) for total in sums)
            slack = relative_slack * magnitude + ABSOLUTE_SLACK
            rest[number, chunk, :, 0] = _outward(low - slack, -np.inf)
            rest[number, chunk, :, 1] = _outward(high + slack, np.inf)
    n_panels = -(-n_lists // WIDTH)
    squares = np.full(n_panels * WIDTH, np.inf, dtype=np.float32)
    squares[:n_lists] = 0.5 * (centres.astype(np.float64) ** 2).sum(axis=1)
    return {
        "n_lists": n_lists,
        "n_chunks": n_chunks,
        "n_levels": n_levels,
        "check_cost": check_cost(machine),
        "centres": np.ascontiguousarray(centres),
        "centre_panels": panel_array(centres, np.arange(n_lists), n_panels, WIDTH),
        "centre_const": aligned(squares),
        "chunk_start": chunk_start,
        "order": order,
        "reach": np.ascontiguousarray(reach),
        "exponent": exponent,
        "rest": rest,
    }


def _place_centres(packed: FloatArray, n_lists: int, seed: int) -> np.ndarray[Any, Any]:
    if n_lists >= len(packed):
        return np.unique(packed.astype(np.float32), axis=0)
    clusters = MiniBatchKMeans(n_lists, random_state=seed, n_init=1, batch_size=4096, max_iter=30).fit(packed)
    return np.unique(clusters.cluster_centers_.astype(np.float32), axis=0)


def _reaches(packed: FloatArray, centres: np.ndarray[Any, Any], metric: Any) -> FloatArray:
    """For each region the distances at which the rest is tabulated, ascending."""
    exact = centres.astype(np.float64)
    nearest = np.empty(len(packed), dtype=np.int64)
    away = np.empty(len(packed))
    for start in range(0, len(packed), 4096):
        part = slice(start, start + 4096)
        nearest[part] = cdist(packed[part], exact).argmin(axis=1)  # regions are Euclidean whatever the kernel's metric
    for number in range(len(exact)):
        inside = np.flatnonzero(nearest == number)
        if len(inside):
            away[inside] = cdist(exact[number][None, :], packed[inside], metric)[0]
    everywhere = np.append(np.quantile(away, LEVELS), FAR_OUT * away.max())
    reach = np.tile(everywhere, (len(exact), 1))
    for number in range(len(exact)):
        inside = away[nearest == number]
        if len(inside) >= 4:
            reach[number] = np.append(np.quantile(inside, LEVELS), FAR_OUT * inside.max())
    # Rows at exactly a tabulated distance should still be within it after rounding.
    return np.maximum.accumulate(reach * 1.000001 + 1e-30, axis=1)


def _longest(n_panels: int) -> int:
    return max(1, int(LONGEST_SHARE * n_panels))


def reference_error(machine: KernelMachine) -> float:
    """Relative error of the kernel values and sums that define the label; `native/bounds.cpp` derives it.

    Large only where squares of differences underflow: their sum is off by d of the smallest numbers. Above some
    thousandths it is no error of a value any more (what should be 0 may come out as 1), and no list holds.
    """
    d, gamma = int(machine.support_vectors.shape[1]), float(machine.kernel.gamma)
    largest_exponent = 750.0
    relative = UNIT * ((d + 6.0) * largest_exponent + machine.n_sv + 8.0)
    if machine.kernel.name == "exponential":
        relative += gamma * math.sqrt(2.0 * d) * 2.0**-537
    if machine.kernel.name == "rbf":
        relative += gamma * d * 2.0**-1074
    return relative


def check_cost(machine: KernelMachine) -> float:
    """What looking for a row's label costs, in panels: each score a few operations, each panel two vectors' worth."""
    panel = 2.0 * float(machine.support_vectors.shape[1] + 16 + machine.dual_coef.shape[0])
    return OPERATIONS_PER_SCORE * machine.n_scores / panel


def _chunks(machine: KernelMachine, n_panels: int, n_lists: int, n_levels: int) -> IndexArray:
    """Where the chunks of a list start: short ones first, later ones longer where checks or tables are dear."""
    longest = _longest(n_panels)
    shortest = int(CHUNK_TO_CHECK * check_cost(machine))
    sizes = [max(size, shortest) for size in FIRST_CHUNKS]
    step = float(sizes[-1])
    while sum(sizes) < longest:
        step = step * GROWTH if machine.n_scores > 1 or len(sizes) > 24 else step
        sizes.append(int(step))
    start = np.unique(np.minimum(np.concatenate([[0], np.cumsum(sizes)]), longest))
    while len(start) > 2 and len(start) * n_lists * n_levels * 2 * machine.n_scores > MOST_REST_NUMBERS:
        start = np.unique(np.append(start[::2], start[-1]))
    result: IndexArray = start.astype(np.int32)
    return result


def _add_by_group(sums: FloatArray, part: FloatArray, panels: IndexArray, group_start: IndexArray) -> None:
    group = np.searchsorted(group_start, panels, side="right") - 1
    for g in np.unique(group):
        sums[:, g] += part[:, group == g].sum(axis=1)


def scores_of(machine: KernelMachine, sums: FloatArray) -> FloatArray:
    """Scores (n_levels, n_scores) from sums over groups (n_levels, n_groups, n_cols)."""
    if not machine.is_grouped:
        total: FloatArray = sums.sum(axis=1)
        return total
    i, j = np.triu_indices(machine.n_classes, 1)
    scores: FloatArray = sums[:, i, j - 1] + sums[:, j, i]
    return scores


def _outward(values: FloatArray, direction: float) -> np.ndarray[Any, Any]:
    """float32 numbers on the far side of the values."""
    with np.errstate(over="ignore"):
        return np.nextafter(values.astype(np.float32), np.float32(direction))
