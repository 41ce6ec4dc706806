"""Plain values as JSON and back: what a report, a parameter or a label is made of, and nothing that could act.

JSON has no tuples, no infinity and only text as keys. These are written as an object with one key:

    {"float": "inf"}    {"tuple": [1, 2]}    {"dict": [[key, value], ...]}

and everything else is what JSON says: null, true, numbers, text, lists.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, Final

import numpy as np

ADVICE: Final = "Pickle the model instead (joblib.dump, pickle.dump)."
LABEL_TYPES: Final = (
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
    "bool",
    "object",
)


def to_plain(value: Any, name: str) -> Any:
    """A value as JSON; `name` is what an error calls it."""
    if value is None or isinstance(value, bool | str):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        return number if math.isfinite(number) else {"float": repr(number)}
    if isinstance(value, list):
        return [to_plain(item, name) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [to_plain(item, name) for item in value]}
    if isinstance(value, Mapping):
        return {"dict": [[to_plain(key, name), to_plain(item, name)] for key, item in value.items()]}
    raise NotImplementedError(
        f"{name} holds a {type(value).__name__} ({value!r:.60}), which a svelto file cannot: it holds numbers, text, "
        f"lists and dicts of them. {ADVICE}"
    )


def from_plain(value: Any) -> Any:
    """The value again."""
    if isinstance(value, list):
        return [from_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((what, inner),) = value.items()
        if what == "float" and inner in ("inf", "-inf", "nan"):
            return float(inner)
        if what == "tuple" and isinstance(inner, list):
            return tuple(from_plain(item) for item in inner)
        if what == "dict" and isinstance(inner, list) and all(isinstance(p, list) and len(p) == 2 for p in inner):
            return {from_plain(key): from_plain(item) for key, item in inner}
    raise ValueError(f"a value is {str(value)[:60]}; expected a number, text, a list, or one of float, tuple and dict")


def labels_to_plain(labels: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Class labels with their type: numbers, truth values, text."""
    dtype = labels.dtype
    values = labels.tolist()
    if dtype.kind == "U":
        # As wide as the longest label: a reader then allocates nothing that is merely claimed.
        return {"dtype": f"U{max(1, *map(len, values))}", "values": values}
    if dtype.name in LABEL_TYPES and (dtype.kind != "O" or all(type(label) is str for label in values)):
        return {"dtype": dtype.name, "values": [to_plain(value, "classes") for value in values]}
    shown = next((label for label in values if type(label) is not str), None) if dtype.kind == "O" else values[0]
    raise NotImplementedError(
        f"The class {shown!r} is a {type(shown).__name__} (dtype {dtype}); a svelto file holds whole numbers, floats, "
        f"truth values and text as classes. {ADVICE}"
    )


def labels_from_plain(value: Any) -> np.ndarray[Any, Any]:
    """Class labels again, as they were."""
    if not isinstance(value, dict) or value.keys() != {"dtype", "values"} or not isinstance(value["values"], list):
        raise ValueError("classes must have a dtype and values")
    dtype, values = value["dtype"], [from_plain(item) for item in value["values"]]
    is_text = isinstance(dtype, str) and dtype[:1] == "U" and dtype[1:].isdecimal() and dtype.isascii()
    if not is_text and dtype not in LABEL_TYPES:
        raise ValueError(f"classes have the dtype {dtype!r}; expected text (U), or one of {', '.join(LABEL_TYPES)}")
    if is_text or dtype == "object":
        width = int(dtype[1:8] or 0) if is_text else 0
        longest = max((len(text) for text in values if isinstance(text, str)), default=0)
        if not all(type(text) is str for text in values) or (is_text and width != max(longest, 1)):
            raise ValueError("classes that are text must be as long as their dtype says")
        return np.array(values, dtype=dtype)
    wanted = {"b": bool, "i": int, "u": int, "f": float}[np.dtype(dtype).kind]
    if not all(type(number) is wanted for number in values):
        raise ValueError(f"classes of dtype {dtype} must all be of type {wanted.__name__}")
    return np.array(values, dtype=dtype)
