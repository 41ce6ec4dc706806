"""Machines of paper S2: RBF machines, the paper's trees and svelto's, all on rows that are scaled in the same way.

The paper's "RBF kernel" has LIBSVM's default parameters, C = 1 and gamma = 1/d; beside it stands a machine whose
parameters are chosen by cross-validation on training rows (`s3.chosen`: of equal settings the smaller C, then the
smaller gamma). Both are a scaler and an SVC in a pipeline, and answer through svelto's exact engine.

SVC.predict gets rows that are scaled already, dense or CSR, whichever is faster (CSR on fourclass and on min-max scaled
covtype). All others get rows as they are.
"""

from __future__ import annotations

from collections import Counter
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC

import svelto
from svelto._typing import FloatArray, Rows
from svelto.predictor import Predictor
from svelto.reproduce._common import Record
from svelto.reproduce._measure import CACHE_MEGABYTES, Form, as_form, build, with_warnings
from svelto.reproduce._s0_data import SEED, Parts
from svelto.reproduce._s3_machines import Trainer, draw
from svelto.reproduce._tables import Say
from svelto.reproduce.s3 import chosen

# The tree as it is in the paper; what svelto adds is left out.
PAPER_TREE: Final[Record] = {
    "tail": None,
    "last": "class",
    "prefer": "rows",
    "greedy": 0,
    "min_peeled": 0.0,
    "max_nodes": 100,
}
SCALERS: Final = {"standard": StandardScaler, "minmax": MinMaxScaler}


def scaled(parts: Parts, scale: str) -> tuple[Any, Parts]:
    """A scaler of the training rows, and the rows as it gives them."""
    scaler = SCALERS[scale]().fit(parts.X_train)
    return scaler, parts._replace(X_train=scaler.transform(parts.X_train), X_test=scaler.transform(parts.X_test))


# -- RBF machines ------------------------------------------------------------------------------------------------


class Rbf(NamedTuple):
    """An SVC on scaled rows, the exact engine on rows as they are, what was measured, and the rows SVC.predict gets."""

    svc: SVC
    exact: Predictor
    record: Record
    baseline_rows: Rows


def tune(X: FloatArray, y: Any, settings: Record, say: Say) -> Record:
    """C and gamma by cross-validation on at most ``settings["cv_rows"]`` of the (scaled) rows."""
    started = perf_counter()
    power, gamma, accuracy = chosen(Trainer(X, y, "rbf", settings["n_jobs"]), settings, say)
    seconds = perf_counter() - started
    return {"C": 2.0**power, "gamma": gamma, "cv_accuracy": accuracy, "tune_seconds": seconds}


def train_rbf(parts: Parts, scaler: Any, scaled_parts: Parts, form: Form, parameters: Record, settings: Record) -> Rbf:
    """Train, and count the test rows that are right and the labels in which SVC.predict and the exact engine differ."""
    X_train = as_form(scaled_parts.X_train, form)
    started = perf_counter()
    svc = machine(parameters).fit(X_train, parts.y_train)
    train_seconds = perf_counter() - started
    exact, said = build(make_pipeline(scaler, svc), method="exact", n_jobs=settings["n_jobs"])
    labels = exact.predict(parts.X_test)
    rows = draw(len(parts.y_test), settings["baseline_rows"])
    baseline_rows = as_form(scaled_parts.X_test[rows], form)
    record = {
        **parameters,
        # As the paper counts: a support vector of two pairs of classes is two.
        "size": n_coefficients(svc),
        "n_sv": len(svc.support_),
        "train_seconds": train_seconds,
        "right": int(np.count_nonzero(labels == parts.y_test)),
        "form": form,
        "baseline_rows": len(rows),
        "differences": int(np.count_nonzero(svc.predict(baseline_rows) != labels[rows])),
        "warnings": said,
    }
    return Rbf(svc, exact, record, baseline_rows)


def n_coefficients(svc: SVC) -> int:
    """Support vectors of all pairs of classes together."""
    coef = svc.dual_coef_
    return int(np.count_nonzero(coef.toarray() if sparse.issparse(coef) else coef))


def machine(parameters: Record) -> SVC:
    """An RBF machine that is not trained."""
    return SVC(C=parameters["C"], gamma=parameters["gamma"], cache_size=CACHE_MEGABYTES)


# -- trees -------------------------------------------------------------------------------------------------------


def tree_plans(scale: str, tuned: Record) -> dict[str, Record]:
    """Options of the trees: the paper's, svelto's without a tail, and with the tuned machine behind it."""
    plans: dict[str, Record] = {
        "paper0": {**PAPER_TREE, "greedy": 0},
        "paper1": {**PAPER_TREE, "greedy": 1},
        "linear": {"tail": None},
    }
    if scale == "standard":
        plans["tail"] = {"tail": machine(tuned)}
    return {side: {**options, "scale": scale} for side, options in plans.items()}


def train_tree(parts: Parts, options: Record, n_jobs: int) -> tuple[Any, Record]:
    """A fitted tree and what it does on the test rows."""
    tree = svelto.SVMTreeClassifier(**options, n_jobs=n_jobs, random_state=SEED)
    started = perf_counter()
    tree, said = with_warnings(lambda: tree.fit(parts.X_train, parts.y_train))
    train_seconds = perf_counter() - started
    work = tree.work(parts.X_test)
    return tree, {
        "size": int(tree.n_nodes_),
        "n_grown": int(tree.n_grown_.sum()),
        "ended": dict(Counter(tree.ended_)),
        "tail_size": 0 if tree.tail_ is None else n_coefficients(tree.tail_),
        "train_seconds": train_seconds,
        "right": int(np.count_nonzero(tree.predict(parts.X_test) == parts.y_test)),
        "settled": work["settled"],
        "planes": work["planes"],
        "kernel_values": work["kernel_values"],
        "depth": tree.average_depth(parts.X_test),
        "warnings": said,
    }
