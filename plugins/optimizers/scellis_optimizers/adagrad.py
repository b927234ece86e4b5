"""Adagrad."""

from __future__ import annotations

from collections.abc import Mapping

from scellis_core.plugin import BlockParams, Hyper, Optimizer, ParamInfo, Phase, Slot, Value, field, ops
from scellis_optimizers._decay import coupled


class AdagradParams(BlockParams):
    """Parameters of ``training/optimizer/adagrad``."""

    lr: float = field(1e-2, gt=0.0, unit="1/step", help="learning rate, before the scheduler's factor")
    lr_decay: float = field(0.0, ge=0.0, help="decay of the learning rate: lr / (1 + (t - 1) lr_decay)")
    initial: float = field(0.0, ge=0.0, help="start of the sum of squares")
    eps: float = field(1e-10, ge=0.0, help="added to the root of the sum")
    weight_decay: float = field(0.0, ge=0.0, help="L2 penalty: this share of the weights joins the gradient")


def slots(params: AdagradParams, info: ParamInfo) -> dict[str, Slot]:
    """``total``: the sum of squared gradients, ``initial`` at first."""
    return {"total": Slot(init=params.initial)}


def update(p: Value, g: Value, s: Mapping[str, Value], hp: Hyper) -> tuple[Value, dict[str, Value]]:
    """One update of every element.

    ``total <- total + g^2``; ``p <- p - lr / (1 + (t - 1) lr_decay) g / (sqrt(total) + eps)``.

    Args:
        p: f32[n]; weights.
        g: f32[n]; gradient.
        s: the state named in :func:`slots`, f32[n].
        hp: ``lr``, ``t`` and ``weight_decay`` of this step.

    Returns:
        New weights, and the new state.
    """
    k: AdagradParams = hp.params
    g = coupled(g, p, hp)
    total = s["total"] + g * g
    lr = hp.lr / (1.0 + (hp.t - 1.0) * k.lr_decay) if k.lr_decay else hp.lr
    return p - lr * (g / (ops.sqrt(total) + k.eps)), {"total": total}


ADAGRAD = Optimizer(
    id="training/optimizer/adagrad@1",
    title="Adagrad",
    summary="Step sizes from the sum of squared gradients so far.",
    params=AdagradParams,
    source="Duchi, Hazan and Singer, Adaptive Subgradient Methods, 2011, section 1.1, https://jmlr.org/papers/v12/duchi11a.html",
    deviation="the diagonal form; eps and lr_decay as torch.optim.Adagrad",
    slots=slots,
    phases=(Phase("elements", update),),
)
