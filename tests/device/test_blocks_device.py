"""Blocks of the catalog on a device against the oracle: layers by their reference cases, the others in short runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from block_tracing import context, gradients_of, load
from graph_runner import on_device, oracle
from test_block_values import LAYER_CASES, case
from tiny import tiny

from scellis_core.catalog import Catalog
from scellis_core.plugin import BlockParams, Value, ops
from scellis_core.record import Record
from scellis_core.train.session import Session, open_session

CATALOG = Catalog.discover()
FILLED: dict[str, Any] = {
    "warmup_steps": 3, "max_norm": 0.5, "milestones": [1, 2], "gamma": 0.9, "first": 5, "width": 64,
}  # fmt: skip
"""Values of parameters that have no default."""


def params_of(block_id: str) -> dict[str, Any]:
    """A block's parameters as a record names them: the id, and what has no default."""
    params: type[BlockParams] = CATALOG.resolve(block_id).params
    return {"block_id": block_id} | {n: FILLED[n] for n, f in params.model_fields.items() if f.is_required()}


@pytest.mark.parametrize("name", LAYER_CASES)
def test_layers_forward_and_backward(name: str) -> None:
    layer, params, ports = LAYER_CASES[name]
    arrays = case(name)
    ctx = context(batch=len(arrays[ports[0]]))
    loads = {port: load(ctx.graph, port, arrays[port]) for port in ports}
    assert layer.lower is not None
    y = layer.lower(ctx, layer.params(**params), **loads)
    assert isinstance(y, Value)
    seed = np.broadcast_to(arrays["seed"], y.shape)
    total = ops.reduce_sum(y * load(ctx.graph, "seed", seed))
    outputs = {"y": y, **gradients_of(ctx, total, loads)}
    ctx._tracing.finish()
    for output, value in outputs.items():
        ctx.graph.output(output, value)
    graph = ctx.graph.prune()
    feeds = {"seed": seed, **{p: arrays[p] for p in ports}}
    states = set(graph.leaves("state"))
    for key, value in arrays.items():
        feeds[f"state:block.{key}" if f"state:block.{key}" in states else f"block.{key}"] = value
    want, found = oracle(graph, feeds), on_device(graph, feeds)
    for key, value in want.items():
        scale = max(1.0, float(np.abs(value).max()))
        np.testing.assert_allclose(found[key], value, rtol=2e-5, atol=2e-5 * scale, err_msg=key)


def losses(record: Record, device: str, steps: int) -> tuple[list[float], dict[str, np.ndarray]]:
    """Losses and weights of a run's first updates."""
    session: Session = open_session(record, CATALOG, device=device)
    session.initialise()
    found = [session.report(session.update())["loss"] for _ in range(steps)]
    found += list(session.evaluate("val").values())
    weights = session.read(session.weight_names())
    session.close()
    return found, weights


def compare_runs(record: Record, device_name: str, steps: int = 8) -> None:
    want, weights = losses(record, "oracle", steps)
    found, ours = losses(record, device_name, steps)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-6)
    for name, value in weights.items():
        np.testing.assert_allclose(ours[name], value, rtol=1e-3, atol=1e-4, err_msg=name)


FAMILIES = {
    "optimizer": "training/optimizer",
    "scheduler": "training/scheduler",
    "grad_clip": "training/clip",
}


@pytest.mark.parametrize(
    ("key", "block_id"),
    [(key, e.id) for key, family in FAMILIES.items() for e in CATALOG.entries(family)],
    ids=lambda value: str(value),
)
def test_runs_with_each_block(key: str, block_id: str, tmp_path: Path, device_name: str) -> None:
    compare_runs(tiny(tmp_path, {key: params_of(block_id)}), device_name)


@pytest.mark.parametrize(
    "params",
    [{"momentum": 0.9, "lr": 0.05}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01, "lr": 0.05}],
    ids=["momentum", "nesterov"],
)
def test_sgd_with_its_options(params: dict[str, Any], tmp_path: Path, device_name: str) -> None:
    compare_runs(tiny(tmp_path, {"optimizer": {"block_id": "training/optimizer/sgd", **params}}), device_name)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weights", [None, [0.5, 2.0]])
def test_cross_entropy_with_its_options(
    smoothing: float, weights: list[float] | None, tmp_path: Path, device_name: str
) -> None:
    loss = {"block_id": "training/loss/cross_entropy", "label_smoothing": smoothing}
    loss |= {"class_weights": weights} if weights else {}
    compare_runs(tiny(tmp_path, {"loss": loss}), device_name)


def test_mean_squared_error_and_its_metric(tmp_path: Path, device_name: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((53, 6)).astype(np.float32)
    np.savez(tmp_path / "real.npz", x=x, y=np.stack([x[:, 0] * x[:, 1], x[:, 2]], axis=1))
    changes = {"data.path": "real.npz", "loss": {"block_id": "training/loss/mse"}}
    changes |= {"metrics": [{"block_id": "metric/mse"}]}
    compare_runs(tiny(tmp_path, changes), device_name)


@pytest.mark.parametrize("model", ["model/mlp", "model/cnn", "model/decoder_transformer"])
def test_models(model: str, tmp_path: Path, device_name: str) -> None:
    rng = np.random.default_rng(2)
    sizes: dict[str, dict[str, Any]] = {
        "model/mlp": {"hidden": [16, 7], "outputs": 3},
        "model/cnn": {"widths": [4, 6], "outputs": 3},
        "model/decoder_transformer": {"vocab_size": 11, "context": 9, "width": 12, "layers": 2, "heads": 3},
    }
    if model == "model/decoder_transformer":
        tokens = rng.integers(0, 11, (23, 10)).astype(np.int32)
        data = {"x": tokens[:, :-1], "y": tokens[:, 1:]}
    else:
        shape = (23, 2, 9, 7) if model == "model/cnn" else (23, 5)
        data = {"x": rng.standard_normal(shape).astype(np.float32), "y": rng.integers(0, 3, 23).astype(np.int32)}
    np.savez(tmp_path / "data.npz", **data)
    record = Record.from_dict(
        {
            "sml": 1,
            "architecture": {"block_id": model, **sizes[model]},
            "data": {"block_id": "data/arrays", "path": "data.npz", "split": {"val": 0.2}},
            "optimizer": {"block_id": "training/optimizer/adamw", "lr": 1e-2},
            "loss": {"block_id": "training/loss/cross_entropy"},
            "steps": 20,
            "batch_size": 5,
            "determinism_tier": "prod",
            "seed": 4,
        },
        base=tmp_path,
    )
    compare_runs(record, device_name)
