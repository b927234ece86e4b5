"""The command line: ``scellis``. Each command's module is imported when the command runs."""

from scellis_core.cli.app import main

__all__ = ["main"]
