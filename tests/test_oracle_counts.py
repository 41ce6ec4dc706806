"""How many rows are made up for a stage to learn from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.svm import SVC

from svelto import oracle
from svelto.machine import KernelMachine


@pytest.mark.parametrize(
    ("d", "made"),
    [
        (2, 4000),  # as many as are needed
        (10, 3000),  # as far as the values go
        (40, 1000),  # but no fewer than of wide rows
    ],
)
def test_of_wide_rows_fewer_are_made_but_not_too_few(monkeypatch, d, made):
    monkeypatch.setattr(oracle, "LEAST_VALUES", 30_000)
    monkeypatch.setattr(oracle, "LEAST_OF_WIDE", 1000)
    X = np.random.default_rng(0).normal(size=(60, d))
    machine = KernelMachine.from_sklearn(SVC().fit(X, X[:, 0] > 0.0))
    needs = replace(oracle.FOR_HINGES, least=4000)
    rows = oracle.oracle_rows(machine, X, "auto", 0, np.random.default_rng(0), 1, needs)
    assert len(rows) == 60 + made
    assert (rows[:60] == X).all()
