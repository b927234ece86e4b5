"""The functional API: every op as a function of values and Python numbers, and what is composed of them.

Numbers become constants of the other operands' dtype and shapes are broadcast, both as explicit nodes. An op
whose name is a Python keyword has an underscore (``and_``, ``or_``, ``not_``). Axes may be negative.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from scellis_core.errors import IRError
from scellis_core.ir import FLOATS, Graph, Operand, Value, broadcast_shapes
from scellis_core.ops.base import emit, number

Axes = int | Sequence[int] | None
Pair = int | tuple[int, int]
Padding = int | tuple[int, int] | tuple[int, int, int, int]


def _graph(*operands: Operand) -> Graph:
    for operand in operands:
        if isinstance(operand, Value):
            return operand.node.graph
    raise IRError("ops", "at least one tensor value", "Python numbers alone", "graph.const")


def _binary(op: str, a: Operand, b: Operand) -> Value:
    return _graph(a, b).binary(op, a, b)


# -- one operand ----------------------------------------------------------------------------------------------
def neg(x: Value) -> Value:
    """``-x``."""
    return emit("neg", x)


def abs(x: Value) -> Value:
    """``|x|``."""
    return emit("abs", x)


def exp(x: Value) -> Value:
    """``e^x``."""
    return emit("exp", x)


def log(x: Value) -> Value:
    """Natural logarithm."""
    return emit("log", x)


def log1p(x: Value) -> Value:
    """``log(1 + x)``, accurate near 0."""
    return emit("log1p", x)


def expm1(x: Value) -> Value:
    """``e^x - 1``, accurate near 0."""
    return emit("expm1", x)


def sqrt(x: Value) -> Value:
    """Square root."""
    return emit("sqrt", x)


def rsqrt(x: Value) -> Value:
    """``1 / sqrt(x)``."""
    return emit("rsqrt", x)


def recip(x: Value) -> Value:
    """``1 / x``."""
    return emit("recip", x)


def square(x: Value) -> Value:
    """``x * x``."""
    return emit("mul", x, x)


def tanh(x: Value) -> Value:
    """Hyperbolic tangent."""
    return emit("tanh", x)


def sigmoid(x: Value) -> Value:
    """``1 / (1 + e^-x)``."""
    return emit("sigmoid", x)


def erf(x: Value) -> Value:
    """Error function."""
    return emit("erf", x)


def sin(x: Value) -> Value:
    """Sine of radians."""
    return emit("sin", x)


def cos(x: Value) -> Value:
    """Cosine of radians."""
    return emit("cos", x)


def floor(x: Value) -> Value:
    """Largest whole number that is not above x."""
    return emit("floor", x)


def ceil(x: Value) -> Value:
    """Smallest whole number that is not below x."""
    return emit("ceil", x)


def round(x: Value) -> Value:
    """Nearest whole number, ties to even."""
    return emit("round", x)


def sign(x: Value) -> Value:
    """-1, 0 or 1."""
    return emit("sign", x)


def not_(x: Value) -> Value:
    """Logical not of bool, bitwise not of integers."""
    return emit("not", x)


def isfinite(x: Value) -> Value:
    """Whether x is neither infinite nor NaN, by its bits."""
    return emit("isfinite", x)


def stop_gradient(x: Value) -> Value:
    """x, through which no gradient flows."""
    return emit("stop_gradient", x)


def cast(x: Value, dtype: str) -> Value:
    """Another dtype; x itself where it has that one."""
    return x if x.dtype == dtype else emit("cast", x, dtype=dtype)


# -- two and three operands -----------------------------------------------------------------------------------
def add(a: Operand, b: Operand) -> Value:
    """``a + b``."""
    return _binary("add", a, b)


def sub(a: Operand, b: Operand) -> Value:
    """``a - b``."""
    return _binary("sub", a, b)


def mul(a: Operand, b: Operand) -> Value:
    """``a * b``."""
    return _binary("mul", a, b)


def div(a: Operand, b: Operand) -> Value:
    """``a / b``; integers truncate."""
    return _binary("div", a, b)


def rem(a: Operand, b: Operand) -> Value:
    """Remainder of integers, with the sign of a."""
    return _binary("rem", a, b)


def pow(a: Operand, b: Operand) -> Value:
    """``a ** b`` as IEEE defines it; small numbers as exponents become products and roots."""
    return a**b if isinstance(a, Value) else _binary("pow", a, b)


def max(a: Operand, b: Operand) -> Value:
    """The greater; at a tie each operand gets half the gradient."""
    return _binary("max", a, b)


def min(a: Operand, b: Operand) -> Value:
    """The lesser; at a tie each operand gets half the gradient."""
    return _binary("min", a, b)


def lt(a: Operand, b: Operand) -> Value:
    """``a < b``."""
    return _binary("lt", a, b)


def le(a: Operand, b: Operand) -> Value:
    """``a <= b``."""
    return _binary("le", a, b)


def gt(a: Operand, b: Operand) -> Value:
    """``a > b``."""
    return _binary("lt", b, a)


def ge(a: Operand, b: Operand) -> Value:
    """``a >= b``."""
    return _binary("le", b, a)


def eq(a: Operand, b: Operand) -> Value:
    """``a == b`` element by element."""
    return _binary("eq", a, b)


def ne(a: Operand, b: Operand) -> Value:
    """``a != b`` element by element."""
    return _binary("ne", a, b)


def and_(a: Operand, b: Operand) -> Value:
    """Logical and of bool, bitwise and of integers."""
    return _binary("and", a, b)


def or_(a: Operand, b: Operand) -> Value:
    """Logical or of bool, bitwise or of integers."""
    return _binary("or", a, b)


def xor(a: Operand, b: Operand) -> Value:
    """Exclusive or."""
    return _binary("xor", a, b)


def shl(a: Operand, b: Operand) -> Value:
    """Integers shifted left by ``b`` bits (modulo 32)."""
    return _binary("shl", a, b)


def shr(a: Operand, b: Operand) -> Value:
    """Integers shifted right by ``b`` bits (modulo 32); i32 keeps its sign."""
    return _binary("shr", a, b)


def select(condition: Value, a: Operand, b: Operand) -> Value:
    """``a`` where the condition holds, else ``b``; of two numbers, floats give f32, integers i32."""
    graph = condition.node.graph
    shape = condition.shape
    for operand in (a, b):
        if isinstance(operand, Value):
            shape = broadcast_shapes(shape, operand.shape)
    typed = next((o.dtype for o in (a, b) if isinstance(o, Value)), None)
    if typed is None:
        typed = "bool" if isinstance(a, bool) else "f32" if isinstance(a, float) or isinstance(b, float) else "i32"
    values = [graph.broadcast(o, shape) if isinstance(o, Value) else graph.const(o, typed, shape) for o in (a, b)]
    return emit("select", graph.broadcast(condition, shape), *values)


# -- composed pointwise ---------------------------------------------------------------------------------------
def relu(x: Value) -> Value:
    """``max(x, 0)`` with slope 0 at 0; lets NaN through."""
    zero = number(x, 0.0)
    return emit("select", emit("le", x, zero), zero, x)


def silu(x: Value) -> Value:
    """``x sigmoid(x)``."""
    return emit("mul", x, sigmoid(x))


def gelu(x: Value, approximate: Literal["none", "tanh"] = "none") -> Value:
    """``x Phi(x)`` by erf, or its tanh form.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 2.
    """
    if approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2.0 / math.pi)
        return x * 0.5 * (tanh(inner) + 1.0)
    return x * 0.5 * (erf(x * math.sqrt(0.5)) + 1.0)


def softplus(x: Value) -> Value:
    """``log(1 + e^x)``; neither end overflows."""
    return relu(x) + log1p(exp(-abs(x)))


def clamp(x: Value, low: Operand, high: Operand) -> Value:
    """X held between ``low`` and ``high``."""
    return min(max(x, low), high)


def one_minus_power(beta: float, t: Value) -> Value:
    """``1 - beta^t`` for a number ``0 <= beta < 1`` and ``t > 0``, accurate where ``beta`` is close to 1.

    Raises:
        IRError: if ``beta`` is out of range.
    """
    if not 0.0 <= beta < 1.0:
        raise IRError("one_minus_power", "0 <= beta < 1", repr(beta))
    if beta == 0.0:
        return number(t, 1.0)
    return neg(expm1(t * math.log(beta)))


# -- views ----------------------------------------------------------------------------------------------------
def broadcast(x: Value, shape: Sequence[int]) -> Value:
    """X repeated to a shape; x itself where it has that one."""
    return x.node.graph.broadcast(x, tuple(shape))


def reshape(x: Value, shape: Sequence[int]) -> Value:
    """The same elements at another shape; one size may be -1."""
    sizes = tuple(shape)
    if sizes.count(-1) == 1:
        known = -math.prod(sizes)
        if known > 0 and x.type.numel % known == 0:
            sizes = tuple(x.type.numel // known if s == -1 else s for s in sizes)
    return x if sizes == x.shape else emit("reshape", x, shape=sizes)


def permute(x: Value, perm: Sequence[int]) -> Value:
    """Axis ``k`` of the result is axis ``perm[k]`` of x."""
    axes = tuple(_axis(x, p) for p in perm)
    return x if axes == tuple(range(x.ndim)) else emit("permute", x, perm=axes)


def slice(x: Value, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int] | None = None) -> Value:
    """Elements from ``starts`` up to ``stops`` by ``steps`` (1 where None) on each axis."""
    return emit(
        "slice", x, starts=tuple(starts), stops=tuple(stops), steps=(1,) * x.ndim if steps is None else tuple(steps)
    )


def pad(x: Value, low: Sequence[int], high: Sequence[int], value: float | int | bool = 0.0) -> Value:
    """Each axis grown by ``low`` and ``high`` elements of one value."""
    if x.dtype in FLOATS and type(value) is int:
        value = float(value)
    if x.dtype not in FLOATS and value == 0.0:
        value = False if x.dtype == "bool" else 0
    return emit("pad", x, low=tuple(low), high=tuple(high), value=value)


def concat(values: Sequence[Value], axis: int = 0) -> Value:
    """Values one after the other along an axis."""
    if not values:
        raise IRError("concat", "at least one value", "none")
    return emit("concat", *values, axis=_axis(values[0], axis))


# -- reductions -----------------------------------------------------------------------------------------------
def _axis(x: Value, axis: int) -> int:
    if not -x.ndim <= axis < x.ndim:
        raise IRError(f"axis of {x.type}", f"an axis from {-x.ndim} to {x.ndim - 1}", str(axis))
    return axis % x.ndim


def _axes(x: Value, axes: Axes) -> tuple[int, ...]:
    if axes is None:
        return tuple(range(x.ndim))
    return tuple(sorted(_axis(x, a) for a in ((axes,) if isinstance(axes, int) else axes)))


def _reduce(op: str, x: Value, axes: Axes, keepdims: bool) -> Value:
    found = _axes(x, axes)
    return emit(op, x, axes=found, keepdims=keepdims) if found else x


def reduce_sum(x: Value, axes: Axes = None, keepdims: bool = False) -> Value:
    """Sum over axes (all where None)."""
    return _reduce("reduce_sum", x, axes, keepdims)


def reduce_max(x: Value, axes: Axes = None, keepdims: bool = False) -> Value:
    """Greatest over axes (all where None); ties share the gradient evenly."""
    return _reduce("reduce_max", x, axes, keepdims)


def reduce_min(x: Value, axes: Axes = None, keepdims: bool = False) -> Value:
    """Least over axes (all where None); ties share the gradient evenly."""
    return _reduce("reduce_min", x, axes, keepdims)


def argmax(x: Value, axis: int = -1) -> Value:
    """Index (i32) of the greatest along an axis, the first where several are."""
    return emit("argmax", x, axis=_axis(x, axis))


def mean(x: Value, axes: Axes = None, keepdims: bool = False) -> Value:
    """Mean over axes (all where None)."""
    count = math.prod(x.shape[a] for a in _axes(x, axes))
    return reduce_sum(x, axes, keepdims) * (1.0 / count)


def var(x: Value, axes: Axes = None, keepdims: bool = False, correction: int = 0) -> Value:
    """Mean squared distance from the mean, over ``count - correction``, in two passes."""
    count = math.prod(x.shape[a] for a in _axes(x, axes)) - correction
    if count < 1:
        raise IRError("var", f"more than {correction} elements", f"{count + correction}")
    return reduce_sum(square(x - mean(x, axes, keepdims=True)), axes, keepdims) * (1.0 / count)


def _shifted(x: Value, axis: int) -> tuple[Value, Value]:
    """X less its maximum along an axis, and that maximum (axis kept); neither passes a gradient to it."""
    top = stop_gradient(reduce_max(x, (axis,), keepdims=True))
    return x - top, top


def softmax(x: Value, axis: int = -1) -> Value:
    """``e^x / sum e^x`` along an axis; does not overflow."""
    e = exp(_shifted(x, axis)[0])
    return e / reduce_sum(e, (axis,), keepdims=True)


def log_softmax(x: Value, axis: int = -1) -> Value:
    """``x - log(sum e^x)`` along an axis; does not overflow."""
    z = _shifted(x, axis)[0]
    return z - log(reduce_sum(exp(z), (axis,), keepdims=True))


def logsumexp(x: Value, axis: int = -1, keepdims: bool = False) -> Value:
    """``log(sum e^x)`` along an axis; does not overflow."""
    z, top = _shifted(x, axis)
    out = log(reduce_sum(exp(z), (axis,), keepdims=True)) + top
    if keepdims:
        return out
    at = _axis(x, axis)
    return reshape(out, x.shape[:at] + x.shape[at + 1 :])


# -- products, windows, indices -------------------------------------------------------------------------------
def matmul(a: Value, b: Value, transpose_a: bool = False, transpose_b: bool = False) -> Value:
    """``a[.., M, K] b[.., K, N]``, each transposed first where asked; batch dimensions are broadcast."""
    if a.ndim > 2 and b.ndim == 2 and transpose_a:
        b = broadcast(b, (*a.shape[:-2], *b.shape))
    elif b.ndim > 2 and a.shape[:-2] != b.shape[:-2]:
        batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = broadcast(a, (*batch, *a.shape[-2:])), broadcast(b, (*batch, *b.shape[-2:]))
    return emit("matmul", a, b, transpose_a=transpose_a, transpose_b=transpose_b)


def _pair(size: Pair) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def _edges(padding: Padding) -> tuple[int, ...]:
    if isinstance(padding, int):
        return (padding,) * 4
    if len(padding) == 2:
        return (padding[0], padding[0], padding[1], padding[1])
    return tuple(padding)


def conv2d(x: Value, w: Value, stride: Pair = 1, padding: Padding = 0, dilation: Pair = 1, groups: int = 1) -> Value:
    """Cross-correlation of x[N, C, H, W] with w[O, C / groups, kh, kw].

    Args:
        x: images.
        w: kernels.
        stride: rows and columns.
        padding: zeros on all edges, on (rows, columns), or (top, bottom, left, right).
        dilation: rows and columns.
        groups: of channels.
    """
    return emit("conv2d", x, w, stride=_pair(stride), padding=_edges(padding), dilation=_pair(dilation), groups=groups)


def conv_transpose2d(
    x: Value,
    w: Value,
    stride: Pair = 1,
    padding: Pair = 0,
    output_padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Value:
    """The transpose of :func:`conv2d`: x[N, I, H, W] with w[I, O / groups, kh, kw], strides apart and overlapping.

    Each side becomes ``(n - 1) stride - 2 padding + dilation (k - 1) + output_padding + 1``.
    """
    steps, edge, more, gaps = _pair(stride), _pair(padding), _pair(output_padding), _pair(dilation)
    size = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + o + 1
        for n, s, p, d, k, o in zip(x.shape[2:], steps, edge, gaps, w.shape[2:], more, strict=True)
    )
    return emit("conv2d_grad_input", x, w, size=size, stride=steps, padding=_edges(edge), dilation=gaps, groups=groups)


def max_pool2d(x: Value, window: Pair, stride: Pair | None = None, padding: Padding = 0) -> Value:
    """Greatest of each window of x[N, C, H, W]; the stride is the window where None."""
    step = _pair(window if stride is None else stride)
    return emit("max_pool2d", x, window=_pair(window), stride=step, padding=_edges(padding))


def avg_pool2d(
    x: Value, window: Pair, stride: Pair | None = None, padding: Padding = 0, count_include_pad: bool = True
) -> Value:
    """Mean of each window of x[N, C, H, W]; the stride is the window where None."""
    return emit(
        "avg_pool2d",
        x,
        window=_pair(window),
        stride=_pair(window if stride is None else stride),
        padding=_edges(padding),
        count_include_pad=count_include_pad,
    )


def take(table: Value, index: Value) -> Value:
    """Rows of ``table[V, ..]`` by index: ``[index.., ..]``."""
    return emit("take", table, index)


def scatter_add(index: Value, source: Value, rows: int) -> Value:
    """Rows of ``source[index.., ..]`` summed into ``[rows, ..]`` by index."""
    return emit("scatter_add", index, source, rows=rows)


def pick(x: Value, index: Value) -> Value:
    """``x[.., index]`` on the last axis."""
    return emit("pick", x, index)


# -- made from nothing ----------------------------------------------------------------------------------------
def const(graph: Graph, value: float | int | bool, dtype: str = "f32", shape: Sequence[int] = ()) -> Value:
    """One number at every element."""
    return graph.const(value, dtype, tuple(shape))


def iota(graph: Graph, shape: Sequence[int], axis: int = -1, dtype: str = "i32") -> Value:
    """The index along one axis."""
    sizes = tuple(shape)
    if not -len(sizes) <= axis < len(sizes):
        raise IRError("iota", f"an axis of {list(sizes)}", str(axis))
    return graph.emit("iota", [], shape=sizes, axis=axis % len(sizes), dtype=dtype)[0]


def uniform_from_bits(bits: Value) -> Value:
    """f32 in [0, 1) from random u32 bits: their upper 24, times 2^-24."""
    return cast(shr(bits, 8), "f32") * 2.0**-24


def uniform(graph: Graph, shape: Sequence[int], stream: str) -> Value:
    """Draws in [0, 1) from a named stream, f32; reserves their part of the run's counter."""
    sizes = tuple(shape)
    offset = graph.reserve(math.prod(sizes))
    return uniform_from_bits(graph.emit("philox", [], stream=stream, offset=offset, shape=sizes)[0])
