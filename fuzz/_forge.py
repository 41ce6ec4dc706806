"""Svelto files changed where they mean something, with checksums, offsets and lengths that are right again.

A blind change of one byte is found by a checksum, and nothing behind it is ever tried. So a file is taken apart into
its header and its arrays, changed, and sealed anew: what somebody would do who wants to do harm.
"""

from __future__ import annotations

import json
import random
import zlib
from typing import Any, NamedTuple

import numpy as np

from _common import Blind
from svelto.io.file import ALIGNMENT, CHECKSUM, DTYPES, MAGIC, PREAMBLE, VERSION

VALUES = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 64, 2**31 - 1, 2**31, 2**53, 2**63, 2**70, 10**400),
    *(0.0, -0.0, 0.5, 1.5, -1.0, 1e-320, 1e308, {"float": "inf"}, {"float": "-inf"}, {"float": "nan"}),
    *("", "x", "rbf", "linear", "poly", "precomputed", "laplacian", "auto", "float32", "float64", [], {}, [[]]),
    *({"tuple": []}, {"dict": []}, {"tuple": [0, 1]}, [0] * 100),
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-320, 1e-40, 1e30, -1e30, 1e300, -1e300, np.inf, -np.inf, np.nan)
MOST_LENGTH = 1 << 12
WHOLE = (0, 1, 2, 3, -1, -2, 127, 128, 255, 2**15, 2**31 - 1, -(2**31), 2**62)


class Opened(NamedTuple):
    """A file taken apart; the header has no table of arrays."""

    header: dict[str, Any]
    arrays: dict[str, np.ndarray]


def opened(data: bytes) -> Opened | None:
    """The parts of a file; None where it is too broken to have any."""
    try:
        length = PREAMBLE.unpack_from(data)[2]
        header = json.loads(data[ALIGNMENT : ALIGNMENT + length])
        arrays = {}
        for line in header.pop("arrays"):
            dtype, shape = np.dtype(line["dtype"]), tuple(line["shape"])
            size = int(np.prod(shape, dtype=np.float64))
            found = np.frombuffer(data, dtype=dtype, count=size, offset=line["offset"]) if size else np.empty(0, dtype)
            arrays[line["name"]] = found.reshape(shape).copy()
        return Opened(header, arrays)
    except Exception:  # whatever is wrong with it, it is changed in another way then
        return None


def sealed(file: Opened) -> bytes:
    """A file that holds these parts."""
    room, raw = 0, {name: array.tobytes() for name, array in file.arrays.items()}
    while True:
        offset, table = ALIGNMENT + room, []
        for name, array in file.arrays.items():
            crc, shape = zlib.crc32(raw[name]), list(array.shape)
            table.append({"name": name, "dtype": array.dtype.str, "shape": shape, "offset": offset, "crc32": crc})
            offset += _padded(len(raw[name]))
        text = json.dumps({**file.header, "arrays": table}, separators=(",", ":")).encode()
        if len(text) <= room:
            body = b"".join(part.ljust(_padded(len(part)), b"\0") for part in raw.values())
            return resealed(text.ljust(room), body)
        room = _padded(len(text))


def resealed(header: bytes, body: bytes) -> bytes:
    """A preamble for this header and these bytes of arrays."""
    start = PREAMBLE.pack(MAGIC, VERSION, len(header), ALIGNMENT + len(header) + len(body), zlib.crc32(header))
    return (start + CHECKSUM.pack(zlib.crc32(start))).ljust(ALIGNMENT, b"\0") + header + body


def _padded(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT


# -- changes -------------------------------------------------------------------------------------------------------


def forge(data: bytes, max_size: int, seed: int, blind: Blind) -> bytes:
    """A changed file, most often with checksums that are right."""
    rng = random.Random(seed)
    file = opened(data)
    how = rng.random()
    if file is None or how < 0.03:
        return blind(data, max_size)
    if how < 0.08:
        return _blind_header(data, max_size, blind)
    try:
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            if rng.random() < 0.5 or not file.arrays:
                _change_value(file.header, rng)
            else:
                _change_array(file.arrays, rng, blind)
        made = sealed(file)
    except (RecursionError, MemoryError):  # nested a thousand deep by a blind change; or no bytes in a huge shape
        return blind(data, max_size)
    return made if len(made) <= max_size else data


def cross(data: bytes, other: bytes, max_size: int, seed: int) -> bytes:
    """One file with arrays and values of another in their places."""
    rng = random.Random(seed)
    file, donor = opened(data), opened(other)
    if file is None or donor is None:
        return data
    for name in file.arrays:
        if name in donor.arrays and rng.random() < 0.2:
            file.arrays[name] = donor.arrays[name]
    try:
        places = _places(donor.header)
        for where, key in rng.sample(places, min(len(places), 3)):
            matching = [place for place in _places(file.header) if place[1] == key]
            if matching:
                rng.choice(matching)[0][key] = _copied(where[key])
        made = sealed(file)
    except (RecursionError, MemoryError):
        return data
    return made if len(made) <= max_size else data


def _blind_header(data: bytes, max_size: int, blind: Blind) -> bytes:
    """Bytes of the header changed by libFuzzer; the arrays keep their places where its length allows that."""
    length = min(PREAMBLE.unpack_from(data)[2], len(data))  # it may claim anything
    header, body = data[ALIGNMENT : ALIGNMENT + length], data[ALIGNMENT + length :]
    text = blind(header.rstrip(), max(max_size - ALIGNMENT - len(body), 1))
    return resealed(text.ljust(max(length, _padded(len(text)))), body)[:max_size]


def _places(node: Any) -> list[tuple[Any, Any]]:
    """Every value of nested lists and dicts, as the container and the key that lead to it."""
    found = []
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in keys:
        found.append((node, key))
        found += _places(node[key])
    return found


def _copied(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _change_value(header: dict[str, Any], rng: random.Random) -> None:
    places = _places(header)
    if not places:
        return
    content = _places(header.get("content"))
    # Most of a header is the report, which is only shown.
    model = [place for place in content if place[1] not in ("report", "tried")] or places
    where, key = rng.choice(model if rng.random() < 0.7 else places)
    what = rng.randrange(6)
    if what == 0 and type(where[key]) is int:
        where[key] += rng.choice((-1, 1, 2, 64))
    elif what == 1:
        there, other = rng.choice(places)
        where[key] = _copied(there[other])
    elif what == 2:
        del where[key]
    elif what == 3 and isinstance(where, list):
        where.insert(key, _copied(where[key]))
    else:
        where[key] = _copied(rng.choice(VALUES))


def _change_array(arrays: dict[str, np.ndarray], rng: random.Random, blind: Blind) -> None:
    name, other = rng.choice(list(arrays)), rng.choice(list(arrays))
    array = arrays[name]
    what = rng.randrange(10)
    if what <= 4 and array.size:
        _change_numbers(array, rng)
    elif what == 5 and array.size:
        raw = blind(array.tobytes(), array.nbytes).ljust(array.nbytes, b"\0")
        arrays[name] = np.frombuffer(raw[: array.nbytes], array.dtype).reshape(array.shape).copy()
    elif what == 6 and array.ndim:
        axis = rng.randrange(array.ndim)
        n = array.shape[axis]
        kept = min(rng.choice((n - 1, n // 2, 1, 0, n + 1, 2 * n)), MOST_LENGTH)
        arrays[name] = np.take(array, np.arange(max(kept, 0)) % max(n, 1), axis=axis) if n else array
        if kept == 0 and array.ndim > 1 and rng.random() < 0.5:  # no bytes, and as large as one likes the other way
            shape = list(arrays[name].shape)
            shape[axis - 1] = rng.choice((2**20, 2**31 - 1, 2**40))
            arrays[name] = np.empty(shape, array.dtype)
    elif what == 7:
        with np.errstate(all="ignore"):
            arrays[name] = array.astype(rng.choice(DTYPES))
    elif what == 8:
        arrays[name] = arrays[other]
    else:
        del arrays[name]


def _change_numbers(array: np.ndarray, rng: random.Random) -> None:
    flat = array.reshape(-1)
    whole = array.dtype.kind != "f"
    for _ in range(rng.choice((1, 1, 2, flat.size))):
        place = rng.randrange(flat.size)
        if rng.random() < 0.3:
            flat[place] = flat[rng.randrange(flat.size)]
        else:
            number = rng.choice(WHOLE if whole else FLOATS)
            with np.errstate(all="ignore"):
                flat[place] = np.array(number).astype(array.dtype)
