"""Gather and scatter: rows of a table by index, their adjoint, and one element of the last axis by index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scellis_core.errors import DataError
from scellis_core.ir import FLOATS, INTS, Cotangent, Family, Node, OpDef, Tolerance, Type, Value, View, register
from scellis_core.ops.base import Attrs, arity, dtype_in, emit, fail, int_attr, integers, normal, number, shown

if TYPE_CHECKING:
    from scellis_core.ops.base import Array, Rng

    Cases = list[tuple[list[Array], dict[str, Any]]]


def check_index(index: Array, size: int, what: str) -> None:
    """Refuse an index outside 0 .. size - 1, naming its position.

    Raises:
        DataError: at the first such index.
    """
    import numpy as np

    wrong = np.argwhere((index < 0) | (index >= size))
    if len(wrong):
        at = tuple(int(i) for i in wrong[0])
        raise DataError(f"{what} index at {list(at)}", f"0 to {size - 1}", str(int(index[at])))


def _infer_take(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    arity(types, 2)
    table, index = types
    dtype_in(index, INTS, "an index")
    if not table.shape:
        fail("a table of at least 1 dimension", str(table))
    return (Type(table.dtype, index.shape + table.shape[1:]),)


def _infer_scatter(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    arity(types, 2)
    index, source = types
    dtype_in(index, INTS, "an index")
    dtype_in(source, FLOATS, "a source")
    rows = int_attr(attrs, "rows", 1)
    depth = len(index.shape)
    if source.shape[:depth] != index.shape:
        fail(f"a source whose shape begins with {list(index.shape)}", shown(types))
    return (Type(source.dtype, (rows, *source.shape[depth:])),)


def _infer_pick(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    arity(types, 2)
    x, index = types
    dtype_in(index, INTS, "an index")
    if not x.shape or x.shape[:-1] != index.shape:
        fail("x[..., C] and an index of the same leading shape", shown(types))
    return (Type(x.dtype, index.shape),)


def _take_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    table, index = arrays
    check_index(index, len(table), "take")
    return [table[index]]


def _scatter_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    import numpy as np

    index, source = arrays
    rows = int_attr(attrs, "rows")
    check_index(index, rows, "scatter_add")
    out = np.zeros((rows, *source.shape[index.ndim :]))
    np.add.at(out, index, source)
    return [out]


def _pick_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    import numpy as np

    x, index = arrays
    check_index(index, x.shape[-1], "pick")
    return [np.take_along_axis(x, index[..., None], axis=-1)[..., 0]]


def _take_vjp(node: Node, grads: Sequence[Value | None]) -> Sequence[Cotangent]:
    (g,) = grads
    if g is None:
        return (None, None)
    table, index = node.inputs
    return (lambda: emit("scatter_add", index, g, rows=table.shape[0]), None)


def _scatter_vjp(node: Node, grads: Sequence[Value | None]) -> Sequence[Cotangent]:
    (g,) = grads
    if g is None:
        return (None, None)
    return (None, lambda: emit("take", g, node.inputs[0]))


def _pick_vjp(node: Node, grads: Sequence[Value | None]) -> Sequence[Cotangent]:
    (g,) = grads
    if g is None:
        return (None, None)
    x, index = node.inputs

    def wide(value: Value) -> Value:
        column = emit("reshape", value, shape=(*value.shape, 1))
        return column if x.shape[-1] == 1 else emit("broadcast", column, shape=x.shape)

    def back() -> Value:
        ramp = x.graph.emit("iota", [], shape=x.shape, axis=x.ndim - 1, dtype=index.dtype)[0]
        return emit("select", emit("eq", ramp, wide(index)), wide(g), number(x, 0.0))

    return (back, None)


def _take_sample(rng: Rng) -> Cases:
    return [
        ([normal(rng, 1, 3), integers(rng, 0, 1, 2)], {}),
        ([normal(rng, 7), integers(rng, 0, 7, 3, 5)], {}),
        ([normal(rng, 70, 33), integers(rng, 0, 70, 2, 67)], {}),
        ([normal(rng, 5, 2, 3), integers(rng, 0, 5, 9, dtype="uint32")], {}),
        ([normal(rng, 5, 4), integers(rng, 0, 5)], {}),
    ]


def _scatter_sample(rng: Rng) -> Cases:
    return [
        ([integers(rng, 0, 1, 2), normal(rng, 2, 3)], {"rows": 1}),
        ([integers(rng, 0, 7, 3, 5), normal(rng, 3, 5)], {"rows": 9}),
        ([integers(rng, 0, 70, 2, 67), normal(rng, 2, 67, 33)], {"rows": 70}),
        ([integers(rng, 0, 3, 300), normal(rng, 300, 5)], {"rows": 3}),
        ([integers(rng, 0, 5, 9, dtype="uint32"), normal(rng, 9, 2, 3)], {"rows": 5}),
    ]


def _pick_sample(rng: Rng) -> Cases:
    return [
        ([normal(rng, 1), integers(rng, 0, 1)], {}),
        ([normal(rng, 9, 1), integers(rng, 0, 1, 9)], {}),
        ([normal(rng, 70, 67), integers(rng, 0, 67, 70)], {}),
        ([normal(rng, 3, 5, 7), integers(rng, 0, 7, 3, 5, dtype="uint32")], {}),
    ]


register(
    OpDef(
        "take",
        "Rows of a table[V, ..] by index (embedding).",
        _infer_take,
        _take_oracle,
        View("take"),
        _take_vjp,
        tolerance=Tolerance(0.0, 0.0),
        sample=_take_sample,
    )
)
register(
    OpDef(
        "scatter_add",
        "Sum the source's rows into a result[rows, ..] by index, in the source's order.",
        _infer_scatter,
        _scatter_oracle,
        Family("scatter_add"),
        _scatter_vjp,
        tolerance=Tolerance(1e-5, 2e-5),
        attrs=("rows",),
        sample=_scatter_sample,
    )
)
register(
    OpDef(
        "pick",
        "The element of x[.., C] that the index names on the last axis.",
        _infer_pick,
        _pick_oracle,
        View("pick"),
        _pick_vjp,
        tolerance=Tolerance(0.0, 0.0),
        sample=_pick_sample,
    )
)
