"""ms a training step of the decoder configurations, beside PyTorch eager f32 on the same GPU in the same run.

    python benchmarks/train_step.py [tiny small gpt2s] [--device NAME] [--steps 30] [--no-torch] [--json FILE]

Same architecture, initial weights, batches and AdamW on both sides. Losses of both are compared, so that a fast
wrong step shows: ``loss_error_10`` over the first ten steps, ``loss_error`` over all, and ``torch_own_error`` is how
far PyTorch gets from itself when it starts from weights one unit in the last place away. With PyTorch and CUDA
absent, our own figures are printed alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch_decoder import TorchPeer, torch_device

from scellis_core.catalog import Catalog
from scellis_core.compile import compile_run
from scellis_core.model import resolve_run
from scellis_core.record import Record
from scellis_core.train.session import Session, open_session


@dataclass(frozen=True)
class Config:
    vocab: int
    width: int
    layers: int
    heads: int
    context: int
    batch: int


CONFIGS = {
    "tiny": Config(256, 128, 4, 4, 64, 32),
    "small": Config(1024, 512, 6, 8, 256, 16),
    "gpt2s": Config(50304, 768, 12, 12, 512, 4),
}


def record_for(config: Config, folder: Path, batches: int) -> Record:
    """A record over random tokens in an npz file: ``batches`` batches of data."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, config.vocab, (batches * config.batch, config.context + 1)).astype(np.int32)
    np.savez(folder / "tokens.npz", x=tokens[:, :-1], y=tokens[:, 1:])
    return Record.from_dict(
        {
            "sml": 1,
            "architecture": {
                "block_id": "model/decoder_transformer", "vocab_size": config.vocab, "context": config.context,
                "width": config.width, "layers": config.layers, "heads": config.heads,
            },
            "data": {"block_id": "data/arrays", "path": "tokens.npz", "split": {}},
            "optimizer": {"block_id": "training/optimizer/adamw", "lr": 1e-3, "weight_decay": 0.01},
            "loss": {"block_id": "training/loss/cross_entropy"},
            "steps": 100000, "batch_size": config.batch, "determinism_tier": "prod", "seed": 1,
        },
        base=folder,
    )  # fmt: skip


def compile_seconds(record: Record, session: Session) -> float:
    """From a parsed record to the step program, blocks imported already."""
    started = time.perf_counter()
    run = resolve_run(record, session.run.catalog, record.base)
    compile_run(run, session.compiled.program.limits, train=[record.spec.batch_size or 1])
    return time.perf_counter() - started


def time_ours(session: Session, steps: int, warm: int = 5) -> tuple[float, list[float], float]:
    """(seconds a step over all steps after ``warm``, losses, host seconds a step); reports are read two steps later."""
    pending, losses, host = [], [], []
    started = 0.0
    for step in range(warm + steps):
        if step == warm:
            losses += [session.report(p)["loss"] for p in pending]
            pending.clear()
            started = time.perf_counter()
        before = time.perf_counter()
        pending.append(session.update())
        host.append(time.perf_counter() - before)
        if len(pending) > 2:
            losses.append(session.report(pending.pop(0))["loss"])
    losses += [session.report(p)["loss"] for p in pending]
    return (time.perf_counter() - started) / steps, losses, statistics.median(host[warm:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("configs", nargs="*", default=list(CONFIGS), help="tiny, small, gpt2s")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = []
    import tempfile

    for name in options.configs:
        config = CONFIGS[name]
        with tempfile.TemporaryDirectory() as folder:
            record = record_for(config, Path(folder), 8)
            session = open_session(record, Catalog.discover(), device=options.device)
            session.initialise()
            row = measure(name, config, record, session, options)
            session.close()
        rows.append(row)
        print(json.dumps(row), flush=True)
    print_table(rows)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0


def measure(name: str, config: Config, record: Record, session: Session, options: argparse.Namespace) -> dict:
    """One configuration on both sides."""
    program = session.compiled.program
    sequence = f"micro@{config.batch}"
    peer = None
    if not options.no_torch and torch_device() is not None:
        weights = session.read(list(session.compiled.params))
        peer = TorchPeer(config, weights, session)
    compiled = compile_seconds(record, session)
    ours, losses, host = time_ours(session, options.steps)
    row = {
        "config": name,
        "device": session.executor.describe()["adapter"],
        "ms": round(ours * 1e3, 3),
        "tokens_per_s": round(config.batch * config.context / ours),
        "dispatches": len(program.sequences[sequence].commands) + len(program.sequences["apply"].commands),
        "host_ms": round(host * 1e3, 3),
        "compile_s": round(compiled, 3),
        "planned_bytes": sum(program.bytes_by_kind().values()),
        "loss": round(losses[-1], 5),
    }
    if peer is not None:
        theirs, peer_losses = peer.time(options.steps)
        memory = peer.peak_bytes()
        moved = {n: np.nextafter(a, np.float32(np.inf)) for n, a in weights.items()}
        _, twin_losses = TorchPeer(config, moved, session).time(options.steps)
        row |= {
            "torch_ms": round(theirs * 1e3, 3),
            "ratio": round(ours / theirs, 3),
            "torch_bytes": memory,
            "loss_error_10": apart(losses[:10], peer_losses[:10]),
            "loss_error": apart(losses, peer_losses),
            "torch_own_error": apart(twin_losses, peer_losses),
        }
    return row


def apart(losses: list[float], others: list[float]) -> float:
    """Largest relative difference of two curves."""
    return float(f"{max(abs(a - b) / abs(b) for a, b in zip(losses, others, strict=True)):.2e}")


def print_table(rows: list[dict]) -> None:
    """A compact table."""
    keys = list(dict.fromkeys(k for r in rows for k in r))
    print(" | ".join(keys))
    for row in rows:
        print(" | ".join(str(row.get(k, "")) for k in keys))


if __name__ == "__main__":
    sys.exit(main())
