"""Sum of inputs, as in a residual connection."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Layer, LowerContext, Port, Value


class AddParams(BlockParams):
    """``layer/add`` has no parameters."""


def lower(ctx: LowerContext, params: AddParams, x: tuple[Value, ...]) -> Value:
    """Sum of two or more inputs of one shape, from left to right.

    Args:
        ctx: for errors.
        params: none.
        x: values of one type.

    Returns:
        As each of ``x``.
    """
    if len(x) < 2:
        ctx.fail("two or more inputs", f"{len(x)}", "in: [a, b]")
    total = x[0]
    for value in x[1:]:
        if value.type != x[0].type:
            ctx.fail(f"inputs of one type, {x[0].type}", str(value.type), "layer/reshape or layer/linear before it")
        total = total + value
    return total


ADD = Layer(
    id="layer/add@1",
    title="Add",
    summary="Sums two or more inputs of one shape.",
    params=AddParams,
    source="He, Zhang, Ren and Sun, Deep Residual Learning, 2016, eq. 1, https://arxiv.org/abs/1512.03385",
    ports=(Port("x", variadic=True),),
    lower=lower,
)
