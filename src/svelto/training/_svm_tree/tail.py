"""The machine that answers what the hyperplanes leave open (paper S2, section 3.3).

It learns from the whole training set: the rows that reach the end of the tree are few and all of them hard, and a
machine that knows nothing else overfits. `Tail` answers through svelto's exact engine, or through another method of
`svelto.accelerate`; an estimator that is no kernel machine answers for itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC
from sklearn.utils.validation import has_fit_parameter

from svelto._progress import Tell
from svelto._typing import FloatArray, IndexArray, Rows
from svelto.machine import KernelMachine
from svelto.scaling import Scaling
from svelto.training._svm_tree.rows import FeatureScale, TrainingRows, held_out_sample
from svelto.voting import ovr_decision

# What tail="rbf" chooses from, by cross-validation: costs, and factors on SVC's gamma="scale".
COSTS: Final = (1.0, 10.0, 100.0)
GAMMA_FACTORS: Final = (0.25, 1.0, 4.0)
# Rows the choice is made on at most; a machine of all rows would be trained dozens of times.
CHOICE_ROWS: Final = 3000
# Rows of each class that show what kind of estimator a tail is.
FEW_ROWS: Final = 20


@dataclass(frozen=True)
class Tail:
    """A fitted estimator on scaled rows whose labels are class numbers, and what answers for it.

    Attributes
    ----------
    estimator : object
        The fitted estimator.
    answers : Predictor or the estimator itself
        What is asked.
    scale : FeatureScale or None
        How rows are scaled before they are asked about; None where they need not be, because `answers` does it.
    n_classes : int
        Number of classes.
    """

    estimator: Any
    answers: Any
    scale: FeatureScale | None
    n_classes: int

    def labels(self, X: Rows, n_jobs: int | None = None) -> IndexArray:
        """Class number of each row."""
        return np.asarray(self._for(n_jobs).predict(self._rows(X))).astype(np.intp)

    def decision(self, X: Rows, n_jobs: int | None = None) -> FloatArray | None:
        """Scores of each class, (n, n_classes), for two classes (n, 1); None for an estimator that has none."""
        answers = self._for(n_jobs)
        if not hasattr(answers, "decision_function"):
            return None
        scores = np.asarray(answers.decision_function(self._rows(X)), dtype=np.float64)
        scores = scores.reshape(X.shape[0], -1)
        machine = getattr(answers, "machine", answers)
        if self.n_classes > 2 and getattr(machine, "decision_function_shape", "ovr") == "ovo":
            return ovr_decision(scores, self.n_classes)
        return scores if scores.shape[1] == (1 if self.n_classes == 2 else self.n_classes) else None

    def probabilities(self, X: Rows, n_jobs: int | None = None) -> FloatArray | None:
        """The estimator's own probabilities; None where it has none."""
        answers = self._for(n_jobs)
        if not hasattr(answers, "predict_proba"):
            return None
        return np.asarray(answers.predict_proba(self._rows(X)), dtype=np.float64)

    def _rows(self, X: Rows) -> Rows:
        if self.scale is None:
            return X
        return self.scale.apply(np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64))

    def _for(self, n_jobs: int | None) -> Any:
        """What answers, with the threads of this call."""
        if getattr(self.answers, "n_jobs", n_jobs) == n_jobs or self.answers is self.estimator:
            return self.answers
        answers = copy(self.answers)
        answers.n_jobs = n_jobs
        return answers

    @property
    def n_jobs(self) -> int | None:
        """Threads it was made for."""
        return getattr(self.answers, "n_jobs", None)

    @property
    def n_support(self) -> int:
        """Kernel values a row costs; 0 for an estimator that is no kernel machine."""
        machine = getattr(self.answers, "machine", None)
        return 0 if machine is None else int(machine.dual_coef.shape[1])


def train_tail(
    estimator: Any,
    rows: TrainingRows,
    n_classes: int,
    n_jobs: int | None,
    method: str = "exact",
    options: Mapping[str, Any] | None = None,
    asked_about: tuple[FloatArray, FeatureScale] | None = None,
) -> Tail:
    """Fit a clone of the estimator and get it ready to answer.

    Parameters
    ----------
    estimator : estimator
        Unfitted.
    rows : TrainingRows
        Scaled rows; labels are class numbers.
    n_classes : int
        Number of classes.
    n_jobs : int or None
        Threads of its answers.
    method, options : str, mapping
        For `svelto.accelerate`.
    asked_about : tuple of ndarray and FeatureScale, optional
        The rows before they were scaled, and their scale, where the tail is asked about rows that are not scaled.

    Returns
    -------
    Tail
    """
    fitted = fit_weighted(clone(estimator), rows)
    unscaled, scale = (rows.X, None) if asked_about is None else asked_about
    machine = _machine(fitted)
    if machine is None:
        _check_defaults(fitted, method, options)
        return Tail(fitted, fitted, scale, n_classes)
    if scale is not None and machine.scaling is None and not machine.front and machine.kernel.has_native_code:
        machine, scale = replace(machine, scaling=Scaling("divide", scale.shift, scale.factor)), None
    from svelto.accelerate import accelerate

    known = rows.X if scale is not None else unscaled
    answers = accelerate(machine, None if method == "exact" else known, method=method, n_jobs=n_jobs, **(options or {}))
    return Tail(fitted, answers, scale, n_classes)


def check_tail_method(estimator: Any, rows: TrainingRows, method: str, options: Mapping[str, Any] | None) -> None:
    """Say before a long training that a method cannot serve this kind of tail; a few rows show what kind it is."""
    if method == "exact" and not options:
        return
    few = np.concatenate([np.flatnonzero(rows.y == label)[:FEW_ROWS] for label in np.unique(rows.y)])
    fitted = fit_weighted(clone(estimator), rows.part(np.sort(few)))
    if _machine(fitted) is None:
        _check_defaults(fitted, method, options)


def _check_defaults(fitted: Any, method: str, options: Mapping[str, Any] | None) -> None:
    if method != "exact" or options:
        raise ValueError(
            f"tail_method is {method!r} with tail_options {dict(options or {})!r}, but the tail "
            f"{type(fitted).__name__} is no kernel machine that svelto reads. Leave both at their defaults."
        )


def fit_weighted(estimator: Any, rows: TrainingRows) -> Any:
    """Fit with weights; an estimator that takes none gets rows of whole weight several times."""
    weight = rows.weight
    if (weight == 1.0).all():
        return estimator.fit(rows.X, rows.y)
    if has_fit_parameter(estimator, "sample_weight"):
        return estimator.fit(rows.X, rows.y, sample_weight=weight)
    if isinstance(estimator, Pipeline) and has_fit_parameter(estimator[-1], "sample_weight"):
        return estimator.fit(rows.X, rows.y, **{f"{estimator.steps[-1][0]}__sample_weight": weight})
    times = np.rint(weight).astype(np.intp)
    if not np.array_equal(times, weight):
        raise ValueError(
            f"The tail {type(estimator).__name__} takes no sample_weight, and the rows have weights such as "
            f"{weight[times != weight][0]:.3g} (of sample_weight and class_weight together). Use a tail whose fit "
            "takes sample_weight, or train without weights."
        )
    return estimator.fit(np.repeat(rows.X, times, axis=0), np.repeat(rows.y, times))


def _machine(fitted: Any) -> KernelMachine | None:
    """The kernel machine behind an estimator; None where svelto reads none."""
    try:
        return KernelMachine.from_sklearn(fitted)
    except (TypeError, ValueError):
        return None


def choose_rbf(rows: TrainingRows, n_folds: int, random_state: Any, progress: Tell, n_jobs: int | None) -> SVC:
    """The RBF machine with the fewest errors on held-out rows; among equals the smoothest.

    Parameters
    ----------
    rows : TrainingRows
        Scaled rows.
    n_folds : int
        Folds of the cross-validation.
    random_state : RandomState
        Draws folds, and the rows that the choice is made on, if there are many.
    progress : callable
        Told what is being tried. May raise to stop.
    n_jobs : int or None
        Threads for asking the machines.

    Returns
    -------
    SVC
        Unfitted.
    """
    mean = np.average(rows.X, axis=0, weights=rows.weight)
    variance = float(np.average(((rows.X - mean) ** 2).sum(axis=1), weights=rows.weight))
    scale = 1.0 / variance if variance > 0 else 1.0  # of all features together
    best = SVC(C=COSTS[0], gamma=scale)
    rows, folds = held_out_sample(rows, CHOICE_ROWS, n_folds, random_state)
    least = np.inf
    grid = list(itertools.product(COSTS, GAMMA_FACTORS))
    for tried, (cost, factor) in enumerate(grid):
        progress(f"choosing the tail, C={cost:g}, gamma={factor * scale:.3g}", tried / len(grid))
        machine = SVC(C=cost, gamma=factor * scale)
        wrong = _held_out_errors(machine, rows, folds, n_jobs)
        if wrong < least:
            best, least = machine, wrong
    return best


def _held_out_errors(machine: SVC, rows: TrainingRows, folds: IndexArray, n_jobs: int | None) -> float:
    from svelto.accelerate import accelerate

    wrong = 0.0
    for fold in range(int(folds.max(initial=-1)) + 1):
        held = folds == fold
        if not held.any() or len(np.unique(rows.y[~held])) < 2:
            continue
        fitted = fit_weighted(clone(machine), rows.part(~held))
        answers = accelerate(fitted, method="exact", n_jobs=n_jobs).predict(rows.X[held])
        wrong += float(rows.weight[held][answers != rows.y[held]].sum())
    return wrong
