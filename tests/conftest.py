"""Shared by all tests: where the data is, and quiet, repeatable Hypothesis runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from svelto import cli

# Beside a checkout the papers' data sets may lie in ../shared/data; an explicit SVELTO_DATA wins.
_beside = Path(__file__).resolve().parents[2] / "shared" / "data"
if _beside.is_dir():
    os.environ.setdefault("SVELTO_DATA", str(_beside))

settings.register_profile("svelto", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("svelto")


@pytest.fixture
def run(capfdbinary):
    """Run the command line in this process: exit code, stdout bytes, stderr text."""

    def call(*args):
        with pytest.raises(SystemExit) as leaving:
            cli.main([str(arg) for arg in args])
        out, err = capfdbinary.readouterr()
        return leaving.value.code or 0, out, err.decode()

    return call
