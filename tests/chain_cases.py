"""Chains of hyperplanes for tests: their definition, made-up ones with rows, and native code asked about everything.

Small integers as data make every product exact, so answers are equal and not only close.
"""

from __future__ import annotations

import itertools

import numpy as np
from scipy import sparse

from svelto import _core
from svelto.engines.chains import CLEAR_MARGIN, Chains

LEVELS = _core.available_levels()
RULES = ("one_vs_one", "one_vs_rest")


def slow_trace(chains, X):
    """The definition, written to be read: outcome, deciding node and its product, each (n_rows, n_chains)."""
    n = len(X)
    outcome = np.tile(chains.end, (n, 1))
    node, score = np.tile(np.diff(chains.chain_start), (n, 1)), np.zeros(outcome.shape)
    for row, chain in itertools.product(range(n), range(len(chains.end))):
        for position, h in enumerate(range(chains.chain_start[chain], chains.chain_start[chain + 1])):
            product = score[row, chain] = X[row] @ chains.planes[h]
            if product < chains.low[h] or product > chains.high[h]:
                outcome[row, chain] = -1 if product < chains.low[h] else 1
                node[row, chain] = position
                break
    return outcome, node, score


def slow_labels(chains, outcome):
    """The class that all its chains vote for; one against the rest: the only one whose chain says +1."""
    labels = []
    for row in outcome:
        voted = [chains.classes_of_chain[c, (o + 1) // 2] if o else -1 for c, o in enumerate(row)]
        if chains.rule == "one_vs_one":
            winners = [k for k in range(chains.n_classes) if voted.count(k) == chains.n_classes - 1]
        else:
            winners = [k for k in voted if k >= 0] if (row != 0).all() else []
        labels.append(winners[0] if len(winners) == 1 else -1)
    return np.array(labels, dtype=np.int32)


def slow_scores(chains, outcome, node, product):
    """Outcome times margin; between pairs of several classes votes, and a squashed sum of margins beside them."""
    two = chains.n_classes == 2 and chains.rule == "one_vs_one"
    scores = np.zeros((len(outcome), 1 if two else chains.n_classes))
    sums = np.zeros(scores.shape)
    for row, chain in itertools.product(range(len(outcome)), range(len(chains.end))):
        first, last = chains.chain_start[chain : chain + 2]
        h, margin = min(first + node[row, chain], last - 1), 0.0
        if first < last:
            to_thresholds = np.abs(product[row, chain] - np.array([chains.low[h], chains.high[h]]))
            margin = to_thresholds.min() / chains.spread[h] if np.isfinite(to_thresholds).any() else 0.0
        signed = outcome[row, chain] * max(margin, np.finfo(float).tiny)
        minus, plus = chains.classes_of_chain[chain]
        if two or chains.rule == "one_vs_rest":
            scores[row, 0 if two else plus] = signed
        else:
            scores[row, plus] += signed > 0
            scores[row, minus] += signed < 0
            sums[row, plus] += np.clip(signed, -CLEAR_MARGIN, CLEAR_MARGIN)
            sums[row, minus] -= np.clip(signed, -CLEAR_MARGIN, CLEAR_MARGIN)
    return scores + sums / (3 * (np.abs(sums) + 1))


def slow_vote(chains, labels, scores):
    """Labels, and where there is none the class of the best score."""
    best = scores.argmax(axis=1)
    if scores.shape[1] == 1 and chains.n_classes == 2:
        best = chains.classes_of_chain[0, (scores[:, 0] > 0).astype(int)]
    return np.where(labels < 0, best, labels).astype(np.int32)


def slow_work(chains, outcome, node):
    """Planes met in the knock-out, or until one against the rest is lost: the game in the words of its rules."""
    lengths = np.diff(chains.chain_start)
    chain_of = {frozenset(map(int, pair)): c for c, pair in enumerate(chains.classes_of_chain)}
    work = []
    for votes, nodes in zip(outcome, node, strict=True):
        met = {}

        def play(a, b, votes=votes, nodes=nodes, met=met):
            chain = chain_of[frozenset((a, b))]
            met[chain] = min(nodes[chain] + 1, lengths[chain])
            return chains.classes_of_chain[chain, (votes[chain] + 1) // 2] if votes[chain] else None

        waiting = [int(k) for k in chains.order]
        if chains.rule == "one_vs_one":
            champion, beaten, gone = waiting.pop(0), [], []
            while waiting and champion is not None:
                other = waiting.pop(0)
                winner = play(champion, other)
                if winner == champion:
                    beaten.append(other)
                elif winner == other:
                    gone += beaten
                    champion, beaten = other, [champion]
                else:
                    gone += [*beaten, champion, other]
                    champion, beaten = waiting.pop(0) if waiting else None, []
            earlier = [] if champion is None else [int(k) for k in chains.order if k in gone]
            if beaten and earlier:  # round from behind the one that the champion has beaten
                first = [k for k in chains.order if k in earlier or k == beaten[0]].index(beaten[0])
                earlier = earlier[first:] + earlier[:first]
            for other in earlier:
                if play(champion, other) != champion:
                    break
        else:
            own = 0
            for k in waiting:
                winner = play(-1, k)
                own += winner == k
                if winner is None or own > 1:
                    break
        work.append(sum(met.values()))
    return np.array(work, dtype=np.int32)


def random_chains(n_classes, rule, d, seed=0, *, n_nodes=3, n=150, sure=0.8):
    """Chains of any length between the means of classes, ends of all kinds, and rows around the means."""
    rng = np.random.default_rng([seed, n_classes, d])
    means = rng.integers(-3, 4, size=(n_classes, d))
    if rule == "one_vs_one":
        pairs = [rng.permutation(pair) for pair in itertools.combinations(range(n_classes), 2)]
        pairs = np.array([pairs[i] for i in rng.permutation(len(pairs))]).reshape(-1, 2)
    else:
        pairs = np.column_stack([np.full(n_classes, -1), rng.permutation(n_classes)])
    planes, low, high, start, end = [], [], [], [0], []
    for a, b in pairs:
        for _ in range(int(rng.integers(0 if rng.random() < 0.1 else 1, n_nodes + 1))):
            away = means[a] if a >= 0 else 0 * means[b]
            planes.append(means[b] - away + rng.integers(-1, 2, size=d) * (rng.random(d) < 0.1))
            middle, reach = planes[-1] @ (means[b] + away) / 2, abs(planes[-1] @ (means[b] - away)) / 2
            half = np.floor(reach * rng.choice([0, 0.5, 1, 1.1]))  # 1: half the rows of a class go on
            sides = rng.random(2) < sure
            low.append(middle - half if sides[0] else -np.inf)
            high.append(middle + half if sides[1] else np.inf)
        start.append(len(planes))
        end.append(int(rng.choice([-1, 0, 1], p=[0.4, 0.2, 0.4])))
    X = means[rng.integers(n_classes, size=n)] + rng.integers(-1, 2, size=(n, d)) * (rng.random((n, d)) < 0.5)
    chains = Chains(
        np.array(planes, dtype=float).reshape(-1, d),
        np.array(low),
        np.array(high),
        np.array(start),
        np.array(end, dtype=int),
        pairs,
        n_classes,
        rule,
        order=rng.permutation(n_classes),
        centre=rng.integers(-2, 3, size=d).astype(float),
        spread=rng.choice([1.0, 4.0, 30.0, 100.0], size=len(planes)),
    )
    return chains, X.astype(np.float64)


def as_parts(X):
    return (X.data, X.indices, X.indptr) if sparse.issparse(X) else (X,)


def ask(chains, X, level=LEVELS[-1], n_threads=1):
    """Labels, work, outcome, node, score, scores of classes and labels with a vote from native code, in one go."""
    stage, n, p = _core.ChainStage(chains.fields(), level), X.shape[0], chains.n_chains
    kind = "csr" if sparse.issparse(X) else "dense"
    labels, again, work = (np.full(n, -7, dtype=np.int32) for _ in range(3))
    trace = [np.full((n, p), -7, dtype=t) for t in (np.int8, np.int32, np.float64)]
    scores = np.full((n, 1 if (chains.n_classes, chains.rule) == (2, "one_vs_one") else chains.n_classes), np.nan)
    voted = np.full(n, -7, dtype=np.int32)
    settled, *no_fault = getattr(stage, "labels_" + kind)(*as_parts(X), labels, False, n_threads)
    assert no_fault == [-1, 0]
    assert settled == (labels >= 0).sum()
    assert getattr(stage, "work_" + kind)(*as_parts(X), again, work, n_threads) == (settled, -1, 0)
    assert getattr(stage, "trace_" + kind)(*as_parts(X), *trace, n_threads) == (0, -1, 0)
    assert getattr(stage, "scores_" + kind)(*as_parts(X), scores, n_threads) == (0, -1, 0)
    assert getattr(stage, "labels_" + kind)(*as_parts(X), voted, True, n_threads) == (n, -1, 0)
    np.testing.assert_array_equal(again, labels)
    return [labels, work, *trace, scores, voted]


def definition(chains, X):
    outcome, node, score = slow_trace(chains, X)
    labels, scores = slow_labels(chains, outcome), slow_scores(chains, outcome, node, score)
    return [labels, slow_work(chains, outcome, node), outcome, node, score, scores, slow_vote(chains, labels, scores)]


def same(got, expected):
    names = ("labels", "work", "outcome", "node", "score", "scores", "voted")[: len(expected)]
    for name, a, b in zip(names, got, expected, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)
