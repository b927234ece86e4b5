"""Reductions over any axes, accumulated in f32 in a fixed order on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from scellis_core.ir import Cotangent, Node, OpDef, Reduce, Tolerance, Type, Value, register
from scellis_core.ops.base import (
    NUMBERS,
    Attrs,
    arity,
    bool_attr,
    dtype_in,
    emit,
    fail,
    int_attr,
    integers,
    ints_attr,
    normal,
    number,
)

if TYPE_CHECKING:
    from scellis_core.ops.base import Array, Rng

    Cases = list[tuple[list[Array], dict[str, Any]]]


def _infer_reduce(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    arity(types, 1)
    dtype_in(types[0], NUMBERS)
    shape = types[0].shape
    axes = ints_attr(attrs, "axes")
    if not axes or any(a >= len(shape) for a in axes) or any(a >= b for a, b in pairwise(axes)):
        fail(f"at least one axis of {types[0]}, in rising order", f"axes {axes}", "ops.reduce_sum(x, axes=...)")
    if bool_attr(attrs, "keepdims"):
        return (Type(types[0].dtype, tuple(1 if k in axes else n for k, n in enumerate(shape))),)
    return (Type(types[0].dtype, tuple(n for k, n in enumerate(shape) if k not in axes)),)


def _infer_argmax(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    arity(types, 1)
    dtype_in(types[0], NUMBERS)
    shape = types[0].shape
    axis = int_attr(attrs, "axis", 0, len(shape))
    return (Type("i32", shape[:axis] + shape[axis + 1 :]),)


def _reduce_oracle(name: str) -> Callable[[Sequence[Array], Attrs], Sequence[Array]]:
    def oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
        import numpy as np

        return [getattr(np, name)(arrays[0], axis=ints_attr(attrs, "axes"), keepdims=bool_attr(attrs, "keepdims"))]

    return oracle


def _argmax_oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    import numpy as np

    return [np.argmax(arrays[0], axis=int_attr(attrs, "axis"))]


def _expand(g: Value, node: Node) -> Value:
    """A reduced value seen at the shape that was reduced."""
    shape, axes = node.inputs[0].shape, ints_attr(node.attrs, "axes")
    if not bool_attr(node.attrs, "keepdims") and axes != tuple(range(len(axes))):
        g = emit("reshape", g, shape=tuple(1 if k in axes else n for k, n in enumerate(shape)))
    return g if g.shape == shape else emit("broadcast", g, shape=shape)


def _sum_vjp(node: Node, grads: Sequence[Value | None]) -> Sequence[Cotangent]:
    (g,) = grads
    if g is None:
        return (None,)
    return (lambda: _expand(g, node),)


def _extreme_vjp(node: Node, grads: Sequence[Value | None]) -> Sequence[Cotangent]:
    """The gradient is split evenly among the elements that equal the result."""
    (g,) = grads
    if g is None:
        return (None,)

    def back() -> Value:
        x = node.inputs[0]
        best = emit("eq", x, _expand(node.outputs[0], node))
        zero = number(x, 0.0)
        count = emit("reduce_sum", emit("select", best, number(x, 1.0), zero), **node.attrs)
        return emit("select", best, _expand(emit("div", g, count), node), zero)

    return (back,)


def _sample(rng: Rng) -> Cases:
    return [
        ([normal(rng, 1)], {"axes": (0,), "keepdims": False}),
        ([normal(rng, 70, 67)], {"axes": (1,), "keepdims": True}),
        ([normal(rng, 70, 67)], {"axes": (0,), "keepdims": False}),
        ([normal(rng, 3, 1, 5, 7)], {"axes": (1, 3), "keepdims": False}),
        ([normal(rng, 3, 5, 7)], {"axes": (0, 2), "keepdims": True}),
        ([normal(rng, 2, 1031)], {"axes": (0, 1), "keepdims": False}),
        ([integers(rng, -9, 9, 5, 33)], {"axes": (1,), "keepdims": False}),
    ]


def _ties_sample(rng: Rng) -> Cases:
    return [*_sample(rng), ([integers(rng, 0, 3, 5, 7).astype("float32")], {"axes": (1,), "keepdims": False})]


def _argmax_sample(rng: Rng) -> Cases:
    return [
        ([normal(rng, 1)], {"axis": 0}),
        ([normal(rng, 70, 67)], {"axis": 1}),
        ([normal(rng, 3, 70, 5)], {"axis": 1}),
        ([integers(rng, 0, 3, 9, 11).astype("float32")], {"axis": 1}),
    ]


register(
    OpDef(
        "reduce_sum",
        "Sum over axes.",
        _infer_reduce,
        _reduce_oracle("sum"),
        Reduce("sum"),
        _sum_vjp,
        tolerance=Tolerance(1e-5, 2e-5),
        attrs=("axes", "keepdims"),
        defaults={"keepdims": False},
        sample=_sample,
    )
)
for _name, _summary in (("max", "Greatest over axes."), ("min", "Least over axes.")):
    register(
        OpDef(
            f"reduce_{_name}",
            _summary,
            _infer_reduce,
            _reduce_oracle(_name),
            Reduce(_name),
            _extreme_vjp,
            tolerance=Tolerance(0.0, 0.0),
            attrs=("axes", "keepdims"),
            defaults={"keepdims": False},
            sample=_ties_sample,
        )
    )
register(
    OpDef(
        "argmax",
        "Index of the greatest along an axis, the first where several are.",
        _infer_argmax,
        _argmax_oracle,
        Reduce("argmax"),
        no_vjp="its result is an index",
        tolerance=Tolerance(0.0, 0.0),
        attrs=("axis",),
        sample=_argmax_sample,
    )
)
