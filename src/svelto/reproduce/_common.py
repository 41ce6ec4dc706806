"""What the experiments share: a request, the file of results, a progress bar, and facts about the machine."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeAlias

from svelto._rowfiles import write_atomically
from svelto.engines.exact import instruction_level

Record: TypeAlias = dict[str, Any]

FORMAT: Final = 1
MISSING_EXTRA: Final = 'The figure needs matplotlib: pip install "svelto[plot]"'
PACKAGES: Final = ("svelto", "numpy", "scipy", "scikit-learn")


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during an experiment; the message says what is finished."""


@dataclass(frozen=True)
class Request:
    """What the user asked for; None stands for the experiment's own default."""

    output: Path
    only: tuple[str, ...] = ()
    splits: int | None = None
    repeats: int | None = None
    n_jobs: int = 2
    resume: bool = False
    quick: bool = False


class Experiment(NamedTuple):
    """A name, the options it has beside `output` and `n_jobs`, and the function that returns the files written."""

    name: str
    options: frozenset[str]
    run: Callable[[Request], list[Path]]


def choose(experiment: str, known: list[str], only: tuple[str, ...]) -> list[str]:
    """Names to measure, in the table's order; all of them where `only` is empty."""
    for name in only:
        if name not in known:
            raise ValueError(f"Unknown data set {name!r} in {experiment}. Expected one of {', '.join(known)}.")
    return [name for name in known if name in only] if only else known


# -- results -----------------------------------------------------------------------------------------------------


class Results:
    """The JSON file of an experiment: one record for each data set, saved after each.

    A record holds the settings and the environment it was measured with, so records of several runs can stand in one
    file and a reader sees which belong together.
    """

    def __init__(self, path: Path, experiment: str) -> None:
        self.path = path
        self.document: Record = {"format": FORMAT, "experiment": experiment, "unavailable": [], "results": {}}
        if path.exists():
            self.document = _read_results(path, experiment)

    @property
    def records(self) -> dict[str, Record]:
        """Records by data set."""
        records: dict[str, Record] = self.document["results"]
        return records

    def has(self, name: str, settings: Record) -> bool:
        """Whether the data set was measured with these settings."""
        return name in self.records and self.records[name]["settings"] == settings

    def set(self, name: str, record: Record, order: list[str]) -> None:
        """Add or replace a record; records follow `order`."""
        found = {**self.records, name: record}
        self.document["results"] = {key: found[key] for key in order if key in found}
        self.document["unavailable"] = [key for key in self.document["unavailable"] if key != name]

    def set_unavailable(self, name: str) -> None:
        """Note that a data set could not be found."""
        self.document["unavailable"] = sorted({*self.document["unavailable"], name})

    def save(self, text: str) -> list[Path]:
        """Write the JSON file and, beside it, the Markdown `text`."""
        page = self.path.with_suffix(".md")
        write_text(self.path, json.dumps(self.document, indent=1, allow_nan=False) + "\n")
        write_text(page, text)
        return [self.path, page]


def _read_results(path: Path, experiment: str) -> Record:
    advice = "Move it away, or write somewhere else with --output."
    try:
        document: Record = json.loads(path.read_text(encoding="utf-8"))
        found = document["format"], document["experiment"]
        complete = all("settings" in record for record in document["results"].values())
        complete = complete and isinstance(document["unavailable"], list)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not a file of results ({error!r}). {advice}") from None
    if found != (FORMAT, experiment) or not complete:
        raise ValueError(f"{path}: expected results of {experiment} in format {FORMAT}. {advice}")
    return document


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with write_atomically(path) as file:
        file.write(text.encode())


# -- progress ----------------------------------------------------------------------------------------------------


class Steps:
    """Progress that nobody looks at."""

    def say(self, text: str) -> None:
        """Show what is going on."""

    def advance(self) -> None:
        """Count one more step as done."""


class _ShownSteps(Steps):
    def __init__(self, bar: Any, total: int) -> None:
        self.bar, self.task = bar, bar.add_task("", total=total)

    def say(self, text: str) -> None:
        self.bar.update(self.task, description=text)

    def advance(self) -> None:
        self.bar.advance(self.task)


@contextlib.contextmanager
def progress(total: int) -> Iterator[Steps]:
    """Show a progress bar on stderr, where that is a terminal and rich (extra [cli]) is installed."""
    try:
        if not sys.stderr.isatty():
            raise ImportError("no terminal, no bar")
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        yield Steps()
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    # Two updates a second: the bar's own thread must not disturb what is being timed.
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=2) as bar:
        yield _ShownSteps(bar, total)


# -- environment -------------------------------------------------------------------------------------------------


def environment() -> Record:
    """Processor, versions, commit: what a reader needs to judge the times."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "instruction_level": instruction_level(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
    }


def environment_text(facts: Record) -> str:
    """One line about the machine."""
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items() if number)
    commit = f", commit {facts['commit']}" if facts["commit"] else ""
    return (
        f"{facts['cpu']}, {facts['cores']} cores, instruction level {facts['instruction_level']}, {facts['system']}, "
        f"Python {facts['python']}, {versions}{commit}"
    )


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or "unknown processor"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    root = Path(__file__).resolve().parents[3]
    # An installed package may lie inside somebody else's repository; only a checkout of this one has a commit to tell.
    if not ((root / ".git").exists() and (root / "src" / "svelto").is_dir()):
        return None

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + (" + changes" if git("status", "--porcelain", "src") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


class OtherLoad:
    """Cores that other processes kept busy (or the host took away) since this object was made."""

    def __init__(self) -> None:
        self.started, self.all_before, self.own_before = perf_counter(), _all_seconds(), _own_seconds()

    def cores(self) -> float | None:
        """Average number of cores; None where the system does not tell."""
        now = _all_seconds()
        if self.all_before is None or now is None:
            return None
        others = now - self.all_before - (_own_seconds() - self.own_before)
        return round(max(0.0, others / (perf_counter() - self.started)), 3)


def _all_seconds() -> float | None:
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    except OSError:
        return None
    user, nice, system, _idle, _wait, irq, soft_irq, steal = (int(field) for field in fields[1:9])
    return (user + nice + system + irq + soft_irq + steal) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def need_matplotlib() -> tuple[Any, Any]:
    """Matplotlib's modules of figures and of files; by name, because the package is optional for type checkers too."""
    try:
        return importlib.import_module("matplotlib.figure"), importlib.import_module("matplotlib.backends.backend_agg")
    except ImportError:
        raise ValueError(MISSING_EXTRA) from None


def new_figure(size: tuple[float, float]) -> Any:
    """An empty figure of so many inches that needs no screen."""
    figure_module, canvas_module = need_matplotlib()
    figure = figure_module.Figure(figsize=size, dpi=130, layout="constrained")
    canvas_module.FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Any, path: Path) -> list[Path]:
    """Write a PNG file, whole or not at all."""
    with write_atomically(path) as file:
        # Without the program's name and version, the same picture is the same file.
        figure.savefig(file, format="png", metadata={"Software": None})
    return [path]


def save_figure_page(folder: Path, figure: Any, facts: Record, text: str) -> list[Path]:
    """Write the picture, facts and page of an experiment that is a figure; facts bear its name."""
    png, document, page = (folder / f"{facts['experiment']}.{suffix}" for suffix in ("png", "json", "md"))
    save_figure(figure, png)
    write_text(document, json.dumps(facts, indent=1, allow_nan=False) + "\n")
    write_text(page, text)
    return [png, document, page]
