"""How a run shows itself: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from scellis_core.train.events import Event, RunEnded, RunStarted, StepDone, Validated

LINE_EVERY = 5.0
"""Seconds between plain lines where there is no terminal."""


def human_bytes(count: int) -> str:
    """``1.5 MiB``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.2f} {unit}"
        size /= 1024
    return str(count)


def metric_line(metrics: Mapping[str, float]) -> str:
    """``val_accuracy 0.9731 val_loss 0.0912 loss 0.1``: validation first, by name."""
    names = sorted(metrics, key=lambda n: (n == "loss", n))
    return " ".join(f"{n} {metrics[n]:.6g}" for n in names)


class Reporter:
    """A callback that prints a run's progress on stderr."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._line_at = 0.0
        self._skipped = 0

    def __call__(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, RunStarted):
            self._start(event)
        elif isinstance(event, StepDone):
            self._step(event)
        elif isinstance(event, Validated):
            self._print(f"epoch {event.epoch + 1} step {event.step}: {metric_line(event.metrics)}")
        elif isinstance(event, RunEnded):
            self.close()

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _print(self, text: str) -> None:
        (self._bar.console if self._bar else self.console).print(text, highlight=False, soft_wrap=True)

    def _start(self, event: RunStarted) -> None:
        verb = f"goes on at step {event.step}" if event.resumed or event.step else "starts"
        self._print(f"run {event.run} {verb} on {event.device}; memory planned {human_bytes(event.planned_bytes)}")
        if self.console.is_terminal:
            self._bar = Progress(
                TextColumn("epoch {task.fields[epoch]}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("loss {task.fields[loss]}  lr {task.fields[lr]}  {task.fields[rate]}/s{task.fields[skipped]}"),
                TimeRemainingColumn(),
                TextColumn(human_bytes(event.planned_bytes)),
                console=self.console,
                refresh_per_second=5,
            )
            fields = {"epoch": "-", "loss": "-", "lr": "-", "rate": "-", "skipped": ""}
            self._task = self._bar.add_task("", total=event.total, completed=event.step, **fields)
            self._bar.start()

    def _step(self, event: StepDone) -> None:
        self._skipped += not event.applied
        if not event.applied:
            self._print(f"step {event.step}: gradients were not finite; the update was skipped")
        skipped = f"  skipped {self._skipped}" if self._skipped else ""
        if self._bar is not None:
            self._bar.update(
                self._task, completed=event.step, epoch=event.epoch + 1, loss=f"{event.loss:.4f}",
                lr=f"{event.lr:.2e}", rate=f"{event.rate:.0f}", skipped=skipped,
            )  # fmt: skip
            return
        now = time.monotonic()
        if now - self._line_at >= LINE_EVERY or event.step == event.total:
            self._line_at = now
            self._print(
                f"step {event.step}/{event.total} epoch {event.epoch + 1} loss {event.loss:.4f} lr {event.lr:.2e}"
                f" {event.rate:.0f} examples/s{skipped}"
            )
