"""The sides of the comparison: svelto, and everything else that can answer for the same machine.

A `Side` knows the test rows in the form that it reads fastest (conversion is done here, outside of the timing), how
to predict them, and how many of them may be timed. Rivals get what helps them: float32 rows, rows made dense, the
best block length. svelto gets the rows that SVC.predict gets: float64, dense or CSR.

A side that is not installed raises ImportError when it is built; `build` turns that into a line of the table.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

import svelto
from _blocked_numpy import BlockedNumpy, PlainNumpy
from _cases import Case
from _svm_predict import SvmPredict
from _timing import Measure, batch_call, timed
from svelto.suite.onnx_machine import OnnxMachine
from svelto.suite.rivals import train_intelex

# svm-predict starts a process and reads text for every measure: this many rows are enough to see its speed.
SVM_PREDICT_ROWS = 500


@dataclass
class Side:
    """One way to predict a case's test rows at a given number of threads."""

    name: str
    predict: Callable[[Any], np.ndarray] | None
    rows: Any
    n_threads: int
    note: str = ""
    only_all: bool = False  # cannot be asked for small batches
    own_labels: Callable[[], np.ndarray] | None = None
    own_measure: Measure | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    close: Callable[[], None] = field(default=lambda: None)

    @property
    def n_rows(self) -> int:
        """Rows that it is asked about at most."""
        return self.rows.shape[0]

    def labels(self) -> np.ndarray:
        """Labels of its rows."""
        return self.own_labels() if self.own_labels else self.predict(self.rows)

    def measure(self, batch: int) -> Measure:
        """Make the measure of one batch."""
        return self.own_measure or timed(batch_call(self.predict, self.rows, batch))


def build_svelto(case: Case, n_threads: int, max_rows: int) -> Side:
    """Predict with svelto's exact engine."""
    fast = svelto.accelerate(case.svc, method="exact", n_jobs=n_threads)
    stages = {name: share for name, share in fast.work(case.X_test)["stages"].items() if share}
    note = "rows settled in " + ", ".join(f"{name}: {100 * share:.4g} %" for name, share in stages.items())
    facts = {"build_seconds": fast.report.build_seconds, "nbytes": fast.nbytes, "stages": stages}
    return Side("svelto", fast.predict, case.X_test, n_threads, note=note, facts=facts)


def build_sklearn(case: Case, n_threads: int, max_rows: int) -> Side:
    """Predict with the model itself; it has one thread."""
    return Side("SVC.predict", case.svc.predict, case.X_test[:max_rows], 1)


def build_intelex(case: Case, n_threads: int, max_rows: int) -> Side:
    """scikit-learn-intelex, trained again on float32 rows: oneDAL cannot take over another model of many classes."""
    model = train_intelex(case).model
    note = f"own training, {len(model.support_)} support vectors"
    return Side("intelex", model.predict, case.X_test.astype(np.float32), n_threads, note=note)


def build_numpy(case: Case, n_threads: int, max_rows: int) -> Side:
    """Blocked NumPy."""
    rows = case.X_test.astype(np.float32)
    blocked = BlockedNumpy(case.machine, n_threads, rows)
    form = (", rows made dense" if blocked.densify else ", CSR product") if case.is_sparse else ""
    note = f"blocks of {blocked.block} rows{form}"
    return Side("NumPy", blocked.predict, rows, n_threads, note=note, close=blocked.close)


def build_plain_numpy(case: Case, n_threads: int, max_rows: int) -> Side:
    """Blocked NumPy as it is usually written."""
    rows = case.X_test.astype(np.float32)
    plain = PlainNumpy(case.machine, rows)
    return Side("plain NumPy", plain.predict, rows, n_threads, note=f"blocks of {plain.block} rows")


def build_onnxruntime(case: Case, n_threads: int, max_rows: int) -> Side:
    """Run the ONNX graph."""
    import onnx  # noqa: F401 - named first, so that a missing one is named
    import onnxruntime  # noqa: F401

    rows = case.X_test.astype(np.float32)
    rows = np.ascontiguousarray(rows.toarray() if sparse.issparse(rows) else rows)
    machine = OnnxMachine(case.machine, n_threads, rows)
    form = ", rows made dense" if case.is_sparse else ""
    return Side("onnxruntime", machine.predict, rows, n_threads, note=f"blocks of {machine.block} rows{form}")


def build_svm_predict(case: Case, n_threads: int, max_rows: int) -> Side:
    """LIBSVM's program; it has one thread."""
    rows = case.X_test[: min(max_rows, SVM_PREDICT_ROWS)]
    program = SvmPredict(case.machine, rows)
    return Side(
        "svm-predict",
        None,
        rows,
        1,
        note="one row's run subtracted",
        only_all=True,
        own_labels=lambda: program.labels(case.labels.dtype),
        own_measure=program.measure,
        close=program.close,
    )


# In the order of the tables; svelto is always the first.
BUILDERS: dict[str, Callable[[Case, int, int], Side]] = {
    "svelto": build_svelto,
    "SVC.predict": build_sklearn,
    "intelex": build_intelex,
    "plain NumPy": build_plain_numpy,
    "NumPy": build_numpy,
    "onnxruntime": build_onnxruntime,
    "svm-predict": build_svm_predict,
}


def build(names: list[str], case: Case, n_threads: int, max_rows: int) -> tuple[dict[str, Side], dict[str, str]]:
    """Build the named sides; those that cannot be had, with the reason."""
    sides, missing = {}, {}
    for name in ["svelto", *(n for n in BUILDERS if n in names and n != "svelto")]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # rivals' own, about NumPy versions and the like
                sides[name] = BUILDERS[name](case, n_threads, max_rows)
        except ImportError as error:
            missing[name] = "not installed" if isinstance(error, ModuleNotFoundError) else f"not available: {error}"
    return sides, missing
