"""L4 to L3: every block id of a record resolved, its parameters checked, its names bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from scellis_core.blocks import (
    Augment,
    Average,
    Block,
    BlockGraph,
    Clip,
    Data,
    DataContext,
    DataSpec,
    Loss,
    Metric,
    Optimizer,
    Peft,
    Scheduler,
    Wrapper,
    match_path,
)
from scellis_core.blocks.graph import place
from scellis_core.catalog import Catalog
from scellis_core.errors import ContractError, RecordError, nearest
from scellis_core.ir import DTYPES, Graph, Type
from scellis_core.model.graphs import build_graph, checked_params
from scellis_core.model.trace import Ties, Tracing, call_block, trace
from scellis_core.record import BlockRef, LossRef, MetricRef, Record

B = TypeVar("B", bound=Block)
Parts = tuple[str | int, ...]


@dataclass(frozen=True)
class DataUse:
    """The dataset of a run: block, parameters, and what it says of itself."""

    block: Data
    params: Any
    spec: DataSpec


@dataclass(frozen=True)
class LossUse:
    """One loss of a run.

    Attributes:
        block, params: what it computes.
        output, target: names of what it compares.
        weight: its factor in the sum.
        where: place for errors.
    """

    block: Loss
    params: Any
    output: str
    target: str
    weight: float
    where: str


@dataclass(frozen=True)
class MetricUse:
    """One metric of a run.

    Attributes:
        block, params: what it computes.
        output, target: names of what it compares.
        key: names it in :attr:`Lowered.metrics`: the block's id, with the output where the id occurs twice.
        name: how it is reported: ``accuracy``, or ``accuracy_left`` where the id occurs twice.
        where: place for errors.
    """

    block: Metric
    params: Any
    output: str
    target: str
    key: str
    name: str
    where: str


@dataclass(frozen=True)
class AugmentUse:
    """One augmentation: block, parameters, and the input that it changes."""

    block: Augment
    params: Any
    input: str
    where: str


@dataclass(frozen=True)
class GroupUse:
    """One parameter group: the weights it is for, their learning rate's factor and their parameters."""

    match: str
    lr_scale: float
    params: Any


@dataclass(frozen=True)
class PeftUse:
    """One adapter method as applied: block, parameters, and paths of the blocks it changed."""

    block: Peft
    params: Any
    targets: tuple[str, ...]


@dataclass
class ResolvedRun:
    """A record with every block at hand. What the record leaves out is None or empty.

    Attributes:
        record: the record.
        catalog: where the blocks came from.
        graph: the model (L3), with freezing and adapters applied.
        data: the dataset.
        optimizer, scheduler, clip, averaging: (block, parameters).
        groups: of the optimizer's parameters.
        losses, metrics, augment, peft: in order.
        wrappers: (block, parameters), innermost first.
    """

    record: Record
    catalog: Catalog
    graph: BlockGraph
    data: DataUse | None = None
    optimizer: tuple[Optimizer, Any] | None = None
    groups: list[GroupUse] = field(default_factory=list[GroupUse])
    scheduler: tuple[Scheduler, Any] | None = None
    losses: list[LossUse] = field(default_factory=list[LossUse])
    metrics: list[MetricUse] = field(default_factory=list[MetricUse])
    clip: tuple[Clip, Any] | None = None
    augment: list[AugmentUse] = field(default_factory=list[AugmentUse])
    wrappers: list[tuple[Wrapper, Any]] = field(default_factory=list[tuple[Wrapper, Any]])
    averaging: tuple[Average, Any] | None = None
    peft: list[PeftUse] = field(default_factory=list[PeftUse])

    @property
    def blocks(self) -> list[str]:
        """Versioned ids of every block that the run uses, sorted: what provenance pins."""
        found = {i.layer.id for i in self.graph.instances.values()} | set(self.graph.groups.values())
        if self.record.spec.architecture is not None:
            found.add(self.catalog.find(self.record.spec.architecture.block_id))
        singles = (
            self.data and self.data.block,
            *(p and p[0] for p in (self.optimizer, self.scheduler, self.clip, self.averaging)),
        )
        lists = (*self.losses, *self.metrics, *self.augment, *self.peft)
        found |= {b.id for b in singles if b} | {u.block.id for u in lists} | {w.id for w, _ in self.wrappers}
        return sorted(found)


def resolve_run(record: Record, catalog: Catalog, base: Path) -> ResolvedRun:
    """Resolve a record.

    A record of an architecture alone resolves too; the pipeline's parts are None then.

    Args:
        record: with an architecture (one that names a stored model has been merged with it).
        catalog: where blocks are found.
        base: folder that relative paths in the record start from.

    Raises:
        RecordError: at the line of the fault: a block id, a parameter, wiring, an input, output or target that
            is not there, a pattern that matches nothing.
        CatalogError: a block that is broken or claimed twice.
        DataError: the data is not what the record says.
        ContractError: a block breaks its contract.
    """
    binder = _Binder(record, catalog)
    spec = record.spec
    data = binder.data(base)
    graph = build_graph(record, catalog, data.spec if data else None)
    run = ResolvedRun(record, catalog, graph, data)
    if spec.optimizer is not None:
        run.optimizer = binder.block(Optimizer, ("optimizer",), spec.optimizer)
        for i, group in enumerate(spec.optimizer.groups):
            params = record.params(("optimizer", "groups", i), run.optimizer[0].params, base=("optimizer",))
            run.groups.append(GroupUse(group.match, group.lr_scale, params))
    if spec.scheduler is not None:
        run.scheduler = binder.block(Scheduler, ("scheduler",), spec.scheduler)
    if spec.grad_clip is not None:
        run.clip = binder.block(Clip, ("grad_clip",), spec.grad_clip)
    if spec.averaging is not None:
        run.averaging = binder.block(Average, ("averaging",), spec.averaging)
    run.wrappers = [binder.block(Wrapper, ("wrappers", i), ref) for i, ref in enumerate(spec.wrappers)]
    run.losses = binder.losses(graph, data)
    run.metrics = binder.metrics(run.losses, graph, data)
    run.augment = [binder.augment(i, ref, graph) for i, ref in enumerate(spec.augment)]
    _freeze(run)
    run.peft = [_adapt(run, binder, i, ref) for i, ref in enumerate(spec.peft)]
    return run


class _Binder:
    """Resolves the blocks of one record."""

    def __init__(self, record: Record, catalog: Catalog) -> None:
        self.record, self.catalog = record, catalog

    def block(self, kind: type[B], path: Parts, ref: BlockRef) -> tuple[B, Any]:
        """The block at a path of the record, and its parameters."""
        block = self.catalog.resolve_as(kind, ref.block_id, self.record.where((*path, "block_id")))
        return block, checked_params(self.record, path, block, ref.params)

    def data(self, base: Path) -> DataUse | None:
        """The dataset, described."""
        if self.record.spec.data is None:
            return None
        block, params = self.block(Data, ("data",), self.record.spec.data)
        where = self.record.where("data")
        context = DataContext(base, self.record.spec.seed, where)
        spec = call_block(place(where, "data", block.id), block.describe, params, context)
        if not isinstance(spec, DataSpec):
            raise ContractError(place(where, "data", block.id), "a DataSpec", f"a {type(spec).__name__}")
        for name, item in {**spec.inputs, **spec.targets}.items():
            if item.dtype not in DTYPES or item.dtype == "f64":
                raise ContractError(place(where, "data", block.id), f"a dtype of {name} that a device has", item.dtype)
        return DataUse(block, params, spec)

    def compared(
        self, path: Parts, ref: LossRef | MetricRef, graph: BlockGraph, data: DataUse | None
    ) -> tuple[str, str]:
        """Names of the output and the target that a loss or metric compares."""
        if data is None:
            raise RecordError(self.record.where(path), "data, whose targets it compares", "no data", "adding data:")
        pairs = (
            ("output", ref.output, list(graph.outputs), "the model"),
            ("target", ref.target, list(data.spec.targets), "the data"),
        )
        found: list[str] = []
        for key, given, choices, owner in pairs:
            if given is None and len(choices) == 1:
                found.append(choices[0])
            elif given is None:
                expected = f"{key}: one of the {key}s of {owner} ({', '.join(choices) or 'none'})"
                raise RecordError(
                    self.record.where((*path, key)), expected, "nothing", f"{key}: {choices[0]}" if choices else ""
                )
            elif given not in choices:
                article = "an" if key == "output" else "a"
                raise self.record.error(
                    (*path, key), f"{article} {key} of {owner}", repr(given), nearest(given, choices)
                )
            else:
                found.append(given)
        return found[0], found[1]

    def losses(self, graph: BlockGraph, data: DataUse | None) -> list[LossUse]:
        """Every loss with what it compares."""
        refs = self.record.spec.loss
        listed = isinstance(self.record.get("loss"), list)
        found: list[LossUse] = []
        for i, ref in enumerate(refs):
            path: Parts = ("loss", i) if listed else ("loss",)
            block, params = self.block(Loss, path, ref)
            output, target = self.compared(path, ref, graph, data)
            where = f"{self.record.where(path)}: {block.id}"
            found.append(LossUse(block, params, output, target, ref.weight, where))
        return found

    def metrics(self, losses: Sequence[LossUse], graph: BlockGraph, data: DataUse | None) -> list[MetricUse]:
        """The record's metrics, or where it has none those that the losses name."""
        rows: list[tuple[Metric, Any, str, str, str]] = []
        for i, ref in enumerate(self.record.spec.metrics):
            path: Parts = ("metrics", i)
            block, params = self.block(Metric, path, ref)
            rows.append(
                (block, params, *self.compared(path, ref, graph, data), f"{self.record.where(path)}: {block.id}")
            )
        if "metrics" not in self.record.data:
            for loss in losses:
                for name in loss.block.metrics:
                    block = self.catalog.resolve_as(Metric, name, loss.where)
                    params = self.catalog.validate(block, {}, _at(f"{loss.where}: {block.id}"))
                    row = (block, params, loss.output, loss.target, f"{loss.where}: {block.id}")
                    if all((r[0].id, *r[2:4]) != (block.id, *row[2:4]) for r in rows):
                        rows.append(row)
        uses: list[MetricUse] = []
        for block, params, output, target, where in rows:
            twice = sum(r[0].id == block.id for r in rows) > 1
            short = block.id.rsplit("/", 1)[1].partition("@")[0]
            key = f"{block.id} {output} {target}" if twice else block.id
            name = f"{short}_{output}" if twice else short
            if any(u.key == key or u.name == name for u in uses):
                raise RecordError(where, "metrics of different names", f"{name} twice", "removing one of them")
            uses.append(MetricUse(block, params, output, target, key, name, where))
        return uses

    def augment(self, i: int, ref: BlockRef, graph: BlockGraph) -> AugmentUse:
        """An augmentation of the model's one f32 input."""
        block, params = self.block(Augment, ("augment", i), ref)
        where = f"{self.record.where(('augment', i))}: {block.id}"
        floats = [name for name, spec in graph.inputs.items() if spec.dtype == "f32"]
        if len(floats) != 1:
            raise RecordError(where, "a model with one f32 input to change", ", ".join(floats) or "none")
        return AugmentUse(block, params, floats[0], where)


def _at(where: str) -> Callable[[Parts], str]:
    return lambda path: ".".join(map(str, (where, *path)))


def probe(graph: BlockGraph, batch: int = 2) -> Tracing:
    """Trace the model alone, as in evaluation, to learn its tensors.

    Raises:
        RecordError, ContractError: as :func:`scellis_core.model.lower`.
    """
    tracing = Tracing(Graph("probe"), training=False, batch=batch, ties=Ties(graph))
    inputs = {n: tracing.graph.load(n, Type(s.dtype, (batch, *s.shape))) for n, s in graph.inputs.items()}
    trace(graph, tracing, inputs)
    tracing.finish()
    return tracing


def _freeze(run: ResolvedRun) -> None:
    """Apply the record's patterns, each of which must match a tensor of the model as it is before adapters."""
    spec = run.record.spec
    patterns: list[tuple[Parts, str]] = [(("freeze", i), p) for i, p in enumerate(spec.freeze)]
    later: list[tuple[Parts, str]] = [(("unfreeze", i, "match"), u.match) for i, u in enumerate(spec.unfreeze)]
    later += [(("optimizer", "groups", i, "match"), g.match) for i, g in enumerate(run.groups)]
    for _, pattern in patterns:
        run.graph.freeze(pattern)
    if not patterns and not (later and not spec.peft):
        return
    found = probe(run.graph)
    names = [*found.params, *found.aliases, *(n.removeprefix("state:") for n in found.states)]
    for path, pattern in patterns if spec.peft else [*patterns, *later]:
        if not any(match_path(pattern, name) for name in names):
            raise run.record.error(path, "a pattern that matches a parameter", None, nearest(pattern, names))


def _adapt(run: ResolvedRun, binder: _Binder, i: int, ref: BlockRef) -> PeftUse:
    path: Parts = ("peft", i)
    block, params = binder.block(Peft, path, ref)
    pattern = getattr(params, "targets", "*")
    targets = run.graph.match(str(pattern))
    if not targets:
        hint = nearest(str(pattern), run.graph.instances)
        raise run.record.error((*path, "targets"), "a pattern that matches a block", repr(pattern), hint)
    where = place(run.record.where(path), str(pattern), block.id)
    call_block(where, block.rewrite, run.graph, params, targets)
    return PeftUse(block, params, tuple(targets))
