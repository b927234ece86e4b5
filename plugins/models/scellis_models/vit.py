"""Vision transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from scellis_core.plugin import BlockParams, Compose, Model, Ref, field


class VitParams(BlockParams):
    """Parameters of ``model/vit``."""

    image_size: int = field(gt=0, unit="elements", help="side of the square image")
    patch: int = field(gt=0, unit="elements", help="side of a patch; must divide image_size")
    width: int = field(gt=0, unit="elements", help="width of the residual stream")
    layers: int = field(gt=0, help="transformer blocks")
    heads: int = field(gt=0, help="attention heads of a block; must divide width")
    hidden: int | None = field(
        None, gt=0, unit="elements", help="width inside the feed-forward; 4 width where left out"
    )
    pool: Literal["token", "mean"] = field("token", help="what the head reads: a class token, or the mean of all")
    dropout: float = field(0.0, ge=0.0, lt=1.0, help="rate after positions, in attention and after each branch")
    drop_path: float = field(0.0, ge=0.0, lt=1.0, help="rate of stochastic depth in each block")
    eps: float = field(1e-6, gt=0.0, help="epsilon of the norms")
    outputs: int = field(gt=0, unit="elements", help="width of the output: classes, or numbers to predict")

    def problem(self) -> str | None:
        """Patches tile the image and heads the width."""
        if self.image_size % self.patch:
            return f"patch {self.patch} must divide image_size {self.image_size}"
        return f"heads {self.heads} must divide width {self.width}" if self.width % self.heads else None


def build(g: Compose, params: VitParams, inputs: Mapping[str, Ref]) -> dict[str, Ref]:
    """Patches by a strided convolution, a class token, learned positions, pre-norm blocks, a norm, the head.

    Args:
        g: builder; adds ``patch``, ``tokens``, ``order``, ``token``, ``pos``, ``blocks.<i>``, ``norm``, ``pool`` and
            ``head``.
        params: see :class:`VitParams`.
        inputs: ``x``: f32[batch, channels, image_size, image_size].

    Returns:
        ``logits``: f32[batch, outputs].
    """
    conv = {"filters": params.width, "kernel": params.patch, "stride": params.patch}
    count = (params.image_size // params.patch) ** 2
    h = g.add("patch", "layer/conv2d@1", inputs["x"], params=conv)
    h = g.add("tokens", "layer/reshape@1", h, params={"shape": [params.width, count]})
    h = g.add("order", "layer/permute@1", h, params={"order": [2, 1]})
    if params.pool == "token":
        h = g.add("token", "layer/class_token@1", h)
    h = g.add("pos", "layer/learned_positions@1", h, params={"length": count + (params.pool == "token")})
    if params.dropout > 0.0:
        h = g.add("drop", "layer/dropout@1", h, params={"rate": params.dropout})
    block = params.model_dump(include={"width", "heads", "hidden", "dropout", "drop_path", "eps"})
    for i in range(params.layers):
        h = g.add(f"blocks.{i}", "layer/transformer_block@1", h, params=block)
    h = g.add("norm", "layer/layer_norm@1", h, params={"eps": params.eps})
    if params.pool == "token":
        h = g.add("pool", "layer/select_token@1", h, params={"position": 0})
    else:
        h = g.add("pool", "layer/global_pool@1", g.add("last", "layer/permute@1", h, params={"order": [2, 1]}))
    return {"logits": g.add("head", "layer/linear@1", h, params={"features": params.outputs})}


VIT = Model(
    id="model/vit@1",
    title="Vision transformer",
    summary="Image patches as tokens of a pre-norm transformer, with a class token or the mean.",
    params=VitParams,
    source="Dosovitskiy et al., An Image is Worth 16x16 Words, 2020, section 3.1, https://arxiv.org/abs/2010.11929",
    deviation="square images; the head is one linear layer, as in fine-tuning",
    build=build,
)
