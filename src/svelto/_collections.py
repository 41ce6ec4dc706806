"""Dask collections: rows that a machine answers block by block, where they are.

Answers are Dask arrays with the blocks of the rows; nothing is computed before it is asked for. The machine is sent to
the workers once, and again only after it changed. Dask is never imported here unless a collection is given.
"""

from __future__ import annotations

import copy
from typing import Any, Final
from uuid import uuid4
from weakref import WeakKeyDictionary

import numpy as np

from svelto import _crew

# Bytes of a block, where rows come as one array.
BLOCK_BYTES: Final = 4_000_000
# Machines that workers have: machine -> (client, what the machine consisted of, future).
_sent: WeakKeyDictionary[Any, tuple[Any, list[Any], Any]] = WeakKeyDictionary()


def is_dask(X: Any) -> bool:
    """Whether rows are a Dask array or dataframe."""
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(X, "__dask_graph__")


def gathered(*arrays: Any) -> tuple[Any, ...]:
    """The same, with Dask collections computed."""
    if not any(is_dask(array) for array in arrays):
        return arrays
    import dask

    return tuple(dask.compute(*arrays))


def map_rows(machine: Any, method: str, X: Any) -> Any:
    """Answers of a machine, block by block.

    Parameters
    ----------
    machine : object
        Has the method, and `n_jobs`.
    method : str
        "predict" or another that takes rows and gives one answer, or one row of answers, for each.
    X : dask array or dask dataframe
        Rows.

    Returns
    -------
    dask array
    """
    import dask.array as da

    if hasattr(X, "map_partitions") and hasattr(X, "to_delayed") and not isinstance(X, da.Array):
        example = getattr(machine, method)(X._meta_nonempty)[:1]
        blocks = [_delayed_answer(machine, method, block, example) for block in X.to_delayed()]
        shape = (np.nan, *example.shape[1:])
        return da.concatenate([da.from_delayed(block, shape, dtype=example.dtype) for block in blocks])
    if X.ndim != 2:
        raise ValueError(f"X has {X.ndim} dimensions; expected a Dask array of shape (n_rows, n_features).")
    example = getattr(machine, method)(np.ones((1, X.shape[1])))  # a wrong width is refused here, not by a worker
    rows = X.rechunk({1: -1})
    return rows.map_blocks(
        _answer,
        machine=_placed(machine),
        method=method,
        example=example,
        dtype=example.dtype,
        meta=example[:0],
        **({"drop_axis": 1} if example.ndim == 1 else {"chunks": (rows.chunks[0], example.shape[1:])}),
    )


def spread_rows(machine: Any, method: str, X: Any, crew: Any) -> np.ndarray[Any, Any]:
    """Answers for an array that is here, by the workers of a Dask cluster."""
    with _crew.at_home():
        example = getattr(machine, method)(X[:1])
    step = max(1, BLOCK_BYTES // max(1, X.shape[1] * 8))
    blocks = [X[start : start + step] for start in range(0, X.shape[0], step)]
    there = _sent_to(crew.client, machine)
    return np.concatenate(crew.run(_answer, [(block, there, method, example) for block in blocks]))


def _delayed_answer(machine: Any, method: str, block: Any, example: Any) -> Any:
    import dask

    return dask.delayed(_answer, pure=False)(block, machine=_placed(machine), method=method, example=example)


def _answer(block: Any, machine: Any, method: str, example: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Answer one block, on one thread: other blocks have the others."""
    if block.shape[0] == 0:
        return example[:0]
    if machine.n_jobs is None:
        machine = copy.copy(machine)
        machine.n_jobs = 1
    answers: np.ndarray[Any, Any] = getattr(machine, method)(block)
    return answers


def _placed(machine: Any) -> Any:
    """The machine as an argument of tasks: sent to all workers of the active client, if there is one."""
    import dask

    client = _crew.active_client()
    if client is None:
        return dask.delayed(copy.copy(machine), name=f"{type(machine).__name__}-{uuid4()}", traverse=False)
    return dask.delayed(_sent_to(client, machine))


def _sent_to(client: Any, machine: Any) -> Any:
    """The future of a machine that all workers have."""
    consists_of = list(vars(machine).values())
    known = _sent.get(machine)
    if (
        known is None
        or known[0] is not client
        or known[2].status != "finished"
        or len(known[1]) != len(consists_of)
        or any(one is not other for one, other in zip(known[1], consists_of, strict=True))
    ):
        known = (client, consists_of, client.scatter(machine, broadcast=True, hash=False))
        _sent[machine] = known
    return known[2]
