"""What stages take, beside what the search for sequences thinks they cost.

    python benchmarks/stage_costs.py --markdown docs/benchmarks/stage-costs.md

Sequences are compared by expected cost (`svelto.engines.stage_costs`), not by clocks. Here every stage is timed on test
rows, one thread, interleaved with the exact engine, and its cost is put into nanoseconds by one unit for the whole
page: the median of time over cost of all hinges. Reduced sets are timed twice, as bumps and by the exact engine's code.
Stages are trained hardly at all: what they answer does not change what they take.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from _environment import describe
from _hinge_cases import load_machine
from _tables import table
from _timing import interleave, timed
from svelto._inputs import Query
from svelto.engines.exact import build_exact
from svelto.engines.hinges import HingeOptions, whole_vectors
from svelto.engines.reduced_stage import ReducedSet, ReducedSetOptions
from svelto.engines.stage_costs import whole_sum_cost
from svelto.given_rows import read_rows
from svelto.workshop import Workshop

MACHINES = ("pendigits", "satimage.scale", "letter.scale", "usps", "ijcnn1", "a9a", "mnist", "svmguide1")
HINGES = (16, 64, 256)
VECTORS = (64, 192)
ROWS = 8000
LITTLE: dict[str, Any] = {"oracle_rows": 5000}
CAUTION = 3.0


class ByEngine(ReducedSet):
    """The same sum by the exact engine's code."""

    _bumps = None  # type: ignore[assignment]


@dataclass
class Line:
    """A stage of a machine."""

    machine: str
    stage: str
    cost: float
    nanoseconds: float = 0.0


def measure(name: str, repeats: int) -> list[Line]:
    case = load_machine(name, "default")
    machine = case.machine
    X = case.X_test
    times = -(-ROWS // X.shape[0])
    X = sparse.vstack([X] * times, format="csr") if sparse.issparse(X) else np.tile(X, (times, 1))
    query, n = Query(X[:ROWS]), ROWS
    rows, _ = read_rows(machine, case.X_train, None, "hinges", 0, least=5)
    workshop = Workshop(machine, build_exact(machine), rows, 0.999, None, 0, 2)
    workshop.calibrate(None, 0.95)
    outputs = {"scores": machine.n_scores, "classes": machine.n_classes} if machine.n_classes > 2 else {"scores": 1}
    stages: dict[str, Any] = {}
    for answers, n_outputs in outputs.items():
        for size in HINGES:
            options = HingeOptions(whole_vectors(size, n_outputs), answers, max_epochs=1, **LITTLE)  # type: ignore[arg-type]
            stages[f"{options.n_hinges} hinges, {answers}"] = workshop.build(options)
    for size in VECTORS:
        mapped = workshop.build(ReducedSetOptions(n_basis=size, max_iter=5, **LITTLE))
        plain = mapped.without_map()
        own = ByEngine(machine, plain.reduced, plain.unit, n_read=plain.n_read)
        stages |= {f"{size} vectors": plain, f"{size}, map of errors": mapped, f"{size}, by the engine": own}
    exact = workshop.exact
    sides = {"exact": timed(lambda: exact.labels(query, 1))}
    sides |= {label: timed(lambda stage=stage: stage.settle(query, CAUTION, 1)) for label, stage in stages.items()}
    seconds = interleave(sides, repeats)
    lines = [Line(name, "exact", whole_sum_cost(machine, rows))]
    lines += [Line(name, label, stage.operations()) for label, stage in stages.items()]
    for line in lines:
        line.nanoseconds = float(np.median(seconds[line.stage][1])) / n * 1e9
    return lines


def page(lines: list[Line], command: str) -> str:
    unit = float(np.median([line.nanoseconds / line.cost for line in lines if "hinges" in line.stage]))
    about = describe()
    gains = [
        engine.nanoseconds / bumps.nanoseconds
        for engine in lines
        for bumps in lines
        if engine.stage == f"{bumps.stage.split()[0]}, by the engine" and engine.machine == bumps.machine
        if bumps.stage.endswith("vectors")
    ]
    head = (
        "# What stages take\n\n"
        f"{about['cpu']}, {about['instruction_level']}, one thread, {ROWS:,} rows; commit {about['commit']}. A unit of "
        f"cost is {unit:.4f} ns, the median of all hinges. Reduced sets as bumps are {min(gains):.1f} to "
        f"{max(gains):.1f} times as fast as by the exact engine's code (median {np.median(gains):.1f}).\n\n"
    )
    cells = [
        [
            line.machine,
            line.stage,
            f"{line.nanoseconds:,.0f}",
            f"{line.cost * unit:,.0f}",
            f"{line.nanoseconds / (line.cost * unit):.2f}",
        ]
        for line in lines
    ]
    columns = ["machine", "stage", "ns/row", "by its cost, ns", "ratio"]
    return f"{head}{table(columns, cells)}\n\nWritten by `{command}`.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=MACHINES)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    lines = [line for name in given.only or MACHINES for line in measure(name, given.repeats)]
    text = page(lines, "python benchmarks/stage_costs.py --markdown docs/benchmarks/stage-costs.md")
    print(text)
    if given.markdown:
        given.markdown.write_text(text)


if __name__ == "__main__":
    main()
