"""ADOPT."""

from __future__ import annotations

from collections.abc import Mapping

from scellis_core.plugin import BlockParams, Hyper, Optimizer, ParamInfo, Phase, Slot, Value, field, ops
from scellis_optimizers._decay import decoupled


class AdoptParams(BlockParams):
    """Parameters of ``training/optimizer/adopt``."""

    lr: float = field(1e-3, gt=0.0, unit="1/step", help="learning rate, before the scheduler's factor")
    beta1: float = field(0.9, ge=0.0, lt=1.0, help="decay of the mean of gradients")
    beta2: float = field(0.9999, gt=0.0, lt=1.0, help="decay of the mean of squared gradients")
    eps: float = field(1e-6, ge=0.0, help="least root of the second moment")
    clip: bool = field(True, help="cut normalised gradients at the fourth root of the number of updates before")
    weight_decay: float = field(0.0, ge=0.0, help="share of lr that each update takes off the weights")


def slots(params: AdoptParams, info: ParamInfo) -> dict[str, Slot]:
    """``m``: mean of normalised gradients; ``v``: of squared gradients; zero at first."""
    return {"m": Slot(), "v": Slot()}


def update(p: Value, g: Value, s: Mapping[str, Value], hp: Hyper) -> tuple[Value, dict[str, Value]]:
    """One update of every element.

    The first update only sets ``v <- g^2``. Later ``n = g / max(sqrt(v), eps)``, cut at ``(t - 1)^(1/4)``;
    ``m <- beta1 m + (1 - beta1) n``; ``p <- p (1 - lr decay) - lr m``; ``v <- beta2 v + (1 - beta2) g^2``.

    Args:
        p: f32[n]; weights.
        g: f32[n]; gradient.
        s: the state named in :func:`slots`, f32[n].
        hp: ``lr``, ``t`` and ``weight_decay`` of this step.

    Returns:
        New weights, and the new state.
    """
    k: AdoptParams = hp.params
    first = ops.eq(hp.t, 1.0)
    normal = g / ops.max(ops.sqrt(s["v"]), k.eps)
    if k.clip:
        most = ops.sqrt(ops.sqrt(hp.t - 1.0))
        normal = ops.clamp(normal, -most, most)
    m = ops.select(first, s["m"], s["m"] + (1.0 - k.beta1) * (normal - s["m"]))
    v = ops.select(first, g * g, k.beta2 * s["v"] + (1.0 - k.beta2) * (g * g))
    return ops.select(first, p, decoupled(p, hp) - hp.lr * m), {"m": m, "v": v}


ADOPT = Optimizer(
    id="training/optimizer/adopt@1",
    title="ADOPT",
    summary="Adam that normalises by the second moment of the steps before.",
    params=AdoptParams,
    source="Taniguchi et al., ADOPT: Modified Adam Can Converge with Any beta2, 2024, algorithm 2, https://arxiv.org/abs/2411.02853",
    deviation="weight decay is decoupled",
    slots=slots,
    phases=(Phase("elements", update),),
)
