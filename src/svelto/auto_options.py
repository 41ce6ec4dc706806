"""What the caller of method="auto" needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from svelto._options import check_choice, check_positive, check_whole
from svelto.engines.exact import Precision


@dataclass(frozen=True)
class AutoOptions:
    """Options of ``method="auto"``.

    Attributes
    ----------
    batch_size : int, optional
        Rows of a call to `predict`, for which the predictor is to be fast; default: many.
    max_bytes : int, optional
        Most bytes of its arrays, exact engine included; with ``agreement=None`` of a stage alone.
    time_budget : float, optional
        Seconds after which no further candidate is built; the best so far is returned, at worst the exact engine.
    tolerance : float, optional
        ``|error|`` of a regressor that counts as agreement; without it a regressor gets the exact engine.
    precision : {"auto", "float32", "float64"}, default="auto"
        Arithmetic of the exact engine's scores.
    """

    batch_size: int | None = None
    max_bytes: int | None = None
    time_budget: float | None = None
    tolerance: float | None = None
    precision: Precision = "auto"

    def __post_init__(self) -> None:
        check_choice("precision", self.precision, ("auto", "float32", "float64"))
        for name in ("batch_size", "max_bytes"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1, " or None")
        for name in ("time_budget", "tolerance"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))


def read_auto_options(options: Mapping[str, Any]) -> AutoOptions:
    """The options, checked."""
    names = tuple(field.name for field in fields(AutoOptions))
    for name in options:
        if name not in names:
            raise TypeError(f"method='auto' has no option {name!r}; it has: {', '.join(names)}.")
    return AutoOptions(**options)
