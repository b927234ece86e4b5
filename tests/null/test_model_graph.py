"""From a record's architecture to the block graph: wiring, and where each error points."""

from __future__ import annotations

import pytest
from model_toys import DENSE, PIPELINE, graph_of, resolve, text_of

from scellis_core.blocks import (
    InputSpec,
)
from scellis_core.errors import ContractError, RecordError
from scellis_core.ir import verify
from scellis_core.model import lower


def test_explicit_graph() -> None:
    run = resolve(
        graph_of(
            "s: { block_id: layer/split, in: h }",
            "h: { block_id: layer/two, in: x, features: 3 }",
            "p: { block_id: layer/plus, in: { b: s.high, a: s.low } }",
            "g: { block_id: layer/gate, in: [p] }",
            "v: { block_id: layer/sum, in: [g, p, h] }",
            outputs="logits: v, low: s.low",
        )
    )
    assert list(run.graph.instances) == ["h.first", "h.second", "s", "p", "g", "v"]
    assert run.graph.groups == {"h": "layer/two@1"}
    assert {n: str(r) for n, r in run.graph.outputs.items()} == {"logits": "v.y", "low": "s.low"}
    assert (run.data, run.optimizer, run.losses, run.metrics, run.clip) == (None, None, [], [], None)
    low = lower(run, 5, "predict")
    verify(low.graph)
    assert {n: str(v.type) for n, v in low.outputs.items()} == {"logits": "f32[5, 3]", "low": "f32[5, 3]"}
    assert list(low.params) == ["h.first.weight", "h.first.bias", "h.second.weight", "h.second.bias"]
    assert low.inputs == {"x": InputSpec((4,))}
    assert low.loss_total is None


def test_a_model_block_as_a_node() -> None:
    low = lower(resolve(graph_of("m: { block_id: model/small, in: x, features: 3 }", outputs="y: m")), 2, "predict")
    assert list(low.params) == ["m.blocks.0.q.weight", "m.blocks.0.q.bias"]


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        (
            ["h: { block_id: layer/dens, in: x, features: 3 }"],
            "run.sml:4:18 graph.h.block_id: expected the id of an installed block, got 'layer/dens'; try one of: "
            "layer/dense",
        ),
        (
            ["h: { block_id: layer/dense, in: x, units: 3 }"],
            "run.sml:4:38 graph.h.units: expected a parameter of layer/dense@1, got 'units'; try features",
        ),
        (
            ["h: { block_id: layer/dense, in: x, features: 0 }"],
            "run.sml:4:48 graph.h.features: expected integer > 0, got 0",
        ),
        (
            ["h: { block_id: layer/uneven, in: x, a: 3 }"],
            "run.sml:4:6 graph.h: expected parameters that fit each other, got a must not be 3",
        ),
        (
            ["h: { block_id: layer/dense, in: { q: x }, features: 3 }"],
            "run.sml:4:37 graph.h.in.q: expected a port of layer/dense@1, got 'q'; try one of: x",
        ),
        (
            ["h: { block_id: layer/dense, in: [x, x], features: 3 }"],
            "run.sml:4:39 graph.h.in.1: expected at most 1 input of layer/dense@1 (x), got 2: x",
        ),
        (
            ["h: { block_id: layer/plus, in: x }"],
            "run.sml:4:34 graph.h.in: expected input b of layer/plus@1, got x; try in: { b: ... }",
        ),
        (
            ["s: { block_id: layer/split, in: x }", "h: { block_id: layer/scale, in: s }"],
            "run.sml:5:35 graph.h.in: expected one of the outputs s.low, s.high, got 's'; try s.low",
        ),
        (
            ["s: { block_id: layer/split, in: x }", "h: { block_id: layer/scale, in: s.lo }"],
            "run.sml:5:35 graph.h.in: expected an output of s (low, high), got 's.lo'; try one of: low",
        ),
        (
            ["h: { block_id: layer/scale, in: k }", "k: { block_id: layer/scale, in: h }"],
            "run.sml:4:35 graph.h.in: expected a graph without cycles, got the cycle h -> k -> h; try reading another "
            "node here",
        ),
    ],
)
def test_wiring_errors(nodes: list[str], text: str) -> None:
    with pytest.raises(RecordError) as caught:
        resolve(graph_of(*nodes))
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("nodes", "inputs", "text"),
    [
        (
            ["a: { block_id: layer/dense, in: x, features: 3 }", "h: { block_id: layer/plus, in: [a, x] }"],
            "x: { shape: [batch, 4] }",
            "run.sml:5:6 graph.h: block h (layer/plus@1), broadcast: expected shapes that align from the right, [5, "
            "3], got [5, 4]; try reshape one of them",
        ),
        (
            [DENSE],
            "x: { shape: [batch, 4, 4] }",
            "run.sml:4:6 graph.h: block h (layer/dense@1): expected x of shape [batch, in], got f32[5, 4, 4]",
        ),
        (
            ["h: { block_id: layer/two, in: x, features: 3 }"],
            "x: { shape: [batch, 4, 4] }",
            "run.sml:4:6 graph.h: block h.first (layer/dense@1): expected x of shape [batch, in], got f32[5, 4, 4]",
        ),
    ],
)
def test_shape_errors_carry_line_and_block(nodes: list[str], inputs: str, text: str) -> None:
    run = resolve(graph_of(*nodes, inputs=inputs))
    with pytest.raises(RecordError) as caught:
        lower(run, 5, "predict")
    assert str(caught.value) == text


def test_the_first_dimension_is_the_batch() -> None:
    assert text_of(lambda: resolve(graph_of(DENSE, inputs="x: { shape: [4] }"))) == (
        "run.sml:2:24 inputs.x.shape.0: expected batch as the first dimension, got 4; try [batch, 4]"
    )


def test_data_and_graph_must_agree() -> None:
    text = text_of(lambda: resolve(graph_of(DENSE, inputs="x: { shape: [batch, 5] }"), pipeline=PIPELINE))
    assert text == (
        "run.sml:2:14 inputs.x: expected input x as run.sml:7:7 data gives it, f32[batch, 4], got f32[batch, 5] of "
        "this graph; try equal sizes in both"
    )
    text = text_of(
        lambda: resolve(
            graph_of("h: { block_id: layer/dense, in: q, features: 3 }", inputs="q: { shape: [batch, 4] }"),
            pipeline=PIPELINE,
        )
    )
    assert text == "run.sml:2:14 inputs.q: expected an input that the data has (x), got 'q'; try one of: x"


def test_model_blocks_and_data() -> None:
    run = resolve("architecture: { block_id: model/small, features: 3 }", pipeline=PIPELINE)
    assert run.graph.inputs == {"x": InputSpec((4,))}
    text = text_of(lambda: resolve("architecture: { block_id: model/small, features: 3 }"))
    assert text == (
        "run.sml:2:15 architecture: expected data, whose examples model/small@1 takes its input sizes from, got no "
        "data; try adding data:"
    )
    ids = PIPELINE.replace("data/toy", "data/toy, ids: 12, classes: 10")
    text = text_of(lambda: resolve("architecture: { block_id: model/text, vocab: 10 }", pipeline=ids))
    assert text == (
        "run.sml:2:15 architecture: expected ids of input x as run.sml:4:7 data gives them, up to 11, got a table of "
        "10; try a size of 12"
    )


def test_faults_of_an_author_name_block_and_place() -> None:
    run = resolve(graph_of("h: { block_id: layer/broken, in: x }"))
    with pytest.raises(ContractError) as caught:
        lower(run, 2, "predict")
    assert str(caught.value) == (
        "run.sml:4:6 graph.h: block h (layer/broken@1): expected a block that can be traced, got KeyError: 'missing'"
    )
    run = resolve(graph_of("h: { block_id: layer/nothing, in: x }"))
    assert text_of(lambda: lower(run, 2, "predict")).endswith("expected an IR value as output y, got a NoneType")
