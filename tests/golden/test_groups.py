"""Parameter groups: own slabs, own decay, own learning rate; checked by hand on one oracle step."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scellis_core.catalog import Catalog
from scellis_core.record import Record
from scellis_core.train.session import open_session

TEXT = """
sml: 1
inputs: { x: { shape: [batch, 3], dtype: f32 } }
graph: { a: { block_id: layer/linear, in: x, features: 2 }, b: { block_id: layer/linear, in: a, features: 1 } }
outputs: { y: b }
data: { block_id: data/arrays, path: d.npz, split: {} }
optimizer:
  block_id: training/optimizer/sgd
  lr: 0.1
  weight_decay: 0.5
  groups: [{ match: "*.bias", weight_decay: 0.0 }, { match: "b.*", lr_scale: 10 }]
loss: { block_id: training/loss/mse }
steps: 1
batch_size: 4
determinism_tier: prod
"""


def one_step(text: str, folder: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    np.savez(folder / "d.npz", x=rng.standard_normal((4, 3)).astype("f4"), y=rng.standard_normal((4, 1)).astype("f4"))
    session = open_session(Record.parse(text, base=folder), Catalog.discover(), device="oracle")
    session.initialise()
    names = list(session.compiled.params)
    before = session.read(names)
    session.update()
    weight = float(session.executor.read("global:weight"))
    grads = {n: session.executor.read(f"grad:{n}") / weight for n in names}
    return before, grads, session.read(names)


def test_each_weight_takes_its_groups_parameters(tmp_path: Path) -> None:
    before, grads, after = one_step(TEXT, tmp_path)
    settings = {"a.weight": (0.1, 0.5), "a.bias": (0.1, 0.0), "b.weight": (1.0, 0.5), "b.bias": (0.1, 0.0)}
    for name, (lr, decay) in settings.items():
        expected = before[name] - lr * (grads[name] + decay * before[name])
        np.testing.assert_allclose(after[name], expected, rtol=1e-12, err_msg=name)
