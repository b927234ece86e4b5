"""Depthwise convolution: filters of one channel each."""

from __future__ import annotations

from typing import Literal

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, field
from scellis_layers import conv2d
from scellis_layers._sizes import pair


class DepthwiseConv2dParams(BlockParams):
    """Parameters of ``layer/depthwise_conv2d``; a pair is (height, width)."""

    multiplier: int = field(1, gt=0, help="filters for each channel")
    kernel: int | tuple[int, int] = field(3, unit="elements", help="size of the window")
    stride: int | tuple[int, int] = field(1, unit="elements", help="step of the window")
    padding: int | tuple[int, int] | Literal["same"] = field(
        0, unit="elements", help="zeros around the image; same: as many as keep its size (stride 1)"
    )
    dilation: int | tuple[int, int] = field(1, unit="elements", help="distance between taps of the window")
    bias: bool = field(True, help="add a learned bias for each filter")

    def problem(self) -> str | None:
        """As layer/conv2d."""
        for name in ("kernel", "stride", "dilation"):
            if min(pair(getattr(self, name))) < 1:
                return f"{name} must be greater than 0, not {getattr(self, name)}"
        return "padding same needs stride 1" if self.padding == "same" and pair(self.stride) != (1, 1) else None


def lower(ctx: LowerContext, params: DepthwiseConv2dParams, x: Value) -> Value:
    """:func:`conv2d.lower` with as many groups as channels.

    Args:
        ctx: where ``weight`` f32[channels multiplier, 1, kernel height, width] and ``bias`` are declared.
        params: see :class:`DepthwiseConv2dParams`.
        x: f32[batch, channels, height, width].

    Returns:
        f32[batch, channels multiplier, height', width'].
    """
    if x.ndim != 4:
        ctx.fail("an image of shape [batch, channels, height, width]", str(x.type))
    given = params.model_dump(exclude={"multiplier"})
    channels = x.shape[1]
    return conv2d.lower(ctx, conv2d.Conv2dParams(filters=channels * params.multiplier, groups=channels, **given), x)


DEPTHWISE_CONV2D = Layer(
    id="layer/depthwise_conv2d@1",
    title="Depthwise convolution 2-D",
    summary="Filters that each see one channel.",
    params=DepthwiseConv2dParams,
    source="Howard et al., MobileNets, 2017, section 3.1, https://arxiv.org/abs/1704.04861",
    deviation="cross-correlation (the kernel is not flipped), as PyTorch",
    lower=lower,
)
