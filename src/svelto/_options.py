"""Checks of options, with messages that name the value and what was expected."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any


def check_whole(name: str, value: Any, smallest: int, more: str = "") -> None:
    """Refuse what is not a whole number of at least `smallest`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < smallest:
        raise ValueError(f"{name} is {value!r}; expected a whole number of at least {smallest}{more}.")


def check_positive(name: str, value: Any) -> None:
    """Refuse what is not a positive finite number."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 < float(value) < float("inf"):
        raise ValueError(f"{name} is {value!r}; expected a positive number.")


def check_choice(name: str, value: Any, choices: tuple[str | None, ...]) -> None:
    """Refuse what is not among the choices."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; expected one of {', '.join(map(repr, choices))}.")
