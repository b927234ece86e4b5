"""Blocks of a community package: one of several families, through the door alone."""

from __future__ import annotations

import math

from scellis_core.plugin import (
    Augment,
    BlockParams,
    Init,
    Layer,
    Loss,
    LossTerm,
    Metric,
    Optimizer,
    Peft,
    Phase,
    Port,
    Ref,
    Scheduler,
    Slot,
    field,
    hookimpl,
    ops,
)


class LionParams(BlockParams):
    """Parameters of Lion."""

    lr: float = field(1e-4, gt=0, unit="1/step", help="learning rate")
    beta1: float = field(0.9, ge=0, lt=1, help="of the update's direction")
    beta2: float = field(0.99, ge=0, lt=1, help="of the momentum")
    weight_decay: float = field(0.0, ge=0, help="decoupled")


def update(p, g, s, hp):
    """Sign of an interpolated momentum, decoupled decay."""
    b1, b2 = hp.params.beta1, hp.params.beta2
    direction = ops.sign(b1 * s["m"] + (1 - b1) * g)
    new = p - hp.lr * (direction + hp.params.weight_decay * p)
    return new, {"m": b2 * s["m"] + (1 - b2) * g}


LION = Optimizer(
    id="training/optimizer/toy_lion@1",
    title="Lion (toy)",
    summary="Sign momentum.",
    params=LionParams,
    source="Chen et al., Symbolic Discovery of Optimization Algorithms, 2023, algorithm 2, https://arxiv.org/abs/2302.06675",
    slots=lambda params, info: {"m": Slot()},
    phases=(Phase("elements", update),),
)


class NoParams(BlockParams):
    """Nothing to choose."""


def scale(ctx, params, x):
    """One trainable factor for each feature."""
    return x * ctx.param("weight", (x.shape[-1],), Init("ones"))


SCALE = Layer(
    id="layer/toy_scale@1",
    title="Scale (toy)",
    summary="A trainable factor a feature.",
    params=NoParams,
    source="none",
    lower=scale,
)


def quartic(ctx, params, output, target):
    """Sum of fourth powers."""
    d = output - target
    return LossTerm(ops.reduce_sum(d * d * d * d), ctx.graph.const(float(d.type.numel)))


QUARTIC = Loss(
    id="training/loss/toy_quartic@1", title="Quartic (toy)",
    summary="Mean fourth power.", params=NoParams, source="none",
    fn=quartic, metrics=("metric/toy_worst",),
)  # fmt: skip

SQRT = Scheduler(
    id="training/scheduler/toy_sqrt@1", title="Root (toy)",
    summary="1 / sqrt(step).", params=NoParams, source="none",
    factor=lambda step, params, ctx: 1.0 / math.sqrt(step + 1),
)  # fmt: skip


def worst(ctx, params, output, target):
    """Sum of the batches' largest errors, and how many batches."""
    return {"total": ops.reduce_max(ops.abs(output - target)), "weight": ctx.graph.const(1.0)}


WORST = Metric(
    id="metric/toy_worst@1", title="Worst error (toy)",
    summary="Mean of the batches' largest errors.", params=NoParams,
    source="none", fn=worst,
)  # fmt: skip


class NoiseParams(BlockParams):
    """Parameters of the noise."""

    width: float = field(0.1, ge=0, help="half the width of the uniform noise")


def noise(ctx, params, x):
    """Uniform noise on the input."""
    return x + params.width * (2.0 * ctx.uniform(x.shape, "augment") - 1.0)


NOISE = Augment(
    id="augment/toy_noise@1", title="Noise (toy)", summary="Uniform noise.", params=NoiseParams, source="none", fn=noise
)


class LoraParams(BlockParams):
    """Parameters of the adapter."""

    rank: int = field(2, ge=1, help="rank")
    targets: str = field("*", help="which blocks, by path")


class BranchParams(BlockParams):
    """Parameters of the adapter's branch."""

    rank: int = field(2, ge=1, help="rank")


def branch(ctx, params, x, like):
    """``B A x``, zero at the start."""
    a = ctx.param("a", (params.rank, x.shape[-1]), Init("normal", 0.02))
    b = ctx.param("b", (like.shape[-1], params.rank), Init("zeros"))
    return ops.matmul(ops.matmul(x, a, transpose_b=True), b, transpose_b=True)


BRANCH = Layer(
    id="layer/toy_lora_branch@1", title="Branch (toy)",
    summary="A low-rank branch.", params=BranchParams, source="none",
    ports=(Port("x"), Port("like")), lower=branch,
)  # fmt: skip


def rewrite(g, params, targets):
    """Freeze everything, add a branch beside each target, and sum the two."""
    g.freeze("*")
    for path in targets:
        x = g.instances[path].inputs["x"][0]
        side = g.add(f"{path}.lora", "layer/toy_lora_branch", {"rank": params.rank}, {"x": [x], "like": [Ref(path)]})
        total = g.add(f"{path}.sum", "layer/add", {}, {"x": [Ref(path), side]})
        g.rewire(Ref(path), total, but=[f"{path}.lora", f"{path}.sum"])
        g.freeze(f"{path}.lora.*", False)


LORA = Peft(
    id="training/peft/toy_lora@1", title="LoRA (toy)",
    summary="A low-rank branch beside each target.", params=LoraParams,
    source="Hu et al., LoRA, 2021, equation 3, https://arxiv.org/abs/2106.09685", rewrite=rewrite,
)  # fmt: skip

seen: list[str] = []


@hookimpl
def scellis_event(event):
    """Note the kind of each event."""
    seen.append(type(event).__name__)
