"""The two runs whose losses are compared with PyTorch's: records, initial weights and batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scellis_core.catalog import Catalog
from scellis_core.model import initial_tensors, lower, resolve_run
from scellis_core.record import Record
from scellis_core.train.batching import Schedule, indices, order
from scellis_core.train.session import open_data

ROOT = Path(__file__).parents[2]
STEPS = 50

DECODER = """
sml: 1
architecture: { block_id: model/decoder_transformer, vocab_size: 64, context: 16, width: 32, layers: 2, heads: 2 }
data: { block_id: data/arrays, path: tokens.npz, split: {} }
optimizer: { block_id: training/optimizer/adamw, lr: 3.0e-3, weight_decay: 0.01 }
loss: { block_id: training/loss/cross_entropy }
steps: 50
batch_size: 8
determinism_tier: prod
seed: 5
"""


def decoder(folder: Path) -> Record:
    """A small twin of the tiny decoder over a repeating token pattern with noise."""
    rng = np.random.default_rng(7)
    tokens = (np.arange(17) * 5 + rng.integers(0, 64, (60, 1)) + (rng.random((60, 17)) < 0.1) * 9) % 64
    np.savez(folder / "tokens.npz", x=tokens[:, :-1].astype(np.int32), y=tokens[:, 1:].astype(np.int32))
    return Record.parse(DECODER, "decoder.sml", base=folder)


def cnn() -> Record:
    """The digits CNN: batch norm, momentum SGD with Nesterov, cosine."""
    return Record.load(ROOT / "examples" / "digits_cnn.sml")


def initial(record: Record) -> dict[str, np.ndarray]:
    """Initial tensors by name."""
    run = resolve_run(record, Catalog.discover(), record.base)
    low = lower(run, 2, "train")
    return initial_tensors(low.params, low.states, record.spec.seed)


def batches(record: Record) -> list[dict[str, np.ndarray]]:
    """The batches of the first :data:`STEPS` updates."""
    dataset = open_data(resolve_run(record, Catalog.discover(), record.base))
    assert dataset is not None
    spec = record.spec
    plan = Schedule.plan(dataset.spec.sizes["train"], spec.batch_size or 1, 1, spec.epochs, spec.steps)
    found = []
    for update in range(STEPS):
        epoch, _ = plan.position(update)
        rows = indices(plan, order(spec.seed, epoch, plan.examples), plan.micros(update)[0])
        found.append(dataset.batch("train", rows))
    return found
