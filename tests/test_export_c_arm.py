"""Exported headers on a processor without an operating system: no warnings, and the same labels."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

import svelto
from machines import random_machine

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def board(monkeypatch):
    if not BENCHMARKS.is_dir():
        pytest.skip("the benchmarks are not part of this copy")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    board = importlib.import_module("_arm_board")
    if not board.can_compile():
        pytest.skip("there is no arm-none-eabi-gcc")
    return board


@pytest.mark.parametrize(("kernel", "dtype", "real"), [("rbf", "float32", "double"), ("poly", "int8", "float")])
def test_a_cortex_m4_gives_the_same_labels(board, tmp_path, kernel, dtype, real):
    fast = svelto.accelerate(random_machine(kernel, n_sv=50, n_classes=3), method="exact")
    Z = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    written = fast.export_c(tmp_path / "m.h", dtype=dtype, X=Z)
    weight = board.weigh(written.path, "m", real)
    assert written.table_bytes < weight.model < written.table_bytes + 1500
    assert weight.stack < 600
    if not board.can_run():
        pytest.skip("there is no qemu-system-arm")
    labels = np.array(board.run(written.path, "m", Z, real))
    assert labels.shape == (60,)
    assert np.mean(labels == fast.predict(Z)) == written.agreement.predictor
