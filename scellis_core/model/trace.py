"""From the block graph to ops: what a block may ask for while it is traced, and the tensors that come of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from scellis_core import ops
from scellis_core.blocks import BlockGraph, Init, Instance, Layer, Ref, match_path
from scellis_core.blocks.graph import place
from scellis_core.errors import ContractError, DataError, IRError, RecordError, ScellisError, nearest
from scellis_core.ir import Graph, Type, Value


@dataclass(frozen=True)
class TensorMeta:
    """A persistent tensor of the model before it has a value.

    Attributes:
        shape, dtype: of the tensor.
        init: how it starts.
        trainable: whether gradients and optimizer state exist for it.
        block: path of the block that owns it.
    """

    shape: tuple[int, ...]
    dtype: str = "f32"
    init: Init = field(default_factory=Init)
    trainable: bool = True
    block: str = ""

    @property
    def numel(self) -> int:
        """Elements."""
        return Type(self.dtype, self.shape).numel


class Ties:
    """Which parameter paths are one tensor, and whether it is frozen.

    A tensor has the path that its ties end at; a freeze pattern that matches any of its paths freezes it.
    """

    def __init__(self, graph: BlockGraph) -> None:
        self._graph = graph
        self._names: dict[str, list[str]] = {}
        for path in graph.ties:
            self._names.setdefault(self.owner(path), []).append(path)

    def owner(self, path: str) -> str:
        """The path whose tensor ``path`` reads.

        Raises:
            ContractError: if ties go round in a circle.
        """
        seen = [path]
        while path in self._graph.ties:
            path = self._graph.ties[path]
            if path in seen:
                raise ContractError(f"parameter {path}", "ties that end at one tensor", " -> ".join([*seen, path]))
            seen.append(path)
        return path

    def names(self, owner: str) -> list[str]:
        """Every path of a tensor, its own first."""
        return [owner, *self._names.get(owner, [])]

    def frozen(self, path: str) -> bool:
        """Whether the tensor that a path reads is kept as it is."""
        names = self.names(self.owner(path))
        state = False
        for pattern, value in self._graph.frozen:
            if any(match_path(pattern, name) for name in names):
                state = value
        return state


@dataclass
class Tracing:
    """One graph being traced: the tensors met so far, and what is stored at the end.

    Attributes:
        graph: the op graph.
        training: whether draws are made and statistics move.
        batch: examples.
        ties: of the block graph.
        params, states: by name (states as ``state:<path>.<name>``).
        aliases: parameter path read -> path of its tensor, where they differ.
    """

    graph: Graph
    training: bool
    batch: int
    ties: Ties
    params: dict[str, TensorMeta] = field(default_factory=dict[str, TensorMeta])
    states: dict[str, TensorMeta] = field(default_factory=dict[str, TensorMeta])
    aliases: dict[str, str] = field(default_factory=dict[str, str])
    _values: dict[str, Value] = field(default_factory=dict[str, Value])
    _stores: dict[str, Value] = field(default_factory=dict[str, Value])

    def finish(self) -> None:
        """Emit the stores of statistics, after everything that reads them.

        Raises:
            ContractError: if a tie ends at a parameter that no block has.
        """
        for path, owner in self.aliases.items():
            if self.params[owner].block == "":
                hint = nearest(owner, [p for p in self.params if p != owner])
                raise ContractError(f"tie of {path}", f"a parameter {owner}", "none of that name", hint)
        for name, value in self._stores.items():
            with self.graph.at(self.states[name].block):
                self.graph.store(name, value)

    def mark(self) -> tuple[int, ...]:
        """Where things stand, for :meth:`rewind`."""
        kept = (self.params, self.states, self._values, self._stores)
        return (len(self.graph.nodes), self.graph.draws, *map(len, kept))

    def rewind(self, mark: tuple[int, ...]) -> None:
        """Undo what was traced since a mark."""
        nodes, self.graph.draws, *sizes = mark
        del self.graph.nodes[nodes:]
        for kept, size in zip((self.params, self.states, self._values, self._stores), sizes, strict=True):
            for name in list(kept)[size:]:
                del kept[name]

    def param(self, path: str, shape: tuple[int, ...], init: Init, block: str) -> Value:
        """The tensor of a parameter path; one value for all paths tied to it."""
        owner = self.ties.owner(path)
        known = self.params.get(owner)
        if known is None:
            own = path == owner
            meta = TensorMeta(shape, "f32", init, not self.ties.frozen(path), block if own else "")
            self.params[owner] = meta
            leaf = self.graph.emit("param", [], name=owner, dtype="f32", shape=shape)[0]
            self._values[owner] = leaf
        elif known.shape != shape:
            got = f"shape {list(shape)} of {path}" if path != owner else f"shape {list(shape)}"
            raise IRError(f"parameter {owner}", f"shape {list(known.shape)}", got, "untying them or equal sizes")
        elif path == owner:
            self.params[owner] = replace(known, init=init, block=block)
        if path != owner:
            self.aliases[path] = owner
        return self._values[owner]

    def state(self, path: str, shape: tuple[int, ...], init: Init, block: str) -> Value:
        """The tensor of a state path."""
        name = f"state:{path}"
        known = self.states.get(name)
        if known is None:
            self.states[name] = TensorMeta(shape, "f32", init, False, block)
            self._values[name] = self.graph.emit("state", [], name=name, dtype="f32", shape=shape)[0]
        elif known.shape != shape:
            raise IRError(f"state {path}", f"shape {list(known.shape)}", f"shape {list(shape)}")
        return self._values[name]

    def update_state(self, path: str, value: Value) -> None:
        """Keep the next value of a state for :meth:`finish`."""
        name = f"state:{path}"
        known = self.states.get(name)
        if known is None:
            raise ContractError(f"state {path}", "a state declared by ctx.state", "none", nearest(name, self.states))
        wanted = Type(known.dtype, known.shape)
        if value.type != wanted:
            raise IRError(f"state {path}", f"a next value of type {wanted}", str(value.type))
        self._stores[name] = value


class Context:
    """The :class:`scellis_core.blocks.LowerContext` given to a block.

    Args:
        tracing: where tensors and nodes go.
        path: of the block; its tensors are ``<path>.<name>``.
        where: place for errors.
        training: as the block shall see it.
        tensors: whether it may have parameters and states (layers and losses may).
    """

    def __init__(self, tracing: Tracing, path: str, where: str, *, training: bool, tensors: bool = True) -> None:
        self._tracing, self._where, self._tensors = tracing, where, tensors
        self.graph, self.batch, self.path, self.training = tracing.graph, tracing.batch, path, training
        self.own: list[str] = []
        self.own_states: list[str] = []
        self.moves = False

    def param(self, name: str, shape: Sequence[int], init: Init) -> Value:
        """A trainable tensor at ``<path>.<name>``, f32."""
        path = self._full("parameter", name, shape)
        self.own.append(path)
        return self._tracing.param(path, tuple(shape), init, self.path)

    def state(self, name: str, shape: Sequence[int], init: Init) -> Value:
        """A persistent tensor at ``<path>.<name>`` that is not trained, f32."""
        path = self._full("state", name, shape)
        self.own_states.append(path)
        return self._tracing.state(path, tuple(shape), init, self.path)

    def update_state(self, name: str, value: Value) -> None:
        """Give a state its next value; takes effect only in training."""
        self.moves = True
        if self.training:
            self._tracing.update_state(f"{self.path}.{name}", value)

    def uniform(self, shape: Sequence[int], stream: str) -> Value:
        """Draws in [0, 1) from a named stream, f32; only in training."""
        if not self.training:
            self.fail("draws in training only", f"a draw from {stream!r} outside it", "asking ctx.training first")
        return ops.uniform(self.graph, shape, stream)

    def fail(self, expected: str, got: str, hint: str = "") -> NoReturn:
        """Raise an error that carries the place of this block in the record."""
        raise RecordError(self._where, expected, got, hint)

    def keeps_still(self, ties: Ties) -> bool:
        """Whether everything that this block could change is frozen, so that its statistics shall stay too."""
        return all(ties.frozen(p) for p in (self.own or self.own_states))

    def _full(self, what: str, name: str, shape: Sequence[int]) -> str:
        if not self._tensors:
            raise ContractError(self._where, f"no {what} in this kind of block", repr(name))
        if any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in shape):
            raise ContractError(self._where, f"sizes > 0 of {what} {name}", str(list(shape)))
        return f"{self.path}.{name}"


def call_block(where: str, fn: Callable[..., Any], /, *args: Any, **ports: Any) -> Any:
    """Call a block's function; its faults become errors that name the block and its place.

    Raises:
        RecordError: shapes or types do not fit.
        ContractError: the block breaks its contract, or fails in another way.
    """
    try:
        return fn(*args, **ports)
    except (RecordError, DataError):
        raise
    except IRError as error:
        op = error.where.rpartition(": ")[2] if ": " in error.where else error.where
        raise RecordError(f"{where}, {op}", error.expected, error.got, error.hint) from error
    except ContractError as error:
        if error.where.startswith(where.partition(": block ")[0]):
            raise
        raise ContractError(f"{where}, {error.where}", error.expected, error.got, error.hint) from error
    except ScellisError:
        raise
    except Exception as error:  # a fault of the block's author, told as one
        text = " ".join(str(error).split())
        raise ContractError(where, "a block that can be traced", f"{type(error).__name__}: {text}") from error


def trace(blocks: BlockGraph, tracing: Tracing, inputs: Mapping[str, Value]) -> dict[str, Value]:
    """Trace every instance in order.

    Args:
        blocks: the block graph.
        tracing: receives nodes and tensors.
        inputs: values of the graph's inputs.

    Returns:
        The graph's outputs by name.

    Raises:
        RecordError: shapes or types do not fit; the place is that of the instance in the record.
        ContractError: a block breaks its contract.
    """
    values: dict[tuple[str, str], Value] = {("", name): value for name, value in inputs.items()}
    for instance in blocks.instances.values():
        where = place(instance.where, instance.path, instance.layer.id)
        results = _trace_one(instance, tracing, values, where)
        for name, value in zip(instance.layer.outputs, results, strict=True):
            values[instance.path, name] = value
    return {name: _read(values, ref, f"output {name}") for name, ref in blocks.outputs.items()}


def _trace_one(
    instance: Instance, tracing: Tracing, values: Mapping[tuple[str, str], Value], where: str
) -> tuple[Value, ...]:
    layer = instance.layer
    ports: dict[str, Any] = {}
    for port in layer.ports:
        given = tuple(_read(values, ref, where) for ref in instance.inputs.get(port.name, ()))
        ports[port.name] = given if port.variadic else given[0] if given else None
    if layer.lower is None:
        raise ContractError(where, "a layer that lowers to ops", "a composite one")
    mark = tracing.mark()
    context = Context(tracing, instance.path, where, training=tracing.training)
    with tracing.graph.at(instance.path):
        results = _outputs(
            layer, call_block(where, layer.lower, context, instance.params, **ports), tracing.graph, where
        )
        if context.training and context.moves and context.keeps_still(tracing.ties):
            tracing.rewind(mark)
            context = Context(tracing, instance.path, where, training=False)
            results = _outputs(
                layer, call_block(where, layer.lower, context, instance.params, **ports), tracing.graph, where
            )
    return results


def _outputs(layer: Layer, found: Any, graph: Graph, where: str) -> tuple[Value, ...]:
    results: tuple[Any, ...] = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    if len(results) != len(layer.outputs):
        raise ContractError(where, f"{len(layer.outputs)} output(s): {', '.join(layer.outputs)}", f"{len(results)}")
    for name, value in zip(layer.outputs, results, strict=True):
        if not isinstance(value, Value) or value.graph is not graph:
            got = "a value of another graph" if isinstance(value, Value) else f"a {type(value).__name__}"
            raise ContractError(where, f"an IR value as output {name}", got)
    return results


def _read(values: Mapping[tuple[str, str], Value], ref: Ref, where: str) -> Value:
    value = values.get((ref.path, ref.port))
    if value is None:
        known = [f"{path}.{port}" if path else port for path, port in values]
        raise ContractError(where, "a value computed before it is read", str(ref), nearest(str(ref), known))
    return value
