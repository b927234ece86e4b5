"""The host loop: steps, validation, early stopping, checkpoints, and a true state at every end."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import Any

from scellis_core.train.events import Checkpointed, Event, RunEnded, RunStarted, StepDone, Validated
from scellis_core.train.executors import Pending
from scellis_core.train.recorder import Recorder
from scellis_core.train.session import Session

LAG = 2
"""Updates that may be under way before the oldest report is waited for."""


@dataclass
class LoopState:
    """What a checkpoint keeps besides tensors and the step.

    Attributes:
        best: best value so far of the metrics that ``stop`` and ``checkpoint.best`` watch, by rule.
        stale: validations since the stop rule's metric last improved.
        skipped: updates skipped for non-finite gradients.
        metrics: newest value of each metric.
    """

    best: dict[str, float] = field(default_factory=dict[str, float])
    stale: int = 0
    skipped: int = 0
    metrics: dict[str, float] = field(default_factory=dict[str, float])

    def to_json(self) -> dict[str, Any]:
        """Plain data for the checkpoint."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LoopState:
        """The inverse of :meth:`to_json`."""
        return cls(dict(data["best"]), int(data["stale"]), int(data["skipped"]), dict(data["metrics"]))


@dataclass(frozen=True)
class _UnderWay:
    """An update whose report is not in yet."""

    step: int
    epoch: int
    lr: float
    examples: int
    report: Pending


class Loop:
    """Runs a session to its end, to a stop rule, or to an interruption.

    Args:
        session: placed on a device, weights written, at the step to go on from.
        recorder: where metrics and checkpoints go.
        callbacks: each receives every event; an exception of theirs fails the run.
        state: from a checkpoint, or fresh.
    """

    def __init__(
        self,
        session: Session,
        recorder: Recorder,
        callbacks: Sequence[Callable[[Event], None]] = (),
        state: LoopState | None = None,
    ) -> None:
        self.session, self.recorder, self.callbacks = session, recorder, callbacks
        self.state = state or LoopState()
        self.stop_reason = ""
        self._interrupted = False
        self._plan = session.require_plan()
        spec = session.record.spec
        self._spec = spec
        self._validate_every = self._in_steps(spec.validation.interval)
        self._checkpoint_every = self._in_steps(spec.checkpoint.interval)
        sizes = session.dataset.spec.sizes if session.dataset else {}
        self._split = spec.validation.on if sizes.get(spec.validation.on) else ""
        self._under_way: deque[_UnderWay] = deque()
        self._settled_at = time.perf_counter()
        self._seconds = 0.0

    def _in_steps(self, interval: tuple[int, str]) -> int:
        every, unit = interval
        return every * (self._plan.updates_per_epoch if unit == "epoch" else 1)

    def emit(self, event: Event) -> None:
        """Tell every callback."""
        for callback in self.callbacks:
            callback(event)

    def run(self, *, resumed: bool) -> RunEnded:
        """Train to the end; returns the event that was emitted last.

        Ctrl-C and SIGTERM let the update under way finish, save a checkpoint and leave the run ``interrupted``.

        Raises:
            Exception: whatever stopped the run, after the run was marked ``failed`` with it.
        """
        session = self.session
        device = str(session.executor.describe()["adapter"])
        planned = sum(session.compiled.program.bytes_by_kind().values())
        try:
            self.emit(RunStarted(self.recorder.run, session.step, self._plan.total, device, planned, resumed))
            with _signals() as received:
                self._steps(received)
        except BaseException as error:
            self.recorder.fail(session.step, self.state.skipped, error)
            self.emit(self._ended("failed", f"{type(error).__name__}: {error}"))
            raise
        state = "interrupted" if self._interrupted else "finished"
        self.recorder.end(state, session.step, self.state.skipped)
        ended = self._ended(state, self.stop_reason)
        self.emit(ended)
        return ended

    def _ended(self, state: str, reason: str) -> RunEnded:
        step, skipped = self.session.step, self.state.skipped
        return RunEnded(self.recorder.run, state, step, step - skipped, skipped, dict(self.state.metrics), reason)

    def _steps(self, received: Callable[[], str]) -> None:
        session, plan = self.session, self._plan
        while session.step < plan.total and not self.stop_reason:
            update = session.step
            epoch, _ = plan.position(update)
            rate = session.learning_rate(update)
            examples = plan.examples_of(update)
            self._under_way.append(_UnderWay(update + 1, epoch, rate, examples, session.update()))
            if len(self._under_way) > LAG:
                self._settle()
            self._after(update + 1, epoch, received())

    def _after(self, step: int, epoch: int, signal_name: str) -> None:
        """What falls due once an update has been sent: validation, stop rules, a checkpoint."""
        if signal_name:
            self._interrupted, self.stop_reason = True, signal_name
        last = step == self._plan.total
        improved = False
        if self._split and not self._interrupted and (step % self._validate_every == 0 or last):
            self._settle_all()
            improved = self._validate(step, epoch)
        if step % self._checkpoint_every == 0 or last or improved or self.stop_reason:
            self._settle_all()
            self._save(step, improved)

    # -- reports --------------------------------------------------------------------------------------------
    def _settle_all(self) -> None:
        while self._under_way:
            self._settle()

    def _settle(self) -> None:
        """Wait for the oldest report and pass it on."""
        item = self._under_way.popleft()
        report = self.session.report(item.report)
        now = time.perf_counter()
        elapsed, self._settled_at = now - self._settled_at, now
        applied = report["ok"] != 0.0
        self.state.skipped = int(report["skipped"])
        if applied:
            self.state.metrics["loss"] = report["loss"]
        self.recorder.step(item.step, item.epoch, report["loss"], report["grad_norm"], item.lr, applied)
        if elapsed > 0:
            self._seconds += (elapsed - self._seconds) * (0.1 if self._seconds else 1.0)
        rate = item.examples / self._seconds if self._seconds else 0.0
        self.emit(
            StepDone(
                item.step, self._plan.total, item.epoch, report["loss"], report["grad_norm"], item.lr, applied, rate
            )
        )

    def _validate(self, step: int, epoch: int) -> bool:
        """Evaluate the split, log, apply the stop rule; returns whether this is the best so far."""
        session = self.session
        found = {f"{self._split}_{name}": value for name, value in session.evaluate(self._split).items()}
        self.state.metrics.update(found)
        self.recorder.metrics(step, epoch, found)
        session.advance_scheduler(found)
        self.emit(Validated(step, epoch, found))
        stop, best = self._spec.stop, self._spec.checkpoint.best
        if stop is not None:
            if self._improves("stop", stop.metric, stop.mode, stop.min_delta, found):
                self.state.stale = 0
            else:
                self.state.stale += 1
                if self.state.stale >= stop.patience:
                    self.stop_reason = f"{stop.metric} has not improved for {stop.patience} validations"
        improved = best is not None and self._improves("checkpoint.best", best.metric, best.mode, 0.0, found)
        self._settled_at = time.perf_counter()
        return improved

    def _improves(self, rule: str, metric: str, mode: str, min_delta: float, found: Mapping[str, float]) -> bool:
        """Whether a metric beats the best so far by more than ``min_delta``; remembers it if so."""
        if metric not in found:
            raise self.session.record.unknown(f"{rule}.metric", sorted(found), "a metric of the validation")
        value = found[metric]
        if mode == "auto":
            rising = {f"{self._split}_{u.name}" for u in self.session.run.metrics if u.block.higher_is_better}
            mode = "max" if metric in rising else "min"
        before = self.state.best.get(rule, math.nan)
        gain = (value - before) if mode == "max" else (before - value)
        if not math.isnan(value) and (math.isnan(before) or gain > min_delta):
            self.state.best[rule] = value
            return True
        return False

    def _save(self, step: int, best: bool) -> None:
        epoch, within = self._plan.position(step)
        saved = self.recorder.checkpoint(self.session, epoch, within, self.state.to_json(), self.state.metrics, best)
        self.emit(Checkpointed(step, epoch, saved.digest, saved.weights, best))
        self._settled_at = time.perf_counter()


@contextmanager
def _signals() -> Iterator[Callable[[], str]]:
    """Turn SIGINT and SIGTERM into a word that the loop asks for; a second one acts at once.

    Outside the main thread Python delivers no signals, and the word stays empty.
    """
    words: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: ""
        return
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: FrameType | None) -> None:
        words.append(signal.Signals(number).name)
        signal.signal(number, before[signal.Signals(number)] or signal.SIG_DFL)

    for number in before:
        signal.signal(number, handle)
    try:
        yield lambda: words[0] if words else ""
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
