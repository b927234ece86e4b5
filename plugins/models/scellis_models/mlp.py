"""Multi-layer perceptron."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from scellis_core.plugin import BlockParams, Compose, Model, Ref, field


class MlpParams(BlockParams):
    """Parameters of ``model/mlp``."""

    hidden: tuple[int, ...] = field((128, 128), unit="elements", help="widths of the hidden layers, in order")
    outputs: int = field(gt=0, unit="elements", help="width of the output: classes, or numbers to predict")
    activation: Literal["relu", "gelu", "silu", "tanh", "sigmoid"] = field("relu", help="between layers")
    dropout: float = field(0.0, ge=0.0, lt=1.0, help="rate after each hidden activation")

    def problem(self) -> str | None:
        """Widths must be positive."""
        return (
            f"hidden widths must be greater than 0, not {list(self.hidden)}"
            if min(self.hidden, default=1) < 1
            else None
        )


def build(g: Compose, params: MlpParams, inputs: Mapping[str, Ref]) -> dict[str, Ref]:
    """Flatten, then linear, activation and dropout for each hidden width, then a linear head.

    Args:
        g: builder; adds ``flatten``, ``hidden.<i>.{linear,act,drop}`` and ``head``.
        params: see :class:`MlpParams`.
        inputs: ``x``: f32[batch, ...].

    Returns:
        ``logits``: f32[batch, outputs].
    """
    h = g.add("flatten", "layer/flatten@1", inputs["x"])
    init = "he" if params.activation in ("relu", "gelu", "silu") else "fan_in"
    for i, width in enumerate(params.hidden):
        layer = g.scope(f"hidden.{i}")
        h = layer.add("linear", "layer/linear@1", h, params={"features": width, "init": init})
        h = layer.add("act", f"layer/{params.activation}@1", h)
        if params.dropout > 0.0:
            h = layer.add("drop", "layer/dropout@1", h, params={"rate": params.dropout})
    return {"logits": g.add("head", "layer/linear@1", h, params={"features": params.outputs})}


MLP = Model(
    id="model/mlp@1",
    title="Multi-layer perceptron",
    summary="Fully connected layers with one activation between them.",
    params=MlpParams,
    source="Rumelhart, Hinton and Williams, Learning Representations by Back-propagating Errors, 1986, "
    "https://doi.org/10.1038/323533a0",
    build=build,
)
