"""How many threads a call may use.

`n_jobs` follows joblib where it is given (-1: all, -2: all but one). None means every thread that the process may use,
as for scikit-learn's own OpenMP code. Either way the answer never exceeds the OpenMP limit, which `OMP_NUM_THREADS`,
`threadpoolctl.threadpool_limits` and joblib's worker processes set.
"""

from __future__ import annotations

import os
import threading

import joblib
from joblib._parallel_backends import SequentialBackend
from joblib.parallel import get_active_backend

try:  # scikit-learn's view of OpenMP; private, so a future release may move it
    from sklearn.utils._openmp_helpers import _openmp_effective_n_threads as _openmp_limit
except ImportError:  # pragma: no cover

    def _openmp_limit() -> int:
        asked = os.environ.get("OMP_NUM_THREADS", "")
        if asked.isdigit() and int(asked) > 0:
            return int(asked)
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Counted(int):
    """Threads that were counted for this call already: asking joblib takes as long as a hundred rows."""


def thread_count(n_jobs: int | None) -> int:
    """Threads for one call.

    Parameters
    ----------
    n_jobs : int or None
        As in scikit-learn; see the module's text.

    Returns
    -------
    int
        At least 1.
    """
    if isinstance(n_jobs, Counted):
        return n_jobs
    if type(n_jobs) is int and n_jobs == 1:
        return 1  # whatever the limit: small batches take less time than asking for it
    limit = max(1, int(_openmp_limit()))
    backend, configured = get_active_backend()
    if getattr(backend, "nesting_level", 0) and threading.current_thread() is not threading.main_thread():
        return 1  # a joblib thread: its siblings already use the other cores
    if n_jobs == -1 and not isinstance(backend, SequentialBackend):
        return limit  # no more than all cores; to count these takes joblib fifty microseconds
    if n_jobs is None:
        if configured in (None, 1, -1):  # joblib says 1 where nobody asked for anything
            return limit
        n_jobs = configured
    return max(1, min(limit, int(joblib.effective_n_jobs(n_jobs))))


def check_n_jobs(n_jobs: int | None) -> None:
    """Refuse what joblib would refuse later, with the value."""
    if n_jobs is not None and (isinstance(n_jobs, bool) or not hasattr(n_jobs, "__index__") or int(n_jobs) == 0):
        raise ValueError(f"n_jobs is {n_jobs!r}; expected None, a positive number, or -1 for all threads.")
