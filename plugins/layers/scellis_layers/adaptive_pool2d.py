"""Pooling to a given size of image."""

from __future__ import annotations

from typing import Literal

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, field, ops
from scellis_layers._sizes import pair


class AdaptivePool2dParams(BlockParams):
    """Parameters of ``layer/adaptive_pool2d``; a pair is (height, width)."""

    size: int | tuple[int, int] = field(unit="elements", help="size of the output")
    mode: Literal["mean", "max"] = field("mean", help="mean or greatest of each window")

    def problem(self) -> str | None:
        """Sizes are positive."""
        return f"size must be greater than 0, not {self.size}" if min(pair(self.size)) < 1 else None


def _along(x: Value, axis: int, count: int, mode: str) -> Value:
    size = x.shape[axis]
    parts: list[Value] = []
    for i in range(count):
        starts, stops = [0] * x.ndim, list(x.shape)
        starts[axis], stops[axis] = i * size // count, -(-(i + 1) * size // count)
        window = ops.slice(x, starts, stops)
        reduce = ops.mean if mode == "mean" else ops.reduce_max
        parts.append(reduce(window, axes=(axis,), keepdims=True))
    return ops.concat(parts, axis=axis) if count > 1 else parts[0]


def lower(ctx: LowerContext, params: AdaptivePool2dParams, x: Value) -> Value:
    """Window i of a side of n to m covers positions from floor(i n / m) to ceil((i + 1) n / m).

    Args:
        ctx: for errors.
        params: see :class:`AdaptivePool2dParams`.
        x: f32[batch, channels, height, width].

    Returns:
        f32[batch, channels, *size].
    """
    if x.ndim != 4:
        ctx.fail("an image of shape [batch, channels, height, width]", str(x.type))
    rows, columns = pair(params.size)
    return _along(_along(x, 2, rows, params.mode), 3, columns, params.mode)


ADAPTIVE_POOL2D = Layer(
    id="layer/adaptive_pool2d@1",
    title="Adaptive pooling 2-D",
    summary="Mean or greatest of as many windows as give the wanted size.",
    params=AdaptivePool2dParams,
    source="torch.nn.AdaptiveAvgPool2d, https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveAvgPool2d.html",
    deviation="where values of a window tie, the greatest's gradient is shared; PyTorch gives it to the first",
    lower=lower,
)
