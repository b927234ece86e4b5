"""Every command and option is named in docs/cli.md, and help is quick."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from scellis_core.cli.app import COMMANDS, cli

DOCS = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", list(COMMANDS))
def test_documented(name: str) -> None:
    assert f"| `{name}" in DOCS
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    for option in command.params:
        if isinstance(option, click.Option):
            assert any(f"`{text}" in DOCS for text in option.opts), option.opts


def test_help_and_catalog_import_neither_numpy_nor_wgpu() -> None:
    code = (
        "import sys; from scellis_core.cli.app import cli\n"
        "for args in (['--help'], ['catalog']):\n"
        "    try: cli(args, standalone_mode=False)\n"
        "    except SystemExit: pass\n"
        "print(sorted({'numpy', 'wgpu', 'torch'} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
