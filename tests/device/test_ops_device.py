"""Every op and every op's gradient on a device, against the oracle within the op's declared tolerance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from graph_runner import on_device, oracle
from kernel_runner import WEBGPU

from scellis_core import ops
from scellis_core.autodiff import gradients
from scellis_core.ir import OPS, Graph, Type, Value, op_def
from scellis_core.lower.program import Limits

MIB = WEBGPU.with_(max_storage_buffer_binding_size=1 << 20)
REGIMES = {"fused": (WEBGPU, True), "one kernel an op": (WEBGPU, False), "a MiB a binding": (MIB, True)}
DIFFERENTIABLE = sorted(name for name, op in OPS.items() if op.vjp is not None and name != "max_pool2d_grad")
"""All but the gradient of a maximum, whose own is refused by name."""


def agree(graph: Graph, arrays: Mapping[str, Any], rtol: float, atol: float, limits: Limits, fuse: bool) -> None:
    """Outputs and stores on the device are the oracle's; errors count against the largest value of the tensor."""
    want, found = oracle(graph, arrays), on_device(graph, arrays, fuse=fuse, limits=limits)
    assert set(want) == set(found)
    for name, value in want.items():
        expected = np.asarray(value, np.float64)
        finite = np.abs(expected[np.isfinite(expected)])
        top = float(finite.max()) if finite.size else 0.0
        np.testing.assert_allclose(
            np.asarray(found[name], np.float64), expected, rtol, max(atol, rtol * top), err_msg=f"{graph.name}: {name}"
        )


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("op", sorted(OPS))
def test_samples(op: str, regime: str) -> None:
    limits, fuse = REGIMES[regime]
    tolerance = op_def(op).tolerance
    cases = [case for seed in (11, 12) for case in ops.sample_cases(op, np.random.default_rng(seed))]
    assert cases
    for case in cases:
        arrays = {**case.inputs, **case.tensors, **{k: np.asarray(v) for k, v in case.scalars.items()}}
        agree(case.graph.prune(), arrays, tolerance.rtol, tolerance.atol, limits, fuse)


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("op", DIFFERENTIABLE)
def test_gradients_of_samples(op: str, regime: str) -> None:
    limits, fuse = REGIMES[regime]
    rng = np.random.default_rng(13)
    for case in ops.sample_cases(op, rng):
        graph, arrays = case.graph, dict(case.inputs)
        node = graph.nodes[-1]
        wanted = [v for v in case.operands if v.dtype == "f32"]
        outputs = [v for v in node.outputs if v.dtype == "f32"]
        if not wanted or not outputs:
            continue
        graph.outputs.clear()
        total: Value | None = None
        for k, value in enumerate(outputs):
            arrays[f"seed{k}"] = rng.standard_normal(value.shape).astype(np.float32)
            part = ops.reduce_sum(value * graph.load(f"seed{k}", value.type))
            total = part if total is None else total + part
        assert total is not None
        for k, (value, gradient) in enumerate(gradients(graph, total, wanted).items()):
            assert gradient is None or gradient.type == value.type
            if gradient is not None:
                graph.output(f"grad{k}", gradient)
        if graph.outputs:
            agree(graph.prune(), arrays, 2e-5, 2e-5, limits, fuse)


SHAPES = [(1,), (1, 1, 1), (7,), (3, 1, 5), (257, 3), (33, 129), (2, 3, 65, 7)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("fuse", [True, False])
def test_shapes_with_ones_odd_sizes_and_sizes_over_a_tile(shape: tuple[int, ...], fuse: bool) -> None:
    """One graph a shape: pointwise, reductions over any axes, views, lookups and their gradients."""
    rng = np.random.default_rng(len(shape) * 100 + shape[0])
    g = Graph("shapes")
    arrays = {n: rng.standard_normal(shape).astype(np.float32) for n in ("x", "y")}
    x, y = (g.load(n, Type("f32", shape)) for n in ("x", "y"))
    h = ops.tanh(x * y + 0.5) * ops.exp(ops.min(x, y)) - ops.select(x > y, ops.abs(x), y / (ops.square(x) + 1.0))
    parts: list[Value] = [h]
    for axis in range(len(shape)):
        parts += [h * ops.softmax(x, axis=axis), h - ops.reduce_max(y, axes=axis, keepdims=True)]
        parts.append(ops.broadcast(ops.mean(h, axes=axis, keepdims=True), shape))
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    loss = ops.reduce_sum(total * ops.logsumexp(h, axis=-1, keepdims=True))
    g.output("loss", loss)
    g.output("top", ops.argmax(x, axis=-1))
    for name, value in (("dx", x), ("dy", y)):
        gradient = gradients(g, loss, [value])[value]
        assert gradient is not None
        g.output(name, gradient)
    for limits in (WEBGPU, MIB):
        agree(g.prune(), arrays, 3e-5, 1e-4, limits, fuse)


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (1, 7, 1), (5, 1, 3), (17, 33, 9), (65, 130, 67), (129, 16, 257), (1, 300, 70)], ids=str
)
def test_products_of_any_size_with_transposes(sizes: tuple[int, int, int]) -> None:
    rows, inner, columns = sizes
    rng = np.random.default_rng(rows)
    for ta in (False, True):
        for tb in (False, True):
            g = Graph("product")
            shapes = {
                "a": (2, inner, rows) if ta else (2, rows, inner),
                "b": (2, columns, inner) if tb else (2, inner, columns),
                "w": (columns, inner) if tb else (inner, columns),
            }
            arrays = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
            v = {n: g.load(n, Type("f32", s)) for n, s in shapes.items()}
            batched = ops.matmul(v["a"], v["b"], transpose_a=ta, transpose_b=tb)
            shared = ops.matmul(v["a"], v["w"], transpose_a=ta, transpose_b=tb)
            loss = ops.reduce_sum(ops.square(batched) + batched * shared)
            g.output("batched", batched)
            g.output("shared", shared)
            for name, gradient in zip("abw", gradients(g, loss, list(v.values())).values(), strict=True):
                assert gradient is not None
                g.output(f"d{name}", gradient)
            agree(g.prune(), arrays, 2e-5, 1e-5, WEBGPU, True)


def test_tensors_past_a_binding_are_read_and_written_in_windows() -> None:
    """Five MiB under a cap of one: pointwise, a reduction, a lookup and its gradient, a product."""
    rows, width = 5000, 256
    rng = np.random.default_rng(3)
    g = Graph("windows")
    table = g.load("table", Type("f32", (rows, width)))
    index = g.load("index", Type("i32", (40,)))
    arrays = {
        "table": rng.standard_normal((rows, width)).astype(np.float32),
        "index": rng.integers(0, rows, 40).astype(np.int32),
    }
    picked = ops.take(table, index)
    logits = ops.matmul(picked, table, transpose_b=True)
    loss = ops.reduce_sum(ops.logsumexp(logits * 0.05, axis=-1)) + ops.reduce_sum(ops.tanh(table)) * 0.01
    g.output("loss", loss)
    gradient = gradients(g, loss, [table])[table]
    assert gradient is not None
    g.output("grad", gradient)
    agree(g.prune(), arrays, 5e-5, 1e-4, MIB, True)
