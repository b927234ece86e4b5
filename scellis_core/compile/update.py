"""The ``apply`` graph: unscale, norm, clip, finite check, optimizer phases, and the stores that end a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scellis_core import ops
from scellis_core.blocks import Clip, Hyper, Optimizer, ParamView, Phase, Slot
from scellis_core.errors import ContractError
from scellis_core.ir import Graph, Type, Value

REPORT = ("inverse", "ok", "t", "loss", "grad_norm", "skipped", "next_t")
"""Entries of ``global:report``, f32, in order: what one step tells the host in a single small readback."""

SCALAR = Type("f32", ())


@dataclass(frozen=True)
class Unit:
    """What one update kernel covers: a part of a slab, or one tensor.

    Attributes:
        name, type: of the unit.
        op: the leaf that reads the parameters (``state`` for slabs, ``param`` for a tensor).
        p, g, slots: tensors by name.
        params: the optimizer's parameters for these weights (their group's).
        lr_scale: their group's factor on the learning rate.
    """

    name: str
    type: Type
    op: str
    p: str
    g: str
    slots: Mapping[str, str]
    params: Any
    lr_scale: float = 1.0


@dataclass(frozen=True)
class Pending:
    """A slab of running statistics (or a part of one), and the tensor where micro steps put its next value."""

    kept: str
    next: str
    type: Type


@dataclass(frozen=True)
class UpdatePlan:
    """The blocks that shape an update, with their validated parameters."""

    optimizer: Optimizer
    params: Any
    clip: Clip | None
    clip_params: Any
    accumulate: bool


def needs_tensors(optimizer: Optimizer, clip: Clip | None) -> bool:
    """Whether a phase works on single parameters rather than on whole slabs."""
    phases = list(optimizer.phases) + list(clip.phases if clip else ())
    return any(p.scope in ("tensor", "matrix") for p in phases)


def build_apply(
    plan: UpdatePlan, units: Sequence[Unit], globals_: Mapping[str, Slot], pending: Sequence[Pending] = ()
) -> Graph:
    """Build the graph that turns accumulated gradients into new parameters.

    The step is applied only if the global gradient norm is finite and the loss had any weight; otherwise
    every tensor keeps its bits and ``skipped`` grows by one.
    """
    g = Graph("apply")
    lr = g.scalar("lr")
    weight = g.state("global:weight", SCALAR)
    denominator = weight * g.scalar("loss_scale")
    usable = ops.ne(denominator, 0.0)
    inverse = ops.select(usable, 1.0 / ops.select(usable, denominator, 1.0), 0.0)
    grads = {u.name: g.state(u.g, u.type) for u in units}
    squares = [ops.reduce_sum(ops.square(grads[u.name] * inverse)) for u in units]
    total = squares[0]
    for square in squares[1:]:
        total = total + square
    ok = ops.select(ops.isfinite(total) & usable, 1.0, 0.0)
    loss = g.state("global:loss", SCALAR) * ops.select(usable, 1.0 / ops.select(usable, weight, 1.0), 0.0)
    t = g.state("global:t", SCALAR)
    skipped = g.state("global:skipped", SCALAR)
    entries = {
        "inverse": inverse,
        "ok": ok,
        "t": t + ok,
        "loss": loss,
        "grad_norm": ops.sqrt(total),
        "skipped": skipped + (1.0 - ok),
        "next_t": t + 1.0,
    }
    g.store("global:report", ops.concat([ops.reshape(entries[k], (1,)) for k in REPORT], axis=0))
    packed = g.state("global:report", Type("f32", (len(REPORT),)))
    g.output("report", packed)
    report = {k: ops.reshape(ops.slice(packed, starts=(i,), stops=(i + 1,)), ()) for i, k in enumerate(REPORT)}
    applied = ops.ne(report["ok"], 0.0)
    hyper = Hyper(
        plan.params,
        lr,
        report["next_t"],
        report["grad_norm"],
        globals={name: g.state(f"global:opt.{name}", SCALAR) for name in globals_},
        weight_decay=getattr(plan.params, "weight_decay", 0.0),
    )
    views = [
        ParamView(
            u.name,
            (g.state if u.op == "state" else g.param)(u.p, u.type),
            grads[u.name] * report["inverse"],
            {s: g.state(name, u.type) for s, name in u.slots.items()},
        )
        for u in units
    ]
    if plan.clip is not None:
        clip_hyper = Hyper(plan.clip_params, lr, hyper.t, hyper.grad_norm)
        views = _run_gradient_phases(plan.clip, views, clip_hyper)
    hypers = {u.name: _for_unit(hyper, u) for u in units}
    results = _run_phases(plan.optimizer, views, hyper, hypers)
    for unit, view in zip(units, views, strict=True):
        new_p, new_s = results[unit.name]
        g.store(unit.p, ops.select(applied, new_p, view.p))
        for slot, name in unit.slots.items():
            if slot in new_s:
                g.store(name, ops.select(applied, new_s[slot], view.s[slot]))
        if plan.accumulate:
            g.store(unit.g, g.const(0.0, "f32", unit.type.shape))
    for part in pending:
        kept = ops.select(applied, g.state(part.next, part.type), g.state(part.kept, part.type))
        g.store(part.kept, kept)
        if plan.accumulate:
            g.store(part.next, kept)
    for name in globals_:
        if name in hyper.shared:
            g.store(f"global:opt.{name}", ops.select(applied, hyper.shared[name], hyper.globals[name]))
    g.store("global:t", report["t"])
    g.store("global:skipped", report["skipped"])
    if plan.accumulate:
        g.store("global:loss", g.const(0.0))
        g.store("global:weight", g.const(0.0))
    return g.prune()


def _for_unit(hyper: Hyper, unit: Unit) -> Hyper:
    """The hyperparameters of a unit's group; scalars of earlier phases are shared by all."""
    lr = hyper.lr if unit.lr_scale == 1.0 else hyper.lr * unit.lr_scale
    decay = getattr(unit.params, "weight_decay", 0.0)
    return replace(hyper, params=unit.params, lr=lr, weight_decay=decay)


def _run_gradient_phases(clip: Clip, views: list[ParamView], hyper: Hyper) -> list[ParamView]:
    for phase in clip.phases:
        if phase.scope == "all":
            hyper.shared.update(phase.fn(views, hyper))
        else:
            views = [
                ParamView(v.path, v.p, phase.fn(v.p, v.g, v.s, hyper)[0], v.s) if _covers(phase, v) else v
                for v in views
            ]
    return views


def _run_phases(
    optimizer: Optimizer, views: Sequence[ParamView], hyper: Hyper, hypers: Mapping[str, Hyper]
) -> dict[str, tuple[Value, dict[str, Value]]]:
    """Run an optimizer's phases in order: each sees the slots and parameters the one before it left."""
    current = {v.path: (v.p, dict(v.s)) for v in views}
    touched: dict[str, set[str]] = {v.path: set() for v in views}
    for phase in optimizer.phases:
        if phase.scope == "all":
            seen = [ParamView(v.path, *_now(current, v)) for v in views]
            hyper.shared.update(phase.fn(seen, hyper))
            continue
        for view in views:
            if _covers(phase, view):
                p, s = current[view.path]
                result = phase.fn(p, view.g, s, hypers[view.path])
                if not isinstance(result, tuple) or len(result) != 2:
                    raise ContractError(
                        optimizer.id, "a phase that returns (new p, {slot: value})", type(result).__name__
                    )
                new_p, new_s = result
                unknown = set(new_s) - set(s)
                if unknown:
                    raise ContractError(optimizer.id, f"declared slots {sorted(s)}", f"{sorted(unknown)}")
                current[view.path] = (new_p, {**s, **new_s})
                touched[view.path] |= set(new_s)
    return {path: (p, {k: v for k, v in s.items() if k in touched[path]}) for path, (p, s) in current.items()}


def _now(
    current: Mapping[str, tuple[Value, dict[str, Value]]], view: ParamView
) -> tuple[Value, Value, dict[str, Value]]:
    p, s = current[view.path]
    return p, view.g, s


def _covers(phase: Phase, view: ParamView) -> bool:
    return phase.scope != "matrix" or view.p.ndim == 2
