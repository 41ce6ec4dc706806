"""Somebody who answers for the same data: how to ask, and what it cost to have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from numpy.typing import NDArray

from svelto._typing import Rows

Predict: TypeAlias = Callable[[Rows], NDArray[Any]]


@dataclass
class Contender:
    """One way to predict the test rows of a case.

    Attributes
    ----------
    name : str
        As in the tables.
    rows : Rows
        Test rows in the form that it reads fastest; conversion is done before any clock runs.
    with_threads : callable
        Takes a number of threads, gives `predict`.
    nbytes : int
        Bytes that it takes on disk.
    seconds : float or None
        Time of building or training it; None where that is not known.
    note : str
        What a reader should know.
    labels : array, optional
        Labels of all rows, where they are known already.
    facts : dict
        For the record.
    """

    name: str
    rows: Rows
    with_threads: Callable[[int], Predict]
    nbytes: int
    seconds: float | None
    note: str = ""
    labels: NDArray[Any] | None = None
    facts: dict[str, Any] = field(default_factory=dict)
