"""Convolutions and pooling on the device against NumPy in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernel_runner import MIB, TYPES, WEBGPU, need_f16, run

from scellis_core.errors import DeviceError
from scellis_core.lower.call import Epilogue
from scellis_core.lower.conv import ConvSpec, conv2d_calls, conv2d_grad_input_calls, conv2d_grad_weight_calls
from scellis_core.lower.pool import (
    PoolSpec,
    avg_pool2d_calls,
    avg_pool2d_grad_calls,
    max_pool2d_calls,
    max_pool2d_grad_calls,
)
from scellis_core.lower.tiles import CPU_FEATURE, Choice, Tile

CPU = WEBGPU.with_(features=("shader-f16", CPU_FEATURE))
SPECS = {
    "same": ConvSpec(2, 3, 9, 8, 5, 3, 3, padding=(1, 1, 1, 1)),
    "uneven": ConvSpec(2, 4, 9, 7, 6, 3, 2, (2, 1), (0, 1, 2, 0), (1, 2), 2),
    "depthwise": ConvSpec(3, 8, 8, 8, 8, 3, 3, (2, 2), (1, 1, 1, 1), groups=8),
    "pointwise": ConvSpec(2, 8, 4, 4, 16, 1, 1),
    "one": ConvSpec(1, 1, 1, 1, 1, 1, 1),
    "left out": ConvSpec(1, 2, 8, 8, 3, 2, 2, (3, 3)),
}


def taps(s: ConvSpec, padded):
    """(i, j, the slice of the padded image that meets tap i, j)."""
    for i in range(s.kh):
        for j in range(s.kw):
            top, left = i * s.dilation[0], j * s.dilation[1]
            rows = slice(top, top + (s.oh - 1) * s.stride[0] + 1, s.stride[0])
            columns = slice(left, left + (s.ow - 1) * s.stride[1] + 1, s.stride[1])
            yield i, j, padded[:, :, rows, columns]


def pad(s, x):
    return np.pad(x.astype(np.float64), ((0, 0), (0, 0), s.padding[:2], s.padding[2:]))


def reference(s: ConvSpec, x, w, g):
    """Forward result, image gradient and weight gradient."""
    padded, y, dw = pad(s, x), np.zeros((s.n, s.o, s.oh, s.ow)), np.zeros(w.shape)
    dx = np.zeros_like(padded)
    for group in range(s.groups):
        c, o = slice(group * s.cg, (group + 1) * s.cg), slice(group * s.og, (group + 1) * s.og)
        for (i, j, part), (_, _, back) in zip(taps(s, padded), taps(s, dx), strict=True):
            y[:, o] += np.einsum("nchw,oc->nohw", part[:, c], w[o, :, i, j].astype(np.float64))
            dw[o, :, i, j] = np.einsum("nohw,nchw->oc", g[:, o].astype(np.float64), part[:, c])
            back[:, c] += np.einsum("nohw,oc->nchw", g[:, o].astype(np.float64), w[o, :, i, j].astype(np.float64))
    top, _, left, _ = s.padding
    return y, dx[:, :, top : top + s.h, left : left + s.w], dw


def operands(s: ConvSpec, dtype="f32", seed=0):
    rng = np.random.default_rng(seed)
    shapes = ((s.n, s.c, s.h, s.w), (s.o, s.cg, s.kh, s.kw), (s.n, s.o, s.oh, s.ow))
    return [rng.standard_normal(shape).astype(TYPES[dtype]) for shape in shapes]


@pytest.mark.parametrize("limits", [WEBGPU, CPU], ids=["gpu", "cpu"])
@pytest.mark.parametrize("name", SPECS)
def test_conv2d_and_its_gradients(name, limits):
    s = SPECS[name]
    x, w, g = operands(s)
    y, dx, dw = reference(s, x, w, g)
    for calls, arrays, want in (
        (conv2d_calls(s, limits), {"a": w, "b": x, "out": g * np.nan}, y),
        (conv2d_grad_input_calls(s, limits), {"a": w, "b": g, "out": x * np.nan}, dx),
        (conv2d_grad_weight_calls(s, limits), {"a": g, "b": x, "out": w * np.nan}, dw),
    ):
        got = run(calls, arrays, limits)["out"]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=3e-5, err_msg=calls[0].op)


def test_weight_gradient_splits_and_adds():
    s = replace(SPECS["same"], n=6)
    x, w, g = operands(s)
    _, _, dw = reference(s, x, w, g)
    calls = conv2d_grad_weight_calls(s, WEBGPU, choice=Choice(Tile(16, 64, 32, 2, 4), 4), accumulate=True)
    got = run(calls, {"a": g, "b": x, "out": w}, WEBGPU)["out"]
    assert len(calls) == 2
    np.testing.assert_allclose(got, dw + w, rtol=1e-5, atol=5e-5)


def test_bias_and_relu_in_the_epilogue():
    s = SPECS["uneven"]
    x, w, g = operands(s)
    bias = np.linspace(-1, 1, s.o).astype(np.float32)

    def emit(m, batch, row, col, acc):
        mem = next(t for t in m.mems if t.name == "bias")
        return [f"let v = {acc} + {mem.load(f'{batch} * {s.og}u + {row}')};"], "max(v, 0.0)"

    epilogue = Epilogue(emit, lambda m: m.tensor("bias", "f32", s.o, "read"))
    calls = conv2d_calls(s, WEBGPU, epilogue=epilogue)
    got = run(calls, {"a": w, "b": x, "bias": bias, "out": g}, WEBGPU)["out"]
    want = np.maximum(reference(s, x, w, g)[0] + bias[:, None, None], 0)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=3e-5)


def test_half_storage():
    need_f16(WEBGPU)
    s = replace(SPECS["same"], x_dtype="f16", w_dtype="f16", y_dtype="f16")
    x, w, g = operands(s, "f16")
    got = run(conv2d_calls(s, WEBGPU), {"a": w, "b": x, "out": g}, WEBGPU)["out"]
    np.testing.assert_allclose(got.astype(np.float64), reference(s, x, w, g)[0], rtol=2e-3, atol=1e-2)


def test_image_above_the_binding_cap():
    s = ConvSpec(5, 4, 150, 150, 2, 2, 2, (2, 2))
    x, w, g = operands(s)
    calls = conv2d_calls(s, MIB)
    assert calls[0].windows == (1, 2, 1)
    got = run(calls, {"a": w, "b": x, "out": g}, MIB)["out"]
    np.testing.assert_allclose(got, reference(s, x, w, g)[0], rtol=1e-5, atol=3e-5)


def test_conv_refusals():
    with pytest.raises(DeviceError, match="channels divisible by groups"):
        conv2d_calls(ConvSpec(1, 3, 4, 4, 4, 1, 1, groups=2), WEBGPU)
    with pytest.raises(DeviceError, match="a window that fits"):
        conv2d_calls(ConvSpec(1, 1, 2, 2, 1, 3, 3), WEBGPU)


POOLS = {
    "halve": PoolSpec(6, 8, 8, (2, 2), (2, 2)),
    "overlap": PoolSpec(4, 7, 9, (3, 3), (2, 2), (1, 1, 1, 1)),
    "uneven": PoolSpec(3, 5, 7, (2, 3), (1, 2), (1, 0, 0, 2), count_include_pad=False),
    "all": PoolSpec(5, 4, 3, (4, 3), (1, 1)),
    "gaps": PoolSpec(2, 9, 9, (2, 2), (3, 3)),
}


def windows(p: PoolSpec):
    """(oh, ow, rows, columns) with the parts of each window inside the plane."""
    for oh in range(p.oh):
        for ow in range(p.ow):
            top, left = oh * p.stride[0] - p.padding[0], ow * p.stride[1] - p.padding[2]
            yield (
                oh,
                ow,
                slice(max(top, 0), min(top + p.window[0], p.h)),
                slice(max(left, 0), min(left + p.window[1], p.w)),
            )


@pytest.mark.parametrize("name", POOLS)
def test_max_pool_and_gradient(name):
    p = POOLS[name]
    rng = np.random.default_rng(1)
    x = rng.integers(-2, 3, (p.planes, p.h, p.w)).astype(np.float32)  # many ties
    g = rng.standard_normal((p.planes, p.oh, p.ow)).astype(np.float32)
    want, dx = np.zeros_like(g), np.zeros(x.shape)
    for oh, ow, rows, columns in windows(p):
        part = x[:, rows, columns].reshape(p.planes, -1)
        place = part.argmax(axis=1)
        want[:, oh, ow] = part[np.arange(p.planes), place]
        wide = columns.stop - columns.start
        dx[np.arange(p.planes), rows.start + place // wide, columns.start + place % wide] += g[:, oh, ow]
    got = run(max_pool2d_calls(p, WEBGPU), {"x": x, "out": g * np.nan}, WEBGPU)["out"]
    np.testing.assert_array_equal(got, want)
    got = run(max_pool2d_grad_calls(p, WEBGPU), {"x": x, "g": g, "out": x * np.nan}, WEBGPU)["out"]
    np.testing.assert_allclose(got, dx, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", POOLS)
def test_avg_pool_and_gradient(name):
    p = POOLS[name]
    rng = np.random.default_rng(2)
    x = rng.standard_normal((p.planes, p.h, p.w)).astype(np.float32)
    g = rng.standard_normal((p.planes, p.oh, p.ow)).astype(np.float32)
    want, dx = np.zeros(g.shape), np.zeros(x.shape)
    for oh, ow, rows, columns in windows(p):
        part = x[:, rows, columns].astype(np.float64)
        count = p.window[0] * p.window[1] if p.count_include_pad else part[0].size
        want[:, oh, ow] = part.sum(axis=(1, 2)) / count
        dx[:, rows, columns] += (g[:, oh, ow] / count)[:, None, None]
    got = run(avg_pool2d_calls(p, WEBGPU), {"x": x, "out": g * np.nan}, WEBGPU)["out"]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    calls = avg_pool2d_grad_calls(replace(p, accumulate=True), WEBGPU)
    got = run(calls, {"g": g, "out": x}, WEBGPU)["out"]
    np.testing.assert_allclose(got, dx + x, rtol=1e-5, atol=1e-6)


def test_max_pool_of_nan_and_minus_infinity():
    x = np.array([[[1, np.nan, -np.inf, -np.inf], [3, 2, -np.inf, -np.inf]]], np.float32)
    p = PoolSpec(1, 2, 4, (2, 2), (2, 2))
    got = run(max_pool2d_calls(p, WEBGPU), {"x": x, "out": np.zeros((1, 1, 2), np.float32)}, WEBGPU)["out"]
    assert np.isnan(got[0, 0, 0])
    assert got[0, 0, 1] == -np.inf


def test_padding_as_large_as_the_window_is_refused():
    with pytest.raises(DeviceError, match="padding smaller than the window"):
        max_pool2d_calls(PoolSpec(1, 4, 4, (2, 2), (1, 1), (2, 0, 0, 0)), WEBGPU)
