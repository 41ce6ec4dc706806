"""Kernels on objects: a string-kernel machine through `method="sv_tree"`, and objects that are no strings.

The strings are those of examples/string_kernel.py where the data folder is there, else made up after the same rule. The
kernel functions live in examples/string_kernels.py, which a fresh process imports too.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.svm import SVC

import svelto

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))

import string_kernels  # noqa: E402

LENGTH = 60


def made_up(n, seed=0):
    """Half of the strings have AG|GT or so in the middle, as splice sites do."""
    rng = np.random.default_rng(seed)
    letters = rng.choice(list("ACGT"), size=(n, LENGTH))
    sites = rng.random(n) < 0.5
    motif = rng.random((n, 6)) < 0.85
    letters[:, 27:33] = np.where(sites[:, None] & motif, list("CAGGTA"), letters[:, 27:33])
    return ["".join(row) for row in letters], np.where(sites, -1, 1)


def real_or_made_up(n):
    if not Path(os.environ.get("SVELTO_DATA", "")).joinpath("splice.t.bz2").exists():
        return made_up(n)
    data = svelto.datasets.load("splice")
    strings = ["".join("AGCT"[int(code) - 1] for code in row) for row in data.X_test]
    label_of = dict(zip(strings, data.y_test, strict=True))
    return list(label_of)[:n], np.array(list(label_of.values()))[:n]


class Counting:
    """A kernel that counts the values it was asked for, by string."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.asked = {}

    def __call__(self, A, B):
        for a in A:
            self.asked[a] = self.asked.get(a, 0) + len(B)
        return self.kernel(A, B)


def machine_of(kernel, objects, y, C=1.0):
    gram = np.asarray(kernel(objects, objects), dtype=float)
    svc = SVC(kernel="precomputed", C=C / np.diagonal(gram).mean()).fit(gram, y)
    machine = svelto.KernelMachine.from_arrays(
        kernel=kernel,
        support_vectors=[objects[i] for i in svc.support_],
        dual_coef=svc.dual_coef_,
        intercept=svc.intercept_,
        classes=svc.classes_,
    )
    return machine, svc


@pytest.fixture(scope="module")
def strings():
    found, y = real_or_made_up(670)
    parts = {"train": (0, 120), "build": (120, 370), "calibration": (370, 570), "new": (570, 670)}
    return {"y": y[:120], **{name: found[start:stop] for name, (start, stop) in parts.items()}}


@pytest.fixture(scope="module")
def machine(strings):
    return machine_of(string_kernels.spectrum, strings["train"], strings["y"])[0]


@pytest.fixture(scope="module")
def expected(machine, strings):
    return svelto.accelerate(machine, method="exact").predict(strings["new"])


# -- the kernels themselves ----------------------------------------------------------------------------------------


def slow_subsequences(s, t):
    """The definition for ORDER = 2, written to be read."""

    def match(i, j):
        return np.exp(-abs(i - j) / string_kernels.WIDTH) if s[i] == t[j] else 0.0

    ones = sum(match(i, j) for i in range(len(s)) for j in range(len(t)))
    twos = 0.0
    for i in range(len(s)):
        for j in range(len(t)):
            for k in range(i + 1, len(s)):
                for m in range(j + 1, len(t)):
                    skipped = (k - i - 1) + (m - j - 1)
                    twos += match(i, j) * match(k, m) * string_kernels.DECAY**skipped
    return ones + twos


def test_subsequences_are_their_definition():
    texts = ["GATTACA", "TAC", "A", "CATTAGA", "GGGG"]
    assert string_kernels.ORDER == 2
    slow = [[slow_subsequences(s, t) for t in texts] for s in texts]
    assert_allclose(string_kernels.subsequences(texts, texts), slow, rtol=1e-13)


def test_spectrum_counts_common_words_in_equal_places():
    # AAATTT and AAACCC share AAA at place 0; AAATTT has 4 + 3 + 2 words, all different.
    assert_array_equal(string_kernels.spectrum(["AAATTT"], ["AAACCC", "AAATTT", "AA"]), [[1.0, 9.0, 0.0]])


@pytest.mark.parametrize("kernel", [string_kernels.spectrum, string_kernels.subsequences])
def test_kernels_are_positive_definite_and_symmetric(kernel, strings):
    some = [*strings["train"][:20], "ACGT", "AC" * 30]
    gram = kernel(some, some)
    assert_allclose(gram, gram.T, rtol=1e-12)
    assert np.linalg.eigvalsh(gram).min() > -1e-9 * gram.max()


def test_from_arrays_gives_the_labels_of_the_svc(strings):
    machine, svc = machine_of(string_kernels.spectrum, strings["train"], strings["y"])
    new = strings["new"][:50]
    expected = svc.predict(string_kernels.spectrum(new, strings["train"]))
    assert_array_equal(svelto.accelerate(machine, method="exact").predict(new), expected)


# -- trees ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", ["refitted", "paper"])
@pytest.mark.parametrize("max_evals", [4, 12])
def test_no_row_costs_more_than_max_evals(strings, tree, max_evals):
    kernel = Counting(string_kernels.spectrum)
    machine = machine_of(kernel, strings["train"], strings["y"])[0]
    fast = svelto.accelerate(
        machine, strings["build"], method="sv_tree", agreement=None, tree=tree, max_evals=max_evals, random_state=0
    )
    kernel.asked.clear()
    labels = fast.predict(strings["new"])
    assert set(kernel.asked) == set(strings["new"])
    assert max(kernel.asked.values()) <= max_evals
    counted = np.mean([kernel.asked[s] for s in strings["new"]])
    assert fast.work(strings["new"])["kernel_evaluations_per_row"] == pytest.approx(counted)
    # One by one and in any order: the answer depends on the string alone.
    assert_array_equal([fast.predict([s])[0] for s in strings["new"]], labels)
    assert_array_equal(fast.predict(strings["new"][::-1])[::-1], labels)


@pytest.mark.parametrize("options", [{}, {"tree": "paper"}], ids=["default", "paper"])
def test_labels_are_repeatable_and_better_than_chance(machine, strings, expected, options):
    def build():
        return svelto.accelerate(machine, strings["build"], method="sv_tree", agreement=None, random_state=3, **options)

    first, second = build(), build()
    assert first.report.promise == "none"
    assert_array_equal(first.decision_function(strings["new"]), second.decision_function(strings["new"]))
    commonest = max(np.mean(expected == c) for c in machine.classes)
    assert np.mean(first.predict(strings["new"]) == expected) > commonest + 0.05


@pytest.mark.parametrize("options", [{}, {"tree": "paper"}], ids=["default", "paper"])
def test_a_statistical_promise(machine, strings, expected, options):
    fast = svelto.accelerate(
        machine,
        strings["build"],
        method="sv_tree",
        agreement=0.85,
        X_calibration=strings["calibration"],
        random_state=0,
        **options,
    )
    report = fast.report
    assert report.promise in ("statistical", "exact")
    assert report.agreement_bound >= 0.85
    assert "given, 100 checked" in report.details["calibration rows"]
    labels = fast.predict(strings["new"])
    assert np.mean(labels == expected) >= 0.8  # 100 strings: 0.85 less about 1.5 standard errors
    work = fast.work(strings["new"])
    assert work["stages"]["sv_tree"] + work["stages"]["exact"] == pytest.approx(1.0)
    if report.promise == "statistical":
        assert work["kernel_evaluations_per_row"] < machine.n_sv


def test_part_of_x_is_held_out_where_no_calibration_strings_are_given(machine, strings):
    fast = svelto.accelerate(
        machine, strings["build"] + strings["calibration"], method="sv_tree", agreement=0.8, random_state=0
    )
    assert fast.report.details["calibration rows"].startswith("held out")


def test_a_fresh_process_gives_the_same_labels(machine, strings, tmp_path):
    fast = svelto.accelerate(machine, strings["build"], method="sv_tree", agreement=None, random_state=0)
    (tmp_path / "in").write_bytes(pickle.dumps((fast, strings["new"])))
    code = (
        "import pickle, sys\n"
        "fast, strings = pickle.load(open(sys.argv[1], 'rb'))\n"
        "pickle.dump(fast.decision_function(strings), open(sys.argv[2], 'wb'))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "in"), str(tmp_path / "out")]
    subprocess.run(command, check=True, cwd=EXAMPLES)
    found = pickle.loads((tmp_path / "out").read_bytes())
    assert_array_equal(found, fast.decision_function(strings["new"]))


# -- other objects -------------------------------------------------------------------------------------------------


def jaccard(A, B):
    """Share of edges that two graphs have in common; graphs are frozensets of edges."""
    return np.array([[len(a & b) / max(len(a | b), 1) for b in B] for a in A], dtype=float)


def of_tuples(A, B):
    """Points as tuples of numbers."""
    return np.array([[np.exp(-sum((p - q) ** 2 for p, q in zip(a, b, strict=True))) for b in B] for a in A])


def of_series(A, B):
    """Series of different lengths: a Gaussian of mean, spread and length."""
    a, b = (np.array([[s.mean(), s.std(), 0.05 * len(s)] for s in S]) for S in (A, B))
    return np.exp(-((a[:, None] - b[None]) ** 2).sum(axis=-1))


def graphs(rng, n):
    y = rng.integers(2, size=n)
    edges = [(i, j) for i in range(7) for j in range(i)]
    # Class 1 has more edges among the first nodes.
    share = np.array([[0.7 if c and i < 4 else 0.3 for i, _ in edges] for c in y])
    return [
        frozenset(e for e, keep in zip(edges, row, strict=True) if keep) for row in rng.random(share.shape) < share
    ], y


def tuples(rng, n):
    points = rng.normal(size=(n, 3))
    return [tuple(map(float, p)) for p in points], (points[:, 0] * points[:, 1] > 0).astype(int)


def series(rng, n):
    y = rng.integers(2, size=n)
    return [rng.normal(0.4 * c, 1.0 + 0.6 * c, size=int(rng.integers(5, 40))) for c in y], y


OTHERS = {"graphs": (graphs, jaccard), "tuples": (tuples, of_tuples), "series": (series, of_series)}


@pytest.mark.parametrize("options", [{}, {"tree": "paper"}], ids=["default", "paper"])
@pytest.mark.parametrize("kind", OTHERS)
def test_objects_of_any_kind(kind, options):
    make, kernel = OTHERS[kind]
    rng = np.random.default_rng(5)
    objects, y = make(rng, 700)
    train, build, calibration, new = objects[:120], objects[120:400], objects[400:600], objects[600:]
    machine, _ = machine_of(kernel, train, y[:120])
    expected = svelto.accelerate(machine, method="exact").predict(new)
    fast = svelto.accelerate(machine, build, method="sv_tree", agreement=None, random_state=0, **options)
    labels = fast.predict(new)
    commonest = max(np.mean(expected == c) for c in (0, 1))
    assert np.mean(labels == expected) > commonest
    assert_array_equal(np.concatenate([fast.predict(new[:1]), fast.predict(new[1:])]), labels)
    assert fast.work(new)["kernel_evaluations_per_row"] < machine.n_sv
    promised = svelto.accelerate(
        machine, build, method="sv_tree", agreement=0.8, X_calibration=calibration, random_state=0, **options
    )
    assert promised.report.agreement_bound >= 0.8
    assert np.mean(promised.predict(new) == expected) >= 0.75


def test_objects_may_come_as_an_array_of_objects(machine, strings):
    fast = svelto.accelerate(
        machine, np.array(strings["build"], dtype=object), method="sv_tree", agreement=None, random_state=0
    )
    assert_array_equal(
        fast.predict(np.array(strings["new"], dtype=object)),
        svelto.accelerate(machine, strings["build"], method="sv_tree", agreement=None, random_state=0).predict(
            strings["new"]
        ),
    )


# -- messages ------------------------------------------------------------------------------------------------------


class Spoilt:
    """The spectrum kernel, until it is told to answer something else."""

    how = None

    def __call__(self, A, B):
        values = string_kernels.spectrum(A, B)
        if self.how == "shape":
            return values.ravel()
        if self.how == "nan":
            values[1 % len(values)] = np.nan
        return values


@pytest.fixture
def spoilt(strings):
    kernel = Spoilt()
    return kernel, machine_of(kernel, strings["train"], strings["y"])[0]


def test_a_kernel_of_wrong_shape_is_named(spoilt, strings):
    kernel, machine = spoilt
    fast = svelto.accelerate(machine, strings["build"], method="sv_tree", agreement=None, random_state=0)
    kernel.how = "shape"
    with pytest.raises(ValueError, match=r"returned an array of shape \(2,\) for 2 rows and 1 support vector"):
        fast.predict(strings["new"][:2])
    with pytest.raises(ValueError, match=r"The kernel function returned an array of shape \("):
        svelto.accelerate(machine, strings["build"], method="sv_tree", agreement=None, random_state=0)


def test_a_kernel_that_returns_nan_is_named_with_the_row(spoilt, strings):
    kernel, machine = spoilt
    fast = svelto.accelerate(machine, strings["build"], method="sv_tree", agreement=None, random_state=0)
    kernel.how = "nan"
    with pytest.raises(ValueError, match="The kernel value of row 1 is not finite"):
        fast.predict(strings["new"][:2])
    with pytest.raises(ValueError, match=r"The kernel value of row \d+ is not finite"):
        svelto.accelerate(machine, strings["build"], method="sv_tree", agreement=None, random_state=0)


@pytest.mark.parametrize(
    ("objects", "options", "message"),
    [
        (
            "train",
            {"agreement": 0.9},
            r"X holds objects that the machine was trained on .* as X_calibration",
        ),
        (
            "build",
            {"agreement": 0.9, "X_calibration": "train"},
            "X_calibration holds objects that the machine was trained on",
        ),
        ("build", {"linear": True, "agreement": None}, r"linear=True needs rows of features; .* Use linear='auto'"),
        ("build", {"agreement": 1.0}, "agreement=1.0 needs a proven bound"),
    ],
    ids=["training objects", "training objects to calibrate", "linear", "certainty"],
)
def test_what_cannot_be_done_is_said(machine, strings, objects, options, message):
    options = {name: strings[value] if value == "train" else value for name, value in options.items()}
    with pytest.raises((ValueError, NotImplementedError), match=message):
        svelto.accelerate(machine, strings[objects], method="sv_tree", random_state=0, **options)


@pytest.mark.parametrize(
    ("n", "options", "message"),
    [
        (0, {"agreement": None}, "X has no rows"),
        (1, {"agreement": None}, r"X has 1 row\(s\); expected at least 2"),
        (4, {"agreement": 0.9}, r"X has 4 row\(s\); expected at least 5"),
    ],
)
def test_too_few_objects(machine, strings, n, options, message):
    with pytest.raises(ValueError, match=message):
        svelto.accelerate(machine, strings["build"][:n], method="sv_tree", random_state=0, **options)


def test_nothing_to_predict(machine, strings):
    fast = svelto.accelerate(machine, strings["build"], method="sv_tree", agreement=None, random_state=0)
    with pytest.raises(ValueError, match="X has no rows"):
        fast.predict([])


@pytest.mark.parametrize("tree", ["refitted", "paper"])
@pytest.mark.parametrize("n", [2, 3, 5, 10])
def test_a_handful_of_objects_is_enough_without_a_promise(machine, strings, tree, n):
    fast = svelto.accelerate(machine, strings["build"][:n], method="sv_tree", agreement=None, tree=tree, random_state=0)
    assert set(fast.predict(strings["new"])) <= set(machine.classes)


def test_too_few_objects_for_a_promise_are_said_or_answered_exactly(machine, strings, expected):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fast = svelto.accelerate(machine, strings["build"][:12], method="sv_tree", agreement=0.99, random_state=0)
    if fast.report.promise == "exact":
        assert_array_equal(fast.predict(strings["new"]), expected)
    else:
        assert any("rows to check it on" in str(warning.message) for warning in said)
        assert fast.report.agreement_bound < 0.99


def test_no_objects_at_all(machine):
    with pytest.raises(ValueError, match="method='sv_tree' learns from rows: pass X"):
        svelto.accelerate(machine, method="sv_tree")
