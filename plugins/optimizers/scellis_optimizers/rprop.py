"""Rprop."""

from __future__ import annotations

from collections.abc import Mapping

from scellis_core.plugin import BlockParams, Hyper, Optimizer, ParamInfo, Phase, Slot, Value, field, ops


class RpropParams(BlockParams):
    """Parameters of ``training/optimizer/rprop``."""

    lr: float = field(1e-2, gt=0.0, unit="1/step", help="learning rate, before the scheduler's factor")
    shrink: float = field(0.5, gt=0.0, lt=1.0, help="factor of a step size where the sign turns")
    grow: float = field(1.2, gt=1.0, help="factor of a step size where the sign stays")
    least: float = field(1e-6, gt=0.0, help="least step size, at a scheduler's factor of 1")
    most: float = field(50.0, gt=0.0, help="greatest step size, at a scheduler's factor of 1")


def slots(params: RpropParams, info: ParamInfo) -> dict[str, Slot]:
    """``last``: the gradient before, zero at first; ``size``: the step size, ``lr`` at first."""
    return {"last": Slot(), "size": Slot(init=params.lr)}


def update(p: Value, g: Value, s: Mapping[str, Value], hp: Hyper) -> tuple[Value, dict[str, Value]]:
    """One update of every element.

    ``size <- size`` times grow, shrink or 1 as ``g last`` is positive, negative or 0, between least and most; where
    it is negative ``g <- 0``; ``p <- p - sign(g) size``, times the scheduler's factor.

    Args:
        p: f32[n]; weights.
        g: f32[n]; gradient.
        s: the state named in :func:`slots`, f32[n].
        hp: ``lr``, ``t`` and ``weight_decay`` of this step.

    Returns:
        New weights, and the new state.
    """
    k: RpropParams = hp.params
    product = g * s["last"]
    factor = ops.select(product > 0.0, k.grow, ops.select(product < 0.0, k.shrink, 1.0))
    size = ops.clamp(s["size"] * factor, k.least, k.most)
    g = ops.select(product < 0.0, 0.0, g)
    return p - hp.lr * (1.0 / k.lr) * (ops.sign(g) * size), {"last": g, "size": size}


RPROP = Optimizer(
    id="training/optimizer/rprop@1",
    title="Rprop",
    summary="Step sizes of their own, grown while the sign of a gradient stays and shrunk where it turns.",
    params=RpropParams,
    source="Riedmiller and Braun, A Direct Adaptive Method for Faster Backpropagation Learning, 1993, "
    "https://doi.org/10.1109/ICNN.1993.298623; the form without going back, as torch.optim.Rprop",
    deviation="meant for whole batches; the scheduler's factor scales the steps, which the paper does not have",
    slots=slots,
    phases=(Phase("elements", update),),
)
