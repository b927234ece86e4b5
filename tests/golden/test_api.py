"""The Python API, as ``import scellis`` gives it, on the oracle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tiny import arrays, tiny

import scellis
from scellis_core.store import Store
from scellis_core.train.events import Checkpointed, Event, RunEnded, RunStarted, StepDone, Validated


def refusal(call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(scellis.ScellisError) as caught:
        call(*args, **kwargs)
    return str(caught.value)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> scellis.Result:
    folder = tmp_path_factory.mktemp("trained")
    return scellis.train(tiny(folder), store=folder / "store", device="oracle")


def test_importing_is_quick_and_names_are_there() -> None:
    code = "import sys, scellis; print('numpy' in sys.modules, 'wgpu' in sys.modules); scellis.Record"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
    assert all(getattr(scellis, name) is not None for name in scellis.__all__)
    assert dir(scellis) == sorted(scellis.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'tarin'"):
        scellis.tarin  # noqa: B018


def test_load_override_plan(tmp_path: Path) -> None:
    record = tiny(tmp_path)
    (tmp_path / "tiny.sml").write_text(record.text(), encoding="utf-8")
    loaded = scellis.load(tmp_path / "tiny.sml")
    assert loaded.digest == record.digest
    wider = scellis.load(loaded).with_override("graph.h.features", 16)
    found, more = scellis.plan(loaded), scellis.plan(wider)
    assert (found.parameters, more.parameters) == (8 * 6 + 16 + 18, 16 * 6 + 32 + 34)
    assert found.trainable == found.parameters
    assert sum(found.classes.values()) == found.total
    assert more.total > found.total
    assert {"micro@8", "micro@2", "apply", "eval@8", "eval@3"} == set(found.dispatches)


def test_plan_of_an_architecture_alone(tmp_path: Path) -> None:
    keys = [
        "optimizer",
        "scheduler",
        "loss",
        "metrics",
        "steps",
        "batch_size",
        "checkpoint",
        "determinism_tier",
        "data",
    ]
    record = tiny(tmp_path).with_overrides({}, without=keys)
    found = scellis.plan(record)
    assert set(found.dispatches) == {"predict@1"}
    assert found.classes["gradients"] == found.classes["optimizer state"] == 0
    assert "expected a pipeline to train with" in refusal(scellis.train, record, store=tmp_path, device="oracle")


def test_events_of_a_run(tmp_path: Path) -> None:
    record = tiny(tmp_path, {"steps": 7})
    events: list[Event] = []
    more: list[Event] = []
    result = scellis.train(record, store=tmp_path, device="oracle", on_event=events.append, callbacks=[more.append])
    assert events == more
    assert events[0] == RunStarted(result.run, 0, 7, "oracle", scellis.plan(record).total, False)
    steps = [e for e in events if isinstance(e, StepDone)]
    assert [(e.step, e.total, e.epoch, e.applied) for e in steps] == [(i, 7, (i - 1) // 6, True) for i in range(1, 8)]
    assert [e.lr for e in steps[:5]] == pytest.approx([0.002, 0.004, 0.006, 0.008, 0.01])
    assert all(e.rate > 0 for e in steps)
    assert [(e.step, e.epoch, sorted(e.metrics)) for e in events if isinstance(e, Validated)] == [
        (6, 0, ["val_accuracy", "val_loss"]),
        (7, 1, ["val_accuracy", "val_loss"]),
    ]
    saved = [e for e in events if isinstance(e, Checkpointed)]
    assert [e.step for e in saved] == [4, 6, 7]
    assert Store(tmp_path).checkpoints(result.run)[0].bundle == saved[-1].digest
    assert events[-1] == RunEnded(result.run, "finished", 7, 7, 0, result.metrics)


def test_a_notebook_trains_again_after_an_interruption(tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, StepDone) and event.step == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scellis.train(tiny(tmp_path), store=tmp_path, device="oracle", on_event=stop)
    seen: list[Event] = []
    result = scellis.resume(store=tmp_path, device="oracle", on_event=seen.append)
    assert (result.state, result.step, result.applied) == ("finished", 30, 30)
    assert isinstance(seen[0], RunStarted)
    assert (seen[0].step, seen[0].resumed) == (8, True)


def test_metrics(trained: scellis.Result) -> None:
    rows = scellis.metrics(trained.run, store=trained.store)
    assert {name for _, _, name, _ in rows} == {"loss", "grad_norm", "lr", "val_loss", "val_accuracy"}
    losses = scellis.metrics(None, "loss", store=trained.store)
    assert [(step, epoch) for step, epoch, _, _ in losses] == [(i, (i - 1) // 6) for i in range(1, 31)]
    assert losses[-1][3] == trained.metrics["loss"]
    assert losses[-1][3] < losses[0][3]


def test_predict_and_evaluate_agree(trained: scellis.Result) -> None:
    data = arrays()
    found = scellis.predict(trained.run, {"x": data["x"]}, store=trained.store, device="oracle")
    assert found["logits"].shape == (53, 2)
    for batch in (1, 10, 53):
        again = scellis.predict(None, {"x": data["x"].tolist()}, batch_size=batch, store=trained.store, device="oracle")
        np.testing.assert_allclose(again["logits"], found["logits"], rtol=1e-12)
    measured = {
        s: scellis.evaluate(trained.run, split=s, store=trained.store, device="oracle") for s in ("train", "val")
    }
    assert measured["val"] == {n.removeprefix("val_"): v for n, v in trained.metrics.items() if n != "loss"}
    right = float((found["logits"].argmax(axis=1) == data["y"]).mean())
    assert (42 * measured["train"]["accuracy"] + 11 * measured["val"]["accuracy"]) / 53 == pytest.approx(right)


def test_refused_predictions(trained: scellis.Result) -> None:
    def ask(**inputs: Any) -> str:
        return refusal(scellis.predict, trained.run, inputs, store=trained.store, device="oracle")

    x = arrays()["x"]
    expected = "predict: expected inputs of one number of examples, at least 1, and a batch of at least 1"
    assert ask(x=x[:0]) == f"{expected}, got x of shape [0, 6]"
    assert ask(z=x) == "predict: expected inputs x, got 'z'; try one of: x"
    assert ask(x=x, z=x) == "predict: expected inputs x, got 'z'; try one of: x"
    assert "expected shape [8, 6], got [8, 5]" in ask(x=x[:, :5])
    found = refusal(scellis.evaluate, trained.run, split="test", store=trained.store, device="oracle")
    assert found.endswith("data: expected a split 'test', got none; try one of: train, val")


def test_export(trained: scellis.Result, tmp_path: Path) -> None:
    out = scellis.export(trained.run, tmp_path / "deep" / "weights.safetensors", store=trained.store)
    found = load_file(out)
    assert {n: (a.shape, a.dtype.name) for n, a in found.items()} == {
        "h.weight": ((8, 6), "float32"),
        "n.weight": ((8,), "float32"),
        "n.bias": ((8,), "float32"),
        "n.running_mean": ((8,), "float32"),
        "n.running_var": ((8,), "float32"),
        "o.weight": ((2, 8), "float32"),
        "o.bias": ((2,), "float32"),
    }
    weights = Store(trained.store).tensors(Store(trained.store).checkpoint(trained.run)[1].weights)
    assert weights["h.weight"].dtype == np.float64, "a run on the oracle keeps what it computed"
    np.testing.assert_array_equal(found["h.weight"], weights["h.weight"].astype(np.float32))
    again = scellis.export(None, out, store=trained.store, best=True)
    assert again == out
    assert not (out.parent / "weights.safetensors.part").exists()
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert "expected a file that can be written" in refusal(
        scellis.export, None, blocked / "weights.safetensors", store=trained.store
    )


def test_without_a_run(tmp_path: Path) -> None:
    expected = f"store {tmp_path}: expected a run, got none; try scellis train run.sml"
    assert refusal(scellis.metrics, store=tmp_path) == expected
    assert refusal(scellis.export, None, tmp_path / "w", store=tmp_path) == expected
    assert refusal(scellis.open_run, None, store=tmp_path) == expected
    assert refusal(scellis.resume, store=tmp_path) == (
        f"store {tmp_path}: expected an interrupted run, got none; try scellis runs --store {tmp_path}"
    )


def test_stored_models(tmp_path: Path) -> None:
    """Saved, the same again, the next version; a record that names a version trains what is stored."""
    store, record = Store(tmp_path), tiny(tmp_path, {"steps": 6})
    assert store.save_model(record) == ("user/tests/tiny", 1)
    assert store.save_model(record) == ("user/tests/tiny", 1)
    assert store.save_model(record.with_override("graph.h.features", 9)) == ("user/tests/tiny", 2)
    (tmp_path / "mine.sml").write_text(
        "sml: 1\nmodel: user/tests/tiny@1\nseed: 8\ndeterminism_tier: debug\n", encoding="utf-8"
    )
    merged = scellis.load(tmp_path / "mine.sml", store=tmp_path)
    assert (merged.spec.seed, merged.spec.determinism_tier, merged.spec.steps) == (8, "debug", 6)
    result = scellis.train(tmp_path / "mine.sml", store=tmp_path, device="oracle")
    row = store.find_run(result.run)
    assert row.model == "user/tests/tiny@1"
    assert scellis.predict(None, {"x": arrays()["x"][:2]}, store=tmp_path, device="oracle")["logits"].shape == (2, 2)
    (tmp_path / "mine.sml").write_text("sml: 1\nmodel: user/tests/tiny@3\ndeterminism_tier: debug\n", encoding="utf-8")
    found = refusal(scellis.load, tmp_path / "mine.sml", store=tmp_path)
    assert found == (
        f"{tmp_path / 'mine.sml'}:2:8 model: expected a model stored in {tmp_path}, got user/tests/tiny@3; "
        "try one of: user/tests/tiny@2, user/tests/tiny@1"
    )


TEXT = """
sml: 1
architecture: { block_id: model/decoder_transformer, vocab_size: 256, context: 8, width: 16, layers: 1, heads: 2 }
data: { block_id: data/text, path: text.txt, context: 8, split: { val: 0.2 } }
optimizer: { block_id: training/optimizer/adamw, lr: 0.03 }
loss: { block_id: training/loss/cross_entropy }
steps: 60
batch_size: 8
determinism_tier: prod
"""


def test_sample(tmp_path: Path, trained: scellis.Result) -> None:
    (tmp_path / "text.txt").write_text("abcdefg" * 70, encoding="utf-8")
    (tmp_path / "text.sml").write_text(TEXT, encoding="utf-8")
    run = scellis.train(tmp_path / "text.sml", store=tmp_path, device="oracle").run
    how: dict[str, Any] = {"length": 12, "store": tmp_path, "device": "oracle"}
    assert "".join(scellis.sample(run, "abc", temperature=0.0, **how)) == "defgabcdefga"
    drawn = ["".join(scellis.sample(run, "abc", temperature=3.0, seed=seed, **how)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert "".join(scellis.sample(run, "abc", temperature=3.0, top_k=1, **how)) == "defgabcdefga"

    def ask(run: str, prompt: str, store: Path, **options: Any) -> str:
        return refusal(lambda: list(scellis.sample(run, prompt, store=store, device="oracle", **options)))

    assert ask(run, "", tmp_path) == "--prompt: expected at least one token, got an empty text"
    assert "top_k of at least 1" in ask(run, "a", tmp_path, top_k=0)
    assert ask(trained.run, "a", trained.store) == "data: expected a dataset of text, got one of arrays; try data/text"
