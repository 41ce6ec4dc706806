"""The exact engine in a svelto file: its packed arrays, so that opening a file packs, tries and copies nothing.

Packed panels are the same for every instruction level (a panel row is 128 bytes), so they are portable. What native
code can be told by the machine itself (sizes, kernel, rule, the vectors of the reference sum) is never taken from the
file a second time. What remains are arrays of floats, whose lengths follow from the machine, and the starts of groups.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from svelto import _core
from svelto.engines.blocked_sum import LISTS_NUMBERS, BlockedSum
from svelto.engines.exact import ExactEngine, ValueEngine, single_pairs
from svelto.engines.packing import (
    PAIR_CODES,
    PAIRS_F64,
    Fields,
    Grouping,
    column_layout,
    machine_fields,
)
from svelto.io.parts import MOST, In, Out
from svelto.machine import KernelMachine

WIDTHS: Final = {"_f32": _core.PANEL_WIDTH_F32, "_f64": _core.PANEL_WIDTH_F64}
DTYPES: Final = {"_f32": "<f4", "_f64": "<f8"}
TIERS: Final = ("float32", "float64")
PAIR_NAMES: Final = {code: name for name, code in PAIR_CODES.items()}


def write_exact(out: Out, engine: ExactEngine | ValueEngine) -> None:
    """An exact engine; its machine is written elsewhere."""
    if isinstance(engine, ValueEngine):
        out.set(engine="values")
        return
    blocked = isinstance(engine, BlockedSum)
    fields = engine._fields
    out.set(
        engine="blocked" if blocked else "exact",
        precision=engine.precision,
        first_tier=engine.first_tier,
        score_tier=engine.score_tier,
        score_bound=engine.score_bound,
        postings=fields["use_postings"],
        form=PAIR_NAMES[fields["pair_f32"]] if fields["has_f32"] else None,
        magnitudes=fields["abs_cols"] > 0,
        vector_norm=fields["vector_norm"],
        coef_total=fields["coef_total"],
    )
    out.put("coef_sum", fields["coef_sum"], "<f8")
    _write_panels(out, fields, "_f64")
    if fields["has_f32"]:
        _write_panels(out, fields, "_f32")
        out.set(weight_scale=fields["weight_scale"])
        out.put("centre", fields["centre"], "<f8")
    if fields["use_postings"]:
        out.put("posting_start", fields["posting_start"], "<i8")
        out.put("posting_vector", fields["posting_vector"], "<i4")
        out.put("posting_value", fields["posting_value"], "<f8")
    if isinstance(engine, BlockedSum):
        _write_lists(out.part("lists"), engine)


def _write_panels(out: Out, fields: Fields, suffix: str) -> None:
    dtype = DTYPES[suffix]
    out.put("group_start" + suffix, fields["group_start" + suffix], "<i4")
    for name in ("vectors", "weights", "vector_const"):
        if name + suffix in fields:
            out.put(name + suffix, fields[name + suffix], dtype)
    if suffix == "_f32":  # float64 is not centred: there both are the same
        out.put("sparse_const" + suffix, fields["sparse_const" + suffix], dtype)
    out.put("stats" + suffix, fields["stats" + suffix], "<f8")
    out.set(**{name + suffix: fields[name + suffix] for name in ("scale", "row_scale")})


def read_exact(part: In, machine: KernelMachine) -> ExactEngine | ValueEngine:
    """The engine of a machine."""
    native = machine.kernel.has_native_code
    kind = part.choice("engine", ("exact", "blocked") if native else ("values",))
    if kind == "values":
        return ValueEngine(machine)
    linear, postings = machine.kernel.name == "linear", part.flag("postings")
    if postings and (linear or not machine.has_sparse_vectors):
        part.fail("an inverted index belongs to sparse support vectors")
    forms = (None,) if linear or postings else (None, *single_pairs(machine.kernel.name))
    form = part.choice("form", forms)
    layout, abs_cols = _layout(part, machine)
    fields = machine_fields(machine, layout, abs_cols, form, use_postings=postings)
    fields["vector_norm"], fields["coef_total"] = part.number("vector_norm"), part.number("coef_total")
    fields["coef_sum"] = part.array("coef_sum", "<f8", (machine.n_scores,))
    _read_panels(part, fields, machine, "_f64", layout)
    if form is not None:
        _read_panels(part, fields, machine, "_f32", layout)
        fields["pair_f32"] = PAIR_CODES[form]
        fields["weight_scale"] = part.number("weight_scale")
        fields["has_centre"] = machine.kernel.name in ("rbf", "exponential")
        fields["centre"] = part.floats("centre", (fields["d"],), always=True)
    if postings:
        _read_postings(part, fields)
    tiers = part.choice("first_tier", TIERS), part.choice("score_tier", TIERS)
    if form is None and tiers != ("float64", "float64"):
        part.fail("an engine without single precision starts in it")
    precision = part.choice("precision", ("auto", "float32", "float64"))
    engine = (BlockedSum if kind == "blocked" else ExactEngine).from_packed(
        machine, precision, fields, tiers, part.number("score_bound")
    )
    if isinstance(engine, BlockedSum):
        _read_lists(part.part("lists"), engine, layout, abs_cols)
    return engine


def _layout(part: In, machine: KernelMachine) -> tuple[str, int]:
    """How columns become scores, and how many of them hold magnitudes; both follow from the machine but for one bit."""
    magnitudes = part.flag("magnitudes")
    n_rows = machine.dual_coef.shape[0]
    if machine.kernel.name == "linear":
        layout = "columns"
    elif machine.is_grouped:
        layout = "classes"
    else:
        layout = "single" if machine.n_scores == 1 else "columns"
    if magnitudes and (layout == "single" or machine.kernel.name == "linear"):
        part.fail("this machine has no columns of magnitudes")
    return layout, n_rows if magnitudes else 0


def _read_panels(part: In, fields: Fields, machine: KernelMachine, suffix: str, layout: str) -> None:
    """Panels of one precision: lengths follow from the number of panels, and that from where groups start."""
    linear, width, dtype = machine.kernel.name == "linear", WIDTHS[suffix], DTYPES[suffix]
    n_groups = machine.n_classes if layout == "classes" else None if layout == "single" else 1
    start = part.starts("group_start" + suffix, n_groups, None)
    n_panels = int(start[-1])
    n_cols = machine.n_scores if linear else machine.dual_coef.shape[0] + fields["abs_cols"]
    by_column, padded = column_layout(n_cols, dtype)
    fits = n_panels == -(-n_cols // width) if linear else 1 <= n_panels <= MOST // width
    if not 2 <= len(start) <= max(machine.n_classes, 2) + 1 or not fits:
        part.fail(f"group_start{suffix} ends at {n_panels} panels")
    packed = n_panels * width
    numbers = {
        "pair": PAIR_CODES[PAIRS_F64.get(machine.kernel.name, "dot")],
        "n_groups": len(start) - 1,
        "n_cols": n_cols,
        "padded_cols": 0 if linear else padded,
        "by_column": True if linear else by_column,
        "n_panels": n_panels,
        "group_start": start,
        "scale": part.number("scale" + suffix),
        "row_scale": part.number("row_scale" + suffix),
        # What overflowed while it was packed is infinite, and its bound says so.
        "stats": part.array("stats" + suffix, "<f8", (4,)),
        "vector_const": part.array("vector_const" + suffix, dtype, (packed,)),
    }
    numbers["sparse_const"] = numbers["vector_const"]
    if suffix == "_f32":
        numbers["sparse_const"] = part.array("sparse_const" + suffix, dtype, (packed,))
    if not fields["use_postings"]:
        numbers["vectors"] = part.array("vectors" + suffix, dtype, (n_panels, fields["d"], width))
    if not linear:
        shape = (n_cols, packed) if by_column else (packed, padded)
        numbers["weights"] = part.array("weights" + suffix, dtype, shape)
    fields.update({name + suffix: value for name, value in numbers.items()})


def _read_postings(part: In, fields: Fields) -> None:
    values = part.floats("posting_value", (None,))
    packed = fields["n_panels_f64"] * WIDTHS["_f64"]
    fields["posting_start"] = part.starts("posting_start", fields["d"], len(values), dtype="<i8")
    fields["posting_vector"] = part.whole("posting_vector", values.shape, 0, packed - 1)
    fields["posting_value"] = values


# -- lists of method="bounded" -----------------------------------------------------------------------------------


def _write_lists(out: Out, engine: BlockedSum) -> None:
    out.set(share=engine.share, form=engine._form, ordered=engine._order is not None)
    if engine._order is not None:
        members = engine._order.members
        out.put("order", np.concatenate(members), "<i4")
        out.put("sizes", [len(group) for group in members], "<i4")
    out.set(listed=engine.lists is not None)
    if engine.lists is not None:
        out.set(**{name: engine.lists[name] for name in LISTS_NUMBERS})
        for name, array in engine.lists.items():
            if name not in LISTS_NUMBERS:
                out.put(f"list_{name}", array, array.dtype.str)
        out.put("enabled", engine.enabled, "|u1")


def _read_lists(part: In, engine: BlockedSum, layout: str, abs_cols: int) -> None:
    machine = engine.machine
    engine.share = part.number("share")
    engine._form = part.choice("form", (None, *single_pairs(machine.kernel.name)))
    engine._order = _read_order(part, machine, layout, abs_cols) if part.flag("ordered") else None
    engine.lists, engine.enabled = None, np.zeros(0, dtype=np.uint8)
    if not part.flag("listed"):
        return
    if "vectors_f32" not in engine._fields or engine._order is None:
        part.fail("lists need panels in single precision")
    n_lists, n_chunks, n_levels = (part.count(name, 1) for name in LISTS_NUMBERS[:3])
    d, width = engine._fields["d"], WIDTHS["_f32"]
    n_panels = -(-n_lists // width)
    chunk_start = part.starts("list_chunk_start", n_chunks, None)
    length, scores = int(chunk_start[-1]), machine.n_scores
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        "centres": ("<f4", (n_lists, d)),
        "centre_panels": ("<f4", (n_panels, d, width)),
        "centre_const": ("<f4", (n_panels * width,)),
        "order": ("<i4", (n_lists, length)),
        "reach": ("<f8", (n_lists, n_levels)),
        "exponent": ("<f4", (n_lists, n_chunks, n_levels)),
        "rest": ("<f4", (n_lists, n_chunks + 1, n_levels, 2, scores)),
    }
    lists: dict[str, Any] = {"n_lists": n_lists, "n_chunks": n_chunks, "n_levels": n_levels}
    lists["check_cost"] = part.finite("check_cost")
    lists["chunk_start"] = chunk_start
    for name, (dtype, shape) in shapes.items():
        lists[name] = part.array(f"list_{name}", dtype, shape)
    engine.lists = lists
    engine.enabled = part.whole("enabled", (n_lists,), 0, 2, dtype="|u1")
    engine._native.set_lists(lists)


def _read_order(part: In, machine: KernelMachine, layout: str, abs_cols: int) -> Grouping:
    """The groups that the panels were packed by; a pickle of the engine packs by them again."""
    order = part.whole("order", (machine.n_sv,), 0, machine.n_sv - 1)
    sizes = part.whole("sizes", (None,), 1, machine.n_sv)
    if int(sizes.sum()) != machine.n_sv or len(sizes) > max(machine.n_classes, 2):
        part.fail("the groups of support vectors do not hold all of them")
    if (np.bincount(order, minlength=machine.n_sv) != 1).any():
        part.fail("a support vector is in two groups")
    coef = machine.dual_coef
    members = np.split(order.astype(np.int64), np.cumsum(sizes)[:-1])
    return Grouping(layout, members, np.vstack([coef, np.abs(coef)]) if abs_cols else coef, abs_cols)
