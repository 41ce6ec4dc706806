"""LIBSVM's own program, `svm-predict`, where it is installed.

It reads the model and the rows from text on every call. A call with one row measures that; it is subtracted, so what
is left is prediction and reading the text of the rows themselves.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.datasets import dump_svmlight_file

from svelto import KernelMachine

PROGRAM = "svm-predict"


class SvmPredict:
    """svm-predict on a fixed set of rows."""

    def __init__(self, machine: KernelMachine, rows: Any) -> None:
        program = shutil.which(PROGRAM)
        if program is None:
            raise ImportError(f"{PROGRAM} is not on the path")
        self.program, self.n_rows = program, rows.shape[0]
        self.folder = tempfile.TemporaryDirectory(prefix="svelto-bench-")
        self.path = Path(self.folder.name)
        machine.to_libsvm(self.path / "model")
        for name, part in {"many": rows, "one": rows[:1]}.items():
            dump_svmlight_file(part, np.zeros(part.shape[0]), str(self.path / name), zero_based=False)

    def close(self) -> None:
        """Remove the files."""
        self.folder.cleanup()

    def labels(self, dtype: np.dtype) -> np.ndarray:
        """Answers for the rows, of the classes' type."""
        self._run("many")
        return np.loadtxt(self.path / "answers").astype(dtype)

    def measure(self) -> tuple[float, float]:
        """Seconds for the rows, the program's start and its reading of the model taken off; every call is a first."""
        many, one = self._run("many"), self._run("one")
        seconds = max(many - one, 1e-9) * self.n_rows / max(self.n_rows - 1, 1)
        return seconds, seconds

    def _run(self, name: str) -> float:
        started = perf_counter()
        command = [self.program, "-q", name, "model", "answers"]
        subprocess.run(command, cwd=self.path, check=True, stdout=subprocess.DEVNULL)
        return perf_counter() - started
