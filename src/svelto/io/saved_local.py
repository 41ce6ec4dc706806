"""A fitted LocalSVC in a svelto file: its rows, their cover, and the machines of all neighbourhoods.

Everything is there that `partial_fit` needs too. The search for neighbours is not: its tree is made of the rows at the
first query, as it is after a pickle.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

import numpy as np

from svelto.io.parts import MOST, In, Out
from svelto.io.plain import labels_from_plain, labels_to_plain
from svelto.io.saved_machine import read_calibrator, write_calibrator
from svelto.io.saved_parameters import read_parameters, write_parameters
from svelto.kernels import Kernel
from svelto.training._local.cover import Cover
from svelto.training._local.fits import KERNEL_CODES, KernelChoice, LocalModels
from svelto.training._local.neighbours import METHODS, NeighbourIndex
from svelto.training._local.train import TrainedSVMs, TrainingData
from svelto.training.local import LocalSVC

MODEL_TYPES: Final = {
    "class_start": "<i8",
    "classes": "<i4",
    "pair_start": "<i8",
    "intercept": "<f8",
    "n_iter": "<i8",
    "converged": "|u1",
    "support_start": "<i8",
    "support": "<i4",
    "coef": "<f8",
}
# A power is that many products.
MOST_DEGREE: Final = 1 << 16


def write_local(out: Out, local: LocalSVC) -> None:
    """All of a fitted LocalSVC."""
    write_parameters(out, local)
    local._checked()
    data, cover, kernel = local._data, local._cover, local._kernel
    out.set_json("classes", labels_to_plain(local.classes_))
    out.set(k=local.k_, k_prime=local.k_prime_, cover_k_prime=cover.k_prime, n_asked=cover.n_asked)
    out.set(kernel=kernel.name, degree=int(kernel.degree), coef0=float(kernel.coef0), gamma=data.gamma)
    out.set(neighbours=local._index.method, cv_accuracy=getattr(local, "cv_accuracy_", None))
    if local._odds is not None:
        write_calibrator(out.part("odds"), local._odds)
    out.put("rows", local._index.X, "<f8")
    out.put("codes", data.codes, "<i4")
    for name, array in (("weight", data.weight), ("factors", data.factors)):
        if array is not None:
            out.put(name, array, "<f8")
    out.put("feature_weights", local.feature_weights_, "<f8")
    out.put("cost", local.C_, "<f8")
    out.put("width", local.gamma_, "<f8")
    for name in ("centres", "neighbours", "centre_of_row"):
        out.put(f"cover_{name}", getattr(cover, name), "<i4")
    for name, dtype in MODEL_TYPES.items():
        out.put(f"models_{name}", getattr(local._machines.models, name), dtype)


def read_local(part: In, n_jobs: int | None) -> LocalSVC:
    """The same estimator."""
    local: LocalSVC = read_parameters(part, LocalSVC, n_jobs)
    options = local._checked()
    local.classes_ = labels_from_plain(part.json("classes"))
    n_classes, d = len(local.classes_), local.n_features_in_
    if n_classes < 2:
        part.fail(f"there are {n_classes} classes")
    choice = KernelChoice(
        part.choice("kernel", tuple(KERNEL_CODES)), part.count("degree", 1, MOST_DEGREE), part.finite("coef0")
    )
    local.feature_weights_ = part.floats("feature_weights", (d,), always=True)
    rows = part.array("rows", "<f8", (None, d))
    gamma = part.finite("gamma")
    # The index looks at every row: what follows cannot be told that a number is NaN or too large.
    kernel = Kernel(choice.name, gamma=gamma, degree=choice.degree, coef0=choice.coef0)
    method = part.choice("neighbours", METHODS)
    index = NeighbourIndex(rows, kernel, method=method, n_jobs=local.n_jobs, build=False)
    n = index.n_rows
    data = TrainingData(
        rows,
        part.whole("codes", (n,), 0, n_classes - 1),
        part.floats("weight", (n,), always=True) if part.has_array("weight") else None,
        part.floats("factors", (n_classes,), always=True) if part.has_array("factors") else None,
        gamma,
    )
    local.k_ = part.count("k", 1, n)
    local.k_prime_ = part.count("k_prime", 1, local.k_)
    centres = part.whole("cover_centres", (None,), 0, n - 1)
    n_models = len(centres)
    if not 1 <= n_models <= n:
        part.fail(f"there are {n_models} neighbourhoods for {n} rows")
    cover = Cover(
        centres,
        part.whole("cover_neighbours", (n_models, None), 0, n - 1),
        part.whole("cover_centre_of_row", (n,), 0, n_models - 1),
        part.count("cover_k_prime", 1, n),
        part.count("n_asked", 0, 2**62),
    )
    models = _read_models(part, n_models, n_classes, n)
    cost = part.floats("cost", (n_models,), always=True)
    width = part.floats("width", (n_models,), always=True)
    local._odds = read_calibrator(part.part("odds"), ("temperature",)) if "odds" in part else None
    local._kernel = choice
    tried = part.plain("cv_accuracy")
    if tried is not None:
        if not isinstance(tried, dict) or not all(type(k) is int and type(v) is float for k, v in tried.items()):
            part.fail("cv_accuracy is no table of accuracies by k")
        local.cv_accuracy_ = tried
    local._install(options._replace(kernel=choice), data, index, cover, TrainedSVMs(models, cost, width))
    assert local._machines.native is not None  # made now: native code has checks of its own
    return local


def _read_models(part: In, n_models: int, n_classes: int, n_rows: int) -> LocalModels:
    coef = part.floats("models_coef", (None,), always=True)
    intercept = part.floats("models_intercept", (None,), always=True)
    classes = part.whole("models_classes", (None,), 0, n_classes - 1)
    n_pairs = len(intercept)
    if max(len(coef), n_pairs, len(classes)) > MOST:
        part.fail("there are too many machines")
    found: dict[str, Any] = {
        "class_start": part.starts("models_class_start", n_models, len(classes), dtype="<i8"),
        "classes": classes,
        "pair_start": part.starts("models_pair_start", n_models, n_pairs, dtype="<i8"),
        "intercept": intercept,
        "n_iter": part.whole("models_n_iter", (n_pairs,), 0, 2**62, dtype="<i8"),
        "converged": part.whole("models_converged", (n_pairs,), 0, 1, dtype="|u1").astype(np.bool_),
        "support_start": part.starts("models_support_start", n_pairs, len(coef), dtype="<i8"),
        "support": part.whole("models_support", (len(coef),), 0, n_rows - 1),
        "coef": coef,
    }
    assert found.keys() == {field.name for field in fields(LocalModels)}
    known, pairs = np.diff(found["class_start"]), np.diff(found["pair_start"])
    if (known < 1).any() or (pairs != known * (known - 1) // 2).any():
        part.fail("a neighbourhood has more or fewer pairs than its classes make")
    return LocalModels(**found)
