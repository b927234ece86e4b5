"""One-dimensional convolution."""

from __future__ import annotations

import math
from typing import Literal

from scellis_core.plugin import BlockParams, Init, Layer, LowerContext, Value, field, ops


class Conv1dParams(BlockParams):
    """Parameters of ``layer/conv1d``."""

    filters: int = field(gt=0, unit="elements", help="channels of the output")
    kernel: int = field(3, gt=0, unit="elements", help="size of the window")
    stride: int = field(1, gt=0, unit="elements", help="step of the window")
    padding: int | Literal["same", "causal"] = field(
        0, unit="elements", help="zeros on both ends; same: keeps the length; causal: all of them before the first"
    )
    dilation: int = field(1, gt=0, unit="elements", help="distance between taps of the window")
    groups: int = field(1, gt=0, help="parts that channels are split into; must divide both channel counts")
    bias: bool = field(True, help="add a learned bias for each filter")

    def problem(self) -> str | None:
        """Same and causal padding need stride 1; groups divide filters."""
        if isinstance(self.padding, str) and self.stride != 1:
            return f"padding {self.padding} needs stride 1"
        if isinstance(self.padding, int) and self.padding < 0:
            return f"padding must be 0 or greater, not {self.padding}"
        return f"groups {self.groups} must divide filters {self.filters}" if self.filters % self.groups else None


def lower(ctx: LowerContext, params: Conv1dParams, x: Value) -> Value:
    """Cross-correlation of a sequence with learned filters.

    Args:
        ctx: where ``weight`` f32[filters, channels / groups, kernel] and ``bias`` f32[filters] are declared.
        params: see :class:`Conv1dParams`.
        x: f32[batch, channels, length].

    Returns:
        f32[batch, filters, (length + padding - dilation (kernel - 1) - 1) // stride + 1].
    """
    if x.ndim != 3 or x.shape[1] % params.groups:
        ctx.fail(f"an input of shape [batch, channels that {params.groups} groups divide, length]", str(x.type))
    batch, channels, length = x.shape
    reach = params.dilation * (params.kernel - 1)
    if params.padding == "same":
        before, after = reach // 2, reach - reach // 2
    elif params.padding == "causal":
        before, after = reach, 0
    else:
        before = after = params.padding
    if reach >= length + before + after:
        ctx.fail(f"a length of at least {reach + 1} after padding", f"{length + before + after}", "a smaller kernel")
    bound = 1.0 / math.sqrt(channels // params.groups * params.kernel)
    weight = ctx.param("weight", (params.filters, channels // params.groups, params.kernel), Init("uniform", bound))
    y = ops.conv2d(
        ops.reshape(x, (batch, channels, 1, length)),
        ops.reshape(weight, (params.filters, channels // params.groups, 1, params.kernel)),
        stride=(1, params.stride),
        padding=(0, 0, before, after),
        dilation=(1, params.dilation),
        groups=params.groups,
    )
    y = ops.reshape(y, (batch, params.filters, y.shape[3]))
    if params.bias:
        y = y + ops.reshape(ctx.param("bias", (params.filters,), Init("uniform", bound)), (1, params.filters, 1))
    return y


CONV1D = Layer(
    id="layer/conv1d@1",
    title="Convolution 1-D",
    summary="Learned filters over sequences, with stride, padding (also causal), dilation and groups.",
    params=Conv1dParams,
    source="torch.nn.Conv1d, https://docs.pytorch.org/docs/stable/generated/torch.nn.Conv1d.html; causal: van den "
    "Oord et al., WaveNet, 2016, section 2.1, https://arxiv.org/abs/1609.03499",
    deviation="cross-correlation (the kernel is not flipped), as PyTorch",
    lower=lower,
)
