"""Training, resuming and using a run from the command line, on the oracle."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from scellis_core import runtime
from scellis_core.cli import app
from scellis_core.errors import DataError
from scellis_core.train import api
from scellis_core.train.events import RunStarted

RECORD = """\
sml: 1
model: user/ada/tiny
architecture: { block_id: model/mlp, hidden: [4], outputs: 10 }
data: { block_id: data/digits, split: { val: 0.1 } }
optimizer: { block_id: training/optimizer/adamw, lr: 1.0e-2 }
loss: { block_id: training/loss/cross_entropy }
metrics: [{ block_id: metric/accuracy }]
steps: 6
batch_size: 64
determinism_tier: prod
seed: 1
"""

TEXT = """\
sml: 1
architecture: { block_id: model/decoder_transformer, vocab_size: 256, context: 8, width: 8, layers: 1, heads: 2 }
data: { block_id: data/text, path: corpus.txt, context: 8, split: { val: 0.2 } }
optimizer: { block_id: training/optimizer/adamw, lr: 1.0e-2 }
loss: { block_id: training/loss/cross_entropy }
steps: 2
batch_size: 8
determinism_tier: prod
"""

LAST_LINE = re.compile(r"val_accuracy 0\.\d+ val_loss \d+\.\d+ loss \d+\.\d+")
NOT_ON_A_GPU = "NOT ON A GPU: the float64 oracle (NumPy, slow) runs this\n"


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


Call = Callable[..., Done]


@pytest.fixture
def scellis(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Runs the command line in this process, in a folder that holds run.sml."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCELLIS_DEBUG", raising=False)
    (tmp_path / "run.sml").write_text(RECORD, encoding="utf-8")

    def call(*args: str) -> Done:
        with pytest.raises(SystemExit) as left:
            app.main(args)
        out, err = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return Done(left.value.code, out, err)

    return call


def runs(scellis: Call, *args: str) -> list[dict[str, Any]]:
    return json.loads(scellis("runs", "--json", *args).out)


def test_train_and_use(scellis: Call, tmp_path: Path) -> None:
    done = scellis("train", "run.sml", "--device", "oracle")
    assert done.code == 0
    assert done.err.startswith(NOT_ON_A_GPU)
    assert "step 6/6 epoch 1 loss " in done.err
    assert "epoch 1 step 6: val_accuracy " in done.err
    run, applied, last = done.out.splitlines()
    assert re.fullmatch(r"run \S+ finished", run)
    assert applied == "updates applied 6, skipped 0; store .scellis"
    assert LAST_LINE.fullmatch(last)

    name = run.split()[1]
    (row,) = runs(scellis)
    assert list(row) == [
        "run", "state", "error", "model", "epoch", "step", "total", "skipped", "device", "tier", "record", "dataset",
        "checkpoint_step", "weights", "weights_object", "metrics",
    ]  # fmt: skip
    assert (row["run"], row["state"], row["error"], row["model"]) == (name, "finished", None, "user/ada/tiny")
    assert (row["epoch"], row["step"], row["total"], row["checkpoint_step"]) == (1, 6, 6, 6)
    assert (row["device"], row["tier"]) == ("oracle", "prod")
    assert re.fullmatch("[0-9a-f]{64}", row["record"])
    assert re.fullmatch("(sha256:)?[0-9a-f]{64}", row["weights"])
    assert sorted(row["metrics"]) == ["loss", "val_accuracy", "val_loss"]
    assert f"{row['metrics']['val_accuracy']:.6g}" == last.split()[1]

    (line,) = scellis("runs").out.splitlines()
    weights = row["weights"].removeprefix("sha256:")[:8]
    assert line.split("\t") == [name, "finished", "1", "6/6", row["record"][:8], weights, last]

    assert scellis("export", name[:-3], "-o", "out/w.safetensors") == Done(0, "out/w.safetensors\n", "")
    tensors = load_file(tmp_path / "out" / "w.safetensors")
    assert sum(a.size for a in tensors.values()) == 64 * 4 + 4 + 4 * 10 + 10
    assert {a.dtype for a in tensors.values()} == {np.dtype(np.float32)}
    done = scellis("export", name, "-o", "w.safetensors", "--best")
    assert done.err == (
        f"error: run {name}: expected a checkpoint marked best, got none yet; "
        "try checkpoint: { best: { metric: val_loss } } in the record\n  scellis explain store\n"
    )
    done = scellis("resume", name, "--device", "oracle")
    assert (done.code, done.out) == (1, "")
    assert "finished" in done.err
    done = scellis("sample", "--prompt", "a", "--device", "oracle")
    assert done.code == 1
    assert "expected a dataset of text, got one of arrays; try data/text" in done.err


def test_what_the_command_line_changes_is_in_the_record_of_the_run(scellis: Call) -> None:
    done = scellis("train", "run.sml", "--device", "oracle", "--unset", "steps", "--set", "epochs=1", "--store", "s")
    assert done.code == 0
    (row,) = runs(scellis, "--store", "s")
    assert row["total"] == row["step"] == -(-1618 // 64)
    assert not Path(".scellis").exists()


def test_interrupt_and_resume(scellis: Call, tmp_path: Path) -> None:
    args = ["train", "run.sml", "--device", "oracle", "--set", "batch_size=8", "--set", "steps=500"]
    with subprocess.Popen(
        [sys.executable, "-m", "scellis_core", *args, "--store", "cut"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("step "):
                process.send_signal(signal.SIGINT)
                break
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    (row,) = runs(scellis, "--store", "cut")
    name = row["run"]
    state, applied, command, last = out.splitlines()
    assert state == f"run {name} interrupted: SIGINT"
    assert applied == f"updates applied {row['step']}, skipped 0; store cut"
    assert command == f"go on with: scellis resume {name} --store cut"
    assert last.partition("loss ")[2]
    assert row["state"] == "interrupted"
    assert 0 < row["step"] == row["checkpoint_step"] < 500

    done = scellis("resume", "--device", "oracle", "--store", "cut")
    assert done.code == 0
    assert f"run {name} goes on from step {row['step']} on oracle: 500 steps" in done.err
    assert done.out.splitlines()[:2] == [
        f"run {name} finished",
        "updates applied 500, skipped 0; store cut",
    ]
    whole = scellis(*args, "--store", "whole")
    assert whole.out.splitlines()[-1] == done.out.splitlines()[-1]
    assert runs(scellis, "--store", "cut")[0]["weights"] == runs(scellis, "--store", "whole")[0]["weights"]


def test_a_failed_run_says_how_to_go_on(scellis: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, callbacks: Any, **__: Any) -> None:
        for callback in callbacks:
            callback(RunStarted("r1", 0, 5, "GPU", 1024, False))
        raise DataError("row 7", "numbers", "text")

    monkeypatch.setattr(api, "train", fail)
    done = scellis("train", "run.sml", "--device", "oracle", "--store", "my store")
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[1:] == [
        "run r1 starts on GPU: 5 steps, peak memory 1.00 KiB",
        "run r1 failed; go on with: scellis resume r1 --store 'my store'",
        "error: row 7: expected numbers, got text",
        "  scellis explain data",
    ]


def test_without_an_adapter(scellis: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "adapters", list)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("SCELLIS_REQUIRE_GPU", raising=False)
    advice = "install a Vulkan driver (Debian, Ubuntu: apt-get install mesa-vulkan-drivers libvulkan1)"
    done = scellis("train", "run.sml")
    assert done.code == 0
    assert done.err.startswith(f"NO GPU ADAPTER: the float64 oracle (NumPy, slow) runs this; {advice}\nrun ")
    assert LAST_LINE.fullmatch(done.out.splitlines()[-1])
    done = scellis("doctor")
    assert done.code == 0
    assert done.out.startswith(f"no WebGPU adapter: {advice}\n")
    assert scellis("doctor", "--json") == Done(0, "[]\n", "")
    monkeypatch.setenv("SCELLIS_REQUIRE_GPU", "1")
    assert scellis("train", "run.sml") == Done(
        1,
        "",
        f"error: SCELLIS_REQUIRE_GPU: expected a WebGPU adapter, got none; try {advice}\n  scellis explain device\n",
    )


def test_a_record_that_cannot_train_leaves_no_run(scellis: Call, tmp_path: Path) -> None:
    alone = "sml: 1\ninputs: { x: { shape: [batch, 4], dtype: f32 } }\ngraph: { a: { block_id: layer/relu, in: x } }\n"
    (tmp_path / "alone.sml").write_text(alone + "outputs: { y: a }\n", encoding="utf-8")
    done = scellis("train", "alone.sml", "--device", "oracle")
    assert done.code == 1
    assert "a pipeline to train with: data, optimizer, loss, epochs, batch_size, determinism_tier" in done.err
    assert runs(scellis) == []


def test_sample(scellis: Call, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("the cat sat on the mat. " * 12, encoding="utf-8")
    (tmp_path / "text.sml").write_text(TEXT, encoding="utf-8")
    assert scellis("train", "text.sml", "--device", "oracle").code == 0
    args = ("sample", "--prompt", "the ", "--device", "oracle", "--length", "6")
    greedy = scellis(*args, "--temperature", "0")
    assert greedy.code == 0
    assert greedy.out.startswith("the ")
    assert greedy.out.endswith("\n")
    assert scellis(*args, "--temperature", "0", "--seed", "9").out == greedy.out
    assert scellis(*args, "--top-k", "1").out == greedy.out
    assert scellis("sample", "--prompt", "the ", "--device", "oracle", "--length", "0").out == "the \n"
    done = scellis("sample", "--prompt", "", "--device", "oracle")
    assert done.code == 1
    assert "error: --prompt: expected at least one token, got an empty text\n" in done.err
    assert scellis("sample", "--prompt", "a", "--top-k", "0").code == 2


def test_web(scellis: Call) -> None:
    done = scellis("web", "run.sml", "-o", "my site")
    assert done.code == 0
    assert done.out.splitlines() == [
        "my site/index.html",
        "serve it with: python3 -m http.server --directory 'my site'",
    ]
    assert {"index.html", "program.json", "run.json"} <= {p.name for p in Path("my site").iterdir()}


def test_doctor_with_an_adapter(scellis: Call, device_name: str) -> None:
    done = scellis("doctor")
    assert done.code == 0
    first = done.out.splitlines()[0]
    assert first.startswith(device_name)
    assert first.endswith("<- --device auto takes this")
    assert done.out.count("--device auto takes this") == 1
    assert "  f16 in kernels: " in done.out
    assert "neither bf16 nor f64" in done.out
    rows = json.loads(scellis("doctor", "--json").out)
    assert rows[0]["adapter"] == device_name
    assert list(rows[0]) == ["adapter", "backend", "type", "driver", "features", "limits"]
    done = scellis("train", "run.sml", "--device", "no such adapter")
    assert done.code == 1
    assert done.err.startswith("error: --device: expected part of an adapter's name")
    assert runs(scellis) == []
