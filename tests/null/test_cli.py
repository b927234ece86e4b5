"""The command line where neither NumPy nor a GPU is needed: help, catalog, levels, plan, errors and exit codes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from scellis_core import __version__, errors
from scellis_core.cli import app, text
from scellis_core.cli.explaining import MEANINGS
from scellis_core.cli.progress import Reporter
from scellis_core.errors import ScellisError
from scellis_core.train.events import Checkpointed, RunEnded, RunStarted, StepDone, Validated

RECORD = """\
sml: 1
model: user/ada/tiny
architecture: { block_id: model/mlp, hidden: [8], outputs: 10 }
data: { block_id: data/digits, split: { val: 0.2 } }
optimizer: { block_id: training/optimizer/adamw, lr: 1.0e-2 }
loss: { block_id: training/loss/cross_entropy }
epochs: 2
batch_size: 128
determinism_tier: prod
seed: 1
"""


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
    (tmp_path / "run.sml").write_text(RECORD, encoding="utf-8")

    def call(*args: str) -> Done:
        with pytest.raises(SystemExit) as left:
            app.main(args)
        out, err = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return Done(left.value.code, out, err)

    return call


# -- the group ------------------------------------------------------------------------------------------------
def test_help_lists_every_command(scellis: Call) -> None:
    for option in ("--help", "-h"):
        done = scellis(option)
        assert done.code == 0
        listed = done.out.partition("Commands:\n")[2]
        assert [line.split()[0] for line in listed.splitlines()] == list(app.COMMANDS)
    assert scellis("--version") == Done(0, f"scellis, version {__version__}\n", "")


@pytest.mark.parametrize("name", list(app.COMMANDS))
def test_help_of_a_command(scellis: Call, name: str) -> None:
    done = scellis(name, "--help")
    assert done.code == 0
    assert done.out.startswith(f"Usage: scellis {name} ")


def test_misspelt_command(scellis: Call) -> None:
    assert scellis("trian") == Done(
        2,
        "",
        "Usage: scellis [OPTIONS] COMMAND [ARGS]...\nTry 'scellis --help' for help.\n\n"
        "Error: expected a command, got 'trian'; try one of: train\n",
    )


def test_misspelt_option(scellis: Call) -> None:
    done = scellis("train", "run.sml", "--devise", "oracle")
    assert (done.code, done.out) == (2, "")
    assert "No such option" in done.err
    assert "--device" in done.err.rpartition("Error:")[2]


def test_errors_are_printed_once_without_traceback(scellis: Call) -> None:
    assert scellis("plan", "rum.sml") == Done(
        1, "", "error: rum.sml: expected a file, got nothing there; try one of: run.sml\n  scellis explain record\n"
    )


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCELLIS_DEBUG", "1")
    with pytest.raises(ScellisError):
        app.main(["plan", "absent.sml"])


def test_as_a_process(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scellis_core", "explain", "recrod"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if k != "SCELLIS_DEBUG"},
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: explain: expected the code of an error, got 'recrod'; "
        "try one of: record, error\n  scellis explain error\n"
    )


def test_every_code_is_explained(scellis: Call) -> None:
    codes = {e.code for e in vars(errors).values() if isinstance(e, type) and issubclass(e, ScellisError)}
    assert codes == set(MEANINGS)
    for code, (meaning, example, cure) in MEANINGS.items():
        done = scellis("explain", code)
        assert done.code == 0
        assert meaning in done.out
        assert example in done.out
        assert cure in done.out
        assert not example or ": expected " in example


# -- catalog --------------------------------------------------------------------------------------------------
def test_catalog_is_one_line_a_block(scellis: Call) -> None:
    rows = [line.split("\t") for line in scellis("catalog").out.splitlines()]
    assert {len(row) for row in rows} == {4}
    by_id = {row[0]: row[1:] for row in rows}
    assert by_id["training/optimizer/adamw@1"] == ["AdamW", f"scellis {__version__}", "ok"]
    assert len(by_id) == len(rows) > 40


def test_catalog_of_a_family(scellis: Call) -> None:
    lines = scellis("catalog", "training/optimizer").out.splitlines()
    found = [line.split("\t")[0] for line in lines]
    assert found == sorted(found)
    assert {"training/optimizer/adamw@1", "training/optimizer/sgd@1"} < set(found)
    assert {name.rpartition("/")[0] for name in found} == {"training/optimizer"}
    rows = json.loads(scellis("catalog", "--json", "training/optimizer").out)
    assert [list(row) for row in rows] == [["id", "title", "distribution", "version", "module", "state"]] * len(found)
    assert scellis("catalog", "optimiser") == Done(
        1,
        "",
        "error: catalog: expected a family of blocks, got 'optimiser'; try one of: training/optimizer\n"
        "  scellis explain catalog\n",
    )
    assert scellis("catalog", "layer", "model").code == 2


def test_catalog_show(scellis: Call) -> None:
    done = scellis("catalog", "show", "training/optimizer/adamw")
    lines = done.out.splitlines()
    assert lines[0] == "training/optimizer/adamw@1  AdamW"
    assert "beta1\tnumber\t0.9\t>= 0.0 and < 1.0\t1\tdecay of the mean of gradients" in lines
    assert any(line.startswith("source: Loshchilov and Hutter") for line in lines)
    shown = json.loads(scellis("catalog", "show", "training/optimizer/adamw", "--json").out)
    assert shown["id"] == "training/optimizer/adamw@1"
    assert [p["name"] for p in shown["parameters"]] == ["lr", "beta1", "beta2", "eps", "amsgrad", "weight_decay"]
    assert "input: x (variadic)" in scellis("catalog", "show", "layer/add").out


def test_catalog_show_refuses(scellis: Call) -> None:
    assert scellis("catalog", "show", "codec/safetensor") == Done(
        1,
        "",
        "error: block codec/safetensor: expected the id of an installed block, got 'codec/safetensor'; "
        "try one of: codec/safetensors\n  scellis explain catalog\n",
    )
    done = scellis("catalog", "show")
    assert done.code == 2
    assert "catalog show takes one block id: scellis catalog show training/optimizer/adamw" in done.err


def test_tables_on_a_terminal_keep_brackets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(text, "interactive", lambda: True)
    text.table(("name", "value"), [("hidden", "[bold]")], title="parameters")
    out = capsys.readouterr().out
    assert "[bold]" in out
    assert "parameters" in out
    assert "name" in out


# -- records --------------------------------------------------------------------------------------------------
def test_set_and_unset(scellis: Call) -> None:
    done = scellis("inspect", "run.sml", "--unset", "epochs", "--set", "steps=7", "--set", "optimizer.lr=3e-4")
    assert "steps: 7\n" in done.out
    assert "lr: 0.0003" in done.out
    assert "epochs" not in done.out
    assert scellis("plan", "run.sml", "--set", "optimizer.learning_rate=1") == Done(
        1,
        "",
        "error: override optimizer.learning_rate: expected a parameter of training/optimizer/adamw@1, "
        "got 'learning_rate'; try lr\n  scellis explain record\n",
    )
    assert scellis("plan", "run.sml", "--set", "steps") == Done(
        1, "", "error: override: expected key=value, got 'steps'; try optimizer.lr=3e-4\n  scellis explain record\n"
    )
    for wrong in ("optimizer..lr=3", ".lr=3", "optimizer.=3", "a\nb=3", "lr= "):
        assert scellis("plan", "run.sml", "--set", wrong).err == (
            f"error: override: expected key=value, got {wrong!r}; try optimizer.lr=3e-4\n  scellis explain record\n"
        )
    assert scellis("plan", "run.sml", "--unset", "stepps").code == 1


def test_plan(scellis: Call) -> None:
    data = json.loads(scellis("plan", "run.sml", "--json").out)
    assert sum(data["classes"].values()) == data["total"]
    assert data["parameters"] == data["trainable"] == 64 * 8 + 8 + 8 * 10 + 10
    lines = scellis("plan", "run.sml").out.splitlines()
    assert lines[0] == "610 parameters, 610 trainable"
    assert lines[1].split("\t")[:2] == ["parameters", f"{data['classes']['parameters']:,}"]
    assert f"in all\t{data['total']:,}\t{text.human_bytes(data['total'])}" in lines
    assert {line.split("\t")[0] for line in lines} > {"micro@128", "micro@30", "eval@128", "eval@103", "apply"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "--limits cap.json: expected a JSON object, got list"),
        (
            '{"max_buffer_sise": 1}',
            "--limits cap.json: expected a limit, got 'max_buffer_sise'; try one of: max_buffer_size",
        ),
        ('{"max_buffer_size": 0}', "--limits cap.json: max_buffer_size: expected a whole number above 0, got 0"),
        ('{"features": "shader-f16"}', "--limits cap.json: features: expected a list of names, got 'shader-f16'"),
        ("{", "--limits cap.json: expected a JSON file of limits, got "),
    ],
)
def test_wrong_limits(scellis: Call, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "cap.json").write_text(content, encoding="utf-8")
    done = scellis("plan", "run.sml", "--limits", "cap.json")
    assert done.code == 1
    assert done.err.startswith(f"error: {message}")


def test_small_limits_change_the_plan(scellis: Call, tmp_path: Path) -> None:
    (tmp_path / "cap.json").write_text('{"max_storage_buffer_binding_size": 16384}', encoding="utf-8")
    args = ("plan", "run.sml", "--json", "--set", "architecture.hidden=[32]")
    free, capped = (json.loads(scellis(*args, *more).out) for more in ((), ("--limits", "cap.json")))
    assert free["largest_binding"] > 16384 >= capped["largest_binding"]


def test_levels(scellis: Call) -> None:
    first = scellis("inspect", "run.sml").out
    assert first.startswith(RECORD)
    assert "# digest " in first
    assert "# grad_accumulation: 1\n" in scellis("inspect", "run.sml", "--level", "L4", "--defaults").out
    assert "trainable 610, frozen 0" in scellis("inspect", "run.sml", "--level", "L3").out
    ops = scellis("inspect", "run.sml", "--level", "l2", "--mode", "eval", "--batch", "5").out
    assert ops.startswith('graph "eval@5" {')
    step = scellis("inspect", "run.sml", "--level", "L1", "--batch", "5").out
    assert [line for line in step.splitlines() if line.startswith("; sequence")] == [
        "; sequence micro@5",
        "; sequence eval@5",
        "; sequence apply",
    ]
    assert "; group 0 " in step
    apply = scellis("inspect", "run.sml", "--level", "L1", "--sequence", "apply").out
    assert apply.startswith("; sequence apply\ngraph ")
    assert "sequence micro" not in apply


def test_the_step_program(scellis: Call) -> None:
    shown = scellis("inspect", "run.sml", "--level", "L0", "--sequence", "micro").out.splitlines()
    kernels = [line.split()[1] for line in shown if line.startswith("kernel ")]
    used = {line.split()[1] for line in shown if line.startswith("  dispatch ")}
    assert used <= set(kernels)
    assert [line for line in shown if line.startswith("sequence ")] == ["sequence micro@128"]
    assert "  input x input:x@micro@128" in shown
    assert any(line.startswith("buffer param.0 ") for line in shown)
    assert any(line.startswith("scalar lr f32 ") for line in shown)
    one = scellis("inspect", "run.sml", "--level", "L0", "--kernel", kernels[0]).out
    assert one.startswith(f"// {kernels[0]}\n")
    assert "@compute" in one
    name = kernels[0].partition("#")[0]
    several = scellis("inspect", "run.sml", "--level", "L0", "--kernel", name).out
    found = [line[3:] for line in several.splitlines() if line.startswith(f"// {name}#")]
    assert found
    assert {key.partition("#")[0] for key in found} == {name}


def test_unknown_kernel_names_the_nearest(scellis: Call) -> None:
    shown = scellis("inspect", "run.sml", "--level", "L0").out.splitlines()
    name = next(line.split()[1] for line in shown if line.startswith("kernel ")).partition("#")[0]
    wrong = name[:-1] + "x"
    done = scellis("inspect", "run.sml", "--level", "L0", "--kernel", wrong)
    assert done.code == 1
    assert done.err.startswith(f"error: --kernel: expected a kernel of this program, got '{wrong}'; try one of: ")
    assert name in done.err
    done = scellis("inspect", "run.sml", "--level", "L1", "--sequence", "aply")
    assert done.err == (
        "error: --sequence: expected a sequence of this program, got 'aply'; "
        "try one of: apply, eval\n  scellis explain ir\n"
    )


def test_options_of_another_level_are_refused(scellis: Call) -> None:
    for option, level in (("--kernel", "L1"), ("--sequence", "L2"), ("--mode", "L3"), ("--batch", "L4")):
        value = {"--mode": "eval", "--batch": "3"}.get(option, "x")
        done = scellis("inspect", "run.sml", "--level", level, option, value)
        assert done.code == 2
        assert f"{option} belongs to --level " in done.err
        assert f"got --level {level}" in done.err


def test_an_architecture_alone(scellis: Call, tmp_path: Path) -> None:
    lines = RECORD.splitlines()
    record = "\n".join([lines[0], "inputs: { x: { shape: [batch, 4], dtype: f32 } }", "graph:"])
    record += "\n  a: { block_id: layer/linear, in: x, features: 3 }\noutputs: { y: a }\n"
    (tmp_path / "alone.sml").write_text(record, encoding="utf-8")
    assert scellis("inspect", "alone.sml", "--level", "L2").out.startswith('graph "predict@1" {')
    assert "predict@1\t" in scellis("plan", "alone.sml").out
    done = scellis("inspect", "alone.sml", "--level", "L1", "--mode", "train")
    assert done.code == 1
    assert "a pipeline to train with: data, optimizer, loss, epochs, batch_size, determinism_tier" in done.err
    assert "; try --mode predict\n" in done.err


# -- the store ------------------------------------------------------------------------------------------------
def test_no_runs(scellis: Call, tmp_path: Path) -> None:
    assert scellis("runs") == Done(
        0, "", "no runs in .scellis (a run's store is .scellis beside its record; --store DIR names another)\n"
    )
    assert scellis("runs", "--json") == Done(0, "[]\n", "")
    assert not (tmp_path / ".scellis").exists()
    assert scellis("resume", "--store", "elsewhere") == Done(
        1,
        "",
        "error: store elsewhere: expected an interrupted run, got none; try scellis runs --store elsewhere\n"
        "  scellis explain store\n",
    )


def test_save_and_use(scellis: Call, tmp_path: Path) -> None:
    assert scellis("save", "run.sml").out == "user/ada/tiny@1\n"
    assert scellis("save", "run.sml").out == "user/ada/tiny@1\n"
    (tmp_path / "run.sml").write_text(RECORD.replace("seed: 1", "seed: 2"), encoding="utf-8")
    assert scellis("save", "run.sml").out == "user/ada/tiny@2\n"
    (tmp_path / "use.sml").write_text("sml: 1\nmodel: user/ada/tiny@1\ndeterminism_tier: prod\n", encoding="utf-8")
    assert "seed: 1\n" in scellis("inspect", "use.sml").out
    (tmp_path / "use.sml").write_text("sml: 1\nmodel: user/ada/tiny@7\ndeterminism_tier: prod\n", encoding="utf-8")
    done = scellis("plan", "use.sml")
    assert done.code == 1
    assert "user/ada/tiny@7" in done.err
    (tmp_path / "wrong.sml").write_text(RECORD.replace("hidden: [8]", "hiden: [8]"), encoding="utf-8")
    assert scellis("save", "wrong.sml").code == 1


# -- plugins --------------------------------------------------------------------------------------------------
@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Lays out an installed distribution with one module, named by an entry point of the hooks."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(app, "_PLUGINS", None)
    before = set(sys.modules)

    def add(name: str, code: str) -> None:
        info = site / f"{name}-0.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n", encoding="utf-8")
        (info / "entry_points.txt").write_text(f"[scellis.hooks]\n{name} = {name}\n", encoding="utf-8")
        (site / f"{name}.py").write_text(code, encoding="utf-8")

    yield add
    for module in set(sys.modules) - before:
        if module.startswith("plug_"):
            del sys.modules[module]


COMMAND = """
import click
from scellis_core.plugin import hookimpl

@click.command(name="{name}")
def bell():
    "Ring."
    click.echo("ding")

@hookimpl
def scellis_commands(add):
    add(bell)
"""


def test_a_plugin_adds_a_command(scellis: Call, plugin: Callable[[str, str], None]) -> None:
    plugin("plug_bell", COMMAND.format(name="bell"))
    assert scellis("bell") == Done(0, "ding\n", "")
    assert scellis("--help").out.splitlines()[-1].split() == ["bell", "Ring."]
    assert "try one of: bell" in scellis("bel").err


def test_a_command_whose_name_is_taken(scellis: Call, plugin: Callable[[str, str], None]) -> None:
    plugin("plug_train", COMMAND.format(name="train"))
    plugin("plug_broken", "raise RuntimeError('out of order')\n")
    done = scellis("--help")
    assert done.code == 0
    assert "plugin plug_broken 0.1: broken: " in done.err
    assert "out of order" in done.err
    assert "plugin plug_train 0.1 scellis_commands: " in done.err
    assert "expected a name that is free, got one that is taken" in done.err
    assert scellis("train", "--help").out.startswith("Usage: scellis train [OPTIONS] RECORD")


def test_blocks_of_a_folder(scellis: Call, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "double.py").write_text(
        "from scellis_core.plugin import BlockParams, Layer\n"
        "class Nothing(BlockParams):\n    pass\n"
        "DOUBLE = Layer(id='layer/double@1', title='Twice', summary='Twice.', params=Nothing, source='none',\n"
        "               lower=lambda ctx, params, x: x + x)\n",
        encoding="utf-8",
    )
    lines = scellis("catalog", "layer", "--plugins-dir", str(folder)).out.splitlines()
    assert [line.split("\t")[1] for line in lines if line.startswith("layer/double@1\t")] == ["Twice"]


# -- progress -------------------------------------------------------------------------------------------------
def step(number: int, *, loss: float = 1.0, applied: bool = True, epoch: int = 0) -> StepDone:
    return StepDone(number, 5, epoch, loss, 0.5, 1e-3, applied, 2000.4, "" if applied else "gradients are not finite")


def test_plain_lines() -> None:
    out, now = io.StringIO(), [100.0]
    report = Reporter(Console(file=out, width=40), clock=lambda: now[0])
    report(RunStarted("r1", 0, 5, "[GPU]", 3 * 1024 * 1024, False))
    for number in range(1, 5):
        now[0] += 0.9
        report(step(number, applied=number != 3, loss=2.0 / number))
    report(Validated(4, 0, {"val_loss": 0.25, "val_accuracy": 0.9731}))
    report(Checkpointed(4, 0, "sha256:a", "sha256:b", True))
    now[0] += 0.1
    report(step(5, epoch=1))
    report(RunEnded("r1", "finished", 5, 4, 1, {}))
    assert out.getvalue().splitlines() == [
        "run r1 starts on [GPU]: 5 steps, peak memory 3.00 MiB",
        "step 1/5 epoch 1 loss 2.0000 lr 1.00e-03 2000 examples/s ETA 0:04",
        "step 3: gradients are not finite, the update is skipped",
        "step 4/5 epoch 1 loss 0.5000 lr 1.00e-03 2000 examples/s skipped 1 ETA 0:01",
        "epoch 1 step 4: val_accuracy 0.9731 val_loss 0.25",
        "step 4: best so far, kept",
        "step 5/5 epoch 2 loss 1.0000 lr 1.00e-03 2000 examples/s skipped 1 ETA 0:00",
    ]


def test_the_bar_on_a_terminal() -> None:
    out = io.StringIO()
    report = Reporter(Console(file=out, width=150, force_terminal=True))
    report(RunStarted("r1", 2, 5, "GPU", 1024, True))
    report(step(3, loss=0.5))
    report(Validated(3, 0, {"val_loss": 0.25}))
    report(step(5, loss=0.25))
    report(RunEnded("r1", "finished", 5, 5, 0, {}))
    shown = out.getvalue()
    assert "run r1 goes on from step 2 on GPU" in shown
    assert "5/5" in shown
    assert "loss 0.2500 lr 1.00e-03 2000 examples/s" in shown
    assert "epoch 1 step 3: val_loss 0.25" in shown
    assert "1.00 KiB" in shown


def test_words() -> None:
    assert [text.human_bytes(n) for n in (0, 1023, 1024, 5 << 20, 3 << 40)] == [
        "0 B", "1023 B", "1.00 KiB", "5.00 MiB", "3072.00 GiB",
    ]  # fmt: skip
    assert [text.human_time(s) for s in (-1, 0.4, 59.6, 3723)] == ["0:00", "0:00", "1:00", "1:02:03"]
    line = text.metric_line({"loss": 0.1, "val_loss": 0.0912345678, "val_accuracy": 0.9731, "accuracy": 1})
    assert line == "val_accuracy 0.9731 val_loss 0.0912346 accuracy 1 loss 0.1"
    assert text.resume_command("r1", Path("my runs")) == "scellis resume r1 --store 'my runs'"


def test_json_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    text.as_json({"a": [float("nan"), float("inf"), 1.5], "b": ("x", None)})
    assert json.loads(capsys.readouterr().out) == {"a": [None, None, 1.5], "b": ["x", None]}
