"""The contract of each family of blocks: what an author declares and the functions they write.

A block is one immutable object. Its functions receive IR values and call ops on them; the core traces,
differentiates, lowers and runs the result on a GPU or on the oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from dataclasses import field as _field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from scellis_core.ir import Graph, Value

if TYPE_CHECKING:
    import numpy as np

    from scellis_core.blocks.graph import BlockGraph, Compose, Ref


class BlockParams(BaseModel):
    """Base of every block's parameters: unknown keys are errors, values are frozen and never coerced from text."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, allow_inf_nan=False)

    def problem(self) -> str | None:
        """What is wrong between parameters that are each valid, or None; authors override it."""
        return None

    @model_validator(mode="after")
    def _together(self) -> Self:
        message = self.problem()
        if message is not None:
            raise ValueError(message)
        return self


def field(default: Any = ..., *, unit: str = "1", help: str, **constraints: Any) -> Any:
    """One parameter: its default (``...`` for required), unit, help line and pydantic constraints.

    Args:
        default: value, or ``...`` where the user must give one.
        unit: bytes, elements, steps, tokens, seconds, nats, 1, or per one of them (``1/step``).
        help: one line for the picker.
        constraints: ``gt``, ``ge``, ``lt``, ``le``, ``min_length`` and other pydantic arguments.
    """
    return Field(default, description=help, json_schema_extra={"unit": unit}, **constraints)


@dataclass(frozen=True)
class Init:
    """How a tensor starts, drawn from the ``init`` stream; portable data.

    ``kind``: ``zeros``, ``ones``, ``constant`` (value), ``normal`` (std), ``uniform`` (bound: from -b to b),
    ``truncated_normal`` (std, cut at two of it).
    """

    kind: Literal["zeros", "ones", "constant", "normal", "uniform", "truncated_normal"] = "zeros"
    value: float = 0.0


@dataclass(frozen=True)
class InputSpec:
    """A batch input: shape without the batch dimension, and dtype.

    ``limit``: for integer inputs, ids run from 0 to ``limit`` - 1 and the host refuses others.
    """

    shape: tuple[int, ...]
    dtype: str = "f32"
    limit: int | None = None


class LowerContext(Protocol):
    """What a layer, loss, metric or augmentation may ask for while it is traced."""

    graph: Graph
    path: str
    training: bool
    batch: int

    def param(self, name: str, shape: Sequence[int], init: Init) -> Value:
        """A trainable tensor at ``<path>.<name>``, f32."""
        ...

    def state(self, name: str, shape: Sequence[int], init: Init) -> Value:
        """A persistent tensor at ``<path>.<name>`` that is not trained (running statistics), f32."""
        ...

    def update_state(self, name: str, value: Value) -> None:
        """Give a state its next value; takes effect only in training."""
        ...

    def uniform(self, shape: Sequence[int], stream: str) -> Value:
        """Draws in [0, 1) from a named stream, f32."""
        ...

    def fail(self, expected: str, got: str, hint: str = "") -> NoReturn:
        """Raise an error that carries the place of this block in the record."""
        ...


@dataclass(frozen=True)
class Block:
    """What every block declares.

    Attributes:
        id: versioned id, ``training/optimizer/adamw@1``.
        title: for pickers.
        summary: one line.
        params: its parameters (types, ranges, units, defaults).
        source: authors, title, year, equation, link.
        deviation: where the code departs from the source, or ``none``.
        capabilities: declared abilities that suites and planners read.
        states: declared states such as ``{"execution": "eager"}``.
        host: ``portable`` or ``python`` (a browser tab refuses the latter by name).
    """

    _: KW_ONLY
    id: str
    title: str
    summary: str
    params: type[BlockParams]
    source: str
    deviation: str = "none"
    capabilities: frozenset[str] = frozenset()
    states: Mapping[str, str] = _field(default_factory=dict[str, str])
    host: Literal["portable", "python"] = "portable"

    family: ClassVar[str] = ""


@dataclass(frozen=True)
class Port:
    """An input of a layer."""

    name: str
    optional: bool = False
    variadic: bool = False


@dataclass(frozen=True)
class Layer(Block):
    """``layer/*``: either ``lower`` (ops) or ``compose`` (other blocks), never both.

    Attributes:
        ports: inputs in order; values reach the function as keyword arguments (a tuple where variadic, None
            where optional and unconnected).
        outputs: names of the outputs; the function returns one value or a tuple in this order.
        lower: ``(ctx, params, **ports) -> Value | tuple[Value, ...]``.
        compose: ``(g, params, **ports) -> Ref | tuple[Ref, ...]``.
    """

    family: ClassVar[str] = "layer"
    _: KW_ONLY
    ports: tuple[Port, ...] = (Port("x"),)
    outputs: tuple[str, ...] = ("y",)
    lower: Callable[..., Value | tuple[Value, ...]] | None = None
    compose: Callable[..., Ref | tuple[Ref, ...]] | None = None


@dataclass(frozen=True)
class Model(Block):
    """``model/*``: a composition by block id.

    Attributes:
        inputs: ``(params) -> {name: InputSpec}``; None where the data decides the shapes of ``x``.
        build: ``(g, params, inputs: {name: Ref}) -> {output name: Ref}``.
    """

    family: ClassVar[str] = "model"
    _: KW_ONLY
    inputs: Callable[[Any], Mapping[str, InputSpec]] | None = None
    build: Callable[[Compose, Any, Mapping[str, Ref]], Mapping[str, Ref]]


@dataclass(frozen=True)
class Slot:
    """A tensor that an optimizer, wrapper or average keeps: for each parameter, or one for the run.

    ``shape``: ``param`` (as the parameter), ``scalar``, or sizes. ``init``: a number, or ``param`` for a copy.
    """

    shape: Literal["param", "scalar"] | tuple[int, ...] = "param"
    dtype: str = "f32"
    init: float | Literal["param"] = 0.0


@dataclass(frozen=True)
class ParamInfo:
    """A trainable parameter as an optimizer sees it before tracing."""

    path: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ParamView:
    """A parameter inside a phase: value, gradient and slots, all at one shape."""

    path: str
    p: Value
    g: Value
    s: Mapping[str, Value]


@dataclass
class Hyper:
    """Hyperparameters inside a phase.

    Attributes:
        params: the block's own parameters (Python numbers; static switches).
        lr: learning rate of this step, f32[] (1/step).
        t: number of this update, f32[], from 1; skipped steps do not count.
        grad_norm: global L2 norm of the gradient before clipping, f32[].
        shared: values that earlier phases returned.
        globals: the block's own scalars.
        weight_decay: as in ``params``, or by parameter group where the record has groups.
    """

    params: Any
    lr: Value
    t: Value
    grad_norm: Value
    shared: dict[str, Value] = _field(default_factory=dict[str, Value])
    globals: dict[str, Value] = _field(default_factory=dict[str, Value])
    weight_decay: Value | float = 0.0


@dataclass(frozen=True)
class Phase:
    """One step of an update.

    ``scope`` says what ``fn`` is called with:

    * ``elements``: ``fn(p, g, s, hp) -> (new p, {slot: new value})`` where all tensors are seen as one flat
      f32[n]; the core runs it over whole slabs in one kernel.
    * ``tensor`` / ``matrix``: the same for each parameter at its own shape (``matrix``: only 2-D ones).
    * ``all``: ``fn(views: list[ParamView], hp) -> {name: value}``; scalars for later phases (``hp.shared``);
      names of globals update those.
    """

    scope: Literal["elements", "tensor", "matrix", "all"]
    fn: Callable[..., Any]


@dataclass(frozen=True)
class Optimizer(Block):
    """``training/optimizer/*``.

    Attributes:
        slots: ``(params, ParamInfo) -> {name: Slot}``.
        globals: ``(params) -> {name: Slot}``.
        phases: in order; the last non-``all`` phase yields the new parameters.
        passes: gradient passes a step.
        eval_weights: ``(p, s, hp) -> weights used in evaluation and export``; None for the parameters themselves.
        fallback: ``(params, ParamInfo) -> block id`` of the optimizer that takes this parameter instead, or None.
    """

    family: ClassVar[str] = "training/optimizer"
    _: KW_ONLY
    phases: tuple[Phase, ...]
    slots: Callable[[Any, ParamInfo], Mapping[str, Slot]] = lambda params, info: {}
    globals: Callable[[Any], Mapping[str, Slot]] = lambda params: {}
    passes: int = 1
    eval_weights: Callable[..., Value] | None = None
    fallback: Callable[[Any, ParamInfo], str | None] | None = None


@dataclass(frozen=True)
class Wrapper(Block):
    """``training/wrapper/*``: phases around another optimizer.

    ``before`` phases return gradients (``fn(p, g, s, hp) -> (g, slots)``); ``after`` phases see the optimizer's
    result (``fn(old p, new p, s, hp) -> (p, slots)``); ``perturb`` (for extra passes, as in SAM) returns the
    point at which the next gradient is taken.
    """

    family: ClassVar[str] = "training/wrapper"
    _: KW_ONLY
    slots: Callable[[Any, ParamInfo], Mapping[str, Slot]] = lambda params, info: {}
    before: tuple[Phase, ...] = ()
    after: tuple[Phase, ...] = ()
    perturb: tuple[Phase, ...] = ()
    passes: int = 1


@dataclass(frozen=True)
class Average(Block):
    """``training/average/*``: ``update(p, average, hp) -> average`` over elements; evaluation uses the average."""

    family: ClassVar[str] = "training/average"
    _: KW_ONLY
    update: Callable[[Value, Value, Hyper], Value]


@dataclass(frozen=True)
class Clip(Block):
    """``training/clip/*``: phases over gradients; ``elements``: ``fn(p, g, {}, hp) -> (new g, {})``.

    ``hp.grad_norm`` is the global norm, so that clipping by it needs no phase of its own.
    """

    family: ClassVar[str] = "training/clip"
    _: KW_ONLY
    phases: tuple[Phase, ...]


@dataclass(frozen=True)
class ScheduleContext:
    """What a schedule knows: the run's horizon and its own state."""

    total_steps: int
    steps_per_epoch: int
    state: Mapping[str, float] = _field(default_factory=dict[str, float])
    resolve: Callable[[str], Block] | None = None


@dataclass(frozen=True)
class Scheduler(Block):
    """``training/scheduler/*``: a pure function of the step, in float64 on the host.

    Attributes:
        factor: ``(step, params, ScheduleContext) -> multiplier of the optimizer's lr`` for the update numbered
            ``step`` from 0.
        init_state, advance: for schedules that follow a metric: ``advance(state, metrics, params) -> state``,
            called after each validation.
    """

    family: ClassVar[str] = "training/scheduler"
    _: KW_ONLY
    factor: Callable[[int, Any, ScheduleContext], float]
    init_state: Callable[[Any], Mapping[str, float]] | None = None
    advance: Callable[[Mapping[str, float], Mapping[str, float], Any], Mapping[str, float]] | None = None


@dataclass(frozen=True)
class LossTerm:
    """A loss before division: ``loss = total / weight``. ``weight`` None means a plain sum."""

    total: Value
    weight: Value | None = None


@dataclass(frozen=True)
class Loss(Block):
    """``training/loss/*``: ``fn(ctx, params, output, target) -> LossTerm`` (f32 scalars).

    ``metrics``: block ids reported where the record names none.
    """

    family: ClassVar[str] = "training/loss"
    _: KW_ONLY
    fn: Callable[..., LossTerm]
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True)
class Metric(Block):
    """``metric/*``: sums over a batch on the device, and how the host turns their totals into a number.

    Attributes:
        fn: ``(ctx, params, output, target) -> {name: Value}``; f32 values summed over all batches.
        finalize: ``ratio`` (total / weight), ``exp_ratio``, ``sqrt_ratio``, or a function of the summed arrays.
    """

    family: ClassVar[str] = "metric"
    _: KW_ONLY
    fn: Callable[..., Mapping[str, Value]]
    finalize: Literal["ratio", "exp_ratio", "sqrt_ratio"] | Callable[[Mapping[str, Any]], float] = "ratio"
    higher_is_better: bool = False


@dataclass(frozen=True)
class Augment(Block):
    """``augment/*``: ``fn(ctx, params, x) -> x`` in training only; draws from the ``augment`` stream."""

    family: ClassVar[str] = "augment"
    _: KW_ONLY
    fn: Callable[..., Value]


@dataclass(frozen=True)
class Peft(Block):
    """``training/peft/*``: a rewrite of the L3 graph.

    Attributes:
        rewrite: ``(g: BlockGraph, params, targets: list[str]) -> None``: adds instances, replaces targets,
            rewires consumers, freezes and unfreezes parameters.
        merge: ``(params, path, tensors: {name: array}) -> {name: array}``: the weights of one target with the
            adapter folded in (and the adapter's own left out).
    """

    family: ClassVar[str] = "training/peft"
    _: KW_ONLY
    rewrite: Callable[[BlockGraph, Any, list[str]], None]
    merge: Callable[[Any, str, Mapping[str, Any]], Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class Imported:
    """What a codec read: tensors by name (NumPy arrays), an L3 description if the file has one, and notes."""

    tensors: Mapping[str, Any]
    architecture: Mapping[str, Any] | None = None
    metadata: Mapping[str, str] = _field(default_factory=dict[str, str])
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Codec(Block):
    """``codec/*``: never runs code from the file.

    Attributes:
        suffixes: file endings it reads.
        read: ``(path, params) -> Imported``; raises DataError naming the tensor and offset.
        write: ``(path, tensors, metadata) -> None``, atomically; None where it only reads.
    """

    family: ClassVar[str] = "codec"
    _: KW_ONLY
    suffixes: tuple[str, ...]
    read: Callable[[Path, Any], Imported]
    write: Callable[[Path, Mapping[str, Any], Mapping[str, str]], None] | None = None


@dataclass(frozen=True)
class DataContext:
    """Where a data block finds its files (relative paths start at ``base``), and the run's seed."""

    base: Path
    seed: int = 0
    where: str = "data"


@dataclass(frozen=True)
class DataSpec:
    """What one example holds: inputs by name and targets by name, without the batch dimension.

    Attributes:
        sizes: examples in each split, by name (``train``, ``val`` ...).
        vocab_size: of tokens, where there are any.
        classes: names of classes, where there are any.
    """

    inputs: Mapping[str, InputSpec]
    targets: Mapping[str, InputSpec]
    sizes: Mapping[str, int]
    vocab_size: int | None = None
    classes: tuple[str, ...] = ()


class Dataset(Protocol):
    """An opened dataset."""

    @property
    def spec(self) -> DataSpec:
        """What one example holds; the same that ``describe`` says."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the content that examples come from."""
        ...

    def batch(self, split: str, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Inputs and targets of these examples, stacked along a new first dimension."""
        ...

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; DataError where the dataset is not text."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids; DataError where the dataset is not text."""
        ...


@dataclass(frozen=True)
class Data(Block):
    """``data/*``: batches by index.

    Attributes:
        describe: ``(params, DataContext) -> DataSpec``; cheap, reads no more than it must, needs no NumPy where
            the format allows.
        open: ``(params, DataContext) -> Dataset``.
    """

    family: ClassVar[str] = "data"
    _: KW_ONLY
    describe: Callable[[Any, DataContext], DataSpec]
    open: Callable[[Any, DataContext], Dataset]
