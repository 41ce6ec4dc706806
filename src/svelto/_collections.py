"""Dask collections: rows that a machine answers block by block, where they are.

Answers are Dask arrays with the blocks of the rows; nothing is computed before it is asked for. The machine is sent to
the workers once, and again only after it changed. Dask is never imported here unless a collection is given.
"""

from __future__ import annotations

import copy
import warnings
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


def gathered(*arrays: Any, client: Any = None) -> tuple[Any, ...]:
    """The same, with Dask collections computed: by the workers of a client, where one is given."""
    if not any(is_dask(array) for array in arrays):
        return arrays
    import dask

    return tuple(dask.compute(*arrays) if client is None else client.compute(list(arrays), sync=True))


def map_rows(machine: Any, method: str, X: Any, client: Any = None) -> Any:
    """Answers of a machine, block by block.

    Parameters
    ----------
    machine : object
        Has the method, and `n_jobs`.
    method : str
        "predict" or another that takes rows and gives one answer, or one row of answers, for each.
    X : dask array or dask dataframe
        Rows.
    client : dask.distributed.Client, optional
        Whose workers get the machine; Dask's active client where not given.

    Returns
    -------
    dask array
    """
    import dask
    import dask.array as da

    if not isinstance(X, da.Array):
        if not hasattr(X, "_meta_nonempty"):
            raise TypeError(f"X is a {type(X).__name__} of Dask; expected a Dask array or dataframe.")
        example = _example(machine, method, X._meta_nonempty)
        there, ask = _placed(machine, client), dask.delayed(_answer, pure=False)
        blocks = [ask(block, machine=there, method=method, example=example) for block in X.to_delayed()]
        shape = (np.nan, *example.shape[1:])
        return da.concatenate([da.from_delayed(block, shape, dtype=example.dtype) for block in blocks])
    if X.ndim != 2:
        raise ValueError(f"X has {X.ndim} dimensions; expected a Dask array of shape (n_rows, n_features).")
    example = _example(machine, method, np.ones((1, X.shape[1])))  # a wrong width is refused here, not by a worker
    rows = X.rechunk({1: -1})
    return rows.map_blocks(
        _answer,
        machine=_placed(machine, client),
        method=method,
        example=example,
        dtype=example.dtype,
        meta=example[:0],
        **({"drop_axis": 1} if example.ndim == 1 else {"chunks": (rows.chunks[0], example.shape[1:])}),
    )


def _example(machine: Any, method: str, rows: Any) -> np.ndarray[Any, Any]:
    """One answer, for its type and shape: to made-up rows, or to what the machine itself holds."""
    own = getattr(machine, "_example", None)
    with _crew.at_home():
        answers: np.ndarray[Any, Any] = getattr(machine, method)(rows) if own is None else own(method, rows)
    return answers[:1]


def spread_rows(machine: Any, method: str, X: Any, crew: Any) -> np.ndarray[Any, Any]:
    """Answers for an array that is here, by the workers of a Dask cluster."""
    with _crew.at_home(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        example = getattr(machine, method)(X[:1])
    step = max(1, BLOCK_BYTES // max(1, X.shape[1] * 8))
    blocks = [X[start : start + step] for start in range(0, X.shape[0], step)]
    there = _sent_to(crew.client, machine)
    return np.concatenate(crew.run(_quiet_answer, [(block, there, method, example) for block in blocks]))


def _answer(block: Any, machine: Any, method: str, example: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Answer one block, on one thread: other blocks have the others."""
    if block.shape[0] == 0:
        return example[:0]
    if machine.n_jobs is None:
        machine = copy.copy(machine)
        machine.n_jobs = 1
    answers: np.ndarray[Any, Any] = getattr(machine, method)(block)
    return answers


def _quiet_answer(block: Any, machine: Any, method: str, example: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """`_answer`, for rows whose column names were checked before they were cut into blocks."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return _answer(block, machine, method, example)


def _placed(machine: Any, client: Any) -> Any:
    """The machine as an argument of tasks: sent to all workers of a client, if there is one."""
    import dask

    client = _crew.active_client() if client is None else client
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
        # A copy: workers in this process are given the object itself, which may be trained again.
        known = (client, consists_of, client.scatter(copy.copy(machine), broadcast=True, hash=False))
        _sent[machine] = known
    return known[2]
