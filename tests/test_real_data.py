"""Zero label differences on the papers' data, against scikit-learn and against LIBSVM's own svm-predict.

Machines with LIBSVM's default parameters (C = 1, gamma = 1/d) and with larger C and sharper kernels, of the size that
tuning finds (picked by hand, not searched). The small sets run in every test run; the full list of the larger ones is
marked slow.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file
from sklearn.svm import SVC

import svelto
from svelto._rowfiles import read_rows

pytestmark = pytest.mark.skipif(
    not Path(os.environ.get("SVELTO_DATA", "")).joinpath("dna.scale.bz2").exists(), reason="SVELTO_DATA is not set"
)

# data set: tuned (C, gamma)
TUNED = {
    "a9a": (8.0, 2.0**-5),
    "w8a": (8.0, 2.0**-3),
    "ijcnn1": (16.0, 0.5),
    "letter.scale": (16.0, 2.0),
    "usps": (10.0, 2.0**-7),
    "dna.scale": (4.0, 2.0**-6),
    "satimage.scale": (8.0, 1.0),
    "pendigits": (10.0, 2.0**-10),
    "covtype.libsvm.binary.scale": (32.0, 32.0),
}
SMALL = ("dna.scale", "satimage.scale", "pendigits", "usps")


def cases():
    for name in TUNED:
        marks = () if name in SMALL else (pytest.mark.slow,)
        for kind in ("default", "tuned"):
            yield pytest.param(name, kind, marks=marks, id=f"{name}-{kind}")


def load(name):
    """Training and test rows; covtype has no test part: 20,000 random rows to train, 20,000 others to test."""
    data = svelto.datasets.load(name)
    if data.X_test is not None:
        return data.X_train, data.y_train, data.X_test
    order = np.random.default_rng(0).permutation(data.X_train.shape[0])
    train, test = order[:20_000], order[20_000:40_000]
    return data.X_train[train], data.y_train[train], data.X_train[test]


def differences(expected, got, scores):
    """Message with the first differing row and its scores."""
    wrong = np.flatnonzero(expected != got)
    if len(wrong) == 0:
        return ""
    return f"{len(wrong)} labels differ, first at row {wrong[0]} with scores {scores(wrong[0])}"


@pytest.mark.parametrize(("name", "kind"), list(cases()))
def test_no_label_differs(name, kind, tmp_path):
    X, y, Z = load(name)
    C, gamma = TUNED[name] if kind == "tuned" else (1.0, 1.0 / X.shape[1])
    svc = SVC(C=C, gamma=gamma, cache_size=1000).fit(X, y)
    fast = svelto.accelerate(svc, method="exact")
    got = fast.predict(Z)
    assert not differences(svc.predict(Z), got, lambda i: fast.decision_function(Z[[i]]))
    other = Z.toarray() if sparse.issparse(Z) else sparse.csr_matrix(Z)
    assert not differences(got, fast.predict(other), lambda i: fast.decision_function(Z[[i]]))
    if shutil.which("svm-predict") is None:
        return
    fast.machine.to_libsvm(tmp_path / "model")
    dump_svmlight_file(Z, np.zeros(Z.shape[0]), str(tmp_path / "rows"), zero_based=False)
    command = ["svm-predict", "-q", tmp_path / "rows", tmp_path / "model", tmp_path / "labels"]
    subprocess.run(command, check=True, capture_output=True)
    # The text of a row holds 16 digits, so predict what svm-predict reads, not what was written.
    rows = svelto.accelerate(str(tmp_path / "model"), method="exact")
    read = read_rows(tmp_path / "rows", "libsvm").X
    read.resize((read.shape[0], rows.n_features_in_))
    theirs = np.loadtxt(tmp_path / "labels")
    assert not differences(theirs, rows.predict(read), lambda i: rows.decision_function(read[[i]]))
    assert (theirs != got).sum() == 0
