"""The record: schema, error texts, places, canonical bytes, graph, defaults, merging."""

# ruff: noqa: E501

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from scellis_core.errors import RecordError, nearest
from scellis_core.record import ModelName, Record, dumps, reference_table, schema_keys

DOCS = Path(__file__).parents[2] / "docs" / "sml.md"

BASE = """\
sml: 1
architecture: { block_id: model/mlp, hidden: [32] }
data: { block_id: data/digits }
optimizer: { block_id: training/optimizer/adamw, lr: 3e-4 }
loss: { block_id: training/loss/cross_entropy }
epochs: 2
batch_size: 32
determinism_tier: prod
"""
GRAPH = """\
sml: 1
inputs: { x: { shape: [batch, 64] } }
graph:
  h: { block_id: layer/linear, in: x, features: 128 }
  a: { block_id: layer/gelu, in: h }
  y: { block_id: layer/linear, in: a, features: 10 }
outputs: { logits: y }
"""
FULL = f"""\
# every key
sml: 1
model: user/ada/tiny_transformer@3
architecture:                       # one model block
  {{ block_id: model/decoder_transformer, vocab_size: 256, context: 64, width: 128, layers: 4, heads: 4 }}
data:       {{ block_id: data/text, path: corpus.txt, context: 64, split: {{ val: 0.1 }} }}
init:       {{ from: "object:sha256:{"0a" * 32}" }}
freeze:     ["embed.*", "blocks.0.*"]
peft:       [{{ block_id: training/peft/lora, targets: "blocks.*.attn.{{q,v}}", rank: 8, alpha: 16 }}]
optimizer:
  block_id: training/optimizer/adamw
  lr: 3.0e-4                        # peak
  groups: [{{ match: "*.bias|*norm*", weight_decay: 0.0 }}, {{ match: "head.*", lr_scale: 10 }}]
wrappers:   [{{ block_id: training/wrapper/lookahead, k: 5 }}]
averaging:  {{ block_id: training/average/ema, decay: 0.999 }}
scheduler:  {{ block_id: training/scheduler/warmup_cosine, warmup_steps: 500 }}
loss:       [{{ block_id: training/loss/cross_entropy, output: logits, target: y, weight: 1 }}]
metrics:    [{{ block_id: metric/accuracy }}]
augment:    [{{ block_id: augment/random_crop, padding: 4 }}]
steps: 1000
batch_size: 32
grad_accumulation: 2
grad_clip:  {{ max_norm: 1.0 }}
precision:
  {{ policy: mixed_f16, master_weights: f32, loss_scaling: {{ init: 65536, growth: 2, backoff: 0.5, interval: 2000 }}, keep_f32: ["*norm*"] }}
remat:      {{ blocks: ["blocks.*"] }}
validate:   {{ every: epoch, on: val }}
checkpoint: {{ every: 500, unit: step, keep: 3, best: {{ metric: val_loss, mode: min }} }}
stop:       {{ metric: val_loss, patience: 10, min_delta: 0.0 }}
unfreeze:   [{{ match: "blocks.11.*", at: {{ step: 1000 }} }}]
determinism_tier: prod
seed: 42
"""


def swap(old: str, new: str, text: str = BASE) -> str:
    assert old in text
    return text.replace(old, new, 1)


def extra(line: str) -> str:
    return BASE + line + "\n"


ID = "optimizer.block_id: expected a block id that starts with training/optimizer/"
ONE_OF = "one model block (or inputs, graph and outputs, or model: with the @version of a stored one)"
WRONG = [
    (
        swap("batch_size", "batchsize"),
        "7:1 batchsize: expected a key of the record, got 'batchsize'; try one of: batch_size",
    ),
    (
        swap("optimizer:", "optimiser:"),
        "4:1 optimiser: expected a key of the record, got 'optimiser'; try one of: optimizer",
    ),
    (swap("prod", "prodd"), "8:19 determinism_tier: expected one of: debug, prod, fast, got 'prodd'; try one of: prod"),
    (
        swap("determinism_tier: prod\n", ""),
        "1:1 determinism_tier: expected one of: debug, prod, fast, got nothing; try determinism_tier: prod",
    ),
    (swap("epochs: 2", "epochs: 0"), "6:9 epochs: expected integer >= 1 (epochs), got 0; try 10"),
    (swap("epochs: 2", "epochs: 2.0"), "6:9 epochs: expected integer >= 1 (epochs), got 2.0; try 2"),
    (swap("epochs: 2", "epochs: 1_000"), "6:9 epochs: expected integer >= 1 (epochs), got '1_000'; try 1000"),
    (swap("epochs: 2", "epochs: true"), "6:9 epochs: expected integer >= 1 (epochs), got true; try 10"),
    (extra("steps: 3"), "9:1 steps: expected either epochs or steps, got both; try removing one of them"),
    (swap("epochs: 2\n", ""), "1:1 epochs: expected epochs or steps, got nothing; try epochs: 10"),
    (swap("batch_size: 32\n", ""), "1:1 batch_size: expected integer >= 1 (examples), got nothing; try batch_size: 32"),
    (
        swap("optimizer: { block_id: training/optimizer/adamw, lr: 3e-4 }\n", ""),
        "1:1 optimizer: expected mapping with block_id, got nothing; try optimizer: { block_id: training/optimizer/... }",
    ),
    (
        swap("loss/cross", "optimizer/cross"),
        "5:19 loss.block_id: expected a block id that starts with training/loss/, got 'training/optimizer/cross_entropy'; try training/loss/...",
    ),
    (swap("training/optimizer/adamw", "adamw"), f"4:24 {ID}, got 'adamw'; try training/optimizer/adamw"),
    (
        swap("adamw,", "AdamW,"),
        "4:24 optimizer.block_id: expected a block id such as training/optimizer/adamw or training/optimizer/adamw@1, got 'training/optimizer/AdamW'",
    ),
    (
        swap("{ block_id: data/digits }", "data/digits"),
        "3:7 data: expected mapping with block_id, got 'data/digits'; try { block_id: data/digits }",
    ),
    (
        swap("{ block_id: data/digits }", "{ id: data/digits }"),
        "3:7 data.block_id: expected a block id, got nothing; try block_id in place of id",
    ),
    (
        swap("block_id: data", "block_id:data"),
        "3:9 data.block_id:data/digits: expected the key block_id, got 'block_id:data/digits'; try a space after the colon: block_id: data/digits",
    ),
    (
        swap(" { block_id: data/digits }", ""),
        "3:1 data: expected mapping with block_id, got nothing; try a value, or removing the key",
    ),
    (swap("sml: 1\n", ""), "1:1 sml: expected 1, got nothing; try sml: 1"),
    (swap("sml: 1", "sml: 2"), "1:6 sml: expected 1, got 2; try 1"),
    (extra("seed: -1"), "9:7 seed: expected integer from 0 to 9007199254740991, got -1; try 0"),
    (
        extra("scheduler:"),
        "9:1 scheduler: expected mapping with block_id, got nothing; try a value, or removing the key",
    ),
    (
        extra("precision: { policy: bf16 }"),
        "9:22 precision.policy: expected one of: f32, mixed_f16, got 'bf16'; try one of: f32, mixed_f16",
    ),
    (
        extra("precision: { polcy: f32 }"),
        "9:14 precision.polcy: expected a key of the record, got 'polcy'; try one of: policy",
    ),
    (
        extra("precision: { loss_scaling: { growth: 1 } }"),
        "9:38 precision.loss_scaling.growth: expected number > 1, got 1; try 2.0",
    ),
    (
        extra("precision: { loss_scaling: dynamc }"),
        "9:28 precision.loss_scaling: expected dynamic, none or a mapping, got 'dynamc'; try one of: dynamic",
    ),
    (
        extra("remat: auto"),
        "9:8 remat: expected auto with its bytes, got 'auto'; try { blocks: auto, bytes: 4000000000 }",
    ),
    (extra("remat: nome"), "9:8 remat: expected a mapping or none, got 'nome'; try one of: none"),
    (
        extra("remat: { blocks: [a], bytes: 3 }"),
        "9:23 remat.bytes: expected bytes beside blocks: auto only, got 3; try blocks: auto",
    ),
    (extra("validate: { every: 0 }"), "9:20 validate.every: expected epoch or integer >= 1, got 0; try epoch"),
    (
        extra("validate: { every: epoch, unit: step }"),
        "9:33 validate.unit: expected epoch, as every counts epochs, got 'step'; try every: a number of steps",
    ),
    (
        extra("freeze: embed.*"),
        "9:9 freeze: expected list (each: a pattern of paths), got 'embed.*'; try [\"embed.*\"]",
    ),
    (
        extra("freeze: [a, 'b.{c']"),
        "9:13 freeze.1: expected a pattern of paths such as blocks.*.attn.{q,v} or *.bias|*norm*, got 'b.{c'",
    ),
    (
        extra("peft: { block_id: training/peft/lora }"),
        "9:7 peft: expected list (each: mapping with block_id), got a mapping of block_id; try a list: [{ ... }]",
    ),
    (extra("stop: { patience: 2, min_delta: -1 }"), "9:33 stop.min_delta: expected number >= 0, got -1; try 0.0"),
    (extra("unfreeze: [{ match: a }]"), "9:12 unfreeze.0.at: expected mapping, got nothing"),
    (
        extra("unfreeze: [{ match: a, at: { step: 1, epoch: 2 } }]"),
        "9:28 unfreeze.0.at: expected step or epoch, one of the two, got both; try { step: 1000 }",
    ),
    (
        extra("init: { from: 'object:sha256:abc' }"),
        "9:15 init.from: expected object:sha256: and 64 hexadecimal digits, got 'object:sha256:abc'",
    ),
    (
        extra("model: a b"),
        "9:8 model: expected a model name such as user/ada/tiny_transformer or user/ada/tiny_transformer@3, got 'a b'",
    ),
    (
        swap("lr: 3e-4", "groups: [{ match: a, lr_scale: .nan }]"),
        "4:81 optimizer.groups.0.lr_scale: expected finite number >= 0, got .nan; try 1.0",
    ),
    (
        swap("lr: 3e-4", "groups: [{ mach: a }]"),
        "4:59 optimizer.groups.0.match: expected a pattern of paths, got nothing; try match in place of mach",
    ),
    ("- 1", "1:1: expected a mapping of keys, got a list of 1 item; try starting with: sml: 1"),
    ("hello", "1:1: expected a mapping of keys, got 'hello'; try starting with: sml: 1"),
    ("# nothing\n", "1:1: expected a mapping of keys, got an empty file; try starting with: sml: 1"),
    ("---\n", "2:1: expected a mapping of keys, got an empty file; try starting with: sml: 1"),
    ("sml: 1", f"1:1 architecture: expected {ONE_OF}, got nothing; try architecture: {{ block_id: model/mlp }}"),
    ("sml: 1\nmodel: user/x", f"1:1 architecture: expected {ONE_OF}, got nothing; try model: user/x@1"),
    (
        "sml: 1\nmodel: user/x@1\nepochs: 2",
        "1:1 determinism_tier: expected one of: debug, prod, fast, got nothing; try determinism_tier: prod",
    ),
    (
        swap("in: x", "in: z", GRAPH),
        "4:36 graph.h.in: expected a node or input of the graph, got 'z'; try one of: a, h, x, y",
    ),
    (
        swap("in: h", "in: y", GRAPH),
        "5:34 graph.a.in: expected a graph without cycles, got the cycle a -> y -> a; try reading another node here",
    ),
    (
        swap("in: h", "in: a", GRAPH),
        "5:34 graph.a.in: expected a graph without cycles, got the cycle a -> a; try reading another node here",
    ),
    (swap("  a:", "  x:", GRAPH), "5:3 graph.x: expected a name that no input has, got 'x' again; try x_1"),
    (
        swap("  a:", "  h:", GRAPH),
        "5:3 graph.h: expected each key once, got it again (first at line 4); try removing one of the two",
    ),
    (
        swap("in: a,", "in: h,", GRAPH),
        "5:3 graph.a: expected a node that a node or output reads, got 'a', which nothing reads; try reading it in a node or output, or removing it",
    ),
    (
        swap("logits: y", "logits: yy", GRAPH),
        "7:20 outputs.logits: expected a node or input of the graph, got 'yy'; try one of: y",
    ),
    (
        swap("outputs: { logits: y }\n", "", GRAPH),
        "1:1 outputs: expected outputs beside inputs and graph, got nothing; try adding outputs:",
    ),
    (swap("in: x", "in: x.y", GRAPH), "4:36 graph.h.in: expected an input without a port, got 'x.y'; try x"),
    (
        swap("in: x", "in: a.b.c", GRAPH),
        "4:36 graph.h.in: expected the name of a node or input, or name.port, got 'a.b.c'",
    ),
    (
        swap("in: x", "in: [x, 3]", GRAPH),
        '4:40 graph.h.in.1: expected the name of a node or input, or name.port, got 3; try quotes: "3"',
    ),
    (
        swap("in: x", "in: { q: z }", GRAPH),
        "4:41 graph.h.in.q: expected a node or input of the graph, got 'z'; try one of: a, h, x, y",
    ),
    (
        swap("layer/gelu", "training/loss/mse", GRAPH),
        "5:18 graph.a.block_id: expected a block id that starts with layer/ or model/, got 'training/loss/mse'; try layer/...",
    ),
    (
        swap("64]", "64, batch]", GRAPH),
        "2:23 inputs.x.shape: expected batch as the first dimension only, got a list of 3 items; try [batch, 64]",
    ),
    (swap("64]", "0]", GRAPH), "2:31 inputs.x.shape.1: expected batch or integer >= 1, got 0; try batch"),
    (swap("  a:", "  a b:", GRAPH), "5:3 graph.a b: expected a name of letters, digits and _, got 'a b'; try a_b"),
    (
        GRAPH + "architecture: { block_id: model/mlp }\n",
        "8:1 architecture: expected either one model block or inputs, graph and outputs, got both; try removing one of them",
    ),
    (
        GRAPH + "metrics: [{ block_id: metric/mse, output: logit }]\n",
        "8:43 metrics.0.output: expected an output of the graph, got 'logit'; try one of: logits",
    ),
]


@pytest.mark.parametrize(("text", "want"), WRONG)
def test_error_text(text: str, want: str) -> None:
    with pytest.raises(RecordError) as caught:
        Record.parse(text)
    assert str(caught.value) == f"run.sml:{want}"


def test_first_fault_in_document_order() -> None:
    text = swap("epochs: 2", "epochs: 0", swap("batch_size: 32", "batch_size: x", swap("adamw,", "adamw, groups: 3,")))
    with pytest.raises(RecordError, match=r"^run.sml:4:58 optimizer.groups: "):
        Record.parse(text)
    with pytest.raises(RecordError, match=r"^run.sml:4:36 graph.h.in: expected a node"):
        Record.parse(swap("in: x", "in: q", GRAPH) + "seed: -1\n")


# block parameters ---------------------------------------------------------------------------------------------------


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    lr: float = Field(1e-3, gt=0, json_schema_extra={"unit": "1/step"})
    weight_decay: float = Field(0.01, ge=0)
    betas: tuple[float, float] = (0.9, 0.999)
    kernel: int | list[int] = 3
    amsgrad: bool = False
    name: str = "a"
    letter: str = Field("a", min_length=1, max_length=1)

    @field_validator("name")
    @classmethod
    def _check(cls, value: str) -> str:
        if value == "bad":
            raise ValueError("a good name")
        return value


PARAMS = [
    ("letter: ab", "4:58 optimizer.letter: expected text of 1 character, got 'ab'; try a"),
    ("lr: -0.1", "4:54 optimizer.lr: expected number > 0 (1/step), got -0.1; try 0.001"),
    ("lr: '3e-4'", "4:54 optimizer.lr: expected number > 0 (1/step), got '3e-4'; try 0.0003"),
    ("lr: .inf", "4:54 optimizer.lr: expected finite number > 0 (1/step), got .inf; try 0.001"),
    ("lr: true", "4:54 optimizer.lr: expected number > 0 (1/step), got true; try 0.001"),
    ("lr: [1]", "4:54 optimizer.lr: expected number > 0 (1/step), got a list of 1 item; try 0.001"),
    (
        "learning_rate: 1e-3",
        "4:50 optimizer.learning_rate: expected a parameter of training/optimizer/adamw, got 'learning_rate'; try one of: lr",
    ),
    (
        "wd: 1e-3",
        "4:50 optimizer.wd: expected a parameter of training/optimizer/adamw, got 'wd'; try one of: weight_decay",
    ),
    (
        "group: []",
        "4:50 optimizer.group: expected a parameter of training/optimizer/adamw, got 'group'; try one of: groups",
    ),
    ("betas: [0.9]", "4:57 optimizer.betas: expected list of 2 (each: number), got a list of 1 item; try [0.9, 0.999]"),
    ("betas: [0.9, x]", "4:63 optimizer.betas.1: expected number, got 'x'"),
    ("kernel: a", "4:58 optimizer.kernel: expected integer or list (each: integer), got 'a'; try 3"),
    ("kernel: [1, a]", "4:62 optimizer.kernel.1: expected integer, got 'a'"),
    ("amsgrad: yes", "4:59 optimizer.amsgrad: expected true or false, got 'yes'; try true"),
    ("name: 3", '4:56 optimizer.name: expected text, got 3; try quotes: "3"'),
    ("name: bad", "4:56 optimizer.name: expected a good name, got 'bad'; try a"),
    (
        "name: a, x: 1, lr: 0",
        "4:59 optimizer.x: expected a parameter of training/optimizer/adamw, got 'x'; try one of: amsgrad, betas, groups, kernel, letter, lr, name, weight_decay",
    ),
]


@pytest.mark.parametrize(("line", "want"), PARAMS)
def test_block_parameters(line: str, want: str) -> None:
    record = Record.parse(swap("lr: 3e-4", line))
    with pytest.raises(RecordError) as caught:
        record.params("optimizer", Params)
    assert str(caught.value).removesuffix("; try a") == f"run.sml:{want}".removesuffix("; try a")


def test_trap_20_unknown_key_and_plain_exponent() -> None:
    with pytest.raises(RecordError, match=r"learning_rate.*try one of: lr$"):
        Record.parse(swap("lr: 3e-4", "learning_rate: 1e-3")).params("optimizer", Params)
    params = Record.parse(BASE).params("optimizer", Params)
    assert isinstance(params.lr, float)
    assert params.lr == 0.0003


def test_group_parameters_over_the_optimizers() -> None:
    record = Record.parse(swap("lr: 3e-4", 'lr: 2, groups: [{ match: "*.bias", weight_decay: 0, lr_scale: 2 }]'))
    group = record.params("optimizer.groups.0", Params, base="optimizer")
    assert (group.lr, group.weight_decay) == (2.0, 0.0)
    record = Record.parse(swap("lr: 3e-4", "lr: 2, groups: [{ match: a, weight_decay: -1 }]"))
    with pytest.raises(RecordError) as caught:
        record.params("optimizer.groups.0", Params, base="optimizer")
    assert str(caught.value) == "run.sml:4:92 optimizer.groups.0.weight_decay: expected number >= 0, got -1; try 0.01"


def test_parameters_of_other_places() -> None:
    class Loss(BaseModel):
        label_smoothing: float = Field(0.0, ge=0, lt=1)

    record = Record.parse(swap("cross_entropy }", "cross_entropy, label_smoothing: 1, output: logits }"))
    for path in ("loss", "loss.0", ("loss", 0)):
        with pytest.raises(RecordError) as caught:
            record.params(path, Loss)
        assert str(caught.value) == "run.sml:5:65 loss.label_smoothing: expected number >= 0 and < 1, got 1; try 0.0"

    class Linear(BaseModel):
        features: int

    assert Record.parse(GRAPH).params("graph.h", Linear).features == 128
    with pytest.raises(RecordError, match=r"^run.sml:4:6 graph.h.features: expected integer, got nothing"):
        Record.parse(swap(", features: 128", "", GRAPH)).params("graph.h", Linear)
    with pytest.raises(RecordError, match=r"^run.sml:6:9 epochs: expected a block, got 2$"):
        Record.parse(BASE).params("epochs", Linear)


def test_pydantic_error_at_a_path() -> None:
    record = Record.parse(swap("lr: 3e-4", "lr: 0"))
    with pytest.raises(ValidationError) as caught:
        Params.model_validate({"lr": 0})
    error = record.fault("optimizer", caught.value, Params)
    assert str(error) == "run.sml:4:54 optimizer.lr: expected number > 0 (1/step), got 0; try 0.001"
    assert str(record.unknown("optimizer.block_id", ["training/optimizer/adam"], "a block")) == (
        "run.sml:4:24 optimizer.block_id: expected a block, got 'training/optimizer/adamw'; try one of: training/optimizer/adam"
    )


def test_nearest_knows_initials() -> None:
    assert nearest("learning_rate", ["lr", "weight_decay"]) == "one of: lr"
    assert nearest("wd", ["lr", "weight_decay"]) == "one of: weight_decay"


# content ------------------------------------------------------------------------------------------------------------


def test_every_key() -> None:
    record = Record.parse(FULL)
    spec = record.spec
    assert spec.optimizer is not None
    assert spec.optimizer.params == {"lr": 3e-4}
    assert [(g.match, g.lr_scale, g.params) for g in spec.optimizer.groups] == [
        ("*.bias|*norm*", 1.0, {"weight_decay": 0.0}),
        ("head.*", 10.0, {}),
    ]
    assert spec.loss[0].weight == 1.0
    assert spec.loss[0].target == "y"
    assert spec.grad_clip is not None
    assert (spec.grad_clip.block_id, spec.grad_clip.params) == ("training/clip/global_norm", {"max_norm": 1.0})
    assert spec.checkpoint.interval == (500, "step")
    assert spec.validation.interval == (1, "epoch")
    assert record.model == ModelName("user/ada", "tiny_transformer", 3)
    assert str(record.model) == "user/ada/tiny_transformer@3"
    assert record.stored is None
    assert record.pipeline_missing() == []
    assert record.get("peft.0.rank") == 8
    assert record.get("peft.1.rank", -1) == -1


def test_places() -> None:
    record = Record.parse(FULL, "a/run.sml")
    for path, want in {
        "optimizer.lr": "12:7 optimizer.lr",
        "peft.0.rank": "9:84 peft.0.rank",
        "freeze.1": "8:25 freeze.1",
        "optimizer": "11:3 optimizer",
        "optimizer.groups.1.lr_scale": "13:88 optimizer.groups.1.lr_scale",
        "optimizer.eps": "11:3 optimizer.eps",
        "data.split.val": "6:81 data.split.val",
        "": "2:1",
    }.items():
        assert record.where(path) == f"a/run.sml:{want}"
    assert record.where("optimizer.lr", key=True) == "a/run.sml:12:3 optimizer.lr"
    assert record.where(("peft", 0, "rank")) == record.where("peft.0.rank")


def test_imported_model_has_no_pipeline() -> None:
    record = Record.parse(GRAPH)
    assert record.pipeline_missing() == ["data", "optimizer", "loss", "epochs", "batch_size", "determinism_tier"]
    Record.parse(GRAPH + "batch_size: 4\ndeterminism_tier: debug\nprecision: { policy: mixed_f16 }\n")


def test_defaults() -> None:
    found = Record.parse(BASE).defaults()
    assert found["grad_accumulation"] == 1
    assert found["precision.policy"] == "f32"
    assert found["precision.loss_scaling"] == "none"
    assert found["checkpoint.keep"] == 3
    assert found["loss.0.weight"] == 1.0
    assert found["scheduler"] is None
    assert found["seed"] == 0
    assert "determinism_tier" not in found
    assert "epochs" not in found
    assert not {"seed", "checkpoint.keep"} & set(Record.parse(FULL).defaults())
    mixed = Record.parse(extra("precision: { policy: mixed_f16 }")).defaults()
    assert mixed["precision.loss_scaling.init"] == 65536.0


# canonical bytes ----------------------------------------------------------------------------------------------------


def same(one: str, two: str) -> bool:
    a, b = Record.parse(one), Record.parse(two)
    assert (a.digest == b.digest) == (a.canonical == b.canonical) == (a == b)
    return a == b


def test_canonical_equal() -> None:
    lines = BASE.splitlines()
    assert same(BASE, "\n".join([lines[0], *reversed(lines[1:])]) + "  # c")
    assert same(
        BASE, extra("grad_accumulation: 1\nseed: 0\nprecision: { policy: f32, loss_scaling: none }\nremat: none")
    )
    assert same(
        extra("precision: { policy: mixed_f16 }"), extra("precision: { loss_scaling: dynamic, policy: mixed_f16 }")
    )
    assert same(
        extra("precision: { policy: mixed_f16 }"),
        extra("precision: { policy: mixed_f16, loss_scaling: { init: 65536 } }"),
    )
    assert same(extra("stop: { min_delta: 1 }"), extra("stop: { min_delta: 1.0 }"))
    assert same(
        BASE,
        swap(
            "loss: { block_id: training/loss/cross_entropy }",
            "loss:\n  - block_id: training/loss/cross_entropy\n    weight: 1",
        ),
    )
    assert same(
        extra("grad_clip: { max_norm: 1.0 }"),
        extra("grad_clip: { max_norm: 1.0, block_id: training/clip/global_norm }"),
    )
    assert same(swap("3e-4", "3.0e-4"), swap("3e-4", "0.0003"))


@pytest.mark.parametrize(
    "values",
    [
        ["1", "1.0", "'1'", "true"],
        ["0.0", "-0.0", "0"],
        [".nan", ".inf", "-.inf", "'.nan'"],
        ["null", "'null'", "[]", "{}", "''"],
    ],
)
def test_canonical_types_stay_apart(values: list[str]) -> None:
    digests = [Record.parse(swap("lr: 3e-4", f"lr: {value}")).digest for value in values]
    assert len(set(digests)) == len(values)


def test_canonical_bytes_are_pinned() -> None:
    record = Record.parse("sml: 1\narchitecture: { block_id: model/mlp, p: 0.5, hidden: [32, -0.0], act: é }")
    assert record.canonical == (
        b"sml1\nm2:s12:architecturem4:s3:acts2:\xc3\xa9s8:block_ids9:model/mlps6:hiddenl2:i32;d\x80\0\0\0\0\0\0\0s1:pd?\xe0\0\0\0\0\0\0s3:smli1;"
    )
    assert Record.parse(FULL).digest == Record.parse(dumps(Record.parse(FULL))).digest


names = st.text("abcdefgh_", min_size=1, max_size=6)
free = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
blocks = st.dictionaries(names.map(lambda n: "p" + n), free, max_size=4)


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    data: dict[str, Any] = {
        "sml": 1,
        "architecture": {"block_id": "model/m", **draw(blocks)},
        "data": {"block_id": "data/d", **draw(blocks)},
        "optimizer": {"block_id": "training/optimizer/o", **draw(blocks)},
        "loss": {
            "block_id": "training/loss/l",
            "weight": draw(st.floats(allow_nan=False, allow_infinity=False) | st.integers(0, 9)),
        },
        draw(st.sampled_from(["epochs", "steps"])): draw(st.integers(1, 99)),
        "batch_size": draw(st.integers(1, 99)),
        "determinism_tier": draw(st.sampled_from(["debug", "prod", "fast"])),
    }
    optional: dict[str, st.SearchStrategy[Any]] = {
        "seed": st.integers(0, 2**53 - 1),
        "freeze": st.lists(names.map(lambda n: n + ".*"), max_size=3),
        "precision": st.fixed_dictionaries({"policy": st.sampled_from(["f32", "mixed_f16"])}),
        "peft": st.lists(blocks.map(lambda b: {"block_id": "training/peft/p@2", **b}), max_size=2),
        "remat": st.sampled_from(["none", {"blocks": ["a.*"]}, {"blocks": "auto", "bytes": 7}]),
        "model": st.sampled_from(["m", "user/a/m", "user/a/m@2"]),
    }
    for key in draw(st.sets(st.sampled_from(sorted(optional)))):
        data[key] = draw(optional[key])
    keys = draw(st.permutations(list(data)))
    return {key: data[key] for key in keys}


@given(records())
@settings(max_examples=100, deadline=None)
def test_round_trip(data: dict[str, Any]) -> None:
    record = Record.from_dict(data)
    for again in (Record.parse(record.text()), Record.parse(dumps(record)), Record.from_dict(record.to_dict())):
        assert again.canonical == record.canonical
    assert dumps(Record.parse(dumps(record))) == dumps(record)


def test_from_dict_refuses_what_is_no_plain_data() -> None:
    for value, want in {
        "set": (
            {1},
            "optimizer.lr: expected text, a number, true, false, a list or a mapping, got a set; try a plain value",
        ),
        "big": (
            2**53,
            "optimizer.lr: expected an integer within 2^53 - 1, got 9007199254740992; try text, if it is a name",
        ),
        "key": ({1: 2}, "optimizer.lr: expected keys that are text, got 1; try '1'"),
    }.values():
        with pytest.raises(RecordError) as caught:
            Record.from_dict({"sml": 1, "optimizer": {"lr": value}})
        assert str(caught.value) == want


# edits and merging --------------------------------------------------------------------------------------------------


def test_override_keeps_comments_and_names_itself() -> None:
    record = Record.parse(FULL)
    changed = record.with_override("optimizer.lr", 1e-3)
    assert changed.text() == FULL.replace("3.0e-4  ", "0.001  ")
    assert changed.params("optimizer", Params).lr == 1e-3
    assert record.params("optimizer", Params).lr == 3e-4
    with pytest.raises(RecordError) as caught:
        record.with_override("optimizer.lr", -0.1).params("optimizer", Params)
    assert str(caught.value) == "override optimizer.lr: expected number > 0 (1/step), got -0.1; try 0.001"
    with pytest.raises(RecordError, match=r"^override batchsize: expected a key of the record"):
        record.with_override("batchsize", 3)
    both = record.with_overrides({"epochs": 3, "precision.policy": "f32"}, without=["steps"])
    assert both.spec.epochs == 3
    assert "# every key" in both.text()
    assert record.without("peft").spec.peft == []
    assert Record.parse(BASE).with_override("validate.every", 10).spec.validation.interval == (10, "step")
    assert record.with_override("loss.0.weight", 2).spec.loss[0].weight == 2.0
    assert Record.parse(BASE).with_override("loss.0.weight", 2).spec.loss[0].weight == 2.0
    assert record.with_override("optimizer.lr", math.nan).get("optimizer.lr") != 0


def test_merged_with_stored() -> None:
    stored = Record.parse(swap("epochs", "seed: 7  # theirs\nepochs"), "user/ada/m@3")
    mine = "# mine\nsml: 1\nmodel: user/ada/m@3  # m\ndeterminism_tier: debug\nsteps: 3\noptimizer: { block_id: training/optimizer/sgd }\n"
    record = Record.parse(mine)
    assert record.stored == ModelName("user/ada", "m", 3)
    assert record.pipeline_missing() == ["data", "loss", "batch_size"]
    merged = record.merged_with(stored)
    assert merged.text().startswith(mine)
    assert merged.pipeline_missing() == []
    assert merged.stored is None
    assert (merged.spec.determinism_tier, merged.spec.steps, merged.spec.epochs, merged.spec.seed) == (
        "debug",
        3,
        None,
        7,
    )
    assert merged.spec.optimizer is not None
    assert merged.spec.optimizer.block_id == "training/optimizer/sgd"
    assert merged.where("architecture.hidden.0") == "user/ada/m@3:2:47 architecture.hidden.0"
    assert merged.where("steps") == "run.sml:5:8 steps"
    assert merged.with_override("batch_size", 4).where("batch_size") == "override batch_size"
    assert Record.parse(merged.text()) == merged
    assert stored.merged_with(record) is stored
    with pytest.raises(RecordError, match="determinism_tier: expected one of: debug, prod, fast, got nothing"):
        Record.parse("sml: 1\nmodel: user/ada/m@3").merged_with(stored)


def test_merged_graph_is_taken_whole() -> None:
    stored = Record.parse(GRAPH, "m@1")
    merged = Record.parse("{ sml: 1, model: m@1, seed: 3 }").merged_with(stored)
    graph = merged.graph()
    assert graph is not None
    assert graph.order == ["h", "a", "y"]
    assert merged.spec.seed == 3
    with pytest.raises(RecordError, match=r"^run.sml:2:9 loss.output: expected an output of the graph|output"):
        Record.parse(
            "sml: 1\nmodel: m@1\ndeterminism_tier: prod\nloss: { block_id: training/loss/mse, output: logit }"
        ).merged_with(stored)


# graph --------------------------------------------------------------------------------------------------------------


def test_graph_order_and_ports() -> None:
    text = """\
sml: 1
inputs: { x: { shape: [batch, 8] }, ids: { shape: [batch], dtype: i32 } }
outputs: { out: sum, raw: split.left }
graph:
  sum: { block_id: layer/add, in: [late, split.right, x] }
  late: { block_id: layer/linear, in: { x: split.left } }
  split: { block_id: layer/split, in: { a: x, b: ids } }
"""
    graph = Record.parse(text).graph()
    assert graph is not None
    assert graph.order == ["split", "late", "sum"]
    assert [(str(s), s.to) for s in graph.nodes["split"].sources] == [("x", "a"), ("ids", "b")]
    assert [(str(s), s.to, s.path) for s in graph.nodes["sum"].sources][1] == (
        "split.right",
        None,
        ("graph", "sum", "in", 1),
    )
    assert str(graph.outputs["raw"]) == "split.left"
    assert graph.inputs["ids"].dtype == "i32"
    assert Record.parse(BASE).graph() is None


@given(st.integers(1, 30), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_topological_order(n: int, rng: Any) -> None:
    reads: dict[str, Any] = {f"n{i}": [f"n{j}" for j in range(i) if rng.random() < 0.2] or ["x"] for i in range(n)}
    order = list(reads)
    rng.shuffle(order)
    used = {s for found in reads.values() for s in found}
    record = Record.from_dict(
        {
            "sml": 1,
            "inputs": {"x": {"shape": ["batch"]}},
            "graph": {k: {"block_id": "layer/add", "in": reads[k]} for k in order},
            "outputs": {k: k for k in order if k not in used},
        }
    )
    graph = record.graph()
    assert graph is not None
    place = {name: i for i, name in enumerate(graph.order)}
    assert len(place) == n
    assert all(place[s] < place[k] for k, found in reads.items() for s in found if s != "x")


# reference ----------------------------------------------------------------------------------------------------------


def test_docs_name_every_key() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert reference_table() in text, (
        "docs/sml.md: run python -c 'from scellis_core.record import *; print(reference_table())' and paste"
    )
    assert {
        "optimizer.groups[].lr_scale",
        "graph.<name>.in",
        "checkpoint.best.mode",
        "precision.loss_scaling.init",
    } <= {k.path for k in schema_keys()}


def test_docs_examples_parse() -> None:
    parts = DOCS.read_text(encoding="utf-8").split("```")
    examples = [part.removeprefix("yaml\n") for part in parts[1::2] if part.startswith("yaml\nsml:")]
    assert len(examples) >= 3
    for text in examples:
        Record.parse(text)
