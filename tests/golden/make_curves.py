"""Write curves.npz: PyTorch's losses of the runs in curves.py, in float32 and in float64. Needs PyTorch.

python tests/golden/make_curves.py
"""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[2] / "benchmarks")]
import curves
from torch_decoder import TorchPeer


def decoder_losses(dtype: torch.dtype) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        record = curves.decoder(Path(folder))
        config = SimpleNamespace(width=32, layers=2, heads=2)
        params = SimpleNamespace(lr=3e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01)
        session = SimpleNamespace(run=SimpleNamespace(optimizer=(None, params)))
        peer = TorchPeer(config, curves.initial(record), session, torch.device("cpu"), dtype)
        return [float(peer.update_on(b["x"], b["y"])) for b in curves.batches(record)]


def cnn_losses(dtype: torch.dtype) -> list[float]:
    record = curves.cnn()
    w = {n: torch.tensor(a, dtype=dtype) for n, a in curves.initial(record).items()}
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 10),
    ).to(dtype)  # fmt: skip
    names = ["stages.0.0.conv", "stages.0.0.norm", "stages.1.0.conv", "stages.1.0.norm", "head"]
    with torch.no_grad():
        for name, layer in zip(names, (model[0], model[1], model[4], model[5], model[9]), strict=True):
            layer.weight.copy_(w[f"{name}.weight"])
            if layer.bias is not None:
                layer.bias.copy_(w[f"{name}.bias"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    total = record.spec.epochs * 45
    losses = []
    for step, batch in enumerate(curves.batches(record)):
        for group in optimizer.param_groups:
            group["lr"] = 0.05 * 0.5 * (1.0 + math.cos(math.pi * step / total))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(
            model(torch.tensor(batch["x"], dtype=dtype)), torch.tensor(batch["y"]).long()
        )
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses


def main() -> None:
    arrays = {
        f"{name}_{kind}": np.array(make(dtype))
        for name, make in (("decoder", decoder_losses), ("cnn", cnn_losses))
        for kind, dtype in (("f32", torch.float32), ("f64", torch.float64))
    }
    np.savez_compressed(Path(__file__).parent / "curves.npz", **arrays)
    for name, array in arrays.items():
        print(name, array[[0, 1, 24, 49]])


if __name__ == "__main__":
    main()
