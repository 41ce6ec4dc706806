"""C and gamma of every neighbourhood, chosen by cross-validation of its own rows."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from svelto._typing import FloatArray, IntArray
from svelto.training._local.fits import search_local
from svelto.training._local.options import LARGEST

# Factors of the given values. Of equal ones the first is taken: the given values, then near ones, then smooth ones.
C_FACTORS: Final = (1.0, 0.1, 10.0, 100.0)
GAMMA_FACTORS: Final = (1.0, 0.25, 4.0)
N_FOLDS: Final = 3


def drawn_folds(n_neighbourhoods: int, k: int, draws: Any) -> IntArray:
    """Folds of the rows of each neighbourhood: (n_neighbourhoods, k)."""
    folds: IntArray = np.empty((n_neighbourhoods, k), dtype=np.int32)
    for i in range(n_neighbourhoods):
        folds[i] = draws.permutation(k) % N_FOLDS
    return folds


def best_of_grid(
    problems: tuple[Any, ...],
    C: FloatArray,
    gamma: FloatArray,
    folds: IntArray,
    progress: Any,
    given: dict[str, Any],
) -> tuple[FloatArray, FloatArray]:
    """Values for each neighbourhood around those given, with the most right answers on its held-out rows.

    Parameters
    ----------
    problems : tuple
        Rows, class codes and neighbourhoods: the first four arguments of `search_local`.
    C, gamma : ndarray of shape (n_neighbourhoods,)
        What the grid lies around.
    folds : ndarray of int32
        Fold of each row of each neighbourhood; see `drawn_folds`.
    progress : callable
        As in `fit_local`.
    given : dict
        Further arguments of `search_local`.

    Returns
    -------
    C, gamma : ndarray of shape (n_neighbourhoods,)
    """
    factors = GAMMA_FACTORS if given["kernel"].name == "rbf" else (1.0,)
    grid_C, grid_gamma = (
        np.minimum(values[:, None] * np.array(around), LARGEST) for values, around in ((C, C_FACTORS), (gamma, factors))
    )
    right = search_local(
        *problems,
        folds=folds,
        C=grid_C,
        gamma=grid_gamma,
        progress=progress,
        **given,
    )
    best_gamma, best_C = np.unravel_index(right.reshape(len(right), -1).argmax(axis=1), right.shape[1:])
    return grid_C[np.arange(len(C)), best_C], grid_gamma[np.arange(len(C)), best_gamma]
