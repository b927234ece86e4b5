"""What a run leaves in the store: its row, metrics, checkpoints and environment."""

from __future__ import annotations

import platform
import traceback
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import scellis_core
from scellis_core.store import CheckpointRow, Store
from scellis_core.train.session import Session

FLUSH_EVERY = 50
"""Steps whose metrics are written at once."""


@dataclass
class Saved:
    """A checkpoint that was written: digests of its bundle and of its weights."""

    digest: str
    weights: str


@dataclass
class Recorder:
    """Writes one run's provenance.

    Attributes:
        store: where to.
        run: its id.
        keep: newest checkpoints to keep.
        skipped: updates skipped so far.
        rows: metrics not yet written.
    """

    store: Store
    run: str
    keep: int
    skipped: int = 0
    rows: list[tuple[int, int, str, float]] = field(default_factory=list["tuple[int, int, str, float]"])
    _at: tuple[int, int] = (0, 0)

    def step(self, step: int, epoch: int, loss: float, grad_norm: float, lr: float, applied: bool) -> None:
        """Log one update; written in batches."""
        self.rows += [(step, epoch, "loss", loss), (step, epoch, "grad_norm", grad_norm), (step, epoch, "lr", lr)]
        if not applied:
            self.rows.append((step, epoch, "skipped", 1.0))
        self._at = (step, epoch)
        self.skipped += not applied
        if len(self.rows) >= 3 * FLUSH_EVERY:
            self.flush()

    def metrics(self, step: int, epoch: int, found: dict[str, float]) -> None:
        """Log a validation."""
        self.rows += [(step, epoch, name, value) for name, value in found.items()]
        self.flush()

    def flush(self) -> None:
        """Write what is waiting."""
        if self.rows:
            step, epoch = self._at
            self.store.log(self.run, self.rows, step=step, epoch=epoch, skipped=self.skipped)
        self.rows = []

    def checkpoint(
        self, session: Session, epoch: int, cursor: int, loop: dict[str, Any], metrics: dict[str, float], best: bool
    ) -> Saved:
        """Write a checkpoint of a session whose reports are all in."""
        self.flush()
        row: CheckpointRow = self.store.write_checkpoint(
            self.run,
            session.read(session.weight_names()),
            session.read(session.optimizer_names()),
            keep=self.keep,
            best=best,
            rng_state={"algorithm": "philox4x32", "counter": session.counter},
            epoch=epoch,
            step=session.step,
            cursor=cursor,
            record=session.record.digest,
            metrics=dict(metrics),
            scheduler=dict(session.scheduler_state),
            loop=loop,
        )
        return Saved(row.bundle, row.weights)

    def fail(self, step: int, skipped: int, error: BaseException) -> None:
        """Mark the run ``failed`` with the error's text."""
        self.flush()
        text = "".join(traceback.format_exception_only(error)).strip()
        self.store.end_run(self.run, "failed", step, skipped, text)

    def end(self, state: str, step: int, skipped: int) -> None:
        """Mark the run ``finished`` or ``interrupted``."""
        self.flush()
        self.store.end_run(self.run, state, step, skipped)


def environment(session: Session) -> dict[str, Any]:
    """Device, driver, and versions of everything that shaped the run: core, plugins block by block, libraries."""
    packages = {}
    for name in ("numpy", "wgpu", "safetensors", "pydantic"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    blocks = {}
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
