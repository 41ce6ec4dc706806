"""From scores to an answer in C: the machine's vote, the test that settles a row, and scikit-learn's decision values.

Classes are numbered as the machine votes; ``p_classes`` is sorted, and ``p_order`` leads from the one to the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from svelto._typing import IntArray
from svelto.engines.packing import breaks_ties
from svelto.export.c_parts import Part, Setting, render
from svelto.export.c_tables import Table, whole
from svelto.machine import KernelMachine

SIGN_VOTE = """
/* The winner, numbered as the machine votes. */
static inline int ${p}_vote(const $real *s) { return s[0] > 0 ? $positive : $negative; }
"""
ARGMAX_VOTE = """
/* The winner, numbered as the machine votes: the largest score, the first of equals. */
static inline int ${p}_vote(const $real *s) {
    int i, best = 0;
    for (i = 1; i < $n_classes; ++i)
        if (s[i] > s[best]) best = i;
    return best;
}
"""
PAIR_VOTE = """
/* The winner, numbered as the machine votes: every pair has a vote, the first of equals wins. */
static inline int ${p}_vote(const $real *s) {
    int votes[$n_classes] = {0}, i, j, best = 0;
    for (i = 0; i < $n_classes; ++i)
        for (j = i + 1; j < $n_classes; ++j) ++votes[*s++ > 0 ? i : j];
    for (i = 1; i < $n_classes; ++i)
        if (votes[i] > votes[best]) best = i;
    return best;
}
"""
OVR = """
/* Votes, and a squashed sum of scores that decides between equal votes: scikit-learn's "ovr". */
static inline void ${p}_ovr(const $real *s, $real *out) {
    $real sum[$n_classes] = {0};
    int i, j;
    for (i = 0; i < $n_classes; ++i) out[i] = 0;
    for (i = 0; i < $n_classes; ++i)
        for (j = i + 1; j < $n_classes; ++j, ++s) {
            sum[i] += *s;
            sum[j] -= *s;
            out[*s < 0 ? j : i] += 1;
        }
    for (i = 0; i < $n_classes; ++i) out[i] += sum[i] / (3 * ((sum[i] < 0 ? -sum[i] : sum[i]) + 1));
}
"""
BROKEN_TIES = """
/* The winner, numbered as the machine votes: the largest of the "ovr" values. */
static inline int ${p}_vote(const $real *s) {
    $real value[$n_classes];
    int i, best = 0;
    ${p}_ovr(s, value);
    for (i = 1; i < $n_classes; ++i)
        if (value[i] > value[best]) best = i;
    return best;
}
"""
SETTLE_HEAD = "/* The winner where no error of `caution` times e can change it, else -1. */\n"
SIGN_SETTLE = """
static inline int ${p}_settle(const $real *s, const $real *e, $real caution) {
    return s[0] > caution * e[0] || -s[0] > caution * e[0] ? ${p}_vote(s) : -1;
}
"""
ARGMAX_SETTLE = """
static inline int ${p}_settle(const $real *s, const $real *e, $real caution) {
    const int best = ${p}_vote(s);
    int i;
    for (i = 0; i < $n_classes; ++i)
        if (i != best && !(s[best] - s[i] > caution * (e[best] + e[i]))) return -1;
    return best;
}
"""
PAIR_SETTLE = """
static inline int ${p}_settle(const $real *s, const $real *e, $real caution) {
    int sure[$n_classes] = {0}, possible[$n_classes] = {0}, i, j, best = 0;
    for (i = 0; i < $n_classes; ++i)
        for (j = i + 1; j < $n_classes; ++j, ++s, ++e) {
            const int wins = *s > caution * *e, loses = -*s > caution * *e;
            sure[i] += wins;
            sure[j] += loses;
            possible[i] += !loses;
            possible[j] += !wins;
        }
    for (i = 1; i < $n_classes; ++i)
        if (sure[i] > sure[best]) best = i;
    for (i = 0; i < $n_classes; ++i)
        if (i != best && sure[best] < possible[i] + $tie) return -1;
    return best;
}
"""
VALUE_SETTLE = """
/* Whether no value's error scale, times `caution`, exceeds the tolerance. */
static inline int ${p}_settle(const $real *s, const $real *e, $real caution) {
    int j;
    (void)s;
    for (j = 0; j < $n_scores; ++j)
        if (!(caution * e[j] <= ($real)$tolerance)) return -1;
    return 0;
}
"""
BY_CLASS = """
/* The class of the largest score; -1 where the next is not farther below it than `margin`. */
static inline int ${p}_best(const $real *s, $real margin) {
    int i, best = 0;
    for (i = 1; i < $n_classes; ++i)
        if (s[i] > s[best]) best = i;
    for (i = 0; i < $n_classes; ++i)
        if (i != best && !(s[best] - s[i] > margin)) return -1;
    return best;
}
"""
PAIR_COLUMNS = """
    for (i = 0; i < $n_classes; ++i)
        for (j = i + 1; j < $n_classes; ++j, ++k) {
            const int a = $order_i, b = $order_j, low = a < b ? a : b, high = a < b ? b : a;
            out[low * (2 * $n_classes - low - 1) / 2 + high - low - 1] = (float)(a < b ? s[k] : -s[k]);
        }
"""
LARGEST_INT: Final = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Voting:
    """What scores mean: the fields of a `KernelMachine` of the same names; `ties` says that scores break ties."""

    task: str
    rule: str
    n_scores: int
    n_classes: int = 0
    classes: np.ndarray[Any, Any] | None = None
    vote_order: IntArray | None = None
    shape: str = "ovr"
    ties: bool = False

    @classmethod
    def of(cls, machine: KernelMachine, *, by_class: bool = False) -> Voting:
        """A machine's own; `by_class`: of one score a class, the largest wins."""
        return cls(
            machine.task,
            "argmax" if by_class else machine.rule,
            machine.n_classes if by_class else machine.n_scores,
            machine.n_classes,
            machine.classes,
            machine.vote_order,
            machine.decision_function_shape,
            breaks_ties(machine) and not by_class,
        )

    @property
    def is_sorted(self) -> bool:
        """Whether classes vote in the order of ``p_classes``."""
        return self.vote_order is None or bool((np.diff(self.vote_order) > 0).all())

    @property
    def n_outputs(self) -> int:
        """Numbers that ``p_decision`` writes."""
        ovr = self.rule == "pairs" and self.n_classes > 2 and self.shape == "ovr"
        return self.n_classes if ovr else self.n_scores


def integer_labels(classes: Any) -> list[int] | None:
    """Labels as whole numbers that fit an int; None where they are not."""
    kind = classes.dtype.kind
    if kind not in "iubf" or (kind == "f" and bool((classes != np.rint(classes)).any())):
        return None
    numbers = [int(v) for v in classes.tolist()]
    return numbers if max(map(abs, numbers)) <= LARGEST_INT else None


def class_table(name: str, classes: Any) -> tuple[str, int]:
    """``p_classes`` as C text, and its bytes (names count with a pointer of four)."""
    numbers = integer_labels(classes)
    if numbers is not None:
        return f"static const int {name}_classes[{len(numbers)}] = {{{', '.join(map(str, numbers))}}};\n", 4 * len(
            numbers
        )
    if classes.dtype.kind == "f":
        texts = [repr(float(v)) for v in classes.tolist()]
        return f"static const double {name}_classes[{len(texts)}] = {{{', '.join(texts)}}};\n", 8 * len(texts)
    labels = [str(v).encode() for v in classes.tolist()]
    texts = [_c_string(label) for label in labels]
    size = sum(len(label) + 5 for label in labels)
    return f"static const char *const {name}_classes[{len(texts)}] = {{{', '.join(texts)}}};\n", size


def _c_string(label: bytes) -> str:
    """A C string; bytes beyond plain ASCII as octal, which no following digit can continue."""
    plain = {*range(0x20, 0x7F)} - {ord('"'), ord("\\"), ord("?")}
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in label) + '"'


def vote_part(setting: Setting, voting: Voting, *, settles: bool, by_class: bool, tolerance: float | None) -> Part:
    """Vote, and the tests that settle a row."""
    name, n_classes = setting.name, voting.n_classes
    tables: list[Table] = []
    if not voting.is_sorted:
        comment = "place of each voting class among the sorted ones"
        tables.append(whole(f"{name}_order", voting.vote_order, comment, signed=False))
    given: dict[str, Any] = {"n_classes": n_classes, "n_scores": voting.n_scores}
    if voting.task == "regression":
        limit = 1e30 if tolerance is None else float(tolerance)
        return Part(name, tables, render(VALUE_SETTLE, setting, **given, tolerance=repr(limit)) if settles else "")
    if voting.task == "outlier" or (voting.rule == "pairs" and n_classes == 2):
        inside = voting.task == "outlier"
        code, settle = render(SIGN_VOTE, setting, positive=int(inside), negative=int(not inside)), SIGN_SETTLE
    elif voting.rule == "argmax":
        code, settle = render(ARGMAX_VOTE, setting, **given), ARGMAX_SETTLE
    else:
        code = render(OVR, setting, **given) if voting.ties or voting.shape == "ovr" else ""
        code += render(BROKEN_TIES if voting.ties else PAIR_VOTE, setting, **given)
        settle, given["tie"] = PAIR_SETTLE, "1" if voting.ties else "(i < best)"
    if settles:
        code += SETTLE_HEAD + render(settle, setting, **given)
    if by_class:
        code += render(BY_CLASS, setting, **given)
    return Part(name, tables, code)


def sorted_place(setting: Setting, voting: Voting, index: str) -> str:
    """C expression for the place of a voting class among the sorted ones."""
    return index if voting.is_sorted else f"{setting.name}_order[{index}]"


def decision_code(setting: Setting, voting: Voting) -> tuple[str, str]:
    """Declarations, and statements that make ``out`` of the scores ``s``, in the columns of `decision_function`."""
    real, n = setting.real, voting.n_classes
    if voting.task != "classification":
        return "    int i;\n", f"    for (i = 0; i < {voting.n_scores}; ++i) out[i] = (float)s[i];\n"
    place = sorted_place(setting, voting, "i")
    if voting.rule == "argmax":
        return "    int i;\n", f"    for (i = 0; i < {n}; ++i) out[{place}] = (float)s[i];\n"
    if n == 2:
        assert voting.vote_order is not None
        return "", f"    out[0] = (float){'' if voting.vote_order[0] == 1 else '-'}s[0];\n"
    if voting.shape == "ovr":
        values = f"    {setting.name}_ovr(s, value);\n"
        copy = f"    for (i = 0; i < {n}; ++i) out[{place}] = (float)value[i];\n"
        return f"    {real} value[{n}];\n    int i;\n", values + copy
    places = {"order_i": place, "order_j": sorted_place(setting, voting, "j")}
    return "    int i, j, k = 0;\n", render(PAIR_COLUMNS, setting, n_classes=n, **places)
