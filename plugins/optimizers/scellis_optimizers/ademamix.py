"""AdEMAMix."""

from __future__ import annotations

import math
from collections.abc import Mapping

from scellis_core.plugin import BlockParams, Hyper, Optimizer, ParamInfo, Phase, Slot, Value, field, ops
from scellis_optimizers._decay import decoupled


class AdemamixParams(BlockParams):
    """Parameters of ``training/optimizer/ademamix``."""

    lr: float = field(1e-3, gt=0.0, unit="1/step", help="learning rate, before the scheduler's factor")
    beta1: float = field(0.9, ge=0.0, lt=1.0, help="decay of the mean of gradients")
    beta2: float = field(0.999, gt=0.0, lt=1.0, help="decay of the mean of squared gradients")
    beta3: float = field(0.9999, gt=0.0, lt=1.0, help="decay of the slow mean")
    alpha: float = field(5.0, ge=0.0, help="weight of the slow mean")
    rise: int = field(0, ge=0, unit="steps", help="updates over which alpha and beta3 rise to their values; 0 for none")
    eps: float = field(1e-8, ge=0.0, help="added to the root of the second moment")
    weight_decay: float = field(0.0, ge=0.0, help="share of lr that each update takes off the weights")


def slots(params: AdemamixParams, info: ParamInfo) -> dict[str, Slot]:
    """``m`` and ``slow``: fast and slow means of gradients; ``v``: of their squares; zero at first."""
    return {"m": Slot(), "slow": Slot(), "v": Slot()}


def _schedule(k: AdemamixParams, t: Value) -> tuple[Value | float, Value | float]:
    """``alpha`` and ``1 - beta3`` of an update."""
    if not k.rise or not k.beta1:
        return k.alpha, 1.0 - k.beta3
    share = ops.min(t * (1.0 / k.rise), 1.0)
    first, last = math.log(k.beta1), math.log(k.beta3)
    return share * k.alpha, -ops.expm1(first * last / ((1.0 - share) * last + share * first))


def update(p: Value, g: Value, s: Mapping[str, Value], hp: Hyper) -> tuple[Value, dict[str, Value]]:
    """One update of every element.

    ``m <- m + (1 - beta1)(g - m)``; ``slow <- slow + (1 - b3)(g - slow)``; ``v <- beta2 v + (1 - beta2) g^2``;
    ``p <- p (1 - lr decay) - lr (m / (1 - beta1^t) + a slow) / (sqrt(v / (1 - beta2^t)) + eps)``, where over ``rise``
    updates ``a`` rises linearly to alpha, and ``b3`` from beta1 to beta3 with its half-life linear.

    Args:
        p: f32[n]; weights.
        g: f32[n]; gradient.
        s: the state named in :func:`slots`, f32[n].
        hp: ``lr``, ``t`` and ``weight_decay`` of this step.

    Returns:
        New weights, and the new state.
    """
    k: AdemamixParams = hp.params
    m = s["m"] + (1.0 - k.beta1) * (g - s["m"])
    v = k.beta2 * s["v"] + (1.0 - k.beta2) * (g * g)
    alpha, rest = _schedule(k, hp.t)
    slow = s["slow"] + rest * (g - s["slow"])
    root = ops.sqrt(v) * ops.rsqrt(ops.one_minus_power(k.beta2, hp.t)) + k.eps
    step = m / ops.one_minus_power(k.beta1, hp.t) + alpha * slow
    return decoupled(p, hp) - hp.lr * (step / root), {"m": m, "slow": slow, "v": v}


ADEMAMIX = Optimizer(
    id="training/optimizer/ademamix@1",
    title="AdEMAMix",
    summary="Adam with a second, much slower mean of gradients.",
    params=AdemamixParams,
    source="Pagliardini, Ablin and Grangier, The AdEMAMix Optimizer, 2024, algorithm 1, https://arxiv.org/abs/2409.03137",
    slots=slots,
    phases=(Phase("elements", update),),
)
