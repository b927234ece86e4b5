"""Lion."""

from __future__ import annotations

from collections.abc import Mapping

from scellis_core.plugin import BlockParams, Hyper, Optimizer, ParamInfo, Phase, Slot, Value, field, ops
from scellis_optimizers._decay import decoupled


class LionParams(BlockParams):
    """Parameters of ``training/optimizer/lion``."""

    lr: float = field(1e-4, gt=0.0, unit="1/step", help="learning rate, before the scheduler's factor")
    beta1: float = field(0.9, ge=0.0, lt=1.0, help="share of momentum in the direction")
    beta2: float = field(0.99, ge=0.0, lt=1.0, help="decay of the momentum")
    weight_decay: float = field(0.0, ge=0.0, help="share of lr that each update takes off the weights")


def slots(params: LionParams, info: ParamInfo) -> dict[str, Slot]:
    """``m``: the momentum, zero at first."""
    return {"m": Slot()}


def update(p: Value, g: Value, s: Mapping[str, Value], hp: Hyper) -> tuple[Value, dict[str, Value]]:
    """One update of every element.

    ``p <- p (1 - lr decay) - lr sign(beta1 m + (1 - beta1) g)``; ``m <- beta2 m + (1 - beta2) g``.

    Args:
        p: f32[n]; weights.
        g: f32[n]; gradient.
        s: the state named in :func:`slots`, f32[n].
        hp: ``lr``, ``t`` and ``weight_decay`` of this step.

    Returns:
        New weights, and the new state.
    """
    k: LionParams = hp.params
    step = ops.sign(k.beta1 * s["m"] + (1.0 - k.beta1) * g)
    return decoupled(p, hp) - hp.lr * step, {"m": k.beta2 * s["m"] + (1.0 - k.beta2) * g}


LION = Optimizer(
    id="training/optimizer/lion@1",
    title="Lion",
    summary="The sign of a mix of momentum and gradient.",
    params=LionParams,
    source="Chen et al., Symbolic Discovery of Optimization Algorithms, 2023, algorithm 2, https://arxiv.org/abs/2302.06675",
    slots=slots,
    phases=(Phase("elements", update),),
)
