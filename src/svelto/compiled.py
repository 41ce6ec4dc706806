"""Machines compiled for the estimators that ask for them, one each, for as long as the estimator lives.

A `Compiled` answers as LIBSVM answers scikit-learn: numbers of classes, +1 and -1, values, pair scores with LIBSVM's
sign, probabilities. It remembers what it was made of. A `Store` finds the one that belongs to an estimator, and makes
it again where the estimator has changed since. Nothing is put on the estimator itself, which is pickled, cloned and
compared by others; the store holds it weakly, by identity.

Invariant: an answer comes from a machine that equals what the estimator held when it was asked.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Final

import numpy as np
from scipy import sparse

from svelto._inputs import Query, check_rows
from svelto._typing import FloatArray, IntArray, Rows
from svelto.engines.exact import ExactEngine
from svelto.io.handed import Handed, read_handed
from svelto.predictor import SHORT_ROWS
from svelto.voting import ovr_decision

# The float32 tier halves the time of a label, and packing it costs as much as some thousand labels do. Labels are the
# same with and without it. (Measured: 3,800 rows for 747 support vectors of 64 features, 13,000 for 3,769 of 123.)
SINGLE_AFTER_ROWS: Final = 4096
# Rounding of scikit-learn's one-vs-rest formula, for each class and unit of the numbers that it adds; ample.
TIE_ROUNDING: Final = 2.0**-50


class Compiled:
    """The exact engine of an estimator, and what it was made of.

    The answers are those of LIBSVM's functions; `break_ties` is the estimator's, and matters to scores alone.
    """

    def __init__(self, handed: Handed) -> None:
        self._made_of, self.machine = handed.keep()
        # Double precision alone packs in a fraction of the time: most estimators of a search are asked once.
        self._engine = ExactEngine(self.machine, "float64")
        self._n_labels = 0
        self._packing = threading.Lock()
        self._final = self.machine.kernel.name == "linear" or self._engine.uses_postings

    def fits(self, handed: Handed) -> bool:
        """Whether the estimator still is what this was made of."""
        return self._made_of.equals(handed)

    def predict(self, X: Rows, break_ties: bool = False) -> FloatArray:
        """Number of the class, +1 or -1, or the value of each row, as float64."""
        if self.machine.task == "regression":
            return self._engine.scores(self._query(X), None, "float64")[:, 0]
        self._n_labels += X.shape[0]
        if not self._final and self._n_labels >= SINGLE_AFTER_ROWS and self._packing.acquire(blocking=False):
            # Never given back: it is done once. Whoever asks meanwhile gets the same labels of the engine there is.
            self._engine, self._final = ExactEngine(self.machine, "auto"), True
        labels = self._short_labels(X)
        if labels is None:
            labels = self._engine.labels(self._query(X))[0]
        values = labels.astype(np.float64)
        return 2.0 * values - 1.0 if self.machine.task == "outlier" else values

    def _short_labels(self, X: Rows) -> IntArray | None:
        """Labels of a few dense rows, by one native call; None for other rows."""
        if type(X) is not np.ndarray or X.shape[0] > SHORT_ROWS or X.shape[1] != self.machine.n_features:
            return None
        if X.dtype != np.float64 or not (X.flags.c_contiguous and X.flags.aligned):
            return None
        return self._engine.predict_one_block(X)

    def decision_function(self, X: Rows, break_ties: bool = False) -> FloatArray:
        """Scores (n_rows, n_scores) in double precision, with the signs of LIBSVM's own sums.

        Rows with a score within rounding of zero are summed in LIBSVM's order, and with `break_ties` also rows whose
        two best classes are that close, so that whatever is decided by these scores is decided as by LIBSVM's.
        """
        query = self._query(X)
        if self.machine.task == "regression":
            return self._engine.scores(query, None, "float64")
        scores, bounds = self._engine.bounded_scores(query, None, "float64")
        # Negated, so that NaN counts as doubtful.
        doubtful = ~(np.abs(scores) > bounds).all(axis=1)
        if break_ties and self.machine.n_classes > 2:
            best = np.sort(ovr_decision(scores, self.machine.n_classes), axis=1)[:, -2:]
            # The squashed sum of a class moves by at most a third of what its pairs move by.
            rounding = TIE_ROUNDING * self.machine.n_classes * (1.0 + np.abs(scores).sum(axis=1))
            doubtful |= ~(best[:, 1] - best[:, 0] > bounds.sum(axis=1) + rounding)
        rows = np.flatnonzero(doubtful)
        if len(rows):
            scores[rows] = self._engine.scores(Query(query.rows[rows]), None, "reference")
        return scores

    def predict_proba(self, X: Rows, break_ties: bool = False) -> FloatArray:
        """Probabilities of the classes, from scores in double precision."""
        if self.machine.platt is None:
            raise ValueError("The estimator has no probabilities.")
        scores = self._engine.scores(self._query(X), None, "float64")
        return self.machine.platt.probabilities(scores, self.machine.n_classes)

    def _query(self, X: Rows) -> Query:
        # scikit-learn has checked the rows. It leaves columns that occur twice to LIBSVM, which does not add them up.
        if sparse.issparse(X) and not X.has_canonical_format:
            raise ValueError("X has columns out of order or twice.")
        return Query(check_rows(X, self.machine.n_features))


class _Entry:
    def __init__(self, owner: weakref.ref[Any]) -> None:
        self.owner = owner
        self.lock = threading.Lock()
        self.handed: Handed | None = None  # what was read last
        self.compiled: Compiled | None = None


class Store:
    """Compiled machines by estimator. Safe to use from several threads.

    Attributes
    ----------
    n_compiled : int
        Machines compiled so far.
    """

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._lock = threading.Lock()
        self.n_compiled = 0

    def find(self, svm: Any) -> Compiled | None:
        """The estimator's machine, compiled where there is none yet or where the estimator has changed.

        Returns
        -------
        Compiled or None
            None for kernels that LIBSVM does not evaluate itself, and for what it would refuse.

        Raises
        ------
        ValueError
            Where LIBSVM takes what cannot be compiled.
        """
        entry = self._entry(svm)
        handed = entry.handed = read_handed(svm, entry.handed)
        found = entry.compiled
        if handed is None:
            return None
        if found is not None and found.fits(handed):
            return found
        with entry.lock:  # threads that ask at once wait for one of them to compile
            found = entry.compiled
            if found is None or not found.fits(handed):
                entry.compiled = None  # the old arrays go before new ones are made
                handed = entry.handed = read_handed(svm)  # an array can change its shape and stay the same object
                if handed is None:
                    return None
                entry.compiled = found = Compiled(handed)
                with self._lock:
                    self.n_compiled += 1
        return found

    def _entry(self, svm: Any) -> _Entry:
        key = id(svm)
        entry = self._entries.get(key)
        if entry is None or entry.owner() is not svm:
            with self._lock:
                entry = self._entries.get(key)
                if entry is None or entry.owner() is not svm:
                    entry = self._entries[key] = _Entry(weakref.ref(svm, self._forget(key)))
        return entry

    def _forget(self, key: int) -> Any:
        # Runs whenever an estimator dies, maybe inside one of the methods here: it must not wait for a lock.
        entries = self._entries

        def forget(owner: weakref.ref[Any]) -> None:
            entry = entries.get(key)
            if entry is not None and entry.owner is owner:
                entries.pop(key, None)

        return forget

    def clear(self) -> None:
        """Forget all machines."""
        with self._lock:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def renew_locks(self) -> None:
        """For a child process made by fork: its parent's threads, which may have held a lock, do not exist here."""
        self._lock = threading.Lock()
        for entry in list(self._entries.values()):
            entry.lock = threading.Lock()
