"""Tables of one record a data set: measured one after the other, written after each, shown as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from svelto import datasets
from svelto.reproduce._common import (
    Interrupted,
    Record,
    Request,
    Results,
    choose,
    environment,
    environment_text,
    progress,
)

Say: TypeAlias = Callable[[str], None]
Measure: TypeAlias = Callable[[str, Record, Say], Record]


def run_table(
    request: Request,
    experiment: str,
    known: list[str],
    settings_of: Callable[[str], Record],
    measure: Measure,
    render: Callable[[Record], str],
) -> list[Path]:
    """Measure data set after data set; the files are complete after each."""
    names = choose(experiment, known, request.only)
    request.output.mkdir(parents=True, exist_ok=True)
    results = Results(request.output / f"{experiment}.json", experiment)
    names = [name for name in names if not (request.resume and results.has(name, settings_of(name)))]
    facts = environment()
    missing: datasets.DatasetNotFoundError | None = None
    n_finished = 0
    try:
        with progress(len(names)) as steps:
            for name in names:

                def say(text: str, name: str = name) -> None:
                    steps.say(f"{name}: {text}")

                say("reading")
                settings = settings_of(name)
                try:
                    measured = measure(name, settings, say)
                except datasets.DatasetNotFoundError as error:
                    if name in request.only:
                        raise
                    missing = error
                    results.set_unavailable(name)
                else:
                    results.set(name, {"settings": settings, "environment": facts, **measured}, known)
                    results.save(render(results.document))
                    n_finished += 1
                steps.advance()
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted, {n_finished} of {len(names)} data sets finished. "
            + (f"They are in {results.path}; --resume goes on from there." if n_finished else "Nothing was written.")
        ) from None
    if missing is not None and not results.records:
        raise missing  # no data at all: an empty table helps nobody, the message does
    return results.save(render(results.document))


def table(head: str, rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; names of columns are separated by semicolons."""
    names = head.split(";")
    sides = [":---" if name in ("data set", "method") else "---:" for name in names]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [names, sides, *rows])


def origin(document: Record, command: str) -> str:
    """The command and the machine behind a document."""
    groups: dict[str, list[str]] = {}
    for name, record in document["results"].items():
        groups.setdefault(environment_text(record["environment"]), []).append(name)
    if len(groups) == 1:
        (text,) = groups
        return f"Command: `{command}`. Machine: {text}."
    parts = [f"{', '.join(names)}: {text}." for text, names in groups.items()]
    return f"Command: `{command}`, in several runs.\n\n" + "\n".join(f"- {part}" for part in parts)


def busy(loads: Sequence[tuple[float | None, str]]) -> str:
    """Say how busy other processes kept the machine, and on which data set most; from cores and names of data sets."""
    known = [(cores, name) for cores, name in loads if cores is not None]
    if not known:
        return ""
    most, name = max(known)
    middle = float(np.median([cores for cores, _ in known]))
    return f" Meanwhile other processes kept {middle:.2f} cores busy (median), at most {most:.2f} ({name})."
