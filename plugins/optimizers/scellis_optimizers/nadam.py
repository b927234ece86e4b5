"""NAdam."""

from __future__ import annotations

import math
from collections.abc import Mapping

from scellis_core.plugin import BlockParams, Hyper, Optimizer, ParamInfo, ParamView, Phase, Slot, Value, field, ops
from scellis_optimizers._decay import coupled


class NadamParams(BlockParams):
    """Parameters of ``training/optimizer/nadam``."""

    lr: float = field(2e-3, gt=0.0, unit="1/step", help="learning rate, before the scheduler's factor")
    beta1: float = field(0.9, ge=0.0, lt=1.0, help="decay of the mean of gradients")
    beta2: float = field(0.999, gt=0.0, lt=1.0, help="decay of the mean of squared gradients")
    eps: float = field(1e-8, ge=0.0, help="added to the root of the second moment")
    momentum_decay: float = field(4e-3, ge=0.0, help="rate at which the momentum rises to beta1")
    weight_decay: float = field(0.0, ge=0.0, help="L2 penalty: this share of the weights joins the gradient")


def slots(params: NadamParams, info: ParamInfo) -> dict[str, Slot]:
    """``m`` and ``v``: as Adam's, zero at first."""
    return {"m": Slot(), "v": Slot()}


def _momentum(k: NadamParams, t: Value) -> Value:
    """``u(t)``."""
    return k.beta1 * (1.0 - 0.5 * ops.exp(t * (k.momentum_decay * math.log(0.96))))


def advance(views: list[ParamView], hp: Hyper) -> dict[str, Value]:
    """``product``: of the momenta of all updates so far.

    Args:
        views: not looked at.
        hp: ``t`` and the product before.

    Returns:
        The new ``product``, f32[].
    """
    return {"product": hp.globals["product"] * _momentum(hp.params, hp.t)}


def update(p: Value, g: Value, s: Mapping[str, Value], hp: Hyper) -> tuple[Value, dict[str, Value]]:
    """One update of every element.

    With ``u(t) = beta1 (1 - 0.96^(t decay) / 2)`` and ``U`` the product of all ``u`` so far:
    ``p <- p - lr ((1 - u(t)) g / (1 - U) + u(t+1) m / (1 - U u(t+1))) / (sqrt(v / (1 - beta2^t)) + eps)``.

    Args:
        p: f32[n]; weights.
        g: f32[n]; gradient.
        s: the state named in :func:`slots`, f32[n].
        hp: ``lr``, ``t`` and ``weight_decay`` of this step.

    Returns:
        New weights, and the new state.
    """
    k: NadamParams = hp.params
    g = coupled(g, p, hp)
    m = s["m"] + (1.0 - k.beta1) * (g - s["m"])
    v = k.beta2 * s["v"] + (1.0 - k.beta2) * (g * g)
    root = ops.sqrt(v) * ops.rsqrt(ops.one_minus_power(k.beta2, hp.t)) + k.eps
    now, after, product = _momentum(k, hp.t), _momentum(k, hp.t + 1.0), hp.shared["product"]
    step = g * ((1.0 - now) / (1.0 - product)) + m * (after / (1.0 - product * after))
    return p - hp.lr * (step / root), {"m": m, "v": v}


NADAM = Optimizer(
    id="training/optimizer/nadam@1",
    title="NAdam",
    summary="Adam with Nesterov's momentum.",
    params=NadamParams,
    source="Dozat, Incorporating Nesterov Momentum into Adam, 2016, algorithm 2, https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ",
    deviation="the schedule of the momentum as torch.optim.NAdam; weight decay is an L2 penalty",
    slots=slots,
    globals=lambda params: {"product": Slot("scalar", init=1.0)},
    phases=(
        Phase("all", advance),
        Phase("elements", update),
    ),
)
