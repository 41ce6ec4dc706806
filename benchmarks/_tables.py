"""Markdown from results: the compact table of the README, and one with every cell."""

from __future__ import annotations

from typing import Any

# Other processes may use this much of one core before the table says so.
MOST_OTHER_LOAD = 0.1
RIVALS = ("SVC.predict", "intelex", "plain NumPy", "NumPy", "onnxruntime")


def markdown(results: dict[str, Any]) -> str:
    """Render all results: head, compact table, its legend, every cell, overheads."""
    parts = [head(results), compact(results), legend(results), "### Every cell", details(results), overheads(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def head(results: dict[str, Any]) -> str:
    """Say where the numbers come from."""
    place, options = results["environment"], results["options"]
    versions = ", ".join(f"{name} {number}" for name, number in place["versions"].items() if number)
    return (
        f"{place['cpu']}, {place['cores']} cores, instruction level {place['instruction_level']}, {place['system']}, "
        f"Python {place['python']}; {versions}; BLAS: {', '.join(place['blas'])}; commit {place['commit']}; "
        f"load average at the start {place['load_average']}; {options['repeats']} interleaved repeats.\n"
        f"Command: `{options['command']}`"
    )


def compact(results: dict[str, Any]) -> str:
    """Render one row for each data set."""
    most = max(results["options"]["threads"])
    titles = [
        "data set",
        "support vectors",
        "features",
        "classes",
        "labels that differ",
        f"svelto µs/row, {most} thread{'s' * (most != 1)}",
        *(f"{name} / svelto" for name in RIVALS),
        "1 thread: SVC.predict / svelto",
        "1 row: SVC.predict / svelto",
        "1 row: best rival / svelto",
        "share of peak",
    ]
    rows = []
    for case in results["cases"]:
        n_test = case["n_test"]
        ours = find(case, "svelto", most, "all")
        rows.append(
            [
                case["dataset"] + (" (CSR)" if case["form"] == "csr" else ""),
                f"{case['n_sv']:,}",
                str(case["n_features"]),
                str(case["n_classes"]),
                f"{case['label_differences']['svelto']['differences']} of {n_test:,}",
                number(ours["us_per_row"]["median"]),
                *(ratio_cell(case, name, most, "all") for name in RIVALS),
                ratio_cell(case, "SVC.predict", 1, "all"),
                ratio_cell(case, "SVC.predict", most, "1"),
                best_rival(case, most, "1"),
                share(case, most),
            ]
        )
    return table(titles, rows)


BEGIN, END = "<!-- exact benchmark: begin -->", "<!-- exact benchmark: end -->"


def into_readme(text: str, results: dict[str, Any]) -> str:
    """Put the ratios of the compact table between the README's two marks."""
    if BEGIN not in text or END not in text:
        raise ValueError(f"The README has no lines {BEGIN!r} and {END!r} to write between.")
    most = max(results["options"]["threads"])
    titles = [
        "data set",
        "SVs",
        "features",
        "classes",
        "labels that differ",
        *RIVALS,
        "SVC.predict, 1 row",
        "share of peak",
    ]
    rows = [
        [
            case["dataset"] + (" (CSR)" if case["form"] == "csr" else ""),
            f"{case['n_sv']:,}",
            str(case["n_features"]),
            str(case["n_classes"]),
            f"{case['label_differences']['svelto']['differences']} of {case['n_test']:,}",
            *(ratio_cell(case, name, most, "all") for name in RIVALS),
            ratio_cell(case, "SVC.predict", most, "1"),
            share(case, most),
        ]
        for case in results["cases"]
    ]
    before, after = text.split(BEGIN, maxsplit=1)[0], text.split(END)[1]
    place = results["environment"]
    where = f"{place['cpu']}, {most} threads, {place['instruction_level']}; `{results['options']['command']}`"
    return f"{before}{BEGIN}\n{table(titles, rows)}\n\n{where}\n{END}{after}"


def legend(results: dict[str, Any]) -> str:
    """Say what the columns of the compact table mean."""
    most = max(results["options"]["threads"])
    return (
        "Times are for all test rows in one call unless stated. RIVAL / svelto: the rival's time over svelto's at "
        f"{most} threads, median over repeats; above 1, svelto is faster. SVC.predict has one thread and is timed on "
        f"at most {results['options']['max_rows']:,} rows, scaled per row. Labels that differ: svelto against "
        "SVC.predict, on every test row. Plain NumPy is blocked NumPy as it is usually written, with BLAS's threads; "
        "NumPy is the fastest we could write, with threads of its own. Rivals get float32 rows (onnxruntime dense "
        "ones), converted outside of the timing; svelto gets float64. intelex is trained anew on float32 rows. Share "
        "of peak: time at the machine's best sgemm and vectorised-exp rates over svelto's time, dense rows only; it "
        "passes 100 % where most of a row is zero, because zeros are skipped. After a pause (below): the first "
        "call after the process was idle for some milliseconds, when threads have to be started or woken."
    )


def details(results: dict[str, Any]) -> str:
    """Render one row for each data set, batch, thread count and side."""
    titles = [
        "data set",
        "batch",
        "threads",
        "side",
        "rows timed",
        "differs",
        "µs/row",
        "side / svelto [10 %, 90 %]",
        "after a pause: µs/row",
        "after a pause: side / svelto",
        "note",
    ]
    rows = []
    for case in results["cases"]:
        for cell in case["cells"]:
            differ = case["label_differences"][cell["side"]]
            ratio = cell["ratio"]
            rows.append(
                [
                    case["dataset"],
                    cell["batch"],
                    str(cell["threads"])
                    + ("" if cell["own_threads"] == cell["threads"] else f" ({cell['own_threads']})"),
                    cell["side"],
                    f"{cell['rows_timed']:,}",
                    f"{differ['differences']} of {differ['rows']:,}",
                    number(cell["us_per_row"]["median"]),
                    f"{number(ratio['median'])} [{number(ratio['q10'])}, {number(ratio['q90'])}]",
                    number(cell["us_per_row_after_a_pause"]["median"]),
                    number(cell["ratio_after_a_pause"]["median"]),
                    cell["note"],
                ]
            )
        rows += [
            [case["dataset"], "", "", name, "", "", "", reason, "", "", ""]
            for name, reason in case["unavailable"].items()
        ]
    return table(titles, rows)


def overheads(results: dict[str, Any]) -> str:
    """Say what a call costs besides arithmetic."""
    lines = []
    if latency := results.get("one_row_latency"):
        lines.append(
            f"One row, {latency['n_sv']} support vectors, {latency['n_features']} features: "
            f"{number(latency['us_per_call']['median'])} µs a call, "
            f"{number(latency['us_per_call_without_arithmetic']['median'])} µs without the arithmetic."
        )
    if memory := results.get("extra_memory"):
        lines.append(
            f"Memory for {memory['n_rows']:,} rows and {memory['n_sv']} support vectors: "
            f"{memory['extra_bytes'] / 1e6:.1f} MB beyond input ({memory['input_bytes'] / 1e6:.0f} MB) and output "
            f"({memory['output_bytes'] / 1e6:.0f} MB), {memory['threads']} threads."
        )
    for case in results["cases"]:
        rates = "; ".join(
            f"{threads} thread{'s' * (threads != '1')}: sgemm {rate['sgemm'] / 1e9:.0f} GFLOP/s, "
            f"exp {rate['exp'] / 1e9:.2f} G/s, share {share(case, int(threads))}"
            for threads, rate in case["peak"].items()
        )
        lines.append(f"Peak measured beside {case['dataset']}: {rates}.")
    return "\n".join(f"- {line}" for line in [*lines, *busy(results)])


def busy(results: dict[str, Any]) -> list[str]:
    """Warn where other processes were using the cores while times were taken."""
    return [
        f"**Busy machine**, {case['dataset']}, threads {threads}: others kept {cores:.2f} cores busy meanwhile."
        for case in results["cases"]
        for threads, cores in case["other_load"].items()
        if cores is not None and cores > MOST_OTHER_LOAD
    ]


def find(case: dict[str, Any], side: str, threads: int, batch: str) -> dict[str, Any] | None:
    """Cell of the results, if it was measured."""
    for cell in case["cells"]:
        if (cell["side"], cell["threads"], cell["batch"]) == (side, threads, batch):
            return cell
    return None


def ratio_cell(case: dict[str, Any], side: str, threads: int, batch: str) -> str:
    """Median ratio of a rival's time to svelto's, or why there is none."""
    cell = find(case, side, threads, batch)
    return number(cell["ratio"]["median"]) if cell else case["unavailable"].get(side, "-")


def best_rival(case: dict[str, Any], threads: int, batch: str) -> str:
    """Smallest median ratio among the rivals, with the rival's name."""
    cells = [c for c in case["cells"] if c["side"] != "svelto" and (c["threads"], c["batch"]) == (threads, batch)]
    if not cells:
        return "-"
    best = min(cells, key=lambda cell: cell["ratio"]["median"])
    return f"{number(best['ratio']['median'])} ({best['side']})"


def share(case: dict[str, Any], threads: int) -> str:
    """Share of peak, or a dash for sparse rows."""
    value = case["share_of_peak"].get(str(threads))
    return "-" if value is None else f"{100 * value:.0f} %"


def number(value: float) -> str:
    """Three digits, without exponents."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.095 else f"{value:.2g}"


def table(titles: list[str], rows: list[list[str]]) -> str:
    """Markdown table; every column but the first is aligned to the right."""
    lines = [titles, ["---", *["---:"] * (len(titles) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
