"""Plain arrays in, a KernelMachine out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from svelto._typing import Rows
from svelto.kernels import Kernel
from svelto.machine import KernelMachine, Rule, Task


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
        function = Kernel(str(kernel), gamma=float(gamma), coef0=float(coef0), degree=degree)
    if task is None:
        task = "regression" if classes is None else "classification"
    coef = np.array(_numbers("dual_coef", dual_coef), ndmin=2)
    vectors = support_vectors
    n_features = None
    if function.has_native_code and not sparse.issparse(vectors):
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
        labels, order = np.unique(given, return_inverse=True)
        if len(labels) != len(given):
            raise ValueError(f"classes contains a label twice: {given.tolist()}.")
        rule = "pairs" if len(given) == 2 or n_support is not None else "argmax"
        if len(given) == 2:
            # Positive means classes[1] here; LIBSVM's positive votes for the first class of the vote order.
            order = order[::-1]
            n_support = None  # only the layout of more than two classes needs it
    return KernelMachine(
        kernel=function,
        support_vectors=vectors,
        dual_coef=coef,
        intercept=np.array(_numbers("intercept", intercept), ndmin=1),
        task=task,
        rule=rule,
        classes=labels,
        vote_order=order,
        n_support=n_support,
        n_features=n_features,
        svm_type={"classification": "c_svc", "regression": "epsilon_svr", "outlier": "one_class"}[task],
    )


def _numbers(name: str, values: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} has dtype {array.dtype}; expected real numbers.")
    return array.astype(np.float64)
