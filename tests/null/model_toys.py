"""Small blocks that do one thing each, and what the tests of the model share."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from scellis_core.blocks import (
    Augment,
    BlockGraph,
    BlockParams,
    Compose,
    Data,
    DataContext,
    DataSpec,
    Init,
    InputSpec,
    Layer,
    Loss,
    LossTerm,
    LowerContext,
    Metric,
    Model,
    Peft,
    Port,
    Ref,
    field,
)
from scellis_core.catalog import Catalog
from scellis_core.catalog.discovery import Candidate
from scellis_core.errors import ScellisError
from scellis_core.ir import Value
from scellis_core.model import ResolvedRun, resolve_run
from scellis_core.plugin import ops
from scellis_core.record import Record

# Toy blocks: two-dimensional, small, and one for each thing a layer can do.


class NoParams(BlockParams):
    pass


class DenseParams(BlockParams):
    features: int = field(gt=0, help="width")


def dense(ctx: LowerContext, params: DenseParams, x: Value) -> Value:
    if x.ndim != 2:
        ctx.fail("x of shape [batch, in]", str(x.type))
    w = ctx.param("weight", (params.features, x.shape[1]), Init("normal", 0.5))
    return ops.matmul(x, w, transpose_b=True) + ctx.param("bias", (params.features,), Init())


class TableParams(BlockParams):
    rows: int = field(gt=0, help="rows")
    width: int = field(gt=0, help="width")


def table(ctx: LowerContext, params: TableParams, x: Value) -> Value:
    return ops.take(ctx.param("weight", (params.rows, params.width), Init("normal", 0.1)), x)


def head(ctx: LowerContext, params: DenseParams, x: Value) -> Value:
    return ops.matmul(x, ctx.param("weight", (params.features, x.shape[-1]), Init("ones")), transpose_b=True)


def running(ctx: LowerContext, params: NoParams, x: Value) -> Value:
    mean = ctx.state("mean", (x.shape[1],), Init())
    if ctx.training:
        batch = ops.mean(x, axes=(0,))
        ctx.update_state("mean", mean * 0.9 + batch * 0.1)
        mean = batch
    return (x - mean) * ctx.param("scale", (x.shape[1],), Init("ones"))


def noise(ctx: LowerContext, params: NoParams, x: Value) -> Value:
    return x + ctx.uniform(x.shape, "noise") if ctx.training else x


class Pair(BlockParams):
    features: int = field(gt=0, help="width")


def two(g: Compose, params: Pair, x: Ref) -> Ref:
    h = g.add("first", "layer/dense@1", x, params={"features": params.features})
    return g.add("second", "layer/dense@1", h, params={"features": params.features})


class Uneven(BlockParams):
    a: int = field(1, ge=1, help="a")

    def problem(self) -> str | None:
        return "a must not be 3" if self.a == 3 else None


class TextParams(BlockParams):
    vocab: int = field(10, gt=0, help="ids")
    tie: bool = field(True, help="tie")


def text_model(g: Compose, params: TextParams, inputs: Mapping[str, Ref]) -> dict[str, Ref]:
    h = g.add("embed", "layer/table@1", inputs["x"], params={"rows": params.vocab, "width": 4})
    y = g.add("head", "layer/head@1", h, params={"features": params.vocab})
    if params.tie:
        g.tie("head.weight", "embed.weight")
    return {"logits": y}


class SizeParams(BlockParams):
    width: int = field(4, help="width of x")
    classes: int = field(3, help="classes")
    ids: int = field(0, help="ids of x, if it holds any")


def describe(params: SizeParams, context: DataContext) -> DataSpec:
    x = InputSpec((params.width,), "i32", params.ids) if params.ids else InputSpec((params.width,))
    y = InputSpec((params.width,) if params.ids else (), "i32", params.classes)
    return DataSpec({"x": x}, {"y": y}, {"train": 8, "val": 4})


def xent(ctx: LowerContext, params: NoParams, output: Value, target: Value) -> LossTerm:
    loss = ops.pick(output, target)
    return LossTerm(ops.reduce_sum(loss), ctx.graph.const(float(loss.type.numel)))


def plain_sum(ctx: LowerContext, params: NoParams, output: Value, target: Value) -> LossTerm:
    return LossTerm(ops.reduce_sum(output))


def hits(ctx: LowerContext, params: NoParams, output: Value, target: Value) -> dict[str, Value]:
    return {"total": ops.reduce_sum(output), "weight": ctx.graph.const(float(ctx.batch))}


class TargetParams(BlockParams):
    targets: str = field(help="which")


def adapt(g: BlockGraph, params: TargetParams, targets: list[str]) -> None:
    for path in targets:
        g.freeze(f"{path}.*")
        g.freeze(f"{path}.adapter.*", value=False)
        out = g.add(f"{path}.adapter", "layer/scale@1", {}, {"x": [Ref(path)]}, where=g.instances[path].where)
        assert isinstance(out, Ref)
        g.rewire(Ref(path), out, but=[out.path])


def scale(ctx: LowerContext, params: NoParams, x: Value) -> Value:
    return x * ctx.param("scale", (x.shape[-1],), Init("ones"))


def broken(ctx: LowerContext, params: NoParams, x: Value) -> Value:
    raise KeyError("missing")


COMMON: Mapping[str, Any] = {"title": "toy", "summary": "toy", "source": "none"}


def layer(name: str, params: type[BlockParams], **more: Any) -> Layer:
    return Layer(id=f"layer/{name}@1", params=params, **COMMON, **more)


BLOCKS = [
    layer("dense", DenseParams, lower=dense),
    layer("table", TableParams, lower=table),
    layer("head", DenseParams, lower=head),
    layer("running", NoParams, lower=running),
    layer("noise", NoParams, lower=noise),
    layer("scale", NoParams, lower=scale),
    layer("two", Pair, compose=two),
    layer("uneven", Uneven, lower=lambda ctx, params, x: x),
    layer("broken", NoParams, lower=broken),
    layer("nothing", NoParams, lower=lambda ctx, params, x: None),
    layer("plus", NoParams, ports=(Port("a"), Port("b")), lower=lambda ctx, params, a, b: a + b),
    layer("gate", NoParams, ports=(Port("x"), Port("mask", optional=True)), lower=lambda ctx, params, x, mask: x),
    layer("sum", NoParams, ports=(Port("xs", variadic=True),), lower=lambda ctx, params, xs: xs[0] + xs[-1]),
    layer("split", NoParams, outputs=("low", "high"), lower=lambda ctx, params, x: (x, x + 1.0)),
    Model(
        id="model/text@1",
        params=TextParams,
        inputs=lambda params: {"x": InputSpec((4,), "i32", params.vocab)},
        build=text_model,
        **COMMON,
    ),
    Model(
        id="model/small@1",
        params=DenseParams,
        build=lambda g, params, inputs: {
            "logits": g.scope("blocks.0").add("q", "layer/dense@1", inputs["x"], params={"features": params.features})
        },
        **COMMON,
    ),
    Data(id="data/toy@1", params=SizeParams, describe=describe, open=lambda p, c: pytest.fail("opened"), **COMMON),
    Loss(id="training/loss/xent@1", params=NoParams, fn=xent, metrics=("metric/hits@1",), **COMMON),
    Loss(id="training/loss/sum@1", params=NoParams, fn=plain_sum, **COMMON),
    Loss(id="training/loss/wrong@1", params=NoParams, fn=lambda ctx, p, o, t: LossTerm(o), **COMMON),
    Metric(id="metric/hits@1", params=NoParams, fn=hits, **COMMON),
    Augment(id="augment/jitter@1", params=NoParams, fn=lambda ctx, p, x: x + ctx.uniform(x.shape, "augment"), **COMMON),
    Peft(id="training/peft/scaling@1", params=TargetParams, rewrite=adapt, **COMMON),
]


def toy_catalog() -> Catalog:
    """The installed blocks, and these instead of any of the same id."""
    own = [Candidate(b.id, "toys", "1", "toys", "", block=b) for b in BLOCKS]
    installed = [c for claims in Catalog.discover()._claims.values() for c in claims]
    return Catalog([*own, *(c for c in installed if c.id not in {b.id for b in BLOCKS})])


PIPELINE = """
data: { block_id: data/toy }
optimizer: { block_id: training/optimizer/sgd, lr: 0.1 }
loss: { block_id: training/loss/xent }
epochs: 1
batch_size: 8
determinism_tier: prod
"""


@lru_cache(maxsize=1)
def _catalog() -> Catalog:
    return toy_catalog()


def resolve(architecture: str, *more: str, pipeline: str = "") -> ResolvedRun:
    """Resolve a record of an architecture, further lines, and a pipeline before them."""
    text = "sml: 1\n" + textwrap.dedent(architecture).strip() + "\n" + pipeline + "".join(m + "\n" for m in more)
    return resolve_run(Record.parse(text), _catalog(), Path())


def text_of(call: Callable[[], object]) -> str:
    with pytest.raises(ScellisError) as caught:
        call()
    return str(caught.value)


def graph_of(*nodes: str, outputs: str = "logits: h", inputs: str = "x: { shape: [batch, 4] }") -> str:
    body = "\n".join("  " + n for n in nodes)
    return f"inputs: {{ {inputs} }}\ngraph:\n{body}\noutputs: {{ {outputs} }}"


DENSE = "h: { block_id: layer/dense, in: x, features: 3 }"
