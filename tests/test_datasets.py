"""Data sets by name: places, parts, forms, the parsed copies, downloads, and every message. No network."""

import bz2
import gzip
import io
import lzma
import os
import sys
import urllib.error
from email.message import Message

import numpy as np
import pytest
from scipy import sparse

from svelto import datasets
from svelto._generators import DEFAULT_NOISE
from svelto.datasets import DatasetNotFoundError, load, names, plane_example, two_spirals

TRAIN = b"+1 1:0.5 2:-1\n-1 1:0.25 3:2\n+1 2:4\n"
TEST = b"-1 1:1\n+1 4:0.125\n"
REAL_DATA = os.environ.get("SVELTO_DATA")  # read before the fixture sets its own


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """A data folder and a cache of our own, and a network that is never there."""

    def no_network(url):
        raise urllib.error.URLError(f"no network in tests ({url})")

    (tmp_path / "data").mkdir()
    monkeypatch.setenv("SVELTO_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("SVELTO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets, "_open_url", no_network)
    return tmp_path


def put(folder, name, content):
    folder.mkdir(parents=True, exist_ok=True)
    compress = {".bz2": bz2.compress, ".xz": lzma.compress, ".gz": gzip.compress}.get(os.path.splitext(name)[1], bytes)
    (folder / name).write_bytes(compress(content))
    return folder / name


class Answer(io.BytesIO):
    """What `urlopen` returns, as far as we use it."""

    def __init__(self, content, length=None):
        super().__init__(content)
        self.headers = {} if length is None else {"Content-Length": str(length)}


def page_with(monkeypatch, files):
    """A LIBSVM page that holds `files` (path after the page's address); returns the list of addresses asked for."""
    asked = []

    def open_url(url):
        asked.append(url.removeprefix(datasets.PAGE + "/"))
        if asked[-1] not in files:
            raise urllib.error.HTTPError(url, 404, "Not Found", Message(), io.BytesIO())
        content = files[asked[-1]]
        return content if isinstance(content, Answer) else Answer(content, len(content))

    monkeypatch.setattr(datasets, "_open_url", open_url)
    return asked


# -- loading -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", ".bz2", ".xz", ".gz"])
def test_both_parts_have_the_known_width_and_whole_labels(places, suffix):
    put(places / "data", "svmguide1" + suffix, TRAIN)
    put(places / "data", "svmguide1.t" + suffix, TEST)
    b = load("svmguide1", dense=True)
    assert b.X_train.tolist() == [[0.5, -1, 0, 0], [0.25, 0, 2, 0], [0, 4, 0, 0]]
    assert b.X_test.tolist() == [[1, 0, 0, 0], [0, 0, 0, 0.125]]
    assert b.y_train.tolist() == [1, -1, 1]
    assert b.y_test.tolist() == [-1, 1]
    assert b.y_train.dtype == np.int64
    assert b.X_train.dtype == np.float64
    assert (b.name, b.n_features, b.classes.tolist()) == ("svmguide1", 4, [-1, 1])
    assert [os.path.basename(f) for f in b.files] == ["svmguide1" + suffix, "svmguide1.t" + suffix]


def test_parts(places):
    put(places / "data", "svmguide1", TRAIN)
    alone = load("svmguide1", part="train")  # the test file is not even looked for
    assert alone.X_test is None
    assert alone.y_test is None
    assert alone.X_train.shape == (3, 4)
    put(places / "data", "svmguide1.t", TEST)
    whole = load("svmguide1", part="whole", dense=True)
    assert whole.X_test is None
    assert whole.y_train.tolist() == [1, -1, 1, -1, 1]
    assert whole.X_train[3:].tolist() == [[1, 0, 0, 0], [0, 0, 0, 0.125]]


def test_set_without_test_part_has_none(places):
    put(places / "data", "fourclass_scale", b"+1 1:1 2:1\n-1 2:1\n")
    b = load("fourclass_scale")
    assert b.X_test is None
    assert b.y_test is None
    assert b.X_train.shape == (2, 2)


def test_isolet_takes_its_fifth_file_as_test_part(places):
    put(places / "data", "isolet1", b"1 1:1\n")
    put(places / "data", "isolet5", b"2 617:1\n3 1:1\n")
    b = load("isolet")
    assert b.X_train.shape == (1, 617)
    assert b.y_test.tolist() == [2, 3]
    assert load("isolet5").X_train.shape == (2, 617)


def test_dense_auto_follows_the_training_part(places):
    put(places / "data", "svmguide1", TRAIN)  # 5 of 12 values stored
    put(places / "data", "svmguide1.t", b"1\n-1\n")
    auto, csr = load("svmguide1"), load("svmguide1", dense=False)
    assert isinstance(auto.X_train, np.ndarray)
    assert isinstance(auto.X_test, np.ndarray)
    assert isinstance(csr.X_train, sparse.csr_matrix)
    assert isinstance(csr.X_test, sparse.csr_matrix)
    assert csr.X_train.dtype == np.float64
    assert csr.X_train.indices.dtype == np.int32
    assert (csr.X_train.toarray() == auto.X_train).all()
    put(places / "data", "a1a", b"1 1:1 2:1\n")  # 2 of 123
    put(places / "data", "a1a.t", b"1 1:1\n")
    assert sparse.issparse(load("a1a").X_train)
    assert isinstance(load("a1a", dense=True).X_train, np.ndarray)


def test_ida_splits(places):
    put(places / "data", "ida_banana", b"1 1:0\n-1 1:1\n1 1:2\n-1 1:3\n")
    train, test = np.array([[0, 1], [3, 2]], np.uint16), np.array([[2, 3], [1, 0]], np.uint16)
    np.savez(places / "data" / "ida_banana.splits.npz", train=train, test=test, official=np.array([True, False]))
    first, second = load("ida_banana", dense=True), load("ida_banana", split=1, dense=True)
    assert first.X_train[:, 0].tolist() == [0, 1]
    assert first.X_test[:, 0].tolist() == [2, 3]
    assert second.X_train[:, 0].tolist() == [3, 2]
    assert second.y_test.tolist() == [-1, 1]
    assert (first.split, first.n_splits, first.official) == (0, 2, True)
    assert second.official is False
    assert load("ida_banana", part="whole", dense=True).X_train[:, 0].tolist() == [0, 1, 2, 3]
    assert load("ida_banana", part="train").X_test is None
    with pytest.raises(ValueError, match=r"split is 2; ida_banana.splits.npz holds the splits 0 to 1\."):
        load("ida_banana", split=2)
    np.savez(places / "data" / "ida_banana.splits.npz", train=train + 1, test=test, official=np.array([True, False]))
    with pytest.raises(ValueError, match=r"ida_banana.splits.npz: row number 4 occurs, but the set has 4 rows\."):
        load("ida_banana")
    (places / "data" / "ida_banana.splits.npz").write_bytes(b"PK nonsense")
    with pytest.raises(ValueError, match=r"ida_banana.splits.npz: not a readable file of splits"):
        load("ida_banana")


def test_options_are_checked(places):
    put(places / "data", "svmguide1", TRAIN)
    with pytest.raises(ValueError, match=r"part is 'test'; expected 'both', 'train' or 'whole'\."):
        load("svmguide1", part="test")
    with pytest.raises(ValueError, match=r"dense is 'yes'; expected True, False or 'auto'\."):
        load("svmguide1", dense="yes")
    with pytest.raises(ValueError, match=r"split is 3, but 'svmguide1' has no numbered splits; only the ida_\* sets"):
        load("svmguide1", split=3)


def test_names():
    listed = names()
    assert listed == sorted(listed)
    assert len(listed) == len(set(listed)) == 65
    assert {"ijcnn1", "covtype.libsvm.binary.scale", "mnist", "ida_banana", "w2a", "isolet"} <= set(listed)


def test_unknown_name_suggests_close_ones():
    with pytest.raises(ValueError, match=r"Unknown data set 'ijcnn'. Did you mean 'ijcnn1'.*names\(\) lists all 65"):
        load("ijcnn")
    with pytest.raises(ValueError, match=r"Unknown data set 'qqqqqqqq'. svelto.datasets.names\(\) lists"):
        load("qqqqqqqq")
    with pytest.raises(ValueError, match=r"'a1a.t' is the test part of 'a1a': use load\('a1a'\).X_test\."):
        load("a1a.t")


# -- places ------------------------------------------------------------------------------------------------------


def test_data_folder_comes_before_the_cache_and_is_never_written(places):
    put(places / "cache" / "data", "heart_scale", b"1 1:2\n")
    assert load("heart_scale").X_train[0, 0] == 2
    put(places / "data", "heart_scale", b"1 1:3\n")
    os.chmod(places / "data", 0o555)
    assert load("heart_scale", dense=True).X_train[0, 0] == 3
    assert os.listdir(places / "data") == ["heart_scale"]
    os.chmod(places / "data", 0o755)


def test_cache_folder(places, monkeypatch):
    monkeypatch.delenv("SVELTO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(places / "xdg"))
    assert datasets._cache_folder() == places / "xdg" / "svelto"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # invalid by the XDG specification
    monkeypatch.setenv("HOME", str(places / "home"))
    assert datasets._cache_folder() == places / "home" / ".cache" / "svelto"


def test_offline_error_names_set_places_and_cure(places, monkeypatch):
    with pytest.raises(DatasetNotFoundError) as caught:
        load("ijcnn1")
    message = str(caught.value)
    assert message.startswith(
        f"Data set 'ijcnn1': ijcnn1 is neither in $SVELTO_DATA ({places / 'data'}) nor in the cache "
    )
    assert f"The download of {datasets.PAGE}/binary/ijcnn1 (also .bz2, .xz) failed: " in message
    assert "no network in tests" in message
    assert f"or download it by hand into {places / 'cache' / 'data'}." in message
    assert isinstance(caught.value, FileNotFoundError)
    monkeypatch.setenv("SVELTO_DATA", str(places / "nowhere"))
    with pytest.raises(DatasetNotFoundError, match=r"SVELTO_DATA \(.*nowhere: no such folder\)"):
        load("ijcnn1")
    monkeypatch.delenv("SVELTO_DATA")
    with pytest.raises(DatasetNotFoundError, match=r"neither in \$SVELTO_DATA \(not set\) nor in the cache"):
        load("ijcnn1")


def test_sets_that_are_not_on_the_page_are_not_asked_for(monkeypatch):
    asked = page_with(monkeypatch, {})
    with pytest.raises(DatasetNotFoundError, match=r"It is not on the LIBSVM data page, so it cannot be downloaded\."):
        load("ida_banana")
    assert asked == []


def test_missing_splits_file_is_named(places):
    put(places / "data", "ida_banana", b"1 1:0\n")
    with pytest.raises(DatasetNotFoundError, match=r"Set SVELTO_DATA to a folder that holds ida_banana.splits.npz\."):
        load("ida_banana")


# -- download ----------------------------------------------------------------------------------------------------


def test_download_goes_into_the_cache_once(places, monkeypatch):
    files = {"binary/svmguide1": TRAIN, "binary/svmguide1.t.bz2": bz2.compress(TEST)}
    asked = page_with(monkeypatch, files)
    b = load("svmguide1")
    assert b.X_train.shape == (3, 4)
    assert b.X_test.shape == (2, 4)
    assert asked == [f"binary/svmguide1{s}" for s in (".bz2", ".xz", "")] + ["binary/svmguide1.t.bz2"]
    assert sorted(os.listdir(places / "cache" / "data")) == ["svmguide1", "svmguide1.t.bz2"]
    load("svmguide1")
    assert len(asked) == 4
    page_with(monkeypatch, {"multiclass/wine.scale": b"1 13:1\n"})
    assert load("wine.scale").X_train.shape == (1, 13)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(b"1 1:1\n", 60), r"received 6 bytes of heart_scale.bz2, expected 60"),
        (Answer(b"", None), r"received 0 bytes of heart_scale.bz2, expected some"),
        (Answer(b"<html>please log in</html>"), r"the server answered with a web page instead of the file"),
    ],
)
def test_bad_download_leaves_nothing(places, monkeypatch, answer, message):
    page_with(monkeypatch, {"binary/heart_scale.bz2": answer})
    with pytest.raises(DatasetNotFoundError, match=message):
        load("heart_scale")
    assert os.listdir(places / "cache" / "data") == []


def test_interrupted_download_leaves_nothing(places, monkeypatch):
    class Interrupted(Answer):
        def read(self, size=-1):
            if self.tell():
                raise KeyboardInterrupt
            return super().read(3)

    page_with(monkeypatch, {"binary/heart_scale.bz2": Interrupted(b"123456")})
    with pytest.raises(KeyboardInterrupt):
        load("heart_scale")
    assert os.listdir(places / "cache" / "data") == []


@pytest.mark.parametrize("has_rich", [True, False])
def test_download_on_a_terminal(places, monkeypatch, has_rich):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    if has_rich:
        pytest.importorskip("rich")
    else:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    page_with(monkeypatch, {"binary/heart_scale": b"1 1:1\n"})
    assert load("heart_scale").X_train.shape == (1, 13)
    assert ("heart_scale" in sys.stderr.getvalue()) == has_rich


def test_server_error_is_told(monkeypatch):
    asked = []

    def refuse(url):
        asked.append(url)
        raise urllib.error.HTTPError(url, 503, "Service Unavailable", Message(), io.BytesIO())

    monkeypatch.setattr(datasets, "_open_url", refuse)
    with pytest.raises(DatasetNotFoundError, match=r"failed: HTTP Error 503: Service Unavailable\."):
        load("heart_scale")
    assert len(asked) == 1  # another suffix would not help


def test_broken_connection_is_told(monkeypatch):
    def cut(url):
        raise datasets.http.client.IncompleteRead(b"12", 7)

    monkeypatch.setattr(datasets, "_open_url", cut)
    with pytest.raises(DatasetNotFoundError, match=r"failed: the connection broke off \(IncompleteRead\(2 bytes"):
        load("heart_scale")


# -- damaged files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".bz2", ".xz", ".gz"])
@pytest.mark.parametrize("damage", ["cut short", "nonsense"])
def test_damaged_compressed_file_is_named(places, suffix, damage):
    path = put(places / "data", "heart_scale" + suffix, np.random.default_rng(0).bytes(3000).hex().encode())
    path.write_bytes(path.read_bytes()[:-30] if damage == "cut short" else b"\x00nonsense" * 9)
    with pytest.raises(
        ValueError, match=rf"heart_scale\{suffix}: the compressed data are damaged or cut short .*fresh"
    ):
        load("heart_scale")


def test_wrong_width_and_labels_are_told(places):
    put(places / "data", "heart_scale", b"1 14:1\n")
    with pytest.raises(ValueError, match=r"heart_scale: feature number 14 occurs, but 13 features were expected\."):
        load("heart_scale")
    put(places / "data", "iris.scale", b"1.5 1:1\n")
    with pytest.raises(ValueError, match=r"iris.scale: the label 1.5 occurs; expected whole numbers\."):
        load("iris.scale")
    put(places / "data", "wine.scale", b"nan 1:1\n")
    with pytest.raises(ValueError, match=r"wine.scale: the label nan occurs; expected whole numbers\."):
        load("wine.scale")


# -- parsed copies -----------------------------------------------------------------------------------------------


def test_second_load_does_not_parse(places, monkeypatch):
    put(places / "data", "svmguide1", TRAIN)
    put(places / "data", "svmguide1.t", TEST)
    first = load("svmguide1", dense=False)
    monkeypatch.setattr(datasets, "read_svmlight", lambda *a, **k: pytest.fail("parsed again"))
    second = load("svmguide1", dense=False)
    assert (first.X_train != second.X_train).nnz == 0
    assert (first.y_test == second.y_test).all()
    assert second.X_train.shape == (3, 4)
    assert second.y_train.dtype == np.int64


def test_changed_source_is_parsed_again_and_replaces_its_copy(places):
    put(places / "data", "heart_scale", b"1 1:2\n")
    load("heart_scale")
    put(places / "data", "heart_scale", b"1 1:25\n")
    assert load("heart_scale").X_train[0, 0] == 25
    assert len(os.listdir(places / "cache" / "parsed")) == 1


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "pickle", "index"])
def test_damaged_copy_is_built_again(places, damage):
    put(places / "data", "heart_scale", b"1 1:2\n-1 3:4\n")
    load("heart_scale")
    (copy,) = (places / "cache" / "parsed").iterdir()
    good = copy.read_bytes()
    if damage == "empty":
        copy.write_bytes(b"")
    elif damage == "cut":
        copy.write_bytes(good[: len(good) // 2])
    elif damage == "flipped":  # a bit of the first value: the archive's checksum must notice
        at = good.index(np.float64(2).tobytes())
        copy.write_bytes(good[: at + 7] + bytes([good[at + 7] ^ 1]) + good[at + 8 :])
    elif damage == "pickle":
        np.savez(copy, y=np.array([object()]))
    else:
        with np.load(copy) as archive:
            arrays = dict(archive)
        np.savez(copy, **(arrays | {"indices": np.array([0, 99], np.int32)}))
    damaged = copy.read_bytes()
    for _ in range(2):
        b = load("heart_scale", dense=True)
        assert b.X_train[0, 0] == 2
        assert b.X_train[1, 2] == 4
        assert b.y_train.tolist() == [1, -1]
    assert copy.read_bytes() != damaged


def test_cache_that_cannot_be_written_is_done_without(places, monkeypatch):
    (places / "file").write_text("not a folder")
    monkeypatch.setenv("SVELTO_CACHE", str(places / "file"))
    put(places / "data", "heart_scale", b"1 1:2\n")
    assert load("heart_scale").X_train[0, 0] == 2


# -- real files, where they are ----------------------------------------------------------------------------------


def test_real_files_have_the_published_sizes(monkeypatch):
    if not REAL_DATA:
        pytest.skip("SVELTO_DATA is not set: no real data here")
    monkeypatch.setenv("SVELTO_DATA", REAL_DATA)
    a1a = load("a1a")
    assert a1a.X_train.shape == (1605, 123)
    assert a1a.X_test.shape == (30956, 123)
    assert sparse.issparse(a1a.X_train)
    thyroid = load("ida_thyroid", split=18)
    assert thyroid.X_train.shape == (140, 5)
    assert thyroid.X_test.shape == (75, 5)
    assert thyroid.n_splits == 19
    iris = load("iris.scale")
    assert iris.X_train.shape == (150, 4)
    assert iris.classes.tolist() == [1, 2, 3]


# -- generators --------------------------------------------------------------------------------------------------


def test_two_spirals_without_noise_is_the_papers_curve():
    X, y = two_spirals(2000, noise=0, random_state=0)
    radius = np.hypot(*X.T)
    assert X.shape == (2000, 2)
    assert y.dtype == np.int64
    assert (y == 1).sum() == 1000
    tau = (500 * radius) ** (1 / 2.5)
    np.testing.assert_allclose(np.sort(tau), np.repeat(10 * np.pi * np.arange(1, 1001) / 1000, 2), rtol=1e-9)
    direction = np.column_stack([np.sin(tau), np.cos(tau)]) * radius[:, None] * y[:, None]
    np.testing.assert_allclose(X, direction, atol=1e-9)


@pytest.mark.parametrize("spread", ["deviation", "variance"])
def test_two_spirals_noise_is_proportional_to_the_gap(spread):
    clean, _ = two_spirals(40_000, noise=0, random_state=3)
    noisy, _ = two_spirals(40_000, spread=spread, random_state=3)
    radius = np.hypot(*clean.T)
    tau = (500 * radius) ** 0.4
    gap = radius - np.maximum(tau - np.pi, 0) ** 2.5 / 500
    scale = gap if spread == "deviation" else np.sqrt(gap)
    ratio = (noisy - clean) / scale[:, None]
    want = DEFAULT_NOISE[spread] if spread == "deviation" else DEFAULT_NOISE[spread] ** 0.5
    for part in (tau < 10, tau > 20):
        # 25,000 draws or more: the sample's deviation is within 2 % of the true one (4.5 standard errors).
        assert abs(ratio[part].std() / want - 1) < 0.02
        assert abs(ratio[part].mean()) < 0.02


def test_two_spirals_is_reproducible_and_takes_odd_numbers():
    a, b = two_spirals(101, random_state=5), two_spirals(101, random_state=5)
    assert (a[0] == b[0]).all()
    assert (a[1] == b[1]).all()
    assert (a[1] == 1).sum() == 51
    assert (a[0] != two_spirals(101, random_state=6)[0]).any()
    assert two_spirals(random_state=0)[0].shape == (100_000, 2)


def test_plane_example():
    X, y = plane_example(random_state=0)
    assert X.shape == (512, 2)
    assert X.min() >= -1
    assert X.max() <= 1
    assert set(y.tolist()) == {-1, 1}
    assert 0.4 < np.mean(y == 1) < 0.6
    assert (plane_example(random_state=0)[0] == X).all()
    from sklearn.svm import SVC, LinearSVC

    # Not separable by a line, easy for an RBF machine.
    assert LinearSVC(random_state=0).fit(X, y).score(X, y) < 0.85 < SVC(C=100, gamma=4).fit(X, y).score(X, y)
    assert sorted(plane_example(2, random_state=0)[1].tolist()) == [-1, 1]


@pytest.mark.parametrize("maker", [two_spirals, plane_example])
@pytest.mark.parametrize("n_samples", [1, 2.5, "ten"])
def test_number_of_samples_is_checked(maker, n_samples):
    with pytest.raises(ValueError, match=rf"n_samples is {n_samples!r}; expected a whole number >= 2"):
        maker(n_samples)


def test_noise_options_are_checked():
    with pytest.raises(ValueError, match=r"noise is -0.1; expected a finite number >= 0\."):
        two_spirals(10, noise=-0.1)
    with pytest.raises(ValueError, match=r"spread is 'both'; expected 'deviation' or 'variance'\."):
        two_spirals(10, spread="both")
