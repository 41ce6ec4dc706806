"""Labels from as few kernel values as possible (promise: exact).

For kernels whose values are dear: Python functions of two objects, above all. Where a value costs no more than some
nanoseconds, the exact engine is faster; there this engine shows what a bound is worth, in kernel values.

Two bounds, both for kernels that decrease with a distance (`distance_bounds`):

    references    intervals of all kernel values from the distances to a few vectors; each row then evaluates
                  the vectors that matter most to it. Sharp kernels, many classes.
    projection    one order of vectors for all rows, and the length of what is left outside their span. Positive
                  definite kernels that are smooth against the distances between the vectors.

Invariant: a label is that of LIBSVM's float64 order of operations on the values of the kernel; -1, never for Python
functions, where only the whole sum can tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.utils import _safe_indexing, check_random_state

from svelto import _core
from svelto._inputs import Query, make_query, n_rows_of, raise_bad_row
from svelto._options import check_choice, check_whole
from svelto._typing import FloatArray, IndexArray, IntArray, Rows
from svelto.distance_bounds import bound_of
from svelto.engines.exact import ValueEngine
from svelto.engines.projection import KEPT_VECTORS, NotPositiveDefiniteError, ProjectionBounds
from svelto.engines.references import ReferenceBounds, farthest_first
from svelto.kernels import Kernel
from svelto.machine import KernelMachine

# Kernel values of a piece of rows (16 MB), and numbers of a piece made dense (64 MB).
PIECE_VALUES: Final = 2_000_000
DENSE_VALUES: Final = 8_000_000
# Rows that bounds and numbers of references are tried on, support vectors among which a neighbour is looked for, and
# multiples of the usual number of references.
PROBE_ROWS: Final = 48
NEIGHBOURS: Final = 256
REFERENCE_FACTORS: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
# Up to this many support vectors the distances among all of them are kept (16 MB), and every vector is a reference.
ALL_REFERENCES: Final = 1000
# Beyond this size squared distances come near overflow: nothing is said about such rows.
LARGEST_NUMBER: Final = 1e150


class FewestEvaluations:
    """Labels that stop evaluating the kernel once they are certain.

    Parameters
    ----------
    machine : KernelMachine
        A classifier or outlier detector with an rbf, exponential or laplacian kernel, or a function that
        `svelto.register_bound` knows.
    bound : {"auto", "references", "projection"}, default="auto"
        The bound. "auto" builds both and keeps the one that needs fewer values of some probe rows; only "references"
        where the kernel is not positive definite, or is a Python function and the machine has more than 4000 support
        vectors.
    n_references : int, optional
        Reference vectors. Default: what needs fewest values of the probe rows, from half to four times
        max(n_classes, sqrt(n_sv)). Labels do not depend on it.
    X : array-like or sequence, optional
        Rows like those to come, for the choices above; never needed for a label. Default: points between support
        vectors, or support vectors where there is nothing between them.
    random_state : int, RandomState or None
        Seed of the probe rows. Labels do not depend on it.

    Attributes
    ----------
    bound_ : {"references", "projection"}
        The bound in use.
    n_references_ : int or None
        Reference vectors in use.
    n_basis_ : int or None
        Vectors that the projection may use; fewer than `n_sv` where the others add nothing, or where choosing more
        would take longer than some seconds.
    build_evaluations_ : int
        Kernel values that building took: `n_references` times `n_sv` for references, half the kernel matrix for the
        projection, and whole rows for the probe rows.
    classical_evaluations : int
        Kernel values a row without the method, `n_sv`.
    """

    def __init__(
        self,
        machine: KernelMachine,
        *,
        bound: str = "auto",
        n_references: int | None = None,
        X: Any = None,
        random_state: Any = None,
    ) -> None:
        check_choice("bound", bound, ("auto", "references", "projection"))
        if n_references is not None:
            check_whole("n_references", n_references, 1, " or None")
        if machine.task == "regression":
            raise NotImplementedError(
                "method='bounded' stops when the label is certain; this machine is a regressor and has no labels. Use "
                "method='exact'."
            )
        self._read_machine(machine)
        if bound == "projection" and not self._bound.positive_definite:
            raise ValueError(
                f"bound='projection' needs a positive definite kernel; {machine.kernel} was registered with "
                "positive_definite=False. Use bound='references'."
            )
        with _core.PlainArithmetic(), np.errstate(all="ignore"):
            self._method = self._build(bound, n_references, X, check_random_state(random_state))

    def _read_machine(self, machine: KernelMachine) -> None:
        width = int(machine.support_vectors.shape[1]) if machine.kernel.has_native_code else 0
        self.machine = machine
        self._bound = bound_of(machine.kernel, width)
        self._whole = _values_machine(machine)
        self.build_evaluations_ = 0
        with _core.PlainArithmetic(), np.errstate(all="ignore"):
            self._vectors = _plain_vectors(machine)
            self._in_range = _in_range(machine, machine.support_vectors)

    @classmethod
    def on(cls, machine: KernelMachine) -> FewestEvaluations:
        """Ready but for its bounds, which a file has."""
        made = cls.__new__(cls)
        made._read_machine(machine)
        return made

    @property
    def bound_(self) -> str:
        """The bound in use."""
        return self._method.name

    @property
    def n_references_(self) -> int | None:
        """Reference vectors in use."""
        return len(self._method.references) if isinstance(self._method, ReferenceBounds) else None

    @property
    def n_basis_(self) -> int | None:
        """Vectors that the projection may use."""
        return len(self._method.basis) if isinstance(self._method, ProjectionBounds) else None

    @property
    def nbytes(self) -> int:
        """Bytes of the bound's tables and, where they are arrays, of the support vectors."""
        return self._method.nbytes + int(getattr(self._vectors, "nbytes", 0))

    @property
    def classical_evaluations(self) -> int:
        """Kernel values a row when every sum is added to the end."""
        return self.machine.n_sv

    def labels(self, query: Query, n_jobs: int | None = None) -> tuple[IntArray, NDArray[np.int64]]:
        """Label of each row in vote order (outliers: 1 or 0), and the kernel values it took.

        A label is -1 where only the whole sum can tell: the caller's exact engine takes over, and the row counts `n_sv`
        values. With a Python function such rows are finished here. Everything runs on the calling thread: `n_jobs` is
        ignored, as a Python function holds the interpreter.
        """
        n = n_rows_of(query.rows)
        labels: IntArray = np.full(n, -1, dtype=np.int32)
        evaluations = np.full(n, self.machine.n_sv, dtype=np.int64)
        with _core.PlainArithmetic(), np.errstate(all="ignore"):
            for start, rows in self._pieces(query):
                part = slice(start, start + n_rows_of(rows))
                labels[part], evaluations[part] = self._piece(rows, start)
        return labels, evaluations

    def _piece(self, rows: Rows, start: int) -> tuple[IntArray, NDArray[np.int64]]:
        values = np.full((n_rows_of(rows), self.machine.n_sv), np.nan)

        def evaluate(chosen: IndexArray, numbers: IndexArray) -> FloatArray:
            return self._kernel_values(_safe_indexing(rows, chosen), numbers, start + chosen)

        if not self._in_range:
            return np.full(len(values), -1, dtype=np.int32), np.full(len(values), self.machine.n_sv)
        labels = self._method.settle(values, evaluate)
        evaluations = np.isfinite(values).sum(axis=1)
        is_open = np.flatnonzero(labels < 0)
        if not self.machine.kernel.has_native_code and len(is_open):
            self._complete(values, is_open, evaluate)
            labels[is_open] = self._whole.labels(Query(values[is_open]))[0]
        if self.machine.kernel.has_native_code:
            labels[~(np.abs(rows).max(axis=1) < LARGEST_NUMBER)] = -1
        evaluations[labels < 0] = self.machine.n_sv
        evaluations[is_open] = self.machine.n_sv
        return labels, evaluations

    def _complete(self, values: FloatArray, rows: IndexArray, evaluate: Any) -> None:
        """Evaluate what is missing of some rows; one call where the same is missing of all of them."""
        missing = np.isnan(values[rows])
        if (missing == missing[0]).all():
            numbers = np.flatnonzero(missing[0])
            if len(numbers):
                values[np.ix_(rows, numbers)] = evaluate(rows, numbers)
            return
        for row, of_row in zip(rows, missing, strict=True):
            numbers = np.flatnonzero(of_row)
            if len(numbers):
                values[row, numbers] = evaluate(np.array([row]), numbers)[0]

    def _pieces(self, query: Query) -> Iterator[tuple[int, Rows]]:
        """Rows in pieces, as the kernel takes them: dense and scaled, or the objects themselves."""
        X, machine = query.rows, self.machine
        native = machine.kernel.has_native_code
        width = int(machine.support_vectors.shape[1]) if native else 1
        step = max(1, min(PIECE_VALUES // machine.n_sv, DENSE_VALUES // width))
        for start in range(0, n_rows_of(X), step):
            part = X[start : start + step]
            if native:
                part = np.asarray(part.toarray() if sparse.issparse(part) else part, dtype=np.float64)
                if query.scale:
                    assert machine.scaling is not None
                    part = machine.scaling(part)
                finite = np.isfinite(part).all(axis=1)
                if not finite.all():
                    raise_bad_row(X, start + int(np.flatnonzero(~finite)[0]), 1)
            yield start, part

    def _kernel_values(self, rows: Rows, numbers: IndexArray, names: IndexArray | None = None) -> FloatArray:
        """Kernel values of rows with some of the support vectors, checked; `names` are the rows' numbers."""
        vectors = _safe_indexing(self._vectors, numbers)
        values = self.machine.kernel(rows, vectors)
        if self.machine.kernel.has_native_code:
            return values
        expected = (n_rows_of(rows), len(numbers))
        if values.shape != expected:
            raise ValueError(
                f"The kernel function returned an array of shape {values.shape} for {expected[0]} rows and "
                f"{expected[1]} support vectors; expected {expected}."
            )
        largest = self._bound.top * (1.0 + 4.0 * self._bound.constant)
        fits = (values >= 0.0) & (values <= largest)
        if not fits.all():
            row, column = np.argwhere(~fits)[0]
            value, name = values[row, column], int(row if names is None else names[row])
            if not np.isfinite(value):
                raise ValueError(f"The kernel value of row {name} is not finite; expected finite numbers.")
            raise ValueError(
                f"The kernel value of row {name} and support vector {int(numbers[column])} is "
                f"{value:.17g}; the profile it was registered with has values from 0 to {self._bound.top:.17g}. See "
                "svelto.register_bound."
            )
        return values

    # -- building ----------------------------------------------------------------------------------------------

    def _among_vectors(self, rows: IndexArray, numbers: IndexArray) -> FloatArray:
        self.build_evaluations_ += len(rows) * len(numbers)
        first = _safe_indexing(self._vectors, rows)
        return self._kernel_values(first, numbers)

    def _build(self, bound: str, n_references: int | None, X: Any, random: Any) -> ReferenceBounds | ProjectionBounds:
        machine = self.machine
        if bound == "projection":
            return ProjectionBounds(machine, self._bound, self._among_vectors)
        usual = max(machine.n_classes, math.sqrt(machine.n_sv))
        sizes = [n_references] if n_references is not None else [math.ceil(f * usual) for f in REFERENCE_FACTORS]
        everything = np.arange(machine.n_sv)
        evaluate, among = self._among_vectors, None
        if machine.n_sv <= ALL_REFERENCES:
            kept = self._all_values()
            among = self._bound.distances(kept)

            def evaluate(rows: IndexArray, numbers: IndexArray) -> FloatArray:
                return np.asarray(kept[np.ix_(rows, numbers)])

        numbers, values = farthest_first(machine, self._bound, max(sizes), lambda rows: evaluate(rows, everything))
        sizes = sorted({min(size, len(numbers)) for size in sizes})
        candidates: list[ReferenceBounds | ProjectionBounds] = [
            ReferenceBounds(machine, self._bound, numbers[:n], values[:n], among) for n in sizes
        ]
        too_many = machine.n_sv > KEPT_VECTORS and not machine.kernel.has_native_code
        if bound == "auto" and self._bound.positive_definite and not too_many:
            with suppress(NotPositiveDefiniteError):  # the triangle inequality holds all the same
                candidates.append(ProjectionBounds(machine, self._bound, evaluate))
        if len(candidates) == 1:
            return candidates[0]
        probe = self._probe(X, random)
        return min(candidates, key=lambda method: _evaluations_on(method, probe))

    def _all_values(self) -> FloatArray:
        """Kernel values among all support vectors; each pair is evaluated once, give or take a block."""
        n_sv = self.machine.n_sv
        numbers, kept = np.arange(n_sv), np.empty((n_sv, n_sv))
        step = max(1, n_sv // 16)
        for start in range(0, n_sv, step):
            block = numbers[start : start + step]
            kept[block, start:] = self._among_vectors(block, numbers[start:])
            kept[start:, block] = kept[block, start:].T
        return kept

    def _probe(self, X: Any, random: Any) -> FloatArray:
        """All kernel values of the probe rows."""
        machine = self.machine
        if X is not None:
            query = make_query(machine, X)
            chosen = random.permutation(n_rows_of(query.rows))[:PROBE_ROWS]
            sample = Query(_safe_indexing(query.rows, np.sort(chosen)), query.scale)
            pieces = [rows for _, rows in self._pieces(sample)]
        else:
            pieces = [_made_up_rows(self._vectors, machine.n_sv, random)]
        everything = np.arange(machine.n_sv)
        values = [self._kernel_values(rows, everything) for rows in pieces]
        self.build_evaluations_ += sum(part.size for part in values)
        return np.concatenate(values)


def _values_machine(machine: KernelMachine) -> ValueEngine:
    """The same weights and votes on kernel values, in LIBSVM's order."""
    return ValueEngine(
        replace(
            machine,
            kernel=Kernel("precomputed"),
            support_vectors=np.arange(machine.n_sv),
            n_features=machine.n_sv,
            scaling=None,
            front=(),
            feature_names=None,
        )
    )


def _evaluations_on(method: ReferenceBounds | ProjectionBounds, table: FloatArray) -> float:
    """Kernel values a row on probe rows, looked up instead of evaluated; rows left open count all."""
    values = np.full(table.shape, np.nan)
    labels = method.settle(values, lambda rows, numbers: table[np.ix_(rows, numbers)])
    return float(np.where(labels < 0, table.shape[1], np.isfinite(values).sum(axis=1)).mean())


def _made_up_rows(vectors: Rows, n_sv: int, random: Any) -> Rows:
    """Points between support vectors near each other, or support vectors where they are not rows of numbers."""
    first = random.randint(n_sv, size=PROBE_ROWS)
    a = _safe_indexing(vectors, first)
    dense = a.toarray() if sparse.issparse(a) else a
    if not isinstance(dense, np.ndarray) or dense.ndim != 2 or dense.dtype.kind != "f":
        return a
    others = _safe_indexing(vectors, random.randint(n_sv, size=NEIGHBOURS))
    others = others.toarray() if sparse.issparse(others) else others
    distance = cdist(dense, others)
    distance[distance == 0.0] = np.inf
    share = 0.5 * random.random_sample((PROBE_ROWS, 1))
    between = (1.0 - share) * dense + share * others[distance.argmin(axis=1)]
    return sparse.csr_matrix(between) if sparse.issparse(a) else between


def _plain_vectors(machine: KernelMachine) -> Rows:
    """Support vectors in the form that is fastest to choose from."""
    vectors = machine.support_vectors
    if machine.kernel.has_native_code and sparse.issparse(vectors):
        return vectors.toarray() if vectors.shape[0] * vectors.shape[1] <= 4 * DENSE_VALUES else vectors
    return vectors


def _in_range(machine: KernelMachine, rows: Rows) -> bool:
    if not machine.kernel.has_native_code:
        return True
    return bool(np.abs(rows.data if sparse.issparse(rows) else rows).max(initial=0.0) < LARGEST_NUMBER)
