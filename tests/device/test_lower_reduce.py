"""Reductions and row groups on the device against the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from graph_runner import compare, on_device
from kernel_runner import MIB, WEBGPU
from random_graphs import random_graph

from scellis_core import ops
from scellis_core.autodiff import gradients
from scellis_core.ir import Graph, Type
from scellis_core.lower.emit import emit_group
from scellis_core.lower.group import group_graph
from scellis_core.lower.wgsl import ScalarTable

pytestmark = pytest.mark.device
BOTH = pytest.mark.parametrize("limits", [WEBGPU, MIB], ids=["default", "1MiB"])


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("seed", range(1000, 1016))
def test_random_graphs(seed):
    graph, arrays = random_graph(seed, size=26)
    compare(graph, arrays, fuse=True)
    if seed % 4 == 0:
        compare(graph, arrays, fuse=False)


@BOTH
@pytest.mark.parametrize("op", ["reduce_sum", "reduce_max", "reduce_min"])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((1,), (0,)), ((5, 1), (1,)), ((7, 3), (0,)), ((7, 3), (1,)), ((70, 67), (0,)), ((70, 67), (0, 1)),
        ((3, 5, 7), (1,)), ((3, 5, 7), (0, 2)), ((4, 6, 8), (0, 2)), ((2, 3, 4, 5), (0, 2)), ((3, 4, 8), (2,)),
        ((300, 9), (0,)), ((2, 9001), (1,)), ((9000, 40), (0,)), ((1 << 19,), (0,)), ((300001, 1), (0,)),
        ((3, 20004), (1,)), ((600, 1000), (1,)), ((600, 1000), (0,)), ((1000, 600), (0, 1)),
    ],
)  # fmt: skip
def test_reductions(op, shape, axes, limits):
    g = Graph()
    x = g.load("x", Type("f32", shape))
    g.output("y", g.emit(op, [ops.tanh(x)], axes=axes, keepdims=False)[0] * 2.0)
    compare(g, {"x": normal(*shape)}, 1e-4, 1e-3, limits=limits)


@BOTH
@pytest.mark.parametrize(
    ("shape", "axis"), [((7, 3), 0), ((7, 3), 1), ((2, 70001), 1), ((70001,), 0), ((9000, 3), 0), ((3, 40, 5), 1)]
)
def test_argmax_takes_the_first(shape, axis, limits):
    g = Graph()
    x = g.load("x", Type("f32", shape))
    g.output("y", ops.argmax(x, axis=axis))
    array = np.floor(normal(*shape) * 2).astype(np.float32)
    got = on_device(g, {"x": array}, limits=limits)["y"]
    np.testing.assert_array_equal(got, array.argmax(axis))


@BOTH
def test_a_sum_past_the_workgroup_limit(limits):
    numel = 65535 * 256 + 1
    g = Graph()
    x = g.load("x", Type("f32", (numel,)))
    g.output("norm", ops.sqrt(ops.reduce_sum(x * x, axes=(0,))))
    array = np.random.default_rng(0).standard_normal(numel, np.float32)
    got = on_device(g, {"x": array}, limits=limits)["norm"]
    np.testing.assert_allclose(got, np.sqrt(np.sum(array.astype(np.float64) ** 2)), 1e-5)
    again = on_device(g, {"x": array}, limits=limits)["norm"]
    assert got.tobytes() == again.tobytes()


def layer_norm(x, weight, bias):
    last = (x.ndim - 1,)
    centred = x - ops.mean(x, axes=last, keepdims=True)
    y = centred * ops.rsqrt(ops.mean(ops.square(centred), axes=last, keepdims=True) + 1e-5)
    return y * weight + bias


@BOTH
@pytest.mark.parametrize("shape", [(6, 3, 5), (40, 64), (3, 2, 768), (130, 1), (2, 2048), (4, 2500), (260, 1028)])
def test_layer_norm_and_its_gradient(shape, limits):
    g = Graph()
    x = g.load("x", Type("f32", shape))
    w, b = g.param("w", Type("f32", shape[-1:])), g.param("b", Type("f32", shape[-1:]))
    y = layer_norm(x, w, b)
    total = ops.reduce_sum(y * g.load("t", Type("f32", shape)))
    g.output("y", y)
    for name, value in zip("xwb", gradients(g, total, [x, w, b]).values(), strict=True):
        g.output(f"d{name}", value)
    arrays = {"x": normal(*shape), "t": normal(*shape, seed=1), "w": normal(shape[-1]), "b": normal(shape[-1])}
    compare(g.prune(), arrays, 1e-3, 2e-4 * np.sqrt(shape[0]), limits=limits)


@BOTH
@pytest.mark.parametrize("classes", [2, 5, 64, 1000, 2052, 9001, 9004])
def test_cross_entropy_and_its_gradient(classes, limits):
    rows = 140 if classes > 2000 else 30
    g = Graph()
    x, labels = g.load("x", Type("f32", (rows, classes))), g.load("y", Type("i32", (rows,)))
    nll = -ops.pick(ops.log_softmax(x), labels)
    total = ops.reduce_sum(nll)
    g.output("loss", total)
    g.output("rows", nll)
    for value in gradients(g, total, [x], g.scalar("scale")).values():
        g.output("dx", value)
    index = np.random.default_rng(1).integers(0, classes, rows).astype(np.int32)
    arrays = {"x": normal(rows, classes) * 4, "y": index, "scale": np.float32(3.0)}
    compare(g.prune(), arrays, 1e-4, 1e-4, limits=limits)


@BOTH
@pytest.mark.parametrize("shape", [(32, 7), (4, 3, 5, 5), (16, 8, 12, 12), (8, 130, 2, 2)])
def test_batch_norm(shape, limits):
    axes = (0, *range(2, len(shape)))
    kept = tuple(1 if k in axes else n for k, n in enumerate(shape))
    g = Graph()
    x, running = g.load("x", Type("f32", shape)), g.state("running", Type("f32", (shape[1],)))
    mean = ops.mean(x, axes=axes, keepdims=True)
    y = (x - mean) * ops.rsqrt(ops.mean(ops.square(x - mean), axes=axes, keepdims=True) + 1e-5)
    g.store("running", running * 0.9 + ops.reshape(mean, (shape[1],)) * 0.1)
    g.output("y", y)
    total = ops.reduce_sum(ops.square(y) * y)
    for value in gradients(g, total, [x]).values():
        g.output("dx", value)
    assert len(kept) == len(shape)
    arrays = {"x": normal(*shape), "running": normal(shape[1])}
    compare(g.prune(), arrays, 1e-3, 1e-3, limits=limits)


def test_a_row_kernel_that_overwrites_what_it_reduces():
    g = Graph()
    x, s = g.load("x", Type("f32", (8, 33))), g.state("s", Type("f32", (8, 33)))
    total = x + s
    g.output("top", ops.reduce_max(total, axes=(0, 1)))
    g.output("least", ops.reduce_min(total, axes=(0, 1)))
    g.store("s", total + s)
    arrays = {"x": normal(8, 33), "s": np.linspace(-3, 9, 264, dtype=np.float32).reshape(8, 33)}
    compare(g, arrays)


def test_causal_softmax_is_one_kernel():
    g = Graph()
    shape = (2, 3, 33, 33)
    x = g.load("x", Type("f32", shape))
    row, column = (g.emit("iota", [], axis=k, dtype="i32", shape=(33, 33))[0] for k in (0, 1))
    mask = ops.broadcast(ops.le(column, row), shape)
    p = ops.softmax(ops.select(mask, x * 0.5, -1e9), axis=-1)
    g.output("p", p)
    g.output("dx", gradients(g, ops.reduce_sum(p * g.load("t", Type("f32", shape))), [x])[x])
    g.prune()
    assert len(group_graph(g, WEBGPU, fuse=True)) == 1
    compare(g, {"x": normal(*shape), "t": normal(*shape, seed=2)})


def test_extremes_of_a_row():
    g = Graph()
    x = g.load("x", Type("f32", (3, 40)))
    g.output("max", ops.reduce_max(x, axes=(1,)))
    g.output("p", ops.softmax(x, axis=-1))
    array = normal(3, 40)
    array[0] += 1e4
    array[1] -= 1e4
    array[2, 5:] = -np.inf
    compare(g, {"x": array}, 1e-3, 1e-5)


def test_kernels_are_shared_by_groups_of_one_structure():
    g = Graph()
    for k in range(3):
        with g.at(f"blocks.{k}"):
            g.output(f"y{k}", ops.softmax(g.load(f"x{k}", Type("f32", (5, 40))), axis=-1))
    scalars = ScalarTable()
    made = [emit_group(x, WEBGPU, scalars) for x in group_graph(g, WEBGPU, fuse=True)]
    assert len(made) == 3
    assert made[0] is made[1] is made[2]
