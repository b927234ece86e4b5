"""Adam, with weight decay as an L2 penalty."""

from __future__ import annotations

from collections.abc import Mapping

from scellis_core.plugin import BlockParams, Hyper, Optimizer, ParamInfo, Phase, Slot, Value, field, ops
from scellis_optimizers._decay import coupled


class AdamParams(BlockParams):
    """Parameters of ``training/optimizer/adam``."""

    lr: float = field(1e-3, gt=0.0, unit="1/step", help="learning rate, before the scheduler's factor")
    beta1: float = field(0.9, ge=0.0, lt=1.0, help="decay of the mean of gradients")
    beta2: float = field(0.999, gt=0.0, lt=1.0, help="decay of the mean of squared gradients")
    eps: float = field(1e-8, ge=0.0, help="added to the root of the second moment")
    amsgrad: bool = field(False, help="divide by the greatest second moment so far")
    weight_decay: float = field(0.0, ge=0.0, help="L2 penalty: this share of the weights joins the gradient")


def slots(params: AdamParams, info: ParamInfo) -> dict[str, Slot]:
    """``m`` and ``v``: running means of the gradient and of its square, zero at first; ``top`` with amsgrad."""
    return {"m": Slot(), "v": Slot()} | ({"top": Slot()} if params.amsgrad else {})


def update(p: Value, g: Value, s: Mapping[str, Value], hp: Hyper) -> tuple[Value, dict[str, Value]]:
    """One update of every element.

    ``g <- g + decay p``; ``m <- m + (1 - beta1)(g - m)``; ``v <- beta2 v + (1 - beta2) g^2``;
    ``p <- p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)``; with amsgrad the greatest ``v`` so far
    stands for ``v`` in the last.

    Args:
        p: f32[n]; weights.
        g: f32[n]; gradient.
        s: ``m``, ``v`` and, with amsgrad, ``top``, f32[n].
        hp: ``lr``, ``t`` and ``weight_decay`` of this step.

    Returns:
        New weights, and the new state.
    """
    k: AdamParams = hp.params
    g = coupled(g, p, hp)
    m = s["m"] + (1.0 - k.beta1) * (g - s["m"])
    v = k.beta2 * s["v"] + (1.0 - k.beta2) * (g * g)
    kept = {"m": m, "v": v}
    if k.amsgrad:
        v = kept["top"] = ops.max(s["top"], v)
    step = hp.lr / ops.one_minus_power(k.beta1, hp.t)
    root = ops.rsqrt(ops.one_minus_power(k.beta2, hp.t))
    return p - step * (m / (ops.sqrt(v) * root + k.eps)), kept


ADAM = Optimizer(
    id="training/optimizer/adam@1",
    title="Adam",
    summary="Step sizes from running means of the gradient and of its square.",
    params=AdamParams,
    source="Kingma and Ba, Adam: A Method for Stochastic Optimization, 2015, algorithm 1, "
    "https://arxiv.org/abs/1412.6980; amsgrad: Reddi, Kale and Kumar, 2018, algorithm 2, "
    "https://openreview.net/forum?id=ryQu7f-RZ; epsilon and order of operations as torch.optim.Adam",
    deviation="weight decay, which the paper lacks, is coupled as an L2 penalty",
    slots=slots,
    phases=(Phase("elements", update),),
)
