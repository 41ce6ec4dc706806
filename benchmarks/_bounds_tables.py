"""Markdown from the results of benchmarks/bounded.py, one section for each part."""

from __future__ import annotations

from typing import Any

from _bounds import BALL_SIZES, CHORD_SIZES, COMPONENTS
from _bounds_cases import SEARCH_ROWS, SPIRAL_FOLDS, SPIRAL_ROWS, SPIRAL_TRAIN
from _tables import MOST_OTHER_LOAD, number, table

NAMES = {"ida_banana": "banana", "letter.scale": "letter", "satimage.scale": "satimage"}
SPIRAL_TARGET, LEAST_ELSEWHERE = 3.0, 0.9

# Names of the bounds in `tried`, what they are, and what they cost besides evaluations.
TRIED = {
    "paper": ("paper S3: one interval for all that is left of a list", "the lists' first vectors"),
    "triangle": ("an interval for each vector, same lists", "the lists' first vectors"),
    "best reference": ("an interval for each vector, best of all references, order of the nearest one", "references"),
    **{f"balls of {n}": (f"balls around {n} neighbours, own order", "1 a group") for n in BALL_SIZES},
    **{
        f"chords of {n}": (
            f"chord and tangent over {n} neighbours, own order",
            "1 a group, and with more than two classes 1 more for each column of weights",
        )
        for n in CHORD_SIZES
    },
    **{
        f"components {n}": (f"distance in {n} principal components, own order", f"{n + 1} / features a vector")
        for n in COMPONENTS
    },
    "blocks": ("**blocks** (kept, for time)", "1 for each centre"),
    "projection": ("**projection** (kept, for evaluations)", "none"),
    "references": ("**references**, own order (kept, for evaluations)", "references"),
}


def markdown(document: dict[str, Any]) -> str:
    """The whole page."""
    parts = ['# Sums that stop early: method="bounded"']
    for name, section in document.items():
        parts += [*SECTIONS[name](section["lines"], section), *busy(section), origin(section)]
    return "\n\n".join(parts) + "\n"


def origin(section: dict[str, Any]) -> str:
    """Where the numbers of a section come from."""
    place = section["environment"]
    versions = ", ".join(f"{name} {place['versions'][name]}" for name in ("svelto", "numpy", "scikit-learn"))
    return (
        f"{place['cpu']}, {place['cores']} cores, {place['instruction_level']}, Python {place['python']}, {versions}; "
        f"commit {place['commit']}; other load {section['other_load']} cores; {section['seconds']:.0f} s.\n"
        f"Command: `{section['command']}`"
    )


def busy(section: dict[str, Any]) -> list[str]:
    """Warn where other processes were using the cores while times were taken."""
    loads = [
        (cores, title(line), threads)
        for line in section["lines"]
        for threads, cores in line.get("other_load", {}).items()
        if cores is not None
    ]
    high = [found for found in loads if found[0] > MOST_OTHER_LOAD]
    if not high:
        return []
    cores, name, threads = max(high)
    return [
        f"**Busy machine**: others kept more than {MOST_OTHER_LOAD:g} cores busy during {len(high)} of {len(loads)} "
        f"timings, at most {cores:.2f} cores ({name}, threads {threads}). These times mean little."
    ]


def title(line: dict[str, Any]) -> str:
    """Data set and parameters."""
    return f"{NAMES.get(line['dataset'], line['dataset'])}, C {line['C']:g}, gamma {line['gamma']:.3g}"


def share(value: float) -> str:
    return f"{100 * value:.1f} %"


def rows_of(line: dict[str, Any]) -> str:
    n_rows, n_test = line["n_rows"], line["n_test"]
    return f"{n_rows:,}" if n_rows == n_test else f"{n_rows:,} of {n_test:,}"


def time_section(lines: list[dict[str, Any]], section: dict[str, Any]) -> list[str]:
    """Time beside the exact engine."""

    def ratio(line: dict[str, Any], threads: int) -> str:
        found = line[f"ratio_{threads}"]
        return f"{number(found['median'])} [{number(found['q10'])}, {number(found['q90'])}]"

    titles = [
        "machine",
        "support vectors",
        "features",
        "test rows",
        "lists in use",
        "evaluations saved",
        "exact µs/row, 2 threads",
        "exact / bounded, 1 thread",
        "exact / bounded, 2 threads",
        "build s",
        "MB",
        "labels that differ",
    ]
    rows = [
        [
            title(line),
            f"{line['n_sv']:,}",
            str(line["n_features"]),
            rows_of(line),
            f"{line['lists_in_use']} of {line['lists']}" if line["lists"] else "none",
            share(line["saved"]),
            number(line["exact_us_2"]["median"]),
            ratio(line, 1),
            ratio(line, 2),
            f"{line['build_seconds']:.1f}",
            f"{line['bytes'] / 1e6:.1f}",
            str(line["differences"]),
        ]
        for line in lines
    ]
    text = (
        'All test rows in one call, in turns with `method="exact"`; ratios are formed within a turn, medians and '
        f"[10 %, 90 %] of {section['repeats']} turns; above 1, `bounded` is faster. *Lists in use*: regions whose list "
        "pays; without any, `bounded` is the exact engine. *Evaluations saved* counts rows that are done again in "
        "float64 twice, so it can be below zero. Labels are compared with SVC.predict's. 2SPIRAL: first C and gamma by "
        f"cross-validation ({SPIRAL_FOLDS} folds of {SPIRAL_ROWS:,} of the {SPIRAL_TRAIN:,} training rows), then the "
        "ends of the grid for C; all others: LIBSVM's defaults or the parameters of `_cases.py`."
    )
    return ["## Time", text, table(titles, rows), *targets(lines)]


def targets(lines: list[dict[str, Any]]) -> list[str]:
    """Say whether what was aimed at is reached."""
    verdicts = []
    spiral = [line["ratio_2"]["median"] for line in lines if line["dataset"] == "2SPIRAL"]
    if spiral:
        met = "reached" if spiral[0] >= SPIRAL_TARGET else "missed"
        verdicts.append(f"2SPIRAL (tuned) on 2 threads {number(spiral[0])}, at least {SPIRAL_TARGET:g} wanted: {met}")
    tuned = next((line for line in lines if line["dataset"] == "2SPIRAL"), None)
    others = [(line[f"ratio_{n}"]["median"], title(line), n) for line in lines if line is not tuned for n in (1, 2)]
    if others:
        least, name, threads = min(others)
        met = "reached" if least >= LEAST_ELSEWHERE else "missed"
        where = f"{name}, {threads} thread{'s' * (threads != 1)}"
        verdicts.append(f"least ratio elsewhere {number(least)} ({where}), at least {LEAST_ELSEWHERE:g} wanted: {met}")
    return [f"Targets: {'; '.join(verdicts)}."] if verdicts else []


def evaluations_section(lines: list[dict[str, Any]], section: dict[str, Any]) -> list[str]:
    """Kernel evaluations saved."""

    def over(line: dict[str, Any], other: str) -> str:
        ours, theirs = line["bounds"]["auto"]["saved"], line["bounds"][other]["saved"]
        return number(ours / theirs) if theirs > 0.0 else "-"

    titles = [
        "machine",
        "kernel",
        "support vectors",
        "features",
        "accuracy",
        "test rows",
        "paper",
        "paper, as built",
        "paper, machines apart",
        "references",
        "projection",
        "auto",
        "auto / paper",
        "auto / paper, machines apart",
        "labels that differ",
    ]
    rows = []
    for line in lines:
        bounds = line["bounds"]
        rows.append(
            [
                title(line),
                line["kernel"],
                f"{line['n_sv']:,}",
                str(line["n_features"]),
                share(line["accuracy"]),
                rows_of(line),
                share(bounds["paper"]["saved"]),
                share(bounds["paper, as built"]["saved"]),
                share(bounds["paper, machines apart"]["saved"]),
                f"{share(bounds['references']['saved'])} ({bounds['references']['n_references']})",
                share(bounds["projection"]["saved"]),
                f"{share(bounds['auto']['saved'])} ({bounds['auto']['chosen']})",
                over(line, "paper"),
                over(line, "paper, machines apart"),
                str(line["differences"]),
            ]
        )
    text = (
        "Share of kernel evaluations left out, on machines tuned for accuracy (letter with the Gaussian kernel: "
        f"`_cases.py`; all others: cross-validation over C and gamma on at most {SEARCH_ROWS:,} training rows). Values "
        "are shared by the binary machines, and the whole sum is one evaluation a support vector. *Paper*: its bounds, "
        'looked at after every vector (`benchmarks/_bounds.py`); *as built*: `bound="paper"`, which looks less often; '
        "*machines apart*: the paper's own reading, where each binary machine stops by itself and the whole is the sum "
        'over the machines. In brackets: reference vectors, and what `save="evaluations"` chose. Where fewer rows than '
        "there are were used, they were drawn at random."
    )
    return ["## Kernel evaluations", text, table(titles, rows)]


def callable_section(lines: list[dict[str, Any]], section: dict[str, Any]) -> list[str]:
    """Time of a dear kernel."""
    titles = [
        "machine",
        "support vectors",
        "test rows",
        "µs a value",
        "bound",
        "whole sum ms/row",
        "bounded ms/row",
        "evaluations left",
        "time left",
        "whole / bounded",
        "µs a row besides values",
        "evaluations to build",
        "labels that differ",
    ]
    rows = [
        [
            title(line),
            f"{line['n_sv']:,}",
            rows_of(line),
            f"{line['value_us']:g}",
            line["bound"],
            number(line["exact_ms"]["median"]),
            number(line["bounded_ms"]["median"]),
            share(line["evaluations_left"]),
            share(line["time_left"]["median"]),
            number(line["ratio"]["median"]),
            number(line["besides_us"]["median"]),
            f"{line['build_evaluations']:,}",
            str(line["differences"]),
        ]
        for line in lines
    ]
    text = (
        "A Gaussian kernel as a Python function that is busy for the stated time with every value, registered with "
        '`svelto.register_bound`; one thread, in turns with `method="exact"`, which asks for all values.'
    )
    return ["## A dear kernel", text, table(titles, rows)]


def tried_section(lines: list[dict[str, Any]], section: dict[str, Any]) -> list[str]:
    """Bounds that were tried."""
    titles = ["bound", "its own cost, in evaluations"]
    titles += [
        f"{title(line)} ({line['n_sv']:,} vectors, {line['n_features']} features, {line['n_rows']:,} rows)"
        for line in lines
    ]
    rows = []
    for name, (what, cost) in TRIED.items():
        cells = [share(line["bounds"][name]["saved"]) if name in line["bounds"] else "-" for line in lines]
        if any(cell != "-" for cell in cells):
            rows.append([what, cost, *cells])
    text = (
        "Share of kernel evaluations saved on a random sample of test rows. What a bound itself costs is counted in "
        "evaluations, too; below zero, it costs more than it saves. The bounds that were not kept are defined in "
        "`benchmarks/_bounds.py`. Balls, chords and components need vectors with features; references and the "
        "projection need kernel values alone, so they also serve kernels that are functions. Blocks are kept for time: "
        "they decide for 32 vectors at once, in the loop of the exact engine."
    )
    return ["## Bounds that were tried", text, table(titles, rows)]


SECTIONS = {
    "time": time_section,
    "evaluations": evaluations_section,
    "callable": callable_section,
    "tried": tried_section,
}
