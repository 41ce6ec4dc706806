"""Data sets of the papers, by name: `load("ijcnn1")`.

A file `NAME`, `NAME.bz2`, `NAME.xz` or `NAME.gz` of LIBSVM text is looked for in

1. the folder `$SVELTO_DATA`, which is only ever read;
2. the user's cache: `$SVELTO_CACHE`, or `$XDG_CACHE_HOME/svelto`, or `~/.cache/svelto`, there in `data/`;
3. the LIBSVM data page, from where it is downloaded into the cache.

The parsed rows are kept in the cache too (`parsed/`), so a second `load` reads arrays instead of text. A copy that is
damaged, or older than its source, is built again; a cache that cannot be written is done without.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import http.client
import os
import sys
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import Bunch

from svelto._generators import plane_example, two_spirals
from svelto._rowfiles import read_svmlight, write_atomically
from svelto._typing import Rows

__all__ = ["DatasetNotFoundError", "load", "names", "plane_example", "two_spirals"]

Dense: TypeAlias = bool | Literal["auto"]
Part: TypeAlias = Literal["both", "train", "whole"]
Parsed: TypeAlias = tuple[sparse.csr_matrix, NDArray[np.int64]]

PAGE: Final = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"
SUFFIXES: Final = ("", ".bz2", ".xz", ".gz")
PAGE_SUFFIXES: Final = (".bz2", ".xz", "")
TIMEOUT_SECONDS: Final = 30
# From one stored value in five on, a dense array takes at most 3.4 times the memory of CSR (8 bytes against 12 for
# each stored value) and spares every method its index lookups.
DENSE_FROM: Final = 0.2
PARSED_VERSION: Final = "1"


# name:n_features of every set. Widths are stated because trailing features may be zero in a whole file (a1a: 119 of
# 123, mnist.t: 778 of 784). First column: folder of the LIBSVM page; "-": not there (its liver-disorders_scale is
# another version, 5 features). Second column: suffix of the test part's file; "-": none.
_TABLE: Final = """
binary     -   australian_scale:14 breast-cancer_scale:10 covtype.libsvm.binary.scale:54 diabetes_scale:8
binary     -   fourclass_scale:2 german.numer_scale:24 heart_scale:13 ijcnn1.tr:22 ijcnn1.val:22 ionosphere_scale:34
binary     -   mushrooms:112 sonar_scale:60
binary     .t  a1a:123 a2a:123 a3a:123 a4a:123 a5a:123 a6a:123 a7a:123 a8a:123 a9a:123 ijcnn1:22 leu:7129 splice:60
binary     .t  svmguide1:4 svmguide3:22 w1a:300 w2a:300 w3a:300 w4a:300 w5a:300 w6a:300 w7a:300 w8a:300
multiclass -   glass.scale:9 iris.scale:4 segment.scale:19 svmguide2:20 vehicle.scale:18 wine.scale:13
multiclass .t  dna.scale:180 letter.scale:16 mnist:784 pendigits:16 satimage.scale:36 usps:256 vowel.scale:10
-          -   arrhythmia:279 isolet1:617 isolet5:617 liver-disorders_scale:6
-          .t  optdigits:64 segmentation:19
-          -   ida_banana:2 ida_breast_cancer:9 ida_diabetis:8 ida_german:20 ida_heart:13 ida_image:18 ida_ringnorm:20
-          -   ida_splice:60 ida_thyroid:5 ida_twonorm:20 ida_waveform:21
"""


class _Set(NamedTuple):
    n_features: int
    folder: str | None
    train: str
    test: str | None


def _read_table(table: str) -> dict[str, _Set]:
    # ISOLET's customary test part is a file of its own; of its training part only the first of four files is around.
    sets = {"isolet": _Set(617, None, "isolet1", "isolet5")}
    for line in table.strip().splitlines():
        folder, test, *entries = line.split()
        for entry in entries:
            name, width = entry.split(":")
            sets[name] = _Set(int(width), None if folder == "-" else folder, name, None if test == "-" else name + test)
    return sets


_SETS: Final = _read_table(_TABLE)


class DatasetNotFoundError(FileNotFoundError):
    """A data set's file is in none of the places and could not be downloaded."""


def names() -> list[str]:
    """Names that `load` takes, sorted."""
    return sorted(_SETS)


def load(name: str, *, part: Part = "both", split: int = 0, dense: Dense = "auto") -> Bunch:
    """Load a data set of the papers.

    Parameters
    ----------
    name : str
        One of `names()`: the file names of the LIBSVM data page, and ``ida_*`` for the IDA / Raetsch benchmarks.
    part : {"both", "train", "whole"}, default="both"
        ``"both"``: the training part, and the test part (`.t`, or the rest of an IDA split) where the set has one;
        otherwise `X_test` and `y_test` are None and all rows are in `X_train`
        (`sklearn.model_selection.train_test_split` makes parts). ``"train"``: the training part alone, the test file
        is not even looked for. ``"whole"``: both parts as one, in `X_train`.
    split : int, default=0
        IDA sets: number of the train/test split, from 0. The result's `n_splits` says how many there are, `official`
        whether this one is the benchmark's own.
    dense : bool or "auto", default="auto"
        True: float64 arrays; False: CSR matrices; "auto": arrays where at least a fifth of the training part's values
        are stored. Both parts get the same form.

    Returns
    -------
    Bunch
        `X_train`, `y_train`, `X_test`, `y_test`, `name`, `n_features`, `classes` (sorted labels), `files` (what was
        read); for IDA sets also `split`, `n_splits`, `official`. Labels are int64 as in the file.

    Raises
    ------
    ValueError
        Unknown name or option, or a file that is damaged.
    DatasetNotFoundError
        (a FileNotFoundError) The file was not found and could not be downloaded.
    """
    known = _SETS.get(name)
    if known is None:
        raise ValueError(_unknown(name))
    if part not in ("both", "train", "whole"):
        raise ValueError(f"part is {part!r}; expected 'both', 'train' or 'whole'.")
    if dense not in (True, False, "auto"):
        raise ValueError(f"dense is {dense!r}; expected True, False or 'auto'.")
    is_ida = name.startswith("ida_")
    if split != 0 and not is_ida:
        raise ValueError(f"split is {split}, but {name!r} has no numbered splits; only the ida_* sets have them.")

    files = [_find(name, known.train)]
    X, y = _read(files[0], known.n_features)
    X_test: Rows = None
    y_test: NDArray[np.int64] | None = None
    more: dict[str, Any] = {}
    if is_ida:
        files.append(_find(name, f"{name}.splits.npz"))
        train, test, more = _ida_split(files[1], split, X.shape[0])
        if part != "whole":
            X, y, X_test, y_test = X[train], y[train], X[test], y[test]
    elif known.test is not None and part != "train":
        files.append(_find(name, known.test))
        X_test, y_test = _read(files[1], known.n_features)
        if part == "whole":
            X, y = sparse.vstack([X, X_test], format="csr"), np.concatenate([y, y_test])
    if part != "both":
        X_test = y_test = None
    if dense is True or (dense == "auto" and X.nnz >= DENSE_FROM * X.shape[0] * X.shape[1]):
        X, X_test = X.toarray(), None if X_test is None else X_test.toarray()
    return Bunch(
        X_train=X,
        y_train=y,
        X_test=X_test,
        y_test=y_test,
        name=name,
        n_features=known.n_features,
        classes=np.unique(y),
        files=tuple(str(file) for file in files),
        **more,
    )


def _unknown(name: str) -> str:
    if name.endswith(".t") and name[:-2] in _SETS:
        return f"{name!r} is the test part of {name[:-2]!r}: use load({name[:-2]!r}).X_test."
    close = difflib.get_close_matches(str(name), _SETS, n=4, cutoff=0.5)
    hint = f" Did you mean {' or '.join(repr(n) for n in close)}?" if close else ""
    return f"Unknown data set {name!r}.{hint} svelto.datasets.names() lists all {len(_SETS)} names."


def _ida_split(path: Path, split: int, n_rows: int) -> tuple[Any, Any, dict[str, Any]]:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            train, test, official = archive["train"], archive["test"], archive["official"]
    except (ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path}: not a readable file of splits ({error}). Replace it by a fresh copy.") from None
    if not 0 <= split < len(train):
        raise ValueError(f"split is {split}; {path.name} holds the splits 0 to {len(train) - 1}.")
    highest = max(int(train.max()), int(test.max()))
    if highest >= n_rows:
        raise ValueError(
            f"{path}: row number {highest} occurs, but the set has {n_rows} rows. Replace it by a fresh copy."
        )
    return train[split], test[split], {"split": split, "n_splits": len(train), "official": bool(official[split])}


# -- places ------------------------------------------------------------------------------------------------------


def _cache_folder() -> Path:
    if os.environ.get("SVELTO_CACHE"):
        return Path(os.environ["SVELTO_CACHE"]).expanduser()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification: relative paths are invalid and must be ignored.
    return (base if base.is_absolute() else Path("~/.cache").expanduser()) / "svelto"


def _find(name: str, file_name: str) -> Path:
    """Path of a data file, downloaded if need be."""
    data, cached = os.environ.get("SVELTO_DATA"), _cache_folder() / "data"
    folders = ([Path(data).expanduser()] if data else []) + [cached]
    for folder in folders:
        for suffix in SUFFIXES:
            path = folder / (file_name + suffix)
            if path.is_file():
                return path
    page = _SETS[name].folder
    kinds = file_name if file_name.endswith(".npz") else f"{file_name} (LIBSVM text, plain, .bz2, .xz or .gz)"
    if page is None:
        tried = "It is not on the LIBSVM data page, so it cannot be downloaded."
        fix = f"Set SVELTO_DATA to a folder that holds {kinds}."
    else:
        url = f"{PAGE}/{page}/{file_name}"
        try:
            return _download(url, cached)
        except OSError as error:
            tried = f"The download of {url} (also .bz2, .xz) failed: {error}."
            fix = f"Set SVELTO_DATA to a folder that holds {kinds}, or download it by hand into {cached}."
    places = [f"$SVELTO_DATA ({_describe(folders[0])})" if data else "$SVELTO_DATA (not set)", f"the cache {cached}"]
    raise DatasetNotFoundError(f"Data set {name!r}: {file_name} is neither in {' nor in '.join(places)}. {tried} {fix}")


def _describe(folder: Path) -> str:
    return str(folder) if folder.is_dir() else f"{folder}: no such folder"


# -- download ----------------------------------------------------------------------------------------------------


def _download(url: str, folder: Path) -> Path:
    """Fetch the file at `url`, under whichever suffix the page keeps it. Failures are OSErrors."""
    folder.mkdir(parents=True, exist_ok=True)
    missing: OSError | None = None
    for suffix in PAGE_SUFFIXES:
        target = folder / (url.rsplit("/", 1)[1] + suffix)
        try:
            with _open_url(url + suffix) as response, write_atomically(target) as file:
                _copy(response, file, target.name)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != 404:
                raise
            missing = error
        except http.client.HTTPException as error:
            raise OSError(f"the connection broke off ({error!r})") from error
        else:
            return target
    assert missing is not None
    raise missing


def _open_url(url: str) -> Any:
    return urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS)


def _copy(response: Any, file: BinaryIO, name: str) -> None:
    stated = response.headers.get("Content-Length")
    total = int(stated) if stated else None
    n_bytes = 0
    with _progress(name, total) as show:
        while chunk := response.read(1 << 16):
            # A proxy's or portal's page comes with status 200 as well; kept, it would poison the cache.
            if n_bytes == 0 and chunk.lstrip()[:1] == b"<":
                raise OSError("the server answered with a web page instead of the file")
            n_bytes += file.write(chunk)
            show(n_bytes)
    if n_bytes == 0 or (total is not None and n_bytes != total):
        raise OSError(f"received {n_bytes} bytes of {name}, expected {stated or 'some'}")


@contextlib.contextmanager
def _progress(name: str, total: int | None) -> Iterator[Callable[[int], object]]:
    """Show a progress bar on stderr, where that is a terminal and rich (extra [cli]) is installed."""
    try:
        if not sys.stderr.isatty():
            raise ImportError("no terminal, no bar")
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield lambda n_bytes: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=total)
        yield lambda n_bytes: bar.update(task, completed=n_bytes)


# -- parsed copies -----------------------------------------------------------------------------------------------


def _read(path: Path, n_features: int) -> Parsed:
    """Rows of a data file, from the parsed copy where that is up to date."""
    status, source = path.stat(), str(path.resolve())
    stamp = f"{PARSED_VERSION}|{source}|{status.st_size}|{status.st_mtime_ns}|{n_features}"
    # One copy for each source path: a source that changes overwrites its copy, two folders do not fight over one.
    copy = _cache_folder() / "parsed" / f"{path.name}-{hashlib.sha256(source.encode()).hexdigest()[:8]}.npz"
    # Missing, stale, or damaged in whatever way: the source has the truth.
    with contextlib.suppress(Exception):
        return _read_copy(copy, stamp, n_features)
    X, labels = read_svmlight(path, n_features=n_features)
    with np.errstate(invalid="ignore"):  # nan has no whole number, and the next line says so
        y = labels.astype(np.int64)
    if (y != labels).any():
        bad = labels[y != labels][0]
        raise ValueError(f"{path}: the label {bad} occurs; expected whole numbers. Replace it by a fresh copy.")
    # A full disk or a read-only home must not stop anyone who has the data.
    with contextlib.suppress(OSError):
        copy.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(copy) as file:
            np.savez(file, stamp=np.array(stamp), data=X.data, indices=X.indices, indptr=X.indptr, y=y)
    return X, y


def _read_copy(copy: Path, stamp: str, n_features: int) -> Parsed:
    # Opened here, because np.load leaves the file open when it is no archive.
    with open(copy, "rb") as file, np.load(file, allow_pickle=False) as archive:
        if str(archive["stamp"]) != stamp:
            raise ValueError("made from another file")
        y = archive["y"]
        arrays = (archive["data"], archive["indices"], archive["indptr"])
    X = sparse.csr_matrix(arrays, shape=(len(y), n_features))
    X.check_format(full_check=True)
    return X, y
