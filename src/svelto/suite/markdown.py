"""The suite's page: how it is measured, the summary, a table of all machines, and every contender on each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from svelto.reproduce._common import environment_text
from svelto.suite.figures import (
    best_single,
    cell_of,
    line_of,
    number,
    over_best,
    percent,
    ratio,
    size,
    title,
)
from svelto.suite.measure import BATCH_ROWS, LONGEST_CALL, Record
from svelto.suite.own import AGREEMENT, CONFIDENCE
from svelto.suite.rivals import COMPONENTS, MARGIN, RIVALS, TREES
from svelto.suite.summary import RIVAL_COLUMNS, SUMMARY_COLUMNS, against, summary

# Other processes may use this much of one core before the page says so.
MOST_OTHER_LOAD: Final = 0.1
MACHINE_COLUMNS: Final = (
    *("machine", "SVs", "features", "classes", "C, gamma", "accuracy of SVC", "auto chose", "promise"),
    *("labels that differ", "decides in", "auto us/row", *RIVALS, "exact", "auto / best single"),
)
LINE_COLUMNS: Final = (
    *("contender", "accuracy", "labels that differ", "us/row: 1 row", "100 rows", "all, 1 thread", "all, 2 threads"),
    *("over SVC.predict", "over exact", "size", "build or training", "rows timed", "note"),
)


def page(records: Sequence[Record], command: str, missing: Sequence[str], *, picture: str | None, quick: bool) -> str:
    """The whole page; `missing` names the machines that are not measured, `picture` is the file of the overview."""
    trial = "**A trial on few rows (`--quick`): for seeing that it works, not for judging.**" if quick else ""
    parts = [
        "# The suite: svelto beside what one would pick instead",
        trial,
        origin(records, command),
        method(),
        "## Summary",
        table(SUMMARY_COLUMNS, [target.cells() for target in summary(records)]),
        _gaps(missing),
        "## Against whom",
        "Medians over machines, two threads; above 1, auto is faster. The last two columns: share of the test rows on "
        "which a contender gives the label of SVC.predict, and its accuracy less that of SVC.predict.",
        table(RIVAL_COLUMNS, against(records)),
        "" if picture is None else f"![Every contender on every machine]({picture})",
        "## Machines",
        "Columns with the name of a contender: its time over that of auto, all rows in one call, two threads; above 1, "
        "auto is faster. *auto / best single*: the time of auto over that of the fastest of exact, bounded, hinges, "
        "taylor_tree and reduced_set that shows the promise (with few rows a statistical one cannot); below 1, auto "
        "was the faster one.",
        table(MACHINE_COLUMNS, [machine_row(record) for record in records]),
        "## Every contender",
        *(_contenders(record) for record in records),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def origin(records: Sequence[Record], command: str) -> str:
    """The command, the computer, the code."""
    groups = by_origin(records)
    if len(groups) == 1:
        (text,) = groups
        told = f"Command: `{command}`. Machine: {text}."
    else:
        told = f"Command: `{command}`, in several runs.\n\n"
        told += origin_list(groups)
    busy = [
        f"{title(r)} {r['other_load_while_timing']:.2f}"
        for r in records
        if (r["other_load_while_timing"] or 0.0) > MOST_OTHER_LOAD
    ]
    if busy:
        told += f"\n\n**Busy machine**: cores that others kept busy while times were taken: {', '.join(busy)}."
    return told


def by_origin(records: Sequence[Record]) -> dict[str, list[str]]:
    """Names of machines by the computer, the packages and the code that they were measured with."""
    groups: dict[str, list[str]] = {}
    for record in records:
        groups.setdefault(f"{environment_text(record['environment'])}, code {record['code']}", []).append(title(record))
    return groups


def origin_list(groups: Mapping[str, Sequence[str]]) -> str:
    """A line for each origin."""
    return "\n".join(f"- {', '.join(names)}: {text}." for text, names in groups.items())


def method() -> str:
    """How it is measured."""
    return (
        "Machines are SVCs (rbf) with LIBSVM's default parameters or with parameters from cross-validation on "
        "training rows (`svelto.suite.machines`). svelto's predictors are built on the training rows alone, with "
        f"`agreement={AGREEMENT:g}` at confidence {CONFIDENCE:g}, for two threads; auto decides for many rows in a "
        "call. SVC.predict has one thread. intelex (scikit-learn-intelex) is trained anew on float32 rows; onnxruntime "
        "runs the machine as a graph of matrix products, in float32. Nystroem + LinearSVC has the machine's C and "
        f"gamma and the smallest of {', '.join(str(n) for n in COMPONENTS)} components that is within "
        f"{100 * MARGIN:g} points of the best on training rows held out; LightGBM has {TREES} rounds and default "
        "parameters. No test row was used to choose anything.\n\n"
        "Labels are compared on all test rows. Times are medians of interleaved rounds, ratios are formed within "
        f"rounds. *All*: all test rows in one call, at most {BATCH_ROWS:,}; who would take longer than "
        f"{LONGEST_CALL:g} s gets as many rows as take that long, and its time is one of a row. Conversion to the form "
        "that a rival reads fastest is not timed; SVC.predict, intelex and Nystroem get dense or CSR rows, by what was "
        "faster for many training rows in a call, and in that form single rows too. "
        "Sizes are those of the pickle (onnxruntime: ONNX file, LightGBM: its "
        "text). Building and training times are of the run that built or trained, two threads; single methods and "
        "rivals are kept from run to run; *busy*: others kept the computer busy meanwhile. sv_tree is left out: it is "
        "for kernels that take long to evaluate."
    )


def machine_row(record: Record) -> list[str]:
    """The machine's line of the large table."""
    auto, svc = line_of(record, "auto"), line_of(record, "SVC.predict")
    cell = cell_of(record, "auto")
    best = best_single(record)
    over = over_best(record)
    return [
        title(record) + (" (CSR)" if record["form"] == "csr" else ""),
        f"{record['n_sv']:,}",
        str(record["n_features"]),
        str(record["n_classes"]),
        f"{record['C']:g}, {record['gamma']:.3g}",
        percent(svc["accuracy"] if svc else None),
        auto["method"] if auto else record["gaps"].get("auto", "-"),
        auto["promise"] if auto else "-",
        f"{auto['wrong']} of {record['n_test']:,}" if auto else "-",
        f"{number(auto['build_seconds'])} s" if auto else "-",
        number(cell["us_row"] if cell else None),
        *(_ratio_or_gap(record, name) for name in (*RIVALS, "exact")),
        "-" if over is None else f"{over:.2f} ({best})",
    ]


def _ratio_or_gap(record: Record, name: str) -> str:
    return record["gaps"][name] if name in record["gaps"] else number(ratio(record, name, "auto"))


def _contenders(record: Record) -> str:
    rows = line_rows(record)
    return f"### {title(record)}\n\n{table(LINE_COLUMNS, rows)}"


def line_rows(record: Record) -> list[list[str]]:
    """Every contender of a machine, and who is missing."""
    rows = []
    for line in record["lines"]:
        name = line["name"]
        cells = [cell_of(record, name, *which) for which in (("1", 2), ("100", 2), ("all", 1), ("all", 2))]
        last = cells[-1]
        rows.append(
            [
                name,
                percent(line["accuracy"]),
                str(line["wrong"]),
                *(number(cell["us_row"] if cell else None) for cell in cells),
                number(ratio(record, "SVC.predict", name)),
                number(ratio(record, "exact", name)),
                size(line["bytes"]),
                _seconds(line),
                f"{last['rows']:,}" if last else "-",
                line["note"],
            ]
        )
    rows += [[name, *["-"] * (len(LINE_COLUMNS) - 2), reason] for name, reason in record["gaps"].items()]
    return rows


def _seconds(line: Record) -> str:
    if line["build_seconds"] is None:
        return "-"
    busy = (line.get("build_other_load") or 0.0) > MOST_OTHER_LOAD
    return f"{number(line['build_seconds'])} s{' (busy)' if busy else ''}"


def _gaps(missing: Sequence[str]) -> str:
    return f"Not measured: {', '.join(missing)}." if missing else ""


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown table; every column but the first is aligned to the right."""
    lines = [titles, ["---", *["---:"] * (len(titles) - 1)], *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    """Without what would end a cell or a row."""
    return " ".join(text.split()).replace("|", "/")
