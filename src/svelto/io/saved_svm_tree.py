"""A fitted SVMTreeClassifier in a svelto file: its chains, what is known of their nodes, and the predictor of its tail.

The tail's scikit-learn estimator is not kept: `tail_` of a loaded tree is the predictor that answers for it. A tail
that is no kernel machine answers for itself, and cannot be saved.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from svelto.engines.chains import CHAIN_RULES, Chains
from svelto.io.parts import In, Out
from svelto.io.plain import ADVICE, labels_from_plain, labels_to_plain
from svelto.io.saved_machine import read_calibrator, write_calibrator
from svelto.io.saved_parameters import read_parameters, write_parameters
from svelto.io.saved_predictor import read_predictor, write_predictor
from svelto.predictor import Predictor
from svelto.training._svm_tree.answers import NodeFacts, Probability, TreeAnswers
from svelto.training._svm_tree.duels import list_duels
from svelto.training._svm_tree.options import checked_options
from svelto.training._svm_tree.probability import N_KINDS, PLANE, DecisionOdds, TailOdds
from svelto.training._svm_tree.rows import FeatureScale
from svelto.training._svm_tree.table import TreeNode
from svelto.training._svm_tree.tail import Tail
from svelto.training.svm_tree import SVMTreeClassifier

CV_FACTS: Final = ("cv_accuracy_", "cv_tail_accuracy_", "cv_open_share_")
CHAIN_FLOATS: Final = ("low", "high", "spread")
SOLVERS: Final = ("h", "c", "l")
REASONS: Final = ("one class", "stuck", "min_peeled", "max_nodes")


def write_svm_tree(out: Out, tree: SVMTreeClassifier) -> None:
    """All of a fitted tree."""
    write_parameters(out, tree)
    checked_options(tree)
    answers = tree._tree
    _check_tail(answers.tail)
    out.set_json("classes", labels_to_plain(tree.classes_))
    _write_chains(out.part("chains"), answers.chains)
    for name, values, dtype in zip(NodeFacts._fields, answers.facts, ("<f8", "<i4", "<f8"), strict=True):
        out.put(f"facts_{name}", values, dtype)
    out.put("scale_shift", tree.scale_shift_, "<f8")
    out.put("scale_factor", tree.scale_factor_, "<f8")
    out.put("n_grown", tree.n_grown_, "<i8")
    out.set(ended=list(tree.ended_), cv={name: float(getattr(tree, name)) for name in CV_FACTS if hasattr(tree, name)})
    _write_nodes(out, tree)
    if answers.tail is not None:
        part = out.part("tail")
        write_predictor(part.part("answers"), answers.tail.answers)
        if answers.tail.scale is not None:
            part.put("shift", answers.tail.scale.shift, "<f8")
            part.put("factor", answers.tail.scale.factor, "<f8")
    if answers.probability is not None:
        _write_probability(out.part("probability"), answers.probability)


def _check_tail(tail: Tail | None) -> None:
    if tail is not None and not isinstance(tail.answers, Predictor):
        raise NotImplementedError(
            f"The tail is a {type(tail.estimator).__name__}, which is no kernel machine that svelto reads. {ADVICE}"
        )


def _write_chains(out: Out, chains: Chains) -> None:
    out.set(rule=chains.rule, stored=bool(chains.stored))
    for name in ("planes", "centre", *CHAIN_FLOATS):
        out.put(name, getattr(chains, name), "<f8")
    for name in ("chain_start", "end", "classes_of_chain", "order"):
        out.put(name, getattr(chains, name), "<i4")


def _write_nodes(out: Out, tree: SVMTreeClassifier) -> None:
    """The table of nodes; classes by their numbers."""
    numbers = {label: number for number, label in enumerate(tree.classes_.tolist())}
    hard = [None if node.hard_class is None else np.asarray(node.hard_class).item() for node in tree.nodes_]
    out.set(solvers=[str(node.solver) for node in tree.nodes_])
    out.put("node_hard", [-1 if label is None else numbers[label] for label in hard], "<i4")
    out.put("node_sign", [node.sign for node in tree.nodes_], "<i4")
    out.put("node_perpendicular", [node.perpendicular for node in tree.nodes_], "|u1")
    out.put("node_settled", [node.settled for node in tree.nodes_], "<f8")


def _write_probability(out: Out, known: Probability) -> None:
    out.set(right=float(known.right))
    out.put("odds", known.odds.coef, "<f8")
    if known.tail is not None:
        part = out.part("tail")
        part.set(doubt=float(known.tail.doubt))
        write_calibrator(part, known.tail.learned)


def read_svm_tree(part: In, n_jobs: int | None) -> SVMTreeClassifier:
    """The same tree."""
    tree: SVMTreeClassifier = read_parameters(part, SVMTreeClassifier, n_jobs)
    checked_options(tree)
    tree.classes_ = labels_from_plain(part.json("classes"))
    n_classes, d = len(tree.classes_), tree.n_features_in_
    if n_classes < 2:
        part.fail(f"there are {n_classes} classes")
    chains = _read_chains(part.part("chains"), n_classes, d)
    n_nodes, n_chains = chains.n_nodes, chains.n_chains
    facts = NodeFacts(
        part.floats("facts_settled", (n_nodes,), always=True),
        part.whole("facts_kind", (n_nodes,), 0, PLANE).astype(np.intp),
        part.floats("facts_left", (n_chains,), always=True),
    )
    duels = list_duels(n_classes, "ovr" if chains.rule == "one_vs_rest" else "ovo")
    if [list(duel) for duel in duels] != chains.classes_of_chain.tolist():
        part.fail("the chains stand in another order than the pairs of classes")
    tail = _read_tail(part.part("tail"), n_classes, d) if "tail" in part else None
    probability = _read_probability(part.part("probability")) if "probability" in part else None
    if tail is None and (chains.end == 0).any():
        part.fail("a chain ends open, and there is no tail")
    tree._tree = TreeAnswers(chains, duels, facts, tail, probability, n_classes)
    tree.scale_shift_ = part.floats("scale_shift", (d,), always=True)
    tree.scale_factor_ = part.floats("scale_factor", (d,), always=True)
    tree.tail_ = None if tail is None else tail.estimator
    tree.n_nodes_, tree.depths_ = n_nodes, np.diff(chains.chain_start).astype(np.int64)
    tree.n_grown_ = part.whole("n_grown", (n_chains,), 0, 2**62, dtype="<i8")
    tree.ended_ = part.plain("ended")
    if not isinstance(tree.ended_, list) or len(tree.ended_) != n_chains or not set(tree.ended_) <= set(REASONS):
        part.fail("the reasons why chains ended are not one for each chain")
    cv = part.plain("cv")
    if not isinstance(cv, dict) or not cv.keys() <= set(CV_FACTS) or not all(type(v) is float for v in cv.values()):
        part.fail("the results of cross-validation are no numbers")
    tree.__dict__.update(cv)
    tree.nodes_ = _read_nodes(part, tree)
    assert chains.native is not None  # made now: native code has checks of its own
    return tree


def _read_chains(part: In, n_classes: int, d: int) -> Chains:
    """Chains check themselves: thresholds, starts, ends, classes."""
    planes = part.floats("planes", (None, d), always=True)
    floats = {name: part.numbers(name, (len(planes),)) for name in CHAIN_FLOATS}
    return Chains(
        planes=planes,
        chain_start=part.array("chain_start", "<i4", (None,)),
        end=part.array("end", "<i4", (None,)),
        classes_of_chain=part.array("classes_of_chain", "<i4", (None, 2)),
        n_classes=n_classes,
        rule=part.choice("rule", tuple(CHAIN_RULES)),
        order=part.array("order", "<i4", (n_classes,)),
        centre=part.floats("centre", (d,), always=True),
        stored=part.flag("stored"),
        **floats,
    )


def _read_tail(part: In, n_classes: int, d: int) -> Tail:
    answers = read_predictor(part.part("answers"), None)
    machine = answers.machine
    scale = None
    if part.has_array("shift"):
        scale = FeatureScale(part.floats("shift", (d,), always=True), part.floats("factor", (d,), always=True))
    classes = machine.classes
    if machine.n_features != d or classes is None or len(classes) > n_classes:
        part.fail("the tail is for other rows or classes")
    assert classes is not None
    numbers = classes.dtype.kind in "iu" and (classes >= 0).all() and (classes < n_classes).all()
    if not numbers:
        part.fail("the tail does not answer with numbers of classes")
    return Tail(answers, answers, scale, n_classes)


def _read_probability(part: In) -> Probability:
    odds = DecisionOdds(part.floats("odds", (N_KINDS, 3), always=True))
    tail = None
    if "tail" in part:
        below = part.part("tail")
        tail = TailOdds(read_calibrator(below, ("sigmoid", "temperature")), below.finite("doubt"))
    return Probability(odds, tail, part.finite("right"))


def _read_nodes(part: In, tree: SVMTreeClassifier) -> list[TreeNode]:
    n_nodes, n_classes = tree.n_nodes_, len(tree.classes_)
    solvers: Any = part.plain("solvers")
    if not isinstance(solvers, list) or len(solvers) != n_nodes or not set(solvers) <= set(SOLVERS):
        part.fail("the solvers of the nodes are not one for each")
    hard = part.whole("node_hard", (n_nodes,), -1, n_classes - 1).tolist()
    sign = part.whole("node_sign", (n_nodes,), -1, 1).tolist()
    across = part.whole("node_perpendicular", (n_nodes,), 0, 1, dtype="|u1").tolist()
    settled = part.floats("node_settled", (n_nodes,), always=True).tolist()
    chain = np.repeat(np.arange(len(tree.depths_)), tree.depths_).tolist()
    position = np.concatenate([np.arange(depth) for depth in tree.depths_]).tolist()
    return [
        TreeNode(c, p, solver, None if h < 0 else tree.classes_[h], s, bool(a), w)
        for c, p, solver, h, s, a, w in zip(chain, position, solvers, hard, sign, across, settled, strict=True)
    ]
