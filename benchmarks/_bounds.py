"""Bounds that were tried for method="bounded", each in a few lines of NumPy: evaluations are counted, nothing is timed.

A score is a sum of contributions, weight times kernel value. A bound puts every contribution that has not been
evaluated into an interval; when the intervals add up to a certain label, the rest is left out. *Items* are what is
evaluated at once: support vectors, or groups of them. Two orders:

    `in_order`   one order, given with the bound: the first number of items that suffices, found by bisection
    `greedily`   the row's own order: next are the items whose intervals leave most open, by weight and width

Counts include what the bound itself costs, in units of one kernel evaluation, that is of one distance in all features.
These are definitions: exact arithmetic is assumed, up to `SLACK`. One-vs-one machines with the Gaussian kernel;
`paper` also takes the exponential one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.spatial.distance import cdist

import svelto
from svelto.cascade import settled_labels
from svelto.engines.distance_lists import DistanceLists
from svelto.engines.panel_lists import scores_of
from svelto.engines.score_sums import ScoreSums, relevant_scores

SLACK = 1e-9
# Evaluations between two looks at the intervals, as a share of those before: as in engines/references.py.
BATCH_SHARE = 0.08
# What was tried: vectors in a group, and principal components.
BALL_SIZES, CHORD_SIZES, COMPONENTS = (4, 8, 32), (8, 32), (2, 4, 8)


@dataclass(frozen=True)
class Items:
    """Contributions of one row's items to the columns of `dual_coef`, sorted by class: (n_items, n_columns) each."""

    low: np.ndarray
    high: np.ndarray
    exact: np.ndarray
    class_of: np.ndarray
    sizes: np.ndarray  # support vectors of each item


class Machine:
    """A machine, some rows, their kernel values, and what a label needs."""

    def __init__(self, machine: svelto.KernelMachine, X: np.ndarray) -> None:
        self.machine, self.X = machine, np.asarray(X, dtype=np.float64)
        self.gamma = machine.kernel.gamma
        self.vectors = np.asarray(machine.support_vectors)
        self.weights = machine.dual_coef.T
        self.class_of = np.repeat(np.arange(machine.n_classes), machine.n_support)
        self.values = self.profile(cdist(self.X, self.vectors))
        self._scores = ScoreSums(machine)

    def profile(self, distance: np.ndarray) -> np.ndarray:
        """Kernel value at a distance."""
        power = 2 if self.machine.kernel.name == "rbf" else 1
        return np.exp(-self.gamma * np.power(distance, power))

    def total(self, parts: np.ndarray, class_of: np.ndarray) -> np.ndarray:
        """Scores without intercept: the sums over the items of each class, put together pair by pair."""
        stops = np.searchsorted(class_of, np.arange(self.machine.n_classes + 1))
        cells = np.array([parts[a:b].sum(axis=0) for a, b in pairwise(stops)])
        return scores_of(self.machine, cells[None])[0]

    def label(self, low: np.ndarray, high: np.ndarray) -> int:
        """Label in vote order of scores (without intercept) between `low` and `high`; -1 where it is not certain."""
        middle, half = 0.5 * (low + high) + self.machine.intercept, 0.5 * (high - low) + SLACK
        return int(settled_labels(self.machine, middle[None], half[None])[0])

    def items(self, row: int, least: np.ndarray, most: np.ndarray) -> Items:
        """Support vectors as items, from an interval for the distance of each."""
        ends = self.weights * self.profile(most)[:, None], self.weights * self.profile(least)[:, None]
        exact = self.weights * self.values[row][:, None]
        return Items(np.minimum(*ends), np.maximum(*ends), exact, self.class_of, np.ones(len(exact), dtype=int))

    def in_order(self, items: Items, order: np.ndarray) -> tuple[int, int]:
        """How many items of the order have to be evaluated, and the label then."""

        def label(n: int) -> int:
            known = np.zeros(len(order), dtype=bool)
            known[order[:n]] = True
            ends = (np.where(known[:, None], items.exact, end) for end in (items.low, items.high))
            return self.label(*(self.total(end, items.class_of) for end in ends))

        return first_certain(label, len(order))

    def greedily(self, items: Items) -> tuple[int, int]:
        """How many support vectors have to be evaluated, the most promising items first, and the label then."""
        low, high = (self.total(end, items.class_of) for end in (items.low, items.high))
        width = items.high - items.low
        open_items = np.ones(len(width), dtype=bool)
        evaluated = 0
        while (label := self.label(low, high)) < 0 and open_items.any():
            ends = low + self.machine.intercept, high + self.machine.intercept
            relevant = relevant_scores(self._scores, *ends)
            share = self._cells(np.where(relevant, 1.0 / np.maximum(high - low, 1e-300), 0.0))
            promise = np.einsum("ic,ic->i", width, share[items.class_of]) / items.sizes
            promise[~open_items] = -1.0
            n = max(1, int(BATCH_SHARE * evaluated / items.sizes.mean()))
            batch = np.sort(np.argsort(-promise)[: min(n, int(open_items.sum()))])
            open_items[batch] = False
            evaluated += int(items.sizes[batch].sum())
            low = low + self.total(items.exact[batch] - items.low[batch], items.class_of[batch])
            high = high + self.total(items.exact[batch] - items.high[batch], items.class_of[batch])
        return evaluated, label

    def _cells(self, of_score: np.ndarray) -> np.ndarray:
        """One number for each class and column, from one for each score."""
        k = self.machine.n_classes
        first, second = np.triu_indices(k, 1)
        cells = np.zeros((k, self.weights.shape[1]))
        cells[first, second - 1] = cells[second, first] = of_score
        return cells


def first_certain(label: Callable[[int], int], n: int) -> tuple[int, int]:
    """Least k of 0 .. n with a label, and the label; intervals shrink as k grows, so halving finds it."""
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if label(middle) >= 0 else (middle + 1, high)
    return low, label(low)


# -- one order, from lists -------------------------------------------------------------------------------------------


def paper(m: Machine, lists: DistanceLists) -> tuple[np.ndarray, np.ndarray]:
    """Paper S3, looked at after every vector of the nearest list.

    Gaussian kernel, (10)-(11): one interval of distances for all vectors that are left. Exponential kernel, (16)-(17):
    a factor exp(-+gamma t) on the value that each vector has at the list's first one.
    """
    found = []
    for row, away, at in _nearest(m, lists.firsts_):
        order, distance = lists.order_[at], lists.distance_[at]
        n, answer = first_certain(_paper_label(m, row, away, order, distance), len(order))
        found.append((len(np.union1d(order[:n], lists.firsts_)), answer))
    counts, labels = np.array(found).T
    return counts, labels


def _paper_label(m: Machine, row: int, away: float, order: np.ndarray, distance: np.ndarray) -> Callable[[int], int]:
    positive, negative = np.maximum(m.weights, 0.0), np.maximum(-m.weights, 0.0)
    exact = m.weights * m.values[row][:, None]
    from_first = np.empty(len(order))
    from_first[order] = distance

    def label(n: int) -> int:
        left = np.ones((len(order), 1), dtype=bool)
        left[order[:n]] = False
        if m.machine.kernel.name == "rbf":
            nearest = distance[min(n, len(order) - 1)]
            least, most = m.profile(distance[-1] + away), m.profile(max(nearest - away, 0.0))
        else:
            least, most = (m.profile(from_first + shift)[:, None] for shift in (away, -away))
        low = np.where(left, least * positive - most * negative, exact)
        high = np.where(left, most * positive - least * negative, exact)
        return m.label(m.total(low, m.class_of), m.total(high, m.class_of))

    return label


def triangle(m: Machine, lists: DistanceLists) -> tuple[np.ndarray, np.ndarray]:
    """The same lists; an interval for each vector, from its own distance to the first one of the list."""
    found = []
    for row, away, at in _nearest(m, lists.firsts_):
        distance = np.empty(m.machine.n_sv)
        distance[lists.order_[at]] = lists.distance_[at]
        n, answer = m.in_order(m.items(row, np.maximum(distance - away, 0.0), distance + away), lists.order_[at])
        found.append((len(np.union1d(lists.order_[at][:n], lists.firsts_)), answer))
    counts, labels = np.array(found).T
    return counts, labels


def best_reference(m: Machine, references: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The best of all references for each vector; the order is that of the nearest reference's list."""
    between = cdist(m.vectors[references], m.vectors)
    order = np.argsort(between, axis=1, kind="stable")
    away = cdist(m.X, m.vectors[references])
    found = []
    for row in range(len(m.X)):
        t, at = away[row][:, None], int(away[row].argmin())
        n, answer = m.in_order(m.items(row, np.abs(between - t).max(axis=0), (between + t).min(axis=0)), order[at])
        found.append((len(np.union1d(order[at][:n], references)), answer))
    counts, labels = np.array(found).T
    return counts, labels


def _nearest(m: Machine, firsts: np.ndarray) -> list[tuple[int, float, int]]:
    away = cdist(m.X, m.vectors[firsts])
    return [(row, float(of_row.min()), int(of_row.argmin())) for row, of_row in enumerate(away)]


# -- groups of neighbours, each row its own order --------------------------------------------------------------------


class Groups:
    """Groups of `size` neighbouring vectors of one class: centres, radii, and sums of weights."""

    def __init__(self, m: Machine, size: int) -> None:
        members = [
            part
            for c in range(m.machine.n_classes)
            for part in neighbours(m.vectors, np.flatnonzero(m.class_of == c), size)
        ]
        self.m, self.order = m, np.concatenate(members)
        self.sizes = np.array([len(part) for part in members])
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        self.class_of = m.class_of[self.order[self.starts]]
        weights, vectors = m.weights[self.order], m.vectors[self.order]
        size_of = np.abs(weights)
        # The centre is the weighted mean, so that a machine of two classes needs no other mean.
        total = size_of.sum(axis=1, keepdims=True)
        self.centres = self.sums(total * vectors) / self.sums(total)
        self.offsets = vectors - np.repeat(self.centres, self.sizes, axis=0)
        square = np.einsum("ij,ij->i", self.offsets, self.offsets)
        self.radii = np.sqrt(np.maximum.reduceat(square, self.starts))
        self.weight = self.sums(size_of)  # (n_groups, n_columns)
        self.square = self.sums(size_of * square[:, None])
        self.moment = self.sums(size_of[:, :, None] * self.offsets[:, None, :])
        # LIBSVM's weights of a class against another have one sign.
        self.sign = np.sign(self.sums(weights))
        assert np.allclose(np.abs(self.sums(weights)), self.weight)
        self.away = cdist(m.X, self.centres)

    def sums(self, parts: np.ndarray) -> np.ndarray:
        """Sums over the members of each group."""
        return np.add.reduceat(parts, self.starts, axis=0)

    def count(self, row: int, least: np.ndarray, most: np.ndarray) -> tuple[int, int]:
        """Evaluations and label, from the least and the most that the sizes of a group's contributions add up to."""
        ends = self.sign * least, self.sign * most
        exact = self.sums((self.m.weights * self.m.values[row][:, None])[self.order])
        return self.m.greedily(Items(np.minimum(*ends), np.maximum(*ends), exact, self.class_of, self.sizes))


def neighbours(vectors: np.ndarray, members: np.ndarray, size: int) -> list[np.ndarray]:
    """Halve along the principal axis, at multiples of `size`, until groups are left."""
    if len(members) <= size:
        return [members]
    centred = vectors[members] - vectors[members].mean(axis=0)
    axis = np.linalg.eigh(centred.T @ centred)[1][:, -1]
    order = members[np.argsort(centred @ axis, kind="stable")]
    half = -(-len(members) // size) // 2 * size
    return neighbours(vectors, order[:half], size) + neighbours(vectors, order[half:], size)


def balls(m: Machine, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Every member of a group is within its radius of the centre; one distance a group."""
    groups = Groups(m, size)
    found = [
        groups.count(
            row,
            groups.weight * m.profile(away + groups.radii)[:, None],
            groups.weight * m.profile(np.maximum(away - groups.radii, 0.0))[:, None],
        )
        for row, away in enumerate(groups.away)
    ]
    counts, labels = np.array(found).T
    return counts + len(groups.sizes), labels


def chords(m: Machine, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Lines in the squared distance t: exp(-gamma t) lies above its tangent at the weighted mean, below its chord.

    The mean of the squared distances comes from sums over the group: of weights, of weighted vectors and of weighted
    squared norms. One distance a group, and one product for every column of weights where there are several.
    """
    groups = Groups(m, size)
    found = []
    for row, away in enumerate(groups.away):
        shift = np.einsum("gcd,gd->gc", groups.moment, m.X[row] - groups.centres)
        weight = np.maximum(groups.weight, 1e-300)
        near = np.square(np.maximum(away - groups.radii, 0.0))[:, None]
        far = np.square(away + groups.radii)[:, None]
        mean = np.clip(np.square(away)[:, None] + (groups.square - 2.0 * shift) / weight, near, far)
        part = (mean - near) / np.maximum(far - near, 1e-300)
        chord = (1.0 - part) * np.exp(-m.gamma * near) + part * np.exp(-m.gamma * far)
        found.append(groups.count(row, groups.weight * np.exp(-m.gamma * mean), groups.weight * chord))
    counts, labels = np.array(found).T
    n_columns = m.weights.shape[1]
    return counts + len(groups.sizes) * (1 if n_columns == 1 else 1 + n_columns), labels


# -- fewer features, each row its own order --------------------------------------------------------------------------


def subspace(m: Machine, n_components: int) -> tuple[np.ndarray, np.ndarray]:
    """Distances in the first principal components, and lengths in the others: |x - s|^2 = near^2 + (a -+ b)^2.

    Costs `n_components` products a row, and n_components + 1 numbers of the n_features of each vector.
    """
    mean = m.vectors.mean(axis=0)
    axes = np.linalg.svd(m.vectors - mean, full_matrices=False)[2][:n_components]
    rows, vectors = ((Y - mean) @ axes.T for Y in (m.X, m.vectors))
    near = cdist(rows, vectors, "sqeuclidean")
    a = np.linalg.norm(m.X - mean - rows @ axes, axis=1)
    b = np.linalg.norm(m.vectors - mean - vectors @ axes, axis=1)
    found = [
        m.greedily(m.items(row, np.sqrt(near[row] + (a[row] - b) ** 2), np.sqrt(near[row] + (a[row] + b) ** 2)))
        for row in range(len(m.X))
    ]
    counts, labels = np.array(found).T
    own = n_components + m.machine.n_sv * (n_components + 1) / m.X.shape[1]
    return counts + own, labels
