"""RMSprop."""

from __future__ import annotations

from collections.abc import Mapping

from scellis_core.plugin import BlockParams, Hyper, Optimizer, ParamInfo, Phase, Slot, Value, field, ops
from scellis_optimizers._decay import coupled


class RmspropParams(BlockParams):
    """Parameters of ``training/optimizer/rmsprop``."""

    lr: float = field(1e-2, gt=0.0, unit="1/step", help="learning rate, before the scheduler's factor")
    alpha: float = field(0.99, ge=0.0, lt=1.0, help="decay of the mean of squared gradients")
    momentum: float = field(0.0, ge=0.0, lt=1.0, help="share of the last step that is kept")
    centered: bool = field(False, help="divide by the root of the variance rather than of the mean square")
    eps: float = field(1e-8, ge=0.0, help="added to the root")
    weight_decay: float = field(0.0, ge=0.0, help="L2 penalty: this share of the weights joins the gradient")


def slots(params: RmspropParams, info: ParamInfo) -> dict[str, Slot]:
    """``v``; ``m`` (mean of gradients) where centered; ``momentum`` where there is any; zero at first."""
    return (
        {"v": Slot()} | ({"m": Slot()} if params.centered else {}) | ({"momentum": Slot()} if params.momentum else {})
    )


def update(p: Value, g: Value, s: Mapping[str, Value], hp: Hyper) -> tuple[Value, dict[str, Value]]:
    """One update of every element.

    ``v <- alpha v + (1 - alpha) g^2``; ``step = g / (sqrt(v) + eps)``, with ``v - m^2`` for ``v`` where centered;
    ``b <- momentum b + step``; ``p <- p - lr b``.

    Args:
        p: f32[n]; weights.
        g: f32[n]; gradient.
        s: the state named in :func:`slots`, f32[n].
        hp: ``lr``, ``t`` and ``weight_decay`` of this step.

    Returns:
        New weights, and the new state.
    """
    k: RmspropParams = hp.params
    g = coupled(g, p, hp)
    v = k.alpha * s["v"] + (1.0 - k.alpha) * (g * g)
    kept, spread = {"v": v}, v
    if k.centered:
        kept["m"] = s["m"] + (1.0 - k.alpha) * (g - s["m"])
        spread = v - kept["m"] * kept["m"]
    step = g / (ops.sqrt(ops.max(spread, 0.0)) + k.eps)
    if k.momentum:
        step = kept["momentum"] = k.momentum * s["momentum"] + step
    return p - hp.lr * step, kept


RMSPROP = Optimizer(
    id="training/optimizer/rmsprop@1",
    title="RMSprop",
    summary="Step sizes from a running mean of squared gradients.",
    params=RmspropParams,
    source="Hinton, Srivastava and Swersky, Neural Networks for Machine Learning, lecture 6e, 2012, "
    "https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf; centered: Graves, 2013, equation 38, "
    "https://arxiv.org/abs/1308.0850",
    deviation="eps outside the root, as torch.optim.RMSprop; Graves puts it inside",
    slots=slots,
    phases=(Phase("elements", update),),
)
