"""Run by the Python of a clean environment into which the wheel was installed: is the installed svelto whole?

Needs nothing but svelto and its dependencies, and must not see the source tree.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.svm import SVC

import svelto
from svelto import _core


def main() -> None:
    for module in (svelto, _core):
        where = Path(module.__file__).resolve()
        assert where.is_relative_to(Path(sys.prefix).resolve()), (
            f"{where} is not under {sys.prefix}: not the installed wheel"
        )
    assert (Path(svelto.__file__).parent / "py.typed").is_file(), "py.typed is missing: type checkers would see nothing"

    X, y = load_digits(return_X_y=True)
    svc = SVC().fit(X[:1000], y[:1000])
    rows, expected = X[1000:], svc.predict(X[1000:])
    fast = svelto.accelerate(svc, method="exact")
    same(fast.predict(rows), expected, "dense rows")
    same(fast.predict(rows.astype(np.float32)), expected, "float32 rows")  # whole numbers: the same values
    same(fast.predict(sparse.csr_matrix(rows)), expected, "CSR rows")
    same(np.concatenate([fast.predict(row[None]) for row in rows]), expected, "one row at a time")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.model"
        fast.machine.to_libsvm(path)
        machine = svelto.KernelMachine.from_libsvm(path)
        # A file names no features that are zero in every support vector at the end of a row.
        same(svelto.accelerate(machine).predict(rows[:, : machine.n_features]), expected, "the LIBSVM file's machine")

    level = fast.report.details["instruction level"]
    print(
        f"wheel ok: svelto {svelto.__version__}, {fast.machine.n_sv} support vectors, {len(rows)} labels equal, {level}"
    )


def same(got: np.ndarray, expected: np.ndarray, what: str) -> None:
    assert (got == expected).all(), f"{what}: {int((got != expected).sum())} of {len(expected)} labels differ"


if __name__ == "__main__":
    main()
