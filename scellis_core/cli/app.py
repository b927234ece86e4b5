"""The command group: lazy commands, nearest names, and one line for every error of ours."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from scellis_core import __version__
from scellis_core.errors import ContractError, ScellisError, nearest

if TYPE_CHECKING:
    from scellis_core.lower.program import Limits
    from scellis_core.record import Record

COMMANDS = {
    "train": ("training", "Train a record from its initial weights."),
    "resume": ("training", "Go on with an interrupted run, to the same bits."),
    "runs": ("runs", "List the runs in a store."),
    "save": ("runs", "Store a record as the next version of its model name."),
    "export": ("runs", "Write a run's weights as safetensors."),
    "sample": ("runs", "Let a trained language model write."),
    "plan": ("looking", "Say what a run will allocate, by class."),
    "inspect": ("looking", "Print a record at any level of the IR ladder."),
    "catalog": ("blocks", "List blocks, or show one."),
    "doctor": ("machine", "Say which GPUs are there and what they allow."),
    "web": ("machine", "Write a static page that trains the record in a browser tab."),
    "explain": ("explaining", "Explain a kind of error."),
}
"""Command -> (module of this package, one line). The module's attribute of the command's name is the command."""


class LazyGroup(click.Group):
    """Imports a command's module when it is asked for; plugins' commands come after the built-in ones."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of every command."""
        return [*COMMANDS, *sorted(_plugin_commands())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or None."""
        if cmd_name in COMMANDS:
            module = importlib.import_module(f"scellis_core.cli.{COMMANDS[cmd_name][0]}")
            return getattr(module, cmd_name)
        return _plugin_commands().get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in ``--help``, without importing the commands."""
        rows = [(name, text) for name, (_, text) in COMMANDS.items()]
        rows += [(name, c.get_short_help_str()) for name, c in sorted(_plugin_commands().items())]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's; an unknown command's error names the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            hint = nearest(args[0], self.list_commands(ctx))
            raise click.UsageError(f"expected a command, got {args[0]!r}; try {hint}", ctx) from None


_PLUGINS: dict[str, click.Command] | None = None


def _plugin_commands() -> dict[str, click.Command]:
    """Commands that installed plugins add; a plugin that fails, or takes a name that is taken, is named on stderr."""
    global _PLUGINS
    if _PLUGINS is None:
        _PLUGINS = _load_plugins() if _any_hooks() else {}
    return _PLUGINS


def _any_hooks() -> bool:
    """Whether any hook plugin is installed; asked first, since the catalog takes a while to import."""
    from importlib.metadata import entry_points

    return bool(entry_points(group="scellis.hooks"))


def _load_plugins() -> dict[str, click.Command]:
    from scellis_core.catalog import Hooks

    found: dict[str, click.Command] = {}

    def add(command: Any) -> None:
        if not isinstance(command, click.Command) or not command.name:
            raise ContractError("scellis_commands", "a click.Command with a name", f"a {type(command).__name__}")
        if command.name in COMMANDS or command.name in found:
            raise ContractError(f"command {command.name}", "a name that is free", "one that is taken", "another name")
        found[command.name] = command

    hooks = Hooks.discover()
    for plugin in hooks.plugins:
        if plugin.state != "ok":
            click.echo(f"{plugin.origin}: {plugin.state}", err=True)
    for failure in hooks.commands(add):
        click.echo(str(failure), err=True)
    return found


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="scellis")
def cli() -> None:
    """Train neural networks through WGSL on whatever GPU is there.

    A record (SML file) is the whole run. Start with: scellis plan RECORD, then scellis train RECORD.
    """


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the ``scellis`` script; leaves the process.

    Exit codes: 0 done; 1 an error of ours; 2 a wrong command line; 128 and the signal's number where one stopped it.

    Args:
        args: words after ``scellis``; those of the process where None.
    """
    try:
        code: Any = cli.main(args, prog_name="scellis", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.Abort:
        click.echo("stopped", err=True)
        code = 128 + signal.SIGINT
    except ScellisError as error:
        if os.environ.get("SCELLIS_DEBUG"):
            raise
        click.echo(f"error: {error}\n  scellis explain {error.code}", err=True)
        code = 1
    sys.exit(code if isinstance(code, int) else 0)


# -- options that several commands share ----------------------------------------------------------------------
DEFAULT_STORE = Path(".scellis")
"""The store of commands that take no record."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

record_argument: Decorator = click.argument("record", type=click.Path(path_type=Path, dir_okay=False))


class _Folder(click.Path):
    """A folder's path; an empty text is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; a usage error for an empty text, which would mean the current folder."""
        if value == "":
            self.fail("expected a folder, got an empty text", param, ctx)
        return super().convert(value, param, ctx)


store_option: Decorator = click.option(
    "--store",
    type=_Folder(path_type=Path, file_okay=False),
    help="Folder of objects and runs [.scellis beside the record].",
)
device_option: Decorator = click.option(
    "--device", default="auto", show_default=True, help="auto, oracle, or part of an adapter's name."
)
plugins_option: Decorator = click.option(
    "--plugins-dir", type=click.Path(path_type=Path, file_okay=False), help="Folder of one-file plugins."
)
limits_option: Decorator = click.option(
    "--limits", type=click.Path(path_type=Path, dir_okay=False), help="JSON file of device limits to stay within."
)
_set: Decorator = click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key of the record, as optimizer.lr=1e-3."
)
_unset: Decorator = click.option(
    "--unset", "removed", multiple=True, metavar="KEY", help="Remove a key of the record, as epochs where steps is set."
)


def set_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--set`` and ``--unset``: parameters ``overrides`` and ``removed``."""
    return _set(_unset(command))


def read_record(
    path: Path, overrides: Sequence[str] = (), removed: Sequence[str] = (), store: Path | None = None
) -> Record:
    """The record of a command: read, changed, its stored model version filled in."""
    from scellis_core.record import Record, parse_override
    from scellis_core.train import api

    record = Record.load(path)
    if overrides or removed:
        record = record.with_overrides(dict(parse_override(text) for text in overrides), without=removed)
    return api.load(record, store=store)


def read_limits(path: Path | None) -> Limits | None:
    """Limits of a JSON file, WebGPU's defaults where it leaves one out; None without a file.

    Raises:
        DataError: if the file is no JSON of limits.
    """
    if path is None:
        return None
    import json
    from dataclasses import fields

    from scellis_core.errors import DataError
    from scellis_core.lower.program import Limits

    known = [f.name for f in fields(Limits)]
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"--limits {path}", "a JSON file of limits", str(error)) from error
    if not isinstance(data, dict):
        raise DataError(f"--limits {path}", "a JSON object", type(data).__name__)
    for key, value in data.items():
        if key not in known:
            raise DataError(f"--limits {path}", "a limit", repr(key), nearest(str(key), known))
        if key == "features":
            if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
                raise DataError(f"--limits {path}: {key}", "a list of names", repr(value))
        elif not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise DataError(f"--limits {path}: {key}", "a whole number above 0", repr(value))
    return Limits.from_json(data)
