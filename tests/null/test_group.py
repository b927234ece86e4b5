"""Which nodes share a kernel, as the text that `scellis inspect --level L1` prints; and the parts below it."""

from __future__ import annotations

import time

import pytest

from scellis_core import ops
from scellis_core.autodiff import gradients
from scellis_core.errors import DeviceError
from scellis_core.ir import Graph, Type
from scellis_core.lower.emit import emit_group
from scellis_core.lower.group import describe_groups, group_graph
from scellis_core.lower.index import (
    Code,
    broadcast_dims,
    lane,
    linear,
    permute_dims,
    segments,
    slice_dims,
    without_unused,
)
from scellis_core.lower.program import Limits
from scellis_core.lower.views import base_of, reduce_pattern, restride, strided_view
from scellis_core.lower.wgsl import Module, ScalarTable, workgroup_bytes

LIMITS = Limits()


def text(graph, *, fuse=True, limits=LIMITS):
    return describe_groups(group_graph(graph.prune(), limits, fuse=fuse)).splitlines()


def softmax():
    g = Graph()
    x = g.load("x", Type("f32", (6, 40)))
    g.output("y", ops.softmax(x, axis=-1))
    return g


def test_softmax_is_one_row_kernel():
    assert text(softmax()) == [
        "group 0 reduce rows=6 of 40: reduce_max+reduce_sum+div(x:f32[6, 40]) -> div:f32[6, 40]",
        "  3 ops fused; div kept: output y",
    ]


def test_unfused_is_one_kernel_an_op():
    lines = text(softmax(), fuse=False)
    assert [line.split(": ")[1].split("(")[0] for line in lines[::2]] == [
        "reduce_max",
        "sub",
        "exp",
        "reduce_sum",
        "div",
    ]


def test_layer_norm_after_a_product_with_residual():
    g = Graph()
    x, r = g.load("x", Type("f32", (200, 64))), g.load("r", Type("f32", (200, 32)))
    w, b = g.param("w", Type("f32", (32, 64))), g.param("b", Type("f32", (32,)))
    with g.at("attn.o"):
        h = ops.matmul(x, w, transpose_b=True) + b
    with g.at("add"):
        h = h + r
    with g.at("norm"):
        d = h - ops.mean(h, axes=(1,), keepdims=True)
        y = d * ops.rsqrt(ops.mean(ops.square(d), axes=(1,), keepdims=True) + 1e-5)
    g.output("h", h)
    g.output("y", y)
    assert text(g) == [
        "group 0 family 6400: matmul+add+add(x:f32[200, 64], w:f32[32, 64], b:f32[32], r:f32[200, 32]) -> "
        "add:f32[200, 32]  ; add",
        "  3 ops fused; add kept: output h",
        "group 1 reduce rows=200 of 32: reduce_sum+mul+reduce_sum+mul+add+rsqrt+1(add:f32[200, 32]) -> "
        "mul:f32[200, 32]  ; norm",
        "  7 ops fused; mul kept: output y",
    ]


def test_head_split_and_merge_are_strides():
    g = Graph()
    x = g.load("x", Type("f32", (2, 5, 12)))

    def heads(v):
        return ops.permute(ops.reshape(v, (2, 5, 3, 4)), (0, 2, 1, 3))

    scores = ops.matmul(heads(x), heads(g.load("z", Type("f32", (2, 5, 12)))), transpose_b=True)
    merged = ops.permute(ops.matmul(scores, heads(x)), (0, 2, 1, 3))
    g.output("y", ops.reshape(merged, (2, 5, 12)))
    assert text(g) == [
        "group 0 family 150: matmul(x:f32[2, 5, 12], z:f32[2, 5, 12]) -> matmul:f32[2, 3, 5, 5]",
        "  matmul kept: matmul",
        "group 1 family 120: matmul+permute(matmul:f32[2, 3, 5, 5], x:f32[2, 5, 12]) -> permute:f32[2, 5, 3, 4]",
        "  2 ops fused; permute kept: output y",
    ]


def test_a_value_of_two_kernels_is_kept_or_computed_again():
    g = Graph()
    x, y = g.load("x", Type("f32", (30000,))), g.load("y", Type("f32", (30000,)))
    cheap, dear = ops.tanh(x), x * y
    for k, value in enumerate((cheap, dear)):
        g.output(f"r{k}", ops.reduce_sum(value, axes=(0,)))
        g.output(f"t{k}", ops.permute(ops.reshape(value, (200, 150)), (1, 0)) + 1.0)
    found = "\n".join(text(g))
    assert "tanh kept" not in found
    assert "mul kept: used by 2 kernels" in found


def test_stores_in_place_and_the_order_of_readers():
    g = Graph("apply")
    p, m = g.state("p", Type("f32", (64,))), g.state("m", Type("f32", (64,)))
    new_m = m * 0.9 + g.state("g", Type("f32", (64,)))
    g.store("m", new_m)
    g.store("p", p - new_m * 0.1)
    (group,) = group_graph(g, LIMITS, fuse=True)
    assert sorted(group.aliases.values()) == ["in0", "in2"]
    assert sorted(name for _, name in group.stores) == ["m", "p"]

    g = Graph()
    w = g.state("w", Type("f32", (4, 4)))
    turned = ops.permute(w, (1, 0)) * 2.0
    g.store("w", w + turned)
    kinds = [(x.kind, [n for _, n in x.stores]) for x in group_graph(g, LIMITS, fuse=True)]
    assert kinds == [("pointwise", []), ("pointwise", ["w"])]


def test_the_binding_limit_splits_a_group():
    g = Graph()
    total = g.load("x0", Type("f32", (9,)))
    for k in range(1, 12):
        total = total * g.load(f"x{k}", Type("f32", (9,)))
    g.output("y", total)
    groups = group_graph(g, LIMITS, fuse=True)
    assert [len(x.inputs) for x in groups] == [7, 6]
    assert "the kernel was split at the device's storage-buffer limit" in groups[0].note
    wide = LIMITS.with_(max_storage_buffers_per_shader_stage=16)
    assert len(group_graph(g, wide, fuse=True)) == 1


def test_a_full_sum_takes_two_dispatches():
    g = Graph()
    x = g.load("x", Type("f32", (1 << 20,)))
    g.output("norm", ops.sqrt(ops.reduce_sum(ops.square(x), axes=(0,))))
    (group,) = group_graph(g, LIMITS, fuse=True)
    calls = emit_group(group, LIMITS, ScalarTable())
    assert [c.kernel.name for c in calls] == ["red_mul_reduce_sum_sqrt_pieces", "red_mul_reduce_sum_sqrt_merge"]
    assert calls[0].scratch == (("scratch0", "f32", 256),)
    assert calls[1].operands == ("out0", "scratch0")


def test_kernel_text_keeps_indices_linear():
    g = Graph()
    x, r = g.load("x", Type("f32", (4, 5))), g.load("r", Type("f32", (5,)))
    g.output("y", ops.reshape(x * r, (20,)))
    (group,) = group_graph(g, LIMITS, fuse=True)
    (call,) = emit_group(group, LIMITS, ScalarTable())
    assert call.kernel.wgsl.split("{\n", 1)[1] == (
        "  let gi = wid.x * 256u + lid.x;\n"
        "  if (gi < 20u) {\n"
        "    let v1 = in0[gi];\n"
        "    let ix2 = gi % 5u;\n"
        "    let v3 = in1[ix2];\n"
        "    let v4 = v1 * v3;\n"
        "    out0[gi] = v4;\n"
        "  }\n"
        "}\n"
    )


def test_index_arithmetic_folds():
    code = Code()
    i = code.index("i", 60)
    assert code.digits(linear(i, 60), (3, 4, 5))[2].text == code.mod(i, 5).text
    assert code.mul(code.mul(i, 3), 4).product == (i, 12)
    assert code.div(code.mul(i, 12), 4).product == (i, 3)
    assert code.mod(code.mul(i, 12), 4).const == 0
    assert code.mod(i, 60) is i
    assert code.div(i, 60).const == 0
    quad = lane(i, 2)
    assert code.mod(quad, 8).base is not None
    assert code.div(quad, 8).base is None
    assert code.add(code.mul(i, 8), quad).base is not None
    before = len(code.blocks[0])
    assert [ix.const for ix in code.digits(linear(i, 60), (3, 4, 5), (False, False, True))] == [0, 0, None]
    assert len(code.blocks[0]) == before


def test_merged_axes():
    assert segments((6, 4), (2, 3, 4)) == ((0, 1, 0, 2), (1, 2, 2, 3))
    assert broadcast_dims((4, 1, 1), (4, 2, 3)) == ((4, 6), (True, False))
    assert broadcast_dims((5,), (2, 3, 5)) == ((6, 5), (False, True))
    assert permute_dims((2, 3, 4, 5), (0, 2, 1, 3)) == ((2, 4, 3, 5), (0, 2, 1, 3))
    assert permute_dims((2, 3, 4), (1, 2, 0)) == ((12, 2), (1, 0))
    assert slice_dims((2, 3, 8), (0, 0, 2), (1, 1, 1), (2, 3, 4)) == ((6, 6, 0, 1), (4, 8, 2, 1))
    assert reduce_pattern((2, 3, 1, 4), (0, 1)) == ((6, True), (4, False))
    assert without_unused("  let a = 1u;\n  let b = 2u;\n  x[b] = 1.0;") == "  let b = 2u;\n  x[b] = 1.0;"


@pytest.mark.parametrize(
    ("shape", "strides", "target", "want"),
    [
        ((2, 3, 4), (12, 4, 1), (6, 4), (4, 1)),
        ((2, 3, 4), (12, 1, 3), (6, 4), None),
        ((6, 4), (8, 1), (2, 3, 4), (24, 8, 1)),
        ((3, 4), (0, 1), (12,), None),
        ((3, 4), (0, 0), (12,), (0,)),
        ((1, 4), (9, 1), (4, 1), (1, 0)),
    ],
)
def test_restride(shape, strides, target, want):
    assert restride(shape, strides, target) == want


def test_strided_views():
    g = Graph()
    qkv = g.load("qkv", Type("f32", (2, 5, 36)))
    part = ops.slice(qkv, starts=(0, 0, 12), stops=(2, 5, 24))
    heads = ops.permute(ops.reshape(part, (2, 5, 3, 4)), (0, 2, 1, 3))
    found = strided_view(heads)
    assert found is not None
    assert (found.base, found.offset, found.strides) == (qkv, 12, (180, 4, 36, 1))
    assert strided_view(ops.reshape(heads, (30, 4))) is None
    assert base_of(ops.reshape(ops.reshape(qkv, (10, 36)), (360,))) is qkv


def decoder(layers, width=64):
    """A stack of attention-like blocks with their gradient: about 230 nodes a layer."""
    g = Graph()
    x = g.load("x", Type("f32", (8, 16, width)))
    params = []

    def linear_(v, name, rows=width, columns=width):
        w, b = g.param(f"{name}.w", Type("f32", (rows, columns))), g.param(f"{name}.b", Type("f32", (rows,)))
        params.extend([w, b])
        return ops.matmul(v, w, transpose_b=True) + b

    h = x
    for k in range(layers):
        d = h - ops.mean(h, axes=(2,), keepdims=True)
        n = d * ops.rsqrt(ops.mean(ops.square(d), axes=(2,), keepdims=True) + 1e-5)
        q, key, v = (
            ops.permute(ops.reshape(linear_(n, f"{k}.{c}"), (8, 16, 4, width // 4)), (0, 2, 1, 3)) for c in "qkv"
        )
        p = ops.softmax(ops.matmul(q, key, transpose_b=True) * 0.25, axis=-1)
        mixed = ops.reshape(ops.permute(ops.matmul(p, v), (0, 2, 1, 3)), (8, 16, width))
        h = h + linear_(mixed, f"{k}.o")
        h = h + linear_(ops.gelu(linear_(h, f"{k}.up", 4 * width)), f"{k}.down", width, 4 * width)
    for name, value in gradients(g, ops.reduce_sum(h * h), params).items():
        g.store(f"grad:{name.node.attrs['name']}", value)
    return g.prune()


def test_sums_that_share_nothing_are_merged_up_to_a_few_whatever_the_device_binds():
    g = Graph()
    for k in range(40):
        x = g.load(f"x{k}", Type("f32", (4096, 512)))
        g.store(f"grad:{k}", ops.reduce_sum(x, axes=(0,)))
    wide = LIMITS.with_(max_storage_buffers_per_shader_stage=1000)
    groups = group_graph(g.prune(), wide, fuse=True)
    assert [len(group.outputs) for group in groups] == [8] * 5
    for group in groups:
        emit_group(group, wide, ScalarTable())


def test_a_part_of_a_split_group_writes_values_of_its_own_size_only():
    g = Graph()
    x, seed = g.load("x", Type("f32", (3, 4))), g.load("seed", Type("f32", (2, 2)))
    rows = [ops.reduce_max(ops.slice(x, (k, 0), (k + 2, 4)), axes=0, keepdims=True) for k in range(2)]
    tall = ops.concat(rows, axis=0)
    columns = [ops.reduce_max(ops.slice(tall, (0, k), (2, k + 2)), axes=1, keepdims=True) for k in (0, 2)]
    loss = ops.reduce_sum(ops.concat(columns, axis=1) * seed)
    g.output("grad", gradients(g, loss, [x])[x])
    for group in group_graph(g.prune(), LIMITS, fuse=True):
        assert group.kind == "reduce" or len({v.type.numel for v in group.outputs}) == 1
        emit_group(group, LIMITS, ScalarTable())


def test_workgroup_memory_is_counted_and_has_a_limit():
    tiles = "var<workgroup> tile_a: array<array<array<vec4<f32>, 32>, 4>, 16>;\nvar<workgroup> s: array<u32, 100>;"
    assert workgroup_bytes(tiles) == 32 * 4 * 16 * 16 + 400
    module = Module("wide", LIMITS, ScalarTable())
    with pytest.raises(DeviceError) as caught:
        module.build("", "var<workgroup> s: array<f32, 4097>;")
    assert str(caught.value) == (
        "kernel wide: expected at most 16384 bytes of workgroup memory, got 16388; try smaller rows or tiles"
    )


def test_layers_share_kernels_and_grouping_is_quick():
    g = decoder(6)
    assert len(g.nodes) > 1000
    best = 1e9
    for _ in range(3):
        started = time.perf_counter()
        groups = group_graph(g, LIMITS, fuse=True)
        scalars = ScalarTable()
        kernels = {c.kernel.key for x in groups for c in emit_group(x, LIMITS, scalars)}
        best = min(best, time.perf_counter() - started)
    assert len(groups) < 40 * 6
    assert len(kernels) < 60
    assert best < 1.0  # 0.1 s on an idle machine
