"""What stages and the exact engine cost for a row, in multiply-adds of a dense product.

Measured on two x86 processors, one thread, as ratios to hinges; `benchmarks/stage_costs.py` prints them beside what the
functions here say. Searches compare sequences by these numbers and not by clocks, so that the same rows and seed give
the same predictor.
"""

from __future__ import annotations

from typing import Any, Final

from svelto.engines.arrays import padded_width
from svelto.feature_blocks import features_read
from svelto.machine import KernelMachine

# A row itself; each of its features (read, and shown to the guard); each class where the largest of several scores or a
# vote decides.
ROW_COST: Final = 800.0
READ_COST: Final = 20.0
CLASS_COST: Final = 40.0
VOTE_COST: Final = 350.0
# A kernel value beside its product with the row: in the exact engine, and of bumps.
KERNEL_COST: Final = 16.0
BUMP_COST: Final = 8.0
# A stored feature of a sparse row against one of a dense row.
STORED_COST: Final = 2.0
# A row and a score of a reduced set that the exact engine evaluates.
ENGINE_ROW_COST: Final = 10_000.0
ENGINE_SCORE_COST: Final = 500.0


def inputs_read(machine: KernelMachine, X: Any) -> float:
    """Features of a dense row that cost as much as those of a usual row: new rows are sparse where vectors are."""
    width = float(X.shape[1])
    return min(STORED_COST * features_read(X), width) if machine.has_sparse_vectors else width


def layer_cost(n_inputs: float, n_columns: int) -> float:
    """Products of a row with the columns of a layer."""
    return (n_inputs + 2.0) * padded_width(n_columns)


def mix_cost(n_columns: float, n_outputs: int) -> float:
    """Several scores as sums over columns; a single one is summed where the columns are made."""
    return 0.0 if n_outputs == 1 else n_columns * padded_width(n_outputs)


def answer_cost(machine: KernelMachine, n_inputs: float, n_outputs: int, *, by_class: bool = False) -> float:
    """What a row takes beside its products: it is read, and scores become a label."""
    each = CLASS_COST if by_class else VOTE_COST
    return ROW_COST + READ_COST * n_inputs + (0.0 if n_outputs == 1 else each * machine.n_classes)


def whole_sum_cost(machine: KernelMachine, X: Any) -> float:
    """The exact engine, where float32 decides."""
    n_columns = machine.dual_coef.shape[0]
    # With several columns it sums magnitudes as well, for the bound.
    return machine.n_sv * (inputs_read(machine, X) + KERNEL_COST + (1 if n_columns == 1 else 2 * n_columns))
