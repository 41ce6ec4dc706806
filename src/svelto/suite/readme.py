"""The suite's part of the README, between two marks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from svelto.suite.figures import MANY, line_of, number, percent, ratio, title
from svelto.suite.machines import MACHINES
from svelto.suite.markdown import by_origin, origin_list, table
from svelto.suite.measure import Record
from svelto.suite.own import AGREEMENT
from svelto.suite.rivals import RIVALS
from svelto.suite.summary import SUMMARY_COLUMNS, summary

BEGIN, END = "<!-- suite: begin -->", "<!-- suite: end -->"
COLUMNS: Final = (
    *("machine", "SVs", "auto chose", "labels equal", "SVC.predict", "intelex", "onnxruntime", "exact"),
    *("Nystroem (accuracy)", "LightGBM (accuracy)", "accuracy of SVC"),
)


def into_readme(text: str, records: Sequence[Record], command: str, page: str | None, picture: str | None) -> str:
    """Put the headline table between the README's two marks."""
    if BEGIN not in text or END not in text:
        raise ValueError(f"The README has no lines {BEGIN!r} and {END!r} to write between.")
    before, after = text.split(BEGIN, maxsplit=1)[0], text.split(END, maxsplit=1)[1]
    many = [record for record in records if record["n_sv"] >= MANY]
    more = f" Every contender on every machine: [{page}]({page})." if page else ""
    parts = [
        f"What one would pick instead, for machines of {MANY:,} support vectors and more: how many times longer than "
        f'`method="auto"` (agreement {AGREEMENT:g}) others take, all test rows in one call. Nystroem (with a linear '
        f"SVM) and LightGBM are other models, with an accuracy of their own.{more}",
        f"![Speed against labels that differ]({picture})" if picture else "",
        table(COLUMNS, [_row(record) for record in many]),
        _how_many(records, len(many)),
        table(SUMMARY_COLUMNS, [target.cells() for target in summary(records)]),
        _where(records, command),
    ]
    body = "\n\n".join(part for part in parts if part)
    return f"{before}{BEGIN}\n{body}\n{END}{after}"


def _how_many(records: Sequence[Record], n_shown: int) -> str:
    """Told where machines of the suite are missing: medians are then those of a part."""
    if len(records) == len(MACHINES):
        return ""
    return (
        f"Measured: {len(records)} of the suite's {len(MACHINES)} machines; {n_shown} of them "
        f"{'has' if n_shown == 1 else 'have'} {MANY:,} support vectors and more."
    )


def _where(records: Sequence[Record], command: str) -> str:
    """The computer, or all of them with what they measured."""
    groups = by_origin(records)
    if len(groups) > 1:
        return f"2 threads; `{command}`, in several runs:\n\n{origin_list(groups)}"
    if not records:
        return f"`{command}`"
    place = records[0]["environment"]
    commit = f", commit {place['commit']}" if place["commit"] else ""
    return f"{place['cpu']}, 2 threads, {place['instruction_level']}{commit}; `{command}`"


def _row(record: Record) -> list[str]:
    auto, svc = line_of(record, "auto"), line_of(record, "SVC.predict")
    return [
        title(record),
        f"{record['n_sv']:,}",
        auto["method"] if auto else "-",
        percent(auto["agreement"] if auto else None, 3),
        *(_times(record, name) for name in ("SVC.predict", "intelex", "onnxruntime", "exact")),
        *(_with_accuracy(record, name) for name in tuple(RIVALS)[-2:]),
        percent(svc["accuracy"] if svc else None, 1),
    ]


def _times(record: Record, name: str) -> str:
    return record["gaps"][name] if name in record["gaps"] else number(ratio(record, name, "auto"))


def _with_accuracy(record: Record, name: str) -> str:
    line = line_of(record, name)
    if line is None:
        return str(record["gaps"].get(name, "-"))
    return f"{_times(record, name)} ({percent(line['accuracy'], 1)})"
