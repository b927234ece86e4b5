"""Small forms of the catalog's models, for references made with PyTorch and for the tests that read them."""

from __future__ import annotations

from typing import Any

import numpy as np

from scellis_core.blocks import DataSpec, InputSpec
from scellis_core.catalog import Catalog
from scellis_core.model import Lowered, ResolvedRun, lower
from scellis_core.model.graphs import build_graph
from scellis_core.record import Record

Shapes = dict[str, tuple[int, ...]]

MODELS: dict[str, tuple[dict[str, Any], Shapes]] = {
    "llama": ({"vocab_size": 13, "context": 7, "width": 24, "layers": 2, "heads": 6, "kv_heads": 2}, {}),
    "bert": (
        {"vocab_size": 17, "context": 6, "width": 12, "layers": 2, "heads": 3, "segments": 2, "mask": True},
        {},
    ),
    "vit": ({"image_size": 9, "patch": 3, "width": 12, "layers": 2, "heads": 2, "outputs": 5}, {"x": (2, 9, 9)}),
    "resnet18": ({"depth": 18, "width": 4, "stem": "small", "outputs": 3}, {"x": (2, 9, 11)}),
    "resnet50": ({"depth": 50, "width": 4, "outputs": 3}, {"x": (3, 33, 40)}),
    "unet": ({"widths": [4, 6, 8], "outputs": 2}, {"x": (2, 8, 12)}),
    "autoencoder": ({"features": 12, "hidden": [9, 7], "code": 3, "activation": "tanh"}, {"x": (3, 4)}),
}
"""Name -> the block's parameters, and shapes of inputs that the model leaves to the data."""

BATCH = 3


def lowered(name: str, mode: Any = "train") -> Lowered:
    """A model's op graph at batch 3."""
    params, shapes = MODELS[name]
    block = {"block_id": f"model/{name.rstrip('0123456789')}", **params}
    record, catalog = Record.from_dict({"sml": 1, "architecture": block}), Catalog.discover()
    data = DataSpec({n: InputSpec(s) for n, s in shapes.items()}, {}, {}) if shapes else None
    return lower(ResolvedRun(record, catalog, build_graph(record, catalog, data)), BATCH, mode)


def numbers(name: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(inputs, weights) of a model, drawn anew the same each time; rounded so that f32 holds them."""
    rng = np.random.default_rng(sum(map(ord, name)))
    low = lowered(name)
    weights: dict[str, np.ndarray] = {}
    for path, meta in sorted(low.params.items()):
        scale = 1.0 / np.sqrt(np.prod(meta.shape[1:])) if len(meta.shape) > 1 else 0.2
        start = 1.0 if path.endswith("weight") and len(meta.shape) == 1 else 0.0
        weights[path] = np.round((start + scale * rng.standard_normal(meta.shape)) * 4096) / 4096
    inputs: dict[str, np.ndarray] = {}
    for key, spec in low.inputs.items():
        shape = (BATCH, *spec.shape)
        if key == "mask":
            inputs[key] = (np.arange(spec.shape[0]) < np.arange(BATCH)[:, None] + 4).astype(np.int64)
        elif spec.dtype == "i32":
            inputs[key] = rng.integers(0, spec.limit or 2, shape)
        else:
            inputs[key] = np.round(rng.standard_normal(shape) * 256) / 256
    return inputs, weights


def seed_of(shape: tuple[int, ...]) -> np.ndarray:
    """What an output is multiplied by before it is summed and differentiated."""
    return np.round(np.random.default_rng(5).standard_normal(shape) * 16) / 16
