"""The lazy local SVM (kNNSVM): an SVM on the neighbours of each query, trained when it is asked."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from svelto._options import check_whole
from svelto._progress import bar
from svelto._typing import FloatArray
from svelto.training._local.base import LocalClassifier, coded, counted
from svelto.training._local.machines import LocalMachines
from svelto.training._local.neighbours import NeighbourIndex
from svelto.training._local.options import (
    LocalOptions,
    checked_options,
    class_factors,
    clipped_k,
    global_gamma,
    kernel_of,
)
from svelto.training._local.train import TrainingData, train_svms

# Neighbours that are held at once.
BLOCK_NEIGHBOURS: Final = 4_000_000


class KNNSVC(LocalClassifier):
    """An SVM on the k nearest training rows of each query.

    Nothing is trained before `predict`, which trains an SVM for every row it is given: use it for few queries, and as
    the yardstick of `LocalSVC`, which answers from SVMs trained beforehand. ``k`` of all rows is a global SVM.

    Parameters
    ----------
    k : int, default=100
        Neighbours that a query's SVM is trained on.
    kernel : {"rbf", "linear", "poly"}, default="rbf"
        Kernel of the SVMs; neighbours are those of its feature space.
    C : float, default=1.0
        Cost of errors, multiplied by weights.
    gamma : "local", "scale", "auto" or float, default="local"
        As in `sklearn.svm.SVC`; "local" is "scale" computed on the neighbours. With a polynomial kernel "local" means
        "scale".
    degree : int, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=0.0
        Constant of the polynomial kernel: 0 is the homogeneous one.
    neighbors : {"auto", "tree", "kd_tree", "ball_tree", "brute", "faiss"}, default="auto"
        How neighbours are searched; all find the same.
    class_weight : dict or "balanced", optional
        Factors of C by class, from all training rows.
    tol : float, default=1e-3
        Accuracy of the SVMs, as in SVC.
    n_jobs : int, optional
        Threads; None for all.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    k_ : int
        Neighbours in use.
    n_features_in_ : int
        Width of a row.
    feature_names_in_ : ndarray of shape (n_features,)
        Column names of X, where it had any.

    References
    ----------
    E. Blanzieri and F. Melgani, "Nearest neighbor classification of remote sensing images with the maximal margin
    principle", IEEE Transactions on Geoscience and Remote Sensing 46(6), 2008; section 1.3 of the report of `LocalSVC`.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> import svelto
    >>> X, y = make_moons(400, noise=0.15, random_state=0)
    >>> bool(svelto.KNNSVC(k=30).fit(X[:300], y[:300]).score(X[300:], y[300:]) > 0.95)
    True
    """

    def __init__(
        self,
        k: int = 100,
        *,
        kernel: str = "rbf",
        C: float = 1.0,
        gamma: str | float = "local",
        degree: int = 3,
        coef0: float = 0.0,
        neighbors: str = "auto",
        class_weight: Any = None,
        tol: float = 1e-3,
        n_jobs: int | None = None,
    ) -> None:
        self.k = k
        self.kernel = kernel
        self.C = C
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.neighbors = neighbors
        self.class_weight = class_weight
        self.tol = tol
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> KNNSVC:
        """Keep the rows, ready to be searched.

        Parameters
        ----------
        X : array-like, sparse matrix or Dask collection of shape (n_samples, n_features)
            Training rows. Sparse ones are made dense.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
            Factors of C. Rows of weight zero are left out.

        Returns
        -------
        KNNSVC
            Itself.
        """
        options = checked_options(self)
        check_whole("k", self.k, 1)
        with self._unchanged_on_failure():
            self._keep(options, *self._weighted_rows(X, y, sample_weight))
        return self

    def _keep(
        self, options: LocalOptions, rows: FloatArray, labels: np.ndarray[Any, Any], weight: FloatArray | None
    ) -> None:
        classes, codes = coded(labels)
        factors = class_factors(self.class_weight, classes, codes)
        rows, codes, weight = counted(rows, codes, weight, factors)
        k, gamma = clipped_k(self.k, len(rows)), global_gamma(options, rows)
        index = NeighbourIndex(rows, kernel_of(options, gamma), method=self.neighbors, n_jobs=self.n_jobs)
        self.classes_, self.k_ = classes, k
        self._options, self._index = options, index
        self._data = TrainingData(rows, codes, weight, factors, gamma)

    def _scores(self, X: FloatArray) -> FloatArray:
        # A neighbour may be a support vector of as many pairs as there are other classes.
        step = max(1, BLOCK_NEIGHBOURS // (self.k_ * max(1, len(self.classes_) - 1)))
        with bar("Training an SVM for every row") as tell:
            parts = []
            for first in range(0, len(X), step):
                tell(f"{first:,} of {len(X):,} rows", first / len(X))
                parts.append(self._block(X[first : first + step]))
        return np.concatenate(parts)

    def _block(self, X: FloatArray) -> FloatArray:
        options, data = self._options._replace(n_jobs=self.n_jobs), self._data
        neighbours = self._index.query(X, self.k_, n_jobs=self.n_jobs)[0]
        trained = train_svms(options, data, neighbours, False, None, lambda step, share=0.0: None)
        machines = LocalMachines(trained.models, data.X, options.kernel, trained.gamma, len(self.classes_))
        return machines.scores(X, np.arange(len(X)), self.n_jobs)
