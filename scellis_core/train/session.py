"""A run on a device: compiled, filled with weights, able to step, evaluate and predict."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from scellis_core import rng
from scellis_core.blocks import ArraySet, DataContext, Dataset, ScheduleContext
from scellis_core.catalog import Catalog
from scellis_core.compile import Compiled, compile_run
from scellis_core.errors import DataError, RecordError, nearest
from scellis_core.lower.program import Limits
from scellis_core.model import ResolvedRun, initial_tensors, resolve_run
from scellis_core.record import Record
from scellis_core.train.batching import Schedule, eval_sizes, indices, order
from scellis_core.train.executors import Executor, OracleExecutor, Pending

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class _Outside:
    """An id past its table: its place and value, the table's size, and the array's largest id."""

    place: tuple[int, ...]
    value: int
    limit: int
    top: int


@dataclass
class Session:
    """A resolved run with its program on a device and its data open.

    Attributes:
        step: updates done so far, skipped ones included.
        scheduler_state: of schedules that follow a metric.
    """

    record: Record
    run: ResolvedRun
    compiled: Compiled
    executor: Executor
    dataset: Dataset | None
    plan: Schedule | None
    step: int = 0
    scheduler_state: dict[str, float] = field(default_factory=dict[str, float])
    _order: tuple[int, Any] | None = None

    # -- persistent tensors ---------------------------------------------------------------------------------
    def initialise(self) -> None:
        """Write initial parameters, statistics and optimizer state."""
        for name, array in initial(self.compiled, self.record.spec.seed).items():
            self.executor.write(name, array)
        scheduler = self.run.scheduler
        if scheduler is not None and scheduler[0].init_state is not None:
            self.scheduler_state = dict(scheduler[0].init_state(scheduler[1]))

    def weight_names(self) -> list[str]:
        """Parameters and statistics: what a model is."""
        return [*self.compiled.params, *self.compiled.states]

    def optimizer_names(self) -> list[str]:
        """Optimizer state and the run's own counters on the device."""
        counters = [n for n in ("global:t", "global:skipped") if n in self.compiled.program.tensors]
        return [*self.compiled.slots, *counters]

    def read(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Tensors by name."""
        return {name: self.executor.read(name) for name in names}

    def load(self, tensors: Mapping[str, NDArray[Any]], names: Sequence[str], where: str) -> None:
        """Write tensors, all of ``names`` and no others.

        Raises:
            DataError: if one is missing, unexpected or of another shape; nothing is written then.
        """
        known = set(names)
        for name in tensors:
            if name not in known:
                raise DataError(where, "tensors of this model only", repr(name), nearest(name, known))
        for name in names:
            if name not in tensors:
                raise DataError(where, f"a tensor {name!r}", "none of that name", nearest(name, tensors))
            shape = self.compiled.program.tensors[name].shape
            if tuple(tensors[name].shape) != shape:
                raise DataError(f"{where}: {name}", f"shape {list(shape)}", f"{list(tensors[name].shape)}")
        for name, array in {**tensors, **self.compiled.pending(tensors)}.items():
            self.executor.write(name, array)

    # -- numbers of a step ----------------------------------------------------------------------------------
    @property
    def counter(self) -> int:
        """The random counter before the next update, in blocks of four numbers."""
        return self.plan.micros_before(self.step) * self.compiled.draws if self.plan else 0

    def learning_rate(self, step: int) -> float:
        """The rate used by an update, in float64."""
        return learning_rate(self.run, self.plan, step, self.scheduler_state) if self.plan else 0.0

    def scalars(self, counter: int) -> dict[str, float | int]:
        """The scalars block: learning rate, loss scale, random counter and the keys of the streams used."""
        values: dict[str, float | int] = {
            "lr": self.learning_rate(self.step),
            "loss_scale": 1.0,
            "rng.counter_lo": counter & 0xFFFFFFFF,
            "rng.counter_hi": counter >> 32,
        }
        for name in self.compiled.program.scalars:
            if name.startswith("rng.") and name.endswith(".key0"):
                stream = name[4:-5]
                key0, key1 = rng.stream_key(self.record.spec.seed, stream)
                values[name], values[f"rng.{stream}.key1"] = key0, key1
        return values

    # -- work -----------------------------------------------------------------------------------------------
    def update(self) -> Pending:
        """One update: its micro steps, then ``apply``; returns the report under way and advances ``step``."""
        plan, dataset = self.require_plan(), self.require_dataset()
        epoch, _ = plan.position(self.step)
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, order(self.record.spec.seed, epoch, plan.examples))
        counter = self.counter
        scalars = self.scalars(counter)
        for micro in plan.micros(self.step):
            rows = indices(plan, self._order[1], micro)
            scalars["rng.counter_lo"], scalars["rng.counter_hi"] = counter & 0xFFFFFFFF, counter >> 32
            batch = self._checked(dataset.batch("train", rows), "data train", rows)
            self.executor.run(f"micro@{len(rows)}", batch, scalars)
            counter += self.compiled.draws
        self.executor.run("apply", {}, scalars)
        self.step += 1
        return self.executor.start_readback("apply")

    def report(self, pending: Pending) -> dict[str, float]:
        """A step's report by name: loss (mean over what counted), grad_norm, t, skipped, ok."""
        vector = pending.result()["report"]
        return dict(zip(self.compiled.program.meta["report"], (float(x) for x in vector), strict=True))

    def evaluate(self, split: str) -> dict[str, float]:
        """Loss and metrics over a whole split, in evaluation mode: ``{"loss": .., "accuracy": ..}``."""
        dataset = self.require_dataset()
        examples = dataset.spec.sizes.get(split, 0)
        if not examples:
            splits = [name for name, size in dataset.spec.sizes.items() if size]
            raise DataError(self.record.where("data"), f"a split {split!r}", "none", nearest(split, splits))
        batch = self.record.spec.batch_size or 1
        sums: dict[str, Any] = {}
        scalars = self.scalars(0)
        for start in range(0, examples, batch):
            rows = np.arange(start, min(start + batch, examples))
            name = f"eval@{len(rows)}"
            data = self._checked(dataset.batch(split, rows), f"data {split}", rows)
            self.executor.run(name, data, scalars)
            for key, value in self.executor.outputs(name).items():
                sums[key] = sums.get(key, 0.0) + np.asarray(value, np.float64)
        weight = float(sums["loss.weight"])
        found = {"loss": float(sums["loss.total"]) / weight if weight else math.nan}
        for use in self.run.metrics:
            own = {k[len(use.key) + 1 :]: v for k, v in sums.items() if k.startswith(use.key + ":")}
            found[use.name] = finalize(use.block.finalize, own)
        return found

    def predict(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Outputs for a batch; its size must be one that the session was compiled for.

        Raises:
            DataError: if it is not, or an input is missing, unknown, of another shape, or has an id out of range.
        """
        known = self.run.graph.inputs
        for name in inputs:
            if name not in known:
                raise DataError("predict", f"inputs {', '.join(known)}", repr(name), nearest(name, known))
        for name in known:
            if name not in inputs:
                raise DataError("predict", f"an input {name!r}", f"inputs {', '.join(inputs) or 'none'}")
        size = len(next(iter(inputs.values())))
        name = f"predict@{size}"
        if name not in self.compiled.program.sequences:
            sizes = [s for s in self.compiled.program.sequences if s.startswith("predict@")]
            raise DataError("predict", f"a batch this session was compiled for ({', '.join(sizes)})", str(size))
        self.executor.run(name, self._checked(inputs, "predict", range(size)), self.scalars(0))
        return self.executor.outputs(name)

    def _checked(
        self, batch: Mapping[str, NDArray[Any]], where: str, examples: Sequence[int] | NDArray[Any]
    ) -> Mapping[str, NDArray[Any]]:
        """Refuse ids outside their table, on every device alike, naming example and position.

        Raises:
            DataError: for the first id that is below 0 or past its input's table, and is no ``ignore_index``.
        """
        for name, array in batch.items():
            bad = self._outside(name, array)
            if bad is not None:
                first, *rest = bad.place
                place = f"{where} example {int(examples[first])}: {name}{rest or ''}"
                raise DataError(place, f"an id from 0 to {bad.limit - 1}", str(bad.value))
        return batch

    def check_ids(self) -> None:
        """Refuse ids outside their table before a run begins, where the whole dataset is in memory.

        Raises:
            DataError: for the first such id, naming its place in the array.
        """
        if not isinstance(self.dataset, ArraySet):
            return
        for name, array in self.dataset.arrays.items():
            bad = self._outside(name, array)
            if bad is not None:
                place = f"{self.record.where('data')}: {name}{list(bad.place)}"
                room = f", or a model with room for ids up to {bad.top}" if bad.top >= bad.limit else ""
                raise DataError(place, f"an id from 0 to {bad.limit - 1}", str(bad.value), f"mending the data{room}")

    def _outside(self, name: str, array: NDArray[Any]) -> _Outside | None:
        """The first id of an input that is below 0 or past its table, and is no ``ignore_index``."""
        spec = self.compiled.inputs.get(name)
        if spec is None or spec.limit is None:
            return None
        bad = (array < 0) | (array >= spec.limit)
        if not bad.any():
            return None
        for ignored in self._ignored(name):
            bad &= array != ignored
        if not bad.any():
            return None
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        return _Outside(place, int(array[place]), spec.limit, int(array.max()))

    def _ignored(self, target: str) -> set[int]:
        uses = [*self.run.losses, *self.run.metrics]
        found = {getattr(u.params, "ignore_index", None) for u in uses if u.target == target}
        return {int(i) for i in found if i is not None}

    def require_plan(self) -> Schedule:
        """The run's arithmetic; RecordError where the record does not train."""
        if self.plan is None:
            raise self.record.error((), "a pipeline to train with", "an architecture alone")
        return self.plan

    def require_dataset(self) -> Dataset:
        """The open dataset; RecordError where the record names none."""
        if self.dataset is None:
            raise self.record.error((), "a data block", "none", "data: { block_id: data/digits }")
        return self.dataset

    def advance_scheduler(self, metrics: Mapping[str, float]) -> None:
        """Tell a schedule that follows a metric what a validation found."""
        scheduler = self.run.scheduler
        if scheduler is not None and scheduler[0].advance is not None:
            self.scheduler_state = dict(scheduler[0].advance(self.scheduler_state, metrics, scheduler[1]))

    def close(self) -> None:
        """Free the device."""
        self.executor.close()


def initial(compiled: Compiled, seed: int) -> dict[str, NDArray[Any]]:
    """First value of every tensor that a run starts with: weights, statistics, optimizer state (f32), by name.

    Args:
        compiled: names and shapes.
        seed: the record's.
    """
    found = initial_tensors(compiled.params, compiled.states, seed)
    for name, slot in compiled.slots.items():
        if slot.init == "param":
            found[name] = found[name.split(":", 2)[2]]
        else:
            found[name] = np.full(compiled.program.tensors[name].shape, slot.init, np.float32)
    return found | compiled.pending(found)


def learning_rate(run: ResolvedRun, plan: Schedule, step: int, state: Mapping[str, float]) -> float:
    """The rate of an update in float64: the optimizer's times the schedule's factor.

    Args:
        run: its optimizer and scheduler.
        plan: the run's horizon.
        step: the update, from 0.
        state: of a schedule that follows a metric.

    Raises:
        RecordError: if the schedule does not fit the run.
    """
    if run.optimizer is None:
        return 0.0
    base = float(run.optimizer[1].lr)
    if run.scheduler is None:
        return base
    block, params = run.scheduler
    try:
        return base * block.factor(step, params, ScheduleContext(plan.total, plan.updates_per_epoch, state))
    except RecordError as error:
        raise RecordError(run.record.where(error.where), error.expected, error.got, error.hint) from error


def finalize(rule: str | Callable[[Mapping[str, Any]], float], sums: Mapping[str, Any]) -> float:
    """Turn a metric's sums into its number; NaN where nothing was counted."""
    if not isinstance(rule, str):
        return float(rule(sums))
    weight = float(sums["weight"])
    if weight == 0:
        return math.nan
    ratio = float(sums["total"]) / weight
    if rule == "exp_ratio":
        return math.exp(min(ratio, 700.0))
    return math.sqrt(ratio) if rule == "sqrt_ratio" else ratio


def open_session(
    record: Record,
    catalog: Catalog,
    *,
    device: str = "auto",
    limits: Limits | None = None,
    train: bool = True,
    evaluate: bool = True,
    predict: Sequence[int] = (),
    prepare: Callable[[ResolvedRun], None] | None = None,
) -> Session:
    """Resolve, compile and place a run on a device; weights are not written yet.

    Args:
        record: the whole run.
        catalog: where blocks are found.
        device: ``auto``, ``oracle``, or part of an adapter's name.
        limits: ask the device for smaller limits than it has.
        train: compile the training sequences.
        evaluate: compile evaluation: of the split that a training run validates on, else of every split.
        predict: batch sizes of :meth:`Session.predict`.
        prepare: called with the resolved run before anything is allocated (the plan's check).

    Raises:
        ScellisError: if record, data or device do not allow it; nothing stays open then.
    """
    run = resolve_run(record, catalog, record.base)
    if train and (missing := record.pipeline_missing()):
        raise RecordError(record.where(missing[0]), f"a pipeline to train with: {', '.join(missing)}", "no such key")
    if prepare is not None:
        prepare(run)
    dataset = open_data(run)
    plan, training, evaluation = batches(record, dataset.spec.sizes if dataset else {}, train)
    evaluation = evaluation if evaluate else []
    if train and plan is not None:
        learning_rate(run, plan, 0, {})
    opened = open_target(device, limits)
    try:
        compiled = compile_run(run, opened.limits, train=training, evaluate=evaluation, predict=predict)
        executor = opened.executor(compiled)
    except BaseException:
        opened.close()
        raise
    session = Session(record, run, compiled, executor, dataset, plan)
    try:
        if training or evaluation:
            session.check_ids()
    except BaseException:
        session.close()
        raise
    return session


def open_data(run: ResolvedRun) -> Dataset | None:
    """The run's dataset, or None where the record names none.

    Raises:
        DataError: if it does not hold what its block promises, or does not fit in memory.
    """
    if run.data is None:
        return None
    record = run.record
    where = record.where("data")
    try:
        return run.data.block.open(run.data.params, DataContext(record.base, record.spec.seed, where))
    except MemoryError as error:
        raise DataError(
            where, "examples that fit in memory", str(error) or "more", "fewer or smaller examples"
        ) from error


def batches(record: Record, sizes: Mapping[str, int], train: bool) -> tuple[Schedule | None, list[int], list[int]]:
    """(schedule, batch sizes of micro steps, of evaluation) of a record over splits of these sizes, largest first.

    A training run evaluates on the split it validates on; else every split may be evaluated.
    """
    if not sizes:
        return None, [], []
    spec = record.spec
    batch = spec.batch_size or 1
    if train and not sizes.get("train"):
        raise DataError(record.where("data"), "at least one training example", "0")
    plan = None
    if spec.epochs is not None or spec.steps is not None:
        plan = Schedule.plan(sizes["train"], batch, spec.grad_accumulation, spec.epochs, spec.steps)
    training = plan.batch_sizes() if train and plan else []
    evaluated = [spec.validation.on] if train else list(sizes)
    evaluation = {size for split in evaluated for size in eval_sizes(sizes.get(split, 0), batch)}
    return plan, training, sorted(evaluation, reverse=True)


@dataclass
class Target:
    """A device before it has a program: its limits, and how to put one on it."""

    limits: Limits
    executor: Callable[[Compiled], Executor]
    close: Callable[[], None]


def open_target(device: str, limits: Limits | None = None) -> Target:
    """Open ``oracle`` or an adapter by name (``auto``: the best there is)."""
    if device == "oracle":
        return Target(limits or Limits(), OracleExecutor, lambda: None)
    from scellis_core import runtime

    gpu = runtime.open_device(None if device == "auto" else device, limits)
    return Target(gpu.limits, lambda compiled: runtime.GpuExecutor(compiled.program, gpu), gpu.close)
