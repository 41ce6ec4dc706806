"""A fitted scikit-learn model in, a KernelMachine out.

A model is unwrapped from outside to inside: pipelines give up their transformers (the machine's `front`), a
CalibratedClassifierCV its calibrators, and what is left must be one of the kernel machines. LIBSVM's own layout and
signs are read (`_dual_coef_`, `_intercept_`), not the public arrays, whose sign is flipped for two classes.

A scaler just before the machine becomes arrays (`Scaling`), so that the native core can scale while it packs the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import numpy as np
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR, NuSVC, NuSVR, OneClassSVM
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from svelto._typing import Rows
from svelto.kernels import LIBSVM_NUMBERS, Kernel
from svelto.machine import KernelMachine
from svelto.probability import Calibration, Calibrator, Isotonic, PlattPairs, Sigmoid, Temperature
from svelto.scaling import Scaling
from svelto.training.exponential import ExponentialSVC

_SUPPORTED: Final = (
    "SVC, NuSVC, SVR, NuSVR, OneClassSVM, KernelRidge, ExponentialSVC, a Pipeline that ends in one of them, "
    "and CalibratedClassifierCV(ensemble=False) around a classifier"
)
# Below this share of non-zeros a CSR matrix is both smaller and faster to multiply than the dense one.
_SPARSE_BELOW: Final = 0.25


def read_estimator(estimator: Any) -> KernelMachine:
    """Read a fitted scikit-learn model; see `KernelMachine.from_sklearn`."""
    if isinstance(estimator, type):
        raise TypeError(f"Got the class {estimator.__name__}; expected a fitted model. Create it and call fit first.")
    parts = _unwrap(estimator)
    core = parts.core
    if isinstance(core, (SVC, NuSVC, SVR, NuSVR, OneClassSVM)):
        fields = _read_libsvm(core)
    elif isinstance(core, KernelRidge):
        fields = _read_kernel_ridge(core)
    elif isinstance(core, ExponentialSVC):
        fields = _read_exponential(core)
    else:
        _refuse(core)

    if parts.calibrated is not None:
        if "classes" not in fields:
            raise TypeError(f"A calibrated {type(core).__name__} cannot be read; expected SVC or NuSVC.")
        fields["calibration"] = _read_calibration(parts.calibrated, core)
        fields["classes"] = parts.calibrated.classes
        fields["platt"] = None  # predict_proba is the calibrators' now
    elif fields.get("break_ties") and fields["decision_function_shape"] == "ovo":
        # scikit-learn fits such a model and refuses to predict with it.
        raise ValueError("break_ties is True with decision_function_shape='ovo'; ties are broken in shape 'ovr' only.")

    front = list(parts.front)
    if front:
        if fields["kernel"].has_native_code:
            fields["scaling"] = _read_scaler(front[-1])
        # What the first transformer takes is what the user has: text, for example, has no width.
        width = getattr(front[0], "n_features_in_", None)
        fields["n_features"] = None if width is None else int(width)
        if fields.get("scaling") is not None:
            front.pop()
    names = getattr(parts.front[0] if parts.front else core, "feature_names_in_", None)
    return KernelMachine(
        **fields,
        front=tuple(front),
        feature_names=None if names is None else np.array(names, dtype=object),
        source=f"{'svelto' if isinstance(core, ExponentialSVC) else 'scikit-learn'} {type(core).__name__}",
    )


# -- from outside to inside ------------------------------------------------------------------------------------------


@dataclass
class _Parts:
    core: Any
    front: list[Any] = field(default_factory=list)
    calibrated: Any = None  # the single fitted pair of classifier and calibrators


def _unwrap(estimator: Any) -> _Parts:
    if isinstance(estimator, FrozenEstimator):
        return _unwrap(estimator.estimator)
    if isinstance(estimator, (GridSearchCV, RandomizedSearchCV)) or hasattr(estimator, "best_estimator_"):
        _check_fitted(estimator, "best_estimator_", "Call its fit method first, with refit=True.")
        return _unwrap(estimator.best_estimator_)
    if isinstance(estimator, Pipeline):
        if not estimator.steps or _is_passthrough(estimator.steps[-1][1]):
            raise TypeError(f"The Pipeline does not end in a model. svelto reads {_SUPPORTED}.")
        inner = _unwrap(estimator.steps[-1][1])
        return _Parts(inner.core, _transformers(estimator.steps[:-1]) + inner.front, inner.calibrated)
    if isinstance(estimator, CalibratedClassifierCV):
        _check_fitted(estimator, "calibrated_classifiers_")
        n_models = len(estimator.calibrated_classifiers_)
        if n_models != 1:
            raise ValueError(
                f"The CalibratedClassifierCV averages {n_models} classifiers; svelto reads one. "
                "Fit it again with ensemble=False."
            )
        calibrated = estimator.calibrated_classifiers_[0]
        inner = _unwrap(calibrated.estimator)
        if inner.calibrated is not None:
            raise TypeError("A CalibratedClassifierCV inside another cannot be read; calibrate once.")
        return _Parts(inner.core, inner.front, calibrated)
    return _Parts(estimator)


def _transformers(steps: list[tuple[str, Any]]) -> list[Any]:
    """List the steps that act on a query, in order; pipelines inside a pipeline are laid out flat."""
    result: list[Any] = []
    for _, given in steps:
        if _is_passthrough(given) or hasattr(given, "fit_resample"):
            continue  # imbalanced-learn's samplers act in fit only
        step = given
        while isinstance(step, FrozenEstimator):
            step = step.estimator
        if type(step) is Pipeline:
            result += _transformers(step.steps)
        else:
            result.append(step)
    return result


def _is_passthrough(step: Any) -> bool:
    return step is None or (isinstance(step, str) and step == "passthrough")


def _check_fitted(estimator: Any, attribute: str, advice: str = "Call its fit method first.") -> None:
    try:
        check_is_fitted(estimator, attribute)
    except NotFittedError:
        raise NotFittedError(
            f"This {type(estimator).__name__} is not fitted: it has no {attribute}. {advice}"
        ) from None


def _refuse(core: Any) -> NoReturn:
    name = type(core).__name__
    if isinstance(core, (LinearSVC, LinearSVR)):
        raise TypeError(
            f"{name} is already one dot product for each score: no kernel sum is left to make faster. "
            f"svelto reads {_SUPPORTED}."
        )
    raise TypeError(f"Cannot read a kernel machine from {name}. svelto reads {_SUPPORTED}.")


# -- LIBSVM models ---------------------------------------------------------------------------------------------------


def _read_libsvm(svm: Any) -> dict[str, Any]:
    _check_fitted(svm, "_dual_coef_")
    dual_coef = svm._dual_coef_.toarray() if sparse.issparse(svm._dual_coef_) else np.asarray(svm._dual_coef_)
    kernel, vectors, n_features = _libsvm_kernel(svm)
    is_classifier = isinstance(svm, (SVC, NuSVC))
    if dual_coef.shape[1] == 0:
        if is_classifier:
            raise ValueError(
                f"The {type(svm).__name__} has no support vectors: training stopped before its first step "
                f"(tol={svm.tol}, max_iter={svm.max_iter}). Fit it again with a smaller tol or more iterations."
            )
        # Every target lies inside the tube of width epsilon: a constant. One vector of weight 0 says the same.
        dual_coef = np.zeros((1, 1))
    fields: dict[str, Any] = {
        "kernel": kernel,
        "support_vectors": vectors,
        "dual_coef": dual_coef,
        "intercept": svm._intercept_,
        "n_features": n_features,
        "svm_type": svm._impl,
    }
    if not is_classifier:
        return fields | {"task": "outlier" if isinstance(svm, OneClassSVM) else "regression", "rule": "value"}
    return fields | {
        "task": "classification",
        "rule": "pairs",
        "classes": svm.classes_,
        "vote_order": np.arange(len(svm.classes_)),
        "n_support": svm._n_support,
        "decision_function_shape": svm.decision_function_shape,
        "break_ties": bool(svm.break_ties),
        # Fitted with probability=True; scikit-learn runs the coupling's iteration for two classes too.
        "platt": PlattPairs(svm._probA, svm._probB, iterate_two=True) if len(svm._probA) else None,
    }


def _libsvm_kernel(svm: Any) -> tuple[Kernel, Rows, int | None]:
    """Read the kernel, its support vectors and the width of a row."""
    if callable(svm.kernel):
        return _callable_kernel(svm)
    if svm.kernel == "precomputed":
        columns = svm.support_ if len(svm.support_) else np.zeros(1, dtype=np.int64)
        return Kernel("precomputed"), columns, int(svm.shape_fit_[0])
    numbers: dict[str, Any] = {"gamma": float(svm._gamma), "coef0": float(svm.coef0), "degree": int(svm.degree)}
    kernel = Kernel(svm.kernel, **{name: numbers[name] for name in LIBSVM_NUMBERS[svm.kernel]})
    vectors = dense_or_csr(svm.support_vectors_)
    n_features = int(vectors.shape[1])
    return kernel, vectors if vectors.shape[0] else np.zeros((1, n_features)), n_features


def dense_or_csr(X: Rows) -> Rows:
    """A sparse matrix as it is the smaller and the faster to multiply; a dense one stays."""
    if not sparse.issparse(X):
        return X
    return X.tocsr() if X.nnz < _SPARSE_BELOW * X.shape[0] * X.shape[1] else X.toarray()


def _callable_kernel(svm: Any) -> tuple[Kernel, Rows, int | None]:
    """Keep a Python kernel on the support vectors alone where that gives the values of all training rows.

    scikit-learn calls ``kernel(X, X_fit)`` with every training row. A function that looks at its second argument as a
    whole (normalises by it, counts its rows) answers differently for a part of it; such a one keeps all of them.
    """
    X_fit, support = svm._BaseLibSVM__Xfit, svm.support_
    support = support if len(support) else np.zeros(1, dtype=np.int64)
    vectors = _safe_indexing(X_fit, support)
    function = MatrixKernel(svm.kernel)
    probe = _safe_indexing(X_fit, support[:4])
    try:
        part = function(probe, vectors)
    except Exception:  # anything the user's function does not like about fewer rows
        part = None
    whole = MatrixKernel(svm.kernel, X_fit)
    expected = whole(probe, support)
    shape: tuple[int, ...] = getattr(X_fit, "shape", ())
    n_features = getattr(svm, "n_features_in_", int(shape[1]) if len(shape) == 2 else None)
    # Not equal bits: a matrix product rounds differently for another shape.
    if part is None or part.shape != expected.shape or not np.allclose(part, expected, rtol=1e-9, atol=1e-12):
        return Kernel("callable", function=whole), support, n_features
    return Kernel("callable", function=function), vectors, n_features


@dataclass(frozen=True, eq=False)
class MatrixKernel:
    """A user's ``function(X, S)`` with a dense result; given all training rows, S is a choice of column numbers."""

    function: Callable[[Any, Any], Any]
    X_fit: Any = field(default=None, repr=False)

    @property
    def __name__(self) -> str:
        """What the user calls the function: this is how a machine prints its kernel."""
        return str(getattr(self.function, "__name__", repr(self.function)))

    def __call__(self, X: Rows, S: Rows) -> Any:
        """Kernel values of every row of X with every row of S, in float64."""
        values = self.function(X, S if self.X_fit is None else self.X_fit)
        dense = np.asarray(values.toarray() if sparse.issparse(values) else values, dtype=np.float64)
        return dense if self.X_fit is None else dense[:, S]


# -- KernelRidge -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PairwiseKernel:
    """scikit-learn's `pairwise_kernels` with its parameters bound: a kernel named there, or a function of two rows."""

    metric: Any
    params: dict[str, Any]

    @property
    def __name__(self) -> str:
        """The kernel's name, or the name of the function."""
        return str(getattr(self.metric, "__name__", self.metric))

    def __call__(self, X: Rows, S: Rows) -> Any:
        """Kernel values of every row of X with every row of S."""
        # scikit-learn's compiled chi2 asks for writable arrays, and a machine's are read-only.
        X, S = (np.require(rows, requirements="W") if isinstance(rows, np.ndarray) else rows for rows in (X, S))
        return pairwise_kernels(X, S, metric=self.metric, filter_params=True, **self.params)


def _read_kernel_ridge(ridge: Any) -> dict[str, Any]:
    _check_fitted(ridge, "dual_coef_")
    coef = np.asarray(ridge.dual_coef_, dtype=np.float64)
    vectors = ridge.X_fit_
    if isinstance(ridge.kernel, str) and ridge.kernel == "precomputed":
        kernel, vectors = Kernel("precomputed"), np.arange(len(coef))
    else:
        kernel = _ridge_kernel(ridge)
        vectors = dense_or_csr(vectors)
    rows = coef.reshape(len(coef), -1).T
    return {
        "kernel": kernel,
        "support_vectors": vectors,
        "dual_coef": rows,
        "intercept": np.zeros(len(rows)),
        "task": "regression",
        "rule": "value",
        "n_features": int(ridge.n_features_in_),
        "single_output": coef.ndim == 1,
        "svm_type": "epsilon_svr",
    }


def _ridge_kernel(ridge: Any) -> Kernel:
    if callable(ridge.kernel):
        return Kernel("callable", function=PairwiseKernel(ridge.kernel, dict(ridge.kernel_params or {})))
    name = "poly" if ridge.kernel == "polynomial" else ridge.kernel
    gamma = 1.0 / ridge.n_features_in_ if ridge.gamma is None else float(ridge.gamma)
    if name == "linear":
        return Kernel("linear")
    if name in ("rbf", "laplacian"):
        return Kernel(name, gamma=gamma)
    if name == "sigmoid":
        return Kernel("sigmoid", gamma=gamma, coef0=float(ridge.coef0))
    if name == "poly" and ridge.degree == int(ridge.degree):
        return Kernel("poly", gamma=gamma, coef0=float(ridge.coef0), degree=int(ridge.degree))
    # chi2, additive_chi2, cosine, and a broken power: no code of ours, scikit-learn's own function answers.
    params = {"gamma": ridge.gamma, "degree": ridge.degree, "coef0": ridge.coef0}
    return Kernel("callable", function=PairwiseKernel(name, params))


# -- svelto's own ----------------------------------------------------------------------------------------------------


def _read_exponential(svm: ExponentialSVC) -> dict[str, Any]:
    _check_fitted(svm, "dual_coef_")
    sign = -1.0 if len(svm.classes_) == 2 else 1.0  # back to LIBSVM's signs
    return {
        "kernel": Kernel("exponential", gamma=svm.gamma_),
        "support_vectors": dense_or_csr(svm.support_vectors_),
        "dual_coef": sign * svm.dual_coef_,
        "intercept": sign * svm.intercept_,
        "n_features": int(svm.n_features_in_),
        "task": "classification",
        "rule": "pairs",
        "classes": svm.classes_,
        "vote_order": np.arange(len(svm.classes_)),
        "n_support": svm.n_support_,
        "decision_function_shape": svm.decision_function_shape,
        "break_ties": bool(svm.break_ties),
    }


# -- scalers and calibrators -----------------------------------------------------------------------------------------


def _read_scaler(step: Any) -> Scaling | None:
    """Turn the last step into arrays if it is a known scaler (a subclass may do anything), else None."""
    if type(step) is StandardScaler:
        _check_fitted(step, "scale_")
        shift = step.mean_ if step.with_mean else np.zeros(step.n_features_in_)
        factor = step.scale_ if step.with_std else np.ones(step.n_features_in_)
        return Scaling("divide", shift, factor, transformer=step)
    if type(step) is MinMaxScaler:
        _check_fitted(step, "scale_")
        low, high = step.feature_range if step.clip else (-np.inf, np.inf)
        return Scaling("multiply", step.min_, step.scale_, float(low), float(high), transformer=step)
    if type(step) is MaxAbsScaler:
        _check_fitted(step, "scale_")
        bound = 1.0 if getattr(step, "clip", False) else np.inf  # the parameter is younger than scikit-learn 1.6
        return Scaling("divide", np.zeros(step.n_features_in_), step.scale_, -bound, bound, transformer=step)
    return None


def _read_calibration(calibrated: Any, core: Any) -> Calibration:
    method, known, inner = str(calibrated.method), np.asarray(calibrated.classes), core.classes_
    # For "temperature" scikit-learn fits the classifier on class numbers where the labels are strings.
    numbered = method == "temperature" and np.array_equal(inner, np.arange(len(known)))
    if not (numbered or np.array_equal(known, inner)):
        raise ValueError(
            f"The calibrators know the classes {known.tolist()}, the classifier {inner.tolist()}; expected the same. "
            "Calibrate on rows of every class."
        )
    if method == "temperature" and core.decision_function_shape == "ovo" and len(known) > 2:
        # scikit-learn takes the softmax over pairs of classes here, which is no probability of a class.
        raise ValueError(
            "Temperature calibration needs one score for each class; the classifier has decision_function_shape='ovo'. "
            "Fit it again with decision_function_shape='ovr'."
        )
    calibrators: list[Calibrator] = []
    for calibrator in calibrated.calibrators:
        if method == "sigmoid":
            calibrators.append(Sigmoid(float(calibrator.a_), float(calibrator.b_)))
        elif method == "isotonic":
            calibrators.append(Isotonic(calibrator.X_thresholds_, calibrator.y_thresholds_))
        elif method == "temperature":
            calibrators.append(Temperature(float(calibrator.beta_)))
        else:
            raise ValueError(f"Unknown calibration method {method!r}; expected sigmoid, isotonic or temperature.")
    return Calibration(method, tuple(calibrators))
