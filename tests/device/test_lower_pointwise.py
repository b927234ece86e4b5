"""Pointwise kernels, views and lookups on the device against the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from graph_runner import compare, on_device
from kernel_runner import MIB, WEBGPU, need_f16
from random_graphs import random_graph

from scellis_core import ops
from scellis_core.errors import DeviceError
from scellis_core.ir import Graph, Type
from scellis_core.lower.emit import emit_group
from scellis_core.lower.group import group_graph
from scellis_core.lower.wgsl import ScalarTable

pytestmark = pytest.mark.device


@pytest.mark.parametrize("seed", range(24))
def test_random_graphs(seed):
    graph, arrays = random_graph(seed)
    compare(graph, arrays, fuse=True, quad=None if seed % 2 else True)
    if seed % 3 == 0:
        compare(graph, arrays, fuse=False)


@pytest.mark.parametrize("limits", [WEBGPU, MIB], ids=["default", "1MiB"])
@pytest.mark.parametrize("numel", [65535 * 16 + 1, 1 << 20, 4 * 65537])
def test_sizes_past_a_binding(limits, numel):
    g = Graph()
    x, y = g.load("x", Type("f32", (numel,))), g.load("y", Type("f32", (numel,)))
    h = ops.tanh(x) * y
    g.output("a", h)
    g.output("b", ops.select(ops.lt(x, y), h, 0.5) + g.scalar("s"))
    ramp = g.emit("iota", [], axis=0, dtype="i32", shape=(numel,))[0]
    g.output("c", ops.rem(ramp, g.broadcast(g.const(1000, "i32"), (numel,))))
    rng = np.random.default_rng(numel)
    arrays = {"x": rng.standard_normal(numel), "y": rng.standard_normal(numel), "s": np.float32(2.5)}
    compare(g, {k: np.asarray(v, np.float32) for k, v in arrays.items()}, limits=limits)


def test_more_workgroups_than_a_dimension():
    numel = 65535 * 256 + 1
    g = Graph()
    x = g.load("x", Type("f32", (numel,)))
    g.output("y", x * 2.0 + 1.0)
    (group,) = group_graph(g, WEBGPU, fuse=True)
    (call,) = emit_group(group, WEBGPU, ScalarTable())
    assert call.grid[1] == 2
    array = np.arange(numel, dtype=np.float32)
    for limits in (WEBGPU, MIB):
        np.testing.assert_array_equal(on_device(g, {"x": array}, limits=limits)["y"], array * 2 + 1)


@pytest.mark.parametrize("limits", [WEBGPU, MIB], ids=["default", "1MiB"])
def test_broadcasts_of_rows_and_columns_stay_wide(limits):
    g = Graph()
    x = g.load("x", Type("f32", (640, 512)))
    row, column = g.load("r", Type("f32", (512,))), g.load("c", Type("f32", (640, 1)))
    g.output("y", ops.tanh(x) * row + column)
    rng = np.random.default_rng(0)
    arrays = {n: rng.standard_normal(s).astype(np.float32) for n, s in (("x", (640, 512)), ("r", 512), ("c", (640, 1)))}
    compare(g, arrays, limits=limits)
    (group,) = group_graph(g, WEBGPU, fuse=True)
    text = emit_group(group, WEBGPU, ScalarTable())[0].kernel.wgsl
    assert "in0: array<vec4<f32>>" in text
    assert "in1: array<vec4<f32>>" in text
    assert text.count("in2[") == 1


def test_nine_inputs_are_split_at_the_binding_limit():
    g = Graph()
    loads = [g.load(f"x{k}", Type("f32", (300,))) for k in range(12)]
    total = loads[0]
    for other in loads[1:]:
        total = ops.tanh(total * other) + total
    g.output("y", total)
    groups = group_graph(g, WEBGPU, fuse=True)
    assert len(groups) > 1
    assert all(len(x.inputs) + len(x.outputs) <= 8 for x in groups)
    rng = np.random.default_rng(0)
    compare(g, {f"x{k}": rng.standard_normal(300).astype(np.float32) for k in range(12)})


def test_a_concat_of_more_tensors_than_bindings():
    g = Graph()
    parts = [ops.tanh(g.load(f"x{k}", Type("f32", (3, k + 1, 4)))) for k in range(12)]
    whole = ops.concat(parts, axis=1)
    g.output("y", whole * 2.0)
    g.output("z", ops.reduce_sum(ops.concat([whole, *parts], axis=1), axes=(1,)))
    rng = np.random.default_rng(0)
    arrays = {f"x{k}": rng.standard_normal((3, k + 1, 4)).astype(np.float32) for k in range(12)}
    for fuse in (True, False):
        compare(g, arrays, fuse=fuse)


@pytest.mark.parametrize("seed", range(2000, 2006))
def test_random_graphs_with_five_bindings(seed):
    graph, arrays = random_graph(seed, size=36)
    compare(graph, arrays, limits=WEBGPU.with_(max_storage_buffers_per_shader_stage=5))


def test_update_in_place_is_one_kernel():
    g = Graph("apply")
    size = 1024
    p, m, grad = (g.state(n, Type("f32", (size,))) for n in ("p", "m", "g"))
    new_m = m * 0.9 + grad
    g.store("m", new_m)
    g.store("p", p - g.scalar("lr") * new_m)
    g.store("g", g.const(0.0, "f32", (size,)))
    groups = group_graph(g, WEBGPU, fuse=True)
    assert [(x.kind, len(x.inputs), len(x.outputs)) for x in groups] == [("pointwise", 3, 3)]
    assert len(groups[0].aliases) == 3
    (call,) = emit_group(groups[0], WEBGPU, ScalarTable())
    assert [b.access for b in call.kernel.bindings] == ["read_write"] * 3
    rng = np.random.default_rng(0)
    arrays = {n: rng.standard_normal(size).astype(np.float32) for n in "pmg"} | {"lr": np.float32(0.1)}
    compare(g, arrays)
    compare(g, arrays, quad=True)
    compare(g, arrays, fuse=False)


def test_a_split_update_reads_no_new_value():
    g = Graph()
    states = [g.state(f"s{k}", Type("f32", (40,))) for k in range(11)]
    total = states[0]
    for k, state in enumerate(states):
        total = ops.tanh(total + state * states[(k + 5) % 11])
        g.store(f"s{k}", total * 0.5 + state)
    groups = group_graph(g, WEBGPU, fuse=True)
    assert len(groups) > 2
    rng = np.random.default_rng(0)
    compare(g, {f"s{k}": rng.standard_normal(40).astype(np.float32) for k in range(11)})


def test_a_store_waits_for_every_reader_of_the_old_value():
    g = Graph()
    w = g.state("w", Type("f32", (6, 6)))
    flipped = ops.permute(w, (1, 0)) + 1.0
    g.store("w", w * 2.0 + flipped)
    g.output("old", ops.reduce_sum(w, axes=(0,)))
    fresh = Graph()
    fresh.store("a", fresh.load("x", Type("f32", (5,))) * 2.0)
    fresh.output("y", fresh.state("a", Type("f32", (5,))) + 1.0)
    array = np.arange(36, dtype=np.float32).reshape(6, 6)
    for fuse in (True, False):
        compare(g, {"w": array}, fuse=fuse)
        compare(fresh, {"x": array[0, :5], "a": array[1, :5]}, fuse=fuse)


def test_a_value_stored_twice_and_an_input_stored_are_copied():
    g = Graph()
    x = g.load("x", Type("f32", (70,)))
    y = ops.exp(x)
    g.store("a", y)
    g.store("b", y)
    g.store("c", x)
    g.store("d", g.const(3.0, "f32", (5,)))
    names = {"a": 70, "b": 70, "c": 70, "d": 5}
    arrays = {n: np.zeros(s, np.float32) for n, s in names.items()}
    want = np.linspace(-1, 1, 70).astype(np.float32)
    for name, size in names.items():
        g.state(name, Type("f32", (size,)))
    got = on_device(g, arrays | {"x": want})
    np.testing.assert_allclose(got["store:a"], np.exp(want), 1e-6)
    np.testing.assert_array_equal(got["store:a"], got["store:b"])
    np.testing.assert_array_equal(got["store:c"], want)
    np.testing.assert_array_equal(got["store:d"], np.full(5, 3, np.float32))


def test_random_bits_do_not_depend_on_width():
    g = Graph()
    bits = g.emit("philox", [], stream="dropout", offset=5, shape=(64, 36))[0]
    g.output("bits", bits)
    g.output("turned", ops.permute(bits, (1, 0)))
    arrays = {
        "rng.counter_lo": 0xFFFFFFFE, "rng.counter_hi": 7, "rng.dropout.key0": 123, "rng.dropout.key1": 0x9ABCDEF0,
    }  # fmt: skip
    wide, narrow = (on_device(g, arrays, quad=q) for q in (True, False))
    np.testing.assert_array_equal(wide["bits"], narrow["bits"])
    np.testing.assert_array_equal(wide["turned"], wide["bits"].T)
    assert len(np.unique(wide["bits"])) == 64 * 36


def test_f16():
    need_f16(WEBGPU)
    g = Graph()
    x = g.load("x", Type("f16", (33, 8)))
    y = ops.tanh(x) * x
    g.output("y", y)
    g.output("wide", ops.cast(y, "f32") * 2.0)
    g.output("sum", ops.reduce_sum(y, axes=(1,)))
    array = np.random.default_rng(0).standard_normal((33, 8)).astype(np.float16)
    for quad in (True, False):
        compare(g, {"x": array}, 4e-3, 4e-3, quad=quad)


def test_a_window_too_many_is_refused_by_name():
    g = Graph()
    x = g.load("x", Type("f32", (9, 1 << 18)))
    g.output("y", ops.permute(x, (1, 0)) * 2.0)
    (group,) = group_graph(g, MIB, fuse=True)
    with pytest.raises(DeviceError, match="storage bindings"):
        emit_group(group, MIB, ScalarTable())
