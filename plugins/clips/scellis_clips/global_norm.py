"""Gradient clipping by global norm."""

from __future__ import annotations

from collections.abc import Mapping

from scellis_core.plugin import BlockParams, Clip, Hyper, Phase, Value, field, ops


class GlobalNormParams(BlockParams):
    """Parameters of ``training/clip/global_norm``."""

    max_norm: float = field(gt=0.0, help="largest L2 norm of all gradients together")


def scale(p: Value, g: Value, s: Mapping[str, Value], hp: Hyper) -> tuple[Value, dict[str, Value]]:
    """``g <- g min(1, max_norm / (norm + 1e-6))`` with the norm over all gradients.

    Args:
        p: f32[n]; weights, unused.
        g: f32[n]; gradient.
        s: empty.
        hp: ``grad_norm`` of this step.

    Returns:
        The scaled gradient, and no slots.
    """
    k: GlobalNormParams = hp.params
    coefficient = k.max_norm / (hp.grad_norm + 1e-6)
    return g * ops.select(coefficient < 1.0, coefficient, 1.0), {}


GLOBAL_NORM = Clip(
    id="training/clip/global_norm@1",
    title="Global norm",
    summary="Scales all gradients by one factor where their common L2 norm is above a bound.",
    params=GlobalNormParams,
    source="Pascanu, Mikolov and Bengio, On the Difficulty of Training Recurrent Neural Networks, 2013, "
    "algorithm 1, https://arxiv.org/abs/1211.5063; numbers as torch.nn.utils.clip_grad_norm_",
    deviation="1e-6 is added to the norm, as PyTorch's; the paper has none",
    phases=(Phase("elements", scale),),
)
