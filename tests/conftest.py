"""Shared by all tests: where the data is, and quiet, repeatable Hypothesis runs."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import HealthCheck, settings

# Beside a checkout the papers' data sets may lie in ../shared/data; an explicit SVELTO_DATA wins.
_beside = Path(__file__).resolve().parents[2] / "shared" / "data"
if _beside.is_dir():
    os.environ.setdefault("SVELTO_DATA", str(_beside))

settings.register_profile("svelto", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("svelto")
