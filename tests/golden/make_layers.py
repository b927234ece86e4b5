"""Writes layers.npz: layers in PyTorch (float64, CPU), forward and backward, on odd shapes.

Run by hand in an environment that has PyTorch (the file was made with 2.13.0): ``python tests/golden/make_layers.py``.

Key ``cases`` holds a JSON list, one object a case: ``name``, ``block``, ``params``, ``inputs`` (ports in order) and
``weights``. Arrays are ``<name>/<input or weight>``, ``<name>/seed``, ``<name>/out`` and ``<name>/grad:<...>``;
gradients are of ``sum(out * seed)``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (its name in the field)

RNG = np.random.default_rng(7)
CASES: list[dict[str, Any]] = []
ARRAYS: dict[str, np.ndarray] = {}


def draw(*shape: int, scale: float = 1.0) -> Tensor:
    """Normal draws rounded to eight bits after the point, so that the file compresses and f32 holds them."""
    return torch.from_numpy(np.round(RNG.normal(size=shape) * scale * 256) / 256)


def case(
    name: str,
    block: str,
    params: dict[str, Any],
    inputs: dict[str, Tensor],
    weights: dict[str, Tensor],
    fn: Callable[..., Tensor],
) -> None:
    """Record one case; ``fn`` takes inputs and weights by name."""
    given = {k: v.clone().requires_grad_(v.is_floating_point()) for k, v in (inputs | weights).items()}
    out = fn(**given)
    seed = draw(*out.shape)
    wanted = [k for k, v in given.items() if v.requires_grad]
    grads = torch.autograd.grad((out * seed).sum(), [given[k] for k in wanted])
    CASES.append(
        {"name": name, "block": f"layer/{block}@1", "params": params, "inputs": list(inputs), "weights": list(weights)}
    )
    for key, value in {**given, "seed": seed, "out": out}.items():
        ARRAYS[f"{name}/{key}"] = value.detach().numpy()
    for key, value in zip(wanted, grads, strict=True):
        ARRAYS[f"{name}/grad:{key}"] = value.numpy()


def activations() -> None:
    """Element-wise functions, with values far out and at zero."""
    edge = torch.tensor(
        [[0.0, -0.0, 1.0, -1.0], [30.0, -30.0, 3.0, -3.0], [88.0, -88.0, 6.5, -6.5]], dtype=torch.float64
    )
    for shape in ((3, 5), (1, 1), (2, 3, 7)):
        x, tag = draw(*shape, scale=2.0), "x".join(map(str, shape))
        one = {"x": x}
        case(f"leaky_relu_{tag}", "leaky_relu", {"slope": 0.125}, one, {}, lambda x: F.leaky_relu(x, 0.125))
        case(f"elu_{tag}", "elu", {"alpha": 0.75}, one, {}, lambda x: F.elu(x, 0.75))
        case(f"selu_{tag}", "selu", {}, one, {}, lambda x: F.selu(x))
        case(f"mish_{tag}", "mish", {}, one, {}, lambda x: F.mish(x))
        case(f"hardswish_{tag}", "hardswish", {}, one, {}, lambda x: F.hardswish(x))
        beta = {"beta": 2.0}
        case(f"softplus_{tag}", "softplus", beta, one, {}, lambda x: torch.logaddexp(2 * x, torch.zeros_like(x)) / 2)
        weight = {"weight": draw(1)}
        case(f"prelu_{tag}", "prelu", {}, one, weight, lambda x, weight: F.prelu(x, weight))
        by = {"weight": draw(shape[1])}
        case(f"prelu_by_{tag}", "prelu", {"by_channel": True}, one, by, lambda x, weight: F.prelu(x, weight))
    for name, fn in (("elu", F.elu), ("selu", F.selu), ("mish", F.mish), ("hardswish", F.hardswish)):
        case(f"{name}_edge", name, {}, {"x": edge}, {}, lambda x, fn=fn: fn(x))
    for shape in ((3, 6), (2, 3, 10), (5, 2)):
        x, tag = {"x": draw(*shape, scale=2.0)}, "x".join(map(str, shape))
        case(f"glu_{tag}", "glu", {}, x, {}, lambda x: F.glu(x))
        case(f"swiglu_{tag}", "swiglu", {}, x, {}, lambda x: x.chunk(2, -1)[0] * F.silu(x.chunk(2, -1)[1]))
        case(f"geglu_{tag}", "geglu", {}, x, {}, lambda x: x.chunk(2, -1)[0] * F.gelu(x.chunk(2, -1)[1]))
        tanh = {"approximate": "tanh"}
        case(
            f"geglu_tanh_{tag}", "geglu", tanh, x, {},
            lambda x: x.chunk(2, -1)[0] * F.gelu(x.chunk(2, -1)[1], approximate="tanh"),
        )  # fmt: skip
    case("multiply", "multiply", {}, {"a": draw(3, 5), "b": draw(3, 5)}, {}, lambda a, b: a * b)


def norms() -> None:
    """Group and instance normalisation."""
    for shape, groups in (((2, 6, 5), 3), ((3, 4, 3, 5), 2), ((1, 5, 7, 1), 5), ((2, 3, 4, 4), 1)):
        x = {"x": draw(*shape, scale=2.0) + 0.5}
        both = {"weight": draw(shape[1]), "bias": draw(shape[1])}
        tag = "x".join(map(str, shape))
        case(
            f"group_norm_{tag}", "group_norm", {"groups": groups}, x, both,
            lambda x, weight, bias, groups=groups: F.group_norm(x, groups, weight, bias),
        )  # fmt: skip
        case(f"instance_norm_{tag}", "instance_norm", {}, x, {}, lambda x: F.instance_norm(x))
        case(
            f"instance_norm_affine_{tag}", "instance_norm", {"affine": True}, x, both,
            lambda x, weight, bias: F.instance_norm(x, weight=weight, bias=bias),
        )  # fmt: skip


def sizes() -> None:
    """Padding, enlarging and pooling to a size."""
    for shape in ((2, 3, 5, 7), (1, 1, 3, 4)):
        apart = RNG.permutation(math.prod(shape)).reshape(shape) - 7.0  # no two equal, so that a maximum is one
        x, tag = {"x": torch.from_numpy(apart)}, "x".join(map(str, shape))
        for mode in ("constant", "replicate", "reflect"):
            value = {"value": 0.5} if mode == "constant" else {}
            extra = (0.5,) if mode == "constant" else ()
            sides_of = [[1, 2], [0, 3]] if mode != "reflect" else [[2, 1], [1, 2]]
            flat = (*sides_of[1], *sides_of[0])
            case(
                f"pad_{mode}_{tag}", "pad", {"sides": sides_of, "mode": mode, **value}, x, {},
                lambda x, mode=mode, flat=flat, extra=extra: F.pad(x, flat, mode, *extra),
            )  # fmt: skip
        for factor in (2, 3):
            for mode in ("nearest", "bilinear"):
                how = {"align_corners": False} if mode == "bilinear" else {}
                case(
                    f"upsample_{mode}{factor}_{tag}", "upsample", {"factor": factor, "mode": mode}, x, {},
                    lambda x, factor=factor, mode=mode, how=how: F.interpolate(
                        x, scale_factor=factor, mode=mode, **how
                    ),
                )  # fmt: skip
        case(f"global_mean_{tag}", "global_pool", {}, x, {}, lambda x: x.mean((2, 3)))
        case(f"global_max_{tag}", "global_pool", {"mode": "max"}, x, {}, lambda x: x.amax((2, 3)))
        for size in ((2, 3), (1, 1), (3, 4), (2, 2)):
            case(
                f"adaptive_mean{size[0]}{size[1]}_{tag}", "adaptive_pool2d", {"size": list(size)}, x, {},
                lambda x, size=size: F.adaptive_avg_pool2d(x, size),
            )  # fmt: skip
            case(
                f"adaptive_max{size[0]}{size[1]}_{tag}", "adaptive_pool2d", {"size": list(size), "mode": "max"}, x, {},
                lambda x, size=size: F.adaptive_max_pool2d(x, size),
            )  # fmt: skip


def convolutions() -> None:
    """Convolutions over one, two and three sides, depthwise and transposed."""
    for n, (channels, filters, length, how) in enumerate(
        [
            (3, 4, 9, {}),
            (4, 6, 11, {"kernel": 4, "stride": 2, "padding": 2, "groups": 2}),
            (1, 1, 1, {"kernel": 1, "bias": False}),
            (2, 3, 8, {"kernel": 3, "dilation": 2, "padding": "causal"}),
            (2, 3, 7, {"kernel": 3, "padding": "same"}),
        ]
    ):
        kernel, groups = how.get("kernel", 3), how.get("groups", 1)
        weights = {"weight": draw(filters, channels // groups, kernel)}
        if how.get("bias", True):
            weights["bias"] = draw(filters)

        def conv1d(
            x: Tensor, weight: Tensor, bias: Tensor | None = None, how: Any = how, kernel: int = kernel
        ) -> Tensor:
            padding, dilation = how.get("padding", 0), how.get("dilation", 1)
            if padding == "causal":
                x, padding = F.pad(x, (dilation * (kernel - 1), 0)), 0
            return F.conv1d(x, weight, bias, how.get("stride", 1), padding, dilation, how.get("groups", 1))

        case(f"conv1d_{n}", "conv1d", {"filters": filters, **how}, {"x": draw(2, channels, length)}, weights, conv1d)
    for n, (shape, filters, how) in enumerate(
        [
            ((2, 3, 4, 5, 6), 4, {}),
            ((1, 2, 5, 4, 3), 3, {"kernel": [3, 2, 1], "stride": [2, 1, 2], "padding": [1, 0, 1]}),
        ]
    ):
        kernel = how.get("kernel", [3, 3, 3])
        weights = {"weight": draw(filters, shape[1], *kernel), "bias": draw(filters)}
        case(
            f"conv3d_{n}", "conv3d", {"filters": filters, **how}, {"x": draw(*shape)}, weights,
            lambda x, weight, bias, how=how: F.conv3d(x, weight, bias, how.get("stride", 1), how.get("padding", 0)),
        )  # fmt: skip
    for n, (shape, how) in enumerate(
        [((2, 3, 6, 5), {}), ((1, 4, 7, 7), {"multiplier": 2, "kernel": [3, 2], "stride": 2, "padding": 1})]
    ):
        times, kernel = how.get("multiplier", 1), how.get("kernel", [3, 3])
        weights = {"weight": draw(shape[1] * times, 1, *kernel), "bias": draw(shape[1] * times)}
        case(
            f"depthwise_{n}", "depthwise_conv2d", how, {"x": draw(*shape)}, weights,
            lambda x, weight, bias, how=how: F.conv2d(
                x, weight, bias, how.get("stride", 1), how.get("padding", 0), 1, x.shape[1]
            ),
        )  # fmt: skip
    for n, (shape, filters, how) in enumerate(
        [
            ((2, 3, 4, 5), 4, {}),
            ((1, 4, 3, 3), 6, {"kernel": 3, "stride": 2, "padding": 1, "output_padding": 1, "groups": 2}),
            ((2, 1, 5, 1), 2, {"kernel": [4, 1], "stride": [3, 1], "bias": False}),
        ]
    ):
        kernel, groups = how.get("kernel", 2), how.get("groups", 1)
        kernel = [kernel, kernel] if isinstance(kernel, int) else kernel
        weights = {"weight": draw(shape[1], filters // groups, *kernel)}
        if how.get("bias", True):
            weights["bias"] = draw(filters)
        case(
            f"conv_transpose2d_{n}", "conv_transpose2d", {"filters": filters, **how}, {"x": draw(*shape)}, weights,
            lambda x, weight, bias=None, how=how: F.conv_transpose2d(
                x, weight, bias, how.get("stride", 2), how.get("padding", 0), how.get("output_padding", 0),
                how.get("groups", 1),
            ),
        )  # fmt: skip


def turned(x: Tensor, heads: int, base: float = 10000.0) -> Tensor:
    """Rotary positions by complex numbers: an independent way to the same."""
    batch, tokens, width = x.shape
    half = width // heads // 2
    parts = x.view(batch, tokens, heads, 2, half)
    angle = torch.arange(tokens, dtype=torch.float64)[:, None] * base ** (
        -torch.arange(half, dtype=torch.float64) / half
    )
    z = torch.complex(parts[..., 0, :], parts[..., 1, :]) * torch.polar(torch.ones_like(angle), angle)[None, :, None]
    return torch.stack((z.real, z.imag), dim=3).reshape(x.shape)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, **how: Any) -> Tensor:
    """Attention with grouped queries, window and ALiBi, from PyTorch's parts."""
    heads, kv = how["heads"], how.get("kv_heads") or how["heads"]

    def split(x: Tensor, n: int) -> Tensor:
        return x.view(x.shape[0], x.shape[1], n, -1).transpose(1, 2)

    q4 = split(q, heads)
    k4, v4 = (split(t, kv).repeat_interleave(heads // kv, dim=1) for t in (k, v))
    queries, keys = q.shape[1], k.shape[1]
    behind = torch.arange(queries)[:, None] + (keys - queries) - torch.arange(keys)[None, :]
    bias = torch.zeros(heads, queries, keys, dtype=torch.float64)
    if how.get("alibi"):
        whole = 2 ** math.floor(math.log2(heads))
        slopes = [2 ** (-8 * (i + 1) / whole) for i in range(whole)]
        slopes += [2 ** (-8 * (i + 1) / (2 * whole)) for i in range(0, 2 * (heads - whole), 2)]
        bias = bias - torch.tensor(slopes, dtype=torch.float64)[:, None, None] * behind.abs()
    hidden = torch.zeros(queries, keys, dtype=torch.bool)
    if how.get("causal"):
        hidden |= behind < 0
    if how.get("window"):
        hidden |= behind.abs() >= how["window"]
    bias = bias.masked_fill(hidden, -math.inf).expand(q.shape[0], -1, -1, -1)
    if mask is not None:
        bias = bias.masked_fill(~mask.bool()[:, None, None, :], -math.inf)
    y = F.scaled_dot_product_attention(q4, k4, v4, attn_mask=bias)
    return y.transpose(1, 2).reshape(q.shape)


def sequences() -> None:
    """Positions and attention."""
    for shape in ((2, 5, 6), (1, 1, 2), (1, 40, 8)):
        tag = "x".join(map(str, shape))
        position = torch.arange(shape[1], dtype=torch.float64)[:, None]
        angle = position / 10000.0 ** (torch.arange(0, shape[2], 2, dtype=torch.float64) / shape[2])
        table = torch.stack((angle.sin(), angle.cos()), dim=2).reshape(shape[1:])
        case(f"sinusoidal_{tag}", "sinusoidal_positions", {}, {"x": draw(*shape)}, {}, lambda x, t=table: x + t)
        heads = shape[2] // 2
        case(
            f"rotary_{tag}", "rotary", {"heads": heads}, {"x": draw(*shape)}, {},
            lambda x, heads=heads: turned(x, heads),
        )  # fmt: skip
        case(f"rotary_one_{tag}", "rotary", {"heads": 1}, {"x": draw(*shape)}, {}, lambda x: turned(x, 1))
    for n, how in enumerate(
        [
            {"heads": 4, "kv_heads": 2},
            {"heads": 4, "kv_heads": 1, "causal": True},
            {"heads": 2, "window": 3},
            {"heads": 2, "window": 2, "causal": True},
            {"heads": 4, "alibi": True, "causal": True},
            {"heads": 6, "alibi": True},
            {"heads": 2},
        ]
    ):
        heads, kv = how["heads"], how.get("kv_heads", how["heads"])
        for queries, keys in ((5, 5), (3, 7)):
            inputs = {"q": draw(2, queries, heads * 3), "k": draw(2, keys, kv * 3), "v": draw(2, keys, kv * 3)}
            if n % 2 == 0 and "window" not in how:
                inputs["mask"] = torch.tensor([[1] * keys, [1] * (keys - 1) + [0]])
                if how.get("causal"):
                    inputs["mask"] = torch.ones(2, keys, dtype=torch.int64)
            case(
                f"attention_{n}_{queries}_{keys}",
                "attention",
                how,
                inputs,
                {},
                lambda how=how, **kw: attend(**kw, **how),
            )


if __name__ == "__main__":
    for part in (activations, norms, sizes, convolutions, sequences):
        part()
    names = [c["name"] for c in CASES]
    assert len(set(names)) == len(names)
    target = Path(__file__).with_name("layers.npz")
    np.savez_compressed(target, cases=np.array(json.dumps(CASES)), **ARRAYS)
    print(len(CASES), "cases,", target.stat().st_size, "bytes")
