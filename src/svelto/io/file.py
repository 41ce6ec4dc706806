"""The container of a svelto file: a preamble, a JSON header, and named arrays that native code reads where they lie.

It knows bytes, names, types and checksums, and nothing of machines; `docs/file-format.md` has the layout byte by byte.
Every byte of a file is either covered by a checksum or known to be zero, arrays follow each other without gaps, and
nothing is read, mapped or allocated because the header says so before the file's own length agrees.

Invariant: an array that `StoredFile` hands out lies inside the file, starts at a multiple of 64 bytes and is read-only.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import stat
import struct
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, NoReturn, TypeAlias

import numpy as np

from svelto._rowfiles import PathName, UnreadableFileError, write_atomically

Array: TypeAlias = np.ndarray[Any, Any]

MAGIC: Final = b"\x89svelto\n"
VERSION: Final = 1
# Magic, version, length of the header, length of the file, checksum of the header; then the checksum of all this.
PREAMBLE: Final = struct.Struct("<8sI4xQQI")
CHECKSUM: Final = struct.Struct("<I")
# Arrays start at multiples of this: what vector instructions ask for, and a line of the cache.
ALIGNMENT: Final = 64
DTYPES: Final = ("<f4", "<f8", "<i4", "<i8", "|u1")
MOST_DIMENSIONS: Final = 5
# Arrays up to this size are compared with their checksums even where the file is only mapped.
ALWAYS_VERIFIED: Final = 1 << 20


class Entry(NamedTuple):
    """One array as the header describes it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    crc32: int

    @property
    def nbytes(self) -> int:
        """Bytes of the array, padding not included; a whole number of any size."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def write_file(
    path: PathName, kind: str, made_by: str, content: Mapping[str, Any], arrays: Mapping[str, Array]
) -> None:
    """Write a file that appears under its name when it is complete and on the disk.

    Parameters
    ----------
    path : path
        The file; an older one is replaced.
    kind : str
        What is in it.
    made_by : str
        Program and version, for people.
    content : mapping
        Everything that is no array, as JSON knows it.
    arrays : mapping
        C-contiguous arrays of one of `DTYPES`, by name.
    """
    _check_byte_order()
    stored = {name: _storable(name, array) for name, array in arrays.items()}
    header, offsets = _settled_header(kind, made_by, content, stored)
    with write_atomically(path, durable=True) as file:
        end = _end_of(stored, offsets, len(header))
        start = PREAMBLE.pack(MAGIC, VERSION, len(header), end, zlib.crc32(header))
        start += CHECKSUM.pack(zlib.crc32(start))
        file.write(start.ljust(ALIGNMENT, b"\0"))
        _write_padded(file, header)
        for array in stored.values():
            _write_padded(file, array.data.cast("B") if array.size else b"")


def _storable(name: str, array: Array) -> Array:
    """The array with the byte order of files; its type must be one of theirs."""
    if array.dtype.str not in DTYPES or array.ndim > MOST_DIMENSIONS:
        raise TypeError(
            f"{name} has dtype {array.dtype} and {array.ndim} dimensions; a file holds {', '.join(DTYPES)}."
        )
    return np.ascontiguousarray(array).reshape(array.shape)


def _settled_header(
    kind: str, made_by: str, content: Mapping[str, Any], arrays: Mapping[str, Array]
) -> tuple[bytes, list[int]]:
    """The header, and where the arrays start: that depends on the header's length, which depends on their starts."""
    sums = [zlib.crc32(array.data) if array.size else 0 for array in arrays.values()]
    room = 0
    while True:
        offsets, end = [], ALIGNMENT + room
        for array in arrays.values():
            offsets.append(end)
            end = _padded(end + array.nbytes)
        table = [
            {"name": name, "dtype": array.dtype.str, "shape": list(array.shape), "offset": offset, "crc32": crc}
            for (name, array), offset, crc in zip(arrays.items(), offsets, sums, strict=True)
        ]
        whole = {"kind": kind, "made_by": made_by, "content": content, "arrays": table}
        header = json.dumps(whole, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
        if _padded(len(header)) <= room:
            # Spaces are nothing in JSON; they fill what a round with longer numbers asked for.
            return header.ljust(room, b" "), offsets
        room = _padded(len(header))


def _end_of(arrays: Mapping[str, Array], offsets: Sequence[int], header_length: int) -> int:
    last = list(arrays.values())[-1:]
    return _padded(offsets[-1] + last[0].nbytes) if last else ALIGNMENT + _padded(header_length)


def _write_padded(file: BinaryIO, data: Any) -> None:
    file.write(data)
    file.write(bytes(_padded(len(data)) - len(data)))


def _padded(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT


def _check_byte_order() -> None:
    if sys.byteorder != "little":
        raise NotImplementedError("svelto files hold little-endian arrays, which this computer cannot use in place.")


@dataclass(eq=False)
class StoredFile:
    """An open file: its header, and its arrays as views of the mapped bytes.

    Attributes
    ----------
    path : Path
        For messages.
    kind : str
        What is in it.
    made_by : str
        Program and version that wrote it.
    version : int
        Version of the format.
    content : dict
        Everything that is no array.
    entries : dict of Entry
        The arrays.
    verified : bool
        Whether all arrays were compared with their checksums.
    """

    path: Path
    kind: str
    made_by: str
    version: int
    content: dict[str, Any]
    entries: dict[str, Entry]
    verified: bool
    memory: mmap.mmap

    def array(self, name: str) -> Array:
        """A read-only view; the mapping lives as long as any of them."""
        entry = self.entries[name]
        if entry.nbytes == 0:
            empty = np.empty(entry.shape, dtype=entry.dtype)
            empty.flags.writeable = False
            return empty
        return np.ndarray(entry.shape, dtype=entry.dtype, buffer=self.memory, offset=entry.offset)

    def damaged(self, what: str) -> NoReturn:
        """Refuse the file, in the words that all refusals share."""
        refuse(self.path, what)


def refuse(path: PathName, what: str) -> NoReturn:
    """Raise the error of a file that cannot be used."""
    raise UnreadableFileError(
        f"{path}: {what}. The file is damaged, or was not written by svelto; save the model again."
    )


def is_svelto_file(path: PathName) -> bool:
    """Whether a file starts as svelto's own do."""
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_file(path: PathName, *, verify: bool = True) -> StoredFile:
    """Open a file.

    Parameters
    ----------
    path : path
        The file.
    verify : bool, default=True
        Whether every array is read and compared with its checksum. Otherwise only the header and arrays of at most
        `ALWAYS_VERIFIED` bytes are, and the others are read when they are first used.

    Returns
    -------
    StoredFile

    Raises
    ------
    UnreadableFileError
        Where anything about the file is not as it must be.
    """
    _check_byte_order()
    path = Path(path)
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableFileError(f"{path} is no regular file; a model is mapped into memory, which needs one.")
        size = status.st_size
        version, header_length = _read_preamble(path, file.read(ALIGNMENT), size)
        memory = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    header_end = ALIGNMENT + header_length
    padding = memory[header_end : _padded(header_end)]
    if padding.strip(b"\0"):
        refuse(path, "the bytes behind the header are not zero")
    header_crc = PREAMBLE.unpack_from(memory)[4]
    text = memory[ALIGNMENT:header_end]
    if zlib.crc32(text) != header_crc:
        refuse(path, "the header does not match its checksum")
    header = _read_header(path, text)
    entries = _read_entries(path, header["arrays"], _padded(header_end), size)
    for entry in entries.values():
        _check_entry(path, entry, memory, verify=verify)
    return StoredFile(path, header["kind"], header["made_by"], version, header["content"], entries, verify, memory)


def _read_preamble(path: Path, start: bytes, size: int) -> tuple[int, int]:
    """The version, and the length of the header; both believed only after the preamble's own checksum."""
    if not start.startswith(MAGIC):
        libsvm = start.startswith((b"svm_type ", b"kernel_type "))
        advice = " It looks like a LIBSVM model: KernelMachine.from_libsvm reads it." if libsvm else ""
        raise UnreadableFileError(f"{path} is no svelto file: it does not start with the bytes of one.{advice}")
    if len(start) < ALIGNMENT:
        refuse(path, f"the file ends after {len(start)} bytes")
    _, version, header_length, length, _ = PREAMBLE.unpack_from(start)
    (crc,) = CHECKSUM.unpack_from(start, PREAMBLE.size)
    if zlib.crc32(start[: PREAMBLE.size]) != crc:
        refuse(path, "the first bytes do not match their checksum")
    if start[PREAMBLE.size + CHECKSUM.size :].strip(b"\0"):
        refuse(path, "the bytes behind the first checksum are not zero")
    if version > VERSION:
        raise UnreadableFileError(
            f"{path} was written by a newer svelto (version {version} of the format; this one reads up to {VERSION}). "
            "Update svelto, or save the model with this version."
        )
    if version < 1:
        refuse(path, f"version {version} of the format does not exist")
    if length != size:
        refuse(path, f"the file has {size} bytes, but {length} were written")
    if header_length < 2 or ALIGNMENT + header_length > size:
        refuse(path, f"the header cannot have {header_length} bytes")
    return version, header_length


def _read_header(path: Path, text: bytes) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key occurs twice")
        return found

    def constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is no number of JSON")

    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=once, parse_constant=constant)
    except RecursionError:
        refuse(path, "the header is nested too deeply")
    except ValueError as error:
        refuse(path, f"the header is no JSON ({error})")
    types = {"kind": str, "made_by": str, "content": dict, "arrays": list}
    if not isinstance(header, dict) or header.keys() != types.keys():
        refuse(path, f"the header must have the keys {', '.join(types)}")
    for key, wanted in types.items():
        if not isinstance(header[key], wanted):
            refuse(path, f"{key} in the header is a {type(header[key]).__name__}")
    return header


def _read_entries(path: Path, table: list[Any], start: int, size: int) -> dict[str, Entry]:
    """The arrays, each where the one before it ends, the last at the end of the file."""
    entries: dict[str, Entry] = {}
    for line in table:
        entry = _read_entry(path, line)
        if entry.name in entries:
            refuse(path, f"the array {entry.name} occurs twice")
        if entry.offset != start:
            refuse(path, f"the array {entry.name} starts at byte {entry.offset}, not at {start}")
        start = _padded(start + entry.nbytes)
        if start > size:
            refuse(path, f"the array {entry.name} ends at byte {start}, behind the end of the file at {size}")
        entries[entry.name] = entry
    if start != size:
        refuse(path, f"the arrays end at byte {start}, but the file has {size}")
    return entries


def _read_entry(path: Path, line: Any) -> Entry:
    if not isinstance(line, dict) or list(line) != list(Entry._fields):
        refuse(path, f"an array is described by {', '.join(Entry._fields)}")
    name, dtype, shape, offset, crc = line.values()
    if not isinstance(name, str) or dtype not in DTYPES:
        refuse(path, f"an array has the name {name!r} and the type {dtype!r}; expected one of {', '.join(DTYPES)}")
    whole = isinstance(shape, list) and len(shape) <= MOST_DIMENSIONS
    if not whole or not all(_is_count(number) for number in (*shape, offset, crc)):
        refuse(path, f"the array {name} has a shape, offset or checksum that is no whole number from 0")
    return Entry(name, dtype, tuple(shape), offset, crc)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _check_entry(path: Path, entry: Entry, memory: mmap.mmap, *, verify: bool) -> None:
    end = entry.offset + entry.nbytes
    if memory[end : _padded(end)].strip(b"\0"):
        refuse(path, f"the bytes behind the array {entry.name} are not zero")
    if verify or entry.nbytes <= ALWAYS_VERIFIED:
        with memoryview(memory) as whole, whole[entry.offset : end] as part:
            found = zlib.crc32(part) if entry.nbytes else 0
        if found != entry.crc32:
            refuse(path, f"the array {entry.name} does not match its checksum")
