"""Fully connected autoencoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from scellis_core.plugin import BlockParams, Compose, Model, Ref, field


class AutoencoderParams(BlockParams):
    """Parameters of ``model/autoencoder``."""

    features: int = field(gt=0, unit="elements", help="numbers of an example, flattened")
    hidden: tuple[int, ...] = field((64,), unit="elements", help="widths from the input to the code")
    code: int = field(gt=0, unit="elements", help="width of the code")
    activation: Literal["relu", "gelu", "silu", "tanh", "sigmoid"] = field("relu", help="after each hidden layer")

    def problem(self) -> str | None:
        """Widths are positive."""
        return f"hidden widths must be greater than 0, not {list(self.hidden)}" if min((1, *self.hidden)) < 1 else None


def _stack(g: Compose, h: Ref, widths: tuple[int, ...], last: int, act: str) -> Ref:
    for i, width in enumerate(widths):
        h = g.add(f"{i}.linear", "layer/linear@1", h, params={"features": width})
        h = g.add(f"{i}.act", f"layer/{act}@1", h)
    return g.add("last", "layer/linear@1", h, params={"features": last})


def build(g: Compose, params: AutoencoderParams, inputs: Mapping[str, Ref]) -> dict[str, Ref]:
    """Encoder to a code, decoder (its mirror image) back.

    Args:
        g: builder; adds ``flatten``, ``encoder.<i>.{linear,act}``, ``encoder.last`` and the same of ``decoder``.
        params: see :class:`AutoencoderParams`.
        inputs: ``x``: f32[batch, ...] of ``features`` numbers.

    Returns:
        ``y``: f32[batch, features], to be compared with the flattened input; ``code``: f32[batch, code].
    """
    h = g.add("flatten", "layer/flatten@1", inputs["x"])
    code = _stack(g.scope("encoder"), h, params.hidden, params.code, params.activation)
    widths = tuple(reversed(params.hidden))
    return {"y": _stack(g.scope("decoder"), code, widths, params.features, params.activation), "code": code}


AUTOENCODER = Model(
    id="model/autoencoder@1",
    title="Autoencoder",
    summary="Fully connected encoder to a code, and its mirror image back.",
    params=AutoencoderParams,
    source="Hinton and Salakhutdinov, Reducing the Dimensionality of Data with Neural Networks, 2006, "
    "https://doi.org/10.1126/science.1127647",
    deviation="trained as a whole, not layer by layer",
    build=build,
)
