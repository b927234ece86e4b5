"""Layers, forward and backward, against PyTorch in float64 (tests/golden/layers.npz): on the oracle and a device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from block_tracing import context, gradients_of, load
from graph_runner import on_device, oracle

from scellis_core.catalog import Catalog
from scellis_core.ir import Graph, Value, verify
from scellis_core.plugin import Layer, ops

TESTS = Path(__file__).parents[1]

ARRAYS = np.load(TESTS / "golden" / "layers.npz")
CASES: list[dict[str, Any]] = json.loads(str(ARRAYS["cases"]))
CATALOG = Catalog.discover()


def arrays_of(name: str) -> dict[str, np.ndarray]:
    return {k.partition("/")[2]: ARRAYS[k] for k in ARRAYS.files if k.startswith(f"{name}/")}


def traced(case: dict[str, Any], arrays: dict[str, np.ndarray]) -> tuple[Graph, dict[str, np.ndarray]]:
    """The layer's graph with its gradients as outputs, and what to feed it."""
    layer = CATALOG.resolve_as(Layer, case["block"])
    assert layer.lower is not None
    ctx = context(batch=len(arrays[case["inputs"][0]]))
    loads = {port: load(ctx.graph, port, arrays[port]) for port in case["inputs"]}
    y = layer.lower(ctx, layer.params(**case["params"]), **loads)
    assert isinstance(y, Value)
    total = ops.reduce_sum(y * load(ctx.graph, "seed", arrays["seed"]))
    outputs = {"out": y, **gradients_of(ctx, total, loads)}
    ctx._tracing.finish()
    for name, value in outputs.items():
        ctx.graph.output(name, value)
    graph = ctx.graph.prune()
    verify(graph)
    feeds = {n: arrays[n] for n in [*case["inputs"], "seed"]}
    return graph, feeds | {f"block.{n}": arrays[n] for n in case["weights"]}


@pytest.mark.parametrize("case", CASES, ids=[c["name"] for c in CASES])
def test_values_and_gradients(case: dict[str, Any]) -> None:
    arrays = arrays_of(case["name"])
    graph, feeds = traced(case, arrays)
    wanted = {k: v for k, v in arrays.items() if k == "out" or k.startswith("grad:")}
    found = oracle(graph, feeds)
    assert wanted.keys() <= found.keys() | {f"grad:{n}" for n in case["inputs"] if f"grad:{n}" not in graph.outputs}
    for name, value in wanted.items():
        if name in found:
            np.testing.assert_allclose(found[name], value, rtol=1e-8, atol=1e-9, err_msg=name)
        else:
            assert not np.any(value), f"{name} is not zero, but the graph has no gradient"


@pytest.mark.device
@pytest.mark.parametrize("case", CASES, ids=[c["name"] for c in CASES])
def test_on_the_device(case: dict[str, Any], device_name: str) -> None:
    arrays = arrays_of(case["name"])
    graph, feeds = traced(case, arrays)
    found = on_device(graph, feeds)
    for name, value in found.items():
        if name in arrays:
            scale = max(1.0, float(np.abs(arrays[name]).max()))
            np.testing.assert_allclose(value, arrays[name], rtol=2e-5, atol=2e-5 * scale, err_msg=name)
