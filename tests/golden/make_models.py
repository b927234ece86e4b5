"""Writes models.npz: outputs and gradients of the models in models.py, by PyTorch in float64.

Run by hand in an environment that has PyTorch and Scellis (made with 2.13.0): ``python tests/golden/make_models.py``.
Keys are ``<model>/out:<output>`` and ``<model>/grad:<parameter>`` of the sum of the first output times
``models.seed_of``; a large gradient is kept as its first 200 values.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (its name in the field)

sys.path.append(str(Path(__file__).parent))
import models

Weights = dict[str, Tensor]


class Net:
    """Weights by path below a prefix, and the parts that models share."""

    def __init__(self, weights: Weights, prefix: str = "") -> None:
        self.w, self.prefix = weights, prefix

    def at(self, name: str) -> Net:
        return Net(self.w, f"{self.prefix}{name}.")

    def get(self, name: str) -> Tensor | None:
        return self.w.get(self.prefix + name)

    def __getitem__(self, name: str) -> Tensor:
        return self.w[self.prefix + name]

    def linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self[f"{name}.weight"], self.get(f"{name}.bias"))

    def norm(self, name: str, x: Tensor, eps: float) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self[f"{name}.weight"], self[f"{name}.bias"], eps)

    def rms(self, name: str, x: Tensor, eps: float) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self[f"{name}.weight"], eps)

    def conv(self, name: str, x: Tensor, **how: int) -> Tensor:
        return F.conv2d(x, self[f"{name}.weight"], self.get(f"{name}.bias"), **how)

    def batch_norm(self, name: str, x: Tensor) -> Tensor:
        return F.batch_norm(x, None, None, self[f"{name}.weight"], self[f"{name}.bias"], True)


def split(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def rotate(x: Tensor) -> Tensor:
    """[batch, heads, tokens, width] turned by position."""
    tokens, half = x.shape[2], x.shape[3] // 2
    rate = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(tokens, dtype=torch.float64)[:, None] * rate
    one, two = x[..., :half], x[..., half:]
    return torch.cat((one * angle.cos() - two * angle.sin(), two * angle.cos() + one * angle.sin()), dim=-1)


def llama(net: Net, x: Tensor) -> dict[str, Tensor]:
    h = net["embed.weight"][x]
    for i in range(2):
        b = net.at(f"blocks.{i}")
        n = b.rms("norm1", h, 1e-5)
        q, k, v = (split(b.linear(f"attn.{c}", n), heads) for c, heads in (("q", 6), ("k", 2), ("v", 2)))
        k, v = (t.repeat_interleave(3, dim=1) for t in (rotate(k), v))
        a = F.scaled_dot_product_attention(rotate(q), k, v, is_causal=True)
        h = h + b.linear("attn.o", a.transpose(1, 2).flatten(2))
        n = b.rms("norm2", h, 1e-5)
        h = h + b.linear("mlp.down", F.silu(b.linear("mlp.gate", n)) * b.linear("mlp.up", n))
    return {"logits": net.linear("head", net.rms("norm", h, 1e-5))}


def bert(net: Net, x: Tensor, segments: Tensor, mask: Tensor) -> dict[str, Tensor]:
    eps = 1e-12
    h = net["embed.weight"][x] + net["segments.weight"][segments] + net["pos.weight"]
    h = net.norm("embed_norm", h, eps)
    for i in range(2):
        b = net.at(f"blocks.{i}")
        q, k, v = (split(b.linear(f"attn.{c}", h), 3) for c in "qkv")
        hidden = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(mask == 0, -math.inf)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=hidden[:, None, None, :])
        h = b.norm("norm1", h + b.linear("attn.o", a.transpose(1, 2).flatten(2)), eps)
        h = b.norm("norm2", h + b.linear("mlp.down", F.gelu(b.linear("mlp.up", h))), eps)
    t = net.norm("transform.norm", F.gelu(net.linear("transform.dense", h)), eps)
    return {"logits": F.linear(t, net["embed.weight"], net["head.bias"]), "hidden": h}


def vit(net: Net, x: Tensor) -> dict[str, Tensor]:
    h = net.conv("patch", x, stride=3).flatten(2).transpose(1, 2)
    h = torch.cat((net["token.weight"].expand(len(h), 1, -1), h), dim=1) + net["pos.weight"]
    for i in range(2):
        b = net.at(f"blocks.{i}")
        n = b.norm("norm1", h, 1e-6)
        q, k, v = (split(b.linear(f"attn.{c}", n), 2) for c in "qkv")
        h = h + b.linear("attn.o", F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        h = h + b.linear("mlp.down", F.gelu(b.linear("mlp.up", b.norm("norm2", h, 1e-6))))
    return {"logits": net.linear("head", net.norm("norm", h, 1e-6)[:, 0])}


def resnet(net: Net, x: Tensor, depth: int) -> dict[str, Tensor]:
    if depth == 50:
        h = F.max_pool2d(F.relu(net.batch_norm("stem.norm", net.conv("stem.conv", x, stride=2, padding=3))), 3, 2, 1)
    else:
        h = F.relu(net.batch_norm("stem.norm", net.conv("stem.conv", x, padding=1)))
    for i, count in enumerate((3, 4, 6, 3) if depth == 50 else (2, 2, 2, 2)):
        for j in range(count):
            b, stride = net.at(f"stages.{i}.{j}"), 2 if i and not j else 1
            if depth == 50:
                y = F.relu(b.batch_norm("norm1", b.conv("conv1", h)))
                y = F.relu(b.batch_norm("norm2", b.conv("conv2", y, stride=stride, padding=1)))
                y = b.batch_norm("norm3", b.conv("conv3", y))
            else:
                y = F.relu(b.batch_norm("norm1", b.conv("conv1", h, stride=stride, padding=1)))
                y = b.batch_norm("norm2", b.conv("conv2", y, padding=1))
            if b.get("down.conv.weight") is not None:
                h = b.batch_norm("down.norm", b.conv("down.conv", h, stride=stride))
            h = F.relu(h + y)
    return {"logits": net.linear("head", h.mean((2, 3)))}


def unet(net: Net, x: Tensor) -> dict[str, Tensor]:
    def double(level: Net, h: Tensor) -> Tensor:
        for k in "12":
            h = F.relu(level.batch_norm(f"norm{k}", level.conv(f"conv{k}", h, padding=1)))
        return h

    h, beside = x, []
    for i in range(3):
        h = double(net.at(f"down.{i}"), h)
        if i < 2:
            beside.append(h)
            h = F.max_pool2d(h, 2)
    for i in (1, 0):
        level = net.at(f"up.{i}")
        h = F.conv_transpose2d(h, level["grow.weight"], level["grow.bias"], stride=2)
        h = double(level, torch.cat((beside[i], h), dim=1))
    return {"y": net.conv("head", h)}


def autoencoder(net: Net, x: Tensor) -> dict[str, Tensor]:
    h, found = x.flatten(1), {}
    for part in ("encoder", "decoder"):
        for i in range(2):
            h = net.at(part).linear(f"{i}.linear", h).tanh()
        h = net.at(part).linear("last", h)
        found[part] = h
    return {"y": found["decoder"], "code": found["encoder"]}


FORMS: dict[str, Callable[..., dict[str, Tensor]]] = {
    "llama": llama,
    "bert": bert,
    "vit": vit,
    "resnet18": lambda net, x: resnet(net, x, 18),
    "resnet50": lambda net, x: resnet(net, x, 50),
    "unet": unet,
    "autoencoder": autoencoder,
}


def main() -> None:
    arrays: dict[str, np.ndarray] = {}
    for name, form in FORMS.items():
        inputs, weights = models.numbers(name)
        w = {k: torch.from_numpy(v).requires_grad_(True) for k, v in weights.items()}
        out = form(Net(w), **{k: torch.from_numpy(v) for k, v in inputs.items()})
        first = next(iter(out.values()))
        (first * torch.from_numpy(models.seed_of(tuple(first.shape)))).sum().backward()
        for key, value in out.items():
            arrays[f"{name}/out:{key}"] = value.detach().numpy()
        for key, value in w.items():
            assert value.grad is not None, (name, key)
            arrays[f"{name}/grad:{key}"] = value.grad.numpy().ravel()[:200]
    target = Path(__file__).with_name("models.npz")
    np.savez_compressed(target, **arrays)
    print(len(arrays), "arrays,", target.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
