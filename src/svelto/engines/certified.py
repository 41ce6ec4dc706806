"""Certified leaves: a Taylor expansion of the Gaussian machine with a proven remainder (promise: exact).

Around a leaf's centre c, with delta = x - c, q = |delta|^2, D_i = s_i - c and k_i = exp(-gamma |D_i|^2), the
squared-distance factor comes out exactly:

    f(x) - b = exp(-gamma q) sum_i a_i k_i exp(2 gamma delta.D_i).

What is expanded is only exp(2 gamma delta.D_i): the constant and linear terms are the leaf's model, the quadratic
term lies between the extreme eigenvalues of  M = sum_i a_i k_i D_i D_i^T  times 2 gamma^2 q (signs cancel inside M,
which is what makes the bound useful), and the rest is at most  cubic q^(3/2).  `native/certified.hpp` states the same
next to the code.

Rounding: every number here is a sum of n_sv terms, each with a relative error of a few units in the last place for
each feature and, inside the exponential, for each unit of gamma |D|^2. `slack` is that, times the sum of absolute
terms, four times over, plus the distance between the machine's real value and the reference's sum in float64.

Where the terms of a machine are many and large (thousands of bounded support vectors), the cubic remainder adds up
their absolute values and settles little; the report says how much.
"""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from typing import Any, Final

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from svelto._inputs import Query
from svelto._threads import thread_count
from svelto._typing import FloatArray, IntArray
from svelto.engines.native_stage import check_outcome, pieces
from svelto.engines.packing import expand_rows
from svelto.engines.taylor_tree import TaylorTree, leaf_bytes
from svelto.machine import KernelMachine
from svelto.oracle import SHIFT_STEP, Neighbourhoods

UNIT: Final = 2.0**-53
SAFETY: Final = 4.0
# Leaves answer somewhat beyond the rows they were made of: in squared distance, this far.
RADIUS: Final = 1.5


def check_certifiable(machine: KernelMachine) -> None:
    """Refuse kernels whose remainder has no bound here."""
    if machine.kernel.name != "rbf":
        raise NotImplementedError(
            f"agreement=1.0 needs leaves with a proven bound, which exists for the rbf kernel; this machine has "
            f"{machine.kernel}. Use method='exact', or agreement=0.9999."
        )


@dataclass
class CertifiedTree(TaylorTree):
    """A tree that settles a row only where the label is proven."""

    def settle(self, query: Query, caution: float, n_jobs: int | None = None) -> IntArray:
        """Labels in vote order where they are certain, -1 elsewhere; `caution` has no meaning here."""
        return self._intervals(query, n_jobs, with_scores=False)[0]

    def scores(self, query: Query, n_jobs: int | None = None) -> tuple[FloatArray, FloatArray]:
        """Scores and proven bounds of their errors; with a threshold of 1 they settle what `settle` settles."""
        return self._intervals(query, n_jobs, with_scores=True)[1:]

    def _intervals(
        self, query: Query, n_jobs: int | None, *, with_scores: bool
    ) -> tuple[IntArray, FloatArray, FloatArray]:
        n = query.rows.shape[0]
        out: IntArray = np.empty(n, dtype=np.int32)
        shape = (n, self.machine.n_scores) if with_scores else (0, 0)
        scores, bounds = np.empty(shape), np.empty(shape)
        for start, part, threads in pieces(query.rows, n_jobs):
            rows = slice(start, start + part.shape[0])
            to = out[rows], scores[rows] if with_scores else scores, bounds[rows] if with_scores else bounds
            if sparse.issparse(part):
                outcome = self._native.certified_csr(part.data, part.indices, part.indptr, *to, threads)
            else:
                outcome = self._native.certified_dense(part, *to, query.scale, threads)
            check_outcome(outcome, query.rows, start)
        return out, scores, bounds


def tree_share(max_bytes: int, d: int, n_scores: int) -> int:
    """What is left of a limit for the tree itself when its leaves are certified: float64 centres, slopes and bounds."""
    own, more = leaf_bytes(d, n_scores), 8 * (d + 1 + n_scores * (d + 5))
    return max(1, (max_bytes - 8 * n_scores) * own // (own + more))


def certify_leaves(tree: TaylorTree, rows: FloatArray, seed: int = 0, n_jobs: int | None = None) -> CertifiedTree:
    """Add proven intervals to the leaves of a tree; `rows` (scaled) say how far from its centre a leaf is asked."""
    if len(rows) < 2 * tree.n_leaves:
        # Leaves of one row would only be asked about that row: rows around it say how far others will be.
        rows = Neighbourhoods(rows, seed, n_jobs).shifted(2 * len(rows), SHIFT_STEP, np.random.default_rng(seed))
    machine, a = tree.machine, tree.arrays
    d, n_leaves = int(a["d"]), tree.n_leaves
    centres = a["centres"][:, :d].astype(np.float64) + a["shift"]
    trace = tree.trace(Query(rows), n_jobs)
    sq_radius = np.zeros(n_leaves)
    np.maximum.at(sq_radius, trace.leaf, ((rows - centres[trace.leaf]) ** 2).sum(axis=1))
    sq_radius = RADIUS * np.maximum(sq_radius, np.median(sq_radius))
    vectors = machine.support_vectors
    S = vectors.toarray() if sparse.issparse(vectors) else np.asarray(vectors)
    coef = expand_rows(machine, machine.dual_coef)
    shape = (n_leaves, machine.n_scores)
    fields: dict[str, Any] = {name: np.empty(shape) for name in ("value", "low", "high", "cubic", "slack")}
    fields["slope"] = np.empty((*shape, d))
    reference = UNIT * (machine.n_sv + d + 8.0)

    # What overflows makes a bound infinite, and the leaf useless far from its centre: nothing to warn of.
    @np.errstate(over="ignore", under="ignore", invalid="ignore")
    def fill(leaf: int) -> None:
        for p, weights in enumerate(coef):
            terms = _leaf_terms(machine.kernel.gamma, centres[leaf], float(sq_radius[leaf]), S, weights)
            for name, number in terms.items():
                fields[name][leaf, p] = number
            fields["slack"][leaf, p] += SAFETY * (
                reference * float(np.abs(weights).sum()) + 4.0 * UNIT * abs(float(machine.intercept[p]))
            )

    with threadpool_limits(1, user_api="blas"), ThreadPool(thread_count(n_jobs)) as pool:
        pool.map(fill, range(n_leaves), chunksize=4)
    certified = {f"certified_{name}": array for name, array in fields.items()}
    certified["certified_gamma"] = machine.kernel.gamma
    certified["certified_intercept"] = np.array(machine.intercept)
    certified["certified_centres"] = centres
    certified["certified_sq_radius"] = sq_radius
    return CertifiedTree(machine, {**a, **certified})


def _leaf_terms(gamma: float, centre: FloatArray, sq_radius: float, S: FloatArray, weights: FloatArray) -> Any:
    """Value, slope, and the numbers that bound the rest, of one score in one leaf."""
    taking_part = weights != 0.0
    D, w = S[taking_part] - centre, weights[taking_part]
    sq = np.einsum("ij,ij->i", D, D)
    length = np.sqrt(sq)
    k = np.exp(-gamma * sq)
    a, radius = w * k, np.sqrt(sq_radius)
    absolute = np.abs(a)
    slope = 2.0 * gamma * (a @ D)
    eigenvalues = np.linalg.eigvalsh((D * a[:, None]).T @ D)
    # Inside the radius exp(2 gamma delta.D) grows to at most exp(2 gamma r |D|); joined with k it never overflows.
    grown = np.abs(w) * np.exp(-gamma * sq + 2.0 * gamma * radius * length)
    cubic = 8.0 * gamma**3 / 6.0 * float((grown * length**3).sum())
    n, d = D.shape
    relative = SAFETY * UNIT * (n + (d + 4.0) * (2.0 + gamma * float(sq.max(initial=0.0)) + gamma * sq_radius) + 64.0)
    # Sums of absolute terms: what each relative error is a part of.
    curvature = 2.0 * gamma**2 * float(absolute @ sq)
    linear = 2.0 * gamma * radius * float(absolute @ length)
    return {
        "value": float(a.sum()),
        "slope": slope,
        "low": 2.0 * gamma**2 * float(eigenvalues[0]) - d * relative * curvature,
        "high": 2.0 * gamma**2 * float(eigenvalues[-1]) + d * relative * curvature,
        "cubic": cubic * (1.0 + relative),
        "slack": relative * (float(absolute.sum()) + linear + curvature * sq_radius),
    }
