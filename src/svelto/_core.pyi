from typing import Any

import numpy as np
from numpy.typing import NDArray

# Rows settled in float32, float64 and by the reference sum; first bad row or -1; its fault; passes over a whole row.
Outcome = tuple[int, int, int, int, int, int]

SANITIZED: bool
PANEL_WIDTH_F32: int
PANEL_WIDTH_F64: int

def available_levels() -> list[str]: ...
def exp2_f32(level: str, values: NDArray[np.float32], out: NDArray[np.float32]) -> None: ...
def exp2_f64(level: str, values: NDArray[np.float64], out: NDArray[np.float64]) -> None: ...
def vote_values(
    values: NDArray[np.float64],
    dual_coef: NDArray[np.float64],
    intercept: NDArray[np.float64],
    class_start: NDArray[np.int32],
    rule: int,
    n_classes: int,
    break_ties: bool,
    labels: NDArray[np.int32],
    scores: NDArray[np.float64],
) -> None: ...

class PlainArithmetic:
    def __init__(self) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *args: object) -> None: ...

class Engine:
    def __init__(self, fields: dict[str, Any], level: str) -> None: ...
    def predict_dense(
        self, X: NDArray[Any], out: NDArray[np.int32], precision: int, scale: bool, n_threads: int
    ) -> Outcome: ...
    def predict_csr(
        self,
        data: NDArray[Any],
        indices: NDArray[Any],
        row_start: NDArray[Any],
        out: NDArray[np.int32],
        precision: int,
        n_threads: int,
    ) -> Outcome: ...
    def scores_dense(
        self,
        X: NDArray[Any],
        out: NDArray[np.float64],
        bounds: NDArray[np.float64],
        precision: int,
        scale: bool,
        n_threads: int,
    ) -> Outcome: ...
    def scores_csr(
        self,
        data: NDArray[Any],
        indices: NDArray[Any],
        row_start: NDArray[Any],
        out: NDArray[np.float64],
        bounds: NDArray[np.float64],
        precision: int,
        n_threads: int,
    ) -> Outcome: ...
