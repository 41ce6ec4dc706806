"""A pytest plugin: run somebody's tests with scikit-learn patched, and write what the patch did to a file."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import svelto
from svelto.patching import counts


def pytest_configure(config):
    svelto.patch_sklearn()


def pytest_unconfigure(config):
    Path(os.environ["SVELTO_PATCH_COUNTS"]).write_text(json.dumps(asdict(counts())))
