"""The page about latency, from what was measured."""

from __future__ import annotations

from typing import Any, NamedTuple

from _latency import Percentiles
from _latency_sharing import N_PROCESSES, N_THREADS
from _tables import MOST_OTHER_LOAD, number, table

# How many times faster than SVC.predict a tree's single row shall be, and how far threads shall get on two cores.
TARGETS = {"p50": 100.0, "p99": 50.0}
THREAD_TARGET, THREAD_CORES = 1.8, 2
BUSY = "not judged: busy machine"
TOO_FEW = "not judged: too few calls of SVC.predict"
# Calls that a percentile needs.
LEAST_CALLS = {"p50": 20, "p99": 1_000, "p999": 10_000}
SHARES = tuple(LEAST_CALLS)
WAYS = {"fork": "forked after `svelto.load`", "spawn": "`svelto.load` in each"}


class Page(NamedTuple):
    """What was measured, and where."""

    place: dict[str, Any]
    command: str
    cases: list[dict[str, Any]]
    shared: str
    threads: list[dict[str, Any]]
    processes: list[dict[str, Any]]


def render(page: Page) -> str:
    """The whole page as Markdown."""
    parts = [HEAD, where(page), "## Against SVC.predict", targets(page.cases)]
    for case in page.cases:
        parts += [f"## {case['title']}", calls(case)]
    if page.threads:
        parts += [f"## {N_THREADS} threads, one predictor", THREADS, threads(page), limits(page)]
    if page.processes:
        parts += ["## Processes, one file", PROCESSES, processes(page)]
    return "\n\n".join(part for part in parts if part) + "\n"


HEAD = """# Latency of single rows

One row in a call, test rows one after the other. Every call is timed by itself (`perf_counter_ns`; C:
`clock_gettime`); p50, p99 and p99.9 are the times within which 50 %, 99 % and 99.9 % of the calls were answered, in
microseconds. Contenders take turns, the collector of garbage is off, and the first calls of a turn do not count. Who
is slow gets as many calls as fit into a time limit, at least 1,000; a percentile beyond which fewer than ten calls lie
is not shown. *clock* is an empty function: the clock's own time is in all figures of Python.

svelto's predictors are built on the training rows, with `agreement=0.999` where a method approximates; *auto* was asked
for `batch_size=1`. A row that the cheap stages leave open goes to the exact engine: where that happens to one row in a
hundred, p99 is the exact engine's time, not the stage's. *C* is the header that `export_c` writes, with its guard and
its whole sum: plain loops with sums in double precision, compiled by `gcc -O3`. SVC.predict gets dense or CSR rows, by
what was faster for single ones. *differ*: labels of all test rows that are not SVC.predict's (C: of the rows asked
about)."""


def is_busy(measured: dict[str, Any]) -> bool:
    """Whether others kept the machine busy meanwhile."""
    return (measured["other_load"] or 0.0) > MOST_OTHER_LOAD


def shown(found: Percentiles, share: str) -> str:
    """A percentile, where at least ten calls lie beyond it."""
    return number(getattr(found, share)) if found.calls >= LEAST_CALLS[share] else "-"


def where(page: Page) -> str:
    """Machine, versions, command."""
    place = page.place
    versions = ", ".join(f"{name} {version}" for name, version in place["versions"].items() if version)
    busy = [f"{case['title']} {case['other_load']:.2f}" for case in page.cases if is_busy(case)]
    text = (
        f"{place['cpu']}, {place['cores']} cores, instruction level {place['instruction_level']}, {place['system']}, "
        f"Python {place['python']}; {versions}; commit {place['commit']}; `{page.command}`"
    )
    if busy:
        text += f"\n\n**Busy machine**: cores that others kept busy meanwhile: {', '.join(busy)}."
    return text


def targets(cases: list[dict[str, Any]]) -> str:
    """The tree's speedups over SVC.predict, beside what was aimed at."""
    rows = []
    for case in cases:
        times = case["times"]
        for which, target in TARGETS.items():
            ratio = getattr(times["SVC.predict"], which) / getattr(times["taylor_tree"], which)
            verdict = BUSY if is_busy(case) else "met" if ratio >= target else "**missed**"
            verdict = verdict if times["SVC.predict"].calls >= LEAST_CALLS[which] else TOO_FEW
            rows.append(
                [f"{case['title']}: {which}, SVC.predict over taylor_tree", number(ratio), f">= {target:.0f}", verdict]
            )
    return table(["", "measured", "target", ""], rows)


def calls(case: dict[str, Any]) -> str:
    """One line for each contender."""
    times = case["times"]
    svc, rows = times["SVC.predict"], []
    for name, found in times.items():
        differ = f"{case['wrong'][name]:,}" if name in case["wrong"] else "-"
        over = [
            number(getattr(svc, which) / getattr(found, which)) if svc.calls >= LEAST_CALLS[which] else "-"
            for which in ("p50", "p99")
        ]
        rows.append(
            [
                name,
                *(shown(found, share) for share in SHARES),
                *(["-", "-"] if name == "clock" else over),
                f"{found.calls:,}",
                differ,
                case["notes"][name],
            ]
        )
    head = (
        f"{case['n_sv']:,} support vectors, {case['d']} features, {case['n_test']:,} test rows, of which "
        f"{case['n_rows']:,} are asked about."
    )
    titles = ["", "p50", "p99", "p99.9", "SVC.predict over it, p50", "p99", "calls", "differ", ""]
    return f"{head}\n\n{table(titles, rows)}"


THREADS = f"""The same calls by one thread and by {N_THREADS}, with `n_jobs=1`: how many times as many calls a second
{N_THREADS} threads answer. Labels are compared first. While others use the cores, {N_THREADS} threads get a larger
share of them than one does: a gain on a busy machine is too large, and is not judged."""


def threads(page: Page) -> str:
    """One line for each predictor and size of a call."""
    cores, rows = page.place["cores"], []
    for line in page.threads:
        target = verdict = ""
        if cores == THREAD_CORES:
            target = f">= {THREAD_TARGET}"
            verdict = "met" if line["gain"] >= THREAD_TARGET else "**missed**"
            verdict = BUSY if is_busy(line) else verdict
        rows.append(
            [
                f"{line['method']}, {line['rows']:,} row{'s' * (line['rows'] > 1)} a call",
                f"{line['calls']:,}",
                "identical" if line["same"] else "**differ**",
                number(line["us_call"]),
                number(line["gain"]),
                target,
                verdict,
            ]
        )
    titles = [page.shared, "calls", "labels", "us a call, one thread", "gain", "target", ""]
    return table(titles, rows)


def limits(page: Page) -> str:
    """What limits single rows: Python's share of a call, which C shows."""
    text = (
        "A batch lets the interpreter go and spends nearly all of its time in native code. A single row keeps the "
        "interpreter's lock where its work is shorter than handing the lock over would be, tens of microseconds; "
        "letting it go brought less than half of that throughput. So threads answer no more single rows than one does."
    )
    times = next(case["times"] for case in page.cases if case["title"].startswith(page.shared))
    if "taylor_tree, C" in times:
        asked, plain = times["taylor_tree"].p50, times["taylor_tree, C"].p50
        text += f" One row of the tree takes {number(asked)} us from Python and {number(plain)} us from C (p50)."
    return text + " Services that answer single rows want processes, or several rows in a call."


PROCESSES = f"""A taylor_tree cascade in a svelto file, opened before {N_PROCESSES} processes are forked, or by each of
{N_PROCESSES} processes; all ask for single rows at the same time. Times are those of the slowest process. Memory is the
mean of a process in MB, read while all are alive (`/proc/self/smaps_rollup`): *Rss* counts every page that is there,
*Pss* divides shared ones among those that share them, *private* are pages that nobody shares. The last columns are the
same for the mapped file alone. Objects are frozen (`gc.freeze`) before the fork."""


def processes(page: Page) -> str:
    """One line for each way to share."""
    rows = [
        [
            f"{line['processes']} {'process' if line['processes'] == 1 else 'processes'}, {WAYS[line['way']]}",
            number(line["p50"]),
            number(line["p99"]),
            *(number(line["whole"][name] / 1e6) for name in ("Rss", "Pss", "Private")),
            *(number(line["file"][name] / 1e6) for name in ("Rss", "Pss", "Private")),
        ]
        for line in page.processes
    ]
    titles = [page.shared, "p50", "p99", "Rss", "Pss", "private", "file: Rss", "file: Pss", "file: private"]
    return table(titles, rows)
