"""Few kernel values for a score, in single precision: a reduced set evaluated as hinges are.

    f_p(x) = sum_h v_hp 2^(w_h.x + c_h - u |x|^2) + b_p        w_h = 2 u s_h,  c_h = -u |s_h|^2,  u = gamma / ln 2

is an rbf machine in the shape of `hinges.hpp`: products of a row with some columns, a function of each, and a mix of
them. The exact engine reads rows in two precisions and bounds their rounding, which for a few dozen vectors takes
several times as long as the sum.

Rows and vectors lose the vectors' mean before they become single floats, so that little is lost where their products
cancel; not where vectors are sparse, whose rows would not be sparse any more.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from svelto._typing import FloatArray
from svelto.engines.arrays import aligned_zeros, padded_rows, padded_width
from svelto.engines.packing import RULE_CODES, add_guard, add_scaling, breaks_ties
from svelto.guard import Guard
from svelto.machine import KernelMachine

# Exponents of vectors up to this size leave kernel values about four digits (2^10 / 2^24).
MOST_EXPONENT: Final = 1024.0
# ... and squares up to this one leave room to those of rows farther out.
MOST_SQUARE: Final = 1e30
# Native code takes no more columns, features or scores.
MOST_COLUMNS: Final = 2**20


def bump_fields(
    machine: KernelMachine, reduced: KernelMachine, unit: FloatArray, guard: Guard | None = None
) -> dict[str, Any] | None:
    """What `_core.HingeStage` reads of a reduced machine that answers for another; None where it cannot serve.

    Parameters
    ----------
    machine : KernelMachine
        The machine that is answered for: its rule decides.
    reduced : KernelMachine
        Values, one row of coefficients a score.
    unit : ndarray of shape (n_scores,)
        Error scale of each score.
    guard : Guard, optional
        Rows that it may not know stay open; on its rim error scales count several times.
    """
    if reduced.kernel.name != "rbf" or reduced.has_sparse_vectors or reduced.is_grouped or breaks_ties(machine):
        return None
    vectors = reduced.support_vectors
    if not 1 <= len(vectors) <= MOST_COLUMNS or max(vectors.shape[1], machine.n_scores) > MOST_COLUMNS:
        return None
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        shift = np.zeros(vectors.shape[1]) if machine.has_sparse_vectors else vectors.mean(axis=0)
        row_weight = float(reduced.kernel.gamma) / math.log(2.0)
        moved = vectors - shift
        sq_norm = (moved**2).sum(axis=1)
        bias = -row_weight * sq_norm
        weights = padded_rows(2.0 * row_weight * moved.T)
        coef = reduced.dual_coef.T
        mix = padded_rows(coef if machine.n_scores > 1 else coef[:, 0])
        intercept = aligned_zeros((padded_width(machine.n_scores) if machine.n_scores > 1 else 1,), np.float32)
        intercept[: machine.n_scores] = reduced.intercept
    finite = all(np.isfinite(part).all() for part in (shift, bias, weights, mix, intercept))
    # Squares of rows like the vectors, and what they are multiplied by, must be single floats.
    if not finite or -bias.min() > MOST_EXPONENT or max(row_weight, sq_norm.max()) > MOST_SQUARE:
        return None
    fields: dict[str, Any] = {
        "d": vectors.shape[1],
        "n_scores": machine.n_scores,
        "n_classes": machine.n_classes,
        "rule": RULE_CODES["sign" if machine.task == "outlier" else machine.rule],
        "break_ties": False,
        "n_bumps": len(vectors),
        "row_weight": row_weight,
        "weights_0": weights,
        "bias_0": padded_rows(bias),
        "mix": mix,
        "intercept": intercept,
        "shift": shift,
        "error": np.array(unit, dtype=np.float64),
    }
    add_scaling(fields, machine)
    add_guard(fields, guard, shift)
    return fields
