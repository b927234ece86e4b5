"""``runs``, ``save``, ``export`` and ``sample``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from scellis_core.cli import text
from scellis_core.cli.app import DEFAULT_STORE, device_option, plugins_option, record_argument, store_option

HIDDEN = ("lr", "grad_norm", "skipped")
"""Logged values that are no result of a run."""


def rows(store: Path) -> list[dict[str, Any]]:
    """Every run as plain data, newest first: the shape of ``scellis runs --json``."""
    from scellis_core.store import Store

    root = Store(store)
    found: list[dict[str, Any]] = []
    for run in root.runs():
        checkpoints = root.checkpoints(run.id)
        newest = {n: v for n, v in sorted(root.newest_metrics(run.id).items()) if n not in HIDDEN}
        found.append(
            {
                "run": run.id,
                "state": run.state,
                "error": run.error or None,
                "model": run.model or None,
                "epoch": run.epoch + 1 if run.step else 0,
                "step": run.step,
                "total": run.total,
                "skipped": run.skipped,
                "device": run.device,
                "tier": run.tier,
                "record": run.record_digest,
                "dataset": run.dataset or None,
                "checkpoint_step": checkpoints[0].step if checkpoints else None,
                "weights": checkpoints[0].weights if checkpoints else None,
                "weights_object": checkpoints[0].objects[0] if checkpoints else None,
                "metrics": newest,
            }
        )
    return found


@click.command()
@store_option
@click.option("--json", "as_json", is_flag=True, help="Plain data.")
def runs(store: Path | None, as_json: bool) -> None:
    """List the runs of a store, newest first."""
    folder = store or DEFAULT_STORE
    found = rows(folder)
    if as_json:
        text.as_json(found)
        return
    if not found:
        click.echo(
            f"no runs in {folder} (a run's store is .scellis beside its record; --store DIR names another)", err=True
        )
        return
    text.table(
        ("run", "state", "epoch", "step", "record", "weights", "metrics"),
        [
            (
                row["run"],
                row["state"] + (f": {row['error']}" if row["error"] else ""),
                str(row["epoch"]),
                f"{row['step']}/{row['total']}",
                row["record"][:8],
                (row["weights"] or "none").removeprefix("sha256:")[:8],
                text.metric_line(row["metrics"]),
            )
            for row in found
        ],
        title=str(folder),
        right=(2, 3),
        whole=(0, 1, 2, 3),
    )


@click.command()
@record_argument
@store_option
@plugins_option
def save(record: Path, store: Path | None, plugins_dir: Path | None) -> None:
    """Store RECORD as the next immutable version of its model name, and print name@version."""
    from scellis_core.catalog import Catalog
    from scellis_core.model import resolve_run
    from scellis_core.record import Record
    from scellis_core.store import Store
    from scellis_core.train import api

    loaded = Record.load(record)
    ready = api.load(loaded, store=store)
    resolve_run(ready, Catalog.discover(plugins_dir), ready.base)
    name, version = Store(api.store_path(loaded, store)).save_model(loaded)
    click.echo(f"{name}@{version}")


@click.command()
@click.argument("run", required=False)
@click.option("-o", "--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="File to write.")
@click.option("--best", is_flag=True, help="The best checkpoint instead of the newest.")
@click.option("--step", type=click.IntRange(min=0), help="The checkpoint of this step instead of the newest.")
@store_option
def export(run: str | None, out: Path, best: bool, step: int | None, store: Path | None) -> None:
    """Write the weights of RUN (the latest without) as safetensors."""
    from scellis_core.train import api

    click.echo(str(api.export(run, out, store=store or DEFAULT_STORE, best=best, step=step)))


@click.command()
@click.argument("run", required=False)
@click.option("--prompt", required=True, help="Text to go on from.")
@click.option("--length", default=200, show_default=True, type=click.IntRange(min=0), help="Tokens to write.")
@click.option("--temperature", default=0.8, show_default=True, type=click.FloatRange(min=0), help="0: the likeliest.")
@click.option("--top-k", type=click.IntRange(min=1), help="Draw among the likeliest only.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Of the draws.")
@store_option
@device_option
@plugins_option
def sample(
    run: str | None,
    prompt: str,
    length: int,
    temperature: float,
    top_k: int | None,
    seed: int,
    store: Path | None,
    device: str,
    plugins_dir: Path | None,
) -> None:
    """Let the language model of RUN (the latest without) go on from a prompt."""
    from scellis_core.catalog import Catalog
    from scellis_core.cli.training import choose_device
    from scellis_core.train import api

    pieces = api.sample(
        run,
        prompt,
        length=length,
        temperature=temperature,
        top_k=top_k,
        seed=seed,
        store=store or DEFAULT_STORE,
        device=choose_device(device),
        catalog=Catalog.discover(plugins_dir),
    )
    started = False
    for piece in pieces:
        click.echo(piece if started else prompt + piece, nl=False)
        started = True
    click.echo("" if started else prompt)
