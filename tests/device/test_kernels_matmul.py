"""Matrix products on the device against NumPy in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernel_runner import MIB, TYPES, WEBGPU, need_f16, run

from scellis_core.errors import DeviceError
from scellis_core.lower.call import Epilogue
from scellis_core.lower.matmul import MatmulSpec, Strided, matmul_calls
from scellis_core.lower.tiles import CPU_FEATURE, GPU, Choice, Tile, choose
from scellis_core.lower.wgsl import Module

CPU = WEBGPU.with_(features=("shader-f16", CPU_FEATURE))
WIDE = Tile(64, 128, 16, 8, 8)
SMALL = Tile(16, 64, 32, 2, 4)


def array(rng, dtype, *shape):
    return rng.standard_normal(shape).astype(TYPES[dtype])


def product(spec: MatmulSpec, limits, choice=None, dtype="f32", epilogue=None, extra=None, ta=False, tb=False, seed=0):
    """Run a dense spec; returns (result, float64 product, names of the kernels)."""
    rng = np.random.default_rng(seed)
    a = array(rng, dtype, *spec.batch, *((spec.k, spec.m) if ta else (spec.m, spec.k)))
    b = array(rng, dtype, *spec.batch, *((spec.n, spec.k) if tb else (spec.k, spec.n)))
    out = np.full((*spec.batch, spec.m, spec.n), np.nan, TYPES[spec.out.dtype])
    if spec.accumulate:
        out = array(rng, spec.out.dtype, *out.shape)
    calls = matmul_calls(spec, limits, epilogue=epilogue, choice=choice)
    got = run(calls, {"a": a, "b": b, "out": out, **(extra or {})}, limits)["out"]
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    want = (wide_a.swapaxes(-1, -2) if ta else wide_a) @ (wide_b.swapaxes(-1, -2) if tb else wide_b)
    return got, want + (out if spec.accumulate else 0), [c.kernel.name for c in calls]


def close(got, want, k, dtype="f32"):
    scale = {"f32": 2e-6, "f16": 2e-3}[dtype]
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=scale, atol=scale * np.sqrt(k))


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize("limits", [WEBGPU, CPU], ids=["gpu", "cpu"])
@pytest.mark.parametrize("size", [(1, 1, 1), (33, 70, 45), (64, 36, 20)], ids=str)
def test_any_size_and_transpose(size, limits, ta, tb):
    m, n, k = size
    spec = MatmulSpec.dense(m, n, k, transpose_a=ta, transpose_b=tb)
    got, want, _ = product(spec, limits, ta=ta, tb=tb)
    close(got, want, k)


@pytest.mark.parametrize(
    ("tile", "size", "ta", "tb"),
    [
        (WIDE, (128, 128, 48), False, False),
        (WIDE, (65, 130, 33), False, True),
        (WIDE, (100, 136, 36), True, False),
        (replace(WIDE, wx=8), (64, 128, 20), True, True),
        (Tile(64, 128, 8, 8, 8, double=True), (70, 132, 40), False, False),
        (Tile(64, 64, 8, 4, 4, double=True), (64, 64, 8), False, True),
        (Tile(8, 128, 16, 2, 4), (5, 200, 50), False, False),
        (Tile(128, 8, 16, 4, 2), (200, 5, 50), True, False),
        (Tile(32, 64, 8, 8, 8, shared=False), (40, 70, 30), True, False),
    ],
    ids=str,
)
def test_tiles(tile, size, ta, tb):
    spec = MatmulSpec.dense(*size, transpose_a=ta, transpose_b=tb)
    got, want, _ = product(spec, WEBGPU, Choice(tile, 1), ta=ta, tb=tb)
    close(got, want, size[2])


@pytest.mark.parametrize("batch", [(3,), (2, 3)])
def test_batch(batch):
    got, want, _ = product(MatmulSpec.dense(17, 20, 12, batch, transpose_b=True), WEBGPU, tb=True)
    close(got, want, 12)


@pytest.mark.parametrize(("splits", "k"), [(3, 200), (4, 132), (64, 97)])
def test_split_sums_in_two_passes(splits, k):
    got, want, names = product(MatmulSpec.dense(20, 24, k, (2,)), WEBGPU, Choice(SMALL, splits))
    close(got, want, k)
    assert len(names) == 2
    again, _, _ = product(MatmulSpec.dense(20, 24, k, (2,)), WEBGPU, Choice(SMALL, splits))
    assert again.tobytes() == got.tobytes()


@pytest.mark.parametrize("splits", [1, 2])
def test_accumulate(splits):
    got, want, _ = product(MatmulSpec.dense(20, 28, 64, accumulate=True), WEBGPU, Choice(SMALL, splits))
    close(got, want, 64)


@pytest.mark.parametrize("out_dtype", ["f32", "f16"])
@pytest.mark.parametrize("size", [(24, 36, 40), (9, 7, 5)], ids=str)
def test_half_storage(size, out_dtype):
    need_f16(WEBGPU)
    got, want, _ = product(MatmulSpec.dense(*size, dtype="f16", out_dtype=out_dtype), WEBGPU, dtype="f16")
    assert got.dtype == TYPES[out_dtype]
    close(got, want, size[2], out_dtype)


def test_half_storage_sums_in_f32():
    need_f16(WEBGPU)
    spec = MatmulSpec.dense(2, 2, 4096, dtype="f16", out_dtype="f32")
    ones = {
        "a": np.ones((2, 4096), np.float16),
        "b": np.ones((4096, 2), np.float16),
        "out": np.zeros((2, 2), np.float32),
    }
    assert (run(matmul_calls(spec, WEBGPU), ones, WEBGPU)["out"] == 4096).all()


def fused(width_four: bool) -> Epilogue:
    """relu(acc + bias[col]) + residual[batch, row, col] for a [2, 18, 20] result."""

    def declare(m: Module) -> None:
        m.tensor("bias", "f32", 20, "read")
        m.tensor("residual", "f32", 2 * 18 * 20, "read")

    def emit(m: Module, batch: str, row: str, col: str, acc: str) -> tuple[list[str], str]:
        bias, residual = (next(x for x in m.mems if x.name == key) for key in ("bias", "residual"))
        lines = [f"let plus = {acc} + {bias.load(col)};", f"let spot = ({batch} * 18u + {row}) * 20u + {col};"]
        return [*lines, f"let kept = max(plus, 0.0) + {residual.load('spot')};"], "kept"

    def vector(m: Module, batch: str, row: str, col: str, acc: str) -> tuple[list[str], str]:
        lines = ["var four = vec4<f32>();"]
        for q in range(4):
            before, value = emit(m, batch, row, f"({col} + {q}u)", f"{acc}[{q}]")
            lines += ["{", *before, f"four[{q}] = {value};", "}"]
        return lines, "four"

    return Epilogue(emit, declare, vector if width_four else None)


@pytest.mark.parametrize("width_four", [False, True])
@pytest.mark.parametrize("splits", [1, 2])
def test_epilogue(width_four, splits):
    rng = np.random.default_rng(5)
    extra = {"bias": array(rng, "f32", 20), "residual": array(rng, "f32", 2, 18, 20)}
    spec = MatmulSpec.dense(18, 20, 64, (2,))
    got, want, _ = product(spec, WEBGPU, Choice(SMALL, splits), epilogue=fused(width_four), extra=extra)
    close(got, np.maximum(want + extra["bias"], 0) + extra["residual"], 64)


def test_heads_of_a_fused_projection_and_back():
    """Scores q k^T and values from slices of [B, T, 3, H, D]; the result lands in [B, T, H, D]."""
    b, t, h, d = 2, 10, 3, 8
    rng = np.random.default_rng(3)
    qkv = array(rng, "f32", b, t, 3, h, d)
    strides = (t * 3 * h * d, d)

    def part(i: int, rows: int, columns: int) -> Strided:
        return Strided("f32", qkv.size, (*strides, rows, columns), offset=i * h * d)

    step = 3 * h * d
    scores = MatmulSpec(t, t, d, part(0, step, 1), part(1, 1, step), MatmulSpec.dense(t, t, d, (b, h)).out, (b, h))
    s = run(matmul_calls(scores, WEBGPU), {"a": qkv, "b": qkv, "out": np.zeros((b, h, t, t), np.float32)}, WEBGPU)[
        "out"
    ]
    q, k, v = (qkv[:, :, i].transpose(0, 2, 1, 3).astype(np.float64) for i in range(3))
    close(s, q @ k.swapaxes(-1, -2), d)
    back = Strided("f32", b * t * h * d, (t * h * d, d, h * d, 1))
    mix = MatmulSpec(t, d, t, MatmulSpec.dense(t, t, d, (b, h)).out, part(2, step, 1), back, (b, h))
    y = run(matmul_calls(mix, WEBGPU), {"a": s, "b": qkv, "out": np.zeros((b, t, h, d), np.float32)}, WEBGPU)["out"]
    close(y, (s.astype(np.float64) @ v).transpose(0, 2, 1, 3), t)


def test_steps_over_rows_and_columns():
    """Operands and result that are every second row and column of larger arrays; what lies between is untouched."""
    rng = np.random.default_rng(4)
    a, b = array(rng, "f32", 20, 30), array(rng, "f32", 30, 26)
    spec = MatmulSpec(
        10, 13, 15, Strided("f32", 600, (60, 2)), Strided("f32", 780, (52, 2), 1), Strided("f32", 800, (80, 3), 2)
    )
    out = np.full((20, 40), 7, np.float32)
    got = run(matmul_calls(spec, WEBGPU), {"a": a, "b": b, "out": out}, WEBGPU)["out"]
    close(got[::2, 2:41:3], a[::2, ::2].astype(np.float64) @ b[::2, 1::2], 15)
    got[::2, 2:41:3] = 7
    assert (got == 7).all()


def test_repeated_operand():
    """A batch stride of 0 repeats a matrix."""
    rng = np.random.default_rng(6)
    a, b = array(rng, "f32", 3, 8, 12), array(rng, "f32", 12, 16)
    spec = MatmulSpec.dense(8, 16, 12, (3,))
    spec = replace(spec, b=Strided("f32", b.size, (0, 16, 1)))
    got = run(matmul_calls(spec, WEBGPU), {"a": a, "b": b, "out": np.zeros((3, 8, 16), np.float32)}, WEBGPU)["out"]
    close(got, a.astype(np.float64) @ b, 12)


@pytest.mark.parametrize(
    ("size", "ta", "tb"),
    [((300, 1024, 16), False, False), ((16, 12, 40_000), True, True), ((600, 1, 700), False, True)],
)
def test_operands_above_the_binding_cap(size, ta, tb):
    m, n, k = size
    spec = MatmulSpec.dense(m, n, k, transpose_a=ta, transpose_b=tb)
    got, want, names = product(spec, MIB, ta=ta, tb=tb)
    assert any(c.windows != (1, 1, 1) for c in matmul_calls(spec, MIB)), names
    close(got, want, k)


def test_more_bindings_than_the_stage_has_is_our_error():
    with pytest.raises(DeviceError, match="at most 8 storage bindings of 1048576 bytes"):
        matmul_calls(MatmulSpec.dense(2048, 2048, 2048), MIB)


def test_operand_past_its_buffer_is_refused():
    spec = MatmulSpec.dense(4, 4, 4)
    with pytest.raises(DeviceError, match="matmul operand a: expected indices below 15, got 15"):
        matmul_calls(replace(spec, a=Strided("f32", 15, (4, 1))), WEBGPU)


def test_more_tiles_than_one_grid_dimension():
    limits = WEBGPU.with_(max_compute_workgroups_per_dimension=9)
    spec = MatmulSpec.dense(70, 260, 8, (2,), accumulate=True)
    calls = matmul_calls(spec, limits, choice=Choice(SMALL, 1))
    assert max(calls[0].grid) <= 9
    got, want, _ = product(spec, limits, Choice(SMALL, 1))
    close(got, want, 8)


@pytest.mark.parametrize("size", [(4096, 4096, 4096, 1), (2048, 50304, 768, 1), (256, 256, 64, 128), (1, 768, 768, 1)])
def test_choice_is_within_webgpu_limits(size):
    for layouts in (("k", "x"), ("k", "k"), ("x", "x"), ("x", "k")):
        tile = choose(WEBGPU, size, layouts).tile
        pads = tile.pads(*tile.layouts(*layouts), WEBGPU)
        assert pads is not None
        assert tile.threads <= 256
    assert choose(WEBGPU, (4096, 4096, 4096, 1), ("k", "x")).tile == WIDE == GPU.tiles[0][0]
