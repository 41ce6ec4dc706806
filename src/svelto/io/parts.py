"""How an object becomes the content and the arrays of a svelto file, and how it is read back without trusting them.

`Out` and `In` stand for one part of a file: some values, some arrays, and further parts below it. Arrays of a part have
the names of all parts above in theirs ("engine/stages/0/weights"). `In` hands out nothing that it has not checked:
type, shape, range. What is in a file and was not asked for is an error, so that no version guesses what another meant.

Where a file is only mapped (not verified), large arrays of floats are not read. Whole numbers always are: native code
uses them as places in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from svelto.io.file import Array, StoredFile
from svelto.io.plain import from_plain, to_plain

# Native code counts in 32 bits.
MOST: Final = 2**31 - 1

Shape = tuple[int | None, ...]


class Out:
    """A part of a file that is being written."""

    def __init__(self, arrays: dict[str, Array] | None = None, prefix: str = "") -> None:
        self.content: dict[str, Any] = {}
        self.arrays: dict[str, Array] = {} if arrays is None else arrays
        self.prefix = prefix

    def set(self, **values: Any) -> None:
        """Add plain values."""
        for name, value in values.items():
            self.content[name] = to_plain(value, self.prefix + name)

    def set_json(self, name: str, value: Any) -> None:
        """Add a value that is JSON already."""
        self.content[name] = value

    def put(self, name: str, array: Any, dtype: str) -> None:
        """Add an array."""
        self.arrays[self.prefix + name] = np.asarray(array, dtype=dtype)

    def part(self, name: str) -> Out:
        """Add a part below this one."""
        part = Out(self.arrays, f"{self.prefix}{name}/")
        self.content[name] = part.content
        return part

    def parts(self, name: str, n: int) -> list[Out]:
        """Add a list of parts below this one."""
        parts = [Out(self.arrays, f"{self.prefix}{name}/{i}/") for i in range(n)]
        self.content[name] = [part.content for part in parts]
        return parts


class In:
    """A part of a file that is being read."""

    def __init__(self, file: StoredFile, content: Mapping[str, Any], prefix: str = "") -> None:
        self.file = file
        self.content = content
        self.prefix = prefix
        self.seen: set[str] = set()
        self.below: list[In] = []
        self.read: set[str] = set()

    @property
    def verified(self) -> bool:
        """Whether numbers are looked at that cost time and cannot do harm."""
        return self.file.verified

    def fail(self, what: str) -> Any:
        """Refuse the file."""
        self.file.damaged(what)

    # -- values ----------------------------------------------------------------------------------------------

    def __contains__(self, name: str) -> bool:
        return name in self.content

    def json(self, name: str) -> Any:
        """A value as JSON has it."""
        if name not in self.content:
            self.fail(f"{self.prefix}{name} is missing")
        self.seen.add(name)
        return self.content[name]

    def plain(self, name: str) -> Any:
        """A plain value of any type."""
        return from_plain(self.json(name))

    def _typed(self, name: str, types: tuple[type, ...], what: str) -> Any:
        value = self.plain(name)
        if type(value) not in types:
            self.fail(f"{self.prefix}{name} is {str(value)[:40]!r}; expected {what}")
        return value

    def number(self, name: str) -> float:
        """A float; infinite or NaN where packing overflowed."""
        return float(self._typed(name, (int, float), "a number"))

    def finite(self, name: str) -> float:
        """A finite float."""
        value = self.number(name)
        if not np.isfinite(value):
            self.fail(f"{self.prefix}{name} is {value}; expected a finite number")
        return value

    def count(self, name: str, least: int = 0, most: int = MOST) -> int:
        """A whole number in a range."""
        value = self._typed(name, (int,), "a whole number")
        if not least <= value <= most:
            self.fail(f"{self.prefix}{name} is {value}; expected a number from {least} to {most}")
        return int(value)

    def flag(self, name: str) -> bool:
        """True or False."""
        return bool(self._typed(name, (bool,), "true or false"))

    def text(self, name: str) -> str:
        """Text."""
        return str(self._typed(name, (str,), "text"))

    def choice(self, name: str, choices: Sequence[Any]) -> Any:
        """One of several values, of the same type too."""
        value = self.plain(name)
        if not any(value == one and type(value) is type(one) for one in choices):
            self.fail(f"{self.prefix}{name} is {str(value)[:40]!r}; expected one of {', '.join(map(str, choices))}")
        return value

    # -- arrays ----------------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Whether there is such a value."""
        return name in self.content

    def has_array(self, name: str) -> bool:
        """Whether there is such an array."""
        return self.prefix + name in self.file.entries

    def array(self, name: str, dtype: str, shape: Shape) -> Array:
        """A read-only array of this type and shape; None stands for any length."""
        full = self.prefix + name
        if full not in self.file.entries:
            self.fail(f"the array {full} is missing")
        entry = self.file.entries[full]
        fits = len(entry.shape) == len(shape) and all(
            wanted is None or wanted == found for wanted, found in zip(shape, entry.shape, strict=True)
        )
        if entry.dtype != dtype or not fits:
            wanted_shape = "(" + ", ".join("any" if n is None else str(n) for n in shape) + ")"
            self.fail(
                f"the array {full} has type {entry.dtype} and shape {entry.shape}; expected {dtype} and {wanted_shape}"
            )
        self.read.add(full)
        return self.file.array(full)

    def floats(self, name: str, shape: Shape, *, dtype: str = "<f8", always: bool = False) -> Array:
        """Finite floats; `always`: also looked at where the file is only mapped."""
        array = self.array(name, dtype, shape)
        if (self.verified or always) and not np.isfinite(array).all():
            self.fail(f"the array {self.prefix}{name} has numbers that are not finite")
        return array

    def numbers(self, name: str, shape: Shape, *, dtype: str = "<f8") -> Array:
        """Floats that may be infinite."""
        array = self.array(name, dtype, shape)
        if self.verified and np.isnan(array).any():
            self.fail(f"the array {self.prefix}{name} has NaN")
        return array

    def whole(self, name: str, shape: Shape, least: int, most: int, *, dtype: str = "<i4") -> Array:
        """Whole numbers, all of them in a range."""
        array = self.array(name, dtype, shape)
        if array.size and (array.min() < least or array.max() > most):
            self.fail(f"the array {self.prefix}{name} has a number outside {least} to {most}")
        return array

    def starts(self, name: str, n: int | None, total: int | None, *, dtype: str = "<i4") -> Array:
        """Where n lists begin in an array of `total` numbers, and where the last ends."""
        array = self.array(name, dtype, (None if n is None else n + 1,))
        if len(array) == 0 or array[0] != 0 or (np.diff(array) < 0).any() or (total is not None and array[-1] != total):
            self.fail(f"the array {self.prefix}{name} must rise from 0 to {'its end' if total is None else total}")
        return array

    # -- parts -----------------------------------------------------------------------------------------------

    def part(self, name: str) -> In:
        """A part below this one."""
        content = self.json(name)
        if not isinstance(content, dict):
            self.fail(f"{self.prefix}{name} is no part of a model")
        return self._below(content, f"{self.prefix}{name}/")

    def parts(self, name: str) -> list[In]:
        """A list of parts below this one."""
        contents = self.json(name)
        if not isinstance(contents, list) or not all(isinstance(content, dict) for content in contents):
            self.fail(f"{self.prefix}{name} is no list of parts of a model")
        return [self._below(content, f"{self.prefix}{name}/{i}/") for i, content in enumerate(contents)]

    def _below(self, content: dict[str, Any], prefix: str) -> In:
        part = In(self.file, content, prefix)
        self.below.append(part)
        return part

    def finish(self) -> None:
        """Refuse values and arrays that nobody asked for."""
        unread = set(self.file.entries) - self._all_read()
        if unread:
            self.fail(f"nothing is known about the array {min(unread)}")

    def _all_read(self) -> set[str]:
        unknown = set(self.content) - self.seen
        if unknown:
            self.fail(f"nothing is known about {self.prefix}{min(unknown)}")
        return self.read.union(*(part._all_read() for part in self.below))
