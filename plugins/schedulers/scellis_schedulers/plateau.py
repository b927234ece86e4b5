"""Plateau."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from scellis_core.plugin import BlockParams, DataError, ScheduleContext, Scheduler, field


class PlateauParams(BlockParams):
    """Parameters of ``training/scheduler/plateau``."""

    metric: str = field("val_loss", help="name of the metric, as the run prints it")
    mode: Literal["min", "max"] = field("min", help="whether less or more is better")
    gamma: float = field(0.1, gt=0.0, lt=1.0, help="factor of each fall")
    patience: int = field(10, ge=0, unit="validations", help="validations without improvement before a fall")
    threshold: float = field(1e-4, ge=0.0, help="least improvement that counts")
    threshold_mode: Literal["rel", "abs"] = field(
        "rel", help="whether threshold is a share of the best or a difference"
    )
    cooldown: int = field(0, ge=0, unit="validations", help="validations after a fall that are not counted")
    min_ratio: float = field(0.0, ge=0.0, lt=1.0, help="least factor")


def factor(step: int, params: PlateauParams, ctx: ScheduleContext) -> float:
    """The factor that the validations so far have left.

    Args:
        step: number of the update, from 0, skipped ones counted.
        params: see :class:`PlateauParams`.
        ctx: its ``state``.

    Returns:
        The factor.
    """
    return ctx.state.get("factor", 1.0)


def init_state(params: PlateauParams) -> dict[str, float]:
    """Factor 1, nothing seen yet."""
    return {"factor": 1.0, "bad": 0.0, "cooling": 0.0}


def advance(state: Mapping[str, float], metrics: Mapping[str, float], params: PlateauParams) -> dict[str, float]:
    """The state after a validation.

    Args:
        state: before it.
        metrics: what it found, by name.
        params: see :class:`PlateauParams`.

    Raises:
        DataError: if the metric is not among them.
    """
    if params.metric not in metrics:
        known = ", ".join(sorted(metrics))
        raise DataError("scheduler.metric", "a metric of the run's validation", repr(params.metric), f"one of: {known}")
    value, found = metrics[params.metric], dict(state)
    sign = 1.0 if params.mode == "min" else -1.0
    best = found.get("best")
    margin = params.threshold * (abs(best or 0.0) if params.threshold_mode == "rel" else 1.0)
    if math.isfinite(value) and (best is None or sign * value < sign * best - margin):
        found |= {"best": value, "bad": 0.0}
    else:
        found["bad"] += 1.0
    if found["cooling"] > 0.0:
        found |= {"cooling": found["cooling"] - 1.0, "bad": 0.0}
    if found["bad"] > params.patience:
        found |= {"factor": max(found["factor"] * params.gamma, params.min_ratio), "bad": 0.0}
        found["cooling"] = float(params.cooldown)
    return found


PLATEAU = Scheduler(
    id="training/scheduler/plateau@1",
    title="Plateau",
    summary="Falls when a metric of validation stops improving.",
    params=PlateauParams,
    source="torch.optim.lr_scheduler.ReduceLROnPlateau, https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ReduceLROnPlateau.html",
    deviation="a relative threshold is a share of the best's size, so negative metrics work; the floor is a factor",
    factor=factor,
    init_state=init_state,
    advance=advance,
)
