"""Table 1 and Figure 1 of paper S3: the sum of one row, step by step, and the bounds on what is left.

The paper's own row is not published. Its table is recomputed from the numbers it prints; beside it stands a row of
segmentation, found by a fixed rule (`find_row`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from svelto.engines.distance_lists import DistanceLists, bound_table
from svelto.reproduce import _paper_s3, _s3_figure
from svelto.reproduce._common import (
    FORMAT,
    Experiment,
    Interrupted,
    Record,
    Request,
    environment,
    environment_text,
    progress,
    write_text,
)
from svelto.reproduce._s0_data import SEED
from svelto.reproduce._s3_data import load_parts
from svelto.reproduce._s3_machines import KernelName, Strategy, Trainer
from svelto.reproduce._s3_render import PAPER
from svelto.reproduce._tables import table as markdown_table
from svelto.reproduce.s3 import chosen, grid_settings

SET: Final = ("segmentation", "scaled")
# A table to be read: about as many vectors as the paper's has, and some left where it stops.
LEAST_VECTORS, MOST_VECTORS, LEAST_LEFT = 6, 10, 2
COLUMNS: Final = ("weight", "distance", "first_distance", "partial", "low", "upp", "remaining", "most", "least")


def run_table1(request: Request) -> list[Path]:
    """Trace, recompute, draw, write."""
    _s3_figure.need_matplotlib()
    request.output.mkdir(parents=True, exist_ok=True)
    try:
        with progress(3) as steps:
            steps.say("a row with the Gaussian kernel")
            document: Record = {"format": FORMAT, "experiment": "s3-table1", "environment": environment()}
            document["paper"] = recompute()
            machine, lists, X = _machine("rbf", "pairs", request)
            row, score, table = find_row(lists, X)
            document["row"] = {**machine, "row": row, "score": score, **_columns(table)}
            steps.advance()
            steps.say("a row with the exponential kernel")
            machine, lists, X = _machine("exponential", "rest", request)
            document["figure"] = {**machine, "row": row, **bounds_along(lists, X[row])}
            steps.advance()
            steps.say("drawing")
            files = _s3_figure.draw_bounds(document["figure"], request.output / "s3-figure1.png")
            for suffix, text in (
                ("json", json.dumps(document, indent=1, allow_nan=False) + "\n"),
                ("md", render_table1(document)),
            ):
                files.append(request.output / f"s3-table1.{suffix}")
                write_text(files[-1], text)
            steps.advance()
    except KeyboardInterrupt:
        raise Interrupted("interrupted. No file was left half-written.") from None
    return files


def _machine(kernel: KernelName, strategy: Strategy, request: Request) -> tuple[Record, DistanceLists, Any]:
    """The tuned machine of the set, its lists, and the test rows."""
    parts = load_parts(*SET)
    trainer = Trainer(parts.X_train, parts.y_train, kernel, request.n_jobs)
    power, gamma, _ = chosen(trainer, grid_settings(request, SET[0]), lambda text: None)
    machine = trainer.fit(strategy, trainer.gram(gamma), 2.0**power, gamma)
    facts = {"set": " ".join(SET), "kernel": kernel, "C_power": power, "gamma": gamma, "n_sv": machine.n_sv}
    return facts, DistanceLists(machine, random_state=SEED, shared=False), parts.X_test


def find_row(lists: DistanceLists, X: Any) -> tuple[int, int, Any]:
    """The first test row, and of it the first binary machine, whose table is short and stops before its end."""
    for row, x in enumerate(X):
        for score in range(lists.machine.n_scores):
            table = lists.trace(x, score)
            n_vectors = len(table) - 1
            if LEAST_VECTORS <= n_vectors <= MOST_VECTORS and 0 < stop_of(table) <= n_vectors - LEAST_LEFT:
                return row, score, table
    raise ValueError("No test row of the set stops early; expected one.")


def stop_of(table: Any) -> int:
    """The step at which the sign is certain."""
    return int(np.argmax(table["certain"]))


def _columns(table: Any) -> Record:
    """Columns of a table as JSON knows them: None where there is no number."""
    columns = {name: [None if np.isnan(value) else float(value) for value in table[name]] for name in COLUMNS}
    return {**columns, "stop": stop_of(table)}


def recompute() -> Record:
    """The paper's table from its coefficients, distances and bias, under each reading of sigma and of d_upp.

    The printed d_upp, less the printed d(x, sv_1), is not the distance of the last vector, as (7) has it.
    """
    rows = _paper_s3.TABLE1[1:]
    weight, distance, apart = (
        np.array([getattr(row, name) for row in rows], dtype=np.float64)
        for name in ("coefficient", "distance", "list_distance")
    )
    farthest = {"printed": float(rows[0].high or 0.0) - float(distance[0]), "last": float(apart[-1])}
    gammas = {"2 sigma^2": 1.0 / (2.0 * _paper_s3.TABLE1_SIGMA2), "sigma^2": 1.0 / _paper_s3.TABLE1_SIGMA2}
    return {
        f"{divisor}, {reading}": _columns(
            bound_table(
                weight, distance, apart, gamma=gamma, intercept=_paper_s3.TABLE1[0].partial, squared=True, farthest=far
            )
        )
        for divisor, gamma in gammas.items()
        for reading, far in farthest.items()
    }


def bounds_along(lists: DistanceLists, x: Any) -> Record:
    """Bounds of both kinds along the list, for the binary machine that leaves out most vectors."""
    tables = [lists.trace(x, score) for score in range(lists.machine.n_scores)]
    score = max(range(len(tables)), key=lambda i: len(tables[i]) - 1 - stop_of(tables[i]))
    table = tables[score]
    f, loose = table["partial"], [table["most"], table["least"]]
    certain = ((f >= 0) & (f >= -table["least"])) | ((f <= 0) & (f <= -table["most"]))
    columns = {name: table[name].tolist() for name in ("remaining", "most", "least", "tight_most", "tight_least")}
    return {
        "score": score,
        **columns,
        "widest": float(max(np.abs(bound - table["remaining"]).max() for bound in loose)),
        "mean_width": float(np.mean(table["most"] - table["least"])),
        "mean_tight_width": float(np.mean(table["tight_most"] - table["tight_least"])),
        "stop": stop_of(table),
        "loose_stop": int(np.argmax(certain)),
        "n_vectors": len(table) - 1,
    }


# -- page ---------------------------------------------------------------------------------------------------------

_TRACE_HEAD: Final = (
    "vectors added;alpha y;d(x, sv);d(sv1, sv);f_n;least distance left;largest distance left;remaining;positive "
    "contribution at most;negative contribution at most"
)


def render_table1(document: Record) -> str:
    """Whole page of Table 1 and Figure 1."""
    row, figure, paper = document["row"], document["figure"], document["paper"]
    n_vectors = len(row["partial"]) - 1
    return "\n\n".join(
        [
            "# S3, Table 1 and Figure 1: one sum, step by step",
            f"After {PAPER}, Table 1 and Figure 1. Command: `svelto reproduce s3-table1`. "
            f"Machine: {environment_text(document['environment'])}.",
            "## A real row",
            f"Test row {row['row']} of {row['set']}, binary machine {row['score']} of the tuned one-against-one "
            f"machine, Gaussian kernel, C = 2^{row['C_power']}, sigma² = {1 / (2 * row['gamma']):.3g}. The sum stops "
            f"after {row['stop']} of {n_vectors} support vectors (bold), where the bound on the rest cannot change the "
            f"sign of f_n. f(x) = {_last(row['partial']):.3f}.",
            markdown_table(_TRACE_HEAD, _trace_rows(row)),
            "The bound on the rest stands in the column that could change the sign: positive where f_n < 0, negative "
            "where f_n > 0. Distances left are those of (6) and (7) for the vectors not yet added.",
            "## The paper's own table, recomputed",
            "From its printed coefficients, distances and bias. Each cell: paper / recomputed, with "
            "K = exp(-d²/sigma²) and the printed d_upp.",
            markdown_table(_TRACE_HEAD, _paper_rows(paper["sigma^2, printed"])),
            "\n".join(f"- {text}" for text in _paper_notes(paper)),
            "## Figure 1",
            "![Bounds less the remaining value along the list](s3-figure1.png)",
            f"- {figure['set']}, exponential kernel, C = 2^{figure['C_power']}, gamma = {figure['gamma']:.3g}, tuned, "
            f"one against the rest, machine {figure['score']} ({figure['n_vectors']} support vectors), test row "
            f"{figure['row']}. Shown: upper and lower bound less the remaining value, divided by the largest such "
            "difference of (10) and (11).\n"
            f"- Mean width of the interval along the list: {figure['mean_width']:.3g} by (10) and (11), "
            f"{figure['mean_tight_width']:.3g} by (16) and (17). The sum stops after {figure['stop']} vectors by (16) "
            f"and (17); by (10) and (11) it would after {figure['loose_stop']}.",
            "",
        ]
    )


def _last(values: Sequence[Any]) -> float:
    return float(values[-1])


def _trace_rows(row: Record) -> list[list[str]]:
    rows = []
    for n, partial in enumerate(row["partial"]):
        is_last = n == len(row["partial"]) - 1
        cells = [
            str(n),
            *(_number(row[name][n]) for name in ("weight", "distance", "first_distance", "partial", "low", "upp")),
            "" if is_last else _number(row["remaining"][n]),
            _number(row["most"][n]) if partial < 0 and not is_last else "",
            _number(row["least"][n]) if partial >= 0 and not is_last else "",
        ]
        rows.append([f"**{cell}**" if n == row["stop"] and cell else cell for cell in cells])
    return rows


def _paper_rows(ours: Record) -> list[list[str]]:
    rows = []
    for n, line in enumerate(_paper_s3.TABLE1):
        is_last = n == len(_paper_s3.TABLE1) - 1
        # The paper prints the distances of the vector just added; those of the vectors left stand in the row above.
        low, upp = (ours["low"][n - 1], ours["upp"][n - 1]) if n else (None, None)
        bound = None if is_last else ours["most" if line.partial < 0 else "least"][n]
        both = _both(line.bound, bound)
        cells = [
            str(n),
            *(_number(value) for value in (line.coefficient, line.distance, line.list_distance)),
            _both(line.partial, ours["partial"][n]),
            _both(line.low, low),
            _both(line.high, upp),
            "" if is_last else _both(line.remaining, ours["remaining"][n]),
            both if line.partial < 0 else "",
            both if line.partial >= 0 else "",
        ]
        rows.append([f"**{cell}**" if n == _paper_s3.TABLE1_STOP and cell else cell for cell in cells])
    return rows


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"


def _both(paper: float | None, ours: float | None) -> str:
    if paper is None and ours is None:
        return ""
    return f"{_number(paper) or '-'} / {_number(ours) or '-'}"


def _paper_notes(paper: Record) -> list[str]:
    printed = _paper_s3.TABLE1[-1].partial
    half, whole = paper["2 sigma^2, printed"], paper["sigma^2, printed"]
    correct = paper["sigma^2, last"]
    far = _paper_s3.TABLE1[1]
    assert far.high is not None
    return [
        f"Kernel: with sigma² = {_paper_s3.TABLE1_SIGMA2:g} and (2) as printed, exp(-d²/(2 sigma²)), the sum ends at "
        f"{_last(half['partial']):.2f}; with exp(-d²/sigma²) at {_last(whole['partial']):.2f}. The paper prints "
        f"{printed:.2f}, so its example has {'exp(-d²/sigma²)' if _closer(whole, half, printed) else 'the former'}.",
        f"d_upp: the printed {far.high:.2f} is less than d(sv1, sv7) + d(x, sv1) = {correct['upp'][0]:.2f} of (7). "
        f"With the printed one the recomputed sum stops after {whole['stop']} vectors, with that of (7) after "
        f"{correct['stop']}; the paper stops after {_paper_s3.TABLE1_STOP}.",
        "The paper's d_low and d_upp are those of the vector in the same line, and so are the recomputed ones here; "
        "the bounds are those of the vectors left behind it.",
    ]


def _closer(one: Record, other: Record, printed: float) -> bool:
    return abs(_last(one["partial"]) - printed) < abs(_last(other["partial"]) - printed)


TABLE1: Final = Experiment("s3-table1", frozenset(), run_table1)
