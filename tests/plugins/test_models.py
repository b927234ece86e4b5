"""Models from records: paths, ties, sizes and starts of parameters; values and gradients against PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scellis_core import oracle
from scellis_core.autodiff import gradients
from scellis_core.catalog import Catalog
from scellis_core.errors import RecordError
from scellis_core.model import Lowered, ResolvedRun, initial_tensors, lower, resolve_run
from scellis_core.record import Record

ROOT = Path(__file__).parent.parent.parent
CASES = np.load(ROOT / "tests" / "golden" / "torch_cases.npz")
RUN: dict[str, Any] = {
    "sml": 1,
    "optimizer": {"block_id": "training/optimizer/sgd"},
    "loss": {"block_id": "training/loss/cross_entropy"},
    "steps": 1,
    "batch_size": 2,
    "determinism_tier": "debug",
}
DECODER: dict[str, Any] = {
    "block_id": "model/decoder_transformer",
    "vocab_size": 11,
    "context": 5,
    "width": 8,
    "layers": 2,
    "heads": 2,
}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.discover()


def resolve(catalog: Catalog, base: Path, **keys: Any) -> ResolvedRun:
    """A run of these keys."""
    return resolve_run(Record.from_dict(RUN | keys), catalog, base)


def arrays(name: str) -> dict[str, Any]:
    """Arrays of one case."""
    return {k.partition("/")[2]: CASES[k] for k in CASES.files if k.startswith(f"{name}/")}


def loss_and_gradients(low: Lowered, tensors: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
    """Loss, logits and gradients of the mean loss by path."""
    assert low.loss_total is not None
    leaves = low.graph.leaves("param")
    found = gradients(low.graph, low.loss_total, list(leaves.values()))
    for path, leaf in leaves.items():
        gradient = found[leaf]
        assert gradient is not None
        low.graph.output(f"grad:{path}", gradient)
    out = oracle.evaluate(low.graph, inputs, tensors, {})
    scale = {k: out["loss.weight"] if k.startswith("grad:") else 1.0 for k in out}
    return {k: v / scale[k] for k, v in out.items()} | {"y": out["loss.total"] / out["loss.weight"]}


@pytest.mark.parametrize("name", ["decoder", "cnn"])
def test_model_against_pytorch(catalog: Catalog, tmp_path: Path, name: str) -> None:
    case = arrays(name)
    if name == "decoder":
        np.savez(tmp_path / "d.npz", x=np.zeros((9, 5), int), y=np.zeros((9, 5), int))
        keys: dict[str, Any] = {"architecture": DECODER}
        keys["data"] = {"block_id": "data/arrays", "path": "d.npz", "vocab_size": 11}
    else:
        keys = {"architecture": {"block_id": "model/cnn", "widths": [2, 3], "outputs": 10}}
        keys["data"] = {"block_id": "data/digits", "layout": "image"}
    low = lower(resolve(catalog, tmp_path, **keys), len(case["x"]), "train")
    weights = {k: v for k, v in case.items() if ":" not in k and k not in ("x", "y")}
    assert set(low.params) == set(weights)
    states = {k: np.array(v) for k, v in initial_tensors(low.params, low.states, 0).items() if k in low.states}
    found = loss_and_gradients(low, {**weights, **states}, {"x": case["x"], "y": case["y"]})
    for key in ("y", "logits"):
        np.testing.assert_allclose(found[key], case[f"out:{key}"], rtol=1e-9)
    for path in weights:
        np.testing.assert_allclose(found[f"grad:{path}"], case[f"grad:{path}"], rtol=1e-8, atol=1e-12, err_msg=path)


def test_decoder_has_the_size_of_gpt2(catalog: Catalog) -> None:
    sizes = {"vocab_size": 50257, "context": 1024, "width": 768, "layers": 12, "heads": 12}
    record = Record.from_dict({"sml": 1, "architecture": DECODER | sizes})
    low = lower(resolve_run(record, catalog, ROOT), 1, "predict")
    assert sum(meta.numel for meta in low.params.values()) == 124_439_808
    assert low.aliases == {"head.weight": "embed.weight"}
    spec = low.inputs["x"]
    assert (spec.shape, spec.dtype, spec.limit) == ((1024,), "i32", 50257)
    assert low.params["blocks.3.attn.q.weight"].init.value == 0.02
    assert low.params["embed.weight"].init.value == 0.02
    for path in ("blocks.3.attn.o.weight", "blocks.3.mlp.down.weight"):
        assert low.params[path].init.value == pytest.approx(0.02 / 24**0.5)


def test_decoder_options(catalog: Catalog) -> None:
    record = Record.from_dict({"sml": 1, "architecture": DECODER | {"tie_head": False, "dropout": 0.1}})
    run = resolve_run(record, catalog, ROOT)
    assert run.graph.match("blocks.*.attn.{q,v}") == [f"blocks.{i}.attn.{c}" for i in (0, 1) for c in "qv"]
    assert [p for p in run.graph.instances if "drop" in p.rsplit(".", 1)[-1]] == [
        "drop",
        *(f"blocks.{i}.drop{j}" for i in (0, 1) for j in (1, 2)),
    ]
    assert lower(run, 1, "predict").params["head.weight"].shape == (11, 8)
    with pytest.raises(RecordError, match="heads 3 must divide width 8"):
        resolve_run(Record.from_dict({"sml": 1, "architecture": DECODER | {"heads": 3}}), catalog, ROOT)


def test_decoder_sees_no_later_token(catalog: Catalog) -> None:
    run = resolve_run(Record.from_dict({"sml": 1, "architecture": DECODER}), catalog, ROOT)
    low = lower(run, 2, "predict")
    tensors = initial_tensors(low.params, low.states, 3)
    x = np.array([[1, 2, 3, 4, 5], [1, 2, 3, 9, 0]])
    logits = oracle.evaluate(low.graph, {"x": x}, dict(tensors), {})["logits"]
    np.testing.assert_array_equal(logits[0, :3], logits[1, :3])
    assert np.abs(logits[0, 3:] - logits[1, 3:]).max() > 1e-6


def test_attention_from_a_graph_with_source_and_mask(catalog: Catalog) -> None:
    node = {"block_id": "layer/multi_head_attention", "width": 4, "heads": 2}
    record = Record.from_dict(
        {
            "sml": 1,
            "inputs": {
                "x": {"shape": ["batch", 3, 6]},
                "s": {"shape": ["batch", 5, 6]},
                "m": {"shape": ["batch", 5], "dtype": "i32"},
            },
            "graph": {"h": node | {"in": {"x": "x", "source": "s", "mask": "m"}}},
            "outputs": {"logits": "h"},
        }
    )
    low = lower(resolve_run(record, catalog, ROOT), 2, "predict")
    tensors = {k: np.array(v, float) for k, v in initial_tensors(low.params, low.states, 1).items()}
    rng = np.random.default_rng(0)
    x, s, m = (
        rng.normal(size=(2, 3, 6)),
        rng.normal(size=(2, 5, 6)),
        np.array([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1]]),
    )
    y = oracle.evaluate(low.graph, {"x": x, "s": s, "m": m}, dict(tensors), {})["logits"]
    s[0, 2:] = 100.0  # hidden, so without effect
    np.testing.assert_array_equal(oracle.evaluate(low.graph, {"x": x, "s": s, "m": m}, dict(tensors), {})["logits"], y)
    p = {k: v for k, v in tensors.items() if k.startswith("h.")}
    q, k, v = (
        (t @ p[f"h.{n}.weight"].T + p[f"h.{n}.bias"]).reshape(2, -1, 2, 2).transpose(0, 2, 1, 3)
        for n, t in (("q", x), ("k", s), ("v", s))
    )
    scores = np.where(m[:, None, None] != 0, q @ k.transpose(0, 1, 3, 2) / 2**0.5, -np.inf)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    mixed = (weights @ v).transpose(0, 2, 1, 3).reshape(2, 3, 4)
    np.testing.assert_allclose(y, mixed @ p["h.o.weight"].T + p["h.o.bias"], rtol=1e-9)


@pytest.mark.parametrize(("name", "count"), [("digits", 26122), ("digits_cnn", 6138), ("text", 120576)])
def test_examples(catalog: Catalog, name: str, count: int) -> None:
    path = ROOT / "examples" / f"{name}.sml"
    run = resolve_run(Record.load(path), catalog, path.parent)
    low = lower(run, 32, "train")
    assert sum(meta.numel for meta in low.params.values()) == count
    assert lower(run, 7, "eval").metrics
    assert run.data is not None
    text = run.record.get("data.sha256")
    if text is not None:
        from scellis_core.blocks import DataContext

        assert run.data.block.open(run.data.params, DataContext(path.parent)).digest == text
