"""What stages cost in the search for sequences, and the page that compares it with clocks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.svm import SVC

from svelto.engines.stage_costs import (
    KERNEL_COST,
    STORED_COST,
    inputs_read,
    layer_cost,
    mix_cost,
    whole_sum_cost,
)
from svelto.machine import KernelMachine

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 40)) * (RNG.random((200, 40)) < 0.1)


def machine_of(rows, n_classes=2):
    return KernelMachine.from_sklearn(SVC().fit(rows, np.arange(rows.shape[0]) % n_classes))


def test_new_rows_are_sparse_where_the_vectors_are():
    stored = np.count_nonzero(X) / 200
    assert inputs_read(machine_of(X), X) == 40
    assert inputs_read(machine_of(sparse.csr_matrix(X)), X) == pytest.approx(STORED_COST * stored)
    assert inputs_read(machine_of(sparse.csr_matrix(X)), X + 1.0) == 40  # never more than a dense row


def test_products_are_counted_in_whole_vectors():
    assert layer_cost(10, 17) == 12 * 32
    assert mix_cost(64, 3) == 64 * 16
    assert mix_cost(64, 1) == 0.0  # a single score is summed on the way


@pytest.mark.parametrize(("n_classes", "columns"), [(2, 1), (4, 6)])
def test_the_whole_sum_visits_every_vector(n_classes, columns):
    machine = machine_of(X, n_classes)
    assert whole_sum_cost(machine, X) == machine.n_sv * (40 + KERNEL_COST + columns)


def test_the_page_puts_costs_into_nanoseconds(bench):
    stage_costs = bench("stage_costs")
    lines = [
        stage_costs.Line("a", "exact", 1000.0, 40.0),
        stage_costs.Line("a", "15 hinges, scores", 100.0, 2.0),
        stage_costs.Line("a", "64 vectors", 200.0, 8.0),
        stage_costs.Line("a", "64, by the engine", 600.0, 24.0),
    ]
    text = stage_costs.page(lines, "command")
    assert "is 0.0200 ns" in text
    assert "3.0 to 3.0 times as fast" in text
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in text.splitlines() if row.startswith("|")]
    cells = {row[1]: row[2:] for row in rows}
    assert cells["exact"] == ["40", "20", "2.00"]
    assert cells["64 vectors"] == ["8", "4", "2.00"]
