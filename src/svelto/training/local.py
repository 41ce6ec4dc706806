"""Local SVMs for very large data (paper S4, FastLSVM).

A training set is covered by neighbourhoods; each gets a small SVM of its own, and a query is answered by the SVM of its
nearest training row. Training costs a neighbour search and thousands of small SVMs, and grows about as n log n.
"""

from __future__ import annotations

from os import PathLike
from typing import Any, Literal

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from svelto._collections import is_dask
from svelto._crew import Crew, find_crew
from svelto._options import check_choice, check_whole
from svelto._progress import Tell, bar, span
from svelto._typing import FloatArray, IndexArray, IntArray
from svelto.probability import Temperature
from svelto.training._local.base import LocalClassifier, coded, counted
from svelto.training._local.choose import choose_k
from svelto.training._local.cover import Cover, extend_cover, find_cover
from svelto.training._local.flat import joined, taken
from svelto.training._local.machines import LocalMachines
from svelto.training._local.metric import learn_weights
from svelto.training._local.neighbours import NeighbourIndex
from svelto.training._local.odds import learn_odds
from svelto.training._local.options import (
    LocalOptions,
    checked_options,
    class_factors,
    clipped_k,
    global_gamma,
    kernel_of,
)
from svelto.training._local.spread_training import spread
from svelto.training._local.train import TrainedSVMs, TrainingData, covering, train_svms


class LocalSVC(LocalClassifier):
    """A classifier made of many small SVMs, each for its own part of the space.

    Rows become centres in random order, unless an earlier centre covers them; a centre covers its `k_prime` nearest
    rows and has an SVM on its `k` nearest. A query is answered by the SVM whose centre covers the query's nearest
    training row. A neighbourhood with one class needs no SVM.

    Parameters
    ----------
    k : int or "auto", default="auto"
        Rows of a neighbourhood. "auto": chosen by cross-validation on a sample of the rows.
    k_prime : int, optional
        Nearest rows that a centre covers; fewer mean more SVMs, and queries nearer to the middle of theirs. Default: a
        quarter of `k`, as in the paper.
    kernel : {"rbf", "linear", "poly"}, default="rbf"
        Kernel of the SVMs; neighbours are those of its feature space.
    C : float, default=1.0
        Cost of errors, multiplied by weights.
    gamma : "local", "scale", "auto" or float, default="local"
        As in `sklearn.svm.SVC`; "local" is "scale" computed on the rows of each neighbourhood. With a polynomial kernel
        "local" means "scale": neighbours need one feature space.
    degree : int, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=0.0
        Constant of the polynomial kernel: 0 is the homogeneous one.
    local_search : bool, default=False
        Whether every neighbourhood chooses its own C and gamma around the given ones, by cross-validation of its rows.
    assign : {"neighbour", "centre"}, default="neighbour"
        Whose SVM answers a query: that of the nearest training row, or that of the nearest centre, which is found
        faster.
    vote : int, default=1
        Nearest training rows (or centres) whose SVMs are asked; their scores are averaged.
    metric : {"euclidean", "learned"}, default="euclidean"
        "learned": features are weighed first, by how much the label depends on them in a thousand neighbourhoods; SVMs
        and neighbours then see the weighted features. Helps where many features say little.
    neighbors : {"auto", "tree", "kd_tree", "ball_tree", "brute", "faiss"}, default="auto"
        How neighbours are searched; all find the same.
    class_weight : dict or "balanced", optional
        Factors of C by class, from all training rows.
    probability : bool, default=False
        Whether `predict_proba` is wanted: held-out rows are then scored by a second set of SVMs.
    tol : float, default=1e-3
        Accuracy of the SVMs, as in SVC.
    max_iter : int, default=-1
        Limit of the solver's steps for a pair of classes; -1: none that matters.
    n_jobs : int, optional
        Threads; None for all.
    random_state : int, RandomState or None, default=None
        Order of the rows, and samples.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    k_, k_prime_ : int
        Sizes in use.
    centres_ : ndarray of shape (`n_models_`,)
        Training rows that are centres, counted among those of positive weight.
    n_models_ : int
        Neighbourhoods.
    n_svms_ : int
        SVMs trained: pairs of classes in neighbourhoods that have several.
    gamma_ : ndarray of shape (`n_models_`,)
        Kernel width of each neighbourhood.
    C_ : ndarray of shape (`n_models_`,)
        Cost of each neighbourhood.
    feature_weights_ : ndarray of shape (n_features,)
        What features are multiplied by; ones, unless ``metric="learned"``.
    n_iter_ : int
        Steps of the solver, the most for any SVM.
    n_support_ : int
        Support vectors of all SVMs, those included that several share.
    cv_accuracy_ : dict
        With ``k="auto"``: cross-validated accuracy by k.
    n_features_in_ : int
        Width of a row.
    feature_names_in_ : ndarray of shape (n_features,)
        Column names of X, where it had any.

    References
    ----------
    N. Segata and E. Blanzieri, "Fast Local Support Vector Machines for Large Datasets", Technical Report DISI-08-063,
    University of Trento, 2008.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> import svelto
    >>> X, y = make_moons(6000, noise=0.15, random_state=0)
    >>> local = svelto.LocalSVC(k=200, random_state=0).fit(X[:3000], y[:3000])
    >>> bool(local.score(X[3000:], y[3000:]) > 0.98)
    True
    """

    def __init__(
        self,
        k: int | str = "auto",
        k_prime: int | None = None,
        *,
        kernel: str = "rbf",
        C: float = 1.0,
        gamma: str | float = "local",
        degree: int = 3,
        coef0: float = 0.0,
        local_search: bool = False,
        assign: Literal["neighbour", "centre"] = "neighbour",
        vote: int = 1,
        metric: Literal["euclidean", "learned"] = "euclidean",
        neighbors: str = "auto",
        class_weight: Any = None,
        probability: bool = False,
        tol: float = 1e-3,
        max_iter: int = -1,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.k = k
        self.k_prime = k_prime
        self.kernel = kernel
        self.C = C
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.local_search = local_search
        self.assign = assign
        self.vote = vote
        self.metric = metric
        self.neighbors = neighbors
        self.class_weight = class_weight
        self.probability = probability
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.random_state = random_state

    # -- training --------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> LocalSVC:
        """Cover the rows, and train an SVM on every neighbourhood.

        Parameters
        ----------
        X : array-like, sparse matrix or Dask collection of shape (n_samples, n_features)
            Training rows. Sparse ones are made dense.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
            Factors of C. Rows of weight zero are left out; others count as one row among k, whatever they weigh.
        client : dask.distributed.Client, optional
            Whose workers train. Rows in a Dask collection use the active client; the machine is the same.

        Returns
        -------
        LocalSVC
            Itself.
        """
        options = self._checked()
        crew = find_crew(client, dask_rows=is_dask(X))
        with self._unchanged_on_failure(), bar(f"Training {type(self).__name__}") as tell:
            rows, labels, weight = self._weighted_rows(X, y, sample_weight, client=client)
            classes, codes = coded(labels)
            factors = class_factors(self.class_weight, classes, codes)
            rows, codes, weight = counted(rows, codes, weight, factors)
            self._begin(options, rows, codes, weight, factors, classes, tell, crew)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> LocalSVC:
        """Add rows: they join the cover, and only neighbourhoods that changed are trained again.

        Earlier rows keep their centres. The kernel width of ``gamma="scale"``, with ``k="auto"`` the size of a
        neighbourhood, with ``probability=True`` the worth of a score, with ``metric="learned"`` the weights of
        features, and with ``class_weight="balanced"`` the factors are those of the first call. A first call with fewer
        rows than `k` is trained anew with the next rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            New rows.
        y : array-like of shape (n_samples,)
            Their labels.
        classes : array-like of shape (n_classes,), optional
            All labels that will ever come; needed in the first call, unless `fit` was called before.
        sample_weight : array-like of shape (n_samples,), optional
            As in `fit`.

        Returns
        -------
        LocalSVC
            Itself.
        """
        options = self._checked()
        first = not hasattr(self, "_machines")
        if first and classes is None:
            raise ValueError("classes is None; the first call to partial_fit needs all labels that will come.")
        if not first and classes is not None and not np.array_equal(np.unique(np.asarray(classes)), self.classes_):
            raise ValueError(f"classes is {classes!r}; earlier calls had {self.classes_.tolist()}.")
        with self._unchanged_on_failure(), bar(f"Training {type(self).__name__}") as tell:
            rows, labels, weight = self._weighted_rows(X, y, sample_weight, reset=first)
            known, codes = coded(labels, classes if first else self.classes_)
            factors = class_factors(self.class_weight, known, codes) if first else self._data.factors
            rows, codes, weight = counted(rows, codes, weight, factors, first=first)
            if first:
                self._begin(options, rows, codes, weight, factors, known, tell)
            elif len(rows):
                self._add(options, rows, codes, weight, tell)
        return self

    def _checked(self) -> LocalOptions:
        options = checked_options(self)
        if self.k != "auto":
            check_whole("k", self.k, 1, ", or 'auto'")
        if self.k_prime is not None:
            check_whole("k_prime", self.k_prime, 1)
            if not isinstance(self.k, str) and self.k_prime > self.k:
                raise ValueError(f"k_prime is {self.k_prime} and k is {self.k}; a centre covers rows of its own k.")
        check_whole("vote", self.vote, 1)
        check_choice("assign", self.assign, ("neighbour", "centre"))
        check_choice("metric", self.metric, ("euclidean", "learned"))
        for name in ("local_search", "probability"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected True or False.")
        return options

    def _begin(
        self,
        options: LocalOptions,
        X: FloatArray,
        codes: IntArray,
        weight: FloatArray | None,
        factors: FloatArray | None,
        classes: Any,
        tell: Tell,
        crew: Crew | None = None,
    ) -> None:
        """Train from the beginning on checked rows."""
        draws = check_random_state(self.random_state)
        tried: dict[int, float] = {}
        feature_weights = np.ones(X.shape[1])
        size, done = self.k, 0.0
        if self.metric == "learned":
            part = span(tell, 0.0, 0.1)
            feature_weights = learn_weights(X, codes, weight, factors, draws, self.n_jobs, part)
            X, tell = X * feature_weights, span(tell, 0.1, 1.0)
        if size == "auto":
            tried = choose_k(self, X, codes, weight, factors, draws, span(tell, 0.0, 0.3))
            size, done = max(tried, key=lambda k: (tried[k], -k)), 0.3
        k = clipped_k(size, len(X))
        k_prime = min(self.k_prime or max(1, k // 4), k)
        odds: Temperature | None = None
        if self.probability:
            part = span(tell, done, (1.0 + done) / 2)
            odds = learn_odds(self, k, k_prime, X, codes, weight, factors, len(classes), draws, part, crew)
            done = (1.0 + done) / 2
        covered = done + 0.2 * (1.0 - done)
        shared = global_gamma(options, X)
        kernel = kernel_of(options, shared)
        index = NeighbourIndex(X, kernel, method=self.neighbors, n_jobs=self.n_jobs, build=crew is None)
        data = TrainingData(X, codes, weight, factors, shared)
        asked, train = index, None
        if crew is not None:
            asked, train = spread(crew, data, index, kernel, self.neighbors, k)
        progress = covering(span(tell, done, covered))
        cover = find_cover(asked, draws.permutation(len(X)), k, k_prime, n_jobs=self.n_jobs, progress=progress)
        part = span(tell, covered, 1.0)
        trained = train_svms(options, data, cover.neighbours, self.local_search, draws, part, train)
        self.classes_, self.k_, self.k_prime_ = classes, k, k_prime
        self.feature_weights_, self._odds, self._kernel = feature_weights, odds, options.kernel
        self.__dict__.pop("cv_accuracy_", None)
        if tried:
            self.cv_accuracy_ = tried
        self._install(options, data, index, cover, trained)

    def _add(
        self, options: LocalOptions, X: FloatArray, codes: IntArray, weight: FloatArray | None, tell: Tell
    ) -> None:
        """Take in checked rows."""
        if options.kernel != self._kernel:
            raise ValueError(f"The kernel is {options.kernel}; earlier rows were trained with {self._kernel}. Use fit.")
        data = self._data.with_rows(X * self.feature_weights_, codes, weight)
        if not isinstance(self.k, str) and self.k_ < min(self.k, len(data.X)):
            # The first rows were fewer than a neighbourhood has; so few are trained anew with these.
            rows = data.X / self.feature_weights_
            self._begin(options, rows, data.codes, data.weight, data.factors, self.classes_, tell)
            return
        draws = check_random_state(self.random_state)
        kernel = kernel_of(options, data.gamma)
        index = NeighbourIndex(data.X, kernel, method=self.neighbors, n_jobs=self.n_jobs)
        order = len(self._data.X) + draws.permutation(len(X))
        progress = covering(span(tell, 0.0, 0.3))
        extended = extend_cover(self._cover, index, order, n_jobs=self.n_jobs, progress=progress)
        cover, n_old = extended.cover, len(self._cover.centres)
        anew = np.concatenate([extended.changed, np.arange(n_old, len(cover.centres))]).astype(np.intp)
        trained = TrainedSVMs(self._machines.models, self.C_, self.gamma_)
        if len(anew):
            neighbours = cover.neighbours[anew]
            new = train_svms(options, data, neighbours, self.local_search, draws, span(tell, 0.3, 1.0))
            source = np.arange(len(cover.centres))
            source[anew] = n_old + np.arange(len(anew))
            trained = TrainedSVMs(
                taken(joined([trained.models, new.models]), source),
                np.concatenate([trained.cost, new.cost])[source],
                np.concatenate([trained.gamma, new.gamma])[source],
            )
        self._install(options, data, index, cover, trained)

    def _install(
        self,
        options: LocalOptions,
        data: TrainingData,
        index: NeighbourIndex,
        cover: Cover,
        trained: TrainedSVMs,
    ) -> None:
        models = trained.models
        self._data, self._index, self._cover = data, index, cover
        self._machines = LocalMachines(models, index.X, options.kernel, trained.gamma, len(self.classes_))
        self._centre_index: NeighbourIndex | None = None
        self.C_, self.gamma_ = trained.cost, trained.gamma
        self.n_iter_ = max(1, int(models.n_iter.max(initial=0)))
        self.centres_ = cover.centres
        self.n_models_ = len(cover.centres)
        self.n_svms_ = len(models.intercept)
        self.n_support_ = len(models.support)

    # -- answers ---------------------------------------------------------------------------------------------

    def _machines_of(self, X: FloatArray) -> IndexArray:
        """The machines that answer each row, in the weighted features: (n_rows, vote)."""
        check_whole("vote", self.vote, 1)
        check_choice("assign", self.assign, ("neighbour", "centre"))
        if self.assign == "centre":
            if self._centre_index is None:
                self._centre_index = NeighbourIndex.like(self._index, self._index.X[self._cover.centres])
            vote = min(self.vote, self._centre_index.n_rows)
            return self._centre_index.query(X, vote, n_jobs=self.n_jobs)[0]
        nearest = self._index.query(X, min(self.vote, self._index.n_rows), n_jobs=self.n_jobs)[0]
        machines: IndexArray = self._cover.centre_of_row[nearest]
        return machines

    def _scores(self, X: FloatArray) -> FloatArray:
        X = X * self.feature_weights_
        machines = self._machines_of(X)
        parts = [self._machines.scores(X, column, self.n_jobs) for column in machines.T]
        return parts[0] if len(parts) == 1 else np.mean(parts, axis=0)

    def _has_odds(self) -> bool:
        if not self.probability:
            raise AttributeError("predict_proba needs probability=True when the machine is trained.")
        return True

    @available_if(_has_odds)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, *, client: Any = None) -> Any:
        """Class probabilities, calibrated on rows that were held out; the label's is the largest.

        Parameters
        ----------
        X : array-like, sparse matrix or Dask collection of shape (n_samples, n_features)
            Rows.
        client : dask.distributed.Client, optional
            Whose workers answer.

        Returns
        -------
        ndarray (or Dask array, for a Dask collection) of shape (n_samples, n_classes)
        """
        check_is_fitted(self, "classes_")
        if self._odds is None:
            raise ValueError("The machines were trained with probability=False; fit again with probability=True.")
        elsewhere = self._asked_elsewhere("predict_proba", X, client)
        if elsewhere is not None:
            return elsewhere
        return self._odds.softmax(self._scores(self._queries(X)))

    def work(self, X: Any) -> dict[str, float]:
        """What `predict` does for a row, on average.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        dict
            "svms": pairs of classes asked. "kernel_values": support vectors met. "one_class": share of the rows whose
            neighbourhoods have one class.
        """
        machines = self._machines_of(self._queries(X) * self.feature_weights_)
        models = self._machines.models
        svms = np.diff(models.pair_start)
        support = np.diff(models.support_start[models.pair_start])
        return {
            "svms": float(svms[machines].sum(axis=1).mean()),
            "kernel_values": float(support[machines].sum(axis=1).mean()),
            "one_class": float((svms[machines] == 0).all(axis=1).mean()),
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write a svelto file, which `svelto.load` reads; see `docs/file-format.md`.

        Parameters
        ----------
        path : str or path
            File to write. It holds the training rows: answers and `partial_fit` need them.
        """
        from svelto.io.saved import save

        save(self, path)
