"""Models for tests of svelto files: one of every kind that a file can hold, as small as it can be."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_moons
from sklearn.kernel_ridge import KernelRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler
from sklearn.svm import SVC, SVR, OneClassSVM

import svelto
from machines import random_machine
from svelto.guard_grid import Grids
from svelto.io.file import ALIGNMENT, CHECKSUM, MAGIC, PREAMBLE, VERSION

CORPUS = Path(__file__).parent / "files"
X, Y = make_moons(240, noise=0.2, random_state=0)
QUERIES = np.random.default_rng(5).uniform(-1.5, 2.5, size=(60, 2))
QUERIES.flags.writeable = False
NAMES = np.array(["no", "perhaps", "yes"])
THREE = np.searchsorted([-0.2, 0.6], X[:, 1])


def _sharp():
    return SVC(gamma=2.0, C=5.0).fit(X, Y)


def _cascade(method, **options):
    given = {"agreement": None, "random_state": 0, "n_jobs": 1}
    return svelto.accelerate(_sharp(), X, method=method, **{**given, **options})


def _promised(grids=None, *, rim=False):
    """A cascade of two stages with a guard, thresholds and a tolerance of none; built by hand to be small."""
    fast = _cascade("hinges", n_hinges=(4, 3))
    tree = _cascade("taylor_tree", leaf_size=64, oracle_rows=50)
    engine = fast._engine
    from svelto.guard import Core, Guard

    guard = replace(Guard.around(engine.machine, [X], 0), grids=grids)
    if rim:
        wide = {"box_limit": 1.0, "sq_radii": 4.0 * guard.sq_radii, "direction_limit": 4.0 * guard.direction_limit}
        guard = replace(guard, **wide, core=Core(0.01, 0.3 * guard.sq_radii, 0.5 * guard.direction_limit, 3.0))
    engine.stages = [replace(engine.stages[0], guard=guard), *tree._engine.stages]
    engine.thresholds, engine.guard = [0.5, float("inf")], guard
    return fast


def _blocks():
    """With lists in use, which a machine this small would not have of itself."""
    many = random_machine(n_sv=700, d=2, gamma=4.0, seed=3)
    return svelto.accelerate(many, X, method="bounded", bound="blocks", n_lists=2, random_state=0)


def _precomputed():
    K = X @ X.T + 1.0
    return svelto.accelerate(SVC(kernel="precomputed").fit(K, Y), K, method="sv_tree", agreement=None, random_state=0)


# Everything that a file can hold, by name; each is made when it is asked for.
CASES = {
    "exact": lambda: svelto.accelerate(_sharp(), method="exact"),
    "exact_float64": lambda: svelto.accelerate(_sharp(), method="exact", precision="float64"),
    "exact_classes": lambda: svelto.accelerate(SVC(gamma=1.0).fit(X, NAMES[THREE]), method="exact"),
    "exact_many_classes": lambda: svelto.accelerate(random_machine(n_classes=11, n_sv=40, d=2), method="exact"),
    "exact_argmax": lambda: svelto.accelerate(random_machine(n_classes=4, rule="argmax", d=2), method="exact"),
    "exact_poly": lambda: svelto.accelerate(random_machine("poly", d=2), method="exact"),
    "exact_linear": lambda: svelto.accelerate(random_machine("linear", d=2, n_classes=3), method="exact"),
    "exact_csr": lambda: svelto.accelerate(random_machine(d=2, as_csr=True, n_classes=3), method="exact"),
    "exact_postings": lambda: svelto.accelerate(_very_sparse(), method="exact"),
    "regression": lambda: svelto.accelerate(SVR(gamma=1.0, epsilon=0.3).fit(X, X[:, 0]), method="exact"),
    "two_outputs": lambda: svelto.accelerate(KernelRidge(kernel="rbf").fit(X[:40], X[:40]), method="exact"),
    "outlier": lambda: svelto.accelerate(OneClassSVM(gamma=1.0, nu=0.1).fit(X), method="exact"),
    "precomputed": _precomputed,
    "pipeline": lambda: svelto.accelerate(
        make_pipeline(MaxAbsScaler(), MinMaxScaler(clip=True), StandardScaler(), SVC()).fit(X, Y > 0), method="exact"
    ),
    "probabilities": lambda: svelto.accelerate(
        CalibratedClassifierCV(SVC(gamma=2.0), ensemble=False, method="isotonic", cv=2).fit(X, THREE), method="exact"
    ),
    "blocks": _blocks,
    "lists": lambda: svelto.accelerate(_sharp(), method="bounded", bound="paper", random_state=0),
    "references": lambda: svelto.accelerate(_few(), method="bounded", bound="references", random_state=0),
    "projection": lambda: svelto.accelerate(_few(), method="bounded", bound="projection", random_state=0),
    "hinges": lambda: _cascade("hinges", n_hinges=8),
    "taylor_tree": lambda: _cascade("taylor_tree", leaf_size=64, oracle_rows=50),
    "certified_tree": lambda: _cascade("taylor_tree", agreement=1.0, leaf_size=64, oracle_rows=50),
    "sv_tree": lambda: _cascade("sv_tree", oracle_rows=200, max_evals=4),
    "reduced_set": lambda: _cascade("reduced_set", n_basis=8, oracle_rows=200),
    "promised": _promised,
    "promised_grids": lambda: _promised(Grids(np.array([0.0, 3.0]), np.array([0.0, 0.25]))),
    "promised_rim": lambda: _promised(rim=True),
    "machine": lambda: svelto.KernelMachine.from_sklearn(_sharp()),
    "svm_tree": lambda: svelto.SVMTreeClassifier(random_state=0, probability=True, n_folds=2).fit(X, NAMES[THREE]),
    "svm_tree_planes": lambda: svelto.SVMTreeClassifier(random_state=0, tail=None, multi_class="ovr").fit(X, THREE),
    "local": lambda: svelto.LocalSVC(k=40, probability=True, random_state=0).fit(X[:120], THREE[:120]),
    "local_linear": lambda: svelto.LocalSVC(k=40, kernel="linear", random_state=0).fit(X[:80], Y[:80] > 0),
}


def _few():
    return SVC(gamma=2.0, C=5.0).fit(X[:60], Y[:60])


def _very_sparse():
    """So sparse, and so wide, that the engine keeps an inverted index."""
    wide = sparse.random(200, 6000, density=0.01, random_state=1, format="csr")
    return replace(random_machine(d=6000, n_sv=200, gamma=1.0), support_vectors=wide)


def queries_of(model):
    """Rows that a model can be asked about."""
    machine = getattr(model, "machine", None)
    if machine is not None and machine.kernel.name == "precomputed":
        return QUERIES @ X.T + 1.0
    if machine is not None and machine.n_features > 2:
        return sparse.random(40, machine.n_features, density=0.05, random_state=2, format="csr")
    return QUERIES


def answers(model, rows=None):
    """Everything a model says about rows, in one list of arrays."""
    if isinstance(model, svelto.KernelMachine):
        model = svelto.accelerate(model, method="exact")
    rows = queries_of(model) if rows is None else rows
    methods = ("predict", "decision_function", "predict_proba", "score_samples")
    with np.errstate(all="ignore"):
        found = [getattr(model, name)(rows) for name in methods if hasattr(model, name)]
        return [*found, model.predict(rows[:3])]


def sealed(header, arrays):
    """A file with correct checksums around any header and any bytes: what somebody could write on purpose."""
    header = header.ljust(-(-len(header) // ALIGNMENT) * ALIGNMENT)
    size = ALIGNMENT + len(header) + len(arrays)
    start = PREAMBLE.pack(MAGIC, VERSION, len(header), size, zlib.crc32(header))
    start += CHECKSUM.pack(zlib.crc32(start))
    return start.ljust(ALIGNMENT, b"\0") + header + arrays
