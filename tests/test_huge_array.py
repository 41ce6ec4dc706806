"""Memory that prediction takes does not grow with the rows: large arrays are mapped, and read in blocks."""

import json
import mmap
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import svelto
from huge_array import spread
from svelto import _rowfiles, row_blocks
from svelto._inputs import BadRowError
from svelto._rowfiles import UnreadableFileError

METHODS = ("exact", "hinges", "taylor_tree", "scaled")
PROGRAM = Path(__file__).parent / "huge_array.py"
needs_proc = pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="memory is read from /proc")


def predict_in_a_process(path, n_features, timeout):
    command = [sys.executable, str(PROGRAM), str(path), str(n_features), *METHODS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert [report["method"] for report in reports] == list(METHODS)
    return reports


@needs_proc
def test_memory_stays_small(tmp_path):
    """300 MB of float32 rows, half of them far from all others: stages copy those together for the exact engine."""
    path = tmp_path / "rows.bin"
    rng = np.random.default_rng(1)
    block = (rng.normal(size=(50_000, 60)) * spread(60)).astype(np.float32)
    block[::2] *= 40.0
    with open(path, "wb") as file:
        for _ in range(25):
            block.tofile(file)
    for report in predict_in_a_process(path, 60, timeout=300):
        assert report["rows"] == 25 * 50_000
        assert report["same_ends"]
        assert 0 < report["positive"] < report["rows"]
        assert report["growth"] < 100e6, report
        if report["method"] in ("hinges", "taylor_tree"):
            assert 0.3 < report["settled"]["exact"] < 0.7


@pytest.mark.slow
@needs_proc
def test_twenty_gigabytes(tmp_path):
    """A file with holes, which takes no room on the disk, beyond what a computer of 24 GiB can copy."""
    path = tmp_path / "rows.bin"
    ends = (np.random.default_rng(2).normal(size=(1_000, 100)) * spread(100)).astype(np.float32)
    with open(path, "wb") as file:
        ends.tofile(file)
        file.truncate(20 * 10**9 - ends.nbytes)
        file.seek(0, 2)
        ends.tofile(file)
    for report in predict_in_a_process(path, 100, timeout=3_000):
        assert report["rows"] == 50_000_000
        assert report["same_ends"]
        assert report["growth"] < report["answer_bytes"] + 0.5e9, report


# -- answers of blocks are those of one call --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def machine_and_rows():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(900, 4))
    y = np.digitize(X[:, 0] + X[:, 1] ** 2, [0.0, 1.5])
    return SVC(gamma=0.5).fit(X[:300], y[:300]), X


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(row_blocks, "LEAST_ROWS", 1)
    monkeypatch.setattr(row_blocks, "BLOCK_BYTES", 8 * 4 * 100)  # a hundred rows of four features


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
@pytest.mark.parametrize("method", ["predict", "decision_function", "score_bounds"])
def test_blocks_change_nothing(machine_and_rows, monkeypatch, method, dtype):
    svc, X = machine_and_rows
    fast, X = svelto.accelerate(svc, method="exact"), (3 * X).astype(dtype)
    expected = getattr(fast, method)(X)
    monkeypatch.setattr(row_blocks, "BLOCK_BYTES", 8 * 4 * 100)
    monkeypatch.setattr(row_blocks, "LEAST_ROWS", 1)
    found = getattr(fast, method)(X)
    assert found.dtype == expected.dtype
    assert_array_equal(found, expected)


def test_cascades_give_the_same_labels(machine_and_rows, small_blocks):
    svc, X = machine_and_rows
    fast = svelto.accelerate(svc, X[:300], method="taylor_tree", agreement=0.9, random_state=0)
    assert_array_equal(fast.predict(X), np.concatenate([fast.predict(X[i : i + 50]) for i in range(0, 900, 50)]))


@pytest.mark.parametrize("scaler", [False, True])
def test_a_bad_row_is_named_by_its_number_in_the_whole_array(machine_and_rows, small_blocks, scaler):
    svc, X = machine_and_rows
    model = make_pipeline(StandardScaler(), SVC()).fit(X[:300], X[:300, 0] > 0) if scaler else svc
    X = X.astype(np.float32)
    X[777, 2] = np.nan
    with pytest.raises(ValueError, match=r"X contains nan \(row 777, column 2\)"):
        svelto.accelerate(model, method="exact").predict(X)


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_a_bad_row_of_a_matrix(machine_and_rows, small_blocks):
    svc, X = machine_and_rows
    X = np.asmatrix(X.copy())
    X[777, 2] = np.nan
    with pytest.raises(ValueError, match=r"X contains nan \(row 777, column 2\)"):
        svelto.accelerate(svc, method="exact").predict(X)


def test_transformers_see_all_rows_at_once(small_blocks):
    class Centred(StandardScaler):
        """Depends on the other rows, as nothing should."""

        def transform(self, X):
            return X - X.mean(axis=0)

    X = np.random.default_rng(4).normal(size=(500, 4)) + 5.0
    model = make_pipeline(Centred(), SVC()).fit(X[:200], X[:200, 0] > 5.0)
    assert_array_equal(svelto.accelerate(model, method="exact").predict(X), model.predict(X))


def test_the_error_of_a_bad_row_pickles():
    error = pickle.loads(pickle.dumps(BadRowError("Row 3 is bad.", 3, 1)))
    assert (str(error), error.row, error.fault) == ("Row 3 is bad.", 3, 1)


# -- files of the command line -----------------------------------------------------------------------------------------


def test_large_npy_files_are_mapped(tmp_path, monkeypatch):
    X = np.random.default_rng(5).normal(size=(50, 3))
    np.save(tmp_path / "rows.npy", X)
    monkeypatch.setattr(_rowfiles, "MAPPED_BYTES", 100)
    rows = _rowfiles.read_rows(tmp_path / "rows.npy").X
    assert_array_equal(rows, X)
    assert isinstance(rows.base if rows.base is not None else rows, np.memmap | mmap.mmap)


def test_large_files_that_are_no_npy(tmp_path, monkeypatch):
    monkeypatch.setattr(_rowfiles, "MAPPED_BYTES", 100)
    np.savez(tmp_path / "rows", X=np.ones((50, 3)))
    (tmp_path / "rows.npz").rename(tmp_path / "rows.npy")
    np.save(tmp_path / "objects.npy", np.array([[None] * 40]), allow_pickle=True)
    (tmp_path / "zip.npy").write_bytes(b"PK" + bytes(200))
    for name in ("rows.npy", "objects.npy", "zip.npy"):
        with pytest.raises(UnreadableFileError, match="not a readable NPY file"):
            _rowfiles.read_rows(tmp_path / name)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_values_are_checked_block_by_block(monkeypatch, form):
    X = np.arange(1.0, 61.0).reshape(20, 3)
    X[13, 2] = np.inf
    monkeypatch.setattr(_rowfiles, "CHECKED_VALUES", 12)
    with pytest.raises(ValueError, match=r"row 14, column 3: the value is inf"):
        _rowfiles._check_finite(Path("rows.npy"), form(X))
