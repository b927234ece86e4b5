"""Element-wise product of two values."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Layer, LowerContext, Port, Value


class MultiplyParams(BlockParams):
    """``layer/multiply`` has no parameters."""


def lower(ctx: LowerContext, params: MultiplyParams, a: Value, b: Value) -> Value:
    """``y = a b``.

    Args:
        ctx: for errors.
        params: none.
        a: f32[...].
        b: of the shape of ``a``.

    Returns:
        As ``a``.
    """
    if a.shape != b.shape:
        ctx.fail("two values of one shape", f"{a.type} and {b.type}")
    return a * b


MULTIPLY = Layer(
    id="layer/multiply@1",
    title="Multiply",
    summary="Element-wise product of two values of one shape.",
    params=MultiplyParams,
    source="torch.mul, https://docs.pytorch.org/docs/stable/generated/torch.mul.html",
    ports=(Port("a"), Port("b")),
    lower=lower,
)
