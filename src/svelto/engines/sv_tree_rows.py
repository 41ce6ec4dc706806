"""What support vector trees are grown from: rows, vectors, kernel values, and the exact machine's scores.

Rows. For kernels on vectors the exact machine scores as many rows as we like, made between and around the given ones
(`oracle`), so that leaves are not fitted on five points; others, as far from the given rows as new rows would be, prune
the tree, and a third set shows how wrong its leaves are. Of objects nothing can be made: part of the given ones is held
out, prunes and shows.

Vectors. The columns of a tree are kernel values with support vectors; for the rbf kernel also with the vectors of a
reduced set, which together follow smooth machines better than any support vectors do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

from svelto._inputs import Query, n_rows_of
from svelto._typing import FloatArray, IndexArray
from svelto.engines import _basis
from svelto.engines.exact import ValueEngine
from svelto.engines.leaf_models import sign_weights
from svelto.engines.path_arrays import OF_PRODUCTS
from svelto.engines.reduced_set import reduce_machine
from svelto.engines.sv_tree import DEFAULT_EVALS, SVTreeOptions
from svelto.engines.taylor_tree import Scorer
from svelto.machine import KernelMachine
from svelto.oracle import FOR_LEAVES, Neighbourhoods, oracle_rows
from svelto.path_tree import unit_of

Values = NDArray[np.float32]

# Support vectors among which columns are looked for; more are drawn from.
MOST_COLUMNS: Final = 2000
# Kernel values of the rows that a tree grows on (float32: 256 MB).
MOST_VALUES: Final = 64_000_000
# ... and rows: more make the tree slower to grow and hardly better.
MOST_GROW_ROWS: Final = 25_000
# ... made of the given ones: this many times as many, and at least so many; in memory no more than 512 MB.
FEWEST_MADE: Final = 20_000
MOST_ROW_BYTES: Final = 2**29
# Kernel values of the rows that a tree of the paper grows on, or one on objects (1 GB); and objects whose values are
# looked at for their size and mean.
PAPER_VALUES: Final = 256_000_000
FIRST_OBJECTS: Final = 64
# Rows that prune, and rows that show errors: these shares of the others, within limits.
PRUNE_SHARE, SHOW_SHARE = 0.25, 0.5
FEWEST_ROWS, MOST_ROWS = 1_000, 20_000
HELD_OUT_SHARE: Final = 0.3
# Rows are "stored" where no more than this share of their features is not zero.
STORED_SHARE: Final = 0.25
# Rows beyond this multiple of the largest squared distance from the mean are unlike the data.
REACH: Final = 4.0
# Kernel values of a piece of rows (32 MB).
PIECE_VALUES: Final = 4_000_000


class Rows(NamedTuple):
    """Rows to learn from, with all kernel values and the machine's scores (n, P).

    `weight` says how much a row's precision matters, `features` are the rows of vector kernels (n, d), else (n, 0).
    """

    values: Values
    features: FloatArray
    scores: FloatArray
    weight: FloatArray


@dataclass(frozen=True)
class Material:
    """Everything a tree is grown from.

    Attributes
    ----------
    vectors : array or sequence
        What the columns stand for.
    mean, unit : ndarray of shape (n_columns,) and float
        The kernel values are kept as (k - mean) / unit; see `path_growth` and `unit_of`.
    grow, prune : Rows
        Rows to fit and rows to prune on.
    show : Query
        Rows that show errors, with `show_scores` (n, P); those that pruned where no others are to be had.
    prefixes : list
        Columns that paths may begin with.
    """

    machine: KernelMachine
    vectors: Any
    mean: FloatArray
    grow: Rows
    prune: Rows
    show: Query
    show_scores: FloatArray
    prefixes: list[list[int]]
    shift: FloatArray | None = None
    stored: bool = False
    reach: float = np.inf
    unit: float = 1.0


# -- rows of vectors -----------------------------------------------------------------------------------------------


def from_vectors(
    machine: KernelMachine,
    X: FloatArray,
    options: SVTreeOptions,
    score: Scorer,
    with_errors: bool,
    seed: int,
    n_jobs: int | None,
) -> Material:
    """Rows made of the given ones, scored by the exact machine; the paper's tree takes those given alone."""
    rng = np.random.default_rng([seed, 6])
    paper = options.tree == "paper"
    vectors = machine.support_vectors
    if paper:
        rows = _at_most(X, PAPER_VALUES // machine.n_sv, rng)
    else:
        most = min(machine.n_sv, MOST_COLUMNS)
        vectors = vectors[np.sort(rng.choice(machine.n_sv, size=most, replace=False))]
        limit = int(np.clip(min(MOST_VALUES // most, MOST_ROW_BYTES // (8 * X.shape[1])), 1000, MOST_GROW_ROWS))
        X = _at_most(X, limit, rng)
        extra = min(max(FOR_LEAVES.per_row * len(X), FEWEST_MADE), limit - len(X))
        extra = extra if options.oracle_rows == "auto" else options.oracle_rows
        rows = oracle_rows(machine, X, extra, seed, rng, n_jobs)
    exact = score(rows)
    prefixes: list[list[int]] = [[]]
    if not paper and options.candidates == "auto" and machine.kernel.name == "rbf":
        vectors, prefixes = _with_reduced_sets(machine, vectors, X, (rows, exact), options, seed, n_jobs)
    prune, show = _new_rows(X, rows, options, with_errors, rng, seed, n_jobs)
    # Columns are centred where their small differences are fitted; the paper's terms are what they are.
    mean = np.zeros(n_rows_of(vectors)) if paper else _column_means(machine, rows, vectors)
    if not paper or with_errors:
        rows, exact, prune, show = _held_out_of(rows, exact, prune, show, rng)
    show = show if len(show) else rows

    unit = unit_of(_basis.kernel_values(machine.kernel, rows[:: max(1, len(rows) // 500)], vectors))

    def complete(part: FloatArray, scores: FloatArray) -> Rows:
        return Rows(_kernel_matrix(machine, part, vectors, mean, unit), part, scores, _weight(machine, scores))

    stored = bool(np.count_nonzero(X) <= STORED_SHARE * X.size)
    moves = not stored and machine.kernel.name not in OF_PRODUCTS
    shift = X.mean(axis=0) if moves else np.zeros(X.shape[1])
    nothing = Rows(np.empty((0, 0), dtype=np.float32), prune[:0], exact[:0], np.empty(0))
    return Material(
        machine,
        vectors,
        mean,
        complete(rows, exact),
        nothing if paper else complete(prune, score(prune)),
        Query(show),
        score(show),
        prefixes,
        shift,
        stored,
        REACH * float(((X - shift) ** 2).sum(axis=1).max()),
        unit,
    )


def _at_most(X: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
    return X if len(X) <= n else X[np.sort(rng.choice(len(X), size=max(n, 2), replace=False))]


def _new_rows(
    X: FloatArray,
    rows: FloatArray,
    options: SVTreeOptions,
    with_errors: bool,
    rng: np.random.Generator,
    seed: int,
    n_jobs: int | None,
) -> tuple[FloatArray, FloatArray]:
    """Rows as far from the given ones as new rows would be: to prune on, and to see errors on."""
    if options.oracle_rows == 0 or len(X) < 2:
        return X[:0], X[:0]
    near = Neighbourhoods(X, seed, n_jobs)
    step = near.stand_in_step(rng)
    sizes = [int(np.clip(share * len(rows), FEWEST_ROWS, MOST_ROWS)) for share in (PRUNE_SHARE, SHOW_SHARE)]
    return near.shifted(sizes[0], step, rng), near.shifted(sizes[1] if with_errors else FEWEST_ROWS, step, rng)


def _held_out_of(
    rows: FloatArray, exact: FloatArray, prune: FloatArray, show: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Where no rows were made: part of the given ones prunes and shows."""
    if len(prune) or len(rows) < 4:
        return rows, exact, prune if len(prune) else rows, show
    order = rng.permutation(len(rows))
    held, kept = order[: int(HELD_OUT_SHARE * len(rows))], order[int(HELD_OUT_SHARE * len(rows)) :]
    return rows[kept], exact[kept], rows[held], rows[held]


def _with_reduced_sets(
    machine: KernelMachine,
    vectors: Any,
    X: FloatArray,
    oracle: tuple[FloatArray, FloatArray],
    options: SVTreeOptions,
    seed: int,
    n_jobs: int | None,
) -> tuple[Any, list[list[int]]]:
    """Vectors of reduced sets behind the others, and the beginnings of paths that they make."""
    budget = options.max_evals or DEFAULT_EVALS
    prefixes: list[list[int]] = [[]]
    for size in (budget, budget // 2):
        if not 0 < size < machine.n_sv:
            continue
        reduced = reduce_machine(machine, X, n_basis=size, oracle=oracle, random_state=seed, n_jobs=n_jobs)
        n = n_rows_of(vectors)
        prefixes.append(list(range(n, n + reduced.n_sv)))
        vectors = _basis.stack(vectors, reduced.support_vectors)
    return vectors, prefixes


def _column_means(machine: KernelMachine, rows: FloatArray, vectors: Any) -> FloatArray:
    some = rows[:: max(1, len(rows) // 2000)]
    return np.asarray(_basis.kernel_values(machine.kernel, some, vectors).mean(axis=0))


def _kernel_matrix(machine: KernelMachine, rows: FloatArray, vectors: Any, mean: FloatArray, unit: float) -> Values:
    """Kernel values less the columns' means, in float32, a piece of rows at a time."""
    values = np.empty((len(rows), len(mean)), dtype=np.float32)
    step = max(1, PIECE_VALUES // len(mean))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        values[part] = (_basis.kernel_values(machine.kernel, rows[part], vectors) - mean) / unit
    return values


def _weight(machine: KernelMachine, scores: FloatArray) -> FloatArray:
    """Rows whose sign is in doubt count more; one weight a row, so only where there is one score."""
    weighted = machine.task != "regression" and scores.shape[1] == 1
    return np.asarray(sign_weights(scores, weighted)[:, 0]) if weighted else np.ones(len(scores))


# -- objects -------------------------------------------------------------------------------------------------------


def from_objects(
    machine: KernelMachine,
    X: Any,
    options: SVTreeOptions,
    score: Scorer,
    with_errors: bool,
    seed: int,
    n_jobs: int | None,
) -> Material:
    """All kernel values of the objects are evaluated once; part of the objects is held out."""
    n = n_rows_of(X)
    order = np.random.default_rng([seed, 6]).permutation(n)[: max(PAPER_VALUES // machine.n_sv, 2)]
    n_held = int(HELD_OUT_SHARE * len(order)) if n >= 4 and (options.tree != "paper" or with_errors) else 0
    held, kept = np.sort(order[:n_held]), np.sort(order[n_held:])
    engine = ValueEngine(machine)
    first = engine.kernel_values(_safe_indexing(X, kept[:FIRST_OBJECTS]), kept)
    mean = np.zeros(machine.n_sv) if options.tree == "paper" else first.mean(axis=0)
    unit = unit_of(first)
    grow_values, grow_scores = _object_values(engine, X, kept, mean, unit, first)
    held_values, held_scores = grow_values, grow_scores
    if n_held:
        held_values, held_scores = _object_values(engine, X, held, mean, unit)

    def complete(values: Values, scores: FloatArray) -> Rows:
        return Rows(values, np.empty((len(scores), 0)), scores, _weight(machine, scores))

    shown = held if n_held else kept
    return Material(
        machine,
        machine.support_vectors,
        mean,
        complete(grow_values, grow_scores),
        complete(held_values if n_held else held_values.copy(), held_scores),
        Query(_safe_indexing(X, shown)),
        held_scores,
        [[]],
        unit=unit,
    )


def _object_values(
    engine: ValueEngine, X: Any, which: IndexArray, mean: FloatArray, unit: float, first: FloatArray | None = None
) -> tuple[Values, FloatArray]:
    """Kernel values as they are kept (float32), and scores, of some objects; `first` are values already evaluated."""
    machine = engine.machine
    values = np.empty((len(which), machine.n_sv), dtype=np.float32)
    scores = np.empty((len(which), machine.n_scores))

    def keep(start: int, found: FloatArray) -> int:
        stop = start + len(found)
        values[start:stop] = (found - mean) / unit
        scores[start:stop] = engine.vote(found)[1]
        return stop

    done = 0 if first is None else keep(0, first)
    step = max(1, PIECE_VALUES // machine.n_sv)
    while done < len(which):
        part = which[done : done + step]
        done = keep(done, engine.kernel_values(_safe_indexing(X, part), part))
    return values, scores
