"""One-vs-one training with the exponential kernel, one pair of classes at a time.

LIBSVM splits a problem of K classes into K (K - 1) / 2 problems of two classes, and each sees the rows of its own two
classes only. So the Gram matrix of all rows is never needed: a pair's own matrix is made, LIBSVM trains on it
(``SVC(kernel="precomputed")``), and the results are put into the layout that LIBSVM itself would return.

    26 classes of 577 rows: 11 MB a pair, instead of 1.8 GB for all 15,000 rows.

Invariant: the assembled arrays are those of ``SVC(kernel="precomputed")`` on the Gram matrix of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.svm import SVC

from svelto._progress import steps
from svelto._typing import FloatArray, IndexArray, IntArray, Rows

# Rows of a CSR matrix that are multiplied at once, and pairs of rows that are subtracted at once: bounds the memory of
# the intermediate sparse matrices.
ROW_BLOCK: Final = 256
DIFFERENCE_BLOCK: Final = 4096
# |a|^2 + |b|^2 - 2 a.b keeps 13 of 16 digits where it is at least this share of its terms; below it is computed anew.
CANCELLED_BELOW: Final = 1e-3
# From this many kernel values on (about a second) progress is shown; a search that fits many small machines is quiet.
LONG_WORK: Final = 100_000_000


class PairProblem(NamedTuple):
    """What all pairs have in common: rows, their weights, and the solver's settings."""

    X: Rows
    weights: FloatArray | None
    class_weight: FloatArray
    gamma: float
    C: float
    tol: float
    max_iter: int


@dataclass(frozen=True)
class PairResult:
    """One trained pair: the rows that became support vectors, with LIBSVM's signs."""

    rows: IndexArray
    coef: FloatArray
    intercept: float
    n_iter: int
    status: int


class Layout(NamedTuple):
    """LIBSVM's compact one-vs-one arrays: support vectors class by class, K - 1 rows of coefficients."""

    support: IntArray
    n_support: IntArray
    dual_coef: FloatArray
    intercept: FloatArray
    n_iter: IntArray
    status: int


class _QuietSVC(SVC):  # type: ignore[misc]  # scikit-learn has no types
    """An SVC that leaves the warning about `max_iter` to its caller, who gives one for all pairs."""

    def _warn_from_fit_status(self) -> None:
        pass


# -- kernel values ---------------------------------------------------------------------------------------------------


def exponential_gram(X: Rows, gamma: float) -> FloatArray:
    """exp(-gamma ||a - b||) of every two rows, with ones on the diagonal."""
    if sparse.issparse(X):
        gram = _sparse_distances(X)
    else:
        gram = np.empty((len(X), len(X)))
        cdist(X, X, "euclidean", out=gram)
    gram *= -gamma
    return np.exp(gram, out=gram)


def _sparse_distances(X: Any) -> FloatArray:
    """Euclidean distances of the rows of a CSR matrix, from products except where these cancel."""
    n_rows = X.shape[0]
    sq_norm = np.asarray(X.multiply(X).sum(axis=1)).ravel()
    transposed = X.T.tocsr()
    distances = np.empty((n_rows, n_rows))
    for start in range(0, n_rows, ROW_BLOCK):
        part = X[start : start + ROW_BLOCK]
        terms = sq_norm[start : start + ROW_BLOCK, None] + sq_norm
        sq_dist = terms - 2.0 * (part @ transposed).toarray()
        # Equal and nearly equal rows, the diagonal among them. The kernel has a kink at zero: an error of 1e-16 in
        # the squared distance would be one of 1e-8 in the kernel value.
        a, b = np.nonzero(sq_dist <= CANCELLED_BELOW * terms)
        for at in range(0, len(a), DIFFERENCE_BLOCK):
            left, right = a[at : at + DIFFERENCE_BLOCK], b[at : at + DIFFERENCE_BLOCK]
            difference = part[left] - X[right]
            sq_dist[left, right] = np.asarray(difference.multiply(difference).sum(axis=1)).ravel()
        np.sqrt(sq_dist, out=distances[start : start + ROW_BLOCK])
    return distances


# -- training --------------------------------------------------------------------------------------------------------


def train_pair(problem: PairProblem, groups: Sequence[IndexArray], i: int, j: int) -> PairResult:
    """Train class i (positive) against class j."""
    rows = np.concatenate([groups[i], groups[j]])
    labels = np.repeat([0, 1], [len(groups[i]), len(groups[j])])
    svc = _QuietSVC(
        kernel="precomputed",
        C=problem.C,
        tol=problem.tol,
        max_iter=problem.max_iter,
        class_weight={0: problem.class_weight[i], 1: problem.class_weight[j]},
    )
    weights = None if problem.weights is None else problem.weights[rows]
    svc.fit(exponential_gram(problem.X[rows], problem.gamma), labels, sample_weight=weights)
    # For two classes scikit-learn turns LIBSVM's signs; turn them back.
    return PairResult(
        rows[svc.support_], -svc.dual_coef_[0], -float(svc.intercept_[0]), int(svc.n_iter_[0]), int(svc.fit_status_)
    )


def train_pairs(problem: PairProblem, groups: Sequence[IndexArray], n_threads: int) -> Layout:
    """Train every pair of classes, several at a time.

    Parameters
    ----------
    problem : PairProblem
        Rows and settings.
    groups : sequence of ndarray
        Row numbers of each class, rising.
    n_threads : int
        Pairs trained at once; LIBSVM and the distances run without Python's lock.

    Returns
    -------
    Layout
    """
    pairs = [(i, j) for i in range(len(groups)) for j in range(i + 1, len(groups))]
    n_values = sum((len(groups[i]) + len(groups[j])) ** 2 for i, j in pairs)
    progress = steps("svelto ExponentialSVC") if n_values >= LONG_WORK else nullcontext(lambda step: None)
    with progress as say, ThreadPoolExecutor(n_threads) as pool:
        try:
            waiting = [pool.submit(train_pair, problem, groups, i, j) for i, j in pairs]
            for n_done, future in enumerate(as_completed(waiting), 1):
                future.result()
                say(f"{n_done} of {len(pairs)} pairs of classes")
        except BaseException:  # Ctrl-C too: pairs that run are finished, no other is started
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return _assemble(groups, pairs, [future.result() for future in waiting], problem.X.shape[0])


def _assemble(
    groups: Sequence[IndexArray], pairs: list[tuple[int, int]], trained: list[PairResult], n_rows: int
) -> Layout:
    """Lay the pairs out: coefficients of class i against class j stand in row j - 1 if i < j, otherwise in row j."""
    used = np.zeros(n_rows, dtype=bool)
    for result in trained:
        used[result.rows] = True
    kept = [group[used[group]] for group in groups]
    support = np.concatenate(kept)
    column, class_of = np.empty(n_rows, dtype=np.intp), np.empty(n_rows, dtype=np.intp)
    column[support] = np.arange(len(support))
    class_of[support] = np.repeat(np.arange(len(groups)), [len(rows) for rows in kept])
    dual_coef = np.zeros((len(groups) - 1, len(support)))
    for (i, j), result in zip(pairs, trained, strict=True):
        dual_coef[np.where(class_of[result.rows] == i, j - 1, i), column[result.rows]] = result.coef
    return Layout(
        support.astype(np.int32),
        np.array([len(rows) for rows in kept], dtype=np.int32),
        dual_coef,
        np.array([result.intercept for result in trained]),
        np.array([result.n_iter for result in trained], dtype=np.int32),
        int(any(result.status for result in trained)),
    )
