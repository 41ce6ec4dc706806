"""The last threshold that settles a row, found by bisection, against trying every one."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from svelto import _core
from svelto.engines.packing import RULE_CODES

RUNGS = np.concatenate([[0.0], np.geomspace(0.01, 100.0, 23)])


def scores_and_errors(rule, n_classes, n_rows=700, seed=0):
    """Some rows have ties, some errors are infinite or zero."""
    rng = np.random.default_rng(seed)
    n_scores = n_classes if rule == "argmax" else n_classes * (n_classes - 1) // 2
    scores = np.round(rng.normal(size=(n_rows, n_scores)) * 4) / 4
    errors = rng.exponential(size=(n_rows, n_scores))
    errors[::11, 0] = np.inf
    errors[::13] = 0.0
    return scores, errors


def settled_at(scores, errors, rung, *vote):
    out = np.empty(len(scores), dtype=np.int32)
    with np.errstate(invalid="ignore"):
        _core.settle(scores, rung * errors, *vote, out)
    return out >= 0


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("break_ties", [False, True])
@pytest.mark.parametrize(("rule", "n_classes"), [("pairs", 2), ("pairs", 3), ("pairs", 7), ("argmax", 4)])
def test_last_rungs(rule, n_classes, break_ties, threads):
    scores, errors = scores_and_errors(rule, n_classes)
    vote = RULE_CODES[rule], n_classes, break_ties
    settled = np.array([settled_at(scores, errors, rung, *vote) for rung in RUNGS[1:]])
    assert_array_equal(settled, np.logical_and.accumulate(settled))  # once open, open for every larger threshold
    last = np.empty(len(scores), dtype=np.int32)
    _core.last_rungs(scores, errors, RUNGS, *vote, threads, last)
    assert_array_equal(last, settled.sum(axis=0))
    assert len(set(last.tolist())) > 5


def test_shapes_must_agree():
    scores, errors = scores_and_errors("pairs", 3)
    vote = RULE_CODES["pairs"], 3, False, 1
    last = np.empty(len(scores), dtype=np.int32)
    with pytest.raises(ValueError, match="disagree in shape"):
        _core.last_rungs(scores, errors[1:], RUNGS, *vote, last)
    with pytest.raises(ValueError, match="no rungs"):
        _core.last_rungs(scores, errors, RUNGS[:0], *vote, last)
    with pytest.raises(ValueError, match="scores and classes disagree"):
        _core.last_rungs(scores, errors, RUNGS, RULE_CODES["pairs"], 4, False, 1, last)
