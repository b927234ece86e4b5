"""GB/s of an optimizer's update over the weights of gpt2s, beside PyTorch's fused AdamW and a plain copy.

    python benchmarks/update.py [--optimizer adamw]

Timed are the dispatches of sequence ``apply`` (norm and finite check included, as in training) by GPU timestamps.
Bytes counted are those of AdamW: weights, gradient and two moments read, weights and moments written.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from torch_decoder import torch_device
from train_step import CONFIGS, record_for

from scellis_core.catalog import Catalog
from scellis_core.train.session import open_session


def ours(optimizer: str, runs: int) -> dict[str, float]:
    """Seconds of the whole update and of its longest dispatch, and the number of weights."""
    with tempfile.TemporaryDirectory() as folder:
        record = record_for(CONFIGS["gpt2s"], Path(folder), 1)
        record = record.with_override("optimizer", {"block_id": f"training/optimizer/{optimizer}", "lr": 1e-3})
        session = open_session(record, Catalog.discover())
        session.initialise()
        session.report(session.update())
        executor = session.executor
        whole, longest = [], []
        for _ in range(runs):
            timings = [t.ns for t in executor.profile("apply", {}, {})]  # type: ignore[attr-defined]
            whole.append(sum(timings))
            longest.append(max(timings))
        count = sum(meta.numel for meta in session.compiled.params.values())
        session.close()
    return {"weights": count, "apply_s": statistics.median(whole) / 1e9, "kernel_s": statistics.median(longest) / 1e9}


def theirs(count: int, runs: int) -> dict[str, float]:
    """Seconds of ``torch.optim.AdamW(fused=True)`` over as many weights, and GB/s of a copy."""
    import torch

    device = torch_device()
    p = torch.zeros(count, device=device, requires_grad=True)
    p.grad = torch.ones_like(p)
    optimizer = torch.optim.AdamW([p], lr=1e-3, fused=True)
    a, b = torch.zeros(1 << 28, device=device), torch.zeros(1 << 28, device=device)
    found = {}
    for name, step in (("torch_fused_s", optimizer.step), ("copy_s", lambda: b.copy_(a))):
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(runs):
            step()
        torch.cuda.synchronize()
        found[name] = (time.perf_counter() - started) / runs
    return {"torch_fused_s": found["torch_fused_s"], "copy_gb_s": 2 * a.numel() * 4 / found["copy_s"] / 1e9}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--optimizer", default="adamw")
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    row = ours(options.optimizer, options.runs)
    row["kernel_gb_s"] = 28 * row["weights"] / row["kernel_s"] / 1e9
    if torch_device() is not None:
        row |= theirs(int(row["weights"]), options.runs)
        row["share_of_copy"] = row["kernel_gb_s"] / row["copy_gb_s"]
        row["kernel_to_fused"] = row["kernel_s"] / row["torch_fused_s"]
        row["apply_to_fused"] = row["apply_s"] / row["torch_fused_s"]
    print(json.dumps({k: float(f"{v:.5g}") for k, v in row.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
