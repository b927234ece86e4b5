"""The schema of the record: every key with its type, range, unit and default.

What depends on more than one key (exactly one of ``epochs`` and ``steps``, references in the graph) is in rules.py.
Parameters of blocks are free here; the block's own schema checks them (:meth:`scellis_core.record.Record.params`).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

BLOCK_ID = re.compile(r"[a-z0-9][a-z0-9_-]*(?:/[a-z0-9][a-z0-9_-]*)+(?:@[1-9][0-9]*)?\Z")
MODEL_NAME = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9_.-]*/)*[A-Za-z0-9][A-Za-z0-9_.-]*(?:@[1-9][0-9]*)?\Z")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_OBJECT = re.compile(r"object:sha256:[0-9a-f]{64}\Z")


class ModelName(NamedTuple):
    """A model's name in its parts; ``version`` is None where the newest is meant."""

    owner: str
    name: str
    version: int | None

    def __str__(self) -> str:
        base = f"{self.owner}/{self.name}" if self.owner else self.name
        return base if self.version is None else f"{base}@{self.version}"


def parse_model_name(text: str) -> ModelName:
    """Return the parts of ``user/ada/tiny_transformer@3``; the text must be a valid name."""
    base, _, version = text.partition("@")
    owner, _, name = base.rpartition("/")
    return ModelName(owner, name, int(version) if version else None)


def wrong(expected: str, hint: str = "") -> PydanticCustomError:
    """Return the error that a validator raises: what was expected, and what to try."""
    return PydanticCustomError("expected", "expected {expected}", {"expected": expected, "hint": hint})


def _check_id(text: str) -> str:
    if not BLOCK_ID.match(text):
        raise wrong("a block id such as training/optimizer/adamw or training/optimizer/adamw@1")
    return text


def _check_model(text: str) -> str:
    if not MODEL_NAME.match(text):
        raise wrong("a model name such as user/ada/tiny_transformer or user/ada/tiny_transformer@3")
    return text


def _check_name(text: str) -> str:
    if not _NAME.match(text):
        raise wrong("a name of letters, digits and _", re.sub(r"\W", "_", text, flags=re.ASCII))
    return text


def _check_object(text: str) -> str:
    if not _OBJECT.match(text):
        raise wrong("object:sha256: and 64 hexadecimal digits")
    return text


def _check_pattern(text: str) -> str:
    if (
        not all(text.split("|"))
        or text.count("{") != text.count("}")
        or re.search(r"\{[^{}]*\{|\}[^{}]*\}|^[^{]*\}", text)
    ):
        raise wrong("a pattern of paths such as blocks.*.attn.{q,v} or *.bias|*norm*")
    return text


def _check_ref(text: str) -> str:
    if not all(_NAME.match(part) for part in text.split(".")) or text.count(".") > 1:
        raise wrong("the name of a node or input, or name.port")
    return text


def _check_shape(shape: list[Any]) -> list[Any]:
    if "batch" in shape[1:]:
        raise wrong(
            "batch as the first dimension only", "[batch, " + ", ".join(str(d) for d in shape if d != "batch") + "]"
        )
    return shape


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


def _text_as(key: str, *texts: str) -> BeforeValidator:
    def expand(value: Any) -> Any:
        return {key: value} if isinstance(value, str) and value in texts else value

    return BeforeValidator(expand)


def _dynamic(value: Any) -> Any:
    return {} if value == "dynamic" else value


BlockId = Annotated[str, AfterValidator(_check_id), Field(json_schema_extra={"expected": "a block id"})]
Name = Annotated[str, AfterValidator(_check_name)]
Pattern = Annotated[str, AfterValidator(_check_pattern), Field(json_schema_extra={"expected": "a pattern of paths"})]
PortRef = Annotated[
    str, AfterValidator(_check_ref), Field(json_schema_extra={"expected": "the name of a node or input, or name.port"})
]
Count = Annotated[int, Field(ge=1)]
Unit = Literal["step", "epoch"]
Every = Literal["epoch"] | Count
Mode = Literal["auto", "min", "max"]


def _field(
    default: Any = ..., *, unit: str = "1", doc: str, expected: str = "", choices: tuple[str, ...] = (), **more: Any
) -> Any:
    """Return a field with its unit, its documentation, and what errors call it where its type says too little."""
    extra: dict[str, Any] = {"unit": unit}
    if expected:
        extra["expected"] = expected
    if choices:
        extra["choices"] = list(choices)
    return Field(default, description=doc, json_schema_extra=extra, **more)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


class BlockRef(BaseModel):
    """A block by its id, with free parameters that the block's own schema checks."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False, strict=True)
    reserved: ClassVar[tuple[str, ...]] = ()

    block_id: BlockId = _field(doc="the block; without @version the newest installed")

    @property
    def params(self) -> dict[str, Any]:
        """The block's own parameters as written."""
        return dict(self.__pydantic_extra__ or {})


class InputSpec(_Strict):
    """An input of an explicit graph."""

    shape: Annotated[list[Literal["batch"] | Count], Field(min_length=1), AfterValidator(_check_shape)] = _field(
        unit="elements", doc="sizes; `batch` stands for the batch size and comes first", examples=[["batch", 64]]
    )
    dtype: Literal["f32", "i32", "u32", "bool"] = _field("f32", doc="element type")


class NodeRef(BlockRef):
    """A node of an explicit graph."""

    sources: PortRef | list[PortRef] | dict[Name, PortRef] = _field(
        [],
        alias="in",
        expected="a name, a list of names or a mapping from ports to names",
        doc="what it reads: a name, a list by position, or a mapping from ports; `name` or `name.port`",
    )


class Init(_Strict):
    """Weights to start from."""

    source: Annotated[str, AfterValidator(_check_object)] = _field(
        alias="from",
        expected="object:sha256: and 64 hexadecimal digits",
        doc="weights in the store: `object:sha256:` and the digest",
    )


class Group(BaseModel):
    """Parameters of the optimizer that differ for some weights."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False, strict=True)

    match: Pattern = _field(doc="which weights, by path; the first group that matches counts")
    lr_scale: float = _field(1.0, ge=0, doc="factor on the learning rate")

    @property
    def params(self) -> dict[str, Any]:
        """The optimizer's parameters that this group changes, as written."""
        return dict(self.__pydantic_extra__ or {})


class OptimizerRef(BlockRef):
    """The optimizer."""

    groups: list[Group] = _field([], doc="weights that take other parameters than the rest")


class LossRef(BlockRef):
    """A loss, and what it compares."""

    output: Name | None = _field(None, doc="output of the model; may be left out where there is one")
    target: Name | None = _field(None, doc="target of the data; may be left out where there is one")
    weight: float = _field(1.0, doc="factor of this loss in the sum")


class MetricRef(BlockRef):
    """A metric, and what it compares."""

    output: Name | None = _field(None, doc="output of the model; may be left out where there is one")
    target: Name | None = _field(None, doc="target of the data; may be left out where there is one")


class ClipRef(BlockRef):
    """Gradient clipping."""

    block_id: BlockId = _field("training/clip/global_norm", doc="the clipping block")


class LossScaling(_Strict):
    """Dynamic loss scaling; `dynamic` is this mapping with its defaults."""

    init: float = _field(65536.0, gt=0, doc="scale at the start")
    growth: float = _field(2.0, gt=1, doc="factor after `interval` steps without overflow")
    backoff: float = _field(0.5, gt=0, lt=1, doc="factor after an overflow")
    interval: int = _field(2000, ge=1, unit="steps", doc="steps without overflow before the scale grows")


class Precision(_Strict):
    """Number formats. WGSL has neither bf16 nor f64."""

    policy: Literal["f32", "mixed_f16"] = _field(
        "f32", doc="mixed_f16: f16 activations and weight copies, f32 accumulation and gradients"
    )
    master_weights: Literal["f32"] = _field("f32", doc="format of the weights that the optimizer updates")
    loss_scaling: Annotated[LossScaling | Literal["none"], BeforeValidator(_dynamic)] = _field(
        "none",
        expected="dynamic, none or a mapping",
        choices=("dynamic", "none"),
        doc="`dynamic`, `none`, or a mapping; where left out, dynamic under mixed_f16 and none under f32",
    )
    keep_f32: list[Pattern] = _field([], doc="blocks that stay in f32 under mixed_f16")

    @model_validator(mode="before")
    @classmethod
    def _scaling(cls, value: Any) -> Any:
        if isinstance(value, dict) and "loss_scaling" not in value:
            given = cast("dict[str, Any]", value)
            return {**given, "loss_scaling": "dynamic"} if given.get("policy") == "mixed_f16" else given
        return cast("Any", value)


class Remat(_Strict):
    """What is computed again in the backward pass instead of being kept."""

    blocks: list[Pattern] | Literal["auto", "none"] = _field(
        "none",
        expected="a list of patterns, auto or none",
        doc="paths of blocks, `auto` (the planner chooses within `bytes`), or `none`",
    )
    bytes: Count | None = _field(None, unit="bytes", doc="memory that `auto` may use for activations; only with `auto`")


class Validate(_Strict):
    """When to validate, and on which split."""

    every: Every = _field("epoch", doc="`epoch`, or a number of `unit`s")
    unit: Unit = _field("step", doc="what a number in `every` counts: `step` or `epoch`")
    on: str = _field("val", doc="split of the data", min_length=1)

    @property
    def interval(self) -> tuple[int, Unit]:
        """How often: a number and what it counts."""
        return (1, "epoch") if self.every == "epoch" else (self.every, self.unit)


class Best(_Strict):
    """The checkpoint that is kept for its metric."""

    metric: str = _field("val_loss", doc="name of the metric", min_length=1)
    mode: Mode = _field("auto", doc="`min`, `max`, or `auto`: as the metric's block declares")


class Checkpoint(_Strict):
    """When to save, and how many checkpoints to keep. The last step is always saved."""

    every: Every = _field("epoch", doc="`epoch`, or a number of `unit`s")
    unit: Unit = _field("step", doc="what a number in `every` counts: `step` or `epoch`")
    keep: int = _field(3, ge=1, doc="newest checkpoints kept; the best is kept besides")
    best: Best | None = _field(None, doc="also keep the best by a metric")

    @property
    def interval(self) -> tuple[int, Unit]:
        """How often: a number and what it counts."""
        return (1, "epoch") if self.every == "epoch" else (self.every, self.unit)


class Stop(_Strict):
    """Early stopping."""

    metric: str = _field("val_loss", doc="name of the metric", min_length=1)
    patience: int = _field(10, ge=1, unit="validations", doc="validations without improvement before the run stops")
    min_delta: float = _field(0.0, ge=0, doc="smallest change that counts as improvement, in the metric's unit")
    mode: Mode = _field("auto", doc="`min`, `max`, or `auto`: as the metric's block declares")


class At(_Strict):
    """A moment of the run; one of the two."""

    step: int | None = _field(None, ge=0, unit="steps", doc="after this many updates")
    epoch: int | None = _field(None, ge=0, unit="epochs", doc="after this many epochs")


class Unfreeze(_Strict):
    """Frozen weights that are trained from some moment on."""

    match: Pattern = _field(doc="which weights, by path")
    at: At = _field(doc="when: `{ step: N }` or `{ epoch: N }`")


class Schema(_Strict):
    """The whole record."""

    sml: Literal[1] = _field(doc="version of this format")
    model: Annotated[str, AfterValidator(_check_model)] | None = _field(
        None,
        expected="a model name",
        doc="name under which the record is saved; with @version and no architecture, the stored model to take it from",
    )
    architecture: BlockRef | None = _field(None, doc="one model block, or else `inputs`, `graph` and `outputs`")
    inputs: Annotated[dict[Name, InputSpec], Field(min_length=1)] | None = _field(
        None, doc="inputs of an explicit graph, by name"
    )
    graph: Annotated[dict[Name, NodeRef], Field(min_length=1)] | None = _field(
        None, doc="nodes of an explicit graph, by name"
    )
    outputs: Annotated[dict[Name, PortRef], Field(min_length=1)] | None = _field(
        None, doc="outputs of an explicit graph: names and the nodes they read"
    )
    data: BlockRef | None = _field(None, doc="the dataset")
    init: Init | None = _field(None, doc="weights to start from instead of fresh ones")
    freeze: list[Pattern] = _field([], doc="weights that are not trained, by path")
    peft: list[BlockRef] = _field([], doc="adapters, applied in order")
    optimizer: OptimizerRef | None = _field(None, doc="the optimizer")
    wrappers: list[BlockRef] = _field([], doc="methods around the optimizer, innermost first")
    averaging: BlockRef | None = _field(None, doc="averaging of weights, used in validation and export")
    scheduler: BlockRef | None = _field(None, doc="the learning rate by step; constant where left out")
    loss: Annotated[list[LossRef], BeforeValidator(_as_list)] = _field(
        [], expected="a mapping with block_id or a list of them", doc="one loss or a list, which is summed"
    )
    metrics: list[MetricRef] = _field([], doc="metrics; where left out, those that the loss names")
    augment: list[BlockRef] = _field([], doc="random changes of training inputs, applied in order")
    epochs: Count | None = _field(None, unit="epochs", doc="length of the run; or else `steps`", examples=[10])
    steps: Count | None = _field(
        None, unit="steps", doc="length of the run in updates; or else `epochs`", examples=[1000]
    )
    batch_size: Count | None = _field(None, unit="examples", doc="examples in one batch", examples=[32])
    grad_accumulation: Count = _field(1, unit="batches", doc="batches whose gradients make one update")
    grad_clip: ClipRef | None = _field(None, doc="gradient clipping, such as `{ max_norm: 1.0 }`")
    precision: Precision = _field(Precision(), doc="number formats")
    remat: Annotated[Remat, _text_as("blocks", "none", "auto")] = _field(
        Remat(), expected="a mapping or none", choices=("none",), doc="recomputation in the backward pass"
    )
    validation: Validate = _field(Validate(), alias="validate", doc="when to validate")
    checkpoint: Checkpoint = _field(Checkpoint(), doc="when to save")
    stop: Stop | None = _field(None, doc="early stopping")
    unfreeze: list[Unfreeze] = _field([], doc="frozen weights that are trained later")
    determinism_tier: Literal["debug", "prod", "fast"] | None = _field(
        None,
        doc="debug: every output checked, unfused; prod: fixed reduction orders; fast: may fuse. Never defaulted",
        examples=["prod"],
    )
    seed: int = _field(0, ge=0, le=2**53 - 1, doc="seed of every random stream")


FAMILIES: dict[str, tuple[str, ...]] = {
    "architecture": ("model/",),
    "graph": ("layer/", "model/"),
    "data": ("data/",),
    "peft": ("training/peft/",),
    "optimizer": ("training/optimizer/",),
    "wrappers": ("training/wrapper/",),
    "averaging": ("training/average/",),
    "scheduler": ("training/scheduler/",),
    "loss": ("training/loss/",),
    "metrics": ("metric/",),
    "augment": ("augment/",),
    "grad_clip": ("training/clip/",),
}
"""The families that each key takes its blocks from."""

ARCHITECTURE = ("architecture", "inputs", "graph", "outputs")
"""Keys that give the architecture."""

PIPELINE = ("data", "optimizer", "loss", "epochs", "batch_size", "determinism_tier")
"""Keys that training needs; ``steps`` may stand for ``epochs``."""

TRAINING = (
    *("data", "optimizer", "wrappers", "averaging", "scheduler", "loss", "metrics", "augment", "epochs", "steps"),
    *("grad_accumulation", "grad_clip", "validate", "checkpoint", "stop", "unfreeze"),
)
"""Keys that say the record is meant for training: with one of them, all of PIPELINE must be there."""
