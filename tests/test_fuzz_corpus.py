"""Every kept input of the fuzz targets once: what was found stays fixed, and the harnesses stay in working order."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[1] / "fuzz"
TARGETS = ("libsvm_model", "svelto_file", "svmlight_rows", "csv_rows")


@pytest.fixture
def fuzz(monkeypatch):
    """Modules of the folder, by name."""
    monkeypatch.syspath_prepend(str(FUZZ))
    return importlib.import_module


@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs(fuzz, name):
    common, replay = fuzz("_common"), fuzz("replay")
    count, found = replay.replay(name, common.SEEDS[name])
    assert count >= 4
    assert found == []


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_inputs_are_inputs(fuzz, name):
    """Mutators give bytes within the limit for all they are given, and the same ones for the same seed."""
    common, replay, target = fuzz("_common"), fuzz("replay"), fuzz(name)
    texts = [path.read_bytes() for path in replay.inputs(common.SEEDS[name])]
    for seed, data in enumerate([*texts, b"", b"\0", texts[0][:70]]):
        made = target.mutate(data, 16_000, seed, lambda data, most: data[1:most])
        assert isinstance(made, bytes)
        assert len(made) <= max(16_000, len(data))
        assert made == target.mutate(data, 16_000, seed, lambda data, most: data[1:most])


def test_forged_files_pass_their_checksums(fuzz):
    """Otherwise a fuzzer would only ever see the first check of a file."""
    from file_cases import CORPUS
    from svelto.io.file import read_file

    forge, common = fuzz("_forge"), fuzz("_common")
    data = (CORPUS / "v1" / "promised.svelto").read_bytes()
    passed = 0
    for seed in range(100):
        made = forge.forge(data, 20_000, seed, lambda data, most: data[:most])
        try:
            read_file(common.written(made, "forged"))
        except ValueError:
            continue
        passed += made != data
    assert passed > 50


def test_a_wrong_answer_is_a_finding(fuzz, monkeypatch):
    """Targets are quiet about good inputs because these are good, not because nothing is looked at."""
    common, target = fuzz("_common"), fuzz("libsvm_model")
    data = (common.SEEDS["libsvm_model"][0] / "two_classes").read_bytes()
    target.check(data)
    monkeypatch.setattr("svelto.predictor.Predictor.predict", lambda self, X: [7] * X.shape[0])
    with pytest.raises(common.FindingError, match="predict answers"):
        target.check(data)


@pytest.fixture(autouse=True)
def _path_as_it_was():
    before = list(sys.path)
    yield
    sys.path[:] = before
