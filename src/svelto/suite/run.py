"""The run: machine after machine, each kept as soon as it is measured, and the pages of all that is there."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Final

from svelto.suite.machines import MACHINES, SETS, file_marks, lies_in, load_machine, setting
from svelto.suite.measure import Record, measure, prepare
from svelto.suite.store import Store, code_stamp, surroundings

ROUNDS, QUICK_ROUNDS = 7, 3
# A trial: few machines, few rows; enough training rows that a promise of 0.999 can be shown.
QUICK_MACHINES: Final = (("svmguide1", "default"), ("ida_waveform", "default"), ("satimage.scale", "default"))
QUICK_TRAIN, QUICK_TEST = 5_000, 4_000
ADVICE: Final = (
    "Set SVELTO_DATA, or pass --data DIR: a folder with files of the LIBSVM data page, plain or compressed "
    "(a9a, a9a.t, ijcnn1, ijcnn1.t, ...)."
)


@dataclass(frozen=True)
class Request:
    """What the user asked for.

    Attributes
    ----------
    data : Path or None
        Folder of data sets; None stands for SVELTO_DATA.
    only : tuple of str
        Data sets ("a9a") or machines ("a9a tuned"); empty: all.
    quick : bool
        A trial on few machines and rows.
    rounds : int or None
        Turns of every contender.
    time_limit : float or None
        Seconds after which no further machine is begun.
    results : Path
        Folder of results.
    prepare : bool
        Only train and build what can be kept.
    again : bool
        Measure anew what is there already.
    pages_only : bool
        Measure nothing.
    """

    data: Path | None = None
    only: tuple[str, ...] = ()
    quick: bool = False
    rounds: int | None = None
    time_limit: float | None = None
    results: Path = Path("bench-results")
    prepare: bool = False
    again: bool = False
    pages_only: bool = False


@dataclass
class Outcome:
    """What there is after a run.

    Attributes
    ----------
    records : list of dict
        All that is in the folder of results, also what earlier runs measured.
    missing : list of str
        Machines that are not among them, with the reason.
    interrupted : bool
        Whether Ctrl-C ended the run.
    """

    records: list[Record] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    interrupted: bool = False


def run(request: Request, tell: Callable[[str], None], add: Callable[[Record], None]) -> Outcome:
    """Measure what is not measured yet; `tell` hears what is being done, `add` gets each record."""
    store = Store(request.results, quick=request.quick)
    outcome, reasons = Outcome(), {}
    if not request.pages_only:
        folder = data_folder(request.data)
        chosen = choose(folder, request.only, request.quick)
        reasons = {pair: "its data is not in the folder" for pair in MACHINES if not lies_in(folder, pair[0])}
        with data_in(folder):
            outcome.interrupted, late = _measure_all(request, folder, chosen, store, tell, add)
        reasons |= dict.fromkeys(late, "not reached")
    for name, kind in MACHINES:
        record = store.read(name, kind)
        if record is not None:
            outcome.records.append(record)
        elif not request.quick:
            outcome.missing.append(f"{name} {kind} ({reasons.get((name, kind), 'not asked for')})")
    return outcome


def _measure_all(
    request: Request,
    folder: Path,
    chosen: Sequence[tuple[str, str]],
    store: Store,
    tell: Callable[[str], None],
    add: Callable[[Record], None],
) -> tuple[bool, list[tuple[str, str]]]:
    """Whether the run was interrupted, and the machines that it did not reach."""
    started = perf_counter()
    rounds = request.rounds or (QUICK_ROUNDS if request.quick else ROUNDS)
    facts = surroundings()
    most_train, most_test = (QUICK_TRAIN, QUICK_TEST) if request.quick else (None, None)
    for i, (name, kind) in enumerate(chosen):
        old = store.read(name, kind)
        data = file_marks(folder, name)
        current = store.is_current(old, setting(name, kind), rounds, facts, data)
        if old is not None and current and not (request.again or request.prepare):
            add(old)
            continue
        if request.time_limit is not None and perf_counter() - started > request.time_limit:
            return False, list(chosen[i:])

        def say(step: str, name: str = name, kind: str = kind, i: int = i) -> None:
            tell(f"{name} {kind} ({i + 1} of {len(chosen)}): {step}")

        try:
            say("reading, training")
            case = load_machine(name, kind, store.models, most_train=most_train, most_test=most_test)
            if request.prepare:
                prepare(case, store.built, store.key(case.key), say)
                continue
            found = measure(case, rounds, store.built, store.key(case.key), say)
        except KeyboardInterrupt:
            return True, list(chosen[i:])
        about = {"key": case.key, "setting": list(setting(name, kind)), "code": code_stamp(), "environment": facts}
        record = {"dataset": name, "kind": kind, **about, "data": data, **found}
        store.write(record)
        add(record)
    return False, []


# -- what to measure -----------------------------------------------------------------------------------------------


def data_folder(given: Path | None) -> Path:
    """The folder of data sets, or an error that says how to name one."""
    named = given if given is not None else os.environ.get("SVELTO_DATA")
    if not named:
        raise ValueError(f"The suite needs a folder of data sets, and SVELTO_DATA is not set. {ADVICE}")
    folder = Path(named).expanduser()
    if not folder.is_dir():
        source = "--data" if given is not None else "SVELTO_DATA"
        raise ValueError(f"{source} is {str(named)!r}: no such folder. {ADVICE}")
    if not any(lies_in(folder, name) for name in SETS):
        raise ValueError(f"{folder} holds none of the suite's data sets ({', '.join(SETS)}). {ADVICE}")
    return folder


@contextmanager
def data_in(folder: Path) -> Iterator[None]:
    """Let `svelto.datasets` look into a folder first."""
    before = os.environ.get("SVELTO_DATA")
    os.environ["SVELTO_DATA"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SVELTO_DATA"]
        else:
            os.environ["SVELTO_DATA"] = before


def choose(folder: Path, only: Sequence[str], quick: bool) -> list[tuple[str, str]]:
    """Machines to measure, in the order of the tables."""
    there = [pair for pair in MACHINES if lies_in(folder, pair[0])]
    if not only:
        if quick:
            return [pair for pair in QUICK_MACHINES if pair in there] or there[:1]
        return there
    for name in only:
        known = [pair for pair in MACHINES if name in (pair[0], " ".join(pair))]
        if not known:
            raise ValueError(
                f"--only is {name!r}; expected a data set of the suite ({', '.join(SETS)}) or a machine, such as "
                "'a9a tuned'."
            )
        if known[0] not in there:
            raise ValueError(f"--only is {name!r}, but {folder} does not hold {known[0][0]}. {ADVICE}")
    return [pair for pair in there if pair[0] in only or " ".join(pair) in only]


def command_of(request: Request, files: dict[str, Path | None]) -> str:
    """The command that a page was written by; places that mean nothing elsewhere are left out."""
    parts = ["svelto bench --suite"]
    parts += [f"--only {shlex.quote(name)}" for name in request.only]
    parts += ["--quick"] if request.quick else []
    parts += [f"--rounds {request.rounds}"] if request.rounds is not None else []
    parts += [f"--time-limit {request.time_limit:g}"] if request.time_limit is not None else []
    parts += [f"--{name} {file}" for name, file in files.items() if file is not None and not file.is_absolute()]
    return " ".join(parts)
