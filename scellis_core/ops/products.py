"""Matrix product, batched, with transposes taken as strides."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from scellis_core.ir import FLOATS, Cotangent, Family, Node, OpDef, Tolerance, Type, Value, register
from scellis_core.ops.base import Attrs, arity, bool_attr, dtype_in, emit, fail, normal, shown

if TYPE_CHECKING:
    from scellis_core.ops.base import Array, Rng


def _infer(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    arity(types, 2)
    a, b = types
    transpose_a, transpose_b = bool_attr(attrs, "transpose_a"), bool_attr(attrs, "transpose_b")
    dtype_in(a, FLOATS)
    if a.dtype != b.dtype:
        fail("operands of one dtype", shown(types), "ops.cast")
    if len(a.shape) < 2 or len(b.shape) < 2:
        fail("two operands of at least 2 dimensions", shown(types), "ops.reshape")
    m, k = (a.shape[-1], a.shape[-2]) if transpose_a else (a.shape[-2], a.shape[-1])
    inner, n = (b.shape[-1], b.shape[-2]) if transpose_b else (b.shape[-2], b.shape[-1])
    if k != inner:
        flags = f"transpose_a={str(transpose_a).lower()} transpose_b={str(transpose_b).lower()}"
        fail(f"equal inner sizes, {k} of a", f"{inner} of b in {shown(types)} with {flags}", "a transpose flag")
    batch = a.shape[:-2]
    if len(b.shape) == 2:
        if batch and transpose_a:
            fail("an a that is not transposed where b alone has no batch", shown(types), "ops.broadcast(b, ...)")
    elif batch != b.shape[:-2]:
        fail("equal batch dimensions, or a b of 2 dimensions", shown(types), "ops.broadcast")
    return (Type(a.dtype, (*batch, m, n)),)


def _oracle(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    import numpy as np

    a, b = arrays
    if attrs["transpose_a"]:
        a = a.swapaxes(-1, -2)
    if attrs["transpose_b"]:
        b = b.swapaxes(-1, -2)
    if b.ndim == 2 and a.ndim > 2:
        return [(a.reshape(-1, a.shape[-1]) @ b).reshape(*a.shape[:-1], b.shape[-1])]
    return [np.matmul(a, b)]


def _mm(a: Value, b: Value, transpose_a: bool, transpose_b: bool) -> Value:
    return emit("matmul", a, b, transpose_a=transpose_a, transpose_b=transpose_b)


def _vjp(node: Node, grads: Sequence[Value | None]) -> Sequence[Cotangent]:
    (g,) = grads
    if g is None:
        return (None, None)
    a, b = node.inputs
    ta, tb = bool_attr(node.attrs, "transpose_a"), bool_attr(node.attrs, "transpose_b")

    def grad_a() -> Value:
        return _mm(b, g, tb, True) if ta else _mm(g, b, False, not tb)

    def grad_b() -> Value:
        left, right = a, g
        if b.ndim == 2 and a.ndim > 2:
            left = emit("reshape", a, shape=(prod(a.shape[:-1]), a.shape[-1]))
            right = emit("reshape", g, shape=(prod(g.shape[:-1]), g.shape[-1]))
        return _mm(right, left, True, ta) if tb else _mm(left, right, not ta, False)

    return (grad_a, grad_b)


def _sample(rng: Rng) -> list[tuple[list[Array], dict[str, Any]]]:
    def case(a: tuple[int, ...], b: tuple[int, ...], ta: bool, tb: bool) -> tuple[list[Array], dict[str, Any]]:
        return [normal(rng, *a), normal(rng, *b)], {"transpose_a": ta, "transpose_b": tb}

    return [
        case((1, 1), (1, 1), False, False),
        case((3, 5), (5, 7), False, False),
        case((5, 3), (5, 7), True, False),
        case((3, 5), (7, 5), False, True),
        case((70, 67), (67, 131), False, False),
        case((67, 70), (33, 67), True, True),
        case((1, 70), (70, 1), False, False),
        case((2, 3, 33, 17), (2, 3, 17, 9), False, False),
        case((2, 17, 33), (2, 9, 17), True, True),
        case((4, 5, 19), (19, 70), False, False),
        case((2, 3, 5, 19), (7, 19), False, True),
        case((128, 64), (64, 128), False, False),
    ]


register(
    OpDef(
        "matmul",
        "a[.., M, K] times b[.., K, N]; equal batch dimensions, or one b for every a; accumulated in f32.",
        _infer,
        _oracle,
        Family("matmul"),
        _vjp,
        tolerance=Tolerance(1e-5, 3e-5),
        attrs=("transpose_a", "transpose_b"),
        defaults={"transpose_a": False, "transpose_b": False},
        sample=_sample,
    )
)
