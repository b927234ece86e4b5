"""Adamax."""

from __future__ import annotations

from collections.abc import Mapping

from scellis_core.plugin import BlockParams, Hyper, Optimizer, ParamInfo, Phase, Slot, Value, field, ops
from scellis_optimizers._decay import coupled


class AdamaxParams(BlockParams):
    """Parameters of ``training/optimizer/adamax``."""

    lr: float = field(2e-3, gt=0.0, unit="1/step", help="learning rate, before the scheduler's factor")
    beta1: float = field(0.9, ge=0.0, lt=1.0, help="decay of the mean of gradients")
    beta2: float = field(0.999, gt=0.0, lt=1.0, help="decay of the greatest gradient")
    eps: float = field(1e-8, ge=0.0, help="added to the size of each gradient")
    weight_decay: float = field(0.0, ge=0.0, help="L2 penalty: this share of the weights joins the gradient")


def slots(params: AdamaxParams, info: ParamInfo) -> dict[str, Slot]:
    """``m`` and ``u``: the mean of gradients and their decaying greatest size, zero at first."""
    return {"m": Slot(), "u": Slot()}


def update(p: Value, g: Value, s: Mapping[str, Value], hp: Hyper) -> tuple[Value, dict[str, Value]]:
    """One update of every element.

    ``m <- m + (1 - beta1)(g - m)``; ``u <- max(beta2 u, |g| + eps)``; ``p <- p - lr / (1 - beta1^t) m / u``.

    Args:
        p: f32[n]; weights.
        g: f32[n]; gradient.
        s: the state named in :func:`slots`, f32[n].
        hp: ``lr``, ``t`` and ``weight_decay`` of this step.

    Returns:
        New weights, and the new state.
    """
    k: AdamaxParams = hp.params
    g = coupled(g, p, hp)
    m = s["m"] + (1.0 - k.beta1) * (g - s["m"])
    u = ops.max(k.beta2 * s["u"], ops.abs(g) + k.eps)
    return p - hp.lr / ops.one_minus_power(k.beta1, hp.t) * (m / u), {"m": m, "u": u}


ADAMAX = Optimizer(
    id="training/optimizer/adamax@1",
    title="Adamax",
    summary="Adam with the greatest gradient of late instead of the root mean square.",
    params=AdamaxParams,
    source="Kingma and Ba, Adam: A Method for Stochastic Optimization, 2015, algorithm 2, https://arxiv.org/abs/1412.6980",
    deviation="eps is added to the size of the gradient, as torch.optim.Adamax; the paper has none",
    slots=slots,
    phases=(Phase("elements", update),),
)
