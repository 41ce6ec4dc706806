"""Rows unlike the calibration data, for benchmarks/hinges.py: their labels must be the exact engine's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

import svelto
from _cases import SEED, Case
from _hinge_cases import parts_of

# Machines of these sets are asked, each also about rows of another set.
GUARDED = {
    "a9a": "w8a",
    "ijcnn1": "letter.scale",
    "letter.scale": "ijcnn1",
    "usps": "a9a",
    "satimage.scale": "usps",
    "pendigits": "letter.scale",
}
USUAL, NOISE = "test rows as they are", "uniform in the box"
ROWS = 2_000
ONE_BY_ONE = 64


def strange_rows(case: Case) -> Iterator[tuple[str, Any]]:
    """Name and rows of every kind; ranges are those of the training rows. Rows stay CSR where zeros stay zeros."""
    X_train = case.X_train.toarray() if case.is_sparse else case.X_train
    low, high = X_train.min(axis=0), X_train.max(axis=0)
    usual = case.X_test[:ROWS]
    full = usual.toarray() if sparse.issparse(usual) else usual
    yield USUAL, usual
    for factor in (0.5, 2.0):
        yield f"shifted by {factor:g} ranges", full + factor * (high - low)
    for factor, name in ((3.0, "times 3"), (10.0, "times 10"), (1000.0, "times 1000")):
        yield name, usual * factor
    yield "all zeros", np.zeros((ONE_BY_ONE, len(low)))
    other = GUARDED[case.name]
    yield f"rows of {other}", fitted_to(len(low), parts_of(other)[2][:ROWS])
    yield NOISE, np.random.default_rng(SEED).uniform(low, high, size=(ROWS, len(low)))


def fitted_to(width: int, rows: Any) -> Any:
    """Rows cut, or padded with zeros, to a number of features."""
    if rows.shape[1] >= width:
        return rows[:, :width]
    missing = (rows.shape[0], width - rows.shape[1])
    if sparse.issparse(rows):
        return sparse.hstack([rows, sparse.csr_matrix(missing)], format="csr")
    return np.hstack([rows, np.zeros(missing)])


def measure_guard(case: Case, built: dict[str, svelto.predictor.Predictor]) -> list[dict[str, Any]]:
    """For every predictor and kind of rows: shares of equal labels, in a batch and one by one, and shares sent on."""
    exact = svelto.accelerate(case.svc, method="exact", n_jobs=2)
    lines = []
    for kind, rows in strange_rows(case):
        right = exact.predict(rows)
        few = rows[:ONE_BY_ONE]
        few = np.ascontiguousarray(few.toarray() if sparse.issparse(few) else few, dtype=np.float64)
        for method, fast in built.items():
            work = fast.work(rows)
            labels = fast.predict(rows)
            alone = np.concatenate([fast.predict(few[i : i + 1]) for i in range(len(few))])
            lines.append(
                {
                    "rows": kind,
                    "method": method,
                    "n": int(rows.shape[0]),
                    "different": int(np.sum(labels != right)),
                    "n_alone": len(few),
                    "different_alone": int(np.sum(alone != right[: len(few)])),
                    "guarded": work.get("guarded"),
                    "exact": work["stages"]["exact"],
                }
            )
    return lines
