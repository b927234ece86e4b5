"""Elementwise ops: operands of one type, one WGSL scalar expression each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from scellis_core.ir import FLOATS, INTS, Cotangent, Node, OpDef, Pointwise, Tolerance, Type, Value, register
from scellis_core.ops.base import (
    ANY,
    NUMBERS,
    SIGNED,
    SIZES,
    Attrs,
    Infer,
    arity,
    away,
    between,
    dtype_attr,
    dtype_in,
    emit,
    fail,
    integers,
    later,
    number,
    shown,
    times,
)
from scellis_core.ops.elements import (
    Sample,
    both,
    cast_oracle,
    casts,
    div_oracle,
    draws,
    erf_oracle,
    finites,
    flag_pairs,
    ints,
    nonzero,
    normals,
    numpy,
    powers,
    quotients,
    recip_oracle,
    rem_oracle,
    rsqrt_oracle,
    same_oracle,
    select_oracle,
    selects,
    shift_oracle,
    shifts,
    sigmoid_oracle,
    signed,
    ties,
)

if TYPE_CHECKING:
    from scellis_core.ops.base import Array

Vjp = Callable[[Node, Sequence[Value | None]], Sequence[Cotangent]]

BITS = ("i32", "u32", "bool")
_FLAT = "piecewise constant: its derivative is zero wherever it has one"
_LOGIC = "its result is not a real number"
_INTEGER = "integers only"
_EXACT = Tolerance(0.0, 0.0)
_USUAL = Tolerance()


# -- types ----------------------------------------------------------------------------------------------------
def _elementwise(count: int, allowed: Sequence[str], result: str | None = None) -> Infer:
    def infer(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
        arity(types, count)
        first = types[0]
        for other in types[1:]:
            if other is not first and other != first:
                fail("operands of one type", shown(types), "ops.broadcast for shapes, ops.cast for dtypes")
        if first.dtype not in allowed:
            dtype_in(first, allowed)
        return (first if result is None else Type(result, first.shape),)

    return infer


def _infer_select(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    arity(types, 3)
    condition, a, b = types
    if condition.dtype != "bool":
        fail("a condition of dtype bool", str(condition), "a comparison such as ops.ne(x, 0)")
    if a != b or condition.shape != a.shape:
        fail("a condition and two values of one shape, the values of one dtype", shown(types), "ops.broadcast")
    return (a,)


def _infer_cast(types: Sequence[Type], attrs: Attrs) -> Sequence[Type]:
    arity(types, 1)
    return (Type(dtype_attr(attrs), types[0].shape),)


# -- derivatives ----------------------------------------------------------------------------------------------
def _one(fn: Callable[[Value, Value, Value], Value]) -> Vjp:
    """``fn(g, x, y)`` for an op ``y = op(x)``; integers let no gradient through."""

    def vjp(node: Node, grads: Sequence[Value | None]) -> Sequence[Cotangent]:
        (g,) = grads
        if g is None:
            return (None,)
        return (later(fn, g, node.inputs[0], node.outputs[0]),)

    return vjp


def _two(fn: Callable[[Value, Value, Value, Value], Sequence[Cotangent]]) -> Vjp:
    """``fn(g, a, b, y)`` for an op ``y = op(a, b)``."""

    def vjp(node: Node, grads: Sequence[Value | None]) -> Sequence[Cotangent]:
        (g,) = grads
        if g is None:
            return (None, None)
        return fn(g, node.inputs[0], node.inputs[1], node.outputs[0])

    return vjp


def _neg(x: Value) -> Value:
    return emit("neg", x)


def _vjp_mul(g: Value, a: Value, b: Value, y: Value) -> Sequence[Cotangent]:
    if a is b:

        def twice() -> Value:
            part = times(g, a)
            return emit("add", part, part)

        return (twice, None)
    return (later(times, g, b), later(times, g, a))


def _vjp_pow(g: Value, a: Value, b: Value, y: Value) -> Sequence[Cotangent]:
    def base() -> Value:
        return times(g, times(b, emit("pow", a, emit("sub", b, number(b, 1.0)))))

    def exponent() -> Value:
        positive = emit("lt", number(a, 0.0), a)
        log = emit("log", emit("select", positive, a, number(a, 1.0)))
        return times(g, times(y, log))

    return (base, exponent)


def _vjp_extreme(greater: bool) -> Callable[[Value, Value, Value, Value], Sequence[Cotangent]]:
    """The chosen operand gets the gradient; at a tie each gets half."""

    def vjp(g: Value, a: Value, b: Value, y: Value) -> Sequence[Cotangent]:
        def side(mine: Value, other: Value) -> Value:
            wins = emit("lt", other, mine) if greater else emit("lt", mine, other)
            tie = emit("select", emit("eq", a, b), times(g, 0.5), number(g, 0.0))
            return emit("select", wins, g, tie)

        return (later(side, a, b), later(side, b, a))

    return vjp


def _vjp_select(node: Node, grads: Sequence[Value | None]) -> Sequence[Cotangent]:
    (g,) = grads
    if g is None:
        return (None, None, None)
    condition = node.inputs[0]
    return (
        None,
        lambda: emit("select", condition, g, number(g, 0.0)),
        lambda: emit("select", condition, number(g, 0.0), g),
    )


def _vjp_cast(node: Node, grads: Sequence[Value | None]) -> Sequence[Cotangent]:
    (g,) = grads
    source = node.inputs[0].dtype
    if g is None or source not in FLOATS:
        return (None,)
    return (lambda: emit("cast", g, dtype=source),)


def _wide(call: str) -> dict[str, str]:
    """The same in f32 for f16 operands."""
    inner = call.replace("{0}", "f32({0})").replace("{1}", "f32({1})")
    return {"f16": f"f16({inner})"}


# -- one operand ----------------------------------------------------------------------------------------------
def _unary(
    name: str,
    summary: str,
    expr: str,
    oracle: Callable[[Sequence[Array], Attrs], Sequence[Array]],
    grad: Callable[[Value, Value, Value], Value] | None,
    sample: Sample,
    *,
    allowed: Sequence[str] = FLOATS,
    result: str | None = None,
    needs: tuple[str, ...] = (),
    by_dtype: dict[str, str] | None = None,
    no_vjp: str = "",
    tolerance: Tolerance = _USUAL,
) -> OpDef:
    return register(
        OpDef(
            name,
            summary,
            _elementwise(1, allowed, result),
            oracle,
            Pointwise(expr, needs, by_dtype or {}),
            vjp=None if grad is None else _one(grad),
            no_vjp=no_vjp,
            tolerance=tolerance,
            sample=sample,
        )
    )


_unary(
    "neg",
    "-x",
    "-{0}",
    numpy("negative"),
    lambda g, x, y: _neg(g),
    both(normals(1), signed),
    allowed=SIGNED,
    tolerance=_EXACT,
)
_unary(
    "abs",
    "|x|; slope 0 at 0",
    "abs({0})",
    numpy("abs"),
    lambda g, x, y: times(g, emit("sign", x)),
    both(normals(1), signed),
    allowed=SIGNED,
    tolerance=_EXACT,
)
_unary(
    "exp",
    "e^x",
    "exp({0})",
    numpy("exp"),
    lambda g, x, y: times(g, y),
    draws(-20.0, 10.0),
    by_dtype=_wide("exp({0})"),
    tolerance=Tolerance(1e-5, 1e-7),
)
_unary(
    "log",
    "natural logarithm",
    "log({0})",
    numpy("log"),
    lambda g, x, y: emit("div", g, x),
    draws(0.01, 30.0),
    by_dtype=_wide("log({0})"),
)
_unary(
    "log1p",
    "log(1 + x), accurate near 0",
    "sc_log1p({0})",
    numpy("log1p"),
    lambda g, x, y: emit("div", g, emit("add", x, number(x, 1.0))),
    both(draws(-0.9, 20.0), draws(-1e-4, 1e-4)),
    needs=("log1p",),
    by_dtype=_wide("sc_log1p({0})"),
    tolerance=Tolerance(2e-6, 1e-12),
)
_unary(
    "expm1",
    "e^x - 1, accurate near 0",
    "sc_expm1({0})",
    numpy("expm1"),
    lambda g, x, y: times(g, emit("add", y, number(y, 1.0))),
    both(draws(-10.0, 5.0), draws(-1e-4, 1e-4)),
    needs=("expm1",),
    by_dtype=_wide("sc_expm1({0})"),
    tolerance=Tolerance(5e-6, 1e-12),
)
_unary(
    "sqrt",
    "square root",
    "sqrt({0})",
    numpy("sqrt"),
    lambda g, x, y: emit("div", times(g, 0.5), y),
    draws(0.01, 30.0),
)
_unary(
    "rsqrt",
    "1 / square root",
    "inverseSqrt({0})",
    rsqrt_oracle,
    lambda g, x, y: times(times(g, -0.5), times(y, times(y, y))),
    draws(0.01, 30.0),
    by_dtype=_wide("inverseSqrt({0})"),
)
_unary(
    "tanh",
    "hyperbolic tangent",
    "sc_tanh({0})",
    numpy("tanh"),
    lambda g, x, y: times(g, emit("sub", number(y, 1.0), times(y, y))),
    both(
        draws(-4.0, 4.0), lambda rng: [([between(rng, -2000.0, 2000.0, 70)], {}), ([between(rng, -1e-3, 1e-3, 9)], {})]
    ),
    needs=("expm1", "tanh"),
    by_dtype=_wide("sc_tanh({0})"),
    tolerance=Tolerance(5e-6, 1e-12),
)
_unary(
    "sigmoid",
    "1 / (1 + e^-x)",
    "sc_sigmoid({0})",
    sigmoid_oracle,
    lambda g, x, y: times(g, times(y, emit("sub", number(y, 1.0), y))),
    both(draws(-8.0, 8.0), draws(-200.0, 200.0)),
    needs=("sigmoid",),
    by_dtype=_wide("sc_sigmoid({0})"),
    tolerance=Tolerance(2e-5, 1e-12),
)
_unary(
    "erf",
    "error function",
    "sc_erf({0})",
    erf_oracle,
    lambda g, x, y: times(g, times(emit("exp", _neg(times(x, x))), 2.0 / math.sqrt(math.pi))),
    draws(-5.0, 5.0),
    needs=("erf",),
    by_dtype=_wide("sc_erf({0})"),
    tolerance=Tolerance(1e-6, 4e-7),
)
_unary(
    "sin",
    "sine of radians, to 2e-7 up to 1e4 radians",
    "sc_sin({0})",
    numpy("sin"),
    lambda g, x, y: times(g, emit("cos", x)),
    both(draws(-3.1, 3.1), draws(-4000.0, 4000.0)),
    needs=("sin",),
    by_dtype=_wide("sc_sin({0})"),
    tolerance=Tolerance(0.0, 1e-6),
)
_unary(
    "cos",
    "cosine of radians, to 2e-7 up to 1e4 radians",
    "sc_cos({0})",
    numpy("cos"),
    lambda g, x, y: _neg(times(g, emit("sin", x))),
    both(draws(-3.1, 3.1), draws(-4000.0, 4000.0)),
    needs=("cos",),
    by_dtype=_wide("sc_cos({0})"),
    tolerance=Tolerance(0.0, 1e-6),
)
for _name, _summary, _fn in (
    ("floor", "largest whole number <= x", "floor"),
    ("ceil", "smallest whole number >= x", "ceil"),
    ("round", "nearest whole number, ties to even", "rint"),
):
    _unary(_name, _summary, f"{_name}({{0}})", numpy(_fn), None, draws(-9.0, 9.0), no_vjp=_FLAT, tolerance=_EXACT)
_unary(
    "sign",
    "-1, 0 or 1",
    "sign({0})",
    numpy("sign"),
    None,
    both(normals(1), lambda rng: [([integers(rng, -2, 3, 9)], {})]),
    allowed=SIGNED,
    no_vjp=_FLAT,
    tolerance=_EXACT,
)
_unary(
    "recip",
    "1 / x",
    "1.0 / {0}",
    recip_oracle,
    lambda g, x, y: _neg(times(g, times(y, y))),
    lambda rng: [([away(rng, 0.3, 3.0, *s)], {}) for s in SIZES],
)
_unary(
    "not",
    "logical not; bitwise of integers",
    "~{0}",
    numpy("invert"),
    None,
    both(flag_pairs(1), ints(1)),
    allowed=BITS,
    by_dtype={"bool": "!{0}"},
    no_vjp=_LOGIC,
    tolerance=_EXACT,
)
_unary(
    "isfinite",
    "whether neither infinite nor NaN, by the exponent's bits",
    "sc_isfinite({0})",
    numpy("isfinite"),
    None,
    finites,
    result="bool",
    needs=("isfinite",),
    by_dtype={"f16": "sc_isfinite(f32({0}))"},
    no_vjp=_LOGIC,
    tolerance=_EXACT,
)
_unary(
    "stop_gradient",
    "x, through which no gradient flows",
    "{0}",
    same_oracle,
    None,
    both(normals(1), flag_pairs(1)),
    allowed=ANY,
    no_vjp="it stops the gradient",
    tolerance=_EXACT,
)

register(
    OpDef(
        "cast",
        "Another dtype: to integers by truncation, to bool by x != 0.",
        _infer_cast,
        cast_oracle,
        Pointwise("{out}({0})"),
        vjp=_vjp_cast,
        tolerance=_EXACT,
        attrs=("dtype",),
        sample=casts,
    )
)


# -- two and three operands -----------------------------------------------------------------------------------
def _binary(
    name: str,
    summary: str,
    expr: str,
    oracle: Callable[[Sequence[Array], Attrs], Sequence[Array]],
    grad: Callable[[Value, Value, Value, Value], Sequence[Cotangent]] | None,
    sample: Sample,
    *,
    allowed: Sequence[str] = NUMBERS,
    result: str | None = None,
    needs: tuple[str, ...] = (),
    by_dtype: dict[str, str] | None = None,
    no_vjp: str = "",
    tolerance: Tolerance = _USUAL,
) -> OpDef:
    return register(
        OpDef(
            name,
            summary,
            _elementwise(2, allowed, result),
            oracle,
            Pointwise(expr, needs, by_dtype or {}),
            vjp=None if grad is None else _two(grad),
            no_vjp=no_vjp,
            tolerance=tolerance,
            sample=sample,
        )
    )


_binary(
    "add",
    "a + b",
    "{0} + {1}",
    numpy("add"),
    lambda g, a, b, y: (g, g),
    both(normals(2), ints(2)),
)
_binary(
    "sub",
    "a - b",
    "{0} - {1}",
    numpy("subtract"),
    lambda g, a, b, y: (g, later(_neg, g)),
    both(normals(2), ints(2)),
)
_binary("mul", "a * b", "{0} * {1}", numpy("multiply"), _vjp_mul, both(normals(2), ints(2)))
_binary(
    "div",
    "a / b; integers truncate, and by 0 give a",
    "{0} / {1}",
    div_oracle,
    lambda g, a, b, y: (lambda: emit("div", g, b), lambda: _neg(emit("div", times(g, y), b))),
    both(nonzero, quotients),
)
_binary(
    "rem",
    "remainder with the sign of a; by 0 gives 0",
    "{0} % {1}",
    rem_oracle,
    None,
    quotients,
    allowed=INTS,
    no_vjp=_INTEGER,
    tolerance=_EXACT,
)
_binary(
    "pow",
    "a^b as IEEE defines it: negative a only with whole b, anything to the 0 is 1",
    "sc_pow({0}, {1})",
    numpy("power"),
    _vjp_pow,
    powers,
    allowed=FLOATS,
    needs=("pow",),
    by_dtype=_wide("sc_pow({0}, {1})"),
    tolerance=Tolerance(2e-5, 1e-6),
)
_binary(
    "max",
    "the greater; at a tie each gets half the gradient",
    "max({0}, {1})",
    numpy("maximum"),
    _vjp_extreme(True),
    both(both(normals(2), ties), ints(2)),
    tolerance=_EXACT,
)
_binary(
    "min",
    "the lesser; at a tie each gets half the gradient",
    "min({0}, {1})",
    numpy("minimum"),
    _vjp_extreme(False),
    both(both(normals(2), ties), ints(2)),
    tolerance=_EXACT,
)
for _name, _summary, _sign, _fn in (("lt", "a < b", "<", "less"), ("le", "a <= b", "<=", "less_equal")):
    _binary(
        _name,
        _summary,
        f"{{0}} {_sign} {{1}}",
        numpy(_fn),
        None,
        both(both(normals(2), ties), ints(2, -2, 3)),
        result="bool",
        no_vjp=_LOGIC,
        tolerance=_EXACT,
    )
for _name, _summary, _sign, _fn in (("eq", "a == b", "==", "equal"), ("ne", "a != b", "!=", "not_equal")):
    _binary(
        _name,
        _summary,
        f"{{0}} {_sign} {{1}}",
        numpy(_fn),
        None,
        both(both(ties, ints(2, -2, 3)), flag_pairs(2)),
        allowed=ANY,
        result="bool",
        no_vjp=_LOGIC,
        tolerance=_EXACT,
    )
for _name, _summary, _sign, _fn in (
    ("and", "logical and; bitwise of integers", "&", "bitwise_and"),
    ("or", "logical or; bitwise of integers", "|", "bitwise_or"),
    ("xor", "exclusive or; bitwise of integers", "^", "bitwise_xor"),
):
    _binary(
        _name,
        _summary,
        f"{{0}} {_sign} {{1}}",
        numpy(_fn),
        None,
        both(flag_pairs(2), ints(2)),
        allowed=BITS,
        by_dtype={"bool": "{0} != {1}"} if _name == "xor" else None,
        no_vjp=_LOGIC,
        tolerance=_EXACT,
    )
for _name, _summary, _sign, _fn in (
    ("shl", "a shifted left by b bits, b modulo 32", "<<", "left_shift"),
    ("shr", "a shifted right by b bits, b modulo 32; i32 keeps its sign", ">>", "right_shift"),
):
    _binary(
        _name,
        _summary,
        f"{{0}} {_sign} (u32({{1}}) & 31u)",
        shift_oracle(_fn),
        None,
        shifts,
        allowed=INTS,
        no_vjp=_INTEGER,
        tolerance=_EXACT,
    )

register(
    OpDef(
        "select",
        "a where the condition holds, else b.",
        _infer_select,
        select_oracle,
        Pointwise("select({2}, {1}, {0})"),
        vjp=_vjp_select,
        tolerance=_EXACT,
        sample=selects,
    )
)
