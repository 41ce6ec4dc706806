"""LIBSVM model files, read and written: exact both ways.

Three references: LIBSVM's own programs (skipped where they are not installed), bits that went out and must come back,
and short hand-written files whose numbers can be seen.
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.preprocessing import PolynomialFeatures
from sklearn.svm import SVC

from libsvm_help import (
    KERNELS,
    PRECOMPUTED,
    SVM_TYPES,
    THREE_CLASSES,
    assert_same_machine,
    clouds,
    load,
    machine_of,
    needs_programs,
    regression,
    slow_answers,
    slow_scores,
    svm_predict,
    svm_train,
)
from svelto.io.libsvm import read_model, write_model
from svelto.kernels import Kernel
from svelto.machine import KernelMachine
from svelto.probability import Calibration
from svelto.scaling import Scaling


@pytest.fixture
def model_of(tmp_path):
    def write(text):
        path = tmp_path / "model"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


# -- LIBSVM's own files ------------------------------------------------------------------------------------------------


@needs_programs
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("svm_type", SVM_TYPES)
def test_svm_train_models_of_every_kind(tmp_path, svm_type, kernel):
    """Parsed scores give svm-predict's answers, and the file written again gives its answers to the last bit."""
    X, y = clouds()
    Q = np.random.default_rng(1).normal(size=(200, 4)) * 2
    precomputed = kernel == "precomputed"
    if precomputed:
        X, Q = X @ X.T / 10, Q @ X.T / 10
    options = ["-s", SVM_TYPES.index(svm_type), "-t", KERNELS.index(kernel), "-n", 0.3, "-r", 0.5, "-d", 2]
    model = svm_train(tmp_path, X, y, *options, precomputed=precomputed)
    machine = read_model(model)
    assert (machine.svm_type, machine.kernel.name, machine.source) == (svm_type, kernel, "libsvm")
    text = svm_predict(model, Q, precomputed=precomputed)
    want = np.array(text.split(), dtype=float)
    scores = slow_scores(machine, Q)
    # Terms cancel, so rounding grows with sum |coef| times the kernel, not with the score.
    atol = 1e-12 * np.abs(machine.dual_coef).sum() * np.abs(machine.kernel(Q, machine.support_vectors)).max()
    if machine.task == "regression":
        assert_allclose(slow_answers(machine, Q), want, rtol=1e-12, atol=atol)
    else:
        sure = (np.abs(scores) > atol).all(axis=1)
        assert sure.sum() > 190
        assert_array_equal(slow_answers(machine, Q)[sure], want[sure])
    write_model(machine, tmp_path / "again")
    assert svm_predict(tmp_path / "again", Q, precomputed=precomputed) == text
    assert_same_machine(read_model(tmp_path / "again"), machine)


@needs_programs
@pytest.mark.parametrize(
    ("name", "options"),
    [("iris.scale", []), ("heart_scale", ["-t", 0]), ("vehicle.scale", ["-c", 32]), ("a1a", []), ("glass.scale", [])],
)
def test_svm_train_models_of_real_data(tmp_path, name, options):
    X, y = load(name)
    model = svm_train(tmp_path, X, y, *options)
    machine = read_model(model)
    text = svm_predict(model, X)
    scores = slow_scores(machine, X)
    sure = (np.abs(scores) > 1e-12 * np.abs(machine.dual_coef).sum()).all(axis=1)
    assert sure.mean() > 0.95
    assert_array_equal(slow_answers(machine, X)[sure], np.array(text.split(), dtype=float)[sure])
    write_model(machine, tmp_path / "again")
    assert svm_predict(tmp_path / "again", X) == text


@needs_programs
@pytest.mark.parametrize("n_classes", [2, 4])
def test_probabilities_survive(tmp_path, n_classes):
    X, y = clouds(n_classes=n_classes)
    model = svm_train(tmp_path, X, y, "-b", 1)
    machine = read_model(model)
    words = next(line.split() for line in model.read_text().splitlines() if line.startswith("probA"))
    assert machine.platt.a.tolist() == [float(word) for word in words[1:]]
    write_model(machine, tmp_path / "again")
    assert svm_predict(tmp_path / "again", X, "-b", "1") == svm_predict(model, X, "-b", "1")


@needs_programs
def test_noise_scale_of_regression_is_kept(tmp_path):
    X, y = clouds()
    model = svm_train(tmp_path, X, y, "-s", 3, "-b", 1)
    assert "probA" in model.read_text()
    machine = read_model(model)
    assert machine.platt is None
    assert machine.noise_scale > 0
    write_model(machine, tmp_path / "again")
    assert read_model(tmp_path / "again").noise_scale == machine.noise_scale
    assert svm_predict(tmp_path / "again", X) == svm_predict(model, X)


@needs_programs
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("labels", ["int", "float"])
def test_svm_predict_repeats_scikit_learn(tmp_path, n_classes, labels):
    X, y = clouds(n_rows=150, n_classes=n_classes)
    svc = SVC(gamma=0.2).fit(X, y.astype(labels))
    machine = KernelMachine(
        kernel=Kernel("rbf", gamma=svc._gamma),
        support_vectors=svc.support_vectors_,
        dual_coef=svc._dual_coef_,
        intercept=svc._intercept_,
        task="classification",
        rule="pairs",
        classes=svc.classes_,
        vote_order=np.arange(n_classes),
        n_support=svc.n_support_,
        n_features=4,
    )
    write_model(machine, tmp_path / "model")
    Q = np.random.default_rng(1).normal(size=(300, 4)) * 2
    assert_array_equal(np.array(svm_predict(tmp_path / "model", Q).split(), dtype=float), svc.predict(Q))


@needs_programs
@pytest.mark.parametrize("n_sv", [1, 2, 9])
@pytest.mark.parametrize("sign", ["mixed", "positive", "negative"])
def test_svm_predict_reads_two_classes_from_arrays(tmp_path, n_sv, sign):
    """from_arrays knows no n_support; whatever split is written, the sum is the same."""
    rng = np.random.default_rng(n_sv)
    coef = rng.normal(size=n_sv)
    coef = {"mixed": coef, "positive": abs(coef), "negative": -abs(coef)}[sign]
    S = rng.normal(size=(n_sv, 3))
    machine = KernelMachine.from_arrays(
        kernel="rbf", gamma=0.7, support_vectors=S, dual_coef=coef, intercept=0.01, classes=[4, 9]
    )
    write_model(machine, tmp_path / "model")
    Q = rng.normal(size=(200, 3))
    assert_array_equal(np.array(svm_predict(tmp_path / "model", Q).split(), dtype=int), slow_answers(machine, Q))
    back = read_model(tmp_path / "model")
    assert_array_equal(slow_scores(back, Q), slow_scores(machine, Q))
    assert (back.n_support > 0).all()
    if n_sv > 1:
        assert_same_machine(back, machine)


# -- round trips and layout --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("n_classes", [0, 2, 3, 5])
@pytest.mark.parametrize("storage", [np.asarray, sparse.csr_matrix])
def test_round_trip_keeps_every_bit(tmp_path, kernel, n_classes, storage):
    machine = machine_of(kernel, n_classes)
    if kernel != "precomputed":
        machine = replace(machine, support_vectors=storage(machine.support_vectors))
    write_model(machine, tmp_path / "model")
    assert_same_machine(read_model(tmp_path / "model"), machine)


@pytest.mark.parametrize("svm_type", SVM_TYPES)
def test_round_trip_keeps_the_type(tmp_path, svm_type):
    changes = {"task": "outlier", "density_marks": np.linspace(-1, 1, 10) / 3} if svm_type == "one_class" else {}
    machine = machine_of(n_classes=3 if svm_type.endswith("svc") else 0, svm_type=svm_type, **changes)
    write_model(machine, tmp_path / "model")
    assert_same_machine(read_model(tmp_path / "model"), machine)


def test_round_trip_of_hard_numbers(tmp_path):
    hard = np.array([[5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 0.1, 1 / 3, -1e22, 123456789.0]])
    machine = machine_of(n_classes=0, n_sv=7, n_features=7, support_vectors=hard.T @ np.ones((1, 7)), dual_coef=hard)
    write_model(machine, tmp_path / "model")
    assert_same_machine(read_model(tmp_path / "model"), machine)


@pytest.mark.parametrize("n_empty", [0, 1, 2])
def test_width_survives_when_no_vector_reaches_it(tmp_path, n_empty):
    vectors = np.array([[1.0, 0, 0], [0, 2, 0]])
    vectors[:n_empty] = 0
    machine = machine_of(n_classes=0, n_sv=2, support_vectors=vectors, n_features=3)
    write_model(machine, tmp_path / "model")
    assert (tmp_path / "model").read_text().count("3:0") == 1
    assert_same_machine(read_model(tmp_path / "model"), machine)


def test_stored_zeros_are_not_written(tmp_path):
    vectors = sparse.csr_matrix((np.array([1.0, 0.0, 2.0]), np.array([0, 1, 1]), np.array([0, 2, 3])), shape=(2, 2))
    write_model(machine_of(n_classes=0, n_sv=2, support_vectors=vectors, n_features=2), tmp_path / "model")
    assert [line.split()[1:] for line in (tmp_path / "model").read_text().splitlines()[-2:]] == [["1:1.0"], ["2:2.0"]]


def test_other_machines_become_the_nearest_type(tmp_path):
    write_model(machine_of(n_classes=0, svm_type="kernel_ridge"), tmp_path / "model")
    assert read_model(tmp_path / "model").svm_type == "epsilon_svr"


def test_numbers_of_a_file(model_of):
    machine = read_model(model_of(THREE_CLASSES))
    assert_array_equal(machine.support_vectors, [[0.25, 0, -1.5], [0, 1e-3, 0], [0, 0, 0], [1, 2, 3]])
    assert_array_equal(machine.dual_coef, [[1, 0, -1, -0.5], [0.5, 0.1, 0.5, -0.5]])
    assert machine.dual_coef.flags.c_contiguous
    assert machine.intercept.tolist() == [-0.25, 0.5, -0.125]
    assert machine.classes.tolist() == [-1, 3, 7]
    assert machine.classes.dtype == np.int64
    assert machine.vote_order.tolist() == [1, 0, 2]  # 3, -1, 7 in the file
    assert machine.n_support.tolist() == [2, 1, 1]
    assert (machine.kernel, machine.n_features) == (Kernel("rbf", gamma=0.5), 3)
    machine = read_model(model_of(PRECOMPUTED))
    assert machine.support_vectors.tolist() == [2, 0]
    assert (machine.n_features, machine.intercept.tolist()) == (None, [1.0])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\n", "\r\n"),
        (" ", "  \t"),
        ("label 3 -1 7", "label 3.0 -1 +7 "),
        ("SV\n", "SV \n"),
        ("gamma 0.5\n", "\ngamma 5e-1\ncoef0 2\ndegree 3\n\n"),
        ("-0.5 -0.5 1:1 2:2 3:3\n", "-0.5 -0.5 1:1 2:2 3:3 \n\n  \n"),
        ("1:0.25 3:-1.5", "1:0.25 2:0 3:-1.5"),
        ("svm_type c_svc\nkernel_type rbf\n", "kernel_type rbf\nsvm_type c_svc\n"),
    ],
)
def test_other_ways_to_write_the_same(model_of, old, new):
    assert old in THREE_CLASSES
    assert_same_machine(read_model(model_of(THREE_CLASSES.replace(old, new))), read_model(model_of(THREE_CLASSES)))


def test_parameters_of_other_kernels_are_read_over(model_of):
    text = THREE_CLASSES.replace("gamma 0.5", "degree 7\ngamma 0.5\ncoef0 2")
    assert read_model(model_of(text)).kernel == Kernel("rbf", gamma=0.5)


def test_thundersvm_file(model_of):
    """The layout of ThunderSVM's writer: nr_sv before probA, spaces at line ends, weights of the linear kernel."""
    text = (
        "svm_type c_svc\nkernel_type linear\nnr_class 2\ntotal_sv 2\nrho -0.333333 \nlabel -1 1 \nnr_sv 1 1 \n"
        "probA -1.5 \nprobB 0.25 \ncoef \n0.5 -0.5 \nSV \n1 1:0.5 2:0 \n-1 1:0 2:0.5 \n"
    )
    machine = read_model(model_of(text))
    assert machine.kernel.name == "linear"
    assert machine.intercept.tolist() == [0.333333]
    assert_array_equal(machine.support_vectors, [[0.5, 0], [0, 0.5]])
    assert (machine.platt.a.tolist(), machine.platt.b.tolist()) == ([-1.5], [0.25])
    many = text.replace("0.5 -0.5 \nSV", "\nSV")  # no weights are kept for some models; the line is empty
    assert_same_machine(read_model(model_of(many)), machine)


def test_one_class_marks(model_of):
    marks = " ".join(map(str, range(10)))
    text = PRECOMPUTED.replace("epsilon_svr", "one_class").replace("SV\n", f"prob_density_marks {marks}\nSV\n")
    machine = read_model(model_of(text))
    assert (machine.task, machine.rule) == ("outlier", "value")
    assert machine.density_marks.tolist() == list(range(10))


def test_storage_follows_the_filling(model_of):
    def storage(n_sv, indices):
        pairs = " ".join(f"{i}:1" for i in indices)
        return read_model(model_of(regression(*[f"1 {pairs}"] * n_sv)))

    assert not storage(10, [1, 100_000]).has_sparse_vectors  # 8,000,000 bytes: no burden
    assert storage(11, [1, 100_000]).has_sparse_vectors
    wide = np.arange(1, 100_001, 4)
    assert not storage(11, [*wide, 100_000]).has_sparse_vectors  # just over a quarter filled
    assert storage(11, wide[1:]).has_sparse_vectors
    explicit_zero = read_model(model_of(regression(*["1 1:1 2:0 100000:1"] * 11)))
    assert explicit_zero.support_vectors.nnz == 22
    zeros = " ".join(f"{i}:0" for i in range(2, 30_000))  # zeros that are written out fill nothing
    assert read_model(model_of(regression(*[f"1 1:1 {zeros} 100000:1"] * 11))).has_sparse_vectors


# -- what cannot be written --------------------------------------------------------------------------------------------

ALONE = "Transform the rows before LIBSVM sees them, and convert the last step of the pipeline alone."
OWN_FILE = "Keep the machine in svelto's own file."


@pytest.mark.parametrize(
    ("machine", "what"),
    [
        (machine_of("laplacian"), f"the laplacian kernel. {OWN_FILE}"),
        (machine_of("exponential"), f"the exponential kernel. {OWN_FILE}"),
        (machine_of(front=(PolynomialFeatures(),)), f"the transformer PolynomialFeatures in front. {ALONE}"),
        (machine_of(scaling=Scaling("divide", np.zeros(5), np.ones(5))), f"the scaler in front. {ALONE}"),
        (
            machine_of(calibration=Calibration("sigmoid", ())),
            "a calibration. Convert the classifier inside CalibratedClassifierCV.",
        ),
        (
            KernelMachine.from_arrays(
                kernel="rbf", support_vectors=np.eye(3), dual_coef=np.eye(3), intercept=np.zeros(3), classes=[1, 2, 3]
            ),
            f"the rule 'argmax' (one score for each class). {OWN_FILE}",
        ),
        (
            KernelMachine.from_arrays(
                kernel="rbf", support_vectors=np.eye(3), dual_coef=np.eye(3)[:2], intercept=np.zeros(2)
            ),
            "2 outputs. Write one machine for each output.",
        ),
        (
            KernelMachine.from_arrays(kernel=lambda X, S: X @ S.T, support_vectors=np.eye(3), dual_coef=[1, 2, 3]),
            f"the callable kernel. {OWN_FILE}",
        ),
        (machine_of(n_classes=3, break_ties=True), "break_ties=True. Train with break_ties=False."),
    ],
)
def test_what_the_format_cannot_hold(tmp_path, machine, what):
    with pytest.raises(NotImplementedError) as caught:
        write_model(machine, tmp_path / "model")
    assert str(caught.value) == f"A LIBSVM model file cannot hold {what}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("labels", [["a", "b"], [0.5, 1.0], [False, True], [0, 2**31], [0.0, np.inf]])
def test_labels_that_are_no_whole_numbers(tmp_path, labels):
    machine = machine_of(classes=np.array(labels), vote_order=[0, 1])
    bad = next(label for label in machine.classes.tolist() if label not in (0, 1) or isinstance(label, bool))
    with pytest.raises(ValueError, match="Encode the classes as whole numbers before training") as caught:
        write_model(machine, tmp_path / "model")
    want = f"Class label {bad!r} cannot be written; a LIBSVM model file holds whole numbers up to 2147483647. "
    assert str(caught.value).startswith(want)
    with pytest.raises(ValueError, match="Class label"):  # said before the missing folder is noticed
        write_model(machine, tmp_path / "nowhere" / "model")
    assert list(tmp_path.iterdir()) == []


def test_two_classes_may_break_ties(tmp_path):
    write_model(machine_of(break_ties=True), tmp_path / "model")
    assert read_model(tmp_path / "model").n_classes == 2


# -- the file system ---------------------------------------------------------------------------------------------------


def test_a_failed_write_leaves_the_old_file_alone(tmp_path, monkeypatch):
    path = tmp_path / "model"
    path.write_text("what was here before")

    def broken(machine):
        assert path.read_text() == "what was here before"
        yield " 1:1"
        raise KeyboardInterrupt

    monkeypatch.setattr("svelto.io.libsvm._vectors", broken)
    with pytest.raises(KeyboardInterrupt):
        write_model(machine_of(), path)
    assert path.read_text() == "what was here before"
    assert list(tmp_path.iterdir()) == [path]


def test_writing_to_a_directory_leaves_nothing(tmp_path):
    (tmp_path / "model").mkdir()
    with pytest.raises(OSError, match="model"):
        write_model(machine_of(), tmp_path / "model")
    assert list(tmp_path.iterdir()) == [tmp_path / "model"]


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions and links")
def test_mode_and_links_are_those_of_a_plain_write(tmp_path):
    (tmp_path / "plain").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "model")
    write_model(machine_of(), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "model").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert b"\r" not in (tmp_path / "model").read_bytes()
