"""A net with batch norm and dropout on 42 + 11 examples: all that a resumed run must put back, in milliseconds."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scellis_core.blocks import ArraySet, Dataset
from scellis_core.model import ResolvedRun
from scellis_core.record import Record
from scellis_core.store import Store
from scellis_core.train import session as session_module

unix = pytest.mark.skipif(sys.platform == "win32", reason="fork and SIGKILL")
CHILDREN = Path(__file__).with_name("run_children.py")
STEPS = 30
TEXT = """
sml: 1
model: user/tests/tiny
inputs: { x: { shape: [batch, 6], dtype: f32 } }
graph:
  h: { block_id: layer/linear, in: x, features: 8, bias: false }
  n: { block_id: layer/batch_norm, in: h }
  a: { block_id: layer/relu, in: n }
  d: { block_id: layer/dropout, in: a, rate: 0.5 }
  o: { block_id: layer/linear, in: d, features: 2 }
outputs: { logits: o }
data: { block_id: data/arrays, path: tiny.npz, split: { val: 0.2 } }
optimizer: { block_id: training/optimizer/adam, lr: 0.01 }
scheduler: { block_id: training/scheduler/warmup_cosine, warmup_steps: 5 }
loss: { block_id: training/loss/cross_entropy }
metrics: [{ block_id: metric/accuracy }]
steps: 30
batch_size: 8
checkpoint: { every: 4, keep: 2, best: { metric: val_loss } }
determinism_tier: prod
seed: 3
"""
"""42 training examples: 6 micro steps an epoch, the last of 2 examples. Checkpoints at 4, 8, 12 .. and at epochs'
ends where validation improves."""


def arrays(examples: int = 53) -> dict[str, np.ndarray]:
    """Inputs and labels that a small net can learn."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((examples, 6)).astype(np.float32)
    return {"x": x, "y": (x[:, 0] + x[:, 1] > 0).astype(np.int32)}


def tiny(folder: Path, changes: Mapping[str, Any] = {}) -> Record:
    """The record, its data in ``folder``; values by dotted path may be changed."""
    if not (folder / "tiny.npz").exists():
        np.savez(folder / "tiny.npz", **arrays())
    return Record.parse(TEXT, "tiny.sml", base=folder).with_overrides(changes)


def state_of(store: Path, run: str) -> dict[str, Any]:
    """What two runs that did the same have in common: digests of tensors, counters, and every logged number."""
    root = Store(store)
    row, bundle = root.checkpoint(run)
    return {
        "step": row.step,
        "weights": row.weights,
        "optimizer": bundle.optimizer_state,
        "rng": dict(bundle.rng_state),
        "loop": dict(bundle.loop),
        "scheduler": dict(bundle.scheduler),
        "metrics": [(*place, repr(value)) for *place, value in root.metrics(run)],
        "best": [c.step for c in root.checkpoints(run) if c.best],
    }


def digest(tensors: dict[str, np.ndarray]) -> dict[str, str]:
    """A digest of each tensor's bytes."""
    return {name: hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest() for name, a in tensors.items()}


def in_processes(*plans: tuple[Path, list[list[Any]], dict[str, Any]], device: str = "oracle") -> list[list[str]]:
    """Runs in several processes that end as planned, in ``store`` of a folder; how each ended."""
    made = [
        {"folder": str(folder), "store": str(folder / "store"), "device": device, "changes": changes, "ends": ends}
        for folder, ends, changes in plans
    ]
    done = subprocess.run([sys.executable, str(CHILDREN), json.dumps(made)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = iter(done.stdout.splitlines())
    return [[next(said) for _ in ends] for _, ends, _ in plans]


def plant_infinity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make one of the 42 training examples hold an infinity, which data blocks refuse in a file."""
    opening = session_module.open_data

    def open_data(run: ResolvedRun) -> Dataset | None:
        dataset = opening(run)
        assert isinstance(dataset, ArraySet)
        dataset.arrays["x"][dataset.rows["train"][7], 2] = np.inf
        return dataset

    monkeypatch.setattr(session_module, "open_data", open_data)
