"""ExponentialSVC: a support vector classifier with the kernel exp(-gamma ||x - s||).

LIBSVM has no such kernel. `fit` computes kernel values and lets LIBSVM solve the problem of each pair of classes
(`_pairs.py`); `predict` asks svelto's exact engine. What is learned is what ``SVC(kernel="precomputed")`` learns from
the Gram matrix of all rows.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from svelto._options import check_choice, check_positive, check_whole
from svelto._threads import check_n_jobs, thread_count
from svelto._typing import FloatArray, IndexArray, Rows
from svelto.training._pairs import PairProblem, train_pairs

if TYPE_CHECKING:
    from svelto.predictor import Predictor

# From this share of non-zeros on, distances of dense rows are faster than products of sparse ones.
DENSE_FROM: Final = 0.25
GIB: Final = 2**30


class ExponentialSVC(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Support vector classifier with the exponential kernel exp(-gamma ||x - s||).

    The kernel of the distance itself, not of its square as in "rbf": it has a kink at every support vector and falls
    off more slowly. Parameters, attributes, layout and signs are those of `sklearn.svm.SVC`, and the machine is the
    one that ``SVC(kernel="precomputed")`` learns from the Gram matrix of all rows. Classes are trained in pairs, so
    memory grows with the square of the two largest classes, not of all rows; time does as for any SVC. With tens of
    thousands of rows in one class, train on a part of them.

    Predictions are exact: `predict` gives the labels of the float64 machine. `svelto.accelerate` reads a fitted
    ExponentialSVC like any other kernel machine.

    Parameters
    ----------
    C : float, default=1.0
        Penalty of the slack; smaller means smoother.
    gamma : {"scale", "auto"} or float, default="scale"
        "scale": ``1 / sqrt(n_features * X.var())``, one over a typical distance between rows (SVC's "scale" is the
        square of it, as its kernel takes the square of the distance). "auto": ``1 / n_features``. A number is written
        1 / (2 sigma^2) in places.
    tol : float, default=1e-3
        Where the solver stops.
    class_weight : dict, "balanced" or None
        Factor on C for each class; "balanced" counts the rows of each class in y.
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        One column for each class, or for each pair of classes.
    break_ties : bool, default=False
        Whether equal votes are decided by the "ovr" scores.
    max_iter : int, default=-1
        Steps of the solver for each pair of classes; -1 means no limit.
    max_bytes : int, default=4 GiB
        Memory that Gram matrices may take, all threads together; LIBSVM's cache of up to 200 MB a thread comes on
        top. Fewer pairs are trained at once to stay below it; a pair that does not fit alone is an error.
    n_jobs : int, optional
        Threads, for training and for prediction; None uses every thread that OpenMP's limits allow.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Sorted class labels.
    support_ : ndarray of shape (n_sv,)
        Row numbers of the support vectors, class by class. ``X[support_]`` are the support vectors also where rows
        have weight zero; SVC does not count such rows.
    support_vectors_ : ndarray or sparse matrix of shape (n_sv, n_features)
        The support vectors.
    n_support_ : ndarray of shape (n_classes,)
        How many of them each class has.
    dual_coef_ : ndarray of shape (n_classes - 1, n_sv)
        Coefficients of the support vectors; see scikit-learn's guide to SVC for the layout.
    intercept_ : ndarray of shape (n_classes * (n_classes - 1) / 2,)
        One constant for each pair of classes.
    gamma_ : float
        The number that `gamma` stands for.
    class_weight_ : ndarray of shape (n_classes,)
        The factors that `class_weight` stands for.
    fit_status_ : int
        0 if the solver reached `tol` for every pair, 1 if `max_iter` stopped it.
    n_iter_ : ndarray of shape (n_classes * (n_classes - 1) / 2,)
        Steps of the solver for each pair.
    n_features_in_ : int
        Width of a row.
    feature_names_in_ : ndarray of shape (n_features,)
        Column names of X, where it had any.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import svelto
    >>> X, y = load_iris(return_X_y=True)
    >>> model = svelto.ExponentialSVC(C=10.0).fit(X, y)
    >>> model.predict(X[:3])
    array([0, 0, 0])
    >>> fast = svelto.accelerate(model, method="exact")
    >>> bool((fast.predict(X) == model.predict(X)).all())
    True
    """

    def __init__(
        self,
        *,
        C: float = 1.0,
        gamma: str | float = "scale",
        tol: float = 1e-3,
        class_weight: Any = None,
        decision_function_shape: str = "ovr",
        break_ties: bool = False,
        max_iter: int = -1,
        max_bytes: int = 4 * GIB,
        n_jobs: int | None = None,
    ) -> None:
        self.C = C
        self.gamma = gamma
        self.tol = tol
        self.class_weight = class_weight
        self.decision_function_shape = decision_function_shape
        self.break_ties = break_ties
        self.max_iter = max_iter
        self.max_bytes = max_bytes
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ExponentialSVC:
        """Learn from rows and their labels.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows, finite.
        y : array-like of shape (n_samples,)
            A label for each row; at least two different ones.
        sample_weight : array-like of shape (n_samples,), optional
            Factor on C for each row; rows of weight zero or less are left out, as by SVC.

        Returns
        -------
        ExponentialSVC
            Itself.
        """
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype=np.float64, order="C", accept_sparse="csr")
        check_classification_targets(y)
        classes, numbers = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y holds {len(classes)} class ({classes.tolist()[0]!r}); expected at least two classes.")
        class_weight = compute_class_weight(self.class_weight, classes=classes, y=y)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=np.float64)
        used = np.ones(len(y), dtype=bool) if weights is None else weights > 0
        groups = [np.flatnonzero((numbers == k) & used) for k in range(len(classes))]
        _check_weights(classes, class_weight, groups)
        n_threads = min(thread_count(self.n_jobs), self._pairs_in_memory(classes, groups))

        if sparse.issparse(X) and not X.has_canonical_format:
            X = X.copy()  # the caller's own, maybe
            X.sum_duplicates()
        gamma = gamma_value(self.gamma, X)
        is_thin = sparse.issparse(X) and X.nnz < DENSE_FROM * X.shape[0] * X.shape[1]
        rows = X.toarray() if sparse.issparse(X) and not is_thin else X
        problem = PairProblem(rows, weights, class_weight, gamma, float(self.C), float(self.tol), int(self.max_iter))
        layout = train_pairs(problem, groups, n_threads)
        if len(layout.support) == 0:
            raise ValueError(
                f"The {type(self).__name__} has no support vectors: training stopped before its first step "
                f"(tol={self.tol}, max_iter={self.max_iter}). Fit it again with a smaller tol or more iterations."
            )
        if layout.status:
            warnings.warn(
                f"Training stopped early (max_iter={self.max_iter}) for at least one pair of classes. Scale the "
                "features with StandardScaler or MinMaxScaler, or allow more iterations.",
                ConvergenceWarning,
                stacklevel=2,
            )

        sign = -1.0 if len(classes) == 2 else 1.0  # scikit-learn's: positive towards the second of two classes
        self.classes_, self.class_weight_, self.gamma_ = classes, class_weight, gamma
        self.support_, self.support_vectors_, self.n_support_ = (
            layout.support,
            X[layout.support],
            layout.n_support,
        )
        self.dual_coef_, self.intercept_ = sign * layout.dual_coef, sign * layout.intercept
        self.fit_status_, self.n_iter_ = layout.status, layout.n_iter
        self._predictors: dict[Any, Predictor] = {}
        return self

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        """Class labels: those of the float64 machine.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to label.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        predictor, rows = self._ready(X)
        labels: np.ndarray[Any, Any] = predictor.predict(rows)
        return labels

    def decision_function(self, X: Any) -> FloatArray:
        """Scores: one a row, positive towards ``classes_[1]``, or one for each class or pair of classes.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to score.

        Returns
        -------
        ndarray of shape (n_samples,), (n_samples, n_classes) or (n_samples, n_classes * (n_classes - 1) / 2)
        """
        predictor, rows = self._ready(X)
        scores: FloatArray = predictor.decision_function(rows)
        return scores

    # -- parts -----------------------------------------------------------------------------------------------

    def _ready(self, X: Any) -> tuple[Predictor, Rows]:
        """The exact predictor, built at the first use and for the present parameters, and checked rows."""
        from svelto.accelerate import accelerate

        check_is_fitted(self)
        rows = validate_data(self, X, dtype=(np.float64, np.float32), accept_sparse="csr", reset=False)
        key = (self.decision_function_shape, self.break_ties, self.n_jobs)
        if key not in self._predictors:
            self._predictors[key] = accelerate(self, method="exact", precision="float64", n_jobs=self.n_jobs)
        return self._predictors[key], rows

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return state | {"_predictors": {}} if "_predictors" in state else state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_parameters(self) -> None:
        for name in ("C", "tol"):
            check_positive(name, getattr(self, name))
        is_number = isinstance(self.gamma, Real) and not isinstance(self.gamma, bool)
        if not (0 <= self.gamma < np.inf if is_number else self.gamma in ("scale", "auto")):  # type: ignore[operator]
            raise ValueError(f"gamma is {self.gamma!r}; expected 'scale', 'auto' or a number >= 0.")
        check_choice("decision_function_shape", self.decision_function_shape, ("ovr", "ovo"))
        if not isinstance(self.break_ties, bool | np.bool_):
            raise ValueError(f"break_ties is {self.break_ties!r}; expected True or False.")
        if self.break_ties and self.decision_function_shape == "ovo":
            raise ValueError(
                "break_ties is True with decision_function_shape='ovo'; ties are broken in shape 'ovr' only."
            )
        if self.max_iter != -1:
            check_whole("max_iter", self.max_iter, 1, ", or -1 for no limit")
        check_whole("max_bytes", self.max_bytes, 1)
        check_n_jobs(self.n_jobs)

    def _pairs_in_memory(self, classes: np.ndarray[Any, Any], groups: Sequence[IndexArray]) -> int:
        """How many Gram matrices fit into `max_bytes` at once."""
        sizes = np.array([len(rows) for rows in groups])
        i, j = np.sort(np.argsort(sizes, kind="stable")[-2:])
        n_rows = int(sizes[i] + sizes[j])
        n_bytes = 8 * n_rows**2
        if n_bytes > self.max_bytes:
            names = classes.tolist()
            raise ValueError(
                f"Classes {names[i]!r} and {names[j]!r} have {n_rows:,} rows together; their Gram matrix takes "
                f"{n_bytes / GIB:.3g} GiB, more than max_bytes ({self.max_bytes / GIB:.3g} GiB). Raise max_bytes "
                "where memory allows, or train on fewer rows of these classes."
            )
        return int(self.max_bytes // n_bytes)


def gamma_value(gamma: str | float, X: Rows) -> float:
    """The number behind "scale", "auto" or a number."""
    if not isinstance(gamma, str):
        return float(gamma)
    if gamma == "auto":
        return 1.0 / int(X.shape[1])
    with np.errstate(over="ignore"):  # said in words below
        variance = _variance(X)
    if not np.isfinite(variance):
        raise ValueError("gamma='scale' needs the variance of X, which overflows; scale the features first.")
    return 1.0 / math.sqrt(int(X.shape[1]) * variance) if variance > 0 else 1.0


def _variance(X: Rows) -> float:
    """Variance of all numbers of X, zeros of a sparse matrix included."""
    if not sparse.issparse(X):
        return float(X.var())
    n_values = X.shape[0] * X.shape[1]
    mean = X.data.sum() / n_values
    return float((((X.data - mean) ** 2).sum() + (n_values - X.nnz) * mean**2) / n_values)


def _check_weights(classes: np.ndarray[Any, Any], class_weight: FloatArray, groups: Sequence[IndexArray]) -> None:
    for label, weight, rows in zip(classes.tolist(), class_weight.tolist(), groups, strict=True):
        if not 0.0 < weight < np.inf:
            raise ValueError(f"class_weight is {weight} for class {label!r}; expected a positive number.")
        if len(rows) == 0:
            raise ValueError(
                f"No row of class {label!r} has a positive sample_weight; leave these rows out, or give them weight."
            )
