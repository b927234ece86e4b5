"""Writes schedules.npz: factors of a thousand updates by PyTorch, and by formulas of papers that it lacks.

Run by hand in an environment that has PyTorch (made with 2.13.0): ``python tests/golden/make_schedules.py``. Key
``cases`` is a JSON list of ``name``, ``block`` and ``params``; ``<name>`` holds the factors. The run has 1000 updates,
25 an epoch; schedules that follow a metric see ``metrics`` after each epoch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim import lr_scheduler as s

TOTAL, EPOCH = 1000, 25
METRICS = np.round(2.0 * 0.9 ** np.minimum(np.arange(40), 12) + 0.02 * np.random.default_rng(3).standard_normal(40), 4)
CASES: list[dict[str, Any]] = []
FOUND: dict[str, np.ndarray] = {}


def record(name: str, params: dict[str, Any], factors: list[float], tag: str = "") -> None:
    CASES.append({"name": name + tag, "block": f"training/scheduler/{name}", "params": params})
    FOUND[name + tag] = np.array(factors)


def by_torch(
    name: str, params: dict[str, Any], make: Callable[[Any], Any], *, epochs: bool = False, tag: str = ""
) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, dtype=torch.float64, requires_grad=True)], lr=1.0)
    schedule, factors = make(optimizer), []
    for step in range(TOTAL):
        factors.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        if not epochs:
            schedule.step()
        elif (step + 1) % EPOCH == 0:
            plateau = isinstance(schedule, s.ReduceLROnPlateau)
            schedule.step(*([float(METRICS[step // EPOCH])] if plateau else []))
    record(name, params, factors, tag)


def main() -> None:
    by_torch("linear", {"start": 0.25, "end": 1.0, "steps": 300}, lambda o: s.LinearLR(o, 0.25, 1.0, 300))
    by_torch("step", {"every": 7, "gamma": 0.5}, lambda o: s.StepLR(o, 7, 0.5), epochs=True)
    by_torch("step", {"every": 130, "by": "step"}, lambda o: s.StepLR(o, 130), tag="_by_step")
    stones = [3, 10, 11, 30]
    by_torch("multistep", {"milestones": stones}, lambda o: s.MultiStepLR(o, stones), epochs=True)
    by_torch(
        "multistep", {"milestones": [1, 500, 999], "by": "step", "gamma": 0.3},
        lambda o: s.MultiStepLR(o, [1, 500, 999], 0.3), tag="_by_step",
    )  # fmt: skip
    by_torch("exponential", {"gamma": 0.8}, lambda o: s.ExponentialLR(o, 0.8), epochs=True)
    by_torch("exponential", {"gamma": 0.99, "by": "step"}, lambda o: s.ExponentialLR(o, 0.99), tag="_by_step")
    by_torch("polynomial", {"power": 2.0, "steps": 700}, lambda o: s.PolynomialLR(o, 700, 2.0))
    by_torch("cosine", {"min_ratio": 0.1}, lambda o: s.CosineAnnealingLR(o, TOTAL, 0.1))
    for times in (1, 2):
        by_torch(
            "cosine_restarts", {"first": 90, "times": times, "min_ratio": 0.05},
            lambda o, times=times: s.CosineAnnealingWarmRestarts(o, 90, times, 0.05), tag=f"_{times}",
        )  # fmt: skip
    for shape, strategy in (("cosine", "cos"), ("linear", "linear")):
        by_torch(
            "one_cycle", {"rise": 0.25, "shape": shape},
            lambda o, strategy=strategy: s.OneCycleLR(
                o, 1.0, TOTAL, pct_start=0.25, anneal_strategy=strategy, cycle_momentum=False
            ),
            tag=f"_{shape}",
        )  # fmt: skip
    for mode in ("triangular", "triangular2", "exp_range"):
        by_torch(
            "cyclic", {"low": 0.2, "rise": 60, "fall": 90, "mode": mode, "gamma": 0.999},
            lambda o, mode=mode: s.CyclicLR(o, 0.2, 1.0, 60, 90, mode, 0.999, cycle_momentum=False), tag=f"_{mode}",
        )  # fmt: skip
    for cooldown, kind in ((0, "rel"), (3, "abs")):
        by_torch(
            "plateau", {"gamma": 0.5, "patience": 2, "cooldown": cooldown, "threshold": 0.01, "threshold_mode": kind},
            lambda o, cooldown=cooldown, kind=kind: s.ReduceLROnPlateau(
                o, factor=0.5, patience=2, cooldown=cooldown, threshold=0.01, threshold_mode=kind
            ),
            epochs=True, tag=f"_{kind}",
        )  # fmt: skip
    n = np.arange(1, TOTAL + 1, dtype=np.float64)
    record("warmup_constant", {"warmup_steps": 80}, list(np.minimum(n / 80, 1.0)))
    fall = 1.0 - (n - 1 - 80) / (TOTAL - 80)
    record("warmup_linear", {"warmup_steps": 80, "min_ratio": 0.1}, list(np.where(n <= 80, n / 80, 0.1 + 0.9 * fall)))
    cosine = 0.5 * (1 + np.cos(math.pi * (n - 1 - 80) / (TOTAL - 80)))
    record("warmup_cosine", {"warmup_steps": 80}, list(np.where(n <= 80, n / 80, cosine)))
    record("inverse_sqrt", {"warmup_steps": 80}, list(np.minimum(n / 80, np.sqrt(80 / n))))
    record("noam", {"warmup_steps": 80, "width": 512}, list(512**-0.5 * np.minimum(n**-0.5, n * 80**-1.5)))
    share = np.clip((n - 1 - 800) / 200, 0.0, 1.0)
    shapes = {"sqrt": 1 - np.sqrt(share), "linear": 1 - share, "cosine": 0.5 * (1 + np.cos(math.pi * share))}
    for shape, left in shapes.items():
        params = {"warmup_steps": 80, "decay": 0.2, "shape": shape}
        record("wsd", params, list(np.where(n <= 80, n / 80, left)), f"_{shape}")
    record("constant", {}, [1.0] * TOTAL)
    target = Path(__file__).with_name("schedules.npz")
    np.savez_compressed(target, cases=np.array(json.dumps(CASES)), metrics=METRICS, **FOUND)
    print(len(CASES), "cases,", target.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
