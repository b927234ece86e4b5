"""Three-dimensional convolution."""

from __future__ import annotations

import math

from scellis_core.plugin import BlockParams, Init, Layer, LowerContext, Value, field, ops

Triple = tuple[int, int, int]


class Conv3dParams(BlockParams):
    """Parameters of ``layer/conv3d``; a triple is (depth, height, width)."""

    filters: int = field(gt=0, unit="elements", help="channels of the output")
    kernel: int | Triple = field(3, unit="elements", help="size of the window")
    stride: int | Triple = field(1, unit="elements", help="step of the window")
    padding: int | Triple = field(0, unit="elements", help="zeros around the volume")
    bias: bool = field(True, help="add a learned bias for each filter")

    def problem(self) -> str | None:
        """Sizes are positive."""
        if min(*_triple(self.kernel), *_triple(self.stride)) < 1 or min(_triple(self.padding)) < 0:
            return "kernel and stride must be greater than 0, padding 0 or greater"
        return None


def _triple(size: int | Triple) -> Triple:
    return (size, size, size) if isinstance(size, int) else size


def lower(ctx: LowerContext, params: Conv3dParams, x: Value) -> Value:
    """Cross-correlation of a volume with learned filters: a sum of 2-D convolutions, one for each slice of the kernel.

    Args:
        ctx: where ``weight`` f32[filters, channels, kernel depth, height, width] and ``bias`` f32[filters] are
            declared.
        params: see :class:`Conv3dParams`.
        x: f32[batch, channels, depth, height, width].

    Returns:
        f32[batch, filters, depth', height', width'], each side (n + 2 padding - kernel) // stride + 1.
    """
    if x.ndim != 5:
        ctx.fail("a volume of shape [batch, channels, depth, height, width]", str(x.type))
    kernel, stride, padding = _triple(params.kernel), _triple(params.stride), _triple(params.padding)
    batch, channels = x.shape[:2]
    room = [n + 2 * p for n, p in zip(x.shape[2:], padding, strict=True)]
    if any(k > n for k, n in zip(kernel, room, strict=True)):
        ctx.fail(f"a volume of at least {list(kernel)} after padding", str(room), "a smaller kernel")
    bound = 1.0 / math.sqrt(channels * kernel[0] * kernel[1] * kernel[2])
    weight = ctx.param("weight", (params.filters, channels, *kernel), Init("uniform", bound))
    deep = ops.pad(x, (0, 0, padding[0], 0, 0), (0, 0, padding[0], 0, 0)) if padding[0] else x
    depth = (room[0] - kernel[0]) // stride[0] + 1
    total: Value | None = None
    for k in range(kernel[0]):
        stop = k + (depth - 1) * stride[0] + 1
        seen = ops.slice(deep, (0, 0, k, 0, 0), (batch, channels, stop, *x.shape[3:]), (1, 1, stride[0], 1, 1))
        images = ops.reshape(ops.permute(seen, (0, 2, 1, 3, 4)), (batch * depth, channels, *x.shape[3:]))
        taps = ops.slice(weight, (0, 0, k, 0, 0), (params.filters, channels, k + 1, kernel[1], kernel[2]))
        taps = ops.reshape(taps, (params.filters, channels, kernel[1], kernel[2]))
        part = ops.conv2d(images, taps, stride=stride[1:], padding=padding[1:])
        total = part if total is None else total + part
    assert total is not None
    y = ops.permute(ops.reshape(total, (batch, depth, *total.shape[1:])), (0, 2, 1, 3, 4))
    if params.bias:
        y = y + ops.reshape(ctx.param("bias", (params.filters,), Init("uniform", bound)), (1, params.filters, 1, 1, 1))
    return y


CONV3D = Layer(
    id="layer/conv3d@1",
    title="Convolution 3-D",
    summary="Learned filters over volumes, with stride and padding.",
    params=Conv3dParams,
    source="torch.nn.Conv3d, https://docs.pytorch.org/docs/stable/generated/torch.nn.Conv3d.html",
    deviation="cross-correlation (the kernel is not flipped), as PyTorch",
    lower=lower,
)
