"""Training the SVMs of neighbourhoods: widths, costs, the search for both, and the fits."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from svelto._progress import Tell, span
from svelto._typing import FloatArray, IntArray
from svelto.training._local.fits import LocalModels, fit_local
from svelto.training._local.options import LocalOptions, local_gamma
from svelto.training._local.search import best_of_grid, drawn_folds


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Training rows, class codes, weights and factors of classes (if any), and the width that neighbourhoods share."""

    X: FloatArray
    codes: IntArray
    weight: FloatArray | None
    factors: FloatArray | None
    gamma: float

    def rows(self, numbers: IntArray) -> TrainingData:
        """Some of the rows, with the width and the factors of all."""
        weight = None if self.weight is None else self.weight[numbers]
        return replace(self, X=self.X[numbers], codes=self.codes[numbers], weight=weight)

    def with_rows(self, X: FloatArray, codes: IntArray, weight: FloatArray | None) -> TrainingData:
        """These rows, and others behind them."""
        if weight is not None or self.weight is not None:
            old = np.ones(len(self.X)) if self.weight is None else self.weight
            weight = np.concatenate([old, np.ones(len(X)) if weight is None else weight])
        return replace(self, X=np.concatenate([self.X, X]), codes=np.concatenate([self.codes, codes]), weight=weight)


@dataclass(frozen=True, eq=False)
class TrainedSVMs:
    """The machines of neighbourhoods, and the cost and kernel width that each was trained with."""

    models: LocalModels
    cost: FloatArray
    gamma: FloatArray


class Trainer(Protocol):
    """Trains neighbourhoods of all rows; `train_here` does it on this machine."""

    def __call__(
        self, options: LocalOptions, data: TrainingData, neighbours: IntArray, folds: IntArray | None, tell: Tell
    ) -> TrainedSVMs: ...


def train_svms(
    options: LocalOptions,
    data: TrainingData,
    neighbours: IntArray,
    local_search: bool,
    draws: Any,
    tell: Tell,
    train: Trainer | None = None,
) -> TrainedSVMs:
    """Train an SVM on each neighbourhood.

    Parameters
    ----------
    options : LocalOptions
        How.
    data : TrainingData
        All rows.
    neighbours : ndarray of shape (n_neighbourhoods, k)
        Rows of each neighbourhood; there is at least one.
    local_search : bool
        Whether each chooses its own C and gamma.
    draws : RandomState
        Draws folds for that.
    tell : Tell
        Told how many are done. May raise to stop.
    train : Trainer, optional
        Who trains; this machine where not given.

    Returns
    -------
    TrainedSVMs
    """
    folds = drawn_folds(len(neighbours), neighbours.shape[1], draws) if local_search else None
    trained = (train or train_here)(options, data, neighbours, folds, tell)
    converged = trained.models.converged
    if not converged.all():
        limit = "LIBSVM's limit of steps" if options.max_iter < 0 else f"max_iter={options.max_iter}"
        warnings.warn(
            f"{int((~converged).sum())} of {len(converged)} local SVMs stopped at {limit}; scale the "
            "features, lower C, or change max_iter.",
            ConvergenceWarning,
            stacklevel=4,
        )
    return trained


def train_here(
    options: LocalOptions, data: TrainingData, neighbours: IntArray, folds: IntArray | None, tell: Tell
) -> TrainedSVMs:
    """Train each neighbourhood on this machine, after a search for its C and gamma where there are folds for it."""
    n, k = neighbours.shape
    start, rows = np.arange(n + 1, dtype=np.int64) * k, neighbours.ravel().astype(np.int64)
    gamma = local_gamma(options, data.X, start, rows, data.gamma)
    cost = np.full(n, options.C)
    given: dict[str, Any] = {
        "kernel": options.kernel,
        "sample_weight": data.weight,
        "class_weight": data.factors,
        "tol": options.tol,
        "max_iter": options.max_iter,
        "n_jobs": options.n_jobs,
    }
    problems = (data.X, data.codes, start, rows)
    if folds is not None:
        progress = counting(span(tell, 0.0, 0.8), "searched")
        cost, gamma = best_of_grid(problems, cost, gamma, folds.ravel(), progress, given)
        tell = span(tell, 0.8, 1.0)
    models = fit_local(*problems, C=cost, gamma=gamma, progress=counting(tell, "trained"), **given)
    return TrainedSVMs(models, cost, gamma)


def counting(tell: Tell, what: str) -> Callable[[int, int], None]:
    """Progress in numbers of models."""
    return lambda done, n: tell(f"{done:,} of {n:,} models {what}", done / max(n, 1))


def covering(tell: Tell) -> Callable[[int, int], None]:
    """Progress in numbers of rows."""
    return lambda done, n: tell(f"{done:,} of {n:,} rows covered", done / max(n, 1))
