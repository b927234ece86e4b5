"""RAdam."""

from __future__ import annotations

import math
from collections.abc import Mapping

from scellis_core.plugin import BlockParams, Hyper, Optimizer, ParamInfo, Phase, Slot, Value, field, ops
from scellis_optimizers._decay import coupled


class RadamParams(BlockParams):
    """Parameters of ``training/optimizer/radam``."""

    lr: float = field(1e-3, gt=0.0, unit="1/step", help="learning rate, before the scheduler's factor")
    beta1: float = field(0.9, ge=0.0, lt=1.0, help="decay of the mean of gradients")
    beta2: float = field(0.999, gt=0.0, lt=1.0, help="decay of the mean of squared gradients")
    eps: float = field(1e-8, ge=0.0, help="added to the root of the second moment")
    weight_decay: float = field(0.0, ge=0.0, help="L2 penalty: this share of the weights joins the gradient")


def slots(params: RadamParams, info: ParamInfo) -> dict[str, Slot]:
    """``m`` and ``v``: as Adam's, zero at first."""
    return {"m": Slot(), "v": Slot()}


def _lengths(beta2: float, t: Value) -> tuple[float, Value]:
    """``r_inf`` and ``r``; the latter without the cancellation of its two large terms.

    With ``x = -t log(beta2)`` it is ``r_inf - 2 t / (e^x - 1)``, and ``1 / (e^x - 1) = 1 / x - 1/2 + x/12 - ...``.
    """
    most = 2.0 / (1.0 - beta2) - 1.0
    rate = -math.log(beta2)
    x = t * rate
    square = x * x
    tail = 1.0 / 30240.0 - square * (1.0 / 1209600.0 - square * (1.0 / 47900160.0))
    series = -0.5 + x * (1.0 / 12.0 - square * (1.0 / 720.0 - square * tail))
    near = (most - 2.0 / rate) - 2.0 * t * series
    far = most - 2.0 * t / ops.expm1(ops.max(x, 0.5))
    return most, ops.select(x < 0.5, near, far)


def update(p: Value, g: Value, s: Mapping[str, Value], hp: Hyper) -> tuple[Value, dict[str, Value]]:
    """One update of every element.

    With ``r_inf = 2 / (1 - beta2) - 1`` and ``r = r_inf - 2 t beta2^t / (1 - beta2^t)``: where ``r > 5`` it is
    ``p - lr m' sqrt((r - 4)(r - 2) r_inf / ((r_inf - 4)(r_inf - 2) r)) sqrt(1 - beta2^t) / (sqrt(v) + eps)``, else
    ``p - lr m'``; ``m'`` is ``m`` with bias correction.

    Args:
        p: f32[n]; weights.
        g: f32[n]; gradient.
        s: the state named in :func:`slots`, f32[n].
        hp: ``lr``, ``t`` and ``weight_decay`` of this step.

    Returns:
        New weights, and the new state.
    """
    k: RadamParams = hp.params
    g = coupled(g, p, hp)
    m = s["m"] + (1.0 - k.beta1) * (g - s["m"])
    v = k.beta2 * s["v"] + (1.0 - k.beta2) * (g * g)
    most, length = _lengths(k.beta2, hp.t)
    sure = length > 5.0
    safe = ops.select(sure, length, 6.0)
    scale = most / ((most - 4.0) * (most - 2.0)) if most > 4.0 else 0.0
    rectify = ops.sqrt((safe - 4.0) * (safe - 2.0) / safe * scale * ops.one_minus_power(k.beta2, hp.t))
    adaptive = ops.select(sure, rectify / (ops.sqrt(v) + k.eps), 1.0)
    return p - hp.lr / ops.one_minus_power(k.beta1, hp.t) * (m * adaptive), {"m": m, "v": v}


RADAM = Optimizer(
    id="training/optimizer/radam@1",
    title="RAdam",
    summary="Adam whose step is rectified while its second moment is uncertain.",
    params=RadamParams,
    source="Liu et al., On the Variance of the Adaptive Learning Rate and Beyond, 2020, algorithm 2, https://arxiv.org/abs/1908.03265",
    deviation="weight decay is an L2 penalty and the threshold is 5, as torch.optim.RAdam; the paper has 4",
    slots=slots,
    phases=(Phase("elements", update),),
)
