"""Two-dimensional convolution."""

from __future__ import annotations

import math
from typing import Literal

from scellis_core.plugin import BlockParams, Init, Layer, LowerContext, Value, field, ops
from scellis_layers._sizes import pair


class Conv2dParams(BlockParams):
    """Parameters of ``layer/conv2d``; a pair is (height, width)."""

    filters: int = field(gt=0, unit="elements", help="channels of the output")
    kernel: int | tuple[int, int] = field(3, unit="elements", help="size of the window")
    stride: int | tuple[int, int] = field(1, unit="elements", help="step of the window")
    padding: int | tuple[int, int] | Literal["same"] = field(
        0, unit="elements", help="zeros around the image; same: as many as keep its size (stride 1)"
    )
    dilation: int | tuple[int, int] = field(1, unit="elements", help="distance between taps of the window")
    groups: int = field(1, gt=0, help="parts that channels are split into; must divide both channel counts")
    bias: bool = field(True, help="add a learned bias for each filter")
    init: Literal["fan_in", "he"] = field(
        "fan_in", help="fan_in: uniform within 1/sqrt(fan in), as PyTorch; he: normal, std sqrt(2/fan in)"
    )

    def problem(self) -> str | None:
        """Sizes must be positive, and same padding needs stride 1."""
        for name in ("kernel", "stride", "dilation"):
            if min(pair(getattr(self, name))) < 1:
                return f"{name} must be greater than 0, not {getattr(self, name)}"
        if self.padding == "same":
            if pair(self.stride) != (1, 1):
                return "padding same needs stride 1"
        elif min(pair(self.padding)) < 0:
            return f"padding must be 0 or greater, not {self.padding}"
        return f"groups {self.groups} must divide filters {self.filters}" if self.filters % self.groups else None


def lower(ctx: LowerContext, params: Conv2dParams, x: Value) -> Value:
    """Cross-correlation of an image with learned filters.

    Args:
        ctx: where parameters are declared: ``weight`` f32[filters, channels / groups, kernel height, width]
            and ``bias`` f32[filters].
        params: see :class:`Conv2dParams`.
        x: f32[batch, channels, height, width].

    Returns:
        f32[batch, filters, height', width'], each side
        (n + padding - dilation (kernel - 1) - 1) // stride + 1.
    """
    if x.ndim != 4:
        ctx.fail("an image of shape [batch, channels, height, width]", str(x.type))
    channels = x.shape[1]
    if channels % params.groups:
        ctx.fail(f"channels that {params.groups} groups divide", f"{channels} channels")
    kernel, stride, dilation = pair(params.kernel), pair(params.stride), pair(params.dilation)
    reach = (dilation[0] * (kernel[0] - 1), dilation[1] * (kernel[1] - 1))
    if params.padding == "same":
        top, left = reach[0] // 2, reach[1] // 2
        padding = (top, reach[0] - top, left, reach[1] - left)
    else:
        rows, columns = pair(params.padding)
        padding = (rows, rows, columns, columns)
    room = (x.shape[2] + padding[0] + padding[1], x.shape[3] + padding[2] + padding[3])
    if reach[0] >= room[0] or reach[1] >= room[1]:
        ctx.fail(
            f"an image of at least {reach[0] + 1} x {reach[1] + 1} after padding",
            f"{room[0]} x {room[1]}",
            "a smaller kernel or dilation, or more padding",
        )
    fan_in = channels // params.groups * kernel[0] * kernel[1]
    bound = 1.0 / math.sqrt(fan_in)
    init = Init("normal", math.sqrt(2.0 / fan_in)) if params.init == "he" else Init("uniform", bound)
    weight = ctx.param("weight", (params.filters, channels // params.groups, *kernel), init)
    y = ops.conv2d(x, weight, stride=stride, padding=padding, dilation=dilation, groups=params.groups)
    if params.bias:
        start = Init("uniform", bound) if params.init == "fan_in" else Init("zeros")
        y = y + ops.reshape(ctx.param("bias", (params.filters,), start), (1, params.filters, 1, 1))
    return y


CONV2D = Layer(
    id="layer/conv2d@1",
    title="Convolution 2-D",
    summary="Learned filters over images, with stride, padding, dilation and groups.",
    params=Conv2dParams,
    source="LeCun, Bottou, Bengio and Haffner, Gradient-based Learning Applied to Document Recognition, "
    "1998, section II, https://doi.org/10.1109/5.726791; numbers as torch.nn.Conv2d",
    deviation="cross-correlation (the kernel is not flipped), as PyTorch",
    lower=lower,
)
