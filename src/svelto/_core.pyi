from typing import Any

import numpy as np
from numpy.typing import NDArray

# Rows settled in float32, float64 and by the reference sum; first bad row or -1; its fault; passes over a whole row.
Outcome = tuple[int, int, int, int, int, int]

# Rows settled; first bad row or -1; its fault.
StageOutcome = tuple[int, int, int]

SANITIZED: bool
TREE_LANES: int
GUARD_COLUMNS: int
GUARD_LANES: int
GUARD_ROWS_PER_THREAD: int
STAGE_ROWS_PER_THREAD: int
NEIGHBOUR_LANES: int
EXACT_LANES: int
PANEL_WIDTH_F32: int
PANEL_WIDTH_F64: int
LIST_COUNTS: int
DOUBLE_COST: float
MAX_LOCAL_ROWS: int
# Rule of a HingeStage: one score a class, settled by the distance of the best to the second.
DISTILLED_RULE: int

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
def build_tree(
    rows: NDArray[np.float32],
    leaf_size: int,
    max_leaves: int,
    max_depth: int,
    exact_pairs: int,
    least_share: float,
    seed: int,
    n_threads: int,
    level: str,
) -> dict[str, NDArray[Any]]: ...

# Classes present (start, codes); pairs (start, intercepts, steps, converged); support (start, rows, coefficients).
def fit_local(
    X: NDArray[Any],
    y: NDArray[np.int32],
    weight: NDArray[np.float64],
    start: NDArray[np.int64],
    numbers: NDArray[np.int64],
    kernel: int,
    degree: int,
    coef0: float,
    C: NDArray[np.float64],
    gamma: NDArray[np.float64],
    tol: float,
    max_steps: int,
    n_threads: int,
    level: str,
) -> tuple[NDArray[Any], ...]: ...
def local_spread(
    X: NDArray[np.float64],
    start: NDArray[np.int64],
    numbers: NDArray[np.int64],
    n_threads: int,
    out: NDArray[np.float64],
) -> None: ...
def search_local(
    X: NDArray[Any],
    y: NDArray[np.int32],
    weight: NDArray[np.float64],
    start: NDArray[np.int64],
    numbers: NDArray[np.int64],
    kernel: int,
    degree: int,
    coef0: float,
    fold: NDArray[np.int32],
    worth: NDArray[np.float64],
    C: NDArray[np.float64],
    gamma: NDArray[np.float64],
    tol: float,
    max_steps: int,
    n_threads: int,
    level: str,
    right: NDArray[np.float64],
) -> None: ...
def spread_rows(
    data: NDArray[Any], indices: NDArray[np.int32], row_start: NDArray[np.int32], out: NDArray[Any]
) -> bool: ...
def take(table: NDArray[np.int64], index: NDArray[np.int32], out: NDArray[np.int64], level: str) -> None: ...
def settle(
    scores: NDArray[np.float64],
    bounds: NDArray[np.float64],
    rule: int,
    n_classes: int,
    break_ties: bool,
    out: NDArray[np.int32],
) -> None: ...
def last_rungs(
    scores: NDArray[np.float64],
    errors: NDArray[np.float64],
    rungs: NDArray[np.float64],
    rule: int,
    n_classes: int,
    break_ties: bool,
    n_threads: int,
    out: NDArray[np.int32],
) -> None: ...
def column_sums(
    values: NDArray[np.float32],
    first: int,
    last: int,
    side: NDArray[np.uint8],
    weight: NDArray[np.float64],
    residuals: NDArray[np.float64],
    norms: NDArray[np.float64],
    products: NDArray[np.float64],
    n_threads: int,
) -> None: ...
def partition_rows(
    values: NDArray[np.float32], rows_order: NDArray[np.int64], first: int, last: int, side: NDArray[np.uint8]
) -> int: ...

class LabelStage: ...
class ErrorMap(LabelStage): ...
class RowMarker: ...
class WholeSum: ...

class ReducedStage(LabelStage):
    def __init__(self, whole: WholeSum, errors: ErrorMap | None, fields: dict[str, Any]) -> None: ...
    def labels_dense(
        self, X: NDArray[Any], out: NDArray[np.int32], caution: float, scale: bool, n_threads: int
    ) -> StageOutcome: ...
    def labels_csr(
        self,
        data: NDArray[Any],
        indices: NDArray[Any],
        row_start: NDArray[Any],
        out: NDArray[np.int32],
        caution: float,
        n_threads: int,
    ) -> StageOutcome: ...

class Cascade:
    def __init__(
        self,
        stages: list[LabelStage],
        cautions: list[float],
        guards_itself: list[bool],
        guard: RowMarker | None,
        exact: WholeSum,
        precision: int,
        rows_per_thread: float,
        rows_per_call: float,
    ) -> None: ...
    def labels_dense(
        self, X: NDArray[Any], out: NDArray[np.int32], settled: NDArray[np.int64], scale: bool, n_threads: int
    ) -> tuple[int, int]: ...
    def labels_csr(
        self,
        data: NDArray[Any],
        indices: NDArray[Any],
        row_start: NDArray[Any],
        out: NDArray[np.int32],
        settled: NDArray[np.int64],
        n_threads: int,
    ) -> tuple[int, int]: ...
    def answer_block(self, X: NDArray[Any], out: NDArray[np.int32]) -> bool: ...
    def answer_row(self, X: NDArray[Any]) -> int: ...

class Guard(RowMarker):
    def __init__(self, fields: dict[str, Any], level: str) -> None: ...
    def mark_dense(self, X: NDArray[Any], out: NDArray[np.bool_], scale: bool, n_threads: int) -> StageOutcome: ...
    def mark_csr(
        self,
        data: NDArray[Any],
        indices: NDArray[Any],
        row_start: NDArray[Any],
        out: NDArray[np.bool_],
        n_threads: int,
    ) -> StageOutcome: ...

class PlainArithmetic:
    def __init__(self) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *args: object) -> None: ...

class Engine(WholeSum):
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
    def set_lists(self, fields: dict[str, Any]) -> None: ...
    # Settled by a bound, row times panel summed in lists, outcome of the rest; `used` is added to.
    def bounded_dense(
        self,
        X: NDArray[Any],
        out: NDArray[np.int32],
        enabled: NDArray[np.uint8],
        used: NDArray[np.int64],
        precision: int,
        scale: bool,
        n_threads: int,
    ) -> tuple[int, int, Outcome]: ...
    def bounded_csr(
        self,
        data: NDArray[Any],
        indices: NDArray[Any],
        row_start: NDArray[Any],
        out: NDArray[np.int32],
        enabled: NDArray[np.uint8],
        used: NDArray[np.int64],
        precision: int,
        n_threads: int,
    ) -> tuple[int, int, Outcome]: ...
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

class TreeStage(ErrorMap):
    def __init__(self, fields: dict[str, Any], level: str) -> None: ...
    def labels_dense(
        self, X: NDArray[Any], out: NDArray[np.int32], caution: float, scale: bool, n_threads: int
    ) -> StageOutcome: ...
    def labels_csr(
        self,
        data: NDArray[Any],
        indices: NDArray[Any],
        row_start: NDArray[Any],
        out: NDArray[np.int32],
        caution: float,
        n_threads: int,
    ) -> StageOutcome: ...
    def scores_dense(
        self,
        X: NDArray[Any],
        scores: NDArray[np.float64],
        errors: NDArray[np.float64],
        sq_dist: NDArray[np.float64],
        leaf: NDArray[np.int32],
        depth: NDArray[np.int32],
        scale: bool,
        n_threads: int,
    ) -> StageOutcome: ...
    def scores_csr(
        self,
        data: NDArray[Any],
        indices: NDArray[Any],
        row_start: NDArray[Any],
        scores: NDArray[np.float64],
        errors: NDArray[np.float64],
        sq_dist: NDArray[np.float64],
        leaf: NDArray[np.int32],
        depth: NDArray[np.int32],
        n_threads: int,
    ) -> StageOutcome: ...
    def certified_dense(
        self,
        X: NDArray[Any],
        out: NDArray[np.int32],
        scores: NDArray[np.float64],
        bounds: NDArray[np.float64],
        scale: bool,
        n_threads: int,
    ) -> StageOutcome: ...
    def certified_csr(
        self,
        data: NDArray[Any],
        indices: NDArray[Any],
        row_start: NDArray[Any],
        out: NDArray[np.int32],
        scores: NDArray[np.float64],
        bounds: NDArray[np.float64],
        n_threads: int,
    ) -> StageOutcome: ...

class PathStage(LabelStage):
    def __init__(self, fields: dict[str, Any], level: str) -> None: ...
    def labels_dense(
        self, X: NDArray[Any], out: NDArray[np.int32], caution: float, scale: bool, n_threads: int
    ) -> StageOutcome: ...
    def labels_csr(
        self,
        data: NDArray[Any],
        indices: NDArray[Any],
        row_start: NDArray[Any],
        out: NDArray[np.int32],
        caution: float,
        n_threads: int,
    ) -> StageOutcome: ...
    def scores_dense(
        self,
        X: NDArray[Any],
        scores: NDArray[np.float64],
        errors: NDArray[np.float64],
        leaf: NDArray[np.int32],
        evaluations: NDArray[np.int32],
        scale: bool,
        n_threads: int,
    ) -> StageOutcome: ...
    def scores_csr(
        self,
        data: NDArray[Any],
        indices: NDArray[Any],
        row_start: NDArray[Any],
        scores: NDArray[np.float64],
        errors: NDArray[np.float64],
        leaf: NDArray[np.int32],
        evaluations: NDArray[np.int32],
        n_threads: int,
    ) -> StageOutcome: ...

class DistanceLists:
    def __init__(self, fields: dict[str, Any]) -> None: ...
    def labels_dense(
        self,
        X: NDArray[Any],
        out: NDArray[np.int32],
        evaluations: NDArray[np.int64],
        shared: bool,
        scale: bool,
        n_threads: int,
    ) -> StageOutcome: ...
    def labels_csr(
        self,
        data: NDArray[Any],
        indices: NDArray[Any],
        row_start: NDArray[Any],
        out: NDArray[np.int32],
        evaluations: NDArray[np.int64],
        shared: bool,
        n_threads: int,
    ) -> StageOutcome: ...

# Squared distances of rows[row_of[i]] and queries[query_of[i]]; queries are padded with zeros to EXACT_LANES.
def pair_distances(
    level: str,
    rows: NDArray[np.float64],
    queries: NDArray[np.float64],
    row_of: NDArray[np.int32],
    query_of: NDArray[np.int32],
    out: NDArray[np.float64],
) -> None: ...

class NeighbourTree:
    # `rows` are read by every search, `images` only here.
    def __init__(
        self,
        level: str,
        images: NDArray[np.float32],
        rows: NDArray[np.float64],
        scale: float,
        leaf_rows: int,
        n_threads: int,
    ) -> None: ...
    # Numbers of images that were read, and rows whose distance was computed.
    def search(
        self,
        queries: NDArray[np.float64],
        images: NDArray[np.float32],
        norms: NDArray[np.float64],
        index: NDArray[np.int32],
        sq_dist: NDArray[np.float64],
        n_threads: int,
    ) -> tuple[int, int]: ...
    def n_slots(self) -> int: ...

class HullSolver:
    # `weights` is written by `advance`; it is a feasible start if has_start.
    def __init__(
        self,
        points: NDArray[np.float64],
        target: NDArray[np.float64],
        lower: NDArray[np.float64],
        upper: NDArray[np.float64],
        weights: NDArray[np.float64],
        has_start: bool,
        tol: float,
        zero_tol: float,
        n_threads: int,
    ) -> None: ...
    # Status, |w|^2, gap, steps and passes so far.
    def advance(self, max_passes: int, seconds: float, n_threads: int) -> tuple[int, float, float, int, int]: ...
    def direction(self, out: NDArray[np.float64]) -> None: ...

class ChainStage:
    def __init__(self, fields: dict[str, Any], level: str) -> None: ...
    def labels_dense(self, X: NDArray[Any], out: NDArray[np.int32], vote: bool, n_threads: int) -> StageOutcome: ...
    def labels_csr(
        self,
        data: NDArray[Any],
        indices: NDArray[Any],
        row_start: NDArray[Any],
        out: NDArray[np.int32],
        vote: bool,
        n_threads: int,
    ) -> StageOutcome: ...
    # Scores of classes, (n_rows, 1) or (n_rows, n_classes).
    def scores_dense(self, X: NDArray[Any], out: NDArray[np.float64], n_threads: int) -> StageOutcome: ...
    def scores_csr(
        self,
        data: NDArray[Any],
        indices: NDArray[Any],
        row_start: NDArray[Any],
        out: NDArray[np.float64],
        n_threads: int,
    ) -> StageOutcome: ...
    # Labels, and the planes evaluated for each row.
    def work_dense(
        self, X: NDArray[Any], out: NDArray[np.int32], work: NDArray[np.int32], n_threads: int
    ) -> StageOutcome: ...
    def work_csr(
        self,
        data: NDArray[Any],
        indices: NDArray[Any],
        row_start: NDArray[Any],
        out: NDArray[np.int32],
        work: NDArray[np.int32],
        n_threads: int,
    ) -> StageOutcome: ...
    # Every chain of every row, each output (n_rows, n_chains).
    def trace_dense(
        self,
        X: NDArray[Any],
        outcome: NDArray[np.int8],
        node: NDArray[np.int32],
        score: NDArray[np.float64],
        n_threads: int,
    ) -> StageOutcome: ...
    def trace_csr(
        self,
        data: NDArray[Any],
        indices: NDArray[Any],
        row_start: NDArray[Any],
        outcome: NDArray[np.int8],
        node: NDArray[np.int32],
        score: NDArray[np.float64],
        n_threads: int,
    ) -> StageOutcome: ...

# Fields of a HingeStage. Columns of a layer: the n_scores scores, then its hinges; width(n) is n rounded up to
# TREE_LANES. All float32 arrays are 64-byte aligned, and zero where nothing stands.
#   d, n_scores, n_classes, rule, break_ties, scaling_*   as in TreeStage; rule may also be DISTILLED_RULE
#   n_layers                 1 or 2
#   n_hinges                 int32 (n_layers,)
#   weights_0, bias_0        float32 (d, width(n_scores + n_hinges[0])), (width,)
#   weights_1, bias_1        float32 (n_hinges[0], width(n_scores + n_hinges[1])), (width,); with two layers
#   mix                      float32; one score: (width of the last layer,), 1 for the score and a weight for each hinge
#                            several: (n_hinges[-1], width(n_scores))
#   shift                    float64 (d,), taken off every row; CSR rows are fast only where it is zero
#   error                    float64 (n_scores,), not negative
# With n_bumps the columns are 2^(x @ weights_0 + bias_0 - row_weight |x|^2), there is one layer without columns of
# scores, and neither n_layers nor n_hinges:
#   weights_0, bias_0        float32 (d, width(n_bumps)), (width,)
#   row_weight               not negative
#   mix                      float32; one score: (width(n_bumps),), several: (n_bumps, width(n_scores))
#   intercept                float32; one score: (1,), several: (width(n_scores),)
# errors: a map of how many times a row's error scales count, for labels; scores_* give them counted once.
class HingeStage(LabelStage):
    def __init__(self, fields: dict[str, Any], level: str, errors: ErrorMap | None = None) -> None: ...
    def labels_dense(
        self, X: NDArray[Any], out: NDArray[np.int32], caution: float, scale: bool, n_threads: int
    ) -> StageOutcome: ...
    def labels_csr(
        self,
        data: NDArray[Any],
        indices: NDArray[Any],
        row_start: NDArray[Any],
        out: NDArray[np.int32],
        caution: float,
        n_threads: int,
    ) -> StageOutcome: ...
    def scores_dense(
        self,
        X: NDArray[Any],
        scores: NDArray[np.float64],
        errors: NDArray[np.float64],
        scale: bool,
        n_threads: int,
    ) -> StageOutcome: ...
    def scores_csr(
        self,
        data: NDArray[Any],
        indices: NDArray[Any],
        row_start: NDArray[Any],
        scores: NDArray[np.float64],
        errors: NDArray[np.float64],
        n_threads: int,
    ) -> StageOutcome: ...
    # Labels, and the smallest caution at which each is no longer given; -1 and 0 where there is none.
    def caution_dense(
        self, X: NDArray[Any], out: NDArray[np.int32], caution: NDArray[np.float64], scale: bool, n_threads: int
    ) -> StageOutcome: ...
    def caution_csr(
        self,
        data: NDArray[Any],
        indices: NDArray[Any],
        row_start: NDArray[Any],
        out: NDArray[np.int32],
        caution: NDArray[np.float64],
        n_threads: int,
    ) -> StageOutcome: ...

class LocalStage:
    def __init__(self, fields: dict[str, Any], level: str) -> None: ...
    # Rows and their machines, the latter ascending; scores (n_queries, 1) or (n_queries, n_classes).
    def scores_dense(
        self,
        X: NDArray[Any],
        row: NDArray[np.int64],
        machine: NDArray[np.int64],
        out: NDArray[np.float64],
        n_threads: int,
    ) -> StageOutcome: ...
    def scores_csr(
        self,
        data: NDArray[Any],
        indices: NDArray[Any],
        row_start: NDArray[Any],
        row: NDArray[np.int64],
        machine: NDArray[np.int64],
        out: NDArray[np.float64],
        n_threads: int,
    ) -> StageOutcome: ...
