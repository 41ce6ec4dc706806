"""Random machines for tests: every kernel, task and number of classes, without training anything."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from svelto.kernels import Kernel
from svelto.machine import KernelMachine

NATIVE = ("rbf", "exponential", "laplacian", "poly", "sigmoid", "linear")


def random_machine(
    kernel="rbf",
    *,
    n_sv=40,
    d=6,
    n_classes=2,
    task="classification",
    gamma=None,
    seed=0,
    spread=1.0,
    as_csr=False,
    **fields,
):
    """LIBSVM's layout: support vectors class by class, weights of a class against another with one sign."""
    rng = np.random.default_rng(seed)
    n_sv = max(n_sv, n_classes if task == "classification" else 1)
    S = rng.normal(size=(n_sv, d)) * spread
    if as_csr:
        S = sparse.csr_matrix(np.where(rng.random(S.shape) < 0.3, S, 0.0))
    gamma = 1.0 / d if gamma is None else gamma
    rule = fields.pop("rule", "pairs" if task == "classification" else "value")
    shape = {"pairs": n_classes - 1, "argmax": n_classes, "value": fields.pop("n_outputs", 1)}[rule]
    coef = np.abs(rng.normal(size=(shape, n_sv))) + 0.01
    common = {}
    if task == "classification":
        counts = np.full(n_classes, n_sv // n_classes)
        counts[: n_sv % n_classes] += 1
        if rule == "pairs":
            of = np.repeat(np.arange(n_classes), counts)
            # Row j - 1 of class i < j is positive; row i of class j is negative.
            coef *= np.where(np.arange(n_classes - 1)[:, None] >= of[None, :], 1.0, -1.0)
            common["n_support"] = counts
        else:
            coef *= rng.choice([-1.0, 1.0], size=coef.shape)
        common["classes"] = np.arange(n_classes) * 3 - 1
        common["vote_order"] = np.arange(n_classes)
    else:
        coef *= rng.choice([-1.0, 1.0], size=coef.shape)
    n_scores = n_classes * (n_classes - 1) // 2 if rule == "pairs" else shape
    common.update(fields)
    return KernelMachine(
        kernel=Kernel(kernel, gamma=gamma, coef0=0.5, degree=3),
        support_vectors=S,
        dual_coef=coef,
        intercept=rng.normal(size=n_scores) * 0.1,
        task=task,
        rule=rule,
        n_features=d,
        **common,
    )


def slack(machine):
    """How far two float64 evaluations of a score may differ: terms cancel, so by the size of the terms."""
    S = np.asarray(abs(machine.support_vectors).max())
    size = 1.0
    if machine.kernel.name in ("poly", "linear"):
        inner = 10 * machine.n_features * abs(machine.kernel.gamma) * float(S) ** 2 + 1
        size = (
            inner**machine.kernel.degree if machine.kernel.name == "poly" else 10 * machine.n_features * float(S) ** 2
        )
    return 1e-12 * (1 + np.abs(machine.dual_coef).sum()) * size
