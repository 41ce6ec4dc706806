"""The compiled module itself: its exponential, its checks, its stub."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import svelto
from machines import random_machine
from svelto import _core
from svelto.engines.packing import pack_machine

LEVELS = _core.available_levels()


def exp2_error(level, values, out_dtype):
    """Relative error of the vectorised 2^t in units of the last place."""
    out = np.empty_like(values)
    (_core.exp2_f32 if out_dtype == np.float32 else _core.exp2_f64)(level, values, out)
    exact = np.exp2(values.astype(np.longdouble))
    unit = 2.0**-24 if out_dtype == np.float32 else 2.0**-53
    return float(np.max(np.abs(out.astype(np.longdouble) / exact - 1)) / unit)


@pytest.mark.parametrize("level", LEVELS)
def test_exp2_single_is_within_the_bound_used(level):
    rng = np.random.default_rng(0)
    values = np.concatenate(
        [rng.uniform(-126, 1, 200_000), -np.exp2(rng.uniform(-40, 6.9, 200_000)), [0.0, -0.5, -126.0]]
    )
    assert exp2_error(level, values.astype(np.float32), np.float32) < 4.0


@pytest.mark.parametrize("level", LEVELS)
def test_exp2_double_is_within_the_bound_used(level):
    rng = np.random.default_rng(1)
    values = np.concatenate(
        [rng.uniform(-1022, 1, 200_000), -np.exp2(rng.uniform(-60, 9.9, 200_000)), [0.0, -0.5, -1022.0]]
    )
    assert exp2_error(level, values, np.float64) < 4.0


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_exp2_single_over_every_float_of_its_range(level):
    worst = 0.0
    top = int(np.float32(-126.0).view(np.uint32))
    for start in range(0x80000000, top + 1, 1 << 24):
        bits = np.arange(start, min(start + (1 << 24), top + 1), dtype=np.uint32)
        values = bits.view(np.float32)
        out = np.empty_like(values)
        _core.exp2_f32(level, values, out)
        worst = max(worst, float(np.max(np.abs(out.astype(np.float64) / np.exp2(values.astype(np.float64)) - 1))))
    assert worst / 2.0**-24 < 4.0


@pytest.mark.parametrize("level", LEVELS)
def test_exp2_far_below_range_is_the_smallest_normal_number(level):
    out = np.empty(3, dtype=np.float32)
    _core.exp2_f32(level, np.array([-126.5, -1e4, -np.inf], dtype=np.float32), out)
    assert np.abs(out.astype(np.float64) / 2.0**-126 - 1).max() < 4 * 2.0**-24


def test_sanitizer_run_uses_the_sanitized_core():
    assert ("SVELTO_SANITIZED" in os.environ) == _core.SANITIZED


def test_baseline_always_exists():
    assert LEVELS[0] == "baseline"


@pytest.mark.parametrize("level", LEVELS)
def test_environment_variable_forces_a_level(level):
    code = "import svelto, numpy as np; m = svelto.KernelMachine.from_arrays(kernel='rbf', support_vectors=np.eye(3), \
dual_coef=[1, 1, -1], classes=[0, 1]); print(svelto.accelerate(m).report.details['instruction level'])"
    environment = {**os.environ, "SVELTO_ISA": level}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == level


def test_unknown_level_is_named(monkeypatch):
    monkeypatch.setenv("SVELTO_ISA", "sse9")
    with pytest.raises(ValueError, match=r"SVELTO_ISA is 'sse9'; this CPU and build offer baseline"):
        svelto.accelerate(random_machine())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("n_sv", 41, "dual_coef has"),
        ("d", 7, "vectors_f64 has"),
        ("n_groups_f64", 1, "group_start_f64 has"),
        ("intercept", np.zeros(3), "intercept has 3 elements; expected 1"),
        ("weights_f64", np.zeros(3), "weights_f64 has 3 elements"),
        ("rule", "pairs", "cast"),
    ],
)
def test_engine_refuses_arrays_that_disagree(name, value, message):
    fields = pack_machine(random_machine(), single_pair="dot", use_postings=False)
    fields[name] = value
    with pytest.raises((ValueError, RuntimeError, TypeError), match=message):
        _core.Engine(fields, "baseline")


def test_engine_refuses_missing_fields_and_levels():
    fields = pack_machine(random_machine(), single_pair=None, use_postings=False)
    with pytest.raises(ValueError, match="instruction level 'mmx' is not available"):
        _core.Engine(fields, "mmx")
    del fields["gamma"]
    with pytest.raises(KeyError, match="gamma"):
        _core.Engine(fields, "baseline")


def test_engine_refuses_rows_of_another_shape_or_type():
    engine = _core.Engine(pack_machine(random_machine(), single_pair="dot", use_postings=False), "baseline")
    labels = np.empty(2, dtype=np.int32)
    with pytest.raises(ValueError, match="width"):
        engine.predict_dense(np.zeros((2, 5)), labels, 0, False, 1)
    with pytest.raises(ValueError, match="length"):
        engine.predict_dense(np.zeros((3, 6)), labels, 0, False, 1)
    with pytest.raises(ValueError, match="float32 or float64"):
        engine.predict_dense(np.zeros((2, 6), dtype=np.int64), labels, 0, False, 1)
    with pytest.raises(ValueError, match="precision"):
        engine.predict_dense(np.zeros((2, 6)), labels, 7, False, 1)
    data, start = np.zeros(1), np.array([0, 1, 1], dtype=np.int32)
    with pytest.raises(ValueError, match="disagree in length"):
        engine.predict_csr(data, np.zeros(2, dtype=np.int32), start, labels, 0, 1)


def test_engine_reports_damaged_csr_rows_instead_of_reading_outside():
    engine = _core.Engine(pack_machine(random_machine(), single_pair="dot", use_postings=False), "baseline")
    labels = np.empty(2, dtype=np.int32)
    data = np.ones(2)
    for indices, start in (
        ([0, 6], [0, 1, 2]),
        ([0, -1], [0, 1, 2]),
        ([0, 1], [0, 1, 9]),
        ([0, 1], [0, 2, 1]),
        ([1, 0], [0, 0, 2]),
    ):
        outcome = engine.predict_csr(
            data, np.array(indices, dtype=np.int32), np.array(start, dtype=np.int32), labels, 0, 1
        )
        assert outcome[3] >= 0
        assert outcome[4] == 2


def test_stub_lists_what_the_module_has():
    tree = ast.parse((Path(svelto.__file__).parent / "_core.pyi").read_text())
    stub = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    stub |= {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
    assert stub == {name for name in dir(_core) if not name.startswith("_")}
    (engine,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Engine")
    methods = {node.name for node in engine.body if isinstance(node, ast.FunctionDef)} - {"__init__"}
    assert methods == {name for name in dir(_core.Engine) if not name.startswith("_")}
