"""``doctor`` and ``web``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from scellis_core.cli import text
from scellis_core.cli.app import plugins_option, read_record, record_argument, set_options, store_option

if TYPE_CHECKING:
    from scellis_core.runtime import AdapterInfo


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Plain data.")
def doctor(as_json: bool) -> None:
    """Say which GPUs are there, what they allow, what that means here, and which plugins are broken."""
    from scellis_core import runtime

    found = runtime.adapters()
    if as_json:
        text.as_json([adapter.to_json() for adapter in found])
        return
    if not found:
        from scellis_core.cli.training import driver_advice

        click.echo(f"no WebGPU adapter: {driver_advice()}")
        click.echo("`--device auto` takes the float64 oracle (NumPy, slow) until then, and says so")
    for k, adapter in enumerate(found):
        click.echo("\n".join(_adapter(adapter, auto=k == 0)))
    click.echo("WGSL has neither bf16 nor f64: f32 on a GPU, float64 on the oracle (`--device oracle`)")
    for line in _broken():
        click.echo(line)


def _adapter(adapter: AdapterInfo, *, auto: bool) -> list[str]:
    limits, size = adapter.limits, text.human_bytes
    head = f"{adapter.name} ({adapter.kind}, {adapter.backend}, {adapter.driver})"
    f16 = "yes" if "shader-f16" in adapter.features else "no; precision must be f32"
    timed = "yes" if "timestamp-query" in adapter.features else "no; kernels cannot be timed one by one"
    lines = [
        head + (" <- --device auto takes this" if auto else ""),
        f"  binding: {size(limits.max_storage_buffer_binding_size)}; a larger tensor is processed by windows",
        f"  buffer: {size(limits.max_buffer_size)}; a tensor larger than that is refused",
        f"  storage buffers a kernel: {limits.max_storage_buffers_per_shader_stage}; a fused kernel with more splits",
        f"  workgroup: {limits.max_compute_invocations_per_workgroup} invocations, "
        f"{size(limits.max_compute_workgroup_storage_size)} of shared memory",
        f"  f16 in kernels: {f16}",
        f"  timestamps: {timed}",
    ]
    return [*lines, "  a software device: right, and slow"] if adapter.kind == "CPU" else lines


def _broken() -> list[str]:
    """A line for every block and hook plugin that cannot be used."""
    from scellis_core.catalog import Catalog, Hooks

    blocks = [e for e in Catalog.discover().entries(load=True) if e.state != "ok"]
    hooks = [p for p in Hooks.discover().plugins if p.state != "ok"]
    return [
        *(f"block {e.id} of {e.distribution} {e.version}: {e.state}" for e in blocks),
        *(f"{p.origin}: {p.state}" for p in hooks),
    ]


@click.command()
@record_argument
@click.option("-o", "--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder to write.")
@store_option
@set_options
@plugins_option
def web(
    record: Path,
    out: Path,
    store: Path | None,
    overrides: tuple[str, ...],
    removed: tuple[str, ...],
    plugins_dir: Path | None,
) -> None:
    """Write a static page that trains RECORD in a browser tab on WebGPU."""
    from scellis_core.catalog import Catalog
    from scellis_core.site import write_site

    ready = read_record(record, overrides, removed, store)
    click.echo(str(write_site(ready, out, Catalog.discover(plugins_dir))))
    click.echo(f"serve it with: python3 -m http.server --directory {shlex.quote(str(out))}")
