"""Residual network for images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from scellis_core.plugin import BlockParams, Compose, Model, Ref, field

STAGES = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}
"""Blocks of each stage by depth (table 1 of the paper)."""


class ResnetParams(BlockParams):
    """Parameters of ``model/resnet``."""

    depth: Literal[18, 34, 50] = field(18, help="18 and 34: blocks of two convolutions; 50: bottlenecks of three")
    width: int = field(64, gt=0, unit="elements", help="channels of the first stage; each stage doubles them")
    stem: Literal["large", "small"] = field(
        "large", help="large: 7 x 7 by 2 and pooling by 2 (images of 224); small: 3 x 3 (images of 32 and less)"
    )
    outputs: int = field(gt=0, unit="elements", help="width of the output: classes, or numbers to predict")


def _unit(g: Compose, h: Ref, name: str, *, act: bool = True, **conv: Any) -> Ref:
    """Convolution without bias, batch norm, ReLU."""
    h = g.add(f"conv{name}", "layer/conv2d@1", h, params={"bias": False, "init": "he", **conv})
    h = g.add(f"norm{name}", "layer/batch_norm@1", h)
    return g.add(f"act{name}", "layer/relu@1", h) if act else h


def build(g: Compose, params: ResnetParams, inputs: Mapping[str, Ref]) -> dict[str, Ref]:
    """Stem, four stages of residual blocks (the first of stages 2 to 4 halves the image), global mean, linear head.

    Args:
        g: builder; adds ``stem``, ``stages.<i>.<j>.{conv,norm,act}<k>`` with ``down`` where the shape changes, ``pool``
            and ``head``.
        params: see :class:`ResnetParams`.
        inputs: ``x``: f32[batch, channels, height, width].

    Returns:
        ``logits``: f32[batch, outputs].
    """
    stem = g.scope("stem")
    if params.stem == "large":
        h = _unit(stem, inputs["x"], "", filters=params.width, kernel=7, stride=2, padding=3)
        h = stem.add("pool", "layer/max_pool2d@1", h, params={"window": 3, "stride": 2, "padding": 1})
    else:
        h = _unit(stem, inputs["x"], "", filters=params.width, kernel=3, padding=1)
    wide = 4 if params.depth == 50 else 1
    channels = params.width
    for i, count in enumerate(STAGES[params.depth]):
        width = params.width * 2**i
        for j in range(count):
            block = g.scope(f"stages.{i}.{j}")
            stride = 2 if i and not j else 1
            if params.depth == 50:
                y = _unit(block, h, "1", filters=width, kernel=1)
                y = _unit(block, y, "2", filters=width, kernel=3, stride=stride, padding=1)
                y = _unit(block, y, "3", filters=4 * width, kernel=1, act=False)
            else:
                y = _unit(block, h, "1", filters=width, kernel=3, stride=stride, padding=1)
                y = _unit(block, y, "2", filters=width, kernel=3, padding=1, act=False)
            if stride != 1 or channels != wide * width:
                h = _unit(block.scope("down"), h, "", filters=wide * width, kernel=1, stride=stride, act=False)
            channels = wide * width
            h = block.add("act", "layer/relu@1", block.add("sum", "layer/add@1", h, y))
    h = g.add("pool", "layer/global_pool@1", h)
    return {"logits": g.add("head", "layer/linear@1", h, params={"features": params.outputs})}


RESNET = Model(
    id="model/resnet@1",
    title="ResNet",
    summary="Residual network of 18, 34 or 50 layers.",
    params=ResnetParams,
    source="He, Zhang, Ren and Sun, Deep Residual Learning for Image Recognition, 2015, table 1, "
    "https://arxiv.org/abs/1512.03385",
    deviation="in depth 50 the 3 x 3 convolution of a bottleneck takes the stride, as torchvision, not the first",
    build=build,
)
