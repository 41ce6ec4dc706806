"""A Predictor in a svelto file: machine, engine and report."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any, Final

from svelto.cascade import Cascade
from svelto.engines.exact import ExactEngine, ValueEngine
from svelto.engines.stopped_sum import StoppedSum
from svelto.io.parts import In, Out
from svelto.io.plain import ADVICE
from svelto.io.saved_bounded import read_stopped, write_stopped
from svelto.io.saved_exact import read_exact, write_exact
from svelto.io.saved_machine import check_machine, read_machine, write_machine
from svelto.io.saved_stages import read_cascade, write_cascade
from svelto.predictor import Predictor
from svelto.report import PROMISES, Report, Trial

ENGINES: Final = {
    "sum": ((ExactEngine, ValueEngine), write_exact, read_exact),
    "stopped": ((StoppedSum,), write_stopped, read_stopped),
    "cascade": ((Cascade,), write_cascade, read_cascade),
}


def write_predictor(out: Out, predictor: Predictor) -> None:
    """All of a predictor but its number of threads, which belongs to a computer."""
    check_machine(predictor.machine)
    engine: Any = predictor._engine
    for name, (kinds, write, _) in ENGINES.items():
        if isinstance(engine, kinds):
            out.set(kind=name)
            write_machine(out.part("machine"), predictor.machine)
            write(out.part("engine"), engine)  # type: ignore[operator]
            _write_report(out, predictor.report)
            return
    raise NotImplementedError(f"An engine of type {type(engine).__name__} cannot be saved in a svelto file. {ADVICE}")


def read_predictor(part: In, n_jobs: int | None) -> Predictor:
    """The same predictor."""
    machine = read_machine(part.part("machine"))
    read: Any = ENGINES[part.choice("kind", tuple(ENGINES))][2]
    engine = read(part.part("engine"), machine)
    return Predictor(machine, engine, _read_report(part), n_jobs)


def _write_report(out: Out, report: Report) -> None:
    facts = {field.name: getattr(report, field.name) for field in fields(report) if field.name != "tried"}
    out.set(report=facts, tried=[asdict(trial) for trial in report.tried])


# What a fact of a report is, where something is done with it.
_NUMBERS: Final = ("asked", "agreement", "agreement_bound", "score_error_bound", "build_seconds")
_TABLES: Final = ("speedups", "work", "details", "environment")
_TRIAL_TYPES: Final = {
    "method": str,
    "setting": str,
    "n_rows": int,
    "microseconds": float,
    "agreement": float,
    "promise": str,
    "nbytes": int,
    "build_seconds": float,
    "stages": dict,
    "chosen": bool,
}


def _read_report(part: In) -> Report:
    facts, tried = part.plain("report"), part.plain("tried")
    names = {field.name for field in fields(Report)} - {"tried"}
    sound = isinstance(facts, dict) and set(facts) == names and type(facts["method"]) is str
    sound = sound and facts["promise"] in tuple(PROMISES)
    sound = sound and all(facts[name] is None or _is_number(facts[name]) for name in _NUMBERS[:3])
    sound = sound and all(_is_number(facts[name]) for name in _NUMBERS[3:])
    sound = sound and all(_is_table(facts[name]) for name in _TABLES)
    sound = sound and all(map(_is_number, facts["speedups"].values())) and isinstance(tried, list)
    if not sound or not all(map(_is_trial, tried)):
        part.fail("the report has other facts than a report has")
    return Report(**facts, tried=tuple(Trial(**trial) for trial in tried))


def _is_number(value: Any) -> bool:
    # JSON may hold whole numbers of hundreds of digits, which no float can.
    return type(value) is float or (type(value) is int and abs(value) < 2**1000)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) and all(type(key) is str for key in value)


def _is_trial(trial: Any) -> bool:
    if not isinstance(trial, dict) or trial.keys() != _TRIAL_TYPES.keys():
        return False
    # JSON has one kind of number: 1.0 may have been written as a whole one.
    fits = all(
        _is_number(trial[name]) if wanted is float else type(trial[name]) is wanted
        for name, wanted in _TRIAL_TYPES.items()
    )
    return fits and trial["promise"] in tuple(PROMISES) and _is_table(trial["stages"])
