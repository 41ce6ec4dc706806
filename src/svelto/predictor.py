"""Predictor: what `accelerate` returns. Checks rows, asks an engine, answers by scikit-learn's conventions."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import numpy as np
from sklearn.utils import _safe_indexing

from svelto import _core
from svelto._inputs import Query, make_query
from svelto._typing import FloatArray
from svelto.cascade import Cascade
from svelto.engines.exact import ExactEngine, ValueEngine, instruction_level
from svelto.engines.stopped_sum import StoppedSum
from svelto.machine import KernelMachine
from svelto.probability import one_class_probability
from svelto.report import Report
from svelto.row_blocks import answer_parts, in_parts
from svelto.sparse_block import CSR, spread_few
from svelto.voting import ovr_decision, sorted_pairs

if TYPE_CHECKING:
    from svelto.export.c import CExport
    from svelto.export.onnx import OnnxExport

# At most this many rows take the short way: one native call on the calling thread, no validation in Python.
SHORT_ROWS = 16
# ... and this many through a cascade that is to use no other thread.
ALONE_ROWS = 4096
# Calibrated classes closer than this are decided on scores in LIBSVM's order.
CLOSE_PROBABILITIES = 1e-9

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
Method = TypeVar("Method", bound=Callable[..., Any])
Engine: TypeAlias = ExactEngine | ValueEngine | StoppedSum | Cascade


class _OfferedIf(Generic[Method]):
    """A method that exists only on predictors for which `reason` returns None; else AttributeError with the reason."""

    def __init__(self, method: Method, reason: Callable[[Predictor], str | None]) -> None:
        self.method = method
        self.reason = reason
        self.__doc__ = method.__doc__

    def __get__(self, instance: Predictor | None, owner: type) -> Any:
        if instance is None:
            return self.method
        reason = self.reason(instance)
        if reason is not None:
            raise AttributeError(reason)
        return self.method.__get__(instance, owner)


def _offered_if(reason: Callable[[Predictor], str | None]) -> Callable[[Method], _OfferedIf[Method]]:
    return lambda method: _OfferedIf(method, reason)


def _no_decision_function(self: Predictor) -> str | None:
    return "A regressor has no decision_function; use predict." if self.machine.task == "regression" else None


def _no_score_samples(self: Predictor) -> str | None:
    return None if self.machine.task == "outlier" else "score_samples belongs to outlier detectors (OneClassSVM)."


def _no_probabilities(self: Predictor) -> str | None:
    machine = self.machine
    if machine.platt is None and machine.calibration is None and machine.density_marks is None:
        return (
            "The model has no probabilities. Train it inside CalibratedClassifierCV(..., ensemble=False), or with "
            "LIBSVM's svm-train -b 1, and accelerate that."
        )
    return None


def _no_score_bounds(self: Predictor) -> str | None:
    if isinstance(self._engine, Cascade):
        return "Scores of an approximation have no proven bound; score_bounds belongs to method='exact'."
    return None


def _no_classes(self: Predictor) -> str | None:
    return None if self.machine.classes is not None else f"A machine for {self.machine.task} has no classes."


class Predictor:
    """A kernel machine that answers fast.

    Made by `svelto.accelerate`. Safe to use from several threads at once; pickles and works inside joblib workers.

    Attributes
    ----------
    machine : KernelMachine
        The machine it answers for.
    report : Report
        Method, promise, measurements.
    classes_ : ndarray
        Sorted class labels (classifiers).
    n_features_in_ : int
        Width of a query row.
    nbytes : int
        Bytes of the arrays it works on.
    """

    def __init__(self, machine: KernelMachine, engine: Engine, report: Report, n_jobs: int | None = None) -> None:
        self.machine = machine
        self.report = report
        self.n_jobs = n_jobs
        self._engine = engine
        self._answers = _answer_table(machine)
        self._prepare_short_way()

    def _prepare_short_way(self) -> None:
        machine = self.machine
        plain = isinstance(self._engine, ExactEngine | Cascade) and not machine.front and machine.calibration is None
        plain = plain and machine.kernel.has_native_code
        self._short_width = machine.n_features if plain and self._answers is not None else None
        self._level = instruction_level()
        self._single_answers = [] if self._answers is None else np.split(self._answers, len(self._answers))
        self._short_single = machine.scaling is None  # scikit-learn's scalers treat float32 rows in float32
        self._asks_single = isinstance(self._engine, Cascade)
        # Exact engines read sparse rows as they are.
        self._short_sparse = plain and machine.scaling is None and isinstance(self._engine, Cascade)

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("machine", "report", "n_jobs", "_engine")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._answers = _answer_table(self.machine)
        self._prepare_short_way()

    # -- answers ---------------------------------------------------------------------------------------------

    def predict(self, X: Any) -> Any:
        """Class labels, +1/-1 for outlier detectors, or values for regressors.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n_samples, n_features)
            Rows to answer for; float32, float64 or whole numbers in any memory order. Large arrays, memory-mapped ones
            too, are read block by block, and Dask arrays and dataframes are answered where they are, by this and the
            other methods (but `work`).

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_targets)
            A Dask array for a Dask collection.
        """
        if (
            type(X) is np.ndarray
            and X.ndim == 2
            and X.shape[1] == self._short_width
            and X.shape[0] > 0
            and (X.shape[0] <= SHORT_ROWS or (self.n_jobs == 1 and self._asks_single and X.shape[0] <= ALONE_ROWS))
            and (X.dtype is _FLOAT64 or (X.dtype is _FLOAT32 and self._short_single))
            and X.flags.c_contiguous
            and X.flags.aligned
        ):
            block: Any = X
        else:
            block = spread_few(X, SHORT_ROWS, self._short_width) if self._short_sparse and isinstance(X, CSR) else None
        if block is not None and block.shape[0] == 1 and self._asks_single:
            label = self._engine.predict_one_row(block)  # type: ignore[union-attr]
            if label >= 0:
                return self._single_answers[label].copy()  # a third of the time of taking
        elif block is not None:
            index = self._engine.predict_one_block(block)  # type: ignore[union-attr]
            if index is not None:
                if len(index) == 1:
                    return self._single_answers[index[0]].copy()
                return self._take(index)
        if in_parts(self.machine, X):
            return answer_parts(self, "predict", X)
        query = self._query(X)
        if self.machine.task == "regression":
            return self._values(self._engine.scores(query, self.n_jobs))
        if self.machine.calibration is not None:
            return self._calibrated_labels(query)
        return self._take(self._engine.labels(query, self.n_jobs)[0])

    def _take(self, index: Any) -> Any:
        """Answers by label number."""
        answers = self._answers
        assert answers is not None
        if answers.itemsize != 8 or answers.dtype.kind not in "iuf":
            return answers.take(index)
        out = np.empty(len(index), dtype=answers.dtype)
        _core.take(answers.view(np.int64), index, out.view(np.int64), self._level)
        return out

    @_offered_if(_no_decision_function)
    def decision_function(self, X: Any) -> Any:
        """Scores by scikit-learn's conventions.

        Two classes: one value a row, positive towards ``classes_[1]``. More classes: one column for each class ("ovr")
        or pair ("ovo"), as the model was set. Outlier detectors: positive inside. In float32 arithmetic each value is
        within `score_bounds` of the float64 machine's; with ``precision="float64"`` the arithmetic is double. The
        columns of "ovr" count votes, and every vote is that of the float64 machine.
        """
        if in_parts(self.machine, X):
            return answer_parts(self, "decision_function", X)
        query, machine = self._query(X), self.machine
        if machine.is_grouped and machine.decision_function_shape == "ovr" and not isinstance(self._engine, Cascade):
            return self._decision(self._signed_scores(query))
        return self._decision(self._engine.scores(query, self.n_jobs))

    @_offered_if(_no_score_samples)
    def score_samples(self, X: Any) -> Any:
        """Scores before the offset is subtracted (outlier detectors)."""
        if in_parts(self.machine, X):
            return answer_parts(self, "score_samples", X)
        scores = self._engine.scores(self._query(X), self.n_jobs)[:, 0]
        return np.asarray(scores - self.machine.intercept[0])

    @_offered_if(_no_probabilities)
    def predict_proba(self, X: Any) -> Any:
        """Probabilities in the order of `classes_` (outlier detectors: normal, outlier), from float64 scores."""
        if in_parts(self.machine, X):
            return answer_parts(self, "predict_proba", X)
        return self._probabilities(self._engine.scores(self._query(X), self.n_jobs, "float64"))

    @_offered_if(_no_score_bounds)
    def score_bounds(self, X: Any) -> Any:
        """Bound on the distance of each score to that of the float64 machine, shape (n_samples, n_scores).

        Columns are those of `predict` (regressors) and of `decision_function`; for its shape "ovr" those of "ovo",
        the pair scores that it is computed from.
        """
        if in_parts(self.machine, X):
            return answer_parts(self, "score_bounds", X)
        assert not isinstance(self._engine, Cascade)
        machine, bounds = self.machine, self._engine.bounded_scores(self._query(X), self.n_jobs)[1]
        if machine.rule == "argmax":
            return _in_sorted_order(bounds, machine)
        return bounds if machine.n_classes < 3 else np.abs(self._sorted_pairs(bounds))

    def work(self, X: Any) -> dict[str, Any]:
        """What predicting X costs: share of rows settled by each stage, and operations a row.

        With a statistical promise "guarded" is the share of rows unlike those it was calibrated on, which the exact
        engine answers, and "rim" that of rows at the edge of those that hinges were built on: they are more careful
        there.
        """
        return self._engine.work(self._query(X), self.n_jobs)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a svelto file: no pickle, checked on load, mapped by all processes that open it.

        Parameters
        ----------
        path : str or path
            File to write; an older one is replaced when the new one is complete. `svelto.load` reads it.

        Raises
        ------
        NotImplementedError
            For kernels that are Python functions and transformers other than scikit-learn's standard, min-max and
            max-abs scalers; nothing is written then. Such predictors can be pickled.
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
        """Write this predictor as one C header: C99, tables and loops, nothing to link but the mathematics library.

        Parameters
        ----------
        path : str or path
            The header; an older one is replaced at once, when the new one is complete.
        name : str, optional
            Prefix of all its names, a C identifier. Default: the file's name.
        dtype : {"float32", "int16", "int8"}, default="float32"
            Of large tables; sums are of floating point numbers in any case.
        max_bytes : int, optional
            Most bytes of tables. Where stages, guard and exact sum together take more, the largest single stage that
            fits is written; it answers every row and promises nothing.
        X : array-like of shape (n_samples, n_features), optional
            Rows on which the header's numbers are compared with this predictor; default: the support vectors.

        Returns
        -------
        CExport
            What was written, its bytes, and the agreement that was measured. The header's comment says the same.

        Examples
        --------
        >>> import tempfile
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.svm import SVC
        >>> import svelto
        >>> rows, y = load_iris(return_X_y=True)
        >>> fast = svelto.accelerate(SVC().fit(rows, y), method="exact")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     written = fast.export_c(f"{folder}/iris.h", X=rows)
        >>> written.name, written.agreement.predictor
        ('iris', 1.0)
        """
        from svelto.export.c import export_predictor

        return export_predictor(self, path, name=name, dtype=dtype, max_bytes=max_bytes, X=X)

    def export_onnx(
        self, path: str | PathLike[str], *, dtype: str = "float32", scores: bool | None = None, X: Any = None
    ) -> OnnxExport:
        """Write this predictor as an ONNX graph of standard operators, for onnxruntime and others like it.

        The graph is the whole cascade: the first stage answers all rows, rows that it leaves open and rows that the
        guard does not know are gathered for the next stage and for the whole sum. Its labels are the predictor's.

        Parameters
        ----------
        path : str or path
            The model; an older one is replaced at once, when the new one is complete.
        dtype : {"float32", "float64"}, default="float32"
            Of the input ``X`` and of all numbers.
        scores : bool, optional
            Whether there is an output ``scores`` beside ``label``. Default: where it costs nothing; not behind a stage
            that knows labels alone (hinges with ``answers="classes"``).
        X : array-like of shape (n_samples, n_features), optional
            Rows on which the graph is compared with this predictor; default: the support vectors.

        Returns
        -------
        OnnxExport
            What was written, and the agreement that was measured. The model's metadata say the same.

        Raises
        ------
        ImportError
            Without the package onnx (``pip install 'svelto[onnx]'``).
        NotImplementedError
            For ``method="sv_tree"``, kernels that are Python functions or precomputed, transformers other than scalers,
            and calibrated classifiers.
        """
        from svelto.export.onnx import export_predictor

        return export_predictor(self, path, dtype=dtype, scores=scores, X=X)

    # -- facts -----------------------------------------------------------------------------------------------

    classes_ = property(lambda self: _required(self, "classes", _no_classes(self)), doc="Sorted class labels.")

    @property
    def n_features_in_(self) -> int:
        """Width of a query row."""
        if self.machine.n_features is None:
            raise AttributeError("A machine on objects has no number of features.")
        return self.machine.n_features

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays this predictor works on."""
        return self._engine.nbytes

    def __repr__(self) -> str:
        return f"Predictor(method={self.report.method!r}, promise={self.report.promise!r}, {self.machine!r})"

    def _repr_html_(self) -> str:
        return self.report._repr_html_()

    # -- parts -----------------------------------------------------------------------------------------------

    def _example(self, method: str, rows: Any) -> Any:
        """One answer, for its type and shape; behind transformers, which may refuse made-up rows, to a vector."""
        machine = self.machine
        if not machine.front:
            return getattr(self, method)(rows)
        plain = copy.copy(self)
        width = int(machine.support_vectors.shape[1])
        plain.machine = replace(machine, front=(), scaling=None, feature_names=None, n_features=width)
        return getattr(plain, method)(machine.support_vectors[:1])

    def _query(self, X: Any) -> Query:
        return make_query(self.machine, X)

    def _values(self, scores: FloatArray) -> FloatArray:
        return scores[:, 0] if self.machine.n_scores == 1 and self.machine.single_output else scores

    def _decision(self, scores: FloatArray) -> FloatArray:
        machine = self.machine
        if machine.task == "outlier":
            return scores[:, 0]
        assert machine.vote_order is not None
        if machine.rule == "argmax":
            return _in_sorted_order(scores, machine)
        if machine.n_classes == 2:
            return scores[:, 0] if machine.vote_order[0] == 1 else -scores[:, 0]
        scores = self._sorted_pairs(scores)
        return ovr_decision(scores, machine.n_classes) if machine.decision_function_shape == "ovr" else scores

    def _sorted_pairs(self, scores: FloatArray) -> FloatArray:
        order = self.machine.vote_order
        assert order is not None
        return scores if (order[:-1] < order[1:]).all() else sorted_pairs(scores, order)

    def _probabilities(self, scores: FloatArray) -> FloatArray:
        machine = self.machine
        if machine.density_marks is not None:
            inside = one_class_probability(scores[:, 0], machine.density_marks)
            return np.column_stack([inside, 1.0 - inside])
        if machine.calibration is not None:
            return machine.calibration.probabilities(self._decision(scores), machine.n_classes)
        assert machine.platt is not None
        return _in_sorted_order(machine.platt.probabilities(scores, machine.n_classes), machine)

    def _signed_scores(self, query: Query) -> FloatArray:
        """Scores whose signs are those of the float64 machine: rows with a pair too close to zero are done again."""
        assert not isinstance(self._engine, Cascade)
        scores, bounds = self._engine.bounded_scores(query, self.n_jobs)
        doubtful = np.flatnonzero((np.abs(scores) <= bounds).any(axis=1))
        for precision in ("float64", "reference"):
            if not len(doubtful):
                break
            part = Query(_safe_indexing(query.rows, doubtful), query.scale)
            scores[doubtful], bounds = self._engine.bounded_scores(part, self.n_jobs, precision)
            doubtful = doubtful[(np.abs(scores[doubtful]) <= bounds).any(axis=1)]
        return scores

    def _calibrated_labels(self, query: Query) -> np.ndarray[Any, Any]:
        """CalibratedClassifierCV answers with its most probable class; close calls are decided on reference scores."""
        chances = self._probabilities(self._engine.scores(query, self.n_jobs, "float64"))
        ranked = np.sort(chances, axis=1)
        close = np.flatnonzero(ranked[:, -1] - ranked[:, -2] < CLOSE_PROBABILITIES)
        if len(close):
            part = Query(_safe_indexing(query.rows, close), query.scale)
            chances[close] = self._probabilities(self._engine.scores(part, self.n_jobs, "reference"))
        assert self.machine.classes is not None
        labels: np.ndarray[Any, Any] = self.machine.classes.take(chances.argmax(axis=1))
        return labels


def _in_sorted_order(columns: FloatArray, machine: KernelMachine) -> FloatArray:
    """Columns of the classes in vote order, put in the order of `classes`."""
    result = np.empty_like(columns)
    result[:, machine.vote_order] = columns
    return result


def _required(predictor: Predictor, name: str, reason: str | None) -> Any:
    if reason is not None:
        raise AttributeError(reason)
    return getattr(predictor.machine, name)


def _answer_table(machine: KernelMachine) -> np.ndarray[Any, Any] | None:
    """Answers by label number: classes in vote order, or -1 and +1; None for regressors."""
    if machine.classes is not None:
        table: np.ndarray[Any, Any] = machine.classes[machine.vote_order]
        return table
    return np.array([-1, 1]) if machine.task == "outlier" else None
