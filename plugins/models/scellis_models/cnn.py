"""Convolutional classifier for images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from scellis_core.plugin import BlockParams, Compose, Model, Ref, field


class CnnParams(BlockParams):
    """Parameters of ``model/cnn``."""

    widths: tuple[int, ...] = field((16, 32), min_length=1, unit="elements", help="channels of each stage, in order")
    depth: int = field(1, gt=0, help="convolutions in each stage")
    kernel: int = field(3, gt=0, unit="elements", help="side of the window; odd sizes keep the image centred")
    pool: int = field(2, gt=0, unit="elements", help="window of the max pooling that ends a stage; 1 for none")
    batch_norm: bool = field(True, help="normalise after each convolution")
    activation: Literal["relu", "gelu", "silu", "tanh", "sigmoid"] = field("relu", help="after each convolution")
    hidden: tuple[int, ...] = field((), unit="elements", help="widths of fully connected layers before the head")
    dropout: float = field(0.0, ge=0.0, lt=1.0, help="rate before the head and after each hidden layer")
    outputs: int = field(gt=0, unit="elements", help="width of the output: classes, or numbers to predict")

    def problem(self) -> str | None:
        """Widths must be positive."""
        if min(self.widths + self.hidden) < 1:
            return f"widths must be greater than 0, not {[*self.widths, *self.hidden]}"
        return None


def build(g: Compose, params: CnnParams, inputs: Mapping[str, Ref]) -> dict[str, Ref]:
    """Stages of convolution, normalisation, activation and pooling; then flatten, hidden layers and a head.

    Args:
        g: builder; adds ``stages.<i>.<j>.{conv,norm,act}``, ``stages.<i>.pool``, ``flatten``,
            ``hidden.<i>.{linear,act,drop}`` and ``head``.
        params: see :class:`CnnParams`.
        inputs: ``x``: f32[batch, channels, height, width].

    Returns:
        ``logits``: f32[batch, outputs].
    """
    act = f"layer/{params.activation}@1"
    init = "he" if params.activation in ("relu", "gelu", "silu") else "fan_in"
    drop = {"rate": params.dropout}
    h = inputs["x"]
    for i, width in enumerate(params.widths):
        stage = g.scope(f"stages.{i}")
        conv: dict[str, Any] = {
            "filters": width,
            "kernel": params.kernel,
            "padding": "same",
            "bias": not params.batch_norm,
            "init": init,
        }
        for j in range(params.depth):
            part = stage.scope(str(j))
            h = part.add("conv", "layer/conv2d@1", h, params=conv)
            if params.batch_norm:
                h = part.add("norm", "layer/batch_norm@1", h)
            h = part.add("act", act, h)
        if params.pool > 1:
            h = stage.add("pool", "layer/max_pool2d@1", h, params={"window": params.pool})
    h = g.add("flatten", "layer/flatten@1", h)
    if params.dropout > 0.0:
        h = g.add("drop", "layer/dropout@1", h, params=drop)
    for i, width in enumerate(params.hidden):
        layer = g.scope(f"hidden.{i}")
        h = layer.add("linear", "layer/linear@1", h, params={"features": width, "init": init})
        h = layer.add("act", act, h)
        if params.dropout > 0.0:
            h = layer.add("drop", "layer/dropout@1", h, params=drop)
    return {"logits": g.add("head", "layer/linear@1", h, params={"features": params.outputs})}


CNN = Model(
    id="model/cnn@1",
    title="Convolutional network",
    summary="Stages of convolution, batch norm, activation and max pooling, then a linear head.",
    params=CnnParams,
    source="Simonyan and Zisserman, Very Deep Convolutional Networks, 2015, section 2, "
    "https://arxiv.org/abs/1409.1556; with batch normalisation, Ioffe and Szegedy, 2015, "
    "https://arxiv.org/abs/1502.03167",
    deviation="widths, depth and hidden layers are parameters; none of the paper's sizes is fixed",
    build=build,
)
