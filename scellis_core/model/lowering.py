"""L3 to L2: a resolved run as one op graph for a batch size and a mode."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from scellis_core import ops
from scellis_core.blocks import InputSpec, LossTerm
from scellis_core.blocks.graph import place
from scellis_core.errors import ContractError, RecordError
from scellis_core.ir import Graph, Node, Type, Value, verify
from scellis_core.model.resolve import ResolvedRun
from scellis_core.model.trace import Context, TensorMeta, Ties, Tracing, call_block, trace

Mode = Literal["train", "eval", "predict"]


@dataclass
class Lowered:
    """The op graph of a run (L2).

    Attributes:
        mode: ``train`` (losses; draws are made, statistics move), ``eval`` (losses and metrics), ``predict``.
        batch: examples.
        graph: forward, losses and metrics, with the stores of statistics at its end.
        inputs: batch inputs that it loads, targets among them, without the batch dimension. ``limit`` is the
            smallest table that an input's ids index, where the data states none.
        outputs: the model's outputs.
        loss_total, loss_weight: f32 scalars; the loss is their quotient, and None as weight stands for 1. None in
            ``predict`` and where the run has no loss. One loss keeps its own total and weight, so that accumulation
            is by what counted (tokens). Several losses are each divided by their own weight within the batch;
            total is then ``batch * sum(weight_i * loss_i)`` and weight ``batch``, so that batches count by their
            examples.
        metrics: sums of each metric, by :attr:`MetricUse.key` and name; empty but in ``eval``.
        params: trainable and frozen tensors by path; a tied tensor once, at the path its ties end at.
        states: tensors that are not trained, as ``state:<path>``.
        aliases: parameter path -> path of the tensor it shares.
    """

    mode: Mode
    batch: int
    graph: Graph
    inputs: dict[str, InputSpec] = field(default_factory=dict[str, InputSpec])
    outputs: dict[str, Value] = field(default_factory=dict[str, Value])
    loss_total: Value | None = None
    loss_weight: Value | None = None
    metrics: dict[str, dict[str, Value]] = field(default_factory=dict[str, dict[str, Value]])
    params: dict[str, TensorMeta] = field(default_factory=dict[str, TensorMeta])
    states: dict[str, TensorMeta] = field(default_factory=dict[str, TensorMeta])
    aliases: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def objective(self) -> tuple[Value, Value]:
        """The loss's total and its weight, f32 scalars; a weight of 1 is appended to the graph where the loss has none.

        Raises:
            RecordError: the run has no loss.
        """
        if self.loss_total is None:
            raise RecordError("loss", "a loss, for training and validation", "none")
        return self.loss_total, self.loss_weight if self.loss_weight is not None else self.graph.const(1.0)

    @property
    def draws(self) -> int:
        """Random blocks of four numbers that one run of it consumes."""
        return self.graph.draws


def lower(run: ResolvedRun, batch: int, mode: Mode) -> Lowered:
    """Trace a run into an op graph.

    A layer with running statistics whose own parameters are all frozen runs as in evaluation, so that they stay.

    Args:
        run: resolved record.
        batch: examples in a batch, at least 1.
        mode: what it is for.

    Raises:
        RecordError: shapes or types do not fit, at the line of the block in the record; or ids pass a table.
        ContractError: a block breaks its contract.
    """
    graph = Graph(f"{mode}@{batch}")
    tracing = Tracing(graph, training=mode == "train", batch=batch, ties=Ties(run.graph))
    low = Lowered(mode, batch, graph)
    loads = {name: _load(low, name, spec) for name, spec in run.graph.inputs.items()}
    inputs = dict(loads)
    if mode == "train":
        for i, use in enumerate(run.augment):
            inputs[use.input] = _augmented(
                use.where, f"augment.{i}", use.block.fn, use.params, inputs[use.input], tracing
            )
    low.outputs = trace(run.graph, tracing, inputs)
    if mode != "predict" and run.data is not None:
        targets = run.data.spec.targets
        used = {u.target for u in run.losses} | ({u.target for u in run.metrics} if mode == "eval" else set[str]())
        for name in targets:
            if name in used and name not in loads:
                loads[name] = _load(low, name, targets[name])
        _losses(run, low, tracing, loads)
        if mode == "eval":
            _metrics(run, low, tracing, loads)
    tracing.finish()
    low.params, low.states, low.aliases = tracing.params, tracing.states, tracing.aliases
    _check_indices(run, low)
    for name, value in low.outputs.items():
        graph.output(name, value)
    if low.loss_total is not None:
        graph.output("loss.total", low.loss_total)
    if low.loss_weight is not None:
        graph.output("loss.weight", low.loss_weight)
    if os.environ.get("SCELLIS_CHECK"):
        verify(graph)
    return low


def _load(low: Lowered, name: str, spec: InputSpec) -> Value:
    low.inputs[name] = spec
    return low.graph.load(name, Type(spec.dtype, (low.batch, *spec.shape)))


def _augmented(where: str, path: str, fn: Callable[..., Value], params: Any, x: Value, tracing: Tracing) -> Value:
    context = Context(tracing, path, where, training=True, tensors=False)
    with tracing.graph.at(path):
        y = call_block(where, fn, context, params, x)
    if not isinstance(y, Value) or y.type != x.type:
        raise ContractError(where, f"an input changed in place, {x.type}", str(getattr(y, "type", type(y).__name__)))
    return y


def _losses(run: ResolvedRun, low: Lowered, tracing: Tracing, loads: Mapping[str, Value]) -> None:
    terms: list[LossTerm] = []
    for i, use in enumerate(run.losses):
        path = "loss" if len(run.losses) == 1 else f"loss.{i}"
        context = Context(tracing, path, use.where, training=tracing.training)
        with low.graph.at(path):
            term = call_block(use.where, use.block.fn, context, use.params, low.outputs[use.output], loads[use.target])
            _check_term(use.where, term, low.graph)
            terms.append(LossTerm(term.total if use.weight == 1.0 else term.total * use.weight, term.weight))
    if len(terms) == 1:
        low.loss_total, low.loss_weight = terms[0].total, terms[0].weight
    elif terms:
        with low.graph.at("loss"):
            total = low.graph.const(0.0)
            for term in terms:
                total = total + (term.total if term.weight is None else _quotient(term.total, term.weight))
            low.loss_total, low.loss_weight = total * float(low.batch), low.graph.const(float(low.batch))


def _quotient(total: Value, weight: Value) -> Value:
    """``total / weight``, 0 where the weight is 0."""
    counted = ops.ne(weight, 0.0)
    return ops.select(counted, total / ops.select(counted, weight, 1.0), 0.0)


def _check_term(where: str, term: Any, graph: Graph) -> None:
    if not isinstance(term, LossTerm):
        raise ContractError(where, "a LossTerm", f"a {type(term).__name__}")
    for name, value in (("total", term.total), ("weight", term.weight)):
        if value is None and name == "weight":
            continue
        if not isinstance(value, Value) or value.graph is not graph or value.type != Type("f32", ()):
            raise ContractError(where, f"a {name} of type f32[]", str(getattr(value, "type", type(value).__name__)))


def _metrics(run: ResolvedRun, low: Lowered, tracing: Tracing, loads: Mapping[str, Value]) -> None:
    for use in run.metrics:
        path = f"metrics.{use.name}"
        context = Context(tracing, path, use.where, training=False, tensors=False)
        with low.graph.at(path):
            found = call_block(use.where, use.block.fn, context, use.params, low.outputs[use.output], loads[use.target])
        if not isinstance(found, Mapping) or not found:
            raise ContractError(use.where, "sums as a mapping of names to values", f"a {type(found).__name__}")
        for name, value in found.items():
            if not isinstance(value, Value) or value.graph is not low.graph or value.dtype != "f32":
                got = str(getattr(value, "type", type(value).__name__))
                raise ContractError(use.where, f"f32 values of this graph as sum {name}", got)
        low.metrics[use.key] = dict(found)


_THROUGH: dict[str, slice] = {
    **dict.fromkeys(("reshape", "broadcast", "permute", "slice", "pad", "cast", "concat"), slice(None)),
    "select": slice(1, 3),
}
"""Ops that only move ids about, and which of their operands hold them."""


def _check_indices(run: ResolvedRun, low: Lowered) -> None:
    """Every table must have a row for each id of the input that indexes it."""
    for node in low.graph.nodes:
        if node.op not in ("take", "pick"):
            continue
        rows = node.inputs[0].shape[0 if node.op == "take" else -1]
        for name in _sources(node.inputs[1]):
            spec = low.inputs[name]
            if spec.limit is None:
                low.inputs[name] = replace(spec, limit=rows)
            elif spec.limit > rows:
                what = "rows" if node.op == "take" else "classes"
                expected = f"at least {spec.limit} {what}, as ids of {name} run to {spec.limit - 1}"
                hint = f"a size of {spec.limit}" if node.op == "take" else f"a model with {spec.limit} outputs"
                raise RecordError(_place_of(run, node), expected, f"{rows} {what}", hint)


def _sources(value: Value) -> set[str]:
    """Names of the batch inputs whose elements a value's elements are."""
    found: set[str] = set()
    pending, seen = [value.node], set[Node]()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op == "load":
            found.add(str(node.attrs["name"]))
        elif node.op in _THROUGH:
            pending += [v.node for v in node.inputs[_THROUGH[node.op]]]
    return found


def _place_of(run: ResolvedRun, node: Node) -> str:
    instance = run.graph.instances.get(node.path)
    if instance is not None:
        return place(instance.where, instance.path, instance.layer.id)
    head, _, index = node.path.partition(".")
    if head == "loss" and run.losses:
        return run.losses[int(index) if index.isdecimal() else 0].where
    return next((u.where for u in run.metrics if node.path == f"metrics.{u.name}"), node.path)


def count_params(low: Lowered) -> tuple[int, int]:
    """(elements of trainable parameters, of all parameters); a tied tensor counts once."""
    sizes = [(m.numel, m.trainable) for m in low.params.values()]
    return sum(n for n, trainable in sizes if trainable), sum(n for n, _ in sizes)
