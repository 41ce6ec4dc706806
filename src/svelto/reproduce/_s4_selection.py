"""Model selection of paper S4's Table 1: 10-fold cross-validation inside the training rows of a fold.

All grid points of SVM, KNNSVC and LocalSVC are tried by `search_local`, which trains thousands of small SVMs in a
call. A held-out row is answered by one neighbourhood of training rows: all of them (SVM), its own nearest (KNNSVC), or
those of the centre that covers its nearest one (LocalSVC). Labels are those of the public classes, but for rows whose
score is within the solver's tolerance of zero, or whose votes tie among three or more classes.

The point with the fewest errors wins; of equal ones the simpler machine: the larger k (all rows first), then the lower
degree, the larger sigma, the smaller C.

Invariant: the winner is that of the whole grid. A point is left as soon as its errors on the folds so far are too many
to win, whatever the other folds say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from svelto._typing import FloatArray, IndexArray, IntArray
from svelto.kernels import Kernel
from svelto.training._local.feature_space import FeatureSpace, lane_sums
from svelto.training._local.fits import KernelChoice, search_local

# Neighbourhoods of training rows, each with the held-out rows it answers.
Groups = list[tuple[IndexArray, IndexArray]]
# A search for neighbours that is fast for few rows, however many features they have.
SEARCH: Final = "brute"
# Constant of each polynomial kernel.
COEF0: Final = {"HPOL": 0.0, "IPOL": 1.0}


class Grid(NamedTuple):
    """Values to choose from; `k` are the sizes below that of the training set, which is always tried."""

    k: Sequence[int]
    C: Sequence[float]
    sigma: Sequence[float]
    degree: Sequence[int]


class Point(NamedTuple):
    """A grid point. k is None for all rows; sigma is of exp(-|x - z|^2 / sigma)."""

    k: int | None
    degree: int
    sigma: float
    C: float

    @property
    def complexity(self) -> tuple[float, int, float, float]:
        """Ascending from the simplest machine on."""
        return (-np.inf if self.k is None else -self.k, self.degree, -self.sigma, self.C)


def kernel_of_point(kernel: str, degree: int, sigma: float) -> dict[str, Any]:
    """Parameters of an estimator: of `SVC` as of `LocalSVC`. Polynomials of degree 1 are the linear kernel."""
    if kernel == "RBF":
        return {"kernel": "rbf", "gamma": 1.0 / sigma}
    if kernel == "LIN" or degree == 1:
        return {"kernel": "linear"}
    return {"kernel": "poly", "gamma": 1.0, "degree": degree, "coef0": COEF0[kernel]}


@dataclass
class Race:
    """The best point so far, and its errors."""

    errors: float = np.inf
    point: Point | None = None

    def may_win(self, errors: float, point: Point) -> bool:
        """Whether a point with so many errors, or more, may be better than the best so far."""
        if errors != self.errors or self.point is None:
            return errors < self.errors
        return point.complexity < self.point.complexity

    def enter(self, errors: float, point: Point) -> None:
        """Take over a point that is better than the best so far."""
        if self.may_win(errors, point):
            self.errors, self.point = errors, point

    def joined(self, *others: Race) -> Race:
        """The best of several."""
        best = Race(self.errors, self.point)
        for other in others:
            if other.point is not None:
                best.enter(other.errors, other.point)
        return best


class Neighbours:
    """Rows in the order of their distance from each row, in the feature space of any kernel.

    Distances are those of `NeighbourIndex`, to the last bit: of equal ones the row that comes first is nearer.
    """

    def __init__(self, X: FloatArray) -> None:
        self.X = X
        self._products: FloatArray | None = None
        self._known: dict[Kernel, tuple[IndexArray, FloatArray]] = {}

    def of(self, kernel: Kernel) -> tuple[IndexArray, FloatArray]:
        """All rows, nearest first, and all squared distances: both (n_rows, n_rows)."""
        if kernel not in self._known:
            sq_dist = self._distances(FeatureSpace.of(kernel))
            self._known[kernel] = np.argsort(sq_dist, axis=1, kind="stable"), sq_dist
        return self._known[kernel]

    def _distances(self, space: FeatureSpace) -> FloatArray:
        n = len(self.X)
        if space.euclidean:
            row, query = (part.ravel() for part in np.indices((n, n)))
            return space.pair_distances(self.X, self.X, row, query).reshape(n, n)
        if self._products is None:  # the same for all polynomials
            self._products = np.stack([lane_sums(self.X * row) for row in self.X])
        values = space.kernel_of_products(self._products)
        return np.maximum(values.diagonal()[:, None] + values.diagonal() - 2.0 * values, 0.0)


@dataclass(frozen=True)
class InnerFold:
    """Rows known and held out; who are the neighbours among the known ones."""

    neighbours: Neighbours
    known: IndexArray
    held: IndexArray
    seed: int

    def _known_rows(self, kernel: Kernel, queries: IndexArray) -> IndexArray:
        """All known rows, nearest first, for each query."""
        order = self.neighbours.of(kernel)[0][queries]
        is_known = np.zeros(len(self.neighbours.X), dtype=bool)
        is_known[self.known] = True
        return order[is_known[order]].reshape(len(queries), len(self.known))

    def all_rows(self, kernel: Kernel, k: int | None) -> Groups:
        """One machine for all."""
        assert k is None
        return [(self.known, self.held)]

    def own_neighbours(self, kernel: Kernel, k: int | None) -> Groups:
        """KNNSVC: a machine for every held-out row."""
        nearest = self._known_rows(kernel, self.held)[:, :k]
        return [(rows, self.held[i : i + 1]) for i, rows in enumerate(nearest)]

    def covering_neighbours(self, kernel: Kernel, k: int | None) -> Groups:
        """LocalSVC: machines of the cover, those without held-out rows left out."""
        assert k is not None
        k_prime = max(1, k // 4)
        nearest = np.empty((len(self.neighbours.X), k), dtype=np.int64)
        nearest[self.known] = self._known_rows(kernel, self.known)[:, :k]
        sq_dist = self.neighbours.of(kernel)[1]
        centre_of_row = np.full(len(nearest), -1)
        # The order that LocalSVC draws first from its random_state.
        for row in self.known[np.random.RandomState(self.seed).permutation(len(self.known))].tolist():
            if centre_of_row[row] < 0:
                near = nearest[row, :k_prime]
                if sq_dist[row, near[-1]] == 0.0:  # more copies than k': a centre covers them all
                    near = np.concatenate([near, self.known[sq_dist[row, self.known] == 0.0]])
                centre_of_row[near[centre_of_row[near] < 0]] = row
        centre = centre_of_row[self._known_rows(kernel, self.held)[:, 0]]
        return [(nearest[c], self.held[centre == c]) for c in np.unique(centre)]


Neighbourhoods = Callable[[InnerFold, Kernel, int | None], Groups]


@dataclass
class Selection:
    """Cross-validation of grid points on the training rows of one outer fold.

    Attributes
    ----------
    X : ndarray of shape (n_rows, n_features)
        Training rows, scaled.
    codes : ndarray of shape (n_rows,)
        Class codes.
    folds : ndarray of shape (n_rows,)
        Inner fold of each row.
    seed : int
        LocalSVC's `random_state`.
    most_steps : int
        Limit of the solver's steps for the SVM of a neighbourhood; some problems of the grid would take millions.
    most_steps_of_all : int
        The same for an SVM on all rows.
    n_jobs : int
        Threads.
    """

    X: FloatArray
    codes: IntArray
    folds: IntArray
    seed: int
    most_steps: int
    most_steps_of_all: int
    n_jobs: int

    def __post_init__(self) -> None:
        neighbours = Neighbours(self.X)
        self.inner = [
            InnerFold(neighbours, np.flatnonzero(self.folds != f), np.flatnonzero(self.folds == f), self.seed)
            for f in np.unique(self.folds)
        ]
        self.n_known = min(len(fold.known) for fold in self.inner)

    def choose(self, kernel: str, grids: dict[str, Grid], linear: dict[str, Race]) -> dict[str, Race]:
        """The best points of SVM, KNNSVC and LocalSVC.

        Parameters
        ----------
        kernel : {"LIN", "RBF", "HPOL", "IPOL"}
            The kernel.
        grids : dict
            Grid by machine. k = all rows is the SVM, whose grid it has.
        linear : dict
            What was chosen for the linear kernel, which is every polynomial's of degree 1; may be empty.

        Returns
        -------
        dict
            From the machine's name to its race.
        """
        polynomial = kernel in COEF0
        start = linear if polynomial else {}
        chosen = {"SVM": start.get("SVM", Race()).joined()}
        self._run(chosen["SVM"], kernel, grids["SVM"], InnerFold.all_rows, [None])
        for machine, neighbourhoods in (
            ("KNNSVC", InnerFold.own_neighbours),
            ("LocalSVC", InnerFold.covering_neighbours),
        ):
            chosen[machine] = chosen["SVM"].joined(start.get(machine, Race()))
            sizes = [k for k in grids[machine].k if k < self.n_known]
            self._run(chosen[machine], kernel, grids[machine], neighbourhoods, sizes)
        return chosen

    def _run(
        self, race: Race, kernel: str, grid: Grid, neighbourhoods: Neighbourhoods, sizes: Sequence[int | None]
    ) -> None:
        """Let all points of a grid run; small neighbourhoods, which are fast, first."""
        polynomial = kernel in COEF0
        sigmas = list(grid.sigma) if kernel == "RBF" else [1.0]
        for degree in [d for d in grid.degree if d > 1] if polynomial else [1]:
            for k in sizes:
                points = np.empty((len(sigmas), len(grid.C)), dtype=object)
                for at in np.ndindex(points.shape):
                    points[at] = Point(k, degree, sigmas[at[0]], grid.C[at[1]])
                self._run_size(race, kernel, points, neighbourhoods)

    def _run_size(self, race: Race, kernel: str, points: Any, neighbourhoods: Neighbourhoods) -> None:
        """Points of one k and degree, (n_sigma, n_C): fold by fold, those that can no longer win are left."""
        first: Point = points[0, 0]
        form = kernel_of_point(kernel, first.degree, 1.0)
        choice = KernelChoice(form["kernel"], form.get("degree", 1), form.get("coef0", 0.0))
        space = Kernel(choice.name, gamma=1.0, degree=choice.degree, coef0=choice.coef0)
        errors = np.zeros(points.shape)
        for fold in self.inner:
            runs = np.array([race.may_win(e, p) for e, p in zip(errors.flat, points.flat, strict=True)])
            runs = runs.reshape(points.shape)
            if not runs.any():
                return
            start, rows, held = joined_groups(neighbourhoods(fold, space, first.k))
            for s in np.flatnonzero(runs.any(axis=1)):
                right = search_local(
                    self.X,
                    self.codes,
                    start,
                    rows,
                    folds=held,
                    kernel=choice,
                    C=[point.C for point in points[s, runs[s]]],
                    gamma=[1.0 / points[s, 0].sigma],
                    max_iter=self.most_steps_of_all if first.k is None else self.most_steps,
                    n_jobs=self.n_jobs,
                )
                errors[s, runs[s]] += len(fold.held) - right.sum(axis=(0, 1))
        for at in zip(*np.nonzero(runs), strict=True):
            race.enter(float(errors[at]), points[at])


def joined_groups(groups: Groups) -> tuple[IndexArray, IndexArray, IntArray]:
    """Neighbourhoods in `search_local`'s form: starts, rows, and 0 for a row to answer, -1 for one to learn from."""

    def parts() -> Iterator[tuple[IndexArray, int]]:
        for known, held in groups:
            yield known, -1
            yield held, 0

    rows = np.concatenate([numbers for numbers, _ in parts()])
    held = np.concatenate([np.full(len(numbers), mark, dtype=np.int32) for numbers, mark in parts()])
    sizes = [len(known) + len(held) for known, held in groups]
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), rows.astype(np.int64), held
