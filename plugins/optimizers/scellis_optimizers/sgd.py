"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Mapping

from scellis_core.plugin import BlockParams, Hyper, Optimizer, ParamInfo, Phase, Slot, Value, field, ops
from scellis_optimizers._decay import coupled


class SgdParams(BlockParams):
    """Parameters of ``training/optimizer/sgd``."""

    lr: float = field(1e-2, gt=0.0, unit="1/step", help="learning rate, before the scheduler's factor")
    momentum: float = field(0.0, ge=0.0, le=1.0, help="share of the last step that is kept")
    dampening: float = field(0.0, ge=0.0, lt=1.0, help="share of the gradient kept out of the momentum")
    nesterov: bool = field(False, help="look ahead along the momentum")
    weight_decay: float = field(0.0, ge=0.0, help="L2 penalty: this share of the weights joins the gradient")

    def problem(self) -> str | None:
        """Nesterov's form has momentum and no dampening."""
        if self.nesterov and (self.momentum == 0.0 or self.dampening != 0.0):
            return f"nesterov needs momentum > 0 and dampening 0, not {self.momentum:g} and {self.dampening:g}"
        return None


def slots(params: SgdParams, info: ParamInfo) -> dict[str, Slot]:
    """``momentum``, zero at first, where there is any."""
    return {"momentum": Slot()} if params.momentum else {}


def update(p: Value, g: Value, s: Mapping[str, Value], hp: Hyper) -> tuple[Value, dict[str, Value]]:
    """One update of every element.

    ``g <- g + decay p``; ``b <- momentum b + (1 - dampening) g`` (at the first update ``b <- g``);
    ``p <- p - lr b``, or ``p - lr (g + momentum b)`` with Nesterov.

    Args:
        p: f32[n]; weights.
        g: f32[n]; gradient.
        s: ``momentum``, f32[n], where there is any.
        hp: ``lr``, ``t`` and ``weight_decay`` of this step.

    Returns:
        New weights, and the new ``momentum``.
    """
    k: SgdParams = hp.params
    g = coupled(g, p, hp)
    if not k.momentum:
        return p - hp.lr * g, {}
    b = k.momentum * s["momentum"] + (g * (1.0 - k.dampening) if k.dampening else g)
    if k.dampening:
        b = ops.select(ops.eq(hp.t, 1.0), g, b)
    step = g + k.momentum * b if k.nesterov else b
    return p - hp.lr * step, {"momentum": b}


SGD = Optimizer(
    id="training/optimizer/sgd@1",
    title="SGD",
    summary="Gradient descent with momentum, Nesterov's momentum, dampening and L2 weight decay.",
    params=SgdParams,
    source="Sutskever, Martens, Dahl and Hinton, On the Importance of Initialization and Momentum, 2013, "
    "section 2, https://proceedings.mlr.press/v28/sutskever13.html; numbers as torch.optim.SGD",
    deviation="lr multiplies the momentum at each step, as PyTorch's, rather than the gradient inside it",
    slots=slots,
    phases=(Phase("elements", update),),
)
