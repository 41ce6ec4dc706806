"""SVMTreeClassifier: chains of hyperplanes that each peel off one class, and a kernel machine for the rest (paper S2).

The estimator checks parameters and rows and names the results. A chain is grown in `_svm_tree/growth.py`, a tree is put
together in `_svm_tree/train.py`, and answers come from `_svm_tree/answers.py` and `engines/chains.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from svelto._inputs import check_rows
from svelto._progress import bar
from svelto._typing import FloatArray, Rows
from svelto.training._svm_tree.options import checked_options
from svelto.training._svm_tree.rows import merged_rows
from svelto.training._svm_tree.table import as_text, mixed_ends, node_table
from svelto.training._svm_tree.train import TrainedTree, train_tree

if TYPE_CHECKING:
    from svelto.export.c import CExport

# At most this many rows are answered on the calling thread, with no validation in Python.
SHORT_ROWS: Final = 16
# Below this share of non-zeros rows are met by their stored features alone.
STORED_BELOW: Final = 0.25


def _has_probability(self: SVMTreeClassifier) -> bool:
    if self.probability:
        return True
    raise AttributeError("predict_proba needs probability=True when the tree is trained.")


class SVMTreeClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Decision tree of linear SVMs with a kernel machine at its end.

    Every node is a hyperplane that peels off a region in which the training rows are of one class; what is left goes
    to the next node. Easy rows cost a few dot products. Rows that no node settles go to the *tail*, an RBF machine
    trained on all rows; without a tail they get the class that is left, or the answer of one more linear SVM. Several
    classes are told apart in pairs: a row is settled where one class wins all its pairs.

    Nothing has to be tuned: the cost and width of the tail, and the place where it takes over, are chosen by
    cross-validation. With ``tail=None`` prediction needs no kernel value at all. ``tail=None, last="class",
    prefer="rows", greedy=0, min_peeled=0`` is the paper's linear tree.

    The tree is a classifier of its own and promises nothing about another machine. Use `svelto.accelerate` to make a
    machine faster that is already trained. Classes that overlap everywhere (no half-space holds one class) leave
    nearly all rows to the tail: `work` shows how many.

    Parameters
    ----------
    tail : "rbf", estimator or None, default="rbf"
        What answers rows that no hyperplane settles. "rbf": an SVC whose C and gamma are chosen by cross-validation.
        An estimator is cloned and fitted on the scaled rows. None: a tree of hyperplanes alone.
    tail_at : "auto" or int, default="auto"
        Nodes of every chain before the tail takes over. "auto": cross-validation decides, for all chains together.
        Without a tail it means nothing.
    tail_loss : float, default=0.001
        Accuracy in cross-validation that may be given up against the tail alone to reach it less often; a standard
        error is added to what is measured, so with fewer than ``1 / tail_loss`` rows (or 0) every row goes to the tail.
    tail_method : str, default="exact"
        Method of `svelto.accelerate` that answers for the tail.
    tail_options : dict, optional
        Further arguments of `svelto.accelerate`, such as ``{"agreement": 0.999}``.
    last : {"auto", "class"}, default="auto"
        What follows the nodes of a chain. "class": the class that is left (or the tail). "auto": a linear SVM of all
        rows may replace the last nodes where cross-validation says so (not with a number as `tail_at`).
    greedy : {0, 1}, default=1
        1: hyperplanes at right angles are tried at every node; 0: only where nothing else removes a row.
    prefer : {"margin", "rows"}, default="margin"
        Which hyperplane a node gets: the largest product of rows peeled off and root of the margin, or the most rows.
    multi_class : {"ovo", "ovr"}, default="ovo"
        Chains for pairs of classes, or for each class against the rest.
    scale : {"standard", "minmax"} or None, default="standard"
        How features are scaled before training. Rows are given as they are; the scale is part of the planes.
    max_nodes : int, default=50
        Most hyperplanes of a chain.
    min_peeled : float, default=0.001
        Share of a chain's training rows that a node has to peel off; the chain ends where none does. Classes that
        overlap everywhere would else cost a hyperplane for every few rows. 0 is the paper's rule.
    allowed_error : float, default=0.0
        Share of the training rows that pruning may give up to save hyperplanes.
    n_folds : int, default=5
        Folds of the cross-validation.
    probability : bool, default=False
        Whether `predict_proba` is offered; costs a cross-validation where there is none anyway.
    class_weight : dict, "balanced" or None
        Factor on the weight of each class's rows.
    n_jobs : int, optional
        Threads; None uses every thread that OpenMP's limits allow.
    random_state : int, RandomState or None
        Draws the folds. The tree is the same for any order of the rows and any number of threads.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Sorted class labels.
    n_nodes_ : int
        Hyperplanes of all chains.
    nodes_ : list of TreeNode
        What each node is; `describe` prints them.
    depths_ : ndarray of shape (n_chains,)
        Hyperplanes of each chain.
    n_grown_ : ndarray of shape (n_chains,)
        Hyperplanes of each chain before pruning and cutting.
    ended_ : list of str
        Why each chain was not grown further: "one class" was left, it was "stuck" (no hyperplane removed a row), or it
        met "min_peeled" or "max_nodes".
    tail_ : estimator or None
        The fitted tail. It knows classes by their numbers in `classes_` and rows by their scaled features.
    scale_shift_, scale_factor_ : ndarray of shape (n_features,)
        Features are scaled as ``(x - scale_shift_) / scale_factor_``.
    cv_accuracy_, cv_tail_accuracy_, cv_open_share_ : float
        Of the tree and of the tail alone in cross-validation, and the share of rows that reach the tail. Only with a
        tail and ``tail_at="auto"``.
    n_features_in_ : int
        Width of a row.
    feature_names_in_ : ndarray of shape (n_features,)
        Column names of X, where it had any.

    References
    ----------
    K. Zapien Arreola, J. Fehr and H. Burkhardt, "Fast Support Vector Machine Classification of very large Datasets",
    Technical Report 2/07, University of Freiburg, 2007.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> import svelto
    >>> X, y = make_moons(2000, noise=0.1, random_state=0)
    >>> tree = svelto.SVMTreeClassifier(random_state=0).fit(X, y)
    >>> bool(tree.score(X, y) > 0.98)
    True
    >>> bool(tree.work(X)["tail_rows"] < 0.5)
    True
    """

    def __init__(
        self,
        *,
        tail: Any = "rbf",
        tail_at: str | int = "auto",
        tail_loss: float = 0.001,
        tail_method: str = "exact",
        tail_options: Mapping[str, Any] | None = None,
        last: str = "auto",
        greedy: int = 1,
        prefer: str = "margin",
        multi_class: str = "ovo",
        scale: str | None = "standard",
        max_nodes: int = 50,
        min_peeled: float = 0.001,
        allowed_error: float = 0.0,
        n_folds: int = 5,
        probability: bool = False,
        class_weight: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.tail = tail
        self.tail_at = tail_at
        self.tail_loss = tail_loss
        self.tail_method = tail_method
        self.tail_options = tail_options
        self.last = last
        self.greedy = greedy
        self.prefer = prefer
        self.multi_class = multi_class
        self.scale = scale
        self.max_nodes = max_nodes
        self.min_peeled = min_peeled
        self.allowed_error = allowed_error
        self.n_folds = n_folds
        self.probability = probability
        self.class_weight = class_weight
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SVMTreeClassifier:
        """Learn from rows and their labels.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows, finite. A sparse matrix is made dense for training.
        y : array-like of shape (n_samples,)
            A label for each row; at least two different ones.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row; a row of weight zero is left out, a row of weight two counts as two.

        Returns
        -------
        SVMTreeClassifier
            Itself.
        """
        options = checked_options(self)
        X, y = validate_data(self, X, y, dtype=np.float64, order="C", accept_sparse="csr")
        check_classification_targets(y)
        classes, numbers = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y holds {len(classes)} class ({classes.tolist()[0]!r}); expected at least two classes.")
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        weight = weight * self._class_factors(classes, numbers, weight, y)[numbers]
        _check_class_weights(classes, numbers, weight)
        stored = sparse.issparse(X) and X.nnz < STORED_BELOW * X.shape[0] * X.shape[1]
        rows = merged_rows(X.toarray() if sparse.issparse(X) else X, numbers, weight)
        with bar(f"Training {type(self).__name__}") as progress:
            trained = train_tree(rows, len(classes), options, stored, self.random_state, progress)
        self._name_results(classes, trained)
        mixed = mixed_ends([one.chain for one in trained.grown], trained.ends)
        if mixed is not None:
            warnings.warn(mixed, ConvergenceWarning, stacklevel=2)
        return self

    def _class_factors(self, classes: Any, numbers: Any, weight: FloatArray, y: Any) -> FloatArray:
        """Factors of the classes; "balanced" counts a row as often as its weight says."""
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            total = np.bincount(numbers, weights=weight)
            factors: FloatArray = total.sum() / (len(classes) * np.maximum(total, np.finfo(np.float64).tiny))
            return factors
        return np.asarray(compute_class_weight(self.class_weight, classes=classes, y=y), dtype=np.float64)

    def _name_results(self, classes: np.ndarray[Any, Any], trained: TrainedTree) -> None:
        self.classes_ = classes
        self._tree = trained.answers
        self.scale_shift_, self.scale_factor_ = trained.scale
        self.tail_ = None if trained.answers.tail is None else trained.answers.tail.estimator
        self.n_nodes_ = trained.answers.chains.n_nodes
        self.depths_ = np.array([len(chain) for chain in trained.nodes])
        self.n_grown_ = np.array([one.n_grown for one in trained.grown])
        self.ended_ = [one.chain.ended for one in trained.grown]
        for name in ("cv_accuracy_", "cv_tail_accuracy_", "cv_open_share_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        if trained.placement is not None:
            self.cv_accuracy_ = trained.placement.accuracy
            self.cv_tail_accuracy_ = trained.placement.tail_accuracy
            self.cv_open_share_ = trained.placement.open_share
        self.nodes_ = node_table(classes, trained.answers.duels, trained.nodes)

    # -- answers ---------------------------------------------------------------------------------------------

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        """Class labels.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to label.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self, "classes_")
        rows = self._rows(X)
        if rows is X and type(X) is np.ndarray and X.shape[0] <= SHORT_ROWS:
            labels = self._tree.block_labels(X, self.n_jobs)
            if labels is not None:
                return self.classes_.take(labels)
        return self.classes_.take(self._tree.labels(rows, self.n_jobs))

    def decision_function(self, X: Any) -> FloatArray:
        """Scores: one a row, positive towards ``classes_[1]``, or one for each class; the label's is the largest.

        Margins of the nodes that decide, in units of the spread of the node's scores, and scores of the tail for rows
        that reach it. With pairs of classes: votes, and a squashed sum of margins that decides between equal votes.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to score.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        check_is_fitted(self, "classes_")
        return self._tree.decision(self._rows(X), self.n_jobs)

    @available_if(_has_probability)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> FloatArray:
        """Class probabilities, from margins and their worth in cross-validation; the label's is the largest.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self, "classes_")
        if self._tree.probability is None:
            raise ValueError("The tree was trained with probability=False; fit it again with probability=True.")
        return self._tree.probabilities(self._rows(X), self.n_jobs)

    def decision_path(self, X: Any) -> sparse.csr_matrix:
        """Which hyperplanes each row meets, in all chains; with a tail a last column says which rows reach it.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        csr_matrix of shape (n_samples, `n_nodes_`) or (n_samples, `n_nodes_` + 1)
            1 where a row meets a node; columns in the order of `nodes_`. `predict` skips chains that cannot change the
            answer, which are included here.
        """
        check_is_fitted(self, "classes_")
        return self._tree.path(self._rows(X), self.n_jobs)

    def average_depth(self, X: Any) -> float:
        """Hyperplanes that a row meets in a chain, mean over rows and chains; reaching the tail counts as one more.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        float
        """
        path = self.decision_path(X)
        in_chains = path[:, : self.n_nodes_].sum() / (path.shape[0] * len(self.depths_))
        return float(in_chains + path[:, self.n_nodes_ :].sum() / path.shape[0])

    def work(self, X: Any) -> dict[str, float]:
        """What `predict` does for a row, on average.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        dict
            "planes": hyperplanes evaluated. "settled": share of rows that they settle. "tail_rows": share of rows that
            the tail answers. "kernel_values": kernel values of the tail, if every one of its support vectors is met.
        """
        check_is_fitted(self, "classes_")
        rows = self._rows(X)
        labels, planes = self._tree.chains.labels_and_work(rows, self.n_jobs)
        tail = self._tree.tail
        counted = float(planes.sum())
        if tail is None and (labels < 0).any():  # the vote looks at all chains
            counted += float(self._tree.path(rows[labels < 0], self.n_jobs).sum())
        is_open = float(np.mean(labels < 0))
        return {
            "planes": counted / len(labels),
            "settled": 1.0 - is_open,
            "tail_rows": 0.0 if tail is None else is_open,
            "kernel_values": 0.0 if tail is None else is_open * tail.n_support,
        }

    def describe(self) -> str:
        """Say in a table what each node is, as Table 4.1 of the paper does.

        Returns
        -------
        str
        """
        check_is_fitted(self, "classes_")
        return as_text(self.nodes_)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a svelto file, which `svelto.load` reads; see `docs/file-format.md`.

        Parameters
        ----------
        path : str or path
            File to write. `tail_` of the loaded tree is the predictor that answers for the tail.
        """
        from svelto.io.saved import save

        save(self, path)

    def export_c(
        self,
        path: str | PathLike[str],
        *,
        name: str | None = None,
        dtype: str = "float32",
        max_bytes: int | None = None,
        X: Any = None,
    ) -> CExport:
        """Write the tree and its tail as one C header; see `svelto.accelerate`'s ``Predictor.export_c``.

        Parameters
        ----------
        path : str or path
            The header.
        name : str, optional
            Prefix of all its names, a C identifier. Default: the file's name.
        dtype : {"float32", "int16", "int8"}, default="float32"
            Of large tables.
        max_bytes : int, optional
            Most bytes of tables. Where the tail does not fit, the hyperplanes alone are written, and votes answer
            what they leave open.
        X : array-like of shape (n_samples, n_features), optional
            Rows on which the header's labels are compared with the tree's; default: the tail's support vectors.

        Returns
        -------
        CExport
            What was written, its bytes, and the agreement that was measured.
        """
        check_is_fitted(self, "classes_")
        from svelto.export.c_svm_tree import export_tree

        return export_tree(self, path, name=name, dtype=dtype, max_bytes=max_bytes, X=X)

    # -- parts -----------------------------------------------------------------------------------------------

    def _rows(self, X: Any) -> Rows:
        """Rows that native code can read; whether they are finite is looked at there."""
        if (
            type(X) is np.ndarray
            and X.ndim == 2
            and X.shape[1] == self.n_features_in_
            and X.shape[0] > 0
            and X.dtype in (np.float64, np.float32)
            and X.flags.c_contiguous
            and X.flags.aligned
            and not hasattr(self, "feature_names_in_")
        ):
            return X
        checked = validate_data(
            self, X, dtype=(np.float64, np.float32), accept_sparse="csr", reset=False, ensure_all_finite=False
        )
        return check_rows(checked, self.n_features_in_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _check_class_weights(classes: np.ndarray[Any, Any], numbers: Any, weight: FloatArray) -> None:
    if not np.isfinite(weight).all():
        raise ValueError("class_weight times sample_weight is not finite; use smaller weights.")
    total = np.bincount(numbers, weights=weight, minlength=len(classes))
    for label, sum_of_class in zip(classes.tolist(), total.tolist(), strict=True):
        if sum_of_class <= 0:
            raise ValueError(
                f"No row of class {label!r} has a positive weight; leave these rows out, or give them weight."
            )
