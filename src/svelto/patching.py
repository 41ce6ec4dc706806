"""Let scikit-learn's SVMs predict through the exact engine, without a change to the code that calls them.

scikit-learn's `predict`, `decision_function`, `score_samples` and `predict_proba` check the rows and then call one of
six methods that hand arrays to LIBSVM. Those six are replaced. Everything around them stays scikit-learn's own:
validation and its errors, labels, shapes, the rule for ties, docstrings. Where svelto has no answer, the original
method gives it.

Invariant: with nobody asking for the patch, the classes hold the very functions they were defined with.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import sklearn
from sklearn.svm._base import BaseLibSVM, BaseSVC

from svelto._typing import FloatArray, Rows
from svelto.compiled import Compiled, Store
from svelto.engines.exact import instruction_level

Method = Callable[[Any, Rows], FloatArray]
Answer = Callable[[Compiled, Rows, bool], FloatArray]

# The methods that hand arrays to LIBSVM: where they are defined, and who answers in their place.
_TARGETS: Final[tuple[tuple[type, str, Answer], ...]] = (
    (BaseLibSVM, "_dense_predict", Compiled.predict),
    (BaseLibSVM, "_sparse_predict", Compiled.predict),
    (BaseLibSVM, "_dense_decision_function", Compiled.decision_function),
    (BaseLibSVM, "_sparse_decision_function", Compiled.decision_function),
    (BaseSVC, "_dense_predict_proba", Compiled.predict_proba),
    (BaseSVC, "_sparse_predict_proba", Compiled.predict_proba),
)


@dataclass(frozen=True)
class Counts:
    """What the patch has done in this process so far.

    Attributes
    ----------
    compiled : int
        Machines compiled: one for each estimator and alteration of it.
    served : int
        Calls that svelto answered.
    passed : int
        Calls left to scikit-learn.
    """

    compiled: int
    served: int
    passed: int


class _Patch:
    """The one patch of this process: on while somebody holds it."""

    def __init__(self) -> None:
        self.store = Store()
        self.holders: set[object] = set()
        self._lock = threading.Lock()
        self._installed: list[tuple[type, str, Method, Method]] = []
        self._served = self._passed = 0

    def hold(self, holder: object) -> None:
        with self._lock:
            if not self.holders:
                self._install()
            self.holders.add(holder)

    def release(self, holder: object | None) -> None:
        """Give up one hold; None gives up all."""
        with self._lock:
            if holder is None:
                self.holders.clear()
            self.holders.discard(holder)
            if not self.holders:
                self._remove()

    def _install(self) -> None:
        instruction_level()  # a wrong SVELTO_ISA is told here; later it would look like machines that cannot be served
        for owner, name, _ in _TARGETS:
            if name not in vars(owner):
                raise RuntimeError(
                    f"scikit-learn {sklearn.__version__} has no {owner.__name__}.{name}, which svelto replaces. "
                    "Use svelto.accelerate, which needs no patch, or another version of scikit-learn."
                )
        for owner, name, answer in _TARGETS:
            original = vars(owner)[name]
            replacement = self._replacement(original, answer)
            setattr(owner, name, replacement)
            self._installed.append((owner, name, original, replacement))

    def _remove(self) -> None:
        for owner, name, original, replacement in self._installed:
            # Somebody may have wrapped the replacement since. It stays then, and passes every call on.
            if vars(owner)[name] is replacement:
                setattr(owner, name, original)
        self._installed.clear()

    def _replacement(self, original: Method, answer: Answer) -> Method:
        @functools.wraps(original)
        def method(svm: Any, X: Rows) -> FloatArray:
            result = self._answer(svm, X, answer) if self.holders else None
            return original(svm, X) if result is None else result

        return method

    def _answer(self, svm: Any, X: Rows, answer: Answer) -> FloatArray | None:
        """What svelto answers; None where scikit-learn has to."""
        result = None
        try:
            machine = self.store.find(svm)
            if machine is not None:
                result = answer(machine, X, bool(getattr(svm, "break_ties", False)))
        except (ValueError, MemoryError):
            # What LIBSVM takes without looking: NaN (after `assume_finite=True`), columns that occur twice, arrays
            # damaged by hand. And LIBSVM needs no copy of the support vectors.
            result = None
        with self._lock:
            self._served += result is not None
            self._passed += result is None
        return result

    def counts(self) -> Counts:
        with self._lock:
            return Counts(self.store.n_compiled, self._served, self._passed)

    def renew_locks(self) -> None:
        self._lock = threading.Lock()
        self.store.renew_locks()


_patch: Final = _Patch()
_everybody: Final = object()  # the hold of `patch_sklearn`
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_patch.renew_locks)


def patch_sklearn() -> None:
    """Let every SVC, NuSVC, SVR, NuSVR and OneClassSVM of scikit-learn predict through svelto's exact engine.

    Holds for existing and future estimators, inside pipelines, searches and ensembles too. Labels are those of the
    float64 machine; values and scores are computed in double precision. A machine is compiled when an estimator is
    first asked, and again when it has been fitted again or altered. Where svelto cannot answer (callable and
    precomputed kernels), scikit-learn's own code does. Calling this twice is calling it once.

    Other processes (workers of joblib or multiprocessing that are not forked) must call it themselves.

    See Also
    --------
    unpatch_sklearn : Undo it.
    patched : The same for a block of code.
    accelerate : A predictor of its own, faster for single rows: it need not look whether a model has changed.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.svm import SVC
    >>> import svelto
    >>> X, y = load_iris(return_X_y=True)
    >>> svc = SVC().fit(X, y)
    >>> expected = svc.predict(X)
    >>> svelto.patch_sklearn()
    >>> bool((svc.predict(X) == expected).all())
    True
    >>> svelto.unpatch_sklearn()
    """
    _patch.hold(_everybody)


def unpatch_sklearn() -> None:
    """Give scikit-learn its own functions back and forget the compiled machines.

    Ends every `patched` block as well. Harmless where nothing is patched.
    """
    _patch.release(None)
    _patch.store.clear()


@contextmanager
def patched() -> Iterator[None]:
    """`patch_sklearn` for the length of a ``with`` block, in all threads.

    Blocks may be nested, and overlap in several threads: the patch goes with the last of them, unless `patch_sklearn`
    was called. Compiled machines are kept for the next block, as long as their estimators live.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.svm import SVC
    >>> import svelto
    >>> X, y = load_iris(return_X_y=True)
    >>> svc = SVC().fit(X, y)
    >>> with svelto.patched():
    ...     fast = svc.predict(X)
    >>> bool((fast == svc.predict(X)).all())
    True
    """
    holder = object()
    _patch.hold(holder)
    try:
        yield
    finally:
        _patch.release(holder)


def counts() -> Counts:
    """How many machines were compiled and how many calls were served, so that one can see that the patch works."""
    return _patch.counts()
