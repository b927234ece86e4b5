"""Writes torch_cases.npz: values and gradients from PyTorch (float64, CPU) that the blocks are held against.

Run by hand in an environment that has PyTorch (the file was made with 2.13.0):
``python tests/golden/make_torch_cases.py``. The tests themselves need no PyTorch.

Names in the file are ``case/input`` (``x``, ``w``, ``target`` ...), ``case/out:name`` and ``case/grad:name``.
Gradients are of ``sum(y * seed)`` for outputs that are tensors, with ``seed`` among the inputs.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812 (its name in the field)

CASES: dict[str, np.ndarray] = {}


def rand(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    """Normal draws rounded to eight bits after the point, so that the file compresses and f32 holds them."""
    return torch.from_numpy(np.round(rng.normal(size=shape) * 256) / 256)


def record(case: str, inputs: dict[str, torch.Tensor], y: torch.Tensor, grads: tuple[str, ...], **outs) -> None:
    """Store inputs, the output, and the gradients of ``sum(y * seed)``."""
    seed = torch.ones_like(y)
    if y.ndim:
        seed = rand(np.random.default_rng(99), *y.shape)
        CASES[f"{case}/seed"] = seed.numpy()
    found = torch.autograd.grad((y * seed).sum(), [inputs[g] for g in grads])
    for name, value in inputs.items():
        CASES[f"{case}/{name}"] = value.detach().numpy()
    CASES[f"{case}/out:y"] = y.detach().numpy()
    for name, value in outs.items():
        CASES[f"{case}/out:{name}"] = value.detach().numpy()
    for name, value in zip(grads, found, strict=True):
        CASES[f"{case}/grad:{name}"] = value.numpy()


def leaf(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as one that gradients reach."""
    return tensor.clone().requires_grad_(True)


def losses(rng: np.random.Generator) -> None:
    """Cross-entropy with every mixture of smoothing, weights and ignored targets; mean squared error."""
    weights = torch.tensor([0.5, 2.0, 1.0, 0.0, 3.0, 1.0, 1.0], dtype=torch.float64)
    target = torch.tensor([[0, 6, 3], [-100, 2, 4]])
    for name, smoothing, w in (
        ("plain", 0.0, None),
        ("smooth", 0.1, None),
        ("weights", 0.0, weights),
        ("smooth_weights", 0.2, weights),
    ):
        x = leaf(rand(rng, 2, 3, 7))
        y = F.cross_entropy(x.transpose(1, 2), target, weight=w, label_smoothing=smoothing)
        record(f"ce_{name}", {"x": x, "target": target}, y, ("x",))
    x, other = leaf(rand(rng, 4, 3)), rand(rng, 4, 3)
    record("mse", {"x": x, "target": other}, F.mse_loss(x, other), ("x",))


def norms(rng: np.random.Generator) -> None:
    """Layer, RMS and batch normalisation, the last with its running statistics and at evaluation."""
    x, w, b = leaf(rand(rng, 3, 4, 10)), leaf(rand(rng, 10)), leaf(rand(rng, 10))
    record(
        "layer_norm",
        {"x": x, "weight": w, "bias": b},
        F.layer_norm(x, (10,), w, b, 1e-5),
        ("x", "weight", "bias"),
    )
    record("rms_norm", {"x": x, "weight": w}, F.rms_norm(x, (10,), w, 1e-6), ("x", "weight"))
    for name, shape in (("batch_norm_2d", (4, 3, 5, 2)), ("batch_norm_1d", (6, 3))):
        x, w, b = leaf(rand(rng, *shape) * 3 + 1), leaf(rand(rng, 3)), leaf(rand(rng, 3))
        mean, var = rand(rng, 3), rand(rng, 3).abs() + 0.5
        inputs = {"x": x, "weight": w, "bias": b, "running_mean": mean.clone(), "running_var": var.clone()}
        evaluated = F.batch_norm(x, mean, var, w, b, False, 0.1, 1e-5)
        y = F.batch_norm(x, mean, var, w, b, True, 0.1, 1e-5)
        outs = {"running_mean": mean, "running_var": var, "eval": evaluated}
        record(name, inputs, y, ("x", "weight", "bias"), **outs)


def attention(rng: np.random.Generator) -> None:
    """Scaled dot-product attention over 2 heads: plain, causal, and with a padding mask."""
    keep = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    for name, causal, mask in (("plain", False, None), ("causal", True, None), ("padded", False, keep)):
        q, k, v = (leaf(rand(rng, 2, 5, 8)) for _ in range(3))
        split = [t.reshape(2, 5, 2, 4).transpose(1, 2) for t in (q, k, v)]
        bias = None if mask is None else (mask != 0)[:, None, None, :]
        y = F.scaled_dot_product_attention(*split, attn_mask=bias, is_causal=causal)
        y = y.transpose(1, 2).reshape(2, 5, 8)
        inputs = {"q": q, "k": k, "v": v} | ({} if mask is None else {"mask": mask})
        record(f"attention_{name}", inputs, y, ("q", "k", "v"))


def pointwise(rng: np.random.Generator) -> None:
    """Activations over a range that reaches their flat ends, and softmax."""
    x = leaf(torch.cat([rand(rng, 3, 8), torch.tensor([[-13.0, -6.0, -1.0, -0.5, 0.5, 1.0, 6.0, 13.0]])]))
    for name, fn in (
        ("gelu", F.gelu),
        ("gelu_tanh", lambda t: F.gelu(t, approximate="tanh")),
        ("silu", F.silu),
        ("relu", F.relu),
        ("tanh", torch.tanh),
        ("sigmoid", torch.sigmoid),
        ("softmax", lambda t: F.softmax(t, dim=1)),
    ):
        record(name, {"x": x}, fn(x.double()), ("x",))


def images(rng: np.random.Generator) -> None:
    """Convolution and pooling."""
    for name, shape, w_shape, options in (
        ("conv_plain", (2, 3, 6, 5), (4, 3, 3, 3), {}),
        ("conv_strided", (2, 4, 7, 6), (6, 4, 3, 2), {"stride": (2, 1), "padding": (1, 2)}),
        ("conv_grouped", (1, 4, 8, 8), (6, 2, 3, 3), {"padding": (2, 2), "dilation": (2, 2), "groups": 2}),
    ):
        x, w, b = leaf(rand(rng, *shape)), leaf(rand(rng, *w_shape)), leaf(rand(rng, w_shape[0]))
        record(name, {"x": x, "weight": w, "bias": b}, F.conv2d(x, w, b, **options), ("x", "weight", "bias"))
    x = leaf(torch.round(rand(rng, 2, 3, 7, 6) * 2) / 2)  # with many equal values, to see who gets the gradient
    record("max_pool", {"x": x}, F.max_pool2d(x, 2), ("x",))
    record("max_pool_padded", {"x": x}, F.max_pool2d(x, (3, 2), (2, 1), (1, 1)), ("x",))
    record("avg_pool", {"x": x}, F.avg_pool2d(x, 3, 2, 1), ("x",))
    record("avg_pool_inside", {"x": x}, F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), ("x",))


def optimizers(rng: np.random.Generator) -> None:
    """Twenty updates of two parameters with given gradients; weights after updates 1, 2 and 20."""
    shapes = {"a": (3, 4), "b": (5,)}
    start = {name: rand(rng, *shape) for name, shape in shapes.items()}
    grads = {name: rand(rng, 20, *shape) for name, shape in shapes.items()}
    for name in shapes:
        CASES[f"optimizer/{name}"], CASES[f"optimizer/g_{name}"] = start[name].numpy(), grads[name].numpy()
    sgd, adam, adamw = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
    for case, kind, options in (
        ("sgd", sgd, {"lr": 0.1}),
        ("sgd_decay", sgd, {"lr": 0.1, "weight_decay": 0.1}),
        ("sgd_momentum", sgd, {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}),
        ("sgd_dampening", sgd, {"lr": 0.05, "momentum": 0.9, "dampening": 0.3}),
        ("sgd_nesterov", sgd, {"lr": 0.05, "momentum": 0.8, "nesterov": True, "weight_decay": 0.1}),
        ("adam", adam, {"lr": 0.01}),
        ("adam_decay", adam, {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-6}),
        ("adamw", adamw, {"lr": 0.01, "weight_decay": 0.0}),
        ("adamw_decay", adamw, {"lr": 0.01, "weight_decay": 0.1, "betas": (0.9, 0.95)}),
    ):
        tensors = {name: leaf(value) for name, value in start.items()}
        optimizer = kind(list(tensors.values()), **options)
        for step in range(20):
            for name, tensor in tensors.items():
                tensor.grad = grads[name][step].clone()
            optimizer.step()
            if step in (0, 1, 19):
                for name, tensor in tensors.items():
                    CASES[f"optimizer/{case}/{name}/{step + 1}"] = tensor.detach().numpy().copy()


def clips(rng: np.random.Generator) -> None:
    """Clipping by global norm, above and below the bound."""
    raw = {"a": rand(rng, 3, 4), "b": rand(rng, 5)}
    for name, value in raw.items():
        CASES[f"clip/{name}"] = value.numpy()
    for max_norm in (1.0, 100.0):
        tensors = {name: leaf(value) for name, value in raw.items()}
        for name, tensor in tensors.items():
            tensor.grad = raw[name].clone()
        norm = torch.nn.utils.clip_grad_norm_(list(tensors.values()), max_norm)
        CASES["clip/norm"] = norm.numpy()
        for name, tensor in tensors.items():
            CASES[f"clip/{name}/{max_norm:g}"] = tensor.grad.numpy()


def schedules() -> None:
    """Factors by PyTorch's schedulers over 30 updates, the warm-up ones by formula through LambdaLR."""

    def factors(make) -> np.ndarray:
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        scheduler = make(optimizer)
        found = []
        for _ in range(30):
            found.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return np.array(found)

    def warm(step: int) -> float:
        if step < 6:
            return (step + 1) / 6
        return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (step - 6) / 24))

    cosine = torch.optim.lr_scheduler.CosineAnnealingLR
    CASES["schedule/constant"] = factors(lambda o: torch.optim.lr_scheduler.ConstantLR(o, factor=1.0))
    CASES["schedule/cosine"] = factors(lambda o: cosine(o, T_max=30))
    CASES["schedule/cosine_min"] = factors(lambda o: cosine(o, T_max=30, eta_min=0.2))
    CASES["schedule/warmup_cosine"] = factors(lambda o: torch.optim.lr_scheduler.LambdaLR(o, warm))


def models(rng: np.random.Generator) -> None:
    """A decoder of two layers and a convolutional network, by parameter path: loss and gradients."""
    shapes: dict[str, tuple[int, ...]] = {"embed.weight": (11, 8), "pos.weight": (5, 8)}
    for block in ("blocks.0", "blocks.1"):
        for norm in ("norm1", "norm2"):
            shapes |= {f"{block}.{norm}.weight": (8,), f"{block}.{norm}.bias": (8,)}
        for part in "qkvo":
            shapes |= {f"{block}.attn.{part}.weight": (8, 8), f"{block}.attn.{part}.bias": (8,)}
        shapes |= {f"{block}.mlp.up.weight": (32, 8), f"{block}.mlp.up.bias": (32,)}
        shapes |= {f"{block}.mlp.down.weight": (8, 32), f"{block}.mlp.down.bias": (8,)}
    shapes |= {"norm.weight": (8,), "norm.bias": (8,)}
    p = {name: leaf(rand(rng, *shape) * 0.5) for name, shape in shapes.items()}
    x, target = torch.from_numpy(rng.integers(0, 11, (2, 5))), torch.from_numpy(rng.integers(0, 11, (2, 5)))

    def linear(h: torch.Tensor, path: str) -> torch.Tensor:
        return F.linear(h, p[f"{path}.weight"], p[f"{path}.bias"])

    def norm(h: torch.Tensor, path: str) -> torch.Tensor:
        return F.layer_norm(h, (8,), p[f"{path}.weight"], p[f"{path}.bias"], 1e-5)

    h = p["embed.weight"][x] + p["pos.weight"]
    for block in ("blocks.0", "blocks.1"):
        inner = norm(h, f"{block}.norm1")
        q, k, v = (linear(inner, f"{block}.attn.{c}").reshape(2, 5, 2, 4).transpose(1, 2) for c in "qkv")
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 5, 8)
        h = h + linear(mixed, f"{block}.attn.o")
        inner = F.gelu(linear(norm(h, f"{block}.norm2"), f"{block}.mlp.up"), approximate="tanh")
        h = h + linear(inner, f"{block}.mlp.down")
    logits = norm(h, "norm") @ p["embed.weight"].T
    loss = F.cross_entropy(logits.reshape(10, 11), target.reshape(10))
    record("decoder", {**p, "x": x, "y": target}, loss, tuple(p), logits=logits)

    shapes = {"head.weight": (10, 12), "head.bias": (10,)}
    for stage, (width, before) in enumerate(((2, 1), (3, 2))):
        shapes |= {f"stages.{stage}.0.conv.weight": (width, before, 3, 3)}
        shapes |= {f"stages.{stage}.0.norm.weight": (width,), f"stages.{stage}.0.norm.bias": (width,)}
    p = {name: leaf(rand(rng, *shape)) for name, shape in shapes.items()}
    image = h = rand(rng, 4, 1, 8, 8)
    target = torch.tensor([3, 0, 9, 3])
    for stage in ("stages.0.0", "stages.1.0"):
        h = F.conv2d(h, p[f"{stage}.conv.weight"], padding=1)
        h = F.batch_norm(h, None, None, p[f"{stage}.norm.weight"], p[f"{stage}.norm.bias"], True, 0.1, 1e-5)
        h = F.max_pool2d(F.relu(h), 2)
    logits = linear(h.flatten(1), "head")
    record("cnn", {**p, "x": image, "y": target}, F.cross_entropy(logits, target), tuple(p), logits=logits)


def main() -> None:
    """Make every case and write the file."""
    rng = np.random.default_rng(7)
    losses(rng)
    norms(rng)
    attention(rng)
    pointwise(rng)
    images(rng)
    optimizers(rng)
    clips(rng)
    models(rng)
    schedules()
    np.savez_compressed(Path(__file__).with_name("torch_cases.npz"), **CASES)


if __name__ == "__main__":
    main()
