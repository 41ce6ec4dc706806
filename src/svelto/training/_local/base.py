"""What LocalSVC and KNNSVC have in common: rows in, scores of classes out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from svelto._collections import gathered, is_dask, map_rows, spread_rows
from svelto._crew import DaskCrew, find_crew
from svelto._typing import FloatArray, IntArray

# CSR rows are made dense; more than this would be no use to anybody.
MOST_DENSE_BYTES: Final = 16e9
# Parameters of a machine that is trained on the way to another: no probabilities; features are weighed
# already, and factors of classes are given.
PLAIN: Final = {"probability": False, "metric": "euclidean", "class_weight": None}


class LocalClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Labels from scores; rows and labels as scikit-learn checks them."""

    classes_: np.ndarray[Any, Any]
    n_features_in_: int

    def _weighted_rows(
        self, X: Any, y: Any, sample_weight: Any, *, reset: bool = True, client: Any = None
    ) -> tuple[FloatArray, np.ndarray[Any, Any], FloatArray | None]:
        """Rows, labels and weights, those of weight zero left out; copies, for they are kept."""
        X, y, sample_weight = gathered(X, y, sample_weight, client=client)
        X, y = validate_data(self, X, y, dtype=np.float64, order="C", accept_sparse="csr", copy=True, reset=reset)
        check_classification_targets(y)
        rows = _dense(X)
        if sample_weight is None:
            return rows, y, None
        weight = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
        counts = weight > 0.0
        if not counts.any():
            raise ValueError("All weights are zero; expected a row with a positive weight.")
        return rows[counts], y[counts], weight[counts]

    @contextmanager
    def _unchanged_on_failure(self) -> Iterator[None]:
        """Put back what scikit-learn notes about the rows, where training ends early."""
        names = ("n_features_in_", "feature_names_in_")
        before = {name: self.__dict__[name] for name in names if name in self.__dict__}
        try:
            yield
        except BaseException:
            for name in names:
                self.__dict__.pop(name, None)
            self.__dict__.update(before)
            raise

    def _queries(self, X: Any) -> FloatArray:
        check_is_fitted(self, "classes_")
        return _dense(validate_data(self, X, dtype=np.float64, order="C", accept_sparse="csr", reset=False))

    def _scores(self, X: FloatArray) -> FloatArray:
        """(n_rows, 1) for two classes, else (n_rows, n_classes)."""
        raise NotImplementedError

    def _asked_elsewhere(self, method: str, X: Any, client: Any) -> Any:
        """Answers that workers give: for Dask collections, or where there is a client; otherwise None."""
        crew = find_crew(client)
        if is_dask(X):
            return map_rows(self, method, X, client)
        if not isinstance(crew, DaskCrew):
            return None
        check_is_fitted(self, "classes_")
        rows = validate_data(self, X, dtype=np.float64, order="C", accept_sparse="csr", reset=False)
        return spread_rows(self, method, rows, crew)

    def decision_function(self, X: Any, *, client: Any = None) -> Any:
        """Scores: one a row, positive towards ``classes_[1]``, or one for each class; the label's is the largest.

        Parameters
        ----------
        X : array-like, sparse matrix or Dask collection of shape (n_samples, n_features)
            Rows to score.
        client : dask.distributed.Client, optional
            Whose workers score them.

        Returns
        -------
        ndarray (or Dask array, for a Dask collection) of shape (n_samples,) or (n_samples, n_classes)
            Two classes: the value of the local SVM, 1 or -1 where its neighbourhood has one class. More: votes of the
            pairs, and a squashed sum of their values that decides between equal votes, as SVC's. Values of different
            neighbourhoods are in units of their own margins.
        """
        elsewhere = self._asked_elsewhere("decision_function", X, client)
        if elsewhere is not None:
            return elsewhere
        scores = self._scores(self._queries(X))
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any, *, client: Any = None) -> Any:
        """Class labels.

        Parameters
        ----------
        X : array-like, sparse matrix or Dask collection of shape (n_samples, n_features)
            Rows to label.
        client : dask.distributed.Client, optional
            Whose workers label them.

        Returns
        -------
        ndarray (or Dask array, for a Dask collection) of shape (n_samples,)
        """
        elsewhere = self._asked_elsewhere("predict", X, client)
        if elsewhere is not None:
            return elsewhere
        codes = codes_of(self._scores(self._queries(X)))
        return self.classes_.take(codes)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def codes_of(scores: FloatArray) -> IntArray:
    """The class that scores speak for."""
    if scores.shape[1] == 1:
        return (scores[:, 0] > 0.0).astype(np.int32)
    codes: IntArray = scores.argmax(axis=1).astype(np.int32)
    return codes


def coded(y: np.ndarray[Any, Any], classes: Any = None) -> tuple[np.ndarray[Any, Any], IntArray]:
    """Classes, ascending, and the number of each label among them."""
    known = np.unique(y if classes is None else np.asarray(classes))
    if len(known) < 2:
        name, shown = "y" if classes is None else "classes", "".join(f" ({label!r})" for label in known.tolist())
        raise ValueError(f"{name} holds {len(known)} class{shown}; expected at least two classes.")
    codes = np.searchsorted(known, y)
    codes[codes == len(known)] = 0
    strange = known[codes] != y
    if strange.any():
        raise ValueError(f"y holds {y[strange].tolist()[0]!r}, which is not among the classes {known.tolist()}.")
    return known, codes.astype(np.int32)


def _dense(X: Any) -> FloatArray:
    if not sparse.issparse(X):
        return np.asarray(X)
    if 8.0 * X.shape[0] * X.shape[1] > MOST_DENSE_BYTES:
        raise ValueError(
            f"X is sparse with shape {X.shape}; neighbourhoods need dense rows, and these would take "
            f"{8e-9 * X.shape[0] * X.shape[1]:.0f} GB. Reduce the features first, e.g. by TruncatedSVD."
        )
    return np.asarray(X.toarray(), dtype=np.float64)


def counted(
    X: FloatArray, codes: IntArray, weight: FloatArray | None, factors: FloatArray | None, *, first: bool = True
) -> tuple[FloatArray, IntArray, FloatArray | None]:
    """Rows, codes and weights without those whose class has the factor zero; of the first rows two classes stay."""
    if factors is None:
        return X, codes, weight
    with np.errstate(over="ignore"):
        product = factors[codes] if weight is None else factors[codes] * weight
    if not np.isfinite(product).all() or (product < 0.0).any():
        raise ValueError("class_weight times sample_weight is negative or not finite; expected numbers of at least 0.")
    keep = product > 0.0
    if first and len(np.unique(codes[keep])) < min(2, len(np.unique(codes))):
        raise ValueError("class_weight leaves rows of one class alone; give two classes a positive weight.")
    return (X, codes, weight) if keep.all() else (X[keep], codes[keep], None if weight is None else weight[keep])
