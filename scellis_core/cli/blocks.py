"""``catalog``: list blocks, show one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from scellis_core.cli import text
from scellis_core.cli.app import plugins_option


@click.command(epilog="A family is layer, model, training, training/optimizer and so on.")
@click.argument("words", nargs=-1, metavar="[FAMILY] | show ID")
@click.option("--json", "as_json", is_flag=True, help="Plain data.")
@plugins_option
def catalog(words: tuple[str, ...], as_json: bool, plugins_dir: Path | None) -> None:
    """List the blocks of a FAMILY (of all without), or show one block with its parameters: catalog show ID."""
    from scellis_core.catalog import Catalog

    found = Catalog.discover(plugins_dir)
    if words and words[0] == "show":
        if len(words) != 2:
            raise click.UsageError("catalog show takes one block id: scellis catalog show training/optimizer/adamw")
        block = found.describe(words[1])
        text.as_json(block) if as_json else _show(block)
        return
    if len(words) > 1:
        raise click.UsageError(f"catalog takes one family, got: {' '.join(words)}")
    entries = found.entries(words[0] if words else None, load=True)
    if as_json:
        text.as_json([e.to_json() for e in entries])
        return
    text.table(
        ("block", "title", "origin", "state"),
        [(e.id, e.title, f"{e.distribution} {e.version}", e.state) for e in entries],
    )


def _show(block: dict[str, Any]) -> None:
    click.echo(f"{block['id']}  {block['title']}")
    click.echo(block["summary"])
    text.table(
        ("parameter", "type", "default", "range", "unit", "what it is"),
        [_parameter(row) for row in block["parameters"]],
    )
    for port in block.get("inputs", ()):
        notes = [word for word in ("optional", "variadic") if port[word]]
        click.echo(f"input: {port['name']}" + (f" ({', '.join(notes)})" if notes else ""))
    for name in block.get("outputs", ()):
        click.echo(f"output: {name}")
    for key in ("source", "deviation"):
        click.echo(f"{key}: {' '.join(block[key].split())}")
    if block["capabilities"]:
        click.echo(f"capabilities: {', '.join(block['capabilities'])}")
    for name, value in block["states"].items():
        click.echo(f"state {name}: {value}")
    click.echo(f"host: {block['host']}")
    click.echo(f"origin: {block['distribution']} {block['version']}, {block['module']}, sha256 {block['sha256'][:12]}")


def _parameter(row: dict[str, Any]) -> tuple[str, ...]:
    default = "required" if row["required"] else json.dumps(row["default"], ensure_ascii=False)
    choices = ", ".join(map(str, row["choices"])) if row["choices"] else ""
    return row["name"], row["type"], default, row["range"] or choices, row["unit"], row["help"]
