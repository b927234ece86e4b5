"""U-net: an image in, an image of the same size out."""

from __future__ import annotations

from collections.abc import Mapping

from scellis_core.plugin import BlockParams, Compose, Model, Ref, field


class UnetParams(BlockParams):
    """Parameters of ``model/unet``."""

    widths: tuple[int, ...] = field(
        (16, 32, 64), min_length=2, unit="elements", help="channels of each level; sides halve from one to the next"
    )
    outputs: int = field(gt=0, unit="elements", help="channels of the output: classes of a pixel, or numbers")

    def problem(self) -> str | None:
        """Widths are positive."""
        return f"widths must be greater than 0, not {list(self.widths)}" if min(self.widths) < 1 else None


def _double(g: Compose, h: Ref, width: int) -> Ref:
    for k in (1, 2):
        conv = {"filters": width, "kernel": 3, "padding": 1, "bias": False, "init": "he"}
        h = g.add(f"conv{k}", "layer/conv2d@1", h, params=conv)
        h = g.add(f"act{k}", "layer/relu@1", g.add(f"norm{k}", "layer/batch_norm@1", h))
    return h


def build(g: Compose, params: UnetParams, inputs: Mapping[str, Ref]) -> dict[str, Ref]:
    """Levels down by max pooling, up by transposed convolutions, each joined with the level beside it.

    Args:
        g: builder; adds ``down.<i>.{conv,norm,act}<k>``, ``down.<i>.pool``, ``up.<i>.grow``, ``up.<i>.join``,
            ``up.<i>.{conv,norm,act}<k>`` and ``head``.
        params: see :class:`UnetParams`.
        inputs: ``x``: f32[batch, channels, height, width], sides divisible by 2^(levels - 1).

    Returns:
        ``y``: f32[batch, outputs, height, width].
    """
    h, beside = inputs["x"], list[Ref]()
    last = len(params.widths) - 1
    for i, width in enumerate(params.widths):
        level = g.scope(f"down.{i}")
        h = _double(level, h, width)
        if i < last:
            beside.append(h)
            h = level.add("pool", "layer/max_pool2d@1", h)
    for i in reversed(range(last)):
        level = g.scope(f"up.{i}")
        h = level.add("grow", "layer/conv_transpose2d@1", h, params={"filters": params.widths[i]})
        h = _double(level, level.add("join", "layer/concat@1", beside[i], h, params={"axis": 1}), params.widths[i])
    return {"y": g.add("head", "layer/conv2d@1", h, params={"filters": params.outputs, "kernel": 1})}


UNET = Model(
    id="model/unet@1",
    title="U-net",
    summary="Image to image: levels down and up, joined across.",
    params=UnetParams,
    source="Ronneberger, Fischer and Brox, U-Net, 2015, section 2, https://arxiv.org/abs/1505.04597",
    deviation="convolutions keep the size, so nothing is cropped; batch norm after each",
    build=build,
)
