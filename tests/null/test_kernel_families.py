"""The text that the matrix kernel families write: what can be seen without a device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scellis_core.lower.conv import ConvSpec, conv2d_grad_weight_calls
from scellis_core.lower.matmul import MatmulSpec, Strided, matmul_calls
from scellis_core.lower.program import Limits, Range
from scellis_core.lower.scatter import ScatterSpec, scatter_add_calls
from scellis_core.lower.tiles import CPU_FEATURE, Tile, choose

LIMITS = Limits()


@pytest.mark.parametrize(("ta", "tb"), [(False, False), (False, True), (True, False), (True, True)])
def test_aligned_operands_of_any_transpose_load_whole_vec4s(ta, tb):
    (call,) = matmul_calls(MatmulSpec.dense(4096, 4096, 4096, transpose_a=ta, transpose_b=tb), LIMITS)
    assert [b.elem for b in call.kernel.bindings[:2]] == ["vec4<f32>", "vec4<f32>"]
    assert call.operands == ("a", "b", "out")


def test_unaligned_operands_load_one_at_a_time():
    spec = MatmulSpec.dense(64, 64, 64)
    for place in (Strided("f32", 64 * 64 + 1, (64, 1), 1), Strided("f32", 64 * 65, (65, 1))):
        call = matmul_calls(replace(spec, a=place), LIMITS)[0]
        assert [b.elem for b in call.kernel.bindings[:2]] == ["f32", "vec4<f32>"]


def test_text_is_the_same_every_time():
    spec = MatmulSpec.dense(70, 33, 5000, (3,))
    first, second = (matmul_calls(spec, LIMITS) for _ in range(2))
    assert [c.kernel.key for c in first] == [c.kernel.key for c in second]
    assert [c.grid for c in first] == [c.grid for c in second]


def test_long_sums_over_small_results_are_split_with_declared_scratch():
    partial, total = conv2d_grad_weight_calls(ConvSpec(64, 3, 32, 32, 16, 3, 3), LIMITS)
    ((key, dtype, numel),) = partial.scratch
    assert (key, dtype) == ("ws", "f32")
    assert numel % (16 * 27) == 0
    assert partial.writes == ("ws",)
    assert total.operands == ("ws", "out")


def test_choice_follows_the_device():
    size = (2048, 2048, 2048, 1)
    assert choose(LIMITS, size, ("k", "x")).tile == Tile(64, 128, 16, 8, 8)
    weak = LIMITS.with_(max_compute_invocations_per_workgroup=64, max_compute_workgroup_storage_size=8192)
    assert choose(weak, size, ("k", "x")).tile.threads <= 64
    assert not choose(LIMITS.with_(features=(CPU_FEATURE,)), size, ("k", "x")).tile.shared


def test_windows_bind_consecutive_ranges():
    limits = LIMITS.with_(max_storage_buffer_binding_size=1 << 20)
    _, call = scatter_add_calls(ScatterSpec(50, 160, 4000), limits)
    size = 4 * 160 * 4000
    ranges = {key: Range(key, 256, 4 * 50 * 160) for key in call.operands} | {"out": Range("out", 512, size)}
    binds = call.binds(ranges, limits)
    assert len(binds) == len(call.kernel.bindings) == 6
    assert [(r.offset, r.size) for r in binds[-3:]] == [
        (512, 1 << 20),
        (512 + (1 << 20), 1 << 20),
        (512 + (2 << 20), size - (2 << 20)),
    ]
