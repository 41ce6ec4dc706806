"""Which rows or objects are the same: training objects among those given, and rows given twice.

Vectors, strings, numbers, tuples, arrays and lists have values, and are compared by them. Other objects are compared
through the kernel: x and s are the same to it where k(x, x) + k(s, s) - 2 k(x, s), their squared distance in feature
space, is zero up to rounding.
"""

from __future__ import annotations

import pickle
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Final

import numpy as np
from scipy import sparse
from sklearn.utils import _safe_indexing

from svelto._inputs import n_rows_of
from svelto._typing import Rows
from svelto.machine import KernelMachine

# Objects that are looked for through the kernel, others that each is compared with, and the relative difference of
# kernel values that is rounding.
SAMPLE: Final = 50
ALIKE: Final = 5
SAME_VALUE: Final = 1e-6
# Rows of a sparse matrix made dense at a time (64 MB).
DENSE_VALUES: Final = 8_000_000


def keys_of(rows: Rows) -> Iterator[Hashable]:
    """A key for each row or object, equal for equal ones; None where it has no value of its own."""
    for item in _items(rows):
        yield _key(item)


def _items(rows: Rows) -> Iterable[Any]:
    if sparse.issparse(rows):
        step = max(1, DENSE_VALUES // max(rows.shape[1], 1))
        for start in range(0, rows.shape[0], step):
            yield from rows[start : start + step].toarray()
        return
    yield from rows.to_numpy() if hasattr(rows, "to_numpy") else rows


def _key(item: Any) -> Hashable:
    if isinstance(item, np.ndarray):
        if item.dtype.kind in "fiub":
            item = item.astype(np.float64) + 0.0  # one type, and no negative zeros
        return item.shape, item.tobytes() if item.dtype.kind != "O" else pickle.dumps(item.tolist())
    if "__eq__" not in {name for kind in type(item).__mro__[:-1] for name in vars(kind)}:
        return None
    try:
        hash(item)
    except TypeError:
        try:
            return pickle.dumps(item)
        except Exception:  # whatever an object's own pickling raises
            return None
    key: Hashable = item
    return key


def without(rows: Rows, others: Rows) -> Rows:
    """The rows or objects that are not among the others."""
    known = set(keys_of(others)) - {None}
    kept = [i for i, key in enumerate(keys_of(rows)) if key not in known]
    return rows if len(kept) == n_rows_of(rows) else _safe_indexing(rows, np.array(kept, dtype=np.intp))


def object_share(machine: KernelMachine, X: Rows) -> float:
    """How much objects look like training objects: the larger share of support vectors and objects found in the other.

    Of objects without values of their own a sample is looked for.
    """
    vectors = machine.support_vectors
    ours, theirs = list(keys_of(X)), list(keys_of(vectors))
    if None not in ours and None not in theirs:
        both = set(ours) & set(theirs)
        return max(sum(key in both for key in keys) / len(keys) for keys in (ours, theirs))
    return max(_found(machine, vectors, X), _found(machine, X, vectors))


def _found(machine: KernelMachine, wanted: Rows, among: Rows) -> float:
    """Share of a sample of objects that the kernel cannot tell from one of the others."""
    kernel, n = machine.kernel, n_rows_of(wanted)
    some = np.sort(np.random.default_rng(0).choice(n, size=min(n, SAMPLE), replace=False))
    sample = _safe_indexing(wanted, some)
    values = np.asarray(kernel(among, sample), dtype=np.float64)
    own = np.diagonal(np.asarray(kernel(sample, sample), dtype=np.float64))
    found = 0
    for column, norm in zip(values.T, own, strict=True):
        for row in np.flatnonzero(np.abs(column - norm) <= SAME_VALUE * abs(norm))[:ALIKE]:
            one = _safe_indexing(among, [int(row)])
            if abs(float(np.asarray(kernel(one, one)).ravel()[0]) - norm) <= SAME_VALUE * abs(norm):
                found += 1
                break
    return found / len(some)
