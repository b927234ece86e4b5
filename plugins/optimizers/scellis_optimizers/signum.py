"""Signum."""

from __future__ import annotations

from collections.abc import Mapping

from scellis_core.plugin import BlockParams, Hyper, Optimizer, ParamInfo, Phase, Slot, Value, field, ops
from scellis_optimizers._decay import decoupled


class SignumParams(BlockParams):
    """Parameters of ``training/optimizer/signum``."""

    lr: float = field(1e-4, gt=0.0, unit="1/step", help="learning rate, before the scheduler's factor")
    momentum: float = field(0.9, ge=0.0, lt=1.0, help="decay of the mean of gradients; 0 is signSGD")
    weight_decay: float = field(0.0, ge=0.0, help="share of lr that each update takes off the weights")


def slots(params: SignumParams, info: ParamInfo) -> dict[str, Slot]:
    """``m``: the momentum, zero at first, where there is any."""
    return {"m": Slot()} if params.momentum else {}


def update(p: Value, g: Value, s: Mapping[str, Value], hp: Hyper) -> tuple[Value, dict[str, Value]]:
    """One update of every element.

    ``m <- momentum m + (1 - momentum) g``; ``p <- p (1 - lr decay) - lr sign(m)``.

    Args:
        p: f32[n]; weights.
        g: f32[n]; gradient.
        s: the state named in :func:`slots`, f32[n].
        hp: ``lr``, ``t`` and ``weight_decay`` of this step.

    Returns:
        New weights, and the new state.
    """
    k: SignumParams = hp.params
    if not k.momentum:
        return decoupled(p, hp) - hp.lr * ops.sign(g), {}
    m = k.momentum * s["m"] + (1.0 - k.momentum) * g
    return decoupled(p, hp) - hp.lr * ops.sign(m), {"m": m}


SIGNUM = Optimizer(
    id="training/optimizer/signum@1",
    title="Signum",
    summary="The sign of the momentum.",
    params=SignumParams,
    source="Bernstein, Wang, Azizzadenesheli and Anandkumar, signSGD, 2018, algorithm 2, https://arxiv.org/abs/1802.04434",
    deviation="weight decay is decoupled; the paper adds it inside the sign",
    slots=slots,
    phases=(Phase("elements", update),),
)
