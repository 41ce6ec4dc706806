"""The parameters of SVMTreeClassifier, checked."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier

from svelto._options import check_choice, check_whole
from svelto._threads import check_n_jobs


class TreeOptions(NamedTuple):
    """Parameters under the names they have in the estimator, where they are explained."""

    tail: Any
    tail_at: str | int
    tail_loss: float
    tail_method: str
    tail_options: Mapping[str, Any]
    last: str
    greedy: int
    prefer: str
    multi_class: str
    scale: str | None
    max_nodes: int
    min_peeled: float
    allowed_error: float
    n_folds: int
    probability: bool
    n_jobs: int | None


def checked_options(estimator: Any) -> TreeOptions:
    """Read the parameters of an estimator, or say which one is wrong."""
    given = {name: getattr(estimator, name) for name in TreeOptions._fields}
    check_choice("multi_class", given["multi_class"], ("ovo", "ovr"))
    check_choice("scale", given["scale"], ("standard", "minmax", None))
    check_choice("last", given["last"], ("auto", "class"))
    check_choice("prefer", given["prefer"], ("margin", "rows"))
    if isinstance(given["greedy"], bool) or given["greedy"] not in (0, 1):
        raise ValueError(f"greedy is {given['greedy']!r}; expected 0 or 1.")
    check_whole("max_nodes", given["max_nodes"], 1)
    check_whole("n_folds", given["n_folds"], 2)
    for name in ("tail_loss", "min_peeled", "allowed_error"):
        share = given[name]
        if isinstance(share, bool) or not isinstance(share, Real) or not 0.0 <= float(share) < 1.0:
            raise ValueError(f"{name} is {share!r}; expected a share from 0 up to, not including, 1.")
        given[name] = float(share)
    if not isinstance(given["probability"], bool | np.bool_):
        raise ValueError(f"probability is {given['probability']!r}; expected True or False.")
    check_n_jobs(given["n_jobs"])
    _check_tail(given)
    return TreeOptions(**given)


def _check_tail(given: dict[str, Any]) -> None:
    from svelto.accelerate import METHODS

    tail, depth = given["tail"], given["tail_at"]
    if isinstance(tail, str):
        check_choice("tail", tail, ("rbf",))
    elif tail is not None and not (hasattr(tail, "fit") and is_classifier(tail)):
        raise ValueError(f"tail is {tail!r}; expected 'rbf', a classifier that can be fitted, or None.")
    if depth != "auto" and (isinstance(depth, bool) or not isinstance(depth, Integral) or depth < 0):
        raise ValueError(f"tail_at is {depth!r}; expected 'auto' or a whole number of at least 0.")
    check_choice("tail_method", given["tail_method"], tuple(METHODS))
    if given["tail_options"] is None:
        given["tail_options"] = {}
    if not isinstance(given["tail_options"], Mapping):
        raise ValueError(f"tail_options is {given['tail_options']!r}; expected a dict of arguments, or None.")
