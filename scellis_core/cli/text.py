"""How the commands print: tables on a terminal, one unwrapped line a row elsewhere; bytes and metrics in words."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click


def interactive() -> bool:
    """Whether a person reads standard output."""
    return sys.stdout.isatty()


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    right: Sequence[int] = (),
    whole: Sequence[int] = (0,),
) -> None:
    """Print rows: a table on a terminal, else one line a row, cells separated by tabs, without a heading.

    Args:
        columns: headings.
        rows: cells, as many in each as there are columns.
        title: above the table; left out where there is none.
        right: columns aligned to the right.
        whole: columns that are never broken over lines.
    """
    if not interactive():
        for row in rows:
            click.echo("\t".join(" ".join(cell.split()) for cell in row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=title or None)
    for k, name in enumerate(columns):
        shown.add_column(name, justify="right" if k in right else "left", no_wrap=k in whole, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(cell) for cell in row))
    Console().print(shown)


def as_json(data: Any) -> None:
    """Print plain data as JSON; numbers that JSON has not (NaN, infinities) are null."""
    click.echo(json.dumps(_finite(data), indent=1, ensure_ascii=False, allow_nan=False))


def _finite(data: Any) -> Any:
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, Mapping):
        return {str(key): _finite(value) for key, value in data.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]  # pyright: ignore[reportUnknownVariableType]
    return data


def number(value: float) -> str:
    """A loss or metric with four places, in powers of ten where that would be long."""
    return f"{value:.4f}" if not abs(value) >= 1e6 else f"{value:.4e}"


def human_bytes(count: int) -> str:
    """``1.50 MiB``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.2f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"


def human_time(seconds: float) -> str:
    """``1:02:03`` or ``2:03``."""
    minutes, rest = divmod(int(max(seconds, 0.0) + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def metric_line(metrics: Mapping[str, float]) -> str:
    """``val_accuracy 0.9731 val_loss 0.0912 loss 0.1``: by name, those of the validation first."""
    names = sorted(metrics, key=lambda name: (not name.startswith("val_"), name))
    return " ".join(f"{name} {metrics[name]:.6g}" for name in names)


def resume_command(run: str, store: Path) -> str:
    """The command line that goes on with a run, ready to paste."""
    return shlex.join(("scellis", "resume", run, "--store", str(store)))
