"""Machines of neighbourhoods in flat arrays: several sets as one, and any of them in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from svelto._typing import IndexArray
from svelto.training._local.fits import LocalModels


def joined(parts: Sequence[LocalModels]) -> LocalModels:
    """All machines of several sets, one set behind the other."""

    def starts(name: str) -> IndexArray:
        counts = [np.diff(getattr(part, name)) for part in parts]
        return np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)

    names = ("classes", "intercept", "n_iter", "converged", "support", "coef")
    flat: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return LocalModels(
        class_start=starts("class_start"),
        pair_start=starts("pair_start"),
        support_start=starts("support_start"),
        **flat,
    )


def taken(models: LocalModels, machines: IndexArray) -> LocalModels:
    """The machines of a list, in its order."""
    class_start, classes = _pick(models.class_start, machines)
    pair_start, pairs = _pick(models.pair_start, machines)
    support_start, support = _pick(models.support_start, pairs)
    return LocalModels(
        class_start=class_start,
        classes=models.classes[classes],
        pair_start=pair_start,
        intercept=models.intercept[pairs],
        n_iter=models.n_iter[pairs],
        converged=models.converged[pairs],
        support_start=support_start,
        support=models.support[support],
        coef=models.coef[support],
    )


def _pick(start: IndexArray, lists: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Starts of the chosen lists, and the places of all their elements."""
    lengths = (start[1:] - start[:-1])[lists]
    chosen = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    places = np.arange(chosen[-1]) + np.repeat(start[:-1][lists] - chosen[:-1], lengths)
    return chosen, places
