"""Weight decay, coupled and decoupled, shared by the optimizers."""

from __future__ import annotations

from scellis_core.plugin import Hyper, Value


def _none(hp: Hyper) -> bool:
    return isinstance(hp.weight_decay, float) and hp.weight_decay == 0.0


def coupled(g: Value, p: Value, hp: Hyper) -> Value:
    """The gradient with an L2 penalty: ``g + decay p``."""
    return g if _none(hp) else g + hp.weight_decay * p


def decoupled(p: Value, hp: Hyper) -> Value:
    """``p - lr decay p``: the weights with a share taken off.

    Written so rather than as ``p (1 - lr decay)``, whose factor f32 rounds the same way at each step.
    """
    return p if _none(hp) else p - hp.lr * hp.weight_decay * p
