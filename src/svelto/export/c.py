"""export_c: a predictor as one C header, C99, without libraries, allocation or state.

`c_plan` says what of a predictor is written, `c_answer` puts its parts together, `c_header` makes the text. The
header's numbers are measured against the predictor's before anything is written (`measure`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from svelto._options import check_choice, check_whole
from svelto._rowfiles import write_atomically
from svelto.engines.exact import ExactEngine
from svelto.export.c_answer import Answer, answer
from svelto.export.c_header import comment, functions, header, label_words
from svelto.export.c_names import PartNames, model_name
from svelto.export.c_parts import Part, Setting
from svelto.export.c_plan import Plan, plans
from svelto.export.c_space import make_space
from svelto.export.c_tables import DTYPES
from svelto.export.c_vote import Voting, class_table
from svelto.export.measure import Agreement, measure
from svelto.machine import KernelMachine
from svelto.report import PROMISES, Report


@dataclass(frozen=True)
class CExport:
    """What was written.

    Attributes
    ----------
    path : Path
        The header.
    name : str
        Prefix of its names.
    dtype : str
        Of its large tables.
    method : str
        What of the predictor it holds: stages, and "exact" for the whole sum.
    promise : {"exact", "statistical", "none"}
        What its labels are worth; see `agreement` for what was measured.
    table_bytes : int
        Bytes of all its tables: what it takes of flash, besides a few kilobytes of code.
    agreement : Agreement
        Its numbers against the predictor's and the machine's.
    """

    path: Path
    name: str
    dtype: str
    method: str
    promise: str
    table_bytes: int
    agreement: Agreement

    def __str__(self) -> str:
        facts = [
            ("header", str(self.path)),
            ("method", self.method),
            ("promise", self.promise),
            ("tables", f"{self.table_bytes:,} bytes, {self.dtype}"),
        ]
        facts += [("measured", line) for line in self.agreement.lines()]
        return "\n".join(f"{name:<9}{value}" for name, value in facts)


@dataclass(frozen=True)
class Draft:
    """A plan as parts and last functions, not yet written."""

    plan: Plan
    parts: list[Part]
    answer: Answer
    last: str
    table_bytes: int


def export_predictor(
    predictor: Any,
    path: str | PathLike[str],
    *,
    name: str | None = None,
    dtype: str = "float32",
    max_bytes: int | None = None,
    X: Any = None,
) -> CExport:
    """Write a predictor; see `Predictor.export_c`."""
    target = Path(path)
    check_choice("dtype", dtype, DTYPES)
    if max_bytes is not None:
        check_whole("max_bytes", max_bytes, 1, " or None")
    machine: KernelMachine = predictor.machine
    options = plans(predictor)
    setting = Setting(model_name(name, target), dtype, int(machine.support_vectors.shape[1]))  # type: ignore[arg-type]
    engine = predictor._engine
    exact = engine if isinstance(engine, ExactEngine) else engine.exact
    draft = _fitting(setting, options, max_bytes, exact)
    agreement = measure(machine, engine, draft.answer.engine, X, exact)
    # Nothing is left of a promise where a part of the predictor is missing, or where its numbers are rounded.
    promise = predictor.report.promise if draft.plan.whole and dtype == "float32" else "none"
    top = comment(
        f"{setting.name}: a kernel machine, written by svelto {version()}.",
        [
            ("model", model_words(machine)),
            ("method", draft.plan.method + ("" if draft.plan.whole else " (this stage answers every row)")),
            ("promise", promise_words(promise, predictor.report)),
            ("measured", "; ".join(agreement.lines())),
            *table_facts(setting, draft.table_bytes),
            *use_facts(setting, draft.answer.voting),
        ],
    )
    voting = draft.answer.voting
    text = header(setting, top, voting.n_outputs, voting.classes, draft.parts, draft.last)
    with write_atomically(target) as file:
        file.write(text.encode("ascii"))
    return CExport(target, setting.name, dtype, draft.plan.method, promise, draft.table_bytes, agreement)


def _fitting(setting: Setting, options: Sequence[Plan], max_bytes: int | None, exact: Any) -> Draft:
    """All of the predictor, or the largest single stage within the limit."""
    first = make_draft(setting, options[0], exact)
    if max_bytes is None or first.table_bytes <= max_bytes:
        return first
    others = [make_draft(setting, plan, exact) for plan in options[1:]]
    fitting = [draft for draft in others if draft.table_bytes <= max_bytes]
    if fitting:
        return max(fitting, key=lambda draft: draft.table_bytes)
    sizes = ", ".join(f"{draft.plan.method} {draft.table_bytes:,}" for draft in [first, *others])
    raise ValueError(
        f"max_bytes is {max_bytes:,}; as {setting.dtype} the tables of this predictor need more bytes ({sizes}). Use a "
        "smaller dtype, or a smaller predictor: accelerate(..., method='hinges', n_hinges=16), or 'taylor_tree' with "
        "max_leaves, or 'reduced_set' with n_basis."
    )


def make_draft(setting: Setting, plan: Plan, exact: Any) -> Draft:
    """Parts of a plan."""
    machine = plan.machine
    centre, free = plan.centre(setting.dtype)
    space = make_space(setting, machine.scaling, centre, free=free)
    made = answer(setting, plan, space.centre, PartNames(setting.name), exact)
    parts = made.parts if space.part is None else [space.part, *made.parts]
    last = functions(setting, made.voting, prepares=space.part is not None, labels_only=made.labels_only)
    size = sum(table.nbytes for part in parts for table in part.tables)
    size += 0 if machine.classes is None else class_table(setting.name, machine.classes)[1]
    return Draft(plan, parts, made, last, size)


def promise_words(promise: str, report: Report) -> str:
    """The promise in a sentence."""
    if promise == "exact":
        return (
            "exact, to single precision: labels are the float64 machine's, but for rows whose score is within rounding "
            "of single-precision tables"
        )
    if promise == "statistical":
        bound = "" if report.agreement_bound is None else f" (at least {report.agreement_bound:.5f})"
        return f"statistical: {PROMISES['statistical']}{bound}"
    return f"none: {PROMISES['none']}"


def model_words(machine: KernelMachine) -> str:
    """The machine in a line."""
    what = machine.task if machine.classes is None else f"{machine.n_classes} classes"
    scaled = "" if machine.scaling is None else ", its scaler folded in"
    size = f"{machine.n_sv} support vectors, {machine.n_features} features"
    return f"{machine.svm_type}, {machine.kernel}, {size}, {what}{scaled}"


def table_facts(setting: Setting, size: int) -> list[tuple[str, str]]:
    """Bytes and type of the tables."""
    return [("tables", f"{size} bytes, {setting.dtype}")]


def use_facts(setting: Setting, voting: Voting) -> list[tuple[str, str]]:
    """How to call and to compile."""
    name = setting.name
    if voting.task == "regression":
        single = f"float {name}_value(const float *x); " if voting.n_outputs == 1 else ""
        calls = f"{single}void {name}_decision(const float *x, float *out)"
    else:
        calls = f"int {name}_predict(const float *x); void {name}_decision(const float *x, float *out). "
        calls += f"{name}_predict: " + label_words(name, voting)
    return [
        ("calls", calls + f" x has {name}_N_FEATURES numbers, out has room for {name}_N_OUTPUTS."),
        (
            "compile",
            "C99 or C++, with the mathematics library (-lm). All functions are static inline: include the header in "
            "the one file that calls them; every other file that does gets a copy of the tables. Sums are of type "
            f"{name}_REAL, double unless -D{name}_REAL=float; on a processor without doubles float is far faster.",
        ),
    ]


def version() -> str:
    """Of svelto."""
    from svelto import __version__

    return __version__
