"""Workers elsewhere: those of a Dask cluster, or of any joblib backend that is not this machine.

A crew runs a function for a list of calls. A Dask crew also holds objects for its workers, so that functions run where
their rows are; what a worker held that died is sent to another, and what it was doing is done again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

import joblib
from joblib import parallel
from joblib.parallel import get_active_backend

# A call whose worker is lost this often is given up: it is the call that kills them.
MOST_TRIES: Final = 4
LOST: Final = "One task lost its worker again and again; it may need more memory. Use more workers, or a smaller k."
# joblib's own backends, all on this machine, which native threads use better.
AT_HOME: Final = (
    parallel.SequentialBackend,
    parallel.ThreadingBackend,
    parallel.LokyBackend,
    parallel.MultiprocessingBackend,
)

_stays: ContextVar[bool] = ContextVar("_stays", default=False)


class Held:
    """An object on some worker, and how to make it again."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make
        self.future: Any = None


class DaskCrew:
    """The workers of a `dask.distributed.Client`."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._turn = 0

    @property
    def n_threads(self) -> int:
        """Calls that can run at one time, at least 1."""
        return max(1, int(sum(self.client.nthreads().values())))

    @property
    def n_workers(self) -> int:
        """Processes that can hold something, at least 1."""
        return max(1, len(self.client.nthreads()))

    def hold(self, makers: Sequence[Callable[[], Any]]) -> list[Held]:
        """Send what these functions make to workers, one after the other."""
        held = [Held(make) for make in makers]
        for each in held:
            self._send(each)
        return held

    def _send(self, held: Held) -> None:
        workers = sorted(self.client.nthreads())
        if not workers:  # all were lost: wait for the first that comes back
            self.client.wait_for_workers(1, timeout=60)
            workers = sorted(self.client.nthreads())
        self._turn += 1
        # In a list: collections would be taken apart.
        at = [workers[self._turn % len(workers)]]
        (held.future,) = self.client.scatter([held.make()], workers=at, hash=False)

    def run(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], progress: Any = None) -> list[Any]:
        """Results of a function for each list of arguments, in order; held objects may be among the arguments.

        Parameters
        ----------
        function : callable
            What to run. It must not change its arguments, for it may run twice.
        calls : sequence of tuple
            Arguments.
        progress : callable, optional
            Called with the numbers of calls done and of all calls. What it raises ends the work.

        Returns
        -------
        list
        """
        from dask.distributed import KilledWorker, as_completed

        results: list[Any] = [None] * len(calls)
        tries = [0] * len(calls)
        number: dict[Any, int] = {}
        done = 0
        try:
            for i, call in enumerate(calls):
                number[self._submit(function, call)] = i
            if progress is None:
                with suppress(CancelledError):  # one message for all answers, unless something was lost
                    return list(self.client.gather(list(number)))
            waiting = as_completed(list(number))
            for batch in waiting.batches():
                for future in batch:
                    i = number.pop(future)
                    finished, value = _result(future)
                    if finished:
                        results[i], done = value, done + 1
                        if progress is not None:
                            progress(done, len(calls))
                        continue
                    tries[i] += 1
                    if tries[i] >= MOST_TRIES:
                        raise RuntimeError(LOST)
                    again = self._submit(function, calls[i], lost=True)
                    number[again] = i
                    waiting.add(again)
        except KilledWorker as error:
            self.client.cancel(list(number))
            raise RuntimeError(LOST) from error
        except BaseException:
            self.client.cancel(list(number))
            raise
        return results

    def _submit(self, function: Callable[..., Any], call: tuple[Any, ...], *, lost: bool = False) -> Any:
        for each in call:
            if isinstance(each, Held) and (each.future.status != "finished" or (lost and self._is_gone(each))):
                self._send(each)
        arguments = [each.future if isinstance(each, Held) else each for each in call]
        return self.client.submit(function, *arguments, pure=False)

    def _is_gone(self, held: Held) -> bool:
        """Whether no worker has an object; the client may not have been told yet."""
        return not any(self.client.who_has([held.future]).values())


def _result(future: Any) -> tuple[bool, Any]:
    """Whether a call has been answered, and by what; not, where what its worker held is gone."""
    try:
        return True, future.result()
    except CancelledError:
        return False, None


class JoblibCrew:
    """The workers of joblib's active backend."""

    @property
    def n_threads(self) -> int:
        """Calls that can run at one time."""
        return max(1, int(joblib.effective_n_jobs(None)))

    def run(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], progress: Any = None) -> list[Any]:
        """Results of a function for each list of arguments, in order."""
        results: list[Any] = joblib.Parallel()(joblib.delayed(function)(*call) for call in calls)
        if progress is not None:
            progress(len(calls), len(calls))
        return results


Crew: TypeAlias = DaskCrew | JoblibCrew


@contextmanager
def at_home() -> Iterator[None]:
    """Calls inside are answered by this machine, whatever backend is active."""
    token = _stays.set(True)
    try:
        yield
    finally:
        _stays.reset(token)


def find_crew(client: Any = None, *, dask_rows: bool = False) -> Crew | None:
    """Who works for a call.

    Parameters
    ----------
    client : dask.distributed.Client, optional
        Given by the user.
    dask_rows : bool
        Whether rows came as a Dask collection: the active client's workers have them.

    Returns
    -------
    DaskCrew, JoblibCrew or None
        None: this machine's threads.
    """
    if client is not None:
        if not hasattr(client, "scatter") or not hasattr(client, "submit") or getattr(client, "asynchronous", False):
            raise ValueError(f"client is {client!r}; expected a dask.distributed.Client (not an asynchronous one).")
        if _inside_a_task():
            raise ValueError(
                "client was given inside of a Dask task, which would hold a thread while it waits for other tasks. "
                "Call from the process that has the client, or leave client out."
            )
        return DaskCrew(client)
    if _inside_a_task():
        return None
    if dask_rows:
        active = active_client()
        return None if active is None else DaskCrew(active)
    if _stays.get():
        return None
    backend, _ = get_active_backend()
    if type(backend) in AT_HOME or (getattr(backend, "nesting_level", None) or 0) > 0:
        return None
    own_client = getattr(backend, "client", None)
    return JoblibCrew() if own_client is None else DaskCrew(own_client)


def _inside_a_task() -> bool:
    """Whether this is a worker's thread with a task: others may need it, so nobody else is asked from here."""
    distributed = sys.modules.get("distributed")  # a worker has imported it; nobody else shall wait for that
    try:
        return distributed is not None and distributed.get_worker() is not None
    except ValueError:
        return False


def active_client() -> Any:
    """The client that Dask would use, or None."""
    try:
        from dask.distributed import default_client
    except ImportError:
        return None
    try:
        client = default_client()
    except ValueError:
        return None
    return None if client.asynchronous else client
