"""What op definitions share: checks of types and attributes, short forms to emit nodes, sample arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from scellis_core.errors import IRError
from scellis_core.ir import DTYPES, FLOATS, INTS, Attr, Operand, Type, Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Rng = np.random.Generator

Attrs = dict[str, Attr]
Infer = Callable[[Sequence[Type], Attrs], Sequence[Type]]

NUMBERS = (*FLOATS, *INTS)
SIGNED = (*FLOATS, "i32")
ANY = (*NUMBERS, "bool")


def fail(expected: str, got: str, hint: str = "") -> NoReturn:
    """Refuse operands or attributes; the graph adds where.

    Raises:
        IRError: always.
    """
    raise IRError("op", expected, got, hint)


def shown(types: Sequence[Type]) -> str:
    """Types for an error message."""
    return ", ".join(map(str, types)) or "no operand"


def arity(types: Sequence[Type], count: int) -> None:
    """Check the number of operands."""
    if len(types) != count:
        fail(f"{count} operand{'s' if count != 1 else ''}", f"{len(types)} ({shown(types)})")


def dtype_in(type: Type, allowed: Sequence[str], what: str = "operand") -> None:
    """Check a dtype."""
    if type.dtype not in allowed:
        fail(f"{what} of dtype {' or '.join(allowed)}", str(type), "ops.cast")


def shape_attr(attrs: Attrs, key: str = "shape") -> tuple[int, ...]:
    """A shape given as attribute: sizes of at least 1."""
    shape = attrs[key]
    if not isinstance(shape, tuple):
        fail(f"{key} as a tuple", repr(shape))
    for size in shape:
        if type(size) is not int or size < 1:
            fail(f"{key} of sizes >= 1 (no tensor is empty)", repr(shape))
    return shape


def dtype_attr(attrs: Attrs, allowed: Sequence[str] = tuple(DTYPES)) -> str:
    """A dtype given as attribute."""
    dtype = attrs["dtype"]
    if not isinstance(dtype, str) or dtype not in allowed:
        fail(f"dtype {' or '.join(allowed)}", repr(dtype))
    return dtype


def ints_attr(attrs: Attrs, key: str, count: int | None = None, low: int | None = 0) -> tuple[int, ...]:
    """A tuple of integers of at least ``low``."""
    items = attrs[key]
    if not isinstance(items, tuple) or any(type(i) is not int for i in items):
        fail(f"{key} as a tuple of integers", repr(items))
    if count is not None and len(items) != count:
        fail(f"{key} of {count} integers", repr(items))
    if low is not None and any(i < low for i in items):
        fail(f"{key} of integers >= {low}", repr(items))
    return items


def int_attr(attrs: Attrs, key: str, low: int = 0, high: int | None = None) -> int:
    """An integer of at least ``low`` and below ``high``."""
    item = attrs[key]
    if type(item) is not int or item < low or (high is not None and item >= high):
        fail(f"{key} as an integer >= {low}" + ("" if high is None else f" and < {high}"), repr(item))
    return item


def bool_attr(attrs: Attrs, key: str) -> bool:
    """True or false."""
    item = attrs[key]
    if not isinstance(item, bool):
        fail(f"{key} as true or false", repr(item))
    return item


def str_attr(attrs: Attrs, key: str) -> str:
    """A text that is not empty."""
    item = attrs[key]
    if not isinstance(item, str) or not item:
        fail(f"{key} as a text", repr(item))
    return item


# -- emitting -------------------------------------------------------------------------------------------------
def emit(op: str, *inputs: Value, **attrs: Attr) -> Value:
    """Emit an op of one output into its operands' graph."""
    return inputs[0].node.graph.emit(op, inputs, **attrs)[0]


def number(like: Value, value: float) -> Value:
    """A constant of a value's type."""
    return like.graph.const(value, like.type.dtype, like.type.shape)


def times(a: Value, b: Operand) -> Value:
    """``a * b`` for ``b`` of the same type or a number."""
    return emit("mul", a, b if isinstance(b, Value) else number(a, b))


def later(fn: Callable[..., Value], *args: Any, **kwargs: Any) -> Callable[[], Value]:
    """A cotangent that is emitted only where it is wanted."""
    return lambda: fn(*args, **kwargs)


# -- arrays ---------------------------------------------------------------------------------------------------
NUMPY_DTYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "int32": "i32",
    "uint32": "u32",
    "bool": "bool",
}
"""NumPy dtype name -> ours, for arrays that hold exactly such values."""

SIZES: tuple[tuple[int, ...], ...] = ((), (1,), (7,), (3, 5), (2, 1, 33), (70, 67))
"""Shapes that samples draw on: a scalar, ones, odd sizes, and more than a tile."""


def type_of(array: Array) -> Type:
    """The type of a sample array, from its NumPy dtype.

    Raises:
        IRError: for a NumPy dtype that has no counterpart.
    """
    if array.dtype.name not in NUMPY_DTYPES:
        fail(f"an array of {', '.join(NUMPY_DTYPES)}", array.dtype.name)
    return Type(NUMPY_DTYPES[array.dtype.name], tuple(array.shape))


def normal(rng: Rng, *shape: int) -> Array:
    """Standard normal draws, f32."""
    import numpy as np

    return np.asarray(rng.standard_normal(shape), np.float32)


def between(rng: Rng, low: float, high: float, *shape: int) -> Array:
    """Uniform draws, f32."""
    import numpy as np

    return np.asarray(rng.uniform(low, high, shape), np.float32)


def away(rng: Rng, low: float, high: float, *shape: int) -> Array:
    """Uniform draws of magnitude ``low`` to ``high`` and either sign, f32."""
    import numpy as np

    return np.asarray(rng.uniform(low, high, shape) * rng.choice((-1.0, 1.0), shape), np.float32)


def integers(rng: Rng, low: int, high: int, *shape: int, dtype: str = "int32") -> Array:
    """Uniform integers from ``low`` to ``high - 1``."""
    import numpy as np

    return np.asarray(rng.integers(low, high, shape), dtype)


def flags(rng: Rng, *shape: int) -> Array:
    """Random booleans."""
    import numpy as np

    return np.asarray(rng.integers(0, 2, shape), np.bool_)
