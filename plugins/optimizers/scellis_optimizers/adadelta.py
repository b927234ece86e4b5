"""Adadelta."""

from __future__ import annotations

from collections.abc import Mapping

from scellis_core.plugin import BlockParams, Hyper, Optimizer, ParamInfo, Phase, Slot, Value, field, ops
from scellis_optimizers._decay import coupled


class AdadeltaParams(BlockParams):
    """Parameters of ``training/optimizer/adadelta``."""

    lr: float = field(1.0, gt=0.0, unit="1/step", help="learning rate, before the scheduler's factor")
    rho: float = field(0.9, ge=0.0, lt=1.0, help="decay of both means")
    eps: float = field(1e-6, ge=0.0, help="added to both means inside the root")
    weight_decay: float = field(0.0, ge=0.0, help="L2 penalty: this share of the weights joins the gradient")


def slots(params: AdadeltaParams, info: ParamInfo) -> dict[str, Slot]:
    """``v`` and ``d``: means of squared gradients and of squared steps, zero at first."""
    return {"v": Slot(), "d": Slot()}


def update(p: Value, g: Value, s: Mapping[str, Value], hp: Hyper) -> tuple[Value, dict[str, Value]]:
    """One update of every element.

    ``v <- rho v + (1 - rho) g^2``; ``step = sqrt(d + eps) / sqrt(v + eps) g``; ``d <- rho d + (1 - rho) step^2``;
    ``p <- p - lr step``.

    Args:
        p: f32[n]; weights.
        g: f32[n]; gradient.
        s: the state named in :func:`slots`, f32[n].
        hp: ``lr``, ``t`` and ``weight_decay`` of this step.

    Returns:
        New weights, and the new state.
    """
    k: AdadeltaParams = hp.params
    g = coupled(g, p, hp)
    v = k.rho * s["v"] + (1.0 - k.rho) * (g * g)
    step = ops.sqrt(s["d"] + k.eps) / ops.sqrt(v + k.eps) * g
    d = k.rho * s["d"] + (1.0 - k.rho) * (step * step)
    return p - hp.lr * step, {"v": v, "d": d}


ADADELTA = Optimizer(
    id="training/optimizer/adadelta@1",
    title="Adadelta",
    summary="Step sizes from running means of squared gradients and squared steps.",
    params=AdadeltaParams,
    source="Zeiler, ADADELTA: An Adaptive Learning Rate Method, 2012, algorithm 1, https://arxiv.org/abs/1212.5701",
    deviation="a learning rate, 1 by default, which the paper has not",
    slots=slots,
    phases=(Phase("elements", update),),
)
