"""What the store hands out: rows of the database and the checkpoint's bundle."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, cast

from scellis_core.errors import StoreError
from scellis_core.rng import ALGORITHM

FORMAT = 1
"""Of a bundle; its ``checkpoint`` key."""


@dataclass(frozen=True)
class RunRow:
    """A run as the store knows it.

    Attributes:
        id: sorts by the time at which the run was made.
        model: name of its model; empty where the record has none.
        record, record_digest: SML text, and the digest of its canonical bytes.
        base: folder that its paths start from.
        state: ``running``, ``finished``, ``failed`` (with ``error``) or ``interrupted``.
        created, updated: seconds since 1970.
        command, device, tier: what started it, on what, how.
        environment: newest facts about device, driver and versions.
        dataset: digest of its data; empty where none is noted.
        epoch, step: as last logged; ``total`` steps are planned.
        skipped: steps that left everything as it was.
    """

    id: str
    model: str
    record: str
    record_digest: str
    base: str
    state: str
    error: str
    created: float
    updated: float
    command: str
    device: str
    tier: str
    environment: Mapping[str, Any]
    dataset: str
    epoch: int
    step: int
    total: int
    skipped: int

    @property
    def applied(self) -> int:
        """Updates that took effect."""
        return self.step - self.skipped


@dataclass(frozen=True)
class CheckpointRow:
    """A checkpoint's place.

    Attributes:
        id: newer ones have greater ids.
        run, step, epoch: whose, and after how many updates.
        bundle: digest of the bundle's object.
        weights: digest of the weights by names, dtypes, shapes and bytes.
        best: whether it is the best so far.
        reason: why it was written.
        created: seconds since 1970.
        objects: digests of the objects of weights and of optimizer state.
    """

    id: int
    run: str
    step: int
    epoch: int
    bundle: str
    weights: str
    best: bool
    reason: str = ""
    created: float = 0.0
    objects: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checkpoint:
    """The bundle: all that a run needs to go on as if it had not stopped.

    Attributes:
        weights, optimizer_state: objects (safetensors) by digest.
        weights_digest: over names, dtypes, shapes and bytes.
        rng_state: ``{"algorithm": "philox4x32", "counter": n}``.
        epoch, step: updates done; ``cursor``: updates within the epoch.
        scheduler, scaler: their states.
        loop: best metrics, stop rule and counts.
        record: digest of the record.
        metrics: newest value of each.
    """

    weights: str
    optimizer_state: str
    weights_digest: str
    rng_state: Mapping[str, Any]
    epoch: int
    step: int
    cursor: int
    record: str
    metrics: Mapping[str, float]
    scheduler: Mapping[str, float] = field(default_factory=dict[str, float])
    scaler: Mapping[str, float] = field(default_factory=dict[str, float])
    loop: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def to_bytes(self) -> bytes:
        """JSON with sorted keys; ``{"float": "nan"}`` stands for a number that JSON has not."""
        data = {"checkpoint": FORMAT, **asdict(self)}
        return json.dumps(_outward(data), sort_keys=True, indent=1, allow_nan=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Checkpoint:
        """The inverse of :meth:`to_bytes`.

        Args:
            data: JSON.
            where: names it in errors.

        Raises:
            StoreError: if it is no bundle, or one of another format or generator.
        """
        try:
            found = cast("dict[str, Any]", _inward(json.loads(data)))
            version = found.pop("checkpoint")
            names = sorted(found)
            algorithm = found["rng_state"]["algorithm"]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise StoreError(where, "a checkpoint bundle", f"{type(error).__name__}: {error}") from error
        if version != FORMAT:
            raise StoreError(where, f"a checkpoint of format {FORMAT}", repr(version), "the Scellis that wrote it")
        if names != sorted(f.name for f in fields(cls)):
            raise StoreError(where, "the keys of a checkpoint", ", ".join(names), "the Scellis that wrote it")
        if algorithm != ALGORITHM:
            raise StoreError(where, f"rng_state of {ALGORITHM}", repr(algorithm))
        return cls(**found)


def _outward(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, Mapping):
        return {str(k): _outward(v) for k, v in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_outward(v) for v in cast("list[Any]", value)]
    return value


def _inward(value: Any) -> Any:
    if isinstance(value, dict):
        held = cast("dict[str, Any]", value)
        if set(held) == {"float"} and isinstance(held["float"], str):
            return float(held["float"])
        return {k: _inward(v) for k, v in held.items()}
    if isinstance(value, list):
        return [_inward(v) for v in cast("list[Any]", value)]
    return value
