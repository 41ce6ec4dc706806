"""Damaged LIBSVM model files: refused with file and line, whatever is wrong, before any memory is spent on a claim."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from libsvm_help import (
    PRECOMPUTED,
    THREE_CLASSES,
    assert_same_machine,
    clouds,
    machine_of,
    needs_programs,
    regression,
    svm_train,
)
from svelto.io.libsvm import read_model
from svelto.machine import KernelMachine


@pytest.fixture
def model_of(tmp_path):
    def write(text):
        path = tmp_path / "model"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def message_of(path):
    with pytest.raises(ValueError, match="model") as caught:
        read_model(path)
    return str(caught.value)


WRONG_HEADERS = [
    ("svm_type c_svc", "svm_type c_scv", 1, "svm_type is 'c_scv'; expected one of c_svc, nu_svc, one_class, epsi"),
    ("kernel_type rbf", "kernel_type RBF", 2, "kernel_type is 'RBF'; expected one of linear, polynomial, rbf, sig"),
    ("svm_type c_svc", "svm_type c_svc x", 1, "svm_type has 2 value(s); expected 1."),
    ("gamma 0.5\n", "", 8, "the header ends without 'gamma'; the file is damaged. Copy it or train again."),
    ("svm_type c_svc\n", "", 8, "the header ends without 'svm_type'"),
    ("rho 0.25 -0.5 0.125\n", "", 8, "the header ends without 'rho'"),
    ("gamma 0.5", "gamma 0.5\nfree_sv 1", 4, "unknown key 'free_sv'; this is no LIBSVM model. Expected one of svm_t"),
    ("gamma 0.5", "gamma 0.5\ngamma 0.5", 4, "gamma was already given on line 3; expected it once."),
    ("gamma 0.5", "gamma -0.5", 3, "gamma is -0.5; the rbf kernel needs gamma >= 0."),
    ("gamma 0.5", "gamma nan", 3, "gamma holds 'nan'; expected a finite number."),
    ("gamma 0.5", "gamma 0_5", 3, "gamma holds '0_5'; expected a finite number."),
    ("gamma 0.5", "gamma 0.5\ncoef0 x", 4, "coef0 holds 'x'; expected a finite number."),
    ("gamma 0.5", "gamma 0.5\ndegree 2.5", 4, "degree holds '2.5'; expected a whole number from 0 to 2147483647."),
    ("nr_class 3", "nr_class 1", 4, "nr_class is 1; expected 2 or more. Train on rows of at least two classes."),
    ("nr_class 3", "nr_class 2", 7, "label has 3 value(s); expected 2."),
    ("nr_class 3", "nr_class 2000000000", 7, "label has 3 value(s); expected 2000000000."),
    ("nr_class 3", "nr_class 1e300", 4, "nr_class holds '1e300'; expected a whole number from 1 to 2147483647."),
    ("rho 0.25 -0.5 0.125", "rho 0.25 -0.5", 6, "rho has 2 value(s); expected 3."),
    ("rho 0.25 -0.5 0.125", "rho 0.25 -0.5 1e999", 6, "rho holds '1e999'; expected a finite number."),
    ("label 3 -1 7", "label 3 -1 3", 7, "label 3 is there twice; expected 3 different labels."),
    ("label 3 -1 7", "label 3 -1 7.5", 7, "label holds '7.5'; expected a whole number from -2147483648 to 214748"),
    ("nr_sv 2 1 1", "nr_sv 2 1 2", 8, "nr_sv adds up to 5, but total_sv is 4 (line 5)."),
    ("nr_sv 2 1 1", "nr_sv 2 2 0", 8, "class 7 has no support vectors; the model is damaged. Copy it or train agai"),
    ("nr_sv 2 1 1", "nr_sv 2 1 -1", 8, "nr_sv holds '-1'; expected a whole number from 0 to 2147483647."),
    ("nr_sv 2 1 1", "nr_sv 2 1 1\nprobA 1 2 3", 10, "the header ends without 'probB'"),
    ("nr_sv 2 1 1", "nr_sv 2 1 1\nprobB 1 2 3", 10, "the header ends without 'probA'"),
    ("nr_sv 2 1 1", "nr_sv 2 1 1\nprobA 1 2\nprobB 1 2 3", 9, "probA has 2 value(s); expected 3."),
    ("nr_sv 2 1 1", "nr_sv 2 1 1\ncoef\n1 x", 9, "coef holds 'x'; expected a finite number."),
    ("nr_sv 2 1 1", "nr_sv 2 1 1\nprob_density_marks 1", 9, "prob_density_marks does not belong to svm_type c_svc"),
    ("SV\n", "SV 4\n", 9, "'4' stands after 'SV'; expected the end of the line."),
    ("svm_type c_svc", "svm_type nu_svr", 7, "label does not belong to svm_type nu_svr; the file is damaged."),
]


@pytest.mark.parametrize(("old", "new", "line", "text"), WRONG_HEADERS)
def test_wrong_header(model_of, old, new, line, text):
    assert THREE_CLASSES.count(old) == 1
    path = model_of(THREE_CLASSES.replace(old, new))
    assert message_of(path).startswith(f"{path}, line {line}: {text}")


@pytest.mark.parametrize(
    ("svm_type", "header", "text"),
    [
        ("nu_svr", "nr_class 3", "line 3: nr_class is 3; expected 2 for svm_type nu_svr."),
        ("one_class", "nr_class 2\nprobA 1", "line 4: probA does not belong to svm_type one_class"),
        ("one_class", "nr_class 2\nprob_density_marks 1 2", "line 4: prob_density_marks has 2 value(s); expected 10."),
        ("epsilon_svr", "nr_class 2\nprobA inf", "line 4: probA holds 'inf'; expected a finite number."),
    ],
)
def test_wrong_header_without_classes(model_of, svm_type, header, text):
    path = model_of(PRECOMPUTED.replace("epsilon_svr", svm_type).replace("nr_class 2", header))
    assert message_of(path).startswith(f"{path}, {text}")


LAST = "-0.5 -0.5 1:1 2:2 3:3"
WRONG_VECTORS = [
    (f"{LAST}\n", "", 5, "total_sv is 4, but 3 support vectors follow."),
    (f"{LAST}\n", f"{LAST}\n{LAST}\n", 5, "total_sv is 4, but 5 support vectors follow."),
    (f"{LAST}\n", f"{LAST}\nmore text\n", 14, "found 'more'; expected 2 coefficient(s), finite numbers, first."),
    (f"{LAST}\n", f"\n{LAST}\n", 13, "the line is empty; expected a support vector."),
    (f"{LAST}\n", f"\n\n{LAST}\n", 13, "the line is empty; expected a support vector."),
    (f"{LAST}\n", LAST, 13, "the line has no line end; the file was cut short. Copy it or train again."),
    (LAST, "-0.5", 13, "found 'the end of the line'; expected 2 coefficient(s), finite numbers, first."),
    (LAST, "-0.5 1:1 2:2", 13, "found '1:1'; expected 2 coefficient(s), finite numbers, first."),
    (LAST, "-0.5 x 1:1", 13, "found 'x'; expected 2 coefficient(s), finite numbers, first."),
    (LAST, "-0.5 0_1 1:1", 13, "found '0_1'; expected 2 coefficient(s), finite numbers, first."),
    (LAST, "-0.5 nan 1:1", 13, "the coefficient nan is not finite; expected finite numbers."),
    (LAST, "-0.5 -1e999 1:1", 13, "the coefficient -inf is not finite; expected finite numbers."),
    (LAST, "-0.5 -0.5 -0.5 1:1", 13, "found '-0.5'; expected index:value."),
    (LAST, "-0.5 -0.5 1:1 2", 13, "found '2'; expected index:value."),
    (LAST, "-0.5 -0.5 1:1 2 5 2", 13, "found '2'; expected index:value."),  # three words, like 2:2
    (LAST, "-0.5 -0.5 1:1 2:", 13, "found '2:'; expected index:value."),
    (LAST, "-0.5 -0.5 1:1 :2", 13, "found ':2'; expected index:value."),
    (LAST, "-0.5 -0.5 1:2:3 4", 13, "found '1:2:3'; expected index:value."),
    (LAST, "-0.5 -0.5 1:1 2:x", 13, "found '2:x'; expected index:value."),
    (LAST, "-0.5 -0.5 1:1 2.5:1", 13, "found '2.5:1'; expected index:value."),
    (LAST, "-0.5 -0.5 1:1 2e0:1", 13, "found '2e0:1'; expected index:value."),
    (LAST, "-0.5 -0.5 1:1 2:0x10", 13, "found '2:0x10'; expected index:value."),
    (LAST, "-0.5 -0.5 1:1 +-2:1", 13, "expected 2 coefficient(s) and index:value pairs, separated by spaces."),
    (LAST, "-0.5 -0.5 1:1 2:nan", 13, "found 2:nan; expected a finite number."),
    (LAST, "-0.5 -0.5 1:1 2:1e999", 13, "found 2:inf; expected a finite number."),
    (LAST, "-0.5 -0.5 0:1 2:1", 13, "found 0:1; expected an index from 1 to 2147483647."),
    (LAST, "-0.5 -0.5 -1:0.5", 13, "found -1:0.5; expected an index from 1 to 2147483647."),
    (LAST, "-0.5 -0.5 1:1 2147483648:1", 13, "found 2147483648:1; expected an index from 1 to 2147483647."),
    (LAST, "-0.5 -0.5 1:1 9" + 30 * "9" + ":1", 13, "found '" + 31 * "9" + ":1'; expected an index from 1 to 214748"),
    (LAST, "-0.5 -0.5 1:1 9" + 5000 * "9" + ":1", 13, "found '" + 40 * "9" + "...'; expected an index from 1 to 2147"),
    (LAST, "-0.5 -0.5 1:1 3:3 2:2", 13, "found 2:2; expected an index larger than the one before it."),
    (LAST, "-0.5 -0.5 1:1 1:2", 13, "found 1:2; expected an index larger than the one before it."),
    ("0 0.1 2:1e-3", "0 0.1 2:1 1:1", 11, "found 1:1; expected an index larger than the one before it."),
]


@pytest.mark.parametrize(("old", "new", "line", "text"), WRONG_VECTORS)
def test_wrong_support_vector(model_of, old, new, line, text):
    assert THREE_CLASSES.count(old) == 1
    path = model_of(THREE_CLASSES.replace(old, new))
    assert message_of(path).startswith(f"{path}, line {line}: {text}")


@pytest.mark.parametrize(
    ("vector", "text"),
    [
        ("1 0:0", "found 0:0; a precomputed kernel has '0:serial' with a serial from 1 to 2147483647."),
        ("1 0:1.5", "found 0:1.5; a precomputed kernel has '0:serial' with a serial from 1 to 2147483647."),
        ("1 0:1e300", "found 0:1.0000000000000001e+300; a precomputed kernel has '0:serial'"),
        ("1 1:1", "found 1:1; a precomputed kernel has '0:serial'"),
        ("1", "0 index:value pairs; a precomputed kernel has one, '0:serial', on each line."),
        ("1 0:1 1:0.5", "2 index:value pairs; a precomputed kernel has one, '0:serial', on each line."),
    ],
)
def test_wrong_precomputed_vector(model_of, vector, text):
    path = model_of(PRECOMPUTED.replace("-0.5 0:1", vector))
    assert message_of(path).startswith(f"{path}, line 8: {text}")


def test_models_without_vectors_or_features(model_of):
    path = model_of(regression())
    want = "total_sv is 0: the model has one answer for all. Train with other parameters."
    assert message_of(path) == f"{path}, line 4: {want}"
    path = model_of(regression("1 ", "-1 "))
    want = "no support vector has a feature. Train on rows that have some."
    assert message_of(path) == f"{path}, line 7: {want}"


@pytest.mark.parametrize("text", [THREE_CLASSES, PRECOMPUTED, THREE_CLASSES.replace("\n", "\r\n")])
def test_cut_anywhere(model_of, text):
    """Every prefix is refused, also the one that lacks the last line end alone: it may have lost digits as well."""
    for length in range(len(text)):
        path = model_of(text[:length])
        message = message_of(path)
        assert message.startswith(f"{path}, line " if length else f"{path} is empty; expected a LIBSVM model."), length


@needs_programs
def test_cut_anywhere_in_a_trained_model(tmp_path, model_of):
    text = svm_train(tmp_path, *clouds(n_rows=30), "-b", 1).read_bytes()
    lines = text.splitlines(keepends=True)
    for length in [*range(0, len(text), 7), *np.cumsum([len(line) for line in lines[:-1]])]:
        assert "line" in message_of(model_of(text[:length])) or length == 0
    for number in range(len(lines)):
        assert ", line " in message_of(model_of(b"".join(lines[:number] + lines[number + 1 :])))


def test_cut_and_unreadable_headers_say_what_they_are(model_of):
    want = "the file ends before the 'SV' line; it was cut short. Copy it or train again."
    for text in ("svm_type c_svc\nkernel_type rb", "svm_type c_svc\nkern", "svm_type c_svc\nSV"):
        path = model_of(text)
        assert message_of(path) == f"{path}, line 2: {want}"
    path = model_of(b"\x7fELF\x02\x00\xff" * 50)
    assert message_of(path).startswith(f"{path}, line 1: unknown key '\\x7fELF\\x02\\x00\\\\xff\\x7fELF")
    assert "...'; this is no LIBSVM model." in message_of(path)


def test_random_damage_is_an_error_or_a_model(model_of):
    """Bytes changed, dropped or doubled at random: a ValueError or a consistent machine, nothing else."""
    rng = np.random.default_rng(0)
    alphabet = np.frombuffer(b"0123456789+-.eE: \t\r\n\0\xffSVxn_,", dtype=np.uint8)
    messages = []
    for _ in range(1500):
        text = np.frombuffer((THREE_CLASSES if rng.random() < 0.7 else PRECOMPUTED).encode(), dtype=np.uint8).copy()
        at = rng.integers(len(text), size=rng.integers(1, 4))
        text[at] = rng.choice(alphabet, size=len(at))
        start, stop = np.sort(rng.integers(len(text), size=2)) if rng.random() < 0.3 else (0, 0)
        try:
            machine = read_model(model_of(np.delete(text, np.s_[start : min(stop, start + 9)]).tobytes()))
        except ValueError as error:
            messages.append(str(error))
        else:
            assert np.isfinite(machine.dual_coef).all()
    assert all("model, line " in message for message in messages)
    assert len(messages) > 750


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (regression("1 1:1 2147483647:1"), "sparse"),
        (PRECOMPUTED.replace("0:3", "0:2147483647"), "columns"),
        (regression("1 1:1", total=2_000_000_000), "line 4: total_sv is 2000000000, but 1 support vectors follow."),
        (THREE_CLASSES.replace("nr_class 3", "nr_class 2000000000"), "line 7: label has 3 value(s)"),
    ],
)
def test_claims_cost_no_memory(model_of, text, outcome):
    path = model_of(text)
    tracemalloc.start()
    try:
        if outcome.startswith("line"):
            assert outcome in message_of(path)
        else:
            machine = read_model(path)
            assert (outcome == "sparse") == machine.has_sparse_vectors
            assert machine.n_features == (2**31 - 1 if outcome == "sparse" else None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000


def test_missing_file_and_directory(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_model(tmp_path / "nowhere")
    with pytest.raises(OSError, match=tmp_path.name):
        read_model(tmp_path)


def test_paths_may_be_strings(tmp_path):
    machine = machine_of()
    machine.to_libsvm(str(tmp_path / "model"))
    assert_same_machine(KernelMachine.from_libsvm(str(tmp_path / "model")), machine)
