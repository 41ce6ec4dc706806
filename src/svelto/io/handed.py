"""What scikit-learn hands to LIBSVM when a fitted SVM predicts.

scikit-learn reads the attributes of an estimator anew in every call of `predict` and builds LIBSVM's model from them,
so whoever changes one of them, also in place, changes the next prediction. `Handed` is that set, no more and no less:
not `gamma` but `_gamma`, not `dual_coef_` but `_dual_coef_`, and the `kernel`, `degree` and `coef0` of the moment. Two
that are equal give equal predictions.

Labels, ties and the shape of a decision function are not among them: scikit-learn makes those of LIBSVM's answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral, Real
from operator import attrgetter, is_
from typing import Any, Final

import numpy as np
from scipy import sparse

from svelto._typing import Rows
from svelto.io.sklearn import dense_or_csr
from svelto.kernels import LIBSVM_NUMBERS, Kernel
from svelto.machine import KernelMachine, Task
from svelto.probability import PlattPairs

_TASKS: Final[dict[str, Task]] = {
    "c_svc": "classification",
    "nu_svc": "classification",
    "one_class": "outlier",
    "epsilon_svr": "regression",
    "nu_svr": "regression",
}
_read_attributes: Final = attrgetter(
    "_impl",
    "kernel",
    "_gamma",
    "coef0",
    "degree",
    "_sparse",
    "support_vectors_",
    "_dual_coef_",
    "_intercept_",
    "_n_support",
    "_probA",
    "_probB",
    "support_",
)
_FEW_BYTES: Final = 4096
_DOUBLE, _INT = np.dtype(np.float64), np.dtype(np.int32)


@dataclass(frozen=True, eq=False)
class Handed:
    """The arrays and numbers that LIBSVM would predict with.

    Attributes
    ----------
    impl : str
        LIBSVM's name of the kind of machine.
    kernel : Kernel
        The kernel with the numbers that it uses.
    is_sparse : bool
        Whether the estimator was fitted on a sparse matrix.
    n_features : int
        Width of the support vectors.
    vectors : tuple of ndarray
        The support vectors: one matrix, or the `data`, `indices` and `indptr` of a CSR matrix.
    others : tuple of ndarray
        Coefficients, intercepts, numbers of support vectors, probA, probB.
    attributes : tuple
        The objects that all this was read from.
    """

    impl: str
    kernel: Kernel
    is_sparse: bool
    n_features: int
    vectors: tuple[np.ndarray[Any, Any], ...]
    others: tuple[np.ndarray[Any, Any], ...]
    attributes: tuple[Any, ...] = ()

    def equals(self, other: Handed) -> bool:
        """Whether LIBSVM would answer the same for every row: all numbers are compared, none is sampled."""
        return (
            (self.impl, self.is_sparse, self.n_features) == (other.impl, other.is_sparse, other.n_features)
            and (self.kernel is other.kernel or self.kernel == other.kernel)
            and all(map(_same, self.others, other.others))  # the small ones first
            and all(map(_same, self.vectors, other.vectors))
        )

    def keep(self) -> tuple[Handed, KernelMachine]:
        """A copy that nobody else can change, and the machine made of it.

        Raises
        ------
        ValueError
            For what LIBSVM takes without looking and a `KernelMachine` does not: NaN, damaged index arrays.
        """
        kept = replace(self, vectors=_copies(self.vectors), others=_copies(self.others), attributes=())
        machine = _machine(kept)
        if not kept.is_sparse:
            kept = replace(kept, vectors=(machine.support_vectors,))  # a copy already: one is enough
        return kept, machine


def read_handed(svm: Any, known: Handed | None = None) -> Handed | None:
    """Read what LIBSVM would get; None for kernels it does not evaluate itself and for what it would refuse.

    Attributes may be missing or be anything: an estimator can be altered by hand. Then scikit-learn has to answer,
    with its own error if need be.

    Parameters
    ----------
    svm : estimator
        SVC, NuSVC, SVR, NuSVR or OneClassSVM.
    known : Handed, optional
        What was read before. If the estimator holds the same objects still, it is returned as it is; their contents
        may have changed.

    Returns
    -------
    Handed or None
    """
    try:
        attributes = _read_attributes(svm)
        impl, name, gamma, coef0, degree, is_sparse, vectors, coef, *others, support = attributes
        parts: tuple[Any, ...] = (vectors,)
        if is_sparse:
            parts, coef = (vectors.data, vectors.indices, vectors.indptr), coef.data
            attributes += (*parts, coef, vectors.shape)
    except AttributeError:
        return None
    if known is not None and len(attributes) == len(known.attributes) and all(map(is_, attributes, known.attributes)):
        return known
    kernel = _read_kernel(name, gamma, coef0, degree)
    if kernel is None or not isinstance(impl, str) or impl not in _TASKS:
        return None
    if is_sparse:
        if not (_is_csr(svm.support_vectors_) and _is_csr(svm._dual_coef_)):
            return None
        sound = _plain(parts[0], _DOUBLE, 1) and _plain(parts[1], _INT, 1) and _plain(parts[2], _INT, 1)
    else:
        # LIBSVM counts the support vectors of a dense model by the length of `support_`.
        sound = _plain(vectors, _DOUBLE, 2) and np.shape(support) == vectors.shape[:1]
    intercept, n_support, *chances = others
    sound = sound and _plain(coef, _DOUBLE, 1 if is_sparse else 2) and _plain(n_support, _INT, 1)
    if not sound or not all(_plain(array, _DOUBLE, 1) for array in (intercept, *chances)):
        return None
    n_classes = len(n_support) if _TASKS[impl] == "classification" else 2
    n_sv = vectors.shape[0]
    rows = (n_classes - 1, n_sv)
    fits = coef.size == rows[0] * n_sv if is_sparse else coef.shape == rows
    if n_sv == 0 or not fits or len(intercept) != n_classes * (n_classes - 1) // 2:
        return None
    return Handed(
        impl=impl,
        kernel=kernel,
        is_sparse=bool(is_sparse),
        n_features=int(vectors.shape[1]),
        vectors=parts,
        others=(coef.reshape(rows), *others),
        attributes=attributes,
    )


def _read_kernel(name: Any, gamma: Any, coef0: Any, degree: Any) -> Kernel | None:
    if not isinstance(name, str) or name not in LIBSVM_NUMBERS:
        return None
    if not (isinstance(gamma, Real) and isinstance(coef0, Real) and isinstance(degree, Integral)):
        return None
    if not 0 <= int(degree) < 2**31:
        return None
    given: dict[str, Any] = {"gamma": float(gamma), "coef0": float(coef0), "degree": int(degree)}
    try:
        return Kernel(name, **{number: given[number] for number in LIBSVM_NUMBERS[name]})
    except ValueError:  # not finite, or a negative gamma
        return None


def _is_csr(matrix: Any) -> bool:
    return bool(sparse.issparse(matrix)) and matrix.format == "csr"


def _plain(array: Any, dtype: np.dtype[Any], n_dimensions: int) -> bool:
    """Whether LIBSVM's wrapper takes this array as it is; it converts nothing."""
    return (
        isinstance(array, np.ndarray)
        and array.dtype == dtype
        and array.ndim == n_dimensions
        and array.flags.c_contiguous
        and array.flags.aligned
    )


def _same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    # Most arrays are a few numbers, where only calls count. 0.0 and -0.0 differ as bytes, which does no harm.
    return a.tobytes() == b.tobytes() if a.nbytes < _FEW_BYTES else bool((a == b).all())


def _copies(arrays: tuple[np.ndarray[Any, Any], ...]) -> tuple[np.ndarray[Any, Any], ...]:
    return tuple(array.copy() for array in arrays)


def _machine(handed: Handed) -> KernelMachine:
    """The machine as LIBSVM numbers it: classes are 0, 1, ..., and vote in that order."""
    coef, intercept, n_support, prob_a, prob_b = handed.others
    task = _TASKS[handed.impl]
    fields: dict[str, Any] = {"task": task, "rule": "value"}
    if task == "classification":
        classes = np.arange(len(n_support))
        fields = {"task": task, "rule": "pairs", "classes": classes, "vote_order": classes, "n_support": n_support}
        if len(prob_a) and len(prob_b):
            fields["platt"] = PlattPairs(prob_a, prob_b, iterate_two=True)
    return KernelMachine(
        kernel=handed.kernel,
        support_vectors=_csr(handed) if handed.is_sparse else handed.vectors[0],
        dual_coef=coef,
        intercept=intercept,
        n_features=handed.n_features,
        svm_type=handed.impl,
        source="scikit-learn",
        **fields,
    )


def _csr(handed: Handed) -> Rows:
    shape = (handed.others[0].shape[1], handed.n_features)
    matrix = sparse.csr_matrix(handed.vectors, shape=shape)
    matrix.check_format(full_check=True)
    # LIBSVM walks through two rows side by side; with columns out of order or twice its sum is another one.
    if not matrix.has_canonical_format:
        raise ValueError("The support vectors have columns out of order or twice.")
    return dense_or_csr(matrix)
