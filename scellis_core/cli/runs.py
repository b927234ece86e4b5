"""``runs``, ``save``, ``export`` and ``sample``."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click

from scellis_core.cli.app import device_option, record_argument, store_option

DEFAULT = Path(".scellis")


def rows(store: Path) -> list[dict[str, Any]]:
    """Every run as plain data: the shape of ``scellis runs --json``."""
    from scellis_core.store import Store

    root = Store(store)
    found: list[dict[str, Any]] = []
    for run in root.runs():
        checkpoints = root.checkpoints(run.id)
        newest: dict[str, float] = {}
        for _, _, name, value in root.metrics(run.id):
            newest[name] = value
        newest = {n: v for n, v in newest.items() if n not in ("lr", "grad_norm", "skipped") and not math.isnan(v)}
        found.append(
            {
                "run": run.id,
                "state": run.state,
                "error": run.error or None,
                "model": run.model or None,
                "epoch": run.epoch,
                "step": run.step,
                "total": run.total,
                "skipped": run.skipped,
                "device": run.device,
                "tier": run.tier,
                "record": run.record_digest,
                "dataset": run.dataset or None,
                "checkpoint_step": checkpoints[0].step if checkpoints else None,
                "weights": checkpoints[0].weights if checkpoints else None,
                "metrics": newest,
            }
        )
    return found


@click.command()
@store_option
@click.option("--json", "as_json", is_flag=True, help="Plain data.")
def runs(store: Path | None, as_json: bool) -> None:
    """List the runs of a store, newest first."""
    found = rows(store or DEFAULT)
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    import sys

    from rich.console import Console
    from rich.table import Column, Table

    table = Table(Column("run", no_wrap=True), "state", "epoch", Column("step", no_wrap=True), "record", "weights", "metrics")
    for row in found:
        metrics = " ".join(f"{n} {v:.4g}" for n, v in sorted(row["metrics"].items()))
        weights = (row["weights"] or "-").removeprefix("sha256:")[:12]
        state = row["state"] + (f": {row['error']}" if row["error"] else "")
        table.add_row(
            row["run"], state, str(row["epoch"]), f"{row['step']}/{row['total']}", row["record"][:12], weights, metrics
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table if found else f"no runs in {store or DEFAULT}")


@click.command()
@record_argument
@store_option
def save(record: Path, store: Path | None) -> None:
    """Store RECORD as the next immutable version of its model name."""
    from scellis_core.record import Record
    from scellis_core.store import Store
    from scellis_core.train import api

    loaded = Record.load(record)
    api.resolve(api.load(loaded, store=store))
    name, version = Store(api.store_path(loaded, store)).save_model(loaded)
    click.echo(f"{name}@{version}")


@click.command()
@click.argument("run", required=False)
@click.option("-o", "--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="File to write.")
@click.option("--best", is_flag=True, help="The best checkpoint instead of the newest.")
@store_option
def export(run: str | None, out: Path, best: bool, store: Path | None) -> None:
    """Write the weights of RUN (the latest without) as safetensors."""
    from scellis_core.train import api

    click.echo(str(api.export(run, out, store=store or DEFAULT, best=best)))


@click.command()
@click.argument("run", required=False)
@click.option("--prompt", required=True, help="Text to go on from.")
@click.option("--length", default=200, show_default=True, type=click.IntRange(min=0), help="Tokens to write.")
@click.option("--temperature", default=0.8, show_default=True, type=click.FloatRange(min=0), help="0: the likeliest.")
@click.option("--top-k", type=click.IntRange(min=1), help="Draw among the likeliest only.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0))
@store_option
@device_option
def sample(
    run: str | None, prompt: str, length: int, temperature: float, top_k: int | None, seed: int, store: Path | None, device: str
) -> None:
    """Let the language model of RUN (the latest without) go on from a prompt."""
    from scellis_core.cli.training import choose_device
    from scellis_core.train import api

    pieces = api.sample(
        run, prompt, length=length, temperature=temperature, top_k=top_k, seed=seed, store=store or DEFAULT,
        device=choose_device(device),
    )  # fmt: skip
    click.echo(prompt, nl=False)
    for piece in pieces:
        click.echo(piece, nl=False)
    click.echo()
