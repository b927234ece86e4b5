"""scatter_add on the device: bit for bit the f32 sum in ascending source position."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runner import MIB, TYPES, WEBGPU, need_f16, run

from scellis_core.lower.scatter import ScatterSpec, scatter_add_calls


def reference(spec, idx, src, out):
    want = out.astype(np.float32) if spec.accumulate else np.zeros(out.shape, np.float32)
    for i, row in enumerate(idx):
        if 0 <= row < spec.rows:
            want[row] += src[i].astype(np.float32)
    return want.astype(out.dtype)


def check(spec: ScatterSpec, idx, limits=WEBGPU):
    rng = np.random.default_rng(0)
    src = rng.standard_normal((spec.n, spec.width)).astype(TYPES[spec.src_dtype])
    out = rng.standard_normal((spec.rows, spec.width)).astype(TYPES[spec.out_dtype])
    calls = scatter_add_calls(spec, limits)
    got = run(calls, {"idx": idx, "src": src, "out": out}, limits)["out"]
    np.testing.assert_array_equal(got, reference(spec, idx, src, out))
    return calls


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(("n", "width", "rows"), [(1, 1, 1), (33, 7, 300), (100, 8, 20), (257, 4, 3), (1000, 12, 64)])
def test_sizes(n, width, rows, accumulate):
    idx = np.random.default_rng(n).integers(0, rows, n).astype(np.int32)
    check(ScatterSpec(n, width, rows, accumulate=accumulate), idx)


def test_all_in_one_row():
    check(ScatterSpec(300, 8, 5), np.full(300, 4, np.int32))


def test_indices_outside_are_left_out():
    idx = np.array([0, -1, 3, 4, 2**31 - 1, -(2**31), 3], np.int32)
    check(ScatterSpec(7, 4, 4), idx)


def test_unsigned_indices():
    check(ScatterSpec(5, 4, 4, idx_dtype="u32"), np.array([0, 3, 2**32 - 1, 3, 4], np.uint32))


@pytest.mark.parametrize("out_dtype", ["f16", "f32"])
@pytest.mark.parametrize("width", [3, 8])
def test_half_storage(width, out_dtype):
    need_f16(WEBGPU)
    idx = np.random.default_rng(1).integers(0, 6, 40).astype(np.int32)
    check(ScatterSpec(40, width, 6, src_dtype="f16", out_dtype=out_dtype), idx)


def test_result_above_the_binding_cap():
    idx = np.random.default_rng(2).integers(0, 4000, 50).astype(np.int32)
    calls = check(ScatterSpec(50, 160, 4000), idx, MIB)
    assert max(calls[1].windows) == 3
