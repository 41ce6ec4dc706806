"""A KernelMachine in the layout of the native core.

Support vectors are packed in panels (32 float32 or 16 float64 vectors side by side, feature by feature). They are
grouped so that every group's weights have one sign, which makes the size of a group's sum the magnitude that the
rounding bound needs: by the sign of the weight where there is one score, by class for one-vs-one machines (LIBSVM's
weights of a class against another have one sign). Where that does not hold, extra columns of |weights| take its place.

The linear kernel is collapsed: one weight vector for each score, no support vectors left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse

from svelto import _core
from svelto._typing import FloatArray, Rows
from svelto.engines.arrays import aligned
from svelto.machine import KernelMachine

if TYPE_CHECKING:
    from svelto.guard import Guard

KERNEL_CODES: Final = {"rbf": 0, "exponential": 1, "laplacian": 2, "poly": 3, "sigmoid": 4, "linear": 5}
RULE_CODES: Final = {"pairs": 0, "argmax": 1, "sign": 2, "value": 3}
LAYOUT_CODES: Final = {"single": 0, "classes": 1, "columns": 2}
PAIR_CODES: Final = {"dot": 0, "sq_diff": 1, "abs_diff": 2}
# float64 works on raw values and direct differences, as LIBSVM does; CSR rows use norms and products instead.
PAIRS_F64: Final = {"rbf": "sq_diff", "exponential": "sq_diff", "laplacian": "abs_diff"}
# Up to this many columns of weights the lanes of a product run over the vectors, beyond over the (padded) columns.
FEW_COLUMNS: Final = 8
LOG2_E: Final = math.log2(math.e)

Fields = dict[str, Any]


@dataclass(frozen=True)
class Grouping:
    """Which support vectors form which group, and the columns of weights of each."""

    layout: str
    members: list[np.ndarray[Any, Any]]
    columns: FloatArray  # (n_cols, n_sv), abs columns included
    abs_cols: int


def pack_machine(
    machine: KernelMachine, *, single_pair: str | None, use_postings: bool, grouping: Grouping | None = None
) -> Fields:
    """Arrays and numbers for `_core.Engine`.

    Parameters
    ----------
    machine : KernelMachine
        With a kernel that has native code.
    single_pair : {"dot", "sq_diff", "abs_diff"} or None
        How the float32 tier computes distances; None leaves that tier out.
    use_postings : bool
        Keep very sparse support vectors as an inverted index instead of panels.
    grouping : Grouping, optional
        Groups whose members stand in another order; default `group_vectors`.
    """
    linear = machine.kernel.name == "linear"
    grouping = group_vectors(machine) if grouping is None else grouping
    fields = machine_fields(machine, grouping.layout, grouping.abs_cols, single_pair, use_postings=use_postings)
    fields["coef_sum"] = _coef_sums(machine)
    fields["vector_norm"] = _largest_norm(machine.support_vectors)
    fields["coef_total"] = float(np.abs(machine.dual_coef).sum(axis=1).max())
    if linear:
        _add_linear(fields, machine)
        return fields
    if use_postings:
        _add_postings(fields, machine, grouping)
    else:
        _add_double_panels(fields, machine, grouping)
    if fields["has_f32"]:
        assert single_pair is not None
        _add_single_panels(fields, machine, grouping, single_pair)
    return fields


def machine_fields(
    machine: KernelMachine, layout: str, abs_cols: int, single_pair: str | None, *, use_postings: bool
) -> Fields:
    """What `_core.Engine` reads of a machine as it is: numbers, and its own arrays, without looking at their values."""
    kernel = machine.kernel
    linear = kernel.name == "linear"
    fields: Fields = {
        "kernel": KERNEL_CODES[kernel.name],
        "rule": RULE_CODES["sign" if machine.task == "outlier" else machine.rule],
        "layout": LAYOUT_CODES[layout],
        "d": machine.support_vectors.shape[1],
        "n_sv": machine.n_sv,
        "n_scores": machine.n_scores,
        "n_classes": machine.n_classes,
        "break_ties": breaks_ties(machine),
        "has_f32": single_pair is not None and not use_postings and not linear,
        "use_postings": use_postings,
        "abs_cols": abs_cols,
        "coef0": kernel.coef0,
        "degree": kernel.degree,
        "gamma": kernel.gamma,
        "n_rows": machine.dual_coef.shape[0],
        "is_grouped": machine.is_grouped,
        "intercept": machine.intercept,
        "dual_coef": np.ascontiguousarray(machine.dual_coef),
    }
    if machine.is_grouped:
        assert machine.n_support is not None
        fields["class_start"] = np.concatenate([[0], np.cumsum(machine.n_support)]).astype(np.int32)
    add_scaling(fields, machine)
    _add_reference_vectors(fields, machine)
    return fields


def group_vectors(machine: KernelMachine) -> Grouping:
    """Choose groups whose weighted sums have one sign each."""
    coef = machine.dual_coef
    everything = np.arange(machine.n_sv)
    if machine.kernel.name == "linear":
        return Grouping("columns", [everything], coef, 0)
    # poly and sigmoid values may be negative: their bound does not use magnitudes, so no split is needed.
    needs_sign = machine.kernel.name not in ("poly", "sigmoid")
    if machine.is_grouped:
        assert machine.n_support is not None
        members = np.split(everything, np.cumsum(machine.n_support)[:-1])
        one_signed = all(((coef[:, m] >= 0).all(axis=1) | (coef[:, m] <= 0).all(axis=1)).all() for m in members)
        return _with_magnitudes("classes", members, coef, needs_sign and not one_signed)
    if machine.n_scores == 1:
        if not needs_sign:
            return Grouping("single", [everything], coef, 0)
        split = [np.flatnonzero(coef[0] >= 0), np.flatnonzero(coef[0] < 0)]
        return Grouping("single", [m for m in split if len(m)], coef, 0)
    return _with_magnitudes("columns", [everything], coef, needs_sign)


def _with_magnitudes(layout: str, members: list[Any], coef: FloatArray, needed: bool) -> Grouping:
    if not needed:
        return Grouping(layout, members, coef, 0)
    return Grouping(layout, members, np.vstack([coef, np.abs(coef)]), len(coef))


def _coef_sums(machine: KernelMachine) -> FloatArray:
    """Sum |dual_coef| of each score; for the linear kernel the norm of sum |dual_coef| |s|, a bound on its products."""
    absolute = np.abs(machine.dual_coef)
    if machine.kernel.name == "linear":
        vectors = np.abs(machine.support_vectors)
        per_score = [np.asarray(row @ vectors).ravel() for row in expand_rows(machine, absolute)]
        return np.array([_largest_norm(row[None, :]) for row in per_score])
    return np.array([float(row.sum()) for row in expand_rows(machine, absolute)])


def expand_rows(machine: KernelMachine, coef: FloatArray) -> list[FloatArray]:
    """One full row of weights for each score, from LIBSVM's compact layout where that is in use."""
    if not machine.is_grouped:
        return list(coef)
    assert machine.n_support is not None
    start = np.concatenate([[0], np.cumsum(machine.n_support)])
    rows = []
    for i in range(machine.n_classes):
        for j in range(i + 1, machine.n_classes):
            row = np.zeros(machine.n_sv)
            row[start[i] : start[i + 1]] = coef[j - 1, start[i] : start[i + 1]]
            row[start[j] : start[j + 1]] = coef[i, start[j] : start[j + 1]]
            rows.append(row)
    return rows


def breaks_ties(machine: KernelMachine) -> bool:
    """Whether equal votes are decided by the scores; scikit-learn has this for its "ovr" form of several classes."""
    return machine.break_ties and machine.decision_function_shape == "ovr" and machine.n_classes > 2


def add_scaling(fields: Fields, machine: KernelMachine) -> None:
    """The scaler in front of the machine, as native code reads it."""
    scaling = machine.scaling
    fields["scaling_form"] = 0 if scaling is None else {"divide": 1, "multiply": 2}[scaling.form]
    if scaling is not None:
        fields["scaling_shift"] = np.ascontiguousarray(scaling.shift)
        fields["scaling_factor"] = np.ascontiguousarray(scaling.factor)
        fields["scaling_low"], fields["scaling_high"] = float(scaling.low), float(scaling.high)


def add_guard(fields: Fields, guard: Guard | None, shift: FloatArray) -> None:
    """The guard of a stage whose rows lose a shift, and how many times error scales count on its rim."""
    if guard is not None:
        fields["guard"] = guard.in_single_precision(shift, rim=True)
        fields["rim_factor"] = 1.0 if guard.core is None else guard.core.factor


def _add_reference_vectors(fields: Fields, machine: KernelMachine) -> None:
    vectors = machine.support_vectors
    fields["is_csr"] = machine.has_sparse_vectors
    if machine.has_sparse_vectors:
        fields["vector_start"] = vectors.indptr.astype(np.int64)
        fields["vector_columns"] = vectors.indices.astype(np.int32, copy=False)
        fields["vectors"] = np.ascontiguousarray(vectors.data)
    else:
        fields["vectors"] = np.ascontiguousarray(vectors)


def positions_of(members: list[Any], width: int) -> tuple[Any, Any, int]:
    """Packed position of every vector, groups padded to whole panels: (positions, group starts in panels, panels)."""
    panels = [-(-len(m) // width) for m in members]
    start = np.concatenate([[0], np.cumsum(panels)]).astype(np.int32)
    positions = np.empty(sum(len(m) for m in members), dtype=np.int64)
    for m, first in zip(members, start[:-1], strict=True):
        positions[m] = int(first) * width + np.arange(len(m))
    return positions, start, int(start[-1])


def _add_layout(fields: Fields, suffix: str, grouping: Grouping, dtype: Any, width: int, coef: FloatArray) -> Any:
    """Groups and weights of one precision; returns the packed positions."""
    positions, start, n_panels = positions_of(grouping.members, width)
    n_cols = len(coef)
    by_column, padded = column_layout(n_cols, dtype)
    if by_column:
        weights = np.zeros((n_cols, n_panels * width), dtype=dtype)
        weights[:, positions] = coef
    else:
        weights = np.zeros((n_panels * width, padded), dtype=dtype)
        weights[positions, :n_cols] = coef.T
    fields["by_column" + suffix] = by_column
    fields["group_start" + suffix] = start
    fields["n_groups" + suffix] = len(grouping.members)
    fields["n_cols" + suffix] = n_cols
    fields["padded_cols" + suffix] = padded
    fields["n_panels" + suffix] = n_panels
    fields["weights" + suffix] = aligned(weights)
    return positions


def column_layout(n_cols: int, dtype: Any) -> tuple[bool, int]:
    """Whether weights lie column by column, and the columns with padding where they do not."""
    by_column = n_cols <= FEW_COLUMNS
    pad = 64 // np.dtype(dtype).itemsize
    return by_column, 0 if by_column else -(-n_cols // pad) * pad


def panel_array(vectors: np.ndarray[Any, Any], positions: Any, n_panels: int, width: int) -> np.ndarray[Any, Any]:
    """[n_panels][d][width] from rows."""
    rows = np.zeros((n_panels * width, vectors.shape[1]), dtype=vectors.dtype)
    rows[positions] = vectors
    return aligned(np.swapaxes(rows.reshape(n_panels, width, -1), 1, 2))


def _constants(values: FloatArray, positions: Any, size: int, dtype: Any) -> np.ndarray[Any, Any]:
    packed = np.zeros(size, dtype=dtype)
    packed[positions] = values
    return aligned(packed)


def _dense(machine: KernelMachine) -> FloatArray:
    vectors = machine.support_vectors
    dense: FloatArray = vectors.toarray() if sparse.issparse(vectors) else vectors
    return dense


def _power_of_two(value: float) -> float:
    """A power of two near the value: scaling by it is exact."""
    return math.ldexp(1.0, min(max(math.frexp(value)[1], -1020), 1020))


def _largest_norm(vectors: Rows) -> float:
    """Largest Euclidean norm of a row; neither underflows nor overflows before the result does."""
    values = vectors.data if sparse.issparse(vectors) else vectors
    largest = float(np.abs(values).max(initial=0.0))
    if not 0.0 < largest < math.inf:
        return largest
    unit = _power_of_two(largest)
    if sparse.issparse(vectors):
        scaled = vectors / unit
        return unit * math.sqrt(float(scaled.multiply(scaled).sum(axis=1).max()))
    return unit * float(np.linalg.norm(vectors / unit, axis=1).max())


def _stats(vectors: FloatArray, centre2: float = 0.0) -> FloatArray:
    norms = _largest_norm(vectors), np.abs(vectors).sum(axis=1).max()
    return np.array([*norms, centre2, vectors.shape[1]])


def _add_double_panels(fields: Fields, machine: KernelMachine, grouping: Grouping) -> None:
    """float64 panels of the raw values."""
    kernel, vectors, width = machine.kernel, _dense(machine), _core.PANEL_WIDTH_F64
    positions = _add_layout(fields, "_f64", grouping, np.float64, width, grouping.columns)
    n_panels = fields["n_panels_f64"]
    pair = PAIRS_F64.get(kernel.name, "dot")
    fields["pair_f64"] = PAIR_CODES[pair]
    fields["vectors_f64"] = panel_array(vectors, positions, n_panels, width)
    constant = np.abs(vectors).sum(axis=1) if pair == "abs_diff" else (vectors**2).sum(axis=1)
    fields["vector_const_f64"] = _constants(constant, positions, n_panels * width, np.float64)
    fields["sparse_const_f64"] = fields["vector_const_f64"]
    fields["stats_f64"] = _stats(vectors)
    fields["scale_f64"] = -kernel.gamma * LOG2_E
    fields["row_scale_f64"] = kernel.gamma if pair == "dot" else 1.0


def _add_single_panels(fields: Fields, machine: KernelMachine, grouping: Grouping, pair: str) -> None:
    """float32 panels.

    Distances do not change when everything is shifted, so the vectors' mean is taken off: smaller norms, smaller
    rounding. The product form also folds sqrt(2 gamma / ln 2) into both sides.
    """
    kernel, vectors, width = machine.kernel, _dense(machine), _core.PANEL_WIDTH_F32
    scale_of_weights = _power_of_two(max(float(np.abs(machine.dual_coef).max()), 1e-300))
    fields["weight_scale"] = scale_of_weights
    positions = _add_layout(fields, "_f32", grouping, np.float32, width, grouping.columns / scale_of_weights)
    n_panels = fields["n_panels_f32"]
    is_distance = kernel.name in ("rbf", "exponential")
    centre = vectors.mean(axis=0) if is_distance else np.zeros(vectors.shape[1])
    # Powers of two keep the packed values near one, so that neither tiny nor huge data leave float32's range.
    if pair == "dot":
        if kernel.name == "rbf":
            vector_scale = row_scale = math.sqrt(2.0 * kernel.gamma * LOG2_E)
        else:
            vector_scale = 1.0 / _power_of_two(max(float(np.abs(vectors).max()), 1e-300))
            row_scale = kernel.gamma / vector_scale
            if abs(row_scale) < 2.0**-900:  # it would lose digits to underflow, which no bound covers
                vector_scale, row_scale = 1.0, kernel.gamma
        scale = 0.0
    else:
        rate = kernel.gamma * LOG2_E
        root = math.sqrt(rate) if kernel.name == "rbf" else rate
        vector_scale = row_scale = _power_of_two(root) if 0.0 < root < math.inf else 0.0
        scale = (
            0.0 if row_scale == 0.0 else -(rate / row_scale / row_scale if kernel.name == "rbf" else rate / row_scale)
        )
    packed = ((vectors - centre) * vector_scale).astype(np.float32)
    exact = packed.astype(np.float64)
    centre2 = float(np.linalg.norm(centre * row_scale))
    if pair == "abs_diff":
        constant = sparse_constant = np.abs(exact).sum(axis=1)
    else:
        constant = 0.5 * (exact**2).sum(axis=1)
        sparse_constant = constant + exact @ (centre * row_scale)
    fields["pair_f32"] = PAIR_CODES[pair]
    fields["vectors_f32"] = panel_array(packed, positions, n_panels, width)
    fields["vector_const_f32"] = _constants(constant, positions, n_panels * width, np.float32)
    fields["sparse_const_f32"] = _constants(sparse_constant, positions, n_panels * width, np.float32)
    fields["stats_f32"] = _stats(exact, centre2)
    fields["scale_f32"] = scale
    fields["row_scale_f32"] = row_scale
    fields["has_centre"] = is_distance
    fields["centre"] = centre


def _add_postings(fields: Fields, machine: KernelMachine, grouping: Grouping) -> None:
    """An inverted index: for each feature the packed positions and values of the vectors that have it."""
    kernel, vectors, width = machine.kernel, machine.support_vectors, _core.PANEL_WIDTH_F64
    positions = _add_layout(fields, "_f64", grouping, np.float64, width, grouping.columns)
    columns = vectors.tocsc()
    fields["posting_start"] = columns.indptr.astype(np.int64)
    fields["posting_vector"] = positions[columns.indices].astype(np.int32)
    fields["posting_value"] = np.ascontiguousarray(columns.data)
    sq_norm = np.asarray(vectors.multiply(vectors).sum(axis=1)).ravel()
    norm1 = np.asarray(np.abs(vectors).sum(axis=1)).ravel()
    pair = PAIRS_F64.get(kernel.name, "dot")
    constant = norm1 if pair == "abs_diff" else sq_norm
    fields["pair_f64"] = PAIR_CODES[pair]
    fields["vector_const_f64"] = _constants(constant, positions, fields["n_panels_f64"] * width, np.float64)
    fields["sparse_const_f64"] = fields["vector_const_f64"]
    most_stored = int(np.diff(vectors.indptr).max())
    fields["stats_f64"] = np.array([math.sqrt(float(sq_norm.max())), float(norm1.max()), 0.0, most_stored])
    fields["scale_f64"] = -kernel.gamma * LOG2_E
    fields["row_scale_f64"] = kernel.gamma if pair == "dot" else 1.0


def _add_linear(fields: Fields, machine: KernelMachine) -> None:
    vectors, width = machine.support_vectors, _core.PANEL_WIDTH_F64
    collapsed = np.vstack([np.asarray(row @ vectors).ravel() for row in expand_rows(machine, machine.dual_coef)])
    n_panels = -(-len(collapsed) // width)
    fields.update(
        {
            "layout": LAYOUT_CODES["columns"],
            "abs_cols": 0,
            "pair_f64": PAIR_CODES["dot"],
            "n_groups_f64": 1,
            "n_cols_f64": len(collapsed),
            "padded_cols_f64": 0,
            "by_column_f64": True,
            "n_panels_f64": n_panels,
            "group_start_f64": np.array([0, n_panels], dtype=np.int32),
            "vectors_f64": panel_array(collapsed, np.arange(len(collapsed)), n_panels, width),
            "vector_const_f64": aligned(np.zeros(n_panels * width)),
            "stats_f64": _stats(collapsed),
            "scale_f64": 0.0,
            "row_scale_f64": 1.0,
        }
    )
    fields["sparse_const_f64"] = fields["vector_const_f64"]
