"""How far the numbers of a header are from the predictor's: labels, or values, on rows.

The tables' numbers are given to the predictor's own engine, so nothing has to be compiled. Arithmetic in C differs from
the engine's in rounding alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy import sparse

from svelto._inputs import Query, check_feature_names, check_finite, check_rows
from svelto._typing import FloatArray
from svelto.machine import KernelMachine

# Support vectors that stand in for rows where none are given.
MOST_STAND_INS: Final = 4096


@dataclass(frozen=True)
class Agreement:
    """What was measured, and on what.

    Attributes
    ----------
    rows : str
        Which rows.
    n_rows : int
        How many.
    predictor : float or None
        Share of labels that equal the predictor's; None for regressors.
    machine : float or None
        ... that equal the float64 machine's.
    error : float or None
        Regressors: root mean square difference to the machine's values, as a share of their standard deviation.
    """

    rows: str
    n_rows: int
    predictor: float | None = None
    machine: float | None = None
    error: float | None = None

    def lines(self) -> list[str]:
        """In words."""
        if self.n_rows == 0:
            return ["nothing: no rows were given (X=...)"]
        what = f"{self.n_rows} {self.rows}"
        if self.error is not None:
            return [f"root mean square error {self.error:.3g} of the values' standard deviation on {what}"]
        lines = [f"{self.predictor:.4%} of the labels are those of the Python predictor on {what}"]
        return lines if self.machine is None else [*lines, f"{self.machine:.4%} of them are the float64 machine's"]


def stand_ins(machine: KernelMachine) -> FloatArray:
    """Some support vectors, dense: rows near the boundary, harder than most."""
    vectors = machine.support_vectors
    every = max(1, vectors.shape[0] // MOST_STAND_INS)
    vectors = vectors[::every][:MOST_STAND_INS]
    return np.asarray(vectors.toarray() if sparse.issparse(vectors) else vectors, dtype=np.float64)


def query_of(machine: KernelMachine, X: Any) -> tuple[Query, str]:
    """Rows to measure on, as single floats: C code reads no others."""
    if X is None:
        # Support vectors are scaled already; single floats, as if C code had prepared them.
        vectors = stand_ins(machine).astype(np.float32).astype(np.float64)
        return Query(vectors), "support vectors (no rows were given)"
    check_feature_names(X, machine)
    return Query(single_rows(X, machine.n_features), scale=machine.scaling is not None), "rows given"


def single_rows(X: Any, n_features: int | None) -> FloatArray:
    """Rows as single floats, in float64; refused where a number is too large for them."""
    rows = check_rows(X, n_features)
    dense = np.asarray(rows.toarray() if sparse.issparse(rows) else rows)
    with np.errstate(over="ignore"):
        found: FloatArray = dense.astype(np.float32).astype(np.float64)
    check_finite(found, dense)
    return found


def measure(machine: KernelMachine, predictor: Any, header: Any, X: Any, exact: Any) -> Agreement:
    """Compare engines: the predictor's, the header's, and the exact one."""
    query, what = query_of(machine, X)
    n = int(query.rows.shape[0])
    if machine.task == "regression":
        true: FloatArray = exact.scores(query, None, "float64")
        found: FloatArray = header.scores(query)
        spread = float(true.std()) or 1.0
        return Agreement(what, n, error=float(np.sqrt(np.mean((found - true) ** 2))) / spread)
    own, true_labels, labels = (engine.labels(query)[0] for engine in (predictor, exact, header))
    return Agreement(what, n, float(np.mean(labels == own)), float(np.mean(labels == true_labels)))
