"""Numbers in files that claim more than is there: memory follows what is there."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

import svelto
from libsvm_help import PRECOMPUTED, regression
from svelto.engines.exact import PROBE_NUMBERS, _probe_rows, prefers_postings
from svelto.engines.table_width import BYTES_PER_NUMBER, FREE_BYTES, INDEX_BYTES, PLANE_BYTES, check_width

WIDEST = 2**31 - 1


def wide_machine(width, kernel="rbf", n_sv=2, stored=1):
    rng = np.random.default_rng(0)
    columns = np.concatenate([np.sort(rng.choice(min(width, 10**6), stored, replace=False)) for _ in range(n_sv)])
    starts = np.arange(n_sv + 1) * stored
    vectors = sparse.csr_matrix((np.ones(len(columns)), columns, starts), shape=(n_sv, width))
    return svelto.KernelMachine.from_arrays(
        kernel=kernel, support_vectors=vectors, dual_coef=np.ones(n_sv), intercept=0.0, classes=[0, 1]
    )


def test_a_model_of_two_numbers_and_two_billion_features(tmp_path):
    (tmp_path / "model").write_text(regression("1 1:1 2147483647:1", "-1 2:1"))
    machine = svelto.KernelMachine.from_libsvm(tmp_path / "model")
    assert machine.n_features == WIDEST
    message = (
        r"The machine has 2,147,483,647 features, and its support vectors only 3 numbers that are not zero; tables "
        r"with an entry for each feature would take 768 GiB\. Number the features without gaps and train again\."
    )
    with pytest.raises(ValueError, match=message):
        svelto.accelerate(machine, method="exact")


@pytest.mark.parametrize(("kernel", "each"), [("rbf", INDEX_BYTES), ("poly", INDEX_BYTES), ("linear", PLANE_BYTES)])
def test_stored_numbers_speak_for_a_width(kernel, each):
    """The same width is refused with few numbers and taken with many; nothing is built here."""
    width = FREE_BYTES // each + 1
    enough = -(-width * each // BYTES_PER_NUMBER)
    check_width(wide_machine(width - 1, kernel))
    check_width(wide_machine(width, kernel, n_sv=1, stored=enough))
    with pytest.raises(ValueError, match="Number the features without gaps"):
        check_width(wide_machine(width, kernel, n_sv=1, stored=enough - 1))


def test_few_vectors_of_many_features_get_no_panels():
    """A panel of 32 vectors times a million features, of which two are used, would be a gigabyte."""
    assert prefers_postings(wide_machine(1_000_000))


def test_probe_rows_of_wide_machines_are_few():
    assert _probe_rows(wide_machine(1000)).shape == (256, 1000)
    wide = _probe_rows(wide_machine(400_000))
    assert wide.shape[0] >= 8
    assert wide.size <= 2 * PROBE_NUMBERS


def test_kernel_values_that_are_not_needed_are_not_stored(run, tmp_path):
    """LIBSVM text of a precomputed kernel with one value far outside; the answer is that of the row without it."""
    (tmp_path / "model").write_text(PRECOMPUTED)
    (tmp_path / "far").write_text("1 0:1 1:2 3:5 2147483646:1\n")
    (tmp_path / "near").write_text("1 0:1 1:2 3:5\n")
    answers = [run("predict", tmp_path / "model", tmp_path / name, "-q") for name in ("far", "near")]
    assert answers[0] == answers[1]
    assert answers[0][:2] == (0, b"2.5\n")


def test_saved_machines_know_how_many_kernel_values_there_are(run, tmp_path):
    values = np.array([[2.0, 0.0, 5.0, 1.0]])
    machine = svelto.KernelMachine.from_arrays(
        kernel="precomputed", support_vectors=[2, 0], dual_coef=[0.5, -0.5], intercept=1.0
    )
    replace(machine, n_features=4).save(tmp_path / "model.svelto")
    np.savetxt(tmp_path / "rows.csv", values, delimiter=",")
    assert run("predict", tmp_path / "model.svelto", tmp_path / "rows.csv", "-q")[:2] == (0, b"2.5\n")
    for n, name in ((5, "many"), (2, "few")):
        np.savetxt(tmp_path / f"{name}.csv", np.resize(values, (1, n)), delimiter=",")
        code, _, err = run("predict", tmp_path / "model.svelto", tmp_path / f"{name}.csv", "-q")
        assert code == 1
        assert f"{name}.csv has {n} kernel values a row; this precomputed kernel needs 4" in err


def test_errors_too_large_for_json(run, tmp_path):
    """Labels near the largest number: the mean square overflows, which is null in JSON and inf in text."""
    (tmp_path / "model").write_text(regression("1 1:1"))
    (tmp_path / "rows").write_text("1e308 1:1\n")
    code, out, err = run("predict", tmp_path / "model", tmp_path / "rows", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out, parse_constant=pytest.fail)["mean_squared_error"] is None
    code, _, err = run("predict", tmp_path / "model", tmp_path / "rows")
    assert code == 0
    assert err.startswith("Mean squared error = inf (regression)\n")
