"""The page of benchmarks/hinges.py: the summary beside its targets, then every machine, then strange rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.stats import binom, binomtest

from _hinge_guard import NOISE, USUAL
from _tables import table

Record = dict[str, Any]
PROMISES = ("hinges 0.999", "hinges 0.9999")
FIRST = PROMISES[0]
# "Many" support vectors, for the medians.
MANY = 1_000
SVC_TARGET = 3_000
CONFIDENCE = 0.95
LEVEL = 0.01
MOST_OTHER_LOAD = 0.1


def line_of(records: list[Record], dataset: str, kind: str, method: str = FIRST) -> Record | None:
    """What was measured for one machine and method."""
    for record in records:
        if (record["dataset"], record["kind"]) == (dataset, kind):
            return next((line for line in speed_lines(record) if line["method"] == method), None)
    return None


def speed_lines(record: Record) -> list[Record]:
    return record["speed"]["lines"] if "speed" in record else []


# -- summary -----------------------------------------------------------------------------------------------------


def summary(records: list[Record]) -> list[list[str]]:
    """What, measured, target, whether it is met; ratios are judged at two threads."""
    return [
        median_ratio(records, FIRST, "svc", SVC_TARGET),
        median_ratio(records, FIRST, "exact", 15),
        median_ratio(records, "hinges 0.9999", "exact", 5),
        one_ratio(records, "a9a", "default", "svc", 6_000),
        one_ratio(records, "ijcnn1", "default", "svc", 6_000),
        best_ratio(records, 10_000),
        one_ratio(records, "ijcnn1", "sharp", "exact", 6),
        *(line for method in PROMISES for line in below_promise(records, method)),
        *build_seconds(records),
        one_row(records, "a9a", "default", 4.0),
        *guard_summary(records),
    ]


def verdict(met: bool) -> str:
    return "met" if met else "**missed**"


def median_ratio(records: list[Record], method: str, rival: str, target: float) -> list[str]:
    what = f"median over {rival_name(rival)}, {method}, machines of {MANY:,} SVs and more (1, 2 threads)"
    found = [line for r in records if r["n_sv"] >= MANY for line in speed_lines(r) if line["method"] == method]
    if not found:
        return [what, "not measured", f">= {target:,}", ""]
    one, two = (float(np.median([line[f"vs_{rival}_{threads}"]["median"] for line in found])) for threads in (1, 2))
    return [what, f"{ratio(one)}, {ratio(two)} ({len(found)} machines)", f">= {target:,}", verdict(two >= target)]


def one_ratio(records: list[Record], dataset: str, kind: str, rival: str, target: float) -> list[str]:
    what, line = f"{dataset} {kind} over {rival_name(rival)}, {FIRST} (1, 2 threads)", line_of(records, dataset, kind)
    if line is None:
        return [what, "not measured", f">= {target:,}", ""]
    one, two = (line[f"vs_{rival}_{threads}"]["median"] for threads in (1, 2))
    return [what, f"{ratio(one)}, {ratio(two)}", f">= {target:,}", verdict(two >= target)]


def best_ratio(records: list[Record], target: float) -> list[str]:
    what = f"best machine over SVC.predict, {FIRST} (1, 2 threads)"
    found = [(line, r) for r in records for line in speed_lines(r) if line["method"] == FIRST]
    if not found:
        return [what, "not measured", f">= {target:,}", ""]
    line, record = max(found, key=lambda pair: pair[0]["vs_svc_2"]["median"])
    one, two = (line[f"vs_svc_{threads}"]["median"] for threads in (1, 2))
    return [what, f"{ratio(one)}, {ratio(two)} ({title(record)})", f">= {target:,}", verdict(two >= target)]


def below_promise(records: list[Record], method: str) -> Iterator[list[str]]:
    """Machines that disagree on more test rows than promised; and those where that can hardly be chance."""
    asked = [(line, r) for r in records for line in speed_lines(r) if line["method"] == method]
    n = len(asked)
    below = [(line, r) for line, r in asked if line["wrong"] > (1.0 - line["asked"]) * r["speed"]["n_test"]]
    sure = [(line, r) for line, r in below if is_surely_below(line, r)]
    usual, most = (1.0 - CONFIDENCE) * n, int(binom.ppf(CONFIDENCE, n, 1.0 - CONFIDENCE)) if n else 0
    yield [
        f"machines whose test agreement is below the promise, {method}",
        f"{len(below)} of {n}{names(below)}",
        f"about {usual:.1f}, in 95 % of cases at most {most}",
        verdict(len(below) <= most) if n else "",
    ]
    unshown = [(line, r) for line, r in asked if line["bound"] is not None and line["bound"] < line["asked"]]
    yield [
        f"... significantly below (one-sided binomial test at {LEVEL:.0%}), {method}",
        f"{len(sure)} of {n}{names(sure)}",
        f"about {usual:.1f}, in 95 % of cases at most {most}",
        verdict(len(sure) <= most) if n else "",
    ]
    yield [
        f"machines whose bound is below what was asked (too few rows to show it), {method}",
        f"{len(unshown)} of {n}",
        "",
        "",
    ]


def is_surely_below(line: Record, record: Record) -> bool:
    n_test = record["speed"]["n_test"]
    return binomtest(line["wrong"], n_test, 1.0 - line["asked"], alternative="greater").pvalue < LEVEL


def build_seconds(records: list[Record]) -> Iterator[list[str]]:
    for dataset, target in (("a9a", 15.0), ("letter.scale", 40.0)):
        lines = {kind: line_of(records, dataset, kind) for kind in ("default", "tuned")}
        known = {kind: line for kind, line in lines.items() if line is not None}
        for what, key in (("training the stages", "fit_seconds"), ("building all of it", "build_seconds")):
            seconds = {kind: line[key] for kind, line in known.items() if line[key] is not None}
            found = ", ".join(f"{kind} {value:.1f}" for kind, value in seconds.items())
            judged = key == "fit_seconds" and bool(seconds)
            yield [
                f"seconds of {what}, {dataset}, {FIRST}",
                found or "not measured",
                f"< {target:g}" if key == "fit_seconds" else "",
                verdict(max(seconds.values()) < target) if judged else "",
            ]


def one_row(records: list[Record], dataset: str, kind: str, target: float) -> list[str]:
    what, line = f"one row of {dataset} {kind}, {FIRST}, median us", line_of(records, dataset, kind)
    if line is None:
        return [what, "not measured", f"< {target:g}", ""]
    return [
        what,
        f"{line['one_row_us']['median']:.2f}",
        f"< {target:g}",
        verdict(line["one_row_us"]["median"] < target),
    ]


def guard_summary(records: list[Record]) -> Iterator[list[str]]:
    """Strange rows whose labels are not the exact engine's; test rows as they are do not count.

    Noise inside the box is apart: it lies between known rows, where a promise is statistical and no more.
    """
    kinds = {"shifted, scaled, all zeros, other data": "0", NOISE: ""}
    for method in PROMISES:
        lines = [line for r in records if "guard" in r for line in r["guard"]["lines"] if line["method"] == method]
        for kind, target in kinds.items():
            here = [x for x in lines if (x["rows"] == NOISE) == (kind == NOISE) and x["rows"] != USUAL]
            wrong = sum(line["different"] + line["different_alone"] for line in here)
            total = sum(line["n"] + line["n_alone"] for line in here)
            yield [
                f"rows unlike the calibration data ({kind}) with another label than exact's, {method}",
                f"{wrong:,} of {total:,}" if here else "not measured",
                target,
                verdict(wrong == 0) if here and target else "",
            ]


# -- page --------------------------------------------------------------------------------------------------------


def page(records: list[Record], n_machines: int, command: str) -> str:
    """Render all of it as Markdown."""
    measured = [record for record in records if "speed" in record]
    sections = [
        "# Hinges beside the exact engine",
        head(measured, n_machines),
        "## Summary",
        "Medians of ratios over machines; a target is judged at two threads. *Below the promise*: more test labels "
        "differ from SVC.predict's than promised. On small test sets that may be chance (2 labels of 1,155), hence the "
        "second count. The promise holds with a confidence of 95 %, so that about one "
        "machine in twenty may miss it; machines of one data set are not independent, though.",
        table(["", "measured", "target", ""], summary(records)),
        "## Machines",
        "*batch*: rows of the timed batch, the test rows repeated where they are few. SVC.predict knows one thread. "
        "The last column is what a row may take on two threads to be 3,000 times as fast: where that is less than "
        "reading the row, showing it to the guard and voting take (compare *us/row* of the methods), the machine is "
        "too small for it.",
        table(*machine_table(measured)),
        "## Methods",
        "*agreement*: share of test labels equal to SVC.predict's (labels that differ). *settled by*: share of the "
        "test rows; rows that the guard sends on are among the exact engine's. *rim*: share of the test rows at the "
        "edge of those known, about which hinges are more careful. Ratios are times of the other side over times of "
        "this method. *fit*: seconds of the stage's training alone, where the report says. *warned*: "
        "`accelerate` warned, the rows are too few to show what was asked.",
        table(*method_table(measured)),
    ]
    guarded = [record for record in records if "guard" in record]
    if guarded:
        sections += [
            "## Rows unlike the calibration data",
            "Labels that differ from the exact engine's in a batch (and one row at a time), and shares of the batch "
            "that the guard kept from the stages, and that the exact engine answered in all.",
            table(*guard_table(guarded)),
        ]
    if troubles := list(failures(records)):
        sections += ["## Not built", "\n".join(troubles)]
    return "\n\n".join([*sections, f"Written by `{command}`."]) + "\n"


def head(records: list[Record], n_machines: int) -> str:
    """Say where the numbers come from, and what is missing."""
    if not records:
        return "Nothing was measured."
    speeds = [record["speed"] for record in records]
    places = sorted({f"{s['environment']['cpu']}, {s['environment']['cores']} cores" for s in speeds})
    levels = sorted({s["environment"]["instruction_level"] for s in speeds})
    commits = sorted({str(s["environment"]["commit"]) for s in speeds})
    repeats = sorted({s["repeats"] for s in speeds})
    loads = [s["other_load"] for s in speeds if s["other_load"] is not None]
    text = (
        f"{'; '.join(places)}, {', '.join(levels)}; commit {', '.join(commits)}; medians of "
        f"{' or '.join(map(str, repeats))} interleaved repeats; SVC.predict on at most 500 of the test rows."
    )
    if loads:
        text += f" Cores used by others while building and measuring a machine: at most {max(loads):.2f}."
    if len({s["code"] for s in speeds}) > 1:
        text += " **The machines were not all measured with the same code.**"
    if len(records) < n_machines:
        text += f" **{n_machines - len(records)} of {n_machines} machines are missing.**"
    busy = [title(r) for r in records if (r["speed"]["other_load"] or 0.0) > MOST_OTHER_LOAD]
    if busy:
        text += f" Others were busy (more than {MOST_OTHER_LOAD} cores) during: {', '.join(busy)}."
    return text


def machine_table(records: list[Record]) -> tuple[list[str], list[list[str]]]:
    titles = ["machine", "SVs", "features", "scores", "C, gamma", "test rows", "batch", "exact us/row 1, 2 thr."]
    titles += [
        "exact, one row us",
        "exact: labels unlike SVC.predict's",
        "SVC.predict us/row",
        "a 3,000th of it, ns/row",
    ]
    rows = []
    for r in records:
        s = r["speed"]
        rows.append(
            [
                title(r),
                f"{r['n_sv']:,}",
                str(r["d"]),
                str(r["n_scores"]),
                f"{r['C']:g}, {r['gamma']:.3g}",
                f"{s['n_test']:,}",
                f"{s['batch']:,}",
                ", ".join(f"{s['exact_us_row'][threads]['median']:.3f}" for threads in ("1", "2")),
                f"{s['exact_one_row_us']['median']:.1f}",
                str(s["exact_wrong"]),
                f"{s['svc_us_row']['median']:,.0f}",
                f"{s['svc_us_row']['median'] * 1000.0 / SVC_TARGET:,.0f}",
            ]
        )
    return titles, rows


def method_table(records: list[Record]) -> tuple[list[str], list[list[str]]]:
    titles = ["machine", "method", "hinges", "promise (bound)", "agreement", "settled by", "guarded, rim"]
    titles += [
        "us/row 1, 2 thr.",
        "vs exact 1, 2 thr.",
        "vs SVC.predict 1, 2 thr.",
        "one row us",
        "build s (fit)",
        "MB",
    ]
    rows = []
    for r in records:
        for line in speed_lines(r):
            bound = "" if line["bound"] is None else f" ({line['bound']:.5f})"
            mark = "" if line["wrong"] <= (1.0 - line["asked"]) * r["speed"]["n_test"] else ", below"
            mark = ", **surely below**" if mark and is_surely_below(line, r) else mark
            rows.append(
                [
                    title(r),
                    line["method"],
                    str(line["hinges"] or ""),
                    f"{line['promise']}{bound}{', warned' if line['warned'] else ''}",
                    f"{line['agreement']:.5f} ({line['wrong']}{mark})",
                    ", ".join(f"{stage} {share:.2%}" for stage, share in line["stages"].items()),
                    "" if line["guarded"] is None else f"{line['guarded']:.2%}" + rim(line),
                    ", ".join(f"{line[f'us_row_{threads}']['median']:.3f}" for threads in (1, 2)),
                    ", ".join(ratio(line[f"vs_exact_{threads}"]["median"]) for threads in (1, 2)),
                    ", ".join(ratio(line[f"vs_svc_{threads}"]["median"]) for threads in (1, 2)),
                    f"{line['one_row_us']['median']:.2f}",
                    f"{line['build_seconds']:.1f}" + (f" ({line['fit_seconds']:.1f})" if line["fit_seconds"] else ""),
                    f"{line['bytes'] / 1e6:.1f}",
                ]
            )
    return titles, rows


def guard_table(records: list[Record]) -> tuple[list[str], list[list[str]]]:
    titles = ["machine", "rows"]
    for method in PROMISES:
        titles += [f"{method}: labels that differ", "guarded, exact"]
    rows = []
    for r in records:
        lines = r["guard"]["lines"]
        for kind in dict.fromkeys(line["rows"] for line in lines):
            row = [title(r), kind]
            for method in PROMISES:
                found = [line for line in lines if line["rows"] == kind and line["method"] == method]
                row += guard_cells(found[0]) if found else ["", ""]
            rows.append(row)
    return titles, rows


def guard_cells(line: Record) -> list[str]:
    guarded = "" if line["guarded"] is None else f"{line['guarded']:.1%}, "
    return [
        f"{line['different']} of {line['n']:,} ({line['different_alone']} of {line['n_alone']})",
        f"{guarded}{line['exact']:.1%}",
    ]


def failures(records: list[Record]) -> Iterator[str]:
    for r in records:
        found = {**r.get("guard", {}).get("failed", {}), **r.get("speed", {}).get("failed", {})}
        for method, reason in found.items():
            yield f"- {title(r)}, {method}: {reason}"


# -- cells -------------------------------------------------------------------------------------------------------


def title(record: Record) -> str:
    return f"{record['dataset']} {record['kind']}"


def rim(line: Record) -> str:
    """Share of the test rows on the guard's rim, where hinges know one."""
    return "" if line.get("rim") is None else f", {line['rim']:.2%}"


def names(pairs: list[tuple[Record, Record]]) -> str:
    found = [f"{title(r)} {line['agreement']:.5f}" for line, r in pairs]
    return f" ({', '.join(found)})" if found else ""


def rival_name(rival: str) -> str:
    return "SVC.predict" if rival == "svc" else rival


def ratio(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
