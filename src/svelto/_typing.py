"""Names for the array types that cross module boundaries."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int32]
# Row numbers and other indices; NumPy makes them in 32 or 64 bits as it sees fit.
IndexArray: TypeAlias = NDArray[np.signedinteger[Any]]

# Rows of a data set: a dense matrix, a SciPy sparse matrix, or a sequence of objects for a callable kernel.
Rows: TypeAlias = Any
