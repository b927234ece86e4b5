"""The decoder in plain PyTorch, with the weights and batches of a Scellis session: the peer of train_step.py."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from scellis_core.train.batching import indices, order


def torch_device() -> Any:
    """A CUDA device, or None where PyTorch or CUDA is missing."""
    try:
        import torch
    except ImportError:
        return None
    return torch.device("cuda") if torch.cuda.is_available() else None


class TorchPeer:
    """AdamW steps on the same numbers.

    Args:
        config: sizes.
        weights: initial weights by our paths.
        session: whose batches are taken, from its first update on.
        device: where to run; CUDA where None.
        dtype: of weights and activations; float32 where None.
    """

    def __init__(
        self, config: Any, weights: dict[str, np.ndarray], session: Any, device: Any = None, dtype: Any = None
    ) -> None:
        import torch

        self.torch, self.config, self.session = torch, config, session
        self.device = device or torch_device()
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        self.w = {
            n: torch.tensor(a, dtype=dtype or torch.float32, device=self.device, requires_grad=True)
            for n, a in weights.items()
        }
        params = session.run.optimizer[1]
        self.optimizer = torch.optim.AdamW(
            list(self.w.values()), lr=params.lr, betas=(params.beta1, params.beta2), eps=params.eps,
            weight_decay=params.weight_decay,
        )  # fmt: skip
        self.step = 0

    def forward(self, x: Any) -> Any:
        """Logits of token ids."""
        f, w, c = self.torch.nn.functional, self.w, self.config
        position = next(n for n in w if n.startswith("pos."))
        h = f.embedding(x, w["embed.weight"]) + w[position]
        batch, length = x.shape
        for i in range(c.layers):
            p = f"blocks.{i}."
            n = f.layer_norm(h, (c.width,), w[p + "norm1.weight"], w[p + "norm1.bias"])
            q, k, v = (
                f.linear(n, w[f"{p}attn.{s}.weight"], w[f"{p}attn.{s}.bias"])
                .view(batch, length, c.heads, -1)
                .transpose(1, 2)
                for s in "qkv"
            )
            a = f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, c.width)
            out = "o" if f"{p}attn.o.weight" in w else "out"
            h = h + f.linear(a, w[f"{p}attn.{out}.weight"], w[f"{p}attn.{out}.bias"])
            n = f.layer_norm(h, (c.width,), w[p + "norm2.weight"], w[p + "norm2.bias"])
            m = f.gelu(f.linear(n, w[p + "mlp.up.weight"], w[p + "mlp.up.bias"]), approximate="tanh")
            h = h + f.linear(m, w[p + "mlp.down.weight"], w[p + "mlp.down.bias"])
        h = f.layer_norm(h, (c.width,), w["norm.weight"], w["norm.bias"])
        return f.linear(h, w["embed.weight"])

    def batch(self, update: int) -> tuple[Any, Any]:
        """The update's batch on the device."""
        plan = self.session.plan
        epoch, _ = plan.position(update)
        rows = indices(plan, order(self.session.record.spec.seed, epoch, plan.examples), plan.micros(update)[0])
        data = self.session.dataset.batch("train", rows)
        return tuple(self.torch.tensor(data[k], dtype=self.torch.long, device=self.device) for k in ("x", "y"))

    def update(self) -> Any:
        """One step; the loss as a tensor."""
        x, y = self.batch(self.step)
        self.step += 1
        return self._update(x, y)

    def update_on(self, x: np.ndarray, y: np.ndarray) -> Any:
        """One step on these token ids and targets."""
        return self._update(*(self.torch.tensor(a, dtype=self.torch.long, device=self.device) for a in (x, y)))

    def _update(self, x: Any, y: Any) -> Any:
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.forward(x)
        loss = self.torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def time(self, steps: int, warm: int = 5) -> tuple[float, list[float]]:
        """(seconds a step over all steps after ``warm``, losses); the device is awaited at both ends only."""
        self.torch.cuda.reset_peak_memory_stats()
        losses = [self.update() for _ in range(warm)]
        self.torch.cuda.synchronize()
        started = time.perf_counter()
        losses += [self.update() for _ in range(steps)]
        self.torch.cuda.synchronize()
        return (time.perf_counter() - started) / steps, [float(x) for x in losses]

    def peak_bytes(self) -> int:
        """PyTorch's own count of its peak."""
        return int(self.torch.cuda.max_memory_allocated())
