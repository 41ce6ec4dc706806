"""One machine, all contenders: labels first, then times, in turns.

Every contender is asked about all test rows once: accuracy, and on how many rows it differs from SVC.predict. Then it
is timed with all rows in one call (at most `BATCH_ROWS`; what would take longer than `LONGEST_CALL` gets a sample) on
one and on two threads, and in batches of 100 and of 1 on two. Within a round every contender has its turn, in an order
drawn anew; the record holds the time of each round, so that ratios can be formed within rounds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, Final, TypeAlias

import numpy as np

from svelto._inputs import n_rows_of
from svelto.reproduce._common import OtherLoad
from svelto.suite.contender import Contender
from svelto.suite.machines import Case
from svelto.suite.own import SINGLES, build_own
from svelto.suite.rivals import RIVALS
from svelto.suite.timing import Measure, batch_call, interleave, thread_count, timed

Record: TypeAlias = dict[str, Any]
Tell: TypeAlias = Callable[[str], None]

# In the order of the tables.
CONTENDERS: Final = (*RIVALS, *SINGLES, "auto")
THREADS: Final = (1, 2)
BATCH_ROWS: Final = 20_000
LONGEST_CALL: Final = 0.4
# Rows that show how long a row takes; a sample has at least as many.
PILOT_ROWS: Final = 200
# Letters of a reason that stands in a table.
REASON_LETTERS: Final = 160
# (batch, threads) of the cells; None: all rows in one call.
CELLS: Final = ((None, 1), (1, 2), (100, 2), (None, 2))


def prepare(case: Case, built: Path, key: str, tell: Tell) -> None:
    """Train and build all that can be kept."""
    for name in (*RIVALS, *SINGLES):
        tell(name)
        found = _build(case, name, built, key)
        if isinstance(found, str):
            tell(f"{name}: {found}")


def measure(case: Case, rounds: int, built: Path, key: str, tell: Tell) -> Record:
    """Build and time all contenders.

    Parameters
    ----------
    case : Case
        The machine and its rows.
    rounds : int
        Turns of every contender.
    built : Path
        Folder for predictors that were built.
    key : str
        Their names begin with this: the machine, the rows and the code.
    tell : callable
        Told what is being done.

    Returns
    -------
    record : dict
        What JSON can hold.
    """
    started, load = perf_counter(), OtherLoad()
    contenders: list[Contender] = []
    gaps: dict[str, str] = {}
    for name in CONTENDERS:
        tell(f"building {name}")
        found = _build(case, name, built, key)
        if isinstance(found, str):
            gaps[name] = found
        else:
            contenders.append(found)
    lines = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rivals' own
        tell("labels")
        for contender in contenders:
            try:
                lines[contender.name] = _answers(case, contender)
            except Exception as error:
                gaps[contender.name] = _failure(contender.name, error)
        timing = OtherLoad()
        for n_threads in THREADS:
            tell(f"timing on {n_threads} thread{'s' * (n_threads > 1)}")
            able = [contender for contender in contenders if contender.name not in gaps]
            for name, cells in _times(able, n_threads, rounds, gaps).items():
                lines[name]["cells"] += cells
    machine = case.machine
    return {
        "dataset": case.name,
        **case.parameters,
        "n_sv": machine.n_sv,
        "n_features": machine.n_features,
        "n_classes": machine.n_classes,
        "n_train": n_rows_of(case.X_train),
        "n_test": n_rows_of(case.X_test),
        "form": "csr" if case.is_sparse else "dense",
        "rounds": rounds,
        "lines": [lines[contender.name] for contender in contenders if contender.name not in gaps],
        "gaps": gaps,
        "other_load": load.cores(),
        "other_load_while_timing": timing.cores(),
        "seconds": perf_counter() - started,
    }


def _build(case: Case, name: str, built: Path, key: str) -> Contender | str:
    """The contender, or why there is none: one of them must not stop the others."""
    try:
        if name not in RIVALS:
            return build_own(case, name, built, key)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return RIVALS[name](case)
    except ImportError as error:
        return "not installed" if isinstance(error, ModuleNotFoundError) else in_one_line(f"not available: {error}")
    except (ValueError, NotImplementedError) as error:
        return _failure(name, error) if name in RIVALS else in_one_line(str(error))
    except Exception as error:
        return _failure(name, error)


def _failure(name: str, error: Exception) -> str:
    """What the table says of a rival that failed; our own mistake is to be seen."""
    if name not in RIVALS:
        raise error
    return in_one_line(f"failed: {type(error).__name__}: {error}")


def in_one_line(text: str) -> str:
    """A reason that fits into a table: without line breaks, and not too long."""
    text = " ".join(text.split())
    return text if len(text) <= REASON_LETTERS else text[: REASON_LETTERS - 3].rstrip() + "..."


def _answers(case: Case, contender: Contender) -> Record:
    labels = contender.labels
    if labels is None:
        with thread_count(max(THREADS), max(THREADS)):
            labels = contender.with_threads(max(THREADS))(contender.rows)
    wrong = int(np.count_nonzero(labels != case.labels))
    return {
        "name": contender.name,
        "accuracy": float(np.mean(labels == case.y_test)),
        "wrong": wrong,
        "agreement": 1.0 - wrong / len(case.labels),
        "bytes": contender.nbytes,
        "build_seconds": contender.seconds,
        "note": contender.note,
        **contender.facts,
        "cells": [],
    }


def _times(contenders: list[Contender], n_threads: int, rounds: int, gaps: dict[str, str]) -> dict[str, list[Record]]:
    """Cells of every contender at a number of threads; one that fails goes to `gaps`."""
    batches = [batch for batch, threads in CELLS if threads == n_threads]
    measures: dict[str, Measure] = {}
    sizes: dict[tuple[str, int | None], int] = {}
    with thread_count(n_threads, n_threads):
        for contender in contenders:
            name = contender.name
            try:
                predict = contender.with_threads(n_threads)
                rows = _affordable(predict, contender.rows)
                n = n_rows_of(rows)
                for batch in batches:
                    call = timed(batch_call(predict, rows, batch or n))
                    measures[f"{name} {batch}"] = _or_gap(name, call, gaps)
                    sizes[name, batch] = min(batch or n, n)
            except Exception as error:
                gaps[name] = _failure(name, error)
        seconds = interleave(measures, rounds)
    found: dict[str, list[Record]] = {contender.name: [] for contender in contenders if contender.name not in gaps}
    for (name, batch), n in sizes.items():
        if name in gaps:
            continue
        each = 1e6 * seconds[f"{name} {batch}"][1] / n
        found[name].append(
            {
                "batch": "all" if batch is None else str(batch),
                "threads": n_threads,
                "rows": n,
                "us_row": float(np.median(each)),
                "us_rounds": [float(value) for value in each],
            }
        )
    return found


def _or_gap(name: str, measure: Measure, gaps: dict[str, str]) -> Measure:
    """The measure, until its contender fails: then that is a gap, and the others go on."""

    def careful() -> tuple[float, float]:
        if name not in gaps:
            try:
                return measure()
            except Exception as error:
                gaps[name] = _failure(name, error)
        return np.nan, np.nan

    return careful


def _affordable(predict: Callable[[Any], Any], rows: Any) -> Any:
    """As many of the rows as are answered within the longest call; the rows are in random order."""
    rows = rows[: min(n_rows_of(rows), BATCH_ROWS)]
    pilot = rows[: min(n_rows_of(rows), PILOT_ROWS)]
    predict(pilot)
    started = perf_counter()
    predict(pilot)
    row = (perf_counter() - started) / n_rows_of(pilot)
    if row * n_rows_of(rows) <= LONGEST_CALL:
        return rows
    return rows[: max(int(LONGEST_CALL / row), n_rows_of(pilot))]
