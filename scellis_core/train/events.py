"""What a run tells its callbacks, as plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RunStarted:
    """A run begins or goes on: its id, the step it starts from, how many there will be."""

    run: str
    step: int
    total: int
    device: str
    planned_bytes: int
    resumed: bool


@dataclass(frozen=True)
class StepDone:
    """An update has been applied or skipped. ``step`` counts from 1; ``rate`` is in examples a second.

    ``reason`` says why it was skipped; empty where it was applied.
    """

    step: int
    total: int
    epoch: int
    loss: float
    grad_norm: float
    lr: float
    applied: bool
    rate: float
    reason: str = ""


@dataclass(frozen=True)
class Validated:
    """Metrics over a split, as ``val_loss`` and so on."""

    step: int
    epoch: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Checkpointed:
    """A checkpoint is in the store."""

    step: int
    epoch: int
    digest: str
    weights: str
    best: bool


@dataclass(frozen=True)
class RunEnded:
    """How a run ended: ``finished``, ``interrupted`` or ``failed``."""

    run: str
    state: str
    step: int
    applied: int
    skipped: int
    metrics: Mapping[str, float]
    reason: str = ""


Event = RunStarted | StepDone | Validated | Checkpointed | RunEnded
