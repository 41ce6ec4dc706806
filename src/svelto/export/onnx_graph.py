"""An ONNX graph while it is written: operators in order, each constant and each result once, names found by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self, TypeAlias

import numpy as np

# Operators of this version of the standard set; onnxruntime has known it since 1.12.
OPSET: Final = 17
IR_VERSION: Final = 8
Typed: TypeAlias = tuple[str, Any]
DTYPES: Final = {"float32": np.float32, "float64": np.float64}


class Graph:
    """Operators on named values.

    Every method that adds an operator returns the name of its result.

    Parameters
    ----------
    dtype : {"float32", "float64"}
        Of its floating point numbers.
    """

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.floating = DTYPES[dtype]
        self.nodes: list[Any] = []
        self._made: dict[Any, str] = {}
        self._constants: dict[Any, Any] = {}
        self._names: dict[str, int] = {}

    def body(self) -> Self:
        """A graph inside this one, for a loop: operators of its own, the constants and names of this one."""
        inner = type(self)(self.dtype)
        inner._constants, inner._names = self._constants, self._names
        return inner

    @property
    def constants(self) -> list[Any]:
        """All constants."""
        return list(self._constants.values())

    def new_name(self, stem: str) -> str:
        """A name that is not in use."""
        number = self._names.get(stem, 0)
        self._names[stem] = number + 1
        return f"{stem}_{number}"

    # -- constants -------------------------------------------------------------------------------------------

    def constant(self, values: Any) -> str:
        """A constant as it is; the same values are kept once."""
        from onnx import numpy_helper

        array = np.asarray(values)
        is_text = array.dtype.kind == "O"
        key = array.dtype.str, array.shape, tuple(array.tolist()) if is_text else array.tobytes()
        if key not in self._constants:
            plain = array if is_text or array.ndim == 0 else np.ascontiguousarray(array)
            self._constants[key] = numpy_helper.from_array(plain, self.new_name("constant"))
        found: str = self._constants[key].name
        return found

    def floats(self, values: Any) -> str:
        """A constant of the graph's floating point type."""
        return self.constant(np.asarray(values, dtype=self.floating))

    def whole(self, values: Any) -> str:
        """A constant of whole numbers."""
        return self.constant(np.asarray(values, dtype=np.int64))

    # -- operators -------------------------------------------------------------------------------------------

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """An operator with one result; the same one again is not added."""
        from onnx import helper

        key = kind, inputs, repr(sorted(attributes.items()))
        if key not in self._made:
            self._made[key] = self.new_name(kind.lower())
            self.nodes.append(helper.make_node(kind, list(inputs), [self._made[key]], **attributes))
        return self._made[key]

    def named(self, value: str, name: str) -> None:
        """A value under the name of an output."""
        from onnx import helper

        self.nodes.append(helper.make_node("Identity", [value], [name]))

    def cast(self, value: str, dtype: Any) -> str:
        """The value in another of NumPy's types."""
        from onnx import helper

        return self.node("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def cast_floats(self, value: str) -> str:
        """The value in the graph's floating point type."""
        return self.cast(value, self.floating)

    def flat(self, value: str) -> str:
        """The value with one axis."""
        return self.node("Reshape", value, self.whole([-1]))

    def column(self, value: str) -> str:
        """One axis as a matrix of one column."""
        return self.node("Reshape", value, self.whole([-1, 1]))

    def n_rows(self, rows: str) -> str:
        """How many rows there are, as an axis of one number."""
        return self.node("Shape", rows, start=0, end=1)

    def rows_from(self, rows: str, start: str, stop: str) -> str:
        """Some rows."""
        return self.node("Slice", rows, start, stop, self.whole([0]))

    def sum(self, values: str, axis: int, *, keep: bool = False) -> str:
        """Sums along an axis."""
        return self.node("ReduceSum", values, self.whole([axis]), keepdims=int(keep))

    def squares(self, rows: str) -> str:
        """Squared length of each row, one column."""
        return self.node("ReduceSumSquare", rows, axes=[1], keepdims=1)

    def less(self, rows: str, shift: Any) -> str:
        """Rows with a vector taken off; as they are where that is zero."""
        return self.node("Sub", rows, self.floats(shift)) if np.any(shift) else rows

    def all_of(self, first: str, *others: str | None) -> str:
        """Whether all of some conditions hold; those that are None do."""
        for other in others:
            if other is not None:
                first = self.node("And", first, other)
        return first

    def when(self, condition: str, inner: Graph, results: Sequence[Typed], otherwise: Sequence[str]) -> list[str]:
        """Results of a body where a condition holds, else values that are there already."""
        from onnx import helper

        other = self.body()
        kept = [other.node("Identity", name) for name in otherwise]
        branches = {}
        for side, body, names in (("then", inner, [name for name, _ in results]), ("else", other, kept)):
            outputs = [value_info(name, dtype, None) for name, (_, dtype) in zip(names, results, strict=True)]
            branches[f"{side}_branch"] = helper.make_graph(body.nodes, self.new_name(side), [], outputs)
        names = [self.new_name("if") for _ in results]
        self.nodes.append(helper.make_node("If", [condition], names, **branches))
        return names

    def loop(self, n_trips: str, inner: Graph, trip: str, given: str, results: Sequence[Typed]) -> list[str]:
        """Results of all trips of a body, for each one behind the other along a new first axis."""
        from onnx import TensorProto, helper

        go_on = inner.node("Identity", given)
        inputs = [
            helper.make_tensor_value_info(trip, TensorProto.INT64, []),
            helper.make_tensor_value_info(given, TensorProto.BOOL, []),
        ]
        outputs = [helper.make_tensor_value_info(go_on, TensorProto.BOOL, [])]
        outputs += [value_info(name, dtype, None) for name, dtype in results]
        graph = helper.make_graph(inner.nodes, self.new_name("blocks"), inputs, outputs)
        names = [self.new_name("loop") for _ in results]
        self.nodes.append(helper.make_node("Loop", [n_trips, self.constant(np.array(True))], names, body=graph))
        return names


def value_info(name: str, dtype: Any, shape: Any) -> Any:
    """Type of a value; its shape may be unknown."""
    from onnx import helper

    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
