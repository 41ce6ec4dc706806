"""Accelerated: training and `svelto.accelerate` behind one scikit-learn estimator.

`fit` trains a clone of the estimator and makes a predictor of it; every answer is the predictor's. What kind it is
(classifier, regressor, outlier detector), which rows it takes and which methods it has, the estimator inside decides.
Invariant: a fit that fails leaves everything as it was.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_regressor
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_random_state, estimator_html_repr, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from svelto._collections import is_dask
from svelto._options import check_positive
from svelto._typing import FloatArray
from svelto.accelerate import APPROXIMATE, accelerate, check_request
from svelto.predictor import Predictor

# Arguments that are not the method's own: they are parameters of the estimator, or of its fit.
_NOT_OPTIONS: Final = (*(set(inspect.signature(accelerate).parameters) - {"method_options"}), "tolerance")


def _offered(name: str, answered_by: str | None = None) -> Callable[[Accelerated], bool]:
    """For `available_if`: the estimator has the method and, once it is there, the predictor has `answered_by`."""

    def check(self: Accelerated) -> bool:
        getattr(self.__dict__.get("estimator_", self.estimator), name)  # AttributeErrors say why it is missing
        if answered_by is not None and "predictor_" in self.__dict__:
            getattr(self.predictor_, answered_by)
        return True

    return check


class Accelerated(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A kernel machine that predicts fast after every fit.

    `fit` trains the estimator as ever and hands it to `svelto.accelerate`; training takes no less time. With
    ``method="exact"`` and "bounded" every label is that of the trained estimator, in float64. The other methods learn
    from the training rows, and their labels agree with the estimator's as often as `agreement` says; `report_` holds
    what was promised and measured. "auto" tries them, which takes seconds to a minute where there are thousands of
    rows, and is exact where there are fewer. Use it where models are trained again and again (cross-validation,
    searches, pipelines); for a model that is trained already `svelto.accelerate` will do.

    Transformers are best put inside, ``Accelerated(make_pipeline(StandardScaler(), SVC()))``: a scaler then becomes
    part of the native code. In front of it they work as well.

    Parameters
    ----------
    estimator : estimator
        What `KernelMachine.from_sklearn` reads once it is fitted: SVC, NuSVC, SVR, NuSVR, OneClassSVM, KernelRidge,
        `svelto.ExponentialSVC`, a Pipeline that ends in one of them, CalibratedClassifierCV with ``ensemble=False``, or
        a search over one of these. It is cloned; a fitted one inside `sklearn.frozen.FrozenEstimator` is used as it is.
    method : {"auto", "exact", "bounded", "hinges", "taylor_tree", "sv_tree", "reduced_set"}, default="auto"
        How rows are answered; see `svelto.accelerate`.
    agreement : float or None, default=0.999
        Share of labels that must agree with the trained estimator's. 1.0: only what is proven is settled without the
        exact engine. None: nothing is promised. An exact method keeps any value.
    confidence : float, default=0.95
        Confidence at which the agreement is promised.
    tolerance : float, optional
        The largest ``|error|`` of a regressor that counts as agreement. Methods that approximate need it, unless
        agreement is None; exact ones meet every tolerance.
    method_options : dict, optional
        Options of the method, such as ``{"leaf_size": 64}``; see `svelto.accelerate`.
    n_jobs : int, optional
        Threads of the predictor; None uses every thread that OpenMP's limits allow. Training is the estimator's matter.
    random_state : int, RandomState instance or None
        For methods that draw at random; the estimator keeps its own.

    Attributes
    ----------
    estimator_ : estimator
        The trained estimator.
    predictor_ : Predictor
        What answers; `predictor_.work(X)` says what rows cost.
    report_ : Report
        Method, promise, measurements.
    classes_ : ndarray of shape (n_classes,)
        Sorted class labels (classifiers).
    offset_ : float or ndarray of shape (1,)
        What `score_samples` is above `decision_function` (outlier detectors).
    n_features_in_ : int
        Width of a row, where rows have one.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of the training rows, where they had any.

    See Also
    --------
    svelto.accelerate : The same for an estimator that is trained already.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn.svm import SVC
    >>> import svelto
    >>> X, y = load_digits(return_X_y=True)
    >>> model = svelto.Accelerated(SVC(gamma=0.001)).fit(X[:1000], y[:1000])
    >>> bool((model.predict(X) == model.estimator_.predict(X)).all())
    True
    >>> model.report_.promise
    'exact'
    >>> search = GridSearchCV(model, {"estimator__C": [0.01, 1.0]}, cv=3).fit(X[:600], y[:600])
    >>> search.best_params_
    {'estimator__C': 1.0}
    """

    def __init__(
        self,
        estimator: Any,
        *,
        method: str = "auto",
        agreement: float | None = 0.999,
        confidence: float = 0.95,
        tolerance: float | None = None,
        method_options: Mapping[str, Any] | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.agreement = agreement
        self.confidence = confidence
        self.tolerance = tolerance
        self.method_options = method_options
        self.n_jobs = n_jobs
        self.random_state = random_state

    # -- training --------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, X_calibration: Any = None, **params: Any) -> Accelerated:
        """Train the estimator, then make it fast.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, or what the estimator takes, of shape (n_samples, n_features)
            Training rows. Methods that approximate learn from the same rows. With a frozen estimator: unlabelled rows
            like those to come.
        y : array-like of shape (n_samples,) or (n_samples, n_targets), optional
            Labels or values, where the estimator learns from them.
        X_calibration : array-like, optional
            Rows like those to come that the estimator was not trained on, for choosing and checking thresholds; exact
            methods do not look at them. Objects of a Python kernel and rows of a precomputed one need them for a
            promise.
        **params
            For the fit method of the estimator, such as `sample_weight`. With metadata routing enabled: those that the
            estimator requests.

        Returns
        -------
        Accelerated
            Itself.
        """
        estimator = clone(self.estimator)
        request = self._request()
        if get_config()["enable_metadata_routing"]:
            params = process_routing(self, "fit", **params)["estimator"]["fit"]
        trained = estimator.fit(X, y, **params)
        try:
            predictor = accelerate(trained, X, X_calibration=X_calibration, **request)
        except Exception as error:
            error.add_note(
                f"The estimator is trained; what failed is to make it fast with method={self.method!r}. To try other "
                "settings without training again, pass a trained one as FrozenEstimator(estimator)."
            )
            raise
        self.estimator_, self.predictor_, self.report_ = trained, predictor, predictor.report
        return self

    @available_if(_offered("fit_predict"))  # type: ignore[untyped-decorator]
    def fit_predict(self, X: Any, y: Any = None, **params: Any) -> np.ndarray[Any, Any]:
        """Fit, and label the training rows: +1 inside, -1 outside (outlier detectors).

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.
        y : ignored
            Present by convention.
        **params
            For `fit`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        labels: np.ndarray[Any, Any] = self.fit(X, y, **params).predict(X)
        return labels

    def _request(self) -> dict[str, Any]:
        """Arguments of `accelerate`. What is wrong for every model is refused here, before hours of training."""
        if not isinstance(self.method_options, Mapping | None):
            raise TypeError(f"method_options is {self.method_options!r}; expected a dict, or None.")
        options = dict(self.method_options or {})
        for name in options:
            if name in _NOT_OPTIONS:
                raise TypeError(f"method_options has {name!r}; pass it to Accelerated, or to its fit, by that name.")
        if self.tolerance is not None:
            check_positive("tolerance", self.tolerance)
            if not is_regressor(self.estimator):
                raise ValueError(
                    f"tolerance is {self.tolerance!r}, but the estimator answers with labels; use agreement."
                )
            if self.method in ("auto", *APPROXIMATE):
                options["tolerance"] = self.tolerance
        check_request(self.method, self.agreement, self.confidence, self.n_jobs, options)
        check_random_state(self.random_state)
        return {
            "method": self.method,
            "agreement": self.agreement,
            "confidence": self.confidence,
            "n_jobs": self.n_jobs,
            "random_state": self.random_state,
            **options,
        }

    # -- answers ---------------------------------------------------------------------------------------------

    def predict(self, X: Any) -> Any:
        """Class labels, +1/-1 of outlier detectors, or values of regressors.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, or what the estimator takes, of shape (n_samples, n_features)
            Rows. Dask collections are answered block by block, by this and the other methods.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_targets)
        """
        return self._ready(X).predict(X)

    @available_if(_offered("decision_function", "decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> FloatArray:
        """Scores by scikit-learn's conventions, as the predictor computes them; see `Predictor.decision_function`.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,), (n_samples, n_classes) or (n_samples, n_classes * (n_classes - 1) / 2)
        """
        scores: FloatArray = self._ready(X).decision_function(X)
        return scores

    @available_if(_offered("predict_proba", "predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> FloatArray:
        """Probabilities of the classes, where the estimator has them.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        probabilities: FloatArray = self._ready(X).predict_proba(X)
        return probabilities

    @available_if(_offered("predict_log_proba", "predict_proba"))  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> FloatArray:
        """Logarithms of the probabilities of the classes, where the estimator has them.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        with np.errstate(divide="ignore"):  # the logarithm of 0 is -inf
            logarithms: FloatArray = np.log(self.predict_proba(X))
        return logarithms

    @available_if(_offered("score_samples", "score_samples"))  # type: ignore[untyped-decorator]
    def score_samples(self, X: Any) -> FloatArray:
        """Scores before `offset_` is subtracted (outlier detectors).

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        scores: FloatArray = self._ready(X).score_samples(X)
        return scores

    @available_if(_offered("score"))  # type: ignore[untyped-decorator]
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy of a classifier, R² of a regressor.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Their labels or values.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row.

        Returns
        -------
        float
        """
        measure = r2_score if is_regressor(self) else accuracy_score
        return float(measure(y, self.predict(X), sample_weight=sample_weight))

    def _ready(self, X: Any) -> Predictor:
        """The predictor, after scikit-learn's checks of column names and width; all else it checks itself."""
        predictor: Predictor = _fitted(self).predictor_
        width, names = predictor.machine.n_features, predictor.machine.feature_names
        if type(X) is np.ndarray and names is None and X.ndim == 2 and X.shape[1] == width:
            return predictor  # a single row is answered in less time than the checks below take
        if is_dask(X):
            return predictor  # checks every block
        if width is not None and _is_flat(X):
            raise ValueError(
                "Expected 2D array, got 1D array instead. Reshape your data: X.reshape(1, -1) is a single row, "
                "X.reshape(-1, 1) a single feature."
            )
        validate_data(self, X, skip_check_array=True, reset=False)
        return predictor

    # -- facts -----------------------------------------------------------------------------------------------

    classes_ = property(lambda self: _fitted(self).predictor_.classes_, doc="Sorted class labels.")
    offset_ = property(lambda self: _fitted(self).estimator_.offset_, doc="See the text of the class.")
    n_features_in_ = property(lambda self: _fitted(self).predictor_.n_features_in_, doc="Width of a row.")

    @property
    def feature_names_in_(self) -> np.ndarray[Any, Any]:
        """Column names of the training rows."""
        names = _fitted(self).predictor_.machine.feature_names
        if names is None:
            raise AttributeError("The training rows had no column names.")
        return names

    def __sklearn_is_fitted__(self) -> bool:
        return "predictor_" in self.__dict__

    def __sklearn_tags__(self) -> Any:
        return replace(get_tags(self.estimator), array_api_support=False, transformer_tags=None)

    def get_metadata_routing(self) -> MetadataRouter:
        """Who gets which metadata: `X_calibration` of fit stays here, all else is the estimator's.

        Returns
        -------
        MetadataRouter
        """
        mapping = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        return router.add(estimator=self.estimator, method_mapping=mapping)

    def _html_repr(self) -> str:
        """scikit-learn's diagram and, once fitted, the report. scikit-learn 1.6 shows the diagram alone."""
        diagram = str(estimator_html_repr(self))
        if "report_" not in self.__dict__:
            return diagram
        report = self.report_
        title = f"svelto: method {report.method}, promise {report.promise}"
        return f"{diagram}<details><summary>{title}</summary>{report._repr_html_()}</details>"


def _fitted(model: Accelerated) -> Accelerated:
    if "predictor_" not in model.__dict__:  # scikit-learn's check takes longer than the answer to a row
        check_is_fitted(model)
    return model


def _is_flat(X: Any) -> bool:
    """Whether X is one row, or one column, rather than a matrix."""
    if hasattr(X, "ndim"):
        return bool(X.ndim == 1)
    return isinstance(X, list | tuple) and len(X) > 0 and np.ndim(X[0]) == 0
