"""Lists of support vectors by distance: sums that stop when the rest cannot change the label (promise: exact).

The method of Acevedo-Rodriguez et al. (2009). k-means finds a few centroids among the support vectors; the vector next
to each starts a list of all support vectors in ascending order of their distance from it. A query takes the list whose
first vector s_1 is nearest and adds weight times kernel value, vector by vector. By the triangle inequality every
vector left is between ``low = d(s_1, s_n+1) - t`` and ``upp = d(s_1, s_last) + t`` away, ``t = d(x, s_1)``, so with P
and N the sums of the positive and negative weights left, the rest of the score is at most

    exp(-gamma low^2) P - exp(-gamma upp^2) N     (11), and (10) with the signs exchanged: rbf
    exp(gamma t) P' - exp(-gamma t) N'            (17), and (16) with the signs exchanged: exponential, laplacian

where P' and N' have each weight multiplied by ``exp(-gamma d(s_1, s_i))``. P, N, P' and N' are stored with the lists.

Invariant: a label is that of LIBSVM's order of operations, or -1 where rounding leaves it open;
`native/distance_lists.cpp` derives how much wider the bounds are for it. `bound_table` is the definition without
rounding.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin

from svelto import _core
from svelto._inputs import Query, as_floats, raise_bad_row
from svelto._options import check_whole
from svelto._threads import thread_count
from svelto._typing import FloatArray, IntArray, Rows
from svelto.engines.packing import KERNEL_CODES, RULE_CODES, add_scaling, breaks_ties, expand_rows
from svelto.machine import KernelMachine

IntArray64: TypeAlias = NDArray[np.int64]

METRICS: Final = {"rbf": "euclidean", "exponential": "euclidean", "laplacian": "cityblock"}
# Python looks for Ctrl-C between native calls; one call does at most about this many operations (a second or two).
OPERATIONS_PER_CALL: Final = 2e9
# Below this many operations a second thread costs more than it brings.
OPERATIONS_PER_THREAD: Final = 1e6
# Vectors made dense at a time, in numbers, while distances are computed: 64 MB.
DENSE_VALUES: Final = 8_000_000
KMEANS_STARTS: Final = 3

# Columns of the paper's Table 1, one row for each step; the first row is the bias, where no vector has been added yet.
TABLE_DTYPE: Final = np.dtype(
    [
        ("vector", np.int64),  # number of the support vector, -1 in the first row
        ("weight", np.float64),  # alpha_i y_i
        ("distance", np.float64),  # d(x, s_i)
        ("first_distance", np.float64),  # d(s_1, s_i)
        ("partial", np.float64),  # f_n(x), bias included
        ("low", np.float64),  # least and largest distance of the vectors left
        ("upp", np.float64),
        ("remaining", np.float64),  # f(x) - f_n(x)
        ("most", np.float64),  # the rest is at most this: right side of (11), sign changed
        ("least", np.float64),  # and at least this: right side of (10), sign changed
        ("tight_most", np.float64),  # the same by (17) and (16); NaN for the rbf kernel
        ("tight_least", np.float64),
        ("certain", np.bool_),  # whether the conditions of this kernel hold
    ]
)


class DistanceLists:
    """Lists of support vectors by distance, and sums that stop when the rest cannot change the label.

    Pays off where kernel values are dear (many features) and the kernel is sharp enough for distant vectors to be
    negligible; with a flat kernel the bounds stay wide and nearly every vector is added. Memory grows with the number
    of lists: a list stores two sums for every weight of the machine.

    Parameters
    ----------
    machine : KernelMachine
        A classifier or outlier detector with an rbf, exponential or laplacian kernel.
    n_lists : int, optional
        Centroids of k-means. Default: the number of classes, and one for outlier detectors.
    random_state : int, RandomState or None
        Seed of k-means. Labels do not depend on it.
    shared : bool, default=True
        True: one walk for all scores, which share the kernel values; it ends when the vote is certain. False: the
        paper's method, a walk for each binary machine that ends when its own sign is certain.

    Attributes
    ----------
    n_lists_ : int
        Lists, after centroids with the same nearest vector have been joined.
    firsts_ : ndarray of shape (n_lists_,)
        Numbers of the first vectors.
    order_ : ndarray of shape (n_lists_, n_sv)
        Numbers of the support vectors, list by list.
    distance_ : ndarray of shape (n_lists_, n_sv)
        Their distances from the first vector, ascending; L1 for the laplacian kernel.
    classical_evaluations : int
        Kernel values a row without the method: `n_sv` where they are shared, otherwise the sum of the binary machines'
        numbers of support vectors.
    """

    name: Final = "lists"

    def __init__(
        self, machine: KernelMachine, n_lists: int | None = None, random_state: Any = None, shared: bool = True
    ) -> None:
        check_bounded(machine)
        if n_lists is None:
            n_lists = max(machine.n_classes, 1)
        check_whole("n_lists", n_lists, 1)
        self.machine = machine
        self.shared = bool(shared)
        with _core.PlainArithmetic(), np.errstate(over="ignore", under="ignore", invalid="ignore"):
            self.firsts_ = _first_vectors(machine, min(int(n_lists), machine.n_sv), random_state)
            self.n_lists_ = len(self.firsts_)
            self._weights = np.array(expand_rows(machine, machine.dual_coef))
            self.order_, self.distance_ = _rank(machine, self.firsts_)
            self._fields = {**self._pack(), **self._sums()}
        self._native = _core.DistanceLists(self._fields)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_native"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._native = _core.DistanceLists(self._fields)

    @property
    def nbytes(self) -> int:
        """Bytes of the lists and of the vectors and weights that they refer to."""
        distinct = {id(v): v.nbytes for v in self._fields.values() if isinstance(v, np.ndarray)}
        return sum(distinct.values())

    @property
    def classical_evaluations(self) -> int:
        """Kernel values a row when every sum is added to the end."""
        return self.machine.n_sv if self.shared else int(np.count_nonzero(self._weights))

    def labels(self, query: Query, n_jobs: int | None = None) -> tuple[IntArray, IntArray64]:
        """Label of every row in vote order (outliers: 1 or 0), -1 where rounding leaves it open; kernel values it took.

        The distances to the first vectors count as kernel values, once a row, and are not counted again where a walk
        meets these vectors.
        """
        X, scale = query
        labels: IntArray = np.empty(X.shape[0], dtype=np.int32)
        evaluations: IntArray64 = np.empty(X.shape[0], dtype=np.int64)
        for start, part, threads in self._parts(X, n_jobs):
            rows = slice(start, start + part.shape[0])
            to = labels[rows], evaluations[rows], self.shared
            if sparse.issparse(part):
                outcome = self._native.labels_csr(part.data, part.indices, part.indptr, *to, threads)
            else:
                outcome = self._native.labels_dense(part, *to, scale, threads)
            if outcome[1] >= 0:
                raise_bad_row(X, start + outcome[1], outcome[2])
        return labels, evaluations

    def trace(self, x: Any, score: int = 0) -> np.ndarray[Any, Any]:
        """The walk of one row for one binary machine, to its end: the columns of the paper's Table 1.

        Parameters
        ----------
        x : array-like of shape (n_features,)
            A row as the kernel sees it, after the machine's scaling.
        score : int
            Number of the score (pair of classes, class).

        Returns
        -------
        ndarray of `TABLE_DTYPE`
            A row for the bias and one for each support vector of this score, in the order of the nearest list. Signs
            are the machine's: a positive score speaks for the first class of the pair in vote order.
        """
        row = np.asarray(x, dtype=np.float64).reshape(1, -1)
        width = self.machine.support_vectors.shape[1]
        if row.shape[1] != width:
            raise ValueError(f"The support vectors have {width} features; x has {row.shape[1]}.")
        if not 0 <= score < self.machine.n_scores:
            raise ValueError(f"score is {score}; the machine has scores 0 to {self.machine.n_scores - 1}.")
        distance = _distances(self.machine, row)[0]
        at = int(distance[self.firsts_].argmin())
        weights = self._weights[score][self.order_[at]]
        taking_part = weights != 0.0
        vectors = self.order_[at][taking_part]
        return bound_table(
            weights[taking_part],
            distance[vectors],
            self.distance_[at][taking_part],
            gamma=self.machine.kernel.gamma,
            intercept=float(self.machine.intercept[score]),
            squared=self.machine.kernel.name == "rbf",
            near=float(distance[self.firsts_[at]]),
            vectors=vectors,
        )

    def _pack(self) -> dict[str, Any]:
        machine, weights = self.machine, self._weights
        kernel, vectors = machine.kernel, machine.support_vectors
        n_sv, n_rows = machine.n_sv, machine.dual_coef.shape[0]
        starts = np.full(n_sv, -1, dtype=np.int32)
        starts[self.firsts_] = np.arange(self.n_lists_)
        fields: dict[str, Any] = {
            "kernel": KERNEL_CODES[kernel.name],
            "gamma": float(kernel.gamma),
            "rule": RULE_CODES["sign" if machine.task == "outlier" else machine.rule],
            "d": vectors.shape[1],
            "n_sv": n_sv,
            "n_scores": machine.n_scores,
            "n_classes": machine.n_classes,
            "break_ties": breaks_ties(machine),
            "n_lists": self.n_lists_,
            "n_rows": n_rows,
            "is_grouped": machine.is_grouped,
            "is_csr": machine.has_sparse_vectors,
            "intercept": machine.intercept,
            "coef": np.ascontiguousarray(machine.dual_coef.T),
            "weight_sum": np.abs(weights).sum(axis=1),
            "order": self.order_,
            "distance": self.distance_,
            "starts": starts,
        }
        if machine.has_sparse_vectors:
            fields["vector_start"] = vectors.indptr.astype(np.int64)
            fields["vector_columns"] = vectors.indices.astype(np.int32)
            fields["vectors"] = np.ascontiguousarray(vectors.data)
        else:
            fields["vectors"] = np.ascontiguousarray(vectors)
        if machine.is_grouped:
            assert machine.n_support is not None
            fields["sv_class"] = np.repeat(np.arange(machine.n_classes, dtype=np.int32), machine.n_support)
        add_scaling(fields, machine)
        return fields

    def _sums(self) -> dict[str, Any]:
        """What is left behind every position: sums of positive and of negative weights, apart."""
        machine = self.machine
        n_sv, n_rows, n_scores = machine.n_sv, machine.dual_coef.shape[0], machine.n_scores
        rest = np.zeros((self.n_lists_, n_sv, n_rows, 2))
        total = np.zeros((self.n_lists_, n_scores, 2))
        last = np.full((self.n_lists_, n_scores), -1, dtype=np.int32)
        squared = machine.kernel.name == "rbf"
        for at, (order, distance) in enumerate(zip(self.order_, self.distance_, strict=True)):
            factor = 1.0 if squared else np.exp(-machine.kernel.gamma * distance)
            for score, row in enumerate(self._weights):
                ranked = row[order]
                taking_part = np.flatnonzero(ranked)
                if len(taking_part):
                    last[at, score] = taking_part[-1]
                rows = self._rows_of(score, order[taking_part])
                for sign, part in enumerate((np.maximum(ranked, 0.0), np.maximum(-ranked, 0.0))):
                    left = np.append(np.cumsum((part * factor)[::-1])[::-1], 0.0)
                    total[at, score, sign] = left[0]
                    rest[at, taking_part, rows, sign] = left[taking_part + 1]
        return {"rest": rest, "total": total, "last": last}

    def _rows_of(self, score: int, vectors: IntArray) -> Any:
        """The row of `dual_coef` that holds each vector's weight in a score."""
        machine = self.machine
        if not machine.is_grouped:
            return score
        assert machine.n_support is not None
        i, j = np.triu_indices(machine.n_classes, 1)
        stop = np.cumsum(machine.n_support)
        of_i = np.searchsorted(stop, vectors, side="right") == i[score]
        return np.where(of_i, j[score] - 1, i[score])

    def _operations(self) -> float:
        """Operations of one row, at most."""
        machine = self.machine
        n_sv, width = machine.n_sv, float(machine.support_vectors.shape[1])
        sums = 8.0 * n_sv * machine.dual_coef.shape[0] if self.shared else 32.0 * self.classical_evaluations
        scan = 0.0 if self.shared else float(n_sv * machine.n_scores)
        return float(n_sv) * (width + 32.0) + sums + scan

    def _parts(self, X: Rows, n_jobs: int | None) -> Iterator[tuple[int, Rows, int]]:
        """X in pieces of bounded work, converted to floats piece by piece, and the threads for each."""
        each = self._operations()
        step = int(np.clip(OPERATIONS_PER_CALL / each, 64, 131_072))
        for start in range(0, X.shape[0], step):
            part = X if X.shape[0] <= step else X[start : start + step]
            useful = int(part.shape[0] * each / OPERATIONS_PER_THREAD) + 1
            yield start, as_floats(part), 1 if useful == 1 else min(thread_count(n_jobs), useful)


def check_bounded(machine: KernelMachine) -> None:
    """Refuse kernels without a bound by distances, and machines without labels."""
    if machine.kernel.name not in METRICS:
        raise NotImplementedError(
            f"Distance lists need a kernel that decreases with a distance ({', '.join(METRICS)}); this machine has "
            f"{machine.kernel}. Use method='exact'."
        )
    if machine.task == "regression":
        raise NotImplementedError(
            "Distance lists stop when the label is certain; this machine is a regressor and has no labels. "
            "Use method='exact'."
        )


def bound_table(
    weight: FloatArray,
    distance: FloatArray,
    first_distance: FloatArray,
    *,
    gamma: float,
    intercept: float,
    squared: bool,
    near: float | None = None,
    farthest: float | None = None,
    vectors: Any = None,
) -> np.ndarray[Any, Any]:
    """The definition of the method: partial sums, bounds on the rest and whether they settle the sign, step by step.

    Parameters
    ----------
    weight, distance, first_distance : ndarray of shape (n,)
        Weights, distances from the query and from the list's first vector, in the list's order.
    gamma, intercept : float
        The kernel's factor and the bias.
    squared : bool
        True: ``exp(-gamma d^2)`` with the bounds (10) and (11). False: ``exp(-gamma d)``, bounds (16) and (17) too.
    near : float, optional
        Distance from the query to the list's first vector; default ``distance[0]``.
    farthest : float, optional
        Distance from the first vector to the last; default ``first_distance[-1]``.
    vectors : array-like of shape (n,), optional
        Numbers of the vectors; default 0, 1, ...

    Returns
    -------
    ndarray of `TABLE_DTYPE`, of shape (n + 1,)
        The first row is the bias alone. The last row has nothing left.
    """
    n = len(weight)
    table = np.zeros(n + 1, dtype=TABLE_DTYPE)
    near = float(distance[0] if n else 0.0) if near is None else near
    farthest = float(first_distance[-1] if n else 0.0) if farthest is None else farthest
    power = 2 if squared else 1

    def kernel(length: Any) -> Any:
        return np.exp(-gamma * length**power)

    def rest(terms: FloatArray) -> FloatArray:
        return np.append(np.cumsum(terms[::-1])[::-1], 0.0)

    table["vector"] = np.append(-1, np.arange(n) if vectors is None else vectors)
    for name, values in (("weight", weight), ("distance", distance), ("first_distance", first_distance)):
        table[name] = np.append(np.nan, values)
    table["partial"] = intercept + np.append(0.0, np.cumsum(weight * kernel(np.asarray(distance))))
    table["remaining"] = rest(weight * kernel(np.asarray(distance)))
    # Behind step n the nearest vector left is number n + 1; behind the last there is none, and nothing to bound.
    table["low"] = np.append(np.maximum(0.0, np.asarray(first_distance) - near), np.nan)
    table["upp"] = np.append(np.full(n, farthest + near), np.nan)
    upper, lower = np.append(kernel(table["low"][:-1]), 0.0), np.append(kernel(table["upp"][:-1]), 0.0)
    plus, minus = rest(np.maximum(weight, 0.0)), rest(np.maximum(-weight, 0.0))
    table["most"], table["least"] = upper * plus - lower * minus, lower * plus - upper * minus
    table["tight_most"] = table["tight_least"] = np.nan
    most, least = table["most"], table["least"]
    if not squared:
        scaled = weight * kernel(np.asarray(first_distance))
        plus, minus = rest(np.maximum(scaled, 0.0)), rest(np.maximum(-scaled, 0.0))
        grown, shrunk = np.exp(gamma * near), np.exp(-gamma * near)
        table["tight_most"], table["tight_least"] = grown * plus - shrunk * minus, shrunk * plus - grown * minus
        most, least = table["tight_most"], table["tight_least"]
    f = table["partial"]
    table["certain"] = ((f >= 0) & (f >= -least)) | ((f <= 0) & (f <= -most))
    return table


def _first_vectors(machine: KernelMachine, n_lists: int, random_state: Any) -> IntArray:
    """The support vector nearest to each centroid, each once."""
    # Clusters do not change with the unit; a power of two keeps squares of huge and tiny data inside the range.
    vectors = machine.support_vectors
    values = vectors.data if sparse.issparse(vectors) else vectors
    unit = 2.0 ** float(np.clip(np.frexp(np.abs(values).max(initial=0.0))[1], -1000, 1000))
    scaled = vectors / unit
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct vectors than lists: lists are joined
        clusters = KMeans(n_lists, n_init=KMEANS_STARTS, random_state=random_state).fit(scaled)
    metric = "manhattan" if METRICS[machine.kernel.name] == "cityblock" else "euclidean"
    nearest = pairwise_distances_argmin(clusters.cluster_centers_, scaled, metric=metric)
    firsts: IntArray = np.unique(nearest).astype(np.int32)
    return firsts


def _rank(machine: KernelMachine, firsts: IntArray) -> tuple[IntArray, FloatArray]:
    """All vectors by their distance from each first one, which leads even where others are equal to it."""
    vectors = machine.support_vectors
    rows = vectors[firsts].toarray() if sparse.issparse(vectors) else np.asarray(vectors)[firsts]
    distance = _distances(machine, rows)
    numbers = np.arange(machine.n_sv)
    order = np.array([np.lexsort((numbers != first, of)) for first, of in zip(firsts, distance, strict=True)])
    return order.astype(np.int32), np.ascontiguousarray(np.take_along_axis(distance, order, axis=1))


def _distances(machine: KernelMachine, rows: FloatArray) -> FloatArray:
    """From every row to every support vector, by differences: norms and products would lose short distances."""
    vectors = machine.support_vectors
    result = np.empty((len(rows), machine.n_sv))
    step = max(1, DENSE_VALUES // vectors.shape[1])
    for start in range(0, machine.n_sv, step):
        part = vectors[start : start + step]
        dense = part.toarray() if sparse.issparse(part) else np.asarray(part)
        result[:, start : start + step] = cdist(rows, dense, METRICS[machine.kernel.name])
    return result
