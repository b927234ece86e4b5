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
        validated: step of the last validation; 0 before the first.
        metrics: newest value of each metric.
    """

    best: dict[str, float] = field(default_factory=dict[str, float])
    stale: int = 0
    skipped: int = 0
    validated: int = 0
    metrics: dict[str, float] = field(default_factory=dict[str, float])

    def to_json(self) -> dict[str, Any]:
        """Plain data for the checkpoint."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LoopState:
        """The inverse of :meth:`to_json`."""
        counts = {name: int(data[name]) for name in ("stale", "skipped", "validated")}
        return cls(best=dict(data["best"]), metrics=dict(data["metrics"]), **counts)


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
        callbacks: each receives every event; an exception of theirs fails the run.
        state: of the checkpoint that the session goes on from; None for a run from its start.

    Raises:
        RecordError: if the record validates on a split that is not there, or watches a metric that no
            validation gives.
    """

    def __init__(
        self, session: Session, callbacks: Sequence[Callable[[Event], None]] = (), state: LoopState | None = None
    ) -> None:
        self.session, self.callbacks = session, callbacks
        self.state = state or LoopState()
        self.stop_reason = ""
        self._plan = session.require_plan()
        self._spec = session.record.spec
        self._validate_every = self._in_steps(self._spec.validation.interval)
        self._checkpoint_every = self._in_steps(self._spec.checkpoint.interval)
        self._split = self._find_split()
        self._check_rules()
        self._interrupted = ""
        self._saved_at = session.step if state else -1
        self._settled = session.step
        self._under_way: deque[_UnderWay] = deque()
        self._reported_at = time.perf_counter()
        self._seconds = 0.0

    def _in_steps(self, interval: tuple[int, str]) -> int:
        every, unit = interval
        return every * (self._plan.updates_per_epoch if unit == "epoch" else 1)

    def _find_split(self) -> str:
        """The split to validate on; empty where the data has none and the record does not ask for one."""
        record, wanted = self.session.record, self._spec.validation.on
        sizes = self.session.require_dataset().spec.sizes
        if sizes.get(wanted):
            return wanted
        splits = [s for s, n in sizes.items() if n]
        if record.get("validate") is not None:
            raise record.error("validate.on", "a split of the data", repr(wanted), f"one of: {', '.join(splits)}")
        for key in ("stop", "checkpoint.best"):
            if record.get(key) is not None:
                hint = "split: { val: 0.1 } under data"
                raise record.error(key, f"data with a split {wanted!r} to validate on", ", ".join(splits), hint)
        return ""

    def _check_rules(self) -> None:
        known = [f"{self._split}_loss", *(f"{self._split}_{use.name}" for use in self.session.run.metrics)]
        for key, rule in (("stop", self._spec.stop), ("checkpoint.best", self._spec.checkpoint.best)):
            if rule is not None and rule.metric not in known:
                place = f"{key}.metric" if self.session.record.get(f"{key}.metric") is not None else key
                hint = f"one of: {', '.join(known)}"
                raise self.session.record.error(place, "a metric of the validation", repr(rule.metric), hint)

    def emit(self, event: Event) -> None:
        """Tell every callback."""
        for callback in self.callbacks:
            callback(event)

    def run(self, recorder: Recorder, *, resumed: bool) -> RunEnded:
        """Train to the end; returns the event that was emitted last.

        Ctrl-C and SIGTERM let the update under way finish, save a checkpoint and leave the run ``interrupted``;
        a second one acts at once.

        Args:
            recorder: where metrics and checkpoints go.
            resumed: whether the run goes on rather than starts.

        Raises:
            BaseException: whatever stopped the run, after the run was marked ``failed`` with it (or
                ``interrupted`` where it is no error, such as the second Ctrl-C).
        """
        session = self.session
        device = str(session.executor.describe()["adapter"])
        planned = sum(session.compiled.program.bytes_by_kind().values())
        try:
            self.emit(RunStarted(recorder.run, session.step, self._plan.total, device, planned, resumed))
            with _signals() as received:
                self._steps(recorder, received)
            return self._end(recorder, "interrupted" if self._interrupted else "finished", self.stop_reason)
        except BaseException as error:
            try:
                reason = f"{type(error).__name__}: {error}"
                self._end(recorder, "failed" if isinstance(error, Exception) else "interrupted", reason)
            except Exception as second:
                raise error from second
            raise

    def _end(self, recorder: Recorder, state: str, reason: str) -> RunEnded:
        step, skipped = self._settled, self.state.skipped
        recorder.end(state, step, skipped, reason if state == "failed" else "")
        ended = RunEnded(recorder.run, state, step, step - skipped, skipped, dict(self.state.metrics), reason)
        self.emit(ended)
        return ended

    def _steps(self, recorder: Recorder, received: Callable[[], str]) -> None:
        stop = self._spec.stop
        if stop is not None and self.state.stale >= stop.patience:
            self.stop_reason = _stale(stop.metric, stop.patience)
            return
        if self.session.step:
            self._after(recorder, received)
        while self.session.step < self._plan.total and not self.stop_reason:
            self._send(recorder)
            self._after(recorder, received)

    def _send(self, recorder: Recorder) -> None:
        update = self.session.step
        epoch, _ = self._plan.position(update)
        rate, examples = self.session.learning_rate(update), self._plan.examples_of(update)
        self._under_way.append(_UnderWay(update + 1, epoch, rate, examples, self.session.update()))
        if len(self._under_way) > LAG:
            self._settle(recorder)

    def _after(self, recorder: Recorder, received: Callable[[], str]) -> None:
        """What falls due once an update has been sent: validation, stop rules, a checkpoint.

        A signal leaves the validation to the run that goes on, which begins by making up for it.
        """
        step = self.session.step
        last = step == self._plan.total
        improved = False
        due = bool(self._split) and (step % self._validate_every == 0 or last) and self.state.validated != step
        if due and not received():
            self._settle_all(recorder)
            improved = self._validate(recorder, step)
        self._note(received())
        if improved or (step != self._saved_at and (step % self._checkpoint_every == 0 or last or self.stop_reason)):
            self._settle_all(recorder)
            self._save(recorder, improved)
            self._note(received())

    def _note(self, signal_name: str) -> None:
        if signal_name:
            self._interrupted = self.stop_reason = signal_name

    # -- reports --------------------------------------------------------------------------------------------
    def _settle_all(self, recorder: Recorder) -> None:
        while self._under_way:
            self._settle(recorder)

    def _settle(self, recorder: Recorder) -> None:
        """Wait for the oldest report and pass it on."""
        item = self._under_way.popleft()
        report = self.session.report(item.report)
        now = time.perf_counter()
        elapsed, self._reported_at = now - self._reported_at, now
        applied = report["ok"] != 0.0
        self.state.skipped, self._settled = int(report["skipped"]), item.step
        values = {"loss": report["loss"], "grad_norm": report["grad_norm"], "lr": item.lr}
        if applied:
            self.state.metrics["loss"] = report["loss"]
        else:
            values = {n: v for n, v in values.items() if math.isfinite(v)} | {"skipped": 1.0}
        recorder.log(item.step, item.epoch, values, self.state.skipped)
        if elapsed > 0:
            self._seconds += (elapsed - self._seconds) * (0.1 if self._seconds else 1.0)
        rate = item.examples / self._seconds if self._seconds else 0.0
        self.emit(
            StepDone(
                item.step,
                self._plan.total,
                item.epoch,
                report["loss"],
                report["grad_norm"],
                item.lr,
                applied,
                rate,
                "" if applied else _why_skipped(report),
            )
        )

    def _validate(self, recorder: Recorder, step: int) -> bool:
        """Evaluate the split, log, apply the stop rule; returns whether this is the best so far."""
        session, epoch = self.session, self._plan.position(step - 1)[0]
        found = {f"{self._split}_{name}": value for name, value in session.evaluate(self._split).items()}
        self.state.metrics.update(found)
        self.state.validated, self._saved_at = step, -1
        recorder.log(step, epoch, found, self.state.skipped)
        session.advance_scheduler(found)
        stop, best = self._spec.stop, self._spec.checkpoint.best
        if stop is not None:
            improved = self._improves("stop", stop.metric, stop.mode, stop.min_delta, found)
            self.state.stale = 0 if improved else self.state.stale + 1
            if self.state.stale >= stop.patience:
                self.stop_reason = _stale(stop.metric, stop.patience)
        improved = best is not None and self._improves("checkpoint.best", best.metric, best.mode, 0.0, found)
        self.emit(Validated(step, epoch, found))
        self._reported_at = time.perf_counter()
        return improved

    def _improves(self, rule: str, metric: str, mode: str, min_delta: float, found: Mapping[str, float]) -> bool:
        """Whether a metric beats the best so far by more than ``min_delta``; remembers it if so."""
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

    def _save(self, recorder: Recorder, best: bool) -> None:
        step = self.session.step
        epoch, within = self._plan.position(step)
        saved = recorder.checkpoint(self.session, epoch, within, self.state.to_json(), self.state.metrics, best)
        self._saved_at = step
        self.emit(Checkpointed(step, epoch, saved.bundle, saved.weights, best))
        self._reported_at = time.perf_counter()


def _stale(metric: str, patience: int) -> str:
    return f"{metric} has not improved for {patience} validation{'s' * (patience > 1)}"


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


def _why_skipped(report: Mapping[str, float]) -> str:
    """Of a skipped update: its loss is a mean over nothing, or some gradient is not finite."""
    if report["inverse"] == 0.0:
        return "no target of the batch counts (all are ignored or have weight 0)"
    return "gradients are not finite"
