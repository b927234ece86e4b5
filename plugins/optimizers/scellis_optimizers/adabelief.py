"""AdaBelief."""

from __future__ import annotations

from collections.abc import Mapping

from scellis_core.plugin import BlockParams, Hyper, Optimizer, ParamInfo, Phase, Slot, Value, field, ops
from scellis_optimizers._decay import decoupled


class AdabeliefParams(BlockParams):
    """Parameters of ``training/optimizer/adabelief``."""

    lr: float = field(1e-3, gt=0.0, unit="1/step", help="learning rate, before the scheduler's factor")
    beta1: float = field(0.9, ge=0.0, lt=1.0, help="decay of the mean of gradients")
    beta2: float = field(0.999, gt=0.0, lt=1.0, help="decay of the mean of squared surprise")
    eps: float = field(1e-16, ge=0.0, help="added to the mean of squared surprise, and to its root")
    weight_decay: float = field(0.0, ge=0.0, help="share of lr that each update takes off the weights")


def slots(params: AdabeliefParams, info: ParamInfo) -> dict[str, Slot]:
    """``m`` and ``v``: means of the gradient and of its squared distance from ``m``, zero at first."""
    return {"m": Slot(), "v": Slot()}


def update(p: Value, g: Value, s: Mapping[str, Value], hp: Hyper) -> tuple[Value, dict[str, Value]]:
    """One update of every element.

    ``m <- m + (1 - beta1)(g - m)``; ``v <- beta2 v + (1 - beta2)(g - m)^2 + eps``;
    ``p <- p (1 - lr decay) - lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)``.

    Args:
        p: f32[n]; weights.
        g: f32[n]; gradient.
        s: the state named in :func:`slots`, f32[n].
        hp: ``lr``, ``t`` and ``weight_decay`` of this step.

    Returns:
        New weights, and the new state.
    """
    k: AdabeliefParams = hp.params
    m = s["m"] + (1.0 - k.beta1) * (g - s["m"])
    surprise = g - m
    v = k.beta2 * s["v"] + (1.0 - k.beta2) * (surprise * surprise) + k.eps
    step = hp.lr / ops.one_minus_power(k.beta1, hp.t)
    root = ops.rsqrt(ops.one_minus_power(k.beta2, hp.t))
    return decoupled(p, hp) - step * (m / (ops.sqrt(v) * root + k.eps)), {"m": m, "v": v}


ADABELIEF = Optimizer(
    id="training/optimizer/adabelief@1",
    title="AdaBelief",
    summary="Step sizes from how far gradients are from their mean.",
    params=AdabeliefParams,
    source="Zhuang et al., AdaBelief Optimizer, 2020, algorithm 2, https://arxiv.org/abs/2010.07468",
    deviation="weight decay is decoupled; no rectification",
    slots=slots,
    phases=(Phase("elements", update),),
)
