"""Names of a C header: the model's own, and those of its parts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

# Of C99 and C++20: a header may be included in either.
KEYWORDS: Final = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl
    concept const const_cast consteval constexpr constinit continue co_await co_return co_yield decltype default delete
    do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
    namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
    requires restrict return short signed sizeof static static_assert static_cast struct switch template this
    thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor
    xor_eq
    """.split()  # noqa: SIM905 - a list of a hundred strings is hard to read
)
_IDENTIFIER: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# Longer names would pass what compilers must tell apart (63 characters) once a part's name is added.
MOST_CHARACTERS: Final = 40


def model_name(name: Any, path: Path) -> str:
    """The name given, checked, or one made of the file's."""
    if name is None:
        made = re.sub(r"[^A-Za-z0-9]+", "_", path.stem).strip("_")[:MOST_CHARACTERS]
        usable = _IDENTIFIER.fullmatch(made) and made not in KEYWORDS
        return made if usable else f"model_{made}".rstrip("_")[:MOST_CHARACTERS]
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
        raise ValueError(
            f"name is {name!r}; expected a C identifier that begins with a letter, such as 'iris' or 'my_model'."
        )
    if name in KEYWORDS:
        raise ValueError(f"name is {name!r}, a keyword of C or C++. Choose another, such as '{name}_model'.")
    if len(name) > MOST_CHARACTERS:
        raise ValueError(f"name has {len(name)} characters; expected at most {MOST_CHARACTERS}.")
    return name


class PartNames:
    """Prefixes of parts, each used once."""

    def __init__(self, model: str) -> None:
        self.model = model
        self._used: dict[str, int] = {}

    def new(self, kind: str) -> str:
        """``model_kind``, with a number from the second of its kind on; names of stages may have spaces."""
        kind = re.sub(r"[^A-Za-z0-9_]", "_", kind)
        self._used[kind] = self._used.get(kind, 0) + 1
        number = self._used[kind]
        return f"{self.model}_{kind}" if number == 1 else f"{self.model}_{kind}{number}"
