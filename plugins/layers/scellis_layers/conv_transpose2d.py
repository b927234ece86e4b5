"""Transposed convolution, which enlarges an image."""

from __future__ import annotations

import math

from scellis_core.plugin import BlockParams, Init, Layer, LowerContext, Value, field, ops
from scellis_layers._sizes import pair


class ConvTranspose2dParams(BlockParams):
    """Parameters of ``layer/conv_transpose2d``; a pair is (height, width)."""

    filters: int = field(gt=0, unit="elements", help="channels of the output")
    kernel: int | tuple[int, int] = field(2, unit="elements", help="size of the window")
    stride: int | tuple[int, int] = field(2, unit="elements", help="distance between windows of the output")
    padding: int | tuple[int, int] = field(0, unit="elements", help="border that is cut off the output")
    output_padding: int | tuple[int, int] = field(
        0, unit="elements", help="rows and columns added after the last; must be below the stride"
    )
    groups: int = field(1, gt=0, help="parts that channels are split into; must divide both channel counts")
    bias: bool = field(True, help="add a learned bias for each filter")

    def problem(self) -> str | None:
        """Sizes are positive, output padding below the stride."""
        if min(*pair(self.kernel), *pair(self.stride)) < 1 or min(*pair(self.padding), *pair(self.output_padding)) < 0:
            return "kernel and stride must be greater than 0, padding 0 or greater"
        if any(o >= s for o, s in zip(pair(self.output_padding), pair(self.stride), strict=True)):
            return f"output_padding {self.output_padding} must be below stride {self.stride}"
        return f"groups {self.groups} must divide filters {self.filters}" if self.filters % self.groups else None


def lower(ctx: LowerContext, params: ConvTranspose2dParams, x: Value) -> Value:
    """The transpose (gradient in the input) of a convolution.

    Args:
        ctx: where ``weight`` f32[channels, filters / groups, kernel height, width] and ``bias`` f32[filters] are
            declared.
        params: see :class:`ConvTranspose2dParams`.
        x: f32[batch, channels, height, width].

    Returns:
        f32[batch, filters, height', width'], each side (n - 1) stride - 2 padding + kernel + output_padding.
    """
    if x.ndim != 4 or x.shape[1] % params.groups:
        ctx.fail(f"an image of shape [batch, channels that {params.groups} groups divide, height, width]", str(x.type))
    kernel, stride, padding = pair(params.kernel), pair(params.stride), pair(params.padding)
    more = pair(params.output_padding)
    for n, k, s, p, o in zip(x.shape[2:], kernel, stride, padding, more, strict=True):
        if (n - 1) * s - 2 * p + k + o < 1:
            ctx.fail(
                "an output of at least one row and column", f"padding {p} of {(n - 1) * s + k + o}", "less padding"
            )
    each = params.filters // params.groups
    bound = 1.0 / math.sqrt(each * kernel[0] * kernel[1])
    weight = ctx.param("weight", (x.shape[1], each, *kernel), Init("uniform", bound))
    y = ops.conv_transpose2d(x, weight, stride=stride, padding=padding, output_padding=more, groups=params.groups)
    if params.bias:
        y = y + ops.reshape(ctx.param("bias", (params.filters,), Init("uniform", bound)), (1, params.filters, 1, 1))
    return y


CONV_TRANSPOSE2D = Layer(
    id="layer/conv_transpose2d@1",
    title="Transposed convolution 2-D",
    summary="Learned enlargement: the transpose of a strided convolution.",
    params=ConvTranspose2dParams,
    source="Zeiler, Krishnan, Taylor and Fergus, Deconvolutional Networks, 2010, "
    "https://doi.org/10.1109/CVPR.2010.5539957; numbers as torch.nn.ConvTranspose2d",
    lower=lower,
)
