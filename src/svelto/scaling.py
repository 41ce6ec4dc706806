"""A scikit-learn scaler in front of the machine, as arrays.

`Scaling` repeats the scaler's own float64 operations in the same order, so a folded scaler gives the same bits as the
scaler itself on dense float64 rows. Two forms cover StandardScaler, MinMaxScaler and MaxAbsScaler:

    divide    (x - shift) / factor
    multiply  x * factor + shift

and the result is clipped to [low, high] where the scaler clips. A part the scaler skips has the neutral shift 0 or
factor 1: ``x - 0.0`` and ``x / 1.0`` return x bit for bit, so skipping and applying are the same.

scikit-learn treats other rows differently (float32 rows are scaled in float32, sparse rows are multiplied by
``1 / scale``), so the fitted scaler is kept beside the arrays and answers for those: see `apply`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy import sparse

from svelto._typing import FloatArray, Rows


@dataclass(frozen=True, eq=False)
class Scaling:
    """Affine scaling of each feature, in one of two operation orders.

    Attributes
    ----------
    form : {"divide", "multiply"}
        Order of the operations.
    shift, factor : ndarray of shape (n_features,)
        See the module's text.
    low, high : float
        Clipping range of the result; infinite where the scaler does not clip.
    transformer : object, optional
        The fitted scaler these arrays were read from, for rows that are not dense float64. None after loading from a
        file: such rows are then scaled in float64.
    """

    form: Literal["divide", "multiply"]
    shift: FloatArray
    factor: FloatArray
    low: float = -np.inf
    high: float = np.inf
    transformer: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.form not in ("divide", "multiply"):
            raise ValueError(f"The scaler's form is {self.form!r}; expected 'divide' or 'multiply'.")
        for name in ("shift", "factor"):
            array = np.array(getattr(self, name), dtype=np.float64, ndmin=1)
            if not np.isfinite(array).all():
                raise ValueError(
                    f"The scaler's {name} contains {array[~np.isfinite(array)][0]}; expected finite numbers. "
                    "Fit the scaler again on finite data."
                )
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        if self.shift.shape != self.factor.shape:
            raise ValueError(
                f"The scaler's shift has {len(self.shift)} values and its factor {len(self.factor)}; expected as many."
            )

    def __call__(self, X: FloatArray) -> FloatArray:
        """Scale dense float64 rows (the definition; the native core does the same while packing)."""
        scaled = (X - self.shift) / self.factor if self.form == "divide" else X * self.factor + self.shift
        if self.low == -np.inf and self.high == np.inf:
            return scaled
        return np.clip(scaled, self.low, self.high)

    def folds(self, X: Rows) -> bool:
        """Whether the arrays alone give the scaler's own bits on these rows: dense, and float64 or whole numbers."""
        return isinstance(X, np.ndarray) and X.ndim == 2 and (X.dtype == np.float64 or X.dtype.kind in "iub")

    def apply(self, X: Rows) -> Rows:
        """Scale rows of any kind exactly as the fitted scaler does."""
        if self.transformer is not None and not self.folds(X):
            return self.transformer.transform(X)
        return self(np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64))
