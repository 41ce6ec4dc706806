"""Exported C headers: bytes on a Cortex-M4, and labels beside the predictor's.

    python benchmarks/c_export.py --markdown docs/benchmarks/c-export.md

Every header is compiled for this computer and asked about all test rows; for a Cortex-M4 it is weighed (-Os, a program
with the model minus the same program without it) and run in an emulator on some of the rows. Without the cross compiler
or the emulator those columns are empty.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import _arm_board
import svelto
from _environment import describe
from _hinge_cases import MODELS, load_machine
from svelto import datasets

# Flash for tables of a small microcontroller.
BUDGET = 32_000
BOARD_ROWS = 200
COLUMNS = (
    *("machine", "method", "dtype", "tables", "flash", "stack", "flash, float sums", "labels of the predictor"),
    *("the same on the board", "labels of the machine", "accuracy"),
)
WRAPPER = """
#include "m.h"
void ask(const float *X, int n, int *labels) {
    int i;
    for (i = 0; i < n; ++i) labels[i] = m_predict(X + i * m_N_FEATURES);
}
"""


class Job(NamedTuple):
    """A model to export: what predicts, the labels of the machine behind it, test rows and their labels."""

    machine: str
    method: str
    dtype: str
    predictor: Any
    machine_labels: Any
    X: Any
    y: Any
    max_bytes: int | None = BUDGET


def single(X: Any) -> Any:
    """Rows as C code reads them."""
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float32).astype(np.float64)


def ordinary() -> Iterator[Job]:
    """A machine of 327 support vectors with 10 features, as from a sensor."""
    rng = np.random.default_rng(0)
    machine = svelto.KernelMachine.from_arrays(
        kernel="rbf",
        gamma=0.1,
        support_vectors=rng.normal(size=(327, 10)),
        dual_coef=rng.normal(size=327),
        intercept=0.1,
        classes=[-1, 1],
    )
    X = single(rng.normal(size=(5000, 10)))
    fast = svelto.accelerate(machine, method="exact")
    labels = fast.predict(X)
    for dtype in ("float32", "int16", "int8"):
        yield Job("generated, 327 x 10", "exact", dtype, fast, labels, X, labels)


def a9a() -> Iterator[Job]:
    """One stage that answers every row, as large as fits in each type of numbers."""
    case = load_machine("a9a", "default", MODELS)
    X, X_test = single(case.X_train), single(case.X_test)
    labels = svelto.accelerate(case.svc, method="exact").predict(X_test)
    sizes = {
        "hinges": ("n_hinges", {"float32": 62, "int16": 120, "int8": 236}),
        "taylor_tree": ("max_leaves", {"float32": 30, "int16": 57, "int8": 108}),
        "reduced_set": ("n_basis", {"float32": 60, "int16": 120, "int8": 240}),
    }
    for method, (option, by_dtype) in sizes.items():
        for dtype, size in by_dtype.items():
            fast = svelto.accelerate(case.svc, X, method=method, agreement=None, random_state=0, **{option: size})
            name = f"{size} hinges" if method == "hinges" else f"{method}, {option}={size}"
            yield Job("a9a", name, dtype, fast, labels, X_test, case.y_test)


def usps() -> Iterator[Job]:
    """A tree of hyperplanes, which answers every row without a kernel value."""
    data = datasets.load("usps")
    X, X_test = single(data.X_train), single(data.X_test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tree = svelto.SVMTreeClassifier(tail=None, scale=None, random_state=0).fit(X, data.y_train)
    labels = tree.predict(X_test)
    for dtype in ("float32", "int16", "int8"):
        yield Job("usps", f"SVMTreeClassifier, {tree.n_nodes_} planes", dtype, tree, labels, X_test, data.y_test, None)


JOBS = {"ordinary": ordinary, "a9a": a9a, "usps": usps}


def host_labels(folder: Path, X: Any) -> Any:
    """Labels of all rows, by this computer's compiler."""
    (folder / "host.c").write_text(WRAPPER)
    command = ["gcc", "-std=c99", "-O2", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fPIC", "-shared"]
    subprocess.run([*command, "host.c", "-o", "host.so", "-lm"], cwd=folder, check=True)
    rows, labels = np.ascontiguousarray(X, dtype=np.float32), np.empty(len(X), dtype=np.int32)
    ask = ctypes.CDLL(str(folder / "host.so")).ask
    ask(rows.ctypes.data_as(ctypes.c_void_p), len(rows), labels.ctypes.data_as(ctypes.c_void_p))
    return labels


def measure(job: Job) -> list[str]:
    """One line of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        header = folder / "m.h"
        written = job.predictor.export_c(header, dtype=job.dtype, max_bytes=job.max_bytes, X=job.X)
        labels, own = host_labels(folder, job.X), job.predictor.predict(job.X)
        weights = (
            [_arm_board.weigh(header, "m", real) for real in ("double", "float")] if _arm_board.can_compile() else []
        )
        board = "-"
        if _arm_board.can_run():
            found = _arm_board.run(header, "m", job.X[:BOARD_ROWS])
            board = f"{int((np.array(found) == labels[:BOARD_ROWS]).sum())} of {BOARD_ROWS}"
    return [
        job.machine,
        job.method,
        job.dtype,
        f"{written.table_bytes:,}",
        f"{weights[0].flash:,}" if weights else "-",
        f"{weights[0].stack:,}" if weights else "-",
        f"{weights[1].flash:,}" if weights else "-",
        f"{int((labels == own).sum()):,} of {len(own):,}",
        board,
        f"{np.mean(labels == job.machine_labels):.3%}",
        f"{np.mean(labels == job.y):.2%}",
    ]


def line(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=tuple(JOBS), help="only these; may be repeated")
    parser.add_argument("--markdown", type=Path, help="file for the table")
    arguments = parser.parse_args()
    lines = [line(COLUMNS), line(["---"] * 3 + ["---:"] * (len(COLUMNS) - 3))]
    print(*lines, sep="\n")
    for name in arguments.only or JOBS:
        for job in JOBS[name]():
            lines.append(line(measure(job)))
            print(lines[-1], flush=True)
    if arguments.markdown:
        arguments.markdown.write_text("\n".join([HEAD, *lines, "", *foot(arguments.only)]))


HEAD = f"""# Exported C headers on a Cortex-M4

*tables* are the `static const` arrays, in bytes; *flash* is what the model adds to a program: its code, its tables, and
functions of the C library that nothing else needed (sums in double precision, which this processor does in software,
and `exp`); *stack* is what its functions take below the call. There is no other memory. *flash, float sums*: compiled
with `-DNAME_REAL=float`. Labels are counted on all test rows, on this computer; the emulated board is asked about the
first {BOARD_ROWS}.

a9a: the exact machine is far too large for such a processor. A single stage, made to fill {BUDGET:,} bytes in each type
of numbers, answers every row and promises nothing: how often it agrees is measured. usps: the tree is a classifier of
its own, without a kernel machine behind it, and so the machine of its column is the tree; it is written whole, however
large. The generated machine has no true labels: its accuracy is against its own.
"""


def foot(only: Any) -> list[str]:
    facts = describe()
    command = "python benchmarks/c_export.py" + "".join(f" --only {name}" for name in only or ())
    compilers = ", ".join(
        subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
        for name in ("gcc", *((_arm_board.COMPILER,) if _arm_board.can_compile() else ()))
    )
    return [f"{facts['cpu']}; {compilers}; svelto {facts['versions']['svelto']}; `{command} --markdown ...`", ""]


if __name__ == "__main__":
    main()
