"""export_c of an `SVMTreeClassifier`: its chains, and the kernel machine that answers what they leave open."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from svelto._inputs import Query
from svelto._options import check_choice, check_whole
from svelto._rowfiles import write_atomically
from svelto._typing import IntArray, Rows
from svelto.engines.exact import ExactEngine
from svelto.engines.packing import breaks_ties
from svelto.export.c import CExport, table_facts, use_facts, version
from svelto.export.c_answer import Answer, answer
from svelto.export.c_chains import chain_part
from svelto.export.c_header import comment, decision_words, header, label_words
from svelto.export.c_names import PartNames, model_name
from svelto.export.c_parts import Setting, render
from svelto.export.c_plan import Plan, plans
from svelto.export.c_space import make_space
from svelto.export.c_tables import DTYPES
from svelto.export.c_vote import Voting, class_table, decision_code, integer_labels, sorted_place
from svelto.export.measure import Agreement, single_rows, stand_ins
from svelto.predictor import Predictor
from svelto.scaling import Scaling

LABEL = """
/* Number of the class of a prepared row. */
static inline int ${p}_label(const float *u) {
    $real s[$room];
    int label = ${q}_winner(u)$index;
    if (label >= 0) return label;
$open    return label;
}
"""
VOTE = """
    ${q}_scores(u, s);
    for (i = 1, label = 0; i < $n; ++i)
        if (s[i] > s[label]) label = i;
"""
VOTE_OF_TWO = """
    ${q}_scores(u, s);
    label = s[0] > 0;
"""
PREDICT = """
/* $says */
static inline int ${p}_predict(const float *x) {
$row    return $result;
}
"""
DECISION = """
/* $says */
static inline void ${p}_decision(const float *x, float *out) {
    $real s[$room];
    int k;
$row$tail    ${q}_scores($source, s);
    for (k = 0; k < $width; ++k) out[k] = (float)s[k];
}
"""
TAIL_DECISION = """
    if (${q}_winner($source) < 0) {
$statements        return;
    }
"""


def export_tree(
    tree: Any,
    path: str | PathLike[str],
    *,
    name: str | None = None,
    dtype: str = "float32",
    max_bytes: int | None = None,
    X: Any = None,
) -> CExport:
    """Write a fitted tree; see `SVMTreeClassifier.export_c`."""
    target = Path(path)
    check_choice("dtype", dtype, DTYPES)
    if max_bytes is not None:
        check_whole("max_bytes", max_bytes, 1, " or None")
    setting = Setting(model_name(name, target), dtype, int(tree.n_features_in_))  # type: ignore[arg-type]
    predictor = _tail_predictor(tree)
    neutral = not tree.scale_shift_.any() and bool((tree.scale_factor_ == 1.0).all())
    scaling = None if neutral else Scaling("divide", tree.scale_shift_, tree.scale_factor_)
    draft = _TreeDraft(setting, tree, scaling, predictor)
    if max_bytes is not None and draft.table_bytes > max_bytes:
        draft = _smaller(draft, setting, tree, scaling, max_bytes)
    agreement = draft.measure(X)
    n_nodes, n_classes = tree.n_nodes_, len(tree.classes_)
    promise = "none: a classifier of its own, not the copy of another machine"
    tail = "no kernel machine" if draft.tail is None else f"then {draft.plan.machine!r}"  # type: ignore[union-attr]
    top = comment(
        f"{setting.name}: a tree of linear SVMs, written by svelto {version()}.",
        [
            (
                "model",
                f"SVMTreeClassifier, {n_nodes} hyperplanes, {setting.n_features} features, {n_classes} classes; {tail}",
            ),
            ("method", draft.method),
            ("promise", promise),
            ("measured", "; ".join(agreement.lines())),
            *table_facts(setting, draft.table_bytes),
            *use_facts(setting, draft.voting),
        ],
    )
    text = header(setting, top, draft.voting.n_outputs, tree.classes_, draft.parts, draft.last)
    with write_atomically(target) as file:
        file.write(text.encode("ascii"))
    return CExport(target, setting.name, dtype, draft.method, "none", draft.table_bytes, agreement)


def _smaller(draft: _TreeDraft, setting: Setting, tree: Any, scaling: Scaling | None, max_bytes: int) -> _TreeDraft:
    """The hyperplanes alone, where they fit: their votes answer for the tail."""
    alone = _TreeDraft(setting, tree, scaling, None) if draft.tail is not None else draft
    if alone.table_bytes <= max_bytes:
        return alone
    raise ValueError(
        f"max_bytes is {max_bytes:,}; the tables of this tree need {draft.table_bytes:,} bytes as {setting.dtype}, "
        f"{alone.table_bytes:,} of them for hyperplanes. Use a smaller dtype, or train with a smaller max_nodes, a "
        "larger min_peeled, or multi_class='ovr'."
    )


def _tail_predictor(tree: Any) -> Predictor | None:
    """What answers for the tail; None without a tail."""
    tail = tree._tree.tail
    if tail is None:
        return None
    if not isinstance(tail.answers, Predictor):
        raise NotImplementedError(
            f"The tail is a {type(tail.estimator).__name__}, which is no kernel machine: export_c cannot write it. "
            "Train with tail='rbf' or tail=None."
        )
    own = tail.answers.machine.scaling
    same = (
        own is not None
        and np.array_equal(own.shift, tree.scale_shift_)
        and np.array_equal(own.factor, tree.scale_factor_)
    )
    if tail.scale is not None or not same:
        raise NotImplementedError(
            "The tail scales its rows itself, behind the tree's scaling: export_c cannot write both. Train with a tail "
            "that is no Pipeline, or with scale=None."
        )
    return tail.answers


def _plan_of(tail: Predictor) -> Plan:
    """All of a tail, with a score for each class: those are the tree's columns."""
    plan = plans(tail)[0]
    machine = replace(plan.machine, decision_function_shape="ovr", break_ties=breaks_ties(plan.machine))
    return replace(plan, machine=machine)


class _TreeDraft:
    """Parts of a tree, with its tail or without."""

    def __init__(self, setting: Setting, tree: Any, scaling: Scaling | None, tail: Predictor | None) -> None:
        self.tree, self.tail, self.scaling = tree, tail, scaling
        chains, n_classes = tree._tree.chains, len(tree.classes_)
        names = PartNames(setting.name)
        centre, free = np.zeros(setting.n_features), True
        self.plan: Plan | None = None if tail is None else _plan_of(tail)
        if self.plan is not None:
            centre, free = self.plan.centre(setting.dtype)
        space = make_space(setting, scaling, centre, free=free)
        own = chain_part(setting, names.new("chains"), chains, scaling, space.centre)
        self.chains = own.rounded
        self.answer: Answer | None = None
        parts = [own]
        if self.plan is not None and tail is not None:
            exact = tail._engine if isinstance(tail._engine, ExactEngine) else tail._engine.exact  # type: ignore[union-attr]
            self.answer = answer(setting, self.plan, space.centre, names, exact)
            parts += self.answer.parts
        width = 1 if n_classes == 2 and chains.rule == "one_vs_one" else n_classes
        order = np.array([1, 0] if width == 1 else range(n_classes), dtype=np.int32)
        rule = "pairs" if width == 1 else "argmax"
        # A single score speaks for the second class: with this order `decision_code` keeps its sign.
        self.voting = Voting("classification", rule, width, n_classes, tree.classes_, order)
        self.parts = parts if space.part is None else [space.part, *parts]
        self.last = self._functions(setting, own.prefix, n_classes, space.part is not None)
        self.table_bytes = sum(table.nbytes for part in self.parts for table in part.tables)
        self.table_bytes += class_table(setting.name, tree.classes_)[1]
        alone = tree._tree.tail is not None and tail is None
        behind = " (votes answer what they leave open)" if alone else ""
        self.method = f"hyperplanes{behind}" if self.plan is None else f"hyperplanes -> {self.plan.method}"

    def _functions(self, setting: Setting, prefix: str, n: int, prepares: bool) -> str:
        """What users call."""
        name, width, source = setting.name, self.voting.n_scores, "u" if prepares else "x"
        row = f"    float u[{setting.n_features}];\n    {name}_prepare(x, u);\n" if prepares else ""
        room, index, tail = width, "" if width == 1 else ", i", ""
        opened = render(VOTE_OF_TWO if width == 1 else VOTE, setting, prefix, n=n)
        if self.answer is not None:
            voting = self.answer.voting
            room, index = max(width, voting.n_scores), ""
            flag, no_flag = (", 1", ", 0") if self.answer.labels_only else ("", "")
            place = sorted_place(setting, voting, f"{name}_answer(u, s{flag})")
            opened = f"    label = {place};\n"
            declared, make = decision_code(setting, voting)
            statements = _indented(f"{declared}    (void){name}_answer({source}, s{no_flag});\n{make}")
            tail = render(TAIL_DECISION, setting, prefix, source=source, statements=statements)
        label = f"{name}_label({source})"
        result = f"{name}_classes[{label}]" if integer_labels(self.tree.classes_) is not None else label
        code = render(LABEL, setting, prefix, room=room, index=index, open=opened)
        code += render(PREDICT, setting, row=row, says=label_words(name, self.voting), result=result)
        given = {"says": decision_words(self.voting), "room": room, "width": width, "source": source}
        return code + render(DECISION, setting, prefix, **given, row=row, tail=tail)

    def labels(self, rows: Rows) -> IntArray:
        """Class numbers of rows, with the numbers of the tables."""
        found: IntArray = self.chains.labels(rows, None, vote=self.tail is None)
        is_open = np.flatnonzero(found < 0)
        if self.answer is not None and len(is_open):
            assert self.tail is not None
            number = self.answer.engine.labels(Query(rows[is_open], scale=self.scaling is not None))[0]
            order = self.answer.voting.vote_order
            found[is_open] = number if order is None else order[number]
        return found

    def measure(self, X: Any) -> Agreement:
        """Labels against the tree's own."""
        if X is None and self.tree._tree.tail is not None:
            vectors = stand_ins(self.tree._tree.tail.answers.machine)
            rows = vectors if self.scaling is None else vectors * self.scaling.factor + self.scaling.shift
            what = "support vectors of its tail (no rows were given)"
        elif X is None:
            return Agreement("rows", 0)
        else:
            rows, what = X, "rows given"
        rows = single_rows(rows, int(self.tree.n_features_in_))
        own = self.tree._tree.labels(rows, None)
        return Agreement(what, len(rows), float(np.mean(self.labels(rows) == own)))


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())
