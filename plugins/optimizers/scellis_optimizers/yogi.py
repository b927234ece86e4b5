"""Yogi."""

from __future__ import annotations

from collections.abc import Mapping

from scellis_core.plugin import BlockParams, Hyper, Optimizer, ParamInfo, Phase, Slot, Value, field, ops
from scellis_optimizers._decay import coupled


class YogiParams(BlockParams):
    """Parameters of ``training/optimizer/yogi``."""

    lr: float = field(1e-2, gt=0.0, unit="1/step", help="learning rate, before the scheduler's factor")
    beta1: float = field(0.9, ge=0.0, lt=1.0, help="decay of the mean of gradients")
    beta2: float = field(0.999, gt=0.0, lt=1.0, help="decay of the mean of squared gradients")
    initial: float = field(1e-6, ge=0.0, help="start of the second moment")
    eps: float = field(1e-3, ge=0.0, help="added to the root of the second moment")
    weight_decay: float = field(0.0, ge=0.0, help="L2 penalty: this share of the weights joins the gradient")


def slots(params: YogiParams, info: ParamInfo) -> dict[str, Slot]:
    """``m`` and ``v``: as Adam's, both ``initial`` at first."""
    return {"m": Slot(init=params.initial), "v": Slot(init=params.initial)}


def update(p: Value, g: Value, s: Mapping[str, Value], hp: Hyper) -> tuple[Value, dict[str, Value]]:
    """One update of every element.

    ``m <- m + (1 - beta1)(g - m)``; ``v <- v - (1 - beta2) sign(v - g^2) g^2``;
    ``p <- p - lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps)``.

    Args:
        p: f32[n]; weights.
        g: f32[n]; gradient.
        s: the state named in :func:`slots`, f32[n].
        hp: ``lr``, ``t`` and ``weight_decay`` of this step.

    Returns:
        New weights, and the new state.
    """
    k: YogiParams = hp.params
    g = coupled(g, p, hp)
    m = s["m"] + (1.0 - k.beta1) * (g - s["m"])
    square = g * g
    v = s["v"] - (1.0 - k.beta2) * ops.sign(s["v"] - square) * square
    step = hp.lr / ops.one_minus_power(k.beta1, hp.t)
    root = ops.rsqrt(ops.one_minus_power(k.beta2, hp.t))
    return p - step * (m / (ops.sqrt(v) * root + k.eps)), {"m": m, "v": v}


YOGI = Optimizer(
    id="training/optimizer/yogi@1",
    title="Yogi",
    summary="Adam whose second moment moves by steps of bounded size.",
    params=YogiParams,
    source="Zaheer, Reddi, Sachan, Kale and Kumar, Adaptive Methods for Nonconvex Optimization, 2018, algorithm 2, "
    "https://papers.nips.cc/paper/8186-adaptive-methods-for-nonconvex-optimization",
    deviation="bias correction, which the paper leaves out; both moments start at initial, as its authors' code",
    slots=slots,
    phases=(Phase("elements", update),),
)
