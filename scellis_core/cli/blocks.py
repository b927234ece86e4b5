"""``catalog``: list blocks, show one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from scellis_core.cli.app import plugins_option


@click.command()
@click.argument("words", nargs=-1, metavar="[FAMILY] | show ID")
@click.option("--json", "as_json", is_flag=True, help="Plain data.")
@plugins_option
def catalog(words: tuple[str, ...], as_json: bool, plugins_dir: Path | None) -> None:
    """List the blocks of a FAMILY (layer, model, training/optimizer ...) or of all, or show one: catalog show ID."""
    from scellis_core.catalog import Catalog

    found = Catalog.discover(plugins_dir)
    if words and words[0] == "show":
        if len(words) != 2:
            raise click.UsageError("catalog show takes one block id, as in: scellis catalog show training/optimizer/adamw")
        _show(found.describe(words[1]), as_json)
        return
    if len(words) > 1:
        raise click.UsageError(f"catalog takes one family, got {' '.join(words)}")
    entries = found.entries(words[0] if words else None, load=True)
    if as_json:
        click.echo(json.dumps([e.to_json() for e in entries], indent=1))
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table("block", "title", "origin", "state")
        for e in entries:
            table.add_row(e.id, e.title, f"{e.distribution} {e.version}", e.state)
        Console().print(table)
    else:
        for e in entries:
            click.echo("\t".join((e.id, e.title, f"{e.distribution} {e.version}", e.state)))


def _show(block: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(block, indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(f"[bold]{block['id']}[/bold]  {block['title']}", highlight=False)
    console.print(block["summary"], highlight=False)
    table = Table("parameter", "type", "default", "range", "unit", "what it is")
    for row in block["parameters"]:
        default = "required" if row["required"] else json.dumps(row["default"])
        choices = ", ".join(map(str, row["choices"])) if row["choices"] else ""
        table.add_row(row["name"], row["type"], default, row["range"] or choices, row["unit"], row["help"])
    if block["parameters"]:
        console.print(table)
    for key in ("source", "deviation"):
        console.print(f"{key}: {block[key]}", highlight=False, soft_wrap=True)
    console.print(f"origin: {block['distribution']} {block['version']}, {block['module']}", highlight=False)
    for key in ("capabilities", "states"):
        if block.get(key):
            console.print(f"{key}: {block[key]}", highlight=False)
