"""Shared by all tests: where the data is, and quiet, repeatable Hypothesis runs."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from svelto import cli

# Beside a checkout the papers' data sets may lie in ../shared/data; an explicit SVELTO_DATA wins.
_beside = Path(__file__).resolve().parents[2] / "shared" / "data"
if _beside.is_dir():
    os.environ.setdefault("SVELTO_DATA", str(_beside))

# A shell's background jobs do not hear Ctrl-C; tests that press it need Python's own handler.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("svelto", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("svelto")

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def run(capfdbinary):
    """Run the command line in this process: exit code, stdout bytes, stderr text."""

    def call(*args):
        with pytest.raises(SystemExit) as leaving:
            cli.main([str(arg) for arg in args])
        out, err = capfdbinary.readouterr()
        return leaving.value.code or 0, out, err.decode()

    return call


@pytest.fixture
def bench(monkeypatch):
    """Import benchmarks/NAME.py as the script itself does."""
    pytest.importorskip("threadpoolctl")
    if not BENCHMARKS.is_dir():
        pytest.skip("the benchmarks are not part of this copy")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(BENCHMARKS)):
            del sys.modules[name]
