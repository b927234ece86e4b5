"""``plan`` and ``inspect``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from scellis_core.cli import text
from scellis_core.cli.app import (
    limits_option,
    plugins_option,
    read_limits,
    read_record,
    record_argument,
    set_options,
    store_option,
)
from scellis_core.errors import IRError, nearest

if TYPE_CHECKING:
    from scellis_core.compile import Compiled
    from scellis_core.lower.program import Command, Limits, Range, StepProgram
    from scellis_core.model import Mode, ResolvedRun
    from scellis_core.record import Record

LEVELS = ("L4", "L3", "L2", "L1", "L0")

BELONGS = {
    "defaults": ("L4",),
    "mode": ("L2", "L1", "L0"),
    "batch": ("L2", "L1", "L0"),
    "sequence": ("L1", "L0"),
    "kernel": ("L0",),
}
"""Options of ``inspect`` and the levels that they mean something at."""


@click.command()
@record_argument
@store_option
@set_options
@limits_option
@plugins_option
@click.option("--json", "as_json", is_flag=True, help="Plain data.")
def plan(
    record: Path,
    store: Path | None,
    overrides: tuple[str, ...],
    removed: tuple[str, ...],
    limits: Path | None,
    plugins_dir: Path | None,
    as_json: bool,
) -> None:
    """Say what RECORD will allocate, by class; the sum is what the device is asked for."""
    from scellis_core.catalog import Catalog
    from scellis_core.train import api

    ready, cap = read_record(record, overrides, removed, store), read_limits(limits)
    found = api.plan(ready, limits=cap, catalog=Catalog.discover(plugins_dir), store=store)
    if as_json:
        text.as_json(found.to_json())
        return
    click.echo(f"{found.parameters:,} parameters, {found.trainable:,} trainable")
    rows = [*found.classes.items(), ("in all", found.total)]
    text.table(
        ("class", "bytes", ""), [(name, f"{count:,}", text.human_bytes(count)) for name, count in rows], right=(1, 2)
    )
    text.table(("sequence", "dispatches"), [(name, str(count)) for name, count in found.dispatches.items()], right=(1,))


@click.command()
@record_argument
@click.option(
    "--level", type=click.Choice(LEVELS, case_sensitive=False), default="L4", show_default=True, help="What to print."
)
@click.option("--defaults", is_flag=True, help="L4: every optional key that is left out, with its value.")
@click.option(
    "--mode", type=click.Choice(("train", "eval", "predict")), help="L2, L1, L0 [train, or predict without a pipeline]."
)
@click.option("--batch", type=click.IntRange(min=1), help="L2, L1, L0: examples a batch [the record's batch_size].")
@click.option("--sequence", metavar="NAME", help="L1, L0: one sequence, such as micro@32 or apply.")
@click.option("--kernel", metavar="NAME", help="L0: the WGSL of the kernels whose names begin so.")
@store_option
@set_options
@limits_option
@plugins_option
@click.pass_context
def inspect(
    ctx: click.Context,
    record: Path,
    level: str,
    defaults: bool,
    mode: Mode | None,
    batch: int | None,
    sequence: str | None,
    kernel: str | None,
    store: Path | None,
    overrides: tuple[str, ...],
    removed: tuple[str, ...],
    limits: Path | None,
    plugins_dir: Path | None,
) -> None:
    """Print RECORD at a level: L4 record, L3 blocks, L2 ops, L1 the whole step, L0 kernels and dispatches."""
    for name, levels in BELONGS.items():
        if ctx.params[name] not in (None, False) and level not in levels:
            raise click.UsageError(f"--{name} belongs to --level {' or '.join(levels)}, got --level {level}")
    ready, cap = read_record(record, overrides, removed, store), read_limits(limits)
    if level == "L4":
        click.echo(_record(ready, defaults), nl=False)
        return
    from scellis_core.catalog import Catalog
    from scellis_core.ir import print_graph
    from scellis_core.model import lower, print_blocks, resolve_run

    run = resolve_run(ready, Catalog.discover(plugins_dir), ready.base)
    if level == "L3":
        click.echo(print_blocks(run.graph), nl=False)
        return
    missing = ready.pipeline_missing()
    chosen: Mode = mode or ("predict" if missing else "train")
    if missing and chosen != "predict":
        raise ready.error((), f"a pipeline to {chosen} with: {', '.join(missing)}", "no such key", "--mode predict")
    size = batch or ready.spec.batch_size or 1
    if level == "L2":
        click.echo(print_graph(lower(run, size, chosen).graph), nl=False)
        return
    compiled = _compile(run, size, chosen, mode is None and not missing, cap)
    names = list(compiled.graphs)
    if sequence is not None:
        names = _named("sequence", sequence, names)
    if level == "L1":
        click.echo(_steps(compiled, names), nl=False)
    elif kernel is not None:
        click.echo(_wgsl(compiled.program, kernel), nl=False)
    else:
        click.echo(_program(compiled.program, names), nl=False)


def _compile(run: ResolvedRun, size: int, mode: Mode, whole: bool, limits: Limits | None) -> Compiled:
    """The sequences of a mode; of a whole run, evaluation too."""
    from scellis_core.compile import compile_run
    from scellis_core.lower.program import Limits

    return compile_run(
        run,
        limits or Limits(),
        train=[size] if mode == "train" else [],
        evaluate=[size] if whole or mode == "eval" else [],
        predict=[size] if mode == "predict" else [],
    )


def _record(record: Record, defaults: bool) -> str:
    shown = record.text()
    shown += "" if shown.endswith("\n") else "\n"
    if defaults:
        values = record.defaults()
        shown += "\n# defaults\n" + "".join(f"# {key}: {json.dumps(value)}\n" for key, value in values.items())
    return shown + f"# digest {record.digest}\n"


def _named(what: str, wanted: str, choices: Sequence[str]) -> list[str]:
    """The choices that a name means: its own, else those whose part before ``#`` or ``@`` it is, else that begin so.

    Raises:
        IRError: if there are none; names the nearest.
    """
    short = {choice: choice.partition("#")[0].partition("@")[0] for choice in choices}
    for same in (
        [choice for choice in choices if choice == wanted],
        [choice for choice in choices if short[choice] == wanted],
        [choice for choice in choices if choice.startswith(wanted)],
    ):
        if same:
            return same
    raise IRError(f"--{what}", f"a {what} of this program", repr(wanted), nearest(wanted, short.values()))


def _steps(compiled: Compiled, names: Sequence[str]) -> str:
    from scellis_core.ir import print_graph
    from scellis_core.lower.group import describe_groups

    parts: list[str] = []
    for name in names:
        groups = "".join(f"; {line}\n" for line in describe_groups(compiled.groups[name]).splitlines())
        parts.append(f"; sequence {name}\n{print_graph(compiled.graphs[name])}{groups}")
    return "\n".join(parts)


def _wgsl(program: StepProgram, wanted: str) -> str:
    keys = _named("kernel", wanted, list(program.kernels))
    return "\n".join(f"// {key}\n{program.kernels[key].wgsl.rstrip()}\n" for key in keys)


def _program(program: StepProgram, names: Sequence[str]) -> str:
    lines = [f"buffer {b.name} {b.size} {b.kind}" for b in program.buffers.values()]
    lines += [f"scalar {name} {dtype} @{offset}" for name, (dtype, offset) in program.scalars.items()]
    for key, kernel in program.kernels.items():
        lines.append(f"kernel {key} workgroup={list(kernel.workgroup)} bindings={len(kernel.bindings)}")
    for name in names:
        sequence = program.sequences[name]
        lines.append(f"sequence {name}")
        lines += _tensors("input", sequence.inputs)
        lines += [f"  {_command(command)}" for command in sequence.commands]
        lines += _tensors("output", sequence.outputs)
    return "\n".join(lines) + "\n"


def _tensors(what: str, tensors: Mapping[str, str]) -> list[str]:
    return [f"  {what} {name} {tensor}" for name, tensor in tensors.items()]


def _command(command: Command) -> str:
    from scellis_core.lower.program import Clear, Dispatch

    if isinstance(command, Dispatch):
        binds = " ".join(_range(part) for part in command.binds)
        where = f"  ; {command.path}" if command.path else ""
        return f"dispatch {command.kernel} {list(command.grid)} {binds}{where}"
    if isinstance(command, Clear):
        return f"clear {_range(command.dst)}"
    return f"copy {_range(command.src)} {_range(command.dst)}"


def _range(part: Range) -> str:
    return f"{part.buffer}[{part.offset}:{part.offset + part.size}]"
