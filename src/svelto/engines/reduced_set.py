"""Reduced sets (approximate): a machine of few vectors whose scores follow those of a machine of many.

    f(x) = sum_i alpha_i k(x, s_i) + b   becomes   g(x) = sum_j beta_j k(x, t_j) + c,   far fewer t_j than s_i

(Burges 1996; Schoelkopf et al. 1999). All scores of a machine share one set of vectors. The result is a machine that
answers with scores: the exact engine evaluates it, at a cost in proportion to its number of vectors.

What is minimised, and how vectors are chosen, is in `_basis`. At equal size "preimage" settles most rows and "kmeans",
hardly better than a random choice of support vectors, fewest; it is where preimage starts from.

Invariant: every number of the result is finite, and the same `random_state` gives the same machine.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from svelto._inputs import Query, as_floats, check_finite, check_rows
from svelto._options import check_whole
from svelto._threads import check_n_jobs, thread_count
from svelto._typing import FloatArray, Rows
from svelto.engines import _basis
from svelto.engines._basis import RandomState, Target
from svelto.engines.exact import build_exact
from svelto.engines.packing import expand_rows
from svelto.machine import KernelMachine

Basis: TypeAlias = Literal["auto", "kmeans", "greedy", "preimage"]
Coefficients: TypeAlias = Literal["least_squares", "projection"]
Weighting: TypeAlias = Literal["auto", "margin", "uniform"]

_CHOICES: Final = {
    "basis": ("auto", "kmeans", "greedy", "preimage"),
    "coefficients": ("least_squares", "projection"),
    "weighting": ("auto", "margin", "uniform"),
}
# Rows that are scored where no oracle is given; the fit to 50,000 rows of ijcnn1 is no better than to 20,000.
ORACLE_ROWS: Final = 100_000
# Settled by 128 vectors on ijcnn1, whose test rows reach further out than the training rows: 0.975 with 1e-5, 0.987
# with 1e-4, 0.993 with 1e-3 and with 1e-2.
RIDGE: Final = 1e-3
# The weight of a row falls to a half where its score reaches this share of the median |score|. Settled by 128 vectors
# on ijcnn1: 0.994 with 0.1, 0.993 with 0.4, 0.990 with 1.5 and without weights.
MARGIN: Final = 0.2


def reduce_machine(
    machine: KernelMachine,
    rows: Rows,
    *,
    n_basis: int = 256,
    basis: Basis = "auto",
    coefficients: Coefficients = "least_squares",
    oracle: tuple[Rows, FloatArray] | None = None,
    ridge: float = RIDGE,
    weighting: Weighting = "auto",
    max_iter: int = 150,
    random_state: int | RandomState | None = None,
    n_jobs: int | None = None,
) -> KernelMachine:
    """Approximate a machine by one of few vectors.

    Parameters
    ----------
    machine : KernelMachine
        Any kernel on vectors but the linear one, any task and number of scores.
    rows : array or CSR matrix of shape (n_rows, n_features)
        Rows like those to be predicted, as the kernel sees them: behind the machine's front and scaling.
    n_basis : int, default=256
        Vectors of the result; fewer where there are not as many distinct ones. With as many as the machine has, the
        result is the machine itself.
    basis : {"auto", "preimage", "greedy", "kmeans"}, default="auto"
        ``"preimage"``: any point of the space, found by L-BFGS; the best, and for the RBF kernel alone. ``"greedy"``:
        rows and support vectors, chosen one by one. ``"kmeans"``: cluster centres; the fastest. ``"auto"``: preimage
        where the kernel allows it, greedy elsewhere.
    coefficients : {"least_squares", "projection"}, default="least_squares"
        ``"least_squares"``: best scores on the oracle rows. ``"projection"``: nearest in the kernel's feature space,
        whatever the rows; the intercept stays.
    oracle : (rows, scores) or None
        Rows and the machine's scores there, (n, n_scores), LIBSVM's signs, vote order. Default: `rows` (at most
        100,000 of them), scored by the exact engine.
    ridge : float, default=1e-3
        Least squares: weight of the distance in feature space, in units of the mean square of a kernel value. Keeps
        the approximation close to the machine where the oracle has no rows.
    weighting : {"auto", "margin", "uniform"}, default="auto"
        Least squares: ``"margin"`` gives rows near the boundary more weight, where one score's sign decides;
        ``"uniform"`` weighs all alike. ``"auto"``: margin for two classes and outlier detectors, uniform elsewhere.
    max_iter : int, default=150
        Steps of L-BFGS for ``"preimage"``.
    random_state : int, RandomState or None
        Seed for the draws of rows, candidates and cluster centres.
    n_jobs : int or None
        Threads.

    Returns
    -------
    KernelMachine
        A regressor with one output for each score of `machine`; no front, no scaling.
    """
    _check_options(
        machine, n_basis, max_iter, ridge, {"basis": basis, "coefficients": coefficients, "weighting": weighting}
    )
    check_n_jobs(n_jobs)
    width = int(machine.support_vectors.shape[1])
    rows = _checked(rows, width)
    coef = np.column_stack(expand_rows(machine, machine.dual_coef))
    if n_basis >= machine.n_sv:
        return _score_machine(machine, machine.support_vectors, coef, machine.intercept)
    rng = check_random_state(random_state)
    # Kernel values that overflow end in an error of our own.
    with threadpool_limits(thread_count(n_jobs)), np.errstate(over="ignore", invalid="ignore"):
        if coefficients == "projection":
            nothing = np.empty((0, machine.n_scores))
            target = Target(machine.kernel, machine.support_vectors, coef, None, nothing, np.empty(0), 1.0)
        else:
            at, scores = _scored(machine, rows, rng, n_jobs) if oracle is None else _checked_oracle(machine, oracle)
            weights = _row_weights(machine, scores, weighting)
            penalty = ridge * _kernel_scale(machine, at, rng)
            target = Target(machine.kernel, machine.support_vectors, coef, at, scores, weights, penalty)
        T = _choose(target, rows, n_basis, basis, max_iter, rng, thread_count(n_jobs))
        A, B, mean_values, mean_scores = target.system(T)
        beta = _basis.solve(A, B)
        intercept = machine.intercept if coefficients == "projection" else mean_scores - mean_values @ beta
    return _score_machine(machine, T, beta, intercept)


def _choose(
    target: Target, rows: Rows, n_basis: int, basis: Basis, max_iter: int, rng: RandomState, n_threads: int
) -> Rows:
    if basis == "greedy" or (basis == "auto" and target.kernel.name != "rbf"):
        return _basis.greedy(target, rows, n_basis, rng)
    centres = _basis.kmeans(target.vectors, rows, n_basis, rng)
    return centres if basis == "kmeans" else _basis.preimage(target, centres, max_iter, rng, n_threads)


def _score_machine(machine: KernelMachine, vectors: Rows, coef: FloatArray, intercept: FloatArray) -> KernelMachine:
    """The scores sum_i coef[i] k(x, vectors[i]) + intercept as a machine of their own."""
    return KernelMachine(
        kernel=machine.kernel,
        support_vectors=vectors,
        dual_coef=coef.T,
        intercept=intercept,
        task="regression",
        rule="value",
        n_features=int(vectors.shape[1]),
        single_output=machine.single_output,
        svm_type="epsilon_svr",
        source="reduced set",
    )


def _scored(machine: KernelMachine, rows: Rows, rng: RandomState, n_jobs: int | None) -> tuple[Rows, FloatArray]:
    at = _basis.some(rows, ORACLE_ROWS, rng)
    return at, build_exact(machine).scores(Query(at), n_jobs, "float64")


def _row_weights(machine: KernelMachine, scores: FloatArray, weighting: Weighting) -> FloatArray:
    """Weights that fall with the square of the score, from 1 on the boundary."""
    if weighting == "uniform" or (weighting == "auto" and not _decides_by_sign(machine)):
        return np.ones(len(scores))
    margin = scores[:, 0] ** 2
    scale = MARGIN**2 * float(np.median(margin))
    return scale / (margin + scale) if scale > 0 else np.ones(len(scores))


def _decides_by_sign(machine: KernelMachine) -> bool:
    return machine.n_scores == 1 and machine.task != "regression"


def _kernel_scale(machine: KernelMachine, rows: Rows, rng: RandomState) -> float:
    """What makes `ridge` a pure number: mean k(x, s)^2 over mean k(s, s), both from a sample."""
    vectors = _basis.some(machine.support_vectors, 500, rng)
    squares = _basis.kernel_values(machine.kernel, _basis.some(rows, 500, rng), vectors) ** 2
    own = _basis.kernel_values(machine.kernel, vectors, vectors)
    # An indefinite kernel has no feature space: scores at support vectors stand in, squares of kernel values too.
    size = float(own.diagonal().mean() if _basis.is_definite(machine.kernel) else (own**2).mean())
    scale = float(squares.mean()) / size if size > 0 else 0.0
    return scale if math.isfinite(scale) else 0.0


# -- what the caller passes in -------------------------------------------------------------------------------------


def _checked(rows: Any, width: int) -> Rows:
    checked = as_floats(check_rows(rows, width))
    check_finite(checked, checked)
    return checked


def _checked_oracle(machine: KernelMachine, oracle: Any) -> tuple[Rows, FloatArray]:
    if not isinstance(oracle, (tuple, list)) or len(oracle) != 2:
        raise ValueError(f"oracle is a {type(oracle).__name__}; expected a pair (rows, scores), or None.")
    rows = _checked(oracle[0], int(machine.support_vectors.shape[1]))
    scores = np.asarray(oracle[1], dtype=np.float64)
    expected = (rows.shape[0], machine.n_scores)
    if scores.shape != expected:
        raise ValueError(f"The oracle's scores have shape {scores.shape}; expected {expected}, (n_rows, n_scores).")
    if not np.isfinite(scores).all():
        row = int(np.flatnonzero(~np.isfinite(scores).all(axis=1))[0])
        raise ValueError(f"The oracle's scores of row {row} are not finite; score the rows again with method='exact'.")
    return rows, scores


def check_reducible(machine: KernelMachine) -> None:
    """Refuse a kernel that the method cannot serve."""
    name = machine.kernel.name
    if name == "linear":
        raise ValueError(
            "A linear machine is already one product a score; a reduced set cannot make it smaller. Use method='exact'."
        )
    if not machine.kernel.has_native_code:
        raise NotImplementedError(
            f"A reduced set needs a kernel on vectors (rbf, exponential, laplacian, poly, sigmoid), got {name!r}. "
            "Use method='exact'."
        )


def _check_options(machine: KernelMachine, n_basis: Any, max_iter: Any, ridge: Any, names: dict[str, Any]) -> None:
    check_reducible(machine)
    name = machine.kernel.name
    for option, value in names.items():
        if value not in _CHOICES[option]:
            raise ValueError(f"{option} is {value!r}; expected one of {', '.join(_CHOICES[option])}.")
    if names["basis"] == "preimage" and name != "rbf":
        raise NotImplementedError(
            f"basis='preimage' needs an RBF kernel, got {name!r}. Use basis='greedy' or basis='auto'."
        )
    if names["weighting"] == "margin" and not _decides_by_sign(machine):
        raise ValueError(
            f"weighting='margin' needs one score whose sign decides; this machine has {machine.n_scores} score(s) and "
            f"its task is {machine.task}. Use weighting='uniform'."
        )
    for option, value in (("n_basis", n_basis), ("max_iter", max_iter)):
        check_whole(option, value, 1)
    if isinstance(ridge, bool) or not isinstance(ridge, Real) or not 0.0 <= float(ridge) < math.inf:
        raise ValueError(f"ridge is {ridge!r}; expected a finite number of at least 0.")
