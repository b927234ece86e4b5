"""``plan`` and ``inspect``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from scellis_core.cli.app import (
    limits_option,
    plugins_option,
    read_limits,
    read_record,
    record_argument,
    set_option,
    store_option,
)
from scellis_core.errors import IRError, nearest

LEVELS = ("L4", "L3", "L2", "L1", "L0")


@click.command()
@record_argument
@store_option
@set_option
@limits_option
@plugins_option
@click.option("--json", "as_json", is_flag=True, help="Plain data.")
def plan(
    record: Path, store: Path | None, overrides: tuple[str, ...], limits: Path | None, plugins_dir: Path | None, as_json: bool
) -> None:
    """Say what RECORD will allocate, by class; the sum is what the device is asked for."""
    from scellis_core.catalog import Catalog
    from scellis_core.cli.progress import human_bytes
    from scellis_core.train import api

    found = api.plan(
        read_record(record, overrides, store), limits=read_limits(limits), catalog=Catalog.discover(plugins_dir), store=store
    )
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("class", "bytes", "", title=f"{found.parameters:,} parameters, {found.trainable:,} trainable")
    table.columns[1].justify = "right"
    for name, count in found.classes.items():
        table.add_row(name, f"{count:,}", human_bytes(count))
    table.add_section()
    table.add_row("in all", f"{found.total:,}", human_bytes(found.total))
    Console().print(table)
    for name, count in found.dispatches.items():
        click.echo(f"{name}: {count} dispatches")


@click.command()
@record_argument
@click.option("--level", type=click.Choice(LEVELS, case_sensitive=False), default="L4", show_default=True)
@click.option("--defaults", is_flag=True, help="L4: every optional key with its default.")
@click.option("--mode", type=click.Choice(("train", "eval", "predict")), default="train", show_default=True, help="L2.")
@click.option("--sequence", help="L1 and L0: one sequence, such as micro@32 or apply.")
@click.option("--kernel", help="L0: the WGSL of one kernel, by the beginning of its name.")
@click.option("--batch", type=click.IntRange(min=1), help="Examples a batch [the record's batch_size].")
@store_option
@set_option
@limits_option
@plugins_option
def inspect(
    record: Path,
    level: str,
    defaults: bool,
    mode: str,
    sequence: str | None,
    kernel: str | None,
    batch: int | None,
    store: Path | None,
    overrides: tuple[str, ...],
    limits: Path | None,
    plugins_dir: Path | None,
) -> None:
    """Print RECORD at a level: L4 record, L3 blocks, L2 ops, L1 the whole step, L0 kernels and dispatches."""
    ready = read_record(record, overrides, store)
    if level == "L4":
        click.echo(_record(ready, defaults), nl=False)
        return
    from scellis_core.catalog import Catalog
    from scellis_core.ir import print_graph
    from scellis_core.model import lower, print_blocks, resolve_run

    run = resolve_run(ready, Catalog.discover(plugins_dir), ready.base)
    size = batch or ready.spec.batch_size or 1
    training = not ready.pipeline_missing()
    if level == "L3":
        click.echo(print_blocks(run.graph), nl=False)
    elif level == "L2":
        chosen: Any = mode if training else "predict"
        click.echo(print_graph(lower(run, size, chosen).graph), nl=False)
    else:
        from scellis_core.compile import compile_run
        from scellis_core.lower.program import Limits

        sizes = {"train": [size], "evaluate": [size]} if training else {"predict": [size]}
        compiled = compile_run(run, read_limits(limits) or Limits(), **sizes)
        names = [_pick("sequence", sequence, list(compiled.graphs))] if sequence else list(compiled.graphs)
        click.echo(_steps(compiled, names) if level == "L1" else _program(compiled.program, names, kernel), nl=False)


def _record(record: Any, defaults: bool) -> str:
    text = record.text()
    text += "" if text.endswith("\n") else "\n"
    if defaults:
        text += "\n# defaults\n" + "".join(f"# {key}: {json.dumps(value)}\n" for key, value in record.defaults().items())
    return text + f"# digest {record.digest}\n"


def _pick(what: str, wanted: str, choices: list[str]) -> str:
    found = [c for c in choices if c == wanted] or [c for c in choices if c.startswith(wanted)]
    if not found:
        raise IRError(f"--{what}", f"a {what} of this program", repr(wanted), nearest(wanted, choices))
    return found[0]


def _steps(compiled: Any, names: list[str]) -> str:
    from scellis_core.ir import print_graph
    from scellis_core.lower.group import describe_groups

    parts: list[str] = []
    for name in names:
        text = print_graph(compiled.graphs[name])
        groups = "".join(f"; {line}\n" for line in describe_groups(compiled.groups[name]).splitlines())
        parts.append(f"; sequence {name}\n{text}{groups}")
    return "\n".join(parts)


def _program(program: Any, names: list[str], kernel: str | None) -> str:
    from scellis_core.lower.program import Clear, Dispatch

    if kernel is not None:
        key = _pick("kernel", kernel, list(program.kernels))
        return f"// {key}\n{program.kernels[key].wgsl}"
    lines = [f"buffer {b.name} {b.size} {b.kind}" for b in program.buffers.values()]
    lines += [f"scalar {n} {dtype} @{offset}" for n, (dtype, offset) in program.scalars.items()]
    lines += [f"kernel {key} workgroup={list(k.workgroup)} bindings={len(k.bindings)}" for key, k in program.kernels.items()]
    for name in names:
        lines.append(f"sequence {name}")
        for command in program.sequences[name].commands:
            if isinstance(command, Dispatch):
                binds = " ".join(f"{r.buffer}[{r.offset}:{r.offset + r.size}]" for r in command.binds)
                where = f"  ; {command.path}" if command.path else ""
                lines.append(f"  dispatch {command.kernel} {list(command.grid)} {binds}{where}")
            elif isinstance(command, Clear):
                lines.append(f"  clear {command.dst.buffer}[{command.dst.offset}:{command.dst.offset + command.dst.size}]")
            else:
                source, target = command.src, command.dst
                lines.append(f"  copy {source.buffer}[{source.offset}] {target.buffer}[{target.offset}] {source.size}")
    return "\n".join(lines) + "\n"
