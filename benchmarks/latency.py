"""One row at a time: how long a call takes at the median, and how long the slowest take.

    python benchmarks/latency.py --markdown docs/benchmarks/latency.md

Every call is timed by itself (_latency.py), from Python and from C (_latency_c.py), in turns with SVC.predict and
onnxruntime; then one predictor is asked by eight threads and by four processes (_latency_sharing.py). Predictors are
built on the training rows and kept as svelto files in bench-results/latency: the first run takes minutes longer.
`--quick` measures a small generated machine in seconds. Run it on a quiet computer: whoever else runs is in p99.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from scipy import sparse

import _latency_c
import svelto
from _cases import Case, make_case
from _environment import describe
from _hinge_cases import MODELS, load_machine
from _latency import Contender, Percentiles, measure, python_contender, single_rows, summary
from _latency_sharing import N_PROCESSES, answered_by, compare_threads, in_batches, process_line, time_processes
from _latency_tables import Page, render
from hinges import code_stamp
from svelto.reproduce._common import OtherLoad
from svelto.suite.row_form import svc_in_form

MACHINES = ("a9a", "ijcnn1", "satimage.scale")
# The machine whose predictors are shared: it has the most test rows.
SHARED = "ijcnn1"
AGREEMENT = 0.999
METHODS: dict[str, dict[str, Any]] = {
    "exact": {"method": "exact"},
    "bounded": {"method": "bounded"},
    "hinges": {"method": "hinges", "agreement": AGREEMENT},
    "taylor_tree": {"method": "taylor_tree", "agreement": AGREEMENT},
    "reduced_set": {"method": "reduced_set", "agreement": AGREEMENT},
    "auto": {"method": "auto", "agreement": AGREEMENT, "batch_size": 1},
}
QUICK = ("exact", "taylor_tree")
IN_C = ("exact", "hinges", "taylor_tree")
THREADED = ("exact", "taylor_tree")
KEPT = Path("bench-results/latency")
# Rows that are asked about, in turns; few enough that reading them is not what is measured.
ROWS = 5_000
CALLS, MOST_SECONDS = 100_000, 8.0
BATCH, SINGLES, REPEATS = 1_000, 10_000, 5
# Calls of threads take one of them about as long as this: starting eight threads takes a millisecond.
THREAD_SECONDS, LEAST_BATCHES = 0.5, 40


def build(case: Case, name: str, folder: Path | None) -> Any:
    """A predictor by the name of its method; kept as a svelto file, as long as the library stays the same."""
    path = None if folder is None else folder / f"{case.key}-{code_stamp()}-{name}.svelto"
    if path is None or not path.is_file():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a promise that was not kept is a column of the table
            fast = svelto.accelerate(case.machine, case.X_train, random_state=0, n_jobs=1, **METHODS[name])
        if path is None:
            return fast
        path.parent.mkdir(parents=True, exist_ok=True)
        fast.save(path)
    return svelto.load(path, n_jobs=1)


def dense_rows(case: Case) -> np.ndarray:
    """Test rows as a service has them: dense, float64, one after the other."""
    X = case.X_test[:ROWS]
    return np.ascontiguousarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)


def rivals(case: Case, X: np.ndarray) -> Iterator[Contender]:
    """SVC.predict in the form that answers single rows faster, and onnxruntime with one thread."""
    forms = {"dense rows": (svc_in_form(case.svc, "dense"), single_rows(X))}
    forms["CSR rows"] = (svc_in_form(case.svc, "csr"), single_rows(sparse.csr_matrix(X)))
    tried = [python_contender(form, svc.predict, rows) for form, (svc, rows) in forms.items()]
    measure(tried, 200, 1.0)
    form = min(tried, key=lambda contender: summary(contender).p50).name
    svc, rows = forms[form]
    yield python_contender("SVC.predict", svc.predict, rows, form)
    try:
        from svelto.suite.onnx_machine import OnnxMachine

        graph = OnnxMachine(case.machine, 1, X.astype(np.float32))
    except ImportError as error:
        print(f"  onnxruntime: {error}", file=sys.stderr)
        return
    yield python_contender("onnxruntime", graph.predict, single_rows(X.astype(np.float32)), "float32 rows, one thread")


def measure_case(
    title: str, case: Case, built: dict[str, Any], folder: Path, n_calls: int, seconds: float
) -> dict[str, Any]:
    """Lines of one machine: percentiles, and labels that differ from SVC.predict's on all test rows."""
    X = dense_rows(case)
    rows = single_rows(X)
    contenders = [python_contender("clock", lambda row: None, rows, "an empty function: what the clock takes")]
    contenders += rivals(case, X)
    wrong = {}
    for name, fast in built.items():
        wrong[name] = int((fast.predict(case.X_test) != case.labels).sum())
        contenders.append(python_contender(name, fast.predict, rows, note_of(fast)))
    for name in [name for name in IN_C if name in built and _latency_c.can_compile()]:
        program = _latency_c.CProgram(built[name], X, folder / name)
        contenders.append(_latency_c.c_contender(f"{name}, C", program, note_of(built[name])))
        wrong[f"{name}, C"] = int((program.ask(0, len(X))[1] != case.labels[: len(X)]).sum())
    load = OtherLoad()
    measure(contenders, n_calls, seconds)
    times: dict[str, Percentiles] = {each.name: summary(each) for each in contenders}
    return {
        "title": title,
        "n_sv": case.machine.n_sv,
        "d": case.machine.n_features,
        "n_test": case.X_test.shape[0],
        "n_rows": len(X),
        "times": times,
        "notes": {each.name: each.note for each in contenders},
        "wrong": wrong,
        "other_load": load.cores(),
    }


def note_of(fast: Any) -> str:
    report = fast.report
    return f"{report.method}, {report.promise}"


def measure_threads(built: dict[str, Any], X: np.ndarray, most_calls: int) -> list[dict[str, Any]]:
    """Lines about threads: what they share, how large a call is, the gain."""
    lines = []
    for name in THREADED:
        for size in (1, BATCH):
            predict, some = built[name].predict, in_batches(X, size, LEAST_BATCHES)
            answered_by(predict, some, 1)
            begin = perf_counter()
            answered_by(predict, some, 1)
            each = (perf_counter() - begin) / len(some)
            count = max(min(int(THREAD_SECONDS / each), most_calls), LEAST_BATCHES)
            load = OtherLoad()
            found = compare_threads(predict, in_batches(X, size, count), REPEATS)
            lines.append({"method": name, "rows": size, "calls": count, "other_load": load.cores(), **found})
    return lines


def measure_processes(path: Path, X: np.ndarray, n_calls: int) -> list[dict[str, Any]]:
    """Lines about processes; none where the system does not fork or tells nothing of memory."""
    if not Path("/proc/self/smaps_rollup").is_file():
        return []
    lines = []
    for way, n in (("fork", 1), ("fork", N_PROCESSES), ("spawn", N_PROCESSES)):
        lines.append(process_line(way, time_processes(way, path, X, n_calls, n)))
    return lines


def generated() -> Case:
    """A small machine, for `--quick`."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5_000, 8))
    y = ((X**2).sum(axis=1) + rng.normal(size=len(X)) > 8.0).astype(int)
    return make_case("generated", X[:1_500], y[:1_500], X[1_500:], y[1_500:], C=1.0, gamma=0.125)


def run(given: argparse.Namespace) -> Page:
    """Everything, or the quick form of it."""
    names = ("generated",) if given.quick else tuple(given.only or MACHINES)
    n_calls, seconds = (1_000, 0.5) if given.quick else (given.calls, given.seconds)
    shared = SHARED if SHARED in names else names[0]
    methods = QUICK if given.quick else tuple(METHODS)
    cases, threads, processes = [], [], []
    with tempfile.TemporaryDirectory() as place:
        for name in names:
            print(f"{name}: building", file=sys.stderr, flush=True)
            case = generated() if given.quick else load_machine(name, "default", MODELS)
            built = {method: build(case, method, None if given.quick else KEPT) for method in methods}
            if given.build_only:
                continue
            print(f"{name}: single calls", file=sys.stderr, flush=True)
            title = name if given.quick else f"{name} default"
            cases.append(measure_case(title, case, built, Path(place) / name, n_calls, seconds))
            if name != shared:
                continue
            print(f"{name}: threads and processes", file=sys.stderr, flush=True)
            X = dense_rows(case)
            threads = measure_threads(built, X, n_calls)
            path = Path(place) / "shared.svelto"
            built["taylor_tree"].save(path)
            processes = measure_processes(path, X, min(SINGLES, n_calls))
    command = " ".join(["python benchmarks/latency.py", *sys.argv[1:]])
    return Page(describe(), command, cases, shared, threads, processes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=MACHINES, help="machines; default: all")
    parser.add_argument("--calls", type=int, default=CALLS, help="calls of each contender")
    parser.add_argument("--seconds", type=float, default=MOST_SECONDS, help="slow contenders get fewer calls than that")
    parser.add_argument("--quick", action="store_true", help="a generated machine, a few thousand calls")
    parser.add_argument("--build-only", action="store_true", help="build and keep the predictors, measure nothing")
    parser.add_argument("--markdown", type=Path, help="page to write")
    given = parser.parse_args()
    page = run(given)
    if given.build_only:
        return
    text = render(page)
    print(text)
    if given.markdown:
        given.markdown.write_text(text)


if __name__ == "__main__":
    main()
