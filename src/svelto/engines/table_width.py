"""How wide a machine may be for what it holds.

Tables of an engine have an entry for each feature, used or not. A sparse machine can claim any width in a few bytes
(one feature number in a LIBSVM file is enough), and memory should follow what is there, not what is claimed.
"""

from __future__ import annotations

from typing import Final

from svelto import _core
from svelto.machine import KernelMachine

# Tables up to this size are made whatever the width; larger ones need this many stored numbers to speak for them. Real
# machines are far from it: 20 million features, 2,000 support vectors of 30 numbers are 10 KiB for each of them.
FREE_BYTES: Final = 1 << 30
BYTES_PER_NUMBER: Final = 1 << 14
# Bytes a feature while it is built. An inverted index: its starts, and counts of features. A linear machine: its planes
# in panels, and as they were before.
INDEX_BYTES: Final = 32
PLANE_BYTES: Final = 3 * 8 * _core.PANEL_WIDTH_F64


def check_width(machine: KernelMachine) -> None:
    """Refuse a sparse machine that is almost nothing but width."""
    if not machine.has_sparse_vectors:
        return
    width, stored = machine.support_vectors.shape[1], machine.support_vectors.nnz
    needed = width * (PLANE_BYTES if machine.kernel.name == "linear" else INDEX_BYTES)
    if needed > max(FREE_BYTES, BYTES_PER_NUMBER * stored):
        raise ValueError(
            f"The machine has {width:,} features, and its support vectors only {stored:,} numbers that are not zero; "
            f"tables with an entry for each feature would take {needed / 2**30:.0f} GiB. Number the features without "
            "gaps and train again."
        )
