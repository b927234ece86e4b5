"""Gradients against central differences in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from scellis_core import ops, oracle
from scellis_core.autodiff import gradients
from scellis_core.ir import FLOATS, Graph, Value, verify
from scellis_core.ops.base import type_of

Build = Callable[..., Value]
"""``(*values) -> value``: what is differentiated."""

STEP = 1e-6


def weighted(value: Value, phase: float) -> Value:
    """A scalar that every element moves, by a weight of its own."""
    ramp = ops.reshape(ops.iota(value.graph, (value.type.numel,), 0, "f32"), value.shape)
    return ops.reduce_sum(value * ops.sin(ramp * 1.7 + phase))


def check_gradients(build: Build, arrays: Sequence[Any], *, order: int = 1, rtol: float = 2e-6) -> None:
    """Compare gradients by every float operand with central differences along a random direction.

    Args:
        build: emits what is differentiated.
        arrays: its operands, f32 or integers.
        order: 2 to differentiate the gradients themselves.
        rtol: relative to the size of the terms that are compared.
    """
    graph = Graph("check")
    values = [graph.load(f"in{i}", type_of(a)) for i, a in enumerate(arrays)]
    floats = [v for v in values if v.dtype in FLOATS]
    loss = weighted(build(*values), 0.3)
    if order == 2:
        first = [g for g in gradients(graph, loss, floats).values() if g is not None]
        loss = weighted(first[0], 0.9)
        for k, value in enumerate(first[1:]):
            loss = loss + weighted(value, 1.1 + k)
    graph.output("loss", loss)
    forward = Graph("forward")
    mapping: dict[Value, Value] = {}
    for node in graph.nodes:
        with forward.at(node.path):
            made = forward.emit(node.op, [mapping[v] for v in node.inputs], **node.attrs)
        mapping.update(zip(node.outputs, made, strict=True))
    forward.output("loss", mapping[loss])
    forward.prune()

    found = gradients(graph, loss, floats)
    for k, value in enumerate(floats):
        gradient = found[value]
        if gradient is not None:
            graph.output(f"g{k}", gradient)
    graph.prune()
    verify(graph)
    inputs = {f"in{i}": a for i, a in enumerate(arrays)}
    results = oracle.evaluate(graph, inputs, {}, {})
    if not math.isfinite(results["loss"]):
        return
    rng = np.random.default_rng(7)
    names = [f"in{i}" for i, v in enumerate(values) if v.dtype in FLOATS]
    for k, name in enumerate(names):
        x = np.asarray(inputs[name], np.float64)
        direction = rng.standard_normal(x.shape)
        sides = [
            float(oracle.evaluate(forward, {**inputs, name: x + s * STEP * direction}, {}, {})["loss"])
            for s in (1.0, -1.0)
        ]
        numeric = (sides[0] - sides[1]) / (2 * STEP)
        terms = results[f"g{k}"] * direction if f"g{k}" in results else np.zeros(())
        scale = float(np.abs(terms).sum()) + abs(float(results["loss"])) + 1e-3
        assert abs(float(terms.sum()) - numeric) <= rtol * scale, (name, float(terms.sum()), numeric, scale)
