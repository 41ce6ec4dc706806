"""The container of svelto files: bytes, names, types and checksums, without any model in them."""

from __future__ import annotations

import json
import os
import stat
import struct
import zlib

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from file_cases import sealed
from svelto._rowfiles import UnreadableFileError
from svelto.io.file import ALIGNMENT, ALWAYS_VERIFIED, DTYPES, MAGIC, PREAMBLE, VERSION, read_file, write_file

ARRAYS = {
    "a": np.arange(7, dtype="<f4"),
    "b/c": np.arange(6, dtype="<i8").reshape(2, 3),
    "empty": np.empty((0, 5)),
    "one": np.array([[255]], dtype="|u1"),
}


def write(path, content=None, arrays=None):
    write_file(
        path, "test", "svelto 0", {"x": [1, 2.5, None, "text"]} if content is None else content, arrays or ARRAYS
    )
    return path


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "some.svelto")


def header_of(data):
    length = PREAMBLE.unpack_from(data)[2]
    return json.loads(data[ALIGNMENT : ALIGNMENT + length])


def entry(name, array, offset, /, **changes):
    line = {"name": name, "dtype": array.dtype.str, "shape": list(array.shape), "offset": offset}
    return {**line, "crc32": zlib.crc32(array.tobytes()), **changes}


def with_table(table, arrays=b""):
    """A file whose header says this about its arrays; room for numbers that change with its length."""
    header = {"kind": "test", "made_by": "", "content": {}, "arrays": table}
    return sealed(json.dumps(header).encode().ljust(1024), arrays)


FIRST = ALIGNMENT + 1024  # where the arrays of `with_table` start
ONES = np.ones(16)  # 128 bytes: no padding


def refused(path, data, match):
    path.write_bytes(data)
    with pytest.raises(UnreadableFileError, match=match) as error:
        read_file(path)
    assert str(path) in str(error.value)


def test_what_is_written_is_read(path):
    file = read_file(path)
    assert (file.kind, file.made_by, file.version, file.content) == (
        "test",
        "svelto 0",
        1,
        {"x": [1, 2.5, None, "text"]},
    )
    assert list(file.entries) == list(ARRAYS)
    for name, array in ARRAYS.items():
        found = file.array(name)
        assert_array_equal(found, array)
        assert found.dtype == array.dtype
        assert found.shape == array.shape
        assert not found.flags.writeable
        assert found.ctypes.data % ALIGNMENT == 0 or not found.size


def test_the_layout_is_the_documented_one(path):
    """Read by hand, byte by byte, as docs/file-format.md describes it."""
    data = path.read_bytes()
    assert data[:8] == b"\x89svelto\n"
    version, zero, header_length, length, header_crc, own_crc = struct.unpack("<IIQQII", data[8:40])
    assert (version, zero, length) == (1, 0, len(data))
    assert own_crc == zlib.crc32(data[:36])
    assert data[40:64] == bytes(24)
    text = data[64 : 64 + header_length]
    assert zlib.crc32(text) == header_crc
    header = json.loads(text)
    place = 64 + header_length
    for line in header["arrays"]:
        place = -(-place // 64) * 64
        assert line["offset"] == place
        array = ARRAYS[line["name"]]
        raw = data[place : place + array.nbytes]
        assert raw == array.tobytes()
        assert zlib.crc32(raw) == line["crc32"]
        place += array.nbytes
        assert data[place : -(-place // 64) * 64].strip(b"\0") == b""
    assert -(-place // 64) * 64 == len(data)


def test_a_file_without_arrays(tmp_path):
    write_file(tmp_path / "bare", "test", "", {"only": "values"}, {})
    assert read_file(tmp_path / "bare").content == {"only": "values"}


def test_the_same_model_gives_the_same_bytes(tmp_path):
    assert write(tmp_path / "a").read_bytes() == write(tmp_path / "b").read_bytes()


@pytest.mark.parametrize("n", range(900, 1000, 7))
def test_headers_of_all_lengths(tmp_path, n):
    """Offsets are part of the header, and depend on its length."""
    file = read_file(write(tmp_path / "f", {"text": "x" * n}))
    assert_array_equal(file.array("b/c"), ARRAYS["b/c"])


def test_arrays_outlive_the_file(path):
    array = read_file(path).array("a")
    path.unlink()
    assert_array_equal(array, ARRAYS["a"])


def test_large_arrays_are_read_only_when_asked_for(tmp_path):
    large = np.zeros(ALWAYS_VERIFIED // 8 + 1)
    data = bytearray(write(tmp_path / "large", {}, {"large": large, "small": np.zeros(3)}).read_bytes())
    where = header_of(data)["arrays"]
    data[where[0]["offset"] + 8] ^= 1
    (tmp_path / "large").write_bytes(data)
    assert read_file(tmp_path / "large", verify=False).array("large")[1] != 0.0
    refused(tmp_path / "large", data, "array large does not match its checksum")
    data[where[1]["offset"]] ^= 1
    (tmp_path / "large").write_bytes(data)
    with pytest.raises(UnreadableFileError, match="array small does not match"):
        read_file(tmp_path / "large", verify=False)


def test_no_svelto_file(tmp_path):
    refused(tmp_path / "text", b"svm_type c_svc\n" * 20, r"is no svelto file.*KernelMachine\.from_libsvm reads it")
    refused(tmp_path / "text", b"", "is no svelto file")
    refused(tmp_path / "text", MAGIC, "ends after 8 bytes")
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "missing")
    with pytest.raises(IsADirectoryError):
        read_file(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_cannot_be_mapped(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    keep = os.open(tmp_path / "pipe", os.O_RDWR)  # so that opening it for reading does not wait for a writer
    try:
        with pytest.raises(UnreadableFileError, match="no regular file"):
            read_file(tmp_path / "pipe")
    finally:
        os.close(keep)


def test_a_newer_version_says_so(path):
    data = bytearray(path.read_bytes())
    data[8:12] = struct.pack("<I", VERSION + 1)
    data[36:40] = struct.pack("<I", zlib.crc32(data[:36]))
    refused(path, data, "written by a newer svelto .* Update svelto")
    data[8:12] = struct.pack("<I", 0)
    data[36:40] = struct.pack("<I", zlib.crc32(data[:36]))
    refused(path, data, "version 0")


@pytest.mark.parametrize(
    ("header", "match"),
    [
        (b"{", "no JSON"),
        (b"\xff\xfe{}", "no JSON"),
        (b"[" * 200_000, "nested too deeply|no JSON"),
        (b'{"kind":' * 50_000, "nested too deeply|no JSON"),
        (b'{"kind":"a","kind":"b","made_by":"","content":{},"arrays":[]}', "key occurs twice"),
        (b'{"kind":"a","made_by":"","content":{"x":NaN},"arrays":[]}', "NaN is no number"),
        (b'{"kind":"a","made_by":"","content":{"x":-Infinity},"arrays":[]}', "Infinity is no number"),
        (b'{"kind":"a","made_by":"","content":{"x":' + b"9" * 5000 + b'},"arrays":[]}', "no JSON"),
        (b'{"kind":"a","made_by":"","content":{}}', "must have the keys"),
        (b'{"kind":"a","made_by":"","content":{},"arrays":[],"more":1}', "must have the keys"),
        (b'{"kind":1,"made_by":"","content":{},"arrays":[]}', "kind in the header is a int"),
        (b'{"kind":"a","made_by":"","content":[],"arrays":[]}', "content in the header is a list"),
        (b'{"kind":"a","made_by":"","content":{},"arrays":{}}', "arrays in the header is a dict"),
        (b"[]", "must have the keys"),
        (b"null", "must have the keys"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else value[:12],
)
def test_headers_that_are_none(tmp_path, header, match):
    refused(tmp_path / "f", sealed(header, b""), match)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"dtype": "<f2"}, "type '<f2'"),
        ({"dtype": "|O"}, "type '|O'"),
        ({"dtype": ">f8"}, "type '>f8'"),
        ({"dtype": ["<f8"]}, "type"),
        ({"name": 3}, "the name 3"),
        ({"shape": [-16]}, "no whole number from 0"),
        ({"shape": [16.0]}, "no whole number from 0"),
        ({"shape": [True, 16]}, "no whole number from 0"),
        ({"shape": 16}, "no whole number from 0"),
        ({"shape": [1] * 6}, "no whole number from 0"),
        ({"shape": [2**62, 2**62]}, "behind the end of the file"),
        ({"shape": [17]}, "behind the end of the file"),
        ({"shape": [8]}, "arrays end at byte"),
        ({"shape": [0, 2**60]}, "arrays end at byte"),
        ({"offset": FIRST + 64}, "starts at byte"),
        ({"offset": 0}, "starts at byte 0"),
        ({"offset": -64}, "no whole number from 0"),
        ({"crc32": 0}, "does not match its checksum"),
        ({"crc32": "0"}, "no whole number from 0"),
        ({"more": 1}, "is described by"),
    ],
    ids=str,
)
def test_tables_that_lie(tmp_path, changes, match):
    """All checksums of the file are right; what they are right about is not."""
    refused(tmp_path / "f", with_table([entry("x", ONES, FIRST, **changes)], ONES.tobytes()), match)


def test_tables_with_two_arrays(tmp_path):
    path, data = tmp_path / "f", ONES.tobytes()
    good = [entry("x", ONES, FIRST), entry("y", ONES, FIRST + 128)]
    path.write_bytes(with_table(good, data + data))
    assert_array_equal(read_file(path).array("y"), ONES)
    refused(path, with_table([good[0], {**good[1], "offset": FIRST}], data), "array y starts at byte")  # overlapping
    refused(path, with_table([good[1], good[0]], data + data), "starts at byte")
    refused(path, with_table([good[0], {**good[1], "name": "x"}], data + data), "array x occurs twice")
    refused(path, with_table(good, data + data + bytes(64)), "arrays end at byte")
    refused(path, with_table(good[:1], data + data), "arrays end at byte")
    refused(path, with_table([{**good[0], "shape": [2**40]}], data), "behind the end")


def test_padding_must_be_zero(tmp_path, path):
    data = bytearray(path.read_bytes())
    first = header_of(data)["arrays"][0]
    data[first["offset"] + ARRAYS["a"].nbytes] = 1
    refused(path, data, "bytes behind the array a are not zero")
    data = bytearray(write(tmp_path / "g").read_bytes())
    data[50] = 1
    refused(path, data, "behind the first checksum")


def test_every_byte_counts(path):
    data = path.read_bytes()
    for place in range(len(data)):
        for flip in (1, 0x80):
            damaged = bytearray(data)
            damaged[place] ^= flip
            path.write_bytes(damaged)
            with pytest.raises(UnreadableFileError):
                read_file(path)


def test_types_that_files_do_not_have(tmp_path):
    for array in (np.zeros(3, dtype=np.float16), np.zeros(2, dtype=object), np.zeros(2, dtype=">f8")):
        with pytest.raises(TypeError, match="a file holds"):
            write(tmp_path / "f", {}, {"x": array})
    assert os.listdir(tmp_path) == []
    for dtype in DTYPES:
        assert read_file(write(tmp_path / "f", {}, {"x": np.zeros(3, dtype=dtype)})).array("x").dtype.str == dtype


def test_a_new_file_follows_the_umask_and_an_old_one_keeps_its_mode(tmp_path):
    old = os.umask(0o027)
    try:
        path = write(tmp_path / "f")
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o600)
        write(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(old)
    assert os.listdir(tmp_path) == ["f"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    write(tmp_path / "real" / "f")
    (tmp_path / "link").symlink_to(tmp_path / "real" / "f")
    before = (tmp_path / "real" / "f").read_bytes()
    write(tmp_path / "link", {"new": 1})
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "f").read_bytes() != before
    assert read_file(tmp_path / "link").content == {"new": 1}


def test_the_bytes_are_on_the_disk_before_the_name_is(tmp_path, monkeypatch):
    done = []
    replace, sync = os.replace, os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: (done.append("sync"), sync(number))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append("replace"), replace(a, b))[1])
    write(tmp_path / "f")
    assert done == ["sync", "replace", "sync"]  # the file, its name, the folder


def test_an_error_while_writing_leaves_nothing(tmp_path, monkeypatch):
    path = write(tmp_path / "f")
    before = path.read_bytes()

    def fail(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write(path, {"new": 1})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["f"]
