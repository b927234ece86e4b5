"""From the block graph to the op graph: tensors, ties, freezing, statistics, draws, losses, printing."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from model_toys import DENSE, PIPELINE, graph_of, resolve, text_of

from scellis_core.blocks import (
    Init,
)
from scellis_core.errors import CatalogError, RecordError
from scellis_core.ir import verify
from scellis_core.model import Lowered, ResolvedRun, count_params, lower, print_blocks


def test_tied_head_is_one_tensor() -> None:
    run = resolve("architecture: { block_id: model/text }")
    low = lower(run, 2, "predict")
    verify(low.graph)
    assert list(low.params) == ["embed.weight"]
    assert low.aliases == {"head.weight": "embed.weight"}
    assert low.params["embed.weight"].init == Init("normal", 0.1)
    (leaf,) = [n for n in low.graph.nodes if n.op == "param"]
    assert len(low.graph.users()[leaf.outputs[0]]) == 2
    assert count_params(low) == (40, 40)
    assert count_params(lower(resolve("architecture: { block_id: model/text, tie: false }"), 2, "predict")) == (80, 80)


def test_a_tie_that_is_read_before_its_owner() -> None:
    run = resolve(graph_of(DENSE, "k: { block_id: layer/dense, in: h, features: 4 }", outputs="y: k"))
    run.graph.tie("h.bias", "k.other")
    text = text_of(lambda: lower(run, 2, "predict"))
    assert text.startswith("tie of h.bias: expected a parameter k.other, got none of that name; try one of:")
    run.graph.tie("h.bias", "k.bias")
    text = text_of(lambda: lower(run, 2, "predict"))
    assert text == (
        "run.sml:5:6 graph.k: block k (layer/dense@1), parameter k.bias: expected shape [3], got shape [4]; try "
        "untying them or equal sizes"
    )


def test_freeze() -> None:
    two = graph_of("t: { block_id: layer/two, in: x, features: 3 }", "h: { block_id: layer/head, in: t, features: 3 }")
    low = lower(resolve(two, 'freeze: ["t.first.*", "*.bias"]'), 2, "train")
    assert [p for p, m in low.params.items() if m.trainable] == ["t.second.weight", "h.weight"]
    assert count_params(low) == (18, 36)
    assert text_of(lambda: resolve(two, 'freeze: ["t.*", "t.frist.*"]')) == (
        "run.sml:7:17 freeze.1: expected a pattern that matches a parameter, got 't.frist.*'; try one of: "
        "t.first.bias, t.first.weight"
    )


def test_freezing_either_name_of_a_tied_tensor_freezes_it() -> None:
    for pattern in ("head.*", "embed.*"):
        low = lower(resolve("architecture: { block_id: model/text }", f'freeze: ["{pattern}"]'), 2, "train")
        assert not low.params["embed.weight"].trainable


def test_statistics_move_in_training_only_and_not_when_frozen() -> None:
    graph = graph_of("h: { block_id: layer/running, in: x }")
    low = lower(resolve(graph), 2, "train")
    verify(low.graph)
    assert list(low.states) == ["state:h.mean"]
    (store,) = low.graph.stores()
    assert (store.attrs["name"], store.path) == ("state:h.mean", "h")
    assert store is low.graph.nodes[-1]
    assert lower(resolve(graph), 2, "eval").graph.stores() == []
    frozen = lower(resolve(graph, 'freeze: ["h.*"]'), 2, "train")
    verify(frozen.graph)
    assert frozen.graph.stores() == []
    evaluated = lower(resolve(graph, 'freeze: ["h.*"]'), 2, "eval")
    assert [n.op for n in frozen.graph.nodes] == [n.op for n in evaluated.graph.nodes]


def test_draws_are_reserved_in_training_only() -> None:
    graph = graph_of("a: { block_id: layer/noise, in: x }", "h: { block_id: layer/noise, in: a }")
    low = lower(resolve(graph), 3, "train")
    verify(low.graph)
    drawn = [n for n in low.graph.nodes if n.op == "philox"]
    assert [(n.attrs["stream"], n.attrs["offset"], n.attrs["shape"]) for n in drawn] == [
        ("noise", 0, (3, 4)),
        ("noise", 3, (3, 4)),
    ]
    assert low.draws == 6
    assert lower(resolve(graph), 3, "eval").draws == 0


def test_adapters() -> None:
    run = resolve(graph_of(DENSE), "peft: [{ block_id: training/peft/scaling, targets: h }]")
    low = lower(run, 2, "train")
    assert {p: m.trainable for p, m in low.params.items()} == {
        "h.weight": False,
        "h.bias": False,
        "h.adapter.scale": True,
    }
    assert str(run.graph.outputs["logits"]) == "h.adapter.y"
    assert run.peft[0].targets == ("h",)
    assert text_of(lambda: resolve(graph_of(DENSE), "peft: [{ block_id: training/peft/scaling, targets: hh }]")) == (
        "run.sml:6:52 peft.0.targets: expected a pattern that matches a block, got 'hh'; try one of: h"
    )


# Losses, metrics, data.


def losses(run: ResolvedRun) -> Lowered:
    low = lower(run, 8, "eval")
    verify(low.graph)
    return low


def test_loss_and_default_metric() -> None:
    run = resolve(graph_of(DENSE), pipeline=PIPELINE)
    assert (run.losses[0].output, run.losses[0].target, run.metrics[0].key) == ("logits", "y", "metric/hits@1")
    assert [(u.block.id, u.name, u.output, u.target) for u in run.metrics] == [("metric/hits@1", "hits", "logits", "y")]
    low = losses(run)
    assert low.loss_total is not None
    assert low.loss_weight is not None
    assert low.loss_weight.node.attrs["value"] == 8.0
    assert {k: list(v) for k, v in low.metrics.items()} == {"metric/hits@1": ["total", "weight"]}
    assert set(low.inputs) == {"x", "y"}
    assert lower(run, 8, "train").metrics == {}
    assert set(lower(run, 8, "predict").inputs) == {"x"}
    assert "training/optimizer/sgd@1" in run.blocks
    assert "layer/dense@1" in run.blocks


def test_several_losses() -> None:
    both = PIPELINE.replace(
        "loss: { block_id: training/loss/xent }",
        "loss: [{ block_id: training/loss/xent, weight: 0.5 }, { block_id: training/loss/sum }]",
    )
    low = losses(resolve(graph_of(DENSE), pipeline=both))
    assert low.loss_weight is not None
    assert low.loss_weight.node.attrs["value"] == 8.0
    assert any(n.path == "loss.1" for n in low.graph.nodes)


def test_outputs_and_targets_must_be_named_where_there_are_several() -> None:
    graph = graph_of(DENSE, outputs="left: h, right: h")
    assert text_of(lambda: resolve(graph, pipeline=PIPELINE)) == (
        "run.sml:9:7 loss.output: expected output: one of the outputs of the model (left, right), got nothing; try "
        "output: left"
    )
    named = PIPELINE.replace("xent }", "xent, output: right, target: z }")
    assert text_of(lambda: resolve(graph, pipeline=named)) == (
        "run.sml:9:62 loss.target: expected a target of the data, got 'z'; try one of: y"
    )


def test_a_loss_that_is_no_scalar() -> None:
    run = resolve(graph_of(DENSE), pipeline=PIPELINE.replace("loss/xent", "loss/wrong"))
    assert text_of(lambda: lower(run, 8, "train")) == (
        "run.sml:9:7 loss: training/loss/wrong@1: expected a total of type f32[], got f32[8, 3]"
    )


def test_ids_beyond_their_table() -> None:
    five = PIPELINE.replace("data/toy }", "data/toy, classes: 5 }")
    run = resolve(graph_of(DENSE), pipeline=five)
    assert text_of(lambda: lower(run, 8, "train")) == (
        "run.sml:9:7 loss: training/loss/xent@1: expected at least 5 classes, as ids of y run to 4, got 3 classes; "
        "try a model with 5 outputs"
    )
    graph = graph_of(
        "h: { block_id: layer/table, in: x, rows: 7, width: 3 }", inputs="x: { shape: [batch, 4], dtype: i32 }"
    )
    assert lower(resolve(graph), 8, "predict").inputs["x"].limit == 7
    ids = PIPELINE.replace("data/toy }", "data/toy, ids: 9 }")
    assert text_of(lambda: lower(resolve(graph, pipeline=ids), 8, "train")) == (
        "run.sml:4:6 graph.h: block h (layer/table@1): expected at least 9 rows, as ids of x run to 8, got 7 rows; "
        "try a size of 9"
    )


def test_augmentation_changes_training_inputs_only() -> None:
    run = resolve(graph_of(DENSE), "augment: [{ block_id: augment/jitter }]", pipeline=PIPELINE)
    assert any(n.path == "augment.0" for n in lower(run, 8, "train").graph.nodes)
    assert not any(n.path == "augment.0" for n in lower(run, 8, "eval").graph.nodes)


def test_pipeline_errors() -> None:
    wrong = PIPELINE.replace("training/optimizer/sgd, lr", "training/optimizer/sgd, learning_rate")
    assert text_of(lambda: resolve(graph_of(DENSE), pipeline=wrong)) == (
        "run.sml:8:48 optimizer.learning_rate: expected a parameter of training/optimizer/sgd@1, got "
        "'learning_rate'; try lr"
    )
    assert text_of(lambda: resolve(graph_of(DENSE), "grad_clip: { max_nrom: 1.0 }", pipeline=PIPELINE)) == (
        "run.sml:13:14 grad_clip.max_nrom: expected a parameter of training/clip/global_norm@1, got 'max_nrom'; try "
        "one of: max_norm"
    )
    with pytest.raises((CatalogError, RecordError), match=r"run\.sml:13:24 scheduler\.block_id"):
        resolve(graph_of(DENSE), "scheduler: { block_id: training/scheduler/cosin }", pipeline=PIPELINE)


def test_clip_and_groups() -> None:
    groups = PIPELINE.replace("lr: 0.1 }", 'lr: 0.1, groups: [{ match: "*.bias", lr_scale: 2 }] }')
    run = resolve(graph_of(DENSE), "grad_clip: { max_norm: 1.0 }", pipeline=groups)
    assert run.clip is not None
    assert run.clip[0].id == "training/clip/global_norm@1"
    assert (run.groups[0].match, run.groups[0].lr_scale) == ("*.bias", 2.0)
    wrong = groups.replace("*.bias", "*.bais")
    assert text_of(lambda: resolve(graph_of(DENSE), pipeline=wrong)).startswith(
        "run.sml:8:75 optimizer.groups.0.match: expected a pattern that matches a parameter, got '*.bais'"
    )


# Looking.


def test_print_blocks() -> None:
    run = resolve(
        graph_of(
            "t: { block_id: layer/two, in: x, features: 3 }",
            "r: { block_id: layer/running, in: t }",
            "h: { block_id: layer/plus, in: [r, t] }",
        ),
        'freeze: ["t.first.*"]',
    )
    assert print_blocks(run.graph) == textwrap.dedent("""\
        input x: f32[batch, 4]
        t  layer/two@1
          first  layer/dense@1  (x)  features=3
            weight: f32[3, 4]  12  frozen
            bias: f32[3]  3  frozen
          second  layer/dense@1  (t.first.y)  features=3
            weight: f32[3, 3]  9
            bias: f32[3]  3
        r  layer/running@1  (t.second.y)
          scale: f32[3]  3
          mean: f32[3]  3  state
        h  layer/plus@1  (a: r.y; b: t.second.y)
        output logits: h.y
        parameters: 30 in 5 tensors; trainable 15, frozen 15
        """)
    tied = print_blocks(resolve("architecture: { block_id: model/text }").graph)
    assert "input x: i32[batch, 4], ids below 10\n" in tied
    assert "head  layer/head@1  (embed.y)  features=10\n  weight: tied to embed.weight\n" in tied


def test_record_to_op_graph_without_numpy_and_quickly() -> None:
    code = """
        import sys, time
        from pathlib import Path
        from scellis_core.catalog import Catalog
        from scellis_core.model import lower, print_blocks, resolve_run
        from scellis_core.record import Record
        text = '''sml: 1
        architecture:
          { block_id: model/decoder_transformer, vocab_size: 256, context: 64, width: 128, layers: 4, heads: 4 }
        '''.replace("        ", "")
        catalog = Catalog.discover()
        best = 9.0
        for _ in range(4):
            start = time.perf_counter()
            run = resolve_run(Record.parse(text), catalog, Path())
            low = lower(run, 32, "predict")
            best = min(best, time.perf_counter() - start)
        print_blocks(run.graph)
        assert not [m for m in sys.modules if m.partition(".")[0] in ("numpy", "wgpu", "cffi", "safetensors")]
        print(best)
    """
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True, text=True)
    assert float(found.stdout) < 0.08
