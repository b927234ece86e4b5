"""Axes in another order."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, field, ops


class PermuteParams(BlockParams):
    """Parameters of ``layer/permute``."""

    order: tuple[int, ...] = field(
        help="axes after the batch in their new order, each from 1: [2, 3, 1] puts channels last"
    )

    def problem(self) -> str | None:
        """Each axis from 1 to n appears once."""
        if sorted(self.order) != list(range(1, len(self.order) + 1)):
            return f"order must hold each of 1 to {len(self.order)} once, not {list(self.order)}"
        return None


def lower(ctx: LowerContext, params: PermuteParams, x: Value) -> Value:
    """Transpose every example; the batch stays first.

    Args:
        ctx: for errors.
        params: see :class:`PermuteParams`.
        x: [batch, ...] of any dtype.

    Returns:
        [batch, ...] with the sizes in the new order.
    """
    if len(params.order) != x.ndim - 1:
        ctx.fail(f"an order of {x.ndim - 1} axes for {x.type}", f"{list(params.order)}")
    return ops.permute(x, (0, *params.order))


PERMUTE = Layer(
    id="layer/permute@1",
    title="Permute",
    summary="Puts the axes after the batch in another order.",
    params=PermuteParams,
    source="numpy.transpose, https://numpy.org/doc/stable/reference/generated/numpy.transpose.html",
    lower=lower,
)
