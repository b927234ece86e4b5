"""What the gated layers share: the two halves of the last dimension."""

from __future__ import annotations

from scellis_core.plugin import LowerContext, Value, ops


def halves(ctx: LowerContext, x: Value) -> tuple[Value, Value]:
    """(value, gate): the first and the second half of the last dimension.

    Args:
        ctx: for errors.
        x: f32[batch, ..., 2 width].

    Returns:
        Two of f32[batch, ..., width].
    """
    width = x.shape[-1]
    if x.ndim < 2 or width % 2:
        ctx.fail("an input of shape [batch, ..., an even width]", str(x.type))
    low, high = (0,) * x.ndim, x.shape
    half = width // 2
    return ops.slice(x, low, (*high[:-1], half)), ops.slice(x, (*low[:-1], half), high)
