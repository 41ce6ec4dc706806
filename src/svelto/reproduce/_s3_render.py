"""Markdown of paper S3's Tables 2 and 3, from the JSON documents alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from svelto.reproduce import _paper_s3
from svelto.reproduce._common import Record
from svelto.reproduce._tables import origin, table

__all__ = ["DISTANCE", "KERNEL", "MACHINES", "PAPER", "SHARE_SLACK", "origin", "render_map", "table"]

PAPER: Final = (
    'J. Acevedo-Rodríguez, S. Maldonado-Bascón, S. Lafuente-Arroyo, P. Siegmann and F. López-Ferreras, "Computational '
    'load reduction in decision functions using support vector machines" (Signal Processing, 2009)'
)
MACHINES: Final = {"rest": "one against the rest", "pairs": "one against one"}
KERNEL: Final = {"rbf": "Gaussian", "exponential": "exponential"}
DISTANCE: Final = {"rbf": "||x - x'||²", "exponential": "||x - x'||"}
# A point of the map has the paper's saved share if it is at most so many points away.
SHARE_SLACK: Final = 5.0


def paper_lines(document: Record) -> dict[str, _paper_s3.Line]:
    """The paper's table for the kernel of a document."""
    return _paper_s3.TABLE2 if kernel_of(document) == "rbf" else _paper_s3.TABLE3


def kernel_of(document: Record) -> str:
    """Kernel of a document of maps."""
    return str(next(iter(document["results"].values()))["settings"]["kernel"])


# -- Tables 2 and 3 ----------------------------------------------------------------------------------------------


def render_map(document: Record) -> str:
    """Whole page of Table 2 or 3."""
    kernel, records = kernel_of(document), document["results"]
    number, picture = (2, 2) if kernel == "rbf" else (3, 3)
    conditions = "(10) and (11)" if kernel == "rbf" else "(16) and (17)"
    has_figure = any("figure" in record for record in records.values())
    sections = [
        f"# S3, Table {number}: sums that stop early, {KERNEL[kernel]} kernel",
        f"The experiment of {PAPER}, Table {number}, run again with svelto: support vectors are added in the order of "
        f"their distance from a first one, until conditions {conditions} say that the rest cannot change the sign. "
        "Promise of the method: **exact**.",
        origin(document, f"svelto reproduce s3-table{number}"),
        "The paper gives neither C nor sigma, nor does it say whether features are scaled and how classes are "
        "combined, and the saving depends on all of these. So this page has the machine that cross-validation chooses, "
        "and a map of the saving over C and sigma on which the paper's figure is looked up.",
        "## Tuned machines",
        "C and sigma by cross-validation on training rows. Evaluations are those of all test rows and are counted as "
        "in the paper: each binary machine stops when its own sign is certain, counts are added up. For one against "
        'the rest the label needs more than signs where none or several are positive; "saved for the label" counts '
        "until it is certain.",
        table(_tuned_head(kernel), _tuned_rows(document)),
        "## Other bounds",
        "Evaluations a row where all binary machines share kernel values, which makes the number of support vectors "
        'the classical count. svelto\'s bounds: `method="bounded", save="evaluations"`. Test rows are drawn at random. '
        '"Nearest": the point of the map most like the paper\'s machine (see below), looked up afterwards.',
        table(
            "data set;machines;machine;SVs;accuracy %;rows;paper's bound: evaluations;saved %;label "
            "differences;svelto's bounds: evaluations;saved by svelto's bounds %;label differences;bound",
            _bounds_rows(document),
        ),
        _bounds_note(document),
        "## Where the paper's figures lie",
        table(
            "data set;machines;paper: saved %;highest saved % (accuracy %);points at or above the paper's;best of "
            "these by cross-validation: C, gamma, saved %, accuracy %;nearest: C, gamma, saved %, accuracy %;classical "
            "evaluations a row there: paper / ours",
            _place_rows(document),
        ),
        "\n".join(f"- {text}" for text in conclusions(document)),
    ]
    if has_figure:
        sections += [
            f"## Figure {picture}",
            f"![Kernel evaluations of test rows, sorted](s3-figure{picture}.png)",
            "\n".join(f"- {text}" for text in _figure_notes(document)),
        ]
    sections += ["## Map", "Each cell: saved % (accuracy %), saved as the paper counts it.", *_maps(document)]
    sections += ["## How it was done", "\n".join(f"- {text}" for text in _notes(document)), ""]
    return "\n\n".join(sections)


def shown_point(record: Record, strategy: str, which: str) -> Record:
    """The tuned point of a map, or the one nearest to the paper's."""
    point: Record = record["points"][record["shown"][f"{strategy} {which}"]["point"]]
    return point


def _tuned_head(kernel: str) -> str:
    head = (
        "data set;machines;d: paper / ours;test rows;C;sigma²;SVs;accuracy %;classical: paper / ours;bounded: paper / "
        "ours;saved %: paper / ours;saved for the label %"
    )
    if kernel != "rbf":
        head += ";saved vs. RBF %: paper / ours"
    return head + ";label differences"


def _tuned_rows(document: Record) -> list[list[str]]:
    lines, rows = paper_lines(document), []
    for unit, record in document["results"].items():
        paper, n_test = lines[record["name"]], record["n_test"]
        for strategy, title in MACHINES.items():
            point = shown_point(record, strategy, "tuned")
            cells = [
                unit,
                title,
                f"{paper.n_features} / {record['n_features']}",
                f"{n_test:,}",
                f"2^{point['C_power']}",
                f"{1 / (2 * point['gamma']):.3g}",
                f"{point['n_sv']:,}",
                f"{point['accuracy']:.1f}",
                f"{millions(paper.classical)} / {millions(point['classical'] * n_test)}",
                f"{millions(paper.bounded)} / {millions(point['signs'] * n_test)}",
                f"{paper.saved:.1f} / {point['saved']:.1f}",
                f"{point['saved_labels']:.1f}",
            ]
            if paper.saved_vs_rbf is not None:
                ours = 100.0 * (1.0 - point["signs"] / record["rbf"][strategy]["signs"])
                cells.append(f"{paper.saved_vs_rbf:.1f} / {ours:.1f}")
            rows.append([*cells, str(point["differences"])])
    return rows


def _bounds(record: Record) -> dict[str, Record]:
    return {key: shown for key, shown in record["shown"].items() if "svelto" in shown}


def _bounds_rows(document: Record) -> list[list[str]]:
    rows = []
    for unit, record in document["results"].items():
        for key, shown in _bounds(record).items():
            strategy, which = key.split()
            point, theirs, ours = shown_point(record, strategy, which), shown["shared"], shown["svelto"]
            cells = [
                unit,
                MACHINES[strategy],
                which,
                f"{point['n_sv']:,}",
                f"{point['accuracy']:.1f}",
                str(shown["rows"]),
            ]
            for bound in (theirs, ours):
                cells += [f"{bound['labels']:,.0f}", f"{bound['saved_labels']:.1f}", str(bound["differences"])]
            rows.append([*cells, ours["bound"]])
    return rows


def _bounds_note(document: Record) -> str:
    """Count where svelto's bounds save more than the paper's."""
    pairs = [
        (shown["svelto"]["labels"], shown["shared"]["labels"])
        for record in document["results"].values()
        for shown in _bounds(record).values()
    ]
    fewer = sum(ours < theirs for ours, theirs in pairs)
    return (
        f"svelto's bounds take fewer evaluations than the paper's bound in {fewer} of {len(pairs)} lines. They use no "
        "distance but those that kernel values give, so evaluations are all that is to be counted; rows that go to the "
        "exact engine count in full. What they cost besides is arithmetic over all vectors, so they are for kernels "
        "whose values are dear."
    )


# -- where the paper's figures lie -------------------------------------------------------------------------------


def at_or_above(points: Iterable[Record], share: float) -> list[Record]:
    """Points that save at least this share, best cross-validation first."""
    found = [point for point in points if point["saved"] >= share]
    return sorted(found, key=lambda point: (-point["cv_accuracy"], point["C_power"], point["step"]))


def _place_rows(document: Record) -> list[list[str]]:
    lines, rows = paper_lines(document), []
    for unit, record in document["results"].items():
        paper = lines[record["name"]]
        for strategy, title in MACHINES.items():
            points = [point for point in record["points"] if point["strategy"] == strategy]
            top = max(points, key=lambda point: point["saved"])
            reached = at_or_above(points, paper.saved)
            near = shown_point(record, strategy, "nearest")
            rows.append(
                [
                    unit,
                    title,
                    f"{paper.saved:.1f}",
                    f"{top['saved']:.1f} ({top['accuracy']:.1f})",
                    f"{len(reached)} of {len(points)}",
                    _place(reached[0]) if reached else "none",
                    _place(near),
                    f"{paper.classical_per_row:,.0f} / {near['classical']:,}",
                ]
            )
    return rows


def _place(point: Record) -> str:
    return f"2^{point['C_power']}, {gamma(point)}, {point['saved']:.1f}, {point['accuracy']:.1f}"


def gamma(point: Record) -> str:
    """Value of gamma in the map's units: m is the typical distance."""
    return f"2^{point['step']}/m"


def conclusions(document: Record) -> list[str]:
    """Say for each data set of the paper whether its figure is reached, and at what accuracy."""
    lines, texts = paper_lines(document), []
    by_name: dict[str, list[tuple[str, Record]]] = {}
    for unit, record in document["results"].items():
        by_name.setdefault(record["name"], []).append((unit, record))
    for name, found in by_name.items():
        paper = lines[name]
        points = [{**point, "unit": unit} for unit, record in found for point in record["points"]]
        tuned = [shown_point(record, strategy, "tuned") for _, record in found for strategy in MACHINES]
        text = f"**{name}**: the paper saves {paper.saved:.1f} %; tuned machines save {_range(tuned, 'saved')} % at "
        text += f"{_range(tuned, 'accuracy')} % accuracy. "
        reached, top = at_or_above(points, paper.saved), max(points, key=lambda point: point["saved"])
        if reached:
            first = reached[0]
            loss = max(point["accuracy"] for point in tuned) - first["accuracy"]
            text += (
                f"The figure is reached at {len(reached)} of {len(points)} points of the map. The one that "
                f"cross-validation likes best ({first['unit']}, {MACHINES[first['strategy']]}, "
                f"C = 2^{first['C_power']}, gamma = {gamma(first)}) saves {first['saved']:.1f} % at "
                f"{first['accuracy']:.1f} % accuracy, {_points(loss)} the best tuned machine, and has "
                f"{first['classical']:,} classical evaluations a row (the paper: {paper.classical_per_row:,.0f})."
            )
        else:
            text += (
                f"The figure is **not reached** on the map: the highest is {top['saved']:.1f} % ({top['unit']}, "
                f"{MACHINES[top['strategy']]}, C = 2^{top['C_power']}, gamma = {gamma(top)}), at "
                f"{top['accuracy']:.1f} % accuracy."
            )
        shown, common = (reached[0] if reached else top), found[0][1]["majority"]
        if shown["accuracy"] <= common:
            text += (
                f" Always giving the most frequent label has {common:.1f} % accuracy, so this machine knows nothing."
            )
        texts.append(text + " " + _counting(paper, found[0][1]))
    return texts


def _range(points: Sequence[Record], key: str) -> str:
    low, high = min(point[key] for point in points), max(point[key] for point in points)
    return f"{low:.1f}" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {high:.1f}"


def _points(loss: float) -> str:
    if abs(loss) < 0.05:
        return "the same as"
    return f"{abs(loss):.1f} points {'below' if loss > 0 else 'above'}"


def _counting(paper: _paper_s3.Line, record: Record) -> str:
    """What the paper's count of the classical method says about its machines."""
    count, n_train, n_classes = paper.classical_per_row, record["n_train"], record["n_classes"]
    most_pairs, most_rest = (n_classes - 1) * n_train, n_classes * n_train
    text = f"The paper's {count:,.0f} classical evaluations a row are "
    if count <= n_train:
        return (
            text + f"fewer than the {n_train:,} training rows: binary machines may share kernel values in this count."
        )
    text += f"more than the {n_train:,} training rows, so binary machines do not share kernel values in this count"
    if count > most_pairs:
        return text + (
            f"; they are more than one against one can have ({n_classes - 1} x {n_train:,} = {most_pairs:,}) and "
            f"{count / most_rest:.0%} of what one against the rest can have: nearly every training row is a support "
            "vector of every machine."
        )
    return text + "."


def _maps(document: Record) -> list[str]:
    texts = []
    for unit, record in document["results"].items():
        typical = f"m = {record['unit']:.4g}, the median of {DISTANCE[record['settings']['kernel']]} of training rows"
        for strategy, title in MACHINES.items():
            points = {(p["C_power"], p["step"]): p for p in record["points"] if p["strategy"] == strategy}
            steps, powers = sorted({step for _, step in points}), sorted({power for power, _ in points})
            tuned = shown_point(record, strategy, "tuned")
            rows = []
            for power in powers:
                cells = [f"C = 2^{power}"]
                for step in steps:
                    point = points[power, step]
                    cell = f"{point['saved']:.1f} ({point['accuracy']:.1f})"
                    cells.append(f"**{cell}**" if point is tuned else cell)
                rows.append(cells)
            classical = ["classical evaluations a row"] + [
                _span([points[power, step]["classical"] for power in powers]) for step in steps
            ]
            head = ";".join(["gamma", *(f"2^{step}/m" for step in steps)])
            texts.append(f"**{unit}, {title}**; {typical}; bold: tuned.\n\n" + table(head, [*rows, classical]))
    return texts


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} - {high:,}"


def _figure_notes(document: Record) -> list[str]:
    (unit, record), *_ = [(unit, record) for unit, record in document["results"].items() if "figure" in record]
    bounded, classical = record["figure"]["bounded"], record["figure"]["classical"]
    mean = sum(bounded) / len(bounded)
    return [
        f'{unit}, tuned, one against the rest; {len(bounded)} test rows drawn at random (the paper: "a reduced set"). '
        f"Classical {classical:,} evaluations a row; bounded {min(bounded):,} to {max(bounded):,}, mean {mean:,.0f}."
    ]


def _notes(document: Record) -> list[str]:
    records = document["results"]
    settings = next(iter(records.values()))["settings"]
    points = [point for record in records.values() for point in record["points"]]
    shown = [one for record in records.values() for one in _bounds(record).values()]
    n_different = sum(p["differences"] for p in points)
    n_different += sum(one["shared"]["differences"] + one["svelto"]["differences"] for one in shown)
    n_rows = sum(record["n_test"] * len(record["points"]) for record in records.values())
    n_rows += sum(2 * one["rows"] for one in shown)
    n_open = sum(p["open"] for p in points) + sum(one["shared"]["open"] for one in shown)
    signs = ", ".join(f"{_paper_s3.TABLE2[name].n_test:,} ({name})" for name in _paper_s3.TRAFFIC_SIGNS)
    return [
        "Inferred from the paper's counts: they are added up over binary machines. Lists run over the union of the "
        "support vectors, there is one list for each class, and the lists' first vectors are counted once a row.",
        "letter: the first 16,000 rows of the file train, the last 4,000 test. All its raw features run from 0 to 15, "
        "so scaling to [-1, 1] multiplies every distance by the same factor and raw features would give the same map. "
        f"A point takes long here, so its map is smaller ({_grid(records, 'letter')}).",
        "arrhythmia: 200 test rows drawn at random with a fixed seed, 252 train; missing values are replaced by the "
        "feature's mean. segmentation: the paper has 16 features and does not say which; the file's 19 are used. "
        "Scaled: to [-1, 1] by the ranges of the training rows, features that are constant there dropped.",
        "One against the rest: a machine for each class, the largest score wins. One against one: LIBSVM's vote. Where "
        "no weight reaches C, the machine of a larger C is the same and is not trained again.",
        f"Cross-validation: {settings['cv_folds']} folds, one against one, at most {settings['cv_rows']:,} training "
        "rows drawn at random, the points of the map; one against the rest takes the same C and sigma. sigma² = "
        "1/(2 gamma), as the paper writes both kernels.",
        f"The nearest point: of those within {SHARE_SLACK:g} points of the paper's saved share, the one whose number "
        "of classical evaluations is nearest to the paper's, as a ratio; without any, the point of the nearest share.",
        f"Labels that differ from the float64 machine's: {n_different:,} of {n_rows:,} rows predicted on this page; "
        f"the lists left {n_open:,} open, by rounding, and handed them to the exact engine.",
        f"Not available: {', '.join([*document['unavailable'], 'the traffic sign sets'])}. The paper's traffic signs "
        f"were never published; their test samples: {signs}.",
    ]


def _grid(records: dict[str, Record], name: str) -> str:
    for record in records.values():
        if record["name"] == name:
            return f"{len(record['points']) // len(MACHINES)} pairs of C and sigma"
    return "not in this run"


def millions(count: float) -> str:
    """Three digits, in millions."""
    return f"{count / 1e6:.3g} M"
