"""A package from outside the tree: listed, trained on the device, broken parts reported. Run by ``tox -e wheel``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("scellis_toy", reason="needs the toy package installed beside the built wheel")

RECORD = """
sml: 1
inputs: {{ x: {{ shape: [batch, 6], dtype: f32 }} }}
graph:
  a: {{ block_id: layer/linear, in: x, features: 8 }}
  s: {{ block_id: layer/toy_scale, in: a }}
  b: {{ block_id: layer/linear, in: s, features: 2 }}
outputs: {{ y: b }}
data: {{ block_id: data/arrays, path: data.npz }}
{extra}
optimizer: {{ block_id: training/optimizer/toy_lion, lr: 0.003 }}
scheduler: {{ block_id: training/scheduler/toy_sqrt }}
loss: {{ block_id: training/loss/toy_quartic }}
epochs: 8
batch_size: 16
determinism_tier: prod
seed: 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((80, 6)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=np.tanh(x[:, :2]))
    return tmp_path


def scellis(*args: str) -> str:
    done = subprocess.run([sys.executable, "-m", "scellis_core", *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_package_comes_from_wheels() -> None:
    import scellis_core

    assert "site-packages" in str(scellis_core.__file__)


def test_it_is_listed() -> None:
    lines = {line.split("\t")[0]: line for line in scellis("catalog").splitlines()}
    assert lines["training/optimizer/toy_lion@1"].endswith("Lion (toy)\tscellis-toy 0.1\tok")
    assert "broken" in lines["layer/toy_broken@1"]
    assert "this plugin is broken on purpose" in lines["layer/toy_broken@1"]
    assert sum("broken" in line for line in lines.values()) == 1


@pytest.mark.parametrize(
    "extra",
    [
        "",
        "augment: [{ block_id: augment/toy_noise, width: 0.05 }]",
        'peft: [{ block_id: training/peft/toy_lora, targets: "a" }]',
    ],
)
def test_it_trains_on_the_device_as_on_the_oracle(folder: Path, extra: str) -> None:
    import scellis

    (folder / "run.sml").write_text(RECORD.format(extra=extra), encoding="utf-8")
    losses = {}
    for device in ("auto", "oracle"):
        events = []
        result = scellis.train(folder / "run.sml", store=folder / device, device=device, on_event=events.append)
        losses[device] = [e.loss for e in events if type(e).__name__ == "StepDone"]
        assert result.state == "finished"
        assert "val_toy_worst" in result.metrics
    assert losses["auto"] == pytest.approx(losses["oracle"], rel=1e-3)
    assert losses["auto"][-1] < losses["auto"][0]


def test_the_adapter_trains_its_own_weights_alone(folder: Path) -> None:
    import scellis

    text = RECORD.format(extra='peft: [{ block_id: training/peft/toy_lora, targets: "a", rank: 3 }]')
    (folder / "run.sml").write_text(text, encoding="utf-8")
    plan = scellis.plan(folder / "run.sml")
    assert plan.trainable == 3 * 6 + 3 * 8
    assert "a.lora" in scellis_inspect(folder / "run.sml")


def scellis_inspect(path: Path) -> str:
    return scellis("inspect", str(path), "--level", "L3")


def test_hooks_hear_the_run(folder: Path) -> None:
    (folder / "run.sml").write_text(RECORD.format(extra=""), encoding="utf-8")
    script = (
        "import sys, scellis_toy; from scellis_core.cli import main\n"
        f"sys.argv = ['scellis', 'train', {str(folder / 'run.sml')!r}, '--store', {str(folder / 's')!r}]\n"
        "try: main()\n"
        "finally: print(sorted(set(scellis_toy.seen)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "['Checkpointed', 'RunEnded', 'RunStarted', 'StepDone', 'Validated']" in done.stderr


def test_two_packages_that_claim_one_id(folder: Path) -> None:
    rival = folder / "site" / "rival-2.0.dist-info"
    rival.mkdir(parents=True)
    (rival / "METADATA").write_text("Metadata-Version: 2.1\nName: rival\nVersion: 2.0\n", encoding="utf-8")
    (rival / "entry_points.txt").write_text(
        "[scellis.blocks]\ntraining/optimizer/toy_lion@1 = rival:LION\n", encoding="utf-8"
    )
    (folder / "run.sml").write_text(RECORD.format(extra=""), encoding="utf-8")
    command = ["scellis", "plan", str(folder / "run.sml")]
    script = f"import sys; sys.path.insert(0, {str(rival.parent)!r}); sys.argv = {command!r}\n"
    script += "from scellis_core.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "scellis-toy 0.1" in done.stderr
    assert "rival 2.0" in done.stderr


def test_catalog_json_has_a_fixed_shape() -> None:
    rows = json.loads(scellis("catalog", "--json"))
    assert set(rows[0]) == {"id", "title", "distribution", "version", "module", "state"}
