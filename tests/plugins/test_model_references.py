"""Models, forward and backward, against PyTorch's float64 (tests/golden/models.npz): on the oracle and on a device."""

from __future__ import annotations

from pathlib import Path

import models
import numpy as np
import pytest
from graph_runner import on_device, oracle

from scellis_core.autodiff import gradients
from scellis_core.ir import Graph, Type, verify
from scellis_core.model import initial_tensors
from scellis_core.plugin import ops

TESTS = Path(__file__).parents[1]

ARRAYS = np.load(TESTS / "golden" / "models.npz")


def traced(name: str) -> tuple[Graph, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(graph with gradients as outputs, what to feed it, what PyTorch found)."""
    inputs, weights = models.numbers(name)
    low = models.lowered(name)
    assert set(low.params) == set(weights)
    first = next(iter(low.outputs.values()))
    graph = low.graph
    seed = graph.load("seed", Type("f32", first.shape))
    leaves = graph.leaves("param")
    found = gradients(graph, ops.reduce_sum(first * seed), list(leaves.values()))
    for path, leaf in leaves.items():
        gradient = found[leaf]
        assert gradient is not None
        graph.output(f"grad:{path}", gradient)
    graph.prune()
    verify(graph)
    states = {n: np.array(a) for n, a in initial_tensors(low.params, low.states, 0).items() if n in low.states}
    want = {k.partition("/")[2]: ARRAYS[k] for k in ARRAYS.files if k.startswith(f"{name}/")}
    return graph, {**inputs, **weights, **states, "seed": models.seed_of(first.shape)}, want


def compare(found: dict[str, np.ndarray], want: dict[str, np.ndarray], tolerance: float) -> None:
    for name, value in want.items():
        kept = np.ravel(found[name.removeprefix("out:")])[: value.size]
        scale = max(float(np.abs(value).max()), 1.0)
        np.testing.assert_allclose(kept, np.ravel(value), rtol=0, atol=tolerance * scale, err_msg=name)


@pytest.mark.parametrize("name", models.MODELS)
def test_on_the_oracle(name: str) -> None:
    graph, feeds, want = traced(name)
    compare(oracle(graph, feeds), want, 1e-8)


@pytest.mark.device
@pytest.mark.parametrize("name", models.MODELS)
def test_on_a_device(name: str, device_name: str) -> None:
    graph, feeds, want = traced(name)
    compare(on_device(graph, feeds), want, 1e-4)
