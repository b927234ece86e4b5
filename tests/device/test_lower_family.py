"""Products and convolutions with what their kernels apply, on the device against the oracle."""

from __future__ import annotations

import math

import numpy as np
import pytest
from graph_runner import compare
from kernel_runner import MIB, WEBGPU, need_f16

from scellis_core import ops
from scellis_core.autodiff import gradients
from scellis_core.ir import Graph, Type
from scellis_core.lower.group import group_graph

pytestmark = pytest.mark.device


def feed(graph, seed=0):
    """Normal draws for every float leaf, zeros for integers."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for kind in ("load", "param", "state", "scalar"):
        for name, value in graph.leaves(kind).items():
            if value.dtype in ("f32", "f16"):
                arrays[name] = rng.standard_normal(value.shape).astype(
                    np.float16 if value.dtype == "f16" else np.float32
                )
            else:
                arrays[name] = rng.integers(0, 5, value.shape).astype(np.int32)
    return arrays


def kinds(graph):
    return [x.kind for x in group_graph(graph, WEBGPU, fuse=True)]


@pytest.mark.parametrize("limits", [WEBGPU, MIB], ids=["default", "1MiB"])
@pytest.mark.parametrize(
    ("rows", "inner", "width"), [((3, 5), 7, 9), ((33,), 64, 40), ((4, 16), 33, 128), ((1,), 300, 4)]
)
def test_linear_with_activation_and_residual(rows, inner, width, limits):
    g = Graph()
    x, w = g.load("x", Type("f32", (*rows, inner))), g.param("w", Type("f32", (width, inner)))
    b, r = g.param("b", Type("f32", (width,))), g.load("r", Type("f32", (*rows, width)))
    h = ops.matmul(x, w, transpose_b=True) + b
    y = ops.gelu(h) + r
    g.output("y", y)
    g.output("h", h)
    assert kinds(g) == ["family", "pointwise"]
    for name, value in zip("xwbr", gradients(g, ops.reduce_sum(y * y), [x, w, b, r]).values(), strict=True):
        g.output(f"d{name}", value)
    for fuse in (True, False):
        compare(g, feed(g), 1e-3, 2e-3, fuse=fuse, limits=limits)


def attention(g, x, weights, heads):
    batch, length, width = x.shape
    size = width // heads

    def split(w):
        y = ops.reshape(ops.matmul(x, w, transpose_b=True), (batch, length, heads, size))
        return ops.permute(y, (0, 2, 1, 3))

    q, k, v = (split(w) for w in weights[:3])
    scores = ops.matmul(q, k, transpose_b=True) * (1 / math.sqrt(size))
    row, column = (g.emit("iota", [], axis=k, dtype="i32", shape=(length, length))[0] for k in (0, 1))
    scores = ops.select(ops.broadcast(ops.le(column, row), scores.shape), scores, -1e9)
    mixed = ops.permute(ops.matmul(ops.softmax(scores, axis=-1), v), (0, 2, 1, 3))
    return ops.matmul(ops.reshape(mixed, (batch, length, width)), weights[3], transpose_b=True)


@pytest.mark.parametrize(("batch", "length", "width", "heads"), [(2, 5, 12, 3), (3, 17, 32, 4), (1, 64, 64, 2)])
def test_attention_and_its_gradient(batch, length, width, heads):
    g = Graph()
    x = g.load("x", Type("f32", (batch, length, width)))
    weights = [g.param(n, Type("f32", (width, width))) for n in "qkvo"]
    y = attention(g, x * 0.3, [w * 0.3 for w in weights], heads) + x
    found = gradients(g, ops.reduce_sum(y * y), [x, *weights])
    g.output("y", y)
    for k, value in enumerate(found.values()):
        g.output(f"d{k}", value)
    g.prune()
    assert "permute" not in [n.op for x in group_graph(g, WEBGPU, fuse=True) for n in x.nodes if x.kind == "pointwise"]
    compare(g, feed(g), 1e-3, 5e-3)
    compare(g, feed(g), 1e-3, 5e-3, fuse=False)


@pytest.mark.parametrize("groups", [1, 2])
def test_convolution_with_bias_and_activation(groups):
    g = Graph()
    x, w = g.load("x", Type("f32", (3, 4, 7, 6))), g.param("w", Type("f32", (8, 4 // groups, 3, 3)))
    b = g.param("b", Type("f32", (8,)))
    h = ops.conv2d(x, w, padding=(1, 1, 1, 1), groups=groups) + ops.reshape(b, (8, 1, 1))
    y = ops.relu(h) * 0.5
    g.output("y", y)
    assert kinds(g) == ["family"]
    pooled = ops.max_pool2d(y, window=(2, 2), stride=(2, 2))
    total = ops.reduce_sum(ops.square(pooled)) + ops.reduce_sum(ops.avg_pool2d(y, window=(2, 2), stride=(1, 1)))
    for name, value in zip("xwb", gradients(g, total, [x, w, b]).values(), strict=True):
        g.output(f"d{name}", value)
    for fuse in (True, False):
        compare(g.prune(), feed(g), 1e-3, 2e-3, fuse=fuse)


def test_a_gradient_is_added_where_it_is_stored():
    g = Graph()
    x, y = g.load("x", Type("f32", (70, 33))), g.load("y", Type("f32", (70, 12)))
    product = ops.matmul(x, y, transpose_a=True)
    g.store("grad:w", g.state("grad:w", Type("f32", (33, 12))) + product)
    index = g.load("i", Type("i32", (70,)))
    g.store("grad:e", g.state("grad:e", Type("f32", (5, 12))) + ops.scatter_add(index, y, rows=5))
    groups = group_graph(g, WEBGPU, fuse=True)
    assert [x.kind for x in groups] == ["family", "family", "pointwise"]
    for fuse in (True, False):
        compare(g, feed(g), 1e-4, 1e-3, fuse=fuse)


def test_f16_product_with_f32_epilogue():
    need_f16(WEBGPU)
    g = Graph()
    x, w = g.load("x", Type("f16", (32, 24))), g.param("w", Type("f16", (24, 16)))
    b = g.param("b", Type("f16", (16,)))
    h = ops.matmul(x * 0.25, w * 0.25) + b
    g.output("h", h)
    g.output("wide", ops.cast(h, "f32") * 2.0)
    compare(g, feed(g), 4e-3, 8e-3)


def test_operands_with_no_strides_are_copied():
    g = Graph()
    x = g.load("x", Type("f32", (6, 4, 5)))
    turned = ops.reshape(ops.permute(x, (1, 0, 2)), (2, 12, 5))
    other = ops.permute(ops.pad(g.load("z", Type("f32", (2, 3, 5))), low=(0, 1, 0), high=(0, 0, 0)), (0, 2, 1))
    g.output("y", ops.matmul(turned, other))
    sliced = ops.slice(x, starts=(1, 0, 0), stops=(5, 4, 3), steps=(2, 1, 1))
    g.output("z", ops.matmul(sliced, ops.broadcast(g.load("v", Type("f32", (3, 7))), (2, 3, 7))))
    for fuse in (True, False):
        compare(g, feed(g), fuse=fuse)
