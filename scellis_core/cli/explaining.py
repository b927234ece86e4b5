"""``explain``: what each kind of error means, an example of it, and the way out."""

from __future__ import annotations

import click

from scellis_core.errors import ScellisError, nearest

MEANINGS: dict[str, tuple[str, str, str]] = {
    "error": (
        "Something on the command line that only you can settle.",
        "explain: expected the code of an error, got 'recrod'; try one of: record",
        "The message says where, what was expected, what was found, and what to try.",
    ),
    "record": (
        "The record (SML) is wrong: syntax, a key, a type, a range, an id, or how blocks are wired.",
        "run.sml:8:53 optimizer.lr: expected number > 0 (1/step), got -0.1; try 0.001",
        "Go to the line and column shown. docs/sml.md lists every key, and `scellis catalog show ID` the parameters "
        "of a block. A value given with --set is shown as `override`.",
    ),
    "catalog": (
        "A block cannot be found, loaded or trusted: a misspelt id, a broken plugin, or two distributions with one id.",
        "block training/optimizer/adamz: expected the id of an installed block, got 'training/optimizer/adamz'; "
        "try one of: training/optimizer/adam, training/optimizer/adamw, training/optimizer/sgd",
        "`scellis catalog` lists every block with its state; a broken one says why. Reinstall it, or "
        "uninstall the other.",
    ),
    "ir": (
        "A graph is not legal: shapes or dtypes do not fit together, or its text does not parse; or `inspect` was "
        "asked for a sequence or kernel that the program has not.",
        "--kernel: expected a kernel of this program, got 'matmull'; try one of: matmul",
        "`scellis inspect RECORD --level L2` prints the graph with every shape; `--level L0` lists sequences "
        "and kernels.",
    ),
    "data": (
        "A file or array does not hold what its block promises, or a file cannot be written.",
        "data example(s) [4, 9, 2]..: x[0, 17]: expected an id from 0 to 255, got 256",
        "The message names the file, row or position. Mend the data, or the block's parameters under `data`.",
    ),
    "store": (
        "A run, checkpoint, object or stored model is missing or damaged. A damaged object is never used.",
        "run 2026: expected one run that begins so, got none",
        "`scellis runs --store DIR` lists what is there. The store is `.scellis` beside the record unless --store says "
        "else. Where the newest checkpoint is damaged, `scellis resume` and `scellis export` take an older --step.",
    ),
    "device": (
        "The GPU, its driver or its limits do not allow what was asked.",
        "GPU: expected a WebGPU adapter (Vulkan, Metal or DX12), got none; try a driver, or --device oracle",
        "`scellis doctor` shows every adapter, what it allows, and how to install a driver. `--device oracle` always "
        "works, slowly.",
    ),
    "plan": (
        "The run does not fit the device, found before its first step.",
        "",
        "`scellis plan` shows the bytes by class. A smaller batch_size with grad_accumulation trains the same at less.",
    ),
    "contract": (
        "A block does not keep the contract of its family: the fault is in the block, not in your record.",
        "run.sml:6:7 loss: expected a total of type f32[], got f32[32]",
        "Tell its author; `scellis catalog show ID` names the distribution. Or take another block.",
    ),
}
"""Code -> what it means, an example, the way out. A code for each class in :mod:`scellis_core.errors`."""


@click.command()
@click.argument("code", metavar="CODE")
def explain(code: str) -> None:
    """Explain a kind of error by its CODE, which the second line of every error names."""
    if code not in MEANINGS:
        raise ScellisError("explain", "the code of an error", repr(code), nearest(code, MEANINGS))
    meaning, example, cure = MEANINGS[code]
    shown = f"For example:\n  {example}\n\n" if example else ""
    click.echo(f"{meaning}\n\n{shown}{cure}")
