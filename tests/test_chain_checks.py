"""The class around chains of hyperplanes: its methods, pickling, rows that cannot be read, damaged arrays."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from scipy import sparse

from chain_cases import RULES, ask, random_chains, same
from svelto import _core
from svelto.engines import native_stage
from svelto.engines.chains import Chains


@pytest.mark.parametrize("rule", RULES)
def test_methods_give_what_native_code_gives(rule):
    chains, X = random_chains(4, rule, 20, n=3000)
    expected = ask(chains, X)
    for rows in (X, sparse.csr_matrix(X), X.astype(np.int64), X.astype(np.float32)):
        for n_jobs in (None, 1, 2):
            labels, work = chains.labels_and_work(rows, n_jobs)
            voted = chains.labels(rows, n_jobs, vote=True)
            same([labels, work, *chains.trace(rows, n_jobs), chains.scores(rows, n_jobs), voted], expected)
            np.testing.assert_array_equal(chains.labels(rows, n_jobs), expected[0])
    labels, n_open = chains.block_labels(X[:40])
    np.testing.assert_array_equal(labels, expected[0][:40])
    assert n_open == (expected[0][:40] < 0).sum() > 0
    labels, n_open = chains.block_labels(X[:40], vote=True)
    np.testing.assert_array_equal(labels, expected[6][:40])
    assert n_open == 0
    assert (chains.n_features, chains.n_chains, chains.n_nodes) == (20, len(chains.end), len(chains.planes))


def test_no_rows():
    chains, X = random_chains(4, "one_vs_one", 20)
    for rows in (X[:0], sparse.csr_matrix(X[:0])):
        labels, work = chains.labels_and_work(rows)
        assert labels.shape == work.shape == chains.labels(rows).shape == chains.labels(rows, vote=True).shape == (0,)
        assert chains.scores(rows).shape == (0, 4)
        assert [a.shape for a in chains.trace(rows)] == [(0, 6)] * 3
    assert chains.block_labels(X[:0])[1] == 0


def test_rows_are_answered_piece_by_piece(monkeypatch):
    chains, X = random_chains(4, "one_vs_one", 20, n=1000)
    expected = ask(chains, X)
    monkeypatch.setattr(native_stage, "ROWS_PER_CALL", 300)
    for rows in (X, sparse.csr_matrix(X)):
        got = [*chains.labels_and_work(rows), *chains.trace(rows), chains.scores(rows), chains.labels(rows, vote=True)]
        same(got, expected)
    X[805, 7] = np.nan
    with pytest.raises(ValueError, match=r"X contains nan \(row 805, column 7\)"):
        chains.labels(X)


def test_pickles_without_the_native_object():
    chains, X = random_chains(4, "one_vs_one", 20)
    expected = chains.labels(X)
    assert chains._native is not None
    again = pickle.loads(pickle.dumps(chains))
    assert again._native is None
    np.testing.assert_array_equal(again.labels(X), expected)
    for name in ("planes", "low", "high", "chain_start", "end", "classes_of_chain", "order", "centre"):
        np.testing.assert_array_equal(getattr(again, name), getattr(chains, name))


def test_the_callers_arrays_are_copied():
    planes = np.ones((1, 2))
    chains = Chains(planes, [0.0], [0.0], [0, 1], [0], [[0, 1]], 2)
    planes[:] = -1
    assert chains.labels(np.ones((1, 2))).tolist() == [1]


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("d", [2, 20])
def test_rows_that_cannot_be_read_are_named(n_classes, d):
    chains, X = random_chains(n_classes, "one_vs_one", d, n=1300)
    for bad in (np.nan, np.inf, -np.inf):
        X[[1205, 1270], d - 1] = bad
        for rows in (X, X.astype(np.float32), np.asfortranarray(X), sparse.csr_matrix(X)):
            for method, n_jobs in itertools.product(
                (chains.labels, chains.labels_and_work, chains.scores, chains.trace), (1, 2)
            ):
                with pytest.raises(ValueError, match=rf"X contains {bad} \(row 1205, column {d - 1}\)"):
                    method(rows, n_jobs)
        assert chains.block_labels(X[1200:1210])[1] == -1
    stage, out = _core.ChainStage(chains.fields(), "baseline"), np.empty(2, dtype=np.int32)
    indices, start = np.array([0, d], dtype=np.int32), np.array([0, 1, 2], dtype=np.int32)
    assert stage.labels_csr(np.ones(2), indices, start, out, False, 1)[1:] == (1, 2)


def test_calls_of_a_wrong_shape_are_refused():
    chains, X = random_chains(3, "one_vs_one", 5)
    for method in (chains.labels, chains.labels_and_work, chains.scores, chains.trace):
        with pytest.raises(ValueError, match="The chains have 5 features; X has 4"):
            method(X[:, :4])
    stage, out = _core.ChainStage(chains.fields(), "baseline"), np.empty(150, dtype=np.int32)
    trace = [np.empty((150, 3), dtype=t) for t in (np.int8, np.int32, np.float64)]
    with pytest.raises(ValueError, match="rows and chains disagree in width"):
        stage.labels_dense(X[:, :4], out, False, 1)
    with pytest.raises(ValueError, match="out and rows disagree in length"):
        stage.labels_dense(X[:9], out, False, 1)
    for wrong in (np.empty((9, 3)), np.empty((150, 1))):
        with pytest.raises(ValueError, match="out has a wrong shape"):
            stage.scores_dense(X, wrong, 1)
    with pytest.raises(ValueError, match="work and rows disagree in length"):
        stage.work_dense(X, out, out[:9], 1)
    for at in range(3):
        for wrong in (trace[at][:9], trace[at][:, :2].copy()):
            with pytest.raises(ValueError, match="an output has a wrong shape"):
                stage.trace_dense(X, *trace[:at], wrong, *trace[at + 1 :], 1)
    with pytest.raises(ValueError, match="instruction level 'mmx' is not available"):
        _core.ChainStage(chains.fields(), "mmx")


GOOD = {
    "planes": np.ones((3, 2)),
    "low": np.zeros(3),
    "high": np.ones(3),
    "chain_start": [0, 1, 2, 3],
    "end": [0, 1, -1],
    "classes_of_chain": [[0, 1], [2, 0], [1, 2]],
    "n_classes": 3,
}
REST = {"rule": "one_vs_rest", "classes_of_chain": [[-1, 0], [-1, 1], [-1, 2]]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rule": "vote"}, "rule is 'vote'; expected one of 'one_vs_one', 'one_vs_rest'"),
        ({"n_classes": 0}, "n_classes is 0; expected a whole number of at least 1"),
        ({"n_classes": 2**15}, "n_classes is 32768; expected at most 32767"),
        ({"n_classes": 4}, "each of the 6 pairs of 4 classes once"),
        ({"planes": np.ones(3)}, r"planes has shape \(3,\); expected \(n_nodes, n_features\)"),
        ({"planes": np.ones((3, 0))}, r"planes has shape \(3, 0\)"),
        ({"planes": np.full((3, 2), np.inf)}, "planes has NaN or infinite numbers"),
        ({"low": np.zeros(2)}, r"low has shape \(2,\); expected \(3,\)"),
        ({"high": np.zeros((3, 1))}, r"high has shape \(3, 1\); expected \(3,\)"),
        ({"low": [0.0, 2.0, 0.0]}, r"Node 1 has low=2.0 and high=1.0; expected low <= high"),
        ({"low": [0.0, 0.0, np.nan]}, r"Node 2 has low=nan"),
        ({"high": [np.nan, 1.0, 1.0]}, r"Node 0 has low=0.0 and high=nan"),
        ({"spread": np.ones(2)}, r"spread has shape \(2,\); expected \(3,\)"),
        ({"spread": [1.0, 0.0, 1.0]}, r"Node 1 has spread=0.0; expected a positive number"),
        ({"spread": [1.0, 1.0, np.nan]}, r"Node 2 has spread=nan"),
        ({"chain_start": [0, 1, 3]}, r"chain_start has shape \(3,\); expected \(4,\)"),
        ({"chain_start": [0, 2, 1, 3]}, "chain_start must rise from 0 to the number of nodes, 3"),
        ({"chain_start": [1, 1, 2, 3]}, "chain_start must rise"),
        ({"chain_start": [0, 1, 2, 2]}, "chain_start must rise"),
        ({"chain_start": [0.0, 1.0, 2.0, 3.0]}, "chain_start has dtype float64; expected whole numbers"),
        ({"chain_start": [0, 1, 2, 2**40]}, "chain_start has a number beyond 32 bits"),
        ({"end": [0, 1]}, r"end has shape \(2,\); expected \(3,\)"),
        ({"end": [0, 1, 2]}, "end has a value other than -1, 0"),
        ({"classes_of_chain": [0, 1, 2]}, r"classes_of_chain has shape \(3,\); expected \(n_chains, 2\)"),
        ({"classes_of_chain": [[0, 1], [1, 0], [1, 2]]}, "each of the 3 pairs of 3 classes once"),
        ({"classes_of_chain": [[0, 1], [2, 0], [1, 3]]}, "each of the 3 pairs"),
        ({"classes_of_chain": [[0, 1], [2, 0], [1, 1]]}, "each of the 3 pairs"),
        ({**REST, "classes_of_chain": [[-1, 0], [-1, 1], [-1, 1]]}, r"\(-1, c\) for each class c of 3 once"),
        ({**REST, "classes_of_chain": [[-1, 0], [-1, 1], [2, -1]]}, r"\(-1, c\) for each class"),
        ({**REST, "n_classes": 4}, r"\(-1, c\) for each class c of 4"),
        ({"order": [0, 1, 1]}, "order must name each of the 3 classes once"),
        ({"order": [0, 1, 3]}, "order must name each of the 3 classes once"),
        ({"order": [0, 1]}, r"order has shape \(2,\); expected \(3,\)"),
        ({"centre": np.zeros(3)}, r"centre has shape \(3,\); expected \(2,\)"),
        ({"centre": [0.0, np.nan]}, "centre has NaN or infinite numbers"),
        ({"centre": np.ones(2), "stored": True}, "stored=True needs a centre of zeros"),
    ],
)
def test_wrong_arrays_are_refused(change, message):
    Chains(**GOOD)
    Chains(**{**GOOD, **REST})
    with pytest.raises(ValueError, match=message):
        Chains(**{**GOOD, **change})


def test_a_centre_that_is_too_far_is_refused():
    chains = Chains(**GOOD, centre=[1e308, 1.7e308])
    with pytest.raises(ValueError, match="products of planes and centre are not finite; scale the features"):
        chains.labels(np.zeros((1, 2)))


def ints(*values):
    return np.array(values, dtype=np.int32)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("d", 3, "shift has 2 elements; expected 3"),
        ("d", 0, "stride and d disagree"),
        ("d", 17, "stride and d disagree"),
        ("stride", 24, "stride and d disagree"),
        ("n_nodes", 4, "planes has 48 elements; expected 64"),
        ("n_nodes", -1, "a number is negative"),
        ("n_chains", -1, "a number is negative"),
        ("n_nodes", 2**29, "there are too many nodes"),
        ("n_chains", 2**29, "there are too many nodes"),
        ("n_chains", 2, "chain_start has 4 elements; expected 3"),
        ("n_classes", 0, "n_classes is out of range"),
        ("n_classes", 2**15, "n_classes is out of range"),
        ("n_classes", 2, "order has 3 elements; expected 2"),
        ("rule", 2, "the rule does not exist"),
        ("rule", -1, "the rule does not exist"),
        ("rule", 1, "a class of a chain does not exist"),
        ("planes", np.full((3, 16), np.nan, dtype=np.float32), "64-byte aligned|a plane is not finite"),
        ("low", np.zeros(2), "low has 2 elements; expected 3"),
        ("low", np.zeros(3, dtype=np.float32), "low is no contiguous array of the expected type"),
        ("low", np.array([0, 2.0, 0]), "low is above high, or NaN"),
        ("low", np.array([0, 0, np.nan]), "low is above high, or NaN"),
        ("high", np.array([np.nan, 1, 1]), "low is above high, or NaN"),
        ("high", np.ones(4), "high has 4 elements; expected 3"),
        ("unit", np.ones(2), "unit has 2 elements; expected 3"),
        ("offset", np.ones(2), "offset has 2 elements; expected 3"),
        ("unit", np.array([1, np.inf, 1]), "unit or offset is not finite"),
        ("offset", np.array([0, 0, np.nan]), "unit or offset is not finite"),
        ("own_low", np.zeros(2), "own_low has 2 elements; expected 3"),
        ("own_high", np.zeros(2), "own_high has 2 elements; expected 3"),
        ("spread", np.ones(2), "spread has 2 elements; expected 3"),
        ("spread", np.array([1, 0.0, 1]), "a spread is not positive"),
        ("spread", np.array([1, np.nan, 1]), "a spread is not positive"),
        ("clear_margin", 0.0, "clear_margin is not positive"),
        ("clear_margin", float("nan"), "clear_margin is not positive"),
        ("chain_start", ints(1, 1, 2, 3), "chain_start does not cover the nodes"),
        ("chain_start", ints(0, 1, 2, 2), "chain_start does not cover the nodes"),
        ("chain_start", ints(0, 2, 1, 3), "chain_start decreases"),
        ("chain_start", ints(0, -5, 1, 3), "chain_start decreases"),
        ("chain_start", ints(0, 5, 2, 3), "chain_start decreases"),
        ("end", ints(0, 2, 0), "an end is neither -1, 0 nor 1"),
        ("end", ints(-2, 0, 0), "an end is neither -1, 0 nor 1"),
        ("end", ints(0, 0), "end has 2 elements; expected 3"),
        ("classes_of_chain", ints(0, 1, 2, 0, 1, 3), "a class of a chain does not exist"),
        ("classes_of_chain", ints(0, 1, 2, 0, -1, 2), "a class of a chain does not exist"),
        ("classes_of_chain", ints(3, 1, 2, 0, 1, 2), "a class of a chain does not exist"),
        ("classes_of_chain", ints(0, -1, 2, 0, 1, 2), "a class of a chain does not exist"),
        ("classes_of_chain", ints(0, 1, 2, 2, 1, 2), "a chain has one class on both sides"),
        ("classes_of_chain", ints(0, 1, 1, 0, 1, 2), "two chains are between the same classes"),
        ("classes_of_chain", ints(0, 1, 2, 0), "classes_of_chain has 4 elements; expected 6"),
        ("order", ints(0, 1, 3), "a class in order does not exist"),
        ("order", ints(0, 1, -1), "a class in order does not exist"),
        ("order", ints(0, 1, 1), "a class is twice in order"),
        ("shift", np.array([0, np.nan]), "shift is not finite"),
        ("stored", True, "these rows are not shifted"),
    ],
)
def test_damaged_fields_are_refused(name, value, message):
    fields = Chains(**GOOD, centre=np.ones(2)).fields()
    _core.ChainStage(fields, "baseline")
    fields[name] = value
    with pytest.raises((ValueError, TypeError), match=message):
        _core.ChainStage(fields, "baseline")


def test_other_damaged_fields_are_refused():
    fields = Chains(**GOOD).fields()
    fields["planes"][2, 1] = np.inf
    with pytest.raises(ValueError, match="a plane is not finite"):
        _core.ChainStage(fields, "baseline")
    fields["planes"] = np.zeros(49, dtype=np.float32)[1:]
    with pytest.raises(ValueError, match="planes is not 64-byte aligned"):
        _core.ChainStage(fields, "baseline")
    fields = Chains(**{**GOOD, **REST}).fields()
    _core.ChainStage(fields, "baseline")
    for value, message in (
        (ints(-1, 0, -1, 1, -1, 3), "a class of a chain does not exist"),
        (ints(-1, 0, -1, 1, 2, -1), "a class of a chain does not exist"),
        (ints(-1, 0, -1, 1, 0, 2), "a class of a chain does not exist"),
        (ints(-1, 0, -1, 1, -1, 1), "two chains are between the same classes"),
    ):
        with pytest.raises(ValueError, match=message):
            _core.ChainStage({**fields, "classes_of_chain": value}, "baseline")
    four = {**fields, "n_classes": 4, "order": ints(0, 1, 2, 3)}
    with pytest.raises(ValueError, match="chains and classes disagree in number"):
        _core.ChainStage(four, "baseline")
    with pytest.raises(ValueError, match="chains and classes disagree in number"):
        _core.ChainStage({**four, "rule": 0}, "baseline")
    with pytest.raises(KeyError, match="offset"):
        _core.ChainStage({name: value for name, value in fields.items() if name != "offset"}, "baseline")
