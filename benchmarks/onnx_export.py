"""Exported ONNX graphs beside skl2onnx's SVMClassifier operator, both run by onnxruntime.

    python benchmarks/onnx_export.py --markdown docs/benchmarks/onnx-export.md

For each machine one interleaved run of the operator that skl2onnx writes for the SVC, of the graph of the exact machine
and of the graph of a cascade of hinges (``--method`` for another), at one and at two threads: large batches, and one
row at a time. The operator is asked about fewer rows, since it takes milliseconds for one. Labels are compared on all
test rows. Predictors are kept beside the machines; the first run has to build them.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
from scipy import sparse

import svelto
from _environment import describe
from _hinge_cases import MODELS
from _tables import number
from _timing import batch_call, interleave, spread, timed
from svelto.suite.machines import Case, load_machine
from svelto.suite.store import code_stamp

MACHINES = ("a9a", "ijcnn1", "letter.scale", "satimage.scale", "usps")
# Kernel values that the operator is asked for in one call, and most rows of a call.
OPERATOR_VALUES, OPERATOR_ROWS = 2_000_000, 1000
MOST_ROWS = 20_000
THREADS = (1, 2)
OPERATOR = "SVMClassifier"
COLUMNS = (
    *("machine", "SVs", "graph", "dtype", "file", "labels of the predictor", "labels of SVC.predict"),
    *("µs/row, 1 thread", "operator / graph, 1 thread", "2 threads", "one row: µs", "one row: operator / graph"),
)
HEAD = """# ONNX graphs beside the SVMClassifier operator

Both are run by onnxruntime on float32 rows (float64: on the same rows as doubles). *operator / graph*: the time that
skl2onnx's `SVMClassifier` takes for a row over that of the graph `export_onnx` wrote, median of interleaved repeats
[10 %, 90 %]; above 1 the graph is faster. The graph gets all test rows in one call (at most 20,000), the operator some
hundreds, since its time is in proportion to the rows. *labels*: how many of the test rows have another label than the
predictor that was exported, and than scikit-learn's `SVC.predict`. *one row*: a call of the session for a single row,
one thread. The operator's own file and labels are in its line.
"""


class Side(NamedTuple):
    """A model: what it is, its file, its type of numbers, the predictor behind it."""

    name: str
    path: Path
    dtype: str
    predictor: Any


def dense(X: Any) -> Any:
    return np.ascontiguousarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float32)


def cascade_of(case: Case, method: str, folder: Path | None) -> Any:
    """The accelerated machine; built once and kept."""
    path = None if folder is None else folder / f"{case.key}-{method}-{code_stamp()}.svelto"
    if path is not None and path.is_file():
        return svelto.load(path)
    fast = svelto.accelerate(case.svc, case.X_train, method=method, random_state=0)
    if path is not None:
        fast.save(path)
    return fast


def write_operator(case: Case, rows: Any, path: Path) -> None:
    """The SVC as skl2onnx writes it."""
    from skl2onnx import to_onnx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks at attributes that scikit-learn is about to remove
        model = to_onnx(case.svc, rows[:1], options={id(case.svc): {"zipmap": False}})
    path.write_bytes(model.SerializeToString())


def session_of(side: Side, n_threads: int) -> Callable[[Any], Any]:
    """A function from rows to labels."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = n_threads, 1
    session = onnxruntime.InferenceSession(side.path, options, providers=["CPUExecutionProvider"])
    return lambda rows: session.run(["label"], {"X": rows})[0]


def sides_of(case: Case, rows: Any, method: str, folder: Path, kept: Path | None) -> list[Side]:
    """Everything that is measured on a machine; the operator first."""
    operator = folder / "operator.onnx"
    write_operator(case, rows, operator)
    sides = [Side(OPERATOR, operator, "float32", None)]
    exact, fast = svelto.accelerate(case.machine, method="exact"), cascade_of(case, method, kept)
    for predictor in (exact, fast):
        for dtype in ("float32", "float64"):
            written = predictor.export_onnx(folder / f"{len(sides)}.onnx", dtype=dtype, X=rows[:500])
            sides.append(Side(written.method, written.path, dtype, predictor))
    return sides


def measure(case: Case, method: str, repeats: int, kept: Path | None) -> list[list[str]]:
    """Lines of the table for a machine."""
    rows = dense(case.X_test[:MOST_ROWS])
    few = rows[: int(np.clip(OPERATOR_VALUES // case.machine.n_sv, 50, OPERATOR_ROWS))]
    labels, seconds, ones = {}, {}, {}
    with tempfile.TemporaryDirectory() as name:
        sides = sides_of(case, rows, method, Path(name), kept)
        sizes = [side.path.stat().st_size for side in sides]
        for n_threads in THREADS:
            many, single, n_rows = {}, {}, {}
            for at, side in enumerate(sides):
                run = session_of(side, n_threads)
                X = (few if side.name == OPERATOR else rows).astype(side.dtype)
                n_rows[at] = len(X)
                labels[at] = run(X)
                many[at] = timed(batch_call(run, X, len(X)))
                single[at] = timed(batch_call(run, X, 1))
            taken = interleave(many, repeats)
            seconds[n_threads] = {at: times[1] / n_rows[at] for at, times in taken.items()}
            if n_threads == 1:
                ones = {at: times[1] for at, times in interleave(single, repeats).items()}
    return [line_of(case, side, at, rows, labels[at], sizes[at], seconds, ones) for at, side in enumerate(sides)]


def line_of(
    case: Case, side: Side, at: int, rows: Any, labels: Any, size: int, seconds: dict[int, Any], ones: dict[int, Any]
) -> list[str]:
    """One line."""
    n = len(labels)
    own = "-"
    if side.predictor is not None:
        own = f"{int((labels != side.predictor.predict(rows.astype(np.float64))).sum())} of {n:,} differ"
    ratios = [spread(seconds[threads][0] / seconds[threads][at]) for threads in THREADS]
    one = spread(ones[0] / ones[at])
    return [
        case.name,
        f"{case.machine.n_sv:,}",
        side.name,
        side.dtype,
        f"{size / 1e6:.2f} MB",
        own,
        f"{int((labels != case.labels[:n]).sum())} of {n:,} differ",
        number(1e6 * float(np.median(seconds[THREADS[0]][at]))),
        *(f"{number(r['median'])} [{number(r['q10'])}, {number(r['q90'])}]" for r in ratios),
        number(1e6 * float(np.median(ones[at]))),
        number(one["median"]),
    ]


def line(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=MACHINES, help="only these machines; may be repeated")
    parser.add_argument("--method", default="hinges", help="of the cascade")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="few rows, one repeat: to see that it runs")
    parser.add_argument("--markdown", type=Path, help="file for the table")
    arguments = parser.parse_args()
    most = {"most_train": 600, "most_test": 300} if arguments.quick else {}
    kept = None if arguments.quick else MODELS
    lines = [line(COLUMNS), line(["---"] * 4 + ["---:"] * (len(COLUMNS) - 4))]
    print(*lines, sep="\n")
    for name in arguments.only or MACHINES:
        case = load_machine(name, "default", kept, **most)
        for cells in measure(case, arguments.method, 1 if arguments.quick else arguments.repeats, kept):
            lines.append(line(cells))
            print(lines[-1], flush=True)
    if arguments.markdown:
        arguments.markdown.write_text("\n".join([HEAD, *lines, "", *foot(arguments)]))


def foot(arguments: argparse.Namespace) -> list[str]:
    """Where the numbers come from."""
    facts = describe()
    options = "".join(f" --only {name}" for name in arguments.only or ())
    options += f" --method {arguments.method}" if arguments.method != "hinges" else ""
    options += f" --repeats {arguments.repeats}" if arguments.repeats != 5 else ""
    options += " --quick" if arguments.quick else ""
    packages = ("svelto", "skl2onnx", "onnx", "onnxruntime", "scikit-learn")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in packages)
    return [
        f"{facts['cpu']}, {facts['cores']} cores; {versions}; load average at the start {facts['load_average']}; "
        f"`python benchmarks/onnx_export.py{options} --markdown ...`",
        "",
    ]


if __name__ == "__main__":
    main()
