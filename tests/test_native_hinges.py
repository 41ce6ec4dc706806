"""Hinging hyperplanes: native code against the definition."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace

import numpy as np
import pytest
from scipy import sparse

from hinge_cases import (
    LEVELS,
    Layer,
    ask,
    ask_cautions,
    blurred,
    call,
    fields_of,
    random_net,
    same,
    slow_labels,
    slow_scores,
)
from svelto import _core
from svelto.engines.arrays import aligned_zeros

# Every rule with few and many scores; around the lanes, the tiles of rows and columns, and beyond them.
SHAPES = [
    ("sign", 1),
    ("value", 1),
    ("pairs", 1),
    ("pairs", 3),
    ("pairs", 36),
    ("argmax", 2),
    ("argmax", 7),
    ("distilled", 2),
    ("distilled", 17),
    ("distilled", 40),
]
DEPTHS = [(0,), (1,), (7,), (15,), (16,), (31,), (47,), (100,), (200,), (3, 2), (16, 16), (40, 65), (5, 0)]


@pytest.mark.parametrize(("rule", "n_scores"), SHAPES)
@pytest.mark.parametrize("n_hinges", DEPTHS)
@pytest.mark.parametrize("d", [1, 6, 22])
def test_answers_match_the_definition(rule, n_scores, n_hinges, d):
    net, X = random_net(rule, n_scores, d, n_hinges)
    scores = slow_scores(net, X)
    expected = slow_labels(net, scores, 1.0), scores
    for level in LEVELS:
        same(ask(net, X, level), expected)
        same(ask(net, sparse.csr_matrix(X), level), expected)


@pytest.mark.parametrize(("rule", "n_scores"), [("sign", 1), ("distilled", 5)])
@pytest.mark.parametrize("d", [2, 3, 7, 8, 9, 15, 16, 17, 64, 123, 300])
def test_rows_may_arrive_in_any_form(rule, n_scores, d):
    net, X = random_net(rule, n_scores, d, (33,))
    scores = slow_scores(net, X)
    expected = slow_labels(net, scores, 1.0), scores
    assert 0.05 < (expected[0] < 0).mean() < 0.95
    read_only = X.copy()
    read_only.setflags(write=False)
    wide = np.full((len(X), d + 5), np.nan)
    wide[:, 2 : d + 2] = X
    arrivals = [X.astype(np.float32), np.asfortranarray(X), read_only, X[::-1][::-1], wide[:, 2 : d + 2]]
    stored, empty = sparse.csr_matrix(X), sparse.csr_matrix(np.zeros_like(X))
    long = sparse.csr_matrix(X)
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    for level, rows in itertools.product(LEVELS, (*arrivals, stored, stored.astype(np.float32), long)):
        same(ask(net, rows, level), expected)
    same(ask(net, empty), ask(net, np.zeros_like(X)))
    # Zeros that are stored are still zeros.
    full = sparse.csr_matrix((X.ravel(), np.tile(np.arange(d), len(X)), np.arange(0, X.size + 1, d)), shape=X.shape)
    same(ask(net, full), expected)


@pytest.mark.parametrize(("rule", "n_scores"), [("sign", 1), ("pairs", 3), ("distilled", 20)])
@pytest.mark.parametrize("n_hinges", [(10,), (50,), (130,), (20, 35)])
@pytest.mark.parametrize("d", [5, 22, 123])
def test_answers_do_not_depend_on_threads_or_batch(rule, n_scores, n_hinges, d):
    """Numbers that round: the bits are the same all the same, on every level, stored or with their zeros."""
    net, X = blurred(*random_net(rule, n_scores, d, n_hinges, n=700))
    exact = slow_scores(net, X)
    for level in LEVELS:
        expected = ask(net, X, level)
        np.testing.assert_allclose(expected[1], exact, rtol=0, atol=2e-5 * np.abs(exact).max())
        np.testing.assert_array_equal(expected[0], slow_labels(net, expected[1], 1.0))
        for n_threads in (2, 5):
            same(ask(net, X, level, n_threads=n_threads), expected)
        same(ask(net, sparse.csr_matrix(X), level, n_threads=2), expected)
        for n in (1, 2, 3, 5, 7, 8, 9, 13, 63, 64, 65, 129):
            same(ask(net, X[:n], level), [a[:n] for a in expected])
            same(ask(net, X[-n:], level), [a[-n:] for a in expected])


def test_a_shift_keeps_the_digits_of_rows_far_from_zero():
    net, X = random_net("distilled", 4, 20, (30,))
    expected = ask(net, X)
    far = 2.0**28 * np.arange(1, 21)
    moved = replace(net, shift=far)
    for level in LEVELS:
        same(ask(moved, X + far, level), expected)
        same(ask(moved, sparse.csr_matrix(X + far), level), expected)
        same(ask(moved, np.asfortranarray(X + far), level), expected)


@pytest.mark.parametrize("form", ["divide", "multiply"])
def test_rows_are_scaled_as_the_machine_scales_them(form):
    net, X = random_net("sign", 1, 20, (30,))
    expected = slow_scores(net, np.clip(X, -2, 2))
    shift, factor = np.arange(20.0), 2.0 ** np.arange(-10, 10)
    raw = X * factor + shift if form == "divide" else (X - shift) / factor
    scaling = {"scaling_form": 1 if form == "divide" else 2, "scaling_shift": shift, "scaling_factor": factor}
    stage = _core.HingeStage({**fields_of(net), **scaling, "scaling_low": -2.0, "scaling_high": 2.0}, LEVELS[-1])
    scores, errors = np.empty((2, len(X), 1))
    call((stage, "scores"), raw, scores, errors, scale=True)
    np.testing.assert_array_equal(scores, expected)
    call((stage, "scores"), X, scores, errors, scale=False)
    np.testing.assert_array_equal(scores, slow_scores(net, X))


@pytest.mark.parametrize("break_ties", [False, True])
@pytest.mark.parametrize("n_classes", [3, 4, 5, 6, 7, 9, 26])
def test_votes_are_those_of_the_machine(n_classes, break_ties):
    net, X = random_net("pairs", n_classes * (n_classes - 1) // 2, 5, (12,), n=400)
    scores = slow_scores(net, X)
    stage = _core.HingeStage(fields_of(net, break_ties), LEVELS[-1])
    found = set()
    for caution in (0.0, 0.1, 0.5, 2.0):
        labels, expected = np.empty((2, len(X)), dtype=np.int32)
        _core.settle(scores, caution * np.tile(net.error, (len(X), 1)), 0, n_classes, break_ties, expected)
        call((stage, "labels"), X, labels, caution)
        np.testing.assert_array_equal(labels, expected)
        found |= set(labels)
    assert len(found) > min(n_classes, 4)  # several classes, and rows that stay open


@pytest.mark.parametrize(("rule", "n_scores"), [("sign", 1), ("pairs", 1), ("argmax", 4), ("distilled", 4)])
def test_cautions_say_where_labels_end(rule, n_scores):
    """A label is given at a caution exactly where the caution is below that number: no rounding between them."""
    net, X = blurred(*random_net(rule, n_scores, 9, (20,), n=300))
    X[:3] = 0.0
    for level in LEVELS:
        labels, cautions = ask_cautions(net, X, level)
        scores = ask(net, X, level)[1]
        assert (labels >= 0).all()
        if rule in ("sign", "pairs"):
            quotient = np.abs(scores[:, 0]) / net.error[0]
        else:
            order = np.sort(scores, axis=1)
            quotient = (order[:, -1] - order[:, -2]) / net.error[0]
        if rule != "argmax":
            np.testing.assert_allclose(cautions, quotient, rtol=1e-15)
        for threshold in (0.0, *cautions[:40], *np.nextafter(cautions[:40], 0), np.inf):
            np.testing.assert_array_equal(
                ask(net, X, level, caution=threshold)[0], np.where(cautions > threshold, labels, -1)
            )
        same(ask_cautions(net, sparse.csr_matrix(X), level, n_threads=2), (labels, cautions))


@pytest.mark.parametrize(("rule", "n_scores"), [("sign", 1), ("pairs", 1), ("argmax", 3), ("distilled", 3)])
@pytest.mark.parametrize("error", [0.0, 1.0])
def test_equal_scores_are_never_settled(rule, n_scores, error):
    """Caution zero settles the rest, an infinite one nothing."""
    net, X = random_net(rule, n_scores, 2, (3,))
    zero = Layer(*(np.zeros_like(getattr(net.layers[0], part.name)) for part in fields(Layer)))
    to_scores = np.zeros((2, n_scores))
    to_scores[0, 0] = 1.0
    net = replace(
        net,
        layers=(replace(zero, to_scores=to_scores),),
        intercept=np.zeros(n_scores),
        error=np.full(n_scores, error),
    )
    X = np.array([[0.0, 1.0], [1.0, 1.0], [-1.0, 1.0]])
    winner = {"sign": [1, 0], "pairs": [0, 1], "argmax": [0, -1], "distilled": [0, -1]}[rule]
    for level in LEVELS:
        assert ask(net, X, level, caution=0.0)[0].tolist() == [-1, *winner]
        assert ask(net, X, level, caution=np.inf)[0].tolist() == [-1] * 3
        labels, cautions = ask_cautions(net, X, level)
        assert labels.tolist() == [-1, *winner]
        ends = 1.0 / (2.0 * error if rule == "argmax" else error) if error else np.inf
        assert cautions.tolist() == [0.0, ends, ends if winner[1] >= 0 else 0.0]


@pytest.mark.parametrize(("rule", "n_scores"), [("sign", 1), ("argmax", 3), ("distilled", 3)])
@pytest.mark.parametrize("n_hinges", [(3,), (16,), (4, 4)])
def test_numbers_beyond_float32_decide_nothing(rule, n_scores, n_hinges):
    net, X = random_net(rule, n_scores, 5, n_hinges, n=20)
    X[3, 2], X[7, 0], X[8, :2] = 1e300, -1e300, (1e300, -1e300)
    bad = np.isin(np.arange(20), [3, 7, 8])
    for level, rows in itertools.product(LEVELS, (X, sparse.csr_matrix(X))):
        labels, scores = ask(net, rows, level, caution=0.0)
        np.testing.assert_array_equal(np.isnan(scores).any(axis=1), bad)
        assert (labels[bad] == -1).all()
        labels, cautions = ask_cautions(net, rows, level)
        assert (labels[bad] == -1).all()
        assert (cautions[bad] == 0).all()


@pytest.mark.parametrize(("rule", "n_scores"), [("sign", 1), ("distilled", 3)])
def test_a_hinge_that_is_no_number_is_not_taken_for_zero(rule, n_scores):
    """The linear part alone would decide these rows; 3e38 * 2 is beyond float32."""
    net, _ = random_net(rule, n_scores, 2, (1,))
    layer = Layer(np.array([[3e38], [-3e38]]), np.zeros(1), np.arange(1.0, 1.0 + n_scores) * np.ones((2, 1)))
    net = replace(net, layers=(layer,), mix=np.ones((1, n_scores)))
    for level in LEVELS:
        labels, scores = ask(net, np.array([[2.0, 2.0], [0.0, 0.5]]), level, caution=0.0)
        assert np.isnan(scores[0]).all()
        assert np.isfinite(scores[1]).all()
        assert labels[0] == -1 < labels[1]


@pytest.mark.parametrize("shift", [0.0, 1.0])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_first_row_that_cannot_be_read_is_named(value, shift):
    net, X = random_net("sign", 1, 6, (5,), n=900)
    stage = _core.HingeStage(fields_of(replace(net, shift=np.full(6, shift))), LEVELS[-1])
    X[811, 3] = X[401, 5] = value
    labels, scores = np.empty(900, dtype=np.int32), np.empty((900, 1))
    for n_threads in (1, 3):
        assert stage.labels_dense(X, labels, 1.0, False, n_threads)[1:] == (401, 1)
        assert stage.scores_dense(X, scores, scores.copy(), False, n_threads)[1:] == (401, 1)
        assert stage.caution_dense(X, labels, scores[:, 0].copy(), False, n_threads)[1:] == (401, 1)
        rows = sparse.csr_matrix(X)
        arrays = rows.data, rows.indices, rows.indptr
        assert stage.labels_csr(*arrays, labels, 1.0, n_threads)[1:] == (401, 1)
        assert stage.caution_csr(*arrays, labels, scores[:, 0].copy(), n_threads)[1:] == (401, 1)
    rows.data[:] = 1.0
    rows.indices[rows.indptr[17] - 1] = 6
    assert stage.scores_csr(*arrays, scores, scores.copy(), 1)[1:] == (16, 2)


@pytest.mark.parametrize("value", [np.float32, np.float64])
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("level", LEVELS)
def test_csr_rows_of_a_block_are_read_as_one_list(level, index, value):
    """Empty rows, stored zeros, rows that begin anywhere; and one damaged feature among them is found in its row."""
    rng = np.random.default_rng(0)
    d, n = 37, 200
    net = random_net("sign", 1, d, (9,))[0]
    stored = rng.random((n, d)) < rng.choice([0.0, 0.1, 0.6, 1.0], size=(n, 1))
    X = np.where(stored, rng.integers(-3, 4, size=(n, d)), 0).astype(value)  # some of what is stored is zero
    row, column = np.nonzero(stored)
    start = np.concatenate([[0], np.cumsum(stored.sum(axis=1))]).astype(index)
    data, columns = X[row, column], column.astype(index)
    expected = ask(net, X.astype(np.float64), level)[1]
    stage = _core.HingeStage(fields_of(net), level)
    for first in (0, 1, 63, 130):
        rows = (data, columns, start[first:].copy())
        scores, errors = np.empty((n - first, 1)), np.empty((n - first, 1))
        assert stage.scores_csr(*rows, scores, errors, 1)[1:] == (-1, 0)
        np.testing.assert_array_equal(scores, expected[first:])
    labels = np.empty(n, dtype=np.int32)
    for at in rng.choice(len(data), size=60, replace=False):
        begins = at in start[:-1]
        for wrong in (-1, d, 2**31 + 5 if index is np.int64 else d, columns[at] if begins else columns[at - 1]):
            bad = columns.copy()
            bad[at] = wrong
            if (bad == columns).all():
                continue
            assert stage.labels_csr(data, bad, start, labels, 0.0, 1)[1:] == (row[at], 2)
        for wrong in (np.nan, np.inf):
            bad = data.copy()
            bad[at] = wrong
            assert stage.labels_csr(bad, columns, start, labels, 0.0, 1)[1:] == (row[at], 1)


@pytest.mark.parametrize("columns", [[2, 1], [1, 1], [0, 6], [-1, 2]])
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("value", [np.float32, np.float64])
def test_columns_of_csr_rows_ascend_within_the_row(columns, index, value):
    stage = _core.HingeStage(fields_of(random_net("sign", 1, 6, (5,))[0]), LEVELS[-1])
    data, labels = np.ones(4, dtype=value), np.empty(2, dtype=np.int32)
    good, start = np.array([0, 5, 0, 5], dtype=index), np.array([0, 2, 4], dtype=index)
    assert stage.labels_csr(data, good, start, labels, 0.0, 1)[1:] == (-1, 0)
    bad = np.array([0, 5, *columns], dtype=index)
    assert stage.labels_csr(data, bad, start, labels, 0.0, 1)[1:] == (1, 2)
    for wrong in ([0, 2, 5], [0, 3, 2], [0, -1, 4]):
        assert stage.labels_csr(data, good, np.array(wrong, dtype=index), labels, 0.0, 1)[2] == 2


def test_no_rows():
    net, X = random_net("argmax", 3, 4, (5,))
    for rows in (X[:0], sparse.csr_matrix(X[:0])):
        labels, scores = ask(net, rows)
        assert (labels.shape, scores.shape) == ((0,), (0, 3))


DAMAGES = [
    ("d", 0, "d or n_scores is out of range"),
    ("d", 5, "weights_0 has 96 elements; expected 80"),
    ("n_layers", 3, "there must be one or two layers"),
    ("n_layers", 2, "n_hinges has 1 elements; expected 2"),
    ("n_hinges", np.array([-1], dtype=np.int32), "n_hinges is out of range"),
    ("n_hinges", np.array([20], dtype=np.int32), "weights_0 has 96 elements; expected 192"),
    ("bias_0", aligned_zeros((8,), np.float32), "bias_0 has 8 elements; expected 16"),
    ("mix", aligned_zeros((8,), np.float32), "mix has 8 elements; expected 16"),
    ("mix", aligned_zeros((16,), np.float32), "mix must start with 1"),
    ("mix", aligned_zeros((16,), np.float32) + np.float32(1), "64-byte aligned|mix must end with zeros"),
    ("error", np.array([-1.0]), "an error is negative or not finite"),
    ("error", np.array([np.inf]), "an error is negative or not finite"),
    ("error", np.zeros(2), "error has 2 elements; expected 1"),
    ("shift", np.zeros(5), "shift has 5 elements; expected 6"),
    ("shift", np.full(6, np.nan), "shift is not finite"),
    ("rule", 5, "the rule does not exist"),
    ("rule", _core.DISTILLED_RULE, "scores and classes disagree"),
    ("n_scores", 0, "at least one score"),
    ("n_scores", 3, "a sign needs one score"),
]


@pytest.mark.parametrize(("name", "value", "message"), DAMAGES)
def test_damaged_fields_are_refused(name, value, message):
    arrays = fields_of(random_net("sign", 1, 6, (5,))[0])
    with pytest.raises(ValueError, match=message):
        _core.HingeStage({**arrays, name: value}, LEVELS[0])
    del arrays[name]
    with pytest.raises(KeyError, match=name):
        _core.HingeStage(arrays, LEVELS[0])


@pytest.mark.parametrize("name", ["weights_0", "bias_0", "weights_1", "bias_1", "mix"])
@pytest.mark.parametrize("n_scores", [1, 3])
def test_weights_must_be_finite_floats(name, n_scores):
    arrays = fields_of(random_net("sign" if n_scores == 1 else "argmax", n_scores, 6, (5, 4))[0])
    with pytest.raises(TypeError, match=f"{name} is no contiguous array of the expected type"):
        _core.HingeStage({**arrays, name: arrays[name].astype(np.float64)}, LEVELS[0])
    arrays[name][-1] = np.nan
    with pytest.raises(ValueError, match="is not finite"):
        _core.HingeStage(arrays, LEVELS[0])


def test_calls_that_do_not_fit_are_refused():
    net, X = random_net("sign", 1, 6, (5,))
    stage = _core.HingeStage(fields_of(net), LEVELS[0])
    labels, scores, cautions = np.empty(150, dtype=np.int32), np.empty((150, 1)), np.empty(150)
    with pytest.raises(ValueError, match="rows and hinges disagree in width"):
        stage.labels_dense(X[:, :5], labels, 1.0, False, 1)
    with pytest.raises(ValueError, match="out and rows disagree in length"):
        stage.labels_dense(X, labels[1:], 1.0, False, 1)
    for caution in (-1.0, np.nan):
        with pytest.raises(ValueError, match="caution must not be negative"):
            stage.labels_dense(X, labels, caution, False, 1)
    with pytest.raises(ValueError, match="scores or errors has a wrong shape"):
        stage.scores_dense(X, scores, np.empty((150, 2)), False, 1)
    with pytest.raises(ValueError, match="out, caution and rows disagree in length"):
        stage.caution_dense(X, labels, cautions[1:], False, 1)
    with pytest.raises(ValueError, match="instruction level 'none' is not available"):
        _core.HingeStage(fields_of(net), "none")
    for rule, n_scores in (("pairs", 3), ("value", 1)):
        stage = _core.HingeStage(fields_of(random_net(rule, n_scores, 6, (5,))[0]), LEVELS[0])
        with pytest.raises(ValueError, match="have no caution of their own"):
            stage.caution_dense(X, labels, cautions, False, 1)
