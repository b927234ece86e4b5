"""Adan."""

from __future__ import annotations

from collections.abc import Mapping

from scellis_core.plugin import BlockParams, Hyper, Optimizer, ParamInfo, Phase, Slot, Value, field, ops


class AdanParams(BlockParams):
    """Parameters of ``training/optimizer/adan``."""

    lr: float = field(1e-3, gt=0.0, unit="1/step", help="learning rate, before the scheduler's factor")
    beta1: float = field(0.98, ge=0.0, lt=1.0, help="decay of the mean of gradients")
    beta2: float = field(0.92, gt=0.0, lt=1.0, help="decay of the mean of differences")
    beta3: float = field(0.99, gt=0.0, lt=1.0, help="decay of the mean of squares")
    eps: float = field(1e-8, ge=0.0, help="added to the root of the mean of squares")
    weight_decay: float = field(0.0, ge=0.0, help="divides by 1 + lr weight_decay after an update")


def slots(params: AdanParams, info: ParamInfo) -> dict[str, Slot]:
    """``m``, ``d``, ``n``: means of gradients, differences, squares; ``last``: the gradient before; zero at first."""
    return {"m": Slot(), "d": Slot(), "n": Slot(), "last": Slot()}


def update(p: Value, g: Value, s: Mapping[str, Value], hp: Hyper) -> tuple[Value, dict[str, Value]]:
    """One update of every element.

    ``e = g - last`` (0 at first); ``m <- beta1 m + (1 - beta1) g``; ``d <- beta2 d + (1 - beta2) e``;
    ``n <- beta3 n + (1 - beta3)(g + beta2 e)^2``;
    ``p <- (p - lr (m' + beta2 d') / (sqrt(n') + eps)) / (1 + lr decay)`` with ``'`` for bias correction.

    Args:
        p: f32[n]; weights.
        g: f32[n]; gradient.
        s: the state named in :func:`slots`, f32[n].
        hp: ``lr``, ``t`` and ``weight_decay`` of this step.

    Returns:
        New weights, and the new state.
    """
    k: AdanParams = hp.params
    e = ops.select(ops.eq(hp.t, 1.0), 0.0, g - s["last"])
    m = s["m"] + (1.0 - k.beta1) * (g - s["m"])
    d = s["d"] + (1.0 - k.beta2) * (e - s["d"])
    ahead = g + k.beta2 * e
    n = k.beta3 * s["n"] + (1.0 - k.beta3) * (ahead * ahead)
    root = ops.sqrt(n) * ops.rsqrt(ops.one_minus_power(k.beta3, hp.t)) + k.eps
    first = m / ops.one_minus_power(k.beta1, hp.t)
    second = d * k.beta2 / ops.one_minus_power(k.beta2, hp.t)
    p = p - hp.lr * ((first + second) / root)
    if not isinstance(hp.weight_decay, float) or hp.weight_decay != 0.0:
        off = hp.lr * hp.weight_decay
        p = p - off / (1.0 + off) * p
    return p, {"m": m, "d": d, "n": n, "last": g}


ADAN = Optimizer(
    id="training/optimizer/adan@1",
    title="Adan",
    summary="Adam with a mean of the gradients' differences, after Nesterov.",
    params=AdanParams,
    source="Xie, Zhou, Li, Lin and Yan, Adan: Adaptive Nesterov Momentum, 2022, algorithm 1, https://arxiv.org/abs/2208.06677",
    deviation="betas are decays (the paper's are one minus that), with bias correction, as its authors' code",
    slots=slots,
    phases=(Phase("elements", update),),
)
