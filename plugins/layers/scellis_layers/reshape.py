"""Another shape for the same elements."""

from __future__ import annotations

import math

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, field, ops


class ReshapeParams(BlockParams):
    """Parameters of ``layer/reshape``."""

    shape: tuple[int, ...] = field(
        unit="elements", help="sizes without the batch; one may be -1 and is worked out from the others"
    )

    def problem(self) -> str | None:
        """Sizes must be positive, one at most -1."""
        if self.shape.count(-1) > 1 or any(n < 1 and n != -1 for n in self.shape):
            return f"sizes must be greater than 0, and one at most -1, not {list(self.shape)}"
        return None


def lower(ctx: LowerContext, params: ReshapeParams, x: Value) -> Value:
    """Give each example another shape, row-major.

    Args:
        ctx: for errors.
        params: see :class:`ReshapeParams`.
        x: [batch, ...] of any dtype.

    Returns:
        [batch, *shape].
    """
    elements = math.prod(x.shape[1:])
    known = math.prod(n for n in params.shape if n != -1)
    if elements % known or (-1 not in params.shape and known != elements):
        ctx.fail(f"a shape of {elements} elements an example", f"{list(params.shape)} for {x.type}")
    return ops.reshape(x, (x.shape[0], *(elements // known if n == -1 else n for n in params.shape)))


RESHAPE = Layer(
    id="layer/reshape@1",
    title="Reshape",
    summary="Gives each example another shape.",
    params=ReshapeParams,
    source="numpy.reshape, https://numpy.org/doc/stable/reference/generated/numpy.reshape.html",
    lower=lower,
)
