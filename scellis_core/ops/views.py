"""Ops that only re-index: no arithmetic, no kernel of their own where the reader can follow the index."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from scellis_core.ir import FLOATS, INTS, Cotangent, Node, OpDef, Tolerance, Type, Value, View, register
from scellis_core.ops.base import (
    Attrs,
    arity,
    emit,
    fail,
    flags,
    int_attr,
    integers,
    ints_attr,
    normal,
    shape_attr,
    shown,
)

if TYPE_CHECKING:
    from scellis_core.ops.base import Array, Rng

    Cases = list[tuple[list[Array], dict[str, Any]]]

_EXACT = Tolerance(0.0, 0.0)


# -- broadcast ------------------------------------------------------------------------------------------------
def _infer_broadcast(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    arity(types, 1)
    source, target = types[0].shape, shape_attr(attrs)
    lead = len(target) - len(source)
    if lead < 0 or any(have not in (1, want) for have, want in zip(source, target[lead:], strict=True)):
        fail(f"a shape that {list(source)} is repeated to, aligned from the right", f"{list(target)}", "ops.reshape")
    return (Type(types[0].dtype, target),)


def _broadcast_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    import numpy as np

    return [np.broadcast_to(arrays[0], shape_attr(attrs))]


def _broadcast_vjp(node: Node, grads: Sequence[Value | None]) -> Sequence[Cotangent]:
    (g,) = grads
    if g is None:
        return (None,)
    return (lambda: unbroadcast(g, node.inputs[0].shape),)


def unbroadcast(g: Value, shape: tuple[int, ...]) -> Value:
    """Sum a value over the axes along which ``shape`` was repeated."""
    lead = g.ndim - len(shape)
    axes = tuple(k for k in range(g.ndim) if k < lead or shape[k - lead] != g.shape[k])
    if axes:
        g = emit("reduce_sum", g, axes=axes, keepdims=lead == 0)
    return g if g.shape == shape else emit("reshape", g, shape=shape)


def _broadcast_sample(rng: Rng) -> Cases:
    return [
        ([normal(rng)], {"shape": (3, 5)}),
        ([normal(rng, 1)], {"shape": (70, 3)}),
        ([normal(rng, 70, 1)], {"shape": (70, 67)}),
        ([normal(rng, 67)], {"shape": (2, 3, 67)}),
        ([normal(rng, 3, 1, 5)], {"shape": (2, 3, 7, 5)}),
        ([integers(rng, -9, 9, 1, 5)], {"shape": (3, 5)}),
        ([flags(rng, 3, 1)], {"shape": (3, 5)}),
    ]


# -- reshape --------------------------------------------------------------------------------------------------
def _infer_reshape(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    arity(types, 1)
    shape = shape_attr(attrs)
    if prod(shape) != types[0].numel:
        fail(f"a shape of {types[0].numel} elements", f"{list(shape)} of {prod(shape)}")
    return (Type(types[0].dtype, shape),)


def _reshape_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    return [arrays[0].reshape(shape_attr(attrs))]


def _reshape_vjp(node: Node, grads: Sequence[Value | None]) -> Sequence[Cotangent]:
    (g,) = grads
    return (None,) if g is None else (lambda: emit("reshape", g, shape=node.inputs[0].shape),)


def _reshape_sample(rng: Rng) -> Cases:
    return [
        ([normal(rng, 1)], {"shape": ()}),
        ([normal(rng, 70, 3)], {"shape": (7, 30)}),
        ([normal(rng, 2, 3, 5)], {"shape": (5, 1, 6)}),
        ([flags(rng, 6)], {"shape": (2, 3)}),
    ]


# -- permute --------------------------------------------------------------------------------------------------
def _infer_permute(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    arity(types, 1)
    shape = types[0].shape
    perm = ints_attr(attrs, "perm", len(shape))
    if sorted(perm) != list(range(len(shape))):
        fail(f"each axis of {types[0]} once", f"perm {perm}")
    return (Type(types[0].dtype, tuple(shape[p] for p in perm)),)


def _permute_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    return [arrays[0].transpose(ints_attr(attrs, "perm"))]


def _permute_vjp(node: Node, grads: Sequence[Value | None]) -> Sequence[Cotangent]:
    (g,) = grads
    perm = ints_attr(node.attrs, "perm")
    inverse = tuple(perm.index(k) for k in range(len(perm)))
    return (None,) if g is None else (lambda: emit("permute", g, perm=inverse),)


def _permute_sample(rng: Rng) -> Cases:
    return [
        ([normal(rng, 7)], {"perm": (0,)}),
        ([normal(rng, 70, 67)], {"perm": (1, 0)}),
        ([normal(rng, 2, 3, 1, 5)], {"perm": (0, 2, 3, 1)}),
        ([normal(rng, 3, 5, 7)], {"perm": (2, 0, 1)}),
        ([integers(rng, -9, 9, 3, 5)], {"perm": (1, 0)}),
    ]


# -- slice ----------------------------------------------------------------------------------------------------
def _infer_slice(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    arity(types, 1)
    shape = types[0].shape
    starts = ints_attr(attrs, "starts", len(shape))
    stops = ints_attr(attrs, "stops", len(shape))
    steps = ints_attr(attrs, "steps", len(shape), 1)
    for size, start, stop in zip(shape, starts, stops, strict=True):
        if not start < stop <= size:
            fail(f"start < stop <= size on each axis of {types[0]}", f"starts {starts}, stops {stops}")
    sizes = (-(-(stop - start) // step) for start, stop, step in zip(starts, stops, steps, strict=True))
    return (Type(types[0].dtype, tuple(sizes)),)


def _slice_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    bounds = zip(ints_attr(attrs, "starts"), ints_attr(attrs, "stops"), ints_attr(attrs, "steps"), strict=True)
    return [arrays[0][tuple(slice(*b) for b in bounds)]]


def _slice_vjp(node: Node, grads: Sequence[Value | None]) -> Sequence[Cotangent]:
    (g,) = grads
    if g is None:
        return (None,)
    starts, steps = ints_attr(node.attrs, "starts"), ints_attr(node.attrs, "steps")
    source = node.inputs[0].shape

    def back() -> Value:
        grown = g if all(s == 1 for s in steps) else _spread(g, steps)
        high = tuple(n - s - k for n, s, k in zip(source, starts, grown.shape, strict=True))
        return emit("pad", grown, low=starts, high=high, value=0.0)

    return (back,)


def _spread(g: Value, steps: tuple[int, ...]) -> Value:
    """Put ``step - 1`` zeros between neighbours on each axis."""
    paired = tuple(n for size in g.shape for n in (size, 1))
    high = tuple(n for step in steps for n in (0, step - 1))
    g_pairs = emit("pad", emit("reshape", g, shape=paired), low=(0,) * len(paired), high=high, value=0.0)
    wide = emit("reshape", g_pairs, shape=tuple(size * step for size, step in zip(g.shape, steps, strict=True)))
    stops = tuple((size - 1) * step + 1 for size, step in zip(g.shape, steps, strict=True))
    ones = (1,) * g.ndim
    return emit("slice", wide, starts=(0,) * g.ndim, stops=stops, steps=ones)


def _slice_sample(rng: Rng) -> Cases:
    return [
        ([normal(rng, 7)], {"starts": (2,), "stops": (3,), "steps": (1,)}),
        ([normal(rng, 70, 67)], {"starts": (1, 0), "stops": (70, 33), "steps": (1, 1)}),
        ([normal(rng, 9, 3, 11)], {"starts": (0, 1, 1), "stops": (9, 3, 10), "steps": (2, 1, 3)}),
        ([integers(rng, -9, 9, 8)], {"starts": (1,), "stops": (8,), "steps": (2,)}),
    ]


# -- pad ------------------------------------------------------------------------------------------------------
def _infer_pad(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    arity(types, 1)
    shape, dtype, value = types[0].shape, types[0].dtype, attrs["value"]
    low, high = ints_attr(attrs, "low", len(shape)), ints_attr(attrs, "high", len(shape))
    wanted = float if dtype in FLOATS else int if dtype in INTS else bool
    if type(value) is not wanted:
        fail(f"value as {wanted.__name__} for dtype {dtype}", repr(value))
    return (Type(dtype, tuple(a + n + b for a, n, b in zip(low, shape, high, strict=True))),)


def _pad_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    import numpy as np

    widths = list(zip(ints_attr(attrs, "low"), ints_attr(attrs, "high"), strict=True))
    return [np.pad(arrays[0], widths, constant_values=attrs["value"])] if widths else [arrays[0]]  # type: ignore[call-overload]


def _pad_vjp(node: Node, grads: Sequence[Value | None]) -> Sequence[Cotangent]:
    (g,) = grads
    if g is None:
        return (None,)
    low = ints_attr(node.attrs, "low")
    stops = tuple(a + n for a, n in zip(low, node.inputs[0].shape, strict=True))
    return (lambda: emit("slice", g, starts=low, stops=stops, steps=(1,) * len(low)),)


def _pad_sample(rng: Rng) -> Cases:
    return [
        ([normal(rng, 1)], {"low": (2,), "high": (0,), "value": 0.0}),
        ([normal(rng, 70, 3)], {"low": (0, 1), "high": (5, 2), "value": -1.5}),
        ([normal(rng, 2, 3, 5)], {"low": (0, 0, 0), "high": (0, 0, 1), "value": 0.0}),
        ([integers(rng, -9, 9, 3, 5)], {"low": (1, 1), "high": (1, 1), "value": 7}),
        ([flags(rng, 5)], {"low": (1,), "high": (1,), "value": True}),
    ]


# -- concat ---------------------------------------------------------------------------------------------------
def _infer_concat(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    if not types:
        fail("at least one operand", "none")
    first = types[0]
    axis = int_attr(attrs, "axis", 0, len(first.shape))
    total = 0
    for other in types:
        rest = other.shape[:axis] + other.shape[axis + 1 :]
        if other.dtype != first.dtype or rest != first.shape[:axis] + first.shape[axis + 1 :]:
            fail(f"operands of one dtype and shape but for axis {axis}", shown(types))
        total += other.shape[axis]
    return (Type(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :])),)


def _concat_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    import numpy as np

    return [np.concatenate(arrays, axis=int_attr(attrs, "axis"))]


def _concat_vjp(node: Node, grads: Sequence[Value | None]) -> Sequence[Cotangent]:
    (g,) = grads
    if g is None:
        return [None] * len(node.inputs)
    axis = int_attr(node.attrs, "axis")
    steps = (1,) * g.ndim

    def part(start: int, shape: tuple[int, ...]) -> Value:
        starts = tuple(start if k == axis else 0 for k in range(g.ndim))
        stops = tuple(s + n for s, n in zip(starts, shape, strict=True))
        return emit("slice", g, starts=starts, stops=stops, steps=steps)

    out: list[Cotangent] = []
    start = 0
    for value in node.inputs:
        out.append(lambda start=start, shape=value.shape: part(start, shape))
        start += value.shape[axis]
    return out


def _concat_sample(rng: Rng) -> Cases:
    return [
        ([normal(rng, 1), normal(rng, 7)], {"axis": 0}),
        ([normal(rng, 70, 3), normal(rng, 70, 5), normal(rng, 70, 1)], {"axis": 1}),
        ([normal(rng, 2, 3, 5), normal(rng, 2, 4, 5)], {"axis": 1}),
        ([normal(rng, 3, 5)], {"axis": 0}),
        ([integers(rng, -9, 9, 3), integers(rng, -9, 9, 2)], {"axis": 0}),
    ]


register(
    OpDef(
        "broadcast",
        "Repeat along new leading axes and axes of size 1.",
        _infer_broadcast,
        _broadcast_oracle,
        View("broadcast"),
        _broadcast_vjp,
        tolerance=_EXACT,
        attrs=("shape",),
        sample=_broadcast_sample,
    )
)
register(
    OpDef(
        "reshape",
        "The same elements in row-major order at another shape.",
        _infer_reshape,
        _reshape_oracle,
        View("reshape"),
        _reshape_vjp,
        tolerance=_EXACT,
        attrs=("shape",),
        sample=_reshape_sample,
    )
)
register(
    OpDef(
        "permute",
        "Axis k of the result is axis perm[k] of the operand.",
        _infer_permute,
        _permute_oracle,
        View("permute"),
        _permute_vjp,
        tolerance=_EXACT,
        attrs=("perm",),
        sample=_permute_sample,
    )
)
register(
    OpDef(
        "slice",
        "Elements from starts up to stops by steps >= 1 on each axis.",
        _infer_slice,
        _slice_oracle,
        View("slice"),
        _slice_vjp,
        tolerance=_EXACT,
        attrs=("starts", "stops", "steps"),
        sample=_slice_sample,
    )
)
register(
    OpDef(
        "pad",
        "Grow each axis by low and high elements of one value.",
        _infer_pad,
        _pad_oracle,
        View("pad"),
        _pad_vjp,
        tolerance=_EXACT,
        attrs=("low", "high", "value"),
        sample=_pad_sample,
    )
)
register(
    OpDef(
        "concat",
        "Operands one after the other along an axis.",
        _infer_concat,
        _concat_oracle,
        View("concat"),
        _concat_vjp,
        tolerance=_EXACT,
        attrs=("axis",),
        sample=_concat_sample,
    )
)
