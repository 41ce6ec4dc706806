"""Rows that a method is built on, as the caller passes them: checked, and brought to where the kernel takes over."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from svelto._inputs import check_finite, checked_rows, dense_sample, make_query, n_rows_of
from svelto._typing import FloatArray, Rows
from svelto.machine import KernelMachine
from svelto.same_objects import without

# Largest difference of a value from its feature's mean.
SMALLEST, LARGEST = 1e-15, 1e15
LEAST_CALIBRATION: Final = 2


class UnfitRowsError(ValueError):
    """Rows that are sound, but that nothing can be built on."""


def read_rows(
    machine: KernelMachine, X: Any, X_calibration: Any, method: str, seed: int, *, least: int
) -> tuple[Any, Rows | None]:
    """Rows to build on and rows to calibrate on (or None): dense float64 and any, scaled; or objects as they are."""
    if not machine.kernel.has_native_code:
        return _objects(machine, X, X_calibration, least)
    rows = checked_rows(machine, X, "X")
    given = None if X_calibration is None else checked_rows(machine, X_calibration, "X_calibration")
    _check_enough("X", rows, least)
    if given is not None:
        _check_enough("X_calibration", given, LEAST_CALIBRATION)
        rows = _other_rows(rows, given, least)
    dense = dense_sample(rows, seed)
    if (dense == dense[0]).all():
        raise UnfitRowsError(f"All {len(dense)} rows of X are identical; expected rows like those to come.")
    _check_range(dense, method)
    return dense, given


def _objects(machine: KernelMachine, X: Any, X_calibration: Any, least: int) -> tuple[Any, Any]:
    found: list[Any] = []
    for name, given, fewest in (("X", X, least), ("X_calibration", X_calibration, LEAST_CALIBRATION)):
        if given is None:
            found.append(None)
            continue
        try:
            rows = make_query(machine, given).rows
            if machine.kernel.name == "precomputed":
                check_finite(rows, rows)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        _check_enough(name, rows, fewest)
        found.append(rows)
    if found[1] is not None:
        found[0] = _other_rows(found[0], found[1], least)
    return found[0], found[1]


def _other_rows(rows: Rows, given: Rows, least: int) -> Rows:
    """Rows to build on that are not among those to calibrate on: what is learned by heart proves nothing."""
    others = without(rows, given)
    if n_rows_of(others) < least:
        raise ValueError(
            f"All but {n_rows_of(others)} of the {n_rows_of(rows)} rows of X are in X_calibration too, and a promise "
            "can only be checked on rows that nothing was built on. Pass other rows as X_calibration, or leave it out."
        )
    return others


def _check_enough(name: str, rows: Rows, least: int) -> None:
    if n_rows_of(rows) < least:
        raise UnfitRowsError(
            f"{name} has {n_rows_of(rows)} row(s); expected at least {least}, and thousands are better."
        )


def _check_range(X: FloatArray, method: str) -> None:
    """Distances are computed in float32: their squares must neither overflow nor vanish."""
    size = float(np.abs(X - X.mean(axis=0)).max())
    if not SMALLEST < size < LARGEST:
        raise UnfitRowsError(
            f"The values of X differ by up to {size:.3g}; method={method!r} expects differences between {SMALLEST:g} "
            f"and {LARGEST:g}. Scale the features before training, or use method='exact'."
        )
