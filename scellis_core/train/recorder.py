"""What a run leaves in the store: its row, metrics, checkpoints and environment."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import scellis_core
from scellis_core.rng import ALGORITHM
from scellis_core.store import CheckpointRow, Store
from scellis_core.train.session import Session

MOST_ROWS = 200
"""Rows that wait at most before they are written."""

MOST_SECONDS = 5.0
"""Seconds that a row waits at most for the next one to have it written."""


@dataclass
class Recorder:
    """Writes one run's provenance.

    Attributes:
        store: where to.
        run: its id.
        keep: newest checkpoints to keep.
    """

    store: Store
    run: str
    keep: int
    _rows: list[tuple[int, int, str, float]] = field(default_factory=list["tuple[int, int, str, float]"])
    _at: tuple[int, int, int] = (0, 0, 0)
    _flushed: float = field(default_factory=time.monotonic)

    def log(self, step: int, epoch: int, values: Mapping[str, float], skipped: int) -> None:
        """Log what an update or a validation gave; rows are written in batches.

        Args:
            step: updates done.
            epoch: of the last of them, from 0.
            values: by name.
            skipped: updates skipped so far.
        """
        self._rows += [(step, epoch, name, value) for name, value in values.items()]
        self._at = (step, epoch, skipped)
        if len(self._rows) >= MOST_ROWS or time.monotonic() - self._flushed >= MOST_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what is waiting."""
        if self._rows:
            step, epoch, skipped = self._at
            self.store.log(self.run, self._rows, step=step, epoch=epoch, skipped=skipped)
        self._rows = []
        self._flushed = time.monotonic()

    def checkpoint(
        self, session: Session, epoch: int, cursor: int, loop: dict[str, Any], metrics: dict[str, float], best: bool
    ) -> CheckpointRow:
        """Write a checkpoint of a session whose reports are all in."""
        self.flush()
        return self.store.write_checkpoint(
            self.run,
            session.read(session.weight_names()),
            session.read(session.optimizer_names()),
            keep=self.keep,
            best=best,
            rng_state={"algorithm": ALGORITHM, "counter": session.counter},
            epoch=epoch,
            step=session.step,
            cursor=cursor,
            record=session.record.digest,
            metrics=dict(metrics),
            scheduler=dict(session.scheduler_state),
            loop=loop,
        )

    def end(self, state: str, step: int, skipped: int, error: str = "") -> None:
        """Mark the run ``finished``, ``interrupted`` or ``failed``."""
        self.flush()
        self.store.end_run(self.run, state, step, skipped, error)


def environment(session: Session) -> dict[str, Any]:
    """Device, driver, and versions of everything that shaped the run: core, plugins block by block, libraries."""
    packages: dict[str, str] = {}
    for name in ("numpy", "wgpu", "safetensors", "pydantic"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    blocks: dict[str, dict[str, str]] = {}
    for block in session.run.blocks:
        origin = session.run.catalog.origin(block)
        blocks[block] = {"distribution": origin.distribution, "version": origin.version, "sha256": origin.sha256}
    return {
        "scellis": scellis_core.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": packages,
        "blocks": blocks,
        "device": session.executor.describe(),
        "l1": session.compiled.program.meta["l1"],
    }
