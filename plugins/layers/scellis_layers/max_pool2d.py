"""Maximum over windows of an image."""

from __future__ import annotations

from scellis_core.plugin import BlockParams, Layer, LowerContext, Value, field, ops
from scellis_layers._sizes import pair


class MaxPool2dParams(BlockParams):
    """Parameters of ``layer/max_pool2d``; a pair is (height, width)."""

    window: int | tuple[int, int] = field(2, unit="elements", help="size of the window")
    stride: int | tuple[int, int] | None = field(None, unit="elements", help="step; the window where left out")
    padding: int | tuple[int, int] = field(
        0, unit="elements", help="border that never is the maximum; at most half the window"
    )

    def problem(self) -> str | None:
        """Sizes must be positive and padding at most half the window."""
        window, padding = pair(self.window), pair(self.padding)
        if min(window) < 1 or (self.stride is not None and min(pair(self.stride)) < 1):
            return f"window and stride must be greater than 0, not {self.window} and {self.stride}"
        if min(padding) < 0 or padding[0] > window[0] // 2 or padding[1] > window[1] // 2:
            return f"padding must be from 0 to half the window {self.window}, not {self.padding}"
        return None


def lower(ctx: LowerContext, params: MaxPool2dParams, x: Value) -> Value:
    """The maximum of each window; the first one in window order takes the gradient.

    Args:
        ctx: for errors.
        params: see :class:`MaxPool2dParams`.
        x: f32[batch, channels, height, width].

    Returns:
        f32[batch, channels, height', width'], each side (n + 2 padding - window) // stride + 1.
    """
    if x.ndim != 4:
        ctx.fail("an image of shape [batch, channels, height, width]", str(x.type))
    window = pair(params.window)
    stride = window if params.stride is None else pair(params.stride)
    rows, columns = pair(params.padding)
    if window[0] > x.shape[2] + 2 * rows or window[1] > x.shape[3] + 2 * columns:
        ctx.fail(
            f"an image of at least {window[0]} x {window[1]}",
            str(x.type),
            "a smaller window, or fewer stages",
        )
    padding = (rows, rows, columns, columns)
    return ops.max_pool2d(x, window=window, stride=stride, padding=padding)


MAX_POOL2D = Layer(
    id="layer/max_pool2d@1",
    title="Max pooling 2-D",
    summary="Maximum of each window of an image.",
    params=MaxPool2dParams,
    source="torch.nn.MaxPool2d, https://docs.pytorch.org/docs/stable/generated/torch.nn.MaxPool2d.html",
    lower=lower,
)
