"""The text of a header: the comment that says what it is, macros, tables, code, and the functions users call."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from svelto.export.c_parts import Part, Setting, render
from svelto.export.c_tables import C_TYPES
from svelto.export.c_vote import Voting, class_table, decision_code, integer_labels, sorted_place

HEAD = """
#ifndef ${p}_H
#define ${p}_H

#include <math.h>
#include <stdint.h>

#ifndef $real
#define $real double /* of sums; define it as float where doubles are slow */
#endif

#define ${p}_N_FEATURES $d
#define ${p}_N_OUTPUTS $n_outputs
"""
MATH = """
static inline $real ${p}_$function($real v) {
    return sizeof(v) == sizeof(float) ? ($real)${function}f((float)v) : ($real)$function((double)v);
}
"""
DOT = """
static inline $real ${p}_dot(const float *a, const $type *w, int n) {
    $real sum = 0;
    int k;
    for (k = 0; k < n; ++k) sum += ($real)a[k] * ($real)w[k];
    return sum;
}
"""
WEIGH = """
static inline void ${p}_weigh(const float *u, const float *step, float *t) {
    int k;
    for (k = 0; k < $d; ++k) t[k] = u[k] * step[k];
}
"""
PREDICT = """
/* $says */
static inline int ${p}_predict(const float *x) {
    $real s[$n_scores];
$row    return $result;
}
"""
DECISION = """
/* $says */
static inline void ${p}_decision(const float *x, float *out) {
    $real s[$n_scores];
$locals$row    $call;
$make}
"""
VALUE = """
/* The predicted value. */
static inline float ${p}_value(const float *x) {
    float out;
    ${p}_decision(x, &out);
    return out;
}
"""
LINE = 96


def comment(title: str, facts: Sequence[tuple[str, str]]) -> str:
    """The comment at the top: a title and named facts."""
    width = max(len(name) for name, _ in facts) + 2
    lines = [title, ""]
    for name, text in facts:
        wrapped = textwrap.wrap(text, LINE - width) or [""]
        lines.append(f"{name:<{width}}{wrapped[0]}")
        lines += [" " * width + more for more in wrapped[1:]]
    body = "\n".join(f" * {line}".rstrip() for line in lines)
    return f"/*\n{body.replace('*/', '* /')}\n */\n"


def label_words(name: str, voting: Voting) -> str:
    """What ``p_predict`` returns."""
    if voting.task == "outlier":
        return "+1 for a row inside, -1 for an outlier."
    assert voting.classes is not None
    if integer_labels(voting.classes) is not None:
        return f"The label of the row: one of {name}_classes."
    return f"The class of the row: a place in {name}_classes."


def decision_words(voting: Voting) -> str:
    """What ``p_decision`` writes."""
    if voting.task == "regression":
        return "The predicted values."
    if voting.task == "outlier":
        return "One score, positive inside."
    if voting.n_outputs == 1:
        return "One score, positive towards the second class."
    pairs = voting.rule == "pairs" and voting.shape == "ovo"
    return "A score for each pair of classes." if pairs else "A score for each class."


def functions(setting: Setting, voting: Voting, *, prepares: bool, labels_only: bool) -> str:
    """``p_predict`` and ``p_decision``, or ``p_value``."""
    name, d = setting.name, setting.n_features
    row = f"    float u[{d}];\n    {name}_prepare(x, u);\n" if prepares else ""
    source = "u" if prepares else "x"
    given: dict[str, Any] = {"n_scores": voting.n_scores, "row": row}
    code = ""
    if voting.task != "regression":
        call = f"{name}_answer({source}, s{', 1' if labels_only else ''})"
        place = sorted_place(setting, voting, call)
        if voting.task == "outlier":
            result = f"{call} ? 1 : -1"
        else:
            assert voting.classes is not None
            result = f"{name}_classes[{place}]" if integer_labels(voting.classes) is not None else place
        code = render(PREDICT, setting, **given, says=label_words(name, voting), result=result)
    locals_, make = decision_code(setting, voting)
    call = f"{name}_answer({source}, s{', 0' if labels_only else ''})"
    call = call if voting.task == "regression" else f"(void){call}"
    code += render(DECISION, setting, **given, says=decision_words(voting), locals=locals_, call=call, make=make)
    if voting.task == "regression" and voting.n_outputs == 1:
        code += render(VALUE, setting)
    return code


def class_lines(name: str, classes: np.ndarray[Any, Any] | None) -> str:
    """The table of classes and their number."""
    if classes is None:
        return ""
    return f"#define {name}_N_CLASSES {len(classes)}\n{class_table(name, classes)[0]}"


def helpers(setting: Setting, code: str) -> str:
    """Small functions that the code asks for."""
    found = ""
    for function in ("exp", "sqrt", "tanh"):
        if f"{setting.name}_{function}(" in code:
            found += render(MATH, setting, function=function)
    if f"{setting.name}_dot(" in code:
        found += render(DOT, setting, type=C_TYPES[setting.dtype])
    if f"{setting.name}_weigh(" in code:
        found += render(WEIGH, setting)
    return found


def header(setting: Setting, top: str, n_outputs: int, classes: Any, parts: Iterable[Part], last: str) -> str:
    """The whole file."""
    parts = list(parts)
    code = "\n".join(part.code for part in parts if part.code) + "\n" + last
    tables = "".join(table.text() for part in parts for table in part.tables)
    pieces = [
        top,
        render(HEAD, setting, n_outputs=n_outputs) + class_lines(setting.name, classes),
        tables,
        helpers(setting, code) + code,
        f"#endif /* {setting.name}_H */\n",
    ]
    return "\n".join(pieces)
