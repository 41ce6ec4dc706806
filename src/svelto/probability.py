"""Class probabilities from scores: LIBSVM's pairwise sigmoids, and scikit-learn's calibrators.

`PlattPairs` holds LIBSVM's `probA`, `probB` (one sigmoid for each pair of classes, coupled by Wu, Lin and Weng's second
method). `Calibration` holds what `CalibratedClassifierCV(ensemble=False)` learned: one calibrator for each column of
the decision function, whose outputs are normalised. `one_class_probability` is LIBSVM's density estimate for outliers.

All take float64 scores and never change them; all hold nothing but numbers, so that they can be written to a file.
Operations and their order are those of LIBSVM and scikit-learn; only the last bit of `exp` can differ from LIBSVM's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from scipy.special import expit

from svelto._typing import FloatArray
from svelto.voting import pairs

# LIBSVM keeps pair probabilities away from 0 and 1, where the coupling would divide by zero.
_MIN_PROBABILITY: Final = 1e-7
# Entries of the coupling's matrices held at once (32 MiB); many classes would otherwise need n_samples * n_classes^2.
_BLOCK_ENTRIES: Final = 1 << 22


@dataclass(frozen=True, eq=False)
class PlattPairs:
    """LIBSVM's `probA` and `probB`, one of each for every pair of classes, in vote order.

    Attributes
    ----------
    a, b : ndarray of shape (n_pairs,)
        Pair (i, j) with score s prefers i with probability ``1 / (1 + exp(a s + b))``.
    iterate_two : bool
        Whether two classes go through the coupling's iteration, which stops within 0.0025 of the answer, as in
        scikit-learn's copy of LIBSVM. LIBSVM itself (measured: 3.24) gives the sigmoid's value as it is.
    """

    a: FloatArray
    b: FloatArray
    iterate_two: bool = False

    def __post_init__(self) -> None:
        for name in ("a", "b"):
            array = np.array(getattr(self, name), dtype=np.float64, ndmin=1)
            if not np.isfinite(array).all():
                raise ValueError(
                    f"prob{name.upper()} contains {array[~np.isfinite(array)][0]}; expected finite numbers. "
                    "Train the model again."
                )
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        if self.a.shape != self.b.shape:
            raise ValueError(f"probA has {len(self.a)} values and probB {len(self.b)}; expected as many.")

    def probabilities(self, pair_scores: FloatArray, n_classes: int) -> FloatArray:
        """Probability of every class, columns in vote order.

        Parameters
        ----------
        pair_scores : ndarray of shape (n_samples, n_pairs)
            In vote order with LIBSVM's sign.
        n_classes : int
            Number of classes.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        n_pairs = n_classes * (n_classes - 1) // 2
        if len(self.a) != n_pairs or pair_scores.shape[1] != n_pairs:
            raise ValueError(
                f"{n_classes} classes need {n_pairs} pairs; "
                f"there are {len(self.a)} sigmoids and {pair_scores.shape[1]} scores."
            )
        step = max(1, _BLOCK_ENTRIES // n_classes**2)
        blocks = [self._block(pair_scores[i : i + step], n_classes) for i in range(0, len(pair_scores), step)]
        return np.concatenate(blocks) if blocks else np.empty((0, n_classes))

    def _block(self, pair_scores: FloatArray, n_classes: int) -> FloatArray:
        prefers = np.zeros((len(pair_scores), n_classes, n_classes))
        chance = np.clip(_falling_sigmoid(pair_scores * self.a + self.b), _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
        for column, (i, j) in enumerate(pairs(n_classes)):
            prefers[:, i, j] = chance[:, column]
            prefers[:, j, i] = 1 - chance[:, column]
        if n_classes == 2 and not self.iterate_two:
            return np.column_stack([prefers[:, 0, 1], prefers[:, 1, 0]])
        return _couple(prefers)


def _falling_sigmoid(t: FloatArray) -> FloatArray:
    """``1 / (1 + exp(t))`` without overflow, in LIBSVM's two forms (both are needed for equal bits)."""
    small = np.exp(-np.abs(t))
    return np.where(t >= 0, small, 1.0) / (1.0 + small)


def _couple(prefers: FloatArray) -> FloatArray:
    """Wu, Lin and Weng's second method: class probabilities p that minimise p' Q p, by LIBSVM's iteration.

    ``prefers[:, i, j]`` is the probability of i against j; the diagonal is zero. Every row stops by itself, at the
    step where LIBSVM stops, so a row's answer does not depend on its neighbours.
    """
    n_rows, k, _ = prefers.shape
    Q = -prefers * prefers.transpose(0, 2, 1)
    diagonal = np.zeros((n_rows, k))
    for j in range(k):  # sums run in LIBSVM's order: one term after the other
        diagonal += prefers[:, j, :] ** 2
    Q[:, np.arange(k), np.arange(k)] = diagonal

    result = np.empty((n_rows, k))
    p = np.full((n_rows, k), 1.0 / k)
    rows = np.arange(n_rows)
    for _ in range(max(100, k)):
        Qp, pQp = np.zeros_like(p), np.zeros(len(p))
        for j in range(k):
            Qp += Q[:, :, j] * p[:, j, None]
        for t in range(k):
            pQp += p[:, t] * Qp[:, t]
        unsettled = np.abs(Qp - pQp[:, None]).max(axis=1) >= 0.005 / k
        if not unsettled.all():
            result[rows[~unsettled]] = p[~unsettled]
            rows, p, Q, Qp, pQp = rows[unsettled], p[unsettled], Q[unsettled], Qp[unsettled], pQp[unsettled]
            if len(rows) == 0:
                return result
        for t in range(k):
            diff = (pQp - Qp[:, t]) / Q[:, t, t]
            p[:, t] += diff
            pQp = (pQp + diff * (diff * Q[:, t, t] + 2 * Qp[:, t])) / (1 + diff) / (1 + diff)
            Qp = (Qp + diff[:, None] * Q[:, t, :]) / (1 + diff)[:, None]
            p /= (1 + diff)[:, None]
    result[rows] = p  # LIBSVM too keeps what it has after its last step
    return result


def one_class_probability(scores: FloatArray, marks: FloatArray) -> FloatArray:
    """LIBSVM's probability that a row is normal (no outlier), from its one-class score.

    `marks` are the model file's `prob_density_marks` (newer LIBSVM only): rising scores that cut the training rows'
    scores into steps of one tenth. A score equal to the last mark falls through LIBSVM's comparisons and gets 0; that
    is repeated here.
    """
    n_marks = len(marks)
    steps = np.append(np.arange(n_marks) / n_marks, 0.0)
    steps[0] = 0.001
    result: FloatArray = steps[np.searchsorted(marks, scores, side="right")]
    result[scores > marks[-1]] = 0.999
    return result


# -- scikit-learn's calibrators ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sigmoid:
    """Platt's sigmoid: ``1 / (1 + exp(a t + b))``."""

    a: float
    b: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.a) and math.isfinite(self.b)):
            raise ValueError(f"The sigmoid calibrator has a={self.a}, b={self.b}; expected finite numbers.")

    def __call__(self, t: FloatArray) -> FloatArray:
        """Probability for each value of one column of the decision function."""
        return np.asarray(expit(-(self.a * t + self.b)), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Isotonic:
    """Isotonic regression: straight lines between the points (x, y), constant outside."""

    x: FloatArray
    y: FloatArray

    def __post_init__(self) -> None:
        for name in ("x", "y"):
            array = np.array(getattr(self, name), dtype=np.float64, ndmin=1)
            if not np.isfinite(array).all():
                raise ValueError(f"The isotonic calibrator has {name} = {array[~np.isfinite(array)][0]}.")
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        if self.x.shape != self.y.shape or len(self.x) == 0 or (np.diff(self.x) < 0).any():
            raise ValueError(
                f"The isotonic calibrator has {len(self.x)} x and {len(self.y)} y; expected as many, at least one, "
                "and x in rising order."
            )

    def __call__(self, t: FloatArray) -> FloatArray:
        """Probability for each value of one column of the decision function."""
        return np.interp(t, self.x, self.y)


@dataclass(frozen=True)
class Temperature:
    """Temperature scaling: softmax of `beta` times the decision function."""

    beta: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.beta):
            raise ValueError(f"The temperature calibrator has beta={self.beta}; expected a finite number.")

    def softmax(self, decision: FloatArray) -> FloatArray:
        """Probability of every class; a single column t stands for the two columns (-t, t)."""
        logits = np.concatenate([-decision, decision], axis=1) if decision.shape[1] == 1 else decision
        logits = self.beta * logits
        logits -= logits.max(axis=1, keepdims=True)
        powers: FloatArray = np.exp(logits)
        powers /= powers.sum(axis=1, keepdims=True)
        return powers


Calibrator: TypeAlias = Sigmoid | Isotonic | Temperature


@dataclass(frozen=True, eq=False)
class Calibration:
    """What `CalibratedClassifierCV(ensemble=False)` learned: its calibrators, applied to the decision function.

    The labels of a calibrated classifier are those of the largest probability, *not* those of the vote or the sign.

    Attributes
    ----------
    method : {"sigmoid", "isotonic", "temperature"}
        What kind of calibrator.
    calibrators : tuple
        One for two classes or "temperature", else one for each class.
    """

    method: str
    calibrators: tuple[Calibrator, ...]

    def probabilities(self, decision: FloatArray, n_classes: int) -> FloatArray:
        """Probability of every class, columns in the order of the sorted classes.

        Parameters
        ----------
        decision : ndarray of shape (n_samples,) or (n_samples, n_columns)
            scikit-learn's ``decision_function``: for two classes positive towards the second.
        n_classes : int
            Number of classes.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        columns = decision.reshape(len(decision), -1)
        first: Any = self.calibrators[0]
        if isinstance(first, Temperature):
            proba = first.softmax(columns)
        elif n_classes == 2:
            positive = first(columns[:, 0])
            proba = np.column_stack([1.0 - positive, positive])
        else:
            raw = np.zeros((len(columns), n_classes))
            for i, calibrator in enumerate(self.calibrators):
                assert not isinstance(calibrator, Temperature)
                raw[:, i] = calibrator(columns[:, i])
            total = raw.sum(axis=1, keepdims=True)
            # Every calibrator may answer 0: then all classes are equally likely, as in scikit-learn.
            proba = np.divide(raw, total, out=np.full_like(raw, 1 / n_classes), where=total != 0)
        proba[(proba > 1.0) & (proba <= 1.0 + 1e-5)] = 1.0
        return proba
