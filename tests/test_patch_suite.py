"""scikit-learn's own tests of its SVMs pass under the patch, every one of them, and they really go through svelto."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("sklearn.svm.tests") is None, reason="this scikit-learn was installed without its tests"
)


def run_suite(tmp_path, *arguments):
    """Run tests of the installed scikit-learn in a process of their own: counts of pytest, counts of the patch."""
    counts = tmp_path / "counts.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "sklearn_under_patch", "-p", "no:cacheprovider"]
    # An empty configuration: ours asks for other markers, and turns warnings into errors that scikit-learn expects.
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    environment = {**os.environ, "SVELTO_PATCH_COUNTS": str(counts)}
    environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(
        [*command, "--pyargs", *arguments],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    passed = re.search(r"(\d+) passed", done.stdout.splitlines()[-1])
    assert passed, done.stdout[-1000:]
    return int(passed[1]), json.loads(counts.read_text())


def test_scikit_learns_tests_of_its_svms(tmp_path):
    n_tests, patch = run_suite(tmp_path, "sklearn.svm.tests.test_svm", "sklearn.svm.tests.test_sparse")
    assert n_tests > 200
    # What is left to scikit-learn are callable and precomputed kernels.
    assert patch["compiled"] > 250
    assert patch["served"] > 800
    assert patch["passed"] < 50


@pytest.mark.slow
def test_scikit_learns_common_checks_of_its_svms(tmp_path):
    n_tests, patch = run_suite(tmp_path, "sklearn.tests.test_common", "-k", "SVC or SVR or OneClassSVM")
    assert n_tests > 300
    assert patch["compiled"] > 150
    assert patch["served"] > 300
