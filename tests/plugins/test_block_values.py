"""Blocks on the oracle against PyTorch's values (tests/golden/torch_cases.npz) and independent formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from block_tracing import context, evaluate, load, run_layer, run_loss
from scellis_clips.global_norm import GLOBAL_NORM, GlobalNormParams
from scellis_layers import add, concat, flatten, permute, reshape
from scellis_layers.attention import ATTENTION
from scellis_layers.avg_pool2d import AVG_POOL2D
from scellis_layers.batch_norm import BATCH_NORM
from scellis_layers.conv2d import CONV2D
from scellis_layers.dropout import DROPOUT
from scellis_layers.embedding import EMBEDDING
from scellis_layers.gelu import GELU
from scellis_layers.layer_norm import LAYER_NORM
from scellis_layers.learned_positions import LEARNED_POSITIONS
from scellis_layers.linear import LINEAR
from scellis_layers.max_pool2d import MAX_POOL2D
from scellis_layers.relu import RELU
from scellis_layers.rms_norm import RMS_NORM
from scellis_layers.sigmoid import SIGMOID
from scellis_layers.silu import SILU
from scellis_layers.softmax import SOFTMAX
from scellis_layers.tanh import TANH
from scellis_losses import cross_entropy as ce
from scellis_losses import mse as mse_loss
from scellis_metrics import accuracy, mse, perplexity
from scellis_optimizers import adam, adamw, sgd
from scellis_schedulers import constant, cosine, warmup_cosine

from scellis_core.plugin import Hyper, Layer, Optimizer, ParamInfo, RecordError, ScheduleContext, Type

CASES = np.load(Path(__file__).parent.parent / "golden" / "torch_cases.npz")


def case(name: str) -> dict[str, Any]:
    """Arrays of one case."""
    return {k.partition("/")[2]: CASES[k] for k in CASES.files if k.startswith(f"{name}/")}


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


LAYER_CASES: dict[str, tuple[Layer, dict[str, Any], tuple[str, ...]]] = {
    "layer_norm": (LAYER_NORM, {}, ("x",)),
    "rms_norm": (RMS_NORM, {}, ("x",)),
    "batch_norm_2d": (BATCH_NORM, {}, ("x",)),
    "batch_norm_1d": (BATCH_NORM, {}, ("x",)),
    "attention_plain": (ATTENTION, {"heads": 2}, ("q", "k", "v")),
    "attention_causal": (ATTENTION, {"heads": 2, "causal": True}, ("q", "k", "v")),
    "attention_padded": (ATTENTION, {"heads": 2}, ("q", "k", "v", "mask")),
    "gelu": (GELU, {}, ("x",)),
    "gelu_tanh": (GELU, {"approximate": "tanh"}, ("x",)),
    "silu": (SILU, {}, ("x",)),
    "relu": (RELU, {}, ("x",)),
    "tanh": (TANH, {}, ("x",)),
    "sigmoid": (SIGMOID, {}, ("x",)),
    "softmax": (SOFTMAX, {}, ("x",)),
    "conv_plain": (CONV2D, {"filters": 4}, ("x",)),
    "conv_strided": (CONV2D, {"filters": 6, "kernel": (3, 2), "stride": (2, 1), "padding": (1, 2)}, ("x",)),
    "conv_grouped": (CONV2D, {"filters": 6, "padding": "same", "dilation": 2, "groups": 2}, ("x",)),
    "max_pool": (MAX_POOL2D, {}, ("x",)),
    "max_pool_padded": (MAX_POOL2D, {"window": (3, 2), "stride": (2, 1), "padding": (1, 1)}, ("x",)),
    "avg_pool": (AVG_POOL2D, {"window": 3, "stride": 2, "padding": 1}, ("x",)),
    "avg_pool_inside": (
        AVG_POOL2D,
        {"window": 3, "stride": 2, "padding": 1, "count_include_pad": False},
        ("x",),
    ),
}


@pytest.mark.parametrize("name", LAYER_CASES)
def test_layer_against_pytorch(name: str) -> None:
    layer, params, ports = LAYER_CASES[name]
    arrays = case(name)
    weights = {k: v for k, v in arrays.items() if ":" not in k and k not in ("seed", *ports)}
    y, grads, after = run_layer(layer, params, {p: arrays[p] for p in ports}, weights, seed=arrays["seed"])
    close(y, arrays["out:y"])
    expected = {k.removeprefix("grad:"): v for k, v in arrays.items() if k.startswith("grad:")}
    assert expected.keys() <= grads.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(grads[key], value, rtol=1e-9, atol=1e-11, err_msg=key)
    for key in after:
        close(after[key], arrays[f"out:{key}"])


@pytest.mark.parametrize("name", ["batch_norm_2d", "batch_norm_1d"])
def test_batch_norm_at_evaluation(name: str) -> None:
    arrays = case(name)
    weights = {k: arrays[k] for k in ("weight", "bias", "running_mean", "running_var")}
    y, _, after = run_layer(BATCH_NORM, {}, {"x": arrays["x"]}, weights, training=False)
    close(y, arrays["out:eval"])
    close(after["running_mean"], arrays["running_mean"])


def test_batch_norm_of_one_value() -> None:
    with pytest.raises(RecordError, match=r"run.sml:3:3 block: expected more than one value a channel in training"):
        run_layer(BATCH_NORM, {}, {"x": np.zeros((1, 3))})


def test_extreme_values_in_norms() -> None:
    y, _, _ = run_layer(LAYER_NORM, {"affine": False}, {"x": np.array([[1000.0, -1000.0]])})
    close(np.round(y, 6), [[1.0, -1.0]])
    y, _, _ = run_layer(RMS_NORM, {"affine": False}, {"x": np.array([[300.0, 400.0]])})
    np.testing.assert_allclose(y, [[0.8485, 1.1314]], atol=1e-4)
    y, _, _ = run_layer(GELU, {"approximate": "tanh"}, {"x": np.array([[-13.24]])})
    close(y, [[0.0]])


def test_linear_embedding_positions() -> None:
    rng = np.random.default_rng(1)
    x, w, b = rng.normal(size=(2, 3, 4)), rng.normal(size=(5, 4)), rng.normal(size=5)
    seed = rng.normal(size=(2, 3, 5))
    y, grads, _ = run_layer(LINEAR, {"features": 5}, {"x": x}, {"weight": w, "bias": b}, seed=seed)
    close(y, x @ w.T + b)
    close(grads["weight"], np.einsum("bto,bti->oi", seed, x))
    close(grads["bias"], seed.sum((0, 1)))
    close(grads["x"], seed @ w)
    ids = np.array([[0, 2, 2], [4, 2, 0]])
    seed = rng.normal(size=(2, 3, 4))
    y, grads, _ = run_layer(EMBEDDING, {"vocab_size": 5, "width": 4}, {"x": ids}, {"weight": w}, seed=seed)
    close(y, w[ids])
    expected = np.zeros_like(w)
    np.add.at(expected, ids, seed)
    close(grads["weight"], expected)
    y, grads, _ = run_layer(LEARNED_POSITIONS, {"length": 5}, {"x": x}, {"weight": w}, seed=seed)
    close(y, x + w[:3])
    close(grads["weight"], np.concatenate([seed.sum(0), np.zeros((2, 4))]))


def test_attention_hides_everything_evenly() -> None:
    arrays = case("attention_padded")
    inputs = {k: arrays[k] for k in ("q", "k", "v")} | {"mask": np.zeros((2, 5), np.int64)}
    y, _, _ = run_layer(ATTENTION, {"heads": 2}, inputs)
    close(y, np.broadcast_to(arrays["v"].mean(1, keepdims=True), y.shape))


def test_causal_attention_with_fewer_queries() -> None:
    arrays = case("attention_causal")
    inputs = {"q": arrays["q"][:, 3:], "k": arrays["k"], "v": arrays["v"]}
    y, _, _ = run_layer(ATTENTION, {"heads": 2, "causal": True}, inputs)
    close(y, arrays["out:y"][:, 3:])


def test_dropout() -> None:
    x = np.ones((100, 100))
    y, grads, _ = run_layer(DROPOUT, {"rate": 0.25}, {"x": x}, seed=x)
    assert set(np.unique(y)) == {0.0, 1.0 / 0.75}
    assert abs((y == 0).mean() - 0.25) < 0.02
    close(grads["x"], y)
    same, _, _ = run_layer(DROPOUT, {"rate": 0.25}, {"x": x}, training=False)
    close(same, x)


SHAPES = (
    (flatten.FLATTEN, {}, (2, 3, 4), (2, 12)),
    (flatten.FLATTEN, {"start": 2}, (2, 3, 4, 5), (2, 3, 20)),
    (reshape.RESHAPE, {"shape": [4, -1]}, (2, 3, 4), (2, 4, 3)),
)


@pytest.mark.parametrize(("layer", "params", "shape", "expected"), SHAPES)
def test_reshaping(layer: Layer, params: dict[str, Any], shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    y, grads, _ = run_layer(layer, params, {"x": x}, seed=x.reshape(expected))
    close(y, x.reshape(expected))
    close(grads["x"], x)


def test_permute_add_concat() -> None:
    x = np.arange(24, dtype=np.float64).reshape(2, 3, 4)
    y, _, _ = run_layer(permute.PERMUTE, {"order": [2, 1]}, {"x": x})
    close(y, x.transpose(0, 2, 1))
    ctx = context()
    a, b = load(ctx.graph, "a", x), load(ctx.graph, "b", x)
    outputs = {
        "sum": add.lower(ctx, add.AddParams(), (a, b, a)),
        "joined": concat.lower(ctx, concat.ConcatParams(axis=1), (a, b)),
    }
    found = evaluate(ctx, outputs, {"a": x, "b": x + 1})
    close(found["sum"], 3 * x + 1)
    close(found["joined"], np.concatenate([x, x + 1], axis=1))


REFUSED = (
    (LINEAR, {"features": 2}, {"x": np.zeros(3)}, "an input of shape [batch, ..., in], got f32[3]"),
    (
        EMBEDDING,
        {"vocab_size": 2, "width": 2},
        {"x": np.zeros((2, 2))},
        "token ids of dtype i32, got f32[2, 2]",
    ),
    (
        LEARNED_POSITIONS,
        {"length": 2},
        {"x": np.zeros((1, 3, 2))},
        "at most 2 tokens, width], got f32[1, 3, 2]",
    ),
    (SOFTMAX, {"axis": 0}, {"x": np.zeros((2, 2))}, "other than the batch's, got axis 0"),
    (
        CONV2D,
        {"filters": 2, "kernel": 5},
        {"x": np.zeros((1, 1, 4, 8))},
        "at least 5 x 5 after padding, got 4 x 8",
    ),
    (
        CONV2D,
        {"filters": 2, "groups": 2},
        {"x": np.zeros((1, 3, 4, 8))},
        "channels that 2 groups divide, got 3",
    ),
    (
        MAX_POOL2D,
        {"window": 4},
        {"x": np.zeros((1, 1, 3, 8))},
        "an image of at least 4 x 4, got f32[1, 1, 3, 8]",
    ),
    (ATTENTION, {"heads": 3}, dict.fromkeys("qkv", np.zeros((1, 2, 4))), "that 3 heads divide, got width 4"),
    (
        reshape.RESHAPE,
        {"shape": [5]},
        {"x": np.zeros((2, 6))},
        "a shape of 6 elements an example, got [5]",
    ),
    (
        permute.PERMUTE,
        {"order": [1]},
        {"x": np.zeros((2, 6, 1))},
        "an order of 2 axes for f32[2, 6, 1]",
    ),
)


@pytest.mark.parametrize(("layer", "params", "inputs", "message"), REFUSED)
def test_refused(layer: Layer, params: dict[str, Any], inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError) as error:
        run_layer(layer, params, inputs)
    assert message in str(error.value)
    assert str(error.value).startswith("run.sml:3:3 block: expected ")


PROBLEMS = (
    (CONV2D, {"filters": 3, "groups": 2}, "groups 2 must divide filters 3"),
    (CONV2D, {"filters": 3, "padding": "same", "stride": 2}, "padding same needs stride 1"),
    (MAX_POOL2D, {"window": 2, "padding": 2}, "padding must be from 0 to half the window 2, not 2"),
    (sgd.SGD, {"nesterov": True}, "nesterov needs momentum > 0 and dampening 0, not 0 and 0"),
    (permute.PERMUTE, {"order": [1, 1]}, "order must hold each of 1 to 2 once"),
    (reshape.RESHAPE, {"shape": [-1, -1]}, "one at most -1"),
)


@pytest.mark.parametrize(("block", "params", "message"), PROBLEMS)
def test_parameters_that_do_not_go_together(block: Any, params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        block.params(**params)


# -- losses and metrics --------------------------------------------------------------------------------------
WEIGHTS = (0.5, 2.0, 1.0, 0.0, 3.0, 1.0, 1.0)
LOSSES = {
    "ce_plain": {},
    "ce_smooth": {"label_smoothing": 0.1},
    "ce_weights": {"class_weights": WEIGHTS},
    "ce_smooth_weights": {"label_smoothing": 0.2, "class_weights": WEIGHTS},
}


@pytest.mark.parametrize("name", LOSSES)
def test_cross_entropy_against_pytorch(name: str) -> None:
    arrays = case(name)
    params = ce.CrossEntropyParams(**LOSSES[name])
    total, weight, grad = run_loss(ce.cross_entropy, params, arrays["x"], arrays["target"])
    close(total / weight, arrays["out:y"])
    close(grad / weight, arrays["grad:x"])


def test_cross_entropy_edges() -> None:
    x = np.array([[1000.0, -1000.0, 0.0], [0.0, 0.0, 0.0]])
    total, weight, grad = run_loss(ce.cross_entropy, ce.CrossEntropyParams(), x, np.array([1, -100]))
    assert (total, weight) == (2000.0, 1.0)
    close(grad, [[1.0, -1.0, 0.0], [0.0, 0.0, 0.0]])
    total, weight, grad = run_loss(ce.cross_entropy, ce.CrossEntropyParams(), x, np.array([-100, -100]))
    assert (total, weight, np.abs(grad).max()) == (0.0, 0.0, 0.0)
    with pytest.raises(RecordError, match="expected 3 class_weights, one a class, got 2"):
        run_loss(ce.cross_entropy, ce.CrossEntropyParams(class_weights=(1.0, 2.0)), x, np.array([1, 2]))
    with pytest.raises(RecordError, match="targets shaped as the output without its last axis"):
        run_loss(ce.cross_entropy, ce.CrossEntropyParams(), x, np.array([[1], [2]]))
    with pytest.raises(RecordError, match=r"class indices of dtype i32, got f32\[2\]; try training/loss/mse"):
        run_loss(ce.cross_entropy, ce.CrossEntropyParams(), x, np.array([1.0, 2.0]))


def test_mse_against_pytorch() -> None:
    arrays = case("mse")
    total, weight, grad = run_loss(mse_loss.mse, mse_loss.MseParams(), arrays["x"], arrays["target"])
    close(total / weight, arrays["out:y"])
    close(grad / weight, arrays["grad:x"])
    with pytest.raises(RecordError, match=r"expected a target of the output's type, f32\[4, 1\], got f32\[4\]"):
        run_loss(mse_loss.mse, mse_loss.MseParams(), np.zeros((4, 1)), np.zeros(4))


def test_metrics() -> None:
    rng = np.random.default_rng(3)
    x, target = rng.normal(size=(4, 3, 5)), rng.integers(0, 5, (4, 3))
    target[0, 0] = -100
    x[1, 1] = 0.0  # all equal: the first class counts
    target[1, 1] = 0
    keep = target != -100
    ctx = context(training=False)
    output, wanted, number = (
        load(ctx.graph, "o", x),
        load(ctx.graph, "t", target),
        load(ctx.graph, "n", x + 0.5),
    )
    found = {
        "accuracy": accuracy.accuracy(ctx, accuracy.AccuracyParams(), output, wanted),
        "perplexity": perplexity.perplexity(ctx, perplexity.PerplexityParams(), output, wanted),
        "mse": mse.mse(ctx, mse.MseParams(), output, number),
    }
    outputs = {f"{m}.{k}": v for m, sums in found.items() for k, v in sums.items()}
    values = evaluate(ctx, outputs, {"o": x, "t": target, "n": x + 0.5})
    ratio = {m: values[f"{m}.total"] / values[f"{m}.weight"] for m in found}
    close(ratio["accuracy"], (x.argmax(-1) == target)[keep].mean())
    logp = x - np.log(np.exp(x).sum(-1, keepdims=True))
    close(
        ratio["perplexity"],
        -np.take_along_axis(logp, np.where(keep, target, 0)[..., None], -1)[..., 0][keep].mean(),
    )
    close(ratio["mse"], 0.25)


# -- optimizers, clipping, schedules -------------------------------------------------------------------------
def step(block: Optimizer, params: Any, p: Any, g: Any, slots: dict[str, Any], t: int) -> tuple[Any, dict[str, Any]]:
    """One update on the oracle."""
    ctx = context()
    graph = ctx.graph
    values = {name: load(graph, name, array) for name, array in {"p": p, "g": g, **slots}.items()}
    hyper = Hyper(params, graph.const(params.lr), graph.const(float(t)), graph.const(1.0))
    hyper.weight_decay = params.weight_decay
    new, state = block.phases[0].fn(values["p"], values["g"], {k: values[k] for k in slots}, hyper)
    found = evaluate(ctx, {"p": new, **state}, {"p": p, "g": g, **slots})
    return found["p"], {k: found[k] for k in state}


OPTIMIZERS: dict[str, tuple[Optimizer, dict[str, Any]]] = {
    "sgd": (sgd.SGD, {"lr": 0.1}),
    "sgd_decay": (sgd.SGD, {"lr": 0.1, "weight_decay": 0.1}),
    "sgd_momentum": (sgd.SGD, {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}),
    "sgd_dampening": (sgd.SGD, {"lr": 0.05, "momentum": 0.9, "dampening": 0.3}),
    "sgd_nesterov": (sgd.SGD, {"lr": 0.05, "momentum": 0.8, "nesterov": True, "weight_decay": 0.1}),
    "adam": (adam.ADAM, {"lr": 0.01}),
    "adam_decay": (adam.ADAM, {"lr": 0.01, "weight_decay": 0.1, "beta1": 0.8, "beta2": 0.95, "eps": 1e-6}),
    "adamw": (adamw.ADAMW, {"lr": 0.01, "weight_decay": 0.0}),
    "adamw_decay": (adamw.ADAMW, {"lr": 0.01, "weight_decay": 0.1, "beta2": 0.95}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_against_pytorch(name: str) -> None:
    block, options = OPTIMIZERS[name]
    params = block.params(**options)
    arrays = case("optimizer")
    for tensor in ("a", "b"):
        p = arrays[tensor]
        slots = {k: np.zeros_like(p) for k in block.slots(params, ParamInfo(tensor, p.shape))}
        for t in range(1, 21):
            p, slots = step(block, params, p, arrays[f"g_{tensor}"][t - 1], slots, t)
            if t in (1, 2, 20):
                np.testing.assert_allclose(p, arrays[f"{name}/{tensor}/{t}"], rtol=1e-9, err_msg=f"{tensor} {t}")


@pytest.mark.parametrize("block", [sgd.SGD, adam.ADAM, adamw.ADAMW])
def test_weight_decay_has_effect(block: Optimizer) -> None:
    results: list[Any] = []
    for decay in (0.0, 0.1):
        params = block.params(lr=0.1, weight_decay=decay)
        slots = {k: np.zeros(1) for k in block.slots(params, ParamInfo("p", (1,)))}
        results.append(step(block, params, np.ones(1), np.full(1, 0.01), slots, 1)[0])
    if block is not adam.ADAM:  # Adam's first step has the same size whatever the gradient's
        assert results[0] != results[1]
    params = adamw.AdamWParams(lr=0.1, weight_decay=0.1)
    slots = {"m": np.zeros(1), "v": np.zeros(1)}
    close(step(adamw.ADAMW, params, np.ones(1), np.zeros(1), slots, 1)[0], [0.99])


@pytest.mark.parametrize("max_norm", [1.0, 100.0])
def test_clip_against_pytorch(max_norm: float) -> None:
    arrays = case("clip")
    for name in ("a", "b"):
        ctx = context()
        g = load(ctx.graph, "g", arrays[name])
        hyper = Hyper(GlobalNormParams(max_norm=max_norm), ctx.graph.const(1.0), ctx.graph.const(1.0), g)
        hyper.grad_norm = ctx.graph.load("norm", Type("f32", ()))
        scaled, _ = GLOBAL_NORM.phases[0].fn(g, g, {}, hyper)
        found = evaluate(ctx, {"g": scaled}, {"g": arrays[name], "norm": arrays["norm"]})["g"]
        close(found, arrays[f"{name}/{max_norm:g}"])


def test_schedules_against_pytorch() -> None:
    ctx = ScheduleContext(total_steps=30, steps_per_epoch=10)
    rows = {
        "constant": (constant.factor, constant.ConstantParams()),
        "cosine": (cosine.factor, cosine.CosineParams()),
        "cosine_min": (cosine.factor, cosine.CosineParams(min_ratio=0.2)),
        "warmup_cosine": (
            warmup_cosine.factor,
            warmup_cosine.WarmupCosineParams(warmup_steps=6, min_ratio=0.1),
        ),
    }
    for name, (factor, params) in rows.items():
        found = [factor(step, params, ctx) for step in range(30)]  # type: ignore[arg-type]
        np.testing.assert_allclose(found, case("schedule")[name], rtol=1e-12, atol=1e-12, err_msg=name)
    with pytest.raises(RecordError) as error:
        warmup_cosine.factor(0, warmup_cosine.WarmupCosineParams(warmup_steps=30), ctx)
    assert str(error.value) == (
        "scheduler.warmup_steps: expected fewer than the run's 30 updates, got 30; try 3, or more epochs"
    )
