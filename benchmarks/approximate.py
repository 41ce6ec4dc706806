"""Methods that approximate, beside our exact engine and SVC.predict: agreement first, then ratios from one run.

    python benchmarks/approximate.py --markdown docs/benchmarks/approximate.md --plot docs/benchmarks/size.png

Every method is built on the training rows (two threads) and asked about all test rows in one batch, on one and on two
threads, in turns with the exact engine. SVC.predict, which knows one thread, takes its turn on a sample of the rows.
One-row calls are timed apart. `--size` measures time against the number of support vectors.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from scipy import sparse

import svelto
from _cases import Case, load_case
from _environment import describe
from _timing import interleave, spread, thread_count, timed
from svelto.reproduce._common import OtherLoad

CASES = (
    ("a9a", False),
    ("ijcnn1", False),
    ("ijcnn1", True),
    ("w8a", False),
    ("covtype.libsvm.binary.scale", False),
    ("letter.scale", True),
)
METHODS: dict[str, dict[str, Any]] = {
    "taylor_tree, paper mode": {
        "method": "taylor_tree",
        "agreement": None,
        "leaf_size": 1,
        "fit": "taylor",
        "split": "midpoint",
    },
    "taylor_tree, no promise": {"method": "taylor_tree", "agreement": None},
    "taylor_tree 0.999": {"method": "taylor_tree", "agreement": 0.999},
    "taylor_tree 1.0 (certified)": {"method": "taylor_tree", "agreement": 1.0},
    "reduced_set 0.999": {"method": "reduced_set", "agreement": 0.999},
}
SVC_ROWS = 500
MOST_CERTIFIED = 50
SIZES = (1_000, 2_000, 4_000, 8_000, 16_000)


def measure_case(case: Case, methods: dict[str, dict[str, Any]], repeats: int) -> list[dict[str, Any]]:
    built, lines = {}, []
    for name, options in methods.items():
        if options["agreement"] == 1.0 and case.machine.n_scores > MOST_CERTIFIED:
            print(f"{case.name}: {name}: left out, {case.machine.n_scores} scores take minutes to certify")
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            started = perf_counter()
            try:
                built[name] = svelto.accelerate(case.svc, case.X_train, random_state=0, n_jobs=2, **options)
            except NotImplementedError as error:
                print(f"{case.name}: {name}: {error}")
                continue
        seconds = perf_counter() - started
        labels = built[name].predict(case.X_test)
        work = built[name].work(case.X_test)
        lines.append(
            {
                "dataset": case.name,
                "n_sv": case.machine.n_sv,
                "d": case.machine.n_features,
                **case.parameters,
                "method": name,
                "promise": built[name].report.promise,
                "bound": built[name].report.agreement_bound,
                "agreement": float(np.mean(labels == case.labels)),
                "accuracy_change": float(np.mean(labels == case.y_test) - np.mean(case.labels == case.y_test)),
                "stages": work["stages"],
                "build_seconds": seconds,
                "bytes": built[name].nbytes,
                "warned": bool(caught),
            }
        )
    rng = np.random.default_rng(0)
    sample = np.sort(rng.choice(case.X_test.shape[0], size=min(SVC_ROWS, case.X_test.shape[0]), replace=False))
    some, n_rows = case.X_test[sample], case.X_test.shape[0]
    for threads in (1, 2):
        exact = svelto.accelerate(case.svc, method="exact", n_jobs=threads)
        sides: dict[str, Callable[[], object]] = {
            "SVC.predict": lambda: case.svc.predict(some),
            "exact": lambda exact=exact: exact.predict(case.X_test),
        }
        for name, fast in built.items():
            fast.n_jobs = threads
            sides[name] = lambda fast=fast: fast.predict(case.X_test)
        with thread_count(threads):
            seconds_of = interleave({name: timed(call) for name, call in sides.items()}, repeats)
        svc = seconds_of["SVC.predict"][1] / len(sample)
        whole = seconds_of["exact"][1] / n_rows
        for line in lines:
            own = seconds_of[line["method"]][1] / n_rows
            line[f"vs_svc_{threads}"] = spread(svc / own)
            line[f"vs_exact_{threads}"] = spread(whole / own)
            line[f"us_row_{threads}"] = spread(own * 1e6)
    one = case.X_test[:256]
    one = np.ascontiguousarray(one.toarray() if sparse.issparse(one) else one, dtype=np.float64)
    latency = one_row_latency({**{name: fast.predict for name, fast in built.items()}, "exact": exact.predict}, one)
    for line in lines:
        line["one_row_us"] = spread(latency[line["method"]] * 1e6)
        line["one_row_exact_us"] = spread(latency["exact"] * 1e6)
    return lines


def one_row_latency(
    sides: dict[str, Callable[[Any], object]], rows: np.ndarray, rounds: int = 20
) -> dict[str, np.ndarray]:
    """Seconds of single calls, one row each; the sides take turns after each pass over the rows."""
    seconds = {name: np.empty((rounds, len(rows))) for name in sides}
    for turn in range(rounds):
        for name, predict in sides.items():
            for i in range(len(rows)):
                row = rows[i : i + 1]
                started = perf_counter()
                predict(row)
                seconds[name][turn, i] = perf_counter() - started
    return {name: s[1:].ravel() for name, s in seconds.items()}  # the first pass warms up


def measure_sizes(repeats: int) -> list[dict[str, float]]:
    """Time a row against the number of support vectors: one set of rows, machines that sum over more of them."""
    case = load_case("ijcnn1", tuned=False, folder=Path("bench-results/models"))
    sign = np.where(np.asarray(case.y_train) > 0, 1.0, -1.0)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(sign))
    X_test = case.X_test[:20_000]
    results = []
    for n_sv in SIZES:
        own = order[:n_sv]
        # Parzen windows, with the classes' weights made equal.
        weights = np.where(sign[own] > 0, 1.0 / (sign[own] > 0).sum(), -1.0 / (sign[own] < 0).sum())
        machine = svelto.KernelMachine.from_arrays(
            kernel="rbf", gamma=1.0, support_vectors=case.X_train[own], dual_coef=weights, classes=[-1, 1]
        )
        tree = svelto.accelerate(machine, case.X_train, method="taylor_tree", agreement=None, random_state=0, n_jobs=2)
        exact = svelto.accelerate(machine, method="exact", n_jobs=2)
        sides = {"tree": timed(lambda p=tree: p.predict(X_test)), "exact": timed(lambda p=exact: p.predict(X_test))}
        seconds = interleave(sides, repeats)
        results.append(
            {
                "n_sv": n_sv,
                "agreement": float(np.mean(tree.predict(X_test) == exact.predict(X_test))),
                **{f"{name}_us": float(np.median(s[1])) / X_test.shape[0] * 1e6 for name, s in seconds.items()},
            }
        )
        print(results[-1], flush=True)
    return results


def plot_sizes(results: list[dict[str, float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
    n_sv = [r["n_sv"] for r in results]
    for name, label in (("exact_us", "exact engine"), ("tree_us", "taylor_tree, no escalation")):
        axes.loglog(n_sv, [r[name] for r in results], marker="o", label=label)
    axes.set_xlabel("support vectors")
    axes.set_ylabel("microseconds a row, 2 threads")
    axes.legend()
    figure.savefig(path, dpi=130)


def markdown(document: dict[str, Any]) -> str:
    env = document["environment"]
    lines = [
        "# Approximating methods beside the exact engine",
        "",
        f"{env['cpu']}, {env['cores']} cores, {env['instruction_level']}; commit {env['commit']}; "
        f"other load while measuring: {document['other_load']} cores. Whole test set in one batch; medians of "
        f"{document['repeats']} interleaved repeats; SVC.predict on {SVC_ROWS} of the test rows.",
        "",
        "*agreement* is the share of test labels equal to SVC.predict's; *settled* the share of rows that never reach "
        "the exact engine; ratios are times of the other side over times of this method.",
        "",
        "| data | SVs | C, gamma | method | promise (bound) | agreement | settled | us/row 1, 2 thr. "
        "| vs exact 1, 2 thr. | vs SVC.predict 1, 2 thr. | one row us, median (exact) | build s | MB |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in document["rows"]:
        bound = "" if r["bound"] is None else f" ({r['bound']:.4f}{', too few rows' if r['warned'] else ''})"
        lines.append(
            f"| {r['dataset']} | {r['n_sv']} | {r['C']:g}, {r['gamma']:.3g} | {r['method']} | {r['promise']}{bound} | "
            f"{r['agreement']:.5f} | {1 - r['stages']['exact']:.1%} | "
            f"{r['us_row_1']['median']:.3f}, {r['us_row_2']['median']:.3f} | "
            f"{r['vs_exact_1']['median']:.1f}, {r['vs_exact_2']['median']:.1f} | "
            f"{r['vs_svc_1']['median']:,.0f}, {r['vs_svc_2']['median']:,.0f} | "
            f"{r['one_row_us']['median']:.1f} ({r['one_row_exact_us']['median']:.1f}) | {r['build_seconds']:.1f} | "
            f"{r['bytes'] / 1e6:.1f} |"
        )
    if document["sizes"]:
        lines += [
            "",
            "## Time against size",
            "",
            "One set of rows (ijcnn1), machines that sum over more and more of them (Parzen windows, gamma = 1), two "
            "threads, 20,000 rows a batch. The tree's time does not depend on the number of support vectors.",
            "",
            "| support vectors | exact us/row | tree us/row | tree's agreement |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {r['n_sv']:,} | {r['exact_us']:.3f} | {r['tree_us']:.3f} | {r['agreement']:.4f} |"
            for r in document["sizes"]
        ]
        lines += ["", "![time against size](size.png)"]
    return "\n".join([*lines, "", f"Written by `python benchmarks/approximate.py {document['arguments']}`.", ""])


BEGIN, END = "<!-- approximate benchmark: begin -->", "<!-- approximate benchmark: end -->"


def readme_table(document: dict[str, Any]) -> str:
    """The lines for the README: the tree at 0.999, and its certified form."""
    lines = [
        "| data set | SVs | C, gamma | promise | labels equal | never reach the exact engine | over SVC.predict "
        "| over `exact` |",
        "| --- | ---: | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for r in document["rows"]:
        if r["method"] in ("taylor_tree 0.999", "taylor_tree 1.0 (certified)", "reduced_set 0.999"):
            lines.append(
                f"| {r['dataset']} | {r['n_sv']:,} | {r['C']:g}, {r['gamma']:.3g} | "
                f"{r['method'].split()[0]}: {r['promise']} | "
                f"{r['agreement']:.3%} | {1 - r['stages']['exact']:.1%} | {r['vs_svc_2']['median']:,.0f} | "
                f"{r['vs_exact_2']['median']:.1f} |"
            )
    where = f"{document['environment']['cpu']}, 2 threads, {document['environment']['instruction_level']}"
    return "\n".join([*lines, "", f"{where}; `python benchmarks/approximate.py {document['arguments']}`"])


def write_readme(document: dict[str, Any], path: Path) -> None:
    text = path.read_text()
    before, rest = text.split(BEGIN)
    path.write_text(f"{before}{BEGIN}\n{readme_table(document)}\n{END}{rest.split(END)[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="data sets; default: all")
    parser.add_argument("--methods", action="append", choices=list(METHODS), help="default: all")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--readme", type=Path, help="file whose table between the marks is replaced")
    parser.add_argument("--plot", type=Path, help="also measure time against size, and draw it here")
    arguments = parser.parse_args()
    load, rows = OtherLoad(), []
    chosen = {name: METHODS[name] for name in arguments.methods or METHODS}
    for name, tuned in CASES:
        if arguments.only and name not in arguments.only:
            continue
        case = load_case(name, tuned=tuned, folder=Path("bench-results/models"))
        for line in measure_case(case, chosen, arguments.repeats):
            rows.append(line)
            print(
                f"{name} {'tuned' if tuned else 'default'}: {line['method']}: agreement {line['agreement']:.5f}, "
                f"settled {1 - line['stages']['exact']:.1%}, vs exact {line['vs_exact_2']['median']:.1f}x, vs SVC "
                f"{line['vs_svc_2']['median']:,.0f}x (2 threads), one row {line['one_row_us']['median']:.1f} us, build "
                f"{line['build_seconds']:.1f} s",
                flush=True,
            )
    document = {
        "environment": describe(),
        "repeats": arguments.repeats,
        "rows": rows,
        "sizes": measure_sizes(arguments.repeats) if arguments.plot else [],
        "other_load": load.cores(),
        "arguments": " ".join(
            part
            for name, value in vars(arguments).items()
            if value is not None
            for part in ([f"--{name}", str(value)] if not isinstance(value, list) else [f"--{name} {v}" for v in value])
        ),
    }
    Path("bench-results").mkdir(exist_ok=True)
    Path("bench-results/approximate.json").write_text(json.dumps(document, indent=1))
    if arguments.markdown:
        arguments.markdown.write_text(markdown(document))
    if arguments.readme:
        write_readme(document, arguments.readme)
    if arguments.plot:
        plot_sizes(document["sizes"], arguments.plot)


if __name__ == "__main__":
    main()
