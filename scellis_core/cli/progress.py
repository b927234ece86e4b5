"""How a run shows itself on stderr: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from scellis_core.cli.text import human_bytes, human_time, metric_line, number
from scellis_core.train.events import Checkpointed, Event, RunEnded, RunStarted, StepDone, Validated

LINE_EVERY = 2.0
"""Seconds between plain lines where there is no terminal."""

NAMED_SKIPS = 3
"""Skipped updates that get a line of their own; the rest are counted."""


class Reporter:
    """A callback that prints a run's progress.

    Args:
        console: where to; stderr where None.
        clock: seconds, for tests.
    """

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console or Console(stderr=True)
        self._clock = clock
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._from = (0, 0.0)
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
        elif isinstance(event, Checkpointed):
            if event.best:
                self._print(f"step {event.step}: best so far, kept")
        elif isinstance(event, RunEnded):  # pyright: ignore[reportUnnecessaryIsInstance]
            self.close()

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _print(self, line: str) -> None:
        console = self._bar.console if self._bar else self.console
        console.print(line, highlight=False, soft_wrap=True, markup=False, emoji=False)

    def _start(self, event: RunStarted) -> None:
        verb = f"goes on from step {event.step}" if event.resumed or event.step else "starts"
        memory = human_bytes(event.planned_bytes)
        self._print(f"run {event.run} {verb} on {event.device}: {event.total} steps, peak memory {memory}")
        self._from = (event.step, self._clock())
        if not self.console.is_terminal:
            return
        self._bar = Progress(
            MofNCompleteColumn(),
            BarColumn(bar_width=20),
            TextColumn("{task.description}", markup=False),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            TextColumn(f"memory {memory}", markup=False),
            console=self.console,
            refresh_per_second=5,
        )
        self._task = self._bar.add_task("first step", total=event.total, completed=event.step)
        self._bar.start()

    def _step(self, event: StepDone) -> None:
        if not event.applied:
            self._skipped += 1
            if self._skipped <= NAMED_SKIPS:
                more = "; further ones are counted only" if self._skipped == NAMED_SKIPS else ""
                self._print(f"step {event.step}: {event.reason}, the update is skipped{more}")
        details = f"epoch {event.epoch + 1} loss {number(event.loss)} lr {event.lr:.2e} {event.rate:.0f} examples/s"
        details += f" skipped {self._skipped}" if self._skipped else ""
        if self._bar is not None:
            self._bar.update(self._task, completed=event.step, description=details)
            return
        now = self._clock()
        if now - self._line_at >= LINE_EVERY or event.step == event.total:
            self._line_at = now
            self._print(f"step {event.step}/{event.total} {details} ETA {self._remaining(event, now)}")

    def _remaining(self, event: StepDone, now: float) -> str:
        start, at = self._from
        return human_time((now - at) / max(event.step - start, 1) * (event.total - event.step))
