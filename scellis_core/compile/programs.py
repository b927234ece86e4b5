"""One step program for a run: layout of persistent tensors, then every sequence, placed over shared slots."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from scellis_core.autodiff import gradients
from scellis_core.blocks import InputSpec, ParamInfo, Slot, match_path
from scellis_core.compile.support import check_limits, check_supported
from scellis_core.compile.update import REPORT, Pending, Unit, UpdatePlan, build_apply, needs_tensors
from scellis_core.errors import IRError, RecordError
from scellis_core.ir import Graph, Type, Value, digest, parse_graph, print_graph, verify
from scellis_core.lower.group import Group, group_graph
from scellis_core.lower.layout import Slab, align, chunks, pack, place_chunks, place_slabs
from scellis_core.lower.place import SlotPool, place_sequence
from scellis_core.lower.program import ALIGN, Buffer, Limits, StepProgram
from scellis_core.lower.wgsl import ScalarTable
from scellis_core.model import Lowered, Mode, ResolvedRun, TensorMeta, lower

T = TypeVar("T")

READBACKS = 3
"""Readbacks that may be under way at once; each has a staging buffer."""

STAGING_PIECE = 4 * 1024 * 1024
"""Bytes of a persistent tensor that are read back at once."""

NEXT = "next:"
"""Before the name of a statistic: its value should the step not be skipped."""

BASE_SCALARS = (("lr", "f32"), ("loss_scale", "f32"), ("rng.counter_lo", "u32"), ("rng.counter_hi", "u32"))


@dataclass
class Compiled:
    """A run made ready: the step program and, for people and the oracle, what it was made from.

    Attributes:
        program: for a device.
        graphs: the L1 graph of each sequence.
        groups: how each was cut into kernels.
        params, states: initial values and shapes by name.
        inputs: batch inputs and targets of all sequences, with the size of the table that ids index.
        slots: initial value of each optimizer tensor, by tensor name.
        draws: random blocks of four that one micro step consumes.
    """

    program: StepProgram
    graphs: dict[str, Graph] = field(default_factory=dict[str, Graph])
    groups: dict[str, list[Group]] = field(default_factory=dict[str, "list[Group]"])
    params: Mapping[str, TensorMeta] = field(default_factory=dict[str, TensorMeta])
    states: Mapping[str, TensorMeta] = field(default_factory=dict[str, TensorMeta])
    inputs: dict[str, InputSpec] = field(default_factory=dict[str, InputSpec])
    slots: dict[str, Slot] = field(default_factory=dict[str, Slot])
    draws: int = 0

    def pending(self, tensors: Mapping[str, T]) -> dict[str, T]:
        """What else to write along with statistics: their next values, where the program trains."""
        return {NEXT + n: tensors[n] for n in self.states if n in tensors and NEXT + n in self.program.tensors}


def compile_run(
    run: ResolvedRun,
    limits: Limits,
    *,
    train: Iterable[int] = (),
    evaluate: Iterable[int] = (),
    predict: Iterable[int] = (),
) -> Compiled:
    """Compile the sequences of a run for these batch sizes.

    Args:
        run: resolved record.
        limits: of the device.
        train: batch sizes of micro steps (the epoch's tail included); adds ``apply`` where there are any.
        evaluate: batch sizes of evaluation.
        predict: batch sizes of prediction.

    Raises:
        RecordError: if the record asks for what this version does not compile.
        DeviceError: if a tensor or kernel passes the device's limits.
    """
    check_limits(limits)
    check_supported(run)
    lowered: dict[str, Lowered] = {}
    asked: tuple[tuple[Mode, Iterable[int]], ...] = (("train", train), ("eval", evaluate), ("predict", predict))
    for mode, sizes in asked:
        for batch in dict.fromkeys(sizes):
            name = f"{'micro' if mode == 'train' else mode}@{batch}"
            lowered[name] = lower(run, batch, mode)
    if not lowered:
        raise RecordError("compile", "at least one sequence", "none")
    first = next(iter(lowered.values()))
    compiled = Compiled(StepProgram(limits), params=first.params, states=first.states)
    for low in lowered.values():
        compiled.inputs |= low.inputs
    program = compiled.program
    fuse = run.record.spec.determinism_tier != "debug"
    training = any(n.startswith("micro@") for n in lowered)
    apply_graph = _lay_out(run, compiled, training)
    forward = {name: set(low.graph.nodes) for name, low in lowered.items()}
    for name, low in lowered.items():
        compiled.graphs[name] = _micro_graph(run, low) if name.startswith("micro@") else _forward_graph(low)
    if apply_graph is not None:
        compiled.graphs["apply"] = apply_graph
    if os.environ.get("SCELLIS_CHECK"):
        for graph in compiled.graphs.values():
            _check(graph)
    compiled.draws = max((g.draws for n, g in compiled.graphs.items() if n.startswith("micro@")), default=0)

    scalars = ScalarTable()
    for scalar, dtype in BASE_SCALARS:
        scalars.slot(scalar, dtype)
    pool = SlotPool()
    for name, graph in compiled.graphs.items():
        groups = compiled.groups[name] = group_graph(graph, limits, fuse=fuse)
        place_sequence(program, name, graph, groups, pool, scalars, limits, forward.get(name, graph.nodes))
    pool.create_buffers(program)
    program.scalars = scalars.layout()
    program.buffers["scalars"] = Buffer("scalars", 4 * ScalarTable.CAPACITY, "scalars")
    program.buffers["staging"] = Buffer("staging", _staging_bytes(program), "staging")
    program.meta = {
        "record": run.record.digest,
        "tier": run.record.spec.determinism_tier,
        "l1": {name: digest(graph) for name, graph in compiled.graphs.items()},
        "draws": compiled.draws,
        "report": list(REPORT),
        "slots": pool.summary(),
        "readbacks": READBACKS,
    }
    return compiled


def _check(graph: Graph) -> None:
    """Verify a graph, and that its text gives an equal one back (``SCELLIS_CHECK=1``).

    Raises:
        IRError: if either fails.
    """
    verify(graph)
    text = print_graph(graph)
    again = parse_graph(text)
    if print_graph(again) != text or digest(again) != digest(graph):
        raise IRError(f"graph {graph.name}", "text that gives the same graph back", "another graph")


def _staging_bytes(program: StepProgram) -> int:
    """Room for the outputs of any sequence, and for reading persistent tensors in pieces, :data:`READBACKS` times."""
    size = {name: align(tensor.range.size) for name, tensor in program.tensors.items()}
    outputs = [sum(size[t] for t in s.outputs.values()) for s in program.sequences.values()]
    slabs = [b.size for b in program.buffers.values() if b.kind in ("param", "optimizer", "state")]
    return READBACKS * align(max(*outputs, min(max(slabs), STAGING_PIECE), ALIGN))


def _lay_out(run: ResolvedRun, compiled: Compiled, training: bool) -> Graph | None:
    """Create the persistent buffers; returns the ``apply`` graph where the run trains."""
    program, limits = compiled.program, compiled.program.limits
    types = {p: Type(m.dtype, m.shape) for p, m in compiled.params.items()}
    trained = {p: t for p, t in types.items() if training and compiled.params[p].trainable}
    kept = {p: t for p, t in types.items() if p not in trained}
    place_slabs(program, "param", "frozen", pack(kept, limits), kept, "")
    slabs = [slab for members in _by_group(run, trained) for slab in pack(members, limits)]
    place_slabs(program, "param", "param", slabs, trained, "")
    states = {n: Type(m.dtype, m.shape) for n, m in compiled.states.items()}
    statistics = pack(states, limits)
    place_slabs(program, "state", "statistics", statistics, states, "")
    if not training:
        return None
    if run.optimizer is None:
        raise RecordError(run.record.where("optimizer"), "an optimizer", "none", "optimizer: { block_id: ... }")
    if not trained:
        key, got = ("freeze", f"all {len(types)} frozen") if types else ("architecture", "a model without weights")
        raise RecordError(run.record.where(key), "at least one weight to train", got)
    place_slabs(program, "grad", "grad", slabs, trained, "grad:")
    place_slabs(program, "state", "next", statistics, states, NEXT)
    graph, counters = _optimizer(run, compiled, slabs, trained, _pending(program, statistics, limits))
    place_slabs(program, "state", "state", pack(counters, limits), counters, "")
    return graph


def _pending(program: StepProgram, statistics: Sequence[Slab], limits: Limits) -> list[Pending]:
    """What ``apply`` takes over into the statistics: each part of their slabs."""
    parts = chunks(statistics, limits)
    kept, found = place_chunks(program, "statistics", parts), place_chunks(program, "next", parts)
    return [Pending(k, n, Type("f32", program.tensors[k].shape)) for k, n in zip(kept, found, strict=True)]


def _group(run: ResolvedRun, path: str) -> tuple[Any, float]:
    """(the optimizer's parameters, factor on the learning rate) for a weight: the first group that matches counts."""
    for group in run.groups:
        if match_path(group.match, path):
            return group.params, group.lr_scale
    assert run.optimizer is not None
    return run.optimizer[1], 1.0


def _by_group(run: ResolvedRun, trained: Mapping[str, Type]) -> list[dict[str, Type]]:
    """The trained weights apart by group, so that no slab mixes two."""
    if not run.groups:
        return [dict(trained)]
    found: dict[int, dict[str, Type]] = {}
    for path, type in trained.items():
        index = next((i for i, g in enumerate(run.groups) if match_path(g.match, path)), len(run.groups))
        found.setdefault(index, {})[path] = type
    return list(found.values())


def _optimizer(
    run: ResolvedRun, compiled: Compiled, slabs: list[Slab], trained: dict[str, Type], pending: Sequence[Pending]
) -> tuple[Graph, dict[str, Type]]:
    program, limits = compiled.program, compiled.program.limits
    assert run.optimizer is not None
    block, params = run.optimizer
    clip, clip_params = run.clip if run.clip is not None else (None, None)
    declared = {path: block.slots(params, ParamInfo(path, t.shape)) for path, t in trained.items()}
    names = list(dict.fromkeys(s for slots in declared.values() for s in slots))
    for slot in names:
        place_slabs(program, "optimizer", f"opt.{slot}", slabs, trained, f"opt:{slot}:")
        for path in trained:
            compiled.slots[f"opt:{slot}:{path}"] = declared[path].get(slot, Slot())
    if needs_tensors(block, clip):
        units = [
            Unit(p, t, "param", p, f"grad:{p}", {s: f"opt:{s}:{p}" for s in declared[p]}, *_group(run, p))
            for p, t in trained.items()
        ]
    else:
        parts = chunks(slabs, limits)
        columns = {c: place_chunks(program, c, parts) for c in ("param", "grad", *(f"opt.{s}" for s in names))}
        units = [
            Unit(p, Type("f32", program.tensors[p].shape), "state", p, columns["grad"][i],
                 {s: columns[f"opt.{s}"][i] for s in names}, *_group(run, next(iter(slabs[parts[i].slab].offsets))))
            for i, p in enumerate(columns["param"])
        ]  # fmt: skip
    globals_ = dict(block.globals(params))
    more = {f"global:{n}": Type("f32", ()) for n in ("weight", "loss", "t", "skipped")}
    more["global:report"] = Type("f32", (len(REPORT),))
    for name, slot in globals_.items():
        more[f"global:opt.{name}"] = Type("f32", ())
        compiled.slots[f"global:opt.{name}"] = slot
    plan = UpdatePlan(block, params, clip, clip_params, run.record.spec.grad_accumulation > 1)
    return build_apply(plan, units, globals_, pending), more


def _micro_graph(run: ResolvedRun, low: Lowered) -> Graph:
    """Forward and backward of one micro step; gradients of ``total * loss_scale`` reach ``grad:<path>``.

    Statistics go to ``next:<name>``, from where ``apply`` takes them unless it skips the step.
    """
    graph = low.graph
    accumulate = run.record.spec.grad_accumulation > 1
    leaves = {p: v for p, v in graph.leaves("param").items() if low.params[p].trainable}
    total, weight = low.objective
    found = gradients(graph, total, list(leaves.values()), graph.scalar("loss_scale"))
    for name, value in (("global:loss", total), ("global:weight", weight)):
        graph.store(name, graph.state(name, value.type) + value if accumulate else value)
    for path, meta in low.params.items():
        if not meta.trainable:
            continue
        type = Type("f32", meta.shape)
        value: Value | None = found.get(leaves[path]) if path in leaves else None
        if value is None:
            if not accumulate:
                graph.store(f"grad:{path}", graph.const(0.0, "f32", meta.shape))
            continue
        with graph.at(value.node.path):
            graph.store(f"grad:{path}", graph.state(f"grad:{path}", type) + value if accumulate else value)
    for node in graph.nodes:
        if node.attrs.get("name") in low.states and (node.op == "store" or accumulate):
            node.attrs["name"] = f"{NEXT}{node.attrs['name']}"
    graph.name = "micro"
    graph.outputs.clear()
    return graph.prune()


def _forward_graph(low: Lowered) -> Graph:
    graph = low.graph
    graph.outputs.clear()
    if low.mode == "predict":
        for name, value in low.outputs.items():
            graph.output(name, value)
    else:
        total, weight = low.objective
        graph.output("loss.total", total)
        graph.output("loss.weight", weight)
        for metric, sums in low.metrics.items():
            for key, value in sums.items():
                graph.output(f"{metric}:{key}", value)
    return graph.prune()
