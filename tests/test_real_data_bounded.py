"""Zero label differences on the papers' data: every bound against the exact engine and against scikit-learn.

Three machines a set: a smooth one (C = 1, gamma = "scale"), a sharp one (C = 16, eight times that gamma), and one with
the exponential kernel. Blocks answer all test rows, as they are built and with every list walked in float32 and in
float64; the bounds that save kernel values answer fewer. Three small sets run in every test run, the others are marked
slow.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.svm import SVC

import svelto
from blocked_cases import both_ways, forced
from sklearn_cases import read
from svelto._inputs import Query, make_query
from svelto.engines.blocked_sum import BlockedSum
from svelto.engines.exact import ExactEngine

DATA = Path(os.environ.get("SVELTO_DATA", ""))
pytestmark = pytest.mark.skipif(not DATA.joinpath("dna.scale.bz2").exists(), reason="SVELTO_DATA is not set")

SMALL = ("fourclass_scale", "ida_banana", "svmguide1")
MACHINES = ("smooth", "sharp", "exponential")
MOST_TRAIN, MOST_TEST = 3000, 20_000
# Wide rows take longer: this many numbers of test rows at most.
MOST_NUMBERS = 400_000
# Rows for SVC.predict, for the paper's bound, and for the bounds that save evaluations rather than time.
SVC_ROWS, PAPER_ROWS, FEWEST_VALUES = 500, 300, 25_000


def is_here(name):
    files = ("isolet1", "isolet5") if name == "isolet" else (name,)
    return all(any(DATA.joinpath(file + end).exists() for end in ("", ".bz2", ".xz", ".gz")) for file in files)


def cases():
    for name in svelto.datasets.names():
        if is_here(name):
            yield pytest.param(name, marks=() if name in SMALL else (pytest.mark.slow,), id=name)


def load(name):
    """At most so many rows to train on and to answer; sets without a test part answer what is left, or all rows."""
    data = svelto.datasets.load(name)
    X, y, Z = data.X_train, data.y_train, data.X_test
    order = np.random.default_rng(0).permutation(X.shape[0])
    train, rest = order[:MOST_TRAIN], order[MOST_TRAIN:]
    if Z is None:
        Z = X[rest] if len(rest) >= 100 else X
    n_test = min(MOST_TEST, max(1000, MOST_NUMBERS // X.shape[1]))
    return X[train], y[train], Z[np.sort(np.random.default_rng(1).permutation(Z.shape[0])[:n_test])]


def train(kind, X, y):
    variance = X.multiply(X).mean() - X.mean() ** 2 if sparse.issparse(X) else X.var()
    gamma = 1.0 / (X.shape[1] * variance)
    if kind == "exponential":
        return svelto.ExponentialSVC(C=4.0).fit(X, y)
    return SVC(gamma=gamma).fit(X, y) if kind == "smooth" else SVC(C=16.0, gamma=8.0 * gamma).fit(X, y)


def count(differences, name, expected, got):
    wrong = np.flatnonzero(np.asarray(expected) != np.asarray(got))
    if len(wrong):
        differences.append(f"{name}: {len(wrong)} labels, first at row {wrong[0]}")


@pytest.mark.parametrize("kind", MACHINES)
@pytest.mark.parametrize("name", list(cases()))
def test_no_label_differs(name, kind, record_property):
    X, y, Z = load(name)
    model = train(kind, X, y)
    machine = read(model) if kind != "exponential" else svelto.accelerate(model).machine
    exact = svelto.accelerate(machine)
    expected = exact.predict(Z)
    differences = []
    if kind != "exponential":
        count(differences, "SVC.predict", model.predict(Z[:SVC_ROWS]), expected[:SVC_ROWS])
    query, index = make_query(machine, Z), ExactEngine(machine).labels(make_query(machine, Z))[0]
    dense = X.toarray() if sparse.issparse(X) else np.asarray(X)
    count(differences, "blocks", index, BlockedSum(machine, dense).labels(query)[0])
    engine = forced(machine, dense, 16, longest=0.6, chunks=(2, 2, 4, 8))
    settled = 0.0
    if engine.lists is not None:
        for way in both_ways(engine):
            labels, tally = way.labels(Query(*query))
            count(differences, f"blocks, all lists walked as {way.enabled[0]}", index, labels)
            settled = max(settled, tally.bounded / len(labels))
    n_fewest = int(np.clip(FEWEST_VALUES // machine.n_sv, 10, PAPER_ROWS))
    for bound, n in (("paper", PAPER_ROWS), ("references", n_fewest), ("projection", n_fewest)):
        fast = svelto.accelerate(machine, method="bounded", bound=bound, random_state=0)
        count(differences, bound, expected[:n], fast.predict(Z[:n]))
    for key, value in (("rows", Z.shape[0]), ("n_sv", machine.n_sv), ("settled", settled)):
        record_property(key, value)
    assert not differences, differences


def test_the_short_way_gives_the_same_labels():
    X, y, Z = load("ida_banana")
    svc = train("sharp", X, y)
    fast = svelto.accelerate(svc, X, method="bounded", n_lists=8, random_state=0)
    expected = svc.predict(Z[:300])
    assert_array_equal(np.concatenate([fast.predict(Z[i : i + 3]) for i in range(0, 300, 3)]), expected)
