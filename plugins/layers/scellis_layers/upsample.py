"""Enlarging an image by a whole factor."""

from __future__ import annotations

from typing import Literal

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, field, ops


class UpsampleParams(BlockParams):
    """Parameters of ``layer/upsample``."""

    factor: int = field(2, gt=1, help="how many times as many rows and columns")
    mode: Literal["nearest", "bilinear"] = field("nearest", help="nearest: repeated; bilinear: between neighbours")


def _linear(x: Value, axis: int, factor: int) -> Value:
    """Between neighbours along one axis, pixel centres kept in place; edges are repeated."""
    size = x.shape[axis]

    def part(start: int, stop: int) -> Value:
        starts, stops = [0] * x.ndim, list(x.shape)
        starts[axis], stops[axis] = start, stop
        return ops.slice(x, starts, stops)

    before = ops.concat([part(0, 1), part(0, size - 1)], axis=axis) if size > 1 else x
    after = ops.concat([part(1, size), part(size - 1, size)], axis=axis) if size > 1 else x
    phases: list[Value] = []
    for r in range(factor):
        shift = (r + 0.5) / factor - 0.5
        other, weight = (before, -shift) if shift < 0 else (after, shift)
        phases.append(ops.reshape(x * (1.0 - weight) + other * weight, (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :])))
    grown = ops.concat(phases, axis=axis + 1)
    return ops.reshape(grown, (*x.shape[:axis], size * factor, *x.shape[axis + 1 :]))


def lower(ctx: LowerContext, params: UpsampleParams, x: Value) -> Value:
    """The image with each side ``factor`` times as long.

    Args:
        ctx: for errors.
        params: see :class:`UpsampleParams`.
        x: f32[batch, channels, height, width].

    Returns:
        f32[batch, channels, factor height, factor width].
    """
    if x.ndim != 4:
        ctx.fail("an image of shape [batch, channels, height, width]", str(x.type))
    k = params.factor
    if params.mode == "bilinear":
        return _linear(_linear(x, 2, k), 3, k)
    batch, channels, rows, columns = x.shape
    spread = ops.broadcast(
        ops.reshape(x, (batch, channels, rows, 1, columns, 1)), (batch, channels, rows, k, columns, k)
    )
    return ops.reshape(spread, (batch, channels, rows * k, columns * k))


UPSAMPLE = Layer(
    id="layer/upsample@1",
    title="Upsample",
    summary="Enlarges an image by a whole factor, repeated or bilinear.",
    params=UpsampleParams,
    source="torch.nn.Upsample (align_corners false), "
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.Upsample.html",
    deviation="whole factors only",
    lower=lower,
)
