"""From rows to a tree: scale, cross-validate, grow, choose the ends, put everything into arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from svelto._progress import Tell, span
from svelto._threads import thread_count
from svelto._typing import FloatArray
from svelto.engines.chains import Chains
from svelto.training._svm_tree.answers import Probability, TreeAnswers, node_facts
from svelto.training._svm_tree.duels import HINGE_ROWS, REST, Duel, GrownDuel, GrowthOptions, grow_duels, list_duels
from svelto.training._svm_tree.growth import Node
from svelto.training._svm_tree.held_out import HELD_OUT_ROWS, NODE_MARGINS, HeldOut, cross_validate
from svelto.training._svm_tree.options import TreeOptions
from svelto.training._svm_tree.placement import ALL_NODES, NO_PLANE, End, Placement, ends_without_tail, place_tail
from svelto.training._svm_tree.probability import learn_odds, learn_tail
from svelto.training._svm_tree.rows import FeatureScale, TrainingRows, feature_scale, held_out_sample
from svelto.training._svm_tree.tail import Tail, check_tail_method, choose_rbf, train_tail


class TrainedTree(NamedTuple):
    """A tree that answers, and how it came about."""

    answers: TreeAnswers
    scale: FeatureScale
    nodes: list[list[Node]]
    ends: list[End]
    grown: list[GrownDuel]
    placement: Placement | None


def train_tree(
    raw: TrainingRows,
    n_classes: int,
    options: TreeOptions,
    stored: bool,
    random_state: Any,
    progress: Tell,
) -> TrainedTree:
    """Train a tree.

    Parameters
    ----------
    raw : TrainingRows
        Different rows, not scaled; labels are class numbers, every one of which occurs.
    n_classes : int
        At least two.
    options : TreeOptions
        How.
    stored : bool
        Whether queries are sparse, and met by their stored features.
    random_state : int, RandomState or None
        Draws folds and samples.
    progress : callable
        Told what is being done, and how much is behind. May raise to stop.

    Returns
    -------
    TrainedTree
    """
    draws = check_random_state(random_state)
    n_threads = thread_count(options.n_jobs)
    scale = feature_scale(raw, options.scale)
    rows = TrainingRows(scale.apply(raw.X), raw.y, raw.weight)
    duels = list_duels(n_classes, options.multi_class)

    has_tail, chosen_tail_at = options.tail is not None, options.tail_at == "auto"
    wants_planes = options.last == "auto" and (not has_tail or chosen_tail_at)
    needs_folds = wants_planes or (has_tail and chosen_tail_at) or options.probability
    hinge = max(len(duel.rows_of(rows.y)) for duel in duels) <= HINGE_ROWS
    growth = GrowthOptions(
        options.greedy,
        options.max_nodes,
        options.min_peeled,
        options.prefer,
        options.allowed_error,
        wants_planes,
        hinge,
    )

    # A round grows all chains and trains a tail: one for each fold, one at the end. A choice takes about as long.
    rounds, chooses = options.n_folds if needs_folds else 0, isinstance(options.tail, str)
    chosen = 0.5 if chooses else 0.0
    last_round = chosen + (1.0 - chosen) * rounds / (rounds + 1)

    estimator = options.tail
    if chooses:
        estimator = choose_rbf(rows, options.n_folds, draws, span(progress, 0.0, chosen), options.n_jobs)

    if has_tail:
        check_tail_method(estimator, rows, options.tail_method, options.tail_options)

    def make_tail(part: TrainingRows) -> Tail:
        return train_tail(estimator, part, n_classes, options.n_jobs)

    held: HeldOut | None = None
    if needs_folds:
        sample, folds = held_out_sample(rows, HELD_OUT_ROWS, options.n_folds, draws)
        tell = span(progress, chosen, last_round)
        held = cross_validate(sample, folds, duels, growth, make_tail if has_tail else None, n_threads, tell)
    placement, ends = _choose_ends(held, duels, n_classes, options)

    def say(done: int, nodes: int, left: int) -> None:
        share = last_round + (1.0 - last_round) * done / (len(duels) + has_tail)
        progress(f"chain {done + 1} of {len(duels)}, node {nodes + 1}, {left:,} rows left", share)

    grown = grow_duels(rows, duels, growth, n_threads, say)
    tail = None
    if has_tail:
        progress("training the tail", last_round + (1.0 - last_round) * len(duels) / (len(duels) + 1))
        tail = train_tail(
            estimator, rows, n_classes, options.n_jobs, options.tail_method, options.tail_options, (raw.X, scale)
        )
    nodes, left = _final_nodes(rows, duels, grown, ends)
    chains = _assemble(raw, scale, duels, nodes, _final_ends(grown, ends), n_classes, stored)
    probability = None
    if options.probability:
        probability = _learn_probability(held, duels, ends)
    answers = TreeAnswers(chains, duels, node_facts(nodes, left), tail, probability, n_classes)
    return TrainedTree(answers, scale, nodes, ends, grown, placement)


def _choose_ends(
    held: HeldOut | None, duels: Sequence[Duel], n_classes: int, options: TreeOptions
) -> tuple[Placement | None, list[End]]:
    if options.tail is None:
        if options.last == "class" or held is None:
            return None, [End(ALL_NODES)] * len(duels)
        return None, ends_without_tail(held, duels)
    if not isinstance(options.tail_at, str):
        return None, [End(int(options.tail_at), open=True)] * len(duels)
    if held is None:  # no row could be held out: nothing is known against the tail
        return None, [End(0, open=True)] * len(duels)
    placement = place_tail(held, duels, n_classes, options.tail_loss)
    return placement, [placement.end] * len(duels)


def _final_nodes(
    rows: TrainingRows, duels: Sequence[Duel], grown: Sequence[GrownDuel], ends: Sequence[End]
) -> tuple[list[list[Node]], list[float]]:
    """Nodes that are kept, with the weight of training rows that each one answers, and that of rows left at the end."""
    chains: list[list[Node]] = []
    left: list[float] = []
    for duel, one, end in zip(duels, grown, ends, strict=True):
        nodes = [node.moved_back(NODE_MARGINS[end.node_margin]) for node in one.chain.nodes[: end.depth]]
        if end.plane != NO_PLANE:
            nodes.append(one.plane_node(end.plane, end.band))
        own = rows.part(duel.rows_of(rows.y))
        open_rows = np.arange(len(own.y))
        for k, node in enumerate(nodes):
            score = own.X[open_rows] @ node.plane
            passed = ~((score < node.low) | (score > node.high))
            nodes[k] = replace(node, removed=float(own.weight[open_rows[~passed]].sum()))
            open_rows = open_rows[passed]
        chains.append(nodes)
        left.append(float(own.weight[open_rows].sum()))
    return chains, left


def _final_ends(grown: Sequence[GrownDuel], ends: Sequence[End]) -> list[int]:
    """0 for the tail; the class that is left; -1 behind a linear SVM that leaves nothing but its own plane."""
    return [
        0 if end.open else one.chain.end if end.plane == NO_PLANE else -1 for one, end in zip(grown, ends, strict=True)
    ]


def _assemble(
    raw: TrainingRows,
    scale: FeatureScale,
    duels: Sequence[Duel],
    nodes: Sequence[Sequence[Node]],
    ends: Sequence[int],
    n_classes: int,
    stored: bool,
) -> Chains:
    flat = [node for chain in nodes for node in chain]
    d = raw.X.shape[1]
    planes = np.array([node.plane / scale.factor for node in flat]).reshape(len(flat), d)
    offset = planes @ scale.shift
    weight_of_class = np.bincount(raw.y, weights=raw.weight, minlength=n_classes)
    centre: FloatArray = np.zeros(d) if stored else np.average(raw.X, axis=0, weights=raw.weight)
    return Chains(
        planes=planes,
        low=np.array([node.low for node in flat]) + offset,
        high=np.array([node.high for node in flat]) + offset,
        chain_start=np.concatenate([[0], np.cumsum([len(chain) for chain in nodes])]).astype(np.int32),
        end=np.array(ends, dtype=np.int32),
        classes_of_chain=np.array([(duel.negative, duel.positive) for duel in duels], dtype=np.int32),
        n_classes=n_classes,
        rule="one_vs_rest" if duels[0].negative == REST else "one_vs_one",
        order=np.argsort(-weight_of_class, kind="stable").astype(np.int32),
        centre=centre,
        stored=stored,
        spread=np.array([node.spread for node in flat]),
    )


def _learn_probability(held: HeldOut | None, duels: Sequence[Duel], ends: Sequence[End]) -> Probability:
    if held is None:
        raise ValueError(
            "probability=True needs rows to hold out, and no class has two different rows. Train with "
            "probability=False, or give more rows."
        )
    right = 1.0
    if held.tail_labels is not None:
        right = float(np.average(held.tail_labels == held.y, weights=held.weight))
    return Probability(learn_odds(held, duels, ends), learn_tail(held), right)
