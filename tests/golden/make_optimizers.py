"""Writes optimizers.npz: twenty steps of each optimizer on the same gradients, in float64.

By PyTorch (made with 2.13.0) where it has the optimizer, else by the paper's algorithm in NumPy, written here apart
from the block. Run by hand: ``python tests/golden/make_optimizers.py``. Key ``cases`` is a JSON list of ``name``,
``block`` and ``params``; ``p0`` and ``gradients`` are shared; ``<name>`` holds the weights after each step.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

STEPS = 20
RNG = np.random.default_rng(11)
P0 = np.round(RNG.normal(size=37) * 256) / 256
GRADIENTS = np.round(RNG.normal(size=(STEPS, 37)) * np.exp(RNG.normal(size=37)) * 256) / 256
GRADIENTS[:, 5] = 0.0  # a weight without a gradient
GRADIENTS[7] *= 8.0  # and an outlier

Array = np.ndarray
CASES: list[dict[str, Any]] = []
FOUND: dict[str, Array] = {}


def record(name: str, block: str, params: dict[str, Any], steps: list[Array]) -> None:
    CASES.append({"name": name, "block": f"training/optimizer/{block}", "params": params})
    FOUND[name] = np.stack(steps)


def by_torch(name: str, block: str, params: dict[str, Any], make: Callable[..., Any], **options: Any) -> None:
    p = torch.from_numpy(P0.copy()).requires_grad_(True)
    optimizer = make([p], **options)
    steps = []
    for g in GRADIENTS:
        p.grad = torch.from_numpy(g.copy())
        optimizer.step()
        steps.append(p.detach().numpy().copy())
    record(name, block, params, steps)


def torch_cases() -> None:
    o = torch.optim
    for decay in (0.0, 0.1):
        tag, w = ("_decay" if decay else ""), {"weight_decay": decay}
        by_torch(f"sgd{tag}", "sgd", {"lr": 0.1, **w}, o.SGD, lr=0.1, **w)
        for nesterov in (False, True):
            m = {"momentum": 0.9, "nesterov": nesterov}
            by_torch(f"sgd_momentum{nesterov:d}{tag}", "sgd", {"lr": 0.1, **m, **w}, o.SGD, lr=0.1, **m, **w)
        for amsgrad in (False, True):
            a = {"amsgrad": amsgrad}
            by_torch(f"adam{amsgrad:d}{tag}", "adam", {"lr": 0.01, **a, **w}, o.Adam, lr=0.01, **a, **w)
            by_torch(f"adamw{amsgrad:d}{tag}", "adamw", {"lr": 0.01, **a, **w}, o.AdamW, lr=0.01, **a, **w)
        by_torch(f"adamax{tag}", "adamax", {"lr": 0.01, **w}, o.Adamax, lr=0.01, **w)
        by_torch(f"nadam{tag}", "nadam", {"lr": 0.01, **w}, o.NAdam, lr=0.01, **w)
        for beta2 in (0.999, 0.9, 0.5):
            b = {"beta2": beta2}
            by_torch(
                f"radam{beta2}{tag}", "radam", {"lr": 0.01, **b, **w}, o.RAdam, lr=0.01, betas=(0.9, beta2), **w
            )  # fmt: skip
        by_torch(
            f"adagrad{tag}", "adagrad", {"lr": 0.1, "lr_decay": 0.05, "initial": 0.25, **w},
            o.Adagrad, lr=0.1, lr_decay=0.05, initial_accumulator_value=0.25, **w,
        )  # fmt: skip
        by_torch(f"adadelta{tag}", "adadelta", {"lr": 0.5, **w}, o.Adadelta, lr=0.5, **w)
        for n, how in enumerate([{}, {"centered": True}, {"momentum": 0.8}, {"centered": True, "momentum": 0.8}]):
            by_torch(f"rmsprop{n}{tag}", "rmsprop", {"lr": 0.01, **how, **w}, o.RMSprop, lr=0.01, **how, **w)
    by_torch("rprop", "rprop", {"lr": 0.01}, o.Rprop, lr=0.01)


def by_paper(name: str, block: str, params: dict[str, Any], rule: Callable[..., Iterator[Array]]) -> None:
    record(name, block, params, list(rule(P0.copy(), **{k: v for k, v in params.items()})))


def lion(p: Array, lr: float, weight_decay: float) -> Iterator[Array]:
    m = np.zeros_like(p)
    for g in GRADIENTS:
        p = p - lr * (np.sign(0.9 * m + 0.1 * g) + weight_decay * p)
        m = 0.99 * m + 0.01 * g
        yield p


def signum(p: Array, lr: float, weight_decay: float, momentum: float) -> Iterator[Array]:
    m = np.zeros_like(p)
    for g in GRADIENTS:
        m = momentum * m + (1 - momentum) * g
        p = p - lr * (np.sign(m) + weight_decay * p)
        yield p


def adabelief(p: Array, lr: float, weight_decay: float) -> Iterator[Array]:
    m, s = np.zeros_like(p), np.zeros_like(p)
    for t, g in enumerate(GRADIENTS, 1):
        m = 0.9 * m + 0.1 * g
        s = 0.999 * s + 0.001 * (g - m) ** 2 + 1e-16
        p = p * (1 - lr * weight_decay)
        p = p - lr * (m / (1 - 0.9**t)) / (np.sqrt(s / (1 - 0.999**t)) + 1e-16)
        yield p


def yogi(p: Array, lr: float, weight_decay: float) -> Iterator[Array]:
    m = v = np.full_like(p, 1e-6)
    for t, g in enumerate(GRADIENTS, 1):
        g = g + weight_decay * p
        m = 0.9 * m + 0.1 * g
        v = v - 0.001 * np.sign(v - g**2) * g**2
        p = p - lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-3)
        yield p


def adan(p: Array, lr: float, weight_decay: float) -> Iterator[Array]:
    m, d, n, last = (np.zeros_like(p) for _ in range(4))
    for t, g in enumerate(GRADIENTS, 1):
        e = g - last if t > 1 else np.zeros_like(g)
        m = 0.98 * m + 0.02 * g
        d = 0.92 * d + 0.08 * e
        n = 0.99 * n + 0.01 * (g + 0.92 * e) ** 2
        denominator = np.sqrt(n / (1 - 0.99**t)) + 1e-8
        step = m / (1 - 0.98**t) / denominator + 0.92 * d / (1 - 0.92**t) / denominator
        p = (p - lr * step) / (1 + lr * weight_decay)
        last = g
        yield p


def ademamix(p: Array, lr: float, weight_decay: float, rise: int) -> Iterator[Array]:
    m, slow, v = (np.zeros_like(p) for _ in range(3))
    for t, g in enumerate(GRADIENTS, 1):
        alpha, b3 = 5.0, 0.9999
        if rise:
            share = min(t / rise, 1.0)
            alpha *= share
            b3 = math.exp(math.log(0.9) * math.log(b3) / ((1 - share) * math.log(b3) + share * math.log(0.9)))
        m = 0.9 * m + 0.1 * g
        slow = b3 * slow + (1 - b3) * g
        v = 0.999 * v + 0.001 * g**2
        root = np.sqrt(v / (1 - 0.999**t)) + 1e-8
        p = p - lr * ((m / (1 - 0.9**t) + alpha * slow) / root + weight_decay * p)
        yield p


def adopt(p: Array, lr: float, weight_decay: float, clip: bool) -> Iterator[Array]:
    m, v = np.zeros_like(p), np.zeros_like(p)
    for t, g in enumerate(GRADIENTS):
        if t == 0:
            v = g**2
        else:
            n = g / np.maximum(np.sqrt(v), 1e-6)
            if clip:
                n = np.clip(n, -(t**0.25), t**0.25)
            m = 0.9 * m + 0.1 * n
            p = p - lr * weight_decay * p - lr * m
            v = 0.9999 * v + 0.0001 * g**2
        yield p


def paper_cases() -> None:
    for decay in (0.0, 0.1):
        tag, w = ("_decay" if decay else ""), {"lr": 0.01, "weight_decay": decay}
        by_paper(f"lion{tag}", "lion", w, lion)
        for momentum in (0.0, 0.9):
            by_paper(f"signum{momentum}{tag}", "signum", {**w, "momentum": momentum}, signum)
        by_paper(f"adabelief{tag}", "adabelief", w, adabelief)
        by_paper(f"yogi{tag}", "yogi", w, yogi)
        by_paper(f"adan{tag}", "adan", w, adan)
        for rise in (0, 12):
            by_paper(f"ademamix{rise}{tag}", "ademamix", {**w, "rise": rise}, ademamix)
        for clip in (False, True):
            by_paper(f"adopt{clip:d}{tag}", "adopt", {**w, "clip": clip}, adopt)


if __name__ == "__main__":
    torch_cases()
    paper_cases()
    target = Path(__file__).with_name("optimizers.npz")
    np.savez_compressed(target, cases=np.array(json.dumps(CASES)), p0=P0, gradients=GRADIENTS, **FOUND)
    print(len(CASES), "cases,", target.stat().st_size, "bytes")
