"""Traces single blocks and evaluates them, with gradients, on the float64 oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scellis_core import oracle, rng
from scellis_core.autodiff import gradients
from scellis_core.blocks import BlockGraph, Layer, LossTerm
from scellis_core.ir import Graph, Type, Value, verify
from scellis_core.model.trace import Context, Ties, Tracing
from scellis_core.plugin import ops

Array = NDArray[Any]


def _unresolved(block_id: str, params: Mapping[str, Any], where: str) -> Any:
    raise AssertionError(f"{where}: {block_id} is not to be resolved here")


def context(*, training: bool = True, batch: int = 2) -> Context:
    """A real tracing context of a block at path ``block``."""
    tracing = Tracing(Graph("test"), training, batch, Ties(BlockGraph(_unresolved)))
    return Context(tracing, "block", "run.sml:3:3 block", training=training)


def load(graph: Graph, name: str, array: Array) -> Value:
    """A batch input as the array is: floats f32, integers i32."""
    dtype = "f32" if np.asarray(array).dtype.kind == "f" else "i32"
    return graph.load(name, Type(dtype, np.shape(array)))


def evaluate(
    ctx: Context,
    outputs: Mapping[str, Value],
    inputs: Mapping[str, Array],
    tensors: dict[str, Array] | None = None,
) -> dict[str, Array]:
    """Values of outputs; ``tensors`` holds parameters and states and receives what is stored."""
    graph = ctx.graph
    ctx._tracing.finish()
    for name, value in outputs.items():
        graph.output(name, value)
    graph.prune()
    verify(graph)
    scalars: dict[str, float | int] = {"rng.counter_lo": 5, "rng.counter_hi": 0}
    for node in graph.nodes:
        if node.op == "philox":
            stream = str(node.attrs["stream"])
            scalars[f"rng.{stream}.key0"], scalars[f"rng.{stream}.key1"] = rng.stream_key(42, stream)
    loads = {n: inputs[n] for n in graph.leaves("load")}
    return oracle.evaluate(graph, loads, {} if tensors is None else tensors, scalars)


def run_layer(
    layer: Layer,
    params: Mapping[str, Any],
    inputs: Mapping[str, Array],
    weights: Mapping[str, Array] | None = None,
    *,
    training: bool = True,
    seed: Array | None = None,
) -> tuple[Array, dict[str, Array], dict[str, Array]]:
    """Run a layer.

    Returns:
        Its output, gradients of ``sum(y * seed)`` by name of input and parameter, and the states afterwards.
    """
    given = dict(weights or {})
    ctx = context(training=training, batch=len(next(iter(inputs.values()))))
    loads = {name: load(ctx.graph, name, array) for name, array in inputs.items()}
    assert layer.lower is not None
    y = layer.lower(ctx, layer.params(**params), **loads)
    assert isinstance(y, Value)
    states = {n.rpartition(".")[2] for n in ctx.graph.leaves("state")}
    tensors = {
        (f"state:block.{name}" if name in states else f"block.{name}"): np.array(value, np.float64)
        for name, value in given.items()
    }
    outputs = {"y": y}
    feeds = dict(inputs)
    if seed is not None:
        feeds["seed"] = np.broadcast_to(seed, y.shape)
        total = ops.reduce_sum(y * load(ctx.graph, "seed", feeds["seed"]))
        outputs |= gradients_of(ctx, total, loads)
    found = evaluate(ctx, outputs, feeds, tensors)
    grads = {name.removeprefix("grad:"): value for name, value in found.items() if name != "y"}
    after = {name.rpartition(".")[2]: v for name, v in tensors.items() if name.startswith("state:")}
    return found["y"], grads, after


def gradients_of(ctx: Context, total: Value, loads: Mapping[str, Value]) -> dict[str, Value]:
    wanted = {n: v for n, v in loads.items() if v.dtype == "f32"}
    wanted |= {n.rpartition(".")[2]: v for n, v in ctx.graph.leaves("param").items()}
    found = gradients(ctx.graph, total, list(wanted.values()), ctx.graph.const(1.0))
    reached = {n: found[v] for n, v in wanted.items()}
    return {f"grad:{n}": gradient for n, gradient in reached.items() if gradient is not None}


def run_loss(fn: Callable[..., LossTerm], params: Any, output: Array, target: Array) -> tuple[float, float, Array]:
    """Total, weight, and the gradient of the total in the output."""
    ctx = context(batch=len(output))
    loads = {"output": load(ctx.graph, "output", output), "target": load(ctx.graph, "target", target)}
    term = fn(ctx, params, *loads.values())
    weight = ctx.graph.const(1.0) if term.weight is None else term.weight
    outputs = {"total": term.total, "weight": weight, **gradients_of(ctx, term.total, loads)}
    found = evaluate(ctx, outputs, {"output": output, "target": target})
    return float(found["total"]), float(found["weight"]), found["grad:output"]
