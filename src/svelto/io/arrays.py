"""Plain arrays in, a KernelMachine out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from scipy import sparse

from svelto._typing import Rows
from svelto.kernels import Kernel
from svelto.machine import KernelMachine, Rule, Task

SVM_TYPES: Final = {"classification": "c_svc", "regression": "epsilon_svr", "outlier": "one_class"}


def read_arrays(
    *,
    kernel: str | Callable[[Any, Any], Any],
    support_vectors: Rows,
    dual_coef: Any,
    intercept: Any,
    classes: Sequence[Any] | np.ndarray[Any, Any] | None,
    gamma: float,
    coef0: float,
    degree: int,
    n_support: Any,
    task: Task | None,
) -> KernelMachine:
    """Build a machine from arrays; see `KernelMachine.from_arrays` for what each one means."""
    if callable(kernel):
        function = Kernel("callable", function=kernel)
    else:
        power = _number("degree", degree)
        function = Kernel(
            str(kernel),
            gamma=_number("gamma", gamma),
            coef0=_number("coef0", coef0),
            degree=int(power) if power.is_integer() else power,  # type: ignore[arg-type]  # Kernel refuses the others
        )
    if task is None:
        task = "regression" if classes is None else "classification"
    if task not in SVM_TYPES:
        raise ValueError(f"task is {task!r}; expected one of {', '.join(SVM_TYPES)}.")
    coef = np.array(_numbers("dual_coef", dual_coef), ndmin=2)
    vectors = support_vectors
    n_features = None
    if sparse.issparse(vectors):
        _check_real("support_vectors", vectors.dtype)
    elif function.name == "precomputed":
        vectors = np.asarray(vectors)
        if vectors.ndim != 1 or vectors.dtype.kind not in "iu":
            raise TypeError(
                f"support_vectors is {vectors.ndim}-dimensional of dtype {vectors.dtype}; a precomputed kernel needs "
                "the column numbers of the support vectors in a row of kernel values."
            )
    elif function.has_native_code:
        vectors = _numbers("support_vectors", vectors)
        if vectors.ndim != 2:
            raise ValueError(f"support_vectors has {vectors.ndim} dimension(s); expected 2, (n_sv, n_features).")
    if function.has_native_code or (isinstance(vectors, np.ndarray) and vectors.ndim == 2):
        n_features = int(vectors.shape[1])

    labels: np.ndarray[Any, Any] | None = None
    order: np.ndarray[Any, Any] | None = None
    rule: Rule = "value"
    if classes is not None:
        given = np.asarray(classes)
        if given.ndim != 1:
            raise ValueError(f"classes has {given.ndim} dimension(s); expected 1, a label for each class.")
        try:
            labels, order = np.unique(given, return_inverse=True)
        except TypeError as error:
            raise TypeError(f"classes cannot be put in order ({error}); expected labels of one type.") from None
        if len(labels) != len(given):
            raise ValueError(f"classes contains a label twice: {given.tolist()}.")
        rule = "pairs" if len(given) == 2 or n_support is not None else "argmax"
        if len(given) == 2:
            # Positive means classes[1] here; LIBSVM's positive votes for the first class of the vote order.
            order = order[::-1]
            n_support = None  # only the layout of more than two classes needs it
    offset = _numbers("intercept", intercept)
    if offset.ndim == 0:  # one number for all scores
        n_scores = len(coef) if rule != "pairs" or labels is None else len(labels) * (len(labels) - 1) // 2
        offset = np.full(n_scores, offset)
    return KernelMachine(
        kernel=function,
        support_vectors=vectors,
        dual_coef=coef,
        intercept=offset,
        task=task,
        rule=rule,
        classes=labels,
        vote_order=order,
        n_support=n_support,
        n_features=n_features,
        svm_type=SVM_TYPES[task],
    )


def _numbers(name: str, values: Any) -> np.ndarray[Any, Any]:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} cannot be read as an array: {error}") from None
    _check_real(name, array.dtype)
    return array.astype(np.float64)


def _check_real(name: str, dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "fiub":
        raise TypeError(f"{name} has dtype {dtype}; expected real numbers.")


def _number(name: str, value: Any) -> float:
    if isinstance(value, str) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} is {value!r}; expected a number.")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{name} is {number}; expected a finite number.")
    return number
